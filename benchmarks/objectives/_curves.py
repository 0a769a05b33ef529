"""What ``time_to_error`` measures, one case a process.

``python -m benchmarks.objectives._curves CASE`` with a case as JSON prints one JSON object a
line. `spawn` starts such a process and kills it when the next line takes too long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import benchmarks.datasets
import benchmarks.solvers
from benchmarks.registry import Budget, Data, Dataset, Solver, discover
from kernelgrad import set_num_threads
from kernelgrad.kernels import get_kernel

ROOT = Path(__file__).parents[2]
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
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a candidate that does not converge may lose
            model.fit(X, y)
        seconds = time.perf_counter() - start
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
            start = time.perf_counter()
            model.fit(self.X, self.y)
            seconds = time.perf_counter() - start
        stopped = any("onverge" in str(w.message) for w in caught)
        notes = ["not converged"] if stopped else []
        if self.cut:
            notes.append(f"{len(self.y):,} of {len(self.data.y_train):,} rows")
        return model, {"fit s": seconds, "notes": "; ".join(notes)}

    def test(self, model: Any) -> Line:
        """Return the seconds of all predictions and the test error, in the target's units."""
        start = time.perf_counter()
        predicted = predict(model, self.data.X_test)
        seconds = time.perf_counter() - start
        e = error(self.dataset, self.data.y_test, predicted)
        return {"predict s": seconds, "test": e * self.data.y_scale}


def main(case: Case) -> Iterator[Line]:
    """Run one case: candidates on validation rows, one fit, or fits of growing length."""
    set_num_threads(case["threads"])
    dataset = DATASETS[case["dataset"]]
    data = dataset.load()
    load = {"load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None}
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


def spawn(case: Case, limit: float) -> tuple[list[Line], str]:
    """Return what a process of its own reports on `case`, and what ended it early.

    A line may take `limit` seconds; the first, after loading and compiling, `START_SECONDS`
    more.
    """
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[name] = str(case["threads"])
    late = threading.Event()
    lines: list[Line] = []
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.objectives._curves", json.dumps(case)],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(limit + START_SECONDS, stop)
        timer.start()
        assert process.stdout is not None
        try:
            for text in process.stdout:
                if not text.startswith("{"):
                    continue
                timer.cancel()
                lines.append(json.loads(text))
                timer = threading.Timer(limit, stop)
                timer.start()
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    if late.is_set():
        return lines, f"> {limit:g} s"
    return lines, f"exit status {process.returncode}" if process.returncode else ""


if __name__ == "__main__":
    for found in main(json.loads(sys.argv[1])):
        print(json.dumps(found), flush=True)
