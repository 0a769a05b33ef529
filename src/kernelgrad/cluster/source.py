"""Dask collections as sources, functions of them, and rows that the workers hold."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from kernelgrad.cluster.engine import DaskEngine, DaskTeam
from kernelgrad.data import base
from kernelgrad.data.base import Batch, BatchSource, Counts, index_batch, is_collection
from kernelgrad.exceptions import DataError, KernelGradError
from kernelgrad.solvers.block_descent import shards
from kernelgrad.training_rows import EncodedSource, StoredRows, TrainingRows
from kernelgrad.types import AnyArray, IntArray

_GATHERED = 1 << 20  # number of targets gathered at once


class DaskSource(BatchSource):
    """Rows of a dask array or frame; only requested rows are transferred.

    Partitions are recomputed whenever they are read, so ``persist`` the collection first if it
    fits into the memory of the workers. Unknown lengths are computed once.

    Parameters
    ----------
    X : dask array of shape (n, d), or dask frame
        Blocks of arrays may be CSR matrices. Batches of frames are Arrow tables, which
        estimators encode.
    y, sample_weight : dask array, series or frame, or array-like, optional
        Targets and weights, partitioned in any way.
    client : distributed.Client, optional
        Client that runs the tasks; by default the scheduler configured in dask.
    """

    on_workers: ClassVar[bool] = True

    def __init__(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, client: Any = None
    ) -> None:
        if not is_collection(X) or getattr(X, "ndim", 0) != 2:
            raise ValueError(
                "X must be a dask array of two dimensions or a dask frame, got "
                f"{type(X).__name__} of {getattr(X, 'ndim', 'no')} dimensions."
            )
        self._client = client
        self.as_frame = hasattr(X, "columns")
        if self.as_frame:
            names = list(X.columns)
            if all(isinstance(name, str) for name in names):
                self.feature_names = names
            self.n_features = len(names)
        else:
            if X.dtype.kind not in "biuf":
                raise TypeError(
                    f"X must be numeric, got a dask array of dtype {X.dtype}; give a frame "
                    "for text and categories."
                )
            self.n_features = int(X.shape[1])
            self.is_sparse = sp.issparse(X._meta)
            X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        self.has_target, self.has_weight = y is not None, sample_weight is not None
        parts = [part for part in (X, y, sample_weight) if part is not None]
        columns = self._cut(parts)
        self.n_rows = columns[0].n_rows
        for name, column in zip(("y", "sample_weight"), columns[1:], strict=False):
            if column.n_rows != self.n_rows:
                raise ValueError(
                    f"{name if y is not None else 'sample_weight'} has {column.n_rows} rows, "
                    f"but X has {self.n_rows}; give one value for each row."
                )
        if self.n_rows == 0 or self.n_features == 0:
            raise DataError(
                f"X has shape {(self.n_rows, self.n_features)}; give at least one row and one "
                "feature column."
            )
        self._X = columns[0]
        self._y = columns[1] if self.has_target else None
        self._w = columns[-1] if self.has_weight else None

    def _cut(self, collections: list[Any]) -> list[_Column]:
        import dask

        columns, unknown = [], []
        for values in collections:
            if is_collection(values):
                parts = np.ravel(values.to_delayed()).tolist()
                sizes = values.chunks[0] if hasattr(values, "chunks") else (np.nan,)
                lengths = list(sizes)
                if np.isnan(sizes).any():
                    lengths = [dask.delayed(_length)(part) for part in parts]
                    unknown += lengths
            else:
                parts, lengths = [dask.delayed(np.asarray(values))], [len(values)]
            columns.append((parts, lengths))
        computed = iter(self._computed(unknown, "its partitions"))
        return [
            _Column(
                parts,
                [n if isinstance(n, int) else next(computed) for n in lengths],
                self.as_frame and i == 0,
            )
            for i, (parts, lengths) in enumerate(columns)
        ]

    def _computed(self, tasks: list[Any], what: str) -> list[Any]:
        """Return the results of delayed tasks; raise DataError if one fails."""
        import dask

        if not tasks:
            return []
        where = {} if self._client is None else {"scheduler": self._client}
        try:
            return list(dask.compute(*tasks, **where))
        except KernelGradError:
            raise
        except Exception as error:
            raise DataError(
                f"The collection cannot be read: {what} ended with {error!r}. Its source must "
                "stay readable from all workers during the fit."
            ) from error

    def read(self, start: int, stop: int) -> Batch:
        start, stop = base.check_row_range(start, stop, self.n_rows)
        [batch] = self._computed([self.delayed(start, stop)], self.label(start, stop))
        assert isinstance(batch, Batch)
        return batch

    def delayed(self, start: int, stop: int) -> Any:
        """Return a task that computes these rows as a checked batch."""
        import dask

        pieces = [
            None if column is None else column.pieces(start, stop)
            for column in (self._X, self._y, self._w)
        ]
        return dask.delayed(_batch)(*pieces, start, self.feature_names)

    def label(self, start: int, stop: int) -> str:
        first, last = self._X.span(start, stop)
        numbers = f"partition {first}" if first == last else f"partitions {first} to {last}"
        return f"{numbers} (rows {start} to {stop - 1})"

    def take(self, rows: IntArray) -> Batch:
        rows = base.check_rows(rows, self.n_rows)
        if len(rows) == 0:
            return self.read(0, 0)
        columns = [column for column in (self._X, self._y, self._w) if column is not None]
        order = np.argsort(rows, kind="stable")
        wanted = rows[order]
        tasks = [column.chosen(wanted) for column in columns]
        what = self.label(int(wanted[0]), int(wanted[-1]) + 1)
        pieces = iter(self._computed([task for group in tasks for task in group], what))
        back = np.argsort(order)
        stacked = [base.stack_rows([next(pieces) for _ in group]) for group in tasks]
        X, *rest = [part.take(back) if base.is_frame(part) else part[back] for part in stacked]
        y = rest[0] if self.has_target else None
        w = np.asarray(rest[-1], np.float64) if self.has_weight else None
        return base.check_batch(Batch(X, y, w, rows), self.feature_names)

    def block_starts(self) -> IntArray:
        return self._X.starts[:-1]

    def target_chunks(self) -> Iterator[AnyArray]:
        self._require_target()
        assert self._y is not None
        for start in range(0, self.n_rows, _GATHERED):
            stop = min(start + _GATHERED, self.n_rows)
            tasks = self._y.pieces(start, stop)
            for y in self._computed(tasks, self.label(start, stop)):
                yield base.checked_targets(y, start)
                start += len(y)

    def _counts(self) -> Counts:
        import dask

        assert self._y is not None
        parts = zip(self._y.parts, self._y.starts.tolist(), strict=False)
        tasks = [dask.delayed(_counted)(part, start) for part, start in parts]
        counts: list[Counts] = self._computed(tasks, self.label(0, self.n_rows))
        return reduce(Counts.plus, counts)

    def map_chunks(self, function: Callable[[Batch], Any]) -> Iterator[Any]:
        import dask

        delayed = dask.delayed(function)  # sent once
        spans = pairwise(self._X.starts.tolist())
        tasks = [delayed(self.delayed(a, b)) for a, b in spans if b > a]
        yield from self._computed(tasks, self.label(0, self.n_rows))


class _Column:
    """Partitions of a collection and their first rows."""

    def __init__(self, parts: list[Any], lengths: list[int], as_frame: bool) -> None:
        self.parts, self._as_frame = parts, as_frame
        self.starts: IntArray = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.n_rows = int(self.starts[-1])

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the first and the last partition that contain some of these rows."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        first = min(first, len(self.parts) - 1)  # for an empty range at the end
        return first, max(first, int(np.searchsorted(self.starts, stop, side="left")) - 1)

    def pieces(self, start: int, stop: int) -> list[Any]:
        """Return at least one task; together they compute these rows in order."""
        import dask

        first, last = self.span(start, stop)
        piece = dask.delayed(_chosen)
        return [
            piece(self.parts[i], slice(max(start - a, 0), min(stop, b) - a), self._as_frame)
            for i, a, b in self._spans(first, last)
            if b > a or first == last
        ]

    def chosen(self, rows: IntArray) -> list[Any]:
        """Return tasks that compute rows given in increasing order."""
        import dask

        first, last = self.span(int(rows[0]), int(rows[-1]) + 1)
        tasks = []
        for i, a, b in self._spans(first, last):
            low, high = np.searchsorted(rows, (a, b))
            if high > low:
                chosen = rows[low:high] - a
                tasks.append(dask.delayed(_chosen)(self.parts[i], chosen, self._as_frame))
        return tasks

    def _spans(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        for i in range(first, last + 1):
            yield i, int(self.starts[i]), int(self.starts[i + 1])


# -- tasks of workers ------------------------------------------------------------------


def _length(part: Any) -> int:
    return int(part.shape[0]) if hasattr(part, "shape") else len(part)


def _chosen(part: Any, rows: IntArray | slice, as_frame: bool) -> Any:
    """Return some rows of a partition: an Arrow table for frames, else an array or CSR."""
    part = part.iloc[rows] if hasattr(part, "iloc") else part[rows]
    if as_frame:
        import pyarrow as pa

        try:
            return pa.Table.from_pandas(part.rename(columns=str), preserve_index=False)
        except pa.ArrowException as error:
            raise DataError(
                f"A column of the frame holds values of several types ({error}); convert it to "
                "one type."
            ) from None
    if sp.issparse(part):
        return part.tocsr()
    values = np.asarray(part)
    if hasattr(part, "columns") and values.shape[1] == 1:  # targets in a frame of one column
        return values.ravel()
    return values.view(np.uint8) if values.dtype == bool else values


def _batch(
    X: list[Any], y: list[Any] | None, w: list[Any] | None, start: int, names: list[str] | None
) -> Batch:
    rows = base.stack_rows(X)
    batch = Batch(
        rows,
        None if y is None else np.concatenate(y),
        None if w is None else np.concatenate(w).astype(np.float64),
        np.arange(start, start + rows.shape[0]),
    )
    return base.check_batch(batch, names)


def _counted(part: Any, start: int) -> Counts:
    y = base.checked_targets(_chosen(part, slice(None), False), start)
    return base.count_targets([y] if len(y) else [])


def mapped(function: Callable[[Any], Any], X: Any) -> Any:
    """Return the lazy array of a function's values for each block of a collection."""
    import dask
    import dask.array as da

    example = function(_one_row(X))  # also checks the columns
    tail, dtype = example.shape[1:], example.dtype
    if not hasattr(X, "columns") and X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    parts = np.ravel(X.to_delayed())
    lengths = X.chunks[0] if hasattr(X, "chunks") else len(parts) * (np.nan,)
    sent = dask.delayed(function)
    block = dask.delayed(_block, pure=True)
    blocks = [
        da.from_delayed(block(sent, part, (tail, dtype)), (length, *tail), dtype)
        for part, length in zip(parts, lengths, strict=True)
    ]
    return da.concatenate(blocks, allow_unknown_chunksizes=True)


