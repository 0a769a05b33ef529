"""Theorem 4: the rate of UDSG under the theorem's own steps."""

from __future__ import annotations

from typing import ClassVar

from experiments.dsg.theorem4 import TheoremRate
from kernelgrad import DSG
from kernelgrad.solvers import UDSG


class UniformRate(TheoremRate):
    """With steps theta / t, theta lambda in (1, 2) or whole, UDSG(1, 1) has rate 1/t.

    Algorithm 3 as printed, a row and a frequency in each iteration, every second one an old
    one, on the data of the rate of DSG: 1,000 rows of the synthetic regression, Gaussian kernel
    with sigma = 2, lambda = 1 (nu in the names here). Drawn is the mean squared difference
    from the exact solution of kernel ridge regression on these rows, on 200 points.
    """

    label = "Theorem 4"
    departures = "The paper proves this rate and draws no picture of it."
    solver: ClassVar[type[DSG]] = UDSG
    seeds: ClassVar[int] = 5
