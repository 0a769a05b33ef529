r"""Exact support vector machines: large working sets of rows, each solved pair by pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba import njit

from kernelgrad._params import integer, parameters, real
from kernelgrad._typing import AnyArray, Float32Array, Float64Array, IntArray
from kernelgrad._validation import CapabilityError
from kernelgrad.compute.threads import parallel_for
from kernelgrad.functions.exact import KernelRows
from kernelgrad.losses import OneClass
from kernelgrad.solvers.base import Problem, StepInfo, TrainBatch
from kernelgrad.solvers.kernel.base import RowsSolver, RowsState, SupportUpdate
from kernelgrad.solvers.kernel.dual_ascent import check_alpha

_BIG = np.float32(1e38)  # stands for "may not move that way"
_LEAST_BEND = np.float32(1e-6)  # of k_ii + k_jj - 2 k_ij, for equal rows
_SETTLED = 0.1  # of the violation of all rows, at which a set is left
_STEPS = 200  # on pairs, for each row of a set
_SET_ROWS = 2048  # measured: a quarter to a half of the time of sets of 1,024 rows
_LEAST_ROWS = 64  # of a set, whatever the memory
_GATHER_ROWS = 64  # of a task
_REDUCED = {"contract", "nsz", "arcp", "reassoc", "nnan"}  # least and largest entries


@njit(nogil=True, cache=True, fastmath=_REDUCED)
def _least(a: Float32Array) -> Any:
    m = a[0]
    for t in range(a.size):
        m = min(m, a[t])
    return m


@njit(nogil=True, cache=True, fastmath=_REDUCED)
def _largest(a: Float32Array) -> Any:
    m = a[0]
    for t in range(a.size):
        m = max(m, a[t])
    return m


@njit(nogil=True, cache=True)
def _place(a: Float32Array, value: Any) -> int:
    for t in range(a.size):
        if a[t] == value:
            return t
    return -1


@njit(nogil=True, cache=True)
def _renew(
    s: int,
    beta: Float64Array,
    low: Float64Array,
    high: Float64Array,
    epsilon: Float64Array,
    rise: Float32Array,
    fall: Float32Array,
) -> None:
    """Set what is added to the gradient of coordinate s when it rises, and when it falls."""
    rise[s], fall[s] = _BIG, -_BIG
    if beta[s] < high[s]:
        rise[s] = epsilon[s] if beta[s] >= 0.0 else -epsilon[s]
    if beta[s] > low[s]:
        fall[s] = epsilon[s] if beta[s] > 0.0 else -epsilon[s]


@njit(nogil=True, cache=True, fastmath={"contract", "nsz", "arcp"})
def _solve_set(
    K: Float32Array,
    beta: Float64Array,
    r: Float32Array,
    low: Float64Array,
    high: Float64Array,
    epsilon: Float64Array,
    tol: float,
    most: int,
) -> None:
    """Solve the dual on a set, in place, up to `tol` or `most` steps; r is ``K beta - y``.

    The first of a pair violates most, the second promises the largest decrease. A coordinate
    stops at 0, where the slope of ``epsilon |beta|`` jumps.
    """
    q = len(beta)
    zero, two = np.float32(0), np.float32(2)
    diagonal, gain = np.empty(q, np.float32), np.empty(q, np.float32)
    rise, fall = np.empty(q, np.float32), np.empty(q, np.float32)
    up, down = np.empty(q, np.float32), np.empty(q, np.float32)
    for t in range(q):
        diagonal[t] = K[t, t]
        _renew(t, beta, low, high, epsilon, rise, fall)
    for _ in range(most):
        for t in range(q):
            up[t] = r[t] + rise[t]
            down[t] = r[t] + fall[t]
        first = _least(up)
        if not _largest(down) - first > tol:
            return
        i = _place(up, first)
        Ki, kii = K[i], diagonal[i]
        for t in range(q):
            d = max(down[t] - first, zero)
            gain[t] = d * d / max(kii + diagonal[t] - two * Ki[t], _LEAST_BEND)
        j = _place(gain, _largest(gain))
        Kj = K[j]
        bend = max(kii + diagonal[j] - two * Ki[j], _LEAST_BEND)
        end_i = 0.0 if epsilon[i] > 0.0 and beta[i] < 0.0 else high[i]
        end_j = 0.0 if epsilon[j] > 0.0 and beta[j] > 0.0 else low[j]
        room_i, room_j = end_i - beta[i], beta[j] - end_j
        move = min(np.float64((down[j] - first) / bend), room_i, room_j)
        beta[i] = end_i if move == room_i else beta[i] + move
        beta[j] = end_j if move == room_j else beta[j] - move
        _renew(i, beta, low, high, epsilon, rise, fall)
        _renew(j, beta, low, high, epsilon, rise, fall)
        step = np.float32(move)
        for t in range(q):
            r[t] += step * (Ki[t] - Kj[t])


@dataclass(kw_only=True)
class WorkingSetState(RowsState):
    """State of :class:`WorkingSet`; ``responses`` are f on the rows without the intercept."""

    alpha: float
    violation: Float64Array  # of the optimality conditions, (C,)


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
        """Return the dual of output c."""
        loss: Any = problem.loss.for_output(c)
        most = p / problem.alpha
        none = np.zeros_like(most)
        low, high, epsilon, total = -most, most, 0.0, 0.0
        if loss.name == "hinge":
            low, high = np.where(y > 0, none, -most), np.where(y > 0, most, none)
        elif loss.name == "quantile":
            low, high = (loss.quantile - 1.0) * most, loss.quantile * most
        elif loss.name == OneClass.name:
            y, low, total = none, none, float(loss.nu) / problem.alpha
        elif loss.name == "epsilon_insensitive":
            epsilon = float(loss.epsilon)
        return cls(y, low, high, epsilon, total, problem.fit_intercept or total > 0.0)

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
        return -0.5 * float(up.min() + down.max())

    def next_set(
        self,
        beta: Float64Array,
        up: Float64Array,
        down: Float64Array,
        last: IntArray,
        size: int,
    ) -> IntArray:
        """Return the rows that violate most, then those of the last set, free ones first."""
        n = len(beta)
        if size >= n:
            return np.arange(n)
        h = max(1, size // 4 if len(last) else size // 2)
        parts = (up, -down)
        worst = [np.argpartition(a, h)[:h] for a in parts]
        chosen = np.unique(
            np.concatenate([w[np.isfinite(a[w])] for w, a in zip(worst, parts, strict=True)])
        )
        kept = np.setdiff1d(last, chosen)
        free = (beta[kept] > self.low[kept]) & (beta[kept] < self.high[kept])
        return np.concatenate([chosen, kept[free], kept[~free]])[:size]


@parameters
class WorkingSet(RowsSolver[WorkingSetState]):
    r"""The exact minimum of a loss with kinks on an exact kernel, as LIBSVM finds it.

    With weights ``p_i = w_i / sum_j w_j`` the dual in the coefficients of
    ``f = sum_i beta_i k(x_i, .)`` is

    .. math:: \min_\beta\ \frac12 \beta^\top K \beta - \beta^\top y + \epsilon |\beta|_1,
              \qquad l_i \le \beta_i \le h_i, \quad \sum_i \beta_i = s

    where ``[l_i, h_i]`` is ``p_i / alpha`` times: [0, 1] or [-1, 0] for the hinge loss and
    ``y_i = 1`` or -1, [-1, 1] for the absolute and the epsilon-insensitive loss, [q - 1, q] for
    quantiles, [0, 1] for one class, with y = 0 and ``s = nu / alpha``, 0 otherwise. Without an
    intercept the sum is free.

    A working set holds the rows that violate the optimality conditions most and the free ones
    of the last set. Within it pairs of rows move, the first of largest violation, the second of
    largest decrease, until a tenth of the violation of all rows is left; then one product
    renews the responses of all rows. The kernel rows of the sets are kept within the
    estimator's ``memory_limit``; outputs (one class against the rest) share them.

    Losses: hinge, epsilon_insensitive, absolute, quantile and one_class.

    Parameters
    ----------
    tol : float > 0, default=1e-3
        Converged when no pair of rows violates the optimality conditions by more than ``tol``,
        in units of y for classes, as in LIBSVM, and of the standard deviation of y in
        regression; the level of one class in units of the largest response.
    set_size : int >= 2 or "auto", default="auto"
        Rows of a working set; "auto" is 2,048, or all rows if there are fewer.
    max_support : int or None, default=None
        Keep that many rows (see :meth:`~kernelgrad.functions.SupportExpansion.limited`). The
        gap is that of the function before.

    Notes
    -----
    One step of the loop halves the violation, or solves the problem where one set holds all
    rows. ``history_["duality_gap"]`` bounds the distance of the objective from its minimum.
    With the ``C`` and ``gamma`` of scikit-learn's ``SVC``, ``SVR`` or ``OneClassSVM`` the
    function is theirs, to the tolerance.

    References
    ----------
    Fan, Chen and Lin (2005), "Working Set Selection Using Second Order Information for Training
    Support Vector Machines"; Wen et al. (2018), "ThunderSVM: A Fast SVM Library on GPUs and
    CPUs".
    """

    name: ClassVar[str] = "working_set"
    requires: ClassVar[frozenset[str]] = frozenset({"exact_kernel"})
    losses: ClassVar[tuple[str, ...]] = (
        "absolute", "epsilon_insensitive", "hinge", OneClass.name, "quantile",
    )  # fmt: skip
    state_class = WorkingSetState

    tol: float = real(default=1e-3, low=0, low_open=True)
    set_size: int | str = integer(default="auto", low=2, words=("auto",))
    max_support: int | None = integer(default=None, low=1, words=(None,))

    def check_problem(self, problem: Problem) -> None:
        """Raise CapabilityError for a loss without kinks, ValueError for alpha = 0."""
        if problem.loss.name not in self.losses:
            raise CapabilityError(
                f"solver {self.name!r} is for losses with kinks ({', '.join(self.losses)}), "
                f"not for {problem.loss.name!r}; take solver='cached'."
            )
        check_alpha(self.name, problem.alpha)

    def init(self, problem: Problem, batch: TrainBatch) -> WorkingSetState:
        """Resolve the kernel and start from zero."""
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
        factor = state.alpha / problem.alpha
        if factor != 1.0:  # the bounds are in proportion to it, and so is the function
            state.alpha = problem.alpha
            state.coef, state.responses = factor * state.coef, factor * state.responses
        p = np.asarray(batch.sample_weight, np.float64)
        p = p / p.sum()
        objective = gap = loss = 0.0
        converged = True
        for c in range(problem.n_outputs):
            y = np.ascontiguousarray(batch.y[:, c], np.float64)
            dual = _Dual.of(problem, c, y, p)
            beta, f = np.ascontiguousarray(state.coef[:, c]), state.responses[c]
            if dual.total and not beta.any():
                beta[:] = dual.high * (dual.total / dual.high.sum())
                self._add(rows, f, np.flatnonzero(beta), beta)
            tol = self.tol * self._unit(problem, y, p, f)
            state.violation[c] = self._descend(rows, dual, beta, f, tol)
            b = state.intercept[c] = dual.intercept(beta, f)
            state.coef[:, c] = beta
            one = problem.loss.for_output(c)
            mean = float(p @ one.value(batch.y[:, [c]].astype(np.float64), (f + b)[:, None]))
            square = float(beta @ f)
            tube = dual.epsilon * float(np.abs(beta).sum())
            primal = mean + problem.alpha * (0.5 * square + dual.total * b)
            gap += primal - problem.alpha * (float(beta @ dual.y) - tube - 0.5 * square)
            loss, objective = loss + mean, objective + primal
            converged = converged and bool(state.violation[c] <= tol)
        state.iteration += 1
        state.rows_seen += batch.n_rows
        state.kernel_evaluations += rows.n_evaluations - evaluations
        return self._info(
            state,
            loss,
            SupportUpdate.without_average(rows.rows, state.coef - factor * before, factor),
            epoch=float(state.iteration),
            objective=objective,
            duality_gap=max(gap, 0.0),
            converged=converged,
        )

    @staticmethod
    def _unit(problem: Problem, y: Float64Array, p: Float64Array, f: Float64Array) -> float:
        """Return what the tolerance is a part of."""
        if problem.loss.name == "hinge":
            return 1.0
        if problem.loss.name == OneClass.name:
            return float(np.abs(f).max(initial=0.0)) or 1.0
        return float(np.sqrt(p @ (y - p @ y) ** 2)) or 1.0

    @staticmethod
    def _add(rows: KernelRows, f: Float64Array, index: IntArray, coef: Float64Array) -> None:
        """Add ``sum_i k(x_i, .) coef_i`` over `index` to the responses."""
        for a in range(0, len(index), _SET_ROWS):
            some = index[a : a + _SET_ROWS]
            f += rows.product(rows.load(some), coef[some, None])[0]

    def _descend(
        self, rows: KernelRows, dual: _Dual, beta: Float64Array, f: Float64Array, tol: float
    ) -> float:
        """Solve working sets until the violation is halved, or at most `tol`; return it."""
        n = len(beta)
        size = _SET_ROWS if self.set_size == "auto" else int(self.set_size)
        size = min(n, size, max(_LEAST_ROWS, len(rows.buffer)))
        last: IntArray = np.zeros(0, np.intp)
        goal = 0.0
        while True:
            up, down = dual.gradients(beta, f)
            violation = dual.violation(up, down)
            if not len(last):
                goal = tol if size == n else max(tol, 0.5 * violation)
            if violation <= goal:
                return violation
            chosen = dual.next_set(beta, up, down, last, size)
            slots = rows.load(chosen)
            b, r = beta[chosen], (f - dual.y)[chosen].astype(np.float32)
            low, high = dual.low[chosen], dual.high[chosen]
            epsilon = np.full(len(chosen), dual.epsilon)
            K = _square(rows.buffer, slots, chosen)
            if not dual.has_bias:  # one more coordinate, without kernel, price or bounds
                epsilon = np.append(epsilon, 0.0)
                K, b, r = np.pad(K, (0, 1)), np.append(b, 0.0), np.append(r, np.float32(0))
                low, high = np.append(low, -np.inf), np.append(high, np.inf)
            inner = 0.5 * tol if size == n else max(_SETTLED * violation, 0.5 * tol)
            _solve_set(K, b, r, low, high, epsilon, inner, _STEPS * len(b))
            b = b[: len(chosen)]
            moved = np.flatnonzero(b != beta[chosen])
            if not len(moved):  # rounding of float32 ends it
                return violation
            change = b[moved] - beta[chosen[moved]]
            f += rows.product(slots[moved], change[:, None])[0]
            beta[chosen] = b
            last = chosen


def _square(buffer: Float32Array, slots: IntArray, index: IntArray) -> AnyArray:
    """Return the kernel among the loaded rows `index`."""
    if len(index) == buffer.shape[1] and np.array_equal(slots, index):
        return buffer[: len(index)]  # all rows, in their order
    K = np.empty((len(index), len(index)), np.float32)

    def task(i: int) -> None:
        for a in range(i * _GATHER_ROWS, min(len(slots), (i + 1) * _GATHER_ROWS)):
            np.take(buffer[slots[a]], index, out=K[a])

    parallel_for(-(-len(slots) // _GATHER_ROWS), task)
    return K
