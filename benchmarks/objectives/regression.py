"""Did anything become slower? This tree and another one, fit by fit.

Each tree has one process with nothing but its own source on ``PYTHONPATH``. After unmeasured
runs, which compile, both fit the same problem in turns, the first of them changing, so that
what else the machine does meets both. Tables hold medians, and the median ratio of neighbours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from benchmarks.registry import Objective, Row, SkipError

HERE = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("_regression_worker.py")
ROWS, QUICK_ROWS = 2000, 40
WARM_RUNS = 2


class Worker:
    """A process that times fits of one tree."""

    def __init__(self, tree: Path, n: int, stack: ExitStack) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        environment["PYTHONPATH"] = str(tree / "src")
        command = [sys.executable, "-P", str(WORKER), str(n)]
        self._process = stack.enter_context(
            subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(self._process.stdin.close)  # type: ignore[union-attr]
        told = self._answer()
        if not Path(told["from"]).is_relative_to(tree):
            raise SkipError(f"the process for {tree} imported {told['from']}")
        self.cases: list[str] = told["cases"]

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise SkipError("a process ended early; its message is above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def measure(self, case: str) -> dict[str, Any]:
        """Return the seconds of a fit and of a prediction, or an error."""
        print(case, file=self._process.stdin, flush=True)
        return self._answer()


class Regression(Objective):
    """Times fit and predict of every solver for this tree and for another checkout, paired."""

    name: ClassVar[str] = "regression"
    repeat: ClassVar[int] = 7

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--against", default=str(HERE), help="root of the other checkout")
        parser.add_argument("--only", default="", help="cases whose name holds this")
        parser.add_argument("--rows", type=int, default=ROWS, help="rows of fits with kernels")

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        n = QUICK_ROWS if args.quick else args.rows
        with ExitStack() as stack:
            old, new = (Worker(tree.resolve(), n, stack) for tree in (Path(args.against), HERE))
            for case in new.cases:
                if args.only in case and case in old.cases:
                    yield "seconds", self._compare(case, old, new, args.repeat)

    @staticmethod
    def _compare(case: str, old: Worker, new: Worker, repeat: int) -> Row:
        pairs = []
        for number in range(WARM_RUNS + repeat):
            order = (old, new) if number % 2 else (new, old)
            told = {worker: worker.measure(case) for worker in order}
            if any("error" in answer for answer in told.values()):
                errors = [told[worker].get("error", "") for worker in (old, new)]
                return {"case": case, "note": f"old: {errors[0]}, new: {errors[1]}"}
            pairs.append((told[old], told[new]))
        row: Row = {"case": case}
        for what in ("fit", "predict"):
            seconds = [(a[what], b[what]) for a, b in pairs[WARM_RUNS:]]
            before, after = zip(*seconds, strict=True)
            row |= {
                f"{what} old s": median(before),
                f"{what} new s": median(after),
                f"{what} new / old": median(b / a for a, b in seconds),
            }
        return row
