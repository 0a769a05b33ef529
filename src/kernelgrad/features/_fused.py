r"""Fused tiles of random features ``h(X W)``, h a function of one number.

A tile computes ``T = X W``, applies h to every entry, and multiplies by coefficients while it
is still in cache: nothing of size ``n x D`` ever exists. The kinds of h:

========  ==========================================================================
PAIR      two planes, ``cos 2 pi T`` and ``sin 2 pi T``: W is in turns (divided by 2 pi)
PHASE     ``sqrt(2) cos 2 pi (T + b)``, W and b in turns
LINEAR    ``T``
STEP      ``1[T > 0]``
RAMP      ``max(T, 0)``
RAMP2     ``max(T, 0)^2``
DECAY     ``exp(-T)``
========  ==========================================================================

Layout: weights are kept as tiles ``(n_tiles, d, TILE)``, coefficients as planes
``(planes, n_tiles * TILE, C)``, for PAIR with plane 0 for the cosines and plane 1 for the
sines. All arrays are float32 and C-contiguous. Sums run over tiles in order, so neither the
number of threads nor the number of tiles handed over at once changes a bit of the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from kernelgrad._typing import Float32Array, Matrix
from kernelgrad.compute.linalg import csr_times_tile
from kernelgrad.compute.threads import parallel_for

PAIR, PHASE, LINEAR, STEP, RAMP, RAMP2, DECAY = range(7)

TILE = 256
ROWS = 256
ROWS_WIDE = 512  # from WIDE inputs on the first product dominates: larger tiles
WIDE = 500
# BLAS rounds a lone row otherwise than a row among others. Predictions pad their rows to a
# multiple of this: on AVX-512 cores a row's prediction then does not depend on its neighbours
# by a bit; elsewhere float32 rounding remains.
_PAD = 16

_f = np.float32
# no reassociation and no assumption on NaN: an infinite input must not become a number
_FAST = {"contract", "nsz", "arcp"}
# sin(2 pi y) = y S(y^2) on |y| <= 1/4
_S0, _S1, _S2 = _f(6.283185005), _f(-41.341655731), _f(81.601005554)
_S3, _S4 = _f(-76.549812317), _f(39.536922455)
_QUARTER, _ROOT2 = _f(0.25), _f(np.sqrt(2.0))
# 2^f = E(f) on |f| <= 1/2
_LOG2E, _LOW_POWER, _HIGH_POWER = _f(1.4426950408889634), _f(-126), _f(127.5)
_E0, _E1, _E2, _E3 = _f(1), _f(0.693147182), _f(0.240226477), _f(0.0555035993)
_E4, _E5, _E6 = _f(0.00961850584), _f(0.00133908074), _f(0.000153264729)


@njit(nogil=True, cache=True, fastmath=_FAST)
def cos_sin_turns(t: Any, s: Any) -> None:
    """Flat arrays: s = sin(2 pi t), then t = cos(2 pi t); error below 2e-7 after reduction."""
    for k in range(t.size):
        r = t[k] - np.rint(t[k])
        a = abs(r)
        y = _QUARTER - a
        v = _QUARTER - abs(y)
        v = np.copysign(v, r)
        z = y * y
        x = v * v
        t[k] = y * (_S0 + z * (_S1 + z * (_S2 + z * (_S3 + z * _S4))))
        s[k] = v * (_S0 + x * (_S1 + x * (_S2 + x * (_S3 + x * _S4))))


@njit(nogil=True, cache=True, fastmath=_FAST)
def cos_phase_turns(T: Any, phase: Any) -> None:
    """T (rows, F): T = sqrt(2) cos(2 pi (T + phase))."""
    for i in range(T.shape[0]):
        row = T[i]
        for k in range(row.size):
            t = row[k] + phase[k]
            r = t - np.rint(t)
            y = _QUARTER - abs(r)
            z = y * y
            row[k] = _ROOT2 * (y * (_S0 + z * (_S1 + z * (_S2 + z * (_S3 + z * _S4)))))


@njit(nogil=True, cache=True, fastmath=_FAST)
def exp_minus(t: Any, bits: Any) -> None:
    """Flat arrays: t = exp(-t), 0 below 2^-126, infinite from 2^127.5; `bits` int32 scratch.

    The relative error is below 2e-7 + 8e-8 |t|: the second term is that of a rounded t.
    """
    power = bits.view(np.float32)
    for k in range(t.size):
        y = -t[k] * _LOG2E
        inside = y if y > _LOW_POWER else _LOW_POWER  # also for NaN, which has no integer
        e = np.rint(inside if inside < _HIGH_POWER else _HIGH_POWER)  # 128 gives infinity
        bits[k] = (np.int32(e) + np.int32(127)) << np.int32(23)
        f = y - e
        v = _E0 + f * (_E1 + f * (_E2 + f * (_E3 + f * (_E4 + f * (_E5 + f * _E6)))))
        t[k] = _f(0) if y < _LOW_POWER else v
    for k in range(t.size):
        t[k] *= power[k]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _ramps(t: Any, kind: int) -> None:
    """Flat array: t = max(t, 0)^n for n = 0 (STEP), 1 (RAMP), 2 (RAMP2); NaN stays NaN."""
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
def _add(out: Any, tmp: Any) -> None:
    for i in range(out.shape[0]):
        for c in range(out.shape[1]):
            out[i, c] += tmp[i, c]


@njit(nogil=True, cache=True)
def _features(T: Any, S: Any, phase: Any, kind: int) -> None:
    """Turn the projections T of one tile into features; S is a second plane or scratch."""
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
    return np.empty((rows if kind in (PAIR, DECAY) else 0, tile), np.float32)


@njit(nogil=True, cache=True)
def _tile_times_coef(T: Any, S: Any, coef: Any, j0: int, j1: int, out: Any, tmp: Any) -> None:
    """Add to out T coef[0, j0:j1] (+ S coef[1, j0:j1])."""
    for p in range(coef.shape[0]):
        P = T if p == 0 else S
        A = coef[p, j0:j1]
        if A.shape[1] == 1:
            v = np.dot(P, A.reshape(A.size))
            for i in range(out.shape[0]):
                out[i, 0] += v[i]
        else:
            np.dot(P, A, tmp)
            _add(out, tmp)


@njit(nogil=True, cache=True)
def _predict_dense(X: Any, W: Any, phase: Any, kind: int, coef: Any, out: Any) -> None:
    n, C = out.shape
    tile = W.shape[2]
    padded = -(-n // _PAD) * _PAD
    if padded != n:
        rows = X
        X = np.zeros((padded, rows.shape[1]), np.float32)
        X[:n] = rows
    T = np.empty((padded, tile), np.float32)
    S = _second(padded, tile, kind)
    tmp = np.empty((padded, C), np.float32)
    for a in range(W.shape[0]):
        j0, j1 = a * tile, (a + 1) * tile
        np.dot(X, W[a], T)
        _features(T, S, phase[j0:j1], kind)
        _tile_times_coef(T, S, coef, j0, j1, out, tmp)


@njit(nogil=True, cache=True)
def _predict_csr(
    indptr: Any, indices: Any, data: Any, r0: int, r1: int,
    W: Any, phase: Any, kind: int, coef: Any, out: Any,
) -> None:  # fmt: skip
    n, C = out.shape
    tile = W.shape[2]
    padded = -(-n // _PAD) * _PAD
    T = np.zeros((padded, tile), np.float32)
    S = _second(padded, tile, kind)
    tmp = np.empty((padded, C), np.float32)
    for a in range(W.shape[0]):
        j0, j1 = a * tile, (a + 1) * tile
        csr_times_tile(indptr, indices, data, r0, r1, W[a], T[:n])
        _features(T, S, phase[j0:j1], kind)
        _tile_times_coef(T, S, coef, j0, j1, out, tmp)


@njit(nogil=True, cache=True)
def _gradient_dense(X: Any, W: Any, phase: Any, kind: int, R: Any, G: Any, rows: int) -> None:
    """One feature tile: G (planes, tile, C) = features^T R, rows in fixed tiles."""
    n, C = R.shape
    tile = W.shape[1]
    G[:] = 0
    T = np.empty((rows, tile), np.float32)
    S = _second(rows, tile, kind)
    tmp = np.empty((tile, C), np.float32)
    for r0 in range(0, n, rows):
        r1 = min(n, r0 + rows)
        t, s = T[: r1 - r0], S[: min(len(S), r1 - r0)]
        np.dot(X[r0:r1], W, t)
        _features(t, s, phase, kind)
        for p in range(G.shape[0]):
            np.dot((t if p == 0 else s).T, R[r0:r1], tmp)
            _add(G[p], tmp)


@njit(nogil=True, cache=True)
def _gradient_csr(
    indptr: Any, indices: Any, data: Any,
    W: Any, phase: Any, kind: int, R: Any, G: Any, rows: int,
) -> None:  # fmt: skip
    n, C = R.shape
    tile = W.shape[1]
    G[:] = 0
    T = np.empty((rows, tile), np.float32)
    S = _second(rows, tile, kind)
    tmp = np.empty((tile, C), np.float32)
    for r0 in range(0, n, rows):
        r1 = min(n, r0 + rows)
        t, s = T[: r1 - r0], S[: min(len(S), r1 - r0)]
        csr_times_tile(indptr, indices, data, r0, r1, W, t)
        _features(t, s, phase, kind)
        for p in range(G.shape[0]):
            np.dot((t if p == 0 else s).T, R[r0:r1], tmp)
            _add(G[p], tmp)


def _row_tile(d: int) -> int:
    return ROWS_WIDE if d >= WIDE else ROWS


def predict(
    X: Matrix,
    W: Float32Array,
    phase: Float32Array,
    kind: int,
    coef: Float32Array,
    out: Float32Array,
) -> None:
    """Add features(X) times coefficients to `out`, in parallel over row tiles.

    Parameters
    ----------
    X : float32 array (n, d), C-contiguous, or CSR float32
    W : float32 array (n_tiles, d, TILE)
    phase : float32 array (n_tiles * TILE,) for PHASE, else (0,)
    kind : {PAIR, PHASE, LINEAR, STEP, RAMP, RAMP2, DECAY}
    coef : float32 array (planes, n_tiles * TILE, C); two planes for PAIR, else one
    out : float32 array (n, C), updated in place
    """
    n = out.shape[0]
    rows = _row_tile(W.shape[1])
    dense = isinstance(X, np.ndarray)

    def task(a: int) -> None:
        r0, r1 = a * rows, min(n, (a + 1) * rows)
        if dense:
            _predict_dense(X[r0:r1], W, phase, kind, coef, out[r0:r1])
        else:
            _predict_csr(X.indptr, X.indices, X.data, r0, r1, W, phase, kind, coef, out[r0:r1])

    parallel_for(-(-n // rows), task)


def gradient(
    X: Matrix,
    W: Float32Array,
    phase: Float32Array,
    kind: int,
    R: Float32Array,
    G: Float32Array,
) -> None:
    """Write features(X)^T R into `G` (planes, n_tiles, tile, C), in parallel over tiles.

    Shapes as in :func:`predict`, with ``R`` (n, C) float32. The tile width may be any.
    """
    rows = _row_tile(W.shape[1])
    tile = W.shape[2]

    def task(a: int) -> None:
        b = phase[a * tile : (a + 1) * tile]
        if isinstance(X, np.ndarray):
            _gradient_dense(X, W[a], b, kind, R, G[:, a], rows)
        else:
            _gradient_csr(X.indptr, X.indices, X.data, W[a], b, kind, R, G[:, a], rows)

    parallel_for(W.shape[0], task)


@njit(nogil=True, cache=True)
def _transform_dense(X: Any, W: Any, phase: Any, kind: int, scale: Any, out: Any) -> None:
    n = X.shape[0]
    n_tiles, _, tile = W.shape
    F = n_tiles * tile
    T = np.empty((n, tile), np.float32)
    S = _second(n, tile, kind)
    for a in range(n_tiles):
        j0, j1 = a * tile, (a + 1) * tile
        np.dot(X, W[a], T)
        _features(T, S, phase[j0:j1], kind)
        for i in range(n):
            for k in range(tile):
                out[i, j0 + k] = scale * T[i, k]
        for i in range(S.shape[0] if kind == PAIR else 0):
            for k in range(tile):
                out[i, F + j0 + k] = scale * S[i, k]


@njit(nogil=True, cache=True)
def _transform_csr(
    indptr: Any, indices: Any, data: Any, r0: int, r1: int,
    W: Any, phase: Any, kind: int, scale: Any, out: Any,
) -> None:  # fmt: skip
    n = r1 - r0
    n_tiles, _, tile = W.shape
    F = n_tiles * tile
    T = np.empty((n, tile), np.float32)
    S = _second(n, tile, kind)
    for a in range(n_tiles):
        j0, j1 = a * tile, (a + 1) * tile
        csr_times_tile(indptr, indices, data, r0, r1, W[a], T)
        _features(T, S, phase[j0:j1], kind)
        for i in range(n):
            for k in range(tile):
                out[i, j0 + k] = scale * T[i, k]
        for i in range(S.shape[0] if kind == PAIR else 0):
            for k in range(tile):
                out[i, F + j0 + k] = scale * S[i, k]


def transform(
    X: Matrix,
    W: Float32Array,
    phase: Float32Array,
    kind: int,
    scale: float,
    out: Float32Array,
) -> None:
    """Write scale * features(X) into `out` (n, planes * n_tiles * tile)."""
    n = out.shape[0]
    rows = _row_tile(W.shape[1])
    s = np.float32(scale)

    def task(a: int) -> None:
        r0, r1 = a * rows, min(n, (a + 1) * rows)
        if isinstance(X, np.ndarray):
            _transform_dense(X[r0:r1], W, phase, kind, s, out[r0:r1])
        else:
            _transform_csr(X.indptr, X.indices, X.data, r0, r1, W, phase, kind, s, out[r0:r1])

    parallel_for(-(-n // rows), task)
