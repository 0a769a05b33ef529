"""The search of a fit: kernel, scaling and penalty from a sample of its rows."""

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
from kernelgrad.kernels import Kernel, PrecomputedKernel
from kernelgrad.losses import SquaredError
from kernelgrad.search import metric as loo
from kernelgrad.search import pilot
from kernelgrad.search.pilot import Pool, SearchResult, SearchSpace
from kernelgrad.solvers import BlockDescent, NewtonCG, Problem, Solver, WorkingSet
from kernelgrad.training_rows import TrainingRows

_PLAIN_ROWS = 1000  # rows on which kernels without a metric are compared
_OWN_ROWS, _JUDGE_ROWS = 1000, 4000  # rows to fit and to compare the values of alpha
_FOLDS = 3  # number of parts that are left out in turn if there are few rows
TRIAL_ROWS = 30_000  # rows of trials of block descent, and rows from which there are any
_TRIAL_FACTOR, _MOST_FACTOR = 2.0, 16.0  # factors on gamma: of a step, and the largest
_MANY_ROWS = 100_000  # rows whose fit takes many times the seconds of more trials


def search(
    space: SearchSpace, rows: TrainingRows, problem: Problem, solver: Solver[Any],
    *, stream: bool, on_phase: Callable[[str], None],
) -> tuple[Problem, dict[str, Any]]:  # fmt: skip
    """Return the problem with the parameters that were "auto", and entries of the history."""
    seed = problem.seed
    alpha = None if np.isnan(problem.alpha) else problem.alpha
    space = replace(space, alpha=alpha)
    pool = pilot.draw_pool(rows, seed, problem.resources.memory_limit)
    if not pool.varies:
        why = "the targets are constant" if len(pool.Y) >= 3 else "too few rows"
        alpha = pilot.FALLBACK_ALPHA if alpha is None else alpha
        return replace(problem, alpha=alpha), {"metric": [], "metric_reason": why}
    reason = pilot.why_not(space, pool)
    if stream:  # its length is unknown
        pool = replace(pool, n_rows=max(pool.n_rows, pilot.STREAM_ROWS))
    deadline = Deadline(problem.resources.deadline.left() / 2)  # the rest is for the fit
    table = rows.inputs.table
    on_phase(f"search ({'metric, ' * (reason is None)}bandwidth, alpha)")
    if reason in (None, pilot.FIXED, pilot.EQUAL):
        groups = None if table is None else table.groups
        result = pilot.Study(pool, space, groups, seed, lambda: deadline.over).run()
    else:
        result = plain_study(pool, space, seed)
    problem = replace(problem, kernel=result.kernel, scaling=result.scaling, alpha=result.alpha)
    trials = result.trials
    if alpha is None and not isinstance(problem.loss, SquaredError):
        on_phase(f"search (alpha for {problem.loss.name})")
        ratio, more = own_ratio(pool, problem, seed, deadline)
        problem, trials = replace(problem, alpha=problem.alpha * ratio), trials + more
    narrows = isinstance(solver, BlockDescent) and solver.blocks == "support"
    if narrows and space.shapes and space.gamma is None and pool.n_rows >= TRIAL_ROWS:
        on_phase("search (kernel for block descent)")
        kernel, more = descent_kernel(pool, problem, space.shapes, seed, deadline)
        problem, trials = replace(problem, kernel=kernel), trials + more
    entries: dict[str, Any] = {"search": trials, "metric": result.rounds}
    return problem, entries | ({} if reason is None else {"metric_reason": reason})


def plain_study(pool: Pool, space: SearchSpace, seed: int) -> SearchResult:
    """Return the best of several kernels and its alpha, by leave-one-out errors.

    This is for kernels without a metric to learn; rows are scaled for stationary kernels only.
    """
    kernels, alpha = space.kernels, space.alpha
    index = np.sort(pilot.purpose_rng(seed, 3).permutation(len(pool.Y))[:_PLAIN_ROWS])
    X, weight, scaling = pool.X, pool.weight, None
    stationary = all(kernel.is_stationary for kernel in kernels)
    rule = space.scaled
    if rule == "auto":
        rule = "robust" if stationary and not sp.issparse(X) else False
    if rule or space.fixed_metric is not None:
        scaling = InputScaling.fit(
            X, kernels[0], standardize=rule, sample_weight=weight, metric=space.fixed_metric
        )
        X = scaling.apply(X)
    X, weight = X[index], weight[index]
    if not scaling and stationary:
        X = InputScaling.fit(X, kernels[0], standardize=False, sample_weight=weight).apply(X)
    sample = loo.Sample(np.empty((len(index), 0)), pool.Y[index], weight)
    trials: list[dict[str, Any]] = []

    def value(kernel: Kernel, factor: float) -> tuple[float, Kernel, float]:
        if space.bandwidths:
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
            ridge = float(np.clip(alpha * m / unit, loo.LEAST, loo.MOST))
            tried = [(ridge, loo.ridge_errors(K / unit, sample, ridge)[0])]
        trials.extend(pilot.trial(r * unit / m, gamma, v, m) for r, v in tried)
        return min(v for _, v in tried), kernel, ridge * unit

    results = [
        pilot.best_factor(partial(value, kernel)) if space.bandwidths else value(kernel, 1.0)
        for kernel in kernels
    ]
    _, kernel, ridge = min(results, key=lambda item: item[0])
    alpha = ridge / pool.n_rows if alpha is None else alpha
    return SearchResult(kernel, scaling, alpha, [], trials)


