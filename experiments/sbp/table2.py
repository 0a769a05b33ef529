"""Table 2: nu of the regularised optimum."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
from benchmarks.objectives._shared import where

from experiments.base import Cell, Claim, Experiment, Row, Rows, panel
from experiments.sbp._libsvm import load
from experiments.sbp._machine import SETS
from kernelgrad import KernelClassifier
from kernelgrad.solvers import WorkingSet

# sigma^2, 1 / (n lambda) and nu of the paper, by data set and bias
PAPER = {
    ("adult", False): (10.0, 1.0, 1.10e-2),
    ("adult", True): (100.0, 100.0, 5.79e-4),
    ("mnist", False): (25.0, 1.0, 2.21e-4),
    ("mnist", True): (25.0, 1000.0, 6.42e-11),
}
TOLERANCE, SEPARABLE = 0.05, 1e-6
TOL = 1e-4
# Adult with a bias and another lambda, another kernel, or an early end
CONTROLS = {
    "C": ("1 / (n lambda)", (300.0, 500.0)),
    "square": ("sigma^2", (10.0, 20.0, 50.0)),
    "tol": ("tolerance", (1.0,)),
}


def _plain(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not any(key in row for key in CONTROLS)]


def _controls(rows: list[Row]) -> str:
    """Tell nu and test error with the table's parameters, and with one of them replaced."""
    (own,) = _plain(rows)
    text = f" (test error {own['error']:.2f} %"
    if "wrong" in own:
        text += f"; training error over norm {own['wrong'] / own['norm']:.3g}"
    for key, (name, _) in CONTROLS.items():
        for row in rows:
            if key in row:
                text += f"; with {name} = {row[key]:g}: {row['nu']:.3g}, {row['error']:.2f} %"
    return text + ")"


def _claim(name: str, bias: bool) -> Claim:
    theirs = PAPER[name, bias][2]

    def found(rows: list[Row]) -> list[float]:
        return [r["nu"] for r in _plain(where(rows, dataset=name, bias=bias))]

    def ours(rows: list[Row]) -> str:
        mine = where(rows, dataset=name, bias=bias)
        text = ", ".join(f"{nu:.3g}" for nu in found(rows))
        return text + (_controls(mine) if len(mine) > 1 else "")

    def margin(nu: float) -> float:
        if theirs < SEPARABLE:
            return 1 - nu / SEPARABLE
        return TOLERANCE - abs(nu / theirs - 1)

    what = f"at most {SEPARABLE:g}" if theirs < SEPARABLE else f"within {TOLERANCE:.0%}"
    return Claim(
        f"{name}, with{'' if bias else 'out'} a bias: nu is {what}", f"{theirs:.3g}", ours,
        lambda rows: [margin(nu) for nu in found(rows)], error=0.0,
    )  # fmt: skip


class Slack(Experiment):
    """The slack nu of the regularised optimum, mean hinge loss over norm.

    Exact solutions on all training rows by working sets, sigma^2 and lambda of the table. Of
    MNIST with a bias the paper's nu is what its solver's tolerance leaves of 0.
    """

    label = "Table 2"
    kind = "level"
    departures = """
    Adult is the a9a file of 32,561 rows; the paper's has 31,562. Reuters and forest are not at
    hand."""
    explanation = """
    Adult with a bias: the test error of 14.9 % that the paper has of LIBSVM (Section 5) is that
    of the table's parameters here. The controls replace one of them at a time. The paper's nu
    is between those of 1 / (n lambda) = 300 and 500, and between those of sigma^2 = 10 and 20,
    all with a test error of at least 15.09 %: no such replacement gives both. The training
    error in place of the mean hinge loss is 7 % off. An early end of the solver, at 10,000
    times the tolerance, does not lower nu. Rows and definition of nu are not the cause: without
    a bias they give its value. Which solution has it is open."""
    claims: ClassVar = tuple(_claim(*key) for key in PAPER)

    def cells(self, quick: bool) -> list[Cell]:
        rows = 200 if quick else None
        cells = [
            {"seed": 0, "dataset": name, "bias": bias, "rows": rows} for name, bias in PAPER
        ]
        controls = [{key: v} for key, (_, values) in CONTROLS.items() for v in values]
        return cells + [cells[1] | control for control in controls]

    def measure(self, cell: Cell) -> Rows:
        """Return nu, its parts, and the test error."""
        name, bias = cell["dataset"], cell["bias"]
        square, C, _ = PAPER[name, bias]
        square, C = cell.get("square", square), cell.get("C", C)
        p = load(SETS[name][0], cell["rows"], 300 if cell["rows"] else None)
        model = KernelClassifier(
            "hinge", solver=WorkingSet(tol=cell.get("tol", TOL)), C=C, gamma=1 / (2 * square),
            metric=None, standardize=False, fit_intercept=bias, probability=False,
            random_state=0,
        ).fit(p.X, p.y)  # fmt: skip
        f = np.ravel(model.decision_function(p.X))
        signed = np.where(p.y > 0, 1.0, -1.0) * f
        loss = float(np.maximum(0, 1 - signed).mean())
        e = model.expansion_
        on_support = e.exact.products(e.support, e.support, e.coef)
        norm = float(np.sqrt((e.coef * on_support).sum()))
        yield {
            "nu": loss / norm, "loss": loss, "norm": norm, "support": len(e.coef),
            "wrong": float(np.mean(signed <= 0)),
            "error": 100 * (1 - model.score(p.X_test, p.y_test)),
        }  # fmt: skip

    def plot(self, rows: list[Row], path: Path) -> None:
        with panel(path, size=(4.2, 3.6)) as ax:
            ax.plot([1e-11, 0.1], [1e-11, 0.1], ":", color="grey", lw=0.8)
            for r in _plain(rows):
                label = f"{r['dataset']}, with{'' if r['bias'] else 'out'} a bias"
                ax.plot(
                    PAPER[r["dataset"], r["bias"]][2], max(r["nu"], 1e-12), "o", label=label
                )
            ax.set(
                xscale="log", yscale="log", xlabel=r"$\nu$ of the paper", ylabel=r"$\nu$ here"
            )
            ax.legend(fontsize=8)
