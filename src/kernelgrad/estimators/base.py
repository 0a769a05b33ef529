"""What every estimator shares: from scikit-learn parameters to a run of a solver.

A fit goes one way. The parameters give :class:`Parts`, the data :class:`TrainingRows` with
their :class:`Task`, both a solver and a :class:`Plan`; it is run, and its result set.
"""

from __future__ import annotations

import copy
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from kernelgrad.callbacks import FOREVER, CallbackList, Deadline, make_callbacks
from kernelgrad.compute.backend import CPU, device_or_cpu, get_device
from kernelgrad.compute.compiling import compile_seconds
from kernelgrad.compute.memory import within
from kernelgrad.data import BatchSource
from kernelgrad.data.sampling import BUFFER_ROWS
from kernelgrad.estimators import files as _files
from kernelgrad.estimators import support
from kernelgrad.estimators.blocks import lean, said
from kernelgrad.estimators.plan import Choice, Given, Parts, Plan, Posed, Reading
from kernelgrad.estimators.reading import RowReader
from kernelgrad.estimators.support import CallbackSupportMixin, OnnxMixin, with_callbacks
from kernelgrad.estimators.warnings import warn_of_fit
from kernelgrad.files import records
from kernelgrad.files.records import Check, Record, check_text, or_none
from kernelgrad.functions.expansions import Expansion
from kernelgrad.functions.features import CACHE_BYTES
from kernelgrad.functions.scaling import MOST_COLUMNS
from kernelgrad.kernels import Kernel
from kernelgrad.losses import Loss, get_loss
from kernelgrad.params import Documented, anything, check_params, integer, parameters, real
from kernelgrad.search.auto import GIVEN
from kernelgrad.solvers import (
    History,
    Problem,
    Resources,
    Resumed,
    Solver,
    State,
    Validation,
    run,
)
from kernelgrad.solvers.contract import check_capabilities, check_limit
from kernelgrad.training_rows import Batches, TrainingRows
from kernelgrad.types import AnyArray, Contents, Float64Array, Matrix
from kernelgrad.validation import DataError, ModelFileError, check_int

T = TypeVar("T")


