"""Test error against kernel evaluations (Cotter et al. 2012, Figure 2)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from benchmarks.objectives._shared import available, distinct, draw, picture, where
from benchmarks.objectives._svm import (
    LIBSVM,
    Point,
    Problem,
    fit_seconds,
    geometric,
    load,
    middle,
    our_curve,
    ours,
    peer_curve,
    percent,
    predict_libsvm,
    seconds_to,
)
from benchmarks.registry import Objective, Row
from kernelgrad.solvers import StochasticBatchPerceptron, get_solver

CURVES, REACHED, CHOSEN = "error over kernel evaluations", "kernel rows to a target", "chosen"
ROWS = {"a9a": 8000, "mnist8": 10_000, "ijcnn1": 10_000, "digits8": 1000}
PAPER = "SBP, m = 1 (paper)"
GRID = [(g, C) for g in (0.025, 0.05, 0.1, 0.2, 0.4) for C in (1.0, 4.0, 16.0, 64.0)]


def optimum_nu(problem: Problem, passes: int) -> float:
    r"""Return the paper's nu: mean hinge loss over norm of the regularised optimum.

    The optimum is that of dual coordinate ascent after so many passes over the rows.
    """
    model, X, y = ours(problem, passes * problem.n, get_solver("sdca"), fit_intercept=False)
    model.fit(X, y)
    f = np.ravel(model.decision_function(problem.X))
    sign = np.where(problem.y == model.classes_[1], 1.0, -1.0)
    e = model.expansion_
    on_support = np.zeros(e.coef.shape)
    e.exact.add_product(e.support, e.support, e.coef, on_support)
    norm = float(np.sqrt((e.coef * on_support).sum()))
    return float(np.maximum(0, 1 - sign * f).mean()) / norm


def choose(problem: Problem, rows: int) -> tuple[float, float]:
    """Return the gamma and C with the least error of SVC on held-out training rows."""
    from sklearn.svm import SVC

    cut = rows - rows // 3
    best = (np.inf, 0.0, 0.0)
    for gamma, C in GRID:
        model = SVC(C=C, gamma=gamma, cache_size=2000)
        fit_seconds(model, problem.X[:cut], problem.y[:cut])
        e = percent(problem.y[cut:rows], predict_libsvm(model, problem.X[cut:rows]))
        best = min(best, (e, gamma, C))
    return best[1:]


def methods(nu: float) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return solver and estimator's parameters of each method of ours."""
    return {
        PAPER: (StochasticBatchPerceptron(nu=nu, batch_size=1, average="uniform"), {}),
        "SBP (default)": (StochasticBatchPerceptron(), {}),
        "Pegasos": (get_solver("pegasos"), {}),
        "SDCA": (get_solver("sdca"), {}),
        "perceptron": (get_solver("perceptron"), {"loss": "perceptron"}),
    }


class SVMEvaluations(Objective):
    """Test error against kernel evaluations, without a bias (Cotter et al. 2012, Figure 2).

    Gaussian kernel and C = 1, i.e. lambda = 1/n, for Adult (sigma^2 = 10) and MNIST 8 against
    the rest (pixels in [0, 1], sigma^2 = 25); ijcnn1 takes the best of a grid on held-out
    training rows. The first method has the paper's setting: one row a step, uniform average,
    and nu of the regularised optimum, which takes a long run of dual coordinate ascent to
    know. "SBP (default)" is what ``solver="sbp"`` does and knows C only. Pegasos, SDCA and
    perceptron stand for themselves. A row of a cached kernel matrix counts once. SVC fits a
    bias, too, and stands for SMO with ``max_iter`` iterations; its count is a lower bound,
    min(2 iterations, n) rows. Every point is a fit from scratch; ``--repeat`` counts the seeds
    of all but SVC, over which evaluations and errors are averaged.
    """

    name: ClassVar[str] = "svm_evaluations"
    repeat: ClassVar[int] = 3

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add data sets and sizes."""
        sets = list(ROWS)
        parser.add_argument("--dataset", nargs="+", choices=sets, default=sets[:3])
        parser.add_argument("--rows", type=int, default=None, help="0: all (slow)")
        parser.add_argument("--test-rows", type=int, default=20_000)
        parser.add_argument("--epochs", type=float, default=4.0, help="rows drawn / rows")
        parser.add_argument("--nu-passes", type=int, default=30)

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take the methods in turn in every repeat."""

        def small(name: str) -> Problem:
            if args.quick:
                return load(name, 250, 250)
            rows = ROWS[name] if args.rows is None else args.rows or None
            return load(name, rows, args.test_rows)

        for name, problem in available(args.dataset, small):
            if name == "ijcnn1":
                problem.gamma, problem.C = choose(problem, 150 if args.quick else 6000)
            nu = optimum_nu(problem, 3 if args.quick else args.nu_passes)
            yield CHOSEN, {
                "dataset": name, "rows": problem.n, "test rows": len(problem.y_test),
                "gamma": problem.gamma, "C": problem.C, "nu of the optimum": nu,
            }  # fmt: skip
            yield from self._measure(problem, nu, args)

    @staticmethod
    def _measure(
        problem: Problem, nu: float, args: argparse.Namespace
    ) -> Iterator[tuple[str, Row]]:
        n = problem.n
        budgets = geometric(n / 4, n, 4.0) if args.quick else geometric(16, args.epochs * n)
        curves: dict[str, list[list[Point]]] = {LIBSVM: []}
        first = 16 if args.quick else 8
        curves[LIBSVM].append(
            list(peer_curve(LIBSVM, problem, factor=2, limit=np.inf, first=first))
        )
        for seed in range(args.repeat):
            for method, (solver, params) in methods(nu).items():
                given = {"fit_intercept": False, "random_state": seed} | params
                curve = list(our_curve(problem, solver, budgets, **given))
                curves.setdefault(method, []).append(curve)
        means = {method: middle(found, fmean) for method, found in curves.items()}
        target = means[LIBSVM][-1]["error %"]
        for method, points in means.items():
            for p in points:
                yield CURVES, {
                    "dataset": problem.name, "method": method,
                    "rows drawn": p.get("rows drawn"), "budget": p["budget"],
                    "evaluations": p["kernel rows"] * n, "kernel rows": float(p["kernel rows"]),
                    "error %": p["error %"], "support rows": p["support rows"],
                }  # fmt: skip
        for method, points in means.items():
            row: Row = {"dataset": problem.name, "method": method, "SVC %": target}
            for margin in (1.0, 0.5, 0.2):
                row[f"rows to +{margin:g}"] = seconds_to(points, target + margin, "kernel rows")
            yield REACHED, row | {"least %": min(p["error %"] for p in points)}

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw error against evaluations, one panel for each data set."""
        rows = tables[CURVES]
        names, labels = distinct(rows, "dataset"), distinct(rows, "method")
        with picture(path, 1, len(names), size=(4.2, 3.6)) as axes:
            for ax, name in zip(axes[0], names, strict=True):
                here = where(rows, dataset=name)
                draw(ax, here, "method", "evaluations", "error %", labels)
                low = min(r["error %"] for r in here)
                ends = [where(here, method=label)[-1]["error %"] for label in labels]
                ax.set(
                    xscale="log", ylim=(0.9 * low, max(3 * low, 1.3 * max(ends))), title=name,
                    xlabel="kernel evaluations", ylabel="test error, %",
                )  # fmt: skip
            axes[0][0].legend(fontsize=8)
        return True
