"""What objectives share: data that may be absent, processes, seconds, medians, pictures."""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.registry import Row, SkipError

ROOT = Path(__file__).parents[2]
BLAS_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
MIB = 2**20
FOREVER = 1e6  # seconds
RATIOS = [0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0]  # ratios of errors at ticks
T = TypeVar("T")


def available(names: Iterable[str], load: Callable[[str], T]) -> Iterator[tuple[str, T]]:
    """Yield name and ``load(name)`` of the data sets that are here; SkipError if none is."""
    found = False
    for name in names:
        try:
            loaded = load(name)
        except SkipError as reason:
            print(f"{name} skipped: {reason}", flush=True)
        else:
            found = True
            yield name, loaded
    if not found:
        raise SkipError("none of the data sets is here")


def stream(
    module: str, case: Row, *, limit: float = FOREVER, loading: float = 0.0,
    python: str = sys.executable, **environment: str,
) -> Generator[Row, None, str]:  # fmt: skip
    """Yield what ``python -m benchmarks.objectives.MODULE CASE`` says; return what ended it.

    It prints JSON objects, one a line (`serve`), each within `limit` seconds and the first
    within `loading` more. BLAS gets the threads of the case.
    """
    if "threads" in case:
        environment |= dict.fromkeys(BLAS_THREADS, str(case["threads"]))
    late = threading.Event()
    with subprocess.Popen(
        [python, "-m", f"benchmarks.objectives.{module}", json.dumps(case)],
        cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(limit + loading, stop)
        timer.start()
        assert process.stdout is not None
        try:
            for text in process.stdout:
                if not text.startswith("{"):
                    continue
                timer.cancel()
                yield json.loads(text)
                timer = threading.Timer(limit, stop)
                timer.start()
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    if late.is_set():
        return f"over {limit:g} s"
    return f"exit status {process.returncode}" if process.returncode else ""


def report(module: str, case: Row, **options: Any) -> tuple[list[Row], str]:
    """Return all that `stream` yields, and what ended it."""
    lines: list[Row] = []
    course = stream(module, case, **options)
    while True:
        try:
            lines.append(next(course))
        except StopIteration as end:
            return lines, end.value


def serve(main: Callable[[Row], Iterable[Row]]) -> None:
    """Print what `main` yields for the case on the command line."""
    for line in main(json.loads(sys.argv[1])):
        print(json.dumps(line), flush=True)


def timed(call: Callable[..., T], *args: Any, **options: Any) -> tuple[float, T]:
    """Return the seconds of a call and its result."""
    start = time.perf_counter()
    result = call(*args, **options)
    return time.perf_counter() - start, result


def peak() -> float:
    """Return this program's peak resident MiB.

    ``VmHWM`` where the system has it: ``getrusage`` counts what the parent held before exec.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / MIB if sys.platform == "darwin" else used / 1024


def lowered_peak() -> float:
    """Return the resident MiB now, and forget the peak so far where the system can."""
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")
    return peak()


def log_grid(first: float, last: int, step: float) -> Any:
    """Return the distinct integers nearest to ``last / step^k`` that are >= first."""
    k = np.arange(int(np.log(last) / np.log(step)) + 2)
    t = np.unique(np.rint(last / step**k).astype(int))
    return t[t >= first]


def distinct(rows: Iterable[Row], key: str) -> list[Any]:
    """Return the values of a column in the order of their first appearance."""
    return list(dict.fromkeys(row[key] for row in rows))


def where(rows: Iterable[Row], /, **values: Any) -> list[Row]:
    """Return the rows whose columns have these values."""
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


@contextmanager
def picture(
    path: Path, down: int = 1, across: int = 1, *, size: tuple[float, float], **options: Any
) -> Iterator[Any]:
    """Give axes, (down, across), of panels of so many inches; the figure is then written.

    Logarithmic axes across have labels at powers of ten only, where one of these is in sight:
    those between would lie on each other.
    """
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter

    figure, axes = plt.subplots(
        down, across, figsize=(size[0] * across, size[1] * down), squeeze=False,
        layout="constrained", **options,
    )  # fmt: skip
    yield axes
    for ax in axes.flat:
        low, high = ax.get_xlim()
        if ax.get_xscale() == "log" and math.floor(math.log10(high)) >= math.log10(low):
            ax.xaxis.set_minor_formatter(NullFormatter())
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw(
    ax: Any, rows: Iterable[Row], by: str, x: str, y: str, names: Sequence[str], fmt: str = ".-"
) -> None:
    """Plot column y against x, a line for each of the names in column `by`."""
    for i, name in enumerate(names):
        points = [(row[x], row[y]) for row in rows if row[by] == name and row[y] is not None]
        if points:
            ax.plot(*zip(*points, strict=True), fmt, color=f"C{i}", label=name)


def draw_ratios(
    path: Path, names: Sequence[str], ratios: dict[str, dict[str, float]], label: str
) -> bool:
    """Draw the ratios of each method, a line for each table; far ones at the edges."""
    low, high = RATIOS[0], RATIOS[-1]
    if not names:
        return False
    with picture(path, size=(7.0, 1.5 + 0.22 * len(names))) as axes:
        ax = axes[0, 0]
        for i, (method, values) in enumerate(ratios.items()):
            points = [
                (min(max(values[name], low), high), k)
                for k, name in enumerate(names)
                if math.isfinite(values.get(name, math.inf))
            ]
            if points:
                ax.plot(
                    *zip(*points, strict=True), "osD^v<>P*X"[i], label=method, ms=4,
                    clip_on=False,
                )  # fmt: skip
        ax.axvline(1, color="k", lw=1)
        ax.set_yticks(range(len(names)), names, fontsize=7)
        ax.set(xscale="log", xlabel=label, xlim=(low, high))
        ax.set_xticks(RATIOS, [f"{ratio:g}" for ratio in RATIOS], minor=False)
        ax.set_xticks([], minor=True)
        ax.invert_yaxis()
        ax.grid(alpha=0.3)
        ax.figure.legend(loc="outside upper center", ncols=5, fontsize=7)
    return True
