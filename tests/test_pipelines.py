"""Pipelines of scikit-learn in model files, and estimators in those of skops."""

import importlib
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.decomposition import PCA, KernelPCA
from sklearn.exceptions import InconsistentVersionWarning, NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest, chi2
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import kernelgrad as kg
from cases import every
from kernelgrad.cli import main
from kernelgrad.estimators.files import ESTIMATORS
from kernelgrad.estimators.pipelines import STEPS, _Writer
from kernelgrad.files.records import read_container, write_container

X = np.random.default_rng(0).random((60, 3))
Y = np.sin(3 * X[:, 0]) + X[:, 1]
FRAME = pd.DataFrame(X, columns=list("uvw")).assign(c=["a", "b"] * 30)


def through_a_file(model, tmp_path):
    kg.save(model, tmp_path / "model.kgm")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return kg.load(tmp_path / "model.kgm")


def rows_for(name):
    """Return rows that a step takes."""
    if name in ("CountVectorizer", "HashingVectorizer", "TfidfVectorizer"):
        return ["a bird in", "the hand", "is a bird"] * 5
    if name == "LabelEncoder":
        return ["x", "y", "x"]
    if name == "LabelBinarizer":
        return [3, 1, 2, 3]
    if name == "MissingIndicator":
        return np.where(X > 0.9, np.nan, X)
    if name == "OneHotEncoder":
        return np.array([["a", 1.0, None], ["b", np.nan, "z"]] * 3, object)
    return X[:20]


def made(name):
    cls = getattr(importlib.import_module(next(m for m, n in STEPS.items() if name in n)), name)
    given = {
        "ColumnTransformer": {"transformers": [("a", StandardScaler(), [0, 2])]},
        "FeatureUnion": {"transformer_list": [("a", StandardScaler())]},
        "KBinsDiscretizer": {"encode": "ordinal", "strategy": "uniform"},
        "NMF": {"max_iter": 2000},
        "Nystroem": {"n_components": 5},
        "Pipeline": {"steps": [("a", StandardScaler())]},
        "QuantileTransformer": {"n_quantiles": 5},
        "SelectKBest": {"k": 2},
        "FunctionTransformer": {"func": np.log1p},
    }.get(name, {})
    return cls(**given)


NAMES = sorted(name for names in STEPS.values() for name in names)


@every("name", [n for n in NAMES if not n.startswith(("Transf", "make"))])
def test_every_step_is_as_before(name, tmp_path):
    rows = rows_for(name)
    target = np.arange(len(rows)) % 2
    step = made(name)
    fits = (rows,) if name.startswith("Label") else (rows, target)
    step.fit(*fits)
    again = through_a_file(step, tmp_path)
    first, second = step.transform(rows), again.transform(rows)
    dense = [getattr(Z, "toarray", lambda Z=Z: Z)() for Z in (first, second)]
    assert np.array_equal(*dense)
    assert repr(again) == repr(step)


def test_a_pipeline_of_a_table(tmp_path):
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    frame["city"] = pd.Series(["Bern", "Graz", None] * 20, dtype=object)
    numbers = make_column_selector(dtype_include=np.number)
    model = Pipeline(
        [
            ("columns", ColumnTransformer(
                [
                    ("scale", make_pipeline(StandardScaler(), PCA(2)), numbers),
                    ("one", OneHotEncoder(handle_unknown="ignore"), ["city"]),
                ],
                remainder="passthrough",
            )),
            ("model", kg.KernelClassifier(alpha=1e-2, gamma=0.4, random_state=0)),
        ],
        memory=str(tmp_path / "cache"),
    )  # fmt: skip
    model.fit(frame, np.where(Y > 1, "high", "low"))
    again = through_a_file(model, tmp_path)
    assert again.memory is None
    assert np.array_equal(model.predict_proba(frame), again.predict_proba(frame))
    assert again.predict(frame).tolist() == model.predict(frame).tolist()
    assert again[:-1].get_feature_names_out().tolist() == [
        "scale__pca0", "scale__pca1", "one__city_Bern", "one__city_Graz", "one__city_None"
    ]  # fmt: skip
    again.fit(frame, Y > 1)  # it can be fitted anew


def test_other_shapes_of_pipelines(tmp_path):
    features = FeatureUnion([("a", kg.RandomFeatures(n_components=32, random_state=0))])
    best = SelectKBest(chi2, k=2)
    for model in (
        make_pipeline(features, kg.LinearRegressor()),
        make_pipeline(FeatureUnion([("one", OneHotEncoder())]), kg.LinearRegressor()),
        TransformedTargetRegressor(kg.KernelRegressor(alpha=1e-2, gamma=1.0), func=np.log1p,
                                   inverse_func=np.expm1),
        make_pipeline(FunctionTransformer(np.sqrt), best, kg.LinearRegressor()),
    ):  # fmt: skip
        target = Y > 1 if "selectkbest" in repr(model).lower() else Y
        model.fit(X, target)
        again = through_a_file(model, tmp_path)
        assert np.array_equal(again.predict(X), model.predict(X))
        assert repr(again) == repr(model)
    text = make_pipeline(TfidfVectorizer(), kg.LinearClassifier())
    words = ["good bird", "bad bird", "good hand", "bad hand"]
    text.fit(words, [1, 0, 1, 0])
    assert through_a_file(text, tmp_path).predict(["a bad one", "good"]).tolist() == [0, 1]


def test_random_features_have_files_of_their_own(tmp_path):
    model = kg.RandomFeatures(n_components=33, random_state=0).fit(X)
    again = through_a_file(model, tmp_path)
    assert np.array_equal(model.transform(X), again.transform(X))
    assert again.model_info() == model.model_info()


