"""Files with named columns: their choice and their types, batches, and Parquet files."""

from __future__ import annotations

import difflib
import os
import re
import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelgrad.data.base import Batch, stack_rows
from kernelgrad.data.paged import FileSource, decoding, import_pyarrow
from kernelgrad.exceptions import DataError
from kernelgrad.types import AnyArray

INDEX = "Unnamed: 0"
"""What the first column of a CSV file is called where it has no name, as in pandas."""

_ROW_LABELS = re.compile(rf"{INDEX}|__index_level_\d+__")  # names that pandas writes
_TEXTS = ("string", "large_string", "string_view")
_READ_ROWS = 65536
_DECODED = 6.0  # memory per byte of a row group, with pages, dictionaries and Arrow's buffers
_WHOLE_ROWS = 1 << 18  # groups up to this size take less memory than the decoder itself


def missing_column(name: str, names: Sequence[str], what: str, path: Path) -> DataError:
    """Return the error for a name that is not in the file, with the most similar names."""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(map(repr, close))}?"
    if not close:
        hint = f"choose one of: {_listed(names)}."
    number = next(filter(is_number, names), None)
    if number is not None and len(names) > 1:
        hint += f" If the first line, with {number}, holds values, write a header above it."
    return DataError(f"{path} has no {what} {name!r}; {hint}")


