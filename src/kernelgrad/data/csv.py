"""Delimited text with a header."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelgrad.data.base import NoRows
from kernelgrad.data.columns import INDEX, ColumnSource, is_number
from kernelgrad.data.damage import decoding
from kernelgrad.data.paged import import_pyarrow
from kernelgrad.data.text import TextSource, Writer, read_lines
from kernelgrad.exceptions import DataError

_DELIMITERS = ",;\t"
_BAD_ROW = re.compile(r"(?s)Row #(\d+): Expected (\d+) columns, got (\d+): (.*)")


class CsvSource(ColumnSource, TextSource):
    """A CSV or TSV file: plain, `.gz`, `.bz2` or `.zst`.

    The first line contains the column names; the delimiter is the most frequent of comma,
    semicolon and tab in this line. A column holds numbers, booleans or dates if all its values
    do, otherwise text. Without ``as_frame=True`` features are float64. Quoted values must not
    contain line breaks; blank lines are ignored. The first opening checks every value.

    Parameters
    ----------
    path : path
        The file.
    target, weight, drop, feature_names, as_frame, keys
        As in :class:`ColumnSource`.
    """

    reading_bytes = 40e6  # pages of text and their Arrow tables
    _dtype = np.dtype(np.float64)

    def _open(self, drop: Sequence[str], feature_names: Sequence[str] | None) -> None:
        self._read_header()
        self._set_columns(self._header, drop, feature_names)
        for _ in self._open_rows(self._header[0]):
            pass
        self._set_types()
        self._check_rows()

    def _read_header(self) -> None:
        raw = next(read_lines(self._path), b"")
        try:
            text = raw.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self._path}: the header is not UTF-8 ({error}); convert the file to UTF-8."
            ) from None
        self._delimiter = max(_DELIMITERS, key=text.count)
        remedy = "write names without line breaks, and lines that end in a line feed"
        with decoding(self._path, "has a header that cannot be read", remedy):
            self._header = next(csv.reader([text], delimiter=self._delimiter), [])
        if len(self._header) > 1 and not self._header[0]:
            self._header[0] = INDEX  # written by df.to_csv()
        unnamed = [i for i, name in enumerate(self._header, 1) if not name.strip()]
        if unnamed or not self._header:
            where = f" with a name for column {unnamed[0]}" if unnamed else ""
            raise (DataError if raw else NoRows)(
                f"{self._path}: the first line {text[:60]!r} does not name every column; "
                f"write a header line{where}."
            )
        if all(is_number(name) for name in self._header):
            raise DataError(
                f"{self._path}: the first line {text[:60]!r} holds numbers, not column names; "
                "write a header line."
            )

    def _check_quotes(self, raw: bytes, line: int) -> None:
        for i, text in enumerate(raw.split(b"\n")):
            if text.count(b'"') % 2:
                raise DataError(
                    f"{self._path}: line {line + i} opens a quoted value that it does not "
                    f"close: {text[:60].decode(errors='replace')!r}; remove line breaks from "
                    "quoted values."
                )

    def _convert(self, out: Writer) -> None:
        kinds: dict[str, set[str]] = {name: set() for name in self._header}
        types: dict[str, Any] = {}
        fits = True  # whether the types of the first page are those of all
        for raw, line in self._pages(1):
            if b'"' in raw:
                self._check_quotes(raw, line)
            table = self._parse(raw, line, types)
            for name, kind in zip(table.column_names, table.schema.types, strict=True):
                kinds[name].add(str(kind))
            known = types
            types = {name: _type_of(found) for name, found in kinds.items()}
            if not known:
                out.begin(import_pyarrow().schema(types))
                if any(map(_is_new_text, types.values(), table.schema.types)):
                    table = self._parse(raw, line, types)
            fits = fits and types == (known or types)
            if fits:
                out.add(self._cast(table, types))
        if not types:
            raise NoRows(f"{self._path} has no data row; give at least one.")
        if not fits:
            out.begin(import_pyarrow().schema(types))
            for raw, line in self._pages(1):
                out.add(self._cast(self._parse(raw, line, types), types))

    def _cast(self, table: Any, types: dict[str, Any]) -> Any:
        """Return a table with the given types, which can hold its values."""
        import pyarrow.types as pt

        with decoding(self._path, "holds a date that cannot be stored", "correct it"):
            columns = [
                table.column(name).cast(kind, safe=bool(pt.is_temporal(kind)))
                for name, kind in types.items()
            ]
        return import_pyarrow().table(columns, names=list(types))

    def _parse(self, raw: bytes, line: int, types: dict[str, Any]) -> Any:
        """Return the table of a page; text columns are known, others are inferred."""
        pa = import_pyarrow()
        import pyarrow.csv as pc

        text = {name: kind for name, kind in types.items() if kind == pa.string()}
        try:
            table = pc.read_csv(
                pa.py_buffer(raw),
                read_options=pc.ReadOptions(
                    column_names=self._header,
                    use_threads=False,
                    block_size=max(len(raw) + 1, 1 << 16),
                ),
                parse_options=pc.ParseOptions(delimiter=self._delimiter),
                convert_options=pc.ConvertOptions(column_types=text, strings_can_be_null=True),
            )
        except pa.ArrowInvalid as error:
            if (bad := _BAD_ROW.search(str(error))) is not None:
                number, expected, found, shown = bad.groups()
                where = _line_of(raw, int(number)) + line
                raise DataError(
                    f"{self._path}: line {where} has {found} values instead of {expected}: "
                    f"{shown[:60]!r}; correct the line."
                ) from None
            if "UTF8" in str(error):
                raise self._not_utf8(line) from None
            raise DataError(
                f"{self._path}: the page at line {line} cannot be parsed ({error}); correct it."
            ) from None
        if any(str(kind) == "binary" for kind in table.schema.types):
            raise self._not_utf8(line)
        return table

    def _not_utf8(self, line: int) -> DataError:
        return DataError(
            f"{self._path}: text after line {line} is not UTF-8; convert the file to UTF-8."
        )


def _is_new_text(kind: Any, inferred: Any) -> bool:
    return str(kind) == "string" != str(inferred)


def _type_of(kinds: set[str]) -> Any:
    """Return the Arrow type of a column from the types inferred for its pages."""
    pa = import_pyarrow()
    found = kinds - {"null"}
    if not found:
        return pa.null()
    if found <= {"int64", "double"}:
        return pa.int64() if kinds == {"int64"} else pa.float64()
    if found == {"bool"}:
        return pa.bool_()
    if found == {"date32[day]"}:
        return pa.date32()
    if all(kind.startswith("timestamp") and "tz=" in kind for kind in found):
        return pa.timestamp("ns", "UTC")
    dates = all(
        kind.startswith(("date32", "timestamp")) and "tz=" not in kind for kind in found
    )
    return pa.timestamp("ns") if dates else pa.string()


def _line_of(raw: bytes, number: int) -> int:
    """Return the index of the line with the given row (from 1), skipping blank lines."""
    for i, text in enumerate(raw.split(b"\n")):
        number -= bool(text.strip())
        if number == 0:
            return i
    return 0
