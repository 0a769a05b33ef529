"""Losses that are functions of the residual f - y, and losses of positive targets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from kernelgrad.losses import scalar
from kernelgrad.losses.base import Loss, ScalarLoss, Task
from kernelgrad.params import parameters, real
from kernelgrad.types import AnyArray, Float64Array, FloatArray
from kernelgrad.validation import check_real


def weighted_quantile(y: AnyArray, weights: Float64Array, quantile: float) -> Float64Array:
    """Return for each column of y (n, C) a minimiser b of ``sum_i w_i rho_q(y_i - b)``.

    It is the smallest y at which the cumulative weight reaches ``q * sum(w)``. If the weight
    equals this bound, every b up to the next y is a minimiser and the midpoint is returned, as
    for the median. Weights (n,) are not negative, and not all zero.
    """
    order = np.argsort(y, axis=0, kind="stable")
    result = np.empty(y.shape[1])
    for c in range(y.shape[1]):
        values = y[order[:, c], c]
        cumulative = np.cumsum(weights[order[:, c]])
        target = quantile * cumulative[-1]
        left = np.searchsorted(cumulative, target, side="left")
        right = np.searchsorted(cumulative, target, side="right")
        result[c] = 0.5 * values[left] + 0.5 * values[min(int(right), len(values) - 1)]
    return result


class ResidualLoss(ScalarLoss):
    """A loss ``sum_c phi(f_c - y_c)``."""

    tasks: ClassVar[frozenset[Task]] = frozenset({"regression"})


class SquaredError(ResidualLoss):
    """Squared error, ``l(y, f) = (f - y)^2 / 2``.

    The factor 1/2 makes the gradient equal to the residual ``f - y``, as in Section 4 of Dai et
    al. (2014). With targets -1/+1 it is least-squares classification.
    """

    name: ClassVar[str] = "squared"
    code: ClassVar[int] = scalar.SQUARED
    tasks: ClassVar[frozenset[Task]] = frozenset({"classification", "regression"})
    smoothness: ClassVar[float | None] = 1.0

    def _constants(self, y: Float64Array, weights: Float64Array) -> Float64Array:
        return np.asarray((weights / weights.sum()) @ y)


@parameters
class LogSquaredError(SquaredError):
    """Squared error of logarithms, ``(f - log(y + shift))^2 / 2``, for skewed targets.

    The prediction is ``factor exp(f) - shift``, within `low` and `high`: the mean lies above
    the exponential of the mean of logarithms.

    Parameters
    ----------
    shift : float >= 0, default=0.0
        Addition to the targets, in their unit; 1 suits amounts some of which are 0.
    factor : float > 0, default=1.0
        Factor on the exponential.
    low, high : float or None, default=None
        Bounds of predictions; None is none.
    """

    name: ClassVar[str] = "log_squared"
    tasks: ClassVar[frozenset[Task]] = frozenset({"regression"})

    shift: float = real(default=0.0, low=0)
    factor: float = real(default=1.0, low=0, low_open=True)
    low: float | None = real(default=None, words=(None,))
    high: float | None = real(default=None, words=(None,))

    @property
    def lowest_target(self) -> float:  # type: ignore[override]
        return float(np.finfo(np.float32).tiny) if self.shift == 0 else 0.0

    def targets(self, y: FloatArray) -> FloatArray:
        moved = np.asarray(y, np.float64) + self.shift
        return np.asarray(np.log(np.maximum(moved, np.finfo(np.float32).tiny)))

    def mean(self, f: FloatArray) -> FloatArray:
        values = self.factor * np.exp(np.minimum(f, scalar.LARGEST_LOG)) - self.shift
        low = -np.inf if self.low is None else self.low
        return np.asarray(np.clip(values, low, np.inf if self.high is None else self.high))


@parameters
class Huber(ResidualLoss):
    """Huber loss: quadratic near zero, linear beyond ``delta``.

    With ``z = f - y`` the loss is ``z^2 / 2`` if ``|z| <= delta``, else
    ``delta * (|z| - delta / 2)``. The gradient is z clipped to [-delta, delta], and L = 1. The
    majorising curvature avoids that a batch of large residuals has none.

    Parameters
    ----------
    delta : float > 0, default=1.0
        Residual beyond which the loss is linear, in units of y. 1 suits targets scaled to unit
        variance.
    """

    name: ClassVar[str] = "huber"
    code: ClassVar[int] = scalar.HUBER
    parameter: ClassVar[str | None] = "delta"
    smoothness: ClassVar[float | None] = 1.0

    delta: float = real(default=1.0, low=0.0, low_open=True, kw_only=False)


@parameters
class EpsilonInsensitive(ResidualLoss):
    """Epsilon-insensitive loss of support vector regression, ``max(0, |f - y| - epsilon)``.

    With ``z = f - y`` the subgradient is ``sign(z)`` if ``|z| > epsilon``, else 0. The
    intercept is the weighted median of the points ``y - epsilon`` and ``y + epsilon``.

    Parameters
    ----------
    epsilon : float >= 0, default=0.1
        Half-width of the tube in which the loss is 0, in units of y. 0.1 suits targets scaled
        to unit variance; 0 gives the absolute error.
    """

    name: ClassVar[str] = "epsilon_insensitive"
    code: ClassVar[int] = scalar.EPSILON
    parameter: ClassVar[str | None] = "epsilon"

    epsilon: float = real(default=0.1, low=0.0, kw_only=False)

    def _constants(self, y: Float64Array, weights: Float64Array) -> Float64Array:
        ends = np.concatenate([y - float(self.epsilon), y + float(self.epsilon)])
        return weighted_quantile(ends, np.concatenate([weights, weights]), 0.5)


class Absolute(ResidualLoss):
    """Absolute error, ``l(y, f) = |f - y|``.

    The subgradient is ``sign(f - y)``, which is 0 at 0; the intercept is the weighted median.
    """

    name: ClassVar[str] = "absolute"
    code: ClassVar[int] = scalar.EPSILON

    def _constants(self, y: Float64Array, weights: Float64Array) -> Float64Array:
        return weighted_quantile(y, weights, 0.5)


class Quantile(ResidualLoss):
    """Pinball loss, ``l(y, f) = q max(0, y - f) + (1 - q) max(0, f - y)``.

    The subgradient is -q for ``f < y``, 1 - q for ``f > y`` and 0 for ``f = y``. The intercept
    is the weighted q-quantile.

    Parameters
    ----------
    quantile : float in (0, 1) or sequence of them, default=0.5
        q. The default estimates the median; the loss is then half the absolute error. A
        sequence of increasing quantiles has one output for each.
    """

    name: ClassVar[str] = "quantile"
    code: ClassVar[int] = scalar.QUANTILE
    parameter: ClassVar[str | None] = "quantile"

    def __init__(self, quantile: float | Sequence[float] = 0.5) -> None:
        self.quantile = quantile

    def check(self) -> None:
        if np.ndim(self.quantile) > 1 or np.size(self.quantile) == 0:
            raise ValueError(
                f"quantile must be a number or a sequence of them, got {self.quantile!r}."
            )
        for q in self._each:
            check_real(q, "quantile", low=0.0, high=1.0, low_open=True, high_open=True)
        if any(a >= b for a, b in pairwise(self._each)):
            raise ValueError(
                f"quantile must increase from output to output, got {self.quantile!r}; sort it "
                "and drop repeats."
            )

    @property
    def _each(self) -> list[Any]:
        q: Any = self.quantile
        return list(q) if np.ndim(q) else [q]

    @property
    def n_outputs(self) -> int | None:  # type: ignore[override]
        return len(self._each) if np.ndim(self.quantile) else None

    def for_output(self, c: int) -> Loss:
        return Quantile(float(self._each[c])) if np.ndim(self.quantile) else self

    def _constants(self, y: Float64Array, weights: Float64Array) -> Float64Array:
        each = np.broadcast_to(np.asarray(self.quantile, float), y.shape[1:])
        columns = zip(y.T[:, :, None], each, strict=True)
        return np.concatenate([weighted_quantile(x, weights, float(q)) for x, q in columns])


class LogLinkLoss(ScalarLoss):
    """Base class of losses with log link: the function f is the logarithm of the mean.

    The intercept is that of the weighted mean. Exponentials are replaced by their tangents
    where their argument is above 30.
    """

    tasks: ClassVar[frozenset[Task]] = frozenset({"regression"})

    @property
    def is_smooth(self) -> bool:
        """True, as the slope is continuous, although the curvature is unbounded."""
        return True

    def mean(self, f: FloatArray) -> FloatArray:
        """Return ``exp f``, or the largest float if that overflows."""
        return np.asarray(np.exp(np.minimum(f, scalar.LARGEST_LOG)))

    def _constants(self, y: Float64Array, weights: Float64Array) -> Float64Array:
        mean = (weights / weights.sum()) @ y
        return np.asarray(np.log(np.maximum(mean, np.exp(-scalar.LINEAR_FROM))))


class Poisson(LogLinkLoss):
    """Half the Poisson deviance, ``l(y, f) = exp f - y f + y log y - y``, with mean exp f.

    The gradient is ``exp f - y``. Targets are at least 0: counts, or amounts many of which are
    0. For rates, divide the counts by the exposure and use the exposure as weights.
    """

    name: ClassVar[str] = "poisson"
    code: ClassVar[int] = scalar.POISSON
    lowest_target: ClassVar[float | None] = 0.0


class Gamma(LogLinkLoss):
    """Half the gamma deviance, ``l(y, f) = y exp(-f) + f - log y - 1``, with mean exp f.

    It suits positive targets whose standard deviation is proportional to the mean, such as
    amounts and durations. The gradient is ``1 - y exp(-f)``.
    """

    name: ClassVar[str] = "gamma"
    code: ClassVar[int] = scalar.GAMMA
    lowest_target: ClassVar[float | None] = float(np.finfo(np.float32).tiny)


@parameters
class Tweedie(LogLinkLoss):
    """Half the Tweedie deviance of a power p between 1 and 2, with mean exp f.

    It suits amounts many of which are 0, such as claims of all insured: the sum of a Poisson
    number of gamma amounts has a variance in proportion to ``mean^p``. With ``a = 2 - p`` and
    ``b = p - 1`` it is ``l(y, f) = exp(a f) / a + y exp(-b f) / b - y^a / (a b)``, its slope
    ``exp(a f) - y exp(-b f)``.

    Parameters
    ----------
    power : float in (1, 2), default=1.5
        p: near 1 as `Poisson`, near 2 as `Gamma`.
    """

    name: ClassVar[str] = "tweedie"
    code: ClassVar[int] = scalar.TWEEDIE
    parameter: ClassVar[str | None] = "power"
    lowest_target: ClassVar[float | None] = 0.0

    power: float = real(default=1.5, low=1, high=2, low_open=True, high_open=True)
