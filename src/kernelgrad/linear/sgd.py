r"""Stochastic gradient descent for linear functions, with averages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from kernelgrad.linear import base
from kernelgrad.linear.base import LinearState
from kernelgrad.linear.stochastic import RENEWALS, Round, StochasticSolver, falling_runs
from kernelgrad.params import boolean, integer, parameters, real
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, sized
from kernelgrad.types import Float64Array

_FORGET = 8.0  # power with which averages forget early iterates


@dataclass(kw_only=True)
class SGDState(LinearState):
    """State of :class:`SGD`: the current iterate, the average, and t_0 in rows."""

    average: Float64Array = sized("d", "C", later=True)
    average_bias: Float64Array = sized("C", later=True)
    n_steps: int = 0
    n_averaged: int = 0
    pass_rows: int = 0

    def take_average(self, W: Float64Array, b: Float64Array, n: int, n_done: int) -> None:
        """Take W (d, C) and b into the average for the last `n` of `n_done` steps."""
        part = (1.0 + _FORGET) * n / (n_done + _FORGET * n)
        self.average += part * (W - self.average)
        self.average_bias += part * (b - self.average_bias)


class AveragingSolver(StochasticSolver[Any]):
    average: bool = True
    takes_kinks: ClassVar[bool] = True
    streams: ClassVar[bool] = True
    state_class: ClassVar[type[Any]] = SGDState
    tag: ClassVar[int] = 0x736764

    @property
    def _averages(self) -> bool:
        return self.average and self.step_size == "auto"

    def init(self, problem: Problem, batch: TrainBatch) -> Any:
        state = super().init(problem, batch)
        state.average, state.average_bias = state.coef.copy(), state.bias.copy()
        return state

    def _n_steps(self, r: Round[Any]) -> int:
        least = 0 if r.problem.fixed_rows else base.STREAM_ROWS
        r.state.pass_rows = max(r.state.pass_rows, r.data.n, least)
        return super()._n_steps(r)

    def _smoothness(self, r: Round[Any]) -> float:
        r.state.spectrum = r.data.spectrum(r.problem.fit_intercept, r.problem.seed)
        return r.smoothness

    def _after(self, r: Round[Any], W: Float64Array, b: Float64Array, n: int) -> None:
        r.state.n_steps += n
        if self._averages:
            r.state.n_averaged += n
            r.state.take_average(r.data.native(W), b, n, r.state.n_averaged)

    def _finish_round(self, r: Round[Any], W: Float64Array, info: StepInfo) -> StepInfo:
        state = r.state
        if not self._averages:
            state.average, state.average_bias = state.coef.copy(), state.bias.copy()
        epoch = None if self.round_size == "auto" else state.rows_seen / r.data.n
        return replace(info, epoch=epoch)

    def solution(self, state: Any) -> tuple[Float64Array, Float64Array]:
        """Return the average."""
        return state.average, state.average_bias


@parameters
class SGD(AveragingSolver):
    r"""Mini-batch stochastic gradient descent with proximal steps and averaging.

    .. math:: W \leftarrow \mathrm{prox}_{\eta_t R}\Bigl(W - \eta_t \frac{1}{p}
              \sum_{k \in I_t} l'(y_k, x_k W + b)\, x_k\Bigr), \qquad
              \eta_t = \frac{\eta_0}{(1 + t / t_0)^{3/4}}

    with mini-batches of p rows in random order; rows of unequal weight are drawn in proportion
    to it. The result is the average of the iterates, weighted towards the last ones (polynomial
    decay, Shamir and Zhang, 2013). Takes every loss, with subgradients at kinks, and rows one
    batch at a time; comes within a percent of the minimum. An average is seldom sparse: to
    select columns by an L1 penalty, take a solver that reduces the variance.

    Parameters
    ----------
    batch_size : int >= 1, default=10
        p, that of Mu, Liu and Fan (2015, Section 4.3).
    step_size : float > 0 or "auto", default="auto"
        ``"auto"`` takes ``eta_0 = 1 / L(p)`` with the expected smoothness of a mini-batch and
        decreases it with t_0 of one pass (for a stream, the largest batch so far and at least
        4,096 rows; exponent of Xu, 2011). A number is a constant step without averaging, as in
        the paper.
    round_size : int >= 1 or "auto", default="auto"
        Steps of one iteration of the loop; "auto" is one pass over the rows.
    average : bool, default=True
        False returns the last iterate.
    """

    name: ClassVar[str] = "sgd"

    batch_size: int = integer(default=10, low=1)
    step_size: float | str = real(default="auto", low=0, low_open=True, words=("auto",))
    round_size: int | str = integer(default="auto", low=1, words=("auto",))
    average: bool = boolean(default=True)

    def _runs(self, r: Round[Any]) -> Iterator[tuple[int, int, float]]:
        T, p, state = r.n_steps, r.p, r.state
        if self.step_size != "auto":
            yield 0, T, float(self.step_size)
            return
        first = 1.0 / self._smoothness(r)
        # a run costs as much as all coefficients: no more of them than the rows are worth
        worth = T * p * r.data.row_size / max(1, state.coef.size)
        most = int(np.clip(worth, 1, RENEWALS))
        yield from falling_runs(T, p, first, state.rows_seen, state.pass_rows, most)
