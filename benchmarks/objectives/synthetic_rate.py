"""Rate of convergence on the synthetic problem of Dai et al. (2014), Section 7.1."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.objectives._shared import distinct, picture, where
from benchmarks.registry import Objective, Row
from kernelgrad import DSG
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.data import ArraySource, sample_batches
from kernelgrad.kernels import get_kernel
from kernelgrad.losses import get_loss
from kernelgrad.solvers import Problem, TrainBatch
from kernelgrad.solvers.random_features.base import BlockTracker, Iterates

CURVE, RATE = "RMSE to the true function", "slope of the squared error"


def true_function(X: Any) -> Any:
    """Return ``cos(pi |x| / 2) exp(-pi |x| / 10)``."""
    r = np.linalg.norm(X, axis=1)
    return np.cos(0.5 * np.pi * r) * np.exp(-0.1 * np.pi * r)


def learning_curve(
    solver: DSG, n: int, iterations: int, seed: int
) -> tuple[Any, Any, int, int]:
    """Return squared errors of the averaged and the last iterate, rows a step, features."""
    random = np.random.default_rng(seed)
    X = random.uniform(-5, 5, (n, 2))
    y = true_function(X) + 0.1 * random.standard_normal(n)
    X_test = random.uniform(-5, 5, (1000, 2))
    f_test = true_function(X_test)
    problem = Problem(
        loss=get_loss("squared", task="regression"),
        kernel=get_kernel("rbf", gamma="median", bandwidth_factor=0.1),
        alpha=1e-6,
        n_outputs=1,
        n_features_in=2,
        seed=seed,
        fit_intercept=False,
    )
    size = solver.resolve_batch_size(n)
    state: Any = None
    averaged, last = [], []
    with single_threaded_blas():
        for item in sample_batches(ArraySource(X, y, checked=True), size, seed=seed):
            assert item.batch.y is not None
            target = item.batch.y[:, None].astype(np.float32)
            batch = TrainBatch(item.batch.X, target, np.ones(size))
            if state is None:
                state = solver.init(problem, batch)
                it = state.iterates
                trackers = (
                    solver.track(state, X_test),
                    BlockTracker(Iterates(it.x, it.v, None), it.x.stream.prepare(X_test)),
                )
            info = solver.step(problem, state, batch)
            for tracker, errors in zip(trackers, (averaged, last), strict=True):
                tracker.advance(info)
                f = tracker.raw_prediction()[:, 0]
                errors.append(float(np.mean((f - f_test) ** 2)))
            if state.iteration == iterations:
                break
    return np.array(averaged), np.array(last), size, info.n_random_features


def log_grid(first: float, last: int, step: float) -> Any:
    """Return the distinct integers nearest to ``last / step^k`` that are >= first."""
    k = np.arange(int(np.log(last) / np.log(step)) + 2)
    t = np.unique(np.rint(last / step**k).astype(int))
    return t[t >= first]


def slope(errors: Any) -> float:
    """Return the slope of log error over log t on the second half of the log t axis."""
    t = log_grid(np.sqrt(len(errors)), len(errors), 2**0.25)
    return float(np.polyfit(np.log(t), np.log(errors[t - 1]), 1)[0])


class SyntheticRate(Objective):
    """RMSE to the true function over iterations, of the averaged and the last iterate.

    y = cos(pi |x| / 2) exp(-pi |x| / 10) + 0.1 e on [-5, 5]^2; Gaussian kernel with 0.1 times
    the median distance, alpha = 1e-6; 1,000 noise-free test points. ``--repeat`` counts the
    seeds. The slope is fitted to points spaced evenly in log t, from sqrt(N) to N.
    """

    name: ClassVar[str] = "synthetic_rate"
    repeat: ClassVar[int] = 5

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add sizes and variants."""
        parser.add_argument("--iterations", type=int, default=256)
        parser.add_argument("--rows", type=int, default=2**20)
        parser.add_argument(
            "--variant",
            nargs="+",
            choices=list(self.variants(1024)),
            default=list(self.variants(1024)),
        )

    def variants(self, size: int) -> dict[str, DSG]:
        """Return the solvers; `size` is the plain ones' batch and block."""
        plain = {
            "preconditioned": False,
            "block_size": size,
            "batch_size": size,
            "average": "uniform",
            "decay": 20.0,
        }
        return {
            "plain": DSG(step_size=20.0, **plain),
            "plain-auto": DSG(**plain),
            "preconditioned": DSG(),
        }

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take the variants in turn for every seed."""
        n, N, seeds = args.rows, args.iterations, args.repeat
        variants = self.variants(1024)
        if args.quick:
            n, N, seeds = 4096, 16, max(2, args.repeat)
            variants = self.variants(128) | {"preconditioned": DSG(block_size=64)}
        curves: dict[str, list[Any]] = {name: [] for name in args.variant}
        for seed in range(seeds):
            for name in args.variant:
                curves[name].append(learning_curve(variants[name], n, N, seed))
        for name, runs in curves.items():
            averaged, last = (np.array([run[i] for run in runs]) for i in (0, 1))
            _, _, size, features = runs[0]
            for t in log_grid(1, N, 2.0):
                row = {"variant": name, "iteration": int(t), "rows seen": int(t) * size}
                for key, errors in (("averaged", averaged), ("last", last)):
                    row[key] = float(np.median(np.sqrt(errors[:, t - 1])))
                yield CURVE, row
            slopes = [slope(errors) for errors in averaged]
            yield (
                RATE,
                {
                    "variant": name,
                    "average": variants[name].average,
                    "from t": int(np.ceil(np.sqrt(N))),
                    "to t": N,
                    "slope": float(np.mean(slopes)),
                    "standard error": (
                        float(np.std(slopes, ddof=1) / np.sqrt(seeds)) if seeds > 1 else None
                    ),
                    "seeds": seeds,
                    "batch": size,
                    "random features": features,
                },
            )

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw medians over the seeds on logarithmic axes."""
        curves = tables[CURVE]
        t = np.array(distinct(curves, "iteration"))
        with picture(path, size=(6, 4)) as axes:
            ax = axes[0][0]
            for i, name in enumerate(distinct(curves, "variant")):
                for which, style in (("averaged", "-"), ("last", ":")):
                    errors = [row[which] for row in where(curves, variant=name)]
                    ax.loglog(t, errors, style, color=f"C{i}", label=f"{name}, {which}")
            ax.loglog(t, curves[0]["averaged"] * t**-0.5, "k--", lw=0.8, label="$t^{-1/2}$")
            ax.set(xlabel="iteration t", ylabel="RMSE to the true function")
            ax.legend(fontsize=7)
        return True
