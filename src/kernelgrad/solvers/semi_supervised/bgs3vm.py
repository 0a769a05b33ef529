r"""Semi-supervised support vector machines by gradient steps on a budget of support rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from kernelgrad._typing import AnyArray, Float64Array, IntArray, Matrix
from kernelgrad._validation import CapabilityError, check_int, check_name, check_real
from kernelgrad.compute.linalg import solve_damped
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.functions.exact import ExactKernel, join_rows
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.kernels import ExactRows
from kernelgrad.losses import SemiSupervised
from kernelgrad.solvers.base import Problem, Solver, State, StepInfo, TrainBatch
from kernelgrad.solvers.kernel.base import (
    SupportTracker,
    SupportUpdate,
    build_exact,
    describe_with_rows,
    restore_with_rows,
)
from kernelgrad.solvers.kernel.online import equal_rows
from kernelgrad.solvers.schedules import check_ramp, iterations, ramp_share, slope_grows
from kernelgrad.solvers.semi_supervised.base import check_kinds, semi_supervised

_BATCH = 256
_STEP = 16.0


@dataclass(kw_only=True)
class BudgetState(State):
    """State of :class:`BGS3VM`.

    Attributes
    ----------
    exact : ExactKernel
    rows : ExactRows
        The S support rows.
    numbers : int64 array (S,)
        Their numbers in the source, -1 where these mean nothing.
    labelled : bool array (S,)
        Which of them had a label.
    diagonal : float64 array (S,)
        ``k(x_s, x_s)``.
    coef : float64 array (S, C)
    intercept : float64 array (C,)
    intercept_known : bool
        Whether a labelled row has come yet.
    first_step : float
        ``gamma_0``.
    kernel_evaluations : int
    """

    exact: ExactKernel
    rows: ExactRows
    numbers: IntArray
    labelled: AnyArray
    diagonal: Float64Array
    coef: Float64Array
    intercept: Float64Array
    intercept_known: bool = False
    first_step: float = 1.0
    kernel_evaluations: int = 0

    def copy(self) -> Self:
        """Return a state with its own arrays; the rows are shared."""
        own = vars(self).items()
        arrays: dict[str, Any] = {k: v.copy() for k, v in own if isinstance(v, np.ndarray)}
        return replace(self, **arrays)

    @property
    def prepared(self) -> ExactRows:
        """The support rows."""
        return self.rows


class BGS3VM(Solver[BudgetState]):
    r"""Stochastic gradient on the exact kernel with a budget for each kind of support row.

    Step t = 0, 1, ... on a batch of labelled and unlabelled rows is

    .. math:: w \leftarrow (1 - \gamma_t \alpha) w
              - \gamma_t \sum_i p_i l'(y_i, f(x_i))\, k(x_i, \cdot),
              \qquad \gamma_t = \frac{\gamma_0}{1 + \gamma_0 \alpha t}
                              = \frac{1}{\alpha (t + 1 / (\gamma_0 \alpha))}

    with ``l' = ratio u'`` for rows without a label and weights p that sum to 1/2 on each kind
    of row in the batch: each half is an unbiased estimate, however few labels there are. A
    batch may lack one kind. The bias is the best constant of the labelled rows in the first
    batch that has any.

    Rows with a gradient become support rows. Where there are then more than the budget of
    their kind those with the smallest ``max_c |a_sc| sqrt(k(x_s, x_s))`` go, whose loss alone
    moves the function least. So memory, and work per row, are bounded however long the fit.
    Rows known by their numbers have one coefficient however often they come.

    Losses: any of the margin for labelled rows, any for the others.

    Parameters
    ----------
    labelled_budget, unlabelled_budget : int, default=500
        Most support rows with a label, and without one.
    step_size : float > 0 or "auto", default="auto"
        ``gamma_0``. ``"auto"`` is 16 over the mean of ``k(x, x)`` on the first batch: of 4, 8,
        16 and 32 it and the next did best in 40 and 200 steps with a few labels a batch, where
        smaller ones had not got anywhere yet.
    schedule : {"inverse", "constant"}, default="inverse"
        gamma_t as above, or ``gamma_0`` throughout.
    maintenance : {"removal", "projection"}, default="removal"
        ``"projection"`` puts in place of the rows that go what comes closest to them in the
        span of those of their kind that stay, at the cost of the kernel matrix of these and
        its Cholesky factor in every step that drops rows.
    ramp : (start, end), default=(0.3, 0.6)
        Parts of the horizon: before the first the unlabelled loss counts nothing, after the
        second all of it, linearly between. Signs of f mean little before labels shape them:
        without it the error on two moons with ten labels was .14, with it .10 (means of 12
        draws, s.e. .02).
        ``(0, 0)`` is the paper.
    horizon : int or "auto", default="auto"
        Steps of the whole fit; ``"auto"`` is its ``max_iter``, and 100 on streams.
    batch_size : int or "auto", default="auto"
        Rows of a batch, labelled and unlabelled; ``"auto"`` is 256.

    References
    ----------
    Le, Duong, Dinh, Nguyen, Nguyen and Phung (2016), "Budgeted Semi-supervised Support Vector
    Machine".
    """

    name: ClassVar[str] = "bgs3vm"
    requires: ClassVar[frozenset[str]] = frozenset({"exact_kernel", "gradient"})

    def __init__(
        self,
        *,
        labelled_budget: int = 500,
        unlabelled_budget: int = 500,
        step_size: float | str = "auto",
        schedule: str = "inverse",
        maintenance: str = "removal",
        ramp: Sequence[float] = (0.3, 0.6),
        horizon: int | str = "auto",
        batch_size: int | str = "auto",
    ) -> None:
        self.labelled_budget = labelled_budget
        self.unlabelled_budget = unlabelled_budget
        self.step_size = step_size
        self.schedule = schedule
        self.maintenance = maintenance
        self.ramp = ramp
        self.horizon = horizon
        self.batch_size = batch_size

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        check_int(self.labelled_budget, "labelled_budget", low=1)
        check_int(self.unlabelled_budget, "unlabelled_budget", low=1)
        if self.step_size != "auto":
            check_real(self.step_size, "step_size", low=0, low_open=True)
        check_name(self.schedule, ("inverse", "constant"), "schedule")
        check_name(self.maintenance, ("removal", "projection"), "maintenance")
        if self.batch_size != "auto":
            check_int(self.batch_size, "batch_size", low=1)
        check_ramp(self.ramp, self.horizon)

    def check_problem(self, problem: Problem) -> None:
        """Raise unless the loss has two parts, and that of labelled rows is of the margin."""
        loss = semi_supervised(problem, self.name).labelled
        if "classification" not in loss.tasks or loss.is_multinomial:
            raise CapabilityError(
                f"solver {self.name!r} needs a loss of the margin for labelled rows, got "
                f"{loss.name!r}; choose one such as 'hinge'."
            )

    def resolve_batch_size(self, n_rows: int | None) -> int:
        """Return the rows per step."""
        return _BATCH if self.batch_size == "auto" else int(self.batch_size)

    def init(self, problem: Problem, batch: TrainBatch) -> BudgetState:
        """Resolve the kernel on the first batch and start from a constant."""
        self.check_problem(problem)
        if problem.fixed_rows:
            check_kinds(batch.y, batch.sample_weight, self.name)
        exact, rows = build_exact(problem, batch)
        C = problem.n_outputs
        first_step = self.step_size
        if first_step == "auto":
            p = batch.sample_weight / batch.sample_weight.sum()
            kappa = float(np.einsum("n,n->", p, exact.kernel.exact_diag(rows)))
            first_step = _STEP / max(kappa, 1e-30)
            labelled = semi_supervised(problem, self.name).labelled
            if slope_grows(labelled):
                # rows of the first batch as if they were all: a bound of the curvature
                root = np.sqrt(p)
                top = np.linalg.eigvalsh(root[:, None] * exact.matrix(rows, rows) * root)[-1]
                L = labelled.smoothness or 1.0
                first_step = min(first_step, 1.0 / (L * max(float(top), 1e-30)))
        return BudgetState(
            exact=exact,
            rows=rows.take(slice(0, 0)),
            numbers=np.zeros(0, np.int64),
            labelled=np.zeros(0, bool),
            diagonal=np.zeros(0),
            coef=np.zeros((0, C)),
            intercept=np.zeros(C),
            intercept_known=not problem.fit_intercept,
            first_step=float(first_step),
        )

    def step(self, problem: Problem, state: BudgetState, batch: TrainBatch) -> StepInfo:
        """Take one gradient step and bring the support back to its budgets."""
        loss = semi_supervised(problem, self.name)
        known = np.asarray(batch.y.any(axis=1))
        weight = np.asarray(batch.sample_weight, np.float64)
        if not state.intercept_known and weight[known].any():
            state.intercept = loss.intercept(batch.y, weight)
            state.intercept_known = True
        p = np.zeros(batch.n_rows)
        for kind in (known, ~known):
            total = float(weight[kind].sum())
            if total > 0.0:
                p[kind] = 0.5 * weight[kind] / total
        rows = state.exact.prepare(batch.X, batch.rows)
        gamma = state.first_step
        if self.schedule == "inverse":
            gamma /= 1.0 + state.first_step * problem.alpha * state.iteration
        keep = max(0.0, 1.0 - gamma * problem.alpha)
        with single_threaded_blas():
            f = np.tile(state.intercept, (batch.n_rows, 1))
            state.exact.add_product(rows, state.rows, state.coef, f)
            state.kernel_evaluations += batch.n_rows * len(state.coef)
            train_loss = float(np.einsum("n,n->", p, loss.value(batch.y, f)))
            if not np.isfinite(train_loss):
                raise FloatingPointError(
                    f"The fit diverged before step {state.iteration + 1} (training loss "
                    f"{train_loss:g}); take smaller steps, raise alpha, or scale the data."
                )
            T = iterations(self.horizon, problem)
            share = ramp_share(self.ramp, T, state.iteration)
            now = SemiSupervised(loss.labelled, loss.unlabelled, share * loss.ratio)
            added = -gamma * p[:, None] * now.gradient(batch.y, f)
            pool = _Pool(state, keep)
            pool.add(rows, added, known, batch.rows)
            after = pool.coef.copy()
            budgets = (self.labelled_budget, self.unlabelled_budget)
            for label, budget in zip((True, False), budgets, strict=True):
                some = np.flatnonzero(pool.labelled == label)
                self._limit(state, pool, some, budget, after)
        moved = after - pool.before
        index = np.flatnonzero(moved.any(axis=1))
        C = problem.n_outputs
        update = SupportUpdate(
            rows=pool.rows.take(index),
            scale=np.full(C, keep),
            moved=moved[index],
            keep=np.zeros(C),
            blend=np.full(C, keep),
            drift=moved[index],
        )
        kept = np.flatnonzero(after.any(axis=1))
        state.rows, state.coef = pool.rows.take(kept), after[kept]
        state.numbers, state.labelled = pool.numbers[kept], pool.labelled[kept]
        state.diagonal = pool.diagonal[kept]
        state.iteration += 1
        state.rows_seen += batch.n_rows
        return StepInfo(
            train_loss=train_loss,
            step_size=gamma,
            n_random_features=0,
            update=update,
            n_support=len(kept),
            kernel_evaluations=state.kernel_evaluations,
        )

    def _limit(
        self, state: BudgetState, pool: _Pool, kind: IntArray, budget: int, after: Float64Array
    ) -> None:
        """Bring the rows `kind` of the pool to the budget, writing their coefficients."""
        kind = kind[after[kind].any(axis=1)]
        if len(kind) <= budget:
            return
        power = pool.diagonal[kind] * np.square(after[kind]).max(axis=1)
        order = np.argsort(power, kind="stable")  # of equal ones the newer stay
        gone, rest = np.sort(kind[order[:-budget]]), np.sort(kind[order[-budget:]])
        if self.maintenance == "projection":
            rows = pool.rows.take(rest)
            target = np.zeros((budget, after.shape[1]))
            state.exact.add_product(rows, pool.rows.take(gone), after[gone], target)
            K = state.exact.matrix(rows, rows).astype(np.float64)
            after[rest] += solve_damped(K, 0.0, target)
            state.kernel_evaluations += budget * (budget + len(gone))
        after[gone] = 0.0

    def functions(self, state: BudgetState) -> tuple[Float64Array, Float64Array]:
        """Return the coefficients of the function, twice: there is no average."""
        return state.coef, state.coef

    def output(self, state: BudgetState) -> tuple[Float64Array, Float64Array]:
        """Return (1, intercept)."""
        return np.ones(len(state.intercept)), state.intercept

    def expansion(self, state: BudgetState) -> SupportExpansion:
        """Return the current function."""
        return SupportExpansion(state.exact, state.rows, state.coef, state.intercept)

    def track(self, state: BudgetState, X: Matrix) -> SupportTracker:
        """Return the incremental responses of the rows of `X`."""
        return SupportTracker(self, state, state.exact.prepare(X))

    def state_arrays(self, state: BudgetState) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Return the state, support rows included."""
        return describe_with_rows(state, state.exact, state.rows)

    def restore(
        self, problem: Problem, values: dict[str, Any], arrays: dict[str, AnyArray]
    ) -> BudgetState:
        """Return the state that :meth:`state_arrays` described."""
        support, own = restore_with_rows(problem, values, arrays)
        return BudgetState(exact=support.exact, rows=support.support, **own)


