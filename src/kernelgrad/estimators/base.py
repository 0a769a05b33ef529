"""What every estimator shares: from scikit-learn parameters to a run of a solver."""

from __future__ import annotations

import copy
import os
import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from kernelgrad._typing import AnyArray, Float64Array, FloatArray, IntArray, Matrix
from kernelgrad._validation import (
    CapabilityError,
    DataError,
    check_bool,
    check_int,
    check_name,
    check_real,
)
from kernelgrad.callbacks import make_callbacks
from kernelgrad.data import ArraySource, Batch, BatchSource, sample_batches, split_rows
from kernelgrad.estimators import _files
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
from kernelgrad.estimators._support import (
    CallbackSupportMixin,
    SklearnCallbacks,
    canonical_rows,
    with_callbacks,
)
from kernelgrad.expansions import Expansion
from kernelgrad.features import CACHE_BYTES
from kernelgrad.kernels import Kernel, PrecomputedKernel, get_kernel, kernel_summary
from kernelgrad.losses import Loss
from kernelgrad.solvers import (
    SOLVERS,
    CachedBlockDescent,
    Problem,
    Solver,
    State,
    TrainBatch,
    Validation,
    check_capabilities,
    get_solver,
    run,
)

MAX_VALIDATION_ROWS = 20_000  # validation responses stay in memory, whatever the file size


def is_precomputed(kernel: Any) -> bool:
    """Return whether X holds kernel values, by name or by object."""
    return isinstance(kernel, PrecomputedKernel) or (
        isinstance(kernel, str) and kernel == PrecomputedKernel.name
    )


def can_stream(estimator: Any) -> bool:
    """Return True, or raise AttributeError where the solver needs all rows at once."""
    solver = estimator.solver
    if is_precomputed(estimator.kernel):
        raise AttributeError(
            "partial_fit takes rows, which kernel='precomputed' does not have; use fit."
        )
    if isinstance(solver, str) and solver == "auto":
        fitted = getattr(estimator, "solver_", None)
        if fitted is None or fitted.streams:
            return True
        raise AttributeError(
            f"fit took the solver {fitted.name!r} ({estimator.history_['solver_reason']}), "
            "which cannot go on with other rows; for partial_fit take a new estimator, with "
            "solver='dsg', or 'pegasos' for kernels without random features, where it begins "
            "with fit."
        )
    cls = SOLVERS.get(solver) if isinstance(solver, str) else type(solver)
    if getattr(cls, "streams", True):
        return True
    raise AttributeError(
        f"solver {getattr(cls, 'name', solver)!r} needs all rows at once and has no "
        "partial_fit; use fit, or a solver for streams such as 'dsg', 'norma' or 'perceptron'."
    )


