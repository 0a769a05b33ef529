"""Leave-one-out errors of ridge regression, their gradient, and scalings of the columns."""

from __future__ import annotations

import numpy as np
import pytest

from cases import every
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import Gaussian, Laplacian, Matern
from kernelgrad.search import metric as fit
from kernelgrad.search.metric import LEAST, MOST, SHAPES, Machine, Metric, Round, Sample
from oracles_metric import objective, slope

GROUPS = np.array([0, 1, 1, 2])
WEIGHTS = np.array([0.7, 0.3, 0.3, 0.2])
MATRIX = np.diag(WEIGHTS) + 0.1 * np.random.default_rng(9).standard_normal((4, 4))


def sample(n=24, d=4, seed=0, outputs=2):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X[1] = X[0]  # equal rows
    Y = np.stack(
        [np.sin(X[:, 0] + k) + 0.3 * rng.standard_normal(n) for k in range(outputs)], 1
    )
    weight = rng.uniform(0.2, 2.0, n)
    return Sample(X, Y - Y.mean(axis=0), weight / weight.mean())


def diagonal():
    return Metric(np.log([0.7, 0.3, 0.2]), GROUPS)


@every("nu", SHAPES)
@every("metric", [diagonal(), Metric(MATRIX, None)])
def test_errors_left_out_are_those_of_fits_without_the_row(nu, metric):
    s = sample()
    M = metric.weights if metric.groups is None else np.diag(metric.weights)
    value, errors = fit.evaluate(Machine(nu, metric, 0.05), s)
    expected, expected_errors = objective(nu, M, s.X, s.Y, s.weight, 0.05)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    np.testing.assert_allclose(errors, expected_errors, rtol=1e-8)
    rest = s.take(np.arange(1, 24))
    machine, others = Machine(nu, metric, 0.05), s.take(np.arange(3))
    K, cross = fit.kernel_matrix(machine, rest), fit.kernel_matrix(machine, others, rest)
    held = fit.squared_errors(cross, fit.coefficients(K, 0.05, rest), others)
    np.testing.assert_allclose(held[0], expected_errors[0], rtol=1e-8)
    parts = [s.take(np.arange(12)), s.take(np.arange(12, 24))]
    both = fit.judged(Machine(nu, metric, 0.05), parts)
    apart = [objective(nu, M, p.X, p.Y, p.weight, 0.05)[1] for p in parts]
    np.testing.assert_allclose(both.errors, np.concatenate(apart), rtol=1e-8)
    total = s.weight @ both.errors / (s.weight @ (s.Y**2).sum(axis=1))
    assert both.score == pytest.approx(0.5 * np.log(total), rel=1e-10)


@every("nu", SHAPES)
@every(("ridge", "rtol"), [(5e-3, 1e-6), (0.05, 2e-3)])
@every("theta", [diagonal().theta, MATRIX, MATRIX[:, :2]])
def test_gradient_is_that_of_the_errors(nu, ridge, rtol, theta):
    s = sample()
    groups = GROUPS if theta.ndim == 1 else None

    def value(theta, ridge=ridge):
        M = theta if groups is None else np.diag(np.exp(theta)[groups])
        return objective(nu, M, s.X, s.Y, s.weight, ridge)[0]

    found = fit.gradient(Machine(nu, Metric(theta, groups), ridge), s)
    by_theta = slope(value, theta)
    by_ridge = slope(lambda log: value(theta, np.exp(log[0])), np.log([ridge]))[0]
    np.testing.assert_allclose(found[0], value(theta), rtol=rtol)
    np.testing.assert_allclose(
        found[1], by_theta, rtol=rtol, atol=rtol * np.abs(by_theta).max()
    )
    assert found[2] == pytest.approx(by_ridge, rel=rtol, abs=rtol * 0.1)


def test_metrics():
    X = np.random.default_rng(0).standard_normal((6, 4))
    m = diagonal()
    np.testing.assert_allclose(m.weights, WEIGHTS)
    np.testing.assert_allclose(m.apply(X), X * WEIGHTS)
    np.testing.assert_allclose(m.full().apply(X), X * WEIGHTS, atol=1e-15)
    assert m.largest == pytest.approx(0.7)
    assert Metric(MATRIX, None).largest == pytest.approx(np.linalg.svd(MATRIX)[1][0])
    for metric in (m, Metric(MATRIX, None)):
        grown = fit.squared_distances(metric.times(3.0).apply(X))
        np.testing.assert_allclose(grown, 9 * fit.squared_distances(metric.apply(X)), rtol=1e-9)
    lost = m.moved(np.array([0.0, 0.0, 50.0]))  # comes back with a few steps
    assert 1e-4 < lost.weights[3] / lost.largest < 1e-3
    kernel = fit.kernel_of(1.5, Machine(1.5, m, 0.1).gamma)
    assert kernel.gamma == pytest.approx(0.5 * 0.7**2)
    r = np.sqrt(3 * fit.squared_distances(m.apply(X)))
    plain = kernel.pairwise(X * WEIGHTS / 0.7, X * WEIGHTS / 0.7)
    np.testing.assert_allclose(plain, (1 + r) * np.exp(-r), rtol=1e-6)


