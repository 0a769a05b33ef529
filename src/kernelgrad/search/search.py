"""The search of a fit: kernel, scaling and penalty from a sample of its rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from kernelgrad.calibration import crossed
from kernelgrad.callbacks import Deadline
from kernelgrad.choice import Choice
from kernelgrad.compute.compiling import clock
from kernelgrad.compute.threads import parallel_map
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import Kernel, PrecomputedKernel, SumKernel
from kernelgrad.losses import LogSquaredError, SquaredError, get_loss
from kernelgrad.quality import SEARCHED, Unseen
from kernelgrad.search import penalty
from kernelgrad.search import pool as pools
from kernelgrad.search.auto import exact_solver
from kernelgrad.search.leave_one_out import ridge_errors
from kernelgrad.search.machine import LEAST, MOST, Sample, narrowed
from kernelgrad.search.pool import Pool, SearchResult, SearchSpace
from kernelgrad.search.study import RULES, Study
from kernelgrad.solvers import BlockDescent, NewtonCG, Problem, TrainBatch
from kernelgrad.solvers.exact import newton_bytes
from kernelgrad.tasks import Classification, Task
from kernelgrad.training_rows import TrainingRows
from kernelgrad.types import AnyArray, Float64Array, IntArray

_PLAIN_ROWS = 1000  # rows on which kernels without a metric are compared
_OWN_ROWS, _VALIDATION_ROWS = 1500, 4000  # rows without folds, and those that compare alphas
_FOLDS = 3  # number of parts that are left out in turn if there are few rows
TRIAL_ROWS = 30_000  # rows from which there are trials of block descent, on half of them
_TRIAL_FACTOR, _MOST_FACTOR = 2.0, 16.0  # factors on gamma: of a step, and the largest
# products of all pairs of rows and outputs up to which the log loss of some outputs is tried
_LOG_PRICE = 1.6e9
_LOG_ROWS = 200_000  # rows up to which that of one output is tried; block descent fits many
# log loss of calibrated responses, over that of equal probabilities, below which the log loss
# is tried at any price: it gains most where classes are nearly sure
_SURE = 0.2
_SKEWED = 1.0  # skewness from which logarithms of targets >= 0 are tried
_PATH_SECONDS = 1.0  # seconds of a machine of 1,000 rows for some penalties
_LOGISTIC_OUTPUTS = 5  # outputs up to which a kernel is learned by the log loss
_MANY_ROWS = 100_000  # rows whose fit takes many times the seconds of more trials


def search(
    space: SearchSpace, rows: TrainingRows, problem: Problem, first: Choice,
    *, stream: bool, on_phase: Callable[[str], None],
) -> Choice:  # fmt: skip
    """Return the choice with what was "auto", entries of the history, and rows held out."""
    seed, start = problem.seed, clock()
    alpha = None if np.isnan(problem.alpha) else problem.alpha
    space = replace(space, alpha=alpha)
    pool = pools.draw_pool(rows, seed, problem.resources.memory_limit)
    if not pool.varies:
        why = "the targets are constant" if len(pool.Y) >= 3 else "too few rows"
        alpha = pools.FALLBACK_ALPHA if alpha is None else alpha
        entries: dict[str, Any] = {"metric": [], "metric_reason": why}
        return replace(first, alpha=alpha, entries=entries, seconds=clock() - start)
    reason = pools.why_not(space, pool)
    if stream:  # its length is unknown
        pool = replace(pool, n_rows=max(pool.n_rows, pools.STREAM_ROWS))
    deadline = Deadline(problem.resources.deadline.left() / 2)  # the rest is for the fit
    other = alpha is None and not isinstance(problem.loss, SquaredError)
    # an alpha of its own takes as long as the kernel
    study_deadline = Deadline(deadline.left() / 2) if other else deadline
    on_phase(f"search ({'metric, ' * (reason is None)}bandwidth, alpha)")
    study, unseen, table = None, None, rows.inputs.table
    if reason in (None, pools.FIXED, pools.EQUAL):
        groups = None if table is None else table.groups
        # to scale all columns of many rows takes as long as some steps of descent
        least = 2 * RULES[space.effort].solved
        part = pool.some(least, seed) if deadline.left() < _PATH_SECONDS else pool
        limited = problem.resources.memory_limit is not None
        study = Study(part, space, groups, seed, lambda: study_deadline.over, limited=limited)
        result = study.run()
    else:
        result = plain_study(pool, space, seed)
    loss, problem, trials = problem.loss, result.applied(problem), result.trials
    if other:
        on_phase(f"search (alpha for {problem.loss.name})")
        folds = list(split_folds(pool, problem, seed))
        ratio, more, unseen = own_ratio(pool, folds, deadline)
        if unseen is not None and isinstance(rows.task, Classification):
            own = problem.loss.predict_proba if rows.task.has_own_proba else None
            unseen = None if own is None else replace(unseen, values=own(unseen.values))
        problem, trials = replace(problem, alpha=problem.alpha * ratio), trials + more
    elif study is not None and alpha is None and space.tasks and not stream:
        on_phase("search (loss)")
        choose = best_loss if isinstance(rows.task, Classification) else best_target_scale
        problem, more, unseen = choose(study, problem, deadline)
        trials = trials + more
    elif study is not None and type(problem.loss) is SquaredError:
        unseen = unseen_of(study, rows.task)
    narrows = isinstance(first.solver, BlockDescent)
    narrows = narrows and deadline.left() > 2.0 * _PATH_SECONDS
    if narrows and space.shapes and space.gamma is None and pool.n_rows >= TRIAL_ROWS:
        on_phase("search (kernel for block descent)")
        kernel, more = descent_kernel(pool, problem, seed, deadline)
        problem, trials = replace(problem, kernel=kernel), trials + more
    if alpha is None:
        problem = replace(problem, alpha=problem.alpha * pool.unequal)
    entries = {"search": trials, "metric": result.rounds}
    entries["metric_reason"] = reason or reason_for(space, problem)
    finite = unseen is not None and bool(np.isfinite(unseen.values).all())
    return replace(
        first, kernel=problem.kernel, scaling=problem.scaling, alpha=problem.alpha,
        loss=None if problem.loss is loss else problem.loss, entries=entries,
        unseen=unseen if finite else None, seconds=clock() - start,
    )  # fmt: skip


def reason_for(space: SearchSpace, problem: Problem) -> str:
    """Return why weights of columns were learned, or were not better than equal ones."""
    if space.metric != "auto":
        return f"metric={space.metric!r} asks for weights"
    learned = problem.scaling is not None and problem.scaling.metric is not None
    what = "weights of columns lower" if learned else "equal weights do not raise"
    return f"{what} the errors on rows that were not fitted"


def best_loss(
    study: Study, problem: Problem, deadline: Deadline
) -> tuple[Problem, list[dict[str, Any]], Unseen | None]:
    """Return the problem with the least log loss on rows apart, the trials, and these rows.

    The squared loss with calibrated responses competes with the log loss, each with the kernel
    that it has learned; with many classes both take that of the squared loss.
    """
    pool, task = study.pool, study.pool.rows.task
    n, C = pool.n_rows, problem.n_outputs
    assert isinstance(task, Classification)
    # parts of the rows lack classes of one row, and no loss foretells these
    few = len(pool.y) < max(pools.LEAST_ROWS, 2 * len(task.classes))
    learns = C <= _LOGISTIC_OUTPUTS
    late = deadline.left() < 3.0 * _PATH_SECONDS
    first = unseen_of(study, task)
    sure = _SURE * float(np.log(len(task.classes)))
    is_sure = first is not None and log_loss(first) < sure
    dear = n > _LOG_ROWS if C < 3 else n * float(n) * max(16, 4 * C) > _LOG_PRICE
    dear = dear and not is_sure
    # a matrix of the rows that compare the losses
    most = newton_bytes(min(study.rules.solved, len(pool.y)), C, 0.0)
    large = most > problem.resources.limit(np.inf)
    if few or late or dear or large:
        return problem, [], first
    loss = get_loss("log_loss", task="classification", n_classes=len(task.classes))
    other = replace(problem, loss=loss)
    other = study.logistic().applied(other) if learns else other
    logs = replace(pool, rows=replace(pool.rows, task=replace(task, loss=loss)))
    folds = folds_of(study, logs, other, logistic=learns)
    ratio, trials, second = own_ratio(logs, folds, deadline)
    if second is None:
        return problem, trials, first
    other = replace(other, alpha=other.alpha * ratio)
    second = replace(second, values=loss.predict_proba(second.values))
    squares = folds_of(study, pool, problem, logistic=False)
    rows = probabilities(pool, squares, task), second
    losses, gamma = [log_loss(unseen) for unseen in rows], gamma_of(problem.kernel)
    squared = trial(problem.alpha, gamma, losses[0], len(rows[0].y), candidate="squared")
    better = losses[1] < losses[0]
    return other if better else problem, [*trials, squared], rows[int(better)]


def unseen_of(study: Study, task: Task) -> Unseen | None:
    """Return the validation rows of a study, with responses, of classes with probabilities."""
    pool, outputs = study.pool, study.best.outputs
    at = study.validation[: len(outputs)]  # if time is short, one fold has outputs
    y, weight = pool.y[at], pool.weight[at]
    if isinstance(task, Classification):
        K = len(task.classes)
        share = np.average(np.eye(K)[pool.y], axis=0, weights=pool.weight)
        f = 2.0 * (outputs + (share if K > 2 else share[1])) - 1.0
        z = f if K > 2 else np.column_stack([np.zeros(len(f)), f])
        return Unseen(crossed(z, y, weight), y, weight, study.source) if len(y) > 9 else None
    whole = np.asarray(pool.y, np.float64).reshape(len(pool.y), -1)
    mean, deviation = _moments(whole, pool.weight / len(whole))
    return Unseen(outputs * deviation + mean, y, weight, study.source)


def best_target_scale(
    study: Study, problem: Problem, deadline: Deadline
) -> tuple[Problem, list[dict[str, Any]], Unseen]:
    """Return the problem for targets or, if they are skewed, their logarithms; trials; Unseen.

    Squared errors of validation rows decide, in the unit of the targets. They are limited at
    their 99 % quantile: otherwise some rows may make most of the sum.
    """
    pool, at = study.pool, study.validation
    y, w = np.asarray(pool.y, np.float64).reshape(len(pool.y), -1), pool.weight / len(pool.y)
    unseen = unseen_of(study, pool.rows.task)
    assert unseen is not None
    if y.shape[1] > 1 or y.min() < 0 or deadline.over:
        return problem, [], unseen
    mean, deviation = _moments(y, w)
    if w @ ((y - mean) / deviation)[:, 0] ** 3 <= _SKEWED:
        return problem, [], unseen
    low = float(y.min())
    loss = LogSquaredError(shift=0.0 if low > 0 else 1.0, low=low, high=float(y.max()))
    z = np.asarray(loss.targets(y), np.float64)
    centre, spread = _moments(z, w)
    logs = study.of_targets((z - centre) / spread)
    result = logs.run()
    f = logs.best.outputs * spread + centre
    if not len(f) == len(unseen.values) == len(at):  # a fold had no time
        return problem, [], unseen
    v = loss.mean(f)[:, 0]
    # the mean is above the exponential of the mean of logarithms; the slope is shrunk to 1
    slope = float(w[at] @ (v * y[at, 0]) / max(float(w[at] @ (v * v)), 1e-300))
    loss = loss.set_params(factor=1.0 + 0.7 * (float(np.clip(slope, 0.85, 1.3)) - 1.0))
    errors = [((out - y[at]) ** 2)[:, 0] for out in (unseen.values, loss.mean(f))]
    limit = np.quantile(np.minimum(*errors), 0.99)
    values = [float(np.average(np.minimum(e, limit), weights=w[at])) for e in errors]
    gamma, m = gamma_of(problem.kernel), len(pool.y)
    trials = [
        trial(problem.alpha, gamma, values[0], m, candidate="targets"),
        trial(result.alpha, gamma_of(result.kernel), values[1], m, candidate="logarithms"),
    ]
    if values[1] < values[0]:
        problem, unseen = replace(result.applied(problem), loss=loss), replace(unseen, values=f)
    return problem, trials, unseen


def _moments(y: Float64Array, w: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return mean and standard deviation of columns with weights of sum 1."""
    mean = w @ y
    return mean, np.sqrt(w @ (y - mean) ** 2)


