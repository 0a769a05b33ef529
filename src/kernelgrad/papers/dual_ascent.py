"""Dual coordinate ascent on an exact kernel, for losses known by their conjugates.

The dual is that of :class:`~kernelgrad.solvers.SDCA`, for any weights of the rows.
Rows are taken in blocks: kernel values among the rows of a block give the same steps as one row
at a time, and full kernel rows are then needed only of the rows that moved. The responses of
all rows are kept in float64, so that the duality gap costs O(n) and does not drift.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernelgrad.callbacks import FOREVER, Deadline
from kernelgrad.compute.compiling import njit
from kernelgrad.compute.rng import draws
from kernelgrad.functions.exact import KernelRows
from kernelgrad.linear.conjugate import dual_step, loss_and_gap
from kernelgrad.losses import Hinge
from kernelgrad.losses.scalar import HINGE_OR_TUBE
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, sized
from kernelgrad.solvers.soft_labels import check_kinds, semi_supervised
from kernelgrad.solvers.support import (
    RowsSolver,
    RowsState,
    add_rows,
    check_alpha,
    support_update,
)
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray
from kernelgrad.validation import CapabilityError

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
        y: Float64Array, p: Float64Array, *, deadline: Deadline = FOREVER,
    ) -> None:  # fmt: skip
        self.rows, self.loss, self.y, self.p = rows, loss, y, p
        self.deadline, self._state = deadline, state

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
        that are not active. The deadline ends the visits after the first block.
        """
        s, q = self._state, self.weights
        least = _SETTLED * tol * s.primal / q.sum()
        if active is not None:
            least[~active] = np.inf
        reach = q / s.alpha
        done = 0
        while done < len(order) and not (done and self.deadline.over):
            ahead = order[done : done + _AHEAD * BLOCK]
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
        s, size = self._state, BLOCK
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
        rows = self.rows.rows
        return self.rows.exact.matrix(rows.take(first), rows.take(second))

    def _coefficients(self, index: IntArray, reach: Float64Array) -> Float64Array:
        return np.ascontiguousarray(-reach[index, None] * self._state.dual[:, index].T)

    def _commit(self, moved: IntArray, change: Float64Array) -> None:
        """Add `change` (m, C) to the coefficients of rows `moved`, and to the responses."""
        s = self._state
        for i in range(0, len(moved), BLOCK):  # no more rows at once, ever
            part = slice(i, i + BLOCK)
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


_TAG = 0x7333766D


@dataclass(kw_only=True)
class PseudoState(DualState):
    """State of :class:`PseudoSolver`.

    ``responses`` are those to the sum of ``coef`` without constant, in the kernel centred by
    ``centre`` and ``mass``; ``coef`` is ``-p_i (u_i - shift_i) / alpha``.
    """

    side: Float64Array = sized("C", "n", least=-1.0, most=1.0)  # t of each row
    shift: Float64Array = sized("C", "n", least=-1.0, most=1.0)  # beta of each row
    done: AnyArray = sized("C", kinds="b")  # outputs that no further step would change
    # mean kernel value of each row with the unlabelled ones, or 0
    centre: Float64Array = sized("n")
    spread: Float64Array = sized("n")  # weights of the rows in that mean, 0 without centring
    mass: float = 0.0  # mean of `centre` over the unlabelled rows
    share: float = 0.0  # part of the unlabelled rows' full weight; 0 is the machine on labels
    passes: int = 0  # passes of coordinate ascent so far


