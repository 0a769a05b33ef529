"""The contract of a random feature map, whose blocks are pure functions of (seed, block)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute.threads import over_tiles, sum_over_tiles
from kernelgrad.types import Float32Array, IntArray, Matrix

_ROWS, _PARTIAL = 256, 16  # rows of a tile of products, and tiles summed at once
# Density above which dense rows are faster than sparse ones (measured).
DENSIFY = 0.1


class FeatureMap(ABC):
    r"""Blocks of random features for one kernel, one seed and one number of columns.

    Block ``j`` maps a row ``x`` to ``phi_j(x)`` of width ``planes * block_size``, normalised so
    that ``E[phi_j(x) . phi_j(z)] = k(x, z)``: each block is an unbiased estimate by itself. It
    is a pure function of (seed, j).

    Subclasses define :meth:`transform`; by default :meth:`predict` and :meth:`gradient` call it
    for one block at a time. All three take rows that were processed by :meth:`prepare` and then
    cast to float32 (see :func:`float32_rows`). Features and predictions of a row must not
    depend on other rows.

    Parameters
    ----------
    n_features_in : int
        Number of columns d.
    seed : int in [0, 2^64)
        Seed of all blocks.
    block_size : int
        Number F of features per block and plane. Subclasses take these three as ``*size``.
    """

    planes: int = 1

    def __init__(self, n_features_in: int, seed: int, block_size: int) -> None:
        self.n_features_in = n_features_in
        self.seed = seed
        self.block_size = block_size

    @property
    def per_feature_unbiased(self) -> bool:
        """Whether each single feature, summed over planes, is an unbiased estimate of k / F.

        Products of kernels need this, as they multiply feature by feature. A stratified block
        is unbiased only as a whole.
        """
        return True

    @property
    def width(self) -> int:
        """Columns of one block: ``planes * block_size``."""
        return self.planes * self.block_size

    def capacity(self, n_blocks: int) -> int:
        """Return the number of coefficients per plane, including padding with zeros."""
        return n_blocks * self.block_size

    def prepare(self, X: Matrix) -> Matrix:
        """Return rows in the form that the other methods need; called once per batch."""
        return X

    @abstractmethod
    def transform(self, X: Matrix, block: int) -> Float32Array:
        """Return ``phi_block(X)``, shape (n, width), one plane after the other."""

    def predict(
        self, X: Matrix, coef: Float32Array, n_blocks: int, out: Float32Array, cache_bytes: int
    ) -> None:
        """Add ``sum_j phi_j(X) coef_j`` to `out` (n, C); `coef` is (planes, capacity, C)."""
        F = self.block_size
        for j in range(n_blocks):
            a = coef[:, j * F : (j + 1) * F].reshape(self.width, -1)
            P = self.transform(X, j)

            def task(r0: int, r1: int, P: Float32Array = P, a: Float32Array = a) -> None:
                out[r0:r1] += P[r0:r1] @ a

            over_tiles(len(P), _ROWS, task)

    def gradient(self, X: Matrix, R: Float32Array, block: int) -> Float32Array:
        """Return ``phi_block(X)^T R``, shape (width, C)."""
        P, G = self.transform(X, block), np.empty((self.width, R.shape[1]), np.float32)

        def task(r0: int, r1: int, out: Float32Array) -> None:
            np.matmul(P[r0:r1].T, R[r0:r1], out=out)

        sum_over_tiles(len(P), _ROWS, _PARTIAL, task, G)
        return G


def float32_rows(X: Matrix) -> Matrix:
    """Return rows in float32, C-contiguous or CSR, for the compiled loops."""
    if sp.issparse(X):
        X = X if X.format == "csr" else X.tocsr()
        if X.nnz < DENSIFY * X.shape[0] * X.shape[1]:
            return narrow_indices(X.astype(np.float32))
        X = X.toarray()
    return np.ascontiguousarray(X, np.float32)


def narrow_indices(X: Matrix) -> Matrix:
    """Return CSR rows with 32-bit indices if they suffice, which some routines require."""
    if X.indices.dtype == np.int32 or max(X.nnz, *X.shape) > np.iinfo(np.int32).max:
        return X
    parts = (X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32))
    return sp.csr_matrix(parts, shape=X.shape)


def float64_rows(X: Matrix) -> Matrix:
    """Return rows as float64, dense or CSR with 32-bit indices if they suffice.

    Dense rows are in C order, because the order in memory determines the order of NumPy's sums.
    """
    if isinstance(X, np.ndarray):
        return np.ascontiguousarray(X, np.float64)
    return narrow_indices(X.astype(np.float64))


def used_columns(X: Matrix) -> tuple[Matrix, IntArray]:
    """Return rows and their columns; empty columns of CSR rows are left out."""
    d = X.shape[1]
    if not sp.issparse(X):
        return X, np.arange(d)
    touched = np.zeros(d, bool)
    touched[X.indices] = True
    used = np.flatnonzero(touched)
    number = np.empty(d, X.indices.dtype)
    number[used] = np.arange(len(used))
    parts = (X.data, number[X.indices], X.indptr)
    return sp.csr_matrix(parts, shape=(X.shape[0], len(used))), used
