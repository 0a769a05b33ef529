"""What estimators say of their errors on new rows: quality, intervals and sets."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernelgrad import intervals
from kernelgrad.estimators.support import by_blocks
from kernelgrad.families.reading import Data, Run
from kernelgrad.model import Fit, joined
from kernelgrad.quality import Judges, Quality, without_classes
from kernelgrad.tasks import Classification
from kernelgrad.training_rows import TrainingRows
from kernelgrad.types import AnyArray, Float64Array
from kernelgrad.validation import CapabilityError


class QualityMixin:
    """Estimators of targets that new rows have."""

    if TYPE_CHECKING:
        _fitted: ClassVar[Fit]
        _model: ClassVar[Any]
        _spec: ClassVar[Any]

    @property
    def validation_score_(self) -> Quality | None:
        """How well the model does on new rows, as a value that prints itself; or None.

        It comes from rows given by `X_val` or to `calibrate_coverage`, or held out by early
        stopping; after exact fits of up to 5,000 rows from all rows, each predicted without
        itself; else from rows that the search or the calibration held out, which functions of
        fewer rows predicted. ``history_["judges"]`` says which, or that there are none. It is
        computed when it is first read (docs/quality.md).
        """
        check_is_fitted(self, "expansion_")
        return self._fitted.quality

    @property
    def loo_predictions_(self) -> AnyArray:
        """Prediction of each training row by the function that all others give.

        (n,) or (n, n_outputs), for classes probabilities (n, n_classes). Kernel and penalty
        stay as they are. Equal rows count as one. NaN for rows of weight 0.
        """
        check_is_fitted(self, "expansion_")
        done = self._fitted
        if done.left_out is None:
            raise AttributeError(
                "loo_predictions_ need an exact fit of all rows, by solver='direct' or "
                f"'newton' and of up to 5,000 rows; this is one of {done.choice.solver.name!r}."
            )
        values, order, task = done.left_out.values, done.left_out.order, done.model.task
        if not isinstance(task, Classification):
            values = task.predict(np.asarray(values, np.float64))
        if order is None:
            return values
        gaps = (order < 0).reshape((-1,) + (1,) * (values.ndim - 1))
        return np.where(gaps, np.nan, values[order])

    def calibrate_coverage(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Take rows that were not fitted for intervals, sets and `validation_score_`.

        The arguments are those of `fit`. Returns the estimator itself.
        """
        model, reader, done = self._model, self._spec().reader, self._fitted
        task, data = model.task, Data(X, y, sample_weight)
        like = TrainingRows(None, task, inputs=model.inputs)  # type: ignore[arg-type]
        rows = reader.read_validation(data, like, Run(), done.choice.seed)
        X, y, weight, _ = rows.usable(rows.source.read(0, rows.source.n_rows))
        values = model.outcome(model.values(X))
        judges = Judges(values, y, weight, "rows of calibrate_coverage", is_final=True)
        new = replace(done, judges=without_classes(judges, task))
        vars(new)["left_out"] = done.left_out  # files have no more of it
        self._fitted = new  # type: ignore[misc]
        return self

    def _unseen(self) -> Judges:
        check_is_fitted(self, "expansion_")
        if self._fitted.unseen is None:
            raise CapabilityError(
                "No rows were held out from this fit, so that nothing tells its errors on new "
                "ones; give some that were not fitted to calibrate_coverage(X, y)."
            )
        return self._fitted.unseen


class IntervalsMixin(QualityMixin):
    def predict_interval(self, X: Any, coverage: float = 0.9) -> Float64Array:
        """Return bounds that hold the targets of a share of new rows, by conformal prediction.

        Residuals of the rows of `validation_score_` are divided by their mean near the same
        prediction, so that intervals are wider where errors were larger. The quantile of these,
        with the correction for finitely many rows, times that mean, is the half width
        (docs/quality.md). Several quantiles have their outermost ones moved.

        Parameters
        ----------
        X : as in predict
        coverage : float in (0, 1), default=0.9
            Share of new rows like those of the fit, not of rows at any one place.

        Returns
        -------
        float64 array (n, 2), or (n, 2, n_outputs)
            Lower and upper bounds.

        Raises
        ------
        CapabilityError
            No rows were held out; give some to `calibrate_coverage`.
        """
        self._unseen()
        return by_blocks(partial(self._bounds, coverage), X)  # type: ignore[no-any-return]

    def _bounds(self, coverage: float, X: Any) -> Float64Array:
        done, model = self._fitted, self._model
        bounds = partial(intervals.predicted, done.intervals, model.task, coverage=coverage)
        return joined(bounds(raw) for raw in model.responses(X))


class SetsMixin(QualityMixin):
    def predict_set(self, X: Any, coverage: float = 0.9) -> AnyArray:
        """Return a set of classes for each row that holds the class of a share of new rows.

        It has the classes whose probability is at least that of the own class of all but a
        share of the rows of `validation_score_`, and always the predicted class.

        Parameters
        ----------
        X : as in predict
        coverage : float in (0, 1), default=0.9

        Returns
        -------
        bool array (n, n_classes)

        Raises
        ------
        CapabilityError
            No rows were held out; give some to `calibrate_coverage`.
        """
        return by_blocks(partial(self._sets, coverage), X)  # type: ignore[no-any-return]

    def _sets(self, coverage: float, X: Any) -> AnyArray:
        judges, model = self._unseen(), self._model
        return joined(
            intervals.likely(judges, model.outcome(raw), coverage) for raw in model.responses(X)
        )