class ColumnSource(FileSource):
    """A file read as Arrow tables with the chosen columns; parameters as of `open_source`."""

    feature_names: list[str]
    _dtype: np.dtype[Any] = np.dtype(np.float32)  # the least one of features

    def __init__(
        self, path: str | os.PathLike[str], *, target: str | None = None,
        weight: str | None = None, drop: Sequence[str] = (),
        feature_names: Sequence[str] | None = None, as_frame: bool = False,
    ) -> None:  # fmt: skip
        import_pyarrow()
        super().__init__(Path(path))
        self.as_frame = as_frame
        self._target, self._weight = target, weight
        self.has_target, self.has_weight = target is not None, weight is not None
        with self._stamp.unchanged():
            self._names = self._header()
            self.feature_names = self._choose(drop, feature_names)
            self.n_features = len(self.feature_names)
            self._columns = [*self.feature_names, *filter(None, (target, weight))]
            self._open()

    @abstractmethod
    def _header(self) -> list[str]:
        """Return the names of the stored columns."""

    @abstractmethod
    def _open(self) -> None:
        """Set `_schema` and the groups, and call `_set_types`."""

    def _choose(self, drop: Sequence[str], feature_names: Sequence[str] | None) -> list[str]:
        """Return the feature columns, in order, after checking every name."""
        path, names, target, weight = self._path, self._names, self._target, self._weight
        if isinstance(drop, str):
            raise TypeError(
                f"drop must be a sequence of column names, got the string {drop!r}."
            )
        counts = Counter(names)
        twice = [name for name, n in counts.items() if n > 1]
        if twice:
            raise DataError(f"{path} has two columns named {twice[0]!r}; rename one of them.")
        own = [("target column", target), ("weight column", weight)]
        for what, name in [*own, *(("column to drop", name) for name in drop)]:
            if name is not None and name not in counts:
                raise missing_column(name, names, what, path)
        if target is not None and target == weight:
            raise ValueError(f"Column {target!r} cannot be both target and weight; change one.")
        other = {target, weight, *drop}
        if feature_names is not None:
            absent = [name for name in feature_names if name not in counts]
            if absent:
                raise DataError(
                    f"{path} lacks {len(absent)} feature column(s): {_listed(absent)}; add or "
                    "rename these columns."
                )
            for name in other.intersection(feature_names):
                raise ValueError(
                    f"Column {name!r} is a feature, so it cannot be target, weight or dropped; "
                    "leave it out of those."
                )
            return list(feature_names)
        labels = [name for name in names if name not in other and _ROW_LABELS.fullmatch(name)]
        other.update(labels)
        features = [name for name in names if name not in other]
        if not features:
            raise DataError(
                f"{path} has no feature column left; its columns are {', '.join(names)}: "
                "drop fewer of them."
            )
        if labels:
            message = (
                f"{path}: column {labels[0]!r} is left out, as it seems to be the index of a "
                "pandas frame; write the file with index=False, or rename the column if it is "
                "a feature."
            )
            warnings.warn(message, UserWarning, stacklevel=3)
        return features

    @property
    def columns(self) -> set[str]:
        """The columns of the file."""
        return set(self._names)

    def _set_types(self) -> None:
        """Set the types of the columns that are read after checking them."""
        types = {name: self._schema.field(name).type for name in self._columns}
        shared = [self._target] if self._target is not None else []
        for name in self._columns:
            kind = types[name]
            if name == self._target:
                if str(_plain(kind)) not in _TEXTS and _float_type(_plain(kind)) is None:
                    raise DataError(
                        f"{self._path}: target column {name!r} has type {kind}; write it as "
                        "numbers or strings."
                    )
            elif self.as_frame and name != self._weight:
                shared.append(name)
            elif (dtype := _float_type(kind)) is None:
                raise self._text_column(name)
            elif name != self._weight:
                self._dtype = np.promote_types(self._dtype, dtype)
        self._arrow_types = {name: types[name] for name in shared}

    def _text_column(self, name: str) -> DataError:
        tables = self._tables(0, [name])
        values = (str(v) for t in tables for v in t.column(name).to_pylist() if v is not None)
        example = next((value for value in values if not is_number(value)), None)
        what, remedy = "weight", "correct it or choose another weight column."
        if name != self._weight:
            what, remedy = "feature", "open the file with as_frame=True, so that estimators "
            remedy += f"encode it, or drop it (drop={[name]!r})."
        return DataError(
            f"{self._path}: {what} column {name!r} is not numeric, for example {example!r}; "
            f"{remedy}"
        )

    @classmethod
    def agree(cls, parts: Sequence[Any]) -> None:
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
        for part in parts:
            part._arrow_types, part._dtype = types, dtype

    def _batch(self, tables: Iterable[Any], first_row: int, n: int) -> Batch:
        X = None if self.as_frame else np.empty((n, self.n_features), self._dtype)
        frames: list[Any] = []
        ys: list[AnyArray] = []
        w = np.empty(n) if self._weight is not None else None
        at = 0
        for table in tables:
            rows, row = slice(at, at + table.num_rows), first_row + at
            if X is None:
                frames.append(table.select(self.feature_names))
            else:
                for j, name in enumerate(self.feature_names):
                    X[rows, j] = self._values(table, name, row)
            if self._target is not None:
                ys.append(self._labels(table, row))
            if w is not None:
                w[rows] = self._values(table, self._weight, row)
            at += table.num_rows
        features = stack_rows(frames) if X is None else X
        y = np.concatenate(ys) if ys else None
        return Batch(features, y, w, np.arange(first_row, first_row + n))

    def _labels(self, table: Any, first_row: int) -> AnyArray:
        y = self._values(table, self._target, first_row)
        return y if y.dtype.kind in "biuf" else y.astype(object)

    def _values(self, table: Any, name: str | None, first_row: int) -> AnyArray:
        column = table.column(name)
        if column.null_count:
            row = first_row + int(np.argmax(np.asarray(column.is_null())))
            raise DataError(
                f"{self._path}: column {name!r} has a missing value in row {row} (data rows "
                "count from 0); drop the row, or impute or drop the column if it is a feature."
            )
        types = import_pyarrow().types
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if types.is_decimal(column.type):
            column = column.cast("float64")
        return np.asarray(column)


