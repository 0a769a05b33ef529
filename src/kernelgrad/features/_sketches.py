r"""Draws and hot loops of additive, polynomial and dot-product features.

Everything is a pure function of (seed, feature or block, coordinate): the counters of
`kernelgrad.compute.rng`, with a tag for each purpose. Rows are float32, dense or CSR; the
jitted functions take both as ``(X, indptr, indices, data)``, one of them empty.

Additive features: a row ``x >= 0`` arrives as ``[sqrt(x), ln(x)]``, 2 d columns (a CSR row has
the same number of entries in both halves, in the same order). Frequencies W are in turns. Where
a feature sums over coordinates, each term has a Rademacher sign: the sign of its frequency,
which is independent of its size because the laws are symmetric. Feature k is

- COORDINATES: ``sqrt(x_j) [cos, sin](2 pi W[0, k] ln x_j)`` with ``j = where[k] mod d``, W of
  shape (1, n). ``where`` counts up without a gap for ``run[k]`` features: in a stretched copy
  of the row, its columns repeated, whole runs lie at consecutive addresses;
- SIGNS: ``sum_j s_jk sqrt(x_j) [cos, sin](2 pi |W[j, k]| ln x_j)``, W of shape (d, n);
- HASHED, in block b: the sum of ``s_j sqrt(x_j) [cos, sin](2 pi |W[b, j]| ln x_j)`` over the
  coordinates j with ``where[b, j] = k``; W and where are of shape (n_blocks, d).

Sums run over tiles in order; the number of threads does not change a bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from kernelgrad._typing import AnyArray, Float32Array, IntArray, Matrix
from kernelgrad.compute.rng import _cauchys, _philox, _sechs, split_seed
from kernelgrad.compute.threads import parallel_for
from kernelgrad.features._fused import ROWS, TILE, _tile_times_coef, cos_sin_turns

TAG_DEGREE, TAG_SIGN, TAG_BUCKET, TAG_ADDITIVE = 3, 4, 5, 6
SECH, HALF_CAUCHY, JENSEN_SHANNON = range(3)
COORDINATES, SIGNS, HASHED = range(3)

PAD = 16  # rows of a product, see `kernelgrad.features._fused`
_STRETCHED = 2**18  # columns times rows of a stretched tile
_PARTIAL = 16  # row tiles whose gradients are held at once

_f = np.float32
_PER_TURN = _f(1 / (2 * np.pi))
_LANES = 256  # counters of one call where lanes are coordinates
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
    """Four rows of variates of density sech(pi w) / (ln 2 (1 + 4 w^2)), by rejection."""
    proposal = np.empty_like(z)
    waiting = np.ones(z.shape, np.bool_)
    left = z.size
    attempt = 0
    while left:
        _philox(i0, group, TAG_ADDITIVE + (attempt << 9), k0, k1, words)
        _sechs(words, proposal, scratch)
        _philox(i0, group, TAG_ADDITIVE + (attempt << 9) + 256, k0, k1, words)
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
    """Four rows of frequencies in turns, of counters (i0 + lane, group)."""
    if law == JENSEN_SHANNON:
        _jensen_shannon(i0, group, k0, k1, words, z, scratch)
    else:
        _philox(i0, group, TAG_ADDITIVE, k0, k1, words)
        if law == SECH:
            _sechs(words, z, scratch)
        else:
            _cauchys(words, z, scratch)
    scale = _PER_TURN / _f(2) if law == HALF_CAUCHY else _PER_TURN
    for h in range(4):
        _times(scale, z[h], z[h])


@njit(nogil=True, cache=True)
def _fill_features(W: Any, columns: Any, i0: int, k0: int, k1: int, law: int) -> None:
    """W[p, lane] = frequency of (feature i0 + lane, coordinate columns[p])."""
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
def _fill_block(
    W: Any, bucket: Any, columns: Any, block: int, F: int, k0: int, k1: int, law: int
) -> None:
    """W[p], bucket[p] = frequency and bucket of (block, coordinate columns[p])."""
    words = np.empty((4, _LANES), np.uint32)
    z = np.empty((4, _LANES), np.float32)
    scratch = np.empty((4, _LANES), np.float32)
    chunk = -1
    for p in range(columns.size):
        j = columns[p]
        if j // (4 * _LANES) != chunk:
            chunk = j // (4 * _LANES)
            _variates(chunk * _LANES, block, k0, k1, law, words, z, scratch)
            _philox(chunk * _LANES, block, TAG_BUCKET, k0, k1, words)
        lane = (j >> 2) % _LANES
        W[p] = z[j & 3, lane]
        bucket[p] = _bucket(words[j & 3, lane], F)


def feature_frequencies(
    columns: IntArray, seed: int, first: int, n: int, law: int
) -> Float32Array:
    """Return frequencies (n_columns, n) of n features and some coordinates, in turns; parallel.

    Densities: sech(pi w); Cauchy of scale 1/2; sech(pi w) / (ln 2 (1 + 4 w^2)), by rejection,
    where every attempt has tags of its own: no draw depends on what else is drawn.

    Parameters
    ----------
    columns : int64 array (n_columns,), sorted
    seed : int in [0, 2^64)
    first, n : int
        Number of the first feature, and of features.
    law : {SECH, HALF_CAUCHY, JENSEN_SHANNON}
    """
    W = np.empty((len(columns), n), np.float32)
    key = split_seed(seed)

    def task(a: int) -> None:
        _fill_features(W[:, a * TILE : (a + 1) * TILE], columns, first + a * TILE, *key, law)

    parallel_for(-(-n // TILE), task)
    return W


def block_frequencies(
    columns: IntArray, seed: int, first: int, n: int, F: int, law: int
) -> tuple[Float32Array, AnyArray]:
    """Return frequencies and buckets in [0, F), (n, n_columns), of n blocks; parallel.

    Other parameters as in :func:`feature_frequencies`; buckets as in :func:`hashes`.
    """
    W = np.empty((n, len(columns)), np.float32)
    bucket = np.empty((n, len(columns)), np.int32)
    key = split_seed(seed)

    def task(a: int) -> None:
        _fill_block(W[a], bucket[a], columns, first + a, F, *key, law)

    parallel_for(n, task)
    return W, bucket


@njit(nogil=True, cache=True)
def _bucket(word: Any, F: int) -> Any:
    """Return floor(F u) for the upper 31 bits u of a word."""
    return np.int32(((np.uint64(word) >> np.uint64(1)) * np.uint64(F)) >> np.uint64(31))


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
            _philox(chunk * _LANES, sketch, TAG_BUCKET, k0, k1, words)
        w = words[j & 3, (j >> 2) % _LANES]
        bucket[p] = _bucket(w, F)
        sign[p] = _f(1) - _f(2) * _f(np.int32(w & np.uint32(1)))


def hashes(
    columns: IntArray, seed: int, first: int, n: int, F: int
) -> tuple[AnyArray, Float32Array]:
    """Return buckets in [0, F) and signs, (n, n_columns), of sketches first, ...; parallel.

    One word gives both: the last bit the sign, the other 31 bits, times ``F / 2^31`` and
    rounded down, the bucket. A bucket's probability is off ``1 / F`` by less than 2^-31 (not
    at all for a power of two). Estimates of inner products stay unbiased whatever the law of
    the buckets: the signs alone cancel what collides.
    """
    bucket = np.empty((n, len(columns)), np.int32)
    sign = np.empty((n, len(columns)), np.float32)
    key = split_seed(seed)

    def task(a: int) -> None:
        _fill_hash(bucket[a], sign[a], columns, first + a, F, *key)

    parallel_for(n, task)
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
            _philox(i0, group, TAG_SIGN + (level << 8), k0, k1, words)
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
    """Return signs of level `level` (n_columns, n_features), of n features from `first` on.

    `features` holds numbers in [0, n). One call of Philox gives 128 coordinates of a feature.
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
    """Add one coordinate: the sine has the frequency's sign, the cosine must get it."""
    for k in range(c.size):
        c[k] += np.copysign(root, w[k]) * cos[k]
        s[k] += root * sin[k]


