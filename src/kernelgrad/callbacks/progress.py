"""Progress of a fit, on a terminal or in a log."""

from __future__ import annotations

import math
import sys
import threading
import time
from typing import Any, TextIO

from kernelgrad.callbacks.base import Callback, FitEvent
from kernelgrad.compute import compiling

_ENDS = {
    "converged": "converged", "stopped": "stopped", "interrupted": "interrupted",
    "time_limit": "out of time",
}  # fmt: skip
_BEAT = 1.0  # seconds between two redraws, or lines, while no event arrives


def shows_bars() -> bool:
    """Return whether stderr is a terminal or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def _quality(event: FitEvent) -> str:
    from tqdm import tqdm

    texts = [f"{tqdm.format_sizeof(event.rows_per_second)} rows/s"]
    if event.objective is not None:
        texts.append(f"objective={event.objective:.4g}")
    if event.validation_score is not None:
        name = event.score_name or "validation score"
        texts.append(f"{name}={event.validation_score:.4g}")
    if len(texts) == 1:
        texts.append(f"train loss={event.train_loss:.4g}")
    return ", ".join(texts)


class _Cell:
    """One line below a notebook's cell, drawn in place, also where the notebook is exported."""

    encoding = "utf-8"

    def __init__(self) -> None:
        from IPython.display import display

        self._line = display({"text/plain": ""}, raw=True, display_id=True)

    def write(self, text: str) -> None:
        if text.strip():
            self._line.update({"text/plain": text.strip()}, raw=True)

    def flush(self) -> None:
        """Do nothing: a line is shown when it is written."""


class ProgressBar(Callback):
    """A progress bar on stderr: iterations, time left, rows per second, and quality.

    Quality means the objective, if the solver computes it, and the latest validation score, if
    there is one; otherwise the training loss. The bar also advances within long iterations, is
    redrawn every second, and names the loop that is being compiled, which does not count as
    time of the fit. Before the first iteration it shows the current phase and its duration.

    Parameters
    ----------
    file : text stream, default=None
        Where to draw. None means a line below the cell of a notebook, or ``sys.stderr`` if it
        is a terminal; otherwise nothing is drawn. It is ASCII if the stream is not Unicode.
    stream : bool, default=False
        For the calls of `partial_fit`: all calls take one line.
    """

    def __init__(self, file: TextIO | None = None, *, stream: bool = False) -> None:
        self.file, self.stream = file, stream
        self._cell: _Cell | None = None
        self._bar: Any = None
        self._phase: Any = None
        self._compiled = 0.0
        self._over: threading.Event | None = None  # set to end the drawing thread

    def _new_bar(self, **options: Any) -> Any:
        from tqdm import tqdm

        if self.file is None and "ipykernel" in sys.modules:
            self._cell = self._cell or _Cell()
        return tqdm(file=self.file or self._cell, dynamic_ncols=True, **options)

    def on_phase(self, name: str) -> None:
        """Show the phase and its duration, on a terminal only."""
        phase, self._phase = self._phase, None
        if phase is not None:
            phase.close()
        if name:
            self._phase = self._new_bar(
                desc=name, bar_format="{desc}: {elapsed}{postfix}", leave=False,
                disable=None if self.file is not None else not shows_bars(),
            )  # fmt: skip
        self._watch()

    def on_begin(self, solver: Any) -> None:
        self.on_phase("")
        self.on_end("restarted")
        if self.file is None and not shows_bars():
            return
        what = "partial_fit" if self.stream else "fit"
        what = f"{what} ({type(solver).__name__})"
        self._bar = self._new_bar(desc=what, unit="it", leave=not self.stream)
        self._compiled = compiling.compile_seconds()
        self._watch()

    def _watch(self) -> None:
        """Redraw from a thread, so that the bar moves during long steps too."""
        shown = self._bar is not None or self._phase is not None
        if shown and self._over is None:
            self._over = threading.Event()
            threading.Thread(target=self._draw, args=(self._over,), daemon=True).start()
        elif not shown and self._over is not None:
            self._over.set()
            self._over = None

    def _draw(self, over: threading.Event) -> None:
        while not over.wait(_BEAT):
            loop = compiling.watch.name
            for bar in (self._phase, self._bar):
                if bar is None:
                    continue
                with bar.get_lock():
                    if loop:
                        bar.set_postfix_str(f"compiling {loop}", refresh=False)
                    if bar is self._bar:
                        self._stop_clock(bar)
                    bar.refresh()

    def on_progress(self, iteration: float, max_iter: int | None) -> None:
        """Advance the bar within the iteration; it never moves backwards."""
        if self._bar is not None:
            self._move(max(self._bar.n, round(iteration, 2)), math.floor(iteration), max_iter)
        elif self._phase is not None:
            self._phase.set_postfix_str(f"iteration {iteration:.3g} of {max_iter}")

    def on_iteration(self, event: FitEvent) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(_quality(event), refresh=False)
            self._move(event.iteration, event.iteration - 1, event.max_iter)

    def _move(self, to: float, before: int, max_iter: int | None) -> None:
        """Show `to` iterations, `before` of which were done before this one."""
        bar = self._bar
        with bar.get_lock():
            self._stop_clock(bar)
            if bar.n == 0:
                # The speed of a continued fit must not count the iterations of earlier fits.
                bar.initial = bar.last_print_n = before
            bar.total, bar.n = max_iter, to
            bar.update(0)

    def _stop_clock(self, bar: Any) -> None:
        """Subtract the compilation time from the time of a bar."""
        now = compiling.compile_seconds()
        bar.start_t += now - self._compiled
        bar.last_print_t += now - self._compiled
        self._compiled = now

    def on_end(self, status: str) -> None:
        """Draw the last state and how the fit ended, if it ended early; close the bar."""
        bar, self._bar = self._bar, None
        self._watch()
        if bar is None:
            return
        if status in _ENDS and bar.total is not None:
            how = f"{bar.desc.removesuffix(': ')}: {_ENDS[status]} after {bar.n:g} of at most "
            bar.set_description_str(f"{how}{bar.total} iterations", refresh=False)
            if status == "converged":
                bar.total = bar.n
        if self.stream:
            bar.refresh()  # else a short call would show nothing
        bar.close()


