"""Parquet files and directories of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelgrad.data._columns import ColumnSource, choose_columns, import_pyarrow, text_feature
from kernelgrad.data.base import Batch
from kernelgrad.exceptions import DataError

SUFFIXES = (".parquet", ".pq")
_READ_ROWS = 65536


class ParquetSource(ColumnSource):
    """A Parquet file, or the Parquet files directly inside a directory, sorted by name.

    Only the needed columns are read, and one row group at a time is held in memory.
    Features are float32 if every feature column fits in it exactly (float16, float32,
    booleans and integers up to 16 bits), otherwise float64.

    Parameters
    ----------
    path : path
        The file or the directory.
    target, weight, drop, feature_names, as_frame
        As in :class:`ColumnSource`.
    """

    def _open(self, drop: Sequence[str], feature_names: Sequence[str] | None) -> None:
        path, target, weight = self._path, self._target, self._weight
        as_frame = self.as_frame
        self._files = parquet_files(path) if path.is_dir() else [path]
        self._metadata = [_metadata(file) for file in self._files]
        schemas = [meta.schema.to_arrow_schema() for meta in self._metadata]
        self._set_columns(schemas[0].names, self._files[0], drop, feature_names)
        features = self.feature_names
        self._dtype = np.dtype(np.float32)
        target_types = set()
        for file, schema in zip(self._files, schemas, strict=True):
            choose_columns(
                schema.names, file, target=target, weight=weight, feature_names=features
            )
            for name in [*features, *filter(None, (weight,))]:
                if as_frame and name != weight:
                    continue
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
        self._float_target = "float" in target_types
        self._units = [
            (i, group)
            for i, m in enumerate(self._metadata)
            for group in range(m.num_row_groups)
        ]
        self._set_rows([self._metadata[i].row_group(g).num_rows for i, g in self._units])
        self._check_null_counts()

    def _check_null_counts(self) -> None:
        """Raise for missing values that the statistics in the file already show."""
        wanted = set(self._columns)
        if self.as_frame:  # whose features may lack values
            wanted -= set(self.feature_names)
        for unit, (file, group) in enumerate(self._units):
            meta = self._metadata[file].row_group(group)
            columns = [meta.column(j) for j in range(meta.num_columns)]
            found = [c.statistics for c in columns if c.path_in_schema in wanted]
            if any(stats is not None and stats.null_count for stats in found):
                self._load(unit)

    def _tables(self, unit: int, columns: Sequence[str]) -> Iterator[Any]:
        import pyarrow.parquet as pq

        table = import_pyarrow().Table
        file, group = self._units[unit]
        with pq.ParquetFile(self._files[file], metadata=self._metadata[file]) as stream:
            batches = stream.iter_batches(
                batch_size=_READ_ROWS, row_groups=[group], columns=columns, use_threads=False
            )
            yield from (table.from_batches([batch]) for batch in batches)

    def _file(self, unit: int) -> Path:
        return self._files[self._units[unit][0]]

    def _load(self, unit: int) -> Batch:
        first, last = int(self._starts[unit]), int(self._starts[unit + 1])
        tables = self._tables(unit, self._columns)
        return self._batch(tables, self._file(unit), first, last - first)


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
        batches = stream.iter_batches(batch_size=64, columns=[name])
        values = (row.get(name) for batch in batches for row in batch.to_pylist())
        return next((value for value in values if value is not None), None)
