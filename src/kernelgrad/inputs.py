"""The columns of X as a fit has learned them: their number, their names, their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp
from narwhals.exceptions import DuplicateError
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_X_y, validate_data

from kernelgrad.data import BatchSource
from kernelgrad.data.base import all_finite
from kernelgrad.exceptions import DataError, UnseenValuesWarning
from kernelgrad.tables import NAMES, Column, Columns, Table, check_finite, counted, only_numbers
from kernelgrad.types import AnyArray, Float64Array, IntArray, Matrix
from kernelgrad.validation import check_compressed, check_int, check_name, warn_caller

if TYPE_CHECKING:
    from kernelgrad.tasks import Task

_PLAIN = (np.dtype(np.float64), np.dtype(np.float32))
_NUMBERS: dict[str, Any] = {"accept_sparse": "csr", "dtype": "numeric"}
_ROWS = -1  # the key of the number of all rows
_CATEGORIES = (
    "hold categories or gaps that the fit had not; they count as none of the known ones"
)
_GAPS = "have gaps, which rows of the fit did not have; the median fills them"
F = TypeVar("F", bound=Callable[..., Any])


def as_numpy(method: F) -> F:
    """Return a method that takes arrays as NumPy's, also where scikit-learn keeps others."""
    return config_context(array_api_dispatch=False)(method)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Inputs:
    """Columns of X, and how rows become what functions take."""

    owner: str  # name of the estimator in messages
    n_features: int = 0
    names: AnyArray | None = None  # names of the columns, where all are text
    table: Table | None = None  # encoding of columns that hold more than numbers
    medians: Float64Array | None = None  # values for gaps in columns that had none in the fit
    pairwise: bool = False  # True if X holds values of a kernel

    # -- what a fit learns ---------------------------------------------------------------

    @classmethod
    def learn(
        cls, X: Any, y: Any = None, *, owner: str, pairwise: bool = False,
        categorical: Any = "from_dtype", targets: bool = True, declared: bool = False,
        source: Inputs | None = None, **of_y: Any,
    ) -> tuple[Inputs, Matrix, Any]:  # fmt: skip
        """Return the columns, and rows (n, n_features) as checked numbers or codes, and y.

        A table is learned if columns are no numbers, have gaps or are named in `categorical`;
        its encoding is fitted by :meth:`fitted`. `targets` tells that means of targets may
        encode levels, `declared` that levels of dtypes count too. With `source` the names of
        the columns are checked already. `of_y` are options of scikit-learn's check of y.
        """
        blank = cls(owner, pairwise=pairwise) if source is None else source
        inputs, rows, columns, y = blank._checked(X, y, of_y, fresh=True, named=bool(source))
        if sp.issparse(rows) or pairwise:
            if not isinstance(categorical, str | None) and np.size(categorical):
                raise ValueError(
                    "categorical_features is for frames and dense arrays; leave it at "
                    "'from_dtype' with sparse rows and kernel='precomputed'."
                )
            return inputs, rows, y
        chosen = chosen_columns(categorical, columns)
        if rows is not None and all_finite(rows) and (chosen is None or not chosen.any()):
            return replace(inputs, medians=median_of_some(np.asarray(rows))), rows, y
        table = Table.learn(columns, chosen, targets=targets, declared=declared)
        return replace(inputs, table=table), table.codes(columns), y

    @classmethod
    def of_numbers(cls, X: Any, owner: str) -> tuple[Inputs, Matrix]:
        """Return the columns of rows of finite numbers, and the rows."""
        _check_numbers(X, owner)
        return cls(owner)._by_scikit_learn(X, None, {}, True, False, _NUMBERS)[:2]

    @classmethod
    def of_source(cls, source: BatchSource, owner: str) -> Inputs:
        """Return number and names of the columns of a source."""
        if source.n_rows == 0:
            raise DataError("The source has no rows.")
        names = source.feature_names
        return cls(
            owner, source.n_features, None if names is None else np.asarray(names, object)
        )

    def fitted(
        self, codes: Matrix, y: AnyArray | None = None, task: Task | None = None, seed: int = 0
    ) -> Matrix:
        """Return encoded rows; the encoding is fitted to their codes and internal targets."""
        if self.table is None:
            return codes
        Y = None if y is None or task is None else task.columns(y)
        return self.table.fit(codes, Y, seed)

    # -- rows of a fitted model ----------------------------------------------------------

    def read(
        self, X: Any, *, source: bool = False, unseen: Counter[int] | None = None
    ) -> Matrix:
        """Return rows as functions take them; names of a `source` are checked already.

        Values that the model does not know are counted by column in `unseen`, if it is there,
        and all rows at -1; otherwise this warns of them, unless the rows are of a source.
        """
        counts: Counter[int] = Counter() if unseen is None else unseen
        rows = self.encode(self.codes(X, source=source, unseen=counts)[0])
        counts[_ROWS] += rows.shape[0]
        if unseen is None and not source:
            self.warn_of(counts)
        return rows

    def warn_of(self, unseen: Counter[int]) -> None:
        """Warn of values that the model does not know, by the number of their column."""
        levels = () if self.table is None else {*self.table.few, *self.table.many}
        parts = [
            f"Column {j if self.names is None else repr(self.names[j])}: {n} of "
            f"{unseen[_ROWS]} rows {_CATEGORIES if j in levels else _GAPS}."
            for j, n in sorted(unseen.items())
            if j != _ROWS
        ]
        if len(parts) > 5:
            parts[5:] = [f"So it is in {len(parts) - 5} more columns."]
        if parts:
            warn_caller(" ".join(parts), UnseenValuesWarning)

    def numbers(self, X: Any) -> Matrix:
        """Return rows of finite numbers, checked."""
        _check_numbers(X, self.owner)
        return self._by_scikit_learn(X, None, {}, False, False, _NUMBERS)[1]

    def encode(self, codes: Matrix) -> Matrix:
        return codes if self.table is None else self.table.encode(codes)

    def codes(
        self, X: Any, y: Any = None, *, source: bool = False,
        unseen: Counter[int] | None = None, **of_y: Any,
    ) -> tuple[Matrix, Any]:  # fmt: skip
        """Return checked rows (n, d), codes of a table, and y; `unseen` counts unknown ones."""
        if y is None and not source and self._are_plain(X):
            return X, None
        rows = columns = None
        if y is None and self.names is not None:
            columns = columns_of_dicts(X, self.names)
        if columns is None:
            _, rows, columns, y = self._checked(X, y, of_y, fresh=False, named=source)
        if sp.issparse(rows) or self.pairwise:
            if self.table is not None:
                raise ValueError(
                    "The model was fitted to a table with categories, dates or missing values; "
                    "give a frame or dense array with the same columns, not a sparse matrix."
                )
            return rows, y
        if self.table is not None:
            codes = self.table.codes(columns)
            if unseen is not None:
                unseen.update(self.table.unseen(codes))
            return codes, y
        if rows is None:  # the model is of numbers
            numbers = Table([Column(columns.name(j), "number") for j in range(len(columns))])
            rows = numbers.codes(columns)
        if all_finite(rows):
            return rows, y
        if unseen is not None:
            unseen.update(counted(np.isnan(rows)))
        return self._filled(rows, columns), y

    def check_source(self, source: BatchSource) -> None:
        """Raise ValueError unless a source has the columns of the fit."""
        if source.n_features != self.n_features:
            raise ValueError(
                f"The source has {source.n_features} features, but {self.owner} is "
                f"expecting {self.n_features} features as input."
            )
        if self.names is None or source.feature_names is None:
            return
        for i, (a, b) in enumerate(zip(self.names, source.feature_names, strict=True)):
            if a != b:
                raise ValueError(
                    f"Column {i} of the source is {b!r}, but the model was fitted with {a!r} "
                    "there; open the file with feature_names=model.feature_names_in_."
                )

    @property
    def types(self) -> list[str] | None:
        """What each column of a table holds, for people; None for numbers without gaps."""
        if self.table is None:
            return None
        gaps = self.table.numbers[self.table.has_gaps]
        return [
            f"{len(c.levels)} categories"
            if c.kind == "level"
            else c.kind + ", gaps" * (j in gaps)
            for j, c in enumerate(self.table.columns)
        ]

    @property
    def width(self) -> int:
        """Number of columns of encoded rows."""
        return self.n_features if self.table is None else self.table.width

    @property
    def groups(self) -> IntArray:
        """The column of X that each encoded column comes from, (width,)."""
        return np.arange(self.n_features) if self.table is None else self.table.groups

    def name(self, column: Any) -> Any:
        """Return what messages call the column of X that an encoded column comes from."""
        own = self.groups[column]
        return own if self.names is None else repr(self.names[own])

    def number(self, feature: Any) -> int:
        """Return the number of a column of X from its name or number."""
        if self.names is not None and isinstance(feature, str):
            return list(self.names).index(check_name(feature, list(self.names), "column"))
        return check_int(feature, "feature, if not a name,", low=0, high=self.n_features - 1)

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes of an estimator that describe the columns."""
        named = {} if self.names is None else {"feature_names_in_": self.names}
        return {"n_features_in_": self.n_features} | named

    # -- checks --------------------------------------------------------------------------

    def _are_plain(self, X: Any) -> bool:
        """Whether all checks would return X: they take longer than a row's prediction."""
        return (
            type(X) is np.ndarray
            and X.dtype in _PLAIN
            and X.ndim == 2
            and X.flags.c_contiguous
            and X.shape[1] == self.n_features
            and len(X) > 0
            and self.names is None
            and self.table is None
            and not self.pairwise
            and all_finite(X)
        )

    @as_numpy
    def _checked(
        self, X: Any, y: Any, of_y: dict[str, Any], *, fresh: bool, named: bool
    ) -> tuple[Inputs, Any, Any, Any]:
        """Return the columns, checked rows of numbers or None, their columns, and y."""
        check_form(X)
        columns = None if self.pairwise else columns_of(X)
        if not (fresh or named or self.names is None or columns is None):
            columns = columns.chosen(self.names)
            X = X if columns.names is None else columns.data.to_native()
        if columns is None or all_numbers(columns):
            strict = sp.issparse(X) or self.pairwise
            how = _NUMBERS | {"ensure_all_finite": strict}
            inputs, rows, y = self._by_scikit_learn(X, y, of_y, fresh, named, how)
            # NumPy sums numbers of another byte order in another order
            rows = rows.astype(rows.dtype.newbyteorder("="), copy=False)
            if sp.issparse(rows) or self.pairwise:
                return inputs, rows, None, y
            if rows.dtype != object:
                return inputs, rows, Columns(rows, inputs.names), y
        # text, dates, or Arrow's booleans with gaps
        inputs, _, y = self._by_scikit_learn(X, y, of_y, fresh, False, None)
        return inputs, None, columns, y

    def _by_scikit_learn(
        self, X: Any, y: Any, of_y: dict[str, Any], fresh: bool, named: bool, how: Any
    ) -> tuple[Inputs, Any, Any]:
        if named and how is not None:
            if y is None:
                return self, check_array(X, estimator=self.owner, **how), None
            return self, *check_X_y(X, y, estimator=self.owner, **how, **of_y)
        holder = _holder_class(self.owner)()
        if not fresh or named:
            vars(holder).update(self.attributes())
        if how is None:
            validate_data(holder, X, reset=fresh, skip_check_array=True)
            if y is not None:
                y = check_X_y(np.zeros((len(X), 1)), y, **of_y)[1]
        elif y is None:
            X = validate_data(holder, X, reset=fresh, **how)
        else:
            X, y = validate_data(holder, X, y, reset=fresh, **how, **of_y)
        if not fresh:
            return self, X, y
        names = getattr(holder, "feature_names_in_", None)
        return replace(self, n_features=int(holder.n_features_in_), names=names), X, y

    def _filled(self, X: Any, columns: Columns) -> Any:
        """Return rows whose gaps, which no training row had, hold the median of the column."""
        check_finite(X, columns.name)
        if self.medians is None:
            row, j = np.argwhere(np.isnan(X))[0]
            raise DataError(
                f"Column {columns.name(j)} is missing (NaN) in row {row} (rows count from 0), "
                "and the model saw no missing values in training; impute it."
            )
        return np.where(np.isnan(X), self.medians, X).astype(X.dtype)


