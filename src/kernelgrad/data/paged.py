"""Sources that are read in pieces from files of groups of rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from kernelgrad.data.base import (
    Batch,
    BatchSource,
    NoRows,
    check_batch,
    check_range,
    checked_targets,
    n_places,
)
from kernelgrad.data.damage import within
from kernelgrad.data.stamp import Stamp
from kernelgrad.exceptions import DataError
from kernelgrad.types import AnyArray, IntArray


def import_pyarrow() -> Any:
    """Return pyarrow; raise ImportError with the command that installs it."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError(
            "Reading CSV, LIBSVM and Parquet needs pyarrow: pip install kernelgrad[io]"
        ) from None
    return pyarrow


class Pool:
    """The streams used last, one for each place that is read from."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._streams: list[_Stream] = []  # the most recently used one is last

    def __len__(self) -> int:
        return len(self._streams)

    def use(self, path: Path, low: int, high: int, make: Callable[[], _Stream]) -> _Stream:
        """Return the last stream of a file between two rows; if there is none, a new one."""
        near = (s for s in self._streams if s.path == path and low <= s.at <= high)
        stream = max(near, key=lambda s: s.at, default=None)
        if stream is None:
            del self._streams[: max(0, len(self._streams) - self.size + 1)]  # frees memory
            stream = make()
        self.drop(stream)
        self._streams.append(stream)
        return stream

    def drop(self, stream: _Stream) -> None:
        """Remove one stream."""
        self._streams = [other for other in self._streams if other is not stream]

    def clear(self) -> None:
        """Remove all streams."""
        self._streams = []


class PagedSource(BatchSource):
    """A source of one or several files, read by one thread at a time.

    Subclasses set `_lock` and implement `_rows`. All files of a source share its `pool`.
    """

    _lock: RLock
    _pool: Pool | None = None

    @abstractmethod
    def _rows(self, start: int, stop: int) -> Batch:
        """Return the rows of a range that exists."""

    @property
    def pool(self) -> Pool:
        """The streams in use."""
        if self._pool is None:
            self._pool = Pool(n_places(self.n_features))
        return self._pool

    def read(self, start: int, stop: int) -> Batch:
        start, stop = check_range(start, stop, self.n_rows)
        with self._lock:
            batch = self._rows(start, stop)
            if stop - start == self.n_rows:
                self.pool.clear()  # the batch has all rows: parts are not needed
        return batch

    def take(self, rows: IntArray) -> Batch:
        source = copy(self)  # with its own pool: each group is decoded once
        source.pool.size = 1
        return super(PagedSource, source).take(rows)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=RLock())


class FileSource(PagedSource):
    """A file of groups of rows, each of which is decoded from its beginning.

    Consecutive reads continue where the last one ended, others start at the beginning of a
    group. Subclasses call `__init__` and `_set_groups`, set `_schema` and `_columns`, and
    implement `_tables`, `_batch` and `_labels`.
    """

    _schema: Any  # of the stored columns
    _columns: list[str]  # that are read
    _target: str | None = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = Stamp.of(path)
        self._lock = RLock()

    @abstractmethod
    def _tables(self, group: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow tables of some columns, from the given group to the end."""

    @abstractmethod
    def _batch(self, tables: Iterable[Any], first_row: int, n: int) -> Batch:
        """Return the `n` rows of some tables as a batch."""

    @abstractmethod
    def _labels(self, table: Any, first_row: int) -> AnyArray:
        """Return the targets of a table."""

    def _set_groups(self, counts: Sequence[int]) -> None:
        """Set the number of rows of every group."""
        self._groups = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.n_rows = int(self._groups[-1])
        if self.n_rows == 0:
            raise NoRows(f"{self._path} has no data row; give at least one.")

    def block_starts(self) -> IntArray:
        """Return the first row of every group that is not empty."""
        return np.unique(self._groups[:-1][np.diff(self._groups) > 0])

    def _stored(self, columns: Sequence[str]) -> list[str]:
        """Return the given columns that are stored in the file."""
        return list(columns)

    def _completed(self, table: Any, columns: Sequence[str]) -> Any:
        """Return a table of stored columns with the others added."""
        return table

    def read(self, start: int, stop: int) -> Batch:
        with self._stamp.unchanged():
            return super().read(start, stop)

    def _rows(self, start: int, stop: int) -> Batch:
        if start == stop:
            empty = self._schema.empty_table().select(self._stored(self._columns))
            return self._batch([self._completed(empty, self._columns)], start, 0)
        group = int(np.searchsorted(self._groups, start, side="right")) - 1
        first = int(self._groups[group])

        def opened() -> _Stream:
            return _Stream(self._path, first, self._tables(group, self._columns))

        stream = self.pool.use(self._path, first, start, opened)
        batch = self._batch(stream.rows(start, stop), start, stop - start)
        if stream.at == self.n_rows:
            self.pool.drop(stream)
        self._check_number(len(batch.rows), stop - start)
        with within(self._path):
            return check_batch(batch, self.feature_names)

    def target_chunks(self) -> Iterator[AnyArray]:
        self._require_target()
        at = 0
        with self._stamp.unchanged():
            for table in self._tables(0, [self._target or ""]):
                if table.num_rows:
                    with within(self._path):
                        y = checked_targets(self._labels(table, at), at)
                    yield y
                    at += table.num_rows
            self._check_number(at, self.n_rows)

    def _check_number(self, n_read: int, n: int) -> None:
        if n_read != n:
            raise DataError(
                f"{self._path} has {n_read} rows instead of {n}; it is damaged, write it again."
            )

    def digest(self) -> bytes:
        """Return a digest of the file and of the columns that are read."""
        return super().digest() + self._stamp.digest()


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
