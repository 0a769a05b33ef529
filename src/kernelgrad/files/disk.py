"""Atomic writes, and temporary files that are removed even after a kill."""

import io
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import weakref
from collections import UserDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from kernelgrad.types import AnyArray

if sys.platform != "win32":
    import fcntl

_TEMPORARY = re.compile(r"\.kernelgrad-[0-9a-f]{16}\.tmp")
_ABANDONED = 3600.0  # seconds without a change before anything unlocked is taken for a remnant
ROOM = "set TMPDIR to a folder with more room"
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def special(path: str | os.PathLike[str]) -> str | None:
    """Return a description of the object at a path if it is not a regular file, else None."""
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    except FileNotFoundError:
        return None


def check_target(path: str | os.PathLike[str], what: str = "file") -> None:
    """Raise unless a file can be created or replaced at a path."""
    folder = Path(os.path.realpath(path)).parent
    kind = special(path)
    if kind is not None:
        error = IsADirectoryError if kind == "a folder" else ValueError
        raise error(f"The {what} {path} is {kind}; give the name of a file.")
    if not folder.is_dir():
        raise FileNotFoundError(
            f"There is no folder {str(folder)!r} for the {what}; create it first."
        )


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a file that appears at `path` only when it is complete and on disk.

    After a failure, including interrupts, an existing file is unchanged and no other file is
    left; symbolic links are followed. Temporary files left by a kill are removed by a later
    call once they are an hour old.
    """
    check_target(path)
    target = Path(os.path.realpath(path))
    temporary = _temporary(target.parent)
    try:
        with _Named(temporary, path) as raw, io.BufferedWriter(raw) as file:
            _remove_abandoned(temporary)
            yield file
            file.flush()
            with named(path):
                os.fsync(file.fileno())
        with named(path):
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):  # the first error tells more
            temporary.unlink()
        raise
    # some folders cannot be opened (Windows) or synchronised; the file is there all the same
    with suppress(OSError):
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class ScratchFolder:
    """A folder below TMPDIR, removed with the object, or by others an hour after a kill."""

    def __init__(self) -> None:
        self.path = _temporary(Path(tempfile.gettempdir()))
        locks: list[int] = []
        weakref.finalize(self, _remove, self.path, locks)  # first: whatever fails from here on
        with named(self.path, ROOM):
            self.path.mkdir(mode=0o700)
        locks += _lock(self.path)
        _remove_abandoned(self.path)


def _temporary(folder: Path) -> Path:
    return folder / f".kernelgrad-{secrets.token_hex(8)}.tmp"


class _Named(io.FileIO):
    """A new temporary file, locked, whose errors name the file that it is to become."""

    def __init__(self, temporary: Path, path: Any) -> None:
        self._path = path
        with named(path):
            super().__init__(temporary, "x")
        _try_lock(self.fileno())

    def write(self, data: Any) -> int:
        with named(self._path):
            return super().write(data)


@contextmanager
def named(path: Any, remedy: str = "make room or choose another place") -> Iterator[None]:
    """Make errors of writing name the file and a remedy."""
    try:
        yield
    except OSError as error:
        why = f"{error.strerror}, so nothing was written; {remedy}"
        raise OSError(error.errno, why, os.fspath(path)) from None


def _lock(path: Path) -> list[int]:
    """Open and lock a temporary file or folder, if possible."""
    if sys.platform == "win32":
        return []
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW)
    except OSError:
        return []
    if _try_lock(descriptor):
        return [descriptor]
    os.close(descriptor)
    return []


def _try_lock(descriptor: int) -> bool:
    """Take the lock that shows other processes that this one lives; return the success."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_abandoned(own: Path) -> None:
    """Remove temporary files that killed processes of this user left in the same folder."""
    with suppress(OSError):
        new = own.lstat()  # the time of the disk, whose clock may be another one
        for entry in os.scandir(own.parent):
            if _TEMPORARY.fullmatch(entry.name):
                _remove_if_abandoned(Path(entry.path), new)


def _remove_if_abandoned(path: Path, new: os.stat_result) -> None:
    with suppress(OSError):
        old = path.lstat()
        if old.st_uid != new.st_uid or new.st_mtime - old.st_mtime < _ABANDONED:
            return
        locks = _lock(path)
        if locks:
            _remove(path, locks)


def _remove(path: Path, locks: list[int]) -> None:
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        path.unlink()  # if it is a file
    for descriptor in locks:
        os.close(descriptor)


class Scratch(UserDict[str, Any]):
    """Arrays in files of a folder; each access maps one, and none stays mapped."""

    def __init__(self, folder: str, prefix: str) -> None:
        super().__init__()  # its data are the shapes
        self._folder, self._prefix = folder, prefix

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, f"{self._prefix}.{name}")

    def __getitem__(self, name: str) -> Any:
        shape = self.data[name]
        return np.memmap(self._path(name), np.float32, "r+", shape=shape).view(np.ndarray)

    def __setitem__(self, name: str, value: AnyArray) -> None:
        # a new file: arrays that were mapped before keep what they show
        path = self._path(name)
        plain = np.ascontiguousarray(value, np.float32).reshape(-1).view(np.uint8)
        with named(path, ROOM), open(f"{path}.new", "wb") as file:
            file.write(plain.data)
        os.replace(f"{path}.new", path)
        self.data[name] = value.shape

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        os.unlink(self._path(name))
