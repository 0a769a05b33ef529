"""The contract of a loss, and what all losses share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from scipy.optimize import brentq

from kernelgrad.losses import scalar
from kernelgrad.params import Part
from kernelgrad.types import AnyArray, Float64Array, FloatArray
from kernelgrad.validation import CapabilityError

Task: TypeAlias = Literal["classification", "regression", "novelty", "density_ratio"]


def aligned_targets(y: AnyArray, f: FloatArray) -> FloatArray:
    """Return `y` in the dtype of `f`, after checking that both are (n, C)."""
    if f.ndim != 2 or y.shape != f.shape:
        raise ValueError(
            f"y and f must both have shape (n, C), got {y.shape} and {f.shape}; "
            "reshape a single output to (n, 1)."
        )
    if not np.issubdtype(f.dtype, np.floating):
        raise TypeError(f"f must be a floating array, got dtype {f.dtype}; cast it first.")
    return y.astype(f.dtype, copy=False)


def row_weights(n_rows: int, sample_weight: AnyArray | None) -> Float64Array:
    """Return the checked weights (n,) in float64; all ones if none are given."""
    if n_rows == 0:
        raise ValueError("y has 0 rows; give at least one.")
    if sample_weight is None:
        return np.ones(n_rows)
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n_rows,):
        raise ValueError(f"sample_weight must have shape ({n_rows},), got {weights.shape}.")
    low, total = float(weights.min()), float(weights.sum())
    if not math.isfinite(total) or low < 0.0:
        raise ValueError(
            f"sample_weight must be finite and non-negative, got minimum {low:g} and sum "
            f"{total:g}; drop or correct those rows."
        )
    if total == 0.0:
        raise ValueError("sample_weight sums to 0; give at least one row a positive weight.")
    return weights


def smoothing_width(distance: FloatArray) -> float:
    """Return the distance to a kink below which the curvature weight stops growing.

    It is one tenth of the median of the distances (n, C) of entries to their kinks, so that no
    row weighs more than ten times as much as the median row and the weights scale inversely
    with the data. If the median is 0 the mean is used instead, and if all distances are 0 the
    width is 1.
    """
    scale = float(np.median(distance)) or float(np.mean(distance, dtype=np.float64))
    # 1 / tiny is finite in both precisions; 1 / (a subnormal number) is not.
    tiny = float(np.finfo(distance.dtype).tiny)
    return max(0.1 * scale, tiny) if scale > 0.0 else 1.0


class Loss(Part, ABC):
    """A convex loss ``l(y, f)`` between encoded targets and raw predictions.

    A loss depends only on ``(y, f)``, two arrays of the same shape (n, C) with one row per
    observation and one column per output. The loss of a row is the sum over its outputs.
    Hyper-parameters are arguments of ``__init__``, so that ``get_params`` and ``clone`` work.

    Attributes
    ----------
    name : str
        The name in the registry.
    tasks : frozenset of {"classification", "regression"}
        The tasks that the loss can be used for.
    code : int or None
        Code of the loss in the table of :mod:`kernelgrad.losses.scalar`, which all compiled
        loops use. None for a loss that is defined by its methods only, which linear and online
        solvers do not take.
    is_multinomial : bool
        Whether the outputs of a row are coupled and classes are encoded one-hot.
    has_proba : bool
        Whether the loss has `predict_proba`.
    smoothness : float or None
        L, the Lipschitz constant of the gradient of a row's loss; None if the loss has kinks.
        Theorems 4 to 6 of [1]_ assume a finite L (Assumption B).
    typical_curvature : float or None
        The curvature that determines the step size. It is smaller than L if the curvature
        reaches L only far from usual predictions. None means L.
    n_outputs : int or None
        Number of outputs of a loss with parameters per output; None allows any number.
    adaptive_intercept : bool
        Whether the intercept is a variable of the loss, so that solvers call `best_intercept`
        before every step.
    lowest_target : float or None
        The smallest target that the loss accepts; None accepts all numbers.
    intercept_slope : float or None
        If it is a number, doubly stochastic gradients update the intercept too, by the mean
        derivative plus this slope.

    References
    ----------
    .. [1] Dai et al. (2014), Section 5.
    """

    part: ClassVar[str] = "loss"  # how model files call it
    name: ClassVar[str]
    tasks: ClassVar[frozenset[Task]]
    code: ClassVar[int | None] = None
    _entry: ClassVar[int]  # code in the table that the methods of a ScalarLoss use
    is_multinomial: ClassVar[bool] = False
    has_proba: ClassVar[bool] = False
    smoothness: ClassVar[float | None] = None
    typical_curvature: ClassVar[float | None] = None
    n_outputs: int | None = None
    adaptive_intercept: ClassVar[bool] = False
    lowest_target: ClassVar[float | None] = None
    intercept_slope: ClassVar[float | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Reset an inherited code if a subclass overrides the methods it stands for."""
        super().__init_subclass__(**options)
        own = vars(cls)
        if own.get("code") is not None:
            cls._entry = own["code"]
        elif {"value", "gradient"} & own.keys():
            cls.code = None

    @property
    def is_smooth(self) -> bool:
        """Whether the slope is continuous, for Newton's method; by default if L is finite."""
        return self.smoothness is not None

    def for_output(self, c: int) -> Loss:
        """Return the loss of output `c`, for losses that are sums over outputs."""
        return self

    def params(self, n_outputs: int) -> Float64Array:
        """Return the parameter of `code` for each output, (C,); 0 if there is none."""
        return np.zeros(n_outputs)

    def targets(self, y: FloatArray) -> FloatArray:
        """Return what f is compared with for targets y (n, C): y itself, or its logarithm."""
        return y

    def mean(self, f: FloatArray) -> FloatArray:
        """Return the prediction of a regressor whose function has the value `f`: f or exp f."""
        return f

    @abstractmethod
    def value(self, y: AnyArray, f: FloatArray) -> FloatArray:
        """Return ``sum_c l(y_ic, f_ic)`` of each row, (n,) in the dtype of `f`.

        `y` (n, C) holds encoded targets, `f` (n, C) raw predictions in float32 or float64.
        """

    @abstractmethod
    def gradient(self, y: AnyArray, f: FloatArray) -> FloatArray:
        """Return ``dl/df``, (n, C) in the dtype of `f`; at a kink, one subgradient.

        Targets and predictions are those of `value`.
        """

    def curvature(self, y: AnyArray, f: FloatArray) -> FloatArray:
        """Return a non-negative weight of each row for a preconditioner.

        By default it is the central difference of the gradient, its increase from ``f_c - d``
        to ``f_c + d`` divided by ``2 d`` for a width d. This is the mean curvature over the
        interval and, at a kink, the jump divided by 2 d. It takes two gradients, or two per
        output for a multinomial loss. The result (n,) is the largest weight over the outputs,
        at most L for a smooth loss.

        The weight of a loss with kinks stops growing at a distance from them that is derived
        from the batch, so that weights adapt to the scale of the data.
        """
        d = f.dtype.type(smoothing_width(np.abs(f - aligned_targets(y, f))))
        outputs = np.eye(f.shape[1], dtype=f.dtype)
        shifts = d * (outputs if self.is_multinomial else outputs.sum(axis=0, keepdims=True))
        rise = np.zeros_like(f)
        for shift in shifts:
            change = self.gradient(y, f + shift) - self.gradient(y, f - shift)
            rise = np.where(shift > 0.0, change, rise)
        return np.asarray(np.maximum(rise.max(axis=1) / (2.0 * d), 0.0), f.dtype)

    def intercept(self, y: AnyArray, sample_weight: AnyArray | None = None) -> Float64Array:
        """Return the best constant prediction, ``argmin_b sum_i w_i l(y_i, b)``, (C,).

        Weights are non-negative; None gives all rows weight 1.
        """
        targets = np.asarray(y, dtype=np.float64)
        return self._constants(targets, row_weights(targets.shape[0], sample_weight))

    def _constants(self, y: Float64Array, weights: Float64Array) -> Float64Array:
        """Return the best constants (C,) for checked targets (n, C) and weights (n,).

        By default the zero of the derivative is searched for each output by Brent's method, to
        1e-9 of its distance from the smallest target. This needs a loss that is a sum over
        outputs. If the derivative does not change its sign, the search stops about 2**10 ranges
        away, so the result is finite.
        """
        return np.array([self._constant(y[:, [c]], weights) for c in range(y.shape[1])])

    def _constant(self, y: Float64Array, weights: Float64Array) -> float:
        def slope(b: float) -> float:
            return float(weights @ self.gradient(y, np.full(y.shape, b))[:, 0])

        low, high = float(y.min()), float(y.max())
        slope_low, slope_high = slope(low), slope(high)
        stride = high - low or 1.0
        for _ in range(10):
            if slope_low > 0.0:
                low -= stride
                slope_low = slope(low)
            elif slope_high < 0.0:
                high += stride
                slope_high = slope(high)
            else:
                break
            stride *= 2.0
        if slope_low >= 0.0:
            return low
        if slope_high <= 0.0:
            return high
        gap = high - low
        # relative to the distance from the lower end, as a few targets may lie far away
        t = brentq(lambda t: slope(low + t), 0.0, gap, xtol=1e-15 * gap, rtol=1e-9, maxiter=500)
        return low + float(t)

    def best_intercept(
        self, f: FloatArray, sample_weight: Float64Array
    ) -> tuple[Float64Array, FloatArray]:
        """Return the best intercept (C,) for responses `f` (n, C), and the gradient there.

        `f` does not contain the intercept. Solvers call this if ``adaptive_intercept`` is
        True. The gradient is the element of the subdifferential that is consistent with the
        optimality of the intercept.
        """
        raise CapabilityError(f"loss {self.name!r} has no intercept of its own.")

    def predict_proba(self, f: FloatArray) -> FloatArray:
        """Return class probabilities of shape (n, K), if the loss models them."""
        raise CapabilityError(
            f"loss {self.name!r} does not model probabilities; use 'log_loss' or 'logistic'."
        )


