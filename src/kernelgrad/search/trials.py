"""Trials of machines on a part of the rows choose kernels, penalties and shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from kernelgrad.callbacks import Deadline
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import Gaussian, Kernel, PrecomputedKernel
from kernelgrad.losses import SquaredError
from kernelgrad.search import pilot
from kernelgrad.search.metric import LEAST, MOST, Sample, kernel_of, ridge_errors
from kernelgrad.search.pilot import Found, Pool, Wanted
from kernelgrad.solvers import BlockDescent, NewtonCG, Problem, WorkingSet

_OWN_ROWS, _OWN_HELD, _FOLDS = 1000, 4000, 3  # rows to fit and to compare, and folds
TRIAL_ROWS = 30_000  # rows of trials of block descent, and rows from which there are any
_TRIAL_FACTOR, _MOST_FACTOR = 2.0, 16.0  # factors on gamma: of a step, and the largest
_MANY_ROWS = 100_000  # rows whose fit takes many times the seconds of some more trials


def plain_study(pool: Pool, wanted: Wanted, seed: int) -> Found:
    """Return the best of some kernels and its alpha, by errors on up to 1,000 rows left out.

    This is for kernels without a metric to learn; rows are scaled for stationary kernels only.
    """
    kernels, alpha = wanted.kernels, wanted.alpha
    n = len(pool.Y)
    index = np.sort(pilot.purpose_rng(seed, 3).permutation(n)[:1000])
    X, weight = pool.X, pool.weight
    scaling = None
    stationary = all(kernel.is_stationary for kernel in kernels)
    rule = wanted.scaled
    if rule == "auto":
        rule = "robust" if stationary and not sp.issparse(X) else False
    if rule or wanted.given is not None:
        scaling = InputScaling.fit(
            X, kernels[0], standardize=rule, sample_weight=weight, metric=wanted.given
        )
        X = scaling.apply(X)
    X = X[index]
    if not scaling and stationary:
        scaled = InputScaling.fit(X, kernels[0], standardize=False, sample_weight=weight[index])
        X = scaled.apply(X)
    sample = Sample(np.empty((len(index), 0)), pool.Y[index], weight[index])
    trials: list[dict[str, Any]] = []

    def value(kernel: Kernel, factor: float) -> tuple[float, Kernel, float]:
        if wanted.bandwidths:
            width: float = kernel.get_params()["bandwidth_factor"]
            kernel = clone(kernel).set_params(bandwidth_factor=width * factor)
        kernel = kernel.resolve(X, seed)
        precomputed = isinstance(kernel, PrecomputedKernel)
        K = np.asarray(X[:, pool.numbers[index]] if precomputed else kernel.pairwise(X, X))
        K = 0.5 * (K + K.T).astype(np.float64)
        unit = max(float(np.diag(K).mean()), 1e-300)
        m, gamma = len(K), getattr(kernel, "gamma", None)
        if alpha is None:
            ridge, tried = pilot.ridge_of([K / unit], [sample], pilot.RIDGE)
        else:
            ridge = float(np.clip(alpha * m / unit, LEAST, MOST))
            tried = [(ridge, ridge_errors(K / unit, sample, ridge)[0])]
        trials.extend(pilot.trial(r * unit / m, gamma, v, m) for r, v in tried)
        return min(v for _, v in tried), kernel, ridge * unit

    found = [
        pilot.best_factor(partial(value, kernel)) if wanted.bandwidths else value(kernel, 1.0)
        for kernel in kernels
    ]
    _, kernel, ridge = min(found, key=lambda item: item[0])
    return Found(kernel, scaling, ridge / pool.n_rows if alpha is None else alpha, [], trials)


def own_ratio(
    pool: Pool, problem: Problem, seed: int, deadline: Deadline
) -> tuple[float, list[dict[str, Any]]]:
    """Return the ratio of the loss's best alpha to that of the squared loss, and the trials.

    Solutions for a part of the pool, for several ratios, are compared on other rows of it; if
    there are few rows, each fold is left out in turn. The ratio holds for all rows.
    """
    solver = own_solver(problem)
    n = len(pool.Y)
    if solver is None or n < 2 * _FOLDS or deadline.over:
        return 1.0, []
    solve = solver.path
    order = pilot.purpose_rng(seed, 4).permutation(n)
    folds = _FOLDS if n < _OWN_ROWS * 3 // 2 else 1
    train = min(_OWN_ROWS, n - n // _FOLDS)
    losses: dict[float, list[float]] = {}
    # the squared loss on as many rows would take this alpha
    base = problem.alpha * pool.n_rows / train

    def path(ratios: Sequence[float]) -> None:
        for fold in range(folds):
            mixed = np.roll(order, fold * (n // _FOLDS))
            some, others = mixed[:train], mixed[train : train + _OWN_HELD]
            batch = pool.rows.take(np.sort(pool.numbers[some]))
            held = pool.rows.validation(1, 0.0, rows=np.sort(pool.numbers[others]))
            assert held.loss is not None
            alphas = [base * ratio for ratio in ratios]
            _, found = solve(problem, batch, alphas, held.X, 50)
            for ratio, raw in zip(ratios, found, strict=True):
                losses.setdefault(ratio, []).append(held.loss(raw))

    path([ratio * _unit(pool, problem) for ratio in (16.0, 4.0, 1.0, 0.25)])
    for _ in range(3):  # no end of the path is taken unseen
        best = min(losses, key=lambda r: np.mean(losses[r]))
        if best not in (min(losses), max(losses)) or deadline.over:
            break
        path([best * 4.0, best * 16.0] if best == max(losses) else [best / 4, best / 16])
    mean = {ratio: float(np.mean(found)) for ratio, found in sorted(losses.items())}
    best = min(mean, key=mean.__getitem__)
    return best, [pilot.trial(base * ratio, None, loss, train) for ratio, loss in mean.items()]


def _unit(pool: Pool, problem: Problem) -> float:
    """Return a power of 4 near the ratio that the unit of the targets implies; 1 for classes.

    The squared loss of the best constant grows with the square of the unit, other losses grow
    more slowly. The ratio is 1 where f is the logarithm of a mean, which has no unit.
    """
    if "regression" not in problem.loss.tasks or problem.loss.lowest_target is not None:
        return 1.0
    batch = pool.rows.take(np.sort(pool.numbers))
    y, weight = batch.y.astype(np.float64), batch.sample_weight
    own, square = (
        float(weight @ loss.value(y, np.tile(loss.intercept(y, weight), (len(y), 1))))
        for loss in (problem.loss, SquaredError())
    )
    return float(4.0 ** np.round(np.log(own / square) / np.log(4.0))) if own > 0 else 1.0


def descent_kernel(
    pool: Pool, problem: Problem, shapes: Sequence[float], seed: int, deadline: Deadline
) -> tuple[Kernel, list[dict[str, Any]]]:
    """Return the kernel with which block descent has the smallest loss, and the trials.

    Sums over few centres of many rows need a narrower kernel than an exact solution of a
    thousand rows. Some blocks on the pool are compared on other rows, for gamma times powers of
    two, up to a clear rise. From 100,000 rows on the next smoother and rougher of `shapes` are
    tried too, and so on while they gain, and a gamma between the powers.
    """
    kernel, n = problem.kernel, len(pool.Y)
    order = pilot.purpose_rng(seed, 5).permutation(n)
    held = np.sort(pool.numbers[order[: min(n // 5, _OWN_HELD)]])
    rows = pool.rows.take(np.sort(pool.numbers[order[n // 5 :][:TRIAL_ROWS]]))
    others = pool.rows.validation(1, 0.0, rows=held)
    assert others.loss is not None
    solver = BlockDescent(block_size=512, tol=0.0)
    many = pool.n_rows >= _MANY_ROWS
    shapes = sorted(shapes) if many else []
    nu = np.inf if isinstance(kernel, Gaussian) else getattr(kernel, "nu", None)
    losses: dict[tuple[int, float], float] = {}

    def candidate(shape: int, factor: float) -> Kernel:
        gamma = kernel.get_params()["gamma"] * factor
        if shape < 0:
            scaled: Kernel = clone(kernel).set_params(gamma=gamma)
            return scaled
        return kernel_of(shapes[shape], gamma)

    def loss(shape: int, factor: float) -> float:
        if (shape, factor) not in losses:
            if deadline.over:
                return np.inf
            one = replace(problem, kernel=candidate(shape, factor), fixed_rows=True)
            state = solver.init(one, rows)
            for _ in range(8):
                solver.step(one, state, rows)
            assert others.loss is not None
            losses[shape, factor] = others.loss(
                solver.expansion(state).raw_prediction(others.X)
            )
        return losses[shape, factor]

    at = shapes.index(nu) if nu in shapes else -1
    factor = narrowed(partial(loss, at), 1.0)
    for step in (1, -1):
        first = at
        while at >= 0 and 0 <= at + step < len(shapes):
            own = narrowed(partial(loss, at + step), factor)
            if loss(at + step, own) >= loss(at, factor):
                break
            at, factor = at + step, own
        if at != first:
            break
    if many and 1.0 < factor < _MOST_FACTOR:
        low, mid, high = (loss(at, factor * f) for f in (1 / _TRIAL_FACTOR, 1.0, _TRIAL_FACTOR))
        # the vertex of the parabola through three losses
        vertex = 0.5 * (low - high) / max(low - 2.0 * mid + high, 1e-300)
        between = factor * _TRIAL_FACTOR ** float(np.clip(vertex, -1.0, 1.0))
        factor = min((factor, between), key=partial(loss, at))
    tried = [(candidate(*where), value) for where, value in losses.items()]
    return candidate(at, factor), [
        pilot.trial(problem.alpha, k.get_params()["gamma"], v, rows.n_rows, kernel=repr(k))
        for k, v in tried
    ]


def narrowed(loss: Callable[[float], float], factor: float) -> float:
    """Return the factor of gamma with the least loss, from `factor` on until the loss rises.

    A rise of less than 1 % may be noise of the held-out rows: the next factor is tried too.
    """
    best = factor
    while factor < _MOST_FACTOR:
        factor *= _TRIAL_FACTOR
        if loss(factor) > 1.01 * loss(best):
            break
        best = min((best, factor), key=loss)
    return best


def own_solver(problem: Problem) -> NewtonCG | WorkingSet | None:
    """Return a solver that solves the problem exactly for several alphas, or None."""
    if problem.loss.is_smooth and problem.kernel.has_random_features:
        return NewtonCG()
    return WorkingSet() if problem.loss.name in WorkingSet.losses else None
