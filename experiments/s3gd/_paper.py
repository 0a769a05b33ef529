"""The setting of Section 4: data, methods with constant steps, runs, correlations."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.objectives._shared import distinct, where

from experiments.base import Cell, Row
from experiments.s3gd import _linear as linear
from kernelgrad import set_num_threads
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.linear import loops
from kernelgrad.linear.base import PreparedRows, evaluate
from kernelgrad.linear.stochastic import draw_batches
from kernelgrad.papers.s3gd.anchors import build_graph
from kernelgrad.solvers import S3GD, SCV, SGD, SSGD, SVRG, LinearProblem, TrainBatch
from kernelgrad.validation import CapabilityError

SETS = tuple(linear.SETS)
IMAGES = "mnist 10000"  # the first rows, in place of CIFAR10
BY = " by "  # before the number of principal components
METHODS = {"SGD": SGD, "SSGD": SSGD, "SVRG": SVRG, "SCV": SCV, "S3GD": S3GD}
RUNNING = "SCV, running moments"
COLOURS = {name: f"C{i}" for i, name in enumerate((*METHODS, RUNNING))}
ETAS = (0.1, 1.0, 5.0, 10.0)
LAMBDA, INNER, SVRG_INNER = 1e-3, 20, 50  # Sections 4.2 and 4.3
STABLE = 0.01  # epsilon of Equation (47)
AVERAGED = 5000  # last iterations that judge stability
ROUND = 100  # iterations between looks: a multiple of both numbers of inner ones
EARLY, LOOKS, TEST_ROWS, QUICK_STEPS = 400, 40, 10_000, 1200
DATA = (
    "Six sets at hand: of the paper's nine IJCNN and 20newsgroups, and of covtype 16,000 rows. "
    "Standardised dense columns, rows of mean squared norm 1, a column of ones appended. The "
    "larger class, or targets above the median, against the rest; Equation (46) where a class "
    "is rarer than 15 %."
)
CLOCK = "Seconds are those of one core's work, which other programs do not lengthen."


@dataclass(frozen=True)
class Task:
    """The objective of one set, and what its units are of the paper's.

    `scale` is what the paper's objective is of the one here: 2 with Equation (46).
    """

    case: linear.Case
    scale: float

    @property
    def batch(self) -> TrainBatch:
        """The training rows."""
        return self.case.batch()

    def problem(self, seed: int) -> LinearProblem:
        """Return the problem, with the alpha of the preset."""
        alpha = S3GD.paper(eta=1.0, lam=LAMBDA, balanced=self.scale == 2)["alpha"]
        return self.case.problem(alpha, tol=0.0, seed=seed)

    def solver(self, name: str, eta: float, round_size: int = ROUND, **own: Any) -> Any:
        """Return a method with a constant step of the paper's objective."""
        parts = {"round_size": round_size} | (own if name == "S3GD" else {})
        ours = S3GD.paper(eta=eta, lam=LAMBDA, balanced=self.scale == 2, **parts)["solver"]
        if name == "S3GD":
            return ours
        inner = {"inner_steps": SVRG_INNER} | own if name == "SVRG" else own
        inner = {"running": True} if name == RUNNING else inner
        return METHODS.get(name, SCV)(
            batch_size=ours.batch_size, step_size=ours.step_size, round_size=round_size, **inner
        )

    @cached_property
    def best(self) -> float:
        """The least objective, in the units here."""
        return linear.minimum(self.problem(0), self.batch)[0]


@lru_cache(maxsize=2)
def load(name: str, quick: bool) -> Task:
    """Return the task of a set, of the first rows of one, or of some principal components.

    Such as ``"mnist 10000"``, and ``"mnist 10000 by 20"`` components of it.
    """
    set_num_threads(1)
    some, _, components = name.partition(BY)
    archive, _, rows = some.partition(" ")
    case = linear.load(archive, quick=quick, rows=int(rows) if rows else None)
    if components:
        case = principal(case, int(components))

    def with_ones(X: Any) -> Any:
        ones = np.ones((X.shape[0], 1))
        return sp.csr_matrix(sp.hstack([X, ones])) if sp.issparse(X) else np.hstack([X, ones])

    few = slice(TEST_ROWS)
    case = replace(
        case, X=with_ones(case.X), X_test=with_ones(case.X_test[few]),
        y_test=case.y_test[few], weight_test=case.weight_test[few],
    )  # fmt: skip
    return Task(case, 1.0 if np.ptp(case.weight) == 0 else 2.0)


