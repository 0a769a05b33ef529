"""Control variates made of the moments of classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.linalg import dense
from kernelgrad.compute.rng import draws
from kernelgrad.compute.rows import Dense
from kernelgrad.linear import base, loops
from kernelgrad.linear.loops import add, output, responses, slopes_of_row
from kernelgrad.linear.stochastic import StepRound, StochasticSolver, draw_batches, falling_runs
from kernelgrad.losses.scalar import MULTINOMIAL, curvature
from kernelgrad.params import boolean, integer, parameters, real
from kernelgrad.solvers.contract import Problem, TrainBatch, transient
from kernelgrad.types import Float64Array, IntArray

_CHUNK = 8192  # rows that are made dense at once


class Moments(NamedTuple):
    """Shares (K,), centres (K, d), covariances (K, d, d) and targets (K, C) of groups."""

    group: IntArray  # (n,)
    part: Float64Array
    centre: Float64Array
    covariance: Float64Array
    targets: Float64Array
    visits: Float64Array  # to rows of running moments, (K,)
    order: IntArray  # rows of the steps of a round, (T, p), of which some are done, (1,)
    done: IntArray

    def references(self, W: Float64Array, b: Float64Array) -> GroupReferences:
        """Return references at coefficients, renewed in every step."""
        (K, d), C = self.centre.shape, len(b)
        shapes = (K, C), (K, C), (K, C, C), (C, d), (C, d)
        room: Any = map(np.zeros, shapes)
        return GroupReferences(1, np.zeros_like(W), np.zeros(C), self, *room)

    def copy(self) -> Moments:
        """Return moments that later visits leave as they are."""
        parts: Any = (part.copy() for part in self)
        return Moments(*parts) if self.visits.any() else self


class GroupReferences(NamedTuple):
    """References from the moments of K groups of rows, to first order in the responses."""

    every: int
    mean: Float64Array
    mean_bias: Float64Array
    moments: Moments
    middle: Float64Array  # responses and derivatives at the centres, (K, C), (K, C), (K, C, C)
    slope: Float64Array
    bend: Float64Array
    flat: Float64Array  # room for coefficients and mean, (C, d), not made in each renewal
    total: Float64Array


@dataclass(kw_only=True)
class SCVState(base.LinearState):
    moments: Any = transient()  # None, then those of the groups


@parameters
class SCV(StochasticSolver[SCVState]):
    r"""Stochastic gradients with control variates made of the moments of classes.

    The reference of a row is the derivative at the mean of its class, with the first-order
    change from there to the row,

    .. math:: r_i = l'(y_c, \bar u_c) + l''(y_c, \bar u_c) (u_i - \bar u_c), \qquad
              \sum_i p_i r_i x_i = \sum_c P_c \bigl[ l'_c\, \bar x_c + l''_c\, \Sigma_c W \bigr]

    for classes c with means and covariances of the rows. The mean is exact at every step, at
    the cost of one product with each covariance, ``O(K d^2)`` memory and work. Regression has
    one group. The noise does not vanish at the minimum. Running moments are those of the rows
    visited so far, by ``O(p d^2)`` more work: the mean is then exact for these rows alone.

    Parameters
    ----------
    batch_size : int >= 1, default=10
        p.
    step_size : float > 0 or "auto", default="auto"
        A number is a constant step, as in the paper. ``"auto"`` starts from ``1 / (2 L(p))``
        and lets it fall as in :class:`~kernelgrad.linear.stochastic.SGD`.
    round_size : int >= 1 or "auto", default="auto"
        Steps of one iteration of the loop; "auto" is one pass over the rows.
    running : bool, default=False
        Whether moments are running ones, without a preparation.

    References
    ----------
    Wang, Chen, Smola and Xing (2013); Mu, Liu and Fan (2015), Section 4.2.
    """

    name: ClassVar[str] = "scv"
    state_class: ClassVar[type[Any]] = SCVState
    tag: ClassVar[int] = 0x736376

    batch_size: int = integer(default=10, low=1)
    step_size: float | str = real(default="auto", low=0, low_open=True, words=("auto",))
    round_size: int | str = integer(default="auto", low=1, words=("auto",))
    running: bool = boolean(default=False)

    def init(self, problem: Problem, batch: TrainBatch) -> SCVState:
        classes = len(np.unique(batch.y, axis=0))
        classes = classes if classes <= max(2, problem.n_outputs) else 1
        d = problem.n_features_in
        problem.resources.check(
            f"solver 'scv' with the covariances of {classes} classes in {d} columns",
            8 * classes * d**2, "take fewer columns, or take solver 'svrg'", most=2**30,
        )  # fmt: skip
        return super().init(problem, batch)

    def _runs(self, r: StepRound[SCVState]) -> Iterator[tuple[int, int, float]]:
        if self.step_size != "auto":
            return super()._runs(r)
        return falling_runs(r.n_steps, r.p, self._first_step(r), r.state.rows_seen, r.data.n)

    def _draw(self, r: StepRound[SCVState]) -> tuple[IntArray, Float64Array]:
        state, now = r.state, super()._draw(r)
        if state.moments is None:
            state.moments = group_moments(r.data, running=self.running)
            for past in range(state.iteration if self.running else 0):  # after a file
                rng = draws(r.problem.seed, self.tag, past)
                for chosen in draw_batches(r.data, r.n_steps, r.p, rng)[0]:
                    visit(state.moments, r.data.rows, chosen)
        if self.running:
            state.moments = state.moments._replace(order=now[0], done=np.zeros(1, np.int64))
        return now

    def _reference(self, r: StepRound[SCVState], W: Float64Array, b: Float64Array) -> Any:
        return r.state.moments.references(W, b)


def group_moments(data: base.PreparedRows, *, running: bool = False) -> Moments:
    X, Y, share = data.batch.X, data.Y, data.share
    n, d = X.shape
    targets, group = np.unique(Y, axis=0, return_inverse=True)
    group = group.reshape(-1).astype(np.int64)
    if len(targets) > max(2, Y.shape[1]):  # numbers, no classes
        targets, group = (share @ Y)[None], np.zeros(n, np.int64)
    K = len(targets)
    part = np.asarray(np.bincount(group, weights=share, minlength=K), np.float64)
    centre, covariance = np.zeros((K, d)), np.zeros((K, d, d))
    for g in range(0 if running else K):
        members = np.flatnonzero((group == g) & (share > 0))
        w = share[members] / max(part[g], 1e-300)
        cuts = [slice(a, a + _CHUNK) for a in range(0, len(members), _CHUNK)]
        for cut in cuts:
            centre[g] += w[cut] @ dense(X[members[cut]], np.float64)
        for cut in cuts:
            rows = dense(X[members[cut]], np.float64) - centre[g]
            covariance[g] += (rows * w[cut, None]).T @ rows
    targets, none = np.ascontiguousarray(targets, np.float64), np.zeros((0, 0), np.int64)
    return Moments(group, part, centre, covariance, targets, np.zeros(K), none, none.ravel())


@njit(nogil=True, cache=True, error_model="numpy")
def visit(moments: Any, rows: Any, chosen: Any) -> None:
    """Take rows into the running moments of their groups."""
    x = np.zeros(moments.centre.shape[1])
    for i in chosen:
        g, x[:] = moments.group[i], 0.0
        centre, covariance = moments.centre[g], moments.covariance[g]
        moments.visits[g] += 1.0
        part = 1.0 / moments.visits[g]
        add(rows, i, 1.0, x)
        for j in range(len(x)):
            x[j] -= centre[j]
            centre[j] += part * x[j]
        for j in range(len(x)):
            for k in range(len(x)):
                covariance[j, k] += part * ((1.0 - part) * x[j] * x[k] - covariance[j, k])


@njit(nogil=True, cache=True, error_model="numpy")
def bends_of_row(
    code: int, numbers: Any, y: Any, u: Any, slope: Any, bend: Float64Array
) -> None:
    """Write the second derivatives of a row's loss, (C, C), next to the first, (C,)."""
    slopes_of_row(code, numbers, y, u, slope)
    for c in range(len(u)):
        p = slope[c] + y[c]  # the probability
        for e in range(len(u)):
            bend[c, e] = -p * (slope[e] + y[e]) if code == MULTINOMIAL else 0.0
        if code != MULTINOMIAL:
            p = curvature(code, numbers[c], y[c], u[c], 1.0, 0.0)
        bend[c, c] += p


def _renew_groups(r: Any, code: int, numbers: Any, rows: Any, W: Any, b: Any) -> None:
    part, covariance, centre = r.moments.part, r.moments.covariance, Dense(r.moments.centre)
    middle, slope, bend, flat, total = r.middle, r.slope, r.bend, r.flat, r.total
    C, d = flat.shape
    if len(r.moments.order) > 0:
        visit(r.moments, rows, r.moments.order[r.moments.done[0]])
        r.moments.done[0] += 1
    r.mean_bias[:] = 0.0
    total[:] = 0.0
    for c in range(C):
        flat[c] = output(rows, W, c)
    for g in range(len(part)):
        responses(centre, g, flat, b, middle[g])
        bends_of_row(code, numbers, r.moments.targets[g], middle[g], slope[g], bend[g])
        for c in range(C):
            r.mean_bias[c] += part[g] * slope[g, c]
            add(centre, g, part[g] * slope[g, c], total[c])
            for e in range(C):
                for i in range(d):
                    a = part[g] * bend[g, c, e] * flat[e, i]
                    for j in range(d if a != 0.0 else 0):
                        total[c, j] += a * covariance[g, i, j]
    for c in range(C):
        output(rows, r.mean, c)[:] = total[c]


def _groups_at(r: Any, i: int, u: Any, out: Any) -> None:
    g, slope, bend, middle = r.moments.group[i], r.slope, r.bend, r.middle
    for c in range(len(out)):
        out[c] = slope[g, c]
        for e in range(len(out)):
            out[c] += bend[g, c, e] * (u[e] - middle[g, e])


loops.renewals[GroupReferences] = _renew_groups
loops.values[GroupReferences] = _groups_at
