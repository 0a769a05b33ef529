"""Leave-one-out objectives, their slopes, warps, penalties, and scalings of the columns."""

import itertools

import numpy as np
import pytest

import oracles_metric as oracle
from cases import every
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import Gaussian, Laplacian, Matern, RootLaplacian, SumKernel
from kernelgrad.search import leave_one_out as loo
from kernelgrad.search import machine as family
from kernelgrad.search import penalty
from kernelgrad.search.leave_one_out import Round
from kernelgrad.search.machine import LEAST, MOST, SHAPES, Bins, Machine, Sample

GROUPS = np.array([0, 1, 1, 2])
WEIGHTS = np.array([0.7, 0.3, 0.3, 0.2])
INTERCEPT = 4.0  # variance of the intercept of the logistic objective


def sample(n=24, classes=0, outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    X[1] = X[0]  # equal rows
    X[:, 3] = np.round(X[:, 3])  # few values
    Y = np.stack([np.sin(X[:, 0] + k) for k in range(outputs)], axis=1)
    Y += 0.3 * rng.standard_normal((n, outputs))
    codes = None
    if classes:
        codes = np.searchsorted(np.quantile(Y[:, 0], np.arange(1, classes) / classes), Y[:, 0])
        Y = np.eye(classes)[codes] if classes > 2 else codes[:, None].astype(float)
    weight = rng.uniform(0.2, 2.0, n)
    return Sample(X, Y - Y.mean(axis=0), weight / weight.mean(), codes)


def machine(s, parts, nu=2.5, ridge=5e-4, logistic=False):
    """Return a machine with the parameters `parts` and what they need; X gives the bins."""
    rng = np.random.default_rng(1)
    bins = Bins.of(s.X, 3) if "warp" in parts else None
    theta = {"smooth": np.log([0.7, 0.3, 0.2]), "ridge": np.log([ridge])}
    if "rough" in parts:
        theta |= {"rough": np.log([0.2, 0.9, 0.4]), "mix": np.array([0.4])}
    if bins is not None:
        theta["warp"] = 0.5 * rng.standard_normal(bins.low.shape)
    if "matrix" in parts:
        theta["matrix"] = np.diag(WEIGHTS)[:, :3] + 0.1 * rng.standard_normal((4, 3))
    power = 1.0 if "line" in parts else 0.5
    return Machine(nu, GROUPS, theta, bins, power=power, is_logistic=logistic)


def edges(m):
    return None if m.bins is None else m.bins.warp(np.zeros(m.bins.low.shape))[0]


def kernel_matrix(m, s, **theta):
    return oracle.kernel(m.nu, m.groups, edges(m), m.theta | theta, s.X, m.power)


PARTS = [(), ("rough",), ("warp",), ("rough", "warp"), ("rough", "line"), ("matrix", "warp")]


@every("nu", SHAPES)
@every("parts", PARTS)
def test_outputs_left_out_are_those_of_fits_without_the_row(nu, parts):
    s = sample()
    m = machine(s, parts, nu)
    K = kernel_matrix(m, s)
    np.testing.assert_allclose(m.matrix(s), K, rtol=1e-9, atol=1e-12)
    value, errors = loo.ridge_errors(m.matrix(s), s, m.ridge)
    expected, expected_errors = oracle.squared(K, s.Y, s.weight, m.ridge)
    assert value == pytest.approx(expected, rel=1e-7)
    np.testing.assert_allclose(errors, expected_errors, rtol=1e-6)
    # the same errors of validation rows
    rest, unseen = s.take(np.arange(1, 24)), s.take(np.arange(1))
    values = penalty.panels(m.matrix(rest))
    part = penalty.Matrices(values, m.matrix(unseen, rest), rest, unseen)
    outputs = penalty.outputs([part], [m.ridge])
    np.testing.assert_allclose(
        outputs[0], oracle.left_out(K, s.Y, s.weight, m.ridge)[0], rtol=1e-6
    )
    own = penalty.errors([part], outputs)
    np.testing.assert_allclose(own, s.weight[:1] * expected_errors[:1], rtol=1e-6)


@every(
    ("classes", "ridge", "rtol"),
    [(0, 5e-4, 1e-5), (2, 5e-4, 1e-5), (4, 5e-4, 1e-5), (0, 0.05, 3e-3), (2, 0.05, 3e-3)],
)
@every("parts", PARTS)
def test_slopes_are_those_of_the_objective(parts, classes, ridge, rtol):
    """Float64 up to lambda .001, float32 above; all rows count with their weight."""
    s = sample(classes=classes)
    m = machine(s, parts, ridge=ridge, logistic=bool(classes))
    signs = s.signs if classes else None
    steps = []
    if classes:
        K = kernel_matrix(m, s) + INTERCEPT
        steps = [oracle.newton(K, sign, s.weight, ridge) for sign in signs.T]

    def value(name=None, parameter=None):
        theta = m.theta | ({} if name is None else {name: parameter})
        K, lam = kernel_matrix(m, s, **theta), np.exp(theta["ridge"][0])
        if classes:  # targets and weights of the last Newton step are held fixed
            return oracle.logistic(K + INTERCEPT, signs, s.weight, lam, steps)
        return oracle.squared(K, s.Y, s.weight, lam)[0]

    result, slopes = loo.gradient(m, s, np.random.default_rng(0))
    assert result == pytest.approx(value(), rel=rtol)
    assert slopes.keys() == m.theta.keys() - ({"smooth"} if "matrix" in parts else set())
    size = max(np.abs(g).max() for g in slopes.values())
    for name, found in slopes.items():
        expected = oracle.slope(lambda x, name=name: value(name, x), m.theta[name])
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * size, err_msg=name)


