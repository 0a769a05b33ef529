"""Parts of a default fit: products, factorisation, vector functions, Python."""

from __future__ import annotations

import argparse
import cProfile
import pstats
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.objectives._curves import DATASETS, choose_rows
from benchmarks.objectives._shared import middle_row, timed
from benchmarks.registry import Objective, Row, SkipError
from kernelgrad import KernelClassifier, get_num_threads, set_num_threads

LEAST = 1.0  # percent of a function that is listed
REST = "Python and NumPy"
# parts of "path:function", the first that fits
PARTS: dict[str, tuple[str, ...]] = {
    "factorisation": ("scipy/linalg/", "numpy/linalg/", ":_factorise"),
    "matrix products": (
        "compute/linalg.py:", "block_descent/coordinates.py:task", "_tiles.py:_products",
        "newton.py:forward", "newton.py:backward", "newton.py:product",
        "safe_sparse_dot", "<built-in method numpy.dot",
    ),
    "vector functions": (
        "_tiles.py:", "_loops.py:", "scalar.py:", "elementary.py:", "_fused.py:",
    ),
}  # fmt: skip


def part_of(place: str) -> str:
    """Return the part of a fit that a function belongs to."""
    for part, words in PARTS.items():
        if any(word in place for word in words):
            return part
    return REST


def places(run: cProfile.Profile) -> dict[str, float]:
    """Return seconds by "path:function", without those of functions that it calls."""
    found: dict[str, float] = {}
    for (path, _, name), numbers in pstats.Stats(run).stats.items():  # type: ignore[attr-defined]
        short = path if not path.startswith("/") else "/".join(Path(path).parts[-3:])
        place = f"{short}:{name}".removeprefix("~:")
        found[place] = found.get(place, 0.0) + numbers[2]
    return found


def problem(name: str, rows: int | None) -> tuple[Any, Any]:
    """Return rows and classes of a data set, or of a smooth function of ten columns."""
    if name == "generated":
        X = np.random.default_rng(0).standard_normal((rows or 0, 10), np.float32)
        return X, np.sin(2 * X[:, 0] + X[:, 1]) + X[:, 2] * np.cos(X[:, 3]) > 0
    data = DATASETS[name].load()
    chosen = choose_rows(len(data.y_train), rows, seed=0)
    return data.X_train[chosen], data.y_train[chosen]


class Profile(Objective):
    """Percentages of the seconds of ``KernelClassifier().fit`` in one thread.

    From Python's profiler, which sees compiled functions and those of libraries from outside:
    a product that is written ``A @ B``, or that a compiled loop takes, counts for the function
    around it. It raises the share of Python; compare "fit s" without it to "profiled s".
    """

    name: ClassVar[str] = "profile"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000])
        parser.add_argument(
            "--mnist-rows", type=int, default=None, help="at most; all if absent"
        )

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        sizes = [200] if args.quick else args.rows
        cases: list[tuple[str, int | None]] = [("generated", rows) for rows in sizes]
        if not args.quick:
            cases.append(("mnist", args.mnist_rows))
        before = get_num_threads()
        set_num_threads(1)
        try:
            for name, rows in cases:
                try:
                    X, y = problem(name, rows)
                except SkipError as reason:
                    print(f"{name} skipped: {reason}", flush=True)
                else:
                    yield from self._profile(name, X, y, args.repeat)
        finally:
            set_num_threads(before)

    @staticmethod
    def _profile(name: str, X: Any, y: Any, repeat: int) -> Iterator[tuple[str, Row]]:
        warnings.simplefilter("ignore")
        KernelClassifier(max_iter=2).fit(X[:300], y[:300])  # compiles
        head: Row = {"dataset": name, "rows": len(y)}
        runs: list[Row] = []
        for _ in range(repeat):
            seconds, _ = timed(KernelClassifier(random_state=0).fit, X, y)
            run = cProfile.Profile()
            profiled, _ = timed(run.runcall, KernelClassifier(random_state=0).fit, X, y)
            found = places(run)
            total = sum(found.values())
            shares = dict.fromkeys([*PARTS, REST], 0.0)
            for place, taken in found.items():
                shares[part_of(place)] += 100 * taken / total
            runs.append(
                {"fit s": seconds, "profiled s": profiled}
                | {f"{part} %": share for part, share in shares.items()}
            )
        yield "shares", head | middle_row(runs)
        for place, taken in sorted(found.items(), key=lambda item: -item[1]):
            if (share := 100 * taken / total) >= LEAST:
                yield "places", head | {"place": place, "part": part_of(place), "%": share}
