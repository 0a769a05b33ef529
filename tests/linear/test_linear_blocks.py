"""Block methods for linear functions: their optimum, their steps, their bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import oracles_linear as oracles
from cases import every
from kernelgrad.linear.base import PreparedRows
from kernelgrad.linear.rbcd import RBCD
from kernelgrad.linear.stochastic import draw_batches
from kernelgrad.losses import (
    Absolute,
    Hinge,
    Huber,
    Logistic,
    ModifiedLogistic,
    Multinomial,
    SmoothedHinge,
    SquaredError,
    SquaredHinge,
)
from kernelgrad.papers.dsg.rivals.sbmd import SBMD, descend_on_blocks
from kernelgrad.solvers.contract import TrainBatch
from oracles_losses import spec
from steps import linear_problem, solve

SMOOTH = [
    SquaredError(), Logistic(), SquaredHinge(), SmoothedHinge(), Huber(0.4), Multinomial(),
    ModifiedLogistic(5.0),
]  # fmt: skip
each_smooth = every("loss", SMOOTH)
each_form = pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])


def setting(
    loss, n=300, d=13, seed=0, *, outputs=2, weighted=False, form=np.asarray, **options
):
    """Rows with a third of the entries, a mean apart from zero and weights 0 to 3."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) + 0.5) * (rng.random((n, d)) < 0.35)
    true = rng.standard_normal((d, outputs)) * (rng.random((d, 1)) < 0.5)
    y = X @ true + 0.5 * rng.standard_normal((n, outputs)) + 0.3
    if isinstance(loss, Multinomial):
        y = np.eye(outputs)[y.argmax(axis=1)]
    elif "classification" in loss.tasks:
        y = np.where(y > 0.2, 1.0, -1.0)
    weight = rng.integers(0, 4, n).astype(float) if weighted else np.ones(n)
    problem = linear_problem(loss, X, y, **{"alpha": 1e-2, "seed": 7, "tol": 1e-9} | options)
    return problem, TrainBatch(form(X), y, weight)


def plain(batch):
    X = batch.X.toarray() if sp.issparse(batch.X) else batch.X
    return X, batch.y, batch.sample_weight / batch.sample_weight.sum()


def value(problem, batch, W, b):
    X, y, p = plain(batch)
    return oracles.objective(spec(problem.loss), X, y, p, W, b, problem.l1, problem.l2)


@each_smooth
@every("l1_ratio", [0.0, 0.8])
def test_rbcd_ends_at_the_minimum(loss, l1_ratio):
    problem, batch = setting(loss, l1_ratio=l1_ratio, alpha=3e-2, weighted=True, outputs=3)
    X, y, p = plain(batch)
    W, b = oracles.optimum(spec(loss), X, y, p, problem.l1, problem.l2, True)
    forms = (("auto", np.asarray), (4, sp.csr_matrix), (4, np.asarray), (1, sp.csr_matrix))
    # the others differ in derivatives only
    most = {"squared": 4, "log_loss": 3}.get(problem.loss.name, 2)
    for size, form in forms[:most]:
        check_minimum(problem, replace(batch, X=form(X)), size, W, b)


def check_minimum(problem, batch, block_size, W, b):
    state, (*_, info) = solve(RBCD(block_size=block_size), problem, batch, 300)
    assert info.converged
    best = value(problem, batch, W, b)
    assert value(problem, batch, state.coef, state.bias) <= best + 1e-9 * best
    assert info.objective == pytest.approx(best, rel=1e-8)
    if isinstance(problem.loss, Multinomial):  # a constant in all outputs is free
        state.bias -= state.bias.mean() - b.mean()
    np.testing.assert_allclose(state.coef, W, atol=2e-4)
    np.testing.assert_allclose(state.bias, b, atol=2e-4)
    if problem.l1_ratio:
        np.testing.assert_array_equal(state.coef != 0, np.abs(W) > 1e-6)
        assert 0 < np.count_nonzero(state.coef) < W.size


