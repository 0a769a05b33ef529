r"""Dual coordinate ascent for linear functions, on dense rows and on CSR.

For one output, with reaches ``r_i = p_i / l2``, the threshold ``t = l1 / l2`` and a point m
that rows are seen from,

.. math:: V = -\sum_i r_i u_i x_i, \quad \sigma = \sum_i r_i u_i, \quad
          W = \mathrm{soft}(V + \sigma m, t), \quad
          f_i = \langle x_i - m, W \rangle + b_0 - \kappa \sigma

where the last term is a column of constants ``sqrt(kappa)`` whose coefficient is pulled towards
b_0. m may differ from 0 where t is 0: then ``<m, V>`` is one number, and a row of few stored
entries stays one. A coordinate goes to the maximum of the dual, or with L1 of its quadratic
bound from below (the conjugate of the penalty is ``1 / l2``-smooth):
:func:`kernelgrad.linear.conjugate.dual_step` with the curvature ``r_i (|x_i - m|^2 + kappa)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.optimize

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.rows import column, entries, entry
from kernelgrad.compute.threads import parallel_for
from kernelgrad.linear import base
from kernelgrad.linear.conjugate import (
    conjugate_of,
    dual_step,
    later_part,
    loss_and_gap,
    visit_order,
)
from kernelgrad.linear.loops import FAST, add, dot
from kernelgrad.losses import Loss
from kernelgrad.losses.scalar import slope
from kernelgrad.params import choice, integer, parameters
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, sized, transient
from kernelgrad.types import Float64Array
from kernelgrad.validation import CapabilityError

_NEAR = 1e-6  # relative size of the last Newton step of a row, whose error is its square
# Width of the first bracket of a bias, widenings of it by 4 at most, and steps within it
_WIDTH, _WIDENINGS, _STEPS = 1e-3, 60, 100


@njit(nogil=True, cache=True, fastmath=FAST, forceinline=True)
def _soft_dot(rows: Any, i: int, v: Float64Array, t: float) -> Any:
    total = 0.0
    for q in entries(rows, i):
        w = v[column(rows, q)]
        total += entry(rows, i, q) * (max(w - t, 0.0) + min(w + t, 0.0))
    return total


class View(NamedTuple):
    """Rows as seen from their mean, or from 0."""

    centred: bool
    mean: Float64Array  # m, (d,)
    along: Float64Array  # <x_i, m>, (n,)
    squares: Float64Array  # |x_i - m|^2 + kappa, (n,)
    kappa: float
    tilt: float  # |m|^2 + kappa


@njit(nogil=True, cache=True)
def ascend(
    rows: Any, order: Any, code: int, number: float, y: Any, reach: Any, view: Any, t: float,
    u: Any, v: Any, sigma: float, start: float,
) -> float:  # fmt: skip
    """Visit rows in order for one output, moving u and v in place; return sigma.

    `reach` (n,) is r and `start` is ``b_0 - <m, v>``.
    """
    along = view.along
    for i in order:
        f = start + sigma * (along[i] - view.tilt)
        f += dot(rows, i, v) if t == 0.0 else _soft_dot(rows, i, v, t)
        new = dual_step(code, number, y[i], u[i], f, reach[i] * view.squares[i], _NEAR)
        moved = reach[i] * (u[i] - new)
        if moved != 0.0:
            u[i] = new
            add(rows, i, moved, v)
            sigma -= moved
            start -= moved * along[i]
    return sigma


def soft(v: Float64Array, t: float) -> Float64Array:
    """Return ``sign(v) max(|v| - t, 0)``."""
    return np.asarray(np.maximum(v - t, 0.0) + np.minimum(v + t, 0.0))


def balance(u: Float64Array, p: Float64Array) -> Float64Array:
    """Return u with ``sum_i p_i u_i = 0``: the sign that weighs more is scaled down.

    Conjugate domains are intervals containing 0, so scaling keeps u feasible.
    """
    up, down = float(p @ np.maximum(u, 0.0)), -float(p @ np.minimum(u, 0.0))
    factor = min(up, down) / max(up, down, 1e-300)
    return np.where((u > 0.0) == (up > down), u * factor, u)


@njit(nogil=True, cache=True)
def mean_loss_and_gap(
    code: int, number: float, y: Any, u: Any, f: Any, b: float, p: Any
) -> tuple[float, float]:
    """Return ``sum_i p_i l(f_i + b)`` and ``sum_i p_i (l(f_i + b) + l*(u_i) - u_i (f_i + b))``.

    Arrays of n, of one output.
    """
    total, gap = 0.0, 0.0
    for i in range(len(u)):
        loss, own = loss_and_gap(code, number, y[i], u[i], f[i] + b)
        total += p[i] * loss
        gap += p[i] * own
    return total, gap


@njit(nogil=True, cache=True)
def _bias_slope(
    code: int, number: float, y: Float64Array, f: Float64Array, p: Float64Array, b: float
) -> float:
    total = 0.0
    for i in range(len(f)):
        total += p[i] * slope(code, number, y[i], f[i] + b)
    return total


def best_bias(
    code: int, number: float, y: Any, f: Any, p: Any, b: float, error: float
) -> float:
    """Return a bias with a mean loss of at most `error` above that of the best.

    The derivative does not decrease: its zero is bracketed from b on and found by Brent's
    method, up to a width that, times the slope at the ends, is the error. If the loss decreases
    without bound the search stops. The responses f do not include the bias.
    """

    def slope_at(x: float) -> float:
        return float(_bias_slope(code, number, y, f, p, x))

    slope, end, width = slope_at(b), b, _WIDTH
    for _ in range(_WIDENINGS):
        start, end = end, end - math.copysign(width, slope)
        last = slope_at(end)
        if slope == 0.0 or slope * last <= 0.0:
            break
        slope, width = last, 4.0 * width
    if slope * last > 0.0 or slope == 0.0:
        return start if slope == 0.0 else end
    xtol = max(error / max(abs(slope), abs(last), 1e-300), 1e-300)
    return float(
        scipy.optimize.brentq(slope_at, start, end, xtol=xtol, maxiter=_STEPS, disp=False)
    )


_CONSTANT = 0.1  # square of the column of constants over the mean squared norm of a row
_BIAS_ERROR = 1e-3  # gap that the bias may add, over the tolerance


def _seen(problem: base.LinearProblem, data: base.PreparedRows) -> View:
    """Return the rows from their mean, if they can be centred, else from 0."""
    p = data.share
    squares, along = data.squares(), np.zeros(data.n)
    mean = np.zeros((data.d, 1))
    if centred := problem.fit_intercept and problem.l1 == 0.0:
        mean = data.native(data.gradient(p[:, None]))
        along = data.responses(data.native(mean), np.zeros(1))[:, 0]
        squares = np.maximum(squares - 2.0 * along + float((mean**2).sum()), 0.0)
    kappa = 0.0
    if problem.fit_intercept:  # equal rows have no length to go by
        kappa = _CONSTANT * float(p @ squares) or 1.0
    m = mean[:, 0]
    return View(centred, m, along, squares + kappa, kappa, float(m @ m) + kappa)


@dataclass(kw_only=True)
class LinearSDCAState(base.LinearState):
    dual: Float64Array = sized("C", "n", later=True)  # u
    sums: Float64Array = sized("C", "d", later=True)  # -sum_i p_i u_i x_i / l2
    l2: float = 1.0  # the penalty that `sums` are divided by
    centre: Float64Array = sized("C", later=True)  # b_0, which pulls the next round's bias
    primal: Float64Array = sized("C", later=True)  # objective of each output
    gap: Float64Array = sized("C", later=True, finite=False)  # duality gap of each output
    averaged: Float64Array = sized("C", "n", empty=True)  # u of the average
    view: View | None = transient()


@parameters
class LinearSDCA(base.LinearSolver[LinearSDCAState]):
    r"""Proximal stochastic dual coordinate ascent, stopped by its duality gap.

    The dual of the objective with weights p_i of sum 1 is

    .. math:: D(u) = -\sum_i p_i l_i^*(u_i) - \frac{1}{2 l_2} \|\mathrm{soft}(v, l_1)\|^2,
              \qquad v = -\sum_i p_i u_i x_i, \qquad W = \mathrm{soft}(v, l_1) / l_2

    and an unpenalised intercept is the constraint ``sum_i p_i u_i = 0``. Rows are taken in a
    new random order in each pass, and each moves its ``u_i`` to the maximum with all others
    fixed: in closed form, for the logistic loss by Newton's method, with an L1 penalty to the
    maximum of a quadratic bound. Outputs are independent of each other, and the work for a CSR
    row is proportional to its stored entries. Takes all losses of the linear solvers but the
    multinomial one; needs an L2 penalty.

    A single coordinate cannot keep the constraint of the intercept. Within a round the
    intercept therefore has the penalty ``l2 / (2 kappa) (b - b_0)^2``, with kappa a tenth of
    the mean squared norm of the rows; after the round b_0 moves to b (method of multipliers).
    Without an L1 penalty rows are centred, which makes them shorter; CSR rows stay sparse.
    Then u is made feasible by scaling down the sign with the larger sum; the gap bounds the
    distance of the objective from its minimum, whatever the rounding, and the fit has converged
    when that of every output is at most the estimator's ``tol`` times its objective.

    Parameters
    ----------
    average : {"second_half", None}, default=None
        "second_half" returns the function of the average of u over the visits of the second
        half of ``max_iter`` steps, as :class:`~kernelgrad.solvers.SDCA`; the gap is for it.
    round_size : int or "auto", default="auto"
        Rows visited in one step of the loop, before b_0 moves and the gap is measured at the
        cost of about a pass. ``"auto"`` is one pass over the rows of positive weight.

    References
    ----------
    Shalev-Shwartz and Zhang (2013, 2014); Hsieh et al. (2008).
    """

    name: ClassVar[str] = "sdca"
    takes_kinks: ClassVar[bool] = True
    needs_l2: ClassVar[bool] = True
    state_class: ClassVar[type[Any]] = LinearSDCAState

    average: str | None = choice(("second_half",), default=None, words=(None,))
    round_size: int | str = integer(default="auto", low=1, words=("auto",))

    @classmethod
    def takes(cls, loss: Loss) -> bool:
        try:
            conjugate_of(loss, loss.n_outputs or 1)
        except CapabilityError:
            return False
        return super().takes(loss)

    def init(self, problem: Problem, batch: TrainBatch) -> LinearSDCAState:
        own, C = base.as_linear(problem), problem.n_outputs
        state = super().init(problem, batch)
        state.dual = np.zeros((C, batch.n_rows))
        state.sums = np.zeros((C, problem.n_features_in))
        state.l2, state.centre = own.l2, state.bias.copy()
        state.primal, state.gap = np.zeros(C), np.zeros(C)
        if self.average:
            state.averaged = np.zeros_like(state.dual)
        _measure(own, state, self._attach(problem, state, batch))
        return state

    def step(self, problem: Problem, state: LinearSDCAState, batch: TrainBatch) -> StepInfo:
        own = base.as_linear(problem)
        data = self._attach(problem, state, batch)
        if own.l2 != state.l2:
            state.sums *= state.l2 / own.l2
            state.l2 = own.l2
        Y = np.ascontiguousarray(data.Y.T)
        reach, t = data.share / own.l2, own.l1 / own.l2
        view = state.view
        if view is None or view.centred != (own.fit_intercept and own.l1 == 0.0):
            view = state.view = _seen(own, data)
        sigma = state.dual @ reach
        live = np.flatnonzero(data.share)
        n_visits = len(live) if self.round_size == "auto" else int(self.round_size)
        orders = list(visit_order(own.seed, state.rows_seen, n_visits, live))
        seen = state.rows_seen
        end = max(n_visits * (problem.max_iter or 1), seen + n_visits)

        def task(c: int) -> None:
            v = state.sums[c]
            sigma[c] = ascend(
                data.rows, order, data.code, data.numbers[c], Y[c], reach, view, t,
                state.dual[c], v, sigma[c], state.centre[c] - float(view.mean @ v),
            )  # fmt: skip

        for order in orders if self.average else [np.concatenate(orders)]:
            old = state.dual[:, order]
            parallel_for(own.n_outputs, task)
            if self.average:
                part = later_part(seen, len(order), end)
                state.averaged[:, order] += part * (state.dual[:, order] - old)
                seen += len(order)
        state.centre -= view.kappa * sigma
        sums = state.sums
        if self.average:
            shares = reach * state.averaged
            sums = -data.native(data.gradient(np.ascontiguousarray(shares.T))).T
            sigma = shares.sum(axis=1)
        state.coef = np.ascontiguousarray(soft(sums + sigma[:, None] * view.mean, t).T)
        loss = _measure(own, state, data)
        state.iteration += 1
        state.rows_seen += n_visits
        return StepInfo(
            train_loss=loss,
            step_size=1.0,  # each coordinate goes all the way
            epoch=state.rows_seen / len(live),
            objective=float(state.primal.sum()),
            duality_gap=float(state.gap.sum()),
            converged=bool(np.all(state.gap <= own.tol * state.primal)),
        )


def _measure(
    problem: base.LinearProblem, state: LinearSDCAState, data: base.PreparedRows
) -> float:
    """Set the best bias, objective and gap of each output; return the mean loss.

    With W, b the function and u', v' feasible the gap is ``sum_i p_i (l_i(f_i) + l_i^*(u'_i) -
    u'_i f_i) + R(W) + R^*(v') - <W, v'>``: two terms, neither of which is negative.
    """
    p = data.share
    C, l1, l2 = problem.n_outputs, problem.l1, problem.l2
    f = np.ascontiguousarray(data.responses(data.native(state.coef), np.zeros(C)).T)
    Y = np.ascontiguousarray(data.Y.T)
    feasible, losses = state.dual.copy(), np.zeros(C)

    def settle(c: int) -> None:
        if problem.fit_intercept:
            error = _BIAS_ERROR * problem.tol * state.primal[c]
            state.bias[c] = best_bias(
                data.code, data.numbers[c], Y[c], f[c], p, state.bias[c], error
            )
            feasible[c] = balance(state.dual[c], p)
        losses[c], state.gap[c] = mean_loss_and_gap(
            data.code, data.numbers[c], Y[c], feasible[c], f[c], state.bias[c], p
        )

    parallel_for(C, settle)
    v = -data.native(data.gradient(np.ascontiguousarray((feasible * p).T)))
    dual_norm = np.maximum(np.abs(v) - l1, 0.0)
    W = state.coef
    penalty = l1 * np.abs(W).sum(axis=0) + 0.5 * l2 * (W * W).sum(axis=0)
    conjugate = 0.5 * (dual_norm**2).sum(axis=0) / l2
    state.gap += np.maximum(penalty + conjugate - (W * v).sum(axis=0), 0.0)
    state.primal = losses + penalty
    return float(losses.sum())
