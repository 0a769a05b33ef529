"""Error of untuned fits over the number of rows, beside gradient boosting."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from benchmarks.objectives._defaults_case import METHODS, OURS
from benchmarks.objectives._shared import distinct, draw, picture, where
from benchmarks.objectives._tables import TABLES
from benchmarks.objectives.defaults import LIMIT, measured
from benchmarks.registry import Objective, Row

SETS = ["protein", "covtype20k"]
QUICK = ["friedman1_500"]
SIZES = [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000]
QUICK_SIZES = [50, 100]


class LearningCurves(Objective):
    """Error and fit seconds of what ``defaults`` measures, on more and more training rows.

    The rows of a size are the first of one random order, all test rows are used, and the
    last point of a table with fewer rows is all of them.
    """

    name: ClassVar[str] = "learning_curves"
    repeat: ClassVar[int] = 1

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add tables, methods and sizes."""
        parser.add_argument("--dataset", nargs="+", choices=list(TABLES), default=SETS)
        parser.add_argument("--method", nargs="+", choices=METHODS, default=[OURS, "LightGBM"])
        parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
        parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a fit")
        parser.add_argument("--params", default="{}", help="of our estimators, as JSON")

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Yield a row for each table, method and size."""
        names = QUICK if args.quick else args.dataset
        last: dict[tuple[str, str], int] = {}
        left = [(name, method) for name in names for method in args.method]
        for size in sorted(QUICK_SIZES if args.quick else args.sizes):
            some = Namespace(**(vars(args) | {"rows": size}))
            for row in measured(tuple(left), some):
                key = row["dataset"], row["method"]
                if row.get("rows", 0) < size:
                    left.remove(key)
                if "skipped" in row:
                    print(f"{', '.join(key)} skipped: {row['skipped']}", flush=True)
                elif last.get(key) != row.get("rows", 0):
                    last[key] = row.get("rows", 0)
                    yield "curve", row

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw error over rows, one panel for each table."""
        rows = [row for row in tables.get("curve", []) if "error" in row]
        names = distinct(rows, "dataset")
        if not names:
            return False
        with picture(path, 1, len(names), size=(4.5, 4.0)) as axes:
            for ax, name in zip(axes.flat, names, strict=True):
                some = where(rows, dataset=name)
                draw(ax, some, "method", "rows", "error", distinct(rows, "method"))
                ax.set(xscale="log", yscale="log", xlabel="training rows", title=name)
                ax.set_ylabel(some[0]["measure"])
                ax.grid(alpha=0.3, which="both")
                ax.legend(fontsize=8)
        return True
