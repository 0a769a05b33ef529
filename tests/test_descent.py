"""Losses of all rows for block descent: values, derivatives, bits, extremes."""

from __future__ import annotations

import numpy as np
import pytest

import oracles_descent as oracles
from cases import every
from kernelgrad import losses
from kernelgrad.solvers.block_descent import loops as descent
from kernelgrad.solvers.block_descent.objective import RowObjective
from oracles_losses import spec

KINDS = {
    "squared": losses.SquaredError(),
    "logistic": losses.Logistic(),
    "multinomial": losses.Multinomial(),
    "squared_hinge": losses.SquaredHinge(),
    "smoothed_hinge": losses.SmoothedHinge(0.6),
    "modified": losses.ModifiedLogistic(5.0),
    "hinge": losses.Hinge(),
    "huber": losses.Huber(0.7),
    "epsilon": losses.EpsilonInsensitive(0.3),
    "absolute": losses.Absolute(),
    "quantile": losses.Quantile(0.2),
    "one_class": losses.OneClass(),
    "kl": losses.KLDensityRatio(),
    "least_squares": losses.LeastSquaresDensityRatio(),
    "ratio": losses.KLRatio(0.3),
}
KINKED = ["hinge", "epsilon", "absolute", "quantile", "one_class"]
REGRESSION = ["squared", "huber", "epsilon", "absolute", "quantile"]
each_kind = every("key", KINDS)
SHAPES = [(1, 1), (1, 700), (3, 1500), (10, 20_003)]


def setting(key, C, n, seed=0, scale=2.0):
    """Return U, Y (C, n) and weights with zeros, float32."""
    rng = np.random.default_rng(seed)
    U = (scale * rng.normal(size=(C, n))).astype(np.float32)
    if key == "multinomial":
        Y = rng.integers(0, C, n) == np.arange(C)[:, None]
    elif key in REGRESSION:
        Y = rng.normal(size=(C, n))
    else:
        Y = np.where(rng.random((C, n)) < 0.5, 1.0, -1.0)
    w = rng.exponential(size=n) * (rng.random(n) < 0.8)
    w[0] = 1.0
    return U, np.asarray(Y, np.float32), w.astype(np.float32)


def derivatives(key, U, Y, w, width):
    loss, C = KINDS[key], len(U)
    R, W = np.full_like(U, np.nan), np.full_like(U, np.nan)
    params = np.full(C, spec(loss)[1])
    table = loss.code, params, np.full(C, width)
    sums = descent.weighted_sums(*table, U, Y, w, (R, W))
    return sums[:, 0], sums[:, 1], R, W


def along(key, U, base, D, P, Y, w, steps, width, directions=7):
    loss, C = KINDS[key], len(U)
    table = loss.code, np.full(C, spec(loss)[1]), np.full(C, width)
    sums = descent.weighted_sums(*table, U, Y, w, None, base, D, P, steps, directions)
    return sums.sum(axis=0, keepdims=True) if key == "multinomial" else sums


@every(
    ("key", "C", "n"),
    [(key, C, n) for key in KINDS for C, n in SHAPES if key != "multinomial" or C > 1],
)
def test_agrees_with_the_losses(key, C, n):
    loss = KINDS[key]
    U, Y, w = setting(key, C, n)
    smooth, exact, R, _ = derivatives(key, U, Y, w, 1e-9)
    y, f = Y.T.astype(np.float64), U.T.astype(np.float64)
    scale = np.abs(loss.value(y, f)) @ w
    assert exact.sum() == pytest.approx(loss.value(y, f) @ w, abs=1e-6 * scale, rel=0)
    assert smooth.sum() == pytest.approx(exact.sum(), abs=2e-7 * w.sum() * C + 1e-6 * scale)
    np.testing.assert_allclose(R, (w[:, None] * loss.gradient(y, f)).T, rtol=1e-5, atol=1e-6)
    if key != "multinomial":
        each = [loss.value(y[:, [c]], f[:, [c]]) @ w for c in range(C)]
        np.testing.assert_allclose(exact, each, rtol=0, atol=1e-6 * scale)
    else:
        assert not exact[1:].any()


