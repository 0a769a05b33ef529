"""Dual coordinate ascent on an exact kernel, for losses known by their conjugates.

The dual is that of :class:`~kernelgrad.solvers.SDCA`, for any weights of the rows.
Rows are taken in blocks: kernel values among the rows of a block give the same steps as one row
at a time, and full kernel rows are then needed only of the rows that moved. The responses of
all rows are kept in float64, so that the duality gap costs O(n) and does not drift.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.threads import over_tiles
from kernelgrad.functions.exact import KernelRows
from kernelgrad.losses.conjugate import dual_step, loss_and_gap
from kernelgrad.solvers.contract import draws, sized
from kernelgrad.solvers.support import RowsState
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray

BLOCK = 128  # rows about to move that are taken at once: the fastest, it changes rounding only
# Few rows of a block move near the optimum: so many are looked at for each that may.
_AHEAD = 8
_SETTLED = 0.1  # of the tolerance: a row below it is left alone, as all such cannot exceed it
_TILE = 2048  # columns of a task: 16 KiB of float64
_TAG = 0x73646361


@dataclass(kw_only=True)
class DualState(RowsState):
    alpha: float  # that the coefficients are for
    dual: Float64Array = sized("C", "n")  # u
    primal: Float64Array = sized("C")  # objective of each output
    gap: Float64Array = sized("C", finite=False)  # duality gap of each output


def check_alpha(name: str, alpha: float) -> None:
    """Raise where the penalty is 0: there is no dual function then."""
    if not alpha > 0.0:
        raise ValueError(
            f"solver {name!r} needs alpha > 0, got {alpha!r}; choose a small positive alpha "
            "such as 1 / n_samples."
        )


class DualAscent:
    """Coordinate ascent from dual variables, coefficients and responses of a state, in place.

    `loss` is that of :func:`kernelgrad.losses.conjugate.conjugate_of`, `y` (C, n) are targets
    as the conjugate takes them, and the weights `p` (n,) of the rows sum to 1.
    """

    _dtype: type = np.float32  # of kernel values among the rows of a block

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
        place = np.full(w, -1)
        joined, done = 0, 0
        while len(ready):
            K[joined : joined + len(ready)] = self._among(index[ready], index)
            place[ready] = np.arange(joined, joined + len(ready))
            joined += len(ready)
            done = _sweep(*self.loss, y, u, f, own, place, K, least, done)
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
            some = slice(i, i + self.block_size)
            slots = self.rows.load(moved[some])
            add_rows(self.rows.buffer, slots, change[some], s.responses)
        s.coef[moved] += change


def visit_order(seed: int, start: int, n_visits: int, live: IntArray) -> Iterator[IntArray]:
    """Yield the rows of visits ``start .. start + n_visits - 1``, pass by pass.

    Each pass takes the rows `live` in a random order of its own.
    """
    n, end = len(live), start + n_visits
    while start < end:
        epoch, first = divmod(start, n)
        last = min(n, end - epoch * n)
        yield live[draws(seed, _TAG, epoch).permutation(n)[first:last]]
        start = epoch * n + last


@njit(nogil=True, cache=True)
def _losses_and_gaps(
    code: int, params: Float64Array, y: Float64Array, u: Float64Array, f: Float64Array
) -> Float64Array:
    """Return loss and duality gap of each output and row, (2, C, n); arrays as in `_sweep`."""
    C, n = u.shape
    out = np.empty((2, C, n))
    for c in range(C):
        for i in range(n):
            found = loss_and_gap(code, params[c], y[c, i], u[c, i], f[c, i])
            out[0, c, i], out[1, c, i] = found
    return out


@njit(nogil=True, cache=True)
def _steepest(
    code: int, params: Any, y: Any, u: Any, f: Any, p: Any, bend: Any
) -> tuple[int, int, float]:
    """Return output, row (-1 for none) and dual variable of the largest gain.

    The step of u_i to v raises D by ``p_i (gap(u) - gap(v) - bend_i (v - u)^2 / 2)``.
    """
    best, place, moved = 0.0, (0, -1), 0.0
    for c in range(len(u)):
        for i in range(len(p)):
            v = dual_step(code, params[c], y[c, i], u[c, i], f[c, i], bend[i])
            if v == u[c, i]:
                continue
            before = loss_and_gap(code, params[c], y[c, i], u[c, i], f[c, i])[1]
            after = loss_and_gap(code, params[c], y[c, i], v, f[c, i])[1]
            gain = p[i] * (before - after - 0.5 * bend[i] * (v - u[c, i]) ** 2)
            if gain > best:
                best, place, moved = gain, (c, i), v
    return place[0], place[1], moved


@njit(nogil=True, cache=True)
def _sweep(
    code: int, params: Float64Array, y: Float64Array, u: Float64Array, f: Float64Array,
    reach: Float64Array, place: IntArray, K: FloatArray, least: Float64Array, start: int,
) -> int:  # fmt: skip
    """Move the coordinates of w rows from `start` on, each to its optimum, in place.

    y, u and f (C, w) are targets, dual variables and responses with intercept; afterwards f
    holds the responses that each row had at its turn. A step du adds ``-reach_i du`` to the
    row's coefficient. K holds the kernel between the rows that have a place in it, which is
    not -1, and all w. A coordinate with a gap up to `least` (C,) is left alone. Returns the
    first row that should move and is not in K; w when all are done.
    """
    C, w = len(u), len(place)
    for j in range(start, w):
        a = place[j]
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


@njit(nogil=True, cache=True, fastmath={"contract", "nsz"})
def _add_tile(
    rows: FloatArray, slots: IntArray, coef: Float64Array, start: int, out: Float64Array
) -> None:
    C, width = out.shape
    stop, m = start + width, len(slots)
    for i in range(0, m, 4):
        for c in range(C):
            f, some = out[c], coef[i : i + 4, c]
            if some.size == 4 and some.all():  # f is read and written once for four rows
                a0, a1, a2, a3 = some
                p, q = rows[slots[i], start:stop], rows[slots[i + 1], start:stop]
                r, s = rows[slots[i + 2], start:stop], rows[slots[i + 3], start:stop]
                for j in range(width):
                    f[j] += (a0 * p[j] + a1 * q[j]) + (a2 * r[j] + a3 * s[j])
                continue
            for k in range(some.size):
                a = some[k]
                if a != 0.0:
                    K = rows[slots[i + k], start:stop]
                    for j in range(width):
                        f[j] += a * K[j]


def add_rows(rows: FloatArray, slots: IntArray, coef: Float64Array, out: Float64Array) -> None:
    """Add ``sum_i coef_i rows[slots_i]`` to `out` (C, n) in float64; coef is (m, C).

    Sums in float64 do not drift: gaps stay true however many steps are taken.
    """

    def task(a: int, z: int) -> None:
        _add_tile(rows, slots, coef, a, out[:, a:z])

    over_tiles(out.shape[1], _TILE, task)