@every("logistic", [False, True])
def test_random_signs_estimate_the_slope_without_bias(monkeypatch, logistic):
    s, rng = sample(60, classes=2), np.random.default_rng(0)
    m = machine(s, ("rough",), ridge=0.05, logistic=logistic)
    exact = loo.gradient(m, s, rng)[1]
    monkeypatch.setattr(loo, "_SIGNS_ROWS", 60)
    draws = [loo.gradient(m, s, rng)[1] for _ in range(400)]
    for name, expected in exact.items():
        each = np.array([slopes[name] for slopes in draws])
        error = each.std(axis=0, ddof=1) / 20
        assert (error > 0).all()
        assert (np.abs(each.mean(axis=0) - expected) < 4.5 * error).all(), name
    # a slope of values below 0 needs the sign of h
    C, h = np.eye(60) + 0.1, rng.standard_normal((60, 1))
    one = loo.LeftOut(C, np.ones((60, 1)), h, 0.0, h, np.ones(60))
    mean = np.mean([one.by_matrix(rng) for _ in range(400)], axis=0)
    monkeypatch.setattr(loo, "_SIGNS_ROWS", 61)
    off = np.abs(mean - one.by_matrix(rng))[np.triu_indices(60)]
    assert off.max() < 0.03


def test_two_classes_have_one_column_and_several_one_each():
    assert sample(classes=2).signs.shape == (24, 1)
    three = sample(classes=3)
    np.testing.assert_array_equal(three.signs > 0, np.eye(3)[three.codes] > 0)


@every("dtype", [np.float32, np.float64])
def test_compiled_slopes_of_distances(monkeypatch, dtype):
    rng = np.random.default_rng(0)
    Z, B = rng.standard_normal((40, 3)).astype(dtype), rng.standard_normal((40, 40))
    Z[6] = Z[5]  # only the sum of their slopes has a meaning
    B = np.triu(B, 1).astype(dtype)
    signs = np.sign(Z[:, None] - Z)
    between = np.abs(Z[:, None] - Z[:9]).sum(axis=2)
    rtol = 1e-12 if dtype == np.float64 else 1e-4
    for limit, a in itertools.product((np.inf, 0.0), (0, 3)):
        for module in (loo, family):
            monkeypatch.setattr(module, "COMPILED", limit)
        panel = np.zeros((40, 40))
        panel[a : a + 20] = B[a : a + 20]
        expected = np.einsum("ij,ijc->ic", panel + panel.T, signs)
        found = loo.distance_slope(Z, B[a : a + 20, a:], a)
        assert found.dtype == dtype
        for slope in (expected, found):
            slope[5] += slope[6]
            slope[6] = 0.0
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * 10)
        np.testing.assert_allclose(family.distances(Z, Z[:9]), between, rtol=1e-5, atol=1e-6)


