"""Products of dense or CSR rows with coefficients, in compiled loops.

The coefficients of C outputs have the shape (C, d) for dense rows, where loops run along
columns, and (d, C) for CSR rows, where the outputs of a stored entry are adjacent. This is the
*native* layout, which :func:`responses`, :func:`add_outer` and :func:`output` use.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.rows import Csr, Dense, by_type, column, entries, entry
from kernelgrad.types import Float64Array

# Sums over the columns of a dense row may be reordered and thus vectorised; NaN stays NaN. Such
# loops are always inlined: a copy linked into a caller would be optimised twice, add in another
# order, and be the one that runs when code comes from the cache.
FAST = {"contract", "nsz", "arcp", "reassoc"}


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
