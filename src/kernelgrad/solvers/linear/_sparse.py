"""Steps of the linear solvers on CSR rows; coefficients are (d, C)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit

from kernelgrad._typing import AnyArray, Float64Array, IntArray
from kernelgrad.compute.threads import parallel_for
from kernelgrad.losses.scalar import ROWS, slopes_of_row, value_of_row
from kernelgrad.solvers.linear._steps import (
    PARTS,
    anchored,
    missed_steps,
    step_tables,
)


@njit(nogil=True, cache=True)
def _responses(
    data: AnyArray,
    indices: AnyArray,
    indptr: AnyArray,
    W: Float64Array,
    b: Float64Array,
    U: Any,
) -> None:
    C = len(b)
    for i in range(len(U)):
        for c in range(C):
            U[i, c] = b[c]
        for q in range(indptr[i], indptr[i + 1]):
            x, w = data[q], W[indices[q]]
            for c in range(C):
                U[i, c] += x * w[c]


@njit(nogil=True, cache=True)
def _gradient(
    data: AnyArray, indices: AnyArray, indptr: AnyArray, G: Float64Array, out: Float64Array
) -> None:
    C = G.shape[1]
    for i in range(len(G)):
        for q in range(indptr[i], indptr[i + 1]):
            x, w = data[q], out[indices[q]]
            for c in range(C):
                w[c] += x * G[i, c]


@njit(nogil=True, cache=True)
def _catch_up(
    j: int,
    k: int,
    W: Float64Array,
    mean: Float64Array,
    eta: float,
    l1: float,
    l2: float,
    powers: Float64Array,
    sums: Float64Array,
) -> None:
    w, m = W[j], mean[j]
    for c in range(len(w)):
        w[c] = missed_steps(w[c], m[c], k, eta, l1, l2, powers, sums)


@njit(nogil=True, cache=True)
def _flush(
    T: int,
    last: IntArray,
    W: Float64Array,
    mean: Float64Array,
    eta: float,
    l1: float,
    l2: float,
    powers: Float64Array,
    sums: Float64Array,
) -> None:
    for j in range(len(W)):
        if last[j] < T:
            _catch_up(j, T - last[j], W, mean, eta, l1, l2, powers, sums)
            last[j] = T


@njit(nogil=True, cache=True)
def _slopes(
    kind: int,
    numbers: Float64Array,
    data: AnyArray,
    indices: AnyArray,
    indptr: AnyArray,
    Y: Float64Array,
    i: int,
    t: int,
    last: IntArray,
    W: Float64Array,
    b: Float64Array,
    mean: Float64Array,
    eta: float,
    l1: float,
    l2: float,
    powers: Float64Array,
    sums: Float64Array,
    u: Float64Array,
    out: Float64Array,
) -> None:
    """Bring the row's columns up to step t, then write its derivatives."""
    C = len(b)
    for c in range(C):
        u[c] = b[c]
    for q in range(indptr[i], indptr[i + 1]):
        j = indices[q]
        if last[j] < t:
            _catch_up(j, t - last[j], W, mean, eta, l1, l2, powers, sums)
            last[j] = t
        x, w = data[q], W[j]
        for c in range(C):
            u[c] += x * w[c]
    slopes_of_row(kind, numbers, Y[i], u, out)


@njit(nogil=True, cache=True)
def _step(
    data: AnyArray,
    indices: AnyArray,
    indptr: AnyArray,
    rows: IntArray,
    V: Float64Array,
    W: Float64Array,
    b: Float64Array,
    mean_bias: Float64Array,
    eta: float,
    fit_bias: bool,
) -> None:
    """Take the part of a step that lies in the rows; mean and penalty wait."""
    p, C = V.shape
    for k in range(p):
        i = rows[k]
        for q in range(indptr[i], indptr[i + 1]):
            x, w = eta * data[q], W[indices[q]]
            for c in range(C):
                w[c] -= x * V[k, c]
    if fit_bias:
        for c in range(C):
            total = mean_bias[c]
            for k in range(p):
                total += V[k, c]
            b[c] -= eta * total


