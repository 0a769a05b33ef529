"""Endless data of images, deformed by random smooth fields that depend on (seed, row)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernelgrad.compute import rng
from kernelgrad.compute.compiling import njit
from kernelgrad.compute.threads import over_tiles
from kernelgrad.data.base import Batch, BatchSource
from kernelgrad.types import AnyArray, IntArray

TAG_IMAGE = 16
_ROWS = 64  # rows of a task
# pixels of the Gaussian that smooths the fields, and standard deviations of the displacement
# in pixels; of angle (radians), logarithm of the size, slant, and both shifts in pixels
SMOOTHNESS, ELASTIC = 4.0, 1.0
AFFINE = np.array([np.deg2rad(7.5), 0.07, 0.1, 0.7, 0.7])


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

    Squares of a row sum to 1: sums with normal weights are smooth noise of variance 1.
    """
    n_nodes = math.ceil((n - 1) / deviation) + 7  # three beyond each edge
    nodes = 0.5 * (n - 1) + deviation * (np.arange(n_nodes) - 0.5 * (n_nodes - 1))
    B = np.exp(-0.5 * ((np.arange(n)[:, None] - nodes) / deviation) ** 2)
    B /= np.sqrt((B**2).sum(axis=1, keepdims=True))
    return np.asarray(B, np.float32)


class DeformedImages(BatchSource):
    r"""Any number of rows made from images by random deformations when they are read.

    Row r comes from image ``r mod n``; the first n rows are the images themselves. In all other
    rows the pixel at position ``p``, relative to the centre of the image, has the value at

    .. math:: e^{s} R_\theta S_k \, p + t + u(p),

    found by bilinear interpolation; positions outside the image have the value at the nearest
    edge. R is a rotation, S a shear with slope k, e^s a scale factor, t a shift, and u an
    elastic field of smooth noise (Simard, Steinkraus and Platt 2003). All are normal with mean
    0: 8,100,000 rows from the 60,000 digits of MNIST resemble MNIST8M (Loosli, Canu and Bottou
    2007). A row is a function of (seed, r) alone.
    """

    has_target = True

    def __init__(self, images: AnyArray, labels: AnyArray, *, n_rows: int, seed: int) -> None:
        self.n_rows, self.n_features = n_rows, int(np.prod(images.shape[1:]))
        self._labels = np.asarray(labels)
        self._images = np.ascontiguousarray(images[..., None], np.float32)
        # random words that differ from those of frequencies with the same seed
        self._own = [int(word) for word in rng.words(seed, 0, 1, TAG_IMAGE)[:, 0]]

    def read(self, start: int, stop: int) -> Batch:
        """Return rows `start` (included) to `stop` (excluded)."""
        return self.take(np.arange(start, stop, dtype=np.int64))

    def take(self, rows: IntArray) -> Batch:
        """Return the given rows in the given order."""
        images, chosen = self._images, rows % len(self._images)
        B, C = (bumps(side, SMOOTHNESS) for side in images.shape[1:3])
        X = np.empty((len(rows), *images.shape[1:]), np.float32)

        def task(a: int, b: int) -> None:
            parts = chosen[a:b], rows[a:b], len(images), *self._own[:2]
            _deform(images, *parts, B, C, AFFINE, ELASTIC, X[a:b])

        over_tiles(len(rows), _ROWS, task)
        return Batch(X.reshape(len(rows), -1), self._labels[chosen], None, rows)
