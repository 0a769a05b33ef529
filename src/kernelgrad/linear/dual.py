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
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.rows import column, entries, entry
from kernelgrad.linear.conjugate import dual_step, loss_and_gap
from kernelgrad.linear.rows import FAST, add, dot
from kernelgrad.losses.scalar import slope
from kernelgrad.types import Float64Array

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
