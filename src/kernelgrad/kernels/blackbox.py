"""Kernels supplied by the user: a function, or the kernel matrix itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from kernelgrad.compute.linalg import dense
from kernelgrad.kernels.base import ExactRows, Kernel, diagonal
from kernelgrad.params import parameters
from kernelgrad.types import AnyArray, Float64Array, Matrix
from kernelgrad.validation import CapabilityError, DataError


@parameters
class CallableKernel(Kernel):
    """A kernel given as a function of two sets of rows, as for scikit-learn's ``SVC``.

    The function must be positive semi-definite, which is not checked, and each value must
    depend on its two rows only: the function is called for tiles of rows, from several threads.
    It has no random features, so it needs a solver that uses exact kernel values. A model with
    such a kernel cannot be written to a file.

    Parameters
    ----------
    function : callable
        ``function(X, Z)`` gets float64 rows (n, d) and (m, d), dense or CSR like the data, and
        returns an array (n, m) of finite numbers.
    """

    name: ClassVar[str] = "callable"
    has_random_features: ClassVar[bool] = False

    function: Callable[[Matrix, Matrix], Any] = dataclasses.field(kw_only=False)

    def check(self) -> None:
        if not callable(self.function):
            raise TypeError(f"function must be callable, got {self.function!r}.")

    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        """Return the values of the function, after a check that they are finite numbers."""
        try:
            result = dense(self.function(X, Z))
        except Exception as error:
            note = "A kernel function gets rows of numbers; text is encoded before."
            error.add_note(f"{note} For other objects give their numbers as X (docs/faq.md).")
            raise
        name = getattr(self.function, "__name__", repr(self.function))
        if result.dtype.kind not in "buif":
            raise DataError(
                f"The kernel function {name} returned values of type {result.dtype}; return "
                "an array of real numbers."
            )
        n, m = X.shape[0], Z.shape[0]
        if result.shape != (n, m):
            raise DataError(
                f"The kernel function {name} returned an array of shape {result.shape} for {n} "
                f"and {m} rows; return one of shape {(n, m)}, an entry for each pair of rows."
            )
        K: Float64Array = result.astype(np.float64)
        if not np.isfinite(K).all():
            i, j = np.argwhere(~np.isfinite(K))[0]
            raise DataError(
                f"The kernel function {name} returned {K[i, j]} for a pair of rows; make it "
                "finite for all rows of the data."
            )
        return K

    def diag(self, X: Matrix) -> Float64Array:
        return diagonal(X.shape[0], lambda i: self.pairwise(X[i], X[i]))


class PrecomputedKernel(Kernel):
    """A kernel matrix in place of rows, as scikit-learn's ``kernel="precomputed"``.

    Each row given to an estimator holds its kernel values with the n training rows, one per
    column. There are no random features, so a solver that uses exact kernel values is needed.
    """

    name: ClassVar[str] = "precomputed"
    has_random_features: ClassVar[bool] = False

    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        """Raise CapabilityError: there are no rows to compare."""
        raise CapabilityError(
            "kernel='precomputed' gets kernel values instead of rows, so it cannot compute "
            "those of other pairs; give a kernel by name or as a function."
        )

    def diag(self, X: Matrix) -> Float64Array:
        """Raise CapabilityError: a row does not tell which of its entries is its own."""
        raise CapabilityError(
            "kernel='precomputed' does not know which column of a row is its own; give a "
            "kernel by name or as a function."
        )

    def exact_rows(self, X: Matrix, *, wide: bool = False) -> ExactRows:
        with np.errstate(over="ignore"):
            values = np.array(dense(X), np.float64 if wide else np.float32, order="C")
        if not np.isfinite(values).all():
            raise DataError(
                "The kernel matrix holds values too large for float32; scale it, and alpha too."
            )
        return ExactRows(values)

    def values(
        self, A: ExactRows, B: ExactRows, dtype: Any = np.float32, *,
        out: AnyArray | None = None, compiled: bool = False,
    ) -> AnyArray:  # fmt: skip
        """Return the columns of A that hold the values with the training rows B."""
        if B.ids is None:
            raise DataError(
                "With kernel='precomputed' functions are sums over training rows, but these "
                "rows have no column in the matrix; give the kernel values with all training "
                "rows, one a column."
            )
        columns = A.values.shape[1]
        if B.n_rows and int(B.ids.max()) >= columns:
            raise DataError(
                f"With kernel='precomputed' rows hold the kernel values with all training "
                f"rows, at least {int(B.ids.max()) + 1}, but these have {columns} columns."
            )
        return np.asarray(A.values[:, B.ids], dtype)

    def exact_diag(self, rows: ExactRows) -> Float64Array:
        """Return the entry of each row in its own column; raise DataError if it has none."""
        if rows.ids is None:
            raise DataError(
                "With kernel='precomputed' only training rows have a value with themselves."
            )
        return np.asarray(rows.values[np.arange(rows.n_rows), rows.ids], np.float64)
