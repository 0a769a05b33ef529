"""Posterior mean and variance of a Gaussian process (Dai et al. 2014, Section 7.2)."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from benchmarks.objectives._shared import distinct, draw, picture, timed
from benchmarks.objectives.synthetic_rate import log_grid, true_function
from benchmarks.registry import Objective, Row
from kernelgrad import DSG, KernelGaussianProcessRegressor
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.data import ArraySource, sample_batches
from kernelgrad.estimators import PosteriorOperator
from kernelgrad.functions.features import FeatureStream
from kernelgrad.kernels import get_kernel
from kernelgrad.losses import SquaredError
from kernelgrad.solvers import Problem, TrainBatch
from kernelgrad.solvers.random_features.base import build_stream

CURVE, FINAL = "error over iterations", "errors at the end"
FITS, SINGLE = "untuned fits: medians over draws of the rows", "untuned fits: every one"
NOISE = 0.1
FIT_TEST_ROWS, DIABETES_ROWS = 2000, 300
PEER = "scikit-learn"


def smooth(n: int, seed: int) -> tuple[Any, Any]:
    """Return rows of two columns and a smooth function of them with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.2 * rng.standard_normal(n)


def kinked(n: int, seed: int) -> tuple[Any, Any]:
    """Return rows of three columns and a function of them with kinks, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, 3))
    y = 3 * np.abs(X[:, 0] - 0.5) + np.maximum(X[:, 1], X[:, 2])
    return X, y + 0.1 * rng.standard_normal(n)


def walk(n: int, seed: int) -> tuple[Any, Any]:
    """Return rows of one column and a random walk, the same for all seeds, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, 1))
    steps = 0.3 * np.cumsum(np.random.default_rng(5).standard_normal(101))
    y = np.interp(X[:, 0], np.linspace(0, 1, 101), steps)
    return X, y + 0.3 * rng.standard_normal(n)


def faint(n: int, seed: int) -> tuple[Any, Any]:
    """Return ten columns, four of which explain a third of the variance."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 10))
    y = 0.5 * X[:, 0] + 0.3 * X[:, 1] + 0.2 * X[:, 2] * X[:, 3]
    return X, y + 0.8 * rng.standard_normal(n)


def nothing(n: int, seed: int) -> tuple[Any, Any]:
    """Return five columns that explain nothing."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 5)), rng.standard_normal(n)


def diabetes(n: int, seed: int) -> tuple[Any, Any]:
    """Return the rows of scikit-learn's data set in random order."""
    X, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    return X[order], y[order]


SETS: dict[str, Callable[[int, int], tuple[Any, Any]]] = {
    "smooth": smooth,
    "kinked": kinked,
    "walk": walk,
    "faint": faint,
    "friedman1, noise 1": lambda n, seed: make_friedman1(n, noise=1, random_state=seed),
    "friedman2, noise 30": lambda n, seed: make_friedman2(n, noise=30, random_state=seed),
    "friedman3, noise .1": lambda n, seed: make_friedman3(n, noise=0.1, random_state=seed),
    "nothing": nothing,
    "diabetes": diabetes,
}


def peer() -> Any:
    """Return scikit-learn's process, whose deviations are those of y too."""
    kernel = ConstantKernel() * RBF() + WhiteKernel()
    return GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)


def batches(X: Any, y: Any, size: int, seed: int) -> Iterator[TrainBatch]:
    """Yield batches for ever; the same one where it holds all rows."""
    if size >= len(X):
        batch = TrainBatch(X, y[:, None], np.ones(len(X)))
        while True:
            yield batch
    for item in sample_batches(ArraySource(X, y, checked=True), size, seed=seed):
        assert item.batch.y is not None
        yield TrainBatch(item.batch.X, item.batch.y[:, None], np.ones(size))