def test_bins_and_warps():
    rng = np.random.default_rng(0)
    x = np.stack([rng.standard_normal(200), rng.integers(0, 2, 200), np.full(200, 7.0)], axis=1)
    bins = Bins.of(x, 5)
    assert bins.low.shape == (5, 3)
    np.testing.assert_allclose(bins.low[:, 0], np.quantile(x[:, 0], np.arange(5) / 5))
    assert (bins.width[0, 1], bins.width[:, 1].sum(), bins.width[:, 2].sum()) == (1, 1, 0)
    logs = rng.standard_normal((5, 3))
    m = Machine(
        2.5, np.arange(3), {"smooth": np.zeros(3), "warp": logs, "ridge": np.zeros(1)}, bins
    )
    grid = np.linspace(-5, 9, 400)[:, None] * np.ones(3)
    warp = bins.warp(logs)
    shares = np.einsum("mbd,bd->md", bins.shares(grid), m.rises(np.float64))
    for j in range(3):  # constant beyond the rows
        own = np.interp(grid[:, j], warp[0, :, j], warp[1, :, j])
        np.testing.assert_allclose(shares[:, j] + bins.low[0, j], own, atol=1e-12)
    scaled = InputScaling(warp=warp).apply(grid)
    np.testing.assert_allclose(scaled, shares + bins.low[0])
    alone = [InputScaling(warp=warp).apply(row[None])[0] for row in grid]
    np.testing.assert_array_equal(alone, scaled)
    same = bins.warp(np.zeros((5, 3)))
    np.testing.assert_allclose(same[1], same[0], atol=1e-12)


@every("nu", SHAPES)
@every("parts", PARTS)
def test_the_kernel_and_the_scaling_of_a_machine(nu, parts):
    s, other = sample(), sample(9, seed=3)
    m = machine(s, parts, nu)
    if {"matrix", "rough"} <= set(parts):
        return
    kernel, metric, warp = m.kernel()
    scaling = InputScaling(metric=metric, warp=warp)
    A, B = scaling.apply(s.X), scaling.apply(other.X)
    found = kernel.pairwise(A, B)
    np.testing.assert_allclose(found, m.matrix(s, other), rtol=1e-9, atol=1e-12)
    if metric.ndim == 1:
        assert metric.max() == pytest.approx(1)
    first = kernel.kernels[0] if isinstance(kernel, SumKernel) else kernel
    assert first.gamma == pytest.approx(0.5 * m.largest**2)
    wide = m.narrowed(0.5)
    half = wide.kernel()[0].pairwise(A, B)
    np.testing.assert_allclose(half, wide.matrix(s, other), rtol=1e-9, atol=1e-12)
    if parts != ("rough",):
        return
    # gamma times 4 is half the bandwidth of both parts
    np.testing.assert_allclose(
        family.narrowed(kernel, 4.0).pairwise(A, B), kernel.pairwise(2 * A, 2 * B), rtol=1e-5
    )


def test_equal_weights_need_no_metric():
    theta = {k: np.log([v]) for k, v in (("smooth", 0.5), ("rough", 0.3), ("ridge", 0.1))}
    m = Machine(2.5, np.zeros(4, np.intp), theta | {"mix": np.zeros(1)})
    s = sample()
    kernel, metric, warp = m.kernel()
    assert metric is warp is None
    assert m.is_equal
    assert list(map(type, kernel.kernels)) == [Matern, RootLaplacian]
    assert [part.gamma for part in kernel.kernels] == pytest.approx([0.125, 0.3])
    np.testing.assert_allclose(kernel.pairwise(s.X, s.X), m.matrix(s), rtol=1e-5, atol=1e-6)


