"""Figure 3: test errors at the best parameters of each method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.objectives._shared import distinct, picture, where

from experiments.base import Cell, Claim, Experiment, Row, Rows, by_seed
from experiments.tsg import _protocol as protocol

OURS, CLOSE = "TSGS3VM", 0.01


def compared(rival: str, names: Sequence[str], *, close: bool) -> Claim:
    """Return the claim about a rival on some sets: as good as it, or better."""

    def ours(rows: list[Row]) -> str:
        shown = []
        for name in names:
            mine = where(rows, dataset=name)
            both = (protocol.mean_error(mine, method=method) for method in (OURS, rival))
            shown.append(f"{name}: " + " v ".join(f"{one:.3f}" for one in both))
        return "; ".join(shown)

    def margins(rows: list[Row]) -> list[float]:
        some = [row for row in rows if row["dataset"] in names]
        lead = by_seed(
            some,
            lambda mine: (
                protocol.mean_error(mine, method=rival) - protocol.mean_error(mine, method=OURS)
            ),
        )
        return [value + (CLOSE if close else 0.0) for value in lead]

    said = f"similar to that of {rival}: at most .01 above it" if close else f"below {rival}'s"
    sets = " and ".join(names)
    theirs = "boxes of both overlap on eight sets" if close else "boxes apart on eight sets"
    return Claim(f"The error of {OURS} is {said}, mean of {sets}", theirs, ours, margins)


class Errors(Experiment):
    """Test errors of five methods, each at its own best parameters.

    200 labels, a fifth of the other rows to train on, four fifths to measure. C, sigma, and of
    methods that take steps eta up to 10^3, are chosen for each method and each draw; ``C* = C
    n_l / n_u``. TSGS3VM takes one pass and adds ``ceil(sqrt(n))`` features in each iteration,
    FRS3VM takes ten passes and has as many features in all, BGS3VM one pass with budgets of 100
    and ``.2 n_u`` rows. Drawn: boxes over draws of the labels.
    """

    label = "Figure 3"
    cause = "setting"
    departures = protocol.SPLIT + (
        " Three draws of ten, each with one of its five folds: one takes ten minutes. Of the "
        "eight sets two are at hand, beside which a9a and MNIST 8 v 6 stand. BLS3VM and "
        "S3VMlight are this library's exact machines on the same objective, without a "
        "constant, not the programs of 2006 and 1999; they choose C and sigma on 2,000 rows "
        "without a label."
    )
    explanation = """
    One pass over a fifth of these sets is 9 iterations on MNIST and 25 to 46 elsewhere, fewer
    than the 64 to 128 after which the paper's Figure 4 is flat; Figure 4 here goes on with the
    same parameters. The exact machines have converged."""
    claims = tuple(
        compared(rival, names, close=rival != "FRS3VM")
        for names in (protocol.THEIRS, protocol.OTHERS)
        for rival in protocol.METHODS
        if rival != OURS
    )

    def cells(self, quick: bool) -> list[Cell]:
        drawn = protocol.draws(quick, 3)
        return [cell | {"method": method} for cell in drawn for method in protocol.METHODS]

    def measure(self, cell: Cell) -> Rows:
        """Tune and test one method."""
        rows = protocol.split(cell["dataset"], cell["seed"])
        rows = rows.first(cell.get("rows", rows.others))
        among = protocol.grid(cell["method"], quick="rows" in cell)
        best, model = protocol.tuned(cell["method"], rows, cell["seed"], among)
        yield {
            "error": protocol.error(model, rows.test), "C": best.C, "sigma": best.sigma,
            "eta": best.eta,
        }  # fmt: skip

    def plot(self, rows: list[Row], path: Path) -> None:
        names = distinct(rows, "dataset")
        with picture(path, 1, len(names), size=(2.6, 3.2)) as axes:
            for ax, name in zip(axes[0], names, strict=True):
                mine = where(rows, dataset=name)
                methods = distinct(mine, "method")
                errors = [[r["error"] for r in where(mine, method=m)] for m in methods]
                ax.boxplot(errors)
                ax.set_xticks(range(1, len(methods) + 1), methods, rotation=60, ha="right")
                ax.set(title=name)
            axes[0][0].set_ylabel("test error")