def own_ratio(
    pool: Pool, problem: Problem, seed: int, deadline: Deadline
) -> tuple[float, list[dict[str, Any]]]:
    """Return the ratio of the loss's best alpha to that of the squared loss, and the trials.

    Solutions for a part of the pool, for several ratios, are compared on other rows of it; if
    there are few rows, each fold is left out in turn. The ratio holds for all rows.
    """
    solver: NewtonCG | WorkingSet
    if problem.loss.is_smooth and problem.kernel.has_random_features:
        solver = NewtonCG()
    elif problem.loss.name in WorkingSet.losses:
        solver = WorkingSet()
    else:
        return 1.0, []
    n = len(pool.Y)
    if n < 2 * _FOLDS or deadline.over:
        return 1.0, []
    order = pilot.purpose_rng(seed, 4).permutation(n)
    folds = _FOLDS if n < _OWN_ROWS * 3 // 2 else 1
    train = min(_OWN_ROWS, n - n // _FOLDS)
    losses: dict[float, list[float]] = {}
    # the squared loss on as many rows would take this alpha
    base = problem.alpha * pool.n_rows / train

    def path(ratios: Sequence[float]) -> None:
        for fold in range(folds):
            mixed = np.roll(order, fold * (n // _FOLDS))
            batch = pool.rows.take(np.sort(pool.numbers[mixed[:train]]))
            others = np.sort(pool.numbers[mixed[train : train + _JUDGE_ROWS]])
            judge = pool.rows.validation(1, 0.0, rows=others)
            assert judge.loss is not None
            alphas = [base * ratio for ratio in ratios]
            _, responses = solver.path(problem, batch, alphas, judge.X, 50)
            for ratio, raw in zip(ratios, responses, strict=True):
                losses.setdefault(ratio, []).append(judge.loss(raw))

    path([ratio * _unit(pool, problem) for ratio in (16.0, 4.0, 1.0, 0.25)])
    for _ in range(3):  # no end of the path is taken unseen
        best = min(losses, key=lambda r: np.mean(losses[r]))
        if best not in (min(losses), max(losses)) or deadline.over:
            break
        path([best * 4.0, best * 16.0] if best == max(losses) else [best / 4, best / 16])
    mean = {ratio: float(np.mean(each)) for ratio, each in sorted(losses.items())}
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
    thousand rows. Blocks on the pool are compared on other rows, for gamma times powers of two,
    up to a clear rise. From 100,000 rows on the next smoother and rougher of `shapes` are tried
    too, and so on while they gain, and a gamma between the powers.
    """
    n, order = len(pool.Y), pilot.purpose_rng(seed, 5).permutation(len(pool.Y))
    others = np.sort(pool.numbers[order[: min(n // 5, _JUDGE_ROWS)]])
    rows = pool.rows.take(np.sort(pool.numbers[order[n // 5 :][:TRIAL_ROWS]]))
    judge = pool.rows.validation(1, 0.0, rows=others)
    solver = BlockDescent(block_size=512, tol=0.0)
    many, nu = pool.n_rows >= _MANY_ROWS, loo.smoothness(problem.kernel)
    family: list[Any] = sorted(shapes) if many and nu in shapes else [nu]
    losses: dict[tuple[int, float], float] = {}

    def candidate(shape: int, factor: float) -> Kernel:
        gamma = problem.kernel.get_params()["gamma"] * factor
        if family[shape] != nu:
            return loo.kernel_of(family[shape], gamma)
        scaled: Kernel = clone(problem.kernel).set_params(gamma=gamma)
        return scaled

    def loss(shape: int, factor: float) -> float:
        if (shape, factor) not in losses:
            if deadline.over:
                return np.inf
            one = replace(problem, kernel=candidate(shape, factor), fixed_rows=True)
            state = solver.init(one, rows)
            for _ in range(8):
                solver.step(one, state, rows)
            assert judge.loss is not None
            raw = solver.expansion(state).raw_prediction(judge.X)
            losses[shape, factor] = judge.loss(raw)
        return losses[shape, factor]

    at = family.index(nu)
    factor = narrowed(partial(loss, at), 1.0)
    for step in (1, -1):
        first = at
        while 0 <= at + step < len(family):
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
    tried = [(candidate(*key), value) for key, value in losses.items()]
    return candidate(at, factor), [
        pilot.trial(problem.alpha, k.get_params()["gamma"], v, rows.n_rows, kernel=repr(k))
        for k, v in tried
    ]


def narrowed(loss: Callable[[float], float], factor: float) -> float:
    """Return the factor of gamma with the least loss, from `factor` on until the loss rises.

    A rise of less than 1 % may be noise of the rows that judge: the next factor is tried too.
    """
    best = factor
    while factor < _MOST_FACTOR:
        factor *= _TRIAL_FACTOR
        if loss(factor) > 1.01 * loss(best):
            break
        best = min((best, factor), key=loss)
    return best
