"""The base of the solvers that visit one row after another."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from kernelgrad.compute import threads
from kernelgrad.compute.compiling import njit
from kernelgrad.compute.rng import draws
from kernelgrad.files.records import Record
from kernelgrad.functions.exact import join_rows
from kernelgrad.kernels import ExactRows
from kernelgrad.linear.loops import slopes_of_row
from kernelgrad.losses import SemiSupervised
from kernelgrad.papers.support_state import SupportState
from kernelgrad.solvers import contract, support
from kernelgrad.solvers.dsg import smoothness
from kernelgrad.types import Float32Array, Float64Array, IntArray
from kernelgrad.validation import CapabilityError

GROUP = 256  # rows whose kernel values with the support come from one product
TILE = 1024  # support rows of one task: 1 MiB of kernel values for a group
# Least lazy factor before the coefficients take it in: the average is a difference of sums that
# lose no more digits than this.
_LEAST = 1e-4
_EVEN = 1e-9  # excess of a weight that is rounding of the mean
_MOST_PARTS = 1000  # parts of one step; the steps of a pass have about one for each row
_TAG = 0x6F6E6C
Pair = tuple[Float64Array, Float64Array]


class RowTiles:
    """Support rows, cut every `TILE` rows: to add some costs a tile, whatever their number.

    The cuts depend on the number of rows alone, so that sums over tiles have the same bits
    after a restart.
    """

    def __init__(self, rows: ExactRows) -> None:
        self.tiles = [rows]
        self._cut(0)

    def _cut(self, start: int) -> None:
        rows = join_rows(self.tiles[start:])
        cuts = range(0, max(1, rows.n_rows), TILE)
        self.tiles[start:] = [rows.take(slice(a, a + TILE)) for a in cuts]

    @property
    def n_rows(self) -> int:
        return (len(self.tiles) - 1) * TILE + self.tiles[-1].n_rows

    def take(self, index: IntArray) -> ExactRows:
        """Return the rows of an increasing index."""
        ends = np.searchsorted(index, TILE * np.arange(len(self.tiles) + 1))
        cuts = enumerate(zip(self.tiles, ends[:-1], ends[1:], strict=True))
        return join_rows([tile.take(index[a:b] - TILE * i) for i, (tile, a, b) in cuts])

    def append(self, rows: ExactRows) -> None:
        start = len(self.tiles) - 1
        self.tiles.append(rows)
        self._cut(start)

    def copy(self) -> RowTiles:
        twin = RowTiles(self.tiles[-1])
        twin.tiles = list(self.tiles)
        return twin


@dataclass(kw_only=True)
class OnlineState(SupportState):
    """State of an online solver; ``rows`` are :class:`RowTiles`. See :func:`_sweep`."""

    stamp: IntArray = contract.sized("S", kinds="i")
    base: Float64Array = contract.sized("S", "C")
    late: Float64Array = contract.sized("S", "C")
    scale: Float64Array = contract.sized("C")
    mass: Float64Array = contract.sized("C")
    square: Float64Array = contract.sized("C")
    bias: Float64Array = contract.sized("C")
    bias_sum: Float64Array = contract.sized("C")
    pace: Float64Array = contract.sized("C")  # step sizes that suit the first batch
    weight_sum: float = 0.0  # total weight of the iterates in the average
    row_weight: float = 0.0  # sum of the sample weights so far

    @classmethod
    def restore_parts(cls, problem: contract.Problem, record: Record) -> dict[str, Any]:
        parts = super().restore_parts(problem, record)
        return parts | {"rows": RowTiles(parts["rows"])}

    @property
    def n_support(self) -> int:
        return len(self.base)

    @property
    def prepared(self) -> ExactRows:
        return join_rows(self.rows.tiles)

    @property
    def intercept(self) -> Float64Array:
        """The bias of the average, or the current one where there is none."""
        return self.bias_sum / self.weight_sum if self.weight_sum else self.bias

    @property
    def current(self) -> Float64Array:
        """Coefficients of the current function, (S, C)."""
        return self.scale * self.base

    @property
    def average(self) -> Float64Array:
        """Coefficients of the average, or of the current function where there is none."""
        if not self.weight_sum:
            return self.current
        mean: Float64Array = (self.mass * self.base - self.late) / self.weight_sum
        return mean

    def entries(self, rows: ExactRows, numbers: IntArray | None) -> tuple[IntArray, IntArray]:
        m, S = rows.n_rows, self.n_support
        if numbers is None:
            return S + np.arange(m), np.arange(m)
        slot = self.find(rows, numbers)
        fresh = np.flatnonzero(slot < 0)
        _, first, back = np.unique(numbers[fresh], return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))
        slot[fresh] = S + rank[back]
        return slot, fresh[np.sort(first)]

    def products(self, rows: ExactRows) -> tuple[Float32Array, Float64Array]:
        m = rows.n_rows
        tiles = self.rows.tiles
        partial = np.zeros((len(tiles), m, self.base.shape[1]))
        K = np.empty((m, m), np.float32)

        def task(i: int) -> None:
            if i == len(tiles):
                K[:] = self.exact.values(rows, rows)
            elif tiles[i].n_rows:
                block = self.exact.values(rows, tiles[i])
                coef = self.base[i * TILE : (i + 1) * TILE]
                # float64: coefficients that the lazy scale divides grow large
                np.matmul(block.astype(np.float64), coef, out=partial[i])

        threads.parallel_for(len(tiles) + 1, task)
        return K, partial.sum(axis=0)

    def extend(self, new: IntArray, numbers: IntArray | None, K: Float32Array) -> None:
        m = len(new)
        self.numbers = _grown(self.numbers, m, -1 if numbers is None else numbers[new])
        self.stamp = _grown(self.stamp, m, -1)
        self.diagonal = _grown(self.diagonal, m, K[new, new])
        self.base, self.late = _grown(self.base, m, 0.0), _grown(self.late, m, 0.0)

    def keep_moved(self, added: ExactRows) -> None:
        """Leave out the entries of the group that no step has moved."""
        stays = self.stamp >= 0
        new = np.flatnonzero(stays[self.rows.n_rows :])
        if len(new):
            self.rows.append(added.take(new))
        if not stays.all():
            for name in ("numbers", "stamp", "diagonal", "base", "late"):
                setattr(self, name, getattr(self, name)[stays])


class OnlineSolver(support.KernelSolver[OnlineState]):
    r"""Base of the solvers that visit rows one by one, at the speed of matrix products.

    A batch is cut into groups. The kernel values of a group with the support, and with
    itself, are computed in parallel tiles; one product gives its responses to the function
    before the group, and a compiled loop visits the rows, correcting responses by what the
    rows before them in the group added. The function is that of visits one by one: cutting
    the rows into other groups or batches changes it by the rounding of float64 sums.

    Rows known by their numbers (`TrainBatch.rows`) have one entry in the support however often
    they are visited; on streams each visit may add one. Where every batch holds the same rows
    they are visited in a new order in each step, elsewhere in the order in which they come.

    A subclass gives :meth:`_start` and :meth:`_schedule`.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"exact_kernel", "fixed_intercept"})
    learns_bias: ClassVar[bool] = True  # if the estimator fits one
    removed = frozenset({"max_support", "projection"})
    pace_parameter: ClassVar[str]  # name of the parameter that gives the pace, or "auto"
    state_class = OnlineState
    average: Any
    rows_per_step: int = 1  # all from the function before them, with the mean of their steps

    def resolve_batch_size(self, n_rows: int | None) -> int:
        """Return a twentieth of the rows, at most 8,192, or 1,024 for an unknown number.

        Batches change neither the order of visits nor the function: they are what the loop
        records, validates and stops at.
        """
        size = 1024 if n_rows is None else min(8192, max(1, -(-n_rows // 20)))
        return -(-size // self.rows_per_step) * self.rows_per_step

    def _start(
        self, problem: contract.Problem, batch: contract.TrainBatch, kappa: float
    ) -> Pair:
        """Return (bias, pace), (C,) each; kappa is the mean of ``k(x, x)``."""
        bias = contract.first_constant(problem, batch)
        pace = getattr(self, self.pace_parameter)
        if pace != "auto":
            return bias, np.full(problem.n_outputs, float(pace))
        L = smoothness(problem.loss, batch.y, np.tile(bias, (batch.n_rows, 1)))
        return bias, self._first_pace(problem, L, kappa)

    def _first_pace(
        self, problem: contract.Problem, L: Float64Array, kappa: float
    ) -> Float64Array:
        """Return the pace for the curvature L of the loss."""
        raise NotImplementedError

    @abstractmethod
    def _schedule(self, problem: contract.Problem, state: OnlineState, t: Float64Array) -> Pair:
        """Return the steps and factors of visits t = 1, 2, ..., shape (m, C) each."""

    @property
    def _averaging(self) -> str | None:
        return cast("str | None", "linear" if self.average == "auto" else self.average)

    def _square_radius(self, problem: contract.Problem) -> float:
        return float(np.inf)

    def check_problem(self, problem: contract.Problem) -> None:
        loss = problem.loss
        tasks = {"classification", "regression"} & loss.tasks
        if isinstance(loss, SemiSupervised) or not tasks or loss.code is None:
            raise CapabilityError(
                f"solver {self.name!r} needs a convex loss of labelled rows with a code, got "
                f"{loss.name!r}; choose one for classification or regression such as 'hinge' "
                "or 'huber', or another solver."
            )
        self._square_radius(problem)

    def init(self, problem: contract.Problem, batch: contract.TrainBatch) -> OnlineState:
        C = problem.n_outputs
        exact, rows = support.build_exact(problem, batch)
        p = batch.sample_weight / batch.sample_weight.sum()
        bias, pace = self._start(problem, batch, float(p @ exact.kernel.exact_diag(rows)))
        return OnlineState(
            exact=exact, rows=RowTiles(rows.take(slice(0, 0))), numbers=np.zeros(0, np.int64),
            stamp=np.zeros(0, np.int64), diagonal=np.zeros(0), base=np.zeros((0, C)),
            late=np.zeros((0, C)), scale=np.ones(C), mass=np.zeros(C), square=np.zeros(C),
            bias=np.array(bias, np.float64), bias_sum=np.zeros(C),
            pace=np.array(pace, np.float64),
        )  # fmt: skip

    def step(
        self, problem: contract.Problem, state: OnlineState, batch: contract.TrainBatch
    ) -> contract.StepInfo:
        n = batch.n_rows
        rows = state.exact.prepare(batch.X, batch.rows)
        y = np.asarray(batch.y, np.float64)
        # the mean of all rows so far: a batch of few may hold light ones only
        state.row_weight += float(batch.sample_weight.sum())
        weight = batch.sample_weight * ((state.rows_seen + n) / state.row_weight)
        numbers = batch.rows
        if problem.fixed_rows:
            order = draws(problem.seed, _TAG, state.iteration).permutation(n)
            rows, y, weight = rows.take(order), y[order], weight[order]
            numbers = order if numbers is None else numbers[order]
        size = max(1, GROUP // self.rows_per_step) * self.rows_per_step
        f = np.empty(y.shape)
        with threads.single_threaded_blas():
            for a in range(0, n, size):
                part = slice(a, min(n, a + size))
                own = None if numbers is None else numbers[part]
                group = rows.take(part), y[part], weight[part], own
                f[part] = self._visit(problem, state, *group)
        train_loss = float(weight @ problem.loss.value(y, f)) / float(weight.sum())
        t = float(state.rows_seen)
        if not np.isfinite(train_loss):
            raise FloatingPointError(
                f"The fit diverged before visit {state.rows_seen} (training loss "
                f"{train_loss:g}); take smaller steps, raise alpha, or scale the data."
            )
        state.iteration += 1
        step_size = float(self._schedule(problem, state, np.array([t]))[0].max())
        return self._info(state, train_loss, None, step_size)

    def _visit(
        self, problem: contract.Problem, state: OnlineState, rows: ExactRows, y: Float64Array,
        weight: Float64Array, numbers: IntArray | None,
    ) -> Float64Array:  # fmt: skip
        """Visit the rows; return their responses before each visit."""
        m, S = len(y), state.n_support
        slot, new = state.entries(rows, numbers)
        K, R = state.products(rows)
        state.extend(new, numbers, K)
        each, i = self.rows_per_step, np.arange(m)
        first = i - i % each  # row of the step
        t = np.ceil((state.rows_seen + first + 1.0) / each)
        eta, keep = self._schedule(problem, state, t)
        eta, keep[i > first] = eta / np.minimum(m - first, each)[:, None], 1.0
        omega = {None: np.zeros(m), "uniform": np.ones(m), "linear": t}[self._averaging]
        omega[: m - 1][first[1:] == first[:-1]] = 0.0  # but after the last row of a step
        function = (
            state.base, state.late, state.stamp, state.scale, state.mass, state.square,
            state.bias, state.bias_sum,
        )  # fmt: skip
        f = np.empty_like(R)
        group = (K, R, f, y, weight, slot, eta, keep, omega)
        _sweep(
            group, function, problem.loss.code, problem.loss.params(y.shape[1]),
            problem.fit_intercept and self.learns_bias, self._square_radius(problem),
            state.rows_seen, each,
        )  # fmt: skip
        state.rows_seen += m
        state.weight_sum += float(omega.sum())
        state.kernel_evaluations += m * S + m * (m + 1) // 2
        state.keep_moved(rows.take(new))
        return f

    def count_support(self, state: OnlineState) -> int:
        return state.n_support

    def coefficients(self, state: OnlineState) -> Float64Array:
        return state.average

    track = contract.Solver.track


def _grown(values: Any, m: int, added: Any) -> Any:
    """Return values with m more rows."""
    more = np.empty((m, *values.shape[1:]), values.dtype)
    more[:] = added
    return np.concatenate([values, more])


@njit(nogil=True, cache=True)
def _write_step(
    code: int, params: Any, y: Any, f: Any, eta: Any, weight: float, bend: float, u: Any,
    g: Any, out: Any,
) -> None:  # fmt: skip
    """Write the step (C,) of a row to `out`; u and g (C,) are scratch.

    A step of many times the mean weight would go far beyond where the row is content: it is
    made in parts, each where the last one led, which moved the response by `bend` times it.
    """
    parts = min(max(1, math.ceil(weight - _EVEN)), _MOST_PARTS)
    out[:] = 0.0
    for _ in range(parts):
        for c in range(len(f)):
            u[c] = f[c] + out[c] * bend
        slopes_of_row(code, params, y, u, g)
        for c in range(len(f)):
            out[c] -= eta[c] * (weight / parts) * g[c]


@njit(nogil=True, cache=True)
def _take_in(s: float, mass: float, base: Any, late: Any, before: Any, after: Any) -> None:
    """Multiply what one output adds up by its lazy factor s, which begins anew at 1."""
    for j in range(len(base)):
        late[j] -= mass * base[j]
        base[j] *= s
    for j in range(len(before)):
        before[j] *= s
    for j in range(len(after)):
        after[j] *= s


@njit(nogil=True, cache=True)
def _sweep(
    group: Any, function: Any, code: int, params: Any, learn_bias: bool, square_radius: float,
    first: int, each: int,
) -> None:  # fmt: skip
    r"""Take gradient steps on the rows of a group, one after another, in place.

    Row i gives its response ``f_ic``, the derivative ``g_ic`` of its loss there, and

    .. math:: w_c \leftarrow \min(1, R / |\cdot|)
              (keep_{ic} w_c - eta_{ic} v_i g_{ic} k(x_i, .))

    with the weight v_i of the row; the bias, if it learns, takes the same steps without the
    factor. All rows of a step of `each` rows have the responses before the first of them.
    For output c the function is ``b_c + s_c sum_j base_jc k(x_j, .)``, and
    the sum of iterates ``sum_t omega_t w_t`` is ``mass_c base_c - late_c``: a step touches one
    coefficient.

    The group is K (m, m), kernel values of which the lower triangle is used; R (m, C),
    ``k(group, support) base``, changed; f (m, C), responses, written; y; weight (m,); slot
    (m,), the entry of each row; eta and keep (m, C); omega (m,), weight of the iterate after
    each row.

    The function is base and late (S, C), with zeros for the entries that the group may add;
    stamp (S,), the number of the last row that moved an entry, counted from `first`, -1 if it
    is not yet made; then per output scale, mass, square (``|w|^2``, where there is a radius),
    bias and bias_sum (``sum omega_t b_t``).
    """
    K, R, f, y, weight, slot, eta, keep, omega = group
    base, late, stamp, scale, mass, square, bias, bias_sum = function
    m, C = y.shape
    D = np.zeros((m, C))
    g, u, total_step = np.empty(C), np.empty(C), np.empty(C)
    for i in range(m):
        for k in range(i, min(i + each, m) if i % each == 0 else i):
            for c in range(C):
                total = R[k, c]
                for j in range(i):
                    total += K[k, j] * D[j, c]
                f[k, c] = scale[c] * total + bias[c]
        bend = K[i, i] + learn_bias
        _write_step(code, params, y[i], f[i], eta[i], weight[i], bend, u, g, total_step)
        moved = False
        k = slot[i]
        for c in range(C):
            step = total_step[c]
            factor = keep[i, c]
            s = scale[c] * factor
            if s < _LEAST:
                _take_in(s, mass[c], base[:, c], late[:, c], D[:i, c], R[i + 1 :, c])
                mass[c], s = 0.0, 1.0
            if step != 0.0:
                moved = True
                D[i, c] = step / s
                base[k, c] += D[i, c]
                late[k, c] += mass[c] * D[i, c]
            if square_radius < np.inf:
                w = f[i, c] - bias[c]
                norm = factor * factor * square[c] + step * (2.0 * factor * w + step * K[i, i])
                square[c] = max(norm, 0.0)
                if norm > square_radius:
                    shrink = np.sqrt(square_radius / norm)
                    s *= shrink
                    factor *= shrink
                    square[c] = square_radius
            scale[c] = s
            mass[c] += omega[i] * s
            if learn_bias:
                bias[c] += step
            bias_sum[c] += omega[i] * bias[c]
        if moved:
            stamp[k] = first + i
