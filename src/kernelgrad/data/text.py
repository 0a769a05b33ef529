"""Text files, which are converted once to Arrow files: CSV and LIBSVM."""

import csv
import hashlib
import io
import json
import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from io import BytesIO
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad.data.base import Batch, NoRows
from kernelgrad.data.columns import INDEX, ColumnSource, is_number
from kernelgrad.data.paged import FileSource, decoding, import_pyarrow
from kernelgrad.exceptions import DataError
from kernelgrad.files.disk import ScratchFolder, replacing
from kernelgrad.types import AnyArray, Matrix
from kernelgrad.validation import check_int

FOLDER = "KERNELGRAD_CONVERTED"
"""The environment variable that names the folder of converted files."""

_LINE_BYTES = 256 << 20
_SMALL = 1 << 20  # bytes of plain text that is not worth a file beside it


PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, decompressed according to its suffix."""
    remedy = "it is damaged or cut short, fetch it again"
    packed = PACKED.get(path.suffix.lower())
    with (
        decoding(path, "cannot be decompressed", remedy),
        import_pyarrow().input_stream(str(path), compression=packed) as raw,
    ):
        stream = io.BufferedReader(raw)
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

    A page ends after 8192 lines or 16 MiB. The Arrow file is made again if the text has changed
    or it is damaged. It lies beside the text (``.rows.csv.arrow``), in the folder that the
    environment variable ``KERNELGRAD_CONVERTED`` names, or in a temporary folder of the process
    if neither can be written, or if the text is plain and at most 1 MiB.
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
    small = path.stat().st_size <= _SMALL and path.suffix.lower() not in PACKED
    if not small and (folder := os.environ.get(FOLDER)):
        return [Path(folder) / name]
    beside = [] if small else [path.with_name(f".{path.name}.arrow")]
    return [*beside, _scratch().path / name]


@cache
def _scratch() -> ScratchFolder:
    return ScratchFolder()


_BAD_ROW = re.compile(r"(?s)Row #(\d+): Expected (\d+) columns, got (\d+): (.*)")


class CsvSource(ColumnSource, TextSource):
    """A CSV or TSV file: plain, `.gz`, `.bz2` or `.zst`.

    The first line contains the column names; the delimiter is the most frequent of comma,
    semicolon and tab in this line. A column holds numbers, booleans or dates if all its values
    do, otherwise text. Without ``as_frame=True`` features are float64. Quoted values must not
    contain line breaks; blank lines are ignored. The first opening checks every value.
    """

    reading_bytes = 40e6  # pages of text and their Arrow tables
    _dtype = np.dtype(np.float64)

    def _header(self) -> list[str]:
        raw = next(read_lines(self._path), b"")
        try:
            text = raw.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self._path}: the header is not UTF-8 ({error}); convert the file to UTF-8."
            ) from None
        self._delimiter = max(",;\t", key=text.count)
        remedy = "write names without line breaks, and lines that end in a line feed"
        with decoding(self._path, "has a header that cannot be read", remedy):
            names = next(csv.reader([text], delimiter=self._delimiter), [])
        if len(names) > 1 and not names[0]:
            names[0] = INDEX  # written by df.to_csv()
        unnamed = [i for i, name in enumerate(names, 1) if not name.strip()]
        if unnamed or not names:
            where = f" with a name for column {unnamed[0]}" if unnamed else ""
            wrong = "does not name every column"
        elif all(map(is_number, names)):
            where, wrong = "", "holds numbers, not column names"
        else:
            self._stored_names = names
            return names
        if not raw:
            raise NoRows(f"{self._path} is empty; write a header line, and rows below it.")
        raise DataError(
            f"{self._path}: the first line {text[:60]!r} {wrong}; write a header line{where}."
        )

    def _open(self) -> None:
        for _ in self._open_rows(self._stored_names[0]):
            pass
        self._set_types()
        self._check_rows()

    def _convert(self) -> Iterator[Any]:
        pa = import_pyarrow()
        kinds: dict[str, set[str]] = {name: set() for name in self._stored_names}
        types: dict[str, Any] = {}
        for _ in range(2):  # again if the types of the first page do not hold all values
            written: dict[str, Any] = {}
            for raw, line in self._pages(1):
                table = self._parse(raw, line, types)
                for field in table.schema:
                    kinds[field.name].add(str(field.type))
                types = {name: _type_of(seen) for name, seen in kinds.items()}
                if not written:
                    written = types
                    if any(types[f.name] == pa.string() != f.type for f in table.schema):
                        table = self._parse(raw, line, types)
                if types == written:
                    yield self._cast(table, types)
            if types == written:
                break

    def _cast(self, table: Any, types: dict[str, Any]) -> Any:
        """Return a table with the given types, which can hold its values."""
        pa = import_pyarrow()
        with decoding(self._path, "holds a date that cannot be stored", "correct it"):
            columns = [
                table.column(name).cast(kind, safe=pa.types.is_temporal(kind))
                for name, kind in types.items()
            ]
        return pa.table(columns, names=list(types))

    def _parse(self, raw: bytes, line: int, types: dict[str, Any]) -> Any:
        """Return the table of a page; text columns are known, others are inferred."""
        pa = import_pyarrow()
        import pyarrow.csv as pc

        for i, text in enumerate(raw.split(b"\n") if b'"' in raw else []):
            if text.count(b'"') % 2:
                raise DataError(
                    f"{self._path}: line {line + i} opens a quoted value that it does not "
                    f"close: {text[:60].decode(errors='replace')!r}; remove line breaks from "
                    "quoted values."
                )
        texts = {name: kind for name, kind in types.items() if kind == pa.string()}
        size = max(len(raw) + 1, 1 << 16)
        options = (
            pc.ReadOptions(column_names=self._stored_names, use_threads=False, block_size=size),
            pc.ParseOptions(delimiter=self._delimiter),
            pc.ConvertOptions(column_types=texts, strings_can_be_null=True),
        )
        not_utf8 = DataError(
            f"{self._path}: text after line {line} is not UTF-8; convert the file to UTF-8."
        )
        try:
            table = pc.read_csv(pa.py_buffer(raw), *options)
        except pa.ArrowInvalid as error:
            if (bad := _BAD_ROW.search(str(error))) is not None:
                number, expected, n_values, shown = bad.groups()
                full = [i for i, text in enumerate(raw.split(b"\n"), line) if text.strip()]
                where = full[min(int(number), len(full)) - 1]  # Arrow skips blank lines
                raise DataError(
                    f"{self._path}: line {where} has {n_values} values instead of {expected}: "
                    f"{shown[:60]!r}; correct the line."
                ) from None
            if "UTF8" in str(error):
                raise not_utf8 from None
            raise DataError(
                f"{self._path}: the page at line {line} cannot be parsed ({error}); correct it."
            ) from None
        if pa.binary() in table.schema.types:
            raise not_utf8
        return table


def _type_of(kinds: set[str]) -> Any:
    """Return the Arrow type of a column from the types inferred for its pages."""
    pa = import_pyarrow()
    present = kinds - {"null"}
    if not present:
        return pa.null()
    if present <= {"int64", "double"}:
        return pa.int64() if kinds == {"int64"} else pa.float64()
    if present == {"bool"}:
        return pa.bool_()
    if present == {"date32[day]"}:
        return pa.date32()
    zones = {"tz=" in kind for kind in present}
    if len(zones) == 1 and all(kind.startswith(("date32", "timestamp")) for kind in present):
        return pa.timestamp("ns", "UTC" if zones == {True} else None)
    return pa.string()


MAX_INDEX = 10_000_000
"""The most features of a file for which no number is given."""

_LARGEST = 2**31 - 1


class LibsvmSource(TextSource):
    """A LIBSVM file: plain, `.gz`, `.bz2` or `.zst`.

    The first opening checks every line. Comments and ``qid`` are ignored. Indices count from 1
    unless index 0 occurs.
    By default `n_features` is the largest index, which may be at most 10,000,000, so that a
    corrupt index does not allocate too much memory.
    """

    is_sparse = True
    has_target = True
    reading_bytes = CsvSource.reading_bytes

    def __init__(self, path: str | os.PathLike[str], *, n_features: int | None = None) -> None:
        super().__init__(Path(path))
        if n_features is not None:
            n_features = check_int(n_features, "n_features", low=1)
        self._columns = ["y", "indices", "values"]
        self._target = "y"
        self._expected = n_features
        with self._stamp.unchanged():
            self._set_bounds()
            self._settle(self._lowest)
            self._check_rows()

    def _set_bounds(self) -> None:
        """Set the lowest index of a feature, and the highest with the negated row of it."""
        self._lowest, self._highest = 1, (-1, 0)
        for first_row, table in self._open_rows("indices"):
            lists = table.column(0).combine_chunks()
            indices = np.asarray(lists.flatten())
            if len(indices):
                self._lowest = min(self._lowest, int(indices.min()))
                at, ends = int(np.argmax(indices)), np.cumsum(lists.value_lengths())
                row = first_row + int(np.searchsorted(ends, at, side="right"))
                self._highest = max(self._highest, (int(indices[at]), -row))

    def _settle(self, lowest: int) -> None:
        """Set the base of indices and the number of features, given the lowest index."""
        highest, minus_row = self._highest
        self._shift = min(lowest, 1)
        n_used = max(highest + 1 - self._shift, 0)
        if n_used > (self._expected or MAX_INDEX):
            limit = f"{self._expected} features expected"
            if self._expected is None:
                limit = f"{MAX_INDEX:,} features that a file may have without n_features="
            raise DataError(
                f"{self._path} has feature index {highest} in row {-minus_row} (rows count "
                f"from 0), beyond the {limit}; correct the file or give a larger n_features."
            )
        self.n_features = n_used if self._expected is None else self._expected
        if self.n_features == 0:
            raise DataError(f"{self._path} has no feature at all; give n_features.")

    @classmethod
    def agree(cls, parts: Sequence[Any]) -> None:
        lowest = min(part._lowest for part in parts)
        for part in parts:
            part._settle(lowest)
        n_features = max(part.n_features for part in parts)
        for part in parts:
            part.n_features = n_features

    def _convert(self) -> Iterator[Any]:
        pa = import_pyarrow()
        kinds = [pa.float64(), pa.list_(pa.int32()), pa.list_(pa.float64())]
        schema = pa.schema(list(zip(self._columns, kinds, strict=True)))
        for raw, line in self._pages():
            try:
                X, y = _load_lines(raw)
            except (ValueError, OverflowError) as error:
                raise self._bad_line(raw, line, error) from None
            offsets = X.indptr.astype(np.int32)
            parts = (X.indices.astype(np.int32), X.data)
            lists = [pa.ListArray.from_arrays(offsets, part) for part in parts]
            yield pa.table([pa.array(y), *lists], schema=schema)

    def _batch(self, tables: Iterable[Any], first_row: int, n: int) -> Batch:
        pages = list(tables)
        y = np.concatenate([self._labels(page, 0) for page in pages])
        lists = [[part for page in pages for part in page.column(i).chunks] for i in (1, 2)]
        kinds = (np.int32, np.float64)
        columns, values = (
            np.concatenate([np.empty(0, kind), *(part.flatten() for part in parts)])
            for kind, parts in zip(kinds, lists, strict=True)
        )
        columns -= self._shift
        if len(columns) and not 0 <= columns.min() <= columns.max() < self.n_features:
            raise self._stamp.changed()
        indptr = np.zeros(n + 1, np.int64)
        np.cumsum(np.concatenate([part.value_lengths() for part in lists[0]]), out=indptr[1:])
        X = sp.csr_matrix((values, columns, indptr), (n, self.n_features))
        return Batch(X, y, None, np.arange(first_row, first_row + n))

    def _labels(self, table: Any, first_row: int) -> AnyArray:
        return np.array(table.column("y"))

    def _bad_line(self, raw: bytes, line: int, error: Exception) -> DataError:
        for i, text in enumerate(raw.split(b"\n"), line):
            try:
                _load_lines(text)
            except (ValueError, OverflowError) as wrong:
                shown = text[:60].decode(errors="replace")
                return DataError(
                    f"{self._path}: line {i} is not in LIBSVM format ({wrong}): {shown!r}; "
                    "correct or delete it."
                )
        return DataError(f"{self._path}: bad page at line {line} ({error}); correct it.")


def _load_lines(raw: bytes) -> tuple[Matrix, AnyArray]:
    from sklearn.datasets import load_svmlight_file  # imports pandas, so only when needed

    X, y = load_svmlight_file(BytesIO(raw), zero_based=True)
    if X.nnz and X.indices.max() >= _LARGEST:
        raise ValueError(f"feature index {X.indices.max()} is beyond {_LARGEST}")
    return X, y
