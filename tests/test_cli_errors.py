"""Errors of the command line, signals, and disks without room."""

import errno
import io
import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.experimental import enable_halving_search_cv  # noqa: F401

import kernelgrad
from cases import every
from command_line import CLASSES, NUMBERS, write_csv
from kernelgrad import KernelClassifier, KernelRegressor
from kernelgrad.cli import main
from kernelgrad.model import Model

# -- errors ------------------------------------------------------------------------------

DATA_ERRORS = {
    "fit none.csv --target y --model m": ("FileNotFoundError", "none.csv"),
    "fit good.csv --target lable --model m": ("DataError", "did you mean 'label'"),
    "fit good.csv --target label --task regression --model m": ("DataError", "text"),
    "fit good.csv --target x --task classification --model m": (
        "DataError", "--task regression",
    ),
    "fit good.csv --target label --loss huber --model m": ("ValueError", "huber"),
    "fit good.csv --target label --model .": ("IsADirectoryError", "folder"),
    "fit d.svm --target label --model m": ("DataError", "leave --target label out"),
    "fit d.npz --model m": ("DataError", "name its array with --target"),
    "predict m good.csv --output no/p.csv": ("FileNotFoundError", "create it"),
    "warmup nope": ("ValueError", "choose one of"),
}  # fmt: skip


@every(("command", "expected"), list(DATA_ERRORS.items()))
def test_data_errors_are_one_line(tmp_path, cli, monkeypatch, command, expected):
    monkeypatch.chdir(tmp_path)
    good = {"a": range(30), "x": np.linspace(0, 1, 30), "label": ["x", "y"] * 15}
    write_csv(tmp_path / "good.csv", good)
    np.savez(tmp_path / "d.npz", X=np.ones((4, 2)))
    Path("d.svm").write_text("1 1:1")
    before = sorted(tmp_path.iterdir())
    code, out, err = cli(*command.split())
    last = err.splitlines()[-1]
    assert (code, out) == (1, "")
    assert last.startswith("Error: ")
    assert expected[1] in last
    code, out, _ = cli(*command.split(), "--json")
    assert code == 1
    assert json.loads(out) == {"error": last.removeprefix("Error: "), "type": expected[0]}
    assert sorted(tmp_path.iterdir()) == before


FIT = "fit none.csv --target y --model m.kgm"
USAGE_ERRORS = {
    "frobnicate": "frobnicate",
    f"{FIT} --colour red": "--colour",
    "fit none.csv": "--model",
    f"{FIT} --loss zero_one": "'zero_one'; choose one of: ",
    f"{FIT} --loss huber:dela=2": "'dela'; did you mean 'delta'?",
    f"{FIT} --kernel matern:nu=-1": "nu must",
    f"{FIT} --gamma big": "'big'; choose one of: auto, median, scale, or give",
    f"{FIT} --class-weight even": "'even'; choose one of: balanced",
    f"{FIT} --task clustering": "clustering",
    f"{FIT} --max-iter 2.5": "max_iter",
    f"{FIT} --seed -3": "Seed must be",
    f"{FIT} --learning-curve curve.doc": "curve.doc",
    "tune a.csv --model m --search alpa=1": "'alpa' (did you mean 'alpha'?)",
    "tune a.csv --model m --search kernel=rbv": "'rbv' (did you mean 'rbf'?)",
    "tune a.csv --model m --search alpha=1..a": "'a'",
    "tune a.csv --model m --search alpha=0..1": "above 0 and increase",
    "tune a.csv --model m --search gamma=2..1": "above 0 and increase",
    "tune a.csv --model m --search validation_fraction=0.5..2": "validation_fraction",
    "tune a.csv --model m --search max_iter=1.5..3": "max_iter",
    "tune a.csv --model m --search alpha=1 --scoring roc": "did you mean 'roc_auc'?",
    "tune a.csv --model m --search alpha=1 --scoring rmse": "'neg_root_mean_squared_error'?)",
    "tune a.csv --model m --search alpha=1e-8:0.1": "write alpha=1e-8..0.1 for a range",
    "predict m d.csv --output p.txt": ".npy",
    "predict m a.csv --output a.csv": "overwrite",
    "predict m d.csv --output p.npy --proba --decision": "one array",
}