def test_kernels_with_a_metric_to_learn():
    kernels = [Matern(0.5), Matern(1.5), Matern(2.5), Gaussian()]
    assert tuple(fit.smoothness(kernel) for kernel in kernels) == SHAPES
    assert fit.smoothness(Matern(1.0)) is fit.smoothness(Laplacian()) is None
    for nu in SHAPES:
        assert fit.smoothness(fit.kernel_of(nu, 0.3)) == nu


@every("least", [2e-3, 0.9, 5.0, LEAST / 50, MOST * 50])
@every("start", [LEAST, 0.1, MOST])
def test_best_ridge_finds_the_least_value_wherever_it_starts(least, start):
    asked = []

    def values(ridges):
        asked.extend(ridges)
        return [np.log(r / least) ** 2 for r in ridges]

    found, tried = fit.best_ridge(values, start)
    assert found == pytest.approx(
        np.clip(least, LEAST, MOST), rel=1e-6 if LEAST < least < MOST else 3
    )
    assert all(LEAST <= r <= MOST for r in [found, *asked])
    assert len(asked) == len(set(asked)) == len(tried)
    assert [r for r, _ in tried] == sorted(asked)


def test_best_ridge_in_doubt_takes_the_larger_but_no_worse_one():
    flat, _ = fit.best_ridge(lambda ridges: [0.0 if r < 3 else 1.0 for r in ridges], 0.01)
    assert 0.5 < flat < 3
    # each step is small, their sum is not
    drift, _ = fit.best_ridge(
        lambda ridges: [8e-4 * np.log(r) / np.log(4) for r in ridges], 1e-3
    )
    assert drift < 5e-3
    singular, _ = fit.best_ridge(lambda ridges: [np.inf if r < 1 else r for r in ridges], 0.5)
    assert 0.9 < singular < 5


def test_subsets_are_disjoint_and_start_anew():
    subsets = fit.subsets(103, 10, [1, 2])
    first, second = (np.concatenate([next(subsets) for _ in range(10)]) for _ in range(2))
    assert len(set(first)) == len(set(second)) == 100
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(next(fit.subsets(7, 7, [0])), np.arange(7))


def test_descent_finds_the_columns_and_keeps_what_is_given():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((200, 4))
    y = np.sin(2 * X[:, 0])[:, None]
    s = Sample(X, y - y.mean(), np.ones(200))
    start = Machine(np.inf, Metric(np.full(4, -0.7), np.arange(4)), 0.1)
    schedule = Round(100, 60)
    found = fit.descend(start, s, schedule, [0])
    weights = found.metric.weights
    assert weights[0] > 8 * weights[1:].max()
    assert fit.evaluate(found, s)[0] < fit.evaluate(start, s)[0] - 1
    assert found.ridge < 0.05
    given = fit.descend(start, s, schedule, [0], alpha=3e-3, gamma=0.8)
    assert given.ridge == pytest.approx(0.3, rel=0.2)
    assert given.gamma == pytest.approx(0.8, rel=1e-12)
    assert given.metric.weights[0] > 3 * given.metric.weights[1:].max()
    assert fit.descend(start, s, schedule, [0], over=lambda: True) == start
    matrix = fit.descend(
        Machine(np.inf, start.metric.full(), 0.1), s, Round(100, 60, 0.03), [0]
    )
    assert fit.evaluate(matrix, s)[0] < fit.evaluate(start, s)[0] - 0.5


@every("dtype", [np.float32, np.float64])
def test_an_inverse_of_several_panels(dtype):
    A = np.random.default_rng(0).standard_normal((600, 600)).astype(dtype)
    A = A @ A.T / 600
    found = fit.inverse(A.copy(), np.ones(600, dtype))
    np.testing.assert_allclose(found, np.linalg.inv(A + np.eye(600)), atol=1e-4)


