"""Reads and writes the safetensors format: a JSON header, then the bytes of each array.

The format is implemented here because the library of that name holds a second copy of all
arrays and ends the process if memory runs out.
"""

from __future__ import annotations

import json
import math
from io import BufferedIOBase
from typing import IO, Any, NamedTuple

import numpy as np

from kernelgrad.types import AnyArray

MOST_HEAD = 100_000_000  # bytes of names and texts; no reader of the format takes more
_WORDS = {"b": "BOOL", "i": "I", "u": "U", "f": "F"}


class Layout(NamedTuple):
    """Contents of a header: texts by name, and the dtype and shape of each array in order."""

    metadata: dict[str, str]
    arrays: dict[str, tuple[np.dtype[Any], tuple[int, ...]]]


def _word(dtype: np.dtype[Any]) -> str:
    return _WORDS[dtype.kind] + str(8 * dtype.itemsize) * (dtype.kind != "b")


_DTYPES = {
    _word(dtype): dtype
    for dtype in map(np.dtype, ("?", *(f"<{k}{n}" for k in "iu" for n in (1, 2, 4, 8))))
} | {f"F{8 * n}": np.dtype(f"<f{n}") for n in (2, 4, 8)}


def _bytes_of(array: AnyArray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def write_tensors(
    file: IO[bytes], arrays: dict[str, AnyArray], metadata: dict[str, str]
) -> None:
    """Write arrays in C order of boolean, integer and float dtypes, and texts."""
    # wide items first, so that all are aligned where others map the file
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    head: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in names:
        start, end = end, end + arrays[name].nbytes
        dtype, shape = _word(arrays[name].dtype), arrays[name].shape
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MOST_HEAD:
        raise ValueError(
            f"The names and texts take {len(text)} bytes, more than the {MOST_HEAD} that a "
            "file may hold; fit with fewer or shorter labels, or pickle the model."
        )
    file.write(len(text).to_bytes(8, "little") + text)
    for name in names:
        array = arrays[name]
        file.write(_bytes_of(array.astype(array.dtype.newbyteorder("<"), copy=False)))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("a name occurs twice in its head")
    return unique


def parse_head(head: bytes, n_bytes: int) -> Layout:
    """Return what a head says; `n_bytes` follow it.

    ValueError, TypeError, LookupError or RecursionError is raised for any other head, and for
    one whose arrays are not exactly these bytes.
    """
    if len(head) > MOST_HEAD:
        raise ValueError(f"its head takes more than {MOST_HEAD} bytes")
    entries = json.loads(head, object_pairs_hook=_once)
    metadata = entries.pop("__metadata__", {})
    if not all(isinstance(text, str) for text in {**metadata}.values()):
        raise ValueError("its metadata are no texts")
    arrays, end = {}, 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        shape, (start, stop) = entry["shape"], entry["data_offsets"]
        if len(shape) > 32:  # time grows with the square of their number
            raise ValueError(f"{name!r} has {len(shape)} axes")
        if not all(type(size) is int and size >= 0 for size in (*shape, start, stop)):
            raise ValueError(f"{name!r} has the shape {shape!r}")
        dtype = _DTYPES[entry["dtype"]]
        if start != end or stop - start != dtype.itemsize * math.prod(shape):
            raise ValueError(f"{name!r} is not where it should be")
        arrays[name], end = (dtype, tuple(shape)), stop
    if end != n_bytes:
        raise ValueError(f"{end} bytes of arrays are announced, {n_bytes} are there")
    return Layout(metadata, arrays)


def read_tensors(file: BufferedIOBase, layout: Layout) -> dict[str, AnyArray]:
    """Return the arrays, which follow in the file; raise ValueError if they do not."""
    arrays = {}
    for name, (dtype, shape) in layout.arrays.items():
        array: AnyArray = np.empty(shape, dtype)
        raw = _bytes_of(array)
        if file.readinto(raw) != raw.nbytes:
            raise ValueError(f"{name!r} ends too early")
        if dtype.kind == "b" and max(raw, default=0) > 1:
            raise ValueError(f"{name!r} holds bytes that are no booleans")
        arrays[name] = array.astype(dtype.newbyteorder("="), copy=False)
    return arrays
