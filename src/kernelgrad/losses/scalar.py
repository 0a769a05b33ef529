r"""The table of scalar losses: value, slope and curvature of one output.

The loss of an output is given by a *code* and one parameter p. With ``m = y f``,
``t = 1 - m`` and ``z = f - y``:

==============  ==============================================  ======================  =====
code            l(y, f)                                         curvature               p
==============  ==============================================  ======================  =====
HINGE           ``max(0, t)``                                   ``|t|`` / 2
SMOOTHED_HINGE  0; ``t^2 / 2g``; ``t - g/2``                    ``1 / max(|2t - g|,g)``  g
SQUARED_HINGE   ``max(0, t)^2``                                 2 where ``t > 0``
LOGISTIC        ``log(1 + exp(-m))``                            ``s(m) s(-m)``
MODIFIED        ``log(1 + exp(beta t)) / beta``                 ``tanh(beta t/2) / 2t``  beta
PERCEPTRON      ``max(0, -m)``                                  ``|m|`` / 2
SQUARED         ``z^2 / 2``                                     1
HUBER           ``z^2 / 2``, a line from ``|z| = delta``        ``min(1, delta / |z|)``  delta
EPSILON         ``max(0, |z| - eps)``                           ``|z -+ eps|`` / 2      eps
QUANTILE        ``q max(0, -z) + (1 - q) max(0, z)``            ``|z|`` / 2             q
ONE_CLASS       ``max(0, -f)``                                  ``|f|`` / 2             nu
KL              ``-f`` where y > 0, else ``exp f``              0; ``exp f``
LEAST_SQUARES   ``-f`` where y > 0, else ``f^2 / 2``            0; 1
RATIO           ``-log f`` where y > 0, else f                  ``1 / f^2``; 0          floor
POISSON         ``exp f - y f + y log y - y``                   ``exp f``
GAMMA           ``y exp(-f) + f - 1 - log y``                   ``y exp(-f)``
TWEEDIE         ``exp(af)/a + y exp(-bf)/b - y^a/(ab)``         ``a exp(af) + ...``     power
MULTINOMIAL     ``log sum_c exp(f_c) - sum_c y_c f_c``          ``p_c (1 - p_c)``
==============  ==============================================  ======================  =====

Here s is the logistic function, and a = 2 - power, b = power - 1. KL, POISSON, GAMMA and
TWEEDIE replace exp by its tangent above 30, and RATIO replaces -log by its tangent below the
floor. The absolute error is EPSILON with eps = 0.

Kinks can be smoothed over a width d > 0. A loss with kinks is a line plus the sum of
``|t| / 2`` over its kinks, and every ``|t|`` is replaced by

.. math:: |t|_d = |t| \text{ where } |t| \ge d, \text{ else } t^2 / (2 d) + d / 2,

which is at most d/2 above ``|t|``. Its second derivative is 1/d within the width and 0 outside.
The *majorising* curvature ``1 / max(|t|, d)`` is that of the parabola which touches ``|t|_d``
at t and lies above it everywhere; the table writes it as ``|t|`` / 2. The curvatures of HUBER,
SMOOTHED_HINGE and RATIO are majorising on their linear parts, that of MODIFIED everywhere.

:func:`value`, :func:`slope` and :func:`curvature` are expressions without branches, which
accept arrays as well as the numbers of compiled loops. Constants are in single precision, where
they are exact, so results keep the precision of the arguments. MULTINOMIAL couples the outputs
of a row: :func:`multinomial` takes arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelgrad.compute.compiling import overload, usable_in_loops

HINGE, SMOOTHED_HINGE, SQUARED_HINGE, LOGISTIC, PERCEPTRON = range(5)
SQUARED, HUBER, EPSILON, QUANTILE = range(5, 9)
ONE_CLASS, KL, LEAST_SQUARES, MULTINOMIAL = range(9, 13)
MODIFIED, RATIO, POISSON, GAMMA, TWEEDIE = range(14, 19)
HINGE_OR_TUBE = 13  # dual only: HINGE for targets -1 and +1, EPSILON with p = 1 for target 0

KINKED = (HINGE, PERCEPTRON, EPSILON, QUANTILE, ONE_CLASS)

_ZERO, _HALF, _ONE, _TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
_LEAST = np.float32(1e-30)  # lower bound of divisors and of arguments of logarithms
LINEAR_FROM = np.float32(30)  # e^30 is finite with room to spare in single precision
LARGEST_LOG = 709.0  # exp of it is finite in float64


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where the condition holds, else `no`; for arrays or numbers."""
    return np.where(condition, yes, no)


