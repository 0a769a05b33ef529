"""What estimators on a kernel share: the kernel, its searches and the choice of a solver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernelgrad._typing import AnyArray, IntArray, Matrix
from kernelgrad._validation import CapabilityError, check_bool, check_name, check_real
from kernelgrad.data import BatchSource, split_rows
from kernelgrad.estimators._search import (
    ALPHAS,
    FACTORS,
    GIVEN,
    Trial,
    bandwidth_rows,
    choose_solver,
    rows_nbytes,
    search_alpha,
    search_bandwidth,
    usable_memory,
)
from kernelgrad.estimators.base import MAX_VALIDATION_ROWS, BaseRowsEstimator
from kernelgrad.functions.features import CACHE_BYTES
from kernelgrad.kernels import Kernel, PrecomputedKernel, get_kernel, kernel_summary
from kernelgrad.losses import Loss
from kernelgrad.solvers import (
    SOLVERS,
    CachedBlockDescent,
    DirectSolve,
    Problem,
    Solver,
    get_solver,
)


class BaseKernelEstimator(BaseRowsEstimator):
    """Parameters and choices of the kernel estimators."""

    _searches = False  # whether alpha and gamma may be "auto"

    @property
    def _alpha(self) -> float:
        """The regularisation of the objective; NaN until a search has found it."""
        if self._searches_alpha:
            return float(getattr(self, "alpha_", np.nan))
        return float(self.alpha)

    @property
    def _searches_alpha(self) -> bool:
        return self._searches and isinstance(self.alpha, str) and self.alpha == "auto"

    @property
    def _searches_gamma(self) -> bool:
        if not (self._searches and isinstance(self.gamma, str) and self.gamma == "auto"):
            return False
        # kernels of the inner product have a rule of that name
        return not (isinstance(self.kernel, str) and self._candidate(1.0).gamma == "auto")

    def _candidate(self, factor: float) -> Any:
        """Return the kernel of that many median bandwidths, for ``gamma="auto"``."""
        kernel = get_kernel(
            self.kernel,
            gamma="median",
            bandwidth_factor=self.bandwidth_factor * factor,
        )
        if not (isinstance(self.kernel, str) and hasattr(kernel, "gamma")):
            raise ValueError(
                f"gamma='auto' is for kernels given by name that have a gamma, not for "
                f"{self.kernel!r}; leave it at 'median', or search over kernel objects with "
                "GridSearchCV."
            )
        return kernel

    @property
    def _is_precomputed(self) -> bool:
        """Whether X holds kernel values, by name or by object."""
        return isinstance(self.kernel, PrecomputedKernel) or (
            isinstance(self.kernel, str) and self.kernel == PrecomputedKernel.name
        )

    @property
    def _orders_rows(self) -> bool:
        return not self._is_precomputed  # the columns of a kernel matrix stand for its rows

    def _make_kernel(self) -> Kernel:
        """Return the kernel that the parameters ask for, checked."""
        if self._searches_gamma:
            return self._candidate(1.0)  # type: ignore[no-any-return]
        return get_kernel(self.kernel, gamma=self.gamma, bandwidth_factor=self.bandwidth_factor)

    def _make_solver(self, auto: Solver[Any] | None = None) -> Solver[Any]:
        return get_solver(self.solver if auto is None else auto)

    def _select_solver(
        self, loss: Loss, sources: tuple[BatchSource, ...], *, stream: bool = False
    ) -> tuple[Solver[Any], str]:
        if not self._auto_solver:
            return self._make_solver(), GIVEN
        rows = "disk"
        n_rows, row_bytes = sum(source.n_rows for source in sources), 0.0
        if stream:
            rows = "stream"
        elif all(source.in_memory for source in sources):
            rows = "memory"
            row_bytes = sum(rows_nbytes(source) for source in sources)
        chosen, reason = choose_solver(
            loss,
            self._make_kernel(),
            rows=rows,
            n_rows=n_rows,
            row_bytes=row_bytes,
            n_outputs=self._n_outputs * (len(ALPHAS) if self._searches_alpha else 1),
            memory=usable_memory(self.memory_limit),
            stops=bool(self.early_stopping),
        )
        return self._make_solver(chosen), reason

    def _check_alpha(self) -> None:
        if self._searches_alpha:
            return
        if self._searches and isinstance(self.alpha, str):
            check_name(self.alpha, ("auto",), "rule for alpha")
        check_real(self.alpha, "alpha", low=0)

    def _check_family(self) -> None:
        if getattr(self, "C", None) is not None and self._searches_alpha:
            raise ValueError(
                "C and alpha are two ways to say one thing; leave C out with alpha='auto'."
            )
        check_bool(self.standardize, "standardize")
        self._make_kernel()

    def _check_streams(self) -> None:
        solver = self.solver
        if self._is_precomputed:
            raise AttributeError(
                "partial_fit takes rows, which kernel='precomputed' does not have; use fit."
            )
        if isinstance(solver, str) and solver == "auto":
            fitted = getattr(self, "solver_", None)
            if fitted is None or fitted.streams:
                return
            raise AttributeError(
                f"fit took the solver {fitted.name!r} ({self.history_['solver_reason']}), "
                "which cannot go on with other rows; for partial_fit take a new estimator, "
                "with solver='dsg', or 'pegasos' for kernels without random features, where it "
                "begins with fit."
            )
        cls = SOLVERS.get(solver) if isinstance(solver, str) else type(solver)
        if not getattr(cls, "streams", True):
            raise AttributeError(
                f"solver {getattr(cls, 'name', solver)!r} needs all rows at once and has no "
                "partial_fit; use fit, or a solver for streams such as 'dsg', 'norma' or "
                "'perceptron'."
            )

    def _check_stream_start(self) -> None:
        for name, wanted in (("alpha", self._searches_alpha), ("gamma", self._searches_gamma)):
            if wanted:
                raise ValueError(
                    f"{name}='auto' needs all rows at once; give {name} as a number for "
                    "partial_fit, or use fit."
                )

    def _check_rows(self, X: Matrix) -> None:
        if not self.standardize:
            self._make_kernel().check_domain(X)
        if not self._is_precomputed:
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

    def _problem(self, loss: Loss) -> Problem:
        cache = CACHE_BYTES if self.memory_limit is None else int(self.memory_limit) // 4
        return Problem(
            loss=loss,
            kernel=self._make_kernel(),
            alpha=self._alpha,
            n_outputs=self._n_outputs,
            n_features_in=self.n_features_in_,
            seed=self._seed,
            fit_intercept=bool(self.fit_intercept),
            standardize=bool(self.standardize),
            cache_bytes=cache,
            memory_limit=None if self.memory_limit is None else int(self.memory_limit),
        )

    def _tune(
        self,
        problem: Problem,
        solver: Solver[Any],
        reason: str,
        source: BatchSource,
        held: IntArray | None,
        stratify: AnyArray | None,
    ) -> tuple[Problem, int, list[dict[str, Any]]] | None:
        """Find alpha and gamma where they are "auto"."""
        if not (self._searches_alpha or self._searches_gamma):
            return None
        if isinstance(solver, DirectSolve):  # solves for one alpha; blocks share kernel values
            solver = CachedBlockDescent()
        if not (isinstance(solver, CachedBlockDescent) and source.in_memory):
            name = "alpha" if self._searches_alpha else "gamma"
            why = reason if source.in_memory else "the rows are on disk"
            raise CapabilityError(
                f"{name}='auto' needs all rows in memory and solver 'cached', but the solver "
                f"is {solver.name!r} ({why}); give {name} as a number, load the rows into "
                "arrays, or raise memory_limit."
            )
        loss = problem.loss
        if held is None:
            held = split_rows(
                source,
                self.validation_fraction,
                seed=self._seed,
                stratify=stratify,
                max_rows=MAX_VALIDATION_ROWS,
            )
        train = np.setdiff1d(np.arange(source.n_rows), held)
        trials: list[Trial] = []
        if self._searches_gamma:
            some, few = bandwidth_rows(train, held, stratify, self._seed)
            kernel, trials = search_bandwidth(
                solver,
                problem,
                [self._candidate(factor) for factor in FACTORS],
                self._all_rows(source, some, loss),
                self._validation(source, few, loss, None),
                ALPHAS if self._searches_alpha else (problem.alpha,),
            )
            problem = replace(problem, kernel=kernel)
        blocks = int(self.max_iter)
        if self._searches_alpha:
            best, more = search_alpha(
                solver,
                problem,
                self._all_rows(source, train, loss),
                self._validation(source, held, loss, None),
                blocks,
            )
            problem = replace(problem, alpha=best.alpha)
            trials, blocks = trials + more, best.blocks
        return problem, blocks, [trial.record() for trial in trials]

    def _finish(self, *args: Any) -> None:
        super()._finish(*args)
        if self._searches:
            self.alpha_ = self._fitted_alpha

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
