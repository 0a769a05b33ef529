"""What ``anytime`` measures: one fit in a process of its own, seconds, memory and error."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import kernelgrad as kg
from benchmarks.objectives._scale_files import ten_columns
from benchmarks.objectives._shared import lowered_peak, peak, serve
from benchmarks.registry import Row

COLUMNS, TEST_ROWS = 10, 5_000
REGRESSORS: dict[str, dict[str, Any]] = {
    "regressor": {}, "quantile": {"loss": "quantile"}, "absolute": {"loss": "absolute"},
    "huber": {"loss": "huber"}, "poisson": {"loss": "poisson"},
}  # fmt: skip
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "classifier": {}, "squared": {"loss": "squared"}, "log loss": {"loss": "log_loss"},
    "hinge": {"loss": "hinge"}, "ten classes": {},
}  # fmt: skip
NAMES = [*REGRESSORS, *CLASSIFIERS, "process", "novelty"]


def rows(n: int, noise: float, seed: int) -> tuple[Any, Any, Any]:
    """Return columns, the function of ten columns, and its values with noise."""
    rng = np.random.default_rng([seed, n])
    X = rng.standard_normal((COLUMNS, n), np.float32)
    f = ten_columns(X).astype(np.float64)
    return np.ascontiguousarray(X.T), f, f + noise * rng.standard_normal(n)


def estimator(name: str, **options: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return an estimator and what makes its targets of the values with noise."""
    options |= {"random_state": 0}
    if name in CLASSIFIERS:
        cuts = np.array([0.0]) if name != "ten classes" else np.linspace(-2, 2, 9)
        model: Any = kg.KernelClassifier(**CLASSIFIERS[name], **options)
        return model, lambda y: np.searchsorted(cuts, y)
    if name == "process":
        return kg.KernelGaussianProcessRegressor(**options), lambda y: y
    if name == "novelty":
        return kg.KernelNoveltyDetector(**options), lambda y: None
    model = kg.KernelRegressor(**REGRESSORS[name], **options)
    return model, (lambda y: np.round(np.exp(0.5 * y))) if name == "poisson" else lambda y: y


def main(case: Row) -> Iterator[Row]:
    X, _, y = rows(case["rows"], case["noise"], 0)
    Z, f, z = rows(TEST_ROWS, case["noise"], 1)
    limit = case["time_limit"]
    few = np.arange(min(300, len(X)))
    model, target = estimator(case["estimator"], max_iter=3)
    model.fit(X[few], target(y[few]))  # imports libraries
    model, target = estimator(case["estimator"], time_limit=limit)
    base, start, cpu = lowered_peak(), time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, target(y))
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    history = model.history_
    out = (
        model.decision_function(Z) if hasattr(model, "decision_function") else model.predict(Z)
    )
    row = {"seconds": seconds, "cpu": cpu, "MB": peak() - base}
    row |= {
        "solver": history.get("solver"),
        "n_iter": model.n_iter_,
        "status": model.fit_status_,
    }
    row["constant"] = bool(np.ptp(np.asarray(out, np.float64), axis=0).max() == 0)
    if case["estimator"] in ("regressor", "process"):
        row["rmse"] = float(np.sqrt(np.mean((model.predict(Z) - f) ** 2)))
    elif case["estimator"] in CLASSIFIERS:
        row["error"] = float(np.mean(model.predict(Z) != target(z)))
    row["reason"] = history.get("solver_reason")
    row["predicted"] = history.get("solver_costs")
    row["warned"] = [str(w.message)[:200] for w in caught]
    yield row


if __name__ == "__main__":
    serve(main)
