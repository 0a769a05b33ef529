"""Pieces of a computation on the workers of a dask cluster.

The pieces are objects with methods. A method that changes a piece makes a new one on the worker
that holds it, so every task is a function of its inputs: what a lost worker held is made again,
by the same tasks on the same inputs, and so to the bit. Only arguments and answers travel.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from kernelgrad._validation import check_int
from kernelgrad.compute.threads import one_thread
from kernelgrad.exceptions import DataError, KernelGradError

_TOGETHER = 16  # answers that one task adds up
_INLINE = 1024  # bytes of arguments up to which each task carries its own
_LOSSES = 3  # times in a row that pieces are made anew before a fit ends
_PATIENCE = 60.0  # seconds for a client to find its scheduler again


class DaskEngine:
    """Fit on the workers of a dask cluster.

    The rows are read, prepared and kept by the workers, and the driver keeps the coefficients.
    The fitted model is an ordinary one, and the same to the bit for any number of workers.

    Parameters
    ----------
    client : distributed.Client, optional
        By default the client that is current.
    retries : int, default=3
        Times that a task which fails is tried again, on any worker, before the fit ends with a
        DataError.
    """

    def __init__(self, client: Any = None, *, retries: int = 3) -> None:
        self.client = client
        self.retries = check_int(retries, "retries")

    def __repr__(self) -> str:
        return f"DaskEngine({'' if self.client is None else self.client!r})"

    def __deepcopy__(self, memo: Any) -> DaskEngine:  # scikit-learn's clone
        return self

    def __getstate__(self) -> dict[str, Any]:  # connections stay in their process
        return {"client": None, "retries": self.retries}

    def memory(self) -> float:
        """Return the bytes that all workers may take together."""
        limits = self.resolved().run(_memory_limit).values()
        return float(sum(limits))

    def resolved(self) -> Any:
        """Return the client, or raise ValueError where there is none."""
        if self.client is not None:
            return self.client
        try:
            from distributed import get_client

            return get_client()
        except (ImportError, ValueError):
            raise ValueError(
                "There is no dask client; install kernelgrad[dask], make a "
                "distributed.Client(...) and give engine=DaskEngine(client)."
            ) from None


def current_engine() -> DaskEngine | None:
    """Return an engine on the client that is current, if there is one."""
    import sys

    if "distributed" not in sys.modules:
        return None
    from distributed import default_client

    try:
        return DaskEngine(default_client())
    except ValueError:
        return None


@dataclass(frozen=True)
class _Held:
    """A piece on a worker, and the answer of the method that made it."""

    piece: Any
    answer: Any = None


class DaskTeam:
    """Pieces held by workers, of which one method at a time is asked.

    Parameters
    ----------
    engine : DaskEngine
    makers : sequence of dask Delayed
        One for each piece: it reads and makes the piece, on some worker.
    changes : frozenset of str
        The methods that change a piece; it has a method ``copy``, which shares with the copy
        what no method changes in place.
    places : sequence of str
        What errors call the rows of each piece.
    progress : callable, optional
        Gets how many pieces have answered, and how many are asked.
    summed : frozenset of str, optional
        Methods that answer with tuples whose first part, an array, only counts in the sum of
        all. Workers add these in the order of the pieces; the first answer has the sum, the
        others zeros.
    """

    def __init__(
        self,
        engine: DaskEngine,
        makers: Sequence[Any],
        changes: frozenset[str],
        places: Sequence[str],
        progress: Callable[[int, int], None] | None = None,
        summed: frozenset[str] = frozenset(),
    ) -> None:
        self._client, self._retries = engine.resolved(), engine.retries
        self._makers, self._changes, self._places = list(makers), changes, list(places)
        self._progress, self._summed = progress, summed
        self._log: list[bytes] = []  # of all changes
        self._begin()

    def __len__(self) -> int:
        return len(self._makers)

    def _begin(self) -> None:
        """Make all pieces, and repeat the changes so far."""
        import dask
        from distributed import futures_of

        held = [dask.delayed(_Held, pure=False)(maker) for maker in self._makers]
        self._pieces = []
        # neighbours on one worker, unless their rows are on some: sums pass from it to the next
        workers = [] if futures_of(held) else sorted(self._client.ncores())
        cuts = np.linspace(0, len(held), max(1, len(workers)) + 1).astype(int)
        for k, (a, b) in enumerate(pairwise(cuts)):
            where = {"workers": workers[k : k + 1], "allow_other_workers": True}
            part, options = held[a:b], {"retries": self._retries}
            self._pieces += self._client.compute(part, **options, **(where if workers else {}))
        for call in self._log:
            self._submit(*pickle.loads(call))

    def ask(
        self, method: str, *args: Any, each: Sequence[tuple[Any, ...] | None] | None = None
    ) -> list[Any]:
        """Return the answers of all pieces, in their order.

        `each` holds further arguments of each; a piece with None is not asked and answers None.
        """
        losses, changes = 0, method in self._changes
        # as it is now: the driver goes on with its arrays
        call = pickle.dumps((method, args, each), protocol=5) if changes else b""
        while True:
            futures = self._submit(method, args, each)
            try:
                answers = self._gathered(futures)
                break
            except _LostError as lost:
                losses += 1
                if losses > _LOSSES:
                    raise DataError(
                        f"{lost} The data behind them is lost: give a collection that is read "
                        "from files, or load it again."
                    ) from None
                self._reconnect()
                self._begin()
        if changes:
            self._log.append(call)
        if method in self._summed:
            asked = [i for i, answer in enumerate(answers) if answer is not None]
            for i in asked[1:]:  # -0.0 changes no number
                answers[i] = np.full_like(answers[asked[0]][0], -0.0), *answers[i][1:]
        return answers

    def _submit(self, method: str, args: tuple[Any, ...], each: Any) -> list[Any]:
        """Return a future for the answer of each piece, None of those that are not asked."""
        client, name = self._client, f"{method}-{uuid.uuid4().hex}"
        options = {"retries": self._retries, "pure": False}
        if (
            len(pickle.dumps(args, protocol=5)) > _INLINE
        ):  # once to the cluster, and from worker to worker
            args = client.submit(_same, args, key=f"args-{name}", **options)
        changes = method in self._changes
        futures: list[Any] = []
        for i, piece in enumerate(self._pieces):
            more = () if each is None else each[i]
            if more is None:
                futures.append(None)
                continue
            call = (piece, method, args, more)
            if changes:
                piece = client.submit(_changed, *call, key=(f"change-{name}", i), **options)
                self._pieces[i] = piece
                futures.append(client.submit(_answer, piece, key=(name, i), **options))
            else:
                futures.append(client.submit(_asked, *call, key=(name, i), **options))
        return self._sums(futures, name, options) if method in self._summed else futures

    def _sums(self, futures: list[Any], name: str, options: dict[str, Any]) -> list[Any]:
        """Return futures of the same answers, the first part of all added up."""
        asked = [i for i, future in enumerate(futures) if future is not None]
        total, rests = None, list(futures)
        for at in range(0, len(asked), _TOGETHER):
            group = asked[at : at + _TOGETHER]
            some, key = [futures[i] for i in group], f"sum-{name}"
            total = self._client.submit(_added, total, some, key=(key, at), **options)
            for i in group:
                rests[i] = self._client.submit(
                    _rest, futures[i], key=(f"rest-{name}", i), **options
                )
        if asked:
            last = rests[asked[0]]
            rests[asked[0]] = self._client.submit(
                _with, total, last, key=f"all-{name}", **options
            )
        return rests

    def _gathered(self, futures: list[Any]) -> list[Any]:
        """Return the results in order, or raise for the first piece that has none."""
        from distributed import as_completed
        from distributed.client import CancelledError

        asked = [future for future in futures if future is not None]
        with self._client.as_current(), suppress(CancelledError):
            for done, _ in enumerate(as_completed(asked)):
                if self._progress is not None:
                    self._progress(done + 1, len(asked))
        for future, place in zip(futures, self._places, strict=True):
            if future is None or future.status == "finished":
                continue
            if future.status != "error":
                raise _LostError(f"Workers lost {place}.")
            error = future.exception()
            if isinstance(error, KernelGradError):
                raise error
            raise DataError(
                f"The rows of {place} cannot be read or worked on any more: {error!r}. Their "
                "source must stay readable from all workers during the fit."
            ) from error
        try:
            found = iter(self._client.gather(asked))
        except CancelledError:
            raise _LostError("Workers lost some rows.") from None
        return [None if future is None else next(found) for future in futures]

    def _reconnect(self) -> None:
        """Wait until the client, which finds its scheduler by itself, has done so."""
        deadline = time.monotonic() + _PATIENCE
        while self._client.status != "running":
            if self._client.status == "closed" or time.monotonic() > deadline:
                raise ConnectionError(
                    "The dask client lost its scheduler; start the cluster again, and fit."
                )
            time.sleep(0.05)


class _LostError(Exception):
    """Futures were cancelled, or their data is nowhere."""


# -- what workers do; tasks run side by side, one a core, so each takes one thread ---------


def _memory_limit(dask_worker: Any) -> float:
    return float(dask_worker.memory_manager.memory_limit or "inf")


def _same(args: Any) -> Any:
    return args


def _asked(held: _Held, method: str, args: Any, more: Any) -> Any:
    with one_thread():
        return _said(held.piece, method, args, more)


def _changed(held: _Held, method: str, args: Any, more: Any) -> _Held:
    piece = held.piece.copy()
    with one_thread():
        return _Held(piece, _said(piece, method, args, more))


def _said(piece: Any, method: str, args: Any, more: Any) -> Any:
    value = getattr(piece, method)
    answer = value(*args, *more) if callable(value) else value
    if hasattr(piece, "unload"):  # of rows that can be read again
        piece.unload()
    return answer


def _added(total: Any, answers: list[Any]) -> Any:
    for answer in answers:
        total = answer[0] if total is None else total + answer[0]
    return total


def _rest(answer: Any) -> Any:
    return None, *answer[1:]


def _with(total: Any, rest: Any) -> Any:
    return total, *rest[1:]


def _answer(held: _Held) -> Any:
    return held.answer
