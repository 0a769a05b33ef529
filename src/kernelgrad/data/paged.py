"""Sources that are read in pieces from files of groups of rows, and errors about files."""

from __future__ import annotations

import errno
import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from kernelgrad.data import base
from kernelgrad.data.base import Batch, BatchSource
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


@contextmanager
def decoding(path: Path, cannot: str, remedy: str) -> Iterator[None]:
    """Make DataErrors of what decoders raise for damaged bytes; others pass unchanged."""
    try:
        yield
    except (DataError, ImportError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # damaged offsets cause EINVAL
        if isinstance(error, MemoryError):
            remedy = "it is damaged, or needs more memory"
        raise DataError(f"{path} {cannot} ({error}); {remedy}.") from error


@contextmanager
def within(*paths: Path) -> Iterator[None]:
    """Prefix an error about values with the names of the files that hold them."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if not paths or str(paths[0]) in str(error):
            raise
        kind = type(error) if isinstance(error, DataError) else DataError
        raise kind(f"{' and '.join(map(str, paths))}: {error}") from None


def spread(size: int, step: int) -> list[int]:
    """Return the starts of blocks of `step` that cover `size`, or of 256 spread evenly."""
    starts = range(0, size, step)
    chosen = np.linspace(0, len(starts) - 1, min(len(starts), 256))
    return [starts[round(i)] for i in chosen.tolist()]


@dataclass(frozen=True)
class Stamp:
    """Size, modification time and inode of a file, which show whether it has changed."""

    path: Path
    state: tuple[int, int, int]

    @classmethod
    def of(cls, path: Path) -> Stamp:
        state = path.stat()
        return cls(path, (state.st_size, state.st_mtime_ns, state.st_ino))

    def changed(self) -> DataError:
        return DataError(
            f"{self.path} has changed since it was opened; open it again, and leave it "
            "unchanged while it is in use."
        )

    def check(self) -> None:
        if not self.path.exists() or Stamp.of(self.path) != self:
            raise self.changed()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Check before a read, as mapping a truncated file can crash, and after it."""
        self.check()
        try:
            yield
        except Exception:
            self.check()  # if it passes, the error belongs to the unchanged file
            raise
        self.check()


@dataclass
class _Pool:
    """The streams used last, the most recent one at the end: one for each place of reading."""

    size: int
    streams: list[_Stream] = field(default_factory=list)


class PagedSource(BatchSource):
    """A source of one or several files, read by one thread at a time.

    Subclasses set `_lock` and implement `_rows`. All files of a source share its `pool`.
    """

    _lock: RLock
    _pool: _Pool | None = None

    @abstractmethod
    def _rows(self, start: int, stop: int) -> Batch:
        """Return the rows of a range that exists."""

    @property
    def pool(self) -> _Pool:
        if self._pool is None:
            self._pool = _Pool(base.n_places(self.n_features))
        return self._pool

    def read(self, start: int, stop: int) -> Batch:
        start, stop = base.check_row_range(start, stop, self.n_rows)
        with self._lock:
            batch = self._rows(start, stop)
            if stop - start == self.n_rows:
                self.pool.streams = []  # the batch has all rows: parts are not needed
        return batch

    def take(self, rows: IntArray) -> Batch:
        source = copy(self)  # with its own pool: each group is decoded once
        source.pool.size = 1
        batch = super(PagedSource, source).take(rows)
        source.pool.streams = []  # they and their source hold each other
        return batch

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=RLock())


class FileSource(PagedSource):
    """A file of groups of rows, each of which is decoded from its beginning.

    Consecutive reads continue where the last one ended. Subclasses call `__init__` and
    `_set_groups`, set `_schema` and `_columns`, and implement `_tables`, `_batch`, `_labels`.
    """

    _schema: Any  # the Arrow schema of the stored columns
    _columns: list[str]  # the columns that are read
    _target: str | None = None
    _arrow_types: Mapping[str, Any] = {}  # the types of columns that all files share

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
        self._groups = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.n_rows = int(self._groups[-1])
        if self.n_rows == 0:
            raise base.NoRows(f"{self._path} has no data row; give at least one.")

    def block_starts(self) -> IntArray:
        """Return the first row of every group that is not empty."""
        return np.unique(self._groups[:-1][np.diff(self._groups) > 0])

    def _completed(self, table: Any, columns: Sequence[str]) -> Any:
        """Return a table with the columns in the types of all files."""
        pa = import_pyarrow()
        for name in columns:
            kind = self._arrow_types.get(name)
            if kind is not None:
                at = table.schema.get_field_index(name)
                kind = pa.float64() if pa.types.is_null(kind) else kind
                table = table.set_column(at, name, table.column(at).cast(kind, safe=False))
        return table

    def read(self, start: int, stop: int) -> Batch:
        with self._stamp.unchanged():
            return super().read(start, stop)

    def _rows(self, start: int, stop: int) -> Batch:
        if start == stop:
            empty = self._schema.empty_table().select(self._columns)
            return self._batch([self._completed(empty, self._columns)], start, 0)
        stream = self._stream(start)
        batch = self._batch(stream.rows(start, stop), start, stop - start)
        if stream.at == self.n_rows:
            self.pool.streams.remove(stream)
        with within(self._path):
            return base.check_batch(batch, self.feature_names)

    def _stream(self, start: int) -> _Stream:
        """Return the last stream before a row within its group, or a new one."""
        group = int(np.searchsorted(self._groups, start, side="right")) - 1
        first, pool = int(self._groups[group]), self.pool
        near = (s for s in pool.streams if s.path == self._path and first <= s.at <= start)
        stream = max(near, key=lambda s: s.at, default=None)
        if stream is None:
            stream = _Stream(self._path, first, self._tables(group, self._columns))
        others = [s for s in pool.streams if s is not stream]
        pool.streams = [*others[max(0, len(others) - pool.size + 1) :], stream]
        return stream

    def target_chunks(self) -> Iterator[AnyArray]:
        self._require_target()
        at = 0
        with self._stamp.unchanged():
            for table in self._tables(0, [self._target or ""]):
                if table.num_rows:
                    with within(self._path):
                        y = base.checked_targets(self._labels(table, at), at)
                    yield y
                    at += table.num_rows
            if at != self.n_rows:
                raise _wrong_end(self._path, at)

    def digest(self) -> bytes:
        """Return a digest of the columns and of the file, at most of 256 MiB spread evenly."""
        size = self._stamp.state[0]
        digest = hashlib.blake2b(str(size).encode(), digest_size=16)
        with self._stamp.unchanged(), self._path.open("rb") as file:
            for start in spread(size, 2**20):
                file.seek(start)
                digest.update(file.read(2**20))
        return super().digest() + digest.digest()


class _Stream:
    """The rows of a file, decoded in order."""

    def __init__(self, path: Path, at: int, tables: Iterator[Any]) -> None:
        self.path, self.at = path, at  # the next row
        self._tables = tables
        self._rest: Any = None

    def rows(self, start: int, stop: int) -> Iterator[Any]:
        """Yield tables of the rows from `start`, not before `at`, to `stop`."""
        while self.at < stop:
            if self._rest is None:
                self._rest = next(self._tables, None)
                if self._rest is None:
                    raise _wrong_end(self.path, self.at)
            n = self._rest.num_rows
            low, high = min(max(start - self.at, 0), n), min(stop - self.at, n)
            if high > low:
                yield self._rest.slice(low, high - low)
            self._rest = self._rest.slice(high) if high < n else None
            self.at += high


def _wrong_end(path: Path, at: int) -> DataError:
    return DataError(f"{path} ends after row {at}; it is damaged, write it again.")
