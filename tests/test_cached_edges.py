"""Cached-response block descent: every kernel, rows and targets that break solvers."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from sklearn.base import clone

import oracles_cached as oracles
from cached_cases import (
    BY_NAME,
    GAMMA,
    assert_true,
    audit,
    cached,
    case_constant,
    each_block,
    edge_targets,
    edges,
    even,
    feature_norm,
    raw,
    signal,
    signs_of,
    slack,
    slow,
    some_cases,
    sometimes,
)
from cases import every
from kernelgrad.kernels import (
    KERNELS,
    ArcCosine,
    Chi2,
    ConvolutionKernel,
    Gaussian,
    Laplacian,
    ProductKernel,
    SumKernel,
)
from kernelgrad.solvers import CachedBlockDescent
from plain import plain_regressor

# -- kernels ---------------------------------------------------------------------------


@some_cases
def test_a_matrix_or_a_function_is_a_kernel(case):
    X, t = signal(300, seed=21)
    Z, _ = signal(50, seed=22)
    y = case.targets(t)
    model = case.model()
    built_in = clone(model).fit(X, y)
    given = clone(model).set_params(kernel="precomputed")
    given.fit(oracles.gaussian(X, X, GAMMA), y)
    function = clone(model).set_params(kernel=lambda A, B: oracles.gaussian(A, B, GAMMA))
    function.fit(X, y)
    a = built_in.history_["objective"][-1]
    scale = np.abs(raw(built_in, Z)).max()
    for other, rows in ((given, oracles.gaussian(Z, X, GAMMA)), (function, Z)):
        assert other.history_["objective"][-1] == pytest.approx(a, rel=2 * slack(case, True))
        np.testing.assert_allclose(raw(other, rows), raw(built_in, Z), atol=2e-2 * scale)


COMPOSED = {
    "sum": SumKernel([Gaussian(2.0), Chi2(), ArcCosine(1)], [0.5, 2.0, 1.0]),
    "product": ProductKernel([Laplacian(0.3), Chi2()]),
    "convolutional": ConvolutionKernel((6, 6), 3, pool_size=2, gamma=0.3),
}

each_kernel = every("name", sorted(set(KERNELS) - {"precomputed"}))


@each_kernel
@each_block
def test_every_kernel_runs(name, blocks):
    X = np.random.default_rng(0).random((160, 36)) + 0.01
    X /= X.sum(axis=1, keepdims=True)
    t = 40 * (X[:, 0] - X[:, 1]) + 0.1 * np.random.default_rng(1).standard_normal(160)
    kernel = KERNELS[name]() if name not in COMPOSED else COMPOSED[name]
    solver = cached(blocks=blocks, block_size=64)
    model = plain_regressor(
        kernel=kernel, solver=solver, alpha=1e-4, max_iter=6, random_state=0
    )
    model.fit(X, t)
    objective = np.array(model.history_["objective"])
    assert np.isfinite(raw(model, X)).all()
    rises = np.diff(objective) / objective[:-1]
    assert (rises[:-1] <= 1e-5).all()
    # the last is the float64 audit's of responses that were summed in float32
    assert rises[-1] <= len(X) * len(objective) * np.finfo(np.float32).eps
    assert objective[-1] < t.var() / 2
    loss = ((t - model.predict(X)) ** 2 / 2).mean()
    e = model.expansion_
    if blocks == "features":
        norm = feature_norm(model)
    else:
        rows = e.support
        norm = float(
            np.einsum("ic,ij,jc->", e.coef, e.exact.matrix(rows, rows).astype(float), e.coef)
        )
    assert objective[-1] == pytest.approx(loss + 1e-4 / 2 * norm, rel=1e-3)


def kernel_of_features(model, X, n_blocks):
    """Return sum_j phi_j(X) phi_j(X)' / J."""
    stream = model.expansion_.stream
    rows = stream.prepare(X)
    blocks = [stream.transform(rows, j).astype(float) for j in range(n_blocks)]
    return sum(phi @ phi.T for phi in blocks) / n_blocks


@pytest.mark.parametrize("name", ["squared", pytest.param("logistic-2", marks=slow)])
def test_one_block_of_features_is_solved_and_more_features_are_nearer_the_kernel(name):
    case, (X, t) = BY_NAME[name], signal()
    y = case.targets(t)
    Y, alpha = case.encode(y), 1e-2
    exact = case.minimum(oracles.gaussian(X, X, GAMMA), Y, even(400), alpha, True)
    gaps = []
    for size in (16, 128, 2048):
        solver = cached(blocks="features", block_size=size, n_blocks=1)
        model = case.model(alpha=alpha, solver=solver, max_iter=20).fit(X, y)
        claim = assert_true(model, X, partial(case.value, Y), even(400), alpha)
        own = case.minimum(kernel_of_features(model, X, 1), Y, even(400), alpha, True)
        assert own * (1 - 1e-5) <= claim <= own * (1 + 1e-5)
        gaps.append(abs(claim - exact) / exact)
    assert gaps[2] < 0.03
    assert gaps[2] < gaps[1] < gaps[0] / 2