@njit(nogil=True, cache=True)
def _nonzeros(
    X: Any, indptr: Any, indices: Any, data: Any, r: int, at: Any, root: Any, log: Any
) -> int:
    """Write column, root and logarithm of the non-zeros of row r; return how many."""
    if indptr.size:
        p = indptr[r]
        m = (indptr[r + 1] - p) // 2
        for q in range(m):
            at[q] = indices[p + q]
            root[q] = data[p + q]
            log[q] = data[p + m + q]
        return int(m)
    x = X[r]
    d = x.size // 2
    m = 0
    for j in range(d):
        if x[j] != 0:
            at[m] = j
            root[m] = x[j]
            log[m] = x[d + j]
            m += 1
    return int(m)


@njit(nogil=True, cache=True)
def _stretch(
    X: Any, indptr: Any, indices: Any, data: Any, r0: int, r1: int, d: int, E: Any
) -> None:
    """E[i] = the two halves of row r0 + i, each with its d columns repeated to half a row."""
    L = E.shape[1] // 2
    E[r1 - r0 :] = 0
    for i in range(r1 - r0):
        e = E[i]
        if indptr.size:
            e[:] = 0
            p = indptr[r0 + i]
            m = (indptr[r0 + i + 1] - p) // 2
            for q in range(p, p + m):
                e[indices[q]] = data[q]
                e[L + indices[q]] = data[q + m]
        else:
            e[:d] = X[r0 + i, :d]
            e[L : L + d] = X[r0 + i, d:]
        have = d
        while have < L:
            m = min(have, L - have)
            e[have : have + m] = e[:m]
            e[L + have : L + have + m] = e[L : L + m]
            have += m


