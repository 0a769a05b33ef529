r"""Exact support vector machines: large working sets of rows, each solved pair by pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg.blas import dtrsv

from kernelgrad.callbacks import Deadline
from kernelgrad.compute import linalg
from kernelgrad.compute.compiling import clock, njit
from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import parallel_for
from kernelgrad.functions.exact import KernelRows
from kernelgrad.losses import OneClass
from kernelgrad.params import integer, parameters, real
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, sized
from kernelgrad.solvers.support import (
    RowsSolver,
    RowsState,
    add_rows,
    check_alpha,
    support_update,
)
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray
from kernelgrad.validation import CapabilityError

_BIG = np.float32(1e38)  # stands for "may not move that way"
_LEAST_BEND = np.float32(1e-6)  # bound of k_ii + k_jj - 2 k_ij, for equal rows
_LEAST_ROWS, _SET_ROWS = 64, 2048  # rows of a set; sets of 1,024 take two to four times as long
_GATHER_ROWS = 64  # rows that one task gathers
_TAG = 0x73657473
_LANES = 128  # extremes are kept of entries so far apart: plain loops, which are vectorised
_FAST = {"contract", "nsz", "arcp", "nnan"}


@dataclass(frozen=True)
class WorkingSetSettings:
    """Numbers of :class:`WorkingSet`."""

    rough: float = 0.1  # penalty of kinked losses, relative to smooth ones, for float64 values
    settled: float = 0.1  # violation at which a set is left, relative to that of all rows
    pairs: int = 8  # moves of pairs between two Newton steps, for each row of a set
    rounds: int = 25  # Newton steps on one set
    bounds: int = 32  # bounds that a Newton step may meet: each costs part of a factorisation
    patience: int = 50  # sets without a smaller violation; a tenth where a set holds all rows
    outputs: int = 16  # outputs solved together: 256 MiB of kernel values among their sets


_SETTINGS = WorkingSetSettings()


@njit(nogil=True, cache=True)
def _argmax(a: FloatArray) -> int:
    best = 0
    for t in range(a.size):
        if a[t] > a[best]:
            best = t
    return best


@njit(nogil=True, cache=True)
def _renew(s: int, beta: Any, low: Any, high: Any, epsilon: Any, rise: Any, fall: Any) -> None:
    """Set what is added to the gradient of coordinate s when it rises, and when it falls."""
    rise[s], fall[s] = _BIG, -_BIG
    if beta[s] < high[s]:
        rise[s] = epsilon[s] if beta[s] >= 0.0 else -epsilon[s]
    if beta[s] > low[s]:
        fall[s] = epsilon[s] if beta[s] > 0.0 else -epsilon[s]


@njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
def _solve_set(
    K: Any, beta: Any, r: Any, low: Any, high: Any, epsilon: Any, tol: float, most: int
) -> bool:
    """Move pairs on a set, in place, up to `tol`, or False after `most`; r is ``K beta - y``.

    The first of a pair violates most, the second promises the largest decrease. A coordinate
    stops at 0, where the slope of ``epsilon |beta|`` jumps.
    """
    q, L, of = len(beta), _LANES, K.dtype
    zero, two, least = of.type(0), of.type(2), of.type(_LEAST_BEND)
    diagonal, gain = np.empty(q, of), np.empty(q, of)
    rise, fall = np.empty(q, of), np.empty(q, of)
    pull, push, best = np.empty(L, of), np.empty(L, of), np.empty(L, of)
    for t in range(q):
        diagonal[t] = K[t, t]
        _renew(t, beta, low, high, epsilon, rise, fall)
    i, j, step = 0, 0, zero
    for n in range(most + 1):
        pull[:], push[:], best[:] = -_BIG, -_BIG, -_BIG
        for a in range(0, q, L):  # the step before, and the gradients after it
            o, x, y = r[a : a + L], K[i, a : a + L], K[j, a : a + L]
            u, v = rise[a : a + L], fall[a : a + L]
            for t in range(o.size):
                d = o[t] + step * (x[t] - y[t])
                o[t] = d
                pull[t] = max(pull[t], -(d + u[t]))
                push[t] = max(push[t], d + v[t])
        lane = _argmax(pull)
        if not push[_argmax(push)] + pull[lane] > tol:
            return True
        if n == most:
            break
        i = lane
        for t in range(lane, q, L):
            if r[t] + rise[t] < r[i] + rise[i]:
                i = t
        first, kii = r[i] + rise[i], diagonal[i]
        for a in range(0, q, L):
            o, x, e = r[a : a + L], K[i, a : a + L], diagonal[a : a + L]
            v, g = fall[a : a + L], gain[a : a + L]
            for t in range(o.size):
                d = max(o[t] + v[t] - first, zero)
                d = d * d / max(kii + e[t] - two * x[t], least)
                g[t] = d
                best[t] = max(best[t], d)
        lane = _argmax(best)
        j = lane
        for t in range(lane, q, L):
            if gain[t] > gain[j]:
                j = t
        bend = max(kii + diagonal[j] - two * K[i, j], least)
        end_i = 0.0 if epsilon[i] > 0.0 and beta[i] < 0.0 else high[i]
        end_j = 0.0 if epsilon[j] > 0.0 and beta[j] > 0.0 else low[j]
        room_i, room_j = end_i - beta[i], beta[j] - end_j
        move = min(np.float64((r[j] + fall[j] - first) / bend), room_i, room_j)
        beta[i] = end_i if move == room_i else beta[i] + move
        beta[j] = end_j if move == room_j else beta[j] - move
        _renew(i, beta, low, high, epsilon, rise, fall)
        _renew(j, beta, low, high, epsilon, rise, fall)
        step = of.type(move)
    return False


def _newton(
    K: FloatArray, beta: Float64Array, r: FloatArray, low: Float64Array, high: Float64Array,
    epsilon: float, *, balanced: bool,
) -> None:  # fmt: skip
    r"""Move to the minimum over the free coordinates, in place, as far as bounds allow.

    With ``K_FF = L L^T`` and the slopes g the way there is ``-L^{-T} P L^{-1} g``, where P
    projects on what changes neither the sum (if `balanced`) nor a coordinate that met its
    bound. Each coordinate that meets its bound is projected out too, and the step continues.
    """
    free = (beta > low) & (beta < high)
    if epsilon > 0.0:
        free &= beta != 0.0
    index = np.flatnonzero(free)
    if len(index) < 2:
        return
    x, side = beta[index].copy(), np.sign(beta[index]) if epsilon > 0.0 else 0.0
    least = np.where(side > 0.0, 0.0, low[index])
    largest = np.where(side < 0.0, 0.0, high[index])
    H = K[np.ix_(index, index)].astype(np.float64)
    damping = float(np.finfo(K.dtype).eps) * float(H.diagonal().max())
    L = linalg.damped_cholesky(H, damping, in_place=True)[0]
    way = dtrsv(L, r[index] + epsilon * side, lower=1)
    open_, fixed = np.ones(len(x), bool), np.zeros((0, len(x)))  # rows are orthonormal
    more = np.ones(len(x))
    for k in range(_SETTINGS.bounds + 1):
        if k > 0 or balanced:
            new = dtrsv(L, more, lower=1)
            for _ in range(2):
                new -= fixed.T @ (fixed @ new)
            new /= np.linalg.norm(new)
            fixed = np.vstack([fixed, new])
            way -= new * (new @ way)
        move = -dtrsv(L, way, lower=1, trans=1)
        end = np.where(move > 0.0, largest, least)
        room = np.full(len(x), np.inf)
        np.divide(end - x, move, out=room, where=(move != 0.0) & open_)
        first = int(room.argmin())
        part = min(1.0, float(room[first]))
        x += part * np.where(open_, move, 0.0)
        if part == 1.0:
            break
        x[first], open_[first] = end[first], False
        way *= 1.0 - part
        more = np.zeros(len(x))
        more[first] = 1.0
    x = np.clip(x, least, largest)
    r += ((x - beta[index]) @ K[index]).astype(r.dtype)
    beta[index] = x


@dataclass(kw_only=True)
class WorkingSetState(RowsState):
    """State of :class:`WorkingSet`; ``responses`` are f on the rows without the intercept."""

    alpha: float
    violation: Float64Array = sized("C", finite=False)  # violation of the optimality


@dataclass(frozen=True)
class _Dual:
    """The dual of one output, in the coefficients beta of the function, as in `WorkingSet`."""

    y: Float64Array
    low: Float64Array
    high: Float64Array
    epsilon: float
    total: float
    has_bias: bool

    @classmethod
    def of(cls, problem: Problem, c: int, y: Float64Array, p: Float64Array) -> _Dual:
        loss: Any = problem.loss.for_output(c)
        most = p / problem.alpha
        none = np.zeros_like(most)
        low, high, epsilon, total = -most, most, 0.0, 0.0
        if loss.name == "hinge":
            # rows of neither class of a pair are 0 and stay out
            low, high = np.where(y < 0, -most, none), np.where(y > 0, most, none)
        elif loss.name == "quantile":
            low, high = (loss.quantile - 1.0) * most, loss.quantile * most
        elif loss.name == OneClass.name:
            y, low, total = none, none, float(loss.nu) / problem.alpha
        elif loss.name == "epsilon_insensitive":
            epsilon = float(loss.epsilon)
        return cls(y, low, high, epsilon, total, problem.fit_intercept or total > 0.0)

    @property
    def counts(self) -> AnyArray:
        """Which rows may have a coefficient, (n,)."""
        return self.low < self.high

    def gradients(
        self, beta: Float64Array, f: Float64Array
    ) -> tuple[Float64Array, Float64Array]:
        """Return those of raising and of lowering each coordinate; infinite where barred."""
        r, e = f - self.y, self.epsilon
        up = np.where(beta < self.high, r + np.where(beta >= 0.0, e, -e), np.inf)
        down = np.where(beta > self.low, r + np.where(beta > 0.0, e, -e), -np.inf)
        return up, down

    def violation(self, up: Float64Array, down: Float64Array) -> float:
        """Return by how much moving one coordinate up and another down still gains."""
        first, last = float(up.min()), float(down.max())
        if not self.has_bias:  # one that moves by itself is balanced by nothing
            first, last = min(first, 0.0), max(last, 0.0)
        return max(0.0, last - first)

    def intercept(self, beta: Float64Array, f: Float64Array) -> float:
        """Return the mean over free coordinates, else the middle of what is possible."""
        if not self.has_bias:
            return 0.0
        up, down = self.gradients(beta, f)
        free = np.isfinite(up) & (up == down)
        if free.any():
            return -float(up[free].mean())
        ends = [end for end in (up.min(), down.max()) if np.isfinite(end)]
        return -float(np.mean(ends)) if ends else 0.0  # there is one class, or no row

    def next_set(
        self, beta: Float64Array, up: Float64Array, down: Float64Array, last: IntArray,
        size: int, order: IntArray,
    ) -> IntArray:  # fmt: skip
        """Return rows that violate, then those of the last set, free ones first.

        All rows that count, if they are so few. Half of the new rows violate most; the others
        are the first in a random `order` of all. Rows that violate most are much alike: sets of
        these alone move the function too far, and take a quarter more kernel rows in all.
        """
        if np.count_nonzero(self.counts) <= size:
            return np.flatnonzero(self.counts)
        h = max(1, size // 4 if len(last) else size // 2)
        middle = 0.5 * float(up.min() + down.max()) if self.has_bias else 0.0
        chosen = []
        for a, end in ((up, middle), (-down, -middle)):
            worst = np.argpartition(a, h)[:h]
            violating = np.flatnonzero(a < end)
            if len(violating) > h:
                worst = worst[np.argsort(a[worst], kind="stable")[: max(1, h // 2)]]
                others = np.setdiff1d(violating, worst, assume_unique=True)
                k = h - len(worst)
                worst = np.append(worst, others[np.argpartition(order[others], k)[:k]])
            chosen.append(worst[np.isfinite(a[worst])])
        new = np.unique(np.concatenate(chosen))
        old = np.setdiff1d(last, new)
        free = (beta[old] > self.low[old]) & (beta[old] < self.high[old])
        return np.sort(np.concatenate([new, old[free], old[~free]])[:size])

    def solve(
        self, K: FloatArray, index: IntArray, beta: Float64Array, f: Float64Array, tol: float,
    ) -> Float64Array:  # fmt: skip
        """Return `beta` of the rows `index` where no pair violates by more than `tol`."""
        m = len(index)
        slopes = f - self.y[index]
        if self.has_bias:  # a constant is nothing to pairs; without it float32 sees more
            slopes -= slopes.mean()
        b, r = beta.copy(), slopes.astype(K.dtype)
        low, high = self.low[index], self.high[index]
        epsilon = np.full(m, self.epsilon)
        if not self.has_bias:  # one more coordinate, without kernel, price or bounds
            b, epsilon = np.append(b, 0), np.append(epsilon, 0)
            r = np.append(r, r.dtype.type(0))
            low, high = np.append(low, -np.inf), np.append(high, np.inf)
        own = K[:m, :m], b[:m], r[:m], low[:m], high[:m]
        whole = m == np.count_nonzero(self.counts)
        for _ in range(_SETTINGS.rounds):
            done = _solve_set(K, b, r, low, high, epsilon, tol, _SETTINGS.pairs * m)
            # the last step takes what `tol` leaves: the way to a solution leaves no trace
            if whole or not done:
                _newton(*own, self.epsilon, balanced=self.has_bias)
            if done:
                break
        return own[1]


@parameters
class WorkingSet(RowsSolver[WorkingSetState]):
    r"""The exact minimum of a loss with kinks on an exact kernel, the same as LIBSVM's.

    With weights ``p_i = w_i / sum_j w_j`` the dual in the coefficients of
    ``f = sum_i beta_i k(x_i, .)`` is

    .. math:: \min_\beta\ \frac12 \beta^\top K \beta - \beta^\top y + \epsilon |\beta|_1,
              \qquad l_i \le \beta_i \le h_i, \quad \sum_i \beta_i = s

    where ``[l_i, h_i]`` is ``p_i / alpha`` times an interval: for the hinge loss [0, 1] if
    ``y_i = 1`` and [-1, 0] if ``y_i = -1``, for the absolute and the epsilon-insensitive loss
    [-1, 1], for quantiles [q - 1, q], and for one class [0, 1] with y = 0. The sum s is
    ``nu / alpha`` for one class and 0 otherwise; without an intercept the sum is free.

    A working set holds rows that violate the optimality conditions, half of the new ones those
    that violate them most, and the free rows of the last set. Within it pairs of rows move, the
    first row chosen by the largest violation, the second by the largest decrease, until a tenth
    of the violation of all rows is left. If this takes many pairs, as with large C and noisy
    labels, Newton steps on the free rows come between them, each at the cost of a Cholesky
    factorisation. Then one product updates the responses of all rows. The kernel rows of the
    sets are kept within the estimator's ``memory_limit``; outputs share them.

    Losses: hinge, epsilon_insensitive, absolute, quantile and one_class.

    Parameters
    ----------
    tol : float > 0, default=1e-3
        The fit has converged when no pair of rows violates the optimality conditions by more
        than ``tol``: for classes in units of y, as in LIBSVM; in regression in units of the
        standard deviation of y; for one class in units of the largest response.
    set_size : int >= 2 or "auto", default="auto"
        Rows of a working set; "auto" is 2,048, or all rows if there are fewer.

    Notes
    -----
    One step of the loop halves the violation; it solves the whole problem if one set holds all
    rows, or if the memory for kernel rows does not hold a set of each output. With the ``C``
    and ``gamma`` of scikit-learn's ``SVC``, ``SVR`` or ``OneClassSVM`` the function is the same
    as theirs, to the tolerance.

    References
    ----------
    Fan, Chen and Lin (2005), "Working Set Selection Using Second Order Information for Training
    Support Vector Machines"; Wen et al. (2018), "ThunderSVM: A Fast SVM Library on GPUs and
    CPUs".
    """

    name: ClassVar[str] = "working_set"
    least_rows: ClassVar[int] = _LEAST_ROWS
    requires: ClassVar[frozenset[str]] = frozenset({"exact_kernel"})
    losses: ClassVar[tuple[str, ...]] = (
        "absolute", "epsilon_insensitive", "hinge", OneClass.name, "quantile",
    )  # fmt: skip
    state_class = WorkingSetState

    tol: float = real(default=1e-3, low=0, low_open=True)
    set_size: int | str = integer(default="auto", low=2, words=("auto",))

    def check_problem(self, problem: Problem) -> None:
        if problem.loss.name not in self.losses:
            raise CapabilityError(
                f"solver {self.name!r} is for losses with kinks ({', '.join(self.losses)}), "
                f"not for {problem.loss.name!r}; take solver='block_descent'."
            )
        check_alpha(self.name, problem.alpha)

    def init(self, problem: Problem, batch: TrainBatch) -> WorkingSetState:
        self.check_problem(problem)
        violation = np.full(problem.n_outputs, np.inf)
        return self._new_state(
            problem, batch, alpha=problem.alpha, violation=violation,
            intercept=np.zeros(problem.n_outputs),
        )  # fmt: skip

    def step(self, problem: Problem, state: WorkingSetState, batch: TrainBatch) -> StepInfo:
        """Halve the violation of each output, and measure objective and gap."""
        rows = self._attach(problem, state, batch)
        evaluations, before = rows.n_evaluations, state.coef.copy()
        renewed = rows.widen(state.exact.is_small(problem.alpha / _SETTINGS.rough, rows.rows))
        factor = state.alpha / problem.alpha
        if factor != 1.0:  # the bounds are in proportion to it, and so is the function
            state.alpha = problem.alpha
            state.coef, state.responses = factor * state.coef, factor * state.responses
        if renewed:  # responses are sums of values of the other precision
            state.responses[:] = 0.0
            _add(rows, state.coef, state.responses)
        p = np.asarray(batch.sample_weight, np.float64)
        p = p / p.sum()
        outputs = range(problem.n_outputs)
        duals = [_Dual.of(problem, c, batch.y[:, c].astype(np.float64), p) for c in outputs]
        for dual, beta, f in zip(duals, state.coef.T, state.responses, strict=True):
            if dual.total and not beta.any():
                beta[:] = dual.high * (dual.total / dual.high.sum())
                _add(rows, beta[:, None], f[None])
        tol = np.array([
            self.tol * self._unit(problem, dual.y, p, f)
            for dual, f in zip(duals, state.responses, strict=True)
        ])  # fmt: skip
        order = draws(problem.seed, _TAG).permutation(batch.n_rows)
        state.violation = self._descend(state, duals, tol, order, problem.resources.deadline)
        objective = gap = loss = 0.0
        for c, dual in enumerate(duals):
            beta, f = state.coef[:, c], state.responses[c]
            b = state.intercept[c] = dual.intercept(beta, f)
            one = problem.loss.for_output(c)
            value = one.value(batch.y[:, [c]].astype(np.float64), (f + b)[:, None])
            mean = float((p * dual.counts) @ value)
            square = float(beta @ f)
            tube = dual.epsilon * float(np.abs(beta).sum())
            primal = mean + problem.alpha * (0.5 * square + dual.total * b)
            gap += primal - problem.alpha * (float(beta @ dual.y) - tube - 0.5 * square)
            loss, objective = loss + mean, objective + primal
        state.iteration += 1
        state.rows_seen += batch.n_rows
        state.kernel_evaluations += rows.n_evaluations - evaluations
        return self._info(
            state,
            loss,
            support_update(state, rows.rows, state.coef - factor * before, factor),
            epoch=float(state.iteration),
            objective=objective,
            duality_gap=max(gap, 0.0),
            converged=bool((state.violation <= tol).all()),
        )

    @staticmethod
    def _unit(problem: Problem, y: Float64Array, p: Float64Array, f: Float64Array) -> float:
        """Return what the tolerance is a part of."""
        if problem.loss.name == "hinge":
            return 1.0
        if problem.loss.name == OneClass.name:
            return float(np.abs(f).max(initial=0.0)) or 1.0
        return float(np.sqrt(p @ (y - p @ y) ** 2)) or 1.0

    def _descend(
        self, state: WorkingSetState, duals: list[_Dual], tol: Float64Array,
        order: IntArray, deadline: Deadline,
    ) -> Float64Array:  # fmt: skip
        """Solve sets until each violation is halved, or at most `tol`; return them.

        It returns early if the next sets would end past the deadline; violations that are not
        yet known are inf.

        As many outputs are solved together as fit into the cached rows. If these are not all
        outputs, they are solved to `tol` at once, so that rows are not computed again in each
        step; so are outputs that need only one set. An output whose violation no longer
        decreases is left: either float32 cannot resolve more, or another step continues.
        """
        coef, responses = state.coef, state.responses
        assert state.rows is not None
        n, capacity = len(coef), len(state.rows.buffer)
        size = _SET_ROWS if self.set_size == "auto" else int(self.set_size)
        size = min(n, size, max(_LEAST_ROWS, capacity))
        whole = [np.count_nonzero(dual.counts) <= size for dual in duals]
        room = capacity // (2 * size)  # rows come back after their set
        fits = capacity == n or room >= len(duals)
        together = min(_SETTINGS.outputs, len(duals) if fits else max(1, room))
        violation, goal = np.full(len(duals), np.inf), np.zeros(len(duals))
        least, stale = np.full(len(duals), np.inf), np.zeros(len(duals))
        last: dict[int, IntArray] = {}
        live, seconds = list(range(len(duals))), 0.0
        while live and deadline.left() > 0.5 * seconds:
            start = clock()
            group, live = live[:together], live[together:]
            sets = {}
            for c in group:
                up, down = duals[c].gradients(coef[:, c], responses[c])
                violation[c] = duals[c].violation(up, down)
                if c not in last:
                    goal[c] = (
                        tol[c] if whole[c] or not fits else max(tol[c], 0.5 * violation[c])
                    )
                stale[c] = 0 if violation[c] < 0.99 * least[c] else stale[c] + 1
                least[c] = min(least[c], violation[c])
                if violation[c] > goal[c] and stale[c] <= (
                    _SETTINGS.patience // 10 if whole[c] else _SETTINGS.patience
                ):
                    before = last.get(c, np.zeros(0, np.intp))
                    sets[c] = last[c] = duals[c].next_set(
                        coef[:, c], up, down, before, size, order
                    )
            if sets:
                inner = np.maximum(
                    0.5 * tol, np.where(whole, 0.0, _SETTINGS.settled * violation)
                )
                live = self._advance(state, duals, sets, inner) + live
                seconds = clock() - start
        return violation

    @staticmethod
    def _advance(
        state: WorkingSetState, duals: list[_Dual], sets: dict[int, IntArray], tol: Float64Array
    ) -> list[int]:
        """Solve one set of each of some outputs; return those that moved."""
        assert state.rows is not None
        rows, coef, responses = state.rows, state.coef, state.responses
        outputs = list(sets)
        union = np.unique(np.concatenate(list(sets.values())))
        slots = rows.load(union)
        places = [np.searchsorted(union, sets[c]) for c in outputs]
        extra = int(not duals[0].has_bias)
        K = _among(rows, [slots[p] for p in places], list(sets.values()), extra)
        change = np.zeros((len(union), len(outputs)))

        def solve(i: int) -> None:
            c = outputs[i]
            index = sets[c]
            before = coef[index, c]
            after = duals[c].solve(K[i], index, before, responses[c][index], tol[c])
            change[places[i], i], coef[index, c] = after - before, after

        parallel_for(len(outputs), solve)
        moved = np.flatnonzero(change.any(axis=1))
        f = responses[outputs]
        add_rows(rows.buffer, slots[moved], change[moved], f)
        responses[outputs] = f
        # rounding of float32 is the end if nothing moves
        return [c for c, part in zip(outputs, change.T, strict=True) if part.any()]


def _among(
    rows: KernelRows, slots: list[IntArray], sets: list[IntArray], extra: int
) -> list[FloatArray]:
    """Return the kernel among the loaded rows of each set, and `extra` rows of zeros."""
    n = rows.buffer.shape[1]
    if not extra and all(len(s) == n for s in slots) and np.array_equal(slots[0], sets[0]):
        return [rows.buffer] * len(sets)  # all rows, in their order
    sizes, dtype = [len(index) + extra for index in sets], rows.buffer.dtype
    K = [np.zeros((size, size), dtype) for size in sizes]
    tiles = [(i, a) for i, s in enumerate(slots) for a in range(0, len(s), _GATHER_ROWS)]

    def gather(k: int) -> None:
        i, a = tiles[k]
        columns, m = sets[i][a:], len(sets[i])
        for t, slot in enumerate(slots[i][a : a + _GATHER_ROWS], a):
            np.take(rows.buffer[slot], columns, out=K[i][t, a:m], mode="clip")

    def mirror(k: int) -> None:
        i, a = tiles[k]
        part = slice(a, min(len(sets[i]), a + _GATHER_ROWS))
        K[i][part, :a] = K[i][:a, part].T

    parallel_for(len(tiles), gather)
    parallel_for(len(tiles), mirror)
    return K


def _add(rows: KernelRows, coef: Float64Array, responses: Float64Array) -> None:
    """Add ``sum_i k(x_i, .) coef_i`` to the responses (C, n); coef is (n, C)."""
    index = np.flatnonzero(coef.any(axis=1))
    step = min(_SET_ROWS, max(_LEAST_ROWS, len(rows.buffer)))  # within the memory limit
    for a in range(0, len(index), step):
        part = index[a : a + step]
        slots = rows.load(part)  # may replace the buffer
        add_rows(rows.buffer, slots, coef[part], responses)
