"""Parameters and fitted attributes of estimators of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernelgrad.compute.backend import CPU
from kernelgrad.estimators.base import BaseRowsEstimator
from kernelgrad.families.kernel import KernelSpec, SearchedSpec
from kernelgrad.functions.scaling import SCALINGS, InputScaling
from kernelgrad.kernels import Kernel, PrecomputedKernel, RootLaplacian, SumKernel
from kernelgrad.losses import Loss
from kernelgrad.params import anything, boolean, choice, integer, parameters, real
from kernelgrad.search.pool import EFFORTS
from kernelgrad.types import Float64Array


@parameters
class BaseKernelEstimator(BaseRowsEstimator):
    """Parameters of all kernel estimators."""

    gamma: float | str = anything(default="median")
    bandwidth_factor: float = anything(default=1.0)
    metric: Any = anything(default=None)
    standardize: bool | str | InputScaling = boolean(
        default="auto", words=("auto", *SCALINGS), kind=InputScaling
    )

    _spec_type = KernelSpec

    if TYPE_CHECKING:  # what fits set
        kernel: Any = None
        kernel_: ClassVar[Kernel]
        metric_: ClassVar[Float64Array | None]
        n_random_features_: ClassVar[int]
        n_support_: ClassVar[int]

    @property
    def feature_importances_(self) -> Float64Array:
        """Squared weights of the metric, summed over what a column was encoded as; sum 1.

        In a sum of a smooth and a rough kernel each part has its own weights: their shares, in
        squares and in themselves, count as the amplitudes of the parts.
        """
        check_is_fitted(self, "expansion_")
        metric = self.metric_
        if metric is None:
            raise AttributeError(
                "feature_importances_ are the squared weights of a metric, and this model has "
                "none: all columns count alike. Fit with metric='diagonal' for weights of "
                "columns."
            )
        square = metric**2 if metric.ndim == 1 else (metric**2).sum(axis=1)
        square /= square.sum()
        parts = self.kernel_.kernels if isinstance(self.kernel_, SumKernel) else ()
        if len(parts) == 2 and isinstance(parts[1], RootLaplacian) and metric.ndim == 1:
            own = parts[1].column_weights
            rough = metric if own is None else metric * np.asarray(own)
            smooth, share = np.asarray(self.kernel_.weights) / np.sum(self.kernel_.weights)
            square = smooth * square + share * rough / rough.sum()
        groups = self._fitted.model.inputs.groups
        total = np.bincount(groups, square, minlength=self.n_features_in_)
        return np.asarray(total / total.sum())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        pairwise = isinstance(self.kernel, PrecomputedKernel) or (
            isinstance(self.kernel, str) and self.kernel == PrecomputedKernel.name
        )
        tags.input_tags.pairwise = pairwise
        tags.input_tags.allow_nan = not pairwise
        return tags


@parameters
class BaseSearchedEstimator(BaseKernelEstimator):
    """Parameters that classifier and regressor share, which may be searched."""

    loss: str | Loss = anything(default="auto", kw_only=False)
    kernel: Any = anything(default="auto", kw_only=False)
    gamma: float | str = anything(default="auto")
    metric: Any = anything(default="auto")
    engine: Any = anything(default=None)
    alpha: Any = anything(default="auto")
    device: str = anything(default=CPU)
    effort: str = choice(EFFORTS, default="default")
    C: float | None = real(default=None, low=0, low_open=True, words=(None,))
    tol: float = real(default=1e-4, low=0)
    early_stopping: bool = boolean(default=False)
    validation_fraction: float = real(default=0.1, low=0, high=1, low_open=True, high_open=True)
    n_iter_no_change: int = integer(default=10, low=1)
    fit_intercept: bool = boolean(default=True)
    warm_start: bool = boolean(default=False)

    _spec_type = SearchedSpec
