"""Elementary functions of flat arrays, as vectorised compiled loops; float32 but for one."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelgrad.compute.compiling import njit

_f = np.float32
# no reassociation, and NaN is respected: an infinite input must not become finite
_FAST = {"contract", "nsz", "arcp"}
_ZERO, _ONE, _QUARTER, _ROOT2 = _f(0), _f(1), _f(0.25), _f(np.sqrt(2.0))
# exp(x) = 2^e exp(r), r = x - e ln 2 with ln 2 in two parts; exp(r) = 1 + r + r^2 Q(r)
_LOG2E, _LN2_HIGH, _LN2_LOW = _f(1.4426950408889634), _f(0.693359375), _f(-2.12194440e-4)
_LOWEST, _HIGHEST = _f(-87.3), _f(88.37)
_Q0, _Q1, _Q2 = _f(0.5), _f(0.16666573286056519), _f(0.04166645556688309)
_Q3, _Q4 = _f(0.008363776840269566), _f(0.0013934544986113906)
# the same in float64, exp(r) by 13 terms of its series; adding _SHIFT rounds to an integer
_WIDE_LOG2E, _SHIFT = 1.4426950408889634, 1.5 * 2.0**52
_WIDE_LN2_HIGH, _WIDE_LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_WIDE_LOWEST, _WIDE_HIGHEST = -708.0, 709.0
_C3, _C4, _C5, _C6, _C7 = 1 / 6, 1 / 24, 1 / 120, 1 / 720, 1 / 5040
_C8, _C9, _C10, _C11, _C12 = 1 / 40320, 1 / 362880, 1 / 3628800, 1 / 39916800, 1 / 479001600
# log2(m) = f L(f), f = m - 1, for m from sqrt(1/2) to sqrt(2)
_ROOT_HALF, _TINY = np.int32(0x3F3504F3), _f(1e-30)
_L0, _L1, _L2 = _f(1.4426950216293335), _f(-0.7213473320007324), _f(0.48091059923171997)
_L3, _L4, _L5 = _f(-0.36070483922958374), _f(0.2879183292388916), _f(-0.23892034590244293)
_L6, _L7, _L8 = _f(0.21566985547542572), _f(-0.20742103457450867), _f(0.12614846229553223)
# sin(2 pi y) = y S(y^2) on |y| <= 1/4
_S0, _S1, _S2 = _f(6.283185005), _f(-41.341655731), _f(81.601005554)
_S3, _S4 = _f(-76.549812317), _f(39.536922455)
# 2^f = E(f) on |f| <= 1/2
_LOW_POWER, _HIGH_POWER = _f(-126), _f(127.5)
_E0, _E1, _E2, _E3 = _f(1), _f(0.693147182), _f(0.240226477), _f(0.0555035993)
_E4, _E5, _E6 = _f(0.00961850584), _f(0.00133908074), _f(0.000153264729)


@njit(nogil=True, cache=True, fastmath=_FAST)
def exp_flat(t: Any, bits: Any) -> None:
    """Replace t by exp(t) with relative error below 2e-7; 0 below -87.3, capped above 88.37.

    `bits` is int32 scratch.
    """
    power = bits.view(np.float32)
    for k in range(t.size):
        x = t[k] if t[k] > _LOWEST else _LOWEST
        x = x if x < _HIGHEST else _HIGHEST
        e = np.rint(x * _LOG2E)
        bits[k] = (np.int32(e) + np.int32(127)) << np.int32(23)
        r = (x - e * _LN2_HIGH) - e * _LN2_LOW
        v = _ONE + (r + (r * r) * (_Q0 + r * (_Q1 + r * (_Q2 + r * (_Q3 + r * _Q4)))))
        t[k] = _ZERO if t[k] < _LOWEST else v
    for k in range(t.size):
        t[k] *= power[k]


@njit(nogil=True, cache=True, fastmath=_FAST)
def exp_wide(t: Any, bits: Any) -> None:
    """Do as :func:`exp_flat` for float64 t and int64 `bits`, to 4e-16; it is 0 below -708."""
    power = bits.view(np.float64)
    for k in range(t.size):
        x = t[k] if t[k] > _WIDE_LOWEST else _WIDE_LOWEST
        x = x if x < _WIDE_HIGHEST else _WIDE_HIGHEST
        shifted = x * _WIDE_LOG2E + _SHIFT
        power[k] = shifted
        e = shifted - _SHIFT
        r = (x - e * _WIDE_LN2_HIGH) - e * _WIDE_LN2_LOW
        v = _C8 + r * (_C9 + r * (_C10 + r * (_C11 + r * _C12)))
        v = 0.5 + r * (_C3 + r * (_C4 + r * (_C5 + r * (_C6 + r * (_C7 + r * v)))))
        t[k] = 0.0 if t[k] < _WIDE_LOWEST else 1.0 + (r + (r * r) * v)
    for k in range(t.size):
        bits[k] = (bits[k] + 1023) << 52
    for k in range(t.size):
        t[k] *= power[k]


@njit(nogil=True, cache=True, fastmath=_FAST)
def exp_minus(t: Any, bits: Any) -> None:
    """Replace t by exp(-t), 0 below 2^-126, infinite from 2^127.5; `bits` is int32 scratch.

    The relative error is below 2e-7 + 8e-8 |t|, where the second term is due to rounding of t.
    """
    power = bits.view(np.float32)
    for k in range(t.size):
        y = -t[k] * _LOG2E
        inside = y if y > _LOW_POWER else _LOW_POWER  # also for NaN, which has no integer
        e = np.rint(inside if inside < _HIGH_POWER else _HIGH_POWER)  # 128 gives infinity
        bits[k] = (np.int32(e) + np.int32(127)) << np.int32(23)
        f = y - e
        v = _E0 + f * (_E1 + f * (_E2 + f * (_E3 + f * (_E4 + f * (_E5 + f * _E6)))))
        t[k] = _ZERO if y < _LOW_POWER else v
    for k in range(t.size):
        t[k] *= power[k]


@njit(nogil=True, cache=True, fastmath=_FAST)
def log2_flat(x: Any, out: Any) -> None:
    """Write log2(max(x, 1e-30)) to `out`; x is overwritten."""
    bits = x.view(np.int32)
    for k in range(x.size):
        x[k] = x[k] if x[k] > _TINY else _TINY
    for k in range(x.size):
        e = (bits[k] - _ROOT_HALF) >> np.int32(23)
        out[k] = _f(e)
        bits[k] -= e << np.int32(23)
    for k in range(x.size):
        f = x[k] - _ONE
        v = _L4 + f * (_L5 + f * (_L6 + f * (_L7 + f * _L8)))
        out[k] += f * (_L0 + f * (_L1 + f * (_L2 + f * (_L3 + f * v))))


@njit(nogil=True, cache=True, fastmath=_FAST)
def cos_sin_turns(t: Any, s: Any) -> None:
    """Write sin(2 pi t) to s and cos(2 pi t) to t; the error is below 2e-7 after reduction."""
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
    """Replace T (rows, F) by ``sqrt(2) cos(2 pi (T + phase))``."""
    for i in range(T.shape[0]):
        row = T[i]
        for k in range(row.size):
            t = row[k] + phase[k]
            r = t - np.rint(t)
            y = _QUARTER - abs(r)
            z = y * y
            row[k] = _ROOT2 * (y * (_S0 + z * (_S1 + z * (_S2 + z * (_S3 + z * _S4)))))
