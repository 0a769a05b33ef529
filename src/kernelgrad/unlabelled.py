"""Rows without targets, and two samples of rows: their tasks and their batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import column_or_1d

from kernelgrad.compute.linalg import stacked
from kernelgrad.data import Batch, BatchSource
from kernelgrad.files.records import Record, check_labels
from kernelgrad.losses import Loss, RatioLoss, get_loss
from kernelgrad.losses.base import Task as LossTask
from kernelgrad.solvers import TrainBatch
from kernelgrad.tasks import Score, Targets, Task, weights_of
from kernelgrad.training_rows import PairedRows, TrainingRows
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray
from kernelgrad.validation import DataError


@dataclass(frozen=True)
class NoTargets(Task):
    """Rows alone."""

    loss: Loss
    has_targets: ClassVar[bool] = False

    def internal(self, y: AnyArray) -> AnyArray:
        return np.zeros(len(y))

    def encode(self, y: AnyArray) -> FloatArray:
        return np.zeros((len(y), 1), np.float32)

    def columns(self, y: AnyArray) -> None:
        return None

    def predict(self, raw: Float64Array) -> AnyArray:
        return raw.ravel()


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

    def predict(self, raw: Float64Array) -> IntArray:
        return np.where(raw.ravel() >= 0, 1, -1)


@dataclass(frozen=True)
class RatioSamples(NoTargets):
    """Two samples; rows for validation are +1 for those of the numerator, -1 for the others.

    ``samples`` are the values of y for denominator and numerator, (2,).
    """

    loss: RatioLoss
    samples: AnyArray | None = None

    def encode(self, y: AnyArray) -> FloatArray:
        return np.asarray(y, np.float32)[:, None]

    def score(self) -> tuple[str, Score | None]:
        def bound(y: AnyArray, raw: FloatArray, weight: Float64Array) -> float:
            values = self.loss.value(self.encode(y), self.loss.feasible(raw))
            halves = (np.average(values[y == s], weights=weight[y == s]) for s in (1, -1))
            return float(self.loss.bound - sum(halves))

        return "divergence", bound

    def predict(self, raw: Float64Array) -> Float64Array:
        return np.asarray(self.loss.ratio(raw.ravel()), np.float64)

    def attributes(self) -> dict[str, Any]:
        return {"samples_": self.samples}

    @classmethod
    def restore(cls, record: Record, loss: Loss, owner: str) -> Self:
        assert isinstance(loss, RatioLoss)
        return cls(loss, record.take("samples_", check_labels, None))


@dataclass(frozen=True)
class WithoutTargets(Targets):
    """Rows alone, or samples of rows: y is nothing that a function fits."""

    task_type: type[NoTargets]  # type: ignore[misc]
    kind: LossTask  # type: ignore[misc]
    required: ClassVar[bool] = False
    encode_levels: ClassVar[bool] = False

    def learn(self, y: AnyArray | BatchSource, declared: AnyArray | None = None) -> NoTargets:
        return self.task_type(get_loss(self.loss, task=self.kind))


@dataclass(frozen=True)
class TwoSamples(PairedRows):
    """Rows of the numerator, and `other` rows of the denominator."""

    clock = 0

    def ordered(self, limit: int | None) -> TwoSamples:
        half = None if limit is None else max(1, limit // 2)
        p, q = (
            TrainingRows(source, self.task, self.is_encoded).ordered(half).source
            for source in self.sources
        )
        return replace(self, source=p, other=q)

    def join(self, one: Batch, two: Batch | None = None) -> TrainBatch:
        X, weights = [], []
        for batch in (one, two):
            assert batch is not None
            w = weights_of(batch)
            keep = np.flatnonzero(w > 0)
            if len(keep) == 0:
                raise DataError(
                    "All weights of a batch are zero; drop such rows of the source."
                )
            X.append(batch.X if len(keep) == len(w) else batch.X[keep])
            weights.append(w[keep] / (2.0 * w.sum()))
        sizes = [len(w) for w in weights]
        y = np.repeat([1.0, -1.0], sizes)[:, None].astype(np.float32)
        return TrainBatch(stacked(X), y, sum(sizes) * np.concatenate(weights))
