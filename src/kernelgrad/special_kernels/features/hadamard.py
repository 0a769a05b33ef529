r"""Structured random projections ``H D3 H D2 H D1 x`` in fused tiles.

H is the Walsh-Hadamard matrix of order n, a power of two, and D1, D2, D3 are diagonal matrices
of signs. ``3 n log2 n`` additions replace the ``n^2`` products of a dense matrix, and ``4 n``
numbers, 3 n signs and n lengths, describe the n rows of a *stack*.

A tile holds LANES rows of X transposed, ``T`` (n, LANES), so a butterfly is a sum and a
difference of two vectors over rows. Each row keeps its lane up to the prediction and goes
through the same operations in the same order, whatever its lane and its neighbours are.
Features are computed in panels of at most PANEL projections and multiplied by coefficients
while they are in the cache, so the matrix of features is never stored. Sums run over panels and
over chunks of rows in order, so the bits of the result do not depend on the number of threads
or on the number of stacks per call.

All arrays are float32 and C-contiguous; projections are in turns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.elementary import cos_phase_turns, cos_sin_turns
from kernelgrad.compute.rows import Csr, Dense, as_rows, by_type
from kernelgrad.compute.threads import over_tiles, sum_over_tiles
from kernelgrad.features.fused import PAIR
from kernelgrad.types import Float32Array, Matrix

# Two vectors of 16 floats per line. With wider lines the 16 streams of a radix-16 pass fall
# into the same sets of the L1 cache; narrower ones repeat loads of signs and coefficients.
LANES = 32
PANEL = 128
MIN_ORDER = 128
ROWS = 256  # rows of a task
_GROUP = 64  # tasks whose partial gradients exist at once

_FAST = {"contract", "nsz", "arcp"}
_WIDE = 16 * LANES
_ONES = (np.float32(1),) * 16


@njit(nogil=True, cache=True, inline="always")
def _four(a: Any, b: Any, c: Any, d: Any) -> Any:
    p, q, r, s = a + b, a - b, c + d, c - d
    return p + r, q + s, p - r, q - s


@njit(nogil=True, cache=True, inline="always")
def _sixteen(t: Any, k: int, m: int, s: Any) -> None:
    """Apply signs s and four levels with strides m, 2 m, 4 m and 8 m; m is a constant."""
    a, b, c, d = _four(s[0] * t[k], s[1] * t[k + m], s[2] * t[k + 2 * m], s[3] * t[k + 3 * m])
    i = k + 4 * m
    e, f, g, h = _four(s[4] * t[i], s[5] * t[i + m], s[6] * t[i + 2 * m], s[7] * t[i + 3 * m])
    i = k + 8 * m
    o, p, q, r = _four(s[8] * t[i], s[9] * t[i + m], s[10] * t[i + 2 * m], s[11] * t[i + 3 * m])
    i = k + 12 * m
    u, v, w, x = _four(
        s[12] * t[i], s[13] * t[i + m], s[14] * t[i + 2 * m], s[15] * t[i + 3 * m]
    )
    t[k], t[k + 4 * m], t[k + 8 * m], t[k + 12 * m] = _four(a, e, o, u)
    i = k + m
    t[i], t[i + 4 * m], t[i + 8 * m], t[i + 12 * m] = _four(b, f, p, v)
    i = k + 2 * m
    t[i], t[i + 4 * m], t[i + 8 * m], t[i + 12 * m] = _four(c, g, q, w)
    i = k + 3 * m
    t[i], t[i + 4 * m], t[i + 8 * m], t[i + 12 * m] = _four(d, h, r, x)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _levels_1_to_8(T: Any, sign: Any) -> None:
    for g in range(sign.size // 16):
        t = T[g * _WIDE : (g + 1) * _WIDE]
        v = sign[16 * g : 16 * (g + 1)]
        s = (
            v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7],
            v[8], v[9], v[10], v[11], v[12], v[13], v[14], v[15],
        )  # fmt: skip
        for k in range(LANES):
            _sixteen(t, k, LANES, s)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _levels_16_to_128(T: Any) -> None:
    for g in range(T.size // (16 * _WIDE)):
        t = T[16 * g * _WIDE : 16 * (g + 1) * _WIDE]
        for k in range(_WIDE):
            _sixteen(t, k, _WIDE, _ONES)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _levels_16_to_64(T: Any) -> None:
    m = _WIDE
    for g in range(T.size // (8 * m)):
        t = T[8 * g * m : 8 * (g + 1) * m]
        for k in range(m):
            a, b, c, d = _four(t[k], t[k + m], t[k + 2 * m], t[k + 3 * m])
            i = k + 4 * m
            e, f, g_, h = _four(t[i], t[i + m], t[i + 2 * m], t[i + 3 * m])
            t[k], t[i] = a + e, a - e
            t[k + m], t[i + m] = b + f, b - f
            t[k + 2 * m], t[i + 2 * m] = c + g_, c - g_
            t[k + 3 * m], t[i + 3 * m] = d + h, d - h


@njit(nogil=True, cache=True, fastmath=_FAST)
def _two_levels(T: Any, m: int) -> None:
    for i in range(0, T.size, 4 * m):
        a, b = T[i : i + m], T[i + m : i + 2 * m]
        c, d = T[i + 2 * m : i + 3 * m], T[i + 3 * m : i + 4 * m]
        for k in range(m):
            a[k], b[k], c[k], d[k] = _four(a[k], b[k], c[k], d[k])


@njit(nogil=True, cache=True, fastmath=_FAST)
def _one_level(T: Any, m: int) -> None:
    for i in range(0, T.size, 2 * m):
        a, b = T[i : i + m], T[i + m : i + 2 * m]
        for k in range(m):
            a[k], b[k] = a[k] + b[k], a[k] - b[k]


@njit(nogil=True, cache=True)
def transform_lanes(T: Any, sign: Any) -> None:
    """Set T (n, LANES) to H diag(sign) T; n >= MIN_ORDER is a power of two."""
    t = T.reshape(T.size)
    _levels_1_to_8(t, sign)
    if sign.size == MIN_ORDER:
        _levels_16_to_64(t)
        return
    _levels_16_to_128(t)
    m = 16 * _WIDE
    while 4 * m <= t.size:
        _two_levels(t, m)
        m *= 4
    if m < t.size:
        _one_level(t, m)


def _load_dense(rows: Any, r0: int, r1: int, X: Any) -> None:
    """Set X (n, LANES) to rows r0..r1 transposed, padded with zeros."""
    dense = rows.values
    X[:] = 0
    whole = (r1 - r0) // 8 * 8
    for i in range(0, whole, 8):  # eight rows at a time: half a cache line of the tile
        eight = dense[r0 + i : r0 + i + 8]
        for k in range(dense.shape[1]):
            for j in range(8):
                X[k, i + j] = eight[j, k]
    for i in range(whole, r1 - r0):
        for k in range(dense.shape[1]):
            X[k, i] = dense[r0 + i, k]


def _load_csr(rows: Any, r0: int, r1: int, X: Any) -> None:
    X[:] = 0
    for i in range(r1 - r0):
        for p in range(rows.indptr[r0 + i], rows.indptr[r0 + i + 1]):
            X[rows.indices[p], i] += rows.data[p]


_load = by_type({Dense: _load_dense, Csr: _load_csr})


@njit(nogil=True, cache=True)
def _rotate(X: Any, stack: Any, T: Any) -> None:
    """Set T to H D3 H D2 H D1 X, with D1, D2, D3 in stack[0..2]."""
    x, t = X.reshape(X.size), T.reshape(T.size)
    for k in range(t.size):
        t[k] = x[k]
    for level in range(3):
        transform_lanes(T, stack[level])


@njit(nogil=True, cache=True, fastmath=_FAST)
def _stretch(T: Any, length: Any) -> None:
    for i in range(T.shape[0]):
        row, v = T[i], length[i]
        for k in range(row.size):
            row[k] *= v


@njit(nogil=True, cache=True)
def _features(T: Any, S: Any, length: Any, phase: Any, kind: int) -> None:
    """Replace a panel T (m, LANES) of projections by cosines, and write sines to S."""
    _stretch(T, length)
    if kind == PAIR:
        cos_sin_turns(T.reshape(T.size), S.reshape(S.size))
    else:
        for i in range(T.shape[0]):
            row = T[i]
            for k in range(row.size):
                row[k] += phase[i]
        cos_phase_turns(T, np.zeros(T.shape[1], np.float32))


# Consumers of a panel: they take its cosines t and sines s, (features, LANES), for rows a..b;
# f0 is the number of the first feature.


class Stacks(NamedTuple):
    """Stacks of projections, and the range of features in use."""

    # signs of the three diagonals, and the length of each projection, (n_stacks, 4, n)
    stacks: Float32Array
    phase: Float32Array  # (n_features,), empty unless the kind is PHASE
    kind: int
    offset: int  # feature f is number `offset + f` of the stacks
    n_features: int


class _Prediction(NamedTuple):
    coef: Float32Array  # (planes, capacity, C); feature 0 is in row `first`
    first: int
    product: Float32Array  # scratch
    out: Float32Array


class _Gradient(NamedTuple):
    first: int  # row of R
    R: Float32Array  # padded with zero rows to a multiple of LANES
    product: Float32Array  # scratch
    G: Float32Array


class _Features(NamedTuple):
    scale: Any
    out: Float32Array


def _predict(sink: Any, t: Any, s: Any, a: int, b: int, f0: int) -> None:
    """Consume one panel."""
    product, out, first = sink.product, sink.out, sink.first + f0
    for p in range(sink.coef.shape[0]):
        np.dot((t if p == 0 else s).T, sink.coef[p, first : first + t.shape[0]], product)
        for r in range(b - a):
            for c in range(out.shape[1]):
                out[a + r, c] += product[r, c]


def _add_gradient(sink: Any, t: Any, s: Any, a: int, b: int, f0: int) -> None:
    G, m = sink.G, t.shape[0]
    u, right = sink.product[:m], sink.R[a - sink.first : a - sink.first + LANES]
    for p in range(G.shape[0]):
        np.dot(t if p == 0 else s, right, u)
        for f in range(m):
            for c in range(G.shape[2]):
                G[p, f0 + f, c] += u[f, c]


def _write(sink: Any, t: Any, s: Any, a: int, b: int, f0: int) -> None:
    for r in range(b - a):
        for p in range(sink.out.shape[1]):
            o = sink.out[a + r, p, f0 : f0 + t.shape[0]]
            column = (t if p == 0 else s)[:, r]
            for f in range(o.size):
                o[f] = sink.scale * column[f]


_take = by_type({_Prediction: _predict, _Gradient: _add_gradient, _Features: _write})


@njit(nogil=True, cache=True)
def _by_panels(rows: Any, r0: int, r1: int, of: Any, sink: Any) -> None:
    """Pass the features of rows r0..r1 to a sink, one panel at a time."""
    n = of.stacks.shape[2]
    X = np.empty((n, LANES), np.float32)
    T = np.empty((n, LANES), np.float32)
    S = np.empty((PANEL, LANES), np.float32)
    for a in range(r0, r1, LANES):
        b = min(r1, a + LANES)
        _load(rows, a, b, X)
        for q in range(-(-(of.offset + of.n_features) // n)):
            _rotate(X, of.stacks[q], T)
            stop = min(n, of.offset + of.n_features - q * n)
            for i in range(max(0, of.offset - q * n), stop, PANEL):
                j = min(stop, i + PANEL)
                f0, f1 = q * n + i - of.offset, q * n + j - of.offset
                t, s = T[i:j], S[: j - i]
                _features(t, s, of.stacks[q, 3, i:j], of.phase[f0:f1], of.kind)
                _take(sink, t, s, a, b, f0)


def predict(X: Matrix, of: Stacks, coef: Float32Array, first: int, out: Float32Array) -> None:
    """Add features(X) times coef[:, first : first + n_features] to `out` (N, C), in parallel.

    X (N, d), d <= n, is dense or CSR.
    """
    rows = as_rows(X)

    def task(r0: int, r1: int) -> None:
        product = np.empty((LANES, out.shape[1]), np.float32)
        _by_panels(rows, r0, r1, of, _Prediction(coef, first, product, out))

    over_tiles(len(out), ROWS, task)


def gradient(X: Matrix, of: Stacks, R: Float32Array, G: Float32Array) -> None:
    """Write features(X)^T R into `G` (planes, n_features, C), in parallel over chunks of rows.

    The sums of the chunks are added in order.
    """
    (N, C), rows = R.shape, as_rows(X)

    def task(r0: int, r1: int, out: Float32Array) -> None:
        right = np.zeros((-(-(r1 - r0) // LANES) * LANES, C), np.float32)
        right[: r1 - r0] = R[r0:r1]
        out[:] = 0
        product = np.empty((PANEL, C), np.float32)
        _by_panels(rows, r0, r1, of, _Gradient(r0, right, product, out))

    sum_over_tiles(N, ROWS, _GROUP, task, G)


def transform(X: Matrix, of: Stacks, scale: float, out: Float32Array) -> None:
    rows, sink = as_rows(X), _Features(np.float32(scale), out)
    over_tiles(len(out), ROWS, lambda r0, r1: _by_panels(rows, r0, r1, of, sink))
