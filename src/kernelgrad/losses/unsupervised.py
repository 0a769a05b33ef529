"""Losses without labels: novelty detection and density ratios."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kernelgrad._params import parameters, real
from kernelgrad._typing import AnyArray, Float64Array, FloatArray
from kernelgrad.losses import scalar
from kernelgrad.losses.base import ScalarLoss, Task, row_weights
from kernelgrad.losses.regression import weighted_quantile

_LARGEST_LOG = 709.0  # exp of it is a float64


@parameters
class OneClass(ScalarLoss):
    r"""One-class loss, ``l(u) = max(0, -u)`` of ``u = f - tau``.

    With ``alpha = nu`` and tau a variable this is the paper's novelty detection (Section 4),
    ``min E max(0, tau - f) + nu/2 ||f||^2 - nu tau``: at the optimum a fraction nu of the rows
    lies below the level tau, the outliers. tau is minus the intercept. The subgradient is -1
    below the level, 0 above, and -nu at it, so that the first step, from f = 0 where every
    row is at the level, moves towards the mean of all rows.

    Given f, the best tau is the nu-quantile of the responses, and `best_intercept` takes it
    from the batch; the paper's rule, which moves tau by steps, is much slower. The derivative
    of rows at the level is such that all derivatives average to -nu, as they must at the best
    tau: a step then moves f towards an average of features, whatever the ties. A quantile of
    few rows is biased: give batches of some ``50 / nu`` rows or more.

    Parameters
    ----------
    nu : float in (0, 1), default=0.1
        Fraction of outliers.
    """

    name: ClassVar[str] = "one_class"
    code: ClassVar[int] = scalar.ONE_CLASS
    parameter: ClassVar[str | None] = "nu"
    tasks: ClassVar[frozenset[Task]] = frozenset({"novelty"})
    adaptive_intercept: ClassVar[bool] = True

    nu: float = real(
        default=0.1, low=0.0, high=1.0, low_open=True, high_open=True, kw_only=False
    )

    def intercept(self, y: AnyArray, sample_weight: AnyArray | None = None) -> Float64Array:
        """Return zeros: the level of the function zero."""
        row_weights(len(y), sample_weight)
        return np.zeros(y.shape[1])

    def level(self, f: FloatArray, sample_weight: AnyArray | None = None) -> Float64Array:
        """Return tau, the weighted nu-quantile of the responses `f` (n, C)."""
        weights = row_weights(len(f), sample_weight)
        return weighted_quantile(f.astype(np.float64), weights, float(self.nu))

    def best_intercept(
        self, f: FloatArray, sample_weight: Float64Array
    ) -> tuple[Float64Array, FloatArray]:
        """Return -tau and the derivatives of all rows, which average to -nu."""
        p = sample_weight / sample_weight.sum()
        tau = self.level(f, sample_weight)
        responses = f.astype(np.float64)
        below, at = responses < tau, responses == tau
        left = np.maximum(float(self.nu) - p @ below, 0.0)
        share = np.minimum(left / np.maximum(p @ at, 1e-300), 1.0)
        return -tau, np.asarray(-(below + share * at), f.dtype)


class _RatioLoss(ScalarLoss):
    """Targets are +1 for rows of the numerator p and -1 for rows of the denominator q."""

    tasks: ClassVar[frozenset[Task]] = frozenset({"density_ratio"})


class KLDensityRatio(_RatioLoss):
    r"""Kullback-Leibler form of the density ratio: ``E_q[exp f] - E_p[f]``.

    Its minimiser is ``f = log p/q`` (the paper's Section 4 names the inverse), and minus its
    smallest value plus one is ``-KL``: ``E_p[f] - E_q[exp f] + 1 <= KL(p || q)``. From f = 30
    on exp goes on as its tangent, so that no value overflows. The Hessian at the optimum is
    that of ``E_p``, hence the typical curvature 1.
    """

    name: ClassVar[str] = "kl"
    code: ClassVar[int] = scalar.KL
    typical_curvature: ClassVar[float | None] = 1.0

    def intercept(self, y: AnyArray, sample_weight: AnyArray | None = None) -> Float64Array:
        """Return ``log(weight of p / weight of q)``: 0 when both weigh the same."""
        numerator, denominator = _two_weights(y, sample_weight)
        return np.asarray(np.log(numerator / denominator), np.float64)

    def ratio(self, f: FloatArray) -> FloatArray:
        """Return ``p/q = exp f``, the largest float where that is larger."""
        return np.asarray(np.exp(np.minimum(f, _LARGEST_LOG)))


class LeastSquaresDensityRatio(_RatioLoss):
    r"""Least-squares form of the density ratio: ``E_q[f^2] / 2 - E_p[f]``.

    Its minimiser is ``f = p/q``, and ``E_p[f] - E_q[f^2] / 2 - 1/2`` is a lower bound of half
    the Pearson divergence, ``E_q[(p/q - 1)^2] / 2``. Robust, where the exponential of the
    Kullback-Leibler form reacts to single rows; its estimate may be negative.
    """

    name: ClassVar[str] = "least_squares"
    code: ClassVar[int] = scalar.LEAST_SQUARES
    smoothness: ClassVar[float | None] = 1.0

    def intercept(self, y: AnyArray, sample_weight: AnyArray | None = None) -> Float64Array:
        """Return the weight of p over that of q: 1 when both weigh the same."""
        numerator, denominator = _two_weights(y, sample_weight)
        return np.asarray(numerator / denominator, np.float64)

    def ratio(self, f: FloatArray) -> FloatArray:
        """Return p/q, which is f clipped at zero."""
        return np.maximum(f, 0.0)


def _two_weights(
    y: AnyArray, sample_weight: AnyArray | None
) -> tuple[Float64Array, Float64Array]:
    """Return the weight of p and of q per output; ValueError when one of them is zero."""
    weights = row_weights(len(y), sample_weight)
    numerator, denominator = weights @ (y > 0), weights @ (y <= 0)
    if not (np.all(numerator > 0) and np.all(denominator > 0)):
        raise ValueError(
            "A density ratio needs rows of both samples with positive weight; got weights "
            f"{numerator} (numerator) and {denominator} (denominator)."
        )
    return numerator, denominator
