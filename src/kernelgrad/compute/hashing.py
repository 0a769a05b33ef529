"""Which rows are equal to an earlier one."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit

from kernelgrad._typing import AnyArray, Matrix

_COLUMNS = 64  # of row-major rows that are read together


@njit(nogil=True, cache=True)
def _factor(column: int) -> Any:
    """Return an odd 64-bit number of a column: two rounds of a bijective mixer."""
    z = np.uint64(column) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x2545F4914F6CDD1D)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)


@njit(nogil=True, cache=True)
def _mixed(value: Any, factor: Any) -> Any:
    z = np.uint64(value) * factor
    return (z ^ (z >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)


@njit(nogil=True, cache=True)
def _columns(bits: Any, first: int, out: Any) -> None:
    for k in range(bits.shape[1]):
        factor = _factor(first + k)
        for i in range(bits.shape[0]):
            if bits[i, k] != 0:  # zeros count nothing, so that sparse rows agree
                out[i] += _mixed(bits[i, k], factor)


@njit(nogil=True, cache=True)
def _csr(indptr: Any, indices: Any, bits: Any, out: Any) -> None:
    for i in range(out.size):
        for p in range(indptr[i], indptr[i + 1]):
            if bits[p] != 0:
                out[i] += _mixed(bits[p], _factor(indices[p]))


def row_hashes(X: Matrix) -> AnyArray:
    """Return a 64-bit hash of every row, uint64 (n,): equal rows have equal hashes.

    Rows are float32 or float64, dense or CSR. Two different rows collide with probability
    about 2^-64.
    """
    out = np.zeros(X.shape[0], np.uint64)
    word = np.uint32 if X.dtype == np.float32 else np.uint64
    if sp.issparse(X):
        _csr(X.indptr, X.indices, (X.data + X.dtype.type(0)).view(word), out)  # -0 becomes 0
        return out
    for k in range(0, X.shape[1], _COLUMNS):
        part = np.asfortranarray(X[:, k : k + _COLUMNS] + X.dtype.type(0))
        _columns(part.T.view(word).T, k, out)
    return out


def first_of_equals(hashes: AnyArray) -> AnyArray:
    """Return a bool array (n,): whether no earlier row has the same hash."""
    distinct = np.zeros(len(hashes), bool)
    distinct[np.unique(hashes, return_index=True)[1]] = True
    return distinct