def _one_row(X: Any) -> Any:
    if hasattr(X, "columns"):
        return X._meta_nonempty.iloc[:1]
    row = np.ones((1, X.shape[1]), X.dtype)
    return sp.csr_matrix(row) if sp.issparse(X._meta) else row


def _block(function: Callable[[Any], Any], part: Any, like: tuple[Any, Any]) -> AnyArray:
    tail, dtype = like
    if part.shape[0] == 0:
        return np.empty((0, *tail), dtype)
    return np.asarray(function(part))


_ROWS_SHARE = 0.3  # share of the memory of all workers; more rows are read in each pass

Progress = Callable[[int, int], None]


class HeldRows(StoredRows):
    """Training rows that workers read and hold, as the shards of block descent."""

    def __init__(self, rows: TrainingRows, engine: DaskEngine) -> None:
        super().__init__(rows)
        self._engine = engine
        self.team = self._make_team

    def _make_team(self, recipe: shards.Recipe, progress: Progress | None) -> ShardTeam:
        import dask

        rows = replace(self._rows, store=None, validation_rows=None)
        below = rows.source.source if isinstance(rows.source, EncodedSource) else rows.source
        lazy = below if isinstance(below, DaskSource) else None
        if lazy is not None:  # a worker gets its piece of the collection
            rows = replace(rows, source=_holding(rows.source, None))
        keeps = lazy is not None or self._fits()
        delayed = dask.delayed(recipe), dask.delayed(rows)  # sent once
        maker = dask.delayed(_shard, pure=False)
        starts = np.arange(0, self.n_rows, shards.SHARD)
        makers, labels = [], []
        for number, a in enumerate(starts.tolist()):
            b = min(self.n_rows, a + shards.SHARD)
            first, last = self._rows.numbers(np.array([a, b - 1])).tolist()
            batch, label = None, f"rows {first} to {last}"
            if lazy is not None:
                batch, label = lazy.delayed(first, last + 1), lazy.label(first, last + 1)
            labels.append(label)
            makers.append(maker(*delayed, batch, number, a, b, keeps))
        changes, summed = shards.Shard.CHANGES, frozenset({"products"})
        team = ShardTeam(
            self._engine, makers, changes, labels, progress, summed, {"draw": _best_drawn}
        )
        team.starts, team.facts = starts, team.ask("facts")
        return team

    def _fits(self) -> bool:
        memory = self._engine.memory()
        return 2.0 * self._rows.source.nbytes <= _ROWS_SHARE * memory


