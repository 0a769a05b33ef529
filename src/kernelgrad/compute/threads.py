"""The thread policy: BLAS uses one thread, and tiles run on a pool of threads.

Tiles call BLAS; threads in both places would compete for the same cores (a busy machine then
runs about ten times slower). Therefore every entry into the compiled loops runs under
:func:`single_threaded_blas` and distributes *tiles* over a thread pool. Tiles depend on shapes
only, and every output element is written by exactly one tile, in a fixed order, so results do
not depend on the number of threads.
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import numpy as np
import threadpoolctl

from kernelgrad.validation import check_int

_lock = threading.RLock()
_pools: dict[int, ThreadPoolExecutor] = {}
_requested: int | None = None
_controller: Any = None
_depth = 0
_limits: list[tuple[Any, int]] = []
_local = threading.local()
_OpenBlas: Any = getattr(threadpoolctl, "OpenBLASController", None)


def get_num_threads() -> int:
    """Return the number of threads in use.

    It is the last value given to :func:`set_num_threads`, otherwise the environment variable
    ``KERNELGRAD_NUM_THREADS``, otherwise the number of cores that this process may use.
    """
    wanted, env = _requested, os.environ.get("KERNELGRAD_NUM_THREADS")
    if wanted is None and env is None:
        has_affinity = hasattr(os, "sched_getaffinity")  # on Linux
        wanted = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    elif wanted is None:
        try:
            wanted = check_int(int(str(env)), "KERNELGRAD_NUM_THREADS", low=1)
        except ValueError as error:
            message = f"KERNELGRAD_NUM_THREADS must be a positive integer, got {env!r}."
            raise ValueError(message) from error
    most: int | None = getattr(_local, "most", None)
    return wanted if most is None else min(most, wanted)


def set_num_threads(n_threads: int | None) -> None:
    """Set the number of threads of this process; None returns to the default.

    Parameters
    ----------
    n_threads : int >= 1 or None
        The number changes the running time, but not the results.
    """
    global _requested
    _requested = None if n_threads is None else check_int(n_threads, "n_threads", low=1)


@contextmanager
def at_most(n_threads: int) -> Iterator[None]:
    """Limit the threads within the context, for tasks that take much memory each."""
    before = getattr(_local, "most", None)
    _local.most = n_threads if before is None else min(before, n_threads)
    try:
        yield
    finally:
        _local.most = before


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread within the context, for a task that runs in parallel with others."""
    with at_most(1), single_threaded_blas():
        yield


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit every loaded BLAS to one thread within the context; it nests and is thread-safe."""
    global _controller, _depth, _limits
    with _lock:
        if _depth == 0:
            if _controller is None:
                import scipy.linalg  # noqa: F401  its BLAS is limited only if it is loaded

                _controller = threadpoolctl.ThreadpoolController()
            _take_control()
            # what limit() of threadpoolctl does, in a tenth of its 30 microseconds
            libraries = [x for x in _controller.lib_controllers if x.user_api == "blas"]
            _limits = [(library, library.get_num_threads()) for library in libraries]
            for library in libraries:
                library.set_num_threads(1)
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _take_control()
                for library, n_threads in _limits:
                    library.set_num_threads(n_threads)
                _limits = []
                _take_control()


def _take_control() -> None:
    """Allow this thread, and any other thread afterwards, to set limits.

    Since threadpoolctl 3.8 limits of OpenBLAS, which apply to the process, are silently ignored
    in all threads except the one that set them last.
    """
    clear = getattr(_OpenBlas, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


def _pool(n_threads: int) -> ThreadPoolExecutor:
    with _lock:
        if n_threads not in _pools:
            _pools[n_threads] = ThreadPoolExecutor(n_threads, thread_name_prefix="kernelgrad")
        return _pools[n_threads]


def _forget_after_fork() -> None:
    # A forked child inherits the pool objects without their threads.
    global _lock, _depth, _limits
    _lock = threading.RLock()
    _depth = 0
    _limits = []
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


def parallel_for(n_tasks: int, task: Callable[[int], None]) -> None:
    """Call ``task(0), ..., task(n_tasks - 1)``, distributed over the threads.

    Tasks are assigned one by one, so that a core used by another process delays only one task.
    A task must write only its own part of the output.
    """
    n_threads = n_tasks if n_tasks <= 1 else min(get_num_threads(), n_tasks)
    if n_threads <= 1:
        for i in range(n_tasks):
            task(i)
        return
    counter = itertools.count()  # next() is atomic

    def work() -> None:
        with at_most(1):  # loops within a task would wait for its own thread
            while (i := next(counter)) < n_tasks:
                task(i)

    pool = _pool(n_threads)
    futures = [pool.submit(work) for _ in range(n_threads - 1)]
    try:
        work()
    finally:
        wait(futures)  # no task may write after this returns or raises
    for future in futures:
        future.result()


def over_tiles(n_rows: int, step: int, task: Callable[[int, int], None]) -> None:
    """Call ``task(r0, r1)`` for tiles of `step` rows, by :func:`parallel_for`."""
    parallel_for(-(-n_rows // step), lambda a: task(a * step, min(n_rows, (a + 1) * step)))


def sum_over_tiles(
    n_rows: int, step: int, group: int, task: Callable[[int, int, Any], None], out: Any
) -> None:
    """Call ``task(r0, r1, part)`` for tiles of rows and write the ordered sum to `out`.

    At most `group` parts exist at once.
    """
    out[:] = 0
    n_tiles = -(-n_rows // step)
    parts = np.empty((min(group, n_tiles), *out.shape), out.dtype)
    for first in range(0, n_tiles, group):

        def one(i: int, first: int = first) -> None:
            r0 = (first + i) * step
            task(r0, min(n_rows, r0 + step), parts[i])

        used = parts[: n_tiles - first]
        parallel_for(len(used), one)
        for part in used:
            out += part


def parallel_map(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Return the values of a function for some items, which the threads share."""
    results: list[Any] = [None] * len(items)

    def task(i: int) -> None:
        results[i] = function(items[i])

    parallel_for(len(items), task)
    return results
