"""Step sizes and averaging weights."""

from __future__ import annotations

import numpy as np

from kernelgrad._typing import FloatArray
from kernelgrad.losses import Loss, Multinomial


def smoothness(loss: Loss, y: FloatArray, f: FloatArray) -> float:
    """Return the curvature L that sets the scale of a step.

    The loss's own bound where it is smooth. The multinomial loss counts 1/4, the bound of
    each diagonal entry of its Hessian: a step moves all outputs by the same operator, and
    the bound 1/2 of the whole matrix halves the speed for nothing (measured). A non-smooth
    loss counts ``E[slope^2] / E[loss]`` at the starting point `f`: 1 / E|y - f| for the
    absolute loss, 1/2 for the hinge. A step is then right at the scale of the targets, and
    its decay carries it below every kink.
    """
    if isinstance(loss, Multinomial):
        return 0.25
    if loss.smoothness is not None:
        return float(loss.smoothness)
    value = float(np.mean(loss.value(y, f)))
    slope = float(np.mean(np.sum(np.square(loss.gradient(y, f)), axis=1)))
    return slope / value if value > 0 and slope > 0 else 1.0


def inverse_decay(gamma0: float, t: int, t0: float) -> float:
    """Return ``gamma0 / (1 + t / t0)`` for iteration t = 0, 1, ..."""
    return gamma0 / (1.0 + t / t0)


def averaging_weight(t: int, power: float) -> float:
    """Return the weight of iterate t = 1, 2, ... when it joins the average.

    ``(1 + power) / (t + power)``: 0 is the uniform average of the paper's Figure 4(2);
    larger powers forget the first iterates faster.
    """
    return min(1.0, (1.0 + power) / (t + power))
