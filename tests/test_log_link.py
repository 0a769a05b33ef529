"""Losses of counts and amounts, whose function is the logarithm of the mean."""

import numpy as np
import pytest
from sklearn.linear_model import GammaRegressor, PoissonRegressor
from sklearn.metrics import r2_score

import kernelgrad as kg
from cases import every
from kernelgrad import DataError, KernelRegressor, LinearRegressor
from kernelgrad.data import ArraySource

KINDS = {"poisson": PoissonRegressor, "gamma": GammaRegressor}


def data(loss, n=400):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    mean = np.exp(np.sin(2 * X[:, 0]) + 0.5 * X[:, 1])
    y = rng.poisson(mean) if loss == "poisson" else mean * rng.gamma(2, 0.5, n)
    return X, y.astype(float), mean


@every("loss", KINDS)
def test_linear_ones_are_those_of_scikit_learn(loss):
    X, y, _ = data(loss)
    theirs = KINDS[loss](alpha=0.1, tol=1e-10, max_iter=1000).fit(X, y)
    ours = LinearRegressor(loss, alpha=0.1, tol=1e-9).fit(X, y)
    assert ours.history_["solver"] == "rbcd"
    np.testing.assert_allclose(ours.coef_.ravel(), theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-4)


@every("loss", KINDS)
def test_a_fit_without_a_word_is_near_the_mean(loss, tmp_path):
    X, y, mean = data(loss, 900)
    model = KernelRegressor(loss, random_state=0).fit(X[:700], y[:700])
    p = model.predict(X[700:])
    assert r2_score(np.log(mean[700:]), np.log(p)) > 0.85
    source = ArraySource(X, y)
    assert model.score(source) == pytest.approx(r2_score(y, model.predict(X)))
    model.save(tmp_path / "m.kg")
    np.testing.assert_array_equal(kg.load(tmp_path / "m.kg").predict(X[700:]), p)


@every("solver", ["newton", "cached", "dsg"])
def test_solvers_agree(solver):
    X, y, _ = data("poisson")
    exact = KernelRegressor("poisson", alpha=0.01, gamma=0.3, tol=1e-6, random_state=0)
    best = exact.fit(X, y).predict(X)
    other = KernelRegressor("poisson", solver=solver, alpha=0.01, gamma=0.3, random_state=0)
    found = other.fit(X, y).predict(X)
    assert np.abs(found - best).mean() < 0.15 * np.abs(best - best.mean()).mean()


@every("loss", KINDS)
def test_targets_outside_the_domain_are_named(loss):
    X, y, _ = data(loss)
    y[7] = -3.0 if loss == "poisson" else 0.0
    for model in (KernelRegressor(loss), LinearRegressor(loss)):
        with pytest.raises(DataError, match=rf"'{loss}' takes targets .* row 7 .* has"):
            model.fit(X, y)
