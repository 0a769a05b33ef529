"""The feature stream: block j of (kernel, seed), on rows as they come."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad._typing import Float32Array, Float64Array, Matrix
from kernelgrad.kernels import FeatureMap, Kernel

# From this density on, dense rows are cheaper than sparse ones (measured).
DENSIFY = 0.1
CACHE_BYTES = 64 * 2**20


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
    centre : float64 array (d,) or None
        Subtracted from dense rows before float32 rounding. A shift changes no stationary
        kernel, and small inputs keep the phase ``w . x`` exact.
    cache_bytes : int, default 64 MiB
        How much of the frequencies may be kept between predictions; never changes a result.
    """

    def __init__(
        self,
        kernel: Kernel,
        n_features_in: int,
        seed: int,
        block_size: int,
        centre: Float64Array | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.kernel = kernel
        self.n_features_in = n_features_in
        self.seed = seed
        self.block_size = block_size
        self.centre = centre
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
        """Return rows as the hot loops want them: float32, centred, dense or CSR."""
        if sp.issparse(X):
            X = X if X.format == "csr" else X.tocsr()
            if self.centre is None and X.nnz < DENSIFY * X.shape[0] * X.shape[1]:
                return X.astype(np.float32)
            X = X.toarray()
        if self.centre is not None:
            X = X - self.centre
        return np.ascontiguousarray(X, np.float32)

    def transform(self, X: Matrix, block: int) -> Float32Array:
        """Return block `block` of prepared rows, shape (n, width)."""
        return self.map.transform(X, block)

    def gradient(self, X: Matrix, R: Float32Array, block: int) -> Float32Array:
        """Return ``phi_block(X)^T R`` for prepared rows, shape (width, C)."""
        return self.map.gradient(X, R, block)

    def predict(self, X: Matrix, coef: Float32Array, n_blocks: int, out: Float32Array) -> None:
        """Add the sum over blocks of features times coefficients to `out` (n, C)."""
        self.map.predict(X, coef, n_blocks, out, self.cache_bytes)

    def with_block_size(self, block_size: int) -> FeatureStream:
        """Return the same stream cut into blocks of another size."""
        return FeatureStream(
            self.kernel,
            self.n_features_in,
            self.seed,
            block_size,
            self.centre,
            self.cache_bytes,
        )

    def describe(self) -> dict[str, Any]:
        """Return what defines the stream, for persistence."""
        return {
            "kernel": self.kernel.name,
            "kernel_params": self.kernel.get_params(deep=False),
            "n_features_in": self.n_features_in,
            "seed": self.seed,
            "block_size": self.block_size,
        }
