"""Pooled random convolutions of images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelgrad.compute import rng
from kernelgrad.compute.linalg import dense
from kernelgrad.features.base import FeatureMap
from kernelgrad.special_kernels.features import patches
from kernelgrad.types import Float32Array, IntArray, Matrix

TAG_CELL = 12
_MIN_GROUP, _MAX_GROUP = 8, 64  # features of a group share a cell


@dataclass(frozen=True)
class PatchGrid:
    """The positions of the patches of an image in its flattened row, cell by cell."""

    origins: IntArray  # column of the first pixel of each patch, grouped by cell
    starts: IntArray  # cell c holds ``origins[starts[c] : starts[c + 1]]``
    within: IntArray  # columns of the q pixels of a patch, relative to its first

    @property
    def n_cells(self) -> int:
        return len(self.starts) - 1

    def columns(self, cell: int) -> IntArray:
        """Return the columns of the patches of a cell, shape (n_patches_of_cell, q)."""
        inside = self.origins[self.starts[cell] : self.starts[cell + 1]]
        return inside[:, None] + self.within


class ConvolutionMap(FeatureMap):
    r"""``|c|^-1 sum_{p in c} [cos, sin](w . x_p) / sqrt(F)`` for random filters and cells.

    Consecutive features form groups that share a cell, so that their convolution is a matrix
    product of patches with filters. A group has ``F / n_cells`` features, but between 8 and 64,
    so that a block covers as many cells as possible. The cells of a block are taken from random
    permutations keyed by (seed, block), one after the other, so every group is uniform over the
    cells.
    """

    planes = 2

    def __init__(self, grid: PatchGrid, gamma: float, *size: int) -> None:
        super().__init__(*size)
        self.grid, self.gamma = grid, gamma
        F = self.block_size
        self.group = min(F, max(_MIN_GROUP, min(_MAX_GROUP, F // grid.n_cells)))
        self.n_groups = -(-F // self.group)

    def cells(self, block: int) -> IntArray:
        """Return the cell of each group of a block."""
        n = self.grid.n_cells
        rounds = -(-self.n_groups // n)
        u = rng.uniforms(self.seed, block * rounds * n, rounds * n, TAG_CELL)
        order = np.argsort(u.reshape(rounds, n), axis=1)
        return np.asarray(order.ravel()[: self.n_groups], np.int64)

    def filters(self, block: int) -> Float32Array:
        """Return the filters of a block in turns, shape (n_groups, q, group)."""
        q = len(self.grid.within)
        W = np.empty((self.n_groups, q, self.group), np.float32)
        scale = float(np.sqrt(2 * self.gamma)) / (2 * np.pi)
        first = block * self.block_size
        rng.fill_tiles(W, np.arange(q), self.seed, first, rng.NORMAL, scale)
        return W

    def transform(self, X: Matrix, block: int) -> Float32Array:
        out = np.empty((X.shape[0], self.width), np.float32)
        g, scale = self.grid, float(np.sqrt(1.0 / self.block_size))
        drawn = self.cells(block), self.filters(block)
        patches.transform(dense(X), g.origins, g.starts, g.within, *drawn, scale, out)
        return out
