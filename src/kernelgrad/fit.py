"""The road of a fit: rows, choice, problem, run, model. Read this module first.

A family of functions (:class:`~kernelgrad.families.base.Spec`) says what each step does; the
rows know their columns and their task; the loop runs any solver; the result is a value.
"""

import copy
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from kernelgrad.callbacks import FOREVER
from kernelgrad.choice import Choice
from kernelgrad.families import hurry
from kernelgrad.families.base import Spec
from kernelgrad.families.held_out import with_unseen
from kernelgrad.families.reading import NO_DATA, Data, Run
from kernelgrad.model import Fit
from kernelgrad.solvers import FitResult, Problem, Resumed, loop
from kernelgrad.solvers.contract import check_solvable
from kernelgrad.training_rows import TrainingRows


def fit(spec: Spec, data: Data, run: Run, *, validation: Data = NO_DATA) -> Fit:
    """Fit a specification to data, from the state of the fit before if the run has one."""
    checkpoint, before = run.checkpoint, run.before
    run = run.seeded(spec.params.random_state)
    rows = spec.reader.read(data, run)
    if not run.stream:
        rows = spec.some_rows(spec.reader.with_validation(rows, validation, run), run)
    restored = partial(spec.restored_choice, rows, run)  # what a resumed fit chose
    saved = None if checkpoint is None else checkpoint.choice(rows.digest(), restored)
    # at first the solver alone, which decides how the rows are ordered
    first = saved or spec.first_choice(rows, run)
    rows = rows if run.stream else spec.ordered_rows(rows, first)
    problem = spec.problem(rows, first, run)
    choice = saved or spec.choose(rows, problem, first, run)
    problem, solver = choice.applied(problem), choice.solver
    if choice.loss is not None:
        rows = replace(rows, task=rows.task.with_loss(choice.loss))
    with nullcontext() if checkpoint is None or saved is None else checkpoint.reading():
        check_solvable(solver, problem)
    # a fit that begins may end with a function of some rows
    urgent = run.deadline is not FOREVER and not (saved or before or run.stream)
    hurried = urgent and hurry.is_hurried(spec, choice, rows, problem)
    if not choice.is_complete:
        if checkpoint is not None:  # a search may take longer than what follows
            checkpoint.store(choice.describe())
        choice = choice if hurried else spec.with_part_fits(choice, rows, problem, run)
        choice = replace(choice, is_complete=True)
    state_of = partial(Resumed.restore, solver, problem, choice.max_iter)
    resumed = None if checkpoint is None else checkpoint.resumed(choice.describe(), state_of)
    solve = partial(run_solver, spec, rows, problem, choice, run, resumed)
    if run.deadline is FOREVER:
        result = solve()
    else:
        choice, result, rows, problem = hurry.in_time(
            spec, choice, rows, problem, run, solve, urgent=urgent, hurried=hurried
        )
    result.state.release(brief=rows.reads_in_pieces and not spec.params.warm_start)
    result.expansion.compact()
    model, latest = spec.model(rows, choice, result.expansion, run)
    entries: dict[str, Any] = {"rows_fitted": rows.n_train} if rows.is_sample else {}
    entries |= {"solver": solver.name, "solver_reason": choice.reason} | choice.entries
    history = {k: v for k, v in result.history.items() if k != "rows_fitted"} | entries
    if choice.seconds:
        history["seconds"] = [t + choice.seconds for t in history.get("seconds", [])]
    ended = Fit(
        model, choice, result.state, history, result.status, result.state.iteration,
        result.best_iteration, result.best_score, latest,
    )  # fmt: skip
    ended = spec.with_extras(with_unseen(ended, rows, problem, run), rows, problem)
    if not spec.is_pairwise:  # rows that describe the columns, those of the fit before
        sample = None if run.model is None else run.model.sample
        sample = rows.examples() if sample is None else sample
        ended = replace(ended, model=replace(ended.model, sample=sample))
    spec.warn(ended, rows, result, run)
    return ended


def run_solver(
    spec: Spec, rows: TrainingRows, problem: Problem, choice: Choice, run: Run,
    resumed: Resumed | None, *, urgent: bool = False,
) -> FitResult:  # fmt: skip
    """Run the solver on batches, from the state of the fit before or the one resumed."""
    solver, before, p = choice.solver, run.before, spec.params
    max_iter, validation, stops = choice.max_iter, None, bool(p.early_stopping)
    if run.stream:
        size = solver.resolve_batch_size(None)
        passes = 0.0 if before is None else max(before.history["epoch"], default=0.0)
        batches, fixed, max_iter = rows.stream(size, passes), False, -(-rows.n_train // size)
    else:
        start = 0 if before is None else before.n_iter
        if resumed is not None:
            start = rows.drawn(solver, resumed.state.iteration, resumed.course.epoch)
        batches, fixed = rows.batches(solver, choice.seed, start)
        if rows.validation_rows is not None or (stops and len(rows.held_out)):
            function = run.model.function if run.model is not None and stops else None
            validation = rows.validation(
                p.n_iter_no_change, p.tol, start=function, early_stopping=stops
            )
    # a fit that ended before its first iteration begins anew
    state = before.state if before is not None and before.n_iter else None
    return loop.run(
        solver, replace(problem, fixed_rows=fixed), batches, max_iter=max_iter, resumed=resumed,
        state=None if state is None else state.copy(), validation=validation, urgent=urgent,
        history=None if before is None else dict(copy.deepcopy(before.history)),
        callbacks=run.callbacks,
    )  # fmt: skip
