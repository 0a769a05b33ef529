"""Pieces of a computation on the workers of a dask cluster.

The pieces are objects with methods. A method that changes a piece creates a new one, so every
task is a pure function of its inputs: dask computes the pieces of a lost worker again, with the
same bits. Only arguments and results are transferred.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from kernelgrad.compute.memory import keep_freed_memory
from kernelgrad.compute.threads import one_thread
from kernelgrad.exceptions import DataError, KernelGradError
from kernelgrad.validation import check_int

_BUNDLES = 4  # bundles of pieces for each thread, enough to balance the load
_MOST_BUNDLES = 256  # in all: tasks of more would cost the scheduler more, some 2 ms each
_REPORT = 0.5  # seconds between reports of progress
_INLINE = 1024  # bytes of arguments that are part of each task; larger ones are sent once


class DaskEngine:
    """Fit on the workers of a dask cluster.

    The workers read, prepare and keep the rows; the driver keeps the coefficients. The result
    is an ordinary model, with the same bits for any number of workers.

    Parameters
    ----------
    client : distributed.Client, optional
        The client; by default the current one.
    retries : int, default=3
        Number of times that a failed task is repeated, on any worker, before a DataError.
    """

    def __init__(self, client: Any = None, *, retries: int = 3) -> None:
        self.client = client
        self.retries = check_int(retries, "retries")

    def __repr__(self) -> str:
        return f"DaskEngine({'' if self.client is None else self.client!r})"

    def __deepcopy__(self, memo: Any) -> DaskEngine:  # scikit-learn's clone
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"client": None, "retries": self.retries}  # connections belong to the process

    def memory(self) -> float:
        """Return the total memory limit of all workers in bytes."""
        return float(sum(self.resolved().run(_memory_limit).values()))

    def resolved(self) -> Any:
        """Return the client; raise ValueError if there is none."""
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
    import sys

    if "distributed" not in sys.modules:
        return None
    from distributed import default_client

    try:
        return DaskEngine(default_client())
    except ValueError:
        return None


@dataclass(frozen=True)
class _Bundle:
    """Neighbouring pieces on a worker, and the results of the method that created them."""

    pieces: list[Any]
    answers: list[Any] | None = None

    def __sizeof__(self) -> int:
        """Bytes of the pieces, by which dask weighs whether a task is worth moving."""
        return 64 + sum(getattr(piece, "nbytes", 0) for piece in self.pieces)


class DaskTeam:
    """Pieces held by workers, whose methods are called one at a time.

    Neighbouring pieces form bundles, a few per thread, so that there are few tasks. `makers`,
    dask delayed, create a piece each on some worker. Methods in `changes` change a piece; its
    ``copy`` must share with the copy only data that no method changes in place. `labels`
    describe the rows of each piece in messages, `progress` gets the number of pieces that have
    answered, and of all.

    `summed` methods return tuples whose first element is an array of which only the sum is
    needed: workers add these in order; the first result has the sum, the others zeros.
    `condensed` methods have functions that make less of the list of answers of neighbouring
    pieces, and the arguments.
    """

    def __init__(
        self, engine: DaskEngine, makers: Sequence[Any], changes: frozenset[str],
        labels: Sequence[str], progress: Callable[[int, int], None] | None = None,
        summed: frozenset[str] = frozenset(),
        condensed: Mapping[str, Callable[..., list[Any]]] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        import dask

        self._client, self._retries = engine.resolved(), engine.retries
        self._changes, self._labels = changes, list(labels)
        self._progress, self._summed, self._condensed = progress, summed, condensed
        threads, n = max(1, sum(self._client.ncores().values())), len(makers)
        n_bundles = min(n, max(threads, min(_BUNDLES * threads, _MOST_BUNDLES)))
        cuts = np.linspace(0, n, n_bundles + 1).astype(int).tolist()
        self._spans = list(pairwise(cuts))
        bundle = dask.delayed(_Bundle, pure=False)
        self._bundles = [
            self._client.compute(bundle(list(makers[a:b])), retries=self._retries)
            for a, b in self._spans
        ]

    def __len__(self) -> int:
        return len(self._labels)

    def ask(
        self, method: str, *args: Any, each: Sequence[tuple[Any, ...] | None] | None = None
    ) -> list[Any]:
        """Call a method of all pieces; `each` has more arguments of each, None skips it."""
        return self._gathered(self._submit(method, args, each), method)

    def _submit(self, method: str, args: tuple[Any, ...], each: Any) -> list[Any]:
        """Return a future for each bundle, None if it is skipped, and one for a sum."""
        client, name = self._client, f"{method}-{uuid.uuid4().hex}"
        options = {"retries": self._retries, "pure": False}
        packed = pickle.dumps(args, protocol=5)
        args = pickle.loads(packed)  # a snapshot, as the driver may modify its arrays
        if len(packed) > _INLINE:
            # sent once to the cluster, and from worker to worker
            args = client.submit(_same, args, key=f"args-{name}", **options)
        task = _changed if method in self._changes else _ask_all
        if method in self._condensed:
            task = partial(_condensed, self._condensed[method])
        futures: list[Any] = []
        total = None
        for i, (a, b) in enumerate(self._spans):
            more = None if each is None else list(each[a:b])
            if more is not None and all(m is None for m in more):
                futures.append(None)
                continue
            key = (f"asked-{name}", i)
            call = task, self._bundles[i], a, method, args, more
            answers = future = client.submit(*call, key=key, **options)
            if task is _changed:
                self._bundles[i] = future
                answers = client.submit(_answers, future, key=(name, i), **options)
            elif method in self._summed:
                key = (f"sum-{name}", i)
                total = client.submit(_added, total, future, key=key, **options)
                answers = client.submit(_rest, future, key=(name, i), **options)
            futures.append(answers)
        return [*futures, total] if method in self._summed else futures

    def _gathered(self, futures: list[Any], method: str) -> list[Any]:
        """Return the results in order; raise for the first bundle that failed."""
        from distributed import wait
        from distributed.client import CancelledError

        wanted = [future for future in futures if future is not None]
        with self._client.as_current(), suppress(CancelledError):
            left = set(wanted)
            while left:
                try:  # to be woken by every result would cost more than the results
                    left = wait(left, _REPORT).not_done
                except TimeoutError:
                    left = {future for future in left if not future.done()}
                if self._progress is not None:
                    done = len(wanted) - len(left)
                    self._progress(done * len(self) // len(wanted), len(self))
        for i, future in enumerate(futures):
            if future is not None and future.status != "finished":
                self._fail(future, self._spans[min(i, len(self._spans) - 1)])
        results = iter(self._client.gather(wanted))
        answers: list[Any] = []
        for (a, b), future in zip(self._spans, futures, strict=False):
            answers += (b - a) * [None] if future is None else next(results)
        if method in self._summed:
            asked = [i for i, answer in enumerate(answers) if answer is not None]
            total = next(results)
            for i in asked:  # -0.0 changes no number
                first = total if i == asked[0] else np.full_like(total, -0.0)
                answers[i] = first, *answers[i][1:]
        return answers

    def _fail(self, future: Any, span: tuple[int, int]) -> None:
        first, last = self._labels[span[0]], self._labels[span[1] - 1]
        if future.status != "error":
            raise DataError(
                f"Workers lost {first}, or the client its scheduler; give a collection that is "
                "read from files, and fit again, from a checkpoint if there is one."
            )
        error = future.exception()
        if isinstance(error, KernelGradError):
            raise error
        label = first if first == last else f"{first} to {last}"
        if isinstance(error, _PieceError):
            number, error = error.args
            label = self._labels[number]
        raise DataError(
            f"The rows of {label} cannot be read or worked on any more: {error!r}. Their "
            "source must stay readable from all workers during the fit."
        ) from error


class _PieceError(Exception):
    """A method of a piece raised an error; the arguments are its number and the error."""


# -- tasks of workers; they run in parallel, one per core, so each uses one thread ----------


def _memory_limit(dask_worker: Any) -> float:
    return float(dask_worker.memory_manager.memory_limit or "inf")


def _same(args: Any) -> Any:
    return args


def _ask_all(bundle: _Bundle, start: int, method: str, args: Any, more: Any) -> list[Any]:
    return [
        None if extra is None else _call(piece, start + i, method, args, extra)
        for i, (piece, extra) in enumerate(_with(bundle, more))
    ]


def _condensed(
    condense: Callable[..., list[Any]], bundle: _Bundle, start: int, method: str, args: Any,
    more: Any,
) -> list[Any]:  # fmt: skip
    return condense(_ask_all(bundle, start, method, args, more), *args)


def _changed(bundle: _Bundle, start: int, method: str, args: Any, more: Any) -> _Bundle:
    pieces, answers = [], []
    for i, (piece, extra) in enumerate(_with(bundle, more)):
        new = piece if extra is None else piece.copy()
        pieces.append(new)
        answers.append(None if extra is None else _call(new, start + i, method, args, extra))
    return _Bundle(pieces, answers)


def _with(bundle: _Bundle, more: Any) -> Any:
    return zip(bundle.pieces, len(bundle.pieces) * [()] if more is None else more, strict=True)


def _call(piece: Any, number: int, method: str, args: Any, more: Any) -> Any:
    keep_freed_memory()
    value = getattr(piece, method)
    try:
        with one_thread():
            answer = value(*args, *more) if callable(value) else value
    except KernelGradError:
        raise
    except Exception as error:
        raise _PieceError(number, error) from error
    if hasattr(piece, "unload"):  # the rows can be read again
        piece.unload()
    return answer


def _answers(bundle: _Bundle) -> Any:
    return bundle.answers


def _added(total: Any, answers: list[Any]) -> Any:
    for answer in answers:
        if answer is not None:
            total = answer[0] if total is None else total + answer[0]
    return total


def _rest(answers: list[Any]) -> list[Any]:
    return [None if answer is None else (None, *answer[1:]) for answer in answers]
