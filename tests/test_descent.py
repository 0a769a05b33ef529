"""Losses of all rows for block descent: values, derivatives, extremes."""

import numpy as np
import pytest
from scipy.special import softmax

import oracles_losses as oracles
from cases import every
from kernelgrad import losses
from kernelgrad.solvers.block_descent import loops
from oracles_losses import spec

KINDS = {
    "squared": losses.SquaredError(), "logistic": losses.Logistic(),
    "multinomial": losses.Multinomial(), "squared_hinge": losses.SquaredHinge(),
    "smoothed_hinge": losses.SmoothedHinge(0.6), "modified": losses.ModifiedLogistic(5.0),
    "hinge": losses.Hinge(), "huber": losses.Huber(0.7),
    "epsilon": losses.EpsilonInsensitive(0.3), "absolute": losses.Absolute(),
    "quantile": losses.Quantile(0.2), "one_class": losses.OneClass(),
    "kl": losses.KLDensityRatio(), "least_squares": losses.LeastSquaresDensityRatio(),
    "ratio": losses.KLRatio(0.3), "poisson": losses.Poisson(), "gamma": losses.Gamma(),
    "tweedie": losses.Tweedie(),
}  # fmt: skip
REGRESSION = ["squared", "huber", "epsilon", "absolute", "quantile", "poisson", "gamma"]
REGRESSION += ["tweedie"]
SHAPES = [(1, 1), (1, 700), (3, 1500), (10, 2003)]
each_kind = every("key", KINDS)


def setting(key, C, n, seed=0, scale=2.0):
    """Return U, Y (C, n) and weights with zeros, float32."""
    rng = np.random.default_rng(seed)
    U = (scale * rng.normal(size=(C, n))).astype(np.float32)
    if key == "multinomial":
        Y = rng.integers(0, C, n) == np.arange(C)[:, None]
    elif key in REGRESSION:
        Y = rng.normal(size=(C, n))
        Y = np.abs(Y) if KINDS[key].lowest_target is not None else Y
    else:
        Y = np.where(rng.random((C, n)) < 0.5, 1.0, -1.0)
    w = rng.exponential(size=n) * (rng.random(n) < 0.8)
    w[0] = 1.0
    return U, np.asarray(Y, np.float32), w.astype(np.float32)


def sums(key, U, Y, w, width, *args):
    loss, C = KINDS[key], len(U)
    table = loss.code, np.full(C, spec(loss)[1]), np.full(C, width)
    return loops.weighted_sums(*table, U, Y, w, *args)


def derivatives(key, U, Y, w, width):
    """Return sums of smooth and exact losses by output, slopes and curvatures."""
    R, W = np.full_like(U, np.nan), np.full_like(U, np.nan)
    total = sums(key, U, Y, w, width, (R, W))
    return total[:, 0], total[:, 1], R, W


def along(key, U, base, D, P, Y, w, steps, width, directions=7):
    total = sums(key, U, Y, w, width, None, base, D, P, steps, directions)
    return total.sum(axis=0, keepdims=True) if key == "multinomial" else total


@every(
    ("key", "C", "n"),
    [(key, C, n) for key in KINDS for C, n in SHAPES if key != "multinomial" or C > 1],
)
@every("width", [1e-9, 0.5])
def test_losses_and_their_derivatives_are_those_of_the_formulas(key, C, n, width):
    name, number = spec(KINDS[key])
    U, Y, w = setting(key, C, n)
    smooth, exact, R, W = derivatives(key, U, Y, w, width)
    y, f = Y.astype(np.float64), U.astype(np.float64)
    for total, d in ((smooth, width), (exact, 1e-12)):
        entries = oracles.values(name, y, f, number, d)
        expected, tolerance = entries @ w, 1e-6 * (np.abs(entries) @ w).sum() + 1e-7
        np.testing.assert_allclose(total[: len(expected)], expected, rtol=0, atol=tolerance)
        assert not total[len(expected) :].any()
    slopes = w * oracles.slopes(name, y, f, number, width)
    np.testing.assert_allclose(R, slopes, rtol=1e-5, atol=1e-5)
    curvatures = w * oracles.curvature(name, y.T, f.T, number, width).T
    # The weight of a narrow kink is one over a distance that float32 rounds. The largest error
    # among 200,000 values of RATIO is 3e-6.
    np.testing.assert_allclose(W, curvatures, rtol=2e-3 if width < 0.5 else 5e-6, atol=1e-6)
    assert np.all(W >= 0)
    assert not np.any((R, W), axis=0)[:, w == 0].any()


