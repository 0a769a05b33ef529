"""Losses of rows in compiled loops, for contiguous float64 rows and losses with a code."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.threads import parallel_for
from kernelgrad.losses import scalar
from kernelgrad.types import Float64Array

ROWS = 1024  # rows of a tile in a pass over all rows


@njit(nogil=True, cache=True)
def softmax_of_row(u: Float64Array, out: Float64Array) -> float:
    """Write ``softmax(u)`` to `out`; return ``log sum_c exp(u_c)``."""
    top, total = u.max(), 0.0
    for c in range(len(u)):
        out[c] = math.exp(u[c] - top)
        total += out[c]
    for c in range(len(u)):
        out[c] /= total
    return float(math.log(total) + top)


@njit(nogil=True, cache=True)
def slopes_of_row(
    code: int, params: Float64Array, y: Float64Array, u: Float64Array, out: Float64Array
) -> None:
    C = len(u)
    if code == scalar.MULTINOMIAL:
        softmax_of_row(u, out)
        for c in range(C):
            out[c] -= y[c]
        return
    for c in range(C):
        out[c] = scalar.slope(code, params[c], y[c], u[c])


@njit(nogil=True, cache=True)
def value_of_row(code: int, params: Float64Array, y: Float64Array, u: Float64Array) -> Any:
    C = len(u)
    total = 0.0
    if code == scalar.MULTINOMIAL:
        top, chosen = u.max(), 0.0
        for c in range(C):
            total += math.exp(u[c] - top)
            chosen += y[c] * u[c]
        return math.log(total) + top - chosen
    for c in range(C):
        total += scalar.value(code, params[c], y[c], u[c])
    return total


@njit(nogil=True, cache=True)
def _losses(code: int, params: Any, Y: Any, U: Any, share: Any, G: Any) -> float:
    total = 0.0
    for i in range(len(U)):
        total += share[i] * value_of_row(code, params, Y[i], U[i])
        slopes_of_row(code, params, Y[i], U[i], G[i])
    return total


def losses(
    code: int, params: Float64Array, Y: Float64Array, U: Float64Array, share: Float64Array
) -> tuple[float, Float64Array]:
    """Return ``sum_i share_i l(y_i, u_i)`` and its derivatives (n, C)."""
    n = len(U)
    G = np.empty_like(U)
    parts = np.zeros(-(-n // ROWS))

    def task(t: int) -> None:
        r = slice(t * ROWS, (t + 1) * ROWS)
        parts[t] = _losses(code, params, Y[r], U[r], share[r], G[r])

    parallel_for(len(parts), task)
    return float(parts.sum()), G
