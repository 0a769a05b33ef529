r"""The Hellinger kernel, linear in square roots (Dai et al. 2014, Table 1)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils.extmath import safe_sparse_dot

from kernelgrad._typing import Float32Array, Float64Array, Matrix
from kernelgrad.compute import rng
from kernelgrad.features import _fused as projections
from kernelgrad.kernels import _tiles as exact
from kernelgrad.kernels.base import ExactRows, check_least, exact_values, float64_rows
from kernelgrad.kernels.projection import ProjectionKernel


class Hellinger(ProjectionKernel):
    r"""Hellinger (Bhattacharyya) kernel, ``sum_j sqrt(x_j z_j)``.

    Defined for ``x >= 0``; ``k(x, x) = sum_j x_j``, which is 1 for frequencies. Features are
    ``w . sqrt(x)`` with signs w (Table 1, Hellinger; the factor 2 printed there would give
    ``4 k``). It is a linear kernel of ``sqrt(x)``: where d is small, a linear model of
    ``sqrt(x)`` is the same without any noise. There are no parameters.
    """

    name: ClassVar[str] = "hellinger"

    def check(self) -> None:
        """Do nothing: there are no parameters."""

    def check_domain(self, X: Matrix) -> None:
        """Raise DataError unless every entry is at least 0."""
        check_least(self, X)

    @property
    def projection(self) -> int:
        """The projection itself."""
        return projections.LINEAR

    def weight_law(self) -> tuple[int, float]:
        """Return signs: -1 or 1, each with probability 1/2."""
        return rng.RADEMACHER, 1.0

    def embed(self, X: Matrix) -> Matrix:
        """Return ``sqrt(x)``, dense or CSR, in float64."""
        X = float64_rows(X)
        return X.sqrt() if sp.issparse(X) else np.sqrt(X)

    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        """Return ``sqrt(X) sqrt(Z)^T``."""
        K = safe_sparse_dot(self.embed(X), self.embed(Z).T, dense_output=True)
        return np.asarray(K, np.float64)

    def diag(self, X: Matrix) -> Float64Array:
        """Return the sums of the rows."""
        return np.asarray(float64_rows(X).sum(axis=1), np.float64).ravel()

    def exact_rows(self, X: Matrix, *, wide: bool = False) -> ExactRows:
        """Return ``sqrt(x)``."""
        return ExactRows(exact_values(self.embed(X), wide=wide))

    def exact_block(self, A: ExactRows, B: ExactRows) -> Float32Array:
        """Return ``k(A_i, B_j)``: products of rows."""
        return exact.block(A.values, B.values, exact.DOT).astype(np.float32, copy=False)
