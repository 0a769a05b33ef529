"""Did anything change? All solvers, losses and kernels on small rows, beside a record."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import numpy as np

import kernelgrad
from benchmarks.objectives._golden_cases import cases
from benchmarks.registry import Objective, Row, SkipError

HERE = Path(__file__).parents[2]
SOURCE = Path(kernelgrad.__file__).resolve().parents[1]
ROWS, QUICK_ROWS = 200, 60
EXACT = ("direct", "newton", "working_set")
EXACT_TOLERANCE, TOLERANCE = 1e-6, 1e-5
SECONDS = ("cold fit s", "cold predict s", "fit s", "predict s", "compile s")
RATIOS = ("fit new / old", "predict new / old")
UNKNOWN: Row = {"verdict": "absent: not in the record", "peak MB": 0.0}
SHOWN = ("solver", "objective", "duality_gap", *SECONDS, "verdict")


class Worker:
    """A process that runs cases with one tree."""

    def __init__(self, source: Path, n: int, stack: ExitStack) -> None:
        path = os.pathsep.join([str(source), str(HERE)])
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "benchmarks.objectives._golden_worker", str(n)],
            env=os.environ | {"PYTHONPATH": path}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._requests, self._answers = process.stdin, process.stdout
        stack.enter_context(process)
        stack.callback(self._requests.close)  # type: ignore[union-attr]
        if not Path(self._answer().get("from", "")).resolve().is_relative_to(source):
            raise SkipError(f"there is no kernelgrad in {source}")

    def _answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._answers.readline() or "{}")  # type: ignore[union-attr]
        return answer

    def run(self, *request: Any) -> dict[str, Any]:
        """Return what `_golden_worker` answers, or {} if the process ended."""
        try:
            print(json.dumps(request), file=self._requests, flush=True)
        except BrokenPipeError:
            return {}
        return self._answer()


def family_of(name: str) -> str:
    return name.split("/")[0]


def answers_of(
    names: list[str], n: int, repeat: int, folder: Path, old: Path | None
) -> dict[str, Row]:
    """Run the cases of a family, first all cold, then each `repeat` times."""
    answers: dict[str, Row] = {}
    with ExitStack() as stack:
        worker = Worker(SOURCE, n, stack)
        for name in names:
            answers[name] = worker.run(name, str(folder), old and str(old))
            if not answers[name]:
                worker = Worker(SOURCE, n, stack)
                answers[name] = {"verdict": "error: the process ended", "peak MB": 0.0}
        for name in names if repeat else ():
            if "verdict" not in answers[name]:
                warm = [worker.run(name) for _ in range(repeat)]
                for key in ("fit s", "predict s"):
                    answers[name][key] = median(each.get(key, np.nan) for each in warm)
    return answers


def difference(old: Any, new: Any) -> float:
    """Return the largest difference, relative to the largest value, or the share of labels."""
    old, new = (np.asarray(np.nan if each is None else each) for each in (old, new))
    if old.shape != new.shape:
        return np.inf
    if not {old.dtype.kind, new.dtype.kind} <= set("fiu"):
        return float(np.mean(old != new)) if old.size else 0.0
    same = (old == new) | ((old != old) & (new != new))
    if same.all():
        return 0.0
    off = float(np.max(np.abs(old.astype(float) - new)[~same]))
    scale = float(np.abs(old[np.isfinite(old)]).max(initial=0.0))
    return np.inf if np.isnan(off) or scale == 0 else off / scale


class Golden(Objective):
    """Fits and predictions of every solver, loss and kernel, compared with a record.

    ``--record DIR`` writes predictions (``NAME.npz``), model files (``NAME.kgm``), and the
    objectives, histories, seconds and peak memory of all cases (``golden.json``).

    ``--compare DIR`` runs the same cases on the same rows. Its status is 1 if predictions,
    objective or duality gap of a case differ by more than 1e-6 where an exact solver (direct,
    newton, working_set) has nothing to search, by more than 1e-5 elsewhere, where sums in
    float32 are fed back, or if a case fails that did not in the record. Predictions are those
    of the model, of its file read again, and of the record's file, and those of resumed fits.
    Differences are relative to the largest value, those of labels are shares, and those of the
    gap are relative to the objective. Cases whose names the tree does not know are "absent",
    those that a solver does not take are "refused". Columns of the history, but times and
    counts of kernel values, are shown and decide nothing.

    ``--against DIR`` times this tree and the checkout in DIR, each in one process, in turns.
    Without an option, two runs of this tree are compared.

    The tree is that of the imported kernelgrad: ``PYTHONPATH=DIR/src`` takes another one. Each
    family of cases has a process. "Cold" are the first fit and prediction there, with the loops
    that earlier processes left on disk ("compile s" are those of others); records have medians
    of ``--repeat`` more, taken after all cases of the family. Peak memory is that of the cold
    fits less what imports took; it is comparable where neither process compiled.
    """

    name: ClassVar[str] = "golden"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the folders and a choice of cases."""
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--record", type=Path, help="write a record into this folder")
        what.add_argument("--compare", type=Path, help="compare with the record there")
        what.add_argument("--against", type=Path, help="time this tree and the checkout there")
        parser.add_argument("--only", default="", help="cases whose name holds this")
        parser.add_argument("--rows", type=int, default=ROWS)
        parser.add_argument("--rounds", type=int, default=5, help="of --against")

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Yield a row for each case and each family."""
        args.rows = QUICK_ROWS if args.quick else args.rows
        args.names = [name for name in cases() if args.only in name]
        if args.against:
            yield from self._time(args)
            return
        with tempfile.TemporaryDirectory() as folder:
            old = args.compare or args.record or Path(folder) / "old"
            if not args.compare:
                yield from self._fit(args, old)
            if not args.record:
                yield from self._fit(args, Path(folder) / "new", old)

    def _fit(
        self, args: argparse.Namespace, folder: Path, old: Path | None = None
    ) -> Iterator[tuple[str, Row]]:
        """Write files of all cases into a folder, and compare them with those in `old`."""
        record = json.loads((old / "golden.json").read_text()) if old else {"cases": {}}
        n, repeat = record.get("rows", args.rows), 0 if old else args.repeat
        answers: dict[str, Any] = {}
        families = []
        for family, group in groupby(sorted(args.names, key=family_of), family_of):
            names, totals = list(group), Counter[str]()
            answers |= answers_of(names, n, repeat, folder, old)
            before = [record["cases"].get(name, UNKNOWN) for name in names]
            for name, was, new in zip(names, before, map(answers.get, names), strict=True):
                row: Row = {"case": name}
                if old:
                    row |= self._differences(was, new, old / name, folder / name)
                    totals.update({f"{key} old": was.get(key, 0.0) for key in SECONDS})
                    self.status = max(self.status, int(row["fails"]))
                else:
                    row |= {key: new[key] for key in SHOWN if new.get(key) is not None}
                totals.update({key: new.get(key, 0.0) for key in SECONDS})
                what = re.split(":| by", row.get("verdict", "fitted"))[0]
                totals.update(["cases", what])
                if what != "refused" or row.get("fails"):
                    yield "cases", row
            peaks = (answers[names[-1]]["peak MB"], before[-1]["peak MB"])
            memory = dict(zip(("peak MB", "peak MB old"), peaks, strict=True))
            families.append({"family": family} | totals | memory)
        if not old:
            (folder / "golden.json").write_text(json.dumps({"rows": n, "cases": answers}))
        yield from (("families", row) for row in families)

    @staticmethod
    def _differences(old: Row, new: Row, *paths: Path) -> Row:
        """Return the row of a case that both trees ran, or failed to run."""
        if "verdict" in new or "verdict" in old:
            verdict = new.get("verdict", f"now runs, was {old.get('verdict')}")
            failed = verdict.startswith(("error", "refused")) and "verdict" not in old
            return {"verdict": verdict, "fails": failed}
        before, after = (dict(np.load(f"{path}.npz")) for path in paths)
        found: dict[str, list[float]] = {}
        for key, value in before.items():
            if key.startswith("new file: "):
                read, twin = after.get(key.replace("new", "old", 1)), after.get(key[10:])
                found.setdefault("old file", []).append(difference(value, read))
                found.setdefault("new file", []).append(difference(twin, after.get(key)))
            else:
                found.setdefault("predictions", []).append(difference(value, after.get(key)))
        row: Row = {what: max(values) for what, values in found.items()}
        size = old["objective"] or old["train_loss"]
        for key in ("objective", "duality_gap"):
            if old[key] is not None:
                row[key] = difference([old[key], size], [new[key], size])
        exact = old["solver"] in EXACT and not old["searched"]
        worst = max(row.values())
        columns = [difference(v, new["history"].get(k)) for k, v in old["history"].items()]
        row["history"] = max(columns, default=0.0)
        near = "within 1e-6" if worst <= EXACT_TOLERANCE else f"differs by {worst:.1e}"
        fails = worst > (EXACT_TOLERANCE if exact else TOLERANCE)
        return row | {"verdict": near if worst else "same bits", "fails": bool(fails)}

    def _time(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        families: dict[str, list[Row]] = {}
        with ExitStack() as stack:
            sources = (args.against.resolve() / "src", SOURCE)
            workers = [Worker(source, args.rows, stack) for source in sources]
            for name in args.names:
                row = self.pair(name, *workers, args.rounds)
                if row.get("note", "").count(": refused: ") < 2:
                    yield "seconds", row
                if "note" not in row:
                    families.setdefault(family_of(name), []).append(row)
        for family, rows in families.items():
            ratios = {key: median(row[key] for row in rows) for key in RATIOS}
            yield "families", {"family": family, "cases": len(rows)} | ratios

    @staticmethod
    def pair(name: str, old: Any, new: Any, rounds: int) -> Row:
        """Return medians of both trees, which run in turns after a run that is not measured."""
        pairs = []
        for number in range(1 + rounds):
            order = (old, new) if number % 2 else (new, old)
            answers = {worker: worker.run(name) for worker in order}
            if any("fit s" not in answer for answer in answers.values()):
                notes = [answers[worker].get("verdict", "ended") for worker in (old, new)]
                return {"case": name, "note": f"old: {notes[0]}, new: {notes[1]}"}
            pairs.append((answers[old], answers[new]))
        row: Row = {"case": name}
        for what in ("fit", "predict"):
            before, after = (median(pair[i][f"{what} s"] for pair in pairs[1:]) for i in (0, 1))
            ratio = {f"{what} new / old": after / before}
            row |= {f"{what} old s": before, f"{what} new s": after} | ratio
        return row
