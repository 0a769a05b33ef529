"""Seconds of the first process after installation, and of the second."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from statistics import median
from typing import ClassVar

from benchmarks.objectives._shared import answer, timed
from benchmarks.registry import Objective, Row


class Startup(Objective):
    """Import, a small fit and a prediction, with an empty and with a filled numba cache.

    ``--quick`` keeps the user's cache instead of an empty one: compiling takes seconds.
    """

    name: ClassVar[str] = "startup"

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take first and second processes in turn, each pair with a cache folder of its own."""
        runs: dict[str, list[Row]] = {"first": [], "second": []}
        for _ in range(args.repeat):
            with tempfile.TemporaryDirectory() as cache:
                environment = {} if args.quick else {"NUMBA_CACHE_DIR": cache}
                for which in runs:
                    seconds, told = timed(answer, "_startup_case", {}, **environment)
                    runs[which].append(told | {"process": seconds})
        for which, results in runs.items():
            times = {
                f"{key} s": median(r[key] for r in results)
                for key in ("import kernelgrad", "load", "fit", "predict", "total", "process")
            }
            hits, misses = (sum(r[key] for r in results) for key in ("hits", "misses"))
            yield (
                "startup",
                {
                    "process": which,
                    "cache at first": "kept" if args.quick else "empty",
                    **times,
                    "cache hits": hits,
                    "cache misses": misses,
                    "cache hit": hits > 0 and misses == 0,
                },
            )
