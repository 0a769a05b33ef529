"""Shift and scale of the columns, before kernels see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad._typing import Float64Array, Matrix
from kernelgrad.kernels import Kernel

_FIT_ROWS = 8192  # rows that are float64 at a time


@dataclass(frozen=True)
class InputScaling:
    """``(x - centre) / scale`` per column; None leaves that part out.

    A shift changes no stationary kernel, and small inputs keep the phase ``w . x`` exact in
    float32. Sparse rows are never shifted.
    """

    centre: Float64Array | None = None
    scale: Float64Array | None = None

    @classmethod
    def fit(
        cls, X: Matrix, kernel: Kernel, *, standardize: bool, sample_weight: Float64Array
    ) -> InputScaling:
        """Return the scaling that fits `kernel`, from the weighted rows of a first batch.

        Dense rows are centred where the kernel is stationary. With `standardize` columns are
        divided by their standard deviation (by 1 where it is zero).
        """
        p = sample_weight / sample_weight.sum()
        centred = kernel.is_stationary and not sp.issparse(X)
        if not (centred or standardize):
            return cls()
        if sp.issparse(X):
            mean = np.asarray(p @ X).ravel()
            square = np.asarray(p @ X.multiply(X)).ravel()
            variance = np.maximum(square - mean**2, 0.0)
            rounding = 1e-14 * square
        else:
            # float64 a part at a time: rows are often float32 or small integers
            cuts = range(0, len(p), _FIT_ROWS)
            parts = [slice(a, a + _FIT_ROWS) for a in cuts]
            mean = np.zeros(X.shape[1])
            for i in parts:
                mean += p[i] @ np.asarray(X[i], np.float64)
            if not standardize:
                return cls(mean, None)
            variance = np.zeros(X.shape[1])
            for i in parts:
                variance += p[i] @ (X[i] - mean) ** 2
            rounding = (8 * np.finfo(float).eps * np.abs(mean)) ** 2
        centre = mean if centred else None
        tiny = variance <= rounding
        return cls(centre, np.where(tiny, 1.0, np.sqrt(variance)))

    def apply(self, X: Matrix) -> Matrix:
        """Return scaled rows, dense or CSR."""
        if sp.issparse(X):
            if self.centre is None:
                return X if self.scale is None else sp.csr_matrix(X.multiply(1.0 / self.scale))
            X = X.toarray()
        if self.centre is not None:
            X = X - self.centre
        return X if self.scale is None else X / self.scale

    @property
    def nbytes(self) -> int:
        """Bytes of centre and scale."""
        return sum(a.nbytes for a in self.arrays().values())

    def arrays(self) -> dict[str, Float64Array]:
        """Return what there is of centre and scale, for files."""
        parts = {"centre": self.centre, "scale": self.scale}
        return {name: a for name, a in parts.items() if a is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> InputScaling:
        """Return the scaling that :meth:`arrays` gave; other names are ignored."""
        return cls(arrays.get("centre"), arrays.get("scale"))
