"""Whether a memory limit is a bound: the peak of every solver, search and prediction."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import ClassVar

from benchmarks.objectives._shared import report
from benchmarks.registry import Objective, Row

ALLOWED = 1.1  # of the limit


def measured(case: Row, seconds: float = 600.0) -> Row:
    """Return what a process of its own says of one case, once nothing is compiled in it."""
    for _ in range(3):
        lines, end = report("_limits_case", case, limit=seconds)
        if end or not lines[-1].get("compiled"):
            break
    found = {"refused": end} if end else lines[-1]
    MB = found.setdefault("MB", None)
    named = "at least" in found.get("refused", "")  # what ends otherwise holds nothing
    return case | found | {"holds": named if MB is None else ALLOWED * case["limit"] >= MB}


class Limits(Objective):
    """Peak resident memory above the data, of one call in a process of its own.

    The call was made before on 2,500 rows, so that loops are compiled and loaded. A case that
    refuses to start shows why.
    """

    name: ClassVar[str] = "limits"
    repeat: ClassVar[int] = 1

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rows", type=int, nargs="+", default=[100_000])
        parser.add_argument("--columns", type=int, default=30)
        parser.add_argument("--limits", type=float, nargs="+", default=[100.0, 300.0, 1000.0])
        parser.add_argument("--threads", type=int, default=None)
        parser.add_argument("--cases", nargs="+", default=None, help="parts of names")

    def page(self, tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
        """Return the MB of each case under each limit, in bold those that do not hold it."""
        rows = tables["limits"]
        empty = {f"limit {limit:g}": "" for limit in sorted({row["limit"] for row in rows})}
        found: dict[tuple[str, int], Row] = {}
        for row in rows:
            line = {"fit": row["name"], "rows": row["rows"], **empty}
            line = found.setdefault((row["name"], row["rows"]), line)
            MB = "refused" if row["MB"] is None else f"{row['MB']:.0f}"
            line[f"limit {row['limit']:g}"] = MB if row["holds"] else f"**{MB}**"
        return {"MB above the data": list(found.values())}

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        from benchmarks.objectives._limits_case import CASES

        names = ["predict"] if args.quick else list(CASES)
        for name in names:
            if args.cases and not any(part in name for part in args.cases):
                continue
            for rows in [3000] if args.quick else args.rows:
                for limit in args.limits[:1] if args.quick else args.limits:
                    case: Row = {"name": name, "rows": rows, "columns": args.columns}
                    case |= {"limit": limit}
                    if args.threads is not None:
                        case["threads"] = args.threads
                    yield "limits", measured(case)
