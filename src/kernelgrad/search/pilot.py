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
from kernelgrad.data import ArraySource
from kernelgrad.functions.scaling import HEAVY, TAIL, InputScaling
from kernelgrad.kernels import Gaussian, Kernel, Laplacian
from kernelgrad.losses import SquaredError
from kernelgrad.search import metric as loo
from kernelgrad.search.metric import Machine, Metric, Round, Sample, parallel_map
from kernelgrad.tasks import Classification, Task
from kernelgrad.training_rows import TrainingRows, no_rows
from kernelgrad.types import AnyArray, Float64Array, IntArray, Matrix

# Subsets grow while candidates get fewer. Twice the steps changed no error by more than its
# standard error.
ISOTROPIC = Round(300, 12, 0.1)  # all columns have one weight
WEIGHTED = Round(300, 20, 0.2)  # weights of columns, for several shapes and scalings
NARROW = Round(1000, 20, 0.2)  # weights again, from narrow bandwidths
FINALISTS = Round(500, 15, 0.15)  # the best machines, their rivals, and that of equal weights
LAST = Round(1000, 12, 0.1)  # the chosen machine, for many rows
MATRIX = Round(500, 40, 0.03)  # a matrix, from the chosen weights

MOST_COLUMNS = 2000  # columns up to which rows are made dense and weights are learned
FULL_COLUMNS = 300  # columns up to which a matrix is learned
LEAST_ROWS = 40  # rows from which weights are learned
_TURNS_ROWS = 1500  # rows up to which weights are learned in turns, to be sure of them
_MANY = 4000  # rows from which there are the rounds NARROW and LAST
_PRIOR_ROWS = 8000  # rows up to which a tight prior changes the weights
_FEW, _MEDIUM = 500, 2000  # rows of the two samples from which lambda is extrapolated
_FAR_ROWS = 32_000  # rows up to which errors and lambda are extrapolated
_JUDGED = 500  # rows of a subset on which machines are compared
_FOLDS = 3  # number of parts of few rows that are left out in turn
# Scores above which weights are learned from narrow bandwidths too: the first means that
# nothing is explained, the second, for more than 32,000 rows, a third of the variation.
_UNEXPLAINED = (-0.05, -0.25)
_CLOSE = 0.3  # difference of scores that more rows may turn around
# Gain of a rough kernel over a smooth one with each four times more rows, in logarithms of
# squared errors, beyond what two small sizes tell: functions of tables are seldom smooth.
_ROUGH = 0.04
_LOWER = (1.0, 0.2)  # factors on lambda, from which each contender takes the better one
RIDGE = 0.1  # lambda from which searches start
FALLBACK_ALPHA = 1e-6  # alpha if there is nothing to learn from
STREAM_ROWS = 100_000  # rows that a stream of unknown length counts as
FIXED = "the metric is given, or None"
EQUAL = "equal weights: no column to weigh against another, or too few rows"
_TAG = 0x70696C6F


@dataclass(frozen=True)
class SearchSpace:
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
    def fixed_metric(self) -> Float64Array | None:
        fixed = self.metric is not None and not self.learns
        return np.asarray(self.metric, np.float64) if fixed else None


