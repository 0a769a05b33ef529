"""What all solvers over exact kernels share: rows, coefficients, responses, trackers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np

from kernelgrad._typing import AnyArray, Float64Array, FloatArray, Matrix
from kernelgrad._validation import CapabilityError, check_int
from kernelgrad.functions.exact import CACHE_BYTES, ExactKernel, KernelRows
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.functions.features import InputScaling
from kernelgrad.kernels import ExactRows, restore_kernel
from kernelgrad.solvers.base import (
    Problem,
    RecomputedTracker,
    Solver,
    State,
    StepInfo,
    Tracker,
    TrainBatch,
    batch_digest,
)

_WORK_BYTES = 32 * 2**20  # tiles of all threads and copies of arrays of n
_WORK_ARRAYS = 12  # float64 arrays of (n, C) that live at once
_RANGE_ROWS = 16_384  # about so many rows tell how far rows are from their centre
MERGE_ROWS = 8192  # duplicates are merged where there are no more rows than this


@dataclass(frozen=True)
class SupportUpdate:
    """How one step moved the functions w (current) and v (average) on all rows.

    ``w <- scale w + sum_i k(x_i, .) moved_i`` and
    ``v <- keep v + blend w_before + sum_i k(x_i, .) drift_i`` over the rows x_i of ``rows``.

    Attributes
    ----------
    rows : ExactRows
        The rows x_i.
    scale, keep, blend : float64 arrays (C,)
    moved, drift : float64 arrays (m, C)
    """

    rows: ExactRows
    scale: Float64Array
    moved: Float64Array
    keep: Float64Array
    blend: Float64Array
    drift: Float64Array


@dataclass(kw_only=True)
class RowsState(State):
    """State of a solver that keeps the responses of all training rows.

    Attributes
    ----------
    exact : ExactKernel
    digest : bytes
        Of the rows, which a continued fit must bring again.
    coef, average : float64 arrays (n, C)
        Coefficients of the current function and of the average of the iterates.
    responses : float64 array (C, n)
        The current function on the rows, without intercept, in the solver's sign convention.
    intercept : float64 array (C,)
    kernel_evaluations : int
    rows : KernelRows or None
        None after `release`, in pickles and in files, until the rows come again.
    """

    exact: ExactKernel
    digest: bytes
    coef: Float64Array
    responses: Float64Array
    intercept: Float64Array
    kernel_evaluations: int = 0
    rows: KernelRows | None = field(default=None, repr=False)

    def copy(self) -> Self:
        """Return a state with its own arrays; the rows are shared."""
        twin = replace(self)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(twin, name, value.copy())
        return twin

    def release(self) -> None:
        """Let go of the rows and their kernel values: the next step brings them again."""
        self.rows = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"rows": None}

    @property
    def prepared(self) -> ExactRows:
        """The training rows; only between a step and `release`."""
        assert self.rows is not None
        return self.rows.rows


R = TypeVar("R", bound=RowsState)


class RowsSolver(Solver[R], Generic[R]):
    """Base of the solvers on exact kernels that keep all rows and their responses."""

    streams = False
    max_support: int | None
    round_size: int | str

    def resolve_batch_size(self, n_rows: int | None) -> int:
        """Return all rows; None asks up to how many duplicates are worth merging."""
        return MERGE_ROWS if n_rows is None else n_rows

    def _check_common(self) -> None:
        if self.round_size != "auto":
            check_int(self.round_size, "round_size", low=1)
        if self.max_support is not None:
            check_int(self.max_support, "max_support", low=1)

    def _attach(self, problem: Problem, state: R, batch: TrainBatch) -> KernelRows:
        """Return the rows of the state, prepared if they come for the first time."""
        if state.rows is None:
            if batch_digest(problem, batch) != state.digest:
                raise CapabilityError(
                    f"solver {self.name!r} keeps the responses of all its training rows: it "
                    "can be continued with the same rows, targets, weights and loss only. Fit "
                    "again, or take a solver for streams such as 'dsg' or 'norma'."
                )
            rows = state.exact.prepare(batch.X, batch.rows)
            state.rows = kernel_rows(problem, state.exact, rows)
        return state.rows

    def track(self, state: R, X: Matrix) -> Tracker:
        """Return the responses of the rows of `X`, incremental unless support is limited."""
        if self.max_support is not None:
            return RecomputedTracker(self, state, X)
        return SupportTracker(self, state, state.exact.prepare(X))

    def functions(self, state: R) -> tuple[Float64Array, Float64Array]:
        """Return the coefficients of the current function and of the average, (n, C) each."""
        return state.coef, state.coef

    def output(self, state: R) -> tuple[Float64Array, Float64Array]:
        """Return (scale, intercept): the result is ``scale * average + intercept``."""
        return np.ones(len(state.intercept)), state.intercept

    def count_support(self, state: R) -> int:
        """Return the number of rows that the fitted function is a sum over."""
        n = int(np.count_nonzero(self.functions(state)[1].any(axis=1)))
        return n if self.max_support is None else min(n, self.max_support)

    def expansion(self, state: R) -> SupportExpansion:
        """Return the fitted function."""
        scale, intercept = self.output(state)
        coef = self.functions(state)[1] * scale
        e = SupportExpansion(state.exact, state.prepared, coef, intercept)
        return e if self.max_support is None else e.limited(self.max_support)

    def state_arrays(self, state: R) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Return counters, coefficients and responses; not the rows."""
        values: dict[str, Any] = {"exact": state.exact.describe(), "digest": state.digest.hex()}
        arrays: dict[str, AnyArray] = {
            f"scaling.{k}": a for k, a in state.exact.scaling.arrays().items()
        }
        for name, value in vars(state).items():
            if isinstance(value, np.ndarray):
                arrays[name] = value
            elif isinstance(value, int | float):
                values[name] = value
        return values, arrays

    def restore(
        self, problem: Problem, values: dict[str, Any], arrays: dict[str, AnyArray]
    ) -> R:
        """Return the state that :meth:`state_arrays` described."""
        described = values["exact"]
        scaling = {k: arrays.get(f"scaling.{k}") for k in ("centre", "scale")}
        exact = ExactKernel(
            restore_kernel(described["kernel"]),
            described["n_features_in"],
            InputScaling.from_arrays(scaling),
            wide=described["wide"],
        )
        own = {k: v for k, v in values.items() if k not in ("exact", "digest")}
        own |= {k: a for k, a in arrays.items() if not k.startswith("scaling.")}
        state: R = self._state_class(exact=exact, digest=bytes.fromhex(values["digest"]), **own)
        return state

    _state_class: Any


