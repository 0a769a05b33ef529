"""Step sizes and averaging weights."""

from __future__ import annotations

import numpy as np

from kernelgrad.losses import Loss
from kernelgrad.types import Float64Array, FloatArray


def smoothness(loss: Loss, y: FloatArray, f: FloatArray) -> Float64Array:
    """Return the curvature L of every output, shape (C,), that sets the scale of a step.

    The loss's own ``typical_curvature`` or ``smoothness`` where it has one. Any other
    loss counts ``E[slope^2] / E[loss]`` at the starting point `f`: 1 / E|y - f| for the
    absolute loss, 1/2 for the hinge. A step is then right at the scale of the targets, and
    its decay carries it below every kink.
    """
    for bound in (loss.typical_curvature, loss.smoothness):
        if bound is not None:
            return np.full(y.shape[1], float(bound))
    L = np.ones(y.shape[1])
    for c in range(y.shape[1]):  # outputs may differ in scale
        one_y, one_f = y[:, c : c + 1], f[:, c : c + 1]
        one = loss.for_output(c)
        value = float(np.mean(one.value(one_y, one_f)))
        slope = float(np.mean(np.square(one.gradient(one_y, one_f))))
        if value > 0 and slope > 0:
            L[c] = slope / value
    return L


def inverse_decay(gamma0: float, t: int, t0: float) -> float:
    return gamma0 / (1.0 + t / t0)


def averaging_weight(t: int, power: float) -> float:
    """Return the weight of iterate t = 1, 2, ... when it joins the average.

    ``(1 + power) / (t + power)``: 0 is the uniform average of the paper's Figure 4(2);
    larger powers forget the first iterates faster.
    """
    return min(1.0, (1.0 + power) / (t + power))
