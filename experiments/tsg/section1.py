"""Section 1: whether rows without labels improve the classifier."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.objectives._shared import distinct, where

from experiments.base import Cell, Claim, Experiment, Row, Rows, by_seed, panel
from experiments.tsg import _protocol as protocol
from kernelgrad.solvers import CCCPS3VM

WITHOUT, WITH = "labels alone", "unlabelled rows too"
RATIOS = {WITHOUT: [0.0], WITH: [0.1, 1.0]}
# controls of BLS3VM on the set with a rare class
RARE, BALANCED = "ijcnn1", f"{WITH}, their mean response that of the labels"
CONTROL = f"{RARE} {protocol.EVEN}"
DRAWS = 10  # as many as the paper's
METHODS = ("TSGS3VM", "BLS3VM")
NEAR = [("TSGS3VM", name) for name in ("cod_rna", "ijcnn1", "mnist 8 v 6")]
NEAR.append(("BLS3VM", "a9a"))
MORE = dict.fromkeys(NEAR, 40) | {("TSGS3VM", "a9a"): 20}  # what ten draws nearly decide


def gains(rows: Iterable[Row]) -> list[float]:
    """Return what unlabelled rows take off the error, for each draw."""

    def gain(mine: list[Row]) -> float:
        return protocol.mean_error(mine, loss=WITHOUT) - protocol.mean_error(mine, loss=WITH)

    return by_seed(rows, gain)


def _claim(method: str, name: str) -> Claim:
    def errors(rows: list[Row], at: str) -> str:
        mine = where(rows, method=method, dataset=at)
        return " to ".join(f"{protocol.mean_error(mine, loss=kind):.4f}" for kind in RATIOS)

    def ours(rows: list[Row]) -> str:
        if not where(rows, method=method, dataset=name):
            return "-"
        text = errors(rows, name)
        control = where(rows, method=method, dataset=CONTROL)
        if name == RARE and control:
            held = protocol.mean_error(where(rows, method=method, dataset=name), loss=BALANCED)
            gained = np.array(gains(control))
            error = gained.std(ddof=1) / np.sqrt(len(gained))
            text += (
                f"; balanced {held:.4f}; {protocol.EVEN} {errors(rows, CONTROL)}, "
                f"a gain of {gained.mean():.4f} ± {error:.2g} (one standard error)"
            )
        return text

    return Claim(
        f"{method} on {name}: with unlabelled rows the error is lower than with labels alone, "
        "each at its own best C, sigma, eta, and C*",
        "lower", ours, lambda rows: gains(where(rows, method=method, dataset=name)),
    )  # fmt: skip


class Gains(Experiment):
    """Whether unlabelled rows improve the classifier, with C* tuned like all the rest.

    "A large number of unlabeled samples can be used effectively to improve the performance of
    the classifier" (abstract). The protocol of Figure 3, once with ``C* = 0`` and once with the
    better of .1 C and C, each of the two with its own C, sigma and eta. TSG is the first-order
    method, BLS3VM is near the minimum of the same objective. Drawn: the error with labels alone
    less that with unlabelled rows, in points, with two standard errors of the mean over draws
    of the labels.
    """

    label = "Section 1"
    departures = protocol.SPLIT + (
        " The paper does not compare with C* = 0, nor tune C*; its own C*, at most .09 C here, "
        "is in Figure 3. BLS3VM sees 2,000 rows without a label."
    )
    explanation = """
    No table of the paper: its abstract says so of semi-supervised learning at large. No claim
    differs. Forty draws, a number fixed before, decide two of the four cases on which they were
    taken: TSGS3VM gains on MNIST, BLS3VM on a9a, and on cod_rna and ijcnn1 TSGS3VM gains or
    loses less than they tell. On ijcnn1, a tenth of whose rows is positive, neither gains.
    Binding the mean response of unlabelled rows to the mean label ("balanced") makes the error
    higher. Among as many rows of each class the gain is larger, but less than two standard
    errors: that the rare class is the reason is not shown.
    """
    claims = tuple(
        _claim(method, name) for method in METHODS for name in protocol.THEIRS + protocol.OTHERS
    )

    def cells(self, quick: bool) -> list[Cell]:
        controls: list[Cell] = [
            {"dataset": name, "method": "BLS3VM", "loss": loss, "seed": seed}
            for seed in range(DRAWS)
            for name, loss in ((RARE, BALANCED), (CONTROL, WITHOUT), (CONTROL, WITH))
        ]
        return [
            cell | {"method": method, "loss": loss}
            for cell in protocol.draws(quick, max(MORE.values()))
            for method in METHODS
            for loss in RATIOS
            if cell["seed"] < MORE.get((method, cell["dataset"]), DRAWS)
        ] + ([] if quick else controls)

    def measure(self, cell: Cell) -> Rows:
        """Tune and test one method."""
        rows = protocol.split(cell["dataset"], cell["seed"])
        most = protocol.FEW if cell["method"] == "BLS3VM" else rows.others
        rows = rows.first(cell.get("rows", most))
        held: dict[str, Any] = {}
        if cell["loss"] == BALANCED:
            held = {"solver": CCCPS3VM(balance=True), "fit_intercept": True}
        among = protocol.grid(
            cell["method"], RATIOS[cell["loss"].partition(",")[0]], quick="rows" in cell
        )
        best, model = protocol.tuned(cell["method"], rows, cell["seed"], among, **held)
        yield {
            "error": protocol.error(model, rows.test), "C": best.C, "sigma": best.sigma,
            "eta": best.eta, "ratio": best.ratio,
        }  # fmt: skip

    def plot(self, rows: list[Row], path: Path) -> None:
        names, methods = distinct(rows, "dataset"), distinct(rows, "method")
        with panel(path, size=(5.5, 3.0)) as ax:
            for i, method in enumerate(methods):
                for j, name in enumerate(names):
                    mine = where(rows, dataset=name, method=method)
                    if not mine:
                        continue
                    points = 100 * np.array(gains(mine))
                    place = j + 0.2 * (i - (len(methods) - 1) / 2)
                    two = 2 * points.std(ddof=1) / np.sqrt(len(points))
                    ax.plot([place] * len(points), points, f"C{i}.", ms=3, alpha=0.5)
                    ax.errorbar(
                        place, points.mean(), two, fmt=f"C{i}o", ms=5, capsize=3,
                        label=method if j == 0 else None,
                    )  # fmt: skip
            ax.axhline(0, color="grey", lw=0.8)
            ax.set(xticks=range(len(names)), ylabel="points of error gained")
            ax.set_xticklabels([name.replace(" with", "\nwith") for name in names])
            ax.legend(fontsize=8)
