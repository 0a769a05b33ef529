"""Figure 7(1): ten digits, by random convolutions on deformed images."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from benchmarks.datasets.archives import Mnist
from benchmarks.objectives._shared import distinct, where

from experiments.base import Cell, Claim, Experiment, Row, Rows, by_seed, panel
from experiments.images import DeformedImages
from kernelgrad import DSG, KernelClassifier
from kernelgrad.kernels import ConvolutionKernel

PAPER, NETWORK, PAPER_ROWS = 0.5, 0.6, 8_100_000  # percent
ALPHA, BATCH = 1e-7, 8192
HALF = 2**18  # rows with half the features too
GOAL, MOST = 0.8, 2**20  # percent, and the rows that it was set for


def _whole(rows: list[Row]) -> list[Row]:
    """Return the rows with the features of the claims, for numbers of rows of every seed."""
    rows = where(rows, features=max(r["features"] for r in rows))
    seeds = len(distinct(rows, "seed"))
    return [r for r in rows if len(where(rows, rows=r["rows"])) == seeds]


def _line(mine: list[Row]) -> Any:
    """Return slope and intercept of log error over log rows."""
    return np.polyfit(*(np.log([r[k] for r in mine]) for k in ("rows", "error")), 1)


def _at_paper(rows: list[Row], points: int = 0) -> list[float]:
    """Return for each seed the error in percent that the line promises at 8.1 million rows.

    The line is that of the last `points` numbers of rows, by default of all.
    """
    sizes = sorted(distinct(_whole(rows), "rows"))[-points:]
    late = [r for r in _whole(rows) if r["rows"] in sizes]
    return by_seed(late, lambda mine: np.exp(np.polyval(_line(mine), np.log(PAPER_ROWS))))


def _last(rows: list[Row]) -> list[float]:
    return by_seed(_whole(rows), lambda mine: max(mine, key=lambda row: row["rows"])["error"])


class DigitsByConvolution(Experiment):
    """Doubly SGD has half a percent of errors on ten digits, given millions of rows.

    Multinomial logistic regression on deformed MNIST digits, each row seen once; the error on
    MNIST's test digits against the rows seen, and the straight line in logarithms that leads
    to the paper's 8.1 million.
    """

    label = "Figure 7(1)"
    cause = "setting"
    kind = "level"
    departures = f"""
    Random convolutions (Section 2; kernel of 5 x 5 patches, pooled 3 x 3, half the median
    distance of patches) in place of a Gaussian kernel on the features of a trained network.
    The library's deformed digits in place of MNIST8M. At most 2^14 features, by
    preconditioned steps with batches of {BATCH:,} rows; each number of rows is a fit of its
    own. All three seeds, of half an hour each, go as far as 2^19 rows; of the fits on 2^20,
    for which the goal of {GOAL} % was set, the first has been made, and counts in no claim.
    No neural network beside it.
    """
    explanation = """
    Features are too few, and so are rows. On 2^18 rows 2^14 features have 1.32 % where half as
    many have 1.67 % (medians); with 2^14 features the error falls to 1.17 % with 2^19 rows,
    less than a fifteenth of the paper's 8.1 million. The first seed goes on from 1.13 to 1.06 %
    on 2^20 rows, which points to the features. Whether more of both lead to 0.5 % is open: the
    line of all points says so, but up to 2^17 rows more rows bring more features too, and from
    there on the error falls more slowly."""
    claims: ClassVar = (
        Claim(
            f"With the most rows the error is below {GOAL} %",
            f"{PAPER} % after 8.1 million rows",
            lambda rows: (
                f"{np.median(_last(rows)):.2f} % after {max(r['rows'] for r in _whole(rows)):,}"
            ),
            lambda rows: [np.log(GOAL / max(e, 0.01)) for e in _last(rows)],
        ),
        Claim(
            f"At 8.1 million rows the line is at {PAPER} %, or below", f"{PAPER} %",
            lambda rows: f"{np.median(_at_paper(rows)):.2f} %",
            lambda rows: [np.log(PAPER / e) for e in _at_paper(rows)],
        ),
        Claim(
            "So is the line of the last three points, which have as many features",
            f"{PAPER} %", lambda rows: f"{np.median(_at_paper(rows, 3)):.2f} %",
            lambda rows: [np.log(PAPER / e) for e in _at_paper(rows, 3)],
        ),
    )  # fmt: skip

    def cells(self, quick: bool) -> list[Cell]:
        sizes, features = (
            ([2**8, 2**9], 256) if quick else ([2**k for k in range(14, 20)] + [MOST], 2**14)
        )
        seeds = range(1 if quick else 3)
        half = [{"seed": s, "rows": HALF, "features": features // 2} for s in seeds]
        return (half if not quick else []) + [
            {"seed": seed, "rows": n, "features": features}
            for n in sizes
            for seed in seeds
            if n < MOST or seed == 0
        ]

    def measure(self, cell: Cell) -> Rows:
        """Fit on rows that are made when they are needed."""
        data, n, seed = Mnist().load(), cell["rows"], cell["seed"]
        images = data.X_train.reshape(-1, 28, 28)
        source = DeformedImages(images, data.y_train, n_rows=len(images) + n, seed=seed)
        size = min(BATCH, n // 4)
        model = KernelClassifier(
            "log_loss", kernel=ConvolutionKernel((28, 28), bandwidth_factor=0.5), alpha=ALPHA,
            solver=DSG(batch_size=size, max_features=cell["features"]), standardize=False,
            metric=None, random_state=seed,
        )  # fmt: skip
        start = time.process_time()
        for a in range(0, n, size):
            batch = source.read(len(images) + a, len(images) + a + size)
            model.partial_fit(batch.X, batch.y, classes=np.arange(10))
        seconds = time.process_time() - start
        rows = 1000 if n < 2**10 else None
        error = 100 * (1 - model.score(data.X_test[:rows], data.y_test[:rows]))
        yield {"error": error, "seconds": seconds, "used": model.n_random_features_}

    def plot(self, rows: list[Row], path: Path) -> None:
        with panel(path, size=(4.6, 3.4)) as ax:
            most = max(r["features"] for r in rows)
            for name, mark in (("here", "C0."), ("here, half the features", "C1x")):
                found = [r for r in rows if (r["features"] == most) == (name == "here")]
                ax.plot(
                    [r["rows"] for r in found], [r["error"] for r in found], mark, label=name
                )
            mine = where(_whole(rows), seed=0)
            n = np.array([min(r["rows"] for r in rows), PAPER_ROWS])
            ax.plot(n, np.exp(np.polyval(_line(mine), np.log(n))), "C0:", lw=0.8)
            ax.plot(PAPER_ROWS, PAPER, "k*", label="doubly SGD, paper")
            ax.plot(PAPER_ROWS, NETWORK, "k^", label="neural networks, paper")
            ax.set(
                xscale="log", yscale="log", xlabel="rows seen", ylabel="test error in percent"
            )
            ax.legend(fontsize=7)
