r"""The convolution kernel on images, and features that are pooled random convolutions.

Dai et al. (2014), Section 2: features may be ``cos(w . psi_theta(x) + b)`` with psi_theta a
random convolution of the input, which gives a hierarchical kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics.pairwise import euclidean_distances

from kernelgrad._typing import AnyArray, Float32Array, Float64Array, IntArray, Matrix
from kernelgrad._validation import DataError, check_bool, check_int, check_name, check_real
from kernelgrad.compute import rng
from kernelgrad.compute.threads import parallel_for, single_threaded_blas
from kernelgrad.features import _patches as patches
from kernelgrad.features.base import FeatureMap
from kernelgrad.kernels import _tiles as exact
from kernelgrad.kernels.base import ExactRows, Kernel

TAG_CELL = 12
TAG_PATCH = 14
MEDIAN_PATCHES = 2000
_FAR_SQUARED = 100.0  # gamma |patch|^2 from which float32 would cancel in distances
_MIN_GROUP, _MAX_GROUP = 8, 64  # features of a group share a cell
_SIDE = 1024  # patches on each side of a tile of the exact form
_CHUNK = 64  # images held densely at once while patches are drawn


@dataclass(frozen=True)
class PatchGrid:
    """Where the patches of an image lie in its flat row, cell by cell.

    Attributes
    ----------
    origins : int64 array (n_patches,)
        Column of each patch's first pixel, the patches of a cell one after another.
    starts : int64 array (n_cells + 1,)
        Cell c holds ``origins[starts[c] : starts[c + 1]]``.
    within : int64 array (q,)
        Columns of a patch's pixels, counted from its first.
    """

    origins: IntArray
    starts: IntArray
    within: IntArray

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.starts) - 1

    def columns(self, cell: int) -> IntArray:
        """Return the columns of the patches of a cell, shape (n_patches_of_cell, q)."""
        inside = self.origins[self.starts[cell] : self.starts[cell + 1]]
        return inside[:, None] + self.within


class ConvolutionKernel(Kernel):
    r"""Kernel of images as sets of patches, compared cell by cell.

    An image holds patches ``x_p`` of `patch_size` x `patch_size` pixels at every `stride`-th
    position. Cells c of `pool_size` x `pool_size` neighbouring positions tile the positions;
    those at the right and lower edge may be smaller::

        k(x, z) = mean_c |c|^-2 sum_{p, q in c} exp(-gamma ||x_p - z_q||^2)

    so a pattern may move inside a cell, but not across the image.

    Random features are convolutions: draw a cell c and a filter ``w ~ N(0, 2 gamma I)``, then
    ``phi(x) = |c|^-1 sum_{p in c} [cos, sin](w . x_p)``: convolution with a random filter, a
    cosine, average pooling. This is the paper's ``cos(w . psi_theta(x) + b)`` (Section 2) with
    ``theta = (c, p)``, averaged over p, and ``[cos, sin]`` in place of the phase.

    Parameters
    ----------
    image_shape : (height, width) or (height, width, channels)
        Rows are images flattened in C order, as by ``images.reshape(n, -1)``.
    patch_size : int >= 1, default=5
        Side of a patch, the width of one stroke in images of about 30 pixels.
    stride : int >= 1, default=1
        Distance of neighbouring patches; 2 takes a quarter of the time.
    pool_size : int >= 1, default=3
        Positions along the side of a cell, the shifts that are forgiven; 1 forgives none,
        and from the number of positions on there is one cell: a bag of patches.
    gamma : float > 0 or "median", default="median"
        ``1 / (2 sigma^2)``; ``"median"`` puts sigma at the median distance of 2,000 random
        patches of the sample (pairs at distance zero are left out).
    bandwidth_factor : float > 0, default=1.0
        Multiplies the bandwidth that the rule finds; without effect on a number. On
        handwritten digits 0.5 made a third fewer errors than 1.
    normalize : bool, default=False
        Compare patches by contrast: subtract each patch's mean, which leaves ``u_p``, and use
        ``||u_p|| ||v_q|| exp(-gamma ||u_p/||u_p|| - v_q/||v_q|| ||^2)`` in the sum. Brightness
        then has no effect, flat patches count nothing, and ``k(a x, a z) = a^2 k(x, z)`` for
        a > 0: scale pixels to about 1.

    Notes
    -----
    One layer is offered. A Gaussian or arc-cosine function of this kernel's distance, as in
    deep kernels, has no random features that are unbiased block by block, because their
    argument is itself an average over random features. Products have: ``k * k`` of this
    kernel compares pairs of cells, ``k * Gaussian(...)`` local patches and the whole image.

    Because the kernel is a mean over cells, a fitted function is a sum of one function per
    cell. It is not stationary (patches at different positions are compared), so the
    estimators do not centre the columns.

    A feature costs about as much as |c| Gaussian features of width q, the pixels of a patch;
    an exact value costs ``sum_c |c|^2`` exponentials.
    """

    name: ClassVar[str] = "convolutional"

    def __init__(
        self,
        image_shape: Sequence[int],
        patch_size: int = 5,
        stride: int = 1,
        pool_size: int = 3,
        gamma: float | str = "median",
        *,
        bandwidth_factor: float = 1.0,
        normalize: bool = False,
    ) -> None:
        self.image_shape = image_shape
        self.patch_size = patch_size
        self.stride = stride
        self.pool_size = pool_size
        self.gamma = gamma
        self.bandwidth_factor = bandwidth_factor
        self.normalize = normalize

    def check(self) -> None:
        """Raise if a parameter is outside its domain, or a patch larger than the image."""
        shape = self.image_shape
        if not isinstance(shape, list | tuple | np.ndarray) or len(shape) not in (2, 3):
            raise ValueError(
                "image_shape must be (height, width) or (height, width, channels), got "
                f"{shape!r}."
            )
        for size in shape:
            check_int(size, "image_shape", low=1)
        for name in ("patch_size", "stride", "pool_size"):
            check_int(getattr(self, name), name, low=1)
        if self.patch_size > min(shape[:2]):
            raise ValueError(
                f"patch_size={self.patch_size} is larger than an image of shape "
                f"{tuple(shape)}; take at most {min(shape[:2])}."
            )
        if isinstance(self.gamma, str):
            check_name(self.gamma, ("median",), "rule for gamma")
        else:
            check_real(self.gamma, "gamma", low=0, low_open=True)
        check_real(self.bandwidth_factor, "bandwidth_factor", low=0, low_open=True)
        check_bool(self.normalize, "normalize")

    def check_domain(self, X: Matrix) -> None:
        """Raise DataError unless rows are as long as flat images."""
        self._check_width(X.shape[1])

    def _check_width(self, n_columns: int) -> None:
        shape = tuple(int(size) for size in self.image_shape)
        expected = int(np.prod(shape))
        if n_columns != expected:
            raise DataError(
                f"The {self.name} kernel has image_shape={shape}, so rows of {expected} "
                f"columns, but the rows hold {n_columns}; give the shape of your images."
            )

    @property
    def gamma_value(self) -> float:
        """The number gamma; raises when it is still a rule."""
        if isinstance(self.gamma, str):
            raise ValueError(
                f"gamma={self.gamma!r} is a rule; call resolve(X, seed) first or give a number."
            )
        return float(self.gamma)

    def grid(self) -> PatchGrid:
        """Return where patches and cells lie."""
        shape = (*(int(size) for size in self.image_shape), 1)
        height, width, channels = shape[:3]
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
        units, norms = self._compared(self._random_patches(X, seed))
        D = euclidean_distances(units)
        seen = norms > 1e-7 * norms.max()  # flat patches have no direction
        D = D[np.ix_(seen, seen)]
        D = D[np.triu_indices_from(D, 1)]
        size = np.sqrt((units**2).sum(axis=1).max(initial=0.0))
        D = D[1e-7 * float(size) < D]  # rounding leaves equal patches a little apart
        median = float(np.median(D)) if D.size else 1.0
        gamma = 1.0 / (2.0 * (median * self.bandwidth_factor) ** 2)
        if not np.isfinite(gamma) or gamma <= 0:
            raise DataError(
                f"gamma={self.gamma!r} gives {gamma!r} on these data; scale the inputs or give "
                "gamma as a number."
            )
        resolved: Self = clone(self)
        resolved.set_params(gamma=gamma, bandwidth_factor=1.0)
        return resolved

    def _random_patches(self, X: Matrix, seed: int) -> Float64Array:
        """Return patches of random rows and positions, shape (MEDIAN_PATCHES, q)."""
        grid = self.grid()
        rows, places = (
            (rng.uniforms(seed, 0, MEDIAN_PATCHES, TAG_PATCH, group) * size).astype(np.int64)
            for group, size in enumerate((X.shape[0], len(grid.origins)))
        )
        columns = grid.origins[places][:, None] + grid.within
        drawn = np.empty(columns.shape)
        for a in range(0, MEDIAN_PATCHES, _CHUNK):
            part = slice(a, a + _CHUNK)
            drawn[part] = np.take_along_axis(_dense64(X[rows[part]]), columns[part], axis=1)
        return drawn

    def _compared(self, P: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return what is compared of patches (..., q), and their weights (...)."""
        if not self.normalize:
            return P, np.ones(P.shape[:-1])
        P = P - P.mean(axis=-1, keepdims=True)
        norms = np.sqrt((P**2).sum(axis=-1))
        return P / np.where(norms > 0, norms, 1.0)[..., None], norms

    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        """Return the mean over cells, in tiles of rows of bounded memory."""
        gamma = self.gamma_value
        for A in (X, Z):
            self._check_width(A.shape[1])
        grid = self.grid()
        n, m = X.shape[0], Z.shape[0]
        side = max(1, _SIDE // int(np.diff(grid.starts).max()))
        across = -(-m // side)
        K = np.zeros((n, m))

        def task(t: int) -> None:
            a, b = t // across * side, t % across * side
            x, z, out = _dense64(X[a : a + side]), _dense64(Z[b : b + side]), K[a:, b:]
            out = out[: len(x), : len(z)]
            for cell in range(grid.n_cells):
                columns = grid.columns(cell)
                P, u = self._compared(x[:, columns])
                Q, v = self._compared(z[:, columns])
                out += _mean_over_patches(P, u, Q, v, gamma)
            out /= grid.n_cells

        with single_threaded_blas():
            parallel_for(-(-n // side) * across, task)
        return K

    def diag(self, X: Matrix) -> Float64Array:
        """Return ``k(x, x)``, in (0, 1] unless patches are normalised."""
        gamma = self.gamma_value
        self._check_width(X.shape[1])
        grid = self.grid()
        k = np.zeros(X.shape[0])
        side = max(1, _SIDE**2 // int(np.diff(grid.starts).max()) ** 2)
        for a in range(0, len(k), side):
            x = _dense64(X[a : a + side])
            for cell in range(grid.n_cells):
                P, u = self._compared(x[:, grid.columns(cell)])
                squares = (P**2).sum(axis=2)
                D = squares[:, :, None] + squares[:, None, :] - 2 * P @ P.transpose(0, 2, 1)
                E = np.exp(-gamma * np.maximum(D, 0.0))
                k[a : a + side] += np.einsum("ip,ipq,iq->i", u, E, u) / P.shape[1] ** 2
        return k / grid.n_cells

    def exact_rows(self, X: Matrix, *, wide: bool = False) -> ExactRows:
        """Return the images, dense."""
        self._check_width(X.shape[1])
        dense = X.toarray() if sp.issparse(X) else X
        return ExactRows(np.array(dense, np.float64 if wide else np.float32, order="C"))

    def exact_block(self, A: ExactRows, B: ExactRows) -> Float32Array:
        """Return ``k(A_i, B_j)``, in tiles of images whose patches fit the cache."""
        grid = self.grid()
        side = max(1, _SIDE // int(np.diff(grid.starts).max()))
        K = np.empty((A.n_rows, B.n_rows), np.float32)
        for b in range(0, B.n_rows, side):
            right = [
                self._scaled_patches(B.values[b : b + side], grid, c)
                for c in range(grid.n_cells)
            ]
            for a in range(0, A.n_rows, side):
                tile = A.values[a : a + side]
                total = 0.0
                for cell, (Q, norms_q, v) in enumerate(right):
                    P, norms_p, u = self._scaled_patches(tile, grid, cell)
                    E = exact.block(P, Q, exact.DOT, exact.GAUSS, left=norms_p, right=norms_q)
                    total = total + exact.pool(E, u, v) / u.shape[1] ** 2
                K[a : a + side, b : b + side] = total / grid.n_cells
        return K

    def _scaled_patches(
        self, images: AnyArray, grid: PatchGrid, cell: int
    ) -> tuple[AnyArray, Float64Array, Float64Array]:
        """Return patches times ``sqrt(2 gamma)``, patch after patch, squared norms, weights."""
        P, u = self._compared(images[:, grid.columns(cell)].astype(np.float64))
        P = P.swapaxes(0, 1).reshape(-1, P.shape[2]) * float(np.sqrt(2 * self.gamma_value))
        P = np.asfortranarray(P, images.dtype)
        return P, exact.squares(P), u

    def needs_wide(self, X: Matrix) -> bool:
        """Return whether ``gamma |x_p|^2`` of a patch of usual large pixels exceeds 100."""
        if self.normalize:
            return self.gamma_value > _FAR_SQUARED
        values = np.abs(X.data if sp.issparse(X) else X)
        pixel = float(np.quantile(values, 0.999)) if values.size else 0.0
        return self.gamma_value * len(self.grid().within) * pixel**2 > _FAR_SQUARED

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> ConvolutionMap:
        """Return pooled random convolutions."""
        self.gamma_value  # noqa: B018 - raises while gamma is a rule
        self._check_width(n_features_in)
        return ConvolutionMap(self, n_features_in, seed, block_size)


class ConvolutionMap(FeatureMap):
    r"""``|c|^-1 sum_{p in c} [cos, sin](w . x_p) / sqrt(F)`` for random filters and cells.

    Consecutive features form groups on one cell, so that their convolution is a matrix product
    of patches with filters. Groups have ``F / n_cells`` features, within 8 and 64: a block
    sees as many cells as it can. Its cells come from random permutations keyed by (seed,
    block), each used up before the next, so every group is uniform over the cells.
    """

    planes = 2

    def __init__(
        self, kernel: ConvolutionKernel, n_features_in: int, seed: int, block_size: int
    ) -> None:
        super().__init__(n_features_in, seed, block_size)
        self.kernel = kernel
        self.grid = kernel.grid()
        ideal = block_size // self.grid.n_cells
        self.group = min(block_size, max(_MIN_GROUP, min(_MAX_GROUP, ideal)))
        self.n_groups = -(-block_size // self.group)

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
        scale = float(np.sqrt(2 * self.kernel.gamma_value)) / (2 * np.pi)
        first = block * self.block_size
        rng.fill_tiles(W, np.arange(q), self.seed, first, rng.NORMAL, scale)
        return W

    def transform(self, X: Matrix, block: int) -> Float32Array:
        """Return ``phi_block(X)``, shape (n, 2 F), cosines before sines."""
        out = np.empty((X.shape[0], self.width), np.float32)
        g = self.grid
        patches.transform(
            X.toarray() if sp.issparse(X) else X,
            g.origins,
            g.starts,
            g.within,
            self.cells(block),
            self.filters(block),
            bool(self.kernel.normalize),
            float(np.sqrt(1.0 / self.block_size)),
            out,
        )
        return out


def _mean_over_patches(
    P: Float64Array, u: Float64Array, Q: Float64Array, v: Float64Array, gamma: float
) -> Float64Array:
    """Return means over p, q of ``u_p v_q exp(-gamma |P_p - Q_q|^2)``, shape (n, m)."""
    (n, size, q), m = P.shape, len(Q)
    # patches before images: the sums over p and q then run along whole rows
    P, Q = (A.swapaxes(0, 1).reshape(-1, q) for A in (P, Q))
    D = P @ Q.T
    D *= 2 * gamma
    D -= gamma * (P**2).sum(axis=1)[:, None]
    D -= gamma * (Q**2).sum(axis=1)
    np.minimum(D, 0.0, out=D)
    np.exp(D, out=D)
    D *= u.T.reshape(-1, 1)
    D *= v.T.ravel()
    means: Float64Array = D.reshape(size, n, size, m).sum(axis=(0, 2)) / size**2
    return means


def _dense64(X: Matrix) -> AnyArray:
    dense = X.toarray() if sp.issparse(X) else X
    return np.asarray(dense, np.float64)
