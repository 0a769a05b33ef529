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
:func:`kernelgrad.losses.conjugate.dual_step` with the curvature ``r_i (|x_i - m|^2 + kappa)``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.rows import FAST, add, column, dot, entries, entry
from kernelgrad.losses.conjugate import dual_step, loss_and_gap
from kernelgrad.losses.scalar import slope
from kernelgrad.types import AnyArray, Float64Array

_STEPS = 100  # of a search for a bias at most
_NEAR = 1e-6  # of a step: its error is the square of that, and a row comes again
_WIDTH = 1e-3  # of the first bracket of a bias
_WIDENINGS = 60  # by 4 each


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


@njit(nogil=True, cache=True)
def soft(v: Float64Array, t: float) -> AnyArray:
    """Return ``sign(v) max(|v| - t, 0)``."""
    return np.maximum(v - t, 0.0) + np.minimum(v + t, 0.0)


@njit(nogil=True, cache=True)
def balance(u: Float64Array, p: Float64Array) -> AnyArray:
    """Return u with ``sum_i p_i u_i = 0``: the sign that weighs more is scaled down.

    Conjugate domains are intervals containing 0, so scaling keeps u feasible.
    """
    positive, negative = 0.0, 0.0
    for i in range(len(u)):
        if u[i] > 0.0:
            positive += p[i] * u[i]
        else:
            negative -= p[i] * u[i]
    up = negative / positive if positive > negative else 1.0
    down = positive / negative if negative > positive else 1.0
    out = np.empty_like(u)
    for i in range(len(u)):
        out[i] = u[i] * (up if u[i] > 0.0 else down)
    return out


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


@njit(nogil=True, cache=True)
def best_bias(
    code: int, number: float, y: Any, f: Any, p: Any, b: float, error: float
) -> float:
    """Return a bias with a mean loss of at most `error` above that of the best.

    The derivative does not decrease: its zero is bracketed from b on, then closed in by secant
    steps, each followed by a bisection where it did not halve the bracket. The end with the
    slope nearer to zero is at most that slope times the bracket above the minimum. If the loss
    decreases without bound the search stops. The responses f do not include the bias.
    """
    low = high = b
    slope_low = slope_high = _bias_slope(code, number, y, f, p, b)
    width = _WIDTH
    for _ in range(_WIDENINGS):
        if slope_low < 0.0 <= slope_high:
            break
        if slope_high < 0.0:
            low, slope_low = high, slope_high
            high += width
            slope_high = _bias_slope(code, number, y, f, p, high)
        elif slope_low > 0.0:
            high, slope_high = low, slope_low
            low -= width
            slope_low = _bias_slope(code, number, y, f, p, low)
        else:
            return low
        width *= 4.0
    if slope_high < 0.0:
        return high
    if slope_low >= 0.0:
        return low
    halve = False
    for _ in range(_STEPS):
        gap = high - low
        if min(-slope_low, slope_high) * gap <= error:
            break
        x = low + gap * (0.5 if halve else slope_low / (slope_low - slope_high))
        x = min(max(x, low + 0.01 * gap), high - 0.01 * gap)
        if not low < x < high:
            break
        found = _bias_slope(code, number, y, f, p, x)
        if found < 0.0:
            low, slope_low = x, found
        else:
            high, slope_high = x, found
        halve = not halve and high - low > 0.5 * gap
    return low if -slope_low < slope_high else high
