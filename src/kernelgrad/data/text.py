"""Text files, which are converted once to Arrow files."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import io
import json
import os
import stat
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Any

from kernelgrad.data.paged import FileSource, decoding, import_pyarrow
from kernelgrad.exceptions import DataError
from kernelgrad.files.disk import replacing

FOLDER = "KERNELGRAD_CONVERTED"
"""The environment variable that names the folder of converted files."""

SCRATCH_BYTES = 32 << 30
"""The most that converted files take in the temporary folder of a user."""

PAGE_LINES = 8192
PAGE_BYTES = 16 << 20
_LINE_BYTES = 256 << 20
_SMALL = 1 << 20  # bytes of a file whose Arrow file stays in memory
_ENDS = 1 << 16  # bytes at both ends of a file that show a change
_VERSION = 1


def _open_zstandard(path: Path) -> IO[bytes]:
    return io.BufferedReader(import_pyarrow().input_stream(str(path), compression="zstd"))


OPENERS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".zst": _open_zstandard,
}


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, decompressed according to its suffix."""
    opener = OPENERS.get(path.suffix.lower())
    remedy = "it is damaged or cut short, fetch it again"
    with decoding(path, "cannot be decompressed", remedy):
        stream: IO[bytes] = path.open("rb") if opener is None else opener(path)
        with stream:
            number = 0
            while line := stream.readline(_LINE_BYTES + 1):
                number += 1
                if len(line) > _LINE_BYTES:
                    raise DataError(
                        f"{path}: line {number} is longer than {_LINE_BYTES >> 20} MiB; the "
                        "file is not a table of text lines, give another."
                    )
                yield line


class Writer:
    """Writes an Arrow file, which can be begun anew with other types."""

    def __init__(self, file: Any, stamp: dict[str, str], room: float) -> None:
        self._file, self._stamp, self._room = file, stamp, room
        self._out: Any = None

    def begin(self, schema: Any) -> None:
        """Delete what was written and begin a file with the given types."""
        self._file.seek(0)
        self._file.truncate()
        pa = import_pyarrow()
        self._out = pa.ipc.new_file(self._file, schema.with_metadata(self._stamp))

    def add(self, table: Any) -> None:
        """Write the rows of a table as one record batch."""
        if table.num_rows:
            self._out.write_table(table.combine_chunks())
        if self._file.tell() > self._room:
            raise DataError(
                f"The converted text files in the temporary folder would take more than "
                f"{SCRATCH_BYTES >> 30} GiB; set {FOLDER} to a folder for them, or delete some "
                f"in {_scratch()}."
            )

    def close(self) -> None:
        """Complete the file."""
        self._out.close()


