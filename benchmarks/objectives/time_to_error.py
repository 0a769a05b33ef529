"""Seconds and test error of kernelgrad and of scikit-learn's kernel methods."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import numpy as np

import benchmarks.datasets
import benchmarks.solvers
from benchmarks.registry import (
    Budget,
    Data,
    Dataset,
    Objective,
    Row,
    SkipError,
    Solver,
    discover,
)
from kernelgrad.kernels import get_kernel

FACTORS = [0.25, 0.5, 1.0]
TUNING_ROWS, TUNING_ITER = 10_000, 12
PREDICT_ROWS = 16_384  # peers' feature matrices would not fit in memory for all rows at once
DATASETS: dict[str, Dataset] = discover(benchmarks.datasets, Dataset)
SOLVERS: dict[str, Solver] = discover(benchmarks.solvers, Solver)


def choose_rows(n: int, most: int | None, seed: int) -> Any:
    """Return at most `most` of n rows, in random order."""
    return np.random.default_rng(seed).permutation(n)[:most]


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


def bandwidths(X: Any) -> dict[float, float]:
    """Return gamma for every bandwidth factor, by kernelgrad's own median rule."""
    return {
        f: get_kernel("rbf", gamma="median", bandwidth_factor=f).resolve(X, 0).gamma_value
        for f in FACTORS
    }


