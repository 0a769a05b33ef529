"""Fits that go on from a checkpoint: the same bits, whatever happened to them."""

import errno
import json
import os
import shutil
import signal
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import kernelgrad as kg
from cases import every, raises
from kernelgrad.callbacks import Callback, Checkpoint
from kernelgrad.cli import main
from kernelgrad.files.container import read_container, write_container
from kernelgrad.testing import check_checkpoints
from sources import opened
from steps import At

slow = pytest.mark.slow
N = 240
rng = np.random.default_rng(0)
X = rng.standard_normal((N, 3))
signal_ = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(N)
labels = np.digitize(signal_, (-0.5, 0.5))
GIVEN = {"max_iter": 3, "random_state": 0}
KERNEL = {**GIVEN, "alpha": 1e-3, "gamma": 0.5}


FRAME = pd.DataFrame(X, columns=["a", "b", "c"]).assign(
    kind=pd.Categorical(np.where(X[:, 2] > 0, "u", "v"))
)
FRAME.loc[::7, "a"] = np.nan
SMALL = kg.BlockDescent(block_size=32)
SEMI = partial(kg.SemiSupervisedKernelClassifier, **GIVEN)
FAMILIES = {  # the contract of estimators resumes every solver on arrays
    "table": (kg.KernelRegressor("huber", solver=SMALL, **KERNEL), FRAME, signal_),
    "batches": (
        kg.LinearRegressor(
            solver=kg.linear.SGD(batch_size=50), early_stopping=True, n_iter_no_change=4,
            tol=0.1, random_state=0,
        ), X, signal_,
    ),
    "folds": (SEMI(solver="tsg"), X, np.where(np.arange(N) % 3 > 0, -1, labels)),
    "supervised": (SEMI(solver="soft_labels"), X, labels),  # by another solver in the end
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_family_goes_on_with_the_same_bits(name):
    assert check_checkpoints(*FAMILIES[name]) >= 1


@pytest.mark.parametrize(
    "kind", ["csv", *(pytest.param(k, marks=slow) for k in ("parquet", "npy", "memmap"))]
)
@pytest.mark.usefixtures("tiny_limits")
def test_files_go_on_with_the_same_bits(tmp_path, kind):
    # batches of one row: most weights are zero, so that batches are passed over
    weight = (np.arange(N) % 5 == 0).astype(float)
    source = opened(tmp_path, kind, X, signal_, weight)
    solver = kg.DSG(batch_size=1, block_size=8)
    model = kg.KernelRegressor(solver=solver, memory_limit="1kB", **{**KERNEL, "max_iter": 12})
    assert check_checkpoints(model, source) == 12


class CrashError(Exception):
    pass


def crash():
    raise CrashError


def stop():
    return True


STREAM = kg.KernelRegressor(
    solver=kg.DSG(batch_size=50, block_size=16),
    early_stopping=True,
    **{**KERNEL, "max_iter": 8},
)


def fit(folder, *more, estimator=STREAM, data=(X, signal_), **options):
    keeper = Checkpoint(folder, **{"every": 1, "resume": True, **options})
    return clone(estimator).set_params(callbacks=[keeper, *more]).fit(*data)


def same(model, other=None):
    other = clone(STREAM).fit(X, signal_) if other is None else other
    assert np.array_equal(model.predict(X), other.predict(X))
    assert model.n_iter_ == other.n_iter_
    assert model.fit_status_ == other.fit_status_
    assert model.history_["validation_score"] == other.history_["validation_score"]


def crashed(folder, at=5, **options):
    with pytest.raises(CrashError):
        fit(folder, At(at, crash), **options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_crash_loses_at_most_an_interval(tmp_path):
    crashed(tmp_path, at=7, every=3)
    assert names(tmp_path) == ["checkpoint-000000003.kgc", "checkpoint-000000006.kgc"]
    begun = []
    same(fit(tmp_path, At(7, lambda: begun.append(7)), At(6, lambda: begun.append(6))))
    assert begun == [7]


def test_nothing_is_written_before_a_resumed_fit_has_gone_on(tmp_path):
    crashed(tmp_path, every="0.000001 s")
    before = names(tmp_path)
    crashed(tmp_path, at=int(before[-1][11:20]) + 1, every="0.000001 s")
    assert "checkpoint-000000000.kgc" not in names(tmp_path)


def test_a_finished_fit_is_not_run_again(tmp_path):
    tmp_path.joinpath(".kernelgrad-0123456789abcdef.tmp").write_bytes(b"a kill left it")
    fit(tmp_path, keep=3)
    assert names(tmp_path) == [f"checkpoint-00000000{i}.kgc" for i in (6, 7, 8)]
    same(fit(tmp_path, At(8, crash)))
    same(fit(tmp_path, resume=False))  # a new one takes the place of one that is finished


def test_ctrl_c_writes_a_last_checkpoint(tmp_path):
    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="after 3 iterations"):
        fit(tmp_path, At(3, interrupt), every="1 h")
    assert names(tmp_path) == ["checkpoint-000000003.kgc"]
    same(fit(tmp_path, every="1 h"))


def test_a_stopped_fit_goes_on_unless_it_would_be_stopped_again(tmp_path):
    stopped = fit(tmp_path, At(3, stop))
    assert stopped.fit_status_ == "stopped"
    same(fit(tmp_path, At(3, stop)), stopped)
    same(fit(tmp_path))


def test_time_limits_count_the_time_before(tmp_path):
    crashed(tmp_path)
    path = tmp_path / "checkpoint-000000004.kgc"
    header, arrays = read_container(path, "checkpoint")
    write_container(path, {**header, "spent": 1000.0}, arrays, "checkpoint")
    (tmp_path / "checkpoint-000000003.kgc").unlink()
    model = fit(tmp_path, estimator=clone(STREAM).set_params(time_limit=900.0))
    assert (model.fit_status_, model.n_iter_) == ("time_limit", 5)  # one step at least
    assert read_container(max(tmp_path.iterdir()), "checkpoint")[0]["spent"] >= 1000.0
    same(fit(tmp_path, estimator=clone(STREAM).set_params(time_limit=9000.0)))


class Phases(Callback):
    """Record the phases of a fit; crash in one of them."""

    def __init__(self, crashes=None):
        self.names, self.crashes = [], crashes

    def on_phase(self, name):
        self.names.append(name)
        if name == self.crashes:
            raise CrashError


def test_a_search_that_took_an_interval_is_not_repeated(tmp_path):
    options = {"estimator": kg.KernelClassifier("hinge", solver="dsg", metric=None, **GIVEN)}
    options["data"] = (X[:90], labels[:90])
    expected = clone(options["estimator"]).fit(*options["data"])
    for interval, saved in (("1 h", []), ("0.000001 s", ["checkpoint-000000000.kgc"])):
        with pytest.raises(CrashError):
            fit(tmp_path, Phases("calibration"), every=interval, **options)
        assert names(tmp_path) == saved
    phases = Phases()
    model = fit(tmp_path, phases, **options)
    assert phases.names == ["calibration", ""]
    assert np.array_equal(model.predict_proba(X), expected.predict_proba(X))


def test_without_a_seed_the_first_one_is_kept(tmp_path):
    free = clone(STREAM).set_params(random_state=None)
    crashed(tmp_path / "one", estimator=free)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    same(*(fit(tmp_path / name, estimator=free) for name in ("one", "two")))


def test_a_warm_start_goes_on(tmp_path):
    def start():
        return clone(STREAM).set_params(warm_start=True, max_iter=4).fit(X, signal_)

    expected = start().fit(X, signal_)
    model = start().set_params(callbacks=[Checkpoint(tmp_path, 1), At(6, crash)])
    with pytest.raises(CrashError):
        model.fit(X, signal_)
    model = start().set_params(callbacks=Checkpoint(tmp_path, 1, resume=True))
    same(model.fit(X, signal_), expected)
    raises(ValueError, r"another fit \(start", model.fit, X, signal_)


@every("damage", [
    lambda data: data[: len(data) // 2],
    lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
])  # fmt: skip
def test_a_damaged_checkpoint_is_passed_over(tmp_path, damage):
    crashed(tmp_path)
    before, latest = sorted(tmp_path.iterdir())
    latest.write_bytes(damage(latest.read_bytes()))
    begun = []
    with pytest.warns(UserWarning, match="checkpoint-000000003.kgc is taken instead"):
        crashed(tmp_path, at=4)
    latest.unlink()
    before.write_bytes(b"?")
    with pytest.warns(UserWarning, match="begins anew"):
        same(fit(tmp_path, At(1, lambda: begun.append(1))))
    assert begun == [1]


def test_a_full_disk_is_no_reason_to_stop(tmp_path, monkeypatch):
    crashed(tmp_path)
    fsync = os.fsync

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(OSError, match="No space"):  # before any work
        fit(tmp_path)
    keeper = Checkpoint(tmp_path, 1, resume=True)
    monkeypatch.setattr(keeper, "prepare", lambda: None)
    with pytest.warns(UserWarning, match=r"could not be written \(.*No space left"):
        same(STREAM.set_params(callbacks=keeper).fit(X, signal_))
    STREAM.set_params(callbacks=None)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    monkeypatch.setattr(os, "fsync", fsync)
    same(fit(tmp_path))


@every(
    ("change", "told"),
    [
        ({"data": (X + 1e-12, signal_)}, "rows: other rows, targets or weights"),
        ({"data": (X, signal_, np.arange(N) + 1.0)}, "rows: other rows"),
        ({"estimator": clone(STREAM).set_params(alpha=0.5)}, r"alpha was .*0.001.*0.5"),
        ({"estimator": kg.LinearRegressor(random_state=0)}, "estimator: was KernelRegressor"),
        ({"resume": False}, "not finished, up to checkpoint-000000004.kgc"),
        ({"version": "9.9"}, r"version: was 9.9"),
    ],
)
def test_other_fits_are_refused(tmp_path, change, told):
    crashed(tmp_path)
    before = names(tmp_path)
    if "version" in change:
        path = tmp_path / before[-1]
        header, arrays = read_container(path, "checkpoint")
        write_container(path, {**header, "identity": header["identity"] | change}, arrays,
                        "checkpoint")  # fmt: skip
        change = {}
    raises(ValueError, told, fit, tmp_path, At(5, crash), **change)
    assert names(tmp_path) == before


def test_only_fit_takes_a_checkpoint(tmp_path):
    keeper = Checkpoint(tmp_path)
    with pytest.raises(ValueError, match="resumable=True"):
        kg.KernelRegressor(solver="dsg", callbacks=keeper).partial_fit(X, signal_)
    with pytest.raises(ValueError, match="more than one"):
        kg.KernelRegressor(callbacks=[keeper, keeper]).fit(X, signal_)
    own = kg.KernelRegressor(kernel=lambda a, b: a @ b.T, solver="sdca", alpha=1.0)
    raises(TypeError, "function", own.set_params(callbacks=keeper).fit, X, signal_)


@every("every", ["60", "0 s", "-1 s", "1 d", 0, 1.5, None, True])
def test_intervals_are_checked(tmp_path, every):
    raises((ValueError, TypeError), "every", Checkpoint, tmp_path, every)


@pytest.fixture
def command(tmp_path):
    path = tmp_path / "rows.csv"
    pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=signal_).to_csv(path, index=False)
    fast = ("--target", "y", "--solver", "dsg", "--max-iter", "6", "--seed", "0")

    def run(*more, model="model.kg"):
        where = ("--model", tmp_path / model, "--checkpoint", tmp_path / "kept")
        return main([str(a) for a in ("fit", path, *where, *fast, *more)])

    return run


@slow
def test_command_line_goes_on(tmp_path, command, monkeypatch, capsys):
    assert command("--checkpoint-every", "1", model="whole.kg") == 0
    for path in (tmp_path / "kept").iterdir():
        path.unlink()
    assert command("--resume", model="anew.kg") == 0
    assert "is empty: begins anew" in capsys.readouterr().err
    state = Checkpoint.on_state

    def interrupted(self, describe, status=None):
        state(self, describe, status)
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "on_state", interrupted)
    command("--checkpoint-every", "1")
    monkeypatch.undo()
    capsys.readouterr()
    assert command() == 1
    assert "not finished" in capsys.readouterr().err
    assert command("--resume") == 0
    assert "Goes on from" in capsys.readouterr().err
    whole, resumed = (read_container(tmp_path / name) for name in ("whole.kg", "model.kg"))
    for name, array in whole[1].items():
        assert array.tobytes() == resumed[1][name].tobytes()


def test_command_line_refusals(tmp_path, command, capsys):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "thesis.tex").write_text("years of work")
    assert command("--json") == 1
    assert "thesis.tex" in json.loads(capsys.readouterr().out)["error"]
    assert command("--checkpoint-every", "soon") == 2
    assert "--checkpoint-every" in capsys.readouterr().err
    alone = ["fit", str(tmp_path / "rows.csv"), "--model", "m", "--target", "y", "--resume"]
    assert main(alone) == 2
    assert not (tmp_path / "model.kg").exists()
