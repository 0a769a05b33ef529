r"""Loops of the linear solvers that move blocks of columns.

:class:`DenseBlocks` and :class:`SparseBlocks` hold rows cut into blocks B of adjacent columns
and descend on one block at a time, with the responses U of all rows at hand. With
``g = X_B^T (p l'(U))`` and ``A = X_B^T diag(p h) X_B``, for curvatures h of the rows at U, a
block goes towards the minimum of its model,

.. math:: \min_D \langle g, D \rangle + \tfrac12 \langle D, A D \rangle + R(W_B + D),

as far as ``W_B + t D`` with the first ``t = 1, 1/2, 1/4, ...`` whose objective falls by at
least a tenth of what the slope promises (Tseng and Yun, 2009): no block raises the objective.
The model is invariant to scaling and shifting columns: the bias is eliminated by a Schur
complement, ``A - a a^T / h`` for its row ``(a, h)`` of A, and columns far from zero are moved
to a mean of about zero in the copy of the rows.

The outputs of a separable loss have each a model and a t of their own; those of MULTINOMIAL
have each a model and share t, with ``h_c = 2 q_c (1 - q_c)`` for probabilities q: this diagonal
bounds the second derivative ``diag(q) - q q^T``.

h is the second derivative, where it does not vanish: of LOGISTIC, POISSON and GAMMA at least
1e-6, and of the piecewise quadratic losses and MODIFIED at least the share `_FLAT` of the
largest one; HUBER has ``min(1, delta / |z|)``, whose parabola lies above the loss.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.rows import FAST, Csr, Dense, Rows, column, entries, entry
from kernelgrad.compute.threads import over_tiles, parallel_for
from kernelgrad.linear.loops import shrink
from kernelgrad.losses import scalar
from kernelgrad.types import AnyArray, Float64Array, IntArray

PARTS = 8

_FLAT = 1e-3
_LEAST = 1e-6
_ENOUGH = 0.1  # of the promised decrease
_HALVINGS = 40
_SWEEPS = 500  # over the columns of a block with an L1 penalty
_SETTLED = 1e-4  # of the first sweep's largest change
_PIVOT = 1e-13  # of a column's own diagonal entry: least pivot
_TINY = 1e-300
_FAR = 16.0  # mean over standard deviation from which columns are moved
_STILL = 1e-12  # standard deviation over mean of a column that is a constant
_TILE = 2**17  # numbers of a tile of dense rows: 1 MiB
_BIAS_ROWS = 4.0  # rows moved, over n, between two visits of a bias apart


# -- the loss at the responses ---------------------------------------------------------


class Targets(NamedTuple):
    """Code and numbers (C,) of the loss, targets Y (n, C) and shares (n,) of the rows."""

    code: int
    numbers: Float64Array
    Y: Float64Array
    share: Float64Array


class Point(NamedTuple):
    """Responses U (n, C); values V, derivatives G and curvatures H of the loss there.

    V is (n, C), of MULTINOMIAL (n, 1); G and H are (n, C).
    """

    U: Float64Array
    V: Float64Array
    G: Float64Array
    H: Float64Array


@njit(nogil=True, cache=True)
def _point(code: int, number: float, y: float, u: float) -> Any:
    if code == scalar.LOGISTIC:  # as in the table, with one exponential for all three
        m = y * u
        e = math.exp(-abs(m))
        s = 1.0 / (1.0 + e)
        wrong = e * s if m > 0.0 else s
        return math.log1p(e) + max(-m, 0.0), -y * wrong, max(s * e * s, _LEAST)
    v, g = scalar.value(code, number, y, u), scalar.slope(code, number, y, u)
    if code == scalar.SQUARED:
        return v, g, 1.0
    if code == scalar.HUBER:
        return v, g, scalar.curvature(code, number, y, u, 1.0, 1.0)
    if code in (scalar.POISSON, scalar.GAMMA):
        return v, g, max(scalar.curvature(code, number, y, u, 1.0, 0.0), _LEAST)
    if code == scalar.SQUARED_HINGE:
        largest = 2.0
    else:
        largest = 0.25 * number if code == scalar.MODIFIED else 1.0 / number
    return v, g, max(scalar.curvature(code, number, y, u, 1.0, 0.0), _FLAT * largest)


@njit(nogil=True, cache=True)
def _look(loss: Any, i: int, at: Any, r: int) -> None:
    code, y, u, v, g, h = loss.code, loss.Y[i], at.U[r], at.V[r], at.G[r], at.H[r]
    if code == scalar.MULTINOMIAL:  # likewise
        total, chosen = scalar.softmax_of_row(u, g), 0.0
        for c in range(len(u)):
            h[c] = max(2.0 * g[c] * (1.0 - g[c]), _LEAST)
            g[c] -= y[c]
            chosen += y[c] * u[c]
        v[0] = total - chosen
        return
    for c in range(len(u)):
        v[c], g[c], h[c] = _point(code, loss.numbers[c], y[c], u[c])


@njit(nogil=True, cache=True)
def _look_at_all(loss: Any, start: int, stop: int, at: Any) -> None:
    for i in range(start, stop):
        _look(loss, i, at, i)


class LossState:
    """Responses U of all rows, which loops write to, with the loss at each; see `Point`."""

    def __init__(
        self, code: int, numbers: Float64Array, Y: Float64Array, U: Float64Array,
        share: Float64Array,
    ) -> None:  # fmt: skip
        self.targets = Targets(code, numbers, Y, share)
        V = np.empty((len(U), 1 if code == scalar.MULTINOMIAL else U.shape[1]))
        self.at = Point(U, V, np.empty_like(U), np.empty_like(U))
        over_tiles(len(U), scalar.ROWS, lambda a, z: _look_at_all(self.targets, a, z, self.at))

    def losses(self) -> Float64Array:
        """Return ``sum_i p_i l(y_i, u_i)`` of each output; of MULTINOMIAL one number."""
        return np.asarray(self.targets.share @ self.at.V)

    def slack(self) -> Float64Array:
        """Return what rounding makes of these sums."""
        return np.asarray(4.0 * np.finfo(np.float64).eps * self.losses())


# -- the model of a block --------------------------------------------------------------


@njit(nogil=True, cache=True)
def _least(w: float, g: float, l1: float, l2: float) -> float:
    """Return the size of the least subgradient in one coefficient."""
    g += l2 * w
    if w != 0.0:
        return abs(g + math.copysign(l1, w))
    return max(abs(g) - l1, 0.0)


@njit(nogil=True, cache=True)
def _violation(
    W: Any, grad: Any, mean: Any, scale: Any, joint: bool, l1: float, l2: float
) -> float:
    """Return the largest least subgradient of a block of standardised columns.

    W is (k, C), grad (C, k + joint); mean and scale of the columns in the copy are (k,).
    """
    worst, k = 0.0, len(W)
    for c in range(len(grad)):
        rest = 0.0
        if joint:
            rest = grad[c, k]
            worst = max(worst, abs(rest))
        for j in range(k):
            least = _least(W[j, c], grad[c, j] - mean[j] * rest, l1, l2)
            worst = max(worst, least / scale[j])
    return worst


@njit(nogil=True, cache=True, fastmath=FAST, forceinline=True)
def _dot(a: AnyArray, b: Float64Array) -> float:
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@njit(nogil=True, cache=True)
def _newton(A: Any, grad: Any, w: Any, least: Any, l2: float, D: Any) -> None:
    """Write the minimum of the model without L1: ``-(A + l2)^-1 (grad + l2 w)``; A is used up.

    Pivots are at least `least`: linearly dependent columns move little.
    """
    k = len(w)
    for j in range(k):  # Cholesky by rows, and the forward solution with it
        D[j] = -grad[j] - l2 * w[j]
        for q in range(j):
            A[j, q] = (A[j, q] - _dot(A[j, :q], A[q, :q])) / A[q, q]
            D[j] -= A[j, q] * D[q]
        s = A[j, j] + l2 - _dot(A[j, :j], A[j, :j])
        A[j, j] = math.sqrt(max(s, least[j]))
        D[j] /= A[j, j]
    for j in range(k - 1, -1, -1):
        for q in range(j + 1, k):
            D[j] -= A[q, j] * D[q]
        D[j] /= A[j, j]


@njit(nogil=True, cache=True)
def _lasso(A: Any, grad: Any, w: Any, least: Any, l1: float, l2: float, D: Any) -> None:
    k = len(w)
    q = grad.copy()  # of the smooth part of the model, without penalty
    D[:] = 0.0
    first = 0.0
    for sweep in range(_SWEEPS):
        largest = 0.0
        for j in range(k):
            a = max(A[j, j], least[j])
            z = w[j] + D[j]
            change = shrink(z - q[j] / a, 1.0 / a, l1, l2) - z
            if change != 0.0:
                D[j] += change
                largest = max(largest, abs(change) * math.sqrt(a))
                for r in range(k):
                    q[r] += A[j, r] * change
        if sweep == 0:
            first = largest
        if largest <= _SETTLED * first:
            break


@njit(nogil=True, cache=True)
def _directions(
    A: Float64Array, grad: Float64Array, W: Any, k: int, l1: float, l2: float, D: Any
) -> None:
    """Write the minimum of the model of each output; A (C, m, m), grad and D (C, m), W (k, C).

    Rounding may leave the model's minimum no better than zero; D is zero then. A is used up.
    """
    m = grad.shape[1]
    w, g, least, move = np.empty(k), np.empty(k), np.empty(k), np.empty(k)
    for c in range(len(grad)):
        a = A[c]
        for j in range(k):
            w[j], g[j] = W[j, c], grad[c, j]
            least[j] = max(_PIVOT * (a[j, j] + l2), _TINY)
        if m > k:
            for j in range(k):
                share = a[k, j] / a[k, k]
                g[j] -= share * grad[c, k]
                for q in range(k):
                    a[j, q] -= share * a[k, q]
        if l1 == 0.0:
            _newton(a, g, w, least, l2, move)
        else:
            _lasso(a, g, w, least, l1, l2, move)
        for j in range(k):
            D[c, j] = move[j]
        if m > k:
            total = grad[c, k]
            for j in range(k):
                total += a[k, j] * move[j]
            D[c, k] = -total / a[k, k]
        if not _promise(grad[c], w, D[c], 1.0, l1, l2)[0] < 0.0:
            D[c, :] = 0.0


@njit(nogil=True, cache=True)
def _promise(grad: Any, w: Any, D: Any, t: float, l1: float, l2: float) -> Any:
    """Return ``t <grad, D> + R(w + t D) - R(w)`` and its penalty alone."""
    linear, penalty = 0.0, 0.0
    for j in range(len(grad)):
        step = t * D[j]
        linear += grad[j] * step
        if j < len(w):
            old, new = w[j], w[j] + step
            penalty += l1 * (abs(new) - abs(old)) + 0.5 * l2 * step * (new + old)
    return linear + penalty, penalty


@njit(nogil=True, cache=True)
def _shorten(
    grad: Any, W: Any, D: Any, t: Any, change: Any, slack: Any, l1: float, l2: float
) -> bool:
    """Halve the steps t (C,) that the loss's `change` (C or 1) does not bear out."""
    C = len(t)
    joined = len(change) < C
    w = np.empty(len(W))
    promised, penalties = np.zeros(C), np.zeros(C)
    for c in range(C):
        for j in range(len(w)):
            w[j] = W[j, c]
        promised[c], penalties[c] = _promise(grad[c], w, D[c], t[c], l1, l2)
    short = False
    if joined:
        if change[0] + penalties.sum() > _ENOUGH * promised.sum() + slack[0]:
            t *= 0.5
            short = True
    else:
        for c in range(C):
            if change[c] + penalties[c] > _ENOUGH * promised[c] + slack[c]:
                t[c] *= 0.5
                short = True
    return short