def check_form(X: Any) -> None:
    """Raise DataError for rows that are no table of numbers or columns, or damaged."""
    if isinstance(X, list) and X:
        if isinstance(X[0], Mapping):
            raise DataError("X is a list of dicts; give a data frame: pandas.DataFrame(X).")
        shape: tuple[int, ...] = (len(X),) if np.isscalar(X[0]) else ()
    elif isinstance(X, Mapping) and not hasattr(X, "shape"):  # but SciPy's dok
        raise DataError("X is a dict; give a data frame: pandas.DataFrame(X).")
    elif hasattr(X, "collect") and hasattr(X, "lazy"):
        raise DataError("X is a lazy frame, which has no rows yet; give X.collect().")
    else:
        shape = getattr(X, "shape", ())
    if len(shape) == 1:
        raise DataError(
            f"Expected 2D array, got 1D array of shape {shape} instead. Reshape your data: "
            "X.reshape(-1, 1) is one column, X.reshape(1, -1) is one row."
        )
    if shape[1:] == (0,):
        raise DataError(
            f"Found array with 0 feature(s) (shape={shape}) while a minimum of 1 is required; "
            "give a table with columns."
        )
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    if kind == "c":
        raise DataError(
            "Complex data not supported: give X.real and X.imag as columns of their own."
        )
    if kind in ("S", "U"):
        raise DataError(
            "X is an array of text, in which numbers have become text too; give a data frame, "
            "whose columns have types of their own, or X.astype(object) if all are categories."
        )
    if sp.issparse(X):
        check_compressed(X)


