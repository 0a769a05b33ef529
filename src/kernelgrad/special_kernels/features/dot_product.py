"""Random features of inner-product kernels: TensorSketches and random Maclaurin features."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.fft

from kernelgrad.compute import rng
from kernelgrad.compute.rows import Rows, as_rows
from kernelgrad.compute.threads import over_tiles
from kernelgrad.features.base import FeatureMap, used_columns
from kernelgrad.features.fused import tile_product
from kernelgrad.special_kernels.features import sketches
from kernelgrad.types import AnyArray, Float32Array, Float64Array, IntArray, Matrix

_WIDTH = 16  # signs are drawn for multiples of this many features, to limit product shapes


class InnerProductMap(FeatureMap):
    """Base class of maps with one plane that are computed from ``sqrt(gamma) x`` by row tiles.

    Subclasses define :meth:`_draw` and :meth:`_tile`.
    """

    ROWS: ClassVar[int]  # rows of a tile, a power of two

    def __init__(self, gamma: float, *size: int) -> None:
        super().__init__(*size)
        self._root = float(np.sqrt(gamma))

    @abstractmethod
    def _draw(self, block: int, columns: IntArray) -> Any:
        """Return the random numbers of a block for the given coordinates."""

    @abstractmethod
    def _tile(self, rows: Rows, r0: int, r1: int, draws: Any) -> Float32Array:
        """Return features of rows r0..r1."""

    def prepare(self, X: Matrix) -> Matrix:
        return X * self._root

    def transform(self, X: Matrix, block: int) -> Float32Array:
        X, columns = used_columns(X)
        draws, rows, n = self._draw(block, columns), as_rows(X), X.shape[0]
        out = np.empty((n, self.block_size), np.float32)

        def task(r0: int, r1: int) -> None:
            out[r0:r1] = self._tile(rows, r0, r1, draws)

        over_tiles(n, self.ROWS, task)
        return out

    def predict(
        self, X: Matrix, coef: Float32Array, n_blocks: int, out: Float32Array, cache_bytes: int
    ) -> None:
        """Add the prediction of blocks 0..n_blocks to `out`, tile by tile.

        Random numbers are drawn anew in every call; they cost little compared with features.
        """
        X, columns = used_columns(X)
        rows, n, F = as_rows(X), X.shape[0], self.block_size
        for j in range(n_blocks):
            draws = self._draw(j, columns)
            a = coef[0, j * F : (j + 1) * F]

            def task(r0: int, r1: int, draws: Any = draws, a: Float32Array = a) -> None:
                out[r0:r1] += self._tile(rows, r0, r1, draws) @ a

            over_tiles(n, self.ROWS, task)


class TensorSketch(InnerProductMap):
    """One TensorSketch of ``(gamma <x, z> + coef0)^degree`` per block.

    FFTs are in float32, which takes two thirds of the time of float64. The measured error of
    the features of a row is below 1e-6 of their norm (degrees up to 5, F up to 1,024).
    """

    ROWS = 64

    def __init__(self, gamma: float, degree: int, coef0: float, *size: int) -> None:
        super().__init__(gamma, *size)
        self.degree = degree
        self._constant = np.float32(np.sqrt(coef0))

    def _draw(self, block: int, columns: IntArray) -> tuple[AnyArray, Float32Array]:
        """Return buckets and signs (degree, n_columns + 1), with those of the constant last."""
        columns = np.append(columns, self.n_features_in)
        first = block * self.degree
        return sketches.hashes(columns, self.seed, first, self.degree, self.block_size)

    def _tile(
        self, rows: Rows, r0: int, r1: int, draws: tuple[AnyArray, Float32Array]
    ) -> Float32Array:
        C = np.empty((r1 - r0, self.degree, self.block_size), np.float32)
        sketches.count_sketch(rows, r0, r1, *draws, self._constant, C)
        spectrum = np.multiply.reduce(scipy.fft.rfft(C, axis=2), axis=1)
        P: Float32Array = scipy.fft.irfft(spectrum, n=self.block_size, axis=1)
        return P


class MaclaurinDraws(NamedTuple):
    """Random numbers of a block whose features are sorted by decreasing degree."""

    position: IntArray  # (F,), position of each feature in that order
    amplitude: Float32Array
    # for l = 1, 2, ...: the number n_l of features of degree l or more, and their signs of
    # level l, (n_columns, n_l or more)
    levels: list[tuple[int, Float32Array]]


class RandomMaclaurin(InnerProductMap):
    """Products of N random projections, computed level by level as matrix products.

    `law` returns degrees N for uniform variates in (0, 1), and ``a_N / P[N]``; `check` raises
    if features of rows would have infinite variance.
    """

    ROWS = 256

    def __init__(
        self, gamma: float, law: Callable[[Float64Array], tuple[IntArray, Float64Array]],
        check: Callable[[Matrix], None], *size: int,
    ) -> None:  # fmt: skip
        super().__init__(gamma, *size)
        self.law, self.check = law, check

    def prepare(self, X: Matrix) -> Matrix:
        self.check(X)
        return super().prepare(X)

    def degrees(self, block: int) -> tuple[IntArray, Float64Array]:
        """Return the degrees N of the features of a block, and ``a_N / P[N]``.

        The uniform variates are stratified: one from each of F equal strata, in random order.
        """
        F, tag = self.block_size, sketches.TAG_DEGREE
        inside = rng.uniforms(self.seed, block * F, F, tag)
        order = np.argsort(rng.uniforms(self.seed, block * F, F, tag, group=1), kind="stable")
        return self.law((order + inside) / F)

    def _draw(self, block: int, columns: IntArray) -> MaclaurinDraws:
        F = self.block_size
        N, squared = self.degrees(block)
        order = np.argsort(-N, kind="stable")
        levels = []
        for level in range(int(N.max())):
            n = int(np.count_nonzero(level < N))
            drawn = order[: -(-n // _WIDTH) * _WIDTH]
            W = sketches.rademacher(columns, drawn, self.seed, block * F, F, level)
            levels.append((n, W))
        amplitude = np.sqrt(squared[order] / F).astype(np.float32)
        return MaclaurinDraws(np.argsort(order, kind="stable"), amplitude, levels)

    def _tile(self, rows: Rows, r0: int, r1: int, draws: MaclaurinDraws) -> Float32Array:
        n = r1 - r0
        P = np.tile(draws.amplitude, (n, 1))
        # allocating memory for each level would take longer than its product
        room = np.zeros(n * max((W.shape[1] for _, W in draws.levels), default=0), np.float32)
        for m, W in draws.levels:
            T = room[: n * W.shape[1]].reshape(n, -1)
            tile_product(rows, r0, r1, W, T)
            P[:, :m] *= T[:, :m]
        return np.take(P, draws.position, axis=1)
