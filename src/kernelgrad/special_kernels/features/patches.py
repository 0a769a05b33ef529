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
def _gather(X: Any, origins: Any, within: Any, A: Any) -> None:
    """Write patch p of row i to A[i * P + p]."""
    q = within.size
    for i in range(X.shape[0]):
        x = X[i]
        for p in range(origins.size):
            a = A[i * origins.size + p]
            o = origins[p]
            for j in range(q):
                a[j] = x[o + within[j]]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _pool(T: Any, P: int, scale: Any, out: Any, j0: int, j1: int) -> None:
    """Set out[i, j0:j1] to scale times the sum of T over the P patches of row i."""
    for i in range(out.shape[0]):
        o = out[i, j0:j1]
        for j in range(o.size):
            o[j] = 0
        for k in range(i * P, (i + 1) * P):
            t = T[k]
            for j in range(o.size):
                o[j] += scale * t[j]


@njit(nogil=True, cache=True)
def _tile(
    X: Any, origins: Any, starts: Any, within: Any, cells: Any, W: Any,
    scale: Any, F: int, out: Any,
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
    for g in range(groups):
        c = cells[g]
        inside = origins[starts[c] : starts[c + 1]]
        P = inside.size
        size = n * P
        a, t, s = A[:size], T[:size], S[:size]
        _gather(X, inside, within, a)
        np.dot(a, W[g], t)
        cos_sin_turns(t.reshape(t.size), s.reshape(s.size))
        j0, j1 = g * G, min(F, (g + 1) * G)
        mean = scale / np.float32(P)
        _pool(t, P, mean, out, j0, j1)
        _pool(s, P, mean, out, F + j0, F + j1)


def transform(
    X: Float32Array, origins: IntArray, starts: IntArray, within: IntArray, cells: IntArray,
    W: Float32Array, scale: float, out: Float32Array,
) -> None:  # fmt: skip
    """Write pooled features of a block to `out` (n, 2 F), cosines before sines, in parallel.

    `origins`, `starts` and `within` are those of a `PatchGrid`, and `cells` (n_groups,) are the
    cells of the groups of features. Filters W (n_groups, q, group) are in turns; the last group
    may have surplus ones.
    """
    n, F = out.shape[0], out.shape[1] // 2
    most = int(np.diff(starts)[cells].max())
    rows = max(1, _TILE_FLOATS // (most * (W.shape[1] + 2 * W.shape[2])))
    s = np.float32(scale)

    def task(r0: int, r1: int) -> None:
        _tile(X[r0:r1], origins, starts, within, cells, W, s, F, out[r0:r1])

    over_tiles(n, rows, task)
