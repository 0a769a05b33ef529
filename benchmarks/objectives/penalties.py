"""Objectives of converged fits beside float64 minima, for penalties of nine decades."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit
from sklearn.svm import SVC, SVR

from benchmarks.objectives._shared import timed
from benchmarks.registry import Objective, Row
from kernelgrad import KernelClassifier, KernelRegressor
from kernelgrad.types import Float64Array

GAMMA, EPSILON = 0.5, 0.1
Sums = tuple[Float64Array, Float64Array, Float64Array]
# loss of each row, its slope and its curvature in f
SMOOTH: dict[str, Callable[[Float64Array, Float64Array], Sums]] = {
    "squared": lambda y, f: (0.5 * (f - y) ** 2, f - y, np.ones_like(f)),
    "logistic": lambda y, f: (
        np.logaddexp(0.0, -y * f), -y * expit(-y * f), expit(f) * expit(-f),
    ),
    "squared_hinge": lambda y, f: (
        np.maximum(0.0, 1.0 - y * f) ** 2, -2.0 * y * np.maximum(0.0, 1.0 - y * f),
        2.0 * (y * f < 1.0),
    ),
    "poisson": lambda y, f: (np.exp(f) - y * f, np.exp(f) - y, np.exp(f)),
}  # fmt: skip
KINKED: dict[str, Callable[[Float64Array, Float64Array], Float64Array]] = {
    "hinge": lambda y, f: np.maximum(0.0, 1.0 - y * f),
    "epsilon_insensitive": lambda y, f: np.maximum(0.0, np.abs(y - f) - EPSILON),
    "absolute": lambda y, f: np.abs(y - f),
}
CLASSIFIED = {"logistic", "squared_hinge", "hinge"}


def minimum(K: Float64Array, y: Float64Array, alpha: float, loss: str) -> float:
    """Return the least ``mean loss + alpha / 2 ||f||^2`` by Newton steps in float64."""
    n = len(y)
    values, vectors = np.linalg.eigh(K)
    B = np.column_stack([vectors * np.sqrt(np.maximum(values, 0.0)), np.ones(n)])
    penalty = np.append(np.full(n, alpha), 0.0)
    w = np.zeros(n + 1)

    def objective(w: Float64Array) -> float:
        return float(SMOOTH[loss](y, B @ w)[0].mean() + 0.5 * penalty @ w**2)

    best = objective(w)
    for _ in range(200):
        _, slope, bend = SMOOTH[loss](y, B @ w)
        H = (B.T * bend) @ B / n + np.diag(penalty + 1e-16)
        step = np.linalg.solve(H, B.T @ slope / n + penalty * w)
        lengths = 0.5 ** np.arange(30)
        tried = [objective(w - length * step) for length in lengths]
        if min(tried) >= best:
            break
        gained, best = best - min(tried), min(tried)
        w = w - lengths[int(np.argmin(tried))] * step
        if gained <= 1e-12 * best:
            break
    return best


def bound(K: Float64Array, y: Float64Array, alpha: float, loss: str) -> float:
    """Return the dual objective that LIBSVM reaches, below the least primal one."""
    C = 1.0 / (alpha * len(y))
    options: dict[str, Any] = {"C": C, "kernel": "precomputed", "tol": 1e-6}
    options |= {"cache_size": 1000, "max_iter": 5_000_000}
    a = np.zeros(len(y))
    if loss == "hinge":
        machine = SVC(**options).fit(K, y)
        a[machine.support_] = machine.dual_coef_[0]
        return alpha * float(np.abs(a).sum() - 0.5 * a @ K @ a)
    tube = EPSILON if loss == "epsilon_insensitive" else 0.0
    machine = SVR(epsilon=tube, **options).fit(K, y)
    a[machine.support_] = machine.dual_coef_[0]
    return alpha * float(y @ a - tube * np.abs(a).sum() - 0.5 * a @ K @ a)


def norm(model: Any) -> float:
    """Return ``||f||^2`` of a Gaussian expansion in float64."""
    Z, c = model.expansion_.support.values.astype(float), model.expansion_.coef[:, 0]
    square = (Z**2).sum(axis=1)
    half = np.maximum(0.0, 0.5 * (square[:, None] + square) - Z @ Z.T)
    return float(c @ np.exp(-half) @ c)


class Penalties(Objective):
    """The objective of fits with given alpha and gamma, solver and tolerance by default.

    Rows are uniform in three columns. The objective is computed from predictions of the
    training rows and the norm of the expansion in float64. Smooth losses: excess over the
    minimum by Newton's method in float64, relative. Kinked losses: excess over the larger of
    two dual objectives, which are below the minimum, so that it bounds the excess: LIBSVM's
    with a tolerance of 1e-6 and at most five million iterations, and the fit's own. ``told``
    is the objective that the fit reports, relative to the one computed here (for Poisson
    less a constant).
    """

    name: ClassVar[str] = "penalties"
    repeat: ClassVar[int] = 1

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rows", type=int, default=1000)
        parser.add_argument("--losses", nargs="+", default=[*SMOOTH, *KINKED])
        alphas = [10.0**k for k in range(-9, 1)]
        parser.add_argument("--alphas", type=float, nargs="+", default=alphas)

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        n = 200 if args.quick else args.rows
        alphas = [1e-6, 1e-2] if args.quick else args.alphas
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (n, 3)).astype(np.float32).astype(float)
        f = 2 * np.sin(6 * X[:, 0]) * np.cos(4 * X[:, 1]) + X[:, 2] ** 2
        noisy = f + 0.1 * rng.standard_normal(n)
        square = (X**2).sum(axis=1)
        K = np.exp(-GAMMA * np.maximum(0.0, square[:, None] + square - 2 * X @ X.T))
        for loss in args.losses:
            signs = np.where(rng.random(n) < expit(4 * f), 1.0, -1.0)
            counts = rng.poisson(np.exp(0.5 * f)).astype(float)
            y = signs if loss in CLASSIFIED else counts if loss == "poisson" else noisy
            made: Any = KernelClassifier if loss in CLASSIFIED else KernelRegressor
            for alpha in alphas:
                model = made(
                    loss=loss, alpha=alpha, gamma=GAMMA, metric=None, standardize=False,
                    random_state=0,
                )  # fmt: skip
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    seconds, _ = timed(model.fit, X, y)
                    reference = minimum if loss in SMOOTH else bound
                    other, least = timed(reference, K, y, alpha, loss)
                raw = model.decision_function if loss in CLASSIFIED else model.predict
                r = np.log(raw(X)) if loss == "poisson" else raw(X)
                sums = SMOOTH[loss](y, r)[0] if loss in SMOOTH else KINKED[loss](y, r)
                own = float(sums.mean()) + 0.5 * alpha * norm(model)
                if loss in KINKED:
                    least = max(least, own - model.history_["duality_gap"][-1])
                yield (
                    "objectives",
                    {
                        "loss": loss, "alpha": alpha, "solver": model.solver_.name,
                        "objective": own, "excess": own / least - 1.0, "fit s": seconds,
                        "reference s": other,
                        "told": model.history_["objective"][-1] / own - 1.0,
                        "status": model.fit_status_,
                    },
                )  # fmt: skip
