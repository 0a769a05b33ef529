"""Losses for novelty detection and density ratios."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from kernelgrad.losses import scalar
from kernelgrad.losses.base import ScalarLoss, Task, row_weights
from kernelgrad.losses.regression import weighted_quantile
from kernelgrad.params import choice, parameters, real
from kernelgrad.types import AnyArray, Float64Array, FloatArray


@parameters
class OneClass(ScalarLoss):
    r"""One-class loss, ``l(u) = max(0, -u)`` with ``u = f - tau``.

    With ``alpha = nu`` and tau as a variable this is the novelty detection of the paper
    (Section 4), ``min E max(0, tau - f) + nu/2 ||f||^2 - nu tau``. At the optimum a fraction nu
    of the rows, the outliers, lies below the level tau, which is minus the intercept. The
    subgradient is -1 below the level, 0 above and -nu at the level, so that the first step
    from f = 0, where all rows are at the level, moves towards the mean of all rows.

    For given f the best tau is the nu-quantile of the responses, which `best_intercept`
    estimates from the batch; all derivatives then average to -nu. The quantile of a small batch
    is biased, so use batches of some ``50 / nu`` rows or more. The rule of the paper moves tau
    in steps and is much slower: from 0 on it sets ``tau <- tau + gamma nu`` for a row at or
    above the level, ``tau <- tau - gamma (1 - nu)`` for a row below; rows at the level have
    derivative 0.

    Parameters
    ----------
    nu : float in (0, 1), default=0.1
        Fraction of outliers.
    tau : {"quantile", "steps"}, default="quantile"
        ``"quantile"`` takes the best level for each batch; ``"steps"`` is the rule of the
        paper, for solver "dsg".
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
        return self.tau == "quantile"

    @property
    def intercept_slope(self) -> float | None:  # type: ignore[override]  # follows tau
        """The derivative nu of ``-nu tau`` in the intercept -tau, with ``tau="steps"``."""
        return None if self.adaptive_intercept else float(self.nu)

    @property
    def _at_level(self) -> float:
        return float(self.nu) if self.adaptive_intercept else 0.0

    def _constants(self, y: Float64Array, weights: Float64Array) -> Float64Array:
        """Return zeros, the level of the zero function."""
        return np.zeros(y.shape[1])

    def level(self, f: FloatArray, sample_weight: AnyArray | None = None) -> Float64Array:
        """Return tau, the nu-quantile of the responses for each output."""
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
    """Base class of the losses with targets +1 for rows of the numerator p and -1 for q.

    Attributes
    ----------
    bound : float
        Constant c for which ``c - loss`` is a lower bound of the divergence that belongs to
        the loss, where the loss is the sum of the means over both samples.
    """

    tasks: ClassVar[frozenset[Task]] = frozenset({"density_ratio"})
    bound: ClassVar[float]

    @abstractmethod
    def ratio(self, f: FloatArray) -> FloatArray:
        """Return p/q from f; it is never negative."""

    def _constants(self, y: Float64Array, weights: Float64Array) -> Float64Array:
        numerator, denominator = weights @ (y > 0), weights @ (y <= 0)
        if not (np.all(numerator > 0) and np.all(denominator > 0)):
            raise ValueError(
                "A density ratio needs rows of both samples with positive weight; got weights "
                f"{numerator} (numerator) and {denominator} (denominator)."
            )
        return np.asarray(self._of_ratio(numerator / denominator), np.float64)

    def _of_ratio(self, ratio: Float64Array) -> FloatArray:
        """Return the f of a ratio."""
        return ratio

    def feasible(self, f: FloatArray) -> FloatArray:
        """Return f projected to the domain of the variational form of the divergence."""
        return f


class KLDensityRatio(RatioLoss):
    r"""Kullback-Leibler form of the density ratio: ``E_q[exp f] - E_p[f]``.

    Its minimiser is ``f = log p/q`` (Section 4 of the paper names the inverse), and
    ``E_p[f] - E_q[exp f] + 1`` is a lower bound of KL(p || q), which it attains at the
    minimiser. The Hessian at the optimum is an expectation under p, hence the typical
    curvature is 1.
    """

    name: ClassVar[str] = "kl"
    code: ClassVar[int] = scalar.KL
    typical_curvature: ClassVar[float | None] = 1.0
    bound: ClassVar[float] = 1.0

    def _of_ratio(self, ratio: Float64Array) -> FloatArray:
        return np.asarray(np.log(ratio))

    def ratio(self, f: FloatArray) -> FloatArray:
        """Return ``p/q = exp f``, or the largest float if that overflows."""
        return np.asarray(np.exp(np.minimum(f, scalar.LARGEST_LOG)))


