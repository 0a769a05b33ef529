"""What estimators on a kernel share: the kernel, its searches and the choice of a solver."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from kernelgrad import kernels as _kernels
from kernelgrad.callbacks import Deadline
from kernelgrad.compute.backend import CPU
from kernelgrad.compute.compiling import clock
from kernelgrad.compute.memory import give_back
from kernelgrad.compute.threads import at_most, single_threaded_blas
from kernelgrad.data import BatchSource
from kernelgrad.data.memory import rows_nbytes, usable_memory
from kernelgrad.estimators.base import BaseRowsEstimator
from kernelgrad.estimators.plan import Choice, Parts, Plan, Posed, Reading
from kernelgrad.estimators.supervised import BaseSupervisedEstimator
from kernelgrad.estimators.support import is_auto
from kernelgrad.estimators.warnings import SPREAD_ROWS, warn_of_outliers, warn_of_scales
from kernelgrad.files.records import Check, Record
from kernelgrad.functions.scaling import SCALINGS, UNITS, InputScaling
from kernelgrad.kernels import Kernel, Matern, PrecomputedKernel, get_kernel
from kernelgrad.losses import Loss, SquaredError
from kernelgrad.params import anything, boolean, parameters
from kernelgrad.registry import room
from kernelgrad.search import pilot
from kernelgrad.search.auto import choose_solver, settled_solver
from kernelgrad.search.metric import SHAPES, smoothness
from kernelgrad.search.trials import TRIAL_ROWS, descent_kernel, own_ratio, plain_study
from kernelgrad.solvers import DSG, SOLVERS, BlockDescent, Problem, Solver, get_solver
from kernelgrad.solvers.loop import check_history
from kernelgrad.tasks import NoTargets
from kernelgrad.training_rows import TrainingRows
from kernelgrad.types import AnyArray, Contents, Float64Array, Matrix
from kernelgrad.validation import check_bool, check_name, check_real

Found = tuple[InputScaling | None, Kernel, dict[str, Any]]  # with entries for `history_`
_TOLD: dict[str, Check] = {
    "alpha": partial(check_real, low=0.0),
    "found": check_history,
    "seconds": partial(check_real, low=0.0),
}


@parameters
class BaseKernelEstimator(BaseRowsEstimator):
    """Parameters and choices of the kernel estimators."""

    gamma: float | str = anything(default="median")
    bandwidth_factor: float = anything(default=1.0)
    metric: Any = anything(default=None)
    standardize: bool | str = boolean(default="auto", words=("auto", *SCALINGS))

    if TYPE_CHECKING:  # what fits set
        kernel_: ClassVar[Kernel]
        metric_: ClassVar[Float64Array | None]
        n_random_features_: ClassVar[int]
        n_support_: ClassVar[int]

    _solvers = SOLVERS
    _streaming = (
        ", with solver='dsg', or 'pegasos' for kernels without random features, where it "
        "begins with fit",
        "'dsg', 'norma' or 'perceptron'",
    )
    _metric_words: ClassVar[tuple[str, ...]] = ()  # kinds of metric that can be learned
    _sees_outliers: ClassVar[tuple[bool | str, ...]] = (True,)  # scalings that outliers spoil

    @property
    def _standardize(self) -> bool | str:
        """How columns are scaled; "auto" is a choice by the data, "units" by their units."""
        if self.standardize != "auto":
            return self.standardize
        ruled = isinstance(self.gamma, str) and isinstance(self.kernel, str)
        return UNITS if ruled and self._named("median").is_stationary else False

    def _named(self, gamma: Any) -> Kernel:
        return get_kernel(self.kernel, gamma=gamma, bandwidth_factor=self.bandwidth_factor)

    def _check_metric(self) -> None:
        if self.metric is None:
            return
        if isinstance(self.metric, str):
            more = ", None, weights of the columns, or a matrix"
            check_name(self.metric, self._metric_words, "metric", instead=more)
            return
        M = np.asarray(self.metric)
        if M.ndim not in (1, 2) or M.dtype.kind not in "biuf" or not np.isfinite(M).all():
            raise ValueError(
                "metric must be an array of finite numbers, weights of the columns (d,) or a "
                f"matrix (d, r); got shape {M.shape} and dtype {M.dtype}."
            )
        if not M.any() or (M.ndim == 1 and (M < 0).any()):
            raise ValueError(
                "metric has no weight above 0, or a negative one; give weights >= 0."
            )

    @property
    def _given_metric(self) -> Float64Array | None:
        """The metric where it is an array, checked against the columns."""
        if self.metric is None or isinstance(self.metric, str):
            return None
        M = np.asarray(self.metric, np.float64)
        if len(M) != self._width:
            raise ValueError(
                f"metric has {len(M)} rows, but the rows have {self._width} columns; give one "
                "weight, or one row of the matrix, for each column."
            )
        return M

    @property
    def feature_importances_(self) -> Float64Array:
        """Squared weights of the metric, summed over what a column was encoded as; sum 1."""
        check_is_fitted(self, "expansion_")
        metric = self.metric_
        if metric is None:
            raise AttributeError(
                "feature_importances_ are the squared weights of a metric, and this model has "
                "none: all columns count alike. Fit with metric='diagonal' for weights of "
                "columns."
            )
        square = metric**2 if metric.ndim == 1 else (metric**2).sum(axis=1)
        groups = np.arange(len(square)) if self._table is None else self._table.groups
        total = np.bincount(groups, square, minlength=self.n_features_in_)
        return np.asarray(total / total.sum())

    @property
    def _is_precomputed(self) -> bool:
        """Whether X holds kernel values, by name or by object."""
        return isinstance(self.kernel, PrecomputedKernel) or (
            isinstance(self.kernel, str) and self.kernel == PrecomputedKernel.name
        )

    @property
    def _shares_rows(self) -> bool:  # type: ignore[override]
        return self._auto_solver or self._make_solver().takes_stores

    @property
    def _takes_tables(self) -> bool:  # type: ignore[override]
        return not self._is_precomputed

    @property
    def _orders_rows(self) -> bool:  # type: ignore[override]
        return not self._is_precomputed  # the columns of a kernel matrix stand for its rows

    def _make_parts(self) -> Parts:
        self._check_metric()
        return Parts(self._named(self.gamma), self._make_solver())

    def _make_solver(self, auto: Solver[Any] | None = None) -> Solver[Any]:
        solver = get_solver(self.solver if auto is None else auto, marks=False)
        if isinstance(self.solver, str) and isinstance(solver, DSG):
            solver.set_params(**self._dsg_parameters())
        return solver

    def _dsg_parameters(self) -> dict[str, Any]:
        return {}

    def _automatic(self, parts: Parts, rows: TrainingRows, *, stream: bool) -> Choice:
        sources, place = rows.sources, "disk"
        if stream:
            place = "stream"
        elif rows.in_memory:
            place = "memory"
        chosen, reason = choose_solver(
            rows.task.loss,
            parts.kernel,
            rows=place,
            n_rows=sum(source.n_rows for source in sources),
            row_bytes=sum(map(rows_nbytes, sources)) if place == "memory" else 0.0,
            n_outputs=rows.task.n_outputs,
            memory=usable_memory(self.memory_limit),
            stops=bool(getattr(self, "early_stopping", False)),
            penalised=getattr(self, "C", None) is not None or getattr(self, "alpha", 1) != 0,
        )
        if self.device != CPU and place == "memory" and not isinstance(chosen, DSG):
            chosen = BlockDescent()
            reason = f"device={self.device!r} is for block descent"
        return self._make_solver(chosen), reason

    def _check_streams(self) -> None:
        if self._is_precomputed:
            raise AttributeError(
                "partial_fit takes rows, which kernel='precomputed' does not have; use fit."
            )
        super()._check_streams()

    def _check_rows(self, parts: Parts, X: Matrix) -> None:
        if not self._standardize:
            parts.kernel.check_domain(X)
        if not self._is_precomputed:
            super()._check_rows(parts, X)
            undecided = self.standardize == "auto" and not self._standardize
            if undecided and not sp.issparse(X) and self._given_metric is None:
                warn_of_scales(X, self._told)
            far = self._standardize in self._sees_outliers
            if far and min(X.shape[0], SPREAD_ROWS) * X.shape[1] < 2**24:
                warn_of_outliers(X, self._told)
            return
        if self._standardize:
            raise ValueError(
                "standardize=True would scale a kernel matrix; leave it False with "
                "kernel='precomputed'."
            )
        if X.shape[0] != X.shape[1]:
            raise ValueError(
                "With kernel='precomputed' X must be the square kernel matrix of the training "
                f"rows, got shape {X.shape}."
            )

    def _told(self, column: Any) -> Any:
        own = column if self._table is None else self._table.groups[column]
        names = getattr(self, "feature_names_in_", None)
        return own if names is None else repr(names[own])

    def _check_source(self, source: BatchSource) -> None:
        if self._is_precomputed:
            raise ValueError(
                "kernel='precomputed' takes the kernel matrix as an array, not a "
                f"{type(source).__name__}."
            )

    def _problem_options(self) -> dict[str, Any]:
        return {
            "standardize": False if self._standardize == "auto" else self._standardize,
            "metric": self._given_metric,
        }

    def _searched(self, search: Callable[[], Found], checks: dict[str, Check]) -> Found:
        """Return the result of a search, or the one that the resumed checkpoint holds."""

        def described(found: Found) -> Contents:
            scaling, kernel, told = found
            values = {"kernel": _kernels.describe_kernel(kernel), "scaled": scaling is not None}
            return values | told, {} if scaling is None else scaling.arrays()

        def restored(record: Record) -> Found:
            kernel = _kernels.restore_kernel(record.part("kernel").values)
            scaling = InputScaling.restore(record, self._width)
            told = {name: record.take(name, check) for name, check in checks.items()}
            return scaling if record.take("scaled", check_bool) else None, kernel, told

        return self._recalled("search", search, described, restored)

    def _function_attributes(self, expansion: Any) -> dict[str, Any]:
        return super()._function_attributes(expansion) | {
            "n_random_features_": expansion.n_random_features,
            "n_support_": expansion.n_support,
            "kernel_": expansion.kernel,
            "metric_": expansion.scaling.metric,
        }

    def _function_info(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel_.name,
            "kernel_params": _kernels.kernel_summary(self.kernel_),
        }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed
        return tags


@parameters
class BaseSearchedEstimator(BaseSupervisedEstimator, BaseKernelEstimator):
    """Parameters and searches that classifier and regressor share."""

    loss: str | Loss = anything(default="squared", kw_only=False)
    kernel: Any = anything(default="auto", kw_only=False)
    gamma: float | str = anything(default="auto")
    metric: Any = anything(default="auto")
    engine: Any = anything(default=None)
    alpha: Any = anything(default="auto")
    device: str = anything(default=CPU)

    _metric_words = ("auto", "diagonal", "full")

    @property
    def _searches_alpha(self) -> bool:
        return is_auto(self.alpha) and self.C is None

    @property
    def _searches_gamma(self) -> bool:
        return is_auto(self.gamma)

    def _check_alpha(self) -> None:
        if isinstance(self.alpha, str):
            check_name(self.alpha, ("auto",), "rule for alpha", instead=", or give a number")
        else:
            super()._check_alpha()

    def _given_alpha(self) -> float:
        # a study will find it
        return np.nan if self._searches_alpha else float(self.alpha)

    def _make_parts(self) -> Parts:
        self._check_metric()
        if self.engine is not None and not isinstance(self.engine, room("cluster").DaskEngine):
            raise TypeError(
                f"engine must be a DaskEngine or None, got {self.engine!r}; give "
                "DaskEngine(client)."
            )
        rules = getattr(self._named("median"), "gamma_rules", ())
        if isinstance(self.gamma, str) and rules:
            known = {"auto", "median", *rules}
            check_name(self.gamma, known, "rule for gamma", instead=", or give a number")
        kernel = self._named("median" if self._searches_gamma else self.gamma)
        return Parts(kernel, self._make_solver(), self._wanted(kernel))

    def _named(self, gamma: Any) -> Kernel:
        name = "rbf" if is_auto(self.kernel) else self.kernel
        return get_kernel(name, gamma=gamma, bandwidth_factor=self.bandwidth_factor)

    def _wanted(self, kernel: Kernel) -> pilot.Wanted | None:
        named = isinstance(self.kernel, str)
        nu = smoothness(kernel)
        rule = self._standardize
        metric = self.metric
        if self._searches_gamma and named and nu is not None:
            shapes = SHAPES if is_auto(self.kernel) else (nu,)
            width = float(self.bandwidth_factor)
            kernels: tuple[Kernel, ...] = (kernel,)
            if is_auto(self.kernel):
                kernels += (Matern(0.5, bandwidth_factor=width),)
            whole = is_auto(self.kernel) and (metric is None or is_auto(metric))
            return pilot.Wanted(shapes, kernels, metric, None, None, rule, width, whole, True)
        if isinstance(metric, str) and metric != "auto":
            gamma = getattr(kernel, "gamma", None)
            if nu is None or isinstance(gamma, str):
                raise ValueError(
                    f"metric={metric!r} is learned for the kernels 'rbf' and 'matern' of nu "
                    f".5, 1.5 or 2.5, with gamma a number or 'auto'; it got {kernel!r}. Change "
                    "one of them, or give metric=None."
                )
            return pilot.Wanted((nu,), (kernel,), metric, gamma, None, rule)
        searched = self._searches_gamma and named and getattr(kernel, "gamma", 0) == "median"
        if not (searched or self._searches_alpha):
            return None
        return pilot.Wanted((), (kernel,), metric, None, None, rule, bandwidths=searched)

    @property
    def _standardize(self) -> bool | str:
        if self.standardize != "auto":
            return self.standardize
        named = self._searches_gamma and isinstance(self.kernel, str)
        # only differences of the rows have no scale of their own
        return "auto" if named and self._named("median").is_stationary else False

    def _pose(self, parts: Parts, rows: TrainingRows, chosen: Choice, how: Reading) -> Posed:
        posed = super()._pose(parts, rows, chosen, how)
        if not how.fresh:
            if self._searches_alpha:
                posed = posed._replace(problem=replace(posed.problem, alpha=self._fitted_alpha))
            return posed
        if parts.wanted is None:
            return posed
        wanted = parts.wanted

        def search() -> Found:
            start = clock()
            # one thread of BLAS, as no bit may depend on threads
            with single_threaded_blas(), at_most(pilot.study_tasks(self.memory_limit)):
                # on the CPU, so that the same parameters are found for all devices
                cpu = replace(posed.problem.resources, device=CPU)
                there = replace(posed.problem, resources=cpu)
                problem, found = self._study(wanted, rows, there, chosen[0], how.stream)
            if self.memory_limit is not None:
                give_back()
            told = {"alpha": problem.alpha, "found": found, "seconds": clock() - start}
            return problem.scaling, problem.kernel, told

        scaling, kernel, told = self._searched(search, _TOLD)
        problem = replace(posed.problem, kernel=kernel, alpha=told["alpha"], scaling=scaling)
        return Posed(problem, told["found"], told["seconds"])

    def _plan(self, parts: Parts, rows: TrainingRows, chosen: Choice, *, warm: bool) -> Plan:
        plan = super()._plan(parts, rows, chosen, warm=warm)
        if not self._auto_solver or warm:
            return plan
        n, problem = plan.rows.n_train, plan.problem
        chosen = plan.solver, plan.reason
        solver, reason = settled_solver(chosen, n, problem.n_outputs, n * problem.alpha)
        return replace(plan, solver=solver, reason=reason)

    def _study(
        self, wanted: pilot.Wanted, rows: TrainingRows, problem: Problem, solver: Solver[Any],
        stream: bool,
    ) -> tuple[Problem, dict[str, Any]]:  # fmt: skip
        """Return the problem with what was "auto" found, and the history of the search."""
        alpha = None if np.isnan(problem.alpha) else problem.alpha
        wanted = replace(wanted, alpha=alpha)
        pool = pilot.draw_pool(rows, self._seed, problem.resources.memory_limit)
        if not pool.varies:
            why = "the targets are constant" if len(pool.Y) >= 3 else "too few rows"
            alpha = pilot.FALLBACK_ALPHA if alpha is None else alpha
            return replace(problem, alpha=alpha), {"metric": [], "metric_reason": why}
        reason = pilot.why_not(wanted, pool)
        if stream:  # its length is unknown
            pool = replace(pool, n_rows=max(pool.n_rows, pilot.STREAM_ROWS))
        deadline = Deadline(self._deadline.left() / 2)  # the rest is for the fit
        table = self._table
        groups = None if table is None else table.groups
        tell = self._listeners.on_phase
        tell(f"search ({'metric, ' * (reason is None)}bandwidth, alpha)")
        if reason in (None, pilot.AS_GIVEN, pilot.EQUAL):
            found = pilot.study(pool, wanted, groups, self._seed, lambda: deadline.over)
        else:
            found = plain_study(pool, wanted, self._seed)
        problem = replace(
            problem, kernel=found.kernel, scaling=found.scaling, alpha=found.alpha
        )
        trials = found.trials
        if alpha is None and not isinstance(problem.loss, SquaredError):
            tell(f"search (alpha for {problem.loss.name})")
            ratio, more = own_ratio(pool, problem, self._seed, deadline)
            problem, trials = replace(problem, alpha=problem.alpha * ratio), trials + more
        narrows = isinstance(solver, BlockDescent) and solver.blocks == "support"
        if narrows and wanted.shapes and wanted.gamma is None and pool.n_rows >= TRIAL_ROWS:
            tell("search (kernel for block descent)")
            kernel, more = descent_kernel(pool, problem, wanted.shapes, self._seed, deadline)
            problem, trials = replace(problem, kernel=kernel), trials + more
        told: dict[str, Any] = {"search": trials, "metric": found.rounds}
        return problem, told | ({} if reason is None else {"metric_reason": reason})


@parameters
class BaseUnlabelledEstimator(BaseKernelEstimator):
    """Estimators of rows alone, whose loss has no targets and starts from a constant."""

    device: str = anything(default=CPU)
    warm_start: bool = boolean(default=False)

    _requires_y = False
    _targets_encode = False
    _task_type: ClassVar[type[NoTargets]]
    fit_intercept = True

    @abstractmethod
    def _make_loss(self) -> Loss:
        """Return the loss that the parameters ask for, checked."""

    def _make_parts(self) -> Parts:
        self._make_loss()
        return super()._make_parts()

    def _learn(self, targets: AnyArray | BatchSource, declared: AnyArray | None) -> NoTargets:
        return self._task_type(self._make_loss())

    def _task(self) -> NoTargets:
        return self._task_type(self.loss_)
