"""Callbacks: what runs beside a fit, once per iteration."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from tqdm import tqdm

from kernelgrad._validation import check_int, check_real
from kernelgrad.compute.compiling import clock, compile_seconds


class TimeIsUp(Exception):  # noqa: N818  no error: the model so far is kept
    """Ends a step that was not done in time; the state is as it was before."""


class Deadline:
    """The moment at which a fit must end.

    Its clock stands still while loops are compiled, as that of :class:`FitEvent`.

    Parameters
    ----------
    seconds : float or None, default=None
        From now on; None is for ever.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._end = math.inf if seconds is None else clock() + seconds

    def left(self) -> float:
        """Return the seconds that are left, at least 0; inf without a limit."""
        return self._end if self._end == math.inf else max(0.0, self._end - clock())

    @property
    def over(self) -> bool:
        """Whether no time is left."""
        return self.left() <= 0.0

    def check(self) -> None:
        """Raise :class:`TimeIsUp` if no time is left."""
        if self.over:
            raise TimeIsUp


FOREVER = Deadline()


class Progress:
    """How far a long iteration is: solvers call it, `listener` is told.

    Copies and pickles, as those that go to workers, tell nobody.

    Parameters
    ----------
    listener : callable of a float in [0, 1], or None, default=None
        What to do with the part that is done; None is nothing.
    """

    def __init__(self, listener: Callable[[float], None] | None = None) -> None:
        self._listener = listener

    def __call__(self, done: float, total: float) -> None:
        """Tell that `done` of `total` rows, passes or whatever is counted are done."""
        if self._listener is not None:
            self._listener(min(1.0, done / total) if total > 0 else 1.0)

    def __reduce__(self) -> tuple[type[Progress], tuple[()]]:
        return Progress, ()


SILENT = Progress()


@dataclass(frozen=True)
class FitEvent:
    """The state of a fit after one iteration.

    Parameters
    ----------
    iteration : int
        The iteration that has just finished; the first one is 1.
    max_iter : int or None
        The iteration at which the fit ends, None if that is not known.
    epoch : float
        Passes over the data so far.
    rows_seen : int
        Rows used so far, repeats counted.
    seconds : float
        Wall-clock time since the start of the fit, less the time in which loops were compiled.
    n_random_features : int
        Random features in the model.
    train_loss : float
        Loss of the training rows of this iteration.
    validation_score : float or None
        The latest validation score, None if there is none.
    score_name : str or None
        What `validation_score` is.
    rows_per_second : float
        Speed of the fit in training rows.
    objective : float or None
        The objective on all training rows, None if the solver does not know it.
    seconds_left : float or None
        What the iterations up to `max_iter` take at the speed so far, at most the time that
        `time_limit` leaves; None if neither is known. A fit that converges ends before.
    memory_gb : float or None
        Resident memory of this process in GB (10^9 bytes), None where the system does not tell.
    """

    iteration: int
    max_iter: int | None
    epoch: float
    rows_seen: int
    seconds: float
    n_random_features: int
    train_loss: float
    validation_score: float | None
    score_name: str | None
    rows_per_second: float
    objective: float | None = None
    seconds_left: float | None = None
    memory_gb: float | None = None


class Callback:
    """Base of the callbacks; it does nothing. Override the methods you need."""

    def on_begin(self, estimator_or_solver: Any) -> None:
        """Prepare for a fit of `estimator_or_solver`.

        Parameters
        ----------
        estimator_or_solver : object
            What is being fitted.
        """

    def on_phase(self, name: str) -> None:
        """Take notice of what a fit does before its iterations, such as a search.

        Parameters
        ----------
        name : str
            What is done from now on; "" once it is done.
        """

    def on_progress(self, iteration: float, max_iter: int | None) -> None:
        """Take notice of how far a long iteration is; solvers with short ones do not tell.

        Parameters
        ----------
        iteration : float
            Finished iterations and the part of this one that is done, such as 3.25.
        max_iter : int or None
            The iteration at which the fit ends, None if that is not known.
        """

    def on_iteration(self, event: FitEvent) -> bool | None:
        """React to a finished iteration.

        Parameters
        ----------
        event : FitEvent
            The state of the fit.

        Returns
        -------
        bool or None
            True ends the fit cleanly: the model so far is kept. Anything else goes on.
        """
        return None

    def on_end(self, status: str) -> None:
        """Clean up. Called once for each `on_begin` that returned, also after an error.

        Parameters
        ----------
        status : str
            How the fit ended.
        """


