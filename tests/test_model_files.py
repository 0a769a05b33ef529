"""Contents of model files are checked before use; signatures; skops; bad CSR rows."""

import copy
import json
import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import kernelgrad as kg
from cases import every
from kernelgrad.cli import main
from kernelgrad.data import ArraySource
from kernelgrad.exceptions import DataError, ModelFileError
from kernelgrad.files import records as persistence
from kernelgrad.files import tensors as _tensors
from kernelgrad.files.records import Record, check_text, read_container, write_container

KEY = bytes(range(32))
RNG = np.random.default_rng(0)
X = RNG.random((40, 3))
Y = (X[:, 0] > 0.5).astype(int)
FRAME = pd.DataFrame(X, columns=list("uvw")).assign(c=["a", "b"] * 20)
SPARSE = sp.random(40, 60, 0.03, format="csr", random_state=0)  # so few that it stays so


def fitted(cls=kg.KernelClassifier, rows=X, **params):
    given = {"solver": "cached", "alpha": 1e-3, "gamma": 1.0, "max_iter": 2, "random_state": 0}
    return cls(**{**given, **params}).fit(rows, Y)


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """Return header and arrays of the files of some models, by name."""
    path = tmp_path_factory.mktemp("files") / "model.kgm"
    models = {
        "dense": fitted(),
        "sparse": fitted(rows=SPARSE),
        "table": fitted(rows=[[*row, "ab"[y]] for row, y in zip(X.tolist(), Y, strict=True)]),
        "resumable": fitted(solver="sdca", loss="logistic", warm_start=True),
        "features": kg.RandomFeatures(n_components=8, gamma=1.0, random_state=0).fit(X),
    }
    found = {}
    for name, model in models.items():
        kg.save(model, path) if name != "resumable" else model.save(path, resumable=True)
        found[name] = read_container(path)
    return found


def at(value, path):
    for key in path:
        value = value[key]
    return value


def value(*path, to):
    """Return an edit of the header."""

    def edit(header, arrays):
        at(header, path[:-1])[path[-1]] = to

    return edit


def array(name, change):
    """Return an edit of an array, `change` being what becomes of it, None to leave it out."""

    def edit(header, arrays):
        found = change(arrays.pop(name))
        if found is not None:
            arrays[name] = found

    return edit


def cell(name, to):
    def change(a):
        a.flat[1] = to
        return a

    return array(name, change)


GAMMA = ("expansion", "kernel", "params", "gamma", "value")


