"""Posterior mean and variance against the closed form."""

from __future__ import annotations


import numpy as np
import pytest
from sklearn.base import clone

from kernelgrad import ArraySource, KernelGaussianProcessRegressor, load
from kernelgrad.solvers import DSG
from kernelgrad.validation import CapabilityError

GAMMA = 0.5


def closed_form(X, y, Z, noise, signal=1.0, gamma=GAMMA, weight=None):
    """Posterior mean and covariance of f at Z; a weight divides the noise of a row."""

    def k(A, B):
        return signal * np.exp(-gamma * ((A[:, None] - B[None]) ** 2).sum(-1))

    weight = np.ones(len(X)) if weight is None else weight
    K = k(X, X) + np.diag(noise / weight)
    Kz = k(X, Z)
    return Kz.T @ np.linalg.solve(K, y), k(Z, Z) - Kz.T @ np.linalg.solve(K, Kz)


def sampled(noise=0.1, **params):
    """The process by random features, with variances that are given."""
    fixed = {"signal_variance": 1.0, "normalize_y": False, "solver": "dsg", "gamma": "median"}
    return KernelGaussianProcessRegressor(noise, **(fixed | params))


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (500, 2))
    y = np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.2 * rng.standard_normal(500)
    Z = rng.uniform(-4, 4, (60, 2))  # some outside, where the variance is large
    return X, y, Z


@pytest.fixture(scope="module")
def fitted(problem):
    X, y, _ = problem
    return sampled(0.04, gamma=GAMMA, random_state=0).fit(X, y)


def rms(a, b):
    return float(np.sqrt(np.mean((np.asarray(a) - np.asarray(b)) ** 2)))


def test_mean_and_variance_agree_with_the_closed_form(problem, fitted):
    X, y, Z = problem
    mean, covariance = closed_form(X, y, Z, 0.04)
    gp = fitted
    ours, std = gp.predict(Z, return_std=True)
    variance = np.diag(covariance)
    assert variance.max() > 50 * np.median(variance)  # both regimes are tested
    inside = np.abs(Z).max(axis=1) < 3
    assert rms(ours[inside], mean[inside]) < 0.02
    assert rms(ours, mean) < 0.1
    assert rms(std**2, variance) < 0.02
    assert rms(std[inside] ** 2, variance[inside]) < 0.25 * np.median(variance[inside])
    # a control: the variance of four times the noise is further away
    _, other = closed_form(X, y, Z, 0.16)
    assert rms(std[inside] ** 2, np.diag(other)[inside]) > np.median(variance[inside])
    _, matrix = gp.predict(Z, return_cov=True)
    np.testing.assert_allclose(np.diag(matrix), std**2, atol=1e-6)
    np.testing.assert_array_equal(matrix, matrix.T)
    assert rms(matrix, covariance) < 0.01


def test_signal_variance_scales_the_prior(problem):
    X, y, Z = problem
    mean, covariance = closed_form(X, y, Z, 0.04, signal=3.0)
    gp = sampled(0.04, signal_variance=3.0, gamma=GAMMA, random_state=0).fit(X, y)
    ours, std = gp.predict(Z, return_std=True)
    assert gp.alpha_ == pytest.approx(0.04 / (500 * 3.0))
    inside = np.abs(Z).max(axis=1) < 3
    assert rms(ours[inside], mean[inside]) < 0.03
    assert rms(std**2, np.diag(covariance)) < 0.08
    # only the ratio of the two variances moves the mean
    same = sampled(0.04 / 3, gamma=GAMMA, random_state=0).fit(X, y)
    other, unit = same.predict(Z, return_std=True)
    np.testing.assert_allclose(other, ours, atol=1e-5)
    np.testing.assert_allclose(np.sqrt(3) * unit, std, atol=1e-4)


