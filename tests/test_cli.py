"""The command line, end to end on files."""

import base64
import errno
import io
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.metrics import log_loss, mean_absolute_error, r2_score, root_mean_squared_error

import kernelgrad
from cases import every
from kernelgrad import KernelRegressor
from kernelgrad.cli import main
from kernelgrad.cli.demo import studies, work
from kernelgrad.cli.report import print_json
from kernelgrad.compute import compiling
from kernelgrad.solvers import get_solver

N = 300
FAST = ("--max-iter", "6", "--seed", "0", "--quiet")


@pytest.fixture
def cli(capsys):
    """Run the command line in this process; return code, stdout and stderr."""

    def run(*args):
        capsys.readouterr()
        code = main([str(a) for a in args])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


@pytest.fixture
def ok(cli):
    """Run a command with --json that must succeed; return the object."""

    def run(*args):
        code, out, err = cli(*args, "--json")
        assert code == 0, out + err
        return json.loads(out)

    return run


def make_data(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    value = np.sin(2 * X[:, 0]) + X[:, 1]
    return X, value


def write_csv(path, columns):
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(str(v) for v in row) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def libsvm(folder):
    (folder / "d.svm").write_text("1 1:1")
    return folder / "d.svm"


def write_arrays(path, **arrays):
    np.savez(path, **arrays)
    return path


def table(n=N, seed=0):
    X, value = make_data(n, seed)
    return {
        "a": X[:, 0],
        "b": X[:, 1],
        "c": X[:, 2],
        "value": value,
        "label": np.where(value > 0, "yes", "no"),
        "weight": np.linspace(0.5, 2.0, n),
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_csv(tmp_path_factory.mktemp("data") / "data.csv", table())


CLASSES = ("--target", "label", "--drop", "value,weight", *FAST)
NUMBERS = ("--target", "value", "--drop", "label", "--drop", "weight", *FAST)


@pytest.fixture(scope="module")
def models(tmp_path_factory, data):
    """Files of a classifier, a regressor and a classifier without probabilities."""
    folder = tmp_path_factory.mktemp("models")
    for name, arguments in (
        ("classifier", CLASSES),
        ("regressor", NUMBERS),
        ("hinge", (*CLASSES, "--loss", "hinge")),
    ):
        assert main(["fit", str(data), "--model", str(folder / name), *arguments]) == 0
    return folder


@pytest.fixture
def classifier(models):
    return models / "classifier"


@pytest.fixture
def regressor(models):
    return models / "regressor"


def features(n=N):
    return np.column_stack([table(n)[name] for name in "abc"])


# -- fit ---------------------------------------------------------------------------------


def test_fit_reports_and_saves_the_model_the_api_would_fit(tmp_path, data, ok):
    path = tmp_path / "m.kgm"
    flags = ("--standardize", "--early-stopping", "--loss", "log_loss", "--gamma", "median")
    result = ok("fit", data, "--model", path, *CLASSES, *flags)
    assert (result["rows"], result["columns"]) == (N, 3)
    assert (result["task"], result["task_inferred"]) == ("classification", True)
    assert result["status"] == "max_iter"
    assert result["iterations"] == 6
    assert result["score_name"] == "accuracy"
    assert result["bytes"] == path.stat().st_size
    source = kernelgrad.open_source(data, target="label", drop=["value", "weight"])
    expected = kernelgrad.KernelClassifier(
        "log_loss", gamma="median", standardize=True, early_stopping=True, max_iter=6,
        random_state=0,
    ).fit(source)  # fmt: skip
    loaded = kernelgrad.load(path)
    np.testing.assert_array_equal(
        loaded.decision_function(source), expected.decision_function(source)
    )
    assert result["validation_score"] == expected.best_score_
    assert result["random_features"] == expected.n_random_features_


def test_cost_is_the_c_of_a_support_vector_machine(tmp_path, data, ok):
    path = tmp_path / "m.kgm"
    svm = ("--loss", "hinge", "--solver", "sbp", "-C", "2")
    result = ok("fit", data, "--model", path, *CLASSES, *svm)
    loaded = kernelgrad.load(path)
    assert result["random_features"] == 0
    assert result["support_rows"] == loaded.n_support_ > 0
    assert 1 / loaded.model_info()["alpha"] == pytest.approx(2 * N)


def test_fit_prints_a_summary_to_stdout_and_progress_to_stderr(
    tmp_path, data, cli, monkeypatch
):
    monkeypatch.setattr("kernelgrad.callbacks.progress._shows_bars", lambda: True)
    path = tmp_path / "m.kgm"
    arguments = [a for a in CLASSES if a != "--quiet"]
    code, out, err = cli("fit", data, "--model", path, *arguments)
    assert code == 0
    names = [line.split("  ")[0] for line in out.splitlines()]
    assert names == [
        "rows", "columns", "task", "status", "seconds", "iterations", "support rows",
        "model",
    ]  # fmt: skip
    assert "classification (inferred" in out
    assert "300 rows, 3 columns, classification" in err
    assert "it/s" in err
    assert cli("fit", data, "--model", path, *CLASSES) == (0, "", "")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "svm", "npz"])
