"""The state of a fit on disk, to go on from after a crash."""

from __future__ import annotations

import contextlib
import os
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from kernelgrad._disk import replacing
from kernelgrad._typing import Contents
from kernelgrad._validation import check_bool, check_int
from kernelgrad.callbacks._base import Callback
from kernelgrad.exceptions import ModelFileError, NewerFileError
from kernelgrad.persistence import below, prefixed, read_container, write_container

T = TypeVar("T")
_ENDED = ("converged", "max_iter", "stopped")
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_NAME = re.compile(r"checkpoint-(\d+)\.kgc")


@dataclass
class _Session:
    """The contents of a checkpoint besides the state of the loop, and its files."""

    identity: dict[str, Any]
    found: dict[str, Contents] = field(default_factory=dict)  # before the first iteration
    loop: Contents | None = None  # where to go on
    spent: float = 0.0  # seconds of the fit before it was resumed
    path: Path | None = None  # of what is resumed
    good: list[Path] = field(default_factory=list)  # files, the latest last
    begun: float = field(default_factory=lambda: time.monotonic())
    last: float = field(default_factory=lambda: time.monotonic())  # when a file was written
    steps: int = 0  # since then


class Checkpoint(Callback):
    """Write the state of a fit to a folder at intervals, so that it survives a crash.

    With the same rows, parameters, version and processor a resumed fit gives the same model
    as an uninterrupted one, bit for bit. A checkpoint includes the results of a search that
    ran before the first iteration. Files are written atomically. A file that cannot be read
    is skipped with a warning. If a file cannot be written, for example because the disk is
    full, a warning is issued and the fit continues. A last checkpoint is written at the end
    of the fit and after Ctrl-C.

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

    Raises
    ------
    ValueError
        In `fit`, before any work: the folder holds other files or an unfinished fit, or the
        checkpoint belongs to other rows, other parameters or another version.
    OSError
        In `fit`, before any work: the folder cannot be created or written to.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from kernelgrad import KernelRegressor
    >>> from kernelgrad.callbacks import Checkpoint
    >>> folder = tempfile.mkdtemp()
    >>> X = np.linspace(-3, 3, 400)[:, None]
    >>> model = KernelRegressor(
    ...     random_state=0, callbacks=[Checkpoint(folder, every="5 min", resume=True)]
    ... ).fit(X, np.sin(X[:, 0]))
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        every: str | int = "60 s",
        keep: int = 2,
        resume: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self.every = every
        self._seconds = _interval(every)
        self.keep = check_int(keep, "keep", low=1)
        self.resume = check_bool(resume, "resume")
        self.n_written, self.seconds = 0, 0.0
        self._session: _Session | None = None

    @property
    def saved(self) -> list[Path]:
        """The files in the folder, the latest last."""
        found = ((_NAME.fullmatch(path.name), path) for path in self.folder.glob("*"))
        return [path for _, path in sorted((int(m[1]), path) for m, path in found if m)]

    # -- what estimators call ----------------------------------------------------------

    def begin(self, **identity: Any) -> None:
        """Begin or resume a fit; to resume, `identity` must equal that of the checkpoint."""
        self.end()
        self.prepare()
        self.n_written, self.seconds = 0, 0.0
        session, saved = _Session({}), self.saved
        if saved and not self.resume:
            with contextlib.suppress(ModelFileError, OSError):
                header, _ = read_container(saved[-1], "checkpoint")
                if header["status"] in _ENDED:
                    for path in saved:
                        path.unlink()
            if self.saved:
                raise ValueError(
                    f"{self.folder} holds a fit that is not finished, up to {saved[-1].name}; "
                    "go on with it by resume=True, or empty the folder to begin anew."
                )
        elif saved:
            session = self._load(saved)
        self._session = session
        for part, value in identity.items():
            self.check(part, value)

    def end(self) -> None:
        """End the session of this fit; its files are kept."""
        self._session = None

    def check(self, part: str, value: Any) -> None:
        """Raise ValueError if a part of the identity differs from the checkpoint's."""
        session = self._open
        before = session.identity.setdefault(part, value)
        if before == value:
            return
        if isinstance(value, dict):
            names = [k for k in {**before, **value} if before.get(k) != value.get(k)]
            told = ", ".join(f"{k} was {before.get(k)}, is {value.get(k)}" for k in names)
        elif part == "rows":
            told = "other rows, targets or weights"
        else:
            told = f"was {before}, is {value}"
        raise ValueError(
            f"The checkpoint {session.path} is of another fit ({part}: {told}); restore what "
            "has changed to go on with it, or take another folder."
        )

    @property
    def resumed(self) -> Contents | None:
        """The state to resume from; None if it is the one before the first iteration."""
        return self._open.loop

    @property
    def spent(self) -> float:
        """Seconds spent on the fit before it was resumed."""
        return self._open.spent

    def recall(
        self,
        name: str,
        make: Callable[[], T],
        pack: Callable[[T], Contents],
        unpack: Callable[[dict[str, Any], dict[str, Any]], T],
    ) -> T:
        """Return a result from before the first iteration; compute and store it if missing."""
        session = self._open
        if name in session.found:
            return unpack(*session.found[name])
        value = make()
        session.found[name] = pack(value)
        if session.loop is None and "rows" in session.identity and self._due(session):
            self._write(session, None)
        return value

    # -- files -------------------------------------------------------------------------

    def on_state(self, describe: Callable[[], Contents], status: str | None = None) -> None:
        """Write a checkpoint if one is due, and at the end of the fit."""
        session = self._open
        session.steps += 1
        if status is not None or self._due(session):
            self._write(session, describe(), status)

    @property
    def _open(self) -> _Session:
        if self._session is None:
            raise RuntimeError("A Checkpoint is a callback of `fit` of an estimator.")
        return self._session

    def _due(self, session: _Session) -> bool:
        if self._seconds is None:
            return session.steps >= int(self.every)
        return time.monotonic() - session.last >= self._seconds

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

    def _load(self, saved: list[Path]) -> _Session:
        """Return the latest readable checkpoint, or an empty session if there is none."""
        for i in reversed(range(len(saved))):
            try:
                header, arrays = read_container(saved[i], "checkpoint")
            except NewerFileError:
                raise
            except (ModelFileError, OSError) as error:
                instead = (
                    f"{saved[i - 1].name} is taken instead" if i else "the fit begins anew"
                )
                warnings.warn(f"{error} Now {instead}.", stacklevel=2)
                continue
            found = {
                name: (values, below(f"found.{name}", arrays))
                for name, values in header["found"].items()
            }
            loop = header["loop"]
            if loop is not None:
                loop = loop, below("loop", arrays)
            return _Session(
                header["identity"], found, loop, header["spent"], saved[i], saved[: i + 1]
            )
        return _Session({})

    def _write(
        self, session: _Session, loop: Contents | None, status: str | None = None
    ) -> None:
        """Write a file and remove the oldest ones; a failure only warns."""
        start = time.monotonic()
        values, arrays = (None, {}) if loop is None else loop
        tensors = prefixed("loop", arrays)
        for name, (_, some) in session.found.items():
            tensors |= prefixed(f"found.{name}", some)
        header = {
            "identity": session.identity,
            "found": {name: plain for name, (plain, _) in session.found.items()},
            "loop": values,
            "status": status,
            "spent": session.spent + start - session.begun,
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
            session.good = [*(p for p in session.good if p != path), path][-self.keep :]
            for other in self.saved:
                if other not in session.good:
                    with contextlib.suppress(OSError):
                        other.unlink()
        session.loop, session.steps, session.last = None, 0, time.monotonic()
        self.seconds += session.last - start


def _interval(every: Any) -> float | None:
    """Return the seconds between two checkpoints; None if iterations are counted."""
    if not isinstance(every, str):
        check_int(every, "every", low=1)
        return None
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(s|min|h)\s*", every)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if seconds <= 0:
        raise ValueError(
            f"every={every!r} is no interval; give one such as '60 s', '5 min' or '1 h', or a "
            "number of iterations."
        )
    return seconds
