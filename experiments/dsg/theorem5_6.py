"""Theorems 5 and 6 and Corollary 11: rates of nearly all runs, of the risk, of the maximum."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
from benchmarks.objectives._shared import picture, where

from experiments.base import Cell, Claim, Row, Rows, by_seed
from experiments.dsg._synthetic import curves, rate
from experiments.dsg.theorem4 import TOLERANCE, TheoremRate

WHOLE, QUANTILE = ("1", "2"), 0.9
BOUNDS = {"error": 1.0, "maximum": 1.0, "risk": 0.5}
TEXTS = {
    "error": "Theorem 5: of ten runs all but one have a squared error that falls as 1/t",
    "maximum": "Corollary 11: the largest squared error over all points falls as 1/t",
    "risk": "Theorem 6: of ten runs all but one have a risk that nears that of f* as 1/sqrt(t)",
}


def _slopes(rows: list[Row], name: str, column: str) -> list[float]:
    def slope(mine: list[Row]) -> float:
        return rate([{"t": row["t"], "error": row[column]} for row in mine])

    return by_seed(where(rows, product=name), slope)


def _claim(name: str, column: str) -> Claim:
    least = TOLERANCE - BOUNDS[column]
    return Claim(
        f"{TEXTS[column]}, theta nu = {name}: a slope of at most {least:g} in log-log from "
        "sqrt(T) to T",
        f"t^-{BOUNDS[column]:g}, and factors ln(t)",
        lambda rows: f"t^{np.mean(_slopes(rows, name, column)):.2f}",
        lambda rows: [least - slope for slope in _slopes(rows, name, column)],
    )


class HighProbability(TheoremRate):
    """With steps theta / t, theta nu whole, nearly all runs have the rate 1/t, and so the risk.

    Algorithm 1 on the rows of Theorem 4, on which all is measured: the squared difference from
    the exact solution, its mean and its largest value over the rows, and how far the mean
    squared loss is from that of the exact solution. A repeat is ten runs; drawn is what nine of
    them are below (the mean of ten for the largest value).
    """

    label = "Theorem 5, Theorem 6 and Corollary 11"
    kind = "rate"
    departures = """
    The paper proves these bounds and draws no picture of them. Slopes are fitted, constants are
    not looked at. The factors ln(t) of Theorems 5 and 6 are within the tolerance or not."""
    claims: ClassVar = tuple(_claim(name, column) for column in BOUNDS for name in WHOLE)

    def cells(self, quick: bool) -> list[Cell]:
        return [
            {"seed": seed, "product": name, "iterations": 2**7 if quick else 2**12, "runs": 10}
            for seed in range(2 if quick else 5)
            for name in WHOLE
        ]

    def measure(self, cell: Cell) -> Rows:
        """Return quantiles over runs at iterations evenly spaced in the logarithm."""
        runs = [self._run(cell, cell["runs"] * cell["seed"] + i) for i in range(cell["runs"])]
        for same in zip(*runs, strict=True):
            values = {key: [row[key] for row in same] for key in BOUNDS}
            out = {key: float(np.quantile(v, QUANTILE)) for key, v in values.items()}
            yield {"t": same[0]["t"]} | out | {"maximum": float(np.mean(values["maximum"]))}

    def _run(self, cell: Cell, seed: int) -> list[dict[str, float]]:
        out = []
        for t, f, best, y in self.follow(cell, seed, on_rows=True):
            squares = (f - best) ** 2
            away = abs(np.mean((f - y) ** 2) - np.mean((best - y) ** 2))
            out.append(
                {"t": t, "error": squares.mean(), "maximum": squares.max(), "risk": away}
            )
        return out

    def plot(self, rows: list[Row], path: Path) -> None:
        with picture(path, 1, len(BOUNDS), size=(3.2, 3.0)) as axes:
            for ax, (column, power) in zip(axes[0], BOUNDS.items(), strict=True):
                for i, name in enumerate(WHOLE):
                    mine = [r | {"error": r[column]} for r in where(rows, product=name)]
                    curves(ax, mine, label=rf"$\theta\nu$ = {name}", color=f"C{i}")
                t = ax.lines[-1].get_xdata()
                line = ax.lines[-1].get_ydata()[-1] * (t[-1] / t) ** power
                ax.plot(t, line, "k:", label=f"$t^{{-{power:g}}}$")
                ax.set(xscale="log", yscale="log", xlabel="iterations t", title=column)
                ax.legend(fontsize=8)
