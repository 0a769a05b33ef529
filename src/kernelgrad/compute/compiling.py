"""When loops are compiled, how long that takes, and where they are kept.

numba compiles a loop when it is first called with arguments of some types, and keeps it on
disk: once for each machine and version. The time that takes says nothing about an algorithm,
so :func:`clock` stands still meanwhile.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from numba import config, njit
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


def _private_folder() -> str:
    """Return a temporary folder that only this user can write, as what it holds is executed."""
    if hasattr(os, "getuid"):  # one folder for all processes; elsewhere each has its own
        path = Path(tempfile.gettempdir()) / f"kernelgrad-numba-{os.getuid()}"
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        found = path.lstat()
        if found.st_mode == stat.S_IFDIR | 0o700 and found.st_uid == os.getuid():
            return str(path)
    return tempfile.mkdtemp(prefix="kernelgrad-numba-")


def _nothing() -> None:
    """Do nothing: numba tells where it would keep this loop."""


def _first_loop() -> Any:
    """Return a loop that is kept on disk; where numba finds no folder, give it one before.

    Without a folder numba would raise for every loop, as soon as its module is imported.
    """
    try:
        return njit(cache=True)(_nothing)
    except RuntimeError:
        os.environ["NUMBA_CACHE_DIR"] = _private_folder()  # for child processes too
        config.reload_config()
        warnings.warn(
            f"Compiled loops are kept in the temporary folder {config.CACHE_DIR}, as neither "
            "the folder of kernelgrad nor that of the user can be written; set NUMBA_CACHE_DIR "
            "to a folder that stays.",
            UserWarning,
            stacklevel=2,
        )
        return njit(cache=True)(_nothing)


_first = _first_loop()


def cache_folder() -> Path:
    """Return the folder below which compiled loops are kept."""
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR)
    path = Path(_first.stats.cache_path)
    return path.parent.parent if path.name == "__pycache__" else path.parent
