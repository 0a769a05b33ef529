"""Stochastic linear solvers: their optimum, what they estimate, and what they draw."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sps

import oracles_linear as oracles
from cases import every
from kernelgrad import losses
from kernelgrad.linear.base import PreparedRows, evaluate
from kernelgrad.linear.stochastic import SGD, SVRG
from kernelgrad.papers.s3gd.anchors import build_graph
from kernelgrad.papers.s3gd.rivals import SCV, SSGD
from kernelgrad.papers.s3gd.rivals.scv import group_moments
from kernelgrad.papers.s3gd.s3gd import S3GD
from kernelgrad.papers.sbp.rivals import LinearPegasos
from kernelgrad.solvers.contract import TrainBatch
from kernelgrad.validation import CapabilityError
from steps import linear_problem, solve

CASES = {
    "squared": (losses.SquaredError(), 0.0),
    "logistic": (losses.Logistic(), 0.0),
    "log_loss": (losses.Multinomial(), 0.0),
    "squared_hinge": (losses.SquaredHinge(), 0.0),
    "huber": (losses.Huber(0.4), 0.4),
    "smoothed_hinge": (losses.SmoothedHinge(0.6), 0.6),
    "modified_logistic": (losses.ModifiedLogistic(5.0), 5.0),
    "hinge": (losses.Hinge(), 0.0),
    "epsilon_insensitive": (losses.EpsilonInsensitive(0.2), 0.2),
    "quantile": (losses.Quantile(0.3), 0.3),
}
SMOOTH = list(CASES)[:7]
KINKED = list(CASES)[7:]
SLOW = ("huber", "smoothed_hinge", "modified_logistic")  # of scv
EXACT = {"s3gd": S3GD(n_anchors=20), "svrg": SVRG()}
NOISY = {"sgd": SGD(), "ssgd": SSGD(), "scv": SCV(), "pegasos": LinearPegasos()}
ALL = EXACT | NOISY
each_smooth = every("loss", SMOOTH)
storage = every("sparse", [False, True])


class Setting:
    """A problem, its batch, and the same in plain arrays for the oracles."""

    def __init__(self, loss="logistic", n=300, d=6, C=1, *, seed=0, sparse=False, weights=None,
                 alpha=1e-2, l1_ratio=0.0, fit_intercept=True, tol=1e-7, clusters=0, X=None,
                 Y=None, **options):  # fmt: skip
        C = max(C, 3) if loss == "log_loss" else C
        if X is None:
            X, Y = oracles.data(loss, n, d, C, seed, clusters)
        self.X, self.Y, self.loss = X, Y, (loss, CASES[loss][1])
        weights = np.ones(len(X)) if weights is None else weights
        self.p = weights / weights.sum()
        rows = sps.csr_matrix(X) if sparse else X
        self.batch = TrainBatch(rows, Y.astype(np.float32), weights)
        self.problem = linear_problem(
            CASES[loss][0], X, Y, alpha, 3 + seed, l1_ratio=l1_ratio,
            fit_intercept=fit_intercept, tol=tol, **options,
        )  # fmt: skip
        self.penalty = (alpha * l1_ratio, alpha * (1 - l1_ratio))
        self._best = None

    def best(self):
        """Coefficients, bias and objective of the oracle's optimum, within 1e-4 at kinks."""
        if self._best is None:
            width = 1e-3 if self.loss[0] in KINKED else 0.0
            fit = oracles.optimum(self.loss, self.X, self.Y, self.p, *self.penalty,
                                  self.problem.fit_intercept, width)  # fmt: skip
            self._best = (*fit, self.objective(*fit))
        return self._best

    def objective(self, W, b):
        return oracles.objective(self.loss, self.X, self.Y, self.p, W, b, *self.penalty)

    def excess(self, W, b):
        least = self.best()[2]
        return (self.objective(W, b) - least) / abs(least)

    def gradient(self, W, b):
        """Of the mean loss, in coefficients and bias."""
        D = oracles.slope(self.loss[0], self.Y, self.X @ W + b, self.loss[1])
        return self.X.T @ (self.p[:, None] * D), self.p @ D

    def data(self):
        return PreparedRows.build(self.problem, self.batch)

    def fit(self, solver, steps, state=None):
        state, infos = solve(solver, self.problem, self.batch, steps, state)
        return state, infos[-1]

    def trace(self, solver, steps, state=None):
        """State after further steps, and the excess after each."""
        state, seen = solver.init(self.problem, self.batch) if state is None else state, []
        for _ in range(steps):
            solver.step(self.problem, state, self.batch)
            seen.append(self.excess(*solver.solution(state)))
        return state, np.array(seen)


