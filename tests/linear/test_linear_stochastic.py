"""Stochastic linear solvers: their optimum, what they estimate, and what they draw."""

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sps
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles_linear as oracles
from cases import every
from kernelgrad import losses
from kernelgrad.compute.rng import draws
from kernelgrad.compute.rows import as_rows
from kernelgrad.linear import loops
from kernelgrad.linear.base import PreparedRows, evaluate
from kernelgrad.linear.loops import dot
from kernelgrad.linear.stochastic import SGD, SVRG, draw_batches
from kernelgrad.papers.s3gd.anchors import build_graph
from kernelgrad.papers.s3gd.rivals import SCV, SSGD
from kernelgrad.papers.s3gd.rivals.scv import group_moments
from kernelgrad.papers.s3gd.s3gd import S3GD
from kernelgrad.papers.sbp.rivals import LinearPegasos
from kernelgrad.solvers.contract import TrainBatch
from oracles_losses import spec
from steps import KINKED, SMOOTH, LinearSetting, linear_problem

storage = every("sparse", [False, True])


def trace(case, solver, steps):
    """State after some steps, and the excess after each."""
    state, seen = solver.init(case.problem, case.batch), []
    for _ in range(steps):
        solver.step(case.problem, state, case.batch)
        seen.append(case.excess(*solver.solution(state)))
    return state, np.array(seen)


def test_optimality_is_the_least_subgradient():
    case = LinearSetting(losses.SquaredError(), C=2, l1_ratio=0.5, alpha=0.1)
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


def mean_step(case, data, references, W, b):
    """Mean of -(W' - W) over one step of size 1 on each single row."""
    problem, mean = replace(case.problem, alpha=0.0), 0.0
    for i, share in enumerate(case.p):
        V, c = data.native(W), b.copy()
        data.descend(problem, V, c, np.array([[i]]), np.ones((1, 1)), 1.0, references)
        mean = mean + share * np.vstack([W - data.native(V), b - c])
    return mean


@every("loss", SMOOTH)
@storage
@every("C", [1, 2])
def test_references_leave_the_gradient_unbiased(loss, sparse, C):
    weights = np.random.default_rng(2).integers(0, 3, 150).astype(float)
    case = LinearSetting(loss, 150, C=C, sparse=sparse, weights=weights, clusters=6)
    data = case.data()
    graph = build_graph(case.problem, data, 15, 4)
    width = case.Y.shape[1]
    W, b = np.random.default_rng(1).standard_normal((6, width)), np.full(width, 0.3)
    exact = np.vstack(case.gradient(W, b))
    counts = {"squared": 1, "logistic": 1, "log_loss": 1, "huber": 16}  # targets, or bins
    assert len(graph.targets) == counts.get(loss.name, 2)
    groups = group_moments(data)
    counts = {"squared": 1, "huber": 1, "log_loss": 3}
    assert len(groups.part) == counts.get(loss.name, 3 - C)  # one for each class
    moments = groups.references(data.native(W), b)
    for references in (graph.references(20, data), moments):
        np.testing.assert_allclose(mean_step(case, data, references, W, b), exact, atol=1e-12)
    wrong = graph._replace(product=1.1 * graph.product).references(20, data)
    assert abs(mean_step(case, data, wrong, W, b) - exact).max() > 1e-4


@storage
@every("loss", SMOOTH[:3])
def test_running_moments_are_of_the_rows_visited(loss, sparse):
    case, eta = LinearSetting(loss, 45, sparse=sparse, offset=0.5), 0.2
    scv, (name, a), X, Y = SCV(step_size=eta, running=True), case.loss, case.X, case.Y
    targets, group = np.unique(Y, axis=0, return_inverse=True)
    if name == "squared":
        targets, group = Y.mean(0, keepdims=True), np.zeros(45, int)
    state, at = scv.init(case.problem, case.batch), np.zeros(0, int)
    W, b = state.coef.copy(), state.bias.copy()
    for number in range(3):
        rng = draws(case.problem.seed, SCV.tag, number)
        for rows in draw_batches(case.data(), 5, 10, rng)[0]:
            at = np.append(at, rows)
            seen, visits = X[at], np.bincount(group[at])
            weights = (np.bincount(group)[: len(visits)] / visits / 45)[group[at]]
            r = oracles.class_references(name, a, seen, W, b, weights, group[at], targets)
            D = (oracles.slope(name, Y[rows], X[rows] @ W + b, a) - r[-10:]) / 10
            D = np.vstack([weights[:, None] * r, D])
            W, b = W - eta * np.vstack([seen, X[rows]]).T @ D, b - eta * D.sum(0)
            W = oracles.prox(W, eta, *case.penalty)
        scv.step(case.problem, state, case.batch)
        state = pickle.loads(pickle.dumps(state))  # the moments come again from the draws
        np.testing.assert_allclose(state.coef, W, atol=1e-8)
        np.testing.assert_allclose(state.bias, b, atol=1e-8)


