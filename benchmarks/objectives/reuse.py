"""What re-using blocks of features is worth: DSG, UDSG, CDSG and SVRG side by side."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from benchmarks.objectives._curves import DATASETS
from benchmarks.objectives._shared import (
    available,
    distinct,
    draw,
    log_grid,
    picture,
    where,
)
from benchmarks.registry import Dataset, Objective, Row
from benchmarks.solvers.svrg import SVRG
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.data import ArraySource, sample_batches
from kernelgrad.features.base import FeatureMap, float32_rows
from kernelgrad.functions.expansions import RandomFeatureExpansion
from kernelgrad.kernels import Kernel, get_kernel
from kernelgrad.losses import Loss, get_loss
from kernelgrad.losses.classification import encode_labels
from kernelgrad.solvers import CDSG, DSG, UDSG, Problem, TrainBatch
from kernelgrad.solvers.random_features.dsg import DSGState, Proposal, uniform_block
from kernelgrad.solvers.schedules import smoothness

REACHED, CURVES, CHECK = "seconds and features to DSG's end", "curves", "the check of CDSG"
ALPHA = 1e-5
MAX_INPUTS = 100  # of dense data; the paper's medium-scale experiments
FACTORS = (1.0, 2.0, 4.0, 8.0, 16.0)  # steps on trial, in units of the automatic one
DECAY = 100.0
PILOT_ITERATIONS, PILOT_PART = 48, 4  # pilots have a quarter of the block and of the batch
SVRG_FACTORS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
SNAPSHOTS_PER_ROUND = 16
FEATURE_ROWS = 2048
MOST = 8  # no solver takes more than this many times the iterations of DSG
WINDOW = 5  # snapshots in the running median that decides what was reached
MODES = ("plain", "preconditioned")
CLOCKS = {"wall": ("s", time.perf_counter), "cpu": ("CPU s", time.process_time)}


@dataclass(frozen=True)
class Size:
    """Frequencies a block, rows a batch (Table 2 of the paper) and iterations of DSG."""

    block: int
    batch: int
    iterations: int

    def part(self, k: int) -> Size:
        """Return a k-th of the block and the batch."""
        return Size(max(1, self.block // k), max(1, self.batch // k), self.iterations)


SIZES = {
    "mnist": Size(256, 4096, 48),
    "protein": Size(512, 10_000, 40),
    "a9a": Size(256, 4096, 48),
}
OTHER = Size(256, 4096, 48)
QUICK = Size(16, 256, 8)


class Clock:
    """A stopwatch that evaluation can stop."""

    def __init__(self, kind: str) -> None:
        self._now = CLOCKS[kind][1]
        self._before, self._start = 0.0, self._now()

    def stop(self) -> float:
        """Return the seconds so far; `go` starts it again."""
        self._before += self._now() - self._start
        return self._before

    def go(self) -> None:
        """Go on."""
        self._start = self._now()


class UniformCDSG(CDSG):
    """A control: re-use where CDSG does, but a block drawn uniformly."""

    def _choose_block(
        self, problem: Problem, state: DSGState, proposal: Proposal
    ) -> tuple[int, float]:
        block, factor = super()._choose_block(problem, state, proposal)
        if block < state.iterates.x.n_blocks:
            block = uniform_block(problem, state)
        return block, factor


SOLVERS: dict[str, tuple[type[DSG], dict[str, Any]]] = {
    "DSG": (DSG, {}),
    "UDSG(1,1)": (UDSG, {}),
    "UDSG(1,3)": (UDSG, {"reused_blocks": 3}),
    "CDSG": (CDSG, {}),
    "CDSG, steps to 2": (CDSG, {"max_step": 2.0}),
}


def build(name: str, mode: str, size: Size, step: float | str, decay: float) -> DSG:
    """Return a solver as the paper has it, or with the library's defaults."""
    cls, options = SOLVERS[name]
    return make(cls, options, mode, size, step, decay)


def make(
    cls: type[DSG], options: dict[str, Any], mode: str, size: Size, step: Any, decay: float
) -> DSG:
    """Return a solver of a class."""
    sizes = {"block_size": size.block, "batch_size": size.batch}
    if mode == "preconditioned":
        return cls(**sizes, **options)
    return cls(
        preconditioned=False, momentum=0.0, average=None, step_size=step, decay=decay,
        **sizes, **options,
    )  # fmt: skip


