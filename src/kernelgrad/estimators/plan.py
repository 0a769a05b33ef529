"""What a fit is made of: what was given, what the parameters ask for, and what is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kernelgrad.callbacks import FitEvent
from kernelgrad.kernels import Kernel
from kernelgrad.search.pilot import Wanted
from kernelgrad.solvers import Problem, Resumed, Solver, State, Validation
from kernelgrad.training_rows import TrainingRows
from kernelgrad.types import AnyArray

Choice = tuple[Solver[Any], str]  # a solver, and why it was chosen


@dataclass(frozen=True)
class Parts:
    """What the parameters ask for, made and checked once in a fit."""

    kernel: Kernel
    solver: Solver[Any]  # with solver="auto" any one: the rows decide
    wanted: Wanted | None = None  # to be found by a study of the rows


class Given(NamedTuple):
    X: Any
    y: Any = None
    sample_weight: Any = None
    others: Any = None  # rows of another kind: without a label, or of the denominator


class Reading(NamedTuple):
    fresh: bool  # columns and task are learned of them
    declared: AnyArray | None = None  # all classes, where they are known
    stream: bool = False  # other rows may follow: categories have declared levels too
    source: bool = False  # they are all those of a source


class Posed(NamedTuple):
    """A problem, what was found on the way to it, and the seconds that took."""

    problem: Problem
    found: dict[str, Any]
    seconds: float = 0.0


@dataclass(frozen=True)
class Plan:
    rows: TrainingRows
    problem: Problem
    solver: Solver[Any]
    reason: str  # why this solver was chosen
    max_iter: int
    batch_size: int | None = None  # where it is not the solver's
    validation: Validation | None = None
    found: dict[str, Any] = field(default_factory=dict)  # more of history_: what was tried
    best_score: float | None = None  # where it is not that of `validation`
    seconds: float = 0.0  # spent before
    stream: bool = False  # rows come once, and others may follow
    goes_on: bool = False  # from the state of the last fit
    resumed: Resumed | None = None  # from a checkpoint
    report: Callable[[FitEvent, State], bool] | None = None  # of each iteration
