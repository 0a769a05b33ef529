"""Random features of additive homogeneous kernels."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute import rng
from kernelgrad.features.base import FeatureMap, float64_rows, used_columns
from kernelgrad.features.fused import TILE
from kernelgrad.special_kernels.features import sketches
from kernelgrad.types import Float32Array, IntArray, Matrix

_GROUP_BYTES = 16 * 2**20  # frequencies regenerated at once in predict
_GROUP_TILES = 64
_TINY = np.float32(1e-30)  # stored in place of the logarithm 0 of 1

Form = Literal["auto", "coordinates", "hashed", "signs"]


class AdditiveMap(FeatureMap):
    """Features ``sqrt(x_j) [cos, sin](w ln x_j)``, by coordinates, hashed or summed with signs.

    `law` is the law of the frequencies, a code of the module ``sketches``; the forms are those
    of :class:`~kernelgrad.special_kernels.additive.AdditiveKernel`.
    """

    planes = 2

    def __init__(self, law: int, form: Form, *size: int) -> None:
        super().__init__(*size)
        self.law, self.form = law, form
        if form == "auto":
            self.form = "coordinates" if self.block_size >= self.n_features_in else "hashed"
        self._cache: dict[int, sketches.AdditiveDraws] = {}

    @property
    def per_feature_unbiased(self) -> bool:
        return self.form != "coordinates"

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_cache": {}}  # the cache is not part of a model

    def prepare(self, X: Matrix) -> Matrix:
        """Return ``[sqrt(x), ln(x)]``, shape (n, 2 d), float32; zeros stay zeros.

        Roots and logarithms are computed once per row, in float64; recomputing them in every
        tile would take several times as long as the cosines. In CSR rows, roots that underflow
        in float32 are dropped and logarithms of ones are stored as 1e-30, so that both halves
        have the same non-zero entries.
        """
        d = self.n_features_in
        if sp.issparse(X):
            X = float64_rows(X.tocsr())
            X.sum_duplicates()
            X.data[np.sqrt(X.data) < np.finfo(np.float32).tiny] = 0.0
            X.eliminate_zeros()
            logs = np.log(X.data).astype(np.float32)
            logs[logs == 0.0] = _TINY
            halves = [
                sp.csr_matrix((data, X.indices, X.indptr), shape=X.shape)
                for data in (np.sqrt(X.data).astype(np.float32), logs)
            ]
            return sp.hstack(halves, format="csr")
        X = float64_rows(X)
        both = np.zeros((len(X), 2 * d), np.float32)
        both[:, :d] = np.sqrt(X)
        np.log(X, out=both[:, d:], where=X > 0, casting="same_kind")
        return both

    def _draw(self, first: int, n: int, columns: IntArray) -> sketches.AdditiveDraws:
        """Return the draws of features first, ..., first + n - 1 for the given coordinates.

        With hashing, `first` and `n` are multiples of F.
        """
        none = np.empty(0, np.int32)
        seed, F, law = self.seed, self.block_size, self.law
        if self.form == "signs":
            W = sketches.feature_frequencies(columns, seed, first, n, law)
            return sketches.AdditiveDraws(sketches.SIGNS, TILE, W, none.reshape(0, 0), none)
        if self.form == "hashed":
            W, bucket = sketches.block_frequencies(columns, seed, first // F, n // F, F, law)
            return sketches.AdditiveDraws(sketches.HASHED, F, W, bucket, none)
        W = sketches.feature_frequencies(np.zeros(1, np.int64), seed, first, n, law)
        where, run = self._runs(first, n)
        return sketches.AdditiveDraws(sketches.COORDINATES, TILE, W, where[None], run)

    def _runs(self, first: int, n: int) -> tuple[IntArray, IntArray]:
        """Return ``where`` and ``run`` of features from `first` on (see `sketches`)."""
        d, F = self.n_features_in, self.block_size
        k = np.arange(n)
        block = (first + k) // F
        start = block * F - first
        tile = k - k % TILE
        piece = np.maximum(tile, start)
        coordinate = piece - start
        if d > F:
            b, last = int(block[0]), int(block[-1])
            u = rng.uniforms(self.seed, b, last - b + 1, sketches.TAG_BUCKET)
            coordinate += (u * d).astype(np.int64)[block - b]
        where = coordinate % d + (k - piece)
        run = np.minimum(np.minimum(tile + TILE, start + F), n) - k
        return where.astype(np.int32), run.astype(np.int32)

    def _gain(self) -> Float32Array:
        """Return the amplitude of each feature of a block."""
        d, F = self.n_features_in, self.block_size
        if self.form == "coordinates" and d <= F:
            covered = np.bincount(np.arange(F) % d)
            return (1.0 / np.sqrt(covered))[np.arange(F) % d].astype(np.float32)
        gain = {"signs": 1.0 / np.sqrt(F), "hashed": 1.0}.get(self.form, np.sqrt(d / F))
        return np.full(F, gain, np.float32)

    def _columns(self, X: Matrix) -> tuple[Matrix, int, IntArray]:
        """Drop empty columns of sparse rows, if each column needs its own random numbers."""
        d = self.n_features_in
        if not sp.issparse(X) or self.form == "coordinates":
            return X, d, np.arange(d)
        rows, used = used_columns(X)  # the same in both halves
        return rows, len(used) // 2, used[: len(used) // 2]

    def transform(self, X: Matrix, block: int) -> Float32Array:
        X, d, columns = self._columns(X)
        draws = self._draw(block * self.block_size, self.block_size, columns)
        out = np.empty((X.shape[0], self.width), np.float32)
        sketches.additive_transform(X, d, draws, self._gain(), out)
        return out

    def gradient(self, X: Matrix, R: Float32Array, block: int) -> Float32Array:
        X, d, columns = self._columns(X)
        draws = self._draw(block * self.block_size, self.block_size, columns)
        G = np.empty((2, self.block_size, R.shape[1]), np.float32)
        sketches.additive_gradient(X, d, draws, R, G)
        G *= self._gain()[:, None]
        return G.reshape(self.width, R.shape[1])

    def predict(
        self, X: Matrix, coef: Float32Array, n_blocks: int, out: Float32Array, cache_bytes: int
    ) -> None:
        """Add the prediction of blocks 0..n_blocks to `out`, tile by tile.

        The random numbers of the first groups of tiles that fit in `cache_bytes` are kept
        between calls; the others are drawn again. Both give the same bits.
        """
        d, F, n = self.n_features_in, self.block_size, n_blocks * self.block_size
        tile, tile_bytes = {
            "coordinates": (TILE, 12 * TILE),
            "signs": (TILE, 4 * TILE * d),
            "hashed": (F, 8 * d),
        }[self.form]
        group = tile * max(1, min(_GROUP_TILES, _GROUP_BYTES // tile_bytes))
        n_cached = cache_bytes // (group // tile * tile_bytes)
        reduced: tuple[Matrix, int, IntArray] | None = None
        gain = np.tile(self._gain(), n_blocks)[:, None]
        for g, a in enumerate(range(0, n, group)):
            b = min(n, a + group)
            if g < n_cached:
                rows, width = X, d
                if g not in self._cache:
                    self._cache[g] = self._draw(a, group, np.arange(d))
                draws = self._cache[g]
            else:
                reduced = reduced or self._columns(X)
                rows, width, columns = reduced
                draws = self._draw(a, b - a, columns)
            sketches.additive_predict(rows, width, draws, coef[:, a:b] * gain[a:b], out)
