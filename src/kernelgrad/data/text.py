"""Text files, which are converted once to Arrow files."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import count, islice, pairwise
from pathlib import Path
from typing import IO, Any

from kernelgrad.data.base import NoRows
from kernelgrad.data.paged import FileSource, decoding, import_pyarrow
from kernelgrad.exceptions import DataError
from kernelgrad.files.disk import ScratchFolder, replacing

FOLDER = "KERNELGRAD_CONVERTED"
"""The environment variable that names the folder of converted files."""

_LINE_BYTES = 256 << 20
_SMALL = 1 << 20  # bytes of plain text that is not worth a file beside it


def _open_zstandard(path: Path) -> IO[bytes]:
    return io.BufferedReader(import_pyarrow().input_stream(str(path), compression="zstd"))


OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".zst": _open_zstandard}


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, decompressed according to its suffix."""
    opener: Any = OPENERS.get(path.suffix.lower(), partial(Path.open, mode="rb"))
    remedy = "it is damaged or cut short, fetch it again"
    with decoding(path, "cannot be decompressed", remedy), opener(path) as stream:
        for number in count(1):
            line = stream.readline(_LINE_BYTES + 1)
            if not line:
                return
            if len(line) > _LINE_BYTES:
                raise DataError(
                    f"{path}: line {number} is longer than {_LINE_BYTES >> 20} MiB; the file "
                    "is not a table of text lines, give another."
                )
            yield line


class TextSource(FileSource):
    """A text file, read from an Arrow file whose record batches are pages of lines.

    A page ends after 8192 lines or 16 MiB. The Arrow file is made when the text is opened for
    the first time, and again if the text has changed or the Arrow file is damaged. It lies
    beside the text (``.rows.csv.arrow``), in the folder that the environment variable
    ``KERNELGRAD_CONVERTED`` names, or in a temporary folder of the process if neither can be
    written, or if the text is plain and at most 1 MiB.

    Subclasses implement `_convert`.
    """

    _is_new = False

    @abstractmethod
    def _convert(self) -> Iterator[Any]:
        """Yield tables of all rows; after a change of types, all rows again."""

    def _pages(self, skip: int = 0) -> Iterator[tuple[bytes, int]]:
        """Yield pages of lines and the number of their first line."""
        page: list[bytes] = []
        size = 0
        for number, line in enumerate(islice(read_lines(self._path), skip, None), 1 + skip):
            page.append(line)
            size += len(line)
            if len(page) == 8192 or size >= 16 << 20:
                yield b"".join(page), number + 1 - len(page)
                page, size = [], 0
        if page:
            yield b"".join(page), number + 1 - len(page)

    def _open_rows(self, column: str) -> Iterator[tuple[int, Any]]:
        """Convert the text, and yield the first row of each page and a table of a column."""
        self._schema = import_pyarrow().ipc.open_file(self._converted()).schema
        counts, first_row = [], 0
        for table in self._tables(0, [column]):
            yield first_row, table
            counts.append(table.num_rows)
            first_row += table.num_rows
        self._set_groups(counts)

    def _check_rows(self) -> None:
        """Check all values if the text was converted just now."""
        for start, stop in pairwise(self._groups.tolist() if self._is_new else ()):
            self.read(start, stop)

    def _tables(self, group: int, columns: Sequence[str]) -> Iterator[Any]:
        pa, stored = import_pyarrow(), list(columns)
        fields = [self._schema.get_field_index(name) for name in stored]
        content = self._converted()
        remedy = f"delete {' or '.join(map(str, _copies(self._path)))}, and open it again"
        with decoding(self._path, "was converted to a file that is damaged", remedy):
            options = pa.ipc.IpcReadOptions(included_fields=fields)
            reader = pa.ipc.open_file(content, options=options)
            for i in range(group, reader.num_record_batches):
                batch = reader.get_batch(i).select(stored)
                batch.validate(full=True)
                yield self._completed(pa.Table.from_batches([batch]), columns)

    def _converted(self) -> str:
        """Return the path of the Arrow file, after making it if necessary."""
        stamp, copies = self._source_stamp(), _copies(self._path)
        for copy in copies:
            if _is_valid(copy, stamp):
                return str(copy)
        self._is_new = True
        reason: object = ""
        for copy in copies:
            try:
                if copy.is_symlink():
                    copy.unlink()
                with replacing(copy) as file:
                    with suppress(AttributeError):  # on Windows
                        os.fchmod(file.fileno(), 0o600)
                    self._write(file, stamp)
                if _is_valid(copy, stamp):
                    return str(copy)
                reason = "it cannot be read again"
            except OSError as error:
                reason = error
        raise DataError(
            f"{self._path} cannot be converted to {copies[-1]} ({reason}); set {FOLDER} to a "
            "folder that can be written and has room."
        )

    def _write(self, file: Any, stamp: dict[str, str]) -> None:
        """Write an Arrow file, anew from the beginning if the types of the tables change."""
        pa = import_pyarrow()
        out: Any = None
        schema: Any = None
        with self._stamp.unchanged():
            for table in self._convert():
                if out is None or table.schema != schema:
                    file.seek(0)
                    file.truncate()
                    schema = table.schema
                    out = pa.ipc.new_file(file, schema.with_metadata(stamp))
                if table.num_rows:
                    out.write_table(table.combine_chunks())  # one record batch
        if out is None:
            raise NoRows(f"{self._path} has no data row; give at least one.")
        out.close()

    def _source_stamp(self) -> dict[str, str]:
        """Return the text that an Arrow file holds which was made of the file as it is."""
        state = self._path.stat()
        with self._path.open("rb") as file:  # 64 KiB at both ends show changes within a tick
            ends = hashlib.blake2b(file.read(1 << 16), digest_size=16)
            file.seek(max(state.st_size - (1 << 16), 0))
            ends.update(file.read(1 << 16))
        version, kind = 1, type(self).__name__
        values = [version, kind, state.st_size, state.st_mtime_ns, ends.hexdigest()]
        return {"kernelgrad": json.dumps(values)}


def _is_valid(copy: Path, stamp: dict[str, str]) -> bool:
    """Return whether an Arrow file is complete and has the given stamp."""
    pa = import_pyarrow()
    with suppress(OSError, pa.ArrowException):
        metadata = pa.ipc.open_file(str(copy)).schema.metadata or {}
        return all(metadata.get(k.encode()) == v.encode() for k, v in stamp.items())
    return False


def _copies(path: Path) -> list[Path]:
    """Return the paths that the Arrow file of a text may have, the best one first."""
    path = path.resolve()
    name = hashlib.blake2b(os.fsencode(path), digest_size=16).hexdigest() + ".arrow"
    small = path.stat().st_size <= _SMALL and path.suffix.lower() not in OPENERS
    if not small and (folder := os.environ.get(FOLDER)):
        return [Path(folder) / name]
    beside = [] if small else [path.with_name(f".{path.name}.arrow")]
    return [*beside, _scratch().path / name]


@cache
def _scratch() -> ScratchFolder:
    return ScratchFolder()
