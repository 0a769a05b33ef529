"""Whether a file is still the one that was opened."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernelgrad.exceptions import DataError

_BLOCK, _BLOCKS = 2**20, 256  # bytes that a digest takes at once, and how often


def spread(size: int, step: int) -> list[int]:
    """Return where blocks of `step` begin that cover `size`, or 256 of them from all over."""
    starts = range(0, size, step)
    chosen = np.linspace(0, len(starts) - 1, min(len(starts), _BLOCKS))
    return [starts[round(i)] for i in chosen.tolist()]


@dataclass(frozen=True)
class Stamp:
    """Size, time of the last change and inode of a file."""

    path: Path
    found: tuple[int, int, int]

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Return the stamp of a file as it is now."""
        return cls(path, _state(path))

    def digest(self) -> bytes:
        """Return a digest of all bytes up to 256 MiB, of larger files of as many all over."""
        digest = hashlib.blake2b(str(self.found[0]).encode(), digest_size=16)
        with self.unchanged(), self.path.open("rb") as file:
            for start in spread(self.found[0], _BLOCK):
                file.seek(start)
                digest.update(file.read(_BLOCK))
        return digest.digest()

    def check(self) -> None:
        """Raise if the file has changed since."""
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
        """Check before a read, since maps of files cut short crash, and after it."""
        self.check()
        try:
            yield
        except Exception:
            self.check()  # otherwise the error is of the file as it was
            raise
        self.check()


def _state(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino
