"""What a checkpoint holds of a fit between two iterations, and how a fit goes on from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from kernelgrad.files import container
from kernelgrad.files.records import Record, anything, one_of, or_none
from kernelgrad.functions.expansions import Expansion, restored_expansion
from kernelgrad.kernels import describe_kernel
from kernelgrad.solvers import contract
from kernelgrad.solvers.contract import Problem, Solver, State
from kernelgrad.solvers.history import check_audit, check_numbers, restored_history
from kernelgrad.solvers.trackers import Tracker
from kernelgrad.types import Contents
from kernelgrad.validation import check_int

OVER = ("converged", "max_iter")
CUT = ("time_limit", "interrupted")  # what further iterations may follow


@dataclass
class Course:
    """Progress of a fit besides the state of its solver: history, and the best model so far."""

    history: dict[str, Any]
    done: int = 0  # iterations of this fit
    epoch: float = 0.0  # passes over the rows up to the last batch
    best: Expansion | None = None
    best_rank: tuple[float, float] = (-np.inf, -np.inf)
    best_iteration: int = 0
    stale: int = 0  # iterations without progress over these
    patience_score: float = -np.inf
    patience_loss: float = np.inf

    def count_iterate(self, rank: tuple[float, float], tol: float) -> bool:
        """Count an iterate with its rank; return whether it is the best so far."""
        better = self.best is None or rank > self.best_rank
        if better:
            self.best_rank = rank
        self.stale += 1
        score, loss, least = rank[0], -rank[1], self.patience_loss
        if score > self.patience_score + tol:
            self.patience_score, self.stale = score, 0
        if np.isinf(least) or loss < least - tol * abs(least):
            self.patience_loss, self.stale = loss, 0
        return better

    def describe(
        self, state: State, tracker: Tracker | None, function: Expansion | None = None,
        **result: Any,
    ) -> Contents:  # fmt: skip
        """Return all that the next iteration needs as plain values and arrays.

        At the end of a fit these include the fitted `function`, the status and the audit.
        """
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        values, arrays = state.describe()
        parts = {"course": own, "state": values, "result": result}
        arrays = container.prefixed("state", arrays)
        if tracker is not None:
            arrays |= container.prefixed("tracker", tracker.describe())
        for part, name, e in (("course", "best", self.best), ("result", "function", function)):
            if e is not None:
                e.compact()  # it only predicts
                plain, own_arrays = e.describe()
                parts[part][name] = {"kind": e.kind, **plain}
                arrays |= container.prefixed(f"{part}.{name}", own_arrays)
        return parts | {"iteration": state.iteration}, arrays

    @classmethod
    def restore(cls, record: Record, problem: Problem, home: str | None) -> Self:
        parts: dict[str, Any] = {
            "best": _function("best", record, problem, home),
            "history": restored_history(record.part("history")),
            "best_rank": record.take("best_rank", _check_rank),
        }
        parts |= contract.restored_fields(cls, record, parts)
        record.close()
        return cls(**parts)


def _check_rank(value: Any, name: str) -> None:
    check_numbers(list(value) if isinstance(value, tuple) else value, name, 2)


def _function(
    name: str, record: Record, problem: Problem, home: str | None
) -> Expansion | None:
    """Take one of the functions that :meth:`Course.describe` described; None without it."""
    if record.values.get(name) is None:
        record.take(name, anything, None)
        return None
    part = record.part(name, C=problem.n_outputs, d=problem.n_features_in)
    function = restored_expansion(part, problem.resources.cache_bytes)
    if _home(part, function, problem) != home:
        raise part.error("holds another kernel or scaling than the state")
    return function


def _home(record: Record, owner: Any, problem: Problem) -> str | None:
    """Return a digest of kernel, scaling and seed of a state or a function; None without any.

    Raise unless they are those of the problem.
    """
    home = getattr(owner, "exact", None) or getattr(owner, "stream", None)
    if home is None:
        return None
    own, wanted = describe_kernel(home.kernel), describe_kernel(problem.kernel)
    d = home.scaling.width(problem.n_features_in)
    is_resolved = describe_kernel(problem.kernel.resolve(sp.csr_matrix((1, d)), 0)) == wanted
    same = own == wanted if is_resolved else own["name"] == wanted["name"]
    if problem.scaling is not None:
        mine, other = (
            container.contents_digest(({}, s.arrays())) for s in (home.scaling, problem.scaling)
        )
        same = same and mine == other
    if not same or getattr(home, "seed", problem.seed) != problem.seed:
        raise record.error(f"holds a function of {home.kernel!r} that is not of this fit")
    return container.contents_digest((home.describe(), home.scaling.arrays()))


@dataclass
class Resumed:
    """The checked contents of a checkpoint, from which a fit is resumed.

    ``tracker`` describes the responses of the rows for validation; errors in ``reading()`` name
    the file. ``status``, ``audit`` and ``function`` are the result of a fit that had ended.
    """

    course: Course
    state: State
    tracker: Record
    reading: Callable[[], AbstractContextManager[None]]
    status: str | None = None
    audit: dict[str, Any] | None = None
    function: Expansion | None = None

    @classmethod
    def restore(
        cls, solver: Solver[Any], problem: Problem, max_iter: int, record: Record,
        reading: Callable[[], AbstractContextManager[None]],
    ) -> Self:  # fmt: skip
        tracker, source = record.part("tracker"), record.contents()
        part, end = record.part("state"), record.part("result")
        state: State = solver.restore(problem, part.values, part.arrays)
        home = _home(part, state, problem)
        course = Course.restore(record.part("course"), problem, home)
        result: dict[str, Any] = {}
        if end.values:
            result["status"] = end.take("status", one_of((*OVER, "stopped", *CUT)))
            result["audit"] = end.take("audit", or_none(check_audit))
            result["function"] = _function("function", end, problem, home)
            if result["function"] is None:
                raise end.error("lacks the function")
        end.close()
        t, done = record.take("iteration", check_int), course.done
        most = max_iter if result else max_iter - 1  # without an end a step is left
        if not 1 <= done <= min(most, t) or [t] != course.history["iteration"][-1:]:
            raise record.error(f"holds iteration {t} of which {done} are of this fit")
        record.close()
        record.check_same(source, course.describe(state, None, **result))
        return cls(course, state, tracker, reading, **result)
