"""How estimators take rows: arrays, sparse matrices and frames, checked and as numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_array, check_X_y, validate_data

from kernelgrad._params import anything, parameters
from kernelgrad._typing import AnyArray, Float64Array, IntArray, Matrix
from kernelgrad._validation import DataError, check_compressed
from kernelgrad.data import Batch, BatchSource
from kernelgrad.data.base import all_finite
from kernelgrad.estimators._support import as_numpy
from kernelgrad.estimators._tables import (
    Column,
    Columns,
    Table,
    all_numbers,
    check_finite,
    chosen_columns,
    columns_of,
    median_of_some,
)


class EncodedSource(BatchSource):
    """A source whose rows are encoded as they are read."""

    def __init__(
        self, source: BatchSource, encode: Callable[[Any], Matrix], n_features: int
    ) -> None:
        self.source, self.encode = source, encode
        self.n_rows, self.n_features = source.n_rows, n_features
        self.has_target, self.has_weight = source.has_target, source.has_weight
        self.seekable = source.seekable

    def read(self, start: int, stop: int) -> Batch:
        """Return rows `start` (included) to `stop` (excluded)."""
        batch = self.source.read(start, stop)
        return batch._replace(X=self.encode(batch.X))

    def take(self, rows: IntArray) -> Batch:
        """Return the given rows in the given order."""
        batch = self.source.take(rows)
        return batch._replace(X=self.encode(batch.X))

    def digest(self) -> bytes:
        """Return that of the source."""
        return self.source.digest()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "source": copy(self.source)}  # which threads read

    def block_starts(self) -> IntArray | None:
        """Return those of the source."""
        return self.source.block_starts()

    def target_chunks(self) -> Iterator[AnyArray]:
        """Yield the targets in order."""
        return self.source.target_chunks()


@parameters
class TableReader:
    """Rows as they come, and the table that a fit learns of them."""

    categorical_features: Any = anything(default="from_dtype")

    _takes_tables = True  # X holds rows, not values of a kernel
    _targets_encode = True  # the targets of all rows are known
    _table = None  # type: Table | None  # how columns become numbers, where they are not
    _medians = None  # type: Float64Array | None  # of columns of numbers, for later gaps
    _seed = 0
    if TYPE_CHECKING:
        n_features_in_: ClassVar[int]

    @property
    def _width(self) -> int:
        """Number of columns of encoded rows, which functions are of."""
        return int(self.n_features_in_) if self._table is None else self._table.width

    def _coded(
        self,
        X: Any,
        y: Any = None,
        *,
        fresh: bool,
        declared: bool = False,
        source: bool = False,
        **of_y: Any,
    ) -> tuple[Matrix, Any]:
        """Return checked rows, (n, n_features_in_), as codes where they are a table, and y.

        If `fresh`, a table is learned where columns are no numbers, have gaps, or are named as
        categories; with `declared`, of all levels that dtypes name. `source` is for rows of a
        source, whose names are checked already; `of_y` are options of the check of y.
        """
        columns = columns_of(X) if self._takes_tables else None
        rows = None
        if columns is None or all_numbers(columns):
            strict = sp.issparse(X) or not self._takes_tables
            checks = {"accept_sparse": "csr", "dtype": "numeric", "ensure_all_finite": strict}
            rows, y = self._checked(X, y, checks, of_y, fresh=fresh, source=source)
            if sp.issparse(rows) or not self._takes_tables:
                return self._without_table(rows, fresh), y
            if rows.dtype == object:  # of Arrow's booleans with gaps
                rows = None
            else:
                columns = Columns(rows, getattr(self, "feature_names_in_", None))
        assert columns is not None
        if rows is None:
            _, y = self._checked(X, y, {}, of_y, fresh=fresh, source=False)
        if rows is None and not fresh and self._table is None:  # of a model of numbers alone
            known = (Column(columns.name(j), "number") for j in range(len(columns)))
            rows = Table(tuple(known)).codes(columns)
        clean = rows is not None and all_finite(rows)
        if fresh:
            chosen = chosen_columns(self.categorical_features, columns)
            needed = not clean or (chosen is not None and bool(chosen.any()))
            self._table = self._medians = None
            if needed:
                targets = self._targets_encode
                self._table = Table.learn(columns, chosen, targets=targets, declared=declared)
            else:
                self._medians = median_of_some(np.asarray(rows))
        if self._table is not None:
            return self._table.codes(columns), y
        return rows if clean else self._filled(rows, columns), y

    @as_numpy
    def _checked(
        self, X: Any, y: Any, checks: dict[str, Any], of_y: dict[str, Any], **place: bool
    ) -> tuple[Any, Any]:
        """Return X and y after the checks of scikit-learn, of X the `checks` if there are any.

        `place` says whether rows are `fresh` and whether they are of a `source`.
        """
        check_compressed(X)
        if place["source"]:
            if y is None:
                return check_array(X, estimator=self, **checks), None
            both: tuple[Any, Any] = check_X_y(X, y, estimator=self, **checks, **of_y)
            return both
        if not checks:
            validate_data(self, X, reset=place["fresh"], skip_check_array=True)
            return X, None if y is None else check_X_y(np.zeros((len(X), 1)), y, **of_y)[1]
        if y is None:
            return validate_data(self, X, reset=place["fresh"], **checks), None
        both = validate_data(self, X, y, reset=place["fresh"], **checks, **of_y)
        return both

    def _without_table(self, X: Matrix, fresh: bool) -> Matrix:
        """Return sparse rows or kernel values, which have no categories."""
        if fresh:
            given = self.categorical_features
            if not (given is None or isinstance(given, str)) and np.size(given):
                raise ValueError(
                    "categorical_features is for frames and dense arrays; leave it at "
                    "'from_dtype' with sparse rows and kernel='precomputed'."
                )
            self._table = self._medians = None
        elif self._table is not None:
            raise ValueError(
                "The model was fitted to a table with categories, dates or missing values; "
                "give a frame or dense array with the same columns, not a sparse matrix."
            )
        return X

    def _filled(self, X: Any, columns: Columns) -> Any:
        """Return rows whose gaps, which no training row had, hold the median of the column."""
        check_finite(X, columns.name)
        if self._medians is None:
            row, j = np.argwhere(np.isnan(X))[0]
            raise DataError(
                f"Column {columns.name(j)} is missing (NaN) in row {row} (rows count from 0), "
                "and the model saw no missing values in training; impute it."
            )
        return np.where(np.isnan(X), self._medians, X).astype(X.dtype)

    def _encode_rows(self, X: Matrix, Y: Float64Array | None = None, *, fresh: bool) -> Matrix:
        """Return codes as rows that functions are of; if `fresh`, learn how from targets Y."""
        if self._table is None:
            return X
        return self._table.fit(X, Y, self._seed) if fresh else self._table.encode(X)

    def _matrix(self, X: Any, *, source: bool = False) -> Matrix:
        """Return rows to predict as functions take them."""
        codes, _ = self._coded(X, fresh=False, source=source)
        return self._encode_rows(codes, fresh=False)
