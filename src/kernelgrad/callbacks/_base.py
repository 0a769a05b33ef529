"""What a fit tells its callbacks, and the time that it has."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelgrad._typing import Contents
from kernelgrad.compute.compiling import clock


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

    An iteration of several passes over the rows calls it anew in each. How many there will be
    is what there were in the iteration before; in the first one, and beyond that many, each
    pass fills half of what is left. Copies and pickles, as those that go to workers, tell
    nobody.

    Parameters
    ----------
    listener : callable of a float in [0, 1], or None, default=None
        What to do with the part of the iteration that is done; None is nothing.
    """

    def __init__(self, listener: Callable[[float], None] | None = None) -> None:
        self._listener = listener
        self._expected = self._passes = 0
        self._part = 0.0

    def __call__(self, done: float, total: float) -> None:
        """Tell that `done` of `total` rows, or whatever is counted, are done in this pass."""
        if self._listener is None:
            return
        part = min(1.0, done / total) if total > 0 else 1.0
        self._passes += part < self._part or part == self._part == 1.0
        self._part = part
        seen = self._passes + part
        known = self._expected > 0 and seen <= self._expected
        self._listener(seen / self._expected if known else 1.0 - 0.5**seen)

    def next_iteration(self) -> None:
        """Take notice that an iteration is over."""
        self._expected = self._passes + (self._part > 0)
        self._passes, self._part = 0, 0.0

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
        """Prepare for a fit of `estimator_or_solver`."""

    def on_phase(self, name: str) -> None:
        """Take notice of what a fit does before its iterations, such as a search.

        `name` is what is done from now on, "" once it is done.
        """

    def on_progress(self, iteration: float, max_iter: int | None) -> None:
        """Take notice of how far a long iteration is; solvers with short ones do not tell.

        Within a phase, such as a calibration, the iterations are those of the phase.

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

    def on_state(self, describe: Callable[[], Contents], status: str | None = None) -> None:
        """Take notice of a state from which the fit could go on.

        Called between iterations, and last of all once the model is there.

        Parameters
        ----------
        describe : callable
            Returns the state as plain values and arrays, copying nothing that it can share.
        status : str or None
            How the fit ended, None while it goes on.
        """

    def on_end(self, status: str) -> None:
        """Clean up; `status` is how the fit ended.

        Called once for each `on_begin` that returned, also after an error.
        """
