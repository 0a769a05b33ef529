"""A versioned container for models: one safetensors file, checked on reading, without pickle.

The metadata of the file consist of four texts: ``format`` (``kernelgrad-`` and the kind of
contents), ``version``, ``header`` (JSON, see `encode_value`) and ``checksum``, the SHA-256 of
the header and of every tensor's name, dtype, shape and bytes. The checksum detects damage. A
fifth text, ``signature``, authenticates the writer: the HMAC-SHA256 of the same content and of
the format under a key that writer and reader share. Reading parses numbers and text only, and
:class:`~kernelgrad.files.records.Record` checks all contents.
"""

import hashlib
import hmac
import json
import math
import os
from contextlib import nullcontext
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np

from kernelgrad.exceptions import ModelFileError, NewerFileError
from kernelgrad.files.disk import replacing, special
from kernelgrad.files.tensors import parse_head, read_tensors, write_tensors
from kernelgrad.types import AnyArray, Contents

Place: TypeAlias = str | os.PathLike[str] | BufferedIOBase  # a path, or an open binary file

FORMAT = "kernelgrad-"
VERSION = 1
MOST_NESTED = 200  # values in values: far more than models have, far less than the stack holds
MOST_LABELS = 2**27  # bytes of a label array, whose dtype may be wider than its text
LEAST_KEY = 16  # bytes: 128 bits are out of reach of guessing
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
    if kind == "U" and value.nbytes > MOST_LABELS:
        raise ValueError(
            f"{name} takes {value.nbytes} bytes, more than the {MOST_LABELS} of labels in a "
            "file; convert it to dtype object."
        )
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
    """Return a JSON-compatible form of `value` from which `decode_value` restores it exactly.

    Values are None, bool, int, float (also infinite or NaN), str, lists, tuples, dicts with str
    keys, NumPy scalars (they become Python ones) and 1-D arrays of labels (integers, floats,
    booleans, text, or objects that are all str), nested at will. `name` is the name of the
    value in the TypeError for anything else.
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


def _decode_labels(value: list[Any], dtype: str, room: int) -> AnyArray:
    items = [decode_value(v, room) for v in value]
    if dtype == "O":
        if not all(type(v) is str for v in items):
            raise ValueError("An object array holds something other than text.")
        labels = np.empty(len(items), dtype=object)
        labels[:] = items
        return labels
    kind = np.dtype(dtype)
    # numpy 1 lets sizes of text overflow: the name it then gives is another
    strange = kind.kind not in "biufU" or kind.str != dtype
    if strange or kind.itemsize > (MOST_LABELS if kind.kind == "U" else 8):
        raise ValueError(f"A label array has the unknown dtype {dtype!r}.")
    if kind.itemsize * len(items) > MOST_LABELS:
        raise ValueError(f"A label array of {dtype!r} takes more than {MOST_LABELS} bytes.")
    labels = np.array(items, dtype=kind)
    if labels.ndim != 1:
        raise ValueError("A label array holds lists.")
    return labels


def decode_value(value: Any, room: int = MOST_NESTED) -> Any:
    """Return a copy of what `encode_value` was given, nested at most `room` deep."""
    if not isinstance(value, list | dict):
        return value
    room -= 1
    if room < 0:
        raise ValueError(f"Values are nested deeper than {MOST_NESTED}.")
    if isinstance(value, list):
        return [decode_value(v, room) for v in value]
    if _TAG not in value:
        return {k: decode_value(v, room) for k, v in value.items()}
    tag, content = value[_TAG], value.get("value")
    if tag == "float" and isinstance(content, str) and content in _NON_FINITE:
        return _NON_FINITE[content]
    if tag == "tuple" and isinstance(content, list):
        return tuple(decode_value(v, room) for v in content)
    if tag == "dict" and isinstance(content, dict):
        return {k: decode_value(v, room) for k, v in content.items()}
    if tag == "array" and isinstance(content, list) and isinstance(value.get("dtype"), str):
        return _decode_labels(content, value["dtype"], room)
    raise ValueError(f"The tag {tag!r} with the content {content!r} is unknown.")


def _checksum(header: str, tensors: dict[str, AnyArray], key: bytes | None = None) -> str:
    """Return the SHA-256 of the content, or its HMAC under a key."""
    names = sorted(tensors)
    layout = [[n, tensors[n].dtype.newbyteorder("<").str, tensors[n].shape] for n in names]
    digest: Any = hashlib.sha256() if key is None else hmac.new(key, digestmod="sha256")
    digest.update(json.dumps([header, layout]).encode())
    for n in names:
        little = np.asarray(tensors[n], dtype=tensors[n].dtype.newbyteorder("<"), order="C")
        digest.update(little.reshape(-1).view(np.uint8).data)
    return str(digest.hexdigest())


def _signature(kind: str, header: str, tensors: dict[str, AnyArray], key: bytes) -> str:
    return _checksum(f"{FORMAT}{kind} {VERSION}\n{header}", tensors, key)


def check_key(key: Any) -> bytes | None:
    """Return a key that files may be signed with, or None; raise for anything else."""
    if key is None or (isinstance(key, bytes) and len(key) >= LEAST_KEY):
        return key
    what = f"{len(key)} bytes" if isinstance(key, bytes) else f"a {type(key).__qualname__}"
    raise (ValueError if isinstance(key, bytes) else TypeError)(
        f"key must be at least {LEAST_KEY} bytes, such as those of secrets.token_bytes(32), or "
        f"None; got {what}."
    )


def _check_tensor(name: str, value: Any) -> AnyArray:
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
    """Return a digest of values and arrays."""
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
    path: Place, header: dict[str, Any], tensors: dict[str, AnyArray], kind: str = "model", *,
    key: bytes | None = None,
) -> None:  # fmt: skip
    """Write a file, all of it or nothing (see :func:`kernelgrad.files.disk.replacing`).

    The header holds values that `encode_value` accepts, `tensors` boolean, integer and float
    arrays of any shape, which the reader gets in native byte order and C order. The reader must
    request the same `kind`. A `key` is a secret of at least 16 bytes that signs the file.
    """
    secret = check_key(key)
    text = _checked_text(header)
    arrays = {name: _check_tensor(name, value) for name, value in tensors.items()}
    metadata = {
        "format": FORMAT + kind,
        "version": str(VERSION),
        "header": text,
        "checksum": _checksum(text, arrays),
    }
    if secret is not None:
        metadata["signature"] = _signature(kind, text, arrays, secret)
    opened: Any = nullcontext if isinstance(path, BufferedIOBase) else replacing
    with opened(path) as file:
        write_tensors(file, arrays, metadata)


def _checked_text(header: dict[str, Any]) -> str:
    """Return the header as JSON that readers take."""
    try:
        text = json.dumps(encode_value(header, "header"), allow_nan=False)
        decode_value(json.loads(text))
    except RecursionError:
        raise ValueError(
            f"header holds values nested deeper than the {MOST_NESTED} of a file; make it "
            "flatter."
        ) from None
    return text


def _read_head(file: BufferedIOBase, path: Path, kind: str) -> tuple[bytes, int]:
    """Return the head of a safetensors file, and how many bytes follow it."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(9)
    length = int.from_bytes(start[:8], "little")
    head = start[8:]
    if 0 < length <= size - 8:
        head += file.read(length - 1)
    if size == 0:
        raise ModelFileError(f"{str(path)!r} is empty; save the {kind} again.")
    if size < 9 or head[:1] != b"{":
        seen = [what for mark, what in _FOREIGN_STARTS.items() if start.startswith(mark)]
        if not seen and "".join(start.decode("ascii", "replace").split()).isprintable():
            seen = ["text, such as a CSV file"]
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
    # the padding is the one part that the checksum does not look at
    if not head.rstrip(b" ").endswith(b"}"):
        raise _damaged(path, kind, "its head does not end where it should")
    return head, size - 8 - length


