"""Line-based files, plain or compressed, cut into pages of whole lines."""

from __future__ import annotations

import bz2
import gzip
import weakref
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from kernelgrad._typing import IntArray
from kernelgrad._validation import DataError
from kernelgrad.data._paged import PagedSource
from kernelgrad.data.base import Batch

PAGE_LINES = 8192
PAGE_BYTES = 16 << 20
_LINE_BYTES = 256 << 20

_OPENERS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
}


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

    def _scan(self, header_lines: int = 0) -> Iterator[tuple[bytes, int]]:
        """Yield the bytes and the first line number (from 1) of every page."""
        with damage_named(self._path), open_text(self._path) as stream:
            line, offset = 1, 0
            for _ in range(header_lines):
                offset += len(stream.readline())
                line += 1
            while page := self._read_page(stream, line):
                raw = b"".join(page)
                self._offsets.append(offset)
                self._lines.append(line)
                yield raw, line
                offset += len(raw)
                line += len(page)
            self._offsets.append(offset)

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

    def _set_rows(self, counts: list[int]) -> None:
        self._starts: IntArray = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.n_rows = int(self._starts[-1])
        if self.n_rows == 0:
            raise DataError(f"{self._path} has no data row; give at least one.")

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
