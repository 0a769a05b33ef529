"""What is wrong with a file is said with its name."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelgrad.exceptions import DataError


@contextmanager
def decoding(path: Path, cannot: str, remedy: str) -> Iterator[None]:
    """Turn whatever a decoder raises for damaged bytes into one error.

    Decoders are not made for damage, so that it may be of any kind. Errors of this package and
    of the operating system pass, and those of missing packages.
    """
    try:
        yield
    except (DataError, ImportError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # damaged offsets are invalid arguments
        if isinstance(error, MemoryError):
            remedy = "it is damaged, or needs more memory"
        raise DataError(f"{path} {cannot} ({error}); {remedy}.") from error


@contextmanager
def within(*paths: Path) -> Iterator[None]:
    """Put the names of files before an error about the values that they hold."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if not paths or str(paths[0]) in str(error):
            raise
        kind = type(error) if isinstance(error, DataError) else DataError
        raise kind(f"{' and '.join(map(str, paths))}: {error}") from None