def _check_numbers(X: Any, owner: str) -> None:
    check_form(X)
    columns = columns_of(X)
    if columns is not None and not all_numbers(columns):
        remedy = f"{owner} takes numbers alone: drop the column, or encode it by OneHotEncoder"
        for j, column in enumerate(columns):
            only_numbers(column, columns.name(j), remedy)


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
    except DuplicateError:
        names = getattr(X, "column_names", X.columns)
        twice = next(name for name, n in Counter(names).items() if n > 1)
        raise DataError(f"X has two columns named {twice!r}; rename one of them.") from None
    return Columns(frame, frame.columns) if isinstance(frame, nw.DataFrame) else None


def columns_of_dicts(X: Any, names: AnyArray) -> Columns | None:
    """Return the columns of these names of a dict, or of a list of dicts; None for others.

    A dict holds one row, or lists; a row without a name has a gap there, unless no row has it.
    """
    if isinstance(X, list) and X and all(isinstance(row, Mapping) for row in X):
        present = set().union(*X)
        X = {name: [row.get(name) for row in X] for name in names if name in present}
    elif not isinstance(X, Mapping) or hasattr(X, "shape"):
        return None
    absent = [f"- {name}\n" for name in names if name not in X]
    if absent:
        more = "".join(absent[:5])
        raise ValueError(f"{NAMES}Feature names seen at fit time, yet now missing:\n{more}")
    values = [np.atleast_1d(_objects(X[name])) for name in names]
    if len({len(each) for each in values}) > 1:
        raise DataError("X is a dict of lists of different lengths; give one for each row.")
    return Columns(np.stack(values, axis=1), names)


