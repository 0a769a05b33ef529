r"""Stochastic gradients with control variates from class moments (SCV)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from kernelgrad._typing import Float64Array, IntArray, Matrix
from kernelgrad._validation import CapabilityError, check_int, check_real
from kernelgrad.solvers.base import Problem, StepInfo, TrainBatch, draws
from kernelgrad.solvers.linear import _moments as linear_moments
from kernelgrad.solvers.linear.base import (
    LinearMemory,
    LinearSolver,
    LinearState,
    as_linear,
    check_round_size,
    draw_batches,
    steps_of_round,
    visits,
)
from kernelgrad.solvers.linear.svrg import constant_step

_TAG = 0x736376
_SHARE = 0.5
_PARTS = 32
_MOMENT_BYTES = 2**30
_CHUNK = 8192


@dataclass(frozen=True)
class Moments:
    """Shares (K,), centres (K, d), covariances (K, d, d) and targets (K, C) of groups."""

    group: IntArray
    part: Float64Array
    centre: Float64Array
    covariance: Float64Array
    targets: Float64Array


@dataclass(kw_only=True)
class SCVState(LinearState):
    """State of :class:`SCV`; the moments come again with the rows."""

    moments: Moments | None = field(default=None, repr=False)

    def release(self) -> None:
        """Let go of rows and moments."""
        super().release()
        self.moments = None

    def __getstate__(self) -> dict[str, object]:
        return super().__getstate__() | {"moments": None}


class SCV(LinearSolver[SCVState]):
    r"""Stochastic gradients with control variates made of the moments of classes.

    The reference of a row is the derivative at the mean of its class, with the first-order
    change from there to the row,

    .. math:: r_i = l'(y_c, \bar u_c) + l''(y_c, \bar u_c) (u_i - \bar u_c), \qquad
              \sum_i p_i r_i x_i = \sum_c P_c \bigl[ l'_c\, \bar x_c + l''_c\, \Sigma_c W \bigr]

    for classes c with means and covariances of the rows: exact at every step, at the price of
    one product with each covariance. Regression has one group.

    Parameters
    ----------
    batch_size : int >= 1, default=10
        p.
    step_size : float > 0 or "auto", default="auto"
        A number is a constant step, as in the paper. ``"auto"`` starts from ``1 / (2 L(p))``
        and lets it fall as in :class:`~kernelgrad.solvers.linear.sgd.SGD`.
    round_size : int >= 1 or "auto", default="auto"
        Steps of one iteration of the loop; "auto" is one pass over the rows.

    Notes
    -----
    Takes ``O(K d^2)`` memory, and as much work for every step: for tens to a few thousand
    columns. The noise does not vanish at the minimum.

    References
    ----------
    Wang, Chen, Smola and Xing (2013), "Variance Reduction for Stochastic Gradient
    Optimization"; Mu, Liu and Fan (2015), Section 4.2.
    """

    name: ClassVar[str] = "scv"
    _state_class: Any = SCVState

    def __init__(
        self,
        *,
        batch_size: int = 10,
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

    def init(self, problem: Problem, batch: TrainBatch) -> SCVState:
        """Start from zero coefficients and the best constant."""
        classes = (
            len(np.unique(batch.y, axis=0)) if "classification" in problem.loss.tasks else 1
        )
        needed = 8 * classes * problem.n_features_in**2
        limit = _MOMENT_BYTES if problem.memory_limit is None else problem.memory_limit
        if needed > limit:
            raise CapabilityError(
                f"solver 'scv' keeps the covariances of {classes} classes in "
                f"{problem.n_features_in} columns, {needed:.3g} bytes, more than {limit:.3g}; "
                "take fewer columns, raise memory_limit, or take solver 'svrg'."
            )
        return super().init(problem, batch)

    def step(self, problem: Problem, state: SCVState, batch: TrainBatch) -> StepInfo:
        """Take one pass over the rows."""
        own = as_linear(problem)
        memory = self._attach(problem, state, batch)
        if state.moments is None:
            state.moments = group_moments(memory, "classification" in own.loss.tasks)
        m = state.moments
        p = min(self.batch_size, memory.n)
        T = steps_of_round(self.round_size, memory.n, p)
        order, share = draw_batches(memory, T, p, draws(own.seed, _TAG, state.iteration))
        W, b = np.array(state.coef.T, order="C"), state.bias.copy()
        rows = memory.rows
        if rows.is_sparse:
            X, csr = np.zeros((0, 0)), (rows.data, rows.indices, rows.indptr)
        else:
            X = rows.X
            csr = np.zeros(0), np.zeros(0, np.int32), np.zeros(0, np.int32)
        eta = constant_step(own, memory, p, self.step_size, _SHARE)
        cuts = [0, T]
        if self.step_size == "auto":
            cuts = np.unique(np.linspace(0, T, min(T, _PARTS) + 1).astype(int)).tolist()
        now, seen = eta, 0.0
        for first, last in pairwise(cuts):
            if self.step_size == "auto":
                now = eta / (1.0 + (state.rows_seen + first * p) / memory.n) ** 0.75
            seen += linear_moments.descend(
                memory.kind, memory.numbers, X, *csr, memory.Y, W, b, order[first:last],
                share[first:last], now, own.l1, own.l2, own.fit_intercept, m.group, m.part,
                m.centre, m.covariance, m.targets,
            )  # fmt: skip
        return self._finish_round(
            own, state, memory, rows.native(W.T), b, visits(memory, T, p), seen / T, now
        )


def group_moments(memory: LinearMemory, by_class: bool) -> Moments:
    """Return the weighted moments of the rows of each class, or of all rows."""
    X, Y, share = memory.batch.X, memory.Y, memory.share
    n, d = X.shape
    if by_class:
        targets, group = np.unique(Y, axis=0, return_inverse=True)
        group = group.reshape(-1).astype(np.int64)
    else:
        targets, group = (share @ Y)[None], np.zeros(n, np.int64)
    K = len(targets)
    part = np.asarray(np.bincount(group, weights=share, minlength=K), np.float64)
    centre, covariance = np.zeros((K, d)), np.zeros((K, d, d))
    for g in range(K):
        members = np.flatnonzero((group == g) & (share > 0))
        w = share[members] / max(part[g], 1e-300)
        for start in range(0, len(members), _CHUNK):
            some, ws = members[start : start + _CHUNK], w[start : start + _CHUNK]
            rows = _dense(X[some])
            centre[g] += ws @ rows
        for start in range(0, len(members), _CHUNK):
            some, ws = members[start : start + _CHUNK], w[start : start + _CHUNK]
            rows = _dense(X[some]) - centre[g]
            covariance[g] += (rows * ws[:, None]).T @ rows
    return Moments(group, part, centre, covariance, np.ascontiguousarray(targets, np.float64))


def _dense(X: Matrix) -> Float64Array:
    """Return a chunk of rows as float64."""
    return np.asarray(X.toarray() if sp.issparse(X) else X, np.float64)


__all__ = ["SCV", "Moments", "SCVState", "group_moments"]