@every(("command", "part"), list(USAGE_ERRORS.items()))
def test_wrong_command_lines_exit_2(cli, command, part):
    code, out, err = cli(*command.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert part in err
    assert "--help" in err
    code, out, _ = cli(*command.split(), "--json")
    assert code == 2
    assert json.loads(out)["type"] == "UsageError"
    assert part in json.loads(out)["error"]


def test_what_a_model_cannot_give(tmp_path, data, models, cli, monkeypatch):
    monkeypatch.chdir(models)
    narrow = write_csv(tmp_path / "narrow.csv", {"a": [1.0], "c": [2.0]})
    output = ("--output", tmp_path / "p.csv")
    for code, part, *arguments in (
        (1, "'hinge'", "predict", "hinge", data, *output, "--proba"),
        (1, "no classifier", "predict", "regressor", data, *output, "--proba"),
        (1, "'b'", "predict", "classifier", narrow, *output),
        (1, "--target", "score", "classifier", data, "--target", "value"),
        (1, "the model predicts numbers", "score", "regressor", data, "--target", "label"),
        (2, "--output", "predict", "regressor", data, "--output", "-", "--json"),
        (2, "is for", "fit", data, "--model", "m", *NUMBERS, "--class-weight", "balanced"),
    ):
        found, out, err = cli(*arguments)
        assert found == code
        assert part in out + err
        assert [path.name for path in tmp_path.iterdir()] == ["narrow.csv"]


def test_interrupts_leave_no_new_file(tmp_path, data, models, cli, monkeypatch):
    def interrupted(self, *args):
        raise KeyboardInterrupt

    monkeypatch.setattr(kernelgrad.DSG, "step", interrupted)
    monkeypatch.setattr(Model, "probabilities", interrupted)
    output = tmp_path / "p.csv"
    output.write_text("old")
    for command in (
        ("predict", models / "classifier", data, "--output", output),
        ("fit", data, "--model", tmp_path / "m", *CLASSES, "--solver", "dsg"),
    ):
        code, out, _ = cli(*command, "--json")
        assert code == 130
        assert json.loads(out)["type"] == "KeyboardInterrupt"
        assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("p.csv", "old")]


def test_warnings_and_folders_without_rights(tmp_path, data, cli, monkeypatch):
    fit = KernelRegressor.fit

    def warn(self, X, **validation):
        warnings.warn("the sea is rough,\n take care", UserWarning, stacklevel=2)
        return fit(self, X, **validation)

    monkeypatch.setattr(KernelRegressor, "fit", warn)
    code, _, err = cli("fit", data, "--model", tmp_path / "m.kgm", *NUMBERS)
    assert (code, err) == (0, "Warning: the sea is rough, take care\n")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    code, _, err = cli("fit", data, "--model", tmp_path / "m.kgm", *CLASSES)
    assert code == 1
    assert "not writable" in err


def test_without_optional_packages(tmp_path, data, cli, monkeypatch):
    for name in ("matplotlib", "matplotlib.backend_bases", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    curve = ("--learning-curve", tmp_path / "c.png")
    for arguments, part in (
        (("fit", data, "--model", tmp_path / "m.kgm", *CLASSES, *curve), "kernelgrad[plot]"),
        (("demo", "--output-dir", tmp_path), "The demo needs matplotlib: pip install"),
    ):
        code, _, err = cli(*arguments)
        assert code == 1
        assert part in err
    assert not list(tmp_path.iterdir())
    monkeypatch.setitem(sys.modules, "typer", None)
    code, out, err = cli("--version")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "pip install kernelgrad[cli]" in err


# -- signals, and disks without room -----------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signals for one process")
@every(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@every("when", ["a step", "the file"])
def test_signals_keep_the_model(tmp_path, data, cli, monkeypatch, number, code, when):
    step, save = kernelgrad.DSG.step, KernelClassifier.save

    def hit_step(self, problem, state, batch):
        if when == "a step" and state.iteration == 2:
            signal.raise_signal(number)
        return step(self, problem, state, batch)

    def hit_save(self, path, key):
        if when == "the file":
            signal.raise_signal(number)
            time.sleep(0.01)
        save(self, path, key=key)

    model = tmp_path / "m.kgm"
    options = ("--solver", "dsg", "--max-iter", "5", "--no-early-stopping")
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with monkeypatch.context() as patched:
        patched.setattr(kernelgrad.DSG, "step", hit_step)
        patched.setattr(KernelClassifier, "save", hit_save)
        found, out, err = cli("fit", data, "--model", model, *CLASSES, *options, "--json")
    assert signal.signal(signal.SIGTERM, before) is signal.SIG_DFL
    assert found == code
    assert "m.kgm holds the model after" in err
    result, fitted = json.loads(out), kernelgrad.load(model)
    steps, status = (3, "interrupted") if when == "a step" else (5, "max_iter")
    assert (result["status"], result["iterations"], fitted.n_iter_) == (status, steps, steps)


def test_a_model_without_room_is_kept_elsewhere(tmp_path, data, cli, monkeypatch):
    save, model = KernelClassifier.save, tmp_path / "m.kgm"
    spare = tmp_path / "none"

    def full(self, path, key):
        if path == model or spare.exists():
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        save(self, path, key=key)

    monkeypatch.setattr(KernelClassifier, "save", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, _, err = cli("fit", data, "--model", model, *CLASSES)
    assert code == 1
    [spare] = tmp_path.glob("m-*.kgm")
    assert f"No space left on device. The model is in {spare} instead" in err
    assert kernelgrad.load(spare).n_iter_ == 1
    code, _, err = cli("fit", data, "--model", model, *CLASSES)  # nor is there any elsewhere
    assert code == 1
    assert str(model) in err


def test_a_reader_that_has_gone_ends_quietly(data, models, monkeypatch, capfd):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(sys, "stdout", Closed())
    with pytest.raises(SystemExit, match="1"):
        main(["predict", str(models / "classifier"), str(data), "--output", "-"])
    assert capfd.readouterr().err == ""