@dataclass(frozen=True)
class FoldProblem:
    """A problem, the rows that solve it, and the numbers of validation rows."""

    problem: Problem
    train: TrainBatch
    validation: IntArray


def folds_of(
    study: Study, pool: Pool, problem: Problem, *, logistic: bool
) -> list[FoldProblem]:
    """Return the folds of a study, each with the kernel that its rows have learned.

    All have the alpha of the problem. With many rows the kernel has seen few of them, and the
    problem's own serves.
    """
    results, at = study.of_folds(logistic=logistic), pool.numbers
    if not results:
        return list(split_folds(pool, problem, study.seed, study.rules.solved))
    return [
        FoldProblem(
            replace(problem, kernel=result.kernel, scaling=result.scaling),
            pool.rows.take(np.sort(at[train])),
            np.sort(at[cut]),
        )
        for result, train, cut in results
    ]


def log_loss(unseen: Unseen) -> float:
    """Return the weighted mean of the log losses of rows."""
    losses = -np.log(np.maximum(unseen.own, 1e-12))
    return float(np.average(losses, weights=unseen.weight))


def probabilities(pool: Pool, folds: Sequence[FoldProblem], task: Classification) -> Unseen:
    """Return the validation rows with their probabilities by the squared loss.

    Its responses are calibrated, each half of the rows by the other half.
    """

    def of_fold(fold: FoldProblem) -> tuple[AnyArray, AnyArray, Float64Array]:
        problem, batch = fold.problem, fold.train
        alpha = problem.alpha * pool.n_rows / batch.n_rows
        X, y, weight, _ = pool.rows.usable(pool.rows.source.take(fold.validation))
        _, (raw,) = NewtonCG().path(problem, batch, [alpha], X, 50)
        return crossed(task.class_responses(raw), y, weight), y, weight

    source = SEARCHED.format(folds[0].train.n_rows)
    p, y, weight = map(np.concatenate, zip(*parallel_map(of_fold, folds), strict=True))
    return Unseen(p, y, weight, source)


