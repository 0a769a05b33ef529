"""Rows beyond memory and beyond one machine: fits from files beside the machine and peers."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.objectives._scale_files import write
from benchmarks.objectives._shared import distinct, draw, picture, report, where
from benchmarks.registry import Objective, Row, SkipError
from kernelgrad import get_num_threads

TASKS = {"wide": ("ten columns", 20), "ten": ("ten columns", 10), "fine": ("fine", 10)}
PARTS = (
    "machine",
    "blocks",
    "defaults",
    "fast",
    "peers",
    "streams",
    "dask",
    "checkpoint",
    "paper",
)
MACHINE, FITS, STREAMS = "machine and disk", "fits", "error against rows seen"
DASK, SAVES, PAPER, AIMS = "dask", "checkpoints", "on paper", "aims"
BLOCK, BLOCKS, SLICE = 1024, 30, 2**16
LOADING = 300.0
SHARD, WIRE_BLOCKS = 2**17, 4  # rows of a message; blocks that are enough to count bytes
OURS_BOUNDED, OURS_GROWING = "dsg, 16,384 features", "dsg, a block a step"
FIRST_SECONDS = 38.0  # of LightGBM on 3e6 rows and two slow cores, where it is not here
# what is assumed on paper, beside what is measured
WIRE, DELAY, TASK = 1.25e3, 1e-3, 1.3e-3  # MB/s, s of a round, s of a task in the driver
PAPER_ROWS, PAPER_WORKERS = (10**9, 10**10), (10, 100, 1000)


def sizes(text: str) -> list[int]:
    """Return numbers of rows from a list such as ``1e6,1e7``."""
    return [int(float(part)) for part in text.split(",")]


def projected(rows: int, workers: int, found: Row) -> Row:
    """Return time and bytes of a fit on workers of one core each.

    A worker works through its rows, ``core ns`` of each in a block. Over one wire into the
    driver go, in every block, what is of the size of the block, its sample for one, what each
    worker gets, and what each bundle and each shard of 2^17 rows answers with. The driver
    solves for the block, starts the tasks of each bundle and waits for each round.
    """
    work = found["core ns"] * 1e-9 * rows / workers
    shards, bundles = max(workers, -(-rows // SHARD)), max(workers, min(4 * workers, 256))
    message = found["block"] + workers * found["to worker"]
    message += bundles * found["bundle"] + shards * found["shard"]
    tasks = bundles * found["tasks"] * TASK
    total = work + message / WIRE + tasks + found["solve s"] + found["calls"] * DELAY
    return {
        "rows": rows, "outputs": found["outputs"], "workers": workers, "s per block": total,
        "share of rows": work / total, "share of wire": message / WIRE / total,
        "share of tasks": tasks / total, "MB per block": message,
        "hours": BLOCKS * total / 3600,
    }  # fmt: skip


class Scale(Objective):
    """Fits from Parquet files that this makes, each in a process with a limit of time.

    Rows are normal, float32, in row groups of 2^17; targets have noise of deviation 0.1, and
    errors are root mean squares to the function without noise on other rows. Tasks: ``wide``
    and ``ten``, ``sin(2 x_0 + x_1) + x_2 cos x_3`` of 20 and of 10 columns, and ``fine``,
    ``sin 3 x_0 sin 3 x_1 + sin 3 x_2 cos 3 x_3`` of 10.

    The machine's own time is that of sgemm (rows by columns by coordinates of a block), exp
    and two thin products, float32, in tiles of 512 rows on as many threads, measured on a
    slice of 2^16 rows and scaled by the rows and the blocks. Memory is the peak resident set
    less that after import. The disk is read once past the page cache where the system allows.
    Streams end after ``--seconds`` of learning. LightGBM runs where it is installed, or under
    ``--peer-python``. On paper: measured seconds of a row, block and core, of a solution,
    rounds, tasks and bytes of a block; one wire of 1.25 GB/s into the driver, 1 ms a round and
    1.3 ms a task are assumed. Its bytes are those of pickled messages; a gathered one passes
    the scheduler, and so is on the wire twice.
    """

    name: ClassVar[str] = "scale"
    repeat: ClassVar[int] = 2

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rows", type=sizes, default=sizes("1e6,1e7"))
        parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
        parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
        parser.add_argument(
            "--scratch", help="files are kept there; else in a "
                            "temporary folder")  # fmt: skip
        parser.add_argument("--limit", type=float, default=7200.0, help="seconds of a case")
        parser.add_argument("--seconds", type=float, default=120.0, help="of a stream")
        parser.add_argument("--threads", type=int, default=get_num_threads())
        parser.add_argument("--solver", type=json.loads, default={}, help="more parameters of "
                            "the solver of given blocks, as JSON")  # fmt: skip
        parser.add_argument("--stream-solver", type=json.loads, default={}, help="of streams")
        parser.add_argument("--block", type=int, default=BLOCK, help="coordinates of a block")
        parser.add_argument("--blocks", type=int, default=BLOCKS)
        parser.add_argument("--memory-limit", type=float, help="bytes, of fits")
        parser.add_argument("--every", default="60 s", help="of checkpoints")
        parser.add_argument("--peer-python", default=sys.executable)

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take tasks and sizes in turn, every case in its own process."""
        if not find_spec("pyarrow"):
            raise SkipError("Parquet files need pyarrow")
        tables: dict[str, list[Row]] = {}
        folder: Any = tempfile.TemporaryDirectory() if args.scratch is None else nullcontext(
            args.scratch)  # fmt: skip
        with folder as name:
            for table, row in self._measured(Path(name), args):
                tables.setdefault(table, []).append(row)
                yield table, row
        if "paper" in args.part:
            for row in on_paper(tables, args):
                yield PAPER, row
        for row in aims(tables):
            yield AIMS, row

    def _measured(self, scratch: Path, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        scratch.mkdir(parents=True, exist_ok=True)
        yield (
            MACHINE,
            {"measured": "processor", "cores": os.cpu_count(), "threads": args.threads},
        )
        for rows in [2000] if args.quick else args.rows:
            for task in ["ten"] if args.quick else args.task:
                function, columns = TASKS[task]
                path = scratch / f"{task}-{rows}.parquet"
                write(path, function, rows, columns)
                case: Row = {
                    "path": str(path), "function": function, "columns": columns, "rows": rows,
                    "threads": args.threads, "repeat": args.repeat, "scratch": str(scratch),
                    "block": 64 if args.quick else args.block, "memory": args.memory_limit,
                    "blocks": 2 if args.quick else args.blocks,
                    "solver": args.solver, "estimator": "defaults", "every": args.every,
                    "seconds": 1.0 if args.quick else args.seconds, "outputs": 1,
                    "slice": 2048 if args.quick else SLICE, "quick": args.quick,
                }  # fmt: skip
                yield from of_file(case, task, args)

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw errors against rows and seconds; whole fits are points, streams lines."""
        streams, fits = tables.get(STREAMS, []), tables.get(FITS, [])
        rows = [row | {"rows seen": row["rows"], "seconds": row["fit s"]} for row in fits]
        tasks = distinct([*streams, *rows], "task")
        if not tasks:
            return False
        with picture(path, len(tasks), 2, size=(5.0, 3.7)) as axes:
            for task, line in zip(tasks, axes, strict=True):
                some = where(streams, task=task)
                longest = max((row["rows"] for row in some), default=0)
                lines = [row for row in some if row["rows"] == longest]
                points = where(rows, task=task)
                names = distinct([*lines, *points], "method")
                for ax, x in zip(line, ("rows seen", "seconds"), strict=True):
                    draw(ax, [*lines, *points], "method", x, "RMSE", names, "o-")
                    ax.set(xscale="log", yscale="log", xlabel=x, ylabel=f"RMSE, {task}")
                    ax.grid(alpha=0.3)
                line[0].legend(fontsize=7)
        return True


def asked(case: Row, args: argparse.Namespace, module: str = "_scale_case") -> list[Row]:
    """Return what a process answers; what was skipped or ended early is said."""
    python = args.peer_python if module == "_scale_peers" else sys.executable
    lines, end = report(module, case, limit=args.limit, loading=LOADING, python=python)
    what = f"{case.get('kind', 'LightGBM')}, {case['rows']:,} rows"
    for line in lines:
        if "skipped" in line:
            print(f"{what} skipped: {line['skipped']}", flush=True)
    if end:
        print(f"{what}: {end}", flush=True)
    return [line for line in lines if "skipped" not in line]


def of_file(case: Row, task: str, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
    """Yield all that is measured on one file."""
    first: Row = {"task": task, "rows": case["rows"]}
    given = case | {"estimator": "blocks"}
    if "machine" in args.part:
        for kind in ("machine", "disk"):
            for row in asked(case | {"kind": kind}, args):
                yield MACHINE, {"measured": kind} | first | row
    for part in ("blocks", "defaults", "fast"):
        if part in args.part:
            for row in asked(case | {"kind": "fit", "estimator": part}, args):
                yield FITS, first | {"method": part} | row
    if "peers" in args.part:
        for row in asked(case, args, "_scale_peers"):
            yield FITS, first | {"method": "LightGBM"} | row
        for row in asked(case | {"kind": "sgd"}, args):
            yield STREAMS, first | {"method": "SGD on random features"} | row
    if "streams" in args.part:
        for bounded, name in ((True, OURS_BOUNDED), (False, OURS_GROWING)):
            stream = {"kind": "stream", "bounded": bounded, "solver": args.stream_solver}
            for row in asked(case | stream, args):
                yield STREAMS, first | {"method": name} | row
    if "dask" in args.part:
        for row in asked(case | {"kind": "control"}, args):
            yield DASK, first | {"measured": "two processes", "workers": 1} | row
        seconds = 0.0
        for workers in (0, 2):
            for row in asked(given | {"kind": "dask", "workers": workers}, args):
                seconds = row["fit s"] if workers else 0.0
                yield DASK, first | {"measured": "speed", "workers": workers} | row
        kills = {"kind": "dask", "workers": 2, "kills": [seconds / 5] * 4}
        for row in asked(given | kills, args) if seconds else []:
            yield DASK, first | {"measured": "four killed", "workers": 2} | row
        wire = {"kind": "dask", "workers": 2, "classes": True, "blocks": WIRE_BLOCKS}
        for row in asked(given | wire, args):
            yield DASK, first | {"measured": "ten classes", "workers": 2} | row
    if "checkpoint" in args.part:
        for row in asked(given | {"kind": "checkpoint"}, args):
            yield SAVES, first | row


def on_paper(tables: dict[str, list[Row]], args: argparse.Namespace) -> Iterator[Row]:
    """Yield fits that were not made, from what was measured on the longest file."""
    fits = where(tables.get(FITS, []), method="blocks")
    machines = where(tables.get(MACHINE, []), measured="machine")
    if not (fits and machines):
        return
    last = max(fits, key=lambda row: row["rows"])
    shared = [row for row in tables.get(DASK, []) if row.get("MB of shards")]
    longest = max((row["rows"] for row in shared), default=0)
    for row in where(shared, rows=longest):
        if row["measured"] == "four killed":
            continue
        shards, bundles = -(-longest // SHARD), 4 * row["workers"]
        found = {
            "core ns": last["ns per row and iteration"] * args.threads,
            "solve s": machines[-1]["solve s"], "calls": row["calls per block"],
            "to worker": row["MB to a worker"], "block": row["MB of a block"],
            "bundle": row["MB of bundles"] / bundles, "shard": row["MB of shards"] / shards,
            "tasks": row["tasks per block"] / bundles, "outputs": row["outputs"],
        }  # fmt: skip
        for rows in PAPER_ROWS:
            for workers in PAPER_WORKERS:
                yield projected(rows, workers, found)


def aim(text: str, measured: float, most: float, least: bool = False) -> Row:
    """Return one line of the aims."""
    reached = measured >= most if least else measured <= most
    return {"aim": text, "measured": measured, "bound": most, "reached": reached}


def aims(tables: dict[str, list[Row]]) -> Iterator[Row]:
    """Yield each aim as far as its rows were measured."""
    fits = tables.get(FITS, [])
    machines = {
        (row["task"], row["rows"]): row["all s"] / row["slice"]
        for row in where(tables.get(MACHINE, []), measured="machine")
    }
    for row in where(fits, method="blocks"):
        n, own = row["rows"], machines.get((row["task"], row["rows"]))
        if own is not None:
            own *= n * row["iterations"]
            yield aim(f"{n:.0e} rows, blocks: times the machine's own", row["fit s"] / own, 2.0)
        yield aim(f"{n:.0e} rows, blocks: peak MB above import", row["peak MB"], 1000.0)
    for row in [*where(fits, method="defaults"), *where(fits, method="fast")]:
        n, task = row["rows"], row["task"]
        name = f"{task}, {n:.0e} rows, {row['method']}"
        if row["solver"] == "block_descent":
            passes = row["rows seen / rows"]
            yield aim(f"{name}: passes over the rows", passes, 10.0, least=True)
        yield aim(f"{name}: peak MB above import", row["peak MB"], 2000.0)
        if task == "ten" and row["method"] == "defaults":
            yield aim(f"{name}: RMSE", row["RMSE"], 0.015 if n < 10**7 else 0.01)
        theirs = where(fits, method="LightGBM", task=task, rows=n)
        known = theirs[0]["fit s"] if theirs else FIRST_SECONDS * n / 3e6
        yield aim(f"{name}: seconds over LightGBM's", row["fit s"] / known, 3.0)
    for method in ("blocks", "defaults"):
        for task in TASKS:
            cost = {
                row["rows"]: row["ns per row and iteration"]
                for row in where(fits, method=method, task=task)
            }
            if len(cost) > 1:
                *_, a, b = sorted(cost)
                text = f"{task}, {method}: cost of a row at {b:.0e} rows over {a:.0e}"
                yield aim(text, cost[b] / cost[a], 1.1)
    dask = tables.get(DASK, [])
    for row in where(dask, measured="speed", workers=2):
        same = {"task": row["task"], "rows": row["rows"]}
        for alone in where(dask, measured="speed", workers=0, **same):
            yield aim(
                "dask: two workers, times", alone["fit s"] / row["fit s"], 1.8, least=True
            )
            for other in where(dask, workers=2, **same):
                if other["measured"] in ("speed", "four killed"):
                    text = f"dask, {other['measured']}: the model of one process"
                    equal = float(other["digest"] == alone["digest"])
                    yield aim(text, equal, 1.0, least=True)
    for row in where(dask, measured="ten classes"):
        if row["MB per block"] > 0:  # one shard is fitted here
            yield aim("dask: wire MB per block of ten classes", row["wire MB per block"], 10.0)
    for row in tables.get(SAVES, []):
        yield aim("checkpoints: overhead", row["overhead"], 0.02)
