"""How much memory there is, and how much of it is taken."""

from __future__ import annotations

import contextlib
import os

_UNKNOWN = 8 * 2**30


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
