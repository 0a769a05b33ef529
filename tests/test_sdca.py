"""Dual coordinate ascent: its steps, its gap, its optimum, its bits."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import LinearSVC

import oracles_sdca as oracles
from cases import every
from kernelgrad import losses, set_num_threads
from kernelgrad._validation import CapabilityError
from kernelgrad.kernels import Gaussian, Polynomial
from kernelgrad.losses import conjugate as dual
from kernelgrad.solvers.base import Problem, TrainBatch
from kernelgrad.solvers.kernel.dual_ascent import visit_order
from kernelgrad.solvers.kernel.sdca import SDCA
from kernelgrad.solvers.loop import run
from oracles_losses import slope_of, value_of
from oracles_newton import minimum
from steps import gram, solve

LOSSES = [
    losses.Hinge(), losses.SquaredHinge(), losses.Logistic(), losses.SquaredError(),
    losses.EpsilonInsensitive(0.1), losses.Absolute(), losses.Huber(0.4), losses.Quantile(0.3),
    losses.SmoothedHinge(0.6), losses.ModifiedLogistic(5.0),
]  # fmt: skip
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
def test_a_pass_is_that_of_one_row_at_a_time(loss, block_size):
    problem, batch = setting(loss, n=100, alpha=1e-3, weighted=True, fit_intercept=True)
    solver = SDCA(tol=0.0, block_size=block_size)
    state = solver.init(problem, batch)
    info = solver.step(problem, state, batch)
    live = np.flatnonzero(batch.sample_weight)
    assert info.epoch == 1.0
    [order] = visit_order(problem.seed, 0, len(live), live)
    assert sorted(order) == list(live)
    p = batch.sample_weight / batch.sample_weight.sum()
    b = loss.intercept(batch.y, batch.sample_weight)[0]
    a = oracles.one_pass(
        value_of(loss), gram(problem, batch.X), batch.y[:, 0].astype(float), p,
        problem.alpha, order, b,
    )  # fmt: skip
    np.testing.assert_allclose(state.coef[:, 0], a, atol=1e-5 * np.abs(a).max())
    assert np.abs(a).max() > 0.1
    assert state.intercept[0] == b


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
        assert info.duality_gap == solver.duality_gap(state)[0]
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
        one = replace(problem, memory_limit=0)
        _, state, info = fit(one, batch, 1, order="greedy", round_size=steps)
        expected = oracles.greedy(K, y, 1 / (n * problem.alpha), steps)
        np.testing.assert_allclose(state.coef[:, 0], expected, atol=1e-4)
        assert state.rows_seen == steps
        # one row a visit, unless the last visit was to the same one
        assert n * steps * 0.9 < info.kernel_evaluations <= n * steps
    _, state, info = fit(problem, batch, 1, order="greedy", round_size=400)
    assert info.kernel_evaluations == n * np.count_nonzero(
        state.coef.any(axis=1) | touched(K, y)
    )
    random = fit(problem, batch, 1, round_size=400)[1]
    assert state.gap[0] < random.gap[0]


def touched(K, y):
    """Rows that greedy visits moved, also those that came back to zero."""
    before, rows = np.zeros(len(y)), np.zeros(len(y), bool)
    for steps in range(1, 401):
        now = oracles.greedy(K, y, 100 / len(y), steps)
        rows |= now != before
        before = now
    return rows


@pytest.mark.parametrize(
    "loss", [losses.Logistic(), losses.Quantile(0.3)], ids=lambda loss: loss.name
)
def test_greedy_visits_end_where_random_ones_do(loss):
    problem, batch = setting(loss, outputs=2, weighted=True)
    ends = [fit(problem, batch, tol=1e-6, order=order)[1] for order in ("greedy", "random")]
    assert all((state.gap <= 1e-6 * state.primal).all() for state in ends)
    np.testing.assert_allclose(ends[0].primal, ends[1].primal, rtol=2e-6)


def test_hinge_is_the_linear_machine_on_an_explicit_map():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3)).astype(np.float32)
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(120) > 0, 1.0, -1.0)
    kernel = Polynomial(degree=2, gamma=0.5, coef0=1.0)
    problem = Problem(losses.Hinge(), kernel, 1 / 120, 1, 3, 0, fit_intercept=False)
    batch = TrainBatch(X, y[:, None].astype(np.float32), np.ones(120))
    solver, state, info = fit(problem, batch, tol=1e-7)
    assert info.converged
    i, j = np.triu_indices(3)
    pairs = X[:, i] * X[:, j] * np.where(i == j, 0.5, np.sqrt(0.5))
    phi = np.hstack([np.ones((120, 1)), X, pairs])  # (1 + x.z / 2)^2
    np.testing.assert_allclose(phi @ phi.T, kernel.pairwise(X, X), rtol=1e-4, atol=1e-5)
    machine = LinearSVC(loss="hinge", fit_intercept=False, C=1.0, tol=1e-8, max_iter=10**6)
    f = machine.fit(phi, y).decision_function(phi)
    np.testing.assert_allclose(solver.expansion(state).raw_prediction(X)[:, 0], f, atol=2e-3)


def test_squared_is_kernel_ridge():
    problem, batch = setting(losses.SquaredError(), alpha=1e-3, outputs=2)
    solver, state, _ = fit(problem, batch, tol=1e-12)
    ridge = KernelRidge(alpha=len(batch.y) * 1e-3, kernel="precomputed")
    ridge.fit(gram(problem, batch.X), batch.y.astype(float))
    np.testing.assert_allclose(state.coef, ridge.dual_coef_, atol=1e-4)
    f = solver.expansion(state).raw_prediction(batch.X)
    np.testing.assert_allclose(f, ridge.predict(gram(problem, batch.X)), atol=1e-5)


def test_logistic_is_newton_on_the_coefficients():
    problem, batch = setting(losses.Logistic(), alpha=1e-3, weighted=True)
    _, state, info = fit(problem, batch, tol=1e-12)
    p = batch.sample_weight / batch.sample_weight.sum()
    y = batch.y.astype(float)
    _, f = minimum("logistic", gram(problem, batch.X), y, p, 1e-3, False)
    a = -p[:, None] * slope_of(problem.loss)(y, f) / 1e-3
    assert info.converged
    np.testing.assert_allclose(state.coef, a, atol=1e-4 * np.abs(a).max())


def test_outputs_do_not_see_each_other():
    problem, batch = setting(losses.Hinge(), outputs=3, alpha=1e-3, fit_intercept=True)
    _, state, _ = fit(problem, batch, n_steps=4, tol=0.0)
    for c in range(3):
        alone = TrainBatch(batch.X, batch.y[:, [c]], batch.sample_weight)
        _, single, _ = fit(replace(problem, n_outputs=1), alone, n_steps=4, tol=0.0)
        np.testing.assert_allclose(state.coef[:, [c]], single.coef, atol=1e-9)
        assert state.gap[c] == pytest.approx(single.gap[0], rel=1e-6)
    some = float(np.median(state.gap / state.primal))
    assert not fit(problem, batch, n_steps=4, tol=some)[2].converged  # but two of three


def test_quantiles_have_their_own_slopes():
    problem, batch = setting(losses.Quantile([0.2, 0.8]), outputs=1, fit_intercept=True)
    y = np.repeat(batch.y, 2, axis=1)
    problem, batch = replace(problem, n_outputs=2), replace(batch, y=y)
    solver, state, _ = fit(problem, batch, tol=1e-4)
    f = solver.expansion(state).raw_prediction(batch.X)
    # many rows lie on the function, to rounding: a quantile has no more than its share below
    # and no less at or below
    for below, tau in zip((y - f).T, (0.2, 0.8), strict=True):
        assert np.mean(below < -1e-3) <= tau + 0.06
        assert np.mean(below <= 1e-3) >= tau - 0.06
        assert np.mean(below <= 1e-3) < tau + 0.25


def test_bits_do_not_depend_on_threads_or_memory():
    problem, batch = setting(losses.Logistic(), n=2500, alpha=1e-4, outputs=2)
    found = []
    for n_threads, limit in ((1, None), (3, 0)):
        set_num_threads(n_threads)
        p = replace(problem, memory_limit=limit)
        found.append(fit(p, batch, n_steps=2, block_size=32))
    (_, free, all_kept), (_, tight, none_kept) = found
    assert len(tight.rows.buffer) <= 32  # never more rows than a block
    np.testing.assert_array_equal(tight.coef, free.coef)
    np.testing.assert_array_equal(tight.responses, free.responses)
    assert none_kept.kernel_evaluations > all_kept.kernel_evaluations > 0


@pytest.mark.parametrize(
    "loss", [losses.Hinge(), losses.Logistic()], ids=lambda loss: loss.name
)
def test_rounds_do_not_change_the_order_of_visits(loss):
    problem, batch = setting(loss, alpha=1e-2)
    _, whole, _ = fit(problem, batch, n_steps=3, tol=0.0)
    _, parts, info = fit(problem, batch, n_steps=9, round_size=50, tol=0.0, block_size=16)
    assert info.epoch == 3.0
    np.testing.assert_allclose(parts.coef, whole.coef, atol=1e-9)
    other = replace(problem, seed=8)
    _, moved, _ = fit(other, batch, n_steps=3, tol=0.0)
    assert np.abs(moved.coef - whole.coef).max() > 1e-5


def test_kernel_values_are_only_computed_where_rows_move():
    problem, batch = setting(losses.Hinge(), n=1000, alpha=1e-3)
    n = len(batch.y)
    solver, state, info = fit(problem, batch, tol=1e-3)
    support = int(np.count_nonzero(state.coef))
    assert info.n_support == support < 0.6 * n
    ever = info.kernel_evaluations / n
    assert support <= ever < 0.95 * n
    # settled: a further pass visits all rows and computes nothing
    tight = solver.set_params(tol=1.0)
    assert tight.step(problem, state, batch).kernel_evaluations == info.kernel_evaluations


def test_the_loop_stops_by_the_gap():
    problem, batch = setting(losses.Hinge(), alpha=1e-2)
    result = run(SDCA(tol=1e-2), problem, iter([(batch, 0.0)] * 500), max_iter=500)
    assert result.status == "converged"
    gaps = result.history["duality_gap"]
    assert result.state.gap[0] == gaps[-1] <= 1e-2 * result.state.primal[0]
    assert result.state.iteration == len(gaps) < 100
    assert result.history["epoch"] == [1.0 + i for i in range(len(gaps))]


def test_gap_is_that_of_the_function_without_limit():
    problem, batch = setting(losses.Hinge())
    solver, state, _ = fit(problem, batch, max_support=10)
    assert solver.expansion(state).n_support == 10


def test_a_perfect_constant_has_no_gap():
    problem, batch = setting(losses.SquaredError(), fit_intercept=True)
    batch = replace(batch, y=np.full_like(batch.y, 3.0))
    _, state, info = fit(problem, batch, n_steps=1)
    assert info.converged
    assert not state.coef.any()


def test_what_cannot_be_solved_is_refused():
    problem, batch = setting(losses.Hinge())
    with pytest.raises(ValueError, match=r"alpha > 0, got 0\.0"):
        SDCA().init(replace(problem, alpha=0.0), batch)
    with pytest.raises(CapabilityError, match=r"'log_loss'; choose one of absolute, .*hinge"):
        SDCA().init(replace(problem, loss=losses.Multinomial()), batch)


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


def test_the_logistic_step_solves_its_equation():
    margins, starts = (-800.0, -3.0, 0.0, 2.0, 40.0), (0.0, 0.3, 1.0)
    for q, m, b in product((0.0, 1e-6, 1.0, 1e3, 1e8), margins, starts):
        new = dual._logistic_step(b, m, q, 1e-15)
        assert 0.0 <= new <= 1.0
        low, high = 0.0, 1.0  # b' = sigma(-(m + q (b' - b))): bisect on its excess
        for _ in range(200):
            mid = 0.5 * (low + high)
            excess = mid - 1.0 / (1.0 + np.exp(np.clip(m + q * (mid - b), -700, 700)))
            low, high = (mid, high) if excess < 0 else (low, mid)
        assert new == pytest.approx(low, abs=1e-12), (q, m, b)
