"""Kill fits at random and let them go on: ``python -m benchmarks.soak --fits 300``.

Each fit writes a checkpoint after every iteration into a folder of its own and is killed by
SIGKILL once or more: at a random moment, or in the midst of writing a checkpoint. The disk may
be full meanwhile, and the newest checkpoint may be damaged after it. In the end the fit is left
alone, and its model must have the bits of one that nothing happened to.
"""

from __future__ import annotations

import argparse
import errno
import json
import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from kernelgrad import (
    DSG,
    CachedBlockDescent,
    KernelClassifier,
    KernelNoveltyDetector,
    KernelRegressor,
    LinearClassifier,
    SemiSupervisedKernelClassifier,
    persistence,
)
from kernelgrad.callbacks import Callback, Checkpoint, FitEvent
from kernelgrad.persistence import contents_digest
from kernelgrad.testing.estimator import timeless

N = 400
HAPPENINGS = ("half written", "before fsync", "before rename", "after rename")


class Slow(Callback):
    """Long iterations, without work for the processor."""

    def on_iteration(self, event: FitEvent) -> None:
        time.sleep(0.01)


def cases() -> list[tuple[Any, Any, Any]]:
    """Return estimators with rows and targets: streams and whole rows, searches, validation."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(N)
    k = np.digitize(y, (-0.5, 0.5))
    marked = np.where(np.arange(N) % 3 > 0, -1, k)
    given: dict[str, Any] = {"max_iter": 12, "random_state": 0}
    kernel = {**given, "alpha": 1e-3, "gamma": 0.5}
    stops = {**kernel, "early_stopping": True}
    stream = DSG(batch_size=50, block_size=16)
    blocks = CachedBlockDescent(block_size=32)
    return [
        (KernelRegressor(solver=stream, **stops), X, y),
        (KernelRegressor("huber", solver=blocks, **kernel), X, y),
        (KernelClassifier("hinge", solver=stream, **given), X, k),
        (KernelClassifier("hinge", solver="sdca", **kernel), X, k),
        (LinearClassifier("logistic", solver="svrg", early_stopping=True, **given), X, k),
        (SemiSupervisedKernelClassifier(solver="tsg", **given), X, marked),
        (KernelNoveltyDetector(**given), X, None),
    ]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_writing(happening: str, after: int) -> None:
    """Let this process be killed in the midst of a file, when so many have been written."""
    save, fsync, rename = persistence.save, os.fsync, os.replace
    left = after

    def saved(*args: Any) -> bytes:
        nonlocal left
        left -= 1
        return save(*args)

    def synced(file: int) -> None:
        if left < 0 and happening == "half written":
            os.ftruncate(file, os.fstat(file).st_size // 2)
            die()
        if left < 0 and happening == "before fsync":
            die()
        fsync(file)

    def renamed(source: Any, target: Any) -> None:
        if left < 0 and happening == "before rename":
            die()
        rename(source, target)
        if left < 0 and happening == "after rename":
            die()

    persistence.save, os.fsync, os.replace = saved, synced, renamed


def fill_disk(rng: np.random.Generator) -> None:
    """Let some files of this process meet a full disk, or a limit of their size."""
    if rng.random() < 0.3:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
        return
    fsync = os.fsync

    def full(file: int) -> None:
        if rng.random() < 0.5:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(file)

    os.fsync = full


def damage(path: Path, rng: np.random.Generator) -> None:
    """Cut a file, or turn a bit of it around."""
    data = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        del data[int(rng.integers(len(data))) :]
    else:
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(bytes(data))


def attempt(case: Any, folder: Path, out: Path, happens: Callable[[], None] | None) -> None:
    """Fit in this process from where the folder says, and write a digest of the model."""
    warnings.simplefilter("ignore")
    estimator, X, y = case
    keeper = Checkpoint(folder, every=1, resume=True)
    if happens is not None:
        keeper.prepare()  # on a disk with room
        keeper.prepare = lambda: None  # type: ignore[method-assign]
        happens()
    model = clone(estimator).set_params(callbacks=[Slow(), keeper]).fit(X, y)
    if happens is None:
        digest = contents_digest(timeless(model, out.with_suffix(".kgm")))
        out.with_suffix(".tmp").write_text(digest)
        out.with_suffix(".tmp").rename(out)


def run(*args: Any, delay: float | None = None) -> int:
    """Make an attempt in a process that is killed after `delay`; return its exit code."""
    process = multiprocessing.get_context("fork").Process(target=attempt, args=args)
    process.start()
    process.join(delay)
    process.kill()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def soak(fits: int, seed: int = 0, tell: Callable[[str], None] | None = None) -> Counter[str]:
    """Return how often what happened; "lost" and "different" must be 0."""
    rng = np.random.default_rng(seed)
    counts: Counter[str] = Counter({"fits": 0, "kills": 0, "lost": 0, "different": 0})
    known: list[tuple[Any, str, float]] = []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for i, case in enumerate(cases()):
            for j in range(2):  # the first may compile
                start, out = time.monotonic(), place / f"known-{i}-{j}"
                assert run(case, place / f"whole-{i}-{j}", out, None) == 0
            known.append((case, out.read_text(), time.monotonic() - start))
        for i in range(fits):
            case, digest, seconds = known[i % len(known)]
            folder, out = place / f"kept-{i}", place / f"fit-{i}"
            code = _killed(case, folder, out, seconds, rng, counts)
            if code == -signal.SIGKILL:
                code = run(case, folder, out, None)
            found = out.read_text() if out.exists() else ""
            counts["fits"] += 1
            counts["lost"] += code != 0
            if code == 0 and found != digest:
                counts["different"] += 1
                counts[f"different: {case[0]!r}"] += 1
            if tell is not None and (i + 1) % 10 == 0:
                tell(json.dumps(counts))
    return counts


def _killed(
    case: Any,
    folder: Path,
    out: Path,
    seconds: float,
    rng: np.random.Generator,
    counts: Counter[str],
) -> int:
    """Let a fit be killed once, twice or three times; return its last exit code."""
    left = int(rng.integers(1, 4))
    while True:
        what = str(rng.choice(HAPPENINGS)) if rng.random() < 0.5 else "moment"
        full = bool(rng.random() < 0.25)
        after, child = int(rng.integers(4)), np.random.default_rng(int(rng.integers(2**31)))
        happens: Any = partial(fill_disk, child) if full else None
        delay: float | None = float(rng.uniform(0.0, seconds))
        if what != "moment":
            happens, delay, full = partial(die_in_writing, what, after), None, False
        code = run(case, folder, out, happens, delay=delay)
        if code == 0:  # it ended before: begin anew
            counts["not killed in time"] += 1
            shutil.rmtree(folder)
            out.unlink(missing_ok=True)
            continue
        if code != -signal.SIGKILL:
            return code
        counts["kills"] += 1
        counts[f"{what}, disk full" if full else what] += 1
        counts["half a file was left"] += any(folder.glob(".kernelgrad-*"))
        saved = Checkpoint(folder).saved
        if saved and rng.random() < 0.25:
            damage(saved[-1], rng)
            counts["newest damaged"] += 1
        left -= 1
        if left == 0:
            return code


def main() -> int:
    """Run, and tell what happened."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--fits", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    counts = soak(args.fits, args.seed, lambda line: print(line, flush=True))
    print(json.dumps(counts, indent=1))
    return int(bool(counts["lost"] or counts["different"]))


if __name__ == "__main__":
    raise SystemExit(main())
