"""What all families share: how parameters and data become rows, a choice and a problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import _check_sample_weight

from kernelgrad.calibration import Calibration, Responses, restored_responses
from kernelgrad.callbacks import FOREVER, CallbackList, Deadline, Session
from kernelgrad.choice import GIVEN, Choice
from kernelgrad.compute.backend import CPU, get_device
from kernelgrad.compute.compiling import clock
from kernelgrad.compute.memory import LEAST_LIMIT, give_back
from kernelgrad.compute.ranges import check_sizes
from kernelgrad.data import ArraySource, BatchSource
from kernelgrad.data.base import bytes_needed, is_collection
from kernelgrad.families import classes, warnings
from kernelgrad.files.records import Record
from kernelgrad.functions.expansions import Expansion
from kernelgrad.functions.features import CACHE_BYTES
from kernelgrad.inputs import Inputs, as_numpy
from kernelgrad.kernels import Kernel
from kernelgrad.model import Fit, Model
from kernelgrad.registry import room
from kernelgrad.solvers import SOLVERS, FitResult, Problem, Resources, Solver, Validation
from kernelgrad.solvers.block_descent.shards import SHARD
from kernelgrad.tasks import Classification, Targets, Task
from kernelgrad.training_rows import MAX_VALIDATION_ROWS, EncodedSource, TrainingRows
from kernelgrad.types import AnyArray, Float64Array, Matrix
from kernelgrad.validation import DataError

if TYPE_CHECKING:
    from kernelgrad.cluster import DaskEngine

# Values of parameters that an estimator does not have.
_DEFAULTS: dict[str, Any] = {
    "C": None, "categorical_features": "from_dtype", "device": CPU, "early_stopping": False,
    "engine": None, "fit_intercept": False, "n_iter_no_change": None, "probability": False,
    "tol": 0.0, "warm_start": False,
}  # fmt: skip


class Data(NamedTuple):
    """Rows as a caller gives them; `other` has no labels, or is the denominator's."""

    X: Any
    y: Any = None
    sample_weight: Any = None
    other: Any = None


@dataclass(frozen=True)
class Run:
    """How a fit runs: until when, who listens, where rows are, and what may follow.

    Attributes
    ----------
    deadline : Deadline
    callbacks : CallbackList
    stream : bool
        True if rows come once, in order, and others may follow.
    declared : array or None
        All classes, where the caller named them.
    checkpoint : Session
        The files that hold the state of the fit, and that of a fit before it.
    """

    deadline: Deadline = FOREVER
    callbacks: CallbackList = field(default_factory=CallbackList)
    stream: bool = False
    declared: AnyArray | None = None
    checkpoint: Session = field(default_factory=Session)


