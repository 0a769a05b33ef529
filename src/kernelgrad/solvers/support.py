"""Shared by all solvers with exact kernels: rows, coefficients, responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.memory import system_bytes
from kernelgrad.compute.threads import over_tiles
from kernelgrad.files.records import Record
from kernelgrad.functions.exact import (
    CACHE_PART,
    CHEAP_CACHE,
    DEAR_COLUMNS,
    MOST_CACHE,
    ExactKernel,
    KernelRows,
)
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.kernels import ExactRows, Kernel
from kernelgrad.solvers import contract
from kernelgrad.solvers.contract import Problem, Solver, State, StepInfo, TrainBatch
from kernelgrad.solvers.trackers import TrackedResponses, Tracker, Update, UpdatedTracker
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray, Matrix

_WORK_BYTES = 32 * 2**20  # tiles of all threads and copies of arrays of n
_WORK_ARRAYS = 12  # float64 arrays of (n, C) that live at once
_ADD_TILE = 2048  # columns of a task that adds kernel rows: 16 KiB of float64
MERGE_ROWS = 8192  # duplicates are merged where there are no more rows than this


@dataclass(kw_only=True)
class KernelState(State):
    """State of a solver whose function is a sum over rows."""

    exact: ExactKernel
    kernel_evaluations: int = 0

    @property
    def prepared(self) -> ExactRows:
        """The rows of the function."""
        raise NotImplementedError

    @property
    def is_released(self) -> bool:
        """Whether the rows come with the next step only."""
        return False


@dataclass(kw_only=True)
class RowsState(KernelState):
    """State of a solver that keeps the responses of all training rows.

    ``responses`` are those of the current function, without intercept, in the solver's sign
    convention.
    """

    digest: bytes  # digest of the rows, which a continued fit must bring again
    coef: Float64Array = contract.sized("n", "C")  # coefficients of the current function
    responses: Float64Array = contract.sized("C", "n")
    intercept: Float64Array = contract.sized("C")
    rows: KernelRows | None = contract.transient()  # None after a release or a load

    def describe_parts(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        scaling = self.exact.scaling.arrays()
        return {"exact": self.exact.describe()}, {f"scaling.{k}": a for k, a in scaling.items()}

    @classmethod
    def restore_parts(cls, problem: Problem, record: Record) -> dict[str, Any]:
        scaling, exact = record.part("scaling"), record.part("exact")
        kernel = ExactKernel.restore(exact, scaling)
        scaling.close()
        exact.close()
        return {"exact": kernel}

    @property
    def prepared(self) -> ExactRows:
        """The training rows, available between a step and `release`."""
        assert self.rows is not None
        return self.rows.rows

    @property
    def is_released(self) -> bool:
        return self.rows is None


K = TypeVar("K", bound=KernelState)
R = TypeVar("R", bound=RowsState)


class KernelSolver(Solver[K], Generic[K]):
    """Base class of the solvers whose function is a sum over rows."""

    def coefficients(self, state: K) -> Float64Array:
        """Return the coefficients of the result, (S, C)."""
        coef: Float64Array = cast("Any", state).coef
        return coef

    def intercept(self, state: K) -> Float64Array:
        """Return the constants of the result, (C,)."""
        intercept: Float64Array = cast("Any", state).intercept
        return intercept

    def expansion(self, state: K) -> SupportExpansion:
        coef, intercept = self.coefficients(state), self.intercept(state)
        return SupportExpansion(state.exact, state.prepared, coef, intercept)

    def count_support(self, state: K) -> int:
        return int(np.count_nonzero(self.coefficients(state).any(axis=1)))

    def _info(
        self, state: K, train_loss: float, update: Update | None, step_size: float = 1.0,
        **own: Any,
    ) -> StepInfo:  # fmt: skip
        """Return the report of a step; a step size of 1 is a full step."""
        return StepInfo(
            train_loss=train_loss,
            step_size=step_size,
            update=update,
            n_support=self.count_support(state),
            kernel_evaluations=state.kernel_evaluations,
            **own,
        )

    def _responses(self, state: K, tracked: ExactRows) -> TrackedResponses:
        coef = self.coefficients(state)
        used = np.flatnonzero(coef.any(axis=1))
        f = np.zeros((tracked.n_rows, coef.shape[1]))
        if len(used) and not state.is_released:
            f += state.exact.products(tracked, state.prepared.take(used), coef[used])
        return {"x": f}

    def _output(self, state: K, responses: TrackedResponses) -> FloatArray:
        return np.asarray(responses["x"] + self.intercept(state))

    def track(self, state: K, X: Matrix) -> Tracker:
        rows, released = state.exact.prepare(X), state.is_released
        predict, output = partial(self._responses, state), partial(self._output, state)
        return UpdatedTracker(rows, predict, output, ahead=released)


class RowsSolver(KernelSolver[R], Generic[R]):
    """Base class of the solvers on exact kernels that keep all rows and their responses."""

    streams = False
    least_rows: ClassVar[int] = 1  # kernel rows that are held at once, whatever the memory
    removed = frozenset({"max_support"})

    def resolve_batch_size(self, n_rows: int | None) -> int:
        """Return all rows; None asks up to how many duplicates are worth merging."""
        return MERGE_ROWS if n_rows is None else n_rows

    def least_bytes(
        self, problem: Problem, n_rows: int, row_bytes: float, *, stays: bool
    ) -> float:
        return least_bytes(n_rows, problem.n_outputs, row_bytes, self.least_rows)

    def _new_state(self, problem: Problem, batch: TrainBatch, **own: Any) -> R:
        """Return a state of the loss's best constant; `own` are the fields of the solver."""
        exact, rows = build_exact(problem, batch)
        C, n = problem.n_outputs, len(batch.y)
        intercept = contract.first_constant(problem, batch)
        own = {"responses": np.zeros((C, n)), "intercept": intercept} | own
        digest = contract.batch_digest(problem, batch)
        state: R = self.state_class(
            exact=exact,
            digest=digest,
            rows=kernel_rows(problem, exact, rows),
            coef=np.zeros((n, C)),
            **own,
        )
        return state

    def _attach(self, problem: Problem, state: R, batch: TrainBatch) -> KernelRows:
        """Return the rows of the state, prepared if they come for the first time."""
        if state.rows is None:
            digest = contract.batch_digest(problem, batch)
            others = "'dsg' or 'norma'"
            contract.check_same_rows(self, state, digest, batch.n_rows, "the responses", others)
            rows = state.exact.prepare(batch.X, batch.rows)
            state.rows = kernel_rows(problem, state.exact, rows)
        return state.rows

    def path(
        self, problem: Problem, batch: TrainBatch, alphas: Sequence[float], X: Matrix,
        max_iter: int,
    ) -> tuple[Kernel, list[Float64Array]]:  # fmt: skip
        """Return the kernel, resolved, and f(X) (n, C) of the minimum for each of `alphas`.

        Each starts from the one before.
        """
        state = self.init(replace(problem, alpha=alphas[0]), batch)
        responses = []
        for alpha in alphas:
            problem = replace(problem, alpha=alpha)
            for _ in range(max_iter):
                if self.step(problem, state, batch).converged:
                    break
            responses.append(self.expansion(state).raw_prediction(X))
        return state.exact.kernel, responses


