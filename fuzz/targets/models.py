"""Model files: damaged, and edited by someone who makes the checksum anew."""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from safetensors.numpy import load as parse
from safetensors.numpy import save as serialise

from fuzz.mutate import mutate_bytes, mutate_text
from fuzz.target import Finding, Target
from kernelgrad import ModelFileError, load
from kernelgrad.exceptions import KernelGradError
from kernelgrad.files.container import _checksum

OLD = Path(__file__).parents[2] / "tests" / "data" / "v0.1.0"
KEY = b"known to nobody but to this file"
_METHODS = ("predict", "decision_function", "predict_proba", "transform", "score_samples")
_SHOWN = 4  # rows that predictions are made of
_OWN = ("kernelgrad", "sklearn/utils/validation")

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**53, 2**63, 2**64, -(2**63),
    10**30, 0.0, -0.0, 0.5, -1.5, 1e-320, 1e-300, 1e39, 1e300, "", "a", "auto", "median", "rbf",
    "os.system", "__class__", "\0", "NaN", [], [[]], {}, [1, 2], [None], ["a", "b"],
    {"value": 1}, {"$": "x"},
    {"$": "float", "value": "nan"}, {"$": "float", "value": "inf"}, {"$": "tuple", "value": []},
    {"$": "array", "dtype": "<f8", "value": [1.0, 2.0]},
    {"$": "array", "dtype": "<U3", "value": ["a", "b", "c"]},
    {"$": "array", "dtype": "<U1000000000", "value": ["a"]},
)  # fmt: skip
_KEYS = (
    "predict", "__class__", "__dict__", "expansion_", "_state", "classes_", "kernel", "params",
    "value", "items", "part", "name", "kind", "state", "stream", "object", "table", "$",
)  # fmt: skip
_CELLS = (
    0, 1, -1, 2, 127, 2**31 - 1, -(2**31), 2**53, 1e39, -1e39, 1e300, 1e-310, np.nan, np.inf
)  # fmt: skip
_DTYPES = ("?", "i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8")


class Models(Target):
    """Files that were damaged, or edited without the key that they are signed with."""

    name = "models"
    clear = (ModelFileError,)

    def seeds(self) -> Mapping[str, bytes]:
        """Return the files of version 0.1.0 whose fits go on."""
        paths = sorted(set(OLD.glob("*.kgm")) - {OLD / "short_linear_simba.kgm"})
        return {path.name: path.read_bytes() for path in paths}

    @cached_property
    def _rows(self) -> dict[str, Any]:
        with np.load(OLD / "predictions.npz") as arrays:
            return dict(arrays)

    def use(self, path: Path) -> bytes:
        """Load a model, predict, and go on with the fit where the file can."""
        digest = hashlib.sha256()
        model: Any = load(path, key=KEY if "keyed" in path.name else None)
        try:
            digest.update(repr(model).encode())
            model.model_info()
            self._predict(model, path.name, digest)
            if path.name.startswith(("resumable", "short")):
                self._go_on(model, path.name)
                self._predict(model, path.name, digest)
        except (ValueError, FloatingPointError) as error:
            place = traceback.extract_tb(error.__traceback__)[-1].filename
            if isinstance(error, KernelGradError) or any(own in place for own in _OWN):
                raise ModelFileError(f"{path}: {error}") from error
            raise
        return digest.digest()

    def _predict(self, model: Any, name: str, digest: Any) -> None:
        X = self._rows["short_X" if name.startswith("short") else "Z"][:_SHOWN]
        if name.startswith("table"):
            X = [[*row, level] for row, level in zip(X.tolist(), "abzd", strict=True)]
        for method in _METHODS:
            if hasattr(model, method):
                add_to(digest, getattr(model, method)(X))
        if hasattr(model, "noise_variance_"):
            add_to(digest, model.predict(X[:2], return_std=True)[1])

    def _go_on(self, model: Any, name: str) -> None:
        rows = self._rows
        if name.startswith("resumable"):
            X, y = rows["X"], rows["y"]
        else:
            X, y = rows["short_X"], rows["short_semi" if "semi" in name else "short_y"]
        model.set_params(max_iter=2)
        if model.warm_start or not hasattr(model, "partial_fit"):
            model.set_params(warm_start=True).fit(X, y)
        else:
            model.partial_fit(X, y)

    def mutate(self, name: str, data: bytes, rng: np.random.Generator) -> tuple[bytes, bool]:
        """Change bytes, or names, shapes and texts at the head, whose length stays right."""
        if name.startswith("keyed") and rng.random() < 0.5:
            return edited(data, rng, self.inputs, keyed=True), False
        length = int.from_bytes(data[:8], "little")
        if rng.random() < 0.5 or not 0 < length <= len(data) - 8:
            return mutate_bytes(data, rng, list(self.inputs.values())), False
        head = mutate_text(data[8 : 8 + length], rng)
        return len(head).to_bytes(8, "little") + head + data[8 + length :], False


class Signed(Models):
    """Files edited in any way, with the checksum that belongs to them."""

    name = "signed"

    def seeds(self) -> Mapping[str, bytes]:
        """Return the seeds of the other target."""
        return {k: v for k, v in Models().inputs.items() if not k.startswith("refused")}

    def mutate(self, name: str, data: bytes, rng: np.random.Generator) -> tuple[bytes, bool]:
        """Change values and arrays."""
        return edited(data, rng, self.inputs), True


