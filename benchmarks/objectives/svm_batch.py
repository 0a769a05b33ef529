"""How many rows an update of the Stochastic Batch Perceptron should sample."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from benchmarks.objectives._shared import available, distinct, draw, picture
from benchmarks.objectives._svm import (
    LIBSVM,
    OURS,
    Point,
    Problem,
    geometric,
    load,
    middle,
    our_curve,
    peer_curve,
    seconds_to,
    use_threads,
    warm_up,
)
from benchmarks.objectives.svm_time import MARGIN
from benchmarks.registry import Objective, Row
from kernelgrad.solvers import StochasticBatchPerceptron

TABLE = "rows and seconds to the target"
ROWS = {"a9a": 8000, "mnist8": 10_000, "digits8": 1000}
BIAS = {True: "with bias", False: "without"}


class SVMBatch(Objective):
    """Kernel rows and seconds to within 0.2 points of a converged SVC, by mini-batch size.

    The Stochastic Batch Perceptron samples m rows an update, one in the paper. Targets are
    those of SVC, which has a bias, for both columns. Every point of a curve is a fit from
    scratch; medians over the seeds.
    """

    name: ClassVar[str] = "svm_batch"
    repeat: ClassVar[int] = 3

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add data sets and sizes."""
        sets = list(ROWS)
        parser.add_argument("--dataset", nargs="+", choices=sets, default=sets[:2])
        parser.add_argument(
            "--batch-size", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64, 128]
        )
        parser.add_argument("--test-rows", type=int, default=20_000)
        parser.add_argument("--threads", type=int, default=2)
        parser.add_argument("--epochs", type=float, default=2.0, help="rows drawn / rows")

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take the sizes in turn in every repeat."""
        use_threads(OURS, args.threads)
        sizes = [1, 8] if args.quick else args.batch_size

        def small(name: str) -> Problem:
            sizes = (250, 250) if args.quick else (ROWS[name], args.test_rows)
            return load(name, *sizes)

        for name, problem in available(args.dataset, small):
            n = problem.n
            exact = list(peer_curve(LIBSVM, problem, factor=8, limit=float("inf"), first=n))[-1]
            target = exact["error %"] + MARGIN
            budgets = geometric(n / 4, n) if args.quick else geometric(n / 64, args.epochs * n)
            for bias in (True, False):
                warm_up(OURS, problem, fit_intercept=bias)
            cases = [(m, bias) for bias in (True, False) for m in sizes]
            curves: dict[tuple[int, bool], list[list[Point]]] = {case: [] for case in cases}
            for seed in range(args.repeat):
                for (m, bias), found in curves.items():
                    solver = StochasticBatchPerceptron(batch_size=m)
                    params = {"fit_intercept": bias, "random_state": seed}
                    found.append(list(our_curve(problem, solver, budgets, **params)))
            for (m, bias), found in curves.items():
                points = middle(found)
                yield TABLE, {
                    "dataset": name, "bias": BIAS[bias], "m": m, "target %": target,
                    "kernel rows": seconds_to(points, target, "kernel rows"),
                    "seconds": seconds_to(points, target),
                    "last %": points[-1]["error %"], "last rows": points[-1]["kernel rows"],
                    "last s": points[-1]["seconds"],
                }  # fmt: skip

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw kernel rows and seconds to the target against m."""
        rows = [r | {"curve": f"{r['dataset']}, {r['bias']}"} for r in tables[TABLE]]
        with picture(path, 1, 2, size=(4, 3.4)) as axes:
            for ax, key in zip(axes[0], ("kernel rows", "seconds"), strict=True):
                draw(ax, rows, "curve", "m", key, distinct(rows, "curve"))
                ax.set_xscale("log", base=2)
                ax.set(
                    yscale="log",
                    xlabel="rows sampled per update, m",
                    ylabel=f"{key} to the target",
                )
            axes[0][0].legend(fontsize=8)
        return True
