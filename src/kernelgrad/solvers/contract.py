"""The contract of a solver: problem, state, steps."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import NoneType
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import scipy.sparse as sp

from kernelgrad.callbacks import FOREVER, SILENT, Deadline, Progress
from kernelgrad.compute.backend import CPU
from kernelgrad.compute.memory import available_bytes, system_bytes
from kernelgrad.compute.threads import parallel_map
from kernelgrad.exceptions import CapabilityError
from kernelgrad.files.records import Check, Record, anything, check_number, check_text, or_none
from kernelgrad.functions.expansions import Expansion
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import Kernel
from kernelgrad.losses import Loss, scalar
from kernelgrad.params import Part
from kernelgrad.solvers.trackers import RecomputedTracker, Tracker, Update
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray, Matrix
from kernelgrad.validation import check_bool, check_int, check_real

_DIGEST_BYTES = 16 * 2**20
_TRANSIENT, _ARRAY = "transient", "array"  # keys of a field's metadata


@dataclass(frozen=True)
class Resources:
    """What a fit may use: memory, time and a device.

    Attributes
    ----------
    memory_limit : int or None
        Bytes that rows, responses and kept kernel rows of an exact kernel may take together;
        None means 1 GiB of kernel rows, from 256 columns on 4 GiB, and at most a sixth of the
        system's memory.
    copied_bytes : float
        Bytes of the limit that rows take which the fit has read, made or copied.
    cache_bytes : int
        Bytes for frequencies kept between predictions.
    deadline : Deadline
        When the fit must end. Long steps may check it, and either end with what they have or
        raise :class:`~kernelgrad.callbacks.TimeIsUp` while the state is as it was before.
    progress : Progress
        ``progress(done, total)`` reports the progress of a long step to the callbacks.
    device : str
        Where kernel values and features are computed, a name for `kernelgrad.compute.backend`.
    """

    memory_limit: int | None = None
    copied_bytes: float = 0.0
    cache_bytes: int = 64 * 2**20
    deadline: Deadline = field(default=FOREVER, compare=False, repr=False)
    progress: Progress = field(default=SILENT, compare=False, repr=False)
    device: str = CPU

    def limit(self, default: float) -> float:
        """Return the memory limit in bytes, `default` where there is none."""
        return default if self.memory_limit is None else self.memory_limit

    def left(self, taken: float, default: float) -> float:
        """Return what the limit leaves beside `taken` and copied rows, or `default`."""
        own = self.memory_limit
        return default if own is None else own - taken - self.copied_bytes

    @cached_property
    def usable(self) -> float:
        """The memory limit in bytes; half of the system's memory, or 4 GiB, without one."""
        return 0.5 * system_bytes() if self.memory_limit is None else self.memory_limit

    def check(
        self, subject: str, needed: float, remedy: str, *, most: float = np.inf,
        bound: float = 0.0,
    ) -> None:  # fmt: skip
        """Raise CapabilityError if the `needed` bytes are more than the memory limit.

        Without a limit there are `most`, and no more than are free. One below `bound` is none.
        """
        own = self.memory_limit
        limit = min(most, available_bytes()) if own is None else own
        if needed <= limit or limit < bound:
            return
        room = f"memory_limit={limit:.3g}; raise it, or"
        if self.memory_limit is None:
            room = f"the {limit:.3g} that are free;"
            if limit == most:
                room = f"memory_limit (by default {most / 2**30:g} GiB); raise it, or"
        raise CapabilityError(
            f"{subject} needs at least {needed:.3g} bytes, more than {room} {remedy}."
        )


