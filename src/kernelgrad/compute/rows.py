"""Access to dense or CSR rows in compiled loops, so that each loop is written once.

A loop takes ``rows``, one of the named tuples :class:`Dense` and :class:`Csr`, and reads rows
by the functions of this module; numba compiles it for each type. The entries of row i have the
numbers ``entries(rows, i)``; ``column`` and ``entry`` return the column and the value of one::

    @njit(cache=True)
    def norms(rows, out):
        for i in range(len(out)):
            for q in entries(rows, i):
                out[i] += entry(rows, i, q) ** 2

The coefficients of C outputs have the shape (C, d) for dense rows, where loops run along
columns, and (d, C) for CSR rows, where the outputs of a stored entry are adjacent. This is the
*native* layout, which :func:`responses`, :func:`add_outer` and :func:`output` use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute.compiling import njit, overload
from kernelgrad.types import AnyArray, Float64Array, Matrix

# Sums over the columns of a dense row may be reordered and thus vectorised; NaN stays NaN. Such
# loops are always inlined: a copy linked into a caller would be optimised twice, add in another
# order, and be the one that runs when code comes from the cache.
FAST = {"contract", "nsz", "arcp", "reassoc"}


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


def _dense_entries(rows: Any, i: int) -> Any:
    """Return the range of the numbers of the entries of row i."""
    return range(rows.values.shape[1])


def _csr_entries(rows: Any, i: int) -> Any:
    return range(rows.indptr[i], rows.indptr[i + 1])


def _dense_column(rows: Any, q: int) -> Any:
    return q


def _csr_column(rows: Any, q: int) -> Any:
    return rows.indices[q]


def _dense_entry(rows: Any, i: int, q: int) -> Any:
    return rows.values[i, q]


def _csr_entry(rows: Any, i: int, q: int) -> Any:
    return rows.data[q]


entries = by_type({Dense: _dense_entries, Csr: _csr_entries}, early=True)
column = by_type({Dense: _dense_column, Csr: _csr_column})
entry = by_type({Dense: _dense_entry, Csr: _csr_entry})


@njit(nogil=True, cache=True, fastmath=FAST, forceinline=True, error_model="numpy")
def dot(rows: Any, i: int, w: Float64Array) -> Any:
    """Return ``<x_i, w>`` for w (d,)."""
    total = 0.0
    for q in entries(rows, i):
        total += entry(rows, i, q) * w[column(rows, q)]
    return total


@njit(nogil=True, cache=True, fastmath=FAST, forceinline=True, error_model="numpy")
def add(rows: Any, i: int, a: float, w: Float64Array) -> None:
    """Add ``a x_i`` to w (d,)."""
    for q in entries(rows, i):
        w[column(rows, q)] += a * entry(rows, i, q)


def _dense_responses(rows: Any, i: int, W: Any, b: Any, u: Any) -> None:
    """Write ``x_i W + b``, (C,)."""
    for c in range(len(b)):
        u[c] = dot(rows, i, W[c]) + b[c]


def _csr_responses(rows: Any, i: int, W: Any, b: Any, u: Any) -> None:
    for c in range(len(b)):
        u[c] = b[c]
    for q in range(rows.indptr[i], rows.indptr[i + 1]):
        x, j = rows.data[q], rows.indices[q]
        for c in range(len(b)):  # a view of W would count references
            u[c] += x * W[j, c]


def _dense_add_outer(rows: Any, chosen: Any, a: float, V: Any, W: Any) -> None:
    """Add ``a sum_k x_k v_k^T`` over the chosen rows (p,), with V (p, C), to coefficients."""
    for c in range(V.shape[1]):
        w = W[c]  # hoisted out of the loop over rows
        for k in range(len(chosen)):
            if V[k, c] != 0.0:
                add(rows, chosen[k], a * V[k, c], w)


def _csr_add_outer(rows: Any, chosen: Any, a: float, V: Any, W: Any) -> None:
    for k in range(len(chosen)):
        i = chosen[k]
        for q in range(rows.indptr[i], rows.indptr[i + 1]):
            x, j = a * rows.data[q], rows.indices[q]
            for c in range(V.shape[1]):
                W[j, c] += x * V[k, c]


def _dense_output(rows: Any, W: Any, c: int) -> Any:
    """Return a view of the coefficients of output c, (d,)."""
    return W[c]


def _csr_output(rows: Any, W: Any, c: int) -> Any:
    return W[:, c]


def _dense_native(rows: Any, W: Any) -> Any:
    """Return a float64 copy of coefficients (d, C) in the native layout, or the reverse."""
    return np.array(W.T, np.float64, order="C")


def _csr_native(rows: Any, W: Any) -> Any:
    return np.array(W, np.float64, order="C")


responses = by_type({Dense: _dense_responses, Csr: _csr_responses})
add_outer = by_type({Dense: _dense_add_outer, Csr: _csr_add_outer})
output = by_type({Dense: _dense_output, Csr: _csr_output})
native = by_type({Dense: _dense_native, Csr: _csr_native})