@njit(nogil=True, cache=True)
def _coordinates(
    E: Any, where: Any, run: Any, W: Any, j0: int, j1: int, T: Any, S: Any
) -> None:
    """T, S (rows, j1 - j0): cosines and sines of features j0..j1 of stretched rows."""
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
def _signs(
    X: Any, indptr: Any, indices: Any, data: Any, r0: int, r1: int,
    W: Any, j0: int, j1: int, T: Any, S: Any,
) -> None:  # fmt: skip
    """T, S (rows, j1 - j0): signed sums over the non-zeros of rows r0..r1."""
    at = np.empty(W.shape[0], np.int64)
    root = np.empty(W.shape[0], np.float32)
    log = np.empty(W.shape[0], np.float32)
    cos = np.empty(j1 - j0, np.float32)
    sin = np.empty(j1 - j0, np.float32)
    T[:] = 0
    S[:] = 0
    for i in range(r1 - r0):
        m = _nonzeros(X, indptr, indices, data, r0 + i, at, root, log)
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
def _hashed(
    X: Any, indptr: Any, indices: Any, data: Any, r0: int, r1: int,
    w: Any, bucket: Any, T: Any, S: Any,
) -> None:  # fmt: skip
    """T, S (rows, F): signed sums of one block over the non-zeros that share a bucket."""
    at = np.empty(w.size, np.int64)
    root = np.empty(w.size, np.float32)
    log = np.empty(w.size, np.float32)
    cos = np.empty(w.size, np.float32)
    sin = np.empty(w.size, np.float32)
    T[:] = 0
    S[:] = 0
    for i in range(r1 - r0):
        m = _nonzeros(X, indptr, indices, data, r0 + i, at, root, log)
        _pick(w, at[:m], log[:m], cos[:m])
        cos_sin_turns(cos[:m], sin[:m])
        c, s = T[i], S[i]
        for q in range(m):
            k = bucket[at[q]]
            c[k] += np.copysign(root[q], w[at[q]]) * cos[q]
            s[k] += root[q] * sin[q]


@njit(nogil=True, cache=True)
def _tile(
    X: Any, indptr: Any, indices: Any, data: Any, r0: int, r1: int,
    E: Any, kind: int, W: Any, where: Any, run: Any, j0: int, j1: int, T: Any, S: Any,
) -> None:  # fmt: skip
    """Features j0..j1 of rows r0..r1; rows of T and S beyond are zero."""
    if kind == COORDINATES:
        _coordinates(E, where[0], run, W, j0, j1, T, S)
    elif kind == SIGNS:
        _signs(X, indptr, indices, data, r0, r1, W, j0, j1, T, S)
    else:
        b = j0 // (j1 - j0)
        _hashed(X, indptr, indices, data, r0, r1, W[b], where[b], T, S)


@njit(nogil=True, cache=True)
def _stretched(
    X: Any, indptr: Any, indices: Any, data: Any, r0: int, r1: int,
    rows: int, d: int, kind: int,
) -> Any:  # fmt: skip
    """Return the array E of :func:`_stretch`: empty where it is not used."""
    E = np.empty((rows if kind == COORDINATES else 0, 2 * (d + TILE)), np.float32)
    if kind == COORDINATES:
        _stretch(X, indptr, indices, data, r0, r1, d, E)
    return E