class ScalarLoss(Loss):
    """A loss from the table, summed over outputs; subclasses give `code`, and the name of p."""

    parameter: ClassVar[str | None] = None  # what the table calls p

    def params(self, n_outputs: int) -> Float64Array:
        p = 0.0 if self.parameter is None else getattr(self, self.parameter)
        return np.array(np.broadcast_to(p, n_outputs), np.float64)

    def _arguments(self, y: AnyArray, f: FloatArray) -> tuple[FloatArray, ...]:
        """Return parameters, targets and predictions in one precision, all of them finite."""
        targets = aligned_targets(y, f)
        if self.parameter is None:
            return np.zeros(f.shape[1], f.dtype), targets, f
        p, limits = self.params(f.shape[1]), np.finfo(f.dtype)
        return np.clip(p, 2.0 * limits.tiny * (p > 0), limits.max).astype(f.dtype), targets, f

    def value(self, y: AnyArray, f: FloatArray) -> FloatArray:
        values: FloatArray = scalar.value(self._entry, *self._arguments(y, f))
        return np.asarray(values.sum(axis=1))

    def gradient(self, y: AnyArray, f: FloatArray) -> FloatArray:
        slope = scalar.slope(self._entry, *self._arguments(y, f))
        return np.asarray(slope, f.dtype)

    def curvature(self, y: AnyArray, f: FloatArray) -> FloatArray:
        arguments = self._arguments(y, f)
        d = 0.0
        if self._entry in scalar.KINKED:
            d = smoothing_width(scalar.kink_distance(self._entry, *arguments))
        one = f.dtype.type
        weight = scalar.curvature(self._entry, *arguments, one(d), one(1))
        return np.asarray(np.broadcast_to(weight, f.shape).max(axis=1), f.dtype)
