"""Cases, claims and least objectives for the tests of cached-response block descent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import oracles_cached as oracles
from kernelgrad import KernelClassifier, KernelRegressor
from kernelgrad.losses import EpsilonInsensitive, Huber, Quantile
from kernelgrad.solvers import CachedBlockDescent

GAMMA = 0.5

QUANTILES = (0.1, 0.5, 0.9)


def signal(n=400, seed=0, noise=0.3):
    """Return rows of three columns and a target with noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + noise * rng.standard_normal(n)


def classes(t, k):
    return np.digitize(t, np.quantile(t, np.arange(1, k) / k))


def one_hot(codes):
    return (codes[:, None] == np.arange(codes.max() + 1)).astype(float)


@dataclass(frozen=True)
class Case:
    """A loss as an estimator takes it and as the oracles do."""

    name: str
    loss: str  # of the oracles
    estimator: Any
    given: Any  # loss parameter
    targets: Callable[[Any], Any]  # from the real target to y of fit
    encode: Callable[[Any], Any]  # from y of fit to (n, C)
    quantiles: Any = None

    def model(self, **params):
        penalty = {} if "C" in params else {"alpha": 1e-3}
        defaults = {"gamma": GAMMA, "max_iter": 300, "random_state": 0} | penalty
        return self.estimator(loss=self.given, **defaults | {"solver": cached()} | params)

    @property
    def kinked(self):
        return self.loss not in oracles.SLOPES

    def value(self, y, f):
        if self.loss == "quantile":
            q = oracles.QUANTILE if self.quantiles is None else np.array(self.quantiles)
            return oracles.LOSSES["quantile"](y, f, a=q)
        return oracles.LOSSES[self.loss](y, f)

    def minimum(self, K, y, p, alpha, bias):
        """Return the least objective: a dual bound where the loss has kinks."""
        if self.loss == "squared":
            return oracles.ridge(K, y, p, alpha, bias)[0]
        if self.loss in oracles.SLOPES:
            return oracles.smooth_minimum(self.loss, K, y, p, alpha, bias)
        q = [oracles.QUANTILE] * y.shape[1] if self.quantiles is None else self.quantiles
        return sum(
            oracles.dual_bound(self.loss, K, y[:, c], p, alpha, bias, q=q[c])
            for c in range(y.shape[1])
        )


def cached(**params):
    """Return a solver that goes on to the minimum."""
    return CachedBlockDescent(**{"tol": 1e-6} | params)


def coefficients(solver, state, n):
    """Return the coefficients (C, n) of all rows."""
    index, coef = solver.coefficients(state)
    out = np.zeros((len(coef), n))
    out[:, index] = coef
    return out


def slack(case, one_block):
    """Return how far above the least objective a run may end, as a part of it.

    Descent on blocks stalls at kinks, where the minimum over every block is none over all.
    """
    if one_block:
        return 1e-4 if case.kinked else 1e-5
    return 1e-2 if case.kinked else 5e-4


def signs_of(y):
    return np.where(y == y.max(), 1.0, -1.0)[:, None]


def rest(y):
    return 2 * one_hot(y) - 1


def _classifier(name, loss, k, encode):
    given = name.split("-")[0]
    return Case(name, loss, KernelClassifier, given, lambda t: classes(t, k), encode)


def _regressor(name, given, **extra):
    loss = name.split("-")[0]
    column = lambda t: t if t.ndim == 2 else t[:, None]  # noqa: E731
    return Case(name, loss, KernelRegressor, given, lambda t: t, column, **extra)


CASES = [
    _classifier("logistic-2", "logistic", 2, signs_of),
    _classifier("logistic-3", "logistic", 3, rest),
    _classifier("log_loss-2", "logistic", 2, signs_of),
    _classifier("log_loss-3", "log_loss", 3, one_hot),
    _classifier("log_loss-10", "log_loss", 10, one_hot),
    _classifier("squared_hinge-2", "squared_hinge", 2, signs_of),
    _classifier("hinge-2", "hinge", 2, signs_of),
    _classifier("hinge-3", "hinge", 3, rest),
    _classifier("squared-2", "squared", 2, signs_of),
    _regressor("squared", "squared"),
    _regressor("huber", Huber(oracles.DELTA)),
    _regressor("epsilon_insensitive", EpsilonInsensitive(oracles.EPSILON)),
    _regressor("absolute", "absolute"),
    _regressor("quantile", Quantile(oracles.QUANTILE)),
    Case(
        "quantiles", "quantile", KernelRegressor, Quantile(QUANTILES), lambda t: t,
        lambda t: np.repeat(t[:, None], len(QUANTILES), axis=1), QUANTILES,
    ),
]  # fmt: skip

BY_NAME = {case.name: case for case in CASES}

slow = pytest.mark.slow


def sometimes(*names):
    """Parametrise by all cases; all but the named ones are slow."""
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(case, id=case.name, marks=() if case.name in names else slow)
            for case in CASES
        ],
    )


some_cases = pytest.mark.parametrize(
    "case", [BY_NAME[n] for n in ("log_loss-3", "hinge-2", "squared", "quantiles")],
    ids=lambda case: case.name,
)  # fmt: skip

each_block = pytest.mark.parametrize("blocks", ["support", "features"])


