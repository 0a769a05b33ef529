"""Theorem 14: the rate of CDSG under the theorem's own steps."""

from __future__ import annotations

from typing import Any, ClassVar

from experiments.base import Cell
from experiments.dsg.theorem4 import PRODUCTS, TheoremRate
from kernelgrad import DSG
from kernelgrad.solvers import CDSG


class CheckedRate(TheoremRate):
    """With steps from theta / t to theta' / t, CDSG has rate 1/t.

    Algorithm 4 in batches of 16 rows, line search to theta' = 2 theta, on the data of the rate
    of DSG: 1,000 rows of the synthetic regression, Gaussian kernel with sigma = 2, lambda = 0.1
    (nu in the names here). Drawn is the mean squared difference from the exact solution of
    kernel ridge regression on these rows, on 200 points.
    """

    label = "Theorem 14"
    departures = """
    The paper proves this rate and draws no picture of it. With single rows the check of
    Equation 9 hardly ever lets an old frequency pass, hence the batches.
    """
    solver: ClassVar[type[DSG]] = CDSG
    options: ClassVar[dict[str, Any]] = {"max_step": 2.0, "batch_size": 16}

    def cells(self, quick: bool) -> list[Cell]:
        """Return a cell for each seed and product."""
        T = 2**7 if quick else 2**12
        return [
            {"seed": seed, "product": name, "iterations": T}
            for seed in range(2 if quick else 15)
            for name in PRODUCTS
        ]