def test_more_rows_than_a_batch_and_sources(problem):
    X, y, Z = problem
    _, covariance = closed_form(X, y, Z, 0.04)
    solver = DSG(block_size=64, batch_size=250, decay=5.0)
    gp = sampled(0.04, gamma=GAMMA, solver=solver, random_state=0)
    std = clone(gp).fit(X, y).predict(Z, return_std=True)[1]
    variance = np.diag(covariance)
    assert rms(std, np.sqrt(variance)) < 0.1
    assert np.corrcoef(np.log(std), np.log(np.sqrt(variance)))[0, 1] > 0.9
    again = clone(gp).fit(ArraySource(X, y)).predict(Z, return_std=True)[1]
    np.testing.assert_array_equal(again, std)


def test_the_operator_estimates_the_variance(problem):
    X, y, Z = problem
    _, covariance = closed_form(X, y, Z, 0.04)
    variance = np.diag(covariance)
    gp = sampled(0.04, gamma=GAMMA, variance="operator", random_state=0, max_iter=20).fit(X, y)
    std = gp.predict(Z, return_std=True)[1]
    assert rms(std**2, variance) < 0.05
    assert rms(np.full(60, variance.mean()), variance) > 0.15  # a constant is no rival
    with pytest.raises(CapabilityError, match="per_point"):
        gp.predict(Z, return_cov=True)


def test_samples_have_the_posterior_law(problem, fitted):
    Z, gp = problem[2], fitted
    mean, covariance = gp.predict(Z[:6], return_cov=True)
    draws = gp.sample_y(Z[:6], 4000, random_state=1)
    assert draws.shape == (6, 4000)
    error = np.sqrt(np.diag(covariance) / 4000)
    assert np.all(np.abs(draws.mean(axis=1) - mean) < 5 * error + 1e-9)
    spread = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)) * 2 / 4000)
    assert np.all(np.abs(np.cov(draws) - covariance) < 5 * spread + 1e-6)
    np.testing.assert_array_equal(draws, gp.sample_y(Z[:6], 4000, random_state=1))


def test_a_model_of_a_source_is_saved_without_its_rows(problem, tmp_path):
    import pandas as pd

    from kernelgrad import open_source

    X, y, Z = problem
    Z = pd.DataFrame(Z[:5], columns=["a", "b"])
    table = np.c_[X, y]
    np.savetxt(tmp_path / "train.csv", table, delimiter=",", header="a,b,y", comments="")
    source = open_source(tmp_path / "train.csv", target="y")
    assert source.n_rows == 500
    gp = sampled(0.04, gamma=GAMMA, random_state=0, max_iter=5, memory_limit=1)
    gp.fit(source)
    assert gp.predict(Z, return_std=True)[1].shape == (5,)
    gp.save(tmp_path / "gp.kg")
    twin = load(tmp_path / "gp.kg")
    np.testing.assert_array_equal(twin.predict(Z), gp.predict(Z))
    with pytest.raises(CapabilityError, match="operator"):
        twin.predict(Z, return_std=True)


def test_one_column_and_one_wish(problem):
    X, y, Z = problem
    gp = sampled(max_iter=2, random_state=0)
    with pytest.raises(ValueError, match="one column"):
        gp.fit(X, np.c_[y, y])
    gp.fit(X, y)
    with pytest.raises(ValueError, match="not both"):
        gp.predict(Z, return_std=True, return_cov=True)


def test_the_rows_are_the_models_own(problem):
    X, y, Z = problem
    X, solver = X.copy(), DSG(block_size=32, batch_size=200)
    gp = sampled(0.04, gamma=GAMMA, solver=solver, max_iter=5)
    expected = gp.set_params(random_state=0).fit(X, y).predict(Z, return_std=True)[1]
    X[:] = 0.0
    np.testing.assert_array_equal(gp.predict(Z, return_std=True)[1], expected)


def test_a_constant_target_and_later_parameters():
    X = np.linspace(0, 1, 50)[:, None]
    gp = sampled(0.1, normalize_y=True, gamma=1.0, random_state=0)
    gp.set_params(max_iter=10).fit(X, np.full(50, 1000.1))
    assert gp.y_scale_ == 1.0
    std = gp.predict([[9.0]], return_std=True)[1]
    assert std[0] == pytest.approx(1.0, abs=0.01)
    gp.set_params(signal_variance=100.0)  # takes effect with the next fit
    np.testing.assert_array_equal(gp.predict([[9.0]], return_std=True)[1], std)


