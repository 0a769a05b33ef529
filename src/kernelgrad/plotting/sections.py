"""Rows that vary in one or two columns, with the others fixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernelgrad.plotting.display import flat_column
from kernelgrad.types import Float64Array
from kernelgrad.validation import check_int, check_name


def last_step(estimator: Any) -> Any:
    """Return the last step of a pipeline, and any other estimator itself."""
    return estimator[-1] if hasattr(estimator, "steps") else estimator


def find_feature(X: Any, feature: int | str) -> tuple[int, str]:
    names = [str(name) for name in getattr(X, "columns", [])]
    if isinstance(feature, str):
        return names.index(check_name(feature, names, "column")), feature
    n = len(names) or np.shape(X)[1]
    if not 0 <= check_int(feature, "feature") < n:
        raise ValueError(f"feature={feature} is no column; they are 0 to {n - 1}.")
    return feature, names[feature] if names else f"x{feature}"


def _middle(values: Any) -> Any:
    """Return the median of numbers, and the most frequent one of other values."""
    array = np.asarray(values)
    if array.dtype.kind in "iuf":
        return float(np.nanmedian(array))
    return Counter(list(values)).most_common(1)[0][0]


def column_of(X: Any, feature: int) -> Float64Array:
    column = X[list(X.columns)[feature]] if hasattr(X, "columns") else np.asarray(X)[:, feature]
    return flat_column(column, "The column of an axis")


def rows_at(X: Any, at: Mapping[int, Float64Array]) -> Any:
    """Return rows with the columns `at`, all others at their middle."""
    n = len(next(iter(at.values())))
    if hasattr(X, "columns"):
        columns = enumerate(X.columns)
        return type(X)({c: at[j] if j in at else [_middle(X[c])] * n for j, c in columns})
    X = np.asarray(X)
    return np.stack([at.get(j, np.full(n, _middle(X[:, j]))) for j in range(X.shape[1])], 1)


def span(column: Float64Array, resolution: int) -> Float64Array:
    """Return values from the least to the greatest of a column, and a little beyond."""
    low, high = np.nanmin(column), np.nanmax(column)
    margin = 0.05 * (high - low) or 0.5
    return np.linspace(low - margin, high + margin, check_int(resolution, "resolution", low=2))


def others(X: Any, shown: int) -> str:
    """Return a note on the columns that are not shown."""
    return "; other columns at their medians" if np.shape(X)[1] > shown else ""
