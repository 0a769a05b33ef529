"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelgrad.data.base import Batch
from kernelgrad.data.columns import ColumnSource, text_feature
from kernelgrad.data.damage import decoding
from kernelgrad.data.paged import import_pyarrow
from kernelgrad.exceptions import DataError
from kernelgrad.types import IntArray

_READ_ROWS = 65536
_DECODED = 6.0  # memory per byte of a row group, with pages, dictionaries and Arrow's buffers
_WHOLE_ROWS = 1 << 18  # groups up to this size take less memory than the decoder itself


class ParquetSource(ColumnSource):
    """A Parquet file.

    Only the needed columns are read. Large row groups are decoded in order, 65,536 rows at a
    time: consecutive reads continue where the last one ended, others start at the beginning of
    a row group. Features are float32 if float32 represents every feature column exactly
    (float16, float32, booleans and integers up to 16 bits), otherwise float64.

    Parameters
    ----------
    path : path
        The file.
    target, weight, drop, feature_names, as_frame, keys
        As in :class:`ColumnSource`.
    """

    def _open(self, drop: Sequence[str], feature_names: Sequence[str] | None) -> None:
        import_pyarrow()
        import pyarrow.parquet as pq

        with decoding(self._path, "is not a readable Parquet file", "write it again"):
            self._metadata = metadata = pq.read_metadata(self._path)
            schema = metadata.schema.to_arrow_schema()
            with pq.ParquetFile(self._path, metadata=metadata) as stream:
                # metadata.row_group(g) and its columns can crash the process if the footer is
                # damaged; the reader does not
                groups = range(metadata.num_row_groups)
                counts = [stream.read_row_group(g, columns=[]).num_rows for g in groups]
            if min(counts, default=0) < 0 or sum(counts) != metadata.num_rows:
                raise ValueError(f"its row groups do not add up to {metadata.num_rows} rows")
        self._groups = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
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
        self._set_rows([sum(counts)])
        most = min(max(counts, default=0), _WHOLE_ROWS)
        self.reading_bytes = _DECODED * most * self.n_features * self._dtype.itemsize
        self.kept_bytes = self.reading_bytes  # the row group that is read

    def block_starts(self) -> IntArray:
        """Return the first row of every row group that is not empty."""
        return np.unique(self._groups[:-1][np.diff(self._groups) > 0])

    def _tables(self, group: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield tables of some columns, from the given row group to the end."""
        pa = import_pyarrow()
        import pyarrow.parquet as pq

        # 64 KiB of a column at a time, not the whole row group
        options = {"buffer_size": 1 << 16, "pre_buffer": False}
        options |= {"page_checksum_verification": True}  # if the file has checksums
        with (
            decoding(self._path, "cannot be decoded", "it is damaged, write it again"),
            pq.ParquetFile(self._path, metadata=self._metadata, **options) as stream,
        ):
            for at, n_rows in enumerate(np.diff(self._groups)[group:].tolist(), group):
                batches = stream.iter_batches(
                    batch_size=_READ_ROWS,
                    row_groups=[at],  # no other group is decoded ahead
                    columns=self._stored(columns),
                    use_threads=False,
                )
                for batch in list(batches) if n_rows <= _WHOLE_ROWS else batches:
                    batch.validate(full=True)  # Arrow has not checked text and category codes
                    yield self._with_keys(pa.Table.from_batches([batch]), columns)

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
        self.path, self.at = path, at  # the next row
        self._tables = tables
        self._rest: Any = None

    def rows(self, start: int, stop: int) -> Iterator[Any]:
        """Yield tables of the rows from `start`, which is at least `at`, to `stop`."""
        while self.at < stop:
            if self._rest is None:
                self._rest = next(self._tables, None)
                if self._rest is None:  # the file has fewer rows now
                    return
            n = self._rest.num_rows
            low, high = min(max(start - self.at, 0), n), min(stop - self.at, n)
            if high > low:
                yield self._rest.slice(low, high - low)
            self._rest = self._rest.slice(high) if high < n else None
            self.at += high


def _float_type(kind: Any) -> np.dtype[Any] | None:
    """Return the float type that represents an Arrow type; None if it is not a number."""
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
