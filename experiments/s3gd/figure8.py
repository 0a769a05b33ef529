"""Figure 8: time of S3GD and the number of anchors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.objectives._shared import distinct, where

from experiments.base import Cell, Claim, Experiment, Row, Rows, each_seed, panel
from experiments.s3gd import _paper as paper
from experiments.s3gd.figure7 import ANCHORS


def _growth(rows: list[Row]) -> dict[str, tuple[float, float]]:
    """Return log10 of the growth of time and of anchors, of each set."""
    out = {}
    for data in distinct(rows, "data"):
        spent = paper.means(where(rows, data=data), "s", lambda r: r["anchors"])
        few, many = min(spent), max(spent)
        out[data] = float(np.log10(spent[many] / spent[few])), float(np.log10(many / few))
    return out


def _text(rows: list[Row]) -> str:
    return "; ".join(
        f"{data} {10**time:.3g} times" for data, (time, _) in _growth(rows).items()
    )


class AnchorTimes(Experiment):
    """Seconds of 50 iterations of S3GD for 20 to 400 anchors.

    Medians of five rounds of 400 iterations. Drawn: seconds over anchors.
    """

    label = "Figure 8"
    kind = "rate"
    departures = f"Four of the sets of Figure 4, and MNIST's first 10,000 rows. {paper.CLOCK}"
    claims = (
        Claim(
            "More anchors take longer, on every set (margin: least log10 of the growth)",
            "longer", _text, each_seed(lambda mine: min(t for t, _ in _growth(mine).values())),
        ),
        Claim(
            "The time grows sub-linearly, on every set (margin: log10 of the growth of "
            "anchors, 20, over the largest growth of time)", "sub-linear", _text,
            each_seed(lambda mine: min(m - t for t, m in _growth(mine).values())),
        ),
    )  # fmt: skip

    def cells(self, quick: bool) -> list[Cell]:
        return paper.cells(
            quick, ("covtype20k", "ijcnn1", "a9a", "news20_bydate", paper.IMAGES)
        )

    def measure(self, cell: Cell) -> Rows:
        """Time S3GD with each number of anchors in turn."""
        task = paper.load(cell["data"], cell["quick"])
        for m in ANCHORS:
            one = task.solver("S3GD", 1.0, 100 if cell["quick"] else 400, n_anchors=m)
            each, before = paper.seconds_of_rounds(task, one, cell["seed"], 5)
            yield {"anchors": m, "s": 50 * each, "preparation s": before}

    def plot(self, rows: list[Row], path: Path) -> None:
        with panel(path, size=(4.2, 3.0)) as ax:
            for data in distinct(rows, "data"):
                spent = paper.means(where(rows, data=data), "s", lambda r: r["anchors"])
                ax.plot(list(spent), list(spent.values()), "o-", ms=3, label=data)
            ax.set(
                xscale="log", yscale="log", xlabel="anchors", ylabel="seconds of 50 iterations"
            )
            ax.set_xticks(ANCHORS, ANCHORS)
            ax.minorticks_off()
            ax.legend(fontsize=7)
