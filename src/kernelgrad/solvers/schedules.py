"""Step sizes, averaging weights, and how the loss of rows without a label grows."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelgrad.losses import Loss
from kernelgrad.solvers.contract import Problem
from kernelgrad.types import Float64Array, FloatArray
from kernelgrad.validation import check_real

_FAR = 1e6  # a response at which slopes without a bound are told from others


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


def slope_grows(loss: Loss) -> bool:
    """Tell whether slopes have no bound, so that long steps diverge."""
    y, f = np.ones((1, 1)), np.full((1, 1), -_FAR)
    return float(np.abs(loss.gradient(y, f)).max()) > 0.1 * _FAR


def inverse_decay(gamma0: float, t: int, t0: float) -> float:
    return gamma0 / (1.0 + t / t0)


def averaging_weight(t: int, power: float) -> float:
    """Return the weight of iterate t = 1, 2, ... when it joins the average.

    ``(1 + power) / (t + power)``: 0 is the uniform average of the paper's Figure 4(2);
    larger powers forget the first iterates faster.
    """
    return min(1.0, (1.0 + power) / (t + power))


def check_ramp(ramp: Any) -> None:
    """Raise unless `ramp` is two parts of the iterations."""
    try:
        start, end = ramp
    except (TypeError, ValueError):
        raise ValueError(
            f"ramp must be two parts of the iterations such as (0.3, 0.6), got {ramp!r}."
        ) from None
    check_real(start, "start of ramp", low=0, high=1)
    check_real(end, "end of ramp", low=float(start), high=1)


def iterations(horizon: int | str, problem: Problem) -> int:
    """Return T: the given one, else the ``max_iter`` of the fit, else 100 for a stream."""
    if horizon != "auto":
        return int(horizon)
    return 100 if problem.max_iter is None else problem.max_iter


def ramp_share(ramp: Any, T: int, t: int) -> float:
    """Return the share of the loss in iteration t: 0 up to the start, 1 from the end on."""
    start, end = (float(part) * T for part in ramp)
    if end <= start:
        return float(t >= end)
    return min(1.0, max(0.0, (t - start) / (end - start)))
