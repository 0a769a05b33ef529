"""The model container: exact round trips, atomic writes, and refusal of every other file."""

import io
import json
import math
import os
import pickle
import stat
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import save, save_file

from cases import every
from kernelgrad.exceptions import ModelFileError
from kernelgrad.files import disk as _disk
from kernelgrad.files import records as persistence
from kernelgrad.files.records import decode_value, encode_value, read_container, write_container

HEADER = {"loss": "huber", "delta": 0.1, "tol": -math.inf, "classes": np.array(["a", "bc"])}
TENSORS = {
    "coef": np.arange(6.0).reshape(2, 3),
    "seed": np.array(7, dtype=np.uint64),
    "none": np.zeros((0, 3), dtype=np.float32),
    "mask": np.array([True, False]),
}


def same(a, b):
    """Equal in value and in type, down to the sign of zero."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and same(a.tolist(), b.tolist())
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return repr(a) == repr(b)
    return a == b


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.kg"
    write_container(path, HEADER, TENSORS)
    return path


LABEL_DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    hnp.unicode_string_dtypes(endianness="?", min_len=1, max_len=5),
)


def is_text(labels):
    """Whether labels hold no lone surrogates, which are refused."""
    text = "".join(labels.tolist()) if labels.dtype.kind == "U" else ""
    return text == text.encode(errors="ignore").decode()


LABELS = st.one_of(
    hnp.arrays(LABEL_DTYPES, st.integers(0, 4)).filter(is_text),
    st.lists(st.text(max_size=3), max_size=4).map(lambda v: np.array([*v, None], object)[:-1]),
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = st.text(max_size=3) | st.sampled_from(["$", "value", "dtype"])
VALUES = st.recursive(
    SCALARS | LABELS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_value_round_trip_is_exact(value):
    encoded = encode_value(value)
    text = json.dumps(encoded, allow_nan=False)
    assert same(decode_value(json.loads(text)), value)
    assert same(decode_value(encode_value(encoded)), encoded)  # a value too


@every(
    ("scalar", "python"),
    [
        (np.float32(0.1), float(np.float32(0.1))),
        (np.float64("nan"), math.nan),
        (np.int8(-3), -3),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.bool_(True), True),
        (np.str_("é"), "é"),
    ],
)
def test_numpy_scalars_become_python_ones(scalar, python):
    assert same(decode_value(encode_value(scalar)), python)
    assert same(decode_value(encode_value([scalar])), [python])


Point = namedtuple("Point", "x y")


@every(
    ("value", "words"),
    [
        (1j, "complex"),
        (b"x", "bytes"),
        ({1, 2}, "set"),
        (Point(1, 2), "Point"),
        (np.datetime64("2020-01-01"), "datetime.date"),
        (np.longdouble(1), "longdouble"),
        ({3: "x"}, "the key 3"),
        (np.zeros((2, 2)), r"shape \(2, 2\)"),
        (np.array(1), r"shape \(\)"),
        (np.array([1j]), "complex128"),
        (np.array(["a", 1], dtype=object), "dtype object"),
        (np.array([b"a"]), "S1"),
        (np.ma.masked_array([1], [True]), "masked"),
    ],
)
def test_other_values_are_refused_by_place(value, words):
    with pytest.raises(TypeError, match=words) as info:
        encode_value({"a": [0, value]}, "header")
    assert "header['a'][1]" in str(info.value)


@pytest.mark.parametrize("value", ["\ud800", {"\udc00": 1}, np.array(["\ud800"])])
def test_lone_surrogates_are_refused(value):
    with pytest.raises(ValueError, match="lone surrogates"):
        encode_value(value)


@every(
    "value",
    [
        {"$": "call", "value": "os.system"},
        {"$": "float", "value": "1.0"},
        {"$": "tuple", "value": 3},
        {"$": "array", "value": [1]},
        {"$": "array", "dtype": "V8", "value": [1]},
        {"$": "array", "dtype": "O", "value": [1]},
    ],
)
def test_unknown_tags_are_refused(value):
    with pytest.raises(ValueError, match=r"unknown|other than text"):
        decode_value(value)


def test_container_round_trip(model):
    header, tensors = read_container(str(model))
    assert same(header, HEADER)
    assert same({k: tensors[k] for k in TENSORS}, TENSORS)
    assert all(a.flags.writeable and a.flags.owndata for a in tensors.values())
    write_container(model, {}, {})
    assert read_container(model) == ({}, {})


def test_files_and_their_folders_are_synced(model, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_mode))
    write_container(model, {}, {})
    assert [stat.S_ISDIR(mode) for mode in synced] == [False, True]


@every("dtype", ["?", *"bhilBHIL", "e", "f", "d", ">f8"])
def test_tensors_survive_in_any_order_of_memory(tmp_path, dtype):
    a = np.array([[0, 1, 1, 0], [1, 0, 1, 1]]).astype(dtype)
    views = {"C": a, "T": a.T, "back": a[:, ::-1], "part": a[::2], "F": np.asfortranarray(a)}
    write_container(tmp_path / "m", {}, views)
    for name, back in read_container(tmp_path / "m")[1].items():
        np.testing.assert_array_equal(back, views[name])
        assert back.dtype == a.dtype.newbyteorder("=")


@every(
    ("tensors", "words"),
    [
        ({"a": [1.0]}, "'a' is a list"),
        ({"a": np.array(["x"])}, "Put text labels in the header"),
        ({"a": np.array([None])}, "dtype object"),
        ({"a": np.array([1j])}, "dtype complex128"),
        ({"a": np.zeros(2, np.longdouble)}, "at most 64 bits"),
        ({"a": np.ma.masked_array([1], [True])}, "MaskedArray"),
        ({1: np.zeros(2)}, "name 1"),
    ],
)
def test_other_tensors_are_refused(tmp_path, tensors, words):
    with pytest.raises(TypeError, match=words):
        write_container(tmp_path / "m", {}, tensors)
    assert not list(tmp_path.iterdir())


def test_other_arguments_are_refused(tmp_path):
    with pytest.raises(TypeError, match="header must be a dict, got a list"):
        write_container(tmp_path / "m", [], {})
    with pytest.raises(ValueError, match="'__metadata__' is reserved"):
        write_container(tmp_path / "m", {}, {"__metadata__": np.zeros(1)})
    with pytest.raises(FileNotFoundError, match=r"no_folder' for the file; create it"):
        write_container(tmp_path / "no_folder" / "m", {}, {})


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")
def test_permissions_follow_the_umask_and_links_are_kept(tmp_path):
    old = os.umask(0o027)
    try:
        write_container(tmp_path / "real", {}, {})
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o640
    (tmp_path / "link").symlink_to("real")
    write_container(tmp_path / "link", {"new": True}, {})
    assert (tmp_path / "link").is_symlink()
    assert read_container(tmp_path / "real")[0] == {"new": True}


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("place", ["replace", "fsync", "write"])
def test_a_failed_write_leaves_the_old_file_alone(model, monkeypatch, error, place):
    def fail(*args):
        raise error

    before = model.read_bytes()
    if place == "write":

        def write(self, content):
            io.FileIO.write(self, content[:20])
            raise error

        monkeypatch.setattr(_disk._Named, "write", write)
    else:
        monkeypatch.setattr(os, place, fail)
    with pytest.raises(type(error)):
        write_container(model, {"new": 1}, {})
    monkeypatch.undo()
    assert model.read_bytes() == before
    assert os.listdir(model.parent) == [model.name]


def test_every_truncation_and_every_changed_byte_is_found(model):
    content = model.read_bytes()
    rng = np.random.default_rng(0)
    with pytest.raises(FileNotFoundError, match=r"no model file .*check the path or save"):
        read_container(model.parent / "absent")
    for size in range(len(content)):
        model.write_bytes(content[:size])
        with pytest.raises(ModelFileError):
            read_container(model)
    for place in range(len(content)):
        for flip in (0x20, int(rng.integers(1, 256))):
            changed = bytearray(content)
            changed[place] ^= flip
            model.write_bytes(changed)
            with pytest.raises(ModelFileError):
                read_container(model)
    for changed, words in (
        (content[:-1], "truncated"),
        (content + b" ", "altered"),
        (content.replace(b"0.1", b"0.2"), "checksum does not match"),
    ):
        model.write_bytes(changed)
        with pytest.raises(ModelFileError, match=words):
            read_container(model)


def test_changed_padding_is_found(tmp_path):
    path, found = tmp_path / "m", 0
    for n in range(8):
        write_container(path, {"k": "x" * n}, {})
        content = path.read_bytes()
        if content.endswith(b" "):
            found += 1
            path.write_bytes(content[:-1] + b"\n")
            with pytest.raises(ModelFileError, match="head does not end"):
                read_container(path)
    assert found


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("The pickle was executed.",))


@every(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"hello, this is text", "not a kernelgrad model file"),
        (pickle.dumps(Bomb()), "looks like a pickle"),
        (b"PK\x03\x04" + bytes(20), "looks like a zip"),
        (b"\x93NUMPY\x01\x00v\x00{'descr'", "npy"),
        (b"\x7f" + bytes(7) + b"{}", "truncated"),
        (b'{"a": 1}{', "truncated"),
        (bytes(8) + b"{}", "truncated or altered"),
        (save({"a": np.zeros(2)}), "of another kind"),
    ],
)
def test_foreign_bytes_are_refused(tmp_path, content, words):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ModelFileError, match=words):
        read_container(tmp_path / "m")


def rewrite(path, **changes):
    with safe_open(path, framework="np") as file:
        metadata = {**file.metadata(), **changes}
        tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    save_file(tensors, path, {k: v for k, v in metadata.items() if v is not None})


@every(
    ("changes", "words"),
    [
        ({"format": "pt"}, "of another kind .*'pt'"),
        ({"format": None}, "of another kind"),
        ({"version": "2"}, "version 2, .* upgrade kernelgrad"),
        ({"version": "one"}, "the format version is 'one'"),
        ({"version": None}, "the format version is ''"),
        ({"header": None}, "its header is missing"),
        ({"checksum": None}, "its checksum is missing"),
        ({"checksum": "0" * 64}, "checksum"),
    ],
)
def test_other_metadata_are_refused(model, changes, words):
    write_container(model, HEADER, TENSORS)
    rewrite(model, **changes)
    with pytest.raises(ModelFileError, match=words):
        read_container(model)


@pytest.mark.parametrize("text", ["[1]", "{", '{"a": {"$": "no"}}'])
def test_bad_header_with_a_good_checksum_is_refused(model, text):
    tensors = read_container(model)[1]
    rewrite(model, header=text, checksum=persistence._checksum(text, tensors))
    with pytest.raises(ModelFileError, match="truncated or altered"):
        read_container(model)
