"""Stochastic steps of the linear solvers on random blocks of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from kernelgrad._typing import AnyArray, Float64Array, IntArray
from kernelgrad.losses.scalar import slopes_of_row, value_of_row
from kernelgrad.solvers.linear._blocks import _dot
from kernelgrad.solvers.linear._steps import missed_steps, shrink, step_tables


@njit(nogil=True, cache=True)
def _mirror_dense(
    kind: int,
    numbers: Float64Array,
    X: AnyArray,
    Y: Float64Array,
    W: Float64Array,
    b: Float64Array,
    order: IntArray,
    share: Float64Array,
    chosen: IntArray,
    first: IntArray,
    eta: Float64Array,
    eta_bias: float,
    l1: float,
    l2: float,
) -> float:
    T, p = order.shape
    C = len(W)
    V, u = np.zeros((p, C)), np.zeros(C)
    seen = 0.0
    for t in range(T):
        low, high, step = first[chosen[t]], first[chosen[t] + 1], eta[chosen[t]]
        for k in range(p):
            i = order[t, k]
            for c in range(C):
                u[c] = _dot(X[i], W[c]) + b[c]
            slopes_of_row(kind, numbers, Y[i], u, V[k])
            seen += share[t, k] * value_of_row(kind, numbers, Y[i], u)
            for c in range(C):
                V[k, c] *= share[t, k]
        for c in range(C):
            total = 0.0
            for k in range(p):
                total += V[k, c]
            b[c] -= eta_bias * total
            w = W[c, low:high]
            for k in range(p):
                s = step * V[k, c]
                if s != 0.0:
                    x = X[order[t, k], low:high]
                    for j in range(high - low):
                        w[j] -= s * x[j]
            for j in range(high - low):
                w[j] = shrink(w[j], step, l1, l2)
    return seen


@njit(nogil=True, cache=True)
def _mirror_sparse(
    kind: int,
    numbers: Float64Array,
    data: AnyArray,
    indices: AnyArray,
    indptr: AnyArray,
    Y: Float64Array,
    W: Float64Array,
    b: Float64Array,
    order: IntArray,
    share: Float64Array,
    chosen: IntArray,
    first: IntArray,
    eta: Float64Array,
    eta_bias: float,
    l1: float,
    l2: float,
    powers: Float64Array,
    sums: Float64Array,
) -> float:
    T, p = order.shape
    d, C = W.shape
    V, u = np.zeros((p, C)), np.zeros(C)
    block = np.empty(d, np.int32)
    for i in range(len(first) - 1):
        block[first[i] : first[i + 1]] = i
    moves = np.zeros(len(eta), np.int64)  # of each block so far
    last = np.zeros(d, np.int64)  # moves of its block that a column has taken
    seen = 0.0
    for t in range(T):
        now = chosen[t]
        step = eta[now]
        for k in range(p):
            i = order[t, k]
            for c in range(C):
                u[c] = b[c]
            for q in range(indptr[i], indptr[i + 1]):
                j = indices[q]
                a = block[j]
                late = moves[a] - last[j]
                if late > 0:
                    for c in range(C):
                        W[j, c] = missed_steps(
                            W[j, c], 0.0, late, eta[a], l1, l2, powers[a], sums[a]
                        )
                    last[j] = moves[a]
                for c in range(C):
                    u[c] += data[q] * W[j, c]
            slopes_of_row(kind, numbers, Y[i], u, V[k])
            seen += share[t, k] * value_of_row(kind, numbers, Y[i], u)
            for c in range(C):
                V[k, c] *= share[t, k]
        for c in range(C):
            total = 0.0
            for k in range(p):
                total += V[k, c]
            b[c] -= eta_bias * total
        for k in range(p):
            i = order[t, k]
            for q in range(indptr[i], indptr[i + 1]):
                j = indices[q]
                if block[j] == now:
                    for c in range(C):
                        W[j, c] -= step * V[k, c] * data[q]
        moves[now] += 1  # the penalty of this step waits until a column is next needed
    for j in range(d):
        a = block[j]
        late = moves[a] - last[j]
        if late > 0:
            for c in range(C):
                W[j, c] = missed_steps(W[j, c], 0.0, late, eta[a], l1, l2, powers[a], sums[a])
    return seen


@njit(nogil=True, cache=True)
def _norms_dense(
    X: AnyArray, share: Float64Array, first: IntArray, largest: Float64Array
) -> None:
    for i in range(len(X)):
        if share[i] > 0.0:
            for block in range(len(largest)):
                total = 0.0
                for j in range(first[block], first[block + 1]):
                    x = np.float64(X[i, j])
                    total += x * x
                largest[block] = max(largest[block], total)


@njit(nogil=True, cache=True)
def _norms_sparse(
    data: AnyArray,
    indices: AnyArray,
    indptr: AnyArray,
    share: Float64Array,
    block: IntArray,
    largest: Float64Array,
) -> None:
    total = np.zeros(len(largest))
    for i in range(len(share)):
        if share[i] > 0.0:
            total[:] = 0.0
            for q in range(indptr[i], indptr[i + 1]):
                x = np.float64(data[q])
                total[block[indices[q]]] += x * x
            for at in range(len(largest)):
                largest[at] = max(largest[at], total[at])


def block_norms(rows: Any, share: Float64Array, first: IntArray) -> Float64Array:
    """Return the largest squared norm of a row in each block of columns, (B,).

    Rows with a share (n,) of zero do not count; for `first` see :func:`mirror`.
    """
    largest = np.zeros(len(first) - 1)
    if rows.is_sparse:
        block = np.repeat(np.arange(len(largest), dtype=np.int32), np.diff(first))
        _norms_sparse(rows.data, rows.indices, rows.indptr, share, block, largest)
    else:
        _norms_dense(rows.X, share, first, largest)
    return largest


def mirror(
    rows: Any,
    kind: int,
    numbers: Float64Array,
    Y: Float64Array,
    W: Float64Array,
    b: Float64Array,
    order: IntArray,
    share: Float64Array,
    chosen: IntArray,
    first: IntArray,
    eta: Float64Array,
    eta_bias: float,
    l1: float,
    l2: float,
) -> float:
    r"""Take T steps in place, each on one block of columns; return the sum of losses seen.

    .. math:: W_B \leftarrow \mathrm{prox}_{\eta_B R}\Bigl(W_B - \eta_B \sum_k s_k
              l'(y_k, u_k) x_{k,B}\Bigr), \qquad b \leftarrow b - \eta_b \sum_k s_k
              l'(y_k, u_k)

    Parameters
    ----------
    rows : DenseRows or SparseRows
    kind : int
    numbers : float64 array (C,)
    Y : float64 array (n, C)
    W : float64 array in the layout of the rows
    b : float64 array (C,)
    order : int array (T, p)
        Rows of each step.
    share : float64 array (T, p)
    chosen : int array (T,)
        Block of each step.
    first : int array (B + 1,)
        Columns ``first[i], ..., first[i + 1] - 1`` are block i.
    eta : float64 array (B,)
    eta_bias : float
        0 keeps the bias.
    l1, l2 : float

    Notes
    -----
    On CSR rows a column takes the penalties of all moves of its block that it has missed at
    once, when a row next needs it: a step costs the entries of its rows.
    """
    if not rows.is_sparse:
        return float(
            _mirror_dense(
                kind, numbers, rows.X, Y, W, b, order, share, chosen, first, eta, eta_bias, l1,
                l2,
            )
        )  # fmt: skip
    most = int(np.bincount(chosen).max(initial=0))
    tables = [step_tables(most, e, l2) for e in eta.tolist()]
    return float(
        _mirror_sparse(
            kind, numbers, rows.data, rows.indices, rows.indptr, Y, W, b, order, share, chosen,
            first, eta, eta_bias, l1, l2, np.array([t[0] for t in tables]),
            np.array([t[1] for t in tables]),
        )
    )  # fmt: skip
