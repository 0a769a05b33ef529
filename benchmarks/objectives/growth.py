"""Whether seconds and memory of default fits grow evenly, and what a time limit leaves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import ClassVar

from benchmarks.objectives import _shared
from benchmarks.registry import Objective, Row

# NAMES of _growth_case, which imports the package
SIZES = [int(round(1000 * 100 ** (k / 17), -2)) for k in range(18)]


class Growth(Objective):
    """Default fits to the function of ten columns, each in a process of its own.

    Part ``sizes``: from 1,000 to 100,000 rows, each size 1.3 times the one before, with noise
    and without; `times` are seconds and bytes over those of the size before, which should lie
    within 2/3 and 2.5. Part ``seconds``: each estimator under time limits; `over` is what a fit
    takes beyond 1.15 of its limit, which should be at most .3 s, and no model is a constant.
    """

    name: ClassVar[str] = "growth"
    repeat: ClassVar[int] = 1

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--part", nargs="+", default=["sizes", "seconds"])
        parser.add_argument("--rows", type=int, nargs="+", default=None)
        parser.add_argument("--noise", type=float, nargs="+", default=[0.1, 0.0])
        parser.add_argument("--limits", type=float, nargs="+", default=[0.3, 0.5, 1.0, 2.0])
        parser.add_argument("--estimators", nargs="+", default=None)
        parser.add_argument("--cold", action="store_true", help="imports and loading count")

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        if "sizes" in args.part:
            for noise in args.noise:
                yield from self._sizes(args, noise)
        if "seconds" in args.part:
            yield from self._limited(args)

    def _sizes(self, args: argparse.Namespace, noise: float) -> Iterator[tuple[str, Row]]:
        before: Row = {}
        for n in args.rows or ([1000, 1300] if args.quick else SIZES):
            case: Row = {"rows": n, "noise": noise, "time_limit": None, "warm": True}
            runs = []
            for _ in range(args.repeat):
                runs += _shared.report(
                    "_growth_case", case | {"estimator": "regressor"}, limit=400
                )[0]
            if not runs:
                continue
            best: Row = {
                **runs[0],
                **{k: min(r[k] for r in runs) for k in ("seconds", "cpu", "MB")},
            }
            times = {f"{k} times": best[k] / before[k] for k in ("cpu", "MB") if before}
            before = best
            yield f"noise {noise:g}", {"rows": n} | best | times

    def _limited(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        from benchmarks.objectives._growth_case import NAMES

        for name in args.estimators or (["regressor"] if args.quick else NAMES):
            for n in args.rows or ([1000] if args.quick else [10_000, 50_000]):
                for limit in args.limits:
                    case: Row = {
                        "estimator": name,
                        "rows": n,
                        "time_limit": limit,
                        "noise": 0.1,
                    }
                    lines, end = _shared.report(
                        "_growth_case", case | {"warm": not args.cold}, limit=300
                    )
                    row: Row = lines[-1] if lines else {"error": end}
                    if lines:
                        row["over"] = row["seconds"] - 1.15 * limit
                    yield "seconds", case | row
