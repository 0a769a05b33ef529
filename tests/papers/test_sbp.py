"""The Stochastic Batch Perceptron against the paper, oracles, and the promises of a solver."""

from itertools import product

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.svm import SVC

import oracles_sbp as oracles
from cases import every
from kernelgrad import KernelClassifier
from kernelgrad.kernels import DotProduct, Gaussian
from kernelgrad.losses import Hinge
from kernelgrad.solvers import Problem, StochasticBatchPerceptron, TrainBatch
from kernelgrad.training_rows import canonical_rows
from plain import plain_classifier

LINEAR = DotProduct([0.0, 1.0])
GAMMA = 0.5


def data(n=150, seed=0, noise=0.3):
    """Return rows of two columns and signs that no linear function separates."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    y = np.where(X[:, 0] ** 2 + X[:, 1] + noise * rng.standard_normal(n) > 0.2, 1.0, -1.0)
    return X, y


def solve(X, y, *, updates, m=1, seed=7, bias=False, kernel=None, alpha=1e-2, **params):
    """Return coefficients (n,) and intercept after one step of that many updates."""
    solver = StochasticBatchPerceptron(batch_size=m, round_size=m * updates, **params)
    kernel = Gaussian(gamma=GAMMA) if kernel is None else kernel
    problem = Problem(
        Hinge(), kernel, alpha, 1, X.shape[1], seed, fit_intercept=bias, fixed_rows=True
    )
    batch = TrainBatch(X, y[:, None].astype(np.float32), np.ones(len(y)))
    state = solver.init(problem, batch)
    info = solver.step(problem, state, batch)
    assert state.updates == updates
    a, b = state.average[:, 0] * state.scale[0], float(state.intercept[0])
    loss = hinge(y, kernel(X, X) @ a + b)
    assert info.train_loss == pytest.approx(loss, rel=1e-3, abs=1e-4)
    return a, b


def model(**params):
    defaults = {"loss": "hinge", "solver": "sbp", "C": 1.0, "gamma": GAMMA}
    return plain_classifier(**defaults | {"max_iter": 10, "random_state": 0} | params)


def regularised_on(K, y, cost, bias=False):
    """Return coefficients and intercept of the SVM with that cost."""
    if not bias:
        return oracles.svm(K, y, cost), 0.0
    svc = SVC(C=cost, kernel="precomputed", tol=1e-7).fit(K, y)
    a = np.zeros(len(y))
    a[svc.support_] = svc.dual_coef_[0]
    return a, float(svc.intercept_[0])


def hinge(y, f):
    return float(np.maximum(0, 1 - y * f).mean())


# -- Algorithm 1 -----------------------------------------------------------------------


@pytest.mark.parametrize("nu", [0.0, 0.05])
def test_the_preset_is_algorithm_1(nu):
    X, y = data(90) if nu else separable()
    X, y, _, _ = canonical_rows(X, y, np.ones(len(y)), merge=True)
    preset = StochasticBatchPerceptron.paper(nu, sigma=1.0, epochs=3.0)
    z = KernelClassifier("hinge", **preset, random_state=3).fit(X, y)
    K = oracles.gaussian(X, X, 1 / 2).astype(np.float32).astype(float)
    updates = z.history_["rows_seen"][-1]
    assert updates == pytest.approx(3 * len(y), rel=0.4)  # rounds of a fortieth, rounded up
    seed, eta0 = z._fitted.choice.seed, 1 / np.sqrt(np.diag(K).max())
    reference, _ = oracles.batch_perceptron(K, y, nu, updates, 1, seed, power=0, eta0=eta0)
    np.testing.assert_allclose(z.decision_function(X), K @ reference, atol=1e-4)
    assert z.intercept_[0] == 0.0


def separable(n=100):
    """Return rows with a gap between two rings."""
    rng = np.random.default_rng(2)
    y = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    radius = np.where(y > 0, 0.5, 1.5) + rng.uniform(-0.3, 0.3, n)
    angle = rng.uniform(0, 2 * np.pi, n)
    return radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]), y


@pytest.mark.parametrize("bias", [False, True])
def test_without_slack_the_margin_goes_to_the_largest(bias):
    X, y = separable()
    K = oracles.gaussian(X, X, GAMMA)
    u, b = regularised_on(K, y, 1e6, bias)
    best = (y * (K @ u + b)).min() / np.sqrt(u @ K @ u)
    gaps = []
    for updates in (100, 2400):
        a, b = solve(X, y, updates=updates, nu=0.0, average="uniform", bias=bias)
        f = K @ a + b
        assert (y * f).min() == pytest.approx(1.0, abs=1e-3)  # divided by its own margin
        gaps.append(best - 1 / np.sqrt(a @ K @ a))
    assert -1e-6 < gaps[1] < 0.05 * best
    assert gaps[1] < gaps[0] / 3


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("m", "average", "power"), [(1, "linear", 1), (5, "uniform", 0), (8, None, None)]
)
def test_updates_agree_with_the_oracle(bias, m, average, power):
    # no two responses are equal but at the start, where the order of rows decides
    X, y = data(90, seed=m)
    a, b = solve(X, y, updates=200, m=m, nu=0.05, average=average, bias=bias)
    K = oracles.gaussian(X, X, GAMMA).astype(np.float32).astype(float)
    reference, b_reference = oracles.batch_perceptron(
        K, y, 0.05, 200, m, seed=7, power=power, bias=bias
    )
    np.testing.assert_allclose(a, reference, atol=1e-5 * np.abs(reference).max())
    np.testing.assert_allclose(b, b_reference, atol=1e-5)


# -- nu from alpha ---------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
def test_nu_and_objective_reach_the_regularised_optimum(bias):
    X, y = data(300)
    K = oracles.gaussian(X, X, GAMMA)
    u, b = regularised_on(K, y, 1.0, bias)
    alpha = 1 / len(y)
    norm, best = np.sqrt(u @ K @ u), oracles.primal(K, y, u, b, alpha)
    nu = hinge(y, K @ u + b) / norm
    excess, distance = [], []
    for updates in (100, 1200):
        a, b_found = solve(X, y, updates=updates, m=16, bias=bias, alpha=alpha)
        excess.append(oracles.primal(K, y, a, b_found, alpha) / best - 1)
        found = hinge(y, K @ a + b_found) / np.sqrt(a @ K @ a)
        distance.append(abs(found / nu - 1))
    assert -1e-6 < excess[1] < 0.01
    assert excess[1] < excess[0] / 3
    assert distance[1] < 0.06
    assert distance[1] < distance[0]


def test_a_rare_class_without_bias_does_not_end_in_a_constant():
    """The constant -1 has a nu of its own that lifts the level up to the other class."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:300] / 16, np.where(y[:300] == 8, 1.0, -1.0)
    K = oracles.gaussian(X, X, 0.05)
    alpha = 1 / len(y)
    best = oracles.primal(K, y, oracles.svm(K, y, 1.0), 0.0, alpha)
    for m in (1, 8, 32):
        a, _ = solve(X, y, updates=500, m=m, alpha=alpha, kernel=Gaussian(gamma=0.05))
        assert oracles.primal(K, y, a, 0.0, alpha) < 1.1 * best, m


