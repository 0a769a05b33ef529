"""How much memory there is, and how much of it is taken."""

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Iterator

from kernelgrad.compute.threads import at_most

LEAST_LIMIT = 100_000_000
"""Least memory limit, in bytes, that is a bound. Below, it says where rows stay, and a fit
still takes what its work arrays of fixed size need."""

_UNKNOWN = 8 * 2**30  # memory, in bytes, of a system that does not tell
_THREAD_BYTES = 64_000_000  # bytes of a limit for each thread: its tiles take less
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # numbers of glibc's options
# Bytes from which arrays are mapped, and returned to the system when they are freed. Tiles of
# kernel values, 8 MiB, stay; larger arrays, such as the Hessians of blocks, would leave holes.
_RETURNED = 2**23 + 2**12


@functools.cache
def system_bytes() -> int:
    """Return the memory of the system in bytes; 8 GiB where it does not tell."""
    total = 0
    with contextlib.suppress(AttributeError, ValueError, OSError):
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return total if total > 0 else _UNKNOWN


def available_bytes() -> float:
    """Return the memory in bytes that is left to this process, as far as the system tells."""
    left = [float(system_bytes())]
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/meminfo") as file:
            left += [1024.0 * int(x.split()[1]) for x in file if x.startswith("MemAvailable")]
        with open("/sys/fs/cgroup/memory.max") as file:  # a container's; "max" is no limit
            left.append(float(file.read()))
    return min(left)


@functools.cache
def keep_freed_memory() -> None:
    """Let the C library keep up to 128 MiB that this process has freed, where it can.

    The nannies of dask ask it to give back all it can: each tile of a product then faults its
    pages in anew, which takes as long as the product.
    """
    _set_allocator(2**25, 2**27)


@contextlib.contextmanager
def within(limit: float | None) -> Iterator[None]:
    """Let what is done inside hold a memory limit; None is no limit.

    There are only as many threads as there is room for their tiles. The C library gives arrays
    back when they are freed, from then on: else it keeps up to 64 MiB of them for later, as
    it learns to from the arrays that it has seen.
    """
    if limit is None:
        yield
        return
    if not keep_freed_memory.cache_info().currsize:
        _set_allocator(_RETURNED, _RETURNED)
    with at_most(max(1, int(min(sys.maxsize, limit / _THREAD_BYTES)))):
        yield


def give_back() -> None:
    """Give free memory between arrays in use to the system, where the C library can."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
    if "pyarrow" in sys.modules:  # which has memory of its own
        sys.modules["pyarrow"].default_memory_pool().release_unused()


@functools.cache
def _set_allocator(mapped: int, free: int) -> None:
    """Map arrays of at least `mapped` bytes, and keep at most `free` bytes that are unused."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, mapped)
        mallopt(_M_TRIM_THRESHOLD, free)
