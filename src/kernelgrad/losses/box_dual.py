r"""Steps of dual coordinate ascent for hinges and tubes, each row and output with its own.

A row with a side ``t`` of -1 or +1 has the hinge ``max(0, 1 - t f)``, one with side 0 the tube
``max(0, |f| - 1)``. Both are

.. math:: l(f) = \max_{low \le u \le high}\ u (f - t) - \epsilon |u|

with ``epsilon = 0`` and a box from 0 to -t for the hinge, ``epsilon = 1`` and the box [-1, 1]
for the tube. A linear term ``-beta f`` beside the loss moves the coefficient
``-(p / alpha) (u - beta)`` of the row and neither the step in u nor the gap
``l(f) + l*(u) - u f``, in which it cancels.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelgrad._typing import AnyArray, Float64Array, IntArray


@njit(nogil=True, cache=True)
def _loss_and_gap(side: float, u: float, f: float) -> tuple[float, float]:
    """Return ``l(f)`` and ``l(f) + l*(u) - u f``."""
    if side == 0.0:
        loss = max(abs(f) - 1.0, 0.0)
        conjugate = abs(u)
    else:
        loss = max(1.0 - side * f, 0.0)
        conjugate = u * side
    return loss, max(loss + conjugate - u * f, 0.0)


@njit(nogil=True, cache=True)
def _step(side: float, u: float, f: float, q: float) -> float:
    """Return the u that maximises the dual in one coordinate, all others fixed."""
    low, high = min(0.0, -side), max(0.0, -side)
    # completing the square with the quadratic term q/2 (u' - u)^2
    z = f - side + q * u
    if side == 0.0:
        low, high = -1.0, 1.0
        z = max(z - 1.0, 0.0) + min(z + 1.0, 0.0)
    if z == 0.0:
        return 0.0
    if q > 0.0:
        return min(max(z / q, low), high)
    return high if z > 0.0 else low


@njit(nogil=True, cache=True)
def unsettled(
    side: Float64Array, u: Float64Array, f: Float64Array, least: Float64Array
) -> AnyArray:
    """Return which (output, row) have a gap above `least`; arrays as in :func:`sweep`."""
    C, w = u.shape
    out = np.zeros(w, np.bool_)
    for c in range(C):
        for j in range(w):
            out[j] |= _loss_and_gap(side[c, j], u[c, j], f[c, j])[1] > least[c]
    return out


@njit(nogil=True, cache=True)
def sweep(
    side: Float64Array,
    u: Float64Array,
    f: Float64Array,
    reach: Float64Array,
    place: IntArray,
    K: Float64Array,
    least: Float64Array,
    start: int,
) -> int:
    """Move the coordinates of w rows one after the other, each to its optimum, in place.

    Parameters
    ----------
    side, u, f : float64 arrays (C, w)
        Sides, dual variables and responses with intercept. Afterwards f holds the responses
        that each row had at its turn.
    reach : float64 array (w,)
        ``p_i / alpha``: a step du adds ``-reach_i du`` to the row's coefficient.
    place : integer array (w,)
        The row's place in `K`, or -1 for rows expected to stay.
    K : float64 array (m, w)
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
    C, w = u.shape
    for j in range(start, w):
        a = place[j]
        q = 0.0 if a < 0 else max(reach[j] * K[a, j], 0.0)
        for c in range(C):
            if _loss_and_gap(side[c, j], u[c, j], f[c, j])[1] <= least[c]:
                continue
            if a < 0:
                return int(j)
            new = _step(side[c, j], u[c, j], f[c, j], q)
            moved = reach[j] * (u[c, j] - new)
            u[c, j] = new
            if moved != 0.0:
                for k in range(j + 1, w):  # rows before j have had their turn
                    f[c, k] += moved * K[a, k]
    return int(w)


@njit(nogil=True, cache=True)
def loss_and_gap(
    side: Float64Array, u: Float64Array, f: Float64Array, p: Float64Array
) -> Float64Array:
    """Return ``sum_i p_i l_i(f_i)`` and the duality gap of each output, (2, C).

    Arrays as in :func:`sweep`, with the weights p (n,) of the rows.
    """
    C, n = u.shape
    out = np.zeros((2, C))
    for c in range(C):
        for i in range(n):
            if p[i] > 0.0:
                loss, gap = _loss_and_gap(side[c, i], u[c, i], f[c, i])
                out[0, c] += p[i] * loss
                out[1, c] += p[i] * gap
    return out
