"""Figure 5(2): the posterior variance."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.dsg._posterior import Posterior


class Variance(Posterior):
    """The posterior variance of a Gaussian process, by doubly SGD and NORMA.

    As Figure 5(1), by the paper's second way: a function for each of the points x, the
    regression of k(x, .) on the rows; the variance is 1 less its value at x. 2^8 points, where
    the paper has 2^10.
    """

    label = "Figure 5(2)"
    iterations, points, seeds = 512, 2**8, 3
    what = "variance"
    departures = f"{Posterior.departures.rstrip()} Three seeds, of three minutes each."

    def aims(self, K: Any, cross: Any, y: Any) -> tuple[Any, Any]:
        """Return the kernel values of rows and points, and the posterior variance."""
        return cross, 1.0 - np.einsum("nm,nm->m", cross, np.linalg.solve(K, cross))

    def estimate(self, f: Any) -> Any:
        """Return 1 less the value of each point's function at it."""
        return 1.0 - np.diag(f)