# -- hard data -------------------------------------------------------------------------


NOISE = np.random.default_rng(0).standard_normal((60, 2))


@every(
    ("kind", "X", "kernel"),
    [
        ("constant", np.ones((60, 3)), "rbf"),
        ("zeros", NOISE * (np.arange(60) < 20)[:, None], LINEAR),  # k(x, x) = 0 for most rows
        ("contradiction", np.repeat(NOISE[:30], 2, axis=0), "rbf"),
        ("far", 1e6 + NOISE, "rbf"),
    ],
)
def test_degenerate_rows_give_finite_functions(kind, X, kernel):
    y = (NOISE[:, 0] > 0).astype(int) if kind == "far" else np.arange(60) % 2
    for bias, m, seed in product((False, True), (1, "auto"), range(2)):
        solver = StochasticBatchPerceptron(batch_size=m)
        z = model(kernel=kernel, solver=solver, fit_intercept=bias, random_state=seed).fit(X, y)
        f = z.decision_function(X)
        assert np.isfinite(f).all()
        assert np.abs(f).max() < 100
        assert np.abs(z.expansion_.coef).max(initial=0.0) < 1e6
        if kind == "far":
            assert z.score(X, y) > 0.8


@every("bias", [False, True])
def test_every_class_reaches_its_own_optimum(bias):
    X, t = data(200, seed=1)
    y = (t > 0).astype(int) + (X[:, 1] > 0.5)
    K = oracles.gaussian(X, X, GAMMA)
    z = model(max_iter=80, fit_intercept=bias).fit(X, y)
    e, F = z.expansion_, z.decision_function(X)
    G = e.exact.matrix(e.support, e.support).astype(float)
    for c in range(3):
        s, a = np.where(y == c, 1.0, -1.0), e.coef[:, c]
        u, b = regularised_on(K, s, 1.0, bias)
        found = a @ G @ a / 2 / len(y) + hinge(s, F[:, c])
        assert found < 1.1 * oracles.primal(K, s, u, b, 1 / len(y)), c
