"""Table 3: training errors at the time at which LIBSVM converges."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from benchmarks.objectives._shared import picture, where
from sklearn.svm import SVC

from experiments.base import Cell, Claim, Experiment, Row, Rows
from experiments.cdsg import _courses as cdsg
from kernelgrad import DSG

PENALTY, NAMES = 1e-5, ("DSG", "UDSG", "CDSG")
PAPERS_C = {"a9a": 0.25, "mnist": 1.67}  # C of Epsilon (two classes too) and CIFAR-10
LONG = 32  # times LIBSVM's seconds in the control, with the paper's C
CLOSE = 0.021  # the largest difference of the paper's table, 0.407 - 0.386


def _claims(data: str, kind: str) -> tuple[Claim, Claim]:
    """Return both claims of a data set, as printed or with the covariance."""
    names = [name + kind for name in NAMES]

    def excess(
        rows: list[Row], choose: Any, *, control: bool = False, times: int = 1
    ) -> list[float]:
        mine = where(cdsg.of(rows, kind, "C", control=control), data=data)
        mine = [row for row in mine if row.get("times", 1) == times]
        found = cdsg.ends(mine, "train", "data")
        return [choose(e[m] for m in names) - e["LIBSVM"] for e in found]

    def shown(choose: Any) -> Callable[[list[Row]], str]:
        def text(rows: list[Row]) -> str:
            out = f"{np.median(excess(rows, choose)):.4f} above"
            same = f"; with the paper's C, {PAPERS_C[data]:g}:"
            for times, what in ((1, same), (LONG, f", after {LONG} times as long")):
                found = excess(rows, choose, control=True, times=times)
                out += f"{what} {np.median(found):.4f}" if found else ""
            return out

        return text

    return Claim(
        f"{data}: exact optimisation is preferable: LIBSVM's training error is less than that "
        f"of the three{kind}",
        "0.386 against 0.402, 0.143 against 0.145", shown(min),
        lambda rows: excess(rows, min),
    ), Claim(
        f"{data}: all three{kind} are satisfactory by then: at most {CLOSE} above LIBSVM",
        "0.016 to 0.021, and 0.002 to 0.003", shown(max),
        lambda rows: [CLOSE - e for e in excess(rows, max)], kind="level",
        cause="open" if (data, kind) == ("mnist", "") else "setting",
    )  # fmt: skip


class ExactSolver(Experiment):
    """When LIBSVM has converged, DSG and its kin are near its training error, and above it.

    Kernel SVM on a9a and MNIST: Gaussian kernel of the median distance, lambda = 1e-5, so that
    C = 1 / (lambda n); 100 inputs by PCA. The errors on 5,000 of the training rows.
    """

    label = "Table 3"
    departures = f"""
    a9a and MNIST, 8,000 rows each, in place of CIFAR-10 and Epsilon. LIBSVM trains one-vs-one
    and the others one-vs-rest, as they do on one set of two classes alike. Batches of 1,024
    rows and blocks of 128 frequencies. {" ".join(cdsg.STEPS.split())}
    """
    explanation = """
    With 8,000 rows lambda = 1e-5 is C = 12.5; with the paper's 60,000 and 400,000 it is 1.67
    and 0.25. The larger C is, the more rows the exact solution fits that few iterations do not.
    With the paper's C, and all else the same, the claim holds by .0166 ± .0011 on a9a as
    printed and by .0140 ± .0025 on MNIST with the covariance; on MNIST as printed it fails by
    .0655 ± .0081, and with 32 times LIBSVM's seconds, which are half a second here and hours in
    the paper, still by .0205 ± .0010: time has a part in it, what else plain steps lack is
    open. With the covariance and C = 0.25 all three are below LIBSVM on a9a, as these steps
    penalise less than the objective says. There, with C = 12.5, thirty seeds decide narrowly
    what twelve did not."""
    claims: ClassVar = tuple(
        claim
        for kind in ("", cdsg.COVARIANCE)
        for data in ("a9a", "mnist")
        for claim in _claims(data, kind)
    )

    def cells(self, quick: bool) -> list[Cell]:
        every: list[Cell] = [
            {"seed": s, "data": name, "rows": 500 if quick else 8000}
            for s in range(1 if quick else 5)
            for name in (["a9a"] if quick else ["a9a", "mnist"])
        ]
        more = [] if quick else [every[0] | {"seed": s} for s in range(5, 30)]
        every += [cell | {"covariance": True} for cell in every + more]
        same = [cell | {"C": PAPERS_C[cell["data"]]} for cell in every if cell["seed"] < 5]
        plain = [c for c in same if c["data"] == "mnist" and "covariance" not in c]
        return every + same + [cell | {"times": LONG} for cell in plain]

    def measure(self, cell: Cell) -> Rows:
        """Fit LIBSVM, and run the methods for its seconds."""
        n = cell["rows"]
        task = cdsg.archive(cell["data"], n, seen=min(5000, n), loss="hinge")
        batch = task.whole(task.source.read(0, n))
        penalty = 1 / (cell["C"] * n) if "C" in cell else PENALTY
        kernel = DSG.paper(nu=penalty)["kernel"].resolve(batch.X, cell["seed"])
        y = batch.y[:, 0] if batch.y.shape[1] == 1 else batch.y.argmax(axis=1)
        truth = task.y[:, 0] if task.y.shape[1] == 1 else task.y.argmax(axis=1)
        svm = SVC(C=1 / (penalty * n), gamma=kernel.gamma, cache_size=500)
        start = time.process_time()
        svm.fit(batch.X, y)
        limit = (time.process_time() - start) * cell.get("times", 1)
        error = float(np.mean(svm.predict(task.X) != truth))
        yield {"method": "LIBSVM", "seconds": limit, "train": error}
        size = cdsg.Size(8, 64, 4) if n < 1000 else cdsg.Size(128, 1024, 24)
        if cell.get("covariance"):
            steps = dict.fromkeys(cdsg.PROGRAM, 1.0)
            list(cdsg.courses(task, penalty, cdsg.Size(8, 64, 2), 0, steps))  # compiles
        else:
            steps = cdsg.tune(task, penalty, size, NAMES)
        for row in cdsg.courses(task, penalty, size, cell["seed"], steps, limit):
            yield {key: row[key] for key in ("method", "seconds", "train")}

    def plot(self, rows: list[Row], path: Path) -> None:
        names = sorted({row["data"] for row in rows})
        with picture(path, 1, len(names), size=(3.6, 2.9)) as axes:
            for ax, name in zip(axes[0], names, strict=True):
                mine = where(cdsg.of(rows, "", "C"), data=name, seed=0)
                for i, method in enumerate(NAMES):
                    points = [(r["seconds"], r["train"]) for r in where(mine, method=method)]
                    ax.plot(*zip(*points, strict=True), ".-", color=f"C{i}", label=method)
                exact = where(mine, method="LIBSVM")[0]
                ax.plot(exact["seconds"], exact["train"], "k*", label="LIBSVM")
                ax.axhline(exact["train"], color="k", lw=0.6, ls=":")
                ax.set(xscale="log", yscale="log", xlabel="seconds", title=name)
                ax.set_ylabel("training error")
                ax.legend(fontsize=7)
