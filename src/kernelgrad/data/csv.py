"""Delimited text with a header."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Any

from kernelgrad.data.base import Batch, NoRows
from kernelgrad.data.columns import INDEX, ColumnSource, text_feature
from kernelgrad.data.damage import decoding
from kernelgrad.data.paged import TextSource, decompressing, import_pyarrow, open_text
from kernelgrad.exceptions import DataError

_DELIMITERS = ",;\t"
_BOOLEANS = frozenset(("true", "false", "True", "False", "TRUE", "FALSE", "0", "1"))
_BAD_ROW = re.compile(r"(?s)Row #(\d+): Expected (\d+) columns, got (\d+): (.*)")
_TYPES = {"i": "int64", "f": "float64", "b": "bool"}


class CsvSource(ColumnSource, TextSource):
    """A CSV or TSV file: plain, `.gz`, `.bz2` or `.zst`.

    The first line contains the column names; the delimiter is the most frequent of comma,
    semicolon and tab in this line. Opening the file parses it once, which checks every value.
    Features are float64. The target is int64, float64 or bool if all its values are, otherwise
    text. Quoted values must not contain line breaks; blank lines are ignored. With
    ``as_frame=True`` a column holds numbers, booleans or dates if all its values do, otherwise
    text.

    Parameters
    ----------
    path : path
        The file.
    target, weight, drop, feature_names, as_frame, keys
        As in :class:`ColumnSource`.
    """

    reading_bytes = 40e6  # blocks of text and their Arrow tables

    def _open(self, drop: Sequence[str], feature_names: Sequence[str] | None) -> None:
        TextSource.__init__(self, self._path)
        self._read_header()
        self._set_columns(self._header, drop, feature_names)
        self._target_type: str | None = None
        self._booleans: frozenset[str] = frozenset()
        self._kinds: dict[str, set[str]] = {name: set() for name in self.feature_names}
        self._frame_types: dict[str, Any] = {}
        types: set[str] = set()
        for batch in self._index(self._first_parse, header_lines=1):
            if batch.y is not None and len(batch.y):
                types.add(_TYPES.get(batch.y.dtype.kind, "string"))
        if types:
            numeric = types == {"int64", "float64"}
            only = types.pop() if len(types) == 1 else "string"
            self._target_type = "float64" if numeric else only
            alias = import_pyarrow().type_for_alias
            self._arrow_types[self._target or ""] = alias(self._target_type)
        if self.as_frame:
            kinds = self._kinds.items()
            self._frame_types = {name: _type_of(found) for name, found in kinds}
            empty = {name: import_pyarrow().null() for name, k in kinds if k == {"null"}}
            self._arrow_types |= self._frame_types | empty

    def _read_header(self) -> None:
        with decompressing(self._path), open_text(self._path) as stream:
            raw = stream.readline(1 << 26)
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
        if all(_is_number(name) for name in self._header):
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

    def _infer(self, raw: bytes, line: int) -> frozenset[str]:
        """Return the boolean features; raise DataError if a feature is text."""
        table = self._table(raw, line, self.feature_names, {})
        kinds = {name: str(table.column(name).type) for name in self.feature_names}
        for name, kind in kinds.items():
            if kind not in ("int64", "double", "bool", "null"):
                found = self._find_text(raw, line, name)
                raise text_feature(self._path, name, "a date") if found is None else found
        return frozenset(name for name, kind in kinds.items() if kind == "bool")

    def _types(self) -> dict[str, Any]:
        """Return the Arrow types of the columns whose type is known."""
        pa = import_pyarrow()
        types = dict.fromkeys(self._columns, pa.float64())
        types |= dict.fromkeys(self._booleans, pa.bool_())
        if self.as_frame:  # unknown until every page has been parsed
            types = {k: v for k, v in types.items() if k not in self._kinds}
            types |= self._frame_types
        if self._target is not None:
            del types[self._target]
            if self._target_type is not None:
                types[self._target] = pa.type_for_alias(self._target_type)
        return types

    def _table(
        self, raw: bytes, line: int, columns: Sequence[str], types: dict[str, Any]
    ) -> Any:
        pa = import_pyarrow()
        import pyarrow.csv as pc

        try:
            table = pc.read_csv(
                pa.py_buffer(raw),
                read_options=pc.ReadOptions(
                    column_names=self._header,
                    use_threads=False,
                    block_size=max(len(raw) + 1, 1 << 16),
                ),
                parse_options=pc.ParseOptions(delimiter=self._delimiter),
                convert_options=pc.ConvertOptions(
                    include_columns=self._stored(columns) or self._header[:1],
                    column_types=types,
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            if (bad := _BAD_ROW.search(str(error))) is not None:
                number, expected, found, text = bad.groups()
                where = _line_of(raw, int(number)) + line
                raise DataError(
                    f"{self._path}: line {where} has {found} values instead of {expected}: "
                    f"{text[:60]!r}; correct the line."
                ) from None
            if "UTF8" in str(error):
                raise self._not_utf8(line) from None
            for name in [name for name in types if name in columns]:
                found = self._find_text(raw, line, name)
                if found is not None:
                    raise found from None
            raise DataError(
                f"{self._path}: the page at line {line} cannot be parsed ({error}); correct it."
            ) from None
        if any(str(kind) == "binary" for kind in table.schema.types):
            raise self._not_utf8(line)
        return self._with_keys(table, columns)

    def _not_utf8(self, line: int) -> DataError:
        return DataError(
            f"{self._path}: text after line {line} is not UTF-8; convert the file to UTF-8."
        )

    def _find_text(self, raw: bytes, line: int, name: str) -> DataError | None:
        """Return the error for the first value of a column that does not have its type."""
        text = {name: import_pyarrow().string()}
        boolean = name in self._booleans
        for value in self._table(raw, line, [name], text).column(name).to_pylist():
            if value is None or (value in _BOOLEANS if boolean else _is_number(value)):
                continue
            if name == self._weight:
                return DataError(
                    f"{self._path}: weight column {name!r} holds {value!r}, which is not a "
                    "number; correct it or choose another weight column."
                )
            if boolean:
                return DataError(
                    f"{self._path}: feature column {name!r} begins with booleans but holds "
                    f"{value!r} near line {line}; write it as numbers throughout."
                )
            return text_feature(self._path, name, value)
        return None

    def _first_parse(self, raw: bytes, line: int, first_row: int) -> Batch:
        """Decode a page for the first time and infer its types."""
        if b'"' in raw:
            self._check_quotes(raw, line)
        if self.as_frame:
            batch = self._parse(raw, line, first_row)
            for name, kind in zip(batch.X.column_names, batch.X.schema.types, strict=True):
                self._kinds[name].add(str(kind))
            return batch
        if first_row == 0:
            self._booleans = self._infer(raw, line)
        return self._parse(raw, line, first_row)

    def _parse(self, raw: bytes, line: int, first_row: int) -> Batch:
        table = self._table(raw, line, self._columns, self._types())
        return self._batch([table], first_row, table.num_rows)

    def _target_tables(self) -> Iterator[Any]:
        for unit, line in enumerate(self._lines):
            yield self._table(self._raw(unit), line, [self._target or ""], self._types())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _type_of(kinds: set[str]) -> Any:
    """Return the Arrow type of a column from the types inferred for its pages."""
    pa = import_pyarrow()
    found = kinds - {"null"}
    if found <= {"int64", "double"}:
        return pa.int64() if kinds == {"int64"} else pa.float64()
    if found == {"bool"}:
        return pa.bool_()
    if found == {"date32[day]"}:
        return pa.date32()
    if found and all(kind.startswith("timestamp") and "tz=" in kind for kind in found):
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
