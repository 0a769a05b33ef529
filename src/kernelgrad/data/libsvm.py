"""Files in LIBSVM (svmlight) format."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from kernelgrad.data.base import Batch, count_targets, numbers, summarize
from kernelgrad.data.paged import TextSource
from kernelgrad.exceptions import DataError
from kernelgrad.types import AnyArray, Matrix
from kernelgrad.validation import check_int

MAX_INDEX = 10_000_000
"""The largest index of a feature where nobody says how many there are."""


class LibsvmSource(TextSource):
    """A LIBSVM file: plain, `.gz`, `.bz2` or `.zst`.

    Opening the file parses it once, which checks every line and determines the number of
    features. Comments and ``qid`` are ignored.

    Parameters
    ----------
    path : path
        The file.
    n_features : int, optional
        Number of features. By default it is the largest index, which may be at most
        10,000,000, so that a corrupt index does not allocate too much memory.
    zero_based : bool or "auto", default="auto"
        Whether indices count from 0. ``"auto"`` assumes that they count from 1 unless index 0
        occurs in the file.
    """

    is_sparse = True
    has_target = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        n_features: int | None = None,
        zero_based: bool | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(Path(path))
        if zero_based not in (True, False, "auto"):
            raise ValueError(f"zero_based must be True, False or 'auto', got {zero_based!r}.")
        if n_features is not None:
            n_features = check_int(n_features, "n_features", low=1)
        self._shift = 0
        self.n_features = 0
        self._largest = MAX_INDEX if n_features is None else n_features
        self._lowest, self._highest = (1, 0), (-1, 0)  # feature index, row
        self.counts = count_targets(self._first_pass())
        self._summary = summarize(self.counts)
        self._settle(n_features, zero_based)

    def _settle(self, n_features: int | None, zero_based: bool | Literal["auto"]) -> None:
        """Set the base of indices and the number of features."""
        lowest, zero_row = self._lowest
        highest, highest_row = self._highest
        if zero_based is False and lowest == 0:
            raise DataError(
                f"{self._path} has feature index 0 in row {zero_row} (rows count from 0), but "
                "zero_based=False; use zero_based=True."
            )
        self._shift = 0 if zero_based is True or (zero_based == "auto" and lowest == 0) else 1
        found = max(highest + 1 - self._shift, 0)
        if n_features is not None and found > n_features:
            raise DataError(
                f"{self._path} has feature index {highest} in row {highest_row} (rows count "
                f"from 0), beyond the {n_features} features expected; give a larger "
                "n_features, or the file the model was made for."
            )
        if n_features is None and found == 0:
            raise DataError(f"{self._path} has no feature at all; give n_features.")
        self.n_features = found if n_features is None else n_features
        self._given = n_features

    @classmethod
    def agree(cls, parts: Sequence[Any]) -> None:
        """Make the sources of several files use the same base and number of features."""
        zero_based = any(part._lowest[0] == 0 for part in parts)
        for part in parts:
            part._settle(part._given, zero_based)
        n_features = max(part.n_features for part in parts)
        for part in parts:
            part.n_features = n_features

    def _first_pass(self) -> Iterator[AnyArray]:
        for X, y, _, rows in self._index(self._decode):
            if X.nnz:
                high, low = int(np.argmax(X.indices)), int(np.argmin(X.indices))
                if X.indices[high] > self._highest[0]:
                    self._highest = int(X.indices[high]), int(rows[_row_of(X, high)])
                if X.indices[low] < self._lowest[0]:
                    self._lowest = int(X.indices[low]), int(rows[_row_of(X, low)])
            assert y is not None
            yield y

    def _parse(self, raw: bytes, line: int, first_row: int) -> Batch:
        batch = self._decode(raw, line, first_row)
        X, d = batch.X, self.n_features
        columns = X.indices - self._shift
        if X.nnz and not 0 <= columns.min() <= columns.max() < d:
            raise self._stamp.changed()
        return batch._replace(X=sp.csr_matrix((X.data, columns, X.indptr), (X.shape[0], d)))

    def _decode(self, raw: bytes, line: int, first_row: int) -> Batch:
        try:
            X, y = self._load_lines(raw)
        except (ValueError, OverflowError) as error:
            raise self._bad_line(raw, line, error) from None
        return Batch(X, y, None, numbers(first_row, len(y)))

    def _load_lines(self, raw: bytes) -> tuple[Matrix, AnyArray]:
        from sklearn.datasets import load_svmlight_file  # imports pandas, so only when needed

        X, y = load_svmlight_file(BytesIO(raw), zero_based=True)
        if X.nnz and X.indices.max() > self._largest:
            expected = "features that are expected"
            if self._largest == MAX_INDEX:
                expected = "features that a file may have without n_features="
            raise ValueError(
                f"feature index {X.indices.max()} is beyond the {self._largest} {expected}"
            )
        return X, y

    def _bad_line(self, raw: bytes, line: int, error: Exception) -> DataError:
        for i, text in enumerate(raw.split(b"\n")):
            try:
                self._load_lines(text)
            except (ValueError, OverflowError) as found:
                shown = text[:60].decode(errors="replace")
                return DataError(
                    f"{self._path}: line {line + i} is not in LIBSVM format ({found}): "
                    f"{shown!r}; correct or delete it."
                )
        return DataError(f"{self._path}: bad page at line {line} ({error}); correct it.")


def _row_of(X: Matrix, position: int) -> int:
    return int(np.searchsorted(X.indptr, position, side="right")) - 1
