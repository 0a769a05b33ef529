"""What the exact semi-supervised machines share: convex sub-problems solved in the dual."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernelgrad._typing import AnyArray, Float64Array, IntArray
from kernelgrad._validation import (
    CapabilityError,
    DataError,
    check_int,
    check_real,
)
from kernelgrad.functions.exact import KernelRows
from kernelgrad.losses import Hinge, SemiSupervised, box_dual
from kernelgrad.losses import conjugate as dual
from kernelgrad.solvers.base import Problem, StepInfo, TrainBatch, batch_digest
from kernelgrad.solvers.kernel.base import (
    RowsSolver,
    RowsState,
    SupportUpdate,
    build_exact,
    kernel_rows,
)

_TAG = 0x7333766D
_BLOCK = 128  # rows about to move that are taken at once; changes rounding only
_AHEAD = 8  # rows looked at for each that may move
_SETTLED = 0.1  # of the tolerance: a row below it is left alone


def semi_supervised(problem: Problem, name: str) -> SemiSupervised:
    """Return the loss of `problem` if it has two parts.

    Raises
    ------
    CapabilityError
        If it has not.
    """
    if not isinstance(problem.loss, SemiSupervised):
        raise CapabilityError(
            f"solver {name!r} needs labelled and unlabelled rows, which loss "
            f"{problem.loss.name!r} does not tell apart; use a semi-supervised estimator, or a "
            "solver for labelled rows such as 'sdca'."
        )
    return problem.loss


def check_kinds(y: AnyArray, weight: AnyArray, name: str) -> None:
    """Raise DataError unless labelled and unlabelled rows both have weight."""
    known = np.asarray(y).any(axis=1)
    n_labelled = int(np.count_nonzero(weight[known]))
    n_others = int(np.count_nonzero(weight[~known]))
    if n_labelled == 0 or n_others == 0:
        missing = (
            "mark rows without a label by -1, or use a solver for labelled rows such as 'sdca'"
            if n_labelled
            else "give the label of at least one row"
        )
        raise DataError(
            f"solver {name!r} needs rows with a label and rows without one, of positive "
            f"weight; got {n_labelled} and {n_others}: {missing}."
        )


@dataclass(kw_only=True)
class PseudoState(RowsState):
    """State of :class:`PseudoSolver`.

    ``responses`` are those to the sum of ``coef`` without constant, in the kernel centred by
    ``centre`` and ``mass``; ``coef`` is ``-p_i (u_i - shift_i) / alpha``.

    Attributes
    ----------
    alpha : float
        That the coefficients are for.
    share : float in [0, 1]
        Of the full weight of unlabelled rows that counts now; 0 is the machine on labels.
    dual, side, shift : float64 arrays (C, n)
        u, and side and beta of each row, see :mod:`kernelgrad.losses.box_dual`.
    primal, gap : float64 arrays (C,)
        Objective and duality gap of the current sub-problem.
    done : bool array (C,)
        Outputs that no further step would change.
    centre : float64 array (n,)
        Mean kernel value of each row with the unlabelled ones, 0 without centring.
    spread : float64 array (n,)
        Weights of the rows in that mean, 0 without centring.
    mass : float
        Mean of ``centre`` over the unlabelled rows.
    passes : int
        Passes of coordinate ascent so far.
    """

    alpha: float
    dual: Float64Array
    side: Float64Array
    shift: Float64Array
    primal: Float64Array
    gap: Float64Array
    done: AnyArray
    centre: Float64Array
    spread: Float64Array
    mass: float = 0.0
    share: float = 0.0
    passes: int = 0


class PseudoSolver(RowsSolver[PseudoState]):
    r"""Base of the solvers that give unlabelled rows a side and solve what is then convex.

    A sub-problem has weights q_i, for each output a side t_i of each row and a slope beta_i:

    .. math:: P(w) = \sum_i q_i (l_{t_i}(f_i) - \beta_i f_i) + \frac{\alpha}{2} \|w\|^2

    with the losses of :mod:`kernelgrad.losses.box_dual`. It is solved by dual coordinate
    ascent, in a new random order in each pass and with the responses of all rows kept in
    float64, until the gap of an output is at most ``tol`` times its objective. The next
    sub-problem starts from the variables u of the last.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"exact_kernel"})
    _state_class = PseudoState
    unlabelled: ClassVar[frozenset[str]]  # losses of rows without a label
    tol: float
    max_passes: int

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        check_real(self.tol, "tol", low=0, low_open=True)
        check_int(self.max_passes, "max_passes", low=1)
        if self.max_support is not None:
            check_int(self.max_support, "max_support", low=1)

    def check_problem(self, problem: Problem) -> None:
        """Check losses and alpha.

        Raises
        ------
        CapabilityError
            The loss does not have the two parts that this solver knows.
        ValueError
            alpha is 0: there is no dual function then.
        """
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
        if not problem.alpha > 0.0:
            raise ValueError(
                f"solver {self.name!r} needs alpha > 0, got {problem.alpha!r}; choose a small "
                "positive alpha such as 1 / n_samples."
            )

    def init(self, problem: Problem, batch: TrainBatch) -> PseudoState:
        """Resolve the kernel and start from the intercept alone."""
        self.check_problem(problem)
        check_kinds(batch.y, batch.sample_weight, self.name)
        exact, rows = build_exact(problem, batch)
        C, n = problem.n_outputs, batch.n_rows
        intercept = np.zeros(C)
        if problem.fit_intercept:
            intercept = problem.loss.intercept(batch.y, batch.sample_weight)
        return PseudoState(
            alpha=problem.alpha,
            exact=exact,
            digest=batch_digest(problem, batch),
            rows=kernel_rows(problem, exact, rows),
            coef=np.zeros((n, C)),
            responses=np.zeros((C, n)),
            intercept=intercept,
            dual=np.zeros((C, n)),
            side=np.ascontiguousarray(batch.y.T, np.float64),
            shift=np.zeros((C, n)),
            primal=np.zeros(C),
            gap=np.zeros(C),
            done=np.zeros(C, bool),
            centre=np.zeros(n),
            spread=np.zeros(n),
        )

    @abstractmethod
    def _advance(self, problem: Problem, work: Work) -> None:
        """Go from one function that the solver would return to the next."""

    def step(self, problem: Problem, state: PseudoState, batch: TrainBatch) -> StepInfo:
        """Solve the machine on labels first, in each later step what `_advance` does."""
        rows = self._attach(problem, state, batch)
        evaluations = rows.n_evaluations
        before = self.functions(state)[0].copy()
        if state.alpha != problem.alpha:  # u is feasible for any alpha
            factor = state.alpha / problem.alpha
            state.alpha = problem.alpha
            state.coef, state.responses = factor * state.coef, factor * state.responses
            state.done[:] = False
        work = Work(self, problem, state, batch)
        if state.iteration == 0:
            work.solve(np.full(problem.n_outputs, np.inf))
        else:
            self._advance(problem, work)
        state.iteration += 1
        state.kernel_evaluations += rows.n_evaluations - evaluations
        loss, objective = work.truth(problem.loss)
        after = self.functions(state)[0]
        change = after - before
        index = np.flatnonzero(change.any(axis=1))
        C = problem.n_outputs
        return StepInfo(
            train_loss=loss,
            step_size=1.0,  # each coordinate goes all the way
            n_random_features=0,
            update=SupportUpdate(
                rows=rows.rows.take(index),
                scale=np.ones(C),
                moved=change[index],
                keep=np.zeros(C),
                blend=np.ones(C),
                drift=change[index],
            ),
            n_support=self.count_support(state),
            kernel_evaluations=state.kernel_evaluations,
            epoch=float(state.passes),
            objective=objective,
            converged=bool(state.done.all()),
        )


