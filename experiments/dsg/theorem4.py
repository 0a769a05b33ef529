"""Theorem 4: the rate under the theorem's own steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from benchmarks.objectives._shared import where
from sklearn.kernel_ridge import KernelRidge

from experiments.base import Cell, Claim, Experiment, Row, Rows, by_seed, panel
from experiments.dsg import _synthetic as synthetic
from kernelgrad import DSG

NU, ROWS, SIGMA, TOLERANCE = 1.0, 1000, 2.0, 0.1
PRODUCTS = {"1": 1.0, "1.5": 1.5, "2": 2.0}  # theta nu


def _claim(name: str) -> Claim:
    def mine(rows: list[Row]) -> list[float]:
        return by_seed(where(rows, product=name), synthetic.rate)

    return Claim(
        f"theta nu = {name}: the squared error falls as 1/t, a slope of at most "
        f"{TOLERANCE - 1:g} in log-log from sqrt(T) to T",
        "1/t",
        lambda rows: f"t^{np.mean(mine(rows)):.2f}",
        lambda rows: [TOLERANCE - 1 - slope for slope in mine(rows)],
    )


class TheoremRate(Experiment):
    """With steps theta / t, theta nu in (1, 2) or whole, the last iterate has rate 1/t.

    Algorithm 1 as printed, a row and a feature in each iteration, on 1,000 rows of the
    synthetic data: Gaussian kernel with sigma = 2, nu = 1. Drawn is the mean squared
    difference from the exact solution of kernel ridge regression on these rows, on 200 points.
    """

    label = "Theorem 4"
    kind = "rate"
    departures = """
    The paper proves this rate and draws that of averages under other steps (Figure 4(2)). The
    rows are a fixed set in seeded shuffles, as the paper allows, so that the solution is known.
    nu is large, as theta is at least 1 / nu: long first steps raise the error before it falls.
    """
    claims: ClassVar = tuple(map(_claim, PRODUCTS))
    solver: ClassVar[type[DSG]] = DSG
    options: ClassVar[dict[str, Any]] = {}
    seeds: ClassVar[int] = 15

    def cells(self, quick: bool) -> list[Cell]:
        T = 2**7 if quick else 2**12
        return [
            {"seed": seed, "product": name, "iterations": T}
            for seed in range(2 if quick else self.seeds)
            for name in PRODUCTS
        ]

    def follow(self, cell: Cell, seed: int, *, on_rows: bool) -> Iterator[Any]:
        """Yield iterations, responses and the exact solution on points or rows, and targets."""
        X, y = synthetic.sample(ROWS, seed)
        Z = X if on_rows else np.random.default_rng(1000 + seed).uniform(-5, 5, (200, 2))
        exact = KernelRidge(kernel="rbf", gamma=1 / (2 * SIGMA**2), alpha=NU * ROWS)
        best = exact.fit(X, y).predict(Z)
        preset = self.solver.paper(
            nu=NU, theta=PRODUCTS[cell["product"]] / NU, sigma=SIGMA, **self.options
        )
        drawn = synthetic.batches(X, y[:, None], preset["solver"].batch_size, seed)
        steps = synthetic.course(preset["solver"], synthetic.problem(preset, seed), drawn, Z)
        for t, f in synthetic.looks(steps, cell["iterations"], 2**0.5):
            yield t, f[:, 0], best, y

    def measure(self, cell: Cell) -> Rows:
        """Return the error at iterations evenly spaced in the logarithm."""
        for t, f, best, _ in self.follow(cell, cell["seed"], on_rows=False):
            yield {"t": t, "error": np.mean((f - best) ** 2)}

    def plot(self, rows: list[Row], path: Path) -> None:
        with panel(path, size=(4.5, 3.5)) as ax:
            for i, name in enumerate(PRODUCTS):
                mine = where(rows, product=name)
                synthetic.curves(ax, mine, label=rf"$\theta\nu$ = {name}", color=f"C{i}")
            synthetic.rate_axes(ax, rows, "k:")
            ax.set_ylabel(r"$|f_t(x) - f_*(x)|^2$, mean over x")
            ax.legend(fontsize=8)