class ProgressLog(Callback):
    """Log lines on stderr for batch jobs: phases, iterations, and how the fit ended.

    At most one iteration per second is logged, and always the last. Each line begins with the
    seconds since the first line.

    Parameters
    ----------
    file : text stream, default=None
        Where to write; None means ``sys.stderr``.
    stream : bool, default=False
        For the calls of `partial_fit`: a call logs its last iteration and the seconds of all
        calls, without a line for its beginning and end.
    """

    def __init__(self, file: TextIO | None = None, *, stream: bool = False) -> None:
        self.file, self.stream = file, stream
        self._start: float | None = None
        self._next = 0.0
        self._latest: FitEvent | None = None

    def _write(self, line: str, seconds: float | None = None) -> None:
        now = time.monotonic()
        self._start = now if self._start is None else self._start
        self._next, self._latest = now + _BEAT, None
        seconds = now - self._start if seconds is None else seconds
        print(f"{seconds:7.1f} s  {line}", file=self.file or sys.stderr, flush=True)

    def _write_event(self, event: FitEvent) -> None:
        end = "" if self.stream or event.max_iter is None else f" of at most {event.max_iter}"
        line = f"iteration {event.iteration}{end}: {_quality(event)}"
        self._write(line, event.seconds if self.stream else None)

    def on_phase(self, name: str) -> None:
        if name:
            self._write(name)

    def on_begin(self, solver: Any) -> None:
        if not self.stream:
            self._write(f"fit ({type(solver).__name__})")

    def on_iteration(self, event: FitEvent) -> None:
        self._latest = event
        if time.monotonic() >= self._next:
            self._write_event(event)

    def on_end(self, status: str) -> None:
        """Log the last iteration and how the fit ended."""
        if self._latest is not None:
            self._write_event(self._latest)
        if not self.stream:
            ends = {**_ENDS, "max_iter": "all iterations done"}
            self._write(ends.get(status, status))
        self._start = None
