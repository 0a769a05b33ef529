"""The one loop around all solvers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelgrad._typing import FloatArray, Matrix
from kernelgrad.callbacks import CallbackList, FitEvent, Progress, TimeIsUp
from kernelgrad.compute.compiling import clock
from kernelgrad.compute.memory import resident_bytes
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.functions.expansions import Expansion
from kernelgrad.solvers.base import Problem, Solver, State, Tracker, TrainBatch

STATUSES = ("converged", "max_iter", "stopped", "time_limit", "interrupted")
_CLEARLY = 0.02  # of a loss: less is chance


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
    constant: FloatArray | None = None  # responses of the best constant, the least to ask for

    def beaten(self, rank: tuple[float, float]) -> str | None:
        """Return how the constant is better, or None where it is not, by score and by loss."""
        if self.constant is None:
            return None
        mine, loss = self.rank(self.constant)
        loss = -loss
        if not (rank[0] < mine and -rank[1] > loss + _CLEARLY * abs(loss)):
            return None
        return f"{self.name} {rank[0]:.4g} against {mine:.4g}, loss {-rank[1]:.4g}, {loss:.4g}"

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
    beaten: str | None = None  # how a constant is better on the held-out rows


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
    The deadline of the problem ends it with the model so far: a new one before its first step
    with the solver's initial function, a constant, a continued one after one step at least.
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
    done, whole, fresh = 0, True, state is None
    begun = 0 if state is None else state.iteration

    def within(part: float) -> None:
        callbacks.on_progress(begun + done + part, begun + max_iter)

    problem = replace(problem, progress=Progress(within))
    rows_before = 0 if state is None else state.rows_seen
    start = clock()
    callbacks.on_begin(solver)
    try:
        with single_threaded_blas(), _deferred_interrupt() as interrupted:
            while done < max_iter:
                item = next(batches, None)
                if item is None:
                    break
                if state is None:
                    state = solver.init(problem, item[0])
                if done or fresh:  # a state that was released needs a step first
                    problem.deadline.check()
                batch, epoch = item
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
                seconds = clock() - start
                left = min(problem.deadline.left(), (max_iter - done) * seconds / done)
                memory = resident_bytes()
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
                    objective=info.objective,
                    seconds_left=left,
                    memory_gb=None if memory is None else memory / 1e9,
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
    except TimeIsUp:
        status = "time_limit"
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
    audit = None
    if done:  # a stream may bring no row that counts
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
        beaten=validation.beaten(best_rank) if validation and best is not None else None,
    )
