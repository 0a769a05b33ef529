"""Shared matrix routines: Gram matrices, factors, conjugate gradients, hashes, buffers."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.lapack import factor
from kernelgrad.compute.threads import parallel_for
from kernelgrad.types import AnyArray, Float32Array, Float64Array, FloatArray, Matrix

_PANEL = 128  # columns of a Gram matrix computed by one task
_HASHED = 2**15  # entries hashed at once, whose work arrays stay in the cache
_FAST = {"contract", "nsz", "arcp"}


def rows_bytes(X: Matrix) -> int:
    """Return the bytes of dense or CSR rows."""
    if sp.issparse(X):
        return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)
    return int(X.nbytes)


def dense(X: Matrix, dtype: Any = None) -> AnyArray:
    """Return rows as a dense array of a type, by default their own."""
    return np.asarray(X.toarray() if sp.issparse(X) else X, dtype)


def stacked(parts: list[Matrix]) -> Matrix:
    """Return the rows of all parts, CSR where any part is."""
    if any(sp.issparse(part) for part in parts):
        return sp.vstack(parts, format="csr")
    return np.concatenate(parts)


def gram(P: FloatArray, out: Float64Array | None = None) -> Float64Array:
    """Return the lower triangle of ``P^T P``, computed in the precision of P, in float64.

    If `out` is given, the result is added to it. Each task computes a panel of columns by one
    product over all rows, so results do not depend on the number of threads.
    """
    m = P.shape[1]
    H = np.zeros((m, m)) if out is None else out

    def task(a: int) -> None:
        j0, j1 = a * _PANEL, min(m, (a + 1) * _PANEL)
        H[j0:, j0:j1] += P[:, j0:].T @ P[:, j0:j1]

    parallel_for(-(-m // _PANEL), task)
    return H


def folded(
    H: Float64Array, diagonal: Float64Array, K: Float32Array | None = None, factor: float = 0.0
) -> Float64Array:
    """Return ``H^T`` with a copy of the lower triangle of H, plus `factor` times K (k, k).

    `diagonal` is the diagonal of H. H keeps its lower triangle except the diagonal, so a
    matrix can be factorized in place, more than once, without memory for a copy.
    """
    m, k = len(H), 0 if K is None else len(K)
    np.fill_diagonal(H, diagonal)
    for a in range(0, m, _PANEL):
        columns = slice(a, min(m, a + _PANEL))
        part, rows = H[a:, columns].T.copy(), np.arange(m - a)
        if K is not None:
            part[: max(0, k - a), : max(0, k - a)] += factor * K[a:, columns].T
        np.copyto(H[columns, a:], part, where=rows >= rows[: len(part), None])
    return H.T


def dampings(first: float, least: float, most: float = np.inf) -> Iterator[float]:
    """Yield `first`, then ten times as much again and again, from `least` on up to `most`.

    These are the numbers to add to the diagonal of a matrix that is positive semi-definite but
    for rounding, one after another until its Cholesky factorisation succeeds.
    """
    damping = first
    while True:
        yield damping
        damping = max(10.0 * damping, least)
        if damping > most:
            return


def damped_cholesky(
    H: Float64Array, damping: float = 0.0, *, ridge: Any = 0.0, in_place: bool = False
) -> tuple[Float64Array, float]:
    """Return L and the damping e used, with ``L L^T = H + diag(ridge) + e I``.

    H (m, m) is positive semi-definite but for rounding. If the matrix is not positive definite,
    e grows by :func:`dampings` from 1e-10 of its largest diagonal entry on. L is lower
    triangular in Fortran order, for ``scipy.linalg.cho_solve((L, True), B)``.

    H is symmetric and stays as it is; with `in_place` only its lower triangle is read, L lies
    in the memory of H and has the transpose of that triangle above its diagonal.
    """
    diagonal = H.diagonal() + ridge
    largest = max(float(np.abs(diagonal).max(initial=0.0)), 1e-30)
    for e in dampings(damping, 1e-10 * largest, 1e3 * largest):
        work = folded(H, diagonal) if in_place else np.array(H.T, order="F")
        np.fill_diagonal(work, diagonal + e)
        if factor(work.T):
            if not in_place:
                np.copyto(work, 0.0, where=np.tri(len(work), k=-1, dtype=bool).T)
            return work, e
    raise FloatingPointError("A matrix to factor is far from positive semi-definite.")


def solve_damped(
    H: Float64Array, damping: float, G: FloatArray, device: Any = None
) -> Float64Array:
    """Return ``(H + damping I)^-1 G`` by Cholesky in float64, on a `device` if there is one.

    The lower triangle of H is read, and its memory used for the factor. As its entries have
    float32 rounding errors, the damping is at least as large as these.
    """
    top = max(float(H.diagonal().max(initial=0.0)), 1e-30)
    damping = max(float(damping), float(np.finfo(np.float32).eps) * top)
    if device is not None and (solution := device.solve(H, damping, G)) is not None:
        return np.asarray(solution)
    L, _ = damped_cholesky(H, damping, in_place=True)
    return np.asarray(lapack.dpotrs(L, G, lower=1)[0])


def conjugate_gradients(
    product: Callable[[Any], tuple[Any, Any]],
    precondition: Callable[[Any, Any], tuple[Any, Any] | None], right: Any, most: int,
) -> Any:  # fmt: skip
    """Return x with ``A x = right`` approximately, by conjugate gradients from 0.

    ``product(p)`` returns ``A p`` and the inner product ``<p, A p>``; ``precondition(x, r)``
    returns ``z = M^-1 r`` and ``<r, z>``, M an approximation of A, or None to end with x, which
    is None before the first step. There are `most` steps at most. A and M are self-adjoint in
    any inner product. Inner products broadcast against p, r and z: one number a system where
    systems are independent; a system stays where it is once they are not positive. An array p
    may hold more than r, such as ``[p, K p]``: then x does too.
    """
    x, r = None, right
    p: Any = 0.0
    rho = before = np.ones(1)
    for _ in range(most):
        step = precondition(x, r)
        if step is None:
            break
        z, rho = step
        p = z + np.where(before > 0, rho / np.where(before > 0, before, 1.0), 0.0) * p
        Ap, curvature = product(p)
        moves = (rho > 0) & (curvature > 0)
        length = np.where(moves, rho / np.where(moves, curvature, 1.0), 0.0)
        x = length * p if x is None else x + length * p
        r, before = r - length * Ap, rho
    return x


def backtracked(
    gain: Callable[[Any], Any], promise: Any, share: float, *, first: Any = 1.0,
    factor: float = 0.5, tries: int = 30,
) -> Any:  # fmt: skip
    """Return the longest step of `first` times 1, `factor`, ... that gains enough, else 0.

    ``gain(s)`` returns by how much steps of length s lower the objective, and `promise` what
    the slope at the start foretells for a step of length 1: ``gain(s) > share * s * promise``
    is enough, Armijo's rule. Lengths have the shape of the promise, one for each independent
    problem.
    """
    length = first * np.ones_like(promise)
    waits = np.ones(np.shape(promise), bool)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(tries):
            waits = waits & ~(gain(length) > share * length * promise)
            if not waits.any():
                break
            length = np.where(waits, factor * length, length)
    return np.where(waits, 0.0, length)


def untouched(n_rows: int, n_columns: int, *, wide: bool = False) -> FloatArray:
    """Return an array (n_rows, n_columns) whose pages take no memory before they are written.

    NumPy requests huge pages, which the system clears as a whole and may have to assemble, or
    to get from its host, first: writing them once is .6 to 6 times as slow as here. A buffer
    that is filled slowly takes memory for rows that are never used, too.
    """
    dtype = np.dtype(np.float64 if wide else np.float32)
    size = max(1, dtype.itemsize * n_rows * n_columns)
    if hasattr(mmap, "MAP_PRIVATE"):
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:  # Windows
        pages = mmap.mmap(-1, size)
    flat: FloatArray = np.frombuffer(pages, dtype, count=n_rows * n_columns)
    return flat.reshape(n_rows, n_columns)


@njit(nogil=True, cache=True, fastmath=_FAST)
def csr_times_tile(
    indptr: Any, indices: Any, data: Any, r0: int, r1: int, W: Any, P: Any
) -> None:
    """Set P[i] to sum_k X[r0 + i, k] W[k] for rows r0..r1; W (d, F), P (rows, F) float32."""
    F = W.shape[1]
    for i in range(r1 - r0):
        o = P[i]
        for k in range(F):
            o[k] = 0
        p = indptr[r0 + i]
        stop = indptr[r0 + i + 1]
        while p + 4 <= stop:  # four non-zeros per pass, for a quarter of the memory traffic
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


def _factors(columns: AnyArray) -> AnyArray:
    """Return an odd 64-bit number for each column, by two rounds of a bijective mixer."""
    z = columns.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(0x2545F4914F6CDD1D)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)


def _mixed(values: AnyArray, factors: AnyArray) -> AnyArray:
    """Return 64-bit numbers for entries; 0 for zeros, so that sparse and dense rows agree."""
    values = values + values.dtype.type(0)  # -0 becomes 0
    z: Any = values.view(np.uint32 if values.dtype == np.float32 else np.uint64)
    z = z * np.uint64(0x9E3779B97F4A7C15)
    z ^= z >> np.uint64(32)  # short fractions end in zero bits, which a product keeps
    z *= factors
    z ^= z >> np.uint64(29)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(z)


def row_hashes(X: Matrix) -> AnyArray:
    """Return a 64-bit hash of every row, uint64 (n,); equal rows have equal hashes.

    Rows are float32 or float64, dense or CSR. Two different rows collide with probability
    about 2^-64. All sums are modulo 2^64.
    """
    n, sparse = X.shape[0], sp.issparse(X)
    entries = X.nnz if sparse else X.size
    step = max(1, _HASHED * n // max(1, entries))
    factors = _factors(np.arange(0 if sparse else X.shape[1]))
    out = np.zeros(n, np.uint64)
    for a in range(0, n, step):
        if not sparse:
            out[a : a + step] = _mixed(X[a : a + step], factors).sum(axis=1)
            continue
        ends = X.indptr[a : a + step + 1]
        entries_of = slice(ends[0], ends[-1])
        sums = np.zeros(ends[-1] - ends[0] + 1, np.uint64)
        np.cumsum(_mixed(X.data[entries_of], _factors(X.indices[entries_of])), out=sums[1:])
        out[a : a + step] = np.diff(sums[ends - ends[0]])
    return out


def first_of_equals(hashes: AnyArray) -> AnyArray:
    """Return a mask (n,) of the rows whose hash occurs in no earlier row."""
    distinct = np.zeros(len(hashes), bool)
    distinct[np.unique(hashes, return_index=True)[1]] = True
    return distinct
