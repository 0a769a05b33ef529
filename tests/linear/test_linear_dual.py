"""Dual coordinate ascent on linear functions: minima, gaps, bits, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import oracles_linear as oracles
from cases import every
from kernelgrad import losses
from kernelgrad.linear.sdca import LinearSDCA
from kernelgrad.solvers.contract import TrainBatch
from kernelgrad.validation import CapabilityError
from oracles_losses import spec
from steps import linear_problem, solve

SMOOTH = [
    losses.SquaredError(),
    losses.Logistic(),
    losses.SquaredHinge(),
    losses.Huber(delta=0.5),
    losses.SmoothedHinge(width=0.5),
    losses.ModifiedLogistic(beta=5.0),
]
MARGIN = ("hinge", "logistic", "squared_hinge", "smoothed_hinge", "modified_logistic")


def rows(loss, n=300, d=6, *, outputs=1, seed=0, offset=0.5, dtype=np.float64):
    """Rows off centre, targets with noise, and one class that is larger."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) * np.linspace(0.3, 1, d) + offset).astype(dtype)
    f = X @ rng.standard_normal((d, outputs)) + 0.7 * rng.standard_normal((n, outputs)) + 0.5
    return X, np.where(f > 0, 1.0, -1.0) if loss.name in MARGIN else f


def setting(loss, X, y, *, alpha=1e-2, l1_ratio=0.0, weight=None, **options):
    options = {"seed": 3, "tol": 1e-8} | options
    problem = linear_problem(loss, X, y, alpha, l1_ratio=l1_ratio, **options)
    weight = np.ones(len(y)) if weight is None else weight
    return problem, TrainBatch(X, y.astype(np.float32), weight)


def fit(problem, batch, solver=None, *, steps=400, state=None):
    """Return solver, state and the report of each step."""
    solver = LinearSDCA() if solver is None else solver
    solver.check()
    return solver, *solve(solver, problem, batch, steps, state)


def target(batch):
    """Targets as the solver sees them, of one output."""
    return batch.y[:, 0].astype(np.float64), batch.sample_weight / batch.sample_weight.sum()


@every("fit_intercept", [True, False])
@every("alpha", [1.0, 1e-3])
@every("loss", SMOOTH)
def test_smooth_losses_come_to_the_minimum(loss, alpha, fit_intercept):
    X, y = rows(loss)
    weight = np.random.default_rng(1).integers(0, 4, len(y)).astype(float)
    problem, batch = setting(
        loss, X, y, alpha=alpha, weight=weight, fit_intercept=fit_intercept
    )
    _, state, infos = fit(problem, batch, steps=2000)
    truth = minimum(problem, batch)
    assert infos[-1].converged
    assert infos[-1].duality_gap <= 1e-8 * infos[-1].objective
    for info in infos:  # a bound at each step, never below what it bounds
        assert info.objective - truth[0] <= info.duality_gap + 1e-11
        assert info.objective >= truth[0] * (1 - 1e-9)
    assert infos[-1].objective == pytest.approx(truth[0], rel=2e-8)
    # from strong convexity: alpha |W - W*|^2 / 2 is at most the gap
    near = np.sqrt(2 * infos[-1].duality_gap / alpha) + 1e-6
    assert np.linalg.norm(state.coef[:, 0] - truth[1]) <= near
    if not fit_intercept:
        assert state.bias[0] == 0.0


def minimum(problem, batch):
    """Return (objective, w, b) by L-BFGS-B, of one output."""
    (y, p), loss = target(batch), spec(problem.loss)
    own = loss, batch.X, y[:, None], p
    W, b = oracles.optimum(*own, problem.l1, problem.l2, problem.fit_intercept)
    return oracles.objective(*own, W, b, problem.l1, problem.l2), W[:, 0], b[0]


