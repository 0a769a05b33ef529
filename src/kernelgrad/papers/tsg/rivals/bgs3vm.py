r"""Semi-supervised support vector machines by gradient steps on a budget of support rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.functions.exact import join_rows
from kernelgrad.kernels import ExactRows
from kernelgrad.losses import SemiSupervised
from kernelgrad.papers.support_state import SupportState
from kernelgrad.papers.tsg import tsg as ramps
from kernelgrad.params import anything, integer, parameters, real
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, sized
from kernelgrad.solvers.soft_labels import check_kinds, semi_supervised
from kernelgrad.solvers.support import KernelSolver, build_exact, support_update
from kernelgrad.types import AnyArray, Float64Array, IntArray
from kernelgrad.validation import CapabilityError


@dataclass(kw_only=True)
class BudgetState(SupportState):
    labelled: AnyArray = sized("S", kinds="b")  # True if a support row had a label
    coef: Float64Array = sized("S", "C")
    intercept: Float64Array = sized("C")
    intercept_known: bool = False  # whether a labelled row has come yet
    first_step: float = 1.0  # gamma_0


@parameters
class BGS3VM(KernelSolver[BudgetState]):
    r"""Stochastic gradient on the exact kernel with a budget for each kind of support row.

    This is the rival that Geng et al. (2019, Sections 2 and 6.1) describe under this name; the
    machine of Le et al. (2016) has a smoothness over a spectral graph besides. Step t = 0, 1,
    ... on a batch of labelled and unlabelled rows is

    .. math:: w \leftarrow (1 - \gamma_t \alpha) w
              - \gamma_t \sum_i p_i l'(y_i, f(x_i))\, k(x_i, \cdot),
              \qquad \gamma_t = \frac{\gamma_0}{1 + \gamma_0 \alpha t}
                              = \frac{1}{\alpha (t + 1 / (\gamma_0 \alpha))}

    with ``l' = ratio u'`` for rows without a label and weights p that sum to 1/2 on each kind
    of row in the batch, which may lack one kind. The bias is the best constant of the labelled
    rows in the first batch that has any. Beyond the budget of their kind the support rows with
    the smallest ``max_c |a_sc| sqrt(k(x_s, x_s))`` are dropped. Rows known by their numbers
    have one coefficient however often they are drawn.

    Losses: any margin loss for labelled rows, any unlabelled loss for the others.

    Parameters
    ----------
    labelled_budget, unlabelled_budget : int, default=500
        Largest numbers of support rows with a label and without one.
    step_size : float > 0 or "auto", default="auto"
        ``gamma_0``. ``"auto"`` is 16 over the mean of ``k(x, x)`` on the first batch.
    ramp : (start, end), default=(0.3, 0.6)
        Fractions of the estimator's `max_iter` (100 on streams): the weight of the unlabelled
        loss is 0 before the first, 1 after the second, and linear in between, since signs of f
        mean little before labels shape them. ``(0, 0)`` is the paper.
    batch_size : int or "auto", default="auto"
        Rows of a batch, labelled and unlabelled; ``"auto"`` is 256.
    """

    marks: ClassVar[bool] = True
    name: ClassVar[str] = "bgs3vm"
    removed = frozenset({"horizon", "maintenance", "schedule"})
    requires: ClassVar[frozenset[str]] = frozenset({"exact_kernel", "gradient"})

    state_class = BudgetState

    labelled_budget: int = integer(default=500, low=1)
    unlabelled_budget: int = integer(default=500, low=1)
    step_size: float | str = real(default="auto", low=0, low_open=True, words=("auto",))
    ramp: Sequence[float] = anything(default=(0.3, 0.6))
    batch_size: int | str = integer(default="auto", low=1, words=("auto",))

    def check(self) -> None:
        super().check()
        ramps.check_ramp(self.ramp)

    def check_problem(self, problem: Problem) -> None:
        loss = semi_supervised(problem, self.name).labelled
        if "classification" not in loss.tasks or loss.is_multinomial:
            raise CapabilityError(
                f"solver {self.name!r} needs a loss of the margin for labelled rows, got "
                f"{loss.name!r}; choose one such as 'hinge'."
            )

    def resolve_batch_size(self, n_rows: int | None) -> int:
        return 256 if self.batch_size == "auto" else int(self.batch_size)

    def init(self, problem: Problem, batch: TrainBatch) -> BudgetState:
        self.check_problem(problem)
        if problem.fixed_rows:
            check_kinds(batch.y, batch.sample_weight, self.name)
        exact, rows = build_exact(problem, batch)
        C = problem.n_outputs
        first_step = self.step_size
        if first_step == "auto":
            p = batch.sample_weight / batch.sample_weight.sum()
            kappa = float(np.einsum("n,n->", p, exact.kernel.exact_diag(rows)))
            first_step = 16.0 / max(kappa, 1e-30)
            labelled = semi_supervised(problem, self.name).labelled
            if ramps.slope_grows(labelled):  # a bound of the curvature on these rows
                root = np.sqrt(p)
                top = np.linalg.eigvalsh(root[:, None] * exact.matrix(rows, rows) * root)[-1]
                L = labelled.smoothness or 1.0
                first_step = min(first_step, 1.0 / (L * max(float(top), 1e-30)))
        return BudgetState(
            exact=exact, rows=rows.take(slice(0, 0)), numbers=np.zeros(0, np.int64),
            labelled=np.zeros(0, bool), diagonal=np.zeros(0), coef=np.zeros((0, C)),
            intercept=np.zeros(C), intercept_known=not problem.fit_intercept,
            first_step=float(first_step),
        )  # fmt: skip

    def step(self, problem: Problem, state: BudgetState, batch: TrainBatch) -> StepInfo:
        loss = semi_supervised(problem, self.name)
        labelled = np.asarray(batch.y.any(axis=1))
        weight = np.asarray(batch.sample_weight, np.float64)
        if not state.intercept_known and weight[labelled].any():
            state.intercept = loss.intercept(batch.y, weight)
            state.intercept_known = True
        p = np.zeros(batch.n_rows)
        for kind in (labelled, ~labelled):
            total = float(weight[kind].sum())
            if total > 0.0:
                p[kind] = 0.5 * weight[kind] / total
        rows = state.exact.prepare(batch.X, batch.rows)
        gamma = state.first_step / (1.0 + state.first_step * problem.alpha * state.iteration)
        keep = max(0.0, 1.0 - gamma * problem.alpha)
        with single_threaded_blas():
            f = state.intercept + state.exact.products(rows, state.rows, state.coef)
            state.kernel_evaluations += batch.n_rows * len(state.coef)
            train_loss = float(np.einsum("n,n->", p, loss.value(batch.y, f)))
            if not np.isfinite(train_loss):
                raise FloatingPointError(
                    f"The fit diverged before step {state.iteration + 1} (training loss "
                    f"{train_loss:g}); take smaller steps, raise alpha, or scale the data."
                )
            share = ramps.ramp_share(self.ramp, ramps.iterations(problem), state.iteration)
            now = SemiSupervised(loss.labelled, loss.unlabelled, share * loss.ratio)
            added = -gamma * p[:, None] * now.gradient(batch.y, f)
            pool = _Pool(state, keep)
            pool.add(rows, added, labelled, batch.rows)
            after = pool.coef.copy()
            pool.limit(pool.labelled, self.labelled_budget, after)
            pool.limit(~pool.labelled, self.unlabelled_budget, after)
        update = support_update(state, pool.rows, after - pool.before, keep)
        support = np.flatnonzero(after.any(axis=1))
        state.rows, state.coef = pool.rows.take(support), after[support]
        state.numbers, state.labelled = pool.numbers[support], pool.labelled[support]
        state.diagonal = pool.diagonal[support]
        state.iteration += 1
        state.rows_seen += batch.n_rows
        return self._info(state, train_loss, update, gamma)


class _Pool:
    """Support rows and those of a batch that join them, before the budgets are kept.

    ``before`` (S, C) are the coefficients of the function before the step, shrunk.
    """

    def __init__(self, state: BudgetState, keep: float) -> None:
        self.state = state
        self.rows, self.labelled, self.diagonal = state.rows, state.labelled, state.diagonal
        self.before = keep * state.coef
        self.coef = self.before.copy()

    def add(
        self, rows: ExactRows, added: Float64Array, labelled: AnyArray, numbers: IntArray | None
    ) -> None:
        moved, state = np.flatnonzero(added.any(axis=1)), self.state
        # rows of one number, in the batch or in the support, share a coefficient; without
        # numbers each row is one of its own
        tags = np.arange(len(moved)) if numbers is None else numbers[moved]
        slot = state.find(rows.take(moved), None if numbers is None else tags)
        old = np.flatnonzero(slot >= 0)
        other = old[self.labelled[slot[old]] != labelled[moved[old]]]
        state.numbers[slot[other]] = -1
        slot[other] = -1
        fresh = np.flatnonzero(slot < 0)
        _, first, back = np.unique(tags[fresh], return_index=True, return_inverse=True)
        slot[fresh] = len(self.coef) + back
        new = moved[fresh[first]]
        joined = rows.take(new)
        own = np.full(len(new), -1, np.int64) if numbers is None else numbers[new]
        zeros = np.zeros((len(new), added.shape[1]))
        self.rows = join_rows([self.rows, joined])
        self.numbers = np.concatenate([state.numbers, own])
        self.labelled = np.concatenate([self.labelled, labelled[new]])
        self.diagonal = np.concatenate([self.diagonal, state.exact.kernel.exact_diag(joined)])
        self.before = np.concatenate([self.before, zeros])
        self.coef = np.concatenate([self.coef, zeros])
        np.add.at(self.coef, slot, added[moved])

    def limit(self, kind: AnyArray, budget: int, after: Float64Array) -> None:
        """Drop the least rows of a kind beyond its budget from the coefficients `after`."""
        index = np.flatnonzero(kind & after.any(axis=1))
        power = self.diagonal[index] * np.square(after[index]).max(axis=1)
        order = np.argsort(power, kind="stable")  # the newer of equal ones stay
        after[index[order[: max(0, len(index) - budget)]]] = 0.0