def test_kernels_with_a_metric_to_learn():
    kernels = [Matern(0.5), Matern(1.5), Matern(2.5), Gaussian()]
    assert tuple(family.smoothness(kernel) for kernel in kernels) == SHAPES
    assert family.smoothness(Matern(1.0)) is family.smoothness(Laplacian()) is None
    for nu in SHAPES:
        assert family.smoothness(family.smooth_kernel(nu, 0.3)) == nu


@every("least", [2e-3, 0.9, 5.0, LEAST / 50, MOST * 50])
@every("start", [LEAST, 0.1, MOST])
def test_best_ridge_finds_the_least_value_wherever_it_starts(least, start):
    asked = []

    def values(ridges):
        asked.extend(ridges)
        return [np.log(r / least) ** 2 for r in ridges]

    found, tried = penalty.best_ridge(values, start)
    assert found == pytest.approx(
        np.clip(least, LEAST, MOST), rel=1e-6 if LEAST < least < MOST else 3
    )
    assert all(LEAST <= r <= MOST for r in [found, *asked])
    assert len(asked) == len(set(asked)) == len(tried)
    assert [r for r, _ in tried] == sorted(asked)


def test_best_ridge_in_doubt_takes_the_larger_but_no_worse_one():
    flat, _ = penalty.best_ridge(lambda ridges: [0.0 if r < 3 else 1.0 for r in ridges], 0.01)
    assert 0.5 < flat < 3
    # each step is small, their sum is not
    drift, _ = penalty.best_ridge(
        lambda ridges: [8e-4 * np.log(r) / np.log(4) for r in ridges], 1e-3
    )
    assert drift < 5e-3
    singular, _ = penalty.best_ridge(
        lambda ridges: [np.inf if r < 1 else r for r in ridges], 0.5
    )
    assert 0.9 < singular < 5


def test_best_factor_is_one_of_several_machines():
    s = sample(60)
    m = machine(s, ("rough",), ridge=0.3)
    cuts = [np.arange(60) % 2 == k for k in range(2)]
    parts = []
    for cut in cuts:
        rows, unseen = s.take(np.flatnonzero(~cut)), s.take(np.flatnonzero(cut))
        values = penalty.panels(m.matrix(rows))
        parts.append(penalty.Matrices(values, m.matrix(unseen, rows), rows, unseen))
    ridges = [0.3, 0.5]

    def mean(factor):
        outputs = penalty.outputs(parts, [factor * r for r in ridges])
        return penalty.errors(parts, outputs).mean()

    factor, outputs = penalty.best_factor(parts, ridges)
    grid = [mean(4.0**k) for k in range(-6, 4)]
    assert mean(factor) < min(grid) * 1.01
    np.testing.assert_allclose(penalty.errors(parts, outputs).mean(), min(grid), rtol=0.01)


def test_lambda_carried_to_more_rows():
    assert penalty.carried(0.1, 0.1, 4.0, 2000, 2000) == pytest.approx(0.1)
    # lambda falls by 2 from 500 to 2,000 rows, so by 2 again to 8,000
    assert penalty.carried(0.2, 0.1, 4.0, 2000, 8000) == pytest.approx(0.05)
    # it never grows, and is not taken for 0 where it falls fast
    assert penalty.carried(0.1, 0.2, 4.0, 2000, 8000) == pytest.approx(0.2)
    assert 0.1 / 16 < penalty.carried(64.0, 0.1, 4.0, 2000, 32000) < 0.1


def test_subsets_are_disjoint_and_start_anew():
    subsets = loo.subsets(103, 10, [1, 2])
    first, second = (np.concatenate([next(subsets) for _ in range(10)]) for _ in range(2))
    assert len(set(first)) == len(set(second)) == 100
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(next(loo.subsets(7, 7, [0])), np.arange(7))