@cache
def shared(loss, n, C, sparse, weighted, l1_ratio=0.0, bias=True):
    """A setting whose optimum several tests use."""
    weights = np.random.default_rng(5).integers(0, 4, n).astype(float) if weighted else None
    return Setting(loss, n, C=C, sparse=sparse, weights=weights, l1_ratio=l1_ratio,
                   fit_intercept=bias)  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
@each_smooth
@pytest.mark.parametrize(
    "l1_ratio", [0.5, *(pytest.param(r, marks=pytest.mark.slow) for r in (0, 1))]
)
def test_reaches_the_optimum(name, loss, l1_ratio):
    for C, sparse, weighted, bias in [(1, True, True, True), (3, False, True, False)]:
        case = shared(loss, 300, C, sparse, weighted, l1_ratio, bias)
        state, info = case.fit(ALL[name], 150)
        W, b = ALL[name].solution(state)
        assert -1e-9 < case.excess(W, b) < 1e-4
        assert info.objective == pytest.approx(case.objective(W, b), rel=1e-9)
        assert bias or not b.any()
        if info.converged:
            assert case.excess(W, b) < 1e-8


# the draws of rivals in papers have quick tests of their own below
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n in ("ssgd", "scv") else []) for n in NOISY],
)
@every("loss", CASES)
def test_comes_within_a_percent(name, loss):
    if name == "scv" and loss in KINKED:
        with pytest.raises(CapabilityError):
            ALL[name].check_problem(Setting(loss).problem)
        return
    steps = 240 if name == "scv" and loss in SLOW else 60
    second = 0.0 if name == "pegasos" else 0.5
    for C, sparse, weighted, l1_ratio in [(1, False, True, 0.0), (3, True, False, second)]:
        case = shared(loss, 250, C, sparse, weighted, l1_ratio)
        state, _ = case.fit(ALL[name], steps)
        assert -1e-3 < case.excess(*ALL[name].solution(state)) < 1e-2


def test_optimality_is_the_least_subgradient():
    case = Setting(C=2, loss="squared", l1_ratio=0.5, alpha=0.1)
    data = case.data()
    W = np.random.default_rng(0).standard_normal((6, 2))
    W[[1, 4]] = 0.0
    l1, l2 = case.penalty
    G, g = case.gradient(W, np.zeros(2))
    G = G - np.outer(case.X.mean(0), g)  # neither offsets nor units of columns matter
    moving = G + l2 * W + l1 * np.sign(W)
    resting = np.maximum(abs(G) - l1, 0.0)
    size = case.X.std(0)[:, None]
    expected = max((np.where(W != 0, abs(moving), resting) / size).max(), abs(g).max())
    native = data.native(W)
    found = evaluate(case.problem, data, native, np.zeros(2)).optimality(
        case.problem, data, native
    )
    assert found == pytest.approx(expected, rel=1e-10)


# Anchors and moments --------------------------------------------------------------------


def graph_case(loss="logistic", *, sparse=False, C=1, weights=None):
    case = Setting(loss, 400, C=C, sparse=sparse, weights=weights, clusters=6)
    data = case.data()
    return case, data, build_graph(case.problem, data, 15, 4)


@storage
def test_graph_weights_are_gaussian_over_the_nearest(sparse):
    case, _, graph = graph_case(sparse=sparse)
    Z = case.X[graph.anchors]
    for i in range(400):
        near, weights = oracles.anchor_weights(case.X[i], Z, 4)
        full, expected = np.zeros((2, len(Z)))
        full[graph.near[i]] += graph.gamma[i]
        expected[near] = weights
        np.testing.assert_allclose(full, expected, atol=2e-4)


