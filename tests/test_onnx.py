"""Exported models give onnxruntime the numbers that the estimators predict."""

import functools
import json
import re
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

import kernelgrad as kg
from cases import every, raises
from draws import normal
from kernelgrad import kernels as kk
from kernelgrad.cli import main
from kernelgrad.exceptions import CapabilityError
from kernelgrad.functions import InputScaling
from plain import kernel_of
from test_exact import CASES, D

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from kernelgrad import onnx as export  # noqa: E402
from kernelgrad.onnx import graph  # noqa: E402

ALPHA = {"alpha": 1e-2, "gamma": 0.4}
METHODS = {
    "label": "predict", "prediction": "predict", "ratio": "predict", "mean": "predict",
    "decision": "decision_function", "probabilities": "predict_proba",
    "score": "score_samples",
}  # fmt: skip


def session(model):
    onnx.checker.check_model(model, full_check=True)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def run(model, feeds):
    it = session(model)
    return dict(zip([o.name for o in it.get_outputs()], it.run(None, feeds), strict=True))


def require_same(estimator, X, feeds=None, **options):
    """All outputs are those of the estimator, to 1e-5 of the largest."""
    found = run(estimator.to_onnx(**options), {"X": X} if feeds is None else feeds)
    for name, value in found.items():
        expected = getattr(estimator, METHODS[name])(X)
        assert value.shape == expected.shape, name
        if expected.dtype.kind != "f":
            assert value.tolist() == expected.tolist(), name
        else:
            scale = np.abs(expected).max()
            assert np.abs(value - expected).max() <= 1e-5 * scale, name
    return found