@each_kind
@every(("C", "n", "mask"), [(1, 700, 7), (3, 1500, 5), (3, 1500, 2), (10, 2003, 7)])
def test_along_agrees_with_differences(key, C, n, mask):
    name, number = spec(KINDS[key])
    U, Y, w = setting(key, C, n, seed=4, scale=1.0)
    rng = np.random.default_rng(5)
    D, P = (rng.normal(size=(2, C, n))).astype(np.float32)
    base = rng.normal(size=C)
    steps = rng.normal(scale=0.3, size=(C, 3))
    if key == "multinomial":
        steps[:] = steps[0]
    width = 0.8
    used = np.array([bool(mask & bit) for bit in (1, 2, 4)])
    got = along(key, U, base, D, P, Y, w, steps, width, mask)
    directions = np.stack([U - base[:, None], D, P]).astype(np.float64) * used[:, None, None]
    point = U + np.einsum("ck,kcn->cn", steps * used, directions)
    want = oracles.ten_sums(name, Y.astype(float), w, point, directions, number, width)
    size = np.abs(oracles.values(name, Y.astype(float), point, number, width)) @ w
    np.testing.assert_allclose(got[:, 0], want[:, 0], rtol=0, atol=2e-6 * size.sum())
    np.testing.assert_allclose(got[:, 1:4], want[:, 1:4], rtol=1e-5, atol=1e-5 * n)
    np.testing.assert_allclose(got[:, 4:], want[:, 4:], rtol=2e-3, atol=2e-3 * n)


def test_the_smallest_losses_are_summed_accurately():
    # log(1 + x) of x far below the unit in the last place of 1
    n = 5000
    w = np.ones(n, np.float32)
    U = np.random.default_rng(8).uniform(15, 25, size=(1, n)).astype(np.float32)
    _, exact, _, _ = derivatives("logistic", U, np.ones_like(U), w, 1.0)
    assert exact[0] == pytest.approx(np.log1p(np.exp(-U.astype(float))).sum(), rel=1e-6)
    V = np.concatenate([U, np.zeros_like(U)])
    Y = np.concatenate([np.ones_like(U), np.zeros_like(U)])
    _, joint, _, _ = derivatives("multinomial", V, Y, w, 1.0)
    assert joint[0] == pytest.approx(exact[0], rel=1e-6)
    # a tube that holds all rows
    _, tube, _, _ = derivatives("epsilon", 0.1 * U / 25, np.zeros_like(U), w, 0.01)
    assert tube[0] == 0.0


@each_kind
def test_extreme_values_stay_finite(key):
    magnitudes = np.array([0.0, 1e-38, 1e-7, 1.0, 29.9, 30.1, 88.0, 1e3, 1e9, 1e20, 1e30])
    row = np.concatenate([magnitudes, -magnitudes])
    U = np.stack([row, np.roll(row, 1), np.roll(row, 5)]).astype(np.float32)
    _, Y, w = setting(key, 3, U.shape[1])
    w[5] = 0.0
    arrays = derivatives(key, U, Y, w, 1e-3)
    for width in (0.0, 1e-30, 1e-3, 1e9):
        steps = np.full((3, 3), 0.1)
        assert np.all(np.isfinite(along(key, U, np.ones(3), U, U, Y, w, steps, width)))
    assert all(np.all(np.isfinite(array)) for array in arrays)
    value = KINDS[key].value(Y.T.astype(np.float64), U.T.astype(np.float64)) @ w
    assert arrays[1].sum() == pytest.approx(value, rel=1e-6)
    if key == "kl":  # a straight line there
        W = arrays[3]
        assert not W[U > 30].any()
        assert W[(U > 29) & (U < 30) & (w > 0) & (Y < 0)].all()


@every(("C", "n"), [(2, 1), (3, 1500), (10, 20_003)])
def test_the_multinomial_hessian(C, n):
    U, Y, w = setting("multinomial", C, n, seed=11)
    p = softmax(U.astype(np.float64), axis=0)
    V = np.random.default_rng(12).normal(size=(C, n)).astype(np.float32)
    expected = w * (p * V - p * (p * V).sum(axis=0))
    total = along("multinomial", U, np.zeros(C), V, U, Y, w, np.zeros((C, 3)), 1.0, 2)
    assert total[0, 7] == pytest.approx(np.sum(V * expected), rel=1e-5)
