"""Parquet files and directories of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelgrad._typing import AnyArray
from kernelgrad._validation import DataError
from kernelgrad.data._columns import (
    choose_columns,
    import_pyarrow,
    missing_value,
    text_feature,
)
from kernelgrad.data._paged import PagedSource
from kernelgrad.data.base import Batch

SUFFIXES = (".parquet", ".pq")
_READ_ROWS = 65536


class ParquetSource(PagedSource):
    """A Parquet file, or the Parquet files directly inside a directory, sorted by name.

    Only the needed columns are read, and one row group at a time is held in memory.
    Features are float32 if every feature column fits in it exactly (float16, float32,
    booleans and integers up to 16 bits), otherwise float64.

    Parameters
    ----------
    path : path
        The file or the directory.
    target, weight : str, optional
        Columns with the targets and the sample weights.
    drop : sequence of str, default=()
        Columns to leave out.
    feature_names : sequence of str, optional
        The feature columns, in order; by default all that are left.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        target: str | None = None,
        weight: str | None = None,
        drop: Sequence[str] = (),
        feature_names: Sequence[str] | None = None,
    ) -> None:
        import_pyarrow()
        self._path = path = Path(path)
        self._files = parquet_files(path) if path.is_dir() else [path]
        self._metadata = [_metadata(file) for file in self._files]
        schemas = [meta.schema.to_arrow_schema() for meta in self._metadata]
        self.feature_names = features = choose_columns(
            schemas[0].names,
            self._files[0],
            target=target,
            weight=weight,
            drop=drop,
            feature_names=feature_names,
        )
        self.n_features = len(features)
        self._target, self._weight = target, weight
        self.has_target, self.has_weight = target is not None, weight is not None
        self._columns = [*features, *filter(None, (target, weight))]
        self._dtype = np.dtype(np.float32)
        target_types = set()
        for file, schema in zip(self._files, schemas, strict=True):
            choose_columns(
                schema.names,
                file,
                target=target,
                weight=weight,
                drop=(),
                feature_names=features,
            )
            for name in [*features, *filter(None, (weight,))]:
                if (dtype := _float_type(schema.field(name).type)) is None:
                    raise text_feature(file, name, _example(file, name))
                if name != weight:
                    self._dtype = np.promote_types(self._dtype, dtype)
            if target is not None:
                target_types.add(_target_kind(schema.field(target).type, target, file))
        if "text" in target_types and len(target_types) > 1:
            raise DataError(
                f"{path}: target column {target!r} is text in some files and numbers in "
                "others; write it in one type."
            )
        self._target_kind = (
            "float" if "float" in target_types else target_types.pop() if target_types else ""
        )
        self._units = [
            (i, group)
            for i, m in enumerate(self._metadata)
            for group in range(m.num_row_groups)
        ]
        sizes = [self._metadata[i].row_group(g).num_rows for i, g in self._units]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.n_rows = int(self._starts[-1])
        if self.n_rows == 0:
            raise DataError(f"{path} has no row; give at least one.")
        self._check_null_counts()

    def target_chunks(self) -> Iterator[AnyArray]:
        """Yield the targets in order; no other column is read."""
        self._require_target()
        for unit in range(len(self._units)):
            at = int(self._starts[unit])
            for table in self._tables(unit, [self._target or ""]):
                yield self._checked_target(self._labels(table, unit, at), at)
                at += table.num_rows

    def _check_null_counts(self) -> None:
        """Raise for missing values that the statistics in the file already show."""
        wanted = set(self._columns)
        for unit, (file, group) in enumerate(self._units):
            meta = self._metadata[file].row_group(group)
            for j in range(meta.num_columns):
                column = meta.column(j)
                if column.path_in_schema in wanted:
                    stats = column.statistics
                    if stats is not None and stats.has_null_count and stats.null_count:
                        self._load(unit)

    def _tables(self, unit: int, columns: Sequence[str]) -> Iterator[Any]:
        import pyarrow.parquet as pq

        file, group = self._units[unit]
        with pq.ParquetFile(self._files[file], metadata=self._metadata[file]) as stream:
            yield from stream.iter_batches(
                batch_size=_READ_ROWS, row_groups=[group], columns=columns, use_threads=False
            )

    def _load(self, unit: int) -> Batch:
        assert self.feature_names is not None
        start, stop = int(self._starts[unit]), int(self._starts[unit + 1])
        X = np.empty((stop - start, self.n_features), dtype=self._dtype)
        ys: list[AnyArray] = []
        w = np.empty(stop - start) if self._weight is not None else None
        at = 0
        for table in self._tables(unit, self._columns):
            rows = slice(at, at + table.num_rows)
            for j, name in enumerate(self.feature_names):
                X[rows, j] = self._column(table, name, unit, start + at)
            if self._target is not None:
                ys.append(self._labels(table, unit, start + at))
            if w is not None:
                w[rows] = self._column(table, self._weight, unit, start + at)
            at += table.num_rows
        y = np.concatenate(ys) if ys else None
        return Batch(X, y, w, np.arange(start, stop, dtype=np.int64))

    def _labels(self, table: Any, unit: int, first_row: int) -> AnyArray:
        y = self._column(table, self._target, unit, first_row)
        if self._target_kind == "text":
            return y.astype(object)
        return y.astype(np.float64) if self._target_kind == "float" else y

    def _column(self, table: Any, name: str | None, unit: int, first_row: int) -> AnyArray:
        import pyarrow.types as pt

        assert name is not None
        column = table.column(table.schema.get_field_index(name))
        if column.null_count:
            row = first_row + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise missing_value(self._files[self._units[unit][0]], name, row)
        if pt.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pt.is_decimal(column.type):
            column = column.cast("float64")
        return np.asarray(column.to_numpy(zero_copy_only=False))


def parquet_files(path: Path) -> list[Path]:
    """Return the Parquet files directly inside a directory, sorted by name."""
    files = sorted(
        file
        for file in path.iterdir()
        if file.suffix.lower() in SUFFIXES and not file.name.startswith((".", "_"))
    )
    if not files:
        raise DataError(
            f"Directory {path} holds no *.parquet file; name a data file or a directory of "
            "Parquet files."
        )
    return files


def _metadata(file: Path) -> Any:
    pa = import_pyarrow()
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(file)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{file} is not a readable Parquet file ({error}); write it again."
        ) from None


def _float_type(kind: Any) -> np.dtype[Any] | None:
    """Return the float type that holds an Arrow type, or None if it is not a number."""
    import pyarrow.types as pt

    if pt.is_boolean(kind) or pt.is_float16(kind) or pt.is_float32(kind):
        return np.dtype(np.float32)
    if pt.is_integer(kind):
        return np.dtype(np.float32 if kind.bit_width <= 16 else np.float64)
    if pt.is_float64(kind) or pt.is_decimal(kind):
        return np.dtype(np.float64)
    return None


def _target_kind(kind: Any, name: str, file: Path) -> str:
    import pyarrow.types as pt

    if pt.is_dictionary(kind):
        kind = kind.value_type
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind):
        return "text"
    if pt.is_integer(kind) or pt.is_boolean(kind):
        return "integer"
    if _float_type(kind) is not None:
        return "float"
    raise DataError(
        f"{file}: target column {name!r} has type {kind}; write it as numbers or strings."
    )


def _example(file: Path, name: str) -> object:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as stream:
        for batch in stream.iter_batches(batch_size=64, columns=[name]):
            for value in batch.to_pylist():
                if value.get(name) is not None:
                    found: object = value[name]
                    return found
    return None
