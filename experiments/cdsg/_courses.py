"""Courses of DSG, UDSG, CDSG and SVRG: objective and error against processor time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.objectives._curves import DATASETS
from benchmarks.objectives._shared import log_grid, where

from experiments.base import Row, Rows, by_seed
from experiments.cdsg._svrg import SVRG
from kernelgrad import DSG
from kernelgrad.compute.threads import one_thread
from kernelgrad.data import ArraySource, Batch, BatchSource
from kernelgrad.features.base import float32_rows
from kernelgrad.losses import Loss, get_loss
from kernelgrad.losses.classification import encode_labels
from kernelgrad.solvers import CDSG, UDSG, Problem, TrainBatch
from kernelgrad.solvers.dsg import smoothness

MAX_INPUTS = 100  # of dense data, Section 5.1
OFFSET = 100.0  # delays the decay: none of the short runs sees much of it
# steps on trial, in units of the automatic one, twice which is the limit of the squared loss
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
TRIAL = 1.5  # a trial is longer than a course of DSG: re-use has more iterations in its time
POINTS = 1.5  # ratio of iterations that are kept of a curve
FEATURE_ROWS = 2048
MOST = 1000  # iterations, where time is the limit
METHODS: dict[str, tuple[type[DSG], dict[str, Any]]] = {
    "DSG": (DSG, {"form": "pair"}),
    "UDSG": (UDSG, {}),
    "CDSG": (CDSG, {"max_step": 2.0}),
    "CDSG, no bound": (CDSG, {}),
}
COVARIANCE = " with the covariance"
PROGRAM: dict[str, tuple[type[DSG], dict[str, Any]]] = {
    f"DSG{COVARIANCE}": (DSG, {}),
    f"UDSG{COVARIANCE}": (UDSG, {}),
    f"CDSG{COVARIANCE}": (CDSG, {"max_step": 1.0}),  # 2 is the limit of preconditioned steps
}
STEPS = """
The paper does not tell its steps: each method has the best of a grid by itself, on a trial of
one and a half times the iterations, of the form theta / (100 + t). CDSG bounds the line search
by 2, as the paper advises without a number; "no bound" is its Algorithm 4 as printed. The steps
with the covariance begin at 1, damping 1, untuned, without a line search (bound 1, as 2 is
their limit of stability). The objective is the mean loss without the penalty, which is not
defined for sums of random features. Seconds are those of the processor, one thread, evaluation
left out.
"""


@dataclass(frozen=True)
class Size:
    """Frequencies a block, rows a batch and iterations of DSG."""

    block: int
    batch: int
    iterations: int


def principal(X: Any, k: int) -> Callable[[Any], Any]:
    """Return the projection on the first k principal directions of the rows of `X`."""
    mean = X.mean(0, dtype=np.float64)
    covariance = (X.T @ X).astype(np.float64) / len(X) - np.outer(mean, mean)
    V = np.linalg.eigh(covariance)[1][:, : -k - 1 : -1].astype(np.float32)
    mean = mean.astype(np.float32)
    return lambda A: (A - mean) @ V


class Task:
    """Rows of a source with a loss, and the training and test rows that courses look at."""

    def __init__(
        self, source: BatchSource, project: Callable[[Any], Any], loss: str, classes: Any,
        seen: tuple[Any, Any], test: tuple[Any, Any],
    ) -> None:  # fmt: skip
        self.source, self.project, self.classes = source, project, classes
        K = 0 if classes is None else len(classes)
        task = "regression" if classes is None else "classification"
        self.loss: Loss = get_loss(loss, task=task, n_classes=K or None)
        (X, y), (Z, z) = seen, test
        self.X, self.y, self.Z, self.z = project(X), self.encode(y), project(Z), self.encode(z)

    def encode(self, y: Any) -> Any:
        """Return targets as the loss wants them."""
        if self.classes is None:
            return np.asarray(y, np.float32)[:, None]
        codes = np.searchsorted(self.classes, y)
        return encode_labels(codes, len(self.classes), self.loss)

    def batches(self, size: int, seed: int) -> Iterator[TrainBatch]:
        """Yield random batches for ever, rows drawn with replacement."""
        for t in count():
            rows = np.random.default_rng([seed, t]).integers(self.source.n_rows, size=size)
            yield self.whole(self.source.take(rows))

    def whole(self, rows: Batch) -> TrainBatch:
        """Return rows of the source as solvers take them."""
        y = self.encode(rows.y)
        return TrainBatch(self.project(rows.X), y, np.ones(len(y)))

    def problem(self, preset: dict[str, Any], seed: int) -> Problem:
        """Return the problem of a preset."""
        return Problem(
            self.loss, preset["kernel"], preset["alpha"], self.y.shape[1], self.X.shape[1],
            seed, fit_intercept=False,
        )  # fmt: skip

    def objective(self, f: Any) -> float:
        """Return the mean loss of the training rows looked at, inf if it is not a number."""
        value = self.loss.value(self.y, np.asarray(f, np.float64)).mean()
        return float(value) if np.isfinite(value) else np.inf

    def error(self, f: Any, y: Any) -> float:
        """Return the error rate, or the root mean squared error."""
        if self.classes is None:
            return float(np.sqrt(np.mean((f - y) ** 2)))
        if f.shape[1] == 1:
            return float(np.mean((f > 0) != (y > 0)))
        return float(np.mean(f.argmax(axis=1) != y.argmax(axis=1)))

    def look(self, seconds: float, features: int, f: Any, g: Any) -> Row:
        """Return what responses on training and test rows make of a course's point."""
        return {
            "seconds": seconds, "features": features, "objective": self.objective(f),
            "train": self.error(f, self.y), "test": self.error(g, self.z),
        }  # fmt: skip


