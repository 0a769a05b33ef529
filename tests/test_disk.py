"""Files that appear whole or not at all, and what is no file."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kernelgrad
from cases import raises
from kernelgrad import DataError, KernelRegressor, ModelFileError, load, open_source
from kernelgrad.callbacks import Checkpoint
from kernelgrad.cli import main
from kernelgrad.files import disk as _disk
from kernelgrad.files.disk import ScratchFolder, replacing

NAME = ".kernelgrad-0123456789abcdef.tmp"


@pytest.fixture(scope="module")
def model():
    X = np.linspace(-1, 1, 50)[:, None]
    return KernelRegressor(alpha=1e-3, gamma=1.0).fit(X, X[:, 0] ** 2)


@pytest.fixture(params=["a folder", "a device", "a pipe", "a socket"])
def no_file(request, tmp_path):
    path = tmp_path / "it.csv"
    if request.param == "a folder":
        path.mkdir()
    elif request.param == "a device":
        path.symlink_to(os.devnull)
    elif request.param == "a pipe":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    return path, request.param


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX: pipes and devices as files")
def test_what_is_no_file_is_refused_and_stays(no_file, model, capsys):
    path, kind = no_file
    before = path.stat()
    raises((ValueError, OSError), f"is {kind}; give the name of a file", model.save, path)
    raises(ModelFileError, f"is {kind}, no model file", load, path)
    data = path.parent / "data.csv"
    data.write_text("a,y\n1,2\n2,3\n")
    assert main(["fit", str(data), "--target", "y", "--model", str(path)]) == 1
    assert f"The model {path} is {kind}" in capsys.readouterr().err
    if kind != "a folder":
        for source in (path, [data, path], path.parent / "*.csv"):
            raises(DataError, f"is {kind}", open_source, source, target="y")
    assert path.stat() == before


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX locks, which a kill releases")
def test_what_a_kill_left_is_removed_an_hour_later(tmp_path, monkeypatch):
    monkeypatch.setattr(_disk.tempfile, "tempdir", str(tmp_path))
    for use in (lambda: replacing(tmp_path / "new").__enter__(), ScratchFolder):
        old, young = tmp_path / NAME, tmp_path / NAME.replace("0", "1")
        others = [tmp_path / name for name in (NAME[1:], NAME + "x", ".kernelgrad-mine.tmp")]
        for path in (old, young, *others):
            path.write_bytes(b"half")
        folder = tmp_path / NAME.replace("0", "2")
        folder.mkdir()
        (folder / "rows").write_bytes(b"half")
        for path in (old, folder, *others):
            os.utime(path, (0, 0))
        with old.open("rb+") as file:  # its process lives
            assert _disk._try_lock(file.fileno())
            first = use()
            assert old.exists()
        second = use()
        assert not old.exists()
        assert not folder.exists()
        assert young.exists()
        assert all(path.exists() for path in others)
        del first, second
    assert {*tmp_path.iterdir()} == {young, *others}


def run(*command):
    """Run a module of the checkout in a process of its own."""
    path = os.pathsep.join(str(Path(f).parents[1]) for f in (kernelgrad.__file__, __file__))
    return subprocess.run(
        [sys.executable, "-m", *command], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False, timeout=3000,
    )  # fmt: skip


@pytest.mark.slow
def test_kills_lose_nothing(tmp_path):
    done = run("fuzz.kills", "--count", "300", "--output", str(tmp_path))
    report = json.loads((tmp_path / "kills-0.json").read_text())
    assert report["findings"] == []
    assert done.returncode == 0
    assert sum(report["kills"].values()) == 600


@pytest.mark.slow
def test_no_call_that_fails_loses_a_file():
    done = run("fuzz.refusals")
    assert done.returncode == 0, done.stdout + done.stderr


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
        raises(OSError, r"Read-only file system.*m\.kgm", model.save, folder / "m.kgm")
    with pytest.raises(OSError, match="Read-only file system"):
        KernelRegressor(callbacks=Checkpoint(folder / "other")).fit(X[:50], X[:50, 0])
    assert sorted(path.name for path in folder.iterdir()) == ["kept", "m.kgm"]
    assert (folder / "m.kgm").read_bytes() == before
