"""Lemma 3.2: the rate of the average iterate."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
from benchmarks.objectives._shared import distinct, picture, where

from experiments.base import Cell, Claim, Experiment, Row, Rows, by_seed
from experiments.sbp._libsvm import geometric
from experiments.sbp._machine import SETS, machine

TOLERANCE, CONSTANT = 0.05, 3.0


def _slope(rows: list[Row]) -> float:
    late = [r for r in rows if r["T"] >= 16]
    return float(
        np.polyfit(np.log([r["T"] for r in late]), np.log([r["gap"] for r in late]), 1)[0]
    )


def _claims(name: str) -> tuple[Claim, Claim]:
    def of(rows: list[Row], value: str) -> list[float]:
        mine = where(rows, dataset=name)
        if value == "slope":
            return by_seed(mine, _slope)
        return by_seed(mine, lambda r: max(p["gap"] * p["T"] ** 0.5 for p in r))

    return (
        Claim(
            f"{name}: the gap falls as 1/sqrt(T), a slope of at most {TOLERANCE - 0.5:g} in "
            "log-log from T = 16 on",
            "1/sqrt(T)",
            lambda rows: f"T^{np.mean(of(rows, 'slope')):.2f}",
            lambda rows: [TOLERANCE - 0.5 - slope for slope in of(rows, "slope")],
        ),
        Claim(
            f"{name}: the gap is at most {CONSTANT:g} / sqrt(T) at every T, the constant of "
            "Zinkevich's theorem",
            "O(1/sqrt(T))",
            lambda rows: f"{max(of(rows, 'largest')):.2f} / sqrt(T) at most",
            lambda rows: [CONSTANT - largest for largest in of(rows, "largest")],
        ),
    )


class Average(Experiment):
    """The average iterate is within O(sqrt(log(1/delta) / T)) of the optimum.

    Algorithm 1 on rows of Adult and MNIST, parameters of Table 2 without a bias. The gap is
    sup f - f(average) of the slack-constrained objective; its supremum is 1 / |u| for the
    regularised optimum u that gives nu.
    """

    label = "Lemma 3.2"
    kind = "rate"
    departures = "1,000 random rows of each set; the paper proves the lemma and draws nothing."
    claims: ClassVar = tuple(claim for name in SETS for claim in _claims(name))

    def cells(self, quick: bool) -> list[Cell]:
        n, T = (150, 2**8) if quick else (1000, 2**14)
        return [
            {"seed": seed, "dataset": name, "rows": n, "T": T}
            for name in SETS
            for seed in range(2 if quick else 10)
        ]

    def measure(self, cell: Cell) -> Rows:
        """Return the gap at growing numbers of updates."""
        m = machine(cell["dataset"], cell["rows"], 100)
        u = m.optimum(1 / m.n, tol=1e-6)
        nu, best = m.slack(u), 1 / m.norm(u)
        for t, w, _ in m.sbp(nu, cell["seed"], geometric(1, cell["T"])):
            yield {"T": t, "gap": best - m.level(w, nu), "best": best}

    def plot(self, rows: list[Row], path: Path) -> None:
        names = distinct(rows, "dataset")
        with picture(path, 1, len(names), size=(4, 3.4), sharey=True) as axes:
            for ax, name in zip(axes[0], names, strict=True):
                here = where(rows, dataset=name)
                for seed in distinct(here, "seed"):
                    mine = where(here, seed=seed)
                    label = r"$\sup f - f(\bar w)$" if seed == here[0]["seed"] else None
                    t = np.array([r["T"] for r in mine])
                    ax.plot(t, [r["gap"] for r in mine], "C0", lw=0.8, label=label)
                ax.plot(t, CONSTANT / np.sqrt(t), "k:", label=r"$3/\sqrt{T}$")
                ax.axhline(here[0]["best"], color="grey", lw=0.8, ls="--", label=r"$\sup f$")
                ax.set(xscale="log", yscale="log", xlabel="updates T", title=name)
            axes[0][0].legend(fontsize=8)
