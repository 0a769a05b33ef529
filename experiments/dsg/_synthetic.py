"""The synthetic regression of Sections 7.1 and 7.2, and courses of solvers on it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from time import process_time
from typing import Any

import numpy as np
from benchmarks.objectives._shared import distinct, log_grid, where
from benchmarks.registry import Row
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.data import ArraySource, sample_batches
from kernelgrad.losses import SquaredError
from kernelgrad.solvers import Problem, Solver, TrainBatch


def true_function(X: Any) -> Any:
    """Return ``cos(pi |x| / 2) exp(-pi |x| / 10)``."""
    r = np.linalg.norm(X, axis=1)
    return np.cos(0.5 * np.pi * r) * np.exp(-0.1 * np.pi * r)


def sample(n: int, seed: int) -> tuple[Any, Any]:
    """Return uniform rows of [-5, 5]^2 and their targets, noise of deviation 0.1 included."""
    random = np.random.default_rng(seed)
    X = random.uniform(-5, 5, (n, 2))
    return X, true_function(X) + 0.1 * random.standard_normal(n)


def problem(preset: dict[str, Any], seed: int, n_outputs: int = 1) -> Problem:
    """Return the least-squares problem of a preset on rows of two columns."""
    return Problem(
        SquaredError(), preset["kernel"], preset["alpha"], n_outputs, 2, seed,
        fit_intercept=False,
    )  # fmt: skip


def batches(X: Any, Y: Any, size: int, seed: int) -> Iterator[TrainBatch]:
    """Yield batches in seeded shuffles, for ever; `Y` has a column for each output."""
    source = ArraySource(X, np.arange(float(len(X))), checked=True)
    for item in sample_batches(source, size, seed=seed):
        assert item.batch.y is not None
        rows = item.batch.y.astype(int)
        yield TrainBatch(item.batch.X, Y[rows].astype(np.float32), np.ones(len(rows)), rows)


def course(
    solver: Solver[Any], problem: Problem, batches: Iterable[TrainBatch], Z: Any
) -> Iterator[Any]:
    """Yield the responses on the rows of `Z`, (m, C), after each step."""
    state: Any = None
    for batch in batches:
        if state is None:
            state = solver.init(problem, batch)
            tracker = solver.track(state, Z)
        tracker.advance(solver.step(problem, state, batch))
        yield tracker.raw_prediction()


def looks(steps: Iterable[Any], iterations: int, ratio: float) -> Iterator[tuple[int, Any]]:
    """Yield iterations evenly spaced in the logarithm, and the responses after them."""
    seen = log_grid(1, iterations, ratio)
    with single_threaded_blas():
        for t, found in enumerate(islice(steps, iterations), 1):
            if t in seen:
                yield t, found


def processor_seconds(model: Any, X: Any, y: Any) -> float:
    """Fit; return the processor's seconds, of making rows too where X is a function."""
    start = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # one pass does not converge
        model.fit(X() if callable(X) else X, y)
    return process_time() - start


def numbers(model: Any) -> int:
    """Return how many numbers a prediction needs, frequencies not counted: seeds make them."""
    if isinstance(model, Pipeline):
        landmarks = getattr(model[0], "components_", np.empty(0)).size
        return int(model[-1].coef_.size + landmarks)
    return int(model.n_random_features_ + model.n_support_ * (model.n_features_in_ + 1))


def rate(rows: list[Row]) -> float:
    """Return the slope of log error over log t, from sqrt(T) to T."""
    t = np.array([row["t"] for row in rows])
    error = np.array([row["error"] for row in rows])
    late = t >= np.sqrt(t.max())
    return float(np.polyfit(np.log(t[late]), np.log(error[late]), 1)[0])


def curves(ax: Any, rows: list[Row], *, label: str, color: str = "C0") -> None:
    """Draw the errors of each seed faintly, and their median."""
    seeds = [where(rows, seed=seed) for seed in distinct(rows, "seed")]
    t = [row["t"] for row in seeds[0]]
    errors = np.array([[row["error"] for row in mine] for mine in seeds])
    ax.plot(t, errors.T, color=color, lw=0.6, alpha=0.4)
    ax.plot(t, np.median(errors, axis=0), color=color, label=label)


def rate_axes(ax: Any, rows: list[Row], line: str) -> None:
    """Draw the rate 1/t through the last median, on logarithmic axes."""
    t = np.array(sorted({row["t"] for row in rows}))
    last = np.median([row["error"] for row in rows if row["t"] == t[-1]])
    ax.plot(t, last * t[-1] / t, line, label="1/t")
    ax.set(xscale="log", yscale="log", xlabel="iterations t")
