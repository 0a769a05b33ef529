r"""Skewed multiplicative kernels for histograms (Dai et al. 2014, Table 1).

Both are stationary kernels of ``log(x + c)``, so random Fourier features of embedded rows
average to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from kernelgrad._typing import Float32Array, Float64Array, IntArray, Matrix
from kernelgrad._validation import check_name, check_real
from kernelgrad.compute import rng
from kernelgrad.compute.threads import parallel_for
from kernelgrad.features import _fused as projections
from kernelgrad.kernels import _tiles as exact
from kernelgrad.kernels.base import ExactRows, check_least, exact_values, float64_rows
from kernelgrad.kernels.projection import ProjectionKernel
from kernelgrad.kernels.stationary import Form

_TILE_BYTES = 2**20  # a task's buffer: terms of one column stay in cache
_COLUMN_BYTES = 2**24  # columns held densely at once


class SkewedKernel(ProjectionKernel):
    r"""Base of the kernels ``prod_j g(log(x_j + c) - log(z_j + c))`` with ``g(0) = 1``.

    Rows are embedded as ``log(1 + x / c)``: it differs from the table's ``log(x + c)`` by a
    constant, which the difference of two rows does not see, and keeps the zeros of sparse
    rows.
    """

    def __init__(self, c: float = 1.0, *, form: Form = "pair") -> None:
        self.c = c
        self.form = form

    def check(self) -> None:
        """Raise if ``c`` or ``form`` is outside its domain."""
        check_real(self.c, "c", low=0, low_open=True)
        check_name(self.form, ("pair", "phase"), "feature form")

    def check_domain(self, X: Matrix) -> None:
        """Raise DataError unless every entry is above ``-c``."""
        check_least(self, X, -float(self.c), strict=True)

    @property
    def projection(self) -> int:
        """Cosine-sine pairs, or cosines with a phase."""
        return projections.PAIR if self.form == "pair" else projections.PHASE

    def embed(self, X: Matrix) -> Matrix:
        """Return ``log(1 + x / c)``, dense or CSR, in float64."""
        X, c = float64_rows(X), float(self.c)
        if not sp.issparse(X):
            return np.log1p(X / c)
        # a quotient, as X / c multiplies sparse values by 1 / c: just above -c that can give -1
        return sp.csr_matrix((np.log1p(X.data / c), X.indices, X.indptr), shape=X.shape)

    def diag(self, X: Matrix) -> Float64Array:
        """Return ones: ``k(x, x) = 1``."""
        return np.ones(X.shape[0])


class SkewedChi2(SkewedKernel):
    r"""Skewed chi-squared kernel, ``prod_j 2 sqrt((x_j+c)(z_j+c)) / (x_j + z_j + 2c)``.

    Defined for ``x_j > -c``, with values in (0, 1]. In ``a = log(x + c)`` it is
    ``prod_j sech((a_j - b_j) / 2)``, so frequencies have the density ``sech(pi w)`` in every
    coordinate (Table 1, skewed chi-squared; there the factor 2 stands before the product,
    where it would give ``k(x, x) = 2^(1-d)``).

    Parameters
    ----------
    c : float > 0, default=1.0
        Where differences of x stop to count relative to x: below c the kernel depends on
        ``x - z``, above on ``x / z``. 1 suits counts and is scikit-learn's default; for
        frequencies that sum to 1 take about their mean, ``1 / d``.
    form : {"pair", "phase"}, default="pair"
        ``[cos, sin]`` pairs (lower variance, half the cost per feature), or the papers'
        ``sqrt(2) cos(w . x + b)``.
    """

    name: ClassVar[str] = "skewed_chi2"

    def weight_law(self) -> tuple[int, float]:
        """Return the hyperbolic secant law of density ``sech(pi w)``."""
        return rng.SECH, 1.0

    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        """Return the product over coordinates, through sums of logarithms."""
        K = sum_over_columns(self.embed(X), self.embed(Z), _minus_log_sech_half)
        return np.exp(np.negative(K, out=K), out=K)

    def exact_rows(self, X: Matrix, *, wide: bool = False) -> ExactRows:
        r"""Return ``a = sqrt(1 + x / c) - 1``, of which zeros are those of x.

        A factor of k is then ``1 / (1 + (a - b)^2 / (2 (1 + a) (1 + b)))``: of small
        differences, without logarithms.
        """
        half = self.embed(X) * 0.5
        return ExactRows(
            exact_values(half.expm1() if sp.issparse(half) else np.expm1(half), wide=wide)
        )

    def exact_block(self, A: ExactRows, B: ExactRows) -> Float32Array:
        """Return ``k(A_i, B_j)``, column by column."""
        K = exact.block(A.values, B.values, exact.COSH, exact.INVERSE)
        return K.astype(np.float32, copy=False)


class SkewedIntersection(SkewedKernel):
    r"""Skewed intersection kernel.

    ``k(x, z) = prod_j min(sqrt((x_j+c)/(z_j+c)), sqrt((z_j+c)/(x_j+c)))``, defined for
    ``x_j > -c``, with values in (0, 1]. In ``a = log(x + c)`` it is the Laplacian kernel
    ``exp(-||a - b||_1 / 2)``, so frequencies are Cauchy with scale 1/2 (Table 1, skewed
    intersection; the density printed there, ``1 / (pi (1 + 4 w^2))``, has mass 1/2: it lacks
    a factor 2). Parameters are those of :class:`SkewedChi2`.
    """

    name: ClassVar[str] = "skewed_intersection"

    def weight_law(self) -> tuple[int, float]:
        """Return the Cauchy law with scale 1/2."""
        return rng.CAUCHY, 0.5

    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        """Return ``exp(-||log(x + c) - log(z + c)||_1 / 2)``."""
        K = sum_over_columns(self.embed(X), self.embed(Z), _distance)
        K *= -0.5
        return np.exp(K, out=K)

    def exact_rows(self, X: Matrix, *, wide: bool = False) -> ExactRows:
        """Return ``log(1 + x / c) / 2``."""
        return ExactRows(exact_values(self.embed(X) * 0.5, wide=wide))

    def exact_block(self, A: ExactRows, B: ExactRows) -> Float32Array:
        """Return ``k(A_i, B_j)``, column by column."""
        K = exact.block(A.values, B.values, exact.ABSOLUTE, exact.EXP_MINUS)
        return K.astype(np.float32, copy=False)


def _distance(x: Float64Array, z: Float64Array) -> Float64Array:
    return np.abs(x - z)


def _minus_log_sech_half(x: Float64Array, z: Float64Array) -> Float64Array:
    """Return ``-log sech((x - z) / 2)``, exactly 0 at 0 and without overflow."""
    delta = np.abs(x - z)
    return 0.5 * delta + np.log1p(np.expm1(-delta) / 2)


def sum_over_columns(
    X: Matrix, Z: Matrix, term: Callable[[Float64Array, Float64Array], Float64Array]
) -> Float64Array:
    """Return ``sum_j term(x_j, z_j)`` for all pairs of rows, in bounded memory.

    Parameters
    ----------
    X : float64 array (n, d) or CSR
    Z : float64 array (m, d) or CSR
    term : callable
        Takes columns of shapes (r, 1) and (m,), returns (r, m); ``term(0, 0)`` must be 0, so
        that columns of zeros may be left out.

    Returns
    -------
    float64 array (n, m)
        Beside it only some MiB are needed, whatever n, m and d.
    """
    n, m = X.shape[0], Z.shape[0]
    out = np.zeros((n, m))
    used = np.union1d(_used_columns(X), _used_columns(Z))
    width = max(1, _COLUMN_BYTES // (8 * max(1, n + m)))
    rows = max(1, _TILE_BYTES // (8 * max(1, m)))
    for first in range(0, len(used), width):
        columns = used[first : first + width]
        A, B = (_transposed(part[:, columns]) for part in (X, Z))

        def task(a: int, A: Float64Array = A, B: Float64Array = B) -> None:
            r = slice(a * rows, (a + 1) * rows)
            for x, z in zip(A, B, strict=True):
                out[r] += term(x[r, None], z)

        parallel_for(-(-n // rows), task)
    return out


def _used_columns(X: Matrix) -> IntArray:
    """Return the columns that may hold another value than 0."""
    return np.unique(X.indices) if sp.issparse(X) else np.flatnonzero(X.any(axis=0))


def _transposed(X: Matrix) -> Float64Array:
    return np.ascontiguousarray((X.toarray() if sp.issparse(X) else X).T)
