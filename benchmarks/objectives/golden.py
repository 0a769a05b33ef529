"""Did anything change? All solvers, losses and kernels on small rows, beside a record."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
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
    that earlier processes left on disk ("compile s" are those of others); the rest are medians
    of ``--repeat`` more. Peak memory is that of the process less what its imports took.
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
        n = QUICK_ROWS if args.quick else args.rows
        with tempfile.TemporaryDirectory() as folder:
            if args.against:
                yield from self._time(args, n)
                return
            old = args.compare or args.record or Path(folder) / "old"
            if not args.compare:
                yield from self._record(args, n, old)
            if not args.record:
                yield from self._compare(args, old, Path(folder) / "new")

    def _answers(
        self, args: argparse.Namespace, n: int, folder: Path, old: Path | None = None
    ) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield (family, case, answer); a process that ends early is one failure."""
        families: dict[str, list[str]] = {}
        for case in cases():
            if args.only in case:
                families.setdefault(case.split("/")[0], []).append(case)
        for family, names in families.items():
            with ExitStack() as stack:
                worker = Worker(SOURCE, n, stack)
                for name in names:
                    repeat = 0 if old else args.repeat
                    answer = worker.run(name, repeat, str(folder), old and str(old))
                    if not answer:
                        worker = Worker(SOURCE, n, stack)
                    yield family, name, answer or {"verdict": "error: the process ended"}

    def _record(
        self, args: argparse.Namespace, n: int, folder: Path
    ) -> Iterator[tuple[str, Row]]:
        folder.mkdir(parents=True, exist_ok=True)
        answers: dict[str, Any] = {}
        families: dict[str, Row] = {}
        for family, name, answer in self._answers(args, n, folder):
            answers[name] = answer
            row = families.setdefault(family, {"family": family, "cases": 0, "fitted": 0})
            row["cases"] += 1
            row["fitted"] += "verdict" not in answer
            for key in SECONDS:
                row[key] = row.get(key, 0.0) + answer.get(key, 0.0)
            row["peak MB"] = answer.get("peak MB", 0.0)
            shown = {k: answer[k] for k in SHOWN if answer.get(k) is not None}
            if not answer.get("verdict", "").startswith("refused"):
                yield "cases", {"case": name} | shown
        (folder / "golden.json").write_text(json.dumps({"rows": n, "cases": answers}))
        for row in families.values():
            yield "families", row

    def _compare(
        self, args: argparse.Namespace, old: Path, folder: Path
    ) -> Iterator[tuple[str, Row]]:
        record = json.loads((old / "golden.json").read_text())
        families: dict[str, Row] = {}
        for family, name, answer in self._answers(args, record["rows"], folder, old):
            before = record["cases"].get(name, {"verdict": "absent: not in the record"})
            row = self._differences(name, before, answer, old, folder)
            found = families.setdefault(family, {"family": family, "cases": 0})
            found["cases"] += 1
            what = row["verdict"].split(":")[0].partition(" by ")[0]
            found[what] = found.get(what, 0) + 1
            for key in ("cold fit s", "compile s"):
                for age, each in (("old", before), ("new", answer)):
                    found[f"{key} {age}"] = found.get(f"{key} {age}", 0.0) + each.get(key, 0.0)
            found["peak MB old"] = before.get("peak MB", 0.0)
            found["peak MB new"] = answer.get("peak MB", 0.0)
            self.status = max(self.status, int(row["fails"]))
            if what != "refused" or row["fails"]:
                yield "cases", row
        for row in families.values():
            yield "families", row

    @staticmethod
    def _differences(name: str, old: Row, new: Row, *folders: Path) -> Row:
        """Return the row of a case that both trees ran, or failed to run."""
        row: Row = {"case": name}
        if "verdict" in new or "verdict" in old:
            verdict = new.get("verdict", f"now runs, was {old.get('verdict')}")
            failed = verdict.startswith(("error", "refused")) and "verdict" not in old
            return row | {"verdict": verdict, "fails": failed}
        before, after = (dict(np.load(folder / f"{name}.npz")) for folder in folders)
        found: dict[str, list[float]] = {}
        for key, value in before.items():
            if key.startswith("new file: "):
                read, twin = after.get(key.replace("new", "old", 1)), after.get(key[10:])
                found.setdefault("old file", []).append(difference(value, read))
                found.setdefault("new file", []).append(difference(twin, after.get(key)))
            else:
                found.setdefault("predictions", []).append(difference(value, after.get(key)))
        row |= {what: max(values) for what, values in found.items()}
        size = old["objective"] or old["train_loss"]
        for key in ("objective", "duality_gap"):
            if old[key] is not None:
                row[key] = difference([old[key], size], [new[key], size])
        exact = old["solver"] in EXACT and not old["searched"]
        worst = max(row[key] for key in row if key != "case")
        columns = old["history"].items()
        row["history"] = max(
            [difference(v, new["history"].get(k)) for k, v in columns] or [0.0]
        )
        near = "within 1e-6" if worst <= EXACT_TOLERANCE else f"differs by {worst:.1e}"
        tolerance = EXACT_TOLERANCE if exact else TOLERANCE
        verdict = near if worst else "same bits"
        return row | {"verdict": verdict, "fails": bool(worst > tolerance)}

    def _time(self, args: argparse.Namespace, n: int) -> Iterator[tuple[str, Row]]:
        sources = (args.against.resolve() / "src", SOURCE)
        ratios: dict[str, dict[str, list[float]]] = {}
        with ExitStack() as stack:
            workers = [Worker(source, n, stack) for source in sources]
            for name in cases():
                if args.only in name:
                    row = self.pair(name, *workers, args.rounds)
                    yield "seconds", row
                    for key in ("fit", "predict"):
                        if f"{key} new / old" in row:
                            family = ratios.setdefault(name.split("/")[0], {})
                            family.setdefault(key, []).append(row[f"{key} new / old"])
        for family, found in ratios.items():
            medians = {f"{k} new / old": median(v) for k, v in found.items()}
            yield "families", {"family": family, "cases": len(found["fit"])} | medians

    @staticmethod
    def pair(name: str, old: Any, new: Any, rounds: int) -> Row:
        """Return medians of both trees, which run in turns after a run that is not measured."""
        pairs = []
        for number in range(1 + rounds):
            order = (old, new) if number % 2 else (new, old)
            answers = {worker: worker.run(name) for worker in order}
            if any("fit" not in answer for answer in answers.values()):
                notes = [answers[worker].get("verdict", "ended") for worker in (old, new)]
                return {"case": name, "note": f"old: {notes[0]}, new: {notes[1]}"}
            pairs.append((answers[old], answers[new]))
        row: Row = {"case": name}
        for what in ("fit", "predict"):
            before, after = (median(pair[i][what] for pair in pairs[1:]) for i in (0, 1))
            ratio = {f"{what} new / old": after / before}
            row |= {f"{what} old s": before, f"{what} new s": after} | ratio
        return row
