"""What a random feature map is: blocks of features, each a pure function of (seed, block)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import scipy.sparse as sp

from kernelgrad._typing import Float32Array, Float64Array, IntArray, Matrix
from kernelgrad.compute.linalg import row_products

# From this density on, dense rows are cheaper than sparse ones (measured).
DENSIFY = 0.1


class FeatureMap(ABC):
    r"""Blocks of random features of one kernel, one seed and one input width.

    Block ``j`` maps a row ``x`` to ``phi_j(x)`` of width ``planes * block_size``, normalised so
    that ``E[phi_j(x) . phi_j(z)] = k(x, z)``: each block is by itself an unbiased estimate.
    It is a pure function of (seed, j).

    Subclasses give :meth:`transform`; :meth:`predict` and :meth:`gradient` have defaults that
    go through it one block at a time. All three take rows that went through :meth:`prepare`
    and were then cast to float32 (see :func:`float32_rows`). Features and predictions of a row
    depend on no other row.

    Parameters
    ----------
    n_features_in : int
        Input width d.
    seed : int in [0, 2^64)
    block_size : int
        Features per block and plane, F. Subclasses take these three as ``*size``.
    """

    planes: int = 1

    def __init__(self, n_features_in: int, seed: int, block_size: int) -> None:
        self.n_features_in = n_features_in
        self.seed = seed
        self.block_size = block_size

    @property
    def per_feature_unbiased(self) -> bool:
        """Whether each single feature, summed over planes, averages to ``k / F``.

        Products of kernels multiply feature by feature and need it; a stratified block is
        unbiased only as a whole.
        """
        return True

    @property
    def width(self) -> int:
        """Columns of one block: ``planes * block_size``."""
        return self.planes * self.block_size

    def capacity(self, n_blocks: int) -> int:
        """Return how many coefficients a plane must hold (zeros behind the used ones)."""
        return n_blocks * self.block_size

    def prepare(self, X: Matrix) -> Matrix:
        """Return what the other methods need of each row, dense or CSR; once per batch."""
        return X

    @abstractmethod
    def transform(self, X: Matrix, block: int) -> Float32Array:
        """Return ``phi_block(X)``, shape (n, width), plane after plane."""

    def predict(
        self, X: Matrix, coef: Float32Array, n_blocks: int, out: Float32Array, cache_bytes: int
    ) -> None:
        """Add ``sum_j phi_j(X) coef_j`` to `out` (n, C); `coef` is (planes, capacity, C)."""
        F = self.block_size
        for j in range(n_blocks):
            a = coef[:, j * F : (j + 1) * F].reshape(self.width, -1)
            out += row_products(self.transform(X, j), a)

    def gradient(self, X: Matrix, R: Float32Array, block: int) -> Float32Array:
        """Return ``phi_block(X)^T R``, shape (width, C)."""
        G: Float32Array = self.transform(X, block).T @ R
        return G


def float32_rows(X: Matrix) -> Matrix:
    """Return rows as the hot loops want them: float32, C-contiguous or CSR."""
    if sp.issparse(X):
        X = X if X.format == "csr" else X.tocsr()
        if X.nnz < DENSIFY * X.shape[0] * X.shape[1]:
            return narrow_indices(X.astype(np.float32))
        X = X.toarray()
    return np.ascontiguousarray(X, np.float32)


def narrow_indices(X: Matrix) -> Matrix:
    """Return CSR rows with 32-bit indices where they suffice: some routines take no others."""
    if X.indices.dtype == np.int32 or max(X.nnz, *X.shape) > np.iinfo(np.int32).max:
        return X
    parts = (X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32))
    return sp.csr_matrix(parts, shape=X.shape)


def dense64(X: Matrix) -> Float64Array:
    """Return rows as a dense float64 array."""
    return np.asarray(X.toarray() if sp.issparse(X) else X, np.float64)


def float64_rows(X: Matrix) -> Matrix:
    """Return rows as float64, dense or CSR with 32-bit indices where they suffice.

    Dense rows are in C order: NumPy adds up the entries of a row in the order of the memory.
    """
    if isinstance(X, np.ndarray):
        return np.ascontiguousarray(X, np.float64)
    return narrow_indices(X.astype(np.float64))


def used_columns(X: Matrix) -> tuple[Matrix, IntArray]:
    """Return rows and their columns; of CSR rows those that hold no entry are left out."""
    d = X.shape[1]
    if not sp.issparse(X):
        return X, np.arange(d)
    touched = np.zeros(d, bool)
    touched[X.indices] = True
    used = np.flatnonzero(touched)
    place = np.empty(d, X.indices.dtype)
    place[used] = np.arange(len(used))
    parts = (X.data, place[X.indices], X.indptr)
    return sp.csr_matrix(parts, shape=(X.shape[0], len(used))), used
