"""Access to dense or CSR rows in compiled loops, so that each loop is written once.

A loop takes ``rows``, one of the named tuples :class:`Dense` and :class:`Csr`, and reads rows
by the functions of this module; numba compiles it for each type. The entries of row i have the
numbers ``entries(rows, i)``; ``column`` and ``entry`` return the column and the value of one::

    @njit(cache=True)
    def norms(rows, out):
        for i in range(len(out)):
            for q in entries(rows, i):
                out[i] += entry(rows, i, q) ** 2
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute.compiling import overload
from kernelgrad.types import AnyArray, Matrix


class Dense(NamedTuple):
    """Rows of a C-ordered array (n, d)."""

    values: AnyArray


class Csr(NamedTuple):
    data: AnyArray
    indices: AnyArray
    indptr: AnyArray


Rows: TypeAlias = Dense | Csr


def as_rows(X: Matrix) -> Rows:
    """Return the rows of a dense array or CSR matrix, which share its memory if they can.

    Values are float32 or float64. Duplicate entries of CSR rows are summed.
    """
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
    if not sp.issparse(X):
        return Dense(np.ascontiguousarray(X, dtype))
    X = sp.csr_matrix(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return Csr(np.ascontiguousarray(X.data, dtype), X.indices, X.indptr)


def by_type(table: dict[type, Callable[..., Any]], *, early: bool = False) -> Any:
    """Return a function that dispatches on its first argument, in compiled loops and Python.

    The first argument is a named tuple of one of the classes in the table, whose functions have
    the same arguments. LLVM inlines them, or with `early` numba does, which is needed to
    vectorise loops over a returned range. Division follows NumPy, because a loop that can raise
    counts references to its arrays in every iteration.
    """

    def chosen(first: Any, *args: Any) -> Any:
        return table[type(first)](first, *args)

    def choose(first: Any, *args: Any) -> Callable[..., Any]:
        return table[first.instance_class]

    inlined = {"inline": "always"} if early else {}
    options = {"nogil": True, "forceinline": True, "error_model": "numpy"}
    overload(chosen, jit_options=options, **inlined)(choose)
    chosen.__doc__ = next(iter(table.values())).__doc__
    return chosen


entries = by_type(
    {
        Dense: lambda rows, i: range(rows.values.shape[1]),
        Csr: lambda rows, i: range(rows.indptr[i], rows.indptr[i + 1]),
    },
    early=True,
)
column = by_type({Dense: lambda rows, q: q, Csr: lambda rows, q: rows.indices[q]})
entry = by_type(
    {Dense: lambda rows, i, q: rows.values[i, q], Csr: lambda rows, i, q: rows.data[q]}
)
