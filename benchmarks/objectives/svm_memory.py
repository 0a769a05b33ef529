"""Whether an exact kernel machine stays within its memory limit."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import ClassVar

from benchmarks.objectives._shared import answer, middle_row
from benchmarks.registry import Objective, Row


class SVMMemory(Objective):
    """Peak resident memory above the data, seconds, and whether the model is the same.

    100,000 generated rows of 50 columns, whose kernel matrix would be 40 GB. Each limit has a
    process of its own, which first compiles on few rows and then forgets its peak so far.
    "same" compares the decisions on 2,000 rows, bit for bit, with those of the first limit.
    """

    name: ClassVar[str] = "svm_memory"
    repeat: ClassVar[int] = 1

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add sizes and limits."""
        parser.add_argument("--rows", type=int, default=100_000)
        parser.add_argument("--limit", type=float, nargs="+", default=[500e6, 200e6, 2e9])
        parser.add_argument("--max-iter", type=int, default=10, help="fortieths of the rows")
        parser.add_argument("--threads", type=int, default=2)

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take the limits in turn in every repeat."""
        case = {"kind": "memory", "rows": 3000 if args.quick else args.rows,
                "max_iter": 40 if args.quick else args.max_iter,
                "threads": args.threads}  # fmt: skip
        limits = [60e6, 8e6] if args.quick else args.limit
        found: dict[float, list[Row]] = {limit: [] for limit in limits}
        for _ in range(args.repeat):
            for limit, results in found.items():
                results.append(answer("_svm", case | {"limit": limit}))
        first = found[limits[0]][0]["digest"]
        for results in found.values():
            row = middle_row(results)
            del row["digest"]
            same = all(r["digest"] == first for r in results)
            yield "peak memory", {"rows": case["rows"]} | row | {"same": same}
