"""A study of a sample of training rows finds their shape, bandwidth, metric and penalty."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from kernelgrad.compute.linalg import dense
from kernelgrad.compute.memory import LEAST_LIMIT
from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import parallel_for
from kernelgrad.data import ArraySource
from kernelgrad.functions.scaling import HEAVY, TAIL, InputScaling
from kernelgrad.kernels import Gaussian, Kernel, Laplacian
from kernelgrad.losses import SquaredError
from kernelgrad.search import metric as loo
from kernelgrad.search.metric import (
    LEAST,
    MOST,
    SPREADS,
    SURE,
    Machine,
    Metric,
    Sample,
    Schedule,
)
from kernelgrad.tasks import Classification, Task
from kernelgrad.training_rows import TrainingRows, no_rows
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray, Matrix

MOST_COLUMNS = 2000  # columns up to which rows are made dense and weights are learned
LEAST_ROWS = 40  # rows from which weights are learned
FULL_COLUMNS = 300  # columns up to which a matrix is learned
# Rounds: rows of a subset, steps, and the length of a step. Subsets grow while candidates get
# fewer. Twice the steps changed no error by more than its standard error.
_EQUAL, _WEIGHTED, _FINAL = (300, 12, 0.1), (300, 20, 0.2), (500, 15, 0.15)
_LAST, _MATRIX = (1000, 12, 0.1), (500, 40, 0.03)  # for many rows; for a matrix
_MANY = 4000  # rows from which there is a last round
# Fine structure in few columns shows from narrow bandwidths and more rows only. Weights are
# learned once more from there if the best score is above the first number, which is nothing
# explained, or with more than 32,000 rows above the second, a third of the variation.
_NARROW, _UNEXPLAINED = (1000, 20, 0.2), (-0.05, -0.25)
_JUDGED = 500  # rows of a subset on which machines are compared
_FEW, _SOME = 500, 2000  # two numbers of rows from which lambda is extrapolated
RIDGE = 0.1  # lambda from which searches start
_FOLDS = 3
_CLOSE = 0.3  # difference of scores that more rows may turn around
_FAR_ROWS = 32_000  # rows up to which two sizes of hundreds and thousands tell
# Gain of a rough kernel over a smooth one with each four times more rows, in logarithms of
# squared errors, beyond what two small sizes tell: functions of tables are seldom smooth.
_ROUGH = 0.04
_LOWER = (1.0, 0.2)  # factors on lambda of which the better one counts on more rows
_TURNS_ROWS = 1500  # rows up to which weights are learned in turns, to be sure of them
FALLBACK_ALPHA = 1e-6  # alpha if there is nothing to learn from
STREAM_ROWS = 100_000  # rows that a stream of unknown length counts as
AS_GIVEN = "the metric is given, or None"
EQUAL = "equal weights: no column to weigh against another, or too few rows"
_TAG = 0x70696C6F


@dataclass(frozen=True)
class Wanted:
    """Parameters of a search; a number or an array is fixed by the user and not searched."""

    shapes: tuple[float, ...]  # smoothnesses; empty if no metric can be learned
    kernels: tuple[Kernel, ...]  # kernels to choose from if the rows do not allow a metric
    metric: Any
    gamma: float | None = None
    alpha: float | None = None
    scaled: bool | str = "auto"  # scaling of the columns, as the parameter `standardize`
    bandwidth_factor: float = 1.0
    laplacian: bool = False  # True if the Laplacian kernel is a candidate
    bandwidths: bool = False  # True if `kernels` have a bandwidth to search

    @property
    def learns(self) -> bool:
        return isinstance(self.metric, str)

    @property
    def given(self) -> Float64Array | None:
        fixed = self.metric is not None and not self.learns
        return np.asarray(self.metric, np.float64) if fixed else None


@dataclass(frozen=True)
class Pool:
    """The m rows drawn for a study: X (m, d), targets Y (m, C) and weights (m,) of mean 1.

    `numbers` (m,) are their places in `rows`, which are in memory; `n_rows` counts all rows.
    """

    rows: TrainingRows
    X: Matrix
    Y: Float64Array
    weight: Float64Array
    n_rows: int
    numbers: IntArray

    @property
    def varies(self) -> bool:
        return len(self.Y) >= 3 and bool((self.Y != 0).any())


@dataclass(frozen=True)
class Found:
    """Result of a search; ``alpha`` is the penalty for the squared loss on all rows."""

    kernel: Kernel
    scaling: InputScaling | None
    alpha: float
    rounds: list[dict[str, Any]] = field(default_factory=list)
    trials: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class ScaledSample(Sample):
    """Rows `numbers` of a larger sample, which are scaled only when they are taken."""

    scaling: InputScaling
    numbers: IntArray

    def take(self, rows: IntArray) -> Sample:
        at = self.numbers[rows]
        X = np.asarray(self.scaling.apply(self.X[at]), np.float64)
        return Sample(X, self.Y[at], self.weight[at])

    def only(self, rows: IntArray) -> ScaledSample:
        return replace(self, numbers=self.numbers[rows])

    @property
    def n_rows(self) -> int:
        return len(self.numbers)


def draw_pool(rows: TrainingRows, seed: int, memory_limit: float | None = None) -> Pool:
    """Return up to 50,000 random training rows, within a quarter of the memory limit."""
    limit = np.inf if memory_limit is None else max(LEAST_LIMIT, memory_limit)
    cells = min(2e7, limit / (4 * 8))
    most = int(min(50_000, max(1000, cells // rows.source.n_features)))
    n, batch = rows.n_train, rows.source.take(rows.sample(most, purpose_rng(seed, 0)))
    if not rows.in_memory:  # what follows takes some of them again
        source = ArraySource(batch.X, batch.y, batch.sample_weight, checked=True)
        rows = replace(rows, source=source, held_out=no_rows())
        batch = source.read(0, len(batch.rows))
    X, y, weight, numbers = rows.usable(batch)
    if not len(y):
        return Pool(rows, X, np.empty((0, 1)), weight, n, numbers)
    targets = targets_of(rows.task, y, weight)
    return Pool(rows, X, targets, weight / weight.mean(), n, numbers)


def study_tasks(memory_limit: float | None) -> int:
    # a task with 2,000 rows has two float64 matrices and parts of others: 80 MB
    most = sys.maxsize if memory_limit is None else int(memory_limit / 80e6)
    return max(1, most)


def purpose_rng(seed: int, purpose: int) -> np.random.Generator:
    return draws(seed, _TAG, purpose)


def why_not(wanted: Wanted, pool: Pool) -> str | None:
    """Return why no metric is learned, or None; with AS_GIVEN or EQUAL a shape still is."""
    d = pool.X.shape[1]
    if not wanted.shapes:
        return "no metric is learned for this kernel, or gamma is given"
    if d > MOST_COLUMNS:
        return f"more than {MOST_COLUMNS:,} columns"
    if not wanted.learns:
        return AS_GIVEN
    if len(pool.Y) < LEAST_ROWS or d == 1:
        return EQUAL
    if wanted.metric == "full" and d > FULL_COLUMNS:
        raise ValueError(
            f"metric='full' is for up to {FULL_COLUMNS} columns, and the rows have {d}; take "
            "'diagonal', or project the rows first."
        )
    return None


def targets_of(task: Task, y: AnyArray, weight: Float64Array) -> Float64Array:
    """Return targets (m, C) for the squared loss, centred; classes become indicators.

    Numbers are divided by their deviation. For losses whose f is a logarithm the targets are
    ``log(1 + y / mean)``, which remain stable with many zeros.
    """
    if isinstance(task, Classification):
        k = len(task.classes)
        Y = np.eye(k)[y] if k > 2 else np.asarray(y, np.float64).reshape(-1, 1)
        return np.asarray(Y - np.average(Y, axis=0, weights=weight))
    Y = np.asarray(y, np.float64).reshape(len(y), -1)
    if task.loss.lowest_target is not None:
        Y = np.log1p(Y / np.maximum(np.average(Y, axis=0, weights=weight), 1e-300))
    elif not isinstance(task.loss, SquaredError):
        low, mid, high = np.quantile(Y, [0.25, 0.5, 0.75], axis=0)
        wide = np.where(high > low, 3.0 * (high - low), np.inf)
        Y = np.clip(Y, mid - wide, mid + wide)
    rounding = 1e-12 * np.abs(Y).max(initial=0.0)
    Y = Y - np.average(Y, axis=0, weights=weight)
    spread = np.sqrt(np.average(Y**2, axis=0, weights=weight))
    return np.asarray(np.where(spread > rounding, Y / np.where(spread > 0, spread, 1.0), 0.0))


def study(
    pool: Pool,
    wanted: Wanted,
    groups: IntArray | None,
    seed: int,
    over: Callable[[], bool],
) -> Found:
    """Return the machine with the smallest errors on rows that it was not trained on.

    Weights of columns are learned for several shapes beside machines with equal weights, on
    random subsets that grow while candidates get fewer (:mod:`kernelgrad.search.metric`).
    Weights are kept only if they lower the errors by a standard error of the paired difference.
    With few rows the errors are those on thirds of the rows that the weights were not learned
    from; these thirds also choose the prior, and the mean of the targets must be worse as well.
    """
    X = dense(pool.X)
    d = X.shape[1]
    groups = np.arange(d) if groups is None else groups
    scalings = _scalings(X, pool.weight, wanted, sparse=sp.issparse(pool.X))
    samples: list[Sample] = [
        ScaledSample(X, pool.Y, pool.weight, scaling, np.arange(len(X))) for scaling in scalings
    ]
    if len(X) <= _SOME + _FEW:
        samples = [sample.take(np.arange(len(X))) for sample in samples]
    given: dict[str, Any] = {"alpha": wanted.alpha, "gamma": wanted.gamma, "over": over}
    rounds: list[dict[str, Any]] = []
    taught, judges = _split(samples, seed)

    def train(
        machines: Sequence[tuple[int, Machine]], rows: int, steps: int, length: float = 0.1
    ) -> list[tuple[int, Machine]]:
        done: list[Any] = [None] * len(machines)

        def task(i: int) -> None:
            k, machine = machines[i]
            schedule = Schedule(min(rows, taught[k].n_rows), steps, length)
            machine = loo.descend(machine, taught[k], schedule, [seed, _TAG, rows], **given)
            done[i] = k, loo.judged(machine, judges[k])

        parallel_for(len(machines), task)
        rounds.extend(_told(machine, scalings[k]) for k, machine in done)
        return sorted(done, key=lambda item: item[1].score)

    # a metric that is given is part of the scalings
    equal = Metric(np.zeros(1), np.zeros(scalings[0].width(d), np.intp))
    ends = sorted({min(wanted.shapes), max(wanted.shapes)})
    isotropic = train([(0, _start(judges[0][0], nu, equal, wanted)) for nu in ends], *_EQUAL)
    n_groups = int(groups.max()) + 1
    if why_not(wanted, pool) is None and n_groups > 1:
        start = {m.nu: _grouped(m, groups) for _, m in isotropic}
        tried = {nu: start[nu] for nu in start} | {
            nu: replace(start[max(ends)], nu=nu) for nu in wanted.shapes if nu == 1.5
        }
        own = [(0, machine) for machine in tried.values()]
        own += [(k, start[isotropic[0][1].nu]) for k in range(1, len(samples))]
        few = len(pool.Y) <= _TURNS_ROWS  # the same rows teach and judge
        learned = train(own, *_WEIGHTED)
        found = min(learned[0][1].score, isotropic[0][1].score)
        hidden: list[tuple[int, Machine]] = []
        little = found > _UNEXPLAINED[pool.n_rows > _FAR_ROWS]
        if len(pool.Y) >= _MANY and wanted.gamma is None and little:
            wide = [_grouped(_start(judges[0][0], nu, equal, wanted), groups) for nu in ends]
            narrow = [replace(m, metric=m.metric.times(4.0)) for m in wide]
            hidden = train([(0, machine) for machine in narrow], *_NARROW)
        if not few and len(pool.Y) <= 8000:  # with more rows a tight prior changes nothing
            k, machine = learned[0]
            tighter = [replace(start[min(ends)], nu=machine.nu, spread=s) for s in SPREADS[1:]]
            variants = [learned[0], *train([(k, each) for each in tighter], *_WEIGHTED)]
            learned[0] = min(variants, key=lambda item: item[1].score)
        best = [learned[0], *_rivals(learned, wanted.shapes), isotropic[0]]
        # few rows would be seen again and again
        ranked = train(best, *_FINAL) if len(pool.Y) > _FINAL[0] else [learned[0], best[-1]]
        if hidden and not over():
            more = train(hidden, *_NARROW)
            ranked = sorted([*ranked, *more], key=lambda item: item[1].score)
        k, machine = next(r for r in ranked if len(r[1].metric.theta) > 1)
        rival_at, rival = next(r for r in ranked if len(r[1].metric.theta) == 1)
        gain, errors = rival.score - machine.score, (rival.errors, machine.errors)
        if few and over():
            gain = -np.inf
        elif few:
            starts = [
                replace(start[min(ends)], nu=machine.nu, spread=spread) for spread in SPREADS
            ]
            turns = [(rival_at, replace(isotropic[0][1], nu=rival.nu))]
            turns += [(k, start) for start in starts]
            constant = pool.weight * (pool.Y**2).sum(axis=1)
            equal, *learnt = _errors_in_turns(turns, samples, seed, given)
            which = int(np.argmin([each.mean() for each in learnt]))
            errors = min(equal, constant, key=np.mean), learnt[which]
            means = np.maximum([each.mean() for each in errors], 1e-300)
            gain = 0.5 * float(np.log(means[0] / means[1]))
            if which:
                k, machine = train([(k, starts[which])], *_WEIGHTED)[0]
                if len(pool.Y) > _FINAL[0]:
                    k, machine = train([(k, machine)], *_FINAL)[0]
                ranked = [(k, machine), (rival_at, rival)]
        if wanted.metric == "auto" and not _pays(gain, *errors):
            k, machine = rival_at, rival
        alike = [r for r in ranked if len(r[1].metric.theta) == len(machine.metric.theta)]
        if not over():
            contenders = [(k, machine), *alike]
            k, machine = _fit_for_many(contenders, taught, judges, seed, pool.n_rows)
        if len(machine.metric.theta) > 1 and len(pool.Y) >= _MANY:
            k, machine = train([(k, machine)], *_LAST)[0]
        if wanted.metric == "full":
            machine = replace(machine, metric=machine.metric.full())
            k, machine = train([(k, machine)], *_MATRIX)[0]
    else:
        others = [nu for nu in wanted.shapes if nu not in ends]
        more = [(0, replace(isotropic[0][1], nu=nu)) for nu in others]
        more += [(k, isotropic[0][1]) for k in range(1, len(samples))]
        k, machine = train([*isotropic, *more], *_FINAL)[0]
    if wanted.gamma is None:
        machine = replace(machine, metric=machine.metric.times(1 / wanted.bandwidth_factor))
    kernel, scaling = _settled(machine, scalings[k])
    ridge_start, matrix = machine.ridge, partial(loo.kernel_matrix, machine)
    searched = wanted.alpha is None and wanted.gamma is None and not over()
    # its values need a compiled loop, for which the fit of a few rows should not wait
    if wanted.laplacian and searched and len(pool.Y) > _TURNS_ROWS:
        score, width, ridge = _laplacian(judges[0])
        duel = [(partial(_laplacian_matrix, width), ridge, taught[0], judges[0])]
        duel.append((matrix, machine.ridge, taught[k], judges[k]))
        close = score < machine.score + _CLOSE
        if close and np.argmin(_duel(duel, seed, pool.n_rows)) == 0:
            width /= wanted.bandwidth_factor
            kernel, scaling, k, ridge_start = Laplacian(width), scalings[0], 0, ridge
            matrix = partial(_laplacian_matrix, width)
            rounds.append(_told(machine, scaling) | {
                "round": "equal weights", "kernel": repr(kernel), "bandwidth": 1.0 / width,
                "ridge": ridge, "score": score, "weights": [1.0] * d,
            })  # fmt: skip
    if wanted.alpha is not None:
        return Found(kernel, scaling, wanted.alpha, rounds)
    gamma = float(kernel.gamma_value)
    alpha, trials = _penalty(samples[k], matrix, gamma, ridge_start, pool.n_rows, seed, over)
    return Found(kernel, scaling, alpha, rounds, trials)


def _laplacian_matrix(gamma: float, A: Sample, B: Sample | None = None) -> Float64Array:
    D = cdist(A.X, (A if B is None else B).X, "cityblock")
    D *= -gamma
    return np.asarray(np.exp(D, out=D))


def _fit_for_many(
    ranked: Sequence[tuple[int, Machine]],
    taught: Sequence[Sample],
    judges: Sequence[Sequence[Sample]],
    seed: int,
    n_rows: int,
) -> tuple[int, Machine]:
    """Return which of the best machines of each shape will do best on all rows."""
    best: dict[float, tuple[int, Machine]] = {}
    for k, machine in ranked:
        if machine.score < ranked[0][1].score + _CLOSE:
            best.setdefault(machine.nu, (k, machine))
    if n_rows <= _TURNS_ROWS or len(best) == 1:
        return ranked[0]
    duel = [
        (partial(loo.kernel_matrix, machine), machine.ridge, taught[k], judges[k])
        for k, machine in best.values()
    ]
    further = max(0.0, float(np.log(min(n_rows, _FAR_ROWS) / _SOME) / np.log(_SOME / _FEW)))
    expected = [
        error - (_ROUGH * further if nu < 1 else 0.0)
        for error, nu in zip(_duel(duel, seed, n_rows), best, strict=True)
    ]
    return list(best.values())[int(np.argmin(expected))]


def _duel(contenders: Sequence[Any], seed: int, n_rows: int) -> list[float]:
    """Return the logarithm of the error that each contender will have with `n_rows` rows.

    Kernels of different roughness gain differently from more rows: errors on the rows that
    judge, predicted from 500 rows that teach and from 2,000, are carried on as a power of the
    rows, to 32,000 at most. Of each contender, which is (matrix, lambda, rows that teach, rows
    that judge), the best of two lambdas counts.
    """
    sizes = sorted({min(size, contenders[0][2].n_rows) for size in (_FEW, _SOME)})
    found = np.empty((len(contenders), len(sizes), len(_LOWER)))

    def task(i: int) -> None:
        which, at = divmod(i, len(sizes))
        matrix, ridge, taught, judges = contenders[which]
        mixed = purpose_rng(seed, 8).permutation(taught.n_rows)
        rows = taught.take(np.sort(mixed[: sizes[at]]))
        K = matrix(rows)
        solved = [loo.coefficients(K, max(LEAST, ridge * factor), rows) for factor in _LOWER]
        errors = []
        for judge in judges:
            cross = matrix(judge, rows)
            errors.append([judge.weight * loo.squared_errors(cross, a, judge) for a in solved])
        found[which, at] = np.concatenate(errors, axis=1).mean(axis=1)

    parallel_for(len(contenders) * len(sizes), task)
    log = np.log(np.maximum(found.min(axis=2), 1e-300))
    if len(sizes) == 1:
        return [float(v) for v in log[:, 0]]
    further = np.log(min(n_rows, _FAR_ROWS) / sizes[1]) / np.log(sizes[1] / sizes[0])
    ahead = log[:, 1] + max(0.0, float(further)) * np.minimum(log[:, 1] - log[:, 0], 0.0)
    return [float(v) for v in ahead]


def _scalings(
    X: AnyArray, weight: Float64Array, wanted: Wanted, *, sparse: bool
) -> list[InputScaling]:
    """Return the scalings to choose from; ranks are among them if a column has heavy tails."""
    rule = wanted.scaled
    if sparse and rule in ("auto", False):  # a shift would fill the rows
        return [InputScaling(metric=wanted.given)]
    if rule != "auto":
        scaling = InputScaling.fit(X, Gaussian(), standardize=rule, sample_weight=weight)
        return [scaling.with_metric(wanted.given)]
    robust = InputScaling.robust(X, weight).with_metric(wanted.given)
    assert robust.centre is not None
    columns = zip(X.T, robust.centre, np.asarray(robust.scale), strict=True)
    if any((np.abs(x - centre) > HEAVY * s).mean() > TAIL for x, centre, s in columns):
        ranks = InputScaling.robust(X, weight, ranks=True)
        return [robust, ranks.with_metric(wanted.given)]
    return [robust]


def _split(samples: Sequence[Sample], seed: int) -> tuple[list[Sample], list[list[Sample]]]:
    """Return rows to train on and subsets to score on; few rows serve for both."""
    n = samples[0].n_rows
    if n <= _TURNS_ROWS:
        return list(samples), [_parts(sample, seed, _JUDGED) for sample in samples]
    size, count = min(_JUDGED, n // 8), int(np.clip(n // _MANY, 2, 8))
    mixed = purpose_rng(seed, 7).permutation(n)
    cuts = [np.sort(mixed[a * size : (a + 1) * size]) for a in range(count)]
    rest = np.sort(mixed[count * size :])
    taught = [s.only(rest) if isinstance(s, ScaledSample) else s.take(rest) for s in samples]
    return taught, [[sample.take(cut) for cut in cuts] for sample in samples]


def _start(sample: Sample, nu: float, metric: Metric, wanted: Wanted) -> Machine:
    Z = metric.apply(sample.X)
    pairs = loo.squared_distances(Z)[np.triu_indices(len(Z), 1)]
    pairs = pairs[pairs > 0]
    median = float(np.sqrt(np.median(pairs))) if len(pairs) else 1.0
    if wanted.gamma is None:
        metric = metric.times(1.0 / median)
    else:
        metric = metric.times(np.sqrt(2 * wanted.gamma) / metric.largest)
    return Machine(nu, metric, RIDGE)


def _grouped(machine: Machine, groups: IntArray) -> Machine:
    theta = np.full(int(groups.max()) + 1, machine.metric.theta[0])
    return replace(machine, metric=Metric(theta, groups))


def _parts(sample: Sample, seed: int, size: int, most: int = 2) -> list[Sample]:
    """Return disjoint random subsets of `size` rows, or all rows if there are too few."""
    n = sample.n_rows
    if n < min(most, 2) * size:
        return [sample]
    mixed = purpose_rng(seed, 7).permutation(n)
    return [
        sample.take(np.sort(mixed[a : a + size]))
        for a in range(0, min(n - size + 1, most * size), size)
    ]


def _rivals(
    ranked: Sequence[tuple[int, Machine]], shapes: tuple[float, ...]
) -> list[tuple[int, Machine]]:
    """Return what to try beside the best machine: the second, a rough one, Matern 5/2."""
    k, best = ranked[0]
    rivals = list(ranked[1:2])
    if all(machine.nu > 1 for _, machine in (ranked[0], *rivals)):
        rivals += [item for item in ranked if item[1].nu < 1][:1]
    if best.nu > 1 and 2.5 in shapes and all(m.nu != 2.5 for _, m in (ranked[0], *rivals)):
        rivals.append((k, replace(best, nu=2.5)))
    return rivals


def _pays(gain: float, equal: Float64Array, learned: Float64Array) -> bool:
    """Whether the gain of learned weights exceeds a standard error of the paired difference."""
    difference = equal - learned
    mean = float(equal.mean())
    error = float(difference.std()) / np.sqrt(len(difference)) / (2 * mean) if mean else 0.0
    return gain > error


def _errors_in_turns(
    starts: Sequence[tuple[int, Machine]],
    samples: Sequence[Sample],
    seed: int,
    given: dict[str, Any],
) -> Float64Array:
    """Return squared errors of few rows, each predicted by machines that other rows taught.

    `starts` holds scalings and machines, which learn anew without each third of the rows.
    """
    n = len(samples[0].Y)
    mixed = purpose_rng(seed, 5).permutation(n)
    errors = np.empty((len(starts), n))

    def task(i: int) -> None:
        which, fold = divmod(i, _FOLDS)
        k, start = starts[which]
        held = np.sort(mixed[fold::_FOLDS])
        rest = np.setdiff1d(mixed, held)
        rows = samples[k].take(rest)
        schedule = Schedule(min(_WEIGHTED[0], len(rest)), *_WEIGHTED[1:])
        learned = loo.descend(start, rows, schedule, [seed, _TAG, fold], **given)
        others = samples[k].take(held)
        K, cross = loo.kernel_matrix(learned, rows), loo.kernel_matrix(learned, others, rows)
        solved = loo.coefficients(K, learned.ridge, rows)
        errors[which, held] = loo.squared_errors(cross, solved, others)

    parallel_for(len(starts) * _FOLDS, task)
    return errors * samples[0].weight


def _penalty(
    sample: Sample,
    matrix: Callable[[Sample], Float64Array],
    gamma: float,
    start: float,
    n_rows: int,
    seed: int,
    over: Callable[[], bool],
) -> tuple[float, list[dict[str, Any]]]:
    """Return alpha for all rows and what was tried; `matrix` returns the kernel matrix of rows.

    Lambda minimises the leave-one-out errors of up to 2,000 rows. For more rows it is continued
    as a power of their number, fitted from 500 to 2,000 rows.
    """

    def best(parts: list[Sample], start: float) -> tuple[float, list[dict[str, Any]]]:
        ridge, tried = ridge_of([matrix(part) for part in parts], parts, start)
        m = parts[0].n_rows
        return ridge, [trial(r / m, gamma, v, m) for r, v in tried]

    n = sample.n_rows
    if over():
        return start / n_rows, []
    many = [sample] if n <= _SOME + _FEW else _parts(sample, seed, _SOME, 1)
    if n <= _SOME + _FEW and n == n_rows:
        ridge, trials = best(many, start)
        return ridge / n, trials
    few, trials = best(_parts(sample, seed, min(_FEW, n // 2), 4), start)
    if over():
        return few / n_rows, trials
    ridge, more = best(many, few)
    growth = many[0].n_rows / min(_FEW, n // 2)
    return carried(few, ridge, growth, many[0].n_rows, n_rows), [*trials, *more]


def trial(
    alpha: float, gamma: float | None, loss: float, rows: int, **more: Any
) -> dict[str, Any]:
    """Return an entry of ``history_["search"]``."""
    entry = {"alpha": alpha, "gamma": gamma, "score": -loss, "loss": loss, "rows": rows}
    return entry | more


def ridge_of(
    matrices: Sequence[Float64Array], parts: Sequence[Sample], start: float
) -> tuple[float, list[tuple[float, float]]]:
    """Return the lambda with the smallest mean objective over `parts`, and all pairs tried."""

    def values(ridges: Sequence[float]) -> list[float]:
        found = np.empty((len(ridges), len(parts)))

        def task(i: int) -> None:
            r, p = divmod(i, len(parts))
            dtype: Any = np.float32 if ridges[r] > SURE else np.float64
            K: FloatArray = matrices[p].astype(dtype)
            found[r, p] = loo.ridge_errors(K, parts[p], ridges[r])[0]

        parallel_for(found.size, task)
        return [float(v) for v in found.mean(axis=1)]

    return loo.best_ridge(values, start)


def _laplacian(parts: Sequence[Sample]) -> tuple[float, float, float]:
    """Return score, gamma and lambda of the Laplacian kernel with the best of four bandwidths.

    Its distances are not functions of inner products, so that learning weights would cost d
    times as much; on tables with many columns that are mostly 0 it may win without weights.
    """
    D = [cdist(part.X, part.X, "cityblock") for part in parts]
    median = float(np.median(D[0][D[0] > 0])) if (D[0] > 0).any() else 1.0

    def value(factor: float) -> tuple[float, float, float]:
        gamma = 1.0 / (factor * median)
        ridge, tried = ridge_of([np.exp(-gamma * d) for d in D], parts, RIDGE)
        return min(v for _, v in tried), gamma, ridge

    return best_factor(value)  # type: ignore[no-any-return]


def best_factor(value: Callable[[float], Any]) -> Any:
    """Return the result of `value` whose first item is smallest, over factors of a bandwidth.

    The factors go from 1/4 to 2, and beyond while the smallest is at an end.
    """
    found = {factor: value(factor) for factor in (0.25, 0.5, 1.0, 2.0)}
    for _ in range(4):
        best = min(found, key=lambda factor: found[factor][0])
        if best not in (min(found), max(found)):
            break
        next_one = 2.0 * best if best == max(found) else 0.5 * best
        found[next_one] = value(next_one)
    return min(found.values(), key=lambda item: item[0])


def carried(few: float, many: float, growth: float, rows: int, n_rows: int) -> float:
    """Return alpha for `n_rows` from the best lambdas of `rows` and ``rows / growth`` rows."""
    power = float(np.clip(np.log(many / few) / np.log(growth), -0.5, 0.0))
    ridge = float(np.clip(many * (min(n_rows, _FAR_ROWS) / rows) ** power, LEAST, MOST))
    return ridge / n_rows


def _settled(machine: Machine, scaling: InputScaling) -> tuple[Kernel, InputScaling]:
    """Return the kernel and scaling of a machine; the largest learned weight becomes 1."""
    kernel, metric = loo.kernel_of(machine.nu, machine.gamma), machine.metric
    if metric.groups is not None and len(metric.theta) == 1:
        return kernel, scaling
    return kernel, scaling.with_metric(metric.weights / metric.largest)


def _told(machine: Machine, scaling: InputScaling) -> dict[str, Any]:
    metric = machine.metric
    name = "matrix" if metric.groups is None else "weights"
    if metric.groups is not None and len(metric.theta) == 1:
        name = "equal weights"
    kernel = loo.kernel_of(machine.nu, machine.gamma)
    return {
        "round": name,
        "kernel": repr(kernel),
        "scaling": scaling.name,
        "bandwidth": float(1.0 / np.sqrt(2.0 * machine.gamma)),
        "ridge": machine.ridge,
        "score": machine.score,
        "weights": (machine.metric.weights / machine.metric.largest).round(6).tolist(),
    }
