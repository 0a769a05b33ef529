"""Block descent and RBCD: centres by what is left, exact responses, steps that never rise."""

from __future__ import annotations

import numpy as np
import pytest

from kernelgrad import LinearClassifier, LinearRegressor
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import SquaredError
from kernelgrad.solvers import RBCD, BlockDescent, Problem, TrainBatch
from plain import plain_regressor
from steps import solve


def test_rows_whose_coefficients_balance_their_slopes_are_not_drawn_again():
    X = 100.0 * np.arange(60)[:, None]  # far apart: no row moves the others
    solver = BlockDescent(block_size=10)
    model = plain_regressor(
        solver=solver, gamma=2.0, alpha=1.0, max_iter=6, standardize=False, random_state=0
    )
    model.fit(X, np.tile([1.0, -1.0], 30))
    assert model.history_["n_support"] == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize(("drift", "lasts"), [(1e-2, False), (5e-6, True)])
def test_responses_are_made_anew_where_their_drift_is_sure(drift, lasts):
    X = np.random.default_rng(0).standard_normal((300, 3))
    batch = TrainBatch(X, np.sin(2 * X[:, :1]) + X[:, 1:2] ** 2, np.ones(300))
    problem = Problem(SquaredError(), Gaussian(0.5), 1e-4, 1, 3, 7)
    solver = BlockDescent(block_size=50, tol=0.0)
    state, _ = solve(solver, problem, batch, 3)
    values, arrays = state.describe()
    (name,) = (name for name in arrays if name.endswith(".f"))  # the responses without a bias
    wrong = arrays[name] + np.float32(drift) * np.where(np.arange(300) % 2, 1, -1)
    state = solver.restore(problem, values, arrays | {name: wrong.astype(np.float32)})
    state, _ = solve(solver, problem, batch, 20, state)
    f, responses = (
        solver.expansion(state).raw_prediction(X),
        state.describe()[1][name],
    )
    off = np.std(responses.T - f)
    assert (off > 0.5 * drift) == lasts


@pytest.mark.parametrize("block_size", [1, 3])
def test_no_step_of_rbcd_raises_the_objective(block_size):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4)) * [1.0, 10.0, 0.1, 3.0]
    solver = RBCD(block_size=block_size)
    for cls, loss, y in (
        (LinearClassifier, "logistic", X[:, 0] + X[:, 2] > 0),
        (LinearRegressor, "poisson", rng.poisson(np.exp(3 * X[:, 0])).astype(float)),
        (LinearRegressor, "huber", X @ [1.0, 2.0, 3.0, 4.0]),
    ):
        model = cls(loss, solver=solver, alpha=1e-6, penalty="l1", random_state=0).fit(X, y)
        objective = np.array(model.history_["objective"])
        assert (np.diff(objective) <= 1e-12 * np.abs(objective[1:])).all()
