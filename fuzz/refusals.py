"""``python -m fuzz.refusals``: each call to the system fails once, in each of some ways.

While a model is saved or loaded, or the command line fits with checkpoints and predicts, one
call that opens, writes, syncs, renames or makes something in their folder is refused.
The error must name its reason, the old file or the whole new one must be there, nothing half
written may remain, and what succeeds all the same must give the result of an undisturbed run.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import os
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelgrad import KernelRegressor, load
from kernelgrad.cli import main as command
from kernelgrad.files import disk

CODES = (errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EACCES)
_EVENTS = ("open", "os.rename", "os.mkdir", "os.scandir", "os.remove", "os.listdir")
_FIT = (
    "--target", "y", "--solver", "dsg", "--gamma", ".5", "--alpha", "1e-3", "--seed", "0",
    "--max-iter", "3",
)  # fmt: skip


class Refuser:
    """Counts the calls that concern a folder, and refuses one of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls, self.last, self.code = str(folder), [], -1, 0
        self.at: int | None = None  # None: no call is counted
        sys.addaudithook(lambda event, args: event in _EVENTS and self.call(event, args[0]))
        for owner, name in ((os, "fsync"), (disk._Named, "write")):
            setattr(owner, name, self.wrapped(getattr(owner, name), name))

    def wrapped(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self.call(name, self.folder)
            return function(*args)

        return call

    def call(self, event: str, path: Any) -> None:
        inside = isinstance(path, str | Path) and str(path).startswith(self.folder)
        if self.at is None or not inside:
            return
        self.calls.append(event)
        if len(self.calls) - 1 == self.at:
            raise OSError(self.code, os.strerror(self.code), str(path))

    @contextlib.contextmanager
    def refusing(self, at: int, code: int) -> Iterator[None]:
        self.calls, self.at, self.code = [], at, code
        try:
            yield
        finally:
            self.at = None


class Bench:
    """Files, and what is done with them."""

    def __init__(self, folder: Path) -> None:
        self.folder, rng = folder, np.random.default_rng(0)
        self.X = X = rng.standard_normal((300, 3))
        y = np.sin(2 * X[:, 0]) + X[:, 1]
        self.data, self.rows = folder / "data.csv", folder / "rows.csv"
        for path, values in ((self.data, np.c_[X, y]), (self.rows, X)):
            names = ",".join("abcy"[: values.shape[1]])
            np.savetxt(path, values, header=names, comments="", delimiter=",")
        models = [KernelRegressor(gamma=g, alpha=1e-3).fit(X, y) for g in (0.5, 5.0)]
        self.old, self.new = models
        self.place = folder / "it"

    def prepare(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        self.old.save(self.place / "m.kgm")
        for name in ("p.csv", "p.npy"):
            (self.place / name).write_bytes(b"old")

    def save(self) -> None:
        self.new.save(self.place / "m.kgm")

    def load(self) -> None:
        load(self.place / "m.kgm")

    def run(self, *words: Any) -> None:
        err = io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(err):
            code = command([str(word) for word in words])
        if code or "Traceback" in err.getvalue():
            raise OSError(err.getvalue())

    def fit(self) -> None:
        keep = ("--checkpoint", self.place / "kept", "--checkpoint-every", 1)
        self.run("fit", self.data, "--model", self.place / "m.kgm", *_FIT, *keep)

    def predict(self, kind: str = "csv") -> None:
        model, output = self.place / "m.kgm", self.place / f"p.{kind}"
        self.run("predict", model, self.rows, "--output", output)

    def predict_npy(self) -> None:
        self.predict("npy")

    def contents(self) -> dict[str, bytes]:
        """Return what is in each file; of a model, which tells seconds, the predictions."""
        return {
            p.name: load(p).predict(self.X).tobytes() if p.suffix == ".kgm" else p.read_bytes()
            for p in self.place.rglob("*")
            if p.suffix != ".kgc" and p.is_file()
        }


def wrong(before: Any, after: Any, found: Any, error: str | None, event: str, code: int) -> Any:
    """Return what is lost, half written or unclear, or None."""
    for name in found.keys() | before.keys():
        if name.startswith(".kernelgrad") and event != "os.remove":
            return f"{name} remains"
        if name.startswith(".kernelgrad"):
            continue
        if found.get(name) not in (before.get(name), after.get(name)):
            return f"{name} is half written"
    if error is None:
        return None if found.keys() >= after.keys() and found == after else "silent"
    if "Traceback" in error or os.strerror(code) not in error:
        return f"unclear: {error[-500:]}"
    return None


def trials(bench: Bench, refuser: Refuser) -> Iterator[tuple[str, str, str | None]]:
    """Yield action, call and finding of each call that is refused."""
    for name in ("save", "load", "fit", "predict", "predict_npy"):
        act = getattr(bench, name)
        bench.prepare()
        before = bench.contents()
        with refuser.refusing(-1, 0):
            act()
        calls, after = len(refuser.calls), bench.contents()
        for at in range(calls):
            for code in CODES:
                bench.prepare()
                error = None
                with refuser.refusing(at, code):
                    try:
                        act()
                    except Exception as reason:
                        clear = isinstance(reason, OSError | ValueError)
                        error = f"{'' if clear else 'Traceback '}{reason!r}"
                event = refuser.calls[at] if at < len(refuser.calls) else "none"
                found = wrong(before, after, bench.contents(), error, event, code)
                yield name, event, found and f"{errno.errorcode[code]} at {at}: {found}"


def main(argv: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m fuzz.refusals", description=__doc__).parse_args(
        argv
    )
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        root = Path(folder).resolve()
        bench = Bench(root)
        refuser = Refuser(root)
        for name, event, found in trials(bench, refuser):
            counts[name] += 1
            if found:
                findings.append(found)
                print(f"{name}, {event}: {found}", flush=True)
    for name, count in counts.items():
        print(f"{name}: {count} calls refused")
    print(f"{counts.total()} calls refused, {len(findings)} findings")
    return int(bool(findings))


if __name__ == "__main__":
    raise SystemExit(main())
