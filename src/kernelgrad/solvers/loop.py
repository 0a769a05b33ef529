"""The one loop around all solvers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from kernelgrad.callbacks import CallbackList, FitEvent, Progress, TimeIsUp
from kernelgrad.compute.compiling import clock
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.exceptions import CapabilityError, DataError
from kernelgrad.functions.expansions import Expansion
from kernelgrad.solvers.contract import Problem, Solver, State, StepInfo, TrainBatch
from kernelgrad.solvers.history import HISTORY_KEYS, new_history
from kernelgrad.solvers.resumption import CUT, OVER, Course, Resumed
from kernelgrad.solvers.trackers import Tracker
from kernelgrad.types import FloatArray, Matrix


@dataclass
class Validation:
    """Held-out rows and the score that selects the best iterate (greater is better).

    Of equal scores the one with the smaller ``loss`` wins, which also counts as progress:
    accuracy on few or unbalanced rows stops changing long before the function does. ``start``
    is a function fitted before, which iterates must beat. Without ``early_stopping`` scores are
    only reported: the last iterate is the result, and the fit ends as it would without
    validation. ``constant`` is the responses of the best constant, which a useful fit beats.
    """

    X: Matrix
    score: Callable[[FloatArray], float]
    name: str
    patience: int | None  # steps without progress; None means no limit
    tol: float
    early_stopping: bool = True
    loss: Callable[[FloatArray], float] | None = None
    start: Expansion | None = None
    constant: FloatArray | None = None

    def beaten(self, rank: tuple[float, float]) -> str | None:
        """Return how the constant is better, or None where it is not, by score and by loss."""
        if self.constant is None:
            return None
        (score, loss), (best, least) = rank, self.rank(self.constant)
        loss, least = -loss, -least
        # a loss lower by less than a fiftieth is chance
        if not (score < best and loss > least + 0.02 * abs(least)):
            return None
        return f"{self.name} {score:.4g} against {best:.4g}, loss {loss:.4g}, {least:.4g}"

    def rank(self, raw: FloatArray) -> tuple[float, float]:
        """Return (score, negative loss); undefined scores rank last."""
        if not np.isfinite(raw).all():  # the fit diverges
            return -np.inf, -np.inf
        score = self.score(raw)
        loss = 0.0 if self.loss is None else self.loss(raw)
        return (score if np.isfinite(score) else -np.inf, -loss)


@dataclass
class FitResult:
    """The result of the loop."""

    state: State
    expansion: Expansion
    status: str
    history: dict[str, Any] = field(default_factory=dict)
    best_iteration: int = 0
    best_score: float | None = None
    beaten: str | None = None  # how a constant is better on the held-out rows


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Delay Ctrl-C until the end of a step, so that no update is incomplete.

    Yields a function that tells whether an interrupt is pending; a second one is raised at
    once. Only the main thread gets signals, and only Python's own handler of Ctrl-C is
    replaced: of SIGTERM too, where a program has made it end fits as Ctrl-C does.
    """
    pending = False

    def defer(number: int, frame: Any) -> None:
        nonlocal pending
        if pending:
            raise KeyboardInterrupt
        pending = True

    ours = [
        number
        for number in (signal.SIGINT, signal.SIGTERM)
        if threading.current_thread() is threading.main_thread()
        and signal.getsignal(number) is signal.default_int_handler
    ]
    for number in ours:
        signal.signal(number, defer)
    try:
        yield lambda: pending
    finally:
        for number in ours:
            signal.signal(number, signal.default_int_handler)


