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
    solver: Solver[Any]  # any solver of the family with solver="auto": the rows decide
    wanted: Wanted | None = None  # parameters that a search of the rows finds


class Given(NamedTuple):
    X: Any
    y: Any = None
    sample_weight: Any = None
    others: Any = None  # rows without a label, or those of the denominator


class Reading(NamedTuple):
    fresh: bool  # True if columns and task are learned from these rows
    declared: AnyArray | None = None  # all classes, if the caller named them
    stream: bool = False  # True if more rows may follow: declared levels count too
    source: bool = False  # True for the rows of a source, whose names are checked already


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
    reason: str  # reason of the choice of the solver
    max_iter: int
    batch_size: int | None = None  # None is the solver's
    validation: Validation | None = None
    found: dict[str, Any] = field(default_factory=dict)  # entries of history_
    best_score: float | None = None  # None is that of `validation`
    seconds: float = 0.0  # seconds of the search and the calibration
    stream: bool = False  # True if rows come once, and others may follow
    goes_on: bool = False  # True if the last fit is continued
    resumed: Resumed | None = None  # state of a checkpoint
    report: Callable[[FitEvent, State], bool] | None = None  # scikit-learn's callbacks
