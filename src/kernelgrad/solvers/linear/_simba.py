r"""Primal-dual iterations for the slack-constrained linear SVM, on dense rows and on CSR.

With rows z_i of length at most 1, ``S = sum_t y_i z_i`` over the rows drawn so far and weights
q of the rows, an iteration for the horizon T is

.. math:: w = \frac{S}{\max(\sqrt{2T}, |S|)}, \quad j \sim w_j^2, \quad
          v_i = \mathrm{clip}\Bigl(y_i z_{ij} \frac{|w|^2}{w_j} + \xi_i + y_i b,
          \frac{1}{\eta}\Bigr), \quad
          q_i \leftarrow q_i (1 - \eta v_i + \eta^2 v_i^2)

with the next row drawn in proportion to ``s_i q_i``, s the sample weights. The slack xi and
the bias b answer q at their best: xi is 2 on the rows with the largest q and b the sign of
``sum_i s_i q_i y_i``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit

from kernelgrad._typing import AnyArray, Float64Array
from kernelgrad.solvers.linear._steps import FAST

_BLOCK = 256  # rows with one partial sum of weights
_LEAST = 1e-30  # of q, whose mean is 1: such a row takes no part, and can come back
_SLACK = 2.0  # the largest of a row


class Columns:
    """A copy of the rows by columns.

    Parameters
    ----------
    rows : DenseRows or SparseRows
    """

    def __init__(self, rows: Any) -> None:
        self.is_sparse = bool(rows.is_sparse)
        if self.is_sparse:
            parts = (rows.data, rows.indices, rows.indptr)
            X = sp.csr_matrix(parts, shape=(rows.n, rows.d)).tocsc()
            self.data, self.indices, self.indptr = X.data, X.indices, X.indptr
        else:
            self.X = np.ascontiguousarray(rows.X.T)


@njit(nogil=True, cache=True)
def _split(
    q: Float64Array, s: Float64Array, volume: float, guess: float, ratio: float
) -> tuple[float, float]:
    """Return (level, part): rows with q above the level have slack 2, those at it `part`.

    The slack of all is ``sum_i s_i xi_i = volume``. Only rows between ``guess / ratio`` and
    ``guess ratio`` are sorted, and more where the level is not among them.
    """
    room = volume / _SLACK
    low, high = guess / ratio, guess * ratio
    near = np.empty(len(q), np.int64)
    while True:
        above, inside, m = 0.0, 0.0, 0
        for i in range(len(q)):
            near[m] = i
            within = low <= q[i] <= high
            m += within
            inside += s[i] if within else 0.0
            above += s[i] if q[i] > high else 0.0
        if above <= room < above + inside:
            break
        if low == 0.0 and high == math.inf:
            return -1.0, 0.0  # there is slack for all
        ratio = ratio**4
        low, high = guess / ratio, guess * ratio
        if ratio > 1e3:
            low, high = 0.0, math.inf
    values = q[near[:m]]
    order = np.argsort(values)
    left, k = room - above, m - 1
    while True:
        level, mass = values[order[k]], 0.0
        while k >= 0 and values[order[k]] == level:
            mass += s[near[order[k]]]
            k -= 1
        if left < mass or k < 0:
            return level, _SLACK * (left / mass if left < mass else 1.0)
        left -= mass


@njit(nogil=True, cache=True, fastmath=FAST)
def _masses(q: AnyArray, s: AnyArray, y: AnyArray) -> tuple[float, float]:
    """Return ``sum s q`` and ``sum s q y``."""
    total, signed = 0.0, 0.0
    for i in range(len(q)):
        total += s[i] * q[i]
        signed += s[i] * q[i] * y[i]
    return total, signed


@njit(nogil=True, cache=True, fastmath={"contract", "nsz"})
def _discount(
    q: Float64Array,
    y: Float64Array,
    column: Float64Array,
    level: float,
    part: float,
    b: float,
    eta: float,
    norm: float,
) -> None:
    """Multiply q by ``norm (1 - eta v + eta^2 v^2)``; `column` is ``z_ij |w|^2 / w_j``."""
    top = 1.0 / eta
    for i in range(len(q)):
        slack = _SLACK if q[i] > level else (part if q[i] == level else 0.0)
        v = y[i] * (column[i] + b) + slack
        v = eta * min(max(v, -top), top)
        q[i] = max(q[i] * norm * (1.0 - v + v * v), _LEAST)


@njit(nogil=True, cache=True)
def _row_at(q: Float64Array, s: Float64Array, sums: Float64Array, target: float) -> int:
    """Return the first row where the running sum of ``s q`` is above the target."""
    block = 0
    for k in range(len(sums)):
        if sums[k] > 0.0:
            block = k
            if target < sums[k]:
                break
            target -= sums[k]
    found = -1
    for i in range(block * _BLOCK, min((block + 1) * _BLOCK, len(q))):
        if s[i] > 0.0:
            found = i
            target -= s[i] * q[i]
            if target < 0.0:
                break
    return found


@njit(nogil=True, cache=True)
def _coordinate_at(S: Float64Array, target: float) -> int:
    """Return the first coordinate where the running sum of squares is above the target."""
    found = -1
    for j in range(len(S)):
        if S[j] != 0.0:
            found = j
            target -= S[j] * S[j]
            if target < 0.0:
                break
    return found


@njit(nogil=True, cache=True)
def _iterate(
    sparse: bool,
    X: AnyArray,
    XT: AnyArray,
    data: AnyArray,
    indices: AnyArray,
    indptr: AnyArray,
    column_data: AnyArray,
    column_indices: AnyArray,
    column_indptr: AnyArray,
    y: Float64Array,
    s: Float64Array,
    shrink: float,
    volume: float,
    fit_bias: bool,
    uniform: Float64Array,
    first: int,
    eta: float,
    root: float,
    q: Float64Array,
    S: Float64Array,
    average: Float64Array,
) -> None:
    n, d = len(q), len(S)
    blocks = -(-n // _BLOCK)
    sums, column = np.zeros(blocks), np.zeros(n)
    level = 1.0
    for t in range(len(uniform)):
        total, signed = 0.0, 0.0
        for k in range(blocks):
            r = slice(k * _BLOCK, min((k + 1) * _BLOCK, n))
            sums[k], more = _masses(q[r], s[r], y[r])
            total += sums[k]
            signed += more
        i = _row_at(q, s, sums, uniform[t, 0] * total)
        if sparse:
            for e in range(indptr[i], indptr[i + 1]):
                S[indices[e]] += y[i] * shrink * data[e]
        else:
            for j in range(d):
                S[j] += y[i] * shrink * X[i, j]
        square = 0.0
        for j in range(d):
            square += S[j] * S[j]
        length = max(root, math.sqrt(square))
        # weights of iterates grow as their number: the average is that of all before
        share = 2.0 / (first + t + 2.0)
        for j in range(d):
            average[j] += share * (S[j] / length - average[j])
        j = _coordinate_at(S, uniform[t, 1] * square)
        column[:] = 0.0
        if j >= 0:
            factor = shrink * (square / S[j]) / length
            if sparse:
                for e in range(column_indptr[j], column_indptr[j + 1]):
                    column[column_indices[e]] = factor * column_data[e]
            else:
                for k in range(n):
                    column[k] = factor * XT[j, k]
        level, part = _split(q, s, volume, level, 1.0 + eta)
        b = np.sign(signed) if fit_bias else 0.0
        _discount(q, y, column, level, part, b, eta, n / total)


def iterate(
    rows: Any,
    columns: Columns,
    y: Float64Array,
    s: Float64Array,
    shrink: float,
    volume: float,
    fit_bias: bool,
    uniform: Float64Array,
    first: int,
    eta: float,
    root: float,
    q: Float64Array,
    S: Float64Array,
    average: Float64Array,
) -> None:
    """Take iterations in place on q, S and the average of w.

    Parameters
    ----------
    rows, columns
        The data in both layouts.
    y, s : float64 arrays (n,)
        Targets -1/+1 and sample weights of mean 1.
    shrink : float
        z is this times the row.
    volume : float
        Of the slack, ``sum_i s_i xi_i``.
    fit_bias : bool
    uniform : float64 array (T, 2)
        Uniform numbers that draw row and coordinate.
    first : int
        Iterations before these, in the average.
    eta, root : float
        Step of q, and the square root of twice the horizon.
    q : float64 array (n,)
    S, average : float64 arrays (d,)
    """
    dtype = rows.data.dtype if rows.is_sparse else rows.X.dtype
    none, whole = np.zeros(0, dtype), np.zeros((0, 0), dtype)
    tail = (y, s, shrink, volume, fit_bias, uniform, first, eta, root, q, S, average)
    if columns.is_sparse:
        own = (rows.data, rows.indices, rows.indptr)
        other = (columns.data, columns.indices, columns.indptr)
        _iterate(True, whole, whole, *own, *other, *tail)
    else:
        at = np.zeros(0, np.int32)
        _iterate(False, rows.X, columns.X, none, at, at, none, at, at, *tail)
