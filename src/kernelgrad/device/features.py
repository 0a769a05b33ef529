r"""Random features ``h(X W)`` on a second device, equal to those of `features._fused`.

Weights are drawn on the CPU as a function of the seed and sent to the device: d numbers per
feature, compared with n for its values. Features of two devices differ by rounding, by at most
the bound in docs/devices.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kernelgrad.device import backend
from kernelgrad.device.backend import Tensor
from kernelgrad.features import fused as projections
from kernelgrad.features.base import FeatureMap
from kernelgrad.features.projections import ProjectionMap
from kernelgrad.types import Float32Array, Float64Array, Matrix
from kernelgrad.validation import CapabilityError

_GROUP_BYTES = 64 * 2**20  # weights drawn and sent at once


def no_features(name: str, device: str) -> CapabilityError:
    return CapabilityError(
        f"The random features of the {name} kernel have no form for device={device!r}; random "
        "projections have: rbf, laplacian, cauchy, matern, products of these, arc_cosine, "
        "semigroup and skewed kernels. Take one of them, or device='cpu'."
    )


class _Weights(NamedTuple):
    W: Tensor  # (d, F)
    phase: Tensor | None


class DeviceFeatures:
    """Random projections on a device, with the methods of a `FeatureMap`.

    Rows must have been processed by ``prepare`` and be float32, dense or CSR.
    """

    def __init__(self, device: backend.TorchDevice, features: FeatureMap, name: str) -> None:
        # a map with its own transform does not draw weights
        own = type(features).transform is not ProjectionMap.transform
        if own or not isinstance(features, ProjectionMap):
            raise no_features(name, device.name)
        self.device, self.map = device, features
        self._rows = backend.Resident()
        self._last: tuple[int, _Weights] | None = None  # reused for several sets of rows

    def rows(self, X: Matrix) -> backend.DeviceRows:
        return self._rows.of(X, lambda: backend.DeviceRows(self.device, [X]))

    def _weights(self, first: int, n: int) -> _Weights:
        every = np.arange(self.map.n_features_in)
        W = self.map.frequencies(first, 1, n, every)[0]
        phase = self.map.projection.phases(self.map.seed, first, n)
        put = self.device.put
        return _Weights(put(W), put(phase) if len(phase) else None)

    def _block(self, block: int) -> _Weights:
        if self._last is None or self._last[0] != block:
            F = self.map.block_size
            self._last = block, self._weights(block * F, F)
        return self._last[1]

    def _planes(self, X: Tensor, weights: _Weights) -> list[Tensor]:
        """Return features without their scale, one tensor (t, F) for each plane."""
        kind, T = self.map.kind, X @ weights.W
        if kind in (projections.PAIR, projections.PHASE):
            if weights.phase is not None:
                T += weights.phase
            T = T.sub_(T.round()).mul_(2 * math.pi)  # whole turns change nothing
            if kind == projections.PAIR:
                return [T.cos(), T.sin_()]
            return [T.cos_().mul_(math.sqrt(2))]
        if kind == projections.STEP:
            # NaN stays NaN, as in all other kinds
            return [self.device.torch.where(T.isnan(), T, (T > 0).to(T.dtype))]
        if kind == projections.RAMP:
            return [T.clamp_(min=0.0)]
        if kind == projections.RAMP2:
            return [T.clamp_(min=0.0).square_()]
        return [T.neg_().exp_()] if kind == projections.DECAY else [T]

    def _tile(self, X: Tensor, weights: _Weights) -> Tensor:
        """Return features of a block, (t, width)."""
        planes = self._planes(X, weights)
        tile = planes[0] if len(planes) == 1 else self.device.torch.cat(planes, 1)
        return tile.mul_(self.map._scale)

    def _tiles(self, X: Matrix, block: int) -> Iterator[tuple[slice, Tensor]]:
        weights = self._block(block)
        for rows, (x,) in self.rows(X).tiles(self.device.height(self.map.width)):
            yield rows, self._tile(x, weights)

    def transform(self, X: Matrix, block: int) -> Float32Array:
        device, out = self.device, np.empty((X.shape[0], self.map.width), np.float32)
        with device.working():
            for rows, tile in self._tiles(X, block):
                out[rows] = device.get(tile)
        return out

    def gradient(self, X: Matrix, R: Float32Array, block: int) -> Float32Array:
        device = self.device
        with device.working():
            slopes = device.put(R.T)
            total = device.zeros(R.shape[1], self.map.width)
            for rows, tile in self._tiles(X, block):
                device.add_product(slopes[:, rows], tile, total)
            return device.get(total).T.astype(np.float32)

    def add_block(self, X: Matrix, delta: Float32Array, block: int, out: Float32Array) -> None:
        """Add ``phi_block(X) delta`` to `out` (n, C), for delta (width, C)."""
        device = self.device
        with device.working():
            weights, total = device.put(delta), device.zeros(*out.shape)
            for rows, tile in self._tiles(X, block):
                total[rows] = (tile @ weights).double()
            out += device.get(total)

    def predict(self, X: Matrix, coef: Float32Array, n_blocks: int, out: Float32Array) -> None:
        """Add the sum over blocks of features times coefficients, summed in float64."""
        device, unit = self.device, projections.TILE
        used = n_blocks * self.map.block_size
        group = max(1, _GROUP_BYTES // (4 * unit * self.map.n_features_in)) * unit
        rows = self.rows(X)
        with device.working():
            total = device.zeros(*out.shape)
            for a in range(0, used, group):
                n = min(group, used - a)
                weights = self._weights(a, n)
                A = device.put(coef[:, a : a + n])
                for tile, (x,) in rows.tiles(device.height(n * self.map.planes)):
                    for plane, part in zip(self._planes(x, weights), A, strict=True):
                        device.add_product(part.T, plane.T, total[tile].T, unit)
            out += device.get(total * self.map._scale)

    def moments(
        self, X: Matrix, block: int, root: Float32Array, every: int,
        f: Float32Array, r: Float32Array,
    ) -> tuple[Float64Array, Float64Array, Float64Array]:  # fmt: skip
        device, width = self.device, self.map.width
        C, height = f.shape[1], device.height(width) // every * every
        with device.working():
            roots = device.put(root)
            values = device.put(np.concatenate([root * f, root * r], axis=1).T)
            H, sums = device.zeros(width, width), device.zeros(2 * C, width)
            weights = self._block(block)
            for rows, (x,) in self.rows(X).tiles(max(every, height)):
                P = self._tile(x, weights).mul_(roots[rows])
                few, now = P[::every], values[:, rows]
                device.add_gram(few, H)
                device.add_product(now[:C, ::every], few, sums[:C])
                device.add_product(now[C:], P, sums[C:])
            products: Any = device.get(sums)
            return device.get(H), products[:C].T, products[C:].T
