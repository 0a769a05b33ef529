"""Methods over collections of dask: one block at a time, on the workers, when asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad.estimators.blocks import lean
from kernelgrad.types import AnyArray


def mapped(model: Any, name: str, X: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the lazy array of a method's values for each block of a collection."""
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
    model: Any, name: str, part: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
    like: tuple[Any, Any],
) -> AnyArray:  # fmt: skip
    tail, dtype = like
    if part.shape[0] == 0:
        return np.empty((0, *tail), dtype)
    return np.asarray(getattr(model, name)(part, *args, **kwargs))
