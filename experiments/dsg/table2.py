"""Table 2: total computation and memory."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any, ClassVar

import numpy as np
from benchmarks.objectives._shared import draw, picture, where
from sklearn.pipeline import Pipeline

from experiments.base import Cell, Claim, Experiment, Row, Rows, by_seed, medians
from experiments.dsg._synthetic import numbers, processor_seconds
from kernelgrad import DSG, KernelRegressor
from kernelgrad.estimators import competitor
from kernelgrad.solvers import NORMA, SDCA

OURS, FULL = "doubly SGD", ("NORMA", "k-sdca")
RANDOM, NYSTROEM = (
    tuple(f"{features}-{solver}" for solver in ("sdca", "pegasos", "sbmd", "rbcd"))
    for features in "rn"
)
METHODS = (OURS, *FULL, *RANDOM, *NYSTROEM)
COLUMNS, SIZE, TOLERANCE = (16, 64), 64, 0.25


def make(name: str, n: int, d: int, seed: int) -> Any:
    """Return the estimator for one pass over n rows, with n features where it has them."""
    preset = DSG.paper(
        nu=1 / n, offset=n, sigma=np.sqrt(d), batch_size=SIZE, block_size=SIZE
    ) | {"max_iter": max(1, n // SIZE), "random_state": seed}
    if name == OURS:
        return KernelRegressor("squared", **preset)
    if name in FULL:
        solver, steps = (NORMA(), 20) if name == "NORMA" else (SDCA(tol=0.0), 1)
        return KernelRegressor("squared", **preset | {"solver": solver, "max_iter": steps})
    return competitor(
        name, gamma=1 / (2 * d), loss="squared", task="regression", n_features=n, alpha=1 / n,
        max_iter=1, random_state=seed,
    )  # fmt: skip


def _slope(rows: list[Row], x: str, y: str, **which: Any) -> float:
    """Return the slope of log y over log x."""
    points = np.log([(row[x], row[y]) for row in where(rows, **which)])
    return float(np.polyfit(*points.T, 1)[0])


def _largest(rows: list[Row], y: str, names: tuple[str, ...]) -> list[float]:
    """Return by seed the largest power of n among the methods."""
    return by_seed(
        rows, lambda mine: max(_slope(mine, "n", y, method=m, d=COLUMNS[-1]) for m in names)
    )


def _computation(text: str, power: int, y: str, names: tuple[str, ...]) -> Claim:
    return Claim(
        f"{text}: at most the power {power + TOLERANCE:g} of the rows",
        f"O(1/eps^{power}), log factors aside",
        lambda rows: f"{np.median(_largest(rows, y, names)):.2f}, the largest",
        lambda rows: [power + TOLERANCE - found for found in _largest(rows, y, names)],
    )


def _memory(text: str, printed: int, names: tuple[str, ...]) -> Claim:
    def powers(rows: list[Row]) -> list[float]:
        most = max(row["n"] for row in rows)
        return by_seed(
            rows,
            lambda mine: max(_slope(mine, "d", "numbers", method=m, n=most) for m in names),
        )

    return Claim(
        f"{text}: the numbers of a model grow as d^{printed}",
        "O(d/eps)" if printed else "O(1/eps)", lambda rows: f"d^{np.median(powers(rows)):.2f}",
        lambda rows: [0.1 - abs(found - printed) for found in powers(rows)], error=0.0,
        cause="the paper's",
    )  # fmt: skip


class Totals(Experiment):
    """Computation and memory until an error of eps, with 1/eps rows, features and steps.

    n normal rows of 16 and 64 columns, targets sin x_1, as many features or landmarks as rows,
    one pass; the processor's seconds of the training and of what comes before, and how many
    numbers a prediction needs.
    """

    label = "Table 2"
    kind = "rate"
    departures = """
    A machine is measured, operations are not counted: the paper's powers are upper bounds, and
    where overheads count they are smaller. Fixed features are made before the first step, as
    one pass takes each of them once."""
    explanation = """
    What differs is the memory of Nystroem's methods: a prediction needs the landmarks, n rows
    of d numbers, which the paper's O(1/eps) leaves out; with random features a seed suffices.
    """
    claims: ClassVar = (
        _computation("Training of doubly SGD", 2, "seconds", (OURS,)),
        _computation("Training of all competitors", 2, "seconds", METHODS[1:]),
        _computation("Preprocessing by Nystroem", 3, "before", NYSTROEM),
        _memory("Prediction, doubly SGD", 0, (OURS,)),
        _memory("Prediction, NORMA and k-SDCA", 1, FULL),
        _memory("Prediction, random features", 0, RANDOM),
        _memory("Prediction, Nystroem features", 0, NYSTROEM),
    )

    def cells(self, quick: bool) -> list[Cell]:
        sizes = [2**6, 2**7] if quick else [2**k for k in range(8, 12)]
        return [
            {"seed": seed, "d": d, "n": n}
            for seed in range(1 if quick else 5)
            for d in COLUMNS
            for n in sizes
        ]

    def measure(self, cell: Cell) -> Rows:
        """Fit all methods in turn."""
        n, d, seed = cell["n"], cell["d"], cell["seed"]
        X = np.random.default_rng(seed).standard_normal((n, d))
        y = np.sin(X[:, 0])
        for name in METHODS:
            processor_seconds(make(name, 64, d, seed), X[:64], y[:64])  # compiles
            model, before = make(name, n, d, seed), 0.0
            last, Z = model, X
            if isinstance(model, Pipeline):
                start = process_time()
                Z, last = model[0].fit_transform(X), model[-1]
                before = process_time() - start
            seconds = processor_seconds(last, Z, y) + (before if name in RANDOM else 0.0)
            yield {
                "method": name, "seconds": seconds, "before": before, "numbers": numbers(model)
            }  # fmt: skip

    def plot(self, rows: list[Row], path: Path) -> None:
        d = COLUMNS[-1]
        middle = medians(where(rows, d=d), ("method", "n"), ("seconds", "numbers"))
        with picture(path, 1, 2, size=(4.2, 3.7)) as axes:
            titles = ("processor seconds of training", f"numbers of a model, d = {d}")
            for ax, key, title in zip(axes[0], ("seconds", "numbers"), titles, strict=True):
                draw(ax, middle, "method", "n", key, METHODS)
                ax.set(xscale="log", yscale="log", xlabel="n = 1/$\\epsilon$", title=title)
                ax.xaxis.set_minor_formatter("")
            axes[0][0].legend(fontsize=6, ncols=2)
