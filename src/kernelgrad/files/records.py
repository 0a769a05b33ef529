"""Entries of files, each of which is checked when it is read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad.exceptions import ModelFileError, NewerFileError
from kernelgrad.files.container import below, encode_value
from kernelgrad.types import AnyArray, Contents, Matrix
from kernelgrad.validation import check_compressed, check_name

_NO_DEFAULT = object()


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
    raises an error for any that remain. Arrays of a part begin with its name and a full stop.
    Sizes have names, such as "C" for the outputs: the first array with a name determines the
    size, and all others must agree. `subject` is the name of the object in messages.
    """

    def __init__(
        self, values: Any, arrays: dict[str, AnyArray] | None = None, subject: str = "file",
        sizes: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
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
        self, name: str, *shape: str | int, kinds: str = "f", least: float = -math.inf,
        most: float = math.inf, finite: bool = True, optional: bool = False,
    ) -> Any:  # fmt: skip
        """Take an array of a shape, of lengths or their names, with finite numbers."""
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
        """Raise unless an object made of `source` has the same values, dtypes and shapes."""
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
    """Take name and parameters of a registered part, such as a kernel; return it."""
    name, params = record.take("name", check_text), record.part("params")
    record.close()
    if name not in registry:
        raise ModelFileError(
            f"The model uses the {kind} {name!r}, which is not registered here; import the "
            "module that registers it, then load again."
        )
    cls = registry[name]
    part = getattr(cls, "restored", cls)(**{k: decode(v) for k, v in params.values.items()})
    part.check()
    return part
