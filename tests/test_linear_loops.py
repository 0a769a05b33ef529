"""Rows, missed steps and stochastic loops of the linear solvers, against their formulas."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sps
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

import oracles_linear as oracles
from cases import every
from kernelgrad import losses
from kernelgrad.compute import rows as accessor
from kernelgrad.linear import loops
from kernelgrad.linear.base import PreparedRows
from kernelgrad.linear.loops import AnchorGraph, Moments
from kernelgrad.solvers.contract import TrainBatch
from oracles_losses import spec
from steps import linear_problem

SMOOTH = [
    losses.SquaredError(), losses.Logistic(), losses.Multinomial(), losses.SquaredHinge(),
    losses.Huber(0.4), losses.SmoothedHinge(0.6), losses.ModifiedLogistic(5.0),
]  # fmt: skip
LOSSES = [*SMOOTH, losses.Hinge(), losses.EpsilonInsensitive(0.2), losses.Quantile(0.3)]
each_loss = every("loss", LOSSES)
each_smooth = every("loss", SMOOTH)
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


@njit
def _entries_of(rows, i, values):
    for q in accessor.entries(rows, i):
        values[accessor.column(rows, q)] += accessor.entry(rows, i, q)


def test_entries_of_rows():
    X = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 3.0]])
    for made in (accessor.as_rows(X), accessor.as_rows(sps.csr_matrix(X))):
        for i in range(3):
            found = np.zeros(3)
            _entries_of(made, i, found)
            np.testing.assert_array_equal(found, X[i])
            w = np.array([1.0, 10.0, 100.0])
            assert accessor.dot(made, i, w) == X[i] @ w
            accessor.add(made, i, 2.0, w)
            np.testing.assert_array_equal(w, [1.0, 10.0, 100.0] + 2.0 * X[i])
    assert accessor.as_rows(np.ones((2, 2), np.uint8)).values.dtype == np.float64
    assert accessor.as_rows(X.astype(np.float32)).values.dtype == np.float32


def test_products_with_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 9)) * (rng.random((3000, 9)) < 0.4)
    X = X.astype(np.float32).astype(float)
    X[5] = 0
    W, b = rng.standard_normal((9, 3)), rng.standard_normal(3)
    G, weights = rng.standard_normal((3000, 3)), rng.random(3000)
    for _, data in prepared(losses.SquaredError(), X, G, weights):
        np.testing.assert_allclose(data.responses(data.native(W), b), X @ W + b, atol=1e-12)
        np.testing.assert_allclose(data.native(data.gradient(G)), X.T @ G, atol=1e-10)
        of_rows, of_columns = data.squares()
        np.testing.assert_allclose(of_rows, (X**2).sum(1), rtol=1e-12)
        np.testing.assert_allclose(of_columns, data.share @ X**2, rtol=1e-12)
        np.testing.assert_array_equal(data.native(data.native(W)), W)
        copy = data.native(W)
        copy[:] = 0
        assert W.any()
        assert data.row_size == (pytest.approx((X != 0).sum() / 3000) if data.is_sparse else 9)


def test_rows_with_repeated_and_unsorted_entries():
    rows = sps.csr_matrix((np.arange(1.0, 6.0), [2, 0, 2, 3, 1], [0, 3, 3, 5]), (3, 4))
    before, W = rows.data.copy(), np.arange(4.0)
    made, exact = accessor.as_rows(rows), rows.toarray()
    found = [accessor.dot(made, i, W) for i in range(3)]
    np.testing.assert_array_equal(found, exact @ W)
    squares, columns = np.zeros(3), np.zeros(4)
    loops.square_sums(made, np.ones(3), squares, columns)
    np.testing.assert_array_equal(squares, (exact**2).sum(1))
    np.testing.assert_array_equal(columns, (exact**2).sum(0))
    np.testing.assert_array_equal(rows.data, before)


def test_block_norms():
    X = np.random.default_rng(0).standard_normal((50, 5)) * [1, 2, 3, 0, 5]
    share = np.arange(50) % 3 / 50.0
    expected = np.add.reduceat(X**2, [0, 2], axis=1)[share > 0].max(axis=0)
    for form in (np.asarray, sps.csr_matrix):
        largest = np.zeros(2)
        loops.block_norms(accessor.as_rows(form(X)), share, np.repeat([0, 1], [2, 3]), largest)
        np.testing.assert_allclose(largest, expected, rtol=1e-12)


@each_smooth
def test_second_derivatives(loss):
    C, (name, number) = 3, spec(loss)
    _, Y = oracles.data(name, 20, 3, C)
    U = np.random.default_rng(1).standard_normal(Y.shape)
    for y, u in zip(Y, U, strict=True):
        slope, bend = np.full(C, np.nan), np.full((C, C), np.nan)
        loops.bends_of_row(loss.code, loss.params(C), y, u, slope, bend)
        np.testing.assert_allclose(bend, oracles.bends(name, y, u, number), atol=1e-6)


# Missed steps ---------------------------------------------------------------------------


@given(st.floats(-3, 3), st.floats(0, 2), st.floats(0, 2), st.floats(0, 2))
@settings(max_examples=100, deadline=None)
def test_shrink_is_the_proximal_point(w, eta, l1, l2):
    got = loops.shrink(w, eta, l1, l2)
    assert got == pytest.approx(oracles.prox(np.float64(w), eta, l1, l2), rel=1e-13, abs=1e-15)

    def f(v):
        return (v - w) ** 2 / 2 + eta * (l1 * abs(v) + l2 / 2 * v * v)

    assert all(f(got) <= f(got + s) + 1e-15 for s in (-0.3, -1e-4, 1e-4, 0.3))


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


def test_missed_steps_through_zero():
    # down through zero, out on the other side; and down to zero to stay
    for mean, l1, end in [(1.0, 0.5, -0.5), (0.4, 0.5, 0.0), (-1.0, 0.5, 0.5)]:
        eta, l2 = 0.01, 0.0
        prox = loops.Prox.make(1000, eta, l1, l2)
        w = 0.3 * np.sign(mean)
        expected = w
        for _ in range(1000):
            expected = oracles.prox(expected - eta * mean, eta, l1, l2)
        got = loops.missed_steps(w, mean, 1000, *prox)
        assert got == pytest.approx(expected, abs=1e-10)
        assert np.sign(got) == np.sign(end)
        assert (got == 0.0) == (end == 0.0)


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


def reference(data, slopes, mean, mean_bias):
    return loops.Table(loops.FOREVER, data.native(mean), mean_bias, slopes)


@each_loss
@every(("C", "p"), [(1, 1), (1, 10), (3, 3)])
@every("with_table", [False, True])
def test_loops_take_the_steps_of_the_formula(loss, C, p, with_table):
    C, eta, own = max(C, 3 * loss.is_multinomial), 0.17, spec(loss)
    for trial, (l1, l2) in enumerate(PENALTIES):
        fit_bias = bool(trial % 2) ^ (p == 1)
        case = loop_case(own[0], C, p, seed=trial)
        slopes = case.rng.standard_normal(case.Y.shape)
        share = case.weights[:, None] * slopes
        table = (slopes, case.X.T @ share, share.sum(0)) if with_table else ()
        expected = oracles.descend(own, case.X, case.Y, case.W, case.b, case.order, case.share,
                                   eta, l1, l2, fit_bias, *table)  # fmt: skip
        for problem, data in prepared(loss, case.X, case.Y, case.weights, l1, l2, fit_bias):
            W, b = data.native(case.W), case.b.copy()
            r = reference(data, *table) if with_table else None
            seen = data.descend(problem, W, b, case.order, case.share, eta, r)
            np.testing.assert_allclose(data.native(W), expected[0], atol=1e-11, rtol=1e-9)
            np.testing.assert_allclose(b, expected[1], atol=1e-11, rtol=1e-9)
            assert seen == pytest.approx(expected[2], rel=1e-9)
            if not fit_bias:
                np.testing.assert_array_equal(b, case.b)


def test_large_steps_and_long_waits_agree():
    """Columns that one row in hundreds touches, with a penalty that takes them to zero."""
    rng = np.random.default_rng(3)
    n, d, T = 300, 40, 900
    X = (rng.random((n, d)) < 0.01) * rng.standard_normal((n, d))
    X = X.astype(np.float32).astype(float)
    Y = np.where(rng.random((n, 1)) < 0.5, 1.0, -1.0)
    order, share = rng.integers(0, n, (T, 2)), np.full((T, 2), 0.5)
    W, b = rng.standard_normal((d, 1)), np.zeros(1)
    slopes = rng.standard_normal((n, 1)) * 0.3
    table = slopes, X.T @ slopes / n, slopes.mean(0)
    expected = oracles.descend(("logistic", 0.0), X, Y, W, b, order, share, 0.5, 2e-3, 1e-3,
                               True, *table)  # fmt: skip
    assert 0 < (expected[0] == 0).sum() < d
    for problem, data in prepared(losses.Logistic(), X, Y, l1=2e-3, l2=1e-3):
        V, c = data.native(W), b.copy()
        data.descend(problem, V, c, order, share, 0.5, reference(data, *table))
        np.testing.assert_allclose(data.native(V), expected[0], atol=1e-11)
        np.testing.assert_array_equal(data.native(V) == 0, expected[0] == 0)
        np.testing.assert_allclose(c, expected[1], atol=1e-11)


def small_graph(name, case, C, k=3, m=5):
    """A graph by hand: any weights, two targets for each output where labels couple."""
    n, rng = len(case.X), case.rng
    anchors = rng.permutation(n)[:m]
    near = np.array([rng.permutation(m)[:k] for _ in range(n)])
    gamma = rng.random((n, k))
    gamma /= gamma.sum(1, keepdims=True)
    shared = name in ("squared", "logistic", "log_loss")
    targets = case.Y[:1] if shared else np.stack([case.Y.max(0), case.Y.min(0)])
    code = np.zeros((n, C), np.int8) if shared else rng.integers(0, 2, (n, C)).astype(np.int8)
    spread = rng.standard_normal((n, C)) if shared else np.zeros((n, C))
    E = 1 if shared else C
    product, product_bias = np.zeros((len(targets), E, m, 7)), np.zeros((len(targets), E, m))
    for i in range(n):
        for e in range(E):
            weight = case.weights[i] * gamma[i]
            product[code[i, e], e, near[i]] += np.outer(weight, case.X[i])
            product_bias[code[i, e], e, near[i]] += weight
    part = case.weights[:, None] * spread
    return AnchorGraph(anchors=anchors, near=near, gamma=gamma, code=code, targets=targets,
                           product=product, product_bias=product_bias, spread=spread,
                           offset=case.X.T @ part, offset_bias=part.sum(0))  # fmt: skip


@each_smooth
@every(("C", "p"), [(1, 1), (3, 3)])
def test_loops_with_anchors_take_the_steps_of_the_formula(loss, C, p):
    C, eta, inner, own = max(C, 3 * loss.is_multinomial), 0.11, 8, spec(loss)
    for trial, (l1, l2) in enumerate(PENALTIES):
        case = loop_case(own[0], C, p, seed=10 + trial)
        graph = small_graph(own[0], case, C)
        targets = graph.targets[graph.code, np.arange(C)]
        W, b, seen, fit_bias = case.W, case.b, 0.0, trial % 2 == 0
        for t in range(0, len(case.order), inner):  # 37 steps: the last part is shorter
            edges = graph.anchors, graph.near, graph.gamma
            h = graph.spread + oracles.references(own, case.X, targets, W, b, *edges)
            H = case.X.T @ (case.weights[:, None] * h)
            part = slice(t, t + inner)
            W, b, more, *_ = oracles.descend(own, case.X, case.Y, W, b, case.order[part],
                                             case.share[part], eta, l1, l2, fit_bias, h, H,
                                             case.weights @ h)  # fmt: skip
            seen += more
        for problem, data in prepared(loss, case.X, case.Y, case.weights, l1, l2, fit_bias):
            V, c = data.native(case.W), case.b.copy()
            r = graph.references(inner, data)
            got = data.descend(problem, V, c, case.order, case.share, eta, r)
            np.testing.assert_allclose(data.native(V), W, atol=1e-10, rtol=1e-9)
            np.testing.assert_allclose(c, b, atol=1e-10, rtol=1e-9)
            assert got == pytest.approx(seen, rel=1e-9)


@each_smooth
@every("C", [1, 3])
def test_loop_with_moments_takes_the_steps_of_the_formula(loss, C):
    """References from two groups, their mean in closed form at every step."""
    C, own = max(C, 3 * loss.is_multinomial), spec(loss)
    l1, l2, eta = 0.03, 0.2, 0.1
    case = loop_case(own[0], C, 3, T=25)
    X, p, n = case.X, case.weights, 24
    group, targets = np.arange(n) % 2, np.array([case.Y[0], case.Y[1]])
    part = np.array([p[group == c].sum() for c in range(2)])
    centre = np.array([p[group == c] @ X[group == c] / part[c] for c in range(2)])
    spread = [X[group == c] - centre[c] for c in range(2)]
    covariance = np.array([
        (s.T * p[group == c]) @ s / part[c] for c, s in enumerate(spread)
    ])  # fmt: skip
    W, b = case.W, case.b
    for rows, share in zip(case.order, case.share, strict=True):
        r = oracles.class_references(*own, X, W, b, p, group, targets)
        W, b, *_ = oracles.descend(own, X, case.Y, W, b, rows[None], share[None], eta, l1, l2,
                                   True, r, X.T @ (p[:, None] * r), p @ r)  # fmt: skip
    for problem, data in prepared(loss, X, case.Y, p, l1, l2):
        V, c = data.native(case.W), case.b.copy()
        r = Moments(group, part, centre, covariance, targets).references(V, c)
        data.descend(problem, V, c, case.order, case.share, eta, r)
        np.testing.assert_allclose(data.native(V), W, atol=1e-7)  # oracle's second derivatives
        np.testing.assert_allclose(c, b, atol=1e-7)
