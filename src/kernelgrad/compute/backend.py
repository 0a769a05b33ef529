"""The devices that compute kernel values and features: this process, or the room ``device``."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

from kernelgrad.exceptions import CapabilityError
from kernelgrad.registry import room
from kernelgrad.types import Float32Array, Float64Array

CPU = "cpu"
_missing: set[str] = set()


class BlockValues(Protocol):
    """The values K (n, M) of a block of coordinates for all rows, on any device."""

    n_tiles_made: int

    def product(self, R: Float32Array) -> Float64Array:
        """Return ``R K`` for R (C, n), shape (C, M), summed in float64 over tiles in order."""

    def responses(self, V: Float32Array, out: Float32Array) -> None:
        """Write ``V K^T`` for V (C, M) to `out` (C, n)."""


def get_device(name: str) -> Any:
    """Return the device of a name, see :func:`kernelgrad.device.get_device`; None for "cpu"."""
    return None if isinstance(name, str) and name == CPU else room("device").get_device(name)


def device_or_cpu(name: str) -> str:
    """Return `name` if the device is available, else "cpu" with a warning, given once."""
    try:
        get_device(name)
    except CapabilityError as error:
        if name not in _missing:
            _missing.add(name)
            warnings.warn(f"Predictions are made on the CPU: {error}", stacklevel=2)
        return CPU
    return name
