r"""Average-pooled cosines and sines of random filters on the patches of one cell.

The features of a group share a cell. Its patches are gathered once and multiplied by all
filters of the group, one tile of rows at a time, so convolved images are never stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.elementary import cos_sin_turns
from kernelgrad.compute.threads import over_tiles
from kernelgrad.types import Float32Array, IntArray

_TILE_FLOATS = 2**16  # patches, cosines and sines of one tile, which stay in the L2 cache
_FAST = {"contract", "nsz", "arcp"}


@njit(nogil=True, cache=True, fastmath=_FAST)
def _gather(X: Any, origins: Any, within: Any, contrast: bool, A: Any, weight: Any) -> None:
    """Write patch p of row i to A[i * P + p], and its weight."""
    q = within.size
    for i in range(X.shape[0]):
        x = X[i]
        for p in range(origins.size):
            k = i * origins.size + p
            a = A[k]
            o = origins[p]
            for j in range(q):
                a[j] = x[o + within[j]]
            weight[k] = 1.0
            if contrast:
                mean = np.float32(0)
                for j in range(q):
                    mean += a[j]
                mean /= np.float32(q)
                square = np.float32(0)
                for j in range(q):
                    a[j] -= mean
                    square += a[j] * a[j]
                norm = np.sqrt(square)
                weight[k] = norm
                inverse = np.float32(1) / norm if norm > 0 else np.float32(0)
                for j in range(q):
                    a[j] *= inverse


@njit(nogil=True, cache=True, fastmath=_FAST)
def _pool(T: Any, weight: Any, P: int, scale: Any, out: Any, j0: int, j1: int) -> None:
    """Set out[i, j0:j1] to scale times the weighted sum of T over the P patches of row i."""
    for i in range(out.shape[0]):
        o = out[i, j0:j1]
        for j in range(o.size):
            o[j] = 0
        for k in range(i * P, (i + 1) * P):
            w = scale * weight[k]
            t = T[k]
            for j in range(o.size):
                o[j] += w * t[j]


@njit(nogil=True, cache=True)
def _tile(
    X: Any, origins: Any, starts: Any, within: Any, cells: Any, W: Any,
    contrast: bool, scale: Any, F: int, out: Any,
) -> None:  # fmt: skip
    n = X.shape[0]
    groups, q, G = W.shape
    most = 0
    for g in range(groups):
        most = max(most, starts[cells[g] + 1] - starts[cells[g]])
    size = n * most
    A = np.zeros((size, q), np.float32)
    T = np.empty((size, G), np.float32)
    S = np.empty((size, G), np.float32)
    weight = np.empty(size, np.float32)
    for g in range(groups):
        c = cells[g]
        inside = origins[starts[c] : starts[c + 1]]
        P = inside.size
        size = n * P
        a, t, s = A[:size], T[:size], S[:size]
        _gather(X, inside, within, contrast, a, weight)
        np.dot(a, W[g], t)
        cos_sin_turns(t.reshape(t.size), s.reshape(s.size))
        j0, j1 = g * G, min(F, (g + 1) * G)
        mean = scale / np.float32(P)
        _pool(t, weight, P, mean, out, j0, j1)
        _pool(s, weight, P, mean, out, F + j0, F + j1)


def transform(
    X: Float32Array, origins: IntArray, starts: IntArray, within: IntArray, cells: IntArray,
    W: Float32Array, contrast: bool, scale: float, out: Float32Array,
) -> None:  # fmt: skip
    """Write pooled features of a block to `out` (n, 2 F), cosines before sines, in parallel.

    `origins`, `starts` and `within` are those of a `PatchGrid`, and `cells` (n_groups,) are the
    cells of the groups of features. Filters W (n_groups, q, group) are in turns; the last group
    may have surplus ones. `contrast` subtracts the mean of each patch, divides it by its norm
    and weighs it by its norm.
    """
    n, F = out.shape[0], out.shape[1] // 2
    most = int(np.diff(starts)[cells].max())
    rows = max(1, _TILE_FLOATS // (most * (W.shape[1] + 2 * W.shape[2])))
    s = np.float32(scale)

    def task(r0: int, r1: int) -> None:
        _tile(X[r0:r1], origins, starts, within, cells, W, contrast, s, F, out[r0:r1])

    over_tiles(n, rows, task)