@every(
    ("name", "edit", "words"),
    [
        ("dense", value("fitted", "predict", to=1), "holds 'predict'"),
        ("dense", value("fitted", "coef_", to=1), "holds 'coef_'"),
        ("dense", value("fitted", "n_iter_", to="many"), "n_iter_ must be an integer"),
        ("dense", value("fitted", "n_features_in_", to=4), "columns"),
        ("dense", value("fitted", "classes_", to=np.array([1, 0])), "increase"),
        ("dense", value("fitted", "classes_", to=np.array([0, 1, 2])), "'coef'"),
        ("dense", value("params", "max_iter", "value", to=-1), "max_iter"),
        ("dense", value("params", "alpha", "value", to="much"), "alpha"),
        ("dense", value("params", "verbose", "value", to="yes"), "verbose"),
        ("dense", value("params", "magic", to={"value": 1}), "magic"),
        ("dense", value("loss", to={"value": 3}), "as its loss"),
        ("dense", value("loss", "name", to="absolute"), "not for classification"),
        ("dense", value("expansion", "wide", to="no"), "wide must be True or False"),
        ("dense", value("expansion", "n_features_in", to=2**40), "at most"),
        ("dense", value("expansion", "other", to=1), "holds 'other'"),
        ("dense", value(*GAMMA, to=-1.0), "gamma"),
        ("dense", value(*GAMMA, to="median"), "no number"),
        ("dense", value("history", "objective", to=[1.0]), "objective"),
        ("dense", value("history", "extra", to=[]), "extra"),
        ("dense", value("history", "compile_seconds", to={}), "compile_seconds"),
        ("dense", cell("coef", np.nan), "NaN or infinity in the array 'coef'"),
        ("dense", cell("rows.square", -1.0), "less than 0.0"),
        ("dense", array("coef", lambda a: a[:-1]), "'coef'"),
        ("dense", array("coef", lambda a: a.astype(np.float16)), "float16"),
        ("dense", array("intercept", lambda a: np.array(a[0])), r"shape \(\)"),
        ("dense", array("intercept", lambda a: a[:0]), r"shape \(0,\)"),
        ("dense", array("intercept", lambda a: None), "lacks the array 'intercept'"),
        ("sparse", cell("rows.indices", 2**31 - 1), "in column 2147483647"),
        ("sparse", cell("rows.indices", -1), "in column -1"),
        ("sparse", cell("rows.indptr", 2**31 - 1), "indptr"),
        ("sparse", array("rows.indptr", lambda a: a[::-1].copy()), "indptr"),
        ("sparse", array("rows.data", lambda a: a[:-1]), "indices"),
        ("sparse", cell("rows.shape", 2**40), "other columns"),
        ("table", value("table", 3, 2, to=["a", "a"]), "is no column"),
        ("table", array("table.medians", lambda a: a[:-1]), "medians"),
        ("resumable", array("state.dual", lambda a: a[:, :-1]), "'dual'"),
        ("resumable", array("state.dual", lambda a: None), "lacks the array 'dual'"),
        ("resumable", value("state", "iteration", to="x"), "iteration"),
        ("resumable", value("state", "rows", to=1), "holds 'rows'"),
        ("features", value("fitted", "_n_features_out", to=2**40), "at most"),
        ("features", value("stream", "block_size", to=0), "block_size"),
    ],
)  # fmt: skip
def test_files_that_no_model_wrote_are_refused(name, edit, words, contents, tmp_path):
    header, arrays = copy.deepcopy(contents[name])
    write_container(tmp_path / "m.kgm", header, arrays)
    kg.load(tmp_path / "m.kgm")
    edit(header, arrays)
    write_container(tmp_path / "m.kgm", header, arrays)
    with pytest.raises(ModelFileError, match=words) as info:
        kg.load(tmp_path / "m.kgm")
    assert "m.kgm" in str(info.value)


def test_rows_must_be_as_many_as_the_state_says(contents, tmp_path):
    header, arrays = copy.deepcopy(contents["resumable"])
    for name in ("coef", "dual", "responses"):
        a = arrays[f"state.{name}"]
        arrays[f"state.{name}"] = a[:-1] if name == "coef" else a[:, :-1]
    write_container(tmp_path / "m.kgm", header, arrays)
    model = kg.load(tmp_path / "m.kgm")
    with pytest.raises(ValueError, match="same rows"):
        model.fit(X, Y)


def test_values_beyond_all_numbers_are_told_at_prediction(contents, tmp_path):
    header, arrays = copy.deepcopy(contents["dense"])
    arrays["coef"][:] = 1e308
    write_container(tmp_path / "m.kgm", header, arrays)
    with pytest.raises(DataError, match="no finite value at row 0"):
        kg.load(tmp_path / "m.kgm").predict(X)


