"""How much memory there is, and how much of it is taken."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os

_UNKNOWN = 8 * 2**30
_TRIM, _MAP = -1, -3  # numbers of glibc's options
_MAPPED, _KEPT = 2**25, 2**27


def system_bytes() -> int:
    """Return the memory of the system in bytes; 8 GiB where it does not tell."""
    total = 0
    with contextlib.suppress(AttributeError, ValueError, OSError):
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return total if total > 0 else _UNKNOWN


def resident_bytes() -> int | None:
    """Return the resident memory of this process in bytes; None where it is not told."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


@functools.cache
def keep_freed_memory() -> None:
    """Let the C library keep up to 128 MiB that this process has freed, where it can.

    The nannies of dask ask it to give back all it can: each tile of a product then faults its
    pages in anew, which takes as long as the product.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MAP, _MAPPED)
        mallopt(_TRIM, _KEPT)
