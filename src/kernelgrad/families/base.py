"""What all families share: how parameters and data become rows, a choice and a problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from kernelgrad.calibration import MOST_ROWS, Calibration, Responses, restored_responses
from kernelgrad.choice import GIVEN, SUPERVISED, Choice
from kernelgrad.compute.backend import CPU, get_device
from kernelgrad.compute.compiling import clock
from kernelgrad.compute.memory import LEAST_LIMIT
from kernelgrad.compute.ranges import check_sizes
from kernelgrad.families.held_out import MANY_ROWS, calibrated, responses_of_part
from kernelgrad.families.reading import Reader, Run
from kernelgrad.files.records import Record
from kernelgrad.functions.expansions import Expansion
from kernelgrad.functions.features import CACHE_BYTES
from kernelgrad.inputs import Inputs
from kernelgrad.kernels import Kernel
from kernelgrad.model import Fit, Model
from kernelgrad.solvers import SOLVERS, FitResult, Problem, Resources, Solver
from kernelgrad.solvers.history import left_over
from kernelgrad.tasks import Classification, Targets, Task
from kernelgrad.training_rows import TrainingRows
from kernelgrad.types import AnyArray, Matrix
from kernelgrad.validation import bytes_of, warn_caller

# Values of parameters that an estimator does not have.
_DEFAULTS: dict[str, Any] = {
    "C": None, "categorical_features": "from_dtype", "device": CPU, "early_stopping": False,
    "engine": None, "fit_intercept": False, "n_iter_no_change": None, "probability": False,
    "tol": 0.0, "warm_start": False,
}  # fmt: skip


class Spec(ABC):
    """Checked parameters of an estimator, and what its family of functions makes of them.

    The road of a fit (:func:`kernelgrad.fit.fit`) calls the methods in about the order in which
    they stand here. A specification does not change once it is made.

    Its `params` are a namespace, `autos` the names of those that are "auto", and `targets` what
    they say of targets. The `kernel` may have a rule for its bandwidth. There is no `solver`
    where it is "auto": the rows decide.
    """

    solvers: ClassVar[Mapping[str, Any]] = SOLVERS  # by name
    streaming: ClassVar[tuple[str, str]]  # remedy, and solvers for streams, in messages
    problem_type: ClassVar[type[Problem]] = Problem
    reader_type: ClassVar[type[Reader]] = Reader
    orders_rows: bool = True  # True if rows may be sorted and equal ones merged
    is_pairwise: bool = False  # True if X holds values of a kernel
    shares_rows: bool = False  # True if the solver takes rows that workers hold
    searches_alpha: bool = False
    fits_some_rows: bool = False  # True if a function of some rows may stand for that of all
    marks_rows: bool = False  # True if y marks rows without a label, which may be gaps

    def __init__(self, owner: str, params: Mapping[str, Any], targets: Targets) -> None:
        self.owner, self.targets = owner, targets
        self.params = SimpleNamespace(**_DEFAULTS | dict(params))
        self.autos = {k for k, v in params.items() if isinstance(v, str) and v == "auto"}
        self.is_auto = "solver" in self.autos
        limit = self.params.memory_limit
        if limit is not None:
            limit = self.params.memory_limit = int(bytes_of(limit))
        cache = CACHE_BYTES if limit is None else limit // 4
        self.resources = Resources(limit, cache_bytes=cache, device=self.params.device)
        self.check()
        self.kernel = self.make_kernel()
        if not self.is_auto:
            self.solver = self.make_solver(self.params.solver)
        self.reader = self.reader_type(self)

    # -- parameters ----------------------------------------------------------------------

    def check(self) -> None:  # noqa: B027 (most families have nothing else to check)
        """Raise if parameters are wrong that neither kernel nor solver checks."""

    @abstractmethod
    def make_kernel(self) -> Kernel:
        """Return the kernel of the parameters, checked."""

    @abstractmethod
    def make_solver(self, chosen: Any) -> Solver[Any]:
        """Return the solver of the parameters or of `automatic`, with their settings."""

    def check_streams(self, before: Fit | None) -> None:
        """Raise AttributeError if the solver or the penalty needs all rows at once."""
        instead, for_streams = self.streaming
        if self.is_pairwise:
            raise AttributeError(
                "partial_fit takes rows, which kernel='precomputed' does not have; use fit."
            )
        if hasattr(self.params, "alpha") and getattr(self.params, "C", None) is not None:
            raise AttributeError("C needs the number of all rows; give alpha for partial_fit.")
        if self.is_auto:
            if before is None or before.choice.solver.streams:
                return
            raise AttributeError(
                f"fit took the solver {before.choice.solver.name!r} ({before.choice.reason}), "
                "which cannot go on with other rows; make a new estimator and begin with "
                f"partial_fit{instead}."
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
        reason, then = before.choice.reason, before.choice.solver
        if reason != GIVEN and self.is_auto:
            return
        if reason == SUPERVISED and not (self.is_auto or self.solver.streams):
            return
        now = "auto" if self.is_auto else self.solver
        if repr(now) != repr(then) or type(now) is not type(then):
            raise ValueError(
                f"solver changed from {then!r} to {now!r} in the middle of a fit; "
                "set it back, or fit a new estimator."
            )

    # -- rows ----------------------------------------------------------------------------

    def check_rows(self, inputs: Inputs, X: Matrix) -> None:
        """Raise if the rows of an array, already checked as numbers, are not for this model."""
        check_sizes(X, scaled=False)

    def some_rows(self, rows: TrainingRows, run: Run) -> TrainingRows:
        """Return the rows that the fit sees: all, or some if it is to be fast."""
        return rows

    # -- the choice ----------------------------------------------------------------------

    def first_choice(self, rows: TrainingRows, run: Run) -> Choice:
        """Return the solver for these rows and the reason; the rest is not known yet."""
        if run.before is not None:
            return run.before.choice
        if self.is_auto:
            solver, reason = self.automatic(rows, run)
        else:
            solver, reason = self.solver, GIVEN
        return Choice(run.seed, solver, reason, max_iter=int(self.params.max_iter))

    @abstractmethod
    def automatic(self, rows: TrainingRows, run: Run) -> tuple[Solver[Any], str]:
        """Return what ``solver="auto"`` stands for with these rows, and why."""

    def restored_choice(self, rows: TrainingRows, run: Run, record: Record) -> Choice:
        """Return the choice of the checkpoint that is resumed."""
        solver = None if self.is_auto else self.solver
        choice = Choice.restore(record, solver, rows.inputs.width, rows.task)
        return replace(choice, seed=run.seed)

    def ordered_rows(self, rows: TrainingRows, choice: Choice) -> TrainingRows:
        """Return the rows in their order, of which some may be held out."""
        limit = choice.solver.resolve_batch_size(None) if self.orders_rows else None
        rows = rows.ordered(limit)
        if self.calibrates(rows) and rows.n_train >= MANY_ROWS:
            rows = rows.hold_out(MOST_ROWS / rows.n_train, choice.seed, stratify=False)
        if self.params.early_stopping and rows.validation_rows is None:
            rows = rows.hold_out(self.params.validation_fraction, choice.seed)
        return rows

    def problem(self, rows: TrainingRows, choice: Choice, run: Run) -> Problem:
        """Return the problem of rows and parameters; raise if memory does not do for it."""
        solver = choice.solver
        n_rows, own_bytes = rows.n_rows, rows.bytes_of_fit(solver, stream=run.stream)
        copied, prepared, reading = own_bytes
        resources = replace(self.resources, copied_bytes=copied, deadline=run.deadline)
        alpha = self.alpha(rows)
        problem = self.make_problem(rows.task, rows.inputs, choice.seed, alpha, resources)
        stays = rows.reads_in_pieces and solver.takes_stores
        least = solver.least_bytes(problem, n_rows, prepared, stays=stays)
        resources.check(
            f"solver {solver.name!r} with these rows, outputs and parameters",
            max(least, reading) + copied, solver.instead, bound=LEAST_LIMIT,
        )  # fmt: skip
        return problem

    def make_problem(
        self, task: Task, inputs: Inputs, seed: int, alpha: float, resources: Resources,
        **options: Any,
    ) -> Problem:  # fmt: skip
        """Return the problem; `options` are what only problems of the family have."""
        return self.problem_type(
            loss=task.loss, kernel=self.kernel, alpha=alpha, n_outputs=task.n_outputs,
            n_features_in=inputs.width, seed=seed,
            fit_intercept=bool(self.params.fit_intercept), resources=resources, **options,
        )  # fmt: skip

    @abstractmethod
    def alpha(self, rows: TrainingRows) -> float:
        """Return the weight of the penalty; NaN is searched."""

    def calibrates(self, rows: TrainingRows) -> bool:
        """Return whether probabilities need a calibration."""
        return bool(self.params.probability) and not rows.task.has_own_proba

    def choose(self, rows: TrainingRows, problem: Problem, first: Choice, run: Run) -> Choice:
        """Return all that is decided before the first iteration."""
        if run.before is None:
            return self.search(rows, problem, first, run)
        alpha = run.before.choice.alpha if np.isnan(problem.alpha) else problem.alpha
        return replace(
            first, alpha=alpha, max_iter=int(self.params.max_iter), entries={}, seconds=0.0,
            calibration=None, is_complete=False,
        )  # fmt: skip

    def search(self, rows: TrainingRows, problem: Problem, first: Choice, run: Run) -> Choice:
        """Return the choice with kernel, scaling, penalty, and the solver that these need."""
        return replace(first, alpha=problem.alpha)

    def with_part_fits(
        self, choice: Choice, rows: TrainingRows, problem: Problem, run: Run
    ) -> Choice:
        """Return the choice with responses of a fit to a part of the rows, to calibrate on."""
        if run.stream or len(rows.held_out) or not self.calibrates(rows):
            return choice
        n_iter = choice.max_iter + (0 if run.before is None else run.before.n_iter)
        start = clock()
        responses = responses_of_part(self, choice, rows, problem, n_iter, run.callbacks)
        seconds = choice.seconds + (clock() - start if run.before is None else 0.0)
        return replace(choice, calibration=responses, seconds=seconds)

    # -- the run and the model -----------------------------------------------------------

    def model(
        self, rows: TrainingRows, choice: Choice, function: Expansion, run: Run
    ) -> tuple[Model, Responses | None]:
        """Return the model, and responses that the next rows of a stream calibrate with."""
        calibration, latest = None, None
        if self.calibrates(rows):
            calibration, latest = calibrated(rows, choice, function, run)
        device = self.params.device
        return Model(rows.inputs, rows.task, function, calibration, device=device), latest

    def with_extras(self, fit: Fit, rows: TrainingRows, problem: Problem) -> Fit:
        """Return the fit with what only families have: a posterior, labels of all rows."""
        return fit

    def warn(self, fit: Fit, rows: TrainingRows, result: FitResult, run: Run) -> None:
        """Warn of a fit that ended too early, or of a model that says nothing."""
        if result.beaten is not None:
            warn_caller(
                f"On the held-out rows the model is worse than a constant ({result.beaten}): "
                "the columns may say nothing about the target, or nothing that this kernel "
                "sees at this scale. Scale the columns, leave alpha and gamma to the search, "
                "or predict a constant."
            )
        # a fit that searches alpha is to predict, and the least objective often does not
        wanted = fit.status == "max_iter" and not (run.stream or self.searches_alpha)
        left = left_over(result.history) if wanted else None
        if left is not None and left > 0.1:
            distance = f"some {left:.0%}" if np.isfinite(left) else "possibly far"
            warn_caller(
                f"The fit ended after max_iter={fit.choice.max_iter} iterations with an "
                f"objective {distance} above its least value; raise max_iter, or alpha.",
                ConvergenceWarning,
            )
        if fit.status == "time_limit" and fit.n_iter == 0:
            few = fit.history.get("rows_fitted")
            what = "a constant" if few is None else f"of {few:,} rows"
            warn_caller(
                f"time_limit={self.params.time_limit!r} seconds were over before the first "
                f"iteration of solver {fit.choice.solver.name!r}: the model is {what}; raise "
                "time_limit, or fit fewer rows.",
                ConvergenceWarning,
            )
        elif not run.stream:
            _check_learned(self, fit, rows)

    def attributes(self, fit: Fit) -> dict[str, Any]:
        """Return the fitted attributes that only estimators of the family have."""
        return {}

    def info(self, fit: Fit) -> dict[str, Any]:
        """Return the entries of ``model_info`` that only the family has."""
        return {}

    # -- files ---------------------------------------------------------------------------

    def best_params(self, fit: Fit) -> dict[str, Any]:
        """Return the parameters that a fit has used in place of rules and searches."""
        return {"solver": fit.choice.solver}

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


def _check_learned(spec: Spec, fit: Fit, rows: TrainingRows) -> None:
    """Warn if the function says nothing of its own rows, or worse than nothing."""
    if type(rows) is not TrainingRows or not (rows.task.has_targets and rows.in_memory):
        return
    batch = rows.take(rows.sample(256, np.random.default_rng(fit.choice.seed)))
    y, loss, weight = batch.y, rows.task.loss, batch.sample_weight
    f = fit.model.function.raw_prediction(batch.X)
    best = loss.intercept(y, weight) if spec.params.fit_intercept else 0.0
    constant = np.broadcast_to(best, f.shape)
    mine, theirs = (float(np.average(loss.value(y, g), weights=weight)) for g in (f, constant))
    bulk = 0.02, 0.98  # quantiles that leave out single rows
    spread, wanted = (np.ptp(np.quantile(a, bulk, axis=0), axis=0) for a in (loss.mean(f), y))
    if not np.isfinite(mine):
        raise ValueError(
            f"solver {fit.choice.solver.name!r} diverged: the mean loss is {mine!r} after "
            f"{fit.n_iter} iterations; give a smaller step_size, or leave it at 'auto'."
        )
    if (wanted > 0).any() and not (spread > 1e-4 * wanted).any():
        warn_caller(
            "The model is the same for nearly all of its training rows, whose targets "
            "differ: the columns may say nothing about them, or nothing at this alpha (or "
            "C), gamma and scale of columns and targets."
        )
    elif np.ptp(y, axis=0).any() and mine > 2.0 * theirs > 0.0:
        warn_caller(
            "On its training rows the model is worse than a constant (mean loss "
            f"{mine:.3g} against {theirs:.3g}): raise alpha (lower C) or max_iter, "
            "lower a given step_size, or scale the targets.",
            ConvergenceWarning,
        )
