r"""Compiled loops of the linear solvers, on dense or CSR rows.

A linear function has responses ``u_i = x_i W + b``, (n, C). A stochastic step on the rows k of
a mini-batch, with shares s_k, is

.. math:: W \leftarrow \mathrm{prox}_{\eta R}\Bigl(W - \eta \bigl[ \sum_k s_k
          (l'(y_k, u_k) - r_k) x_k + M \bigr]\Bigr),
          \qquad R(W) = l_1 \|W\|_1 + \tfrac{l_2}{2} \|W\|^2.

The references r and their mean M reduce the variance: :class:`RowReferences` holds them, and
both are zero in plain stochastic gradients. The bias takes the same step without penalty. On
CSR rows only the columns of a mini-batch are touched: the others take all steps they have
missed at once, in closed form, when they are next needed.

The coefficients of C outputs have the shape (C, d) for dense rows, where loops run along
columns, and (d, C) for CSR rows, where the outputs of a stored entry are adjacent. This is the
*native* layout, which :func:`responses`, :func:`add_outer` and :func:`output` use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.rows import Csr, Dense, Rows, by_type, column, entries, entry
from kernelgrad.compute.threads import over_tiles, parallel_for
from kernelgrad.losses import scalar
from kernelgrad.types import Float64Array, IntArray

ROWS = 1024  # rows of a tile in a pass over all rows


@njit(nogil=True, cache=True)
def softmax_of_row(u: Float64Array, out: Float64Array) -> float:
    """Write ``softmax(u)`` to `out`; return ``log sum_c exp(u_c)``."""
    top, total = u.max(), 0.0
    for c in range(len(u)):
        out[c] = math.exp(u[c] - top)
        total += out[c]
    for c in range(len(u)):
        out[c] /= total
    return float(math.log(total) + top)


@njit(nogil=True, cache=True)
def slopes_of_row(
    code: int, params: Float64Array, y: Float64Array, u: Float64Array, out: Float64Array
) -> None:
    C = len(u)
    if code == scalar.MULTINOMIAL:
        softmax_of_row(u, out)
        for c in range(C):
            out[c] -= y[c]
        return
    for c in range(C):
        out[c] = scalar.slope(code, params[c], y[c], u[c])


@njit(nogil=True, cache=True)
def loss_of_row(
    code: int, params: Float64Array, y: Float64Array, u: Float64Array, out: Float64Array
) -> Any:
    """Write the slopes to `out`; return the value."""
    total = 0.0
    if code == scalar.MULTINOMIAL:
        for c in range(len(u)):
            total += y[c] * u[c]
        total = softmax_of_row(u, out) - total
        for c in range(len(u)):
            out[c] -= y[c]
        return total
    slopes_of_row(code, params, y, u, out)
    for c in range(len(u)):
        total += scalar.value(code, params[c], y[c], u[c])
    return total


@njit(nogil=True, cache=True)
def _losses(code: int, params: Any, Y: Any, U: Any, share: Any, G: Any) -> float:
    total = 0.0
    for i in range(len(U)):
        total += share[i] * loss_of_row(code, params, Y[i], U[i], G[i])
    return total


def losses(
    code: int, params: Float64Array, Y: Float64Array, U: Float64Array, share: Float64Array
) -> tuple[float, Float64Array]:
    """Return ``sum_i share_i l(y_i, u_i)`` and its derivatives (n, C)."""
    n = len(U)
    G = np.empty_like(U)
    parts = np.zeros(-(-n // ROWS))

    def task(t: int) -> None:
        r = slice(t * ROWS, (t + 1) * ROWS)
        parts[t] = _losses(code, params, Y[r], U[r], share[r], G[r])

    parallel_for(len(parts), task)
    return float(parts.sum()), G


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


responses = by_type({Dense: _dense_responses, Csr: _csr_responses})
add_outer = by_type({Dense: _dense_add_outer, Csr: _csr_add_outer})
# a view of the coefficients of output c, (d,)
output = by_type({Dense: lambda rows, W, c: W[c], Csr: lambda rows, W, c: W[:, c]})
# a float64 copy of coefficients (d, C) in the native layout, or the reverse
native = by_type(
    {
        Dense: lambda rows, W: np.array(W.T, np.float64, order="C"),
        Csr: lambda rows, W: np.array(W, np.float64, order="C"),
    }
)


_PARTS = 8  # largest number of partial sums, which must not depend on threads
_WORTH = 2**15  # stored entries that are worth a task of their own
_TOGETHER = 32  # rows that are added at once: their numbers stay in the nearest cache


# -- passes over all rows ------------------------------------------------------------------


@njit(nogil=True, cache=True, error_model="numpy")
def _responses(rows: Any, W: Any, b: Any, U: Any, start: int, stop: int) -> None:
    for i in range(start, stop):
        responses(rows, i, W, b, U[i])


@njit(nogil=True, cache=True, error_model="numpy")
def _add_rows(rows: Any, G: Any, start: int, stop: int, W: Any) -> None:
    which = np.arange(start, stop)
    for k in range(0, len(which), _TOGETHER):
        batch = which[k : k + _TOGETHER]
        add_outer(rows, batch, 1.0, G[batch[0] : batch[-1] + 1], W)


def all_responses(rows: Rows, n: int, W: Float64Array, b: Float64Array) -> Float64Array:
    """Return ``X W + b``, (n, C), of n rows."""
    U = np.empty((n, len(b)))
    step = max(256, _WORTH * n // max(1, rows[0].size))
    over_tiles(n, step, partial(_responses, rows, W, b, U))
    return U


def count_parts(n_entries: int, part_size: int) -> int:
    """Return how many partial sums, of `part_size` numbers each, rows of so many entries make.

    Summing the parts must cost no more than the entries do.
    """
    return int(np.clip(n_entries // max(_WORTH, part_size), 1, _PARTS))


def column_sums(rows: Rows, d: int, G: Float64Array) -> Float64Array:
    """Return ``sum_i x_i G_i`` of rows with d columns, for G (n, C), in the native layout."""
    n, C = G.shape
    count = count_parts(rows[0].size, d * C)
    parts = np.zeros((count, d, C) if isinstance(rows, Csr) else (count, C, d))
    width = -(-n // count)

    def task(t: int) -> None:
        _add_rows(rows, G, min(t * width, n), min((t + 1) * width, n), parts[t])

    parallel_for(count, task)
    return np.asarray(parts.sum(axis=0))


@njit(nogil=True, cache=True, error_model="numpy")
def row_squares(rows: Any, out: Float64Array) -> None:
    """Write ``|x_i|^2``, (n,)."""
    for i in range(len(out)):
        out[i] = 0.0
        for q in entries(rows, i):
            out[i] += np.float64(entry(rows, i, q)) ** 2


@njit(nogil=True, cache=True, error_model="numpy")
def moments(rows: Any, share: Any, centred: bool, stored: Any, mean: Any, spread: Any) -> None:
    """Count the stored entries of each column and add up its mean and spread, all (d,).

    Two passes, so that columns far from zero keep their spread. `share` sums to 1.
    """
    within, drift = np.zeros(len(mean)), np.zeros(len(mean))
    for i in range(len(share)):
        for q in entries(rows, i):
            j = column(rows, q)
            stored[j] += 1
            within[j] += share[i]
            if centred:
                mean[j] += share[i] * entry(rows, i, q)
    for i in range(len(share)):
        for q in entries(rows, i):
            j = column(rows, q)
            gap = entry(rows, i, q) - mean[j]
            drift[j] += share[i] * gap  # what rounding left of a mean: large for constants
            spread[j] += share[i] * gap**2
    for j in range(len(mean)):
        absent = max(1.0 - within[j], 0.0) if stored[j] < len(share) else 0.0
        move = drift[j] - absent * mean[j] if centred else 0.0
        spread[j] = np.sqrt(max(spread[j] + absent * mean[j] ** 2 - move**2, 0.0))
        mean[j] += move


# -- the penalty ---------------------------------------------------------------------------


class Prox(NamedTuple):
    """A step size, the penalty, and ``powers[k] = (1 + eta l2)^-k`` with their running sums."""

    eta: float
    l1: float
    l2: float
    powers: Float64Array
    sums: Float64Array

    @classmethod
    def make(cls, n_steps: int, eta: float, l1: float, l2: float) -> Prox:
        powers = (1.0 + eta * l2) ** -np.arange(n_steps + 1.0)
        return cls(eta, l1, l2, powers, np.cumsum(powers) - 1.0)


@njit(nogil=True, cache=True, error_model="numpy")
def shrink(w: float, eta: float, l1: float, l2: float) -> Any:
    """Return the proximal point of ``eta (l1 |w| + l2/2 w^2)``."""
    t = eta * l1
    if w > t:
        return (w - t) / (1.0 + eta * l2)
    if w < -t:
        return (w + t) / (1.0 + eta * l2)
    return 0.0


@njit(nogil=True, cache=True, error_model="numpy")
def missed_steps(
    w: float, mean: float, k: int, eta: float, l1: float, l2: float, powers: Any, sums: Any
) -> Any:
    """Return w after k steps ``w <- shrink(w - eta mean)``.

    On one side of zero a step is affine, so that k of them are
    ``powers[k] w - eta (mean +- l1) sums[k]`` with ``powers[k] = (1 + eta l2)^-k`` and
    ``sums[k] = powers[1] + ... + powers[k]``, as long as that has not reached zero.
    """
    while k > 0:
        if w == 0.0:
            if abs(mean) <= l1:
                return 0.0
            w = shrink(-eta * mean, eta, l1, l2)
            k -= 1
            continue
        c = eta * (mean + l1) if w > 0.0 else eta * (mean - l1)
        far = powers[k] * w - c * sums[k]
        if far * w > 0.0:
            return far
        low, high = 0, k  # the last step before zero lies in [low, high)
        while high - low > 1:
            middle = (low + high) // 2
            if (powers[middle] * w - c * sums[middle]) * w > 0.0:
                low = middle
            else:
                high = middle
        w = shrink(powers[low] * w - c * sums[low] - eta * mean, eta, l1, l2)
        k -= low + 1
    return w


@njit(nogil=True, cache=True, forceinline=True, error_model="numpy")
def _catch_up(columns: Any, W: Any, mean: Any, last: Any, t: int, prox: Any) -> None:
    """Bring columns up to step t."""
    eta, l1, l2, powers, sums = prox
    for j in columns:
        late = t - last[j]
        if late > 0:
            for c in range(W.shape[1]):  # no views of W, which would count references
                if l1 == 0.0:
                    W[j, c] = powers[late] * W[j, c] - eta * mean[j, c] * sums[late]
                else:
                    W[j, c] = missed_steps(W[j, c], mean[j, c], late, eta, l1, l2, powers, sums)
            last[j] = t


def _csr_settle(rows: Any, batch: Any, W: Any, mean: Any, last: Any, t: int, prox: Any) -> None:
    for i in batch if t > 0 else batch[:0]:
        columns = rows.indices[rows.indptr[i] : rows.indptr[i + 1]]
        _catch_up(columns, W, mean, last, t, prox)


def _dense_penalise(rows: Any, W: Any, mean: Any, prox: Any) -> None:
    eta, l1, l2 = prox.eta, prox.l1, prox.l2
    inverse = 1.0 / (1.0 + eta * l2)
    for c in range(len(W)):
        w, m = W[c], mean[c]
        if l1 == 0.0:
            for j in range(len(w)):
                w[j] = (w[j] - eta * m[j]) * inverse
        else:
            for j in range(len(w)):
                w[j] = shrink(w[j] - eta * m[j], eta, l1, l2)


_lags = by_type(
    {
        Dense: lambda rows, W: np.zeros(0, np.int64),
        Csr: lambda rows, W: np.zeros(len(W), np.int64),
    }
)
# bring the columns of rows (p,) up to step t
_settle = by_type({Dense: lambda rows, batch, W, mean, last, t, prox: None, Csr: _csr_settle})
_penalise = by_type({Dense: _dense_penalise, Csr: lambda rows, W, mean, prox: None})


# -- references ----------------------------------------------------------------------------


class RowReferences(NamedTuple):
    """A reference for each row: none in plain SGD, exact in SVRG."""

    mean: Float64Array  # sum_i p_i r_i x_i, in the native layout
    mean_bias: Float64Array  # sum_i p_i r_i, (C,)
    slopes: Float64Array  # r, (n, C), or (0, 0) for none
    every: int = 2**62  # steps after which the mean is renewed


def _references_at(r: Any, i: int, u: Any, out: Any) -> None:
    for c in range(len(out)):
        out[c] = r.slopes[i, c] if len(r.slopes) else 0.0


# A room that has other references adds its functions here; `renewals` recompute their mean.
renewals: dict[type, Callable[..., Any]] = {
    RowReferences: lambda r, code, numbers, rows, W, b: None
}
values: dict[type, Callable[..., Any]] = {RowReferences: _references_at}
_renew, _reference = by_type(renewals), by_type(values)


# -- stochastic steps ----------------------------------------------------------------------


@njit(nogil=True, cache=True, error_model="numpy")
def descend(
    code: int, numbers: Float64Array, rows: Any, Y: Float64Array, W: Float64Array,
    b: Float64Array, order: IntArray, share: Float64Array, prox: Any, fit_bias: bool, r: Any,
) -> float:  # fmt: skip
    """Take T proximal steps in place; return the sum of ``share`` times losses seen.

    Code and numbers (C,) are those of the loss, Y is (n, C), W in the native layout. Mini-batch
    t has the rows ``order[t]`` (p,), whose shares in the gradient sum to about 1. `prox` is for
    as many steps as lie between two renewals of the references r.
    """
    T, p = order.shape
    C = len(b)
    V, slope, u = np.zeros((p, C)), np.zeros(C), np.zeros(C)
    last = _lags(rows, W)
    columns = np.arange(len(last), dtype=np.int32)
    seen = 0.0
    every = min(T, r.every)
    for start in range(0, T, every):
        _renew(r, code, numbers, rows, W, b)
        n_steps = min(every, T - start)
        for t in range(n_steps):
            batch, part = order[start + t], share[start + t]
            _settle(rows, batch, W, r.mean, last, t, prox)
            for k in range(p):
                i = batch[k]
                responses(rows, i, W, b, u)
                seen += part[k] * loss_of_row(code, numbers, Y[i], u, slope)
                _reference(r, i, u, V[k])
                for c in range(C):
                    V[k, c] = part[k] * (slope[c] - V[k, c])
            add_outer(rows, batch, -prox.eta, V, W)
            _penalise(rows, W, r.mean, prox)
            if fit_bias:
                for c in range(C):
                    total = r.mean_bias[c]
                    for k in range(p):
                        total += V[k, c]
                    b[c] -= prox.eta * total
        _catch_up(columns, W, r.mean, last, n_steps, prox)
        last[:] = 0
    return seen