def support_update(
    state: KernelState, rows: ExactRows, change: Float64Array, scale: float = 1.0
) -> Update:
    """Return the update ``f <- scale f + sum_i k(x_i, .) change_i`` over `rows` x_i."""
    index = np.flatnonzero(change.any(axis=1))
    moved, exact = change[index], state.exact

    def update(tracked: ExactRows, responses: TrackedResponses) -> TrackedResponses:
        return {"x": scale * responses["x"] + exact.products(tracked, rows.take(index), moved)}

    return update


def matrix_bytes(n_rows: int, n_outputs: int, row_bytes: float, dtype: Any) -> float:
    """Return the bytes of a solver that holds the kernel matrix, rows in both forms too."""
    each = float(np.dtype(dtype).itemsize) * n_rows + 8.0 * _WORK_ARRAYS * n_outputs
    return each * n_rows + 2.0 * row_bytes + 2.0 * _WORK_BYTES


def least_bytes(n_rows: int, n_outputs: int, row_bytes: float, least_rows: int) -> float:
    """Return the least bytes that a solver which keeps all rows and responses can do with.

    Beside the rows as given it holds them prepared, in `row_bytes`, responses and their work
    arrays, tiles of few threads (16 MiB), and `least_rows` kernel rows.
    """
    each = 8.0 * _WORK_ARRAYS * n_outputs + 4.0 * min(least_rows, n_rows)
    return 16 * 2**20 + row_bytes + each * n_rows


