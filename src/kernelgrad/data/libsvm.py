"""Files in LIBSVM (svmlight) format."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad.data.base import Batch, stack_rows
from kernelgrad.data.paged import import_pyarrow
from kernelgrad.data.text import TextSource
from kernelgrad.exceptions import DataError
from kernelgrad.types import AnyArray, Matrix
from kernelgrad.validation import check_int

MAX_INDEX = 10_000_000
"""The most features of a file for which no number is given."""

_LARGEST = 2**31 - 1


class LibsvmSource(TextSource):
    """A LIBSVM file: plain, `.gz`, `.bz2` or `.zst`.

    The first opening checks every line. Comments and ``qid`` are ignored. Indices count from 1
    unless index 0 occurs.
    By default `n_features` is the largest index, which may be at most 10,000,000, so that a
    corrupt index does not allocate too much memory.
    """

    is_sparse = True
    has_target = True

    def __init__(self, path: str | os.PathLike[str], *, n_features: int | None = None) -> None:
        super().__init__(Path(path))
        if n_features is not None:
            n_features = check_int(n_features, "n_features", low=1)
        self._columns = ["y", "indices", "values"]
        self._target = "y"
        self._expected = n_features
        with self._stamp.unchanged():
            self._set_bounds()
            self._settle(self._lowest)
            self._check_rows()

    def _set_bounds(self) -> None:
        """Set the lowest index of a feature, and the highest with the negated row of it."""
        self._lowest, self._highest = 1, (-1, 0)
        for first_row, table in self._open_rows("indices"):
            lists = table.column(0).combine_chunks()
            indices = np.asarray(lists.flatten())
            if len(indices):
                self._lowest = min(self._lowest, int(indices.min()))
                at, ends = int(np.argmax(indices)), np.cumsum(lists.value_lengths())
                row = first_row + int(np.searchsorted(ends, at, side="right"))
                self._highest = max(self._highest, (int(indices[at]), -row))

    def _settle(self, lowest: int) -> None:
        """Set the base of indices and the number of features, given the lowest index."""
        highest, minus_row = self._highest
        self._shift = min(lowest, 1)
        n_used = max(highest + 1 - self._shift, 0)
        if n_used > (self._expected or MAX_INDEX):
            limit = f"{self._expected} features expected"
            if self._expected is None:
                limit = f"{MAX_INDEX:,} features that a file may have without n_features="
            raise DataError(
                f"{self._path} has feature index {highest} in row {-minus_row} (rows count "
                f"from 0), beyond the {limit}; correct the file or give a larger n_features."
            )
        self.n_features = n_used if self._expected is None else self._expected
        if self.n_features == 0:
            raise DataError(f"{self._path} has no feature at all; give n_features.")

    @classmethod
    def agree(cls, parts: Sequence[Any]) -> None:
        lowest = min(part._lowest for part in parts)
        for part in parts:
            part._settle(lowest)
        n_features = max(part.n_features for part in parts)
        for part in parts:
            part.n_features = n_features

    def _convert(self) -> Iterator[Any]:
        pa = import_pyarrow()
        kinds = [pa.float64(), pa.list_(pa.int32()), pa.list_(pa.float64())]
        schema = pa.schema(list(zip(self._columns, kinds, strict=True)))
        for raw, line in self._pages():
            try:
                X, y = _load_lines(raw)
            except (ValueError, OverflowError) as error:
                raise self._bad_line(raw, line, error) from None
            offsets = X.indptr.astype(np.int32)
            parts = (X.indices.astype(np.int32), X.data)
            lists = [pa.ListArray.from_arrays(offsets, part) for part in parts]
            yield pa.table([pa.array(y), *lists], schema=schema)

    def _batch(self, tables: Iterable[Any], first_row: int, n: int) -> Batch:
        parts = [(_matrix(table), self._labels(table, 0)) for table in tables]
        X, y = stack_rows([X for X, _ in parts]), np.concatenate([y for _, y in parts])
        columns = X.indices - self._shift
        if X.nnz and not 0 <= columns.min() <= columns.max() < self.n_features:
            raise self._stamp.changed()
        X = sp.csr_matrix((X.data, columns, X.indptr), (n, self.n_features))
        return Batch(X, y, None, np.arange(first_row, first_row + n))

    def _labels(self, table: Any, first_row: int) -> AnyArray:
        return np.array(table.column("y"))

    def _bad_line(self, raw: bytes, line: int, error: Exception) -> DataError:
        for i, text in enumerate(raw.split(b"\n"), line):
            try:
                _load_lines(text)
            except (ValueError, OverflowError) as wrong:
                shown = text[:60].decode(errors="replace")
                return DataError(
                    f"{self._path}: line {i} is not in LIBSVM format ({wrong}): {shown!r}; "
                    "correct or delete it."
                )
        return DataError(f"{self._path}: bad page at line {line} ({error}); correct it.")


def _load_lines(raw: bytes) -> tuple[Matrix, AnyArray]:
    from sklearn.datasets import load_svmlight_file  # imports pandas, so only when needed

    X, y = load_svmlight_file(BytesIO(raw), zero_based=True)
    if X.nnz and X.indices.max() >= _LARGEST:
        raise ValueError(f"feature index {X.indices.max()} is beyond {_LARGEST}")
    return X, y


def _matrix(table: Any) -> Matrix:
    """Return the rows of a table as a CSR matrix, with as many columns as an index allows."""
    indices, values = (table.column(i).combine_chunks() for i in (1, 2))
    indptr = np.asarray(indices.offsets) if len(indices) else np.zeros(1, np.int32)
    parts = np.array(values.flatten()), np.array(indices.flatten()), indptr - indptr[0]
    return sp.csr_matrix(parts, (table.num_rows, _LARGEST))
