r"""Random numbers and compiled loops of additive, polynomial and dot-product features.

Random numbers are pure functions of (seed, feature or block, coordinate), by the counters of
`kernelgrad.compute.rng` with a tag for each purpose. Rows are float32, dense or CSR.

For additive features a row ``x >= 0`` is given as ``[sqrt(x), ln(x)]``, 2 d columns (a CSR row
has the same entries in both halves, in the same order). Frequencies W are in turns. If a
feature sums over coordinates, each term has a Rademacher sign, which is the sign of its
frequency; it is independent of the magnitude because the laws are symmetric. Feature k is

- COORDINATES: ``sqrt(x_j) [cos, sin](2 pi W[0, k] ln x_j)`` with ``j = where[k] mod d``, W of
  shape (1, n). ``where`` counts up without gaps for ``run[k]`` features, so that in a
  stretched copy of the row, with repeated columns, a run has consecutive addresses;
- SIGNS: ``sum_j s_jk sqrt(x_j) [cos, sin](2 pi |W[j, k]| ln x_j)``, W of shape (d, n);
- HASHED, in block b: the sum of ``s_j sqrt(x_j) [cos, sin](2 pi |W[b, j]| ln x_j)`` over the
  coordinates j with ``where[b, j] = k``; W and where are of shape (n_blocks, d).

Sums run over tiles in order, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernelgrad.compute import rng
from kernelgrad.compute.compiling import njit
from kernelgrad.compute.elementary import cos_sin_turns
from kernelgrad.compute.rng import philox, split_seed
from kernelgrad.compute.rows import Csr, Dense, as_rows, by_type, column, entries, entry
from kernelgrad.compute.threads import over_tiles, parallel_for, sum_over_tiles
from kernelgrad.features.fused import ROWS, TILE, add_product
from kernelgrad.types import AnyArray, Float32Array, IntArray, Matrix

TAG_DEGREE, TAG_SIGN, TAG_BUCKET, TAG_ADDITIVE = 3, 4, 5, 6
SECH, HALF_CAUCHY, JENSEN_SHANNON = range(3)
COORDINATES, SIGNS, HASHED = range(3)

_LEAST_ROWS = 16  # rows of a tile, at least
_STRETCHED = 2**18  # columns times rows of a stretched tile, at most
_PARTIAL = 16  # row tiles whose gradients are stored at once

_f = np.float32
_PER_TURN = _f(1 / (2 * np.pi))
_LANES = 256  # counters per call when lanes are coordinates
_FAST = {"contract", "nsz", "arcp"}


# Draws


@njit(nogil=True, cache=True, fastmath=_FAST)
def _times(x: Any, w: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] = x * w[k]


@njit(nogil=True, cache=True)
def _jensen_shannon(
    i0: int, group: int, k0: int, k1: int, words: Any, z: Any, scratch: Any
) -> None:
    """Four rows of variates with density sech(pi w) / (ln 2 (1 + 4 w^2)), by rejection."""
    proposal = np.empty_like(z)
    waiting = np.ones(z.shape, np.bool_)
    left = z.size
    attempt = 0
    while left:
        philox(i0, group, TAG_ADDITIVE + (attempt << 9), k0, k1, words)
        rng.variates(rng.SECH, words, proposal, scratch)
        philox(i0, group, TAG_ADDITIVE + (attempt << 9) + 256, k0, k1, words)
        for h in range(4):
            for k in range(z.shape[1]):
                w = np.float64(proposal[h, k])
                u = (np.float64(words[h, k]) + 0.5) * 2.0**-32
                if waiting[h, k] and u * (1.0 + 4.0 * w * w) < 1.0:
                    z[h, k] = proposal[h, k]
                    waiting[h, k] = False
                    left -= 1
        attempt += 1


@njit(nogil=True, cache=True)
def _variates(
    i0: int, group: int, k0: int, k1: int, law: int, words: Any, z: Any, scratch: Any
) -> None:
    """Write four rows of frequencies in turns, for the counters (i0 + lane, group)."""
    if law == JENSEN_SHANNON:
        _jensen_shannon(i0, group, k0, k1, words, z, scratch)
    else:
        philox(i0, group, TAG_ADDITIVE, k0, k1, words)
        if law == SECH:
            rng.variates(rng.SECH, words, z, scratch)
        else:
            rng.variates(rng.CAUCHY, words, z, scratch)
    scale = _PER_TURN / _f(2) if law == HALF_CAUCHY else _PER_TURN
    for h in range(4):
        _times(scale, z[h], z[h])


@njit(nogil=True, cache=True)
def _fill_features(W: Any, columns: Any, i0: int, k0: int, k1: int, law: int) -> None:
    """Set W[p, lane] to the frequency of (feature i0 + lane, coordinate columns[p])."""
    words = np.empty((4, W.shape[1]), np.uint32)
    z = np.empty((4, W.shape[1]), np.float32)
    scratch = np.empty((4, W.shape[1]), np.float32)
    group = -1
    for p in range(columns.size):
        if columns[p] >> 2 != group:
            group = columns[p] >> 2
            _variates(i0, group, k0, k1, law, words, z, scratch)
        W[p] = z[columns[p] & 3]


@njit(nogil=True, cache=True)
def _fill_block(W: Any, columns: Any, block: int, k0: int, k1: int, law: int) -> None:
    """Set W[p] to the frequency of (block, coordinate columns[p])."""
    words = np.empty((4, _LANES), np.uint32)
    z = np.empty((4, _LANES), np.float32)
    scratch = np.empty((4, _LANES), np.float32)
    chunk = -1
    for p in range(columns.size):
        j = columns[p]
        if j // (4 * _LANES) != chunk:
            chunk = j // (4 * _LANES)
            _variates(chunk * _LANES, block, k0, k1, law, words, z, scratch)
        W[p] = z[j & 3, (j >> 2) % _LANES]


def feature_frequencies(
    columns: IntArray, seed: int, first: int, n: int, law: int
) -> Float32Array:
    """Return frequencies (n_columns, n) of n features and some coordinates, in turns.

    The densities are sech(pi w); Cauchy with scale 1/2; and sech(pi w) / (ln 2 (1 + 4 w^2)), by
    rejection with separate tags for every attempt, so that draws do not depend on each other.
    `columns` are sorted. Tiles are computed in parallel.
    """
    W = np.empty((len(columns), n), np.float32)
    key = split_seed(seed)
    over_tiles(n, TILE, lambda a, z: _fill_features(W[:, a:z], columns, first + a, *key, law))
    return W


def block_frequencies(
    columns: IntArray, seed: int, first: int, n: int, F: int, law: int
) -> tuple[Float32Array, AnyArray]:
    """Return frequencies and buckets in [0, F), (n, n_columns), of n blocks, in parallel."""
    W = np.empty((n, len(columns)), np.float32)
    key = split_seed(seed)
    parallel_for(n, lambda a: _fill_block(W[a], columns, first + a, *key, law))
    return W, hashes(columns, seed, first, n, F)[0]


@njit(nogil=True, cache=True)
def _fill_hash(
    bucket: Any, sign: Any, columns: Any, sketch: int, F: int, k0: int, k1: int
) -> None:
    words = np.empty((4, _LANES), np.uint32)
    chunk = -1
    for p in range(columns.size):
        j = columns[p]
        if j // (4 * _LANES) != chunk:
            chunk = j // (4 * _LANES)
            philox(chunk * _LANES, sketch, TAG_BUCKET, k0, k1, words)
        w = words[j & 3, (j >> 2) % _LANES]
        bucket[p] = np.int32((np.uint64(w >> np.uint32(1)) * np.uint64(F)) >> np.uint64(31))
        sign[p] = _f(1) - _f(2) * _f(np.int32(w & np.uint32(1)))


def hashes(
    columns: IntArray, seed: int, first: int, n: int, F: int
) -> tuple[AnyArray, Float32Array]:
    """Return buckets in [0, F) and signs, (n, n_columns), of n sketches from `first` on.

    One word gives both: the last bit is the sign, and the other 31 bits, times ``F / 2^31`` and
    rounded down, are the bucket. The probability of a bucket differs from ``1 / F`` by less
    than 2^-31 (by 0 for a power of two). Estimates of inner products are unbiased for any law
    of the buckets, because the signs cancel collisions in expectation.
    """
    bucket = np.empty((n, len(columns)), np.int32)
    sign = np.empty((n, len(columns)), np.float32)
    key = split_seed(seed)
    parallel_for(n, lambda a: _fill_hash(bucket[a], sign[a], columns, first + a, F, *key))
    return bucket, sign


@njit(nogil=True, cache=True)
def _fill_rademacher(
    W: Any, columns: Any, features: Any, i0: int, n: int, level: int, k0: int, k1: int
) -> None:
    words = np.empty((4, n), np.uint32)
    mine = np.empty((4, features.size), np.uint32)
    group = -1
    for p in range(columns.size):
        j = columns[p]
        if j >> 7 != group:
            group = j >> 7
            philox(i0, group, TAG_SIGN + (level << 8), k0, k1, words)
            for h in range(4):
                for q in range(features.size):
                    mine[h, q] = words[h, features[q]]
        shift = np.uint32(j & 31)
        row = mine[(j >> 5) & 3]
        out = W[p]
        for q in range(out.size):
            out[q] = _f(1) - _f(2) * _f(np.int32((row[q] >> shift) & np.uint32(1)))


def rademacher(
    columns: IntArray, features: IntArray, seed: int, first: int, n: int, level: int
) -> Float32Array:
    """Return the signs of level `level` (n_columns, n_features), for features from `first` on.

    `features` holds numbers in [0, n). One call of Philox covers 128 coordinates of a feature.
    """
    W = np.empty((len(columns), len(features)), np.float32)
    _fill_rademacher(W, columns, features, first, n, level, *split_seed(seed))
    return W


# Additive features


@njit(nogil=True, cache=True, fastmath=_FAST)
def _product(x: Any, w: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] = x[k] * w[k]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _scale(x: Any, c: Any, s: Any) -> None:
    for k in range(c.size):
        c[k] *= x[k]
        s[k] *= x[k]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _add_signed(root: Any, w: Any, cos: Any, sin: Any, c: Any, s: Any) -> None:
    """Add one coordinate; the sine has the sign of the frequency, the cosine is given it."""
    for k in range(c.size):
        c[k] += np.copysign(root, w[k]) * cos[k]
        s[k] += root * sin[k]


def _dense_nonzeros(rows: Any, r: int, at: Any, root: Any, log: Any) -> int:
    """Write columns, roots and logarithms of the non-zeros of row r; return their number."""
    x = rows.values[r]
    d = x.size // 2
    m = 0
    for j in range(d):
        if x[j] != 0:
            at[m], root[m], log[m] = j, x[j], x[d + j]
            m += 1
    return m


def _csr_nonzeros(rows: Any, r: int, at: Any, root: Any, log: Any) -> int:
    p = rows.indptr[r]
    m: int = (rows.indptr[r + 1] - p) // 2
    at[:m] = rows.indices[p : p + m]
    root[:m] = rows.data[p : p + m]
    log[:m] = rows.data[p + m : p + 2 * m]
    return m


def _dense_halves(rows: Any, r: int, d: int, e: Any) -> None:
    """Write roots and logarithms of row r, d each, to the starts of both halves of e."""
    L = e.size // 2
    e[:d] = rows.values[r, :d]
    e[L : L + d] = rows.values[r, d:]


def _csr_halves(rows: Any, r: int, d: int, e: Any) -> None:
    L = e.size // 2
    p = rows.indptr[r]
    m = (rows.indptr[r + 1] - p) // 2
    e[:] = 0
    for q in range(p, p + m):
        e[rows.indices[q]] = rows.data[q]
        e[L + rows.indices[q]] = rows.data[q + m]


_nonzeros = by_type({Dense: _dense_nonzeros, Csr: _csr_nonzeros})
_halves = by_type({Dense: _dense_halves, Csr: _csr_halves})


@njit(nogil=True, cache=True)
def _stretched(rows: Any, r0: int, r1: int, n: int, d: int, kind: int) -> Any:
    """Return rows with the d columns of both halves repeated; none unless COORDINATES."""
    L = d + TILE
    E = np.zeros((n if kind == COORDINATES else 0, 2 * L), np.float32)
    for i in range(min(r1 - r0, E.shape[0])):
        e = E[i]
        _halves(rows, r0 + i, d, e)
        have = d
        while have < L:
            m = min(have, L - have)
            e[have : have + m] = e[:m]
            e[L + have : L + have + m] = e[L : L + m]
            have += m
    return E


@njit(nogil=True, cache=True)
def _coordinates(
    E: Any, where: Any, run: Any, W: Any, j0: int, j1: int, T: Any, S: Any
) -> None:
    """Set T, S (rows, j1 - j0) to cosines and sines of features j0..j1 of stretched rows."""
    L = E.shape[1] // 2
    w = W[0]
    for i in range(T.shape[0]):
        k = j0
        while k < j1:
            m = run[k]
            q = L + where[k]
            _product(E[i, q : q + m], w[k : k + m], T[i, k - j0 : k - j0 + m])
            k += m
    cos_sin_turns(T.reshape(T.size), S.reshape(S.size))
    for i in range(T.shape[0]):
        k = j0
        while k < j1:
            m = run[k]
            q = where[k]
            a, b = k - j0, k - j0 + m
            _scale(E[i, q : q + m], T[i, a:b], S[i, a:b])
            k += m


@njit(nogil=True, cache=True)
def _signs(rows: Any, r0: int, r1: int, W: Any, j0: int, j1: int, T: Any, S: Any) -> None:
    """Set T, S (rows, j1 - j0) to signed sums over the non-zeros of rows r0..r1."""
    at = np.empty(W.shape[0], np.int64)
    root = np.empty(W.shape[0], np.float32)
    log = np.empty(W.shape[0], np.float32)
    cos = np.empty(j1 - j0, np.float32)
    sin = np.empty(j1 - j0, np.float32)
    T[:] = 0
    S[:] = 0
    for i in range(r1 - r0):
        m = _nonzeros(rows, r0 + i, at, root, log)
        for q in range(m):
            w = W[at[q], j0:j1]
            _times(log[q], w, cos)
            cos_sin_turns(cos, sin)
            _add_signed(root[q], w, cos, sin, T[i], S[i])


@njit(nogil=True, cache=True, fastmath=_FAST)
def _pick(w: Any, at: Any, log: Any, out: Any) -> None:
    for q in range(out.size):
        out[q] = w[at[q]] * log[q]


@njit(nogil=True, cache=True)
def _hashed(rows: Any, r0: int, r1: int, w: Any, bucket: Any, T: Any, S: Any) -> None:
    """Set T, S (rows, F) to signed sums of a block over the non-zeros in each bucket."""
    at = np.empty(w.size, np.int64)
    root = np.empty(w.size, np.float32)
    log = np.empty(w.size, np.float32)
    cos = np.empty(w.size, np.float32)
    sin = np.empty(w.size, np.float32)
    T[:] = 0
    S[:] = 0
    for i in range(r1 - r0):
        m = _nonzeros(rows, r0 + i, at, root, log)
        _pick(w, at[:m], log[:m], cos[:m])
        cos_sin_turns(cos[:m], sin[:m])
        c, s = T[i], S[i]
        for q in range(m):
            k = bucket[at[q]]
            c[k] += np.copysign(root[q], w[at[q]]) * cos[q]
            s[k] += root[q] * sin[q]


@njit(nogil=True, cache=True)
def _planes(
    rows: Any, r0: int, r1: int, E: Any, draws: Any, j0: int, j1: int, t: Any, s: Any
) -> Any:
    """Return features j0..j1 of rows r0..r1 as two arrays in the memory of t and s."""
    kind, _, W, where, run = draws
    n = t.shape[0]
    T = t.reshape(t.size)[: n * (j1 - j0)].reshape(n, j1 - j0)
    S = s.reshape(s.size)[: n * (j1 - j0)].reshape(n, j1 - j0)
    if kind == COORDINATES:
        _coordinates(E, where[0], run, W, j0, j1, T, S)
    elif kind == SIGNS:
        _signs(rows, r0, r1, W, j0, j1, T, S)
    else:
        b = j0 // (j1 - j0)
        _hashed(rows, r0, r1, W[b], where[b], T, S)
    return T, S


@njit(nogil=True, cache=True)
def _predict(rows: Any, r0: int, r1: int, d: int, draws: Any, coef: Any, out: Any) -> None:
    n, width = r1 - r0, draws.width
    E = _stretched(rows, r0, r1, n, d, draws.kind)
    t, s = np.empty((n, width), np.float32), np.empty((n, width), np.float32)
    tmp = np.empty((n, out.shape[1]), np.float32)
    for j0 in range(0, coef.shape[1], width):
        j1 = min(j0 + width, coef.shape[1])
        T, S = _planes(rows, r0, r1, E, draws, j0, j1, t, s)
        add_product(T, coef[0, j0:j1], tmp, out[r0:r1])
        add_product(S, coef[1, j0:j1], tmp, out[r0:r1])


@njit(nogil=True, cache=True)
def _gradient(rows: Any, r0: int, r1: int, d: int, draws: Any, R: Any, G: Any) -> None:
    """Set G (2, F, C) to the transposed features of rows r0..r1 times R (rows, C)."""
    n, F, width = r1 - r0, G.shape[1], draws.width
    E = _stretched(rows, r0, r1, n, d, draws.kind)
    t, s = np.empty((n, width), np.float32), np.empty((n, width), np.float32)
    for j0 in range(0, F, width):
        j1 = min(j0 + width, F)
        T, S = _planes(rows, r0, r1, E, draws, j0, j1, t, s)
        np.dot(T.T, R, G[0, j0:j1])
        np.dot(S.T, R, G[1, j0:j1])


@njit(nogil=True, cache=True)
def _transform(rows: Any, r0: int, r1: int, d: int, draws: Any, gain: Any, out: Any) -> None:
    n, F, width = r1 - r0, gain.size, draws.width
    E = _stretched(rows, r0, r1, n, d, draws.kind)
    t, s = np.empty((n, width), np.float32), np.empty((n, width), np.float32)
    for j0 in range(0, F, width):
        j1 = min(j0 + width, F)
        T, S = _planes(rows, r0, r1, E, draws, j0, j1, t, s)
        for i in range(n):
            _product(T[i], gain[j0:j1], out[r0 + i, j0:j1])
            _product(S[i], gain[j0:j1], out[r0 + i, F + j0 : F + j1])


def _rows(d: int, kind: int) -> int:
    """Return the rows of a tile, fewer for long stretched rows, to bound the memory."""
    rows = ROWS
    while kind == COORDINATES and rows > _LEAST_ROWS and rows * d > _STRETCHED:
        rows //= 2
    return rows


class AdditiveDraws(NamedTuple):
    """The random numbers of n features, as described at the top of the module."""

    kind: int
    width: int  # features of a tile: TILE, or those of a block with HASHED
    W: Float32Array
    where: AnyArray  # (0, 0) with SIGNS
    run: AnyArray  # ends at multiples of TILE; (0,) unless COORDINATES


def additive_predict(
    X: Matrix, d: int, draws: AdditiveDraws, coef: Float32Array, out: Float32Array
) -> None:
    """Add features(X) times `coef` (2, m, C) to `out` (n, C), in parallel over row tiles.

    X (n, 2 d), dense or CSR, holds roots and logarithms; the coefficients of cosines and sines
    cover whole blocks.
    """
    rows, step = as_rows(X), _rows(d, draws.kind)
    over_tiles(len(out), step, lambda a, z: _predict(rows, a, z, d, draws, coef, out))


def additive_gradient(
    X: Matrix, d: int, draws: AdditiveDraws, R: Float32Array, G: Float32Array
) -> None:
    """Write features(X)^T R into `G` (2, n_features, C), in parallel over row tiles.

    Partial sums of a fixed number of row tiles are added in order.
    """
    rows = as_rows(X)

    def task(r0: int, r1: int, out: Float32Array) -> None:
        _gradient(rows, r0, r1, d, draws, R[r0:r1], out)

    sum_over_tiles(len(R), _rows(d, draws.kind), _PARTIAL, task, G)


def additive_transform(
    X: Matrix, d: int, draws: AdditiveDraws, gain: Float32Array, out: Float32Array
) -> None:
    """Write features times gain (n_features,) into `out` (n, 2 n_features), by planes."""
    rows, step = as_rows(X), _rows(d, draws.kind)
    over_tiles(len(out), step, lambda a, z: _transform(rows, a, z, d, draws, gain, out))


# Count sketches


@njit(nogil=True, cache=True)
def count_sketch(
    rows: Any, r0: int, r1: int, bucket: Any, sign: Any, constant: Any, out: Any
) -> None:
    """Write count sketches of rows r0..r1, with `constant` as last coordinate of each row.

    Hashes are (n_sketches, d + 1); `out` is (rows, n_sketches, n_buckets).
    """
    out[:] = 0
    last = bucket.shape[1] - 1
    for i in range(r1 - r0):
        for s in range(bucket.shape[0]):
            b, g, o = bucket[s], sign[s], out[i, s]
            for q in entries(rows, r0 + i):
                j = column(rows, q)
                o[b[j]] += g[j] * entry(rows, r0 + i, q)
            o[b[last]] += g[last] * constant
