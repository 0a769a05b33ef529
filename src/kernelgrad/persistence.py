"""A versioned container: one safetensors file, checked on reading, free of pickle.

The metadata of the file hold four texts: ``format`` (``kernelgrad-`` and what it holds),
``version``, ``header`` (JSON, see `encode_value`) and ``checksum``, the SHA-256 of the header
and of every tensor's name, dtype, shape and bytes. The checksum finds damage; it is no
signature, so it says nothing about who wrote the file. Reading parses numbers and text only.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from kernelgrad._disk import check_target, replacing, special
from kernelgrad._typing import AnyArray, Contents
from kernelgrad.exceptions import ModelFileError, NewerFileError

FORMAT = "kernelgrad-"
VERSION = 1

# A JSON object with this key stands for a value that JSON itself cannot hold.
_TAG = "$"
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_FOREIGN_STARTS = {
    b"\x80": "a pickle (or joblib) file",
    b"PK": "a zip or .npz archive",
    b"\x93NUMPY": "a .npy file",
    b"\x89HDF": "an HDF5 file",
    b"\x1f\x8b": "a gzip file",
}


def _check_text(value: str, name: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{name} holds the text {value!r}, which is not valid Unicode; "
            "remove its lone surrogates."
        ) from None
    return value


def _encode_labels(value: AnyArray, name: str) -> dict[str, Any]:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; fill it, or store data and mask apart.")
    if value.ndim != 1:
        raise TypeError(
            f"{name} is an array of shape {value.shape}; the header holds 1-D arrays only, "
            "store others as tensors."
        )
    kind = value.dtype.kind
    texts = kind == "O" and all(type(v) is str for v in value)
    if not (texts or kind in "biuU" or (kind == "f" and value.dtype.itemsize <= 8)):
        raise TypeError(
            f"{name} is an array of dtype {value.dtype}; convert it to integers, floats of at "
            "most 64 bits, booleans or text."
        )
    items = [encode_value(v, f"{name}[{i}]") for i, v in enumerate(value.tolist())]
    dtype = "O" if kind == "O" else value.dtype.str
    return {_TAG: "array", "dtype": dtype, "value": items}


def encode_value(value: Any, name: str = "value") -> Any:
    """Return a JSON-ready form of `value` that `decode_value` turns back exactly.

    Parameters
    ----------
    value : object
        None, bool, int, float (also infinite or NaN), str, a list, a tuple, a dict with str
        keys, a NumPy scalar (it becomes the Python one), or a 1-D array of labels (integers,
        floats, booleans, text, or objects that are all str), nested at will.
    name : str, default="value"
        What error messages call the value.

    Returns
    -------
    object
        Something that ``json.dumps(..., allow_nan=False)`` accepts.

    Raises
    ------
    TypeError
        If `value` holds anything else; the message names the place.
    """
    if isinstance(value, np.ndarray):
        return _encode_labels(value, name)
    if isinstance(value, np.generic):
        value = value.item()
    # Exact types: a subclass (an Enum, a named tuple) would come back as something else.
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is str:
        return _check_text(value, name)
    if kind is float:
        return value if math.isfinite(value) else {_TAG: "float", "value": repr(value)}
    if kind is list:
        return [encode_value(v, f"{name}[{i}]") for i, v in enumerate(value)]
    if kind is tuple:
        return {_TAG: "tuple", "value": encode_value(list(value), name)}
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise TypeError(f"{name} has the key {key!r}; every key must be a str.")
            _check_text(key, f"A key of {name}")
        plain = {k: encode_value(v, f"{name}[{k!r}]") for k, v in value.items()}
        return {_TAG: "dict", "value": plain} if _TAG in plain else plain
    raise TypeError(
        f"{name} is a {kind.__module__}.{kind.__qualname__}, which the header cannot hold; "
        "convert it to None, bool, int, float, str, list, tuple, dict or a 1-D label array."
    )


def _decode_labels(value: list[Any], dtype: str) -> AnyArray:
    items = [decode_value(v) for v in value]
    if dtype == "O":
        if not all(type(v) is str for v in items):
            raise ValueError("An object array holds something other than text.")
        labels = np.empty(len(items), dtype=object)
        labels[:] = items
        return labels
    if np.dtype(dtype).kind not in "biufU":
        raise ValueError(f"A label array has the unknown dtype {dtype!r}.")
    return np.array(items, dtype=dtype)


def decode_value(value: Any) -> Any:
    """Return the value that `encode_value` was given.

    Parameters
    ----------
    value : object
        The result of `encode_value`, possibly after a way through JSON text.

    Returns
    -------
    object
        The value; the result shares nothing mutable with the argument.

    Raises
    ------
    ValueError
        If `value` is not something that `encode_value` returns.
    """
    if isinstance(value, list):
        return [decode_value(v) for v in value]
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return {k: decode_value(v) for k, v in value.items()}
    tag, content = value[_TAG], value.get("value")
    if tag == "float" and isinstance(content, str) and content in _NON_FINITE:
        return _NON_FINITE[content]
    if tag == "tuple" and isinstance(content, list):
        return tuple(decode_value(v) for v in content)
    if tag == "dict" and isinstance(content, dict):
        return {k: decode_value(v) for k, v in content.items()}
    if tag == "array" and isinstance(content, list) and isinstance(value.get("dtype"), str):
        return _decode_labels(content, value["dtype"])
    raise ValueError(f"The tag {tag!r} with the content {content!r} is unknown.")


def _checksum(header: str, tensors: dict[str, AnyArray]) -> str:
    names = sorted(tensors)
    layout = [[n, tensors[n].dtype.newbyteorder("<").str, tensors[n].shape] for n in names]
    digest = hashlib.sha256(json.dumps([header, layout]).encode())
    for n in names:
        little = np.asarray(tensors[n], dtype=tensors[n].dtype.newbyteorder("<"), order="C")
        digest.update(little.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _check_tensor(name: Any, value: Any) -> AnyArray:
    if type(name) is not str:
        raise TypeError(f"A tensor has the name {name!r}; every name must be a str.")
    if _check_text(name, "A tensor name") == "__metadata__":
        raise ValueError("The tensor name '__metadata__' is reserved; choose another.")
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"Tensor {name!r} is a {type(value).__qualname__}; pass a plain numpy array."
        )
    if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
        raise TypeError(
            f"Tensor {name!r} has dtype {value.dtype}; tensors hold booleans, integers and "
            "floats of at most 64 bits. Put text labels in the header, convert other dtypes."
        )
    # safetensors writes the memory as it lies, so the order must be C. (ascontiguousarray
    # would turn a 0-d array into a 1-d one.)
    return np.asarray(value, dtype=value.dtype.newbyteorder("="), order="C")


def contents_digest(contents: Contents) -> str:
    """Return a text that is the same where values and arrays are."""
    values, arrays = contents
    text = json.dumps(encode_value(values), sort_keys=True)
    return _checksum(text, {name: _check_tensor(name, a) for name, a in arrays.items()})


def prefixed(name: str, arrays: dict[str, AnyArray]) -> dict[str, AnyArray]:
    """Return arrays under names that begin with `name`."""
    return {f"{name}.{k}": a for k, a in arrays.items()}


def below(name: str, arrays: dict[str, AnyArray]) -> dict[str, AnyArray]:
    """Return the arrays that :func:`prefixed` put under `name`."""
    return {k[len(name) + 1 :]: a for k, a in arrays.items() if k.startswith(f"{name}.")}


def write_container(
    path: str | os.PathLike[str],
    header: dict[str, Any],
    tensors: dict[str, AnyArray],
    kind: str = "model",
) -> None:
    """Write a file, all of it or nothing (see :func:`kernelgrad._disk.replacing`).

    Parameters
    ----------
    path : str or path-like
        Where to write; an existing file is replaced, a symbolic link is followed.
    header : dict
        Values that `encode_value` accepts, under str keys.
    tensors : dict of str to ndarray
        Boolean, integer and float arrays of any shape. Native byte order and C order are
        what the reader gets back, values and dtype are kept.
    kind : str, default="model"
        What it is, which the reader must ask for.

    Raises
    ------
    TypeError
        If the header or a tensor holds something that the format cannot.
    FileNotFoundError
        If the folder of `path` does not exist.
    ValueError
        If there is a device, a pipe or a socket.
    OSError
        If the file cannot be written, as on a full disk.
    """
    check_target(path)
    if type(header) is not dict:
        raise TypeError(f"header must be a dict, got a {type(header).__qualname__}.")
    text = json.dumps(encode_value(header, "header"), allow_nan=False)
    arrays = {name: _check_tensor(name, value) for name, value in tensors.items()}
    metadata = {
        "format": FORMAT + kind,
        "version": str(VERSION),
        "header": text,
        "checksum": _checksum(text, arrays),
    }
    with replacing(path) as file:
        file.write(save(arrays, metadata))


def _check_outside(path: Path, kind: str) -> None:
    """Raise unless the file has the outer shape of a safetensors file."""
    found = special(path)
    if found is not None:
        raise ModelFileError(f"{str(path)!r} is {found}, no {kind} file; check the path.")
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            start = file.read(9)
            length = int.from_bytes(start[:8], "little")
            head = start[8:]
            if 0 < length <= size - 8:
                head += file.read(length - 1)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"There is no {kind} file {str(path)!r}; check the path or save a {kind} there."
        ) from None
    if size == 0:
        raise ModelFileError(f"{str(path)!r} is empty; save the {kind} again.")
    if size < 9 or head[:1] != b"{":
        seen = [what for mark, what in _FOREIGN_STARTS.items() if start.startswith(mark)]
        what = f"; it looks like {seen[0]}" if seen else ""
        raise ModelFileError(
            f"{str(path)!r} is not a kernelgrad {kind} file, or only its first bytes{what}. "
            "Pass a file that kernelgrad saved."
        )
    if length > size - 8:
        raise ModelFileError(
            f"{str(path)!r} is truncated: {size} bytes are there, its head alone takes "
            f"{length + 8}. Copy the file again or save the {kind} again."
        )
    # The padding is the one part that neither safetensors nor the checksum looks at.
    if not head.rstrip(b" ").endswith(b"}"):
        raise _damaged(path, kind, "its head does not end where it should")


def _damaged(path: Path, kind: str, why: object) -> ModelFileError:
    return ModelFileError(
        f"{str(path)!r} is truncated or altered ({why}); copy the file again or save the "
        f"{kind} again."
    )


def _check_metadata(path: Path, kind: str, metadata: dict[str, str]) -> None:
    found = metadata.get("format")
    if found != FORMAT + kind:
        raise ModelFileError(
            f"{str(path)!r} is a safetensors file of another kind (format {found!r}, not "
            f"{FORMAT + kind!r}); pass a {kind} that kernelgrad saved."
        )
    version = metadata.get("version", "")
    if version != str(VERSION):
        if version.isascii() and version.isdigit() and int(version) > VERSION:
            raise NewerFileError(
                f"{str(path)!r} has format version {version}, this kernelgrad reads version "
                f"{VERSION}; upgrade kernelgrad."
            )
        raise _damaged(path, kind, f"the format version is {version!r}")
    for key in ("header", "checksum"):
        if key not in metadata:
            raise _damaged(path, kind, f"its {key} is missing")


def read_container(path: str | os.PathLike[str], kind: str = "model") -> Contents:
    """Read and verify a file that `write_container` wrote.

    Parameters
    ----------
    path : str or path-like
        The file.
    kind : str, default="model"
        What it must be.

    Returns
    -------
    header : dict
        The header, equal to the one written.
    tensors : dict of str to ndarray
        Writable copies of the arrays.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelFileError
        If the file is foreign, truncated, altered, or from a newer version.
    """
    path = Path(path)
    _check_outside(path, kind)
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            _check_metadata(path, kind, metadata)
            tensors = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise _damaged(path, kind, error) from None
    if _checksum(metadata["header"], tensors) != metadata["checksum"]:
        raise _damaged(path, kind, "the checksum does not match the content")
    try:
        header = decode_value(json.loads(metadata["header"]))
    except (ValueError, TypeError) as error:
        raise _damaged(path, kind, error) from error
    if not isinstance(header, dict):
        raise _damaged(path, kind, "the header is not a dict")
    return header, tensors