@njit(nogil=True, cache=True)
def _predict(
    X: Any, indptr: Any, indices: Any, data: Any, r0: int, r1: int,
    d: int, kind: int, width: int, W: Any, where: Any, run: Any, coef: Any, out: Any,
) -> None:  # fmt: skip
    n, C = out.shape
    padded = -(-n // PAD) * PAD
    E = _stretched(X, indptr, indices, data, r0, r1, padded, d, kind)
    t = np.empty(padded * width, np.float32)
    s = np.empty(padded * width, np.float32)
    tmp = np.empty((padded, C), np.float32)
    for j0 in range(0, coef.shape[1], width):
        j1 = min(j0 + width, coef.shape[1])
        T = t[: padded * (j1 - j0)].reshape(padded, j1 - j0)
        S = s[: padded * (j1 - j0)].reshape(padded, j1 - j0)
        _tile(X, indptr, indices, data, r0, r1, E, kind, W, where, run, j0, j1, T, S)
        _tile_times_coef(T, S, coef, j0, j1, out, tmp)


@njit(nogil=True, cache=True)
def _gradient(
    X: Any, indptr: Any, indices: Any, data: Any, r0: int, r1: int,
    d: int, kind: int, width: int, W: Any, where: Any, run: Any, R: Any, G: Any,
) -> None:  # fmt: skip
    """G (2, F, C) = features of rows r0..r1, transposed, times R (rows, C)."""
    n, F = r1 - r0, G.shape[1]
    E = _stretched(X, indptr, indices, data, r0, r1, n, d, kind)
    t = np.empty(n * width, np.float32)
    s = np.empty(n * width, np.float32)
    for j0 in range(0, F, width):
        j1 = min(j0 + width, F)
        T = t[: n * (j1 - j0)].reshape(n, j1 - j0)
        S = s[: n * (j1 - j0)].reshape(n, j1 - j0)
        _tile(X, indptr, indices, data, r0, r1, E, kind, W, where, run, j0, j1, T, S)
        np.dot(T.T, R, G[0, j0:j1])
        np.dot(S.T, R, G[1, j0:j1])


@njit(nogil=True, cache=True)
def _transform(
    X: Any, indptr: Any, indices: Any, data: Any, r0: int, r1: int,
    d: int, kind: int, width: int, W: Any, where: Any, run: Any, gain: Any, out: Any,
) -> None:  # fmt: skip
    n, F = r1 - r0, gain.size
    E = _stretched(X, indptr, indices, data, r0, r1, n, d, kind)
    t = np.empty(n * width, np.float32)
    s = np.empty(n * width, np.float32)
    for j0 in range(0, F, width):
        j1 = min(j0 + width, F)
        T = t[: n * (j1 - j0)].reshape(n, j1 - j0)
        S = s[: n * (j1 - j0)].reshape(n, j1 - j0)
        _tile(X, indptr, indices, data, r0, r1, E, kind, W, where, run, j0, j1, T, S)
        for i in range(n):
            _product(T[i], gain[j0:j1], out[i, j0:j1])
            _product(S[i], gain[j0:j1], out[i, F + j0 : F + j1])


def _arrays(X: Matrix) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """Return (X, indptr, indices, data): the form that `X` has not is empty."""
    if isinstance(X, np.ndarray):
        none = np.empty(0, np.int32)
        return X, none, none, np.empty(0, np.float32)
    return np.empty((0, 0), np.float32), X.indptr, X.indices, X.data


def _rows(d: int, kind: int) -> int:
    """Rows of a tile: fewer where stretched rows are long, so that memory stays bounded."""
    rows = ROWS
    while kind == COORDINATES and rows > PAD and rows * d > _STRETCHED:
        rows //= 2
    return rows


class AdditiveDraws(NamedTuple):
    """What defines n features, as the module's head describes.

    Attributes
    ----------
    kind : {COORDINATES, SIGNS, HASHED}
    width : int
        Features of a tile: TILE, with HASHED those of a block.
    W : float32 array (1, n), (d, n) or (n_blocks, d)
    where : int32 array (1, n), (0, 0) or (n_blocks, d)
    run : int32 array (n,) with COORDINATES, else (0,)
        Runs end at multiples of TILE.
    """

    kind: int
    width: int
    W: Float32Array
    where: AnyArray
    run: AnyArray

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self.W.nbytes + self.where.nbytes + self.run.nbytes)


