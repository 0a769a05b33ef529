import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.base import clone

from kernelgrad._validation import CapabilityError
from kernelgrad.compute.threads import set_num_threads
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    LeastSquaresDensityRatio,
    Logistic,
    Multinomial,
    Perceptron,
    Quantile,
    SquaredError,
    SquaredHinge,
)
from kernelgrad.solvers import base, online
from kernelgrad.solvers.norma import NORMA
from kernelgrad.solvers.pegasos import Pegasos
from kernelgrad.solvers.perceptron import KernelPerceptron
from kernelgrad.testing import check_solver
from oracles_online import norma, pegasos, perceptron, slope_of

N = 300
ALPHA = 1e-2
LOSSES = [
    Hinge(),
    SquaredHinge(),
    Logistic(),
    Perceptron(),
    SquaredError(),
    Huber(0.3),
    EpsilonInsensitive(0.2),
    Absolute(),
    Quantile(0.8),
]
SOLVERS = [
    (Pegasos(), Hinge()),
    (Pegasos(average=None, t0=0.0, projection=True), Hinge()),
    (NORMA(), Logistic()),
    (NORMA(max_support=70, decay=0.5), Hinge()),
    (KernelPerceptron(), Perceptron()),
]


def data(loss, n=N, n_outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    f = np.sin(2 * X[:, :1]) + X[:, 1:2] * (1 + np.arange(n_outputs)) - 0.3
    y = f + 0.3 * rng.standard_normal(f.shape)
    if loss.name == "log_loss":
        return X, (y == y.max(axis=1, keepdims=True)).astype(np.float32)
    signs = "classification" in loss.tasks and loss.name != "squared"
    return X, (np.where(y > 0, 1, -1) if signs else y).astype(np.float32)


def problem(loss, alpha=ALPHA, n_outputs=1, **options):
    return base.Problem(loss, Gaussian(0.4), alpha, n_outputs, 3, 7, **options)


def orders(n=N, passes=2):
    return np.concatenate([np.random.default_rng(e).permutation(n) for e in range(passes)])


def visit(solver, p, X, y, order, *, size=64, weight=None, numbers=True, state=None, tracked=None):
    """Visit rows in batches of `size`; a tracked matrix gives its responses as well."""
    weight = np.ones(len(y)) if weight is None else weight
    tracker = None
    for a in range(0, len(order), size):
        i = order[a : a + size]
        batch = base.TrainBatch(X[i], y[i], weight[i], i if numbers else None)
        state = solver.init(p, batch) if state is None else state
        if tracked is not None and tracker is None:
            tracker = solver.track(state, tracked)
        info = solver.step(p, state, batch)
        if tracker is not None:
            tracker.advance(info)
    return (state, info) if tracker is None else (state, tracker.raw_prediction())


def dense(state, coef, n=N):
    """Coefficients by the number of the row."""
    out = np.zeros((n, coef.shape[1]))
    out[state.numbers] = coef
    return out


def gram(state, X):
    rows = state.exact.prepare(X)
    return state.exact.matrix(rows, rows).astype(np.float64)


def slope(loss, y, f):
    p = {"huber": "delta", "quantile": "quantile", "epsilon_insensitive": "epsilon"}
    return slope_of(loss.name, y, f, getattr(loss, p.get(loss.name, ""), 0.0))


@pytest.mark.parametrize(
    "solver",
    [
        *(s for s, _ in SOLVERS),
        Pegasos(average="uniform"),
        Pegasos(max_support=200),
        NORMA(average="uniform", decay=0.5),
    ],
    ids=repr,
)
def test_contract(solver):
    check_solver(solver)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("average", [None, "uniform", "linear"])
def test_pegasos_is_the_recursion(loss, average):
    X, y = data(loss)
    order = orders()
    t0 = 0.0 if loss.name == "hinge" else 120.0
    p = problem(loss)
    state, _ = visit(Pegasos(average=average, t0=t0), p, X, y, order)
    omega = {None: None, "uniform": lambda t: 1.0, "linear": float}[average]
    bias = float(loss.intercept(y[order[:64]])[0])
    last, mean = pegasos(
        gram(state, X), order, y[:, 0].astype(float), lambda *a: slope(loss, *a), ALPHA,
        t0=t0, bias=bias, omega=omega,
    )  # fmt: skip
    scale = np.abs(last).max()
    np.testing.assert_allclose(dense(state, state.current)[:, 0], last, atol=1e-6 * scale)
    expected = last if average is None else mean
    np.testing.assert_allclose(dense(state, state.average)[:, 0], expected, atol=1e-6 * scale)
    np.testing.assert_allclose(state.intercept, bias, rtol=1e-12)
    f = Pegasos(average=average, t0=t0).expansion(state).raw_prediction(X)
    np.testing.assert_allclose(f[:, 0], bias + gram(state, X) @ expected, atol=1e-4 * scale)


def test_projection_is_on_the_ball():
    X, y = data(Hinge())
    order = orders()
    free, ball = (
        visit(Pegasos(average=None, t0=0.0, projection=p), problem(Hinge()), X, y, order)[0]
        for p in (False, True)
    )
    oracle = [
        pegasos(
            gram(ball, X), order, y[:, 0].astype(float), lambda *a: slope(Hinge(), *a), ALPHA,
            bias=float(Hinge().intercept(y[order[:64]])[0]), radius=r,
        )[0]
        for r in (np.inf, ALPHA**-0.5)
    ]  # fmt: skip
    for state, a in zip((free, ball), oracle, strict=True):
        np.testing.assert_allclose(dense(state, state.current)[:, 0], a, atol=1e-5)
    assert np.abs(oracle[0] - oracle[1]).max() > 1e-2
    with pytest.raises(CapabilityError, match="projection=False"):
        visit(Pegasos(projection=True), problem(Logistic()), X, y, order)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize(("limit", "decay"), [(None, 0.0), (None, 0.5), (40, 0.0), (7, 0.5)])
def test_norma_is_the_recursion(loss, limit, decay):
    X, y = data(loss)
    order = orders()
    solver = NORMA(step_size=0.3, decay=decay, average=None, max_support=limit)
    state, info = visit(solver, problem(loss), X, y, order, size=100)
    start = float(loss.intercept(y[order[:100]])[0])
    coef, bias, _ = norma(
        gram(state, X), order, y[:, 0].astype(float), lambda *a: slope(loss, *a), ALPHA,
        eta=0.3, decay=decay, bias=start, limit=limit or N,
    )  # fmt: skip
    np.testing.assert_allclose(dense(state, state.current)[:, 0], coef, atol=1e-6)
    np.testing.assert_allclose(state.intercept, bias, atol=1e-6)
    assert info.n_support == np.count_nonzero(coef) == len(state.diagonal)
    np.testing.assert_array_equal(state.diagonal, 1.0)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("average", [False, True])
def test_perceptron_is_the_recursion(fit_intercept, average):
    X, y = data(Perceptron())
    order = orders()
    weight = np.random.default_rng(1).integers(0, 3, N).astype(float)
    used = np.array([weight[i] / weight[order[a : a + 64]].mean()
                     for a in range(0, 2 * N, 64) for i in order[a : a + 64]])  # fmt: skip
    p = problem(Perceptron(), fit_intercept=fit_intercept)
    solver = KernelPerceptron(average=average)
    state, _ = visit(solver, p, X, y, order, weight=weight)
    per_visit = iter(used)

    class Once:
        def __getitem__(self, i):
            return self.value

    once = Once()
    sequence = []
    for i in order:
        sequence.append((i, next(per_visit)))

    def visits():
        for i, once.value in sequence:
            yield i

    class Order(list):
        def __iter__(self):
            return visits()

    last, mean, _ = perceptron(
        gram(state, X), Order(order), y[:, 0].astype(float), once,
        constant=float(fit_intercept),
    )  # fmt: skip
    coef = dense(state, state.average)[:, 0]
    np.testing.assert_allclose(coef, mean if average else last, atol=1e-9)
    expected = coef.sum() if fit_intercept else 0.0
    np.testing.assert_allclose(state.intercept, expected, atol=1e-9)
