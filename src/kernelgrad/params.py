"""Declarations of parameters: name, default and domain.

A class is decorated with :func:`parameters`; its fields are the keyword arguments of the
constructor, in scikit-learn's sense (``get_params``, ``set_params``, ``clone``). A field made
by :func:`integer`, :func:`real`, :func:`boolean` or :func:`choice` also carries its domain,
which :func:`check_params` enforces before any work is done::

    @parameters
    class Pegasos(Solver):
        step_size: float | str = real(default="auto", low=0, low_open=True, words=("auto",))
        average: bool = boolean(default=True)

A field with ``kw_only=False`` may also be given by position.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from difflib import get_close_matches
from functools import partial, wraps
from typing import Any, TypeVar, dataclass_transform

from sklearn.base import BaseEstimator

from kernelgrad.docstrings import DECLARED, entries, whole
from kernelgrad.validation import bytes_of, check_bool, check_int, check_name, check_real

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Check = Callable[[Any, str], object]

_CHECK, _OUTSIDE = "check", "outside"  # keys of a field's metadata
_STRANGE = "no such word"


def _field(
    default: Any, check: Check, words: Iterable[Any], kw_only: bool, outside: tuple[Any, ...]
) -> Any:
    """Return a field whose values are one of `words` or pass `check`, as none of `outside`."""
    allowed = tuple(words)

    def full(value: Any, name: str) -> None:
        for word in allowed:
            if value is word or (type(value) is type(word) and value == word):
                return
        try:
            check(value, name)
        except TypeError as error:
            more = f" Also allowed: {', '.join(map(repr, allowed))}." if allowed else ""
            raise TypeError(f"{error}{more}") from None

    metadata = {_CHECK: full, _OUTSIDE: tuple(v for v in outside if v not in allowed)}
    return dataclasses.field(default=default, metadata=metadata, kw_only=kw_only)


def integer(
    *, default: Any, low: int = 0, words: Iterable[Any] = (), kw_only: bool = True
) -> Any:
    """Return a field for integers of at least `low`, or one of `words` ("auto", None, ...)."""
    outside = (low - 1, low + 0.5, _STRANGE)
    return _field(default, partial(check_int, low=low), words, kw_only, outside)


def _outside(
    low: float = -math.inf, high: float = math.inf, low_open: bool = False,
    high_open: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    ends = (low if low_open else low - 1.0, high if high_open else high + 1.0)
    return (math.nan, *(v for v in ends if math.isfinite(v)), _STRANGE)


def real(
    *, default: Any, words: Iterable[Any] = (), kw_only: bool = True, **interval: Any
) -> Any:
    """Return a field for finite numbers in an interval of `check_real`, or one of `words`."""
    check = partial(check_real, **interval)
    return _field(default, check, words, kw_only, _outside(**interval))


def number_or_rule(
    rules: Iterable[str], *, default: Any, kw_only: bool = True, **interval: Any
) -> Any:
    """Return a field for finite numbers in an interval, or names of rules that find one."""
    names = tuple(rules)

    def check(value: Any, name: str) -> None:
        if isinstance(value, str):
            check_name(value, names, f"rule for {name}", instead=", or give a number")
        else:
            check_real(value, name, **interval)

    return _field(default, check, (), kw_only, _outside(**interval))


def boolean(*, default: Any, words: Iterable[Any] = (), kind: type | None = None) -> Any:
    """Return a field for booleans, one of `words`, or objects of a class `kind`."""

    def check(value: Any, name: str) -> None:
        if kind is None or not isinstance(value, kind):
            check_bool(value, name)

    return _field(default, check, words, True, (_STRANGE, 2))


def choice(
    names: Iterable[str], *, default: Any, words: Iterable[Any] = (),
    what: str | None = None, kw_only: bool = True,
) -> Any:  # fmt: skip
    """Return a field for strings in `names`, or one of `words`; messages call it `what`."""
    known_names = tuple(names)

    def check(value: Any, name: str) -> None:
        check_name(value, known_names, what or name)

    return _field(default, check, words, kw_only, (_STRANGE,))


def size(*, default: Any) -> Any:
    """Return a field for numbers of bytes, texts such as "2 GB", or None."""
    return _field(default, bytes_of, (None,), True, (math.nan, -1.0, 100, _STRANGE))


def anything(*, default: Any, kw_only: bool = True) -> Any:
    """Return a field that the class itself checks."""
    return dataclasses.field(default=default, kw_only=kw_only)


@dataclass_transform(
    kw_only_default=True,
    eq_default=False,
    field_specifiers=(
        integer, real, number_or_rule, boolean, choice, size, anything, dataclasses.field,
    ),
)  # fmt: skip
def parameters(cls: type[T]) -> type[T]:
    """Class decorator: make the annotated fields keyword arguments of the constructor.

    If several bases have the same field, the first in the method resolution order counts, as
    for attributes; plain dataclasses would use the last base.
    """
    first: dict[str, dataclasses.Field[Any]] = {}
    last: dict[str, dataclasses.Field[Any]] = {}
    for base in cls.__mro__[:0:-1]:
        fields = getattr(base, "__dataclass_fields__", {})
        own = vars(base).get("__annotations__", {})
        last |= fields
        first |= {name: each for name, each in fields.items() if name in own}
    for name, each in first.items():
        if each is not last[name] and name not in cls.__annotations__:
            cls.__annotations__[name] = each.type
            setattr(cls, name, copy(each))
    result: Any = dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)
    names = [name for names, _ in entries(result.__doc__)[1] for name in names]
    result.__init__ = explaining(result.__init__, names)
    DECLARED[cls.__name__] = result
    result.__doc__ = whole(result)
    return result  # type: ignore[no-any-return]


def explaining(method: F, order: Sequence[str] = ()) -> F:
    """Return a method that says what to give in place of an argument that it does not have.

    Classes have remedies for names of other libraries in ``_instead``. The signature of the
    result has keywords in an `order`, which is that of the documentation.
    """
    signature = inspect.signature(method)
    names = signature.parameters
    ranks = {name: rank for rank, name in enumerate(order)}

    @wraps(method)
    def checked(self: Any, *args: Any, **arguments: Any) -> Any:
        for name in arguments.keys() - names.keys():
            near = get_close_matches(name, sorted(names), n=1)
            near = near or list(names)[2:] * (len(names) == 3 and not order)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            if name in getattr(self, "_instead", {}):
                hint = f"; {self._instead[name]}"
            owner = f"{type(self).__name__}.{method.__name__}"
            raise TypeError(f"{owner}() got an unexpected keyword argument {name!r}{hint}")
        return method(self, *args, **arguments)

    def rank(p: inspect.Parameter) -> tuple[int, int]:
        return p.kind, ranks.get(p.name, len(ranks)) if p.kind is p.KEYWORD_ONLY else 0

    ordered = signature.replace(parameters=sorted(names.values(), key=rank))
    checked.__signature__ = ordered  # type: ignore[attr-defined]
    return checked  # type: ignore[return-value]


def check_params(obj: Any) -> None:
    """Raise ValueError or TypeError if a declared parameter of `obj` is outside its domain."""
    for each in dataclasses.fields(obj) if dataclasses.is_dataclass(obj) else ():
        value = getattr(obj, each.name)
        if _CHECK in each.metadata and value is not each.default:
            each.metadata[_CHECK](value, each.name)


def outside_values(obj: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) for values outside of each declared domain of `obj` or its class."""
    for each in dataclasses.fields(obj):
        for value in each.metadata.get(_OUTSIDE, ()):
            yield each.name, value


class Documented(BaseEstimator):
    """An object with parameters that the manual lists."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__doc__ = cls.__doc__ and whole(cls)


class Part(Documented):
    """A loss, a kernel or a solver."""

    def check(self) -> None:
        """Raise ValueError or TypeError if a parameter is outside its domain."""
        check_params(self)