def test_every_format_end_to_end(tmp_path, suffix, ok):
    X, value = make_data()
    y = (value > 0).astype(int) + (value > 1)
    path = tmp_path / f"data.{suffix}"
    named = suffix in ("csv", "parquet")
    columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y}
    if suffix == "csv":
        write_csv(path, columns)
    elif suffix == "parquet":
        pq.write_table(pa.table(columns), path)
    elif suffix == "svm":
        dump_svmlight_file(X, y, str(path), zero_based=False)
    else:
        np.savez(path, X=X, y=y)
    target = ("--target", "y") if named else ()
    model, output = tmp_path / "m.kgm", tmp_path / "p.npy"
    result = ok("fit", path, "--model", model, *target, *FAST)
    assert (result["task"], result["columns"]) == ("classification", 3)
    assert ok("predict", model, path, "--output", output)["rows"] == N
    accuracy = np.mean(np.load(output) == y)
    assert accuracy > 0.7
    assert ok("score", model, path, *target)["accuracy"] == accuracy


def test_standard_input(tmp_path, data, cli, ok, monkeypatch):
    def piped(text):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return "-"

    model, rows = tmp_path / "m.kgm", data.read_text()
    assert ok("fit", piped(rows), "--model", model, *CLASSES)["columns"] == 3
    kept = ok("score", model, data, "--target", "label")
    assert ok("score", model, piped(rows), "--target", "label") == kept
    found = [cli("predict", model, of, "--output", "-") for of in (piped(rows), data)]
    assert found[0] == found[1]
    code, _, err = cli("fit", piped(""), "--model", model, *CLASSES)
    assert code == 1
    assert "standard_input.csv" in err
    assert "write a header line" in err


def test_folders_and_patterns(tmp_path, ok, cli):
    X, value = make_data()
    folder, model, output = tmp_path / "rows", tmp_path / "m.kgm", tmp_path / "p.npy"
    columns = {"a": X[:, 0], "b": X[:, 1], "y": value > 0}
    for i, part in enumerate((slice(0, 100), slice(100, None))):
        inside = folder / f"half={i}"
        inside.mkdir(parents=True)
        write_csv(inside / "0.csv", {name: column[part] for name, column in columns.items()})
    whole = np.column_stack([X[:, :2], np.arange(N) >= 100])
    for path in (folder, f"{folder}/**/*.csv"):
        result = ok("fit", path, "--model", model, "--target", "y", *FAST)
        assert (result["rows"], result["columns"]) == (N, 3)
        assert ok("predict", model, path, "--output", output)["rows"] == N
        expected = kernelgrad.load(model).predict(kernelgrad.ArraySource(whole))
        np.testing.assert_array_equal(np.load(output), expected)
        accuracy = ok("score", model, path, "--target", "y")["accuracy"]
        assert accuracy == np.mean(np.load(output) == (value > 0))
    code, _, err = cli("predict", model, f"{folder}/*.csv", "--output", output)
    assert code == 1
    assert "No file matches" in err.splitlines()[-1]


