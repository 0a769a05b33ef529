"""Untuned Gaussian processes beside scikit-learn's."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, ClassVar

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from benchmarks.objectives._shared import timed
from benchmarks.registry import Objective, Row
from kernelgrad import KernelGaussianProcessRegressor

FITS, SINGLE = "untuned fits: medians over draws of the rows", "untuned fits: every one"
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


class GaussianProcess(Objective):
    """Untuned fits beside scikit-learn's (a constant times RBF plus white noise).

    Theirs is fitted by marginal likelihood. Seconds, error, the share of new targets in the
    95 % band and the mean logarithm of their density, on ``--repeat`` draws of the rows, both
    in turn on each.
    """

    name: ClassVar[str] = "gaussian_process"
    repeat: ClassVar[int] = 3

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add sizes."""
        parser.add_argument("--fit-rows", type=int, nargs="*", default=[400, 1000, 2000])

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take the estimators in turn for every seed."""
        yield from self.fits([60] if args.quick else args.fit_rows, args.repeat)

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


def _rms(error: Any) -> float:
    return float(np.sqrt(np.mean(np.square(error))))
