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

BLAS multiplies dense rows and SciPy sparse ones, and NumPy does the rest, so these compile
nothing, nor do ABSOLUTE and LORENTZ, unless many values are asked for; the other forms are
compiled loops. BLAS chooses the
order of its sums, and with it the rounding, by the shape of a product: the bits of an entry
may depend on the rows beside its own. Callers that must always get the same bits ask for
tiles of a fixed grid, or for up to ALIKE rows at once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute.compiling import njit, overload
from kernelgrad.compute.elementary import exp_flat, exp_wide, log2_flat
from kernelgrad.types import AnyArray, Float64Array, IntArray, Matrix

DOT, CHI2, LEAST, SHANNON, ABSOLUTE, ROOTS, LORENTZ, SUMS, COSH = range(9)
RAW, EXP, EXP_MINUS, INVERSE, POWER, POLE, SERIES, ARC0, ARC1, ARC2 = range(10)
_ARCS = ARC0, ARC1, ARC2
HALF_SQUARE, GAUSS, MATERN1, MATERN3, MATERN5 = range(10, 15)

WIDTH = 512  # columns of a tile of many rows
ALIKE = 8  # a product of so many rows treats all of them alike (OpenBLAS up to AVX2)
_ENTRIES = 512 * WIDTH  # of a tile, at most, unless it has more rows
_ZERO_DISTANCE = 4  # rounding units of the norms, below which a squared distance is 0
_STRIP = 2**15  # entries of a tile that are accumulated at once by NumPy
_SPARSE_WIDTH = 64  # of a tile whose panel holds the used columns of sparse rows
_SPARSE_ROWS = 32  # made dense at once against such a panel
_DENSE_COLUMNS = 4096  # up to here a panel of dense rows is WIDTH wide against sparse ones

_SCRATCH_BYTES = 2**21  # of an array that a thread keeps: a tile in float64
_thread = threading.local()

_f = np.float32
_FAST = {"contract", "nsz", "arcp"}
_ZERO, _HALF, _ONE, _THREE = _f(0), _f(0.5), _f(1), _f(3)


# Accumulation over columns. Where there are quotients error_model="numpy" leaves out the checks
# for a divisor of 0, which would keep loops from being vectorised.


@njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
def _column(form: int, a: Any, a2: Any, w: Any, w2: Any, t: Any) -> None:
    """Add the terms of one column to t (m,): a is the entry of one row, w (m,) those of others.

    Every form but DOT and SHANNON is handled. For COSH a2 and w2 are ``1 / (1 + a)`` and
    ``1 / (1 + w)``. Numbers have the type of t: a literal would turn float32 into float64.
    """
    one = t.dtype.type(1)
    half = t.dtype.type(0.5)
    if form == CHI2:
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
def _columns(form: int, A: Any, A2: Any, P: Any, P2: Any, T: Any) -> None:
    """Add the terms of rows A (n, d) and a panel P (d, m) to T (n, m)."""
    s, logs = np.empty(T.shape[1], np.float32), np.empty(T.shape[1], np.float32)
    for i in range(A.shape[0]):
        for k in range(P.shape[0]):
            a, a2 = A[i, k], A2[i, k]
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


def squares(X: Matrix) -> Float64Array:
    """Return ``|x|^2`` of rows (n,), summed in float64."""
    if sp.issparse(X):
        return np.asarray(X.astype(np.float64).power(2).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64))


def _exp(t: AnyArray, bits: AnyArray) -> None:
    """Replace t by exp(t) in compiled loops; `bits` holds integers as wide as the entries."""


@overload(_exp)
def _exp_of_type(t: Any, bits: Any) -> Any:
    if t.dtype.bitwidth == 64:
        return lambda t, bits: exp_wide(t, bits)
    return lambda t, bits: exp_flat(t, bits)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _gauss(T: Any, left: Any, right: Any, bits: Any) -> None:
    """Turn inner products T into the values of GAUSS, in place; `bits` (m,) is scratch."""
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
        t, a = T[i], left[i]
        for j in range(t.size):
            u = (a + right[j]) - t[j]
            s = np.sqrt(u if u > _ZERO else _ZERO)
            t[j] = -s
            keep[j] = _ONE + s + (s * s / _THREE if order == 2 else _ZERO)
        _exp(t, bits)
        if order > 0:
            for j in range(t.size):
                t[j] *= keep[j]


def arc_values(
    order: int, sine: Float64Array, c: Float64Array, rest: Float64Array
) -> Float64Array:
    """Return J of the arc-cosine kernel; c is the cosine of an angle, `rest` pi minus it."""
    if order == 0:
        return rest
    return sine + rest * c if order == 1 else 3 * sine * c + rest * (1 + 2 * c**2)