@dataclass(frozen=True)
class Pool:
    """The m rows drawn for a study: X (m, d), targets Y (m, C) and weights (m,) of mean 1.

    `numbers` (m,) are their numbers in `rows`, which are in memory; `n_rows` counts all rows.
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
class SearchResult:
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


@dataclass(frozen=True)
class Contender:
    """A kernel with its lambda: ``matrix(A, B)`` are its values for rows of two samples."""

    matrix: Callable[..., Float64Array]
    ridge: float
    scaling: int = 0  # number of the scaling of the rows


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


def why_not(space: SearchSpace, pool: Pool) -> str | None:
    """Return why no metric is learned, or None; with FIXED or EQUAL a shape still is."""
    d = pool.X.shape[1]
    if not space.shapes:
        return "no metric is learned for this kernel, or gamma is given"
    if d > MOST_COLUMNS:
        return f"more than {MOST_COLUMNS:,} columns"
    if not space.learns:
        return FIXED
    if len(pool.Y) < LEAST_ROWS or d == 1:
        return EQUAL
    if space.metric == "full" and d > FULL_COLUMNS:
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


class Study:
    """A search for the machine with the smallest errors on rows that it was not trained on.

    Weights of columns are learned for several shapes beside machines with equal weights, on
    random subsets that grow while candidates get fewer (:mod:`kernelgrad.search.metric`).
    Weights stay only if they lower the errors by a standard error of the paired difference.
    With few rows the errors are those on thirds of the rows that the weights were not learned
    from; these thirds also choose the prior, and the mean of the targets must be worse as well.
    ``run`` returns the result; each of the other methods is a step or a decision on the way.
    """

    def __init__(
        self, pool: Pool, space: SearchSpace, groups: IntArray | None, seed: int,
        over: Callable[[], bool],
    ) -> None:  # fmt: skip
        X = dense(pool.X)
        self.pool, self.space, self.seed, self.over = pool, space, seed, over
        self.n = len(X)
        self.groups = np.arange(X.shape[1]) if groups is None else groups
        self.scalings = _scalings(X, pool.weight, space, sparse=sp.issparse(pool.X))
        every = np.arange(self.n)
        self.samples: list[Sample] = [
            ScaledSample(X, pool.Y, pool.weight, scaling, every) for scaling in self.scalings
        ]
        if self.n <= _MEDIUM + _FEW:
            self.samples = [sample.take(every) for sample in self.samples]
        self.taught, self.judges = _split(self.samples, seed)
        self.ends = sorted({min(space.shapes), max(space.shapes)})
        self.rounds: list[dict[str, Any]] = []

    def run(self) -> SearchResult:
        start = self.start()
        isotropic = self.train([replace(start, nu=nu) for nu in self.ends], ISOTROPIC)
        if why_not(self.space, self.pool) is None and self.groups.any():
            return self.result(self.weighted(start, isotropic))
        return self.result(self.unweighted(isotropic))

    def start(self) -> Machine:
        """Return a machine of equal weights; its bandwidth is the median distance or fixed."""
        sample, gamma = self.judges[0][0], self.space.gamma
        # a fixed metric is part of the scalings
        width = self.scalings[0].width(self.pool.X.shape[1])
        metric = Metric(np.zeros(1), np.zeros(width, np.intp))
        pairs = loo.squared_distances(metric.apply(sample.X))[np.triu_indices(sample.n_rows, 1)]
        pairs = pairs[pairs > 0]
        median = float(np.sqrt(np.median(pairs))) if len(pairs) else 1.0
        metric = metric.times(1.0 / median) if gamma is None else metric.with_gamma(gamma)
        return Machine(self.ends[0], metric, RIDGE)

    def train(self, machines: Sequence[Machine], plan: Round) -> list[Machine]:
        """Return the machines after a round, in the order of their scores."""

        def trained(machine: Machine) -> Machine:
            learned = self.descend(machine, self.taught[machine.scaling], plan, plan.rows)
            return loo.judged(learned, self.judges[machine.scaling])

        done = parallel_map(trained, machines)
        self.rounds.extend(self.entry(machine) for machine in done)
        return sorted(done, key=_score)

    def descend(self, machine: Machine, rows: Sample, plan: Round, key: int) -> Machine:
        space, seed = self.space, [self.seed, _TAG, key]
        return loo.descend(
            machine, rows, plan, seed, alpha=space.alpha, gamma=space.gamma, over=self.over
        )

    def entry(self, machine: Machine) -> dict[str, Any]:
        """Return an entry of ``history_["metric"]``."""
        metric = machine.metric
        name = "matrix" if metric.groups is None else "weights"
        return {
            "round": "equal weights" if metric.is_equal else name,
            "kernel": repr(loo.kernel_of(machine.nu, machine.gamma)),
            "scaling": self.scalings[machine.scaling].name,
            "bandwidth": float(1.0 / np.sqrt(2.0 * machine.gamma)),
            "ridge": machine.ridge,
            "score": machine.score,
            "weights": (metric.weights / metric.largest).round(6).tolist(),
        }

    def unweighted(self, isotropic: list[Machine]) -> Machine:
        """Return the best machine of equal weights, of all shapes and scalings."""
        best = isotropic[0]
        shapes = [replace(best, nu=nu) for nu in self.space.shapes if nu not in self.ends]
        scaled = [replace(best, scaling=k) for k in range(1, len(self.samples))]
        return self.train([*isotropic, *shapes, *scaled], FINALISTS)[0]

    def weighted(self, start: Machine, isotropic: list[Machine]) -> Machine:
        """Return the best machine with a metric, or the isotropic one if no metric pays."""
        starts = {m.nu: _grouped(m, self.groups) for m in isotropic}
        roughest, smoothest = starts[self.ends[0]], starts[self.ends[-1]]
        scaled = [
            replace(starts[isotropic[0].nu], scaling=k) for k in range(1, len(self.samples))
        ]
        if 1.5 in self.space.shapes:
            starts[1.5] = replace(smoothest, nu=1.5)
        learned = self.train([*starts.values(), *scaled], WEIGHTED)
        narrow = self.narrow(start, min(learned[0].score, isotropic[0].score))
        few = self.n <= _TURNS_ROWS  # the same rows teach and judge
        if not few and self.n <= _PRIOR_ROWS:
            learned[0] = self.better_prior(learned[0], roughest)
        ranked = self.finalists(learned, isotropic[0], narrow)
        if few:
            ranked, pays = self.in_turns(ranked, isotropic[0], roughest)
        else:
            machine, equal = _best(ranked, equal=False), _best(ranked, equal=True)
            pays = _pays(equal.score - machine.score, equal.errors, machine.errors)
        machine = _best(ranked, equal=self.space.metric == "auto" and not pays)
        if not self.over():
            alike = [m for m in ranked if m.metric.is_equal == machine.metric.is_equal]
            machine = self.best_for_many([machine, *alike])
        if not machine.metric.is_equal and self.n >= _MANY:
            machine = self.train([machine], LAST)[0]
        if self.space.metric == "full":
            machine = replace(machine, metric=machine.metric.full())
            machine = self.train([machine], MATRIX)[0]
        return machine

    def narrow(self, start: Machine, score: float) -> list[Machine]:
        """Return machines that learned from narrow bandwidths; none if the score is good.

        Fine structure in few columns shows from narrow bandwidths and more rows only.
        """
        good = score <= _UNEXPLAINED[self.pool.n_rows > _FAR_ROWS]
        if self.n < _MANY or self.space.gamma is not None or good:
            return []
        wide = _grouped(start, self.groups)
        narrow = replace(wide, metric=wide.metric.times(4.0))
        return self.train([replace(narrow, nu=nu) for nu in self.ends], NARROW)

    def better_prior(self, machine: Machine, start: Machine) -> Machine:
        """Return the machine, or the one that learned with a tighter prior, by their scores."""
        start = replace(start, nu=machine.nu, scaling=machine.scaling)
        tighter = [replace(start, spread=spread) for spread in loo.SPREADS[1:]]
        return min([machine, *self.train(tighter, WEIGHTED)], key=_score)

    def finalists(
        self, learned: list[Machine], isotropic: Machine, narrow: list[Machine]
    ) -> list[Machine]:
        """Return the best machines and the isotropic one, after rounds on more rows."""
        ranked = [learned[0], isotropic]
        if self.n > FINALISTS.rows:  # few rows would be seen again and again
            rivals = _rivals(learned, self.space.shapes)
            ranked = self.train([learned[0], *rivals, isotropic], FINALISTS)
        if narrow and not self.over():
            ranked = sorted([*ranked, *self.train(narrow, NARROW)], key=_score)
        return ranked

    def in_turns(
        self, ranked: list[Machine], isotropic: Machine, start: Machine
    ) -> tuple[list[Machine], bool]:
        """Return the machines with the better prior, and whether weights pay, for few rows.

        Both are decided by errors on thirds of the rows that taught no weights.
        """
        if self.over():
            return ranked, False
        machine = _best(ranked, equal=False)
        start = replace(start, nu=machine.nu, scaling=machine.scaling)
        starts = [replace(start, spread=spread) for spread in loo.SPREADS]
        equal, *learned = self.errors_in_turns([isotropic, *starts])
        constant = self.pool.weight * (self.pool.Y**2).sum(axis=1)
        which = int(np.argmin([errors.mean() for errors in learned]))
        errors = min(equal, constant, key=np.mean), learned[which]
        means = np.maximum([each.mean() for each in errors], 1e-300)
        gain = 0.5 * float(np.log(means[0] / means[1]))
        if which:
            machine = self.train([starts[which]], WEIGHTED)[0]
            if self.n > FINALISTS.rows:
                machine = self.train([machine], FINALISTS)[0]
            ranked = [machine, _best(ranked, equal=True)]
        return ranked, _pays(gain, *errors)

    def errors_in_turns(self, starts: Sequence[Machine]) -> Float64Array:
        """Return weighted squared errors of all rows, predicted by machines of other rows.

        Each start learns anew without each third of the rows.
        """
        mixed = purpose_rng(self.seed, 5).permutation(self.n)
        errors = np.empty((len(starts), self.n))

        def turn(pair: tuple[int, int]) -> None:
            which, fold = pair
            sample = self.samples[starts[which].scaling]
            left_out = np.sort(mixed[fold::_FOLDS])
            rows, others = sample.take(np.setdiff1d(mixed, left_out)), sample.take(left_out)
            learned = self.descend(starts[which], rows, WEIGHTED, fold)
            K, cross = (
                loo.kernel_matrix(learned, rows),
                loo.kernel_matrix(learned, others, rows),
            )
            solution = loo.coefficients(K, learned.ridge, rows)
            errors[which, left_out] = loo.squared_errors(cross, solution, others)

        parallel_map(turn, list(np.ndindex(len(starts), _FOLDS)))
        return errors * self.samples[0].weight

    def best_for_many(self, ranked: Sequence[Machine]) -> Machine:
        """Return which of the best machines of each shape will do best on all rows."""
        best: dict[float, Machine] = {}
        for machine in ranked:
            if machine.score < ranked[0].score + _CLOSE:
                best.setdefault(machine.nu, machine)
        n_rows = self.pool.n_rows
        if n_rows <= _TURNS_ROWS or len(best) == 1:
            return ranked[0]
        further = max(0.0, _powers(_FEW, _MEDIUM, n_rows))
        errors = self.duel([_contender(machine) for machine in best.values()])
        expected = [
            error - (_ROUGH * further if nu < 1 else 0.0)
            for error, nu in zip(errors, best, strict=True)
        ]
        return list(best.values())[int(np.argmin(expected))]

    def duel(self, contenders: Sequence[Contender]) -> list[float]:
        """Return the logarithm of the error that each contender will have with all rows.

        Kernels of different roughness gain differently from more rows: errors on the rows that
        judge, predicted from 500 rows that teach and from 2,000, are carried on as a power of
        the rows, to 32,000 at most. For each contender the best of two lambdas counts.
        """
        n_taught = self.taught[contenders[0].scaling].n_rows
        sizes = sorted({min(size, n_taught) for size in (_FEW, _MEDIUM)})
        mixed = purpose_rng(self.seed, 8).permutation(n_taught)

        def least_error(pair: tuple[Contender, int]) -> float:
            contender, size = pair
            rows = self.taught[contender.scaling].take(np.sort(mixed[:size]))
            K, judges = contender.matrix(rows), self.judges[contender.scaling]
            ridges = [max(loo.LEAST, contender.ridge * factor) for factor in _LOWER]
            solutions = [loo.coefficients(K, ridge, rows) for ridge in ridges]
            errors = []
            for judge in judges:
                cross = contender.matrix(judge, rows)
                each = [loo.squared_errors(cross, a, judge) for a in solutions]
                errors.append(judge.weight * each)
            return float(np.concatenate(errors, axis=1).mean(axis=1).min())

        pairs = [(contender, size) for contender in contenders for size in sizes]
        errors = np.reshape(parallel_map(least_error, pairs), (len(contenders), len(sizes)))
        log = np.log(np.maximum(errors, 1e-300))
        if len(sizes) == 1:
            return [float(v) for v in log[:, 0]]
        further = max(0.0, _powers(sizes[0], sizes[1], self.pool.n_rows))
        ahead = log[:, 1] + further * np.minimum(log[:, 1] - log[:, 0], 0.0)
        return [float(v) for v in ahead]

    def result(self, machine: Machine) -> SearchResult:
        """Return the result for the best machine, or for the Laplacian kernel if it wins."""
        space = self.space
        if space.gamma is None:
            metric = machine.metric.times(1 / space.bandwidth_factor)
            machine = replace(machine, metric=metric)
        kernel, metric = loo.kernel_of(machine.nu, machine.gamma), machine.metric
        scaling, contender = self.scalings[machine.scaling], _contender(machine)
        if not metric.is_equal:  # the largest weight becomes 1
            scaling = scaling.with_metric(metric.weights / metric.largest)
        # its values need a compiled loop, for which the fit of a few rows should not wait
        searched = space.alpha is None and space.gamma is None and self.n > _TURNS_ROWS
        if space.laplacian and searched and not self.over():
            laplacian = self.laplacian(machine, contender)
            if laplacian is not None:
                kernel, contender = laplacian
                scaling = self.scalings[0]
        if space.alpha is not None:
            return SearchResult(kernel, scaling, space.alpha, self.rounds)
        alpha, trials = self.penalty(contender, float(kernel.gamma_value))
        return SearchResult(kernel, scaling, alpha, self.rounds, trials)

    def laplacian(self, machine: Machine, rival: Contender) -> tuple[Kernel, Contender] | None:
        """Return the Laplacian kernel of equal weights if it will do better than the machine.

        Its distances are not functions of inner products, so that learning weights would cost d
        times as much; on tables with many columns that are mostly 0 it may win without weights.
        """
        parts = self.judges[0]
        D = [cdist(part.X, part.X, "cityblock") for part in parts]
        median = float(np.median(D[0][D[0] > 0])) if (D[0] > 0).any() else 1.0

        def value(factor: float) -> tuple[float, float, float]:
            gamma = 1.0 / (factor * median)
            ridge, tried = ridge_of([np.exp(-gamma * d) for d in D], parts, RIDGE)
            return min(v for _, v in tried), gamma, ridge

        score, gamma, ridge = best_factor(value)
        duel = [Contender(partial(_laplacian_matrix, gamma), ridge), rival]
        if score >= machine.score + _CLOSE or np.argmin(self.duel(duel)):
            return None
        gamma /= self.space.bandwidth_factor
        kernel = Laplacian(gamma)
        self.rounds.append({
            "round": "equal weights", "kernel": repr(kernel), "scaling": self.scalings[0].name,
            "bandwidth": 1.0 / gamma, "ridge": ridge, "score": score,
            "weights": [1.0] * self.pool.X.shape[1],
        })  # fmt: skip
        return kernel, Contender(partial(_laplacian_matrix, gamma), ridge)

    def penalty(self, contender: Contender, gamma: float) -> tuple[float, list[dict[str, Any]]]:
        """Return alpha for all rows, and what was tried.

        Lambda minimises the leave-one-out errors of up to 2,000 rows. For more rows it is
        continued as a power of their number, fitted from 500 to 2,000 rows.
        """
        sample, n_rows = self.samples[contender.scaling], self.pool.n_rows
        trials: list[dict[str, Any]] = []

        def best(parts: list[Sample], start: float) -> float:
            ridge, tried = ridge_of([contender.matrix(part) for part in parts], parts, start)
            m = parts[0].n_rows
            trials.extend(trial(r / m, gamma, v, m) for r, v in tried)
            return ridge

        if self.over():
            return contender.ridge / n_rows, trials
        whole = self.n <= _MEDIUM + _FEW
        if whole and self.n == n_rows:
            return best([sample], contender.ridge) / n_rows, trials
        size = min(_FEW, self.n // 2)
        few = best(_parts(sample, self.seed, size, 4), contender.ridge)
        if self.over():
            return few / n_rows, trials
        many = [sample] if whole else _parts(sample, self.seed, _MEDIUM, 1)
        ridge, rows = best(many, few), many[0].n_rows
        return carried(few, ridge, rows / size, rows, n_rows), trials


def _score(machine: Machine) -> float:
    return machine.score


def _best(ranked: Sequence[Machine], *, equal: bool) -> Machine:
    """Return the first machine whose weights are equal, or are not."""
    return next(machine for machine in ranked if machine.metric.is_equal == equal)


def _contender(machine: Machine) -> Contender:
    return Contender(partial(loo.kernel_matrix, machine), machine.ridge, machine.scaling)


def _grouped(machine: Machine, groups: IntArray) -> Machine:
    theta = np.full(int(groups.max()) + 1, machine.metric.theta[0])
    return replace(machine, metric=Metric(theta, groups))


def _powers(few: int, many: int, n_rows: int) -> float:
    """Return how often rows grow as from `few` to `many` on the way from `many` to `n_rows`."""
    return float(np.log(min(n_rows, _FAR_ROWS) / many) / np.log(many / few))


def _laplacian_matrix(gamma: float, A: Sample, B: Sample | None = None) -> Float64Array:
    D = cdist(A.X, (A if B is None else B).X, "cityblock")
    D *= -gamma
    return np.asarray(np.exp(D, out=D))


def _scalings(
    X: AnyArray, weight: Float64Array, space: SearchSpace, *, sparse: bool
) -> list[InputScaling]:
    """Return the scalings to choose from; ranks are among them if a column has heavy tails."""
    rule, fixed = space.scaled, space.fixed_metric
    if sparse and rule in ("auto", False):  # a shift would fill the rows
        return [InputScaling(metric=fixed)]
    if rule != "auto":
        scaling = InputScaling.fit(X, Gaussian(), standardize=rule, sample_weight=weight)
        return [scaling.with_metric(fixed)]
    robust = InputScaling.robust(X, weight)
    assert robust.centre is not None
    columns = zip(X.T, robust.centre, np.asarray(robust.scale), strict=True)
    scalings = [robust]
    if any((np.abs(x - centre) > HEAVY * s).mean() > TAIL for x, centre, s in columns):
        scalings.append(InputScaling.robust(X, weight, ranks=True))
    return [scaling.with_metric(fixed) for scaling in scalings]


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


def _parts(sample: Sample, seed: int, size: int, most: int = 2) -> list[Sample]:
    """Return disjoint random subsets of `size` rows, or all rows if there are too few."""
    n = sample.n_rows
    if n < min(most, 2) * size:
        return [sample]
    mixed = purpose_rng(seed, 7).permutation(n)
    starts = range(0, min(n - size + 1, most * size), size)
    return [sample.take(np.sort(mixed[a : a + size])) for a in starts]


def _rivals(ranked: Sequence[Machine], shapes: tuple[float, ...]) -> list[Machine]:
    """Return what to try beside the best machine: the second, a rough one, Matern 5/2."""
    best = ranked[0]
    rivals = list(ranked[1:2])
    if all(machine.nu > 1 for machine in (best, *rivals)):
        rivals += [machine for machine in ranked if machine.nu < 1][:1]
    if best.nu > 1 and 2.5 in shapes and all(m.nu != 2.5 for m in (best, *rivals)):
        rivals.append(replace(best, nu=2.5))
    return rivals


def _pays(gain: float, equal: Float64Array, learned: Float64Array) -> bool:
    """Whether the gain of learned weights exceeds a standard error of the paired difference."""
    difference = equal - learned
    mean = float(equal.mean())
    error = float(difference.std()) / np.sqrt(len(difference)) / (2 * mean) if mean else 0.0
    return gain > error


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

    def value(pair: tuple[float, int]) -> float:
        ridge, p = pair
        K: Any = matrices[p].astype(np.float32 if ridge > loo.SURE else np.float64)
        return loo.ridge_errors(K, parts[p], ridge)[0]

    def values(ridges: Sequence[float]) -> list[float]:
        pairs = [(ridge, p) for ridge in ridges for p in range(len(parts))]
        each = np.reshape(parallel_map(value, pairs), (len(ridges), len(parts)))
        return [float(v) for v in each.mean(axis=1)]

    return loo.best_ridge(values, start)


def best_factor(value: Callable[[float], Any]) -> Any:
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


def carried(few: float, many: float, growth: float, rows: int, n_rows: int) -> float:
    """Return alpha for `n_rows` from the best lambdas of `rows` and ``rows / growth`` rows."""
    power = float(np.clip(np.log(many / few) / np.log(growth), -0.5, 0.0))
    far = many * (min(n_rows, _FAR_ROWS) / rows) ** power
    return float(np.clip(far, loo.LEAST, loo.MOST)) / n_rows
