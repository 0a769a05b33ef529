r"""Skewed multiplicative kernels for histograms (Dai et al. 2014, Table 1).

Both are stationary kernels of ``log(x + c)``, so their features are random Fourier features of
the transformed rows.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute import rng
from kernelgrad.features.base import float64_rows
from kernelgrad.kernels import profiles
from kernelgrad.kernels.base import TiledKernel, check_least
from kernelgrad.kernels.projection import ProjectionKernel, form_of_cosines
from kernelgrad.kernels.stationary import Form
from kernelgrad.params import parameters, real
from kernelgrad.types import Float64Array, Matrix


@parameters
class SkewedKernel(TiledKernel, ProjectionKernel):
    r"""Base class of the kernels ``prod_j g(log(x_j + c) - log(z_j + c))`` with ``g(0) = 1``.

    Rows are embedded as ``log(1 + x / c)``, which keeps the zeros of sparse rows. It differs
    from ``log(x + c)`` in Table 1 by a constant, which cancels in differences of rows.
    """

    c: float = real(default=1.0, low=0, low_open=True, kw_only=False)
    form: Form = form_of_cosines()

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
