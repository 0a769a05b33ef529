"""Counter-based random numbers: Philox4x32-10 words, and float32 variates from them.

The words of feature ``i`` and coordinate ``k`` are
``Philox4x32-10(counter=(i mod 2^32, k // 4, tag, i // 2^32), key=(seed_lo, seed_hi))``. They
are a pure function of (seed, i, k, tag), independent of blocks, threads and order. All
floating-point steps are single float32 operations in a fixed order without contraction, so
that another language or device can reproduce every bit. The polynomials are minimax fits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.threads import parallel_for
from kernelgrad.types import AnyArray, Float32Array, Float64Array, IntArray

NORMAL, CAUCHY, LAPLACE, SECH, LEVY, EXPONENTIAL, RADEMACHER = range(7)
TAG_FREQUENCY, TAG_PHASE, TAG_AUXILIARY = 0, 1, 2

_f = np.float32
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _S32 = np.uint64(0xFFFFFFFF), np.uint64(32)

# log(1+m) = m + m^2 P(m) on [sqrt(1/2)-1, sqrt(2)-1]
_P0, _P1, _P2, _P3 = _f(-0.49999982), _f(0.33334225), _f(-0.2500249147), _f(0.1995361447)
_P4, _P5, _P6, _P7 = _f(-0.16552335), _f(0.149792835), _f(-0.1444187611), _f(0.0873363688)
_LN2 = _f(0.6931471805599453)
# sin(2 pi y) = y Q(y^2) and cos(2 pi y) = C(y^2) on |y| <= 1/8
_Q0, _Q1, _Q2, _Q3 = _f(6.283185005), _f(-41.341629028), _f(81.588134766), _f(-75.240341187)
_C1, _C2, _C3, _C4 = _f(-19.739208221), _f(64.939315796), _f(-85.442855835), _f(59.220405579)
_ONE, _QUARTER, _HALF = _f(1), _f(0.25), _f(0.5)
_TWO24 = _f(2.0**-24)
_TWO26, _INV_PI = _f(2.0**-26), _f(0.3183098861837907)
# Lévy variates are capped at 2^40, so that no weight is infinite (0 times it would be NaN). The
# law exceeds this with probability 7.6e-7, which bounds the effect on any exp(-w s).
_LEVY_FLOOR = _f(2.0**-40)


@njit(nogil=True, cache=True)
def philox(i0: int, group: int, tag: int, k0: int, k1: int, o: Any) -> None:
    """Write the four words of counters (i0 + lane, group, tag) into o[0..3, lane]."""
    for lane in range(o.shape[1]):
        i = np.uint64(i0) + np.uint64(lane)
        # 32-bit words stored in 64 bits, so that one vector product gives both halves
        c0 = i & _LOW
        c1 = np.uint64(group)
        c2 = np.uint64(tag)
        c3 = i >> _S32
        a = np.uint64(k0)
        b = np.uint64(k1)
        for _ in range(10):
            p0 = _M0 * c0
            p1 = _M1 * c2
            n0 = (p1 >> _S32) ^ c1 ^ a
            n2 = (p0 >> _S32) ^ c3 ^ b
            c1 = p1 & _LOW
            c3 = p0 & _LOW
            c0 = n0
            c2 = n2
            a = (a + _W0) & _LOW
            b = (b + _W1) & _LOW
        o[0, lane] = np.uint32(c0)
        o[1, lane] = np.uint32(c1)
        o[2, lane] = np.uint32(c2)
        o[3, lane] = np.uint32(c3)


@njit(nogil=True, cache=True)
def _log(z: Any, w: Any, scratch: Any, shift: Any) -> None:
    """Set z to ln z - shift ln 2 for normal z > 0; w (uint32) and scratch are overwritten."""
    bits = w.view(np.int32)
    zbits = z.view(np.int32)
    for i in range(w.size):
        # z = 2^e m with m in [sqrt(1/2), sqrt(2))
        e = (zbits[i] - np.int32(0x3F3504F3)) >> np.int32(23)
        bits[i] = zbits[i] - (e << np.int32(23))
        scratch[i] = _f(e) - shift
    mantissa = w.view(np.float32)
    for i in range(w.size):
        m = mantissa[i] - _ONE
        p = m * m * (_P0 + m * (_P1 + m * (_P2 + m * (_P3 + m * (
            _P4 + m * (_P5 + m * (_P6 + m * _P7)))))))  # fmt: skip
        z[i] = (m + p) + scratch[i] * _LN2


@njit(nogil=True, cache=True)
def _log_uniform(w: Any, z: Any, scratch: Any) -> None:
    """Set z to ln u with u = (2 (w >> 9) + 1) 2^-24; w is overwritten."""
    for i in range(w.size):
        z[i] = _f(np.int32((w[i] >> np.uint32(9)) * np.uint32(2) + np.uint32(1)))
    _log(z, w, scratch, _f(24))


@njit(nogil=True, cache=True)
def _sin_cos_turns(t: Any, s: Any, c: Any) -> None:
    """Set s, c to sin, cos of 2 pi t for |t| <= 1/2, with exact quadrant reduction."""
    for i in range(t.size):
        q = np.rint(t[i] * _f(4))
        y = t[i] - q * _QUARTER
        z = y * y
        sy = y * (_Q0 + z * (_Q1 + z * (_Q2 + z * _Q3)))
        cy = _ONE + z * (_C1 + z * (_C2 + z * (_C3 + z * _C4)))
        k = np.int32(q)
        odd = (k & 1) != 0
        ss = cy if odd else sy
        cc = sy if odd else cy
        s[i] = -ss if (k & 2) != 0 else ss
        c[i] = -cc if ((k + 1) & 2) != 0 else cc


@njit(nogil=True, cache=True)
def _normals(words: Any, z: Any, scratch: Any) -> None:
    """Box-Muller: words (4, F) -> four rows of standard normals."""
    for h in range(0, 4, 2):
        angle = words[h + 1].view(np.int32)
        t = scratch[0]
        for i in range(t.size):
            t[i] = _f(angle[i] >> np.int32(8)) * _TWO24
        _log_uniform(words[h], scratch[1], scratch[2])
        _sin_cos_turns(t, scratch[2], scratch[3])
        radius, s, c = scratch[1], scratch[2], scratch[3]
        a, b = z[h], z[h + 1]
        for i in range(t.size):
            r = np.sqrt(_f(-2) * radius[i])
            a[i] = r * c[i]
            b[i] = r * s[i]


@njit(nogil=True, cache=True)
def _tangents(t: Any, scratch: Any, out: Any) -> None:
    """Set out to tan 2 pi t for |t| <= 1/2; two rows of scratch are overwritten."""
    s, c = scratch[1], scratch[2]
    _sin_cos_turns(t, s, c)
    for i in range(t.size):
        out[i] = s[i] / c[i]


@njit(nogil=True, cache=True)
def _of_uniforms(law: int, w: Any, z: Any, scratch: Any) -> None:
    """Set z (F,) to the variates of a law for uniforms u from words w, which are overwritten.

    CAUCHY is tan(pi (u - 1/2)), SECH is ln tan(pi u / 2) / pi with density sech(pi x),
    EXPONENTIAL is -ln u, LAPLACE the same with the last bit of the word as sign, and
    RADEMACHER that sign alone.
    """
    t = scratch[0]
    if law in (CAUCHY, SECH):
        for i in range(t.size):
            u = _f(np.int32((w[i] >> np.uint32(9)) * np.uint32(2) + np.uint32(1)))
            t[i] = u * _TWO26 if law == SECH else (u * _TWO24 - _HALF) * _HALF
        _tangents(t, scratch, z)
        if law == SECH:
            _log(z, w, t, _f(0))
            for i in range(t.size):
                z[i] = z[i] * _INV_PI
        return
    for i in range(t.size):
        t[i] = _ONE if law == EXPONENTIAL or (w[i] & np.uint32(1)) != 0 else -_ONE
    if law == RADEMACHER:
        z[:] = t
        return
    _log_uniform(w, z, scratch[1])
    for i in range(t.size):
        z[i] = t[i] * -z[i]


@njit(nogil=True, cache=True)
def variates(law: int, words: Any, z: Any, scratch: Any) -> None:
    """Set four rows z to standard variates of a law; LEVY is 1 / x^2 of a normal x."""
    if law in (NORMAL, LEVY):
        _normals(words, z, scratch)
    for h in range(4):
        if law == LEVY:
            for i in range(z.shape[1]):
                z[h, i] = _ONE / max(z[h, i] * z[h, i], _LEVY_FLOOR)
        elif law != NORMAL:
            _of_uniforms(law, words[h], z[h], scratch)


@njit(nogil=True, cache=True)
def fill(W: Any, columns: Any, i0: int, k0: int, k1: int, law: int, scale: Any) -> None:
    """Set W[p, lane] to scale times the variate of feature i0 + lane, coordinate columns[p]."""
    F = W.shape[1]
    words = np.empty((4, F), np.uint32)
    z = np.empty((4, F), np.float32)
    scratch = np.empty((4, F), np.float32)
    group = -1
    for p in range(columns.size):
        k = columns[p]
        if k >> 2 != group:
            group = k >> 2
            philox(i0, group, TAG_FREQUENCY, k0, k1, words)
            variates(law, words, z, scratch)
        row = z[k & 3]
        out = W[p]
        for i in range(F):
            out[i] = row[i] * scale


def draws(*key: int) -> np.random.Generator:
    """Return NumPy's generator of a key: a seed, a tag of its use, and further numbers."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def split_seed(seed: int) -> tuple[int, int]:
    """Return the two 32-bit key words of a seed below 2^64."""
    return seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF


