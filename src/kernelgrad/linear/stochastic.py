"""Solvers that step along mini-batches of rows: their rounds, SGD with averages, and SVRG."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Generic

import numpy as np

from kernelgrad.compute.rng import draws
from kernelgrad.linear import base, loops
from kernelgrad.linear.base import (
    L,
    LinearProblem,
    LinearSolver,
    LinearState,
    PreparedRows,
    as_linear,
    evaluate,
)
from kernelgrad.params import integer, parameters, real
from kernelgrad.solvers import contract
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, sized
from kernelgrad.types import Float64Array, IntArray

RENEWALS = 32  # renewals of step sizes and averages in a pass
_POWER = 0.75  # power with which step sizes fall (Xu, 2011, for averaged iterates)


@dataclass
class StepRound(Generic[L]):
    problem: LinearProblem
    state: L
    data: PreparedRows
    p: int
    n_steps: int = 0

    @property
    def n_rows(self) -> int:
        rows, n = self.n_steps * self.p, self.data.n
        return n if 0 <= rows - n < self.p else rows

    @property
    def smoothness(self) -> float:
        problem = self.problem
        L = self.data.batch_smoothness(self.p, problem.fit_intercept, problem.seed)
        return max(L, 1e-300)


class StochasticSolver(LinearSolver[L], Generic[L]):
    """Base of the solvers that step along mini-batches of rows.

    A step of the loop draws mini-batches and cuts them into runs of one step size. Solvers say
    how to draw, which runs there are, which references reduce the variance of a run, and what
    is done after it.
    """

    batch_size: int
    step_size: float | str = "auto"
    round_size: int | str = "auto"
    tag: ClassVar[int]  # key of the draws

    def step(
        self, problem: contract.Problem, state: L, batch: contract.TrainBatch
    ) -> contract.StepInfo:
        data = self._attach(problem, state, batch)
        r = StepRound(as_linear(problem), state, data, min(self.batch_size, data.n))
        T = r.n_steps = self._n_steps(r)
        order, share = self._draw(r)
        W, b = data.native(state.coef), state.bias.copy()
        seen, eta = 0.0, 0.0
        for first, last, eta in self._runs(r):
            now, reference = slice(first, last), self._reference(r, W, b)
            seen += data.descend(r.problem, W, b, order[now], share[now], eta, reference)
            data.here = None
            self._after(r, W, b, last - first)
        self._store(state, data, W, b, r.n_rows)
        return self._finish_round(r, W, contract.StepInfo(seen / T, eta))

    def _n_steps(self, r: StepRound[L]) -> int:
        return -(-r.data.n // r.p) if self.round_size == "auto" else int(self.round_size)

    def _draw(self, r: StepRound[L]) -> tuple[IntArray, Float64Array]:
        rng = draws(r.problem.seed, self.tag, r.state.iteration)
        return draw_batches(r.data, r.n_steps, r.p, rng)

    def _runs(self, r: StepRound[L]) -> Iterator[tuple[int, int, float]]:
        yield 0, r.n_steps, self._first_step(r)

    def _first_step(self, r: StepRound[L]) -> float:
        auto = self.step_size == "auto"
        return 0.5 / r.smoothness if auto else float(self.step_size)

    def _reference(self, r: StepRound[L], W: Float64Array, b: Float64Array) -> Any:
        return None

    def _after(self, r: StepRound[L], W: Float64Array, b: Float64Array, n: int) -> None:
        """Do what follows a run of n steps."""

    def _finish_round(
        self, r: StepRound[L], W: Float64Array, info: contract.StepInfo
    ) -> contract.StepInfo:
        """Return the report of a round; `info` holds the mean loss of its rows.

        After every n visited rows, the objective and the gradient are computed and decide
        whether the fit has converged.
        """
        state, data = r.state, r.data
        state.rows_unseen += r.n_rows
        info = replace(info, epoch=state.rows_seen / data.n)
        if state.rows_unseen < data.n:
            return info
        state.rows_unseen = 0
        here = data.here = evaluate(r.problem, data, W, state.bias)
        done = here.optimality(r.problem, data, W) <= r.problem.tol * state.first
        return replace(info, train_loss=here.loss, objective=here.objective, converged=done)


def falling_runs(
    T: int, p: int, first_step: float, rows_done: int, pass_rows: int, most: int = RENEWALS
) -> Iterator[tuple[int, int, float]]:
    """Yield (first, last, step size) of runs whose steps fall as ``(1 + t / t_0)^-3/4``."""
    for first, last in pairwise(np.unique(np.linspace(0, T, min(T, most) + 1).astype(int))):
        fall = (1.0 + (rows_done + first * p) / pass_rows) ** -_POWER
        yield int(first), int(last), first_step * fall


def draw_batches(
    data: PreparedRows, n_steps: int, batch_size: int, rng: np.random.Generator
) -> tuple[IntArray, Float64Array]:
    """Return rows (T, p) of mini-batches and their shares (T, p).

    Rows of equal weight come in random orders of all of them, others are drawn in proportion
    to their weights; shares are 1 / p.
    """
    n, wanted = data.n, n_steps * batch_size
    if data.is_uniform and wanted < n:
        order: IntArray = rng.choice(n, wanted, replace=False)
    elif data.is_uniform:
        passes = [rng.permutation(n) for _ in range(-(-wanted // n))]
        order = np.concatenate(passes)[:wanted]
    else:
        order = weighted_draws(data.cumulative, wanted, rng)
    shape = (n_steps, batch_size)
    return order.reshape(shape).astype(np.int64), np.full(shape, 1.0 / batch_size)


def weighted_draws(cumulative: Float64Array, size: int, rng: np.random.Generator) -> IntArray:
    # below the sum: the last row may have no weight
    at = np.minimum(rng.random(size), 1.0 - 2.0**-53) * cumulative[-1]
    rows = np.searchsorted(cumulative, at, side="right")
    return np.asarray(np.minimum(rows, np.searchsorted(cumulative, cumulative[-1])))


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
    takes_kinks: ClassVar[bool] = True
    streams: ClassVar[bool] = True
    state_class: ClassVar[type[Any]] = SGDState
    tag: ClassVar[int] = 0x736764

    @property
    def _averages(self) -> bool:
        return self.step_size == "auto"

    def init(self, problem: Problem, batch: TrainBatch) -> Any:
        state = super().init(problem, batch)
        state.average, state.average_bias = state.coef.copy(), state.bias.copy()
        return state

    def _n_steps(self, r: StepRound[Any]) -> int:
        least = 0 if r.problem.fixed_rows else base.STREAM_ROWS
        r.state.pass_rows = max(r.state.pass_rows, r.data.n, least)
        return super()._n_steps(r)

    def _smoothness(self, r: StepRound[Any]) -> float:
        r.state.spectrum = r.data.spectrum(r.problem.fit_intercept, r.problem.seed)
        return r.smoothness

    def _after(self, r: StepRound[Any], W: Float64Array, b: Float64Array, n: int) -> None:
        r.state.n_steps += n
        if self._averages:
            r.state.n_averaged += n
            r.state.take_average(r.data.native(W), b, n, r.state.n_averaged)

    def _finish_round(self, r: StepRound[Any], W: Float64Array, info: StepInfo) -> StepInfo:
        state = r.state
        if not self._averages:
            state.average, state.average_bias = state.coef.copy(), state.bias.copy()
        epoch = None if self.round_size == "auto" else state.rows_seen / r.data.n
        return replace(info, epoch=epoch)

    def solution(self, state: Any) -> tuple[Float64Array, Float64Array]:
        """Return the average; with a given step size, the last iterate is in its place."""
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
    """

    name: ClassVar[str] = "sgd"
    removed = frozenset({"average"})

    batch_size: int = integer(default=10, low=1)
    step_size: float | str = real(default="auto", low=0, low_open=True, words=("auto",))
    round_size: int | str = integer(default="auto", low=1, words=("auto",))

    def _runs(self, r: StepRound[Any]) -> Iterator[tuple[int, int, float]]:
        T, p, state = r.n_steps, r.p, r.state
        if self.step_size != "auto":
            yield 0, T, float(self.step_size)
            return
        first = 1.0 / self._smoothness(r)
        # a run costs as much as all coefficients: no more of them than the rows are worth
        worth = T * p * r.data.row_size / max(1, state.coef.size)
        most = int(np.clip(worth, 1, RENEWALS))
        yield from falling_runs(T, p, first, state.rows_seen, state.pass_rows, most)


