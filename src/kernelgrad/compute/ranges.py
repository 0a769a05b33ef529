"""Values that float32 can work with."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from kernelgrad._typing import Matrix
from kernelgrad.exceptions import DataError

LARGEST = 1e18  # squares, and sums of some, are below the largest float32, 3e38
_SQUARED = 1e150  # values whose squares float64 holds
SMALLEST = 1e-30  # below, values lose digits, and their squares vanish


def extreme(X: Matrix) -> tuple[float, int]:
    """Return the largest ``|x|`` and where among the entries it is; (0, 0) without entries."""
    values = X.data if sp.issparse(X) else X
    if not values.size:
        return 0.0, 0
    places = (int(values.argmax()), int(values.argmin()))
    sizes = [abs(float(values.flat[i])) for i in places]
    best = int(sizes[1] > sizes[0])
    return sizes[best], places[best]


def check_range(X: Matrix, *, largest: float = LARGEST, first: int = 0) -> float:
    """Return the largest ``|x|``, or raise DataError naming its row, from `first` on.

    Rows that reach it overflow in float32, silently: their kernel values, and after centring
    those of all others, say nothing.
    """
    most, place = extreme(X)
    if most <= largest:
        return most
    if sp.issparse(X):
        column = int(X.indices[place])
        row = int(np.searchsorted(X.indptr, place, side="right")) - 1
    else:
        row, column = divmod(place, X.shape[1])
    raise DataError(
        f"Row {first + row}, column {column} (both count from 0) holds {most:.3g} in size, "
        f"more than the {largest:g} that can be squared in float32; correct or clip it, or "
        "scale the column."
    )


def check_sizes(X: Matrix, *, scaled: bool) -> None:
    """Raise DataError unless a fit can work with rows, or with their columns scaled first."""
    most = check_range(X, largest=_SQUARED if scaled else LARGEST)
    if 0.0 < most < SMALLEST:
        raise DataError(
            f"The largest value in the rows is {most:.3g}; below {SMALLEST:g} float32 does "
            "not tell values apart: multiply the columns by a constant."
        )
