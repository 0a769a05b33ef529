"""Loops of the linear solvers: losses, lazy steps, dense and CSR rows against plain numpy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sps
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelgrad.solvers.linear._dense import DenseRows
from kernelgrad.solvers.linear._sparse import SparseRows

import oracles_linear as oracles
from kernelgrad.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Multinomial,
    Quantile,
    SmoothedHinge,
    SquaredError,
    SquaredHinge,
)
from kernelgrad.losses import scalar as linear
from kernelgrad.solvers.linear import _moments as linear_moments
from kernelgrad.solvers.linear import _steps as steps
from kernelgrad.solvers.linear.base import loss_kind

CASES = {  # name: (loss, kind, number)
    "squared": (SquaredError(), linear.SQUARED, 0.0),
    "logistic": (Logistic(), linear.LOGISTIC, 0.0),
    "multinomial": (Multinomial(), linear.MULTINOMIAL, 0.0),
    "squared_hinge": (SquaredHinge(), linear.SQUARED_HINGE, 0.0),
    "hinge": (Hinge(), linear.HINGE, 0.0),
    "huber": (Huber(0.4), linear.HUBER, 0.4),
    "smoothed_hinge": (SmoothedHinge(0.6), linear.SMOOTHED_HINGE, 0.6),
    "epsilon": (EpsilonInsensitive(0.2), linear.EPSILON, 0.2),
    "quantile": (Quantile(0.3), linear.QUANTILE, 0.3),
}
SMOOTH = ["squared", "logistic", "multinomial", "squared_hinge", "huber", "smoothed_hinge"]
MARGIN = ["logistic", "squared_hinge", "hinge", "smoothed_hinge"]
each_loss = pytest.mark.parametrize("name", CASES)
each_smooth = pytest.mark.parametrize("name", SMOOTH)


def both(X, dtype=np.float64):
    return DenseRows(X.astype(dtype)), SparseRows(sps.csr_matrix(X.astype(dtype)))


def outputs(name, C):
    """Multinomial has two outputs or more."""
    return max(C, 2) if name == "multinomial" else C


def grid(name):
    y = [-1.0, 1.0] if name in MARGIN else np.linspace(-2.3, 2.2, 10)
    u = np.r_[-800.0, -40.0, np.linspace(-3.137, 3.141, 173), 40.0, 800.0]
    return np.array([[a, b] for a in y for b in u])


# Losses ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CASES if name != "multinomial"])
def test_values_and_slopes_of_one_output(name):
    loss, kind, number = CASES[name]
    points = grid(name)
    y, u = points[:, [0]], points[:, [1]]
    values = np.array([linear.value(kind, number, a, b) for a, b in points])
    slopes = np.array([linear.slope(kind, number, a, b) for a, b in points])
    np.testing.assert_allclose(
        values, oracles.value(name, y, u, number), rtol=1e-13, atol=1e-15
    )
    np.testing.assert_allclose(values, loss.value(y, u), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(slopes, loss.gradient(y, u)[:, 0], rtol=1e-13, atol=1e-15)
    e = 1e-6
    change = oracles.value(name, y, u + e, number) - oracles.value(name, y, u - e, number)
    kinks = {"hinge": [1 - (y * u)], "epsilon": [abs(u - y) - number], "quantile": [u - y]}
    smooth = np.all([abs(k[:, 0]) > 1e-3 for k in kinks.get(name, [y + 9])], axis=0)
    assert smooth.mean() > 0.9
    near = smooth & (abs(u[:, 0]) < 5)
    np.testing.assert_allclose(slopes[near], change[near] / (2 * e), atol=1e-5)


def test_slope_is_monotone_and_bounded_by_the_curvature():
    bound = {"squared": 1, "logistic": 0.25, "squared_hinge": 2, "huber": 1,
             "smoothed_hinge": 1 / 0.6}  # fmt: skip
    for name, top in bound.items():
        _, kind, number = CASES[name]
        u = np.linspace(-4, 4, 4001)
        bend = np.diff([linear.slope(kind, number, 1.0, v) for v in u]) / np.diff(u)
        assert bend.min() >= -1e-12
        assert top * 0.99 < bend.max() <= top * (1 + 1e-9)


@each_loss
@pytest.mark.parametrize("C", [1, 3])
def test_rows_of_losses(name, C):
    C = outputs(name, C)
    loss, kind, number = CASES[name]
    assert loss_kind(loss, C)[0] == kind
    np.testing.assert_array_equal(loss_kind(loss, C)[1], np.full(C, number))
    _, Y = oracles.data(name, 2600, 3, C)
    U = np.random.default_rng(1).standard_normal(Y.shape) * 3
    p = np.random.default_rng(2).random(2600)
    total, G = linear.losses(kind, np.full(C, number), Y, U, p)
    assert total == pytest.approx(p @ loss.value(Y, U), rel=1e-12)
    assert total == pytest.approx(p @ oracles.value(name, Y, U, number), rel=1e-12)
    np.testing.assert_allclose(G, loss.gradient(Y, U), rtol=1e-11, atol=1e-14)
    out = np.empty(C)
    for i in (0, 17, 2599):
        linear.slopes_of_row(kind, np.full(C, number), Y[i], U[i], out)
        np.testing.assert_allclose(out, G[i], rtol=1e-12, atol=1e-15)
        one = linear.value_of_row(kind, np.full(C, number), Y[i], U[i])
        assert one == pytest.approx(loss.value(Y[[i]], U[[i]])[0], rel=1e-12)


def test_multinomial_survives_large_responses():
    Y, U = np.eye(3), np.array([[900.0, 0, -900], [900, 900, 900], [-900, 0, 900]])
    total, G = linear.losses(linear.MULTINOMIAL, np.zeros(3), Y, U, np.ones(3))
    assert total == pytest.approx(0 + np.log(3) + 0)
    np.testing.assert_allclose(G[1], [1 / 3, -2 / 3, 1 / 3])
    e, U = 1e-6, np.array([[0.3, -1.2, 2.0]])
    slopes = linear.losses(linear.MULTINOMIAL, np.zeros(3), Y[:1], U, np.ones(1))[1][0]
    for c in range(3):
        step = e * np.eye(3)[c]
        up, down = (oracles.value("multinomial", Y[:1], U + s)[0] for s in (step, -step))
        assert slopes[c] == pytest.approx((up - down) / (2 * e), abs=1e-8)


def test_quantiles_may_differ_between_outputs():
    kind, numbers = loss_kind(Quantile([0.2, 0.7]), 2)
    Y, U = np.zeros((2, 2)), np.array([[1.0, 1.0], [-1.0, -1.0]])
    G = linear.losses(kind, numbers, Y, U, np.ones(2))[1]
    np.testing.assert_allclose(G, [[0.8, 0.3], [-0.2, -0.7]])


def test_absolute_loss_is_epsilon_zero():
    assert loss_kind(Absolute(), 2)[0] == linear.EPSILON
    np.testing.assert_array_equal(loss_kind(Absolute(), 2)[1], [0.0, 0.0])


@each_smooth
def test_second_derivatives(name):
    C = 3
    _, kind, number = CASES[name]
    _, Y = oracles.data(name, 40, 3, C)
    U = np.random.default_rng(1).standard_normal(Y.shape)
    for y, u in zip(Y, U, strict=True):
        out = np.full((C, C), np.nan)
        linear_moments.bends_of_row(kind, np.full(C, number), y, u, out)
        np.testing.assert_allclose(out, oracles.bends(name, y, u, number), atol=1e-6)


# Proximal and missed steps --------------------------------------------------------------


@given(st.floats(-3, 3), st.floats(0, 2), st.floats(0, 2), st.floats(0, 2))
@settings(max_examples=100, deadline=None)
def test_shrink_is_the_proximal_point(w, eta, l1, l2):
    got = steps.shrink(w, eta, l1, l2)
    assert got == pytest.approx(oracles.prox(np.float64(w), eta, l1, l2), rel=1e-13, abs=1e-15)

    def f(v):
        return (v - w) ** 2 / 2 + eta * (l1 * abs(v) + l2 / 2 * v * v)

    assert all(f(got) <= f(got + s) + 1e-15 for s in (-0.3, -1e-4, 1e-4, 0.3))


rate = st.one_of(st.just(0.0), st.floats(1e-6, 3.0))


@given(w=st.floats(-2, 2), mean=st.one_of(st.just(0.0), st.floats(-1.5, 1.5)),
       eta=st.floats(1e-4, 1.0), l1=rate, l2=rate, k=st.integers(0, 60))  # fmt: skip
@settings(max_examples=400, deadline=None)
def test_missed_steps_are_that_many_steps(w, mean, eta, l1, l2, k):
    tables = steps.step_tables(60, eta, l2)
    expected = np.float64(w)
    for _ in range(k):
        expected = oracles.prox(expected - eta * mean, eta, l1, l2)
    got = steps.missed_steps(w, mean, k, eta, l1, l2, *tables)
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_missed_steps_through_zero():
    # down through zero, out on the other side; and down to zero to stay
    for mean, l1, end in [(1.0, 0.5, -0.5), (0.4, 0.5, 0.0), (-1.0, 0.5, 0.5)]:
        eta, l2 = 0.01, 0.0
        tables = steps.step_tables(1000, eta, l2)
        w = 0.3 * np.sign(mean)
        expected = w
        for _ in range(1000):
            expected = oracles.prox(expected - eta * mean, eta, l1, l2)
        got = steps.missed_steps(w, mean, 1000, eta, l1, l2, *tables)
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


PENALTIES = [(0.0, 0.0), (0.2, 0.0), (0.0, 0.3), (0.1, 0.2)]


@each_loss
@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("p", [1, 3, 10])
@pytest.mark.parametrize("mode", ["none", "table", "moving"])
def test_loops_take_the_steps_of_the_formula(name, C, p, mode):
    C = outputs(name, C)
    _, kind, number = CASES[name]
    numbers, eta = np.full(C, number), 0.17
    for trial, (l1, l2) in enumerate(PENALTIES):
        for fit_bias in (False, True):
            case = loop_case(name, C, p, seed=trial)
            table = case.rng.standard_normal(case.Y.shape)
            share = case.weights[:, None] * table
            references = {}
            if mode != "none":
                references = {"table": table, "mean": case.X.T @ share,
                              "mean_bias": share.sum(0)}  # fmt: skip
            if mode == "moving":
                references["moving"] = case.weights
            expected = oracles.descend((name, number), case.X, case.Y, case.W, case.b,
                                       case.order, case.share, eta, l1, l2, fit_bias,
                                       **references)  # fmt: skip
            for rows in (*both(case.X), *both(case.X, np.float32)):
                W, b = rows.native(case.W), case.b.copy()
                given_ = {key: v.copy() for key, v in references.items()}
                if mode != "none":
                    given_["mean"] = rows.native(given_["mean"])
                seen = rows.descend(kind, numbers, case.Y, W, b, case.order, case.share, eta,
                                    l1, l2, fit_bias, **given_)  # fmt: skip
                np.testing.assert_allclose(rows.public(W), expected[0], atol=1e-11, rtol=1e-9)
                np.testing.assert_allclose(b, expected[1], atol=1e-11, rtol=1e-9)
                assert seen == pytest.approx(expected[2], rel=1e-9)
                if mode == "moving":
                    np.testing.assert_allclose(given_["table"], expected[3], atol=1e-11)
                    np.testing.assert_allclose(rows.public(given_["mean"]), expected[4],
                                               atol=1e-11)  # fmt: skip
                    np.testing.assert_allclose(given_["mean_bias"], expected[5], atol=1e-11)
                elif mode == "table":
                    np.testing.assert_array_equal(given_["table"], table)
                if not fit_bias:
                    np.testing.assert_array_equal(b, case.b)


def test_large_steps_and_long_waits_agree():
    """Columns that one row in hundreds touches, with a penalty that takes them to zero."""
    rng = np.random.default_rng(3)
    n, d, T = 300, 40, 900
    X = (rng.random((n, d)) < 0.01) * rng.standard_normal((n, d))
    Y = np.where(rng.random((n, 1)) < 0.5, 1.0, -1.0)
    order, share = rng.integers(0, n, (T, 2)), np.full((T, 2), 0.5)
    W, b = rng.standard_normal((d, 1)), np.zeros(1)
    table = rng.standard_normal((n, 1)) * 0.3
    mean = X.T @ table / n
    expected = oracles.descend(("logistic", 0.0), X, Y, W, b, order, share, 0.5, 2e-3, 1e-3,
                               True, table, mean, table.mean(0))  # fmt: skip
    assert 0 < (expected[0] == 0).sum() < d
    for rows in both(X):
        V, c = rows.native(W), b.copy()
        rows.descend(linear.LOGISTIC, np.zeros(1), Y, V, c, order, share, 0.5, 2e-3, 1e-3, True,
                     table, rows.native(mean), table.mean(0))  # fmt: skip
        np.testing.assert_allclose(rows.public(V), expected[0], atol=1e-11)
        np.testing.assert_array_equal(rows.public(V) == 0, expected[0] == 0)
        np.testing.assert_allclose(c, expected[1], atol=1e-11)


def small_graph(name, case, C, k=3, m=5):
    """A graph by hand: any weights, two targets for each output where labels couple."""
    n, rng = len(case.X), case.rng
    anchors = rng.permutation(n)[:m]
    near = np.array([rng.permutation(m)[:k] for _ in range(n)])
    gamma = rng.random((n, k))
    gamma /= gamma.sum(1, keepdims=True)
    shared = name in ("squared", "logistic", "multinomial")
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
    return SimpleNamespace(anchors=anchors, near=near, gamma=gamma, code=code, targets=targets,
                           product=product, product_bias=product_bias, spread=spread,
                           offset=case.X.T @ part, offset_bias=part.sum(0))  # fmt: skip


@each_smooth
@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("p", [1, 3, 10])
def test_loops_with_anchors_take_the_steps_of_the_formula(name, C, p):
    C = outputs(name, C)
    _, kind, number = CASES[name]
    eta, inner = 0.11, 8
    for trial, (l1, l2) in enumerate(PENALTIES):
        case = loop_case(name, C, p, seed=10 + trial)
        graph = small_graph(name, case, C)
        fit_bias = trial % 2 == 0
        own = graph.targets[graph.code, np.arange(C)]
        W, b, seen = case.W, case.b, 0.0
        for t in range(0, len(case.order), inner):  # 37 steps: the last part is shorter
            edges = graph.anchors, graph.near, graph.gamma
            h = graph.spread + oracles.references((name, number), case.X, own, W, b, *edges)
            H = case.X.T @ (case.weights[:, None] * h)
            part = slice(t, t + inner)
            W, b, more, *_ = oracles.descend((name, number), case.X, case.Y, W, b,
                                             case.order[part], case.share[part], eta, l1, l2,
                                             fit_bias, h, H, case.weights @ h)  # fmt: skip
            seen += more
        for rows in (*both(case.X), *both(case.X, np.float32)):
            V, c = rows.native(case.W), case.b.copy()
            got = rows.descend_manifold(
                kind, np.full(C, number), case.Y, V, c, case.order, case.share, eta, l1, l2,
                fit_bias, inner, graph,
            )  # fmt: skip
            np.testing.assert_allclose(rows.public(V), W, atol=1e-10, rtol=1e-9)
            np.testing.assert_allclose(c, b, atol=1e-10, rtol=1e-9)
            assert got == pytest.approx(seen, rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_with_rows(dtype):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 9)) * (rng.random((3000, 9)) < 0.4)
    X = X.astype(dtype)
    X[5] = 0
    W, b, G = (
        rng.standard_normal((9, 3)),
        rng.standard_normal(3),
        rng.standard_normal((3000, 3)),
    )
    exact = X.astype(float)
    for rows in both(X, dtype):
        np.testing.assert_allclose(rows.responses(rows.native(W), b), exact @ W + b, atol=1e-12)
        np.testing.assert_allclose(rows.public(rows.gradient(G)), exact.T @ G, atol=1e-10)
        np.testing.assert_allclose(rows.squared_norms(), (exact**2).sum(1), rtol=1e-6)
        np.testing.assert_array_equal(rows.public(rows.native(W)), W)
        copy = rows.native(W)
        copy[:] = 0
        assert W.any()
    assert both(X)[1].row_size == pytest.approx((X != 0).sum() / 3000)
    assert both(X)[0].row_size == 9


def test_rows_with_repeated_and_unsorted_entries():
    rows = sps.csr_matrix((np.arange(1.0, 6.0), [2, 0, 2, 3, 1], [0, 3, 3, 5]), (3, 4))
    W, b = np.arange(8.0).reshape(4, 2), np.zeros(2)
    before = rows.data.copy()
    made, exact = SparseRows(rows), rows.toarray()
    np.testing.assert_allclose(made.responses(W.copy(), b), exact @ W)
    np.testing.assert_allclose(made.squared_norms(), (exact**2).sum(1))
    np.testing.assert_array_equal(rows.data, before)


def test_smallest_entries():
    D = np.random.default_rng(0).random((50, 13))
    D[0, :] = 1.0
    for k in (1, 4, 13):
        places, values = np.empty((50, k), np.int64), np.empty((50, k))
        steps.smallest(D, k, places, values)
        np.testing.assert_array_equal(values, np.sort(D, axis=1)[:, :k])
        np.testing.assert_array_equal(np.take_along_axis(D, places, 1), values)
        assert all(len(set(row)) == k for row in places)


@each_smooth
@pytest.mark.parametrize("C", [1, 3])
def test_loop_with_moments_takes_the_steps_of_the_formula(name, C):
    """References from two groups, their mean in closed form at every step."""
    C = outputs(name, C)
    _, kind, number = CASES[name]
    l1, l2, eta = 0.03, 0.2, 0.1
    case = loop_case(name, C, 3, T=25)
    X, p, n = case.X, case.weights, 24
    group = np.arange(n) % 2
    targets = np.array([case.Y[0], case.Y[1]])
    part = np.array([p[group == c].sum() for c in range(2)])
    centre = np.array([p[group == c] @ X[group == c] / part[c] for c in range(2)])
    spread = [X[group == c] - centre[c] for c in range(2)]
    covariance = np.array([
        (s.T * p[group == c]) @ s / part[c] for c, s in enumerate(spread)
    ])  # fmt: skip
    W, b, seen = case.W, case.b, 0.0
    for rows, share in zip(case.order, case.share, strict=True):
        r = oracles.class_references(name, number, X, W, b, p, group, targets)
        W, b, more, *_ = oracles.descend((name, number), X, case.Y, W, b, rows[None],
                                         share[None], eta, l1, l2, True, r,
                                         X.T @ (p[:, None] * r), p @ r)  # fmt: skip
        seen += more
    csr = sps.csr_matrix(X)
    none, ints = np.zeros(0), np.zeros(0, np.int32)
    for rows in (
        (X, none, ints, ints),
        (np.zeros((0, 0)), csr.data, csr.indices, csr.indptr),
    ):
        V, c = case.W.T.copy(order="C"), case.b.copy()
        got = linear_moments.descend(kind, np.full(C, number), *rows, case.Y, V, c, case.order,
                                     case.share, eta, l1, l2, True, group, part, centre,
                                     covariance, targets)  # fmt: skip
        np.testing.assert_allclose(V.T, W, atol=1e-7)  # second derivatives of the reference
        np.testing.assert_allclose(c, b, atol=1e-7)
        assert got == pytest.approx(seen, rel=1e-6)
