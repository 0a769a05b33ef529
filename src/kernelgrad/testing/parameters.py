"""What all contracts share, and the contract of parameters."""

from __future__ import annotations

import dataclasses
import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sklearn.base import clone

from kernelgrad.params import outside_values

T = TypeVar("T")


def require(condition: object, subject: object, message: str) -> None:
    """Raise AssertionError naming `subject` unless `condition` holds."""
    if not condition:
        raise AssertionError(f"{subject!r}: {message}")


@contextmanager
def without_warnings(subject: object) -> Iterator[None]:
    """Raise AssertionError naming `subject` for a warning inside."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            yield
        except Warning as warning:
            raise AssertionError(f"{subject!r}: warns: {warning}") from warning


def pickled(part: T, subject: object) -> T:
    """Return `part` after a round trip through pickle."""
    try:
        twin: T = pickle.loads(pickle.dumps(part))
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise AssertionError(f"{subject!r}: pickle fails: {error}") from error
    return twin


def check_parameters(part: Any, validate: Callable[[Any], object] | None = None) -> None:
    """Check the parameters of a loss, kernel, solver or estimator.

    ``clone`` and ``get_params`` must reproduce `part`. Each declared domain
    (`kernelgrad.params`) is violated in turn: `validate`, by default ``part.check()``, must
    then raise ValueError or TypeError and name the parameter and its value.
    """
    try:
        twin = clone(part)
    except RuntimeError as error:
        raise AssertionError(f"{part!r}: clone fails: {error}") from error
    require(
        type(twin) is type(part) and repr(twin.get_params()) == repr(part.get_params()),
        part,
        f"clone gives {twin!r}; __init__ must store each argument under its own name.",
    )
    names = part.get_params(deep=False)
    for name, value in outside_values(part) if dataclasses.is_dataclass(part) else ():
        if name not in names:  # the part hides a parameter of its base class
            continue
        wrong: Any = clone(part).set_params(**{name: value})
        try:
            wrong.check() if validate is None else validate(wrong)
        except (ValueError, TypeError) as error:
            clear = name in str(error) and repr(value) in str(error)
            require(clear, part, f"the refusal of {name}={value!r} says only: {error}")
        else:
            raise AssertionError(f"{part!r}: {name}={value!r} is accepted.")
