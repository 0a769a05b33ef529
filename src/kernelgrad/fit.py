"""The road of a fit: rows, choice, problem, run, model. Read this module first.

A family of functions (:class:`~kernelgrad.families.base.Spec`) says what each step does; the
rows know their columns and their task; the loop runs any solver; the result is a value.
"""

import copy
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial

from kernelgrad.callbacks import FOREVER, TimeIsUp
from kernelgrad.choice import Choice
from kernelgrad.families import hurry
from kernelgrad.families.base import Spec
from kernelgrad.families.held_out import with_unseen
from kernelgrad.families.reading import NO_DATA, Data, Run
from kernelgrad.model import Fit
from kernelgrad.solvers import FitResult, Problem, Resumed, Validation, loop
from kernelgrad.solvers.contract import check_solvable
from kernelgrad.training_rows import Batches, TrainingRows


def fit(spec: Spec, data: Data, run: Run, *, validation: Data = NO_DATA) -> Fit:
    """Fit a specification to data, from the state of the fit before if the run has one."""
    checkpoint, before = run.checkpoint, run.before
    run = run.seeded(spec.params.random_state)
    rows = spec.reader.read(data, run)
    rows = rows if run.stream else spec.reader.with_validation(rows, validation, run)
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
    timed = run.deadline is not FOREVER and not (saved or before or run.stream)
    if not choice.is_complete:
        if checkpoint is not None:  # a search may take longer than what follows
            checkpoint.store(choice.describe())
        if not (timed and hurry.is_hurried(spec, choice, rows, problem)):
            choice = spec.with_part_fits(choice, rows, problem, run)
        choice = replace(choice, is_complete=True)
    hurried = timed and hurry.is_hurried(spec, choice, rows, problem)
    state_of = partial(Resumed.restore, solver, problem, choice.max_iter)
    resumed = None if checkpoint is None else checkpoint.resumed(choice.describe(), state_of)
    plan = rows, problem, choice, run, resumed
    batches, problem, max_iter = (iter(()), problem, 0) if hurried else planned_batches(*plan)
    small = hurry.beforehand(spec, choice, rows, problem) if timed and not hurried else None

    # a fit that ended before its first iteration begins anew
    state = before.state if before is not None and before.n_iter else None
    result = None
    with suppress(TimeIsUp):  # before there was a state, or a step of an urgent fit
        result = loop.run(
            solver, problem, batches, max_iter=max_iter, resumed=resumed,
            state=None if state is None else state.copy(),
            validation=None if run.stream else scoring(spec, rows, run),
            callbacks=run.callbacks,
            history=None if before is None else dict(copy.deepcopy(before.history)),
            urgent=timed and hurry.may_serve(spec, choice, rows),
        )  # fmt: skip
    empty = result is not None and result.is_empty and not run.stream
    if result is not None and not empty:
        empty = small is not None and hurry.is_better(small, result, rows)
    if result is None or (empty and hurry.may_serve(spec, choice, rows)):
        small = small or hurry.small_fit(rows, problem, run.deadline)
        choice, result = hurry.ended_small(spec, rows, choice, small)
        rows, problem = (small.rows, small.problem) if problem.posterior else (rows, problem)
    result.state.release(brief=rows.reads_in_pieces and not spec.params.warm_start)
    result.expansion.compact()
    ended = with_unseen(make_fit(spec, rows, choice, run, result), rows, problem, run)
    ended = spec.with_extras(ended, rows, problem)
    if not spec.is_pairwise:  # rows that describe the columns, those of the fit before
        sample = None if run.model is None else run.model.sample
        sample = rows.examples() if sample is None else sample
        ended = replace(ended, model=replace(ended.model, sample=sample))
    spec.warn(ended, rows, result, run)
    return ended


def scoring(spec: Spec, rows: TrainingRows, run: Run) -> Validation | None:
    """Return how iterates are scored, on rows held out or given; None without any."""
    p, stops = spec.params, bool(spec.params.early_stopping)
    if rows.validation_rows is None and not (stops and len(rows.held_out)):
        return None
    start = run.model.function if run.model is not None and stops else None
    return rows.validation(p.n_iter_no_change, p.tol, start=start, early_stopping=stops)


def planned_batches(
    rows: TrainingRows, problem: Problem, choice: Choice, run: Run, resumed: Resumed | None
) -> tuple[Batches, Problem, int]:
    """Return the batches, the problem that knows if all are equal, and the most iterations."""
    solver, before = choice.solver, run.before
    if run.stream:
        size = solver.resolve_batch_size(None)
        passes = 0.0 if before is None else max(before.history["epoch"], default=0.0)
        problem = replace(problem, fixed_rows=False)
        return rows.stream(size, passes), problem, -(-rows.n_train // size)
    start = 0 if before is None else before.n_iter
    if resumed is not None:
        start = rows.drawn(solver, resumed.state.iteration, resumed.course.epoch)
    batches, fixed = rows.batches(solver, choice.seed, start)
    return batches, replace(problem, fixed_rows=fixed), choice.max_iter


def make_fit(
    spec: Spec, rows: TrainingRows, choice: Choice, run: Run, result: FitResult
) -> Fit:
    """Return the fit of a result of the loop."""
    model, latest = spec.model(rows, choice, result.expansion, run)
    entries = {"solver": choice.solver.name, "solver_reason": choice.reason} | choice.entries
    history = result.history | entries
    if choice.seconds:
        history["seconds"] = [t + choice.seconds for t in history.get("seconds", [])]
    return Fit(
        model, choice, result.state, history, result.status, result.state.iteration,
        result.best_iteration, result.best_score, latest,
    )  # fmt: skip
