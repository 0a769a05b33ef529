"""The operator of the posterior covariance, Appendix D of the paper."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from kernelgrad.compute import linalg
from kernelgrad.functions.features import FeatureStream
from kernelgrad.solvers import TrainBatch
from kernelgrad.types import AnyArray, Float32Array, Float64Array, Matrix

BLOCK = 64  # frequencies of a block


class PosteriorOperator:
    r"""The operator ``A = sum_ij Theta_ij phi_i (x) phi'_j`` of Appendix D, in blocks.

    Two independent streams give ``phi`` and ``phi'``. Step t adds one block to each and moves

    .. math:: A \leftarrow (1 - \gamma_t \alpha) A - \gamma_t (A \hat C_t - \hat C_t),

    where ``C_t`` is the batch's covariance seen through the new blocks and ``gamma_t = 1 / (1 +
    t / n_blocks)``. With a damping mu, the mean diagonal entry of the block covariance, ``C_t``
    becomes ``C_t (C_t + mu)^-1``, the shrinkage ``gamma_t alpha / mu``, and the first ``C_t``
    carries the factor ``1 - alpha / mu``. Memory is quadratic in the number of features, and
    estimates are noisy.
    """

    def __init__(self, stream: FeatureStream, n_blocks: int, alpha: float, seed: int) -> None:
        self.left, self.right = (
            FeatureStream(
                stream.kernel, stream.n_features_in, int(one), BLOCK, stream.scaling,
                stream.cache_bytes,
            )
            for one in np.random.SeedSequence([seed, 0x6F7072]).generate_state(2)
        )  # fmt: skip
        self.alpha, self.n_blocks, self._decay = alpha, 0, float(n_blocks)
        size = n_blocks * self.left.width
        self.theta: Float32Array = np.zeros((size, size), np.float32)

    @classmethod
    def fitted(
        cls, stream: FeatureStream, batches: Iterator[TrainBatch], alpha: float, seed: int
    ) -> PosteriorOperator:
        """Return the operator after its steps on the first batches."""
        # 4,096 features of each side have 64 MiB of coefficients
        n_blocks = max(1, 4096 // (stream.planes * BLOCK))
        operator = cls(stream, n_blocks, alpha, seed)
        for batch in islice(batches, n_blocks):
            operator.step(batch)
        return operator

    @classmethod
    def restored(
        cls, stream: FeatureStream, n_blocks: int, theta: AnyArray, alpha: float, seed: int
    ) -> PosteriorOperator:
        """Return the operator of a file."""
        if n_blocks * stream.planes * BLOCK > len(theta):
            raise ValueError(f"There are less than {n_blocks} blocks of the operator.")
        operator = cls(stream, n_blocks, alpha, seed)
        operator.n_blocks, operator.theta = n_blocks, np.asarray(theta, np.float32)
        return operator

    def step(self, batch: TrainBatch) -> None:
        """Add one block to each side, from one batch of training rows."""
        t, w = self.n_blocks, self.left.width
        gamma = 1.0 / (1.0 + t / self._decay)
        p = (batch.sample_weight / batch.sample_weight.sum()).astype(np.float32)[:, None]
        rows = self.left.prepare(batch.X)
        new = self.right.transform(rows, t)
        H = linalg.gram(np.sqrt(p) * new)
        mu = max(float(np.trace(H)) / w, self.alpha)
        weighted = linalg.solve_damped(H, mu, (p * new).T).T.astype(np.float32)
        keep, again = 1.0 - gamma * self.alpha / mu, gamma * (1.0 - self.alpha / mu)
        used, block = slice(0, t * w), slice(t * w, (t + 1) * w)
        column = self.theta[used, block]
        for j in range(t):  # A C_t, block of phi' by block
            part = slice(j * w, (j + 1) * w)
            column -= again * (
                self.theta[used, part] @ (self.right.transform(rows, j).T @ weighted)
            )
        self.theta[used, used] *= np.float32(keep)
        self.theta[block, block] = gamma * (self.left.transform(rows, t).T @ weighted)
        self.n_blocks += 1

    def explained_variance(self, X: Matrix) -> Float64Array:
        """Return ``A(x, x)`` for the rows of `X`, shape (m,)."""
        rows = self.left.prepare(X)
        w = self.left.width
        total = np.zeros(X.shape[0])
        right = [self.right.transform(rows, j) for j in range(self.n_blocks)]
        for i in range(self.n_blocks):
            phi = self.left.transform(rows, i)
            for j in range(i, self.n_blocks):
                part = self.theta[i * w : (i + 1) * w, j * w : (j + 1) * w]
                total += np.einsum("mw,mw->m", phi @ part, right[j])
        return total
