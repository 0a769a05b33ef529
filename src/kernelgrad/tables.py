"""Tables as they come: frames with text, categories, dates and gaps as finite numbers.

Rows become numbers in two steps. *Codes* are one number for each column of the table: the
value itself, the seconds of a date, the number of a level (-1 where it was not seen in
training), NaN where a number or date is missing. *Encoded* rows are what functions are of:
gaps filled and marked, levels as indicators or means of the targets, made by the encoders of
scikit-learn. A table is plain arrays and texts, from which these encoders come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold
from sklearn.preprocessing import OneHotEncoder, TargetEncoder

from kernelgrad.data.base import all_finite
from kernelgrad.files.records import Record
from kernelgrad.types import AnyArray, Float64Array, IntArray
from kernelgrad.validation import DataError

MAX_LEVELS = 40
"""Columns of more levels are encoded by means of the targets, not by indicators."""

UNKNOWN = -1.0
_FOLDS = 5  # of the means that training rows get, which leave their own targets out
_MEDIAN_ROWS, _MEDIAN_CELLS = 1000, 1_000_000
_GAPS = ("NAType", "NaTType")  # of pandas, whose comparisons are no booleans
_PARTS = ("month", "weekday", "hour")
_DATES = (nw.Date, nw.Datetime)
_TEXTS = (nw.String, nw.Categorical, nw.Enum)


@dataclass(frozen=True)
class Columns:
    """The columns of a frame or array, one at a time."""

    data: Any  # a narwhals frame, or an array (n, d)
    names: Sequence[Any] | None  # for messages

    def __iter__(self) -> Iterator[Any]:
        dense = isinstance(self.data, np.ndarray)
        yield from self.data.T if dense else self.data.iter_columns()

    def __len__(self) -> int:
        return int(self.data.shape[1])

    def name(self, j: int) -> str:
        """Return what messages call column j."""
        return str(j) if self.names is None else repr(self.names[j])


def columns_of(X: Any) -> Columns | None:
    """Return the columns of a frame, or of lists or objects with text; None for others."""
    if isinstance(X, list) and X and isinstance(X[0], list | tuple):
        rows = [len(row) if isinstance(row, list | tuple) else -1 for row in X]
        X = np.array(X, object) if len(set(rows)) == 1 else X
    if isinstance(X, np.ndarray):
        text = X.ndim == 2 and X.dtype == object and any(isinstance(v, str) for v in X.flat)
        return Columns(X, None) if text else None
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except DuplicateError:  # scikit-learn takes it if all is numbers
        return None
    return Columns(frame, frame.columns) if isinstance(frame, nw.DataFrame) else None


def all_numbers(columns: Columns) -> bool:
    """Whether no column holds anything but numbers and booleans."""
    if isinstance(columns.data, np.ndarray):
        return False
    native: Any = getattr(columns.data.to_native(), "dtypes", None)
    for j, dtype in enumerate(columns.data.schema.values()):
        sparse = dtype == nw.Unknown and hasattr(native, "iloc")
        if sparse and hasattr(native.iloc[j], "fill_value"):  # pandas' sparse columns
            continue
        if not (dtype.is_numeric() or dtype == nw.Boolean):
            return False
    return True


def median_of_some(X: AnyArray) -> Float64Array:
    """Return the medians of some evenly spaced rows, which fill gaps in later ones."""
    wanted = max(1, min(_MEDIAN_ROWS, _MEDIAN_CELLS // X.shape[1]))
    some = X[:: -(-len(X) // wanted)].astype(np.float64)
    return np.asarray(np.median(some, axis=0))


def check_finite(X: AnyArray, name: Any) -> None:
    """Raise for the first infinite value, naming row and column; `name` names the latter."""
    bad = np.isinf(X)
    if bad.any():
        row, j = (int(i) for i in np.argwhere(bad)[0])
        raise DataError(
            f"Column {name(j)} holds infinity ({X[row, j]}) in row {row} (rows count from 0); "
            "replace or clip infinite values, or drop the row or the column."
        )


@dataclass(frozen=True)
class Column:
    """What a column of the table holds."""

    name: str
    kind: str  # "number", "date" or "level"
    levels: tuple[str | None, ...] = ()  # in the order of their codes; None is missing

    def codes(self, column: Any) -> Float64Array:
        """Return one number for each value."""
        if self.kind == "date":
            return _seconds(column, self.name)
        if self.kind == "number":
            return _numbers(column, self.name)
        known = {level: float(i) for i, level in enumerate(self.levels)}
        values = _values(column)
        code = {v: known.get(_level(v), UNKNOWN) for v in _distinct(values, self.name)}
        return np.fromiter(map(code.__getitem__, values), np.float64, len(values))


@dataclass
class Table:
    """A table as seen in training, and its encoding."""

    columns: tuple[Column, ...]
    medians: AnyArray = field(default_factory=lambda: np.empty(0))  # of numbers and dates
    has_gaps: AnyArray = field(default_factory=lambda: np.empty(0, bool))
    is_flag: AnyArray = field(default_factory=lambda: np.empty(0, bool))
    # of dates, (dates, 3): which parts vary
    parts: AnyArray = field(default_factory=lambda: np.empty((0, len(_PARTS)), bool))
    # (outputs, levels of all columns by means) and (outputs,)
    means: AnyArray = field(default_factory=lambda: np.empty((0, 0)))
    mean: AnyArray = field(default_factory=lambda: np.empty(0))

    # -- learning ----------------------------------------------------------------------

    @classmethod
    def learn(
        cls, columns: Columns, chosen: AnyArray | None, *, targets: bool, declared: bool
    ) -> Table:
        """Return the kinds and levels of columns, before the encoding is fitted.

        `chosen` are the categories, see :func:`chosen_columns`. Without `targets` only the most
        frequent levels are known; if `declared`, also those of a dtype that no row has.
        """
        found = []
        for j, column in enumerate(columns):
            name, asked = columns.name(j), None if chosen is None else bool(chosen[j])
            kind = _kind(column, name, asked)
            levels: tuple[str | None, ...] = ()
            if kind == "level":
                named = declared and _is_category(column)
                more = column.cat.get_categories().to_list() if named else ()
                levels = _levels(column, name, more, None if targets else MAX_LEVELS)
            found.append(Column(name, kind, levels))
        return cls(tuple(found))

    def fit(self, codes: AnyArray, Y: Float64Array | None, seed: int) -> AnyArray:
        """Fit the encoding to codes (n, d) and targets (n, outputs); return encoded rows."""
        numbers = codes[:, self._numbers]
        self.has_gaps = np.asarray(np.isnan(numbers).any(axis=0))
        self.is_flag = np.array([_is_flag(column) for column in numbers.T], bool)
        if len(self._numbers):
            imputer = SimpleImputer(strategy="median", keep_empty_features=True)
            self.medians = imputer.fit(numbers).statistics_.astype(codes.dtype)
            filled = np.where(np.isnan(numbers), self.medians, numbers)[:, self._dates]
            self.parts = np.array(
                [[np.ptp(part) > 0 for part in _parts(t)] for t in filled.T], bool
            ).reshape(-1, len(_PARTS))
        if len(self._many) and Y is not None:
            return self._encode(codes, self._fit_means(codes[:, self._many], Y, seed))
        return self.encode(codes)

    def _fit_means(self, codes: AnyArray, Y: Float64Array, seed: int) -> list[AnyArray]:
        """Fit the encoders by targets; return what training rows get, from other folds."""
        whole = [self._target_encoder().fit(codes, y) for y in Y.T]
        self.means = np.array([np.concatenate(e.encodings_) for e in whole])
        self.mean = np.array([float(e.target_mean_) for e in whole])
        out = [np.empty(codes.shape) for _ in whole]
        folds = KFold(min(_FOLDS, len(codes)), shuffle=True, random_state=seed)
        for others, fold in folds.split(codes):
            for part, y in zip(out, Y.T, strict=True):
                encoder = self._target_encoder().fit(codes[others], y[others])
                part[fold] = encoder.transform(codes[fold])
        return out

    # -- encoding ----------------------------------------------------------------------

    def codes(self, columns: Columns) -> AnyArray:
        """Return rows (n, d) as codes, of the columns seen in training."""
        data = columns.data
        numeric = isinstance(data, np.ndarray) and data.dtype.kind in "biuf"
        if numeric and all(c.kind == "number" for c in self.columns):
            codes: AnyArray = data if data.dtype.kind == "f" else data.astype(np.float64)
        else:
            pairs = zip(self.columns, columns, strict=True)
            codes = np.stack([known.codes(column) for known, column in pairs], axis=1)
        if not all_finite(codes):
            check_finite(codes, lambda j: self.columns[j].name)
        return codes

    def encode(self, codes: AnyArray) -> AnyArray:
        """Return rows without gaps, (n, width)."""
        many = codes[:, self._many]
        return self._encode(codes, [e.transform(many) for e in self._target_encoders])

    def _encode(self, codes: AnyArray, means: list[AnyArray]) -> AnyArray:
        blocks = []
        if len(self._numbers):
            numbers = self._imputer.transform(codes[:, self._numbers])
            dates = numbers[:, : len(self._numbers)][:, self._dates]
            of_dates = zip(dates.T, self.parts, strict=True)
            blocks = [numbers] + [
                part[:, None]
                for t, wanted in of_dates
                for part, vary in zip(_parts(t), wanted, strict=True)
                if vary
            ]
        if len(self._few):
            blocks.append(self._one_hot.transform(codes[:, self._few]))
        blocks += means
        return np.ascontiguousarray(np.concatenate(blocks, axis=1))

    def a_row(self) -> AnyArray:
        """Return the codes of one row: medians, and the first level of each category."""
        codes = np.zeros((1, len(self.columns)))
        codes[0, self._numbers] = self.medians
        return codes

    # -- the layout --------------------------------------------------------------------

    def _places(self, wanted: Any) -> IntArray:
        return np.array([j for j, c in enumerate(self.columns) if wanted(c)], np.int64)

    @cached_property
    def _numbers(self) -> IntArray:
        return self._places(lambda c: c.kind != "level")

    @cached_property
    def _dates(self) -> IntArray:
        """Places of dates among the numbers."""
        kinds = [c.kind for c in self.columns if c.kind != "level"]
        return np.flatnonzero(np.array(kinds) == "date")

    @cached_property
    def _few(self) -> IntArray:
        return self._places(lambda c: c.kind == "level" and len(c.levels) <= MAX_LEVELS)

    @cached_property
    def _many(self) -> IntArray:
        return self._places(lambda c: len(c.levels) > MAX_LEVELS)

    @cached_property
    def _layout(self) -> tuple[IntArray, AnyArray]:
        """Column of the table and whether it is numeric, for each encoded column."""
        parts = self.parts.sum(axis=1)
        counts = [len(self.columns[j].levels) for j in self._few]
        n_outputs = len(self.mean)
        groups = np.concatenate(
            [
                self._numbers, self._numbers[self.has_gaps],
                np.repeat(self._numbers[self._dates], parts), np.repeat(self._few, counts),
                np.tile(self._many, n_outputs),
            ]
        ).astype(np.int64)  # fmt: skip
        numeric = np.concatenate(
            [
                ~self.is_flag, np.zeros(self.has_gaps.sum(), bool), np.ones(parts.sum(), bool),
                np.zeros(sum(counts), bool), np.ones(len(self._many) * n_outputs, bool),
            ]
        ).astype(bool)  # fmt: skip
        return groups, numeric

    @property
    def groups(self) -> IntArray:
        """The number of the column of the table that each encoded column comes from."""
        return self._layout[0]

    @property
    def is_numeric(self) -> AnyArray:
        """False for encoded columns of zeros and ones: indicators, booleans, marks of gaps."""
        return self._layout[1]

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return len(self.groups)

    # -- encoders of scikit-learn, from what was found ---------------------------------

    @cached_property
    def _imputer(self) -> SimpleImputer:
        # two rows of which it finds these medians and gaps
        rows = np.stack([self.medians, np.where(self.has_gaps, np.nan, self.medians)])
        imputer = SimpleImputer(
            strategy="median", add_indicator=bool(self.has_gaps.any()), keep_empty_features=True
        )
        return imputer.fit(rows)

    def _codes_of(self, places: IntArray) -> list[AnyArray]:
        return [np.arange(float(len(self.columns[j].levels))) for j in places]

    @cached_property
    def _one_hot(self) -> OneHotEncoder:
        encoder = OneHotEncoder(
            categories=self._codes_of(self._few), handle_unknown="ignore", sparse_output=False
        )
        return encoder.fit(np.zeros((1, len(self._few))))

    def _target_encoder(self) -> TargetEncoder:
        return TargetEncoder(categories=self._codes_of(self._many), target_type="continuous")

    @cached_property
    def _target_encoders(self) -> list[TargetEncoder]:
        cuts = np.cumsum([len(self.columns[j].levels) for j in self._many])[:-1]
        encoders = []
        for means, mean in zip(self.means, self.mean, strict=True):
            encoder = self._target_encoder().fit(np.zeros((2, len(self._many))), [0.0, 1.0])
            encoder.encodings_, encoder.target_mean_ = np.split(means, cuts), float(mean)
            encoders.append(encoder)
        return encoders

    # -- files -------------------------------------------------------------------------

    _ARRAYS = ("medians", "has_gaps", "is_flag", "parts", "means", "mean")

    def describe(self) -> tuple[list[Any], dict[str, AnyArray]]:
        """Return what :meth:`restore` needs, as plain values and arrays."""
        columns = [[c.name, c.kind, list(c.levels)] for c in self.columns]
        return columns, {name: getattr(self, name) for name in self._ARRAYS}

    @classmethod
    def restore(cls, columns: Any, record: Record, d: int) -> Table:
        """Return the table of `d` columns that :meth:`describe` was called on."""
        known = tuple(Column(name, kind, tuple(levels)) for name, kind, levels in columns)
        table = cls(known)
        for column in known:
            levels = column.levels
            if not (
                isinstance(column.name, str)
                and column.kind in ("number", "date", "level")
                and all(isinstance(level, str | None) for level in levels)
                and len(set(levels)) == len(levels)
            ):
                raise record.error(f"holds {column!r}, which is no column")
        if len(known) != d:
            raise record.error(f"holds {len(known)} columns in a model of {d}")
        numbers, dates = len(table._numbers), len(table._dates)
        table.medians = record.array("medians", numbers, finite=False)
        table.has_gaps = record.array("has_gaps", numbers, kinds="b")
        table.is_flag = record.array("is_flag", numbers, kinds="b")
        table.parts = record.array("parts", dates, len(_PARTS), kinds="b")
        many = sum(len(known[j].levels) for j in table._many)
        table.means = record.array("means", "by means", many)
        table.mean = record.array("mean", "by means")
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


def _is_category(column: Any) -> bool:
    return isinstance(column, nw.Series) and column.dtype in (nw.Categorical, nw.Enum)


def _kind(column: Any, name: str, categorical: bool | None) -> str:
    """Return what a training column holds; `categorical` is what the user said of it."""
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
    try:
        if all(hasattr(v, "isoformat") and hasattr(v, "year") for v in present):
            return "date"
        _numbers(np.array(present, object), name, text=False)
        return "number"
    except DataError:
        types = sorted({type(v).__name__ for v in present})
        if len(types) == 1:
            raise _strange(name, present[0]) from None
        raise DataError(
            f"Column {name} mixes values of types {', '.join(types)}; make all of them numbers "
            "or all of them text, for example by astype(str), or drop the column."
        ) from None


def _is_plain_gap(value: Any) -> bool:
    """Whether a value of any type is missing."""
    return isinstance(value, Hashable) and not isinstance(value, tuple) and is_gap(value)


def _numbers(column: Any, name: str, *, text: bool = True) -> Float64Array:
    """Return a column as floats, NaN where a value is missing; `text` may hold numbers."""
    if isinstance(column, nw.Series):
        if column.dtype == nw.Duration:
            column = column.dt.total_microseconds().cast(nw.Float64) / 1e6
        if column.dtype.is_integer():  # Arrow casts none beyond 2^53
            return np.asarray(column.to_numpy(), np.float64)
        if column.dtype.is_numeric() or column.dtype == nw.Boolean:
            return np.asarray(column.cast(nw.Float64).to_numpy(), np.float64)
    elif column.dtype.kind in "biuf":
        return np.asarray(column, np.float64)
    values = _values(column)
    out = np.empty(len(values))
    for i, value in enumerate(values):
        try:
            if isinstance(value, str) and not text:
                raise ValueError(value)
            out[i] = np.nan if _is_plain_gap(value) else float(value)
        except (TypeError, ValueError):
            raise DataError(
                f"Column {name} holds {value!r} in row {i} (rows count from 0), but it is a "
                "column of numbers; correct the value, or leave it missing."
            ) from None
    return out


def _seconds(column: Any, name: str) -> Float64Array:
    """Return seconds from 1970 on the clock of the column, NaN where a date is missing."""
    try:
        if isinstance(column, nw.Series) and column.dtype in _DATES:
            if getattr(column.dtype, "time_zone", None) is not None:
                column = column.dt.replace_time_zone(None)
            micros = column.cast(nw.Datetime("us")).dt.timestamp("us").cast(nw.Float64)
            return np.asarray(micros.to_numpy(), np.float64) / 1e6
        values = [
            np.datetime64("NaT")
            if _is_plain_gap(v)
            else v.replace(tzinfo=None)
            if getattr(v, "tzinfo", None) is not None
            else v
            for v in _values(column)
        ]
        stamps = np.array(values, "datetime64[us]")
    except (TypeError, ValueError) as error:
        raise DataError(
            f"Column {name} is a column of dates, but holds something else ({error}); convert "
            "it to dates, or leave the values missing."
        ) from None
    return np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64) / 1e6)


def _parts(seconds: AnyArray) -> list[Float64Array]:
    """Return month (1 to 12), weekday (0 is Monday) and hour."""
    stamps = seconds.astype("datetime64[s]")
    month = stamps.astype("datetime64[M]").astype(np.int64) % 12 + 1
    weekday = (stamps.astype("datetime64[D]").astype(np.int64) + 3) % 7
    hour = seconds // 3600 % 24
    return [np.asarray(part, np.float64) for part in (month, weekday, hour)]


def _is_flag(values: AnyArray) -> bool:
    """Whether a column of numbers holds zeros and ones alone."""
    return bool(((values == 0) | (values == 1) | np.isnan(values)).all())


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
    kept = texts if most is None else texts[: most - len(gap)]
    return (*sorted(kept), *gap)


def chosen_columns(categorical: Any, columns: Columns) -> AnyArray | None:
    """Return the mask that `categorical_features` means; None where dtypes decide."""
    if isinstance(categorical, str):
        if categorical != "from_dtype":
            raise ValueError(
                "categorical_features must be 'from_dtype', None, or an array of column "
                f"names, column numbers or booleans, got {categorical!r}."
            )
        return None
    d = len(columns)
    mask = np.zeros(d, bool)
    if categorical is None:
        return mask
    given = np.asarray(categorical)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "biuUO"):
        raise TypeError(
            "categorical_features must hold column names, column numbers or booleans, got "
            f"{categorical!r}."
        )
    if given.dtype.kind == "b":
        if len(given) != d:
            raise ValueError(
                f"categorical_features has {len(given)} booleans, but X has {d} columns."
            )
        return given
    known = {} if columns.names is None else {v: j for j, v in enumerate(columns.names)}
    for value in given.tolist():
        if isinstance(value, str):
            if value not in known:
                raise ValueError(
                    f"categorical_features names {value!r}, which is no column of X; give one "
                    "of its columns, in a frame with names."
                )
            mask[known[value]] = True
        elif not 0 <= value < d:
            raise ValueError(
                f"categorical_features holds {value!r}, but the columns of X are 0 to {d - 1}."
            )
        else:
            mask[value] = True
    return mask
