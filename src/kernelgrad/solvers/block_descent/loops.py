r"""Losses of all rows at once: their derivatives, and their sums along three directions.

Responses U, targets Y and directions are (C, n), outputs by rows, float32 and C-contiguous, so
that the inner loops run over rows. The loss is an entry of :mod:`kernelgrad.losses.scalar`, its
kinks smoothed over a width.

Entries are computed in float32, in pieces of constant width, quadratic values and all sums in
float64: sums are good to some 1e-7 of the sum of absolute terms, and finite up to |U| = 1e30.
Tiles of rows are fixed by shapes and their sums are added in the order of tiles, so that no bit
depends on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelgrad.compute.compiling import njit, overload
from kernelgrad.compute.elementary import exp_flat, log2_flat
from kernelgrad.compute.threads import parallel_for
from kernelgrad.losses.scalar import (
    KINKED,
    KL,
    LINEAR_FROM,
    LOGISTIC,
    MODIFIED,
    MULTINOMIAL,
    RATIO,
    SMOOTHED_HINGE,
    curvature,
    smooth_slope,
    smooth_value,
)
from kernelgrad.types import AnyArray, Float32Array, Float64Array, FloatArray

SCALE, STEP, MOMENTUM = 1, 2, 4  # bits of the directions of :func:`along`

_ENTRIES = 16384  # of a tile, in rows times outputs: some 20 us, well above the cost of a call
_N = 512  # rows of a piece: constant, so that compiled loops see that its parts do not overlap
_SUMS = 10
# parts of the scratch of a piece, float32
_U, _Y, _W, _A0, _A1, _A2, _R, _C, _T, _X, _M, _B = range(0, 12 * _N, _N)
_SCRATCH = 12 * _N

_f, _d = np.float32, np.float64
_FAST = {"contract", "nsz", "arcp"}
_ZERO, _ONE = _f(0), _f(1)
_LN2 = _f(np.log(2.0))
_LEAST_WIDTH = 1e-30  # where kinks are to be kept
_SCALED = (SMOOTHED_HINGE, MODIFIED, RATIO)
_LEAST_G, _LARGEST_G = 1e-30, 1e30  # of their numbers: float32 holds them and their inverses


# One piece: from points F[_U], targets F[_Y] to values V, slopes F[_R] and curvatures F[_C].
# error_model="numpy" leaves out the checks for a divisor of 0.


@njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
def _log1p(F: Any) -> None:
    """F[_X] = log(1 + F[_T]) of params from 0 up, to a few units in the last place."""
    for j in range(_N):
        F[_B + j] = _ONE + F[_T + j]
    log2_flat(F[_B : _B + _N], F[_X : _X + _N])
    for j in range(_N):
        e = F[_T + j]
        u = _ONE + e
        F[_X + j] = _LN2 * F[_X + j] + (e - (u - _ONE)) / u  # what 1 + e rounded away


@njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
def _logistic(F: Any, V: Any) -> None:
    for j in range(_N):
        F[_T + j] = -abs(F[_Y + j] * F[_U + j])
    exp_flat(F[_T : _T + _N], F[_B : _B + _N].view(np.int32))
    _log1p(F)
    for j in range(_N):
        y, e = F[_Y + j], F[_T + j]
        m = y * F[_U + j]
        q = _ONE / (_ONE + e)
        p = e * q
        F[_R + j] = -y * (p if m > _ZERO else q)
        F[_C + j] = p * q
        V[j] = F[_X + j] + (-m if m < _ZERO else _ZERO)


@njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
def _growth(F: Any, V: Any) -> None:
    """As :func:`_piece` for KL."""
    for j in range(_N):
        u = F[_U + j]
        F[_T + j] = u if u < LINEAR_FROM else LINEAR_FROM
    exp_flat(F[_T : _T + _N], F[_B : _B + _N].view(np.int32))
    for j in range(_N):
        u, e, positive = F[_U + j], F[_T + j], F[_Y + j] > _ZERO
        over = u - LINEAR_FROM
        over = over if over > _ZERO else _ZERO
        bend = e if u < LINEAR_FROM else _ZERO
        F[_R + j] = -_ONE if positive else e
        F[_C + j] = _ZERO if positive else bend
        V[j] = -_d(u) if positive else _d(e) * (1.0 + _d(over))


def _piece(kind: Any, p: Any, width: Any, majorise: Any, F: Any, V: Any) -> None:
    """Take a piece of the loss whose code is the length of the tuple `kind`.

    The length is part of the type: loops are compiled for one loss at a time, when needed.
    """


@overload(_piece, jit_options={"fastmath": _FAST, "error_model": "numpy"})
def _piece_of(kind: Any, p: Any, width: Any, majorise: Any, F: Any, V: Any) -> Any:
    code = kind.count
    if code == LOGISTIC:
        return lambda kind, p, width, majorise, F, V: _logistic(F, V)
    if code == KL:
        return lambda kind, p, width, majorise, F, V: _growth(F, V)

    def entries(kind: Any, p: Any, width: Any, majorise: Any, F: Any, V: Any) -> None:
        g, d = _f(p), _f(max(width, _LEAST_WIDTH))
        far = _ONE if majorise else _ZERO
        for j in range(_N):
            y, u = F[_Y + j], F[_U + j]
            F[_R + j] = smooth_slope(code, g, y, u, d)
            F[_C + j] = curvature(code, g, y, u, d, far)
            if code in KINKED:
                V[j] = smooth_value(code, g, y, u, d)
            else:
                V[j] = smooth_value(code, p, _d(y), _d(u), 1.0)

    return entries


# Sums. "reassoc" lets them run in vector registers; the order follows from the constant width.


@njit(nogil=True, cache=True, fastmath=_FAST | {"reassoc"}, forceinline=True)
def _total(F: Any, V: Any) -> float:
    """Return ``sum_i w_i v_i``."""
    s = 0.0
    for j in range(_N):
        s += _d(F[_W + j]) * V[j]
    return s


@njit(nogil=True, cache=True, fastmath=_FAST | {"reassoc"}, forceinline=True)
def _three_directions(F: Any, sums: Any) -> None:
    """Add 3 first and 6 second derivatives to the ten sums, behind the value."""
    g0 = g1 = g2 = h00 = h01 = h02 = h11 = h12 = h22 = 0.0
    for j in range(_N):
        w = _d(F[_W + j])
        r, c = w * _d(F[_R + j]), w * _d(F[_C + j])
        a, b, e = _d(F[_A0 + j]), _d(F[_A1 + j]), _d(F[_A2 + j])
        g0 += r * a
        g1 += r * b
        g2 += r * e
        ca, cb = c * a, c * b
        h00 += ca * a
        h01 += ca * b
        h02 += ca * e
        h11 += cb * b
        h12 += cb * e
        h22 += (c * e) * e
    sums[1] += g0
    sums[2] += g1
    sums[3] += g2
    sums[4] += h00
    sums[5] += h01
    sums[6] += h02
    sums[7] += h11
    sums[8] += h12
    sums[9] += h22


# Loading pieces. Behind the last row weights, points and directions are 0.


@njit(nogil=True, cache=True)
def _load(x: Any, t: Any) -> None:
    """Copy x to t (_N,), zeros behind it."""
    for j in range(x.size):
        t[j] = x[j]
    for j in range(x.size, _N):
        t[j] = _ZERO


@njit(nogil=True, cache=True, fastmath=_FAST)
def _load_directions(
    U: Any, base: float, D: Any, P: Any, c: int, i: int, m: int, directions: int, F: Any
) -> None:
    """Parts A0, A1, A2 = U - base, D, P in the m columns from i; an unused one stays 0."""
    if directions & SCALE:
        b = _f(base)
        u = U[c, i : i + m]
        for j in range(m):
            F[_A0 + j] = u[j] - b
        for j in range(m, _N):
            F[_A0 + j] = _ZERO
    if directions & STEP:
        _load(D[c, i : i + m], F[_A1 : _A1 + _N])
    if directions & MOMENTUM:
        _load(P[c, i : i + m], F[_A2 : _A2 + _N])


@njit(nogil=True, cache=True, fastmath=_FAST)
def _load_point(u: Any, steps: Any, F: Any) -> None:
    """F[_U] = u + steps . directions, the directions as loaded."""
    _load(u, F[_U : _U + _N])
    s0, s1, s2 = _f(steps[0]), _f(steps[1]), _f(steps[2])
    for j in range(_N):
        F[_U + j] += (s0 * F[_A0 + j] + s1 * F[_A1 + j]) + s2 * F[_A2 + j]


# The multinomial loss: E (C, _N) holds points, then probabilities.


@njit(nogil=True, cache=True, fastmath=_FAST)
def _shift(E: Any, F: Any) -> None:
    """Subtract the largest output of each row from E."""
    for j in range(_N):
        F[_M + j] = E[0, j]
    for c in range(1, E.shape[0]):
        e = E[c]
        for j in range(_N):
            m = F[_M + j]
            F[_M + j] = e[j] if e[j] > m else m
    for c in range(E.shape[0]):
        e = E[c]
        for j in range(_N):
            e[j] -= F[_M + j]


@njit(nogil=True, cache=True)
def _labels(E: Any, Y: Any, i: int, m: int, V: Any) -> None:
    """V = ``-sum_c y_c e_c``, E as shifted."""
    V[:] = 0.0
    for c in range(E.shape[0]):
        e, y = E[c], Y[c, i : i + m]
        for j in range(m):
            V[j] -= _d(y[j]) * _d(e[j])


@njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
def _normalise(E: Any, F: Any) -> None:
    """Turn shifted E into probabilities; F[_X] = ``log sum_c exp(e_c)``.

    The logarithm is taken of 1 plus all terms but the largest, so that it is good near 0.
    """
    for j in range(_N):
        F[_T + j] = _ZERO
        F[_M + j] = -_ONE
    bits = F[_B : _B + _N].view(np.int32)
    for c in range(E.shape[0]):
        e = E[c]
        exp_flat(e, bits)
        for j in range(_N):
            below = e[j] < _ONE
            F[_T + j] += e[j] if below else _ZERO
            F[_M + j] += _ZERO if below else _ONE
    for j in range(_N):
        F[_T + j] += F[_M + j]
    _log1p(F)
    for j in range(_N):
        F[_T + j] = _ONE / (_ONE + F[_T + j])
    for c in range(E.shape[0]):
        e = E[c]
        for j in range(_N):
            e[j] *= F[_T + j]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _centre(E: Any, M: Any, c: int, F: Any, add: bool) -> None:
    """Add ``p_c`` times the three directions to M (3, _N), or subtract M from them."""
    e, m0, m1, m2 = E[c], M[0], M[1], M[2]
    if add:
        for j in range(_N):
            m0[j] += e[j] * F[_A0 + j]
            m1[j] += e[j] * F[_A1 + j]
            m2[j] += e[j] * F[_A2 + j]
    else:
        for j in range(_N):
            F[_A0 + j] -= m0[j]
            F[_A1 + j] -= m1[j]
            F[_A2 + j] -= m2[j]


# Tiles


@njit(nogil=True, cache=True)
def _derivatives(
    kind: Any, params: Any, widths: Any, U: Any, Y: Any, w: Any, R: Any, W: Any,
    start: int, stop: int, sums: Any,
) -> None:  # fmt: skip
    """Add the smooth and exact sums of columns [start, stop) to `sums` (2, C)."""
    F, V = np.zeros(_SCRATCH, np.float32), np.empty(_N)
    for i in range(start, stop, _N):
        m = min(_N, stop - i)
        _load(w[i : i + m], F[_W : _W + _N])
        for c in range(U.shape[0]):
            _load(U[c, i : i + m], F[_U : _U + _N])
            _load(Y[c, i : i + m], F[_Y : _Y + _N])
            _piece(kind, params[c], widths[c], True, F, V)
            for j in range(m):
                R[c, i + j] = F[_W + j] * F[_R + j]
                W[c, i + j] = F[_W + j] * F[_C + j]
            total = _total(F, V)
            sums[0, c] += total
            if len(kind) in KINKED:
                _piece(kind, params[c], 0.0, True, F, V)
                total = _total(F, V)
            sums[1, c] += total


@njit(nogil=True, cache=True)
def _derivatives_joint(
    U: Any, Y: Any, w: Any, R: Any, W: Any, start: int, stop: int, sums: Any
) -> None:
    F, V = np.zeros(_SCRATCH, np.float32), np.empty(_N)
    E = np.empty((U.shape[0], _N), np.float32)
    for i in range(start, stop, _N):
        m = min(_N, stop - i)
        _load(w[i : i + m], F[_W : _W + _N])
        for c in range(U.shape[0]):
            _load(U[c, i : i + m], E[c])
        _shift(E, F)
        _labels(E, Y, i, m, V)
        _normalise(E, F)
        for j in range(_N):
            V[j] += F[_X + j]
        for c in range(U.shape[0]):
            e = E[c]
            for j in range(m):
                R[c, i + j] = F[_W + j] * (e[j] - Y[c, i + j])
                W[c, i + j] = F[_W + j] * (e[j] * (_ONE - e[j]))
        total = _total(F, V)
        sums[0, 0] += total
        sums[1, 0] += total


@njit(nogil=True, cache=True)
def _along(
    kind: Any, params: Any, widths: Any, U: Any, base: Any, D: Any, P: Any, Y: Any, w: Any,
    steps: Any, directions: int, start: int, stop: int, sums: Any,
) -> None:  # fmt: skip
    """Add the sums of columns [start, stop) to `sums` (C, 10)."""
    F, V = np.zeros(_SCRATCH, np.float32), np.empty(_N)
    for i in range(start, stop, _N):
        m = min(_N, stop - i)
        _load(w[i : i + m], F[_W : _W + _N])
        for c in range(U.shape[0]):
            _load(Y[c, i : i + m], F[_Y : _Y + _N])
            _load_directions(U, base[c], D, P, c, i, m, directions, F)
            _load_point(U[c, i : i + m], steps[c], F)
            _piece(kind, params[c], widths[c], False, F, V)
            sums[c, 0] += _total(F, V)
            if directions:
                _three_directions(F, sums[c])


@njit(nogil=True, cache=True)
def _along_joint(
    U: Any, base: Any, D: Any, P: Any, Y: Any, w: Any, steps: Any, directions: int,
    start: int, stop: int, sums: Any,
) -> None:  # fmt: skip
    F, V = np.zeros(_SCRATCH, np.float32), np.empty(_N)
    E = np.empty((U.shape[0], _N), np.float32)
    M = np.empty((3, _N), np.float32)
    for i in range(start, stop, _N):
        m = min(_N, stop - i)
        _load(w[i : i + m], F[_W : _W + _N])
        for c in range(U.shape[0]):
            _load_directions(U, base[c], D, P, c, i, m, directions, F)
            _load_point(U[c, i : i + m], steps[c], F)
            E[c] = F[_U : _U + _N]
        _shift(E, F)
        _labels(E, Y, i, m, V)
        _normalise(E, F)
        for j in range(_N):
            V[j] += F[_X + j]
        sums[0, 0] += _total(F, V)
        if directions == 0:
            continue
        # The Hessian is the covariance of the directions under p: about their means nothing
        # cancels. Slopes p - y sum to 0 over the outputs, so the means change none.
        M[:] = _ZERO
        for c in range(U.shape[0]):
            _load_directions(U, base[c], D, P, c, i, m, directions, F)
            _centre(E, M, c, F, True)
        for c in range(U.shape[0]):
            _load_directions(U, base[c], D, P, c, i, m, directions, F)
            _centre(E, M, c, F, False)
            _load(Y[c, i : i + m], F[_Y : _Y + _N])
            e = E[c]
            for j in range(_N):
                F[_R + j] = e[j] - F[_Y + j]
                F[_C + j] = e[j]
            _three_directions(F, sums[0])


@njit(nogil=True, cache=True)
def _softmax(U: Any, out: Any, start: int, stop: int) -> None:
    F = np.zeros(_SCRATCH, np.float32)
    E = np.empty((U.shape[0], _N), np.float32)
    for i in range(start, stop, _N):
        m = min(_N, stop - i)
        for c in range(U.shape[0]):
            _load(U[c, i : i + m], E[c])
        _shift(E, F)
        _normalise(E, F)
        for c in range(U.shape[0]):
            for j in range(m):
                out[c, i + j] = E[c, j]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _multiply_hessian(P: Any, w: Any, V: Any, out: Any, start: int, stop: int) -> None:
    mean = np.zeros(stop - start, V.dtype)
    for c in range(P.shape[0]):
        p, v = P[c, start:stop], V[c, start:stop]
        for j in range(p.size):
            mean[j] += p[j] * v[j]
    weights = w[start:stop]
    for c in range(P.shape[0]):
        p, v, o = P[c, start:stop], V[c, start:stop], out[c, start:stop]
        for j in range(p.size):
            o[j] = (weights[j] * p[j]) * (v[j] - mean[j])


def _over_tiles(
    shape: tuple[int, ...], sums: tuple[int, ...], task: Callable[[int, int, Any], None]
) -> Float64Array:
    """Call ``task(start, stop, partial)`` for tiles of columns; return the sum of partials."""
    n_outputs, n = shape
    width = _N * max(1, _ENTRIES // (_N * n_outputs))
    n_tiles = -(-n // width)
    partial = np.zeros((n_tiles, *sums))
    parallel_for(n_tiles, lambda t: task(t * width, min(n, (t + 1) * width), partial[t]))
    total = np.zeros(sums)
    for t in range(n_tiles):
        total += partial[t]
    return total


def derivatives(
    code: int,
    params: Float64Array,
    widths: Float64Array,
    U: Float32Array,
    Y: Float32Array,
    w: Float32Array,
    R: Float32Array,
    W: Float32Array,
) -> tuple[Float64Array, Float64Array]:
    """Write slopes and majorising curvatures of all rows; return the sums of the losses.

    The loss has one parameter and one positive width d for each output, (C,), unused where it
    has no kinks. Responses U and targets Y (one-hot for MULTINOMIAL) are (C, n), the weights w
    of the rows are not negative. R and W (C, n) become ``w_i dl_d/df`` and w_i times the
    curvature of the table, the majorising one for kinks and HUBER, the diagonal one for
    MULTINOMIAL. The sums are ``sum_i w_i l_d`` and ``sum_i w_i l``, (C,). The loss of
    MULTINOMIAL is joint: its sum is entry 0, the others are 0.
    """
    p = np.clip(params, _LEAST_G, _LARGEST_G) if code in _SCALED else params

    def task(start: int, stop: int, sums: Any) -> None:
        if code == MULTINOMIAL:
            _derivatives_joint(U, Y, w, R, W, start, stop, sums)
        else:
            _derivatives((None,) * code, p, widths, U, Y, w, R, W, start, stop, sums)

    smooth, exact = _over_tiles(U.shape, (2, len(U)), task)
    return smooth, exact


def along(
    code: int,
    params: Float64Array,
    widths: Float64Array,
    U: Float32Array,
    base: AnyArray,
    D: Float32Array,
    P: Float32Array,
    Y: Float32Array,
    w: Float32Array,
    steps: Float64Array,
    directions: int = SCALE | STEP | MOMENTUM,
) -> Float64Array:
    """Return sums of the loss along three directions, and their first and second derivatives.

    They belong to ``sum_i w_i l_d`` at ``U + s_0 (U - base) + s_1 D + s_2 P``, as a function
    of the `steps` ``(s_0, s_1, s_2)`` of each output, (C, 3), which are rounded to float32; the
    `base` (C,) is what the scale leaves alone, the bias. Second derivatives are true ones:
    kinks count ``1/d`` inside their width and 0 outside, HUBER 1 and 0, SMOOTHED_HINGE 1/g and
    0, MULTINOMIAL its whole Hessian. The rest is as for :func:`derivatives`; a width of 0 keeps
    kinks, which then have a subgradient and no second derivative.

    `directions` is the sum of SCALE, STEP and MOMENTUM. The arrays of those left out are not
    read: their steps count as 0, and so do derivatives along them. 0 computes values only.

    Returns
    -------
    float64 array (C, 10)
        Value, ``g_0, g_1, g_2, h_00, h_01, h_02, h_11, h_12, h_22``, one row an output. The
        loss of MULTINOMIAL is joint: its sums are row 0, the others are 0.
    """
    offset = np.asarray(base, np.float64)
    first = D if directions & STEP else U
    second = P if directions & MOMENTUM else U
    p = np.clip(params, _LEAST_G, _LARGEST_G) if code in _SCALED else params

    def task(start: int, stop: int, sums: Any) -> None:
        arrays = U, offset, first, second, Y, w, steps, directions, start, stop, sums
        if code == MULTINOMIAL:
            _along_joint(*arrays)
        else:
            _along((None,) * code, p, widths, *arrays)

    return _over_tiles(U.shape, (len(U), _SUMS), task)


def softmax(U: Float32Array, out: Float32Array) -> None:
    """Write ``exp(u_c) / sum_b exp(u_b)`` of each column of U (C, n) into `out`, maybe U."""
    _over_tiles(U.shape, (), lambda start, stop, _: _softmax(U, out, start, stop))


def multiply_hessian(P: FloatArray, w: FloatArray, V: FloatArray, out: FloatArray) -> None:
    """Write the product of the Hessians of MULTINOMIAL with V, ``w p_c (v_c - sum_b p_b v_b)``.

    Columns of P (C, m) are probabilities, w (m,) their weights; `out` (C, m) may be V.
    """
    _over_tiles(
        P.shape, (), lambda start, stop, _: _multiply_hessian(P, w, V, out, start, stop)
    )