@parameters
class BaseRowsEstimator(RowReader, OnnxMixin, CallbackSupportMixin, Documented):
    """Fitting, prediction and files of estimators that run a solver over rows.

    A family (``kernel.py``, ``kernelgrad.linear``) says what functions are and which solvers
    find them, a task (``kernelgrad.tasks``) what targets are.
    """

    solver: Any = anything(default="auto")
    max_iter: int = integer(default=40, low=1)
    memory_limit: float | None = real(default=None, low=0, words=(None,))
    time_limit: float | None = real(default=None, low=0, low_open=True, words=(None,))
    random_state: Any = anything(default=None)
    verbose: int = integer(default=0, words=(False, True))
    callbacks: Any = anything(default=None)

    # values for estimators that do not have the parameter
    fit_intercept = False
    warm_start = False
    early_stopping = False
    tol = 0.0
    device = CPU

    # fitted attributes in files, beside those of the base classes: required, or optional
    _kept: ClassVar[dict[str, Check]] = {
        "n_features_in_": partial(check_int, low=1, high=MOST_COLUMNS),
        "n_iter_": check_int,
        "best_iteration_": check_int,
        "best_score_": or_none(records.check_number),
        "fit_status_": check_text,
        "_seed": partial(check_int, high=2**32),
        "_fitted_alpha": records.check_number,
    }
    _may_keep: ClassVar[dict[str, Check]] = {
        "feature_names_in_": _files.texts,
        "alpha_": records.check_number,
        "_medians": or_none(_files.numbers),
    }
    _loss_task: ClassVar[Any]  # the task of losses
    _solvers: ClassVar[Mapping[str, Any]]  # solvers of the family by name
    _streaming: ClassVar[tuple[str, str]]  # remedy, and solvers for streams, in messages
    _problem_type: ClassVar[type[Problem]] = Problem

    _orders_rows = True  # True if rows may be sorted and equal ones merged
    _tells_alpha: ClassVar[bool] = False  # True if there is an attribute alpha_
    _deadline = FOREVER  # deadline and callbacks of the fit that runs
    _listeners = CallbackList()

    if TYPE_CHECKING:  # what fits set
        expansion_: ClassVar[Any]
        feature_names_in_: ClassVar[AnyArray]
        intercept_: ClassVar[Any]

    # -- what a family of functions gives ----------------------------------------------

    @abstractmethod
    def _make_parts(self) -> Parts:
        """Return what the parameters ask for, checked."""

    @abstractmethod
    def _make_solver(self, auto: Solver[Any] | None = None) -> Solver[Any]:
        """Return the solver that the parameters ask for, checked; `auto` is what "auto" is."""

    @abstractmethod
    def _automatic(self, parts: Parts, rows: TrainingRows, *, stream: bool) -> Choice:
        """Return what ``solver="auto"`` stands for with these rows, and why."""

    def _choose(self, parts: Parts, rows: TrainingRows, *, stream: bool = False) -> Choice:
        """Return the solver for these rows and the reason of the choice."""
        if not self._auto_solver:
            return parts.solver, GIVEN
        return self._automatic(parts, rows, stream=stream)

    def _problem(self, kernel: Kernel, loss: Loss, n_outputs: int, alpha: float) -> Problem:
        return self._problem_type(
            loss=loss,
            kernel=kernel,
            alpha=alpha,
            n_outputs=n_outputs,
            n_features_in=self._width,
            seed=self._seed,
            fit_intercept=bool(self.fit_intercept),
            resources=self._resources(),
            **self._problem_options(),
        )

    def _resources(self) -> Resources:
        limit = None if self.memory_limit is None else int(self.memory_limit)
        cache = CACHE_BYTES if limit is None else limit // 4
        return Resources(limit, cache_bytes=cache, device=self.device)

    @abstractmethod
    def _problem_options(self) -> dict[str, Any]:
        """Return what only problems of the family have."""

    def _check_streams(self) -> None:
        """Raise AttributeError if the solver needs all rows at once."""
        instead, for_streams = self._streaming
        if self._auto_solver:
            fitted = getattr(self, "solver_", None)
            if fitted is None or fitted.streams:
                return
            raise AttributeError(
                f"fit took the solver {fitted.name!r} ({self.history_['solver_reason']}), "
                "which cannot go on with other rows; for partial_fit take a new estimator"
                f"{instead}."
            )
        cls = self._solvers.get(self.solver) if isinstance(self.solver, str) else self.solver
        if not getattr(cls, "streams", True):
            raise AttributeError(
                f"solver {getattr(cls, 'name', self.solver)!r} needs all rows at once and has "
                f"no partial_fit; use fit, or a solver for streams such as {for_streams}."
            )

    @abstractmethod
    def _alpha_for(self, rows: TrainingRows, *, stream: bool = False) -> float:
        """Return the weight of the penalty."""

    def _function_attributes(self, expansion: Any) -> dict[str, Any]:
        return {"expansion_": expansion, "intercept_": expansion.intercept}

    def _function_info(self) -> dict[str, Any]:
        """Return the entries of :meth:`model_info` that are specific to the family."""
        return {}

    @abstractmethod
    def predict(self, X: Any) -> AnyArray:
        """Return what the model says of every row."""

    # -- fitting -----------------------------------------------------------------------

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or CSR matrix (n, d), memory map, DataFrame, BatchSource, or of dask
            A :class:`~kernelgrad.data.BatchSource` carries its own targets and weights and is
            read in chunks if it does not fit in memory. Memory maps, dask arrays and dask
            frames are read in pieces too; y and sample_weight may then be dask collections.
        y : array-like (n,) or (n, n_outputs); None with a BatchSource
            Of a classifier at least two classes, of a Gaussian process one column. A novelty
            detector ignores it: X holds mostly ordinary rows.
        sample_weight : array-like (n,) or None
            Non-negative; a weight of 2 is a row given twice, 0 is a row left out.
        X_val, y_val, sample_weight_val : as X, y and sample_weight, or None
            Rows for validation, which are not fitted: each iteration is scored on them, in
            ``history_["validation_score"]``. With ``early_stopping=True``, where it is a
            parameter, they replace `validation_fraction` and decide when to stop and which
            iterate to keep; otherwise they do not change the model. A source contributes up to
            20,000 random rows. For a novelty detector y_val is +1 for ordinary rows and -1 for
            outliers, both of which must be there; the score is the area under the ROC curve.
        """
        given = Given(X, y, sample_weight)
        return self._fit_checked(given, Given(X_val, y_val, sample_weight_val))

    @property
    def _searches_alpha(self) -> bool:
        return False

    @property
    def _auto_solver(self) -> bool:
        return support.is_auto(self.solver)

    def _check_parameters(self) -> Parts:
        check_params(self)
        get_device(self.device)
        parts = self._make_parts()
        if not self._auto_solver:
            parts.solver.check_device(self.device, parts.kernel)
        make_callbacks(self.callbacks, self.verbose)
        return parts

    def _check_continuation(self, parts: Parts) -> None:
        if hasattr(self, "expansion_") and not hasattr(self, "_state"):
            raise ValueError(
                "This model was loaded without the solver's state and cannot be continued; "
                "save it with resumable=True, or fit a new estimator."
            )
        if not hasattr(self, "_state"):
            return
        if self._auto_solver and self.history_["solver_reason"] != GIVEN:
            return
        now = parts.solver
        if repr(now) != repr(self.solver_) or type(now) is not type(self.solver_):
            raise ValueError(
                f"solver changed from {self.solver_!r} to {now!r} in the middle of a fit; "
                "set it back, or fit a new estimator."
            )

    def _fit_checked(self, given: Given, apart: Given) -> Self:
        parts = self._check_parameters()
        if self.warm_start:
            self._check_continuation(parts)
        for name, part in zip(("y", "sample_weight", "denominator"), apart[1:], strict=True):
            if apart.X is None and part is not None:
                raise ValueError(f"{name}_val is given, but not X_val; give it too.")
        with self._working(), support.reported(self, *given[:3]):
            self._fit(parts, given, apart)
        return self

    @contextmanager
    def _working(self, *, stream: bool = False) -> Iterator[None]:
        """Context of a fit: restores attributes on failure, times and counts compilation."""
        start = compile_seconds()
        limit = self.memory_limit
        with support.all_or_nothing(self), within(limit):
            self._deadline = Deadline(self.time_limit)
            listeners = make_callbacks(self.callbacks, self.verbose, stream=stream)
            self._listeners = listeners
            try:
                yield
            finally:
                self._listeners.on_phase("")
                if self._listeners.checkpoint is not None:
                    self._listeners.checkpoint.end()
                del self._deadline, self._listeners
            # a fit that goes on has the history of those before
            spent = self.history_.get("compile_seconds", 0.0) + compile_seconds() - start
            self.history_["compile_seconds"] = spent
        if listeners.interrupted:
            raise KeyboardInterrupt(
                f"The fit was interrupted; the model after {self.n_iter_} iterations is kept "
                "and can be used, saved and fitted further."
            )

    def _fit(self, parts: Parts, given: Given, apart: Given) -> TrainingRows:
        """Fit, and score on the rows `apart` if there are any. Return the rows."""
        warm = bool(self.warm_start) and hasattr(self, "_state")
        checkpoint = self._listeners.checkpoint
        if checkpoint is not None:
            before = self.solver_.state_arrays(self._state) if warm else ({}, {})
            checkpoint.begin(**_files.identity(self), start=records.contents_digest(before))
            if self.time_limit is not None:
                self._deadline = Deadline(max(0.0, self.time_limit - checkpoint.spent))
        if not warm:
            self._seed = self._recalled(
                "seed",
                lambda: support.new_seed(self.random_state),
                lambda it: ({"it": it}, {}),
                self._restored_seed,
            )
        rows = self._all_rows(parts, given, fresh=not warm)
        rows = replace(rows, stays=self._stays(rows))
        if apart.X is not None:
            try:
                rows = replace(rows, apart=self._rows_apart(parts, rows.task, apart))
            except (TypeError, ValueError) as error:
                name = "The rows for validation, X_val and y_val"
                raise type(error)(f"{name}: {error}") from error
        if warm:
            chosen = self.solver_, self.history_["solver_reason"]
        else:
            chosen = self._recalled(
                "solver",
                lambda: self._choose(parts, rows),
                lambda it: ({"solver": _files.pack(it[0]), "reason": it[1]}, {}),
                partial(self._restored_choice, parts),
            )
        rows = rows.ordered(chosen[0].resolve_batch_size(None) if self._orders_rows else None)
        if checkpoint is not None:
            checkpoint.check("rows", rows.digest())
        plan = self._plan(parts, rows, chosen, warm=warm)
        start = self.n_iter_ if warm else 0
        resumed = None
        if checkpoint is not None:
            told = plan.solver, plan.problem, plan.max_iter
            resumed = checkpoint.resumed(partial(Resumed.restore, *told))
        if resumed is not None:
            at, passes = resumed.state.iteration, resumed.course.epoch
            start = plan.rows.drawn(plan.solver, at, passes, plan.batch_size)
        batches, fixed = plan.rows.batches(plan.solver, self._seed, start, plan.batch_size)
        problem = replace(plan.problem, fixed_rows=fixed)
        report = support.iteration_report(self, *given[:3], plan.solver)
        plan = replace(plan, problem=problem, goes_on=warm, resumed=resumed, report=report)
        self._run(plan, batches)
        if self.n_iter_ == plan.max_iter < self.max_iter:
            self._set({"fit_status_": "converged"})  # max_iter was chosen on held-out rows
        return plan.rows

    def _recalled(
        self, name: str, make: Callable[[], T], pack: Callable[[T], Contents],
        unpack: Callable[[Record], T],
    ) -> T:  # fmt: skip
        """Return the result of `make`, or the one that the resumed checkpoint holds."""
        checkpoint = self._listeners.checkpoint
        return make() if checkpoint is None else checkpoint.recall(name, make, pack, unpack)

    def _restored_seed(self, record: Record) -> int:
        """Return the seed of a resumed fit, which requires a number as `random_state`."""
        seed: int = record.take("it", partial(check_int, high=2**31))
        known = isinstance(self.random_state, int | np.integer)
        return support.new_seed(self.random_state) if known else seed

    def _restored_choice(self, parts: Parts, record: Record) -> Choice:
        """Return the solver of a fit that is resumed, and why it was chosen."""
        packed, solver = record.part("solver").values, parts.solver
        if self._auto_solver:  # objects of third parties need no name
            solver = _files.unpack(packed)
            if not isinstance(solver, Solver):
                raise record.error(f"holds {solver!r} as the solver")
        return solver, record.take("reason", check_text)

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, **more: Any) -> Self:
        parts = self._check_parameters()
        if make_callbacks(self.callbacks, 0).checkpoint is not None:
            raise ValueError(
                "A Checkpoint is a callback of fit; between calls of partial_fit take "
                "save(path, resumable=True)."
            )
        self._check_continuation(parts)
        with self._working(stream=True):
            first = not hasattr(self, "_state")
            if first:
                self._seed = support.new_seed(self.random_state)
            how = Reading(first, **more, stream=True)
            rows = self._rows(parts, Given(X, y, sample_weight), how)
            if first:
                chosen = self._choose(parts, rows, stream=True)
            else:
                chosen = self.solver_, self.history_["solver_reason"]
            size = chosen[0].resolve_batch_size(None)
            posed = self._pose(parts, rows, chosen, how)
            steps = -(-rows.n_train // size)
            found: dict[str, Any] = {"found": posed.found, "seconds": posed.seconds}
            found |= {"stream": True, "goes_on": not first}
            plan = Plan(rows, posed.problem, *chosen, steps, **found)
            self._check_plan(plan)
            epochs = 0.0 if first else max(self.history_["epoch"], default=0.0)
            self._run(plan, rows.stream(size, epochs))
        return self

    def _all_rows(self, parts: Parts, given: Given, *, fresh: bool) -> TrainingRows:
        return self._rows(parts, given, Reading(fresh))

    def _pose(self, parts: Parts, rows: TrainingRows, chosen: Choice, how: Reading) -> Posed:
        """Return the problem given by parameters and rows; if not fresh, a continued one."""
        alpha = self._alpha_for(rows, stream=how.stream)
        problem = self._problem(parts.kernel, rows.task.loss, rows.task.n_outputs, alpha)
        resources = replace(problem.resources, deadline=self._deadline)
        solver = chosen[0]
        n, size = sum(one.n_rows for one in rows.sources), rows.nbytes
        stays = rows.stays and solver.takes_stores
        kept = max(source.kept_bytes for source in rows.sources)
        least = max(source.reading_bytes for source in rows.sources) - kept
        if not how.stream:
            whole = not stays and solver.resolve_batch_size(n) >= n
            part = 0.0 if stays or rows.in_memory else min(1.0, BUFFER_ROWS / n)
            copied = size * (rows.made + (rows.copies if whole else part))
            resources = replace(resources, copied_bytes=copied + kept)
        problem = replace(problem, resources=resources)
        size = min(size, 4.0 * n * self._width)  # bytes of the prepared rows
        if stays:  # one piece is prepared beside another; pieces of a file have two forms
            size *= 2 if rows.in_memory else 4
        least = max(least, solver.least_bytes(problem, n, size, stays=stays))
        check_limit(solver, problem, least)
        return Posed(problem, {})

    def _plan(self, parts: Parts, rows: TrainingRows, chosen: Choice, *, warm: bool) -> Plan:
        """Return what is run on these rows, checked."""
        posed = self._pose(parts, rows, chosen, Reading(not warm))
        most = int(self.max_iter)
        plan = Plan(
            rows, posed.problem, *chosen, most, found=posed.found, seconds=posed.seconds
        )
        self._check_plan(plan)
        return replace(plan, validation=self._validation(rows, warm=warm))

    def _validation(self, rows: TrainingRows, *, warm: bool) -> Validation | None:
        """Return how iterates are scored, on rows apart or held out; None without any."""
        stops = self.early_stopping
        if rows.apart is None and not stops:
            return None
        start = self.expansion_ if warm and stops else None
        patience = getattr(self, "n_iter_no_change", None)
        return rows.validation(patience, self.tol, start=start, early_stopping=stops)

    def _check_plan(self, plan: Plan) -> None:
        check_capabilities(plan.solver, plan.problem.loss, plan.problem.kernel)
        plan.solver.check_device(plan.problem.resources.device, plan.problem.kernel)
        plan.solver.check_problem(plan.problem)

    def _run(self, plan: Plan, batches: Batches) -> None:
        """Run the plan and set the fitted attributes."""
        self.loss_ = plan.rows.task.loss  # now: callbacks use the model on the way
        result = run(
            plan.solver,
            plan.problem,
            batches,
            max_iter=plan.max_iter,
            state=self._state.copy() if plan.goes_on else None,
            validation=plan.validation,
            callbacks=self._listeners,
            on_iteration=plan.report,
            history=dict(copy.deepcopy(self.history_)) if plan.goes_on else None,
            resumed=plan.resumed,
        )
        result.state.release(brief=plan.rows.stays and not self.warm_start)
        self._state: State = result.state
        self.solver_: Solver[Any] = plan.solver
        self._fitted_alpha = plan.problem.alpha
        if self._tells_alpha:
            self.alpha_ = self._fitted_alpha
        result.expansion.compact()
        self._set(self._function_attributes(self._settled(result.expansion, plan.rows)))
        chosen = {"solver": plan.solver.name, "solver_reason": plan.reason}
        self.history_: History = cast("History", result.history | chosen | plan.found)
        if plan.seconds:
            self.history_["seconds"] = [t + plan.seconds for t in self.history_["seconds"]]
        self.n_iter_: int = result.state.iteration
        self.best_iteration_: int = result.best_iteration
        score = result.best_score if plan.best_score is None else plan.best_score
        self.best_score_: float | None = score
        self.fit_status_: str = result.status
        warn_of_fit(self, plan, result)

    def _settled(self, expansion: Any, rows: TrainingRows) -> Any:
        """Return the function to keep of what the solver found, from the rows it saw."""
        return expansion

    # -- prediction --------------------------------------------------------------------

    def _values(self, X: Matrix) -> Float64Array:
        """Return f(X), (n, C), of checked rows."""
        self.expansion_.set_device(device_or_cpu(self.device))
        values: Float64Array = self.expansion_.raw_prediction(X)
        support.check_values(values, "The model has no finite value")
        return values

    def _responses(self, X: Any) -> Iterator[Float64Array]:
        """Yield f(X), (n, C): of arrays at once, of a BatchSource in chunks."""
        check_is_fitted(self, "expansion_")
        if isinstance(X, BatchSource):
            support.check_columns(self, X)
            for batch in X.chunks(prefetch=not X.in_memory):
                yield self._values(self._matrix(batch.X, source=True))
        else:
            yield self._values(self._matrix(X))

    def _raw(self, X: Any) -> Float64Array:
        return joined(self._responses(X))

    def _summed(self, source: BatchSource, method: str, *args: Any) -> AnyArray:
        """Return the sum of ``method(batch, f, *args)`` over the batches of a source."""
        check_is_fitted(self, "expansion_")
        if not source.has_target:
            raise DataError("The source has no target to score against.")
        support.check_columns(self, source)
        parts = source.map_chunks(partial(said, lean(self), method, args))
        return np.asarray(reduce(np.add, parts))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "expansion_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._takes_tables
        return tags

    # -- files -------------------------------------------------------------------------

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        resumable: bool = False,
        key: bytes | None = None,
    ) -> None:
        """Write the fitted model to one file, atomically and without pickle.

        Parameters
        ----------
        path : str or path-like
        resumable : bool, default=False
            Also write the solver's state, so that ``partial_fit`` and ``warm_start`` go on
            exactly where they were (up to three times the size; see docs/serving.md).
        key : bytes or None, default=None
            Sign the file by HMAC-SHA256 under this secret of at least 16 bytes, for
            ``load(path, key=key)`` to refuse files that anyone else wrote.

        Raises
        ------
        TypeError
            A parameter is an object that cannot be written, or the class is not registered.
        """
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"This {type(self).__name__} is not fitted; call fit before save."
            )
        _files.check_registered(self)
        records.write_container(path, *_files.contents_of(self, resumable=resumable), key=key)

    def _extra_arrays(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Return the contents of a model file besides the function, as values and arrays."""
        return {}, {}

    def _restore_extra(self, record: Record) -> None:
        """Take back what :meth:`_extra_arrays` gave."""

    def _check_restored(self) -> None:
        """Raise unless a loss, classes and outputs from a file go together."""
        loss = get_loss(self.loss_, task=self._loss_task)
        if loss.n_outputs not in (None, self._task().n_outputs):
            raise ValueError(f"{loss!r} does not have {self._task().n_outputs} outputs.")

    def model_info(self, *, latency: bool = False) -> dict[str, Any]:
        """Return a summary of the fitted model with plain JSON values.

        Parameters
        ----------
        latency : bool, default=False
            Also measure ``row_seconds``, the median time of up to 200 predictions of one row
            within half a second on this machine: by `predict`, or for models of tables by the
            encoding and the fitted function, without the reading of the table.
        """
        check_is_fitted(self, "expansion_")
        e: Expansion = self.expansion_
        names = getattr(self, "feature_names_in_", None)
        info: dict[str, Any] = {
            "estimator": type(self).__name__,
            "loss": self.loss_.name,
            "loss_params": self.loss_.get_params(),
            **self._function_info(),
            "solver": self.solver_.name,
            "solver_reason": self.history_["solver_reason"],
            "alpha": self._fitted_alpha,
            "n_features_in": int(self.n_features_in_),
            "feature_names": None if names is None else [str(c) for c in names],
            "n_outputs": e.n_outputs,
            **e.summary(),
            "bytes": int(e.nbytes),
            "n_iter": int(self.n_iter_),
            "fit_status": self.fit_status_,
            "best_score": self.best_score_,
            "resumable": hasattr(self, "_state"),
        }
        if hasattr(self, "classes_"):
            info["classes"] = np.asarray(self.classes_).tolist()
        if latency:
            info["row_seconds"] = self._row_seconds()
        return info

    def _row_seconds(self) -> float:
        table = self._table
        row = np.zeros((1, int(self.n_features_in_))) if table is None else table.a_row()

        def once() -> None:
            if table is None:
                self.predict(row)
            else:
                self._values(self._encode_rows(row, fresh=False))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the row has no names of columns
            once()  # compiles
            end = perf_counter() + 0.5
            times: list[float] = []
            while len(times) < 200 and (not times or perf_counter() < end):
                start = perf_counter()
                once()
                times.append(perf_counter() - start)
        return float(np.median(times))


