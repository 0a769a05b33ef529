r"""The Hellinger kernel, linear in square roots (Dai et al. 2014, Table 1)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute import rng
from kernelgrad.features import fused as projections
from kernelgrad.features.base import float64_rows
from kernelgrad.kernels.base import TiledKernel
from kernelgrad.kernels.projection import ProjectionKernel
from kernelgrad.kernels.rows import row_sums
from kernelgrad.types import Float64Array, Matrix


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

    @property
    def projection(self) -> int:
        return projections.LINEAR

    def weight_law(self) -> tuple[int, float]:
        return rng.RADEMACHER, 1.0

    def embed(self, X: Matrix) -> Matrix:
        X = float64_rows(X)
        return X.sqrt() if sp.issparse(X) else np.sqrt(X)

    def embedded(self, X: Matrix) -> Matrix:
        return self.embed(X)

    def diag(self, X: Matrix) -> Float64Array:
        return row_sums(X)
