"""What targets are: how they become targets of a loss, and what is predicted of them."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from kernelgrad.compute.ranges import SMALLEST, extreme
from kernelgrad.data import Batch, BatchSource
from kernelgrad.data.base import distinct_text
from kernelgrad.files.records import Record, check_labels, check_numbers, or_none
from kernelgrad.losses import Loss, SquaredError, encode_labels, get_loss
from kernelgrad.losses.base import Task as LossTask
from kernelgrad.losses.classification import MarginLoss
from kernelgrad.types import AnyArray, Float32Array, Float64Array, FloatArray
from kernelgrad.validation import DataError, check_bool, check_int, check_real

Score = Callable[[AnyArray, FloatArray, Float64Array], float]


class OneClassError(DataError):
    """There is one class only."""


def weights_of(batch: Batch) -> Float64Array:
    """Return the weights of a batch, ones where there are none."""
    if batch.sample_weight is None:
        return np.ones(batch.X.shape[0])
    return np.asarray(batch.sample_weight, np.float64)


class Task(ABC):
    """The targets of a fit, in three forms.

    Raw targets are the user's. Internal ones are class codes or floats: what rows are
    stratified, merged and scored by. Encoded ones, (n, C), are what the loss takes.
    """

    loss: Loss
    n_outputs: int = 1  # outputs C
    has_targets: ClassVar[bool] = True
    stratified: ClassVar[bool] = False
    has_own_proba: bool = True  # False if probabilities need a calibration

    @abstractmethod
    def internal(self, y: AnyArray) -> AnyArray:
        """Return raw targets as internal ones; raise where they are none of this task."""

    @abstractmethod
    def encode(self, y: AnyArray) -> FloatArray:
        """Return internal targets as encoded ones, (n, C)."""

    def with_loss(self, loss: Loss) -> Self:
        """Return the same task with another loss."""
        return replace(self, loss=loss)  # type: ignore[type-var]

    def columns(self, y: AnyArray) -> Float64Array | None:
        """Return what internal targets tell encoders of categories, (n, outputs) or None."""
        return np.asarray(y, np.float64).reshape(len(y), -1)

    def scored(self, y: AnyArray) -> AnyArray:
        """Return raw targets of rows for validation as internal ones."""
        return self.internal(y)

    def class_factor(self, y: AnyArray) -> Float64Array | None:
        """Return the factor of each row's weight from class weights, or None."""
        return None

    def score(self) -> tuple[str, Score | None]:
        """Return the score's name and function (y, f, weight), None for the negative loss."""
        return "negative loss", None

    def _r2(self, y: AnyArray, raw: FloatArray, weight: Float64Array) -> float:
        # R^2 needs two rows and a target that varies; the loss needs neither
        if len(y) < 2:
            return -np.inf
        from sklearn.metrics import r2_score

        return float(r2_score(self.encode(y), raw, sample_weight=weight))

    @abstractmethod
    def predict(self, raw: Float64Array) -> AnyArray:
        """Return predictions from responses f (n, C)."""

    def decision(self, raw: Float64Array) -> Float64Array:
        """Return what tells how sure a prediction is, (n,) or (n, K)."""
        return raw.ravel()

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes of an estimator that say what the task is.

        Files hold them by these names; those with an underscore in front are for files only.
        """
        return {}

    @classmethod
    def restore(cls, record: Record, loss: Loss, owner: str) -> Self:
        """Return the task whose attributes are in a record."""
        return cls(loss)  # type: ignore[call-arg]


@dataclass(frozen=True)
class Targets(ABC):
    """What the parameters of an estimator say of targets; learns their task."""

    owner: str  # name of the estimator in messages
    loss: Any
    task_type: ClassVar[type[Task]]
    kind: ClassVar[LossTask]
    required: ClassVar[bool] = True
    numeric: ClassVar[bool] = False
    encode_levels: ClassVar[bool] = True  # True if means of targets may encode categories

    @abstractmethod
    def learn(self, y: AnyArray | BatchSource, declared: AnyArray | None = None) -> Task:
        """Return the task of checked targets, or of a source; `declared` are all classes."""

    def checked(self, y: AnyArray) -> AnyArray:
        """Return targets of arrays, or raise if they are of another kind."""
        return y


@dataclass(frozen=True)
class Classification(Task):
    """Classes, sorted, and the weight of each or None; with an output each, or each pair."""

    loss: Loss
    classes: AnyArray
    weights: Float64Array | None = None
    by_pairs: bool = False
    stratified: ClassVar[bool] = True

    @property
    def n_outputs(self) -> int:  # type: ignore[override]
        n = len(self.classes)
        return n * (n - 1) // 2 if self.by_pairs or n == 2 else n

    @property
    def _sides(self) -> Float32Array:
        """Return the classes of each pair (i, j), (n_pairs, K): i is -1, j is +1."""
        first, second = np.triu_indices(len(self.classes), 1)
        units = np.eye(len(self.classes), dtype=np.float32)
        return units[second] - units[first]

    def codes(self, y: AnyArray) -> AnyArray:
        codes = np.searchsorted(self.classes, y)
        codes = np.minimum(codes, len(self.classes) - 1)
        unknown = self.classes[codes] != y
        if unknown.any():
            label = np.asarray(y)[unknown].tolist()[0]
            raise ValueError(
                f"y contains the label {label!r}, which is not among the "
                f"classes {self.classes.tolist()!r}; name all classes in the first call."
            )
        return codes

    def internal(self, y: AnyArray) -> AnyArray:
        return self.codes(column_or_1d(y))

    def encode(self, y: AnyArray) -> FloatArray:
        if self.by_pairs:  # rows of other classes are 0: slopes of margins vanish there
            return np.ascontiguousarray(self._sides.T[y])
        return encode_labels(y, len(self.classes), self.loss)

    def columns(self, y: AnyArray) -> Float64Array:
        """Return whether each row is of each class, of two classes of the second."""
        return np.eye(len(self.classes))[y][:, int(len(self.classes) == 2) :]

    def class_factor(self, y: AnyArray) -> Float64Array | None:
        return None if self.weights is None else self.weights[y]

    def score(self) -> tuple[str, Score | None]:
        return "accuracy", lambda y, raw, w: float(np.average(self.decide(raw) == y, weights=w))

    def predict(self, raw: FloatArray) -> AnyArray:
        return np.asarray(self.classes[self.decide(raw)])

    def decide(self, raw: FloatArray) -> AnyArray:
        """Return the code of each row's class; of pairs the first with most votes."""
        return decide(self._votes(raw) if self.by_pairs else raw)

    def decision(self, raw: Float64Array) -> Float64Array:
        """Return one response of each class, or one of two classes, (n, K) or (n,).

        Of pairs these are votes, plus the sum s of the class's responses, towards it, as
        ``s / (3 (|s| + 1))``: less than half a vote, it orders classes of equal votes.
        """
        if self.by_pairs:
            total = raw @ self._sides
            return np.asarray(self._votes(raw) + total / (3.0 * (np.abs(total) + 1.0)))
        return raw.ravel() if raw.shape[1] == 1 else raw

    def class_responses(self, raw: FloatArray) -> FloatArray:
        """Return a response of each class, (n, K); of pairs the mean over its own."""
        if self.by_pairs:
            return np.asarray(raw @ self._sides / (len(self.classes) - 1))
        return np.column_stack([np.zeros(len(raw)), raw]) if raw.shape[1] == 1 else raw

    def _votes(self, raw: FloatArray) -> FloatArray:
        sides = self._sides
        return np.asarray(np.where(raw > 0, 1, -1) @ sides + np.abs(sides).sum(0)) / 2

    def hits(self, batch: Batch, raw: Float64Array) -> Float64Array:
        """Return the weights of rows whose class is predicted, and of all."""
        w = weights_of(batch)
        return np.array([w @ (self.predict(raw) == column_or_1d(batch.y)), w.sum()])

    @property
    def has_own_proba(self) -> bool:  # type: ignore[override]
        return self.loss.has_proba and not self.by_pairs

    def attributes(self) -> dict[str, Any]:
        return {
            "classes_": self.classes, "_class_weights": self.weights, "_by_pairs": self.by_pairs
        }  # fmt: skip

    @classmethod
    def restore(cls, record: Record, loss: Loss, owner: str) -> Self:
        task = cls(
            loss,
            record.take("classes_", check_labels),
            record.take("_class_weights", or_none(check_numbers)),
            record.take("_by_pairs", check_bool, False),
        )
        weights = task.weights
        if weights is not None and not (
            len(weights) == len(task.classes) and (weights >= 0).all()
        ):
            raise ValueError(
                "The weights of classes are not one for each class, none negative."
            )
        if task.by_pairs and not isinstance(loss, MarginLoss):
            raise ValueError(f"{loss!r} has no margin between pairs of classes.")
        return task


