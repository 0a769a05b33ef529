"""Exact kernel values on a second device, by the forms of `kernelgrad.kernels.profiles`.

Values agree with those of the CPU up to the rounding of the precision of the rows, within the
bounds in docs/devices.md. Rows are float64 for a matern kernel of nu 0.5, and wherever float32
would suffer cancellation (:meth:`Kernel.needs_wide`).
"""

import math
from typing import Any

import numpy as np

from kernelgrad.device import backend
from kernelgrad.device.backend import Tensor
from kernelgrad.device.features import no_features
from kernelgrad.kernels import ExactRows, Kernel, base, profiles
from kernelgrad.kernels.projection import ProjectionKernel
from kernelgrad.kernels.stationary import Matern, StationaryKernel
from kernelgrad.types import Float64Array, Matrix
from kernelgrad.validation import CapabilityError

_ROWS = 16384  # rows of a prediction tile of _SUPPORT columns
_SUPPORT = 1024
# Columns from which torch.cdist is faster than a loop over columns: on an H100 it takes six
# times as long with 20 columns, and less with 200
_CDIST = {"cpu": 1, "cuda": 128}


def check_tiles(kernel: Kernel, device: str) -> None:
    """Raise CapabilityError unless a device can compute exact values of `kernel`."""
    if isinstance(kernel, base.CompositeKernel):
        for part in kernel.kernels:
            check_tiles(part, device)
    elif not _has_tiles(kernel):
        raise CapabilityError(
            f"The exact {kernel.name} kernel {kernel!r} has no form for device={device!r}; use "
            "device='cpu', or a kernel of distances (rbf, laplacian, cauchy, matern with nu "
            "0.5, 1.5 or 2.5), of inner products (polynomial, dot_product, arc_cosine), of "
            "histograms or of semigroups, or a sum or product of these."
        )


def check_feature_kernel(kernel: Kernel, device: str) -> None:
    """Raise CapabilityError unless a device can compute random features of `kernel`.

    The bandwidth may still be a rule.
    """
    product = isinstance(kernel, base.ProductKernel)
    parts = kernel.kernels if isinstance(kernel, base.ProductKernel) else [kernel]
    kind = StationaryKernel if product else ProjectionKernel
    if not all(isinstance(part, kind) for part in parts):
        raise no_features(kernel.name, device)


def _has_tiles(kernel: Kernel) -> bool:
    if isinstance(kernel, Matern):
        return kernel.finish()["finish"] != profiles.HALF_SQUARE
    return (
        isinstance(kernel, base.TiledKernel) and type(kernel).values is base.TiledKernel.values
    )


class KernelTiles:
    """Computes tiles of a resolved kernel on a device; see :func:`check_tiles`."""

    def __init__(self, device: backend.TorchDevice, kernel: Kernel) -> None:
        check_tiles(kernel, device.name)
        self.device, self.kernel = device, kernel
        self._rows = backend.Resident()

    def rows(self, rows: ExactRows) -> backend.DeviceRows:
        return self._rows.of(
            rows, lambda: backend.DeviceRows(self.device, _arrays(self.kernel, rows))
        )

    def matrix(self, rows: ExactRows, centres: ExactRows) -> backend.DeviceBlockMatrix:
        """Return ``k(X, Z)`` for centres Z as an operator that multiplies."""
        support = self.rows(centres).all()
        return backend.DeviceBlockMatrix(
            self.rows(rows), centres.n_rows, lambda tensors: self.tile(tensors, support)
        )

    def tile(self, A: list[Tensor], B: list[Tensor], *, wide: bool = False) -> Tensor:
        """Return ``k(A_i, B_j)``, (n_A, n_B) float32 or, if `wide`, float64, on the device."""
        torch = self.device.torch
        dtype = torch.float64 if wide else torch.float32
        return _value(torch, self.kernel, iter(A), iter(B), dtype)

    def add_product(
        self, A: ExactRows, B: ExactRows, coef: Float64Array, out: Float64Array, *, wide: bool
    ) -> None:
        """Add ``k(A, B) coef`` to `out` (n_A, C), with products and sums in float64.

        Values are float64 too if `wide`.
        """
        device = self.device
        if wide:
            A, B = self.kernel.widened(A), self.kernel.widened(B)
        support = self.rows(B)
        with device.working():
            weights, total = device.put(coef), device.zeros(*out.shape)
            for rows, a in self.rows(A).tiles(_ROWS):
                for part, b in support.tiles(_SUPPORT):
                    total[rows] += self.tile(a, b, wide=wide).double() @ weights[part]
            out += device.get(total)


def _arrays(kernel: Kernel, rows: ExactRows) -> list[Matrix | None]:
    """Return the arrays of prepared rows, part by part, in the order of :func:`_value`."""
    if isinstance(kernel, base.CompositeKernel):
        pairs = zip(kernel.kernels, rows.parts, strict=True)
        return [a for part, r in pairs for a in _arrays(part, r)]
    beside = None
    if rows.square is not None:
        assert isinstance(kernel, base.TiledKernel)
        arc = kernel.finish()["finish"] < profiles.HALF_SQUARE
        numbers = np.sqrt(rows.square) if arc else 0.5 * rows.square
        beside = numbers.astype(rows.values.dtype)
    return [rows.values, beside]


def _value(torch: Any, kernel: Kernel, A: Any, B: Any, dtype: Any) -> Tensor:
    """Return the values of a kernel; the iterators A and B supply its arrays."""
    if isinstance(kernel, base.CompositeKernel):
        # parts are rounded as on the CPU
        parts = [_value(torch, part, A, B, dtype) for part in kernel.kernels]
        if isinstance(kernel, base.SumKernel):
            return sum(K * w for K, (_, w) in zip(parts, kernel.terms, strict=True))
        return math.prod(parts)
    assert isinstance(kernel, base.TiledKernel)
    a, left, b, right = next(A), next(A), next(B), next(B)
    t = _accumulated(torch, kernel.form_code, a, b)
    left = None if left is None else left[:, None]
    return profiles.values(torch, t, left, right, **kernel.finish()).to(dtype)


def _accumulated(torch: Any, form: int, a: Tensor, b: Tensor) -> Tensor:
    """Return the form accumulated over all columns, (n_a, n_b)."""
    wide = torch.promote_types(a.dtype, b.dtype)  # one side may be of another precision
    a, b = a.to(wide), b.to(wide)
    if form == profiles.DOT:
        return a @ b.T
    if form == profiles.ABSOLUTE and a.shape[1] >= _CDIST[a.device.type]:
        return torch.cdist(a, b, p=1.0)
    product = form in profiles.PRODUCTS
    T = torch.full((len(a), len(b)), float(product), dtype=a.dtype, device=a.device)
    for k in range(a.shape[1]):  # n_a x n_b x d numbers would not fit
        term = profiles.TERMS[form](torch, a[:, k, None], b[None, :, k])
        T = T.mul_(term) if product else T.add_(term)
    return T
