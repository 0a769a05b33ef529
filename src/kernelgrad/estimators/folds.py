"""Cross-validation on few labels: the accuracy after each iteration, and calibration."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np

from kernelgrad.calibration import sigmoids
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.estimators.partly_labelled import SemiSupervisedRows
from kernelgrad.estimators.plan import Plan
from kernelgrad.solvers import Problem, Solver
from kernelgrad.solvers.soft_labels import stratified_folds
from kernelgrad.tasks import decide
from kernelgrad.training_rows import Batches
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray, Matrix
from kernelgrad.validation import DataError


def cross_validate(
    model: Any, plan: Plan, rows: SemiSupervisedRows
) -> tuple[list[float], Float64Array]:
    """Return the mean accuracy on held-out labels after each iteration, and calibration."""
    most, solver = plan.max_iter, plan.solver
    y = np.concatenate(list(rows.source.target_chunks()))
    codes = y if rows.encoded else rows.task.internal(y)
    hits, total = np.zeros(most), 0.0
    held_out: list[tuple[list[FloatArray], AnyArray, Float64Array]] = []
    for held in _folds(codes, model.classes_, int(model.n_folds), model._seed):
        X, y, w, _ = rows.usable(rows.source.take(held))
        batches, fixed = replace(rows, held=held).batches(solver, model._seed, 0)
        # the cost of a label stays what it is though there are fewer of them
        alpha = plan.problem.alpha / (1.0 - w.sum() / model.labelled_weight_)
        problem = replace(plan.problem, alpha=alpha, fixed_rows=fixed)
        path = _path(solver, problem, batches, X, most)
        scores = np.array([float(w @ (decide(raw) == y)) for raw in path])
        hits[: len(path)] += scores
        hits[len(path) :] += scores[-1]
        total += float(w.sum())
        if model.probability:
            # with early stopping the best iteration is known in the end
            held_out.append((path if model.early_stopping else path[-1:], y, w))
    accuracies = (hits / total).tolist()
    if not model.probability:
        return accuracies, np.empty((0, 2))
    best = int(np.argmax(accuracies)) if model.early_stopping else most
    raw = np.concatenate([path[min(best, len(path) - 1)] for path, _, _ in held_out])
    y, w = (np.concatenate([part[i] for part in held_out]) for i in (1, 2))
    with single_threaded_blas():
        return accuracies, sigmoids(raw.astype(np.float64), y, w)


def _path(
    solver: Solver[Any], problem: Problem, batches: Batches, X: Matrix, most: int
) -> list[FloatArray]:
    """Return f on `X` after each of `most` iterations, fewer where the fit converges."""
    path: list[FloatArray] = []
    first, _ = next(batches)
    with single_threaded_blas():
        state = solver.init(problem, first)
        tracker = solver.track(state, X)
        for batch, _ in chain([(first, 0.0)], islice(batches, most - 1)):
            info = solver.step(problem, state, batch)
            tracker.advance(info)
            path.append(np.array(tracker.raw_prediction(), np.float32))
            if info.converged or problem.resources.deadline.over:
                break
    return path


def _folds(codes: AnyArray, classes: AnyArray, n_folds: int, seed: int) -> list[IntArray]:
    """Return the rows of each fold, every class spread over all of them."""
    counts = np.bincount(codes, minlength=len(classes))
    if counts.min() < 2:
        label = classes[int(np.argmin(counts))].item()
        raise DataError(
            f"Class {label!r} has {int(counts.min())} distinct labelled row; cross-validation "
            "needs two of each class. Set early_stopping and probability to False, or label "
            "more."
        )
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x666F6C64]))
    order, fold = rng.permutation(len(codes)), np.empty(len(codes), np.int64)
    fold[order] = stratified_folds(codes[order], n_folds)
    most = max(1, 5000 // n_folds)  # rows of a fold
    found = [rng.permutation(np.flatnonzero(fold == k))[:most] for k in range(n_folds)]
    return [np.sort(rows) for rows in found if len(rows)]
