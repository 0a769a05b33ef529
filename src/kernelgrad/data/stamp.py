"""Detects whether a file has changed since it was opened."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernelgrad.exceptions import DataError

_BLOCK, _BLOCKS = 2**20, 256  # bytes per block of a digest, and the number of blocks


def spread(size: int, step: int) -> list[int]:
    """Return the starts of blocks of `step` that cover `size`, or of 256 spread evenly."""
    starts = range(0, size, step)
    chosen = np.linspace(0, len(starts) - 1, min(len(starts), _BLOCKS))
    return [starts[round(i)] for i in chosen.tolist()]


@dataclass(frozen=True)
class Stamp:
    """Size, modification time and inode of a file."""

    path: Path
    found: tuple[int, int, int]

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Return the current stamp of a file."""
        return cls(path, _state(path))

    def digest(self) -> bytes:
        """Return a digest of all bytes, or of 256 MiB spread evenly over a larger file."""
        digest = hashlib.blake2b(str(self.found[0]).encode(), digest_size=16)
        with self.unchanged(), self.path.open("rb") as file:
            for start in spread(self.found[0], _BLOCK):
                file.seek(start)
                digest.update(file.read(_BLOCK))
        return digest.digest()

    def check(self) -> None:
        """Raise DataError if the file has changed."""
        try:
            same = _state(self.path) == self.found
        except FileNotFoundError:
            same = False
        if not same:
            raise self.changed()

    def changed(self) -> DataError:
        """Return the error for a file that has changed."""
        return DataError(
            f"{self.path} has changed since it was opened; open it again, and leave it "
            "unchanged while it is in use."
        )

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Check before a read, as mapping a truncated file can crash, and after it."""
        self.check()
        try:
            yield
        except Exception:
            self.check()  # if it passes, the error belongs to the unchanged file
            raise
        self.check()


def _state(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino
