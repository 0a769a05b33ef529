"""Functions that ONNX has no operator for, or none in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.polynomial import Chebyshev
from numpy.polynomial.chebyshev import cheb2poly
from scipy.special import ndtri

from kernelgrad.onnx.graph import Value
from kernelgrad.types import Float64Array

_DEGREE = 20  # of polynomials; their errors are below 1e-11
TINY = 1e-290  # a divisor in place of 0


def _polynomial(
    function: Callable[[Float64Array], Float64Array], low: float, high: float, t: Value
) -> Value:
    """Return a function of t, in float64 within low and high, by a polynomial."""
    fitted = Chebyshev.interpolate(function, _DEGREE, domain=[low, high])
    u = (t - (low + high) / 2) * (2 / (high - low))
    *rest, total = cheb2poly(fitted.coef).tolist()
    for coefficient in reversed(rest):
        total = total * u + coefficient
    value: Value = total
    return value


def clip(x: Value, low: float, high: float) -> Value:
    """Return x, not below `low` nor above `high`."""
    return x.graph.op("Min", x.graph.op("Max", x, low), high)


def normal_scores(p: Value, limit: float) -> Value:
    r"""Return the inverse of the normal distribution at p, within -limit and limit.

    It is a smooth function of :math:`t = \sqrt{-2 \ln p}` for p up to one half.
    """
    op = p.graph.op
    least = np.exp(-0.5 * (limit + 1.0) ** 2)  # below the probability of -limit
    lower = clip(op("Min", p, 1.0 - p), float(least), 0.5)
    t = op("Sqrt", -2.0 * op("Log", lower))

    def score(t: Float64Array) -> Float64Array:
        return np.asarray(-ndtri(np.exp(-0.5 * t**2)))

    size = _polynomial(score, float(np.sqrt(2 * np.log(2))), limit + 1.0, t)
    return clip(op("Where", p < 0.5, -size, size), -limit, limit)


def angle(cosine: Value) -> Value:
    r"""Return pi minus the angle of a cosine within -1 and 1, in float64.

    For m >= 0, :math:`\arccos m = \sqrt{1 - m} A(m)` with a smooth A.
    """
    op = cosine.graph.op

    def ratio(m: Float64Array) -> Float64Array:
        rest = np.maximum(1.0 - m, 1e-30)
        return np.asarray(2 * np.arcsin(np.sqrt(rest / 2)) / np.sqrt(rest))

    m = op("Abs", cosine)
    v = op("Sqrt", 1.0 - m) * _polynomial(ratio, 0.0, 1.0, m)
    return op("Where", cosine > 0.0, np.pi - v, v)


def softmax(x: Value) -> Value:
    """Return the softmax of rows."""
    return x.graph.op("Softmax", x, axis=1)
