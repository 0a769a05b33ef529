"""Losses without labels: novelty detection and density ratios."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from kernelgrad._params import choice, parameters, real
from kernelgrad._typing import AnyArray, Float64Array, FloatArray
from kernelgrad.losses import scalar
from kernelgrad.losses.base import ScalarLoss, Task, row_weights
from kernelgrad.losses.regression import weighted_quantile


@parameters
class OneClass(ScalarLoss):
    r"""One-class loss, ``l(u) = max(0, -u)`` of ``u = f - tau``.

    With ``alpha = nu`` and tau a variable this is the paper's novelty detection (Section 4),
    ``min E max(0, tau - f) + nu/2 ||f||^2 - nu tau``: at the optimum a fraction nu of the rows
    lies below the level tau, the outliers. tau is minus the intercept. The subgradient is -1
    below the level, 0 above, and -nu at it, so that the first step, from f = 0 where every
    row is at the level, moves towards the mean of all rows.

    Given f, the best tau is the nu-quantile of the responses, and `best_intercept` takes it
    from the batch; the paper's rule, which moves tau by steps, is much slower: from 0,
    ``tau <- tau + gamma nu`` after a row at or above the level, ``tau - gamma (1 - nu)`` after
    one below, and rows at the level have no derivative. By the quantile the derivative
    of rows at the level is such that all derivatives average to -nu, as they must at the best
    tau: a step then moves f towards an average of features, whatever the ties. A quantile of
    few rows is biased: give batches of some ``50 / nu`` rows or more.

    Parameters
    ----------
    nu : float in (0, 1), default=0.1
        Fraction of outliers.
    tau : {"quantile", "steps"}, default="quantile"
        Whether the level is the best one of each batch, or the paper's, which solver "dsg"
        steps on.
    """

    name: ClassVar[str] = "one_class"
    code: ClassVar[int] = scalar.ONE_CLASS
    parameter: ClassVar[str | None] = "_at_level"
    tasks: ClassVar[frozenset[Task]] = frozenset({"novelty"})

    nu: float = real(
        default=0.1, low=0.0, high=1.0, low_open=True, high_open=True, kw_only=False
    )
    tau: str = choice(("quantile", "steps"), default="quantile")

    @property
    def adaptive_intercept(self) -> bool:  # type: ignore[override]  # follows tau
        """Whether `best_intercept` gives the level."""
        return self.tau == "quantile"

    @property
    def intercept_slope(self) -> float | None:  # type: ignore[override]  # follows tau
        """The slope nu of ``-nu tau`` in the intercept -tau, where steps are taken on it."""
        return None if self.adaptive_intercept else float(self.nu)

    @property
    def _at_level(self) -> float:
        return float(self.nu) if self.adaptive_intercept else 0.0

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


class RatioLoss(ScalarLoss):
    """Base of the losses whose targets are +1 for rows of p, the numerator, and -1 for q.

    Attributes
    ----------
    bound : float
        What is added to minus the loss, summed over the means of both samples, for a lower
        bound of the divergence that the loss belongs to.
    """

    tasks: ClassVar[frozenset[Task]] = frozenset({"density_ratio"})
    bound: ClassVar[float]

    @abstractmethod
    def ratio(self, f: FloatArray) -> FloatArray:
        """Return p/q from f; never negative."""

    def feasible(self, f: FloatArray) -> FloatArray:
        """Return the nearest f that is in the domain of the divergence's variational form."""
        return f


class KLDensityRatio(RatioLoss):
    r"""Kullback-Leibler form of the density ratio: ``E_q[exp f] - E_p[f]``.

    Its minimiser is ``f = log p/q`` (the paper's Section 4 names the inverse), and minus its
    smallest value plus one is ``-KL``: ``E_p[f] - E_q[exp f] + 1 <= KL(p || q)``. From f = 30
    on exp goes on as its tangent, so that no value overflows. The Hessian at the optimum is
    that of ``E_p``, hence the typical curvature 1.
    """

    name: ClassVar[str] = "kl"
    code: ClassVar[int] = scalar.KL
    typical_curvature: ClassVar[float | None] = 1.0
    bound: ClassVar[float] = 1.0

    def intercept(self, y: AnyArray, sample_weight: AnyArray | None = None) -> Float64Array:
        """Return ``log(weight of p / weight of q)``: 0 when both weigh the same."""
        numerator, denominator = _two_weights(y, sample_weight)
        return np.asarray(np.log(numerator / denominator), np.float64)

    def ratio(self, f: FloatArray) -> FloatArray:
        """Return ``p/q = exp f``, the largest float where that is larger."""
        return np.asarray(np.exp(np.minimum(f, scalar.LARGEST_LOG)))


