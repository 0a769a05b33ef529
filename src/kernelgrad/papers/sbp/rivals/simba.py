r"""SIMBA: a linear SVM in time sublinear in the data, from its slack-constrained form.

With rows z_i of length at most 1, ``S = sum_t y_i z_i`` over the rows drawn so far and weights
q of the rows, an iteration for the horizon T is

.. math:: w = \frac{S}{\max(\sqrt{2T}, |S|)}, \quad j \sim w_j^2, \quad
          v_i = \mathrm{clip}\Bigl(y_i z_{ij} \frac{|w|^2}{w_j} + \xi_i + y_i b,
          \frac{1}{\eta}\Bigr), \quad
          q_i \leftarrow q_i (1 - \eta v_i + \eta^2 v_i^2)

with the next row drawn in proportion to ``s_i q_i``, s the sample weights. The slack xi and
the bias b answer q at their best: xi is 2 on the rows with the largest q and b the sign of
``sum_i s_i q_i y_i``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.rows import FAST, Rows, add, as_rows
from kernelgrad.compute.threads import parallel_for
from kernelgrad.linear import base
from kernelgrad.linear.dual import best_bias
from kernelgrad.losses import Loss, scalar
from kernelgrad.papers.sbp import minimax
from kernelgrad.papers.sbp.sbp import best_scale, paired_heights
from kernelgrad.params import integer, parameters, real
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, draws, sized, transient
from kernelgrad.types import AnyArray, Float64Array

_TAG = 0x73696D62
_MOST_NU = 1.0  # of rows of norm 1 at most: beyond it more slack hardly moves w
_LEAST_NU = 1e-12
_NU_FALL = 0.5  # where no scale of the average is better than a constant
_BIAS_ERROR = 1e-9


_BLOCK = 256  # rows with one partial sum of weights
_LEAST = 1e-30  # of q, whose mean is 1: such a row takes no part, and can come back
_SLACK = 2.0  # the largest of a row


@dataclass(kw_only=True)
class SIMBAState(base.LinearState):
    """State of :class:`SIMBA`; ``coef`` and ``bias`` are of the result.

    The others are of rows divided by the largest norm.
    """

    weights: Float64Array = sized("C", "n", later=True, least=0.0)  # q, of mean about 1
    drawn: Float64Array = sized("C", "d", later=True)  # sum of the rows drawn
    average: Float64Array = sized("C", "d", later=True)  # of w
    nu: Float64Array = sized("C", later=True, least=0.0)
    eta: float = 0.0  # step of q in the step before
    n_iterations: int = 0
    columns: Rows | None = transient()  # the transpose of the rows


@parameters
class SIMBA(base.LinearSolver[SIMBAState]):
    r"""Stochastic primal-dual iterations on the slack-constrained linear SVM (SVM-SIMBA).

    .. math:: \max_{\|w\| \le 1,\ b} \ \max_{0 \le \xi_i \le 2,\ \sum_i \xi_i \le n \nu}
              \ \min_i\ (y_i (\langle w, x_i \rangle + b) + \xi_i)

    (for rows of length at most 1) is a game between w and a distribution p over rows. Each
    iteration adds one row drawn from p to w, and estimates all n responses at once from one
    coordinate, drawn with chances ``w_j^2``, to discount p where they are large: ``O(n + d)``,
    where a gradient is ``O(n d)``. xi and an unpenalised bias in [-1, 1] are the best answers
    to p. The result is the average of w divided by its level, which is its margin with the best
    slack and bias: this gives a margin of 1, as in the regularised problem.

    The regularised problem has the same minimum if ``nu |W| = mean hinge(W)``. With ``nu=None``
    the average gets the best scale and bias for alpha, and nu follows them.

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
    by the largest norm. Iterate t has weight t in the average. A row of weight 2 is two rows.
    In the iterations nu is at most the largest norm of a row, since slack and bias are bounded.

    The error falls as one over the square root of the number of iterations, and has no bound:
    fits end by `max_iter`. A second copy of the rows is kept by columns.

    References
    ----------
    Hazan, Koren and Srebro (2011), "Beating SGD: Learning SVMs in Sublinear Time".
    """

    name: ClassVar[str] = "simba"
    takes_l1: ClassVar[bool] = False
    state_class: ClassVar[type[Any]] = SIMBAState

    nu: float | None = real(default=None, low=0, low_open=True, words=(None,))
    round_size: int = integer(default=1000, low=1)

    @classmethod
    def takes(cls, loss: Loss) -> bool:
        return loss.code == scalar.HINGE

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
        own, C, d = base.as_linear(problem), problem.n_outputs, problem.n_features_in
        state = super().init(problem, batch)
        rows = _Rows(own, self._attach(problem, state, batch))
        if self.nu is None:
            found = [rows.follow(c, rows.mean_difference(c), _MOST_NU) for c in range(C)]
            state.nu = np.array([each for _, each in found])
        else:
            state.nu = np.full(C, self.nu * rows.shrink)
        state.weights = np.ones((C, batch.n_rows))
        state.drawn, state.average = np.zeros((2, C, d))
        return state

    def step(self, problem: Problem, state: SIMBAState, batch: TrainBatch) -> StepInfo:
        own = base.as_linear(problem)
        data = self._attach(problem, state, batch)
        if state.columns is None:
            state.columns = as_rows(data.batch.X.T)
        columns, rows = state.columns, _Rows(own, data)
        C, n, T = own.n_outputs, data.n, int(self.round_size)
        horizon = state.n_iterations + T
        eta = float(np.sqrt(max(np.log(n), 1.0) / horizon))
        if state.eta > 0:
            state.weights **= eta / state.eta
        state.eta = eta
        uniform = draws(own.seed, _TAG, state.iteration).random((C, T, 2))

        def task(c: int) -> None:
            game = Game(
                data.rows, columns, rows.y[c], rows.weight, rows.shrink,
                n * min(state.nu[c], _MOST_NU), rows.has_basins(c), uniform[c],
                state.n_iterations, eta, float(np.sqrt(2.0 * horizon)),
            )  # fmt: skip
            iterate(game, state.weights[c], state.drawn[c], state.average[c])

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
        found = base.evaluate(own, data, data.native(state.coef), state.bias)
        state.iteration += 1
        state.rows_seen += T
        return StepInfo(
            train_loss=found.loss,
            step_size=eta,
            n_random_features=0,
            epoch=horizon * (n + data.d) / max(1.0, n * data.row_size),
            objective=found.objective,
        )


class _Rows:
    def __init__(self, problem: base.LinearProblem, data: base.PreparedRows) -> None:
        self.problem, self.data = problem, data
        self.y = np.ascontiguousarray(data.Y.T)
        self.p = data.share
        self.weight = data.share * data.n
        live = data.share > 0
        self.shrink = 1.0 / (float(np.sqrt(data.squares()[0][live].max())) or 1.0)
        self.positive = [np.flatnonzero(live & (y > 0)) for y in self.y]
        self.negative = [np.flatnonzero(live & (y <= 0)) for y in self.y]

    def has_basins(self, c: int) -> bool:
        both = len(self.positive[c]) and len(self.negative[c])
        return self.problem.fit_intercept and bool(both)

    def responses(self, c: int, w: Float64Array) -> Float64Array:
        """Return ``y_i <w, z_i>``, (n,)."""
        W = self.data.native(self.shrink * w[:, None])
        return np.asarray(self.y[c] * self.data.responses(W, np.zeros(1))[:, 0])

    def level(self, c: int, w: Float64Array, nu: float) -> tuple[float, float]:
        values, volume = self.responses(c, w), nu * self.data.n
        weight = None if self.data.is_uniform else self.weight
        if self.has_basins(c):
            found = minimax.two_class_level(
                values, self.positive[c], self.negative[c], volume, weight
            )
            return found.level, found.bias
        return minimax.slack_level(values, volume, weight), 0.0

    def bias(self, c: int, w: Float64Array, start: float) -> float:
        """Return the bias with the least mean hinge loss."""
        if not self.problem.fit_intercept:
            return 0.0
        f, y = self.y[c] * self.responses(c, w), self.y[c]
        return float(best_bias(scalar.HINGE, 0.0, y, f, self.p, start, _BIAS_ERROR))

    def mean_difference(self, c: int) -> Float64Array:
        """Return the mean of ``y_i z_i``, of both classes alike where there is a bias."""
        g = self.p * self.y[c]
        if self.has_basins(c):
            for rows in (self.positive[c], self.negative[c]):
                g[rows] /= self.p[rows].sum()
        return self.shrink * self.data.native(self.data.gradient(g[:, None]))[:, 0]

    def follow(self, c: int, w: Float64Array, nu: float) -> tuple[float, float]:
        """Return the scale s that is best for alpha, and ``mean hinge(s w) / |s w|``.

        With a bias the lowest rows of both classes, of equal weight, have slacks that add up
        to ``2 - s (a_k + b_k)`` for any bias. If s is 0, too many rows of the larger class are
        below the level of w, and nu is reduced.
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


