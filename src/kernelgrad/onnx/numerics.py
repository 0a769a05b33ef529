"""Values of graphs as an array namespace: NumPy's functions by the names of NumPy."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.polynomial import Chebyshev
from numpy.polynomial.chebyshev import cheb2poly
from scipy.special import ndtri

from kernelgrad.onnx.graph import Value
from kernelgrad.types import Float64Array

TINY = 1e-290  # a divisor in place of 0


def _operator(kind: str) -> Callable[..., Value]:
    """Return the function of one or more arguments, the first or second of which is a value."""

    def apply(*inputs: Any) -> Value:
        value = next(each for each in inputs if isinstance(each, Value))
        return value.graph.op(kind, *inputs)

    return apply


abs, equal, exp, floor, isnan = map(_operator, ("Abs", "Equal", "Exp", "Floor", "IsNaN"))
log, maximum, minimum, sigmoid = map(_operator, ("Log", "Max", "Min", "Sigmoid"))
sqrt, where = map(_operator, ("Sqrt", "Where"))


def clip(x: Value, low: float | None, high: float | None) -> Value:
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


def concatenate(blocks: Sequence[Value], axis: int) -> Value:
    return blocks[0] if len(blocks) == 1 else blocks[0].graph.op("Concat", *blocks, axis=axis)


def take(values: Any, index: Value) -> Value:
    """Return entries of an array by values that are numbers; -1 is the last."""
    return index.graph.constant(values).take(index, axis=0)


def norm(x: Value) -> Value:
    """Return the Euclidean norm of each row, (n, 1)."""
    return sqrt(x.squares())  # ReduceL2 of float64 is of float32 in onnxruntime 1.15


def softmax(x: Value) -> Value:
    return x.graph.op("Softmax", x, axis=1)


def ranked(x: Value, n: int, largest: int = 1) -> Value:
    """Return the n largest entries of rows, falling, or the least ones, increasing."""
    return x.graph.ops("TopK", x, np.array([n]), dtypes=(None, np.int64), largest=largest)[0]


# Functions that ONNX has no operator for, or none in float64


def _polynomial(
    function: Callable[[Float64Array], Float64Array], low: float, high: float, t: Value
) -> Value:
    """Return a function of t, in float64 within low and high, by a polynomial."""
    fitted = Chebyshev.interpolate(function, 20, domain=[low, high])  # errors are below 1e-11
    u = (t - (low + high) / 2) * (2 / (high - low))
    *rest, total = cheb2poly(fitted.coef).tolist()
    return cast("Value", functools.reduce(lambda sum_, c: sum_ * u + c, reversed(rest), total))


def normal_scores(p: Value, limit: float) -> Value:
    r"""Return the inverse of the normal distribution at p, within -limit and limit.

    It is a smooth function of :math:`t = \sqrt{-2 \ln p}` for p up to one half.
    """
    least = np.exp(-0.5 * (limit + 1.0) ** 2)  # below the probability of -limit
    t = sqrt(-2.0 * log(clip(minimum(p, 1.0 - p), float(least), 0.5)))

    def score(t: Float64Array) -> Float64Array:
        return np.asarray(-ndtri(np.exp(-0.5 * t**2)))

    size = _polynomial(score, float(np.sqrt(2 * np.log(2))), limit + 1.0, t)
    return clip(where(p < 0.5, -size, size), -limit, limit)


def arccos(cosine: Value) -> Value:
    r"""Return the angle of a cosine within -1 and 1, in float64.

    For m >= 0, :math:`\arccos m = \sqrt{1 - m} A(m)` with a smooth A.
    """

    def ratio(m: Float64Array) -> Float64Array:
        rest = np.maximum(1.0 - m, 1e-30)
        return np.asarray(2 * np.arcsin(np.sqrt(rest / 2)) / np.sqrt(rest))

    m = abs(cosine)
    v = sqrt(1.0 - m) * _polynomial(ratio, 0.0, 1.0, m)
    return where(cosine > 0.0, v, np.pi - v)