@pytest.mark.parametrize("ridge", [LEAST, 0.1])
def test_singular_matrices_end_in_numbers(ridge):
    X = np.zeros((60, 2))  # all rows equal
    s = Sample(X, np.random.default_rng(0).standard_normal((60, 1)), np.ones(60))
    metric = Metric(np.zeros(2), np.arange(2))
    found = fit.descend(Machine(np.inf, metric, ridge), s, Round(30, 20), [0])
    assert LEAST <= found.ridge <= MOST
    assert np.isfinite(found.metric.theta).all()
    bad = Sample(np.full((60, 2), np.nan), s.Y, s.weight)
    assert fit.gradient(Machine(np.inf, metric, ridge), bad) is None
    found = fit.descend(Machine(np.inf, metric, ridge), bad, Round(30, 20), [0])
    assert found.ridge == MOST
    assert found.metric == metric
    assert fit.evaluate(Machine(np.inf, metric, ridge), bad)[0] == np.inf


def wide_tailed(n=400, seed=0):
    """Return columns: normal, lognormal, flags, mostly zeros, constant."""
    rng = np.random.default_rng(seed)
    zeros = np.where(rng.random(n) < 0.85, 0.0, rng.lognormal(3.0, 1.0, n))
    flags = (rng.random(n) < 0.1).astype(float)
    normal = 5 + 2 * rng.standard_normal(n)
    return np.stack([normal, rng.lognormal(0, 2, n), flags, zeros, np.full(n, 7.0)], axis=1)


def test_robust_scaling():
    X = wide_tailed()
    scaling = InputScaling.robust(X, np.ones(400))
    Z = scaling.apply(X)
    low, middle, high = np.quantile(X[:, :2], [0.25, 0.5, 0.75], axis=0, method="inverted_cdf")
    np.testing.assert_allclose(scaling.centre[:2], middle)
    np.testing.assert_allclose(scaling.scale[:2], (high - low) / 1.349, rtol=1e-3)
    u = (X[:, 0] - scaling.centre[0]) / scaling.scale[0]
    far = np.abs(X - scaling.centre) > 4 * scaling.scale
    limit = np.where(far.mean(axis=0) > 0.01, 3, 12)
    assert set(limit) == {3, 12}
    np.testing.assert_array_equal(scaling.limit, limit)
    np.testing.assert_allclose(Z[:, 0], u / np.sqrt(1 + (u / limit[0]) ** 2))
    assert set(np.round(Z[:, 2], 12)) == {0.0, round(1 / np.sqrt(1 + 1 / 144), 12)}
    apart = X[:, 3][X[:, 3] > 0]
    assert scaling.scale[3] == np.quantile(apart, 0.5, method="inverted_cdf")
    assert not Z[:, 4].any()
    # a fiftieth of the rows is far out, but not of their weight
    x = np.r_[np.random.default_rng(0).standard_normal((980, 1)), np.full((20, 1), 50.0)]
    for light, end in ((1.0, 3), (0.1, 12)):
        assert InputScaling.robust(x, np.where(x[:, 0] > 40, light, 1.0)).limit == end
    # a change of units changes nothing
    other = InputScaling.robust(3e5 * X - 40, np.ones(400)).apply(3e5 * X - 40)
    np.testing.assert_allclose(other, Z, atol=1e-9)


def test_ranks_are_normal_scores():
    X = wide_tailed(5000)
    scaling = InputScaling.robust(X, np.ones(5000), ranks=True)
    Z = scaling.apply(X)
    for j in range(2):
        np.testing.assert_allclose(
            np.quantile(Z[:, j], [0.1587, 0.5, 0.8413]), [-1, 0, 1], atol=0.03
        )
        assert (np.diff(Z[np.argsort(X[:, j]), j]) >= 0).all()
    # ties are in the middle of their places: 0 holds .85 of the fourth column
    assert (
        Z[X[:, 3] == 0, 3].max() == Z[X[:, 3] == 0, 3].min() == pytest.approx(-0.19, abs=0.05)
    )
    assert not Z[:, 4].any()
    beyond = scaling.apply(np.array([[1e9] * 5, [-1e9] * 5]))
    np.testing.assert_array_equal(np.abs(beyond), 3.0)
    np.testing.assert_array_equal(np.sign(beyond[:, 0]), [1, -1])


@pytest.mark.parametrize("ranks", [False, True])
def test_scalings_see_no_outlier(ranks):
    X = wide_tailed(1001)
    scaling = InputScaling.robust(X, np.ones(1001), ranks=ranks)
    plain, end = scaling.apply(X), 3.0 if scaling.limit is None else scaling.limit[:2]
    for value in (1e8, -1e300):
        bad = X.copy()
        bad[7, :4] = value
        found = InputScaling.robust(bad, np.ones(1001), ranks=ranks).apply(bad)
        rest = np.arange(1001) != 7
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found[rest, :3], plain[rest, :3], atol=0.6)
        np.testing.assert_allclose(found[7, :2], end * np.sign(value), rtol=0.15)
