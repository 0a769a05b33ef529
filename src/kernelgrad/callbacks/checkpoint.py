"""The state of a fit on disk, to go on from after a crash."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kernelgrad.callbacks.base import Callback
from kernelgrad.exceptions import ModelFileError, NewerFileError
from kernelgrad.files.container import prefixed, read_container, write_container
from kernelgrad.files.disk import replacing
from kernelgrad.files.records import Record, anything, check_text, or_none, restoring
from kernelgrad.types import Contents
from kernelgrad.validation import check_bool, check_int, check_real

T = TypeVar("T")
_ENDED = ("converged", "max_iter", "stopped")
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_NAME = re.compile(r"checkpoint-(\d+)\.kgc")


@dataclass
class _Files:
    """The files of a checkpoint, and their contents besides the state of the loop."""

    good: list[Path] = field(default_factory=list)  # readable ones, the latest last
    spent: float = 0.0  # seconds of the fit before it was resumed
    # parts of the file that is resumed, taken as they are asked for: what must be the same,
    # what was chosen, and where to go on
    before: Record | None = None
    choice: Record | None = None
    loop: Record | None = None
    identity: dict[str, Any] = field(default_factory=dict)  # what must be the same, of this fit
    chosen: Contents | None = None  # the choice of this fit
    begun: float = field(default_factory=time.monotonic)  # seconds of the clock at its begin
    last: float = field(default_factory=time.monotonic)  # seconds of the clock at the last file
    steps: int = 0  # iterations since then


class Checkpoint(Callback):
    """Write the state of a fit to a folder at intervals, so that it survives a crash.

    With the same rows, parameters, version and processor a resumed fit gives the same model as
    an uninterrupted one, bit for bit. Files are written atomically. A damaged file is skipped
    with a warning; one with a valid checksum that this fit cannot have written is a
    ModelFileError, and other rows, parameters, versions or files are a ValueError before any
    work. If a file cannot be written, for example because the disk is full, a warning is issued
    and the fit continues. A last checkpoint is written at the end of the fit and after Ctrl-C.

    Parameters
    ----------
    folder : path
        Created if it does not exist. It must hold the checkpoints of one fit and nothing else.
    every : str or int, default="60 s"
        Time between two checkpoints, in ``s``, ``min`` or ``h``. A crash loses at most this
        much work plus the running iteration. An integer counts iterations instead.
    keep : int, default=2
        Number of files to keep. The second latest is a reserve in case the latest is damaged.
    resume : bool, default=False
        If True, resume from the latest checkpoint, or start from the beginning if there is
        none: a script with ``Checkpoint(folder, resume=True)`` can be rerun until it has
        finished. If False, a folder that holds an unfinished fit raises an error.

    Attributes
    ----------
    n_written : int
        Number of files written in the last fit.
    seconds : float
        Time spent writing them, in seconds.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from kernelgrad import KernelRegressor
    >>> from kernelgrad.callbacks import Checkpoint
    >>> saved = Checkpoint(tempfile.mkdtemp(), every="5 min", resume=True)
    >>> X = np.linspace(-3, 3, 400)[:, None]
    >>> model = KernelRegressor(random_state=0, callbacks=[saved]).fit(X, np.sin(X[:, 0]))
    """

    def __init__(
        self, folder: str | os.PathLike[str], every: str | int = "60 s", keep: int = 2,
        resume: bool = False,
    ) -> None:  # fmt: skip
        self.folder = Path(folder)
        self.every = every
        self._seconds = _interval(every)
        self.keep = check_int(keep, "keep", low=1)
        self.resume = check_bool(resume, "resume")
        self.n_written, self.seconds = 0, 0.0
        self._files: _Files | None = None

    @property
    def saved(self) -> list[Path]:
        """The files in the folder, the latest last."""
        names = ((_NAME.fullmatch(path.name), path) for path in self.folder.glob("*"))
        return [path for _, path in sorted((int(m[1]), path) for m, path in names if m)]

    # -- what a fit calls --------------------------------------------------------------

    def begin(self, identity: dict[str, Any]) -> None:
        """Begin or resume a fit; to resume, its identity must equal that of the checkpoint."""
        self.end()
        self.prepare()
        self.n_written, self.seconds = 0, 0.0
        files, saved = _Files(), self.saved
        if saved and not self.resume:
            with suppress(ModelFileError, OSError):
                file = Record(*read_container(saved[-1], "checkpoint"))
                if file.take("status", or_none(check_text)) in _ENDED:
                    for path in saved:
                        path.unlink()
            if self.saved:
                raise ValueError(
                    f"{self.folder} holds a fit that is not finished, up to {saved[-1].name}; "
                    "go on with it by resume=True, or empty the folder to begin anew."
                )
        elif saved:
            files = self._load(saved)
        self._files = files
        for part, value in identity.items():
            self.check(part, value)

    def end(self) -> None:
        """End the files of this fit."""
        self._files = None

    def check(self, part: str, value: Any) -> None:
        """Raise ValueError if a part of the identity differs from the checkpoint's."""
        files = self._open
        files.identity[part] = value
        if files.before is None:
            return
        with self.reading():
            before = files.before.take(part, anything)
            if type(before) is not type(value):
                raise files.before.error(f"holds {before!r} as its {part}")
        difference = ""
        if isinstance(value, dict):
            pairs = [(k, before.get(k), value.get(k)) for k in {**before, **value}]
            changed = (f"{k} was {a}, is {b}" for k, a, b in pairs if repr(a) != repr(b))
            difference = ", ".join(changed)
        elif before != value:
            rows = part == "rows"
            difference = (
                "other rows, targets or weights" if rows else f"was {before}, is {value}"
            )
        if difference:
            raise ValueError(
                f"The checkpoint {files.good[-1]} is of another fit ({part}: {difference}); "
                "restore what has changed to go on with it, or take another folder."
            )

    def seed(self, make: Callable[[], int]) -> int:
        """Return the seed of the fit that is resumed, else a new one."""
        choice = self._open.choice
        if choice is None:
            return make()
        with self.reading():
            seed = choice.values.get("seed")
            return check_int(seed, "seed", high=2**32)

    def choice(self, digest: str, restore: Callable[[Record], T]) -> T | None:
        """Return what was chosen before the first iteration, or None; rows must be the same."""
        self.check("rows", digest)
        files = self._open
        record, files.choice = files.choice, None
        if record is None:
            return None
        with self.reading():
            contents = record.contents()
            choice = restore(record)
            record.close()
            described: Contents = choice.describe()  # type: ignore[attr-defined]
            record.check_same(contents, described)
        return choice

    def store(self, choice: Contents) -> None:
        """Take the choice of this fit into the files."""
        files = self._open
        fresh, files.chosen = files.loop is None, choice
        if fresh and self._due(files):
            self._write(files, None)

    def resumed(
        self,
        choice: Contents,
        restore: Callable[[Record, Callable[[], AbstractContextManager[None]]], T],
    ) -> T | None:
        """Store the choice; return what `restore` makes of the state, None without one."""
        self.store(choice)
        loop, self._open.loop = self._open.loop, None
        if loop is None:
            return None
        with self.reading():
            return restore(loop, self.reading)

    def on_begin(self, solver: Any) -> None:
        """Raise if the file that is resumed holds what nobody asked for."""
        files = self._files
        if files is not None and files.before is not None:
            with self.reading():
                files.before.close()

    def reading(self) -> AbstractContextManager[None]:
        """Return a context in which errors name the file that is resumed."""
        remedy = "remove it to go on from the one before it, or to begin anew"
        return restoring(self._open.good[-1], "fit", remedy)

    @property
    def spent(self) -> float:
        """Seconds spent on the fit before it was resumed."""
        return self._open.spent

    # -- files -------------------------------------------------------------------------

    def on_state(self, describe: Callable[[], Contents], status: str | None = None) -> None:
        """Write a checkpoint if one is due, and at the end of the fit."""
        files = self._open
        files.steps += 1
        if status is not None or self._due(files):
            self._write(files, describe(), status)

    @property
    def _open(self) -> _Files:
        if self._files is None:
            raise RuntimeError("A Checkpoint is a callback of `fit` of an estimator.")
        return self._files

    def _due(self, files: _Files) -> bool:
        if self._seconds is None:
            return files.steps >= int(self.every)
        return time.monotonic() - files.last >= self._seconds

    def prepare(self) -> None:
        """Create the folder; raise if it holds other files or is not writable."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            if path.name.startswith(".kernelgrad-"):  # half a file that a kill left
                path.unlink()
            elif not (_NAME.fullmatch(path.name) or path.name.startswith(".")):
                raise ValueError(
                    f"{self.folder} holds {path.name!r}, which is no checkpoint; name an empty "
                    "or a new folder."
                )
        trial = self.folder / ".kernelgrad-trial"
        with replacing(trial):
            pass
        trial.unlink()

    def _load(self, saved: list[Path]) -> _Files:
        """Return the latest readable checkpoint, or an empty files if there is none."""
        for i in reversed(range(len(saved))):
            try:
                contents = read_container(saved[i], "checkpoint")
                with restoring(saved[i]):
                    file = Record(*contents, "checkpoint")
                    before, choice = file.part("identity"), file.part("choice")
                    loop = file.part("loop") if file.values.get("loop") is not None else None
                    spent = file.take("spent", partial(check_real, low=0.0))
                    file.take("status", or_none(check_text))
                    if loop is None:
                        file.take("loop", anything)
                    file.close()
            except NewerFileError:
                raise
            except (ModelFileError, OSError) as error:
                instead = (
                    f"{saved[i - 1].name} is taken instead" if i else "the fit begins anew"
                )
                warnings.warn(f"{error} Now {instead}.", stacklevel=2)
                continue
            return _Files(saved[: i + 1], spent, before, choice, loop)
        return _Files()

    def _write(self, files: _Files, loop: Contents | None, status: str | None = None) -> None:
        """Write a file and remove the oldest ones; a failure only warns."""
        start = time.monotonic()
        values, arrays = (None, {}) if loop is None else loop
        assert files.chosen is not None
        chosen, more = files.chosen
        tensors = prefixed("loop", arrays) | prefixed("choice", more)
        header = {
            "identity": files.identity,
            "choice": chosen,
            "loop": values,
            "status": status,
            "spent": files.spent + start - files.begun,
        }
        number = 0 if values is None else values["iteration"]
        path = self.folder / f"checkpoint-{number:09d}.kgc"
        try:
            write_container(path, header, tensors, "checkpoint")
        except (OSError, MemoryError) as error:
            why = str(error) or "out of memory"
            warnings.warn(
                f"The checkpoint {path} could not be written ({why}); the fit goes on, and "
                "the next one may have more room.",
                stacklevel=2,
            )
        else:
            self.n_written += 1
            files.good = [*(p for p in files.good if p != path), path][-self.keep :]
            for other in self.saved:
                if other not in files.good:
                    with suppress(OSError):
                        other.unlink()
        files.steps, files.last = 0, time.monotonic()
        self.seconds += files.last - start


def _interval(every: Any) -> float | None:
    """Return the seconds between two checkpoints; None if iterations are counted."""
    if not isinstance(every, str):
        check_int(every, "every", low=1)
        return None
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(s|min|h)\s*", every)
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if seconds <= 0:
        raise ValueError(
            f"every={every!r} is no interval; give one such as '60 s', '5 min' or '1 h', or a "
            "number of iterations."
        )
    return seconds
