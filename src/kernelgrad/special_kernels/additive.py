r"""Additive homogeneous kernels ``sum_j k_1(x_j, z_j)`` (Dai et al. 2014, Table 1).

They compare histograms. In one coordinate ``k_1(x, z) = sqrt(x z) E_w[cos(w (ln x - ln z))]``
for frequencies w drawn from a probability law, so a random feature of one coordinate is
``sqrt(x_j) [cos, sin](w ln x_j)``, and zero where ``x_j = 0``.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute import rng
from kernelgrad.compute.elementary import cos_sin_turns
from kernelgrad.compute.linalg import dense
from kernelgrad.compute.threads import over_tiles
from kernelgrad.features.base import FeatureMap, float64_rows
from kernelgrad.kernels import profiles
from kernelgrad.kernels.base import TiledKernel
from kernelgrad.kernels.rows import row_sums
from kernelgrad.params import choice, parameters
from kernelgrad.special_kernels.dot_product import TAG_BUCKET, hashes
from kernelgrad.types import AnyArray, Float32Array, Float64Array, IntArray, Matrix

TAG_ADDITIVE = 6
SECH, HALF_CAUCHY, JENSEN_SHANNON = range(3)

Form = Literal["auto", "coordinates", "hashed", "signs"]

_ROWS = 128  # rows of a tile
_TINY = np.float32(1e-30)  # stored in place of the logarithm 0 of 1


def frequencies(law: int, seed: int, first: int, n: int, group: int) -> Float32Array:
    """Return four rows of n frequencies in turns, for counters from `first` on.

    The densities are sech(pi w); Cauchy with scale 1/2; and sech(pi w) / (ln 2 (1 + 4 w^2)), by
    rejection with separate tags for every attempt, so that draws do not depend on each other.
    """

    def variates(standard: int, tag: int) -> Float32Array:
        z, scratch = np.empty((4, n), np.float32), np.empty((4, n), np.float32)
        rng.variates(standard, rng.words(seed, first, n, tag, group), z, scratch)
        return z

    z = variates(rng.CAUCHY if law == HALF_CAUCHY else rng.SECH, TAG_ADDITIVE)
    waiting, tag = np.full(z.shape, law == JENSEN_SHANNON), TAG_ADDITIVE
    while waiting.any():
        proposal = variates(rng.SECH, tag).astype(np.float64)
        u = (rng.words(seed, first, n, tag + 256, group) + 0.5) * 2.0**-32
        accepted = waiting & (u * (1 + 4 * proposal**2) < 1)
        z[accepted] = proposal[accepted]
        waiting &= ~accepted
        tag += 512
    z *= np.float32((0.5 if law == HALF_CAUCHY else 1) / (2 * np.pi))
    return z


class AdditiveMap(FeatureMap):
    """Features ``sqrt(x_j) [cos, sin](w ln x_j)``, by coordinates, hashed or summed with signs.

    `law` is the law of the frequencies; the forms are those of
    :class:`AdditiveKernel`. Where a feature sums over
    coordinates, each term has a Rademacher sign, which is the sign of its frequency; it is
    independent of the magnitude because the laws are symmetric.
    """

    planes = 2

    def __init__(self, law: int, form: Form, *size: int) -> None:
        super().__init__(*size)
        self.law, self.form = law, form
        if form == "auto":
            self.form = "coordinates" if self.block_size >= self.n_features_in else "hashed"

    @property
    def per_feature_unbiased(self) -> bool:
        return self.form != "coordinates"

    def prepare(self, X: Matrix) -> Matrix:
        """Return ``[sqrt(x), ln(x)]``, shape (n, 2 d), float32; zeros stay zeros.

        Roots and logarithms are computed once per row, in float64. In CSR rows, roots that
        underflow in float32 are dropped and logarithms of ones are stored as 1e-30, so that
        both halves have the same non-zero entries.
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

    def draw(self, block: int) -> tuple[Float32Array, IntArray]:
        """Return frequencies in turns, and what relates them to features.

        By coordinates, of each feature, and its coordinate; hashed, of each coordinate, and its
        bucket; with signs, of coordinates and features (d, F), and nothing.
        """
        d, F, seed = self.n_features_in, self.block_size, self.seed
        if self.form == "hashed":
            W = frequencies(self.law, seed, 0, -(-d // 4), block)
            return W.T.ravel()[:d], hashes(seed, block, d, F)[0]
        first = block * F
        if self.form == "signs":
            groups = [frequencies(self.law, seed, first, F, g) for g in range(-(-d // 4))]
            return np.concatenate(groups)[:d], np.empty(0, np.int64)
        offset = int(rng.uniforms(seed, block, 1, TAG_BUCKET)[0] * d) if d > F else 0
        return frequencies(self.law, seed, first, F, 0)[0], (offset + np.arange(F)) % d

    def transform(self, X: Matrix, block: int) -> Float32Array:
        out, F = np.zeros((X.shape[0], self.width), np.float32), self.block_size
        W, where = self.draw(block)
        planes = {"coordinates": self._selected, "hashed": self._hashed, "signs": self._signed}

        def task(r0: int, r1: int) -> None:
            planes[self.form](X[r0:r1], W, where, out[r0:r1, :F], out[r0:r1, F:])

        over_tiles(X.shape[0], _ROWS, task)
        out.reshape(-1, 2, F)[:] *= self.gain()
        return out

    def gain(self) -> Float32Array:
        """Return the amplitude of each feature of a block."""
        d, F = self.n_features_in, self.block_size
        if self.form == "coordinates" and d <= F:
            covered = np.bincount(np.arange(F) % d)
            return (1.0 / np.sqrt(covered))[np.arange(F) % d].astype(np.float32)
        gain = {"signs": 1.0 / np.sqrt(F), "hashed": 1.0}.get(self.form, np.sqrt(d / F))
        return np.full(F, gain, np.float32)

    def _selected(
        self, X: Matrix, W: Float32Array, where: IntArray, cos: AnyArray, sin: AnyArray
    ) -> None:
        roots, logs = dense(X[:, where]), dense(X[:, self.n_features_in + where])
        c, s = _cos_sin(logs * W)
        cos[:], sin[:] = c * roots, s * roots

    def _hashed(
        self, X: Matrix, W: Float32Array, where: IntArray, cos: AnyArray, sin: AnyArray
    ) -> None:
        d, ones = self.n_features_in, np.ones(len(W), np.float32)
        S = sp.csr_matrix((ones, where, np.arange(d + 1)), shape=(d, self.block_size))
        rows, logs = X[:, :d], X[:, d:]
        roots = rows
        if sp.issparse(X):  # the same entries are stored in both halves
            W, roots, logs = W[rows.indices], rows.data, logs.data
        c, s = _cos_sin(logs * W)
        for terms, out in ((c * np.copysign(roots, W), cos), (s * roots, sin)):
            if sp.issparse(X):
                terms = sp.csr_matrix((terms, rows.indices, rows.indptr), rows.shape)
            out[:] = dense(terms @ S)

    def _signed(
        self, X: Matrix, W: Float32Array, _: IntArray, cos: AnyArray, sin: AnyArray
    ) -> None:
        rows, d = dense(X), self.n_features_in
        for j in np.flatnonzero(rows[:, :d].any(axis=0)):
            root = rows[:, [j]]
            c, s = _cos_sin(rows[:, [d + j]] * W[j])
            cos += c * np.copysign(root, W[j])
            sin += s * root


def _cos_sin(turns: Float32Array) -> tuple[Float32Array, Float32Array]:
    c, s = turns.ravel(), np.empty(turns.size, np.float32)
    cos_sin_turns(c, s)
    return c.reshape(turns.shape), s.reshape(turns.shape)


@parameters
class AdditiveKernel(TiledKernel):
    """Base class of the additive kernels; subclasses give the law and the terms.

    Every block of features is an unbiased estimate of the kernel. With ``"hashed"`` and
    ``"signs"`` each single feature, times ``sqrt(F)``, is unbiased too, which products of
    kernels need.

    Parameters
    ----------
    form : {"auto", "coordinates", "hashed", "signs"}, default="auto"
        How the F features of a block cover the d coordinates.

        ``"coordinates"``: feature i of a block depends on coordinate ``i mod d`` only, with
        amplitude ``sqrt(x_j / m_j)`` if m_j features of the block depend on coordinate j, so
        ``k(x, x)`` is exact. If ``F < d``, a block covers F consecutive coordinates from a
        random one on, with amplitude ``sqrt(x_j d / F)``.

        ``"hashed"``: a count sketch. Each coordinate is added to one random feature of the
        block, with a random sign and its own frequency.

        ``"signs"``: every feature is ``sum_j s_j sqrt(x_j) [cos, sin](w_j ln x_j) / sqrt(F)``
        with Rademacher signs and one frequency per feature and coordinate.

        ``"auto"``: ``"coordinates"`` if ``F >= d``, where it is the fastest and has the least
        variance, else ``"hashed"``: a block by coordinates misses most non-zeros of sparse
        rows, and signs have about the variance of hashing for much more work.
    """

    is_of_histograms: ClassVar[bool] = True
    law: ClassVar[int]

    form: Form = choice(
        ("auto", "coordinates", "hashed", "signs"),
        default="auto", what="feature form", kw_only=False,
    )  # fmt: skip

    def embedded(self, X: Matrix) -> Matrix:
        return X

    def diag(self, X: Matrix) -> Float64Array:
        """Return the sums of the rows: ``k_1(x, x) = x``."""
        return row_sums(X)

    def per_feature(self) -> AdditiveKernel:
        return self if self.form in ("hashed", "signs") else self._replaced(form="signs")

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> FeatureMap:
        return AdditiveMap(self.law, self.form, n_features_in, seed, block_size)


class Chi2(AdditiveKernel):
    r"""Additive chi-square kernel, ``sum_j 2 x_j z_j / (x_j + z_j)`` on ``x >= 0``.

    Frequencies have the density ``sech(pi w)`` (Table 1). With scikit-learn's
    ``additive_chi2_kernel`` it equals ``(additive_chi2_kernel + sum_j x_j + sum_j z_j) / 2``.

    Parameters
    ----------
    form
        As in :class:`AdditiveKernel`.
    """

    name: ClassVar[str] = "chi2"
    law: ClassVar[int] = SECH
    form_code: ClassVar[int] = profiles.CHI2


class Intersection(AdditiveKernel):
    r"""Histogram intersection kernel, ``sum_j min(x_j, z_j)`` on ``x >= 0``.

    Frequencies are Cauchy with scale 1/2. (In Table 1 the density has mass 1/2, which the
    amplitude ``sqrt(2 x_j)`` compensates.)

    Parameters
    ----------
    form
        As in :class:`AdditiveKernel`.
    """

    name: ClassVar[str] = "intersection"
    law: ClassVar[int] = HALF_CAUCHY
    form_code: ClassVar[int] = profiles.LEAST


class JensenShannon(AdditiveKernel):
    r"""Jensen-Shannon kernel on ``x >= 0``.

    ``k(x, z) = sum_j x_j / 2 log2((x_j + z_j) / x_j) + z_j / 2 log2((x_j + z_j) / z_j)``. For
    histograms that sum to 1 it is one minus their Jensen-Shannon divergence in bits.
    Frequencies have the density ``sech(pi w) / (ln 2 (1 + 4 w^2))``; they are drawn as for
    :class:`Chi2` and accepted with probability ``1 / (1 + 4 w^2)``. (In Table 1 the density
    has mass 1/2, which the amplitude ``sqrt(2 x_j)`` compensates.)

    Parameters
    ----------
    form
        As in :class:`AdditiveKernel`.
    """

    name: ClassVar[str] = "jensen_shannon"
    law: ClassVar[int] = JENSEN_SHANNON
    form_code: ClassVar[int] = profiles.SHANNON