def words(seed: int, first: int, n: int, tag: int, group: int = 0) -> AnyArray:
    """Return the uint32 words, shape (4, n), of the counters first, ..., first + n - 1."""
    out = np.empty((4, n), np.uint32)
    k0, k1 = split_seed(seed)
    philox(first, group, tag, k0, k1, out)
    return out


def uniforms(seed: int, first: int, n: int, tag: int, group: int = 0) -> Float64Array:
    """Return n uniform variates in (0, 1) with 52 bits, a pure function of the arguments."""
    w = words(seed, first, n, tag, group).astype(np.uint64)
    bits = (w[0] << np.uint64(20)) | (w[1] >> np.uint64(12))
    u: Float64Array = (bits.astype(np.float64) + 0.5) * 2.0**-52
    return u


def phases(seed: int, first: int, n: int) -> Float32Array:
    """Return n phases in turns, uniform on a grid of 2^24 points in [-1/2, 1/2)."""
    w = words(seed, first, n, TAG_PHASE)[0]
    turns: Float32Array = (w.view(np.int32) >> np.int32(8)).astype(np.float32) * _TWO24
    return turns


def fill_tiles(
    W: Float32Array, columns: IntArray, seed: int, first: int, law: int, scale: float
) -> None:
    """Fill tiles W (n_tiles, n_columns, tile) with scaled variates of a law, in parallel.

    Entry ``W[a, p, l]`` is ``scale`` times the variate of feature ``first + a * tile + l`` and
    coordinate ``columns[p]``; `columns` are sorted.
    """
    tile = W.shape[2]
    k0, k1 = split_seed(seed)
    s = np.float32(scale)

    def task(a: int) -> None:
        fill(W[a], columns, first + a * tile, k0, k1, law, s)

    parallel_for(W.shape[0], task)