class ParquetSource(ColumnSource):
    """A Parquet file.

    Only the needed columns are read. Large row groups are decoded in order, 65,536 rows at a
    time: consecutive reads continue where the last one ended, others start at the beginning of
    a row group. Features are float32 if float32 represents every feature column exactly
    (float16, float32, booleans and integers up to 16 bits), otherwise float64.
    """

    def _header(self) -> list[str]:
        from pyarrow import parquet

        with decoding(self._path, "is not a readable Parquet file", "write it again"):
            self._metadata = metadata = parquet.read_metadata(self._path)
            self._schema = metadata.schema.to_arrow_schema()
            with parquet.ParquetFile(self._path, metadata=metadata) as stream:
                # metadata.row_group(g) and its columns can crash the process if the footer is
                # damaged; the reader does not
                groups = range(metadata.num_row_groups)
                counts = [stream.read_row_group(g, columns=[]).num_rows for g in groups]
            if min(counts, default=0) < 0 or sum(counts) != metadata.num_rows:
                raise ValueError(f"its row groups do not add up to {metadata.num_rows} rows")
            self._set_groups(counts)
        return list(self._schema.names)

    def _open(self) -> None:
        self._set_types()
        most = min(int(np.diff(self._groups).max()), _WHOLE_ROWS)
        self.reading_bytes = _DECODED * most * self.n_features * self._dtype.itemsize
        self.kept_bytes = self.reading_bytes  # the row group that is read

    def _tables(self, group: int, columns: Sequence[str]) -> Iterator[Any]:
        table_of = import_pyarrow().Table.from_batches
        from pyarrow import parquet

        # 64 KiB of a column at a time, not the whole row group; checksums, if there are some
        options: dict[str, Any] = {"buffer_size": 1 << 16, "pre_buffer": False}
        options["page_checksum_verification"] = True
        with (
            decoding(self._path, "cannot be decoded", "it is damaged, write it again"),
            parquet.ParquetFile(self._path, metadata=self._metadata, **options) as stream,
        ):
            for at, n_rows in enumerate(np.diff(self._groups)[group:].tolist(), group):
                batches = stream.iter_batches(
                    batch_size=_READ_ROWS,
                    row_groups=[at],  # no other group is decoded ahead
                    columns=list(columns),
                    use_threads=False,
                )
                for batch in list(batches) if n_rows <= _WHOLE_ROWS else batches:
                    batch.validate(full=True)  # Arrow has not checked text and category codes
                    yield self._completed(table_of([batch]), columns)


def is_number(text: str) -> bool:
    """Return whether a text is a number, as in CSV files."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")


def _float_type(kind: Any) -> np.dtype[Any] | None:
    """Return the float type that represents an Arrow type; None if it is not a number."""
    types = import_pyarrow().types
    if types.is_integer(kind):
        return np.dtype(np.float32 if kind.bit_width <= 16 else np.float64)
    if types.is_float64(kind) or types.is_decimal(kind):
        return np.dtype(np.float64)
    narrow = types.is_boolean(kind) or types.is_floating(kind)
    # values of the null type are refused as missing when they are read
    return np.dtype(np.float32) if narrow or types.is_null(kind) else None


def _common_type(one: Any, two: Any) -> Any:
    """Return the Arrow type that can hold both, or None for text and numbers."""
    pa = import_pyarrow()
    if one == two:
        return one
    is_date = pa.types.is_date
    one, two = map(_plain, (one, two))
    if is_date(one) != is_date(two):  # a date converts to a time stamp
        one, two = (pa.timestamp("ns") if is_date(kind) else kind for kind in (one, two))
    schemas = [pa.schema([("", kind)]) for kind in (one, two)]
    try:
        common = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowTypeError:
        return None
    return pa.float64() if pa.types.is_floating(common) else common  # not float32 for int32


def _plain(kind: Any) -> Any:
    """Return the type of the values of categories, and other types unchanged."""
    return kind.value_type if import_pyarrow().types.is_dictionary(kind) else kind
