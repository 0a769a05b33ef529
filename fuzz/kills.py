"""``python -m fuzz.kills [--count N] [--seed S] [--output DIR]``: processes that are killed.

SIGKILL and SIGTERM hit processes at random moments while they save a model over an old one,
fit on the command line with and without checkpoints, or write predictions. Afterwards the old
file or a whole new one must be there; a fit that is resumed must give the model of one that
nobody killed, bit for bit; SIGTERM must end with 143 and keep the model of the iterations done.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelgrad import KernelRegressor, load
from kernelgrad.callbacks import CallbackList
from kernelgrad.cli import main as command

ROWS, ITERATIONS = 400, 40
PATIENCE = 60.0  # seconds that a process may take to end after a signal
FIT = (
    "--target", "y", "--solver", "dsg", "--gamma", "0.5", "--alpha", "1e-3", "--seed", "0",
    "--max-iter", str(ITERATIONS), "--quiet",
)  # fmt: skip


class Bench:
    """A folder with data, and what processes that nobody kills make of it.

    Parameters
    ----------
    folder : Path
        An empty one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rng = np.random.default_rng(0)
        self.X = rng.standard_normal((ROWS, 3))
        y = np.sin(2 * self.X[:, 0]) + self.X[:, 1]
        self.data, self.model = folder / "data.csv", folder / "it" / "m.kgm"
        names = {"header": "a,b,c,y", "comments": "", "delimiter": ","}
        np.savetxt(self.data, np.c_[self.X, y], **names)
        self.old = folder / "old.kgm"
        # a model of some 100 kB
        KernelRegressor(gamma=5.0, alpha=1e-3, random_state=0).fit(self.X, y).save(self.old)
        self.new = folder / "new.kgm"
        assert command(["fit", str(self.data), "--model", str(self.new), *FIT]) == 0
        models = load(self.old), load(self.new)
        self.predicted = [model.predict(self.X) for model in models]
        self.estimator = models[0]
        self.own = self.scratch()  # folder of this process and its children
        self.keep = ("--checkpoint", str(folder / "it" / "kept"), "--checkpoint-every", "1")

    def scratch(self) -> set[Path]:
        return set(self.folder.glob("tmp/.kernelgrad-*"))

    def save(self) -> None:
        """Save a model over one of another fit, again and again."""
        while True:
            self.estimator.save(self.model)

    def fit(self, *more: str) -> int:
        """Fit on the command line; say by a file that an iteration is done."""
        step = CallbackList.on_iteration

        def told(self_: CallbackList, event: Any) -> bool:
            (self.folder / "it" / "begun").touch()
            return step(self_, event)

        CallbackList.on_iteration = told  # type: ignore[method-assign]
        return command(["fit", str(self.data), "--model", str(self.model), *FIT, *more])

    def checkpoint(self) -> int:
        return self.fit(*self.keep, "--resume")

    def predict(self) -> int:
        output = self.folder / "it" / "p.npy"
        return command(["predict", str(self.new), str(self.data), "--output", str(output)])

    def is_model(self, *wanted: int) -> bool:
        found = load(self.model).predict(self.X)
        return any(np.array_equal(found, self.predicted[i]) for i in wanted)

    def wrong(self, what: str, number: int, status: int) -> str | None:
        """Return what is lost or different after a process ended with a wait status."""
        code = os.waitstatus_to_exitcode(status)
        whole, killed = self.model.exists(), number == signal.SIGKILL
        begun = (self.folder / "it" / "begun").exists()
        output = self.folder / "it" / "p.npy"
        remnants = {*self.folder.glob("it/.kernelgrad-*"), *self.scratch()} - self.own
        if not killed and code == -number and (not begun or (whole and self.is_model(1))):
            return None  # before the command looked out for it, or after its end
        if what != "save" and code not in (0, -number if killed else 143):
            return f"exit code {code}"
        if remnants and not (killed or what == "save"):
            return "temporary files"
        if what == "save":
            return None if self.is_model(0, 1) else "different"
        if what == "predict":
            if code == 0 and not output.exists():
                return "lost"
            if output.exists() and not np.array_equal(np.load(output), self.predicted[1]):
                return "different"
            return None
        if code == 0:
            return None if whole and self.is_model(1) else "different"
        if not killed and not whole and begun:
            return "lost"
        if whole and load(self.model).n_iter_ > ITERATIONS:
            return "different"
        if what == "checkpoint" and (self.checkpoint() != 0 or not self.is_model(1)):
            return "resumed to a different model"
        return None


def forked(do: Callable[[], Any], log: Path) -> int:
    """Start a process that does something and ends with its result; return its number."""
    child = os.fork()
    if child == 0:
        with log.open("wb") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        code = 99
        try:
            code = do()
        finally:
            os._exit(code)
    return child


def trial(bench: Bench, what: str, number: int, delay: float) -> tuple[bool, str | None]:
    """Kill one process after some seconds; return whether a model is there, what is wrong."""
    place = bench.folder / "it"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    if what == "save":
        shutil.copy(bench.new, bench.model)
    child = forked(getattr(bench, what), bench.folder / "log.txt")
    time.sleep(delay)
    os.kill(child, number)
    patience = time.monotonic() + PATIENCE
    done = status = 0
    while not done and time.monotonic() < patience:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.001)
    if not done:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False, "hang"
    whole = bench.model.exists()
    try:
        return whole, bench.wrong(what, number, status)
    except Exception as error:
        return whole, f"{type(error).__name__}: {error}"


def run(count: int, seed: int, folder: Path) -> dict[str, Any]:
    """Kill `count` processes by each signal; return how often, and what was wrong."""
    temporary = folder / "tmp"
    temporary.mkdir()
    tempfile.tempdir = str(temporary)
    bench = Bench(folder)
    span = {"save": 0.1}  # seconds that each may take
    for what in ("fit", "checkpoint", "predict"):
        (folder / "it").mkdir()
        start = time.monotonic()
        child = forked(getattr(bench, what), folder / "log.txt")
        if os.waitpid(child, 0)[1]:
            raise RuntimeError(f"{what}: {(folder / 'log.txt').read_text()}")
        span[what] = 1.1 * (time.monotonic() - start)
        shutil.rmtree(folder / "it")
    kills: Counter[str] = Counter()
    findings: list[dict[str, Any]] = []
    for i in range(count):
        for number in (signal.SIGKILL, signal.SIGTERM):
            rng = np.random.default_rng((seed, i, number))
            what = list(span)[i % len(span)]
            delay = float(rng.uniform(0.0, span[what]))
            whole, found = trial(bench, what, number, delay)
            kills[f"{number.name}, {what}, {'a' if whole else 'no'} model"] += 1
            if found is not None:
                log = (folder / "log.txt").read_text()[-2000:]
                told = {"trial": i, "signal": number.name, "what": what, "delay": delay}
                findings.append({**told, "found": found, "log": log})
    return {"seed": seed, "kills": dict(kills), "findings": findings}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.kills", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="of processes for each signal")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("out/fuzz"))
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    # a fork is safe while there is one thread
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        result = run(args.count, args.seed, Path(folder))
    result["seconds"] = round(time.monotonic() - start, 1)
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / f"kills-{args.seed}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    total, wrong = sum(result["kills"].values()), len(result["findings"])
    print(f"{total} kills, {wrong} lost or different, {result['seconds']} s: {path}")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
