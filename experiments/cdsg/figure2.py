"""Figure 2: training objective and test error on 8.1 million digits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from benchmarks.datasets.archives import Mnist
from benchmarks.objectives._shared import distinct, draw, picture, where
from benchmarks.registry import Row

from experiments.base import Cell, Claim, Experiment
from experiments.cdsg._courses import (
    MOST,
    STEPS,
    Size,
    Task,
    automatic,
    courses,
    ends,
    follow,
    preset,
    principal,
    tune,
)
from experiments.images import DeformedImages

PENALTY, ROWS, PCA_ROWS = 1e-6, 8_100_000, 10_000
NAMES = ["DSG", "UDSG", "CDSG"]
LOSSES = {"log_loss": "logistic regression", "hinge": "SVM"}
PANELS = [("log_loss", "objective"), ("log_loss", "test"), ("hinge", "test")]
NARROW = {"iterations": 400, "batch": 512, "block": 16, "seen": 5000}  # few new frequencies
FACTOR = 2.0  # the common step of the control, in units of the automatic one


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


def _tuned(rows: list[Row]) -> list[Row]:
    """Return the rows of the figure, without those of the control."""
    return [row for row in rows if "factor" not in row]


def _gains(rows: list[Row], better: str, worse: str, panels: Any = PANELS) -> list[float]:
    """Return log ratios at the last rows, for the panels and seeds."""
    return [
        np.log(e[worse] / e[better])
        for loss, column in panels
        for e in ends(where(rows, loss=loss), column, "loss")
    ]


def _percent(gains: list[float]) -> str:
    percent = round(100 * float(np.expm1(np.median(gains))), 1) + 0.0  # no -0.0
    return f"{percent:.1f} % in {len(gains)} curves"


def _control(rows: list[Row]) -> str:
    """Tell by how much UDSG is behind DSG with the same step, at equal iterations and time."""
    mine = [row for row in rows if "factor" in row]
    text = ""
    for T in distinct(mine, "iterations"):
        at = {
            name: _percent(_gains(where(mine, at=name, iterations=T), "DSG", "UDSG"))
            for name in ("iterations", "seconds")
        }
        text += (
            f"; with the same step for both, {T} iterations: {at['iterations']} at equal "
            f"iterations, {at['seconds']} at equal time"
        )
    return text


def _claim(
    text: str, theirs: str, panel: tuple[str, str], *pairs: tuple[str, str],
    control: bool = False,
) -> Claim:  # fmt: skip
    def least(rows: list[Row]) -> list[float]:
        found = [_gains(_tuned(rows), *pair, panels=[panel]) for pair in pairs]
        return [min(gains) for gains in zip(*found, strict=True)]

    return Claim(
        text, theirs,
        lambda rows: _percent(least(rows)) + (_control(rows) if control else ""), least,
    )  # fmt: skip


def _same_step(task: Task, size: Size, cell: Cell) -> Iterator[Row]:
    """Yield where methods with one step are after DSG's iterations, and after its seconds."""
    step, limit = cell["factor"] * automatic(task, PENALTY, size), np.inf
    for name in NAMES:  # compiles
        follow(task, preset(name, PENALTY, size, step), cell["seed"], 3)
    for name in NAMES:
        most = size.iterations if name == "DSG" else MOST
        rows = follow(task, preset(name, PENALTY, size, step), cell["seed"], most, limit)
        limit = rows[-1]["seconds"] if name == "DSG" else limit
        for at, place in {"iterations": size.iterations - 1, "seconds": -1}.items():
            yield {"method": name, "at": at} | rows[min(place, len(rows) - 1)]


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
    iterations of DSG, so that a run sees 49,152 of the 8.1 million rows; two seeds. The SVM is
    one-vs-rest, not one-vs-one. Objective and errors are of 5,000 rows.
    {" ".join(STEPS.split())}
    """
    explanation = """
    The steps are most of the lead of UDSG, cheaper iterations the rest. With the same step for
    both, twice the automatic one, and all else as in the figure (12 iterations), the two are
    alike at equal iterations, and UDSG is ahead by 4.5 % at equal time, as it has half the
    features, and not by 29.8 %. The steps that are best on the trial are so large that the
    objective rises at times, and DSG ends worse with its own. Smaller batches and blocks change
    little (100 iterations with 1,024 rows and 256 frequencies). The worse bound of UDSG shows
    at equal iterations where there are few new frequencies in each (400 iterations with 512
    rows and 16 frequencies, both seeds): it is behind by 0.5 %, and ahead by 2.2 % at equal
    time. No control has it behind at equal time.
    """
    claims: ClassVar = (
        *(
            _claim(
                f"CDSG consistently outperforms the other two at the same time: {column}, "
                f"{LOSSES[loss]}",
                "ahead in 3 of 3 panels", (loss, column), ("CDSG", "DSG"), ("CDSG", "UDSG"),
            )
            for loss, column in PANELS
        ),
        *(
            _claim(
                "UDSG does not perform as well as in Figure 1: it is not ahead of DSG: "
                f"{column}, {LOSSES[loss]}",
                "behind", (loss, column), ("DSG", "UDSG"), control=column == "objective",
            )
            for loss, column in PANELS
        ),
    )  # fmt: skip

    def cells(self, quick: bool) -> list[Cell]:
        T, batch, block = (2, 128, 32) if quick else (12, 4096, 4096)
        cells = [
            {"seed": s, "loss": loss, "iterations": T, "batch": batch, "block": block}
            for s in range(1 if quick else 2)
            for loss in LOSSES
        ]
        small = {"iterations": 2 if quick else 100, "batch": 128 if quick else 1024}
        small |= {"block": 32 if quick else 256}
        first = [cell for cell in cells if cell["seed"] == 0]
        control = {"factor": FACTOR}
        narrow = {"iterations": 2, "batch": 64, "block": 16} if quick else NARROW
        cells += [cell | size | control for size in (small, {}) for cell in first]
        return cells + [cell | narrow | control for cell in cells if "factor" not in cell]

    def measure(self, cell: Cell) -> Iterator[Row]:
        """Run the methods for the seconds of DSG."""
        size = Size(cell["block"], cell["batch"], cell["iterations"])
        task = digits(cell["loss"], ROWS, cell.get("seen", min(5000, cell["batch"])))
        if "factor" in cell:
            yield from _same_step(task, size, cell)
            return
        yield from courses(task, PENALTY, size, cell["seed"], tune(task, PENALTY, size, NAMES))

    def plot(self, rows: list[Row], path: Path) -> None:
        labels: dict[str, Any] = {"objective": "training objective", "test": "test error"}
        with picture(path, 1, 3, size=(3.4, 2.9)) as axes:
            for ax, (loss, column) in zip(axes[0], PANELS, strict=True):
                mine = where(_tuned(rows), loss=loss, seed=0)
                draw(ax, mine, "method", "seconds", column, distinct(mine, "method"))
                ax.set(xscale="log", yscale="log", xlabel="seconds", ylabel=labels[column])
                ax.set_title(LOSSES[loss])
            axes[0][0].legend(fontsize=7)
