"""Shared by the exact semi-supervised machines: convex sub-problems solved in the dual."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernelgrad.losses import Hinge
from kernelgrad.losses.scalar import HINGE_OR_TUBE
from kernelgrad.papers.dual_ascent import BLOCK, DualAscent, DualState
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, draws, sized
from kernelgrad.solvers.soft_labels import check_kinds, semi_supervised
from kernelgrad.solvers.support import RowsSolver, check_alpha, support_update
from kernelgrad.types import AnyArray, Float64Array, IntArray
from kernelgrad.validation import CapabilityError

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
        super().__init__(state, rows, (HINGE_OR_TUBE, none), state.side, p)
        loss = semi_supervised(problem, solver.name)
        self.solver, self.state, self.seed = solver, state, problem.seed
        self.deadline = problem.resources.deadline
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
        K = self.rows.among(first, second).astype(np.float64)
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
