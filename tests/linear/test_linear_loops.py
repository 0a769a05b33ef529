"""Rows, missed steps and stochastic loops of the linear solvers, against their formulas."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sps
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles_linear as oracles
from cases import every
from kernelgrad import losses
from kernelgrad.compute.rows import as_rows
from kernelgrad.linear import loops
from kernelgrad.linear.base import PreparedRows
from kernelgrad.linear.loops import dot
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


@each_loss
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
                r = loops.Table(loops.FOREVER, mean, weighted.sum(axis=0), slopes.copy())
            seen = data.descend(problem, W, b, case.order, case.share, eta, r)
            np.testing.assert_allclose(data.native(W), expected[0], atol=1e-11, rtol=1e-9)
            np.testing.assert_allclose(b, expected[1], atol=1e-11, rtol=1e-9)
            assert seen == pytest.approx(expected[2], rel=1e-9)
            if not fit_bias:
                np.testing.assert_array_equal(b, case.b)