class SupportTracker(Tracker):
    """Responses of fixed rows: a step costs the kernel rows that it moved."""

    def __init__(self, solver: Any, state: Any, rows: ExactRows) -> None:
        self._solver, self._state, self._rows = solver, state, rows
        self._w: Float64Array | None = None
        self._v: Float64Array | None = None
        if state.rows is not None:
            self._predict()

    def _predict(self) -> None:
        state = self._state
        w, v = (np.zeros((self._rows.n_rows, len(state.intercept))) for _ in range(2))
        for coef, out in zip(self._solver.functions(state), (w, v), strict=True):
            used = np.flatnonzero(coef.any(axis=1))
            if len(used):
                some = state.prepared.take(used)
                state.exact.add_product(self._rows, some, coef[used], out)
        self._w, self._v = w, v

    def advance(self, info: StepInfo) -> None:
        """Apply one :class:`SupportUpdate`."""
        if self._w is None or self._v is None:  # the rows of a restored state came just now
            self._predict()
            return
        u: SupportUpdate = info.update
        C = len(u.scale)
        both = np.zeros((len(self._w), 2 * C))
        parts = np.concatenate([u.moved, u.drift], axis=1)
        self._state.exact.add_product(self._rows, u.rows, parts, both)
        self._v = u.keep * self._v + u.blend * self._w + both[:, C:]
        self._w = u.scale * self._w + both[:, :C]

    def raw_prediction(self) -> FloatArray:
        """Return the responses of the result."""
        assert self._v is not None
        scale, intercept = self._solver.output(self._state)
        f: FloatArray = scale * self._v + intercept
        return f


def describe_with_rows(
    state: State, exact: ExactKernel, rows: ExactRows
) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """Return the numbers and arrays of a state, and its support rows, for files."""
    own: dict[str, Any] = {}
    arrays: dict[str, AnyArray] = {}
    for name, value in vars(state).items():
        if isinstance(value, np.ndarray):
            arrays[f"state.{name}"] = value
        elif isinstance(value, int | float):
            own[name] = value
    ones = np.ones((rows.n_rows, 1))
    values, kept = SupportExpansion(exact, rows, ones, np.zeros(1)).describe()
    return {"state": own, "support": values}, kept | arrays


def restore_with_rows(
    problem: Problem, values: dict[str, Any], arrays: dict[str, AnyArray]
) -> tuple[SupportExpansion, dict[str, Any]]:
    """Return the support and the fields of a state that :func:`describe_with_rows` wrote."""
    support = SupportExpansion.restore(values["support"], arrays, problem.cache_bytes)
    own: dict[str, Any] = {
        k.removeprefix("state."): a.copy()  # steps write in place
        for k, a in arrays.items()
        if k.startswith("state.")
    }
    return support, values["state"] | own


def build_exact(problem: Problem, batch: TrainBatch) -> tuple[ExactKernel, ExactRows]:
    """Resolve the kernel on the rows; return its exact form and the rows prepared for it."""
    kernel = problem.kernel
    scaling = InputScaling.fit(
        batch.X, kernel, standardize=problem.standardize, sample_weight=batch.sample_weight
    )
    unshifted = InputScaling(None, scaling.scale)  # rules see rows as the user gave them
    kernel = kernel.resolve(unshifted.apply(batch.X), problem.seed)
    # distances ask for a quantile of the rows, products for the largest of them
    every = max(1, batch.n_rows // _RANGE_ROWS) if kernel.is_stationary else 1
    wide = kernel.needs_wide(scaling.apply(batch.X[::every]))
    exact = ExactKernel(kernel, problem.n_features_in, scaling, wide=wide)
    return exact, exact.prepare(batch.X, batch.rows)


def kernel_rows(problem: Problem, exact: ExactKernel, rows: ExactRows) -> KernelRows:
    """Return the rows with a cache for what the memory limit leaves of them."""
    budget = CACHE_BYTES
    if problem.memory_limit is not None:
        # rows as given and as prepared; current and mean responses, coefficients, work arrays
        fixed = (
            _WORK_BYTES + 2 * rows.nbytes + _WORK_ARRAYS * 8 * rows.n_rows * problem.n_outputs
        )
        budget = max(0, problem.memory_limit - fixed)
    return KernelRows(exact, rows, budget)


def round_rows(round_size: int | str, n: int) -> int:
    """Return the rows drawn in one step: by default forty steps draw as many as there are."""
    return int(round_size) if round_size != "auto" else max(1, -(-n // 40))
