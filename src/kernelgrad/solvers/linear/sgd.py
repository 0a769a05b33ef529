r"""Stochastic gradient descent with proximal steps, for linear functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from kernelgrad._typing import Float64Array, IntArray
from kernelgrad._validation import check_bool, check_int, check_real
from kernelgrad.solvers.base import Problem, StepInfo, TrainBatch, draws
from kernelgrad.solvers.linear.base import (
    CODES,
    STREAM_ROWS,
    LinearMemory,
    LinearProblem,
    LinearSolver,
    LinearState,
    as_linear,
    check_round_size,
    draw_batches,
    steps_of_round,
    visits,
)

_TAG = 0x736764
_PARTS = 32  # step sizes and averages are renewed so often in a pass
_FORGET = 8.0  # power with which averages forget early iterates


@dataclass(kw_only=True)
class SGDState(LinearState):
    """State of :class:`SGD`: the current iterate, the average, and t_0 in rows."""

    average: Float64Array = field(default_factory=lambda: np.zeros(0))
    average_bias: Float64Array = field(default_factory=lambda: np.zeros(0))
    n_steps: int = 0
    n_averaged: int = 0
    pass_rows: int = 0


class SGD(LinearSolver[SGDState]):
    r"""Mini-batch stochastic gradient descent with proximal steps and averaging.

    .. math:: W \leftarrow \mathrm{prox}_{\eta_t R}\Bigl(W - \eta_t \frac{1}{p}
              \sum_{k \in I_t} l'(y_k, x_k W + b)\, x_k\Bigr), \qquad
              \eta_t = \frac{\eta_0}{(1 + t / t_0)^{3/4}}

    with mini-batches of p rows in random order; rows of unequal weight are drawn in proportion
    to it. The result is the average of the iterates, weighted towards the last ones (polynomial
    decay, Shamir and Zhang, 2013).

    Parameters
    ----------
    batch_size : int >= 1, default=10
        p, the paper's (Section 4.3).
    step_size : float > 0 or "auto", default="auto"
        ``"auto"`` takes ``eta_0 = 1 / L(p)`` with the expected smoothness of a mini-batch and
        lets it fall with t_0 of one pass; of a stream, of its largest batch so far and at
        least 4,096 rows. A number is a constant step, as in the paper.
    round_size : int >= 1 or "auto", default="auto"
        Steps of one iteration of the loop; "auto" is one pass over the rows.
    average : bool, default=True
        False returns the last iterate. With a constant `step_size` there is no averaging
        either way: the paper's setting.

    Notes
    -----
    Takes every loss, with subgradients at kinks, and rows one batch at a time. It comes within
    a percent of the minimum; solvers that reduce the variance go on. An average of sparse
    iterates is seldom sparse: to choose columns by L1, take one of those.

    References
    ----------
    Mu, Liu and Fan (2015), Section 4.2; Xu (2011), "Towards Optimal One Pass Large Scale
    Learning with Averaged Stochastic Gradient Descent", for the exponent 3/4.
    """

    name: ClassVar[str] = "sgd"
    losses: ClassVar[frozenset[int]] = CODES
    streams: ClassVar[bool] = True
    _state_class: Any = SGDState

    def __init__(
        self,
        *,
        batch_size: int = 10,
        step_size: float | str = "auto",
        round_size: int | str = "auto",
        average: bool = True,
    ) -> None:
        self.batch_size = batch_size
        self.step_size = step_size
        self.round_size = round_size
        self.average = average

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        check_int(self.batch_size, "batch_size", low=1)
        if self.step_size != "auto":
            check_real(self.step_size, "step_size", low=0, low_open=True)
        check_round_size(self.round_size)
        check_bool(self.average, "average")

    @property
    def _averages(self) -> bool:
        return bool(self.average) and self.step_size == "auto"

    def init(self, problem: Problem, batch: TrainBatch) -> SGDState:
        """Start from zero coefficients and the best constant."""
        start = self._start(problem, batch)
        return SGDState(
            average=start["coef"].copy(), average_bias=start["bias"].copy(), **start
        )

    def step(self, problem: Problem, state: SGDState, batch: TrainBatch) -> StepInfo:
        """Take one pass over the batch."""
        own = as_linear(problem)
        memory = self._attach(problem, state, batch)
        p = min(self.batch_size, memory.n)
        T = steps_of_round(self.round_size, memory.n, p)
        least = 0 if problem.fixed_rows else STREAM_ROWS
        state.pass_rows = max(state.pass_rows, memory.n, least)
        order, share = self._draw(own, state, memory, T, p)
        W, b = memory.rows.native(state.coef), state.bias.copy()
        seen, eta = 0.0, 0.0
        for first, last, eta in self._parts(own, state, memory, T, p):
            seen += memory.rows.descend(
                memory.kind, memory.numbers, memory.Y, W, b, order[first:last],
                share[first:last], eta, own.l1, own.l2, own.fit_intercept,
            )  # fmt: skip
            state.n_steps += last - first
            self._after(own, state, memory, W, b, last - first)
        self._store(state, memory, W, b, visits(memory, T, p))
        if not self._averages:
            state.average, state.average_bias = state.coef.copy(), b.copy()
        return StepInfo(
            train_loss=seen / T,
            step_size=eta,
            n_random_features=0,
            epoch=None if self.round_size == "auto" else state.rows_seen / memory.n,
        )

    def _draw(
        self, problem: LinearProblem, state: SGDState, memory: LinearMemory, T: int, p: int
    ) -> tuple[IntArray, Float64Array]:
        """Return rows (T, p) and shares of the mini-batches of one pass."""
        return draw_batches(memory, T, p, draws(problem.seed, _TAG, state.iteration))

    def _parts(
        self, problem: LinearProblem, state: SGDState, memory: LinearMemory, T: int, p: int
    ) -> Any:
        """Yield (first, last, step size) of runs of steps with one step size."""
        if self.step_size != "auto":
            yield 0, T, float(self.step_size)
            return
        L = max(self._smoothness(problem, state, memory, p), 1e-300)
        # a part costs as much as all coefficients: no more of them than the rows are worth
        worth = T * p * memory.rows.row_size / max(1, state.coef.size)
        parts = int(np.clip(worth, 1, _PARTS))
        cuts = np.unique(np.linspace(0, T, min(T, parts) + 1).astype(int))
        for first, last in pairwise(cuts.tolist()):
            done = (state.rows_seen + first * p) / state.pass_rows
            yield first, last, (1.0 / L) / (1.0 + done) ** 0.75

    def _smoothness(
        self, problem: LinearProblem, state: SGDState, memory: LinearMemory, p: int
    ) -> float:
        """Return the expected smoothness of a mini-batch."""
        L = memory.batch_smoothness(p, problem.fit_intercept, problem.seed)
        state.spectrum = memory.spectrum(problem.fit_intercept, problem.seed)
        return L

    def _after(
        self,
        problem: LinearProblem,
        state: SGDState,
        memory: LinearMemory,
        W: Float64Array,
        b: Float64Array,
        n_steps: int,
    ) -> None:
        """Take the iterate into the average, for the last `n_steps` steps."""
        if not self._averages:
            return
        state.n_averaged += n_steps
        part = (1.0 + _FORGET) * n_steps / (state.n_averaged + _FORGET * n_steps)
        state.average += part * (memory.rows.public(W) - state.average)
        state.average_bias += part * (b - state.average_bias)

    def solution(self, state: SGDState) -> tuple[Float64Array, Float64Array]:
        """Return the average."""
        return state.average, state.average_bias
