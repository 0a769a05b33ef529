"""Delimited text with a header."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelgrad.data.base import NoRows
from kernelgrad.data.columns import INDEX, ColumnSource, is_number
from kernelgrad.data.paged import decoding, import_pyarrow
from kernelgrad.data.text import TextSource, read_lines
from kernelgrad.exceptions import DataError

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
