"""What the commands print, and the exit codes of their errors."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer

from kernelgrad.files.disk import ROOM, ScratchFolder, check_target, named

INTERRUPTED = 130


def note(message: str) -> None:
    print(" ".join(message.split()), file=sys.stderr, flush=True)


def print_error(message: str, kind: str, *, as_json: bool) -> None:
    """Print an error as one line on stderr, or as a JSON object on stdout."""
    message = " ".join(message.split())
    if as_json:
        print_json({"error": message, "type": kind})
    else:
        note(f"Error: {message}")


def print_json(value: dict[str, Any]) -> None:
    """Print an object as JSON; numbers that are not finite become null."""
    print(json.dumps(_plain(value), allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "tolist"):  # NumPy arrays and scalars
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)


def say(line: str) -> None:
    """Print a line for people; characters that the output does not know are escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding))


def print_result(result: dict[str, Any], as_json: bool, **shown: Any) -> None:
    """Print a result as JSON, or as names and values; `shown` replaces values for people.

    People do not see values that are None.
    """
    if as_json:
        print_json(result)
        return
    pairs = {name: value for name, value in (result | shown).items() if value is not None}
    width = max(map(len, pairs))
    for name, value in pairs.items():
        say(f"{name.replace('_', ' '):<{width}}  {_text(value)}")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        shown = ", ".join(_text(v) for v in value[:10])
        return shown + (f", ... ({len(value)} in all)" if len(value) > 10 else "")
    return str(value)


def size_text(n_bytes: int) -> str:
    power = min(3, (len(str(n_bytes)) - 1) // 3)
    unit = ("bytes", "kB", "MB", "GB")[power]
    return f"{n_bytes / 1000**power:.{min(power, 1)}f} {unit}"


@contextmanager
def _interruptible() -> Iterator[Callable[[], int]]:
    """Let SIGTERM end a command as Ctrl-C does; yield what gives the exit code of either."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        or os.name != "posix"
    ):
        yield lambda: INTERRUPTED
        return
    seen, written = os.pipe()  # Python writes the numbers of signals, whoever handles them
    for end in (seen, written):
        os.set_blocking(end, False)
    before = signal.set_wakeup_fd(written)
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def code() -> int:
        with suppress(BlockingIOError):
            return 128 + os.read(seen, 1)[0]
        return INTERRUPTED

    try:
        yield code
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.set_wakeup_fd(before)
        os.close(seen)
        os.close(written)


@contextmanager
def reporting(as_json: bool) -> Iterator[Callable[[], int]]:
    """Turn the errors of data, models and the system into one line and an exit code.

    Warnings become single lines on stderr. Errors that only a defect of the program can
    raise keep their traceback. Yields what gives the exit code once a signal has ended the
    work: 130 for Ctrl-C, 143 for SIGTERM.
    """
    with warnings.catch_warnings(), _interruptible() as interrupted:
        warnings.filterwarnings("default", category=UserWarning)
        warnings.showwarning = lambda message, *_, **__: note(f"Warning: {message}")
        try:
            yield interrupted
            sys.stdout.flush()  # a closed pipe shows now, not while the interpreter ends
        except BrokenPipeError:
            raise  # the reader of stdout has gone; typer ends quietly
        except (
            ValueError, TypeError, OSError, ImportError, MemoryError, FloatingPointError
        ) as error:  # fmt: skip
            message = str(error) or "out of memory; use fewer rows or a smaller model"
            if isinstance(error, UnicodeEncodeError):
                message += "; give --output a file, or set PYTHONIOENCODING=utf-8."
            print_error(message, type(error).__name__, as_json=as_json)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            message = "interrupted; no unfinished file was left behind"
            print_error(message, "KeyboardInterrupt", as_json=as_json)
            raise typer.Exit(interrupted()) from None


def signing_key() -> bytes | None:
    """Return the secret that models are signed with: the file of KERNELGRAD_KEY_FILE."""
    from kernelgrad.files.container import check_key

    name = os.environ.get("KERNELGRAD_KEY_FILE")
    return check_key(Path(name).read_bytes()) if name else None


@contextmanager
def data_file(data: Path) -> Iterator[Path]:
    """Give the path of the data inside: "-" is CSV from the standard input, kept meanwhile."""
    if str(data) != "-":
        yield data
        return
    folder = ScratchFolder()
    path = folder.path / "standard_input.csv"
    with named(path, ROOM), path.open("wb") as stream:
        shutil.copyfileobj(sys.stdin.buffer, stream)
    yield path


def check_writable(path: Path, what: str, *inputs: Path) -> None:
    """Raise unless a file can be put at `path`, which must be none of the inputs."""
    if path.resolve() in (other.resolve() for other in inputs):
        raise typer.BadParameter(f"The {what} would overwrite the input {path}; rename it.")
    check_target(path, what)
    if not os.access(path.resolve().parent, os.W_OK):
        raise PermissionError(
            f"The folder {path.resolve().parent} is not writable, so the {what} {path.name} "
            "cannot go there; choose another."
        )
