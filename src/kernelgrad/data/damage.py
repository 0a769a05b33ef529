"""Errors about a file name the file."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelgrad.exceptions import DataError


@contextmanager
def decoding(path: Path, cannot: str, remedy: str) -> Iterator[None]:
    """Convert any exception that a decoder raises for damaged bytes to DataError.

    Decoders may raise exceptions of any type for damaged files. Errors of this package, of the
    operating system and of missing packages pass unchanged.
    """
    try:
        yield
    except (DataError, ImportError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # damaged offsets cause EINVAL
        if isinstance(error, MemoryError):
            remedy = "it is damaged, or needs more memory"
        raise DataError(f"{path} {cannot} ({error}); {remedy}.") from error


@contextmanager
def within(*paths: Path) -> Iterator[None]:
    """Prefix an error about values with the names of the files that hold them."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if not paths or str(paths[0]) in str(error):
            raise
        kind = type(error) if isinstance(error, DataError) else DataError
        raise kind(f"{' and '.join(map(str, paths))}: {error}") from None
