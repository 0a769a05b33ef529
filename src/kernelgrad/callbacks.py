"""Callbacks: what runs beside a fit, once per iteration."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, TypeVar

from tqdm import tqdm

from kernelgrad._disk import replacing
from kernelgrad._typing import Contents
from kernelgrad._validation import check_bool, check_int, check_real
from kernelgrad.compute.compiling import clock, compile_seconds, compiling
from kernelgrad.compute.compiling import looked_at as _shows_bars
from kernelgrad.exceptions import ModelFileError, NewerFileError
from kernelgrad.persistence import below, prefixed, read_container, write_container


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
        """Clean up. Called once for each `on_begin` that returned, also after an error.

        Parameters
        ----------
        status : str
            How the fit ended.
        """


_EARLY = {
    "converged": "converged", "stopped": "stopped", "interrupted": "interrupted",
    "time_limit": "out of time",
}  # fmt: skip
_BEAT = 1.0  # seconds between two drawings while nothing is heard


def _quality(event: FitEvent) -> str:
    """Return how fast and how good a fit is."""
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
    return ", ".join(told)


class ProgressBar(Callback):
    """A progress bar on stderr: iterations, time left, rows per second, quality and memory.

    Quality is the objective where the solver knows it and the latest validation score where
    there is one, else the training loss. Long iterations move the bar by parts. Before the
    iterations it names the phase, such as a search, and its time. It is drawn anew each second
    and names the loop that is being compiled. Time left is shown when the number of iterations
    is known. The time is that of the fit: its clock stands still while loops are compiled.

    Parameters
    ----------
    file : text stream, default=None
        Where to draw; None is ``sys.stderr`` where that is a terminal or a notebook, else
        nowhere. The bar is ASCII if the stream is not Unicode.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = file
        self._bar: Any = None
        self._phase: Any = None
        self._compiled = 0.0
        self._over: threading.Event | None = None  # tells the thread that draws to end

    def on_phase(self, name: str) -> None:
        """Show what is done and for how long, on a terminal only."""
        phase, self._phase = self._phase, None
        if phase is not None:
            phase.close()
        if name:
            self._phase = tqdm(
                desc=name, bar_format="{desc}: {elapsed}{postfix}", file=self.file, leave=False,
                disable=None if self.file is not None else not _shows_bars(),
                dynamic_ncols=True,
            )  # fmt: skip
        self._watch()

    def on_begin(self, estimator_or_solver: Any) -> None:
        """Draw an empty bar."""
        self.on_phase("")
        self.on_end("restarted")
        if self.file is None and not _shows_bars():
            return
        self._bar = tqdm(
            desc=f"fit ({type(estimator_or_solver).__name__})",
            unit="it",
            file=self.file,
            leave=True,
            dynamic_ncols=True,
        )
        self._compiled = compile_seconds()
        self._watch()

    def _watch(self) -> None:
        """Let a thread draw while something is shown, so that no long step is a silence."""
        shown = self._bar is not None or self._phase is not None
        if shown and self._over is None:
            self._over = threading.Event()
            threading.Thread(target=self._draw, args=(self._over,), daemon=True).start()
        elif not shown and self._over is not None:
            self._over.set()
            self._over = None

    def _draw(self, over: threading.Event) -> None:
        while not over.wait(_BEAT):
            loop = compiling()
            for bar in (self._phase, self._bar):
                if bar is None:
                    continue
                with bar.get_lock():
                    if loop is not None:
                        bar.set_postfix_str(f"compiling {loop}", refresh=False)
                    if bar is self._bar:
                        self._stop_clock(bar)
                    bar.refresh()

    def on_progress(self, iteration: float, max_iter: int | None) -> None:
        """Move the bar into the iteration; it never goes back."""
        if self._bar is not None:
            self._move(max(self._bar.n, round(iteration, 2)), math.floor(iteration), max_iter)
        elif self._phase is not None:
            self._phase.set_postfix_str(f"iteration {iteration:.3g} of {max_iter}")

    def on_iteration(self, event: FitEvent) -> None:
        """Move the bar to the iteration of `event`."""
        if self._bar is not None:
            self._bar.set_postfix_str(_quality(event), refresh=False)
            self._move(event.iteration, event.iteration - 1, event.max_iter)

    def _move(self, to: float, before: int, max_iter: int | None) -> None:
        """Show `to` iterations, `before` of which were done before this one."""
        bar = self._bar
        with bar.get_lock():
            self._stop_clock(bar)
            if bar.n == 0:
                # A continued fit starts late: iterations of earlier fits are not its speed.
                bar.initial = bar.last_print_n = before
            bar.total, bar.n = max_iter, to
            bar.update(0)

    def _stop_clock(self, bar: Any) -> None:
        """Take the seconds of compilation out of those of a bar."""
        now = compile_seconds()
        bar.start_t += now - self._compiled
        bar.last_print_t += now - self._compiled
        self._compiled = now

    def on_end(self, status: str) -> None:
        """Draw the last state, and how the fit ended if early; close the bar."""
        bar, self._bar = self._bar, None
        self._watch()
        if bar is None:
            return
        if status in _EARLY and bar.total is not None:
            how = f"{bar.desc.removesuffix(': ')}: {_EARLY[status]} after {bar.n:g} of at most "
            bar.set_description_str(f"{how}{bar.total} iterations", refresh=False)
            if status == "converged":
                bar.total = bar.n
        bar.close()