def principal_components(X: Any, Z: Any, k: int) -> tuple[Any, Any]:
    """Return both parts in the first k principal directions of X."""
    mean = X.mean(0, dtype=np.float64)
    covariance = (X.T @ X).astype(np.float64) / len(X) - np.outer(mean, mean)
    V = np.linalg.eigh(covariance)[1][:, : -k - 1 : -1].astype(np.float32)
    return tuple((A - mean.astype(np.float32)) @ V for A in (X, Z))


class Task:
    """A data set with its smooth loss, and the rows on which all solvers are compared."""

    def __init__(self, dataset: Dataset, most: int | None, evaluation_rows: int) -> None:
        data = dataset.load()
        self.name = dataset.name
        self.X, X_test, y, y_test = data.X_train, data.X_test, data.y_train, data.y_test
        if most is not None:
            self.X, X_test, y, y_test = self.X[:most], X_test[:most], y[:most], y_test[:most]
        if not sp.issparse(self.X) and self.X.shape[1] > MAX_INPUTS:
            self.X, X_test = principal_components(self.X, X_test, MAX_INPUTS)
        self.scale = data.y_scale
        self.classes = None if dataset.task == "regression" else np.unique(y)
        self.loss: Loss
        if self.classes is None:
            self.loss = get_loss("squared", task="regression")
        else:
            K = len(self.classes)
            self.loss = get_loss("log_loss", task="classification", n_classes=K)
        self.y, self.y_test = self.encode(y), self.encode(y_test)
        rows = np.random.default_rng(0).permutation(len(y))[:evaluation_rows]
        self.rows, self.X_rows, self.X_test = rows, self.X[rows], X_test

    def encode(self, y: Any) -> Any:
        """Return targets as the loss wants them."""
        if self.classes is None:
            return np.asarray(y, np.float32)[:, None]
        codes = np.searchsorted(self.classes, y)
        return encode_labels(codes, len(self.classes), self.loss)

    def problem(self, seed: int, *, intercept: bool) -> Problem:
        """Return the problem for the solvers: Gaussian kernel, median bandwidth."""
        return Problem(
            loss=self.loss,
            kernel=get_kernel("rbf", gamma="median"),
            alpha=ALPHA,
            n_outputs=self.y.shape[1],
            n_features_in=self.X.shape[1],
            seed=seed,
            fit_intercept=intercept,
        )

    def batches(self, size: int, seed: int) -> Iterator[TrainBatch]:
        """Yield random batches for ever."""
        source = ArraySource(self.X, np.arange(self.X.shape[0], dtype=float), checked=True)
        for item in sample_batches(source, size, seed=seed):
            assert item.batch.y is not None
            y = self.y[item.batch.y.astype(int)]
            yield TrainBatch(item.batch.X, y, np.ones(len(y)))

    def objective(self, f: Any) -> float:
        """Return the mean loss of the evaluation rows, inf if it is not a number."""
        value = self.loss.value(self.y[self.rows], np.asarray(f, np.float64)).mean()
        return float(value) if np.isfinite(value) else np.inf

    def error(self, f: Any) -> float:
        """Return the error rate on the test rows, or the root mean squared error."""
        if self.classes is None:
            return self.scale * float(np.sqrt(np.mean((f - self.y_test) ** 2)))
        if f.shape[1] == 1:
            return float(np.mean((f > 0) != (self.y_test > 0)))
        return float(np.mean(f.argmax(axis=1) != self.y_test.argmax(axis=1)))