@dataclass
class _FitLoop:
    """One run of the loop: what it was called with, and how far it has come.

    ``status`` is the reason to end, "max_iter" while none has come up; ``steps`` counts the
    finished steps of this run and ``batch`` is that of the last one; ``tracker`` follows the
    rows for validation. ``is_whole`` says that no step is under way, so that the state may be
    returned, and ``is_over`` that the fit that is resumed needs no further step.
    """

    solver: Solver[Any]
    problem: Problem
    course: Course
    max_iter: int
    state: State | None
    validation: Validation | None
    callbacks: CallbackList
    resumed: Resumed | None
    urgent: bool
    status: str = "max_iter"
    batch: TrainBatch | None = None
    tracker: Tracker | None = None
    steps: int = 0
    is_whole: bool = True
    is_over: bool = False

    def __post_init__(self) -> None:
        seconds, state = self.course.history["seconds"], self.state
        self._seconds_before = seconds[-1] if seconds else 0.0
        self._rows_before = 0 if state is None else state.rows_seen
        self._first = 0 if state is None else state.iteration - self.course.done
        progress = Progress(self._report)
        resources = replace(self.problem.resources, progress=progress)
        self.problem = replace(self.problem, resources=resources)
        self._start = clock()

    def _report(self, part: float) -> None:
        """Pass on how much of the step under way is done."""
        if self.urgent and not self.steps:
            self.problem.resources.deadline.check()
        done = self._first + self.course.done + part
        self.callbacks.on_progress(done, self._first + self.max_iter)

    def iterate(self, batches: Iterator[tuple[TrainBatch, float]]) -> None:
        """Take steps until one of the reasons to end holds, and note it as the status."""
        course = self.course
        with single_threaded_blas(), deferred_interrupt() as interrupted:
            self._check_over()
            if self.max_iter == 0:
                raise TimeIsUp
            while course.done < self.max_iter and not self.is_over:
                item = next(batches, None)
                if item is None:
                    break
                state, info = self._step(*item)
                event = self._event(state, info, self._score(state, info))
                for key in HISTORY_KEYS:
                    value = getattr(event, key) if hasattr(event, key) else getattr(info, key)
                    course.history[key].append(value)
                if self._ends(state, info, event):
                    break
                if interrupted():
                    raise KeyboardInterrupt
                if course.done < self.max_iter:
                    describe = partial(course.describe, state, self.tracker)
                    self.callbacks.on_state(describe)
            self.callbacks.interrupted = interrupted()  # too late to cut anything off

    def _check_over(self) -> None:
        """Determine whether a fit that had ended is over for this run, too."""
        ended = None if self.resumed is None else self.resumed.status
        if ended is None:
            return
        self.is_over = ended in OVER or self.course.done >= self.max_iter
        if ended == "stopped" and not self.is_over:  # would they stop again?
            history = self.course.history
            last = {k: history[k][-1] for k in FitEvent.__annotations__ if k in HISTORY_KEYS}
            last |= {"max_iter": self._first + self.max_iter, "rows_per_second": 0.0}
            event = FitEvent(**last, score_name=history["score_name"])
            self.is_over = self.callbacks.on_iteration(event)
        if self.is_over and ended not in CUT:
            self.status = ended

    def _step(self, batch: TrainBatch, epoch: float) -> tuple[State, StepInfo]:
        """Take one step; return the state, which the first one makes, and its report."""
        solver, problem, state = self.solver, self.problem, self.state
        if state is None:
            state = self.state = solver.init(problem, batch)
        if self.steps:
            left, mean = problem.resources.deadline.left(), clock() - self._start
            if left <= 0.5 * mean / self.steps:
                raise TimeIsUp  # the next step would end too late
        self.batch, self.course.epoch = batch, epoch
        if self.validation is not None and self.tracker is None:
            with nullcontext() if self.resumed is None else self.resumed.reading():
                self.tracker = solver.track(state, self.validation.X)
                if self.resumed is not None:
                    self.tracker.restore(self.resumed.tracker)
        self.is_whole = False
        try:
            info = solver.step(problem, state, batch)
        except (CapabilityError, DataError):
            if self.steps or self.resumed is None or not problem.fixed_rows:
                raise
            with self.resumed.reading():  # the same rows were good before
                raise
        self.is_whole = True
        self.steps += 1
        self.course.done += 1
        return state, info

    def _score(self, state: State, info: StepInfo) -> float | None:
        """Return the validation score of an iterate; copy the function if it is the best."""
        course, validation = self.course, self.validation
        if self.tracker is None or validation is None:
            return None
        self.tracker.advance(info)
        rank = validation.rank(self.tracker.raw_prediction())
        if not validation.early_stopping:
            course.best_rank, course.best_iteration = rank, state.iteration
        elif course.count_iterate(rank, validation.tol):
            course.best_iteration = state.iteration
            course.best = self.solver.expansion(state).copy()
        return rank[0]

    def _event(self, state: State, info: StepInfo, score: float | None) -> FitEvent:
        seconds, to_do = clock() - self._start, self.max_iter - self.course.done
        left = self.problem.resources.deadline.left()
        return FitEvent(
            iteration=state.iteration,
            max_iter=state.iteration + to_do,
            epoch=self.course.epoch if info.epoch is None else info.epoch,
            rows_seen=state.rows_seen,
            seconds=self._seconds_before + seconds,
            n_random_features=info.n_random_features,
            train_loss=info.train_loss,
            validation_score=score,
            score_name=self.validation.name if self.validation else None,
            rows_per_second=(state.rows_seen - self._rows_before) / max(seconds, 1e-9),
            objective=info.objective,
            seconds_left=min(left, to_do * seconds / self.steps),
        )

    def _ends(self, state: State, info: StepInfo, event: FitEvent) -> bool:
        """Return whether callbacks, the solver or the patience end the fit, for the status."""
        stop = self.callbacks.on_iteration(event)
        patience = None if self.validation is None else self.validation.patience
        stalled = patience is not None and self.course.stale >= patience
        if stop:
            self.status = "stopped"
        elif info.converged or stalled:
            self.status = "converged"
        return self.status != "max_iter"

    def result(self) -> FitResult:
        """Return the result, after the solver's last look at it and the last checkpoint."""
        course, state, audit = self.course, self.state, None
        if state is None:
            raise ValueError("There was no batch to learn from.")
        if self.is_over and self.resumed is not None and self.resumed.function is not None:
            expansion, audit = self.resumed.function, self.resumed.audit
        else:
            with single_threaded_blas(), deferred_interrupt() as interrupted:
                if self.steps and self.batch is not None:  # a stream may bring no row
                    audit = self.solver.finish(self.problem, state, self.batch)
                best = course.best
                expansion = best if best is not None else self.solver.expansion(state)
                if self.steps and not self.problem.posterior:  # no file holds its factor
                    describe = partial(
                        course.describe, state, self.tracker,
                        function=expansion, status=self.status, audit=audit,
                    )  # fmt: skip
                    self.callbacks.on_state(describe, self.status)
                self.callbacks.interrupted |= interrupted()
        history = course.history
        if audit is not None:
            history["audit"] = audit
            history["objective"][-1] = audit["objective"]
        at, validation = course.best_iteration, self.validation
        return FitResult(
            state=state,
            expansion=expansion,
            status=self.status,
            history=history,
            best_iteration=at or state.iteration,
            best_score=float(course.best_rank[0]) if at else None,
            beaten=validation.beaten(course.best_rank) if validation and course.best else None,
        )