def columns_of(n=200):
    """Return rows of which the first column counts, and a machine of equal weights."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 4))
    y = np.sin(2 * X[:, 0])[:, None]
    theta = {k: np.full(4, -0.7) for k in ("smooth", "rough")}
    theta |= {"mix": np.zeros(1), "ridge": np.log([0.1])}
    return Sample(X, y - y.mean(), np.ones(n)), Machine(np.inf, np.arange(4), theta)


def value(m, s):
    return loo.ridge_errors(m.matrix(s), s, m.ridge)[0]


def test_descent_finds_the_columns_and_keeps_what_is_fixed():
    s, start = columns_of()
    plan = Round(100, 60, 0.2)
    best = loo.descend(start, s, plan, [0])
    for part in ("smooth", "rough"):
        weights = best.weights(part, np.float64)
        assert weights[0] > 3 * weights[1:].max()
    assert best.share < 0.3  # the function is smooth
    assert value(best, s) < value(start, s) - 1
    assert best.ridge < 0.05
    fixed = loo.descend(start, s, plan, [0], alpha=3e-3, gamma=0.8)
    assert fixed.ridge == pytest.approx(0.3, rel=0.2)
    assert 0.5 * fixed.largest**2 == pytest.approx(0.8, rel=1e-12)
    weights = fixed.weights("smooth", np.float64)
    assert weights[0] > 3 * weights[1:].max()
    assert loo.descend(start, s, plan, [0], over=lambda: True) == start


def test_descent_of_a_matrix():
    s, start = columns_of()
    theta = {"matrix": 0.5 * np.eye(4), "ridge": np.log([0.1]), "smooth": np.zeros(4)}
    start = Machine(np.inf, np.arange(4), theta)
    assert start.largest == 0.5
    assert value(loo.descend(start, s, Round(100, 60, 0.3), [0]), s) < value(start, s) - 0.5


def test_priors_pull_weights_to_their_mean_and_warps_to_the_identity():
    s, start = columns_of(100)
    bins = Bins.of(s.X, 5)
    warped = Machine(
        np.inf, start.groups, start.theta | {"warp": np.zeros(bins.low.shape)}, bins
    )
    spreads = []
    for spread, bend in ((2.0, 0.25), (0.1, 0.02)):
        m = Machine(np.inf, warped.groups, warped.theta, bins, spread, bend)
        learned = loo.descend(m, s, Round(100, 40, 0.2), [0]).theta
        spreads.append([learned[k].std() for k in ("smooth", "rough", "warp")])
    assert (np.array(spreads[1]) < 0.5 * np.array(spreads[0])).all()


@every("ridge", [LEAST, 0.1])
@every("logistic", [False, True])
def test_singular_matrices_end_in_numbers(ridge, logistic):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60)
    s = Sample(np.zeros((60, 2)), (y - y.mean())[:, None], np.ones(60), y)  # rows all equal
    theta = {k: np.zeros(2) for k in ("smooth", "rough")}
    theta |= {"mix": np.zeros(1), "ridge": np.log([ridge])}
    m = Machine(np.inf, np.arange(2), theta, is_logistic=logistic)
    end = loo.descend(m, s, Round(30, 20, 0.2), [0])
    assert LEAST <= end.ridge <= MOST
    assert all(np.isfinite(value).all() for value in end.theta.values())
    bad = Sample(np.full((60, 2), np.nan), s.Y, s.weight, y)
    assert loo.gradient(m, bad, np.random.default_rng(0)) is None
    end = loo.descend(m, bad, Round(30, 20, 0.2), [0])
    assert end.ridge == pytest.approx(MOST)
    np.testing.assert_array_equal(end.theta["smooth"], theta["smooth"])
    assert loo.ridge_errors(m.matrix(bad), bad, ridge)[0] == np.inf


def wide_tailed(n=400, seed=0):
    """Return columns: normal, lognormal, flags, mostly zeros, constant."""
    rng = np.random.default_rng(seed)
    zeros = np.where(rng.random(n) < 0.85, 0.0, rng.lognormal(3.0, 1.0, n))
    flags = (rng.random(n) < 0.1).astype(float)
    normal = 5 + 2 * rng.standard_normal(n)
    return np.stack([normal, rng.lognormal(0, 2, n), flags, zeros, np.full(n, 7.0)], axis=1)


def test_robust_scaling():
    X = wide_tailed()
    scaling = InputScaling.robust(X, np.ones(400))
    Z = scaling.apply(X)
    low, middle, high = np.quantile(X[:, :2], [0.25, 0.5, 0.75], axis=0, method="inverted_cdf")
    np.testing.assert_allclose(scaling.centre[:2], middle)
    np.testing.assert_allclose(scaling.scale[:2], (high - low) / 1.349, rtol=1e-3)
    u = (X[:, 0] - scaling.centre[0]) / scaling.scale[0]
    np.testing.assert_array_equal(scaling.limit, np.full(X.shape[1], 12.0))
    np.testing.assert_allclose(Z[:, 0], u / np.sqrt(1 + (u / 12.0) ** 2))
    assert set(np.round(Z[:, 2], 12)) == {0.0, round(1 / np.sqrt(1 + 1 / 144), 12)}
    apart = X[:, 3][X[:, 3] > 0]
    assert scaling.scale[3] == np.quantile(apart, 0.5, method="inverted_cdf")
    assert not Z[:, 4].any()
    # a change of units changes nothing
    other = InputScaling.robust(3e5 * X - 40, np.ones(400)).apply(3e5 * X - 40)
    np.testing.assert_allclose(other, Z, atol=1e-9)


def test_ranks_are_normal_scores():
    X = wide_tailed(5000)
    scaling = InputScaling.robust(X, np.ones(5000), ranks=True)
    Z = scaling.apply(X)
    for j in range(2):
        np.testing.assert_allclose(
            np.quantile(Z[:, j], [0.1587, 0.5, 0.8413]), [-1, 0, 1], atol=0.03
        )
        assert (np.diff(Z[np.argsort(X[:, j]), j]) >= 0).all()
    # ties are in the middle of their places: 0 holds .85 of the fourth column
    assert (
        Z[X[:, 3] == 0, 3].max() == Z[X[:, 3] == 0, 3].min() == pytest.approx(-0.19, abs=0.05)
    )
    assert not Z[:, 4].any()
    beyond = scaling.apply(np.array([[1e9] * 5, [-1e9] * 5]))
    np.testing.assert_array_equal(np.abs(beyond), 3.0)
    np.testing.assert_array_equal(np.sign(beyond[:, 0]), [1, -1])


@pytest.mark.parametrize("ranks", [False, True])
def test_scalings_see_no_outlier(ranks):
    X = wide_tailed(1001)
    scaling = InputScaling.robust(X, np.ones(1001), ranks=ranks)
    plain, end = scaling.apply(X), 3.0 if scaling.limit is None else scaling.limit[:2]
    for value in (1e8, -1e300):
        bad = X.copy()
        bad[7, :4] = value
        found = InputScaling.robust(bad, np.ones(1001), ranks=ranks).apply(bad)
        rest = np.arange(1001) != 7
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found[rest, :3], plain[rest, :3], atol=0.6)
        np.testing.assert_allclose(found[7, :2], end * np.sign(value), rtol=0.15)


def test_small_weights_rise_half_way_to_a_share_of_the_largest():
    logs = np.log([1.0, 0.5, 0.02])
    m = Machine(2.5, np.arange(3), {"smooth": logs, "rough": logs + 1.0, "mix": np.zeros(1)})
    raised = m.raised(8.0)
    expected = np.log([1.0, 0.5, np.sqrt(0.02 * 0.125)])
    assert raised.theta["smooth"] == pytest.approx(expected)
    assert raised.theta["rough"] == pytest.approx(expected + 1.0)
    assert raised.theta["mix"] == m.theta["mix"]
