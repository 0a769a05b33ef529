"""How families read data: arrays and sources come in, training rows go out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import _check_sample_weight

from kernelgrad.callbacks import FOREVER, CallbackList, Checkpoint, Deadline
from kernelgrad.compute.memory import LEAST_LIMIT, give_back
from kernelgrad.data import ArraySource, BatchSource
from kernelgrad.data.base import bytes_needed, distinct_text, is_collection
from kernelgrad.data.sampling import random_rows
from kernelgrad.inputs import Inputs, as_numpy
from kernelgrad.registry import room
from kernelgrad.solvers.block_descent.shards import SHARD
from kernelgrad.tables import is_gap, only_numbers
from kernelgrad.tasks import Task
from kernelgrad.training_rows import MAX_VALIDATION_ROWS, EncodedSource, TrainingRows
from kernelgrad.types import AnyArray, Float64Array, Matrix
from kernelgrad.validation import DataError

if TYPE_CHECKING:
    from kernelgrad.cluster import DaskEngine
    from kernelgrad.families.base import Spec
    from kernelgrad.model import Fit, Model


class Data(NamedTuple):
    """Rows as a caller gives them; `other` has no labels, or is the denominator's."""

    X: Any
    y: Any = None
    sample_weight: Any = None
    other: Any = None


NO_DATA = Data(None)


@dataclass(frozen=True)
class Run:
    """How a fit runs: until when, who listens, what came before and what may follow."""

    deadline: Deadline = FOREVER
    callbacks: CallbackList = field(default_factory=CallbackList)
    stream: bool = False  # True if rows come once, in order, and others may follow
    declared: AnyArray | None = None  # all classes, where the caller named them
    checkpoint: Checkpoint | None = None  # files of the state
    before: Fit | None = None  # the fit that goes on
    seed: int = 0  # for all random numbers of the fit

    @property
    def model(self) -> Model | None:
        """The model of the fit that goes on."""
        return None if self.before is None else self.before.model

    def seeded(self, random_state: Any) -> Run:
        """Return the run with the seed of the fit that goes on or is resumed, or a new one."""

        def new_seed() -> int:
            return int(check_random_state(random_state).randint(0, 2**31 - 1))

        if self.before is not None:
            return replace(self, seed=self.before.choice.seed)
        if self.checkpoint is None or isinstance(random_state, int | np.integer):
            return replace(self, seed=new_seed())
        return replace(self, seed=self.checkpoint.seed(new_seed))


