"""What estimators of targets add: the penalty, and rows that are held out or scored."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np

from kernelgrad._params import anything, boolean, integer, parameters, real
from kernelgrad._validation import check_real
from kernelgrad.data import ArraySource, BatchSource
from kernelgrad.estimators._plan import Choice, Given, Parts, Plan, Reading
from kernelgrad.estimators._rows import MAX_VALIDATION_ROWS, TrainingRows
from kernelgrad.estimators._support import checked_weights, with_callbacks
from kernelgrad.estimators._tasks import Task
from kernelgrad.estimators.base import BaseRowsEstimator


@parameters
class BaseSupervisedEstimator(BaseRowsEstimator):
    """Held-out rows, the cost C and warm starts of classifiers and regressors."""

    alpha: Any = anything(default=1e-6)
    C: float | None = real(default=None, low=0, low_open=True, words=(None,))
    tol: float = real(default=1e-4, low=0)
    early_stopping: bool = boolean(default=False)
    validation_fraction: float = real(default=0.1, low=0, high=1, low_open=True, high_open=True)
    n_iter_no_change: int = integer(default=10, low=1)
    fit_intercept: bool = boolean(default=True)
    warm_start: bool = boolean(default=False)

    _tells_alpha = True

    def _check_parameters(self) -> Parts:
        self._check_alpha()
        default = type(self).__dataclass_fields__["alpha"].default
        given = type(self.alpha) is not type(default) or self.alpha != default
        if self.C is not None and given:
            raise ValueError(
                f"C={self.C!r} and alpha={self.alpha!r} are two ways to say one thing; leave "
                "one of them out."
            )
        return super()._check_parameters()

    def _check_alpha(self) -> None:
        check_real(self.alpha, "alpha", low=0)

    @abstractmethod
    def _given_alpha(self) -> float:
        """Return the weight of the penalty where C is None."""

    def _alpha_for(self, rows: TrainingRows, *, stream: bool = False) -> float:
        if self.C is None:
            return self._given_alpha()
        if stream:
            raise ValueError("C needs the number of all rows; give alpha for partial_fit.")
        total = rows.total_weight
        if total is None:
            raise ValueError(
                "C needs the sum of all weights, which a source with weights or class weights "
                "does not tell before it is read; give alpha instead."
            )
        return 1.0 / (float(self.C) * total)

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
            Of a classifier at least two classes.
        sample_weight : array-like (n,) or None
            Non-negative; a weight of 2 is a row given twice, 0 is a row left out.
        X_val, y_val, sample_weight_val : as X, y and sample_weight, or None
            Rows for validation, which are not fitted: each iteration is scored on them, in
            ``history_["validation_score"]``. With ``early_stopping=True`` they replace
            `validation_fraction` and decide when to stop and which iterate to keep; otherwise
            they do not change the model. A source contributes up to 20,000 random rows.
        """
        apart = Given(X_val, y_val, sample_weight_val)
        if X_val is None and not (y_val is None and sample_weight_val is None):
            raise ValueError("y_val or sample_weight_val is given, but not X_val; give it too.")
        more = {} if X_val is None else {"apart": apart}
        return self._fit_checked(X, y, sample_weight, **more)

    def _all_rows(
        self, parts: Parts, given: Given, *, fresh: bool, apart: Given | None = None
    ) -> TrainingRows:
        rows = super()._all_rows(parts, given, fresh=fresh)
        if apart is None:
            return rows
        try:
            return replace(rows, apart=self._rows_apart(parts, rows.task, apart))
        except (TypeError, ValueError) as error:
            raise type(error)(f"The rows for validation, X_val and y_val: {error}") from error

    def _rows_apart(self, parts: Parts, task: Task, given: Given) -> TrainingRows:
        """Return rows for validation in memory."""
        X, y, weight = self._lazy(*given)
        source = isinstance(X, BatchSource)
        if source:
            self._check_source(X)
            self._adopt_source(X, fresh=False)
            X, y, weight, _ = X.take(
                TrainingRows(X, task).sample(
                    MAX_VALIDATION_ROWS, np.random.default_rng(self._seed)
                )
            )
        elif y is None:
            raise ValueError("y_val is None; give the targets of X_val.")
        options: dict[str, Any] = {"multi_output": True, "y_numeric": self._y_numeric}
        X, y = self._coded(X, y, Reading(False, source=source), **options)
        y = task.internal(self._check_targets(y))
        weight = checked_weights(weight, X, task.class_factor(y))
        X = self._encode_rows(X, fresh=False)
        if self._takes_tables:  # values of a kernel need not be square here
            self._check_rows(parts, X)
        return TrainingRows(ArraySource(X, y, weight, checked=True), task, encoded=True)

    def _plan(self, parts: Parts, rows: TrainingRows, chosen: Choice, *, warm: bool) -> Plan:
        stops = self.early_stopping
        if stops and rows.apart is None:
            rows = rows.hold_out(self.validation_fraction, self._seed)
        plan = super()._plan(parts, rows, chosen, warm=warm)
        if not stops and rows.apart is None:
            return plan
        validation = rows.validation(
            self.n_iter_no_change,
            self.tol,
            start=self.expansion_ if warm and stops else None,
            early_stopping=stops,
        )
        return replace(plan, validation=validation)