def table(n=80, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    return X, np.sin(4 * X[:, 0]) + X[:, 1] - X[:, 2] + 0.1 * rng.standard_normal(n)


def classes(k, names=None, seed=0):
    X, y = table(seed=seed)
    codes = np.digitize(y, np.quantile(y, np.arange(1, k) / k))
    return X, codes if names is None else np.array(names)[codes]


def of_two(**options):
    return kg.KernelDensityRatio(gamma=0.4, max_iter=3, solver="block_descent", **options)


def marked():
    X, y = classes(3)
    return X, np.where(np.arange(len(y)) % 3 > 0, y, -1)


FAMILIES = {
    "exact classes": lambda: kg.KernelClassifier(**ALPHA).fit(*classes(3)),
    "text, two": lambda: kg.KernelClassifier("hinge", **ALPHA).fit(*classes(2, ["no", "yes"])),
    "pairs": lambda: kg.KernelClassifier("hinge", multi_class="ovo", **ALPHA).fit(*classes(5)),
    "logistic": lambda: kg.KernelClassifier("logistic", **ALPHA).fit(*classes(3)),
    "multinomial": lambda: kg.KernelClassifier("log_loss", **ALPHA).fit(*classes(3)),
    "margins only": lambda: kg.KernelClassifier("hinge", probability=False, **ALPHA).fit(
        *classes(2, [False, True])
    ),
    "numbers": lambda: kg.KernelRegressor(random_state=0, alpha=1e-2).fit(*table()),
    # a difference of terms 1e5 times as large
    "small penalty": lambda: kg.KernelRegressor(kernel="matern", gamma=0.4, alpha=1e-9).fit(
        *table()
    ),
    "outputs": lambda: kg.KernelRegressor(solver="direct", **ALPHA).fit(
        table()[0], table()[0][:, :2] ** 2
    ),
    "quantiles": lambda: kg.KernelRegressor(
        kg.losses.Quantile((0.2, 0.5, 0.8)), solver="block_descent", max_iter=3, **ALPHA
    ).fit(*table()),
    "logarithms": lambda: kg.KernelRegressor("log_squared", **ALPHA).fit(
        table()[0], np.exp(table()[1])
    ),
    "bounded logarithms": lambda: kg.KernelRegressor(
        kg.losses.LogSquaredError(shift=1.0, factor=1.1, low=0.2, high=4.0), **ALPHA
    ).fit(table()[0], np.exp(table()[1])),
    "linear": lambda: kg.LinearClassifier("hinge").fit(*classes(3)),
    "linear numbers": lambda: kg.LinearRegressor().fit(*table()),
    "few labels": lambda: kg.SemiSupervisedKernelClassifier(
        gamma=0.4, C=1.0, random_state=0
    ).fit(*marked()),
    "novelty": lambda: kg.KernelNoveltyDetector(max_iter=3).fit(table()[0]),
    "ratio": lambda: of_two().fit(table()[0], denominator=table(seed=1)[0]),
    "squared ratio": lambda: of_two(loss="least_squares").fit(*classes(2)),
    "process": lambda: kg.KernelGaussianProcessRegressor(0.01).fit(*table()),
}


@functools.cache
def fitted(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short fits
        return FAMILIES[name]()


@pytest.mark.parametrize("name", FAMILIES)
def test_every_estimator_is_exported(name):
    model, X = fitted(name), table(50, seed=7)[0]
    found = require_same(model, X)
    assert ("probabilities" in found) == hasattr(model, "predict_proba")
    if "probabilities" in found:
        largest = model.classes_[found["probabilities"].argmax(axis=1)]
        assert largest.tolist() == found["label"].tolist()
    require_same(model, X[:1])


def test_callers_with_float32():
    model, X = fitted("exact classes"), table(50, seed=7)[0].astype(np.float32)
    require_same(model, X, dtype="float32")
    raises(ValueError, "dtype 'float16'", model.to_onnx, dtype="float16")


def test_the_families_are_all_estimators():
    own = {name for name in kg.__all__ if hasattr(getattr(kg, name), "to_onnx")}
    assert {type(fitted(name)).__name__ for name in FAMILIES} == own


# Functions: every kernel


def is_core(kernel):
    return all(
        part.name not in kk.KERNELS.lazy.values()
        for part in getattr(kernel, "kernels", [kernel])
    )


def has_form(kernel):
    return kernel.name != "convolutional" and getattr(kernel, "nu", 0.5) in (0.5, 1.5, 2.5)


@pytest.mark.parametrize("core", [True, pytest.param(False, marks=pytest.mark.slow)])
@every(("rows", "kernel"), [*CASES, (normal, kernel_of("sum")), (normal, kernel_of("product"))])
def test_kernels_of_the_core_and_of_rooms(rows, kernel, core):
    if is_core(kernel) == core and has_form(kernel):
        X, Y = rows(40, D), np.random.default_rng(0).standard_normal((40, 2))
        model = kg.KernelRegressor(kernel=kernel, alpha=1.0, standardize=False, solver="direct")
        require_same(model.fit(X, Y), np.concatenate([X[:5], rows(30, D, seed=1)]))


def test_random_features_are_refused():
    model = kg.KernelRegressor(solver="dsg", max_iter=2, **ALPHA).fit(*table())
    raises(CapabilityError, "random features cannot be exported", model.to_onnx)


def test_many_support_rows_are_exported_in_parts():
    X, y = table(4200)
    require_same(kg.KernelRegressor(solver="direct", **ALPHA).fit(X, y), X[:20])


def warp_of(X):
    edges = np.quantile(X, [0, 0.2, 0.6, 1], axis=0)  # bins of columns of few values are empty
    rises = np.diff(edges, axis=0) * np.array([0.5, 2.0, 0.1])[:, None]
    return np.stack([edges, np.vstack([edges[:1], edges[0] + rises.cumsum(axis=0)])])


SCALINGS = {
    "robust": InputScaling.robust,
    "ranks": lambda X, w: InputScaling.robust(X, w, ranks=True),
    "weights": lambda X, w: InputScaling.robust(X, w).with_metric(np.array([1.0, 0.5, 0.0])),
    "matrix": lambda X, w: InputScaling(X.mean(0), None).with_metric(X[:3, :2]),
    "none": lambda X, w: InputScaling(),
    "warps": lambda X, w: InputScaling(warp=warp_of(X), metric=np.array([1.0, 0.5, 0.2])),
}


@every("make", SCALINGS.values())
def test_scalings(make):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3)) ** 3
    X[:, 1] = np.round(X[:, 1])  # equal knots
    X[:, 2] = X[:, 2] > 0
    scaling = make(X, np.ones(200))
    new = np.concatenate([X, 3.0 * X, np.round(3.0 * X)])
    expected, g = scaling.apply(new), export.Graph()
    value = export.add_scaling(scaling, g.input("X", np.float64, 3)) * 1.0
    model = g.model({"value": (value, expected.shape[1])}, {}, "")
    error = np.abs(run(model, {"X": new})["value"] - expected).max()
    assert error <= 1e-9 * np.abs(new).max()