def test_regression_options_reach_the_estimator(tmp_path, data, ok):
    path = tmp_path / "m.kgm"
    ok(
        "fit", data, "--model", path, "--target", "value", "--drop", "label",
        "--weight", "weight", "--task", "regression", "--loss", "huber",
        "--kernel", "laplacian", "--gamma", "0.5", "--bandwidth-factor", "2",
        "--solver", "dsg", "--alpha", "1e-4", "--metric", "none",
        "--no-early-stopping", "--no-standardize", "--threads", "1", "--time-limit", "600",
        *FAST,
    )  # fmt: skip
    assert kernelgrad.get_num_threads() == 1
    kernelgrad.set_num_threads(None)
    found = kernelgrad.load(path).get_params()
    expected = {
        "loss": "huber", "kernel": "laplacian", "gamma": 0.5, "bandwidth_factor": 2.0,
        "solver": "dsg", "alpha": 1e-4, "early_stopping": False, "standardize": False,
        "random_state": 0, "max_iter": 6, "metric": None,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    source = kernelgrad.open_source(data, target="value", drop=["label"], weight="weight")
    again = kernelgrad.KernelRegressor(**expected).fit(source)
    np.testing.assert_array_equal(kernelgrad.load(path).predict(source), again.predict(source))


def test_options_beside_the_model(tmp_path, data, cli, ok, monkeypatch):
    pytest.importorskip("matplotlib")
    path, curve = tmp_path / "m.kgm", tmp_path / "curve.png"
    secret, key = tmp_path / "secret", bytes(range(16))
    secret.write_bytes(key)
    monkeypatch.setenv("KERNELGRAD_KEY_FILE", str(secret))
    path.write_text("something else")
    result = ok(
        "fit", data, "--model", path, *CLASSES, "--no-early-stopping", "--max-iter", "1",
        "--loss", "log_loss", "--class-weight", "balanced", "--learning-curve", curve,
    )  # fmt: skip
    assert (result["status"], result["iterations"]) == ("max_iter", 1)
    model = kernelgrad.load(path, key=key)
    assert (model.n_iter_, model.class_weight) == (1, "balanced")
    assert result["learning_curve"] == str(curve)
    assert curve.read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curve.png", "m.kgm", "secret"]
    commands = (
        ("inspect", path),
        ("inspect", path, "--latency"),
        ("score", path, data, "--target", "label"),
    )
    assert [cli(*command)[0] for command in commands] == [0, 0, 0]
    secret.write_bytes(b"another of 16 bytes")
    assert [cli(*command)[0] for command in commands] == [1, 1, 1]


def test_a_time_limit_ends_the_fit(tmp_path, data, cli):
    path = tmp_path / "m.kgm"
    code, out, err = cli(
        "fit", data, "--model", path, *CLASSES, "--time-limit", "1e-9", "--json"
    )
    assert code == 0
    assert "the model is a constant; raise time_limit" in err
    assert json.loads(out)["status"] == kernelgrad.load(path).fit_status_ == "time_limit"


# -- predict, score, inspect -------------------------------------------------------------


def test_predict_matches_columns_by_name(tmp_path, classifier, cli, ok):
    columns = table()
    shuffled = {name: columns[name] for name in ("c", "value", "a", "b")}
    other = write_csv(tmp_path / "other.csv", shuffled)
    output = tmp_path / "p.csv"
    assert ok("predict", classifier, other, "--output", output)["rows"] == N
    source = kernelgrad.ArraySource(features())
    expected = kernelgrad.load(classifier).predict(source)
    assert output.read_text().splitlines() == ["prediction", *expected]
    code, out, _ = cli("predict", classifier, other, "--output", "-")
    assert code == 0
    assert out == output.read_text()
    assert not list(tmp_path.glob(".*"))


def test_predict_with_probabilities_and_decision_values(tmp_path, data, classifier, ok):
    output = tmp_path / "p.csv"
    ok("predict", classifier, data, "--output", output, "--proba", "--decision")
    header, *rows = [line.split(",") for line in output.read_text().splitlines()]
    assert header == ["prediction", "proba_no", "proba_yes", "decision"]
    model, source = kernelgrad.load(classifier), kernelgrad.ArraySource(features())
    values = np.array([row[1:] for row in rows], dtype=float)
    np.testing.assert_allclose(values[:, :2], model.predict_proba(source), rtol=1e-6)
    np.testing.assert_allclose(values[:, 2], model.decision_function(source), rtol=1e-6)
    assert [row[0] for row in rows] == model.predict(source).tolist()


@pytest.mark.parametrize("option", ["predict", "predict_proba", "decision_function"])
def test_predict_to_npy_equals_the_api(tmp_path, data, classifier, ok, option):
    output = tmp_path / "p.npy"
    flags = {"predict_proba": ["--proba"], "decision_function": ["--decision"]}
    ok("predict", classifier, data, "--output", output, *flags.get(option, []))
    source = kernelgrad.ArraySource(features())
    expected = getattr(kernelgrad.load(classifier), option)(source)
    np.testing.assert_array_equal(np.load(output), expected)


def test_text_that_the_output_cannot_show(tmp_path, ok, cli, monkeypatch):
    data = tmp_path / "d.csv"
    data.write_text("a,y\n1,Köln\n2,Bern\n3,Köln\n4,Bern\n", encoding="utf-8")
    ok("fit", data, "--target", "y", "--model", tmp_path / "m.kgm", *FAST)
    out = io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
    monkeypatch.setattr("sys.stdout", out)
    code, _, err = cli("predict", tmp_path / "m.kgm", data, "--output", "-")
    assert (code, err.count("\n")) == (1, 1)
    assert "give --output a file, or set PYTHONIOENCODING" in err
    assert cli("inspect", tmp_path / "m.kgm")[0] == 0
    assert b"K\\xf6ln" in out.buffer.getvalue()


def test_multiclass_columns_carry_the_labels(tmp_path, ok):
    X, value = make_data()
    path = tmp_path / "d.npz"
    np.savez(path, X=X, y=np.digitize(value, [-0.5, 0.5]) * 10)
    model, output = tmp_path / "m.kgm", tmp_path / "p.csv"
    ok("fit", path, "--model", model, *FAST)
    ok("predict", model, path, "--output", output, "--proba", "--decision")
    header = output.read_text().split("\n")[0]
    parts = ("proba", "decision")
    assert header.split(",") == [
        "prediction",
        *(f"{part}_{label}" for part in parts for label in (0, 10, 20)),
    ]


def test_several_outputs(tmp_path, ok):
    X, value = make_data()
    Y = np.column_stack([value, -value])
    path = tmp_path / "d.npz"
    np.savez(path, X=X, y=Y)
    model, output = tmp_path / "m.kgm", tmp_path / "p.csv"
    assert ok("fit", path, "--model", model, *FAST)["task"] == "regression"
    ok("predict", model, path, "--output", output)
    assert output.read_text().startswith("prediction_0,prediction_1\n")
    predicted = kernelgrad.load(model).predict(X)
    result = ok("score", model, path)
    assert result["r2"] == pytest.approx(r2_score(Y, predicted))
    assert result["rmse"] == pytest.approx(root_mean_squared_error(Y, predicted))


def test_score_classification(data, classifier, ok, monkeypatch):
    source = kernelgrad.ArraySource(features())
    model, y = kernelgrad.load(classifier), table()["label"]
    whole = ok("score", classifier, data, "--target", "label")
    assert whole["accuracy"] == np.mean(model.predict(source) == y)
    assert whole["error_rate"] == pytest.approx(1 - whole["accuracy"])
    assert whole["log_loss"] == pytest.approx(log_loss(y, model.predict_proba(source)))
    split_into_chunks(monkeypatch)
    assert ok("score", classifier, data, "--target", "label") == pytest.approx(whole)


def split_into_chunks(monkeypatch):
    """Let sources come in pieces of 64 rows."""
    chunks = kernelgrad.BatchSource.chunks
    monkeypatch.setattr(
        kernelgrad.BatchSource, "chunks", lambda self, **more: chunks(self, 64, **more)
    )


def test_score_regression(data, regressor, ok, monkeypatch):
    source = kernelgrad.ArraySource(features())
    predicted, y = kernelgrad.load(regressor).predict(source), table()["value"]
    split_into_chunks(monkeypatch)
    result = ok("score", regressor, data, "--target", "value")
    assert result["rows"] == N
    assert result["rmse"] == pytest.approx(root_mean_squared_error(y, predicted))
    assert result["mae"] == pytest.approx(mean_absolute_error(y, predicted))
    assert result["r2"] == pytest.approx(r2_score(y, predicted))


def test_score_of_a_constant_target_has_no_r2(tmp_path, regressor, ok, cli):
    columns = {**table(), "value": np.ones(N)}
    path = write_csv(tmp_path / "constant.csv", columns)
    assert ok("score", regressor, path, "--target", "value")["r2"] is None
    assert "r2" not in cli("score", regressor, path, "--target", "value")[1]


def test_json_has_no_nan(capsys):
    print_json({"a": [np.nan, np.float32(1)], "b": -np.inf, "c": np.arange(2)})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.0], "b": None, "c": [0, 1]}


