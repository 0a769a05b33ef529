"""Checks that values have magnitudes suitable for float32."""

import numpy as np
import scipy.sparse as sp

from kernelgrad.exceptions import DataError
from kernelgrad.types import Matrix

LARGEST = 1e18  # squares, and sums of a few, are below the largest float32 number, 3e38
_SQUARED = 1e150  # squares of larger values overflow in float64
SMALLEST = 1e-30  # smaller values lose digits, and their squares vanish


def extreme(X: Matrix) -> tuple[float, int]:
    """Return the largest ``|x|`` and its position among the entries; (0, 0) if none."""
    values = X.data if sp.issparse(X) else X
    if not values.size:
        return 0.0, 0
    high, low = int(values.argmax()), int(values.argmin())
    above, below = abs(float(values.flat[high])), abs(float(values.flat[low]))
    return (below, low) if below > above else (above, high)


def check_range(X: Matrix, *, largest: float = LARGEST, first: int = 0) -> float:
    """Return the largest ``|x|``; raise DataError naming its row if it is too large.

    Row numbers start at `first`. Larger values overflow silently in float32 and make the kernel
    values of their row, and after centring those of all rows, meaningless.
    """
    most, position = extreme(X)
    if most <= largest:
        return most
    if sp.issparse(X):
        column = int(X.indices[position])
        row = int(np.searchsorted(X.indptr, position, side="right")) - 1
    else:
        row, column = divmod(position, X.shape[1])
    raise DataError(
        f"Row {first + row}, column {column} (both count from 0) holds {most:.3g} in size, "
        f"more than the {largest:g} that can be squared in float32; correct or clip it, or "
        "scale the column."
    )


def check_sizes(X: Matrix, *, scaled: bool) -> None:
    """Raise DataError unless rows, or with `scaled` their scaled columns, suit float32."""
    most = check_range(X, largest=_SQUARED if scaled else LARGEST)
    if 0.0 < most < SMALLEST:
        raise DataError(
            f"The largest value in the rows is {most:.3g}; below {SMALLEST:g} float32 does "
            "not tell values apart: multiply the columns by a constant."
        )
