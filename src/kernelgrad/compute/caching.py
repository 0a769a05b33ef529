"""The cache of compiled loops on disk, which tolerates damaged files and read-only folders.

numba trusts the files of its cache. Here every file ends with its SHA-256 and names its
contents. A file damaged by a full disk, a kill or a bad sector counts as missing, and its loop
is compiled and written again. If no folder is writable, loops are compiled anew in every
process, with a warning. This is the only module that imports numba when it is imported.
"""

from __future__ import annotations

import functools
import io
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
from numba import config
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.extending import overload as overload

import kernelgrad

_DIGEST = sha256().digest_size


class _Files(IndexDataCacheFile):
    """The index of a loop and its machine code; incomplete files count as missing."""

    def save(self, key: Any, data: Any) -> None:
        # a kill between the two files, or a race, must not return code for other types
        super().save(key, (key, self._source_stamp, data))

    def load(self, key: Any) -> Any:
        *stamp, code = super().load(key) or (None,)
        return code if stamp == [key, self._source_stamp] else None

    def _load_index(self) -> Any:
        try:
            _check_whole(self._index_path)
            return super()._load_index()
        except OSError:
            return {}

    def _load_data(self, name: str) -> Any:
        _check_whole(self._data_path(name))  # an OSError tells numba that the file is missing
        return super()._load_data(name)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        content = io.BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            file.write(content.getvalue() + sha256(content.getvalue()).digest())


def _check_whole(path: str) -> None:
    content = Path(path).read_bytes()  # unpickling stops before the digest
    if sha256(content[:-_DIGEST]).digest() != content[-_DIGEST:]:
        raise OSError(f"{path} is damaged")


class _Cache(FunctionCache):
    """A cache whose failures do not stop the program."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        # functions of other modules that a loop calls may differ between versions
        stamp = (self._impl.locator.get_source_stamp(), kernelgrad.__version__)
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn(
                f"Compiled loops cannot be kept in {cache_folder()} ({error.strerror}): other "
                "processes compile them again"
            )


class Listener(event.Listener):
    """Calls `start` with each function before its compilation, and `stop` after it."""

    def __init__(self, start: Callable[[Any], None], stop: Callable[[], None]) -> None:
        self._start, self._stop = start, stop
        event.register("numba:compile", self)

    def on_start(self, event: Any) -> None:
        self._start(event.data["dispatcher"].py_func)

    def on_end(self, event: Any) -> None:
        self._stop()


def dispatcher(function: Callable[..., Any], cache: bool, options: dict[str, Any]) -> Any:
    """Return numba's dispatcher of a function, with a cache that tolerates damage."""
    loop: Any = numba.njit(**options)(function)
    if cache and hasattr(loop, "enable_caching"):  # a plain function if numba is disabled
        loop._cache = _cache_of(function)
    return loop


def _cache_of(function: Callable[..., Any]) -> Any:
    """Return the cache of a loop, in a temporary folder if numba finds no other."""
    with suppress(RuntimeError):
        return _Cache(function)
    if _make_folder():
        with suppress(RuntimeError):
            return _Cache(function)
    return NullCache()


@functools.cache
def _make_folder() -> bool:
    """Use a temporary folder for the cache from now on; return whether this succeeded."""
    where, succeeded = "in no folder: every process compiles them anew", False
    with suppress(OSError):
        os.environ["NUMBA_CACHE_DIR"] = _private_folder()  # for child processes too
        config.reload_config()
        where, succeeded = f"in the temporary folder {config.CACHE_DIR}", True
    _warn(
        f"Compiled loops are kept {where}, as neither the folder of kernelgrad nor that of the "
        "user can be written"
    )
    return succeeded


def _warn(what: str) -> None:
    message = f"{what}; set NUMBA_CACHE_DIR to a folder that stays and can be written."
    warnings.warn(message, UserWarning, stacklevel=3)


def _private_folder() -> str:
    """Return a temporary folder that only this user can write, as its files are executed."""
    if hasattr(os, "getuid"):  # one folder for all processes; elsewhere each has its own
        path = Path(tempfile.gettempdir()) / f"kernelgrad-numba-{os.getuid()}"
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        state = path.lstat()
        if state.st_mode == stat.S_IFDIR | 0o700 and state.st_uid == os.getuid():
            return str(path)
    return tempfile.mkdtemp(prefix="kernelgrad-numba-")


def cache_folder() -> Path | None:
    """Return the folder of the compiled loops; None if they are not kept."""
    path = _cache_of(cache_folder).cache_path
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR)
    if path is None:
        return None
    return Path(path).parents[1] if Path(path).name == "__pycache__" else Path(path).parent
