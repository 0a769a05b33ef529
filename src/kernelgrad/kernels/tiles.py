r"""Tiles of exact kernels, for all pairs of rows, by the forms and finishes of `profiles`.

BLAS multiplies dense rows and SciPy sparse ones, and NumPy does the rest, so these compile
nothing, nor do ABSOLUTE and LORENTZ, unless many values are asked for; the other forms are
compiled loops. BLAS chooses the order of its sums, and with it the rounding, by the shape of a
product: the bits of an entry may depend on the rows beside its own. Callers that must always
get the same bits ask for tiles of a fixed grid, or for two to ALIKE rows at once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from kernelgrad.compute.compiling import njit, overload
from kernelgrad.compute.elementary import exp_flat, exp_wide, log2_flat
from kernelgrad.kernels import profiles
from kernelgrad.types import AnyArray, Float64Array, IntArray, Matrix

WIDTH = 512  # columns of a tile of many rows
_FEW = 2**14  # entries of the other rows up to which one row is not treated apart
ALIKE = 8  # a product of so many rows treats all of them alike (OpenBLAS up to AVX2)
_ENTRIES = 512 * WIDTH  # largest number of entries of a tile, unless it has more rows
_ENDS = 64  # rows from which norms are columns of a product: copies cost less than passes
_ZERO_DISTANCE = 4  # rounding units of the norms, below which a squared distance is 0
_STRIP = 2**15  # entries of a tile that are accumulated at once by NumPy
_SPARSE_WIDTH = 64  # columns of a tile whose panel holds the used columns of sparse rows
_SPARSE_ROWS = 32  # sparse rows that become dense at once against such a panel
_DENSE_COLUMNS = 4096  # up to here a panel of dense rows is WIDTH wide against sparse ones
_SCRATCH_BYTES = 2**21  # bytes of an array that a thread reuses: a tile in float64
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
    if form == profiles.CHI2:
        if a > 0:
            for j in range(t.size):
                low = a if a < w[j] else w[j]
                high = w[j] if a < w[j] else a
                t[j] += (low + low) * (high / (a + w[j]))
    elif form == profiles.LEAST:
        for j in range(t.size):
            t[j] += a if a < w[j] else w[j]
    elif form == profiles.ABSOLUTE:
        for j in range(t.size):
            t[j] += abs(a - w[j])
    elif form == profiles.ROOTS:
        for j in range(t.size):
            t[j] += np.sqrt(a + w[j])
    elif form == profiles.LORENTZ:
        for j in range(t.size):
            u = a - w[j]
            t[j] *= one + u * u
    elif form == profiles.SUMS:
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
            if form == profiles.SHANNON:
                _column_shannon(a, a2, P[k], P2[k], T[i], s, logs)
            else:
                _column(form, a, a2, P[k], P2[k], T[i])


@njit(nogil=True, cache=True)
def _absolute_columns(A: Any, P: Any, T: Any) -> None:
    """Do as :func:`_columns` for ABSOLUTE, which default fits need, four columns a pass."""
    d = P.shape[0]
    for i in range(A.shape[0]):
        for k in range(0, d - 3, 4):
            a, b, c, e = A[i, k], A[i, k + 1], A[i, k + 2], A[i, k + 3]
            for j in range(T.shape[1]):
                t = T[i, j] + abs(a - P[k, j])
                t += abs(b - P[k + 1, j])
                t += abs(c - P[k + 2, j])
                T[i, j] = t + abs(e - P[k + 3, j])
        for k in range(d - d % 4, d):
            a = A[i, k]
            for j in range(T.shape[1]):
                T[i, j] += abs(a - P[k, j])


@njit(nogil=True, cache=True, error_model="numpy")
def _nonzeros(
    form: int, indptr: Any, indices: Any, data: Any, data2: Any, positions: Any, P: Any,
    P2: Any, T: Any,
) -> None:  # fmt: skip
    """Add the terms of CSR rows and a panel P to T; `positions` (d,) holds rows of P, or -1."""
    s, logs = np.empty(T.shape[1], np.float32), np.empty(T.shape[1], np.float32)
    for i in range(T.shape[0]):
        for p in range(indptr[i], indptr[i + 1]):
            k = positions[indices[p]]
            if k >= 0 and form == profiles.SHANNON:
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
def _exponentials(T: Any, bits: Any) -> None:
    """Replace T by exp(T), row by row; `bits` (m,) is scratch."""
    for i in range(T.shape[0]):
        _exp(T[i], bits)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _matern(T: Any, order: int, bits: Any) -> None:
    """Turn minus half the squared distances T into a Matern kernel of `order` 0, 1 or 2."""
    factor = np.empty_like(T[0])
    for i in range(T.shape[0]):
        t = T[i]
        for j in range(t.size):
            s = np.sqrt(-t[j] if t[j] < _ZERO else _ZERO)
            t[j] = -s
            factor[j] = _ONE + s + (s * s / _THREE if order == 2 else _ZERO)
        _exp(t, bits)
        if order > 0:
            for j in range(t.size):
                t[j] *= factor[j]


def _bits(T: AnyArray) -> IntArray:
    return np.empty(T.shape[1], f"i{T.itemsize}")


def _write_exp(T: AnyArray, out: AnyArray, compiled: bool) -> None:
    """Write exp(T) to `out`; compiled loops overwrite T and take half the time."""
    if not compiled:
        np.exp(T, out=out)
        return
    _exponentials(T, _bits(T))
    if T is not out:
        out[:] = T


def _finish(
    T: AnyArray, finish: int, coef: Sequence[float], degree: int, left: AnyArray,
    right: AnyArray, out: AnyArray, compiled: bool,
) -> None:  # fmt: skip
    """Write the values of sums T (n, m), which are overwritten, to `out`."""
    if finish == profiles.EXP_ROOT:
        np.sqrt(T, out=T)
        finish = profiles.EXP_MINUS
    if finish in (profiles.EXP, profiles.EXP_MINUS):
        _write_exp(T if finish == profiles.EXP else np.negative(T, out=T), out, compiled)
    elif finish == profiles.POWER:
        T += float(coef[0])
        out[:] = profiles.power(T, degree)
    elif finish != profiles.RAW or T is not out:
        ends = left[:, None], right
        out[:] = profiles.values(np, T, *ends, finish=finish, coef=coef, degree=degree)


def _half_squares(
    A: Matrix, B: Matrix, left: AnyArray, right: AnyArray, T: AnyArray, *, rooted: bool
) -> None:
    """Write minus half the squared distances to T, from half the squared norms of rows.

    They are at most 0. Those that are about to be `rooted` are 0 up to the rounding of the
    norms, of whose root much would remain for equal rows.
    """
    if len(left) >= _ENDS and not (sp.issparse(A) or sp.issparse(B)):
        ahead = np.column_stack([A, -left, np.full_like(left, -1)])
        np.matmul(ahead, np.column_stack([B, np.ones_like(right), right]).T, out=T)
    else:
        _accumulate(A, B, profiles.DOT, T, compiled=False)
        T -= left[:, None]
        T -= right
    top, unit = T.max(initial=-np.inf), _ZERO_DISTANCE * np.finfo(T.dtype).eps
    if rooted and top > -unit * (left.max(initial=0) + right.max(initial=0)):
        T[-unit * (left[:, None] + right) < T] = 0
    elif top > 0:
        np.minimum(T, np.zeros_like(right), out=T)  # twice as fast as with a number


def _finish_distances(T: AnyArray, finish: int, out: AnyArray, compiled: bool) -> None:
    """Write functions of distances to `out`; T, minus half their squares, is overwritten."""
    if finish == profiles.GAUSS:
        _write_exp(T, out, compiled)
        return
    if compiled and finish > profiles.HALF_SQUARE:
        _matern(T, finish - profiles.MATERN1, _bits(T))
        if T is not out:
            out[:] = T
        return
    u = np.negative(T, out=out if finish == profiles.HALF_SQUARE else T)
    if finish == profiles.HALF_SQUARE:
        return
    s = np.sqrt(u, out=_scratch("roots", u.shape, u.dtype))
    if finish == profiles.MATERN3:
        np.add(s, 1, out=u)
    elif finish == profiles.MATERN5:
        u *= 1 / 3
        u += s
        u += 1
    np.exp(np.negative(s, out=s), out=out if finish == profiles.MATERN1 else s)
    if finish != profiles.MATERN1:
        np.multiply(u, s, out=out)


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
    if form == profiles.COSH:
        return np.asarray(1 / (1 + values), values.dtype)
    if form == profiles.SHANNON and values.dtype == np.float32:
        copy = np.array(values, order="C")
        out = np.empty_like(copy)
        log2_flat(copy.reshape(-1), out.reshape(-1))
        return out
    return values


def _products(A: AnyArray, B: AnyArray, T: AnyArray) -> None:
    """Write ``A B^T`` to T; fewer than ALIKE rows are multiplied as so many.

    One row is a vector where that takes a fifth of the time: its last bits may be others.
    """
    n = len(A)
    if n >= ALIKE or (n == 1 and B.size > _FEW):
        np.matmul(A, B.T, out=T)
        return
    rows = np.zeros((ALIKE, A.shape[1]), A.dtype)
    rows[:n] = A
    T[:] = (rows @ B.T)[:n]


def _dense(form: int, A: AnyArray, P: AnyArray, T: AnyArray, *, compiled: bool) -> None:
    """Write the sums of dense rows A and a panel P (d, m) to T (n, m), for any form but DOT."""
    if form == profiles.ABSOLUTE and not compiled and len(A) <= ALIKE and P.size > _FEW:
        for row, sums in zip(A, T, strict=True):
            differences = P - row[:, None]
            np.abs(differences, out=differences).sum(axis=0, out=sums)
        return
    if form == profiles.ABSOLUTE and not compiled:
        T[:] = cdist(*(np.array(rows, np.float64, order="C") for rows in (A, P.T)), "cityblock")
        return
    if compiled or form != profiles.LORENTZ:
        sums = T if T.flags.c_contiguous else np.empty(T.shape, T.dtype)
        sums[:] = form >= profiles.LORENTZ
        A, P = np.ascontiguousarray(A), np.ascontiguousarray(P)
        if form == profiles.ABSOLUTE:
            _absolute_columns(A, P, sums)
        else:
            _columns(form, A, _second(form, A), P, _second(form, P), sums)
        if sums is not T:
            T[:] = sums
        return
    step = max(1, _STRIP // max(1, T.shape[1]))
    for a in range(0, len(A), step):
        rows, sums = A[a : a + step], T[a : a + step]
        term = _scratch("terms", sums.shape, T.dtype)
        sums[:] = 1
        for k in range(len(P)):
            np.subtract(rows[:, k, None], P[k], out=term)
            np.multiply(term, term, out=term)
            term += 1
            sums *= term


def _used(*parts: Matrix) -> IntArray:
    """Return the columns with stored entries in any part; all columns if a part is dense."""
    d = parts[0].shape[1]
    if not all(sp.issparse(part) for part in parts):
        return np.arange(d)
    mask = np.zeros(d, bool)
    for part in parts:
        mask[part.indices] = True
    return np.flatnonzero(mask)


def _panel(X: Matrix, columns: IntArray, positions: IntArray) -> AnyArray:
    """Return the given columns of n rows, transposed to (n_columns, n)."""
    if not sp.issparse(X):
        return np.ascontiguousarray(X.T)
    n = X.shape[0]
    P = np.zeros((len(columns), n), X.dtype)
    P[positions[X.indices], np.repeat(np.arange(n), np.diff(X.indptr))] = X.data
    return P


def _positions(columns: IntArray, d: int) -> IntArray:
    """Return the position of each of d columns among the given ones, or -1."""
    positions = np.full(d, -1, np.int64)
    positions[columns] = np.arange(len(columns))
    return positions


def _by_used_columns(A: Matrix, B: Matrix, form: int, T: AnyArray, *, compiled: bool) -> None:
    """Do as :func:`_dense` where A or B is CSR; a tile is dense in the columns that it uses."""
    for j in range(0, B.shape[0], _SPARSE_WIDTH):
        b = B[j : j + _SPARSE_WIDTH]
        for i in range(0, A.shape[0], _SPARSE_ROWS):
            a = A[i : i + _SPARSE_ROWS]
            columns = _used(a, b)
            positions = _positions(columns, A.shape[1])
            rows, P = (_panel(x, columns, positions) for x in (a, b))
            part = T[i : i + a.shape[0], j : j + b.shape[0]]
            _dense(form, rows.T, P, part, compiled=compiled)


def _by_nonzeros(A: Matrix, B: Matrix, form: int, T: AnyArray) -> None:
    """Write the sums of CSR rows A, entry by entry, and rows B, dense or CSR, to T."""
    d = A.shape[1]
    narrow = sp.issparse(B) or d > _DENSE_COLUMNS
    width = _SPARSE_WIDTH if narrow else WIDTH
    data2 = None if form == profiles.DOT else _second(form, A.data)
    for j in range(0, B.shape[0], width):
        b = B[j : j + width]
        columns = _used(b)
        positions = _positions(columns, d)
        P = _panel(b, columns, positions)
        if form == profiles.DOT:  # entries of other columns meet a row of zeros
            P = np.vstack([P, np.zeros((1, P.shape[1]), P.dtype)])
            entries = (
                A.data,
                np.where(positions < 0, len(columns), positions)[A.indices],
                A.indptr,
            )
            T[:, j : j + width] = sp.csr_matrix(entries, (A.shape[0], len(P))) @ P
            continue
        sums = np.zeros((A.shape[0], b.shape[0]), A.dtype)
        csr = A.indptr, A.indices, A.data, data2
        _nonzeros(form, *csr, positions, P, _second(form, P), sums)
        T[:, j : j + width] = sums


def _accumulate(A: Matrix, B: Matrix, form: int, T: AnyArray, *, compiled: bool) -> None:
    """Write the sums of all pairs of rows to T (n_A, n_B)."""
    if not (sp.issparse(A) or sp.issparse(B)):
        if form == profiles.DOT:
            _products(A, B, T)
        else:
            _dense(form, A, B.T, T, compiled=compiled)
    elif form > profiles.SHANNON:
        _by_used_columns(A, B, form, T, compiled=compiled)
    elif sp.issparse(B) and (not sp.issparse(A) or A.shape[0] < B.shape[0]):
        _by_nonzeros(B, A, form, T.T)
    else:
        _by_nonzeros(A, B, form, T)


def block(
    A: Matrix, B: Matrix, form: int, finish: int = profiles.RAW, *, coef: Sequence[float] = (),
    degree: int = 1, left: Float64Array | None = None, right: Float64Array | None = None,
    dtype: Any = None, out: AnyArray | None = None, compiled: bool = False,
) -> AnyArray:  # fmt: skip
    """Return values of all pairs of rows, shape (n_A, n_B), in one thread.

    Rows are both float32 or both float64; CSR rows have sorted columns, none twice, and dense
    ones are taken fastest in Fortran order. `form` and `finish` are codes of `profiles`, `coef`
    ``c_0`` of POWER or the coefficients of SERIES, `degree` n of POWER. `left` (n_A,) and
    `right` (n_B,) are squared norms from :func:`squares` where the finish needs distances,
    squared sizes for ARC0, ARC1 and ARC2. Of float64 rows, values of `dtype` float32 are
    functions in float32 of products and distances in float64. `compiled` loops, for many
    values, take half the time of NumPy.
    """
    n, m = A.shape[0], B.shape[0]
    dtype = np.dtype(dtype or A.dtype)
    out = np.empty((n, m), dtype) if out is None else out
    lefts, rights = np.zeros(n, A.dtype), np.zeros(m, A.dtype)
    for ends, square in ((lefts, left), (rights, right)):
        if square is not None:
            ends[:] = np.sqrt(square) if finish in profiles.ARCS else 0.5 * square
    width = m if sp.issparse(B) else max(WIDTH, _ENTRIES // max(1, n))
    for j in range(0, m, max(1, width)):
        columns = slice(j, min(m, j + width))
        values, b = out[:, columns], B if width >= m else B[columns]
        T = values
        if out.dtype != A.dtype or (compiled and not values.flags.c_contiguous):
            T = _scratch("sums", values.shape, A.dtype)
        if finish < profiles.HALF_SQUARE:
            _accumulate(A, b, form, T, compiled=compiled)
            _finish(T, finish, coef, degree, lefts, rights[columns], values, compiled)
            continue
        rooted = finish in (profiles.HALF_SQUARE, profiles.MATERN1)
        _half_squares(A, b, lefts, rights[columns], T, rooted=rooted)
        if dtype != T.dtype:
            T, wide = _scratch("distances", T.shape, dtype), T
            with np.errstate(over="ignore"):  # rows so far apart have kernel values of 0
                np.copyto(T, wide, casting="same_kind")
        _finish_distances(T, finish, values, compiled)
    return out