# -- loops ---------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _split(
    q: Float64Array, s: Float64Array, volume: float, guess: float, ratio: float
) -> tuple[float, float]:
    """Return (level, part): rows with q above the level have slack 2, those at it `part`.

    The slack of all is ``sum_i s_i xi_i = volume``. Only rows between ``guess / ratio`` and
    ``guess ratio`` are sorted, and more where the level is not among them.
    """
    room = volume / _SLACK
    low, high = guess / ratio, guess * ratio
    near = np.empty(len(q), np.int64)
    while True:
        above, inside, m = 0.0, 0.0, 0
        for i in range(len(q)):
            near[m] = i
            within = low <= q[i] <= high
            m += within
            inside += s[i] if within else 0.0
            above += s[i] if q[i] > high else 0.0
        if above <= room < above + inside:
            break
        if low == 0.0 and high == math.inf:
            return -1.0, 0.0  # there is slack for all
        ratio = ratio**4
        low, high = guess / ratio, guess * ratio
        if ratio > 1e3:
            low, high = 0.0, math.inf
    values = q[near[:m]]
    order = np.argsort(values)
    left, k = room - above, m - 1
    while True:
        level, mass = values[order[k]], 0.0
        while k >= 0 and values[order[k]] == level:
            mass += s[near[order[k]]]
            k -= 1
        if left < mass or k < 0:
            return level, _SLACK * (left / mass if left < mass else 1.0)
        left -= mass


