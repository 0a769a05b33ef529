"""Problems of support vector machines, and fast predictions of LIBSVM's machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.objectives._curves import DATASETS, choose_rows
from sklearn.metrics.pairwise import rbf_kernel


@dataclass
class Problem:
    """Training and test rows with two classes."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any


def load(name: str, rows: int | None = None, test_rows: int | None = None) -> Problem:
    """Return random rows, the same for every call; "mnist8" has eights against the rest."""
    base = name.removesuffix("8")
    data = DATASETS[base].load()
    train = choose_rows(len(data.y_train), rows, seed=0)
    test = choose_rows(len(data.y_test), test_rows, seed=0)
    y, y_test = data.y_train[train], data.y_test[test]
    if name != base:
        y, y_test = (np.where(v == 8, 1, -1) for v in (y, y_test))
    return Problem(data.X_train[train], y, data.X_test[test], y_test)


def geometric(first: float, last: float, factor: float = 2.0) -> list[int]:
    """Return distinct growing integers from `first` to `last`, which is always the last."""
    values, value = [], float(first)
    while value < last:
        values.append(max(1, round(value)))
        value *= factor
    return list(dict.fromkeys([*values, max(1, round(last))]))


def percent(y: Any, predicted: Any) -> float:
    """Return the share of wrong labels in percent."""
    return 100 * float(np.mean(predicted != y))


def predict_libsvm(model: Any, X: Any, chunk: int = 2048) -> Any:
    """Return ``model.predict(X)`` of a Gaussian SVC of two classes, many rows at a time.

    LIBSVM itself takes one row at a time, longer than many of its fits.
    """
    parts = (X[a : a + chunk] for a in range(0, X.shape[0], chunk))
    dual = model.dual_coef_
    dual = np.ravel(dual.toarray() if sp.issparse(dual) else dual)
    f = [rbf_kernel(A, model.support_vectors_, model._gamma) @ dual for A in parts]
    return model.classes_[(np.concatenate(f) + model.intercept_[0] >= 0).astype(int)]
