"""Rows that a function was not fitted to: they calibrate it, and tell its errors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from kernelgrad.calibration import MOST_ROWS, Calibration, Responses, margin
from kernelgrad.callbacks import Aside, CallbackList, Deadline
from kernelgrad.choice import Choice
from kernelgrad.data.sampling import thinned
from kernelgrad.families.hurry import is_hurried, small_fit
from kernelgrad.functions.expansions import Expansion
from kernelgrad.model import Fit
from kernelgrad.partly_labelled import MarkedClassification
from kernelgrad.quality import LATEST_ROWS, LOO_ROWS, Seen, latest_of
from kernelgrad.search.auto import exact_solver
from kernelgrad.solvers import BlockDescent, NewtonCG, Problem, Solver, loop
from kernelgrad.solvers.exact import ExactSolver, newton_bytes
from kernelgrad.solvers.support import KernelSolver
from kernelgrad.training_rows import Batches, TrainingRows
from kernelgrad.types import IntArray

if TYPE_CHECKING:
    from kernelgrad.families.base import Spec
    from kernelgrad.families.reading import Run

MANY_ROWS = 100_000  # Rows from which the fit itself holds some out to calibrate on.


def responses_of_part(
    spec: Spec, choice: Choice, rows: TrainingRows, problem: Problem, n_iter: int,
    callbacks: CallbackList,
) -> Responses | None:  # fmt: skip
    """Fit a part of the rows and return the responses to others.

    That takes about a tenth to a quarter of the time of the fit: a part of the rows in memory,
    or few iterations. The result is None if each class has a single row.
    """
    solver, seed = choice.solver, choice.seed
    n, strata = rows.source.n_rows, rows.strata
    samples = "random_features" in solver.requires
    if n == 1 or (strata is not None and len(np.unique(strata)) == n):
        return None
    if samples or not rows.in_memory:
        n_iter = math.ceil(n_iter * (0.3 if samples else 0.1))
        rows = rows.hold_out(0.2, seed, most=MOST_ROWS)
    else:
        # the time goes with the square of the rows, or with the rows; 200 are enough
        part = 0.25 if isinstance(solver, KernelSolver) else 0.1
        part = max(part, min(0.5, 200 / n))
        rows = rows.hold_out(1.0 - part, seed, most=None)
    members = thinned(rows.held_out, MOST_ROWS)
    callbacks.on_phase("calibration")
    if rows.in_memory:
        solver = _solver_of_part(spec, solver, rows, problem)
    batches, fixed = rows.batches(solver, seed, 0)
    problem, left = replace(problem, fixed_rows=fixed), problem.resources.deadline.left()
    if np.isfinite(left):
        resources = replace(problem.resources, deadline=Deadline(0.1 * left))
        problem = replace(problem, resources=resources)
        if is_hurried(spec, replace(choice, solver=solver), rows, problem):
            small = small_fit(rows, problem, resources.deadline)
            return rows.responses(small.function, members)
    if hasattr(solver, "tol"):
        solver = clone(solver).set_params(tol=10.0 * solver.tol)
    return rows.responses(fitted_aside(solver, problem, batches, n_iter, callbacks), members)


def fitted_aside(
    solver: Solver[Any], problem: Problem, batches: Batches, n_iter: int,
    callbacks: CallbackList,
) -> Expansion:  # fmt: skip
    """Return the function of a fit that is a phase of another one; Ctrl-C ends both."""
    listeners = CallbackList([Aside(callbacks)])
    result = loop.run(solver, problem, batches, max_iter=n_iter, callbacks=listeners)
    if listeners.interrupted:
        raise KeyboardInterrupt
    return result.expansion


def _solver_of_part(
    spec: Spec, solver: Solver[Any], rows: TrainingRows, problem: Problem
) -> Solver[Any]:
    """Return the solver of a part of the rows: an exact one is sooner than block descent."""
    exact = exact_solver(problem.loss, problem.kernel)
    if not (spec.is_auto and isinstance(exact, NewtonCG) and isinstance(solver, BlockDescent)):
        return solver
    copied, prepared, _ = rows.bytes_of_fit(solver, stream=False)
    least = copied + newton_bytes(rows.n_train, problem.n_outputs, prepared)
    return exact if least <= problem.resources.usable else solver


def calibrated(
    rows: TrainingRows, choice: Choice, function: Expansion, run: Run
) -> tuple[Calibration | None, Responses | None]:
    """Return the calibration of a fitted function, and what the next rows of a stream add to.

    Rows of a stream calibrate the function before it learns from them. Without rows held out
    the stream has just begun, or the rows are too few.
    """
    before, start = run.before, None
    if run.stream and before is not None:
        latest = rows.responses(before.model.function, _tenth(rows))
        if before.latest is not None:
            start = before.model.calibration
            latest = latest_of(before.latest, latest)
    elif choice.calibration is not None:
        latest = choice.calibration
    else:
        members = thinned(rows.held_out, MOST_ROWS) if len(rows.held_out) else _tenth(rows)
        latest = rows.responses(function, members)
    fitted = None if before is None else before.model.calibration
    if latest[2].sum() > 0:
        fitted = Calibration.fit(*latest, unit=margin(rows.task), start=start)
    return fitted, latest if run.stream else None


def _tenth(rows: TrainingRows) -> IntArray:
    """Return a tenth of the rows of a stream, at least 50 and at most 2,000 of them."""
    n = rows.source.n_rows
    return thinned(np.arange(n), int(np.clip(n // 10, 50, MOST_ROWS)))


def with_unseen(fit: Fit, rows: TrainingRows, problem: Problem, run: Run) -> Fit:
    """Return the fit with rows that it has not seen, and with what leave-one-out needs."""
    if not rows.task.has_targets or isinstance(rows.task, MarkedClassification):
        return fit
    choice, model, others, numbers = fit.choice, fit.model, rows, rows.held_out
    unseen, seen, n = choice.unseen, None, rows.source.n_rows
    if run.stream and run.before is not None:  # the function before has not learned them
        latest = np.arange(n)[-LATEST_ROWS:]
        new = run.before.model.unseen(rows, latest, "latest rows of a stream, not yet learned")
        before = run.before
        return replace(fit, held_out=new.after(before.unseen) if new else before.held_out)
    if rows.validation_rows is not None:
        others = replace(rows.validation_rows, task=rows.task)
        numbers = others.train
    if len(numbers):
        numbers = thinned(numbers, 2 * MOST_ROWS)
        unseen = model.unseen(others, numbers, "rows that were not fitted") or unseen
    exact = isinstance(choice.solver, ExactSolver) and not rows.inputs.pairwise
    small = n <= LOO_ROWS and 16.0 * n**2 <= problem.resources.usable
    if exact and small and getattr(model.function, "n_support", 0) == n:
        _, y, weight, _ = rows.usable(rows.source.read(0, n))
        alpha = getattr(fit.state, "alpha", choice.alpha)
        seen = Seen(y.copy(), weight.copy(), alpha, problem.fit_intercept, rows.order)
    return replace(fit, held_out=None if unseen is None else unseen.compact(), seen=seen)
