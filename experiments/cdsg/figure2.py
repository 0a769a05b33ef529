"""Figure 2: training objective and test error on 8.1 million digits."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from benchmarks.datasets.archives import Mnist
from benchmarks.objectives._shared import distinct, draw, picture, where

from experiments.base import Cell, Claim, Experiment, Row, Rows
from experiments.cdsg._courses import STEPS, Size, Task, courses, ends, principal, tune
from experiments.images import DeformedImages

PENALTY, ROWS, PCA_ROWS = 1e-6, 8_100_000, 10_000
SEEDS = {"log_loss": 20, "hinge": 10}
NAMES = ("DSG", "UDSG", "CDSG")
LOSSES = {"log_loss": "logistic regression", "hinge": "SVM"}
PANELS = [("log_loss", "objective"), ("log_loss", "test"), ("hinge", "test")]


@cache
def digits(loss: str, n_rows: int, seen: int) -> Task:
    """Return deformed MNIST digits by their first 100 principal components."""
    data = Mnist().load()
    few = slice(seen)
    images = data.X_train.reshape(-1, 28, 28)
    source = DeformedImages(images, data.y_train, n_rows=n_rows, seed=8)
    project = principal(source.take(np.arange(PCA_ROWS) * (n_rows // PCA_ROWS)).X, 100)
    return Task(
        source, project, loss, np.unique(data.y_train),
        source.take(np.linspace(len(images), n_rows - 1, seen, dtype=int))[:2],
        (data.X_test[few], data.y_test[few]),
    )  # fmt: skip


def _claim(text: str, theirs: str, panel: tuple[str, str], *pairs: tuple[str, str]) -> Claim:
    def least(rows: list[Row]) -> list[float]:
        """Return log ratios at the last rows of a panel, the least of the pairs, by seed."""
        found = ends(where(rows, loss=panel[0]), panel[1], "loss")
        return [min(np.log(e[worse] / e[better]) for better, worse in pairs) for e in found]

    def ours(rows: list[Row]) -> str:
        percent = round(100 * float(np.expm1(np.median(least(rows)))), 1) + 0.0  # no -0.0
        return f"{percent:.1f} %"

    behind = panel[0] == "hinge" and len(pairs) > 1
    return Claim(text, theirs, ours, least, cause="open" if behind else "")


class Digits(Experiment):
    """CDSG is ahead of DSG and UDSG on 8.1 million deformed digits, in both losses.

    Deformed MNIST digits, each made when it is read, 100 principal components, Gaussian kernel
    of the median distance, lambda = 1e-6, blocks of 4,096 frequencies. Drawn are the training
    objective and the test error of logistic regression, and the test error of the SVM.
    """

    label = "Figure 2"
    cause = "setting"
    departures = f"""
    The library's deformed digits in place of MNIST8M. Batches of 4,096 rows, not 20,000, and 12
    iterations of DSG, so that a run sees 49,152 of the 8.1 million rows. The SVM is
    one-vs-rest, not one-vs-one. Objective and errors are of 5,000 rows.
    {" ".join(STEPS.split())}"""
    explanation = """
    With the SVM CDSG is behind UDSG, but not behind DSG (a log ratio of -0.079 ± 0.149): it
    re-uses hardly a block, so that it takes 82,000 to 98,000 of DSG's 98,304 frequencies, where
    UDSG re-uses every second block. No control isolates the reason. That UDSG is ahead of DSG
    is the result of Figure 1: a run sees 0.6 % of the rows here, fewer than there, so that what
    many rows change cannot show. From half of the time on its lead in the objective stays: a
    log ratio of 0.13, and of 0.016 with the SVM. The best first steps are 8, 8 and 4 times the
    automatic one, with the SVM the automatic one itself. Other work beside does not count: with
    a load of 11 and of 2.5 two seeds of logistic regression end with the same frequencies and
    digits. Seeds 10 to 19 of logistic regression were measured on another AMD EPYC, without
    AVX-512; twenty were fixed before these were run."""
    claims: ClassVar = tuple(
        _claim(f"{text}: {panel[1]}, {LOSSES[panel[0]]}", theirs, panel, *pairs)
        for text, theirs, pairs in (
            (
                "CDSG consistently outperforms the other two at the same time",
                "ahead in 3 of 3 panels", [("CDSG", "DSG"), ("CDSG", "UDSG")],
            ),
            (
                "UDSG does not perform as well as in Figure 1, read as: not ahead of DSG",
                "behind", [("DSG", "UDSG")],
            ),
        )
        for panel in PANELS
    )  # fmt: skip

    def cells(self, quick: bool) -> list[Cell]:
        T, batch, block = (2, 128, 32) if quick else (12, 4096, 4096)
        return [
            {"seed": s, "loss": loss, "iterations": T, "batch": batch, "block": block}
            for loss in LOSSES
            for s in range(1 if quick else SEEDS[loss])
        ]

    def measure(self, cell: Cell) -> Rows:
        """Run the methods for the seconds of DSG."""
        size = Size(cell["block"], cell["batch"], cell["iterations"])
        task = digits(cell["loss"], ROWS, min(5000, cell["batch"]))
        yield from courses(task, PENALTY, size, cell["seed"], tune(task, PENALTY, size, NAMES))

    def plot(self, rows: list[Row], path: Path) -> None:
        labels: dict[str, Any] = {"objective": "training objective", "test": "test error"}
        with picture(path, 1, 3, size=(3.4, 2.9)) as axes:
            for ax, (loss, column) in zip(axes[0], PANELS, strict=True):
                mine = where(rows, loss=loss, seed=0)
                draw(ax, mine, "method", "seconds", column, distinct(mine, "method"))
                ax.set(xscale="log", yscale="log", xlabel="seconds", ylabel=labels[column])
                ax.set_title(LOSSES[loss])
            axes[0][0].legend(fontsize=7)
