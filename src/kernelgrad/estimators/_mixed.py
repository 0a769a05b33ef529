"""Rows with and without labels: how they are told apart, and their batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array
from sklearn.utils.validation import column_or_1d

from kernelgrad._typing import AnyArray, Float64Array, FloatArray, IntArray, Matrix
from kernelgrad._validation import DataError
from kernelgrad.data import Batch, BatchSource, sample_batches
from kernelgrad.solvers import TrainBatch

NO_LABEL = -1  # code of a row without a label
_MOST_ROWS = 2**31


def is_missing(value: Any) -> bool:
    """Tell whether a target is none: None, NaN, pandas.NA or NaT."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas.NA has no truth value
        return True


def is_signed(y: AnyArray) -> bool:
    """Tell whether -1 and 1 are all that `y` holds: two classes, as with a mark it had one."""
    if y.dtype.kind == "O":
        values = y.tolist()
        return all(map(_is_number, values)) and set(values) == {-1, 1}
    return y.dtype.kind in "if" and np.array_equal(np.unique(y), [-1, 1])


def unmarked(y: AnyArray, signed: bool) -> AnyArray:
    """Return which targets are labels, shape (n,): -1, None and NaN mark rows without one.

    Where classes are `signed` -1 is one of them.
    """
    if y.dtype.kind == "O":
        present = np.array([not is_missing(v) for v in y], bool)
        if signed:
            return present
        return np.asarray(present & ~np.array([_is_number(v) and v == -1 for v in y], bool))
    if y.dtype.kind not in "if":
        return np.ones(len(y), bool)
    present = np.asarray(y == y)
    return np.asarray(present if signed else present & (y != -1))


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float | np.integer | np.floating)
    return number and not isinstance(value, bool)


def labels_of(y: Any) -> AnyArray:
    """Return targets as a one-dimensional array, missing ones as they are."""
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    if isinstance(y, list | tuple) and any(isinstance(v, str) for v in y):
        y = np.array(y, dtype=object)  # else NaN becomes a name
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    if y.ndim != 1:
        check_array(y, ensure_2d=False, dtype=None)
        raise ValueError(
            f"y should be a 1d array, got an array of shape {y.shape} instead: one label or "
            "mark for each row."
        )
    return np.asarray(y)


def plain(labels: AnyArray) -> AnyArray:
    """Return labels of objects, such as text, in the type that fits them.

    Raises
    ------
    TypeError
        Labels of several types, such as text and numbers.
    """
    kinds = {_kind(v): v for v in labels.tolist()}
    if len(kinds) > 1:
        some = " and ".join(map(repr, kinds.values()))
        raise TypeError(f"y holds labels of several types, such as {some}; give them as one.")
    return np.asarray(labels.tolist())


def _kind(value: Any) -> str:
    for kind, types in (("text", str), ("bool", bool | np.bool_)):
        if isinstance(value, types):
            return kind
    return "number" if _is_number(value) else type(value).__name__


def stacked(parts: list[Matrix]) -> Matrix:
    if any(sp.issparse(part) for part in parts):
        return sp.vstack(parts, format="csr")
    return np.concatenate(parts)


@dataclass(frozen=True)
class Targets:
    """How raw targets of a batch become codes and weights; set by the estimator.

    Attributes
    ----------
    codes : callable
        Raw targets of labelled rows to class codes.
    factor : callable
        Codes to factors of weights, or None.
    encode : callable
        Codes to targets (m, C) of -1 and +1.
    n_outputs : int
    """

    codes: Callable[[AnyArray], AnyArray]
    factor: Callable[[AnyArray], Float64Array | None]
    encode: Callable[[AnyArray], FloatArray]
    n_outputs: int


