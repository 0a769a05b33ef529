r"""Losses for rows without a label, which push responses away from zero.

``u(r)`` is even and decreases with ``|r|`` up to the margin, so minimising it places the
decision boundary ``f = 0`` in regions with few rows. None of these losses is convex. Gradient
descent moves a response away from zero; Table 2 of the paper prints the derivatives of the
symmetric hinge and of its square with the opposite sign.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from kernelgrad.losses.base import Loss, Task
from kernelgrad.params import Part, parameters, real
from kernelgrad.types import AnyArray, Float64Array, FloatArray
from kernelgrad.validation import check_name, check_real

_STEEPNESS = 5.0  # a in exp(-a r^2), Table 2
# the largest second derivative of exp(-a r^2), at r^2 = 3 / (2 a), is 4 a exp(-3/2)
_BEND = 4.0 * _STEEPNESS * float(np.exp(-1.5))


class UnlabelledLoss(Part, ABC):
    """An even loss ``u(f)`` of responses without labels, summed over outputs.

    Attributes
    ----------
    name : str
        The name in the registry.
    smoothness : float or None
        Largest second derivative; None if the derivative jumps at the margin.

    References
    ----------
    Geng et al. (2019), "Scalable Semi-Supervised SVM via Triply Stochastic Gradients", Table 2.
    """

    part: ClassVar[str] = "unlabelled loss"  # how model files call it
    name: ClassVar[str]
    smoothness: ClassVar[float | None] = None

    @abstractmethod
    def _size(self, a: FloatArray) -> FloatArray:
        """Return u at ``a = |r|``."""

    @abstractmethod
    def _slope(self, a: FloatArray) -> FloatArray:
        """Return the derivative of u at ``a = |r| > 0``, which is never positive."""

    def value(self, f: FloatArray) -> FloatArray:
        """Return ``sum_c u(f_c)``, shape (n,), for responses (n, C)."""
        return np.asarray(self._size(np.abs(f)).sum(axis=1))

    def gradient(self, f: FloatArray) -> FloatArray:
        """Return ``u'(f)``, shape (n, C); 0 where f is 0."""
        return np.asarray(np.sign(f) * self._slope(np.abs(f)))


class SymmetricHinge(UnlabelledLoss):
    """Symmetric hinge, ``max(0, 1 - |r|)``; its derivative is ``-sign(r)`` for ``|r| < 1``."""

    name: ClassVar[str] = "symmetric_hinge"

    def _size(self, a: FloatArray) -> FloatArray:
        return np.asarray(np.maximum(1.0 - a, 0.0))

    def _slope(self, a: FloatArray) -> FloatArray:
        return -np.asarray(a < 1.0, a.dtype)


class SquaredSymmetricHinge(UnlabelledLoss):
    """Squared symmetric hinge, ``max(0, 1 - |r|)^2 / 2``; derivative ``(|r| - 1) sign(r)``."""

    name: ClassVar[str] = "squared_symmetric_hinge"
    smoothness: ClassVar[float | None] = 1.0

    def _size(self, a: FloatArray) -> FloatArray:
        return np.asarray(0.5 * np.maximum(1.0 - a, 0.0) ** 2)

    def _slope(self, a: FloatArray) -> FloatArray:
        return np.asarray(-np.maximum(1.0 - a, 0.0))


@parameters
class Ramp(SymmetricHinge):
    r"""Ramp loss summed over both pseudo-labels, ``min(1 + s, max(0, 1 - |r|))``.

    With ``H_s(z) = max(0, s - z)`` and ``R(z) = H_1(z) - H_s(z)`` (Table 2) it is
    ``R(r) + R(-r)`` minus the constant ``1 - s``. The derivative is ``-sign(r)`` for
    ``-s < |r| < 1``, and 0 below, where the label is uncertain.

    Parameters
    ----------
    s : float in (-1, 0], default=-0.3
        The point at which the ramp becomes flat. 0 gives the symmetric hinge.
    """

    name: ClassVar[str] = "ramp"

    s: float = real(default=-0.3, low=-1.0, high=0.0, low_open=True, kw_only=False)

    def _size(self, a: FloatArray) -> FloatArray:
        return np.asarray(np.clip(1.0 - a, 0.0, 1.0 + self.s))

    def _slope(self, a: FloatArray) -> FloatArray:
        return -np.asarray((a > -self.s) & (a < 1.0), a.dtype)


