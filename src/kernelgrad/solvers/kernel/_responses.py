"""Responses of all rows, moved and averaged in one pass."""

from __future__ import annotations

from numba import njit

from kernelgrad._typing import Float32Array, Float64Array
from kernelgrad.compute.threads import parallel_for

_TILE = 8192


@njit(nogil=True, cache=True, fastmath={"contract", "nsz"})
def _advance(
    c: Float64Array,
    mean: Float64Array,
    y: Float64Array,
    v: Float32Array,
    eta: float,
    shrink: float,
    share: float,
) -> None:
    for i in range(len(c)):
        moved = shrink * (c[i] + eta * y[i] * v[i])
        c[i] = moved
        mean[i] += share * (moved - mean[i])


def advance(
    c: Float64Array,
    mean: Float64Array,
    y: Float64Array,
    v: Float32Array,
    eta: Float64Array,
    shrink: Float64Array,
    share: float,
) -> None:
    """Set ``c <- shrink (c + eta y v)``, then ``mean <- mean + share (c - mean)``, in place.

    All arrays are (C, n); `eta` and `shrink` are (C,).
    """
    C, n = c.shape
    tiles = -(-n // _TILE)

    def task(i: int) -> None:
        k, columns = i // tiles, slice(i % tiles * _TILE, (i % tiles + 1) * _TILE)
        _advance(
            c[k, columns], mean[k, columns], y[k, columns], v[k, columns],
            float(eta[k]), float(shrink[k]), share,
        )  # fmt: skip

    parallel_for(C * tiles, task)