def run(
    solver: Solver[Any], problem: Problem, batches: Iterator[tuple[TrainBatch, float]], *,
    max_iter: int, state: State | None = None, validation: Validation | None = None,
    callbacks: CallbackList | None = None,
    history: dict[str, Any] | None = None, resumed: Resumed | None = None,
    urgent: bool = False,
) -> FitResult:  # fmt: skip
    """Run a solver until `max_iter` more steps are done.

    The loop records the history, keeps the best iterate by the validation score, stops when
    the score has not improved by ``tol`` for ``patience`` steps, and lets callbacks stop it.
    The deadline of the problem ends it with the model so far. If that happens before the first
    step of a new fit, the model is the solver's initial function, a constant, and before there
    is a state TimeIsUp is raised, as it is where `max_iter` is 0, and of an `urgent` fit within
    its first step; a continued fit takes at least one step. Ctrl-C stops the loop too: it
    returns the model so far, and ``callbacks.interrupted`` is True so that the caller can raise
    the interrupt again. Before the first finished step the interrupt is raised at once.

    Batches come with the number of epochs done after each. A `state` and a `history` are
    continued; so is a fit of the same solver and problem that is `resumed` from a checkpoint,
    whose batches must be the following ones.
    """
    callbacks = callbacks if callbacks is not None else CallbackList([])
    if resumed is not None:
        course, state = resumed.course, resumed.state
    else:
        named = new_history(validation.name if validation else None)
        course = Course(named if history is None else history)
        if validation is not None and validation.start is not None and state is not None:
            course.best = validation.start
            course.best_rank = validation.rank(course.best.raw_prediction(validation.X))
            course.best_iteration = state.iteration
    loop = _FitLoop(
        solver, problem, course, max_iter, state, validation, callbacks, resumed,
        urgent,
    )  # fmt: skip
    callbacks.on_begin(solver)
    try:
        loop.iterate(batches)
    except TimeIsUp:
        loop.status = "time_limit"
        if loop.state is None or (urgent and not loop.steps):
            raise
    except KeyboardInterrupt:
        loop.status = "interrupted"
        if not (loop.steps and loop.is_whole):  # half of a step is never returned
            raise
        callbacks.interrupted = True
    except BaseException:
        loop.status = "error"
        raise
    finally:
        callbacks.on_end(loop.status)
    return loop.result()
