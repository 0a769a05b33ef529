"""Sources that are decoded one unit (row group, page of lines) at a time."""

from __future__ import annotations

import bz2
import gzip
import weakref
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from kernelgrad._typing import AnyArray, IntArray
from kernelgrad.data.base import (
    Batch,
    BatchSource,
    check_batch,
    check_range,
    concat_batches,
    index_batch,
)
from kernelgrad.exceptions import DataError

PAGE_LINES = 8192
PAGE_BYTES = 16 << 20
_LINE_BYTES = 256 << 20
_OPENERS: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open}


class PagedSource(BatchSource):
    """A source made of units; the unit decoded last is kept.

    Subclasses set `_path`, call `_set_rows` and implement `_load`.
    """

    _path: Path
    _starts: IntArray  # the first row of every unit, then the number of rows
    _cached: tuple[int, Batch] | None = None

    @abstractmethod
    def _load(self, unit: int) -> Batch:
        """Decode one unit."""

    def _set_rows(self, counts: Sequence[int]) -> None:
        """Set the numbers of rows of all units."""
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.n_rows = int(self._starts[-1])
        if self.n_rows == 0:
            raise DataError(f"{self._path} has no data row; give at least one.")

    def block_starts(self) -> IntArray:
        """Return the first row of every unit that has rows."""
        return np.unique(self._starts[:-1][np.diff(self._starts) > 0])

    def read(self, start: int, stop: int) -> Batch:
        """Return rows `start` (included) to `stop` (excluded)."""
        start, stop = check_range(start, stop, self.n_rows)
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        first = min(first, int(np.searchsorted(self._starts, self.n_rows)) - 1)
        parts: list[Batch] = []
        for unit in range(first, len(self._starts) - 1):
            low, high = int(self._starts[unit]), int(self._starts[unit + 1])
            if parts and low >= stop:
                break
            if high > low:
                piece = slice(max(start - low, 0), max(min(stop, high) - low, 0))
                parts.append(index_batch(self._unit(unit), piece))
        return concat_batches(parts)

    def _unit(self, unit: int) -> Batch:
        if self._cached is None or self._cached[0] != unit:
            self._cached = None  # never two decoded units at once
            self._cached = unit, self._checked(self._load(unit))
        return self._cached[1]

    def _checked(self, batch: Batch) -> Batch:
        try:
            return check_batch(batch, self.feature_names)
        except DataError as error:
            raise DataError(f"{self._path}: {error}") from None

    def _checked_target(self, y: AnyArray, first_row: int) -> AnyArray:
        self._checked(Batch(np.empty((len(y), 0)), y, None, numbers(first_row, len(y))))
        return y


def numbers(first_row: int, n: int) -> IntArray:
    """Return the numbers of `n` rows from `first_row` on."""
    return np.arange(first_row, first_row + n, dtype=np.int64)


def open_text(path: Path) -> IO[bytes]:
    """Open a file for reading bytes, decompressing `.gz` and `.bz2`."""
    opener = _OPENERS.get(path.suffix.lower())
    stream: IO[bytes] = path.open("rb") if opener is None else opener(path)
    return stream


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn the errors of decompression into one that names the file."""
    try:
        yield
    except (EOFError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the operating system's own
        raise DataError(
            f"{path} cannot be decompressed ({error}); it is damaged or cut short, fetch it "
            "again."
        ) from None


class TextSource(PagedSource):
    """Pages of lines, indexed by one scan that also parses and checks every page.

    A page ends after 8192 lines or 16 MiB. The index is the byte offset, the first line and
    the first row of every page; pages of a plain file are then read in any order, those of
    a compressed one by decompressing forward.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seekable = path.suffix.lower() not in _OPENERS
        self._offsets: list[int] = []
        self._lines: list[int] = []
        self._stream: IO[bytes] | None = None

    @abstractmethod
    def _parse(self, raw: bytes, line: int, first_row: int) -> Batch:
        """Decode the lines of a page, of which the first is line number `line`."""

    def _index(
        self, parse: Callable[[bytes, int, int], Batch], header_lines: int = 0
    ) -> Iterator[Batch]:
        """Yield all pages, parsed and checked; the index is complete with the last one."""
        counts: list[int] = []
        with damage_named(self._path), open_text(self._path) as stream:
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
        if self._stream is None:
            self._stream = open_text(self._path)
            weakref.finalize(self, self._stream.close)
        with damage_named(self._path):
            self._stream.seek(self._offsets[unit])
            return self._stream.read(self._offsets[unit + 1] - self._offsets[unit])

    def _load(self, unit: int) -> Batch:
        first = int(self._starts[unit])
        batch = self._parse(self._raw(unit), self._lines[unit], first)
        if len(batch.rows) != int(self._starts[unit + 1]) - first:
            raise DataError(
                f"{self._path} has changed since it was opened (page at line "
                f"{self._lines[unit]}); open it again."
            )
        return batch

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None}
