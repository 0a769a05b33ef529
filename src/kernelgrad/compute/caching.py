"""The cache of compiled loops on disk, which tolerates read-only folders.

If no folder is writable, loops are compiled anew in every process, with a warning. This is the
only module that imports numba when it is imported.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.extending import overload as overload

from kernelgrad.version import __version__


class _Cache(FunctionCache):
    """A cache whose failures do not stop the program."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp(), __version__, _last_change()
        self._cache_file = IndexDataCacheFile(self._cache_path, self._impl.filename_base, stamp)
        # compared first: the rest may name classes that only other versions have
        self._cache_file._version += f" {stamp}"

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn(
                f"Compiled loops cannot be kept in {self.cache_path} ({error.strerror}): other "
                "processes compile them again"
            )


@functools.cache
def _last_change() -> int:
    """Return when a file with loops changed last: loops contain those of other files."""
    files = Path(__file__).parents[1].rglob("*.py")
    changes = (f.stat().st_mtime_ns for f in files if b"compute.compiling" in f.read_bytes())
    return max(changes, default=0)


class Listener(event.Listener):
    """Calls `start` with each function before its compilation, and `stop` after it."""

    def __init__(self, start: Callable[[Any], None], stop: Callable[[], None]) -> None:
        self._start, self._stop = start, stop
        event.register("numba:compile", self)

    def on_start(self, event: Any) -> None:
        self._start(event.data["dispatcher"].py_func)

    def on_end(self, event: Any) -> None:
        self._stop()


def dispatcher(function: Callable[..., Any], cache: bool, options: dict[str, Any]) -> Any:
    """Return numba's dispatcher of a function, with a cache that tolerates failures."""
    loop: Any = numba.njit(**options)(function)
    if cache and hasattr(loop, "enable_caching"):  # a plain function if numba is disabled
        loop._cache = _cache_of(function)
    return loop


def _cache_of(function: Callable[..., Any]) -> Any:
    """Return the cache of a loop; one that keeps nothing if no folder can be written."""
    try:
        return _Cache(function)
    except RuntimeError:
        _warn_once()
        return NullCache()


@functools.cache
def _warn_once() -> None:
    _warn(
        "Every process compiles loops anew, as neither the folder of kernelgrad nor that of "
        "the user can be written"
    )


def _warn(what: str) -> None:
    message = f"{what}; set NUMBA_CACHE_DIR to a folder that stays and can be written."
    warnings.warn(message, UserWarning, stacklevel=3)
