"""Lemma 2.1: what a suboptimal solution means for norm and loss."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
from benchmarks.objectives._shared import distinct, picture, where

from experiments.base import Cell, Claim, Experiment, Row, Rows, each_seed
from experiments.sbp._machine import machine

ROUNDING = 1e-4


def _claim(key: str, what: str) -> Claim:
    def worst(rows: list[Row]) -> float:
        return max(r[key] / r["bound"] for r in rows)

    return Claim(
        f"{what} is at most that of u, divided by 1 - e |u|, up to {ROUNDING:g} of it",
        "for any u",
        lambda rows: f"{worst(rows):.5f} of the bound at most, {len(rows)} functions",
        each_seed(lambda r: 1 + ROUNDING - worst(r)),
        error=0.0,
    )


class Rescaled(Experiment):
    """A suboptimal solution, divided by its level, is close to the Pareto front.

    Each u is the optimum for a penalty lambda on rows of Adult, each w the average of
    Algorithm 1 with nu = loss(u) / |u| after some updates, divided by its level. With e its
    suboptimality, both norm and mean loss may exceed those of u by the factor
    1 / (1 - e |u|) at most. For these u that is attained by the loss.
    """

    label = "Lemma 2.1"
    kind = "level"
    departures = "1,000 random rows of Adult; the paper quotes the lemma and draws nothing."
    claims: ClassVar = (_claim("norm", "The norm"), _claim("loss", "The mean hinge loss"))

    def cells(self, quick: bool) -> list[Cell]:
        n, T = (150, 2**8) if quick else (1000, 2**13)
        return [{"seed": seed, "rows": n, "T": T} for seed in range(2 if quick else 5)]

    def measure(self, cell: Cell) -> Rows:
        """Return ratios to norm and loss of u, and the bound."""
        m = machine("adult", cell["rows"], 100)
        for factor in (0.1, 1.0, 10.0):
            u = m.optimum(factor / m.n, tol=1e-6)
            nu, norm, loss = m.slack(u), m.norm(u), m.hinge(u)
            for _, w, _ in m.sbp(nu, cell["seed"], [cell["T"] // 2**k for k in (4, 2, 0)]):
                level = m.level(w, nu)
                if level > 0:
                    yield {
                        "lambda": factor, "bound": 1 / (1 - (1 / norm - level) * norm),
                        "norm": m.norm(w) / level / norm, "loss": m.hinge(w / level) / loss,
                    }  # fmt: skip

    def plot(self, rows: list[Row], path: Path) -> None:
        with picture(path, 1, 2, size=(3.6, 3.4)) as axes:
            for ax, key in zip(axes[0], ("norm", "loss"), strict=True):
                for factor in distinct(rows, "lambda"):
                    mine = where(rows, **{"lambda": factor})
                    label = rf"$\lambda$ = {factor:g} / n"
                    x = [r["bound"] for r in mine]
                    ax.plot(x, [r[key] for r in mine], ".", label=label)
                ends = np.array([1, max(r["bound"] for r in rows)])
                ax.plot(ends, ends, "k:", label="bound")
                ax.set(xlabel=r"$1 / (1 - \epsilon \|u\|)$", ylabel=f"{key} of w / {key} of u")
            axes[0][0].legend(fontsize=8)