@each_kind
@every(("C", "n"), [(1, 700), (3, 1500)])
def test_smoothed_losses_agree_with_the_oracle(key, C, n):
    name, number = spec(KINDS[key])
    U, Y, w = setting(key, C, n, seed=1)
    width = 0.5
    smooth, _, R, W = derivatives(key, U, Y, w, width)
    y, f = Y.astype(np.float64), U.astype(np.float64)
    entries = oracles.values(name, y, f, number, width)
    tolerance = 1e-6 * (np.abs(entries) @ w).sum() + 1e-7
    expected = entries @ w
    np.testing.assert_allclose(smooth[: len(expected)], expected, rtol=0, atol=tolerance)
    slopes = oracles.slopes(name, y, f, number, width)
    np.testing.assert_allclose(R, w * slopes, rtol=1e-5, atol=1e-5)
    assert np.all(W >= 0)
    assert not np.any((R, W), axis=0)[:, w == 0].any()


def test_curvatures_have_their_closed_forms():
    C, n, d = 2, 900, 0.5
    for key in KINDS:
        U, Y, w = setting(key, C, n, seed=2)
        W = derivatives(key, U, Y, w, d)[3]
        f, y = U.astype(np.float64), Y.astype(np.float64)
        z, m = f - y, y * f
        p = oracles.probabilities(f)
        s, low = 1 / (1 + np.exp(-m)), np.maximum(f, 0.3)

        def weight(t):
            return 1 / np.maximum(np.abs(t), d)

        expected = {
            "squared": np.ones_like(f),
            "logistic": s * (1 - s),
            "multinomial": p * (1 - p),
            "squared_hinge": 2.0 * (m < 1),
            "smoothed_hinge": 0.5 / np.maximum(np.abs(0.7 - m), 0.3),
            "modified": np.tanh(2.5 * (1 - m)) / (2 * (1 - m)),
            "hinge": weight(1 - m) / 2,
            "huber": np.minimum(1, 0.7 / np.abs(z)),
            "epsilon": weight(z - 0.3) / 2 + weight(z + 0.3) / 2,
            "absolute": weight(z),
            "quantile": weight(z) / 2,
            "one_class": weight(f) / 2,
            "kl": np.where(y > 0, 0, np.exp(f)),
            "least_squares": 1.0 * (y <= 0),
            "ratio": np.where(y > 0, 1 / (low + np.sqrt(0.3 * (low - f))) ** 2, 0),
        }[key]
        np.testing.assert_allclose(W, w * expected, rtol=2e-6, atol=1e-6, err_msg=key)


@every("key", [*KINKED, "huber", "smoothed_hinge", "modified", "logistic"])
def test_parabolas_of_kinks_lie_above_the_loss(key):
    # 1/4 bounds the logistic curvature only everywhere: its own W is no majoriser (control)
    name, number = spec(KINDS[key])
    n, d = 3000, 0.4
    U, Y, _ = setting(key, 1, n, seed=3)
    ones = np.ones(n, np.float32)
    _, _, R, W = derivatives(key, U, Y, ones, d)
    u, y = U.astype(np.float64), Y.astype(np.float64)
    here = oracles.values(name, y, u, number, d)
    least = np.inf
    for v in np.linspace(-6, 6, 61):
        there = oracles.values(name, y, np.full_like(u, v), number, d)
        parabola = here + R * (v - u) + W / 2 * (v - u) ** 2
        least = min(least, float(np.min(parabola - there)))
    assert least > -1e-5 if key != "logistic" else least < -0.1


