r"""Additive homogeneous kernels ``sum_j k_1(x_j, z_j)`` (Dai et al. 2014, Table 1).

For histograms. In one coordinate ``k_1(x, z) = sqrt(x z) E_w[cos(w (ln x - ln z))]``, with
frequencies w of a spectral law of total mass 1. So a feature of one coordinate is
``sqrt(x_j) [cos, sin](w ln x_j)``; a zero gives zeros.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from scipy.special import rel_entr
from sklearn.base import clone

from kernelgrad._typing import Float32Array, Float64Array, IntArray, Matrix
from kernelgrad._validation import check_name
from kernelgrad.compute import rng
from kernelgrad.compute.threads import parallel_for
from kernelgrad.features import _sketches as sketches
from kernelgrad.features._fused import TILE
from kernelgrad.features.base import FeatureMap
from kernelgrad.kernels import _tiles as exact
from kernelgrad.kernels.base import ExactRows, Kernel, check_least, exact_values, float64_rows
from kernelgrad.kernels.skewed import sum_over_columns

_SPARSE_ROWS = 64
_GROUP_BYTES = 16 * 2**20  # frequencies regenerated at once in predict
_GROUP_TILES = 64
_TINY = np.float32(1e-30)

Form = Literal["auto", "coordinates", "hashed", "signs"]


class AdditiveKernel(Kernel):
    r"""Base of the additive kernels; subclasses give the law and the terms.

    Parameters
    ----------
    form : {"auto", "coordinates", "hashed", "signs"}, default="auto"
        How a block of F features covers d coordinates.

        ``"coordinates"``: feature i of a block sees coordinate ``i mod d`` only, with amplitude
        ``sqrt(x_j / m_j)`` where m_j features of the block see coordinate j. No noise between
        coordinates, and ``k(x, x)`` is exact. Where ``F < d`` a block sees F neighbouring
        coordinates from a random one on, with amplitude ``sqrt(x_j d / F)``.

        ``"hashed"``: every coordinate goes to one random feature of the block, with a random
        sign and a frequency of its own: a count sketch of all coordinates.

        ``"signs"``: every feature sees all coordinates,
        ``sum_j s_j sqrt(x_j) [cos, sin](w_j ln x_j) / sqrt(F)`` with Rademacher signs and one
        frequency per feature and coordinate.

        ``"auto"``: ``"coordinates"`` where ``F >= d``, else ``"hashed"``.

    Notes
    -----
    All forms are unbiased block by block; with ``"hashed"`` and ``"signs"`` each single
    feature, times ``sqrt(F)``, is unbiased too, which products of kernels need.

    Work of a row and block: F features with ``"coordinates"`` (about 0.8 ns each, the pair of
    cosine and sine), its non-zeros with ``"hashed"`` (5 ns each), F times its non-zeros with
    ``"signs"`` (0.5 ns each). Measured relative standard deviation of one block's estimate,
    F = 512, chi-square / intersection / Jensen-Shannon:

    ===================================  ==============  ==============  ==============
    rows                                 coordinates     hashed          signs
    ===================================  ==============  ==============  ==============
    d = 16, uniform on the simplex       .02/.04/.01     .11/.26/.08     .06/.07/.06
    d = 512, uniform on the simplex      .02/.04/.01     .06/.09/.06     .06/.07/.06
    d = 784, uniform on the simplex      .03/.05/.03     .06/.08/.06     .06/.07/.06
    d = 784, 100 words by Zipf's law     .36/.39/.36     .08/.18/.08     .07/.08/.07
    d = 20,000, 100 words                2.6/2.8/2.5     .12/.24/.12     .12/.13/.12
    ===================================  ==============  ==============  ==============

    So up to ``d = F`` coordinates are best in everything. Beyond that the unseen ones cost
    rows with few non-zeros far more than they save, and hashing has about the noise of signs
    for 1/50 of the work or less. For dense rows without large differences between columns
    ``"coordinates"`` stays the best choice at any d.
    """

    law: ClassVar[int]
    exact_form: ClassVar[int]  # code of the terms in kernelgrad.kernels._tiles

    def __init__(self, form: Form = "auto") -> None:
        self.form = form

    def check(self) -> None:
        """Raise if ``form`` is unknown."""
        check_name(self.form, ("auto", "coordinates", "hashed", "signs"), "feature form")

    def check_domain(self, X: Matrix) -> None:
        """Raise DataError unless every entry is at least 0."""
        check_least(self, X)

    @staticmethod
    @abstractmethod
    def terms(x: Float64Array, z: Float64Array) -> Float64Array:
        """Return ``k_1(x, z)``, elementwise; zero where x or z is."""

    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        """Return the sum over coordinates, in tiles; of sparse rows over common non-zeros."""
        if sp.issparse(X) or sp.issparse(Z):
            return _sum_over_nonzeros(_csr64(X), _csr64(Z), self.terms)
        return sum_over_columns(float64_rows(X), float64_rows(Z), self.terms)

    def diag(self, X: Matrix) -> Float64Array:
        """Return the sums of the rows: ``k_1(x, x) = x``."""
        return np.asarray(float64_rows(X).sum(axis=1), np.float64).ravel()

    def exact_rows(self, X: Matrix, *, wide: bool = False) -> ExactRows:
        """Return the rows."""
        return ExactRows(exact_values(X, wide=wide))

    def exact_block(self, A: ExactRows, B: ExactRows) -> Float32Array:
        """Return ``k(A_i, B_j)``, column by column; of sparse rows by non-zeros."""
        return exact.block(A.values, B.values, self.exact_form).astype(np.float32, copy=False)

    def per_feature(self) -> AdditiveKernel:
        """Return the kernel with features that each see every coordinate."""
        if self.form in ("hashed", "signs"):
            return self
        twin: AdditiveKernel = clone(self).set_params(form="signs")
        return twin

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> FeatureMap:
        """Return the features of this kernel in its form."""
        return AdditiveMap(self, n_features_in, seed, block_size)


class Chi2(AdditiveKernel):
    r"""Additive chi-square kernel, ``sum_j 2 x_j z_j / (x_j + z_j)`` on ``x >= 0``.

    Frequencies have density ``sech(pi w)`` (Table 1). It is scikit-learn's
    ``additive_chi2_kernel`` plus the sums of both rows, divided by two.
    Parameters are those of :class:`AdditiveKernel`.
    """

    name: ClassVar[str] = "chi2"
    law: ClassVar[int] = sketches.SECH
    exact_form: ClassVar[int] = exact.CHI2

    @staticmethod
    def terms(x: Float64Array, z: Float64Array) -> Float64Array:
        """Return ``2 x z / (x + z)``."""
        total = x + z
        share = np.divide(z, total, out=np.zeros_like(total), where=total > 0)
        return 2.0 * x * share


class Intersection(AdditiveKernel):
    r"""Histogram intersection kernel, ``sum_j min(x_j, z_j)`` on ``x >= 0``.

    Frequencies are Cauchy with scale 1/2 (in Table 1 the density has mass 1/2, for which the
    amplitude ``sqrt(2 x_j)`` makes up).
    Parameters are those of :class:`AdditiveKernel`.
    """

    name: ClassVar[str] = "intersection"
    law: ClassVar[int] = sketches.HALF_CAUCHY
    exact_form: ClassVar[int] = exact.LEAST

    @staticmethod
    def terms(x: Float64Array, z: Float64Array) -> Float64Array:
        """Return ``min(x, z)``."""
        least: Float64Array = np.minimum(x, z)
        return least


class JensenShannon(AdditiveKernel):
    r"""Jensen-Shannon kernel on ``x >= 0``.

    ``sum_j x_j / 2 log2((x_j + z_j) / x_j) + z_j / 2 log2((x_j + z_j) / z_j)``: for
    histograms, one minus their Jensen-Shannon divergence in bits. Frequencies have density
    ``sech(pi w) / (ln 2 (1 + 4 w^2))``, drawn as those of :class:`Chi2` and kept with
    probability ``1 / (1 + 4 w^2)`` (in Table 1 the density has mass 1/2, for which the
    amplitude ``sqrt(2 x_j)`` makes up).
    Parameters are those of :class:`AdditiveKernel`.
    """

    name: ClassVar[str] = "jensen_shannon"
    law: ClassVar[int] = sketches.JENSEN_SHANNON
    exact_form: ClassVar[int] = exact.SHANNON

    @staticmethod
    def terms(x: Float64Array, z: Float64Array) -> Float64Array:
        """Return ``(x log2((x + z) / x) + z log2((x + z) / z)) / 2``."""
        total = x + z
        k: Float64Array = (rel_entr(x, total) + rel_entr(z, total)) / (-2.0 * np.log(2.0))
        return k


def _csr64(X: Matrix) -> Matrix:
    """Return non-negative rows as CSR without repeated or zero entries, a copy."""
    X = float64_rows(X.tocsr() if sp.issparse(X) else sp.csr_matrix(X))
    X.sum_duplicates()
    X.eliminate_zeros()
    return X


def _sum_over_nonzeros(
    X: Matrix, Z: Matrix, terms: Callable[[Float64Array, Float64Array], Float64Array]
) -> Float64Array:
    """Return the sums of terms over the non-zeros of Z, one row of X at a time."""
    n, m = X.shape[0], Z.shape[0]
    out = np.empty((n, m))
    row = np.repeat(np.arange(m), np.diff(Z.indptr))

    def task(a: int) -> None:
        x = np.zeros(X.shape[1])
        for i in range(a * _SPARSE_ROWS, min(n, (a + 1) * _SPARSE_ROWS)):
            p = slice(X.indptr[i], X.indptr[i + 1])
            x[X.indices[p]] = X.data[p]
            out[i] = np.bincount(row, terms(x[Z.indices], Z.data), m)
            x[X.indices[p]] = 0.0

    parallel_for(-(-n // _SPARSE_ROWS), task)
    return out


class AdditiveMap(FeatureMap):
    """``sqrt(x_j) [cos, sin](w ln x_j)``: by coordinates, hashed, or summed with signs."""

    planes = 2

    def __init__(
        self, kernel: AdditiveKernel, n_features_in: int, seed: int, block_size: int
    ) -> None:
        super().__init__(n_features_in, seed, block_size)
        self.law = kernel.law
        self.form = kernel.form
        if self.form == "auto":
            self.form = "coordinates" if block_size >= n_features_in else "hashed"
        self._cache: dict[int, sketches.AdditiveDraws] = {}

    @property
    def per_feature_unbiased(self) -> bool:
        """False where a feature sees one coordinate."""
        return self.form != "coordinates"

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_cache": {}}  # a cache is never part of a model

    def prepare(self, X: Matrix) -> Matrix:
        """Return ``[sqrt(x), ln(x)]``, shape (n, 2 d), float32, zeros staying zeros.

        Roots and logarithms are taken once a row, in float64: otherwise every tile would
        need them again, at several times the price of its cosines. In CSR rows roots that
        float32 cannot hold are dropped and logarithms of ones are 1e-30: both halves have
        the same entries, none of them zero.
        """
        d = self.n_features_in
        if sp.issparse(X):
            X = _csr64(X)
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

        With hashing both ends are multiples of F.
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
        """Return ``where`` and ``run`` of features first, ..., see `compute.sketches`."""
        d, F = self.n_features_in, self.block_size
        k = np.arange(n)
        block = (first + k) // F
        start = block * F - first  # of the block
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
        if self.form == "signs":
            gain = np.full(F, 1.0 / np.sqrt(F))
        elif self.form == "hashed":
            gain = np.ones(F)
        elif d > F:
            gain = np.full(F, np.sqrt(d / F))
        else:
            covered = np.bincount(np.arange(F) % d)
            gain = (1.0 / np.sqrt(covered))[np.arange(F) % d]
        return gain.astype(np.float32)

    def _columns(self, X: Matrix) -> tuple[Matrix, int, IntArray]:
        """Drop untouched columns of sparse rows where each would need draws of its own."""
        d = self.n_features_in
        if not sp.issparse(X) or self.form == "coordinates":
            return X, d, np.arange(d)
        touched = np.zeros(2 * d, bool)
        touched[X.indices] = True
        used = np.flatnonzero(touched[:d])
        place = np.empty(2 * d, X.indices.dtype)
        place[used] = np.arange(len(used))
        place[d + used] = np.arange(len(used), 2 * len(used))
        parts = (X.data, place[X.indices], X.indptr)
        return sp.csr_matrix(parts, shape=(X.shape[0], 2 * len(used))), len(used), used

    def transform(self, X: Matrix, block: int) -> Float32Array:
        """Return ``phi_block(X)``, shape (n, 2 F), cosines first."""
        X, d, columns = self._columns(X)
        draws = self._draw(block * self.block_size, self.block_size, columns)
        out = np.empty((X.shape[0], self.width), np.float32)
        sketches.additive_transform(X, d, draws, self._gain(), out)
        return out

    def gradient(self, X: Matrix, R: Float32Array, block: int) -> Float32Array:
        """Return ``phi_block(X)^T R`` by fused tiles; the block is never stored."""
        X, d, columns = self._columns(X)
        draws = self._draw(block * self.block_size, self.block_size, columns)
        G = np.empty((2, self.block_size, R.shape[1]), np.float32)
        sketches.additive_gradient(X, d, draws, R, G)
        G *= self._gain()[:, None]
        return G.reshape(self.width, R.shape[1])

    def predict(
        self, X: Matrix, coef: Float32Array, n_blocks: int, out: Float32Array, cache_bytes: int
    ) -> None:
        """Add the prediction of blocks 0..n_blocks to `out`, tile after tile.

        The first groups of tiles whose draws fit in `cache_bytes` are kept between calls, the
        others drawn again. Both give the same bits.
        """
        d, F, n = self.n_features_in, self.block_size, n_blocks * self.block_size
        tile, tile_bytes = {
            "coordinates": (TILE, 12 * TILE),
            "signs": (TILE, 4 * TILE * d),
            "hashed": (F, 8 * d),
        }[self.form]
        group = tile * max(1, min(_GROUP_TILES, _GROUP_BYTES // tile_bytes))
        kept = cache_bytes // (group // tile * tile_bytes)
        reduced: tuple[Matrix, int, IntArray] | None = None
        gain = np.tile(self._gain(), n_blocks)[:, None]
        for g, a in enumerate(range(0, n, group)):
            b = min(n, a + group)
            if g < kept:
                rows, width = X, d
                if g not in self._cache:
                    self._cache[g] = self._draw(a, group, np.arange(d))
                draws = self._cache[g]
            else:
                reduced = reduced or self._columns(X)
                rows, width, columns = reduced
                draws = self._draw(a, b - a, columns)
            sketches.additive_predict(rows, width, draws, coef[:, a:b] * gain[a:b], out)
