"""Random features of inner-product kernels: TensorSketches and random Maclaurin features.

Random numbers are pure functions of (seed, feature or block, coordinate), by the counters of
`kernelgrad.compute.rng` with a tag for each purpose.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.fft
import scipy.sparse as sp

from kernelgrad.compute import rng
from kernelgrad.compute.compiling import njit
from kernelgrad.compute.threads import over_tiles
from kernelgrad.features.base import FeatureMap, used_columns
from kernelgrad.types import Float32Array, Float64Array, IntArray, Matrix

TAG_DEGREE, TAG_SIGN, TAG_BUCKET = 3, 4, 5

_ROWS = 256  # rows of a tile


def hashes(seed: int, sketch: int, d: int, F: int) -> tuple[IntArray, Float32Array]:
    """Return buckets in [0, F) and signs of d coordinates.

    One word gives both: the last bit is the sign, and the other 31 bits, times ``F / 2^31`` and
    rounded down, are the bucket. The probability of a bucket differs from ``1 / F`` by less
    than 2^-31 (by 0 for a power of two). Estimates of inner products are unbiased for any law
    of the buckets, because the signs cancel collisions in expectation.
    """
    w = rng.words(seed, 0, -(-d // 4), TAG_BUCKET, sketch).T.ravel()[:d]
    bucket = (w >> np.uint32(1)).astype(np.uint64) * np.uint64(F) >> np.uint64(31)
    return bucket.astype(np.int64), np.where(w & np.uint32(1), -1, 1).astype(np.float32)


@njit(nogil=True, cache=True)
def _fill_rademacher(
    W: Any, columns: Any, features: Any, i0: int, n: int, tag: int, k0: int, k1: int
) -> None:
    drawn = np.empty((4, n), np.uint32)
    mine = np.empty((4, features.size), np.uint32)
    group = -1
    for p in range(columns.size):
        j = columns[p]
        if j >> 7 != group:
            group = j >> 7
            rng.philox(i0, group, tag, k0, k1, drawn)
            for h in range(4):
                for q in range(features.size):
                    mine[h, q] = drawn[h, features[q]]
        row = mine[(j >> 5) & 3]
        for q in range(features.size):
            bit = np.int32((row[q] >> np.uint32(j & 31)) & np.uint32(1))
            W[p, q] = np.float32(1 - 2 * bit)


def rademacher(
    columns: IntArray, features: IntArray, seed: int, first: int, n: int, level: int
) -> Float32Array:
    """Return the signs of level `level` (n_columns, n_features), for features from `first` on.

    `features` holds numbers in [0, n). One call of Philox covers 128 coordinates of a feature.
    """
    W = np.empty((len(columns), len(features)), np.float32)
    tag = TAG_SIGN + (level << 8)
    _fill_rademacher(W, columns, features, first, n, tag, *rng.split_seed(seed))
    return W


class InnerProductMap(FeatureMap):
    """Base class of maps with one plane that are computed from ``sqrt(gamma) x`` by row tiles.

    Subclasses define :meth:`draw` and :meth:`_tile`.
    """

    def __init__(self, gamma: float, *size: int) -> None:
        super().__init__(*size)
        self.root = float(np.sqrt(gamma))

    @abstractmethod
    def draw(self, block: int, columns: IntArray) -> Any:
        """Return the random numbers of a block for the given coordinates."""

    @abstractmethod
    def _tile(self, X: Matrix, draws: Any) -> Float32Array:
        """Return features of few rows."""

    def prepare(self, X: Matrix) -> Matrix:
        return X * self.root

    def transform(self, X: Matrix, block: int) -> Float32Array:
        X, columns = used_columns(X)
        draws, n = self.draw(block, columns), X.shape[0]
        out = np.empty((n, self.block_size), np.float32)

        def task(r0: int, r1: int) -> None:
            out[r0:r1] = self._tile(X[r0:r1], draws)

        over_tiles(n, _ROWS, task)
        return out


class TensorSketch(InnerProductMap):
    """One TensorSketch of ``(gamma <x, z> + coef0)^degree`` per block.

    FFTs are in float32, which takes two thirds of the time of float64. The measured error of
    the features of a row is below 1e-6 of their norm (degrees up to 5, F up to 1,024).
    """

    def __init__(self, gamma: float, degree: int, coef0: float, *size: int) -> None:
        super().__init__(gamma, *size)
        self.degree = degree
        self.constant = np.float32(np.sqrt(coef0))

    def draw(
        self, block: int, columns: IntArray
    ) -> list[tuple[sp.csr_matrix, IntArray, Float32Array]]:
        """Return count sketches: matrices (n_columns, F), and what they do to the constant."""
        d, F, sketches = self.n_features_in, self.block_size, []
        for sketch in range(block * self.degree, (block + 1) * self.degree):
            bucket, sign = hashes(self.seed, sketch, d + 1, F)
            entries = sign[columns], bucket[columns], np.arange(len(columns) + 1)
            S = sp.csr_matrix(entries, shape=(len(columns), F))
            sketches.append((S, bucket[d], sign[d] * self.constant))
        return sketches

    def _tile(self, X: Matrix, draws: Any) -> Float32Array:
        spectrum: Any = 1
        for S, bucket, constant in draws:
            C = X @ S
            C = C.toarray() if sp.issparse(C) else np.ascontiguousarray(C)
            C[:, bucket] += constant
            spectrum = spectrum * scipy.fft.rfft(C, axis=1)
        P: Float32Array = scipy.fft.irfft(spectrum, n=self.block_size, axis=1)
        return P


class MaclaurinDraws(NamedTuple):
    """Random numbers of a block whose features are sorted by decreasing degree."""

    position: IntArray  # (F,), position of each feature in that order
    amplitude: Float32Array
    levels: list[Float32Array]  # l = 1, 2, ...: signs of the features of degree l or more


class RandomMaclaurin(InnerProductMap):
    """Products of N random projections, computed level by level as matrix products.

    `law` returns degrees N for uniform variates in (0, 1), and ``a_N / P[N]``; `check` raises
    if features of rows would have infinite variance.
    """

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
        F = self.block_size
        inside = rng.uniforms(self.seed, block * F, F, TAG_DEGREE)
        order = np.argsort(
            rng.uniforms(self.seed, block * F, F, TAG_DEGREE, group=1), kind="stable"
        )
        return self.law((order + inside) / F)

    def draw(self, block: int, columns: IntArray) -> MaclaurinDraws:
        F = self.block_size
        N, squared = self.degrees(block)
        order = np.argsort(-N, kind="stable")
        levels = [
            rademacher(columns, order[: (level < N).sum()], self.seed, block * F, F, level)
            for level in range(int(N.max()))
        ]
        amplitude = np.sqrt(squared[order] / F).astype(np.float32)
        return MaclaurinDraws(np.argsort(order, kind="stable"), amplitude, levels)

    def _tile(self, X: Matrix, draws: MaclaurinDraws) -> Float32Array:
        P = np.tile(draws.amplitude, (X.shape[0], 1))
        for W in draws.levels:
            P[:, : W.shape[1]] *= X @ W
        return np.take(P, draws.position, axis=1)
