"""Dual coordinate ascent on an exact kernel, for losses known by their conjugates.

The dual is that of :class:`~kernelgrad.solvers.SDCA`, for any weights of the rows.
Rows are taken in blocks: kernel values among the rows of a block give the same steps as one row
at a time, and full kernel rows are then needed only of the rows that moved. The responses of
all rows are kept in float64, so that the duality gap costs O(n) and does not drift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.functions.exact import KernelRows
from kernelgrad.linear.conjugate import dual_step, loss_and_gap
from kernelgrad.solvers.contract import sized
from kernelgrad.solvers.support import RowsState, add_rows
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray

BLOCK = 128  # rows about to move that are taken at once: the fastest, it changes rounding only
# Few rows of a block move near the optimum: so many are looked at for each that may.
_AHEAD = 8
_SETTLED = 0.1  # part of the tolerance below which a row is left alone


@dataclass(kw_only=True)
class DualState(RowsState):
    alpha: float  # penalty that the coefficients are for
    dual: Float64Array = sized("C", "n")  # u
    primal: Float64Array = sized("C")  # objective of each output
    gap: Float64Array = sized("C", finite=False)  # duality gap of each output
    averaged: Float64Array = sized("n", "C", empty=True)  # coefficients of the average


class DualAscent:
    """Coordinate ascent from dual variables, coefficients and responses of a state, in place.

    `loss` is that of :func:`kernelgrad.linear.conjugate.conjugate_of`, `y` (C, n) are targets
    as the conjugate takes them, and the weights `p` (n,) of the rows sum to 1.
    """

    _dtype: type = np.float32  # precision of kernel values among the rows of a block

    def __init__(
        self, state: DualState, rows: KernelRows, loss: tuple[int, Float64Array],
        y: Float64Array, p: Float64Array, block_size: int = BLOCK,
    ) -> None:  # fmt: skip
        self.rows, self.loss, self.y, self.p = rows, loss, y, p
        self.block_size = block_size
        self._state = state

    @property
    def weights(self) -> Float64Array:
        return self.p

    @property
    def responses(self) -> Float64Array:
        f: Float64Array = self._state.responses + self._state.intercept[:, None]
        return f

    def penalty(self) -> Float64Array:
        s = self._state
        norm2: Float64Array = np.einsum("nc,cn->c", s.coef, s.responses)
        return np.asarray(0.5 * s.alpha * norm2)

    def rescale(self, alpha: float) -> float:
        """Change the penalty; return the factor of the function.

        u is feasible for any alpha, and the function is in proportion to it.
        """
        s = self._state
        factor = s.alpha / alpha
        if factor != 1.0:
            s.alpha = alpha
            s.coef, s.responses = factor * s.coef, factor * s.responses
        return factor

    def measure(self) -> Float64Array:
        """Set objective and gap of each output; return the mean losses, (C,)."""
        s = self._state
        each = _losses_and_gaps(*self.loss, self.y, s.dual, self.responses)
        loss, s.gap = np.einsum("kcn,n->kc", each, self.weights)
        s.primal = loss + self.penalty()
        return np.asarray(loss)

    def visit(self, order: IntArray, tol: float, active: AnyArray | None = None) -> None:
        """Visit rows in order; `tol` is that of the last measure, relative to the objective.

        A row whose gap is at most a tenth of the tolerance is passed over, and so are outputs
        that are not active.
        """
        s, q = self._state, self.weights
        least = _SETTLED * tol * s.primal / q.sum()
        if active is not None:
            least[~active] = np.inf
        reach = q / s.alpha
        done = 0
        while done < len(order):
            ahead = order[done : done + _AHEAD * self.block_size]
            done += self._block(ahead, reach, least)

    def climb(self, n_steps: int) -> int:
        """Repeatedly update the coordinate that increases the dual most.

        Returns the number of steps, which is less than `n_steps` at the maximum.
        """
        s, rows = self._state, self.rows
        reach = self.weights / s.alpha
        bend = reach * rows.exact.kernel.exact_diag(rows.rows)
        for k in range(n_steps):
            c, i, u = _steepest(*self.loss, self.y, s.dual, self.responses, self.weights, bend)
            if i < 0:
                return k
            s.dual[c, i] = u
            index = np.array([i])
            self._commit(index, self._coefficients(index, reach) - s.coef[index])
        return n_steps

    def _block(self, index: IntArray, reach: Float64Array, least: Float64Array) -> int:
        """Visit rows of `index` in order up to the end of a block; return their number.

        Rows that would stay now need no kernel values unless those before them change that.
        """
        s, size = self._state, self.block_size
        y, u = self.y[:, index], s.dual[:, index]
        f = s.responses[:, index] + s.intercept[:, None]
        gaps = _losses_and_gaps(*self.loss, y, u, f)[1]
        ready = np.flatnonzero((gaps > least[:, None]).any(axis=0))[:size]
        if len(ready) == 0:
            return len(index)
        w = int(ready[-1]) + 1 if len(ready) == size else len(index)
        index = index[:w]
        y, u, f = (np.ascontiguousarray(a[:, :w]) for a in (y, u, f))
        own = reach[index]
        K: FloatArray = np.empty((w, w), self._dtype)
        position = np.full(w, -1)
        joined, done = 0, 0
        while len(ready):
            K[joined : joined + len(ready)] = self._among(index[ready], index)
            position[ready] = np.arange(joined, joined + len(ready))
            joined += len(ready)
            done = _sweep(*self.loss, y, u, f, own, position, K, least, done)
            ready = np.arange(done, min(done + 1, w))
        changed = np.flatnonzero((u != s.dual[:, index]).any(axis=0))
        moved = index[changed]
        s.dual[:, moved] = u[:, changed]
        self._commit(moved, self._coefficients(moved, reach) - s.coef[moved])
        return w

    def _among(self, first: IntArray, second: IntArray) -> FloatArray:
        return self.rows.among(first, second)

    def _coefficients(self, index: IntArray, reach: Float64Array) -> Float64Array:
        return np.ascontiguousarray(-reach[index, None] * self._state.dual[:, index].T)

    def _commit(self, moved: IntArray, change: Float64Array) -> None:
        """Add `change` (m, C) to the coefficients of rows `moved`, and to the responses."""
        s = self._state
        for i in range(0, len(moved), self.block_size):  # no more rows at once, ever
            part = slice(i, i + self.block_size)
            slots = self.rows.load(moved[part])
            add_rows(self.rows.buffer, slots, change[part], s.responses)
        s.coef[moved] += change


@njit(nogil=True, cache=True)
def _losses_and_gaps(
    code: int, params: Float64Array, y: Float64Array, u: Float64Array, f: Float64Array
) -> Float64Array:
    """Return loss and duality gap of each output and row, (2, C, n); arrays as in `_sweep`."""
    C, n = u.shape
    out = np.empty((2, C, n))
    for c in range(C):
        for i in range(n):
            pair = loss_and_gap(code, params[c], y[c, i], u[c, i], f[c, i])
            out[0, c, i], out[1, c, i] = pair
    return out


@njit(nogil=True, cache=True)
def _steepest(
    code: int, params: Any, y: Any, u: Any, f: Any, p: Any, bend: Any
) -> tuple[int, int, float]:
    """Return output, row (-1 for none) and dual variable of the largest gain.

    The step of u_i to v raises D by ``p_i (gap(u) - gap(v) - bend_i (v - u)^2 / 2)``.
    """
    best, index, moved = 0.0, (0, -1), 0.0
    for c in range(len(u)):
        for i in range(len(p)):
            v = dual_step(code, params[c], y[c, i], u[c, i], f[c, i], bend[i])
            if v == u[c, i]:
                continue
            before = loss_and_gap(code, params[c], y[c, i], u[c, i], f[c, i])[1]
            after = loss_and_gap(code, params[c], y[c, i], v, f[c, i])[1]
            gain = p[i] * (before - after - 0.5 * bend[i] * (v - u[c, i]) ** 2)
            if gain > best:
                best, index, moved = gain, (c, i), v
    return index[0], index[1], moved


@njit(nogil=True, cache=True)
def _sweep(
    code: int, params: Float64Array, y: Float64Array, u: Float64Array, f: Float64Array,
    reach: Float64Array, position: IntArray, K: FloatArray, least: Float64Array, start: int,
) -> int:  # fmt: skip
    """Move the coordinates of w rows from `start` on, each to its optimum, in place.

    y, u and f (C, w) are targets, dual variables and responses with intercept; afterwards f
    holds the responses that each row had at its turn. A step du adds ``-reach_i du`` to the
    row's coefficient. K holds the kernel between the rows that have a position in it, which is
    not -1, and all w. A coordinate with a gap up to `least` (C,) is left alone. Returns the
    first row that should move and is not in K; w when all are done.
    """
    C, w = len(u), len(position)
    for j in range(start, w):
        a = position[j]
        q = 0.0 if a < 0 else max(reach[j] * np.float64(K[a, j]), 0.0)
        for c in range(C):
            gap = loss_and_gap(code, params[c], y[c, j], u[c, j], f[c, j])[1]
            if gap <= least[c]:
                continue
            if a < 0:
                return j
            new = dual_step(code, params[c], y[c, j], u[c, j], f[c, j], q)
            moved = reach[j] * (u[c, j] - new)
            u[c, j] = new
            if moved != 0.0:
                for k in range(j + 1, w):  # rows before j have had their turn
                    f[c, k] += moved * K[a, k]
    return w
