"""Images without end: each row an image moved by a random smooth field."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelgrad._typing import AnyArray, IntArray
from kernelgrad._validation import check_int, check_real
from kernelgrad.compute.images import deform
from kernelgrad.data.base import (
    Batch,
    BatchSource,
    all_finite,
    check_range,
    check_rows,
    numbers,
)
from kernelgrad.exceptions import DataError


class DeformedImages(BatchSource):
    r"""Any number of rows from some images, each made when it is read.

    Row r is image ``r mod n``. The first n rows are the images themselves. Of all others the
    pixel at ``p``, seen from the middle of the image, takes the value at

    .. math:: e^{s} R_\theta S_k \, p + t + u(p),

    by bilinear interpolation, outside the image that of the nearest edge: a turn by the angle
    theta, a slant k (across, in parts of the way down), the size e^s, a shift t, and an elastic
    field u, of which each component is white noise smoothed by a Gaussian [1]_. These are
    normal with mean 0 and the deviations below, and a pure function of (seed, r): chunks,
    threads and order of reading change no bit.

    Parameters
    ----------
    images : array of shape (n, height, width) or (n, height, width, channels)
        Numbers. Rows of 8-bit images are rounded and stay of 8 bits; all others are float32.
    labels : array of shape (n,), optional
        Classes or targets; a deformed image keeps that of its original.
    n_rows : int >= 1
        Rows of the source: 8,100,000 of MNIST's 60,000 digits are a set like MNIST8M [2]_.
    seed : int in [0, 2^64), default=0
        Another seed gives other deformations.
    elastic : float >= 0, default=1.0
        Deviation of u in pixels, in each direction. The defaults are for strokes in images of
        about 30 pixels: they move a digit by as much as handwriting differs.
    smoothness : float >= 1, default=4.0
        Deviation in pixels of the Gaussian that smooths u: strokes bend as a whole.
    angle : float >= 0, default=7.5
        Deviation of theta in degrees.
    size : float >= 0, default=0.07
        Deviation of s.
    slant : float >= 0, default=0.1
        Deviation of k.
    shift : float >= 0, default=0.7
        Deviation of each component of t in pixels.

    Notes
    -----
    A row is flat, in C order, as ``images.reshape(n, -1)`` has it. Estimators that take random
    batches of a source mix rows of 16 places of it, so that labels need not be mixed.

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
        return self.take(numbers(start, stop - start))

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
        """Yield the targets in order, without making any image."""
        self._require_target()
        for start in range(0, self.n_rows, 2**20):
            y = self._target(np.arange(start, min(start + 2**20, self.n_rows)))
            assert y is not None
            yield y

    def digest(self) -> bytes:
        """Return a digest that tells seeds and deviations apart, and the first rows."""
        law = self.seed, self._elastic, self._smoothness, self._affine.tolist()
        return hashlib.blake2b(repr(law).encode() + super().digest(), digest_size=16).digest()
