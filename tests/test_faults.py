"""Calls of the C library fail in turn, while files are written and read; and disks are full.

Afterwards the old file or a whole new one is there, nothing is left behind, what is read is
what was written or an error is raised, and no process crashes.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kernelgrad
from kernelgrad import KernelRegressor
from kernelgrad.callbacks import Checkpoint

HERE = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc")
ALL = "open,read,write,fsync,rename,mmap"
SCENES = ("save", "load", "fit", "resume", "memory", "read")

pytestmark = pytest.mark.skipif(
    COMPILER is None or not sys.platform.startswith("linux"),
    reason="calls are replaced as Linux allows it, by a small library in C",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("faults") / "faults.so"
    options = ["-shared", "-fPIC", "-O1", "-o", path, HERE / "faults.c", "-ldl"]
    compiled = subprocess.run([COMPILER, *options], capture_output=True, text=True, check=False)
    if compiled.returncode:
        pytest.skip(f"the C library is another one: {compiled.stderr[-200:]}")
    return str(path)


def run(library, scene, calls, most, least=0, **environment):
    path = os.pathsep.join([str(Path(kernelgrad.__file__).parents[1]), str(HERE)])
    done = subprocess.run(
        [
            sys.executable, "-X", "faulthandler", HERE / "faults.py",
            scene, calls, str(most), str(least),
        ],
        env={**os.environ, "LD_PRELOAD": library, "PYTHONPATH": path, **environment},
        capture_output=True, text=True, check=False, timeout=3000,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert not report["findings"]
    return report["outcomes"]


def test_a_save_that_fails_leaves_the_old_model(library):
    outcomes = run(library, "save", ALL, 10)
    for failure in ("write ENOSPC: OSError", "fsync EIO: OSError", "rename EPERM: Permission"):
        assert any(outcome.startswith(failure) for outcome in outcomes)
    for outcome in outcomes:
        assert "done" in outcome or not ("EINTR" in outcome or "short" in outcome)


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_every_call_fails_in_turn(library, scene):
    outcomes = run(library, scene, ALL, 1000)
    assert sum(outcomes.values()) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES[:-1])  # without memory, Arrow aborts
def test_allocations_fail_in_turn(library, scene):
    least = 512 if scene == "load" else 0  # SciPy uses small ones unseen
    outcomes = run(library, scene, "malloc", 1000, least, PYTHONMALLOC="malloc")
    assert sum(outcomes.values()) >= 40


@pytest.mark.slow
def test_kills_lose_nothing(tmp_path):
    command = ["-m", "fuzz.kills", "--count", "300", "--output", str(tmp_path)]
    path = os.pathsep.join([str(Path(kernelgrad.__file__).parents[1]), str(HERE.parent)])
    done = subprocess.run(
        [sys.executable, *command], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False, timeout=3000,
    )  # fmt: skip
    report = json.loads((tmp_path / "kills-0.json").read_text())
    assert report["findings"] == []
    assert done.returncode == 0
    assert sum(report["kills"].values()) == 600


@pytest.fixture
def disk(tmp_path):
    """Return the folder of a small disk, and what mounts it with other options."""

    def mount(*options):
        done = subprocess.run(["mount", *options, tmp_path], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("only root may mount a disk")

    mount("-t", "tmpfs", "-o", "size=64k", "none")
    yield tmp_path, mount
    subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The checkpoint:UserWarning")
def test_full_and_read_only_disks(disk):
    folder, mount = disk
    X = np.random.default_rng(0).standard_normal((3000, 8))
    models = [KernelRegressor(gamma=0.1, alpha=1.0).fit(X[:n], X[:n, 0]) for n in (50, 3000)]
    small, large = models
    small.save(folder / "m.kgm")
    before = (folder / "m.kgm").read_bytes()
    with pytest.raises(OSError, match="No space left on device, so nothing was written"):
        large.save(folder / "m.kgm")
    fit = {"solver": "dsg", "gamma": 0.1, "alpha": 1e-2, "max_iter": 3, "random_state": 0}
    keeper = Checkpoint(folder / "kept", every=1)
    fitted = KernelRegressor(**fit, callbacks=keeper).fit(X, X[:, 0])
    assert np.array_equal(fitted.predict(X), KernelRegressor(**fit).fit(X, X[:, 0]).predict(X))
    mount("-o", "remount,ro")
    for model in models:
        with pytest.raises(OSError, match=r"Read-only file system.*m\.kgm"):
            model.save(folder / "m.kgm")
    with pytest.raises(OSError, match="Read-only file system"):
        KernelRegressor(callbacks=Checkpoint(folder / "other")).fit(X[:50], X[:50, 0])
    assert sorted(path.name for path in folder.iterdir()) == ["kept", "m.kgm"]
    assert (folder / "m.kgm").read_bytes() == before
