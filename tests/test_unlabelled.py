"""Losses of rows without labels: their definitions, their derivatives, and their signs."""

import numpy as np
import pytest

from kernelgrad.losses import (
    UNLABELLED_LOSSES,
    GaussianBump,
    Hinge,
    Ramp,
    SemiSupervised,
    SquaredSymmetricHinge,
    SymmetricHinge,
    get_unlabelled_loss,
)

EACH = [
    SymmetricHinge(),
    SquaredSymmetricHinge(),
    Ramp(),
    Ramp(-0.8),
    Ramp(0.0),
    GaussianBump(),
]
KINKS = {0.0, 1.0, 0.3, 0.8}
GRID = np.linspace(-2, 2, 401)
R = np.array([r for r in GRID if min(abs(abs(r) - k) for k in KINKS) > 1e-3])
each = pytest.mark.parametrize("loss", EACH, ids=repr)


def by_definition(loss, r):
    """Return u(r) of Table 2, written out; the ramp through its two pseudo-labels."""
    a = np.abs(r)
    if loss.name == "symmetric_hinge":
        return np.maximum(0, 1 - a)
    if loss.name == "squared_symmetric_hinge":
        return np.maximum(0, 1 - a) ** 2 / 2
    if loss.name == "gaussian":
        return np.exp(-5 * r**2)

    def ramp(z):
        return np.maximum(0, 1 - z) - np.maximum(0, loss.s - z)

    return ramp(r) + ramp(-r) - (1 - loss.s)


@each
def test_values(loss):
    np.testing.assert_allclose(loss.value(R[:, None]), by_definition(loss, R), atol=1e-12)


@each
def test_gradients_are_finite_differences(loss):
    h = 1e-6
    slope = (by_definition(loss, R + h) - by_definition(loss, R - h)) / (2 * h)
    np.testing.assert_allclose(loss.gradient(R[:, None])[:, 0], slope, atol=1e-8)


@each
def test_a_descent_step_moves_off_zero(loss):
    step = -loss.gradient(R[:, None])[:, 0]
    assert (step * np.sign(R) >= 0).all()
    assert (step != 0).any()


def test_the_printed_sign_would_not():
    printed = np.where(np.abs(R) < 1, -1.0, 0.0)  # Table 2, read literally
    inside = (R < 0) & (np.abs(R) < 1)
    assert (-printed[inside] * np.sign(R[inside]) < 0).all()


@each
def test_outputs_add_up_and_keep_their_precision(loss):
    f = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    assert (
        loss.value(f).dtype == loss.gradient(f).dtype == loss.curvature(f).dtype == np.float32
    )
    total = sum(loss.value(f[:, [c]]) for c in range(3))
    np.testing.assert_allclose(loss.value(f), total, rtol=1e-6)
    assert loss.gradient(np.zeros((2, 3))).any() == np.False_


@each
def test_the_curvature_is_of_a_parabola_above(loss):
    for r0 in (-1.7, -0.9, -0.31, 0.05, 0.5, 0.95, 1.2):
        f = np.array([[r0]])
        bend = loss.curvature(f, width=1e-9)[0]
        above = loss.value(f)[0] + loss.gradient(f)[0, 0] * (R - r0) + bend / 2 * (R - r0) ** 2
        assert (above >= by_definition(loss, R) - 1e-9).all()


def test_names():
    assert set(UNLABELLED_LOSSES) == {
        "symmetric_hinge", "squared_symmetric_hinge", "ramp", "gaussian",
    }  # fmt: skip
    assert get_unlabelled_loss("ramp").s == -0.3
    loss = Ramp(-0.5)
    assert get_unlabelled_loss(loss) is loss
    with pytest.raises(ValueError, match="symmetric_hinge"):
        get_unlabelled_loss("hinge")
    with pytest.raises(TypeError, match="UnlabelledLoss"):
        get_unlabelled_loss(3)
    for s in (-1.0, 0.1, np.nan):
        with pytest.raises(ValueError, match="s "):
            get_unlabelled_loss(Ramp(s))


def test_parts_of_the_joint_loss():
    rng = np.random.default_rng(0)
    y = rng.choice([-1.0, 0.0, 1.0], 30)[:, None]
    f = 2 * rng.standard_normal((30, 1))
    loss = SemiSupervised(Hinge(), Ramp(), 0.25)
    expected = np.where(y == 0, 0.25 * by_definition(Ramp(), f), np.maximum(0, 1 - y * f))
    np.testing.assert_allclose(loss.value(y, f), expected[:, 0], atol=1e-12)
    slope = np.where(y == 0, 0.25 * Ramp().gradient(f), Hinge().gradient(y, f))
    np.testing.assert_allclose(loss.gradient(y, f), slope, atol=1e-12)
    known = y[:, 0] != 0
    np.testing.assert_allclose(loss.intercept(y), y[known].mean(axis=0))
    weight = rng.random(30)
    mean = np.average(y[known], axis=0, weights=weight[known])
    np.testing.assert_allclose(loss.intercept(y, weight), mean)
    assert loss.intercept(np.zeros((3, 2))).tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="ratio"):
        SemiSupervised(Hinge(), Ramp(), -1.0).check()
