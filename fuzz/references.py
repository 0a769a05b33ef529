"""Drawn problems whose solutions are known: least objectives and posteriors in float64.

References are those of the tests, which share no code with kernelgrad.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import multivariate_normal
from sklearn.metrics.pairwise import pairwise_kernels

from fuzz.target import Finding
from kernelgrad import (
    KernelClassifier,
    KernelGaussianProcessRegressor,
    KernelRegressor,
    LinearClassifier,
    LinearRegressor,
)
from kernelgrad.losses import EpsilonInsensitive, Huber, Quantile
from kernelgrad.solvers import LINEAR_SOLVERS

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import oracles_cached
import oracles_linear

Generator = np.random.Generator
_ROUNDING = 1e-4  # of an objective: kernel values and responses are float32
_NEAR = 0.02  # of the objective, where solvers that bound nothing say they have converged
_GIVEN: dict[str, Any] = {
    "huber": Huber(oracles_cached.DELTA),
    "epsilon_insensitive": EpsilonInsensitive(oracles_cached.EPSILON),
    "quantile": Quantile(oracles_cached.QUANTILE),
}
_CLASSES = ("logistic", "log_loss", "squared_hinge", "hinge", "squared")
_NUMBERS = ("squared", "huber", "epsilon_insensitive", "absolute", "quantile")
_SOLVERS = ("cached", "direct", "newton", "sdca", "working_set", "auto")


def _draw(rng: Generator, most: int) -> tuple[Any, ...]:
    """Return rows that are exact in float32, a signal, integer weights and their shares."""
    n, d = int(rng.integers(8, most)), int(rng.integers(1, 6))
    X = rng.standard_normal((n, d)).astype(np.float32).astype(np.float64)
    signal = np.sin(2 * X[:, 0]) + 0.5 * X[:, -1] + 0.3 * rng.standard_normal(n)
    weight = rng.integers(1, 4, n) if rng.random() < 0.5 else np.ones(n, np.int64)
    return X, signal.astype(np.float32).astype(np.float64), weight, weight / weight.sum()


def _targets(loss: str, signal: Any, classes: bool, rng: Generator) -> tuple[str, Any, Any]:
    """Return the loss of the reference, y for `fit`, and y (n, C) for the reference."""
    if not classes:
        return loss, signal, signal[:, None]
    k = int(rng.integers(2, 5))
    y = np.digitize(signal, np.quantile(signal, np.arange(1, k) / k))
    y = np.unique(y, return_inverse=True)[1]
    hot = (y[:, None] == np.arange(y.max() + 1)).astype(float)
    if hot.shape[1] == 2:
        return ("logistic" if loss == "log_loss" else loss), y, 2.0 * hot[:, 1:] - 1
    return loss, y, hot if loss == "log_loss" else 2 * hot - 1


def _require(condition: Any, what: str, *told: Any) -> None:
    """Raise a finding of the kind `what`, with the figures `told`, unless it holds."""
    if not condition:
        error = Finding(what)
        error.add_note("\n".join(map(repr, told)))
        raise error


def judge(model: Any, found: float, least: float, scale: float, what: str) -> str:
    """Compare an objective with its least value and with what the model claims of it."""
    history = model.history_
    claim, gap = history["objective"][-1], history["duality_gap"][-1]
    told = {"found": found, "least": least, "claim": claim, "gap": gap}, model
    size = max(abs(least), 1e-2 * scale)  # as solvers measure their tolerance
    slack = _ROUNDING * size
    _require(found >= least - slack, f"{what}: below the least objective", *told)
    if claim is not None:
        _require(abs(claim - found) <= slack, f"{what}: another objective is claimed", *told)
    if gap is not None:
        _require(found - least <= gap + slack, f"{what}: beyond the duality gap", *told)
    elif model.fit_status_ == "converged":
        near = found - least <= _NEAR * size + slack
        _require(near, f"{what}: converged elsewhere", *told)
    return "identical"


def kernel_objective(rng: Generator) -> str:
    """Fit on a kernel matrix; its objective has a least value and a claim."""
    X, signal, weight, p = _draw(rng, 70)
    kind = str(rng.choice(["rbf", "laplacian", "polynomial", "linear"]))
    K = pairwise_kernels(X, metric=kind)
    K = (K / np.abs(K).max() + 1e-3 * np.eye(len(K))).astype(np.float32).astype(np.float64)
    classes = rng.random() < 0.5
    loss = str(rng.choice(_CLASSES if classes else _NUMBERS))
    solver = str(rng.choice(_SOLVERS))
    name, y, Y = _targets(loss, signal, classes, rng)
    alpha, bias = float(10 ** rng.uniform(-5, 0)), bool(rng.random() < 0.6)
    cls = KernelClassifier if classes else KernelRegressor
    bias = bias and solver != "sdca"  # whose intercept is no variable
    model = cls(
        _GIVEN.get(loss, loss), kernel="precomputed", alpha=alpha, fit_intercept=bias,
        solver=solver, max_iter=int(rng.choice([1, 5, 300])), random_state=0,
    )  # fmt: skip
    try:
        model.fit(K, y, sample_weight=weight)
    except ValueError:
        return "clear"
    raw = model.expansion_.raw_prediction
    b = np.asarray(model.intercept_, np.float64).reshape(1, -1)
    A = np.asarray(raw(np.eye(len(K))), np.float64) - b
    f = K @ A + b
    off = np.abs(f - raw(K)).max()
    what = f"kernel {loss} {solver}"
    _require(
        off <= 1e-4 * (1 + np.abs(f).max()), f"{what}: no sum of kernel values", off, model
    )
    value = oracles_cached.LOSSES[name]
    found = float(p @ value(Y, f).sum(1)) + oracles_cached.penalty(K, A, alpha)
    scale = float(p @ value(Y, 0 * f).sum(1))
    try:
        if name in oracles_cached.SMOOTH:
            least = oracles_cached.smooth_minimum(name, K, Y, p, alpha, bias)
        else:
            bound = oracles_cached.dual_bound
            least = sum(bound(name, K, Y[:, c], p, alpha, bias) for c in range(Y.shape[1]))
    except (AssertionError, np.linalg.LinAlgError):
        return "other"  # the reference gives up
    return judge(model, found, least, scale, what)


def linear_objective(rng: Generator) -> str:
    """Fit a linear function; the same of smooth losses and penalties with L1."""
    X, signal, weight, p = _draw(rng, 120)
    classes = rng.random() < 0.5
    smooth = ("logistic", "log_loss", "squared_hinge", "squared") if classes else _NUMBERS[:2]
    loss = str(rng.choice(smooth))
    name, y, Y = _targets(loss, signal, classes, rng)
    solver = str(rng.choice([*sorted(LINEAR_SOLVERS), "auto"]))
    alpha, share = float(10 ** rng.uniform(-4, 0)), float(rng.choice([0.0, 0.0, 0.5, 1.0]))
    bias = bool(rng.random() < 0.6)
    cls = LinearClassifier if classes else LinearRegressor
    model = cls(
        _GIVEN.get(loss, loss), solver=solver, alpha=alpha, penalty="elasticnet",
        l1_ratio=share, fit_intercept=bias, max_iter=int(rng.choice([3, 100])), random_state=0,
    )  # fmt: skip
    try:
        model.fit(X, y, sample_weight=weight)
    except ValueError:
        return "clear"
    W = np.asarray(model.coef_, np.float64)
    W = W.reshape(-1, X.shape[1]).T
    b = np.asarray(model.intercept_, np.float64).reshape(-1) * np.ones(Y.shape[1])
    spec = (name, oracles_cached.DELTA if name == "huber" else 0.0)
    l1, l2 = alpha * share, alpha * (1 - share)
    found = float(oracles_linear.objective(spec, X, Y, p, W, b, l1, l2))
    best = oracles_linear.optimum(spec, X, Y, p, l1, l2, bias)
    least = float(oracles_linear.objective(spec, X, Y, p, *best, l1, l2))
    least = min(least, found)  # L-BFGS may stop short where L1 makes corners
    scale = float(oracles_linear.objective(spec, X, Y, p, 0 * W, 0 * b, l1, l2))
    return judge(model, found, least, scale, f"linear {loss} {solver}")


def posterior(rng: Generator) -> str:
    """Fit a Gaussian process with given variances: mean, deviation and likelihood."""
    X, y, weight, _ = _draw(rng, 90)
    Z = rng.standard_normal((20, X.shape[1]))
    noise, gamma = float(10 ** rng.uniform(-3, 0)), float(10 ** rng.uniform(-1.5, 0.5))
    spread = float(10 ** rng.uniform(-1, 1))
    searched = rng.random() < 0.3
    given: dict[str, Any] = {"gamma": gamma, "metric": None, "standardize": False}
    if not searched:
        given |= {"noise_variance": noise, "signal_variance": spread}
    model = KernelGaussianProcessRegressor(random_state=0, **given)
    mean, std = model.fit(X, y, sample_weight=weight).predict(Z, return_std=True)
    s, v, g = model.signal_variance_, model.noise_variance_, model.kernel_.gamma
    C = s * oracles_cached.gaussian(X, X, g) + v * np.diag(1 / weight)
    cross = s * oracles_cached.gaussian(Z, X, g)
    expected = model.y_mean_ + cross @ np.linalg.solve(C, y - model.y_mean_)
    taken = np.einsum("ij,ji->i", cross, np.linalg.solve(C, cross.T))
    deviation = np.sqrt(np.maximum(s - taken, 0))
    size = np.abs(expected).max()
    off = np.abs(mean - expected).max() / size, np.abs(std - deviation).max() / np.sqrt(s)
    _require(off[0] <= 1e-3, "posterior: another mean", off, model)
    _require(off[1] <= 5e-3, "posterior: another deviation", off, model)
    if (weight == 1).all():
        told = multivariate_normal(np.full(len(y), model.y_mean_), C).logpdf(y)
        claim = model.log_marginal_likelihood_
        near = abs(told - claim) <= 1e-3 * abs(told) + 0.01
        _require(near, "posterior: another likelihood", told, claim, model)
    return "identical"


REFERENCES: tuple[Callable[[Generator], str], ...] = (
    kernel_objective, kernel_objective, linear_objective, posterior,
)  # fmt: skip
