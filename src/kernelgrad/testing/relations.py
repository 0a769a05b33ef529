"""Relations between fits: what a change of rows, targets or weights must do to a model."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier, is_regressor
from sklearn.utils.validation import has_fit_parameter

from kernelgrad._typing import AnyArray
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

_OUTLIER = 1e8
_WORSE = 0.3  # of a score: what few iterations on rows in another order may cost
_CLOSE = 1e-3  # of the largest output: what tolerances of solvers leave


def check_relations(estimator: Any, *, random_state: int = 0) -> None:
    """Check what related fits of an estimator have to do with each other.

    No oracle knows the right model of any rows, but it is known what must become of a model
    when its rows change. Some relations hold for some estimators:

    Same bits
        for rows in float32 that float64 holds too; for weights times 4; for a stream that comes
        in other pieces, of whole batches.
    Same values up to rounding
        for targets that are shifted, or, with the squared loss, times 4; and, where the fit
        has converged and nothing was searched for, for names of classes in reverse order, for
        columns that are shifted, of a stationary kernel, or also multiplied, where columns are
        scaled; for columns in another order and with one more, a constant, where the function
        is one of kernel values. Other fits draw their rows in another order then.
    As good a model
        in those cases, and for one cell of 1e8 in the rows, with any kernel of differences.

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
    """Whether the function is a sum of kernel values, or linear."""
    return getattr(model, "n_random_features_", 1) == 0 or hasattr(model, "coef_")


def _require_twin(model: Any, rows: _Rows, twin: Any, new: _Rows, what: str) -> None:
    """Raise unless values are equal, of fits that no order of rows changes, or as good."""
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
    """A classifier of three classes or two whose names are in reverse order."""

    def __init__(self, model: Any) -> None:
        self._model, self.score = model, model.score

    def predict(self, X: AnyArray) -> AnyArray:
        """Return the first names."""
        return np.asarray(self._model.classes_[-1] - self._model.predict(X))

    def decision_function(self, X: AnyArray) -> AnyArray:
        """Return scores in the first order."""
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
    if getattr(estimator, "_standardize", False):
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
