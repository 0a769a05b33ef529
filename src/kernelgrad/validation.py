"""Checks of parameters that scikit-learn does not provide."""

import math
import numbers
import re
import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import numpy as np

from kernelgrad.exceptions import CapabilityError as CapabilityError
from kernelgrad.exceptions import DataError as DataError
from kernelgrad.exceptions import ModelFileError as ModelFileError
from kernelgrad.exceptions import UnseenValuesWarning as UnseenValuesWarning


def check_name(value: str, choices: Iterable[str], what: str, *, instead: str = "") -> str:
    """Return `value` if it is in `choices`; else name these, `instead` and the most similar."""
    names = sorted(choices)
    if value not in names:
        near = get_close_matches(str(value), names, n=1)
        listed = f"{', '.join(names)}{instead}".removeprefix(", ")
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"Unknown {what} {value!r}{hint}; choose one of: {listed}.")
    return value


def check_real(
    value: Any, name: str, *, low: float = -math.inf, high: float = math.inf,
    low_open: bool = False, high_open: bool = False,
) -> float:  # fmt: skip
    """Return `value` as a finite float inside the interval, or raise naming the value."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {value!r}.")
    x = float(value)
    below = x <= low if low_open else x < low
    above = x >= high if high_open else x > high
    if not math.isfinite(x) or below or above:
        left = "(" if low_open or low == -math.inf else "["
        right = ")" if high_open or high == math.inf else "]"
        raise ValueError(f"{name} must lie in {left}{low:g}, {high:g}{right}, got {value!r}.")
    return x


def check_bool(value: Any, name: str) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def check_int(value: Any, name: str, *, low: int = 0, high: int | None = None) -> int:
    """Return `value` as an int of at least `low`, at most `high`, or raise naming the value."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if int(value) < low:
        raise ValueError(f"{name} must be at least {low}, got {value!r}.")
    if high is not None and int(value) > high:
        raise ValueError(f"{name} must be at most {high}, got {value!r}.")
    return int(value)


def bytes_of(value: Any, name: str = "memory_limit", *, least: float = 1e6) -> float:
    """Return a number of bytes that is given as such, or as a text such as "2 GB"."""
    amount, n_bytes = value, value
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([\d.]+)\s*([kmgt]?)(i?)b\s*", value.lower())
        if not match or match[1].count(".") > 1:
            raise ValueError(
                f"{name}={value!r} is no number of bytes; give one such as 2e9, or a text such "
                "as '2 GB' or '800 MB'."
            )
        step = 1024 if match[3] else 1000
        amount = float(match[1])
        n_bytes = amount * step ** " kmgt".index(match[2] or " ")
    number = check_real(n_bytes, name, low=0)
    if number < least:
        raise ValueError(
            f"{name} counts bytes, and {value!r} is too few; give a unit, as in "
            f"'{max(1.0, amount):g} MB'."
        )
    return number


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called this package, whatever lies between."""
    frame, level = sys._getframe().f_back, 2
    while frame is not None and frame.f_globals.get("__name__", "").startswith(
        ("kernelgrad.", "sklearn.", "contextlib")
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def check_compressed(X: Any) -> None:
    """Raise DataError if a CSR or CSC matrix has invalid indices.

    SciPy does not check them when it creates the matrix, and later reads and writes beyond its
    arrays.
    """
    if getattr(X, "format", None) not in ("csr", "csc") or X.ndim != 2:
        return
    n, d = X.shape if X.format == "csr" else X.shape[::-1]
    line, cell = ("row", "column") if X.format == "csr" else ("column", "row")
    indptr, indices = X.indptr, X.indices
    ends = len(indptr) == n + 1 and indptr[0] == 0 and bool((indptr[1:] >= indptr[:-1]).all())
    if not ends or not indptr[-1] <= min(len(indices), len(X.data)):
        raise DataError(
            f"The {X.format.upper()} matrix of shape {X.shape} has an indptr that does not "
            f"rise from 0 to the number of its entries in {n + 1} steps; build it again."
        )
    used = indices[: indptr[-1]]
    if used.size and not 0 <= used.min() <= used.max() < d:
        at = int(np.flatnonzero((used < 0) | (used >= d))[0])
        number = int(np.searchsorted(indptr, at, side="right")) - 1
        raise DataError(
            f"The {X.format.upper()} matrix of shape {X.shape} has an entry of {line} {number} "
            f"(counted from 0) in {cell} {used[at]}, beyond its {d} {cell}s; correct its "
            "indices."
        )
