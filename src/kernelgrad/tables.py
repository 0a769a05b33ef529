"""Tables as they come: frames with text, categories, dates and gaps as finite numbers.

Rows become numbers in two steps. *Codes* are one number for each column of the table: the
value itself, the seconds of a date, the number of a level (-1 where it was not seen in
training), NaN where a number or date is missing. *Encoded* rows are what functions are of:
gaps filled and marked, levels as indicators or means of residuals, made by an `Encoder`.
A table is plain arrays and texts.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
import numpy as np

from kernelgrad.data.base import all_finite
from kernelgrad.encoder import MAX_LEVELS, Encoder
from kernelgrad.files.records import Record
from kernelgrad.registry import Registry
from kernelgrad.types import AnyArray, Float64Array
from kernelgrad.validation import DataError, warn_caller

__all__ = ["ColumnKind", "register_column_kind"]

UNKNOWN = -1  # code of levels that training rows did not have
_GAPS = ("NAType", "NaTType")  # types of pandas whose comparisons are no booleans
_DATES = (nw.Date, nw.Datetime)
NAMES = "The feature names should match those that were passed during fit.\n"
_TEXTS = (nw.String, nw.Categorical, nw.Enum)
_NUMBER = re.compile(r"[-+]?(\d+[.,]?\d*|[.,]\d+)(e[-+]?\d+)?", re.IGNORECASE)
_DATE = re.compile(
    r"(\d{4}[-/.]\d\d?[-/.]\d\d?|(\d\d?|[a-z]{3})[-/. ](\d\d?|[a-z]{3})[-/., ]+\d{4})([T ].*)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Columns:
    data: Any  # a narwhals frame, or an array (n, d)
    names: Any  # those of messages, or None

    def __iter__(self) -> Iterator[Any]:
        dense = isinstance(self.data, np.ndarray)
        yield from self.data.T if dense else self.data.iter_columns()

    def __len__(self) -> int:
        return int(self.data.shape[1])

    def name(self, j: int) -> str:
        return str(j) if self.names is None else repr(self.names[j])

    def chosen(self, names: AnyArray) -> Columns:
        """Return the columns of a fit if a frame has these and more; else all of them."""
        wanted, own = names.tolist(), self.names
        if own is None or list(own) == wanted or not set(wanted) <= set(own):
            return self
        if len(own) == len(wanted):  # scikit-learn's checks ask for this error
            raise ValueError(
                f"{NAMES}Feature names must be in the same order as they were in fit.\n"
                "Give X[model.feature_names_in_]."
            )
        return Columns(self.data.select(wanted), wanted)


def counted(marks: AnyArray) -> dict[int, int]:
    """Return the numbers of marks in the columns that have any."""
    counts = marks.sum(axis=0)
    return {int(j): int(counts[j]) for j in np.flatnonzero(counts)}


def check_finite(X: AnyArray, name: Any) -> None:
    """Raise for the first infinite value, naming row and column; `name` names the latter."""
    bad = np.isinf(X)
    if bad.any():
        row, j = (int(i) for i in np.argwhere(bad)[0])
        raise DataError(
            f"Column {name(j)} holds infinity ({X[row, j]}) in row {row} (rows count from 0); "
            "replace or clip infinite values, or drop the row or the column."
        )


class ColumnKind(ABC):
    """Values of one kind, each of which becomes a number; see :func:`register_column_kind`.

    Attributes
    ----------
    name : str
        Name in files and messages.
    """

    name: ClassVar[str]

    @abstractmethod
    def matches(self, value: Any) -> bool:
        """Return whether a value that is not missing is of this kind."""

    @abstractmethod
    def number(self, value: Any) -> float:
        """Return the number of a value; raise TypeError or ValueError for other kinds."""

    def codes(self, column: Any, name: str) -> Float64Array:
        """Return the numbers of an array or a narwhals series, NaN where a value is missing."""
        values = _values(column)
        out = np.empty(len(values))
        for i, value in enumerate(values):
            try:
                out[i] = np.nan if _is_plain_gap(value) else self.number(value)
            except (TypeError, ValueError):
                raise DataError(
                    f"Column {name} holds {value!r} in row {i} (rows count from 0), but it is "
                    f"a column of {self.name}s; correct the value, or leave it missing."
                ) from None
        return out


KINDS: Registry[ColumnKind] = Registry({})
register_column_kind = KINDS.register


@register_column_kind
class Number(ColumnKind):
    name = "number"

    def matches(self, value: Any) -> bool:
        try:
            return not isinstance(value, str) and isinstance(float(value), float)
        except (TypeError, ValueError):
            return False

    def number(self, value: Any) -> float:
        return float(value)  # text may hold numbers

    def codes(self, column: Any, name: str) -> Float64Array:
        if isinstance(column, nw.Series):
            if column.dtype == nw.Duration:
                column = column.dt.total_microseconds().cast(nw.Float64) / 1e6
            if column.dtype.is_integer():  # Arrow casts none beyond 2^53
                return np.asarray(column.to_numpy(), np.float64)
            if column.dtype.is_numeric() or column.dtype == nw.Boolean:
                return np.asarray(column.cast(nw.Float64).to_numpy(), np.float64)
        elif column.dtype.kind in "biuf":
            return np.asarray(column, np.float64)
        return super().codes(column, name)


def only_numbers(values: Any, name: str, remedy: str) -> None:
    """Raise DataError with the first value of an array or column that is no number."""
    try:
        Number().codes(values, name)
    except DataError as error:
        bad = str(error).partition(", but")[0]
        raise DataError(f"{bad}, which is no number; {remedy}.") from None


@register_column_kind
class Date(ColumnKind):
    """Seconds from 1970 on the clock of the column."""

    name = "date"

    def matches(self, value: Any) -> bool:
        return hasattr(value, "isoformat") and hasattr(value, "year")

    def number(self, value: Any) -> float:
        if isinstance(value, int | np.integer):  # microseconds to datetime64
            raise TypeError
        if getattr(value, "tzinfo", None) is not None:
            value = value.replace(tzinfo=None)
        return float(np.datetime64(value, "us").astype(np.int64)) / 1e6

    def codes(self, column: Any, name: str) -> Float64Array:
        if not (isinstance(column, nw.Series) and column.dtype in _DATES):
            return super().codes(column, name)
        if getattr(column.dtype, "time_zone", None) is not None:
            column = column.dt.replace_time_zone(None)
        try:
            micros = column.cast(nw.Datetime("us")).dt.timestamp("us").cast(nw.Float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"Column {name} holds a date that is out of range ({error}); correct it, or "
                "leave it missing."
            ) from None
        return np.asarray(micros.to_numpy(), np.float64) / 1e6


@dataclass(frozen=True)
class Column:
    name: str
    kind: str  # "level", or a name in KINDS
    levels: tuple[str | None, ...] = ()  # in the order of their codes; None is missing

    def codes(self, column: Any) -> Float64Array:
        if self.kind != "level":
            return KINDS[self.kind]().codes(column, self.name)
        numbers = {level: float(i) for i, level in enumerate(self.levels)}
        values = _values(column)
        code = {v: numbers.get(_level(v), float(UNKNOWN)) for v in _distinct(values, self.name)}
        return np.fromiter(map(code.__getitem__, values), np.float64, len(values))


class Table(Encoder):
    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__([c.kind for c in columns], [len(c.levels) for c in columns])
        self.columns = tuple(columns)

    @classmethod
    def learn(
        cls, columns: Columns, chosen: AnyArray | None, *, targets: bool, declared: bool
    ) -> Table:
        """Return the kinds and levels of columns, before the encoding is fitted.

        `chosen` are the categories, see :func:`chosen_columns`. Without `targets` only the most
        frequent levels are known; if `declared`, also those of a dtype that no row has.
        """
        learned = []
        for j, column in enumerate(columns):
            name, asked = columns.name(j), None if chosen is None else bool(chosen[j])
            kind = _kind(column, name, asked)
            levels: tuple[str | None, ...] = ()
            if kind == "level":
                named = isinstance(column, nw.Series)
                named = named and column.dtype in (nw.Categorical, nw.Enum)
                more = column.cat.get_categories().to_list() if named and declared else ()
                levels = _levels(column, name, more, None if targets else MAX_LEVELS)
                if asked is None and not named:
                    _warn_of_readable(_values(column), name)
            learned.append(Column(name, kind, levels))
        return cls(learned)

    def codes(self, columns: Columns) -> AnyArray:
        data = columns.data
        numeric = isinstance(data, np.ndarray) and data.dtype.kind in "biuf"
        if numeric and all(c.kind == "number" for c in self.columns):
            codes: AnyArray = data if data.dtype.kind == "f" else data.astype(np.float64)
        else:
            pairs = zip(self.columns, columns, strict=True)
            codes = np.stack([own.codes(column) for own, column in pairs], axis=1)
        if not all_finite(codes):
            check_finite(codes, lambda j: self.columns[j].name)
        return codes

    def unseen(self, codes: AnyArray) -> dict[int, int]:
        """Return how many codes of each column are unknown levels, or gaps where none were."""
        marks = codes == UNKNOWN
        marks[:, self.numbers] = np.isnan(codes[:, self.numbers]) & ~self.has_gaps
        marks[:, self.n_levels == MAX_LEVELS] = False  # rare levels may have been left out
        return counted(marks)

    def describe(self) -> tuple[list[Any], dict[str, AnyArray]]:
        columns = [[c.name, c.kind, list(c.levels)] for c in self.columns]
        return columns, {name: getattr(self, name) for name in self.ARRAYS}

    @classmethod
    def restore(cls, columns: Any, record: Record, d: int) -> Table:
        table = cls([Column(name, kind, tuple(levels)) for name, kind, levels in columns])
        for column in table.columns:
            levels = column.levels
            if not (
                isinstance(column.name, str)
                and (column.kind == "level" or column.kind in KINDS)
                and all(isinstance(level, str | None) for level in levels)
                and len(set(levels)) == len(levels)
            ):
                raise record.error(f"holds {column!r}, which is no column")
        if len(table.columns) != d:
            raise record.error(f"holds {len(table.columns)} columns in a model of {d}")
        table.read(record)
        return table


def is_gap(value: Any) -> bool:
    """Whether a value is missing: None, NaN, pandas.NA or NaT."""
    return value is None or type(value).__name__ in _GAPS or bool(value != value)


def _level(value: Any) -> str | None:
    """Return the text of a level; equal numbers have one, whatever their type."""
    if is_gap(value):
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _values(column: Any) -> list[Any]:
    values: list[Any] = column.tolist() if isinstance(column, np.ndarray) else column.to_list()
    return values


def _distinct(values: list[Any], name: str) -> Counter[Hashable]:
    try:
        return Counter(values)
    except TypeError:
        example = next(v for v in values if not isinstance(v, Hashable))
        raise _strange(name, example) from None


def _strange(name: str, example: Any) -> DataError:
    return DataError(
        f"Column {name} holds {type(example).__name__} values, for example {example!r}; make "
        "it numbers, text, booleans or dates, split it into several columns, or drop it."
    )


def _kind(column: Any, name: str, categorical: bool | None) -> str:
    if categorical:
        return "level"
    kind = _natural_kind(column, name)
    if kind == "level" and categorical is False:
        example = next((v for v in _values(column) if not is_gap(v)), None)
        raise DataError(
            f"Column {name} holds text or categories, for example {example!r}, and "
            "categorical_features does not name it; name it there, leave the parameter at "
            "'from_dtype', or drop the column."
        )
    return kind


def _natural_kind(column: Any, name: str) -> str:
    if isinstance(column, nw.Series):
        dtype = column.dtype
        if dtype.is_numeric() or dtype in (nw.Boolean, nw.Duration):
            return "number"
        if dtype in _DATES:
            return "date"
        if dtype in _TEXTS:
            return "level"
    elif column.dtype != object:
        return "number"
    present = [v for v in _values(column) if not _is_plain_gap(v)]
    if all(isinstance(v, str) for v in present):
        return "level" if present else "number"
    for kind in reversed(list(KINDS)):  # the one registered last decides
        if all(map(KINDS[kind]().matches, present)):
            return kind
    types = sorted({type(v).__name__ for v in present})
    if len(types) == 1:
        raise _strange(name, present[0])
    advice = "make all of them numbers or all of them text"
    is_number = KINDS["number"]().matches
    if any(map(is_number, present)) and all(
        isinstance(v, str) or is_number(v) for v in present
    ):
        row, text = next((i, v) for i, v in enumerate(_values(column)) if isinstance(v, str))
        advice = (
            "make numbers of them by pd.to_numeric(column, errors='coerce') (the first text is "
            f"{text!r} in row {row}; rows count from 0), or make all of them text"
        )
    raise DataError(
        f"Column {name} mixes values of types {', '.join(types)}; {advice}, for example by "
        "astype(str), or drop the column."
    )


def _warn_of_readable(values: list[Any], name: str) -> None:
    """Warn of many different texts that read as numbers or as dates."""
    texts = list(dict.fromkeys(v for v in values if isinstance(v, str)))
    if len(texts) <= max(MAX_LEVELS, len(values) / 2):
        return
    sample = texts[:: -(-len(texts) // 1000)]
    column = "column.str.replace(',', '.')" if any("," in t for t in sample) else "column"
    for what, pattern, remedy in (
        ("numbers", _NUMBER, f"pd.to_numeric({column}, errors='coerce')"),
        ("dates", _DATE, "pd.to_datetime(column, errors='coerce')"),
    ):
        if sum(pattern.fullmatch(t.strip()) is not None for t in sample) >= 0.9 * len(sample):
            warn_caller(
                f"Column {name} has {len(texts)} different texts in {len(values)} rows, which "
                f"read as {what}; convert it by {remedy}."
            )
            return


def _is_plain_gap(value: Any) -> bool:
    return isinstance(value, Hashable) and not isinstance(value, tuple) and is_gap(value)


def _levels(
    column: Any, name: str, more: Iterable[Any], most: int | None
) -> tuple[str | None, ...]:
    """Return the levels of a column and `more`, sorted; at `most` the most frequent of them."""
    counts: Counter[str | None] = Counter()
    for value, n in _distinct(_values(column), name).items():
        counts[_level(value)] += n
    counts.update(dict.fromkeys(map(_level, more), 0))
    texts = sorted((v for v in counts if v is not None), key=lambda v: (-counts[v], v))
    gap = [None] * (None in counts)
    return (*sorted(texts if most is None else texts[: most - len(gap)]), *gap)