def pieces_of(loss, y):
    one, zero = np.ones_like(y), np.zeros_like(y)
    if loss.name == "hinge":
        return [(zero, zero), (-y, one)]
    if loss.name == "quantile":
        q = float(loss.quantile)
        return [((1 - q) * one, -(1 - q) * y), (-q * one, q * y)]
    e = getattr(loss, "epsilon", 0.0)
    return [(zero, zero), (one, -y - e), (-one, y - e)]


@every("l1_ratio", [0.0, 0.6])
@every("fit_intercept", [True, False])
@every(
    "loss",
    [
        losses.Hinge(),
        losses.Absolute(),
        losses.EpsilonInsensitive(epsilon=0.3),
        losses.Quantile(0.2),
    ],
)
def test_losses_with_kinks_come_to_the_minimum(loss, fit_intercept, l1_ratio):
    X, y = rows(loss, 30, 3)
    problem, batch = setting(
        loss, X, y, alpha=0.05, fit_intercept=fit_intercept, l1_ratio=l1_ratio, tol=1e-4
    )
    _, state, infos = fit(problem, batch, steps=6000)
    y64, p = target(batch)
    truth = oracles.kinked_minimum(
        pieces_of(loss, y64), X, p, problem.l1, problem.l2, fit_intercept
    )
    assert infos[-1].converged
    for info in infos:
        assert info.objective - truth[0] <= info.duality_gap + 1e-9
        assert info.objective >= truth[0] - 1e-9
    assert infos[-1].objective == pytest.approx(truth[0], rel=1e-4)
    near = np.sqrt(2 * infos[-1].duality_gap / problem.l2) + 1e-4
    assert np.linalg.norm(state.coef[:, 0] - truth[1]) <= near


@pytest.mark.parametrize(
    "loss", [losses.SquaredError(), losses.Logistic()], ids=lambda loss: loss.name
)
@pytest.mark.parametrize("sparse", [False, True])
def test_elastic_net_has_the_support_of_the_minimum(loss, sparse):
    X, y = rows(loss, 200, 12, seed=4)
    problem, batch = setting(loss, X, y, alpha=0.12, l1_ratio=0.8, tol=1e-10)
    if sparse:
        batch = replace(batch, X=sp.csr_matrix(X))
    _, state, infos = fit(problem, batch)
    truth = minimum(problem, batch)
    assert infos[-1].converged
    assert infos[-1].objective == pytest.approx(truth[0], rel=1e-8)
    np.testing.assert_allclose(state.coef[:, 0], truth[1], atol=1e-5)
    support = state.coef[:, 0] != 0
    assert 2 <= support.sum() <= 10
    np.testing.assert_array_equal(support, np.abs(truth[1]) > 1e-9)


def test_the_gap_counts_what_the_bias_lacks():
    # one pass leaves sum_i p_i u_i well away from zero: a dual that ignores the constraint
    # is above the minimum, and its gap too small or below zero
    X, y = rows(losses.SquaredError(), 60, 2, offset=3.0)
    problem, batch = setting(losses.SquaredError(), X, y, alpha=1e-2)
    _, state, infos = fit(problem, batch, steps=3)
    _, p = target(batch)
    least = minimum(problem, batch)[0]
    u = state.dual[0]
    assert abs(p @ u) > 1e-4 * (p @ np.abs(u))
    assert infos[-1].objective - least <= infos[-1].duality_gap


def test_what_sdca_refuses():
    X, y = rows(losses.Logistic())
    with pytest.raises(CapabilityError, match="does not take the loss 'log_loss'"):
        fit(*setting(losses.Multinomial(), X, np.hstack([y > 0, y <= 0]).astype(float)))
    with pytest.raises(ValueError, match="needs an L2 penalty"):
        fit(*setting(losses.Logistic(), X, y, l1_ratio=1.0))
    with pytest.raises(ValueError, match="needs an L2 penalty"):
        fit(*setting(losses.Logistic(), X, y, alpha=0.0))
    problem, batch = setting(losses.Logistic(), X, y)
    solver, state, _ = fit(problem, batch, steps=1)
    with pytest.raises(CapabilityError, match="continued with the same rows"):
        solver.step(problem, state, replace(batch, X=X + 1))