class ShardTeam(DaskTeam):
    starts: Any
    facts: list[Any]


def _best_drawn(drawn: list[Any], *args: Any) -> list[Any]:
    """Return the one answer to :meth:`Shard.draw`, with these arguments, of several shards."""
    *_, width, _ = args
    return [shards.best_drawn(drawn, width)]


class _Piece(BatchSource):
    """A source of which some rows are here."""

    def __init__(self, source: BatchSource, batch: Batch | None) -> None:
        self._like(source)
        self._batch = batch

    def read(self, start: int, stop: int) -> Batch:
        assert self._batch is not None
        a = int(self._batch.rows[0])
        return index_batch(self._batch, slice(start - a, stop - a))


def _holding(source: BatchSource, batch: Batch | None) -> BatchSource:
    """Return the source as it is where only some rows, as they are below, are at hand."""
    if isinstance(source, EncodedSource):
        return EncodedSource(_holding(source.source, batch), source.encode, source.n_features)
    return _Piece(source, batch)


def _shard(
    recipe: shards.Recipe, rows: TrainingRows, batch: Batch | None, number: int, start: int,
    stop: int, keeps: bool,
) -> shards.Shard:  # fmt: skip
    """Return the shard of some rows, on the worker that is to hold it."""
    if batch is not None:
        rows = replace(rows, source=_holding(rows.source, batch))
    else:
        rows = pickle.loads(pickle.dumps(rows))  # each has its own place in the files
    store = StoredRows(rows)
    if not keeps:
        return shards.read_shard(recipe, number, start, stop, store)
    train = store.read(start, stop)
    prepared = recipe.home.prepare(train.X)
    return shards.Shard(recipe, number, start, train.y, train.sample_weight, prepared)
