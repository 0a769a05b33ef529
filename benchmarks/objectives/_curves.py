"""What ``time_to_error`` measures, one case a process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import benchmarks.datasets
import benchmarks.solvers
from benchmarks.environment import load_average
from benchmarks.objectives._shared import serve, timed
from benchmarks.registry import Budget, Data, Dataset, Solver, discover
from kernelgrad import set_num_threads
from kernelgrad.kernels import get_kernel

Case = dict[str, Any]
Line = dict[str, Any]

FACTORS = [0.25, 0.5, 1.0]
PREDICT_ROWS = 16_384  # peers' feature matrices would not fit in memory for all rows at once
WARM_ROWS, WARM_FEATURES = 400, 20
START_SECONDS = 120  # to load, compile and warm up
TUNING_ITER = 16
DATASETS: dict[str, Dataset] = discover(benchmarks.datasets, Dataset)
SOLVERS: dict[str, Solver] = discover(benchmarks.solvers, Solver)


def choose_rows(n: int, most: int | None, seed: int) -> Any:
    """Return at most `most` of n rows, in random order."""
    return np.random.default_rng(seed).permutation(n)[:most]


def bandwidths(X: Any) -> dict[float, float]:
    """Return gamma for every bandwidth factor, by kernelgrad's own median rule."""
    return {
        f: get_kernel("rbf", gamma="median", bandwidth_factor=f).resolve(X, 0).gamma_value
        for f in FACTORS
    }


def predict(model: Any, X: Any) -> Any:
    """Predict in chunks, the same for all estimators."""
    n = X.shape[0]
    parts = [model.predict(X[a : a + PREDICT_ROWS]) for a in range(0, n, PREDICT_ROWS)]
    return np.concatenate(parts)


def error(dataset: Dataset, y: Any, predicted: Any) -> float:
    """Return the error rate, or the root mean squared error."""
    if dataset.task == "classification":
        return float(np.mean(predicted != y))
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


def split(n: int, most: int) -> tuple[Any, Any]:
    """Return training and validation rows for tuning: two thirds and one of at most `most`."""
    rows = choose_rows(n, most, seed=0)
    cut = 2 * len(rows) // 3
    return rows[:cut], rows[cut:]


def validate(
    solver: Solver,
    dataset: Dataset,
    data: Data,
    candidates: Sequence[Case],
    most: int,
    n_components: int,
) -> Iterator[Line]:
    """Yield gamma and the validation error of each candidate; test rows are never read."""
    train, held = split(len(data.y_train), most)
    X, y = data.X_train[train], data.y_train[train]
    budget = Budget(TUNING_ITER, n_components, len(y))
    widest = bandwidths(X)[1.0]
    for params in candidates:
        gamma = widest / params.get("bandwidth_factor", 1.0) ** 2
        model = solver.build(dataset, params, gamma, budget, seed=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a candidate that does not converge may lose
            seconds, _ = timed(model.fit, X, y)
        predicted = predict(model, data.X_train[held])
        e = error(dataset, data.y_train[held], predicted)
        yield {
            "gamma": gamma, "error": e * data.y_scale, "seconds": seconds, "rows": len(y),
            "validation rows": len(held),
        }  # fmt: skip


class Fits:
    """Fits of one method on one data set with given settings."""

    def __init__(self, dataset: Dataset, data: Data, case: Case) -> None:
        self.solver, self.dataset, self.data, self.case = (
            SOLVERS[case["method"]], dataset, data, case,
        )  # fmt: skip
        total = len(data.y_train)
        limits = (self.solver.row_limit(dataset), case["rows"])
        most = min((m for m in limits if m is not None), default=None)
        self.X, self.y = data.X_train, data.y_train
        self.cut = most is not None and most < total
        if self.cut:
            rows = choose_rows(total, most, case["seed"])
            self.X, self.y = self.X[rows], self.y[rows]

    def build(self, max_iter: int, rows: int, n_components: int) -> Any:
        """Return the estimator for a number of rows."""
        budget = Budget(max_iter, n_components, rows)
        return self.solver.build(
            self.dataset, self.case["params"], self.case["gamma"], budget, self.case["seed"]
        )

    def warm_up(self) -> None:
        """Compile, load libraries and start threads on a few rows of the same problem."""
        few = choose_rows(len(self.y), WARM_ROWS, seed=0)
        if self.dataset.task == "classification":
            classes = np.unique(self.y)
            first = [np.flatnonzero(self.y == c)[:10] for c in classes]
            few = np.unique(np.concatenate([few, *first]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.build(2, len(few), WARM_FEATURES).fit(self.X[few], self.y[few]).predict(
                self.X[few]
            )

    def fit(self, max_iter: int) -> tuple[Any, Line]:
        """Return a fitted model, and the seconds that it took."""
        model = self.build(max_iter, len(self.y), self.case["n_components"])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            seconds, _ = timed(model.fit, self.X, self.y)
        stopped = any("onverge" in str(w.message) for w in caught)
        notes = ["not converged"] if stopped else []
        if self.cut:
            notes.append(f"{len(self.y):,} of {len(self.data.y_train):,} rows")
        return model, {"fit s": seconds, "notes": "; ".join(notes)}

    def test(self, model: Any) -> Line:
        """Return the seconds of all predictions and the test error, in the target's units."""
        seconds, predicted = timed(predict, model, self.data.X_test)
        e = error(self.dataset, self.data.y_test, predicted)
        return {"predict s": seconds, "test": e * self.data.y_scale}


def main(case: Case) -> Iterator[Line]:
    """Run one case: candidates on validation rows, one fit, or fits of growing length."""
    set_num_threads(case["threads"])
    dataset = DATASETS[case["dataset"]]
    data = dataset.load()
    load = {"load": (load_average() or [None])[0]}
    if case["kind"] == "tune":
        yield load
        yield from validate(
            SOLVERS[case["method"]], dataset, data, case["candidates"], case["rows"],
            case["n_components"],
        )  # fmt: skip
        return
    fits = Fits(dataset, data, case)
    fits.warm_up()
    yield load
    spent = 0.0
    for steps in case["steps"]:
        model, line = fits.fit(steps)
        yield line
        yield fits.test(model)
        spent += line["fit s"]
        if spent > case["limit"] or (fits.solver.curve and model.n_iter_ < steps):
            return


if __name__ == "__main__":
    serve(main)