@overload(choose)
def _choose(condition: Any, yes: Any, no: Any) -> Any:
    return lambda condition, yes, no: yes if condition else no


def clamp(x: Any, low: Any, high: Any) -> Any:
    return np.clip(x, low, high)


@overload(clamp)
def _clamp(x: Any, low: Any, high: Any) -> Any:
    return lambda x, low, high: low if x < low else (high if x > high else x)


def larger(a: Any, b: Any) -> Any:
    """Return the larger of a and b; a if it is not a number."""
    return np.maximum(a, b)


@overload(larger)
def _larger(a: Any, b: Any) -> Any:
    return lambda a, b: b if a < b else a


@usable_in_loops
def sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return choose(x >= _ZERO, _ONE, e) / (_ONE + e)


@usable_in_loops
def _log1p_exp(x: Any) -> Any:
    """Return ``log(1 + exp x)`` for x <= 0, with the part of the sum that rounding cuts off."""
    e = np.exp(x)
    u = _ONE + e
    return np.log(u) + (e - (u - _ONE)) / u


@usable_in_loops
def _exp(f: Any) -> Any:
    """Return exp f, replaced by its tangent above `LINEAR_FROM`."""
    near = np.minimum(f, LINEAR_FROM)
    return np.exp(near) * (_ONE + (f - near))


@usable_in_loops
def _bend(f: Any) -> Any:
    """Return the second derivative of `_exp`."""
    return choose(f < LINEAR_FROM, np.exp(np.minimum(f, LINEAR_FROM)), _ZERO)


@usable_in_loops
def value(code: int, p: Any, y: Any, f: Any) -> Any:
    if code == LOGISTIC:
        m = y * f
        return _log1p_exp(-np.abs(m)) + larger(-m, _ZERO)
    if code == MODIFIED:
        t = _ONE - y * f
        return _log1p_exp(-np.abs(p * t)) / p + larger(t, _ZERO)
    if code == HINGE:
        return larger(_ONE - y * f, _ZERO)
    if code == SMOOTHED_HINGE:
        t = _ONE - y * f
        s = clamp(t, _ZERO, p) / p
        return s * (t - _HALF * p * s)
    if code == SQUARED_HINGE:
        s = larger(_ONE - y * f, _ZERO)
        return s * s
    if code == PERCEPTRON:
        return larger(-y * f, _ZERO)
    if code == ONE_CLASS:
        return larger(-f, _ZERO)
    if code == KL:
        return choose(y > _ZERO, -f, _exp(f))
    if code == LEAST_SQUARES:
        return choose(y > _ZERO, -f, _HALF * f * f)
    if code == RATIO:
        s = larger(f, p)
        return choose(y > _ZERO, (s - f) / p - np.log(s), f)
    if code == POISSON:
        return _exp(f) + y * (np.log(larger(y, _LEAST)) - _ONE - f)
    if code == GAMMA:
        return y * _exp(-f) + f - (_ONE + np.log(larger(y, _LEAST)))
    if code == TWEEDIE:
        a, b = _TWO - p, p - _ONE
        left = _exp(a * f) - larger(y, _ZERO) ** a
        return left / a + (y * _exp(-b * f) - larger(y, _ZERO) ** a) / b
    z = f - y
    if code == SQUARED:
        return _HALF * z * z
    if code == HUBER:
        s = clamp(z, -p, p)
        return s * (z - _HALF * s)
    if code == EPSILON:
        return larger(np.abs(z) - p, _ZERO)
    return larger((_ONE - p) * z, -p * z)


