"""Functions of a kernel: the kernel, its searches and the choice of a solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from kernelgrad import kernels
from kernelgrad.choice import Choice
from kernelgrad.compute.backend import CPU
from kernelgrad.compute.linalg import dense
from kernelgrad.compute.memory import give_back
from kernelgrad.compute.ranges import check_sizes
from kernelgrad.compute.threads import at_most, single_threaded_blas
from kernelgrad.families.base import Spec
from kernelgrad.families.reading import Run
from kernelgrad.files.records import Record
from kernelgrad.functions.scaling import UNITS, InputScaling
from kernelgrad.inputs import Inputs
from kernelgrad.kernels import CallableKernel, Kernel, Matern, PrecomputedKernel, get_kernel
from kernelgrad.model import Fit
from kernelgrad.registry import room
from kernelgrad.search.auto import choose_solver, settled_solver, slowness
from kernelgrad.search.machine import SHAPES, smoothness
from kernelgrad.search.pool import SearchSpace, study_tasks
from kernelgrad.search.search import search
from kernelgrad.solvers import DSG, BlockDescent, Problem, Resources, Solver, get_solver
from kernelgrad.tasks import ClassTargets, Task
from kernelgrad.training_rows import TrainingRows
from kernelgrad.types import AnyArray, Float64Array, Matrix
from kernelgrad.validation import CapabilityError, check_name, warn_caller

_SIGN_ROWS = 200  # rows whose kernel values are checked for negative eigenvalues
_SPREAD_ROWS = 10_000  # rows from which the spread of columns is estimated
_FAST_ROWS = 16_384  # rows of effort="fast": the most whose kernel matrix is made
_BEST_BYTES = 1e9  # memory limit from which effort="best" has its larger matrices


class KernelSpec(Spec):
    """A kernel whose bandwidth is a number or a rule, and a solver of kernel machines."""

    streaming = (
        ", or fit with solver='dsg' ('pegasos' for kernels without random features)",
        "'dsg', 'norma' or 'perceptron'",
    )
    fits_some_rows = True
    metric_words: ClassVar[tuple[str, ...]] = ()  # kinds of metric that can be learned
    # Scalings by which a few values far out make the others nearly alike.
    sees_outliers: ClassVar[tuple[bool | str, ...]] = (True,)
    # settings of solvers of the dsg family by name
    dsg_params: dict[str, Any] = {}  # noqa: RUF012

    def check(self) -> None:
        kernel = self.params.kernel
        self.is_pairwise = isinstance(kernel, PrecomputedKernel) or (
            isinstance(kernel, str) and kernel == PrecomputedKernel.name
        )
        self.orders_rows = not self.is_pairwise  # columns of a kernel matrix stand for its rows
        self.check_metric()

        if isinstance(self.params.standardize, InputScaling) and not isinstance(
            self.params.kernel, Kernel
        ):
            raise ValueError(
                "standardize is a scaling that belongs to a kernel; give that kernel as an "
                "object too, as best_params_ does."
            )

    def check_metric(self) -> None:
        metric = self.params.metric
        if metric is None:
            return
        if isinstance(metric, str):
            if metric not in self.metric_words:
                more = ", None, weights of the columns, or a matrix"
                check_name(metric, self.metric_words, "metric", instead=more)
            return
        M = np.asarray(metric)
        if M.ndim not in (1, 2) or M.dtype.kind not in "biuf" or not np.isfinite(M).all():
            raise ValueError(
                "metric must be an array of finite numbers, weights of the columns (d,) or a "
                f"matrix (d, r); got shape {M.shape} and dtype {M.dtype}."
            )
        if not M.any() or (M.ndim == 1 and (M < 0).any()):
            raise ValueError(
                "metric has no weight above 0, or a negative one; give weights >= 0."
            )

    def make_kernel(self) -> Kernel:
        return self.named(self.params.gamma)

    def named(self, gamma: Any) -> Kernel:
        p = self.params
        return get_kernel(p.kernel, gamma=gamma, bandwidth_factor=p.bandwidth_factor)

    def make_solver(self, chosen: Any) -> Solver[Any]:
        solver: Solver[Any] = chosen
        if chosen is self.params.solver:
            solver = get_solver(chosen, marks=self.marks_rows)
        if self.dsg_params and isinstance(self.params.solver, str) and isinstance(solver, DSG):
            solver.set_params(**self.dsg_params)
        return solver

    @cached_property
    def scaling_rule(self) -> bool | str:
        """How columns are scaled; "auto" is a choice by the data, "units" by units."""
        p = self.params
        if p.standardize != "auto":
            return p.standardize  # type: ignore[no-any-return]
        ruled = isinstance(p.gamma, str) and isinstance(p.kernel, str)
        return UNITS if ruled and self.named("median").is_stationary else False

    @property
    def shares_rows(self) -> bool:  # type: ignore[override]
        return self.is_auto or self.solver.takes_stores

    def automatic(self, rows: TrainingRows, run: Run) -> tuple[Solver[Any], str]:
        p, where = self.params, "disk"
        if run.stream:
            where = "stream"
        elif rows.in_memory:
            where = "memory"
        solver, reason = choose_solver(
            rows.task.loss, self.kernel, rows=where, n_rows=rows.n_rows,
            row_bytes=rows.nbytes if where == "memory" else 0.0, n_outputs=rows.task.n_outputs,
            memory=self.resources.usable, stops=bool(p.early_stopping),
            penalised=p.C is not None or getattr(p, "alpha", 1) != 0,
        )  # fmt: skip
        if p.device != CPU and where == "memory" and not isinstance(solver, DSG):
            solver = BlockDescent()
            reason = f"device={p.device!r} is for block descent"
        return self.make_solver(solver), reason

    def check_rows(self, inputs: Inputs, X: Matrix) -> None:
        rule = self.scaling_rule
        if isinstance(self.kernel, CallableKernel) and not rule:
            warn_of_sign(self.kernel.pairwise(X[:_SIGN_ROWS], X[:_SIGN_ROWS]))
        if not rule:
            self.kernel.check_domain(X)
        if not self.is_pairwise:
            may_stay = rule == UNITS or (rule == "auto" and sp.issparse(X))
            check_sizes(X, scaled=bool(rule) and not may_stay)
            p = self.params
            undecided = p.standardize == "auto" and not rule
            if undecided and not sp.issparse(X) and isinstance(p.metric, str | None):
                warn_of_scales(X, inputs.name)
            far = rule in self.sees_outliers
            if far and min(X.shape[0], _SPREAD_ROWS) * X.shape[1] < 2**24:
                warn_of_outliers(X, inputs.name)
            return
        if rule:
            raise ValueError(
                "standardize=True would scale a kernel matrix; leave it False with "
                "kernel='precomputed'."
            )
        if X.shape[0] != X.shape[1]:
            raise ValueError(
                "With kernel='precomputed' X must be the square kernel matrix of the training "
                f"rows, got shape {X.shape}."
            )

    def metric_array(self, inputs: Inputs) -> Float64Array | None:
        """Return the metric where it is an array, checked against the columns."""
        metric = self.params.metric
        if metric is None or isinstance(metric, str):
            return None
        M = np.asarray(metric, np.float64)
        if len(M) != inputs.width:
            raise ValueError(
                f"metric has {len(M)} rows, but the rows have {inputs.width} columns; give one "
                "weight, or one row of the matrix, for each column."
            )
        return M

    def make_problem(
        self, task: Task, inputs: Inputs, seed: int, alpha: float, resources: Resources,
        **options: Any,
    ) -> Problem:  # fmt: skip
        rule, metric = self.scaling_rule, self.metric_array(inputs)
        options |= {"standardize": False if rule == "auto" else rule, "metric": metric}
        return super().make_problem(task, inputs, seed, alpha, resources, **options)

    def attributes(self, fit: Fit) -> dict[str, Any]:
        function: Any = fit.model.function
        return {
            "n_random_features_": function.n_random_features,
            "n_support_": function.n_support,
            "kernel_": function.kernel,
            "metric_": function.scaling.metric,
        }

    def best_params(self, fit: Fit) -> dict[str, Any]:
        function: Any = fit.model.function
        scaling = function.scaling
        return super().best_params(fit) | {
            "kernel": function.kernel, "metric": scaling.metric,
            "standardize": not self.is_pairwise and replace(scaling, metric=None),
        }  # fmt: skip

    def info(self, fit: Fit) -> dict[str, Any]:
        kernel: Kernel = fit.model.function.kernel
        return {"kernel": kernel.name, "kernel_params": kernels.kernel_summary(kernel)}


def warn_of_scales(X: AnyArray, name: Callable[[Any], Any]) -> None:
    """Warn if one column drowns most others in distances and products of rows."""
    spread = np.asarray(X[:: -(-len(X) // _SPREAD_ROWS)], np.float64).std(axis=0)
    order = np.argsort(spread)[np.searchsorted(np.sort(spread), 0.0, side="right") :]
    if len(order) < 2:
        return
    middle, widest = spread[order[(len(order) - 1) // 2]], order[-1]
    if spread[widest] > 1000.0 * middle:
        warn_caller(
            f"Column {name(widest)} spreads {spread[widest] / middle:.0e} times as "
            "wide as half of the others, which the kernel hardly sees; set "
            "standardize=True or gamma='auto', or scale the columns."
        )


def warn_of_outliers(X: Matrix, name: Callable[[Any], Any]) -> None:
    """Warn if a few values make a deviation by which the others become nearly alike."""
    sample = dense(X[:: -(-X.shape[0] // _SPREAD_ROWS)], np.float64)
    low, middle, high = np.quantile(sample, (0.25, 0.5, 0.75), axis=0)
    ends = np.array([dense(X.max(axis=0)).ravel(), dense(X.min(axis=0)).ravel()], np.float64)
    far = np.abs(ends - middle).max(axis=0) / np.sqrt(X.shape[0])
    times = np.zeros(len(low))
    np.divide(np.maximum(sample.std(axis=0), far), high - low, out=times, where=high > low)
    worst = int(times.argmax())
    if times[worst] > 30.0:
        warn_caller(
            f"Column {name(worst)} has a deviation {times[worst]:.0e} times the "
            "distance of its quartiles: values far out, beside which the others are nearly "
            "alike; set standardize='robust', or clip them."
        )


def warn_of_sign(values: Float64Array) -> None:
    """Warn if kernel values of rows with one another have a negative eigenvalue."""
    low, high = np.linalg.eigvalsh(0.5 * (values + values.T))[[0, -1]]
    if low < -1e-4 * max(abs(high), 1e-30):
        warn_caller(
            f"The kernel is not positive semi-definite: its values for {len(values)} rows have "
            f"the eigenvalues {low:.2g} to {high:.2g}, and the fit may have no minimum. Give "
            "a kernel whose matrices have no negative eigenvalue."
        )


def check_one_penalty(spec: Spec, default: Any) -> None:
    """Raise ValueError if both C and alpha are given."""
    p = spec.params
    if p.C is not None and (type(p.alpha) is not type(default) or p.alpha != default):
        raise ValueError(
            f"C={p.C!r} and alpha={p.alpha!r} are two ways to say one thing; leave "
            "one of them out."
        )


def alpha_of_cost(C: float, rows: TrainingRows) -> float:
    """Return ``alpha = 1 / (C W)`` with W the total weight of the training rows."""
    total = rows.total_weight
    if total is None:
        raise ValueError(
            "C needs the sum of all weights, which a source with weights or class weights "
            "does not tell before it is read; give alpha instead."
        )
    return 1.0 / (float(C) * total)


class SearchedSpec(KernelSpec):
    """Classes or numbers, where kernel, metric and penalty may be searched."""

    metric_words = ("auto", "diagonal", "full")

    def check(self) -> None:
        p = self.params
        check_one_penalty(self, "auto")
        self.searches_alpha = "alpha" in self.autos and p.C is None
        super().check()
        if p.engine is not None and not isinstance(p.engine, room("cluster").DaskEngine):
            raise TypeError(
                f"engine must be a DaskEngine or None, got {p.engine!r}; give "
                "DaskEngine(client)."
            )

    def make_kernel(self) -> Kernel:
        gamma = self.params.gamma
        if isinstance(gamma, str):
            rules = getattr(self.named("median"), "gamma_rules", ())
            if rules:
                names = {"auto", "median", *rules}
                check_name(gamma, names, "rule for gamma", instead=", or give a number")
        kernel = self.named("median" if "gamma" in self.autos else gamma)
        self.space = self._space(kernel)
        return kernel

    def named(self, gamma: Any) -> Kernel:
        p = self.params
        name = "rbf" if "kernel" in self.autos else p.kernel
        return get_kernel(name, gamma=gamma, bandwidth_factor=p.bandwidth_factor)

    def _space(self, kernel: Kernel) -> SearchSpace | None:
        """Return the parameters to search; None if everything is a number or a rule."""
        p, metric, free = self.params, self.params.metric, "gamma" in self.autos
        learned = isinstance(metric, str) and metric != "auto"
        if not (free or learned or self.searches_alpha):
            return None
        by_name, nu, rule = isinstance(p.kernel, str), smoothness(kernel), self.scaling_rule
        memory, effort = p.memory_limit, p.effort
        if effort == "best" and memory is not None and memory < _BEST_BYTES:
            effort = "default"
        if free and by_name and nu is not None:
            sums = "kernel" in self.autos and not (isinstance(metric, str) and metric == "full")
            shapes = (2.5,) if sums else SHAPES if "kernel" in self.autos else (nu,)
            width = float(p.bandwidth_factor)
            # the loss of numbers, and that of classes with probabilities
            chosen = p.probability or not isinstance(self.targets, ClassTargets)
            searches_loss = chosen and {"loss", "solver"} <= self.autos
            candidates: tuple[Kernel, ...] = (kernel,)
            if "kernel" in self.autos:
                candidates += (Matern(0.5, bandwidth_factor=width),)
            return SearchSpace(
                shapes, candidates, metric, None, None, rule, width, sums, searches_loss, True,
                effort,
            )  # fmt: skip
        if learned:
            gamma = getattr(kernel, "gamma", None)
            if nu is None or isinstance(gamma, str):
                raise ValueError(
                    f"metric={metric!r} is learned for the kernels 'rbf' and 'matern' of nu "
                    f".5, 1.5 or 2.5, with gamma a number or 'auto'; it got {kernel!r}. Change "
                    "one of them, or give metric=None."
                )
            return SearchSpace((nu,), (kernel,), metric, gamma, None, rule, effort=effort)
        ruled = free and by_name and getattr(kernel, "gamma", 0) == "median"
        if not (ruled or self.searches_alpha):
            return None
        return SearchSpace((), (kernel,), metric, None, None, rule, bandwidths=ruled)

    @cached_property
    def scaling_rule(self) -> bool | str:
        p = self.params
        if p.standardize != "auto":
            return p.standardize  # type: ignore[no-any-return]
        by_name = "gamma" in self.autos and isinstance(p.kernel, str)
        # only differences of the rows have no scale of their own
        return "auto" if by_name and self.named("median").is_stationary else False

    def make_solver(self, chosen: Any) -> Solver[Any]:
        solver = super().make_solver(chosen)
        by_pairs = isinstance(self.targets, ClassTargets) and self.targets.by_pairs
        if by_pairs and solver.counts_all_rows:
            raise CapabilityError(
                f"solver {solver.name!r} counts all rows for each output, those of a "
                "third class too; for multi_class='ovo' take another, such as 'working_set' or "
                "'block_descent'."
            )
        return solver

    def some_rows(self, rows: TrainingRows, run: Run) -> TrainingRows:
        if self.params.effort != "fast" or self.is_pairwise:
            return rows
        size = _FAST_ROWS * rows.nbytes / rows.n_rows
        return rows.some(_FAST_ROWS, run.seed) if 4 * size <= self.resources.usable else rows

    def alpha(self, rows: TrainingRows) -> float:
        p = self.params
        if p.C is not None:
            return alpha_of_cost(p.C, rows)
        return np.nan if self.searches_alpha else float(p.alpha)

    def search(self, rows: TrainingRows, problem: Problem, first: Choice, run: Run) -> Choice:
        choice = replace(first, alpha=problem.alpha)
        if self.space is not None:
            # one thread of BLAS, as no bit may depend on threads
            with single_threaded_blas(), at_most(study_tasks(self.resources.memory_limit)):
                # on the CPU, so that the same parameters are found for all devices
                resources = replace(problem.resources, device=CPU)
                choice = search(
                    self.space, rows, replace(problem, resources=resources), first,
                    stream=run.stream, on_phase=run.callbacks.on_phase,
                )  # fmt: skip
            if self.resources.memory_limit is not None:
                give_back()
        return self._settled(choice, rows, run) if self.is_auto else choice

    def _settled(self, choice: Choice, rows: TrainingRows, run: Run) -> Choice:
        """Return the choice of the solver now that alpha and the time left are known."""
        chosen = choice.solver, choice.reason
        if choice.loss is not None:
            task = rows.task.with_loss(choice.loss)
            chosen = self.automatic(replace(rows, task=task), run)
        n, left = rows.n_train, run.deadline.left()
        left = left if np.isinf(left) else left / slowness()
        solver, reason, costs = settled_solver(
            chosen, n, rows.task.n_outputs, n * choice.alpha, left
        )
        entries = choice.entries | ({"solver_costs": costs} if costs else {})
        return replace(choice, solver=solver, reason=reason, entries=entries)

    def restore(self, fit: Fit, fitted: Record, extra: Record) -> Fit:
        fit = super().restore(fit, fitted, extra)
        if self.space is None:
            return fit
        # a continued fit calibrates with the kernel of the search
        function: Any = fit.model.function
        # each part of the rows has a centre of its own
        own = function.scaling
        scaling = None if own.scale is own.metric is own.warp is None else own
        choice = replace(fit.choice, kernel=function.kernel, scaling=scaling)
        return replace(fit, choice=choice)

    def best_params(self, fit: Fit) -> dict[str, Any]:
        own = {"loss": fit.model.task.loss, "alpha": fit.choice.alpha, "C": None}
        # parts of the rows, which calibrate, have other numbers by a rule
        searched = super().best_params(fit) if self.space else {"solver": fit.choice.solver}
        return searched | own

    def attributes(self, fit: Fit) -> dict[str, Any]:
        return super().attributes(fit) | {"alpha_": fit.choice.alpha}
