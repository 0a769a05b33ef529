r"""Stochastic dual coordinate ascent on exact kernels."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kernelgrad.linear.conjugate import conjugate_of, later_part, visit_order
from kernelgrad.papers.dual_ascent import BLOCK, DualAscent, DualState
from kernelgrad.params import choice, integer, parameters, real
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch
from kernelgrad.solvers.support import RowsSolver, check_alpha, support_update
from kernelgrad.types import Float64Array


@parameters
class SDCA(RowsSolver[DualState]):
    r"""Stochastic dual coordinate ascent on the exact kernel, stopped by its duality gap.

    With weights ``p_i = w_i / sum_j w_j`` and a fixed intercept b, the loss's best constant,
    the dual of the objective is

    .. math:: D(u) = \sum_i p_i (u_i b - l_i^*(u_i))
              - \frac{1}{2 \alpha} \sum_{ij} p_i p_j u_i u_j k(x_i, x_j),
              \qquad a_i = -p_i u_i / \alpha

    Rows are taken in a new random order in each pass, and each moves its ``u_i`` to the maximum
    of D with all others fixed: in closed form, for the logistic loss by Newton's method. A row
    whose own term of the gap ``P - D = sum_i p_i (l_i(f_i) + l_i^*(u_i) - u_i f_i)`` is at most
    a tenth of the tolerance times the objective is skipped. The outputs share the kernel rows,
    which are kept up to the estimator's ``memory_limit``, and are otherwise independent.

    Parameters
    ----------
    tol : float >= 0, default=1e-3
        The fit has converged when the gap of every output is at most ``tol`` times its
        objective. 0 continues while any gap is left.
    order : {"random", "greedy"}, default="random"
        ``"greedy"`` is SMO without a bias and with working sets of one row: each visit moves
        the row whose step raises D most (the second-order rule of Fan et al. 2005, within the
        bounds), at the cost of one kernel row and O(n).
    average : {"second_half", None}, default=None
        The function returned: the last iterate, or the average of the iterates after each visit
        of the second half of ``max_iter`` steps, which the guarantee of Shalev-Shwartz and
        Zhang is for. It needs the random order and ``tol=0``; the gap is that of the last
        iterate.
    round_size : int or "auto", default="auto"
        Rows visited in one step of the loop, between two evaluations of the gap. ``"auto"`` is
        one pass over all rows of positive weight.

    References
    ----------
    Shalev-Shwartz and Zhang (2013); Hsieh et al. (2008); Fan, Chen and Lin (2005); Cotter,
    Shalev-Shwartz and Srebro (2012), Sections 4.3 and 4.4.
    """

    name: ClassVar[str] = "sdca"
    removed = frozenset({"block_size"})
    least_rows: ClassVar[int] = BLOCK
    requires: ClassVar[frozenset[str]] = frozenset({"exact_kernel"})
    state_class = DualState

    tol: float = real(default=1e-3, low=0)
    order: str = choice(("random", "greedy"), default="random")
    average: str | None = choice(("second_half",), default=None, words=(None,))
    round_size: int | str = integer(default="auto", low=1, words=("auto",))

    def check(self) -> None:
        super().check()
        if self.average and self.order != "random":
            raise ValueError("average='second_half' needs order='random'.")

    def check_problem(self, problem: Problem) -> None:
        conjugate_of(problem.loss, problem.n_outputs)
        check_alpha(self.name, problem.alpha)

    def _ascent(self, problem: Problem, state: DualState, batch: TrainBatch) -> DualAscent:
        y = np.ascontiguousarray(batch.y.T, np.float64)
        weight = np.asarray(batch.sample_weight, np.float64)
        loss = conjugate_of(problem.loss, problem.n_outputs)
        rows = self._attach(problem, state, batch)
        deadline = problem.resources.deadline
        return DualAscent(state, rows, loss, y, weight / weight.sum(), deadline=deadline)

    def init(self, problem: Problem, batch: TrainBatch) -> DualState:
        C = problem.n_outputs
        state = self._new_state(
            problem, batch, alpha=problem.alpha, dual=np.zeros((C, batch.n_rows)),
            primal=np.zeros(C), gap=np.zeros(C),
        )  # fmt: skip
        if self.average:
            state.averaged = np.zeros_like(state.coef)
        self._ascent(problem, state, batch).measure()
        return state

    def step(self, problem: Problem, state: DualState, batch: TrainBatch) -> StepInfo:
        ascent = self._ascent(problem, state, batch)
        rows = ascent.rows
        evaluations = rows.n_evaluations
        factor = ascent.rescale(problem.alpha)
        state.averaged = factor * state.averaged
        before = self.coefficients(state).copy()
        live = np.flatnonzero(ascent.p)
        n_visits = len(live) if self.round_size == "auto" else int(self.round_size)
        if self.order == "greedy":
            n_visits = ascent.climb(n_visits)
        else:
            seen = state.rows_seen
            last = max(n_visits * (problem.max_iter or 1), seen + n_visits)
            for order in visit_order(problem.seed, seen, n_visits, live):
                old = state.coef[order]
                ascent.visit(order, self.tol)
                if self.average:
                    part = later_part(seen, len(order), last)[:, None]
                    state.averaged[order] += part * (state.coef[order] - old)
                seen += len(order)
        state.iteration += 1
        state.rows_seen += n_visits
        state.kernel_evaluations += rows.n_evaluations - evaluations
        loss = ascent.measure()
        return self._info(
            state,
            float(loss.sum()),
            support_update(state, rows.rows, self.coefficients(state) - before, factor),
            epoch=state.rows_seen / len(live),
            duality_gap=float(state.gap.sum()),
            converged=bool(np.all(state.gap <= self.tol * state.primal)),
        )

    def coefficients(self, state: DualState) -> Float64Array:
        return state.averaged if self.average else state.coef
