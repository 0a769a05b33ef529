"""Probabilities of classes: responses to rows that a function has not seen, calibrated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone

from kernelgrad.calibration import MOST_ROWS, Calibration, Responses
from kernelgrad.callbacks import Aside, CallbackList, Deadline
from kernelgrad.choice import Choice
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.data import split_rows
from kernelgrad.families.few import fit_few
from kernelgrad.functions.expansions import Expansion
from kernelgrad.solvers import Problem, run
from kernelgrad.solvers.support import KernelSolver
from kernelgrad.tasks import Classification, Task
from kernelgrad.training_rows import TrainingRows
from kernelgrad.types import IntArray
from kernelgrad.validation import DataError

if TYPE_CHECKING:
    from kernelgrad.families.base import Spec
    from kernelgrad.model import Fit

MANY_ROWS = 100_000  # Rows from which the fit itself holds some out to calibrate on.


def share(rows: TrainingRows) -> float:
    """Return the share of many rows that is held out to calibrate on."""
    return MOST_ROWS / rows.n_train


def are_calibrated(spec: Spec, task: Task) -> bool:
    """Return whether probabilities come from responses to rows that were not fitted."""
    return bool(
        spec.params.probability and isinstance(task, Classification) and not task.has_own_proba
    )


def responses_of_part(
    choice: Choice, rows: TrainingRows, problem: Problem, n_iter: int, callbacks: CallbackList,
    is_hurried: Callable[[Problem], bool],
) -> Responses | None:  # fmt: skip
    """Fit a part of the rows and return the responses to others.

    That takes about a tenth to a quarter of the time of the fit: a part of the rows in memory,
    or few iterations. The result is None if a class has a single row.
    """
    solver, seed = choice.solver, choice.seed
    n, strata = rows.source.n_rows, rows.strata
    samples = "random_features" in solver.requires
    try:
        if samples or not rows.in_memory:
            n_iter = -int(-n_iter * (0.3 if samples else 0.1) // 1)
            held_out = members = split_rows(
                rows.source, 0.2, seed=seed, stratify=strata, max_rows=MOST_ROWS
            )
        else:
            # the time goes with the square of the rows, or with the rows; 200 are enough
            part = 0.25 if isinstance(solver, KernelSolver) else 0.1
            part = max(part, min(0.5, 200 / n))
            held_out = split_rows(n, 1.0 - part, seed=seed, stratify=strata)
            members = thinned(held_out)
    except DataError:
        return None
    callbacks.on_phase("calibration")
    rows = replace(rows, held_out=held_out)
    batches, fixed = rows.batches(solver, seed, 0)
    left = problem.resources.deadline.left()
    if np.isfinite(left):
        resources = replace(problem.resources, deadline=Deadline(0.1 * left))
        problem = replace(problem, resources=resources)
    problem = replace(problem, fixed_rows=fixed)
    if is_hurried(problem):
        return responses(
            fit_few(rows, problem, problem.resources.deadline).function, rows, members
        )
    if hasattr(solver, "tol"):
        solver = clone(solver).set_params(tol=10.0 * solver.tol)
    listeners = CallbackList([Aside(callbacks)])
    result = run(solver, problem, batches, max_iter=n_iter, callbacks=listeners)
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
    rows: TrainingRows, choice: Choice, function: Expansion, before: Fit | None, stream: bool
) -> tuple[Calibration | None, Responses | None]:
    """Return the calibration of a fitted function, and what the next rows of a stream add to.

    Rows of a stream calibrate the function before it learns from them. Without rows held out
    the stream has just begun, or the rows are too few.
    """
    start, latest = None, None
    if stream and before is not None:
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
        unit = None if rows.task.loss.name == "perceptron" else 1.0
        assert start is None or isinstance(start, Calibration)
        fitted = Calibration.fit(*latest, unit=unit, start=start)
    assert fitted is None or isinstance(fitted, Calibration)
    return fitted, latest if stream else None


def thinned(rows: IntArray, most: int = MOST_ROWS) -> IntArray:
    """Return at most `most` evenly spaced rows."""
    return rows[:: max(1, -(-len(rows) // most))]


def _tenth(rows: TrainingRows) -> IntArray:
    """Return a tenth of the rows of a stream, at least 50 and at most 2,000 of them."""
    n = rows.source.n_rows
    return thinned(np.arange(n), int(np.clip(n // 10, 50, MOST_ROWS)))
