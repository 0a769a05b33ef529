r"""Inner loops of the linear solvers, on dense rows and on CSR.

A linear function has responses ``u_i = x_i W + b``, (n, C). The loss of an output is known by
its *kind* and one number, with ``m = y u`` and ``z = u - y``:

==============  ===============================================  =========
kind            l(y, u)                                          curvature
==============  ===============================================  =========
SQUARED         ``z^2 / 2``                                      1
LOGISTIC        ``log(1 + exp(-m))``                             1/4
MULTINOMIAL     ``log sum_c exp(u_c) - sum_c y_c u_c``           1/2
SQUARED_HINGE   ``max(0, 1 - m)^2``                              2
HINGE           ``max(0, 1 - m)``                                infinite
HUBER           ``z^2 / 2``, a line from ``|z| = delta``         1
SMOOTHED_HINGE  0; ``(1 - m)^2 / 2g``; ``1 - m - g/2``           1 / g
EPSILON         ``max(0, |z| - eps)``                            infinite
QUANTILE        ``q`` times ``-z`` or ``1 - q`` times ``z``      infinite
==============  ===============================================  =========

(curvature: the largest second derivative; of MULTINOMIAL the largest eigenvalue.)

A step of the stochastic methods with composite penalties is

.. math:: W \leftarrow \mathrm{prox}_{\eta R}\Bigl(W - \eta \bigl[ \sum_k s_k
          (l'(y_k, u_k) - r_k) x_k + M \bigr]\Bigr),
          \qquad R(W) = l_1 \|W\|_1 + \tfrac{l_2}{2} \|W\|^2,

over the rows k of a mini-batch with shares s_k. The references r and their mean M reduce the
variance: both are zero in plain stochastic gradients. The bias takes the same step without
penalty. On CSR rows only the columns of a mini-batch are touched: the others take all steps
they have missed at once, in closed form, when they are next needed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from kernelgrad._typing import AnyArray, Float64Array, IntArray
from kernelgrad.compute.threads import parallel_for

SQUARED, LOGISTIC, MULTINOMIAL, SQUARED_HINGE, HINGE, HUBER = range(6)
SMOOTHED_HINGE, EPSILON, QUANTILE = range(6, 9)

ROWS = 1024  # of a tile of a pass over all rows
PARTS = 8  # partial sums of a gradient: fixed, so that no bit depends on threads
FAST = {"contract", "nsz", "arcp", "reassoc"}


@njit(nogil=True, cache=True)
def _sigmoid(x: float) -> float:
    if x >= 0.0:
        return 1.0 / (1.0 + math.exp(-x))
    e = math.exp(x)
    return e / (1.0 + e)


@njit(nogil=True, cache=True)
def slope(kind: int, number: float, y: float, u: float) -> Any:
    """Return the derivative of one output's loss; MULTINOMIAL has :func:`slopes_of_row`."""
    if kind == SQUARED:
        return u - y
    if kind == LOGISTIC:
        return -y * _sigmoid(-y * u)
    if kind == SQUARED_HINGE:
        t = 1.0 - y * u
        return -2.0 * y * t if t > 0.0 else 0.0
    if kind == HINGE:
        return -y if y * u < 1.0 else 0.0
    if kind == HUBER:
        return min(max(u - y, -number), number)
    if kind == SMOOTHED_HINGE:
        t = 1.0 - y * u
        return 0.0 if t <= 0.0 else -y * min(t / number, 1.0)
    z = u - y
    if kind == EPSILON:
        return 1.0 if z > number else (-1.0 if z < -number else 0.0)
    return 1.0 - number if z > 0.0 else (-number if z < 0.0 else 0.0)


@njit(nogil=True, cache=True)
def value(kind: int, number: float, y: float, u: float) -> Any:
    """Return one output's loss; MULTINOMIAL has :func:`value_of_row`."""
    if kind == SQUARED:
        return 0.5 * (u - y) ** 2
    if kind == LOGISTIC:
        m = y * u
        return math.log1p(math.exp(-abs(m))) + max(-m, 0.0)
    if kind == SQUARED_HINGE:
        return max(1.0 - y * u, 0.0) ** 2
    if kind == HINGE:
        return max(1.0 - y * u, 0.0)
    z = u - y
    if kind == HUBER:
        a = abs(z)
        return 0.5 * z * z if a <= number else number * (a - 0.5 * number)
    if kind == SMOOTHED_HINGE:
        t = 1.0 - y * u
        if t <= 0.0:
            return 0.0
        return t - 0.5 * number if t > number else 0.5 * t * t / number
    if kind == EPSILON:
        return max(abs(z) - number, 0.0)
    return max((1.0 - number) * z, -number * z)


@njit(nogil=True, cache=True)
def slopes_of_row(
    kind: int, numbers: Float64Array, y: Float64Array, u: Float64Array, out: Float64Array
) -> None:
    """Write the derivatives of a row's loss in its C outputs."""
    C = len(u)
    if kind == MULTINOMIAL:
        top = u[0]
        for c in range(1, C):
            top = max(top, u[c])
        total = 0.0
        for c in range(C):
            out[c] = math.exp(u[c] - top)
            total += out[c]
        for c in range(C):
            out[c] = out[c] / total - y[c]
        return
    for c in range(C):
        out[c] = slope(kind, numbers[c], y[c], u[c])