@each_smooth
@every("C", [1, 3])
def test_product_of_anchors_is_the_mean_over_all_rows(loss, C):
    """Equation (22)."""
    weights = np.random.default_rng(2).integers(0, 3, 400).astype(float)
    case, _, graph = graph_case(loss, sparse=C == 3, C=C, weights=weights)
    C = case.Y.shape[1]
    W, b = 2 * np.random.default_rng(1).standard_normal((6, C)), np.full(C, 0.2)
    # bins of targets stand for the row's own
    targets = graph.targets[graph.code, np.arange(C)] if loss == "huber" else case.Y
    h = oracles.references(
        case.loss, case.X, targets, W, b, graph.anchors, graph.near, graph.gamma
    )
    U = case.X[graph.anchors] @ W + b
    G, g = graph.offset.copy(), graph.offset_bias.copy()
    for v, target in enumerate(graph.targets):
        D = oracles.slope(loss, np.tile(target, (len(U), 1)), U, case.loss[1])
        for c in range(C):
            e = 0 if graph.product.shape[1] == 1 else c
            G[:, c] += graph.product[v, e].T @ D[:, c]
            g[c] += graph.product_bias[v, e] @ D[:, c]
    np.testing.assert_allclose(G, case.X.T @ (case.p[:, None] * h), atol=1e-12)
    np.testing.assert_allclose(g, case.p @ h, atol=1e-12)
    count = {"squared": 1, "logistic": 1, "log_loss": 1, "huber": 16}.get(loss, 2)
    assert len(graph.targets) == count


def mean_step(case, data, references, W, b):
    """Mean of -(W' - W) over one step of size 1 on each single row."""
    problem, mean = replace(case.problem, alpha=0.0), 0.0
    for i, share in enumerate(case.p):
        V, c = data.native(W), b.copy()
        data.descend(problem, V, c, np.array([[i]]), np.ones((1, 1)), 1.0, references)
        mean = mean + share * np.vstack([W - data.native(V), b - c])
    return mean


@each_smooth
@storage
def test_references_leave_the_gradient_unbiased(loss, sparse):
    weights = np.random.default_rng(2).integers(0, 3, 400).astype(float)
    case, data, graph = graph_case(loss, sparse=sparse, C=2, weights=weights)
    C = case.Y.shape[1]
    W, b = np.random.default_rng(1).standard_normal((6, C)), np.full(C, 0.3)
    exact = np.vstack(case.gradient(W, b))
    moments = group_moments(data).references(data.native(W), b)
    for references in (graph.references(20, data), moments):
        np.testing.assert_allclose(mean_step(case, data, references, W, b), exact, atol=1e-12)
    wrong = graph._replace(product=1.1 * graph.product).references(20, data)
    assert abs(mean_step(case, data, wrong, W, b) - exact).max() > 1e-4


def test_the_floor_of_anchors_and_the_switch():
    case = Setting(n=1500, d=8, alpha=2e-3, clusters=10)
    options = {"n_anchors": 30, "step_size": 1.0}
    stay = S3GD(switch=False, **options)
    state, excess = case.trace(stay, 40)
    assert excess[20:].min() > 1e-5
    assert stay.finish(case.problem, state, case.batch)["switched"] == -1
    go = S3GD(**options)
    state, excess = case.trace(go, 60)
    assert excess[-1] < 1e-6
    objectives = (1 + excess) * case.best()[2]
    start = case.objective(*go.solution(go.init(case.problem, case.batch)))
    gain = -np.diff(objectives, prepend=start) / np.r_[start, objectives[:-1]]
    assert state.switched == 1 + np.flatnonzero(gain < 0.01)[0] > 1  # passes count from one


@every("loss", ["logistic", "squared", "log_loss"])
@storage
def test_mean_of_class_references_has_a_closed_form(loss, sparse):
    weights = np.random.default_rng(2).integers(0, 3, 250).astype(float)
    case = Setting(loss, 250, C=1, sparse=sparse, weights=weights)
    M = group_moments(case.data())
    assert len(M.part) == {"logistic": 2, "squared": 1, "log_loss": 3}[loss]
    C = case.Y.shape[1]
    W, b = np.random.default_rng(1).standard_normal((6, C)), np.full(C, 0.3)
    r = oracles.class_references(*case.loss, case.X, W, b, case.p, M.group, M.targets)
    closed, closed_bias = np.zeros((6, C)), np.zeros(C)
    for c in range(len(M.part)):
        u = M.centre[c] @ W + b
        first = oracles.slope(loss, M.targets[[c]], u[None])[0]
        second = M.covariance[c] @ W @ oracles.bends(loss, M.targets[c], u)
        closed += M.part[c] * (np.outer(M.centre[c], first) + second)
        closed_bias += M.part[c] * first
    np.testing.assert_allclose(case.X.T @ (case.p[:, None] * r), closed, atol=1e-12)
    np.testing.assert_allclose(case.p @ r, closed_bias, atol=1e-12)


