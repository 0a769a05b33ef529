r"""Proximal stochastic dual coordinate ascent for linear functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernelgrad.compute.threads import parallel_for
from kernelgrad.linear import base, dual
from kernelgrad.linear.conjugate import conjugate_of
from kernelgrad.linear.dual import View
from kernelgrad.losses import Loss
from kernelgrad.params import integer, parameters
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, sized, transient
from kernelgrad.solvers.support import visit_order
from kernelgrad.types import Float64Array
from kernelgrad.validation import CapabilityError

_CONSTANT = 0.1  # square of the column of constants over the mean squared norm of a row
_BIAS_ERROR = 1e-3  # gap that the bias may add, over the tolerance


def _seen(problem: base.LinearProblem, data: base.PreparedRows) -> View:
    """Return the rows from their mean, if they can be centred, else from 0."""
    p = data.share
    squares, along = data.squares(), np.zeros(data.n)
    mean = np.zeros((data.d, 1))
    if centred := problem.fit_intercept and problem.l1 == 0.0:
        mean = data.native(data.gradient(p[:, None]))
        along = data.responses(data.native(mean), np.zeros(1))[:, 0]
        squares = np.maximum(squares - 2.0 * along + float((mean**2).sum()), 0.0)
    kappa = 0.0
    if problem.fit_intercept:  # equal rows have no length to go by
        kappa = _CONSTANT * float(p @ squares) or 1.0
    m = mean[:, 0]
    return View(centred, m, along, squares + kappa, kappa, float(m @ m) + kappa)


@dataclass(kw_only=True)
class LinearSDCAState(base.LinearState):
    dual: Float64Array = sized("C", "n", later=True)  # u
    sums: Float64Array = sized("C", "d", later=True)  # -sum_i p_i u_i x_i / l2
    l2: float = 1.0  # the penalty that `sums` are divided by
    centre: Float64Array = sized("C", later=True)  # b_0, which pulls the next round's bias
    primal: Float64Array = sized("C", later=True)  # objective of each output
    gap: Float64Array = sized("C", later=True, finite=False)  # duality gap of each output
    view: View | None = transient()


@parameters
class LinearSDCA(base.LinearSolver[LinearSDCAState]):
    r"""Proximal stochastic dual coordinate ascent, stopped by its duality gap.

    The dual of the objective with weights p_i of sum 1 is

    .. math:: D(u) = -\sum_i p_i l_i^*(u_i) - \frac{1}{2 l_2} \|\mathrm{soft}(v, l_1)\|^2,
              \qquad v = -\sum_i p_i u_i x_i, \qquad W = \mathrm{soft}(v, l_1) / l_2

    and an unpenalised intercept is the constraint ``sum_i p_i u_i = 0``. Rows are taken in a
    new random order in each pass, and each moves its ``u_i`` to the maximum with all others
    fixed: in closed form, for the logistic loss by Newton's method, with an L1 penalty to the
    maximum of a quadratic bound. Outputs are independent of each other, and the work for a CSR
    row is proportional to its stored entries. Takes all losses of the linear solvers but the
    multinomial one; needs an L2 penalty.

    A single coordinate cannot keep the constraint of the intercept. Within a round the
    intercept therefore has the penalty ``l2 / (2 kappa) (b - b_0)^2``, with kappa a tenth of
    the mean squared norm of the rows; after the round b_0 moves to b (method of multipliers).
    Without an L1 penalty rows are centred, which makes them shorter; CSR rows stay sparse.
    Then u is made feasible by scaling down the sign with the larger sum; the gap bounds the
    distance of the objective from its minimum, whatever the rounding, and the fit has converged
    when that of every output is at most the estimator's ``tol`` times its objective.

    Parameters
    ----------
    round_size : int or "auto", default="auto"
        Rows visited in one step of the loop, before b_0 moves and the gap is measured at the
        cost of about a pass. ``"auto"`` is one pass over the rows of positive weight.

    References
    ----------
    Shalev-Shwartz and Zhang (2013, 2014); Hsieh et al. (2008).
    """

    name: ClassVar[str] = "sdca"
    takes_kinks: ClassVar[bool] = True
    needs_l2: ClassVar[bool] = True
    state_class: ClassVar[type[Any]] = LinearSDCAState

    round_size: int | str = integer(default="auto", low=1, words=("auto",))

    @classmethod
    def takes(cls, loss: Loss) -> bool:
        try:
            conjugate_of(loss, loss.n_outputs or 1)
        except CapabilityError:
            return False
        return super().takes(loss)

    def init(self, problem: Problem, batch: TrainBatch) -> LinearSDCAState:
        own, C = base.as_linear(problem), problem.n_outputs
        state = super().init(problem, batch)
        state.dual = np.zeros((C, batch.n_rows))
        state.sums = np.zeros((C, problem.n_features_in))
        state.l2, state.centre = own.l2, state.bias.copy()
        state.primal, state.gap = np.zeros(C), np.zeros(C)
        _measure(own, state, self._attach(problem, state, batch))
        return state

    def step(self, problem: Problem, state: LinearSDCAState, batch: TrainBatch) -> StepInfo:
        own = base.as_linear(problem)
        data = self._attach(problem, state, batch)
        if own.l2 != state.l2:
            state.sums *= state.l2 / own.l2
            state.l2 = own.l2
        Y = np.ascontiguousarray(data.Y.T)
        reach, t = data.share / own.l2, own.l1 / own.l2
        view = state.view
        if view is None or view.centred != (own.fit_intercept and own.l1 == 0.0):
            view = state.view = _seen(own, data)
        sigma = state.dual @ reach
        live = np.flatnonzero(data.share)
        n_visits = len(live) if self.round_size == "auto" else int(self.round_size)
        passes = visit_order(own.seed, state.rows_seen, n_visits, live)
        order = np.concatenate(list(passes))

        def task(c: int) -> None:
            v = state.sums[c]
            sigma[c] = dual.ascend(
                data.rows, order, data.code, data.numbers[c], Y[c], reach, view, t,
                state.dual[c], v, sigma[c], state.centre[c] - float(view.mean @ v),
            )  # fmt: skip

        parallel_for(own.n_outputs, task)
        state.centre -= view.kappa * sigma
        seen = state.sums + sigma[:, None] * view.mean
        state.coef = np.ascontiguousarray(dual.soft(seen, t).T)
        loss = _measure(own, state, data)
        state.iteration += 1
        state.rows_seen += n_visits
        return StepInfo(
            train_loss=loss,
            step_size=1.0,  # each coordinate goes all the way
            n_random_features=0,
            epoch=state.rows_seen / len(live),
            objective=float(state.primal.sum()),
            duality_gap=float(state.gap.sum()),
            converged=bool(np.all(state.gap <= own.tol * state.primal)),
        )


def _measure(
    problem: base.LinearProblem, state: LinearSDCAState, data: base.PreparedRows
) -> float:
    """Set the best bias, objective and gap of each output; return the mean loss.

    With W, b the function and u', v' feasible the gap is ``sum_i p_i (l_i(f_i) + l_i^*(u'_i) -
    u'_i f_i) + R(W) + R^*(v') - <W, v'>``: two terms, neither of which is negative.
    """
    p = data.share
    C, l1, l2 = problem.n_outputs, problem.l1, problem.l2
    f = np.ascontiguousarray(data.responses(data.native(state.coef), np.zeros(C)).T)
    Y = np.ascontiguousarray(data.Y.T)
    feasible, losses = state.dual.copy(), np.zeros(C)

    def settle(c: int) -> None:
        if problem.fit_intercept:
            error = _BIAS_ERROR * problem.tol * state.primal[c]
            state.bias[c] = dual.best_bias(
                data.code, data.numbers[c], Y[c], f[c], p, state.bias[c], error
            )
            feasible[c] = dual.balance(state.dual[c], p)
        losses[c], state.gap[c] = dual.mean_loss_and_gap(
            data.code, data.numbers[c], Y[c], feasible[c], f[c], state.bias[c], p
        )

    parallel_for(C, settle)
    v = -data.native(data.gradient(np.ascontiguousarray((feasible * p).T)))
    dual_norm = np.maximum(np.abs(v) - l1, 0.0)
    W = state.coef
    penalty = l1 * np.abs(W).sum(axis=0) + 0.5 * l2 * (W * W).sum(axis=0)
    conjugate = 0.5 * (dual_norm**2).sum(axis=0) / l2
    state.gap += np.maximum(penalty + conjugate - (W * v).sum(axis=0), 0.0)
    state.primal = losses + penalty
    return float(losses.sum())