def test_what_files_cannot_hold(tmp_path):
    path = tmp_path / "model.kgm"
    linear = kg.LinearRegressor()
    search = GridSearchCV(linear, {"alpha": [1e-3]}).fit(X, Y)
    with pytest.raises(TypeError, match="Save its best_estimator_"):
        kg.save(search, path)
    steps = {
        "PCA": make_pipeline(KernelPCA(2), linear),
        "func": make_pipeline(FunctionTransformer(lambda Z: Z), linear),
    }
    with pytest.raises(TypeError, match=r"Pipeline.steps\[0\]\[1\] is a .*KernelPCA.*skops"):
        kg.save(steps["PCA"].fit(X, Y), path)
    with pytest.raises(TypeError, match=r"\.func is a builtins.function"):
        kg.save(steps["func"].fit(X, Y), path)
    with pytest.raises(NotFittedError, match="Pipeline instance is not fitted"):
        kg.save(make_pipeline(StandardScaler(), kg.LinearRegressor()), path)
    assert not path.exists()


def test_files_name_nothing_else(tmp_path):
    """A changed file cannot make other objects."""
    words = {f"word {i}" for i in range(20)}  # sets have an order, whatever the hashes
    assert _Writer().pack(words, "words")["items"] == sorted(words)
    path = tmp_path / "model.kgm"
    kg.save(make_pipeline(FunctionTransformer(np.sqrt), kg.LinearRegressor()).fit(X, Y), path)
    for old, new, words in [
        ('"FunctionTransformer"', '"Memory"', "no step"),
        ('"sqrt"', '"save"', "no function of numpy"),
        ('"ufunc"', '"call"', "'call'"),
        ('"LinearRegressor"', '"Popen"', "'Popen'"),
    ]:
        header, arrays = read_container(path)
        text = repr(header["object"]).replace(old.replace('"', "'"), new.replace('"', "'"))
        header["object"] = eval(text, {"array": np.array, "nan": np.nan})
        write_container(tmp_path / "bad", header, arrays)
        with pytest.raises(kg.ModelFileError, match=words):
            kg.load(tmp_path / "bad")


def test_another_version_of_scikit_learn_is_told(tmp_path):
    path = tmp_path / "model.kgm"
    model = make_pipeline(StandardScaler(), kg.LinearRegressor()).fit(X, Y)
    kg.save(model, path)
    header, arrays = read_container(path)
    step = header["object"]["state"]["steps"]["items"][0]["items"][1]
    step["state"]["_sklearn_version"] = "0.1"
    write_container(path, header, arrays)
    with pytest.warns(InconsistentVersionWarning, match="StandardScaler"):
        kg.load(path)


@pytest.fixture(scope="module")
def models():
    marked = np.where(np.arange(60) % 3 > 0, Y > 1, -1)
    options = {"gamma": 1.0, "max_iter": 3, "random_state": 0}
    return [
        kg.KernelClassifier(alpha=1e-2, gamma=1.0).fit(X, Y > 1),
        kg.KernelRegressor(solver="dsg", alpha=1e-2, **options).fit(X, Y),
        kg.SemiSupervisedKernelClassifier(**options).fit(X, marked),
        kg.KernelNoveltyDetector(**options).fit(X),
        kg.KernelDensityRatio(**options).fit(X, Y > 1),
        kg.KernelGaussianProcessRegressor(0.1, gamma=1.0).fit(X, Y),
        kg.LinearClassifier().fit(X, Y > 1),
        kg.LinearRegressor().fit(FRAME, Y),
        kg.RandomFeatures(n_components=16).fit(X),
    ]


def test_skops_asks_for_types_of_this_package(models):
    sio = pytest.importorskip("skops.io")
    assert {type(model).__name__ for model in models} == set(ESTIMATORS)
    for model in models:
        data = sio.dumps(model)
        types = sio.get_untrusted_types(data=data)
        foreign = [name for name in types if not name.startswith("kernelgrad.")]
        assert set(foreign) <= {"numpy.dtype"}
        again = sio.loads(data, trusted=types)
        method = "transform" if hasattr(model, "transform") else "predict"
        rows = FRAME if hasattr(model, "feature_names_in_") else X
        assert np.array_equal(getattr(again, method)(rows), getattr(model, method)(rows))


def test_one_row_is_timed(models):
    for model in models[:-1]:
        told = model.model_info(latency=True)
        assert told.pop("row_seconds") > 0
        assert told == model.model_info()


def test_the_command_line_inspects_pipelines(tmp_path, capsys, models):
    path, plain = tmp_path / "model.kgm", tmp_path / "plain.kgm"
    kg.save(make_pipeline(StandardScaler(), kg.LinearRegressor()).fit(X, Y), path)
    assert main(["inspect", str(path)]) == 0
    told = capsys.readouterr().out
    assert "StandardScaler, LinearRegressor" in told
    models[0].save(plain)
    assert main(["inspect", str(plain), "--latency"]) == 0
    assert re.search(r"^row seconds +\d+ microseconds$", capsys.readouterr().out, re.M)
    assert re.search(r"^written by +kernelgrad \d", told, re.M)
    for command in (["inspect", "--latency"], ["score", str(path)]):
        assert main([*command, str(path)]) == 1
        assert "holds a Pipeline, which the command line only inspects" in (
            capsys.readouterr().err
        )


def test_the_documentation_lists_the_steps():
    text = (Path(__file__).parents[1] / "docs" / "serving.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(sklearn[.\w]+)` \| (.*) \|$", text, re.M))
    assert {name: tuple(row.split(", ")) for name, row in rows.items()} == STEPS
