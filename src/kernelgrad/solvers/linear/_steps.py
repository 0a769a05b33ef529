r"""Steps of the linear solvers: the penalty, columns that missed steps, references, neighbours.

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

from typing import Any

import numpy as np
from numba import njit

from kernelgrad._typing import AnyArray, Float64Array, IntArray

PARTS = 8  # partial sums of a gradient: fixed, so that no bit depends on threads
FAST = {"contract", "nsz", "arcp", "reassoc"}


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
