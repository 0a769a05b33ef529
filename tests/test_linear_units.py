"""Units of columns and targets, streams in chunks, and degenerate rows of linear solvers."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sps

from kernelgrad.kernels import Polynomial
from kernelgrad.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Logistic,
    Quantile,
    SquaredError,
)
from kernelgrad.solvers import S3GD, SAGA, SGD, SSGD, SVRG, LinearPegasos, LinearProblem
from kernelgrad.solvers.base import TrainBatch
from kernelgrad.solvers.linear.anchors import nearest_points
from kernelgrad.solvers.linear.base import draw_batches


def drive(solver, X, y, loss, steps, *, alpha=0.0, weight=None, seed=0, **settings):
    """Return the state after some passes over rows given as one batch."""
    given = {
        "l1_ratio": 0.0,
        "tol": 1e-10,
        "fit_intercept": True,
        "fixed_rows": True,
    } | settings
    problem = LinearProblem(
        loss=loss, kernel=Polynomial(degree=1, gamma=1.0, coef0=0.0), alpha=alpha,
        n_outputs=1, n_features_in=X.shape[1], seed=seed, **given,
    )  # fmt: skip
    batch = TrainBatch(X, y[:, None], np.ones(len(y)) if weight is None else weight)
    state = solver.init(problem, batch)
    infos = []
    for _ in range(steps):
        infos.append(solver.step(problem, state, batch))
        if infos[-1].converged:
            break
    return problem, state, infos


@pytest.mark.parametrize("loss", [Absolute(), Quantile(0.3), EpsilonInsensitive(0.0)], ids=repr)
@pytest.mark.parametrize("solver", [SGD(), SSGD()], ids=repr)
def test_kinks_follow_the_scale_of_the_targets(solver, loss):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 3))
    y = X @ [1.0, 2.0, 3.0] + 0.1 * rng.standard_normal(500)
    for scale in (1e-3, 1.0, 1e5):
        _, state, _ = drive(solver, X, scale * y, loss, 30)
        coef = solver.solution(state)[0][:, 0] / scale
        np.testing.assert_allclose(coef, [1, 2, 3], atol=0.1)


@pytest.mark.parametrize("solver", [SVRG(), SAGA(), S3GD()], ids=repr)
@pytest.mark.parametrize("alpha", [10.0, 1.0])
def test_a_penalty_that_leaves_nothing_converges_at_once(solver, alpha):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    _, state, infos = drive(solver, X, y, Logistic(), 20, alpha=alpha, l1_ratio=1.0, tol=1e-4)
    assert infos[-1].converged
    assert len(infos) <= 3
    assert not state.coef.any()


@pytest.mark.parametrize("solver", [SVRG(), SAGA()], ids=repr)
def test_convergence_does_not_depend_on_units(solver):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    y = np.where(X @ [1.0, -1.0, 0.5] + 0.5 * rng.standard_normal(300) > 0, 1.0, -1.0)
    seen = []
    for unit in (1.0, 1e-3, 1e4):
        _, _, infos = drive(solver, unit * X, y, Logistic(), 200, fit_intercept=False, tol=1e-4)
        seen.append(len(infos))
        assert infos[-1].converged
    assert max(seen) == min(seen)


def test_pegasos_survives_a_first_batch_of_one_class():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    order = np.argsort(y)
    solver = LinearPegasos()
    problem, state, _ = drive(
        solver, X[order[:50]], y[order[:50]], Hinge(), 1, alpha=0.01, fixed_rows=False
    )
    for _ in range(3):
        for part in np.array_split(rng.permutation(400), 8):
            solver.step(problem, state, TrainBatch(X[part], y[part, None], np.ones(len(part))))
    coef, bias = solver.solution(state)
    assert np.mean(np.sign(X @ coef[:, 0] + bias) == y) > 0.9


def test_steps_on_a_stream_do_not_depend_on_its_chunks():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 3))
    y = X @ [1.0, 2.0, 3.0] + 0.1 * rng.standard_normal(600)
    for size in (2, 10, 100, 300):
        solver = SGD()
        problem, state, _ = drive(
            solver, X[:size], y[:size], SquaredError(), 1, fixed_rows=False
        )
        for start in range(size, 600, size):
            part = slice(start, start + size)
            solver.step(problem, state, TrainBatch(X[part], y[part, None], np.ones(size)))
        coef = solver.solution(state)[0][:, 0]
        assert 1 - np.mean((y - X @ coef) ** 2) / np.var(y) > 0.99


@pytest.mark.parametrize("rows", ["equal", "one", "empty"])
def test_anchors_of_rows_that_are_no_different(rows):
    X = {"equal": np.ones((50, 3)), "one": np.ones((1, 3)), "empty": np.zeros((20, 3))}[rows]
    y = np.where(np.arange(len(X)) % 3 == 0, 1.0, -1.0)
    for made in (X, sps.csr_matrix(X)):
        for solver in (S3GD(switch=False), S3GD(n_neighbors=1), SSGD()):
            _, state, _ = drive(solver, made, y, Logistic(), 3, alpha=0.1)
            assert np.isfinite(state.coef).all()


def test_clusters_of_small_integers_do_not_overflow():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 200, (300, 5)).astype(np.uint8)
    points = X[:4].astype(float)
    for made in (X, sps.csr_matrix(X)):
        places, distance = nearest_points(made, points, 1)
        true = np.linalg.norm(X[:, None] - points[None], axis=2)
        np.testing.assert_array_equal(places[:, 0], true.argmin(axis=1))
        np.testing.assert_allclose(distance[:, 0], true.min(axis=1), atol=1e-6)


def test_drawn_rows_are_different_and_have_a_weight():
    weight = np.zeros(1000)
    weight[:500] = np.random.default_rng(0).random(500) + 0.1
    X, y = np.ones((1000, 1)), np.ones(1000)
    _, state, _ = drive(SGD(), X, y, SquaredError(), 1, weight=weight)
    order, share = draw_batches(state.memory, 50, 10, np.random.default_rng(1))
    assert (weight[order] > 0).all()
    assert share.sum() == pytest.approx(50)
    _, state, _ = drive(SGD(), X, y, SquaredError(), 1)
    order, _ = draw_batches(state.memory, 50, 10, np.random.default_rng(1))
    assert len(np.unique(order)) == 500