# Draws ----------------------------------------------------------------------------------


@every("weighted", [False, True])
def test_strata_are_unbiased_and_less_noisy(weighted):
    """Steps of one mini-batch from the same place; five standard errors of their mean."""
    rng, eta = np.random.default_rng(4), 1e-3
    group = np.minimum(rng.geometric(0.35, 900) - 1, 5)  # clusters of unequal size
    X = 3.0 * rng.standard_normal((6, 5))[group] + 0.2 * rng.standard_normal((900, 5))
    Y = np.where(rng.random(900) < 0.99, np.sign(group % 2 - 0.5), 1.0)[:, None]
    weights = rng.integers(1, 5, 900).astype(float) if weighted else None
    case = LinearSetting(X=X, Y=Y, weights=weights, alpha=0.0)
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


# Rates and units ------------------------------------------------------------------------


def test_reduced_variance_converges_geometrically_and_plain_gradients_have_a_floor():
    case = LinearSetting(losses.SquaredError(), 600, alpha=0.02, tol=0.0)
    excess = trace(case, SVRG(), 60)[1]
    logs = np.log10(excess[excess > 1e-11])
    rate, start = np.polyfit(np.arange(len(logs)), logs, 1)
    assert 6 <= len(logs) < 60
    assert rate < -0.1
    assert abs(logs - start - rate * np.arange(len(logs))).max() < 1.5  # a line, no floor
    floors = [trace(case, SGD(step_size=s), 100)[1][60:].mean() for s in (0.4, 0.1, 0.025)]
    assert 1e-3 < floors[0] > 2 * floors[1] > 4 * floors[2]


def test_pegasos_stays_in_its_ball():
    """The first step, of length 1 / l2, leaves the ball and is brought back to its edge."""
    case = LinearSetting(losses.Hinge(), alpha=1e-3, fit_intercept=False, fixed_rows=True)
    radius = np.sqrt(2 * case.objective(np.zeros((6, 1)), np.zeros(1)) / 1e-3)
    solver = LinearPegasos(offset=0, batch_size=1, round_size=1)
    norm = np.linalg.norm(case.fit(solver, 1)[0].coef)
    assert norm == pytest.approx(radius, rel=1e-12)


@every("solver", [SVRG(), S3GD()])
@every("alpha", [10.0, 1.0])
def test_a_penalty_that_leaves_nothing_converges_at_once(solver, alpha):
    case = LinearSetting(n=200, d=4, alpha=alpha, l1_ratio=1.0, tol=1e-4, fixed_rows=True)
    state, infos = case.fit(solver, 20)
    assert infos[-1].converged
    assert len(infos) <= 3
    assert not state.coef.any()


# Loops ------------------------------------------------------------------------------------


PENALTIES = [(0.0, 0.0), (0.2, 0.0), (0.0, 0.3), (0.1, 0.2)]


def prepared(loss, X, Y, weights=None, l1=0.0, l2=0.0, fit_bias=True, **options):
    """Problem and prepared rows, dense and CSR, in both precisions."""
    alpha = l1 + l2
    ratio = l1 / alpha if alpha else 0.0
    problem = linear_problem(loss, X, Y, alpha, 0, l1_ratio=ratio, fit_intercept=fit_bias)
    weights = np.ones(len(X)) if weights is None else weights
    for dtype in (np.float64, np.float32):
        for form in (np.asarray, sps.csr_matrix):
            batch = TrainBatch(form(X.astype(dtype)), Y, weights)
            yield problem, PreparedRows.build(problem, batch)


