"""Dual coordinate ascent: its steps, its gap, its optimum, its bits."""

from dataclasses import replace

import numpy as np
import pytest

import oracles_sdca as oracles
from cases import every, raises
from kernelgrad import losses
from kernelgrad.kernels import Gaussian, Polynomial
from kernelgrad.linear.conjugate import visit_order
from kernelgrad.papers import dual_ascent
from kernelgrad.papers.dsg.rivals.sdca import SDCA
from kernelgrad.solvers.contract import Problem, Resources, TrainBatch
from oracles_cached import minimum
from oracles_losses import slope_of, value_of
from steps import ONE_OUTPUT as LOSSES
from steps import gram, solve

each_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


def setting(loss, n=150, seed=0, *, alpha=None, weighted=False, outputs=1, **options):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)).astype(np.float32)
    y = np.sin(2 * X[:, [0]] + np.arange(outputs)) + 0.3 * rng.standard_normal((n, outputs))
    if "classification" in loss.tasks:
        y = np.where(y > 0.2, 1.0, -1.0)
    weight = rng.integers(0, 4, n).astype(float) if weighted else np.ones(n)
    alpha = 1.0 / n if alpha is None else alpha
    options = {"fit_intercept": False} | options
    problem = Problem(loss, Gaussian(1.0), alpha, outputs, 3, 7, **options)
    return problem, TrainBatch(X, y.astype(np.float32), weight)


def fit(problem, batch, n_steps=2000, **parameters):
    solver = SDCA(**parameters)
    state, infos = solve(solver, problem, batch, n_steps)
    return solver, state, infos[-1]


def objective(problem, batch, state):
    """Objective and penalty in float64 of the float32 kernel."""
    K = state.exact.matrix(state.prepared, state.prepared).astype(np.float64)
    near = 20 * np.finfo(np.float32).eps  # of exp(-D), D a sum of float32 products
    np.testing.assert_allclose(K, gram(problem, batch.X), rtol=0, atol=near)
    p = batch.sample_weight / batch.sample_weight.sum()
    a, y = state.coef[:, 0], batch.y[:, 0].astype(float)
    loss = value_of(problem.loss)
    penalty = 0.5 * problem.alpha * a @ K @ a
    return oracles.primal(loss, K, y, p, problem.alpha, a, state.intercept[0]), penalty


@every(("loss", "block_size"), [(loss, (1, 7, 64)[i % 3]) for i, loss in enumerate(LOSSES)])
def test_a_pass_is_that_of_one_row_at_a_time(loss, block_size, monkeypatch):
    monkeypatch.setattr(dual_ascent, "BLOCK", block_size)
    problem, batch = setting(loss, n=100, alpha=1e-3, weighted=True, fit_intercept=True)
    solver = SDCA(tol=0.0)
    state = solver.init(problem, batch)
    info = solver.step(problem, state, batch)
    live = np.flatnonzero(batch.sample_weight)
    assert info.epoch == 1.0
    [order] = visit_order(problem.seed, 0, len(live), live)
    assert sorted(order) == list(live)
    p = batch.sample_weight / batch.sample_weight.sum()
    b = loss.intercept(batch.y, batch.sample_weight)[0]
    a = oracles.one_pass(
        slope_of(loss), gram(problem, batch.X), batch.y[:, 0].astype(float), p,
        problem.alpha, order, b,
    )  # fmt: skip
    np.testing.assert_allclose(state.coef[:, 0], a, atol=1e-5 * np.abs(a).max())
    assert np.abs(a).max() > 0.1
    assert state.intercept[0] == b


