"""Figure 1: training objectives on data of medium size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from benchmarks.objectives._shared import distinct, draw, picture, where

from experiments.base import Cell, Claim, Experiment, Row, Rows
from experiments.cdsg import _courses as cdsg

PENALTY, FEW, ITERATIONS = 1e-5, 64, 32
CONVERGED = 5.0  # seconds: SVRG with few frequencies has converged by then
SEEDS = {"mnist": 10, "protein": 60, "a9a": 10}
NAMES = [*SEEDS]


def _claim(kind: str, name: str, text: str, theirs: str, better: str, *worse: str) -> Claim:
    """Return a claim of the objectives at equal time on a data set."""

    def measured(rows: list[Row], *, few: bool) -> list[Row]:
        """Return the rows of the claim, or those of its longest control."""
        mine = where(cdsg.of(rows, kind, "frequencies", control=few), data=name)
        return where(mine, iterations=max((row["iterations"] for row in mine), default=0))

    def gains(rows: list[Row], *, few: bool = False) -> list[float]:
        found = cdsg.ends(measured(rows, few=few), "objective", "data")
        plain = [{m.removesuffix(kind): value for m, value in e.items()} for e in found]
        return [min(np.log(e[w] / e[better]) for w in worse) for e in plain]

    def ours(rows: list[Row]) -> str:
        parts = {"": gains(rows)}
        for row in measured(rows, few=True)[:1] if better == "DSG" else ():
            size = f"{row['frequencies']} frequencies and {row['iterations']} iterations"
            parts[f"; with {size} "] = gains(rows, few=True)
        shown = (f"{t}{100 * np.expm1(np.median(g)):.1f} %" for t, g in parts.items())
        return f"{''.join(shown)} above {better}"

    return Claim(f"{name}: {text}{kind and f' (all three{kind})'}", theirs, ours, gains)


class Objectives(Experiment):
    """UDSG and CDSG lower the training objective faster than DSG and than SVRG.

    Multinomial or logistic regression on MNIST and a9a, ridge regression on protein: Gaussian
    kernel of the median distance, lambda = 1e-5, at most 100 inputs by PCA; SVRG has four times
    the random features of a block. Drawn is the mean training loss against seconds.
    """

    label = "Figure 1"
    cause = "setting"
    departures = f"""
    MNIST (30,000 rows), a9a and protein in place of CIFAR-10, Epsilon and Year, which are not
    among the data; batches of 4,096 rows and blocks of 256 frequencies, 32 iterations of DSG.
    {" ".join(cdsg.STEPS.split())} With a grid that
    begins at twice the library's first step CDSG diverged on protein (not recorded here).
    """
    explanation = """
    SVRG ends on MNIST and a9a at 0.22 and 0.33 with 2,048 features, DSG at 0.58 and 0.37 with
    16,384 (medians). With 64 fixed frequencies in place of 1,024, five seeds, SVRG is still
    ahead of DSG as printed. With the covariance neither is ahead after 32 iterations of DSG (a
    log ratio of -0.038 ± 0.092 on MNIST, 0.011 ± 0.012 on a9a), and DSG is after 64, by 0.233 ±
    0.016 and 0.041 ± 0.012. As printed DSG is ahead of 32 frequencies, with which SVRG no
    longer moves after 5 s, after 128 iterations with the same first step, by 0.456 ± 0.081 and
    0.094 ± 0.041, a rule fixed before: 1,024 frequencies are many for these sets and 32
    iterations few. With 64 on a9a SVRG ends at 0.342, which DSG as printed reached after 224
    iterations of a trial (not recorded here). On protein, where DSG as printed ends after 0.2
    s, SVRG agrees in the mean alone: on 24 of 60 seeds it has not begun, on 36 it has and is 11
    % ahead. CDSG with the covariance, which the paper does not have, takes no longer steps on
    old blocks than on new ones (bound 1) and re-uses hardly any block on MNIST and a9a: in the
    same time it takes as many features as DSG, 16,384 and 16,896, and ends near it, at 0.344
    and 0.337 against 0.352 and 0.338; UDSG, which re-uses every second block, ends at 0.315 and
    0.333. Equation 9, which allows a re-use, has no covariance. On protein sixty seeds, a
    number fixed before, decide that it is ahead, by 0.14 %; as printed it is within 0.17 % of
    the better one."""
    claims: ClassVar = tuple(
        _claim(kind, name, *parts)
        for kind in ("", cdsg.COVARIANCE)
        for parts in (
            (
                "With 4F features SVRG converges to unsatisfactory results: its objective is "
                "above that of DSG at the same time", "above", "DSG", "SVRG",
            ),
            (
                "UDSG generally outperforms DSG: a lower objective at the same time",
                "2 of 3 data sets", "UDSG", "DSG",
            ),
            (
                "CDSG outperforms both DSG and UDSG", "3 of 3 data sets", "CDSG", "DSG", "UDSG",
            ),
        )
        for name in NAMES
    )  # fmt: skip

    def cells(self, quick: bool) -> list[Cell]:
        names = ["a9a"] if quick else NAMES
        rows, iterations = (2000, 4) if quick else (30_000, ITERATIONS)
        plain: list[Cell] = [
            {"seed": seed, "data": name, "rows": rows, "iterations": iterations}
            for name in names
            for seed in range(1 if quick else SEEDS[name])
        ]
        few: list[Cell] = [
            cell | {"frequencies": FEW}
            for cell in plain
            if cell["seed"] < 5 and cell["data"] != "protein"
        ]
        longer: list[Cell] = [cell | {"iterations": 2 * iterations} for cell in few]
        least = [c | {"iterations": 4 * iterations, "frequencies": FEW // 2} for c in few]
        return plain + few + least + [c | {"covariance": True} for c in plain + longer]

    def measure(self, cell: Cell) -> Rows:
        """Run all methods for the seconds of DSG."""
        second, few, n = "covariance" in cell, cell.get("frequencies"), cell["rows"]
        task = cdsg.archive(cell["data"], n, seen=min(5000, n))
        size = cdsg.Size(*((32, 256) if n < 4096 else (256, 4096)), cell["iterations"])
        methods = ("DSG",) if few else (*cdsg.METHODS,)
        if second:
            steps = {m: 1.0 for m in cdsg.PROGRAM if m.removesuffix(cdsg.COVARIANCE) in methods}
            list(cdsg.courses(task, PENALTY, cdsg.Size(32, 256, 2), 0, steps))  # compiles
        else:
            short = replace(size, iterations=min(size.iterations, ITERATIONS))
            steps = cdsg.tune(task, PENALTY, short, methods)
        found = list(cdsg.courses(task, PENALTY, size, cell["seed"], steps))
        limit = where(found, method="DSG" + cdsg.COVARIANCE * second)[-1]["seconds"]
        limit = min(limit, CONVERGED) if few else limit
        found += cdsg.fixed_features(task, few or 4 * size.block, PENALTY, cell["seed"], limit)
        for row in found:
            yield {key: row[key] for key in ("method", "seconds", "features", "objective")}

    def plot(self, rows: list[Row], path: Path) -> None:
        names = distinct(rows, "data")
        with picture(path, 2, len(names), size=(3.4, 2.7)) as axes:
            for below, x in zip(axes, ("seconds", "features"), strict=True):
                for ax, name in zip(below, names, strict=True):
                    mine = [r for r in where(rows, data=name, seed=0) if "frequencies" not in r]
                    mine = [r for r in mine if r["method"] != "SVRG" or "covariance" not in r]
                    draw(ax, mine, "method", x, "objective", distinct(rows, "method"))
                    ax.set(xscale="log", yscale="log", xlabel=x, title=name)
                below[0].set_ylabel("mean training loss")
            shown = axes[0][0].get_legend_handles_labels()
            axes[0][0].figure.legend(*shown, loc="outside right", fontsize=7)
