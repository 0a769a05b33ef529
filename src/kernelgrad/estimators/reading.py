"""How estimators take rows: arrays, sparse matrices and frames, checked and as numbers."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_array, check_X_y, validate_data

from kernelgrad import tables
from kernelgrad.compute.memory import give_back
from kernelgrad.compute.ranges import check_sizes
from kernelgrad.data import ArraySource, BatchSource, memory
from kernelgrad.data.base import all_finite, is_collection
from kernelgrad.estimators import support
from kernelgrad.estimators.blocks import encoded, lean
from kernelgrad.estimators.plan import Given, Parts, Reading
from kernelgrad.estimators.support import as_numpy
from kernelgrad.functions.scaling import UNITS
from kernelgrad.params import anything, parameters
from kernelgrad.registry import room
from kernelgrad.solvers.block_descent.shards import SHARD
from kernelgrad.tables import Column, Columns, Table
from kernelgrad.tasks import Task
from kernelgrad.training_rows import MAX_VALIDATION_ROWS, EncodedSource, TrainingRows
from kernelgrad.types import AnyArray, Float64Array, Matrix
from kernelgrad.validation import DataError, check_compressed

if TYPE_CHECKING:
    from kernelgrad.cluster import DaskEngine


@parameters
class RowReader:
    """Rows and targets as they come, and the table that a fit learns of them."""

    categorical_features: Any = anything(default="from_dtype")

    _takes_tables = True  # False if X holds values of a kernel
    _targets_encode = True  # True if categories may be encoded by means of the targets
    _table = None  # type: Table | None
    _medians = None  # type: Float64Array | None  # values for gaps in columns of numbers
    _seed = 0
    _shares_rows: ClassVar[bool] = False  # True if the solver takes rows that workers hold
    _requires_y: ClassVar[bool] = True
    _y_numeric: ClassVar[bool] = False
    engine = cast("DaskEngine | None", None)
    if TYPE_CHECKING:
        n_features_in_: ClassVar[int]
        memory_limit: float | None

    # -- what a task gives -------------------------------------------------------------

    @abstractmethod
    def _learn(self, targets: AnyArray | BatchSource, declared: AnyArray | None) -> Task:
        """Return the task of targets, or of a source; `declared` are all classes."""

    @abstractmethod
    def _task(self) -> Task:
        """Return the task of the fitted model."""

    def _check_targets(self, y: AnyArray) -> AnyArray:
        """Return the targets of arrays, or raise if they are not of the estimator's kind."""
        return y

    def _check_rows(self, parts: Parts, X: Matrix) -> None:
        """Raise if the rows of an array, already checked as numbers, are not for this model."""
        scaled = getattr(self, "_standardize", False)
        if scaled == UNITS or (scaled == "auto" and sp.issparse(X)):  # may stay as it is
            scaled = False
        check_sizes(X, scaled=bool(scaled))

    def _check_source(self, source: BatchSource) -> None:
        """Raise if `source` cannot be fitted, before it is read."""

    def _set(self, attributes: dict[str, Any]) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)

    # -- sources and arrays ------------------------------------------------------------

    def _rows(self, parts: Parts, given: Given, how: Reading) -> TrainingRows:
        """Return the rows of one source or of arrays; if fresh, learn columns and task."""
        X, y, _ = self._lazy(*given[:3])
        fresh, declared, stream, _ = how
        if isinstance(X, BatchSource):
            self._check_source(X)
            memory.check_reading(X, self.memory_limit)
            self._adopt_source(X, fresh=fresh)
            if not stream and self._loads(X):
                given = Given(*X.read(0, X.n_rows)[:3])
                if self.memory_limit is not None:
                    give_back()  # memory of the parts that were read
                if fresh and given.y is not None:  # errors in words of sources
                    self._learn(ArraySource(np.zeros((len(given.y), 1)), given.y), declared)
                rows = self._array_rows(parts, given, how._replace(source=True))
            else:
                task = self._learn(X, declared) if fresh else self._task()
                source = self._encoded_source(X, task if fresh else None)
                engine = self._workers_for(X)
                store = (
                    None if engine is None else partial(room("cluster").HeldRows, engine=engine)
                )
                rows = TrainingRows(source, task, store=store)
        else:
            if y is None and self._requires_y:
                raise ValueError(
                    f"requires y to be passed, but the target y is None: give y to "
                    f"{type(self).__name__}.fit, or a BatchSource with a target."
                )
            rows = self._array_rows(parts, given, how)
        if fresh:
            self._set(rows.task.attributes())
        return rows

    def _lazy(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """Return a source of a collection of dask; all others as they are."""
        if is_collection(X):
            client = None if self.engine is None else self.engine.resolved()
            return room("cluster").DaskSource(X, y, sample_weight, client=client), None, None
        if isinstance(X, BatchSource) and not (y is None and sample_weight is None):
            raise ValueError("A BatchSource carries its own y and weights; leave them out.")
        return X, y, sample_weight

    def _workers_for(self, source: BatchSource) -> DaskEngine | None:
        """Return the engine whose workers hold the rows of a source; None for this process."""
        if not self._shares_rows or source.n_rows <= SHARD:  # one worker would have all rows
            return None
        if self.engine is None and source.on_workers:
            return room("cluster").current_engine()  # type: ignore[no-any-return]
        return self.engine

    def _stays(self, rows: TrainingRows) -> bool:
        """Whether rows stay where they are: they or their responses do not fit in memory."""
        return not rows.in_memory or not all(
            memory.bytes_needed(source.n_rows, memory.rows_nbytes(source), rows.task.n_outputs)
            <= memory.usable_memory(self.memory_limit)
            for source in rows.sources
        )

    def _loads(self, source: BatchSource) -> bool:
        """Whether a fit reads a source into memory, where it is as good as arrays."""
        if self._workers_for(source) is not None:
            return False
        return memory.fits_in_memory(source, self.memory_limit)

    def _array_rows(self, parts: Parts, given: Given, how: Reading) -> TrainingRows:
        X, y, sample_weight = given[:3]
        asked, fresh = X, how.fresh
        memmap = (
            X
            if isinstance(X, np.memmap) and not self._loads(ArraySource(X, checked=True))
            else None
        )
        options: dict[str, Any] = {"multi_output": True, "y_numeric": self._y_numeric}
        y = y if self._requires_y else None
        if self._y_numeric:
            support.check_numbers(y, type(self).__name__)
        X, y = self._coded(X, y, how, **options)
        y = self._check_targets(np.zeros(X.shape[0]) if y is None else y)
        task = self._learn(y, how.declared) if fresh else self._task()
        y = task.internal(y)
        X = self._encode_rows(X, task.columns(y) if fresh else None, fresh=fresh)
        self._check_rows(parts, X)
        weight = support.checked_weights(sample_weight, X, task.class_factor(y))
        if memmap is not None:
            if self._table is not None:
                raise DataError(
                    "The memory map has missing values or categories and does not fit in "
                    "memory; impute or encode it, raise memory_limit, or write it as Parquet."
                )
            X = memmap  # stays on disk
        arrays = ArraySource(X, y, weight, checked=True)
        return TrainingRows(arrays, task, True, made=how.source or not _shared(X, asked))

    def _rows_apart(self, parts: Parts, task: Task, given: Given) -> TrainingRows:
        X, y, weight = self._lazy(*given[:3])
        source = isinstance(X, BatchSource)
        if source:
            self._check_source(X)
            self._adopt_source(X, fresh=False)
            rng = np.random.default_rng(self._seed)
            X, y, weight, _ = X.take(TrainingRows(X, task).sample(MAX_VALIDATION_ROWS, rng))
        if y is None:
            raise ValueError(f"y_val is None; give {task.scored_by}.")
        options: dict[str, Any] = {"multi_output": True, "y_numeric": self._y_numeric}
        X, y = self._coded(X, y, Reading(False, source=source), **options)
        y = task.scored(self._check_targets(y))
        weight = support.checked_weights(weight, X, task.class_factor(y))
        X = self._encode_rows(X, fresh=False)
        if self._takes_tables:  # values of a kernel need not be square here
            self._check_rows(parts, X)
        return TrainingRows(ArraySource(X, y, weight, checked=True), task, encoded=True)

    def _encoded_source(self, source: BatchSource, task: Task | None = None) -> BatchSource:
        """Return a source of rows as functions take them.

        With the `task` of a new fit their table is learned from a random sample.
        """
        if task is not None:
            self._table = self._medians = None
        if not source.as_frame and self._table is None:
            return source
        if task is not None:
            n = source.n_rows
            rng = np.random.default_rng(self._seed)
            sample = source.take(np.sort(rng.choice(n, min(n, 50_000), replace=False)))
            codes, _ = self._coded(sample.X, None, Reading(True, source=True))
            y = None if sample.y is None else task.internal(sample.y)
            self._encode_rows(codes, None if y is None else task.columns(y), fresh=True)
        return EncodedSource(source, partial(encoded, lean(self)), self._width)

    def _adopt_source(self, source: BatchSource, *, fresh: bool) -> None:
        if self._requires_y and not source.has_target:
            raise DataError(
                f"{type(source).__name__} has no target; name the target column to open it."
            )
        if fresh:
            support.adopt_columns(self, source)
        else:
            support.check_columns(self, source)

    # -- tables ------------------------------------------------------------------------

    @property
    def _width(self) -> int:
        return int(self.n_features_in_) if self._table is None else self._table.width

    def _coded(self, X: Any, y: Any, how: Reading, **of_y: Any) -> tuple[Matrix, Any]:
        """Return checked rows, (n, n_features_in_), as codes where they are a table, and y.

        If fresh, a table is learned where columns are no numbers, have gaps, or are named as
        categories; of a stream with all levels that dtypes name. The names of a source are
        checked already; `of_y` are options of the check of y.
        """
        fresh = how.fresh
        columns = tables.columns_of(X) if self._takes_tables else None
        rows = None
        if columns is None or tables.all_numbers(columns):
            strict = sp.issparse(X) or not self._takes_tables
            checks = {"accept_sparse": "csr", "dtype": "numeric", "ensure_all_finite": strict}
            rows, y = self._checked(X, y, checks, of_y, how)
            # NumPy sums numbers of another byte order in another order
            rows = rows.astype(rows.dtype.newbyteorder("="), copy=False)
            if sp.issparse(rows) or not self._takes_tables:
                return self._without_table(rows, fresh), y
            if rows.dtype == object:  # Arrow's booleans with gaps
                rows = None
            else:
                columns = Columns(rows, getattr(self, "feature_names_in_", None))
        assert columns is not None
        if rows is None:
            _, y = self._checked(X, y, {}, of_y, how._replace(source=False))
        if rows is None and not fresh and self._table is None:  # the model is of numbers
            known = (Column(columns.name(j), "number") for j in range(len(columns)))
            rows = Table(tuple(known)).codes(columns)
        clean = rows is not None and all_finite(rows)
        if fresh:
            chosen = tables.chosen_columns(self.categorical_features, columns)
            needed = not clean or (chosen is not None and bool(chosen.any()))
            self._table = self._medians = None
            if needed:
                targets = self._targets_encode
                self._table = Table.learn(columns, chosen, targets=targets, declared=how.stream)
            else:
                self._medians = tables.median_of_some(np.asarray(rows))
        if self._table is not None:
            return self._table.codes(columns), y
        return rows if clean else self._filled(rows, columns), y

    @as_numpy
    def _checked(
        self, X: Any, y: Any, checks: dict[str, Any], of_y: dict[str, Any], how: Reading
    ) -> tuple[Any, Any]:
        """Return X and y as scikit-learn checks them, X by the `checks` if there are any."""
        check_compressed(X)
        if how.source:
            if y is None:
                return check_array(X, estimator=self, **checks), None
            both: tuple[Any, Any] = check_X_y(X, y, estimator=self, **checks, **of_y)
            return both
        if not checks:
            validate_data(self, X, reset=how.fresh, skip_check_array=True)
            return X, None if y is None else check_X_y(np.zeros((len(X), 1)), y, **of_y)[1]
        if y is None:
            return validate_data(self, X, reset=how.fresh, **checks), None
        both = validate_data(self, X, y, reset=how.fresh, **checks, **of_y)
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
        tables.check_finite(X, columns.name)
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
        codes, _ = self._coded(X, None, Reading(False, source=source))
        return self._encode_rows(codes, fresh=False)


def _shared(X: Any, given: Any) -> bool:
    """Whether rows are the arrays that were given, or views of them."""
    a, b = (getattr(it, "data", None) if sp.issparse(it) else it for it in (X, given))
    return isinstance(b, np.ndarray) and bool(np.may_share_memory(a, b))
