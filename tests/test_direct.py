"""The exact solution of the squared loss: its optimum, its bits, what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import oracles_direct as oracles
from kernelgrad import DataError, DirectSolve
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.functions import exact
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import SquaredError
from kernelgrad.solvers import direct
from kernelgrad.solvers.contract import Problem, TrainBatch
from kernelgrad.solvers.direct import SymmetricMatrix, direct_bytes
from kernelgrad.solvers.loop import run
from kernelgrad.validation import CapabilityError
from plain import plain_regressor
from steps import solve


def setting(n=170, *, alpha=1e-3, outputs=2, weighted=True, seed=0, **options):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)).astype(np.float32)
    y = 4 + np.sin(2 * X[:, [0]] + np.arange(outputs)) + 0.3 * rng.standard_normal((n, outputs))
    weight = rng.integers(0, 4, n).astype(float) if weighted else np.ones(n)
    problem = Problem(SquaredError(), Gaussian(1.0), alpha, outputs, 3, 7, **options)
    return problem, TrainBatch(X, y.astype(np.float32), weight)


def fit(problem, batch):
    solver = DirectSolve()
    state, (info,) = solve(solver, problem, batch, 1)
    return solver, state, info


def values(state, *, wide=False):
    """The kernel in float64, of float32 values unless `wide`."""
    with single_threaded_blas():
        return state.exact.gram(state.prepared, wide=wide).astype(np.float64)


@pytest.mark.parametrize(
    ("n", "alpha", "fit_intercept"),
    [(1, 1.0, True), (5, 1e-3, False), (170, 1e-6, True), (170, 1.0, False), (700, 1e-3, True)],
)
def test_it_is_the_solution_of_the_bordered_system(n, alpha, fit_intercept):
    problem, batch = setting(
        n, alpha=alpha, weighted=n > 5, outputs=3, fit_intercept=fit_intercept
    )
    _, state, info = fit(problem, batch)
    K, y = values(state, wide=alpha < 2e-6), batch.y.astype(float)
    w = batch.sample_weight
    coef, intercept = oracles.ridge(K, y, w, alpha, fit_intercept)
    near = 1e-7 * np.abs(coef).max() + 1e-14
    np.testing.assert_allclose(state.coef, coef, rtol=0, atol=near)
    np.testing.assert_allclose(state.intercept, intercept, rtol=0, atol=1e-8)
    np.testing.assert_allclose(state.responses.T, K @ coef, rtol=0, atol=1e-8)
    least = oracles.objective(K, y, w, alpha, coef, intercept)
    assert info.objective == pytest.approx(least, rel=1e-9, abs=1e-25)
    assert info.converged
    assert state.alpha == pytest.approx(alpha)
    assert 0 <= info.duality_gap <= 1e-12 * least + 1e-25


def test_a_float32_factor_serves_where_it_can(monkeypatch):
    monkeypatch.setattr(direct, "_SINGLE_ROWS", 100)
    factor, used = SymmetricMatrix.factor, []

    def spied(self, scale, ridge, dtype=None):
        used.append((self.dtype, dtype or self.dtype))
        factor(self, scale, ridge, dtype)

    monkeypatch.setattr(SymmetricMatrix, "factor", spied)
    single, mixed, double = (
        (np.float32, np.float32), (np.float64, np.float32), (np.float64, np.float64)
    )  # fmt: skip
    once, twice = [single], [single, double]
    for alpha, dtypes in (
        (1e-3, once), (1.9e-6, [mixed]), (1e-9, [mixed, double]), (1e-5, twice)
    ):  # fmt: skip
        used.clear()
        monkeypatch.setattr(direct, "_SINGLE_CORRECTIONS", 0 if dtypes is twice else 25)
        problem, batch = setting(600, alpha=alpha)
        _, state, info = fit(problem, batch)
        assert used == dtypes
        K, y, w = values(state, wide=alpha < 2e-6), batch.y.astype(float), batch.sample_weight
        coef, intercept = oracles.ridge(K, y, w, alpha, True)
        np.testing.assert_allclose(state.coef, coef, rtol=0, atol=1e-6 * np.abs(coef).max())
        np.testing.assert_allclose(state.intercept, intercept, rtol=0, atol=1e-7)
        assert info.duality_gap <= 1e-12 * oracles.objective(K, y, w, alpha, coef, intercept)
    monkeypatch.setattr(direct, "_holds_both", lambda *args: False)
    np.testing.assert_array_equal(fit(problem, batch)[1].coef, state.coef)
    assert used[-2:] == dtypes


def test_first_order_conditions_hold_in_float64():
    problem, batch = setting(600, alpha=1e-4)
    _, state, _ = fit(problem, batch)
    K, p = values(state), batch.sample_weight / batch.sample_weight.sum()
    error = batch.y.astype(float) - K @ state.coef - state.intercept
    slope = problem.alpha * state.coef - p[:, None] * error
    assert np.abs(slope).max() < 1e-12 * np.abs(problem.alpha * state.coef).max()
    assert np.abs(p @ error).max() < 1e-14
    assert np.all(state.coef[p == 0] == 0)  # rows of weight 0 are no support


def test_the_gap_bounds_how_far_the_minimum_is(monkeypatch):
    problem, batch = setting(200)
    minimum = fit(problem, batch)[2].objective
    made = direct._ridges
    monkeypatch.setattr(
        direct, "_ridges", lambda K, s, x, precise: made(K, s, 1.5 * x, precise)
    )
    _, state, info = fit(problem, batch)
    assert state.alpha == pytest.approx(1.5 * problem.alpha)
    missing = info.objective - minimum
    assert missing > 1e-3 * minimum
    assert missing <= info.duality_gap < 20 * missing


def test_corrections_make_up_for_a_poor_factor(monkeypatch):
    problem, batch = setting(200)
    _, wanted, _ = fit(problem, batch)
    solve = SymmetricMatrix.solve
    wrong = 1 + 1e-3 * np.sin(np.arange(200))[:, None]
    monkeypatch.setattr(SymmetricMatrix, "solve", lambda self, B: wrong * solve(self, B))
    _, state, info = fit(problem, batch)
    near = 1e-10 * np.abs(wanted.coef).max()
    np.testing.assert_allclose(state.coef, wanted.coef, rtol=0, atol=near)
    assert info.duality_gap < 1e-15 * info.objective


@pytest.mark.parametrize("alpha", [1e-9, 1e-7, 4e-6, 1e-3])
def test_the_minimum_of_the_float64_kernel_for_every_penalty(alpha, monkeypatch):
    problem, batch = setting(400, alpha=alpha, weighted=False)
    problem = replace(problem, kernel=Gaussian(0.05))

    def excess():
        solver, state, info = fit(problem, batch)
        K, y = values(state, wide=True), batch.y.astype(float)
        least = oracles.objective(
            K, y, np.ones(400), alpha, *oracles.ridge(K, y, np.ones(400), alpha, True)
        )
        own = oracles.objective(K, y, np.ones(400), alpha, state.coef, state.intercept)
        audit = solver.finish(problem, state, batch)
        return own / least - 1.0, info.objective / least - 1.0, audit["drift"]

    for gain in excess():
        assert abs(gain) < 3e-5
    monkeypatch.setattr(exact, "SMALL_ALPHA", 0.0)
    assert max(map(abs, excess())) > 1e-2 or alpha > 1e-9  # float32 values: the control


def test_an_alpha_below_the_resolution_of_the_values_is_raised():
    rng = np.random.default_rng(1)
    X = np.repeat(rng.standard_normal((150, 1)).astype(np.float32), 2, axis=0)
    y = (np.sin(X) + 0.1 * rng.standard_normal((300, 1))).astype(np.float32)
    problem = Problem(SquaredError(), Gaussian(0.1), 1e-21, 1, 1, 7)
    batch = TrainBatch(X, y, np.ones(300))
    solver, state, info = fit(problem, batch)
    K = values(state, wide=True)
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(K + 300 * 1e-21 * np.eye(300))
    assert 1e-21 < state.alpha < 1e-12
    audit = solver.finish(problem, state, batch)
    assert audit["alpha"] == state.alpha
    # equal to the bordered system of the alpha that it tells, with the objective of that given
    coef, intercept = oracles.ridge(K, y.astype(float), np.ones(300), state.alpha, True)
    mine, wanted = state.responses.T + state.intercept, K @ coef + intercept
    np.testing.assert_allclose(mine, wanted, rtol=0, atol=1e-4)
    mine = oracles.objective(K, y, np.ones(300), 1e-21, state.coef, state.intercept)
    assert info.objective == pytest.approx(mine, rel=1e-4)
    coarse = oracles.objective(K, y, np.ones(300), 1e-21, coef, intercept)
    assert info.objective == pytest.approx(coarse, rel=1e-4)


@pytest.mark.parametrize("n", [1, 128, 129, 1000])
def test_the_factor_and_the_matrix_share_an_array(n):
    rng = np.random.default_rng(n)
    G = rng.standard_normal((n, n + 5))
    G = G @ G.T / n
    scale, B = np.sqrt(rng.uniform(0.1, 2, n)), rng.standard_normal((n, 2))

    with single_threaded_blas():
        M = SymmetricMatrix(n, lambda rows, columns: G[rows, columns])
        for ridge in (0.5, 0.01):  # again, from the same matrix
            M.factor(scale, ridge)
            A = scale[:, None] * G * scale + ridge * np.eye(n)
            np.testing.assert_allclose(A @ M.solve(B), B, rtol=0, atol=1e-11)
            np.testing.assert_allclose(M.product(B), G @ B, rtol=0, atol=1e-11)
        with pytest.raises(np.linalg.LinAlgError):
            M.factor(scale, -10.0 * n)
        np.testing.assert_allclose(M.product(B), G @ B, rtol=0, atol=1e-11)


def test_memory_is_asked_for_first():
    problem, batch = setting(500)
    needed = int(direct_bytes(500, 2, batch.X.nbytes))
    assert needed > 8 * 500**2
    fit(replace(problem, memory_limit=needed), batch)
    with pytest.raises(CapabilityError, match="the kernel matrix of 500 rows"):
        DirectSolve().init(replace(problem, memory_limit=needed - 1), batch)
    huge = np.broadcast_to(np.float32(0), (40_000, 3))
    many = TrainBatch(huge, np.zeros((40_000, 2), np.float32), np.ones(40_000))
    with pytest.raises(CapabilityError, match="by default 8 GiB"):
        DirectSolve().init(problem, many)


def curve(n=250, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(n)


def test_an_indefinite_matrix_is_refused():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((80, 80))
    K, y = A + A.T, rng.standard_normal(80)
    model = plain_regressor(kernel="precomputed", solver="direct", alpha=1e-4)
    with pytest.raises(DataError, match="not positive semi-definite"):
        model.fit(K, y)
    model.fit(K @ K.T, y)


def test_rows_given_twice_and_no_penalty():
    X, y = curve(60)
    model = plain_regressor(solver="direct", alpha=0.0, gamma=4.0)
    model.fit(np.tile(X, (2, 1)), np.tile(y, 2))
    np.testing.assert_allclose(model.predict(X), y, atol=0.02)
    noisy = plain_regressor(solver="direct", alpha=1e-20, kernel="polynomial")
    noisy.fit(np.tile(X, (2, 1)), np.concatenate([y, y + 1]))
    history = noisy.history_
    assert history["audit"]["drift"] < 1e-2
    assert history["audit"]["alpha"] > 1e-20
    assert np.mean(noisy.predict(X) - y) == pytest.approx(0.5, abs=0.02)


def test_the_audit_makes_kernel_values_anew():
    problem, batch = setting(1500, alpha=1e-4)
    result = run(DirectSolve(), problem, iter([(batch, 1.0)]), max_iter=1)
    audit = result.history["audit"]
    assert audit["rows"] == 1500
    assert audit["drift"] < 1e-6  # other products of float32
    assert result.history["objective"] == [audit["objective"]]
    wide = replace(problem, n_features_in=2000)  # a dear kernel: of a sample
    with single_threaded_blas():
        solver, state, _ = fit(problem, batch)
        some = solver.finish(wide, state, batch)
        state.coef = 1.01 * state.coef
        wrong = solver.finish(problem, state, batch)
    assert 64 <= some["rows"] < 1500
    assert some["drift"] < 1e-6
    assert wrong["drift"] > 1e-5