class Work:
    """The current sub-problem of a state on the rows of one step.

    Attributes
    ----------
    state : PseudoState
    p : float64 array (n,)
        Weights of the rows in the objective; they sum to 1.
    known : bool array (n,)
        Rows with a label.
    ratio : float
        Weight of the unlabelled loss.
    knee : float
        ``|s|`` of the ramp, 0 of the symmetric hinge.
    n_solved : int
        Sub-problems that went through :meth:`solve`.
    """

    def __init__(
        self, solver: PseudoSolver, problem: Problem, state: PseudoState, batch: TrainBatch
    ) -> None:
        loss = semi_supervised(problem, solver.name)
        self.solver, self.state, self.seed = solver, state, problem.seed
        self.n_solved = 0
        weight = np.asarray(batch.sample_weight, np.float64)
        self.p: Float64Array = weight / weight.sum()
        self.y = batch.y
        self.known: AnyArray = np.asarray(batch.y.any(axis=1))
        self.ratio = float(loss.ratio)
        self.knee = abs(float(getattr(loss.unlabelled, "s", 0.0)))

    @property
    def rows(self) -> KernelRows:
        """The training rows with their kernel values."""
        assert self.state.rows is not None
        return self.state.rows

    @property
    def weights(self) -> Float64Array:
        """Weights q of the sub-problem, (n,)."""
        return np.where(self.known, self.p, self.state.share * self.ratio * self.p)

    @property
    def responses(self) -> Float64Array:
        """Responses with intercept, (C, n)."""
        f: Float64Array = self.state.responses + self.state.intercept[:, None]
        return f

    def penalty(self) -> Float64Array:
        """Return ``alpha/2 |w|^2`` of each output."""
        s = self.state
        norm2: Float64Array = np.einsum("nc,cn->c", s.coef, s.responses)
        return 0.5 * s.alpha * norm2

    def truth(self, loss: Any) -> tuple[float, float]:
        """Return the mean loss and the non-convex objective, summed over outputs."""
        mean = float(self.p @ loss.value(self.y, np.ascontiguousarray(self.responses.T)))
        return mean, mean + float(self.penalty().sum())

    def measure(self) -> None:
        """Set objective and gap of each output of the sub-problem.

        Constants make the objective that of the loss which is linearised, where it is: the
        ramp with knee ``|s|`` is ``1 - |s| + max(0, |f| - 1) - max(0, |f| - |s|)``.
        """
        s, q = self.state, self.weights
        loss, s.gap = box_dual.loss_and_gap(s.side, s.dual, self.responses, q)
        tube = np.where(s.side == 0.0, 1.0 - self.knee * (1.0 - np.abs(s.shift)), 0.0)
        linear = np.einsum("cn,cn->c", s.shift * q, self.responses)
        s.primal = loss + np.einsum("cn,n->c", tube, q) - linear + self.penalty()

    def commit(self, moved: IntArray, change: Float64Array) -> None:
        """Add `change` (m, C) to the coefficients of rows `moved`, and to the responses."""
        s = self.state
        for i in range(0, len(moved), _BLOCK):  # no more rows at once, whatever the memory
            some = slice(i, i + _BLOCK)
            slots = self.rows.load(moved[some])
            dual.add_rows(self.rows.buffer, slots, change[some], s.responses)
        if s.centre.any():
            total = change.sum(axis=0)
            lift = np.einsum("mc,m->c", change, s.centre[moved]) - s.mass * total
            s.responses -= lift[:, None] + total[:, None] * s.centre
        s.coef[moved] += change

    def align(self) -> None:
        """Bring coefficients in line with dual variables, slopes and weights."""
        s = self.state
        coef = -(self.weights / s.alpha)[:, None] * (s.dual - s.shift).T
        moved = np.flatnonzero((coef != s.coef).any(axis=1))
        self.commit(moved, (coef - s.coef)[moved])

    def snapshot(self) -> dict[str, Float64Array]:
        """Return what :meth:`restore` needs to come back to this function."""
        return {name: getattr(self.state, name).copy() for name in _PER_ROW}

    def restore(self, kept: dict[str, Float64Array], c: int) -> None:
        """Go back to a snapshot in output `c`."""
        for name, values in kept.items():
            now = getattr(self.state, name)
            if name == "coef":
                now[:, c] = values[:, c]
            else:
                now[c] = values[c]

    def solve(
        self,
        start: Float64Array,
        kept: dict[str, Float64Array] | None = None,
        *,
        among: AnyArray | None = None,
        certify: bool = False,
    ) -> AnyArray:
        """Ascend until each output is solved to the tolerance and no higher than `start`.

        Parameters
        ----------
        start : float64 array (C,)
            Objective that the solution may not exceed.
        kept : snapshot or None
            Where an output goes back to that did not get there.
        among : bool array (C,) or None
            The outputs to solve; None takes all.
        certify : bool
            Whether an output stops, and goes back, when its dual tells that no function is
            lower than `start` by more than the tolerance.

        Returns
        -------
        int array (C,)
            1 for solved, 0 for out of passes or not asked for, -1 for stopped by `certify`.
        """
        s, tol = self.state, self.solver.tol
        C = len(start)
        out = np.zeros(C, np.int64)
        active = np.ones(C, bool) if among is None else among.copy()
        first = s.passes
        self.measure()
        while True:
            solved = active & (s.gap <= tol * s.primal) & (s.primal <= start)
            out[solved] = 1
            active &= ~solved
            if certify:
                stuck = active & (start - (s.primal - s.gap) <= tol * start)
                out[stuck] = -1
                active &= ~stuck
            if not active.any() or s.passes - first == self.solver.max_passes:
                break
            self._ascend(active, s.passes - first)
            self.measure()
        self.n_solved += 1
        out[active & (s.primal <= start)] = 1  # short of the tolerance, but lower
        if kept is not None:
            asked = np.ones(C, bool) if among is None else among
            for c in np.flatnonzero(asked & (out < 1)).tolist():
                self.restore(kept, c)
        return out

    def _ascend(self, active: AnyArray, number: int) -> None:
        """Visit all rows once, in the random order of a pass of this solution."""
        s, q = self.state, self.weights
        # all rows that are passed over hold that part of the tolerance together
        least = _SETTLED * self.solver.tol * s.primal / q.sum()
        least[~active] = np.inf
        reach = q / s.alpha
        live = np.flatnonzero(q)
        # no output sees in its order of visits how long the others took
        key = np.random.SeedSequence([self.seed, _TAG, s.iteration, self.n_solved, number])
        order = live[np.random.Generator(np.random.Philox(key)).permutation(len(live))]
        done = 0
        while done < len(order):
            done += self._block(order[done : done + _AHEAD * _BLOCK], reach, least)
        s.passes += 1
        s.rows_seen += len(live)

    def _block(self, index: IntArray, reach: Float64Array, least: Float64Array) -> int:
        """Visit rows of `index` in order up to the last of a block; return how many.

        Rows that would stay now need no kernel values unless those before them change that.
        """
        s = self.state
        side, u = s.side[:, index], s.dual[:, index]
        f = s.responses[:, index] + s.intercept[:, None]
        ready = np.flatnonzero(box_dual.unsettled(side, u, f, least))[:_BLOCK]
        if len(ready) == 0:
            return len(index)
        w = int(ready[-1]) + 1 if len(ready) == _BLOCK else len(index)
        index = index[:w]
        side, u, f = (np.ascontiguousarray(a[:, :w]) for a in (side, u, f))
        K = np.empty((w, w))
        place = np.full(w, -1)
        joined, done = 0, 0
        while len(ready):
            K[joined : joined + len(ready)] = self._among(index[ready], index)
            place[ready] = np.arange(joined, joined + len(ready))
            joined += len(ready)
            done = box_dual.sweep(side, u, f, reach[index], place, K, least, done)
            ready = np.arange(done, min(done + 1, w))
        changed = np.flatnonzero((u != s.dual[:, index]).any(axis=0))
        moved = index[changed]
        coef = -reach[moved] * (u[:, changed] - s.shift[:, moved])
        s.dual[:, moved] = u[:, changed]
        self.commit(moved, np.ascontiguousarray(coef.T) - s.coef[moved])
        return w

    def _among(self, first: IntArray, second: IntArray) -> Float64Array:
        """Return centred kernel values."""
        s = self.state
        K = self.rows.among(first, second).astype(np.float64)
        K -= s.centre[first, None] + s.centre[second]
        K += s.mass
        return K


_PER_ROW = ("coef", "responses", "dual", "side", "shift")
