"""A symmetric matrix and its Cholesky factor in one square array, blocked for our threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

from kernelgrad._typing import AnyArray, Float64Array
from kernelgrad.compute.threads import parallel_for

PANEL = 128  # columns that are factored at once
_HEIGHT = 256  # rows of a panel that one task updates
_FILL = 512  # rows and columns of a tile that is filled at once
_PRODUCT = 512  # rows of a product that one task computes


class SymmetricMatrix:
    r"""K, symmetric, and the factor L of ``S K S + ridge I = L L^T`` with S diagonal.

    K is above the diagonal of one array and L on and below it, so that residuals against K can
    be had after the factorisation, and another one with a larger ridge costs no new K.

    LAPACK's factor has other bits for another number of threads. This one is made of products
    of tiles fixed by n alone, each in one thread; to be used inside ``single_threaded_blas``.

    Parameters
    ----------
    n : int
    tile : callable
        ``tile(rows, columns)`` returns K there, for slices; asked for on and above the
        diagonal only, from several threads.

    Attributes
    ----------
    n : int
    diagonal : float64 array (n,)
        Of K.
    n_values : int
        Values that `tile` was asked for.
    """

    def __init__(self, n: int, tile: Callable[[slice, slice], AnyArray]) -> None:
        self.n = n
        self._array = np.empty((n, n))
        self._inverses: list[Float64Array] = []
        starts = range(0, n, _FILL)
        pairs = [(i, j) for i in starts for j in starts if i <= j]

        def task(number: int) -> None:
            rows, columns = (slice(a, min(n, a + _FILL)) for a in pairs[number])
            self._array[rows, columns] = tile(rows, columns)

        parallel_for(len(pairs), task)
        self.n_values = sum(min(_FILL, n - i) * min(_FILL, n - j) for i, j in pairs)
        self.diagonal = self._array.diagonal().copy()

    def _square(self, a: int, b: int) -> Float64Array:
        """Return K of rows and columns a to b, which L has overwritten in part."""
        upper = np.triu(self._array[a:b, a:b], 1)
        square = upper + upper.T
        np.fill_diagonal(square, self.diagonal[a:b])
        return square

    def product(self, B: Float64Array) -> Float64Array:
        """Return ``K B``, (n, C)."""
        out = np.empty_like(B)
        K, n = self._array, self.n

        def task(i: int) -> None:
            a, b = i * _PRODUCT, min(n, (i + 1) * _PRODUCT)
            some = self._square(a, b) @ B[a:b]
            some += K[:a, a:b].T @ B[:a]
            some += K[a:b, b:] @ B[b:]
            out[a:b] = some

        parallel_for(-(-n // _PRODUCT), task)
        return out

    def factor(self, scale: Float64Array, ridge: float) -> None:
        """Factor ``S K S + ridge I``, S the diagonal matrix of `scale`, in float64.

        Column panels are updated by all those before them, then divided by the factor of
        their diagonal block, by way of its inverse: ``n^3 / 3`` operations, nearly all of them
        in products.

        Raises
        ------
        numpy.linalg.LinAlgError
            The matrix is not positive definite to rounding; K is as it was.
        """
        A, n = self._array, self.n
        self._inverses = []
        for a in range(0, n, PANEL):
            b = min(n, a + PANEL)
            parts = [slice(a, b)]
            parts += [slice(c, min(n, c + _HEIGHT)) for c in range(b, n, _HEIGHT)]
            updated: list[Any] = [None] * len(parts)  # transposed, as K lies above

            def update(
                i: int, a: int = a, b: int = b, parts: list[slice] = parts,
                updated: list[Any] = updated,
            ) -> None:  # fmt: skip
                rows = parts[i]
                K = A[a:b, rows] if i else self._square(a, b)
                T = scale[a:b, None] * K
                T *= scale[rows]
                T -= A[a:b, :a] @ A[rows, :a].T
                updated[i] = T

            parallel_for(len(parts), update)
            block = updated[0]
            block[np.diag_indices(b - a)] += ridge
            L = np.linalg.cholesky(block)
            lower = np.tril_indices(b - a)
            A[a:b, a:b][lower] = L[lower]
            inverse = scipy.linalg.solve_triangular(
                L, np.eye(b - a), lower=True, check_finite=False
            )
            self._inverses.append(inverse)

            def divide(
                i: int, a: int = a, b: int = b, parts: list[slice] = parts,
                updated: list[Any] = updated, inverse: Float64Array = inverse,
            ) -> None:  # fmt: skip
                A[parts[i + 1], a:b] = (inverse @ updated[i + 1]).T

            parallel_for(len(parts) - 1, divide)

    def solve(self, B: Float64Array) -> Float64Array:
        """Return ``(S K S + ridge I)^-1 B``, (n, C), of the last factorisation."""
        A, Z = self._array, B.copy()
        panels = [(a, min(self.n, a + PANEL)) for a in range(0, self.n, PANEL)]
        for (a, b), inverse in zip(panels, self._inverses, strict=True):
            Z[a:b] = inverse @ (Z[a:b] - A[a:b, :a] @ Z[:a])
        for (a, b), inverse in zip(panels[::-1], self._inverses[::-1], strict=True):
            Z[a:b] = inverse.T @ (Z[a:b] - A[b:, a:b].T @ Z[b:])
        return Z
