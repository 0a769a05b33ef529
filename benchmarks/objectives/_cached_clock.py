"""A clock on the functions that a fit of ``solver="cached"`` is made of.

While `instrumented` is active the functions of `PLACES` are replaced by wrappers that charge
a thread's wall time to the innermost place it is in. A task of ``parallel_for`` is charged to
the place that handed it out, with ", tiles" behind its name: in this library tiles do the work
and what is left of their place is serial.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FunctionType, ModuleType
from typing import Any

import scipy.linalg

from kernelgrad.compute import linalg, threads
from kernelgrad.estimators import _reading, _rows, base
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.kernels import ExactRows
from kernelgrad.kernels import _tiles as exact
from kernelgrad.solvers import base as contract
from kernelgrad.solvers.block_descent import _loops as descent
from kernelgrad.solvers.block_descent import coordinates as blocks
from kernelgrad.solvers.block_descent import newton, objective, shards
from kernelgrad.solvers.block_descent import solver as cached

BLAS, LOOPS, FACTORS = "BLAS products", "compiled products", "factorisation"
VECTOR, MOVE, REST, WAIT = "vector functions", "data movement", "python and rest", "waiting"
CATEGORIES = (BLAS, LOOPS, FACTORS, VECTOR, MOVE, REST, WAIT)
TILES = ", tiles"
SPREAD = "parallel_for"


def _defined(owner: Any, module: ModuleType) -> list[tuple[Any, str, str, str]]:
    """Return the places of all functions of a class or module that `module` defines."""
    return [
        (owner, name, REST, REST)
        for name, function in vars(owner).items()
        if isinstance(function, FunctionType) and function.__module__ == module.__name__
    ]


def _named(owner: Any, own: str, tiles: str, *names: str) -> list[tuple[Any, str, str, str]]:
    """Return the places of functions of one owner with the same two categories."""
    return [(owner, name, own, tiles) for name in names]


# owner and name of a function, category of its own time and of its tiles'
PLACES: list[tuple[Any, str, str, str]] = [
    # kernel tiles
    *_named(blocks.SupportBlock, MOVE, MOVE, "tile"),
    *_named(ExactKernel, REST, REST, "values"),
    *_named(exact, MOVE, MOVE, "block", "_by_nonzeros", "_by_used_columns"),
    *_named(exact, BLAS, BLAS, "_products"),
    *_named(exact, LOOPS, LOOPS, "_dense", "_nonzeros"),
    *_named(exact, VECTOR, VECTOR, "_finish"),
    # blocks
    *_named(blocks.BlockMatrix, REST, BLAS, "product", "responses"),
    *_named(blocks.BlockMatrix, MOVE, MOVE, "_values"),
    *_named(linalg, REST, BLAS, "gram"),
    *_named(newton._Curvature, REST, BLAS, "product"),
    *_named(newton._Curvature, REST, REST, "__init__"),
    *_named(scipy.linalg, FACTORS, FACTORS, "cho_factor", "cho_solve"),
    # losses
    *_named(descent, REST, VECTOR, "derivatives", "along", "softmax", "multiply_hessian"),
    # rows
    *_named(ExactKernel, MOVE, MOVE, "prepare"),
    *_named(ExactRows, MOVE, MOVE, "take"),
    *_named(blocks.Block, MOVE, MOVE, "sample"),
    *_named(shards.Shard, MOVE, MOVE, "draw", "_sample", "load"),
    *_named(cached, MOVE, MOVE, "first_of_equals", "batch_digest"),
    *_named(contract, MOVE, MOVE, "rows_digest"),
    *_named(_rows, MOVE, MOVE, "canonical_rows"),
    *_named(_reading.RowReader, REST, REST, "_array_rows"),
    *_named(base.BaseRowsEstimator, REST, REST, "_run"),
    # what is serial on arrays of all rows, and Python
    *_defined(newton.BlockSteps, newton),
    *_defined(newton, newton),
    *_defined(cached, cached),
    *_named(
        shards.Shard, REST, REST,
        "derive", "enter", "products", "respond", "along", "take", "leave",
    ),
    *_named(objective.RowObjective, REST, REST, "derivatives"),
    *_named(newton, REST, REST, "minimise_on_span"),
    *_named(
        cached.CachedBlockDescent, REST, REST,
        "_prepare", "_descend", "step", "expansion",
    ),
]  # fmt: skip
_HANDED_OUT = "kernel tiles, copied out"  # by the closure that takes finished products


def place_name(owner: Any, name: str) -> str:
    """Return how a place is called in tables."""
    return f"{owner.__name__.removeprefix('kernelgrad.')}.{name}"


CATEGORY = {
    _HANDED_OUT: MOVE,
    "fit": REST,
    "fit" + TILES: REST,
    SPREAD: WAIT,
    **{place_name(o, n): own for o, n, own, _ in PLACES},
    **{place_name(o, n) + TILES: tiles for o, n, _, tiles in PLACES},
}


class Clock:
    """Seconds and calls of places, exclusive of the places inside them, over all threads."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._totals: list[dict[str, list[float]]] = []

    def _stack(self) -> list[list[Any]]:
        if not hasattr(self._local, "stack"):
            self._local.stack, self._local.totals = [], {}
            self._totals.append(self._local.totals)
        stack: list[list[Any]] = self._local.stack
        return stack

    def innermost(self) -> str | None:
        """Return the place that this thread is in."""
        stack = self._stack()
        return stack[-1][0] if stack else None

    def timed(self, place: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with its time charged to `place`."""

        @wraps(function, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            stack = self._stack()
            inside = [place, 0.0]
            stack.append(inside)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                seconds = time.perf_counter() - start
                stack.pop()
                total = self._local.totals.setdefault(place, [0.0, 0])
                total[0] += seconds - inside[1]
                total[1] += 1
                if stack:
                    stack[-1][1] += seconds

        return call

    def places(self) -> dict[str, list[float]]:
        """Return ``[seconds, calls]`` of every place."""
        found: dict[str, list[float]] = {}
        for totals in self._totals:
            for place, (seconds, calls) in totals.items():
                before = found.get(place, [0.0, 0])
                found[place] = [before[0] + seconds, before[1] + calls]
        return found


def _with_timed_emit(clock: Clock, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(A: Any, B: Any, form: int, emit: Any) -> Any:
        return function(A, B, form, clock.timed(_HANDED_OUT, emit))

    return call


def _spread(clock: Clock) -> Callable[[int, Callable[[int], None]], None]:
    original = clock.timed(SPREAD, threads.parallel_for)

    def parallel_for(n_tasks: int, task: Callable[[int], None]) -> None:
        caller = clock.innermost()
        if caller is not None:
            task = clock.timed(caller.removesuffix(TILES) + TILES, task)
        original(n_tasks, task)

    return parallel_for


@contextmanager
def instrumented(clock: Clock) -> Iterator[None]:
    """Run the places under `clock` while inside."""
    before: list[tuple[Any, str, Any]] = []

    def replace(owner: Any, name: str, new: Any) -> None:
        before.append((owner, name, vars(owner)[name]))
        setattr(owner, name, new)

    try:
        for owner, name, _, _ in PLACES:
            function = vars(owner)[name]
            if name in ("_dense", "_by_nonzeros", "_by_used_columns"):
                function = _with_timed_emit(clock, function)
            replace(owner, name, clock.timed(place_name(owner, name), function))
        spread = _spread(clock)
        for module in list(sys.modules.values()):
            found = vars(module).get("parallel_for")
            if found is threads.parallel_for and module is not threads:
                replace(module, "parallel_for", spread)
        yield
    finally:
        for owner, name, old in reversed(before):
            setattr(owner, name, old)


def shares(places: dict[str, list[float]], n_threads: int, wall: float) -> dict[str, float]:
    """Return the percentages of ``n_threads * wall`` that each category took; they add to 100.

    What no place used of the threads' time is waiting: a thread has nothing to do while
    another runs serial code or the last tile.
    """
    found = dict.fromkeys(CATEGORIES, 0.0)
    for place, (seconds, _) in places.items():
        if CATEGORY[place] != WAIT:
            found[CATEGORY[place]] += 100 * seconds / (n_threads * wall)
    found[WAIT] = 100.0 - sum(found.values())
    return found
