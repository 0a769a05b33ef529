"""Figure 5(1): the posterior mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.dsg._posterior import Posterior


class Mean(Posterior):
    """The posterior mean of a Gaussian process, by doubly SGD and NORMA.

    2^11 rows and 2^10 points of the synthetic data, Gaussian kernel at the median distance,
    noise variance 0.1, batches of 64, blocks of 512. Drawn is the root mean square of the
    difference from the closed form, of averages with weights t^7.
    """

    label = "Figure 5(1)"
    iterations, points = 4096, 2**10
    what, power = "mean", 7.0
    departures = f"""{Posterior.departures}
    Figure 4(2) draws an average of the iterates, Figure 5 does not tell. Steps begin to decay
    after 10,240 iterations, so that the noise of the last iterate is all of them (its error is
    not recorded here).
    """

    def aims(self, K: Any, cross: Any, y: Any) -> tuple[Any, Any]:
        """Return the targets as they are, and the posterior mean."""
        return y[:, None], cross.T @ np.linalg.solve(K, y)

    def estimate(self, f: Any) -> Any:
        """Return the only output."""
        return f[:, 0]
