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
from kernelgrad._validation import DataError, check_bool, check_int, check_real
from kernelgrad.callbacks import make_callbacks
from kernelgrad.data import ArraySource, Batch, BatchSource, sample_batches, split_rows
from kernelgrad.estimators import _files
from kernelgrad.estimators._search import GIVEN
from kernelgrad.estimators._support import (
    CallbackSupportMixin,
    SklearnCallbacks,
    canonical_rows,
    with_callbacks,
)
from kernelgrad.functions.expansions import Expansion
from kernelgrad.losses import Loss
from kernelgrad.solvers import (
    Problem,
    Solver,
    State,
    TrainBatch,
    Validation,
    check_capabilities,
    run,
)

MAX_VALIDATION_ROWS = 20_000  # validation responses stay in memory, whatever the file size


def can_stream(estimator: Any) -> bool:
    """Return True, or raise AttributeError where the solver needs all rows at once."""
    estimator._check_streams()
    return True


class BaseRowsEstimator(CallbackSupportMixin, BaseEstimator):  # type: ignore[misc]
    """Fitting, prediction and files of estimators that run a solver over rows.

    A task (``_tasks.py``) says what targets are, a family (``kernel.py``, ``linear.py``) what
    functions are and which solvers find them.
    """

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

    # -- what a family of functions gives ----------------------------------------------

    @abstractmethod
    def _make_solver(self, auto: Solver[Any] | None = None) -> Solver[Any]:
        """Return the solver that the parameters ask for, checked; `auto` is what "auto" is."""

    @abstractmethod
    def _select_solver(
        self, loss: Loss, sources: tuple[BatchSource, ...], *, stream: bool = False
    ) -> tuple[Solver[Any], str]:
        """Return the solver for these rows and the reason of the choice."""

    @abstractmethod
    def _problem(self, loss: Loss) -> Problem:
        """Return the problem that the parameters ask for."""

    @abstractmethod
    def _check_streams(self) -> None:
        """Raise AttributeError if the solver needs all rows at once."""

    def _check_rows(self, X: Matrix) -> None:
        """Raise if the rows of an array, already checked as numbers, are not for this model."""

    def _check_source(self, source: BatchSource) -> None:
        """Raise if `source` cannot be fitted, before it is read."""

    def _check_stream_start(self) -> None:
        """Raise if a stream cannot begin with these parameters."""

    @property
    def _orders_rows(self) -> bool:
        """Whether rows may be sorted and equal ones merged: only their values count."""
        return True

    def _model_loss(self, loss: Loss) -> Loss:
        """Return the loss of predictions, given that of the problem."""
        return loss

    def _batch_size(self, solver: Solver[Any], source: BatchSource, n_train: int) -> int:
        """Return the rows of a batch of fit."""
        return solver.resolve_batch_size(n_train)

    def _tune(
        self,
        problem: Problem,
        solver: Solver[Any],
        reason: str,
        source: BatchSource,
        held: IntArray | None,
        stratify: AnyArray | None,
    ) -> tuple[Problem, int, list[dict[str, Any]]] | None:
        """Return the problem with parameters found, iterations to take, and all trials."""
        return None

    def _function_attributes(self, expansion: Any) -> dict[str, Any]:
        """Return the fitted attributes that say what the function is."""
        return {"expansion_": expansion, "intercept_": expansion.intercept}

    def _function_info(self) -> dict[str, Any]:
        """Return what :meth:`model_info` tells of the family."""
        return {}

    # -- fitting -----------------------------------------------------------------------

    _stratified = False
    _requires_y = True
    # what an estimator without the parameter of that name does
    early_stopping: bool = False
    fit_intercept: bool = False
    warm_start: bool = False

    @property
    def _auto_solver(self) -> bool:
        return isinstance(self.solver, str) and self.solver == "auto"

    def _check_parameters(self) -> None:
        check_int(self.max_iter, "max_iter", low=1)
        given = self.get_params(deep=False)
        if "alpha" in given:
            self._check_alpha()
        if "tol" in given:
            check_real(self.tol, "tol", low=0)
        if "n_iter_no_change" in given:
            check_int(self.n_iter_no_change, "n_iter_no_change", low=1)
            check_real(
                self.validation_fraction, "validation_fraction",
                low=0, high=1, low_open=True, high_open=True,
            )  # fmt: skip
        if self.memory_limit is not None:
            check_real(self.memory_limit, "memory_limit", low=0)
        if given.get("C") is not None:
            check_real(given["C"], "C", low=0, low_open=True)
        for name in ("early_stopping", "fit_intercept", "warm_start"):
            if name in given:
                check_bool(given[name], name)
        self._check_family()
        self._make_solver()
        make_callbacks(self.callbacks, self.verbose)

    def _check_alpha(self) -> None:
        check_real(self.alpha, "alpha", low=0)

    @abstractmethod
    def _check_family(self) -> None:
        """Raise if a parameter of the family is outside its domain."""

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
        self._check_rows(X)
        self._internal_y = True
        y, loss = self._prepare_targets(y, reset=reset)
        weight = self._checked_weights(sample_weight, X, y)
        return (X if memmap is None else memmap), y, weight, loss

    def _checked_weights(self, sample_weight: Any, X: Matrix, y: AnyArray) -> Float64Array:
        """Return weights times those of the classes; at least one row must count."""
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
        return np.asarray(weight, np.float64)

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
            self._check_source(X)
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
            if self._orders_rows and not isinstance(X, np.memmap):  # maps stay on disk
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
        problem = self._with_cost(problem, source, held)
        solver.check_problem(problem)
        if held is not None:
            start = self.expansion_ if warm else None
            validation = self._validation(source, held, loss, start)
        n_train = source.n_rows - (0 if held is None else len(held))
        most, trials, spent = self.max_iter, None, time.perf_counter()
        if not warm:
            tuned = self._tune(problem, solver, reason, source, held, stratify)
            if tuned is not None:
                problem, blocks, trials = tuned
                most = most if self.early_stopping else min(most, blocks)
        spent = time.perf_counter() - spent
        size = self._batch_size(solver, source, n_train)
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

    def _all_rows(self, source: BatchSource, rows: IntArray, loss: Loss) -> TrainBatch:
        """Return some rows as one batch."""
        train = self._train_batch(source.take(rows), loss, True)
        if train is None:
            raise DataError(
                "All sample weights of a whole epoch are zero; at least one row must count."
            )
        return train

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

    def _stream_cost(self, problem: Problem, source: BatchSource) -> Problem:
        """Return the problem of further rows of a stream."""
        if getattr(self, "C", None) is not None:
            raise ValueError("C needs the number of all rows; give alpha for partial_fit.")
        return problem

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
        if first:
            self._check_stream_start()
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
        problem = self._stream_cost(self._problem(loss), source)
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
        self.loss_ = self._model_loss(
            problem.loss
        )  # now: scikit-learn's callbacks use the model on the way
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
        self._fitted_alpha = problem.alpha
        result.expansion.compact()
        self._set_function(result.expansion)
        self.history_ = result.history
        self.n_iter_ = result.state.iteration
        self.best_iteration_ = result.best_iteration
        self.best_score_ = result.best_score
        self.fit_status_ = result.status

    def _set_function(self, expansion: Any) -> None:
        for name, value in self._function_attributes(expansion).items():
            setattr(self, name, value)

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
            **self._function_info(),
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