class LeastSquaresDensityRatio(RatioLoss):
    r"""Least-squares form of the density ratio: ``E_q[f^2] / 2 - E_p[f]``.

    Its minimiser is ``f = p/q``, and ``E_p[f] - E_q[f^2] / 2 - 1/2`` is a lower bound of half
    the Pearson divergence, ``E_q[(p/q - 1)^2] / 2``. Robust, where the exponential of the
    Kullback-Leibler form reacts to single rows; its estimate may be negative.
    """

    name: ClassVar[str] = "least_squares"
    code: ClassVar[int] = scalar.LEAST_SQUARES
    smoothness: ClassVar[float | None] = 1.0
    bound: ClassVar[float] = -0.5

    def intercept(self, y: AnyArray, sample_weight: AnyArray | None = None) -> Float64Array:
        """Return the weight of p over that of q: 1 when both weigh the same."""
        numerator, denominator = _two_weights(y, sample_weight)
        return np.asarray(numerator / denominator, np.float64)

    def ratio(self, f: FloatArray) -> FloatArray:
        """Return p/q, which is f clipped at zero."""
        return np.maximum(f, 0.0)


class _Logarithmic(RatioLoss):
    """Base of the losses ``E_q[f] - E_p[log f]``, the logarithm a line below a floor."""

    code: ClassVar[int] = scalar.RATIO
    parameter: ClassVar[str | None] = "floor"
    floor: float

    @property
    def typical_curvature(self) -> float | None:  # type: ignore[override]  # follows the floor
        """``floor^-1/2``: between that of p = q, 1, and larger ones (measured)."""
        return float(self.floor**-0.5)

    @property
    def smoothness(self) -> float | None:  # type: ignore[override]  # follows the floor
        """L = 1 / floor^2."""
        return float(self.floor**-2)

    def intercept(self, y: AnyArray, sample_weight: AnyArray | None = None) -> Float64Array:
        """Return the weight of p over that of q, at least the floor."""
        numerator, denominator = _two_weights(y, sample_weight)
        return np.asarray(np.maximum(numerator / denominator, self.floor), np.float64)

    def ratio(self, f: FloatArray) -> FloatArray:
        """Return p/q, which is f clipped at zero."""
        return np.maximum(f, 0.0)

    feasible = ratio


@parameters
class KLRatio(_Logarithmic):
    r"""Kullback-Leibler form that gives the ratio itself: ``E_q[f] - E_p[log f]``.

    The other convex problem of Nguyen et al. (2010), which Section 4 of Dai et al. (2014)
    names: with ``g = exp f`` it is that of :class:`KLDensityRatio`, but the function of the
    kernel's space is now ``f = p/q``, and ``1 + E_p[log f] - E_q[f] <= KL(p || q)``. Below the
    floor ``-log f`` goes on as its tangent: f may be negative while it is fitted.

    Parameters
    ----------
    floor : float >= 1e-30, default=0.05
        Ratios below it are not told apart. At most a part `floor` of p lies where p/q is
        below, and slopes, which rows of p have there, are at most its inverse.

    References
    ----------
    Nguyen, Wainwright and Jordan (2010), "Estimating divergence functionals and the likelihood
    ratio by convex risk minimization", IEEE Transactions on Information Theory 56(11).
    """

    name: ClassVar[str] = "kl_ratio"
    bound: ClassVar[float] = 1.0

    floor: float = real(default=0.05, low=1e-30, kw_only=False)


@parameters
class RelativeNovelty(_Logarithmic):
    r"""Relative novelty detection: the divergence of ``r(t) = max(0, rho - log t)``, t = q/p.

    Its variational form ``E_q[f] + E_p[r^*(-f)]`` (Equation 8 of Dai et al., 2014, with f for
    exp f) has, but for the constant ``1 + rho``, ``r^*(-f) = -log f`` from ``f = exp(-rho)`` on
    and the tangent there below. The minimiser is p/q where that exceeds ``exp(-rho)``, and 0
    elsewhere: rows of p are novel against q where f is large, and no effort is spent on ratios
    where they are not.

    Parameters
    ----------
    rho : float from -69 to 69, default=1.0
        Minus the logarithm of the ratio p/q from which on rows are novel. At 0 two equal
        samples have no unique best constant.

    References
    ----------
    Smola, Song and Teo (2009), "Relative novelty detection", AISTATS.
    """

    name: ClassVar[str] = "relative_novelty"

    rho: float = real(default=1.0, low=-69.0, high=69.0, kw_only=False)

    @property
    def floor(self) -> float:  # type: ignore[override]  # follows rho
        """``exp(-rho)``."""
        return float(np.exp(-self.rho))

    @property
    def bound(self) -> float:  # type: ignore[override]  # follows rho
        """``1 + rho``."""
        return 1.0 + float(self.rho)


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
