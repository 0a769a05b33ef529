"""What a kernel is: its exact value, and a stream of random features."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.extmath import row_norms

from kernelgrad._typing import Float32Array, Float64Array, FloatArray, IntArray, Matrix
from kernelgrad._validation import DataError
from kernelgrad.features.base import DENSIFY, FeatureMap, narrow_indices


@dataclass(frozen=True)
class ExactRows:
    """Rows as the exact form of a kernel wants them, made once by :meth:`Kernel.exact_rows`.

    Attributes
    ----------
    values : ndarray (n, d) or CSR
        Embedded rows, float32 or float64; of no columns where there are parts.
    square : float64 array (n,) or None
        Squared norms or sizes, where the kernel is a function of distances or angles.
    ids : integer array (n,) or None
        Columns that stand for these rows in a precomputed matrix.
    parts : tuple of ExactRows
        The same rows as each part of a sum or product wants them.
    """

    values: Matrix
    square: Float64Array | None = None
    ids: IntArray | None = None
    parts: tuple[ExactRows, ...] = ()

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.values.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        values = self.values
        csr = (values.data, values.indices, values.indptr) if sp.issparse(values) else ()
        arrays = [*(csr or (values,)), self.square, self.ids]
        own = sum(int(a.nbytes) for a in arrays if a is not None)
        return own + sum(part.nbytes for part in self.parts)

    def take(self, index: IntArray | slice) -> ExactRows:
        """Return some of the rows; a slice of dense rows is a view."""
        square = None if self.square is None else self.square[index]
        ids = None if self.ids is None else self.ids[index]
        parts = tuple(part.take(index) for part in self.parts)
        values = self.values[index]
        if sp.issparse(self.values) and not sp.issparse(values):  # scipy's answer to no rows
            values = sp.csr_matrix(values)
        return ExactRows(values, square, ids, parts)

    def numbered(self, ids: IntArray) -> ExactRows:
        """Return the rows with their columns in a precomputed matrix."""
        return replace(self, ids=ids, parts=tuple(part.numbered(ids) for part in self.parts))


class Kernel(BaseEstimator, ABC):  # type: ignore[misc]
    """A positive semi-definite kernel: exact form and random features.

    A subclass gives ``name``, :meth:`pairwise`, :meth:`diag`, :meth:`check`, where random
    features exist :meth:`feature_map`, and where not all rows are allowed
    :meth:`check_domain`. Its constructor arguments are its parameters; rules such as
    ``gamma="median"`` become numbers in :meth:`resolve`.
    """

    name: ClassVar[str]
    has_random_features: ClassVar[bool] = True
    is_stationary: ClassVar[bool] = False
    # rules that the parameter gamma takes, where there is one
    gamma_rules: ClassVar[tuple[str, ...]] = ("median", "scale")

    @abstractmethod
    def check(self) -> None:
        """Raise ValueError or TypeError if a parameter is outside its domain."""

    @abstractmethod
    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        """Return the exact matrix ``k(X_i, Z_j)``, shape (n, m), float64."""

    @abstractmethod
    def diag(self, X: Matrix) -> Float64Array:
        """Return ``k(X_i, X_i)``, shape (n,)."""

    def exact_rows(self, X: Matrix, *, wide: bool = False) -> ExactRows:
        """Return rows for :meth:`exact_block`; `wide` keeps them in float64."""
        return ExactRows(float64_rows(X))

    def exact_block(self, A: ExactRows, B: ExactRows) -> Float32Array:
        """Return ``k(A_i, B_j)``, shape (n_A, n_B), float32; called inside one parallel task.

        The bits of an entry depend on its two rows alone, not on how many others there are.
        """
        K: Float32Array = self.pairwise(A.values, B.values).astype(np.float32)
        return K

    def exact_diag(self, rows: ExactRows) -> Float64Array:
        """Return ``k(x_i, x_i)`` of embedded rows, shape (n,), from :meth:`exact_block`."""
        k = np.empty(rows.n_rows)
        for a in range(0, len(k), _DIAGONAL_ROWS):
            some = rows.take(slice(a, a + _DIAGONAL_ROWS))
            k[a : a + _DIAGONAL_ROWS] = np.diagonal(self.exact_block(some, some))
        return k

    def needs_wide(self, X: Matrix) -> bool:
        """Return whether float32 rows like `X` would lose the differences that count."""
        return False

    def check_domain(self, X: Matrix) -> None:
        """Raise DataError, naming the kernel and its domain, if a row is outside of it."""

    def __call__(self, X: FloatArray, Z: FloatArray | None = None) -> Float64Array:
        """Return the exact kernel matrix of the rows of `X` and `Z` (default `X`)."""
        self.check()
        for A in (X,) if Z is None else (X, Z):
            self.check_domain(A)
        return self.pairwise(X, X if Z is None else Z)

    def __add__(self, other: Kernel) -> Kernel:
        """Return the sum of two kernels."""
        from kernelgrad.kernels import composite  # which imports this module

        return composite.add(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel | float) -> Kernel:
        """Return the product with a kernel, or with a number > 0."""
        from kernelgrad.kernels import composite

        fits = isinstance(other, Kernel | numbers.Real)
        return composite.multiply(self, other) if fits else NotImplemented

    def __rmul__(self, other: float) -> Kernel:
        """Return the product with a number > 0."""
        return self * other

    def resolve(self, X: Matrix, seed: int) -> Self:
        """Return a copy whose data-dependent rules are numbers, from a sample `X` of rows."""
        return self

    def per_feature(self) -> Kernel:
        """Return a kernel of the same value whose map is unbiased feature by feature."""
        return self

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> FeatureMap:
        """Return the stream of random features of this (resolved) kernel."""
        raise NotImplementedError(f"The {self.name} kernel has no random features.")


_DIAGONAL_ROWS = 64


def exact_values(X: Matrix, *, wide: bool) -> Matrix:
    """Return a copy of rows as `kernelgrad.kernels._tiles` wants them.

    Float32, with `wide` float64; CSR without repeated entries where :func:`float32_rows` is
    CSR, else dense in Fortran order, from which tiles of columns are cut fastest.
    """
    dtype = np.float64 if wide else np.float32
    if sp.issparse(X):
        X = X if X.format == "csr" else X.tocsr()
        if X.nnz < DENSIFY * X.shape[0] * X.shape[1]:
            rows = narrow_indices(X.astype(dtype))
            rows.sum_duplicates()
            return rows
        X = X.toarray()
    return np.array(X, dtype, order="F")


def large_norm(X: Matrix) -> float:
    """Return the 99.9 % quantile of ``|x|`` over rows: large, but no outlier."""
    return float(np.quantile(row_norms(X), 0.999)) if X.shape[0] else 0.0


def check_least(kernel: Kernel, X: Matrix, low: float = 0.0, *, strict: bool = False) -> None:
    """Raise DataError if an entry of `X` is below `low` (at or below it if `strict`)."""
    values = X.data if sp.issparse(X) else X
    if not np.size(values):
        return
    least = float(np.min(values))
    if least < low or (strict and least == low):
        sign = ">" if strict else ">="
        raise DataError(
            f"The {kernel.name} kernel is defined for x {sign} {low:g}, but the rows hold "
            f"{least:g}; "
            "shift or clip the columns, or choose another kernel."
        )


def float64_rows(X: Matrix) -> Matrix:
    """Return rows as float64, dense or CSR with 32-bit indices where they suffice."""
    if isinstance(X, np.ndarray):
        return np.asarray(X, np.float64)
    return narrow_indices(X.astype(np.float64))
