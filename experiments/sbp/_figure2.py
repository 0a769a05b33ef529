"""What the panels of Figure 2 share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
from benchmarks.objectives._shared import where

from experiments.base import Cell, Claim, Experiment, Row, Rows, by_seed, each_seed, panel
from experiments.sbp import _machine
from experiments.sbp._machine import DUAL, PEGASOS, PERCEPTRON, SBP, SMO, at, lead

METHODS = (SBP, PEGASOS, DUAL, SMO, PERCEPTRON)
SIMILAR = 0.25


def _size(rows: list[Row]) -> int:
    return int(rows[0]["rows"])


def _first_pass(rows: list[Row]) -> float:
    """Return the error of the perceptron after a pass, over that of SBP for as many values."""
    points = [r for r in where(rows, method=PERCEPTRON) if r["visits"] <= _size(rows)]
    return float(points[-1]["error"] / at(rows, SBP, points[-1]["evaluations"]))


def _early(rows: list[Row]) -> float:
    """Return by how much SMO is above SBP at half of the evaluations of its critical point."""
    mine = where(rows, method=SMO)
    reached = mine[-1]["evaluations"]
    for r in reversed(mine):
        if r["error"] > 1.1 * mine[-1]["error"]:
            break
        reached = r["evaluations"]
    return float(at(rows, SMO, reached / 2) - at(rows, SBP, reached / 2))


def _late(rows: list[Row]) -> float:
    return float(abs(where(rows, method=SMO)[-1]["error"] - rows[0]["optimum"]))


def _gain(rows: list[Row]) -> float:
    first = [r for r in where(rows, method=PERCEPTRON) if r["visits"] <= _size(rows)][-1]
    return float(at(rows, SBP, first["evaluations"]) - where(rows, method=SBP)[-1]["error"])


def _overfit(rows: list[Row]) -> float:
    """Return by how much the last three errors exceed those at 0.7 and 1 passes, on average."""
    n, mine = _size(rows), where(rows, method=PERCEPTRON)
    first = at(rows, PERCEPTRON, np.array([0.7 * n, n]), "visits")
    return float(np.mean([r["error"] for r in mine[-3:]]) - np.mean(first))


def _points(value: Callable[[list[Row]], float]) -> Callable[[list[Row]], str]:
    return lambda rows: f"{np.mean(by_seed(rows, value)):+.2f} points"


COUNTS = {
    "evaluations": "counting for visits to single rows the values with the support",
    "visits": "counting n evaluations an iteration for both, as Section 4.2 does",
}


def _outperforms(other: str, key: str) -> Claim:
    return Claim(
        f"SBP outperforms {other}, {COUNTS[key]}: its error is lower on average over the "
        "logarithm of kernel evaluations, from 100 n on",
        "its curve is below",
        _points(lambda rows: lead(rows, SBP, other, key)),
        each_seed(lambda r: lead(r, SBP, other, key)),
    )


CLAIMS = (
    *(_outperforms(other, key) for key in COUNTS for other in (PEGASOS, DUAL)),
    Claim(
        "SMO makes little progress until a critical point, from which on its error is within "
        "10% of its last: at half of these evaluations it is above that of SBP", "far above",
        _points(_early), each_seed(_early),
    ),
    Claim(
        "SMO then converges rapidly: after 10 epochs its error is within 0.1 points of the "
        "optimum's", "the optimum", _points(_late), each_seed(lambda r: 0.1 - _late(r)),
    ),
    Claim(
        "In the first epoch the perceptron is similar to SBP: at its end the errors are within "
        f"{SIMILAR:.0%} of each other, for as many evaluations", "similar",
        lambda rows: f"factor {np.mean(by_seed(rows, _first_pass)):.2f}",
        each_seed(lambda r: SIMILAR - abs(_first_pass(r) - 1)),
    ),
    Claim(
        "SBP continues improving over additional passes: after 10 epochs its error is lower "
        "than after as many evaluations as the perceptron's first pass takes", "lower",
        _points(_gain), each_seed(_gain),
    ),
)  # fmt: skip
OVERFITS = Claim(
    "The perceptron overfits after the first epoch: its last errors are above those at its end",
    "clearly visible",
    _points(_overfit),
    each_seed(_overfit),
)


class Panel(Experiment):
    """One data set of the figure."""

    data: ClassVar[str]
    rows: ClassVar[int]
    perceptron_epochs: ClassVar[int] = 10
    seeds: ClassVar[int]

    def cells(self, quick: bool) -> list[Cell]:
        rows = 200 if quick else self.rows
        return [
            {"seed": seed, "method": method, "rows": rows, "test_rows": 300 if quick else None,
             "epochs": 2 if quick else self.perceptron_epochs if method == PERCEPTRON else 10}
            for seed in range(2 if quick else self.seeds)
            for method in METHODS
        ]  # fmt: skip

    def measure(self, cell: Cell) -> Rows:
        """Return the error after growing numbers of visits, a mean since the one before."""
        sizes = self.data, cell["rows"], cell["test_rows"]
        nu, best = _machine.reference(*sizes)
        m = _machine.machine(*sizes)
        epochs, recent = cell["epochs"], []
        points = _machine.marks(epochs * m.n)
        for t, coef, count in _machine.race(m, cell["method"], nu, cell["seed"], epochs):
            recent.append(m.error(coef))
            if t >= points[0]:
                points = [p for p in points if p > t]
                error, recent = float(np.mean(recent)), []
                yield {"visits": t, "evaluations": count, "error": error, "optimum": best}

    def plot(self, rows: list[Row], path: Path) -> None:
        n = _size(rows)
        with panel(path, size=(4.8, 3.6)) as ax:
            for i, method in enumerate(METHODS):
                mine = where(rows, method=method)
                cut = n if method == PERCEPTRON else np.inf
                first = [r for r in mine if r["visits"] <= cut]
                ax.plot(*_machine.mean_curve(first), color=f"C{i}", label=method)
                ax.plot(*_machine.mean_curve(mine), "--", color=f"C{i}", lw=1, zorder=1)
                if method in (PEGASOS, DUAL):
                    x, y = _machine.mean_curve(mine, "visits")
                    ax.plot(n * np.array(x), y, ":", color=f"C{i}", lw=1)
            best = rows[0]["optimum"]
            x, y = _machine.mean_curve(where(rows, method=SBP))
            top = 1.2 * float(np.interp(100 * n, x, y))
            ax.axhline(best, color="grey", lw=0.8, ls=":", label="optimum")
            ax.set(
                xscale="log", xlabel="kernel evaluations", ylabel="test error, %",
                xlim=(10 * n, None), ylim=(0.9 * best, top),
            )  # fmt: skip
            ax.legend(fontsize=8)
