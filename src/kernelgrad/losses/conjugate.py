r"""Steps of dual coordinate ascent, and the duality gap, one row and output at a time.

A loss of one output is known by its conjugate: for a residual ``z = f - y``

.. math:: l(z) = \max_{low \le u \le high}\ u z - \epsilon |u| - \tfrac{s}{2} u^2

with four numbers ``(epsilon, s, low, high)``, u being the derivative of the loss. RESIDUAL is
this form; MARGIN is it in the margin, with ``y f`` for f, ``y u`` for u and 1 for y; LOGISTIC
is ``log(1 + exp(-y f))``, whose conjugate is the negative entropy of ``-y u`` and needs none.

By Fenchel and Young ``l(f) + l*(u) - u f >= 0``, with equality where u is a derivative at f.
Summed over rows with their weights this is the duality gap.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from kernelgrad._typing import AnyArray, Float32Array, Float64Array, IntArray
from kernelgrad.compute.threads import parallel_for

RESIDUAL, MARGIN, LOGISTIC = range(3)

_TILE = 2048  # columns of a task: 16 KiB of float64
_STEPS = 200  # of Newton or bisection at most; more than doubles can use


@njit(nogil=True, cache=True)
def _peak(z: float, epsilon: float, s: float, low: float, high: float) -> float:
    """Return the u in [low, high] that maximises ``u z - epsilon |u| - s u^2 / 2``."""
    if z > epsilon:
        r = z - epsilon
    elif z < -epsilon:
        r = z + epsilon
    else:
        return 0.0
    if s > 0.0:
        return min(max(r / s, low), high)
    return high if r > 0.0 else low


@njit(nogil=True, cache=True)
def _height(u: float, z: float, epsilon: float, s: float) -> float:
    return u * z - epsilon * abs(u) - 0.5 * s * u * u


@njit(nogil=True, cache=True)
def _sigmoid(x: float) -> float:
    if x >= 0.0:
        return 1.0 / (1.0 + math.exp(-x))
    e = math.exp(x)
    return e / (1.0 + e)


@njit(nogil=True, cache=True)
def _entropy(b: float) -> float:
    """Return ``b log b + (1 - b) log(1 - b)``."""
    total = 0.0
    if b > 0.0:
        total += b * math.log(b)
    if b < 1.0:
        total += (1.0 - b) * math.log1p(-b)
    return total


@njit(nogil=True, cache=True)
def _logistic_step(b: float, m: float, q: float) -> float:
    """Return b' = sigma(-z) where the margin after the step, z, is ``m + q (b' - b)``.

    Newton's method; a step that leaves the bracket, or follows one that did not halve the
    equation, is a bisection.
    """
    low, high = m - q * b, m + q * (1.0 - b)
    z, last = m, math.inf
    t: float = _sigmoid(-z)
    for _ in range(_STEPS):
        h = z - m - q * (t - b)
        if h > 0.0:
            high = z
        else:
            low = z
        new = z - h / (1.0 + q * t * (1.0 - t))
        if not (low < new < high and abs(h) <= 0.5 * last):
            new = 0.5 * (low + high)
        moved, last = abs(new - z), abs(h)
        z = new
        t = _sigmoid(-z)
        if moved <= 1e-15 * (1.0 + abs(z)):
            break
    return t


@njit(nogil=True, cache=True)
def _step(kind: int, numbers: Float64Array, y: float, u: float, f: float, q: float) -> Any:
    """Return the u that maximises the dual in one coordinate, all others fixed."""
    if kind == LOGISTIC:
        return -y * _logistic_step(-y * u, y * f, q)
    # completing the square with the quadratic term q/2 (u' - u)^2
    epsilon, s, low, high = numbers
    if kind == MARGIN:
        return y * _peak(y * f - 1.0 + q * (y * u), epsilon, s + q, low, high)
    return _peak(f - y + q * u, epsilon, s + q, low, high)


@njit(nogil=True, cache=True)
def _loss_and_gap(
    kind: int, numbers: Float64Array, y: float, u: float, f: float
) -> tuple[float, float]:
    """Return ``l(f)`` and ``l(f) + l*(u) - u f``."""
    if kind == LOGISTIC:
        b, m = -y * u, y * f
        loss = math.log1p(math.exp(-abs(m))) + max(-m, 0.0)
        return loss, max(loss + _entropy(b) + b * m, 0.0)
    epsilon, s, low, high = numbers
    if kind == MARGIN:
        z, v = y * f - 1.0, y * u
    else:
        z, v = f - y, u
    loss = _height(_peak(z, epsilon, s, low, high), z, epsilon, s)
    return loss, max(loss - _height(v, z, epsilon, s), 0.0)


@njit(nogil=True, cache=True)
def unsettled(
    kind: int,
    numbers: Float64Array,
    y: Float64Array,
    u: Float64Array,
    f: Float64Array,
    least: Float64Array,
) -> AnyArray:
    """Return which rows have an output with a gap above `least`; arrays as in :func:`sweep`."""
    C, w = u.shape
    out = np.zeros(w, np.bool_)
    for c in range(C):
        for j in range(w):
            gap = _loss_and_gap(kind, numbers[c], y[c, j], u[c, j], f[c, j])[1]
            out[j] |= gap > least[c]
    return out


@njit(nogil=True, cache=True)
def sweep(
    kind: int,
    numbers: Float64Array,
    y: Float64Array,
    u: Float64Array,
    f: Float64Array,
    reach: Float64Array,
    place: IntArray,
    K: Float32Array,
    least: Float64Array,
    start: int,
) -> int:
    """Move the coordinates of w rows one after the other, each to its optimum, in place.

    Parameters
    ----------
    kind : {RESIDUAL, MARGIN, LOGISTIC}
    numbers : float64 array (C, 4)
        ``(epsilon, s, low, high)`` of each output.
    y, u, f : float64 arrays (C, w)
        Targets, dual variables and responses with intercept. Afterwards f holds the responses
        that each row had at its turn.
    reach : float64 array (w,)
        ``p_i / alpha``: a step du adds ``-reach_i du`` to the row's coefficient.
    place : integer array (w,)
        The row's place in `K`, or -1 for rows expected to stay.
    K : float32 array (m, w)
        The kernel between the other rows and all w.
    least : float64 array (C,)
        A coordinate with a gap up to this is left alone.
    start : int
        The first row to visit.

    Returns
    -------
    int
        The first row that should move and is not in `K`; w when all are done.
    """
    C, w = len(u), len(place)
    for j in range(start, w):
        a = place[j]
        q = 0.0 if a < 0 else max(reach[j] * np.float64(K[a, j]), 0.0)
        for c in range(C):
            gap = _loss_and_gap(kind, numbers[c], y[c, j], u[c, j], f[c, j])[1]
            if gap <= least[c]:
                continue
            if a < 0:
                return j
            new = _step(kind, numbers[c], y[c, j], u[c, j], f[c, j], q)
            moved = reach[j] * (u[c, j] - new)
            u[c, j] = new
            if moved != 0.0:
                for k in range(j + 1, w):  # rows before j have had their turn
                    f[c, k] += moved * K[a, k]
    return w


@njit(nogil=True, cache=True)
def loss_and_gap(
    kind: int,
    numbers: Float64Array,
    y: Float64Array,
    u: Float64Array,
    f: Float64Array,
    p: Float64Array,
) -> Float64Array:
    """Return the mean loss and the duality gap of each output, (2, C).

    Arrays as in :func:`sweep`, with the weights p (m,) of the rows, which sum to 1.
    """
    C, n = u.shape
    out = np.zeros((2, C))
    for c in range(C):
        for i in range(n):
            loss, gap = _loss_and_gap(kind, numbers[c], y[c, i], u[c, i], f[c, i])
            out[0, c] += p[i] * loss
            out[1, c] += p[i] * gap
    return out


@njit(nogil=True, cache=True, fastmath={"contract", "nsz"})
def _add_rows(
    rows: Float32Array, slots: IntArray, coef: Float64Array, start: int, out: Float64Array
) -> None:
    C, width = out.shape
    for i in range(len(slots)):
        K = rows[slots[i], start : start + width]
        for c in range(C):
            a = coef[i, c]
            if a != 0.0:
                f = out[c]
                for j in range(width):
                    f[j] += a * K[j]


def add_rows(
    rows: Float32Array, slots: IntArray, coef: Float64Array, out: Float64Array
) -> None:
    """Add ``sum_i coef_i rows[slots_i]`` to `out` (C, n) in float64; coef is (m, C).

    Sums in float64 do not drift: gaps stay true however many steps are taken.
    """
    n = out.shape[1]

    def task(i: int) -> None:
        start = i * _TILE
        _add_rows(rows, slots, coef, start, out[:, start : start + _TILE])

    parallel_for(-(-n // _TILE), task)
