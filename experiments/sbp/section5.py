"""Section 5: the time of LIBSVM."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from benchmarks.objectives._shared import distinct, picture, where
from sklearn.base import clone
from sklearn.svm import SVC

from experiments.base import Cell, Claim, Experiment, Row, Rows, by_seed
from experiments.sbp._libsvm import load, percent, predict_libsvm
from experiments.sbp._machine import SETS
from kernelgrad import KernelClassifier, get_num_threads, set_num_threads
from kernelgrad.callbacks import Callback
from kernelgrad.solvers import StochasticBatchPerceptron

PAPER, MANY, LIBSVM = "SBP", "SBP, m = 32", "LIBSVM"
# sigma^2, 1 / (n lambda) and nu of Table 2 with a bias; points that SBP may have more, and why
BIASED = {
    "adult": (100.0, 100.0, 5.79e-4, 0.1, "15.0 % against 14.9 %"),
    "mnist": (25.0, 1000.0, 6.42e-11, 0.02, "0.46 % against 0.44 %"),
}
QUARTER = 0.25


class _CPULimit(Callback):
    """Ends a fit after so many seconds of the processor."""

    def __init__(self, seconds: float) -> None:
        self.end = time.process_time() + seconds

    def on_iteration(self, event: Any) -> bool:
        return time.process_time() > self.end


def _excess(rows: list[Row], name: str, method: str) -> list[float]:
    """Return by how many points SBP is above LIBSVM after a quarter of its time."""

    def quarter(mine: list[Row]) -> float:
        (one,) = where(mine, method=method, share=QUARTER)
        (other,) = where(mine, method=LIBSVM)
        return float(one["error"] - other["error"])

    return by_seed(where(rows, dataset=name), quarter)


def _claim(name: str, method: str) -> Claim:
    *_, most, theirs = BIASED[name]
    return Claim(
        f"{name}: in a quarter of LIBSVM's time the error of {method} is at most {most:g} "
        "points above that of LIBSVM's solution",
        theirs,
        lambda rows: f"{np.mean(_excess(rows, name, method)):+.2f} points",
        lambda rows: [most - e for e in _excess(rows, name, method)],
    )


class Timings(Experiment):
    """SBP in parts of the time that LIBSVM takes, with a bias.

    Parameters of Table 2 with a bias; nu of Adult is that of LIBSVM's solution on these rows,
    MNIST (8 against the rest) is separable and has the nu of the table. Both methods have one
    thread. LIBSVM (scikit-learn's SVC, 2 GB of cache) runs until it converges, SBP for parts
    of its seconds; a second SBP samples 32 rows an update.
    """

    label = "Section 5"
    cause = "setting"
    kind = "level"
    departures = """
    All rows of the a9a file for Adult, 10,000 random rows of 60,000 of MNIST. Seconds are those
    of the processor, not of a clock: the machine was busy. LIBSVM, which draws nothing, runs
    once. Eight seeds of Adult, where three had not decided, ten of MNIST. Forest is not at
    hand."""
    explanation = """
    On Adult it is what a row at a time costs here: a kernel row by itself is bound by memory
    and by the calls of an update, which the authors' compiled program does not have. The same
    solver with 32 rows an update, whose kernel rows are one matrix product, agrees. On MNIST
    LIBSVM is done within four seconds, with some 1,500 support rows of these 10,000, where the
    paper's took 1,980 with 60,000 rows. In a quarter of that SBP has drawn 250 rows, and with
    32 rows an update 6,300, which closes two thirds of the distance: neither has visited each
    row once."""
    claims: ClassVar = tuple(
        _claim(name, method) for method in (PAPER, MANY) for name in BIASED
    )

    def cells(self, quick: bool) -> list[Cell]:
        sizes = {"adult": (None, 8), "mnist": (10_000, 10)}
        return [
            {"seed": 0, "dataset": name} | dict(zip(("rows", "seeds"), pair, strict=True))
            for name, pair in (dict.fromkeys(SETS, (200, 2)) if quick else sizes).items()
        ]

    def measure(self, cell: Cell) -> Rows:
        """Return the error of LIBSVM and those of SBP in parts of its time."""
        name = cell["dataset"]
        square, C, nu, *_ = BIASED[name]
        p = load(SETS[name][0], cell["rows"], 300 if cell["rows"] == 200 else None)
        svc, start = SVC(C=C, gamma=1 / (2 * square), cache_size=2000), time.process_time()
        svc.fit(p.X, p.y)
        seconds = time.process_time() - start
        error = percent(p.y_test, predict_libsvm(svc, p.X_test))
        if name == "adult":
            nu = _slack(svc, p)
        threads = get_num_threads()
        set_num_threads(1)
        preset = StochasticBatchPerceptron.paper(nu, sigma=square**0.5, bias=True)
        solvers = {PAPER: preset["solver"], MANY: clone(preset["solver"])}
        solvers[PAPER].round_size = solvers[MANY].round_size = 64  # looks at the time
        solvers[MANY].batch_size = 32
        for seed in range(cell["seeds"]):
            yield {
                "seed": seed, "method": LIBSVM, "share": 1.0, "seconds": seconds,
                "error": error, "rows drawn": len(svc.support_),
            }  # fmt: skip
            for method, solver in solvers.items():
                model = KernelClassifier(
                    "hinge", **preset | {"solver": solver}, random_state=seed
                )
                model.set_params(max_iter=1).fit(p.X[:200], p.y[:200])  # compiles
                model.set_params(max_iter=10**6)
                for share in (QUARTER / 4, QUARTER):
                    start = time.process_time()
                    model.set_params(callbacks=_CPULimit(share * seconds)).fit(p.X, p.y)
                    yield {
                        "seed": seed, "method": method, "share": share,
                        "seconds": time.process_time() - start,
                        "error": percent(p.y_test, model.predict(p.X_test)),
                        "rows drawn": model.history_["rows_seen"][-1],
                    }  # fmt: skip
        set_num_threads(threads)

    def plot(self, rows: list[Row], path: Path) -> None:
        names = distinct(rows, "dataset")
        with picture(path, 1, len(names), size=(4, 3.4)) as axes:
            for ax, name in zip(axes[0], names, strict=True):
                for i, method in enumerate((PAPER, MANY, LIBSVM)):
                    mine = where(rows, dataset=name, method=method)
                    shares = distinct(mine, "share")
                    errors = [[r["error"] for r in where(mine, share=s)] for s in shares]
                    ax.plot(
                        shares, [np.mean(e) for e in errors], "o-", color=f"C{i}", label=method
                    )
                    for s, e in zip(shares, errors, strict=True):
                        ax.plot([s] * len(e), e, ".", color=f"C{i}", ms=3)
                ax.axvline(QUARTER, color="grey", lw=0.8, ls=":")
                ax.set(
                    xscale="log", xlabel="time / time of LIBSVM", ylabel="test error, %",
                    title=name,
                )  # fmt: skip
            axes[0][0].legend(fontsize=8)


def _slack(svc: Any, p: Any) -> float:
    """Return mean hinge loss over norm of LIBSVM's solution."""
    f = svc.decision_function(p.X)
    dual = svc.dual_coef_
    a = np.ravel(dual.toarray() if sp.issparse(dual) else dual)
    norm = np.sqrt(a @ (f[svc.support_] - svc.intercept_[0]))
    sign = np.where(p.y > 0, 1.0, -1.0)
    return float(np.maximum(0, 1 - sign * f).mean() / norm)
