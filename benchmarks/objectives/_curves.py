"""What ``time_to_error`` measures, one case a process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import benchmarks.datasets
from benchmarks.environment import load_average
from benchmarks.objectives._shared import serve, timed
from benchmarks.registry import Data, Dataset, discover
from benchmarks.solvers.methods import METHODS, Setting
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


def choose_rows(n: int, most: int | None, seed: int) -> Any:
    """Return at most `most` of n rows, in random order."""
    return np.random.default_rng(seed).permutation(n)[:most]


def bandwidths(X: Any) -> dict[float, float]:
    """Return gamma for every bandwidth factor, by kernelgrad's own median rule."""
    return {
        f: get_kernel("rbf", gamma="median", bandwidth_factor=f).resolve(X, 0).gamma_value
        for f in FACTORS
    }


def some_rows(X: Any, rows: Any) -> Any:
    """Return some rows of an array, a sparse matrix or a frame."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def in_chunks(predict: Callable[[Any], Any], X: Any) -> Any:
    """Predict some rows at a time, the same for all methods."""
    starts = range(0, X.shape[0], PREDICT_ROWS)
    return np.concatenate([predict(some_rows(X, slice(a, a + PREDICT_ROWS))) for a in starts])


def error(classify: bool, y: Any, predicted: Any) -> float:
    """Return the error rate, or the root mean squared error."""
    if classify:
        return float(np.mean(predicted != y))
    return float(np.sqrt(np.mean((np.asarray(predicted, float).ravel() - y) ** 2)))


def first_rows(y: Any, classify: bool) -> Any:
    """Return rows to compile on: random ones, and some of every class."""
    rows = choose_rows(len(y), WARM_ROWS, seed=0)
    if not classify:
        return rows
    return np.unique(
        np.concatenate([rows, *(np.flatnonzero(y == c)[:10] for c in np.unique(y))])
    )


def split(n: int, most: int) -> tuple[Any, Any]:
    """Return training and validation rows for tuning: two thirds and one of at most `most`."""
    rows = choose_rows(n, most, seed=0)
    cut = 2 * len(rows) // 3
    return rows[:cut], rows[cut:]


def validate(data: Data, case: Case) -> Iterator[Line]:
    """Yield gamma and the validation error of each candidate; test rows are never read."""
    classify = DATASETS[case["dataset"]].task == "classification"
    train, held = split(len(data.y_train), case["rows"])
    X, y = data.X_train[train], data.y_train[train]
    widest = bandwidths(X)[1.0]
    for params in case["candidates"]:
        gamma = widest / params.get("bandwidth_factor", 1.0) ** 2
        setting = Setting(classify, params, gamma, 0, TUNING_ITER, case["n_components"], len(y))
        model = METHODS[case["method"]].build(setting)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a candidate that does not converge may lose
            seconds, _ = timed(model.fit, X, y)
        e = error(classify, data.y_train[held], in_chunks(model.predict, data.X_train[held]))
        yield {
            "gamma": gamma, "error": e * data.y_scale, "seconds": seconds, "rows": len(y),
            "validation rows": len(held),
        }  # fmt: skip


class Fits:
    """Fits of one method on one data set with given settings."""

    def __init__(self, data: Data, case: Case) -> None:
        self.data, self.case, self.method = data, case, METHODS[case["method"]]
        self.classify = DATASETS[case["dataset"]].task == "classification"
        total = len(data.y_train)
        limits = (self.method.row_limit(case["dataset"]), case["rows"], total)
        most = min(m for m in limits if m is not None)
        self.X, self.y, self.cut = data.X_train, data.y_train, most < total
        if self.cut:
            rows = choose_rows(total, most, case["seed"])
            self.X, self.y = self.X[rows], self.y[rows]

    def build(self, max_iter: int, rows: int, n_components: int) -> Any:
        case = self.case
        return self.method.build(
            Setting(
                self.classify, case["params"], case["gamma"], case["seed"], max_iter,
                n_components, rows,
            )
        )  # fmt: skip

    def warm_up(self) -> None:
        """Compile, load libraries and start threads on a few rows of the same problem."""
        few = first_rows(self.y, self.classify)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = self.build(2, len(few), WARM_FEATURES).fit(self.X[few], self.y[few])
            model.predict(self.X[few])

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
        seconds, predicted = timed(in_chunks, model.predict, self.data.X_test)
        e = error(self.classify, self.data.y_test, predicted)
        return {"predict s": seconds, "test": e * self.data.y_scale}


def main(case: Case) -> Iterator[Line]:
    set_num_threads(case["threads"])
    data = DATASETS[case["dataset"]].load()
    load = {"load": (load_average() or [None])[0]}
    if case["kind"] == "tune":
        yield load
        yield from validate(data, case)
        return
    fits = Fits(data, case)
    fits.warm_up()
    yield load
    spent = 0.0
    for steps in case["steps"]:
        model, line = fits.fit(steps)
        yield line
        yield fits.test(model)
        spent += line["fit s"]
        if spent > case["limit"] or (fits.method.curve and model.n_iter_ < steps):
            return


if __name__ == "__main__":
    serve(main)