class ProgressBar(Callback):
    """A progress bar on stderr: iterations, time left, rows per second, quality and memory.

    Quality is the objective where the solver knows it and the latest validation score where
    there is one, else the training loss. Long iterations move the bar by parts. Time left is
    shown when the number of iterations is known. The time is that of the fit: its clock stands
    still while loops are compiled.

    Parameters
    ----------
    file : text stream, default=None
        Where to draw; None is ``sys.stderr``. The bar is ASCII if the stream is not Unicode.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = file
        self._bar: Any = None
        self._phase: Any = None
        self._compiled = 0.0

    def on_phase(self, name: str) -> None:
        """Show what is done and for how long, on a terminal only."""
        if name:
            if self._phase is None:
                self._phase = tqdm(
                    bar_format="{desc}: {elapsed}", file=self.file, leave=False, disable=None
                )
            self._phase.set_description_str(name)
        elif self._phase is not None:
            self._phase.close()
            self._phase = None

    def on_begin(self, estimator_or_solver: Any) -> None:
        """Draw an empty bar."""
        self.on_phase("")
        self.on_end("restarted")
        self._bar = tqdm(
            desc=type(estimator_or_solver).__name__,
            unit="it",
            file=self.file,
            leave=True,
            dynamic_ncols=True,
        )
        self._compiled = compile_seconds()

    def on_progress(self, iteration: float, max_iter: int | None) -> None:
        """Move the bar into the iteration; it never goes back."""
        if self._bar is not None:
            self._move(max(self._bar.n, round(iteration, 2)), math.floor(iteration), max_iter)

    def on_iteration(self, event: FitEvent) -> None:
        """Move the bar to the iteration of `event`."""
        if self._bar is None:
            return
        told = [f"{tqdm.format_sizeof(event.rows_per_second)} rows/s"]
        if event.objective is not None:
            told.append(f"objective={event.objective:.4g}")
        if event.validation_score is not None:
            name = event.score_name or "validation score"
            told.append(f"{name}={event.validation_score:.4g}")
        if len(told) == 1:
            told.append(f"train loss={event.train_loss:.4g}")
        if event.memory_gb is not None:
            told.append(f"{event.memory_gb:.2f} GB")
        self._bar.set_postfix_str(", ".join(told), refresh=False)
        self._move(event.iteration, event.iteration - 1, event.max_iter)

    def _move(self, to: float, before: int, max_iter: int | None) -> None:
        """Show `to` iterations, `before` of which were done before this one."""
        bar = self._bar
        now = compile_seconds()
        bar.start_t += now - self._compiled
        bar.last_print_t += now - self._compiled
        self._compiled = now
        if bar.n == 0:
            # A continued fit starts late: iterations of earlier fits are not this one's speed.
            bar.initial = bar.last_print_n = before
        bar.total, bar.n = max_iter, to
        bar.update(0)

    def on_end(self, status: str) -> None:
        """Draw the last state and close the bar."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()


class TimeLimit(Callback):
    """End the fit cleanly after the first iteration that passes a time limit.

    Parameters
    ----------
    seconds : float
        The limit in seconds of wall-clock time since the start of the fit, above zero.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = check_real(seconds, "seconds", low=0.0, low_open=True)

    def on_iteration(self, event: FitEvent) -> bool:
        """Return True once the fit has run for `seconds`."""
        return event.seconds >= self.seconds


class CallbackList(Callback):
    """Run several callbacks as one, in the order given.

    Parameters
    ----------
    callbacks : sequence of Callback
        The callbacks.
    """

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self.callbacks = list(callbacks)
        self._begun: list[Callback] = []

    def on_begin(self, estimator_or_solver: Any) -> None:
        """Begin every callback; if one raises, end those that had begun."""
        try:
            for callback in self.callbacks:
                callback.on_begin(estimator_or_solver)
                self._begun.append(callback)
        except BaseException:
            self.on_end("error")
            raise

    def on_phase(self, name: str) -> None:
        """Tell every callback."""
        for callback in self.callbacks:
            callback.on_phase(name)

    def on_progress(self, iteration: float, max_iter: int | None) -> None:
        """Tell every callback."""
        for callback in self.callbacks:
            callback.on_progress(iteration, max_iter)

    def on_iteration(self, event: FitEvent) -> bool:
        """Call every callback; return True if any asked to stop."""
        return any([callback.on_iteration(event) for callback in self.callbacks])

    def on_end(self, status: str) -> None:
        """End every callback that has begun, even when another raises; then raise that."""
        begun, self._begun = self._begun, []
        with contextlib.ExitStack() as stack:
            for callback in reversed(begun):
                stack.callback(callback.on_end, status)


def make_callbacks(
    callbacks: Callback | Sequence[Callback] | None, verbose: int | bool
) -> CallbackList:
    """Return the callbacks of a fit as one.

    Parameters
    ----------
    callbacks : Callback, sequence of Callback, or None
        What the user gave.
    verbose : int or bool
        Above zero, a `ProgressBar` comes first unless the user gave one.

    Returns
    -------
    CallbackList
        All of them; possibly empty.

    Raises
    ------
    TypeError
        If something is not a callback; the message names it.
    """
    given: Any = callbacks
    if given is None:
        given = []
    elif isinstance(given, Sequence) and not isinstance(given, str | bytes):
        given = list(given)
    else:
        given = [given]
    for callback in given:
        if not isinstance(callback, Callback):
            raise TypeError(
                f"callbacks must be kernelgrad callbacks, got {callback!r}; pass an instance "
                "of a subclass of kernelgrad.callbacks.Callback, or a sequence of them."
            )
    level = int(verbose) if isinstance(verbose, bool) else check_int(verbose, "verbose")
    if level > 0 and not any(isinstance(callback, ProgressBar) for callback in given):
        given.insert(0, ProgressBar())
    return CallbackList(given)
