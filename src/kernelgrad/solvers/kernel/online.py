"""What the solvers that visit one row after another share: support rows, groups, averages."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from kernelgrad._typing import AnyArray, Float32Array, Float64Array, IntArray, Matrix
from kernelgrad._validation import CapabilityError, check_int, check_name
from kernelgrad.compute.threads import parallel_for, single_threaded_blas
from kernelgrad.functions.exact import ExactKernel, join_rows
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.kernels import ExactRows
from kernelgrad.losses import LOSSES, Loss, scalar
from kernelgrad.solvers.base import Problem, Solver, State, StepInfo, TrainBatch, draws
from kernelgrad.solvers.kernel import _online as online
from kernelgrad.solvers.kernel.base import (
    SupportTracker,
    SupportUpdate,
    build_exact,
    describe_with_rows,
    restore_with_rows,
)

GROUP = 256  # rows whose kernel values with the support come from one product
_MAX_ROWS = 8192  # of a step: memory stays bounded however long the source is
TILE = 1024  # support rows of one task: 1 MiB of kernel values for a group
_TAG = 0x6F6E6C
_UNKNOWN = (scalar.ONE_CLASS, scalar.KL, scalar.LEAST_SQUARES)


def loss_code(loss: Loss, n_outputs: int) -> tuple[int, Float64Array]:
    """Return the number of a loss in the inner loop, and its parameter per output.

    Raises
    ------
    CapabilityError
        If the inner loop does not know the loss.
    """
    if loss.code is None or loss.code in _UNKNOWN:
        known = {cls.name for cls in LOSSES.values() if cls.code not in (None, *_UNKNOWN)}
        raise CapabilityError(
            f"the online solvers do not know loss {loss.name!r}; choose one of "
            f"{', '.join(sorted(known))}, or another solver."
        )
    return loss.code, loss.params(n_outputs)


def equal_rows(A: ExactRows, B: ExactRows) -> AnyArray:
    """Return which rows of A are those of B, shape (n,)."""
    both = A.values, B.values
    if any(sp.issparse(values) for values in both):
        both = sp.csr_matrix(A.values), sp.csr_matrix(B.values)
    different = both[0] != both[1]
    if sp.issparse(different):
        equal = np.asarray(different.getnnz(axis=1) == 0)
    else:
        equal = ~different.any(axis=1)
    for a, b in zip(A.parts, B.parts, strict=True):
        equal &= equal_rows(a, b)
    return equal


class RowTiles:
    """Support rows, cut every `TILE` rows: to add some costs a tile, whatever their number.

    The cuts depend on the number of rows alone, so that sums over tiles have the same bits
    after a restart.

    Parameters
    ----------
    rows : ExactRows
        May be empty; it says what kind of rows there will be.
    """

    def __init__(self, rows: ExactRows) -> None:
        self.tiles = [rows]
        self._cut(0)

    def _cut(self, start: int) -> None:
        """Bring the tiles from `start` on, of any sizes, back to `TILE` rows."""
        rows = join_rows(self.tiles[start:])
        cuts = range(0, max(1, rows.n_rows), TILE)
        self.tiles[start:] = [rows.take(slice(a, a + TILE)) for a in cuts]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return (len(self.tiles) - 1) * TILE + self.tiles[-1].n_rows

    def append(self, rows: ExactRows) -> None:
        """Add rows at the end."""
        start = len(self.tiles) - 1
        self.tiles.append(rows)
        self._cut(start)

    def take(self, index: IntArray) -> ExactRows:
        """Return the rows of an increasing index."""
        ends = np.searchsorted(index, TILE * np.arange(len(self.tiles) + 1))
        parts = [
            tile.take(index[a:b] - TILE * i)
            for i, (tile, a, b) in enumerate(zip(self.tiles, ends[:-1], ends[1:], strict=True))
        ]
        return join_rows(parts)

    def copy(self) -> RowTiles:
        """Return tiles that grow by themselves; the rows are shared."""
        twin = RowTiles(self.tiles[-1])
        twin.tiles = list(self.tiles)
        return twin


@dataclass(kw_only=True)
class OnlineState(State):
    """State of an online solver.

    Attributes
    ----------
    exact : ExactKernel
    rows : RowTiles
        The S support rows.
    numbers : int64 array (S,)
        Their numbers in the source, -1 where these mean nothing.
    stamp : int64 array (S,)
        Number of the last visited row that moved each.
    diagonal : float64 array (S,)
        ``k(x_s, x_s)``.
    base, late : float64 arrays (S, C)
        The current function is ``scale * base``, the sum of iterates ``mass * base - late``.
    scale, mass, square, bias, bias_sum : float64 arrays (C,)
        See :func:`~kernelgrad.solvers.kernel._online.sweep`.
    pace : float64 array (C,)
        What the first batch says about step sizes.
    row_weight : float
        Sum of the sample weights so far.
    weight_sum : float
        Of the iterates in the sum.
    kernel_evaluations : int
    """

    exact: ExactKernel
    rows: RowTiles
    numbers: IntArray
    stamp: IntArray
    diagonal: Float64Array
    base: Float64Array
    late: Float64Array
    scale: Float64Array
    mass: Float64Array
    square: Float64Array
    bias: Float64Array
    bias_sum: Float64Array
    pace: Float64Array
    weight_sum: float = 0.0
    row_weight: float = 0.0
    kernel_evaluations: int = 0

    def copy(self) -> Self:
        """Return a state with its own arrays; the rows are shared."""
        own = vars(self).items()
        arrays: dict[str, Any] = {k: v.copy() for k, v in own if isinstance(v, np.ndarray)}
        return replace(self, rows=self.rows.copy(), **arrays)

    @property
    def n_support(self) -> int:
        """Number of support rows, S."""
        return len(self.base)

    @property
    def prepared(self) -> ExactRows:
        """The support rows."""
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


_PER_ROW = ("numbers", "stamp", "diagonal", "base", "late")


class OnlineSolver(Solver[OnlineState]):
    r"""Base of the solvers that visit rows one by one, at the speed of matrix products.

    A batch is cut into groups. The kernel values of a group with the support, and with
    itself, are computed in parallel tiles; one product gives its responses to the function
    before the group, and a compiled loop visits the rows, correcting responses by what the
    rows before them in the group added. The function is that of visits one by one: cutting
    the rows into other groups or batches changes it by the rounding of float64 sums.

    Rows known by their numbers (`TrainBatch.rows`) have one entry in the support however often
    they are visited; on streams each visit may add one. Where every batch holds the same rows
    they are visited in a new order in each step, elsewhere in the order in which they come.

    A subclass gives :meth:`_start`, :meth:`_schedule` and how the support is limited.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"exact_kernel", "fixed_intercept"})
    drops_oldest: ClassVar[bool] = False  # before it grows too long; else the smallest, after
    average: Any
    max_support: int | None

    def _check_common(self) -> None:
        if self.average is not None:
            check_name(self.average, ("auto", "linear", "uniform"), "average")
        self._check_support()

    def _check_support(self) -> None:
        if self.max_support is None:
            return
        check_int(self.max_support, "max_support", low=1)
        if self.average != "auto" and self._averaging is not None:
            raise ValueError(
                f"average={self.average!r} needs the rows of all iterates, but max_support is "
                f"{self.max_support}; set average='auto', or max_support=None."
            )

    def resolve_batch_size(self, n_rows: int | None) -> int:
        """Return a twentieth of the rows, so that forty steps are two passes, at most 8,192.

        Where the number is not known it is 1,024.
        Batches change neither the order of visits nor the function: they are what the loop
        records, validates and stops at.
        """
        return 1024 if n_rows is None else min(_MAX_ROWS, max(1, -(-n_rows // 20)))

    @abstractmethod
    def _start(
        self, problem: Problem, batch: TrainBatch, kappa: float
    ) -> tuple[Float64Array, Float64Array]:
        """Return (bias, pace), (C,) each; kappa is the mean of ``k(x, x)``."""

    @abstractmethod
    def _schedule(
        self, problem: Problem, state: OnlineState, t: Float64Array
    ) -> tuple[Float64Array, Float64Array]:
        """Return the steps and factors of visits t = 1, 2, ..., shape (m, C) each."""

    @property
    def _averaging(self) -> str | None:
        if self.average == "auto":
            return "linear" if self.max_support is None else None
        name: str | None = self.average
        return name

    def _learns_bias(self, problem: Problem) -> bool:
        return problem.fit_intercept

    def _square_radius(self, problem: Problem) -> float:
        return float(np.inf)

    def check_problem(self, problem: Problem) -> None:
        """Raise for a loss without a code, and as subclasses do."""
        loss_code(problem.loss, problem.n_outputs)
        self._square_radius(problem)

    def init(self, problem: Problem, batch: TrainBatch) -> OnlineState:
        """Resolve the kernel on the first batch and start from a constant."""
        self.check_problem(problem)
        C = problem.n_outputs
        exact, rows = build_exact(problem, batch)
        p = batch.sample_weight / batch.sample_weight.sum()
        bias, pace = self._start(problem, batch, float(p @ exact.kernel.exact_diag(rows)))
        zeros, empty = np.zeros(C), np.zeros((0, C))
        return OnlineState(
            exact=exact,
            rows=RowTiles(rows.take(slice(0, 0))),
            numbers=np.zeros(0, np.int64),
            stamp=np.zeros(0, np.int64),
            diagonal=np.zeros(0),
            base=empty,
            late=empty.copy(),
            scale=np.ones(C),
            mass=zeros,
            square=zeros.copy(),
            bias=np.array(bias, np.float64),
            bias_sum=zeros.copy(),
            pace=np.array(pace, np.float64),
        )

    def step(self, problem: Problem, state: OnlineState, batch: TrainBatch) -> StepInfo:
        """Visit the rows of the batch; the training loss is that of each before its visit."""
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
        size = GROUP
        if self.drops_oldest and self.max_support is not None:
            # then the rows that a group drops were there before it
            size = min(size, self.max_support)
        visits = _Visits(self, problem, state)
        f = np.empty(y.shape)
        with single_threaded_blas():
            for a in range(0, n, size):
                part = slice(a, min(n, a + size))
                known = None if numbers is None else numbers[part]
                f[part] = visits.group(rows.take(part), y[part], weight[part], known)
        train_loss = float(weight @ problem.loss.value(y, f)) / float(weight.sum())
        t = float(state.rows_seen)
        if not np.isfinite(train_loss):
            raise FloatingPointError(
                f"The fit diverged before visit {state.rows_seen} (training loss "
                f"{train_loss:g}); take smaller steps, raise alpha, or scale the data."
            )
        state.iteration += 1
        return StepInfo(
            train_loss=train_loss,
            step_size=float(self._schedule(problem, state, np.array([t]))[0].max()),
            n_random_features=0,
            update=visits.finish(),
            n_support=state.n_support,
            kernel_evaluations=state.kernel_evaluations,
        )

    def functions(self, state: OnlineState) -> tuple[Float64Array, Float64Array]:
        """Return the coefficients of the current function and of the result, (S, C) each."""
        return state.current, state.average

    def output(self, state: OnlineState) -> tuple[Float64Array, Float64Array]:
        """Return (scale, intercept) of the result."""
        return np.ones(len(state.bias)), state.intercept

    def expansion(self, state: OnlineState) -> SupportExpansion:
        """Return the average of the iterates, or the last one."""
        return SupportExpansion(state.exact, state.prepared, state.average, state.intercept)

    def track(self, state: OnlineState, X: Matrix) -> SupportTracker:
        """Return the incremental responses of the rows of `X`."""
        return SupportTracker(self, state, state.exact.prepare(X))

    def state_arrays(self, state: OnlineState) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Return the state, support rows included."""
        return describe_with_rows(state, state.exact, state.prepared)

    def restore(
        self, problem: Problem, values: dict[str, Any], arrays: dict[str, AnyArray]
    ) -> OnlineState:
        """Return the state that :meth:`state_arrays` described."""
        support, own = restore_with_rows(problem, values, arrays)
        rows = RowTiles(support.support)
        return OnlineState(exact=support.exact, rows=rows, **own)


class _Visits:
    """The visits of one step, group after group, and what they did to both functions."""

    def __init__(self, solver: OnlineSolver, problem: Problem, state: OnlineState) -> None:
        self.solver, self.problem, self.state = solver, problem, state
        self.code, self.parameter = loss_code(problem.loss, problem.n_outputs)
        C = problem.n_outputs
        self.kept, self.blend = np.ones(C), np.zeros(C)
        self.weight_before = state.weight_sum
        # aligned with the support: coefficients before the step, and what it touched
        self.w, self.v = state.current, state.average
        self.touched = np.zeros(state.n_support, bool)
        self.gone: list[tuple[ExactRows, Float64Array, Float64Array]] = []
        limit, S = solver.max_support, state.n_support
        if solver.drops_oldest and limit is not None and limit < S:  # it was larger before
            kept = np.zeros(S, bool)
            kept[np.argsort(state.stamp, kind="stable")[S - limit :]] = True
            self._keep(kept, state.rows.tiles[0].take(slice(0, 0)), S)

    def group(
        self, rows: ExactRows, y: Float64Array, weight: Float64Array, numbers: IntArray | None
    ) -> Float64Array:
        """Visit the rows; return their responses before each visit."""
        solver, problem, state = self.solver, self.problem, self.state
        m, S = len(y), state.n_support
        slot, new = self._entries(rows, numbers)
        limit = solver.max_support if solver.drops_oldest else None
        old = np.zeros(0, np.int64)
        if limit is not None and S + len(new) > limit:
            old = np.argsort(state.stamp, kind="stable")[:m].astype(np.int64)
        K, R, K_old = self._products(rows, old)
        self._extend(rows, new, numbers, K)
        t = state.rows_seen + np.arange(1.0, m + 1.0)
        eta, keep = solver._schedule(problem, state, t)
        omega = {None: np.zeros(m), "uniform": np.ones(m), "linear": t}[solver._averaging]
        f = np.empty_like(R)
        online.sweep(
            K, R, y, weight, slot, f,
            eta, keep, omega, self.code, self.parameter, solver._learns_bias(problem),
            solver._square_radius(problem),
            state.base, state.late, state.stamp, state.scale, state.mass, state.square,
            state.bias, state.bias_sum, self.kept, self.blend,
            state.rows_seen, S, np.iinfo(np.int64).max if limit is None else limit, old, K_old,
        )  # fmt: skip
        state.rows_seen += m
        state.weight_sum += float(omega.sum())
        state.kernel_evaluations += m * S + m * (m + 1) // 2
        self.touched[slot] = True
        self._keep(state.stamp >= 0, rows.take(new), S)
        if solver.max_support is not None and state.n_support > solver.max_support:
            power = state.diagonal * np.square(state.current).max(axis=1)
            kept = np.zeros(state.n_support, bool)
            # the sort is stable: of equal ones the newer stay
            kept[np.argsort(power, kind="stable")[-solver.max_support :]] = True
            self._keep(kept, rows.take(slice(0, 0)), state.n_support)
        return f

    def _entries(self, rows: ExactRows, numbers: IntArray | None) -> tuple[IntArray, IntArray]:
        """Return the entry of each row, and the rows of the group that get new ones."""
        state, S = self.state, self.state.n_support
        m = rows.n_rows
        if numbers is None:
            return S + np.arange(m), np.arange(m)
        slot = np.full(m, -1, np.int64)
        entry: IntArray = np.empty(0, np.int64)
        if S:
            order = np.argsort(state.numbers, kind="stable")
            place = np.searchsorted(state.numbers, numbers, sorter=order).clip(0, S - 1)
            found = np.flatnonzero(state.numbers[order[place]] == numbers)
            entry = order[place[found]]
        if S and len(entry):
            kept, back = np.unique(entry, return_inverse=True)
            same = equal_rows(state.rows.take(kept).take(back), rows.take(found))
            slot[found[same]] = entry[same]
            state.numbers[entry[~same]] = -1  # rows of another source
        fresh = np.flatnonzero(slot < 0)
        _, first, back = np.unique(numbers[fresh], return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))
        slot[fresh] = S + rank[back]
        return slot, fresh[np.sort(first)]

    def _products(
        self, rows: ExactRows, old: IntArray
    ) -> tuple[Float32Array, Float64Array, Float32Array]:
        """Return k(group, group), k(group, support) base, and k(group, old)."""
        state, m = self.state, rows.n_rows
        tiles = state.rows.tiles
        partial = np.zeros((len(tiles), m, state.base.shape[1]))
        K = np.empty((m, m), np.float32)
        K_old = np.empty((m, len(old)), np.float32)

        def task(i: int) -> None:
            if i == len(tiles):
                K[:] = state.exact.block(rows, rows)
            elif tiles[i].n_rows:
                block = state.exact.block(rows, tiles[i])
                coef = state.base[i * TILE : (i + 1) * TILE]
                # float64: coefficients that the lazy scale divides grow large
                np.matmul(block.astype(np.float64), coef, out=partial[i])
                here = np.flatnonzero(old // TILE == i)
                K_old[:, here] = block[:, old[here] - i * TILE]

        parallel_for(len(tiles) + 1, task)
        return K, partial.sum(axis=0), K_old

    def _extend(
        self, rows: ExactRows, new: IntArray, numbers: IntArray | None, K: Float32Array
    ) -> None:
        """Make entries with zero coefficients, outside of the support until they move."""
        state, C = self.state, self.state.base.shape[1]
        none = np.full(len(new), -1, np.int64)
        zeros = np.zeros((len(new), C))
        more = {
            "numbers": none if numbers is None else numbers[new],
            "stamp": none,
            "diagonal": K[new, new],
            "base": zeros,
            "late": zeros,
        }
        for name, values in more.items():
            grown = np.concatenate([getattr(state, name), values])
            setattr(state, name, grown.astype(getattr(state, name).dtype, copy=False))
        self.w, self.v = (np.concatenate([a, zeros]) for a in (self.w, self.v))
        self.touched = np.concatenate([self.touched, np.zeros(len(new), bool)])

    def _keep(self, kept: AnyArray, added: ExactRows, S: int) -> None:
        """Drop entries; the first S of them have rows, `added` are those of the others."""
        state = self.state
        lost = np.flatnonzero(~kept[:S])
        if len(lost):
            self.gone.append((state.rows.take(lost), self.w[lost], self.v[lost]))
            state.rows = RowTiles(state.rows.take(np.flatnonzero(kept[:S])))
        some = np.flatnonzero(kept[S:])
        if len(some):
            state.rows.append(added.take(some))
        if not kept.all():
            for name in _PER_ROW:
                setattr(state, name, getattr(state, name)[kept])
            self.w, self.v, self.touched = self.w[kept], self.v[kept], self.touched[kept]

    def finish(self) -> SupportUpdate:
        """Return how the step moved the current function and the result."""
        state = self.state
        index = np.flatnonzero(self.touched)
        keep, blend = np.zeros_like(self.kept), self.kept
        if state.weight_sum:
            keep = np.full_like(self.kept, self.weight_before / state.weight_sum)
            blend = self.blend / state.weight_sum
        w, v = (
            np.concatenate([a[index], *(g[i] for g in self.gone)])
            for i, a in ((1, self.w), (2, self.v))
        )
        now = np.zeros((2, *w.shape))
        now[0, : len(index)] = state.current[index]
        now[1, : len(index)] = state.average[index]
        return SupportUpdate(
            rows=join_rows([state.rows.take(index), *(g[0] for g in self.gone)]),
            scale=self.kept,
            moved=now[0] - self.kept * w,
            keep=keep,
            blend=blend,
            drift=now[1] - keep * v - blend * w,
        )