@usable_in_loops
def slope(code: int, p: Any, y: Any, f: Any) -> Any:
    """Return the derivative of one output's loss.

    At a kink it is 0, except for PERCEPTRON, where it is that of a mistake, and ONE_CLASS,
    where it is -nu.
    """
    if code == LOGISTIC:
        return -y * sigmoid(-y * f)
    if code == MODIFIED:
        return -y * sigmoid(p * (_ONE - y * f))
    if code == HINGE:
        return choose(y * f < _ONE, -y, _ZERO * y)
    if code == SMOOTHED_HINGE:
        return -y * (clamp(_ONE - y * f, _ZERO, p) / p)
    if code == SQUARED_HINGE:
        return -_TWO * y * larger(_ONE - y * f, _ZERO)
    if code == PERCEPTRON:
        return choose(y * f <= _ZERO, -y, _ZERO * y)
    if code == ONE_CLASS:
        return choose(f < _ZERO, -_ONE, choose(f > _ZERO, _ZERO, -p))
    if code == KL:
        return choose(y > _ZERO, -_ONE, np.exp(np.minimum(f, LINEAR_FROM)))
    if code == LEAST_SQUARES:
        return choose(y > _ZERO, -_ONE, f)
    if code == RATIO:
        return choose(y > _ZERO, -_ONE / larger(f, p), _ONE)
    if code == POISSON:
        return np.exp(np.minimum(f, LINEAR_FROM)) - y
    if code == GAMMA:
        return _ONE - y * np.exp(np.minimum(-f, LINEAR_FROM))
    if code == TWEEDIE:
        low = np.exp(np.minimum((_ONE - p) * f, LINEAR_FROM))
        return np.exp(np.minimum((_TWO - p) * f, LINEAR_FROM)) - y * low
    z = f - y
    if code == SQUARED:
        return z
    if code == HUBER:
        return clamp(z, -p, p)
    if code == EPSILON:
        return choose(z > p, _ONE, choose(z < -p, -_ONE, _ZERO))
    return choose(z > _ZERO, _ONE - p, choose(z < _ZERO, -p, _ZERO))


@usable_in_loops
def _kink(t: Any, width: Any, far: Any) -> Any:
    a = np.abs(t)
    return choose(a < width, _ONE, far) / larger(a, width)


@usable_in_loops
def curvature(code: int, p: Any, y: Any, f: Any, width: Any, far: Any) -> Any:
    """Return the curvature of one output's loss, with kinks smoothed over a width.

    It is 0 for margin losses with target 0, which marks rows that an output ignores.

    `far` is 1 for the majorising curvature in the table and 0 for the second derivative. They
    differ beyond the width of a kink, on the linear parts of HUBER, SMOOTHED_HINGE and RATIO,
    and for MODIFIED.
    """
    if code == LOGISTIC:
        e = np.exp(-np.abs(y * f))
        return (y * y) * e / ((_ONE + e) * (_ONE + e))
    if code == MODIFIED:
        a = larger(np.abs(p * (_ONE - y * f)), _LEAST)
        e = np.exp(-a)
        above = np.tanh(_HALF * a) / (_TWO * a)
        return (y * y) * p * choose(far > _ZERO, above, e / ((_ONE + e) * (_ONE + e)))
    if code == HINGE:
        return (y * y) * _HALF * _kink(_ONE - y * f, width, far)
    if code == SMOOTHED_HINGE:
        return (y * y) * _HALF * _kink(_ONE - y * f - _HALF * p, _HALF * p, far)
    if code == SQUARED_HINGE:
        return choose(y * f < _ONE, (y * y) * _TWO, _ZERO)
    if code in (PERCEPTRON, ONE_CLASS):
        return _HALF * _kink(f, width, far)
    if code in (KL, POISSON, GAMMA):
        if code == GAMMA:
            return y * _bend(-f)
        return choose((code == KL) & (y > _ZERO), _ZERO, _bend(f))
    if code == TWEEDIE:
        a, b = _TWO - p, p - _ONE
        return a * _bend(a * f) + b * y * _bend(-b * f)
    if code == LEAST_SQUARES:
        return choose(y > _ZERO, _ZERO, _ONE)
    if code == RATIO:
        s = larger(f, p)
        root = s + np.sqrt(p * (s - f))
        return choose(y > _ZERO, choose(f < p, far, _ONE), _ZERO) / (root * root)
    if code == SQUARED:
        return _ONE
    z = f - y
    if code == HUBER:
        return p * _kink(z, p, far)
    if code == EPSILON:
        a = np.abs(z)
        return _HALF * (_kink(a - p, width, far) + _kink(a + p, width, far))
    return _HALF * _kink(z, width, far)


