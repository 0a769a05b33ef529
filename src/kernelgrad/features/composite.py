"""Random features of sums and products of kernels, from the features of the parts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute.linalg import dense
from kernelgrad.features.base import FeatureMap
from kernelgrad.types import Float32Array, Matrix


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
