"""Steps of the linear solvers with control variates from the moments of groups of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from kernelgrad._typing import AnyArray, Float64Array, IntArray
from kernelgrad.losses.scalar import (
    HUBER,
    LOGISTIC,
    MULTINOMIAL,
    SMOOTHED_HINGE,
    SQUARED,
    SQUARED_HINGE,
    slopes_of_row,
    value_of_row,
)
from kernelgrad.solvers.linear._steps import FAST, shrink


@njit(nogil=True, cache=True)
def bends_of_row(
    kind: int, numbers: Float64Array, y: Float64Array, u: Float64Array, out: Float64Array
) -> None:
    """Write the second derivatives of a row's loss, (C, C)."""
    C = len(u)
    out[:] = 0.0
    if kind == MULTINOMIAL:
        top = u.max()
        p = np.exp(u - top)
        p /= p.sum()
        for c in range(C):
            for e in range(C):
                out[c, e] = (p[c] if c == e else 0.0) - p[c] * p[e]
        return
    for c in range(C):
        m = y[c] * u[c]
        if kind == SQUARED:
            out[c, c] = 1.0
        elif kind == LOGISTIC:
            q = math.exp(-abs(m))
            out[c, c] = q / (1.0 + q) ** 2
        elif kind == SQUARED_HINGE:
            out[c, c] = 2.0 if m < 1.0 else 0.0
        elif kind == HUBER:
            out[c, c] = 1.0 if abs(u[c] - y[c]) < numbers[c] else 0.0
        elif kind == SMOOTHED_HINGE:
            out[c, c] = 1.0 / numbers[c] if 1.0 - numbers[c] < m < 1.0 else 0.0


@njit(nogil=True, cache=True, fastmath=FAST)
def _product(A: Float64Array, w: Float64Array, scale: float, out: Float64Array) -> None:
    """Add ``scale A w`` to `out`; A is symmetric."""
    d = len(w)
    for i in range(d):
        a = scale * w[i]
        if a != 0.0:
            row = A[i]
            for j in range(d):
                out[j] += a * row[j]


@njit(nogil=True, cache=True, fastmath=FAST)
def _dot(x: AnyArray, w: Float64Array) -> Any:
    total = 0.0
    for j in range(len(x)):
        total += x[j] * w[j]
    return total


@njit(nogil=True, cache=True)
def descend(
    kind: int,
    numbers: Float64Array,
    X: AnyArray,
    data: AnyArray,
    indices: AnyArray,
    indptr: AnyArray,
    Y: Float64Array,
    W: Float64Array,
    b: Float64Array,
    order: IntArray,
    share: Float64Array,
    eta: float,
    l1: float,
    l2: float,
    fit_bias: bool,
    group: IntArray,
    part: Float64Array,
    centre: Float64Array,
    covariance: Float64Array,
    targets: Float64Array,
) -> Any:
    """Take T steps in place, each with the moments of K groups; return the losses seen.

    Parameters
    ----------
    X : array (n, d), or (0, 0) where rows are CSR
    data, indices, indptr
        CSR rows, empty where they are dense.
    W, b : float64 arrays (C, d) and (C,)
    group : int64 array (n,)
    part : float64 array (K,)
        Share of each group.
    centre, covariance : float64 arrays (K, d) and (K, d, d)
    targets : float64 array (K, C)

    The others as in :meth:`~kernelgrad.solvers.linear._dense.DenseRows.descend`.
    """
    T, p = order.shape
    C, d = W.shape
    K = len(part)
    sparse = len(indptr) > 0
    V, new, u = np.zeros((p, C)), np.zeros(C), np.zeros(C)
    middle, slope = np.zeros((K, C)), np.zeros((K, C))
    bend = np.zeros((K, C, C))
    mean, mean_bias = np.zeros((C, d)), np.zeros(C)
    seen = 0.0
    for t in range(T):
        mean[:] = 0.0
        mean_bias[:] = 0.0
        for g in range(K):
            for c in range(C):
                middle[g, c] = _dot(centre[g], W[c]) + b[c]
            slopes_of_row(kind, numbers, targets[g], middle[g], slope[g])
            bends_of_row(kind, numbers, targets[g], middle[g], bend[g])
            for c in range(C):
                mean_bias[c] += part[g] * slope[g, c]
                for j in range(d):
                    mean[c, j] += part[g] * slope[g, c] * centre[g, j]
                for e in range(C):
                    if bend[g, c, e] != 0.0:
                        _product(covariance[g], W[e], part[g] * bend[g, c, e], mean[c])
        for k in range(p):
            i = order[t, k]
            g = group[i]
            for c in range(C):
                if sparse:
                    u[c] = b[c]
                    for q in range(indptr[i], indptr[i + 1]):
                        u[c] += data[q] * W[c, indices[q]]
                else:
                    u[c] = _dot(X[i], W[c]) + b[c]
            slopes_of_row(kind, numbers, Y[i], u, new)
            seen += share[t, k] * value_of_row(kind, numbers, Y[i], u)
            for c in range(C):
                reference = slope[g, c]
                for e in range(C):
                    reference += bend[g, c, e] * (u[e] - middle[g, e])
                V[k, c] = share[t, k] * (new[c] - reference)
        for c in range(C):
            w = W[c]
            total = mean_bias[c]
            for k in range(p):
                i, v = order[t, k], eta * V[k, c]
                total += V[k, c]
                if sparse:
                    for q in range(indptr[i], indptr[i + 1]):
                        w[indices[q]] -= v * data[q]
                else:
                    for j in range(d):
                        w[j] -= v * X[i, j]
            for j in range(d):
                w[j] = shrink(w[j] - eta * mean[c, j], eta, l1, l2)
            if fit_bias:
                b[c] -= eta * total
    return seen
