"""Sources that are decoded piece by piece."""

from __future__ import annotations

import bz2
import gzip
import io
import shutil
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from copy import copy
from pathlib import Path
from threading import RLock
from typing import IO, Any

import numpy as np

from kernelgrad.data.base import (
    Batch,
    BatchSource,
    NoRows,
    check_batch,
    check_range,
    concat_batches,
    index_batch,
    n_places,
)
from kernelgrad.data.damage import decoding, within
from kernelgrad.data.stamp import Stamp
from kernelgrad.exceptions import DataError
from kernelgrad.files.disk import ScratchFolder
from kernelgrad.types import IntArray

PAGE_LINES = 8192
PAGE_BYTES = 16 << 20
_LINE_BYTES = 256 << 20


def import_pyarrow() -> Any:
    """Return pyarrow; raise ImportError with the command that installs it."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError(
            "Reading CSV, Parquet and .zst needs pyarrow: pip install kernelgrad[io]"
        ) from None
    return pyarrow


def _open_zstandard(path: Path) -> IO[bytes]:
    return io.BufferedReader(import_pyarrow().input_stream(str(path), compression="zstd"))


OPENERS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".zst": _open_zstandard,
}


class Pool:
    """Cache of the pieces opened or decoded last, one for each place that is read from."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._items: list[Any] = []  # the most recently used one is last

    def use(self, wanted: Callable[[list[Any]], Any], make: Callable[[], Any]) -> Any:
        """Return the item that `wanted` selects; if there is none, add that of `make`."""
        item = wanted(self._items)
        if item is None:
            del self._items[: max(0, len(self._items) - self.size + 1)]  # before memory grows
            item = make()
        self.drop(item)
        self._items.append(item)
        return item

    def drop(self, item: Any) -> None:
        """Remove one item."""
        self._items = [other for other in self._items if other is not item]

    def clear(self) -> None:
        """Remove all items."""
        self._items = []


class PagedSource(BatchSource):
    """A source that consists of units, such as row groups or pages.

    Subclasses call `_set_rows` and implement `_piece`. They keep decoded data in `pool`, which
    all files of a source share.
    """

    _starts: IntArray  # the first row of every unit, then the number of rows
    _lock: RLock  # one thread reads at a time
    _pool: Pool | None = None

    @abstractmethod
    def _piece(self, unit: int, low: int, high: int) -> Batch:
        """Return rows `low` to `high` of a unit, which may be empty."""

    def _set_rows(self, counts: Sequence[int]) -> None:
        """Set the numbers of rows of all units."""
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.n_rows = int(self._starts[-1])
        self._lock = RLock()

    @property
    def pool(self) -> Pool:
        """The cache of recent reads."""
        if self._pool is None:
            self._pool = Pool(n_places(self.n_features))
        return self._pool

    def block_starts(self) -> IntArray | None:
        return np.unique(self._starts[:-1][np.diff(self._starts) > 0])

    def read(self, start: int, stop: int) -> Batch:
        start, stop = check_range(start, stop, self.n_rows)
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        first = min(first, int(np.searchsorted(self._starts, self.n_rows)) - 1)
        parts: list[Batch] = []
        with self._lock:
            for unit in range(first, len(self._starts) - 1):
                low, high = int(self._starts[unit]), int(self._starts[unit + 1])
                if parts and low >= stop:
                    break
                if high > low:
                    a = max(start - low, 0)
                    parts.append(self._piece(unit, a, max(min(stop, high) - low, a)))
            if stop - start == self.n_rows:
                self.pool.clear()  # the batch has all rows: parts are not needed
        return concat_batches(parts)

    def take(self, rows: IntArray) -> Batch:
        source = copy(self)  # with its own cache: each unit is decoded once
        source.pool.size = 1
        return super(PagedSource, source).take(rows)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=RLock())


