"""Kernel regression."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.metaestimators import available_if

from kernelgrad._typing import AnyArray, Float64Array, FloatArray
from kernelgrad._validation import DataError
from kernelgrad.data import BatchSource
from kernelgrad.estimators.base import BaseKernelEstimator, can_stream
from kernelgrad.losses import Loss, get_loss


class KernelRegressor(RegressorMixin, BaseKernelEstimator):  # type: ignore[misc]
    r"""Kernel regressor: any loss, kernel and solver, on data too large for kernel matrices.

    Minimises ``mean_i w_i loss(y_i, f(x_i)) / mean_i w_i + (alpha / 2) ||f - b||^2_H`` over the
    kernel's function space, with an unpenalised constant b. With the squared loss
    (``(f - y)^2 / 2``) alpha is the ridge of kernel ridge regression divided by n.

    Parameters
    ----------
    loss : {"squared", "huber", "epsilon_insensitive", "absolute", "quantile"} or Loss
        Default ``"squared"``. For its parameters give an object: ``Quantile(0.9)``; Huber's
        delta and epsilon are in the units of y. ``Quantile((0.1, 0.5, 0.9))`` fits several
        quantiles of one target with shared features, one output each.
    kernel, gamma, bandwidth_factor, solver, alpha, C, max_iter, tol, early_stopping,
    validation_fraction, n_iter_no_change, fit_intercept, standardize, memory_limit,
    warm_start, random_state, verbose, callbacks
        As in :class:`KernelClassifier`. The validation score is R^2 for the squared loss,
        else the negative mean loss.

    Notes
    -----
    Several quantiles are fitted without a constraint between them; `predict` sorts the values
    of each row, which never moves them further from the true quantiles (Chernozhukov,
    Fernández-Val and Galichon 2010).

    Attributes
    ----------
    n_outputs_ : int
    alpha_, n_features_in_, feature_names_in_, expansion_, kernel_, n_random_features_,
    n_support_, n_iter_, best_iteration_, best_score_, history_, fit_status_
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

    def __init__(
        self,
        loss: str | Loss = "squared",
        kernel: Any = "rbf",
        *,
        gamma: float | str = "median",
        bandwidth_factor: float = 1.0,
        solver: Any = "auto",
        alpha: float | str = 1e-6,
        C: float | None = None,
        max_iter: int = 40,
        tol: float = 1e-4,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        fit_intercept: bool = True,
        standardize: bool = False,
        memory_limit: float | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
    ) -> None:
        self.loss = loss
        self.kernel = kernel
        self.gamma = gamma
        self.bandwidth_factor = bandwidth_factor
        self.solver = solver
        self.alpha = alpha
        self.C = C
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.memory_limit = memory_limit
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    _searches = True
    _stratified = False
    _y_numeric = True

    @property
    def _n_outputs(self) -> int:
        return int(self.n_outputs_)

    def _prepare_targets(self, y: AnyArray, *, reset: bool) -> tuple[AnyArray, Loss]:
        loss = get_loss(self.loss, task="regression")
        self._internal_y = True
        y = np.asarray(y, np.float64)
        outputs = self._count_outputs(1 if y.ndim == 1 else y.shape[1], loss)
        if reset:
            self.n_outputs_ = outputs
            self._y_ndim = y.ndim if loss.n_outputs is None else 2
        elif outputs != self.n_outputs_:
            raise ValueError(
                f"y has {outputs} outputs, but {type(self).__name__} was fitted with "
                f"{self.n_outputs_}."
            )
        return y, loss

    def _prepare_source(self, source: BatchSource) -> Loss:
        loss = get_loss(self.loss, task="regression")
        y = next(iter(source.target_chunks()))
        if np.asarray(y).dtype.kind not in "iufb":
            raise DataError(
                f"The target holds text such as {np.ravel(y)[0]!r}; use KernelClassifier, or "
                "name a numeric column."
            )
        self._internal_y = False
        self.n_outputs_ = self._count_outputs(1 if np.ndim(y) == 1 else np.shape(y)[1], loss)
        self._y_ndim = np.ndim(y) if loss.n_outputs is None else 2
        return loss

    def _count_outputs(self, columns: int, loss: Loss) -> int:
        if loss.n_outputs is None:
            return columns
        if columns != 1:
            raise ValueError(
                f"{loss!r} has {loss.n_outputs} outputs for one target, but y has {columns} "
                "columns; fit one estimator per column."
            )
        return loss.n_outputs

    def _internal(self, y: AnyArray) -> AnyArray:
        return np.asarray(y, np.float64)

    def _encode(self, y: AnyArray, loss: Loss) -> FloatArray:
        columns = y.reshape(len(y), -1)
        return columns if loss.n_outputs is None else np.repeat(columns, loss.n_outputs, axis=1)

    def _class_factor(self, y: AnyArray) -> Float64Array | None:
        return None

    def _validation_score(self, loss: Loss) -> tuple[str, Any]:
        def r2(y: AnyArray, raw: FloatArray, weight: Float64Array) -> float:
            if len(y) < 2:
                return -np.inf
            return float(r2_score(y.reshape(len(y), -1), raw, sample_weight=weight))

        # R^2 needs two rows and a target that varies; the loss needs neither
        return ("r2", r2) if loss.name == "squared" else ("negative loss", None)

    @available_if(can_stream)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Take further steps, one for every ``batch_size`` rows of `X`, in the order given.

        The first call fixes the bandwidth, the input scaling and the intercept on its first
        batch; there is no early stopping. Parameters are those of :meth:`fit`.
        """
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X: Any) -> Float64Array:
        """Return f(X), shape (n,) or (n, n_outputs) as y was; quantiles in increasing order."""
        raw = self._raw(X)
        if self.loss_.n_outputs is not None:
            raw = np.sort(raw, axis=1)
        return raw.ravel() if self._y_ndim == 1 else raw

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R^2 on arrays, or on a BatchSource with its own targets.

        For several quantiles: 1 minus their mean pinball loss over that of the best constants,
        the share of the loss that the model explains.
        """
        if isinstance(X, BatchSource):
            if y is not None or sample_weight is not None:
                raise ValueError("A BatchSource carries its own y and weights; leave them out.")
            return self._streamed_r2(X)
        if self.__sklearn_is_fitted__() and self.loss_.n_outputs is not None:
            f = self.predict(X)
            if np.shape(y) not in ((len(f),), (len(f), 1)):
                raise ValueError(
                    f"y must hold one target for each of the {len(f)} rows, got shape "
                    f"{np.shape(y)}."
                )
            return self._quantile_score(f, np.asarray(y), sample_weight)
        return float(r2_score(y, self.predict(X), sample_weight=sample_weight))

    def _quantile_score(self, f: Float64Array, y: AnyArray, sample_weight: Any) -> float:
        targets = self._encode(np.asarray(y, np.float64), self.loss_)
        weight = np.ones(len(f)) if sample_weight is None else np.asarray(sample_weight)
        constant = np.tile(self.loss_.intercept(targets, weight), (len(f), 1))
        ours = float(weight @ self.loss_.value(targets, f))
        best = float(weight @ self.loss_.value(targets, constant))
        return 1.0 - ours / best if best > 0 else float(ours == 0)

    def _streamed_r2(self, source: BatchSource) -> float:
        """Return R^2, averaged over outputs, from running sums."""
        if self.loss_.n_outputs is not None:
            raise ValueError("Several quantiles are scored on arrays; give X and y.")
        origin: Any = None
        total, sums = 0.0, np.zeros((3, self.n_outputs_))
        for batch, raw in self._raw_chunks(source):
            y = np.asarray(batch.y, np.float64).reshape(len(raw), -1)
            w = np.ones(len(raw)) if batch.sample_weight is None else batch.sample_weight
            origin = y[0].copy() if origin is None else origin  # keeps the sums accurate
            total += float(w.sum())
            sums += [w @ (y - origin), w @ (y - origin) ** 2, w @ (y - raw) ** 2]
        variance = sums[1] - sums[0] ** 2 / total
        ratio = np.where(variance > 0, sums[2] / np.where(variance > 0, variance, 1.0), 1.0)
        return float(np.mean(1.0 - np.where((variance <= 0) & (sums[2] == 0), 0.0, ratio)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