# Draws ----------------------------------------------------------------------------------


@every("weighted", [False, True])
def test_strata_are_unbiased_and_less_noisy(weighted):
    """Steps of one mini-batch from the same place; five standard errors of their mean."""
    rng, eta = np.random.default_rng(4), 1e-3
    group = np.minimum(rng.geometric(0.35, 900) - 1, 5)  # clusters of unequal size
    X = 3.0 * rng.standard_normal((6, 5))[group] + 0.2 * rng.standard_normal((900, 5))
    Y = np.where(rng.random(900) < 0.99, np.sign(group % 2 - 0.5), 1.0)[:, None]
    weights = rng.integers(1, 5, 900).astype(float) if weighted else None
    case = Setting(X=X, Y=Y, weights=weights, alpha=0.0)
    W = rng.standard_normal((5, 1))
    exact, noise = case.gradient(W, np.zeros(1))[0][:, 0], {}
    for cls in (SSGD, SGD):
        solver = cls(batch_size=6, round_size=1, step_size=eta)
        state, G = solver.init(case.problem, case.batch), []
        for _ in range(1500):
            state.coef, state.bias = W.copy(), np.zeros(1)
            solver.step(case.problem, state, case.batch)
            G.append((W - state.coef)[:, 0] / eta)
        error = np.std(G, axis=0, ddof=1) / np.sqrt(len(G))
        assert (abs(np.mean(G, axis=0) - exact) <= 5 * error).all()
        noise[cls] = ((G - exact) ** 2).sum(axis=1).mean()
    assert noise[SSGD] < 0.5 * noise[SGD]


# Refusals -------------------------------------------------------------------------------


# Rates and units ------------------------------------------------------------------------


def test_reduced_variance_converges_geometrically_and_plain_gradients_have_a_floor():
    case = Setting("squared", 600, 6, alpha=0.02, tol=0.0)
    excess = case.trace(SVRG(), 60)[1]
    logs = np.log10(excess[excess > 1e-11])
    rate, start = np.polyfit(np.arange(len(logs)), logs, 1)
    assert 6 <= len(logs) < 60
    assert rate < -0.1
    assert abs(logs - start - rate * np.arange(len(logs))).max() < 1.5  # a line, no floor
    floors = [case.trace(SGD(step_size=s), 100)[1][60:].mean() for s in (0.4, 0.1, 0.025)]
    assert 1e-3 < floors[0] > 2 * floors[1] > 4 * floors[2]


def test_pegasos_stays_in_its_ball():
    """The first step, of length 1 / l2, leaves the ball and is brought back to its edge."""
    case = Setting("hinge", alpha=1e-3, fit_intercept=False, fixed_rows=True)
    radius = np.sqrt(2 * case.objective(np.zeros((6, 1)), np.zeros(1)) / 1e-3)
    norms = []
    for project in (True, False):
        solver = LinearPegasos(offset=0, batch_size=1, round_size=1, project=project)
        norms.append(np.linalg.norm(case.fit(solver, 1)[0].coef))
    assert norms[0] == pytest.approx(radius, rel=1e-12)
    assert norms[1] > 1.5 * radius


def drive(solver, X, y, loss, steps, *, alpha=0.0, **settings):
    """Return problem, state and infos of some passes over rows given as one batch."""
    given = {"tol": 1e-10, "fit_intercept": True, "fixed_rows": True} | settings
    problem = linear_problem(loss, X, y[:, None], alpha, 0, **given)
    return problem, *solve(solver, problem, TrainBatch(X, y[:, None], np.ones(len(y))), steps)


@every("solver", [SVRG(), S3GD()])
@every("alpha", [10.0, 1.0])
def test_a_penalty_that_leaves_nothing_converges_at_once(solver, alpha):
    X = np.random.default_rng(0).standard_normal((200, 4))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    _, state, infos = drive(
        solver, X, y, losses.Logistic(), 20, alpha=alpha, l1_ratio=1.0, tol=1e-4
    )
    assert infos[-1].converged
    assert len(infos) <= 3
    assert not state.coef.any()
