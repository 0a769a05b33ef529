"""Responses of rows that come again are kept; the penalty uses the covariance's rows."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from kernelgrad.kernels import Gaussian
from kernelgrad.losses import SquaredError
from kernelgrad.solvers import CDSG, DSG, Problem, TrainBatch
from kernelgrad.solvers.contract import rows_digest
from plain import plain_regressor


def setting(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    y = np.sin(2 * X[:, :1]) + 0.5 * X[:, 1:2]
    problem = Problem(SquaredError(), Gaussian(0.3), 1e-3, 1, 3, 7)
    return problem, TrainBatch(X, y, np.ones(n))


@pytest.mark.parametrize(
    "solver",
    [DSG(block_size=32, momentum=0.8), CDSG(block_size=32, max_blocks=4, momentum=0.8)],
    ids=repr,
)
def test_kept_responses_are_predictions(solver):
    problem, batch = setting()
    _, other = setting(seed=1)
    states, losses = [], []
    for fixed in (False, True):
        p = replace(problem, fixed_rows=fixed)
        state = solver.init(p, batch)
        order = [*[batch] * 10, other, other, batch]  # other rows are predicted afresh
        losses.append([solver.step(p, state, rows).train_loss for rows in order])
        states.append(solver.expansion(state).raw_prediction(batch.X))
    np.testing.assert_allclose(*losses, rtol=1e-4)
    np.testing.assert_allclose(*states, atol=2e-5)
    # a control: the rows matter, so stale responses would show
    assert abs(losses[0][10] - losses[0][9]) > 1e-2 * losses[0][9]


def test_steps_on_a_stream_make_kept_responses_stale():
    rng = np.random.default_rng(0)
    X, other = rng.standard_normal((200, 3)), rng.standard_normal((200, 3))
    y, z = np.sin(2 * X[:, 0]), np.cos(other[:, 1])
    model = plain_regressor(
        solver=DSG(block_size=32, momentum=0.8), max_iter=4, random_state=0, warm_start=True
    )
    model.fit(X, y).partial_fit(other, z)
    expected = pickle.loads(pickle.dumps(model))
    model.fit(X, y)
    for _ in range(4):  # the same rows as a stream: predicted afresh in every step
        expected.partial_fit(X, y)
    np.testing.assert_allclose(
        model.history_["train_loss"][5], expected.history_["train_loss"][5], rtol=1e-4
    )


def test_the_digest_knows_values_shapes_and_kinds():
    X = np.arange(12.0).reshape(4, 3)
    kinds = [X, X.astype(np.float32), X.reshape(3, 4), X + 1e-9, sp.csr_matrix(X)]
    assert len({rows_digest(A) for A in kinds}) == len(kinds)
    assert rows_digest(np.asfortranarray(X)) == rows_digest(X)
