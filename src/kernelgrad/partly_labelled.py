"""Rows with and without labels: their marks and their batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import column_or_1d

from kernelgrad.compute.linalg import stacked
from kernelgrad.data import ArraySource, Batch, BatchSource
from kernelgrad.files.records import Record, check_number
from kernelgrad.losses import Loss, Perceptron, encode_labels, get_loss
from kernelgrad.solvers import TrainBatch
from kernelgrad.tables import is_gap
from kernelgrad.tasks import Classification, ClassTargets, decide, weights_of
from kernelgrad.training_rows import PairedRows, canonical_rows
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray, Matrix
from kernelgrad.validation import DataError

NO_LABEL = -1  # code of a row without a label
_MOST_ROWS = 2**31


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float | np.integer | np.floating)
    return number and not isinstance(value, bool)


def is_signed(y: AnyArray) -> bool:
    """Labels are exactly {-1, 1}, so -1 is a class."""
    if y.dtype.kind == "O":
        values = y.tolist()
        return all(map(_is_number, values)) and set(values) == {-1, 1}
    return y.dtype.kind in "if" and np.array_equal(np.unique(y), [-1, 1])


def is_labelled(y: AnyArray, signed: bool) -> AnyArray:
    """Mask of labelled rows; the others have None, NaN, or -1 unless labels are `signed`."""
    if y.dtype.kind == "O":
        has_label = [not is_gap(v) and (signed or not (_is_number(v) and v == -1)) for v in y]
        return np.array(has_label, bool)
    if y.dtype.kind not in "if":
        return np.ones(len(y), bool)
    return np.asarray((y == y) & (signed | (y != -1)))


def labels_of(y: Any) -> AnyArray:
    """Return targets as a one-dimensional array, missing ones as they are."""
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    if isinstance(y, list | tuple) and any(isinstance(v, str) for v in y):
        y = np.array(y, dtype=object)  # else NaN becomes a name
    return np.asarray(column_or_1d(y, warn=True))


def plain(labels: AnyArray) -> AnyArray:
    """Return labels of objects, such as text, in their one type, or raise TypeError."""
    if labels.dtype != object:
        return labels
    kinds = {_kind(v): v for v in labels.tolist()}
    if len(kinds) > 1:
        examples = " and ".join(map(repr, kinds.values()))
        raise TypeError(
            f"y holds labels of several types, such as {examples}; give them as one."
        )
    return np.asarray(labels.tolist())


def _kind(value: Any) -> str:
    for kind, types in (("text", str), ("bool", bool | np.bool_)):
        if isinstance(value, types):
            return kind
    return "number" if _is_number(value) else type(value).__name__


@dataclass(frozen=True)
class MarkedClassification(Classification):
    """Classes of labelled rows; rows without a label have the code -1 and targets 0.

    ``labelled_weight`` is the sum of the weights of labelled rows, of all that were fitted.
    """

    has_own_proba: ClassVar[bool] = False  # type: ignore[misc]
    labelled_weight: float = 0.0

    @property
    def signed(self) -> bool:
        return -1 in self.classes.tolist()

    def internal(self, y: AnyArray) -> AnyArray:
        y = labels_of(y)
        has_label = is_labelled(y, self.signed)
        codes = np.full(len(y), NO_LABEL)
        if has_label.any():
            codes[has_label] = self.codes(plain(y[has_label]))
        return codes

    def scored(self, y: AnyArray) -> AnyArray:
        codes = self.internal(y)
        if (codes == NO_LABEL).any():
            raise DataError("y_val marks rows as unlabelled; give rows that have a label.")
        return codes

    def require_all(self, weights: Float64Array) -> None:
        if not (weights > 0).all():
            label = self.classes[int(np.argmin(weights))].item()
            raise DataError(
                f"Class {label!r} has no labelled row of positive weight; label some rows of "
                "each class, or leave the class out."
            )

    def encode(self, y: AnyArray) -> FloatArray:
        has_label = y != NO_LABEL
        out = np.zeros((len(y), self.n_outputs), np.float32)
        out[has_label] = encode_labels(y[has_label], len(self.classes), self.loss)
        return out

    def class_factor(self, y: AnyArray) -> Float64Array | None:
        factor = super().class_factor(y)
        return None if factor is None else np.where(y == NO_LABEL, 1.0, factor)

    def hits(self, batch: Batch, raw: Float64Array) -> Float64Array:
        codes = self.internal(np.asarray(batch.y))
        w = weights_of(batch) * (codes != NO_LABEL)
        return np.array([w @ (decide(raw) == codes), w.sum()])

    def attributes(self) -> dict[str, Any]:
        return super().attributes() | {"labelled_weight_": self.labelled_weight}

    @classmethod
    def restore(cls, record: Record, loss: Loss, owner: str) -> Self:
        weight = record.take("labelled_weight_", check_number)
        return replace(super().restore(record, loss, owner), labelled_weight=weight)


@dataclass(frozen=True)
class MarkedTargets(ClassTargets):
    """Labels, and marks of rows without one: -1, None or NaN."""

    sibling: str = "KernelRegressor"
    task_type: ClassVar[type[MarkedClassification]] = MarkedClassification
    encode_levels: ClassVar[bool] = False  # most rows have no target

    def loss_of(self, n_classes: int) -> Loss:
        # one-vs-rest: a row without a label has no place in a multinomial loss
        loss = get_loss(self.loss, task="classification", n_classes=2)
        if isinstance(loss, Perceptron):
            raise ValueError(
                "loss='perceptron' has no margin, which unlabelled rows are pushed beyond; "
                "take 'hinge'."
            )
        return loss

    def checked(self, y: AnyArray) -> AnyArray:
        return labels_of(y)

    def learn(
        self, y: AnyArray | BatchSource, declared: AnyArray | None = None
    ) -> Classification:
        if isinstance(y, BatchSource):
            return super().learn(y, declared)
        signed = is_signed(y) if declared is None else -1 in np.asarray(declared).tolist()
        labels = plain(y[is_labelled(y, signed)])
        if declared is None and not len(labels):
            raise DataError(
                f"y has no label: all {len(y)} rows are marked as unlabelled (-1, None "
                "or NaN); at least one row of each class must have its label."
            )
        try:
            labels = super().checked(labels) if len(labels) else np.asarray(declared)[:0]
            return super().learn(labels, declared)
        except DataError as error:
            raise _explained(error, y) from None

    def labels_of(
        self, source: BatchSource, declared: AnyArray | None
    ) -> tuple[AnyArray, AnyArray]:
        labels, counts = super().labels_of(source, declared)
        signed = is_signed(labels) if declared is None else -1 in np.asarray(declared).tolist()
        has_label = is_labelled(labels, signed)
        if declared is None and not has_label.any():
            raise DataError(
                "The source has no label: all rows are marked by -1; at least one row of each "
                "class must have its own."
            )
        return labels[has_label], counts[has_label]


@dataclass(frozen=True)
class SemiSupervisedRows(PairedRows):
    """Labelled rows, and `other` rows, of which those with a label are excluded."""

    clock = 1
    task: MarkedClassification
    # all rows of arrays with their codes, in the order of the caller; `ordered` splits them
    whole_source: ArraySource | None = field(default=None, kw_only=True)
    # sums of the weights of labelled and of unlabelled rows
    kind_weights: tuple[float, float] = field(default=(0.0, 0.0), kw_only=True)
    # columns of labelled and of unlabelled rows in a kernel matrix
    columns: tuple[IntArray, IntArray] | None = field(default=None, kw_only=True)

    def ordered(self, limit: int | None) -> SemiSupervisedRows:
        """Return labelled and unlabelled rows of arrays, in canonical order if there are few.

        Without a `limit` rows keep their places, which are their columns in a kernel matrix.
        """
        if self.whole_source is None:
            return self
        n = self.whole_source.n_rows
        batch = self.whole_source.read(0, n)
        X, codes, w = batch.X, np.asarray(batch.y), weights_of(batch)
        if limit is not None:
            X, codes, w, _ = canonical_rows(X, codes, w, merge=n <= limit)
        k, has_label = len(self.task.classes), codes != NO_LABEL
        self.task.require_all(np.bincount(codes[has_label], w[has_label], k).astype(float))
        at = np.flatnonzero(has_label), np.flatnonzero(~has_label)
        labelled, *others = (
            ArraySource(X[i], codes[i], w[i], checked=True) for i in at if len(i)
        )
        columns, extra = at if limit is None else None, others[0] if others else None
        return replace(self, source=labelled, other=extra, columns=columns, is_own_copy=True)

    def class_weights(self) -> Float64Array:
        k = len(self.task.classes)
        total = np.zeros(k)
        for batch in self.source.chunks():
            _, codes, weight, _ = self.usable(batch)
            total += np.bincount(codes, weights=weight, minlength=k)
        return total

    def unlabelled_weight(self) -> float:
        if self.other is None:
            return 0.0
        return sum(
            float(weights_of(batch) @ ~np.isin(batch.rows, self.excluded))
            for batch in self.other.chunks()
        )

    def join(self, one: Batch, two: Batch | None = None) -> TrainBatch:
        """Return one batch; each kind has the same sum of weights, and numbers of its own."""
        X, codes, weight, numbers = self.usable(one)
        if len(codes) == 0:
            raise DataError(
                "All labelled rows of a batch have weight zero; drop such rows, or raise the "
                "solver's batch_size."
            )
        y = self.task.encode(codes)
        parts: list[Matrix] = [X]
        weights, rows = [weight], [self._column(0, numbers)]
        w = np.empty(0) if two is None else weights_of(two)
        keep = np.flatnonzero(w > 0)
        if two is not None and len(keep):
            parts.append(two.X[keep])
            weights.append(w[keep])
            rows.append(self._column(1, two.rows[keep]))
            y = np.concatenate([y, np.zeros((len(keep), y.shape[1]), y.dtype)])
        share = len(y) / len(weights)
        return TrainBatch(
            stacked(parts),
            y,
            np.concatenate([w * (share / w.sum()) for w in weights]),
            np.concatenate(rows),
        )

    def _column(self, kind: int, rows: IntArray) -> IntArray:
        """Return numbers of rows of a kind that no row of the other kind has."""
        return kind * _MOST_ROWS + rows if self.columns is None else self.columns[kind][rows]


def one_source(sources: list[BatchSource]) -> ArraySource:
    """Return rows of arrays with codes, and below them rows without a label."""
    parts = [source.read(0, source.n_rows) for source in sources]
    codes = [np.full(len(p.rows), NO_LABEL) if p.y is None else p.y for p in parts]
    X = parts[0].X if len(parts) == 1 else stacked([p.X for p in parts])
    weight = np.concatenate([weights_of(p) for p in parts])
    return ArraySource(X, np.concatenate(codes), weight, checked=True)


def _explained(error: DataError, y: AnyArray) -> DataError:
    """Return the error with what -1 means, where that is why there is one class."""
    minus = is_labelled(y, True) & ~is_labelled(y, False)
    if not minus.any():
        return error
    return DataError(
        f"{error} Rows of -1 are rows without a label here; if -1 is a class, give rows "
        "without a label as X_unlabelled, or call the classes 0 and 1."
    )
