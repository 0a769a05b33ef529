"""Block methods for linear functions: their optimum, their steps, their bits."""

import numpy as np
import pytest
import scipy.sparse as sp

import oracles_linear as oracles
from cases import every, raises
from kernelgrad import LinearClassifier, LinearRegressor
from kernelgrad import losses as kl
from kernelgrad.linear.rbcd import RBCD
from kernelgrad.linear.stochastic import draw_batches
from kernelgrad.papers.dsg.rivals.sbmd import SBMD, descend_on_blocks
from steps import KINKED, SMOOTH, LinearSetting

each_form = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])


def test_a_bias_that_is_its_own_block_is_visited():
    # rows with one entry each of many columns: no block has half of the rows
    n, d = 200, 50
    rng = np.random.default_rng(0)
    X = sp.csr_matrix((rng.random(n) + 0.5, (np.arange(n), rng.integers(0, d, n))), (n, d))
    y = np.where(rng.random((n, 1)) < 0.8, 1.0, -1.0)
    case = LinearSetting(X=X.toarray(), Y=y, sparse=True, alpha=1e-3, tol=1e-9)
    state, (*_, info) = case.fit(RBCD(block_size=2), 300)
    assert state.blocks.bias is not None
    assert info.converged
    W, b, _ = case.best()
    np.testing.assert_allclose(state.coef, W, atol=1e-4)
    np.testing.assert_allclose(state.bias, b, atol=1e-4)


def scaled_rows(case, n=2000):
    """Columns of very different scale or far from zero, and y with a coefficient 1 of each."""
    rng = np.random.default_rng(11)
    Z = rng.standard_normal((n, 3))
    Z[:, 1] += 0.5 * Z[:, 0]
    if case == "income":
        return np.c_[np.exp(10.8 + 0.9 * Z[:, 0]), rng.random(n)], np.array([1e-5, 3.0])
    if case.startswith("scale"):
        scale = np.array([float(case[5:]), 1.0, 1.0])
        return Z * scale, 1.0 / scale
    return Z + np.array([float(case[6:]), 0.0, 3.0]), np.ones(3)


CASES = ["income", "scale1e6", "scale1e-6", "offset1e7"]


@each_form
@every("name", CASES)
@every(("alpha", "l1_ratio"), [(0.0, 0.0), (0.1, 0.5)])
@every("block_size", ["auto", 1])
def test_units_and_means_of_columns_do_not_matter(sparse, name, alpha, l1_ratio, block_size):
    X, true = scaled_rows(name)
    noise = 0.1 * np.random.default_rng(3).standard_normal(len(X))
    y = X @ true + noise
    case = LinearSetting(
        kl.SquaredError(), X=X, Y=y[:, None], sparse=sparse, alpha=alpha, l1_ratio=l1_ratio,
        tol=1e-6,
    )  # fmt: skip
    state, (*_, info) = case.fit(RBCD(block_size=block_size), 100)
    assert info.converged
    assert state.iteration < (10 if block_size == "auto" else 60)
    w, b = oracles.elastic_net(X, y, case.p, *case.penalty)
    if alpha == 0:
        centred = X - X.mean(axis=0)
        size = centred.std(axis=0)
        exact, *_ = np.linalg.lstsq(centred / size, y - y.mean(), rcond=None)
        np.testing.assert_allclose(w, exact / size, rtol=1e-9)
    size = X.std(axis=0)
    np.testing.assert_allclose(state.coef[:, 0] * size, w * size, rtol=1e-5, atol=1e-5)
    mean = X.mean(axis=0)
    assert state.bias[0] + mean @ state.coef[:, 0] == pytest.approx(b + mean @ w, abs=1e-5)
    R = X @ state.coef[:, 0] + state.bias[0] - y
    if alpha == 0:
        assert R.std() < 0.11  # with 0.1 of noise
    assert abs(R.mean()) < 1e-5
    np.testing.assert_array_equal(X, scaled_rows(name)[0])  # a copy is moved


@every("sparse", [False, True])
@every("columns", [{4: 1e7 / 3, 7: -0.1}, {3: 0.0, 4: 1.0, 5: 6}])
def test_constant_and_repeated_columns_without_penalty(columns, sparse):
    X, Y = oracles.data("squared", 300, 13, 2)
    for j, constant in columns.items():
        X[:, j] = X[:, 6] if j == 5 else constant
    case = LinearSetting(kl.SquaredError(), X=X, Y=Y, sparse=sparse, alpha=0.0, tol=1e-8)
    state, (*_, info) = case.fit(RBCD(), 300)
    assert info.converged
    assert not state.coef[[j for j in columns if j != 5]].any()
    rest = [j for j in range(13) if j not in columns]
    f, *_ = np.linalg.lstsq(np.c_[X[:, rest], np.ones(len(X))], Y, rcond=None)
    best = np.c_[X[:, rest], np.ones(len(X))] @ f
    np.testing.assert_allclose(X @ state.coef + state.bias, best, atol=1e-6)
    if 5 not in columns:
        np.testing.assert_allclose(state.coef[rest], f[:-1], atol=1e-6)
        np.testing.assert_allclose(state.bias, f[-1], atol=1e-6)


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


@each_form
@every("loss", SMOOTH + KINKED)
def test_sbmd_steps_are_those_of_the_formula(loss, sparse):
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 4, 300).astype(float)
    case = LinearSetting(
        loss, d=13, C=2, sparse=sparse, weights=weights, alpha=0.2, l1_ratio=0.4, offset=0.5
    )
    solver = SBMD(batch_size=4, n_blocks=3)
    state = solver.init(case.problem, case.batch)
    data = state.data
    order, share = draw_batches(data, 50, 4, rng)
    chosen = rng.integers(0, 3, 50)
    np.testing.assert_array_equal(share, 0.25)
    eta, eta_bias = solver.first_steps(state, data, 4, 3)
    first = solver.cuts(13)
    W, b = data.native(state.coef), state.bias.copy()
    descend_on_blocks(data.code, data.numbers, data.rows, data.Y, W, b, order, share, chosen,
                      first, eta, eta_bias, *case.penalty)  # fmt: skip
    expected, bias = oracles.mirror_steps(
        case.loss, case.X, case.Y, state.coef.copy(), state.bias.copy(), order, chosen, first,
        eta, eta_bias, *case.penalty,
    )  # fmt: skip
    np.testing.assert_allclose(data.native(W), expected, atol=1e-12)
    np.testing.assert_allclose(b, bias, atol=1e-12)
    assert np.abs(expected).max() > 0.05
    assert (expected == 0).any()


def test_automatic_blocks():
    def size(d, C=1, sparse=False):
        return RBCD().resolve_block_size(LinearSetting(n=40, d=d, C=C, sparse=sparse).data())

    assert size(512) == 512
    assert size(513) == 32
    assert size(512, C=5) == 32
    assert size(100, C=20) == 100
    assert size(2000, sparse=True) == 64
    raises(TypeError, "n_blocks", SBMD(n_blocks=2.5).check)
    np.testing.assert_array_equal(SBMD().cuts(3), [0, 1, 2, 3])
    np.testing.assert_array_equal(SBMD(n_blocks=3).cuts(13), [0, 4, 8, 13])
