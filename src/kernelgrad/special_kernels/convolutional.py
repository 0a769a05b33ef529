r"""The convolution kernel on images, whose random features are pooled random convolutions.

In Section 2 of Dai et al. (2014) features ``cos(w . psi_theta(x) + b)``, where psi_theta is a
random convolution of the input, give a hierarchical kernel. The features of a group share a
cell: its patches are gathered once and multiplied by all filters of the group, one tile of rows
at a time, so convolved images are never stored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.extmath import row_norms

from kernelgrad.compute import rng
from kernelgrad.compute.compiling import njit
from kernelgrad.compute.elementary import cos_sin_turns
from kernelgrad.compute.linalg import dense
from kernelgrad.compute.threads import over_tiles
from kernelgrad.features.base import FeatureMap
from kernelgrad.kernels import profiles, tiles
from kernelgrad.kernels.base import ExactRows, Kernel, TiledKernel
from kernelgrad.kernels.rows import median_distance
from kernelgrad.params import integer, number_or_rule, parameters, real
from kernelgrad.types import AnyArray, Float32Array, Float64Array, IntArray, Matrix
from kernelgrad.validation import DataError, ModelFileError, check_int

TAG_CELL, TAG_PATCH = 12, 14
_MIN_GROUP, _MAX_GROUP = 8, 64  # features of a group share a cell
_TILE_FLOATS = 2**16  # patches, cosines and sines of one tile, which stay in the L2 cache
MEDIAN_PATCHES = 2000  # random patches whose median distance is the bandwidth
_FAR_SQUARED = 100.0  # gamma |patch|^2 from which distances in float32 suffer cancellation
_SIDE = 1024  # patches on each side of a tile of exact values
_CHUNK = 64  # images that become dense at once while patches are drawn
_FAST = {"contract", "nsz", "arcp"}


@njit(nogil=True, cache=True, fastmath=_FAST)
def _gather(X: Any, origins: Any, within: Any, A: Any) -> None:
    """Write patch p of row i to A[i * P + p]."""
    q = within.size
    for i in range(X.shape[0]):
        x = X[i]
        for p in range(origins.size):
            a = A[i * origins.size + p]
            o = origins[p]
            for j in range(q):
                a[j] = x[o + within[j]]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _pool(T: Any, P: int, scale: Any, out: Any, j0: int, j1: int) -> None:
    """Set out[i, j0:j1] to scale times the sum of T over the P patches of row i."""
    for i in range(out.shape[0]):
        o = out[i, j0:j1]
        for j in range(o.size):
            o[j] = 0
        for k in range(i * P, (i + 1) * P):
            t = T[k]
            for j in range(o.size):
                o[j] += scale * t[j]


@njit(nogil=True, cache=True)
def _tile(
    X: Any, origins: Any, starts: Any, within: Any, cells: Any, most: int, W: Any,
    scale: Any, F: int, out: Any,
) -> None:  # fmt: skip
    n = X.shape[0]
    groups, q, G = W.shape
    size = n * most
    A = np.zeros((size, q), np.float32)
    T = np.empty((size, G), np.float32)
    S = np.empty((size, G), np.float32)
    for g in range(groups):
        c = cells[g]
        inside = origins[starts[c] : starts[c + 1]]
        P = inside.size
        size = n * P
        a, t, s = A[:size], T[:size], S[:size]
        _gather(X, inside, within, a)
        np.dot(a, W[g], t)
        cos_sin_turns(t.reshape(t.size), s.reshape(s.size))
        j0, j1 = g * G, min(F, (g + 1) * G)
        mean = scale / np.float32(P)
        _pool(t, P, mean, out, j0, j1)
        _pool(s, P, mean, out, F + j0, F + j1)


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
        """Return the filters of a block in turns, shape (n_groups, q, group).

        The last group may have surplus ones.
        """
        q = len(self.grid.within)
        W = np.empty((self.n_groups, q, self.group), np.float32)
        scale = float(np.sqrt(2 * self.gamma)) / (2 * np.pi)
        first = block * self.block_size
        rng.fill_tiles(W, np.arange(q), self.seed, first, rng.NORMAL, scale)
        return W

    def transform(self, X: Matrix, block: int) -> Float32Array:
        F, g, scale = self.block_size, self.grid, np.float32(np.sqrt(1.0 / self.block_size))
        rows, cells, W = dense(X), self.cells(block), self.filters(block)
        most = int(np.diff(g.starts)[cells].max())  # patches of a cell
        out = np.empty((len(rows), 2 * F), np.float32)

        def task(a: int, z: int) -> None:
            _tile(rows[a:z], g.origins, g.starts, g.within, cells, most, W, scale, F, out[a:z])

        step = max(1, _TILE_FLOATS // (most * (W.shape[1] + 2 * W.shape[2])))
        over_tiles(len(out), step, task)
        return out


@parameters
class ConvolutionKernel(TiledKernel):
    """Kernel on images that compares their patches within cells of neighbouring positions.

    An image has patches ``x_p`` of `patch_size` x `patch_size` pixels at every `stride`-th
    position. The positions are divided into cells c of `pool_size` x `pool_size` neighbouring
    ones; cells at the right and lower edge may be smaller. The kernel is::

        k(x, z) = mean_c |c|^-2 sum_{p, q in c} exp(-gamma ||x_p - z_q||^2)

    It is therefore insensitive to shifts of a pattern within a cell, but not across the image.
    It is not stationary, so the estimators do not centre the columns. An exact value costs
    ``sum_c |c|^2`` exponentials.

    A random feature draws a cell c and a filter ``w ~ N(0, 2 gamma I)``, and is
    ``phi(x) = |c|^-1 sum_{p in c} [cos, sin](w . x_p)``: a convolution with a random filter, a
    cosine, and average pooling. This is the paper's ``cos(w . psi_theta(x) + b)`` (Section 2)
    with ``theta = (c, p)``, averaged over p, and with ``[cos, sin]`` in place of the phase. A
    function of the distance of this kernel has no unbiased random features; products do:
    ``k * k`` compares pairs of cells, ``k * Gaussian(...)`` local patches and the whole image.

    Parameters
    ----------
    image_shape : (height, width) or (height, width, channels)
        Rows are images flattened in C order, as by ``images.reshape(n, -1)``.
    patch_size : int >= 1, default=5
        Side of a patch in pixels. 5 is about the width of a stroke in images of 30 pixels.
    stride : int >= 1, default=1
        Distance between neighbouring patches in pixels; 2 takes a quarter of the time.
    pool_size : int >= 1, default=3
        Side of a cell in positions, which bounds the shifts that have no effect. 1 allows no
        shift; with the number of positions an image is a bag of patches.
    gamma : float > 0 or "median", default="median"
        ``1 / (2 sigma^2)``; ``"median"`` puts sigma at the median distance of 2,000 random
        patches of the sample (pairs at distance zero are left out).
    bandwidth_factor : float > 0, default=1.0
        Factor on the bandwidth that the rule finds. On handwritten digits 0.5 made a third
        fewer errors than 1.
    """

    name: ClassVar[str] = "convolutional"
    is_costly: ClassVar[bool] = True

    image_shape: Sequence[int] = dataclasses.field(kw_only=False)
    patch_size: int = integer(default=5, low=1, kw_only=False)
    stride: int = integer(default=1, low=1, kw_only=False)
    pool_size: int = integer(default=3, low=1, kw_only=False)
    gamma: float | str = number_or_rule(
        ("median",), default="median", low=0, low_open=True, kw_only=False
    )
    bandwidth_factor: float = real(default=1.0, low=0, low_open=True)

    @classmethod
    def restored(cls, *, normalize: bool = False, **params: Any) -> Kernel:
        if normalize:
            raise ModelFileError("The model compares patches by contrast; fit it again.")
        return super().restored(**params)

    def check(self) -> None:
        super().check()
        shape = self.image_shape
        if not isinstance(shape, list | tuple | np.ndarray) or len(shape) not in (2, 3):
            raise ValueError(
                "image_shape must be (height, width) or (height, width, channels), got "
                f"{shape!r}."
            )
        for size in shape:
            check_int(size, "image_shape", low=1)
        if self.patch_size > min(shape[:2]):
            raise ValueError(
                f"patch_size={self.patch_size} is larger than an image of shape "
                f"{tuple(shape)}; take at most {min(shape[:2])}."
            )

    def check_domain(self, X: Matrix) -> None:
        self._check_width(X.shape[1])

    def _check_width(self, n_columns: int) -> None:
        shape = tuple(int(size) for size in self.image_shape)
        expected = int(np.prod(shape))
        if n_columns != expected:
            raise DataError(
                f"The {self.name} kernel has image_shape={shape}, so rows of {expected} "
                f"columns, but the rows hold {n_columns}; give the shape of your images."
            )

    def grid(self) -> PatchGrid:
        """Return the cells of patches of an image."""
        height, width, channels = (*(int(size) for size in self.image_shape), 1)[:3]
        side, stride, pool = self.patch_size, self.stride, self.pool_size
        down = np.arange((height - side) // stride + 1)
        across = np.arange((width - side) // stride + 1)
        origins = (down[:, None] * width + across) * stride * channels
        cells = down[:, None] // pool * -(-len(across) // pool) + across // pool
        order = np.argsort(cells, axis=None, kind="stable")
        sizes = np.bincount(cells.ravel())
        row = np.arange(side * channels)
        return PatchGrid(
            origins.ravel()[order],
            np.concatenate([[0], np.cumsum(sizes)]),
            (np.arange(side)[:, None] * (width * channels) + row).ravel(),
        )

    def resolve(self, X: Matrix, seed: int) -> Self:
        """Replace the rule for gamma by a number, from random patches of `X`."""
        self.check()
        self._check_width(X.shape[1])
        if not isinstance(self.gamma, str):
            return self
        patches = self._random_patches(X, seed)
        median = median_distance(euclidean_distances(patches), row_norms(patches))
        return self._with_gamma(1.0 / (2.0 * (median * self.bandwidth_factor) ** 2))

    def _random_patches(self, X: Matrix, seed: int) -> Float64Array:
        """Return patches at random positions of random rows, shape (MEDIAN_PATCHES, q)."""
        grid = self.grid()
        rows, places = (
            (rng.uniforms(seed, 0, MEDIAN_PATCHES, TAG_PATCH, group) * size).astype(np.int64)
            for group, size in enumerate((X.shape[0], len(grid.origins)))
        )
        columns = grid.origins[places][:, None] + grid.within
        drawn = np.empty(columns.shape)
        for a in range(0, MEDIAN_PATCHES, _CHUNK):
            part = slice(a, a + _CHUNK)
            images = dense(X[rows[part]], np.float64)
            drawn[part] = np.take_along_axis(images, columns[part], axis=1)
        return drawn

    def diag(self, X: Matrix) -> Float64Array:
        gamma = self.gamma_value
        self._check_width(X.shape[1])
        grid = self.grid()
        k = np.zeros(X.shape[0])
        side = max(1, _SIDE**2 // int(np.diff(grid.starts).max()) ** 2)
        for a in range(0, len(k), side):
            x = dense(X[a : a + side], np.float64)
            for cell in range(grid.n_cells):
                P = x[:, grid.columns(cell)]
                squares = (P**2).sum(axis=2)
                D = squares[:, :, None] + squares[:, None, :] - 2 * P @ P.transpose(0, 2, 1)
                E = np.exp(-gamma * np.maximum(D, 0.0))
                k[a : a + side] += E.mean(axis=(1, 2))
        return k / grid.n_cells

    def embedded(self, X: Matrix) -> Matrix:
        self._check_width(X.shape[1])
        return dense(X)

    def tile_rows(self, X: Matrix, *, wide: bool) -> ExactRows:
        images = self.embedded(X)
        return ExactRows(np.array(images, np.float64 if wide else np.float32, order="C"))

    def values(
        self, A: ExactRows, B: ExactRows, dtype: Any = np.float32, *,
        out: AnyArray | None = None, compiled: bool = False,
    ) -> AnyArray:  # fmt: skip
        """Return ``k(A_i, B_j)``, computed in tiles of images whose patches fit the cache."""
        if dtype == np.float64:
            A, B = self.widened(A), self.widened(B)
        grid = self.grid()
        side = max(1, _SIDE // int(np.diff(grid.starts).max()))
        K = np.empty((A.n_rows, B.n_rows), A.values.dtype)
        for b in range(0, B.n_rows, side):
            images = B.values[b : b + side]
            right = [self._scaled_patches(images, grid, c) for c in range(grid.n_cells)]
            for a in range(0, A.n_rows, side):
                left = A.values[a : a + side]
                total = 0.0
                for cell, (Q, norms_q) in enumerate(right):
                    P, norms_p = self._scaled_patches(left, grid, cell)
                    E = tiles.block(
                        P, Q, profiles.DOT, profiles.GAUSS, left=norms_p, right=norms_q
                    )
                    E = E.reshape(-1, len(left), len(Q) // len(images), len(images))
                    # over the patches of both images, one after the other
                    total = total + E.mean(axis=0, dtype=np.float64).mean(axis=1)
                K[a : a + side, b : b + side] = total / grid.n_cells
        return K.astype(dtype, copy=False)

    def _scaled_patches(
        self, images: AnyArray, grid: PatchGrid, cell: int
    ) -> tuple[AnyArray, Float64Array]:
        """Return patches times ``sqrt(2 gamma)`` by position, and squared norms."""
        P = images[:, grid.columns(cell)].astype(np.float64)
        P = P.swapaxes(0, 1).reshape(-1, P.shape[2]) * float(np.sqrt(2 * self.gamma_value))
        P = np.asfortranarray(P, images.dtype)
        return P, tiles.squares(P)

    def needs_wide(self, X: Matrix) -> bool:
        values = np.abs(X.data if sp.issparse(X) else X)
        pixel = float(np.quantile(values, 0.999)) if values.size else 0.0
        return self.gamma_value * len(self.grid().within) * pixel**2 > _FAR_SQUARED

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> ConvolutionMap:
        self._check_width(n_features_in)
        return ConvolutionMap(self.grid(), self.gamma_value, n_features_in, seed, block_size)
