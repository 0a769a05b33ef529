"""The contract of a solver: explicit state, determinism, and errors before any work."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np

from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.solvers import LinearSolver, Problem, Solver, State, Tracker, TrainBatch
from kernelgrad.testing.parts import check_parameters, pickled, require
from kernelgrad.testing.warmup import small_fits
from kernelgrad.validation import CapabilityError

_ROWS, _COLUMNS, _STEPS = 150, 3, 10
_TRACKER_ERROR = 1e-4  # error of float32 responses after some steps, relative to 1 + max |f|


def check_solver(solver: Solver[Any], *, random_state: int = 0) -> None:
    """Check that a solver, of kernel machines or linear functions, fulfils its contract.

    - ``clone`` preserves the parameters; each declared domain is enforced.
    - With every registered loss, a fit on a small problem gives finite predictions or raises
      CapabilityError (ValueError for a loss of other estimators) before `init`.
    - `init` and `step` are deterministic, count iterations and rows, keep finite values and
      lower the training loss; the tracker agrees with the expansion.
    - A copied, pickled, released or restored state continues with the same bits; a step of a
      copy does not change the original.

    The invariance of a *fit* with this solver (to threads, the order of rows, CSR or dense
    rows, weights or repeated rows) is checked by `check_estimator_contract`. AssertionError
    names the broken promise; `random_state` is the seed of the data.
    """
    require(isinstance(solver, Solver), solver, "is not a kernelgrad.solvers.Solver.")
    solver.check()
    check_parameters(solver)
    X = np.random.default_rng(random_state).standard_normal((_ROWS, _COLUMNS))
    taken, linear, cls = 0, isinstance(solver, LinearSolver), type(solver)
    for estimator, y in small_fits(solver, np.sin(X[:, 0]) + X[:, 1], linear=linear):
        with mock.patch.object(cls, "init", autospec=True, side_effect=cls.init) as init:
            try:
                model = estimator.fit(X, y)
            except ValueError as error:  # a CapabilityError is one
                require(not init.called, solver, f"refuses only after init: {error}")
                named = solver.name in str(error) or "loss" in str(error)
                message = f"the refusal of loss {estimator.loss!r} names neither: {error}"
                require(isinstance(error, CapabilityError) or named, solver, message)
                continue
        taken += 1
        finite = np.isfinite(model.expansion_.raw_prediction(X)).all()
        require(finite, solver, f"predictions of {estimator!r} are not finite.")
        with single_threaded_blas():
            _check_steps(solver, *init.call_args.args[1:])  # the first may calibrate
    require(taken, solver, "takes no registered loss in any estimator.")


def _check_steps(solver: Solver[Any], problem: Problem, batch: TrainBatch) -> None:
    case = f"with loss {problem.loss.name!r}"
    first, tracker, losses = _steps(solver, problem, batch)
    state, _, again = _steps(solver, problem, batch)
    message = f"two equal runs differ {case}: hidden state or randomness."
    require(losses == again, solver, message)
    finite = np.isfinite(losses).all()
    require(finite, solver, f"a training loss is not finite {case}: {losses}")
    f = solver.expansion(state).raw_prediction(batch.X)
    constant = np.tile(problem.loss.intercept(batch.y, batch.sample_weight), (len(f), 1))
    before, after = (
        float(np.average(problem.loss.value(batch.y, g), weights=batch.sample_weight))
        for g in (constant, f)
    )
    fell = after < before or before == 0.0
    require(fell, solver, f"the training loss did not fall {case}: {before:g} to {after:g}.")
    close = np.abs(tracker.raw_prediction() - f).max() <= _TRACKER_ERROR * (1 + np.abs(f).max())
    require(close, solver, f"the tracker drifts from the expansion {case}.")
    values, arrays = state.describe()  # these may be views
    arrays = {name: array.copy() for name, array in arrays.items()}
    twins = {
        "a copied": state.copy(),
        "a pickled": pickled(state, solver),
        "a restored": solver.restore(problem, values, arrays),
    }
    released = pickled(state, solver)
    released.release()
    twins["a released"] = released
    solver.step(problem, first, batch)
    expected = solver.expansion(first).raw_prediction(batch.X)
    for what, twin in twins.items():
        solver.step(problem, twin, batch)
        same = np.array_equal(solver.expansion(twin).raw_prediction(batch.X), expected)
        require(same, solver, f"{what} state continues differently {case}.")
    same = np.array_equal(solver.expansion(state).raw_prediction(batch.X), f)
    require(same, solver, f"steps of a copy change the original {case}.")


def _steps(
    solver: Solver[Any], problem: Problem, batch: TrainBatch
) -> tuple[State, Tracker, list[float]]:
    """Take some steps; return the state, a tracker of the batch's rows, and training losses."""
    state = solver.init(problem, batch)
    tracker = solver.track(state, batch.X)
    losses: list[float] = []
    while len(losses) < _STEPS:
        seen = state.rows_seen
        info = solver.step(problem, state, batch)
        tracker.advance(info)
        losses.append(info.train_loss)
        require(state.iteration == len(losses), solver, "iteration is not counted by step.")
        require(state.rows_seen >= max(seen, 1), solver, "rows_seen is not counted.")
        if info.converged:
            break
    return state, tracker, losses
