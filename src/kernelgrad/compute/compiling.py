"""Loops that numba compiles at their first call, and the time that this takes.

numba is imported when the first loop runs, so that importing this package, and what NumPy and
BLAS compute alone, need no compiler. Compiled loops are kept on disk, see
:mod:`kernelgrad.compute.caching`: each machine compiles a loop once per version. This time is
not part of an algorithm, so :func:`clock` excludes it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cache, update_wrapper
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
_lock = threading.RLock()
_preparations: list[Callable[[], Any]] = []  # run before the next loop, and may import numba


class Loop:
    """A function that numba compiles when Python or another loop first calls it.

    Like numba's dispatchers it holds the function itself as `py_func`.
    """

    def __init__(self, py_func: Callable[..., Any], cache: bool, options: dict[str, Any]):
        update_wrapper(self, py_func)
        self.py_func, self.options, self._cache = py_func, options, cache
        self._dispatcher: Any = None

    def __call__(self, *args: Any) -> Any:
        ready = None if _preparations else self._dispatcher
        return (ready or self.dispatcher)(*args)

    @property
    def dispatcher(self) -> Any:
        """The dispatcher that numba makes of the function."""
        with _lock:
            caching = _import_caching()
            while _preparations:
                _preparations.pop(0)()
            if self._dispatcher is None:
                self._dispatcher = caching.dispatcher(self.py_func, self._cache, self.options)
        return self._dispatcher

    @property
    def _numba_type_(self) -> Any:  # numba asks for it when another loop uses this one
        return self.dispatcher._numba_type_

    def __reduce__(self) -> str:  # pickled by name, like a function
        return self.py_func.__qualname__


def njit(*, cache: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Loop]:
    """Return the decorator that makes a :class:`Loop`, by options of ``numba.njit``.

    With `cache` the compiled loop is kept on disk.
    """
    return lambda function: Loop(function, cache, options)


def overload(function: Callable[..., Any], **options: Any) -> Callable[[Function], Function]:
    """Return numba's ``overload`` decorator, which takes effect before the next loop runs."""

    def register(choose: Function) -> Function:
        options["strict"] = False
        _preparations.append(lambda: _import_caching().overload(function, **options)(choose))
        return choose

    return register


def usable_in_loops(function: Any) -> Any:
    """Let loops call a function that Python runs as it is."""
    overload(function)(lambda *args, **kwargs: function)
    return function


@cache
def _import_caching() -> Any:
    start = time.perf_counter()
    from kernelgrad.compute import caching

    caching.Listener(lambda function: watch.start(function), lambda: watch.stop())
    watch.add(time.perf_counter() - start)
    return caching


class Watch:
    """Measures the time of compilation; numba's lock lets one thread compile at a time."""

    def __init__(self) -> None:
        self.loops = 0
        self.name = ""  # the outermost loop that is being compiled
        self._depth = 0  # nesting: a loop compiles the loops that it calls
        self._spent: tuple[float, float | None] = (0.0, None)  # seconds, and the current start

    def start(self, function: Callable[..., Any]) -> None:
        self.loops += function.__module__.startswith("kernelgrad.")
        self._depth += 1
        if self._depth == 1:
            self.name, self._spent = function.__name__, (self._spent[0], time.perf_counter())

    def stop(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.name, self._spent = "", (self.seconds(), None)

    def add(self, seconds: float) -> None:
        self._spent = self._spent[0] + seconds, self._spent[1]

    def seconds(self) -> float:
        total, since = self._spent
        return total if since is None else total + time.perf_counter() - since


watch = Watch()


def compile_seconds() -> float:
    """Return the seconds that this process has spent compiling loops."""
    return watch.seconds()


def clock() -> float:
    """Return the time in seconds, without the time spent compiling loops."""
    return time.perf_counter() - watch.seconds()
