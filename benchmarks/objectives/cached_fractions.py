"""Where the time of a fit of cached-response block descent goes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from benchmarks.objectives._cached_clock import CATEGORY, WAIT, shares
from benchmarks.objectives._shared import BLAS_THREADS, answer, available, middle_row
from benchmarks.registry import Objective, Row, SkipError

FRACTIONS, PLACES = "percent of thread time", "places"
SETS = ["a9a", "ijcnn1", "mnist", "covtype20k", "protein"]
LEAST = 0.5  # percent of a place that is listed
_SPIN = """
import numpy as np
A = np.random.default_rng(0).standard_normal((768, 768))
A /= 40
print("ready", flush=True)
while True:
    A @ A
"""


@contextmanager
def neighbour(busy: bool) -> Iterator[int | None]:
    """Keep every core busy with matrix products of another process, whose number is given."""
    if not busy:
        yield None
        return
    cores = str(os.cpu_count() or 1)
    environment = os.environ | dict.fromkeys(BLAS_THREADS, cores)
    command = [sys.executable, "-c", _SPIN]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def summary(line: Row, threads: int) -> Row:
    """Return the seconds of one case and the percentages of its categories."""
    row = {key: line[key] for key in ("rows", "columns", "blocks", "fit s", "timed s")}
    capacity = threads * line["timed s"]
    row |= {f"{k} %": v for k, v in shares(line["places"], threads, line["timed s"]).items()}
    row["on a core %"] = 100 * line["cpu s"] / capacity
    return row


class CachedFractions(Objective):
    """Percentages of thread time: matrix products, vector functions, data movement, the rest.

    100 % are the seconds of a fit times its threads, so that a thread with nothing to do
    counts, as "waiting". Each case has a process of its own, which compiles on few rows, fits
    as users do ("fit s"), and fits again with a clock on some sixty functions of the library
    ("timed s"; all percentages are of this fit). "same" says that both models predict the same
    bits. "on a core %" is processor time over thread time: on a busy machine much of a place's
    time may be that of the process beside it. ``--busy`` adds fits beside a process that
    multiplies matrices on all cores.

    Everything is measured, nothing derived from ratios, but a place holds what is in it:

    * BLAS products: tiles of ``A B^T`` of dense rows (with the allocation of the tile), ``R
      K``, ``V K^T``, Gram matrices and products with the sampled Hessian, each with its
      Python call and the few numbers that it adds or stores. The products of conjugate
      gradients with the block's kernel matrix are not among them: they are part of
      ``BlockSteps._refine``.
    * compiled products: dots of CSR rows, which no BLAS takes.
    * factorisation: Cholesky factors and their solves.
    * vector functions: what finishes kernel tiles (``exp``), and the loops of
      ``compute/descent`` over losses.
    * data movement: tiles copied out and kept, panels of CSR rows made dense, rows gathered,
      sampled, scaled and checked, hashes and digests. Kept values are written to pages that
      the system clears first.
    * python and rest: everything serial that is not named above, most of it NumPy on arrays
      of all rows in one thread; the table of places says which functions.
    * waiting: the rest of thread time, while serial code or the last tile runs elsewhere.

    A call of the clock takes about a microsecond, more under two threads: compare "timed s"
    with "fit s". Loops over losses have the shortest tiles, so their share is the one that
    the clock raises most.
    """

    name: ClassVar[str] = "cached_fractions"
    repeat: ClassVar[int] = 3

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add data sets, sizes and the load."""
        parser.add_argument("--dataset", nargs="+", default=None, help=f"default: {SETS}")
        parser.add_argument("--rows", type=int, default=None, help="at most, of each set")
        parser.add_argument("--blocks", type=int, default=12, help="at most, of a fit")
        parser.add_argument("--factor", type=float, default=0.5, help="of the bandwidth")
        parser.add_argument("--C", type=float, default=10.0)
        parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
        parser.add_argument("--busy", action="store_true", help="also on a busy machine")

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take threads and loads in turn in every repeat, data set after data set."""
        names = args.dataset or (["digits"] if args.quick else SETS)
        loads = ["idle", "busy"] if args.busy else ["idle"]

        def measured(name: str) -> dict[tuple[int, str], list[Row]]:
            case: Row = {"kind": "fractions", "dataset": name, "rows": args.rows,
                         "blocks": 3 if args.quick else args.blocks,
                         "factor": args.factor, "C": args.C}  # fmt: skip
            found: dict[tuple[int, str], list[Row]] = {
                (threads, load): [] for threads in args.threads for load in loads
            }
            for _ in range(args.repeat):
                for (threads, load), lines in found.items():
                    with neighbour(load == "busy"):
                        line = answer("_cached_case", case | {"threads": threads})
                    if "skipped" in line:
                        raise SkipError(line["skipped"])
                    lines.append(line)
            return found

        for name, found in available(names, measured):
            yield from self._rows(name, found)

    def _rows(
        self, name: str, found: dict[tuple[int, str], list[Row]]
    ) -> Iterator[tuple[str, Row]]:
        for (threads, load), lines in found.items():
            head: Row = {"dataset": name, "threads": threads, "load": load}
            runs = [summary(line, threads) for line in lines]
            yield (
                FRACTIONS,
                head | middle_row(runs) | {"same": all(line["same"] for line in lines)},
            )
        for (threads, load), lines in found.items():
            middle = sorted(lines, key=lambda line: line["timed s"])[len(lines) // 2]
            capacity = threads * middle["timed s"]
            places = sorted(middle["places"].items(), key=lambda item: -item[1][0])
            for place, (seconds, calls) in places:
                share = 100 * seconds / capacity
                if share >= LEAST and CATEGORY[place] != WAIT:
                    yield PLACES, {
                        "dataset": name, "threads": threads, "load": load, "place": place,
                        "category": CATEGORY[place], "%": share, "calls": int(calls),
                        "ms/call": 1e3 * seconds / calls,
                    }  # fmt: skip
