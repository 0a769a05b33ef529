"""Steps of the linear solvers on dense rows; coefficients are (C, d)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from kernelgrad._typing import AnyArray, Float64Array, IntArray
from kernelgrad.compute.threads import parallel_for
from kernelgrad.losses.scalar import ROWS, slopes_of_row, value_of_row
from kernelgrad.solvers.linear._steps import (
    FAST,
    PARTS,
    anchored,
    shrink,
)


@njit(nogil=True, cache=True, fastmath=FAST)
def _responses(X: AnyArray, W: Float64Array, b: Float64Array, U: Float64Array) -> None:
    n, d = X.shape
    for i in range(n):
        for c in range(len(b)):
            w = W[c]
            total = 0.0
            for j in range(d):
                total += X[i, j] * w[j]
            U[i, c] = total + b[c]


@njit(nogil=True, cache=True, fastmath=FAST)
def _gradient(X: AnyArray, G: Float64Array, out: Float64Array) -> None:
    n, d = X.shape
    for i in range(n):
        for c in range(G.shape[1]):
            g = G[i, c]
            if g != 0.0:
                row = out[c]
                for j in range(d):
                    row[j] += g * X[i, j]


@njit(nogil=True, cache=True, fastmath=FAST)
def _dot(x: AnyArray, w: Float64Array) -> float:
    total = 0.0
    for j in range(len(x)):
        total += x[j] * w[j]
    return total


@njit(nogil=True, cache=True, fastmath=FAST)
def _add(x: AnyArray, a: float, w: Float64Array) -> None:
    for j in range(len(x)):
        w[j] += a * x[j]


@njit(nogil=True, cache=True)
def _step(
    X: AnyArray,
    rows: IntArray,
    V: Float64Array,
    W: Float64Array,
    b: Float64Array,
    mean: Float64Array,
    mean_bias: Float64Array,
    eta: float,
    l1: float,
    l2: float,
    fit_bias: bool,
) -> None:
    """Take one step with row coefficients V (p, C)."""
    p, C = V.shape
    d = X.shape[1]
    inverse = 1.0 / (1.0 + eta * l2)
    for c in range(C):
        w, m = W[c], mean[c]
        total = 0.0
        for k in range(p):
            total += V[k, c]
            if V[k, c] != 0.0:
                _add(X[rows[k]], -eta * V[k, c], w)
        if l1 == 0.0:
            for j in range(d):
                w[j] = (w[j] - eta * m[j]) * inverse
        else:
            for j in range(d):
                w[j] = shrink(w[j] - eta * m[j], eta, l1, l2)
        if fit_bias:
            b[c] -= eta * (total + mean_bias[c])


@njit(nogil=True, cache=True)
def _slopes(
    kind: int,
    numbers: Float64Array,
    X: AnyArray,
    Y: Float64Array,
    i: int,
    W: Float64Array,
    b: Float64Array,
    u: Float64Array,
    out: Float64Array,
) -> None:
    for c in range(len(b)):
        u[c] = _dot(X[i], W[c]) + b[c]
    slopes_of_row(kind, numbers, Y[i], u, out)


@njit(nogil=True, cache=True)
def _descend(
    kind: int,
    numbers: Float64Array,
    X: AnyArray,
    Y: Float64Array,
    W: Float64Array,
    b: Float64Array,
    order: IntArray,
    share: Float64Array,
    eta: float,
    l1: float,
    l2: float,
    fit_bias: bool,
    table: Float64Array,
    mean: Float64Array,
    mean_bias: Float64Array,
    moving: Float64Array,
) -> float:
    """As :meth:`DenseRows.descend`; returns the sum of the losses seen."""
    T, p = order.shape
    C = len(b)
    V, new, u = np.zeros((p, C)), np.zeros((p, C)), np.zeros(C)
    seen = 0.0
    for t in range(T):
        for k in range(p):
            i = order[t, k]
            _slopes(kind, numbers, X, Y, i, W, b, u, new[k])
            seen += share[t, k] * value_of_row(kind, numbers, Y[i], u)
            for c in range(C):
                old = table[i, c] if len(table) else 0.0
                V[k, c] = share[t, k] * (new[k, c] - old)
        _step(X, order[t], V, W, b, mean, mean_bias, eta, l1, l2, fit_bias)
        if len(moving):
            for k in range(p):
                i = order[t, k]
                for c in range(C):
                    change = moving[i] * (new[k, c] - table[i, c])
                    table[i, c] = new[k, c]
                    if change != 0.0:
                        _add(X[i], change, mean[c])
                        mean_bias[c] += change
    return seen


@njit(nogil=True, cache=True)
def _manifold(
    kind: int,
    numbers: Float64Array,
    X: AnyArray,
    Y: Float64Array,
    W: Float64Array,
    b: Float64Array,
    order: IntArray,
    share: Float64Array,
    eta: float,
    l1: float,
    l2: float,
    fit_bias: bool,
    inner: int,
    anchors: IntArray,
    near: IntArray,
    gamma: Float64Array,
    code: AnyArray,
    targets: Float64Array,
    product: Float64Array,
    product_bias: Float64Array,
    offset: Float64Array,
    offset_bias: Float64Array,
    spread: Float64Array,
) -> float:
    """As :meth:`DenseRows.descend_manifold`."""
    T, p = order.shape
    C, m, values = len(b), len(anchors), targets.shape[0]
    V, new, u = np.zeros((p, C)), np.zeros(C), np.zeros(C)
    ref, row = np.zeros(C), np.zeros(C)
    at = np.zeros((values, m, C))
    mean, mean_bias = np.zeros_like(W), np.zeros(C)
    seen = 0.0
    for t in range(T):
        if t % inner == 0:
            mean[:] = offset
            mean_bias[:] = offset_bias
            for a in range(m):
                for c in range(C):
                    u[c] = _dot(X[anchors[a]], W[c]) + b[c]
                for v in range(values):
                    slopes_of_row(kind, numbers, targets[v], u, row)
                    for c in range(C):
                        at[v, a, c] = row[c]
                        s = row[c]
                        q = c if product.shape[1] > 1 else 0
                        _add(product[v, q, a], s, mean[c])
                        mean_bias[c] += s * product_bias[v, q, a]
        for k in range(p):
            i = order[t, k]
            _slopes(kind, numbers, X, Y, i, W, b, u, new)
            seen += share[t, k] * value_of_row(kind, numbers, Y[i], u)
            anchored(i, near, gamma, code, at, ref)
            for c in range(C):
                V[k, c] = share[t, k] * (new[c] - ref[c] - spread[i, c])
        _step(X, order[t], V, W, b, mean, mean_bias, eta, l1, l2, fit_bias)
    return seen


_NONE = np.zeros((0, 0))
_STILL = np.zeros(0)


class DenseRows:
    """Dense rows (n, d), float32 or float64, and what the linear solvers do with them.

    Coefficients are in the layout of the loops, (C, d): see :meth:`native`.
    """

    is_sparse = False

    def __init__(self, X: AnyArray) -> None:
        dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
        self.X = np.ascontiguousarray(X, dtype)
        self.n, self.d = self.X.shape

    @property
    def row_size(self) -> float:
        """Mean number of stored entries of a row."""
        return float(self.d)

    def native(self, coef: AnyArray) -> Float64Array:
        """Return a copy of coefficients (d, C) in the layout of the loops."""
        return np.array(coef.T, np.float64, order="C")

    def public(self, W: Float64Array) -> Float64Array:
        """Return a copy of coefficients of the loops as (d, C)."""
        return np.array(W.T, np.float64, order="C")

    def squared_norms(self) -> Float64Array:
        """Return the squared norm of each row, (n,)."""
        return np.asarray(np.einsum("ij,ij->i", self.X, self.X, dtype=np.float64))

    def column_squares(self, share: Float64Array) -> Float64Array:
        """Return ``sum_i share_i x_ij^2``, (d,)."""
        total = np.zeros(self.d)
        for start in range(0, self.n, ROWS):
            some = self.X[start : start + ROWS].astype(np.float64)
            total += share[start : start + ROWS] @ (some * some)
        return total

    def responses(self, W: Float64Array, b: Float64Array) -> Float64Array:
        """Return ``X W + b``, (n, C)."""
        U = np.empty((self.n, len(b)))

        def task(t: int) -> None:
            r = slice(t * ROWS, (t + 1) * ROWS)
            _responses(self.X[r], W, b, U[r])

        parallel_for(-(-self.n // ROWS), task)
        return U

    def gradient(self, G: Float64Array) -> Float64Array:
        """Return ``sum_i x_i G_i`` in the layout of the loops."""
        C = G.shape[1]
        count = int(np.clip(self.n // max(1, C), 1, PARTS))
        parts = np.zeros((count, C, self.d))
        width = -(-self.n // count)

        def task(t: int) -> None:
            r = slice(t * width, (t + 1) * width)
            _gradient(self.X[r], G[r], parts[t])

        parallel_for(count, task)
        return np.asarray(parts.sum(axis=0))

    def descend(
        self,
        kind: int,
        numbers: Float64Array,
        Y: Float64Array,
        W: Float64Array,
        b: Float64Array,
        order: IntArray,
        share: Float64Array,
        eta: float,
        l1: float,
        l2: float,
        fit_bias: bool,
        table: Float64Array = _NONE,
        mean: Float64Array = _NONE,
        mean_bias: Float64Array = _STILL,
        moving: Float64Array = _STILL,
    ) -> float:
        """Take T proximal steps in place; return the sum of ``share`` times losses seen.

        Parameters
        ----------
        kind, numbers
            Of the loss; numbers are (C,).
        Y : float64 array (n, C)
        W, b : float64 arrays, (C, d) and (C,)
        order : int64 array (T, p)
            Rows of each mini-batch.
        share : float64 array (T, p)
            Their shares in the gradient, which sum to about 1 in each mini-batch.
        eta, l1, l2 : float
        fit_bias : bool
        table : float64 array (n, C) or (0, 0)
            References r of the rows; empty for none.
        mean, mean_bias : float64 arrays (C, d) and (C,), or empty
            The mean of ``r_i x_i`` and of r_i.
        moving : float64 array (n,) or (0,)
            If not empty, the table and its means follow the derivatives seen, a row's in
            proportion to this (SAGA).
        """
        if not len(mean_bias):
            mean, mean_bias = np.zeros_like(W), np.zeros_like(b)
        return float(
            _descend(
                kind, numbers, self.X, Y, W, b, order, share, eta, l1, l2, fit_bias, table,
                mean, mean_bias, moving,
            )
        )  # fmt: skip

    def descend_manifold(
        self,
        kind: int,
        numbers: Float64Array,
        Y: Float64Array,
        W: Float64Array,
        b: Float64Array,
        order: IntArray,
        share: Float64Array,
        eta: float,
        l1: float,
        l2: float,
        fit_bias: bool,
        inner: int,
        graph: Any,
    ) -> float:
        """As :meth:`descend`, with references from an anchor graph renewed every `inner` steps.

        The reference of a row is ``spread_i + sum_k gamma_ik l'(targets[code_i], u(z_k))``
        over its anchors z; `graph` holds anchors, near, gamma, code, targets, product,
        product_bias, offset, offset_bias and spread, see the solver that builds it.
        """
        return float(
            _manifold(
                kind, numbers, self.X, Y, W, b, order, share, eta, l1, l2, fit_bias, inner,
                graph.anchors, graph.near, graph.gamma, graph.code, graph.targets,
                graph.product, graph.product_bias, graph.offset.T.copy(), graph.offset_bias,
                graph.spread,
            )
        )  # fmt: skip
