r"""Randomised block coordinate descent on all rows, by Newton steps on blocks of columns.

A step goes to ``W_B + t D``, D the minimum of the model on a block B (Tseng and Yun, 2009). The
bias is eliminated from the model by a Schur complement, ``A - a a^T / h`` for its row
``(a, h)`` of A. The outputs of a separable loss have each a model and a t of their own; those
of MULTINOMIAL have each a model and share t, with ``h_c = 2 q_c (1 - q_c)`` for probabilities
q: this diagonal bounds the second derivative ``diag(q) - q q^T``.

h is the second derivative, where it does not vanish: of LOGISTIC, POISSON and GAMMA at least
1e-6, and of the piecewise quadratic losses and MODIFIED at least 1e-3 of the largest one; HUBER
has ``min(1, delta / |z|)``, whose parabola lies above the loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from kernelgrad.compute import linalg
from kernelgrad.compute.compiling import njit
from kernelgrad.compute.rng import draws
from kernelgrad.compute.rows import Csr, Dense, Rows
from kernelgrad.compute.threads import over_tiles, parallel_for, single_threaded_blas
from kernelgrad.files.records import Record, anything
from kernelgrad.linear import base, loops
from kernelgrad.linear.loops import native, softmax_of_row
from kernelgrad.losses import scalar
from kernelgrad.params import integer, parameters
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, transient
from kernelgrad.types import AnyArray, Float64Array, IntArray

_FLAT, _LEAST = 1e-3, 1e-6  # lower bounds of curvatures, over the largest one and in itself
_ENOUGH, _HALVINGS = 0.1, 40  # share of the promised decrease that is enough; halvings until it
# Sweeps over the columns of a block with an L1 penalty, and the change, over the largest of the
# first sweep, at which they end
_SWEEPS, _SETTLED = 500, 1e-4
_PIVOT, _TINY = 1e-13, 1e-300  # least pivot over a column's own diagonal entry, and in itself
_FAR = 16.0  # mean over standard deviation from which columns are moved
_STILL = 1e-12  # standard deviation over mean of a column that is a constant
_ROWS = 8192  # rows of a tile whose losses are computed at once
_TILE = 2**17  # numbers of a tile of dense rows: 1 MiB
_BIAS_ROWS = 4.0  # rows moved, over n, between two visits of a bias that is its own block


class WeightedLoss(NamedTuple):
    """Code and numbers (C,) of the loss, targets Y (n, C) and shares (n,) of the rows."""

    code: int
    numbers: Float64Array
    Y: Float64Array
    share: Float64Array


class RowLosses(NamedTuple):
    """Responses U (n, C); values V, derivatives G and curvatures H of the loss there.

    V is (n, C), of MULTINOMIAL (n, 1); G and H are (n, C).
    """

    U: Float64Array
    V: Float64Array
    G: Float64Array
    H: Float64Array


@njit(nogil=True, cache=True)
def _point(code: int, number: float, y: float, u: float) -> Any:
    if code == scalar.LOGISTIC:  # the table's, with one exponential for all three
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
    least = _LEAST
    if code == scalar.SQUARED_HINGE:
        least = 2.0 * _FLAT
    elif code not in (scalar.POISSON, scalar.GAMMA, scalar.TWEEDIE):
        least = _FLAT * (0.25 * number if code == scalar.MODIFIED else 1.0 / number)
    return v, g, max(scalar.curvature(code, number, y, u, 1.0, 0.0), least)


@njit(nogil=True, cache=True)
def _move(
    loss: Any, rows: Any, at: Any, dU: Any, t: Any, new: Any, changes: Any, start: int,
    stop: int,
) -> None:  # fmt: skip
    """Write the point ``U + t dU`` of some rows to `new`, and the change of their loss."""
    code, change = loss.code, changes[start // _ROWS]
    change[:] = 0.0
    for r in range(start, stop):
        i = rows[r]
        y, u, v, g, h = loss.Y[i], new.U[r], new.V[r], new.G[r], new.H[r]
        for c in range(len(u)):
            u[c] = at.U[i, c] + t[c] * dU[r, c]
            if code != scalar.MULTINOMIAL:
                v[c], g[c], h[c] = _point(code, loss.numbers[c], y[c], u[c])
        if code == scalar.MULTINOMIAL:
            v[0] = softmax_of_row(u, g)
            for c in range(len(u)):
                h[c] = max(2.0 * g[c] * (1.0 - g[c]), _LEAST)
                g[c] -= y[c]
                v[0] -= y[c] * u[c]
        for c in range(len(v)):
            change[c] += loss.share[i] * (v[c] - at.V[i, c])


class LossState:
    """Responses U of all rows with the loss at each, which moves of some rows change."""

    def __init__(self, targets: WeightedLoss, U: Float64Array) -> None:
        self.targets = targets
        V = np.zeros((len(U), 1 if targets.code == scalar.MULTINOMIAL else U.shape[1]))
        self.at = RowLosses(U, V, np.empty_like(U), np.empty_like(U))
        self.new = RowLosses(*(np.empty_like(a) for a in self.at))
        rows = np.arange(len(U))
        self.change(rows, U, np.zeros(U.shape[1]))
        self.accept(rows)

    def losses(self) -> Float64Array:
        """Return ``sum_i p_i l(y_i, u_i)`` of each output; of MULTINOMIAL one number."""
        return np.asarray(self.targets.share @ self.at.V)

    def change(self, rows: IntArray, dU: Float64Array, t: Float64Array) -> Float64Array:
        """Return by how much the losses change if responses of `rows` move by ``t dU``."""
        changes = np.empty((-(-len(rows) // _ROWS), self.at.V.shape[1]))
        task = partial(_move, self.targets, rows, self.at, dU, t, self.new, changes)
        over_tiles(len(rows), _ROWS, task)
        return np.asarray(changes.sum(axis=0))

    def accept(self, rows: IntArray) -> None:
        """Move the responses of `rows` as the last change said."""
        if len(rows) == len(self.at.U):
            self.at, self.new = self.new, self.at
            return
        for a, new in zip(self.at, self.new, strict=True):
            a[rows] = new[: len(rows)]


# -- the model of a block --------------------------------------------------------------


@njit(nogil=True, cache=True)
def _lasso(A: Any, grad: Any, w: Any, least: Any, l1: float, l2: float) -> Any:
    """Return the minimum of the model by sweeps over its coordinates."""
    slope = grad.copy()  # derivative of the smooth part of the model, without penalty
    D = np.zeros_like(w)
    first = 0.0
    for sweep in range(_SWEEPS):
        largest = 0.0
        for j in range(len(w)):
            a = max(A[j, j], least[j])
            z = w[j] + D[j]
            change = loops.shrink(z - slope[j] / a, 1.0 / a, l1, l2) - z
            if change != 0.0:
                D[j] += change
                largest = max(largest, abs(change) * math.sqrt(a))
                for r in range(len(w)):
                    slope[r] += A[max(j, r), min(j, r)] * change
        if sweep == 0:
            first = largest
        if largest <= _SETTLED * first:
            break
    return D


def _newton(A: Any, grad: Any, w: Any, least: Any, l2: float) -> Any:
    """Return the minimum of the model without L1: ``-(A + l2)^-1 (grad + l2 w)``.

    Linearly dependent columns move little.
    """
    scale = np.sqrt(np.maximum(A.diagonal() + l2, least))
    H = A / np.outer(scale, scale)
    L, _ = linalg.damped_cholesky(H, _PIVOT, ridge=l2 / scale**2, in_place=True)
    return -lapack.dpotrs(L, (grad + l2 * w) / scale, lower=1)[0] / scale


def _model_minimum(
    problem: base.LinearProblem, A: Float64Array, grad: Float64Array, w: Float64Array
) -> Float64Array:
    """Return the minimum (m,) of the model of one output.

    A, a lower triangle, is (m, m), grad (m,) and w (k,); m = k + 1 if the bias moves too.
    """
    k, l1, l2 = len(w), problem.l1, problem.l2
    H, g, D = A[:k, :k], grad[:k], np.zeros_like(grad)
    least = np.maximum(_PIVOT * (H.diagonal() + l2), _TINY)
    if len(A) > k:
        share = A[k, :k] / A[k, k]
        H, g = H - np.outer(share, A[k, :k]), g - share * grad[k]
    if k:
        D[:k] = _lasso(H, g, w, least, l1, l2) if l1 > 0 else _newton(H, g, w, least, l2)
    D[k:] = -(grad[k:] + A[k:, :k] @ D[:k]) / A.diagonal()[k:]
    return D


def _penalty_change(problem: base.LinearProblem, W: Float64Array, move: Any) -> Float64Array:
    """Return ``R(W + move) - R(W)`` of each output, (C,), for arrays (k, C)."""
    new = W + move
    change = problem.l1 * (np.abs(new) - np.abs(W)) + 0.5 * problem.l2 * (move * (new + W))
    return np.asarray(change.sum(axis=0))


@njit(nogil=True, cache=True)
def _add_csr_curvature(X: Any, H: Any, joint: bool, start: int, stop: int, A: Any) -> None:
    """Add ``sum_i h_i x_i x_i^T`` over rows start to stop to A (C, m, m), lower triangles.

    H is (n, C). If `joint`, rows end with a one.
    """
    C, last = len(A), A.shape[1] - 1
    for i in range(start, stop):
        for c in range(C):
            a, h = A[c], H[i, c]
            for q in range(X.indptr[i], X.indptr[i + 1]):
                x, row = h * X.data[q], a[X.indices[q]]
                for s in range(X.indptr[i], q + 1):  # columns ascend
                    row[X.indices[s]] += x * X.data[s]
                if joint:
                    a[last, X.indices[q]] += x
            if joint:
                a[last, last] += h


def _add_dense_curvature(X: Dense, H: Any, joint: bool, start: int, stop: int, A: Any) -> None:
    step = max(1, _TILE // A.shape[1])
    for a in range(start, stop, step):
        rows = slice(a, min(a + step, stop))
        for c in range(len(A)):
            root = np.sqrt(H[rows, c, None])
            S = np.empty((len(root), A.shape[1]))
            np.multiply(X.values[rows], root, out=S[:, : X.values.shape[1]])
            S[:, X.values.shape[1] :] = root
            A[c] += S.T @ S


# -- blocks ----------------------------------------------------------------------------


class ColumnBlock(NamedTuple):
    """Columns `cols` of some `rows`, the others having no entries there.

    ``joint`` tells whether the bias moves with the block, which then has all rows.
    """

    X: Rows
    rows: IntArray
    cols: slice
    joint: bool

    def curvature(self, H: Float64Array) -> Float64Array:
        """Return A (C, m, m) for ``p h`` of the rows, (n, C)."""
        (n, C), m = H.shape, self.cols.stop - self.cols.start + self.joint
        count = loops.count_parts(self.X[0].size, C * m * m)
        parts, width = np.zeros((count, C, m, m)), -(-n // count)
        add: Any = _add_dense_curvature if isinstance(self.X, Dense) else _add_csr_curvature

        def task(part: int) -> None:
            add(self.X, H, self.joint, part * width, min((part + 1) * width, n), parts[part])

        parallel_for(count, task)
        return np.asarray(parts.sum(axis=0))


def _moved(rows: Rows, shift: Float64Array, constant: AnyArray) -> Rows:
    """Return rows less `shift`, with zeros in `constant` columns; both are (d,)."""
    if not shift.any():
        return rows
    at: Any = rows.indices if isinstance(rows, Csr) else slice(None)
    values = np.where(constant[at], 0.0, rows[0] - shift.astype(rows[0].dtype)[at])
    return type(rows)(values.astype(rows[0].dtype), *rows[1:])


def _csr_block(X: Any, start: int, stop: int, fit_bias: bool) -> ColumnBlock:
    """Return the block of columns start to stop of a CSC matrix."""
    part, n = slice(X.indptr[start], X.indptr[stop]), X.shape[0]
    columns = np.repeat(np.arange(stop - start), np.diff(X.indptr[start : stop + 1]))
    rows, at = np.unique(X.indices[part], return_inverse=True)
    if joint := fit_bias and 2 * len(rows) >= n:
        rows, at = np.arange(n), X.indices[part]
    own = sp.csr_matrix((X.data[part], (at, columns)), (len(rows), stop - start))
    return ColumnBlock(Csr(own.data, own.indices, own.indptr), rows, slice(start, stop), joint)


class ColumnBlocks:
    """Rows as a copy in blocks of adjacent columns.

    The bias moves with all blocks of dense rows, and of CSR rows with those that have entries
    in half of the rows or more. If no block has, it is a block of its own, visited at the end
    of each pass and whenever other blocks have moved four times as many rows as there are.

    Columns far from zero with an entry in each row are moved to a mean of about zero:
    ``shift``, a number of the dtype, is what the copy is less than the rows, ``rest`` the mean
    of the copy.
    """

    def __init__(self, data: base.PreparedRows, block_size: int, fit_bias: bool) -> None:
        n, d, columns = data.n, data.d, data.columns(fit_bias)
        far = (columns.stored == n) & (np.abs(columns.mean) > _FAR * columns.spread)
        constant = far & (columns.spread <= _STILL * np.abs(columns.mean))
        dtype = data.rows[0].dtype
        self.shift = np.where(far, columns.mean, 0.0).astype(dtype).astype(np.float64)
        self.rest = np.where(constant, 0.0, columns.mean - self.shift)
        self.scale, self.bias = columns.scale, None
        rows, every = _moved(data.rows, self.shift, constant), np.arange(n)
        cuts = list(pairwise([*range(0, d, block_size), d]))
        if len(cuts) == 1:
            self.blocks = [ColumnBlock(rows, every, slice(0, d), fit_bias)]
        elif isinstance(rows, Dense):
            parts = (np.ascontiguousarray(rows.values[:, a:z]) for a, z in cuts)
            self.blocks = [
                ColumnBlock(Dense(X), every, slice(*cut), fit_bias)
                for cut, X in zip(cuts, parts, strict=True)
            ]
        else:
            X = sp.csr_matrix(tuple(rows), (n, d)).tocsc()
            self.blocks = [_csr_block(X, a, z, fit_bias) for a, z in cuts]
        if fit_bias and not any(block.joint for block in self.blocks):
            self.bias = ColumnBlock(Dense(np.zeros((n, 0))), every, slice(0, 0), True)
        self._fixed: dict[int, Float64Array] = {}  # A of the squared loss by last column

    def _visits(self, order: IntArray, n: int) -> Iterator[ColumnBlock]:
        moved = 0
        for i in order:
            yield self.blocks[i]
            moved += len(self.blocks[i].rows)
            if self.bias is not None and moved >= _BIAS_ROWS * n:
                yield self.bias
                moved = 0
        if self.bias is not None:
            yield self.bias

    def _curvature(self, block: ColumnBlock, f: LossState) -> Float64Array:
        """Return lower triangles of A (C, m, m); all outputs share that of the squared loss."""
        last = block.cols.stop
        squared = f.targets.code == scalar.SQUARED
        if last in self._fixed:
            return self._fixed[last]
        H = f.at.H[block.rows, : 1 if squared else None]
        A = block.curvature(f.targets.share[block.rows, None] * H)
        if squared and A.size <= block.X[0].size:
            self._fixed[last] = A
        return A

    def descend(
        self, problem: base.LinearProblem, f: LossState, W: Float64Array, b: Float64Array,
        order: IntArray, quiet: float = 0.0,
    ) -> tuple[float, float]:  # fmt: skip
        """Descend on each block of `order` in turn, W (d, C) and b (C,) in place.

        A block whose least subgradient is nowhere larger than `quiet` stays. Returns the
        largest least subgradient met, of columns less their mean over their scale, and the
        smallest share of a direction that was taken.
        """
        slack = 4.0 * np.finfo(np.float64).eps * f.losses()  # rounding of these sums
        violation, shortest = 0.0, 1.0
        for block in self._visits(order, len(f.at.U)):
            worst, share = self._step(problem, f, block, W, b, quiet, slack)
            violation, shortest = max(violation, worst), min(shortest, share)
        return violation, shortest

    def _step(
        self, problem: base.LinearProblem, f: LossState, block: ColumnBlock, W: Any, b: Any,
        quiet: float, slack: Float64Array,
    ) -> tuple[float, float]:  # fmt: skip
        """Move a block; return its violation and the smallest share of a direction taken."""
        X, rows, cols, joint = block
        w, k, C = W[cols], cols.stop - cols.start, len(b)
        G = f.targets.share[rows, None] * f.at.G[rows]
        grad = native(X, loops.column_sums(X, k, G))
        rest = G.sum(axis=0)[: None if joint else 0]
        centred = grad - (np.outer(self.rest[cols], rest) if joint else 0.0)
        least = base.least_subgradient(w, centred, problem) / self.scale[cols, None]
        worst = float(max(least.max(initial=0.0), np.abs(rest).max(initial=0.0)))
        if worst <= quiet:
            return worst, 1.0
        grad = np.vstack([grad, rest]) if joint else grad
        A = self._curvature(block, f)
        models = zip(np.broadcast_to(A, (C, *A.shape[1:])), grad.T, w.T, strict=True)
        D = np.transpose([_model_minimum(problem, *model) for model in models])
        promise = (grad * D).sum(axis=0) + _penalty_change(problem, w, D[:k])
        D *= promise < 0.0  # rounding may leave the model's minimum no better than zero
        if not D.any():
            return worst, 1.0
        bias = D[k] if joint else np.zeros(C)
        dU, together = loops.all_responses(X, len(rows), native(X, D[:k]), bias), len(slack) < C

        def gain(t: Any) -> Any:
            change = f.change(rows, dU, np.zeros(C) + t)
            penalty = _penalty_change(problem, w, t * D[:k])
            return slack - change - (penalty.sum(keepdims=True) if together else penalty)

        promise = -np.minimum(promise, 0.0)
        promise = promise.sum(keepdims=True) if together else promise
        t = linalg.backtracked(gain, promise, _ENOUGH, tries=_HALVINGS)
        if not t.all():
            gain(t)
        f.accept(rows)
        W[cols] += t * D[:k]
        b += t * (bias - self.shift[cols] @ D[:k]) * joint
        return worst, float(t.min())


_QUIET = 0.1  # share of the tolerance below which a block is left alone
# A block of all columns is a Newton step: up to a Cholesky factor of 512 columns, and
# curvature matrices of 8 MiB, it costs less than the passes that it saves.
WHOLE, WHOLE_ENTRIES = 512, 2**20
_DENSE_BLOCK, _SPARSE_BLOCK = 32, 64  # columns of a block of wider rows


@dataclass(kw_only=True)
class RBCDState(base.LinearState):
    blocks: ColumnBlocks | None = transient()

    @classmethod
    def restore_parts(cls, problem: Problem, record: Record) -> dict[str, Any]:
        record.take("steepness", anything, None)  # files of 0.1 and 0.2, equal to `first`
        return {}


@parameters
class RBCD(base.LinearSolver[RBCDState]):
    r"""Randomised block coordinate descent on all rows, by Newton steps on blocks of columns.

    A pass keeps the responses U of all rows up to date and visits every block B of adjacent
    columns once, in random order, moving it towards the minimum of the second-order model

    .. math:: \langle g, D \rangle + \tfrac12 \langle D, A D \rangle + R(W_B + D), \qquad
              g = X_B^T (p\, l'(U)), \quad A = X_B^T \operatorname{diag}(p\, l''(U)) X_B,

    with halvings until the objective falls by a tenth of what the slope predicts, so that no
    block raises it. For the multinomial loss l'' is replaced by ``2 q_c (1 - q_c)`` of the
    probabilities q, a bound without entries between outputs; where l'' is zero, a small
    curvature replaces it. Each block is solved together with the bias, and columns far from
    zero are shifted to about zero, so that neither units nor means of columns matter.

    A block whose least subgradient (of centred columns over their standard deviations) is below
    a tenth of the tolerance is skipped; after a pass without one above the tolerance all
    columns are checked at once. Memory: a copy of the rows by blocks of columns, nine float64
    arrays of (n, C), and ``72 k^2 C`` bytes of matrices A; with the squared loss ``8 d k``
    bytes more.

    Parameters
    ----------
    block_size : int >= 1 or "auto", default="auto"
        Columns of a block, k. ``"auto"`` takes all columns where there are at most 512 (and
        ``d^2 C`` at most 2^20): a pass is then a full proximal Newton step, and six or eight
        reach the minimum to rounding. Wider rows have blocks of 32, CSR rows of 64.

    References
    ----------
    Richtarik and Takac (2014); Tseng and Yun (2009) for steps with curvature; Dai et al.
    (2014), Section 7, for this method on random features.
    """

    name: ClassVar[str] = "rbcd"
    searches: ClassVar[bool] = True
    state_class: ClassVar[type[Any]] = RBCDState
    tag: ClassVar[int] = 0x726263

    block_size: int | str = integer(default="auto", low=1, words=("auto",))

    def resolve_block_size(self, data: base.PreparedRows) -> int:
        """Return the columns of a block for these rows."""
        d = data.d
        if self.block_size != "auto":
            return min(int(self.block_size), max(1, d))
        whole = d <= WHOLE and d**2 * data.Y.shape[1] <= WHOLE_ENTRIES
        wide = _SPARSE_BLOCK if data.is_sparse else _DENSE_BLOCK
        return max(1, d) if whole else wide

    def step(self, problem: Problem, state: RBCDState, batch: TrainBatch) -> StepInfo:
        own = base.as_linear(problem)
        data = self._attach(problem, state, batch)
        W, b, aim = state.coef.copy(), state.bias.copy(), own.tol * state.first
        with single_threaded_blas():
            if state.blocks is None:
                size = self.resolve_block_size(data)
                state.blocks = ColumnBlocks(data, size, own.fit_intercept)
            targets = WeightedLoss(data.code, data.numbers, data.Y, data.share)
            f = LossState(targets, data.responses(data.native(W), b))
            rng = draws(own.seed, self.tag, state.iteration)
            order = rng.permutation(len(state.blocks.blocks))
            violation, shortest = state.blocks.descend(own, f, W, b, order, _QUIET * aim)
            converged = violation <= aim
            if converged:  # each block was at rest when visited, but not all at once
                native = data.native(W)
                here = base.evaluate(own, data, native, b)
                converged = here.optimality(own, data, native) <= aim
        loss = float(f.losses().sum())
        state.coef, state.bias = W, b
        state.iteration += 1
        state.rows_seen += data.n
        return StepInfo(
            train_loss=loss,
            step_size=shortest,
            objective=loss + own.penalty(W),
            converged=converged,
        )
