"""Metamorphic relations: how a change of rows, targets or weights must change a model."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier, is_regressor
from sklearn.utils.validation import has_fit_parameter

from kernelgrad.functions.scaling import UNITS
from kernelgrad.testing.estimator import (
    _MANY_ROWS,
    _NO_LABEL,
    _ROWS,
    _make_rows,
    _outputs,
    _require_close,
    _require_same,
    _require_same_bits,
    _Rows,
)
from kernelgrad.testing.parameters import require
from kernelgrad.types import AnyArray

_OUTLIER = 1e8
_WORSE = 0.3  # of a score: what few iterations on rows in another order may cost
_CLOSE = 1e-3  # of the largest output: what tolerances of solvers leave


def check_relations(estimator: Any, *, random_state: int = 0) -> None:
    """Check metamorphic relations between fits of an estimator.

    The right model of given rows is unknown, but it is known how the model must change when the
    rows change in certain ways. Each relation holds for some of the estimators:

    Same bits
        for the same rows in float32 and float64; for weights times 4; for a stream cut into
        other chunks of whole batches.
    Same values up to rounding
        for shifted targets and, with the squared loss, targets times 4. If the fit has
        converged and nothing was searched for, also for class names in reverse order; for
        shifted columns, with a stationary kernel; for multiplied columns, if columns are
        scaled; and for reordered columns and an additional constant one, if the function is an
        expansion in kernel values. Other fits then draw their rows in another order.
    A similar score
        in the latter cases, and with one entry of the rows set to 1e8, for any kernel of
        differences.

    Parameters and errors are those of :func:`~kernelgrad.testing.check_estimator_contract`.
    """
    estimator = clone(estimator).set_params(random_state=random_state)
    rows = _make_rows(estimator, _ROWS, random_state)
    model = rows.fit(estimator)
    for check in (
        _check_precision, _check_weights, _check_stream, _check_classes, _check_targets,
        _check_columns, _check_outlier,
    ):  # fmt: skip
        check(estimator, model, rows)


def _is_exact(model: Any) -> bool:
    """Return whether the function is a kernel expansion or linear."""
    return getattr(model, "n_random_features_", 1) == 0 or hasattr(model, "coef_")


def _require_twin(model: Any, rows: _Rows, twin: Any, new: _Rows, what: str) -> None:
    """Raise unless values agree, or scores if the fit depends on the order of rows."""
    expected, found = _outputs(model, rows.new), _outputs(twin, new.new)
    told = getattr(model, "history_", {"search": None})
    # those for rows without labels have several minima
    settled = "search" not in told and model.fit_status_ == "converged"
    if settled and not model.solver_.marks:
        expected.pop("predict_proba", None)  # calibrated on rows in another order
        _require_close(model, expected, found, what, _CLOSE)
    elif is_classifier(model) or is_regressor(model):
        right, other = _score(model, rows), _score(twin, new)
        require(other >= right - _WORSE, model, f"{what}: score {other:.3g} of {right:.3g}.")


def _score(model: Any, rows: _Rows) -> float:
    """Return the score on the training rows with a label."""
    known = np.flatnonzero(rows.y != _NO_LABEL) if is_classifier(model) else slice(None)
    return float(model.score(rows.X[known], rows.y[known]))


def _changed(rows: _Rows, change: Any) -> _Rows:
    return replace(rows, X=change(rows.X), new=change(rows.new))


def _check_precision(estimator: Any, model: Any, rows: _Rows) -> None:
    single = _changed(rows, lambda X: X.astype(np.float32))
    double = _changed(single, lambda X: X.astype(np.float64))
    wide, narrow = double.fit(estimator), single.fit(estimator)
    # linear functions are fitted to rows in their own precision
    require_equal = _require_close if hasattr(model, "coef_") else _require_same_bits
    require_equal(model, _outputs(wide, double.new), _outputs(narrow, double.new), "float32")


def _check_weights(estimator: Any, model: Any, rows: _Rows) -> None:
    # C is per weight, and weights tell the noise of a Gaussian process
    plain = getattr(estimator, "C", None) is None and not hasattr(estimator, "noise_variance")
    if has_fit_parameter(estimator, "sample_weight") and plain:
        four = replace(rows, weight=4 * rows.weight)
        _require_same(model, four.fit(estimator), rows, "weights times 4")


def _check_stream(estimator: Any, model: Any, rows: _Rows) -> None:
    if not hasattr(estimator, "partial_fit") or getattr(estimator, "C", None) is not None:
        return
    many = _make_rows(estimator, _MANY_ROWS, 0)
    whole, parts = clone(estimator), clone(estimator)
    more = {"classes": np.unique(many.y)} if is_classifier(estimator) else {}
    if _NO_LABEL in many.y:
        return
    size = whole.partial_fit(many.X, many.y, **more).solver_.resolve_batch_size(None)
    cuts = [*range(0, len(many.y), 2 * size), len(many.y)]
    for a, b in pairwise(cuts):
        parts.partial_fit(many.X[a:b], many.y[a:b], **more)
    _require_same(whole, parts, many, "a stream in other pieces")


def _check_classes(estimator: Any, model: Any, rows: _Rows) -> None:
    if not is_classifier(estimator):
        return
    last = int(rows.y.max())
    back = replace(rows, y=np.where(rows.y == _NO_LABEL, _NO_LABEL, last - rows.y))
    _require_twin(model, rows, _Reversed(back.fit(estimator)), back, "classes in reverse order")


class _Reversed(ClassifierMixin, BaseEstimator):
    """A classifier with two or three classes whose names are in reverse order."""

    def __init__(self, model: Any) -> None:
        self._model, self.score = model, model.score

    def predict(self, X: AnyArray) -> AnyArray:
        """Return the original names."""
        return np.asarray(self._model.classes_[-1] - self._model.predict(X))

    def decision_function(self, X: AnyArray) -> AnyArray:
        """Return scores in the original order."""
        f = np.asarray(self._model.decision_function(X))
        return f[:, ::-1] if f.ndim == 2 else -f


def _check_targets(estimator: Any, model: Any, rows: _Rows) -> None:
    if not is_regressor(estimator):
        return
    expected = {"predict": model.predict(rows.new)}
    if getattr(estimator, "loss", "squared") == "squared":
        found = replace(rows, y=4.0 * rows.y).fit(estimator).predict(rows.new) / 4.0
        _require_close(model, expected, {"predict": found}, "targets times 4")
    found = replace(rows, y=rows.y + 8.0).fit(estimator).predict(rows.new) - 8.0
    _require_close(model, expected, {"predict": found}, "targets plus 8")


def _check_columns(estimator: Any, model: Any, rows: _Rows) -> None:
    kernel = getattr(model, "kernel_", None)
    if kernel is not None and not kernel.is_stationary:
        return

    def check(change: Any, what: str) -> None:
        twin = _changed(rows, change)
        _require_twin(model, rows, twin.fit(estimator), twin, what)

    if kernel is not None:
        check(lambda X: X + 4.0, "columns plus 4")
    if getattr(estimator, "_standardize", False) not in (False, UNITS):
        check(lambda X: X * [2.0, 0.25, 1.0, 64.0] - 3.0, "columns in other units")
    if _is_exact(model):
        check(lambda X: X[:, ::-1].copy(), "columns in reverse order")
    if _is_exact(model) and kernel is not None:
        check(lambda X: np.column_stack([X, np.full(len(X), 2.0)]), "a constant column")


def _check_outlier(estimator: Any, model: Any, rows: _Rows) -> None:
    kernel = getattr(model, "kernel_", None)
    scored = is_classifier(estimator) or is_regressor(estimator)
    if kernel is None or not (kernel.is_stationary and scored):
        return
    X = rows.X.copy()
    X[int(np.argmax(rows.weight)), 0] = _OUTLIER
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        twin = replace(rows, X=X).fit(estimator)
    others = rows.take(np.flatnonzero(X[:, 0] < _OUTLIER))
    right, found = _score(model, others), _score(twin, others)
    good = found >= right - _WORSE or told
    require(good, model, f"one cell of 1e8: score {found:.3g} of {right:.3g}, no warning.")
