"""Losses of rows without labels: their definitions and signs, and the joint loss."""

import numpy as np
import pytest

from cases import every
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
from kernelgrad.testing import check_unlabelled_loss

R = np.linspace(-2, 2, 400)[:, None]


def two_ramps(s):
    """Return the ramp through its two pseudo-labels."""

    def ramp(z):
        return np.maximum(0, 1 - z) - np.maximum(0, s - z)

    return lambda r: ramp(r) + ramp(-r) - (1 - s)


DEFINITIONS = [  # Table 2 of the paper, written out
    (SymmetricHinge(), lambda r: np.maximum(0, 1 - np.abs(r))),
    (SquaredSymmetricHinge(), lambda r: np.maximum(0, 1 - np.abs(r)) ** 2 / 2),
    (GaussianBump(), lambda r: np.exp(-5 * r**2)),
    *((Ramp(s), two_ramps(s)) for s in (-0.8, -0.3, 0.0)),
]


@every("loss, definition", DEFINITIONS)
def test_losses_are_their_definitions(loss, definition):
    np.testing.assert_allclose(loss.value(R), definition(R[:, 0]), atol=1e-12)
    check_unlabelled_loss(loss)  # the gradient is the derivative of the value
    step = -loss.gradient(R)  # moves off zero, unlike one of the sign printed there
    assert (step * np.sign(R) >= 0).all()
    assert (step != 0).any()
    assert not loss.gradient(np.zeros((2, 3))).any()
    f = np.random.default_rng(0).standard_normal((7, 3))
    np.testing.assert_allclose(loss.value(f), sum(loss.value(c[:, None]) for c in f.T))


def test_names():
    assert {type(loss) for loss, _ in DEFINITIONS} == set(UNLABELLED_LOSSES.values())
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
    f, weight = 2 * rng.standard_normal((30, 1)), rng.random(30)
    loss = SemiSupervised(Hinge(), Ramp(), 0.25)
    value = np.where(y == 0, 0.25 * two_ramps(-0.3)(f), np.maximum(0, 1 - y * f))
    np.testing.assert_allclose(loss.value(y, f), value[:, 0], atol=1e-12)
    slope = np.where(y == 0, 0.25 * Ramp().gradient(f), Hinge().gradient(y, f))
    np.testing.assert_allclose(loss.gradient(y, f), slope, atol=1e-12)
    known = y[:, 0] != 0
    mean = np.average(y[known], axis=0, weights=weight[known])
    np.testing.assert_allclose(loss.intercept(y, weight), mean)
    assert loss.intercept(np.zeros((3, 2))).tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="ratio"):
        SemiSupervised(Hinge(), Ramp(), -1.0).check()
