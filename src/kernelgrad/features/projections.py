r"""Random features ``h(w . x)`` with random weights w.

They satisfy ``k(x, z) = E_w[h(w . x) h(w . z)]``. Random Fourier features and those of the
semigroup, arc-cosine and other kernels in Table 1 of Dai et al. (2014) differ only in h and in
the law of w.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute import rng
from kernelgrad.features import fused as projections
from kernelgrad.features.base import FeatureMap, used_columns
from kernelgrad.types import Float32Array, Float64Array, IntArray, Matrix

_GROUP_BYTES = 16 * 2**20  # weights regenerated at once in predict


@dataclass(frozen=True)
class Projection:
    """Definition of the random features ``amplitude * h(w^T embed(x))`` of a kernel.

    Weights are `scale` times standard variates of a law of `kernelgrad.compute.rng`.
    ``factor(u)`` returns the u-quantiles of the law of a further factor for all coordinates of
    a weight, or None.
    """

    kind: int  # the function h, a code of `kernelgrad.features.fused`
    law: int
    scale: float
    amplitude: float = 1.0
    embed: Callable[[Matrix], Matrix] | None = None  # None for the rows themselves
    factor: Callable[[Float64Array], Float64Array | None] | None = None

    @property
    def planes(self) -> int:
        return 2 if self.kind == projections.PAIR else 1

    @property
    def turns(self) -> float:
        """Scale of the weights in the compiled loops; for cosines it is divided by 2 pi."""
        cosines = self.kind in (projections.PAIR, projections.PHASE)
        return self.scale / (2 * np.pi) if cosines else self.scale

    def phases(self, seed: int, first: int, n: int) -> Float32Array:
        """Return the phases of n weights from `first` on in turns; empty for kinds without."""
        if self.kind != projections.PHASE:
            return np.empty(0, np.float32)
        return rng.phases(seed, first, n)


class ProjectionMap(FeatureMap):
    r"""Features ``amplitude * h(w^T x) / sqrt(F)`` with random weights w.

    A ``[cos, sin]`` pair needs one projection for two features and no phase, and has a lower
    variance than ``sqrt(2) cos(w . x + b)``, the form in the papers.
    """

    def __init__(self, projection: Projection, *size: int) -> None:
        super().__init__(*size)
        self.projection = projection
        self.kind, self.planes = projection.kind, projection.planes
        self._scale = projection.amplitude * float(np.sqrt(1.0 / self.block_size))
        self._cache = np.empty((0, self.n_features_in, projections.TILE), np.float32)

    def __getstate__(self) -> dict[str, object]:
        state = self.__dict__.copy()
        state["_cache"] = self._cache[:0]  # a cache is never part of a model
        return state

    def prepare(self, X: Matrix) -> Matrix:
        return X if self.projection.embed is None else self.projection.embed(X)

    def capacity(self, n_blocks: int) -> int:
        return -(-n_blocks * self.block_size // projections.TILE) * projections.TILE

    def frequencies(
        self, first: int, n_tiles: int, tile: int, columns: IntArray
    ) -> Float32Array:
        """Return weights of features from `first` on, shape (n_tiles, len(columns), tile).

        Weights of cosines are in turns, that is, divided by 2 pi.
        """
        W = np.empty((n_tiles, len(columns), tile), np.float32)
        rng.fill_tiles(W, columns, self.seed, first, self.projection.law, self.projection.turns)
        quantile = self.projection.factor
        if quantile is not None:
            u = rng.uniforms(self.seed, first, n_tiles * tile, rng.TAG_AUXILIARY)
            factor = quantile(u)
            if factor is not None:
                W *= factor.astype(np.float32).reshape(n_tiles, 1, tile)
        return W

    def _columns(self, X: Matrix) -> tuple[Matrix, IntArray]:
        """Drop empty columns of wide sparse rows, whose weights need not be drawn."""
        wide = sp.issparse(X) and X.nnz <= self.n_features_in // 2
        return used_columns(X) if wide else (X, np.arange(self.n_features_in))

    def _block(self, X: Matrix, block: int) -> tuple[Matrix, Float32Array, Float32Array]:
        F = self.block_size
        tile = projections.TILE if F % projections.TILE == 0 else F
        X, columns = self._columns(X)
        W = self.frequencies(block * F, F // tile, tile, columns)
        return X, W, self.projection.phases(self.seed, block * F, F)

    def transform(self, X: Matrix, block: int) -> Float32Array:
        X, W, phase = self._block(X, block)
        out = np.empty((X.shape[0], self.width), np.float32)
        projections.transform(X, W, phase, self.kind, self._scale, out)
        return out

    def gradient(self, X: Matrix, R: Float32Array, block: int) -> Float32Array:
        X, W, phase = self._block(X, block)
        G = np.empty((self.planes, W.shape[0], W.shape[2], R.shape[1]), np.float32)
        projections.gradient(X, W, phase, self.kind, R, G)
        G *= np.float32(self._scale)
        return G.reshape(self.width, R.shape[1])

    def _add(
        self, X: Matrix, W: Float32Array, coef: Float32Array, first: int, used: int, out: Any
    ) -> None:
        """Add the sum of features first, ..., first + used - 1, of weights W, unscaled."""
        n = len(W) * projections.TILE
        phase = self.projection.phases(self.seed, first, n)
        part = np.ascontiguousarray(coef[:, first : first + n])
        projections.predict(X, W, phase, self.kind, part, out)

    def predict(
        self, X: Matrix, coef: Float32Array, n_blocks: int, out: Float32Array, cache_bytes: int
    ) -> None:
        """Add the prediction of blocks 0..n_blocks to `out`, unit by unit.

        The weights of the first units that fit in `cache_bytes` are kept between calls; the
        others are drawn again. Both give the same bits.
        """
        unit, used, d = projections.TILE, n_blocks * self.block_size, self.n_features_in
        n_units = -(-used // unit)
        cache = self._cache  # a snapshot: other threads may replace the cache but not modify it
        budget = cache_bytes // (4 * unit * d)
        cached = min(n_units, budget)
        if cached > len(cache):
            have = len(cache)
            # grown in steps, since appending one block at a time would copy the cache each time
            want = min(budget, max(cached, 2 * have, 4))
            W = self.frequencies(have * unit, want - have, unit, np.arange(d))
            self._cache = cache = np.concatenate([cache, W])
        acc = np.zeros_like(out)
        if cached:
            self._add(X, cache[:cached], coef, 0, min(used, cached * unit), acc)
        if cached < n_units:
            X, columns = self._columns(X)
            group = max(1, _GROUP_BYTES // (4 * unit * max(1, len(columns))))
            for a in range(cached, n_units, group):
                b = min(n_units, a + group)
                W = self.frequencies(a * unit, b - a, unit, columns)
                self._add(X, W, coef, a * unit, min(used, b * unit) - a * unit, acc)
        acc *= np.float32(self._scale)
        out += acc


class SummedFrequenciesMap(ProjectionMap):
    """Random Fourier features of a product of stationary kernels, whose frequencies add up.

    They are ``[cos, sin]`` pairs unless all parts have ``form="phase"``.
    """

    def __init__(self, seeded: Sequence[tuple[Projection, int]], *size: int) -> None:
        d, _, F = size
        self.parts = [ProjectionMap(p, d, s, F) for p, s in seeded]
        pairs = [part for part in self.parts if part.kind == projections.PAIR]
        super().__init__((pairs or self.parts)[0].projection, *size)

    def frequencies(
        self, first: int, n_tiles: int, tile: int, columns: IntArray
    ) -> Float32Array:
        W = self.parts[0].frequencies(first, n_tiles, tile, columns)
        for part in self.parts[1:]:
            W += part.frequencies(first, n_tiles, tile, columns)
        return W