@dataclass(frozen=True)
class ClassTargets(Targets):
    """Labels of classes, their weights, and whether there is an output for each pair."""

    class_weight: Any = None
    by_pairs: bool = False
    sibling: str = "a regressor"  # remedy for continuous targets in messages
    task_type: ClassVar[type[Classification]] = Classification
    kind: ClassVar[LossTask] = "classification"

    def checked(self, y: AnyArray) -> AnyArray:
        y = column_or_1d(y, warn=True)
        labels = distinct_text(y) if y.dtype == object else None
        if labels is None or 2 * len(labels) > len(y):  # scikit-learn sorts all rows
            check_classification_targets(y)
        return np.asarray(y)

    def loss_of(self, n_classes: int) -> Loss:
        if not self.by_pairs:
            return get_loss(self.loss, task="classification", n_classes=n_classes)
        loss = get_loss(self.loss, task="classification", n_classes=2)
        if not isinstance(loss, MarginLoss):
            raise ValueError(
                f"multi_class='ovo' is for losses of the margin such as 'hinge' or 'logistic', "
                f"not for {loss.name!r}; leave it at 'auto'."
            )
        return loss

    def learn(
        self, y: AnyArray | BatchSource, declared: AnyArray | None = None
    ) -> Classification:
        if isinstance(y, BatchSource):
            labels, counts = self.labels_of(y, declared)
        elif y.dtype == object:  # np.unique would sort all rows
            number = sorted(Counter(y.tolist()).items())
            labels = np.array([label for label, _ in number], object)
            counts = np.array([count for _, count in number])
        else:
            labels, counts = np.unique(y, return_counts=True)
        # the first batch of a stream may lack some of the declared classes
        classes = labels if declared is None else declared
        if len(classes) < 2:
            raise OneClassError(
                f"{self.owner} needs at least two classes; the data have only one "
                f"class: {classes.tolist()!r}."
            )
        task = self.task_type(self.loss_of(len(classes)), classes)
        total = np.zeros(len(classes))
        total[task.codes(labels)] = counts
        weights = weights_of_classes(self.class_weight, classes, total)
        by_pairs = self.by_pairs and len(classes) > 2
        return replace(task, weights=weights, by_pairs=by_pairs)

    def labels_of(
        self, source: BatchSource, declared: AnyArray | None
    ) -> tuple[AnyArray, AnyArray]:
        """Return the distinct labels of a source, and the number of rows of each."""
        summary = source.summarize_target()
        if summary.classes is None:
            raise DataError(
                "The target has more than 1,000 distinct values; for a continuous target use "
                f"{self.sibling}."
            )
        if summary.kind == "float" and summary.infer_task() == "regression":
            raise DataError(
                f"The target is continuous; use {self.sibling}, or encode it as classes."
            )
        return np.asarray(summary.classes), np.asarray(summary.counts)


