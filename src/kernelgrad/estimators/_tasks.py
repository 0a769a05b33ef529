"""Classification and regression, whatever the functions are."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from kernelgrad._typing import AnyArray, Float64Array, FloatArray
from kernelgrad._validation import DataError
from kernelgrad.data import BatchSource
from kernelgrad.estimators.base import BaseRowsEstimator, can_stream
from kernelgrad.losses import Loss, encode_labels, get_loss


def _has_proba(estimator: Classification) -> bool:
    loss = getattr(estimator, "loss_", None)
    if loss is None:
        loss = get_loss(estimator.loss, task="classification", n_classes=2)
    if loss.has_proba:
        return True
    raise AttributeError(
        f"predict_proba is not available with loss={loss.name!r}; use loss='log_loss', or wrap "
        "the estimator in sklearn.calibration.CalibratedClassifierCV."
    )


class Classification(ClassifierMixin, BaseRowsEstimator):  # type: ignore[misc]
    """Classes, their weights and codes, predictions and scores of a classifier."""

    _stratified = True
    _sibling = "a regressor"  # that takes continuous targets, for messages

    def _set_classes(self, classes: AnyArray) -> Loss:
        if len(classes) < 2:
            raise DataError(
                f"{type(self).__name__} needs at least two classes; the data have only one "
                f"class: {classes.tolist()!r}."
            )
        loss = self._get_loss(len(classes))
        self.classes_ = classes
        return loss

    def _get_loss(self, n_classes: int) -> Loss:
        return get_loss(self.loss, task="classification", n_classes=n_classes)

    @property
    def _n_outputs(self) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _prepare_targets(self, y: AnyArray, *, reset: bool) -> tuple[AnyArray, Loss]:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self._internal_y = True
        if reset:
            # the first batch of a stream may lack some of the declared classes
            declared = getattr(self, "_declared", None)
            loss = self._set_classes(np.unique(y) if declared is None else declared)
            codes = self._codes(y)
            self._set_class_weights(np.bincount(codes, minlength=len(self.classes_)))
            return codes, loss
        return self._codes(y), self.loss_

    def _set_class_weights(self, counts: AnyArray) -> None:
        if self.class_weight is None:
            self._class_weights: Float64Array | None = None
        elif self.class_weight == "balanced":
            if (counts == 0).any():
                raise ValueError(
                    "class_weight='balanced' needs rows of every class in the first call; give "
                    "class_weight as a dict for streams."
                )
            self._class_weights = counts.sum() / (len(counts) * counts)
        else:
            self._class_weights = compute_class_weight(
                self.class_weight, classes=self.classes_, y=self.classes_
            )
        if self._class_weights is None:
            return
        for label, weight in zip(
            self.classes_.tolist(), self._class_weights.tolist(), strict=True
        ):
            if not (np.isfinite(weight) and weight >= 0):
                raise ValueError(
                    f"class_weight of {label!r} is {weight!r}; weights must be finite and >= 0."
                )

    def _prepare_source(self, source: BatchSource) -> Loss:
        summary = source.summarize_target()
        if summary.classes is None:
            raise DataError(
                "The target has more than 1,000 distinct values; for a continuous target use "
                f"{self._sibling}."
            )
        if summary.kind == "float" and summary.infer_task() == "regression":
            raise DataError(
                f"The target is continuous; use {self._sibling}, or encode it as classes."
            )
        self._internal_y = False
        found = np.asarray(summary.classes)
        counts = np.asarray(summary.counts)
        declared = getattr(self, "_declared", None)
        if declared is None:
            loss = self._set_classes(found)
        else:
            loss = self._set_classes(declared)
            all_counts = np.zeros(len(declared))
            all_counts[self._codes(found)] = counts
            counts = all_counts
        self._set_class_weights(counts)
        return loss

    def _codes(self, y: AnyArray) -> AnyArray:
        codes = np.searchsorted(self.classes_, y)
        codes = np.minimum(codes, len(self.classes_) - 1)
        unknown = self.classes_[codes] != y
        if unknown.any():
            label = np.asarray(y)[unknown].tolist()[0]
            raise ValueError(
                f"y contains the label {label!r}, which is not among the "
                f"classes {self.classes_.tolist()!r}; name all classes in the first call."
            )
        return codes

    def _internal(self, y: AnyArray) -> AnyArray:
        return self._codes(column_or_1d(y))

    def _encode(self, y: AnyArray, loss: Loss) -> FloatArray:
        return encode_labels(y, len(self.classes_), loss)

    def _class_factor(self, y: AnyArray) -> Float64Array | None:
        return None if self._class_weights is None else self._class_weights[y]

    def _validation_score(self, loss: Loss) -> tuple[str, Any]:
        def accuracy(y: AnyArray, raw: FloatArray, weight: Float64Array) -> float:
            return float(np.average(decide(raw) == y, weights=weight))

        return "accuracy", accuracy

    @available_if(can_stream)
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Take further steps, one for every ``batch_size`` rows of `X`, in the order given.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.
        classes : array-like or None
            All classes; needed in the first call unless its `y` holds them all.

        Returns
        -------
        self
        """
        if classes is None:
            return self._partial_fit(X, y, sample_weight)
        declared = np.unique(np.asarray(classes))
        if hasattr(self, "_state") and not np.array_equal(declared, self.classes_):
            raise ValueError(
                f"classes={declared.tolist()!r} is not the same as on the first call: "
                f"{self.classes_.tolist()!r}."
            )
        self._declared = declared
        try:
            return self._partial_fit(X, y, sample_weight)
        finally:
            del self._declared

    def decision_function(self, X: Any) -> Float64Array:
        """Return f(X): (n,) for two classes (positive favours ``classes_[1]``), else (n, K)."""
        raw = self._raw(X)
        return raw.ravel() if raw.shape[1] == 1 else raw

    def predict(self, X: Any) -> AnyArray:
        """Return the predicted class of every row, shape (n,)."""
        if isinstance(X, BatchSource):
            check_is_fitted(self, "expansion_")
            self._check_source_columns(X)
            chunks = (self.expansion_.raw_prediction(b.X) for b in X.chunks())
            return np.concatenate([np.asarray(self.classes_[decide(raw)]) for raw in chunks])
        raw = self._raw(X)
        return np.asarray(self.classes_[decide(raw)])

    @available_if(_has_proba)
    def predict_proba(self, X: Any) -> Float64Array:
        """Return class probabilities, shape (n, n_classes), in the order of ``classes_``.

        Available with log losses. One-vs-rest probabilities are normalised to sum 1.
        """
        check_is_fitted(self, "expansion_")
        return np.asarray(self.loss_.predict_proba(self._raw(X)), np.float64)

    @available_if(_has_proba)
    def predict_log_proba(self, X: Any) -> Float64Array:
        """Return the logarithm of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy on arrays, or on a BatchSource with its own targets."""
        if isinstance(X, BatchSource):
            if y is not None or sample_weight is not None:
                raise ValueError("A BatchSource carries its own y and weights; leave them out.")
            hits = total = 0.0
            for batch, raw in self._raw_chunks(X):
                w = np.ones(len(raw)) if batch.sample_weight is None else batch.sample_weight
                hits += float(w @ (self.classes_[decide(raw)] == column_or_1d(batch.y)))
                total += float(w.sum())
            return hits / total
        return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))


def decide(raw: FloatArray) -> AnyArray:
    """Return class codes from raw predictions."""
    if raw.shape[1] == 1:
        return (raw[:, 0] > 0).astype(np.intp)
    return np.asarray(np.argmax(raw, axis=1))


class Regression(RegressorMixin, BaseRowsEstimator):  # type: ignore[misc]
    """Outputs, predictions and scores of a regressor."""

    _y_numeric = True
    _sibling = "a classifier"  # that takes text, for messages

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
                f"The target holds text such as {np.ravel(y)[0]!r}; use {self._sibling}, or "
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

        What is estimated from rows once, such as the first intercept and the bandwidth of a
        kernel, comes from the first batch of the first call; there is no early stopping.
        Parameters are those of :meth:`fit`.
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