# -- where columns are -----------------------------------------------------------------


@njit(nogil=True, cache=True, error_model="numpy")
def _moments(rows: Any, share: Any, centred: bool, stored: Any, mean: Any, spread: Any) -> None:
    """Count the stored entries of each column and add up its mean and spread, all (d,)."""
    total = share.sum()
    within = np.zeros(len(mean))  # weight of the stored entries
    for i in range(len(share)):
        for q in entries(rows, i):
            j = column(rows, q)
            stored[j] += 1
            within[j] += share[i]
            if centred:
                mean[j] += share[i] * entry(rows, i, q) / total
    drift = np.zeros(len(mean))  # what rounding left of a mean: large for constant columns
    for i in range(len(share)):
        for q in entries(rows, i):
            j = column(rows, q)
            gap = entry(rows, i, q) - mean[j]
            drift[j] += share[i] * gap
            spread[j] += share[i] * gap**2
    for j in range(len(mean)):
        absent = max(total - within[j], 0.0) if stored[j] < len(share) else 0.0
        move = (drift[j] - absent * mean[j]) / total if centred else 0.0
        square = spread[j] + absent * mean[j] ** 2 - total * move**2
        mean[j] += move
        spread[j] = math.sqrt(max(square, 0.0))


class _Blocks:
    """Blocks of adjacent columns, with moments of the columns.

    ``mean`` and ``scale`` are weighted mean and spread of the columns (without a bias zero and
    root mean square), the scale 1 of columns that are constant; ``shift``, a number of the
    dtype, is what the copy is less than the rows: 0 unless all entries are stored and the mean
    is beyond 16 spreads; ``rest`` is the mean of the copy; ``constant`` columns equal their
    shift but for rounding. All are (d,); `shifted` are the blocks with a shift.
    """

    def __init__(
        self, rows: Rows, d: int, block_size: int, fit_bias: bool, share: Float64Array
    ) -> None:
        self.first = np.append(np.arange(0, d, block_size), d)
        stored, mean, spread = np.zeros(d, np.int64), np.zeros(d), np.zeros(d)
        _moments(rows, share, fit_bias, stored, mean, spread)
        movable = (stored == len(share)) & fit_bias
        far = movable & (np.abs(mean) > _FAR * spread)
        self.mean = mean
        self.constant = far & (spread <= _STILL * np.abs(mean))
        self.scale = np.where(self.constant | ~(spread > 0.0), 1.0, spread)
        self.shift = np.where(far, mean, 0.0).astype(rows[0].dtype).astype(np.float64)
        self.rest = np.where(self.constant, 0.0, mean - self.shift)
        self.shifted = np.unique(np.flatnonzero(self.shift) // block_size).tolist()

    @property
    def n_blocks(self) -> int:
        return len(self.first) - 1


# -- dense rows ------------------------------------------------------------------------


@njit(nogil=True, cache=True, fastmath=FAST)
def _moves(X: AnyArray, D: Float64Array, dU: Float64Array, start: int, stop: int) -> None:
    """Write ``X D^T``, with the last of D for a column of ones if D has one more than X."""
    k = X.shape[1]
    for c in range(len(D)):
        d = D[c]
        shift = d[k] if len(d) > k else 0.0
        for i in range(start, stop):
            s = shift
            for j in range(k):
                s += X[i, j] * d[j]
            dU[i, c] = s


@njit(nogil=True, cache=True)
def _try(
    loss: Any, at: Any, dU: Any, t: Any, new: Any, changes: Any, start: int, stop: int
) -> None:
    change = changes[start // scalar.ROWS]
    change[:] = 0.0
    for i in range(start, stop):
        for c in range(dU.shape[1]):
            new.U[i, c] = at.U[i, c] + t[c] * dU[i, c]
        _look(loss, i, new, i)
        for c in range(len(change)):
            change[c] += loss.share[i] * (new.V[i, c] - at.V[i, c])


class DenseBlocks(_Blocks):
    """Dense rows (n, d) as a copy in blocks of columns; the bias moves with every block."""

    def __init__(
        self, rows: Dense, d: int, block_size: int, fit_bias: bool, share: Float64Array
    ) -> None:
        super().__init__(rows, d, block_size, fit_bias, share)
        X = rows.values
        self.fit_bias = fit_bias
        self.blocks = [np.ascontiguousarray(X[:, a:z]) for a, z in pairwise(self.first)]
        for i in self.shifted:
            cols = slice(self.first[i], self.first[i + 1])
            # all columns in one block are the rows themselves
            self.blocks[i] = self.blocks[i] - self.shift[cols].astype(X.dtype)
            self.blocks[i][:, self.constant[cols]] = 0.0
        self._constant: dict[int, Float64Array] = {}  # A of the squared loss

    def _tiles(self, part: int, n: int, k: int) -> Any:
        width = -(-n // PARTS)
        step = max(1, _TILE // max(k, 1))
        for start in range(part * width, min((part + 1) * width, n), step):
            yield slice(start, min(start + step, (part + 1) * width, n))

    def _gradient(self, X: AnyArray, f: LossState) -> Float64Array:
        """Return g (C, k + bias)."""
        k, C = X.shape[1], f.at.U.shape[1]
        parts = np.zeros((PARTS, C, k + self.fit_bias))

        def task(part: int) -> None:
            for r in self._tiles(part, len(X), k):
                g = f.targets.share[r, None] * f.at.G[r]
                parts[part, :, :k] += g.T @ np.asarray(X[r], np.float64)
                if self.fit_bias:
                    parts[part, :, k] += g.sum(axis=0)

        parallel_for(PARTS, task)
        return np.asarray(parts.sum(axis=0))

    def _curvature(self, i: int, f: LossState) -> Float64Array:
        """Return A (C, m, m) with m = k + bias."""
        if i in self._constant:
            return self._constant[i].copy()
        X = self.blocks[i]
        k, C = X.shape[1], f.at.U.shape[1]
        parts = np.zeros((PARTS, C, k + self.fit_bias, k + self.fit_bias))

        def task(part: int) -> None:
            A = parts[part]
            for r in self._tiles(part, len(X), k):
                rows = np.asarray(X[r], np.float64)
                for c in range(1 if f.targets.code == scalar.SQUARED else C):
                    root = np.sqrt(f.targets.share[r] * f.at.H[r, c])
                    S = rows * root[:, None]
                    A[c, :k, :k] += S.T @ S
                    if self.fit_bias:
                        A[c, k, :k] += root @ S
                        A[c, k, k] += root @ root

        parallel_for(PARTS, task)
        found = np.asarray(parts.sum(axis=0))
        found[:, :k, k:] = found[:, k:, :k].transpose(0, 2, 1)
        if f.targets.code == scalar.SQUARED:
            found[1:] = found[0]
            self._constant[i] = found.copy()
        return found

    def descend(
        self,
        f: LossState,
        W: Float64Array,
        b: Float64Array,
        order: IntArray,
        l1: float,
        l2: float,
        quiet: float = 0.0,
    ) -> tuple[float, float]:
        """Descend on each block of `order` in turn, W (d, C) and b (C,) in place.

        A block whose least subgradient is nowhere larger than `quiet` stays.

        Returns
        -------
        violation : float
            The largest least subgradient met, of each block as it was visited. Those of
            coefficients are with respect to columns less their `mean`, over their `scale`.
        shortest : float
            The smallest share of a direction that was taken.
        """
        n, slack = len(f.at.U), f.slack()
        spare, dU = Point(*(np.empty_like(a) for a in f.at)), np.empty_like(f.at.U)
        violation, shortest = 0.0, 1.0
        for i in order.tolist():
            X, cols = self.blocks[i], slice(self.first[i], self.first[i + 1])
            k = X.shape[1]
            grad = self._gradient(X, f)
            found = _violation(
                W[cols], grad, self.rest[cols], self.scale[cols], self.fit_bias, l1, l2
            )
            violation = max(violation, found)
            if found <= quiet:
                continue
            D = np.zeros_like(grad)
            _directions(self._curvature(i, f), grad, W[cols], k, l1, l2, D)
            if not D.any():
                continue
            over_tiles(n, scalar.ROWS, partial(_moves, X, D, dU))
            t, changes = np.ones(W.shape[1]), np.zeros((-(-n // scalar.ROWS), f.at.V.shape[1]))

            attempt = partial(_try, f.targets, f.at, dU, t, spare, changes)
            for _ in range(_HALVINGS):
                over_tiles(n, scalar.ROWS, attempt)
                if not _shorten(grad, W[cols], D, t, changes.sum(axis=0), slack, l1, l2):
                    break
            else:
                continue
            shortest = min(shortest, float(t.min()))
            W[cols] += (t[:, None] * D[:, :k]).T
            if self.fit_bias:
                b += t * (D[:, k] - D[:, :k] @ self.shift[cols])
            f.at, spare = spare, f.at
        return violation, shortest


# -- CSR rows --------------------------------------------------------------------------


class Cut(NamedTuple):
    """Rows of one block of columns, or of all blocks one after the other.

    Row r has the entries ``ptr[r], ..., ptr[r + 1] - 1`` of X, in columns `local` of the block,
    and is row ``rows[r]`` of the whole; rest, scale and shift are as in :class:`_Blocks`.
    """

    X: AnyArray
    local: IntArray
    rows: IntArray
    ptr: IntArray
    rest: Float64Array
    scale: Float64Array
    shift: Float64Array


@njit(nogil=True, cache=True)
def _sparse_step(
    loss: Any, at: Any, new: Any, W: Any, b: Float64Array, cut: Any, joint: bool, l1: float,
    l2: float, quiet: float, slack: Float64Array,
) -> Any:  # fmt: skip
    k, C = W.shape
    m = k + 1 if joint else k
    X, local, rows, ptr = cut.X, cut.local, cut.rows, cut.ptr
    share, U, V, G, H = loss.share, at.U, at.V, at.G, at.H
    grad = np.zeros((C, m))
    for r in range(len(rows)):
        i = rows[r]
        p = share[i]
        for q in range(ptr[r], ptr[r + 1]):
            j, x = local[q], p * X[q]
            for c in range(C):
                grad[c, j] += x * G[i, c]
        if joint:
            for c in range(C):
                grad[c, k] += p * G[i, c]
    violation = _violation(W, grad, cut.rest, cut.scale, joint, l1, l2)
    if violation <= quiet:
        return violation, 1.0
    A = np.zeros((C, m, m))
    for r in range(len(rows)):
        i = rows[r]
        for c in range(C):
            h, a = share[i] * H[i, c], A[c]
            for q in range(ptr[r], ptr[r + 1]):
                x, row = h * X[q], a[local[q]]
                for s in range(ptr[r], q + 1):  # columns ascend: the lower triangle
                    row[local[s]] += x * X[s]
                if joint:
                    a[k, local[q]] += x
            if joint:
                a[k, k] += h
    for c in range(C):
        for j in range(m):
            for q in range(j):
                A[c, q, j] = A[c, j, q]
    D = np.zeros((C, m))
    _directions(A, grad, W, k, l1, l2, D)
    if not np.any(D):
        return violation, 1.0
    t, change = np.ones(C), np.zeros(V.shape[1])
    for _ in range(_HALVINGS):
        change[:] = 0.0
        for r in range(len(rows)):
            i = rows[r]
            for c in range(C):
                move = D[c, k] if joint else 0.0
                for q in range(ptr[r], ptr[r + 1]):
                    move += X[q] * D[c, local[q]]
                new.U[r, c] = U[i, c] + t[c] * move
            _look(loss, i, new, r)
            for c in range(len(change)):
                change[c] += share[i] * (new.V[r, c] - V[i, c])
        if not _shorten(grad, W, D, t, change, slack, l1, l2):
            for r in range(len(rows)):
                i = rows[r]
                U[i], V[i], G[i], H[i] = new.U[r], new.V[r], new.G[r], new.H[r]
            for c in range(C):
                for j in range(k):
                    W[j, c] += t[c] * D[c, j]
                    if joint:
                        b[c] -= t[c] * D[c, j] * cut.shift[j]
                if joint:
                    b[c] += t[c] * D[c, k]
            return violation, t.min()
    return violation, 0.0


@njit(nogil=True, cache=True)
def _sparse_descend(
    loss: Any, at: Any, W: Float64Array, b: Float64Array, blocks: Any, start: IntArray,
    first: IntArray, whole: AnyArray, order: IntArray, apart: bool, l1: float, l2: float,
    quiet: float, slack: Float64Array,
) -> Any:  # fmt: skip
    n = len(at.U)
    new = Point(
        np.empty_like(at.U), np.empty_like(at.V), np.empty_like(at.G), np.empty_like(at.H)
    )
    X, local, rows, ptr, rest, scale, shift = blocks
    bias = Cut(
        X, local, np.arange(n), np.zeros(n + 1, np.int64), rest[:0], scale[:0], shift[:0]
    )
    violation, shortest, moved = 0.0, 1.0, 0.0
    for turn in range(len(order) + 1):
        if apart and (turn == len(order) or moved >= _BIAS_ROWS * n):
            found, t = _sparse_step(loss, at, new, W[:0], b, bias, True, l1, l2, quiet, slack)
            violation, shortest = max(violation, found), min(shortest, t)
            moved = 0.0
        if turn == len(order):
            break
        i = order[turn]
        cols = slice(first[i], first[i + 1])
        cut = Cut(
            X, local, rows[start[i] : start[i + 1]], ptr[start[i] : start[i + 1] + 1],
            rest[cols], scale[cols], shift[cols],
        )  # fmt: skip
        found, t = _sparse_step(loss, at, new, W[cols], b, cut, whole[i], l1, l2, quiet, slack)
        violation, shortest = max(violation, found), min(shortest, t)
        moved += start[i + 1] - start[i]
    return violation, shortest


class SparseBlocks(_Blocks):
    """CSR rows (n, d) as a copy in blocks of columns.

    The bias moves with the blocks that have entries in half of the rows or more. If no block
    has, it is a block of its own, visited at the end of each pass and whenever other blocks
    have moved four times as many rows as there are. Of the columns far from zero, those with
    an entry in each row are moved; any other has a spread that is not small.
    """

    def __init__(
        self, csr: Csr, d: int, block_size: int, fit_bias: bool, share: Float64Array
    ) -> None:
        super().__init__(csr, d, block_size, fit_bias, share)
        data, n = csr.data, len(csr.indptr) - 1
        numbers = np.arange(len(data)), csr.indices // block_size, csr.indptr
        by_block = sp.csr_matrix(numbers, shape=(n, self.n_blocks)).tocsc()
        order, rows, at = by_block.data, by_block.indices, by_block.indptr
        X, local = data[order], (csr.indices[order] % block_size).astype(np.int32)
        first = np.ones(len(data), bool)  # entries that are the first of a row in their block
        first[1:] = rows[1:] != rows[:-1]
        first[at[:-1][at[:-1] < len(data)]] = True
        self.whole = fit_bias & (2 * np.diff(np.append(0, np.cumsum(first))[at]) >= n)
        self.apart = bool(fit_bias and not self.whole.any())
        numbers_of, starts = [], []
        for whole, (a, z) in zip(self.whole, pairwise(at), strict=True):
            # a whole block has all rows, another those with entries
            some = np.arange(n) if whole else rows[a:z][first[a:z]]
            found = np.searchsorted(rows[a:z], some) if whole else np.flatnonzero(first[a:z])
            numbers_of.append(some)
            starts.append(a + found)
        self.start = np.append(0, np.cumsum([len(some) for some in numbers_of]))
        ptr = np.append(np.concatenate(starts), len(data)).astype(np.int64)
        # a block without the bias has the gradients of columns as they are
        rest = np.where(np.repeat(self.whole, np.diff(self.first)), self.rest, 0.0)
        rows = np.concatenate(numbers_of).astype(np.int32)
        self.cut = Cut(X, local, rows, ptr, rest, self.scale, self.shift)
        for i in self.shifted:
            part, cols = slice(at[i], at[i + 1]), slice(self.first[i], self.first[i + 1])
            X[part] -= self.shift[cols].astype(data.dtype)[local[part]]
            X[part][self.constant[cols][local[part]]] = 0.0

    def descend(
        self,
        f: LossState,
        W: Float64Array,
        b: Float64Array,
        order: IntArray,
        l1: float,
        l2: float,
        quiet: float = 0.0,
    ) -> tuple[float, float]:
        """Descend on each block of `order` in turn, in place; see :class:`DenseBlocks`."""
        violation, shortest = _sparse_descend(
            f.targets, f.at, W, b, self.cut, self.start, self.first, self.whole, order,
            self.apart, l1, l2, quiet, f.slack(),
        )  # fmt: skip
        return float(violation), float(shortest)


ColumnBlocks: TypeAlias = DenseBlocks | SparseBlocks


def cut_into_blocks(
    rows: Rows, d: int, block_size: int, fit_bias: bool, share: Float64Array
) -> ColumnBlocks:
    if isinstance(rows, Dense):
        return DenseBlocks(rows, d, block_size, fit_bias, share)
    return SparseBlocks(rows, d, block_size, fit_bias, share)
