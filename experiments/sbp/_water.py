"""What both pictures of water share."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from benchmarks.objectives._shared import distinct, picture, where
from scipy.optimize import linprog

from experiments.base import Cell, Claim, Experiment, Row, Rows, each_seed
from kernelgrad.papers.sbp.minimax import rows_below, slack_level, two_class_level

ROUNDING = 1e-8


def linear_program(c: Any, y: Any, volume: float) -> float:
    """Return the largest gamma with ``c + y b + xi >= gamma`` for some b and so much slack."""
    n = len(c)
    A = np.block([
        [np.ones((n, 1)), -y[:, None], -np.eye(n)],
        [np.zeros((1, 2)), np.ones((1, n))],
    ])  # fmt: skip
    bounds = [(None, None)] * 2 + [(0, None)] * n
    found = linprog(np.eye(n + 2)[0] * -1, A, np.append(c, volume), bounds=bounds)
    return float(-found.fun)


def _claim(key: str, text: str) -> Claim:
    def worst(rows: list[Row]) -> float:
        return max(abs(r[key]) for r in rows)

    return Claim(
        f"{text}, to {ROUNDING:g}", "shown", lambda rows: f"{worst(rows):.2g} apart at most",
        each_seed(lambda r: ROUNDING - worst(r)),
    )  # fmt: skip


class Water(Experiment):
    """Responses and slack of one problem."""

    kind = "level"
    bias: ClassVar[bool]
    claims: ClassVar = (
        _claim("level gap", "The water level is the optimum of the linear program"),
        _claim("minimax gap", "p* is minimax optimal: no slack lifts its mean above the level"),
        _claim("balance", "p* is a distribution, with a bias half of it in each class"),
    )

    def cells(self, quick: bool) -> list[Cell]:
        return [{"seed": seed, "n": 40, "nu": 0.3} for seed in range(3 if quick else 20)]

    def measure(self, cell: Cell) -> Rows:
        """Return what the claims are about; of the first problem responses, slack and p*."""
        rng, n = np.random.default_rng(cell["seed"]), cell["n"]
        c, y, b = rng.standard_normal(n).cumsum() / 3, np.zeros(n), 0.0
        volume, p = n * cell["nu"], np.zeros(n)
        if self.bias:
            y = np.where(rng.random(n) < 0.4, 1.0, -1.0)
            up, down = np.flatnonzero(y > 0), np.flatnonzero(y < 0)
            found = two_class_level(c, up, down, volume)
            level, b = found.level, found.bias
            p[found.positive], p[found.negative] = found.p_positive, found.p_negative
        else:
            level = slack_level(c, volume)
            below = rows_below(c, level)
            p[below] = 1 / len(below)
        gaps = {
            "level gap": level - linear_program(c, y, volume),
            "minimax gap": p @ c + volume * p.max() - level,
            "balance": abs(p.sum() - 1) + abs(p @ y),
        }
        for i in np.argsort(c + y * b)[: n if cell["seed"] == 0 else 1]:
            height = c[i] + y[i] * b
            slack = max(0.0, level - height)
            yield {"y": y[i], "c": height, "xi": slack, "p": p[i], "level": level} | gaps

    def plot(self, rows: list[Row], path: Path) -> None:
        here = where(rows, seed=0)
        basins = sorted(distinct(here, "y"))
        with picture(path, 2, len(basins), size=(4, 2), sharex=True, sharey="row") as axes:
            for (upper, lower), basin in zip(axes.T, basins, strict=True):
                mine = where(here, y=basin)
                x, c = np.arange(len(mine)), np.array([r["c"] for r in mine])
                floor = min(r["c"] for r in here) - 0.3
                upper.bar(x, c - floor, bottom=floor, color="0.7", width=1, label=r"$c_i$")
                slack = [r["xi"] for r in mine]
                upper.bar(x, slack, bottom=c, width=1, alpha=0.5, label=r"$\xi_i^*$")
                upper.axhline(mine[0]["level"], color="C0", label=r"$\gamma$")
                lower.step(x, [r["p"] for r in mine], where="mid", color="C3", label=r"$p_i^*$")
                lower.set(xlabel="rows, by response")
                if basin:
                    upper.set_title("positive rows" if basin > 0 else "negative rows")
                upper.legend(fontsize=7, loc="upper left")
                lower.legend(fontsize=7)
