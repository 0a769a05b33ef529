"""The command line, end to end on files."""

import inspect
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import loguniform, sem
from sklearn import config_context
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.metrics import (
    get_scorer,
    log_loss,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.model_selection import (
    HalvingRandomSearchCV,
    KFold,
    RandomizedSearchCV,
    StratifiedKFold,
    cross_validate,
)

import kernelgrad
import kernelgrad as kg
from cases import every
from command_line import CLASSES, FAST, NUMBERS, PLAIN, SOURCE, TABLE, VALUE, N, X, write_csv
from kernelgrad.callbacks import progress
from kernelgrad.cli import options
from kernelgrad.cli.report import print_json
from kernelgrad.kernels import Gaussian, SumKernel
from kernelgrad.losses import Quantile
from kernelgrad.solvers import get_solver
from kernelgrad.testing.warmup import WarmUp
from plain import plain_regressor

# -- options and help --------------------------------------------------------------------


def test_options_of_fit_are_those_declared(tmp_path, data, ok, cli, monkeypatch):
    text = " ".join(cli("fit", "--help")[1].split())
    for name in options.PARAMETERS:
        default = inspect.signature(kg.KernelClassifier).parameters[name].default
        option = {"C": "--cost", "random_state": "--seed"}.get(name)
        option = option or f"--{name.replace('_', '-')}"
        entry = re.search(rf"{option} (/ --no\S+ )?(.+?)(?= --[a-z-]+ [<A-Z/]|$)", text)[2]
        value = "no" if default is False else default
        shown = "" if default is None else f"[default: {value}]"
        assert shown in entry
    with pytest.raises(ValueError, match="choose one of") as error:
        get_solver("", marks=False)
    assert all(name in text for name in str(error.value).split(": ")[1][:-1].split(", "))
    assert "float > 0, auto, median or scale. [default: auto]" in text
    assert "auto, diagonal, full or none. [default: auto]" in text
    assert "fast, default or best. [default: default]" in text
    monkeypatch.setitem(options.PARAMETERS, "tol", "")  # a name is all that an option needs
    path = tmp_path / "m.kgm"
    ok("fit", data, "--model", path, *CLASSES, "--tol", "0.25")
    assert kernelgrad.load(path).tol == 0.25


def test_version_and_help(cli):
    assert cli("--version") == (0, f"kernelgrad {kernelgrad.__version__}\n", "")
    code, out, _ = cli()
    assert code == 0
    assert cli("--help")[1] == out
    assert "..." not in out.split("Commands:")[1]  # no description is cut off


# -- fit ---------------------------------------------------------------------------------


def test_fit_reports_and_saves_the_model_the_api_would_fit(tmp_path, data, ok):
    path = tmp_path / "m.kgm"
    flags = ("--standardize", "--early-stopping", "--loss", "log_loss", "-C", "2")
    result = ok("fit", data, "--model", path, *CLASSES, *flags)
    source = kernelgrad.open_source(data, target="label", drop=["value", "weight"])
    expected = kg.KernelClassifier(
        "log_loss", C=2, standardize=True, early_stopping=True, max_iter=6, random_state=0,
        gamma="median",
    ).fit(source)  # fmt: skip
    values = kernelgrad.load(path).decision_function(source)
    np.testing.assert_array_equal(values, expected.decision_function(source))
    del result["seconds"], result["compile_seconds"]
    assert result == {
        "data": str(data), "rows": N, "columns": 3, "task": "classification",
        "task_inferred": True, "status": expected.fit_status_, "iterations": expected.n_iter_,
        "random_features": expected.n_random_features_, "support_rows": expected.n_support_,
        "score_name": "accuracy", "validation_score": expected.best_score_,
        "quality": expected.model_info()["quality"],
        "model": str(path), "bytes": path.stat().st_size, "learning_curve": None,
    }  # fmt: skip


def test_regression_options_reach_the_estimator(tmp_path, data, ok):
    path = tmp_path / "m.kgm"
    ok(
        "fit", data, "--model", path, "--target", "value", "--drop", "label",
        "--weight", "weight", "--task", "regression", "--loss", "huber",
        "--kernel", "laplacian", "--gamma", "0.5", "--bandwidth-factor", "2",
        "--solver", "sbp", "--alpha", "1e-4", "--metric", "none", "--solver", "dsg",
        "--no-early-stopping", "--no-standardize", "--threads", "1", "--time-limit", "600",
        *FAST,
    )  # fmt: skip
    assert kernelgrad.get_num_threads() == 1
    expected = {
        "loss": "huber", "kernel": "laplacian", "gamma": 0.5, "bandwidth_factor": 2.0,
        "solver": "dsg", "alpha": 1e-4, "early_stopping": False, "standardize": False,
        "random_state": 0, "max_iter": 6, "metric": None, "time_limit": 600,
    }  # fmt: skip
    model = kernelgrad.load(path)
    assert expected.items() <= model.get_params().items()
    source = kernelgrad.open_source(data, target="value", drop=["label"], weight="weight")
    again = kg.KernelRegressor(**expected).fit(source)
    np.testing.assert_array_equal(model.predict(source), again.predict(source))


def test_fit_prints_a_summary_to_stdout_and_progress_to_stderr(
    tmp_path, data, cli, monkeypatch
):
    monkeypatch.setattr("kernelgrad.callbacks.progress.shows_bars", lambda: True)
    path = tmp_path / "m.kgm"
    arguments = [a for a in CLASSES if a != "--quiet"]
    code, out, err = cli("fit", data, "--model", path, *arguments)
    assert code == 0
    assert [line.split("  ")[0] for line in out.splitlines()] == [
        "rows", "columns", "task", "status", "seconds", "iterations", "support rows",
        "quality", "model",
    ]  # fmt: skip
    assert "classification (inferred" in out
    assert "300 rows, 3 columns, classification" in err
    assert "it/s" in err
    assert cli("fit", data, "--model", path, *CLASSES) == (0, "", "")


def test_three_classes_of_an_archive(tmp_path, ok):
    y, path = 10 * np.digitize(VALUE, [-0.5, 0.5]), tmp_path / "d.npz"
    np.savez(path, X=X, y=y)
    model, output = tmp_path / "m.kgm", tmp_path / "p.csv"
    assert ok("fit", path, "--model", model, *PLAIN)["columns"] == 3
    assert ok("predict", model, path, "--output", output, "--proba", "--decision")["rows"] == N
    found = pd.read_csv(output)
    labels = [f"{part}_{label}" for part in ("proba", "decision") for label in (0, 10, 20)]
    assert list(found) == ["prediction", *labels]
    accuracy = np.mean(found["prediction"] == y)
    assert ok("score", model, path)["accuracy"] == accuracy > 0.7


def test_standard_input_and_output(tmp_path, data, cli, ok, monkeypatch):
    def piped(text):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return "-"

    model, rows = tmp_path / "m.kgm", data.read_text()
    assert ok("fit", piped(rows), "--model", model, *CLASSES)["columns"] == 3
    expected = ok("score", model, data, "--target", "label")
    assert ok("score", model, piped(rows), "--target", "label") == expected
    printed = [cli("predict", model, of, "--output", "-") for of in (piped(rows), data)]
    assert printed[0] == printed[1]
    assert printed[0][1].splitlines() == ["prediction", *kernelgrad.load(model).predict(SOURCE)]
    code, _, err = cli("fit", piped(""), "--model", model, *CLASSES)
    assert code == 1
    assert "standard_input.csv" in err
    assert "write a header line" in err


def test_key_and_learning_curve(tmp_path, data, cli, ok, monkeypatch):
    pytest.importorskip("matplotlib")
    path, curve = tmp_path / "m.kgm", tmp_path / "curve.png"
    secret, key = tmp_path / "secret", bytes(range(16))
    secret.write_bytes(key)
    monkeypatch.setenv("KERNELGRAD_KEY_FILE", str(secret))
    path.write_text("something else")
    options = ("--class-weight", "balanced", "--loss", "log_loss", "--learning-curve", curve)
    result = ok("fit", data, "--model", path, *CLASSES, *options)
    assert kernelgrad.load(path, key=key).class_weight == "balanced"
    assert result["learning_curve"] == str(curve)
    assert curve.read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curve.png", "m.kgm", "secret"]
    inspections = (("inspect", path), ("inspect", path, "--importances"))
    assert [cli(*command)[0] for command in inspections] == [0, 0]
    secret.write_bytes(b"another of 16 bytes")
    assert [cli(*command)[0] for command in inspections] == [1, 1]


# -- predict, score, inspect, warmup -----------------------------------------------------


def test_parts_with_parameters_units_and_rows_for_validation(tmp_path, data, ok, cli):
    path, more = tmp_path / "m.kgm", ["--memory-limit", "2 GB", "--validation", data]
    parts = ["--loss", "huber:delta=2", "--kernel", "matern:nu=1.5"]
    parts += ["--solver", "dsg:momentum=0"]
    result = ok("fit", data, "--model", path, *NUMBERS, *parts, *more)
    model = kernelgrad.load(path)
    assert (model.loss.delta, model.kernel.nu, model.solver.momentum) == (2, 1.5, 0)
    assert (model.standardize, model.memory_limit) == (True, "2 GB")
    assert len(model.history_["validation_score"]) == model.n_iter_
    assert result["validation_score"] == model.best_score_
    types = pd.DataFrame({"n": [1.0, None] * 20, "kind": ["u", "v"] * 20, "y": range(40)})
    ok("fit", write_csv(tmp_path / "t.csv", types), "--model", path, "--target", "y", *PLAIN)
    assert "n (number, gaps), kind (2 categories)" in cli("inspect", path)[1]


def test_cross_validation_is_that_of_scikit_learn(data, ok, cli):
    parts = StratifiedKFold(3, shuffle=True, random_state=0)
    X, y = TABLE[list("abc")], TABLE["label"]
    names = {"accuracy": "accuracy", "log_loss": "neg_log_loss", "auc": "roc_auc"}
    model = kg.KernelClassifier("squared", gamma=0.5, alpha=1e-3)
    expected = cross_validate(model, X, y, cv=parts, scoring=names)
    same = ("--loss", "squared", "--gamma", 0.5, "--alpha", 1e-3, "--folds", 3, "--quiet")
    result = ok("cv", data, "--target", "label", "--drop", "value,weight", *same)
    for name, ours in result.items():
        if name in names:
            theirs = np.abs(expected[f"test_{name}"])
            assert ours["folds"] == pytest.approx(theirs, abs=1e-6)
            assert ours["standard_error"] == pytest.approx(sem(theirs), abs=1e-6)
    assert set(names) < set(result)
    text = cli("cv", data, *NUMBERS, "--weight", "weight", "--folds", 2)[1]
    assert re.search(r"r2 +0\.\d+ \+- ", text)


@every("successive", [False, True])
def test_searches_are_those_of_scikit_learn(tmp_path, data, ok, cli, successive):
    path, X = tmp_path / "m.kgm", TABLE[list("abc")]
    spaces = {"alpha": loguniform(1e-6, 1), "kernel": ["rbf", "laplacian"], "gamma": [0.1, 0.5]}
    cls, number = (
        (HalvingRandomSearchCV, "n_candidates")
        if successive
        else (RandomizedSearchCV, "n_iter")
    )
    plain, parts = kg.KernelRegressor(standardize=True), KFold(3, shuffle=True, random_state=0)
    with config_context(enable_metadata_routing=True):  # without, 1.6 does not weigh scores
        scorer = get_scorer("r2").set_score_request(sample_weight=True)
        plain.set_fit_request(sample_weight=True)
        expected = cls(plain, spaces, cv=parts, random_state=0, scoring=scorer, **{number: 4})
        expected.fit(X, VALUE, sample_weight=TABLE["weight"])
    flags = ["--successive"] * successive + ["--trials", 4, "--folds", 3, "--scoring", "r2"]
    for space in ("alpha=1e-6..1", "kernel=rbf,laplacian", "gamma=0.1,0.5"):
        flags += ["--search", space]
    command = ("tune", data, "--model", path, "--target", "value", "--drop", "label", *flags)
    result = ok(*command, "--weight", "weight")
    best = result["trials"][0]
    assert best["score"] == pytest.approx(expected.best_score_)
    assert {name: best[name] for name in spaces} == expected.best_params_
    assert len(result["trials"]) == (2 if successive else 4)
    np.testing.assert_allclose(kernelgrad.load(path).predict(X), expected.predict(X))
    if successive:
        return
    header, first, *_ = cli(*command, "--weight", "weight")[1].splitlines()
    assert header.split() == ["score", "standard_error", "seconds", *sorted(spaces)]
    assert first.split()[0] == f"{expected.best_score_:.4g}"


def test_integers_and_parts_with_parameters_are_searched(tmp_path, data, ok):
    path = tmp_path / "m.kgm"
    command = ("tune", data, "--model", path, "--target", "value", "--drop", "label")
    searches = (
        "max_iter=2..9",
        "solver=dsg:decay=9,damping=2,dsg:decay=5,dsg",
        "loss=huber:delta=2",
    )
    spaces = [word for text in searches for word in ("--search", text)]
    given = ("--gamma", "median", "--alpha", "1e-3", "--metric", "none")
    result = ok(*command, *spaces, *given, "--trials", 4, "--folds", 2)
    assert all(isinstance(trial["max_iter"], int) for trial in result["trials"])
    assert kernelgrad.load(path).standardize == kg.KernelRegressor().standardize


def test_bounds_sets_and_explanations_are_columns(tmp_path, data, models, ok, cli):
    text = tmp_path / "p.csv"
    ok("predict", models / "regressor", data, "--output", text, "--interval", "0.8")
    bounds = kernelgrad.load(models / "regressor").predict_interval(SOURCE, 0.8)
    np.testing.assert_allclose(pd.read_csv(text)[["lower", "upper"]], bounds)
    ok("predict", models / "classifier", data, "--output", text, "--set", "0.8")
    sets = kernelgrad.load(models / "classifier").predict_set(SOURCE, 0.8)
    np.testing.assert_array_equal(pd.read_csv(text)[["set_no", "set_yes"]], sets)
    code, _, err = cli("predict", models / "regressor", data, "--output", text, "--set", "0.8")
    assert (code, "for classifiers" in err) == (1, True)
    few = write_csv(tmp_path / "few.csv", TABLE[:40])
    ok("predict", models / "classifier", few, "--output", text, "--explain", "--decision")
    parts = pd.read_csv(text)
    assert list(parts) == ["prediction", "decision", "base", "why_a", "why_b", "why_c"]
    np.testing.assert_allclose(parts.iloc[:, 2:].sum(axis=1), parts["decision"], atol=1e-6)
    two = kg.KernelRegressor(gamma=1.0, alpha=0.1)
    for model, names in ((two, ["base_0", "base_1"]), (kernelgrad.LinearRegressor(), None)):
        model.fit(TABLE[list("abc")], np.c_[VALUE, VALUE]).save(tmp_path / "m.kgm")
        command = ("predict", tmp_path / "m.kgm", few)
        code, _, err = cli(*command, "--output", text, "--explain")
        assert (code, "is for kernel models" in err) == ((0, False) if names else (1, True))
        assert names is None or list(pd.read_csv(text))[2:4] == names
    three = np.array(["u", "v", "w"])[np.arange(N) % 3]
    for multi, ends in (("auto", ["u", "v", "w"]), ("ovo", ["u_v", "u_w", "v_w"])):
        model = kg.KernelClassifier(
            "hinge", multi_class=multi, kernel=SumKernel([Gaussian(1.0)])
        )
        model.set_params(alpha=0.1, probability=False).fit(X, three).save(tmp_path / "m.kgm")
        np.save(tmp_path / "x.npy", X[:5])
        ok("predict", tmp_path / "m.kgm", tmp_path / "x.npy", "--output", text, "--explain")
        bases, first = (f"base_{end}" for end in ends), (f"why_0_{end}" for end in ends)
        assert list(pd.read_csv(text))[1:7] == [*bases, *first]
    assert "kernel         1 rbf gamma 1\n" in cli("inspect", tmp_path / "m.kgm")[1]


def test_predictions_equal_those_of_the_api(tmp_path, data, models, ok):
    model, path = kernelgrad.load(models / "classifier"), models / "classifier"
    array, text = tmp_path / "p.npy", tmp_path / "p.csv"
    flags = {"predict": (), "predict_proba": ("--proba",), "decision_function": ("--decision",)}
    for method, arguments in flags.items():
        ok("predict", path, data, "--output", array, *arguments)
        np.testing.assert_array_equal(np.load(array), getattr(model, method)(SOURCE))
    shuffled = write_csv(tmp_path / "other.csv", TABLE[["c", "value", "a", "b"]])
    ok("predict", path, shuffled, "--output", text, "--proba", "--decision")
    found = pd.read_csv(text)
    assert list(found) == ["prediction", "proba_no", "proba_yes", "decision"]
    assert found["prediction"].tolist() == model.predict(SOURCE).tolist()
    np.testing.assert_allclose(found["decision"], model.decision_function(SOURCE), rtol=1e-6)
    assert not list(tmp_path.glob(".*"))


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


def test_scores_in_pieces(tmp_path, data, models, ok, cli, monkeypatch):
    whole = kernelgrad.BatchSource.chunks
    pieces = lambda self, **options: whole(self, 64, **options)  # noqa: E731
    monkeypatch.setattr(kernelgrad.BatchSource, "chunks", pieces)
    model, y = kernelgrad.load(models / "classifier"), TABLE["label"]
    result = ok("score", models / "classifier", data, "--target", "label")
    right = np.mean(model.predict(SOURCE) == y)
    assert (result["accuracy"], result["error_rate"]) == (right, 1 - right)
    assert result["log_loss"] == pytest.approx(log_loss(y, model.predict_proba(SOURCE)))
    area = roc_auc_score(y == "yes", model.decision_function(SOURCE))
    assert result["auc"] == pytest.approx(area, abs=1e-9)
    strange = TABLE.assign(label=np.where(np.arange(N) < 30, "maybe", y))
    path = write_csv(tmp_path / "new.csv", strange)
    code, out, err = cli("score", models / "classifier", path, "--target", "label", "--json")
    result = json.loads(out)
    assert list(result) == ["rows", "accuracy", "error_rate", "unknown_labels"]
    assert (code, result["unknown_labels"]) == (0, 30)
    assert "30 rows have a label" in err
    predicted = kernelgrad.load(models / "regressor").predict(SOURCE)
    assert ok("score", models / "regressor", data, "--target", "value") == pytest.approx(
        {
            "rows": N,
            "rmse": root_mean_squared_error(VALUE, predicted),
            "mae": mean_absolute_error(VALUE, predicted),
            "r2": r2_score(VALUE, predicted),
        }
    )
    path = write_csv(tmp_path / "constant.csv", TABLE.assign(value=1.0))
    assert ok("score", models / "regressor", path, "--target", "value")["r2"] is None
    assert "r2" not in cli("score", models / "regressor", path, "--target", "value")[1]


def test_models_of_every_task(tmp_path, cli, ok):
    rows, y = X[:120, :2], VALUE[:120]
    few, output = {"max_iter": 3, "random_state": 0}, tmp_path / "p.csv"
    fitted = {
        "no truth": kg.KernelNoveltyDetector(**few).fit(rows),
        "no truth to compare": kg.KernelDensityRatio(**few).fit(rows, denominator=rows + 1),
        "quantiles of one target": kg.KernelRegressor(Quantile((0.1, 0.9)), **few).fit(rows, y),
        "the target has 1 columns": kg.KernelRegressor(**few).fit(rows, np.c_[y, -y]),
        "": kg.KernelGaussianProcessRegressor(**few).fit(rows, y),
    }
    data = write_csv(tmp_path / "d.csv", {"a": rows[:, 0], "b": rows[:, 1], "y": y})
    features = write_csv(tmp_path / "x.csv", {"a": rows[:, 0], "b": rows[:, 1]})
    for refusal, model in fitted.items():
        path = tmp_path / "m.kgm"
        model.save(path)
        ok("inspect", path)
        novelty = isinstance(model, kg.KernelNoveltyDetector)
        ok("predict", path, features, "--output", output, *["--decision"] * novelty)
        expected = model.predict(rows).reshape(120, -1)
        if novelty:
            expected = np.column_stack([expected, model.decision_function(rows)])
        np.testing.assert_allclose(pd.read_csv(output).to_numpy(), expected, 1e-5, 1e-9)
        code, _, err = cli("score", path, data, "--target", "y")
        assert code == bool(refusal)
        assert refusal in err


def test_inspect(models, cli, ok, monkeypatch):
    path = models / "classifier"
    info = ok("inspect", path)
    expected = json.loads(json.dumps(kernelgrad.load(path).model_info()))
    assert info.items() >= expected.items()
    assert (info["file"], info["file_bytes"]) == (str(path), path.stat().st_size)
    assert info["feature_names"] == ["a", "b", "c"]
    assert "no, yes" in cli("inspect", path)[1]
    shares = kernelgrad.load(path).feature_importances_
    assert ok("inspect", path, "--importances")["importances"] == shares.tolist()
    first = f"importances    {'abc'[np.argmax(shares)]} {max(shares):.3f}, "
    assert first in cli("inspect", path, "--importances")[1]
    old = next((Path(__file__).parent / "data" / "v0.1.0").glob("*.kgm"))
    summary = json.loads(json.dumps(kernelgrad.load(old).model_info()))
    assert ok("inspect", old).items() >= summary.items()
    monkeypatch.setattr(kernelgrad, "load", None)
    assert cli("inspect", old)[0] == 1  # its file has no summary
    assert ok("inspect", path) == info  # which needs no estimator


def test_random_features_are_only_inspected(tmp_path, cli):
    path = tmp_path / "m.kgm"
    kg.RandomFeatures(n_components=16).fit(X).save(path)
    assert re.search(r"^written by +kernelgrad \d", cli("inspect", path)[1], re.M)
    for command in (("inspect", "--importances"), ("score", path)):
        code, _, err = cli(*command, path)
        assert (code, "RandomFeatures, which the command line only" in err) == (1, True)


def test_compress(tmp_path, cli, ok):
    small = tmp_path / "small.kgm"
    exact = plain_regressor(kernel="rbf", solver="direct").fit(X, VALUE)
    exact.save(tmp_path / "exact.kgm")
    result = ok("compress", tmp_path / "exact.kgm", "--output", small, "--max-rows", "20")
    assert result["rows"] == kernelgrad.load(small).n_support_ == 20
    assert kernelgrad.load(small).get_params() == exact.get_params()
    kernelgrad.LinearRegressor().fit(X, VALUE).save(tmp_path / "line.kgm")
    code, _, err = cli("compress", tmp_path / "line.kgm", "--output", small)
    assert (code, "a linear model, which has no support rows" in err) == (1, True)


def test_json_has_no_nan(capsys):
    print_json({"a": [np.nan, np.float32(1)], "b": -np.inf, "c": np.arange(2)})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.0], "b": None, "c": [0, 1]}


def test_warmup(cli, ok, monkeypatch):
    calls = []

    def warmup(names, *, progress):
        calls.append((names, progress))
        return WarmUp(3, 1.5)

    monkeypatch.setattr(kernelgrad, "warmup", warmup)
    monkeypatch.setattr(progress, "shows_bars", lambda: True)
    result = ok("warmup", "rbf", "sbp", "--quiet")
    assert result == {"loops": 3, "seconds": 1.5}
    assert cli("warmup") == (0, "3 loops compiled in 2 s\n", "")
    assert calls == [(["rbf", "sbp"], False), (None, True)]
