r"""Proximal stochastic gradients with exactly reduced variance: SVRG and SAGA."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from kernelgrad._typing import Float64Array
from kernelgrad._validation import check_int, check_real
from kernelgrad.solvers.base import Problem, StepInfo, TrainBatch, draws
from kernelgrad.solvers.linear.base import (
    LinearMemory,
    LinearProblem,
    LinearSolver,
    LinearState,
    as_linear,
    check_round_size,
    draw_batches,
    evaluate,
    steps_of_round,
    visits,
)

_TAG_SVRG, _TAG_SAGA = 0x737672, 0x736167
STEP_SHARE = 0.5  # of 1 / L(p), the automatic step of SVRG
_SAGA_SHARE = 1.0 / 3.0


class SVRG(LinearSolver[LinearState]):
    r"""Proximal stochastic variance-reduced gradients (Prox-SVRG).

    An outer loop stores the gradient of all rows at a snapshot; inner steps use

    .. math:: g = \frac{1}{p} \sum_{k \in I} \bigl(l'(y_k, u_k) - l'(y_k, \tilde u_k)\bigr)
              x_k + \nabla P(\tilde W)

    whose noise vanishes as W and the snapshot come to the minimum, so that a constant step
    converges geometrically. The snapshot's derivatives are kept, one number per row and output:
    an inner step costs no second product.

    Parameters
    ----------
    batch_size : int >= 1, default=10
        p, the paper's (Section 4.3).
    inner_steps : int >= 1 or "auto", default="auto"
        Steps per snapshot; ``"auto"`` is ``n / p``, one pass over the rows. The paper has 50.
    step_size : float > 0 or "auto", default="auto"
        ``"auto"`` is ``1 / (2 L(p))`` with the expected smoothness L(p) of a mini-batch.
    round_size : int >= 1 or "auto", default="auto"
        Steps of one iteration of the loop, in whole outer loops; "auto" is one pass over the
        rows.

    References
    ----------
    Johnson and Zhang (2013), "Accelerating Stochastic Gradient Descent using Predictive
    Variance Reduction"; Xiao and Zhang (2014), "A Proximal Stochastic Gradient Method with
    Progressive Variance Reduction"; Mu, Liu and Fan (2015), Equation (4).
    """

    name: ClassVar[str] = "svrg"

    def __init__(
        self,
        *,
        batch_size: int = 10,
        inner_steps: int | str = "auto",
        step_size: float | str = "auto",
        round_size: int | str = "auto",
    ) -> None:
        self.batch_size = batch_size
        self.inner_steps = inner_steps
        self.step_size = step_size
        self.round_size = round_size

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        check_int(self.batch_size, "batch_size", low=1)
        if self.inner_steps != "auto":
            check_int(self.inner_steps, "inner_steps", low=1)
        if self.step_size != "auto":
            check_real(self.step_size, "step_size", low=0, low_open=True)
        check_round_size(self.round_size)

    def step(self, problem: Problem, state: LinearState, batch: TrainBatch) -> StepInfo:
        """Take outer loops with about as many inner steps as one pass has."""
        own = as_linear(problem)
        memory = self._attach(problem, state, batch)
        p = min(self.batch_size, memory.n)
        T = -(-memory.n // p)
        inner = T if self.inner_steps == "auto" else int(self.inner_steps)
        T = max(inner, steps_of_round(self.round_size, memory.n, p, inner))
        eta = constant_step(own, memory, p, self.step_size, STEP_SHARE)
        rng = draws(own.seed, _TAG_SVRG, state.iteration)
        order, share = draw_batches(memory, T, p, rng)
        W, b = memory.rows.native(state.coef), state.bias.copy()
        here, seen = memory.here, 0.0
        for start in range(0, len(order), inner):
            here = evaluate(own, memory, W, b) if here is None else here
            part = slice(start, start + inner)
            seen += memory.rows.descend(
                memory.kind, memory.numbers, memory.Y, W, b, order[part], share[part], eta,
                own.l1, own.l2, own.fit_intercept, here.slopes, here.gradient,
                here.gradient_bias,
            )  # fmt: skip
            here = None
        return self._finish_round(own, state, memory, W, b, visits(memory, T, p), seen / T, eta)


def constant_step(
    problem: LinearProblem,
    memory: LinearMemory,
    batch_size: int,
    step_size: float | str,
    share: float,
) -> float:
    """Return the step size given, or `share` over the expected smoothness of a mini-batch."""
    if step_size != "auto":
        return float(step_size)
    L = memory.batch_smoothness(batch_size, problem.fit_intercept, problem.seed)
    return share / max(L, 1e-300)


@dataclass(kw_only=True)
class SAGAState(LinearState):
    """State of :class:`SAGA`: the last derivative seen of each row, (n, C)."""

    table: Float64Array = field(default_factory=lambda: np.zeros((0, 0)))


class SAGA(LinearSolver[SAGAState]):
    r"""Stochastic average gradients, unbiased and with proximal steps (SAGA).

    Each row's last derivative is kept, one number per output, and their weighted mean along
    with it:

    .. math:: g = \bigl(l'(y_k, u_k) - r_k\bigr) x_k + \sum_i p_i r_i x_i,
              \qquad r_k \leftarrow l'(y_k, u_k)

    Parameters
    ----------
    batch_size : int >= 1, default=1
        Rows per step.
    step_size : float > 0 or "auto", default="auto"
        ``"auto"`` is ``1 / (3 L(p))`` with the expected smoothness L(p) of a mini-batch.
    round_size : int >= 1 or "auto", default="auto"
        Steps of one iteration of the loop; "auto" is one pass over the rows.

    Notes
    -----
    Rows of unequal weight are drawn in proportion to it. After each pass the objective and
    the gradient of all rows are computed anew: the stop and the history are exact.

    References
    ----------
    Defazio, Bach and Lacoste-Julien (2014), "SAGA: A Fast Incremental Gradient Method With
    Support for Non-Strongly Convex Composite Objectives".
    """

    name: ClassVar[str] = "saga"
    _state_class: Any = SAGAState

    def __init__(
        self,
        *,
        batch_size: int = 1,
        step_size: float | str = "auto",
        round_size: int | str = "auto",
    ) -> None:
        self.batch_size = batch_size
        self.step_size = step_size
        self.round_size = round_size

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        check_int(self.batch_size, "batch_size", low=1)
        if self.step_size != "auto":
            check_real(self.step_size, "step_size", low=0, low_open=True)
        check_round_size(self.round_size)

    def step(self, problem: Problem, state: SAGAState, batch: TrainBatch) -> StepInfo:
        """Take one pass over the rows."""
        own = as_linear(problem)
        memory = self._attach(problem, state, batch)
        rows = memory.rows
        p = min(self.batch_size, memory.n)
        T = steps_of_round(self.round_size, memory.n, p)
        eta = constant_step(own, memory, p, self.step_size, _SAGA_SHARE)
        W, b = rows.native(state.coef), state.bias.copy()
        if not len(state.table):
            state.table = evaluate(own, memory, W, b).slopes
        weighted = state.table * memory.share[:, None]
        rng = draws(own.seed, _TAG_SAGA, state.iteration)
        order, share = draw_batches(memory, T, p, rng)
        seen = rows.descend(
            memory.kind, memory.numbers, memory.Y, W, b, order, share, eta, own.l1, own.l2,
            own.fit_intercept, state.table, rows.gradient(weighted), weighted.sum(axis=0),
            memory.share,
        )  # fmt: skip
        return self._finish_round(own, state, memory, W, b, visits(memory, T, p), seen / T, eta)