# Tables


def frame(n, seed=0):
    rng = np.random.default_rng(seed)
    city = rng.choice(["Bern", "Köln", "Graz", None], n)
    code = rng.choice([f"p{i}" for i in range(60)], n)
    hours = rng.integers(-150 * 8766, 150 * 8766, n)  # of 300 years
    when = pd.Timestamp("1970-01-01") + pd.to_timedelta(hours, unit="h")
    size = rng.random(n)
    size[rng.random(n) < 0.2] = np.nan
    data = {"size": size, "city": city, "when": when, "new": rng.random(n) < 0.5, "code": code}
    data["other"] = rng.choice([f"q{i}" for i in range(50)], n)
    return pd.DataFrame(data)


def feeds_of(X):
    """Return a frame as the inputs of its model."""
    found = {}
    for name, column in X.items():
        if column.dtype.kind == "M":
            column = (column - pd.Timestamp(0)) / pd.Timedelta("1s")
        text = column.dtype.kind not in "bif"
        values = column.fillna("").astype(str) if text else column.astype(np.float64)
        found[name] = values.to_numpy(object if text else np.float64)[:, None]
    return found


@every("classes", [None, 2, 3])
def test_tables(classes):
    X, rng = frame(300), np.random.default_rng(1)
    y = X["new"] + X["size"].fillna(2.0) + X["code"].str[1:].astype(int) / 60
    y += X["other"].str[1:].astype(int) / 50 + 0.1 * rng.standard_normal(300)
    if classes is None:
        model = kg.LinearRegressor().fit(X, y)
    else:
        model = kg.LinearClassifier().fit(
            X, np.digitize(y, np.quantile(y, [0.3, 0.7])) % classes
        )
    new = frame(100, seed=3)
    new.loc[3, "city"], new.loc[4, "code"] = "Rom", "unknown"
    new.loc[5, "when"] = None
    require_same(model, new, feeds_of(new))


def test_tables_of_numbers_are_one_input():
    X, y = table()
    X[::7, 1] = np.nan
    new = table(20, seed=5)[0]
    new[::3, 1] = new[::4, 2] = np.nan
    require_same(kg.LinearRegressor().fit(X, y), new)
    whole = kg.LinearRegressor().fit(np.nan_to_num(X), y)
    require_same(whole, new)  # medians of training rows
    named = kg.LinearRegressor().fit(pd.DataFrame(X, columns=list("abcd")), y)
    require_same(named, pd.DataFrame(new, columns=list("abcd")), {"X": new})


@pytest.mark.parametrize(
    "task", ["numbers", "classes", pytest.param("skewed", marks=pytest.mark.slow)]
)
def test_default_fits_of_tables(task):
    X, rng = frame(150).drop(columns=["code", "other"]), np.random.default_rng(1)
    y = 2.0 * X["new"] + (X["size"].fillna(0.0) > 0.5) + (X["city"] == "Graz")
    y += 0.1 * rng.standard_normal(150)
    if task == "skewed":
        y = np.exp(2.0 * y)
    if task == "classes":
        model = kg.KernelClassifier(random_state=0).fit(X, np.digitize(y, [1.0, 2.0]))
    else:
        model = kg.KernelRegressor(random_state=0).fit(X, y)
    assert (model.loss_.name == "log_squared") == (task == "skewed")
    assert task != "numbers" or model.expansion_.scaling.warp is not None
    new = frame(100, seed=3)[list(X)]
    new.loc[3, "city"], new.loc[5, "when"] = "Rom", None
    require_same(model, new, feeds_of(new))


