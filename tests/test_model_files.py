"""Model files: exact round trips, and refusal of whatever a model did not write."""

import copy
import io
import json
import math
import os
import pickle
import stat

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import load_file, save, save_file

import kernelgrad as kg
from cases import every, raises
from kernelgrad.estimators import files
from kernelgrad.exceptions import DataError, ModelFileError
from kernelgrad.files import container, tensors
from kernelgrad.files.container import (
    decode_value,
    encode_value,
    read_container,
    write_container,
)
from kernelgrad.files.records import Record
from kernelgrad.kernels import KERNELS
from kernelgrad.testing.warmup import default_fits, small_fits
from plain import kernel_of

KEY = bytes(range(32))
RNG = np.random.default_rng(0)
X = RNG.random((40, 9))
Y = (X[:, 0] > 0.5).astype(int)
SPARSE = sp.random(40, 60, 0.03, format="csr", random_state=0)  # so few that it stays so


def fitted(cls=kg.KernelClassifier, rows=X, **params):
    options = {"solver": "block_descent", "alpha": 1e-3, "gamma": 1.0, "max_iter": 2}
    return cls(**{**options, "random_state": 0, **params}).fit(rows, Y)


HEADER = {"loss": "huber", "delta": 0.1, "tol": -math.inf, "classes": np.array(["a", "bc"])}
TENSORS = {"coef": np.arange(6.0).reshape(2, 3), "seed": np.array(7, dtype=np.uint64)}

# NumPy strings end at a zero byte
TEXT = st.characters(codec="utf-8", exclude_characters="\x00")


