"""Kernel regression, and what all regressors share."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin

from kernelgrad.data import Batch, BatchSource
from kernelgrad.estimators.base import BaseRowsEstimator, joined
from kernelgrad.estimators.blocks import by_blocks
from kernelgrad.estimators.kernel import BaseSearchedEstimator
from kernelgrad.estimators.support import as_numpy, available_if, can_stream
from kernelgrad.files.records import Check
from kernelgrad.losses import get_loss
from kernelgrad.params import parameters
from kernelgrad.tasks import Regression
from kernelgrad.training_rows import weights_of
from kernelgrad.types import AnyArray, Float64Array
from kernelgrad.validation import DataError, check_int


class BaseRegressor(RegressorMixin, BaseRowsEstimator):
    """Outputs, predictions and scores of a regressor."""

    _y_numeric = True
    _onnx_kind = "numbers"
    if TYPE_CHECKING:  # what fits set
        n_outputs_: ClassVar[int]

    _kept: ClassVar[dict[str, Check]] = {
        "n_outputs_": partial(check_int, low=1), "_y_ndim": partial(check_int, low=1, high=2)
    }  # fmt: skip
    _loss_task = "regression"
    _sibling: ClassVar[str] = "a classifier"  # remedy for text in messages

    def _learn(self, targets: AnyArray | BatchSource, declared: AnyArray | None) -> Regression:
        loss = get_loss(self.loss, task="regression")
        if isinstance(targets, BatchSource):
            targets = np.asarray(next(iter(targets.target_chunks())))
            if targets.dtype.kind not in "iufb":
                raise DataError(
                    f"The target holds text such as {np.ravel(targets)[0]!r}; use "
                    f"{self._sibling}, or name a numeric column."
                )
        return Regression.learn(targets, loss, type(self).__name__)

    def _task(self) -> Regression:
        return Regression(self.loss_, self.n_outputs_, self._y_ndim, type(self).__name__)

    def _check_restored(self) -> None:
        super()._check_restored()
        if self.n_outputs_ > 1 and self._y_ndim == 1:
            raise ValueError(f"A column of targets does not have {self.n_outputs_} outputs.")

    @available_if(can_stream)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Take further steps, one for every ``batch_size`` rows of `X`, in the order given.

        What is estimated from rows once, such as the first intercept and the bandwidth of a
        kernel, comes from the first batch of the first call; there is no early stopping.
        Parameters are those of :meth:`fit`.
        """
        return self._partial_fit(X, y, sample_weight)

    @by_blocks
    def predict(self, X: Any) -> Float64Array:
        """Return f(X), shape (n,) or (n, n_outputs) as y was; quantiles in increasing order.

        Of the losses "poisson" and "gamma" this is the mean, exp f(X).
        """
        return joined(self._task().predict(raw) for raw in self._responses(X))

    @as_numpy
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R^2 on arrays or collections, or on a BatchSource with its own targets.

        For several quantiles: 1 minus their mean pinball loss over that of the best constants,
        the share of the loss that the model explains.
        """
        X, y, sample_weight = self._lazy(X, y, sample_weight)
        if isinstance(X, BatchSource):
            return self._streamed_r2(X)
        f = self.predict(X)
        if self.loss_.n_outputs is None:
            from sklearn.metrics import r2_score

            return float(r2_score(y, f, sample_weight=sample_weight))
        if np.shape(y) not in ((len(f),), (len(f), 1)):
            raise ValueError(
                f"y must hold one target for each of the {len(f)} rows, got shape "
                f"{np.shape(y)}."
            )
        return self._quantile_score(f, np.asarray(y), sample_weight)

    def _quantile_score(self, f: Float64Array, y: AnyArray, sample_weight: Any) -> float:
        targets = self._task().encode(np.asarray(y, np.float64))
        weight = np.ones(len(f)) if sample_weight is None else np.asarray(sample_weight)
        constant = np.tile(self.loss_.intercept(targets, weight), (len(f), 1))
        ours = float(weight @ self.loss_.value(targets, f))
        best = float(weight @ self.loss_.value(targets, constant))
        return 1.0 - ours / best if best > 0 else float(ours == 0)

    def _streamed_r2(self, source: BatchSource) -> float:
        """Return R^2, averaged over outputs, from running sums."""
        if self.loss_.n_outputs is not None:
            raise ValueError("Several quantiles are scored on arrays; give X and y.")
        # sums of differences from one target are accurate
        origin = source.read(0, 1).y if source.has_target else None
        total, first, second, left = self._summed(source, "_squares", origin)
        variance = second - first**2 / total
        ratio = np.where(variance > 0, left / np.where(variance > 0, variance, 1.0), 1.0)
        return float(np.mean(1.0 - np.where((variance <= 0) & (left == 0), 0.0, ratio)))

    def _squares(self, batch: Batch, raw: Float64Array, origin: AnyArray) -> Float64Array:
        """Return sums of weights, of targets less the origin, their squares, and errors'."""
        raw = np.asarray(self.loss_.mean(raw), np.float64)
        y = np.asarray(batch.y, np.float64).reshape(raw.shape)
        w = weights_of(batch)
        moved = y - np.asarray(origin, np.float64).reshape(1, -1)
        total = np.full(raw.shape[1], w.sum())
        return np.array([total, w @ moved, w @ moved**2, w @ (y - raw) ** 2])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@parameters
class KernelRegressor(BaseRegressor, BaseSearchedEstimator):
    r"""Kernel regressor: any loss, kernel and solver, on data too large for kernel matrices.

    Minimises ``mean_i w_i loss(y_i, f(x_i)) / mean_i w_i + (alpha / 2) ||f - b||^2_H`` over the
    kernel's function space, with an unpenalised constant b. With the squared loss
    (``(f - y)^2 / 2``) alpha is the ridge of kernel ridge regression divided by n.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        ``"squared"``, ``"huber"``, ``"epsilon_insensitive"``, ``"absolute"``, ``"quantile"``,
        ``"poisson"`` or ``"gamma"``; an object sets a parameter, in the units of y:
        ``Huber(0.7)``. ``Quantile((0.1, 0.5, 0.9))`` fits several quantiles, one output each.
        ``"poisson"`` and ``"gamma"`` fit the logarithm f of the mean; `predict` returns exp f.
    kernel, gamma, metric, bandwidth_factor, solver, alpha, C, max_iter, tol, early_stopping,
    validation_fraction, n_iter_no_change, fit_intercept, standardize, categorical_features,
    device, memory_limit, time_limit, engine, warm_start, random_state, verbose, callbacks
        As in :class:`KernelClassifier`. The validation score is R^2 for the squared loss,
        else the negative mean loss.

    See Also
    --------
    KernelClassifier : The same for classes.
    KernelGaussianProcessRegressor : Predictions with a variance.
    LinearRegressor : Linear functions, for wide sparse rows and for speed.

    Notes
    -----
    Several quantiles are fitted without a constraint between them. `predict` sorts the values
    of each row, which never moves them further from the true quantiles (Chernozhukov,
    Fernández-Val and Galichon 2010).

    Attributes
    ----------
    n_outputs_ : int
    alpha_, metric_, feature_importances_, n_features_in_, feature_names_in_, expansion_,
    kernel_, n_random_features_, n_support_, n_iter_, best_iteration_, best_score_, history_,
    fit_status_
        As in :class:`KernelClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelgrad import KernelRegressor
    >>> X = np.linspace(-3, 3, 400)[:, None]
    >>> model = KernelRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(model.score(X, np.sin(X[:, 0])) > 0.99)
    True
    """

    _sibling = "KernelClassifier"