@dataclass(frozen=True)
class Problem:
    """``min_f mean_i w_i loss(y_i, f(x_i)) + alpha/2 ||f||^2`` and how it may be solved.

    Attributes
    ----------
    loss, kernel : Loss, Kernel
        The kernel may still hold a rule for its bandwidth; a solver resolves it on the
        first batch.
    alpha : float
    n_outputs, n_features_in : int
    seed : int in [0, 2^63)
        The seed of the random features and of the batches.
    fit_intercept : bool
        Start from the loss's best constant, estimated on the first batch, unpenalised.
    standardize : bool, "robust", "ranks" or "units"
        Divide columns by their standard deviation on the first batch, or as
        :class:`~kernelgrad.functions.InputScaling` says.
    metric : float64 array (d,) or (d, r), or None
        Weights of scaled columns, or a matrix for them.
    scaling : InputScaling or None
        The scaling of the rows, including the metric, if known before the first batch.
    fixed_rows : bool
        Whether every batch holds the same rows, so that a solver may keep their responses.
    n_rows, max_iter : int or None
        Training rows and iterations of the fit; None where they are not fixed.
    posterior : bool
        Whether a posterior is wanted too: an exact solution then takes kernel values in float64
        and keeps its factorisation.
    kind_weights : (float, float)
        Sums of the weights of labelled and of unlabelled rows before they were made equal.
    resources : Resources
        Memory, time and device of the fit.
    """

    loss: Loss
    kernel: Kernel
    alpha: float
    n_outputs: int
    n_features_in: int
    seed: int
    fit_intercept: bool = True
    standardize: bool | str = False
    metric: Float64Array | None = None
    scaling: InputScaling | None = None
    fixed_rows: bool = False
    n_rows: int | None = None
    max_iter: int | None = None
    posterior: bool = False
    kind_weights: tuple[float, float] = 1.0, 1.0
    resources: Resources = field(default=Resources(), repr=False)


@dataclass(frozen=True)
class TrainBatch:
    """Rows ready for a solver: X as stored, targets encoded as (n, C) float32, weights.

    ``rows`` are the numbers of the rows in their source, where these mean the same row in
    every batch; None on a stream.
    """

    X: Matrix
    y: FloatArray
    sample_weight: Float64Array
    rows: IntArray | None = None

    @property
    def n_rows(self) -> int:
        return len(self.y)


class RowStore(ABC):
    """All training rows of a fit, read a piece at a time, which some solvers take for a batch.

    Rows that do not count have weight 0.

    Attributes
    ----------
    n_rows, n_features : int
    row_bytes : float
        Approximate bytes of a row as it is read.
    team : callable or None
        Where rows are held elsewhere, returns who works on their pieces; see
        :class:`~kernelgrad.solvers.block_descent.shards.Team`.
    """

    n_rows: int
    n_features: int
    row_bytes: float
    team: Callable[..., Any] | None = None

    @abstractmethod
    def read(self, start: int, stop: int) -> TrainBatch:
        """Return rows `start` (included) to `stop` (excluded)."""

    @abstractmethod
    def take(self, rows: IntArray) -> TrainBatch:
        """Return some rows, in this order."""


def fit_scaling(problem: Problem, batch: TrainBatch) -> tuple[InputScaling, Kernel]:
    """Return scaling and kernel with numbers for its parameters, from the first batch."""
    scaling, kernel = problem.scaling, problem.kernel
    if scaling is None:
        scaling = InputScaling.fit(
            batch.X, kernel, standardize=problem.standardize, sample_weight=batch.sample_weight,
            metric=problem.metric,
        )  # fmt: skip
    # rules see rows that are not shifted unless they are scaled: "scale" is scikit-learn's, of
    # rows as they are or of standardized ones
    plain = scaling.scale is None and scaling.knots is None
    seen = dataclasses.replace(scaling, centre=None) if plain else scaling
    X = seen.apply(batch.X)
    rule = getattr(kernel, "gamma", None)
    if sp.issparse(X) and not plain and kernel.is_stationary and rule == "scale":
        # CSR rows are not shifted: two rows with the variances of what dense ones would be
        mean, p = np.asarray(X.mean(axis=0)).ravel(), batch.sample_weight
        square = np.asarray(X.multiply(X).mean(axis=0)).ravel()
        deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
        shift = mean - np.asarray((p / p.sum()) @ X).ravel()
        X = np.array([shift + deviation, shift - deviation])
    return scaling, kernel.resolve(X, problem.seed)


def first_constant(problem: Problem, batch: TrainBatch) -> Float64Array:
    """Return the constant (C,) that a fit starts from: the loss's best one on a batch, or 0."""
    if not problem.fit_intercept:
        return np.zeros(problem.n_outputs)
    return np.asarray(problem.loss.intercept(batch.y, batch.sample_weight), np.float64)


@dataclass(frozen=True)
class _Array:
    """The form of an array in files; see :func:`sized`."""

    shape: tuple[str | int, ...]
    into: str
    empty: bool
    limits: dict[str, Any]

    def take(self, record: Record, name: str) -> AnyArray:
        empty = self.empty and not record.arrays[name].size
        shape = record.arrays[name].shape if empty else self.shape
        array: AnyArray = record.array(name, *shape, **self.limits)
        into = self.into
        if into and array.size and not -1 <= array.min() <= array.max() < record.sizes[into]:
            raise record.error(f"holds indices in {name!r} that are out of range")
        return array