def test_labels_unknown_to_the_model_are_errors(tmp_path, classifier, cli):
    columns = table()
    columns["label"] = np.where(np.arange(N) < 30, "maybe", columns["label"])
    path = write_csv(tmp_path / "new.csv", columns)
    code, out, err = cli("score", classifier, path, "--target", "label", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["unknown_labels"] == 30
    assert "log_loss" not in result
    assert result["accuracy"] <= 0.9
    assert "30 rows have a label" in err


def test_inspect(classifier, cli, ok):
    info = ok("inspect", classifier)
    assert info["estimator"] == "KernelClassifier"
    assert info["feature_names"] == ["a", "b", "c"]
    assert info["classes"] == ["no", "yes"]
    assert info["file_bytes"] == classifier.stat().st_size
    code, out, _ = cli("inspect", classifier)
    assert code == 0
    assert "KernelClassifier" in out
    assert "no, yes" in out


def test_inspect_needs_no_estimator(classifier, cli, ok, monkeypatch):
    expected = kernelgrad.load(classifier).model_info()
    old = next((Path(__file__).parent / "data" / "v0.1.0").glob("*.kgm"))
    told = kernelgrad.load(old).model_info()
    assert ok("inspect", old).items() >= json.loads(json.dumps(told)).items()
    monkeypatch.delitem(kernelgrad.__dict__, "load")
    monkeypatch.setitem(kernelgrad._WHERE, "load", "nowhere")
    assert cli("inspect", old)[0] == 1  # its file has no summary
    found = ok("inspect", classifier)
    assert found.items() >= json.loads(json.dumps(expected)).items()


def test_warmup(cli, ok, monkeypatch):
    assert set(ok("warmup", "perceptron", "--quiet")) == {"loops", "seconds", "cache"}
    assert cli("warmup", "perceptron")[2] == ""
    monkeypatch.setattr(compiling, "looked_at", lambda: True)
    code, out, err = cli("warmup", "rbf")
    assert code == 0
    assert "100%" in err
    last = out.splitlines()[-1]
    assert re.fullmatch(r"\d+ loops compiled in \d+ s; cache: .+", last)
    code, _, err = cli("warmup", "nope")
    assert code == 1
    assert "choose one of" in err


# -- errors ------------------------------------------------------------------------------


def fit_error(tmp_path, columns, *args):
    path = write_csv(tmp_path / "bad.csv", columns)
    return ["fit", path, "--model", tmp_path / "m.kgm", *FAST, *args]


def make_foreign(tmp_path):
    path = tmp_path / "foreign.kgm"
    path.write_bytes(pickle.dumps({"a": 1}))
    return path


GOOD = {"a": range(9), "b": range(9), "label": list("xyxyxyxyx")}
DATA_ERRORS = {
    "missing file": (
        lambda d: ["fit", d / "none.csv", "--target", "y", "--model", d / "m.kgm"],
        "FileNotFoundError", "none.csv",
    ),
    "no target": (lambda d: fit_error(d, GOOD), "DataError", "--target"),
    "missing column": (
        lambda d: fit_error(d, GOOD, "--target", "lable"), "DataError", "did you mean 'label'",
    ),
    "text for a number": (
        lambda d: fit_error(
            d, {**GOOD, "a": ["red"] * 9}, "--target", "label", "--weight", "a"
        ),
        "DataError", "weight column 'a' is not numeric, for example 'red'",
    ),
    "one class": (
        lambda d: fit_error(d, {"a": range(9), "y": ["x"] * 9}, "--target", "y"),
        "DataError", "one class",
    ),
    "text for regression": (
        lambda d: fit_error(d, GOOD, "--target", "label", "--task", "regression"),
        "DataError", "text",
    ),
    "numbers for classification": (
        lambda d: fit_error(
            d, {"a": range(30), "y": np.linspace(0, 1, 30)},
            "--target", "y", "--task", "classification",
        ),
        "DataError", "--task regression",
    ),
    "loss of the other task": (
        lambda d: fit_error(d, GOOD, "--target", "label", "--loss", "huber"),
        "ValueError", "huber",
    ),
    "no folder": (
        lambda d: ["fit", d / "none.csv", "--target", "y", "--model", d / "no" / "m.kgm"],
        "FileNotFoundError", "create it",
    ),
    "model is a folder": (
        lambda d: ["fit", d / "none.csv", "--target", "y", "--model", d],
        "IsADirectoryError", "folder",
    ),
    "folder for predictions": (
        lambda d: ["predict", d / "m", d / "d.csv", "--output", d / "no" / "p.csv"],
        "FileNotFoundError", "create it",
    ),
    "foreign model": (lambda d: ["inspect", make_foreign(d)], "ModelFileError", "pickle"),
    "target of LIBSVM": (
        lambda d: ["fit", libsvm(d), "--target", "y", "--model", d / "m"],
        "DataError", "leave --target y out",
    ),
    "archive without target": (
        lambda d: ["fit", write_arrays(d / "d.npz", X=np.ones((4, 2))), "--model", d / "m"],
        "DataError", "name its array with --target",
    ),
}  # fmt: skip


@every("case", DATA_ERRORS)
def test_data_errors_are_one_line(tmp_path, cli, case):
    make, kind, part = DATA_ERRORS[case]
    arguments = make(tmp_path)
    before = sorted(tmp_path.iterdir())
    code, out, err = cli(*arguments)
    lines = [line for line in err.splitlines() if not line.startswith(("DSG", "\r"))]
    assert code == 1
    assert out == ""
    assert lines[-1].startswith("Error: ")
    assert part in lines[-1]
    code, out, _ = cli(*arguments, "--json")
    found = json.loads(out)
    assert code == 1
    assert found["type"] == kind
    assert part in found["error"]
    assert "\n" not in found["error"]
    assert sorted(tmp_path.iterdir()) == before


FIT = ("fit", "none.csv", "--target", "y", "--model", "m.kgm")
USAGE_ERRORS = {
    "no command": (["frobnicate"], "frobnicate"),
    "no option": ([*FIT, "--colour", "red"], "--colour"),
    "no model": (["fit", "none.csv"], "--model"),
    "loss": ([*FIT, "--loss", "zero_one"], "'zero_one'; choose one of: "),
    "kernel": ([*FIT, "--kernel", "cubic"], "'cubic'; choose one of: arc_cosine"),
    "solver": ([*FIT, "--solver", "magic"], "'magic'; choose one of: auto, cached, cdsg"),
    "gamma": ([*FIT, "--gamma", "big"], "'big'; choose one of: auto, median, scale, or give"),
    "metric": ([*FIT, "--metric", "diag"], "did you mean 'diagonal'?"),
    "cost and alpha": ([*FIT, "-C", "1", "--alpha", "0.1"], "-C and --alpha"),
    "negative gamma": ([*FIT, "--gamma", "-1"], "-1"),
    "task": ([*FIT, "--task", "clustering"], "clustering"),
    "alpha": ([*FIT, "--alpha", "-1"], "alpha"),
    "fraction": ([*FIT, "--validation-fraction", "1.5"], "1.5"),
    "time limit": ([*FIT, "--time-limit", "0"], "time_limit"),
    "model over data": (["fit", "a.csv", "--model", "a.csv"], "overwrite"),
    "plot suffix": ([*FIT, "--learning-curve", "curve.doc"], "curve.doc"),
    "output suffix": (["predict", "m", "d.csv", "--output", "p.txt"], ".npy"),
    "output over data": (["predict", "m", "a.csv", "--output", "a.csv"], "overwrite"),
    "two arrays": (
        ["predict", "m", "d.csv", "--output", "p.npy", "--proba", "--decision"],
        "one array",
    ),
    "two on stdout": (["predict", "m", "d.csv", "--output", "-", "--json"], "--output"),
}


@every("case", USAGE_ERRORS)
def test_wrong_command_lines_exit_2(cli, case):
    arguments, part = USAGE_ERRORS[case]
    if "--json" not in arguments:
        code, out, err = cli(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert part in err
        assert "--help" in err
        arguments = [*arguments, "--json"]
    code, out, _ = cli(*arguments)
    found = json.loads(out)
    assert code == 2
    assert found["type"] == "UsageError"
    assert part in found["error"]


def test_what_a_model_cannot_give(tmp_path, data, models, cli):
    output = tmp_path / "p.csv"
    narrow = write_csv(tmp_path / "narrow.csv", {"a": [1.0], "c": [2.0]})
    predict, score = ("--output", output), ("--target",)
    bare = kernelgrad.load(models / "hinge")
    bare._calibration = None  # as in files from before there was any
    bare.save(tmp_path / "bare")
    for arguments, code, part in (
        (("predict", tmp_path / "bare", data, *predict, "--proba"), 1, "'hinge'"),
        (("predict", models / "regressor", data, *predict, "--proba"), 1, "no classifier"),
        (("predict", models / "classifier", narrow, *predict), 1, "'b'"),
        (("score", models / "classifier", data, *score, "value"), 1, "--target"),
        (("score", models / "regressor", data, *score, "label"), 1, "not a number"),
        (
            ("fit", data, "--model", output, *NUMBERS, "--class-weight", "balanced"),
            2, "--class-weight",
        ),
    ):  # fmt: skip
        found, _, err = cli(*arguments)
        assert found == code
        assert part in err
        assert not output.exists()


def test_a_failing_prediction_keeps_the_old_file(tmp_path, data, classifier, cli, monkeypatch):
    output = tmp_path / "p.csv"
    output.write_text("old")

    def fail(self, X):
        raise KeyboardInterrupt

    monkeypatch.setattr(kernelgrad.KernelClassifier, "_probabilities", fail)
    code, _, err = cli("predict", classifier, data, "--output", output)
    assert code == 130
    assert err.startswith("Error: interrupted")
    assert output.read_text() == "old"
    assert not list(tmp_path.glob(".*"))


def test_read_only_folder(tmp_path, data, cli, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    code, _, err = cli("fit", data, "--model", tmp_path / "m.kgm", *CLASSES)
    assert code == 1
    assert "not writable" in err


def test_warnings_are_one_line(tmp_path, data, cli, monkeypatch):
    predict = kernelgrad.KernelRegressor.fit

    def fit(self, X):
        warnings.warn("the sea is rough,\n take care", UserWarning, stacklevel=2)
        return predict(self, X)

    monkeypatch.setattr(kernelgrad.KernelRegressor, "fit", fit)
    code, _, err = cli("fit", data, "--model", tmp_path / "m.kgm", *NUMBERS)
    assert (code, err) == (0, "Warning: the sea is rough, take care\n")


def test_without_matplotlib(tmp_path, data, cli, monkeypatch):
    for name in ("matplotlib", "matplotlib.backend_bases", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    curve = ("--learning-curve", tmp_path / "c.png")
    code, _, err = cli("fit", data, "--model", tmp_path / "m.kgm", *CLASSES, *curve)
    assert code == 1
    assert "kernelgrad[plot]" in err
    assert not (tmp_path / "m.kgm").exists()


def test_without_typer(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "typer", None)
    code, out, err = cli("--version")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "pip install kernelgrad[cli]" in err


# -- the rest ----------------------------------------------------------------------------


def test_version_and_help(cli):
    assert cli("--version") == (0, f"kernelgrad {kernelgrad.__version__}\n", "")
    code, out, _ = cli()
    assert code == 0
    assert cli("--help")[1] == out
    assert "..." not in out.split("Commands:")[1]  # no description is cut off
    assert all(name in out for name in ("fit", "predict", "score", "inspect", "demo"))
    told = " ".join(cli("fit", "--help")[1].split())
    with pytest.raises(ValueError, match="choose one of") as error:
        get_solver("", marks=False)
    assert all(name in told for name in str(error.value).split(": ")[1][:-1].split(", "))
    defaults = KernelRegressor()
    assert (defaults.loss, defaults.max_iter, defaults.early_stopping) == ("squared", 40, False)
    for default in ("hinge. [default: squared]", "Maximum of iterations. [default: 40]"):
        assert default in told


def check_demo(result, names):
    page = Path(result["page"]).read_text()
    assert list(result["studies"]) == names
    assert "http" not in page
    assert "<script" not in page
    for name, found in result["studies"].items():
        assert found["identical_after_load"]
        assert kernelgrad.load(Path(result["page"]).parent / f"{name}.kgm").random_state == 0
        ours, *rivals = found["results"]
        assert ours["verdict"] == ""
        for rival in rivals:
            assert rival["verdict"] in ("won", "lost", "even")
            if rival["verdict"] != "even":
                better = ours["test_error"] < rival["test_error"]
                assert (rival["verdict"] == "won") == better
            assert rival["name"] in page
        pictures = sorted(Path(result["page"]).parent.glob(f"{name}_*.png"))
        assert pictures
        assert all(base64.b64encode(each.read_bytes()).decode() in page for each in pictures)


def test_demo(tmp_path, ok, monkeypatch):
    monkeypatch.setattr(studies, "STUDIES", (studies.process_study,))
    check_demo(ok("demo", "--quick", "--output-dir", tmp_path), ["process"])


@pytest.mark.slow
def test_the_whole_demo(tmp_path, ok):
    result = ok("demo", "--quick", "--output-dir", tmp_path)
    check_demo(result, ["table", "digits", "stream", "labels", "process"])
    stream = result["studies"]["stream"]["results"]
    assert stream[0]["test_error"] < stream[1]["test_error"]


def test_demo_fails_if_a_loaded_model_differs(tmp_path, cli, monkeypatch):
    load = kernelgrad.load

    def altered(path):
        model = load(path)
        model.expansion_.coef[:] *= -1.5
        return model

    monkeypatch.setattr(kernelgrad, "load", altered)
    monkeypatch.setattr(studies, "STUDIES", (studies.labels_study,))
    code, _, err = cli("demo", "--quick", "--output-dir", tmp_path)
    page = (tmp_path / "demo.html").read_text()
    assert code == 1
    assert "DIFFERENT" in page
    assert "Error: a loaded model" in err


def test_verdicts_are_those_of_the_losses():
    rng = np.random.default_rng(0)
    ours = rng.random(1000)
    others = {"won": ours + 0.1, "lost": 0.8 * ours, "even": ours + rng.normal(0, 0.1, 1000)}
    results = [work.Result(name, 1.0, losses) for name, losses in {"": ours, **others}.items()]
    assert work.Study("", "", "", results, {}, None, None).verdicts() == ["", *others]
    assert work.losses_of([1.0, 2.0], [1.0, 4.0]).tolist() == [0.0, 4.0]
    assert work.losses_of(["a", "b"], ["a", "a"]).tolist() == [0.0, 1.0]


def test_demo_says_what_it_needs(tmp_path, cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = cli("demo", "--output-dir", tmp_path)
    assert code == 1
    assert "The demo needs matplotlib: pip install 'kernelgrad[demo]'" in err


def test_the_demo_is_never_silent(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(work, "_SILENCE", 0.01)
    monkeypatch.setattr(work, "compiling", lambda: "some_loop")
    with work.Work(tmp_path, quick=True) as at_work:
        at_work.say("fitting")
        deadline, said = time.monotonic() + 30, ""
        while said.count("compiling some_loop") < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
            said += capsys.readouterr().err
    assert said.count("fitting: 0 s, compiling some_loop (once per machine)") >= 2


def start(*args):
    # Shells start background jobs with SIGINT ignored; a terminal does not.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from kernelgrad.callbacks import _progress; _progress._shows_bars = lambda: True; "
        "from kernelgrad.cli import main; sys.exit(main())"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signals for one process")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_keeps_the_model(tmp_path, data, number, code):
    model = tmp_path / "m.kgm"
    arguments = [a for a in CLASSES if a not in ("--quiet", "--max-iter", "6")]
    process = start(
        "fit", data, "--model", model, *arguments, "--solver", "dsg",
        "--loss", "log_loss", "--max-iter", "1000000", "--no-early-stopping", "--json",
    )  # fmt: skip
    with process:
        seen, deadline = b"", time.monotonic() + 40
        while b"train loss" not in seen and time.monotonic() < deadline:
            part = process.stderr.read1()
            if not part:
                break
            seen += part
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert b"Interrupted: " in err
    assert b"Traceback" not in err
    result = json.loads(out)
    assert result["status"] == "interrupted"
    assert kernelgrad.load(model).n_iter_ == result["iterations"] >= 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_interrupt_before_the_first_iteration_leaves_no_file(tmp_path, data, cli, monkeypatch):
    def interrupted(self, *args):
        raise KeyboardInterrupt

    monkeypatch.setattr(kernelgrad.DSG, "step", interrupted)
    model = tmp_path / "m.kgm"
    code, out, _ = cli("fit", data, "--model", model, *CLASSES, "--solver", "dsg", "--json")
    assert code == 130
    assert json.loads(out)["type"] == "KeyboardInterrupt"
    assert not model.exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signals for one process")
def test_a_signal_waits_until_the_model_is_written(tmp_path, data, cli, monkeypatch):
    save = kernelgrad.KernelClassifier.save

    def hit(self, path, key):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        save(self, path, key=key)

    monkeypatch.setattr(kernelgrad.KernelClassifier, "save", hit)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        code, _, err = cli("fit", data, "--model", tmp_path / "m.kgm", *CLASSES)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert code == 143
    assert "m.kgm holds the model after 1 iterations" in err
    assert kernelgrad.load(tmp_path / "m.kgm").n_iter_ == 1


def test_a_model_without_room_is_kept_elsewhere(tmp_path, data, cli, monkeypatch):
    save, model = kernelgrad.KernelClassifier.save, tmp_path / "m.kgm"
    spare = tmp_path / "none"

    def full(self, path, key):
        if path == model or spare.exists():
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        save(self, path, key=key)

    monkeypatch.setattr(kernelgrad.KernelClassifier, "save", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, _, err = cli("fit", data, "--model", model, *CLASSES)
    assert code == 1
    [spare] = tmp_path.glob("m-*.kgm")
    assert f"No space left on device. The model is in {spare} instead" in err
    assert kernelgrad.load(spare).n_iter_ == 1
    code, _, err = cli("fit", data, "--model", model, *CLASSES)  # nor is there any elsewhere
    assert code == 1
    assert str(model) in err
    assert [*tmp_path.glob("m-*.kgm")] == [spare]


def test_as_a_module_and_into_a_closed_pipe(tmp_path, data, classifier):
    command = [sys.executable, "-m", "kernelgrad.cli", "predict", classifier, data]
    with subprocess.Popen(
        [*command, "--output", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 1
    assert b"Traceback" not in err


def test_models_of_every_task_on_the_command_line(tmp_path, cli, ok):
    from kernelgrad import (
        KernelDensityRatio,
        KernelGaussianProcessRegressor,
        KernelNoveltyDetector,
        KernelRegressor,
    )
    from kernelgrad.losses import Quantile

    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 2))
    y = X[:, 0] + 0.1 * rng.standard_normal(120)
    np.savetxt(tmp_path / "d.csv", np.c_[X, y], delimiter=",", header="a,b,y", comments="")
    np.savetxt(tmp_path / "x.csv", X, delimiter=",", header="a,b", comments="")
    few = {"max_iter": 3, "random_state": 0}
    models = {
        "novelty": KernelNoveltyDetector(**few).fit(X),
        "ratio": KernelDensityRatio(**few).fit(X, denominator=X + 1),
        "process": KernelGaussianProcessRegressor(**few).fit(X, y),
        "quantiles": KernelRegressor(Quantile((0.1, 0.9)), **few).fit(X, y),
    }
    for name, model in models.items():
        path = tmp_path / f"{name}.kgm"
        model.save(path)
        ok("inspect", path, "--json")
        ok("predict", path, tmp_path / "x.csv", "--output", tmp_path / f"{name}.csv")
        lines = (tmp_path / f"{name}.csv").read_text().splitlines()
        assert len(lines) == 121
        expected = np.atleast_2d(model.predict(X[:1]).T).ravel()
        np.testing.assert_allclose([float(v) for v in lines[1].split(",")], expected, rtol=1e-6)
        code, _, err = cli("score", path, tmp_path / "d.csv", "--target", "y")
        reason = {"quantiles": "quantiles of one target", "process": ""}
        assert reason.get(name, "no truth") in err
        assert code == (0 if name == "process" else 1)
    out = tmp_path / "decision.csv"
    ok("predict", tmp_path / "novelty.kgm", tmp_path / "x.csv", "--output", out, "--decision")
    assert float(out.read_text().splitlines()[1].split(",")[1]) == pytest.approx(
        models["novelty"].decision_function(X[:1])[0], rel=1e-5
    )
