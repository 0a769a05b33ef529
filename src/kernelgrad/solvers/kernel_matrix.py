"""A kernel matrix that fits in memory: products, factors, and the memory it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

from kernelgrad.callbacks import FOREVER, Deadline
from kernelgrad.compute.linalg import untouched
from kernelgrad.compute.threads import over_tiles, parallel_for, single_threaded_blas
from kernelgrad.functions.exact import FIT_COMPILED, GRAM_TILE, ExactKernel
from kernelgrad.kernels import ExactRows
from kernelgrad.types import AnyArray, Float64Array, IntArray

PANEL = 256  # columns that are factored at once
_TILE = 512  # rows of a panel that one task updates, and rows and columns of a product's tile
_DEPTH = 4096  # terms of a product that are summed in float32
_WIDTH = 16  # BLAS is faster for that many outputs than for any other number from 3 on


def kernel_matrix(
    exact: ExactKernel, rows: ExactRows, deadline: Deadline = FOREVER, dtype: Any = np.float64,
    *, wide: bool = False,
) -> KernelMatrix:  # fmt: skip
    """Return K (n, n) of the rows, of values in float64 if `wide`."""

    def tile(i: slice, j: slice) -> AnyArray:
        return exact.values(rows.take(i), rows.take(j), wide=wide, compiled=compiled)

    compiled = rows.n_rows**2 >= FIT_COMPILED
    return KernelMatrix(rows.n_rows, tile, deadline, dtype)


class KernelMatrix:
    r"""K, symmetric, its products, and the factor L of ``S K S + ridge I = L L^T``, S diagonal.

    One array holds K above the diagonal and L on and below it. Residuals can therefore be
    computed after the factorisation, and a second one with a larger ridge needs no new K. A
    float32 factor of a float64 matrix takes the left half of the room below the diagonal.

    The bits of LAPACK's factor depend on the number of threads. This factor consists of
    products of tiles that depend on n only, each computed in one thread; it must be used inside
    ``single_threaded_blas``. ``tile(rows, columns)`` returns K for two slices, on and above the
    diagonal only; several threads call it, for ``n_values`` values in all. Past the deadline
    TimeIsUp is raised.
    """

    def __init__(
        self, n: int, tile: Callable[[slice, slice], AnyArray], deadline: Deadline = FOREVER,
        dtype: Any = np.float64,
    ) -> None:  # fmt: skip
        self.n, self._deadline, self.dtype = n, deadline, dtype
        self._array = self._lower = untouched(n, n, wide=dtype == np.float64)
        self._inverses: list[AnyArray] = []
        self._factored = False  # whether L has overwritten what is below the diagonal
        starts = range(0, n, GRAM_TILE)
        pairs = [(i, j) for i in starts for j in starts if i <= j]

        def task(number: int) -> None:
            deadline.check()
            rows, columns = (slice(a, min(n, a + GRAM_TILE)) for a in pairs[number])
            self._array[rows, columns] = values = tile(rows, columns)
            if rows.start < columns.start and rows.start // _TILE == columns.start // _TILE:
                self._array[columns, rows] = values.T  # squares of a product are whole

        with single_threaded_blas():
            parallel_for(len(pairs), task)
        self.n_values = sum(min(GRAM_TILE, n - i) * min(GRAM_TILE, n - j) for i, j in pairs)
        self.diagonal = self._array.diagonal().copy()

    def _square(self, a: int, b: int) -> AnyArray:
        """Return rows and columns a to b of K, a part of which L may have overwritten."""
        if not self._factored and a // _TILE == (b - 1) // _TILE:
            return self._array[a:b, a:b]
        upper = np.triu(self._array[a:b, a:b], 1)
        square = upper + upper.T
        np.fill_diagonal(square, self.diagonal[a:b])
        return square

    def rows(self, index: IntArray, dtype: Any) -> AnyArray:
        """Return K (r, n) for rows of an increasing index."""
        out = np.empty((len(index), self.n), dtype)

        def task(a: int, b: int) -> None:
            i, j = np.searchsorted(index, [a, b])
            out[:i, a:b] = self._array[index[:i], a:b]
            out[i:j, a:b] = self._square(a, b)[index[i:j] - a]
            out[j:, a:b] = self._array[a:b, index[j:]].T

        over_tiles(self.n, _TILE, task)
        return out

    def product(self, V: Float64Array, dtype: Any = np.float64) -> Float64Array:
        """Return ``V K`` for V (m, n), in `dtype`; of float32 up to 4,096 terms are summed."""
        m, n, K = len(V), self.n, self._array
        if m <= 2:
            return self._product_by_halves(V.astype(dtype, copy=False))
        right = np.zeros((n, -(-m // _WIDTH) * _WIDTH), dtype)
        right[:, :m] = V.T
        out = np.empty((m, n))

        def task(a: int, b: int) -> None:
            total = (self._square(a, b).astype(dtype) @ right[a:b]).astype(np.float64)
            for i in range(0, a, _DEPTH):
                above = slice(i, min(a, i + _DEPTH))
                total += K[above, a:b].T.astype(dtype, copy=False) @ right[above]
            for j in range(b, n, _DEPTH):
                behind = slice(j, j + _DEPTH)
                total += K[a:b, behind].astype(dtype, copy=False) @ right[behind]
            out[:, a:b] = total[:, :m].T

        over_tiles(n, _TILE, task)
        return out

    def _product_by_halves(self, V: AnyArray) -> Float64Array:
        """Return ``V K`` for one or two outputs: memory is the limit, so half of it is read."""
        n = self.n
        parts = np.zeros((-(-n // _TILE), len(V), n))

        def task(a: int, b: int) -> None:
            part = parts[a // _TILE]
            part[:, a:b] += V[:, a:b] @ self._square(a, b).astype(V.dtype, copy=False)
            for c in range(b, n, _TILE):
                columns = slice(c, c + _TILE)
                tile = self._array[a:b, columns].astype(V.dtype, copy=False)
                part[:, a:b] += V[:, columns] @ tile.T
                part[:, columns] += V[:, a:b] @ tile

        over_tiles(n, _TILE, task)
        return np.asarray(parts.sum(axis=0))

    def factor(self, scale: Float64Array, ridge: float, dtype: Any = None) -> None:
        """Factor ``S K S + ridge I`` in `dtype`, K's own if None; S is ``diag(scale)``.

        Column panels are updated by all panels before them, then multiplied by the inverse of
        the factor of their diagonal block: ``n^3 / 3`` operations, nearly all of them in
        products. LinAlgError is raised, and K left as it was, if the matrix is not positive
        definite up to rounding.
        """
        self._lower = self._array.view(dtype or self.dtype)  # (n, 2 n) where K is wider
        self.scale, self.ridge = scale, ridge
        self._inverses, self._factored = [], True
        for a in range(0, self.n, PANEL):
            self._deadline.check()
            self._factor_panel(a, min(self.n, a + PANEL))

    def _factor_panel(self, a: int, b: int) -> None:
        A, F, n = self._array, self._lower, self.n
        scale = self.scale.astype(F.dtype)
        parts = [slice(a, b)] + [slice(c, min(n, c + _TILE)) for c in range(b, n, _TILE)]
        updated: list[Any] = [None] * len(parts)  # transposed, as K lies above

        def update(i: int) -> None:
            rows = parts[i]
            K = A[a:b, rows] if i else self._square(a, b)
            T = scale[a:b, None] * K.astype(F.dtype, copy=False)
            T *= scale[rows]
            T -= F[a:b, :a] @ F[rows, :a].T
            updated[i] = T

        parallel_for(len(parts), update)
        block = updated[0]
        block[np.diag_indices(b - a)] += self.ridge
        L = np.linalg.cholesky(block)
        lower = np.tril_indices(b - a)
        F[a:b, a:b][lower] = L[lower]
        inverse = scipy.linalg.solve_triangular(
            L, np.eye(b - a, dtype=F.dtype), lower=True, check_finite=False
        )
        self._inverses.append(inverse)

        def divide(i: int) -> None:
            F[parts[i + 1], a:b] = (inverse @ updated[i + 1]).T

        parallel_for(len(parts) - 1, divide)

    def solve(self, B: Float64Array) -> Float64Array:
        """Return ``(S K S + ridge I)^-1 B`` by the last factorisation; B is (n, m)."""
        F, Z = self._lower, self.half_solve(B)
        for i, inverse in reversed(list(enumerate(self._inverses))):
            a, b = i * PANEL, min(self.n, (i + 1) * PANEL)
            Z[a:b] = inverse.T @ (Z[a:b] - F[b:, a:b].T @ Z[b:])
        return Z.astype(np.float64)

    def half_solve(self, B: Float64Array) -> AnyArray:
        F, Z = self._lower, B.astype(self._lower.dtype)
        for i, inverse in enumerate(self._inverses):
            a, b = i * PANEL, min(self.n, (i + 1) * PANEL)
            Z[a:b] = inverse @ (Z[a:b] - F[a:b, :a] @ Z[:a])
        return Z

    def inverse_diagonal(self) -> Float64Array:
        """Return the diagonal of ``(S K S + ridge I)^-1``, in ``n^3 / 3`` operations more."""
        F, out = self._lower, np.empty(self.n)

        def task(i: int) -> None:
            first = i * PANEL
            width = min(PANEL, self.n - first)
            Z = np.zeros((self.n - first, width), F.dtype)  # columns of the inverse of L
            Z[:width] = np.eye(width)
            for j, inverse in enumerate(self._inverses[i:], i):
                a, b = j * PANEL, min(self.n, (j + 1) * PANEL)
                rest = Z[a - first : b - first]
                rest -= F[a:b, first:a] @ Z[: a - first]
                rest[:] = inverse @ rest
            out[first : first + width] = np.einsum("ij,ij->j", Z, Z)

        parallel_for(len(self._inverses), task)
        return out

    def log_determinant(self) -> float:
        """Return ``log |K + ridge S^-2|`` by the last factorisation."""
        return 2.0 * float((np.log(self._lower.diagonal()) - np.log(self.scale)).sum())