def weights_of_classes(
    class_weight: Any, classes: AnyArray, counts: AnyArray
) -> Float64Array | None:
    """Return the weight of each class, of which there are `counts` rows."""
    if class_weight is None:
        return None
    if class_weight == "balanced":
        if (counts == 0).any():
            raise ValueError(
                "class_weight='balanced' needs rows of every class in the first call; give "
                "class_weight as a dict for streams."
            )
        weights: Float64Array = counts.sum() / (len(counts) * counts)
    elif not isinstance(class_weight, dict):
        raise ValueError(f"class_weight must be 'balanced' or a dict, got {class_weight!r}.")
    else:
        labels = classes.tolist()
        unknown = [label for label in class_weight if label not in labels]
        if unknown and not class_weight.keys() >= set(labels):
            raise ValueError(
                f"class_weight has a weight for {unknown[0]!r}, but the classes are {labels}; "
                "name these, as y does."
            )
        weights = np.array([float(class_weight.get(label, 1.0)) for label in labels])
    for label, weight in zip(classes.tolist(), weights.tolist(), strict=True):
        if not (np.isfinite(weight) and weight >= 0):
            raise ValueError(
                f"class_weight of {label!r} is {weight!r}; weights must be finite and >= 0."
            )
    return weights


def decide(raw: FloatArray) -> AnyArray:
    """Return class codes from raw predictions."""
    if raw.shape[1] == 1:
        return (raw[:, 0] > 0).astype(np.intp)
    return np.asarray(np.argmax(raw, axis=1))


