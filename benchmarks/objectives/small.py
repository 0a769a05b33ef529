"""Seconds and test error of fits of hundreds to some thousand rows, beside peers."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any, ClassVar

from sklearn.svm import SVC, SVR

from benchmarks.objectives._curves import DATASETS, choose_rows, error, in_chunks
from benchmarks.objectives._shared import available, in_turns
from benchmarks.registry import Data, Dataset, Objective, Row
from kernelgrad import KernelClassifier, KernelRegressor

BUNDLED = ["iris", "wine", "breast_cancer", "digits", "diabetes", "noisy"]
LARGE = ["a9a", "ijcnn1", "cod_rna", "mnist", "covtype20k", "protein"]
SIZES = [300, 1_000, 2_000, 4_000, 8_000, 16_000]
TEST_ROWS = 4_000
C = 1.0  # the default of SVC and SVR, as is the tube of 0.1
PEER = "SVC/SVR"
Make = Callable[[], Any]


def methods(dataset: Dataset, gamma: float) -> dict[str, Make]:
    """Return what makes the estimators of the task, peers only where they are installed."""
    first = dataset.task == "classification"

    def of(module: str, *names: str) -> Any:
        return getattr(import_module(module), names[0 if first else 1])

    ours: Any = KernelClassifier if first else KernelRegressor
    loss = {"loss": "hinge"} if first else {"loss": "epsilon_insensitive"}
    machine = {"C": C, "gamma": gamma}
    found: dict[str, Make] = {
        "default": partial(ours, random_state=0),
        "hinge": partial(ours, **loss, **machine, random_state=0),
        PEER: partial(SVC if first else SVR, **machine),
    }
    if find_spec("sklearnex"):
        found["intelex"] = partial(of("sklearnex.svm", "SVC", "SVR"), **machine)
    if find_spec("lightgbm"):
        trees = of("lightgbm", "LGBMClassifier", "LGBMRegressor")
        found["LightGBM"] = partial(trees, verbosity=-1, random_state=0)
    return found


def scale(X: Any) -> float:
    """Return scikit-learn's ``gamma="scale"``, one over the columns times the variance."""
    square = X.multiply(X) if hasattr(X, "multiply") else X * X
    return float(1 / (X.shape[1] * (square.mean() - X.mean() ** 2)))


class Small(Objective):
    """Fit seconds and test error of defaults and of one machine at SVC's C and gamma.

    ``default`` is the estimator as it comes, ``hinge`` has the loss, C = 1 and
    ``gamma="scale"`` of SVC (in regression the tube of SVR, 0.1). All fits are of this process
    and take turns; one before them compiles and is not measured, so that seconds are those of
    a notebook. A method whose fit took longer than the limit is left out of larger sizes.
    Ratios are seconds over those of SVC or SVR. Test errors are of at most 4,000 rows.
    """

    name: ClassVar[str] = "small"
    repeat: ClassVar[int] = 5

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--dataset", nargs="+", default=BUNDLED + LARGE)
        parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
        parser.add_argument("--limit", type=float, default=20.0, help="seconds of a fit")

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        names = ["iris", "diabetes"] if args.quick else args.dataset
        for name, data in available(names, lambda name: DATASETS[name].load()):
            n = len(data.y_train)
            sizes = [n] if name in BUNDLED else [size for size in args.sizes if size <= n]
            slow: set[str] = set()
            for size in sizes:
                yield "fits", self._measure(DATASETS[name], data, size, args, slow)

    @staticmethod
    def _measure(
        dataset: Dataset, data: Data, size: int, args: argparse.Namespace, slow: set[str]
    ) -> Row:
        rows = choose_rows(len(data.y_train), size, seed=0)
        test = choose_rows(len(data.y_test), TEST_ROWS, seed=0)
        X, y = data.X_train[rows], data.y_train[rows]
        models: dict[str, Any] = {}

        def fit(name: str, make: Make) -> None:
            models[name] = make().fit(X, y)

        calls: dict[Any, Callable[[], Any]] = {
            name: partial(fit, name, make)
            for name, make in methods(dataset, scale(X)).items()
            if name not in slow
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds = {k: median(v) for k, v in in_turns(calls, args.repeat).items()}
        slow |= {name for name, taken in seconds.items() if taken > args.limit}
        row: Row = {"dataset": dataset.name, "rows": size, "columns": X.shape[1]}
        row |= {f"{name} s": taken for name, taken in seconds.items()}
        for name, model in models.items():
            predicted = in_chunks(model.predict, data.X_test[test])
            e = error(dataset.task == "classification", data.y_test[test], predicted)
            row[f"{name} error"] = e * data.y_scale
        if PEER in seconds:
            row |= {f"{k} / {PEER}": v / seconds[PEER] for k, v in seconds.items() if k != PEER}
        return row
