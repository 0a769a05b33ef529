r"""Random Fourier features with dependent frequencies.

The discussion of Dai et al. (2014) names two alternatives to independent frequencies:
structured matrices, which take ``O(log d)`` instead of ``O(d)`` operations per feature and row,
and quasi-Monte Carlo points. Every single frequency has the spectral law of the kernel (only
approximately for :class:`HadamardMap`), so each block remains an unbiased estimate, and the
dependence lowers its variance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev
from scipy.special import gammainccinv, gammaincinv, ndtr, ndtri

from kernelgrad.compute import rng
from kernelgrad.compute.threads import parallel_for, single_threaded_blas
from kernelgrad.features.base import FeatureMap
from kernelgrad.features.projections import Projection, ProjectionMap
from kernelgrad.special_kernels.features import hadamard
from kernelgrad.types import Float32Array, Float64Array, FloatArray, IntArray, Matrix

TAG_ORTHOGONAL, TAG_LENGTH, TAG_SHIFT = 8, 9, 10

# Up to this number of columns frequencies are exactly orthogonal: dense products are cheap, and
# transforms of order 64 have a visible bias (2.5e-4 along a single column).
DENSE_WIDTH = 64
_DRAWS = 256  # features drawn by one task
_GROUP_BYTES = 16 * 2**20  # signs and lengths regenerated at once in predict
_WORD = 32  # bits
_TAIL = 8.3  # normal quantiles of uniforms with 52 bits are smaller


def orthogonal_map(projection: Projection, n_features_in: int, *size: int) -> FeatureMap:
    cls = OrthogonalMap if n_features_in <= DENSE_WIDTH else HadamardMap
    return cls(projection, n_features_in, *size)


class OrthogonalMap(ProjectionMap):
    r"""Exactly orthogonal frequencies in stacks of d.

    Stack s holds features ``s d, ..., s d + d - 1``. Its normal variates, the same as for
    independent frequencies, are orthogonalised by the Gram-Schmidt process and keep their
    lengths. The length of a normal vector is independent of its direction, and Gram-Schmidt
    applied to normal vectors gives the uniform law on rotations, so each frequency is exactly
    normal.
    """

    def frequencies(
        self, first: int, n_tiles: int, tile: int, columns: IntArray
    ) -> Float32Array:
        d = self.n_features_in
        n = n_tiles * tile
        start = first // d * d
        lanes = max(1, _DRAWS // d) * d
        Z = np.empty((-(-(first + n - start) // lanes), d, lanes), np.float32)
        law, turns = self.projection.law, self.projection.turns
        rng.fill_tiles(Z, np.arange(d), self.seed, start, law, turns)
        V = Z.transpose(0, 2, 1).reshape(-1, d, d).transpose(0, 2, 1).astype(np.float64)
        with single_threaded_blas():
            Q, R = np.linalg.qr(V)  # the process gives R a positive diagonal
        signs = np.sign(np.diagonal(R, axis1=1, axis2=2))
        V = Q * (signs * np.linalg.norm(V, axis=1))[:, None]
        rows = V.transpose(1, 0, 2).reshape(d, -1)[columns, first - start : first - start + n]
        W = rows.astype(np.float32).reshape(len(columns), n_tiles, tile).transpose(1, 0, 2)
        return np.ascontiguousarray(self._multiplied(W, first))


class HadamardMap(ProjectionMap):
    r"""Frequencies ``length_i (H D3 H D2 H D1)_i`` by fast Walsh-Hadamard transforms.

    Let n be the number of columns d padded to a power of two (at least 128). Stack s holds the
    n features ``s n, ..., s n + n - 1``: orthogonal rows whose independent lengths are chi
    variates with n degrees of freedom, times the factor of the kernel. Three transforms take
    ``3 log2 n`` additions per feature and row. The frequencies are never stored.

    A row of the product of transforms is only approximately uniform on the sphere. Its fourth
    moments have an error of ``O(1 / n^2)``; the bias of the estimate of ``exp(-t^2 / 2)`` is at
    most 1e-4 for n = 128, in the worst direction, which is a single column, and a quarter of
    that for every doubling of n.

    A block that covers only a part of a stack takes the transforms of the whole stack, so block
    sizes of at least n are best. For wide rows with few non-zeros independent frequencies are
    faster.
    """

    def __init__(self, projection: Projection, *size: int) -> None:
        super().__init__(projection, *size)
        self.order = max(hadamard.MIN_ORDER, 1 << int(self.n_features_in - 1).bit_length())
        self._unit = self.order
        self._cache = np.empty((0, 4, self.order), np.float32)

    def capacity(self, n_blocks: int) -> int:
        """Return the number of features; the last stack may be used in part."""
        return n_blocks * self.block_size

    def stacks(self, first: int, n_stacks: int) -> Float32Array:
        """Return the signs of the three diagonals, and the lengths, (n_stacks, 4, order).

        The sign of coordinate k in diagonal m of stack s is bit ``k mod 32`` of word m of the
        counter ``s order / 32 + k // 32``. Lengths are in turns and normalise the transforms.
        """
        n = self.order
        out = np.empty((n_stacks, 4, n), np.float32)
        per_stack = n // _WORD
        start, count = first * per_stack, n_stacks * per_stack
        words = rng.words(self.seed, start, count, TAG_ORTHOGONAL)[:3]
        bits = (words[:, :, None] >> np.arange(_WORD, dtype=np.uint32)) & np.uint32(1)
        out[:, :3] = (1.0 - 2.0 * bits).reshape(3, n_stacks, n).transpose(1, 0, 2)
        u = rng.uniforms(self.seed, first * n, n_stacks * n, TAG_LENGTH)
        scale = self.projection.turns / n**1.5
        length = scale * _chi_of_normal(n)(ndtri(u))
        factor = self.projection.factors(self.seed, first * n, n_stacks * n)
        if factor is not None:
            length *= factor
        out[:, 3] = length.reshape(n_stacks, n)
        return out

    def _touched(self, block: int) -> hadamard.Stacks:
        F, n = self.block_size, self.order
        first, last = block * F // n, ((block + 1) * F - 1) // n
        phase = self.projection.phases(self.seed, block * F, F)
        stacks = self.stacks(first, last - first + 1)
        return hadamard.Stacks(stacks, phase, self.kind, block * F - first * n, F)

    def transform(self, X: Matrix, block: int) -> Float32Array:
        out = np.empty((X.shape[0], self.planes, self.block_size), np.float32)
        hadamard.transform(X, self._touched(block), self._scale, out)
        return out.reshape(-1, self.width)

    def gradient(self, X: Matrix, R: Float32Array, block: int) -> Float32Array:
        G = np.empty((self.planes, self.block_size, R.shape[1]), np.float32)
        hadamard.gradient(X, self._touched(block), R, G)
        G *= np.float32(self._scale)
        return G.reshape(self.width, R.shape[1])

    def _columns(self, X: Matrix) -> tuple[Matrix, IntArray]:
        return X, np.arange(self.n_features_in)  # transforms need all columns

    def _bytes(self, n_columns: int) -> int:
        return 16 * self.order

    def _draw(self, first: int, n: int, columns: IntArray) -> Float32Array:
        return self.stacks(first, n)

    def _add(
        self, X: Matrix, W: Float32Array, coef: Float32Array, first: int, used: int, out: Any
    ) -> None:
        phase = self.projection.phases(self.seed, first, len(W) * self.order)
        of = hadamard.Stacks(W, phase, self.kind, 0, used)
        hadamard.predict(X, of, coef, first, out)


@lru_cache(maxsize=32)
def _chi_of_normal(n: int) -> Chebyshev:
    """Return the function that maps standard normal variates to chi variates, n degrees.

    It is the chi quantile function of the normal distribution function, which is nearly linear
    for the n in use, so an interpolating polynomial is exact up to float32 rounding and 20
    times faster than the inverse incomplete gamma function.
    """

    def quantile(z: Float64Array) -> Float64Array:
        low, high = gammaincinv(n / 2, ndtr(z)), gammainccinv(n / 2, ndtr(-z))
        return np.asarray(np.sqrt(2.0 * np.where(z < 0, low, high)))

    return Chebyshev.interpolate(quantile, 8, domain=[-_TAIL, _TAIL])


_QUANTILES: dict[int, Callable[[FloatArray], FloatArray]] = {
    rng.NORMAL: ndtri,
    rng.CAUCHY: lambda u: np.tan(np.pi * (u - 0.5)),
    rng.LAPLACE: lambda u: np.copysign(np.log1p(-2.0 * np.abs(u - 0.5)), u - 0.5),
}


class SobolMap(ProjectionMap):
    r"""Frequencies from a randomly shifted Sobol' sequence.

    Point i of the sequence, XORed with one word per coordinate that depends only on the seed,
    is mapped to frequency i by the quantile function of each coordinate. If the kernel has a
    factor per frequency, one more coordinate determines it. The digital shift makes every
    point uniform and preserves the low discrepancy.
    """

    @property
    def per_feature_unbiased(self) -> bool:
        """False, because the points of a sequence are not independent."""
        return False

    def __init__(self, projection: Projection, *size: int) -> None:
        from scipy.stats.qmc import Sobol  # slow to import, rarely needed

        super().__init__(projection, *size)
        self._quantile = projection.quantile or (lambda u: None)
        self._shared = self._quantile(np.full(1, 0.5)) is not None
        self.dimension = self.n_features_in + self._shared
        if self.dimension > Sobol.MAXDIM:
            raise ValueError(
                f"sampling='qmc' needs {self.dimension:,} coordinates of the Sobol' sequence "
                f"for {self.n_features_in:,} columns, but it has {Sobol.MAXDIM:,}; use "
                "sampling='iid' or 'orthogonal', or fewer columns."
            )
        if projection.law not in _QUANTILES:
            raise ValueError(
                "sampling='qmc' inverts the normal, Cauchy and Laplace laws, not that of the "
                f"{projection.name} kernel; use sampling='iid'."
            )

    def __getstate__(self) -> dict[str, object]:
        state = super().__getstate__()
        state.pop("_position", None)
        return state

    def _points(self, first: int, n: int) -> Float64Array:
        """Return n points of the sequence from `first` on, shape (n, dimension)."""
        from scipy.stats.qmc import Sobol

        # An engine only steps forwards, so the last one is kept with its position. Removing it
        # from the dictionary is atomic, so two threads never use the same engine.
        engine, at = self.__dict__.pop("_position", (None, 0))
        if engine is None or at > first:
            engine, at = Sobol(self.dimension, scramble=False, bits=_WORD), 0
        if at < first:
            engine.fast_forward(first - at)
        # the first call warns unless n is a power of two, which does not matter here
        parts = [engine.random(1), engine.random(n - 1)] if first == 0 else [engine.random(n)]
        self._position = engine, first + n
        return np.concatenate(parts)

    def frequencies(
        self, first: int, n_tiles: int, tile: int, columns: IntArray
    ) -> Float32Array:
        n = n_tiles * tile
        used = np.append(columns, self.n_features_in) if self._shared else columns
        shift = rng.words(self.seed, 0, self.dimension, TAG_SHIFT)[0, used]
        grid = np.empty((n, len(used)), np.uint32)
        for a in range(0, n, _DRAWS):
            points = self._points(first + a, min(_DRAWS, n - a))[:, used]
            grid[a : a + _DRAWS] = (points * 2.0**_WORD).astype(np.uint32) ^ shift
        law, turns = self.projection.law, self.projection.turns
        factor = None if self._shared else self.projection.factors(self.seed, first, n)
        W = np.empty((n_tiles, len(columns), tile), np.float32)

        def task(a: int) -> None:
            rows = slice(a * tile, (a + 1) * tile)
            u = (grid[rows].T + 0.5) * 2.0**-_WORD
            v = _QUANTILES[law](u[: len(columns)]) * turns
            shared = self._quantile(u[-1]) if self._shared else None
            v = v if shared is None else v * shared
            W[a] = v if factor is None else v * factor[rows]

        parallel_for(n_tiles, task)
        return W
