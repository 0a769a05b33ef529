"""Forms of columns and profiles of kernels, each stated once on an array namespace.

The namespace ``xp`` is NumPy, torch or :mod:`kernelgrad.onnx.numerics`, whose arrays are
values of ONNX graphs. The codes are those of :mod:`kernelgrad.kernels.tiles`, which describes
them; its compiled loops for the CPU have the same values up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelgrad.kernels import tiles
from kernelgrad.types import AnyArray

Array = Any  # of the namespace
_NEAR = 1e-6  # distance in length scales below which an infinite slope is replaced by 0


def _square(x: Array) -> Array:
    return x * x


def _nonzero(xp: Any, x: Array) -> Array:
    """Return x >= 0 with ones in place of zeros."""
    return xp.where(x > 0.0, x, 1.0)


def _entropy(xp: Any, x: Array) -> Array:
    return x * xp.log(_nonzero(xp, x))


# The term of a column with entries a and b. Terms are added, those of PRODUCTS multiplied.
TERMS: dict[int, Callable[[Any, Array, Array], Array]] = {
    tiles.DOT: lambda xp, a, b: a * b,
    tiles.CHI2: lambda xp, a, b: (
        2.0 * xp.minimum(a, b) * (xp.maximum(a, b) / _nonzero(xp, a + b))
    ),
    tiles.LEAST: lambda xp, a, b: xp.minimum(a, b),
    tiles.SHANNON: lambda xp, a, b: (
        (_entropy(xp, a + b) - _entropy(xp, a) - _entropy(xp, b)) * (0.5 / float(np.log(2.0)))
    ),
    tiles.ABSOLUTE: lambda xp, a, b: xp.abs(a - b),
    tiles.ROOTS: lambda xp, a, b: xp.sqrt(a + b),
    tiles.LORENTZ: lambda xp, a, b: 1.0 + _square(a - b),
    tiles.SUMS: lambda xp, a, b: 1.0 + (a + b),
    tiles.COSH: lambda xp, a, b: 1.0 + _square(a - b) * (0.5 / (1.0 + a)) / (1.0 + b),
}

PRODUCTS = (tiles.LORENTZ, tiles.SUMS, tiles.COSH)

# The Matérn kernels by nu: k(s) and c k'(s) / s, for s = sqrt(2 nu) r / l and e = exp(-s). With
# c = nu the latter is the derivative by the squared distance (r / l)^2.
MATERN: dict[float, tuple[Callable[[Array, Array], Array], Callable[..., Array]]] = {
    0.5: (
        lambda s, e: e,
        lambda s, e, c: np.where(s > _NEAR, -c * e / np.maximum(s, _NEAR), 0.0),
    ),
    1.5: (lambda s, e: (1.0 + s) * e, lambda s, e, c: -c * e),
    2.5: (
        lambda s, e: (1.0 + s + s * s / 3.0) * e,
        lambda s, e, c: (-c / 3.0) * (1.0 + s) * e,
    ),
}
_NU = {tiles.MATERN1: 0.5, tiles.MATERN3: 1.5, tiles.MATERN5: 2.5}


def profile(D: AnyArray, nu: float) -> tuple[AnyArray, AnyArray]:
    """Return k(D) and its derivative for squared distances D in units of the length scale.

    `nu` is a key of :data:`MATERN`, or infinity for the Gaussian kernel. For nu = 0.5 the
    derivative is 0 where D is 0: equal rows do not determine a length scale.
    """
    if nu == np.inf:
        k = np.exp(-0.5 * D)
        return k, -0.5 * k
    value, slope = MATERN[nu]
    s = np.sqrt(2.0 * nu * D)
    e = np.exp(-s)
    return value(s, e), slope(s, e, nu)


def arc_values(order: int, sine: Array, c: Array, rest: Array) -> Array:
    """Return J of the arc-cosine kernel; c is the cosine of an angle, `rest` pi minus it."""
    if order == 0:
        return rest
    return sine + rest * c if order == 1 else 3.0 * sine * c + rest * (1.0 + 2.0 * c * c)


def values(
    xp: Any,
    t: Array,
    left: Array = None,
    right: Array = None,
    *,
    finish: int,
    coef: Sequence[float] | AnyArray = (),
    degree: int = 1,
) -> Array:
    """Return kernel values of accumulated forms t (n, m).

    `left` (n, 1) and `right` (m,) are the sizes of the rows for arc-cosine kernels, and half
    their squared norms for functions of Euclidean distances. HALF_SQUARE has no closed form.
    """
    if finish == tiles.RAW:
        return t
    if finish in (tiles.EXP, tiles.EXP_MINUS):
        return xp.exp(t if finish == tiles.EXP else -t)
    if finish == tiles.INVERSE:
        return 1.0 / t
    if finish == tiles.POWER:
        return (t + float(coef[0])) ** int(degree)
    if finish == tiles.POLE:
        return 1.0 / (1.0 - t)
    if finish == tiles.SERIES:
        value = t * 0.0 + float(coef[-1])
        for c in coef[-2::-1]:
            value = value * t + float(c)
        return value
    if finish in (tiles.ARC0, tiles.ARC1, tiles.ARC2):
        c = xp.clip(t, -1.0, 1.0)
        sine = xp.sqrt((1.0 - c) * (1.0 + c))
        J = arc_values(finish - tiles.ARC0, sine, c, np.pi - xp.arccos(c))
        return J * (left * right) * (1.0 / np.pi)
    u = xp.clip(left + right - t, 0.0, None)
    if finish == tiles.GAUSS:
        return xp.exp(-u)
    s = xp.sqrt(u)
    return MATERN[_NU[finish]][0](s, xp.exp(-s))