class FileSource(PagedSource):
    """A source that reads one file.

    Subclasses call `__init__` before reading.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = Stamp.of(path)

    def _set_rows(self, counts: Sequence[int]) -> None:
        super()._set_rows(counts)
        if self.n_rows == 0:
            raise NoRows(f"{self._path} has no data row; give at least one.")

    def read(self, start: int, stop: int) -> Batch:
        with self._stamp.unchanged():
            return super().read(start, stop)

    def digest(self) -> bytes:
        """Return a digest of the file and of the columns that are read."""
        return super().digest() + self._stamp.digest()

    def _checked(self, batch: Batch) -> Batch:
        with within(self._path):
            return check_batch(batch, self.feature_names)


def open_text(path: Path) -> IO[bytes]:
    """Open a file for reading bytes, decompressed according to its suffix."""
    opener = OPENERS.get(path.suffix.lower())
    stream: IO[bytes] = path.open("rb") if opener is None else opener(path)
    return stream


def decompressing(path: Path) -> AbstractContextManager[None]:
    """Convert errors of decompression to DataError naming the file."""
    return decoding(
        path, "cannot be decompressed", "it is damaged or cut short, fetch it again"
    )


class _Unpacked:
    """A compressed file, unpacked to a temporary file that is deleted after its last use."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder: ScratchFolder | None = None

    def open(self) -> IO[bytes]:
        """Return a stream of the decompressed text."""
        if self._folder is None:
            try:
                folder = ScratchFolder()
                with (
                    (folder.path / "plain").open("wb") as plain,
                    decompressing(self._path),
                    open_text(self._path) as packed,
                ):
                    shutil.copyfileobj(packed, plain, 1 << 20)
            except OSError as error:
                raise DataError(
                    f"{self._path} cannot be decompressed to a temporary file ({error}); set "
                    "TMPDIR to a folder with more room, or decompress the file."
                ) from None
            self._folder = folder
        return (self._folder.path / "plain").open("rb")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_folder": None}  # other processes unpack their own copy


class TextSource(FileSource):
    """A text file as pages of lines, indexed by one scan that parses and checks every page.

    A page ends after 8192 lines or 16 MiB. The index has the byte offset, the first line and
    the first row of every page, so that pages can be read in any order. A compressed file is
    decompressed once, to a temporary file: later passes cost as much as for plain text, and
    random rows can be read without decompressing all rows before them.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._unpacked = _Unpacked(path) if path.suffix.lower() in OPENERS else None
        self._offsets: list[int] = []
        self._lines: list[int] = []
        self._stream: IO[bytes] | None = None

    @abstractmethod
    def _parse(self, raw: bytes, line: int, first_row: int) -> Batch:
        """Decode the lines of a page that begins at line number `line`."""

    def _open_plain(self) -> IO[bytes]:
        return self._path.open("rb") if self._unpacked is None else self._unpacked.open()

    def _index(
        self, parse: Callable[[bytes, int, int], Batch], header_lines: int = 0
    ) -> Iterator[Batch]:
        """Yield all pages, parsed and checked; after the last one the index is complete."""
        counts: list[int] = []
        with self._stamp.unchanged(), self._open_plain() as stream:
            offset = sum(len(stream.readline()) for _ in range(header_lines))
            line, first_row = 1 + header_lines, 0
            while page := self._read_page(stream, line):
                raw = b"".join(page)
                self._offsets.append(offset)
                self._lines.append(line)
                batch = self._checked(parse(raw, line, first_row))
                counts.append(len(batch.rows))
                first_row += counts[-1]
                yield batch
                offset += len(raw)
                line += len(page)
            self._offsets.append(offset)
        self._set_rows(counts)

    def _read_page(self, stream: IO[bytes], first: int) -> list[bytes]:
        page: list[bytes] = []
        size = 0
        while len(page) < PAGE_LINES and size < PAGE_BYTES:
            text = stream.readline(_LINE_BYTES + 1)
            if not text:
                break
            if len(text) > _LINE_BYTES:
                raise DataError(
                    f"{self._path}: line {first + len(page)} is longer than "
                    f"{_LINE_BYTES >> 20} MiB; the file is not a table of text lines, give "
                    "another."
                )
            page.append(text)
            size += len(text)
        return page

    def _raw(self, unit: int) -> bytes:
        with self._lock:
            if self._stream is None:
                self._stream = self._open_plain()
                weakref.finalize(self, self._stream.close)
            self._stream.seek(self._offsets[unit])
            return self._stream.read(self._offsets[unit + 1] - self._offsets[unit])

    def _piece(self, unit: int, low: int, high: int) -> Batch:
        def known(items: list[Any]) -> Any:
            return next((item for item in items if item[:2] == (self._path, unit)), None)

        found = self.pool.use(known, lambda: (self._path, unit, self._load(unit)))
        return index_batch(found[2], slice(low, high))

    def _load(self, unit: int) -> Batch:
        first = int(self._starts[unit])
        batch = self._parse(self._raw(unit), self._lines[unit], first)
        if len(batch.rows) != int(self._starts[unit + 1]) - first:
            raise self._stamp.changed()
        return self._checked(batch)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_stream": None}
