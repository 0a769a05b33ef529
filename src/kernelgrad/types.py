"""Array types shared by every layer."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Float32Array: TypeAlias = npt.NDArray[np.float32]
Float64Array: TypeAlias = npt.NDArray[np.float64]
FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.integer[Any]]
AnyArray: TypeAlias = npt.NDArray[Any]
# A dense ndarray or a scipy CSR matrix/array; scipy ships no types.
Matrix: TypeAlias = Any
# What becomes a file: plain values, and arrays.
Contents: TypeAlias = tuple[dict[str, Any], dict[str, AnyArray]]
