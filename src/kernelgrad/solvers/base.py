"""The contract of a solver, and the one loop around all of them."""

from __future__ import annotations

import copy
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from kernelgrad._params import check_params
from kernelgrad._typing import AnyArray, Float64Array, FloatArray, IntArray, Matrix
from kernelgrad._validation import CapabilityError
from kernelgrad.callbacks import CallbackList, FitEvent
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.functions.expansions import Expansion
from kernelgrad.kernels import Kernel
from kernelgrad.losses import Loss

STATUSES = ("converged", "max_iter", "stopped", "interrupted")


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
        Of the random features and of the batches.
    fit_intercept : bool
        Start from the loss's best constant, estimated on the first batch, unpenalised.
    standardize : bool
        Divide columns by their standard deviation on the first batch.
    cache_bytes : int
        Budget for frequencies kept between predictions.
    memory_limit : int or None
        Bytes that rows, responses and kept kernel rows of an exact kernel may take together;
        None is 1 GiB of kernel rows.
    fixed_rows : bool
        Every batch holds the same rows: a solver may keep their responses between steps.
    n_rows, max_iter : int or None
        Rows of the training data and iterations that the fit may take, where they are known.
    kind_weights : (float, float) or None
        Sums of the weights of labelled and of unlabelled rows, where there are both.
    keep_coefficients : bool
        False, with `fixed_rows`, when only responses are wanted: trackers then work, the
        expansion does not.
    """

    loss: Loss
    kernel: Kernel
    alpha: float
    n_outputs: int
    n_features_in: int
    seed: int
    fit_intercept: bool = True
    standardize: bool = False
    cache_bytes: int = 64 * 2**20
    memory_limit: int | None = None
    fixed_rows: bool = False
    keep_coefficients: bool = True
    n_rows: int | None = None
    max_iter: int | None = None
    kind_weights: tuple[float, float] | None = None


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
        """Number of rows."""
        return len(self.y)


@dataclass(kw_only=True)
class State:
    """What a solver carries from one step to the next; solvers extend it."""

    iteration: int = 0
    rows_seen: int = 0

    def copy(self) -> Self:
        """Return an independent copy."""
        return copy.deepcopy(self)

    def release(self) -> None:
        """Let go of what the next step can make again."""


@dataclass(frozen=True)
class StepInfo:
    """What one step tells the loop; `update` is for the solver's own tracker.

    ``n_features_saved`` counts the features that steps on old blocks did not add;
    ``n_support`` and ``kernel_evaluations`` are of solvers on exact kernels, the latter counted
    from the start of the fit. ``epoch`` replaces the loop's count of passes. ``objective`` is
    that of the problem on all rows and ``duality_gap`` bounds how far it is from its minimum,
    where the solver knows them; ``converged`` ends the fit.
    """

    train_loss: float
    step_size: float
    n_random_features: int
    n_features_saved: int = 0
    update: Any = None
    n_support: int = 0
    kernel_evaluations: int = 0
    epoch: float | None = None
    objective: float | None = None
    duality_gap: float | None = None
    converged: bool = False


class Tracker(ABC):
    """Responses of fixed rows, kept up to date without predicting from scratch."""

    @abstractmethod
    def advance(self, info: StepInfo) -> None:
        """Apply one step."""

    @abstractmethod
    def raw_prediction(self) -> FloatArray:
        """Return f on the fixed rows, (n, C), of the function the solver would return."""


S = TypeVar("S", bound=State)


class Solver(BaseEstimator, ABC, Generic[S]):  # type: ignore[misc]
    """One algorithm as `init` and `step` on an explicit state.

    ``requires`` names what the loss, kernel and data must offer; a mismatch raises before
    any work (see :func:`check_capabilities`).
    """

    name: ClassVar[str]
    requires: ClassVar[frozenset[str]] = frozenset({"gradient"})
    streams: ClassVar[bool] = True  # whether a batch may bring rows that were not there before

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        check_params(self)

    def check_problem(self, problem: Problem) -> None:
        """Raise if this solver cannot solve `problem`, before any row is read."""

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

    @abstractmethod
    def track(self, state: S, X: Matrix) -> Tracker:
        """Return a tracker of the fitted function on the rows of `X`."""

    @abstractmethod
    def state_arrays(self, state: S) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Return the state as plain values and arrays, for files."""

    @abstractmethod
    def restore(
        self, problem: Problem, values: dict[str, Any], arrays: dict[str, AnyArray]
    ) -> S:
        """Return the state that :meth:`state_arrays` described."""


def check_capabilities(solver: Solver[Any], loss: Loss, kernel: Kernel) -> None:
    """Raise CapabilityError when `solver` needs what `loss` or `kernel` does not offer."""
    offered = {"gradient", "exact_kernel"}
    if kernel.has_random_features:
        offered.add("random_features")
    if loss.smoothness is not None:
        offered.add("smooth_loss")
    if not loss.adaptive_intercept:
        offered.add("fixed_intercept")
    offered.add(f"{loss.name}_loss")
    missing = sorted(solver.requires - offered)
    if missing:
        raise CapabilityError(
            f"solver {solver.name!r} needs {', '.join(missing)}, which loss {loss.name!r} with "
            f"kernel {kernel.name!r} does not offer; choose another solver, loss or kernel."
        )


@dataclass
class Validation:
    """Held-out rows and the score that selects the best iterate (greater is better).

    Ties of the score go to the smaller ``loss``, which also counts as progress: accuracy on
    few or unbalanced rows stands still long before the function does. ``start`` is a function
    fitted before, the one to beat.
    """

    X: Matrix
    score: Callable[[FloatArray], float]
    name: str
    patience: int
    tol: float
    early_stopping: bool = True
    loss: Callable[[FloatArray], float] | None = None
    start: Expansion | None = None

    def rank(self, raw: FloatArray) -> tuple[float, float]:
        """Return (score, negative loss); undefined scores rank last."""
        score = self.score(raw)
        loss = 0.0 if self.loss is None else self.loss(raw)
        return (score if np.isfinite(score) else -np.inf, -loss)