class PseudoSolver(RowsSolver[PseudoState]):
    r"""Base of the solvers that give unlabelled rows a side and solve what is then convex.

    A sub-problem has weights q_i, for each output a side t_i of each row and a slope beta_i:

    .. math:: P(w) = \sum_i q_i (l_{t_i}(f_i) - \beta_i f_i) + \frac{\alpha}{2} \|w\|^2

    with the hinge ``max(0, 1 - t f)`` of rows with a side t of -1 or +1 and the tube
    ``max(0, |f| - 1)`` of those with side 0. It is solved by dual coordinate ascent, in a new
    random order in each pass, until the gap of an output is at most ``tol`` times its
    objective. The slope shifts a coefficient to ``-(q_i / alpha) (u_i - beta_i)``; it changes
    neither the steps in u nor the gap, in which it cancels. The next sub-problem starts from
    the variables u of the last.
    """

    marks: ClassVar[bool] = True
    requires: ClassVar[frozenset[str]] = frozenset({"exact_kernel"})
    state_class = PseudoState
    least_rows: ClassVar[int] = BLOCK
    unlabelled: ClassVar[frozenset[str]]  # losses of rows without a label
    tol: float
    max_passes: int

    def check_problem(self, problem: Problem) -> None:
        loss = semi_supervised(problem, self.name)
        if not isinstance(loss.labelled, Hinge):
            raise CapabilityError(
                f"solver {self.name!r} needs the loss 'hinge' of labelled rows, got "
                f"{loss.labelled.name!r}; choose it, or solver 'bgs3vm'."
            )
        if loss.unlabelled.name not in self.unlabelled:
            raise CapabilityError(
                f"solver {self.name!r} needs an unlabelled loss of "
                f"{', '.join(sorted(self.unlabelled))}, got {loss.unlabelled.name!r}; choose "
                "one of them, or solver 'bgs3vm'."
            )
        check_alpha(self.name, problem.alpha)

    def init(self, problem: Problem, batch: TrainBatch) -> PseudoState:
        self.check_problem(problem)
        check_kinds(batch.y, batch.sample_weight, self.name)
        C, n = problem.n_outputs, batch.n_rows
        return self._new_state(
            problem, batch, alpha=problem.alpha, dual=np.zeros((C, n)),
            side=np.ascontiguousarray(batch.y.T, np.float64), shift=np.zeros((C, n)),
            primal=np.zeros(C), gap=np.zeros(C), done=np.zeros(C, bool),
            centre=np.zeros(n), spread=np.zeros(n),
        )  # fmt: skip

    @abstractmethod
    def _advance(self, problem: Problem, sub: Subproblem) -> None:
        """Go from one function that the solver would return to the next."""

    def step(self, problem: Problem, state: PseudoState, batch: TrainBatch) -> StepInfo:
        """Solve the machine on labels first, in each later step what `_advance` does."""
        sub = Subproblem(self, problem, state, batch)
        rows = sub.rows
        evaluations = rows.n_evaluations
        before = self.coefficients(state).copy()
        if sub.rescale(problem.alpha) != 1.0:
            state.done[:] = False
        if state.iteration == 0:
            sub.solve(np.full(problem.n_outputs, np.inf))
        else:
            self._advance(problem, sub)
        state.iteration += 1
        state.kernel_evaluations += rows.n_evaluations - evaluations
        loss, objective = sub.truth(problem.loss)
        change = self.coefficients(state) - before
        return self._info(
            state,
            loss,
            support_update(state, rows.rows, change),
            epoch=float(state.passes),
            objective=objective,
            converged=bool(state.done.all()),
        )


