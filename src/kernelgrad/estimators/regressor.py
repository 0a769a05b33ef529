"""Kernel regression, and what all regressors share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin

from kernelgrad.data import BatchSource
from kernelgrad.estimators import base
from kernelgrad.estimators.base import BaseRowsEstimator
from kernelgrad.estimators.kernel import BaseSearchedEstimator
from kernelgrad.estimators.support import available_if, by_blocks, can_stream
from kernelgrad.families.reading import Data
from kernelgrad.inputs import as_numpy
from kernelgrad.model import Model
from kernelgrad.params import explaining, parameters
from kernelgrad.tasks import NumberTargets, Regression
from kernelgrad.types import AnyArray, Float64Array, Rows, Values


class BaseRegressor(RegressorMixin, BaseRowsEstimator):
    """Predictions and scores of a regressor."""

    _sibling: ClassVar[str] = "a classifier"  # remedy for text in messages
    if TYPE_CHECKING:  # what fits set
        n_outputs_: ClassVar[int]
        loss: Any = None

    def _targets(self) -> NumberTargets:
        loss = "squared" if self.loss == "auto" else self.loss
        return NumberTargets(type(self).__name__, loss, self._sibling)

    @available_if(can_stream)
    def partial_fit(self, X: Rows, y: Values = None, sample_weight: Values = None) -> Self:
        """Take further steps, one for every ``batch_size`` rows of `X`, in the order given.

        What is estimated from rows once, such as the bandwidth of a kernel, comes from the
        first batch of the first call; there is no early stopping.
        """
        return self._fit(Data(X, y, sample_weight), stream=True)

    def predict(self, X: Rows) -> Float64Array:
        """Return f(X), shape (n,) or (n, n_outputs) as y was; quantiles in increasing order.

        Of the losses "poisson", "gamma" and "tweedie" this is the mean, exp f(X).
        """
        return by_blocks(self._model.predict, X)  # type: ignore[no-any-return]

    @explaining
    def predict_interval(self, X: Any, coverage: float = 0.9) -> Float64Array:
        """Return bounds that hold the targets of a share of new rows, by conformal prediction.

        Residuals of the rows of `validation_score_` are divided by their mean near the same
        prediction, so that intervals are wider where errors were larger (docs/quality.md).
        Several quantiles have their outermost ones moved.

        Parameters
        ----------
        X : as in predict
        coverage : float in (0, 1), default=0.9
            Share of new rows like those of the fit, not of rows at any one place.

        Returns
        -------
        float64 array (n, 2), or (n, 2, n_outputs)
            Lower and upper bounds.

        Raises
        ------
        CapabilityError
            No rows were held out; give some to `calibrate_coverage`.
        """
        return self._bounds(X, coverage)

    calibrate_coverage = base.calibrate_coverage

    @as_numpy
    def score(self, X: Rows, y: Values = None, sample_weight: Values = None) -> float:
        """Return R^2 on arrays or collections, or on a BatchSource with its own targets.

        For several quantiles: 1 minus their mean pinball loss over that of the best constants,
        the share of the loss that the model explains.
        """
        model = self._model
        X, y, sample_weight, _ = self._spec().reader.lazy(Data(X, y, sample_weight))
        if isinstance(X, BatchSource):
            return _streamed_r2(model, X)
        f = model.predict(X)
        if self.loss_.n_outputs is None:
            from sklearn.metrics import r2_score

            return float(r2_score(y, f, sample_weight=sample_weight))
        if np.shape(y) not in ((len(f),), (len(f), 1)):
            raise ValueError(
                f"y must hold one target for each of the {len(f)} rows, got shape "
                f"{np.shape(y)}."
            )
        return _quantile_score(model, f, np.asarray(y), sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _quantile_score(model: Model, f: Float64Array, y: AnyArray, sample_weight: Any) -> float:
    loss, targets = model.task.loss, model.task.encode(np.asarray(y, np.float64))
    weight = np.ones(len(f)) if sample_weight is None else np.asarray(sample_weight)
    constant = np.tile(loss.intercept(targets, weight), (len(f), 1))
    ours = float(weight @ loss.value(targets, f))
    best = float(weight @ loss.value(targets, constant))
    return 1.0 - ours / best if best > 0 else float(ours == 0)


def _streamed_r2(model: Model, source: BatchSource) -> float:
    """Return R^2, averaged over outputs, from running sums."""
    if model.task.loss.n_outputs is not None:
        raise ValueError("Several quantiles are scored on arrays; give X and y.")
    # sums of differences from one target are accurate
    origin = source.read(0, 1).y if source.has_target else None
    total, first, second, left = model.summed(source, Regression.squares, origin)
    variance = second - first**2 / total
    ratio = np.where(variance > 0, left / np.where(variance > 0, variance, 1.0), 1.0)
    return float(np.mean(1.0 - np.where((variance <= 0) & (left == 0), 0.0, ratio)))


@parameters
class KernelRegressor(BaseRegressor, BaseSearchedEstimator):
    r"""Kernel regressor: any loss, kernel and solver, on data too large for kernel matrices.

    Minimises ``mean_i w_i loss(y_i, f(x_i)) / mean_i w_i + (alpha / 2) ||f - b||^2_H`` over the
    kernel's function space, with an unpenalised constant b. With the squared loss
    (``(f - y)^2 / 2``) alpha is the ridge of kernel ridge regression divided by n, and the
    validation score is R^2; of other losses it is the negative mean loss.

    Parameters
    ----------
    loss : str or Loss, default="auto"
        ``"auto"`` is ``"squared"``, or ``"log_squared"`` where skewed targets >= 0 have smaller
        errors on rows apart by their logarithms (docs/metric.md). Others are ``"huber"``,
        ``"epsilon_insensitive"``, ``"absolute"``, ``"quantile"``, and for counts and amounts
        ``"poisson"``, ``"gamma"`` and ``"tweedie"``, which fit the logarithm f of the mean;
        `predict` returns exp f. An object sets a parameter, in the units of y: ``Huber(0.7)``.
        ``Quantile((0.1, 0.5, 0.9))`` fits several quantiles, one output each.
    kernel, C, alpha, gamma, metric, standardize, bandwidth_factor, solver, max_iter, tol,
    early_stopping, validation_fraction, n_iter_no_change, fit_intercept, categorical_features,
    device, effort, memory_limit, time_limit, engine, warm_start, random_state, verbose,
    callbacks
        As in :class:`KernelClassifier`.

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
    fit_status_, validation_score_, loo_predictions_
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
