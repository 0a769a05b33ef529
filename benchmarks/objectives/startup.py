"""Seconds of the first process after installation, and of the second."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from benchmarks.registry import Objective, Row

ROOT = Path(__file__).parents[2]


def process(environment: dict[str, str]) -> dict[str, Any]:
    """Return what a fresh process reports, and its seconds as seen from outside."""
    command = [sys.executable, "-m", "benchmarks.objectives._startup_case"]
    start = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - start
    return {**json.loads(done.stdout), "process": seconds}


class Startup(Objective):
    """Import, a small fit and a prediction, with an empty and with a filled numba cache.

    ``--quick`` keeps the user's cache instead of an empty one: compiling takes seconds.
    """

    name: ClassVar[str] = "startup"

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take first and second processes in turn, each pair with a cache folder of its own."""
        runs: dict[str, list[dict[str, Any]]] = {"first": [], "second": []}
        for _ in range(args.repeat):
            with tempfile.TemporaryDirectory() as cache:
                environment = {} if args.quick else {"NUMBA_CACHE_DIR": cache}
                for which in runs:
                    runs[which].append(process(environment))
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
