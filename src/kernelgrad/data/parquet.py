"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelgrad._typing import IntArray
from kernelgrad.data._columns import ColumnSource, text_feature
from kernelgrad.data._paged import import_pyarrow
from kernelgrad.data.base import Batch
from kernelgrad.exceptions import DataError

_READ_ROWS = 65536
_WHOLE_ROWS = 1 << 18  # so many, decoded, are smaller than the decoder's pages and dictionaries


class ParquetSource(ColumnSource):
    """A Parquet file.

    Only the needed columns are read, and of large row groups 65,536 rows are decoded at a
    time, in order: reads that follow one another go on where the last one ended, others start
    anew at a row group. Features are float32 if every feature column fits in it exactly
    (float16, float32, booleans and integers up to 16 bits), otherwise float64.

    Parameters
    ----------
    path : path
        The file.
    target, weight, drop, feature_names, as_frame, keys
        As in :class:`ColumnSource`.
    """

    def _open(self, drop: Sequence[str], feature_names: Sequence[str] | None) -> None:
        self._metadata = _metadata(self._path)
        schema = self._metadata.schema.to_arrow_schema()
        self._set_columns(schema.names, drop, feature_names)
        types = {name: schema.field(name).type for name in self._stored(self._columns)}
        types |= {name: value.type for name, value in self._keys.items()}
        self._dtype = np.dtype(np.float32)
        for name in [*self.feature_names, *filter(None, (self._weight,))]:
            if self.as_frame and name != self._weight:
                self._arrow_types[name] = types[name]
            elif (dtype := _float_type(types[name])) is None:
                raise text_feature(self._path, name, self._example(name))
            elif name != self._weight:
                self._dtype = np.promote_types(self._dtype, dtype)
        if self._target is not None:
            self._arrow_types[self._target] = kind = types[self._target]
            if not _is_label(kind):
                raise DataError(
                    f"{self._path}: target column {self._target!r} has type {kind}; write it "
                    "as numbers or strings."
                )
        groups = range(self._metadata.num_row_groups)
        counts = [self._metadata.row_group(group).num_rows for group in groups]
        self._groups = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._set_rows([sum(counts)])
        self._check_null_counts()

    def block_starts(self) -> IntArray:
        """Return the first row of every row group that has rows."""
        return np.unique(self._groups[:-1][np.diff(self._groups) > 0])

    def _check_null_counts(self) -> None:
        """Raise for missing values that the statistics in the file already show."""
        wanted = set(self._stored(self._columns))
        if self.as_frame:  # whose features may lack values
            wanted -= set(self.feature_names)
        for group in range(self._metadata.num_row_groups):
            meta = self._metadata.row_group(group)
            columns = [meta.column(j) for j in range(meta.num_columns)]
            found = [c.statistics for c in columns if c.path_in_schema in wanted]
            if any(stats is not None and stats.null_count for stats in found):
                self._piece(0, int(self._groups[group]), int(self._groups[group + 1]))

    def _tables(self, group: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield some columns from a row group on to the end."""
        pa = import_pyarrow()
        import pyarrow.parquet as pq

        # not all that a row group holds of a column, but 64 KiB of it
        options = {"buffer_size": 1 << 16, "pre_buffer": False}
        try:
            with pq.ParquetFile(self._path, metadata=self._metadata, **options) as stream:
                for at in range(group, self._metadata.num_row_groups):
                    batches = stream.iter_batches(
                        batch_size=_READ_ROWS,
                        row_groups=[at],  # none is decoded that is not asked for
                        columns=self._stored(columns),
                        use_threads=False,
                    )
                    small = self._metadata.row_group(at).num_rows <= _WHOLE_ROWS
                    for batch in list(batches) if small else batches:
                        yield self._with_keys(pa.Table.from_batches([batch]), columns)
        except (pa.ArrowInvalid, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the operating system's own
            raise DataError(
                f"{self._path} cannot be decoded ({error}); it is damaged, write it again."
            ) from None

    def _target_tables(self) -> Iterator[Any]:
        return self._tables(0, [self._target or ""])

    def _piece(self, unit: int, low: int, high: int) -> Batch:
        group = int(np.searchsorted(self._groups, low, side="right")) - 1

        def nearest(items: list[_Stream]) -> _Stream | None:
            near = [s for s in items if s.path == self._path]
            near = [s for s in near if self._groups[group] <= s.at <= low]
            return max(near, key=lambda s: s.at, default=None)

        def opened() -> _Stream:
            tables = self._tables(group, self._columns)
            return _Stream(self._path, int(self._groups[group]), tables)

        if low == high:
            columns = self._columns
            empty = self._metadata.schema.to_arrow_schema().empty_table()
            tables = [self._with_keys(empty.select(self._stored(columns)), columns)]
            return self._batch(tables, low, 0)
        stream: _Stream = self.pool.use(nearest, opened)
        batch = self._checked(self._batch(stream.rows(low, high), low, high - low))
        if stream.at == self.n_rows:
            self.pool.drop(stream)
        return batch

    def _example(self, name: str) -> object:
        if name in self._keys:
            return self._keys[name].as_py()
        values = (v for table in self._tables(0, [name]) for v in table.column(0).to_pylist())
        return next((value for value in values if value is not None), None)


class _Stream:
    """The rows of a file, decoded in order."""

    def __init__(self, path: Path, at: int, tables: Iterator[Any]) -> None:
        self.path, self.at = path, at  # the row that comes next
        self._tables = tables
        self._rest: Any = None

    def rows(self, start: int, stop: int) -> Iterator[Any]:
        """Yield rows from `start`, not before `at`, to `stop` in tables."""
        while self.at < stop:
            if self._rest is None:
                self._rest = next(self._tables, None)
                if self._rest is None:  # fewer rows than there were
                    return
            n = self._rest.num_rows
            low, high = min(max(start - self.at, 0), n), min(stop - self.at, n)
            if high > low:
                yield self._rest.slice(low, high - low)
            self._rest = self._rest.slice(high) if high < n else None
            self.at += high


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


def _is_label(kind: Any) -> bool:
    import pyarrow.types as pt

    if pt.is_dictionary(kind):
        kind = kind.value_type
    text = pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)
    return bool(text) or _float_type(kind) is not None
