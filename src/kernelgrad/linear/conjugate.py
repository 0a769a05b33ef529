r"""Steps of dual coordinate ascent, the duality gap of a row and output, orders of visits.

A loss of one output is represented by its conjugate. For a residual ``z = f - y``

.. math:: l(z) = \max_{low \le u \le high}\ u z - \epsilon |u| - \tfrac{s}{2} u^2

with four numbers ``(epsilon, s, low, high)`` that follow from its code, parameter and target
(:func:`_conjugate`); the maximiser u is the derivative of the loss. Losses of the margin have
this form because ``y f - 1 = y (f - y)`` for y = -1 or +1. The conjugate of LOGISTIC is the
negative entropy of ``-y u``; that of MODIFIED is the same divided by beta, plus ``y u``.

By the Fenchel-Young inequality ``l(f) + l*(u) - u f >= 0``, with equality if u is a
subgradient at f. The weighted sum over rows is the duality gap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.rng import draws
from kernelgrad.losses import LOSSES, scalar
from kernelgrad.losses.base import Loss
from kernelgrad.types import Float64Array, IntArray
from kernelgrad.validation import CapabilityError

_KNOWN = frozenset((
    scalar.SQUARED, scalar.HUBER, scalar.EPSILON, scalar.QUANTILE, scalar.HINGE,
    scalar.SMOOTHED_HINGE, scalar.SQUARED_HINGE, scalar.LOGISTIC, scalar.MODIFIED,
))  # fmt: skip
_ORDER_TAG = 0x73646361
_EXACT = 1e-15  # relative tolerance of Newton's method
_STEPS = 200  # limit on Newton and bisection steps, more than float64 can need


def conjugate_of(loss: Loss, n_outputs: int) -> tuple[int, Float64Array]:
    """Return the code of a loss and the parameter of each output, (C,)."""
    if loss.code is None or loss.code not in _KNOWN:
        names = sorted(name for name, cls in LOSSES.items() if cls.code in _KNOWN)
        raise CapabilityError(
            f"solver 'sdca' has no dual step for loss {loss.name!r}; choose one of "
            f"{', '.join(names)}, or another solver."
        )
    return loss.code, loss.params(n_outputs)


@njit(nogil=True, cache=True)
def _conjugate(code: int, p: float, y: float) -> tuple[float, float, float, float]:
    """Return ``(epsilon, s, low, high)``."""
    if code == scalar.SQUARED:
        return 0.0, 1.0, -math.inf, math.inf
    if code == scalar.HUBER:
        return 0.0, 1.0, -p, p
    if code == scalar.EPSILON:
        return p, 0.0, -1.0, 1.0
    if code == scalar.QUANTILE:
        return 0.0, 0.0, -p, 1.0 - p
    if code == scalar.HINGE_OR_TUBE and y == 0.0:
        return 1.0, 0.0, -1.0, 1.0
    if code == scalar.SQUARED_HINGE:
        return 0.0, 0.5, -math.inf if y > 0.0 else 0.0, math.inf if y < 0.0 else 0.0
    s = p if code == scalar.SMOOTHED_HINGE else 0.0
    return 0.0, s, min(0.0, -y), max(0.0, -y)


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
def _entropy(b: float) -> float:
    """Return ``b log b + (1 - b) log(1 - b)``."""
    total = 0.0
    if b > 0.0:
        total += b * math.log(b)
    if b < 1.0:
        total += (1.0 - b) * math.log1p(-b)
    return total


@njit(nogil=True, cache=True)
def _logistic_step(b: float, m: float, q: float, near: float) -> float:
    """Return b' = sigma(-z), where ``z = m + q (b' - b)`` is the margin after the step.

    Newton's method stops at a step of at most ``near (1 + |z|)``. A step that leaves the
    bracket, or follows one that did not halve the residual, is replaced by a bisection.
    """
    low, high = m - q * b, m + q * (1.0 - b)
    z, last = m, math.inf
    t: float = scalar.sigmoid(-z)
    for _ in range(_STEPS):
        h = z - m - q * (t - b)
        if h > 0.0:
            high = z
        else:
            low = z
        new = z - h / (1.0 + q * t * (1.0 - t))
        # with full precision, a step that ends on its bracket cannot improve
        inside = low < new < high or (near > _EXACT and low <= new <= high)
        if not (inside and abs(h) <= 0.5 * last):
            new = 0.5 * (low + high)
        moved, last = abs(new - z), abs(h)
        z = new
        t = scalar.sigmoid(-z)
        if moved <= near * (1.0 + abs(z)):
            break
    return t


@njit(nogil=True, cache=True)
def dual_step(
    code: int, p: float, y: float, u: float, f: float, q: float, near: float = _EXACT
) -> Any:
    """Return the u that maximises the dual in one coordinate, with all others fixed.

    For losses without a closed form Newton's method stops at steps of `near`; the error is then
    about ``near**2``.
    """
    if code == scalar.LOGISTIC:
        return -y * _logistic_step(-y * u, y * f, q, near)
    if code == scalar.MODIFIED:
        return -y * _logistic_step(-y * u, p * (y * f - 1.0), p * q, near)
    # completing the square with the quadratic term q/2 (u' - u)^2
    epsilon, s, low, high = _conjugate(code, p, y)
    return _peak(f - y + q * u, epsilon, s + q, low, high)


@njit(nogil=True, cache=True)
def loss_and_gap(code: int, p: float, y: float, u: float, f: float) -> tuple[float, float]:
    """Return ``l(f)`` and ``l(f) + l*(u) - u f``."""
    if code == scalar.LOGISTIC:
        b, m, loss = -y * u, y * f, scalar.value(code, p, y, f)
        return loss, max(loss + _entropy(b) + b * m, 0.0)
    if code == scalar.MODIFIED:
        b, m, loss = -y * u, y * f, scalar.value(code, p, y, f)
        return loss, max(loss + _entropy(b) / p + b * (m - 1.0), 0.0)
    epsilon, s, low, high = _conjugate(code, p, y)
    z = f - y
    loss = _height(_peak(z, epsilon, s, low, high), z, epsilon, s)
    return loss, max(loss - _height(u, z, epsilon, s), 0.0)


def visit_order(seed: int, start: int, n_visits: int, live: IntArray) -> Iterator[IntArray]:
    """Yield the rows of visits ``start .. start + n_visits - 1``, pass by pass.

    Each pass takes the rows `live` in a random order of its own.
    """
    n, end = len(live), start + n_visits
    while start < end:
        epoch, first = divmod(start, n)
        last = min(n, end - epoch * n)
        yield live[draws(seed, _ORDER_TAG, epoch).permutation(n)[first:last]]
        start = epoch * n + last


def later_part(start: int, n_visits: int, end: int) -> Float64Array:
    """Return which part of the iterates of the second half of `end` visits have each visit."""
    visits = start + np.arange(n_visits)
    return np.minimum(1.0, (end - visits) / (end - end // 2))
