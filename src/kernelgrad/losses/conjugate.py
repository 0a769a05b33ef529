r"""Steps of dual coordinate ascent, and the duality gap, one row and output at a time.

A loss of one output is known by its conjugate: for a residual ``z = f - y``

.. math:: l(z) = \max_{low \le u \le high}\ u z - \epsilon |u| - \tfrac{s}{2} u^2

with four numbers ``(epsilon, s, low, high)``, u being the derivative of the loss. RESIDUAL is
this form; MARGIN is it in the margin, with ``y f`` for f, ``y u`` for u and 1 for y; LOGISTIC
is ``log(1 + exp(-y f))``, whose conjugate is the negative entropy of ``-y u`` and needs none.
SIDED is RESIDUAL with numbers of each row: a row with a side y of -1 or +1 has the hinge
``max(0, 1 - y f)``, a box from 0 to -y, one with side 0 the tube ``max(0, |f| - 1)``.

By Fenchel and Young ``l(f) + l*(u) - u f >= 0``, with equality where u is a derivative at f.
Summed over rows with their weights this is the duality gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from kernelgrad._typing import Float64Array
from kernelgrad._validation import CapabilityError
from kernelgrad.losses.base import Loss

RESIDUAL, MARGIN, LOGISTIC, SIDED = range(4)

_STEPS = 200  # of Newton or bisection at most; more than doubles can use

# kind, and (epsilon, s, low, high) of one output
_CONJUGATES: dict[str, tuple[int, Callable[[Any], tuple[float, float, float, float]]]] = {
    "absolute": (RESIDUAL, lambda loss: (0.0, 0.0, -1.0, 1.0)),
    "epsilon_insensitive": (RESIDUAL, lambda loss: (loss.epsilon, 0.0, -1.0, 1.0)),
    "hinge": (MARGIN, lambda loss: (0.0, 0.0, -1.0, 0.0)),
    "huber": (RESIDUAL, lambda loss: (0.0, 1.0, -loss.delta, loss.delta)),
    "logistic": (LOGISTIC, lambda loss: (0.0, 0.0, 0.0, 0.0)),
    "quantile": (RESIDUAL, lambda loss: (0.0, 0.0, -loss.quantile, 1.0 - loss.quantile)),
    "smoothed_hinge": (MARGIN, lambda loss: (0.0, loss.width, -1.0, 0.0)),
    "squared": (RESIDUAL, lambda loss: (0.0, 1.0, -np.inf, np.inf)),
    "squared_hinge": (MARGIN, lambda loss: (0.0, 0.5, -np.inf, 0.0)),
}


def conjugate_of(loss: Loss, n_outputs: int) -> tuple[int, Float64Array]:
    """Return the kind of a loss and the numbers of each output, (C, 4).

    Raises
    ------
    CapabilityError
        The loss has no dual step here.
    """
    if loss.name not in _CONJUGATES:
        raise CapabilityError(
            f"solver 'sdca' has no dual step for loss {loss.name!r}; choose one of "
            f"{', '.join(sorted(_CONJUGATES))}, or another solver."
        )
    kind, numbers = _CONJUGATES[loss.name]
    outputs = [loss.for_output(c) for c in range(n_outputs)]
    return kind, np.array([numbers(each) for each in outputs], np.float64)


@njit(nogil=True, cache=True)
def _peak(z: float, epsilon: float, s: float, low: float, high: float) -> float:
    """Return the u in [low, high] that maximises ``u z - epsilon |u| - s u^2 / 2``."""
    if z > epsilon:
        r = z - epsilon
    elif z < -epsilon:
        r = z + epsilon
    else:
        return 0.0
    if s > 0.0:
        return min(max(r / s, low), high)
    return high if r > 0.0 else low


@njit(nogil=True, cache=True)
def _height(u: float, z: float, epsilon: float, s: float) -> float:
    return u * z - epsilon * abs(u) - 0.5 * s * u * u


@njit(nogil=True, cache=True)
def _sigmoid(x: float) -> float:
    if x >= 0.0:
        return 1.0 / (1.0 + math.exp(-x))
    e = math.exp(x)
    return e / (1.0 + e)


@njit(nogil=True, cache=True)
def _entropy(b: float) -> float:
    """Return ``b log b + (1 - b) log(1 - b)``."""
    total = 0.0
    if b > 0.0:
        total += b * math.log(b)
    if b < 1.0:
        total += (1.0 - b) * math.log1p(-b)
    return total


@njit(nogil=True, cache=True)
def _logistic_step(b: float, m: float, q: float) -> float:
    """Return b' = sigma(-z) where the margin after the step, z, is ``m + q (b' - b)``.

    Newton's method; a step that leaves the bracket, or follows one that did not halve the
    equation, is a bisection.
    """
    low, high = m - q * b, m + q * (1.0 - b)
    z, last = m, math.inf
    t: float = _sigmoid(-z)
    for _ in range(_STEPS):
        h = z - m - q * (t - b)
        if h > 0.0:
            high = z
        else:
            low = z
        new = z - h / (1.0 + q * t * (1.0 - t))
        if not (low < new < high and abs(h) <= 0.5 * last):
            new = 0.5 * (low + high)
        moved, last = abs(new - z), abs(h)
        z = new
        t = _sigmoid(-z)
        if moved <= 1e-15 * (1.0 + abs(z)):
            break
    return t


@njit(nogil=True, cache=True)
def _numbers(kind: int, numbers: Float64Array, y: float) -> tuple[float, float, float, float]:
    """Return ``(epsilon, s, low, high)`` of a row; `numbers` are those of its output."""
    if kind != SIDED:
        return numbers[0], numbers[1], numbers[2], numbers[3]
    if y == 0.0:
        return 1.0, 0.0, -1.0, 1.0
    return 0.0, 0.0, min(0.0, -y), max(0.0, -y)


@njit(nogil=True, cache=True)
def dual_step(kind: int, numbers: Float64Array, y: float, u: float, f: float, q: float) -> Any:
    """Return the u that maximises the dual in one coordinate, all others fixed."""
    if kind == LOGISTIC:
        return -y * _logistic_step(-y * u, y * f, q)
    # completing the square with the quadratic term q/2 (u' - u)^2
    epsilon, s, low, high = _numbers(kind, numbers, y)
    if kind == MARGIN:
        return y * _peak(y * f - 1.0 + q * (y * u), epsilon, s + q, low, high)
    return _peak(f - y + q * u, epsilon, s + q, low, high)


@njit(nogil=True, cache=True)
def loss_and_gap(
    kind: int, numbers: Float64Array, y: float, u: float, f: float
) -> tuple[float, float]:
    """Return ``l(f)`` and ``l(f) + l*(u) - u f``."""
    if kind == LOGISTIC:
        b, m = -y * u, y * f
        loss = math.log1p(math.exp(-abs(m))) + max(-m, 0.0)
        return loss, max(loss + _entropy(b) + b * m, 0.0)
    epsilon, s, low, high = _numbers(kind, numbers, y)
    if kind == MARGIN:
        z, v = y * f - 1.0, y * u
    else:
        z, v = f - y, u
    loss = _height(_peak(z, epsilon, s, low, high), z, epsilon, s)
    return loss, max(loss - _height(v, z, epsilon, s), 0.0)
