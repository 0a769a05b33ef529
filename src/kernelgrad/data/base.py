"""The interface between data in memory or on disk and the code that trains on them."""

from __future__ import annotations

import hashlib
import operator
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, cast

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute.linalg import rows_bytes, stacked
from kernelgrad.exceptions import DataError
from kernelgrad.types import AnyArray, Float64Array, IntArray, Matrix
from kernelgrad.validation import check_int

T = TypeVar("T")
MAX_CLASSES = 1000  # more distinct values of a target are not counted
_FEW = 4096  # values whose own check is faster than that of their sum


class Batch(NamedTuple):
    """Some rows of a source."""

    X: Matrix
    """Features (b, d): an array, CSR matrix or Arrow table in the dtype they are stored in."""
    y: AnyArray | None
    """Targets (b,) or (b, k): numbers, or labels of dtype object or str."""
    sample_weight: Float64Array | None
    """Weights (b,)."""
    rows: IntArray
    """The row numbers in the source (b,), counted from 0."""


@dataclass(frozen=True)
class TargetSummary:
    """Summary of the targets from one pass over them."""

    n_rows: int
    kind: Literal["integer", "float", "string"]
    """Type of the targets; booleans count as integers."""
    classes: AnyArray | None
    """The sorted distinct values; None for several columns or more than 1000 values."""
    counts: IntArray | None
    """Number of rows of each class."""

    def infer_task(self) -> Literal["classification", "regression"]:
        """Guess the task.

        Strings are class labels. Integers, and floats that are all integral, are class labels
        if they have at most 20 distinct values. Everything else is regression.
        """
        if self.kind == "string":
            return "classification"
        if self.classes is None or len(self.classes) > 20:
            return "regression"
        integral = self.kind == "integer" or np.all(self.classes == np.round(self.classes))
        return "classification" if integral else "regression"


