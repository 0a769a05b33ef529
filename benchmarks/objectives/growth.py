"""Seconds and peak memory of default fits from 300 to a million rows; one fit a process."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import numpy as np
from sklearn.svm import SVR

from benchmarks.objectives._shared import (
    distinct,
    draw,
    picture,
    report,
    serve,
    timed,
    timed_peak,
)
from benchmarks.registry import Objective, Row
from kernelgrad import KernelRegressor, set_num_threads

ROWS = [300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000]
COLUMNS, NOISE, TEST_ROWS = 10, 0.1, 10_000
METHODS: dict[str, Any] = {"kernelgrad": KernelRegressor, "SVR": SVR}
START_SECONDS = 120.0  # to load and compile


def sample(rows: int, seed: int) -> tuple[Any, Any]:
    """Return normal rows and ``sin(2 x_0 + x_1) + x_2 cos x_3``, without noise."""
    X = np.random.default_rng(seed).standard_normal((rows, COLUMNS), np.float32)
    return X, np.sin(2 * X[:, 0] + X[:, 1]) + X[:, 2] * np.cos(X[:, 3])


class Growth(Objective):
    """Fit seconds, peak memory above the data, and the error against the noiseless function.

    Targets have noise of deviation 0.1; estimators are as they come. A process fits the first
    300 rows first, which compiles. A method over the limit is left out of longer sets.
    """

    name: ClassVar[str] = "growth"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add lengths, methods, threads and the limit."""
        parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
        parser.add_argument("--method", nargs="+", choices=METHODS, default=list(METHODS))
        parser.add_argument("--threads", type=int, default=2)
        parser.add_argument("--limit", type=float, default=300.0, help="seconds of a fit")

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take the methods in turn in every repeat."""
        left = list(args.method)
        for rows in [300, 600] if args.quick else args.rows:
            found: dict[str, list[Row]] = {method: [] for method in left}
            for seed in range(args.repeat):
                for method in list(left):
                    case = {"method": method, "rows": rows, "seed": seed}
                    lines, end = report(
                        "growth", case | {"threads": args.threads},
                        limit=args.limit, loading=START_SECONDS,
                    )  # fmt: skip
                    found[method] += lines
                    if end:
                        left.remove(method)
                        print(f"{method}, {rows:,} rows: {end}", flush=True)
            for method, lines in found.items():
                if len(lines) == args.repeat:
                    middle = {key: median(line[key] for line in lines) for key in lines[0]}
                    yield "growth", {"method": method, "rows": rows} | middle

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw seconds and megabytes against rows."""
        rows = tables["growth"]
        with picture(path, 1, 2, size=(5.0, 3.7)) as axes:
            for ax, y in zip(axes.flat, ("fit s", "peak MB"), strict=True):
                draw(ax, rows, "method", "rows", y, distinct(rows, "method"))
                ax.set(xscale="log", yscale="log", xlabel="rows", ylabel=y)
                ax.grid(alpha=0.3)
            axes[0, 0].legend()
        return True


def main(case: Row) -> Iterator[Row]:
    """Fit few rows, then all of them."""
    set_num_threads(case["threads"])
    X, f = sample(case["rows"], case["seed"])
    y = f + NOISE * np.random.default_rng(case["seed"] + 100).standard_normal(len(f))
    model = METHODS[case["method"]]()
    model.fit(X[:300], y[:300]).predict(X[:300])
    seconds, megabytes = timed_peak(model.fit, X, y)
    Z, g = sample(TEST_ROWS, case["seed"] + 1000)
    predict, predicted = timed(model.predict, Z)
    error = float(np.sqrt(np.mean((predicted - g) ** 2)))
    yield {"fit s": seconds, "peak MB": megabytes, "predict s": predict, "RMSE": error}


if __name__ == "__main__":
    serve(main)