@dataclass
class Course:
    """What one run went through; entry i belongs to snapshot i."""

    seconds: list[float] = field(default_factory=list)
    features: list[int] = field(default_factory=list)
    objective: list[float] = field(default_factory=list)
    iteration: list[int] = field(default_factory=list)
    reused: int = 0
    error: float = np.nan
    penalty: float = np.nan

    def add(self, seconds: float, features: int, objective: float, iteration: int) -> None:
        """Append a snapshot."""
        self.seconds.append(seconds)
        self.features.append(features)
        self.objective.append(objective)
        self.iteration.append(iteration)

    def smooth(self) -> Any:
        """Return the running median of the objective over the last few snapshots."""
        values = self.objective
        return np.array(
            [median(values[max(0, i + 1 - WINDOW) : i + 1]) for i in range(len(values))]
        )

    def first(self, target: float) -> int | None:
        """Return the first snapshot at which `target` is reached."""
        below = np.flatnonzero(self.smooth() <= target)
        return int(below[0]) if len(below) else None


def penalty(e: RandomFeatureExpansion) -> float:
    """Return ``alpha/2 (sum_j |A_j|)^2``, which bounds the penalty from above.

    The function is in the space of the kernel ``sum_j q_j phi_j . phi_j`` for any weights q,
    with squared norm at most ``sum_j |A_j|^2 / q_j``; this is its minimum over q.
    """
    norms = [float(np.linalg.norm(e.block(j))) for j in range(e.n_blocks)]
    return 0.5 * ALPHA * sum(norms) ** 2


@np.errstate(over="ignore", invalid="ignore")
def follow(
    solver: DSG,
    task: Task,
    problem: Problem,
    *,
    iterations: int,
    seconds: float = np.inf,
    clock: str = "wall",
    test: bool = True,
) -> Course:
    """Run a solver; only batches, `init` and `step` count as time.

    It ends after `iterations` or `seconds`, or where it diverges.
    """
    course = Course()
    state: Any = None
    batches = task.batches(int(solver.batch_size), problem.seed)
    watch = Clock(clock)
    with single_threaded_blas():
        for done in range(1, iterations + 1):
            watch.go()
            batch = next(batches)
            if state is None:
                state = solver.init(problem, batch)
                watch.stop()
                tracker = solver.track(state, task.X_rows)
                watch.go()
            try:
                info = solver.step(problem, state, batch)
            except FloatingPointError:
                course.objective[-1] = np.inf
                break
            now = watch.stop()
            tracker.advance(info)
            f = tracker.raw_prediction()
            course.add(now, info.n_random_features, task.objective(f), done)
            if now >= seconds:
                break
        e = solver.expansion(state)
        course.reused = state.n_reused
        course.penalty = penalty(e)
        if test:
            course.error = task.error(e.raw_prediction(task.X_test))
    return course


def transform(features: FeatureMap, X: Any) -> Any:
    """Return the features of all rows, made a few rows at a time."""
    out = np.empty((X.shape[0], features.width), np.float32)
    with single_threaded_blas():  # the map has threads of its own
        for a in range(0, X.shape[0], FEATURE_ROWS):
            b = a + FEATURE_ROWS
            out[a:b] = features.transform(float32_rows(X[a:b]), 0)
    return out