class BaseKernelEstimator(CallbackSupportMixin, BaseEstimator):  # type: ignore[misc]
    """Parameters, fitting and persistence of the kernel estimators."""

    # -- what a task gives -------------------------------------------------------------

    @abstractmethod
    def _prepare_targets(self, y: AnyArray, *, reset: bool) -> tuple[AnyArray, Loss]:
        """Learn classes or outputs from `y` if `reset`; return internal y and the loss."""

    @abstractmethod
    def _prepare_source(self, source: BatchSource) -> Loss:
        """Learn classes or outputs from a source; return the loss."""

    @abstractmethod
    def _encode(self, y: AnyArray, loss: Loss) -> FloatArray:
        """Return internal y as targets (n, C)."""

    @abstractmethod
    def _internal(self, y: AnyArray) -> AnyArray:
        """Return raw labels of a source's batch as internal y (class codes or floats)."""

    @abstractmethod
    def _class_factor(self, y: AnyArray) -> Float64Array | None:
        """Return the factor of each row's weight from class weights, or None."""

    @abstractmethod
    def _validation_score(self, loss: Loss) -> tuple[str, Any]:
        """Return the name and function (y internal, raw, weight) -> float of the score.

        None instead of a function stands for the negative mean loss.
        """

    @property
    @abstractmethod
    def _n_outputs(self) -> int:
        """Number of outputs C of the fitted task."""

    # -- fitting -----------------------------------------------------------------------

    _requires_y = True
    # what an estimator without the parameter of that name does
    early_stopping: bool = False
    fit_intercept: bool = False
    warm_start: bool = False

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
    def _auto_solver(self) -> bool:
        return isinstance(self.solver, str) and self.solver == "auto"

    def _make_solver(self, auto: Solver[Any] | None = None) -> Solver[Any]:
        """Return the solver that the parameters ask for, checked; `auto` is what "auto" is."""
        return get_solver(self.solver if auto is None else auto)

    def _select_solver(
        self, loss: Loss, sources: tuple[BatchSource, ...], *, stream: bool = False
    ) -> tuple[Solver[Any], str]:
        """Return the solver for these rows and the reason of the choice."""
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
        )
        return self._make_solver(chosen), reason

    def _check_parameters(self) -> None:
        check_int(self.max_iter, "max_iter", low=1)
        given = self.get_params(deep=False)
        for name in ("alpha", "tol"):
            if name in given and not (name == "alpha" and self._searches_alpha):
                if self._searches and isinstance(given[name], str):
                    check_name(given[name], ("auto",), f"rule for {name}")
                check_real(given[name], name, low=0)
        if "early_stopping" in given:
            check_int(self.n_iter_no_change, "n_iter_no_change", low=1)
            check_real(
                self.validation_fraction, "validation_fraction",
                low=0, high=1, low_open=True, high_open=True,
            )  # fmt: skip
        if self.memory_limit is not None:
            check_real(self.memory_limit, "memory_limit", low=0)
        if given.get("C") is not None:
            check_real(given["C"], "C", low=0, low_open=True)
            if self._searches_alpha:
                raise ValueError(
                    "C and alpha are two ways to say one thing; leave C out with alpha='auto'."
                )
        for name in ("early_stopping", "fit_intercept", "standardize", "warm_start"):
            if name in given:
                check_bool(given[name], name)
        self._make_kernel()
        self._make_solver()
        make_callbacks(self.callbacks, self.verbose)

    def _make_kernel(self) -> Kernel:
        """Return the kernel that the parameters ask for, checked."""
        if self._searches_gamma:
            return self._candidate(1.0)  # type: ignore[no-any-return]
        return get_kernel(self.kernel, gamma=self.gamma, bandwidth_factor=self.bandwidth_factor)

    def _check_continuation(self) -> None:
        """Raise if training cannot go on from here as the parameters now say."""
        if hasattr(self, "expansion_") and not hasattr(self, "_state"):
            raise ValueError(
                "This model was loaded without the solver's state and cannot be continued; "
                "save it with resumable=True, or fit a new estimator."
            )
        if not hasattr(self, "_state"):
            return
        if self._auto_solver and self.history_["solver_reason"] != GIVEN:
            return
        now = self._make_solver()
        if repr(now) != repr(self.solver_) or type(now) is not type(self.solver_):
            raise ValueError(
                f"solver changed from {self.solver_!r} to {now!r} in the middle of a fit; "
                "set it back, or fit a new estimator."
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

    def _adopt_source(self, source: BatchSource, *, reset: bool) -> None:
        if self._requires_y and not source.has_target:
            raise DataError(
                f"{type(source).__name__} has no target; name the target column to open it."
            )
        if source.n_rows == 0:
            raise DataError("The source has no rows.")
        if reset:
            self.n_features_in_ = source.n_features
            if source.feature_names is not None:
                self.feature_names_in_ = np.asarray(source.feature_names, dtype=object)
            elif hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        else:
            self._check_source_columns(source)
        self._internal_y = False

    def _check_source_columns(self, source: BatchSource) -> None:
        if source.n_features != self.n_features_in_:
            raise ValueError(
                f"The source has {source.n_features} features, but {type(self).__name__} is "
                f"expecting {self.n_features_in_} features as input."
            )
        mine = getattr(self, "feature_names_in_", None)
        if mine is None or source.feature_names is None:
            return
        for i, (a, b) in enumerate(zip(mine, source.feature_names, strict=True)):
            if a != b:
                raise ValueError(
                    f"Column {i} of the source is {b!r}, but the model was fitted with {a!r} "
                    "there; open the file with feature_names=model.feature_names_in_."
                )

    def _adopt_arrays(
        self, X: Any, y: Any, sample_weight: Any, *, reset: bool
    ) -> tuple[Matrix, AnyArray, Float64Array, Loss]:
        memmap = X if isinstance(X, np.memmap) else None
        checks = {"reset": reset, "accept_sparse": "csr", "dtype": "numeric"}
        if self._requires_y:
            numeric = self._y_numeric
            X, y = validate_data(self, X, y, multi_output=True, y_numeric=numeric, **checks)
        else:
            X = validate_data(self, X, **checks)
            y = np.zeros(X.shape[0])
        kernel = self._make_kernel()
        if not self.standardize:
            kernel.check_domain(X)
        if self._is_precomputed:
            self._check_matrix(X)
        self._internal_y = True
        y, loss = self._prepare_targets(y, reset=reset)
        weight = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
        factor = self._class_factor(y)
        weight = weight if factor is None else weight * factor
        if not np.isfinite(weight.sum()):
            raise ValueError(
                "The sum of the sample weights overflows; divide them by their mean."
            )
        if not weight.sum() > 0:
            raise ValueError("All sample weights are zero; at least one row must count.")
        return (X if memmap is None else memmap), y, weight, loss

    def _check_matrix(self, X: Matrix) -> None:
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

    _y_numeric = False

    def _new_seed(self) -> None:
        rng = check_random_state(self.random_state)
        self._seed = int(rng.randint(0, 2**31 - 1))

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or CSR matrix (n, d), memory map, DataFrame, or BatchSource
            A :class:`~kernelgrad.data.BatchSource` carries its own targets and weights and is
            read in chunks, never whole. Memory maps are read in pages.
        y : array-like (n,) or (n, n_outputs); None with a BatchSource
        sample_weight : array-like (n,) or None
            Non-negative; a weight of 2 is a row given twice, 0 is a row left out.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For parameters outside their domain, NaN or infinite values, wrong shapes, or a
            single class; before any work is done.
        """
        return self._fit_checked(X, y, sample_weight)

    def _fit_checked(self, X: Any, y: Any, sample_weight: Any) -> Self:
        self._check_parameters()
        if self.warm_start:
            self._check_continuation()
        before = dict(self.__dict__)
        try:
            self._fit(X, y, sample_weight)
        except BaseException:
            # a fit that fails leaves the estimator as it was
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        warm = bool(self.warm_start) and hasattr(self, "_state")
        if not warm:
            self._new_seed()
        state: State | None = self._state.copy() if warm else None
        history = copy.deepcopy(self.history_) if warm else None
        source: BatchSource
        if isinstance(X, BatchSource):
            if y is not None or sample_weight is not None:
                raise ValueError(
                    "A BatchSource carries its own y and weights; leave y and sample_weight "
                    "out."
                )
            if self._is_precomputed:
                raise ValueError(
                    "kernel='precomputed' takes the kernel matrix as an array, not a "
                    f"{type(X).__name__}."
                )
            self._adopt_source(X, reset=not warm)
            source = X
            loss = self._prepare_source(source) if not warm else self.loss_
            solver, reason = self._solver_of(loss, source, warm)
            stratify = None
        else:
            if y is None and self._requires_y:
                raise ValueError(
                    f"requires y to be passed, but the target y is None: give y to "
                    f"{type(self).__name__}.fit, or a BatchSource with a target."
                )
            X, y, weight, loss = self._adopt_arrays(X, y, sample_weight, reset=not warm)
            source = ArraySource(X, y, weight, checked=True)
            solver, reason = self._solver_of(loss, source, warm)
            limit = solver.resolve_batch_size(None)
            # maps stay on disk, and the columns of a kernel matrix stand for its rows
            if not (isinstance(X, np.memmap) or self._is_precomputed):
                X, y, weight = canonical_rows(X, y, weight, merge=X.shape[0] <= limit)
            source = ArraySource(X, y, weight, checked=True)
            stratify = y if self._stratified else None
        problem = self._problem(loss)
        check_capabilities(solver, loss, problem.kernel)

        held: IntArray | None = None
        validation: Validation | None = None
        if self.early_stopping:
            held = split_rows(
                source,
                self.validation_fraction,
                seed=self._seed,
                stratify=stratify,
                max_rows=MAX_VALIDATION_ROWS,
            )
            start = self.expansion_ if warm else None
            validation = self._validation(source, held, loss, start)
        n_train = source.n_rows - (0 if held is None else len(held))
        problem = self._with_cost(problem, source, held)
        solver.check_problem(problem)
        most, trials, spent = self.max_iter, None, time.perf_counter()
        if (self._searches_alpha or self._searches_gamma) and not warm:
            problem, blocks, trials = self._search(
                problem, solver, reason, source, held, stratify
            )
            if not self.early_stopping:
                most = min(most, blocks)
        spent = time.perf_counter() - spent
        size = solver.resolve_batch_size(n_train)
        start_at = 0 if state is None else state.iteration
        if n_train <= size:
            problem = replace(problem, fixed_rows=True)
            rows = np.setdiff1d(np.arange(source.n_rows), [] if held is None else held)
            batches = self._same_batch(self._all_rows(source, rows, loss), start_at)
        else:
            batches = self._train_batches(
                sample_batches(source, size, seed=self._seed, start=start_at, exclude=held),
                loss,
                True,
            )
        ctx = self._begin_sklearn_callbacks(X, y)
        self._finish(problem, solver, batches, most, state, validation, history, ctx)
        self._record_choice(solver, reason)
        if trials is not None:
            self.history_["search"] = trials
            self.history_["seconds"] = [t + spent for t in self.history_["seconds"]]
            if most < self.max_iter and self.n_iter_ == most:
                self.fit_status_ = "converged"  # as validation rows told
        self._calibrate(source)

    def _solver_of(
        self, loss: Loss, source: BatchSource, warm: bool
    ) -> tuple[Solver[Any], str]:
        """Return the solver of a fit and the reason; a warm start goes on with its own."""
        if warm:
            return self.solver_, self.history_["solver_reason"]
        return self._select_solver(loss, (source,))

    def _record_choice(self, solver: Solver[Any], reason: str) -> None:
        self.history_ |= {"solver": solver.name, "solver_reason": reason}

    def _search(
        self,
        problem: Problem,
        solver: Solver[Any],
        reason: str,
        source: BatchSource,
        held: IntArray | None,
        stratify: AnyArray | None,
    ) -> tuple[Problem, int, list[dict[str, Any]]]:
        """Return the problem with alpha and gamma found, blocks to take, and all trials."""
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

    def _all_rows(self, source: BatchSource, rows: IntArray, loss: Loss) -> TrainBatch:
        """Return some rows as one batch."""
        train = self._train_batch(source.take(rows), loss, True)
        if train is None:
            raise DataError(
                "All sample weights of a whole epoch are zero; at least one row must count."
            )
        return train

    @property
    def _is_precomputed(self) -> bool:
        return is_precomputed(self.kernel)

    def _with_cost(
        self, problem: Problem, source: BatchSource, held: IntArray | None
    ) -> Problem:
        """Return the problem with alpha from ``C``, where that is given."""
        C = getattr(self, "C", None)
        if C is None:
            return problem
        if self._internal_y and isinstance(source, ArraySource):
            weight = source.sample_weight
            total = float(weight.sum() - (0.0 if held is None else weight[held].sum()))
        elif getattr(self, "class_weight", None) is None and not source.has_weight:
            total = float(source.n_rows - (0 if held is None else len(held)))
        else:
            raise ValueError(
                "C needs the sum of all weights, which a source with weights or class weights "
                "does not tell before it is read; give alpha instead."
            )
        return replace(problem, alpha=1.0 / (float(C) * total))

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        self._check_parameters()
        self._check_continuation()
        before = dict(self.__dict__)
        try:
            self._take_steps(X, y, sample_weight)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _take_steps(self, X: Any, y: Any, sample_weight: Any) -> None:
        first = not hasattr(self, "_state")
        if first:
            self._new_seed()
        if getattr(self, "C", None) is not None:
            raise ValueError("C needs the number of all rows; give alpha for partial_fit.")
        for name, wanted in (("alpha", self._searches_alpha), ("gamma", self._searches_gamma)):
            if wanted and first:
                raise ValueError(
                    f"{name}='auto' needs all rows at once; give {name} as a number for "
                    "partial_fit, or use fit."
                )
        source: BatchSource
        if isinstance(X, BatchSource):
            if y is not None or sample_weight is not None:
                raise ValueError(
                    "A BatchSource carries its own y and weights; leave y and sample_weight "
                    "out."
                )
            self._adopt_source(X, reset=first)
            source = X
            loss = self._prepare_source(source) if first else self.loss_
        else:
            if y is None and self._requires_y:
                raise ValueError("requires y to be passed, but the target y is None")
            X, y, weight, loss = self._adopt_arrays(X, y, sample_weight, reset=first)
            source = ArraySource(X, y, weight, checked=True)
        if first:
            solver, reason = self._select_solver(loss, (source,), stream=True)
        else:
            solver, reason = self.solver_, self.history_["solver_reason"]
        problem = self._problem(loss)
        check_capabilities(solver, loss, problem.kernel)
        solver.check_problem(problem)
        size = solver.resolve_batch_size(None)
        epochs = 0.0 if first else self.history_["epoch"][-1]
        n = source.n_rows

        def pairs() -> Iterator[tuple[Batch, float]]:
            # epochs count the calls: a stream has no passes
            for batch in source.chunks(size):
                yield batch, epochs + (int(batch.rows[-1]) + 1) / n

        batches = (
            (train, epoch)
            for batch, epoch in pairs()
            if (train := self._train_batch(batch, loss)) is not None
        )
        state = None if first else self._state.copy()
        history = None if first else copy.deepcopy(self.history_)
        self._finish(problem, solver, batches, -(-n // size), state, None, history, None)
        self._record_choice(solver, reason)
        self._calibrate(source)

    def _calibrate(self, source: BatchSource) -> None:
        """Finish a fit with what depends on the fitted function, from the rows it saw."""

    def _train_batch(
        self, batch: Batch, loss: Loss, numbered: bool = False
    ) -> TrainBatch | None:
        targets = batch.y
        if targets is None:
            if self._requires_y:
                raise DataError("The source gave a batch without targets.")
            targets = np.zeros(batch.X.shape[0])
        X, y, weight, rows = self._usable_rows(batch, targets)
        if len(y) == 0:
            return None
        return TrainBatch(X, self._encode(y, loss), weight, rows if numbered else None)

    def _usable_rows(
        self, batch: Batch, y: AnyArray
    ) -> tuple[Matrix, AnyArray, Float64Array, IntArray]:
        """Return X, internal y, final weights and numbers of the rows of weight above 0."""
        weight = np.ones(len(y)) if batch.sample_weight is None else batch.sample_weight
        if not self._internal_y:
            y = self._internal(y)
            factor = self._class_factor(y)
            weight = weight if factor is None else weight * factor
        keep = np.flatnonzero(weight > 0)
        if len(keep) == len(y):
            return batch.X, y, np.asarray(weight, np.float64), batch.rows
        return batch.X[keep], y[keep], np.asarray(weight[keep], np.float64), batch.rows[keep]

    _internal_y = False  # set per fit: True when batches hold internal y already

    def _train_batches(
        self, sampled: Any, loss: Loss, numbered: bool = False
    ) -> Iterator[tuple[TrainBatch, float]]:
        useful = 0.0
        for item in sampled:
            train = self._train_batch(item.batch, loss, numbered)
            if train is not None:
                useful = item.fraction
                yield train, item.fraction
            elif item.fraction - useful >= 1.0:
                raise DataError(
                    "All sample weights of a whole epoch are zero; at least one row must count."
                )

    @staticmethod
    def _same_batch(train: TrainBatch, start: int) -> Iterator[tuple[TrainBatch, float]]:
        """Yield one batch with all rows for ever."""
        while True:
            start += 1
            yield train, float(start)

    def _validation(
        self, source: BatchSource, held: IntArray, loss: Loss, start: Any
    ) -> Validation:
        batch = source.take(held)
        if batch.y is None:
            raise DataError("The source gave validation rows without targets.")
        X, y, weight, _ = self._usable_rows(batch, batch.y)
        if len(y) == 0:
            raise DataError(
                "All validation rows have weight zero; raise validation_fraction or set "
                "early_stopping=False."
            )
        encoded = self._encode(y, loss)
        name, score = self._validation_score(loss)

        def mean_loss(raw: FloatArray) -> float:
            return float(np.average(loss.value(encoded, raw), weights=weight))

        return Validation(
            X=X,
            score=lambda raw: score(y, raw, weight) if score else -mean_loss(raw),
            loss=mean_loss,
            start=start,
            name=name,
            patience=self.n_iter_no_change,
            tol=self.tol,
        )

    def _finish(
        self,
        problem: Problem,
        solver: Solver[Any],
        batches: Iterator[tuple[TrainBatch, float]],
        max_iter: int,
        state: State | None,
        validation: Validation | None,
        history: dict[str, Any] | None,
        ctx: Any,
    ) -> None:
        result = run(
            solver,
            problem,
            batches,
            max_iter=max_iter,
            state=state,
            validation=validation,
            callbacks=make_callbacks(self.callbacks, self.verbose),
            on_iteration=None if ctx is None else SklearnCallbacks(self, ctx, solver),
            history=history,
        )
        result.state.release()
        self._state = result.state
        self.solver_ = solver
        self.loss_ = problem.loss
        self._fitted_alpha = problem.alpha
        if self._searches:
            self.alpha_ = problem.alpha
        result.expansion.compact()
        self._set_function(result.expansion)
        self.history_ = result.history
        self.n_iter_ = result.state.iteration
        self.best_iteration_ = result.best_iteration
        self.best_score_ = result.best_score
        self.fit_status_ = result.status

    def _set_function(self, expansion: Any) -> None:
        self.expansion_ = expansion
        self.intercept_ = expansion.intercept
        self.n_random_features_ = expansion.n_random_features
        self.n_support_ = expansion.n_support
        self.kernel_ = expansion.kernel

    def _begin_sklearn_callbacks(self, X: Any, y: Any) -> Any:
        if not hasattr(self, "_init_callback_context") or not getattr(
            self, "_skl_callbacks", None
        ):
            return None
        ctx = self._init_callback_context(max_subtasks=self.max_iter)
        return ctx.call_on_fit_task_begin(estimator=self, X=X, y=y)

    # -- prediction --------------------------------------------------------------------

    def _raw(self, X: Any) -> Float64Array:
        """Return f(X), shape (n, C), for arrays or a BatchSource."""
        check_is_fitted(self, "expansion_")
        if isinstance(X, BatchSource):
            self._check_source_columns(X)
            parts = [self.expansion_.raw_prediction(b.X) for b in X.chunks()]
            return np.concatenate(parts)
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype="numeric")
        return np.asarray(self.expansion_.raw_prediction(X))

    def _raw_chunks(self, source: BatchSource) -> Iterator[tuple[Batch, Float64Array]]:
        """Yield (batch, f) over a source with a target: nothing of its length is kept."""
        check_is_fitted(self, "expansion_")
        if not source.has_target:
            raise DataError("The source has no target to score against.")
        self._check_source_columns(source)
        for batch in source.chunks():
            yield batch, self.expansion_.raw_prediction(batch.X)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "expansion_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self._is_precomputed
        return tags

    # -- files -------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, resumable: bool = False) -> None:
        """Write the fitted model to one file, atomically and without pickle.

        Parameters
        ----------
        path : str or path-like
        resumable : bool, default=False
            Also write the solver's state, so that ``partial_fit`` and ``warm_start`` go on
            exactly where they were (up to three times the size).

        Raises
        ------
        NotFittedError
            Before fit.
        TypeError
            When a parameter is an object that cannot be written (its name is given).
        """
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"This {type(self).__name__} is not fitted; call fit before save."
            )
        _files.save_estimator(self, path, resumable=resumable)

    def _extra_arrays(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Return what a model file must hold besides the function, as values and arrays."""
        return {}, {}

    def _restore_extra(self, values: dict[str, Any], arrays: dict[str, AnyArray]) -> None:
        """Take back what :meth:`_extra_arrays` gave."""

    def model_info(self) -> dict[str, Any]:
        """Return a summary of the fitted model with plain JSON values."""
        check_is_fitted(self, "expansion_")
        e: Expansion = self.expansion_
        info: dict[str, Any] = {
            "estimator": type(self).__name__,
            "loss": self.loss_.name,
            "loss_params": self.loss_.get_params(),
            "kernel": self.kernel_.name,
            "kernel_params": kernel_summary(self.kernel_),
            "solver": self.solver_.name,
            "solver_reason": self.history_["solver_reason"],
            "alpha": self._fitted_alpha,
            "n_features_in": int(self.n_features_in_),
            "feature_names": (
                [str(c) for c in self.feature_names_in_]
                if hasattr(self, "feature_names_in_")
                else None
            ),
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
        return info
