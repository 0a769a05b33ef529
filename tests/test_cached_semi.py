"""Cached block descent where some rows have no label."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from sklearn.svm import SVC

from cases import every
from kernelgrad import CapabilityError
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import Hinge, Ramp, SemiSupervised, get_loss, get_unlabelled_loss
from kernelgrad.solvers import BlockDescent, Problem, TrainBatch
from kernelgrad.solvers.block_descent.objective import RowObjective
from steps import solve

MATCHES = [
    ("hinge", "symmetric_hinge"),
    ("hinge", Ramp(s=-0.4)),
    ("squared_hinge", "squared_symmetric_hinge"),
]
N, LABELLED, GAMMA = 300, 30, 0.3


def joint(loss, unlabelled, ratio=0.5):
    labelled = get_loss(loss, task="classification", n_classes=2)
    return SemiSupervised(labelled, get_unlabelled_loss(unlabelled), ratio)


def case(loss, unlabelled, alpha=2e-3):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((N, 3)).astype(np.float32)
    y = np.where(X[:, :1] + 0.4 * rng.standard_normal((N, 1)) > 0.2, 1.0, -1.0)
    y[LABELLED:] = 0.0
    weight = np.where(np.arange(N) < LABELLED, 1 / LABELLED, 1 / (N - LABELLED))
    one = Problem(
        loss=joint(loss, unlabelled), kernel=Gaussian(gamma=GAMMA), alpha=alpha,
        n_outputs=1, n_features_in=3, seed=1, fixed_rows=True,
    )  # fmt: skip
    return one, TrainBatch(X, y.astype(np.float32), weight, np.arange(N))


def kernel(X):
    X = X.astype(float)
    return np.exp(-GAMMA * ((X[:, None] - X[None]) ** 2).sum(axis=2))


def descend(one, batch, steps=60, **params):
    solver = BlockDescent(**params)
    solver.check_problem(one)
    return solver, *solve(solver, one, batch, steps)


def coefficients(solver, state, n):
    """Return the coefficients (C, n) of all rows."""
    index, coef = solver.coefficients(state)
    out = np.zeros((len(coef), n))
    out[:, index] = coef
    return out


def value(one, batch, K, coef, bias):
    """The objective from coefficients (n, C) and bias alone."""
    f = K @ coef
    p = batch.sample_weight / batch.sample_weight.sum()
    loss = one.loss.value(batch.y.astype(float), f + bias)
    return p @ loss + 0.5 * one.alpha * np.einsum("nc,nc->", coef, f)


def computed_objective(one, batch, solver, state):
    coef = coefficients(solver, state, len(batch.X)).T
    return value(one, batch, kernel(batch.X), coef, state.iterate.result_bias)


@every(("loss", "unlabelled"), MATCHES)
@every("share", [1.0, 0.3])
def test_fixed_sides_lie_above_and_touch(loss, unlabelled, share):
    rng = np.random.default_rng(0)
    Y = rng.choice([-1.0, 1.0], (2, 40)).astype(np.float32)
    Y[:, 12:] = 0.0
    weight = (rng.random(40) + 0.1).astype(np.float32)
    objective = RowObjective(joint(loss, unlabelled), Y, weight, 40)
    truth = RowObjective(joint(loss, unlabelled, 0.5 * share), Y, weight, 40)
    widths = np.full(2, 1e-9)
    R, W = (np.empty((2, 40), np.float32) for _ in range(2))
    U = rng.standard_normal((2, 40)).astype(np.float32)
    at = objective.at(U, share)
    smooth, exact = at.derivatives(widths, U, R, W)
    assert exact == pytest.approx(truth.mean(U), rel=1e-6)
    assert smooth == pytest.approx(exact, rel=1e-6)
    gradient = truth.loss.gradient(Y.T, U.T.astype(float)).T * truth.weight
    np.testing.assert_allclose(R, gradient, atol=1e-6)
    for _ in range(20):
        V = U + rng.standard_normal((2, 40)).astype(np.float32)
        _, above = at.derivatives(widths, V, R, W)
        assert above >= truth.mean(V) - 1e-6
    zero = np.zeros((2, 3))
    along = at.along(widths, U, np.zeros(2), U, U, zero, 7)
    assert along[:, 0].sum() == pytest.approx(exact, rel=1e-6)


@every(
    ("loss", "unlabelled", "size"),
    [
        ("hinge", "symmetric_hinge", "auto"),
        ("hinge", Ramp(s=-0.4), 64),
        ("squared_hinge", "squared_symmetric_hinge", 64),
        ("logistic", "gaussian", 64),
    ],
)
def test_objective_is_what_it_claims_and_falls(loss, unlabelled, size):
    one, batch = case(loss, unlabelled)
    solver, state, infos = descend(one, batch, block_size=size)
    assert state.iterate.share == 1
    assert solver.finish(one, state, batch)["drift"] < 1e-4
    computed = computed_objective(one, batch, solver, state)
    assert infos[-1].objective == pytest.approx(computed, rel=1e-4)
    path = [info.objective for info in infos[12:]]  # blocks at most before the loss is whole
    assert all(b <= a * (1 + 1e-3) for a, b in pairwise(path))
    assert infos[-1].objective < infos[0].objective


def test_end_is_the_machine_of_its_own_sides():
    one, batch = case("hinge", "symmetric_hinge")
    solver, state, infos = descend(one, batch, steps=120, tol=1e-5)
    K = kernel(batch.X)
    f = K @ coefficients(solver, state, N)[0] + state.iterate.result_bias
    side = np.where(batch.y[:, 0] != 0, batch.y[:, 0], np.sign(f))
    assert len(np.unique(side)) == 2
    p = batch.sample_weight / batch.sample_weight.sum()
    cost = p * np.where(batch.y[:, 0] != 0, 1.0, 0.5) / one.alpha
    machine = SVC(C=1.0, kernel="precomputed", tol=1e-8).fit(K, side, sample_weight=cost)
    coef = np.zeros((N, 1))
    coef[machine.support_, 0] = machine.dual_coef_[0]
    best = value(one, batch, K, coef, machine.intercept_)
    assert infos[-1].objective == pytest.approx(best, rel=2e-3)


def test_labels_come_before_sides():
    one, batch = case("hinge", "symmetric_hinge")
    solver = BlockDescent(block_size=16)
    state = solver.init(one, batch)
    solver.step(one, state, batch)
    assert state.iterate.share == 0
    used = np.flatnonzero(coefficients(solver, state, N).any(axis=0))
    assert np.all(used < LABELLED)  # rows without a label have no slope yet
    shares = [0.0]
    for _ in range(20):
        solver.step(one, state, batch)
        shares.append(state.iterate.share)
    assert list(dict.fromkeys(shares)) == [0.0, 0.1, 0.3, 1.0]
    assert coefficients(solver, state, N).any(axis=0)[LABELLED:].any()


def test_a_constant_is_no_result():
    # one side for all rows makes this objective smaller than any function that labels some
    one, batch = case("hinge", "symmetric_hinge", alpha=0.5)
    _, state, _ = descend(one, batch)
    assert not state.iterate.is_poor


@pytest.mark.parametrize("unlabelled", ["squared_symmetric_hinge", "gaussian"])
def test_kinks_that_do_not_match_are_refused(unlabelled):
    one, _ = case("hinge", unlabelled)
    with pytest.raises(CapabilityError, match="squared_hinge"):
        BlockDescent().check_problem(one)
    assert SemiSupervised(Hinge(), get_unlabelled_loss("gaussian")).pseudo_factor is None