@dataclass(frozen=True)
class Regression(Task):
    """Numbers: one column for each output, or one column for all outputs of the loss."""

    loss: Loss
    ndim: int  # dimensions of predictions
    owner: str  # class name of the estimator in messages
    n_outputs: int

    def internal(self, y: AnyArray) -> AnyArray:
        y = np.asarray(y, np.float64)
        most, position = extreme(y)
        if most and not SMALLEST <= most <= 1.0 / SMALLEST:
            raise DataError(
                f"The largest target, in row {position // max(1, y[:1].size)} (rows count from "
                f"0), has the size {most:.3g}, not within {SMALLEST:g} and {1 / SMALLEST:g}, "
                "the range of float32; give the target in another unit."
            )
        if len(y) and 0.0 < float(np.ptp(y, axis=0).max()) < 1e3 * np.finfo(float).eps * most:
            warnings.warn(
                f"The targets differ by {np.ptp(y, axis=0).max():.3g} at a size of {most:.3g}: "
                "few of their digits tell them apart; subtract a constant from all.",
                stacklevel=2,
            )
        lowest = self.loss.lowest_target
        if lowest is not None and (y < lowest).any():
            row = int(np.argmax(y.reshape(len(y), -1).min(axis=1) < lowest))
            wanted = ">= 0" if lowest == 0 else "> 0"
            raise DataError(
                f"The loss {self.loss.name!r} takes targets {wanted}, "
                f"but row {row} (rows count from 0) has {np.min(y[row]):g}; correct or drop "
                "such rows, or take the loss 'squared'."
            )
        outputs = _count_outputs(y, self.loss)
        if outputs != self.n_outputs:
            raise ValueError(
                f"y has {outputs} outputs, but {self.owner} was fitted with {self.n_outputs}."
            )
        return y

    def encode(self, y: AnyArray) -> FloatArray:
        columns: FloatArray = self.loss.targets(y.reshape(len(y), -1))
        n = self.loss.n_outputs
        return columns if n is None else np.repeat(columns, n, axis=1)

    def score(self) -> tuple[str, Score | None]:
        return ("r2", self._r2) if self.loss.name == "squared" else super().score()

    def predict(self, raw: Float64Array) -> Float64Array:
        raw = np.asarray(self.loss.mean(raw), np.float64)
        if self.loss.n_outputs is not None:
            raw = np.sort(raw, axis=1)
        return raw.ravel() if self.ndim == 1 else raw

    def squares(self, batch: Batch, raw: Float64Array, origin: AnyArray) -> Float64Array:
        """Return sums of weights, of targets less the origin, their squares, and errors'."""
        raw = np.asarray(self.loss.mean(raw), np.float64)
        y = np.asarray(batch.y, np.float64).reshape(raw.shape)
        w = weights_of(batch)
        moved = y - np.asarray(origin, np.float64).reshape(1, -1)
        total = np.full(raw.shape[1], w.sum())
        return np.array([total, w @ moved, w @ moved**2, w @ (y - raw) ** 2])

    def attributes(self) -> dict[str, Any]:
        return {"n_outputs_": self.n_outputs, "_y_ndim": self.ndim}

    @classmethod
    def restore(cls, record: Record, loss: Loss, owner: str) -> Self:
        outputs = record.take("n_outputs_", partial(check_int, low=1))
        ndim = record.take("_y_ndim", partial(check_int, low=1, high=2))
        if outputs > 1 and ndim == 1:
            raise ValueError(f"A column of targets does not have {outputs} outputs.")
        return cls(loss, ndim, owner, outputs)


