r"""Forms of columns and profiles of kernels, each stated once on an array namespace.

A kernel is ``h(acc_k t(a_k, b_k))`` for the columns k of two rows a and b. A *form* says how
the terms t of the columns add up:

========  ==================================================  ==================
form      accumulated over columns                            rows in CSR
========  ==================================================  ==================
DOT       ``sum a b``                                         by non-zeros
CHI2      ``sum 2 a b / (a + b)``, for ``a, b >= 0``          by non-zeros
LEAST     ``sum min(a, b)``, for ``a, b >= 0``                by non-zeros
SHANNON   ``sum (a log2((a+b)/a) + b log2((a+b)/b)) / 2``     by non-zeros
ABSOLUTE  ``sum |a - b|``                                     by used columns
ROOTS     ``sum sqrt(a + b)``                                 by used columns
LORENTZ   ``prod 1 + (a - b)^2``                              by used columns
SUMS      ``prod 1 + (a + b)``                                by used columns
COSH      ``prod 1 + (a - b)^2 / (2 (1 + a) (1 + b))``        by used columns
========  ==================================================  ==================

In the first four a column counts nothing where either entry is 0, in all of them where both
are. Parameters of kernels are factors of the rows, so no form has any. A *finish* says what
becomes of the result t:

============================  =================================================================
finish                        value
============================  =================================================================
RAW, EXP, EXP_MINUS, INVERSE  ``t``, ``exp(t)``, ``exp(-t)``, ``1 / t``
EXP_ROOT                      ``exp(-sqrt(t))``
POWER, POLE, SERIES           ``(t + c_0)^n``, ``1 / (1 - t)``, ``c_0 + c_1 t + c_2 t^2 + ...``
HALF_SQUARE                   ``u = |a - b|^2 / 2``, from ``t = a . b`` and squared norms
GAUSS                         ``exp(-u)``
MATERN1, MATERN3, MATERN5     ``p(s) exp(-s)``, ``s = sqrt(u)``; p = 1, 1 + s, 1 + s + s^2 / 3
ARC0, ARC1, ARC2              arc-cosine kernels of order 0, 1, 2, from the cosine t and the
                              squared sizes of both rows
============================  =================================================================

The namespace ``xp`` is NumPy, torch or :mod:`kernelgrad.onnx.numerics`, whose arrays are
values of ONNX graphs. Compiled loops of :mod:`kernelgrad.kernels.tiles` have the same values
up to rounding.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelgrad.types import AnyArray

DOT, CHI2, LEAST, SHANNON, ABSOLUTE, ROOTS, LORENTZ, SUMS, COSH = range(9)
RAW, EXP, EXP_MINUS, EXP_ROOT, INVERSE, POWER, POLE, SERIES, ARC0, ARC1, ARC2 = range(11)
HALF_SQUARE, GAUSS, MATERN1, MATERN3, MATERN5 = range(11, 16)
ARCS = ARC0, ARC1, ARC2
PRODUCTS = LORENTZ, SUMS, COSH  # forms whose terms are multiplied

Array = Any  # an array of the namespace
_NEAR = 1e-6  # distance in length scales below which an infinite slope is replaced by 0


def _square(x: Array) -> Array:
    return x * x


def _nonzero(xp: Any, x: Array) -> Array:
    """Return x >= 0 with ones in place of zeros."""
    return xp.where(x > 0.0, x, 1.0)


def _entropy(xp: Any, x: Array) -> Array:
    return x * xp.log(_nonzero(xp, x))


# Term of a column with entries a and b. Terms are added, those of PRODUCTS multiplied.
TERMS: dict[int, Callable[[Any, Array, Array], Array]] = {
    DOT: lambda xp, a, b: a * b,
    CHI2: lambda xp, a, b: 2.0 * xp.minimum(a, b) * (xp.maximum(a, b) / _nonzero(xp, a + b)),
    LEAST: lambda xp, a, b: xp.minimum(a, b),
    SHANNON: lambda xp, a, b: (
        (_entropy(xp, a + b) - _entropy(xp, a) - _entropy(xp, b)) * (0.5 / float(np.log(2.0)))
    ),
    ABSOLUTE: lambda xp, a, b: xp.abs(a - b),
    ROOTS: lambda xp, a, b: xp.sqrt(a + b),
    LORENTZ: lambda xp, a, b: 1.0 + _square(a - b),
    SUMS: lambda xp, a, b: 1.0 + (a + b),
    COSH: lambda xp, a, b: 1.0 + _square(a - b) * (0.5 / (1.0 + a)) / (1.0 + b),
}

# The Matérn kernels by nu: k(s) and c k'(s) / s, for s = sqrt(2 nu) r / l and e = exp(-s). With
# c = nu the latter is the derivative by the squared distance (r / l)^2.
MATERN: dict[float, tuple[Callable[[Array, Array], Array], Callable[..., Array]]] = {
    0.5: (
        lambda s, e: e,
        lambda s, e, c: np.where(s > _NEAR, -c * e / np.maximum(s, _NEAR), 0.0),
    ),
    1.5: (lambda s, e: (1.0 + s) * e, lambda s, e, c: -c * e),
    2.5: (lambda s, e: (1.0 + s + s * s / 3.0) * e, lambda s, e, c: (-c / 3.0) * (1.0 + s) * e),
}
_NU = {MATERN1: 0.5, MATERN3: 1.5, MATERN5: 2.5}


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


def power(t: Array, n: int) -> Array:
    """Return ``t^n`` by repeated squaring, which is faster than ``t**n`` for n > 2."""
    if n < 2:
        return t
    root = power(t, n // 2)
    return root * root * t if n & 1 else root * root


def arc_values(order: int, sine: Array, c: Array, rest: Array) -> Array:
    """Return J of the arc-cosine kernel; c is the cosine of an angle, `rest` pi minus it."""
    if order == 0:
        return rest
    return sine + rest * c if order == 1 else 3.0 * sine * c + rest * (1.0 + 2.0 * c * c)


def values(
    xp: Any, t: Array, left: Array = None, right: Array = None, *, finish: int,
    coef: Sequence[float] | AnyArray = (), degree: int = 1,
) -> Array:  # fmt: skip
    """Return kernel values of accumulated forms t (n, m).

    `left` (n, 1) and `right` (m,) are the sizes of the rows for arc-cosine kernels, and half
    their squared norms for functions of Euclidean distances. HALF_SQUARE has no closed form.
    """
    if finish == RAW:
        return t
    if finish in (EXP, EXP_MINUS):
        return xp.exp(t if finish == EXP else -t)
    if finish == EXP_ROOT:
        return xp.exp(-xp.sqrt(t))
    if finish == INVERSE:
        return 1.0 / t
    if finish == POWER:
        return power(t + float(coef[0]), int(degree))
    if finish == POLE:
        return 1.0 / (1.0 - t)
    if finish == SERIES:
        value = t * 0.0 + float(coef[-1])
        for c in coef[-2::-1]:
            value = value * t + float(c)
        return value
    if finish in ARCS:
        c = xp.clip(t, -1.0, 1.0)
        sine = xp.sqrt((1.0 - c) * (1.0 + c))
        J = arc_values(finish - ARC0, sine, c, np.pi - xp.arccos(c))
        return J * (left * right) * (1.0 / np.pi)
    u = xp.clip(left + right - t, 0.0, None)
    if finish == GAUSS:
        return xp.exp(-u)
    s = xp.sqrt(u)
    return MATERN[_NU[finish]][0](s, xp.exp(-s))