def _finish(
    T: AnyArray, finish: int, coef: AnyArray, degree: int, left: AnyArray, right: AnyArray,
    dtype: np.dtype[Any], out: AnyArray, compiled: bool,
) -> None:  # fmt: skip
    """Write the values of sums T (n, m), which are overwritten, to `out`.

    Functions of distances are evaluated in `dtype`, others in the precision of T.
    """
    if finish == RAW:
        out[:] = T
    elif finish == EXP:
        np.exp(T, out=out)
    elif finish == EXP_MINUS:
        np.negative(T, out=T)
        if compiled:
            _exponentials(T, GAUSS, np.zeros_like(left), np.zeros_like(right), out)
        else:
            np.exp(T, out=out)
    elif finish == INVERSE:
        np.divide(1.0, T, out=out)
    elif finish == POWER:
        T += coef[0]
        out[:] = _power(T, degree)
    elif finish == POLE:
        np.divide(1.0, np.subtract(1.0, T, out=T), out=out)
    elif finish == SERIES:
        out[:] = np.polynomial.polynomial.polyval(T, coef)
    elif finish in _ARCS:
        c = np.clip(T, -1.0, 1.0, out=T)
        J = arc_values(finish - ARC0, np.sqrt((1 - c) * (1 + c)), c, np.pi - np.arccos(c))
        np.multiply(left[:, None] * right, J / np.pi, out=out)
    else:
        _of_distances(T, finish, left, right, dtype, out, compiled)


def _of_distances(
    T: AnyArray, finish: int, left: AnyArray, right: AnyArray, dtype: np.dtype[Any],
    out: AnyArray, compiled: bool,
) -> None:  # fmt: skip
    compiled = compiled and finish > HALF_SQUARE
    rooted = finish in (HALF_SQUARE, MATERN1)
    if compiled and dtype == T.dtype and not rooted:
        _exponentials(T, finish, left, right, out)
        return
    T -= left[:, None]
    T -= right
    if rooted:  # a root would make much of what rounding leaves of the distance of equal rows
        rounding = _ZERO_DISTANCE * np.finfo(T.dtype).eps * (left[:, None] + right)
        T[rounding > -T] = 0.0
    u = T if dtype == T.dtype else _scratch("distances", T.shape, dtype)
    np.minimum(T, np.zeros(T.shape[1], T.dtype), out=u)  # twice as fast as with a number
    if compiled:
        _exponentials(u, finish, np.zeros(len(u), dtype), np.zeros(u.shape[1], dtype), out)
        return
    if finish == GAUSS:
        np.exp(u, out=out)
        return
    np.negative(u, out=u)
    if finish == HALF_SQUARE:
        out[:] = u
        return
    if finish == MATERN1:
        s = np.sqrt(u, out=u)
        np.exp(np.negative(s, out=s), out=out)
        return
    decay = np.sqrt(u, out=_scratch("decay", u.shape, u.dtype))
    if finish == MATERN3:
        u[:] = decay
    else:
        u /= 3.0
        u += decay
    u += 1.0
    np.exp(np.negative(decay, out=decay), out=decay)
    np.multiply(u, decay, out=out)


def _exponentials(
    T: AnyArray, finish: int, left: AnyArray, right: AnyArray, out: AnyArray
) -> None:
    """Do as :func:`_of_distances` with compiled loops, in half the time."""
    bits = np.empty(T.shape[1], f"i{T.itemsize}")
    if finish == GAUSS:
        _gauss(T, left, right, bits)
    else:
        _matern(T, left, right, finish - MATERN1, bits)
    if T is not out:
        out[:] = T


def _power(T: AnyArray, n: int) -> AnyArray:
    """Return ``T^n`` by repeated squaring, which is faster than ``T**n`` for n > 2."""
    value = T if n & 1 else None
    while n := n >> 1:
        T = T * T
        if n & 1:
            value = T if value is None else value * T
    assert value is not None
    return value


# Blocks