def test_columns_named_as_outputs():
    X, y = pd.DataFrame({"label": ["a", "b"] * 20, "x": np.arange(40.0)}), np.arange(40) % 2
    found = run(kg.LinearClassifier().fit(X, y).to_onnx(), feeds_of(X))
    assert found["predicted_label"].tolist() == y.tolist()


def test_a_precomputed_kernel_takes_kernel_values():
    X, y = table()
    K, new = kk.Gaussian(0.4)(X), kk.Gaussian(0.4)(table(20, seed=5)[0], X)
    model = kg.KernelRegressor(
        kernel="precomputed", alpha=1e-2, solver="block_descent", max_iter=3
    )
    require_same(model.fit(K, y), new)


# Files and refusals


def test_the_file_and_what_it_tells(tmp_path):
    X, y = table()
    model = kg.KernelRegressor(solver="direct", **ALPHA)
    model.fit(pd.DataFrame(X, columns=list("abcd")), y)
    made = model.to_onnx(tmp_path / "model.onnx")
    read = onnx.load(tmp_path / "model.onnx")
    assert read == made
    versions = {it.domain: it.version for it in read.opset_import}
    assert versions == {"": export.OPSET, "ai.onnx.ml": export.ML_OPSET}
    assert (read.ir_version, read.producer_name) == (export.IR_VERSION, "kernelgrad")
    told = {it.key: it.value for it in read.metadata_props}
    assert told == {"estimator": "KernelRegressor", "columns": "a\nb\nc\nd"}
    # support rows and coefficients, and little else
    assert read.ByteSize() < 4 * 80 * (4 + 2) + 5000
    model.save(tmp_path / "model.kgm")
    assert kg.load(tmp_path / "model.kgm").to_onnx() == made


class Own(kk.Gaussian):
    name = "own"

    def embedded(self, X):
        return super().embedded(X) + 0.0


@every(
    "kernel, words",
    [
        (kk.CallableKernel(lambda X, Z: X @ Z.T), "has no operators for"),
        (Own(0.4), "cannot be exported"),
        (kk.Gaussian(0.4) + Own(0.4), "cannot be exported"),
    ],
)
def test_kernels_without_a_form(kernel, words):
    model = kg.KernelRegressor(kernel=kernel, solver="block_descent", alpha=1e-2, max_iter=2)
    with pytest.raises(kg.CapabilityError, match=words) as info:
        model.fit(*table()).to_onnx()
    assert "serve the file of save" in str(info.value)


def test_the_command_line_exports(tmp_path, capsys):
    made, path = tmp_path / "model.kgm", tmp_path / "model.onnx"
    fitted("process").save(made)
    assert main(["export", str(made), "--output", str(path)]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^inputs +X\noutputs +mean$", told, re.M)
    assert onnx.load(path) == fitted("process").to_onnx()
    fitted("numbers").save(made)
    assert main(["export", str(made), "--output", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "output": str(path), "file_bytes": path.stat().st_size, "inputs": ["X"],
        "outputs": ["prediction"],
    }  # fmt: skip


def test_other_refusals(monkeypatch):
    texts = pd.DataFrame({"a": [None, "", "b", "c"] * 20})
    with pytest.raises(kg.CapabilityError, match="'a' has missing values and empty texts"):
        kg.LinearRegressor().fit(texts, table()[1]).to_onnx()
    raises(ValueError, "not fitted", kg.KernelRegressor().to_onnx)
    monkeypatch.setattr(graph, "MOST_BYTES", 1000)
    raises(kg.CapabilityError, "larger than 2 GiB", fitted("numbers").to_onnx)
    monkeypatch.setitem(sys.modules, "onnx", None)
    for name in [name for name in sys.modules if name.startswith("kernelgrad.onnx")]:
        monkeypatch.delitem(sys.modules, name)
    raises(ImportError, r"kernelgrad\[onnx\]", fitted("numbers").to_onnx)
