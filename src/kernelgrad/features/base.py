"""Random feature maps, whose blocks are functions of (seed, block), their sums and products."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute.linalg import dense
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
    X = by_density(X, np.float32)
    return X if sp.issparse(X) else np.ascontiguousarray(X, np.float32)


def by_density(X: Matrix, dtype: Any) -> Matrix:
    """Return rows as CSR of a dtype if that is faster than dense, else dense in any dtype."""
    if not sp.issparse(X):
        return X
    if X.nnz < DENSIFY * X.shape[0] * X.shape[1]:
        return narrow_indices(X.tocsr().astype(dtype))
    return X.toarray()


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


class PartsMap(FeatureMap):
    """Base class of maps composed of several maps, each of which may prepare rows differently.

    Prepared rows are one matrix: the original columns, if any part uses them unchanged,
    followed by the columns prepared by each of the other parts.
    """

    def __init__(self, parts: Sequence[FeatureMap], *size: int) -> None:
        super().__init__(*size)
        self.parts, d = list(parts), self.n_features_in
        widths = [_prepared_width(part, d) for part in parts]
        self._shared = None in widths
        stop = d if self._shared else 0
        self._ranges = []
        for width in widths:
            self._ranges.append((0, d) if width is None else (stop, stop + width))
            stop += width or 0

    @property
    def per_feature_unbiased(self) -> bool:
        return all(part.per_feature_unbiased for part in self.parts)

    def capacity(self, n_blocks: int) -> int:
        return max(part.capacity(n_blocks) for part in self.parts)

    def prepare(self, X: Matrix) -> Matrix:
        """Return rows with the columns that all parts need; `X` itself if it suffices."""
        pieces = [X] if self._shared else []
        for part, (start, _) in zip(self.parts, self._ranges, strict=True):
            if start or not self._shared:
                pieces.append(part.prepare(X))
        if len(pieces) == 1:
            return pieces[0]
        if all(sp.issparse(piece) for piece in pieces):
            return sp.hstack(pieces, format="csr")
        return np.hstack([dense(piece) for piece in pieces])

    def part_rows(self, X: Matrix, i: int) -> Matrix:
        start, stop = self._ranges[i]
        if stop - start == X.shape[1]:
            return X
        rows = X[:, start:stop]
        return rows if sp.issparse(rows) else np.ascontiguousarray(rows)


class SumMap(PartsMap):
    """The concatenated features of all parts, times the square roots of their weights."""

    def __init__(
        self, parts: Sequence[FeatureMap], weights: Sequence[float], *size: int
    ) -> None:
        super().__init__(parts, *size)
        self.planes = sum(part.planes for part in parts)
        self._roots = [np.float32(math.sqrt(weight)) for weight in weights]

    def transform(self, X: Matrix, block: int) -> Float32Array:
        out, a = np.empty((X.shape[0], self.width), np.float32), 0
        for i, part in enumerate(self.parts):
            phi = part.transform(self.part_rows(X, i), block)
            np.multiply(phi, self._roots[i], out=out[:, a : a + part.width])
            a += part.width
        return out

    def gradient(self, X: Matrix, R: Float32Array, block: int) -> Float32Array:
        parts = enumerate(self.parts)
        planes = [p.gradient(self.part_rows(X, i), R, block) * self._roots[i] for i, p in parts]
        return np.concatenate(planes)

    def predict(
        self, X: Matrix, coef: Float32Array, n_blocks: int, out: Float32Array, cache_bytes: int
    ) -> None:
        a = 0
        for i, part in enumerate(self.parts):
            own = np.zeros_like(out)
            planes = coef[a : a + part.planes]
            rows = self.part_rows(X, i)
            part.predict(rows, planes, n_blocks, own, cache_bytes // len(self.parts))
            own *= self._roots[i]
            out += own
            a += part.planes


class ProductMap(PartsMap):
    r"""``sqrt(F) phi_1[plane a, i] phi_2[plane b, i]`` for all planes (a, b) and features i."""

    def __init__(self, parts: Sequence[FeatureMap], *size: int) -> None:
        super().__init__(parts, *size)
        self.planes = math.prod(part.planes for part in parts)

    def transform(self, X: Matrix, block: int) -> Float32Array:
        """Return ``phi_block(X)``; the planes of the last part vary fastest."""
        n, F = X.shape[0], self.block_size
        product = np.full((n, 1, 1), F ** ((len(self.parts) - 1) / 2), np.float32)
        for i, part in enumerate(self.parts):
            phi = part.transform(self.part_rows(X, i), block).reshape(n, 1, part.planes, F)
            product = (product[:, :, None, :] * phi).reshape(n, -1, F)
        return product.reshape(n, self.width)


def _prepared_width(part: FeatureMap, n_features_in: int) -> int | None:
    """Return the number of columns that a part prepares; None if it uses rows unchanged."""
    probe = np.ones((1, n_features_in))
    probes = (probe, sp.csr_matrix(probe))
    with np.errstate(all="ignore"):  # only the width is needed
        prepared = [part.prepare(rows) for rows in probes]
    if all(after is before for after, before in zip(prepared, probes, strict=True)):
        return None
    return int(prepared[0].shape[1])