def _scratch(name: str, shape: tuple[int, ...], dtype: Any) -> AnyArray:
    """Return an array of this thread, which the next call with this name overwrites.

    The first touch of new memory would cost more than the values of a tile.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size > _SCRATCH_BYTES:
        return np.empty(shape, dtype)
    memory = getattr(_thread, name, None)
    if memory is None:
        memory = np.empty(_SCRATCH_BYTES, np.uint8)
        setattr(_thread, name, memory)
    return np.asarray(memory[:size].view(dtype).reshape(shape))


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


def _products(A: AnyArray, B: AnyArray, T: AnyArray) -> None:
    """Write ``A B^T`` to T; fewer than ALIKE rows are multiplied as so many."""
    n = len(A)
    if n >= ALIKE:
        np.matmul(A, B.T, out=T)
        return
    rows = np.zeros((ALIKE, A.shape[1]), A.dtype)
    rows[:n] = A
    T[:] = (rows @ B.T)[:n]


def _dense(form: int, A: AnyArray, P: AnyArray, T: AnyArray, *, compiled: bool) -> None:
    """Write the sums of dense rows A and a panel P (d, m) to T (n, m), for any form but DOT."""
    if compiled or form not in (ABSOLUTE, LORENTZ):
        sums = T if T.flags.c_contiguous else np.empty(T.shape, T.dtype)
        sums[:] = form >= LORENTZ
        A, P = np.ascontiguousarray(A), np.ascontiguousarray(P)
        _columns(form, A, _second(form, A), P, _second(form, P), sums)
        if sums is not T:
            T[:] = sums
        return
    step = max(1, _STRIP // max(1, T.shape[1]))
    for a in range(0, len(A), step):
        rows = A[a : a + step]
        sums, term = (_scratch(name, (len(rows), T.shape[1]), T.dtype) for name in ("a", "b"))
        sums[:] = form == LORENTZ
        for k in range(len(P)):
            np.subtract(rows[:, k, None], P[k], out=term)
            if form == ABSOLUTE:
                sums += np.abs(term, out=term)
            else:
                np.multiply(term, term, out=term)
                term += 1
                sums *= term
        T[a : a + step] = sums


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


def _by_used_columns(A: Matrix, B: Matrix, form: int, T: AnyArray, *, compiled: bool) -> None:
    """Do as :func:`_dense` where A or B is CSR; a tile is dense in the columns that it uses."""
    for j in range(0, B.shape[0], _SPARSE_WIDTH):
        b = B[j : j + _SPARSE_WIDTH]
        for i in range(0, A.shape[0], _SPARSE_ROWS):
            a = A[i : i + _SPARSE_ROWS]
            columns = _used(a, b)
            place = _places(columns, A.shape[1])
            rows, P = (_panel(x, columns, place, x.shape[0]) for x in (a, b))
            part = T[i : i + a.shape[0], j : j + b.shape[0]]
            _dense(form, rows.T, P, part, compiled=compiled)


def _by_nonzeros(A: Matrix, B: Matrix, form: int, T: AnyArray) -> None:
    """Write the sums of CSR rows A, entry by entry, and rows B, dense or CSR, to T."""
    d = A.shape[1]
    narrow = sp.issparse(B) or d > _DENSE_COLUMNS
    width = _SPARSE_WIDTH if narrow else WIDTH
    data2 = None if form == DOT else _second(form, A.data)
    for j in range(0, B.shape[0], width):
        b = B[j : j + width]
        columns = _used(b)
        place = _places(columns, d)
        P = _panel(b, columns, place, b.shape[0])
        if form == DOT:  # entries of other columns meet a row of zeros
            P = np.vstack([P, np.zeros((1, P.shape[1]), P.dtype)])
            entries = A.data, np.where(place < 0, len(columns), place)[A.indices], A.indptr
            T[:, j : j + width] = sp.csr_matrix(entries, (A.shape[0], len(P))) @ P
            continue
        sums = np.zeros((A.shape[0], b.shape[0]), A.dtype)
        csr = A.indptr, A.indices, A.data, data2
        _nonzeros(form, *csr, place, P, _second(form, P), sums)
        T[:, j : j + width] = sums


def _accumulate(A: Matrix, B: Matrix, form: int, T: AnyArray, *, compiled: bool) -> None:
    """Write the sums of all pairs of rows to T (n_A, n_B)."""
    if not (sp.issparse(A) or sp.issparse(B)):
        if form == DOT:
            _products(A, B, T)
        else:
            _dense(form, A, B.T, T, compiled=compiled)
    elif form > SHANNON:
        _by_used_columns(A, B, form, T, compiled=compiled)
    elif sp.issparse(B) and (not sp.issparse(A) or A.shape[0] < B.shape[0]):
        _by_nonzeros(B, A, form, T.T)
    else:
        _by_nonzeros(A, B, form, T)


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
    dtype: Any = None,
    out: AnyArray | None = None,
    compiled: bool = False,
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
    dtype : dtype or None
        Precision of the values, by default that of the rows. With float64 rows and float32
        values products and distances are made in float64, and functions of them in float32.
    out : array (n_A, n_B) or None
        Where the values are written, float32 or float64.
    compiled : bool, default=False
        Whether compiled loops replace NumPy, for many values: they take half the time.
    """
    n, m = A.shape[0], B.shape[0]
    dtype = np.dtype(dtype or A.dtype)
    out = np.empty((n, m), dtype) if out is None else out
    numbers = np.asarray(coef, A.dtype)
    lefts, rights = np.zeros(n, A.dtype), np.zeros(m, A.dtype)
    for numbers_of_rows, square in ((lefts, left), (rights, right)):
        if square is not None:
            numbers_of_rows[:] = np.sqrt(square) if finish in _ARCS else 0.5 * square
    width = m if sp.issparse(B) else max(WIDTH, _ENTRIES // max(1, n))
    for j in range(0, m, max(1, width)):
        columns = slice(j, min(m, j + width))
        values = out[:, columns]
        T = values
        if out.dtype != A.dtype or (compiled and not values.flags.c_contiguous):
            T = _scratch("sums", values.shape, A.dtype)
        _accumulate(A, B if width == m else B[columns], form, T, compiled=compiled)
        _finish(T, finish, numbers, degree, lefts, rights[columns], dtype, values, compiled)
    return out


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
