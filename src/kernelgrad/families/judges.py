"""Rows that tell of the errors of a fit on new rows."""

from __future__ import annotations

from dataclasses import replace

from kernelgrad.calibration import MOST_ROWS
from kernelgrad.families.classes import thinned
from kernelgrad.model import Fit
from kernelgrad.quality import CALIBRATION, LOO, LOO_ROWS, Judges, Seen, without_classes
from kernelgrad.solvers import Problem
from kernelgrad.training_rows import TrainingRows


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
        X, y, weight, _ = others.usable(others.source.take(numbers))
        if len(y):
            values = model.outcome(model.values(X))
            judges = Judges(values, y, weight, "rows that were not fitted", is_final=True)
            judges = without_classes(judges, rows.task)
    exact = choice.solver.name in ("direct", "newton") and not rows.inputs.pairwise
    small = n <= LOO_ROWS and 16.0 * n**2 <= problem.resources.usable
    if exact and small and getattr(model.function, "n_support", 0) == n:
        _, y, weight, _ = rows.usable(rows.source.read(0, n))
        alpha = fit.history.get("audit", {}).get("alpha", choice.alpha)
        seen = Seen(y.copy(), weight.copy(), alpha, problem.fit_intercept, rows.order)
    source = "none: no rows were held out, and leave-one-out is for exact fits of few rows"
    if isinstance(choice.calibration, tuple):
        source = CALIBRATION
    if judges is not None:
        judges, source = judges.compact(), judges.source
    if seen is not None and not (judges is not None and judges.is_final):
        source = LOO
    return replace(fit, judges=judges, seen=seen, history=fit.history | {"judges": source})
