"""UDSG and CDSG against their algorithms."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import oracles
from kernelgrad import KernelClassifier, KernelRegressor
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import Hinge, Logistic, SquaredError
from kernelgrad.solvers import CDSG, DSG, UDSG, Problem, TrainBatch, get_solver
from kernelgrad.solvers.random_features.dsg import allowed_steps
from kernelgrad.testing import check_solver

SLOPES = {
    "squared": lambda y, f: f - y,
    "logistic": lambda y, f: -y / (1 + np.exp(y * f)),
    "hinge": lambda y, f: np.where(y * f < 1, -y, 0.0),
}
PLAIN = {"preconditioned": False, "momentum": 0.0, "average": None}


@pytest.mark.parametrize(
    "solver",
    [
        UDSG(block_size=32),
        UDSG(block_size=32, new_blocks=2, reused_blocks=3, preconditioned=False),
        UDSG(block_size=32, reused_blocks=0),
        CDSG(block_size=32),
        CDSG(block_size=32, max_step=4.0, preconditioned=False),
        CDSG(block_size=32, max_blocks=3),
    ],
    ids=repr,
)
def test_contract(solver):
    check_solver(solver)


def data(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.standard_normal(n)
    return X, y


def run(solver, loss, X, y, steps, alpha=1e-2):
    problem = Problem(loss, Gaussian(0.3), alpha, 1, 3, 7, fit_intercept=False)
    batches = [np.arange(t, t + 40) * 7 % len(y) for t in range(0, 40 * steps, 40)]
    train = [TrainBatch(X[i], y[i].reshape(-1, 1), np.ones(40)) for i in batches]
    state = solver.init(problem, train[0])
    infos = [solver.step(problem, state, b) for b in train]
    stream = state.iterates.x.stream
    rows = stream.prepare(X)
    return state, infos, batches, lambda j: stream.transform(rows, j).astype(np.float64)


def test_udsg_follows_algorithm_3():
    X, y = data()
    state, infos, batches, features = run(
        UDSG(block_size=32, new_blocks=2, reused_blocks=1, step_size=2.0, decay=5.0, **PLAIN),
        SquaredError(), X, y, 14,
    )  # fmt: skip
    used = [info.update.block for info in infos]
    new = [t % 3 < 2 for t in range(14)]
    assert [k == sum(new[:t]) for t, k in enumerate(used)] == new
    gammas = [2.0 / (1 + t / 5.0) for t in range(14)]
    A, _, _ = oracles.reuse(
        features, batches, lambda t, *_: (used[t], 1.0), y, SLOPES["squared"],
        alpha=1e-2, gammas=gammas,
    )  # fmt: skip
    assert state.iterates.x.n_blocks == len(A) == sum(new)
    for j, a in enumerate(A):
        np.testing.assert_allclose(state.iterates.x.block(j).ravel(), a, atol=2e-5)
    assert infos[-1].n_features_saved == (14 - sum(new)) * 64
    assert infos[-1].n_random_features == sum(new) * 64


def test_udsg_draws_old_blocks_uniformly():
    X, y = data(64)
    solver = UDSG(block_size=4, reused_blocks=400, new_blocks=4, **PLAIN)
    _, infos, _, _ = run(solver, SquaredError(), X, y, 404)
    counts = np.bincount([i.update.block for i in infos[4:]], minlength=4)
    assert len(counts) == 4
    # 5 standard deviations of a binomial count
    assert np.all(np.abs(counts - 100) < 5 * np.sqrt(400 * 0.25 * 0.75))


@pytest.mark.parametrize("loss", [SquaredError(), Logistic(), Hinge()], ids=lambda x: x.name)
@pytest.mark.parametrize("max_step", [1.0, 3.0])
def test_cdsg_follows_algorithm_4(loss, max_step):
    X, y = data()
    y = y if loss.name == "squared" else np.where(y > 0.3, 1.0, -1.0)
    steps, spread = 24, 2.0
    state, infos, batches, features = run(
        CDSG(
            block_size=32, step_size=2.0, decay=5.0, max_step=max_step, spread=spread, **PLAIN
        ),
        loss, X, y, steps,
    )  # fmt: skip

    def choose(t, A, B, gamma, r):
        noise = (gamma * np.abs(r).max() * spread / len(r)) ** 2
        eta = [oracles.quadratic_step([b], [gamma * r.mean()], noise) for b in B]
        if not eta or max(eta) <= 1:
            return len(A), 1.0
        return int(np.argmax(eta)), min(max(eta), max_step)

    gammas = [2.0 / (1 + t / 5.0) for t in range(steps)]
    A, B, log = oracles.reuse(
        features, batches, choose, y, SLOPES[loss.name], alpha=1e-2, gammas=gammas
    )
    assert [info.update.block for info in infos] == log
    assert len(A) < steps  # it re-used some
    # the oracle's grid rounds a step to 1e-4
    tolerance = 2e-5 if max_step == 1.0 else 2e-3
    np.testing.assert_allclose(state.beta[:, 0], B, atol=tolerance)
    for j, a in enumerate(A):
        np.testing.assert_allclose(state.iterates.x.block(j).ravel(), a, atol=tolerance)


def test_allowed_steps_solve_the_inequality():
    rng = np.random.default_rng(0)
    for _ in range(40):
        beta, g = rng.standard_normal((5, 3)), rng.standard_normal(3)
        noise = float(rng.choice([0.0, 0.01, 1.0]))
        ours = allowed_steps(beta, g, noise)
        expected = [oracles.quadratic_step(b, g, noise) for b in beta]
        np.testing.assert_allclose(ours, expected, atol=2e-4)
    np.testing.assert_array_equal(allowed_steps(np.ones((2, 1)), np.zeros(1), 0.0), 0)


def test_a_block_is_reused_only_when_the_gradient_turned():
    beta, g = np.array([[1.0], [-1.0], [0.0]]), np.array([0.5])
    eta = allowed_steps(beta, g, 0.0)
    assert eta[0] > 1 >= eta[2] > 0
    assert eta[1] <= 0.5


@pytest.mark.parametrize("name", ["udsg", "cdsg"])
def test_one_word_away(name):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((9000, 4))
    y = (X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 2] > 1)
    small = {"block_size": 64, "batch_size": 600}
    solver = get_solver(name).set_params(**small)
    model = KernelClassifier(solver=solver, random_state=0, max_iter=30).fit(X, y)
    dense = KernelClassifier(solver=DSG(**small), random_state=0, max_iter=30).fit(X, y)
    KernelClassifier(solver=name, random_state=0, max_iter=2).fit(X[:99], y[:99])
    saved = model.history_["n_features_saved"]
    used = model.history_["n_random_features"]
    assert saved[0] == 0
    assert saved == sorted(saved)
    width = model.expansion_.stream.width
    assert [s + u for s, u in zip(saved, used, strict=True)] == [
        width * (t + 1) for t in range(30)
    ]
    assert saved[-1] > 0
    assert model.score(X, y) > dense.score(X, y) - 0.03


def test_dsg_saves_nothing_and_reuse_of_none_is_dsg():
    X, y = data()
    kwargs = {"random_state": 3, "max_iter": 8}
    dsg = KernelRegressor(solver=DSG(block_size=32), **kwargs).fit(X, y)
    same = KernelRegressor(solver=UDSG(block_size=32, reused_blocks=0), **kwargs).fit(X, y)
    assert set(dsg.history_["n_features_saved"]) == {0}
    np.testing.assert_array_equal(dsg.predict(X), same.predict(X))


@pytest.mark.parametrize("name", ["udsg", "cdsg"])
def test_resuming_and_files_go_on_with_the_same_bits(name, tmp_path):
    from kernelgrad import load

    X, y = data()
    whole = KernelRegressor(solver=name, random_state=3, max_iter=12).fit(X, y)
    half = KernelRegressor(solver=name, random_state=3, max_iter=5).fit(X, y)
    half.save(tmp_path / "half.kg", resumable=True)
    again = load(tmp_path / "half.kg")
    again.set_params(warm_start=True, max_iter=7).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))
    assert again.history_["n_features_saved"] == whole.history_["n_features_saved"]


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (UDSG(new_blocks=0), "new_blocks"),
        (UDSG(reused_blocks=-1), "reused_blocks"),
        (CDSG(max_step=0.5), "max_step"),
        (CDSG(spread=-1.0), "spread"),
    ],
)
def test_bad_parameters_are_named(solver, message):
    with pytest.raises(ValueError, match=message):
        solver.check()
    clone(solver)