class TextSource(FileSource):
    """A text file, read from an Arrow file whose record batches are pages of lines.

    A page ends after 8192 lines or 16 MiB. The Arrow file is made when the text is opened for
    the first time, and again if the text has changed or the Arrow file is damaged. It lies
    beside the text (``.rows.csv.arrow``), in the folder that the environment variable
    ``KERNELGRAD_CONVERTED`` names, or in a temporary folder of the user if neither can be
    written. Plain text of at most 1 MiB is converted in memory instead.

    Subclasses implement `_convert`.
    """

    _content: Any = None  # the path or the bytes of the Arrow file; None if it is looked for
    _is_new = False

    @abstractmethod
    def _convert(self, out: Writer) -> None:
        """Write all rows of the text."""

    def _pages(self, skip: int = 0) -> Iterator[tuple[bytes, int]]:
        """Yield pages of lines and the number of their first line."""
        page: list[bytes] = []
        size = 0
        for number, line in enumerate(islice(read_lines(self._path), skip, None), 1 + skip):
            page.append(line)
            size += len(line)
            if len(page) == PAGE_LINES or size >= PAGE_BYTES:
                yield b"".join(page), number + 1 - len(page)
                page, size = [], 0
        if page:
            yield b"".join(page), number + 1 - len(page)

    def _open_rows(self, column: str) -> Iterator[tuple[int, Any]]:
        """Convert the text, and yield the first row and the values of each batch."""
        self._content = self._converted()
        self._schema = import_pyarrow().ipc.open_file(self._content).schema
        counts, first_row = [], 0
        for batch in self._batches(0, [column]):
            yield first_row, batch.column(0)
            counts.append(batch.num_rows)
            first_row += batch.num_rows
        self._set_groups(counts)

    def _check_rows(self) -> None:
        """Check all values if the text was converted just now."""
        if self._is_new:
            for start, stop in pairwise(self._groups.tolist()):
                self.read(start, stop)
        if isinstance(self._content, str):
            self._content = None

    @property
    def table_bytes(self) -> int:
        """Bytes of the table of a small file, which stays in memory."""
        return 0 if self._content is None else int(self._content.size)

    def forget(self) -> None:
        """Free the table of a small file, which is parsed at every read from now on."""
        self._content = None

    def _batches(self, group: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield record batches of some columns; others are not read."""
        pa = import_pyarrow()
        fields = [self._schema.get_field_index(name) for name in columns]
        content = self._converted() if self._content is None else self._content
        remedy = f"delete {' or '.join(map(str, _places(self._path)))}, and open it again"
        with decoding(self._path, "was converted to a file that is damaged", remedy):
            options = pa.ipc.IpcReadOptions(included_fields=fields)
            reader = pa.ipc.open_file(content, options=options)
            for i in range(group, reader.num_record_batches):
                batch = reader.get_batch(i).select(columns)
                batch.validate(full=True)
                yield batch

    def _tables(self, group: int, columns: Sequence[str]) -> Iterator[Any]:
        for batch in self._batches(group, self._stored(columns)):
            yield self._completed(import_pyarrow().Table.from_batches([batch]), columns)

    def _converted(self) -> Any:
        """Return the path or the bytes of the Arrow file, after making it if necessary."""
        self._is_new = True
        size = self._path.stat().st_size
        if size <= _SMALL and self._path.suffix.lower() not in OPENERS:
            memory = io.BytesIO()
            self._write(Writer(memory, {}, float("inf")))
            return import_pyarrow().py_buffer(memory.getvalue())
        stamp, places = self._source_stamp(), _places(self._path)
        for place in places:
            if self._is_valid(place, stamp):
                self._is_new = False
                return str(place)
        reason: object = ""
        for place in places:
            try:
                self._make(place, stamp)
                if self._is_valid(place, stamp):
                    return str(place)
                reason = "it cannot be read again"
            except OSError as error:
                reason = error
        raise DataError(
            f"{self._path} cannot be converted to {places[-1]} ({reason}); set {FOLDER} to a "
            "folder that can be written and has room."
        )

    def _make(self, place: Path, stamp: dict[str, str]) -> None:
        source, room = self._path.stat(), float("inf")
        if place.parent == _scratch():
            _make_private(place.parent)
            others = (file for file in place.parent.glob("*.arrow") if file != place)
            room = SCRATCH_BYTES - sum(file.stat().st_size for file in others)
        if place.is_symlink():
            place.unlink()
        with replacing(place) as file:
            if hasattr(os, "fchmod"):  # nobody reads the copy who cannot read the text
                same = os.fstat(file.fileno()).st_gid == source.st_gid
                os.fchmod(file.fileno(), source.st_mode & (0o644 if same else 0o600))
            self._write(Writer(file, stamp, room))

    def _write(self, out: Writer) -> None:
        with self._stamp.unchanged():
            self._convert(out)
        out.close()

    def _is_valid(self, place: Path, stamp: dict[str, str]) -> bool:
        """Return whether an Arrow file is complete and has the given stamp."""
        pa = import_pyarrow()
        with suppress(OSError, pa.ArrowException):
            owner = place.lstat().st_uid
            if owner in (self._path.stat().st_uid, getattr(os, "getuid", lambda: owner)()):
                metadata = pa.ipc.open_file(str(place)).schema.metadata or {}
                return all(metadata.get(k.encode()) == v.encode() for k, v in stamp.items())
        return False

    def _source_stamp(self) -> dict[str, str]:
        """Return what shows that an Arrow file was made of the text as it is."""
        state = self._path.stat()
        with self._path.open("rb") as file:
            ends = hashlib.blake2b(file.read(_ENDS), digest_size=16)
            file.seek(max(state.st_size - _ENDS, 0))
            ends.update(file.read(_ENDS))
        kind = type(self).__name__
        found = [_VERSION, kind, state.st_size, state.st_mtime_ns, ends.hexdigest()]
        return {"kernelgrad": json.dumps(found)}


def _places(path: Path) -> list[Path]:
    """Return where the Arrow file of a text file may lie, the best place first."""
    path = path.resolve()
    beside = path.with_name(f".{path.name}.arrow")
    name = hashlib.blake2b(os.fsencode(path), digest_size=16).hexdigest() + ".arrow"
    folder = os.environ.get(FOLDER)
    return [Path(folder) / name] if folder else [beside, _scratch() / name]


def _scratch() -> Path:
    """Return the temporary folder of this user's converted files."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"kernelgrad-converted-{user}"


def _make_private(folder: Path) -> None:
    """Make a folder that only this user can read and write."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    state = folder.lstat()
    if hasattr(os, "getuid") and (
        not stat.S_ISDIR(state.st_mode) or state.st_mode & 0o077 or state.st_uid != os.getuid()
    ):
        raise PermissionError(errno.EACCES, "it is not private to this user", str(folder))
