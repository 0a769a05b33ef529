"""Solvers that step along mini-batches of rows: their rounds, draws and falling steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Generic

import numpy as np

from kernelgrad.linear.base import (
    L,
    LinearProblem,
    LinearSolver,
    PreparedRows,
    as_linear,
    evaluate,
)
from kernelgrad.solvers import contract
from kernelgrad.types import Float64Array, IntArray

RENEWALS = 32  # renewals of step sizes and averages in a pass
_POWER = 0.75  # power with which step sizes fall (Xu, 2011, for averaged iterates)


@dataclass
class Round(Generic[L]):
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
        r = Round(as_linear(problem), state, data, min(self.batch_size, data.n))
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
        return self._finish_round(r, W, contract.StepInfo(seen / T, eta, 0))

    def _n_steps(self, r: Round[L]) -> int:
        return -(-r.data.n // r.p) if self.round_size == "auto" else int(self.round_size)

    def _draw(self, r: Round[L]) -> tuple[IntArray, Float64Array]:
        rng = contract.draws(r.problem.seed, self.tag, r.state.iteration)
        return draw_batches(r.data, r.n_steps, r.p, rng)

    def _runs(self, r: Round[L]) -> Iterator[tuple[int, int, float]]:
        yield 0, r.n_steps, self._first_step(r)

    def _first_step(self, r: Round[L]) -> float:
        auto = self.step_size == "auto"
        return 0.5 / r.smoothness if auto else float(self.step_size)

    def _reference(self, r: Round[L], W: Float64Array, b: Float64Array) -> Any:
        return None

    def _after(self, r: Round[L], W: Float64Array, b: Float64Array, n: int) -> None:
        """Do what follows a run of n steps."""

    def _finish_round(
        self, r: Round[L], W: Float64Array, info: contract.StepInfo
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