class Competitor:
    """One solver on one data set: tuned once, then fitted once per repeat."""

    def __init__(self, solver: Solver, dataset: Dataset, data: Data, budget: Budget) -> None:
        self.solver, self.dataset, self.data, self.budget = solver, dataset, data, budget
        limits = (solver.row_limit(dataset), budget.max_rows)
        self.limit = min((m for m in limits if m is not None), default=None)
        self.fit_seconds: list[float] = []
        self.predict_seconds: list[float] = []
        self.errors: list[float] = []
        self.unconverged = 0

    def tune(self, gammas: dict[float, float], rows: Any, *, n_candidates: int | None) -> None:
        """Choose hyper-parameters on the last fifth of `rows`; fit on the others."""
        start = time.perf_counter()
        self.gammas = gammas
        cut = len(rows) - len(rows) // 5
        X, y = self.data.X_train, self.data.y_train
        budget = Budget(min(TUNING_ITER, self.budget.max_iter), self.budget.n_components)
        best = np.inf
        for params in self.solver.grid(self.dataset, FACTORS)[:n_candidates]:
            model = self._build(params, budget, seed=0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a candidate that does not converge may lose
                model.fit(X[rows[:cut]], y[rows[:cut]])
            e = error(self.dataset, y[rows[cut:]], predict(model, X[rows[cut:]]))
            if e < best:
                best, self.params = e, params
        self.tuning_seconds = time.perf_counter() - start

    def _build(self, params: dict[str, float], budget: Budget, seed: int) -> Any:
        gamma = self.gammas[params["bandwidth_factor"]]
        return self.solver.build(self.dataset, params, gamma, budget, seed)

    def measure(self, seed: int) -> None:
        """Fit and predict once."""
        X, y = self.data.X_train, self.data.y_train
        if self.limit is not None and self.limit < len(y):
            rows = choose_rows(len(y), self.limit, seed)
            X, y = X[rows], y[rows]
        model = self._build(self.params, self.budget, seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            start = time.perf_counter()
            model.fit(X, y)
            self.fit_seconds.append(time.perf_counter() - start)
        self.unconverged += any("onverge" in str(w.message) for w in caught)
        start = time.perf_counter()
        predicted = predict(model, self.data.X_test)
        self.predict_seconds.append(time.perf_counter() - start)
        e = error(self.dataset, self.data.y_test, predicted)
        self.errors.append(e * self.data.y_scale)
        self.rows = len(y)

    def result(self) -> Row:
        """Return medians over the repeats."""
        total = len(self.data.y_train)
        notes = []
        if self.rows < total:
            notes.append(f"{self.rows:,} of {total:,} rows")
        if self.unconverged:
            notes.append(f"{self.unconverged} of {len(self.errors)} fits not converged")
        regression = self.dataset.task == "regression"
        return {
            "dataset": self.dataset.name,
            "solver": self.solver.name,
            "fit s": median(self.fit_seconds),
            "predict s": median(self.predict_seconds),
            "measure": "RMSE" if regression else "error",
            "test": median(self.errors),
            "min": min(self.errors),
            "max": max(self.errors),
            "tuning s": self.tuning_seconds,
            "parameters": self.params,
            "notes": "; ".join(notes),
        }


class TimeToError(Objective):
    """Fit seconds, predict seconds and test error, with tuned hyper-parameters.

    All estimators are tuned on the same rows (a fifth of at most 10,000 training rows
    validates) and over the same bandwidths, then fitted on all rows they can bear. Targets
    of regression are standardised for all and errors are given in their own units.
    """

    name: ClassVar[str] = "time_to_error"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add data sets, solvers and sizes."""
        default = [name for name, dataset in DATASETS.items() if dataset.default]
        parser.add_argument("--dataset", nargs="+", choices=list(DATASETS), default=default)
        parser.add_argument("--solver", nargs="+", choices=list(SOLVERS), default=list(SOLVERS))
        parser.add_argument("--max-iter", type=int, default=40, help="kernelgrad's steps")
        parser.add_argument("--components", type=int, default=2000, help="peers' features")

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Tune all solvers on a data set, then take them in turn in every repeat."""
        budget = Budget(args.max_iter, args.components)
        if args.quick:
            budget = Budget(max_iter=3, n_components=50, max_rows=500)
        skipped = []
        for name in args.dataset:
            dataset = DATASETS[name]
            try:
                data = dataset.load()
            except SkipError as reason:
                print(f"{name} skipped: {reason}", flush=True)
                skipped.append(name)
                continue
            rows = choose_rows(len(data.y_train), 500 if args.quick else TUNING_ROWS, seed=0)
            gammas = bandwidths(data.X_train[rows[: len(rows) - len(rows) // 5]])
            competitors = [Competitor(SOLVERS[s], dataset, data, budget) for s in args.solver]
            for competitor in competitors:
                competitor.tune(gammas, rows, n_candidates=2 if args.quick else None)
            for seed in range(args.repeat):
                for competitor in competitors:
                    competitor.measure(seed)
            for competitor in competitors:
                yield "time to error", competitor.result()
        if len(skipped) == len(args.dataset):
            raise SkipError("none of the data sets is here")

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw error against fit time, one panel for each data set."""
        from matplotlib import pyplot as plt
        from matplotlib.ticker import NullFormatter

        rows = tables["time to error"]
        names = list(dict.fromkeys(row["dataset"] for row in rows))
        solvers = list(dict.fromkeys(row["solver"] for row in rows))
        figure, axes = plt.subplots(
            1, len(names), figsize=(3 * len(names), 3), squeeze=False, layout="constrained"
        )
        for ax, name in zip(axes[0], names, strict=True):
            for row in rows:
                if row["dataset"] == name:
                    i = solvers.index(row["solver"])
                    label = row["solver"] + (" *" if "rows" in row["notes"] else "")
                    ax.plot(row["fit s"], row["test"], f"C{i}o", label=label)
                    ax.set_ylabel(row["measure"])
            seconds = [row["fit s"] for row in rows if row["dataset"] == name]
            ax.set_xscale("log")
            ax.set_xlim(
                10 ** np.floor(np.log10(min(seconds))), 10 ** np.ceil(np.log10(max(seconds)))
            )
            ax.xaxis.set_minor_formatter(NullFormatter())
            ax.set_xlabel("fit seconds")
            ax.set_title(name, fontsize=9)
            ax.legend(fontsize=6)
        figure.savefig(path, dpi=150)
        plt.close(figure)
        return True
