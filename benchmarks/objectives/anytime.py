"""Whether seconds and memory of default fits grow evenly, and what a time limit leaves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import ClassVar

from benchmarks.objectives import _shared
from benchmarks.registry import Objective, Row

# NAMES of _anytime_case, which imports the package
SIZES = [int(round(1000 * 100 ** (k / 17), -2)) for k in range(18)]


class Anytime(Objective):
    """Default fits to the function of ten columns, each in a process of its own.

    Part ``sizes``: from 1,000 to 100,000 rows, each size 1.3 times the one before, with noise
    and without; `times` are seconds and bytes over those of the size before, which should lie
    within 2/3 and 2.5. Part ``seconds``: each estimator under time limits; `over` is what a fit
    takes beyond 1.15 of its limit, which should be at most .3 s, and no model is a constant.
    """

    name: ClassVar[str] = "anytime"
    repeat: ClassVar[int] = 1

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--part", nargs="+", default=["sizes", "seconds"])
        parser.add_argument("--rows", type=int, nargs="+", default=None)
        parser.add_argument("--noise", type=float, nargs="+", default=[0.1, 0.0])
        parser.add_argument("--limits", type=float, nargs="+", default=[0.3, 0.5, 1.0, 2.0])
        parser.add_argument("--estimators", nargs="+", default=None)

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        from benchmarks.objectives._anytime_case import NAMES

        for noise in args.noise if "sizes" in args.part else ():
            before: Row = {}
            for n in args.rows or ([1000, 1300] if args.quick else SIZES):
                case = {"estimator": "regressor", "rows": n, "noise": noise, "time_limit": None}
                runs = [row for _ in range(args.repeat) for row in measured(case)]
                if runs:
                    least = {k: min(run[k] for run in runs) for k in ("seconds", "cpu", "MB")}
                    times = {f"{k} times": least[k] / before[k] for k in before}
                    before = least
                    yield f"noise {noise:g}", {"rows": n} | runs[0] | least | times
        for name in (args.estimators or NAMES) if "seconds" in args.part else ():
            for n in args.rows or ([1000] if args.quick else [10_000, 50_000]):
                for limit in args.limits:
                    case = {"estimator": name, "rows": n, "noise": 0.1, "time_limit": limit}
                    for row in measured(case):
                        over = {"over": row["seconds"] - 1.15 * limit}
                        yield "seconds", case | row | over


def measured(case: Row) -> list[Row]:
    return _shared.report("_anytime_case", case, limit=400)[0]