def principal(case: linear.Case, k: int) -> linear.Case:
    """Return the first k principal components of the rows, of mean squared norm 1 again."""
    mean = case.X.mean(axis=0)
    V = np.linalg.eigh(np.cov(case.X.T))[1][:, : -k - 1 : -1]
    X, X_test = ((A - mean) @ V for A in (case.X, case.X_test))
    size = np.sqrt((X * X).sum() / len(X))
    return replace(case, X=X / size, X_test=X_test / size)


def warm(task: Task, one: Any) -> None:
    """Compile the loops of a method on a few rows."""
    linear.warm_up(one, task.case, task.problem(0))


def seconds_of_rounds(task: Task, one: Any, seed: int, rounds: int) -> tuple[float, float]:
    """Return seconds of an iteration, the median of so many rounds, and of the preparation."""
    warm(task, one)
    problem, batch, clock = task.problem(seed), task.batch, []
    with single_threaded_blas():
        start = time.process_time()
        state = one.init(problem, batch)
        for _ in range(rounds + 1):
            one.step(problem, state, batch)
            clock.append(time.process_time() - start)
    each = float(np.median(np.diff(clock)))
    return each / one.round_size, max(clock[0] - each, 0.0)


def curve(task: Task, name: str, eta: float, seed: int, iterations: int, **own: Any) -> Row:
    """Run a method; return its training and test objective over iterations.

    Looks are after each 20 of the first 400 iterations (50 of SVRG), then at logarithmic
    distances, and after each 100 of the last 5,000.
    """
    one = task.solver(name, eta, **own)
    fine = task.solver(name, eta, getattr(one, "inner_steps", INNER), **own)
    early, at = EARLY // fine.round_size, 0
    warm(task, one)
    problem, batch, case = task.problem(seed), task.batch, task.case
    test = TrainBatch(case.X_test, case.y_test[:, None], case.weight_test)
    looks = [PreparedRows.build(problem, rows) for rows in (batch, test)]
    rounds = early + (iterations - EARLY) // ROUND
    last = min((rounds - early) // 2, AVERAGED // ROUND)
    marks = {early + int(k) for k in np.geomspace(1, rounds - early, LOOKS)}
    out: list[list[float]] = []
    tail, clock = [], []
    try:
        with single_threaded_blas():
            start = time.process_time()
            state = one.init(problem, batch)
            for number in range(1, rounds + 1):
                step = fine if number <= early else one
                step.step(problem, state, batch)
                at += step.round_size
                clock.append(time.process_time() - start)
                shown = number <= early or number in marks
                if shown or number > rounds - last:
                    coef, bias = one.solution(state)
                    found = [
                        evaluate(problem, look, look.native(coef), bias).objective
                        for look in looks
                    ]
                    if number > rounds - last:
                        tail.append(found[0])
                    if shown:
                        out.append([at, found[0] / task.best - 1, found[1]])
                start = time.process_time() - clock[-1]  # looks are off the clock
    except ValueError:  # diverged
        tail = [math.inf]
    each = float(np.median(np.diff(clock)[early:])) if len(clock) > early + 1 else math.inf
    good = [at for at, above, _ in out if above <= STABLE]
    above = np.array(out).T if len(out) > 1 else np.zeros((3, 2))
    return {
        "iterations to 1%": good[0] if good else None,
        "s": each / ROUND,
        "preparation s": clock[0] if clock else 0.0,
        "tail": min(float(np.mean(tail)) / task.best - 1, 1e9),
        "shaking": float(np.std(tail)) / task.best if len(tail) > 1 else 1e9,
        "train and test": pearson(above[1], above[2]),
        "curve": [[at, float(f"{v:.4g}"), task.scale * t] for at, v, t in out],
    }


@cache
def runs(
    data: str, seed: int, quick: bool, iterations: int, every: bool = False,
    names: tuple[str, ...] = (*METHODS,),
) -> list[Row]:  # fmt: skip
    """Return rows of the methods, each with the largest stable step, or with every step."""
    task, rows = load(data, quick), []
    for name in names:
        for eta in sorted(ETAS, reverse=True):
            try:
                row = curve(task, name, eta, seed, iterations)
            except CapabilityError:  # covariances of too many columns
                break
            rows.append({"method": name, "eta": eta} | row)
            if row["tail"] <= STABLE and not every:
                break
    return rows


def cells(quick: bool, sets: Sequence[str] = SETS, seeds: int = 5, **values: Any) -> list[Cell]:
    """Return a cell for each set and draw; quick ones have 1,500 rows of a smaller set."""
    some = ("covtype20k",) if quick else sets
    drawn = range(1 if quick else seeds)
    return [{"data": s, "seed": k, "quick": quick} | values for k in drawn for s in some]


def stable(rows: list[Row]) -> list[Row]:
    """Return the rows of the steps that meet Equation (47)."""
    return [row for row in rows if row["tail"] is not None and row["tail"] <= STABLE]


def fastest(rows: list[Row], prepared: bool = False) -> dict[str, float]:
    """Return the seconds of each method to 1 % above the minimum at its largest step."""
    out = dict.fromkeys(distinct(rows, "method"), math.inf)
    for row in stable(rows):
        if row["iterations to 1%"] is not None:
            spent = row["iterations to 1%"] * row["s"]
            out[row["method"]] = spent + (row["preparation s"] if prepared else 0.0)
    return out


def first(rows: list[Row], prepared: bool = False, without: str = "") -> dict[str, str]:
    """Return the fastest method of each set, without one of them."""
    out = {}
    for data in distinct(rows, "data"):
        spent = fastest([r for r in where(rows, data=data) if r["method"] != without], prepared)
        out[data] = min(spent, key=lambda name: spent[name])
    return out


def lead(rows: list[Row], data: str, name: str) -> float:
    """Return log10 of the least seconds of the others over those of a method, in [-3, 3]."""
    spent = fastest(where(rows, data=data))
    others = min((v for key, v in spent.items() if key != name), default=math.inf)
    ratio = others / spent.get(name, math.inf) if others < math.inf else math.inf
    return float(np.clip(np.log10(max(ratio, 1e-3)), -3, 3))


def means(rows: list[Row], key: str, by: Callable[[Row], Any]) -> dict[Any, float]:
    """Return the mean of a column in each group of rows, in order of appearance."""
    groups: dict[Any, list[float]] = {}
    for row in rows:
        if row.get(key) is not None:
            groups.setdefault(by(row), []).append(row[key])
    return {group: float(np.mean(values)) for group, values in groups.items()}


def listed(values: dict[Any, float], form: str = ".3g") -> str:
    """Return numbers by name, as text."""
    return ", ".join(f"{name} {value:{form}}" for name, value in values.items())


# -- correlations of gradients -------------------------------------------------------------


def pearson(a: Any, b: Any) -> float:
    """Return the correlation of two vectors; 0 where one is constant."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def correlations(
    task: Task, name: str, eta: float, seed: int, marks: Sequence[int], **own: Any
) -> dict[int, float]:
    """Return mean correlations of a gradient estimate with the gradient, after each mark.

    Over every fifth of the next 100 iterations, along the method's own path. An iteration at a
    time, the estimate can be read off the move: ``g = (W - (1 + step l2) W') / step``.
    """
    one = task.solver(name, eta, 1, **own)
    problem, batch = task.problem(seed), task.batch
    warm(task, one)
    state = one.init(problem, batch)
    data, rng = state.data, np.random.default_rng(seed)
    W, b, step = data.native(state.coef), state.bias.copy(), one.step_size
    graph = (
        build_graph(problem, data, one.n_anchors, one.n_neighbors) if name == "S3GD" else None
    )
    found: dict[int, list[float]] = {mark: [] for mark in marks}
    with single_threaded_blas():
        for t in range(max(marks) + 100):
            old = W.copy()
            if name in ("SVRG", "S3GD"):
                if t % one.inner_steps == 0:
                    slopes = near_slopes(problem, data, graph, W, b)
                    part = slopes * data.share[:, None]
                    means = data.gradient(part), part.sum(axis=0)
                    reference = loops.RowReferences(*means, slopes)
                order, share = draw_batches(data, 1, one.batch_size, rng)
                data.descend(problem, W, b, order, share, step, reference)
            else:
                one.step(problem, state, batch)
                W = data.native(state.coef)
            inside = [mark for mark in marks if mark <= t < mark + 100]
            if inside and t % 5 == 0:
                g = (old - (1 + step * problem.l2) * W) / step
                exact = evaluate(problem, data, old, b).gradient
                found[inside[-1]].append(pearson(g.ravel(), exact.ravel()))
    return {mark: float(np.mean(values)) for mark, values in found.items()}


def near_slopes(problem: Any, data: PreparedRows, graph: Any, W: Any, b: Any) -> Any:
    """Return the derivatives of all rows, or those that the graph has for them."""
    if graph is None:
        return evaluate(problem, data, W, b).slopes
    U = data.responses(W, b)[graph.anchors]
    at = problem.loss.gradient(np.repeat(graph.targets, len(U), axis=0), U)
    return graph.spread + (graph.gamma * at[graph.near][:, :, 0]).sum(axis=1)[:, None]
