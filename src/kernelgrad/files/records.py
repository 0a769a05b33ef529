"""A versioned container for models: one safetensors file, checked on reading, without pickle.

The metadata of the file consist of four texts: ``format`` (``kernelgrad-`` and the kind of
contents), ``version``, ``header`` (JSON, see `encode_value`) and ``checksum``, the SHA-256 of
the header and of every tensor's name, dtype, shape and bytes. The checksum detects damage. A
fifth text, ``signature``, authenticates the writer: the HMAC-SHA256 of the same content and of
the format under a key that writer and reader share. Reading parses numbers and text only, and
all contents are read through a :class:`Record`, which checks them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from kernelgrad.exceptions import ModelFileError, NewerFileError
from kernelgrad.files.disk import check_target, replacing, special
from kernelgrad.files.tensors import parse_head, read_tensors, write_tensors
from kernelgrad.types import AnyArray, Contents, Matrix
from kernelgrad.validation import check_compressed, check_name

FORMAT = "kernelgrad-"
VERSION = 1

MOST_NESTED = 200  # values in values: far more than models have, far less than the stack holds
MOST_LABELS = 2**27  # bytes of a label array, whose dtype may be wider than its text
LEAST_KEY = 16  # bytes: 128 bits are out of reach of guessing
_NO_DEFAULT = object()

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
    """Return the value that `encode_value` was given; it shares nothing with the argument.

    `room` is the largest depth of nested values.
    """
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
    path: str | os.PathLike[str],
    header: dict[str, Any],
    tensors: dict[str, AnyArray],
    kind: str = "model",
    *,
    key: bytes | None = None,
) -> None:
    """Write a file, all of it or nothing (see :func:`kernelgrad.files.disk.replacing`).

    The header holds values that `encode_value` accepts, `tensors` boolean, integer and float
    arrays of any shape, which the reader gets in native byte order and C order. The reader must
    request the same `kind`. A `key` is a secret of at least 16 bytes that signs the file.
    """
    check_target(path)
    if type(header) is not dict:
        raise TypeError(f"header must be a dict, got a {type(header).__qualname__}.")
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
    with replacing(path) as file:
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


def _read_head(file: BufferedReader, path: Path, kind: str) -> tuple[bytes, int]:
    """Return the head of a safetensors file, and how many bytes follow it."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(9)
    length = int.from_bytes(start[:8], "little")
    head = start[8:]
    if 0 < length <= size - 8:
        head += file.read(length - 1)
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


def read_container(
    path: str | os.PathLike[str], kind: str = "model", *, key: bytes | None = None
) -> Contents:
    """Read and verify a file that `write_container` wrote; return the header and the arrays.

    With a `key` the file must be signed under it; None accepts all files. ModelFileError is
    raised for a file that is foreign, truncated, altered or from a newer version.
    """
    path, secret = Path(path), check_key(key)
    other = special(path)
    if other is not None:
        raise ModelFileError(f"{str(path)!r} is {other}, no {kind} file; check the path.")
    try:
        with open(path, "rb") as file:
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


Check = Callable[[Any, str], object]
"""Raises ValueError or TypeError, naming a value, where it is not as it must be."""


def check_text(value: Any, name: str) -> None:
    """Raise TypeError unless a value is text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, got {value!r}.")


def check_number(value: Any, name: str) -> None:
    """Raise TypeError unless a value is a number, which may be infinite or NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    float(value)  # integers may be too large


def or_none(check: Check) -> Check:
    """Return a check that also accepts None."""
    return lambda value, name: None if value is None else check(value, name)


def one_of(names: Iterable[str]) -> Check:
    """Return a check of names."""
    return lambda value, name: check_name(value, names, name)


def check_numbers(value: Any, name: str) -> None:
    """Raise unless a value is an array of finite numbers."""
    _check_array(value, name, "biuf")
    if not np.isfinite(value).all():
        raise ValueError(f"{name} holds a number that is not finite.")


def check_texts(value: Any, name: str) -> None:
    _check_array(value, name, "OU")