def exact_kernel(problem: Problem, batch: TrainBatch) -> ExactKernel:
    scaling, kernel = contract.fit_scaling(problem, batch)
    # distances ask for a quantile of the rows, products for the largest of them
    every = max(1, len(batch.y) // 16_384) if kernel.is_stationary else 1
    exact = ExactKernel(
        kernel,
        scaling.width(problem.n_features_in),
        scaling,
        wide=kernel.needs_wide(scaling.apply(batch.X[::every])),
        precise=problem.posterior,
    )
    exact.device = problem.resources.device
    return exact


def build_exact(problem: Problem, batch: TrainBatch) -> tuple[ExactKernel, ExactRows]:
    exact = exact_kernel(problem, batch)
    return exact, exact.prepare(batch.X, batch.rows)


def kernel_rows(problem: Problem, exact: ExactKernel, rows: ExactRows) -> KernelRows:
    """Return the rows with a cache for what the memory limit leaves of them."""
    most = MOST_CACHE if problem.n_features_in >= DEAR_COLUMNS else CHEAP_CACHE
    # rows as given and as prepared; current and mean responses, coefficients, work arrays
    work = _WORK_BYTES + _WORK_ARRAYS * 8 * rows.n_rows * problem.n_outputs + 2 * rows.nbytes
    room = problem.resources.left(work, min(most, system_bytes() // CACHE_PART))
    return KernelRows(exact, rows, max(0, int(room)))


def check_alpha(name: str, alpha: float) -> None:
    """Raise where the penalty is 0: there are no dual function and no steps of its size."""
    if not alpha > 0.0:
        raise ValueError(
            f"solver {name!r} needs alpha > 0, got {alpha!r}; choose a small positive alpha "
            "such as 1 / n_samples."
        )


@njit(nogil=True, cache=True, fastmath={"contract", "nsz"})
def _add_tile(
    rows: FloatArray, slots: IntArray, coef: Float64Array, start: int, out: Float64Array
) -> None:
    C, width = out.shape
    for i in range(0, len(slots), 4):
        for c in range(C):
            f, part = out[c], coef[i : i + 4, c]
            if part.size == 4 and part.all():  # f is read and written once for four rows
                a0, a1, a2, a3 = part
                p, q = rows[slots[i], start:], rows[slots[i + 1], start:]
                r, s = rows[slots[i + 2], start:], rows[slots[i + 3], start:]
                for j in range(width):
                    f[j] += (a0 * p[j] + a1 * q[j]) + (a2 * r[j] + a3 * s[j])
                continue
            for k in range(part.size):
                a = part[k]
                if a != 0.0:
                    K = rows[slots[i + k], start:]
                    for j in range(width):
                        f[j] += a * K[j]


def add_rows(rows: FloatArray, slots: IntArray, coef: Float64Array, out: Float64Array) -> None:
    """Add ``sum_i coef_i rows[slots_i]`` to `out` (C, n) in float64; coef is (m, C).

    Sums in float64 do not drift: gaps stay true however many steps are taken.
    """

    def task(a: int, z: int) -> None:
        _add_tile(rows, slots, coef, a, out[:, a:z])

    over_tiles(out.shape[1], _ADD_TILE, task)