class LeastSquaresDensityRatio(RatioLoss):
    r"""Least-squares form of the density ratio: ``E_q[f^2] / 2 - E_p[f]``.

    Its minimiser is ``f = p/q``, and ``E_p[f] - E_q[f^2] / 2 - 1/2`` is a lower bound of half
    the Pearson divergence, ``E_q[(p/q - 1)^2] / 2``. It is more robust to single rows than the
    Kullback-Leibler form with its exponential, but the estimate f may be negative.
    """

    name: ClassVar[str] = "least_squares"
    code: ClassVar[int] = scalar.LEAST_SQUARES
    smoothness: ClassVar[float | None] = 1.0
    bound: ClassVar[float] = -0.5

    def ratio(self, f: FloatArray) -> FloatArray:
        return np.maximum(f, 0.0)


class _Logarithmic(RatioLoss):
    """Base class of the losses ``E_q[f] - E_p[log f]``, with log linear below a floor."""

    code: ClassVar[int] = scalar.RATIO
    parameter: ClassVar[str | None] = "floor"
    floor: float

    @property
    def typical_curvature(self) -> float | None:  # type: ignore[override]  # follows the floor
        """``floor^-1/2``, a measured choice; the curvature is 1 if p = q."""
        return float(self.floor**-0.5)

    @property
    def smoothness(self) -> float | None:  # type: ignore[override]  # follows the floor
        return float(self.floor**-2)

    def _of_ratio(self, ratio: Float64Array) -> FloatArray:
        return np.maximum(ratio, self.floor)

    def ratio(self, f: FloatArray) -> FloatArray:
        return np.maximum(f, 0.0)

    feasible = ratio


@parameters
class KLRatio(_Logarithmic):
    r"""Kullback-Leibler form for the ratio itself: ``E_q[f] - E_p[log f]``.

    This is the second convex problem of Nguyen et al. (2010), which Section 4 of Dai et al.
    (2014) names. It is the objective of :class:`KLDensityRatio` written for the exponential of
    its function, so that the kernel function is ``f = p/q``;
    ``1 + E_p[log f] - E_q[f] <= KL(p || q)``. Below the floor ``-log f`` is replaced by its
    tangent, so f may be negative during the fit.

    Parameters
    ----------
    floor : float >= 1e-30, default=0.05
        Ratios below it are not distinguished. At most a fraction `floor` of p lies where p/q is
        smaller, and the slopes of rows of p are at most ``1 / floor``.

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
    r"""Relative novelty detection, the divergence of ``r(t) = max(0, rho - log t)``, t = q/p.

    In its variational form ``E_q[f] + E_p[r^*(-f)]`` (Equation 8 of Dai et al., 2014, with f
    for exp f), ``r^*(-f)`` is, up to the constant ``1 + rho``, ``-log f`` for
    ``f >= exp(-rho)`` and its tangent below. The minimiser is p/q where that exceeds
    ``exp(-rho)``, and 0 elsewhere. Rows of p are novel relative to q where f is large; ratios
    below ``exp(-rho)`` are not fitted.

    Parameters
    ----------
    rho : float from -69 to 69, default=1.0
        Minus the logarithm of the ratio p/q above which rows are novel. With 0 the best
        constant of two equal samples is not unique.

    References
    ----------
    Smola, Song and Teo (2009), "Relative novelty detection", AISTATS.
    """

    name: ClassVar[str] = "relative_novelty"

    rho: float = real(default=1.0, low=-69.0, high=69.0, kw_only=False)

    @property
    def floor(self) -> float:  # type: ignore[override]  # follows rho
        return float(np.exp(-self.rho))

    @property
    def bound(self) -> float:  # type: ignore[override]  # follows rho
        return 1.0 + float(self.rho)
