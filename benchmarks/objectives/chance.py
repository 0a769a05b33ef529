"""Does chance matter: seeds, precision, order of rows, threads and a constant column."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

import kernelgrad as kg
from benchmarks.objectives._tables_case import CLASSES, index, load
from benchmarks.registry import Objective, Row, SkipError

SMALL = 2_000  # rows of a table
ALLOWED = 1 / 3  # standard errors of the test score
LEAST = 1e-3  # standard error of a log loss: tables that are solved have smaller ones


def losses(classify: bool, data: Any, X: Any, y: Any, X_test: Any, seed: int) -> Any:
    """Return the log losses or squared errors of the test rows by a default fit."""
    cls = kg.KernelClassifier if classify else kg.KernelRegressor
    model = cls(random_state=seed).fit(X, y)
    if not classify:
        return (data.y_test - model.predict(X_test)) ** 2
    p = model.predict_proba(X_test)[np.arange(len(X_test)), data.y_test]
    return -np.log(np.clip(p, 1e-15, None))


def single(X: Any) -> Any:
    return X.astype(dict.fromkeys(X.select_dtypes("float64"), "float32"))


class Chance(Objective):
    """Default fits of small tables that differ by what should not matter.

    The deviation of the test score between seeds, and its change by rows in float32, permuted
    rows, one thread and a constant column, are in standard errors of the score. The check fails
    where one of them is above a third.
    """

    name: ClassVar[str] = "chance"
    repeat: ClassVar[int] = 10

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--dataset", nargs="+", metavar="NAME")

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        warnings.simplefilter("ignore")
        small = {k: v for k, v in index().items() if v["rows"] <= SMALL}
        names = args.dataset or sorted(small, key=lambda k: small[k]["rows"])
        if not names:
            raise SkipError("there are no tables")
        for name in names[:1] if args.quick else names:
            row = self.measured(name, 2 if args.quick else args.repeat)
            self.status = max(self.status, int(not (row["holds"] or args.quick)))
            yield "chance", row

    def measured(self, name: str, seeds: int) -> Row:
        """Return the changes of the score of one table, in its standard errors."""
        data, classify = load(name, 0, SMALL), index()[name]["task"] in CLASSES
        X, y, T = data.X_train, data.y_train, data.X_test
        every = [losses(classify, data, X, y, T, seed) for seed in range(seeds)]
        error = float(np.mean([np.std(each) for each in every])) / np.sqrt(len(T))
        error = max(error, LEAST) if classify else error
        mixed = np.random.default_rng(0).permutation(len(y))
        others = {
            "float32": (single(X), y, single(T)),
            "order": (X.iloc[mixed].reset_index(drop=True), y[mixed], T),
            "constant": (X.assign(constant=1.0), y, T.assign(constant=1.0)),
        }
        changes = {k: losses(classify, data, *v, 0) for k, v in others.items()}
        kg.set_num_threads(1)
        changes["one thread"] = losses(classify, data, X, y, T, 0)
        kg.set_num_threads(None)
        row: Row = {"dataset": name, "rows": len(y), "score": float(every[0].mean())}
        row["standard error"] = error
        row["seeds"] = float(np.std([each.mean() for each in every], ddof=1)) / error
        row |= {k: abs(float((v - every[0]).mean())) / error for k, v in changes.items()}
        return row | {"holds": all(row[k] <= ALLOWED for k in ("seeds", *changes))}