def _damaged(path: Path, kind: str, why: object) -> ModelFileError:
    return ModelFileError(
        f"{str(path)!r} is truncated or altered ({why}); copy the file again or save the "
        f"{kind} again."
    )


def _check_metadata(path: Path, kind: str, metadata: dict[str, str]) -> None:
    form = metadata.get("format")
    if form != FORMAT + kind:
        raise ModelFileError(
            f"{str(path)!r} is a safetensors file of another kind (format {form!r}, not "
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


def read_container(path: Place, kind: str = "model", *, key: bytes | None = None) -> Contents:
    """Read and verify a file that `write_container` wrote; return the header and the arrays.

    With a `key` the file must be signed under it; None accepts all files. ModelFileError is
    raised for a file that is foreign, truncated, altered or from a newer version.
    """
    stream = BytesIO(path.read()) if isinstance(path, BufferedIOBase) else None
    path = Path("stream") if isinstance(path, BufferedIOBase) else Path(path)
    secret, other = check_key(key), special(path) if stream is None else None
    if other is not None:
        raise ModelFileError(f"{str(path)!r} is {other}, no {kind} file; check the path.")
    try:
        with open(path, "rb") if stream is None else stream as file:
            layout = parse_head(*_read_head(file, path, kind))
            metadata = layout.metadata
            _check_metadata(path, kind, metadata)
            tensors = read_tensors(file, layout)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"There is no {kind} file {str(path)!r}; check the path or save a {kind} there."
        ) from None
    except OSError as error:
        error.filename = str(path)
        raise
    except ModelFileError:
        raise
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise _damaged(path, kind, error) from None
    if _checksum(metadata["header"], tensors) != metadata["checksum"]:
        raise _damaged(path, kind, "the checksum does not match the content")
    if secret is not None:
        _check_signature(path, kind, metadata, tensors, secret)
    try:
        header = decode_value(json.loads(metadata["header"], parse_constant=_refuse))
    except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
        raise _damaged(path, kind, error) from error
    if not isinstance(header, dict):
        raise _damaged(path, kind, "the header is not a dict")
    return header, tensors


def _check_signature(
    path: Path, kind: str, metadata: dict[str, str], tensors: dict[str, AnyArray], key: bytes
) -> None:
    signature = metadata.get("signature")
    if signature is None:
        raise ModelFileError(
            f"{str(path)!r} is not signed; save the {kind} with key=, or load it without if "
            "you trust where it comes from."
        )
    wanted = _signature(kind, metadata["header"], tensors, key)
    if not hmac.compare_digest(signature.encode(errors="replace"), wanted.encode()):
        raise ModelFileError(
            f"{str(path)!r} was signed with another key, or altered; do not use it unless you "
            "know why."
        )


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"The header holds {name}.")