def test_a_bias_that_is_its_own_block_is_visited():
    # rows with one entry each of many columns: no block has half of the rows
    n, d = 400, 100
    rng = np.random.default_rng(0)
    X = sp.csr_matrix((rng.random(n) + 0.5, (np.arange(n), rng.integers(0, d, n))), (n, d))
    y = np.where(rng.random((n, 1)) < 0.8, 1.0, -1.0)
    problem, _ = setting(Logistic(), d=d, outputs=1, alpha=1e-3)
    batch = TrainBatch(X, y, np.ones(n))
    state, (*_, info) = solve(RBCD(block_size=2), problem, batch, 300)
    assert state.blocks.bias is not None
    assert info.converged
    W, b = oracles.optimum(("logistic", 0.0), *plain(batch), 0.0, problem.l2, True)
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
@every("case", CASES)
@every(("alpha", "l1_ratio"), [(0.0, 0.0), (0.1, 0.5)])
@every("block_size", ["auto", 1])
def test_units_and_means_of_columns_do_not_matter(form, case, alpha, l1_ratio, block_size):
    X, true = scaled_rows(case)
    noise = 0.1 * np.random.default_rng(3).standard_normal(len(X))
    y = X @ true + noise
    problem, _ = setting(
        SquaredError(), d=X.shape[1], outputs=1, alpha=alpha, l1_ratio=l1_ratio, tol=1e-6
    )
    batch = TrainBatch(form(X), y[:, None], np.ones(len(X)))
    state, (*_, info) = solve(RBCD(block_size=block_size), problem, batch, 100)
    assert info.converged
    assert state.iteration < (10 if block_size == "auto" else 60)
    w, b = oracles.elastic_net(X, y, np.full(len(X), 1 / len(X)), problem.l1, problem.l2)
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
    np.testing.assert_array_equal(X, scaled_rows(case)[0])  # a copy is moved


@every("form", [np.asarray, sp.csr_matrix])
@every("columns", [{4: 1e7 / 3, 7: -0.1}, {3: 0.0, 4: 1.0, 5: 6}])
def test_constant_and_repeated_columns_without_penalty(columns, form):
    problem, batch = setting(SquaredError(), alpha=0.0, tol=1e-8)
    X = batch.X.copy()
    for j, constant in columns.items():
        X[:, j] = X[:, 6] if j == 5 else constant
    state, (*_, info) = solve(RBCD(), problem, replace(batch, X=form(X)), 300)
    assert info.converged
    assert not state.coef[[j for j in columns if j != 5]].any()
    rest = [j for j in range(13) if j not in columns]
    f, *_ = np.linalg.lstsq(np.c_[X[:, rest], np.ones(len(X))], batch.y, rcond=None)
    best = np.c_[X[:, rest], np.ones(len(X))] @ f
    np.testing.assert_allclose(X @ state.coef + state.bias, best, atol=1e-6)
    if 5 not in columns:
        np.testing.assert_allclose(state.coef[rest], f[:-1], atol=1e-6)
        np.testing.assert_allclose(state.bias, f[-1], atol=1e-6)


@each_form
@every("loss", [*SMOOTH, Hinge(), Absolute()])
def test_sbmd_steps_are_those_of_the_formula(loss, form):
    problem, batch = setting(loss, weighted=True, form=form, alpha=0.2, l1_ratio=0.4)
    solver = SBMD(batch_size=4, n_blocks=3)
    state = solver.init(problem, batch)
    data = state.data
    rng = np.random.default_rng(0)
    order, share = draw_batches(data, 50, 4, rng)
    chosen = rng.integers(0, 3, 50)
    np.testing.assert_array_equal(share, 0.25)
    eta, eta_bias = solver.first_steps(state, data, 4, 3)
    first = solver.cuts(13)
    eta *= 3.0  # a stranger scale than the solver's own, for penalties that bite
    W, b = data.native(state.coef), state.bias.copy()
    descend_on_blocks(data.code, data.numbers, data.rows, data.Y, W, b, order, share, chosen,
                      first, eta, eta_bias, problem.l1, problem.l2)  # fmt: skip
    X, y, _ = plain(batch)
    expected, bias = oracles.mirror_steps(
        spec(loss), X, y, state.coef.copy(), state.bias.copy(), order, chosen, first,
        eta, eta_bias, problem.l1, problem.l2,
    )  # fmt: skip
    np.testing.assert_allclose(data.native(W), expected, atol=1e-12)
    np.testing.assert_allclose(b, bias, atol=1e-12)
    assert np.abs(expected).max() > 0.05
    assert (expected == 0).any()


def test_automatic_blocks():
    def size(d, outputs=1, form=np.asarray):
        problem, batch = setting(Logistic(), n=40, d=d, outputs=outputs, form=form)
        return RBCD().resolve_block_size(PreparedRows.build(problem, batch))

    assert size(512) == 512
    assert size(513) == 32
    assert size(512, outputs=5) == 32
    assert size(100, outputs=20) == 100
    assert size(2000, form=sp.csr_matrix) == 64
    with pytest.raises(TypeError, match="n_blocks"):
        SBMD(n_blocks=2.5).check()
    np.testing.assert_array_equal(SBMD().cuts(3), [0, 1, 2, 3])
    np.testing.assert_array_equal(SBMD(n_blocks=3).cuts(13), [0, 4, 8, 13])
