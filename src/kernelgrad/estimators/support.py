"""What estimators take from scikit-learn, and methods that are there at times only."""

import inspect
import os
from collections.abc import Callable
from functools import partial, update_wrapper
from types import MethodType
from typing import Any, TypeVar

from kernelgrad.data.base import is_collection
from kernelgrad.files.disk import replacing
from kernelgrad.params import explaining
from kernelgrad.registry import room

F = TypeVar("F", bound=Callable[..., Any])


def exported(model: Any, path: str | os.PathLike[str] | None, dtype: str) -> Any:
    """Return a fitted value as an ONNX model, and write it if there is a path."""
    try:
        export = room("onnx.export").export
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise ImportError(
            "to_onnx needs onnx; install it with: pip install 'kernelgrad[onnx]'"
        ) from None
    graph = export(model, dtype)
    if path is not None:
        with replacing(path) as file:
            file.write(graph.SerializeToString())
    return graph


def by_blocks(function: Callable[[Any], Any], X: Any) -> Any:
    """Return a function of rows; of a collection of dask it is computed block by block."""
    return room("cluster").mapped(function, X) if is_collection(X) else function(X)


_OF_ALL_FITS = """

Returns
-------
self

Raises
------
ValueError, TypeError
    For parameters outside their domain, infinite values, wrong shapes, or rows outside the
    kernel's domain; before any work is done."""


def fitting(method: F) -> F:
    """Return `fit` with what all document, and remedies for wrong arguments."""
    method.__doc__ = f"{inspect.getdoc(method)}{_OF_ALL_FITS}"
    return explaining(method)


class _Offered:
    """A method that an estimator has where its check does not raise."""

    def __init__(self, method: Callable[..., Any], check: Callable[[Any], object]) -> None:
        self._method, self._check = method, check
        update_wrapper(self, method)  # type: ignore[arg-type]

    def __get__(self, estimator: Any, owner: type) -> Any:
        if estimator is None:
            return self._method
        try:
            self._check(estimator)
        except (AttributeError, ValueError, TypeError) as reason:
            raise AttributeError(
                f"This {owner.__name__} has no {self._method.__name__}: {reason}"
            ) from reason
        return MethodType(self._method, estimator)


def available_if(check: Callable[[Any], object]) -> Callable[[F], F]:
    """Return a decorator like scikit-learn's, whose error tells the reason of `check`."""
    return partial(_Offered, check=check)  # type: ignore[return-value]


def can_stream(estimator: Any) -> None:
    """Raise AttributeError if there is no partial_fit; wrong parameters are its own error."""
    try:
        spec = estimator._spec()
    except (ValueError, TypeError):
        return
    spec.check_streams(getattr(estimator, "_fitted", None))