@each_kind
@every(("C", "n", "mask"), [(1, 700, 7), (3, 1500, 5), (3, 1500, 2), (10, 2003, 7)])
def test_along_agrees_with_differences(key, C, n, mask):
    name, number = spec(KINDS[key])
    U, Y, w = setting(key, C, n, seed=4, scale=1.0)
    rng = np.random.default_rng(5)
    D, P = (rng.normal(size=(2, C, n))).astype(np.float32)
    base = rng.normal(size=C)
    steps = rng.normal(scale=0.3, size=(C, 3))
    joint = key == "multinomial"
    if joint:
        steps[:] = steps[0]
    # Differences need a smooth sum: no row may sit at a corner of its derivative
    width, h = 0.8, 1e-5
    used = steps * [bool(mask & bit) for bit in (1, 2, 4)]
    got = along(key, U, base, D, P, Y, w, steps, width, directions=mask)
    directions = np.stack([U - base[:, None], D, P]).astype(np.float64)
    directions *= np.array([bool(mask & bit) for bit in (1, 2, 4)])[:, None, None]
    point = U + np.einsum("ck,kcn->cn", used, directions)
    want = oracles.ten_sums(name, Y.astype(float), w, point, directions, number, width, h)
    size = np.abs(oracles.values(name, Y.astype(float), point, number, width)) @ w
    rows = len(want)
    np.testing.assert_allclose(got[:rows, 0], want[:, 0], rtol=0, atol=2e-6 * size.sum())
    np.testing.assert_allclose(got[:rows, 1:4], want[:, 1:4], rtol=1e-5, atol=1e-5 * n)
    np.testing.assert_allclose(got[:rows, 4:], want[:, 4:], rtol=2e-3, atol=2e-3 * n)
    assert not got[rows:].any()


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
    C = 3
    magnitudes = np.array([0.0, 1e-38, 1e-7, 1.0, 29.9, 30.1, 88.0, 1e3, 1e9, 1e20, 1e30])
    row = np.concatenate([magnitudes, -magnitudes])
    U = np.stack([row, np.roll(row, 1), np.roll(row, 5)]).astype(np.float32)
    n = U.shape[1]
    _, Y, w = setting(key, C, n)
    w[5] = 0.0
    smooth, exact, R, W = derivatives(key, U, Y, w, 1e-3)
    ones = np.full((C, 3), 0.1)
    for width in (0.0, 1e-30, 1e-3, 1e9):
        assert np.all(np.isfinite(along(key, U, np.ones(C), U, U, Y, w, ones, width)))
    for array in (smooth, exact, R, W):
        assert np.all(np.isfinite(array))
    loss = KINDS[key]
    value = loss.value(Y.T.astype(np.float64), U.T.astype(np.float64)) @ w
    assert exact.sum() == pytest.approx(value, rel=1e-6)
    if key == "kl":  # a straight line there
        assert not W[U > 30].any()
        assert W[(U > 29) & (U < 30) & (w > 0) & (Y < 0)].all()


@every(("C", "n"), [(2, 1), (3, 1500), (10, 20_003)])
def test_the_multinomial_hessian(C, n):
    U, Y, w = setting("multinomial", C, n, seed=11)
    p = oracles.probabilities(U.astype(np.float64))
    V = np.random.default_rng(12).normal(size=(C, n)).astype(np.float32)
    expected = w * (p * V - p * (p * V).sum(axis=0))
    sums = along("multinomial", U, np.zeros(C), V, U, Y, w, np.zeros((C, 3)), 1.0, directions=2)
    assert sums[0, 7] == pytest.approx(np.sum(V * expected), rel=1e-5)


class MethodsAlone(losses.SmoothedHinge):
    """A loss that the loops do not know."""

    code = None


@pytest.mark.parametrize("g", [1e-3, 0.6, 4.0])
def test_the_smoothed_hinge_is_that_of_its_methods(g):
    U, Y, w = setting("smoothed_hinge", 1, 1500, seed=15)
    D, P = np.random.default_rng(16).normal(size=(2, 1, 1500)).astype(np.float32)
    widths, results = np.full(1, 0.5), []
    for loss in (losses.SmoothedHinge(g), MethodsAlone(g)):
        objective = RowObjective(loss, Y, w, 1500)
        R, W = np.full_like(U, np.nan), np.full_like(U, np.nan)
        values = objective.derivatives(widths, U, R, W)
        steps = np.array([[0.1, -0.2, 0.3]])
        sums = objective.along(widths, U, np.ones(1), D, P, steps, 7)
        results.append((objective.code, values, R, W, sums[:, :4]))
    assert [kind for kind, *_ in results] == [losses.scalar.SMOOTHED_HINGE, None]
    for own, other in zip(results[0][1:], results[1][1:], strict=True):
        # rounded margins on the steepest parabola
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6 + 3e-7 / g)