def raw(model, X):
    return model.expansion_.raw_prediction(X)


def support_rows(expansion):
    """Return the rows of a Gaussian's support expansion in the units of X."""
    e = expansion.exact
    rows = np.asarray(expansion.support.values, np.float64) / np.sqrt(2 * e.kernel.gamma)
    return rows if e.scaling.centre is None else rows + e.scaling.centre


def audit(model, X, value, p, alpha, gamma=GAMMA):
    """Return the claim and the objective twice: of the predictions and of the coefficients.

    Features are those of the stream; the norm is that of the features in use.
    """
    e = model.expansion_
    claim = model.history_["objective"][-1]
    f = raw(model, X)
    if e.n_random_features:
        norm = alpha / 2 * feature_norm(model)
        return claim, p @ value(f).sum(1) + norm, p @ value(f).sum(1) + norm
    norm, g = 0.0, np.tile(e.intercept, (len(f), 1))
    if e.n_support:
        rows = support_rows(e)
        norm = oracles.penalty(oracles.gaussian(rows, rows, gamma), e.coef, alpha)
        g = g + oracles.gaussian(X, rows, gamma) @ e.coef
    return claim, p @ value(f).sum(1) + norm, p @ value(g).sum(1) + norm


def feature_norm(model):
    """Return |f|^2 under the kernel sum_j phi_j . phi_j / J of f = sum_j phi_j . c_j."""
    blocks = model.solver.n_blocks
    squares = float((np.asarray(model.expansion_.coef, np.float64) ** 2).sum())
    return squares * (16 if blocks == "auto" else blocks)


def assert_true(model, X, value, p, alpha, *, rel=1e-5, falls=True, rise=1e-5):
    """Check what a fit on all rows claims; `falls` asks for an objective that does not rise.

    All rows of these fits are audited. Where kinks are smoothed, the exact objective may rise
    between steps.
    """
    claim, predicted, computed = audit(model, X, value, p, alpha)
    assert np.isfinite(claim)
    assert claim == pytest.approx(predicted, rel=rel, abs=1e-9)
    assert claim == pytest.approx(computed, rel=rel, abs=1e-9)
    objective = np.array(model.history_["objective"])
    assert len(objective) == model.n_iter_
    if falls:
        assert (np.diff(objective) <= rise * np.abs(objective[:-1]) + 1e-12).all()
    last = model.history_["audit"]
    assert last["rows"] == len(X)
    assert last["objective"] == claim
    change = abs(last["claimed"] - claim)
    assert change <= max(last["drift"], 1e-4) * max(abs(claim), abs(last["claimed"])) + 1e-9
    return claim


def even(n):
    return np.full(n, 1.0 / n)


@cache
def least(name, n, bias):
    """Return the least objective of a case on n rows at a penalty of 1e-3."""
    case, (X, t) = BY_NAME[name], signal(n)
    Y = case.encode(case.targets(t))
    return case.minimum(oracles.gaussian(X, X, GAMMA), Y, even(n), 1e-3, bias)


def one_class_value(model, nu):
    """Return the loss of the paper's problem: its bias is minus tau, paid for by nu tau."""
    return lambda f: oracles.LOSSES["one_class"](0, f) + nu * model.intercept_


def case_constant(model, Y):
    """Return the loss's best constants."""
    return model.loss_.intercept(Y, np.ones(len(Y)))


def edges():
    """Yield a name, rows, real targets and weights of data that break solvers."""
    rng = np.random.default_rng(0)
    X, t = signal(60, seed=23)
    copies = np.repeat(X[:6], 10, axis=0)
    label = np.where(np.arange(60) < 30, 1.0, -1.0)
    outlier = X.copy()
    outlier[7] = 1e6
    far = np.where(np.arange(60)[:, None] < 30, X, X + 1e5)
    return {
        "repeated rows, labels by row": (copies, np.repeat(t[:6], 10)),
        "repeated rows, labels at random": (copies, rng.standard_normal(60)),
        "one row repeated": (np.ones((60, 3)), label),
        "one row repeated, one other": (np.r_[np.ones((59, 3)), np.zeros((1, 3))], label),
        "two rows": (X[:2], np.array([1.0, -1.0])),
        "three rows": (X[:3], np.array([1.0, -1.0, 0.5])),
        "one outlier among rows": (outlier, t),
        "one outlier among targets": (X, np.where(np.arange(60) == 5, 1e6, t)),
        "great columns": (1e4 * X, t),
        "columns of zeros": (np.c_[X[:, :1], np.zeros((60, 2))], t),
        "targets far from zero": (X, 1e8 + label),
        "a rare class": (X, np.where(np.arange(60) == 3, 1.0, -1.0)),
        "far clusters": (far, t),
        "noise": (rng.standard_normal((60, 40)), rng.standard_normal(60)),
    }


def edge_targets(case, edge, t):
    """Return y of fit for data at an edge, or None where there are too few rows."""
    if case.estimator is not KernelClassifier:
        return case.targets(t)
    k, i = {"2": 2, "3": 3, "0": 10}[case.name[-1]], np.arange(len(t))
    if k == 2:
        return (t > t.mean()).astype(int)
    if k > len(t):
        return None
    return np.where(i == 3, k - 1, i % (k - 1)) if edge == "a rare class" else i % k
