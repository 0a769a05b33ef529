"""The safetensors format as read and written here, beside the library of that name."""

import io
import json

import numpy as np
import pytest
from safetensors.numpy import load, save

from cases import every
from kernelgrad.files.tensors import parse_head, read_tensors, write_tensors

rng = np.random.default_rng(0)
ARRAYS = {
    f"{kind}{size}-{len(shape)}": rng.integers(0, 2, shape).astype(f"{kind}{size}")
    for kind, sizes in {"b": [1], "i": [1, 2, 4, 8], "u": [1, 2, 4, 8], "f": [2, 4, 8]}.items()
    for size in sizes
    for shape in ((), (0, 3), (3,), (2, 1, 3))
}


def split(content):
    length = int.from_bytes(content[:8], "little")
    return content[8 : 8 + length], content[8 + length :]


def read(content):
    head, rest = split(content)
    layout = parse_head(head, len(rest))
    return layout.metadata, read_tensors(io.BufferedReader(io.BytesIO(rest)), layout)


def test_the_library_and_this_one_read_each_other():
    texts = {"text": 'a"\u00e9\u2028\U0001f600', "empty": ""}
    file = io.BytesIO()
    write_tensors(file, ARRAYS, texts)
    for content in (file.getvalue(), save(ARRAYS, texts)):
        found = read(content)
        assert found[0] == texts
        for arrays in (found[1], load(content)):
            assert arrays.keys() == ARRAYS.keys()
            for name, array in arrays.items():
                assert array.dtype == ARRAYS[name].dtype
                np.testing.assert_array_equal(array, ARRAYS[name])
    assert all(array.flags.writeable for array in found[1].values())
    again = io.BytesIO()
    write_tensors(again, dict(reversed(ARRAYS.items())), texts)
    assert again.getvalue() == file.getvalue()


A = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@every(
    "head",
    [
        {"a": A, "b": A},
        {"a": {**A, "data_offsets": [8, 16]}},
        {"a": {**A, "shape": [3]}},
        {"a": {**A, "shape": [True, 2]}},
        {"a": {**A, "shape": [-1, -2]}},
        {"a": {**A, "shape": [2.0]}},
        {"a": {**A, "dtype": "BF16"}},
        {"a": {**A, "dtype": []}},
        {"a": {**A, "data_offsets": [0]}},
        {"a": {**A, "data_offsets": 8}},
        {"a": {"dtype": "F32", "shape": [2]}},
        {"a": {**A, "dtype": "BOOL", "shape": [8]}},
        {"a": {**A, "dtype": "U8", "shape": [8, *[1] * 80]}},
        {"a": A, "b": {"dtype": "F32", "shape": [0, 2**70], "data_offsets": [8, 8]}},
        {"a": []},
        {"__metadata__": {"a": 1}, "a": A},
        {"__metadata__": [], "a": A},
        {},
        '{"a": %s, "a": %s}' % (json.dumps(A), json.dumps(A)),  # noqa: UP031
        "[" * 100_000,
        "{",
    ],
)
def test_other_heads_are_refused(head):
    def content(head):
        text = (head if isinstance(head, str) else json.dumps(head)).encode()
        return len(text).to_bytes(8, "little") + text + bytes([2] * 8)

    assert read(content({"a": A}))[1]["a"].shape == (2,)
    with pytest.raises((ArithmeticError, LookupError, RecursionError, TypeError, ValueError)):
        read(content(head))