def additive_predict(
    X: Matrix, d: int, draws: AdditiveDraws, coef: Float32Array, out: Float32Array
) -> None:
    """Add features(X) times coefficients to `out`, in parallel over row tiles.

    Parameters
    ----------
    X : float32 array (n, 2 d), C-contiguous, or CSR float32
        Roots and logarithms of the rows.
    d : int
    draws : AdditiveDraws
    coef : float32 array (2, m, C)
        Of cosines and sines, for whole blocks of the first features.
    out : float32 array (n, C), updated in place
    """
    n, rows = out.shape[0], _rows(d, draws.kind)
    parts = _arrays(X)

    def task(a: int) -> None:
        r0, r1 = a * rows, min(n, (a + 1) * rows)
        _predict(*parts, r0, r1, d, *draws, coef, out[r0:r1])

    parallel_for(-(-n // rows), task)


def additive_gradient(
    X: Matrix, d: int, draws: AdditiveDraws, R: Float32Array, G: Float32Array
) -> None:
    """Write features(X)^T R into `G` (2, n_features, C), in parallel over row tiles.

    Shapes as in :func:`additive_predict`, with ``R`` (n, C) float32. Partial sums of a fixed
    number of row tiles are added in order.
    """
    n, rows = R.shape[0], _rows(d, draws.kind)
    parts = _arrays(X)
    n_tiles = -(-n // rows)
    partial = np.empty((min(_PARTIAL, n_tiles), *G.shape), np.float32)
    G[:] = 0
    for first in range(0, n_tiles, _PARTIAL):

        def task(a: int, first: int = first) -> None:
            r0, r1 = (first + a) * rows, min(n, (first + a + 1) * rows)
            _gradient(*parts, r0, r1, d, *draws, R[r0:r1], partial[a])

        m = min(_PARTIAL, n_tiles - first)
        parallel_for(m, task)
        for a in range(m):
            G += partial[a]


def additive_transform(
    X: Matrix, d: int, draws: AdditiveDraws, gain: Float32Array, out: Float32Array
) -> None:
    """Write features times gain (n_features,) into `out` (n, 2 n_features), plane after plane.

    Shapes as in :func:`additive_predict`.
    """
    n, rows = out.shape[0], _rows(d, draws.kind)
    parts = _arrays(X)

    def task(a: int) -> None:
        r0, r1 = a * rows, min(n, (a + 1) * rows)
        _transform(*parts, r0, r1, d, *draws, gain, out[r0:r1])

    parallel_for(-(-n // rows), task)


# Count sketches


@njit(nogil=True, cache=True)
def _count_sketch(
    X: Any, indptr: Any, indices: Any, data: Any, r0: int, r1: int,
    bucket: Any, sign: Any, constant: Any, out: Any,
) -> None:  # fmt: skip
    out[:] = 0
    last = bucket.shape[1] - 1
    for i in range(r1 - r0):
        for s in range(bucket.shape[0]):
            b, g, o = bucket[s], sign[s], out[i, s]
            if indptr.size:
                for p in range(indptr[r0 + i], indptr[r0 + i + 1]):
                    j = indices[p]
                    o[b[j]] += g[j] * data[p]
            else:
                x = X[r0 + i]
                for j in range(x.size):
                    o[b[j]] += g[j] * x[j]
            o[b[last]] += g[last] * constant


def count_sketch(
    X: Matrix,
    r0: int,
    r1: int,
    bucket: AnyArray,
    sign: Float32Array,
    constant: float,
    out: Float32Array,
) -> None:
    """Write the count sketches of rows r0..r1, each with `constant` as a last coordinate.

    Parameters
    ----------
    X : float32 array (n, d), C-contiguous, or CSR float32
    bucket, sign : int32 and float32 arrays (n_sketches, d + 1), see :func:`hashes`
    constant : float
    out : float32 array (rows, n_sketches, n_buckets), written; rows beyond r1 - r0 too
    """
    _count_sketch(*_arrays(X), r0, r1, bucket, sign, np.float32(constant), out)