def joined(parts: Iterator[AnyArray]) -> AnyArray:
    """Return all parts as one array, a single one as it is."""
    found = list(parts)
    return found[0] if len(found) == 1 else np.concatenate(found)


def save(model: Any, path: str | os.PathLike[str], *, key: bytes | None = None) -> None:
    """Write a fitted estimator of this package to a model file, as its ``save`` does.

    Parameters
    ----------
    model : fitted estimator of this package
    path, key
        As in :meth:`KernelClassifier.save`.

    Raises
    ------
    TypeError
        The model is no estimator of this package, such as a pipeline or a search.

    Examples
    --------
    >>> import kernelgrad
    >>> model = kernelgrad.LinearRegressor().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
    >>> kernelgrad.save(model, "line.kgm")
    >>> kernelgrad.load("line.kgm")
    LinearRegressor()
    """
    if not any(isinstance(model, cls) for cls in _files.ESTIMATORS.values()):
        raise TypeError(
            "A model file holds an estimator of this package, but this is a "
            f"{type(model).__name__}; write a pipeline with skops, and of a search save the "
            "best_estimator_."
        )
    model.save(path, key=key)


def load(path: str | os.PathLike[str], *, key: bytes | None = None) -> BaseRowsEstimator:
    """Load a model that ``save`` wrote; never executes code from the file.

    Names, types, shapes, ranges and indices are checked before they are used. A valid file is
    not necessarily the one that was saved, as anyone who can write to its folder can replace
    it; a signature prevents this.

    Parameters
    ----------
    path : str or path-like
    key : bytes or None, default=None
        The secret with which the file must be signed, by ``save(path, key=key)``; with None
        signatures are ignored.

    Returns
    -------
    KernelClassifier, KernelRegressor, or any other estimator of this package
        Predictions are identical to those of the saved model.

    Raises
    ------
    ModelFileError
        The file is foreign, truncated, altered, of a newer version, not signed under the key,
        or uses a loss, kernel or solver that is not registered.
    """
    header, arrays = records.read_container(path, key=key)
    with records.restoring(path):
        if "object" in header:
            raise ModelFileError(
                "The file holds a pipeline of scikit-learn, which only kernelgrad 0.2 reads; "
                "load it there, and write it with skops instead."
            )
        return cast("BaseRowsEstimator", _files.restored(header, arrays))