class GaussianBump(UnlabelledLoss):
    """Differentiable approximation, ``exp(-5 r^2)``; derivative ``-10 r exp(-5 r^2)``."""

    name: ClassVar[str] = "gaussian"
    smoothness: ClassVar[float | None] = _BEND

    def _size(self, a: FloatArray) -> FloatArray:
        return np.asarray(np.exp(-_STEEPNESS * a * a))

    def _slope(self, a: FloatArray) -> FloatArray:
        return -2.0 * _STEEPNESS * a * np.exp(-_STEEPNESS * a * a)


class SemiSupervised(Loss):
    r"""The sum of a loss for labelled rows and a loss for rows without a label.

    Rows with targets -1/+1 have the loss ``l(y, f)``, those with targets 0 have
    ``ratio u(f)``. If the sample weights of both kinds have the same sum, the mean is half of

    .. math:: \frac{1}{n_l} \sum_{\text{labelled}} l(y_i, f(x_i)) +
              \frac{ratio}{n_u} \sum_{\text{others}} u(f(x_i)),

    the objective of the paper (Section 3.1) divided by C, with ``ratio = C^* / C``; the
    corresponding penalty is ``alpha = 1 / (2 C)``. The loss is not convex.

    Parameters
    ----------
    labelled : Loss
        Loss of the labelled rows, a function of the margin.
    unlabelled : UnlabelledLoss
        Loss of the unlabelled rows.
    ratio : float >= 0, default=0.5
        Weight of the unlabelled loss; with 0 unlabelled rows have no effect.
    """

    name: ClassVar[str] = "semi_supervised"
    tasks: ClassVar[frozenset[Task]] = frozenset({"classification"})

    def __init__(self, labelled: Loss, unlabelled: UnlabelledLoss, ratio: float = 0.5) -> None:
        self.labelled = labelled
        self.unlabelled = unlabelled
        self.ratio = ratio

    def check(self) -> None:
        self.labelled.check()
        self.unlabelled.check()
        check_real(self.ratio, "ratio", low=0.0)

    @property
    def smoothness(self) -> float | None:  # type: ignore[override]
        labelled, other = self.labelled.smoothness, self.unlabelled.smoothness
        return None if labelled is None or other is None else max(labelled, self.ratio * other)

    def _merge(self, y: AnyArray, labelled: FloatArray, other: FloatArray) -> FloatArray:
        """Return `labelled` for rows with a label, and `other` times the ratio for others."""
        has_label = np.asarray(y).any(axis=1).reshape(-1, *[1] * (labelled.ndim - 1))
        return np.asarray(
            np.where(has_label, labelled, labelled.dtype.type(self.ratio) * other)
        )

    def value(self, y: AnyArray, f: FloatArray) -> FloatArray:
        return self._merge(y, self.labelled.value(y, f), self.unlabelled.value(f))

    def gradient(self, y: AnyArray, f: FloatArray) -> FloatArray:
        return self._merge(y, self.labelled.gradient(y, f), self.unlabelled.gradient(f))

    def _constants(self, y: Float64Array, weights: Float64Array) -> Float64Array:
        """Return the mean label of the labelled rows; 0 if there are none.

        The best constant of a margin loss may be -1 or 1, where the unlabelled loss is flat.
        """
        rows = np.flatnonzero(y.any(axis=1))
        if len(rows) == 0:
            return np.zeros(y.shape[1])
        return np.asarray(weights[rows] @ y[rows] / weights[rows].sum())


UNLABELLED_LOSSES: dict[str, type[UnlabelledLoss]] = {
    cls.name: cls for cls in (SymmetricHinge, SquaredSymmetricHinge, Ramp, GaussianBump)
}


def get_unlabelled_loss(spec: str | UnlabelledLoss) -> UnlabelledLoss:
    """Return the loss given by a name or an object, after checking its hyper-parameters."""
    if isinstance(spec, str):
        loss = UNLABELLED_LOSSES[check_name(spec, UNLABELLED_LOSSES, "unlabelled loss")]()
    elif isinstance(spec, UnlabelledLoss):
        loss = spec
    else:
        raise TypeError(
            f"an unlabelled loss must be a name ({', '.join(sorted(UNLABELLED_LOSSES))}) or an "
            f"UnlabelledLoss, got {spec!r}."
        )
    loss.check()
    return loss