def transient(*, default_factory: Callable[[], Any] = NoneType, released: bool = True) -> Any:
    """Return a field of a :class:`State` that the next step can compute again from the rows.

    It is None at first unless there is a `default_factory`, and not part of files or pickles.
    `State.release` drops it unless `released` is False.
    """
    return field(default_factory=default_factory, repr=False, metadata={_TRANSIENT: released})


def sized(
    *shape: str | int, into: str = "", later: bool = False, empty: bool = False, **limits: Any
) -> Any:
    """Return a field of a :class:`State` for an array, whose shape files must keep.

    Axes have a length or its name: "C" outputs, "d" columns, "n" training rows, or one that
    arrays of the state share. Indices are from -1 to below the length of the axis `into`. The
    other `limits` of the numbers are those of :meth:`Record.array`: with ``finite=False``,
    infinity or NaN stands for a number that a later step computes. Arrays that are made `later`
    are empty until then, and those that may be `empty` also in files.
    """
    metadata = {_ARRAY: _Array(shape, into, empty, limits)}
    if later or empty:
        return field(metadata=metadata, default_factory=partial(np.zeros, (0,) * len(shape)))
    return field(metadata=metadata)


@dataclass(kw_only=True)
class State:
    """The state that a solver carries from one step to the next; solvers extend it.

    The fields say how a state is copied, pickled and written: arrays and plain values (bool,
    int, float, str, bytes) are copied and written by their names, arrays as :func:`sized` says;
    :func:`transient` fields are neither written nor pickled. Any other object is copied by its
    own ``copy``, shared if it has none, and written by :meth:`describe_parts`.
    """

    iteration: int = 0
    rows_seen: int = 0

    # Key of the plain values in files, and prefix of the arrays; "" puts them beside the parts
    nest: ClassVar[str] = ""

    @classmethod
    def _transient(cls) -> dict[str, tuple[Any, bool]]:
        """Return the default of each transient field, and whether `release` sets it."""
        defaults = {}
        for each in dataclasses.fields(cls):
            if _TRANSIENT in each.metadata:
                make: Any = each.default_factory
                defaults[each.name] = make(), each.metadata[_TRANSIENT]
        return defaults

    def copy(self) -> Self:
        """Return a state with its own arrays; what comes from the rows is shared."""
        own: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, list) and name not in self._transient():
                own[name] = copy.deepcopy(value)
            elif hasattr(value, "copy"):
                own[name] = value.copy()
        return dataclasses.replace(self, **own)

    def release(self, *, brief: bool = False) -> None:
        """Drop the fields that the next step can compute again, bit for bit.

        `brief` allows to drop more, which the next step computes again but for rounding.
        """
        for name, (default, released) in self._transient().items():
            if released:
                setattr(self, name, default)

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {name: value for name, (value, _) in self._transient().items()}

    def describe_parts(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Return values and arrays of the fields that are neither plain nor arrays."""
        return {}, {}

    @classmethod
    def restore_parts(cls, problem: Problem, record: Record) -> dict[str, Any]:
        """Return the fields that :meth:`describe_parts` described."""
        return {}

    def fits(self, n: int) -> bool:
        """Return whether the arrays of all training rows have `n` rows."""
        for each in dataclasses.fields(self):
            if _ARRAY in each.metadata and np.size(a := getattr(self, each.name)):
                axes = zip(each.metadata[_ARRAY].shape, np.shape(a), strict=False)
                if any(name == "n" and size != n for name, size in axes):
                    return False
        return True

    def describe(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Return the state as plain values and arrays, for files."""
        values, arrays = self.describe_parts()
        own: dict[str, Any] = {}
        prefix = f"{self.nest}." if self.nest else ""
        for name, value in vars(self).items():
            if name in self._transient():
                continue
            if isinstance(value, np.ndarray):
                arrays[prefix + name] = value
            elif isinstance(value, bytes):
                own[name] = value.hex()
            elif isinstance(value, bool | int | float | str):
                own[name] = value
        return values | ({self.nest: own} if self.nest else own), arrays

    @classmethod
    def restore(cls, problem: Problem, record: Record) -> Self:
        """Return the state that :meth:`describe` described."""
        parts = cls.restore_parts(problem, record)
        own = record.part(cls.nest) if cls.nest else record
        parts |= restored_fields(cls, own, parts)
        own.close()
        return cls(**parts)


def restored_fields(
    cls: type[Any], record: Record, without: Iterable[str] = ()
) -> dict[str, Any]:
    """Take the fields of a class that a record has, except those in `without`."""
    fields: dict[str, Any] = {}
    for each in dataclasses.fields(cls):
        name, form = each.name, each.metadata.get(_ARRAY)
        if name in without or _TRANSIENT in each.metadata:
            continue
        if name in record.arrays:
            if form is None:
                form = _Array(record.arrays[name].shape, "", True, {"kinds": "biuf"})
            array = form.take(record, name)  # copied, since steps write in place
            fields[name] = np.array(array, _DTYPES.get(str(each.type)))
        elif form is not None and not form.empty:
            raise record.error(f"lacks the array {name!r}")
        elif name in record.values:
            value = record.take(name, _plain(each))
            if value is None:  # infinity in files of 0.1.0
                value = np.inf
            elif each.type in ("bytes", bytes):
                value = bytes.fromhex(value)
            elif each.type in ("float", float):
                value = float(value)  # files may hold a whole number
            fields[name] = value
    return fields


def _plain(each: dataclasses.Field[Any]) -> Check:
    """Return the check of a plain value: what is below zero or not finite is so at first."""
    kind, first = str(each.type), each.default
    if kind == "int":
        low = 0 if first is dataclasses.MISSING else min(0, first)
        return partial(check_int, low=low, high=2**62)
    if kind == "float" and first is dataclasses.MISSING:  # a penalty, a weight
        return partial(check_real, low=0.0)
    if isinstance(first, float) and not np.isfinite(first):
        return or_none(check_number)  # None in files of 0.1.0
    return _PLAIN.get(kind, anything)


_DTYPES = {"Float64Array": np.float64, "IntArray": np.int64}
_PLAIN: dict[str, Check] = {
    "bool": check_bool,
    "float": check_real,
    "bytes": check_text,
    "str": check_text,
}


@dataclass(frozen=True)
class StepInfo:
    """The report of a step to the loop.

    ``update(rows, responses)`` returns the responses of prepared rows after the step, of those
    before it, for :class:`UpdatedTracker`. ``n_features_saved`` counts the features that steps
    on old blocks did not add; ``n_support`` and ``kernel_evaluations`` are of solvers on exact
    kernels, the latter counted from the start of the fit. ``epoch`` replaces the loop's count
    of passes. ``objective`` is that of the problem on all rows and ``duality_gap`` bounds how
    far it is from its minimum, where the solver knows them; ``converged`` ends the fit.
    """

    train_loss: float
    step_size: float
    n_random_features: int = 0
    n_features_saved: int = 0
    update: Update | None = None
    n_support: int = 0
    kernel_evaluations: int = 0
    epoch: float | None = None
    objective: float | None = None
    duality_gap: float | None = None
    converged: bool = False


S = TypeVar("S", bound=State)


class Solver(Part, ABC, Generic[S]):
    """One algorithm as `init` and `step` on an explicit state.

    ``requires`` names what the loss, kernel and data must offer; a mismatch raises before
    any work (see :func:`check_capabilities`).
    """

    name: ClassVar[str]
    requires: ClassVar[frozenset[str]] = frozenset({"gradient"})
    state_class: ClassVar[type[Any]] = State
    streams: ClassVar[bool] = True  # whether a batch may bring rows that were not there before
    part: ClassVar[str] = "solver"  # how model files call it
    marks: ClassVar[bool] = False  # whether it is for rows of which some have no label
    counts_all_rows: ClassVar[bool] = False  # whether rows without a target count, too
    takes_stores: ClassVar[bool] = False  # whether a batch may be a RowStore
    removed: ClassVar[frozenset[str]] = frozenset()  # parameters that only old files have
    # remedy where memory is short
    instead: ClassVar[str] = "take a solver that reads in batches ('dsg', 'tsg', linear 'sgd')"

    @classmethod
    def restored(cls, **params: Any) -> Self:
        """Return the solver of a model file, which may be of an earlier version."""
        removed = {name for c in cls.__mro__ for name in getattr(c, "removed", ())}
        return cls(**{name: value for name, value in params.items() if name not in removed})

    def check_problem(self, problem: Problem) -> None:
        """Raise if this solver cannot solve `problem`, before any row is read."""

    def least_bytes(
        self, problem: Problem, n_rows: int, row_bytes: float, *, stays: bool
    ) -> float:
        """Return a lower bound on the memory of a fit in bytes, as far as known beforehand.

        `row_bytes` is the size of the prepared rows. The given rows are held too, unless the
        rows stay (`stays`) where they are.
        """
        return 0.0

    def check_device(self, device: str, kernel: Kernel) -> None:
        """Raise CapabilityError if this solver, with this kernel, does not run on `device`."""
        if device != CPU:
            raise CapabilityError(
                f"solver {self.name!r} runs on the CPU only; with device={device!r} take "
                "'block_descent' or one of 'dsg', 'udsg', 'cdsg', or leave device='cpu'."
            )

    @abstractmethod
    def resolve_batch_size(self, n_rows: int | None) -> int:
        """Return the rows per step for a source of `n_rows` (None when unknown)."""

    @abstractmethod
    def init(self, problem: Problem, batch: TrainBatch) -> S:
        """Return the state before the first step; `batch` is the one that step will see."""

    @abstractmethod
    def step(self, problem: Problem, state: S, batch: TrainBatch) -> StepInfo:
        """Advance `state` by one iteration on `batch`."""

    def finish(self, problem: Problem, state: S, batch: TrainBatch) -> dict[str, Any] | None:
        """Return what a last look at the result found, for the history; None without one."""
        return None

    @abstractmethod
    def expansion(self, state: S) -> Expansion:
        """Return the current fitted function."""

    def track(self, state: S, X: Matrix) -> Tracker:
        """Return a tracker of the fitted function on the rows of `X`."""
        return RecomputedTracker(self, state, X)

    def restore(
        self, problem: Problem, values: dict[str, Any], arrays: dict[str, AnyArray]
    ) -> S:
        """Return the state that its `describe` described."""
        sizes = {"C": problem.n_outputs, "d": problem.n_features_in}
        record = Record(values, arrays, f"state of solver {self.name!r}", sizes)
        state: S = self.state_class.restore(problem, record)
        record.close()
        return state


def check_same_rows(
    solver: Solver[Any], state: Any, digest: bytes, n_rows: int, what: str, others: str
) -> None:
    """Raise CapabilityError unless rows with a digest are those that a state was made of."""
    if digest != state.digest or not state.fits(n_rows):
        raise CapabilityError(
            f"solver {solver.name!r} keeps {what} of all its training rows: it can be "
            "continued with the same rows, targets, weights and loss only. Fit again, or take "
            f"a solver for streams such as {others}."
        )


def check_capabilities(solver: Solver[Any], loss: Loss, kernel: Kernel) -> None:
    """Raise CapabilityError when `solver` needs what `loss` or `kernel` does not offer."""
    offered = {
        "gradient": True,
        "exact_kernel": True,
        "random_features": kernel.has_random_features,
        "smooth_loss": loss.is_smooth,
        "fixed_intercept": not loss.adaptive_intercept,
        f"{loss.name}_loss": True,
        "squared_loss": loss.code == scalar.SQUARED,
    }
    missing = sorted(name for name in solver.requires if not offered.get(name))
    if missing:
        raise CapabilityError(
            f"solver {solver.name!r} needs {', '.join(missing)}, which loss {loss.name!r} with "
            f"kernel {kernel.name!r} does not offer; choose another solver, loss or kernel."
        )


def check_solvable(solver: Solver[Any], problem: Problem) -> None:
    """Raise unless a solver can solve a problem, before any row is read."""
    check_capabilities(solver, problem.loss, problem.kernel)
    solver.check_device(problem.resources.device, problem.kernel)
    solver.check_problem(problem)


def _digest(values: AnyArray) -> bytes:
    return hashlib.blake2b(values.data, digest_size=16).digest()


def rows_digest(X: Matrix) -> bytes:
    """Return a digest of the values, the shape and the kind of rows."""
    digest = hashlib.blake2b(f"{X.shape} {X.dtype} {type(X).__name__}".encode(), digest_size=16)
    for part in (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,):
        flat = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
        if 0 < flat.size <= _DIGEST_BYTES:
            digest.update(hashlib.blake2b(flat.data, digest_size=16).digest())
            continue
        pieces = [flat[i : i + _DIGEST_BYTES] for i in range(0, flat.size, _DIGEST_BYTES)]
        digest.update(b"".join(parallel_map(_digest, pieces)))
    return digest.digest()


def batch_digest(problem: Problem, batch: TrainBatch) -> bytes:
    """Return a digest of rows, targets, weights and loss."""
    loss = np.frombuffer(repr(problem.loss).encode(), np.uint8)
    parts = (batch.X, batch.y, batch.sample_weight, loss)
    return b"".join(map(rows_digest, parts))