class Spec(ABC):
    """Checked parameters of an estimator, and what its family of functions makes of them.

    The road of a fit (:func:`kernelgrad.fit.fit`) calls the methods in the order in which they
    stand here. A specification does not change once it is made.

    Attributes
    ----------
    owner : str
        Name of the estimator in messages.
    params : namespace
        The parameters by name.
    autos : set of str
        The names of the parameters that are "auto".
    targets : Targets
        What the parameters say of targets.
    resources : Resources
        Memory and device.
    kernel : Kernel
        The kernel, perhaps with a rule for its bandwidth.
    solver : Solver
        With ``solver="auto"`` any solver of the family: the rows decide.
    """

    solvers: ClassVar[Mapping[str, Any]] = SOLVERS  # by name
    streaming: ClassVar[tuple[str, str]]  # remedy, and solvers for streams, in messages
    problem_type: ClassVar[type[Problem]] = Problem
    orders_rows: bool = True  # True if rows may be sorted and equal ones merged
    is_pairwise: bool = False  # True if X holds values of a kernel
    shares_rows: bool = False  # True if the solver takes rows that workers hold
    searches_alpha: bool = False
    marks_rows: bool = False  # True if y marks rows without a label, which may be gaps

    def __init__(self, owner: str, params: Mapping[str, Any], targets: Targets) -> None:
        self.owner, self.targets = owner, targets
        self.params = SimpleNamespace(**_DEFAULTS | dict(params))
        self.autos = {k for k, v in params.items() if isinstance(v, str) and v == "auto"}
        self.is_auto = "solver" in self.autos
        limit = self.params.memory_limit
        limit = None if limit is None else int(limit)
        cache = CACHE_BYTES if limit is None else limit // 4
        self.resources = Resources(limit, cache_bytes=cache, device=self.params.device)
        self.check()
        self.kernel = self.make_kernel()
        self.solver = self.make_solver(None)

    # -- parameters ----------------------------------------------------------------------

    def check(self) -> None:  # noqa: B027 (most families have nothing else to check)
        """Raise if parameters are wrong that neither kernel nor solver checks."""

    @abstractmethod
    def make_kernel(self) -> Kernel:
        """Return the kernel of the parameters, checked."""

    @abstractmethod
    def make_solver(self, chosen: Solver[Any] | None) -> Solver[Any]:
        """Return the solver of the parameters, or the `chosen` one with their settings."""

    def check_streams(self, before: Fit | None) -> None:
        """Raise AttributeError if the solver needs all rows at once."""
        instead, for_streams = self.streaming
        if self.is_auto:
            if before is None or before.choice.solver.streams:
                return
            raise AttributeError(
                f"fit took the solver {before.choice.solver.name!r} ({before.choice.reason}), "
                "which cannot go on with other rows; for partial_fit take a new estimator"
                f"{instead}."
            )
        if not self.solver.streams:
            raise AttributeError(
                f"solver {self.solver.name!r} needs all rows at once and has "
                f"no partial_fit; use fit, or a solver for streams such as {for_streams}."
            )

    def check_start(self, before: Fit | None) -> None:
        """Raise if this machine lacks the device, or a fit `before` cannot go on like this."""
        if self.params.device != CPU:
            get_device(self.params.device)
            if not self.is_auto:
                self.solver.check_device(self.params.device, self.kernel)
        if before is None:
            return
        if before.state is None:
            raise ValueError(
                "This model was loaded without the solver's state, or compressed, and cannot "
                "be continued; save it with resumable=True, or fit a new estimator."
            )
        if self.is_auto and before.choice.reason != GIVEN:
            return
        then, now = before.choice.solver, self.solver
        if repr(now) != repr(then) or type(now) is not type(then):
            raise ValueError(
                f"solver changed from {then!r} to {now!r} in the middle of a fit; "
                "set it back, or fit a new estimator."
            )

    # -- rows ----------------------------------------------------------------------------

    def new_seed(self) -> int:
        return int(check_random_state(self.params.random_state).randint(0, 2**31 - 1))

    def read(self, data: Data, run: Run, seed: int, before: Model | None) -> TrainingRows:
        """Return the rows; without a model `before` their columns and task are learned."""
        data = self.lazy(data)
        X = data.X
        if not isinstance(X, BatchSource):
            if data.y is None and self.targets.required:
                raise ValueError(
                    "requires y to be passed, but the target y is None: give y to "
                    f"{self.owner}.fit, or a BatchSource with a target."
                )
            return self.read_arrays(data, run, seed, before, None)
        inputs = self.inputs_of(X, before)
        self.resources.check(
            f"a fit from this {type(X).__name__}",
            X.reading_bytes + 64 * 2**20,  # the work of a fit
            "write the rows as Parquet with smaller row groups", bound=LEAST_LIMIT,
        )  # fmt: skip
        if not run.stream and self.loads(X):
            data = Data(*X.read(0, X.n_rows)[:3])
            if self.resources.memory_limit is not None:
                give_back()  # memory of the parts that were read
            if before is None and data.y is not None:  # errors in words of sources
                blank = np.zeros((len(data.y), 1))
                self.targets.learn(ArraySource(blank, data.y), run.declared)
            return self.read_arrays(data, run, seed, before, inputs)
        task = self.targets.learn(X, run.declared) if before is None else before.task
        inputs, source = self.encoded_source(X, inputs, seed, task if before is None else None)
        engine = self.workers_for(X)
        store = None if engine is None else partial(room("cluster").HeldRows, engine=engine)
        return TrainingRows(source, task, store=store, inputs=inputs)

    def read_arrays(
        self, data: Data, run: Run, seed: int, before: Model | TrainingRows | None,
        named: Inputs | None, *, validates: bool = False,
    ) -> TrainingRows:  # fmt: skip
        """Return the rows of arrays; names of columns that are `named` are checked already."""
        X, y, weight = data[:3]
        on_disk = isinstance(X, np.memmap) and not self.loads(ArraySource(X, checked=True))
        options: dict[str, Any] = {"multi_output": True, "y_numeric": self.targets.numeric}
        y = y if self.targets.required or validates else None
        if self.targets.numeric:
            _check_numbers(y, self.owner)
        marks = y if self.marks_rows else None
        y = None if self.marks_rows else y
        if before is None:
            inputs, codes, y = self.learned(X, y, named, stream=run.stream, **options)
        else:
            inputs = before.inputs
            codes, y = inputs.codes(X, y, source=named is not None, **options)
        if marks is not None:
            check_consistent_length(codes, marks)
            y = marks
        y = self.targets.checked(np.zeros(codes.shape[0]) if y is None else y)
        task = self.targets.learn(y, run.declared) if before is None else before.task
        y = task.scored(y) if validates else task.internal(y)
        rows = inputs.fitted(codes, y, task, seed) if before is None else inputs.encode(codes)
        if not (validates and self.is_pairwise):  # the first rows of a kernel must be square
            self.check_rows(inputs, rows)
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
            X, y, owner=self.owner, pairwise=self.is_pairwise, source=named,
            categorical=self.params.categorical_features, declared=stream,
            targets=self.targets.encode_levels, **of_y,
        )  # fmt: skip

    def read_validation(
        self, data: Data, rows: TrainingRows, run: Run, seed: int
    ) -> TrainingRows:
        """Return rows that only validate, read as the training rows are."""
        data, named = self.lazy(data), None
        if isinstance(data.X, BatchSource):
            named, rng = self.inputs_of(data.X, rows), np.random.default_rng(seed)
            sample = TrainingRows(data.X, rows.task).sample(MAX_VALIDATION_ROWS, rng)
            data = Data(*data.X.take(sample)[:3])
        if data.y is None:
            raise ValueError(f"y_val is None; give {rows.task.scored_by}.")
        return self.read_arrays(data, run, seed, rows, named, validates=True)

    def with_validation(
        self, rows: TrainingRows, validation: Data | None, run: Run, seed: int
    ) -> TrainingRows:
        """Return the rows with those that validate, and where they stay during the fit."""
        if run.stream:
            return rows
        rows = rows.within(self.resources.usable)
        if validation is None or validation.X is None:
            return rows
        try:
            others = self.read_validation(validation, rows, run, seed)
        except (TypeError, ValueError) as error:
            name = "The rows for validation, X_val and y_val"
            raise type(error)(f"{name}: {error}") from error
        return replace(rows, validation_rows=others)

    def lazy(self, data: Data) -> Data:
        """Return a source in place of a collection of dask; all others as they are."""
        X, y, weight = data[:3]
        if is_collection(X):
            engine = self.params.engine
            client = None if engine is None else engine.resolved()
            source = room("cluster").DaskSource(X, y, weight, client=client)
            return Data(source, None, None, data.other)
        if isinstance(X, BatchSource) and not (y is None and weight is None):
            raise ValueError("A BatchSource carries its own y and weights; leave them out.")
        return data

    def inputs_of(self, source: BatchSource, before: Model | TrainingRows | None) -> Inputs:
        """Return the columns of a source, which must be those of the model or rows `before`."""
        if self.is_pairwise:
            raise ValueError(
                "kernel='precomputed' takes the kernel matrix as an array, not a "
                f"{type(source).__name__}."
            )
        if self.targets.required and not source.has_target:
            raise DataError(
                f"{type(source).__name__} has no target; name the target column to open it."
            )
        if before is None:
            return Inputs.of_source(source, self.owner)
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
            n = source.n_rows
            rng = np.random.default_rng(seed)
            sample = source.take(np.sort(rng.choice(n, min(n, 50_000), replace=False)))
            inputs, codes, _ = self.learned(sample.X, None, inputs)
            y = None if sample.y is None else task.internal(sample.y)
            inputs.fitted(codes, y, task, seed)
        read = partial(inputs.read, source=True)
        return inputs, EncodedSource(source, read, inputs.width)

    def check_rows(self, inputs: Inputs, X: Matrix) -> None:
        """Raise if the rows of an array, already checked as numbers, are not for this model."""
        check_sizes(X, scaled=False)

    def loads(self, source: BatchSource) -> bool:
        """Whether a fit reads a source into memory, where it is as good as arrays."""
        if self.workers_for(source) is not None:
            return False
        needed = bytes_needed(source.n_rows, source.nbytes)
        return source.in_memory or needed <= self.resources.usable

    def workers_for(self, source: BatchSource) -> DaskEngine | None:
        """Return the engine whose workers hold the rows of a source; None for this process."""
        if not self.shares_rows or source.n_rows <= SHARD:  # one worker would have all rows
            return None
        if self.params.engine is None and source.on_workers:
            return room("cluster").current_engine()  # type: ignore[no-any-return]
        return self.params.engine  # type: ignore[no-any-return]

    # -- the choice ----------------------------------------------------------------------

    def first_choice(
        self, rows: TrainingRows, seed: int, run: Run, before: Fit | None
    ) -> Choice:
        """Return the solver for these rows and the reason; the rest is not known yet."""
        if before is not None:
            return before.choice
        solver, reason = self.solver, GIVEN
        if self.is_auto:
            solver, reason = self.automatic(rows, stream=run.stream)
        return Choice(seed, solver, reason, max_iter=int(self.params.max_iter))

    @abstractmethod
    def automatic(self, rows: TrainingRows, *, stream: bool) -> tuple[Solver[Any], str]:
        """Return what ``solver="auto"`` stands for with these rows, and why."""

    def restored_choice(self, rows: TrainingRows, record: Record) -> Choice:
        """Return the choice of the checkpoint that is resumed."""
        solver = None if self.is_auto else self.solver
        choice = Choice.restore(record, solver, rows.inputs.width, rows.task)
        same = isinstance(self.params.random_state, int | np.integer)
        return replace(choice, seed=self.new_seed()) if same else choice

    def ordered_rows(self, rows: TrainingRows, choice: Choice) -> TrainingRows:
        """Return the rows in their order, of which some may be held out."""
        limit = choice.solver.resolve_batch_size(None) if self.orders_rows else None
        rows = rows.ordered(limit)
        if self.is_calibrated(rows.task) and rows.n_train >= classes.MANY_ROWS:
            rows = rows.hold_out(classes.share(rows), choice.seed, stratify=False)
        if self.params.early_stopping and rows.validation_rows is None:
            rows = rows.hold_out(self.params.validation_fraction, choice.seed)
        return rows

    def problem(self, rows: TrainingRows, choice: Choice, run: Run) -> Problem:
        """Return the problem of rows and parameters; raise if memory does not do for it."""
        solver = choice.solver
        copied, prepared, reading = rows.bytes_of_fit(solver, stream=run.stream)
        resources = replace(self.resources, copied_bytes=copied, deadline=run.deadline)
        alpha = self.alpha(rows, stream=run.stream)
        problem = self.make_problem(rows.task, rows.inputs, choice.seed, alpha, resources)
        stays = rows.reads_in_pieces and solver.takes_stores
        least = solver.least_bytes(problem, rows.n_rows, prepared, stays=stays)
        resources.check(
            f"solver {solver.name!r} with these rows, outputs and parameters",
            max(least, reading) + copied, solver.instead, bound=LEAST_LIMIT,
        )  # fmt: skip
        return problem

    def make_problem(
        self, task: Task, inputs: Inputs, seed: int, alpha: float, resources: Resources
    ) -> Problem:
        return self.problem_type(
            loss=task.loss, kernel=self.kernel, alpha=alpha, n_outputs=task.n_outputs,
            n_features_in=inputs.width, seed=seed,
            fit_intercept=bool(self.params.fit_intercept), resources=resources,
            **self.problem_options(inputs),
        )  # fmt: skip

    @abstractmethod
    def problem_options(self, inputs: Inputs) -> dict[str, Any]:
        """Return what only problems of the family have."""

    @abstractmethod
    def alpha(self, rows: TrainingRows, *, stream: bool) -> float:
        """Return the weight of the penalty; NaN is searched."""

    def choose(
        self, rows: TrainingRows, problem: Problem, first: Choice, run: Run, before: Fit | None
    ) -> Choice:
        """Return all that is decided before the first iteration."""
        if before is None:
            choice = self.search(rows, problem, first, run)
            return self.final_solver(choice, rows, problem.resources.deadline)
        alpha = before.choice.alpha if np.isnan(problem.alpha) else problem.alpha
        return replace(
            first, alpha=alpha, max_iter=int(self.params.max_iter), entries={}, seconds=0.0,
            calibration=None, is_complete=False,
        )  # fmt: skip

    def search(self, rows: TrainingRows, problem: Problem, first: Choice, run: Run) -> Choice:
        """Return the choice with kernel, scaling and penalty."""
        return replace(first, alpha=problem.alpha)

    def final_solver(self, choice: Choice, rows: TrainingRows, deadline: Deadline) -> Choice:
        """Return the choice of the solver now that alpha and the time left are known."""
        return choice

    def best_params(self, fit: Fit) -> dict[str, Any]:
        """Return the parameters that a fit has used in place of rules and searches."""
        return {"solver": fit.choice.solver}

    def takes_few(self, choice: Choice, rows: TrainingRows) -> bool:
        """Whether a function of some rows may stand for that of the solver."""
        return False

    def is_hurried(self, choice: Choice, rows: TrainingRows, problem: Problem) -> bool:
        """Whether the time left is too short for a useful function of all rows."""
        return False

    def is_calibrated(self, task: Task) -> bool:
        """Whether probabilities come from responses to rows that were not fitted."""
        return bool(
            self.params.probability
            and isinstance(task, Classification)
            and not task.has_own_proba
        )

    def with_part_fits(
        self, choice: Choice, rows: TrainingRows, problem: Problem, run: Run, before: Fit | None
    ) -> Choice:
        """Return the choice with responses of a fit to a part of the rows, to calibrate on."""
        if run.stream or len(rows.held_out) or not self.is_calibrated(rows.task):
            return choice
        n_iter = choice.max_iter + (0 if before is None else before.n_iter)
        start = clock()
        hurried = partial(self.is_hurried, choice, rows)
        responses = classes.responses_of_part(
            choice, rows, problem, n_iter, run.callbacks, hurried
        )
        seconds = choice.seconds + (clock() - start if before is None else 0.0)
        return replace(choice, calibration=responses, seconds=seconds)

    # -- the run and the model -----------------------------------------------------------

    def validation(self, rows: TrainingRows, before: Fit | None) -> Validation | None:
        """Return how iterates are scored, on rows held out or given; None without any."""
        p = self.params
        stops = bool(p.early_stopping)
        if rows.validation_rows is None and not stops:
            return None
        start = before.model.function if before is not None and stops else None
        return rows.validation(p.n_iter_no_change, p.tol, start=start, early_stopping=stops)

    def model(
        self, rows: TrainingRows, choice: Choice, function: Expansion, before: Fit | None,
        run: Run,
    ) -> tuple[Model, Responses | None]:  # fmt: skip
        """Return the model, and responses that the next rows of a stream calibrate with."""
        calibration, latest = None, None
        if self.is_calibrated(rows.task):
            calibration, latest = classes.calibration(
                rows, choice, function, before, run.stream
            )
        device = self.params.device
        return Model(rows.inputs, rows.task, function, calibration, device=device), latest

    def with_extras(self, fit: Fit, rows: TrainingRows, problem: Problem) -> Fit:
        """Return the fit with what only families have: a posterior, labels of all rows."""
        return fit

    def warn(self, fit: Fit, rows: TrainingRows, result: FitResult, run: Run) -> None:
        """Warn of a fit that ended too early, or of a model that says nothing."""
        warnings.warn_of_fit(self, fit, rows, result, stream=run.stream)

    def attributes(self, fit: Fit) -> dict[str, Any]:
        """Return the fitted attributes that only estimators of the family have."""
        return {}

    def info(self, fit: Fit) -> dict[str, Any]:
        """Return the entries of ``model_info`` that only the family has."""
        return {}

    # -- files ---------------------------------------------------------------------------

    def describe(self, fit: Fit) -> tuple[dict[str, Any], dict[str, Any], dict[str, AnyArray]]:
        """Return fitted attributes, values and arrays of a file that only the family has."""
        calibration = fit.model.calibration
        arrays = {} if calibration is None else calibration.arrays()
        arrays |= {f"latest.{i}": part for i, part in enumerate(fit.latest or ())}
        return {}, {}, arrays

    def restore(self, fit: Fit, fitted: Record, extra: Record) -> Fit:
        """Return a fit with what :meth:`describe` described; `fitted` has older attributes."""
        task = fit.model.task
        if not isinstance(task, Classification):
            return fit
        K = extra.sizes["K"] = len(task.classes)
        if "calibration.unit" in extra:
            model = replace(fit.model, calibration=Calibration.restore(extra))
            fit = replace(fit, model=model)
        names = ("latest.0", "latest.1", "latest.2")
        return replace(fit, latest=restored_responses(extra, K, names))


@as_numpy
def checked_weights(
    sample_weight: Any, X: Matrix, factor: Float64Array | None = None
) -> Float64Array:
    """Return weights times the factor of each row; at least one row must count."""
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


def _check_numbers(y: Any, name: str) -> None:
    """Raise for targets of an estimator of numbers, its `name`, that are text."""
    values = np.asarray(y)
    for value in values.flat if values.dtype.kind in "OU" else ():
        try:
            float(value if isinstance(value, str) else 0)
        except ValueError:
            raise DataError(
                f"y holds {str(value)!r}, but {name} predicts numbers; give numbers, or take a "
                "classifier for labels."
            ) from None


def _shared(X: Any, original: Any) -> bool:
    """Whether rows are the arrays of the caller, or views of them."""
    a, b = [getattr(it, "data", None) if sp.issparse(it) else it for it in (X, original)]
    return isinstance(b, np.ndarray) and bool(np.may_share_memory(a, b))
