"""Executions in child processes, so that nothing they do ends the attack."""

from __future__ import annotations

import faulthandler
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fuzz.target import Finding, Target

try:
    import resource
except ImportError:  # where there are no limits, hangs and crashes still show
    resource = None  # type: ignore[assignment]

_BATCH = 5000  # executions of one process, so that what leaks does not add up
_BEGIN = 3600  # seconds until it is ready, with all loops to compile
_SAVED = 30.0  # seconds between two states on disk
_KEPT = 3  # inputs kept of one kind of finding


@dataclass
class State:
    """What came of the executions of one target and seed so far; kept as JSON.

    Attributes
    ----------
    executions : int
        How many are done, the number of the next.
    outcomes : dict of str to int
        How many of them ended in what: "clear", "identical", "other", "finding".
    findings : list of dict
        ``kind`` tells crashes, hangs and exceptions apart, ``count`` is how often it was met,
        ``executions`` are the first, whose inputs are in ``files``, ``detail`` is a traceback.
    """

    target: str
    seed: int
    executions: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def load(cls, output: Path, target: str, seed: int) -> State:
        """Return the state in a folder, or one of no executions."""
        path = output / f"{target}-{seed}.json"
        if not path.exists():
            return cls(target, seed)
        found = json.loads(path.read_text())
        return cls(**{**found, "outcomes": Counter(found["outcomes"])})

    def save(self, output: Path) -> None:
        output.mkdir(parents=True, exist_ok=True)
        path = output / f"{self.target}-{self.seed}.json"
        new = path.with_suffix(".new")
        new.write_text(json.dumps(vars(self), indent=1) + "\n")
        new.replace(path)

    def note(self, target: Target, kind: str, detail: str, output: Path) -> None:
        """Note a finding of the last execution and keep its input."""
        known = next((found for found in self.findings if found["kind"] == kind), None)
        if known is None:
            known = {"kind": kind, "count": 0, "executions": [], "files": [], "detail": detail}
            self.findings.append(known)
        known["count"] += 1
        if len(known["files"]) < _KEPT:
            case = target.case(self.seed, self.executions)
            tag = hashlib.sha256(case.data).hexdigest()[:8]
            folder = output / f"{self.target}-findings"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{tag}-{case.name}").write_bytes(case.data)
            known["executions"].append(self.executions)
            known["files"].append(f"{tag}-{case.name}")


def run(
    target: Target,
    *,
    seed: int,
    output: Path,
    executions: int | None = None,
    minutes: float | None = None,
) -> State:
    """Go on with a target until `executions` in all, or for some minutes more."""
    state = State.load(output, target.name, seed)
    stop = sys.maxsize if executions is None else executions
    begun, before = time.monotonic(), state.seconds
    deadline = float("inf") if minutes is None else begun + 60 * minutes
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="kernelgrad-fuzz-") as temporary:
        trace = Path(temporary) / "trace"
        while state.executions < stop and time.monotonic() < deadline:
            ours, theirs = context.Pipe()
            last = min(stop, state.executions + _BATCH)
            child = context.Process(
                target=_work,
                args=(target, seed, state.executions, last, temporary, theirs),
            )
            child.start()
            theirs.close()
            saved = time.monotonic()
            try:
                for now in _follow(ours, child, target, state, output, trace):
                    state.seconds = before + now - begun
                    if now > saved + _SAVED:
                        state.save(output)
                        saved = now
                    if now > deadline:
                        break
            finally:
                ours.close()
                child.kill()
                child.join()
                state.seconds = before + time.monotonic() - begun
                state.save(output)
    return state


def _follow(
    ours: Connection,
    child: Any,
    target: Target,
    state: State,
    output: Path,
    trace: Path,
) -> Iterator[float]:
    """Note what a child says of its executions until it ends; yield the time after each."""
    told = ours.recv() if ours.poll(_BEGIN) else f"it takes more than {_BEGIN} s"
    if told != "ready":
        raise RuntimeError(f"The attack of {target.name} cannot begin: {told}")
    while True:
        kind, detail = "hang", f"more than {target.seconds:g} s"
        try:
            told = _answer(ours, child.pid, target.seconds)
        except (EOFError, ConnectionError):
            child.join()
            if child.exitcode == 0:
                return
            detail = trace.read_text(errors="replace") if trace.exists() else ""
            kind, told = f"crash ({_ending(child.exitcode)}) {_place(detail)}", None
        if told is None:
            if kind == "hang":
                child.kill()
            outcome = "finding"
        else:
            outcome, kind, detail = told
        if outcome == "finding":
            state.note(target, kind, detail, output)
        state.outcomes[outcome] += 1
        state.executions += 1
        yield time.monotonic()
        if told is None:
            return


def _answer(pipe: Connection, pid: int, seconds: float) -> Any:
    """Return what a child says, or None after `seconds` of a processor or 12 times as many."""
    begun = _busy(pid)
    for _ in range(12):  # where other work has the processors
        if pipe.poll(seconds):
            return pipe.recv()
        if _busy(pid) - begun >= 0.9 * seconds:
            break
    return None


def _busy(pid: int) -> float:
    """Return the seconds of processors that a process had, or those of the clock."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # no Linux
        return time.monotonic()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit {code}"


def _place(trace: str) -> str:
    """Return the innermost line that faulthandler wrote."""
    return next((line.strip() for line in trace.splitlines() if "File" in line), "")


def _work(
    target: Target, seed: int, start: int, stop: int, folder: str, pipe: Connection
) -> None:
    """Execute, and tell the outcomes; what is printed goes nowhere."""
    # arenas that allocators reserve are address space, but no memory
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    with (
        open(Path(folder) / "trace", "w") as trace,
        tempfile.TemporaryDirectory(dir=folder) as own,
    ):
        faulthandler.enable(trace)
        try:
            target.prepare()
            for name in target.inputs:  # imports and compiles, so that neither counts
                target._expected(name, Path(own))
        except BaseException:
            pipe.send(traceback.format_exc())
            raise
        if resource is not None and sys.platform == "linux":
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + target.memory
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        pipe.send("ready")
        for case in target.cases(seed, start, stop):
            pipe.send(attempt(target, case, Path(own)))
        pipe.close()


def attempt(target: Target, case: Any, folder: Path) -> tuple[str, str, str]:
    """Return the outcome of one input, and kind and traceback of a finding."""
    try:
        return target.execute(case, folder), "", ""
    except BaseException as error:  # KeyboardInterrupt and SystemExit are no answers, either
        what = str(error) if isinstance(error, Finding) else type(error).__name__
        frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
        own = [f for f in frames if "kernelgrad" in f.filename] or frames
        place = f"{Path(own[-1].filename).name}:{own[-1].name}"
        return "finding", f"{what} in {place}", traceback.format_exc()
