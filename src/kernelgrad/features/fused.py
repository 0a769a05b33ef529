r"""Fused tiles of random features ``h(X W)``, with a scalar function h.

A tile computes ``T = X W``, applies h to every entry, and multiplies by coefficients while it
is still in the cache, so the n x D matrix of features is never stored. The kinds of h are:

========  ==========================================================================
PAIR      two planes, ``cos 2 pi T`` and ``sin 2 pi T``: W is in turns (divided by 2 pi)
PHASE     ``sqrt(2) cos 2 pi (T + b)``, W and b in turns
LINEAR    ``T``
STEP      ``1[T > 0]``
RAMP      ``max(T, 0)``
RAMP2     ``max(T, 0)^2``
DECAY     ``exp(-T)``
========  ==========================================================================

Weights are stored as tiles ``(n_tiles, d, TILE)``, and coefficients as planes
``(planes, n_tiles * TILE, C)``, which for PAIR are plane 0 for the cosines and plane 1 for the
sines. All arrays are float32 and C-contiguous. Sums run over tiles in order, so the bits of
the result do not depend on the number of threads or on the number of tiles per call. Products
for features and predictions have a multiple of LOT rows, filled up by zeros, as OpenBLAS adds
in another order for the last rows of others. With fewer than 8 columns a row alone or among
others has the same bits then (core types up to AVX2). With more the order may depend on the
place of a row among LOT, and cosines of d columns differ by at most
``4 pi d 2^-24 sum_j |w_j x_j|``, w in turns, which is much for rows far from 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.elementary import cos_phase_turns, cos_sin_turns, exp_minus
from kernelgrad.compute.linalg import csr_times_tile
from kernelgrad.compute.rows import Csr, Dense, as_rows, by_type
from kernelgrad.compute.threads import over_tiles, parallel_for
from kernelgrad.types import Float32Array, Matrix

PAIR, PHASE, LINEAR, STEP, RAMP, RAMP2, DECAY = range(7)

TILE = 256
LOT = 12  # rows; the panels of OpenBLAS have 4 or 12
ROWS = 21 * LOT
ROWS_WIDE = 42 * LOT  # rows of a tile from WIDE columns on, where the first product dominates
WIDE = 500

_f = np.float32
# no reassociation, and NaN is respected: an infinite input must not become finite
_FAST = {"contract", "nsz", "arcp"}


@njit(nogil=True, cache=True, fastmath=_FAST)
def _ramps(t: Any, kind: int) -> None:
    """Set the flat array t to max(t, 0)^n, n = 0 (STEP), 1 (RAMP), 2 (RAMP2); NaN stays."""
    if kind == STEP:
        for k in range(t.size):
            t[k] = _f(1) if t[k] > _f(0) else (_f(0) if t[k] <= _f(0) else t[k])
    elif kind == RAMP:
        for k in range(t.size):
            t[k] = _f(0) if t[k] <= _f(0) else t[k]
    else:
        for k in range(t.size):
            v = _f(0) if t[k] <= _f(0) else t[k]
            t[k] = v * v


@njit(nogil=True, cache=True)
def _features(T: Any, S: Any, phase: Any, kind: int) -> None:
    """Replace the projections T of a tile by features; S is a second plane or scratch."""
    if kind == PAIR:
        cos_sin_turns(T.reshape(T.size), S.reshape(S.size))
    elif kind == PHASE:
        cos_phase_turns(T, phase)
    elif kind == DECAY:
        exp_minus(T.reshape(T.size), S.reshape(S.size).view(np.int32))
    elif kind != LINEAR:
        _ramps(T.reshape(T.size), kind)


@njit(nogil=True, cache=True)
def _second(rows: int, tile: int, kind: int) -> Any:
    """Return the array S of :func:`_features`: empty where it is not used."""
    return np.zeros((rows if kind in (PAIR, DECAY) else 0, tile), np.float32)


@njit(nogil=True, cache=True)
def _filled_product(X: Any, W: Any, T: Any) -> None:
    """Write X W to the first rows of T; rows of zeros take the place of those X lacks."""
    if len(X) < len(T):
        filled = np.zeros((len(T), X.shape[1]), np.float32)
        filled[: len(X)] = X
        np.dot(filled, W, T)
    else:
        np.dot(X, W, T)


# write rows r0..r1 times W to T
tile_product = by_type(
    {
        Dense: lambda rows, r0, r1, W, T: _filled_product(rows.values[r0:r1], W, T),
        Csr: lambda X, r0, r1, W, T: csr_times_tile(X.indptr, X.indices, X.data, r0, r1, W, T),
    }
)


@njit(nogil=True, cache=True)
def _lots(rows: int) -> int:
    """Return the least multiple of LOT that is at least `rows`."""
    return -(-rows // LOT) * LOT


@njit(nogil=True, cache=True)
def add_product(P: Any, A: Any, tmp: Any, out: Any) -> None:
    """Add the first rows of ``P A`` to `out`; `tmp`, with all rows, is scratch."""
    if A.shape[1] == 1:
        np.dot(P, A.reshape(A.size), tmp.reshape(tmp.size))
    else:
        np.dot(P, A, tmp)
    for i in range(out.shape[0]):
        for c in range(out.shape[1]):
            out[i, c] += tmp[i, c]


@njit(nogil=True, cache=True)
def _predict(
    rows: Any, r0: int, r1: int, W: Any, phase: Any, kind: int, coef: Any, out: Any
) -> None:
    n, tile = r1 - r0, W.shape[2]
    T = np.zeros((_lots(n), tile), np.float32)
    S = _second(len(T), tile, kind)
    tmp = np.empty((len(T), coef.shape[2]), np.float32)
    for a in range(W.shape[0]):
        j0, j1 = a * tile, (a + 1) * tile
        tile_product(rows, r0, r1, W[a], T)
        _features(T[:n], S[:n], phase[j0:j1], kind)
        for p in range(coef.shape[0]):
            add_product(T if p == 0 else S, coef[p, j0:j1], tmp, out[r0:r1])


@njit(nogil=True, cache=True)
def _gradient(
    rows: Any, n: int, W: Any, phase: Any, kind: int, R: Any, G: Any, step: int
) -> None:
    """Set G (planes, tile, C) to features^T R for one tile of features, by tiles of rows."""
    C, tile = R.shape[1], W.shape[1]
    G[:] = 0
    T = np.empty((step, tile), np.float32)
    S = _second(step, tile, kind)
    tmp = np.empty((tile, C), np.float32)
    for r0 in range(0, n, step):
        r1 = min(n, r0 + step)
        t, s = T[: r1 - r0], S[: min(len(S), r1 - r0)]
        tile_product(rows, r0, r1, W, t)
        _features(t, s, phase, kind)
        for p in range(G.shape[0]):
            np.dot((t if p == 0 else s).T, R[r0:r1], tmp)
            for k in range(tile):
                for c in range(C):
                    G[p, k, c] += tmp[k, c]


@njit(nogil=True, cache=True)
def _transform(
    rows: Any, r0: int, r1: int, W: Any, phase: Any, kind: int, scale: Any, out: Any
) -> None:
    n, n_tiles, tile = r1 - r0, W.shape[0], W.shape[2]
    T = np.zeros((_lots(n), tile), np.float32)
    S = _second(len(T), tile, kind)
    planes = out.shape[1] // (n_tiles * tile)
    for a in range(n_tiles):
        tile_product(rows, r0, r1, W[a], T)
        _features(T[:n], S[:n], phase[a * tile : (a + 1) * tile], kind)
        for p in range(planes):
            j, P = (p * n_tiles + a) * tile, T if p == 0 else S
            for i in range(n):
                for k in range(tile):
                    out[r0 + i, j + k] = scale * P[i, k]


def _row_tile(d: int) -> int:
    return ROWS_WIDE if d >= WIDE else ROWS


def predict(
    X: Matrix, W: Float32Array, phase: Float32Array, kind: int, coef: Float32Array,
    out: Float32Array,
) -> None:  # fmt: skip
    """Add features(X) times coefficients to `out` (n, C), in parallel over row tiles.

    X (n, d) is dense or CSR; `phase` is empty unless the kind is PHASE.
    """
    rows = as_rows(X)

    def task(r0: int, r1: int) -> None:
        _predict(rows, r0, r1, W, phase, kind, coef, out)

    over_tiles(len(out), _row_tile(W.shape[1]), task)


def gradient(
    X: Matrix, W: Float32Array, phase: Float32Array, kind: int, R: Float32Array, G: Float32Array
) -> None:
    """Write features(X)^T R into `G` (planes, n_tiles, tile, C), in parallel over tiles.

    Shapes are as in :func:`predict`, with ``R`` (n, C) float32. Tiles may have any width.
    """
    rows, step, tile = as_rows(X), _row_tile(W.shape[1]), W.shape[2]

    def task(a: int) -> None:
        b = phase[a * tile : (a + 1) * tile]
        _gradient(rows, len(R), W[a], b, kind, R, G[:, a], step)

    parallel_for(W.shape[0], task)


def transform(
    X: Matrix, W: Float32Array, phase: Float32Array, kind: int, scale: float, out: Float32Array
) -> None:
    """Write scale * features(X) into `out` (n, planes * n_tiles * tile)."""
    rows, s = as_rows(X), np.float32(scale)

    def task(r0: int, r1: int) -> None:
        _transform(rows, r0, r1, W, phase, kind, s, out)

    over_tiles(len(out), _row_tile(W.shape[1]), task)