@sometimes("log_loss-3", "squared")
@pytest.mark.parametrize("n_blocks", [5, pytest.param("auto", marks=slow)])
def test_blocks_of_features_are_one_problem(case, n_blocks):
    X, t = signal(200)
    y = case.targets(t)
    Y = case.encode(y)
    solver = cached(blocks="features", block_size=32, n_blocks=n_blocks)
    model = case.model(solver=solver).fit(X, y)
    value = partial(case.value, Y)
    claim = assert_true(model, X, value, even(200), 1e-3, falls=not case.kinked)
    K = kernel_of_features(model, X, 16 if n_blocks == "auto" else n_blocks)
    best = case.minimum(K, Y, even(200), 1e-3, True)
    assert best * (1 - 1e-5) <= claim <= best * (1 + slack(case, False))


# -- edges -----------------------------------------------------------------------------

EDGE_CASES = (
    "log_loss-2",
    "log_loss-3",
    "hinge-2",
    "squared",
    "huber",
    "absolute",
    "quantiles",
)


@pytest.mark.parametrize(
    ("edge", "name", "alpha"),
    [
        ("a rare class", "hinge-2", 1e-3),
        ("a rare class", "quantile", 1e2),
        ("targets far from zero", "quantiles", 1e2),
        ("one row repeated", "quantiles", 1e2),
    ],
)
def test_a_kink_ends_no_higher_than_the_constant(edge, name, alpha):
    # most rows lie on the kink at the optimum, where smoothing errs most
    X, t = edges()[edge]
    case = BY_NAME[name]
    y = edge_targets(case, edge, t)
    Y = case.encode(y)
    solver = CachedBlockDescent(block_size=16)
    model = case.model(alpha=alpha, gamma=0.01, solver=solver).fit(X, y)
    start = case.value(Y, np.tile(case_constant(model, Y), (60, 1))).sum(1).mean()
    assert model.history_["objective"][-1] <= start * (1 + 1e-3)


@every("edge", edges())
@each_block
def test_edges_leave_claims_true(edge, blocks):
    # float32 rows are not the rows given at some edges: there predictions alone are compared
    rounded = edge in ("one outlier among rows", "great columns", "far clusters")
    X, t = edges()[edge]
    n = len(X)
    for case in (BY_NAME[name] for name in EDGE_CASES):
        y = edge_targets(case, edge, t)
        if y is None:
            continue
        Y = case.encode(y)
        for alpha, gamma in ((1e-9, 10.0), (1e2, 0.01)):
            solver = CachedBlockDescent(blocks=blocks, block_size=16)
            model = case.model(alpha=alpha, gamma=gamma, solver=solver, max_iter=5).fit(X, y)
            start = case.value(Y, np.tile(case_constant(model, Y), (n, 1))).sum(1).mean()
            claim, predicted, computed = audit(
                model, X, partial(case.value, Y), even(n), alpha, gamma
            )
            where = f"{case.name} alpha={alpha} gamma={gamma}"
            assert np.isfinite(raw(model, X)).all(), where
            # five steps are too few for a smoothed kink
            assert case.kinked or claim <= start * (1 + 1e-6) + 1e-12, where
            # great coefficients on rows side by side feel the rounding of kernel values, which
            # are float32 in the fit, float64 in predictions that show it
            near = pytest.approx(claim, rel=1e-2, abs=1e-5 * start + 1e-12)
            assert predicted == near, where
            assert rounded or computed == near, where


@pytest.mark.parametrize("copies", [1, 40])
def test_identical_rows_with_one_label_under_log_loss(copies):
    # the constant of a single class is at infinity: what is claimed must still be true
    X = np.repeat(np.ones((1, 2)), 2 * copies, axis=0)
    X[copies:] = 1e3
    y = np.repeat([0, 1], copies)
    for alpha in (1e-3, 1e-9):
        model = BY_NAME["log_loss-2"].model(
            alpha=alpha, solver=cached(block_size=8), max_iter=20
        )
        model.fit(X, y)
        value = partial(oracles.LOSSES["logistic"], signs_of(y))
        rel = 1e-4 if alpha == 1e-3 else 1e-3
        claim, predicted, computed = audit(model, X, value, even(2 * copies), alpha)
        assert claim == pytest.approx(predicted, rel=rel, abs=1e-9)
        assert claim == pytest.approx(computed, rel=rel, abs=1e-9)
        K = oracles.gaussian(X, X, GAMMA)
        best = oracles.smooth_minimum("logistic", K, signs_of(y), even(2 * copies), 1e-3, True)
        assert alpha != 1e-3 or claim == pytest.approx(best, rel=1e-3)


def test_one_row_is_its_own_target():
    for blocks in ("support", "features"):
        solver = CachedBlockDescent(blocks=blocks)
        model = BY_NAME["squared"].model(solver=solver).fit([[1.0, 2.0]], [3.0])
        assert model.predict([[1.0, 2.0]])[0] == pytest.approx(3.0, abs=1e-6)
        assert model.history_["objective"][-1] == pytest.approx(0.0, abs=1e-9)


@each_block
def test_a_constant_target_needs_no_function(blocks):
    X, _ = signal(100)
    solver = CachedBlockDescent(blocks=blocks)
    for name in ("squared", "absolute", "huber", "epsilon_insensitive", "quantile"):
        model = BY_NAME[name].model(solver=solver, max_iter=100).fit(X, np.full(100, 7.0))
        width = oracles.EPSILON if name == "epsilon_insensitive" else 0.0
        np.testing.assert_allclose(model.predict(X), 7.0, atol=width + 1e-5)
        assert model.history_["objective"][-1] == pytest.approx(0.0, abs=1e-6)
