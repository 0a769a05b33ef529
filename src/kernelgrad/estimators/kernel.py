"""What estimators on a kernel share: the kernel, its searches and the choice of a solver."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from kernelgrad._params import anything, boolean, parameters
from kernelgrad._typing import AnyArray, Matrix
from kernelgrad._validation import CapabilityError, check_name
from kernelgrad.compute.compiling import clock
from kernelgrad.data import BatchSource
from kernelgrad.estimators._auto import (
    ALPHAS,
    BANDWIDTH_BLOCKS,
    FACTORS,
    GIVEN,
    Trial,
    bandwidth_rows,
    choose_solver,
    rows_nbytes,
    search,
    usable_memory,
)
from kernelgrad.estimators._rows import TrainingRows
from kernelgrad.estimators._tasks import NoTargets
from kernelgrad.estimators.base import (
    BaseRowsEstimator,
    BaseSupervisedEstimator,
    Choice,
    Parts,
    Plan,
)
from kernelgrad.functions.features import CACHE_BYTES
from kernelgrad.kernels import Kernel, PrecomputedKernel, get_kernel, kernel_summary
from kernelgrad.losses import Loss
from kernelgrad.solvers import (
    DSG,
    SOLVERS,
    CachedBlockDescent,
    DirectSolve,
    NewtonCG,
    Problem,
    Solver,
    WorkingSet,
    get_solver,
)

_MOST_STEPS = 100  # of a solver that ends by itself


def is_auto(value: Any) -> bool:
    """Whether a parameter is the word "auto"."""
    return isinstance(value, str) and value == "auto"


@parameters
class BaseKernelEstimator(BaseRowsEstimator):
    """Parameters and choices of the kernel estimators."""

    gamma: float | str = anything(default="median")
    bandwidth_factor: float = anything(default=1.0)
    standardize: bool = boolean(default=False)

    @property
    def _is_precomputed(self) -> bool:
        """Whether X holds kernel values, by name or by object."""
        return isinstance(self.kernel, PrecomputedKernel) or (
            isinstance(self.kernel, str) and self.kernel == PrecomputedKernel.name
        )

    @property
    def _takes_tables(self) -> bool:  # type: ignore[override]
        return not self._is_precomputed

    @property
    def _orders_rows(self) -> bool:  # type: ignore[override]
        return not self._is_precomputed  # the columns of a kernel matrix stand for its rows

    def _make_parts(self) -> Parts:
        kernel = get_kernel(
            self.kernel, gamma=self.gamma, bandwidth_factor=self.bandwidth_factor
        )
        return Parts(kernel, self._make_solver())

    def _make_solver(self, auto: Solver[Any] | None = None) -> Solver[Any]:
        solver = get_solver(self.solver if auto is None else auto)
        if isinstance(self.solver, str) and isinstance(solver, DSG):
            solver.set_params(**self._dsg_parameters())
        return solver

    def _dsg_parameters(self) -> dict[str, Any]:
        """Return the parameters that the name of a solver of the family of DSG stands for."""
        return {}

    def _choose(self, parts: Parts, rows: TrainingRows, *, stream: bool = False) -> Choice:
        if not self._auto_solver:
            return parts.solver, GIVEN
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
            n_outputs=rows.task.n_outputs * self._n_paths,
            memory=usable_memory(self.memory_limit),
            stops=bool(getattr(self, "early_stopping", False)),
            penalised=getattr(self, "C", None) is not None or getattr(self, "alpha", 1) != 0,
        )
        return self._make_solver(chosen), reason

    @property
    def _n_paths(self) -> int:
        """Functions that are fitted side by side."""
        return 1

    def _check_streams(self) -> None:
        if self._is_precomputed:
            raise AttributeError(
                "partial_fit takes rows, which kernel='precomputed' does not have; use fit."
            )
        check_streams(
            self, SOLVERS,
            ", with solver='dsg', or 'pegasos' for kernels without random features, where it "
            "begins with fit", "'dsg', 'norma' or 'perceptron'",
        )  # fmt: skip

    def _check_rows(self, parts: Parts, X: Matrix) -> None:
        if not self.standardize:
            parts.kernel.check_domain(X)
        if not self._is_precomputed:
            super()._check_rows(parts, X)
            return
        if self.standardize:
            raise ValueError(
                "standardize=True would scale a kernel matrix; leave it False with "
                "kernel='precomputed'."
            )
        if X.shape[0] != X.shape[1]:
            raise ValueError(
                "With kernel='precomputed' X must be the square kernel matrix of the training "
                f"rows, got shape {X.shape}."
            )

    def _check_source(self, source: BatchSource) -> None:
        if self._is_precomputed:
            raise ValueError(
                "kernel='precomputed' takes the kernel matrix as an array, not a "
                f"{type(source).__name__}."
            )

    def _problem(self, kernel: Kernel, loss: Loss, n_outputs: int, alpha: float) -> Problem:
        limit = None if self.memory_limit is None else int(self.memory_limit)
        return Problem(
            loss=loss,
            kernel=kernel,
            alpha=alpha,
            n_outputs=n_outputs,
            n_features_in=self._width,
            seed=self._seed,
            fit_intercept=bool(self.fit_intercept),
            standardize=bool(self.standardize),
            cache_bytes=CACHE_BYTES if limit is None else limit // 4,
            memory_limit=limit,
        )

    def _function_attributes(self, expansion: Any) -> dict[str, Any]:
        return super()._function_attributes(expansion) | {
            "n_random_features_": expansion.n_random_features,
            "n_support_": expansion.n_support,
            "kernel_": expansion.kernel,
        }

    def _function_info(self) -> dict[str, Any]:
        return {"kernel": self.kernel_.name, "kernel_params": kernel_summary(self.kernel_)}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed
        return tags


@parameters
class BaseSearchedEstimator(BaseSupervisedEstimator, BaseKernelEstimator):
    """Parameters and searches that classifier and regressor share."""

    loss: str | Loss = anything(default="squared", kw_only=False)
    kernel: Any = anything(default="rbf", kw_only=False)

    @property
    def _searches_alpha(self) -> bool:
        return is_auto(self.alpha)

    @property
    def _n_paths(self) -> int:
        return len(ALPHAS) if self._searches_alpha else 1

    def _check_alpha(self) -> None:
        if not self._searches_alpha:
            if isinstance(self.alpha, str):
                check_name(self.alpha, ("auto",), "rule for alpha")
            super()._check_alpha()
        elif self.C is not None:
            raise ValueError(
                "C and alpha are two ways to say one thing; leave C out with alpha='auto'."
            )

    def _given_alpha(self) -> float:
        # a search has found it, or will
        return float(getattr(self, "alpha_", np.nan) if self._searches_alpha else self.alpha)

    def _make_parts(self) -> Parts:
        if not is_auto(self.gamma):
            return super()._make_parts()
        kernels = tuple(map(self._candidate, FACTORS))
        kernel = kernels[FACTORS.index(1.0)]
        # kernels of the inner product have a rule of that name
        own = isinstance(self.kernel, str) and kernel.gamma == "auto"
        return Parts(kernel, self._make_solver(), () if own else kernels)

    def _candidate(self, factor: float) -> Any:
        """Return the kernel of that many median bandwidths, for ``gamma="auto"``."""
        kernel = get_kernel(
            self.kernel, gamma="median", bandwidth_factor=self.bandwidth_factor * factor
        )
        if not (isinstance(self.kernel, str) and hasattr(kernel, "gamma")):
            raise ValueError(
                f"gamma='auto' is for kernels given by name that have a gamma, not for "
                f"{self.kernel!r}; leave it at 'median', or search over kernel objects with "
                "GridSearchCV."
            )
        return kernel

    def _check_stream_start(self, parts: Parts) -> None:
        wanted = {"alpha": self._searches_alpha, "gamma": bool(parts.kernels)}
        for name in wanted:
            if wanted[name]:
                raise ValueError(
                    f"{name}='auto' needs all rows at once; give {name} as a number for "
                    "partial_fit, or use fit."
                )

    def _plan(self, parts: Parts, rows: TrainingRows, chosen: Choice, *, warm: bool) -> Plan:
        plan = super()._plan(parts, rows, chosen, warm=warm)
        if warm or not (self._searches_alpha or parts.kernels):
            return plan
        start = clock()
        plan = self._tune(parts, plan)
        return replace(plan, seconds=clock() - start)

    def _tune(self, parts: Parts, plan: Plan) -> Plan:
        """Find alpha and gamma where they are "auto"."""
        rows, problem, solver = plan.rows, plan.problem, plan.solver
        if isinstance(solver, DirectSolve):  # a factorisation is of one alpha
            solver = NewtonCG()
        searches = isinstance(solver, CachedBlockDescent | NewtonCG | WorkingSet)
        if not (searches and rows.in_memory):
            name = "alpha" if self._searches_alpha else "gamma"
            why = plan.reason if rows.in_memory else "the rows are on disk"
            raise CapabilityError(
                f"{name}='auto' needs all rows in memory and the solver 'cached', 'direct', "
                f"'newton' or 'working_set', but the solver is {solver.name!r} ({why}); give "
                f"{name} as a number, load the rows into "
                "arrays, or raise memory_limit."
            )
        if not self.early_stopping:
            rows = rows.hold_out(self.validation_fraction, self._seed)
        patience, tol, blocks = self.n_iter_no_change, self.tol, int(self.max_iter)
        trials: list[Trial] = []
        if parts.kernels:
            some, few = bandwidth_rows(rows.train, rows.held, rows.strata, self._seed)
            _, kernel, trials = search(
                solver,
                problem,
                parts.kernels,
                rows.take(some),
                rows.validation(patience, tol, rows=few),
                ALPHAS if self._searches_alpha else (problem.alpha,),
                BANDWIDTH_BLOCKS if isinstance(solver, CachedBlockDescent) else _MOST_STEPS,
            )
            problem = replace(problem, kernel=kernel)
        if self._searches_alpha:
            validation, batch = rows.validation(patience, tol), rows.take(rows.train)
            steps = blocks if isinstance(solver, CachedBlockDescent) else _MOST_STEPS
            best, _, more = search(
                solver, problem, (problem.kernel,), batch, validation, ALPHAS, steps
            )
            problem = replace(problem, alpha=best.alpha)
            trials, blocks = trials + more, best.blocks
        return replace(
            plan,
            problem=problem,
            max_iter=plan.max_iter if self.early_stopping else min(plan.max_iter, blocks),
            found={"search": [asdict(trial) for trial in trials]},
        )


@parameters
class BaseUnlabelledEstimator(BaseKernelEstimator):
    """Estimators of rows alone, whose loss has no targets and starts from a constant."""

    warm_start: bool = boolean(default=False)

    _requires_y = False
    _targets_encode = False
    fit_intercept = True

    @abstractmethod
    def _make_loss(self) -> Loss:
        """Return the loss that the parameters ask for, checked."""

    def _make_parts(self) -> Parts:
        self._make_loss()
        return super()._make_parts()

    def _learn(self, targets: AnyArray | BatchSource, declared: AnyArray | None) -> NoTargets:
        return NoTargets(self._make_loss())

    def _task(self) -> NoTargets:
        return NoTargets(self.loss_)


def check_streams(
    estimator: Any, solvers: dict[str, Any], instead: str, for_streams: str
) -> None:
    """Raise AttributeError if the solver needs all rows at once."""
    solver = estimator.solver
    if is_auto(solver):
        fitted = getattr(estimator, "solver_", None)
        if fitted is None or fitted.streams:
            return
        raise AttributeError(
            f"fit took the solver {fitted.name!r} ({estimator.history_['solver_reason']}), "
            "which cannot go on with other rows; for partial_fit take a new estimator"
            f"{instead}."
        )
    cls = solvers.get(solver) if isinstance(solver, str) else type(solver)
    if not getattr(cls, "streams", True):
        raise AttributeError(
            f"solver {getattr(cls, 'name', solver)!r} needs all rows at once and has no "
            f"partial_fit; use fit, or a solver for streams such as {for_streams}."
        )
