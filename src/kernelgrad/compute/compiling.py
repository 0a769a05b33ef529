"""When loops are compiled, and how long that takes.

numba compiles a loop when it is first called with arguments of some types, and keeps it on
disk: once for each machine and version. The time that takes says nothing about an algorithm,
so :func:`clock` stands still meanwhile.
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


_PATIENCE = 1.0  # seconds of compilation that need no word


def looked_at() -> bool:
    """Whether somebody may be looking at stderr."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class _Watch(event.Listener):
    """Adds up the time of compilation; numba's lock lets one thread compile at a time."""

    def __init__(self) -> None:
        self.loops = 0
        self.depth = 0  # a loop compiles those that it calls
        self.name = ""  # of the outermost
        self.spent: tuple[float, float | None] = (0.0, None)  # seconds, and since when more
        self.fits = self.listeners = 0  # that go on, and those of them that are to tell
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
        """Say that loops are compiled, the first time."""
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
    """Return the seconds that this process has spent on compiling loops."""
    return _watch.seconds()


def compiled_loops() -> int:
    """Return how many loops of this package this process has compiled."""
    return _watch.loops


def compiling() -> str | None:
    """Return the name of the loop that is being compiled, None where none is."""
    return _watch.name if _watch.depth else None


def clock() -> float:
    """Return seconds since some moment, less those spent on compiling loops."""
    return time.perf_counter() - compile_seconds()


@contextmanager
def announced(wanted: bool) -> Iterator[None]:
    """Tell on stderr, once in a process, that a loop is compiled while inside.

    Where nobody `wanted` it, terminals and notebooks are told if it takes more than a second.
    """
    _watch.fits += 1
    _watch.listeners += wanted
    try:
        yield
    finally:
        _watch.fits -= 1
        _watch.listeners -= wanted
