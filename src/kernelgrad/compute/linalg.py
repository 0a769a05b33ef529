"""Matrix routines that several families share: Gram matrices, CSR products, hashes, buffers."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numba import njit

from kernelgrad._typing import AnyArray, Float32Array, Float64Array, FloatArray, Matrix
from kernelgrad.compute.threads import parallel_for

_PANEL = 128  # columns of one task of a Gram matrix
_COLUMNS = 64  # of row-major rows that are read together
_FAST = {"contract", "nsz", "arcp"}


def gram(P: FloatArray) -> Float64Array:
    """Return the lower triangle of ``P^T P`` (products in the precision of P, then float64).

    Panels of columns are the tasks; each is one product over all rows, so the number of
    threads changes nothing.
    """
    m = P.shape[1]
    H = np.zeros((m, m))

    def task(a: int) -> None:
        j0, j1 = a * _PANEL, min(m, (a + 1) * _PANEL)
        H[j0:, j0:j1] = P[:, j0:].T @ P[:, j0:j1]

    parallel_for(-(-m // _PANEL), task)
    return H


def solve_damped(H: Float64Array, damping: float, G: FloatArray) -> Float64Array:
    """Return ``(H + damping I)^-1 G`` by Cholesky in float64.

    `H` holds the lower triangle of a positive semi-definite matrix known to float32
    rounding. Where rounding made it indefinite, damping grows tenfold until it is not.
    """
    diagonal = H.diagonal().copy()
    floor = float(np.finfo(np.float32).eps) * max(float(diagonal.max(initial=0.0)), 1e-30)
    damping = max(float(damping), floor)
    while True:
        work = H.copy()
        work[np.diag_indices_from(work)] = diagonal + damping
        try:
            factor = scipy.linalg.cho_factor(
                work, lower=True, overwrite_a=True, check_finite=False
            )
        except scipy.linalg.LinAlgError:
            damping *= 10.0
            continue
        solution: Float64Array = scipy.linalg.cho_solve(
            factor, G.astype(np.float64), check_finite=False
        )
        return solution


def untouched(n_rows: int, n_columns: int) -> Float32Array:
    """Return an array (n_rows, n_columns) whose pages take memory once they are written.

    NumPy asks for huge pages, which the system clears as a whole and may have to assemble
    first: a buffer that fills slowly is then up to four times slower to write, and takes
    memory for what is never used.
    """
    size = max(1, 4 * n_rows * n_columns)
    if hasattr(mmap, "MAP_PRIVATE"):
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:  # Windows
        pages = mmap.mmap(-1, size)
    flat: Float32Array = np.frombuffer(pages, np.float32, count=n_rows * n_columns)
    return flat.reshape(n_rows, n_columns)


@njit(nogil=True, cache=True, fastmath=_FAST)
def csr_times_tile(
    indptr: Any, indices: Any, data: Any, r0: int, r1: int, W: Any, P: Any
) -> None:
    """P[i] = sum_k X[r0 + i, k] W[k] for rows r0..r1; W (d, F) and P (rows, F) float32."""
    F = W.shape[1]
    for i in range(r1 - r0):
        o = P[i]
        for k in range(F):
            o[k] = 0
        p = indptr[r0 + i]
        stop = indptr[r0 + i + 1]
        while p + 4 <= stop:  # four non-zeros a pass: a quarter of the traffic on o
            a, b, c, d = data[p], data[p + 1], data[p + 2], data[p + 3]
            wa, wb = W[indices[p]], W[indices[p + 1]]
            wc, wd = W[indices[p + 2]], W[indices[p + 3]]
            for k in range(F):
                o[k] += a * wa[k] + b * wb[k] + c * wc[k] + d * wd[k]
            p += 4
        while p < stop:
            v = data[p]
            w = W[indices[p]]
            for k in range(F):
                o[k] += v * w[k]
            p += 1


@njit(nogil=True, cache=True)
def _factor(column: int) -> Any:
    """Return an odd 64-bit number of a column: two rounds of a bijective mixer."""
    z = np.uint64(column) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x2545F4914F6CDD1D)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)


@njit(nogil=True, cache=True)
def _mixed(value: Any, factor: Any) -> Any:
    z = np.uint64(value) * factor
    return (z ^ (z >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)


@njit(nogil=True, cache=True)
def _columns(bits: Any, first: int, out: Any) -> None:
    for k in range(bits.shape[1]):
        factor = _factor(first + k)
        for i in range(bits.shape[0]):
            if bits[i, k] != 0:  # zeros count nothing, so that sparse rows agree
                out[i] += _mixed(bits[i, k], factor)


@njit(nogil=True, cache=True)
def _csr(indptr: Any, indices: Any, bits: Any, out: Any) -> None:
    for i in range(out.size):
        for p in range(indptr[i], indptr[i + 1]):
            if bits[p] != 0:
                out[i] += _mixed(bits[p], _factor(indices[p]))


def row_hashes(X: Matrix) -> AnyArray:
    """Return a 64-bit hash of every row, uint64 (n,): equal rows have equal hashes.

    Rows are float32 or float64, dense or CSR. Two different rows collide with probability
    about 2^-64.
    """
    out = np.zeros(X.shape[0], np.uint64)
    word = np.uint32 if X.dtype == np.float32 else np.uint64
    if sp.issparse(X):
        _csr(X.indptr, X.indices, (X.data + X.dtype.type(0)).view(word), out)  # -0 becomes 0
        return out
    for k in range(0, X.shape[1], _COLUMNS):
        part = np.asfortranarray(X[:, k : k + _COLUMNS] + X.dtype.type(0))
        _columns(part.T.view(word).T, k, out)
    return out


def first_of_equals(hashes: AnyArray) -> AnyArray:
    """Return a bool array (n,): whether no earlier row has the same hash."""
    distinct = np.zeros(len(hashes), bool)
    distinct[np.unique(hashes, return_index=True)[1]] = True
    return distinct