@dataclass(frozen=True)
class Reader:
    """Reads data as a specification says; `read` gives the rows of a fit."""

    spec: Spec

    def read(self, data: Data, run: Run) -> TrainingRows:
        """Return the rows; their columns and task are learned, or those of the fit before."""
        data, before = self.lazy(data), run.model
        X = data.X
        if not isinstance(X, BatchSource):
            if data.y is None and self.spec.targets.required:
                raise ValueError(
                    "requires y to be passed, but the target y is None: give y to "
                    f"{self.spec.owner}.fit, or a BatchSource with a target."
                )
            return self.read_arrays(data, run, before, None)
        inputs = self.inputs_of(X, before)
        self.spec.resources.check(
            f"a fit from this {type(X).__name__}",
            X.reading_bytes + 64 * 2**20,  # the work of a fit
            "write the rows as Parquet with smaller row groups", bound=LEAST_LIMIT,
        )  # fmt: skip
        if not run.stream and self.loads(X):
            data = Data(*X.read(0, X.n_rows)[:3])
            if self.spec.resources.memory_limit is not None:
                give_back()  # memory of the parts that were read
            if before is None and data.y is not None:  # errors in words of sources
                blank = np.zeros((len(data.y), 1))
                self.spec.targets.learn(ArraySource(blank, data.y), run.declared)
            return self.read_arrays(data, run, before, inputs)
        task = self.spec.targets.learn(X, run.declared) if before is None else before.task
        learned = task if before is None else None
        inputs, source = self.encoded_source(X, inputs, run.seed, learned)
        engine = self.workers_for(X)
        store = None if engine is None else partial(room("cluster").HeldRows, engine=engine)
        return TrainingRows(source, task, store=store, inputs=inputs)

    def read_arrays(
        self, data: Data, run: Run, before: Model | TrainingRows | None, named: Inputs | None,
        *, validates: bool = False,
    ) -> TrainingRows:  # fmt: skip
        """Return the rows of arrays; names of columns that are `named` are checked already."""
        X, y, weight = data[:3]
        on_disk = isinstance(X, np.memmap) and not self.loads(ArraySource(X, checked=True))
        options: dict[str, Any] = {"multi_output": True, "y_numeric": self.spec.targets.numeric}
        y = y if self.spec.targets.required or validates else None
        if y is not None:
            _check_targets(y, self.spec)
        marks = y if self.spec.marks_rows else None
        y = None if self.spec.marks_rows else y
        if before is None:
            inputs, codes, y = self.learned(X, y, named, stream=run.stream, **options)
        else:
            inputs = before.inputs
            codes, y = inputs.codes(X, y, source=named is not None, **options)
        if marks is not None:
            check_consistent_length(codes, marks)
            y = marks
        y = self.spec.targets.checked(np.zeros(codes.shape[0]) if y is None else y)
        task = self.spec.targets.learn(y, run.declared) if before is None else before.task
        y = task.scored(y) if validates else task.internal(y)
        new = before is None
        rows = inputs.fitted(codes, y, task, run.seed) if new else inputs.encode(codes)
        if not (validates and self.spec.is_pairwise):  # in a fit they are square
            self.spec.check_rows(inputs, rows)
        weight = checked_weights(weight, rows, task.class_factor(y))
        if on_disk:
            if inputs.table is not None:
                raise DataError(
                    "The memory map has missing values or categories and does not fit in "
                    "memory; impute or encode it, raise memory_limit, or write it as Parquet."
                )
            rows = X
        source = ArraySource(rows, y, weight, checked=True)
        is_own = named is not None or not _shared(rows, X)
        return TrainingRows(source, task, True, is_own_copy=is_own, inputs=inputs)

    def learned(
        self, X: Any, y: Any, named: Inputs | None = None, *, stream: bool = False, **of_y: Any
    ) -> tuple[Inputs, Matrix, Any]:
        """Return the columns of X, their codes and y."""
        return Inputs.learn(
            X, y, owner=self.spec.owner, pairwise=self.spec.is_pairwise, source=named,
            categorical=self.spec.params.categorical_features, declared=stream,
            targets=self.spec.targets.encode_levels, **of_y,
        )  # fmt: skip

    def read_validation(self, data: Data, rows: TrainingRows, run: Run) -> TrainingRows:
        """Return rows that only validate, read as the training rows are."""
        data, named = self.lazy(data), None
        if isinstance(data.X, BatchSource):
            named, rng = self.inputs_of(data.X, rows), np.random.default_rng(run.seed)
            sample = random_rows(data.X.n_rows, MAX_VALIDATION_ROWS, rng)
            data = Data(*data.X.take(sample)[:3])
        if data.y is None:
            raise ValueError("y_val is None; give the targets of X_val.")
        return self.read_arrays(data, run, rows, named, validates=True)

    def with_validation(self, rows: TrainingRows, validation: Data, run: Run) -> TrainingRows:
        """Return the rows with those that validate, and where they stay during the fit."""
        rows = rows.within(self.spec.resources.usable)
        if validation.X is None:
            return rows
        if not rows.task.has_targets:
            raise ValueError("X_val is for models of targets; score this one after the fit.")
        try:
            others = self.read_validation(validation, rows, run)
        except (TypeError, ValueError) as error:
            name = "The rows for validation, X_val and y_val"
            raise type(error)(f"{name}: {error}") from error
        return replace(rows, validation_rows=others)

    def lazy(self, data: Data) -> Data:
        """Return a source in place of a collection of dask; all others as they are."""
        X, y, weight = data[:3]
        if is_collection(X):
            engine = self.spec.params.engine
            client = None if engine is None else engine.resolved()
            source = room("cluster").DaskSource(X, y, weight, client=client)
            return Data(source, None, None, data.other)
        if isinstance(X, BatchSource) and not (y is None and weight is None):
            raise ValueError("A BatchSource carries its own y and weights; leave them out.")
        return data

    def inputs_of(self, source: BatchSource, before: Model | TrainingRows | None) -> Inputs:
        """Return the columns of a source, which must be those of the model or rows `before`."""
        if self.spec.is_pairwise:
            raise ValueError(
                "kernel='precomputed' takes the kernel matrix as an array, not a "
                f"{type(source).__name__}."
            )
        if self.spec.targets.required and not source.has_target:
            raise DataError(
                f"{type(source).__name__} has no target; name the target column to open it."
            )
        if before is None:
            return Inputs.of_source(source, self.spec.owner)
        before.inputs.check_source(source)
        return before.inputs

    def encoded_source(
        self, source: BatchSource, inputs: Inputs, seed: int, task: Task | None
    ) -> tuple[Inputs, BatchSource]:
        """Return the columns and a source of rows as functions take them.

        With the `task` of a new fit a table is learned from a random sample.
        """
        if not source.as_frame and inputs.table is None:
            return inputs, source
        if task is not None:
            rng = np.random.default_rng(seed)
            sample = source.take(random_rows(source.n_rows, 50_000, rng))
            inputs, codes, _ = self.learned(sample.X, None, inputs)
            y = None if sample.y is None else task.internal(sample.y)
            inputs.fitted(codes, y, task, seed)
        read = partial(inputs.read, source=True)
        return inputs, EncodedSource(source, read, inputs.width)

    def loads(self, source: BatchSource) -> bool:
        """Whether a fit reads a source into memory, where it is as good as arrays."""
        if self.workers_for(source) is not None:
            return False
        needed = bytes_needed(source.n_rows, source.nbytes) + source.reading_bytes / 2
        return source.in_memory or needed <= self.spec.resources.usable

    def workers_for(self, source: BatchSource) -> DaskEngine | None:
        """Return the engine whose workers hold the rows of a source; None for this process."""
        if not self.spec.shares_rows or source.n_rows <= SHARD:  # one has all
            return None
        if self.spec.params.engine is None and source.on_workers:
            return room("cluster").current_engine()  # type: ignore[no-any-return]
        return self.spec.params.engine  # type: ignore[no-any-return]


