"""The road of a fit: rows, choice, problem, run, model. Read this module first.

A family of functions (:class:`~kernelgrad.families.base.Spec`) says what each step does; the
rows know their columns and their task; the loop runs any solver; the result is a value.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from kernelgrad.calibration import MOST_ROWS
from kernelgrad.callbacks import Deadline, FitEvent, TimeIsUp
from kernelgrad.choice import Choice
from kernelgrad.families import classes
from kernelgrad.families.base import Spec
from kernelgrad.families.few import Few, fit_few, is_hurried, may_serve
from kernelgrad.families.judges import with_judges
from kernelgrad.families.reading import Data, Run
from kernelgrad.functions.expansions import Expansion
from kernelgrad.model import Fit
from kernelgrad.solvers import FitResult, Problem, Resumed, State, loop, new_history
from kernelgrad.solvers.contract import check_solvable
from kernelgrad.training_rows import Batches, TrainingRows

Report = Callable[[FitEvent, Callable[[], Fit]], bool]  # event, and the fit so far


def fit(
    spec: Spec, data: Data, run: Run, before: Fit | None = None,
    *, validation: Data | None = None, report: Report | None = None,
) -> Fit:  # fmt: skip
    """Return the fit of a specification to data, or the one `before` with more iterations."""
    checkpoint = run.checkpoint
    seed = checkpoint.seed(spec.new_seed) if before is None else before.choice.seed
    rows = spec.reader.read(data, run, seed, None if before is None else before.model)
    rows = spec.reader.with_validation(rows, validation, run, seed)
    checkpoint.check_rows(rows.digest)
    # what a resumed fit chose, else the solver alone, which decides how the rows are ordered
    saved = checkpoint.choice(partial(spec.restored_choice, rows))
    first = saved or spec.first_choice(rows, seed, run, before)
    rows = rows if run.stream else spec.ordered_rows(rows, first)
    problem = spec.problem(rows, first, run)
    choice = saved or spec.choose(rows, problem, first, run, before)
    problem, solver = choice.applied(problem), choice.solver
    rows = replace(rows, task=choice.task(rows.task))
    check_solvable(solver, problem)
    is_new = saved is None and before is None and not run.stream
    if not choice.is_complete:
        checkpoint.store(choice.describe)  # a search may take longer than what follows
        if not (is_new and is_hurried(spec, choice, rows, problem)):
            choice = spec.with_part_fits(choice, rows, problem, run, before)
        choice = replace(choice, is_complete=True)
    hurried = is_new and is_hurried(spec, choice, rows, problem)
    checkpoint.store(choice.describe)
    resumed = checkpoint.resumed(partial(Resumed.restore, solver, problem, choice.max_iter))
    batches, problem, max_iter = planned_batches(rows, problem, choice, run, before, resumed)
    few = few_beforehand(spec, rows, problem, choice) if is_new and not hurried else None

    def at_iteration(event: FitEvent, state: State) -> bool:
        def so_far() -> Fit:
            function = solver.expansion(state).copy()
            result = FitResult(state, function, "max_iter", {}, event.iteration)
            return make_fit(spec, rows, choice, function, result, run, before)

        return report is not None and report(event, so_far)

    # a fit that ended before its first iteration begins anew
    state = before.state if before is not None and before.n_iter else None
    result = None
    with suppress(TimeIsUp):  # before there was a state
        result = loop.run(
            solver, problem, batches,
            max_iter=0 if hurried else max_iter,
            state=None if state is None else state.copy(),
            validation=None if run.stream else spec.validation(rows, before),
            callbacks=run.callbacks,
            on_iteration=None if report is None else at_iteration,
            history=None if before is None else dict(copy.deepcopy(before.history)),
            resumed=resumed,
        )  # fmt: skip
    empty = result is not None and result.is_empty and not run.stream
    if result is None or (empty and may_serve(spec, choice, rows)):
        few = few or fit_few(rows, problem, run.deadline)
        choice, result = few_rows(spec, rows, choice, few)
        rows, problem = (few.rows, few.problem) if problem.posterior else (rows, problem)
    result.state.release(brief=rows.reads_in_pieces and not spec.params.warm_start)
    result.expansion.compact()
    model = make_fit(spec, rows, choice, result.expansion, result, run, before)
    ended = spec.with_extras(with_judges(model, rows, problem), rows, problem)
    ended = ended if spec.is_pairwise else with_examples(ended, rows, before)
    spec.warn(ended, rows, result, run)
    return ended


def with_examples(done: Fit, rows: TrainingRows, before: Fit | None) -> Fit:
    """Return the fit with some rows in its model, those of the fit before if there is one."""
    sample = None if before is None else before.model.sample
    sample = rows.examples() if sample is None else sample
    return replace(done, model=replace(done.model, sample=sample))


def planned_batches(
    rows: TrainingRows, problem: Problem, choice: Choice, run: Run, before: Fit | None,
    resumed: Resumed | None,
) -> tuple[Batches, Problem, int]:  # fmt: skip
    """Return the batches, the problem that knows if all are equal, and the most iterations."""
    solver = choice.solver
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


def few_beforehand(
    spec: Spec, rows: TrainingRows, problem: Problem, choice: Choice
) -> Few | None:
    """Return a function of some rows where reading all of them may take too long."""
    if not (rows.reads_in_pieces and may_serve(spec, choice, rows)):
        return None
    left = problem.resources.deadline.left()
    return fit_few(rows, problem, Deadline(0.1 * left)) if np.isfinite(left) else None


def few_rows(
    spec: Spec, rows: TrainingRows, choice: Choice, few: Few
) -> tuple[Choice, FitResult]:
    """Return the choice and the result of a function of some rows."""
    entries = choice.entries | {"rows_fitted": few.rows.n_train}
    choice = replace(choice, entries=entries)
    if classes.are_calibrated(spec, rows.task) and len(few.others):
        responses = classes.responses(few.function, rows, few.others[:MOST_ROWS])
        choice = replace(choice, calibration=responses)
    result = FitResult(few.state, few.function, "time_limit", new_history(None))
    return choice, result


def make_fit(
    spec: Spec, rows: TrainingRows, choice: Choice, function: Expansion, result: FitResult,
    run: Run, before: Fit | None,
) -> Fit:  # fmt: skip
    """Return the fit of a result of the loop."""
    model, latest = spec.model(rows, choice, function, before, run)
    entries = {"solver": choice.solver.name, "solver_reason": choice.reason} | choice.entries
    history = result.history | entries
    if choice.seconds:
        history["seconds"] = [t + choice.seconds for t in history.get("seconds", [])]
    score = result.best_score if choice.best_score is None else choice.best_score
    return Fit(
        model, choice, result.state, history, result.status, result.state.iteration,
        result.best_iteration, score, latest,
    )  # fmt: skip
