"""Methods over collections of dask: one block at a time, on the workers, when asked for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from kernelgrad._typing import AnyArray, Matrix
from kernelgrad.data import Batch
from kernelgrad.data.dask import is_collection

F = TypeVar("F", bound=Callable[..., Any])


def by_blocks(method: F) -> F:
    """Return a method of rows that gives a lazy dask array for a collection of dask."""

    @wraps(method)
    def over(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_collection(X):
            return method(self, X, *args, **kwargs)
        return _mapped(self, method.__name__, X, args, kwargs)

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


def _mapped(
    model: Any, name: str, X: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    import dask
    import dask.array as da

    example = getattr(model, name)(_one_row(X), *args, **kwargs)  # also checks the columns
    if not isinstance(example, np.ndarray):
        raise TypeError(
            f"{name} gives {type(example).__name__} with these arguments, not an array; "
            "compute the rows first, or ask for an array alone."
        )
    tail, dtype = example.shape[1:], example.dtype
    if not hasattr(X, "columns") and X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    parts = np.ravel(X.to_delayed())
    lengths = X.chunks[0] if hasattr(X, "chunks") else len(parts) * (np.nan,)
    sent = dask.delayed(lean(model))
    block = dask.delayed(_block, pure=True)
    blocks = [
        da.from_delayed(
            block(sent, name, part, args, kwargs, (tail, dtype)), (length, *tail), dtype
        )
        for part, length in zip(parts, lengths, strict=True)
    ]
    return da.concatenate(blocks, allow_unknown_chunksizes=True)


def _one_row(X: Any) -> Any:
    if hasattr(X, "columns"):
        return X._meta_nonempty.iloc[:1]
    row = np.ones((1, X.shape[1]), X.dtype)
    return sp.csr_matrix(row) if sp.issparse(X._meta) else row


def _block(
    model: Any,
    name: str,
    part: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    like: tuple[Any, Any],
) -> AnyArray:
    tail, dtype = like
    if part.shape[0] == 0:
        return np.empty((0, *tail), dtype)
    return np.asarray(getattr(model, name)(part, *args, **kwargs))
