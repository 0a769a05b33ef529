"""Measures and announces the compilation of loops.

numba compiles a loop when it is first called with arguments of some types, and caches it on
disk, so each machine compiles it once per version. This time is not part of an algorithm, so
:func:`clock` excludes it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

_NOTICE = "Compiling loops, once per machine (all at once: kernelgrad warmup) ..."


_PATIENCE = 1.0  # seconds of compilation before it is announced


def looked_at() -> bool:
    """Return whether stderr is a terminal or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class _Watch(event.Listener):
    """Measures the time of compilation; numba's lock lets one thread compile at a time."""

    def __init__(self) -> None:
        self.loops = 0
        self.depth = 0  # nesting: a loop compiles the loops that it calls
        self.name = ""  # of the outermost loop
        self.spent: tuple[float, float | None] = (0.0, None)  # seconds, and the current start
        self.fits = self.listeners = 0  # running fits, and those that want announcements
        self.told = False
        self.timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        self.loops += event.data["dispatcher"].py_func.__module__.startswith("kernelgrad.")
        self.depth += 1
        if self.depth > 1:
            return
        self.name = event.data["dispatcher"].py_func.__name__
        self.spent = (self.spent[0], time.perf_counter())
        if self.told or not self.fits or not (self.listeners or looked_at()):
            return
        patience = 0.0 if self.listeners else _PATIENCE - self.spent[0]
        if patience <= 0.0:
            self.tell()
        else:
            self.timer = threading.Timer(patience, self.tell)
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.spent = (self.seconds(), None)
            if self.timer is not None:
                self.timer.cancel()

    def tell(self) -> None:
        """Announce compilation, once per process."""
        if not self.told:
            from tqdm import tqdm

            self.told = True
            tqdm.write(_NOTICE, file=sys.stderr)

    def seconds(self) -> float:
        total, since = self.spent
        return total if since is None else total + time.perf_counter() - since


_watch = _Watch()
event.register("numba:compile", _watch)


def compile_seconds() -> float:
    """Return the seconds that this process has spent compiling loops."""
    return _watch.seconds()


def compiled_loops() -> int:
    """Return the number of loops of this package compiled by this process."""
    return _watch.loops


def compiling() -> str | None:
    """Return the name of the loop that is being compiled, or None."""
    return _watch.name if _watch.depth else None


def clock() -> float:
    """Return the time in seconds, without the time spent compiling loops."""
    return time.perf_counter() - compile_seconds()


@contextmanager
def announced(wanted: bool) -> Iterator[None]:
    """Announce compilation within the context on stderr, once per process.

    Unless `wanted`, it is announced only on terminals and in notebooks, after one second.
    """
    _watch.fits += 1
    _watch.listeners += wanted
    try:
        yield
    finally:
        _watch.fits -= 1
        _watch.listeners -= wanted
