r"""Stratified semi-stochastic gradient descent (S3GD), for linear functions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kernelgrad._validation import check_bool, check_int, check_real
from kernelgrad.solvers.base import Problem, StepInfo, TrainBatch, draws
from kernelgrad.solvers.linear.anchors import AnchorGraph, build_graph
from kernelgrad.solvers.linear.base import (
    LinearMemory,
    LinearSolver,
    LinearState,
    as_linear,
    check_round_size,
    draw_batches,
    evaluate,
    steps_of_round,
    visits,
)
from kernelgrad.solvers.linear.svrg import STEP_SHARE, constant_step

_TAG = 0x733367
_INNER = 20
_STALLED = (
    1e-2  # relative fall of the objective in a pass below which anchors have had their day
)


@dataclass(kw_only=True)
class S3GDState(LinearState):
    """State of :class:`S3GD`.

    Attributes
    ----------
    alpha : float
        Of the last step: with another one the anchors have their turn again.
    switched : int
        Iteration after which gradients are exact; -1 before.
    objective : float
        After the last pass.
    graph : AnchorGraph or None
        Kept from fit to fit on the same rows, so that a path of penalties builds it once; not
        in pickles and files.
    """

    alpha: float = -1.0
    switched: int = -1
    objective: float = float("inf")
    graph: AnchorGraph | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return super().__getstate__() | {"graph": None}


class S3GD(LinearSolver[S3GDState]):
    r"""Semi-stochastic gradients with references from a graph of anchors.

    .. math:: g = \frac{1}{p} \sum_{k \in I} \bigl(l'(y_k, u_k) - h_k\bigr) x_k + \nabla H,
              \qquad h_i = \sum_z \gamma_z(x_i)\, l'(y_i, \tilde W^T z)

    Anchors z are the rows nearest to the centres of k-means; weights ``gamma`` are Gaussian
    over the nearest anchors of a row. ``grad H = sum_i p_i h_i x_i`` costs one product with
    m anchors instead of all rows (Equation (22)) and is renewed every `inner_steps` steps.

    The mean of ``h_i x_i`` is exactly ``grad H``, so that g is unbiased; what is left is the
    noise of ``l' - h``, which does not vanish at the minimum. Where a pass lowers the objective
    by less than a percent the solver therefore goes on with exact references (Prox-SVRG, one
    pass per snapshot), as Section 3 of the paper suggests; ``history_["audit"]["switched"]``
    tells the last iteration with anchors.

    Parameters
    ----------
    n_anchors : int >= 1, default=100
        m, the paper's (Section 4.3).
    n_neighbors : int >= 1, default=10
        Anchors of a row.
    batch_size : int >= 1, default=10
        p, the paper's.
    inner_steps : int >= 1 or "auto", default="auto"
        Steps between renewals of H. ``"auto"`` is the paper's 20, or more on sparse rows:
        as many as make a renewal no dearer than the steps.
    step_size : float > 0 or "auto", default="auto"
        ``"auto"`` is ``1 / (2 L(p))`` with the expected smoothness L(p) of a mini-batch.
    round_size : int >= 1 or "auto", default="auto"
        Steps of one iteration of the loop, a multiple of `inner_steps`; "auto" is one pass
        over the rows.
    switch : bool, default=True
        False stays with the anchors: the paper's algorithm, with its floor.

    Notes
    -----
    The graph takes two products of all rows with m points; it pays where a fit needs many
    passes or is repeated on the same rows (``warm_start``, other penalties).

    References
    ----------
    Mu, Liu and Fan (2015), "Stochastic Gradient Made Stable: A Manifold Propagation Approach
    for Large-Scale Optimization", Algorithms 1 and 2.
    """

    name: ClassVar[str] = "s3gd"
    _state_class: Any = S3GDState

    def __init__(
        self,
        *,
        n_anchors: int = 100,
        n_neighbors: int = 10,
        batch_size: int = 10,
        inner_steps: int | str = "auto",
        step_size: float | str = "auto",
        round_size: int | str = "auto",
        switch: bool = True,
    ) -> None:
        self.n_anchors = n_anchors
        self.n_neighbors = n_neighbors
        self.batch_size = batch_size
        self.inner_steps = inner_steps
        self.step_size = step_size
        self.round_size = round_size
        self.switch = switch

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        check_int(self.n_anchors, "n_anchors", low=1)
        check_int(self.n_neighbors, "n_neighbors", low=1)
        check_int(self.batch_size, "batch_size", low=1)
        if self.inner_steps != "auto":
            check_int(self.inner_steps, "inner_steps", low=1)
        if self.step_size != "auto":
            check_real(self.step_size, "step_size", low=0, low_open=True)
        check_round_size(self.round_size)
        check_bool(self.switch, "switch")

    def step(self, problem: Problem, state: S3GDState, batch: TrainBatch) -> StepInfo:
        """Take one pass over the rows, with anchors or with exact references."""
        own = as_linear(problem)
        memory = self._attach(problem, state, batch)
        p = min(self.batch_size, memory.n)
        if state.alpha != own.alpha:
            state.alpha, state.switched, state.objective = own.alpha, -1, float("inf")
        if state.switched < 0 and state.graph is None:
            state.graph = build_graph(own, memory, self.n_anchors, self.n_neighbors)
        inner = 1 if state.switched >= 0 else self._inner(state, memory)
        T = steps_of_round(self.round_size, memory.n, p, inner)
        eta = constant_step(own, memory, p, self.step_size, STEP_SHARE)
        order, share = draw_batches(memory, T, p, draws(own.seed, _TAG, state.iteration))
        W, b = memory.rows.native(state.coef), state.bias.copy()
        common = (
            memory.kind, memory.numbers, memory.Y, W, b, order, share, eta, own.l1, own.l2,
            own.fit_intercept,
        )  # fmt: skip
        if state.switched < 0:
            seen = memory.rows.descend_manifold(*common, inner, state.graph)
        else:
            here = evaluate(own, memory, W, b) if memory.here is None else memory.here
            seen = memory.rows.descend(*common, here.slopes, here.gradient, here.gradient_bias)
        info = self._finish_round(own, state, memory, W, b, visits(memory, T, p), seen / T, eta)
        if info.objective is not None and state.switched < 0:
            last, now = state.objective, info.objective
            if self.switch and math.isfinite(last) and not now < last - _STALLED * abs(last):
                state.switched = state.iteration
            state.objective = now
        return info

    def _inner(self, state: S3GDState, memory: LinearMemory) -> int:
        if self.inner_steps != "auto":
            return int(self.inner_steps)
        assert state.graph is not None
        renewal = float(state.graph.product.size)
        step = 2.0 * self.batch_size * max(1.0, memory.rows.row_size) * len(memory.numbers)
        return max(_INNER, int(renewal / step)) if memory.rows.is_sparse else _INNER

    def finish(
        self, problem: Problem, state: S3GDState, batch: TrainBatch
    ) -> dict[str, Any] | None:
        """Return objective and optimality of the result, and when gradients became exact."""
        audit = super().finish(problem, state, batch)
        return None if audit is None else audit | {"switched": state.switched}


__all__ = ["S3GD", "S3GDState"]