class Subproblem(DualAscent):
    """The current sub-problem of a state on the rows of one step."""

    _dtype = np.float64  # centred values cancel

    def __init__(
        self, solver: PseudoSolver, problem: Problem, state: PseudoState, batch: TrainBatch
    ) -> None:
        weight = np.asarray(batch.sample_weight, np.float64)
        rows, p = solver._attach(problem, state, batch), weight / weight.sum()
        none = np.zeros(problem.n_outputs)  # the side says all
        deadline = problem.resources.deadline
        super().__init__(state, rows, (HINGE_OR_TUBE, none), state.side, p, deadline=deadline)
        loss = semi_supervised(problem, solver.name)
        self.solver, self.state, self.seed = solver, state, problem.seed
        self.n_solved = 0  # sub-problems that went through `solve`
        self.labels = batch.y
        self.has_label: AnyArray = np.asarray(batch.y.any(axis=1))
        self.ratio = float(loss.ratio)  # weight of the unlabelled loss
        self.knee = abs(float(getattr(loss.unlabelled, "s", 0.0)))  # |s| of the ramp, else 0

    @property
    def weights(self) -> Float64Array:
        return np.where(self.has_label, self.p, self.state.share * self.ratio * self.p)

    def truth(self, loss: Any) -> tuple[float, float]:
        """Return the mean loss and the non-convex objective, summed over outputs."""
        mean = float(self.p @ loss.value(self.labels, np.ascontiguousarray(self.responses.T)))
        return mean, mean + float(self.penalty().sum())

    def measure(self) -> Float64Array:
        """Set objective and gap of each output of the sub-problem; return the mean losses.

        Constants make the objective that of the loss which is linearised, where it is: the
        ramp with knee ``|s|`` is ``1 - |s| + max(0, |f| - 1) - max(0, |f| - |s|)``.
        """
        s, q, loss = self.state, self.weights, super().measure()
        tube = np.where(s.side == 0.0, 1.0 - self.knee * (1.0 - np.abs(s.shift)), 0.0)
        linear = np.einsum("cn,cn->c", s.shift * q, self.responses)
        s.primal += np.einsum("cn,n->c", tube, q) - linear
        return loss

    def _among(self, first: IntArray, second: IntArray) -> Float64Array:
        s = self.state
        K = super()._among(first, second).astype(np.float64)
        K -= s.centre[first, None] + s.centre[second]
        K += s.mass
        return K

    def _coefficients(self, index: IntArray, reach: Float64Array) -> Float64Array:
        s = self.state
        return np.ascontiguousarray((-reach[index] * (s.dual[:, index] - s.shift[:, index])).T)

    def _commit(self, moved: IntArray, change: Float64Array) -> None:
        super()._commit(moved, change)
        s = self.state
        if s.centre.any():
            total = change.sum(axis=0)
            lift = np.einsum("mc,m->c", change, s.centre[moved]) - s.mass * total
            s.responses -= lift[:, None] + total[:, None] * s.centre

    def align(self) -> None:
        """Bring coefficients in line with dual variables, slopes and weights."""
        s = self.state
        every = np.arange(len(s.coef))
        change = self._coefficients(every, self.weights / s.alpha) - s.coef
        moved = np.flatnonzero(change.any(axis=1))
        self._commit(moved, change[moved])

    def snapshot(self) -> dict[str, Float64Array]:
        return {name: getattr(self.state, name).copy() for name in _PER_ROW}

    def restore(self, snapshot: dict[str, Float64Array], c: int) -> None:
        """Go back to a snapshot in output `c`."""
        for name, values in snapshot.items():
            output = (slice(None), c) if name == "coef" else c
            getattr(self.state, name)[output] = values[output]

    def solve(
        self, start: Float64Array, snapshot: dict[str, Float64Array] | None = None, *,
        among: AnyArray | None = None, certify: bool = False,
    ) -> AnyArray:  # fmt: skip
        """Ascend until each output is solved to the tolerance and no higher than `start` (C,).

        `among` selects the outputs to solve, by default all. An output that does not reach the
        tolerance is reset to the `snapshot`. With `certify` it also stops when the dual
        shows that no function is lower than `start` by more than the tolerance. The end of the
        time is that of the passes, after the first. Returns 1 for solved, 0 for out of passes
        or not selected, -1 for stopped by `certify`.
        """
        s, tol = self.state, self.solver.tol
        asked = np.ones(len(start), bool) if among is None else among
        active, out = asked.copy(), np.zeros(len(start), np.int64)
        first = s.passes
        self.measure()
        while True:
            solved = active & (s.gap <= tol * np.abs(s.primal)) & (s.primal <= start)
            out[solved] = 1
            active &= ~solved
            if certify:
                stuck = active & (start - (s.primal - s.gap) <= tol * start)
                out[stuck] = -1
                active &= ~stuck
            n_passes = s.passes - first
            if not active.any() or n_passes == self.solver.max_passes:
                break
            if n_passes and self.deadline.over:
                break
            self._ascend(active, n_passes)
            self.measure()
        self.n_solved += 1
        out[active & (s.primal <= start)] = 1  # short of the tolerance, but lower
        if snapshot is not None:
            for c in np.flatnonzero(asked & (out < 1)).tolist():
                self.restore(snapshot, c)
        return out

    def _ascend(self, active: AnyArray, number: int) -> None:
        """Visit all rows once, in the random order of a pass of this solution."""
        s = self.state
        live = np.flatnonzero(self.weights)
        # no output sees in its order of visits how long the others took
        rng = draws(self.seed, _TAG, s.iteration, self.n_solved, number)
        order = live[rng.permutation(len(live))]
        self.visit(order, self.solver.tol, active)
        s.passes += 1
        s.rows_seen += len(live)


_PER_ROW = ("coef", "responses", "dual", "side", "shift")