HISTORY_KEYS = (
    "iteration", "epoch", "seconds", "rows_seen", "n_random_features", "n_features_saved",
    "n_support", "kernel_evaluations", "step_size", "train_loss", "objective",
    "duality_gap", "validation_score",
)  # fmt: skip


@dataclass
class FitResult:
    """What the loop returns."""

    state: State
    expansion: Expansion
    status: str
    history: dict[str, Any] = field(default_factory=dict)
    best_iteration: int = 0
    best_score: float | None = None


def new_history(score_name: str | None) -> dict[str, Any]:
    """Return an empty history."""
    history: dict[str, Any] = {key: [] for key in HISTORY_KEYS}
    history["score_name"] = score_name
    return history


@contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C wait for the end of a step, so that no update is half done.

    Yields a function that tells whether an interrupt is pending; a second one is raised at
    once. Only the main thread gets signals, and only Python's own handler is replaced.
    """
    pending = False

    def defer(number: int, frame: Any) -> None:
        nonlocal pending
        if pending:
            raise KeyboardInterrupt
        pending = True

    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, defer)
    try:
        yield lambda: pending
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def run(
    solver: Solver[Any],
    problem: Problem,
    batches: Iterator[tuple[TrainBatch, float]],
    *,
    max_iter: int,
    state: State | None = None,
    validation: Validation | None = None,
    callbacks: CallbackList | None = None,
    on_iteration: Callable[[FitEvent, State], bool] | None = None,
    history: dict[str, Any] | None = None,
) -> FitResult:
    """Run `solver` over (batch, epochs done) pairs until `max_iter` more steps are done.

    The loop records the history, keeps the best iterate by the validation score, stops when
    the score has not improved by ``tol`` for ``patience`` steps, and lets callbacks stop it.
    Ctrl-C stops it too: the model fitted so far is kept and the status says so; before the
    first finished step the interrupt is raised as usual.
    """
    callbacks = callbacks if callbacks is not None else CallbackList([])
    if history is None:
        history = new_history(validation.name if validation else None)
    offset = history["seconds"][-1] if history["seconds"] else 0.0
    status = "max_iter"
    tracker: Tracker | None = None
    best: Expansion | None = None
    best_rank, best_iteration, stale = (-np.inf, -np.inf), 0, 0
    patience_score, patience_loss = -np.inf, np.inf
    if validation is not None and validation.start is not None and state is not None:
        best = validation.start
        best_rank = validation.rank(best.raw_prediction(validation.X))
        best_iteration = state.iteration
    done, whole = 0, True
    rows_before = 0 if state is None else state.rows_seen
    start = time.perf_counter()
    callbacks.on_begin(solver)
    try:
        with single_threaded_blas(), _deferred_interrupt() as interrupted:
            while done < max_iter:
                item = next(batches, None)
                if item is None:
                    break
                batch, epoch = item
                if state is None:
                    state = solver.init(problem, batch)
                if validation is not None and tracker is None:
                    tracker = solver.track(state, validation.X)
                whole = False
                info = solver.step(problem, state, batch)
                whole = True
                done += 1
                score: float | None = None
                if tracker is not None and validation is not None:
                    tracker.advance(info)
                    rank = validation.rank(tracker.raw_prediction())
                    score = rank[0]
                    if best is None or rank > best_rank:
                        best_rank, best_iteration = rank, state.iteration
                        best = solver.expansion(state).copy()
                    stale += 1
                    if score > patience_score + validation.tol:
                        patience_score, stale = score, 0
                    loss = -rank[1]
                    first = np.isinf(patience_loss)
                    if first or loss < patience_loss - validation.tol * abs(patience_loss):
                        patience_loss, stale = loss, 0
                seconds = time.perf_counter() - start
                event = FitEvent(
                    iteration=state.iteration,
                    max_iter=state.iteration + max_iter - done,
                    epoch=epoch if info.epoch is None else info.epoch,
                    rows_seen=state.rows_seen,
                    seconds=offset + seconds,
                    n_random_features=info.n_random_features,
                    train_loss=info.train_loss,
                    validation_score=score,
                    score_name=validation.name if validation else None,
                    rows_per_second=(state.rows_seen - rows_before) / max(seconds, 1e-9),
                )
                for key in HISTORY_KEYS:
                    value = getattr(event, key) if hasattr(event, key) else getattr(info, key)
                    history[key].append(value)
                stop = callbacks.on_iteration(event)
                if on_iteration is not None:
                    stop = on_iteration(event, state) or stop
                if stop:
                    status = "stopped"
                    break
                stalled = validation is not None and stale >= validation.patience
                early = validation is not None and validation.early_stopping
                if info.converged or (early and stalled):
                    status = "converged"
                    break
                if interrupted():
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        status = "interrupted"
        if done == 0 or state is None or not whole:  # no half of a step is ever kept
            raise
    except BaseException:
        status = "error"
        raise
    finally:
        callbacks.on_end(status)
    if state is None:
        raise ValueError("There was no batch to learn from.")
    with single_threaded_blas():
        audit = solver.finish(problem, state, batch)
    if audit is not None:
        history["audit"] = audit
        history["objective"][-1] = audit["objective"]
    return FitResult(
        state=state,
        expansion=best if best is not None else solver.expansion(state),
        status=status,
        history=history,
        best_iteration=best_iteration if best is not None else state.iteration,
        best_score=float(best_rank[0]) if best is not None else None,
    )
