"""What the formats with named columns share: their choice, and batches from Arrow tables."""

from __future__ import annotations

import difflib
import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelgrad._typing import AnyArray
from kernelgrad.data._paged import PagedSource, numbers
from kernelgrad.data.base import Batch, stack_rows
from kernelgrad.exceptions import DataError


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
    feature_names: Sequence[str] | None,
    drop: Sequence[str] = (),
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


def import_pyarrow() -> Any:
    """Import pyarrow, or say how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError(
            "Reading CSV and Parquet needs pyarrow: pip install kernelgrad[io]"
        ) from None
    return pyarrow


class ColumnSource(PagedSource):
    """Units that are read as Arrow tables with the chosen columns.

    Parameters
    ----------
    path : path
        The file.
    target, weight : str, optional
        Columns with the targets and the sample weights.
    drop : sequence of str, default=()
        Columns to leave out.
    feature_names : sequence of str, optional
        The feature columns, in order; by default all that are left.
    as_frame : bool, default=False
        Batches hold Arrow tables, with text, dates and missing values, instead of numbers.
    """

    feature_names: list[str]
    _dtype: np.dtype[Any] = np.dtype(np.float64)
    _float_target = False  # whether some other unit has a target that is not integral

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        target: str | None = None,
        weight: str | None = None,
        drop: Sequence[str] = (),
        feature_names: Sequence[str] | None = None,
        as_frame: bool = False,
    ) -> None:
        import_pyarrow()
        self.as_frame = as_frame
        self._path = Path(path)
        self._target, self._weight = target, weight
        self.has_target, self.has_weight = target is not None, weight is not None
        self._open(drop, feature_names)

    @abstractmethod
    def _open(self, drop: Sequence[str], feature_names: Sequence[str] | None) -> None:
        """Find the units and call `_set_columns` and `_set_rows`."""

    @abstractmethod
    def _tables(self, unit: int, columns: Sequence[str]) -> Iterable[Any]:
        """Return some columns of a unit, in one table or several."""

    def _file(self, unit: int) -> Path:
        """Return the file that a unit is in."""
        return self._path

    def _set_columns(
        self,
        names: Sequence[str],
        file: Path,
        drop: Sequence[str],
        feature_names: Sequence[str] | None,
    ) -> None:
        own = {"target": self._target, "weight": self._weight}
        self.feature_names = choose_columns(
            names, file, **own, drop=drop, feature_names=feature_names
        )
        self.n_features = len(self.feature_names)
        self._columns = [*self.feature_names, *filter(None, own.values())]

    def target_chunks(self) -> Iterator[AnyArray]:
        """Yield the targets in order; no other column is converted."""
        self._require_target()
        for unit in range(len(self._starts) - 1):
            at = int(self._starts[unit])
            for table in self._tables(unit, [self._target or ""]):
                if table.num_rows:
                    yield self._checked_target(self._labels(table, self._file(unit), at), at)
                    at += table.num_rows

    def _batch(self, tables: Iterable[Any], file: Path, first_row: int, n: int) -> Batch:
        """Return the `n` rows of some tables."""
        X = None if self.as_frame else np.empty((n, self.n_features), self._dtype)
        frames: list[Any] = []
        ys: list[AnyArray] = []
        w = np.empty(n) if self._weight is not None else None
        at = 0
        for table in tables:
            rows = slice(at, at + table.num_rows)
            if X is None:
                frames.append(table.select(self.feature_names))
            else:
                for j, name in enumerate(self.feature_names):
                    X[rows, j] = _values(table, name, file, first_row + at)
            if self._target is not None:
                ys.append(self._labels(table, file, first_row + at))
            if w is not None:
                w[rows] = _values(table, self._weight, file, first_row + at)
            at += table.num_rows
        features = stack_rows(frames) if X is None else X
        return Batch(features, np.concatenate(ys) if ys else None, w, numbers(first_row, n))

    def _labels(self, table: Any, file: Path, first_row: int) -> AnyArray:
        y = _values(table, self._target, file, first_row)
        if y.dtype.kind not in "biuf":
            return y.astype(object)
        return y.astype(np.float64) if self._float_target else y


def _values(table: Any, name: str | None, file: Path, first_row: int) -> AnyArray:
    """Return a column, all of it present."""
    import pyarrow.types as pt

    column = table.column(table.schema.get_field_index(name))
    if column.null_count:
        row = first_row + int(np.argmax(np.asarray(column.is_null())))
        raise DataError(
            f"{file}: column {name!r} has a missing value in row {row} (data rows count from "
            "0); impute it, or drop the row or the column."
        )
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pt.is_decimal(column.type):
        column = column.cast("float64")
    return np.asarray(column)
