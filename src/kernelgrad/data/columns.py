"""Shared by the formats with named columns: their choice, and batches from Arrow tables."""

from __future__ import annotations

import difflib
import os
import re
import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelgrad.data.base import Batch, numbers, stack_rows
from kernelgrad.data.paged import FileSource, import_pyarrow
from kernelgrad.exceptions import DataError
from kernelgrad.types import AnyArray

INDEX = "Unnamed: 0"
"""What the first column of a CSV file is called where it has no name, as in pandas."""

_ROW_LABELS = re.compile(rf"{INDEX}|__index_level_\d+__")  # as pandas writes them


def missing_column(name: str, known: Sequence[str], what: str, path: Path) -> DataError:
    """Return the error for a name that is not in the file, with the most similar names."""
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

    These are `feature_names` if given, otherwise all columns except the target, the weight,
    the dropped ones and the row labels of pandas.
    """
    if isinstance(drop, str):
        raise TypeError(f"drop must be a sequence of column names, got the string {drop!r}.")
    seen = Counter(names)
    twice = [name for name, n in seen.items() if n > 1]
    if twice:
        raise DataError(f"{path} has two columns named {twice[0]!r}; rename one of them.")
    given = [("target column", target), ("weight column", weight)]
    for what, name_ in [*given, *(("column to drop", d) for d in drop)]:
        if name_ is not None and name_ not in seen:
            raise missing_column(name_, names, what, path)
    if target is not None and target == weight:
        raise ValueError(f"Column {target!r} cannot be both target and weight; change one.")
    other = {target, weight, *drop}
    if feature_names is None:
        labels = [name for name in names if name not in other and _ROW_LABELS.fullmatch(name)]
        features = [name for name in names if name not in other.union(labels)]
        if labels and features:
            warnings.warn(
                f"{path}: column {labels[0]!r} is left out, as it seems to be the index of a "
                "pandas frame; write the file with index=False, or rename the column if it is "
                "a feature.",
                UserWarning,
                stacklevel=2,
            )
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
            f"{path} lacks {len(absent)} feature column(s): {listed}; add or rename these "
            "columns."
        )
    for name in features:
        if name in other:
            raise ValueError(
                f"Column {name!r} is a feature, so it cannot be target, weight "
                "or dropped; leave it out of those."
            )
    return features


class ColumnSource(FileSource):
    """A file whose rows are read as Arrow tables with the chosen columns.

    Parameters
    ----------
    path : path
        The file.
    target, weight : str, optional
        Columns with the targets and the sample weights.
    drop : sequence of str, default=()
        Columns to leave out.
    feature_names : sequence of str, optional
        The feature columns, in order; by default all remaining columns.
    as_frame : bool, default=False
        Whether batches are Arrow tables, with text, dates and missing values, instead of
        numbers.
    keys : mapping of str to (Arrow type, value), optional
        Additional columns with a constant value, which come from folder names. They replace
        columns of the same name in the file.
    """

    feature_names: list[str]
    _dtype: np.dtype[Any] = np.dtype(np.float32)  # at least this one, for features
    _float_target = False  # whether another file has a target that is not integral
    _arrow_types: dict[str, Any]  # of the target and, if batches are tables, of the features

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        target: str | None = None,
        weight: str | None = None,
        drop: Sequence[str] = (),
        feature_names: Sequence[str] | None = None,
        as_frame: bool = False,
        keys: Mapping[str, tuple[Any, Any]] | None = None,
    ) -> None:
        pa = import_pyarrow()
        super().__init__(Path(path))
        self.as_frame = as_frame
        self._target, self._weight = target, weight
        self.has_target, self.has_weight = target is not None, weight is not None
        self._keys = {name: pa.scalar(v, kind) for name, (kind, v) in (keys or {}).items()}
        self._arrow_types = {}
        with self._stamp.unchanged():
            self._open(drop, feature_names)

    @abstractmethod
    def _open(self, drop: Sequence[str], feature_names: Sequence[str] | None) -> None:
        """Call `_set_columns`, `_set_groups` and `_set_types`."""

    def _set_columns(
        self, names: Sequence[str], drop: Sequence[str], feature_names: Sequence[str] | None
    ) -> None:
        own = {"target": self._target, "weight": self._weight}
        self._names = [*(name for name in names if name not in self._keys), *self._keys]
        self.feature_names = choose_columns(
            self._names, self._path, **own, drop=drop, feature_names=feature_names
        )
        self.n_features = len(self.feature_names)
        self._columns = [*self.feature_names, *filter(None, own.values())]

    @property
    def columns(self) -> set[str]:
        """The columns of the file and those from folder names."""
        return set(self._names)

    def _stored(self, columns: Sequence[str]) -> list[str]:
        """Return the given columns that are stored in the file."""
        return [name for name in columns if name not in self._keys]

    def _completed(self, table: Any, columns: Sequence[str]) -> Any:
        """Return a table of stored columns with the constant columns added."""
        repeat = import_pyarrow().repeat
        for name in columns:
            if name in self._keys:
                table = table.append_column(name, repeat(self._keys[name], table.num_rows))
        return table

    def _set_types(self) -> None:
        """Set the types of the columns that are read after checking them."""
        types = {name: self._schema.field(name).type for name in self._stored(self._columns)}
        types |= {name: value.type for name, value in self._keys.items()}
        for name in [*self.feature_names, *filter(None, (self._weight,))]:
            if self.as_frame and name != self._weight:
                self._arrow_types[name] = types[name]
            elif (dtype := _float_type(types[name])) is None:
                raise self._text_column(name)
            elif name != self._weight:
                self._dtype = np.promote_types(self._dtype, dtype)
        if self._target is not None:
            self._arrow_types[self._target] = kind = types[self._target]
            if not _is_label(kind):
                raise DataError(
                    f"{self._path}: target column {self._target!r} has type {kind}; write it "
                    "as numbers or strings."
                )

    def _text_column(self, name: str) -> DataError:
        """Return the error for a feature or weight that is not a number."""
        example = None
        for table in self._tables(0, self._stored([name])):
            values = self._completed(table, [name]).column(name).to_pylist()
            bad = [str(v) for v in values if v is not None and not is_number(str(v))]
            example = next(iter(bad), example)
            if example is not None:
                break
        if name == self._weight:
            return DataError(
                f"{self._path}: weight column {name!r} is not numeric, for example "
                f"{example!r}; correct it or choose another weight column."
            )
        return DataError(
            f"{self._path}: feature column {name!r} is not numeric, for example {example!r}; "
            "open the file with as_frame=True, so that estimators encode it, or drop it "
            f"(drop={[name]!r})."
        )

    @classmethod
    def agree(cls, parts: Sequence[Any]) -> None:
        """Make the sources of several files return the same types."""
        first = parts[0]
        dtype = np.result_type(*(part._dtype for part in parts))
        types = dict(first._arrow_types)
        for part in parts[1:]:
            for name, kind in part._arrow_types.items():
                common = _common_type(types[name], kind)
                if common is None:
                    raise DataError(
                        f"{part._path}: column {name!r} has type {kind}, but {types[name]} in "
                        f"{first._path} and the files like it; write it in one type."
                    )
                types[name] = common
        target = types.get(first._target)
        for part in parts:
            part._arrow_types, part._dtype = types, dtype
            part._float_target = target is not None and _is_float(target)

    def _batch(self, tables: Iterable[Any], first_row: int, n: int) -> Batch:
        """Return the `n` rows of some tables as a batch."""
        X = None if self.as_frame else np.empty((n, self.n_features), self._dtype)
        frames: list[Any] = []
        ys: list[AnyArray] = []
        w = np.empty(n) if self._weight is not None else None
        at = 0
        for table in tables:
            rows = slice(at, at + table.num_rows)
            if X is None:
                frames.append(self._typed(table.select(self.feature_names)))
            else:
                for j, name in enumerate(self.feature_names):
                    X[rows, j] = self._values(table, name, first_row + at)
            if self._target is not None:
                ys.append(self._labels(table, first_row + at))
            if w is not None:
                w[rows] = self._values(table, self._weight, first_row + at)
            at += table.num_rows
        self._check_number(at, n)
        features = stack_rows(frames) if X is None else X
        return Batch(features, np.concatenate(ys) if ys else None, w, numbers(first_row, n))

    def _typed(self, frame: Any) -> Any:
        """Return a table converted to the types that all files share."""
        import pyarrow.types as pt

        for j, name in enumerate(frame.column_names):
            column = frame.column(j)
            known = self._arrow_types.get(name, column.type)
            known = import_pyarrow().float64() if pt.is_null(known) else known
            if column.type != known:
                frame = frame.set_column(j, name, column.cast(known, safe=False))
        return frame

    def _labels(self, table: Any, first_row: int) -> AnyArray:
        y = self._values(table, self._target, first_row)
        if y.dtype.kind not in "biuf":
            return y.astype(object)
        return y.astype(np.float64) if self._float_target else y

    def _values(self, table: Any, name: str | None, first_row: int) -> AnyArray:
        """Return a column after checking that no value is missing."""
        import pyarrow.types as pt

        column = table.column(table.schema.get_field_index(name))
        if column.null_count:
            row = first_row + int(np.argmax(np.asarray(column.is_null())))
            raise DataError(
                f"{self._path}: column {name!r} has a missing value in row {row} (data rows "
                "count from 0); impute it, or drop the row or the column."
            )
        if pt.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pt.is_decimal(column.type):
            column = column.cast("float64")
        return np.asarray(column)


def is_number(text: str) -> bool:
    """Return whether a text is a number, as in CSV files."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _float_type(kind: Any) -> np.dtype[Any] | None:
    """Return the float type that represents an Arrow type; None if it is not a number."""
    import pyarrow.types as pt

    if pt.is_null(kind):  # which read calls missing values
        return np.dtype(np.float32)
    if pt.is_boolean(kind) or pt.is_float16(kind) or pt.is_float32(kind):
        return np.dtype(np.float32)
    if pt.is_integer(kind):
        return np.dtype(np.float32 if kind.bit_width <= 16 else np.float64)
    if pt.is_float64(kind) or pt.is_decimal(kind):
        return np.dtype(np.float64)
    return None


def _is_label(kind: Any) -> bool:
    import pyarrow.types as pt

    if pt.is_dictionary(kind):
        kind = kind.value_type
    text = pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)
    return bool(text) or _float_type(kind) is not None


def _is_float(kind: Any) -> bool:
    import pyarrow.types as pt

    return bool(pt.is_floating(kind) or pt.is_decimal(kind))


def _common_type(one: Any, two: Any) -> Any:
    """Return the Arrow type that can hold both, or None for text and numbers."""
    import pyarrow.types as pt

    pa = import_pyarrow()
    if one == two:
        return one
    one, two = (kind.value_type if pt.is_dictionary(kind) else kind for kind in (one, two))
    if pt.is_date(one) != pt.is_date(two):  # a date converts to a time stamp
        one, two = (pa.timestamp("ns") if pt.is_date(kind) else kind for kind in (one, two))
    try:
        fields = (pa.schema([("", kind)]) for kind in (one, two))
        return pa.unify_schemas(list(fields), promote_options="permissive").field(0).type
    except pa.ArrowTypeError:
        return None
