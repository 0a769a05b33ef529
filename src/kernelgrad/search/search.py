"""The search of a fit: kernel, scaling and penalty from a sample of its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kernelgrad.callbacks import Deadline
from kernelgrad.losses import SquaredError
from kernelgrad.search import pilot
from kernelgrad.search.trials import TRIAL_ROWS, descent_kernel, own_ratio, plain_study
from kernelgrad.solvers import BlockDescent, Problem, Solver
from kernelgrad.training_rows import TrainingRows


def search(
    wanted: pilot.Wanted, rows: TrainingRows, problem: Problem, solver: Solver[Any],
    *, stream: bool, on_phase: Callable[[str], None],
) -> tuple[Problem, dict[str, Any]]:  # fmt: skip
    """Return the problem with what was "auto" found, and entries of the history."""
    seed = problem.seed
    alpha = None if np.isnan(problem.alpha) else problem.alpha
    wanted = replace(wanted, alpha=alpha)
    pool = pilot.draw_pool(rows, seed, problem.resources.memory_limit)
    if not pool.varies:
        why = "the targets are constant" if len(pool.Y) >= 3 else "too few rows"
        alpha = pilot.FALLBACK_ALPHA if alpha is None else alpha
        return replace(problem, alpha=alpha), {"metric": [], "metric_reason": why}
    reason = pilot.why_not(wanted, pool)
    if stream:  # its length is unknown
        pool = replace(pool, n_rows=max(pool.n_rows, pilot.STREAM_ROWS))
    deadline = Deadline(problem.resources.deadline.left() / 2)  # the rest is for the fit
    table = rows.inputs.table
    on_phase(f"search ({'metric, ' * (reason is None)}bandwidth, alpha)")
    if reason in (None, pilot.AS_GIVEN, pilot.EQUAL):
        groups = None if table is None else table.groups
        result = pilot.study(pool, wanted, groups, seed, lambda: deadline.over)
    else:
        result = plain_study(pool, wanted, seed)
    problem = replace(problem, kernel=result.kernel, scaling=result.scaling, alpha=result.alpha)
    trials = result.trials
    if alpha is None and not isinstance(problem.loss, SquaredError):
        on_phase(f"search (alpha for {problem.loss.name})")
        ratio, more = own_ratio(pool, problem, seed, deadline)
        problem, trials = replace(problem, alpha=problem.alpha * ratio), trials + more
    narrows = isinstance(solver, BlockDescent) and solver.blocks == "support"
    if narrows and wanted.shapes and wanted.gamma is None and pool.n_rows >= TRIAL_ROWS:
        on_phase("search (kernel for block descent)")
        kernel, more = descent_kernel(pool, problem, wanted.shapes, seed, deadline)
        problem, trials = replace(problem, kernel=kernel), trials + more
    entries: dict[str, Any] = {"search": trials, "metric": result.rounds}
    return problem, entries | ({} if reason is None else {"metric_reason": reason})