def check_labels(value: Any, name: str) -> None:
    """Raise unless a value is an array of at least two labels that increase."""
    _check_array(value, name, "biufOU")
    if not (len(value) > 1 and bool((value[1:] > value[:-1]).all())):
        raise ValueError(f"{name} must hold at least two labels that increase, got {value!r}.")


def _check_array(value: Any, name: str, kinds: str) -> None:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
        raise TypeError(f"{name} must be an array, got {value!r}.")


def anything(value: Any, name: str) -> None:
    """Accept any value, which the code that creates the object checks."""


def _outline(contents: Contents) -> dict[str, str]:
    """Return the text of each value, also of those in values, and the form of each array."""
    outline = {name: f"{a.shape} {a.dtype}" for name, a in contents[1].items()}
    values = list(contents[0].items())
    for name, value in values:  # the list grows
        if isinstance(value, dict):
            values += [(f"{name}.{k}", v) for k, v in value.items()]
        else:
            outline[name] = json.dumps(encode_value(value))
    return outline


@contextmanager
def restoring(
    path: object, kind: str = "model", remedy: str = "save it again with the installed version"
) -> Iterator[None]:
    """Convert all errors caused by the contents of a file to ModelFileError naming it."""
    try:
        yield
    except NewerFileError:
        raise
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    except MemoryError:
        raise ModelFileError(
            f"{path} describes a {kind} that does not fit in memory; load it where there is "
            "more, if you trust the file."
        ) from None
    # what constructors raise for values that a file cannot have
    except (
        ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError,
        ValueError,
    ) as error:  # fmt: skip
        raise ModelFileError(
            f"{path} does not describe a {kind} of this version ({error!r}); {remedy}."
        ) from error