@njit(nogil=True, cache=True, fastmath=FAST, forceinline=True)
def _masses(q: AnyArray, s: AnyArray, y: AnyArray) -> tuple[float, float]:
    total, signed = 0.0, 0.0
    for i in range(len(q)):
        total += s[i] * q[i]
        signed += s[i] * q[i] * y[i]
    return total, signed


@njit(nogil=True, cache=True, fastmath={"contract", "nsz"})
def _discount(
    q: Any, y: Any, response: Any, level: float, part: float, b: float, eta: float, norm: float
) -> None:
    """Multiply q by ``norm (1 - eta v + eta^2 v^2)``; `response` is ``z_ij |w|^2 / w_j``."""
    top = 1.0 / eta
    for i in range(len(q)):
        slack = _SLACK if q[i] > level else (part if q[i] == level else 0.0)
        v = y[i] * (response[i] + b) + slack
        v = eta * min(max(v, -top), top)
        q[i] = max(q[i] * norm * (1.0 - v + v * v), _LEAST)


@njit(nogil=True, cache=True)
def _row_at(q: Float64Array, s: Float64Array, sums: Float64Array, target: float) -> int:
    block = 0
    for k in range(len(sums)):
        if sums[k] > 0.0:
            block = k
            if target < sums[k]:
                break
            target -= sums[k]
    found = -1
    for i in range(block * _BLOCK, min((block + 1) * _BLOCK, len(q))):
        if s[i] > 0.0:
            found = i
            target -= s[i] * q[i]
            if target < 0.0:
                break
    return found


@njit(nogil=True, cache=True)
def _coordinate_at(S: Float64Array, target: float) -> int:
    found = -1
    for j in range(len(S)):
        if S[j] != 0.0:
            found = j
            target -= S[j] * S[j]
            if target < 0.0:
                break
    return found


class Game(NamedTuple):
    rows: Rows
    columns: Rows  # the transpose of the rows
    y: Float64Array  # targets -1/+1, (n,)
    s: Float64Array  # sample weights of mean 1, (n,)
    shrink: float  # z is this times the row
    volume: float  # of the slack, sum_i s_i xi_i
    fit_bias: bool
    uniform: Float64Array  # what draws row and coordinate, (T, 2)
    first: int  # iterations before these, in the average
    eta: float  # step of q
    root: float  # square root of twice the horizon


@njit(nogil=True, cache=True)
def iterate(game: Any, q: Float64Array, S: Float64Array, average: Float64Array) -> None:
    rows, columns, y, s, shrink, volume, fit_bias, uniform, first, eta, root = game
    n, d = len(q), len(S)
    blocks = -(-n // _BLOCK)
    sums, response = np.zeros(blocks), np.zeros(n)
    level = 1.0
    for t in range(len(uniform)):
        total, signed = 0.0, 0.0
        for k in range(blocks):
            r = slice(k * _BLOCK, min((k + 1) * _BLOCK, n))
            sums[k], more = _masses(q[r], s[r], y[r])
            total += sums[k]
            signed += more
        i = _row_at(q, s, sums, uniform[t, 0] * total)
        add(rows, i, y[i] * shrink, S)
        square = 0.0
        for j in range(d):
            square += S[j] * S[j]
        length = max(root, math.sqrt(square))
        # weights of iterates grow as their number: the average is that of all before
        share = 2.0 / (first + t + 2.0)
        for j in range(d):
            average[j] += share * (S[j] / length - average[j])
        j = _coordinate_at(S, uniform[t, 1] * square)
        response[:] = 0.0
        if j >= 0:
            add(columns, j, shrink * (square / S[j]) / length, response)
        level, part = _split(q, s, volume, level, 1.0 + eta)
        b = np.sign(signed) if fit_bias else 0.0
        _discount(q, y, response, level, part, b, eta, n / total)
