"""Bytes that the rows of a source need, and those that a limit allows."""

from __future__ import annotations

from kernelgrad.compute.memory import LEAST_LIMIT, system_bytes
from kernelgrad.data.base import BatchSource
from kernelgrad.exceptions import CapabilityError


def usable_memory(memory_limit: float | None) -> float:
    """Return the memory limit in bytes; None means half of the system's memory, or 4 GiB."""
    return 0.5 * system_bytes() if memory_limit is None else float(memory_limit)


def bytes_needed(n_rows: int, row_bytes: float, n_outputs: int = 1) -> float:
    """Return the bytes of rows in memory, a copy of them and their responses (n, C)."""
    return 2.0 * row_bytes + 72.0 * n_rows * n_outputs  # responses, steps and coefficients


def fits_in_memory(source: BatchSource, memory_limit: float | None) -> bool:
    """Whether the rows of a source are in memory, or few enough to be read into it."""
    needed = bytes_needed(source.n_rows, source.nbytes)
    return source.in_memory or needed <= usable_memory(memory_limit)


def check_reading(source: BatchSource, memory_limit: float | None) -> None:
    """Raise CapabilityError if reading the source takes more memory than the limit allows."""
    if memory_limit is None or memory_limit < LEAST_LIMIT or not source.reading_bytes:
        return
    least = source.reading_bytes + 64 * 2**20  # the work of a fit
    if least > memory_limit:
        raise CapabilityError(
            f"A fit from this {type(source).__name__} needs at least {least:.3g} bytes, more "
            f"than memory_limit={memory_limit:.3g}, with {source.reading_bytes:.3g} to read; "
            "raise it, or write the rows as Parquet with smaller row groups."
        )