@njit(nogil=True, cache=True)
def _descend(
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
    eta: float,
    l1: float,
    l2: float,
    fit_bias: bool,
    table: Float64Array,
    mean: Float64Array,
    mean_bias: Float64Array,
    moving: Float64Array,
    powers: Float64Array,
    sums: Float64Array,
) -> float:
    """As :meth:`SparseRows.descend`; returns the sum of the losses seen."""
    T, p = order.shape
    C = len(b)
    V, new, u = np.zeros((p, C)), np.zeros((p, C)), np.zeros(C)
    last = np.zeros(len(W), np.int64)
    seen = 0.0
    for t in range(T):
        for k in range(p):
            i = order[t, k]
            _slopes(
                kind, numbers, data, indices, indptr, Y, i, t, last, W, b, mean, eta, l1, l2,
                powers, sums, u, new[k],
            )  # fmt: skip
            seen += share[t, k] * value_of_row(kind, numbers, Y[i], u)
            for c in range(C):
                old = table[i, c] if len(table) else 0.0
                V[k, c] = share[t, k] * (new[k, c] - old)
        _step(data, indices, indptr, order[t], V, W, b, mean_bias, eta, fit_bias)
        if len(moving):
            for k in range(p):  # this step still has the old mean
                i = order[t, k]
                for q in range(indptr[i], indptr[i + 1]):
                    j = indices[q]
                    if last[j] == t:
                        _catch_up(j, 1, W, mean, eta, l1, l2, powers, sums)
                        last[j] = t + 1
            for k in range(p):
                i = order[t, k]
                for c in range(C):
                    change = moving[i] * (new[k, c] - table[i, c])
                    table[i, c] = new[k, c]
                    mean_bias[c] += change
                    u[c] = change
                for q in range(indptr[i], indptr[i + 1]):
                    x, m = data[q], mean[indices[q]]
                    for c in range(C):
                        m[c] += x * u[c]
    _flush(T, last, W, mean, eta, l1, l2, powers, sums)
    return seen


@njit(nogil=True, cache=True)
def _manifold(
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
    powers: Float64Array,
    sums: Float64Array,
) -> float:
    """As :meth:`SparseRows.descend_manifold`."""
    T, p = order.shape
    C, m, values = len(b), len(anchors), targets.shape[0]
    d = len(W)
    V, new, u = np.zeros((p, C)), np.zeros(C), np.zeros(C)
    ref, row = np.zeros(C), np.zeros(C)
    at = np.zeros((values, m, C))
    mean, mean_bias = np.zeros_like(W), np.zeros(C)
    last = np.zeros(d, np.int64)
    seen = 0.0
    for start in range(0, T, inner):
        stop = min(T, start + inner)
        mean[:] = offset
        mean_bias[:] = offset_bias
        for a in range(m):
            i = anchors[a]
            for c in range(C):
                u[c] = b[c]
            for q in range(indptr[i], indptr[i + 1]):
                x, w = data[q], W[indices[q]]
                for c in range(C):
                    u[c] += x * w[c]
            for v in range(values):
                slopes_of_row(kind, numbers, targets[v], u, row)
                for c in range(C):
                    at[v, a, c] = row[c]
                    e = c if product.shape[1] > 1 else 0
                    mean_bias[c] += row[c] * product_bias[v, e, a]
                if product.shape[1] > 1:
                    for j in range(d):
                        for c in range(C):
                            mean[j, c] += row[c] * product[v, c, a, j]
                else:
                    for j in range(d):
                        x = product[v, 0, a, j]
                        if x != 0.0:
                            for c in range(C):
                                mean[j, c] += row[c] * x
        last[:] = 0
        for t in range(start, stop):
            for k in range(p):
                i = order[t, k]
                _slopes(
                    kind, numbers, data, indices, indptr, Y, i, t - start, last, W, b, mean,
                    eta, l1, l2, powers, sums, u, new,
                )  # fmt: skip
                seen += share[t, k] * value_of_row(kind, numbers, Y[i], u)
                anchored(i, near, gamma, code, at, ref)
                for c in range(C):
                    V[k, c] = share[t, k] * (new[c] - ref[c] - spread[i, c])
            _step(data, indices, indptr, order[t], V, W, b, mean_bias, eta, fit_bias)
        _flush(stop - start, last, W, mean, eta, l1, l2, powers, sums)
    return seen


