"""Seconds and memory of semi-supervised machines over numbers of unlabelled rows."""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.semi_supervised import LabelSpreading

from benchmarks.objectives._cached_case import two_classes
from benchmarks.objectives._shared import distinct, draw, picture, report, serve, timed_peak
from benchmarks.registry import Objective, Row
from kernelgrad import SemiSupervisedKernelClassifier, set_num_threads
from kernelgrad.data import ArraySource
from kernelgrad.solvers import TSG

FITS, PASSES = "fits over rows", "passes of TSG with 32 blocks"
LABELS, TEST, WARM = 200, 10_000, 600
DISK = "tsg, rows on disk"
SOLVERS = ["tsg", DISK, "soft_labels", "cached", "fr_s3vm", "bgs3vm", "cccp_s3vm", "s3vm_light",
           "LabelSpreading (kNN)"]  # fmt: skip
GAMMA, C = 1 / 40, 10.0


def machine(solver: Any, **params: Any) -> Any:
    """Return an estimator; LabelSpreading is scikit-learn's."""
    if solver == "LabelSpreading (kNN)":
        return LabelSpreading(kernel="knn", n_neighbors=7, alpha=0.2)
    solver = "tsg" if solver == DISK else solver
    return SemiSupervisedKernelClassifier(
        solver=solver, gamma=GAMMA, C=C, random_state=0, **params
    )


def measure(case: Row) -> Iterator[Row]:
    """Yield seconds, peak memory and error of one fit."""
    warnings.simplefilter("ignore")
    set_num_threads(case["threads"])
    n, name = case["rows"], case["solver"]
    X_test, y_test, _ = two_classes(TEST, 1)
    X, y, _ = two_classes(n + LABELS, 0)
    y = (y > 0).astype(int)
    marked = np.where(np.arange(len(y)) < LABELS, y, -1)
    machine(name, **({} if "Label" in name else {"max_iter": 3})).fit(X[:WARM], marked[:WARM])
    solver, params = name, {}
    if "passes" in case:
        solver = TSG(max_blocks=32, block_size=128)
        params["max_iter"] = int(case["passes"] * n / solver.batch_size)
    model = machine(solver, **params)
    more = {}
    with tempfile.TemporaryDirectory() as folder:
        if name == DISK:
            path = Path(folder) / "rows.npy"
            np.save(path, X[LABELS:])
            X, marked = X[:LABELS].copy(), marked[:LABELS]
            more = {"X_unlabelled": ArraySource(np.load(path, mmap_mode="r"))}
        seconds, megabytes = timed_peak(model.fit, X, marked, **more)
    yield {
        "fit s": seconds, "peak MB": megabytes,
        "error": float(np.mean(model.predict(X_test) != (y_test > 0))),
        "iterations": int(getattr(model, "n_iter_", 0)),
    }  # fmt: skip


def outcome(case: Row, limit: float) -> Row:
    """Return what a process of its own reports, or why there is no result."""
    lines, end = report("semi_growth", case, limit=limit)
    return lines[-1] if lines else {"skipped": end}


class SemiGrowth(Objective):
    """Seconds, memory and error over unlabelled rows; 200 labels, 20 generated columns.

    Each fit is a process of its own that compiles on few rows, forgets its peak so far, and
    has a limit. "peak MB" is above what the process held with the rows before the fit; arrays
    are copied once, rows on disk are read in pages. A method that went over the limit, or out
    of memory, is not tried with more rows. All take their default number of iterations: 200 of
    TSG, whatever the rows. The second table gives it 1, 2 and 4 passes over the rows, with at
    most 32 blocks of features, so that an iteration has one price.
    """

    name: ClassVar[str] = "semi_growth"
    repeat: ClassVar[int] = 1

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add sizes and the limit."""
        parser.add_argument("--rows", type=int, nargs="+", default=[10**4, 10**5, 10**6])
        parser.add_argument("--solver", nargs="+", default=SOLVERS, choices=SOLVERS)
        parser.add_argument("--pass-rows", type=int, default=10**5)
        parser.add_argument("--limit", type=float, default=120, help="seconds of a process")
        parser.add_argument("--threads", type=int, default=2)

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take all methods with so many rows, then with more."""
        sizes = [1000, 2000] if args.quick else sorted(args.rows)
        alive = list(args.solver)
        for rows in sizes:
            for solver in list(alive):
                case = {"rows": rows, "solver": solver, "threads": args.threads}
                found = outcome(case, args.limit)
                if "skipped" in found:
                    alive.remove(solver)
                yield FITS, {"rows": rows, "solver": solver} | found
        rows = 2000 if args.quick else args.pass_rows
        for passes in (1, 2, 4):
            case = {"rows": rows, "solver": "tsg", "threads": args.threads, "passes": passes}
            yield PASSES, {"rows": rows, "passes": passes} | outcome(case, args.limit)

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw seconds and memory against rows, as the paper's Figure 2."""
        done = [r for r in tables[FITS] if "fit s" in r]
        if not done:
            return False
        panels = (("fit s", "seconds"), ("peak MB", "peak MB above the rows"))
        with picture(path, 1, 2, size=(5.5, 4.0)) as axes:
            for ax, (key, label) in zip(axes[0], panels, strict=True):
                draw(ax, done, "solver", "rows", key, distinct(done, "solver"), "o-")
                ax.set(xscale="log", yscale="log", xlabel="unlabelled rows", ylabel=label)
            ax.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return True


if __name__ == "__main__":
    serve(measure)
