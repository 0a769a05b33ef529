r"""SIMBA: a linear SVM in time sublinear in the data, from its slack-constrained form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from kernelgrad._typing import Float64Array
from kernelgrad._validation import check_int, check_real
from kernelgrad.compute.threads import parallel_for
from kernelgrad.losses import scalar as linear
from kernelgrad.solvers.base import Problem, StepInfo, TrainBatch, draws
from kernelgrad.solvers.kernel import minimax as water
from kernelgrad.solvers.kernel.sbp import best_scale, paired_heights
from kernelgrad.solvers.linear import _dual as linear_dual
from kernelgrad.solvers.linear import _simba as simba
from kernelgrad.solvers.linear.base import (
    LinearMemory,
    LinearProblem,
    LinearSolver,
    LinearState,
    as_linear,
    evaluate,
)

_TAG = 0x73696D62
_MOST_NU = 1.0  # of rows of norm 1 at most: beyond it more slack hardly moves w
_LEAST_NU = 1e-12
_NU_FALL = 0.5  # where no scale of the average is better than a constant
_BIAS_ERROR = 1e-9


def _empty() -> Float64Array:
    return np.zeros(0)


@dataclass(kw_only=True)
class SIMBAState(LinearState):
    """State of :class:`SIMBA`; ``coef`` and ``bias`` are of the result.

    Attributes
    ----------
    weights : float64 array (C, n)
        q, of mean about 1.
    drawn : float64 array (C, d)
        Sum of the rows drawn, each divided by the largest norm.
    average : float64 array (C, d)
        Of w.
    nu : float64 array (C,)
        Of rows divided by the largest norm.
    eta : float
        Step of q in the step before.
    n_iterations : int
    columns : Columns or None
        As `memory`.
    """

    weights: Float64Array = field(default_factory=_empty)
    drawn: Float64Array = field(default_factory=_empty)
    average: Float64Array = field(default_factory=_empty)
    nu: Float64Array = field(default_factory=_empty)
    eta: float = 0.0
    n_iterations: int = 0
    columns: simba.Columns | None = field(default=None, repr=False)

    def release(self) -> None:
        """Let go of the rows: the next step brings them again."""
        self.memory = self.columns = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"memory": None, "columns": None}


class SIMBA(LinearSolver[SIMBAState]):
    r"""Stochastic primal-dual iterations on the slack-constrained linear SVM (SVM-SIMBA).

    .. math:: \max_{\|w\| \le 1,\ b} \ \max_{0 \le \xi_i \le 2,\ \sum_i \xi_i \le n \nu}
              \ \min_i\ (y_i (\langle w, x_i \rangle + b) + \xi_i)

    (for rows of length at most 1) is a game between w and a distribution p over rows. Each
    iteration adds one row drawn from p to w, and estimates all n responses at once from one
    coordinate, drawn with chances ``w_j^2``, to discount p where they are large: ``O(n + d)``,
    where a gradient is ``O(n d)``. xi and an unpenalised bias in [-1, 1] are the best answers
    to p. The result is the average of w divided by its level, the margin once the best slack
    and bias for it are in place: a margin of 1, as in the regularised problem.

    That problem has the same minimum where ``nu |W| = mean hinge(W)``. With ``nu=None`` the
    average gets the scale and bias that are best for alpha, and nu follows them.

    Takes the hinge loss and an L2 penalty. Classes beyond two are one against the rest.

    Parameters
    ----------
    nu : float > 0 or None, default=None
        Mean slack allowed for a unit-norm function. None follows the estimator's alpha.
    round_size : int >= 1, default=1000
        Iterations in one step of the loop.

    Notes
    -----
    The paper's step sizes need the number of iterations T. Here T is that at the end of the
    current step: sums are kept and scaled anew, ``w = S / max(sqrt(2 T), |S|)`` and
    ``eta = sqrt(log(n) / T)`` with the logarithms of p in proportion to eta. Rows are divided
    by the largest norm. Iterates weigh in the average as their number. A row of weight 2 is
    two rows. In the iterations nu is at most the largest norm of a row: slack and bias have
    their bounds, and with more slack all rows are under water.

    The error falls as one over the square root of the iterations: a baseline, or for a rough
    answer on data with many rows and columns. There is no bound on it: fits end by `max_iter`.
    Rows are kept a second time, by columns.

    References
    ----------
    Hazan, Koren and Srebro (2011), "Beating SGD: Learning SVMs in Sublinear Time".
    """

    name: ClassVar[str] = "simba"
    losses: ClassVar[frozenset[int]] = frozenset({linear.HINGE})
    takes_l1: ClassVar[bool] = False
    _state_class: Any = SIMBAState

    def __init__(self, *, nu: float | None = None, round_size: int = 1000) -> None:
        self.nu = nu
        self.round_size = round_size

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        if self.nu is not None:
            check_real(self.nu, "nu", low=0, low_open=True)
        check_int(self.round_size, "round_size", low=1)

    def check_problem(self, problem: Problem) -> None:
        """Raise if loss or penalty are not for this solver.

        Raises
        ------
        CapabilityError
            The loss is not the hinge, or there is an L1 penalty.
        ValueError
            Neither nu nor alpha says how much slack there is.
        """
        super().check_problem(problem)
        if self.nu is None and not problem.alpha > 0:
            raise ValueError(
                f"solver {self.name!r} follows alpha where nu is None, got alpha="
                f"{problem.alpha!r}; choose a positive alpha such as 1 / n_samples, or nu."
            )

    def init(self, problem: Problem, batch: TrainBatch) -> SIMBAState:
        """Start from equal weights of the rows."""
        own, C = as_linear(problem), problem.n_outputs
        start = self._start(problem, batch)
        rows = _Rows(own, start["memory"])
        d = problem.n_features_in
        if self.nu is None:
            found = [rows.follow(c, rows.mean_difference(c), _MOST_NU) for c in range(C)]
            nu = np.array([each for _, each in found])
        else:
            nu = np.full(C, self.nu * rows.shrink)
        return SIMBAState(
            weights=np.ones((C, batch.n_rows)),
            drawn=np.zeros((C, d)),
            average=np.zeros((C, d)),
            nu=nu,
            **start,
        )

    def step(self, problem: Problem, state: SIMBAState, batch: TrainBatch) -> StepInfo:
        """Take `round_size` iterations, then scale the average to a margin of 1."""
        own = as_linear(problem)
        memory = self._attach(problem, state, batch)
        if state.columns is None:
            state.columns = simba.Columns(memory.rows)
        columns = state.columns
        rows = _Rows(own, memory)
        C, n, T = own.n_outputs, memory.n, int(self.round_size)
        horizon = state.n_iterations + T
        eta = float(np.sqrt(max(np.log(n), 1.0) / horizon))
        if state.n_iterations:
            state.weights **= eta / state.eta
        state.eta = eta
        uniform = draws(own.seed, _TAG, state.iteration).random((C, T, 2))

        def task(c: int) -> None:
            simba.iterate(
                memory.rows, columns, rows.y[c], rows.weight, rows.shrink,
                n * min(state.nu[c], _MOST_NU), rows.has_basins(c), uniform[c],
                state.n_iterations, eta, float(np.sqrt(2.0 * horizon)), state.weights[c],
                state.drawn[c], state.average[c],
            )  # fmt: skip

        parallel_for(C, task)
        state.n_iterations = horizon
        for c in range(C):
            if self.nu is None:
                scale, state.nu[c] = rows.follow(c, state.average[c], state.nu[c])
                bias = rows.bias(c, scale * state.average[c], state.bias[c])
            else:
                level, bias = rows.level(c, state.average[c], state.nu[c])
                # a level below 0 has no margin yet to scale to 1
                scale = 1.0 / level if level > 0 else 1.0
                bias *= scale
            state.coef[:, c] = scale * rows.shrink * state.average[c]
            state.bias[c] = bias
        found = evaluate(own, memory, memory.rows.native(state.coef), state.bias)
        state.iteration += 1
        state.rows_seen += T
        return StepInfo(
            train_loss=found.loss,
            step_size=eta,
            n_random_features=0,
            epoch=horizon * (n + memory.rows.d) / max(1.0, n * memory.rows.row_size),
            objective=found.objective,
        )


class _Rows:
    """The rows divided by the largest norm, in the sign of their class."""

    def __init__(self, problem: LinearProblem, memory: LinearMemory) -> None:
        self.problem, self.memory = problem, memory
        self.y = np.ascontiguousarray(memory.Y.T)
        self.p = memory.share
        self.weight = memory.share * memory.n
        live = memory.share > 0
        self.shrink = 1.0 / (float(np.sqrt(memory.rows.squared_norms()[live].max())) or 1.0)
        self.positive = [np.flatnonzero(live & (y > 0)) for y in self.y]
        self.negative = [np.flatnonzero(live & (y <= 0)) for y in self.y]

    def has_basins(self, c: int) -> bool:
        """Return whether there is a bias to fit: one class alone needs none."""
        both = len(self.positive[c]) and len(self.negative[c])
        return self.problem.fit_intercept and bool(both)

    def responses(self, c: int, w: Float64Array) -> Float64Array:
        """Return ``y_i <w, z_i>``, (n,)."""
        rows = self.memory.rows
        W = rows.native(self.shrink * w[:, None])
        return np.asarray(self.y[c] * rows.responses(W, np.zeros(1))[:, 0])

    def level(self, c: int, w: Float64Array, nu: float) -> tuple[float, float]:
        """Return the level of the responses with a mean slack of nu, and the bias."""
        values, volume = self.responses(c, w), nu * self.memory.n
        weight = None if self.memory.is_uniform else self.weight
        if self.has_basins(c):
            found = water.two_basins(values, self.positive[c], self.negative[c], volume, weight)
            return found.level, found.bias
        return water.water_level(values, volume, weight), 0.0

    def bias(self, c: int, w: Float64Array, start: float) -> float:
        """Return the bias with the least mean hinge loss."""
        if not self.problem.fit_intercept:
            return 0.0
        f, y = self.y[c] * self.responses(c, w), self.y[c]
        return float(linear_dual.best_bias(linear.HINGE, 0.0, y, f, self.p, start, _BIAS_ERROR))

    def mean_difference(self, c: int) -> Float64Array:
        """Return the mean of ``y_i z_i``, of both classes alike where there is a bias."""
        g = self.p * self.y[c]
        if self.has_basins(c):
            for rows in (self.positive[c], self.negative[c]):
                g[rows] /= self.p[rows].sum()
        rows = self.memory.rows
        return np.asarray(self.shrink * rows.public(rows.gradient(g[:, None]))[:, 0])

    def follow(self, c: int, w: Float64Array, nu: float) -> tuple[float, float]:
        """Return the scale s that is best for alpha, and ``mean hinge(s w) / |s w|``.

        With a bias the lowest rows of both classes, of equal weight, have slacks that add up
        to ``2 - s (a_k + b_k)`` whatever the bias. Where s is 0, w has too many rows of the
        larger class under water: nu falls.
        """
        square = float(w @ w)
        heights, p, margin = self.responses(c, w), self.p, 1.0
        if self.has_basins(c):
            heights, p = paired_heights(heights, p, self.positive[c], self.negative[c])
            margin = 2.0
        s = best_scale(heights, p, self.problem.alpha * self.shrink**2 * square, margin)
        if not s * square > 0:
            return 0.0, max(_NU_FALL * nu, _LEAST_NU)
        slack = float(p @ np.maximum(0.0, margin - s * heights))
        nu = slack / (s * float(np.sqrt(square)))
        return s, min(max(nu, _LEAST_NU), _MOST_NU)