@dataclass(frozen=True)
class NumberTargets(Targets):
    """Numbers: one column or several."""

    sibling: str = "a classifier"  # remedy for text in messages
    task_type: ClassVar[type[Regression]] = Regression
    kind: ClassVar[LossTask] = "regression"
    numeric: ClassVar[bool] = True

    def learn(self, y: AnyArray | BatchSource, declared: AnyArray | None = None) -> Regression:
        loss = get_loss(self.loss, task="regression")
        if isinstance(y, BatchSource):
            y = np.asarray(next(iter(y.target_chunks())))
            if y.dtype.kind not in "iufb":
                raise DataError(
                    f"The target holds text such as {np.ravel(y)[0]!r}; use "
                    f"{self.sibling}, or name a numeric column."
                )
        ndim = np.ndim(y) if loss.n_outputs is None else 2
        return Regression(loss, ndim, self.owner, _count_outputs(y, loss))


@dataclass(frozen=True)
class ScaledColumn(Task):
    """One column of numbers, of which ``(y - centre) / scale`` is fitted.

    ``total`` is the sum of the weights of its rows, where they have been read; ``varies`` is
    False if their targets are equal but for rounding.
    """

    centre: float = 0.0
    scale: float = 1.0
    total: float = np.nan
    varies: bool = True
    loss: Loss = field(default_factory=SquaredError)

    @classmethod
    def learn(cls, batches: Iterable[Batch], normalize: bool) -> ScaledColumn:
        targets, weights = [], []
        for batch in batches:
            values = np.asarray(batch.y)
            if values.dtype.kind not in "iufb" or values.ndim != 1:
                raise DataError(
                    f"The target must be one column of numbers, got {values[:1]!r}."
                )
            targets.append(values.astype(np.float64))
            weights.append(weights_of(batch))
        values, weight = np.concatenate(targets), np.concatenate(weights)
        if not weight.sum() > 0:
            raise DataError("All sample weights are zero; at least one row must count.")
        centre = float(np.average(values, weights=weight)) if normalize else 0.0
        with np.errstate(over="ignore"):
            spread = float(np.sqrt(np.average((values - centre) ** 2, weights=weight)))
        if not np.isfinite(spread):
            raise DataError(
                f"The targets, up to {extreme(values)[0]:.3g} in size, have squares beyond "
                "float64; give them in another unit."
            )
        rounding = 10 * np.finfo(float).eps * float(np.abs(values).max())
        varies = bool(spread > rounding)
        return cls(centre, spread if varies else 1.0, float(weight.sum()), varies)

    def internal(self, y: AnyArray) -> AnyArray:
        y = np.asarray(y, np.float64)
        if y.ndim == 2 and y.shape[1] != 1:
            raise ValueError(
                f"y must have one column, got {y.shape[1]}; fit one estimator per column."
            )
        return np.asarray(y if y.ndim == 1 else column_or_1d(y, warn=True))

    def encode(self, y: AnyArray) -> FloatArray:
        return ((y - self.centre) / self.scale).reshape(-1, 1)

    def score(self) -> tuple[str, Score | None]:
        return "r2", self._r2

    def predict(self, raw: Float64Array) -> Float64Array:
        return self.centre + self.scale * raw.ravel()

    def attributes(self) -> dict[str, Any]:
        return {"y_mean_": self.centre, "y_scale_": self.scale}

    @classmethod
    def restore(cls, record: Record, loss: Loss, owner: str) -> Self:
        scale = record.take("y_scale_", partial(check_real, low=0.0, low_open=True))
        return cls(record.take("y_mean_", check_real), scale, loss=loss)


@dataclass(frozen=True)
class ColumnTargets(Targets):
    """One column of numbers; the task is learned from the rows in their order."""

    task_type: ClassVar[type[ScaledColumn]] = ScaledColumn
    kind: ClassVar[LossTask] = "regression"
    numeric: ClassVar[bool] = True

    def learn(
        self, y: AnyArray | BatchSource, declared: AnyArray | None = None
    ) -> ScaledColumn:
        return ScaledColumn()


def _count_outputs(y: AnyArray, loss: Loss) -> int:
    columns, wanted = 1 if np.ndim(y) == 1 else int(np.shape(y)[1]), loss.n_outputs
    if wanted is not None and columns != 1:
        raise ValueError(
            f"{loss!r} has {wanted} outputs for one target, but y has {columns} columns; fit "
            "one estimator per column."
        )
    return columns if wanted is None else wanted