@dataclass(frozen=True)
class MixedRows:
    """A labelled source, and a source of unlabelled rows or None.

    Attributes
    ----------
    labelled : BatchSource
    unlabelled : BatchSource or None
    marked : int array or None
        Numbers of the rows of `unlabelled` that have labels and belong to `labelled`.
    targets : Targets
    columns : (int array, int array) or None
        Of each labelled and each unlabelled row in a kernel matrix.
    """

    labelled: BatchSource
    unlabelled: BatchSource | None
    marked: IntArray | None
    targets: Targets
    columns: tuple[IntArray, IntArray] | None = None

    @property
    def n_labelled(self) -> int:
        """Number of labelled rows."""
        return self.labelled.n_rows

    @property
    def n_unlabelled(self) -> int:
        """Number of unlabelled rows."""
        if self.unlabelled is None:
            return 0
        return self.unlabelled.n_rows - (0 if self.marked is None else len(self.marked))

    @property
    def in_memory(self) -> bool:
        """Whether all rows are arrays."""
        return self.labelled.in_memory and (
            self.unlabelled is None or self.unlabelled.in_memory
        )

    def labels(self, batch: Batch) -> tuple[Matrix, AnyArray, Float64Array, IntArray]:
        """Return labelled rows of positive weight, their codes, weights and numbers."""
        codes = self.targets.codes(np.asarray(batch.y))
        weight = _weights(batch)
        factor = self.targets.factor(codes)
        weight = weight if factor is None else weight * factor
        keep = np.flatnonzero(weight > 0)
        return batch.X[keep], codes[keep], weight[keep], batch.rows[keep]

    def class_weights(self, n_classes: int) -> Float64Array:
        """Return the sum of the weights of the labelled rows of each class."""
        total = np.zeros(n_classes)
        for batch in self.labelled.chunks():
            _, codes, weight, _ = self.labels(batch)
            total += np.bincount(codes, weights=weight, minlength=n_classes)
        return total

    def unlabelled_weight(self) -> float:
        """Return the sum of the weights of unlabelled rows."""
        if self.unlabelled is None:
            return 0.0
        total = 0.0
        for batch in self.unlabelled.chunks():
            weight = _weights(batch)
            if self.marked is not None:
                weight = weight * ~np.isin(batch.rows, self.marked)
            total += float(weight.sum())
        return total

    def join(self, labelled: Batch, unlabelled: Batch | None) -> TrainBatch:
        """Return one batch; each kind has the same sum of weights, and numbers of its own."""
        X, codes, weight, numbers = self.labels(labelled)
        if len(codes) == 0:
            raise DataError(
                "All labelled rows of a batch have weight zero; drop such rows, or raise the "
                "solver's batch_size."
            )
        parts, weights = [X], [weight]
        y = self.targets.encode(codes)
        known = numbers if self.columns is None else self.columns[0][numbers]
        rows: list[AnyArray] = [known]
        if unlabelled is not None:
            w = _weights(unlabelled)
            keep = np.flatnonzero(w > 0)
            if len(keep):
                parts.append(unlabelled.X[keep])
                weights.append(w[keep])
                others = unlabelled.rows[keep]
                if self.columns is None:
                    rows.append(_MOST_ROWS + others)
                else:
                    rows.append(self.columns[1][others])
                y = np.concatenate([y, np.zeros((len(keep), y.shape[1]), y.dtype)])
        total = sum(len(w) for w in weights)
        share = total / len(weights)
        return TrainBatch(
            stacked(parts),
            y,
            np.concatenate([w * (share / w.sum()) for w in weights]),
            np.concatenate(rows),
        )

    def whole(self, held: IntArray) -> TrainBatch:
        """Return all rows, but for labelled rows `held`, as one batch."""
        kept = np.setdiff1d(np.arange(self.n_labelled), held)
        others = None
        if self.unlabelled is not None:
            marked = np.empty(0, np.int64) if self.marked is None else self.marked
            others = self.unlabelled.take(
                np.setdiff1d(np.arange(self.unlabelled.n_rows), marked)
            )
        return self.join(self.labelled.take(kept), others)

    def pairs(
        self, size: int, seed: int, start: int, held: IntArray
    ) -> Iterator[tuple[TrainBatch, float]]:
        """Yield batches of at most `size` rows of either kind, drawn independently, for ever.

        An epoch is a pass over the unlabelled rows, or over the labelled ones where there are
        no others. Few labelled rows are all in every batch.
        """
        if self.n_labelled - len(held) <= size and self.n_unlabelled <= size:
            batch = self.whole(held)
            yield from ((batch, float(t)) for t in count(start + 1))
        labelled = sample_batches(self.labelled, size, seed=seed, start=start, exclude=held)
        if self.unlabelled is None or self.n_unlabelled == 0:
            for item in labelled:
                yield self.join(item.batch, None), item.fraction
        else:
            others = sample_batches(
                self.unlabelled, size, seed=seed + 1, start=start, exclude=self.marked
            )
            for one, other in zip(labelled, others, strict=False):
                yield self.join(one.batch, other.batch), other.fraction


def _weights(batch: Batch) -> Float64Array:
    if batch.sample_weight is None:
        return np.ones(batch.X.shape[0])
    return np.asarray(batch.sample_weight, np.float64)
