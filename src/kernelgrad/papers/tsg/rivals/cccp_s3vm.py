r"""Semi-supervised support vector machines by the concave-convex procedure."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kernelgrad.papers.dual_ascent import PseudoSolver, PseudoState, Subproblem
from kernelgrad.params import boolean, integer, parameters, real
from kernelgrad.solvers.contract import Problem, TrainBatch
from kernelgrad.types import Float64Array
from kernelgrad.validation import CapabilityError


@parameters
class CCCPS3VM(PseudoSolver):
    r"""Concave-convex procedure on the exact kernel: a sequence of convex machines.

    The loss of unlabelled rows, with the ramp's ``s`` (0 for the symmetric hinge), is

    .. math:: u(r) = 1 - |s| + \max(0, |r| - 1) - \max(0, |r| - |s|).

    An outer iteration replaces the last, concave term by its tangent at the responses r of the
    current function: rows with ``|r| > |s|`` get the linear term ``-sign(r) f``, others none.
    The result lies above u and touches it at r, so that every decrease of the convex
    sub-problem, which is solved by coordinate ascent to a duality gap, lowers the objective.

    The first step is the machine on labels alone, each later step is an outer iteration, so
    that the estimator's ``max_iter`` limits these. A sub-problem whose solution is not lower is
    discarded: the objective never rises. The fit has converged when, in every output, the
    tangents do not change or the dual shows that no function lowers the sub-problem by more
    than ``tol``.

    Losses: hinge for labelled rows; symmetric_hinge or ramp for the others. Without `balance`
    the bias is the best constant of the labelled rows, +1 or -1 for the heavier class: for
    classes of about equal weight prefer ``fit_intercept=False``.

    Parameters
    ----------
    tol : float > 0, default=1e-3
        Gap of a sub-problem, relative to its objective.
    balance : bool, default=False
        Constrain the mean response of the unlabelled rows to the mean label y of the others,
        which prevents solutions that give all unlabelled rows to one class: ``f(x) = y + <w,
        Phi(x) - m>`` with their mean m in the kernel's space. It takes ``n n_u`` more kernel
        values, and all unlabelled rows become support rows.
    max_passes : int, default=1000
        Largest number of passes over the rows for a sub-problem. If they do not suffice, the
        last function is kept if it is lower; otherwise the step changes nothing.

    References
    ----------
    Collobert, Sinz, Weston and Bottou (2006), "Large Scale Transductive SVMs".
    """

    name: ClassVar[str] = "cccp_s3vm"
    unlabelled: ClassVar[frozenset[str]] = frozenset({"symmetric_hinge", "ramp"})

    tol: float = real(default=1e-3, low=0, low_open=True)
    balance: bool = boolean(default=False)
    max_passes: int = integer(default=1000, low=1)

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        if self.balance and not problem.fit_intercept:
            raise CapabilityError(
                f"solver {self.name!r} balances by its bias, but fit_intercept is False; set "
                "fit_intercept=True, or balance=False."
            )

    def init(self, problem: Problem, batch: TrainBatch) -> PseudoState:
        state = super().init(problem, batch)
        if self.balance:
            labelled = np.asarray(batch.y.any(axis=1))
            others, rows = np.flatnonzero(~labelled), state.prepared
            mean = _mean(batch.sample_weight[others])
            state.centre = state.exact.products(rows, rows.take(others), mean[:, None])[:, 0]
            state.mass = float(np.einsum("n,n->", mean, state.centre[others]))
            state.spread[others] = mean
            weight = _mean(batch.sample_weight[labelled])
            labels = batch.y[labelled].astype(np.float64)
            state.intercept = np.einsum("n,nc->c", weight, labels)
            state.kernel_evaluations += batch.n_rows * len(others)
        return state

    def coefficients(self, state: PseudoState) -> Float64Array:
        return np.asarray(state.coef - state.spread[:, None] * state.coef.sum(axis=0))

    def intercept(self, state: PseudoState) -> Float64Array:
        """Return the constants of the result in the kernel without centring."""
        total = state.coef.sum(axis=0)
        mean = np.einsum("n,nc->c", state.centre, state.coef) - state.mass * total
        return np.asarray(state.intercept - mean)

    def _advance(self, problem: Problem, sub: Subproblem) -> None:
        """Linearise at the current function and solve; both for outputs not yet done."""
        state = sub.state
        start_share, snapshot = state.share, sub.snapshot()
        state.share = 1.0
        tangent = _tangents(sub)
        among = ~state.done
        state.shift[among] = tangent[among]
        sub.measure()  # here the sub-problem touches the objective
        start = state.primal.copy()
        if start_share == 0.0:
            # coefficients of unlabelled rows are 0 as yet: u = beta keeps them
            unlabelled = np.flatnonzero(~sub.has_label)
            state.dual[:, unlabelled] = state.shift[:, unlabelled]
        sub.align()
        out = sub.solve(start, snapshot, among=among, certify=True)
        same = (_tangents(sub) == state.shift).all(axis=1)
        settled = start - (state.primal - state.gap) <= self.tol * start
        state.done |= (out < 0) | ((out > 0) & (same | settled))


def _mean(weight: Float64Array) -> Float64Array:
    return np.asarray(weight / weight.sum(), np.float64)


def _tangents(sub: Subproblem) -> Float64Array:
    """Return beta: the slope of ``max(0, |r| - |s|)`` for unlabelled rows, (C, n)."""
    f = sub.responses
    return np.where(sub.has_label | (np.abs(f) <= sub.knee), 0.0, np.sign(f))