class _Pool:
    """Support rows and those of a batch that join them, before the budgets are kept.

    Attributes
    ----------
    rows, numbers, labelled, diagonal, coef
        As in :class:`BudgetState`.
    before : float64 array (S, C)
        Coefficients of the function before the step, shrunk.
    """

    def __init__(self, state: BudgetState, keep: float) -> None:
        self.exact = state.exact
        self.rows, self.numbers = state.rows, state.numbers.copy()
        self.labelled, self.diagonal = state.labelled, state.diagonal
        self.before = keep * state.coef
        self.coef = self.before.copy()

    def add(
        self, rows: ExactRows, added: Float64Array, known: AnyArray, numbers: IntArray | None
    ) -> None:
        """Add the coefficients of the rows of a batch."""
        some = np.flatnonzero(added.any(axis=1))
        slot: IntArray = np.full(len(some), -1, np.int64)
        if numbers is not None and len(some):
            # rows of one number, in the batch or in the support, share a coefficient
            slot = self._find(rows.take(some), numbers[some], known[some])
        fresh = np.flatnonzero(slot < 0)
        # without numbers each row is one of its own
        tags = np.arange(len(some)) if numbers is None else numbers[some]
        _, first, back = np.unique(tags[fresh], return_index=True, return_inverse=True)
        slot[fresh] = len(self.coef) + back
        new = some[fresh[first]]
        C = added.shape[1]
        joined = rows.take(new)
        self.rows = join_rows([self.rows, joined])
        known_as = np.full(len(new), -1, np.int64) if numbers is None else numbers[new]
        self.numbers = np.concatenate([self.numbers, known_as])
        self.labelled = np.concatenate([self.labelled, known[new]])
        diagonal = self.exact.kernel.exact_diag(joined)
        self.diagonal = np.concatenate([self.diagonal, diagonal])
        zeros = np.zeros((len(new), C))
        self.before = np.concatenate([self.before, zeros])
        self.coef = np.concatenate([self.coef, zeros])
        np.add.at(self.coef, slot, added[some])

    def _find(self, rows: ExactRows, numbers: IntArray, known: AnyArray) -> IntArray:
        """Return where in the support each row is, or -1."""
        slot = np.full(len(numbers), -1, np.int64)
        S = len(self.numbers)
        if S == 0:
            return slot
        order = np.argsort(self.numbers, kind="stable")
        place = order[np.searchsorted(self.numbers, numbers, sorter=order).clip(0, S - 1)]
        found = np.flatnonzero(self.numbers[place] == numbers)
        if len(found):
            entry = place[found]
            same = equal_rows(self.rows.take(entry), rows.take(found))
            same &= self.labelled[entry] == known[found]
            slot[found[same]] = entry[same]
            self.numbers[entry[~same]] = -1  # rows of another source
        return slot