def plain_study(pool: Pool, space: SearchSpace, seed: int) -> SearchResult:
    """Return the best of several kernels and its alpha, by leave-one-out errors.

    This is for kernels without a metric to learn; rows are scaled for stationary kernels only.
    """
    kernels, alpha = space.kernels, space.alpha
    index = np.sort(pools.purpose_rng(seed, 3).permutation(len(pool.Y))[:_PLAIN_ROWS])
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
    sample = Sample(np.empty((len(index), 0)), pool.Y[index], weight)
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
            ridge, tried = penalty.ridge_of([K / unit], [sample], penalty.START)
        else:
            ridge = float(np.clip(alpha * m / unit, LEAST, MOST))
            tried = [(ridge, ridge_errors(K / unit, sample, ridge)[0])]
        trials.extend(trial(r * unit / m, gamma, v, m) for r, v in tried)
        return min(v for _, v in tried), kernel, ridge * unit

    results = [
        best_result(partial(value, kernel)) if space.bandwidths else value(kernel, 1.0)
        for kernel in kernels
    ]
    _, kernel, ridge = min(results, key=lambda item: item[0])
    alpha = ridge / pool.n_rows if alpha is None else alpha
    return SearchResult(kernel, scaling, alpha, [], trials)


def split_folds(
    pool: Pool, problem: Problem, seed: int, size: int = 1000
) -> Iterator[FoldProblem]:
    """Yield up to `size` rows that train, and the numbers of others; folds if rows are few."""
    n = len(pool.Y)
    order = pools.purpose_rng(seed, 4).permutation(n)
    train = min(size, n - n // _FOLDS)
    for fold in range(_FOLDS if n < _OWN_ROWS else 1):
        mixed = np.roll(order, fold * (n // _FOLDS))
        batch = pool.rows.take(np.sort(pool.numbers[mixed[:train]]))
        validation = np.sort(pool.numbers[mixed[train : train + _VALIDATION_ROWS]])
        yield FoldProblem(problem, batch, validation)


def own_ratio(
    pool: Pool, folds: Sequence[FoldProblem], deadline: Deadline
) -> tuple[float, list[dict[str, Any]], Unseen | None]:
    """Return the ratio of the loss's best alpha to that of the problem, trials, and Unseen.

    Solutions for a part of the pool, for several ratios, are compared on other rows of it; if
    there are few rows, each fold is left out in turn. The ratio holds for all rows.
    """
    problem = folds[0].problem
    solver = exact_solver(problem.loss, problem.kernel)
    if solver is None or len(pool.Y) < 2 * _FOLDS:
        return 1.0, [], None
    if deadline.left() < _PATH_SECONDS:
        return _unit(pool, problem), [], None
    losses: dict[float, list[float]] = {}
    outputs: dict[float, list[Float64Array]] = {}
    # the problem with as many rows would take this alpha
    train = folds[0].train.n_rows
    base = problem.alpha * pool.n_rows / train

    def path(ratios: Sequence[float]) -> None:
        def of_fold(fold: FoldProblem) -> list[tuple[float, float, Float64Array]]:
            validation = pool.rows.validation(1, 0.0, rows=fold.validation)
            assert validation.loss is not None
            alphas = [base * ratio for ratio in ratios]
            _, responses = solver.path(fold.problem, fold.train, alphas, validation.X, 50)
            values = [validation.loss(raw) for raw in responses]
            return list(zip(ratios, values, responses, strict=True))

        for ratio, value, raw in itertools.chain(*parallel_map(of_fold, folds)):
            losses.setdefault(ratio, []).append(value)
            outputs.setdefault(ratio, []).append(raw)

    if problem.loss.has_proba:  # its scale is that of the penalty
        path([4.0, 1.0, 0.25])
    else:
        path([ratio * _unit(pool, problem) for ratio in (16.0, 4.0, 1.0, 0.25)])
    for _ in range(3):  # no end of the path is taken unseen
        best = _best(losses)
        if best not in (min(losses), max(losses)) or deadline.over:
            break
        path([best * 4.0, best * 16.0] if best == max(losses) else [best / 4, best / 16])
    mean, best = {r: float(np.mean(each)) for r, each in sorted(losses.items())}, _best(losses)
    gamma, name = gamma_of(problem.kernel), problem.loss.name
    trials = [trial(base * r, gamma, v, train, candidate=name) for r, v in mean.items()]
    source = SEARCHED.format(train)
    validation = np.concatenate([fold.validation for fold in folds])
    _, y, weight, _ = pool.rows.usable(pool.rows.source.take(validation))
    return best, trials, Unseen(np.concatenate(outputs[best]), y, weight, source)


def _best(losses: dict[float, list[float]]) -> float:
    """Return the largest ratio whose mean loss is the least up to rounding."""
    mean = {ratio: float(np.mean(each)) for ratio, each in losses.items()}
    least = min(mean.values())
    return max(ratio for ratio, loss in mean.items() if not loss - least > 1e-6 * abs(least))


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
    pool: Pool, problem: Problem, seed: int, deadline: Deadline
) -> tuple[Kernel, list[dict[str, Any]]]:
    """Return the kernel with which block descent has the smallest loss, and the trials.

    Sums over few centres of many rows need a narrower kernel than an exact solution of a
    thousand rows. Blocks on the pool are compared on other rows, for gamma times powers of two,
    up to a clear rise. From 100,000 rows on a gamma between the powers is tried too.
    """
    n, order = len(pool.Y), pools.purpose_rng(seed, 5).permutation(len(pool.Y))
    others = np.sort(pool.numbers[order[: min(n // 5, _VALIDATION_ROWS)]])
    own = order[n // 5 :][: TRIAL_ROWS // 2]
    rows = pool.rows.take(np.sort(pool.numbers[own]))
    unseen = pool.rows.validation(1, 0.0, rows=others)
    solver = BlockDescent(block_size=512, tol=0.0)
    losses: dict[float, float] = {}

    def loss(factor: float) -> float:
        if factor not in losses:
            if deadline.over:
                return np.inf
            kernel = narrowed(problem.kernel, factor)
            one = replace(problem, kernel=kernel, fixed_rows=True)
            state = solver.init(one, rows)
            for _ in range(8):
                solver.step(one, state, rows)
            assert unseen.loss is not None
            losses[factor] = unseen.loss(solver.expansion(state).raw_prediction(unseen.X))
        return losses[factor]

    factor = best_narrowing(loss, 1.0)
    if pool.n_rows >= _MANY_ROWS and 1.0 < factor < _MOST_FACTOR:
        low, mid, high = (loss(factor * f) for f in (1 / _TRIAL_FACTOR, 1.0, _TRIAL_FACTOR))
        # the vertex of the parabola through three losses
        vertex = 0.5 * (low - high) / max(low - 2.0 * mid + high, 1e-300)
        between = factor * _TRIAL_FACTOR ** float(np.clip(vertex, -1.0, 1.0))
        factor = min((factor, between), key=loss)
    kernels = {f: narrowed(problem.kernel, f) for f in losses}
    return narrowed(problem.kernel, factor), [
        trial(problem.alpha, gamma_of(kernels[f]), v, rows.n_rows, kernel=repr(kernels[f]))
        for f, v in losses.items()
    ]


def best_narrowing(loss: Callable[[float], float], factor: float) -> float:
    """Return the factor of gamma with the least loss, from `factor` on until the loss rises.

    A rise of less than 1 % may be noise of the validation rows: the next factor is tried too,
    but not after two rises.
    """
    best, rises = factor, 0
    while factor < _MOST_FACTOR and rises < 2:
        factor *= _TRIAL_FACTOR
        rises = rises + 1 if loss(factor) > loss(best) else 0
        if loss(factor) > 1.01 * loss(best):
            break
        best = min((best, factor), key=loss)
    return best


def gamma_of(kernel: Kernel) -> float | None:
    """Return gamma of a kernel, or of the smooth part of a sum."""
    first = kernel.kernels[0] if isinstance(kernel, SumKernel) else kernel
    return getattr(first, "gamma", None)


def trial(
    alpha: float, gamma: float | None, value: float, rows: int, **more: Any
) -> dict[str, Any]:
    """Return an entry of ``history_["search"]``."""
    entry = {"alpha": alpha, "gamma": gamma, "score": -value, "loss": value, "rows": rows}
    return entry | more


def best_result(value: Callable[[float], Any]) -> Any:
    """Return the result of `value` whose first item is smallest, over factors of a bandwidth.

    The factors go from 1/4 to 2, and beyond while the smallest is at an end.
    """
    results = {factor: value(factor) for factor in (0.25, 0.5, 1.0, 2.0)}
    for _ in range(4):
        best = min(results, key=lambda factor: results[factor][0])
        if best not in (min(results), max(results)):
            break
        further = 2.0 * best if best == max(results) else 0.5 * best
        results[further] = value(further)
    return min(results.values(), key=lambda item: item[0])
