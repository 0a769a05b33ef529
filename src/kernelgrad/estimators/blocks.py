"""Methods over collections of dask, and copies of estimators that can travel."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from kernelgrad.data import Batch
from kernelgrad.data.base import is_collection
from kernelgrad.registry import room
from kernelgrad.types import Matrix

F = TypeVar("F", bound=Callable[..., Any])


def by_blocks(method: F) -> F:
    """Return a method of rows that gives a lazy dask array for a collection of dask."""

    @wraps(method)
    def over(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_collection(X):
            return method(self, X, *args, **kwargs)
        return room("cluster").mapped(self, method.__name__, X, args, kwargs)

    return over  # type: ignore[return-value]


def lean(model: Any) -> Any:
    """Return a copy of an estimator that can travel, without what only training needs."""
    model = copy.copy(model)
    for name in list(vars(model)):
        if name in ("_state", "_deadline", "_listeners") or "callback" in name:
            del model.__dict__[name]
    model.callbacks = model.engine = None  # live objects of this process
    return model


def encoded(model: Any, X: Any) -> Matrix:
    """Return rows of a source as the functions of a model take them."""
    rows: Matrix = model._matrix(X, source=True)
    return rows


def said(model: Any, method: str, args: tuple[Any, ...], batch: Batch) -> Any:
    """Return what a method of a fitted model says of a batch of a source and its responses."""
    raw = model._values(encoded(model, batch.X))
    return getattr(model, method)(batch, raw, *args)