class GaussianProcess(Objective):
    """RMSE of posterior mean and variance against the closed form, over iterations.

    2,048 training and 1,024 test points of the synthetic problem, Gaussian kernel at the
    median distance, noise variance 0.1. The paper's setting is plain steps with batches of 64
    and blocks of 512 (here: 512 cosine-sine pairs); "default" is what solver="dsg" stands for
    in KernelGaussianProcessRegressor. The mean and the 1,024 variance functions are the outputs
    of one problem. "operator" is the other estimator of the paper, with 4,096 features on
    each side. ``--repeat`` counts the seeds of features and batches.

    Before that, untuned fits beside scikit-learn's (a constant times RBF plus white noise,
    fitted by marginal likelihood): seconds, error, the share of new targets in their 95 % band
    and the mean logarithm of their density, on ``--repeat`` draws of the rows, both in turn on
    each.
    """

    name: ClassVar[str] = "gaussian_process"
    repeat: ClassVar[int] = 3

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add sizes."""
        parser.add_argument("--rows", type=int, default=2**11)
        parser.add_argument("--test-rows", type=int, default=2**10)
        parser.add_argument("--iterations", type=int, default=100)
        parser.add_argument("--paper-iterations", type=int, default=100)
        parser.add_argument("--fit-rows", type=int, nargs="*", default=[400, 1000, 2000])

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take the estimators in turn for every seed."""
        yield from self.fits([60] if args.quick else args.fit_rows, args.repeat)
        n, m = (256, 32) if args.quick else (args.rows, args.test_rows)
        T, T_paper = (8, 16) if args.quick else (args.iterations, args.paper_iterations)
        F = 32 if args.quick else 512
        random = np.random.default_rng(0)
        X, Z = random.uniform(-5, 5, (n, 2)), random.uniform(-5, 5, (m, 2))
        y = true_function(X) + np.sqrt(0.01) * random.standard_normal(n)
        kernel = get_kernel("rbf", gamma="median").resolve(X, 0)
        K = kernel(X) + NOISE * np.eye(n)
        cross = kernel(X, Z)
        mean = cross.T @ np.linalg.solve(K, y)
        variance = 1.0 - np.einsum("nm,nm->m", cross, np.linalg.solve(K, cross))
        paper = {"preconditioned": False, "momentum": 0.0, "block_size": F, "batch_size": 64}
        solvers = {
            "paper": (DSG(**paper, average=None), T_paper),
            "paper, averaged": (DSG(**paper, average="polynomial"), T_paper),
            "default": (DSG(block_size=F, batch_size=8192, damping=3.0), T),
        }
        curves: dict[str, list[Any]] = {name: [] for name in [*solvers, "operator"]}
        seconds: dict[str, list[float]] = {name: [] for name in curves}
        with single_threaded_blas():
            for seed in range(args.repeat):
                for name, (solver, steps) in solvers.items():
                    spent, errors = timed(
                        self.curve, solver, steps, seed, kernel, X, y, Z, mean, variance
                    )
                    curves[name].append(errors)
                    seconds[name].append(spent)
                spent, errors = timed(
                    self.operator_curve, seed, kernel, X, y, Z, variance, quick=args.quick
                )
                curves["operator"].append(errors)
                seconds["operator"].append(spent)
        typical = {"rms of the mean": float(np.sqrt(np.mean(mean**2)))}
        typical |= {"median variance": float(np.median(variance))}
        for name, runs in curves.items():
            errors = np.median(np.array(runs), axis=0)  # (steps, 2)
            for t in log_grid(1, len(errors), 2.0):
                row = {"estimator": name, "iteration": int(t)}
                row |= {"mean": float(errors[t - 1, 0]), "variance": float(errors[t - 1, 1])}
                yield CURVE, row
            yield (
                FINAL,
                {
                    "estimator": name,
                    "iterations": len(errors),
                    "RMSE of the mean": float(errors[-1, 0]),
                    "RMSE of the variance": float(errors[-1, 1]),
                    **typical,
                    "seconds with every evaluation": float(np.median(seconds[name])),
                    "seeds": args.repeat,
                },
            )

    def fits(self, sizes: list[int], repeat: int) -> Iterator[tuple[str, Row]]:
        """Fit every set at every size by both, in turn, without any tuning."""
        makers = {
            "kernelgrad": lambda: KernelGaussianProcessRegressor(random_state=0), PEER: peer
        }  # fmt: skip
        X, y = smooth(50, 0)
        for make in makers.values():  # compiles, and starts the threads of BLAS
            make().fit(X, y).predict(X, return_std=True)
        for name, draws in SETS.items():
            for n in sizes if name != "diabetes" else [min(DIABETES_ROWS, *sizes)]:
                rows: dict[str, list[Row]] = {estimator: [] for estimator in makers}
                for seed in range(repeat):
                    X, y = draws(n + FIT_TEST_ROWS, seed)
                    for estimator, make in makers.items():
                        case = {"set": name, "rows": n, "estimator": estimator, "seed": seed}
                        found = self.fit(make(), X, y, n)
                        rows[estimator].append(found)
                        yield SINGLE, case | found
                for estimator, found_rows in rows.items():
                    typical = {
                        key: median(row[key] for row in found_rows) for key in found_rows[0]
                    }
                    yield FITS, {"set": name, "rows": n, "estimator": estimator} | typical

    def fit(self, model: Any, X: Any, y: Any, n: int) -> Row:
        """Return seconds and errors of a fit of the first n rows, tested on the others."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            seconds, _ = timed(model.fit, X[:n], y[:n])
        options = {} if isinstance(model, GaussianProcessRegressor) else {"include_noise": True}
        predicting, (mean, std) = timed(model.predict, X[n:], return_std=True, **options)
        z = (y[n:] - mean) / std
        return {
            "seconds": seconds,
            "seconds of deviations": predicting,
            "RMSE": _rms(y[n:] - mean),
            "in the 95 % band": float(np.mean(np.abs(z) < 1.96)),
            "log density": float(np.mean(-0.5 * z**2 - np.log(std) - 0.5 * np.log(2 * np.pi))),
        }

    def curve(
        self, solver: DSG, steps: int, seed: int, kernel: Any,
        X: Any, y: Any, Z: Any, mean: Any, variance: Any,
    ) -> Any:  # fmt: skip
        """Return the two errors after every step, shape (steps, 2)."""
        n = len(X)
        size = solver.resolve_batch_size(n)
        problem = Problem(
            SquaredError(), kernel, NOISE / n, 1 + len(Z), 2, seed,
            fit_intercept=False, fixed_rows=size >= n, keep_coefficients=size < n,
        )  # fmt: skip
        state: Any = None
        errors, wide = [], None
        for _, batch in zip(range(steps), batches(X, y, size, seed), strict=False):
            if wide is None or size < n:
                targets = np.c_[batch.y, kernel.pairwise(batch.X, Z)].astype(np.float32)
                wide = TrainBatch(batch.X, targets, batch.sample_weight)
            if state is None:
                state = solver.init(problem, wide)
                tracker = solver.track(state, Z)
            tracker.advance(solver.step(problem, state, wide))
            f = tracker.raw_prediction()
            v = np.maximum(1.0 - np.diag(f[:, 1:]), 0.0)
            errors.append([_rms(f[:, 0] - mean), _rms(v - variance)])
        return np.array(errors)

    def operator_curve(
        self, seed: int, kernel: Any, X: Any, y: Any, Z: Any, variance: Any, *, quick: bool
    ) -> Any:
        """Return the variance error of the operator after every step, shape (steps, 2)."""
        F, n_blocks = (16, 4) if quick else (64, 32)
        batch = next(batches(X, y, len(X), seed))
        problem = Problem(SquaredError(), kernel, NOISE / len(X), 1, 2, seed)
        block: Callable[[int], int] = lambda planes: F  # noqa: E731
        stream = build_stream(problem, batch, block)
        left, right = (
            FeatureStream(kernel, 2, 1000 * seed + i, F, stream.scaling) for i in (1, 2)
        )
        operator = PosteriorOperator(
            left, right, n_blocks, problem.alpha, 1.0, float(n_blocks), damping=1.0
        )
        errors = []
        for _ in range(n_blocks):
            operator.step(batch)
            v = np.maximum(1.0 - operator.explained_variance(Z), 0.0)
            errors.append([np.nan, _rms(v - variance)])
        return np.array(errors)

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw both errors on logarithmic axes, with the size of what is estimated."""
        final, names = tables[FINAL][0], distinct(tables[CURVE], "estimator")
        levels = {"mean": "rms of the mean", "variance": "median variance"}
        with picture(path, 1, 2, size=(4.5, 3.6)) as axes:
            for ax, (what, label) in zip(axes[0], levels.items(), strict=True):
                finite = [row for row in tables[CURVE] if np.isfinite(row[what])]
                draw(ax, finite, "estimator", "iteration", what, names)
                ax.axhline(final[label], color="k", lw=0.8, ls="--", label=label)
                ax.set(xscale="log", yscale="log", xlabel="iteration")
                ax.set_ylabel(f"RMSE of the posterior {what}")
                ax.legend(fontsize=7)
        return True


def _rms(error: Any) -> float:
    return float(np.sqrt(np.mean(np.square(error))))
