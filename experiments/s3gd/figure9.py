"""Figure 9: the number of inner iterations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.objectives._shared import picture, where

from experiments.base import Cell, Claim, Experiment, Row, Rows, by_seed, each_seed
from experiments.s3gd import _paper as paper

INNER, NAMES = (20, 50), ("S3GD", "SVRG")


def _apart(rows: list[Row], name: str) -> float:
    """Return the mean distance of two curves over their mean height."""
    one, other = (dict(where(rows, method=name, inner=k)[0]["curve"]) for k in INNER)
    both = np.array([(one[at], other[at]) for at in one if at in other])
    return float(np.abs(both[:, 0] - both[:, 1]).mean() / both.mean())


def _slower(rows: list[Row], name: str) -> float:
    """Return the time of an iteration with 20 inner ones over that with 50."""
    few, many = (
        paper.means(where(rows, method=name), "s", lambda r: r["inner"])[k] for k in INNER
    )
    return few / many


class InnerIterations(Experiment):
    """Test objective with 20 and with 50 inner iterations.

    S3GD and SVRG with eta = 1. Drawn: the objective on test rows over iterations and seconds.
    """

    label = "Figure 9"
    kind = "level"
    departures = (
        "MNIST's first 10,000 rows stand for CIFAR10, as in Figure 2; 5,000 iterations. "
        "The paper does not tell the step. " + paper.CLOCK
    )
    claims = (
        *(
            Claim(
                f"{name} has similar curves over iterations with both: they differ by at most "
                "5 % in the mean (margin: .05 less the difference)", "similar",
                lambda rows, name=name: paper.listed(
                    dict(enumerate(by_seed(rows, lambda mine: _apart(mine, name))))
                ),
                lambda rows, name=name: by_seed(rows, lambda mine: 0.05 - _apart(mine, name)),
            )
            for name in NAMES
        ),
        Claim(
            "20 inner iterations slow SVRG down more than S3GD (margin: log10 of the ratio of "
            "both slowdowns)", "SVRG visibly, S3GD hardly",
            lambda rows: paper.listed({name: _slower(rows, name) for name in NAMES}) + " times",
            each_seed(
                lambda mine: float(np.log10(_slower(mine, "SVRG") / _slower(mine, "S3GD")))
            ),
        ),
    )  # fmt: skip

    def cells(self, quick: bool) -> list[Cell]:
        return paper.cells(quick, (paper.IMAGES,))

    def measure(self, cell: Cell) -> Rows:
        """Run both methods with both numbers."""
        task = paper.load(cell["data"], cell["quick"])
        steps = paper.QUICK_STEPS if cell["quick"] else 5000
        for name in NAMES:
            for inner in INNER:
                row = paper.curve(task, name, 1.0, cell["seed"], steps, inner_steps=inner)
                points = [[at, test] for at, _, test in row["curve"]]
                yield {"method": name, "inner": inner, "s": row["s"], "curve": points}

    def plot(self, rows: list[Row], path: Path) -> None:
        with picture(path, 1, 2, size=(3.2, 2.6), sharey=True) as axes:
            for name in NAMES:
                for inner, line in zip(INNER, ("-", "--"), strict=True):
                    row = where(rows, method=name, inner=inner, seed=0)[0]
                    at, test = np.array(row["curve"]).T
                    for ax, unit in zip(axes[0], (1.0, row["s"]), strict=True):
                        label = f"{name}, {inner}"
                        ax.plot(unit * at, test, line, color=paper.COLOURS[name], label=label)
            for ax, label in zip(axes[0], ("iterations", "seconds"), strict=True):
                ax.set(xscale="log", yscale="log", xlabel=label)
            axes[0][0].set_ylabel("objective on test rows")
            axes[0][0].legend(fontsize=7)