@cache
def archive(name: str, rows: int, seen: int = 5000, loss: str | None = None) -> Task:
    """Return at most so many rows of a data set; dense inputs by at most 100 components."""
    data = DATASETS[name].load()
    order = np.random.default_rng(0).permutation(len(data.y_train))[:rows]
    X, y, few = data.X_train[order], data.y_train[order], slice(seen)
    wide = not sp.issparse(X) and X.shape[1] > MAX_INPUTS
    project = principal(X, MAX_INPUTS) if wide else lambda A: A
    regression = DATASETS[name].task == "regression"
    return Task(
        ArraySource(X, y, checked=True), project,
        loss or ("squared" if regression else "log_loss"),
        None if regression else np.unique(y), (X[few], y[few]),
        (data.X_test[few], data.y_test[few]),
    )  # fmt: skip


def preset(name: str, penalty: float, size: Size, step: float) -> dict[str, Any]:
    """Return the paper's method with a first step."""
    if name in PROGRAM:
        cls, options = PROGRAM[name]
        theirs = DSG.program(nu=penalty, batch_size=size.batch, block_size=size.block)
        steps = theirs["solver"].get_params()
        return theirs | {"solver": cls(**steps | options)}
    cls, options = METHODS[name]
    return cls.paper(
        nu=penalty, theta=step * (1 + OFFSET), offset=OFFSET, batch_size=size.batch,
        block_size=size.block, **options,
    )  # fmt: skip


@np.errstate(over="ignore", invalid="ignore")
def follow(
    task: Task, chosen: dict[str, Any], seed: int, iterations: int, limit: float = np.inf
) -> list[Row]:
    """Return a row for each iteration, until there are so many or the seconds are spent."""
    solver, problem = chosen["solver"], task.problem(chosen, seed)
    rows: list[Row] = []
    spent, state = 0.0, None
    batches = task.batches(solver.batch_size, seed)
    with one_thread():
        while len(rows) < iterations and spent < limit:
            batch = next(batches)  # made for all methods alike
            start = time.process_time()
            if state is None:
                state = solver.init(problem, batch)
                trackers = [solver.track(state, rows_) for rows_ in (task.X, task.Z)]
            try:
                info = solver.step(problem, state, batch)
            except FloatingPointError:
                return [*rows[:-1], {**rows[-1], "objective": np.inf}]
            spent += time.process_time() - start
            for tracker in trackers:
                tracker.advance(info)
            f, g = (tracker.raw_prediction() for tracker in trackers)
            rows.append(task.look(spent, info.n_random_features, f, g))
    return rows


