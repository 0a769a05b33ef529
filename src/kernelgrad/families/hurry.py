"""What a fit does whose time is short: a function of some rows stands for that of all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelgrad.calibration import MOST_ROWS
from kernelgrad.callbacks import FOREVER, SILENT, Deadline, TimeIsUp
from kernelgrad.choice import Choice
from kernelgrad.compute.compiling import clock
from kernelgrad.compute.memory import LEAST_LIMIT
from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.data import ArraySource
from kernelgrad.data.sampling import thinned
from kernelgrad.functions.expansions import Expansion
from kernelgrad.losses import scalar
from kernelgrad.search.auto import READING_SECONDS, exact_solver, first_seconds, slowness
from kernelgrad.solvers import (
    BlockDescent,
    DirectSolve,
    FitResult,
    NewtonCG,
    Problem,
    Solver,
    get_solver,
    new_history,
)
from kernelgrad.solvers.block_descent.solver import WHOLE
from kernelgrad.solvers.contract import State
from kernelgrad.training_rows import TrainingRows, no_rows
from kernelgrad.types import IntArray

if TYPE_CHECKING:
    from kernelgrad.families.base import Spec
    from kernelgrad.families.reading import Run

LEAST_ROWS = 300  # rows that are fitted even after the deadline
_MOST_ROWS = 16_384  # rows whose kernel matrix is the largest to be made
_MATRIX_BYTES = 8e7  # bytes that a matrix takes whatever its size
_GROWTH = 4.0  # ratio of the rows of a machine to those of the one before, at most
_STEPS = 30  # iterations of a machine, at most
_SURE = 4.0  # times that a useful function must fit into the time to be waited for
_SHARE = 0.15  # part of the time for a function of some rows beforehand
_COMPARED = 500  # rows on which two functions are compared
_TAG = 0x666577


@dataclass(frozen=True)
class SmallFit:
    """A machine of some training rows, with the numbers of rows that it has not seen."""

    rows: TrainingRows
    others: IntArray
    problem: Problem
    state: State
    function: Expansion
    penalty: float | None  # its part of the objective of all rows


def may_serve(spec: Spec, choice: Choice, rows: TrainingRows) -> bool:
    """Return whether a fit whose time is over may end with a function of some rows."""
    features = "random_features" in choice.solver.requires
    return spec.fits_some_rows and type(rows) is TrainingRows and not features


def is_hurried(
    spec: Spec, choice: Choice, rows: TrainingRows, problem: Problem, times: float = 1.0
) -> bool:
    """Return whether the time left is too short for some useful functions of all rows."""
    n, left = rows.n_train, problem.resources.deadline.left()
    if not may_serve(spec, choice, rows):
        return False
    seconds = first_seconds(choice.solver, problem.loss, n, rows.task.n_outputs)
    if rows.reads_in_pieces:
        seconds += READING_SECONDS * n * rows.source.n_features
    return times * slowness() * seconds > left


def is_better(small: SmallFit, result: FitResult, rows: TrainingRows) -> bool:
    """Return whether a function of some rows serves better than a result of too little time.

    Its objective of all rows is lower or, where no objective is known, its mean loss is. Mean
    losses are those of rows that it has not seen.
    """
    if result.status != "time_limit" or not len(small.others):
        return False
    batch = rows.take(thinned(small.others, _COMPARED))

    def mean_loss(function: Expansion) -> float:
        with single_threaded_blas():
            raw = function.raw_prediction(batch.X)
        values = rows.task.loss.value(batch.y, raw)
        return float(np.average(values, weights=batch.sample_weight))

    own, objective = mean_loss(small.function), result.history["objective"][-1]
    if objective is None or small.penalty is None:
        return own < mean_loss(result.expansion)
    return bool(own + small.penalty < objective)


def in_time(
    spec: Spec, choice: Choice, rows: TrainingRows, problem: Problem, run: Run,
    solve: Callable[..., FitResult], *, urgent: bool, hurried: bool,
) -> tuple[Choice, FitResult, TrainingRows, Problem]:  # fmt: skip
    """Return choice, result, rows and problem of a fit whose time is limited.

    `solve` fits all rows. A function of some rows stands for its result if the fit is `hurried`
    or its time is over before the first iteration, and in an `urgent` fit if it serves better.
    """
    small = result = None
    serves = not run.stream and may_serve(spec, choice, rows)
    urgent = urgent and serves
    if hurried:
        run.callbacks.on_begin(choice.solver)
        run.callbacks.on_end("time_limit")
    else:
        if urgent and (rows.reads_in_pieces or is_hurried(spec, choice, rows, problem, _SURE)):
            share = Deadline(_SHARE * problem.resources.deadline.left())
            small = small_fit(rows, problem, share)
        with suppress(TimeIsUp):  # the time may end without a state, or in an urgent step
            result = solve(urgent=urgent)
    if (
        result is not None
        and not (serves and result.status == "time_limit" and not result.state.iteration)
        and (small is None or not is_better(small, result, rows))
    ):
        return choice, result, rows, problem
    small = small or small_fit(rows, problem, run.deadline)
    choice = replace(choice, entries=choice.entries | {"rows_fitted": small.rows.n_train})
    if spec.calibrates(rows) and len(small.others):
        calibration = rows.responses(small.function, small.others[:MOST_ROWS])
        choice = replace(choice, calibration=calibration)
    result = FitResult(small.state, small.function, "time_limit", new_history(None))
    if problem.posterior:
        rows, problem = small.rows, small.problem
    return choice, result, rows, problem


def solver_of_some(problem: Problem) -> Solver[Any]:
    """Return the solver that reaches the minimum for some hundreds of rows soonest."""
    loss = problem.loss
    if loss.name == "perceptron":  # its least objective is that of a constant
        return get_solver(loss.name)
    exact = exact_solver(loss, problem.kernel)
    if isinstance(exact, NewtonCG) and loss.code == scalar.SQUARED:
        return DirectSolve()
    return BlockDescent() if exact is None else exact


def small_fit(rows: TrainingRows, problem: Problem, deadline: Deadline) -> SmallFit:
    """Return the machine of as many rows as the time allows, of 300 at the least.

    Each machine has up to four times the rows of the one before, fewer if less time is left
    than that takes with the cube of the rows. The ridge, alpha times the rows, stays the same.
    """
    n, solver = rows.n_train, solver_of_some(problem)
    # a float64 matrix and a float32 factor; smaller limits are no bounds
    limit = max(problem.resources.limit(1e10), LEAST_LIMIT)
    most = min(_MOST_ROWS, int(np.sqrt((limit - _MATRIX_BYTES) / 12)))
    most = max(LEAST_ROWS, min(most, WHOLE) if isinstance(solver, BlockDescent) else most)
    drawn = rows.sample(most, draws(problem.seed, _TAG))
    X, y, weight, numbers = rows.usable(rows.source.take(drawn))
    mixed = draws(problem.seed, _TAG, 1).permutation(len(y))
    most = max(min(len(y), LEAST_ROWS), len(y) - len(y) // 5)  # others calibrate
    bound = None if problem.resources.memory_limit is None else int(limit)
    resources = replace(
        problem.resources, memory_limit=bound, deadline=FOREVER, progress=SILENT
    )
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
                info = solver.step(lesser, state, batch)
                if info.converged:
                    break
        seconds = max(clock() - start, 1e-6)
        growth = min(_GROWTH, most / m, (deadline.left() / seconds) ** (1 / 3))
        if growth < min(1.3, most / m) or m == most:
            break
        m = min(most, round(m * growth))
    function = solver.expansion(state)
    state.iteration = 0  # a fit that goes on begins with all rows
    penalty = None if info.objective is None else (info.objective - info.train_loss) * m / n
    return SmallFit(own, np.sort(numbers[mixed[m:]]), lesser, state, function, penalty)
