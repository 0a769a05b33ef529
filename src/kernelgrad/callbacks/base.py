"""The base class of callbacks, the events they receive, and the deadline of a fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelgrad.compute.compiling import clock
from kernelgrad.types import Contents


class TimeIsUp(Exception):  # noqa: N818  no error: the model so far is kept
    """Raised when a step does not finish in time; the state from before the step is kept."""


class Deadline:
    """The moment at which a fit must end, in `seconds` from now on; None means no limit.

    The clock is paused while loops are compiled, like the one of :class:`FitEvent`.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._end = math.inf if seconds is None else clock() + seconds

    def left(self) -> float:
        """Return the remaining seconds, at least 0; inf without a limit."""
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
    """Progress within a long iteration: solvers report it and `listener` receives it.

    The listener gets the fraction of the pass over the rows that is done; passes of an
    iteration each report from 0 on. Copies and pickles, such as those sent to workers, have no
    listener.
    """

    def __init__(self, listener: Callable[[float], None] | None = None) -> None:
        self._listener = listener

    def __call__(self, done: float, total: float) -> None:
        """Report that `done` of `total` units, usually rows, are done in this pass."""
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
        The iteration at which the fit ends; None if it is unknown.
    epoch, rows_seen
        Passes over the data and rows used so far, repeats counted.
    seconds : float
        Wall-clock time since the start of the fit, without the time spent compiling loops.
    n_random_features : int
        Random features in the model.
    train_loss : float
        Mean loss of the training rows used in this iteration.
    validation_score, score_name
        The latest validation score and the name of its measure; None if there is none.
    rows_per_second : float
        Training rows processed per second.
    objective : float or None
        The objective on all training rows; None if the solver does not compute it.
    seconds_left : float or None
        Estimated time to `max_iter` at the speed so far, at most what is left of
        `time_limit`; None if both are unknown.
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


class Callback:
    """Base class of callbacks. Its methods do nothing; override those you need."""

    def on_begin(self, solver: Any) -> None:
        """Prepare for a fit of `solver`."""

    def on_phase(self, name: str) -> None:
        """Receive the phase that starts, such as a search; "" when it has ended."""

    def on_progress(self, iteration: float, max_iter: int | None) -> None:
        """Receive the progress within a long iteration; solvers with short ones skip this.

        `iteration` is the number of finished iterations plus the finished fraction of this one,
        such as 3.25. Within a phase, such as a calibration, the iterations are those of the
        phase.
        """

    def on_iteration(self, event: FitEvent) -> bool | None:
        """React to a finished iteration; True ends the fit and keeps the model so far."""
        return None

    def on_state(self, describe: Callable[[], Contents], status: str | None = None) -> None:
        """Receive a state from which the fit could be resumed.

        Called between iterations, and a last time when the model is complete. `describe`
        returns the state as plain values and arrays, sharing memory where it can; `status` says
        how the fit ended, None while it is running.
        """

    def on_end(self, status: str) -> None:
        """Clean up; `status` says how the fit ended.

        Called once for each `on_begin` that returned, also after an error.
        """