@every("steps", [1, 3])
def test_the_average_is_that_of_the_second_half_of_all_visits(steps):
    problem, batch = setting(losses.Hinge(), n=41, alpha=1e-2, max_iter=steps)
    solver, state, _ = fit(problem, batch, steps, tol=0.0, average="second_half")
    K, y, most = gram(problem, batch.X), batch.y[:, 0].astype(float), 1 / (41 * problem.alpha)
    orders = visit_order(problem.seed, 0, 41 * steps, np.arange(41))
    *_, a = iterates = [*oracles.hinge_visits(K, y, orders, most)]
    expected = np.mean(iterates[len(iterates) // 2 :], axis=0)
    np.testing.assert_allclose(solver.coefficients(state)[:, 0], expected, atol=1e-6 * most)
    np.testing.assert_allclose(state.coef[:, 0], a, atol=1e-6 * most)
    assert np.abs(expected - a).max() > 0.1 * np.abs(a).max()
    raises(ValueError, "order", SDCA(average="second_half", order="greedy").check)


@each_loss
def test_the_gap_bounds_the_distance_to_the_minimum(loss):
    problem, batch = setting(loss, alpha=1e-2, weighted=True, fit_intercept=True)
    _, best, info = fit(problem, batch, tol=1e-6)
    assert info.converged
    minimum, _ = objective(problem, batch, best)
    solver = SDCA(round_size=20, tol=0.0)
    state = solver.init(problem, batch)
    above, gaps, duals = [], [], []
    for _ in range(60):
        info = solver.step(problem, state, batch)
        value, penalty = objective(problem, batch, state)
        assert value == pytest.approx(state.primal[0], rel=1e-7)
        assert info.train_loss == pytest.approx(value - penalty, rel=1e-6)
        assert info.duality_gap == state.gap[0]
        above.append(value - minimum)
        gaps.append(info.duality_gap)
        duals.append(state.primal[0] - state.gap[0])
    assert np.all(np.array(gaps) >= np.array(above) - 1e-10)
    assert np.all(np.diff(duals) >= -1e-12)  # ascent
    assert duals[-1] <= minimum + 1e-9
    assert gaps[-1] < 0.1 * gaps[0]


def test_greedy_visits_are_smo_without_a_bias():
    problem, batch = setting(losses.Hinge(), alpha=1e-2)
    problem = replace(problem, kernel=Polynomial(degree=2))  # k(x, x) is not the same for all
    n, y = len(batch.y), batch.y[:, 0].astype(float)
    K = gram(problem, batch.X)
    for steps in (1, 40, 400):
        one = replace(problem, resources=Resources(0))
        _, state, info = fit(one, batch, 1, order="greedy", round_size=steps)
        expected = oracles.greedy(K, y, 1 / (n * problem.alpha), steps)
        np.testing.assert_allclose(state.coef[:, 0], expected, atol=1e-4)
        assert state.rows_seen == steps
        # one row a visit, unless the last visit was to the same one
        assert n * steps * 0.9 < info.kernel_evaluations <= n * steps
    _, state, info = fit(problem, batch, 1, order="greedy", round_size=400)
    random = fit(problem, batch, 1, round_size=400)[1]
    assert state.gap[0] < random.gap[0]


@every("loss", [losses.Logistic(), losses.SquaredError()])
def test_smooth_losses_come_to_the_minimum_of_newton(loss):
    problem, batch = setting(loss, alpha=1e-3, weighted=True, outputs=2)
    _, state, info = fit(problem, batch, tol=1e-12)
    p = batch.sample_weight / batch.sample_weight.sum()
    y = batch.y.astype(float)
    _, f = minimum(loss.name, gram(problem, batch.X), y, p, 1e-3, False)
    a = -p[:, None] * slope_of(problem.loss)(y, f) / 1e-3
    assert info.converged
    np.testing.assert_allclose(state.coef, a, atol=1e-4 * np.abs(a).max())


def test_a_perfect_constant_has_no_gap():
    problem, batch = setting(losses.SquaredError(), fit_intercept=True)
    batch = replace(batch, y=np.full_like(batch.y, 3.0))
    _, state, info = fit(problem, batch, n_steps=1)
    assert info.converged
    assert not state.coef.any()


def test_rows_without_a_kernel_of_their_own():
    # k(0, 0) = 0: such a row moves nothing, its dual variable goes to the derivative at once
    X = np.zeros((20, 2), np.float32)
    X[:10] = np.random.default_rng(0).standard_normal((10, 2))
    y = np.where(np.arange(20) % 2, 1.0, -1.0)[:, None].astype(np.float32)
    kernel = Polynomial(degree=1, gamma=1.0, coef0=0.0)
    for loss in LOSSES:
        problem = Problem(loss, kernel, 1e-1, 1, 2, 0, fit_intercept=False)
        _, state, info = fit(problem, TrainBatch(X, y, np.ones(20)), tol=1e-6)
        assert info.converged
        assert np.isfinite(state.coef).all()