def _objects(values: Any) -> AnyArray:
    if getattr(getattr(values, "dtype", None), "kind", "") == "M":  # else NumPy gives integers
        values = np.asarray(values).astype("datetime64[us]")
    return np.array(values, object)


def all_numbers(columns: Columns) -> bool:
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
    n = max(1, min(1000, 1_000_000 // X.shape[1]))
    sample = X[:: -(-len(X) // n)].astype(np.float64)
    return np.asarray(np.median(sample, axis=0))


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
    entries = np.asarray(categorical)
    if entries.ndim != 1 or (entries.size and entries.dtype.kind not in "biuUO"):
        raise TypeError(
            "categorical_features must hold column names, column numbers or booleans, got "
            f"{categorical!r}."
        )
    if entries.dtype.kind == "b":
        if len(entries) != d:
            raise ValueError(
                f"categorical_features has {len(entries)} booleans, but X has {d} columns."
            )
        return entries
    names = () if columns.names is None else columns.names
    numbers = {name: j for j, name in enumerate(names)} | {j: j for j in range(d)}
    for value in entries.tolist():
        if value not in numbers:
            raise ValueError(
                f"categorical_features holds {value!r}, which is no column of X; give numbers "
                f"from 0 to {d - 1}, or names of the columns of a frame."
            )
        mask[numbers[value]] = True
    return mask


@cache
def _holder_class(owner: str) -> Any:
    """Return a class for scikit-learn's checks, which read and set attributes of estimators."""
    return type(owner, (BaseEstimator,), {})


def check_values(values: AnyArray, what: str, first: int = 0) -> None:
    """Raise DataError if a row of values is not finite; `first` is the number of the first."""
    if not all_finite(values):
        row = first + int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
        raise DataError(
            f"{what} at row {row} (rows count from 0) of those given at once: the row, or "
            "parameters of the kernel, are too large; correct or scale them."
        )