@njit(nogil=True, cache=True)
def value_of_row(kind: int, numbers: Float64Array, y: Float64Array, u: Float64Array) -> Any:
    """Return a row's loss, summed over outputs."""
    C = len(u)
    total = 0.0
    if kind == MULTINOMIAL:
        top, chosen = u[0], 0.0
        for c in range(1, C):
            top = max(top, u[c])
        for c in range(C):
            total += math.exp(u[c] - top)
            chosen += y[c] * u[c]
        return math.log(total) + top - chosen
    for c in range(C):
        total += value(kind, numbers[c], y[c], u[c])
    return total


@njit(nogil=True, cache=True)
def _losses(
    kind: int,
    numbers: Float64Array,
    Y: Float64Array,
    U: Float64Array,
    share: Float64Array,
    G: Float64Array,
) -> float:
    total = 0.0
    for i in range(len(U)):
        total += share[i] * value_of_row(kind, numbers, Y[i], U[i])
        slopes_of_row(kind, numbers, Y[i], U[i], G[i])
    return total


def losses(
    kind: int, numbers: Float64Array, Y: Float64Array, U: Float64Array, share: Float64Array
) -> tuple[float, Float64Array]:
    """Return ``sum_i share_i l(y_i, u_i)`` and the derivatives (n, C)."""
    n = len(U)
    G = np.empty_like(U)
    parts = np.zeros(-(-n // ROWS))

    def task(t: int) -> None:
        r = slice(t * ROWS, (t + 1) * ROWS)
        parts[t] = _losses(kind, numbers, Y[r], U[r], share[r], G[r])

    parallel_for(len(parts), task)
    return float(parts.sum()), G


# -- the penalty -----------------------------------------------------------------------


@njit(nogil=True, cache=True)
def shrink(w: float, eta: float, l1: float, l2: float) -> Any:
    """Return the proximal point of ``eta (l1 |w| + l2/2 w^2)``."""
    t = eta * l1
    if w > t:
        return (w - t) / (1.0 + eta * l2)
    if w < -t:
        return (w + t) / (1.0 + eta * l2)
    return 0.0


@njit(nogil=True, cache=True)
def missed_steps(
    w: float,
    mean: float,
    k: int,
    eta: float,
    l1: float,
    l2: float,
    powers: Float64Array,
    sums: Float64Array,
) -> Any:
    """Return w after k steps ``w <- shrink(w - eta mean)``.

    On one side of zero a step is affine, so that k of them are
    ``powers[k] w - eta (mean +- l1) sums[k]`` with ``powers[k] = (1 + eta l2)^-k`` and
    ``sums[k] = powers[1] + ... + powers[k]``, as long as that has not reached zero.
    """
    if l1 == 0.0:
        return powers[k] * w - eta * mean * sums[k]
    while k > 0:
        if w == 0.0:
            if abs(mean) <= l1:
                return 0.0
            w = shrink(-eta * mean, eta, l1, l2)
            k -= 1
            continue
        c = eta * (mean + l1) if w > 0.0 else eta * (mean - l1)
        far = powers[k] * w - c * sums[k]
        if far * w > 0.0:
            return far
        low, high = 0, k  # the last step before zero lies in [low, high)
        while high - low > 1:
            middle = (low + high) // 2
            if (powers[middle] * w - c * sums[middle]) * w > 0.0:
                low = middle
            else:
                high = middle
        w = shrink(powers[low] * w - c * sums[low] - eta * mean, eta, l1, l2)
        k -= low + 1
    return w


def step_tables(n_steps: int, eta: float, l2: float) -> tuple[Float64Array, Float64Array]:
    """Return the ``powers`` and ``sums`` of :func:`missed_steps` for up to `n_steps`."""
    powers = (1.0 + eta * l2) ** -np.arange(n_steps + 1.0)
    return powers, np.cumsum(powers) - 1.0


# -- references ------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def anchored(
    i: int, near: IntArray, gamma: Float64Array, code: AnyArray, at: Float64Array, out: Any
) -> None:
    """Write ``sum_k gamma_ik at[code_ic, anchor_ik, c]``."""
    for c in range(len(out)):
        out[c] = 0.0
    for k in range(near.shape[1]):
        a, g = near[i, k], gamma[i, k]
        for c in range(len(out)):
            out[c] += g * at[code[i, c], a, c]


# -- neighbours ------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def smallest(D: Float64Array, k: int, places: IntArray, values: Float64Array) -> None:
    """Write the k smallest entries of each row of D in increasing order, and their places.

    Parameters
    ----------
    D : float64 array (n, m)
    k : int
        From 1 to m.
    places, values : int64 and float64 arrays (n, k)
    """
    n, m = D.shape
    for i in range(n):
        filled = 0
        for j in range(m):
            v = D[i, j]
            if filled == k and v >= values[i, k - 1]:
                continue
            at = filled if filled < k else k - 1
            while at > 0 and values[i, at - 1] > v:
                values[i, at] = values[i, at - 1]
                places[i, at] = places[i, at - 1]
                at -= 1
            values[i, at] = v
            places[i, at] = j
            filled = min(filled + 1, k)