def automatic(task: Task, penalty: float, size: Size) -> float:
    """Return the library's first step, the unit of those on trial."""
    auto = DSG(block_size=size.block, batch_size=size.batch, preconditioned=False)
    problem = task.problem(preset("DSG", penalty, size, 1.0), 10**6)
    with one_thread():
        first = next(task.batches(size.batch, 10**6))
        return float(auto.init(problem, first).gamma0.max())


@cache
def tune(task: Task, penalty: float, size: Size, names: tuple[str, ...]) -> dict[str, float]:
    """Return for each method the first step with the least objective on a short run."""
    unit = automatic(task, penalty, size)
    found = {}
    for name in names:
        ends = {}
        for factor in FACTORS:
            chosen = preset(name, penalty, size, factor * unit)
            course = follow(task, chosen, 10**6, round(TRIAL * size.iterations))
            ends[factor * unit] = course[-1]["objective"]
        found[name] = min(ends, key=lambda step: ends[step])
    return found


def courses(
    task: Task, penalty: float, size: Size, seed: int, steps: dict[str, float],
    limit: float = np.inf,
) -> Rows:  # fmt: skip
    """Yield the courses of all methods: for so many seconds, or for those of the first one."""
    for name, step in steps.items():
        iterations = size.iterations if np.isinf(limit) else MOST
        rows = follow(task, preset(name, penalty, size, step), seed, iterations, limit)
        limit = rows[-1]["seconds"] if np.isinf(limit) else limit
        yield from thin(name, rows)


def thin(name: str, rows: list[Row]) -> Rows:
    """Yield rows at places evenly spaced in the logarithm, the last one included."""
    for t in log_grid(1, len(rows), POINTS):
        yield {"method": name} | rows[t - 1]


@np.errstate(over="ignore", invalid="ignore")
def fixed_features(task: Task, n: int, penalty: float, seed: int, limit: float) -> Rows:
    """Yield the course of SVRG on so many random features; making them counts."""
    batch = task.whole(task.source.read(0, task.source.n_rows))
    kernel = DSG.paper(nu=penalty, form="pair")["kernel"].resolve(batch.X, seed)
    features = kernel.feature_map(task.X.shape[1], seed, n)

    def transform(X: Any) -> Any:
        out = np.empty((X.shape[0], features.width), np.float32)
        for a in range(0, X.shape[0], FEATURE_ROWS):
            b = a + FEATURE_ROWS
            out[a:b] = features.transform(float32_rows(X[a:b]), 0)
        return out

    with one_thread():
        start = time.process_time()
        Phi = transform(batch.X)
        spent = time.process_time() - start
        seen, test = transform(task.X), transform(task.Z)
        L = float(smoothness(task.loss, task.y, np.zeros_like(task.y)).max())
        ends = {}
        for factor in (1.0, 4.0, 16.0, 64.0):
            svrg = SVRG(seen, task.y, task.loss, penalty)
            step = factor / (L * svrg.curvature())
            for _ in islice(svrg.steps(step), max(100, svrg.steps_per_round)):
                pass
            ends[step] = task.objective(seen @ svrg.w)
        svrg = SVRG(Phi, batch.y, task.loss, penalty, seed=seed)
        every, course = max(1, svrg.steps_per_round // 8), []
        start = time.process_time()
        for done in svrg.steps(min(ends, key=lambda step: ends[step])):
            if done % every:
                continue
            spent += time.process_time() - start
            course.append(task.look(spent, features.width, seen @ svrg.w, test @ svrg.w))
            if spent >= limit:
                break
            start = time.process_time()
    yield from thin("SVRG", course)


def of(rows: list[Row], kind: str, column: str, *, control: bool = False) -> list[Row]:
    """Return rows as printed, or with the covariance; those of a control have a column more."""
    some = [row for row in rows if ("covariance" in row) == bool(kind)]
    return [row for row in some if (column in row) == control]


def ends(rows: list[Row], column: str, key: str) -> list[dict[str, float]]:
    """Return for each seed and case the last value of a column of each method."""

    def last(mine: list[Row]) -> dict[str, float]:
        return {row["method"]: np.inf if row[column] is None else row[column] for row in mine}

    cases = {row[key] for row in rows}
    return [
        found for case in sorted(cases) for found in by_seed(where(rows, **{key: case}), last)
    ]