_NONE = np.zeros((0, 0))
_STILL = np.zeros(0)


class SparseRows:
    """CSR rows (n, d), float32 or float64, and what the linear solvers do with them.

    As :class:`~kernelgrad.solvers.linear._dense.DenseRows`; coefficients are (d, C).
    """

    is_sparse = True

    def __init__(self, X: Any) -> None:
        X = sp.csr_matrix(X)
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
        self.data = np.ascontiguousarray(X.data, dtype)
        self.indices, self.indptr = X.indices, X.indptr
        self.n, self.d = X.shape

    @property
    def row_size(self) -> float:
        """Mean number of stored entries of a row."""
        return len(self.data) / float(max(1, self.n))

    def native(self, coef: AnyArray) -> Float64Array:
        """Return a copy of coefficients (d, C) in the layout of the loops."""
        return np.array(coef, np.float64, order="C")

    def public(self, W: Float64Array) -> Float64Array:
        """Return a copy of coefficients of the loops as (d, C)."""
        return np.array(W, np.float64, order="C")

    def squared_norms(self) -> Float64Array:
        """Return the squared norm of each row, (n,)."""
        squares = np.append(self.data.astype(np.float64) ** 2, 0.0)
        sums = np.add.reduceat(squares, np.minimum(self.indptr[:-1], len(self.data)))
        return np.asarray(np.where(np.diff(self.indptr) > 0, sums, 0.0))

    def column_squares(self, share: Float64Array) -> Float64Array:
        """Return ``sum_i share_i x_ij^2``, (d,)."""
        weights = np.repeat(share, np.diff(self.indptr)) * self.data.astype(np.float64) ** 2
        found = np.bincount(self.indices, weights=weights, minlength=self.d)
        return np.asarray(found, np.float64)

    def _part(self, r: slice) -> tuple[AnyArray, AnyArray, AnyArray]:
        return self.data, self.indices, self.indptr[r.start : r.stop + 1]

    def responses(self, W: Float64Array, b: Float64Array) -> Float64Array:
        """Return ``X W + b``, (n, C)."""
        U = np.empty((self.n, len(b)))

        def task(t: int) -> None:
            r = slice(t * ROWS, min((t + 1) * ROWS, self.n))
            _responses(*self._part(r), W, b, U[r])

        parallel_for(-(-self.n // ROWS), task)
        return U

    def gradient(self, G: Float64Array) -> Float64Array:
        """Return ``sum_i x_i G_i`` in the layout of the loops."""
        C = G.shape[1]
        # each part is a whole array of coefficients: no more than the entries are worth
        count = int(np.clip(len(self.data) // max(1, self.d * C), 1, PARTS))
        parts = np.zeros((count, self.d, C))
        width = -(-self.n // count)

        def task(t: int) -> None:
            r = slice(min(t * width, self.n), min((t + 1) * width, self.n))
            _gradient(*self._part(r), G[r], parts[t])

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
        """Take T proximal steps in place; see DenseRows.

        Work is that of the stored entries, and once that of all coefficients.
        """
        if not len(mean_bias):
            mean, mean_bias = np.zeros_like(W), np.zeros_like(b)
        return float(
            _descend(
                kind, numbers, self.data, self.indices, self.indptr, Y, W, b, order, share,
                eta, l1, l2, fit_bias, table, mean, mean_bias, moving,
                *step_tables(len(order), eta, l2),
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
        """As :meth:`descend`, with references from an anchor graph; see DenseRows."""
        return float(
            _manifold(
                kind, numbers, self.data, self.indices, self.indptr, Y, W, b, order, share,
                eta, l1, l2, fit_bias, inner, graph.anchors, graph.near, graph.gamma,
                graph.code, graph.targets, graph.product, graph.product_bias, graph.offset,
                graph.offset_bias, graph.spread, *step_tables(inner, eta, l2),
            )
        )  # fmt: skip
