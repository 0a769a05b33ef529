"""Sources that are decoded one unit (row group, page of lines) at a time."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

import numpy as np

from kernelgrad._typing import AnyArray, IntArray
from kernelgrad._validation import DataError
from kernelgrad.data.base import (
    Batch,
    BatchSource,
    check_batch,
    check_range,
    concat_batches,
    index_batch,
)


class PagedSource(BatchSource):
    """A source made of units; the unit decoded last is kept.

    Subclasses set `_path`, and `_starts`, the first row of every unit followed by the
    number of rows, and implement `_load`.
    """

    _path: Path
    _starts: IntArray
    _cached: tuple[int, Batch] | None = None

    @abstractmethod
    def _load(self, unit: int) -> Batch:
        """Decode one unit."""

    def block_starts(self) -> IntArray:
        """Return the first row of every unit that has rows."""
        return np.unique(self._starts[:-1][np.diff(self._starts) > 0])

    def read(self, start: int, stop: int) -> Batch:
        """Return rows `start` (included) to `stop` (excluded)."""
        start, stop = check_range(start, stop, self.n_rows)
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        first = min(first, int(np.searchsorted(self._starts, self.n_rows)) - 1)
        parts: list[Batch] = []
        for unit in range(first, len(self._starts) - 1):
            low, high = int(self._starts[unit]), int(self._starts[unit + 1])
            if parts and low >= stop:
                break
            if high > low:
                piece = slice(max(start - low, 0), max(min(stop, high) - low, 0))
                parts.append(index_batch(self._unit(unit), piece))
        return concat_batches(parts)

    def _unit(self, unit: int) -> Batch:
        if self._cached is None or self._cached[0] != unit:
            self._cached = None  # never two decoded units at once
            self._cached = unit, self._checked(self._load(unit))
        return self._cached[1]

    def _checked(self, batch: Batch) -> Batch:
        try:
            return check_batch(batch, self.feature_names)
        except DataError as error:
            raise DataError(f"{self._path}: {error}") from None

    def _checked_target(self, y: AnyArray, first_row: int) -> AnyArray:
        rows = np.arange(first_row, first_row + len(y), dtype=np.int64)
        self._checked(Batch(np.empty((len(y), 0)), y, None, rows))
        return y
