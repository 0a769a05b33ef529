"""Arrays, memory maps and sparse matrices as sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad._typing import AnyArray, Float64Array, IntArray, Matrix
from kernelgrad.data.base import Batch, BatchSource, check_batch, check_range, check_rows
from kernelgrad.exceptions import DataError


class ArraySource(BatchSource):
    """Data that is already an array.

    Parameters
    ----------
    X : ndarray, memmap or sparse matrix of shape (n, d)
        Features; never copied, except that sparse formats other than CSR are converted.
        A memory map is read page by page, as files are.
    y : array of shape (n,) or (n, k), optional
        Targets.
    sample_weight : array of shape (n,), optional
        Weights.
    feature_names : sequence of str, optional
        Column names.
    checked : bool, default=False
        Whether the values are known to be finite, so that batches need no check.
    """

    def __init__(
        self,
        X: Matrix,
        y: Any = None,
        sample_weight: Any = None,
        feature_names: Sequence[str] | None = None,
        *,
        checked: bool = False,
    ) -> None:
        self.is_sparse = bool(sp.issparse(X))
        self.in_memory = not isinstance(X, np.memmap)
        X = X.tocsr() if self.is_sparse else np.asarray(X)
        if X.ndim != 2:
            raise ValueError(
                f"X must have two dimensions, got shape {X.shape}; use X.reshape(-1, 1) for "
                "a single feature."
            )
        if X.dtype.kind not in "biuf":
            raise TypeError(f"X must be numeric, got dtype {X.dtype}; encode it as numbers.")
        self.n_rows, self.n_features = int(X.shape[0]), int(X.shape[1])
        if self.n_rows == 0 or self.n_features == 0:
            raise DataError(
                f"X has shape {X.shape}; give at least one row and one feature column."
            )
        if X.dtype.kind == "b":
            X = X.astype(np.uint8) if self.is_sparse else X.view(np.uint8)
        self._X = X
        self._y = None if y is None else np.asarray(y)
        if self._y is not None:
            if self._y.ndim not in (1, 2) or len(self._y) != self.n_rows:
                raise ValueError(
                    f"y has shape {self._y.shape} but X has {self.n_rows} rows; give one "
                    "target per row."
                )
            if self._y.dtype.kind not in "biufOU":
                raise TypeError(
                    f"y must hold numbers or strings, got dtype {self._y.dtype}; convert it."
                )
        self._w = None if sample_weight is None else np.asarray(sample_weight)
        if self._w is not None and (
            self._w.shape != (self.n_rows,) or self._w.dtype.kind not in "biuf"
        ):
            raise ValueError(
                f"sample_weight has shape {self._w.shape} and dtype {self._w.dtype}; give one "
                f"number for each of the {self.n_rows} rows."
            )
        if feature_names is not None:
            self.feature_names = list(feature_names)
            if len(self.feature_names) != self.n_features:
                raise ValueError(
                    f"feature_names has {len(self.feature_names)} names but X has "
                    f"{self.n_features} columns; give one name per column."
                )
        self.has_target = self._y is not None
        self.has_weight = self._w is not None
        self._checked = checked

    @property
    def sample_weight(self) -> Float64Array:
        """The weight of every row, ones where none were given."""
        return np.ones(self.n_rows) if self._w is None else np.asarray(self._w, np.float64)

    def read(self, start: int, stop: int) -> Batch:
        """Return rows `start` (included) to `stop` (excluded)."""
        start, stop = check_range(start, stop, self.n_rows)
        return self._batch(slice(start, stop), np.arange(start, stop, dtype=np.int64))

    def take(self, rows: IntArray) -> Batch:
        """Return the given rows in the given order."""
        rows = check_rows(rows, self.n_rows)
        return self._batch(rows, rows)

    def target_chunks(self) -> Iterator[AnyArray]:
        """Yield the targets in order."""
        self._require_target()
        assert self._y is not None
        for start in range(0, self.n_rows, 65536):
            y = self._y[start : start + 65536]
            if not self._checked:
                rows = np.arange(start, start + len(y))
                check_batch(Batch(np.empty((len(y), 0)), y, None, rows))
            yield y

    def _batch(self, index: IntArray | slice, rows: IntArray) -> Batch:
        batch = Batch(
            self._X[index],
            None if self._y is None else self._y[index],
            None if self._w is None else self._w[index].astype(np.float64, copy=False),
            rows,
        )
        return batch if self._checked else check_batch(batch, self.feature_names)
