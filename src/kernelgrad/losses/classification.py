"""Losses that are functions of the margin y f with y = -1 or +1, and the multinomial loss."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import expit, log_expit, softmax

from kernelgrad.losses import scalar
from kernelgrad.losses.base import Loss, ScalarLoss, Task, aligned_targets
from kernelgrad.params import parameters, real
from kernelgrad.types import AnyArray, Float32Array, Float64Array, FloatArray
from kernelgrad.validation import check_int

_LEAST_WEIGHT = np.finfo(np.float64).tiny  # total weight of an output without weighted rows


def encode_labels(codes: AnyArray, n_classes: int, loss: Loss) -> Float32Array:
    """Return the targets that `loss` expects for class codes, (n, C) in float32.

    `codes` (n,) are integers in ``0 .. K - 1`` for ``K = n_classes`` of at least 2. For a
    multinomial loss targets are one-hot, C = K. For other losses they are -1 or +1: for two
    classes C = 1, and class 1 is +1; for more C = K, each class against the rest.
    """
    n_classes = check_int(n_classes, "n_classes", low=2)
    codes = np.asarray(codes)
    if codes.ndim != 1:
        raise ValueError(f"codes must have shape (n,), got {codes.shape}; ravel them.")
    if not np.issubdtype(codes.dtype, np.integer):
        raise TypeError(f"codes must be integers, got dtype {codes.dtype}; encode the labels.")
    if codes.size and not 0 <= codes.min() <= codes.max() < n_classes:
        raise ValueError(
            f"codes must lie in 0..{n_classes - 1}, got {codes.min()}..{codes.max()}; "
            "encode the labels as positions in the sorted classes."
        )
    one_hot: Float32Array = (codes[:, None] == np.arange(n_classes)).astype(np.float32)
    if loss.is_multinomial:
        return one_hot
    signs: Float32Array = 2.0 * one_hot - 1.0
    return signs[:, 1:] if n_classes == 2 else signs


def _class_weights(
    y: Float64Array, weights: Float64Array
) -> tuple[Float64Array, Float64Array, float]:
    """Return the weights of positive and negative rows per output, and half the mean weight."""
    half = 0.5 * float(weights.sum()) / int(np.count_nonzero(weights))
    return weights @ (y > 0), weights @ (y < 0), half


class MarginLoss(ScalarLoss):
    """A loss ``sum_c phi(y_c f_c)`` on targets -1/+1."""

    tasks: ClassVar[frozenset[Task]] = frozenset({"classification"})


class Hinge(MarginLoss):
    """Hinge loss of support vector machines, ``l(y, f) = max(0, 1 - y f)``.

    The subgradient is -y if ``y f < 1``, else 0.
    """

    name: ClassVar[str] = "hinge"
    code: ClassVar[int] = scalar.HINGE

    def _constants(self, y: Float64Array, weights: Float64Array) -> Float64Array:
        """Return +1 or -1, the heavier class, or 0 on a tie.

        Each is a minimiser: the sum decreases towards the heavier class up to its margin. On a
        tie every value in [-1, 1] is a minimiser, and 0 favours neither class.
        """
        positive, negative, _ = _class_weights(y, weights)
        return np.sign(positive - negative)


@parameters
class SmoothedHinge(MarginLoss):
    r"""Hinge loss whose kink is smoothed by a parabola over a width g.

    With ``z = 1 - y f`` the loss is 0 for ``z <= 0``, ``z^2 / (2 g)`` for ``0 < z < g`` and
    ``z - g / 2`` for ``z >= g``. It is at most ``g / 2`` below the hinge, which is its limit as
    g goes to 0. The gradient is ``-y min(max(z / g, 0), 1)`` and L = 1 / g. The conjugate is
    that of the hinge plus ``g u^2 / 2``, so dual coordinate ascent converges linearly [1]_.

    The typical curvature is the majorising one at f = 0, which is 1/2 for small g, as for the
    hinge, and L for g >= 1.

    Parameters
    ----------
    width : float > 0, default=1.0
        g, in units of the margin. 1, as in the experiments of [1]_, lets the parabola cover
        margins from 0 to 1.

    References
    ----------
    .. [1] Shalev-Shwartz and Zhang, "Stochastic Dual Coordinate Ascent Methods for Regularized
       Loss Minimization", JMLR 14, 2013.
    """

    name: ClassVar[str] = "smoothed_hinge"
    code: ClassVar[int] = scalar.SMOOTHED_HINGE
    parameter: ClassVar[str | None] = "width"

    width: float = real(default=1.0, low=0.0, low_open=True, kw_only=False)

    @property
    def smoothness(self) -> float | None:  # type: ignore[override]  # follows width
        return 1.0 / float(self.width)

    @property
    def typical_curvature(self) -> float | None:  # type: ignore[override]  # follows width
        return 1.0 / max(float(self.width), 2.0 - float(self.width))


@parameters
class ModifiedLogistic(MarginLoss):
    r"""Modified logistic loss, a smooth approximation of the hinge.

    .. math:: l(y, f) = \frac{1}{\beta} \log\bigl(1 + e^{\beta (1 - y f)}\bigr)

    It is at most ``log(2) / beta`` above the hinge, which is its limit as beta grows [1]_. The
    gradient is ``-y sigma(beta z)`` with ``z = 1 - y f``, and L = beta / 4. The typical
    curvature is the majorising one at f = 0.

    Parameters
    ----------
    beta : float > 0, default=10.0
        Steepness, in units of the inverse margin, which the papers leave open. With 10 the
        loss is within 0.07 of the hinge, and L = 2.5 is close to that of the squared hinge.

    References
    ----------
    .. [1] Mu, Liu and Fan, "Stochastic Gradient Made Stable", 2015, Equation (26); Zhang, Jin,
       Yang and Hauptmann, "Modified Logistic Regression", ICML 2003.
    """

    name: ClassVar[str] = "modified_logistic"
    code: ClassVar[int] = scalar.MODIFIED
    parameter: ClassVar[str | None] = "beta"

    beta: float = real(default=10.0, low=0.0, low_open=True, kw_only=False)

    @property
    def smoothness(self) -> float | None:  # type: ignore[override]  # follows beta
        return 0.25 * float(self.beta)

    @property
    def typical_curvature(self) -> float | None:  # type: ignore[override]  # follows beta
        return 0.5 * float(np.tanh(0.5 * float(self.beta)))

    def _constants(self, y: Float64Array, weights: Float64Array) -> Float64Array:
        """Return the minimiser.

        An absent class counts as half a row as in `Logistic`, to keep the minimiser finite. If
        r is the weight of the lighter class divided by that of the heavier one,
        ``x = exp(beta |b|)`` is the root of ``r c x^2 - (1 - r) x - c = 0`` for
        ``c = exp(-beta)``.
        """
        positive, negative, half = _class_weights(y, weights)
        up = np.where(positive > 0.0, positive, half)
        down = np.where(negative > 0.0, negative, half)
        ratio, beta = np.minimum(up, down) / np.maximum(up, down), float(self.beta)
        root = 1.0 - ratio + np.hypot(1.0 - ratio, 2.0 * np.sqrt(ratio) * np.exp(-beta))
        size = 1.0 + np.log(np.maximum(root, _LEAST_WEIGHT) / (2.0 * ratio)) / beta
        return np.asarray(np.sign(up - down) * size)


class SquaredHinge(MarginLoss):
    """Squared hinge loss, ``l(y, f) = max(0, 1 - y f)^2``.

    Dai et al. (2014) and Mu et al. (2015) define it as ``max(0, 1 - y f)^2 / 2``; to reproduce
    them, double their nu or lambda and halve their step sizes.

    The gradient is ``-2 y max(0, 1 - y f)``, and L = 2.
    """

    name: ClassVar[str] = "squared_hinge"
    code: ClassVar[int] = scalar.SQUARED_HINGE
    smoothness: ClassVar[float | None] = 2.0

    def _constants(self, y: Float64Array, weights: Float64Array) -> Float64Array:
        """Return ``(W+ - W-) / (W+ + W-)``."""
        positive, negative, _ = _class_weights(y, weights)
        return (positive - negative) / np.maximum(positive + negative, _LEAST_WEIGHT)


class Logistic(MarginLoss):
    """Logistic loss on targets -1/+1, ``l(y, f) = log(1 + exp(-y f))``.

    The gradient is ``-y sigma(-y f)``, and L = 1/4. With more than two classes, each class is
    fitted against the rest.
    """

    name: ClassVar[str] = "logistic"
    code: ClassVar[int] = scalar.LOGISTIC
    has_proba: ClassVar[bool] = True
    smoothness: ClassVar[float | None] = 0.25

    def _constants(self, y: Float64Array, weights: Float64Array) -> Float64Array:
        """Return the log odds ``log(W+ / W-)`` of each output.

        If one class is absent the minimum is at infinity; the class then counts as half a row
        of mean weight, which keeps the result finite.
        """
        positive, negative, half = _class_weights(y, weights)
        up = np.where(positive > 0.0, positive, half)
        down = np.where(negative > 0.0, negative, half)
        total = up + down  # shares, which no unit of the weights moves by a bit
        return np.asarray(np.log(up / total) - np.log(down / total))

    def predict_proba(self, f: FloatArray) -> FloatArray:
        """Return ``[sigma(-f), sigma(f)]``, or the sigmoids of f (n, K) over their sum."""
        if f.shape[1] == 1:
            return np.hstack([expit(-f), expit(f)])
        return np.asarray(softmax(log_expit(f), axis=1))


class Perceptron(MarginLoss):
    """Perceptron loss, ``l(y, f) = max(0, -y f)``.

    The subgradient is -y if ``y f <= 0``, else 0. At f = 0 it is that of a mistake, so that the
    perceptron moves away from the zero function. As the zero function always minimises this
    loss, use it with the solver "perceptron" (Section 4.5 of Cotter et al., 2012), not in a
    regularised risk.
    """

    name: ClassVar[str] = "perceptron"
    code: ClassVar[int] = scalar.PERCEPTRON

    def _constants(self, y: Float64Array, weights: Float64Array) -> Float64Array:
        """Return 0, a minimiser for any rows."""
        return np.zeros(y.shape[1])


class Multinomial(Loss):
    """Multinomial logistic loss, ``l(y, f) = log sum_c exp(f_c) - sum_c y_c f_c``.

    Targets are one-hot, shape (n, K). With ``p = softmax(f)`` the gradient is ``p - y`` and the
    Hessian is ``diag(p) - p p^T``, whose norm is at most L = 1/2. The curvature is its largest
    diagonal entry.
    """

    name: ClassVar[str] = "log_loss"
    code: ClassVar[int] = scalar.MULTINOMIAL
    tasks: ClassVar[frozenset[Task]] = frozenset({"classification"})
    is_multinomial: ClassVar[bool] = True
    has_proba: ClassVar[bool] = True
    smoothness: ClassVar[float | None] = 0.5
    # The bound on the diagonal of the Hessian, which suffices because a step applies the same
    # operator to all outputs. The bound on the norm would halve the speed (measured).
    typical_curvature: ClassVar[float | None] = 0.25

    def value(self, y: AnyArray, f: FloatArray) -> FloatArray:
        return np.asarray(scalar.multinomial(self._targets(y, f), f, 1)[0], f.dtype)

    def gradient(self, y: AnyArray, f: FloatArray) -> FloatArray:
        targets = self._targets(y, f)
        return np.asarray(scalar.multinomial(targets, f, 1)[1] - targets)

    def curvature(self, y: AnyArray, f: FloatArray) -> FloatArray:
        _, p = scalar.multinomial(self._targets(y, f), f, 1)
        return np.asarray((p * (1.0 - p)).max(axis=1))

    def _constants(self, y: Float64Array, weights: Float64Array) -> Float64Array:
        """Return the log class weights, centred to mean 0.

        The loss determines the constants only up to a common shift. An absent class counts as
        half a row of mean weight, which keeps the result finite.
        """
        totals, _, half = _class_weights(y, weights)
        logs = np.log(np.where(totals > 0.0, totals, half) / totals.sum())
        return np.asarray(logs - logs.mean())

    def predict_proba(self, f: FloatArray) -> FloatArray:
        return np.asarray(softmax(f, axis=1))

    @staticmethod
    def _targets(y: AnyArray, f: FloatArray) -> FloatArray:
        targets = aligned_targets(y, f)
        if f.shape[1] < 2:
            raise ValueError(
                f"the multinomial loss needs one column per class, got {f.shape[1]}; "
                "use 'logistic' for targets -1/+1."
            )
        return targets