class FixedFeatures:
    """SVRG on features that are made once; its step is the best on one short run."""

    def __init__(self, task: Task, n: int, clock: str, *, intercept: bool) -> None:
        self.task, self.n, self.clock = task, n, clock
        self.intercept = np.zeros(task.y.shape[1])
        if intercept:
            self.intercept = task.loss.intercept(task.y)
        self.step = np.nan

    def _threads(self) -> AbstractContextManager[None]:
        # threads that wait for one another in small products are no work: with the clock of
        # the processor there is one
        return nullcontext() if self.clock == "wall" else single_threaded_blas()

    @np.errstate(over="ignore", invalid="ignore")
    def tune(self, kernel: Kernel) -> None:
        """Choose the step that is best after two rounds on the evaluation rows."""
        task = self.task
        features = kernel.feature_map(task.X.shape[1], 10**6, self.n)
        Phi, y = transform(features, task.X_rows), task.y[task.rows]
        L = float(smoothness(task.loss, y, np.zeros_like(y)).max())
        best = np.inf
        with self._threads():
            for factor in SVRG_FACTORS:
                svrg = SVRG(Phi, y, task.loss, ALPHA, self.intercept)
                step = factor / (L * svrg.curvature())
                for _ in islice(svrg.steps(step), 2 * svrg.steps_per_round + 2):
                    pass
                value = task.objective(Phi @ svrg.w + svrg.intercept)
                if value < best:
                    best, self.step = value, step

    @np.errstate(over="ignore", invalid="ignore")
    def follow(self, kernel: Kernel, seed: int, seconds: float) -> Course:
        """Run for `seconds`; making the features counts."""
        course, task, watch = Course(), self.task, Clock(self.clock)
        features = kernel.feature_map(task.X.shape[1], seed, self.n)
        Phi = transform(features, task.X)
        watch.stop()
        svrg = SVRG(Phi, task.y, task.loss, ALPHA, self.intercept, seed=seed)
        some = Phi[task.rows]
        every = max(1, svrg.steps_per_round // SNAPSHOTS_PER_ROUND)
        with self._threads():
            watch.go()
            for done in svrg.steps(self.step):
                if done % every:
                    continue
                now = watch.stop()
                value = task.objective(some @ svrg.w + svrg.intercept)
                course.add(now, features.width, value, done)
                if (now >= seconds and done) or np.isinf(value):
                    break
                watch.go()
        course.penalty = 0.5 * ALPHA * float(np.linalg.norm(svrg.w)) ** 2
        course.error = task.error(transform(features, task.X_test) @ svrg.w + svrg.intercept)
        return course


class Comparison:
    """All solvers on one task in one mode."""

    def __init__(self, task: Task, mode: str, size: Size, args: argparse.Namespace) -> None:
        self.task, self.mode, self.size, self.args = task, mode, size, args
        self.intercept = mode == "preconditioned" if args.intercept is None else args.intercept
        self.fixed = FixedFeatures(task, 4 * size.block, args.clock, intercept=self.intercept)
        self.names = list(dict.fromkeys(["DSG", *args.solver]))
        self.courses: dict[str, list[Course]] = {name: [] for name in self.names}

    def tune(self) -> None:
        """Give every solver its best stable step out of one list, on short, small runs.

        All have the same schedule; stable means that no iterate was worse than the start.
        Preconditioned solvers keep the step of the library.
        """
        problem = self.task.problem(10**6, intercept=self.intercept)
        auto = build("DSG", self.mode, self.size, "auto", DECAY)
        state = auto.init(problem, next(self.task.batches(self.size.batch, problem.seed)))
        self.kernel = state.iterates.x.stream.kernel
        self.unit = float(state.gamma0.max())
        self.factors = {name: 1.0 for name in SOLVERS if name in self.names}
        small = self.size.part(PILOT_PART)
        self._follow("DSG", 1.0, problem, small, iterations=2, test=False)  # compiles
        iterations = min(PILOT_ITERATIONS, self.size.iterations)
        start = self.task.objective(
            np.tile(state.iterates.x.intercept, (len(self.task.rows), 1))
        )
        pinned = self.args.factor
        for name in self.factors if self.mode == "plain" else ():
            best = np.inf
            for factor in FACTORS if pinned is None else (pinned,):
                course = self._follow(
                    name, factor, problem, small, iterations=iterations, test=False
                )
                stable = max(course.objective) < start
                if stable and course.objective[-1] < best:
                    best, self.factors[name] = course.objective[-1], factor
        if "SVRG" in self.names:
            self.fixed.tune(self.kernel)

    def _follow(
        self, name: str, factor: float, problem: Problem, size: Size, **limits: Any
    ) -> Course:
        solver = build(name, self.mode, size, factor * self.unit, self.args.decay)
        return follow(solver, self.task, problem, **limits)

    def measure(self, seed: int) -> None:
        """Run DSG for its iterations, then all others for as many seconds."""
        problem = self.task.problem(seed, intercept=self.intercept)
        T, budget = self.size.iterations, np.inf
        for name in self.names:
            if name == "SVRG":
                course = self.fixed.follow(self.kernel, seed, budget)
            else:
                most = T if name == "DSG" else MOST * T
                course = self._follow(
                    name, self.factors[name], problem, self.size,
                    iterations=most, seconds=budget, clock=self.args.clock,
                )  # fmt: skip
            if name == "DSG":
                budget = course.seconds[-1]
            self.courses[name].append(course)

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield medians over the repeats."""
        T, unit = self.size.iterations, CLOCKS[self.args.clock][0]
        for name, courses in self.courses.items():
            seconds, times, features, share = [], [], [], []
            for course, dsg in zip(courses, self.courses["DSG"], strict=True):
                target = dsg.smooth()[-1]
                i, j = course.first(target), dsg.first(target)
                assert j is not None
                if i is not None:
                    seconds.append(course.seconds[i])
                    times.append(dsg.seconds[j] / course.seconds[i])
                    features.append(course.features[i])
                    share.append(course.features[i] / dsg.features[j])
            reached = 2 * len(seconds) > len(courses)
            svrg = name == "SVRG"
            at_T = [c.objective[T - 1] for c in courses if len(c.objective) >= T and not svrg]
            yield (
                REACHED,
                {
                    "dataset": self.task.name,
                    "mode": self.mode,
                    "solver": name,
                    "step": self.fixed.step if svrg else self.factors[name] * self.unit,
                    "reached": f"{len(seconds)} of {len(courses)}",
                    unit: median(seconds) if reached else "not reached",
                    "times faster": median(times) if reached else None,
                    "features": median(features) if reached else None,
                    "share of features": median(share) if reached else None,
                    f"objective at T={T}": median(at_T) if at_T else None,
                    "objective at the end": median(c.objective[-1] for c in courses),
                    "penalty bound": median(c.penalty for c in courses),
                    "test": median(c.error for c in courses),
                    "iterations": median(c.iteration[-1] for c in courses),
                    "% re-used": None if svrg
                    else median(100.0 * c.reused / c.iteration[-1] for c in courses),
                    "features at the end": median(c.features[-1] for c in courses),
                    f"total {unit}": median(c.seconds[-1] for c in courses),
                },
            )  # fmt: skip
        for name, courses in self.courses.items():
            length = min(len(c.objective) for c in courses)
            for t in log_grid(1, length, 1.4):
                yield (
                    CURVES,
                    {
                        "dataset": self.task.name,
                        "mode": self.mode,
                        "solver": name,
                        unit: median(c.seconds[t - 1] for c in courses),
                        "features": median(c.features[t - 1] for c in courses),
                        "objective": median(c.objective[t - 1] for c in courses),
                    },
                )

    def check(self, seeds: int) -> Iterator[tuple[str, Row]]:
        """Yield how often CDSG's check accepts, and what it brings at equal iterations."""
        size = self.size.part(PILOT_PART)
        large = Size(size.block, self.size.batch, size.iterations)
        cases: list[tuple[str, type[DSG], dict[str, Any], Size, bool]] = [
            ("DSG", DSG, {}, size, True),
            ("UDSG(1,1)", UDSG, {}, size, True),
            ("CDSG", CDSG, {}, size, True),
            ("CDSG, uniform block", UniformCDSG, {}, size, True),
            ("DSG, no intercept", DSG, {}, size, False),
            ("CDSG, no intercept", CDSG, {}, size, False),
            ("CDSG, uniform block, no intercept", UniformCDSG, {}, size, False),
            ("CDSG, spread 10", CDSG, {"spread": 10.0}, size, True),
            ("CDSG, spread 100", CDSG, {"spread": 100.0}, size, True),
            ("DSG, batch x 4", DSG, {}, large, True),
            ("CDSG, batch x 4", CDSG, {}, large, True),
        ]
        factor = self.factors["DSG"]
        for name, cls, options, s, intercept in cases:
            courses = []
            for seed in range(seeds):
                solver = make(cls, options, self.mode, s, factor * self.unit, self.args.decay)
                problem = self.task.problem(seed, intercept=intercept)
                courses.append(follow(solver, self.task, problem, iterations=s.iterations))
            yield (
                CHECK,
                {
                    "dataset": self.task.name,
                    "mode": self.mode,
                    "case": name,
                    "block": s.block,
                    "batch": s.batch,
                    "iterations": s.iterations,
                    "% re-used": median(100.0 * c.reused / c.iteration[-1] for c in courses),
                    "objective": median(c.smooth()[-1] for c in courses),
                    "test": median(c.error for c in courses),
                },
            )


class Reuse(Objective):
    """Training objective against seconds and features: DSG, UDSG, CDSG and SVRG.

    Section 5.1 and Figure 1 of the CDSG paper: Gaussian kernel, median bandwidth, alpha =
    1e-5, at most 100 inputs by PCA, SVRG with four times the frequencies of a block. The
    objective is the mean loss of a fixed sample of training rows, without the penalty: a sum
    of random features is not in the space of the kernel, so that its norm has only a bound,
    which the table gives. DSG takes a fixed number of iterations, the others as many seconds;
    evaluation stops the clock. Plain: the papers' algorithms without an intercept; each has
    the best step out of the same list, with the same schedule. Preconditioned: the library's
    defaults. ``--repeat`` counts the seeds.
    """

    name: ClassVar[str] = "reuse"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add data sets, modes and sizes."""
        names = [*SOLVERS, "SVRG"]
        parser.add_argument("--dataset", nargs="+", choices=list(DATASETS), default=list(SIZES))
        parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES))
        parser.add_argument("--solver", nargs="+", choices=names, default=names)
        parser.add_argument("--iterations", type=int, default=None, help="of DSG")
        parser.add_argument("--block", type=int, default=None, help="frequencies of a block")
        parser.add_argument("--batch", type=int, default=None, help="rows of a batch")
        parser.add_argument("--evaluation-rows", type=int, default=10_000)
        parser.add_argument("--decay", type=float, default=DECAY, help="t0 of plain steps")
        parser.add_argument(
            "--factor", type=float, default=None, help="one step for all, instead of tuning"
        )
        parser.add_argument(
            "--clock", choices=list(CLOCKS), default="wall", help="cpu is for a busy machine"
        )
        parser.add_argument(
            "--intercept",
            action=argparse.BooleanOptionalAction,
            default=None,
            help="start from the best constant; by default only when preconditioned",
        )
        parser.add_argument(
            "--check", action="store_true", help="study the check of CDSG instead"
        )

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Tune, then take the solvers in turn in every repeat."""

        def task(name: str) -> Task:
            return Task(DATASETS[name], 2000 if args.quick else None, args.evaluation_rows)

        for name, loaded in available(args.dataset, task):
            size = QUICK if args.quick else SIZES.get(name, OTHER)
            size = Size(
                args.block or size.block,
                args.batch or size.batch,
                args.iterations or size.iterations,
            )
            for mode in args.mode:
                comparison = Comparison(loaded, mode, size, args)
                comparison.tune()
                if args.check:
                    yield from comparison.check(args.repeat)
                    continue
                for seed in range(args.repeat):
                    comparison.measure(seed)
                yield from comparison.rows()

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw a row for every data set, and two columns for every mode."""
        if CURVES not in tables:
            return False
        from matplotlib.ticker import LogLocator, NullFormatter

        rows = tables[CURVES]
        unit = next(unit for unit, _ in CLOCKS.values() if unit in rows[0])
        names, solvers = distinct(rows, "dataset"), distinct(rows, "solver")
        columns = [(mode, x) for mode in distinct(rows, "mode") for x in (unit, "features")]
        with picture(path, len(names), len(columns), size=(3.6, 3.0)) as axes:
            for i, name in enumerate(names):
                for ax, (mode, x) in zip(axes[i], columns, strict=True):
                    here = where(rows, dataset=name, mode=mode)
                    draw(ax, here, "solver", x, "objective", solvers)
                    dsg = where(here, solver="DSG")
                    late = [r["objective"] for r in dsg if r[unit] >= 0.05 * dsg[-1][unit]]
                    low = min(r["objective"] for r in here)
                    # what came before is out of the picture: it would flatten all that follows
                    ax.set_ylim(low - 0.05 * (late[0] - low), late[0])
                    label = (
                        "random features" if x == "features" else unit.replace("s", "seconds")
                    )
                    ax.set(xscale="log", title=f"{name}, {mode}", xlabel=label)
                    ax.set_xlim(0.9 * min(r[x] for r in here if r["objective"] <= late[0]))
                    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
                    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
                    ax.xaxis.set_minor_formatter(NullFormatter())
                    ax.grid(which="major", lw=0.3)
                axes[i][0].set_ylabel("mean training loss")
            handles, labels = axes[0][0].get_legend_handles_labels()
            ax.figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        return True
