"""Lists of callbacks, and callbacks of a few lines."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from kernelgrad.callbacks.base import Callback, FitEvent
from kernelgrad.callbacks.checkpoint import Checkpoint
from kernelgrad.callbacks.progress import ProgressBar, ProgressLog
from kernelgrad.types import Contents
from kernelgrad.validation import check_int


class Aside(Callback):
    """Report the progress of an auxiliary fit to the callbacks of the main one, as a phase."""

    def __init__(self, listeners: Callback) -> None:
        self.on_progress = listeners.on_progress  # type: ignore[method-assign]

    def on_iteration(self, event: FitEvent) -> None:
        self.on_progress(event.iteration, event.max_iter)


class CallbackList(Callback):
    """Run several callbacks as one, in the order given.

    ``interrupted`` tells whether Ctrl-C ended the fit; the model of the last finished iteration
    is then kept.
    """

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self.callbacks = list(callbacks)
        self.interrupted = False
        self._begun: list[Callback] = []

    def on_begin(self, solver: Any) -> None:
        """Call `on_begin` of every callback; if one raises, end those already begun."""
        try:
            for callback in self.callbacks:
                callback.on_begin(solver)
                self._begun.append(callback)
        except BaseException:
            self.on_end("error")
            raise

    def on_phase(self, name: str) -> None:
        for callback in self.callbacks:
            callback.on_phase(name)

    def on_progress(self, iteration: float, max_iter: int | None) -> None:
        for callback in self.callbacks:
            callback.on_progress(iteration, max_iter)

    def on_iteration(self, event: FitEvent) -> bool:
        return any([callback.on_iteration(event) for callback in self.callbacks])

    def on_state(self, describe: Callable[[], Contents], status: str | None = None) -> None:
        for callback in self.callbacks:
            callback.on_state(describe, status)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The :class:`Checkpoint` in the list, or None."""
        return next((each for each in self.callbacks if isinstance(each, Checkpoint)), None)

    def on_end(self, status: str) -> None:
        begun, self._begun = self._begun, []  # all of them, even when one raises
        with contextlib.ExitStack() as stack:
            for callback in reversed(begun):
                stack.callback(callback.on_end, status)


def make_callbacks(
    callbacks: Callback | Sequence[Callback] | None, verbose: int | bool, *,
    stream: bool = False,
) -> CallbackList:  # fmt: skip
    """Return the callbacks of a fit as one; raise TypeError if one is not a callback.

    ``verbose=1`` adds a `ProgressBar` and larger values a `ProgressLog` in front, unless the
    user gave one; `stream` makes them fit for the calls of `partial_fit`.
    """
    members: Any = () if callbacks is None else callbacks
    if isinstance(members, str | bytes) or not isinstance(members, Sequence):
        members = [members]
    members = list(members)
    for callback in members:
        if not isinstance(callback, Callback):
            raise TypeError(
                f"callbacks must be kernelgrad callbacks, got {callback!r}; pass an instance "
                "of a subclass of kernelgrad.callbacks.Callback, or a sequence of them."
            )
    if sum(isinstance(callback, Checkpoint) for callback in members) > 1:
        raise ValueError("callbacks hold more than one Checkpoint; give one.")
    level = int(verbose) if verbose in (0, 1) else check_int(verbose, "verbose")
    wanted = ProgressLog if level > 1 else ProgressBar
    if level > 0 and not any(isinstance(callback, wanted) for callback in members):
        members.insert(0, wanted(stream=stream))
    return CallbackList(members)
