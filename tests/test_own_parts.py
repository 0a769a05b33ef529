"""Parts that users write are used by their names in every solver that needs no more."""

from __future__ import annotations

import numpy as np
import pytest

from cases import every
from kernelgrad import LinearRegressor
from kernelgrad.losses import LOSSES, Huber, Loss, register_loss
from kernelgrad.testing import check_loss
from plain import plain_regressor


class LogCosh(Loss):
    """log(cosh(f - y)), by value and gradient alone."""

    name = "log_cosh"
    tasks = frozenset({"regression"})
    smoothness = 1.0

    def value(self, y, f):
        z = np.abs(f - y)
        return np.sum(z + np.log1p(np.exp(-2 * z)) - np.log(2.0), axis=1).astype(f.dtype)

    def gradient(self, y, f):
        return np.tanh(f - y).astype(f.dtype)


class OwnHuber(LogCosh):
    """The loss of Huber with delta = 1, written down again."""

    name = "own_huber"

    def value(self, y, f):
        z = np.abs(f - y)
        return np.sum(np.where(z < 1, 0.5 * z * z, z - 0.5), axis=1).astype(f.dtype)

    def gradient(self, y, f):
        return np.clip(f - y, -1, 1).astype(f.dtype)


@pytest.fixture(autouse=True)
def _registered():
    register_loss(LogCosh)
    register_loss(OwnHuber)
    yield
    del LOSSES["log_cosh"], LOSSES["own_huber"]


@pytest.mark.parametrize("cls", [LogCosh, OwnHuber])
def test_it_keeps_the_contract(cls):
    check_loss(cls())


def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    return X, 2.0 * X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(300)


@every("loss", ["log_cosh", "own_huber"])
@every("solver", ["dsg", "udsg", "cdsg", "pegasos", "norma", "cached"])
def test_kernel_solvers_learn_by_it(solver, loss):
    X, y = rows()
    options = {"solver": solver, "alpha": 1e-3, "gamma": 0.5, "max_iter": 60, "random_state": 0}
    model = plain_regressor(loss, **options).fit(X, y)
    assert model.score(X, y) > 0.9
    theirs = plain_regressor(Huber(1.0), **options).fit(X, y)
    np.testing.assert_allclose(model.predict(X), theirs.predict(X), atol=0.1)


@every("loss", ["log_cosh", "own_huber"])
@every("solver", ["sgd", "svrg"])
def test_linear_solvers_learn_by_it(solver, loss):
    X, y = rows()
    options = {"solver": solver, "alpha": 1e-3, "max_iter": 60, "random_state": 0}
    model = LinearRegressor(loss, **options).fit(X, y)
    assert model.score(X, y) > 0.95
    theirs = LinearRegressor(Huber(1.0), **options).fit(X, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=0.05)
