"""What is searched, the rows that a search sees, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelgrad.compute.memory import LEAST_LIMIT
from kernelgrad.compute.rng import draws
from kernelgrad.data import ArraySource
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import Kernel
from kernelgrad.losses import SquaredError
from kernelgrad.solvers import Problem
from kernelgrad.tasks import Classification, Task
from kernelgrad.training_rows import TrainingRows, no_rows
from kernelgrad.types import AnyArray, Float64Array, IntArray, Matrix

MOST_COLUMNS = 2000  # columns up to which rows are made dense and weights are learned
FULL_COLUMNS = 300  # columns up to which a matrix is learned
LEAST_ROWS = 40  # rows from which weights are learned
FALLBACK_ALPHA = 1e-6  # alpha if there is nothing to learn from
STREAM_ROWS = 100_000  # rows that a stream of unknown length counts as
FIXED = "the metric is given, or None"
EQUAL = "equal weights: no column to weigh against another, or too few rows"
TAG = 0x70696C6F
# Threads of a search: on 16 cores a default fit of 10,000 rows took 9.7 s with 16 threads and
# 5.3 s with 4, because threads with small arrays wait for the interpreter.
_THREADS = 4
EFFORTS = ("fast", "default", "best")  # names of the settings of a study


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
    sums: bool = False  # True if the kernel has a rough part beside a smooth one
    tasks: bool = False  # True if the loss, or the scale of the targets, is searched too
    bandwidths: bool = False  # True if `kernels` have a bandwidth to search
    effort: str = "default"

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
    Weights of classes are left out, because they would hide the columns that tell of few rows;
    with them n rows count as ``n / unequal`` of equal weight (Kish 1965).
    """

    rows: TrainingRows
    X: Matrix
    Y: Float64Array
    weight: Float64Array
    n_rows: int
    numbers: IntArray
    y: AnyArray  # internal targets (m,) or (m, C)
    unequal: float = 1.0

    def some(self, most: int, seed: int) -> Pool:
        """Return at most so many random rows of the pool."""
        if len(self.y) <= most:
            return self
        at = np.sort(purpose_rng(seed, 9).permutation(len(self.y))[:most])
        weight = self.weight[at] / self.weight[at].mean()
        return replace(
            self, X=self.X[at], Y=self.Y[at], weight=weight, numbers=self.numbers[at],
            y=self.y[at],
        )  # fmt: skip

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

    def applied(self, problem: Problem) -> Problem:
        return replace(problem, kernel=self.kernel, scaling=self.scaling, alpha=self.alpha)


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
        return Pool(rows, X, np.empty((0, 1)), weight, n, numbers, y)
    factor, unequal = rows.task.class_factor(y), 1.0
    if factor is not None:
        weight = weight / factor
        mean, square = (np.average(factor**power, weights=weight) for power in (1, 2))
        unequal = float(square / mean**2)
        rows = _equal_classes(rows)
    targets, weight, y = targets_of(rows.task, y, weight), weight / weight.mean(), np.asarray(y)
    return Pool(rows, X, targets, weight, n, numbers, y, unequal)


def _equal_classes(rows: TrainingRows) -> TrainingRows:
    """Return rows in memory without weights of classes."""
    assert isinstance(rows.task, Classification)
    task = replace(rows.task, weights=None)
    if not rows.is_internal:
        return replace(rows, task=task)
    whole = rows.source.read(0, rows.source.n_rows)
    y, weight = rows.weighed(whole)
    factor = np.asarray(rows.task.class_factor(y))
    weight = np.divide(weight, factor, out=np.zeros(len(y)), where=factor > 0)
    return replace(rows, source=ArraySource(whole.X, y, weight, checked=True), task=task)


def study_tasks(memory_limit: float | None) -> int:
    """Return the threads of a search: few, as its arrays are small, and within memory."""
    # a task with 2,000 rows has two float64 matrices and parts of others: 80 MB
    most = _THREADS if memory_limit is None else int(memory_limit / 80e6)
    return max(1, min(_THREADS, most))


def purpose_rng(seed: int, purpose: int) -> np.random.Generator:
    return draws(seed, TAG, purpose)


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
