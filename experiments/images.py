"""Endless data of images, deformed by random smooth fields that depend on (seed, row)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelgrad.compute import rng
from kernelgrad.compute.compiling import njit
from kernelgrad.compute.threads import over_tiles
from kernelgrad.data.base import Batch, BatchSource, all_finite, check_range, check_rows
from kernelgrad.exceptions import DataError
from kernelgrad.types import AnyArray, Float64Array, IntArray
from kernelgrad.validation import check_int, check_real

TAG_IMAGE = 16
_ROWS = 64  # rows of a task


@njit(nogil=True, cache=True)
def _multiply(A: Any, B: Any, out: Any) -> None:
    """Set out to A B, summed in a fixed order."""
    for i in range(A.shape[0]):
        for j in range(B.shape[1]):
            total = np.float32(0)
            for p in range(A.shape[1]):
                total += A[i, p] * B[p, j]
            out[i, j] = total


@njit(nogil=True, cache=True)
def _deform(
    images: Any, chosen: Any, rows: Any, plain: int, k0: int, k1: int,
    B: Any, C: Any, affine: Any, elastic: float, out: Any,
) -> None:  # fmt: skip
    """Write ``images[chosen[r]]`` deformed by the field of ``rows[r]`` to ``out[r]``."""
    n_down, n_across = B.shape[1], C.shape[1]
    size = n_down * n_across
    height, width, channels = images.shape[1], images.shape[2], images.shape[3]
    columns = np.arange(5 + 2 * size)
    z = np.empty((columns.size, 1), np.float32)
    half = np.empty((height, n_across), np.float32)
    down = np.empty((height, width), np.float32)
    across = np.empty((height, width), np.float32)
    middle, centre = 0.5 * (height - 1), 0.5 * (width - 1)
    for r in range(rows.size):
        image = images[chosen[r]]
        if rows[r] < plain:
            out[r] = image
            continue
        rng.fill(z, columns, rows[r], k0, k1, rng.NORMAL, np.float32(1))
        Z = z[5:, 0].copy()
        _multiply(B, Z[:size].reshape(n_down, n_across), half)
        _multiply(half, C.T, down)
        _multiply(B, Z[size:].reshape(n_down, n_across), half)
        _multiply(half, C.T, across)
        angle, slant = affine[0] * z[0, 0], affine[2] * z[2, 0]
        growth = math.exp(affine[1] * z[1, 0])
        cos, sin = growth * math.cos(angle), growth * math.sin(angle)
        for i in range(height):
            for j in range(width):
                u = i - middle
                v = j - centre + slant * u
                y = middle + cos * u - sin * v + affine[3] * z[3, 0] + elastic * down[i, j]
                x = centre + sin * u + cos * v + affine[4] * z[4, 0] + elastic * across[i, j]
                y = min(max(y, 0.0), height - 1.0)
                x = min(max(x, 0.0), width - 1.0)
                a, b = int(y), int(x)
                s, t = np.float32(y - a), np.float32(x - b)
                c, d = min(a + 1, height - 1), min(b + 1, width - 1)
                for k in range(channels):
                    upper = image[a, b, k] + t * (image[a, d, k] - image[a, b, k])
                    lower = image[c, b, k] + t * (image[c, d, k] - image[c, b, k])
                    out[r, i, j, k] = upper + s * (lower - upper)


def bumps(n: int, deviation: float) -> AnyArray:
    """Return Gaussian bumps on n pixels, one per column, spaced by `deviation` pixels.

    Their sums with independent normal weights are white noise smoothed by a Gaussian of this
    standard deviation; the squares of a row sum to 1, so that the variance is 1.
    """
    n_nodes = math.ceil((n - 1) / deviation) + 7  # three beyond each edge
    nodes = 0.5 * (n - 1) + deviation * (np.arange(n_nodes) - 0.5 * (n_nodes - 1))
    B = np.exp(-0.5 * ((np.arange(n)[:, None] - nodes) / deviation) ** 2)
    B /= np.sqrt((B**2).sum(axis=1, keepdims=True))
    return np.asarray(B, np.float32)


def deform(
    images: AnyArray,
    rows: IntArray,
    seed: int,
    *,
    smoothness: float,
    elastic: float,
    affine: Float64Array,
) -> AnyArray:
    """Return deformed images, float32 (len(rows), h, w, channels); row r is image ``r mod n``.

    Rows below n are not deformed. The standard deviations are, in pixels, `smoothness` for the
    Gaussian that smooths the fields and `elastic` for the displacement in each direction, and
    `affine` (5,) for the angle (radians), the logarithm of the size, the slant, and the
    vertical and horizontal shift (pixels).
    """
    B, C = (bumps(side, smoothness) for side in images.shape[1:3])
    # random words that differ from those of frequencies with the same seed
    own = rng.words(seed, 0, 1, TAG_IMAGE)[:, 0]
    k0, k1 = int(own[0]), int(own[1])
    chosen = rows % len(images)
    out = np.empty((len(rows), *images.shape[1:]), np.float32)

    def task(a: int, b: int) -> None:
        _deform(
            images, chosen[a:b], rows[a:b], len(images), k0, k1, B, C, affine, elastic, out[a:b]
        )

    over_tiles(len(rows), _ROWS, task)
    return out


class DeformedImages(BatchSource):
    r"""Any number of rows made from given images by random deformations when they are read.

    Row r comes from image ``r mod n``. The first n rows are the images themselves. In all other
    rows the pixel at position ``p``, relative to the centre of the image, has the value at

    .. math:: e^{s} R_\theta S_k \, p + t + u(p),

    found by bilinear interpolation; positions outside the image have the value at the nearest
    edge. R is a rotation by the angle theta, S a shear with slope k (horizontal displacement
    per vertical distance), e^s a scale factor, t a shift, and u an elastic field, each
    component of which is white noise smoothed by a Gaussian [1]_. All are normal with mean 0
    and the standard deviations below. A row is a pure function of (seed, r), independent of
    chunks, threads and the order of reading.

    Parameters
    ----------
    images : array of shape (n, height, width) or (n, height, width, channels)
        The images. Rows of 8-bit images are rounded to 8 bits; all others are float32.
    labels : array of shape (n,), optional
        Classes or targets; a deformed image keeps the label of its original.
    n_rows : int >= 1
        Number of rows. 8,100,000 rows from the 60,000 digits of MNIST resemble MNIST8M [2]_.
    seed : int in [0, 2^64), default=0
        Seed of the deformations.
    elastic : float >= 0, default=1.0
        Standard deviation of each component of u, in pixels. The defaults suit strokes in
        images of about 30 pixels: digits are deformed about as much as handwriting varies.
    smoothness : float >= 1, default=4.0
        Standard deviation of the Gaussian that smooths u, in pixels. With the default, strokes
        bend as a whole.
    angle : float >= 0, default=7.5
        Standard deviation of theta, in degrees.
    size : float >= 0, default=0.07
        Standard deviation of s.
    slant : float >= 0, default=0.1
        Standard deviation of k.
    shift : float >= 0, default=0.7
        Standard deviation of each component of t, in pixels.

    Notes
    -----
    A row is flattened in C order, as by ``images.reshape(n, -1)``. The labels need not be
    shuffled: random batches of a source mix rows from 16 places.

    References
    ----------
    .. [1] Simard, Steinkraus and Platt (2003), "Best Practices for Convolutional Neural
       Networks Applied to Visual Document Analysis".
    .. [2] Loosli, Canu and Bottou (2007), "Training Invariant Support Vector Machines using
       Selective Sampling".
    """

    def __init__(
        self,
        images: Any,
        labels: Any = None,
        *,
        n_rows: int,
        seed: int = 0,
        elastic: float = 1.0,
        smoothness: float = 4.0,
        angle: float = 7.5,
        size: float = 0.07,
        slant: float = 0.1,
        shift: float = 0.7,
    ) -> None:
        images = np.asarray(images)
        if images.ndim not in (3, 4) or images.dtype.kind not in "biuf" or images.size == 0:
            raise ValueError(
                "images must be numbers of shape (n, height, width) or (n, height, width, "
                f"channels), got shape {images.shape} and dtype {images.dtype}; reshape flat "
                "rows, such as those of MNIST by X.reshape(-1, 28, 28)."
            )
        if not all_finite(images):
            raise DataError("images must be finite; drop those with NaN or infinite pixels.")
        self.n_rows = check_int(n_rows, "n_rows", low=1)
        self.n_features = int(np.prod(images.shape[1:]))
        self.seed = check_int(seed, "seed")
        self._elastic = check_real(elastic, "elastic", low=0)
        self._smoothness = check_real(smoothness, "smoothness", low=1)
        named = {"angle": angle, "size": size, "slant": slant, "shift": shift}
        checked = [check_real(value, name, low=0) for name, value in named.items()]
        self._affine = np.array([np.deg2rad(checked[0]), *checked[1:], checked[3]])
        self._dtype = images.dtype if images.dtype == np.uint8 else np.dtype(np.float32)
        flat = images.reshape(*images.shape[:3], -1)
        self._images = np.ascontiguousarray(flat, np.float32)
        self._labels = None if labels is None else np.asarray(labels)
        if self._labels is not None and self._labels.shape != images.shape[:1]:
            raise ValueError(
                f"labels has shape {self._labels.shape}, but there are {len(images)} images; "
                "give one label per image."
            )
        self.has_target = self._labels is not None

    def read(self, start: int, stop: int) -> Batch:
        """Return rows `start` (included) to `stop` (excluded)."""
        start, stop = check_range(start, stop, self.n_rows)
        return self.take(np.arange(start, stop, dtype=np.int64))

    def take(self, rows: IntArray) -> Batch:
        """Return the given rows in the given order."""
        rows = check_rows(rows, self.n_rows)
        X = deform(
            self._images,
            rows,
            self.seed,
            smoothness=self._smoothness,
            elastic=self._elastic,
            affine=self._affine,
        ).reshape(len(rows), self.n_features)
        if self._dtype == np.uint8:
            X = np.rint(X, out=X).astype(np.uint8)
        return Batch(X, self._target(rows), None, rows)

    def _target(self, rows: IntArray) -> AnyArray | None:
        return None if self._labels is None else self._labels[rows % len(self._labels)]

    def target_chunks(self) -> Iterator[AnyArray]:
        """Yield the targets in order, without computing images."""
        self._require_target()
        for start in range(0, self.n_rows, 2**20):
            y = self._target(np.arange(start, min(start + 2**20, self.n_rows)))
            assert y is not None
            yield y

    def digest(self) -> bytes:
        """Return a digest of the seed, the deviations and the first rows."""
        law = self.seed, self._elastic, self._smoothness, self._affine.tolist()
        return hashlib.blake2b(repr(law).encode() + super().digest(), digest_size=16).digest()