def edited(
    data: bytes, rng: np.random.Generator, others: Mapping[str, bytes], *, keyed: bool = False
) -> bytes:
    """Return a file after one to three edits, with its checksum, and its signature if asked."""
    try:
        tensors, metadata = parts_of(data)
    except Exception:  # a corpus file that is no model any more
        return mutate_bytes(data, rng)
    text = metadata["header"]
    for _ in range(int(rng.integers(1, 4))):
        if rng.random() < 0.5 and tensors:
            tensors = _edit_tensors(tensors, rng, others)
        else:
            text = _edit_header(text, rng)
    if not keyed:
        metadata.pop("signature", None)
    return signed(tensors, metadata, text)


def signed(tensors: dict[str, Any], metadata: dict[str, str], header: str) -> bytes:
    """Return a file with the checksum that belongs to it."""
    metadata = {**metadata, "header": header, "checksum": _checksum(header, tensors)}
    return bytes(serialise(tensors, metadata))


def parts_of(data: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arrays and the metadata of a file."""
    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + length])["__metadata__"]
    return {name: np.array(a) for name, a in parse(data).items()}, metadata


def _edit_header(text: str, rng: np.random.Generator) -> str:
    if rng.random() < 0.1:
        return mutate_text(text.encode(), rng).decode(errors="replace")
    if rng.random() < 0.02:
        at = text.find(":") + 1
        return text[:at] + "[" * 50_000 + "]" * 50_000 + "," + text[at:]
    try:
        header = json.loads(text)
        places = list(_places(header))
    except (RecursionError, TypeError, ValueError):  # by an edit before
        return text
    if not places:
        return text
    parent, key = places[int(rng.integers(len(places)))]
    how = int(rng.integers(6))
    if how <= 1:
        parent[key] = _VALUES[int(rng.integers(len(_VALUES)))]
    elif how == 2:
        parent[key] = _nudged(parent[key], rng)
    elif how == 3:
        del parent[key]
    elif how == 4:
        other, place = places[int(rng.integers(len(places)))]
        parent[key] = json.loads(json.dumps(other[place])) if place in other else None
    elif isinstance(parent, dict):
        value = parent[key] if rng.random() < 0.5 else parent.pop(key)
        parent[_KEYS[int(rng.integers(len(_KEYS)))]] = value
    else:
        parent.insert(0, parent[key])
    return json.dumps(header)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (parent, key) of every value below."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _nudged(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return value + int(rng.integers(-2, 3))
    if isinstance(value, float):
        return value * float(10 ** rng.uniform(-20, 20)) * (1 if rng.random() < 0.8 else -1)
    if isinstance(value, str):
        return mutate_text(value.encode(), rng).decode(errors="replace")
    if isinstance(value, list):
        return value[: int(rng.integers(len(value) + 1))] + value[: int(rng.integers(3))]
    return dict(list(value.items())[: int(rng.integers(len(value) + 1))])


def _edit_tensors(
    tensors: dict[str, Any], rng: np.random.Generator, others: Mapping[str, bytes]
) -> dict[str, Any]:
    name = sorted(tensors)[int(rng.integers(len(tensors)))]
    a, tensors = tensors[name], dict(tensors)
    how = int(rng.integers(10))
    if how <= 4:
        tensors[name] = _with_cells(a, rng)
    elif how == 5:
        dtype = _DTYPES[int(rng.integers(len(_DTYPES)))]
        tensors[name] = _quietly(lambda: a.astype(dtype))
    elif how == 6:
        tensors[name] = _reshaped(a, rng)
    elif how == 7:
        del tensors[name]
    elif how == 8:
        known = [*tensors, *_KEYS, "rows", "rows.data", "rows.0", "extra.theta", "state.coef"]
        tensors[known[int(rng.integers(len(known)))]] = a
    else:
        found = list(others.values())[int(rng.integers(len(others)))]
        try:
            more = parts_of(found)[0]
        except Exception:  # no model
            more = {}
        if more:
            key = sorted(more)[int(rng.integers(len(more)))]
            tensors[key if rng.random() < 0.5 else name] = more[key]
    return tensors


def _with_cells(a: Any, rng: np.random.Generator) -> Any:
    if not a.size:
        return a
    flat = a.reshape(-1).copy()
    at = rng.integers(len(flat), size=1 if rng.random() < 0.7 else len(flat))
    if rng.random() < 0.3:
        raw = flat[at].tobytes()
        flat[at] = np.frombuffer(mutate_bytes(raw, rng).ljust(len(raw))[: len(raw)], a.dtype)
    else:
        value = _CELLS[int(rng.integers(len(_CELLS)))]
        flat[at] = _quietly(lambda: np.array(value).astype(a.dtype))
    return flat.reshape(a.shape)


def _reshaped(a: Any, rng: np.random.Generator) -> Any:
    how = int(rng.integers(6))
    if how == 0:
        return a.reshape(-1)
    if how == 1:
        return a.reshape(1, *a.shape)
    if how == 2:
        return np.zeros((), a.dtype)
    if how == 3:
        return a.T.copy()
    n = int(rng.integers(len(a) + 1)) if a.ndim else 0
    return np.atleast_1d(a)[:n] if how == 4 else np.concatenate([np.atleast_1d(a)] * 2)


def _quietly(make: Callable[[], Any]) -> Any:
    with np.errstate(all="ignore"):
        return make()


def add_to(digest: Any, found: Any) -> None:
    """Take an array into a digest; raise if it is not finite."""
    found = found.toarray() if sp.issparse(found) else np.asarray(found)
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise Finding("a prediction that is not finite")
    content = repr(found.tolist()).encode() if found.dtype == object else found.tobytes()
    digest.update(f"{found.dtype} {found.shape}".encode() + content)