@as_numpy
def checked_weights(
    sample_weight: Any, X: Matrix, factor: Float64Array | None = None
) -> Float64Array:
    """Return weights times the factor of each row; at least one row must count."""
    if sample_weight is not None:
        remedy = "give one of at least 0 for each row"
        only_numbers(np.asarray(sample_weight).ravel(), "sample_weight", remedy)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    weight = weight if factor is None else weight * factor
    with np.errstate(over="ignore"):
        total = float(weight.sum())
    if not total > 0:
        raise ValueError("All sample weights are zero; at least one row must count.")
    if not 1e-30 <= total <= 1e30:
        raise ValueError(
            f"The sum of the sample weights is {total:.3g}, not within 1e-30 and 1e30; divide "
            "them by their mean."
        )
    # a weight that is lost in every sum of float64 would overflow as a divisor
    return np.where(weight < 1e-30 * weight.max(), 0.0, weight)


def _check_targets(y: Any, spec: Spec) -> None:
    """Raise for targets with gaps, labels of two types, and dates or text for numbers."""
    values = np.asarray(y)
    if values.dtype.kind == "U" and isinstance(y, list | tuple):
        values = np.asarray(y, object)  # NumPy makes text of gaps and numbers
    if values.size == 0:  # scikit-learn's checks have words for it
        return
    if values.ndim == 0:
        raise DataError(
            f"y is {y!r}; give one target for each row, or a file and the name of its target "
            "column by open_source."
        )
    if values.dtype == object and not spec.targets.numeric and distinct_text(values):
        return
    rows = values.reshape(len(values), -1)
    kind, owner, marks = rows.dtype.kind, spec.owner, spec.marks_rows
    missing = np.zeros(rows.shape, bool)
    if kind == "f":
        missing = np.isinf(rows) if marks else ~np.isfinite(rows)
    elif kind == "O" and not marks:
        missing = np.reshape([is_gap(value) for value in rows.flat], rows.shape)
    if missing.any():
        row, column = np.argwhere(missing)[0]
        raise DataError(
            f"y holds {rows[row, column]} in row {row} (rows count from 0), and no row can be "
            "fitted without its target; correct it, or drop such rows."
        )
    if kind not in "OUmM" or marks:
        return
    if not spec.targets.numeric:
        types = {type(value).__name__ for value in rows.flat}
        if kind == "O" and types - {"str", "str_"}:
            raise DataError(
                f"Unknown label type: y holds objects of types {', '.join(sorted(types))}; "
                "make them all text, or all numbers, by y.astype(str) or y.astype(int)."
            )
        return
    for value in rows.flat:
        if kind in "mM" or hasattr(value, "isoformat"):
            raise DataError(
                f"y holds dates such as {value}, but {owner} predicts numbers; give numbers, "
                "for example days from a first date."
            )
        try:
            float(value if isinstance(value, str) else 0)
        except ValueError:
            raise DataError(
                f"y holds {str(value)!r}, but {owner} predicts numbers; give numbers, or take "
                "a classifier for labels."
            ) from None


def _shared(X: Any, original: Any) -> bool:
    """Whether rows are the arrays of the caller, or views of them."""
    if sp.issparse(X):
        X, original = X.data, getattr(original, "data", None)
    return isinstance(original, np.ndarray) and bool(np.may_share_memory(X, original))
