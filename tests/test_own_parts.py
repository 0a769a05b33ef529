"""Losses that users write are used by their names in all but the compiled loops."""

import numpy as np
import pytest

from cases import raises
from kernelgrad import LinearRegressor
from kernelgrad.exceptions import CapabilityError
from kernelgrad.losses import LOSSES, Huber, Loss, register_loss
from kernelgrad.testing import check_loss
from plain import plain_regressor


class OwnHuber(Loss):
    """The loss of Huber with delta = 1, by value and gradient alone."""

    name = "own_huber"
    tasks = frozenset({"regression"})
    smoothness = 1.0

    def value(self, y, f):
        z = np.abs(f - y)
        return np.sum(np.where(z < 1, 0.5 * z * z, z - 0.5), axis=1).astype(f.dtype)

    def gradient(self, y, f):
        return np.clip(f - y, -1, 1).astype(f.dtype)


@pytest.fixture(autouse=True)
def _registered():
    assert register_loss(OwnHuber) is OwnHuber
    raises(ValueError, "'own_huber' is taken", register_loss, OwnHuber)
    yield
    del LOSSES["own_huber"]


def test_it_keeps_the_contract():
    check_loss(OwnHuber())


PAPERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("udsg", "cdsg")]


@pytest.mark.parametrize("solver", ["dsg", "block_descent", *PAPERS])
def test_solvers_learn_by_it(solver):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    y = 2.0 * X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(300)
    options = {"solver": solver, "alpha": 1e-3, "max_iter": 60, "random_state": 0}
    model = plain_regressor("own_huber", gamma=0.5, **options).fit(X, y)
    assert model.score(X, y) > 0.9
    theirs = plain_regressor(Huber(1.0), gamma=0.5, **options).fit(X, y)
    np.testing.assert_allclose(model.predict(X), theirs.predict(X), atol=0.1)


def test_compiled_loops_refuse_it():
    for model in (LinearRegressor("own_huber"), plain_regressor("own_huber", solver="norma")):
        raises(CapabilityError, "own_huber", model.fit, np.ones((9, 2)), np.arange(9.0))
