"""What a fit does whose time is short: a function of some rows stands for that of all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelgrad.calibration import MOST_ROWS
from kernelgrad.callbacks import FOREVER, SILENT, Deadline
from kernelgrad.choice import Choice
from kernelgrad.compute.compiling import clock
from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.data import ArraySource
from kernelgrad.functions.expansions import Expansion
from kernelgrad.losses import scalar
from kernelgrad.search.auto import READING_SECONDS, first_seconds, slowness
from kernelgrad.solvers import (
    BlockDescent,
    DirectSolve,
    FitResult,
    NewtonCG,
    Problem,
    Solver,
    WorkingSet,
    new_history,
)
from kernelgrad.solvers.block_descent.solver import WHOLE
from kernelgrad.solvers.contract import State
from kernelgrad.training_rows import TrainingRows, no_rows
from kernelgrad.types import IntArray

if TYPE_CHECKING:
    from kernelgrad.families.base import Spec

LEAST_ROWS = 300  # rows that are fitted even after the deadline
_MOST_ROWS = 16_384  # rows whose kernel matrix is the largest to be made
_GROWTH = 4.0  # ratio of the rows of a machine to those of the one before, at most
_STEPS = 30  # iterations of a machine, at most
_TAG = 0x666577


@dataclass(frozen=True)
class SmallFit:
    """A machine of some training rows, with the numbers of rows that it has not seen."""

    rows: TrainingRows
    others: IntArray
    problem: Problem
    state: State
    function: Expansion


def may_serve(spec: Spec, choice: Choice, rows: TrainingRows) -> bool:
    """Return whether a fit whose time is over may end with a function of some rows."""
    features = "random_features" in choice.solver.requires
    return spec.fits_some_rows and type(rows) is TrainingRows and not features


def is_hurried(spec: Spec, choice: Choice, rows: TrainingRows, problem: Problem) -> bool:
    """Return whether the time left is too short for a useful function of all rows."""
    n, left = rows.n_train, problem.resources.deadline.left()
    if not may_serve(spec, choice, rows):
        return False
    seconds = first_seconds(choice.solver, problem.loss, n, rows.task.n_outputs)
    if rows.reads_in_pieces:
        seconds += READING_SECONDS * n * rows.source.n_features
    return slowness() * seconds > left


def small_fit_beforehand(
    spec: Spec, choice: Choice, rows: TrainingRows, problem: Problem
) -> SmallFit | None:
    """Return a function of some rows where reading all of them may take too long."""
    if not (rows.reads_in_pieces and may_serve(spec, choice, rows)):
        return None
    return small_fit(rows, problem, Deadline(0.1 * problem.resources.deadline.left()))


def ended_small(
    spec: Spec, rows: TrainingRows, choice: Choice, small: SmallFit
) -> tuple[Choice, FitResult]:
    """Return the choice and the result of a function of some rows."""
    choice = replace(choice, entries=choice.entries | {"rows_fitted": small.rows.n_train})
    if spec.calibrates(rows) and len(small.others):
        calibration = rows.responses(small.function, small.others[:MOST_ROWS])
        choice = replace(choice, calibration=calibration)
    return choice, FitResult(small.state, small.function, "time_limit", new_history(None))


def solver_of_some(problem: Problem) -> Solver[Any]:
    """Return the solver that reaches the minimum for some hundreds of rows soonest."""
    loss = problem.loss
    # values of a user's functions and matrices may be no kernel's, which exact solvers refuse
    smooth = loss.is_smooth and problem.kernel.has_random_features
    if smooth and loss.code == scalar.SQUARED:
        return DirectSolve()
    if smooth and not loss.adaptive_intercept:
        return NewtonCG()
    return WorkingSet() if loss.name in WorkingSet.losses else BlockDescent()


def small_fit(rows: TrainingRows, problem: Problem, deadline: Deadline) -> SmallFit:
    """Return the machine of as many rows as the time allows, of 300 at the least.

    Each machine has up to four times the rows of the one before, fewer if less time is left
    than that takes with the cube of the rows. The ridge, alpha times the rows, stays the same.
    """
    n, solver = rows.n_train, solver_of_some(problem)
    # a float64 matrix and a float32 factor
    most = min(_MOST_ROWS, int(np.sqrt(problem.resources.limit(1e10) / 12)))
    most = max(LEAST_ROWS, min(most, WHOLE) if isinstance(solver, BlockDescent) else most)
    drawn = rows.sample(most, draws(problem.seed, _TAG))
    X, y, weight, numbers = rows.usable(rows.source.take(drawn))
    mixed = draws(problem.seed, _TAG, 1).permutation(len(y))
    most = max(min(len(y), LEAST_ROWS), len(y) - len(y) // 5)  # others calibrate
    resources = replace(problem.resources, deadline=FOREVER, progress=SILENT)
    m = min(LEAST_ROWS, most)
    while True:
        start, at = clock(), np.sort(mixed[:m])
        source = ArraySource(X[at], y[at], weight[at], checked=True)
        own = replace(
            rows, source=source, is_internal=True, held_out=no_rows(), reads_in_pieces=False,
            store=None,
        )  # fmt: skip
        batch = replace(own.take(own.train), rows=numbers[at])
        lesser = replace(
            problem, alpha=problem.alpha * n / m, resources=resources, fixed_rows=True
        )
        with single_threaded_blas():
            state = solver.init(lesser, batch)
            for _ in range(_STEPS):
                if solver.step(lesser, state, batch).converged:
                    break
        seconds = max(clock() - start, 1e-6)
        growth = min(_GROWTH, most / m, (deadline.left() / seconds) ** (1 / 3))
        if growth < min(1.3, most / m) or m == most:
            break
        m = min(most, round(m * growth))
    function = solver.expansion(state)
    state.iteration = 0  # a fit that goes on begins with all rows
    return SmallFit(own, np.sort(numbers[mixed[m:]]), lesser, state, function)
