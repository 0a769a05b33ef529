"""Figure 1: water on responses."""

from __future__ import annotations

from experiments.sbp._water import Water


class Level(Water):
    """The slack lifts the lowest responses to a common level, as water in a basin.

    Random responses; upper panel: responses and slack, lower panel: the minimax optimal
    distribution, uniform below the level. Checked on 20 problems against a linear program.
    """

    label = "Figure 1"
    departures = "The paper's figure is a drawing; these are random responses, nu = 0.3."
    bias = False