class BatchSource(ABC):
    """Base class of data sources, whose rows can be read piece by piece.

    Subclasses set the attributes and implement `read`. It should pass its result through
    `check_batch`, and so should `take` if it is overridden.
    """

    n_rows: int
    n_features: int
    feature_names: list[str] | None = None
    is_sparse: bool = False
    """Whether batches hold CSR matrices."""
    has_target: bool = False
    has_weight: bool = False
    as_frame: bool = False
    """Whether batches hold Arrow tables, which estimators encode, instead of numbers."""
    in_memory: bool = False
    """Whether `take` is cheap for arbitrary rows."""
    on_workers: ClassVar[bool] = False  # whether the workers of a cluster have the rows
    reading_bytes: float = 0.0
    """Approximate memory that reading takes besides the rows themselves."""
    kept_bytes: float = 0.0
    """The part of `reading_bytes` that is held between two reads."""
    _summary: TargetSummary | None = None

    @abstractmethod
    def read(self, start: int, stop: int) -> Batch:
        """Return rows `start` (included) to `stop` (excluded).

        The arrays may be views of the data and must not be modified.
        """

    @cached_property
    def nbytes(self) -> float:
        """Approximate bytes of the rows in memory."""
        X: Any = self.read(0, min(self.n_rows, 1000)).X
        return float(self.n_rows * rows_bytes(X) / max(1, X.shape[0]))

    def block_starts(self) -> IntArray | None:
        """Return the first rows of the units that are decoded as a whole; None without units.

        Random sampling reads each unit in order, so that it is decoded once per epoch.
        """
        return None

    def digest(self) -> bytes:
        """Return a digest of shape, names and first rows, which a resumed fit compares."""
        first = self.read(0, min(self.n_rows, 8192))
        shape = self.n_rows, self.n_features, self.feature_names
        digest = hashlib.blake2b(repr(shape).encode(), digest_size=16)
        for part in (first.X.data if sp.issparse(first.X) else first.X, *first[1:3]):
            if isinstance(part, np.ndarray):
                feed(digest, part)
        return digest.digest()

    def _like(self, source: BatchSource) -> None:
        names = "n_rows n_features feature_names is_sparse has_target has_weight as_frame"
        for name in names.split():
            setattr(self, name, getattr(source, name))

    def take(self, rows: IntArray) -> Batch:
        """Return the given rows in the given order.

        Neighbouring rows are fetched by one read. Each unit of :meth:`block_starts` is read at
        most once, in pieces of 65,536 rows.
        """
        rows = check_rows(rows, self.n_rows)
        if len(rows) == 0:
            return self.read(0, 0)
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        starts = self.block_starts()
        if starts is None:  # a read spans at most 8192 rows, and gaps of at most 256
            cut = (np.diff(ordered) > 256) | (np.diff(ordered // 8192) > 0)
        else:
            unit = np.searchsorted(starts, ordered, side="right") - 1
            cut = (np.diff(unit) > 0) | (np.diff((ordered - starts[unit]) // 65536) > 0)
        parts = [
            index_batch(self.read(int(run[0]), int(run[-1]) + 1), run - run[0])
            for run in np.split(ordered, np.flatnonzero(cut) + 1)
        ]
        taken = concat_batches(parts)
        if np.all(order[1:] > order[:-1]):  # no copy where rows were in this order
            return taken
        return index_batch(taken, np.argsort(order))

    def chunks(self, chunk_rows: int = 65536, *, prefetch: bool = False) -> Iterator[Batch]:
        """Yield rows in the order of storage, `chunk_rows` at a time.

        With `prefetch` a thread reads the next chunk, from a copy of the source, while the
        current one is used.
        """
        step, n = check_int(chunk_rows, "chunk_rows", low=1), self.n_rows
        source = copy(self) if prefetch else self
        chunks = (source.read(a, min(a + step, n)) for a in range(0, n, step))
        return prefetched(chunks) if prefetch else chunks

    def map_chunks(self, function: Callable[[Batch], Any]) -> Iterator[Any]:
        """Yield the results of a function for each chunk in order, run where the data are."""
        return map(function, self.chunks(prefetch=not self.in_memory))

    def target_chunks(self) -> Iterator[AnyArray]:
        """Yield the targets in order; only the targets are read if the format allows it."""
        self._require_target()
        for batch in self.chunks():
            assert batch.y is not None
            yield batch.y

    def summarize_target(self) -> TargetSummary:
        """Return the kind, the classes and the counts of the target; cached."""
        if self._summary is None:
            self._require_target()
            self._summary = summarize(self._counts())
        return self._summary

    def _counts(self) -> Counts:
        return count_targets(self.target_chunks())

    def _require_target(self) -> None:
        if not self.has_target:
            raise DataError("The data has no target; name the target column with target=.")


def prefetched(items: Iterable[T]) -> Iterator[T]:
    """Yield items, each produced by a thread while the previous one is used.

    An error in `items`, which only the thread uses, is raised in place of its item. The thread
    ends after the last item, and when the iterator is closed or garbage-collected.
    """
    iterator, end = iter(items), cast(T, object())
    close: Any = getattr(iterator, "close", lambda: None)  # generators have it
    with ThreadPoolExecutor(1, "kernelgrad-prefetch") as thread:
        try:
            ready = thread.submit(next, iterator, end)
            while (item := ready.result()) is not end:
                ready = thread.submit(next, iterator, end)
                yield item
        finally:
            thread.submit(close)


class NoRows(DataError):  # noqa: N818
    """A file without rows, which is left out among others."""


def n_places(n_features: int) -> int:
    """Return the number of places in files from which rows are read in turn, 4 to 16.

    An open Parquet file takes about 2 MiB for each column, for a page and a dictionary.
    """
    return min(16, max(4, 128 // max(1, n_features)))


class Counts(NamedTuple):
    """Number of targets, their dtypes, and the number of occurrences of each value."""

    n_rows: int
    dtypes: frozenset[np.dtype[Any]]
    values: Counter[Any] | None  # None for too many values or several columns

    def plus(self, other: Counts) -> Counts:
        values = None
        if self.values is not None and other.values is not None:
            values = self.values + other.values
            values = None if len(values) > MAX_CLASSES else values
        return Counts(self.n_rows + other.n_rows, self.dtypes | other.dtypes, values)


def count_targets(parts: Iterable[AnyArray]) -> Counts:
    total = Counts(0, frozenset(), Counter())
    for y in parts:
        counted = y.ndim == 1 and total.values is not None
        values = Counter(y.tolist()) if counted else None
        total = total.plus(Counts(len(y), frozenset({y.dtype}), values))
    return total


def summarize(counts: Counts) -> TargetSummary:
    n_rows, dtypes, values = counts
    if not dtypes:
        raise DataError("The data has no rows, so it has no target; give at least one row.")
    dtype = np.result_type(*dtypes)
    kind: Literal["integer", "float", "string"] = (
        "string" if dtype.kind in "OUS" else "float" if dtype.kind == "f" else "integer"
    )
    if values is None:
        return TargetSummary(n_rows, kind, None, None)
    try:
        labels = sorted(values)
    except TypeError:
        types = ", ".join(sorted({type(v).__name__ for v in values}))
        raise DataError(
            f"The target mixes labels of types {types}; convert them all to one type."
        ) from None
    classes = np.array(labels, dtype=None if dtype.kind in "US" else dtype)
    sizes = np.array([values[v] for v in labels], dtype=np.int64)
    return TargetSummary(n_rows, kind, classes, sizes)


def check_rows(rows: Any, n_rows: int) -> IntArray:
    """Return row numbers as int64 after checking that they lie in [0, n_rows)."""
    rows = np.asarray(rows)
    if rows.ndim != 1 or (rows.dtype.kind not in "iu" and rows.size):
        raise TypeError(
            f"rows must be a one-dimensional array of integers, got dtype {rows.dtype} "
            f"and shape {rows.shape}."
        )
    out: IntArray = rows.astype(np.int64, copy=False)
    bad = (out < 0) | (out >= n_rows)
    if bad.any():
        raise ValueError(
            f"Row {int(out[np.argmax(bad)])} does not exist; rows go from 0 to {n_rows - 1}."
        )
    return out


def check_row_range(start: int, stop: int, n_rows: int) -> tuple[int, int]:
    """Return `start` and `stop` after checking that 0 <= start <= stop <= n_rows."""
    start, stop = operator.index(start), operator.index(stop)
    if not 0 <= start <= stop <= n_rows:
        raise ValueError(
            f"Rows [{start}, {stop}) do not exist; give 0 <= start <= stop <= {n_rows}."
        )
    return start, stop


def index_batch(batch: Batch, index: IntArray | slice) -> Batch:
    X: Any = batch.X
    if not is_frame(X):
        X = X[index]
    elif isinstance(index, slice):
        X = X.slice(index.start, index.stop - index.start)
    else:
        X = X.take(index)
    y, w = (None if part is None else part[index] for part in batch[1:3])
    return Batch(X, y, w, batch.rows[index])


def concat_batches(parts: Sequence[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    X, *others = zip(*parts, strict=True)
    y, w, rows = (None if part[0] is None else np.concatenate(part) for part in others)
    assert rows is not None
    return Batch(stack_rows(list(X)), y, w, rows)


def bytes_needed(n_rows: int, row_bytes: float, n_outputs: int = 1) -> float:
    """Return the bytes of rows in memory, a copy of them and their responses (n, C)."""
    return 2.0 * row_bytes + 72.0 * n_rows * n_outputs  # responses, steps and coefficients


def is_collection(X: Any) -> bool:
    """Return whether X is an array, frame or series of dask, without importing dask."""
    package = type(X).__module__.partition(".")[0]
    return package in ("dask", "dask_expr") and hasattr(X, "to_delayed")


def is_frame(X: Any) -> bool:
    """Return whether rows are an Arrow table, as from sources with ``as_frame=True``."""
    return hasattr(X, "column_names")


def stack_rows(parts: list[Any]) -> Any:
    """Return the concatenated rows of arrays, of CSR matrices or of Arrow tables."""
    if is_frame(parts[0]):
        import pyarrow as pa

        return pa.concat_tables(parts, promote_options="permissive")
    return stacked(parts)


def check_batch(batch: Batch, feature_names: Sequence[str] | None = None) -> Batch:
    """Return `batch` if all its numbers are finite and its weights nonnegative, or raise."""
    X: Any = batch.X
    if not is_frame(X) and not all_finite(X.data if sp.issparse(X) else X):
        row, col, value = _first_bad(X)
        name = col if feature_names is None else repr(feature_names[col])
        raise DataError(
            f"Feature column {name} is {value} in row {batch.rows[row]} (rows count from 0); "
            "impute missing and infinite values, or drop the row or the column."
        )
    y = batch.y
    if y is not None and (missing := missing_targets(y)).any():
        row = int(np.argmax(missing))
        raise DataError(
            f"The target is missing or not finite in row {batch.rows[row]} (rows count from "
            f"0): {y[row]!r}; drop the row or fill in its target."
        )
    w = batch.sample_weight
    if w is not None and not (ok := np.isfinite(w) & (w >= 0)).all():
        row = int(np.argmin(ok))
        raise DataError(
            f"The sample weight is {w[row]} in row {batch.rows[row]} (rows count from 0); "
            "weights must be finite and not negative: correct it or drop the row."
        )
    return batch


def checked_targets(y: AnyArray, first_row: int) -> AnyArray:
    """Return the targets of rows from `first_row` on after checking that none is missing."""
    check_batch(Batch(np.empty((len(y), 0)), y, None, np.arange(first_row, first_row + len(y))))
    return y


def feed(digest: Any, values: AnyArray) -> None:
    """Update a digest with the values of an array; objects are converted to text."""
    plain = values.astype(str) if values.dtype.kind == "O" else values
    digest.update(np.ascontiguousarray(plain).reshape(-1).view(np.uint8).data)


def distinct_text(y: AnyArray) -> set[str] | None:
    """Return the distinct objects of an array; None if some are no text."""
    try:
        values = set(y.ravel().tolist())
    except TypeError:  # some have no hash
        return None
    return values if all(type(value) is str for value in values) else None


def missing_targets(y: AnyArray) -> AnyArray:
    """Return a mask of the rows whose target is missing or not finite."""
    if y.dtype.kind == "O":
        if distinct_text(y) is not None:
            return np.zeros(len(y), dtype=bool)
        values = [v is None or v is np.ma.masked or bool(v != v) for v in y.ravel()]
        missing = np.array(values, dtype=bool)
    elif y.dtype.kind == "f":
        missing = ~np.isfinite(y)
    else:
        return np.zeros(len(y), dtype=bool)
    missing = missing.reshape(y.shape)
    return missing if y.ndim == 1 else np.asarray(missing.any(axis=1))


def all_finite(values: AnyArray) -> bool:
    if values.dtype.kind != "f":
        return True
    if values.size < _FEW:
        return bool(np.isfinite(values).all())
    with np.errstate(all="ignore"):  # a finite sum proves that every term is finite
        total = values.sum()
    return bool(np.isfinite(total)) or bool(np.isfinite(values).all())


def _first_bad(X: Matrix) -> tuple[int, int, float]:
    if sp.issparse(X):
        X = X.tocoo()
        at = int(np.argmax(~np.isfinite(X.data)))
        return int(X.row[at]), int(X.col[at]), float(X.data[at])
    row, col = np.argwhere(~np.isfinite(X))[0].tolist()
    return row, col, float(X[row, col])