class ProgressLog(Callback):
    """Lines on stderr for logs of jobs: phases, iterations, and how the fit ended.

    Of the iterations one a second is told, and the last. Lines begin with the seconds since the
    first of them.

    Parameters
    ----------
    file : text stream, default=None
        Where to write; None is ``sys.stderr``.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = file
        self._start: float | None = None
        self._next = 0.0
        self._latest: FitEvent | None = None

    def _say(self, line: str) -> None:
        now = time.monotonic()
        self._start = now if self._start is None else self._start
        self._next, self._latest = now + _BEAT, None
        print(f"{now - self._start:7.1f} s  {line}", file=self.file or sys.stderr, flush=True)

    def _tell(self, event: FitEvent) -> None:
        of = "" if event.max_iter is None else f" of at most {event.max_iter}"
        self._say(f"iteration {event.iteration}{of}: {_quality(event)}")

    def on_phase(self, name: str) -> None:
        """Name the phase."""
        if name:
            self._say(name)

    def on_begin(self, estimator_or_solver: Any) -> None:
        """Name the solver."""
        self._say(f"fit ({type(estimator_or_solver).__name__})")

    def on_iteration(self, event: FitEvent) -> None:
        """Tell an iteration, unless another one was told less than a second ago."""
        self._latest = event
        if time.monotonic() >= self._next:
            self._tell(event)

    def on_end(self, status: str) -> None:
        """Tell the last iteration, and how the fit ended."""
        if self._latest is not None:
            self._tell(self._latest)
        self._say({"max_iter": "all iterations done"}.get(status, _EARLY.get(status, status)))
        self._start = None


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


T = TypeVar("T")
_ENDED = ("converged", "max_iter", "stopped")
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_NAME = re.compile(r"checkpoint-(\d+)\.kgc")


@dataclass
class _Session:
    """What a checkpoint holds of one fit beside the state of its loop."""

    identity: dict[str, Any]
    found: dict[str, Contents] = field(default_factory=dict)  # before the first iteration
    loop: Contents | None = None  # where to go on
    spent: float = 0.0  # seconds of the fit before it was resumed
    path: Path | None = None  # of what is resumed
    good: list[Path] = field(default_factory=list)  # files, the latest last
    begun: float = field(default_factory=lambda: time.monotonic())
    last: float = field(default_factory=lambda: time.monotonic())  # when a file was written
    steps: int = 0  # since then


class Checkpoint(Callback):
    """Write the state of a fit to a folder now and then, and go on from there after a crash.

    A fit that is resumed gives the model that an uninterrupted one gives, bit for bit: with the
    same rows, parameters, version and processor. What a search found before the first iteration
    is part of a checkpoint. Files appear whole or not at all. One that cannot be read is passed
    over with a warning; where one cannot be written, as on a full disk, a warning says so and
    the fit goes on. After Ctrl-C and at the end of the fit a last one is written.

    Parameters
    ----------
    folder : path
        Made if it is not there. It holds the checkpoints of one fit and nothing else.
    every : str or int, default="60 s"
        Time between two checkpoints, in ``s``, ``min`` or ``h``: as much work is lost at most,
        and the iteration that goes on. A number counts iterations.
    keep : int, default=2
        So many of the latest files are kept: the one before is there should the latest be
        damaged.
    resume : bool, default=False
        Go on from the latest checkpoint if there is one, else begin anew: a script with
        ``Checkpoint(folder, resume=True)`` can be run again and again until it is done. If
        False, a folder with a fit that is not finished is refused.

    Attributes
    ----------
    n_written : int
        Files written in the last fit.
    seconds : float
        The time that took.

    Raises
    ------
    ValueError
        In `fit`, before any work: the folder holds other files or a fit that is not finished,
        or the checkpoint is of other rows, parameters or another version.
    OSError
        In `fit`, before any work: the folder cannot be made or written to.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from kernelgrad import KernelRegressor
    >>> from kernelgrad.callbacks import Checkpoint
    >>> folder = tempfile.mkdtemp()
    >>> X = np.linspace(-3, 3, 400)[:, None]
    >>> model = KernelRegressor(
    ...     random_state=0, callbacks=[Checkpoint(folder, every="5 min", resume=True)]
    ... ).fit(X, np.sin(X[:, 0]))
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        every: str | int = "60 s",
        keep: int = 2,
        resume: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self.every = every
        self._seconds = _interval(every)
        self.keep = check_int(keep, "keep", low=1)
        self.resume = check_bool(resume, "resume")
        self.n_written, self.seconds = 0, 0.0
        self._session: _Session | None = None

    @property
    def saved(self) -> list[Path]:
        """The files in the folder, the latest last."""
        found = ((_NAME.fullmatch(path.name), path) for path in self.folder.glob("*"))
        return [path for _, path in sorted((int(m[1]), path) for m, path in found if m)]

    # -- what estimators call ----------------------------------------------------------

    def begin(self, **identity: Any) -> None:
        """Begin a fit, or go on; `identity` is what must be the same then."""
        self.end()
        self.prepare()
        self.n_written, self.seconds = 0, 0.0
        session, saved = _Session({}), self.saved
        if saved and not self.resume:
            with contextlib.suppress(ModelFileError, OSError):
                header, _ = read_container(saved[-1], "checkpoint")
                if header["status"] in _ENDED:
                    for path in saved:
                        path.unlink()
            if self.saved:
                raise ValueError(
                    f"{self.folder} holds a fit that is not finished, up to {saved[-1].name}; "
                    "go on with it by resume=True, or empty the folder to begin anew."
                )
        elif saved:
            session = self._load(saved)
        self._session = session
        for part, value in identity.items():
            self.check(part, value)

    def end(self) -> None:
        """Forget the fit; its files stay."""
        self._session = None

    def check(self, part: str, value: Any) -> None:
        """Raise if a part of the identity is not that of the checkpoint."""
        session = self._open
        before = session.identity.setdefault(part, value)
        if before == value:
            return
        if isinstance(value, dict):
            names = [k for k in {**before, **value} if before.get(k) != value.get(k)]
            told = ", ".join(f"{k} was {before.get(k)}, is {value.get(k)}" for k in names)
        elif part == "rows":
            told = "other rows, targets or weights"
        else:
            told = f"was {before}, is {value}"
        raise ValueError(
            f"The checkpoint {session.path} is of another fit ({part}: {told}); restore what "
            "has changed to go on with it, or take another folder."
        )

    @property
    def resumed(self) -> Contents | None:
        """The state to go on from, None for that before the first iteration."""
        return self._open.loop

    @property
    def spent(self) -> float:
        """Seconds that the fit took before it was resumed."""
        return self._open.spent

    def recall(
        self,
        name: str,
        make: Callable[[], T],
        pack: Callable[[T], Contents],
        unpack: Callable[[dict[str, Any], dict[str, Any]], T],
    ) -> T:
        """Return what was found before the first iteration, or find and remember it."""
        session = self._open
        if name in session.found:
            return unpack(*session.found[name])
        value = make()
        session.found[name] = pack(value)
        if session.loop is None and "rows" in session.identity and self._due(session):
            self._write(session, None)
        return value

    # -- files -------------------------------------------------------------------------

    def on_state(self, describe: Callable[[], Contents], status: str | None = None) -> None:
        """Write a checkpoint if it is time, and at the end."""
        session = self._open
        session.steps += 1
        if status is not None or self._due(session):
            self._write(session, describe(), status)

    @property
    def _open(self) -> _Session:
        if self._session is None:
            raise RuntimeError("A Checkpoint is a callback of `fit` of an estimator.")
        return self._session

    def _due(self, session: _Session) -> bool:
        if self._seconds is None:
            return session.steps >= int(self.every)
        return time.monotonic() - session.last >= self._seconds

    def prepare(self) -> None:
        """Make the folder; raise if it is of something else or cannot be written to."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            if path.name.startswith(".kernelgrad-"):  # half a file that a kill left
                path.unlink()
            elif not (_NAME.fullmatch(path.name) or path.name.startswith(".")):
                raise ValueError(
                    f"{self.folder} holds {path.name!r}, which is no checkpoint; name an empty "
                    "or a new folder."
                )
        trial = self.folder / ".kernelgrad-trial"
        with replacing(trial):
            pass
        trial.unlink()

    def _load(self, saved: list[Path]) -> _Session:
        """Return the latest checkpoint that can be read; a session without any if none can."""
        for i in reversed(range(len(saved))):
            try:
                header, arrays = read_container(saved[i], "checkpoint")
            except NewerFileError:
                raise
            except (ModelFileError, OSError) as error:
                instead = (
                    f"{saved[i - 1].name} is taken instead" if i else "the fit begins anew"
                )
                warnings.warn(f"{error} Now {instead}.", stacklevel=2)
                continue
            found = {
                name: (values, below(f"found.{name}", arrays))
                for name, values in header["found"].items()
            }
            loop = header["loop"]
            if loop is not None:
                loop = loop, below("loop", arrays)
            return _Session(
                header["identity"], found, loop, header["spent"], saved[i], saved[: i + 1]
            )
        return _Session({})

    def _write(
        self, session: _Session, loop: Contents | None, status: str | None = None
    ) -> None:
        """Write a file and remove those that are too many; a failure is no reason to stop."""
        start = time.monotonic()
        values, arrays = (None, {}) if loop is None else loop
        tensors = prefixed("loop", arrays)
        for name, (_, some) in session.found.items():
            tensors |= prefixed(f"found.{name}", some)
        header = {
            "identity": session.identity,
            "found": {name: plain for name, (plain, _) in session.found.items()},
            "loop": values,
            "status": status,
            "spent": session.spent + start - session.begun,
        }
        number = 0 if values is None else values["iteration"]
        path = self.folder / f"checkpoint-{number:09d}.kgc"
        try:
            write_container(path, header, tensors, "checkpoint")
        except (OSError, MemoryError) as error:
            why = str(error) or "out of memory"
            warnings.warn(
                f"The checkpoint {path} could not be written ({why}); the fit goes on, and "
                "the next one may have more room.",
                stacklevel=2,
            )
        else:
            self.n_written += 1
            session.good = [*(p for p in session.good if p != path), path][-self.keep :]
            for other in self.saved:
                if other not in session.good:
                    with contextlib.suppress(OSError):
                        other.unlink()
        session.loop, session.steps, session.last = None, 0, time.monotonic()
        self.seconds += session.last - start


def _interval(every: Any) -> float | None:
    """Return the seconds between two checkpoints, None where iterations are counted."""
    if not isinstance(every, str):
        check_int(every, "every", low=1)
        return None
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(s|min|h)\s*", every)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if seconds <= 0:
        raise ValueError(
            f"every={every!r} is no interval; give one such as '60 s', '5 min' or '1 h', or a "
            "number of iterations."
        )
    return seconds


class Aside(Callback):
    """Tell the callbacks of a fit how far another one, on the way to it, is: as a phase.

    Parameters
    ----------
    listeners : Callback
        The callbacks of the fit.
    """

    def __init__(self, listeners: Callback) -> None:
        self.on_progress = listeners.on_progress  # type: ignore[method-assign]

    def on_iteration(self, event: FitEvent) -> None:
        """Pass on the number of the iteration."""
        self.on_progress(event.iteration, event.max_iter)


class CallbackList(Callback):
    """Run several callbacks as one, in the order given.

    Parameters
    ----------
    callbacks : sequence of Callback
        The callbacks.

    Attributes
    ----------
    interrupted : bool
        Whether Ctrl-C ended the fit, which is then complete up to its last iteration.
    """

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self.callbacks = list(callbacks)
        self.interrupted = False
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

    def on_state(self, describe: Callable[[], Contents], status: str | None = None) -> None:
        """Tell every callback."""
        for callback in self.callbacks:
            callback.on_state(describe, status)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The one that writes checkpoints, if there is any."""
        found = [each for each in self.callbacks if isinstance(each, Checkpoint)]
        return found[0] if found else None

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
        1 puts a `ProgressBar` first, unless the user gave one, more a `ProgressLog`.

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
    if sum(isinstance(callback, Checkpoint) for callback in given) > 1:
        raise ValueError("callbacks hold more than one Checkpoint; give one.")
    level = int(verbose) if isinstance(verbose, bool) else check_int(verbose, "verbose")
    wanted = ProgressLog if level > 1 else ProgressBar
    if level > 0 and not any(isinstance(callback, wanted) for callback in given):
        given.insert(0, wanted())
    return CallbackList(given)
