r"""The Stochastic Batch Perceptron for exact kernel SVMs (Cotter et al. 2012)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import over_tiles, parallel_for
from kernelgrad.functions.exact import KernelRows
from kernelgrad.kernels import Gaussian
from kernelgrad.papers.sbp import minimax
from kernelgrad.params import choice, integer, parameters, real
from kernelgrad.solvers.contract import Problem, Solver, StepInfo, TrainBatch, sized
from kernelgrad.solvers.support import RowsSolver, RowsState
from kernelgrad.types import Float32Array, Float64Array, IntArray

_TAG = 0x736270
_TILE, _SUM_TILE = 8192, 1024  # columns of a task, and of one that sums kernel rows
_LEAST_NU = 1e-12
_NU_RATIO = 1.25  # largest ratio of alphas followed at once
_Chances = list[tuple[IntArray, Float64Array]]  # rows of a class and their probabilities


@dataclass(kw_only=True)
class SBPState(RowsState):
    """State of :class:`StochasticBatchPerceptron`.

    ``responses`` are ``c_i = y_i <w, Phi(x_i)>`` of the current w, ``mean_responses`` those of
    the average; coefficients carry the sign of the class.
    """

    average: Float64Array = sized("n", "C")
    mean_responses: Float64Array = sized("C", "n")
    square_norm: Float64Array = sized("C", least=0.0)  # |w|^2
    power: Float64Array = sized("C", least=0.0)  # sum of squared gradient norms so far
    weight_sum: float = 0.0  # total weight of the iterates in the average
    nu: Float64Array = sized("C", finite=False, least=0.0)  # nan until it is known
    scale: Float64Array = sized("C")  # the result is the average times this
    bias: Float64Array = sized("C")  # best bias of the average, in its units
    covered: Float64Array = sized("C")  # share of weight below the level, averaged alike
    updates: int = 0
    nu_due: int = 1


@parameters
class StochasticBatchPerceptron(RowsSolver[SBPState]):
    r"""Stochastic Batch Perceptron: an exact kernel SVM from its slack-constrained form.

    .. math:: \max_{\|w\| \le 1} \max_{\xi \ge 0,\ \sum_i w_i \xi_i \le \nu \sum_i w_i}
              \min_i\ (y_i \langle w, \Phi(x_i) \rangle + \xi_i)

    The responses ``c_i = y_i f(x_i)`` of all rows are kept. The best slack lifts the lowest
    responses to a level gamma; a supergradient is the mean of ``y_i Phi(x_i)`` over the rows
    below this level (Lemma 3.1). Each update samples `batch_size` of these rows, adds one
    kernel row for each, and projects on the unit ball. The step is ``1 / sqrt(sum_s |g_s|^2)``
    over all gradients g so far, the paper's ``1 / sqrt(t)`` for one row per update and ``k(x,
    x) = 1``. The result is the average of the iterates divided by its own level (Algorithm 1),
    which gives a margin of 1, as in the regularised problem. Work per update is ``m n`` kernel
    values and O(n).

    If an unregularised bias is fitted, each class has its own level, with equal weight of both
    classes below their levels (Section 3.6, Appendix B), and half of each sample comes from
    each class. More than two classes are one against the rest and use all sampled kernel rows:
    a row drawn for any class enters the estimate of class c with weight
    ``p_c(i) / (m sum_b p_b(i))``. A row of weight 2 counts as two rows.

    Parameters
    ----------
    nu : float >= 0 or None, default=None
        Mean slack allowed for a unit-norm function. 0 is the batch perceptron for classes that
        the kernel separates (Section 3.1). None follows the estimator's alpha: nu is adapted
        until ``nu |w| = mean hinge(w)``, as in the regularised problem (Section 5).
    batch_size : int or "auto", default="auto"
        Rows sampled per update, m. The paper has 1; ``"auto"`` is 32 with a bias (64 from
        16,384 rows on) and 8 without; for more than two classes 4 and 2 per class.
    round_size : int or "auto", default="auto"
        Sampled rows in one step of the loop. ``"auto"`` is n / 40: the default ``max_iter=40``
        draws as many rows as there are, or more if a single update exceeds n / 40 rows.
    average : {"linear", "uniform", None}, default="linear"
        Weights of the iterates in the average: growing as t (better in practice), equal (the
        paper's), or the last iterate alone.
    """

    name: ClassVar[str] = "sbp"
    counts_all_rows: ClassVar[bool] = True
    requires: ClassVar[frozenset[str]] = frozenset({"exact_kernel", "hinge_loss"})
    state_class = SBPState

    nu: float | None = real(default=None, low=0, words=(None,))
    batch_size: int | str = integer(default="auto", low=1, words=("auto",))
    round_size: int | str = integer(default="auto", low=1, words=("auto",))
    average: str | None = choice(("linear", "uniform"), default="linear", words=(None,))

    @classmethod
    def paper(
        cls, nu: float, *, sigma: float, bias: bool = False, epochs: float = 10.0
    ) -> dict[str, Any]:
        r"""Return parameters of an estimator that make it Algorithm 1 of the paper.

        One row an update, steps ``1 / sqrt(t)`` (``k(x, x) = 1``), the uniform average
        divided by its level: ``KernelClassifier("hinge", **paper(1.1e-2, sigma=10**0.5))``.

        Parameters
        ----------
        nu : float >= 0
            The paper's :math:`\nu`; 0 is Section 3.1. Of a regularised problem with the
            optimum w* it is ``mean hinge(w*) / |w*|``.
        sigma : float > 0
            Of the Gaussian ``exp(-|x - z|^2 / (2 sigma^2))``: ``gamma = 1 / (2 sigma^2)``.
        bias : bool, default=False
            The unregularised bias of Section 3.6.
        epochs : float > 0, default=10
            T / n, updates over rows, to a fortieth; the default is that of Section 5.
        """
        return {
            "solver": cls(nu=nu, batch_size=1, average="uniform"),
            "kernel": Gaussian(gamma=1 / (2 * sigma**2)),
            "alpha": 0.0,  # nu takes its place
            "fit_intercept": bias,
            "max_iter": max(1, round(40 * epochs)),
            "metric": None,
            "standardize": False,
            "probability": False,
        }

    def init(self, problem: Problem, batch: TrainBatch) -> SBPState:
        C, n = problem.n_outputs, batch.n_rows
        return self._new_state(
            problem, batch, average=np.zeros((n, C)), mean_responses=np.zeros((C, n)),
            intercept=np.zeros(C), square_norm=np.zeros(C), power=np.zeros(C),
            nu=np.full(C, np.nan if self.nu is None else float(self.nu)),
            scale=np.ones(C), bias=np.zeros(C), covered=np.ones(C),
        )  # fmt: skip

    def _sample_size(self, problem: Problem, n: int) -> int:
        if self.batch_size != "auto":
            return int(self.batch_size)
        size = 32 if problem.fit_intercept else 8
        if problem.n_outputs > 1:  # every class uses the rows of all
            size = 4 if problem.fit_intercept else 2
        if problem.fit_intercept and n >= 2**14:  # longer products pay for fewer updates
            size *= 2
        return min(size, n)

    def step(self, problem: Problem, state: SBPState, batch: TrainBatch) -> StepInfo:
        rows = self._attach(problem, state, batch)
        n, C = batch.n_rows, problem.n_outputs
        before = rows.n_evaluations
        round_ = _Round(self, problem, state, batch, rows)
        m = self._sample_size(problem, n)
        # by default forty steps draw as many rows as there are
        drawn = -(-n // 40) if self.round_size == "auto" else int(self.round_size)
        for _ in range(max(1, round(drawn / (m * C)))):
            round_.update(m)
        round_.finish()
        state.iteration += 1
        state.rows_seen += round_.n_drawn
        state.kernel_evaluations += rows.n_evaluations - before
        c = state.mean_responses + batch.y.T * state.bias[:, None]
        slack = np.maximum(0.0, 1.0 - state.scale[:, None] * c)
        loss = float((slack @ round_.p).sum())
        return self._info(state, loss, None, round_.step_size, epoch=state.rows_seen / n)

    def coefficients(self, state: SBPState) -> Float64Array:
        return state.scale * state.average

    track = Solver.track


class _Round:
    """The updates of one step: coefficients lazily scaled, responses kept up to date."""

    def __init__(
        self, solver: StochasticBatchPerceptron, problem: Problem, state: SBPState,
        batch: TrainBatch, rows: KernelRows,
    ) -> None:  # fmt: skip
        self.solver, self.problem, self.state, self.rows = solver, problem, state, rows
        self.y = np.ascontiguousarray(batch.y.T, np.float64)
        weight = batch.sample_weight
        total = float(weight.sum())
        self.p = weight / total
        same = np.all(weight == weight[0])
        self.weight = np.ones(len(weight)) if same else weight * (len(weight) / total)
        self.positive = [np.flatnonzero(y > 0) for y in self.y]
        self.negative = [np.flatnonzero(y <= 0) for y in self.y]
        self.n_drawn = 0
        self.step_size = 0.0
        C, n = self.y.shape
        self.levels = [np.inf] * C
        self.n_below = [n // 8] * C  # rows of each class that the next level looks at first
        self.covered = np.ones(C)  # share of weight below the level, of the current iterate
        # w = scale * base;  weight_sum * average = mass * base - late
        self.base, self.late = state.coef, -state.weight_sum * state.average
        self.scale, self.mass = np.ones(C), np.zeros(C)

    def update(self, m: int) -> None:
        state = self.state
        state.updates += 1
        rng = draws(self.problem.seed, _TAG, state.updates)
        pooled, chances = self._sample(rng, m)  # Algorithm 1: gamma by find_gamma, i below it
        index, count = np.unique(pooled, return_counts=True)
        self.n_drawn += len(pooled)
        beta = self._weights(index, count, chances)
        gradient = beta * self.y[:, index].T
        slots = self.rows.load(index)
        K = self.rows.buffer[slots[:, None], index]
        square = np.einsum("ic,ij,jc->c", gradient, K, gradient)
        state.power += np.maximum(square, 0.0)
        # a gradient of nothing but rounding takes no step
        floor = 1e-6 * max(float(K.diagonal().max()), 1e-300)
        eta = np.where(state.power > floor, 1.0 / np.sqrt(np.maximum(state.power, floor)), 0.0)
        along = np.einsum("ic,ci->c", beta, state.responses[:, index])
        # r^2 <- r^2 + 2 eta c_i + eta^2 K_ii; beyond 1 everything is divided by r
        norm2 = state.square_norm + 2 * eta * along + eta**2 * square
        shrink = 1.0 / np.sqrt(np.maximum(norm2, 1.0))
        state.square_norm = norm2 * shrink**2
        omega = float(state.updates) if self.solver.average == "linear" else 1.0
        if self.solver.average is None:
            state.weight_sum = 0.0
            self.late[:], self.mass[:] = 0.0, 0.0
        state.weight_sum += omega
        share = omega / state.weight_sum
        state.covered += share * (self.covered - state.covered)
        self.step_size = float(eta.max())
        # coefficients: only the touched rows
        step = gradient * (eta / self.scale)
        self.base[index] += step
        self.late[index] += step * self.mass
        self.scale = self.scale * shrink
        self.mass = self.mass + omega * self.scale
        # the responses: c <- shrink (c + eta y_i y K_i), and their average
        self._advance(_sums(self.rows, slots, gradient), eta, shrink, share)
        if float(self.scale.min()) < 1e-3:
            self._settle()
        if self.solver.nu is None and state.updates >= state.nu_due:
            # a tenth more updates
            state.nu_due = max(state.updates + 1, int(1.1 * state.updates))
            self._follow_alpha()

    def _advance(
        self, v: Float32Array, eta: Float64Array, shrink: Float64Array, share: float
    ) -> None:
        """Set ``c <- shrink (c + eta y v)``, then ``mean <- mean + share (c - mean)``."""
        C, n = v.shape
        tiles = -(-n // _TILE)
        arrays = self.state.responses, self.state.mean_responses, self.y, v

        def task(i: int) -> None:
            k, columns = i // tiles, slice(i % tiles * _TILE, (i % tiles + 1) * _TILE)
            tile = (a[k, columns] for a in arrays)
            _advance_tile(*tile, float(eta[k]), float(shrink[k]), share)

        parallel_for(C * tiles, task)

    def _settle(self) -> None:
        state = self.state
        late = self.mass * self.base - self.late
        state.average = late / state.weight_sum if state.weight_sum else late
        state.coef = self.base = self.base * self.scale
        self.late = -state.weight_sum * state.average
        self.scale, self.mass = np.ones_like(self.scale), np.zeros_like(self.mass)

    def _has_bias(self, c: int) -> bool:
        both = len(self.positive[c]) and len(self.negative[c])
        return self.problem.fit_intercept and bool(both)

    def _level(
        self, c: int, values: Float64Array, volume: float
    ) -> tuple[float, float, _Chances]:
        if self._has_bias(c):
            classes = self.positive[c], self.negative[c]
            two = minimax.two_class_level(
                values, *classes, volume, self.weight, start=self.n_below[c]
            )
            self.n_below[c] = 3 * max(len(two.positive), len(two.negative)) // 2
            parts = [(two.positive, two.p_positive), (two.negative, two.p_negative)]
            return two.level, two.bias, parts
        level = minimax.slack_level(values, volume, self.weight, start=self.levels[c])
        self.levels[c] = level
        index = minimax.rows_below(values, level)
        w = self.weight[index]
        return level, 0.0, [(index, w / w.sum())]

    def _sample(self, rng: np.random.Generator, m: int) -> tuple[IntArray, list[_Chances]]:
        """Return the rows drawn for all classes, and the chances of every class's rows."""
        pooled = []
        n, C = self.state.coef.shape
        chances: list[_Chances] = [[] for _ in range(C)]

        def level(c: int) -> None:
            nu = self.state.nu[c]
            # before nu is known all responses are equal: any volume covers all rows
            volume = n * (nu if np.isfinite(nu) else 1.0)
            chances[c] = self._level(c, self.state.responses[c], volume)[2]
            self.covered[c] = self._share(chances[c])

        parallel_for(C, level)
        for parts in chances:
            sizes = [m]
            if len(parts) == 2:  # an odd row goes to either class
                sizes = [m - m // 2, m // 2] if rng.random() < 0.5 else [m // 2, m - m // 2]
            for (index, p), size in zip(parts, sizes, strict=True):
                pooled.append(_draw(rng, index, p, size))
        return np.concatenate(pooled), chances

    def _share(self, parts: _Chances) -> float:
        # a row wholly below has its own weight over theirs as its probability, one that is
        # partly below less
        each = [np.max(p / self.weight[i]) for i, p in parts]
        return float(min(1.0, 1.0 / (max(each) * len(self.p))))

    def _weights(
        self, index: IntArray, count: IntArray, chances: list[_Chances]
    ) -> Float64Array:
        """Return how much each drawn row counts for each class, (m, C); columns sum to 1."""
        if len(chances) == 1:
            return np.asarray(count / count.sum())[:, None]
        dense = np.zeros(self.state.coef.shape[0])
        own = np.empty((len(index), len(chances)))
        for c, parts in enumerate(chances):
            for rows, p in parts:
                dense[rows] = p
            own[:, c] = dense[index]
            for rows, _ in parts:
                dense[rows] = 0.0
        beta = count[:, None] * own / own.sum(axis=1, keepdims=True)
        for c, parts in enumerate(chances):
            signs = self.y[c, index] > 0
            groups = [slice(None)] if len(parts) == 1 else [signs, ~signs]
            for group in groups:
                total = beta[group, c].sum()
                if total > 0:
                    beta[group, c] /= total * len(groups)
        return np.asarray(beta)

    def _follow_alpha(self) -> None:
        r"""Move nu towards that of the regularised problem.

        At the optimum of the slack-constrained problem, with level gamma and a share q below
        it, the same function divided by gamma solves the regularised problem for
        ``alpha(nu) = gamma (gamma q - nu)``: the gradient there is q times the mean over the
        rows below, which is parallel to w and has the length ``gamma - nu / q``.
        alpha(nu) grows with nu. q is averaged over the iterates, as the dual variables are.
        """
        state, problem = self.state, self.problem
        self._settle()
        n = len(self.p)
        for c, values in enumerate(state.mean_responses):
            square = float(state.average[:, c] @ (self.y[c] * values))
            if square <= 0:
                continue
            if np.isnan(state.nu[c]):
                state.nu[c] = self._first_nu(c, values, square)
                continue
            norm = np.sqrt(square)
            level = self._level(c, values, n * state.nu[c] * norm)[0] / norm
            implied = level * (level * state.covered[c] - state.nu[c])
            if level <= 0:  # no margin yet: more slack
                ratio = _NU_RATIO
            elif implied <= 0:  # the average share lags behind
                ratio = 1.0
            else:
                ratio = np.clip(problem.alpha / implied, 1 / _NU_RATIO, _NU_RATIO)
            state.nu[c] = max(state.nu[c] * np.sqrt(ratio), _LEAST_NU)

    def _first_nu(self, c: int, values: Float64Array, square: float) -> float:
        """Return nu at the scale of the average that is best for alpha.

        With a bias the rows below of both classes are the lowest of equal weight. Their slacks
        add up to ``2 - s (a_k + b_k)`` whatever the bias, which leaves one variable.
        """
        heights, p, margin = values, self.p, 1.0
        if self._has_bias(c):
            classes = self.positive[c], self.negative[c]
            lowest = [minimax.lowest_rows(values, rows, p, len(p)) for rows in classes]
            heights, p, *_ = minimax.paired(values, p, *lowest)
            margin = 2.0
        s = best_scale(heights, p, self.problem.alpha * square, margin)
        if s <= 0:
            return float("nan")
        slack = float(p @ np.maximum(0.0, margin - s * heights))
        return max(slack / (s * float(np.sqrt(square))), _LEAST_NU)

    def finish(self) -> None:
        state, solver = self.state, self.solver
        self._settle()
        n = len(self.p)
        if solver.nu is None:
            self._follow_alpha()
        for c, values in enumerate(state.mean_responses):
            nu = state.nu[c]
            if not np.isfinite(nu):
                continue
            if solver.nu is None:  # the slack of the average, whose norm is below 1
                square = float(state.average[:, c] @ (self.y[c] * values))
                nu *= np.sqrt(max(0.0, square))
            level, state.bias[c], _ = self._level(c, values, n * nu)
            # a level below 0 has no margin yet to scale to 1
            state.scale[c] = 1.0 / level if level > 0 else 1.0
        state.intercept = state.scale * state.bias


def _sums(rows: KernelRows, slots: IntArray, coef: Float64Array) -> Float32Array:
    """Return ``sum_i k(x_i, X) coef_i`` over loaded rows i, (C, n); coef is (m, C)."""
    weights = np.ascontiguousarray(coef.T, np.float32)
    out = np.empty((len(weights), rows.buffer.shape[1]), np.float32)

    def task(a: int, z: int) -> None:
        np.matmul(weights, rows.buffer[slots, a:z], out=out[:, a:z])

    over_tiles(out.shape[1], _SUM_TILE, task)
    return out


def best_scale(c: Float64Array, p: Float64Array, penalty: float, margin: float = 1.0) -> float:
    """Return the s >= 0 minimising ``penalty s^2 / 2 + sum_i p_i max(0, margin - s c_i)``.

    The slope rises by ``p_i c_i`` where s passes ``margin / c_i``, and is linear in between.
    """
    c = np.where(np.abs(c) < 1e-300, 0.0, c)  # no kink of theirs is a number
    positive = c > 0
    order = np.argsort(-c[positive], kind="stable")
    kinks = margin / c[positive][order]
    rises = (p * c)[positive][order]
    # what pulls s up beyond each kink, and before the first
    pulls = float((p * c)[~positive].sum()) + np.append(np.cumsum(rises[::-1])[::-1], 0.0)
    if not pulls[0] > 0.0:
        return 0.0
    k = int(np.argmax(penalty * kinks >= pulls[1:]))
    return min(float(kinks[k]), float(pulls[k]) / penalty if penalty > 0 else np.inf)


def _draw(rng: np.random.Generator, index: IntArray, p: Float64Array, size: int) -> IntArray:
    edges = np.cumsum(p)
    drawn = np.searchsorted(edges, rng.random(size) * edges[-1], side="right")
    return np.asarray(index[np.minimum(drawn, len(index) - 1)])


@njit(nogil=True, cache=True, fastmath={"contract", "nsz"})
def _advance_tile(
    c: Any, mean: Any, y: Any, v: Any, eta: float, shrink: float, share: float
) -> None:
    for i in range(len(c)):
        moved = shrink * (c[i] + eta * y[i] * v[i])
        c[i] = moved
        mean[i] += share * (moved - mean[i])
