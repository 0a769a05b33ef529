r"""Kernels of histograms by random projections of transformed rows (Dai et al. 2014, Table 1).

The Hellinger kernel is linear in square roots. Skewed kernels are stationary kernels of
``log(x + c)``, so their features are random Fourier features of the transformed rows. Semigroup
kernels are functions of ``x + z``: ``k(x, z) = E_w[exp(-w . x) exp(-w . z)]`` for random
weights w >= 0, which is the Laplace transform of the law of w at ``x + z``.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Self

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute import rng
from kernelgrad.features import fused as projections
from kernelgrad.features.base import float64_rows
from kernelgrad.kernels import profiles
from kernelgrad.kernels.base import TiledKernel, check_least
from kernelgrad.kernels.projection import ProjectionKernel
from kernelgrad.kernels.rows import row_sums
from kernelgrad.kernels.stationary import Form
from kernelgrad.params import choice, number_or_rule, parameters, real
from kernelgrad.types import Float64Array, Matrix
from kernelgrad.validation import DataError


class Hellinger(TiledKernel, ProjectionKernel):
    r"""Hellinger (Bhattacharyya) kernel, ``sum_j sqrt(x_j z_j)``.

    It is defined for ``x >= 0``; ``k(x, x) = sum_j x_j``, which is 1 for frequencies. Features
    are ``w . sqrt(x)`` with random signs w (Table 1, Hellinger; the factor 2 printed there
    would give ``4 k``). It is the linear kernel of ``sqrt(x)``, so for small d a linear model
    of ``sqrt(x)`` gives the same function without the variance of random features. It has no
    parameters.
    """

    name: ClassVar[str] = "hellinger"
    is_of_histograms: ClassVar[bool] = True
    projection: ClassVar[int] = projections.LINEAR

    def weight_law(self) -> tuple[int, float]:
        return rng.RADEMACHER, 1.0

    def embed(self, X: Matrix) -> Matrix:
        X = float64_rows(X)
        return X.sqrt() if sp.issparse(X) else np.sqrt(X)

    def embedded(self, X: Matrix) -> Matrix:
        return self.embed(X)

    def diag(self, X: Matrix) -> Float64Array:
        return row_sums(X)


@parameters
class SkewedKernel(TiledKernel, ProjectionKernel):
    r"""Base class of the kernels ``prod_j g(log(x_j + c) - log(z_j + c))`` with ``g(0) = 1``.

    Rows are embedded as ``log(1 + x / c)``, which keeps the zeros of sparse rows. It differs
    from ``log(x + c)`` in Table 1 by a constant, which cancels in differences of rows.
    """

    c: float = real(default=1.0, low=0, low_open=True, kw_only=False)
    form: Form = choice(("pair", "phase"), default="pair", what="feature form")

    def check_domain(self, X: Matrix) -> None:
        check_least(self, X, -float(self.c), strict=True)

    def embed(self, X: Matrix) -> Matrix:
        X, c = float64_rows(X), float(self.c)
        if not sp.issparse(X):
            return np.log1p(X / c)
        # scipy's X / c multiplies by 1 / c, which can give -1 for entries just above -c
        return sp.csr_matrix((np.log1p(X.data / c), X.indices, X.indptr), shape=X.shape)

    def diag(self, X: Matrix) -> Float64Array:
        return np.ones(X.shape[0])


class SkewedChi2(SkewedKernel):
    r"""Skewed chi-squared kernel, ``prod_j 2 sqrt((x_j+c)(z_j+c)) / (x_j + z_j + 2c)``.

    It is defined for ``x_j > -c``, with values in (0, 1]. In terms of ``a = log(x + c)`` and
    ``b = log(z + c)`` it is ``prod_j sech((a_j - b_j) / 2)``, so frequencies have the density
    ``sech(pi w)`` in every coordinate (Table 1, skewed chi-squared; the factor 2 is printed
    before the product, where it would give ``k(x, x) = 2^(1-d)``).

    Parameters
    ----------
    c : float > 0, default=1.0
        The scale of the transition from absolute to relative differences: for entries far
        below c the kernel depends on ``x - z``, far above on ``x / z``. 1 suits counts and is
        scikit-learn's default; for frequencies that sum to 1 use about their mean, ``1 / d``.
    form : {"pair", "phase"}, default="pair"
        ``[cos, sin]`` pairs (lower variance, half the cost per feature), or the papers'
        ``sqrt(2) cos(w . x + b)``.
    """

    name: ClassVar[str] = "skewed_chi2"
    form_code: ClassVar[int] = profiles.COSH
    finish_code: ClassVar[int] = profiles.INVERSE

    def weight_law(self) -> tuple[int, float]:
        return rng.SECH, 1.0

    def embedded(self, X: Matrix) -> Matrix:
        r"""Return ``a = sqrt(1 + x / c) - 1``, which is zero where x is.

        A factor of k is then ``1 / (1 + (a - b)^2 / (2 (1 + a) (1 + b)))``, which is accurate
        for small differences and needs no logarithms.
        """
        half = self.embed(X) * 0.5
        return half.expm1() if sp.issparse(half) else np.expm1(half)


class SkewedIntersection(SkewedKernel):
    r"""Skewed intersection kernel.

    ``k(x, z) = prod_j min(sqrt((x_j+c)/(z_j+c)), sqrt((z_j+c)/(x_j+c)))``. It is defined for
    ``x_j > -c``, with values in (0, 1]. In terms of ``a = log(x + c)`` and ``b = log(z + c)``
    it is the Laplacian kernel ``exp(-||a - b||_1 / 2)``, so frequencies are Cauchy with scale
    1/2 (Table 1, skewed intersection; the density printed there, ``1 / (pi (1 + 4 w^2))``,
    lacks a factor 2).

    Parameters
    ----------
    c, form
        As in :class:`SkewedChi2`.
    """

    name: ClassVar[str] = "skewed_intersection"
    form_code: ClassVar[int] = profiles.ABSOLUTE
    finish_code: ClassVar[int] = profiles.EXP_MINUS

    def weight_law(self) -> tuple[int, float]:
        return rng.CAUCHY, 0.5

    def embedded(self, X: Matrix) -> Matrix:
        return self.embed(X) * 0.5


MEDIAN_ROWS = 2000  # rows of the sample from which a rule computes the parameter
# Bounds of parameters, beyond which float32 weights or their products with rows overflow or
# vanish
SMALLEST, LARGEST = 1e-12, 1e12


class SemigroupKernel(TiledKernel, ProjectionKernel):
    r"""Base class of the kernels ``exp(-sum_j g(x_j + z_j))`` with ``g(0) = 0``.

    Their values lie in (0, 1], and ``k(x, x)`` is 1 only for ``x = 0``. Subclasses have one
    parameter, a number or ``"median"``, whose name is :attr:`parameter`.
    """

    is_of_histograms: ClassVar[bool] = True
    projection: ClassVar[int] = projections.DECAY
    parameter: ClassVar[str]

    @property
    def value(self) -> float:
        """The parameter as a number; raises ValueError if it is still a rule."""
        return self._number(self.parameter)

    @abstractmethod
    def _terms(self, x: Float64Array) -> Float64Array:
        """Return ``g(2 x)``."""

    @abstractmethod
    def _from_rows(self, X: Matrix) -> float:
        """Return the value of the rule for some rows, none of which is zero."""

    def resolve(self, X: Matrix, seed: int) -> Self:
        """Replace the rule by a number computed from a seeded sample of at most 2,000 rows.

        Zero rows are left out; if there are no others the parameter is 1.
        """
        self.check()
        if not isinstance(getattr(self, self.parameter), str):
            return self
        self.check_domain(X)
        if X.shape[0] > MEDIAN_ROWS:
            u = rng.uniforms(seed, 0, X.shape[0], rng.TAG_AUXILIARY, group=1)
            X = X[np.sort(np.argpartition(u, MEDIAN_ROWS)[:MEDIAN_ROWS])]
        X = float64_rows(X)
        X = X[row_sums(X) > 0]
        value = self._from_rows(X) if X.shape[0] else 1.0
        if not SMALLEST <= value <= LARGEST:
            raise DataError(
                f"{self.parameter}='median' gives {value:g} on these data; scale the inputs "
                f"or give {self.parameter} as a number."
            )
        return self._replaced(**{self.parameter: value})

    def diag(self, X: Matrix) -> Float64Array:
        X = float64_rows(X)
        if not sp.issparse(X):
            return np.exp(-row_sums(self._terms(X)))
        terms = self._terms(X.data), X.indices, X.indptr
        return np.exp(-row_sums(sp.csr_matrix(terms, shape=X.shape)))


@parameters
class ExponentialSemigroup(SemigroupKernel):
    r"""Exponential semigroup kernel, ``exp(-beta sum_j sqrt(x_j + z_j))``.

    It is defined for ``x >= 0``. Weights have a Lévy law with scale ``beta^2 / 2`` in every
    coordinate, ``w = beta^2 / (2 u^2)`` for standard normal u, whose Laplace transform is
    ``exp(-beta sqrt(s))`` (Table 1, exponential semigroup; the exponent printed there,
    ``-beta / (4 w)``, must be ``-beta^2 / (4 w)``).

    Parameters
    ----------
    beta : float in [1e-12, 1e12] or "median", default="median"
        ``"median"`` is ``1 / median_i sum_j sqrt(2 x_ij)``. The median of ``k(x, x)`` is then
        ``exp(-1)``, and k of two such rows lies between ``exp(-sqrt(2)) = 0.24`` (disjoint
        supports) and ``exp(-1) = 0.37`` (equal rows). With a much larger beta all values
        vanish; with a much smaller one all are 1.
    """

    name: ClassVar[str] = "exponential_semigroup"
    parameter: ClassVar[str] = "beta"
    form_code: ClassVar[int] = profiles.ROOTS
    finish_code: ClassVar[int] = profiles.EXP_MINUS

    beta: float | str = number_or_rule(
        ("median",), default="median", low=SMALLEST, high=LARGEST, kw_only=False
    )

    def weight_law(self) -> tuple[int, float]:
        return rng.LEVY, self.value**2 / 2

    def _terms(self, x: Float64Array) -> Float64Array:
        return np.asarray(self.value * np.sqrt(2.0 * x))

    def embedded(self, X: Matrix) -> Matrix:
        return X * self.value**2

    def _from_rows(self, X: Matrix) -> float:
        roots = X.sqrt() if sp.issparse(X) else np.sqrt(X)
        return float(1.0 / (np.sqrt(2.0) * np.median(row_sums(roots))))


@parameters
class ReciprocalSemigroup(SemigroupKernel):
    r"""Reciprocal semigroup kernel, ``prod_j lam / (x_j + z_j + lam)``.

    It is defined for ``x >= 0``. Weights have the exponential law of rate lam, with density
    ``lam exp(-lam w)``, in every coordinate (Table 1, reciprocal semigroup).

    Parameters
    ----------
    lam : float in [1e-12, 1e12] or "median", default="median"
        ``"median"`` is ``2 median_i sum_j x_ij``. For two rows of median sum,
        ``sum_j (x_j + z_j) / lam`` is then 1 and k lies between ``exp(-1) = 0.37`` (many small
        coordinates) and ``1 / 2`` (a single coordinate). With a much smaller lam all values
        vanish; with a much larger one all are 1.
    """

    name: ClassVar[str] = "reciprocal_semigroup"
    parameter: ClassVar[str] = "lam"
    form_code: ClassVar[int] = profiles.SUMS
    finish_code: ClassVar[int] = profiles.INVERSE

    lam: float | str = number_or_rule(
        ("median",), default="median", low=SMALLEST, high=LARGEST, kw_only=False
    )

    def weight_law(self) -> tuple[int, float]:
        return rng.EXPONENTIAL, 1.0 / self.value

    def _terms(self, x: Float64Array) -> Float64Array:
        return np.log1p(2.0 * x / self.value)

    def embedded(self, X: Matrix) -> Matrix:
        return X * (1.0 / self.value)

    def _from_rows(self, X: Matrix) -> float:
        return float(2.0 * np.median(row_sums(X)))
