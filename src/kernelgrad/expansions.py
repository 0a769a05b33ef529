"""What a fitted function is: seeds and coefficients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from kernelgrad._typing import Float32Array, Float64Array, Matrix
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.features import FeatureStream

# Rows handed to the hot loops at once. A multiple of the row tiles: cutting an input into
# other chunks of a multiple of this gives the same bits.
PREDICT_ROWS = 8192


class Expansion(ABC):
    """A fitted function f with C outputs."""

    kind: ClassVar[str]
    intercept: Float64Array

    @property
    def n_outputs(self) -> int:
        """Number of outputs C."""
        return len(self.intercept)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the arrays that make up the model."""

    @abstractmethod
    def copy(self) -> Expansion:
        """Return an independent copy of the coefficients."""

    @abstractmethod
    def add_raw(self, X: Matrix, out: Float32Array) -> None:
        """Add f(X) without the intercept to `out` (n, C)."""

    def raw_prediction(self, X: Matrix) -> Float64Array:
        """Return f(X), shape (n, C), float64, in row chunks of bounded memory.

        Features and coefficients are float32; the intercept is added in float64.
        """
        n = X.shape[0]
        out = np.zeros((n, self.n_outputs), np.float32)
        with single_threaded_blas():
            for start in range(0, n, PREDICT_ROWS):
                rows = slice(start, min(n, start + PREDICT_ROWS))
                self.add_raw(X[rows], out[rows])
        return out + self.intercept


class RandomFeatureExpansion(Expansion):
    r"""``f(x) = intercept + sum_j phi_j(x) A_j`` over the blocks of a feature stream.

    Memory is one float32 per feature and output, independent of the input width.

    Parameters
    ----------
    stream : FeatureStream
    n_outputs : int
        C.
    intercept : float64 array (C,) or None for zero
    """

    kind: ClassVar[str] = "random_features"

    def __init__(
        self, stream: FeatureStream, n_outputs: int, intercept: Float64Array | None = None
    ) -> None:
        self.stream = stream
        self.intercept = (
            np.zeros(n_outputs) if intercept is None else np.array(intercept, float)
        )
        self.n_blocks = 0
        self._coef = np.zeros((stream.planes, 0, n_outputs), np.float32)

    @property
    def n_random_features(self) -> int:
        """Number of random features in use, D."""
        return self.n_blocks * self.stream.width

    @property
    def nbytes(self) -> int:
        """Bytes of coefficients, intercept and input scaling."""
        scaling = (self.stream.scaling.centre, self.stream.scaling.scale)
        return (
            self.coef.nbytes
            + self.intercept.nbytes
            + sum(a.nbytes for a in scaling if a is not None)
        )

    @property
    def coef(self) -> Float32Array:
        """Coefficients in use, shape (planes, n_blocks * block_size, C); a view."""
        return self._coef[:, : self.n_blocks * self.stream.block_size]

    @coef.setter
    def coef(self, value: Float32Array) -> None:
        F = self.stream.block_size
        planes, used, C = value.shape
        if planes != self.stream.planes or used % F or self.n_outputs != C:
            raise ValueError(
                f"coefficients of shape {value.shape} do not fit {self.stream.planes} planes, "
                f"blocks of {F} and {self.n_outputs} outputs."
            )
        self.n_blocks = used // F
        self._coef = np.zeros((planes, self.stream.map.capacity(self.n_blocks), C), np.float32)
        self._coef[:, :used] = value

    def block(self, j: int) -> Float32Array:
        """Return the coefficients of block `j`, a view of shape (planes, block_size, C)."""
        F = self.stream.block_size
        return self._coef[:, j * F : (j + 1) * F]

    def add_block(self) -> int:
        """Append a block of zeros and return its number."""
        need = self.stream.map.capacity(self.n_blocks + 1)
        if need > self._coef.shape[1]:
            grown = self.stream.map.capacity(max(self.n_blocks + 1, 2 * self.n_blocks))
            coef = np.zeros((self._coef.shape[0], grown, self.n_outputs), np.float32)
            coef[:, : self._coef.shape[1]] = self._coef
            self._coef = coef
        self.n_blocks += 1
        return self.n_blocks - 1

    def average_towards(self, other: RandomFeatureExpansion, weight: float) -> None:
        """Move to ``(1 - weight) self + weight other``; `other` may have more blocks."""
        while self.n_blocks < other.n_blocks:
            self.add_block()
        mine = self.coef
        mine *= np.float32(1.0 - weight)
        mine += np.float32(weight) * other.coef

    def copy(self) -> RandomFeatureExpansion:
        """Return an expansion with its own coefficients on the same stream."""
        twin = RandomFeatureExpansion(self.stream, self.n_outputs, self.intercept)
        twin.n_blocks = self.n_blocks
        twin._coef = self._coef.copy()
        return twin

    def add_raw(self, X: Matrix, out: Float32Array) -> None:
        """Add the sum over blocks to `out`."""
        self.add_prepared(self.stream.prepare(X), out)

    def add_prepared(self, X: Matrix, out: Float32Array) -> None:
        """Add the sum over blocks for rows that went through ``stream.prepare``."""
        if self.n_blocks:
            self.stream.predict(X, self._coef, self.n_blocks, out)

    def add_block_prepared(
        self, X: Matrix, j: int, delta: Float32Array, out: Float32Array
    ) -> None:
        """Add ``phi_j(X) delta`` for prepared rows and `delta` (planes, block_size, C)."""
        flat = delta.reshape(self.stream.width, -1)
        for start in range(0, out.shape[0], PREDICT_ROWS):
            rows = slice(start, start + PREDICT_ROWS)
            out[rows] += self.stream.transform(X[rows], j) @ flat