def same(a, b):
    """Return whether two values are equal in value and in type, down to the sign of zero."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and same(a.tolist(), b.tolist())
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


LABELS = st.one_of(
    hnp.arrays(
        hnp.boolean_dtypes() | hnp.integer_dtypes() | hnp.floating_dtypes(endianness="?")
        | hnp.unsigned_integer_dtypes(endianness="?"), st.integers(0, 4),
    ),
    hnp.arrays("<U3", 3, elements=st.text(TEXT, max_size=3)),
    st.lists(st.text(max_size=3), max_size=4).map(lambda v: np.array([*v, None], object)[:-1]),
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | LABELS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(
            st.text(max_size=3) | st.sampled_from(["$", "value"]), inner, max_size=3
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=25, deadline=None)
@given(VALUES)
def test_value_round_trip_is_exact(value):
    encoded = encode_value(value)
    assert same(decode_value(json.loads(json.dumps(encoded, allow_nan=False))), value)
    assert same(decode_value(encode_value(encoded)), encoded)  # a value too


@every(
    ("value", "words"),
    [
        (b"x", "bytes"), (np.longdouble(1), "longdouble"), ({3: "x"}, "the key 3"),
        (np.zeros((2, 2)), r"shape \(2, 2\)"), ("\ud800", "lone surrogates"),
        (np.array(["a", 1], object), "dtype object"), (np.ma.array([1], mask=[1]), "masked"),
    ],
)  # fmt: skip
def test_other_values_are_refused_by_place(value, words):
    with pytest.raises((TypeError, ValueError), match=words) as info:
        encode_value({"a": [0, value]}, "header")
    assert "header['a'][1]" in str(info.value)


def test_labels_that_are_no_numbers_and_values_written_otherwise_are_refused():
    days = encode_value(np.array([1, 2])) | {"dtype": "<M8[D]"}
    raises(ValueError, "unknown dtype '<M8", decode_value, days)
    with pytest.raises(ModelFileError, match="'a' in a way"):
        Record({}).check_same(({"a": 1}, {}), ({"a": 2}, {}))


@pytest.fixture
def path(tmp_path):
    write_container(tmp_path / "m.kgm", HEADER, TENSORS)
    return tmp_path / "m.kgm"


@every("dtype", ["?", *"bhilBHIL", "e", "f", "d", ">f8"])
def test_arrays_survive_in_any_order_of_memory(tmp_path, dtype):
    a = np.array([[0, 1, 1, 0], [1, 0, 1, 1]]).astype(dtype)
    views = {"C": a, "T": a.T, "back": a[:, ::-1], "F": np.asfortranarray(a), "none": a[:0]}
    write_container(tmp_path / "m", HEADER, views)
    header, arrays = read_container(tmp_path / "m")
    assert same(header, HEADER)
    theirs = load_file(tmp_path / "m")  # the library of the format
    for name, back in arrays.items():
        np.testing.assert_array_equal(back, views[name])
        np.testing.assert_array_equal(theirs[name], views[name])
        assert back.dtype == a.dtype.newbyteorder("=")
        assert back.flags.writeable


@every(
    ("header", "arrays", "error", "words"),
    [
        ({}, {"a": [1.0]}, TypeError, "'a' is a list"),
        ({}, {"a": np.array(["x"])}, TypeError, "Put text labels in the header"),
        ({}, {"a": np.zeros(2, np.longdouble)}, TypeError, "at most 64 bits"),
        ({"a": np.array(["b"], "<U40000000")}, {}, ValueError, "more than the"),
        ({"a": eval("[" * 90 + "]" * 90)}, {}, ValueError, "deeper than"),
        ({"a": "b" * 2000}, {}, ValueError, "more than the 1000"),
    ],
)
def test_what_could_not_be_read_is_not_written(
    tmp_path, header, arrays, error, words, monkeypatch
):
    monkeypatch.setattr(container, "MOST_NESTED", 80)
    monkeypatch.setattr(container.decode_value, "__defaults__", (80,))
    monkeypatch.setattr(tensors, "MOST_HEAD", 1000)
    raises(error, words, write_container, tmp_path / "m", header, arrays)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")
def test_files_are_synced_follow_the_umask_and_keep_links(tmp_path, monkeypatch):
    synced, old = [], os.umask(0o027)
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_mode))
    try:
        write_container(tmp_path / "real", {}, {})
    finally:
        os.umask(old)
    assert [stat.S_ISDIR(mode) for mode in synced] == [False, True]  # the file, its folder
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o640
    (tmp_path / "link").symlink_to("real")
    write_container(tmp_path / "link", {"new": True}, {})
    assert (tmp_path / "link").is_symlink()
    assert read_container(tmp_path / "real")[0] == {"new": True}


@every("error", [OSError("disk full"), KeyboardInterrupt()])
@every("call", ["replace", "fsync"])
def test_a_failed_write_leaves_the_old_file_alone(path, monkeypatch, error, call):
    def fail(*args):
        raise error

    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(type(error)):
            write_container(path, {"new": 1}, {})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def refuses(path, content, words="truncated or altered"):
    path.write_bytes(content)
    raises(ModelFileError, words, read_container, path)


def test_every_truncation_and_every_changed_byte_is_found(path):
    content = path.read_bytes()
    flips = np.random.default_rng(0).integers(1, 256, len(content)).tolist()
    for i, flip in enumerate(flips):
        refuses(path, content[:i], "m.kgm")
        for bits in (0x20, flip):
            refuses(path, content[:i] + bytes([content[i] ^ bits]) + content[i + 1 :], "m.kgm")
    refuses(path, content + b" ")
    refuses(path, content.replace(b"0.1", b"0.2"), "checksum does not match")
    write_container(path, {}, {"flag": np.array([2], np.uint8).view(bool)})
    refuses(path, path.read_bytes())  # a byte that is neither of the two truth values


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("The pickle was executed.",))


A = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def headed(head):
    text = (head if isinstance(head, str) else json.dumps(head)).encode()
    return len(text).to_bytes(8, "little") + text + bytes([2] * 8)


@every(
    ("content", "words"),
    [
        (b"", "is empty"),
        (pickle.dumps(Bomb()), "looks like a pickle"),
        (b"PK\x03\x04" + bytes(20), "looks like a zip"),
        (b'{"a": 1}{', "truncated"),
        (bytes(8) + b"{}", "truncated or altered"),
        (save({"a": np.zeros(2)}), "of another kind"),
        (headed({"a": A}), "of another kind"),
        (headed({"a": {**A, "shape": [2**62] * 33}}), "'a' has 33 axes"),
        *(
            (headed(head), "truncated or altered")
            for head in (
                {"a": A, "b": A}, {"__metadata__": {"a": 1}, "a": A}, {}, "{}}",
                *({"a": {**A, "shape": shape}} for shape in ([3], [True, 2], [-1, -2], [2.0])),
                *({"a": {**A, "data_offsets": offsets}} for offsets in ([8, 16], [0])),
                {"a": {**A, "dtype": "BF16"}}, {"a": {**A, "dtype": []}},
                {"a": {"dtype": "F32", "shape": [2]}}, "{" + '"a":{' * 100_000 + "}",
                '{"a": %s, "a": %s}' % (json.dumps(A), json.dumps(A)),  # noqa: UP031
            )
        ),
    ],
)  # fmt: skip
def test_foreign_bytes_are_refused(tmp_path, content, words):
    refuses(tmp_path / "m", content, words)


def rewrite(path, **changes):
    """Change the texts of a file; a header gets a right checksum."""
    with safe_open(path, framework="np") as file:
        texts = file.metadata() | changes
    arrays = load_file(path)
    if "header" in changes and changes["header"] is not None:
        texts["checksum"] = container._checksum(texts["header"], arrays)
    save_file(arrays, path, {k: v for k, v in texts.items() if v is not None})


def array_of(dtype, value):
    return '{"a": {"$": "array", "dtype": "%s", "value": %s}}' % (dtype, value)  # noqa: UP031


@every(
    ("changes", "words"),
    [
        ({"format": "pt"}, "of another kind .*'pt'"),
        ({"version": "2"}, "version 2, .* upgrade kernelgrad"),
        ({"version": "one"}, "the format version is 'one'"),
        ({"version": None}, "the format version is ''"),
        ({"header": None}, "its header is missing"),
        ({"checksum": "0" * 64}, "checksum"),
        *(
            ({"header": text}, "truncated or altered")
            for text in (
                "[1]", "{", '{"a": NaN}', '{"a": ' + "[" * 300 + "]" * 300 + "}",
                '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
                '{"a": {"$": "call", "value": "os.system"}}',
                '{"a": {"$": "float", "value": "1.0"}}', '{"a": {"$": "tuple", "value": 3}}',
                '{"a": {"$": "array", "value": [1]}}', array_of("V8", [1]), array_of("O", [1]),
                array_of("<U900000000", '["b"]'), array_of("<f8", [[1]]),
                array_of("u1", [300]), array_of("<f16", [1]),
            )
        ),
    ],
)  # fmt: skip
def test_other_texts_are_refused(tmp_path, changes, words):
    write_container(tmp_path / "m", HEADER, TENSORS)
    rewrite(tmp_path / "m", **changes)
    refuses(tmp_path / "m", (tmp_path / "m").read_bytes(), words)


def models():
    """Yield (estimator, targets) for every kernel and loss."""
    for name in KERNELS:
        if name != "precomputed":
            kernel = kernel_of(name)
            yield kg.KernelRegressor(kernel=kernel, solver="direct", alpha=1.0), X[:, 0]
    for estimator, y in small_fits("dsg", X[:, 0] - 0.5, linear=False):
        yield estimator, np.abs(y) if estimator.loss in ("poisson", "gamma") else y


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_part_comes_back_from_a_file(tmp_path):
    seen = 0
    for estimator, y in models():
        try:
            model = estimator.fit(X, y)
        except ValueError:  # a loss that this solver or estimator does not take
            continue
        seen += 1
        model.save(tmp_path / "m.kgm")
        again = kg.load(tmp_path / "m.kgm")
        assert np.array_equal(again.predict(X), model.predict(X)), model
        first = read_container(tmp_path / "m.kgm")
        again.save(tmp_path / "m.kgm")
        files = (first, read_container(tmp_path / "m.kgm"))
        assert len(set(map(container.contents_digest, files))) == 1
    assert seen >= len(KERNELS) - 1 + 12


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """Return header and arrays of the files of some models, by name."""
    path = tmp_path_factory.mktemp("files") / "model.kgm"
    found = {}
    for name, model in {
        "dense": fitted(),
        "sparse": fitted(rows=SPARSE),
        "table": fitted(rows=[[*row, "ab"[y]] for row, y in zip(X.tolist(), Y, strict=True)]),
        "resumable": fitted(solver="sdca", loss="logistic", warm_start=True),
        "stream": kg.KernelClassifier(
            "hinge", solver="dsg", gamma=1.0, probability=True, random_state=0
        ).partial_fit(X, Y, classes=[0, 1]),
        "features": kg.RandomFeatures(n_components=8, gamma=1.0, random_state=0).fit(X),
    }.items():
        model.save(path, **{"resumable": True} if name == "resumable" else {})
        found[name] = read_container(path)
    return found


def value(*keys, to):
    """Return an edit of the header."""

    def edit(header, arrays):
        for key in keys[:-1]:
            header = header[key]
        header[keys[-1]] = to

    return edit


def array(name, change):
    """Return an edit of an array; `change` returns its successor, None to leave it out."""

    def edit(header, arrays):
        arrays[name] = change(arrays[name])
        if arrays[name] is None:
            del arrays[name]

    return edit


def cell(name, to):
    return array(
        name, lambda a: np.r_[a.flat[:1], to, a.flat[2:]].astype(a.dtype).reshape(a.shape)
    )


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
        ("dense", value("params", "verbose", "value", to="yes"), "verbose"),
        ("dense", value("params", "callbacks", to={"value": False}), "holds callbacks"),
        ("dense", value("params", "device", to={"value": 1.5}), "device must be text"),
        ("dense", value("params", "magic", to={"value": 1}), "magic"),
        ("dense", value("loss", to={"value": 3}), "as its loss"),
        ("dense", value("loss", "name", to="absolute"), "not for classification"),
        ("dense", value("expansion", "n_features_in", to=2**40), "at most"),
        ("dense", value("expansion", "other", to=1), "holds 'other'"),
        ("dense", value(*GAMMA, to=-1.0), "gamma"),
        ("dense", value(*GAMMA, to="median"), "no number"),
        ("dense", value("history", "objective", to=[1.0]), "objective"),
        ("dense", value("history", "extra", to=[]), "extra"),
        ("dense", cell("coef", np.nan), "NaN or infinity in the array 'coef'"),
        ("dense", cell("rows.square", -1.0), "less than 0.0"),
        ("dense", array("coef", lambda a: a[:-1]), "'coef'"),
        ("dense", array("coef", lambda a: a.astype(np.float16)), "float16"),
        ("dense", array("intercept", lambda a: np.array(a[0])), r"shape \(\)"),
        ("dense", array("intercept", lambda a: None), "lacks the array 'intercept'"),
        ("sparse", cell("rows.indices", 2**31 - 1), "in column 2147483647"),
        ("sparse", cell("rows.indices", -1), "in column -1"),
        ("sparse", array("rows.indptr", lambda a: a[::-1].copy()), "indptr"),
        ("sparse", array("rows.data", lambda a: a[:-1]), "indices"),
        ("sparse", cell("rows.shape", 2**40), "other columns"),
        ("table", value("table", 9, 2, to=["a", "a"]), "is no column"),
        ("table", array("table.medians", lambda a: a[:-1]), "medians"),
        ("resumable", array("state.dual", lambda a: a[:, :-1]), "'dual'"),
        ("resumable", value("state", "iteration", to="x"), "iteration"),
        ("resumable", value("state", "rows", to=1), "holds 'rows'"),
        ("resumable", value("state", "alpha", to=-1.0), "alpha must lie in"),
        ("stream", cell("extra.latest.1", 2), "holds 2 in the array 'latest.1', more"),
        ("features", value("fitted", "_n_features_out", to=2**40), "at most"),
        ("features", value("stream", "block_size", to=0), "block_size"),
    ],
)  # fmt: skip
def test_files_that_no_model_wrote_are_refused(name, edit, words, contents, tmp_path):
    header, arrays = copy.deepcopy(contents[name])
    edit(header, arrays)
    write_container(tmp_path / "m.kgm", header, arrays)
    with pytest.raises(ModelFileError, match=words) as info:
        kg.load(tmp_path / "m.kgm")
    assert "m.kgm" in str(info.value)


def test_what_only_a_use_can_find_is_told_then(contents, tmp_path):
    header, arrays = copy.deepcopy(contents["dense"])
    arrays["coef"][:] = 1e308
    write_container(tmp_path / "m.kgm", header, arrays)
    raises(DataError, "no finite value at row 0", kg.load(tmp_path / "m.kgm").predict, X)
    header, arrays = copy.deepcopy(contents["resumable"])
    arrays["state.coef"] = arrays["state.coef"][:-1]
    for name in ("state.dual", "state.responses"):
        arrays[name] = arrays[name][:, :-1]
    write_container(tmp_path / "m.kgm", header, arrays)
    raises(ValueError, "same rows", kg.load(tmp_path / "m.kgm").fit, X, Y)


class Unregistered(kg.KernelClassifier):
    pass


def test_models_that_no_file_describes_are_not_saved(tmp_path):
    raises(
        TypeError, "Unregistered is not regist", fitted(Unregistered).save, tmp_path / "m.kgm"
    )
    raises(ValueError, "max_iter", fitted().set_params(max_iter=-3).save, tmp_path / "m.kgm")
    for key, error in ((b"short", ValueError), ("x" * 32, TypeError)):
        raises(error, "at least 16 bytes", fitted().save, tmp_path / "m.kgm", key=key)
    assert not list(tmp_path.iterdir())


def test_signed_files_are_known_by_their_key(tmp_path):
    path, model = tmp_path / "m.kgm", fitted()
    model.save(path, key=KEY)
    assert np.array_equal(kg.load(path, key=KEY).predict(X), kg.load(path).predict(X))
    raises(ModelFileError, "signed with another key", kg.load, path, key=KEY[::-1])
    content = path.read_bytes()
    signature = content[content.index(b'"signature":"') + 13 :][:64]
    path.write_bytes(content.replace(signature, rb"\ud800" + b"0" * 58))
    raises(ModelFileError, "signed with another key", kg.load, path, key=KEY)
    path.write_bytes(content)
    with safe_open(path, framework="np") as file:
        text = file.metadata()["header"]
    rewrite(path, header=text.replace("KernelClassifier", "KernelRegressor"))
    raises(ModelFileError, "signed with another key, or altered", kg.load, path, key=KEY)
    model.save(path)
    raises(ModelFileError, "is not signed", kg.load, path, key=KEY)
    write_container(path, {}, {}, "checkpoint", key=KEY)  # a signature is of one kind of file
    rewrite(path, format=container.FORMAT + "model")
    raises(ModelFileError, "another key", read_container, path, key=KEY)


@pytest.mark.parametrize(("format", "line"), [("csr", "row 1 "), ("csc", "column 0 ")])
def test_sparse_rows_beyond_their_arrays_are_refused_before_they_are_read(format, line):
    rows, model = sp.csr_matrix(X[:, :3]).asformat(format), fitted(rows=X[:, :3])
    features = kg.RandomFeatures(n_components=8, random_state=0)
    rows.indices[5] = 2**31 - 1
    ends = sp.csr_matrix(X)
    ends.indptr[3] = 1000
    for wrong, words in ((rows, f"{line}.* 2147483647"), (ends, "indptr that does not rise")):
        for use in (
            lambda rows: fitted(rows=rows), model.predict, features.fit,
            features.fit(X[:, :3]).transform, lambda rows: kg.ArraySource(rows, Y),
        ):  # fmt: skip
            raises(DataError, words, use, wrong)


@pytest.mark.parametrize("limit", [1000, "10 kB"])
def test_limits_of_old_files_are_a_megabyte_at_least(limit):
    model = kg.LinearRegressor(memory_limit="1 MB").fit([[0.0], [1.0]], [0.0, 1.0])
    header, arrays = files.contents_of(model)
    header["params"]["memory_limit"] = {"value": limit}
    again = files.restored(header, arrays)
    assert again.memory_limit == "1 MB"
    assert again.predict([[2.0]]) == model.predict([[2.0]])
    with pytest.raises(ValueError, match=r"too few; give a unit, as in '10+ MB'"):
        again.set_params(memory_limit=limit).fit([[0.0], [1.0]], [0.0, 1.0])


def test_streams_hold_what_files_hold(tmp_path):
    X = np.random.default_rng(0).random((30, 2))
    model, stream = kg.KernelRegressor(gamma=1.0, alpha=1e-2).fit(X, X[:, 0]), io.BytesIO()
    model.save(stream, key=b"sixteen bytes...")
    model.save(tmp_path / "m.kgm", key=b"sixteen bytes...")
    assert stream.getvalue() == (tmp_path / "m.kgm").read_bytes()
    stream.seek(0)
    again = kg.load(stream, key=b"sixteen bytes...")
    assert np.array_equal(again.predict(X), model.predict(X))
    raises(ModelFileError, "'stream' is truncated", kg.load, io.BytesIO(stream.getvalue()[:90]))


def test_pickles_of_another_version_warn(monkeypatch):
    data = pickle.dumps(kg.KernelRegressor(alpha=0.5))
    assert vars(pickle.loads(data)) == vars(kg.KernelRegressor(alpha=0.5))
    monkeypatch.setattr("kernelgrad.estimators.base.__version__", "9.0")
    with pytest.warns(UserWarning, match=r"KernelRegressor was pickled by kernelgrad .* 9\.0"):
        assert pickle.loads(data).alpha == 0.5


@pytest.mark.filterwarnings("ignore:Class . is .* of the labelled rows:UserWarning")
@pytest.mark.parametrize("choose", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_skops_asks_for_listed_types(choose):
    sio = pytest.importorskip("skops.io")
    foreign = [name for name in kg.SKOPS_TYPES if not name.startswith("kernelgrad.")]
    rows = "scipy.sparse._csr.csr_"
    assert foreign == ["numpy.dtype", f"{rows}array", f"{rows}matrix"]
    frame, options = pd.DataFrame(X).assign(c=["a", "b"] * 20), {"alpha": 1e-2, "gamma": 1.0}
    frame.columns = frame.columns.astype(str)
    for model, rows, y in (
        (kg.KernelRegressor(solver="dsg", max_iter=3, **options), X, Y),
        (kg.LinearRegressor(), frame, Y), (kg.KernelRegressor(**options), sp.csr_array(X), Y),
        (kg.KernelClassifier("hinge", **options), X, Y),  # calibrated
        *((model, X, y) for model, y in default_fits(X[:, 0])),
    ):  # fmt: skip
        if isinstance(model, kg.SemiSupervisedKernelClassifier) and not choose:
            model.set_params(solver=kg.SoftLabels(choose=False))
        again = sio.loads(sio.dumps(model.fit(rows, y)), trusted=kg.SKOPS_TYPES)
        method = "transform" if hasattr(model, "transform") else "predict"
        assert np.array_equal(getattr(again, method)(rows), getattr(model, method)(rows))
