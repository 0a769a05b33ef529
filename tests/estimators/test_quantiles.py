"""Losses with outputs of their own: several quantiles, logarithms of the mean."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import GammaRegressor, PoissonRegressor, TweedieRegressor
from sklearn.metrics import mean_pinball_loss, r2_score

from cases import every, raises
from kernelgrad import ArraySource, DataError, KernelRegressor, LinearRegressor
from kernelgrad.losses import Quantile
from plain import plain_regressor

QUANTILES = (0.1, 0.5, 0.9)


def heteroscedastic(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 1))
    return X, np.sin(3 * X[:, 0]) + spread(X) * rng.standard_normal(n)


def spread(X):
    return 0.5 + 0.3 * X[:, 0]


def truth(X, quantiles=QUANTILES):
    return np.sin(3 * X) + spread(X)[:, None] * norm.ppf(quantiles)


def regressor(quantile=QUANTILES, **params):
    defaults = {"alpha": 1e-5, "max_iter": 40, "random_state": 0}
    return plain_regressor(Quantile(quantile), **(defaults | params))


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(*heteroscedastic(4000))


def errors(f, X, quantiles=QUANTILES):
    return np.sqrt(np.mean((f - truth(X, quantiles)) ** 2, axis=0))


def test_the_true_quantiles_are_found(fitted):
    Z, _ = heteroscedastic(2000, seed=1)
    f = fitted.predict(Z)
    assert f.shape == (2000, 3)
    assert (errors(f, Z) < 0.06).all()
    # the control: neighbouring quantiles are told apart
    assert (errors(f, Z, (0.15, 0.55, 0.85)) > 0.06).all()


def test_rows_are_ordered():
    X, y = heteroscedastic(60)
    close = (0.45, 0.5, 0.55)
    model = regressor(close, alpha=0.0, bandwidth_factor=0.2, max_iter=20).fit(X, y)
    Z = np.linspace(-1.5, 1.5, 500)[:, None]
    raw, f = model.expansion_.raw_prediction(Z), model.predict(Z)
    assert (np.diff(raw, axis=1) < 0).any()  # without a constraint some rows cross
    assert (np.diff(f, axis=1) >= 0).all()
    np.testing.assert_array_equal(np.sort(raw, axis=1), f)
    # sorting moves no value away from true quantiles that are in order
    before, after = (np.abs(g - truth(Z, close)).sum() for g in (raw, f))
    assert after <= before


def pinball_share(f, y, w):
    """1 - loss over the loss of the best constants, by search over all values of y."""
    ours = best = 0.0
    for values, q in zip(f.T, QUANTILES, strict=True):
        loss = partial(mean_pinball_loss, y, sample_weight=w, alpha=q)
        ours, best = ours + loss(values), best + min(loss(np.full(len(y), b)) for b in y)
    return 1 - ours / best


def test_the_score_is_the_share_of_the_pinball_loss(fitted):
    Z, t = heteroscedastic(60, seed=3)
    w = np.random.default_rng(0).integers(0, 3, 60).astype(float)
    f = fitted.predict(Z)
    assert fitted.score(Z, t) == pytest.approx(pinball_share(f, t, np.ones(60)))
    assert fitted.score(Z, t, sample_weight=w) == pytest.approx(pinball_share(f, t, w))
    assert fitted.score(Z, t[:, None]) == fitted.score(Z, t)
    one = regressor(max_iter=2).fit(Z[:50], np.full(50, 3.0))
    assert one.score(Z[:50], np.full(50, 3.0)) == 1.0  # nothing to explain, nothing missed
    assert one.score(Z[:50], np.full(50, 4.0)) == 0.0
    raises(ValueError, "one target for each of the 60 rows", fitted.score, Z, t[:7])
    raises(ValueError, "scored on arrays", fitted.score, ArraySource(Z, t))


@every(
    ("quantile", "columns", "error", "message"),
    [
        ((0.9, 0.1), 1, ValueError, "increase"),
        ((0.5, 0.5), 1, ValueError, "increase"),
        ((), 1, ValueError, "sequence"),
        ((0.0, 0.5), 1, ValueError, r"quantile must lie in \(0, 1\), got 0\.0"),
        ((0.5, "high"), 1, TypeError, "quantile"),
        (QUANTILES, 2, ValueError, "3 outputs for one target, but y has 2 columns"),
    ],
)
def test_bad_input_is_refused(quantile, columns, error, message):
    X, y = heteroscedastic(40)
    y = np.repeat(y[:, None], columns, axis=1) if columns > 1 else y
    raises(error, message, regressor(quantile).fit, X, y)


KINDS = {
    "poisson": PoissonRegressor,
    "gamma": GammaRegressor,
    "tweedie": partial(TweedieRegressor, power=1.5),
}


def data(loss, n=400):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    mean = np.exp(np.sin(2 * X[:, 0]) + 0.5 * X[:, 1])
    y = rng.poisson(mean) if loss != "gamma" else mean * rng.gamma(2, 0.5, n)
    y = y * rng.gamma(2, 0.5, n) if loss == "tweedie" else y
    return X, y.astype(float), mean


@every("loss", KINDS)
def test_linear_ones_are_those_of_scikit_learn(loss):
    X, y, _ = data(loss)
    theirs = KINDS[loss](alpha=0.1, tol=1e-10, max_iter=1000).fit(X, y)
    ours = LinearRegressor(loss, alpha=0.1, tol=1e-9).fit(X, y)
    assert ours.history_["solver"] == "rbcd"
    np.testing.assert_allclose(ours.coef_.ravel(), theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-4)


@pytest.mark.slow
@every("loss", KINDS)
def test_a_fit_without_a_word_is_near_the_mean(loss):
    X, y, mean = data(loss, 900)
    model = KernelRegressor(loss, random_state=0).fit(X[:700], y[:700])
    p = model.predict(X[700:])
    assert r2_score(np.log(mean[700:]), np.log(p)) > 0.85
    assert model.score(ArraySource(X, y)) == pytest.approx(r2_score(y, model.predict(X)))


@every("loss", KINDS)
def test_targets_outside_the_domain_are_named(loss):
    X, y, _ = data(loss)
    y[7] = 0.0 if loss == "gamma" else -3.0
    for model in (KernelRegressor(loss), LinearRegressor(loss)):
        raises(DataError, rf"'{loss}' takes targets .* row 7 .* has", model.fit, X, y)