@usable_in_loops
def _size(t: Any, width: Any) -> Any:
    """Return ``|t|_d``."""
    a = np.abs(t)
    return choose(a < width, _HALF * (t * t / width + width), a)


@usable_in_loops
def _sign(t: Any, width: Any) -> Any:
    """Return the derivative of ``|t|_d``."""
    return clamp(t / width, -_ONE, _ONE)


@usable_in_loops
def smooth_value(code: int, p: Any, y: Any, f: Any, width: Any) -> Any:
    """Return the loss of one output with its kinks smoothed over a positive width."""
    if code == HINGE:
        t = _ONE - y * f
        return _HALF * (_size(t, width) + t)
    if code == PERCEPTRON:
        return _HALF * (_size(f, width) - y * f)
    if code == ONE_CLASS:
        return _HALF * (_size(f, width) - f)
    if code == EPSILON:
        a = np.abs(f - y)
        # in this order both terms are exactly 0 inside the tube
        inner = _HALF * (_size(a - p, width) + (a - p))
        return inner + _HALF * (_size(a + p, width) - (a + p))
    if code == QUANTILE:
        return _HALF * _size(f - y, width) + (_HALF - p) * (f - y)
    return value(code, p, y, f)


@usable_in_loops
def smooth_slope(code: int, p: Any, y: Any, f: Any, width: Any) -> Any:
    if code == HINGE:
        return -_HALF * y * (_sign(_ONE - y * f, width) + _ONE)
    if code == PERCEPTRON:
        return _HALF * (_sign(f, width) - y)
    if code == ONE_CLASS:
        return _HALF * (_sign(f, width) - _ONE)
    if code == EPSILON:
        z = f - y
        a = np.abs(z)
        size = _HALF * (_sign(a - p, width) + _sign(a + p, width))
        return choose(z > _ZERO, size, -size)
    if code == QUANTILE:
        return _HALF * _sign(f - y, width) + (_HALF - p)
    return slope(code, p, y, f)


@usable_in_loops
def kink_distance(code: int, p: Any, y: Any, f: Any) -> Any:
    """Return the distance from the prediction to the nearest kink of a loss in `KINKED`."""
    if code == HINGE:
        return np.abs(_ONE - y * f)
    if code in (PERCEPTRON, ONE_CLASS):
        return np.abs(f)
    if code == EPSILON:
        return np.abs(np.abs(f - y) - p)
    return np.abs(f - y)


def multinomial(y: Any, f: Any, axis: int) -> tuple[Any, Any]:
    """Return ``log sum_c exp(f_c) - sum_c y_c f_c`` in float64, and the softmax of f."""
    shifted = f - f.max(axis=axis, keepdims=True)
    e = np.exp(shifted)
    total = e.sum(axis=axis, keepdims=True, dtype=np.float64)
    chosen = (y * shifted).sum(axis=axis, dtype=np.float64)
    return np.log(total).squeeze(axis) - chosen, e / total.astype(f.dtype)
