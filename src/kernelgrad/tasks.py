"""What targets are: how they become targets of a loss, and what is predicted of them."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import column_or_1d

from kernelgrad.compute.ranges import SMALLEST, extreme
from kernelgrad.data import Batch
from kernelgrad.losses import Loss, RatioLoss, SquaredError, encode_labels
from kernelgrad.types import AnyArray, Float32Array, Float64Array, FloatArray
from kernelgrad.validation import DataError

Score = Callable[[AnyArray, FloatArray, Float64Array], float]


class Task(ABC):
    """The targets of a fit, in three forms.

    Raw targets are the user's. Internal ones are class codes or floats: what rows are
    stratified, merged and scored by. Encoded ones, (n, C), are what the loss takes.
    """

    loss: Loss
    has_targets: ClassVar[bool] = True
    stratified: ClassVar[bool] = False
    scored_by: ClassVar[str] = "the targets of X_val"  # for messages

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of outputs C."""

    @abstractmethod
    def internal(self, y: AnyArray) -> AnyArray:
        """Return raw targets as internal ones; raise where they are none of this task."""

    @abstractmethod
    def encode(self, y: AnyArray) -> FloatArray:
        """Return internal targets as encoded ones, (n, C)."""

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
        """Return name and function (internal y, f, weight) -> float of the validation score.

        None instead of a function stands for the negative mean loss.
        """
        return "negative loss", None

    def _r2(self, y: AnyArray, raw: FloatArray, weight: Float64Array) -> float:
        # R^2 needs two rows and a target that varies; the loss needs neither
        if len(y) < 2:
            return -np.inf
        from sklearn.metrics import r2_score

        return float(r2_score(self.encode(y), raw, sample_weight=weight))

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes of an estimator that say what the task is."""
        return {}


@dataclass(frozen=True)
class NoTargets(Task):
    """Rows alone."""

    loss: Loss
    has_targets: ClassVar[bool] = False

    @property
    def n_outputs(self) -> int:
        return 1

    def internal(self, y: AnyArray) -> AnyArray:
        return np.zeros(len(y))

    def encode(self, y: AnyArray) -> FloatArray:
        return np.zeros((len(y), 1), np.float32)

    def columns(self, y: AnyArray) -> None:
        return None


class Novelty(NoTargets):
    """Rows to learn what is ordinary; others, known as ordinary or not, are for validation."""

    scored_by = (
        "which rows of X_val are ordinary, +1, and which are outliers, -1: without that no "
        "score says which detector is better"
    )

    def scored(self, y: AnyArray) -> AnyArray:
        y = column_or_1d(y)
        if set(y.tolist()) != {-1, 1}:
            raise ValueError(
                f"y_val holds {np.unique(y)[:5].tolist()!r}; give {self.scored_by}."
            )
        return y

    def score(self) -> tuple[str, Score | None]:
        from sklearn.metrics import roc_auc_score

        return "roc_auc", lambda y, raw, w: float(roc_auc_score(y, raw[:, 0], sample_weight=w))


class RatioSamples(NoTargets):
    """Two samples; rows for validation are +1 for those of the numerator, -1 for the others."""

    loss: RatioLoss

    def encode(self, y: AnyArray) -> FloatArray:
        return np.asarray(y, np.float32)[:, None]

    def score(self) -> tuple[str, Score | None]:
        def bound(y: AnyArray, raw: FloatArray, weight: Float64Array) -> float:
            values = self.loss.value(self.encode(y), self.loss.feasible(raw))
            halves = (np.average(values[y == s], weights=weight[y == s]) for s in (1, -1))
            return float(self.loss.bound - sum(halves))

        return "divergence", bound


@dataclass(frozen=True)
class Classification(Task):
    """Classes, sorted, and the weight of each or None; with an output each, or each pair."""

    loss: Loss
    classes: AnyArray
    weights: Float64Array | None = None
    by_pairs: bool = False
    stratified: ClassVar[bool] = True

    @property
    def n_outputs(self) -> int:
        n = len(self.classes)
        return n * (n - 1) // 2 if self.by_pairs or n == 2 else n

    @property
    def _sides(self) -> Float32Array:
        """Return the classes of each pair (i, j), (n_pairs, K): i is -1, j is +1."""
        first, second = np.triu_indices(len(self.classes), 1)
        sides = np.zeros((len(first), len(self.classes)), np.float32)
        pair = np.arange(len(first))
        sides[pair, first], sides[pair, second] = -1, 1
        return sides

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

    def attributes(self) -> dict[str, Any]:
        return {
            "classes_": self.classes, "_class_weights": self.weights, "_by_pairs": self.by_pairs
        }  # fmt: skip


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
    else:
        weights = compute_class_weight(class_weight, classes=classes, y=classes)
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
    outputs: int
    ndim: int  # dimensions of predictions
    owner: str  # class name of the estimator in messages

    @classmethod
    def learn(cls, y: AnyArray, loss: Loss, owner: str) -> Regression:
        ndim = np.ndim(y) if loss.n_outputs is None else 2
        return cls(loss, _count_outputs(y, loss), ndim, owner)

    @property
    def n_outputs(self) -> int:
        return self.outputs

    def internal(self, y: AnyArray) -> AnyArray:
        y = np.asarray(y, np.float64)
        most, place = extreme(y)
        if most and not SMALLEST <= most <= 1.0 / SMALLEST:
            raise DataError(
                f"The largest target, in row {place // max(1, y[:1].size)} (rows count from "
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
                f"but row {row} (rows count from 0) has {np.min(y[row]):g}; mend or drop such "
                "rows, or take the loss 'squared'."
            )
        outputs = _count_outputs(y, self.loss)
        if outputs != self.n_outputs:
            raise ValueError(
                f"y has {outputs} outputs, but {self.owner} was fitted with {self.n_outputs}."
            )
        return y

    def encode(self, y: AnyArray) -> FloatArray:
        columns: FloatArray = y.reshape(len(y), -1)
        n = self.loss.n_outputs
        return columns if n is None else np.repeat(columns, n, axis=1)

    def score(self) -> tuple[str, Score | None]:
        return ("r2", self._r2) if self.loss.name == "squared" else super().score()

    def predict(self, raw: Float64Array) -> Float64Array:
        raw = np.asarray(self.loss.mean(raw), np.float64)
        if self.loss.n_outputs is not None:
            raw = np.sort(raw, axis=1)
        return raw.ravel() if self.ndim == 1 else raw

    def attributes(self) -> dict[str, Any]:
        return {"n_outputs_": self.n_outputs, "_y_ndim": self.ndim}


@dataclass(frozen=True)
class ScaledColumn(Task):
    """One column of numbers, of which ``(y - centre) / scale`` is fitted.

    ``total`` is the sum of the weights of its rows, where they have been read.
    """

    centre: float = 0.0
    scale: float = 1.0
    total: float = np.nan
    loss: Loss = field(default_factory=SquaredError)

    @classmethod
    def learn(cls, batches: Iterable[Batch], normalize: bool) -> tuple[ScaledColumn, bool]:
        targets, weights = [], []
        for batch in batches:
            values = np.asarray(batch.y)
            if values.dtype.kind not in "iufb" or values.ndim != 1:
                raise DataError(
                    f"The target must be one column of numbers, got {values[:1]!r}."
                )
            targets.append(values.astype(np.float64))
            weights.append(
                np.ones(len(values)) if batch.sample_weight is None else batch.sample_weight
            )
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
        return cls(centre, spread if varies else 1.0, total=float(weight.sum())), varies

    @property
    def n_outputs(self) -> int:
        return 1

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

    def attributes(self) -> dict[str, Any]:
        return {"y_mean_": self.centre, "y_scale_": self.scale}


def _count_outputs(y: AnyArray, loss: Loss) -> int:
    columns = 1 if np.ndim(y) == 1 else int(np.shape(y)[1])
    if loss.n_outputs is None:
        return columns
    if columns != 1:
        raise ValueError(
            f"{loss!r} has {loss.n_outputs} outputs for one target, but y has {columns} "
            "columns; fit one estimator per column."
        )
    return loss.n_outputs