def test_rows_with_repeated_and_unsorted_entries():
    rows = sps.csr_matrix((np.arange(1.0, 6.0), [2, 0, 2, 3, 1], [0, 3, 3, 5]), (3, 4))
    before, W = rows.data.copy(), np.arange(4.0)
    made, exact = as_rows(rows), rows.toarray()
    found = [dot(made, i, W) for i in range(3)]
    np.testing.assert_array_equal(found, exact @ W)
    squares, stored, mean, spread = np.zeros(3), np.zeros(4, int), np.zeros(4), np.zeros(4)
    loops.row_squares(made, squares)
    np.testing.assert_array_equal(squares, (exact**2).sum(1))
    loops.moments(made, np.full(3, 1 / 3), True, stored, mean, spread)
    np.testing.assert_array_equal(stored, (exact != 0).sum(0))
    np.testing.assert_allclose(mean, exact.mean(0))
    np.testing.assert_allclose(spread, exact.std(0))
    np.testing.assert_array_equal(rows.data, before)


# Missed steps ---------------------------------------------------------------------------


rate = st.one_of(st.just(0.0), st.floats(1e-6, 3.0))


@given(w=st.floats(-2, 2), mean=st.one_of(st.just(0.0), st.floats(-1.5, 1.5)),
       eta=st.floats(1e-4, 1.0), l1=rate, l2=rate, k=st.integers(0, 60))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_missed_steps_are_that_many_steps(w, mean, eta, l1, l2, k):
    prox = loops.Prox.make(60, eta, l1, l2)
    expected = np.float64(w)
    for _ in range(k):
        expected = oracles.prox(expected - eta * mean, eta, l1, l2)
    got = loops.missed_steps(w, mean, k, *prox)
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-12)


# Loops ----------------------------------------------------------------------------------


def loop_case(name, C, p, seed=0, T=37, n=24, d=7):
    """Rows with empty ones and unused columns, mini-batches that repeat rows."""
    X, Y = oracles.data(name, n, d, C, seed)
    X[[2, 9]] = 0.0
    X[:, 4] = 0.0
    rng = np.random.default_rng(seed + 100)
    order = rng.integers(0, n, (T, p))
    order[3] = order[3, 0]
    share = rng.random((T, p)) * 2 / p
    W, b = rng.standard_normal((d, C)), rng.standard_normal(C)
    W[1] = 0.0
    weights = rng.random(n)
    return SimpleNamespace(X=X, Y=Y, order=order, share=share, W=W, b=b,
                           weights=weights / weights.sum(), rng=rng)  # fmt: skip


@every("loss", SMOOTH + KINKED)
@every(("C", "p"), [(1, 1), (1, 10), (3, 3)])
@every("mode", ["none", "table"])
def test_loops_take_the_steps_of_the_formula(loss, C, p, mode):
    C, eta, own = max(C, 3 * loss.is_multinomial), 0.17, spec(loss)
    for trial, (l1, l2) in enumerate(PENALTIES):
        fit_bias = bool(trial % 2) ^ (p == 1)
        case = loop_case(own[0], C, p, seed=trial)
        slopes = case.rng.standard_normal(case.Y.shape)
        share, known = case.weights[:, None] * slopes, {}
        if mode != "none":
            known = {"table": slopes, "mean": case.X.T @ share, "mean_bias": share.sum(0)}
        expected = oracles.descend(own, case.X, case.Y, case.W, case.b, case.order, case.share,
                                   eta, l1, l2, fit_bias, **known)  # fmt: skip
        for problem, data in prepared(loss, case.X, case.Y, case.weights, l1, l2, fit_bias):
            W, b, r = data.native(case.W), case.b.copy(), None
            if mode != "none":
                weighted = slopes * data.share[:, None]
                mean = data.gradient(weighted)
                r = loops.RowReferences(mean, weighted.sum(axis=0), slopes.copy())
            seen = data.descend(problem, W, b, case.order, case.share, eta, r)
            np.testing.assert_allclose(data.native(W), expected[0], atol=1e-11, rtol=1e-9)
            np.testing.assert_allclose(b, expected[1], atol=1e-11, rtol=1e-9)
            assert seen == pytest.approx(expected[2], rel=1e-9)
            if not fit_bias:
                np.testing.assert_array_equal(b, case.b)
