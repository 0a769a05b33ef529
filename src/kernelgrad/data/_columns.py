"""The choice of columns, shared by the formats that name them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelgrad._validation import DataError


def missing_column(name: str, known: Sequence[str], what: str, path: Path) -> DataError:
    """Return the error for a name that is not in the file, with the nearest names."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if close:
        hint = f"did you mean {' or '.join(map(repr, close))}?"
    else:
        listed = ", ".join(map(repr, known[:10])) + (", ..." if len(known) > 10 else "")
        hint = f"choose one of: {listed}."
    return DataError(f"{path} has no {what} {name!r}; {hint}")


def choose_columns(
    names: Sequence[str],
    path: Path,
    *,
    target: str | None,
    weight: str | None,
    drop: Sequence[str],
    feature_names: Sequence[str] | None,
) -> list[str]:
    """Return the feature columns, in order, after checking every name.

    Without `feature_names` these are all columns but the target, the weight and the
    dropped ones; with it, exactly those.
    """
    if isinstance(drop, str):
        raise TypeError(f"drop must be a sequence of column names, got the string {drop!r}.")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{path} has two columns named {name!r}; rename one of them.")
        seen.add(name)
    given = [("target column", target), ("weight column", weight)]
    for what, name_ in [*given, *(("column to drop", d) for d in drop)]:
        if name_ is not None and name_ not in seen:
            raise missing_column(name_, names, what, path)
    if target is not None and target == weight:
        raise ValueError(f"Column {target!r} cannot be both target and weight; change one.")
    other = {target, weight, *drop}
    if feature_names is None:
        features = [name for name in names if name not in other]
        if not features:
            raise DataError(
                f"{path} has no feature column left; its columns are {', '.join(names)}: "
                "drop fewer of them."
            )
        return features
    features = list(feature_names)
    absent = [name for name in features if name not in seen]
    if absent:
        listed = ", ".join(map(repr, absent[:10])) + (", ..." if len(absent) > 10 else "")
        raise DataError(
            f"{path} lacks {len(absent)} feature column(s) of the model: {listed}; add or "
            "rename these columns."
        )
    for name in features:
        if name in other:
            raise ValueError(
                f"Column {name!r} is a feature of the model, so it cannot be target, weight "
                "or dropped; leave it out of those."
            )
    return features


def text_feature(path: Path, name: str, value: object) -> DataError:
    """Return the error for a feature that is not a number."""
    return DataError(
        f"{path}: feature column {name!r} is not numeric, for example {value!r}; encode it "
        f"as numbers or drop it (drop={[name]!r}, --drop {name})."
    )


def missing_value(path: Path, name: str, row: int) -> DataError:
    """Return the error for an empty cell."""
    return DataError(
        f"{path}: column {name!r} has a missing value in row {row} (data rows count from 0); "
        "impute it, or drop the row or the column."
    )


def import_pyarrow() -> Any:
    """Import pyarrow, or say how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError(
            "Reading CSV and Parquet needs pyarrow: pip install kernelgrad[io]"
        ) from None
    return pyarrow
