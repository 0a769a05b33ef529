"""Random features of additive homogeneous kernels."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute import rng
from kernelgrad.compute.elementary import cos_sin_turns
from kernelgrad.compute.linalg import dense
from kernelgrad.compute.threads import over_tiles
from kernelgrad.features.base import FeatureMap, float64_rows
from kernelgrad.special_kernels.features.dot_product import TAG_BUCKET, hashes
from kernelgrad.types import AnyArray, Float32Array, IntArray, Matrix

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
    :class:`~kernelgrad.special_kernels.additive.AdditiveKernel`. Where a feature sums over
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
        roots, logs = X[:, :d], X[:, d:]
        if not sp.issparse(X):
            c, s = _cos_sin(logs * W)
            cos[:], sin[:] = (c * (roots * np.copysign(ones, W))) @ S, (s * roots) @ S
            return
        w = W[logs.indices]
        c, s = _cos_sin(logs.data * w)
        for terms, out in ((c * np.copysign(np.float32(1), w), cos), (s, sin)):
            entries = terms * roots.data, roots.indices, roots.indptr
            out[:] = (sp.csr_matrix(entries, roots.shape) @ S).toarray()

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
