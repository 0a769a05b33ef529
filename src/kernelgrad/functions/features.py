"""The feature stream: block j of (kernel, seed), on rows as they come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from kernelgrad._typing import AnyArray, Float32Array, Float64Array, Matrix
from kernelgrad.features.base import FeatureMap, float32_rows
from kernelgrad.kernels import Kernel, describe_kernel, restore_kernel

CACHE_BYTES = 64 * 2**20
_FIT_ROWS = 8192


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

    def arrays(self) -> dict[str, Float64Array]:
        """Return what there is of centre and scale, for files."""
        parts = {"centre": self.centre, "scale": self.scale}
        return {name: a for name, a in parts.items() if a is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> InputScaling:
        """Return the scaling that :meth:`arrays` gave; other names are ignored."""
        return cls(arrays.get("centre"), arrays.get("scale"))


class FeatureStream:
    r"""Random features of a kernel as an endless, reproducible sequence of blocks.

    The model is the seed: block ``j`` is a pure function of (kernel parameters, seed, j),
    never of the batch, the thread or the data order.

    Parameters
    ----------
    kernel : Kernel
        With numbers for its parameters (see :meth:`Kernel.resolve`).
    n_features_in : int
        Input width d.
    seed : int in [0, 2^64)
    block_size : int
        Features per block and plane (frequencies for Fourier features).
    scaling : InputScaling
        Applied to rows in their own precision, before rounding to float32.
    cache_bytes : int, default 64 MiB
        How much of the frequencies may be kept between predictions; never changes a result.
    """

    def __init__(
        self,
        kernel: Kernel,
        n_features_in: int,
        seed: int,
        block_size: int,
        scaling: InputScaling | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.kernel = kernel
        self.n_features_in = n_features_in
        self.seed = seed
        self.block_size = block_size
        self.scaling = scaling if scaling is not None else InputScaling()
        self.cache_bytes = cache_bytes
        self.map: FeatureMap = kernel.feature_map(n_features_in, seed, block_size)

    @property
    def planes(self) -> int:
        """Features per frequency: 2 for the cos-sin pair."""
        return self.map.planes

    @property
    def width(self) -> int:
        """Columns of one block."""
        return self.map.width

    def prepare(self, X: Matrix) -> Matrix:
        """Return rows as the hot loops want them: scaled, embedded, float32, dense or CSR."""
        X = self.scaling.apply(X)
        self.kernel.check_domain(X)
        return float32_rows(self.map.prepare(X))

    def transform(self, X: Matrix, block: int) -> Float32Array:
        """Return block `block` of prepared rows, shape (n, width)."""
        return self.map.transform(X, block)

    def gradient(self, X: Matrix, R: Float32Array, block: int) -> Float32Array:
        """Return ``phi_block(X)^T R`` for prepared rows, shape (width, C)."""
        return self.map.gradient(X, R, block)

    def predict(self, X: Matrix, coef: Float32Array, n_blocks: int, out: Float32Array) -> None:
        """Add the sum over blocks of features times coefficients to `out` (n, C)."""
        self.map.predict(X, coef, n_blocks, out, self.cache_bytes)

    def describe(self) -> dict[str, Any]:
        """Return what defines the stream, for persistence."""
        return {
            "kernel": describe_kernel(self.kernel),
            "n_features_in": self.n_features_in,
            "seed": self.seed,
            "block_size": self.block_size,
        }

    @classmethod
    def restore(
        cls, values: dict[str, Any], arrays: Mapping[str, AnyArray], cache_bytes: int
    ) -> Self:
        """Return the stream that :meth:`describe` and ``scaling.arrays()`` gave."""
        return cls(
            restore_kernel(values["kernel"]),
            values["n_features_in"],
            values["seed"],
            values["block_size"],
            InputScaling.from_arrays(arrays),
            cache_bytes,
        )
