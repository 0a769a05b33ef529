"""Parts of the rows: fits to some of them that calibrate or save time, and rows that judge."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from kernelgrad.calibration import MOST_ROWS, Calibration, Responses, margin
from kernelgrad.callbacks import FOREVER, SILENT, Aside, CallbackList, Deadline
from kernelgrad.choice import Choice
from kernelgrad.compute.compiling import clock
from kernelgrad.compute.memory import LEAST_LIMIT
from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.data import ArraySource, split_rows
from kernelgrad.functions.expansions import Expansion
from kernelgrad.losses import scalar
from kernelgrad.model import Fit
from kernelgrad.quality import LOO_ROWS, Seen
from kernelgrad.search.auto import READING_SECONDS, first_seconds, slowness
from kernelgrad.solvers import (
    BlockDescent,
    DirectSolve,
    FitResult,
    NewtonCG,
    Problem,
    Solver,
    WorkingSet,
    get_solver,
    loop,
    new_history,
)
from kernelgrad.solvers.block_descent.solver import WHOLE
from kernelgrad.solvers.contract import State
from kernelgrad.solvers.support import KernelSolver
from kernelgrad.tasks import Classification
from kernelgrad.training_rows import TrainingRows, no_rows
from kernelgrad.types import IntArray

if TYPE_CHECKING:
    from kernelgrad.families.base import Spec
    from kernelgrad.families.reading import Run

MANY_ROWS = 100_000  # Rows from which the fit itself holds some out to calibrate on.
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
class Few:
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
    return spec.takes_few and type(rows) is TrainingRows and not features


def is_hurried(
    choice: Choice, rows: TrainingRows, problem: Problem, times: float = 1.0
) -> bool:
    """Return whether the time left is too short for some useful functions of all rows."""
    n, left = rows.n_train, problem.resources.deadline.left()
    seconds = first_seconds(choice.solver, problem.loss, n, rows.task.n_outputs)
    if rows.reads_in_pieces:
        seconds += READING_SECONDS * n * rows.source.n_features
    return times * slowness() * seconds > left


def solver_of_few(problem: Problem) -> Solver[Any]:
    """Return the solver that reaches the minimum for some hundreds of rows soonest."""
    loss = problem.loss
    if loss.name == "perceptron":  # its least objective is that of a constant
        return get_solver(loss.name)
    # values of a user's functions and matrices may be no kernel's, which exact solvers refuse
    smooth = loss.is_smooth and problem.kernel.has_random_features
    if smooth and loss.code == scalar.SQUARED:
        return DirectSolve()
    if smooth and not loss.adaptive_intercept:
        return NewtonCG()
    return WorkingSet() if loss.name in WorkingSet.losses else BlockDescent()


def fit_few(rows: TrainingRows, problem: Problem, deadline: Deadline) -> Few:
    """Return the machine of as many rows as the time allows, of 300 at the least.

    Each machine has up to four times the rows of the one before, fewer if less time is left
    than that takes with the cube of the rows. The ridge, alpha times the rows, stays the same.
    """
    n, solver = rows.n_train, solver_of_few(problem)
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
            rows, source=source, is_encoded=True, held_out=no_rows(), reads_in_pieces=False,
            store=None,
        )  # fmt: skip
        batch = replace(own.take(own.train), rows=numbers[at])
        few = replace(
            problem, alpha=problem.alpha * n / m, resources=resources, fixed_rows=True
        )
        with single_threaded_blas():
            state = solver.init(few, batch)
            for _ in range(_STEPS):
                info = solver.step(few, state, batch)
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
    return Few(own, np.sort(numbers[mixed[m:]]), few, state, function, penalty)


def responses_of_part(
    choice: Choice, rows: TrainingRows, problem: Problem, n_iter: int, callbacks: CallbackList,
    serves: bool,
) -> Responses | None:  # fmt: skip
    """Fit a part of the rows and return the responses to others.

    That takes about a tenth to a quarter of the time of the fit: a part of the rows in memory,
    or few iterations. The result is None if each class has a single row. If it `serves`, a
    function of some rows takes the place of one that would take too long.
    """
    solver, seed = choice.solver, choice.seed
    n, strata = rows.source.n_rows, rows.strata
    samples = "random_features" in solver.requires
    if n == 1 or (strata is not None and len(np.unique(strata)) == n):
        return None
    if samples or not rows.in_memory:
        n_iter = math.ceil(n_iter * (0.3 if samples else 0.1))
        held_out = members = split_rows(
            rows.source, 0.2, seed=seed, stratify=strata, max_rows=MOST_ROWS
        )
    else:
        # the time goes with the square of the rows, or with the rows; 200 are enough
        part = 0.25 if isinstance(solver, KernelSolver) else 0.1
        part = max(part, min(0.5, 200 / n))
        held_out = split_rows(n, 1.0 - part, seed=seed, stratify=strata)
        members = thinned(held_out)
    callbacks.on_phase("calibration")
    rows = replace(rows, held_out=held_out)
    batches, fixed = rows.batches(solver, seed, 0)
    left = problem.resources.deadline.left()
    if np.isfinite(left):
        resources = replace(problem.resources, deadline=Deadline(0.1 * left))
        problem = replace(problem, resources=resources)
    problem = replace(problem, fixed_rows=fixed)
    if serves and is_hurried(choice, rows, problem):
        few = fit_few(rows, problem, problem.resources.deadline)
        return responses(few.function, rows, members)
    if hasattr(solver, "tol"):
        solver = clone(solver).set_params(tol=10.0 * solver.tol)
    listeners = CallbackList([Aside(callbacks)])
    result = loop.run(solver, problem, batches, max_iter=n_iter, callbacks=listeners)
    if listeners.interrupted:
        raise KeyboardInterrupt
    return responses(result.expansion, rows, members)


def responses(function: Expansion, rows: TrainingRows, members: IntArray) -> Responses:
    """Return responses of the classes, codes and weights of rows by their numbers."""
    X, y, weight, _ = rows.usable(rows.source.take(members))
    task = rows.task
    assert isinstance(task, Classification)
    with single_threaded_blas():
        raw = function.raw_prediction(X)
    return task.class_responses(raw), y, weight


def calibration(
    rows: TrainingRows, choice: Choice, function: Expansion, run: Run
) -> tuple[Calibration | None, Responses | None]:
    """Return the calibration of a fitted function, and what the next rows of a stream add to.

    Rows of a stream calibrate the function before it learns from them. Without rows held out
    the stream has just begun, or the rows are too few.
    """
    start, latest = None, None
    before = run.before
    if run.stream and before is not None:
        latest = responses(before.model.function, rows, _tenth(rows))
        if before.latest is not None:
            start = before.model.calibration
            pairs = zip(before.latest, latest, strict=True)
            z, y, weight = (np.concatenate(pair)[-1000:] for pair in pairs)
            latest = z, y, weight
    elif isinstance(choice.calibration, tuple):
        latest = choice.calibration
    else:
        members = thinned(rows.held_out) if len(rows.held_out) else _tenth(rows)
        latest = responses(function, rows, members)
    fitted = None if before is None else before.model.calibration
    if latest[2].sum() > 0:
        assert isinstance(rows.task, Classification)
        assert start is None or isinstance(start, Calibration)
        fitted = Calibration.fit(*latest, unit=margin(rows.task), start=start)
    assert fitted is None or isinstance(fitted, Calibration)
    return fitted, latest if run.stream else None


def thinned(rows: IntArray, most: int = MOST_ROWS) -> IntArray:
    """Return at most `most` evenly spaced rows."""
    return rows[:: max(1, -(-len(rows) // most))]


def _tenth(rows: TrainingRows) -> IntArray:
    """Return a tenth of the rows of a stream, at least 50 and at most 2,000 of them."""
    n = rows.source.n_rows
    return thinned(np.arange(n), int(np.clip(n // 10, 50, MOST_ROWS)))


def with_judges(fit: Fit, rows: TrainingRows, problem: Problem) -> Fit:
    """Return the fit with rows that it has not seen, and with what leave-one-out needs."""
    if not rows.task.has_targets or type(rows) is not TrainingRows:
        return fit
    choice, model, others, numbers = fit.choice, fit.model, rows, rows.held_out
    judges, seen, n = choice.judges, None, rows.source.n_rows
    if rows.validation_rows is not None:
        others = replace(rows.validation_rows, task=rows.task)
        numbers = others.train
    if len(numbers):
        numbers = thinned(numbers, 2 * MOST_ROWS)
        judges = model.judges(others, numbers, "rows that were not fitted") or judges
    exact = choice.solver.name in ("direct", "newton") and not rows.inputs.pairwise
    small = n <= LOO_ROWS and 16.0 * n**2 <= problem.resources.usable
    if exact and small and getattr(model.function, "n_support", 0) == n:
        _, y, weight, _ = rows.usable(rows.source.read(0, n))
        alpha = fit.history.get("audit", {}).get("alpha", choice.alpha)
        seen = Seen(y.copy(), weight.copy(), alpha, problem.fit_intercept, rows.order)
    return replace(fit, judges=None if judges is None else judges.compact(), seen=seen)


def few_beforehand(choice: Choice, rows: TrainingRows, problem: Problem) -> Few | None:
    """Return a function of some rows where that of all of them may come too late."""
    if not (rows.reads_in_pieces or is_hurried(choice, rows, problem, _SURE)):
        return None
    return fit_few(rows, problem, Deadline(_SHARE * problem.resources.deadline.left()))


def is_better(few: Few, result: FitResult, rows: TrainingRows) -> bool:
    """Return whether a function of some rows serves better than a result of too little time.

    Its objective of all rows is lower or, where no objective is known, its mean loss is. Mean
    losses are those of rows that it has not seen.
    """
    if result.status != "time_limit" or not len(few.others):
        return False
    batch = rows.take(thinned(few.others, _COMPARED))

    def mean_loss(function: Expansion) -> float:
        with single_threaded_blas():
            raw = function.raw_prediction(batch.X)
        values = rows.task.loss.value(batch.y, raw)
        return float(np.average(values, weights=batch.sample_weight))

    own, objective = mean_loss(few.function), result.history["objective"][-1]
    if objective is None or few.penalty is None:
        return own < mean_loss(result.expansion)
    return bool(own + few.penalty < objective)


def few_rows(
    spec: Spec, rows: TrainingRows, choice: Choice, few: Few
) -> tuple[Choice, FitResult]:
    """Return the choice and the result of a function of some rows."""
    choice = replace(choice, entries=choice.entries | {"rows_fitted": few.rows.n_train})
    if spec.params.probability and not rows.task.has_own_proba and len(few.others):
        calibration = responses(few.function, rows, few.others[:MOST_ROWS])
        choice = replace(choice, calibration=calibration)
    result = FitResult(few.state, few.function, "time_limit", new_history(None))
    return choice, result
