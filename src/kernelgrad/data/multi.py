"""Concatenation of several sources with the same columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from threading import RLock
from typing import Any

import numpy as np

from kernelgrad.data.arrays import ArraySource
from kernelgrad.data.base import Batch, BatchSource, NoRows, concat_batches
from kernelgrad.data.columns import ColumnSource
from kernelgrad.data.files import DataFile
from kernelgrad.data.paged import PagedSource
from kernelgrad.exceptions import DataError
from kernelgrad.types import AnyArray, IntArray


class MultiSource(PagedSource):
    """The concatenated rows of several sources.

    Different types of numbers are converted to a common type that holds all values. A column
    must not mix text and numbers.

    Parameters
    ----------
    parts : sequence of BatchSource
        The sources, of one class and with the same columns.
    names : sequence of str
        Their names in messages, such as paths.

    Raises
    ------
    DataError
        A source differs in columns, types, target, weights or sparsity; the message names it.
    """

    def __init__(self, parts: Sequence[BatchSource], names: Sequence[str]) -> None:
        self._parts, self._names = list(parts), list(names)
        first = self._parts[0]
        for name, part in zip(names, parts, strict=True):
            for what in ("is_sparse", "has_target", "has_weight", "as_frame"):
                if getattr(part, what) != getattr(first, what):
                    raise DataError(
                        f"{name} and {names[0]} differ in {what}: {getattr(part, what)} and "
                        f"{getattr(first, what)}; write them alike, or give one of them."
                    )
        type(first).agree(self._parts)
        for name, part in zip(names, parts, strict=True):
            if part.n_features != first.n_features:
                raise DataError(
                    f"{name} has {part.n_features} features, but {names[0]} has "
                    f"{first.n_features}; give files of the same columns."
                )
        self._like(first)
        self.seekable = all(part.seekable for part in parts)
        self.reading_bytes = max(part.reading_bytes for part in parts)
        self.kept_bytes = max(part.kept_bytes for part in parts)
        counts = [part.n_rows for part in parts]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.n_rows = int(self._starts[-1])
        self._lock = RLock()
        self._share()

    def _share(self) -> None:
        """Make all files share one pool of decoded data, whatever their number."""
        for part in self._parts:
            if isinstance(part, PagedSource):
                part._pool = self.pool

    def digest(self) -> bytes:
        """Return a digest of all sources."""
        return b"".join(part.digest() for part in self._parts)

    def block_starts(self) -> IntArray | None:
        """Return the first rows of the blocks of all sources, if there are any."""
        starts = [part.block_starts() for part in self._parts]
        if all(start is None for start in starts):
            return None
        return np.concatenate(
            [
                at + (np.zeros(1, np.int64) if start is None else start)
                for at, start in zip(self._starts, starts, strict=False)
            ]
        )

    def target_chunks(self) -> Iterator[AnyArray]:
        """Yield the targets in order."""
        self._require_target()
        for part in self._parts:
            yield from part.target_chunks()

    def _rows(self, start: int, stop: int) -> Batch:
        first = int(np.searchsorted(self._starts[1:-1], start, side="right"))
        last = max(int(np.searchsorted(self._starts, stop)), first + 1)
        return concat_batches([self._piece(i, start, stop) for i in range(first, last)])

    def _piece(self, i: int, start: int, stop: int) -> Batch:
        """Return the rows of one source that lie in a range."""
        at, part = int(self._starts[i]), self._parts[i]
        try:
            batch = part.read(max(start - at, 0), min(stop - at, part.n_rows))
        except DataError as error:
            if self._names[i] in str(error):
                raise
            raise DataError(f"{self._names[i]}: {error}") from None
        return batch._replace(rows=batch.rows + at)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_parts": [copy(part) for part in self._parts]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()


def joined(
    files: Sequence[DataFile],
    opened: Callable[[DataFile, Sequence[str] | None], BatchSource],
    feature_names: Sequence[str] | None,
) -> BatchSource:
    """Return one source of all files; files without rows are left out.

    `opened` takes a file and the names of its features. By default these are the names in the
    first file.
    """
    parts: list[BatchSource] = []
    names: list[str] = []
    for file in files:
        try:
            part = opened(file, parts[0].feature_names if parts else feature_names)
        except NoRows:
            if len(files) == 1:
                raise
            continue
        parts.append(part)
        names.append(str(file.path))
        first = parts[0]
        if isinstance(part, ColumnSource) and isinstance(first, ColumnSource):
            more = sorted(part.columns - first.columns)
            if more and feature_names is None:
                raise DataError(
                    f"{file.path} has columns that {names[0]} lacks: "
                    f"{', '.join(map(repr, more[:10]))}; write them to all files, or name the "
                    "features (feature_names=)."
                )
    if not parts:
        raise NoRows(f"None of {len(files)} files such as {files[0].path} has a data row.")
    if len(parts) == 1:
        return parts[0]
    source = MultiSource(parts, names)
    if not all(part.in_memory for part in parts):
        return source
    X, y, w, _ = source.read(0, source.n_rows)
    return ArraySource(X, y, w, source.feature_names)
