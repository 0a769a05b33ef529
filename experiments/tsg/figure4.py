"""Figure 4: test error over iterations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.objectives._shared import distinct, picture, where

from experiments.base import Cell, Claim, Experiment, Row, Rows, by_seed
from experiments.tsg import _protocol as protocol

CLOSE, SOON, LAST = 0.01, (64, 128), 256
DRAWS, FEW = 40, 5  # numbers of draws for the two sets that decide, and for the others


def _rest(rows: list[Row], soon: int) -> list[float]:
    """Return by how much errors fall after so many iterations, mean of its sets, per draw."""
    some = [row for row in rows if row["dataset"] in protocol.THEIRS]
    return by_seed(
        some, lambda mine: protocol.mean_error(mine, T=soon) - protocol.mean_error(mine, T=LAST)
    )


def _claim(soon: int) -> Claim:
    return Claim(
        f"After {soon} iterations the error is within .01 of that after {LAST}, mean of "
        f"{' and '.join(protocol.THEIRS)}",
        "flat after 64 to 128",
        lambda rows: f"{np.mean(_rest(rows, soon)):+.4f}",
        lambda rows: [CLOSE - rest for rest in _rest(rows, soon)],
    )


class Curves(Experiment):
    """Test error of TSGS3VM over iterations.

    The steps of Algorithm 1 on 256 rows of either kind, with the parameters that did best
    after one pass over a fifth of the rows. "TSGS3VM usually converge to a good result in a
    few iterations (about 64-128)" (Appendix E). Drawn: a line for each draw of the labels.
    """

    label = "Figure 4"
    cause = "setting"
    kind = "level"
    departures = protocol.SPLIT + (
        " Of the eight sets two are at hand; a9a and MNIST 8 v 6 stand beside, with five draws."
    )
    explanation = """
    On one draw of forty (the nineteenth) eta = 10 has the fewest errors where it is tuned, but
    its long steps leave ijcnn1 with an error of 55 % after 256 iterations, 10 % before; this
    counts for the claims. Without this draw they agree as well: by 0.0082 ± 0.0025 and 0.0115 ±
    0.0019 (mean and interval)."""
    claims = tuple(_claim(soon) for soon in SOON)

    def cells(self, quick: bool) -> list[Cell]:
        return [
            cell
            for cell in protocol.draws(quick, DRAWS, last=8)
            if cell["seed"] < FEW or cell["dataset"] in protocol.THEIRS
        ]

    def measure(self, cell: Cell) -> Rows:
        """Tune, then fit with more and more iterations, which are the same ones."""
        rows = protocol.split(cell["dataset"], cell["seed"])
        rows = rows.first(cell.get("rows", rows.others))
        at, _ = protocol.tuned(
            "TSGS3VM", rows, cell["seed"], protocol.grid("TSGS3VM", quick="rows" in cell)
        )
        for T in (2**i for i in range(cell.get("last", LAST).bit_length())):
            model = protocol.fit("TSGS3VM", rows, at, cell["seed"], max_iter=T)
            wrong = protocol.error(model, (rows.test[0][:10_000], rows.test[1][:10_000]))
            yield {"T": T, "error": wrong, "C": at.C, "sigma": at.sigma, "eta": at.eta}

    def plot(self, rows: list[Row], path: Path) -> None:
        names = distinct(rows, "dataset")
        with picture(path, 1, len(names), size=(3.2, 2.8)) as axes:
            for ax, name in zip(axes[0], names, strict=True):
                for seed in distinct(rows, "seed"):
                    mine = where(rows, dataset=name, seed=seed)
                    x, y = [r["T"] for r in mine], [r["error"] for r in mine]
                    ax.plot(x, y, "o-", ms=3, lw=0.6, color="C0", alpha=0.5)
                ax.set(xscale="log", title=name, xlabel="iterations", ylabel="test error")
                ax.axvspan(*SOON, color="grey", alpha=0.15, lw=0)
