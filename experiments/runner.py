"""Runs cells that are not in the result yet, and writes results, pictures and pages."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import environment
from benchmarks.registry import Row, SkipError

from experiments.base import DIFFERS, Cell, Experiment

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "reproduction"
DIGITS = 6


def _short(value: Any) -> Any:
    """Return a value as JSON has it, floats with six digits."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def commit() -> str:
    """Return the commit of the code, with a plus where files but pages differ from it."""

    def git(*told: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *told], cwd=ROOT, capture_output=True, text=True, check=False
        )

    name = git("describe", "--always", "--abbrev=10").stdout.strip()
    changed = git("diff", "--quiet", "HEAD", "--", "src", "experiments", "benchmarks")
    return name + "+" * (changed.returncode == 1) if name else "unknown"


class Result:
    """The file of an experiment: its cells with their rows, and what they decide."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self.experiment = experiment
        paper, _, name = experiment.name.partition(".")
        self.path = folder / paper / f"{name}.json"
        self.content: dict[str, Any] = {"experiment": experiment.name, "cells": []}
        if self.path.exists():
            self.content = json.loads(self.path.read_text())

    @property
    def rows(self) -> list[Row]:
        """Rows of all cells, with the parameters of their cells."""
        return [run["cell"] | row for run in self.content["cells"] for row in run["rows"]]

    def has(self, cell: Cell) -> bool:
        """Whether the cell has been measured."""
        return any(run["cell"] == cell for run in self.content["cells"])

    def keep(self, cells: list[Cell]) -> None:
        """Forget cells that are no longer part of the experiment."""
        self.content["cells"] = [r for r in self.content["cells"] if r["cell"] in cells]

    def add(self, cell: Cell, rows: list[Row], seconds: float) -> None:
        """Add a cell and write the file."""
        rows = [{key: _short(value) for key, value in row.items()} for row in rows]
        described = environment.describe()
        for run in self.content["cells"]:  # early results name the processor once
            run.setdefault("cpu", self.content["environment"]["cpu"])
        self.content["cells"].append(
            {
                "cell": cell,
                "commit": commit(),
                "cpu": described["cpu"],
                "seconds": round(seconds, 1),
                "load": environment.load_average(),
                "rows": rows,
            }
        )
        self.content["environment"] = described
        self.write()

    def decided(self, *, quick: bool = False) -> dict[str, Any]:
        """Return the verdict and the claims as the measured rows have them now."""
        missing = sum(not self.has(cell) for cell in self.experiment.cells(quick))
        whole, decisions = self.experiment.verdict(self.rows, whole=not missing)
        claims = []
        for claim, decision in zip(self.experiment.claims, decisions, strict=True):
            whole_run = not (missing or quick)  # a quick run has no rows for some claims
            shown = claim.ours(self.rows) if decision.n or whole_run else "-"
            texts = {"text": claim.text, "theirs": claim.theirs, "ours": shown}
            reason = {"kind": claim.kind or self.experiment.kind}
            if decision.verdict == DIFFERS:
                reason["cause"] = claim.cause or self.experiment.cause
            numbers = {key: _short(value) for key, value in asdict(decision).items()}
            claims.append(texts | reason | numbers)
        return {"verdict": whole, "claims": claims, "missing": missing}

    def write(self) -> None:
        """Write the file by renaming, one line for each cell's parts."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.content, indent=1) + "\n")
        os.replace(new, self.path)


def run(experiment: Experiment, folder: Path, *, quick: bool, again: bool = False) -> Result:
    """Measure the cells that are missing, decide and draw; SkipError leaves what there is."""
    result = Result(experiment, folder)
    cells = experiment.cells(quick)
    result.keep([] if again else cells)
    for number, cell in enumerate(cells, 1):
        if result.has(cell):
            continue
        start = time.perf_counter()
        rows = list(experiment.measure(cell))
        seconds = time.perf_counter() - start
        result.add(cell, rows, seconds)
        print(f"{experiment.name} {number}/{len(cells)} {seconds:.1f} s: {cell}", flush=True)
    finish(result, quick=quick)
    return result


def finish(result: Result, *, quick: bool = False, draw: bool = True) -> None:
    """Decide, write and draw what has been measured."""
    result.content |= result.decided(quick=quick)
    result.write()
    if not draw:
        return
    import matplotlib

    matplotlib.use("Agg")
    result.experiment.plot(result.rows, result.path.with_suffix(".png"))


def attempt(experiment: Experiment, folder: Path, *, quick: bool, again: bool) -> str:
    """Run an experiment and return its verdict, or why there is none."""
    try:
        return str(run(experiment, folder, quick=quick, again=again).content["verdict"])
    except SkipError as reason:
        return f"skipped: {reason}"
