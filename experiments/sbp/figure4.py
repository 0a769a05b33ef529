"""Figure 4: water in two basins."""

from __future__ import annotations

from experiments.sbp._water import Water


class Basins(Water):
    """With a bias there is a basin for each class, and water covers as many rows in both.

    Responses plus the optimal bias, slack, and the minimax optimal distribution, with half
    of its mass in each class. Checked on 20 problems against a linear program.
    """

    label = "Figure 4"
    departures = """
    The paper's figure is a drawing; these are random responses, nu = 0.3. Algorithm 3 as
    printed swaps two branches (lines 27 and 28, 33 and 34); the level here is found otherwise.
    """
    bias = True
