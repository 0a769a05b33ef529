r"""Tiles of exact kernels: ``h(acc_k t(a_k, b_k))`` for all pairs of rows a, b.

A *form* says how the columns of two rows add up:

========  ==================================================  ==================
form      accumulated over columns                            rows in CSR
========  ==================================================  ==================
DOT       ``sum a b``                                         by non-zeros
CHI2      ``sum 2 a b / (a + b)``, for ``a, b >= 0``          by non-zeros
LEAST     ``sum min(a, b)``, for ``a, b >= 0``                by non-zeros
SHANNON   ``sum (a log2((a+b)/a) + b log2((a+b)/b)) / 2``     by non-zeros
ABSOLUTE  ``sum |a - b|``                                     by used columns
ROOTS     ``sum sqrt(a + b)``                                 by used columns
LORENTZ   ``prod 1 + (a - b)^2``                              by used columns
SUMS      ``prod 1 + (a + b)``                                by used columns
COSH      ``prod 1 + (a - b)^2 / (2 (1 + a) (1 + b))``        by used columns
========  ==================================================  ==================

In the first four a column counts nothing where either entry is 0, in all of them where both
are. Parameters of kernels are factors of the rows, so no form has any. A *finish* says what
becomes of the result t:

============================  =================================================================
finish                        value
============================  =================================================================
RAW, EXP, EXP_MINUS, INVERSE  ``t``, ``exp(t)``, ``exp(-t)``, ``1 / t``
POWER, POLE, SERIES           ``(t + c_0)^n``, ``1 / (1 - t)``, ``c_0 + c_1 t + c_2 t^2 + ...``
HALF_SQUARE                   ``u = |a - b|^2 / 2``, from ``t = a . b`` and squared norms
GAUSS                         ``exp(-u)``
MATERN1, MATERN3, MATERN5     ``p(s) exp(-s)``, ``s = sqrt(u)``; p = 1, 1 + s, 1 + s + s^2 / 3
ARC0, ARC1, ARC2              arc-cosine kernels of order 0, 1, 2, from the cosine t and the
                              squared sizes of both rows
============================  =================================================================

Columns are accumulated strictly one after another, in tiles of one width, so the bits
of an entry depend on its two rows alone: not on the other rows, their number or the
tile. A BLAS chooses its routine, and with it the rounding, by the size of a product
(measured: tiles with few rows differ from others), so none is used, but inside
:func:`blas_products`, for callers that always ask for the same tiles. Squared norms from
:func:`squares` are rounded as the products are: a row has distance 0 from itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import types
from numba.extending import overload

from kernelgrad.compute.caching import fused, njit
from kernelgrad.compute.elementary import exp_flat, exp_wide, log2_flat
from kernelgrad.types import AnyArray, Float64Array, IntArray, Matrix

DOT, CHI2, LEAST, SHANNON, ABSOLUTE, ROOTS, LORENTZ, SUMS, COSH = range(9)
RAW, EXP, EXP_MINUS, INVERSE, POWER, POLE, SERIES, ARC0, ARC1, ARC2 = range(10)
_ARCS = ARC0, ARC1, ARC2
HALF_SQUARE, GAUSS, MATERN1, MATERN3, MATERN5 = range(10, 15)

# Of a tile: constant, so that compiled loops see that its rows do not overlap. The loop of
# `compute.linalg` for any width takes 1.2 to 1.5 times as long here.
WIDTH = 512
DEPTH = 128  # input columns of a panel: 256 KiB in float32, well inside the second cache
_SPARSE_WIDTH = 64  # of a tile whose panel holds the used columns of sparse rows
_SPARSE_ROWS = 32  # made dense at once against such a panel
_DENSE_COLUMNS = 4096  # up to here a panel of dense rows is WIDTH wide against sparse ones
_PAD = 4  # rows of a register tile

_KEPT_BYTES = 2**21  # of an array that a thread keeps: a tile of PREDICT_TILE rows in float64
_mode = threading.local()

_f = np.float32
_FAST = {"contract", "nsz", "arcp"}
# acos(c) = sqrt(1 - c) A(c) for c from 0 to 1, error 8e-8
_A0, _A1, _A2 = _f(1.570796251296997), _f(-0.21459849178791046), _f(0.08897409588098526)
_A3, _A4, _A5 = _f(-0.05014502629637718), _f(0.030808253213763237), _f(-0.01696547120809555)
_A6, _A7 = _f(0.006580885034054518), _f(-0.0012370048789307475)
_ZERO, _HALF, _ONE, _TWO, _THREE = _f(0), _f(0.5), _f(1), _f(2), _f(3)
_PI, _INVERSE_PI = _f(np.pi), _f(1 / np.pi)


# Accumulation over columns. Where there are quotients error_model="numpy" leaves out the checks
# for a divisor of 0, which would keep loops from being vectorised.


@njit(nogil=True, cache=True, fastmath=_FAST)
def _dots(A: Any, k0: int, P: Any, depth: int, T: Any) -> None:
    """Add ``A[:, k0 : k0 + depth] @ P[:depth]`` to T (n, WIDTH); n is a multiple of 4."""
    p = P.reshape(P.size)
    for i in range(0, A.shape[0], 4):
        t = T[i : i + 4].reshape(4 * WIDTH)
        a, b, c, d = A[i, k0:], A[i + 1, k0:], A[i + 2, k0:], A[i + 3, k0:]
        k = 0
        while k + 4 <= depth:  # 16 products for each 4 entries of P and T
            w = p[k * WIDTH : (k + 4) * WIDTH]
            a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
            b0, b1, b2, b3 = b[k], b[k + 1], b[k + 2], b[k + 3]
            c0, c1, c2, c3 = c[k], c[k + 1], c[k + 2], c[k + 3]
            d0, d1, d2, d3 = d[k], d[k + 1], d[k + 2], d[k + 3]
            for j in range(WIDTH):
                w0, w1, w2, w3 = w[j], w[WIDTH + j], w[2 * WIDTH + j], w[3 * WIDTH + j]
                t[j] = (((t[j] + a0 * w0) + a1 * w1) + a2 * w2) + a3 * w3
                u = t[WIDTH + j]
                t[WIDTH + j] = (((u + b0 * w0) + b1 * w1) + b2 * w2) + b3 * w3
                u = t[2 * WIDTH + j]
                t[2 * WIDTH + j] = (((u + c0 * w0) + c1 * w1) + c2 * w2) + c3 * w3
                u = t[3 * WIDTH + j]
                t[3 * WIDTH + j] = (((u + d0 * w0) + d1 * w1) + d2 * w2) + d3 * w3
            k += 4
        while k < depth:
            w = p[k * WIDTH : (k + 1) * WIDTH]
            a0, b0, c0, d0 = a[k], b[k], c[k], d[k]
            for j in range(WIDTH):
                t[j] += a0 * w[j]
                t[WIDTH + j] += b0 * w[j]
                t[2 * WIDTH + j] += c0 * w[j]
                t[3 * WIDTH + j] += d0 * w[j]
            k += 1


@njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
def _column(form: int, a: Any, a2: Any, w: Any, w2: Any, t: Any) -> None:
    """Add the terms of one column to t (m,): a is the entry of one row, w (m,) those of others.

    Every form but SHANNON is handled. For COSH a2 and w2 are ``1 / (1 + a)`` and
    ``1 / (1 + w)``. Numbers have the type of t: a literal would turn float32 into float64.
    """
    one = t.dtype.type(1)
    half = t.dtype.type(0.5)
    if form == DOT:
        for j in range(t.size):
            t[j] += a * w[j]
    elif form == CHI2:
        if a > 0:
            for j in range(t.size):
                low = a if a < w[j] else w[j]
                high = w[j] if a < w[j] else a
                t[j] += (low + low) * (high / (a + w[j]))
    elif form == LEAST:
        for j in range(t.size):
            t[j] += a if a < w[j] else w[j]
    elif form == ABSOLUTE:
        for j in range(t.size):
            t[j] += abs(a - w[j])
    elif form == ROOTS:
        for j in range(t.size):
            t[j] += np.sqrt(a + w[j])
    elif form == LORENTZ:
        for j in range(t.size):
            u = a - w[j]
            t[j] *= one + u * u
    elif form == SUMS:
        for j in range(t.size):
            t[j] *= one + (a + w[j])
    else:
        h = half * a2
        for j in range(t.size):
            u = a - w[j]
            t[j] *= one + (u * u) * (h * w2[j])


@njit(nogil=True, cache=True)  # fused, the sum would depend on which row comes first
def _column_shannon(a: Any, a2: Any, w: Any, w2: Any, t: Any, s: Any, logs: Any) -> None:
    """Do as :func:`_column` for SHANNON; in float32 a2 and w2 are log2, s and logs scratch."""
    if a <= 0:
        return
    if t.itemsize == 8:
        for j in range(t.size):
            b = w[j]
            if b > 0:
                t[j] += 0.5 * (a * np.log2((a + b) / a) + b * np.log2((a + b) / b))
        return
    for j in range(t.size):
        s[j] = a + w[j]
    log2_flat(s, logs)
    for j in range(t.size):
        v = _HALF * (a * (logs[j] - a2) + w[j] * (logs[j] - w2[j]))
        t[j] += v if w[j] > _ZERO else _ZERO


@njit(nogil=True, cache=True, error_model="numpy")
def _columns(form: int, A: Any, A2: Any, k0: int, P: Any, P2: Any, depth: int, T: Any) -> None:
    """Add the terms of ``A[:, k0 : k0 + depth]`` and a panel P (depth, m) to T (n, m)."""
    s, logs = np.empty(T.shape[1], np.float32), np.empty(T.shape[1], np.float32)
    for i in range(A.shape[0]):
        for k in range(depth):
            a, a2 = A[i, k0 + k], A2[i, k0 + k]
            if form == SHANNON:
                _column_shannon(a, a2, P[k], P2[k], T[i], s, logs)
            else:
                _column(form, a, a2, P[k], P2[k], T[i])


@njit(nogil=True, cache=True, error_model="numpy")
def _nonzeros(
    form: int, indptr: Any, indices: Any, data: Any, data2: Any, place: Any, P: Any, P2: Any,
    T: Any,
) -> None:  # fmt: skip
    """Add the terms of CSR rows and a panel P to T; `place` (d,) holds rows of P, or -1."""
    s, logs = np.empty(T.shape[1], np.float32), np.empty(T.shape[1], np.float32)
    for i in range(T.shape[0]):
        for p in range(indptr[i], indptr[i + 1]):
            k = place[indices[p]]
            if k >= 0 and form == SHANNON:
                _column_shannon(data[p], data2[p], P[k], P2[k], T[i], s, logs)
            elif k >= 0:
                _column(form, data[p], data2[p], P[k], P2[k], T[i])


@njit(nogil=True, cache=True, fastmath=_FAST)
def _squares_csr(indptr: Any, data: Any, out: Any) -> None:
    for i in range(out.size):
        s = out[i]
        for p in range(indptr[i], indptr[i + 1]):
            s += data[p] * data[p]
        out[i] = s


@njit(nogil=True, cache=True, fastmath=_FAST)
def _squares_dense(C: Any, out: Any) -> None:
    """Add the squared norms of n rows, whose columns are C (d, n), to `out` (n,)."""
    for k in range(C.shape[0]):
        c = C[k]
        for i in range(out.size):
            out[i] += c[i] * c[i]


def squares(X: Matrix) -> Float64Array:
    """Return ``|x|^2`` of rows (n,), rounded to their precision as :func:`block` does for DOT.

    Inside :func:`blas_products` the norms of float64 rows may differ in the last bits.
    """
    out = np.zeros(X.shape[0], X.dtype)
    if sp.issparse(X):
        _squares_csr(X.indptr, X.data, out)
    elif X.dtype == np.float64 and not getattr(_mode, "blas", False):
        _squares_dense(np.ascontiguousarray(X.T), out)
    elif not fused():
        for column in X.T:
            out += column * column
    else:
        for column in X.T:  # a fused sum, as that of products: exact in float64, then rounded
            wide = column.astype(np.float64)
            out = (out.astype(np.float64) + wide * wide).astype(X.dtype)
    return out.astype(np.float64)


# What becomes of a tile: in float32, for GAUSS and MATERN also in float64


def _exp(t: AnyArray, bits: AnyArray) -> None:
    """Replace t by exp(t) in compiled loops; `bits` holds integers as wide as the entries."""


@overload(_exp, strict=False)
def _exp_of_type(t: Any, bits: Any) -> Any:
    if t.dtype == types.float64:
        return lambda t, bits: exp_wide(t, bits)
    return lambda t, bits: exp_flat(t, bits)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _half_squares(t: Any, a: Any, b: Any) -> None:
    """Turn inner products t (m,) into half the squared distances ``max(a + b - t, 0)``."""
    for j in range(t.size):
        u = (a + b[j]) - t[j]
        t[j] = u if u > _ZERO else _ZERO


@njit(nogil=True, cache=True, fastmath=_FAST)
def _power(t: Any, c: Any, n: int, base: Any) -> None:
    for j in range(t.size):
        base[j] = t[j] + c
        t[j] = _ONE
    while True:
        if n & 1:
            for j in range(t.size):
                t[j] *= base[j]
        n >>= 1
        if n == 0:
            return
        for j in range(t.size):
            base[j] *= base[j]


@njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
def _arc(t: Any, a: Any, b: Any, order: int) -> None:
    for j in range(t.size):
        size = (a * b[j]) * _INVERSE_PI  # of one value whichever row comes first
        c = t[j] if t[j] < _ONE else _ONE
        c = c if c > -_ONE else -_ONE
        m = abs(c)
        v = _A4 + m * (_A5 + m * (_A6 + m * _A7))
        v = np.sqrt(_ONE - m) * (_A0 + m * (_A1 + m * (_A2 + m * (_A3 + m * v))))
        rest = _PI - v if c > _ZERO else v  # pi minus the angle
        sine = np.sqrt((_ONE - m) * (_ONE + m))
        if order == 0:
            t[j] = size * rest
        elif order == 1:
            t[j] = size * (sine + rest * c)
        else:
            t[j] = size * (_THREE * sine * c + rest * (_ONE + _TWO * c * c))


@njit(nogil=True, cache=True, fastmath=_FAST)
def _gauss(T: Any, left: Any, right: Any, bits: Any) -> None:
    """Turn inner products T into kernel values, as :func:`_finish_others` does, for GAUSS."""
    for i in range(T.shape[0]):
        t = T[i]
        a = left[i]
        for j in range(t.size):
            u = (a + right[j]) - t[j]
            t[j] = -(u if u > _ZERO else _ZERO)
        _exp(t, bits)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _matern(T: Any, left: Any, right: Any, order: int, bits: Any) -> None:
    """Do as :func:`_gauss` for MATERN1, MATERN3 and MATERN5, which have order 0, 1 and 2."""
    keep = np.empty_like(T[0])
    for i in range(T.shape[0]):
        t = T[i]
        _half_squares(t, left[i], right)
        for j in range(t.size):
            s = np.sqrt(t[j])
            t[j] = -s
            keep[j] = _ONE + s + (s * s / _THREE if order == 2 else _ZERO)
        _exp(t, bits)
        if order > 0:
            for j in range(t.size):
                t[j] *= keep[j]


@njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
def _finish_others(
    T: Any, finish: int, coef: Any, degree: int, left: Any, right: Any, scratch: Any, bits: Any
) -> None:
    """Turn sums T (n, m) into values; `scratch` (m,) and its int32 view are overwritten."""
    for i in range(T.shape[0]):
        t = T[i]
        if finish >= HALF_SQUARE:
            _half_squares(t, left[i], right)
        if finish == EXP:
            exp_flat(t, bits)
        elif finish == EXP_MINUS:
            for j in range(t.size):
                t[j] = -t[j]
            exp_flat(t, bits)
        elif finish == INVERSE:
            for j in range(t.size):
                t[j] = _ONE / t[j]
        elif finish == POWER:
            _power(t, coef[0], degree, scratch)
        elif finish == POLE:
            for j in range(t.size):
                t[j] = _ONE / (_ONE - t[j])
        elif finish == SERIES:
            for j in range(t.size):
                v = coef[coef.size - 1]
                for n in range(coef.size - 2, -1, -1):
                    v = coef[n] + v * t[j]
                t[j] = v
        elif finish in _ARCS:
            _arc(t, left[i], right, finish - ARC0)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _narrow(T: Any, left: Any, right: Any, out: Any, start: int) -> None:
    """Write minus half the squared distances of inner products T to `out[:, start:]`.

    Their roots and exponentials are then as exact as float32 values can be.
    """
    m = T.shape[1]
    for i in range(T.shape[0]):
        a, t, o = left[i], T[i], out[i, start : start + m]
        for j in range(m):
            u = (a + right[j]) - t[j]
            o[j] = -u if u > 0.0 else 0.0


def _finish(
    T: AnyArray, finish: int, coef: AnyArray, degree: int, left: AnyArray, right: AnyArray
) -> None:
    """Turn sums T (n, m) into values; `left` (n,) and `right` (m,) are as in :func:`block`."""
    scratch = np.empty(T.shape[1], T.dtype)
    bits = scratch.view(f"i{T.itemsize}")
    if finish == GAUSS:  # of default fits: compiled without the others
        _gauss(T, left, right, bits)
    elif finish > GAUSS:
        _matern(T, left, right, finish - MATERN1, bits)
    else:
        _finish_others(T, finish, coef, degree, left, right, scratch, bits)


def arc_values(
    order: int, sine: Float64Array, c: Float64Array, rest: Float64Array
) -> Float64Array:
    """Return J of the arc-cosine kernel; c is the cosine of an angle, `rest` pi minus it."""
    if order == 0:
        return rest
    return sine + rest * c if order == 1 else 3 * sine * c + rest * (1 + 2 * c**2)


def _finish_plainly(
    T: AnyArray, finish: int, coef: AnyArray, degree: int, left: Any, right: Any
) -> AnyArray:
    """Do as :func:`_finish` with NumPy, in the precision of T, which may hold the result.

    Without `left` and `right`, T holds minus half the squared distances.
    """
    if finish == EXP:
        return np.exp(T)
    if finish == EXP_MINUS:
        return np.exp(-T)
    if finish == INVERSE:
        return 1.0 / T
    if finish == POWER:
        return np.asarray((T + coef[0]) ** degree)
    if finish == POLE:
        return 1.0 / (1.0 - T)
    if finish == SERIES:
        return np.asarray(np.polynomial.polynomial.polyval(T, coef))
    if finish in _ARCS:
        c = np.clip(T, -1.0, 1.0)
        J = arc_values(finish - ARC0, np.sqrt((1 - c) * (1 + c)), c, np.pi - np.arccos(c))
        return np.asarray(left[:, None] * right * (J / np.pi))
    if finish < HALF_SQUARE:
        return T
    if left is not None:
        T -= left[:, None]
        T -= right
        np.minimum(T, 0.0, out=T)
    if finish == GAUSS:
        return np.asarray(np.exp(T, out=T))
    u = np.negative(T, out=T)
    if finish == HALF_SQUARE:
        return u
    if finish == MATERN1:  # in place: every new array costs as much as these
        np.negative(np.sqrt(u, out=u), out=u)
        return np.asarray(np.exp(u, out=u))
    s = np.sqrt(u)
    if finish == MATERN3:
        u[:] = s
    else:
        u /= 3.0
        u += s
    u += 1.0
    u *= np.exp(np.negative(s, out=s), out=s)
    return u


# Blocks


@contextmanager
def blas_products(*, out: AnyArray | None = None, compiled: bool = False) -> Iterator[None]:
    """Let BLAS multiply dense rows in this thread within the context; NumPy does the rest.

    The values of the next block are written into `out`, if its shape and type fit. With
    `compiled`, compiled loops do the rest, in less than half the time; otherwise nothing is
    compiled. BLAS is up to twice as fast, below 30 columns, but the bits of an entry then also
    depend on the shape of its block.
    """
    before = [getattr(_mode, name, None) for name in ("blas", "out", "compiled")]
    _mode.blas, _mode.out, _mode.compiled = True, out, compiled
    try:
        yield
    finally:
        _mode.blas, _mode.out, _mode.compiled = before


def _scratch(name: str, n: int, m: int, dtype: Any) -> AnyArray:
    """Return an array (n, m) of this thread, which the next call with this name overwrites.

    The first touch of new memory would cost more than the values of a tile.
    """
    kept = getattr(_mode, name, None)
    size = n * m * np.dtype(dtype).itemsize
    if size > _KEPT_BYTES:
        return np.empty((n, m), dtype)
    if kept is None:
        kept = np.empty(_KEPT_BYTES, np.uint8)
        setattr(_mode, name, kept)
    return np.asarray(kept[:size].view(dtype).reshape(n, m))


def _second(form: int, values: AnyArray) -> AnyArray:
    """Return what a form needs beside the entries, in their shape, or the entries."""
    if form == COSH:
        return np.asarray(1 / (1 + values), values.dtype)
    if form == SHANNON and values.dtype == np.float32:
        copy = np.array(values, order="C")
        out = np.empty_like(copy)
        log2_flat(copy.reshape(-1), out.reshape(-1))
        return out
    return values


def _accumulate(
    form: int, A: AnyArray, A2: AnyArray, k0: int, P: AnyArray, depth: int, T: AnyArray
) -> None:
    if form == DOT and T.shape[1] == WIDTH:
        _dots(A, k0, P, depth, T)
    else:
        _columns(form, A, A2, k0, P, _second(form, P), depth, T)


def _by_blas(
    A: AnyArray, B: AnyArray, finish: int, numbers: AnyArray, degree: int, left: AnyArray,
    right: AnyArray, out: AnyArray,
) -> None:  # fmt: skip
    """Write the kernel values of dense rows to `out` (n_A, n_B); BLAS computes the products."""
    compiled = out.dtype == np.float32 and getattr(_mode, "compiled", False)
    n, narrow = len(A), out.dtype != A.dtype
    for j in range(0, len(B), WIDTH):
        b, behind = B[j : j + WIDTH], right[j : j + WIDTH]
        values = out[:, j : j + WIDTH]
        if compiled and not narrow:
            np.matmul(A, b.T, out=values)
            continue
        T = _scratch("products", n, len(b), A.dtype)
        np.matmul(A, b.T, out=T)
        if compiled:
            _narrow(T, left, behind, out, j)
            continue
        ends: tuple[Any, Any] = left, behind
        if narrow:
            T -= left[:, None]
            T -= behind
            products, T = T, _scratch("values", n, len(b), out.dtype)
            T[:] = np.minimum(products, 0.0, out=products)
            ends = None, None
        values[:] = _finish_plainly(T, finish, numbers, degree, *ends)
    if finish != RAW and compiled:
        if narrow:
            left, right = np.zeros(n, np.float32), np.zeros(len(B), np.float32)
        _finish(out, finish, numbers, degree, left, right)


def _dense(A: AnyArray, B: AnyArray, form: int, out: AnyArray, emit: Any) -> None:
    """Call `emit` with each tile of sums of dense rows and its slices of A and B.

    A whole tile, as most of a prediction are, is accumulated in `out` itself.
    """
    n, d = A.shape
    padded = -(-n // _PAD) * _PAD
    rows = np.zeros((padded, d), A.dtype)
    rows[:n] = A
    rows2 = _second(form, rows)
    whole = (out.shape, out.dtype) == ((padded, WIDTH), A.dtype)
    T = out if whole else _scratch("sums", padded, WIDTH, A.dtype)
    P = np.zeros((min(d, DEPTH), WIDTH), A.dtype)
    for j in range(0, B.shape[0], WIDTH):
        m = min(WIDTH, B.shape[0] - j)
        T[:] = form >= LORENTZ
        for k in range(0, d, DEPTH):
            depth = min(DEPTH, d - k)
            P[:depth, :m] = B[j : j + m, k : k + depth].T  # what is behind is not emitted
            _accumulate(form, rows, rows2, k, P, depth, T)
        emit(T, slice(0, n), slice(j, j + m))


def _used(*parts: Matrix) -> IntArray:
    """Return the columns with stored entries in any part; all columns if a part is dense."""
    d = parts[0].shape[1]
    if not all(sp.issparse(part) for part in parts):
        return np.arange(d)
    mask = np.zeros(d, bool)
    for part in parts:
        mask[part.indices] = True
    return np.flatnonzero(mask)


def _panel(X: Matrix, columns: IntArray, place: IntArray, width: int) -> AnyArray:
    """Return some columns of n rows, transposed to (n_columns, width) and padded with zeros."""
    n = X.shape[0]
    P = np.zeros((len(columns), width), X.dtype)
    if not sp.issparse(X):
        P[:, :n] = X.T
    else:
        P[place[X.indices], np.repeat(np.arange(n), np.diff(X.indptr))] = X.data
    return P


def _places(columns: IntArray, d: int) -> IntArray:
    place = np.full(d, -1, np.int64)
    place[columns] = np.arange(len(columns))
    return place


def _by_used_columns(A: Matrix, B: Matrix, form: int, emit: Any) -> None:
    """Do as :func:`_dense` where A or B is CSR; a tile is dense in the columns that it uses."""
    for j in range(0, B.shape[0], _SPARSE_WIDTH):
        b = B[j : j + _SPARSE_WIDTH]
        for i in range(0, A.shape[0], _SPARSE_ROWS):
            a = A[i : i + _SPARSE_ROWS]
            columns = _used(a, b)
            place = _places(columns, A.shape[1])
            rows = np.ascontiguousarray(_panel(a, columns, place, a.shape[0]).T)
            P = _panel(b, columns, place, _SPARSE_WIDTH)
            T = np.full((len(rows), _SPARSE_WIDTH), form >= LORENTZ, A.dtype)
            _accumulate(form, rows, _second(form, rows), 0, P, len(columns), T)
            emit(T, slice(i, i + len(rows)), slice(j, j + b.shape[0]))


def _by_nonzeros(A: Matrix, B: Matrix, form: int, emit: Any) -> None:
    """Do as :func:`_dense` for CSR rows A, entry by entry, and rows B, dense or CSR."""
    d = A.shape[1]
    narrow = sp.issparse(B) or d > _DENSE_COLUMNS
    width = _SPARSE_WIDTH if narrow else WIDTH
    data2 = _second(form, A.data)
    for j in range(0, B.shape[0], width):
        b = B[j : j + width]
        columns = _used(b)
        place = _places(columns, d)
        P = _panel(b, columns, place, width)
        T = np.zeros((A.shape[0], width), A.dtype)
        csr = A.indptr, A.indices, A.data, data2
        _nonzeros(form, *csr, place, P, _second(form, P), T)
        emit(T, slice(0, A.shape[0]), slice(j, j + b.shape[0]))


def block(
    A: Matrix,
    B: Matrix,
    form: int,
    finish: int = RAW,
    *,
    coef: Sequence[float] = (),
    degree: int = 1,
    left: Float64Array | None = None,
    right: Float64Array | None = None,
    narrow: bool = False,
) -> AnyArray:
    """Return values of all pairs of rows, shape (n_A, n_B), in one thread.

    Parameters
    ----------
    A, B : arrays or CSR (n_A, d), (n_B, d)
        Both float32 or both float64. CSR rows have sorted columns, none twice. Dense rows
        are taken fastest in Fortran order.
    form, finish : int
        Codes of this module.
    coef : sequence of float
        ``c_0`` of POWER or the coefficients of SERIES.
    degree : int >= 1
        n of POWER.
    left, right : float64 arrays (n_A,), (n_B,) or None
        Squared norms from :func:`squares` where the finish needs distances, squared sizes
        for ARC0, ARC1 and ARC2.
    narrow : bool
        Whether values of distances are wanted in float32 though rows are float64: only
        products and distances are then made in float64.

    Returns
    -------
    float32 array; float64 with float64 rows, unless `narrow`
    """
    n, m = A.shape[0], B.shape[0]
    narrow = narrow and A.dtype == np.float64 and finish > HALF_SQUARE
    dtype = np.dtype(np.float32) if narrow else A.dtype
    numbers = np.asarray(coef, dtype)
    lefts, rights = np.zeros(n, A.dtype), np.zeros(m, A.dtype)
    for numbers_of_rows, square in ((lefts, left), (rights, right)):
        if square is not None:
            numbers_of_rows[:] = np.sqrt(square) if finish in _ARCS else 0.5 * square
    dense = not (sp.issparse(A) or sp.issparse(B))
    if dense and form == DOT and getattr(_mode, "blas", False):
        given: AnyArray | None = _mode.out
        _mode.out = None  # other parts of a kernel take arrays of their own
        if given is None or (given.shape, given.dtype) != ((n, m), dtype):
            given = np.empty((n, m), dtype)
        _by_blas(A, B, finish, numbers, degree, lefts, rights, given)
        return given
    out = np.empty((n, m), dtype)
    swapped = form <= SHANNON and sp.issparse(B) and (not sp.issparse(A) or n < m)

    compiled = finish != RAW and (dtype == np.float32 or finish >= GAUSS)

    def emit(T: AnyArray, rows: slice, columns: slice) -> None:
        height, width = rows.stop - rows.start, columns.stop - columns.start
        if compiled:
            behind = np.zeros(T.shape[1], T.dtype)
            behind[:width] = (lefts if swapped else rights)[columns]
            ahead = (rights if swapped else lefts)[rows]
            T = T if T is out else T[:height]
            if narrow:
                sums, T = T, _scratch("values", len(T), T.shape[1], dtype)
                _narrow(sums, ahead, behind, T, 0)
                ahead, behind = np.zeros(len(T), dtype), np.zeros(T.shape[1], dtype)
            _finish(T, finish, numbers, degree, ahead, behind)
        if swapped:
            out[columns, rows] = T[:height, :width].T
        elif T is not out:
            out[rows, columns] = T[:height, :width]

    if dense:
        _dense(A, B, form, out, emit)
    elif form > SHANNON:
        _by_used_columns(A, B, form, emit)
    elif swapped:
        _by_nonzeros(B, A, form, emit)
    else:
        _by_nonzeros(A, B, form, emit)
    if compiled or finish == RAW:
        return out
    return _finish_plainly(out, finish, numbers, degree, lefts, rights)


@njit(nogil=True, cache=True)
def _pool(K: Any, u: Any, v: Any, out: Any) -> None:
    n, m = out.shape
    for p in range(u.shape[1]):
        for i in range(n):
            o = out[i]
            for q in range(v.shape[0]):
                w = u[i, p]
                row = K[p * n + i, q * m : (q + 1) * m]
                vq = v[q]
                for j in range(m):
                    o[j] += (w * vq[j]) * row[j]


def pool(K: AnyArray, u: Float64Array, v: Float64Array) -> Float64Array:
    """Return ``sum_pq u[i, p] v[j, q] K[p n + i, q m + j]``, u (n, P), v (m, Q): (n, m)."""
    out = np.zeros((len(u), len(v)))
    _pool(K, u, np.ascontiguousarray(v.T), out)
    return out