class Record:
    """The description of one object in a file; entries are checked when they are read.

    The code that creates the object reads all entries that the file may hold; :meth:`close`
    raises an error for any that remain. Sizes have names, such as "C" for the outputs: the
    first array with a name determines the size, and all others must agree.

    Parameters
    ----------
    values : dict
        Plain values by name.
    arrays : dict of ndarray
        Arrays by name; those of a part begin with its name and a full stop.
    subject : str
        Name of the object in messages.
    sizes : dict of int, optional
        Sizes by name, which arrays must have.
    """

    def __init__(
        self,
        values: Any,
        arrays: dict[str, AnyArray] | None = None,
        subject: str = "file",
        sizes: dict[str, int] | None = None,
    ) -> None:
        if not isinstance(values, dict):
            raise ModelFileError(f"The {subject} holds {values!r} where values have names.")
        self.values, self.arrays, self.subject = dict(values), dict(arrays or {}), subject
        self.sizes = {} if sizes is None else sizes

    def __contains__(self, name: str) -> bool:
        return name in self.values or name in self.arrays

    def part(self, name: str, **sizes: int) -> Record:
        """Take the values and the arrays under a name, which may have sizes of its own."""
        arrays = below(name, self.arrays)
        for key in arrays:
            del self.arrays[f"{name}.{key}"]
        values = self.values.pop(name, {})
        return Record(values, arrays, f"{self.subject}, {name}", sizes or self.sizes)

    def beside(self, name: str) -> Record:
        """Take the values under a name; their arrays are among those here."""
        part = Record(self.values.pop(name, {}), {}, f"{self.subject}, {name}", self.sizes)
        part.arrays = self.arrays
        return part

    def take(self, name: str, check: Check, default: Any = _NO_DEFAULT) -> Any:
        """Take a value; without a default it must be there."""
        if name not in self.values:
            if default is _NO_DEFAULT:
                raise self.error(f"lacks {name!r}")
            return default
        value = self.values.pop(name)
        try:
            check(value, name)
        except (ValueError, TypeError) as error:
            raise self.error(f"holds what it may not: {error}") from None
        return value

    def array(
        self,
        name: str,
        *shape: str | int,
        kinds: str = "f",
        least: float = -math.inf,
        most: float = math.inf,
        finite: bool = True,
        optional: bool = False,
    ) -> Any:
        """Take an array of a shape, of lengths or their names.

        Numbers are of the `kinds` of numpy, between `least` and `most`, and finite.
        """
        if name not in self.arrays:
            if optional:
                return None
            raise self.error(f"lacks the array {name!r}")
        a = self.arrays.pop(name)
        sizes = self._fitted(a.shape, shape)
        half = kinds == "f" and a.dtype.itemsize < 4  # which compiled loops do not take
        if sizes is None or half or a.dtype.kind not in kinds:
            wanted = ", ".join(str(self.sizes.get(str(s), s)) for s in shape)
            raise self.error(
                f"holds the array {name!r} of shape {a.shape} and dtype {a.dtype}, not of "
                f"shape ({wanted}) and one of the kinds {kinds!r}"
            )
        self.sizes.update(sizes)
        if finite and a.dtype.kind == "f" and not np.isfinite(a).all():
            raise self.error(f"holds NaN or infinity in the array {name!r}")
        for bound, out, word in ((least, np.less, "less"), (most, np.greater, "more")):
            if math.isfinite(bound) and out(a, bound).any():
                strange = a[out(a, bound)][0]
                raise self.error(f"holds {strange} in the array {name!r}, {word} than {bound}")
        return a

    def _fitted(self, lengths: tuple[int, ...], shape: tuple[str | int, ...]) -> Any:
        """Return the sizes with those of an array; None if it does not have the shape."""
        if len(lengths) != len(shape):
            return None
        sizes = dict(self.sizes)
        for n, wanted in zip(lengths, shape, strict=True):
            if n != (wanted if isinstance(wanted, int) else sizes.setdefault(wanted, n)):
                return None
        return sizes

    def csr(self, name: str, n: str | int, d: int) -> Matrix:
        """Take a CSR matrix (n, d) whose arrays have names that begin with `name`."""
        data = self.array(f"{name}data", f"entries of {name}")
        indices = self.array(f"{name}indices", f"entries of {name}", kinds="i")
        indptr = self.array(f"{name}indptr", f"ends of {name}", kinds="i")
        rows = len(indptr) - 1
        sizes = self._fitted((rows,), (n,))
        if sizes is None:
            raise self.error(f"holds {rows} rows in '{name}indptr', not {n}")
        self.sizes.update(sizes)
        try:
            X = sp.csr_matrix((data, indices, indptr), shape=(rows, d))
            check_compressed(X)
        except ValueError as error:
            raise self.error(f"holds no CSR matrix in '{name}indptr': {error}") from None
        return X

    def contents(self) -> Contents:
        """Return the remaining entries."""
        return dict(self.values), dict(self.arrays)

    def check_same(self, source: Contents, described: Contents) -> None:
        """Raise unless the object created from `source` has the same description.

        For arrays only dtype and shape are compared, as their contents were used unchanged.
        """
        before, after = _outline(source), _outline(described)
        for name in {**before, **after}:
            if before.get(name) != after.get(name):
                raise self.error(f"holds {name!r} in a way that this version does not write it")

    def error(self, what: str) -> ModelFileError:
        """Return an error that names the object."""
        return ModelFileError(f"The {self.subject} {what}")

    def close(self) -> None:
        """Raise if entries remain that have not been read."""
        left = sorted({*self.values, *self.arrays})
        if left:
            raise self.error(f"holds {left[0]!r}, which it does not have in this version")


def registered_part(
    record: Record, kind: str, registry: Mapping[str, Any], decode: Callable[[Any], Any]
) -> Any:
    """Take the name and the parameters of a part, such as a kernel, and return the part.

    Raises
    ------
    ModelFileError
        The name is not registered here.
    """
    name, params = record.take("name", check_text), record.part("params")
    record.close()
    if name not in registry:
        raise ModelFileError(
            f"The model uses the {kind} {name!r}, which is not registered here; import the "
            "module that registers it, then load again."
        )
    part = registry[name](**{k: decode(v) for k, v in params.values.items()})
    part.check()
    return part
