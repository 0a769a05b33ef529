"""The stream of random features of a kernel for unscaled rows."""

from functools import partial
from typing import Any, Self

import numpy as np

from kernelgrad.compute import linalg
from kernelgrad.features.base import FeatureMap, float32_rows
from kernelgrad.files.records import Record
from kernelgrad.functions.scaling import InputScaling, ScaledKernel, restored_kernel
from kernelgrad.kernels import Kernel
from kernelgrad.registry import room
from kernelgrad.types import Float32Array, Float64Array, FloatArray, Matrix
from kernelgrad.validation import check_int

CACHE_BYTES = 64 * 2**20
MOST_FEATURES = 2**24  # largest block accepted from a file; more frequencies would fill memory
PREDICT_ROWS = 8192  # rows that the CPU predicts at once
MOMENT_ROWS = 2048  # rows per step of a covariance: 16 MiB for twice as many features


class FeatureStream(ScaledKernel):
    r"""Random features of a kernel as an endless, reproducible sequence of blocks.

    Block ``j`` is a pure function of (kernel parameters, seed, j), independent of batches,
    threads and the order of the data, so a model stores the seed instead of the features.

    Parameters
    ----------
    kernel, n_features_in, scaling
        As for :class:`~kernelgrad.functions.scaling.ScaledKernel`.
    seed : int in [0, 2^64)
        Seed of all features.
    block_size : int
        Features per block and plane (frequencies for Fourier features).
    cache_bytes : int, default 64 MiB
        Memory for frequencies kept between predictions. It does not change results.
    """

    def __init__(
        self, kernel: Kernel, n_features_in: int, seed: int, block_size: int,
        scaling: InputScaling | None = None, cache_bytes: int = CACHE_BYTES,
    ) -> None:  # fmt: skip
        super().__init__(kernel, n_features_in, scaling)
        self.seed = seed
        self.block_size = block_size
        self.cache_bytes = cache_bytes
        self.map: FeatureMap = kernel.feature_map(n_features_in, seed, block_size)

    def _moved(self, device: Any) -> Any:
        return room("device").DeviceFeatures(device, self.map, self.kernel.name)

    @property
    def planes(self) -> int:
        """Features per frequency: 2 for the cos-sin pair."""
        return self.map.planes

    @property
    def width(self) -> int:
        """Columns of one block."""
        return self.map.width

    def prepare(self, X: Matrix, *, first: int = 0) -> Matrix:
        """Return rows scaled, embedded and in float32, dense or CSR, for the compiled loops.

        `first` is the number of the first row, for messages.
        """
        rows = float32_rows(self.map.prepare(self.scaled(X, first=first)))
        # a new object, by which a device recognises rows that it already has
        return rows.view() if isinstance(rows, np.ndarray) else rows

    def transform(self, X: Matrix, block: int) -> Float32Array:
        """Return block `block` of prepared rows, shape (n, width)."""
        there = self.on_device
        return self.map.transform(X, block) if there is None else there.transform(X, block)

    def gradient(self, X: Matrix, R: Float32Array, block: int) -> Float32Array:
        """Return ``phi_block(X)^T R`` for prepared rows, shape (width, C)."""
        there = self.on_device
        return (self.map if there is None else there).gradient(X, R, block)

    def moments(
        self, X: Matrix, block: int, root: Float32Array, every: int,
        f: Float32Array, r: Float32Array,
    ) -> tuple[Float64Array, FloatArray, FloatArray]:  # fmt: skip
        """Return sums over rows of the features P of a block, with each row times its `root`.

        Returns
        -------
        H : (width, width)
            ``P_s^T P_s`` over every `every`-th row s, the lower triangle.
        penalty, gradient : (width, C)
            ``P_s^T (root f)_s`` over the same rows, and ``P^T (root r)`` over all rows; f and r
            are (n, C), `root` is (n, 1).
        """
        if self.on_device is not None:
            return self.on_device.moments(X, block, root, every, f, r)  # type: ignore[no-any-return]
        H = np.zeros((self.width, self.width))
        penalty, gradient = (np.zeros((self.width, f.shape[1])) for _ in range(2))
        n, size = X.shape[0], MOMENT_ROWS * every
        for a in range(0, n, size):  # bounds the memory for features
            whole, parts = slice(a, a + size), []
            for b in range(a, min(n, a + size), MOMENT_ROWS):
                part = slice(b, min(n, b + MOMENT_ROWS))
                P = self.transform(X[part], block)
                P *= root[part]
                gradient += P.T @ (root[part] * r[part])
                parts.append(P if every == 1 else P[(a - b) % every :: every].copy())
                del P  # freed before the next ones are computed
            sample = parts.pop() if every == 1 else np.concatenate(parts)
            parts.clear()
            linalg.gram(sample, H)
            penalty += sample.T @ (root[whole] * f[whole])[::every]
            del sample
        return H, penalty, gradient

    def predict(self, X: Matrix, coef: Float32Array, n_blocks: int, out: Float32Array) -> None:
        """Add the sum over blocks of features times coefficients to `out` (n, C)."""
        if self.on_device is not None:
            self.on_device.predict(X, coef, n_blocks, out)
        else:
            self.map.predict(X, coef, n_blocks, out, self.cache_bytes)

    def add_block(self, X: Matrix, block: int, delta: Float32Array, out: FloatArray) -> None:
        """Add ``phi_block(X) delta`` for prepared rows and `delta` (planes, block_size, C)."""
        flat = delta.reshape(self.width, -1)
        if self.on_device is not None:
            self.on_device.add_block(X, flat, block, out)
            return
        for start in range(0, out.shape[0], PREDICT_ROWS):
            rows = slice(start, start + PREDICT_ROWS)
            out[rows] += self.transform(X[rows], block) @ flat

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"seed": self.seed, "block_size": self.block_size}

    @classmethod
    def restore(cls, record: Record, cache_bytes: int, scaling: Record | None = None) -> Self:
        """Return the stream from the results of :meth:`describe` and ``scaling.arrays()``."""
        seed = record.take("seed", partial(check_int, high=2**64 - 1))
        size = record.take("block_size", partial(check_int, low=1, high=MOST_FEATURES))
        kernel, d, transformation = restored_kernel(record, scaling)
        return cls(kernel, d, seed, size, transformation, cache_bytes)