def write_header(path, text):
    with safe_open(path, framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    checksum = persistence._checksum(text, tensors)
    save_file(tensors, path, metadata | {"header": text, "checksum": checksum})


@every(
    "text",
    [
        '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"a": ' + "[" * 300 + "]" * 300 + "}",
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": {"$": "array", "dtype": "<U900000000", "value": ["b"]}}',
        '{"a": {"$": "array", "dtype": "<f8", "value": [[1]]}}',
        '{"a": {"$": "array", "dtype": "u1", "value": [300]}}',
        '{"a": {"$": "array", "dtype": "<f16", "value": [1]}}',
    ],
)
def test_headers_are_bounded(text, tmp_path):
    path = tmp_path / "m.kgm"
    write_container(path, {}, {"a": np.zeros(2)})
    write_header(path, text)
    with pytest.raises(ModelFileError, match="truncated or altered"):
        read_container(path)


def test_what_could_not_be_read_is_not_written(tmp_path, monkeypatch):
    deep = []
    for _ in range(300):
        deep = [deep]
    for header in ({"a": deep}, {"a": np.array(["b"], "<U40000000")}):
        with pytest.raises(ValueError, match=r"more than the|deeper than"):
            write_container(tmp_path / "m", header, {})
    monkeypatch.setattr(_tensors, "MOST_HEAD", 1000)
    with pytest.raises(ValueError, match="more than the 1000"):
        write_container(tmp_path / "m", {"a": "b" * 1000}, {})
    assert not list(tmp_path.iterdir())


def test_signed_files_are_known_by_their_key(tmp_path):
    path = tmp_path / "m.kgm"
    for model in (kg.RandomFeatures(n_components=8, random_state=0).fit(X), fitted()):
        model.save(path, key=KEY)
        assert type(kg.load(path, key=KEY)) is type(kg.load(path)) is type(model)
    np.testing.assert_array_equal(kg.load(path, key=KEY).predict(X), model.predict(X))
    with pytest.raises(ModelFileError, match="signed with another key"):
        kg.load(path, key=KEY[::-1])
    content = path.read_bytes()
    signature = content[content.index(b'"signature":"') + 13 :][:64]
    path.write_bytes(content.replace(signature, rb"\ud800" + b"0" * 58))
    with pytest.raises(ModelFileError, match="signed with another key"):
        kg.load(path, key=KEY)
    path.write_bytes(content)
    with safe_open(path, framework="np") as file:
        text = file.metadata()["header"]
    write_header(path, text.replace("KernelClassifier", "KernelRegressor"))
    with pytest.raises(ModelFileError, match="signed with another key, or altered"):
        kg.load(path, key=KEY)
    kg.save(model, path)
    with pytest.raises(ModelFileError, match="is not signed"):
        kg.load(path, key=KEY)


def test_a_signature_is_of_one_kind_of_file(tmp_path):
    path = tmp_path / "m"
    write_container(path, {}, {}, "checkpoint", key=KEY)
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
    save_file({}, path, metadata | {"format": persistence.FORMAT + "model"})
    with pytest.raises(ModelFileError, match="another key"):
        read_container(path, key=KEY)


@pytest.mark.parametrize(("key", "error"), [(b"short", ValueError), ("x" * 32, TypeError)])
def test_keys_are_bytes_and_long(key, error, tmp_path):
    with pytest.raises(error, match="at least 16 bytes"):
        write_container(tmp_path / "m", {}, {}, key=key)
    assert not list(tmp_path.iterdir())


class Unregistered(kg.KernelClassifier):
    pass


def test_classes_without_a_name_in_files_are_not_saved(tmp_path):
    model = fitted(Unregistered)
    for save in (model.save, lambda path: kg.save(model, path)):
        with pytest.raises(TypeError, match="Unregistered is not registered"):
            save(tmp_path / "m.kgm")
    assert not list(tmp_path.iterdir())


def test_pipelines_and_searches_are_not_saved(tmp_path):
    linear = kg.LinearRegressor()
    for model in (make_pipeline(linear), GridSearchCV(linear, {"alpha": [1e-3]})):
        with pytest.raises(TypeError, match=r"skops, and of a search save the best_estimator_"):
            kg.save(model.fit(X, Y), tmp_path / "m.kgm")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def models():
    marked = np.where(np.arange(40) % 3 > 0, Y, -1)
    options = {"gamma": 1.0, "max_iter": 3, "random_state": 0}
    return [
        kg.KernelClassifier(alpha=1e-2, gamma=1.0).fit(X, Y),
        kg.KernelRegressor(solver="dsg", alpha=1e-2, **options).fit(X, Y),
        kg.SemiSupervisedKernelClassifier(**options).fit(X, marked),
        kg.KernelNoveltyDetector(**options).fit(X),
        kg.KernelDensityRatio(**options).fit(X, Y),
        kg.KernelGaussianProcessRegressor(0.1, gamma=1.0).fit(X, Y),
        kg.LinearClassifier().fit(X, Y),
        kg.LinearRegressor().fit(FRAME, Y),
        kg.RandomFeatures(n_components=16).fit(X),
    ]


def test_skops_asks_for_types_of_this_package(models):
    sio = pytest.importorskip("skops.io")
    for model in models:
        data = sio.dumps(model)
        types = sio.get_untrusted_types(data=data)
        foreign = [name for name in types if not name.startswith("kernelgrad.")]
        assert set(foreign) <= {"numpy.dtype"}
        again = sio.loads(data, trusted=types)
        method = "transform" if hasattr(model, "transform") else "predict"
        rows = FRAME if hasattr(model, "feature_names_in_") else X
        assert np.array_equal(getattr(again, method)(rows), getattr(model, method)(rows))


def test_one_row_is_timed(models, tmp_path, capsys):
    for model in models[:-1]:
        told = model.model_info(latency=True)
        assert told.pop("row_seconds") > 0
        assert told == model.model_info()
    path = str(tmp_path / "m.kgm")
    models[0].save(path)
    assert main(["inspect", path, "--latency"]) == 0
    assert re.search(r"^row seconds +\d+ microseconds$", capsys.readouterr().out, re.M)


def test_the_command_line_inspects_random_features(models, tmp_path, capsys):
    path = str(tmp_path / "m.kgm")
    models[-1].save(path)
    assert main(["inspect", path]) == 0
    assert re.search(r"^written by +kernelgrad \d", capsys.readouterr().out, re.M)
    for command in (["inspect", "--latency"], ["score", path]):
        assert main([*command, path]) == 1
        assert "RandomFeatures, which the command line only" in capsys.readouterr().err
    again = kg.load(path)
    np.testing.assert_array_equal(again.transform(X), models[-1].transform(X))
    assert again.model_info() == models[-1].model_info()


def test_parameters_that_no_fit_takes_are_not_saved(tmp_path):
    with pytest.raises(ValueError, match="max_iter"):
        fitted().set_params(max_iter=-3).save(tmp_path / "m.kgm")


def bad_rows(format):
    rows = sp.csr_matrix(X).asformat(format)
    rows.indices[5] = 2**31 - 1
    return rows


@pytest.mark.parametrize("format", ["csr", "csc"])
def test_rows_beyond_their_columns_are_refused_before_they_are_read(format):
    words = {"csr": "row 1 .* in column", "csc": "column 0 .* in row"}[format] + " 2147483647"
    for make in (
        lambda: fitted(rows=bad_rows(format)),
        lambda: fitted().predict(bad_rows(format)),
        lambda: kg.RandomFeatures(n_components=8).fit(bad_rows(format)),
        lambda: (
            kg.RandomFeatures(n_components=8, random_state=0).fit(X).transform(bad_rows(format))
        ),
        lambda: ArraySource(bad_rows(format), Y),
    ):
        with pytest.raises(DataError, match=words):
            make()


def test_rows_whose_ends_fall_are_refused():
    rows = sp.csr_matrix(X)
    rows.indptr[3] = 100
    with pytest.raises(DataError, match="indptr that does not rise"):
        fitted(rows=rows)


def test_a_record_gives_what_is_asked_for_and_keeps_nothing_back():
    record = Record({"a": "x", "part": {"b": 1}}, {"part.c": np.zeros(3), "d": np.ones((3, 2))})
    part = record.part("part")
    assert record.take("a", check_text) == "x"
    assert record.array("d", "n", "k").shape == (3, 2)
    with pytest.raises(ModelFileError, match=r"part lacks the array 'e'"):
        part.array("e", "n")
    assert part.array("c", "n").shape == (3,)  # as many as of d
    record.close()
    with pytest.raises(ModelFileError, match="holds 'b'"):
        part.close()
    with pytest.raises(ModelFileError, match=r"lacks 'f'"):
        record.take("f", check_text)
    assert record.take("f", check_text, None) is None
    assert json.dumps(record.sizes) == '{"n": 3, "k": 2}'
