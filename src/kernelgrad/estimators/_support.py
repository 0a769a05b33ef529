"""Helpers of the estimators: scikit-learn's callbacks, and rows in a canonical order."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad._typing import AnyArray, Float64Array, Matrix
from kernelgrad.callbacks import FitEvent
from kernelgrad.solvers import Solver, State

try:  # scikit-learn >= 1.9
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing to support before scikit-learn 1.9."""

    def with_callbacks(method: Any) -> Any:
        """Return the method unchanged."""
        return method


# Above this many cells, exact duplicates of sparse rows are not looked for.
_MERGE_CELLS = 10_000_000


class SklearnCallbacks:
    """Reports iterations to scikit-learn's callbacks (1.9 and later)."""

    def __init__(self, estimator: Any, ctx: Any, solver: Solver[Any]) -> None:
        self._estimator = estimator
        self._ctx = ctx
        self._solver = solver

    def __call__(self, event: FitEvent, state: State) -> bool:
        estimator = self._estimator

        def attributes() -> dict[str, Any]:
            expansion = self._solver.expansion(state).copy()
            fitted: dict[str, Any] = estimator._function_attributes(expansion)
            fitted |= {"n_iter_": event.iteration, "n_features_in_": estimator.n_features_in_}
            for name in ("classes_", "feature_names_in_", "n_outputs_", "_y_ndim", "loss_"):
                if hasattr(estimator, name):
                    fitted[name] = getattr(estimator, name)
            return fitted

        sub = self._ctx.subcontext(task_name="iteration")
        sub.call_on_fit_task_begin(estimator=estimator)
        return bool(
            sub.call_on_fit_task_end(estimator=estimator, reconstruction_attributes=attributes)
        )


def canonical_rows(
    X: Matrix, y: AnyArray, weight: Float64Array, *, merge: bool
) -> tuple[Matrix, AnyArray, Float64Array]:
    """Drop rows of weight zero; with `merge`, sort rows and merge exact duplicates.

    When all rows fit into one batch their order carries no information, so a canonical
    order makes "weight 2" and "given twice" the same computation, bit for bit.
    """
    keep = weight > 0
    if not keep.all():
        X, y, weight = X[np.flatnonzero(keep)], y[keep], weight[keep]
    if not merge:
        return X, y, weight
    if sp.issparse(X):
        if X.shape[0] * X.shape[1] > _MERGE_CELLS:
            return X, y, weight
        dense = X.toarray()
    else:
        dense = np.asarray(X)
    columns = [dense.astype(np.float64), y.reshape(len(y), -1).astype(np.float64)]
    table = np.ascontiguousarray(np.concatenate(columns, axis=1)) + 0.0  # -0.0 becomes 0.0
    rows = table.view(np.dtype((np.void, table.itemsize * table.shape[1]))).ravel()
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    total: Float64Array = np.bincount(inverse.ravel(), weights=weight).astype(np.float64)
    return X[first], y[first], total


__all__ = ["CallbackSupportMixin", "SklearnCallbacks", "canonical_rows", "with_callbacks"]
