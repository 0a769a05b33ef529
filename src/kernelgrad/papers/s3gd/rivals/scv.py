"""Stochastic gradients with control variates made of the moments of classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernelgrad.compute.linalg import dense
from kernelgrad.linear import base, loops
from kernelgrad.params import integer, parameters, real
from kernelgrad.solvers.contract import Problem, TrainBatch, transient
from kernelgrad.types import Float64Array
from kernelgrad.validation import CapabilityError

_CHUNK = 8192  # rows that are made dense at once


@dataclass(kw_only=True)
class SCVState(base.LinearState):
    moments: loops.Moments | None = transient()


@parameters
class SCV(base.StochasticSolver[SCVState]):
    r"""Stochastic gradients with control variates made of the moments of classes.

    The reference of a row is the derivative at the mean of its class, with the first-order
    change from there to the row,

    .. math:: r_i = l'(y_c, \bar u_c) + l''(y_c, \bar u_c) (u_i - \bar u_c), \qquad
              \sum_i p_i r_i x_i = \sum_c P_c \bigl[ l'_c\, \bar x_c + l''_c\, \Sigma_c W \bigr]

    for classes c with means and covariances of the rows. The mean is exact at every step, at
    the cost of one product with each covariance. Regression has one group.

    Parameters
    ----------
    batch_size : int >= 1, default=10
        p.
    step_size : float > 0 or "auto", default="auto"
        A number is a constant step, as in the paper. ``"auto"`` starts from ``1 / (2 L(p))``
        and lets it fall as in :class:`~kernelgrad.linear.sgd.SGD`.
    round_size : int >= 1 or "auto", default="auto"
        Steps of one iteration of the loop; "auto" is one pass over the rows.

    Notes
    -----
    Takes ``O(K d^2)`` memory, and as much work for every step, which suits tens to a few
    thousand columns. The noise does not vanish at the minimum.

    References
    ----------
    Wang, Chen, Smola and Xing (2013), "Variance Reduction for Stochastic Gradient
    Optimization"; Mu, Liu and Fan (2015), Section 4.2.
    """

    name: ClassVar[str] = "scv"
    state_class: ClassVar[type[Any]] = SCVState
    tag: ClassVar[int] = 0x736376

    batch_size: int = integer(default=10, low=1)
    step_size: float | str = real(default="auto", low=0, low_open=True, words=("auto",))
    round_size: int | str = integer(default="auto", low=1, words=("auto",))

    def init(self, problem: Problem, batch: TrainBatch) -> SCVState:
        grouped = "classification" in problem.loss.tasks
        classes = len(np.unique(batch.y, axis=0)) if grouped else 1
        needed, limit = 8 * classes * problem.n_features_in**2, problem.resources.memory_limit
        limit = 2**30 if limit is None else limit
        if needed > limit:
            raise CapabilityError(
                f"solver 'scv' keeps the covariances of {classes} classes in "
                f"{problem.n_features_in} columns, {needed:.3g} bytes, more than {limit:.3g}; "
                "take fewer columns, raise memory_limit, or take solver 'svrg'."
            )
        return super().init(problem, batch)

    def _runs(self, r: base.Round[SCVState]) -> Iterator[tuple[int, int, float]]:
        if self.step_size != "auto":
            return super()._runs(r)
        return base.falling_runs(
            r.n_steps, r.p, self._first_step(r), r.state.rows_seen, r.data.n
        )

    def _reference(self, r: base.Round[SCVState], W: Float64Array, b: Float64Array) -> Any:
        if r.state.moments is None:
            classes = "classification" in r.problem.loss.tasks
            r.state.moments = group_moments(r.data, classes)
        return r.state.moments.references(W, b)


def group_moments(data: base.PreparedRows, by_class: bool) -> loops.Moments:
    X, Y, share = data.batch.X, data.Y, data.share
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
        cuts = [slice(a, a + _CHUNK) for a in range(0, len(members), _CHUNK)]
        for cut in cuts:
            centre[g] += w[cut] @ dense(X[members[cut]], np.float64)
        for cut in cuts:
            rows = dense(X[members[cut]], np.float64) - centre[g]
            covariance[g] += (rows * w[cut, None]).T @ rows
    return loops.Moments(
        group, part, centre, covariance, np.ascontiguousarray(targets, np.float64)
    )