@parameters
class SVRG(StochasticSolver[LinearState]):
    r"""Proximal stochastic variance-reduced gradients (Prox-SVRG).

    An outer loop stores the gradient of all rows at a snapshot; inner steps use

    .. math:: g = \frac{1}{p} \sum_{k \in I} \bigl(l'(y_k, u_k) - l'(y_k, \tilde u_k)\bigr)
              x_k + \nabla P(\tilde W)

    whose noise vanishes as W and the snapshot approach the minimum, so that a constant step
    converges geometrically. The snapshot's derivatives are kept, one number per row and output,
    so that an inner step needs no second product.

    Parameters
    ----------
    batch_size : int >= 1, default=10
        p, that of Mu, Liu and Fan (2015, Section 4.3).
    inner_steps : int >= 1 or "auto", default="auto"
        Steps per snapshot; ``"auto"`` is ``n / p``, one pass over the rows. The paper has 50.
    step_size : float > 0 or "auto", default="auto"
        ``"auto"`` is ``1 / (2 L(p))`` with the expected smoothness L(p) of a mini-batch.
    round_size : int >= 1 or "auto", default="auto"
        Steps of one iteration of the loop, in whole outer loops; "auto" is one pass.

    References
    ----------
    Johnson and Zhang (2013); Xiao and Zhang (2014); Mu, Liu and Fan (2015), Equation (4).
    """

    name: ClassVar[str] = "svrg"
    tag: ClassVar[int] = 0x737672

    batch_size: int = integer(default=10, low=1)
    inner_steps: int | str = integer(default="auto", low=1, words=("auto",))
    step_size: float | str = real(default="auto", low=0, low_open=True, words=("auto",))
    round_size: int | str = integer(default="auto", low=1, words=("auto",))

    def _inner(self, r: StepRound[LinearState]) -> int:
        return -(-r.data.n // r.p) if self.inner_steps == "auto" else int(self.inner_steps)

    def _n_steps(self, r: StepRound[LinearState]) -> int:
        inner, T = self._inner(r), super()._n_steps(r)
        return max(inner, T if self.round_size == "auto" else T // inner * inner)

    def _runs(self, r: StepRound[LinearState]) -> Iterator[tuple[int, int, float]]:
        inner, eta = self._inner(r), self._first_step(r)
        for start in range(0, r.n_steps, inner):
            yield start, min(start + inner, r.n_steps), eta

    def _reference(self, r: StepRound[LinearState], W: Float64Array, b: Float64Array) -> Any:
        here = evaluate(r.problem, r.data, W, b) if r.data.here is None else r.data.here
        return loops.RowReferences(here.gradient, here.gradient_bias, here.slopes)
