r"""Semigroup kernels, functions of ``x + z``, for histograms (Dai et al. 2014, Table 1).

``k(x, z) = E_w[exp(-w . x) exp(-w . z)]`` for weights w >= 0: a kernel of this kind is the
Laplace transform of the law of w at ``x + z``.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from kernelgrad._typing import Float32Array, Float64Array, Matrix
from kernelgrad._validation import DataError, check_name, check_real
from kernelgrad.compute import rng
from kernelgrad.features import _fused as projections
from kernelgrad.kernels import _tiles as exact
from kernelgrad.kernels.base import ExactRows, check_least, exact_values, float64_rows
from kernelgrad.kernels.projection import ProjectionKernel
from kernelgrad.kernels.skewed import sum_over_columns

MEDIAN_ROWS = 2000
# Outside of these the float32 weights or their products with rows overflow or vanish.
SMALLEST, LARGEST = 1e-12, 1e12


class SemigroupKernel(ProjectionKernel):
    r"""Base of the kernels ``exp(-sum_j g(x_j + z_j))`` with ``g(0) = 0``.

    Their values lie in (0, 1], but ``k(x, x)`` is 1 only for ``x = 0``. Subclasses give one
    parameter, a number or ``"median"``, and its name in :attr:`parameter`.
    """

    parameter: ClassVar[str]

    @property
    def value(self) -> float:
        """The parameter as a number; raises when it is still a rule."""
        value = getattr(self, self.parameter)
        if isinstance(value, str):
            raise ValueError(
                f"{self.parameter}={value!r} is a rule; call resolve(X, seed) first or give a "
                "number."
            )
        return float(value)

    def check(self) -> None:
        """Raise if the parameter is neither a rule nor a number from 1e-12 to 1e12."""
        value = getattr(self, self.parameter)
        if isinstance(value, str):
            check_name(value, ("median",), f"rule for {self.parameter}")
        else:
            check_real(value, self.parameter, low=SMALLEST, high=LARGEST)

    def check_domain(self, X: Matrix) -> None:
        """Raise DataError unless every entry is at least 0."""
        check_least(self, X)

    @property
    def projection(self) -> int:
        """``exp(-w . x)``."""
        return projections.DECAY

    @abstractmethod
    def _terms(self, x: Float64Array, z: Float64Array) -> Float64Array:
        """Return ``g(x + z)`` for broadcast arrays."""

    @abstractmethod
    def _from_rows(self, X: Matrix) -> float:
        """Return the parameter that suits some rows, of which none is zero."""

    def resolve(self, X: Matrix, seed: int) -> Self:
        """Replace the rule by a number, from a seeded sample of at most 2,000 rows.

        Rows of zeros are left out; where there are no others the parameter is 1.

        Raises
        ------
        DataError
            A negative entry, or numbers so large or small that the parameter leaves its
            domain.
        """
        self.check()
        if not isinstance(getattr(self, self.parameter), str):
            return self
        self.check_domain(X)
        if X.shape[0] > MEDIAN_ROWS:
            u = rng.uniforms(seed, 0, X.shape[0], rng.TAG_AUXILIARY, group=1)
            X = X[np.sort(np.argpartition(u, MEDIAN_ROWS)[:MEDIAN_ROWS])]
        X = float64_rows(X)
        X = X[_row_sums(X) > 0]
        value = self._from_rows(X) if X.shape[0] else 1.0
        if not SMALLEST <= value <= LARGEST:
            raise DataError(
                f"{self.parameter}='median' gives {value:g} on these data; scale the inputs "
                f"or give {self.parameter} as a number."
            )
        resolved: Self = clone(self)
        resolved.set_params(**{self.parameter: value})
        return resolved

    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        """Return ``exp(-sum_j g(x_j + z_j))``, in bounded memory."""
        self.value  # noqa: B018 - raises while the parameter is a rule
        K = sum_over_columns(float64_rows(X), float64_rows(Z), self._terms)
        return np.exp(np.negative(K, out=K), out=K)

    def diag(self, X: Matrix) -> Float64Array:
        """Return ``exp(-sum_j g(2 x_j))``."""
        X = float64_rows(X)
        if sp.issparse(X):
            terms = self._terms(X.data, X.data)
            X = sp.csr_matrix((terms, X.indices, X.indptr), shape=X.shape)
        else:
            X = self._terms(X, X)
        return np.exp(-_row_sums(X))


class ExponentialSemigroup(SemigroupKernel):
    r"""Exponential semigroup kernel, ``exp(-beta sum_j sqrt(x_j + z_j))``.

    Defined for ``x >= 0``. Weights are Levy with scale ``beta^2 / 2`` in every coordinate,
    ``w = beta^2 / (2 u^2)`` for standard normal u, whose Laplace transform is
    ``exp(-beta sqrt(s))`` (Table 1, exponential semigroup; the exponent printed there,
    ``-beta / (4 w)``, must be ``-beta^2 / (4 w)``).

    Parameters
    ----------
    beta : float in [1e-12, 1e12] or "median", default="median"
        ``"median"`` is ``1 / median_i sum_j sqrt(2 x_ij)``: then the median of ``k(x, x)`` is
        ``exp(-1)``, and two such rows have k between ``exp(-sqrt(2)) = 0.24`` (no coordinate
        in common) and ``exp(-1) = 0.37`` (equal). A much larger beta makes all values vanish,
        a much smaller one makes all of them 1.
    """

    name: ClassVar[str] = "exponential_semigroup"
    parameter: ClassVar[str] = "beta"

    def __init__(self, beta: float | str = "median") -> None:
        self.beta = beta

    def weight_law(self) -> tuple[int, float]:
        """Return the Levy law with scale ``beta^2 / 2``."""
        return rng.LEVY, self.value**2 / 2

    def _terms(self, x: Float64Array, z: Float64Array) -> Float64Array:
        K: Float64Array = np.sqrt(x + z)
        K *= self.value
        return K

    def exact_rows(self, X: Matrix, *, wide: bool = False) -> ExactRows:
        """Return ``beta^2 x``."""
        return ExactRows(exact_values(X * self.value**2, wide=wide))

    def exact_block(self, A: ExactRows, B: ExactRows) -> Float32Array:
        """Return ``k(A_i, B_j)``, column by column."""
        K = exact.block(A.values, B.values, exact.ROOTS, exact.EXP_MINUS)
        return K.astype(np.float32, copy=False)

    def _from_rows(self, X: Matrix) -> float:
        roots = X.sqrt() if sp.issparse(X) else np.sqrt(X)
        return float(1.0 / (np.sqrt(2.0) * np.median(_row_sums(roots))))


class ReciprocalSemigroup(SemigroupKernel):
    r"""Reciprocal semigroup kernel, ``prod_j lam / (x_j + z_j + lam)``.

    Defined for ``x >= 0``. Weights are exponential with rate lam, density
    ``lam exp(-lam w)``, in every coordinate (Table 1, reciprocal semigroup).

    Parameters
    ----------
    lam : float in [1e-12, 1e12] or "median", default="median"
        ``"median"`` is ``2 median_i sum_j x_ij``: for two rows of the median sum the
        ``(x_j + z_j) / lam`` then add up to 1, so k is between ``exp(-1) = 0.37`` (many small
        coordinates) and ``1 / 2`` (a single one). A much smaller lam makes all values vanish,
        a much larger one makes all of them 1.
    """

    name: ClassVar[str] = "reciprocal_semigroup"
    parameter: ClassVar[str] = "lam"

    def __init__(self, lam: float | str = "median") -> None:
        self.lam = lam

    def weight_law(self) -> tuple[int, float]:
        """Return the exponential law with rate lam."""
        return rng.EXPONENTIAL, 1.0 / self.value

    def _terms(self, x: Float64Array, z: Float64Array) -> Float64Array:
        return np.log1p((x + z) / self.value)

    def exact_rows(self, X: Matrix, *, wide: bool = False) -> ExactRows:
        """Return ``x / lam``."""
        return ExactRows(exact_values(X * (1.0 / self.value), wide=wide))

    def exact_block(self, A: ExactRows, B: ExactRows) -> Float32Array:
        """Return ``k(A_i, B_j)``, column by column."""
        K = exact.block(A.values, B.values, exact.SUMS, exact.INVERSE)
        return K.astype(np.float32, copy=False)

    def _from_rows(self, X: Matrix) -> float:
        return float(2.0 * np.median(_row_sums(X)))


def _row_sums(X: Matrix) -> Float64Array:
    return np.asarray(X.sum(axis=1), np.float64).ravel()
