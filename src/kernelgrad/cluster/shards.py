"""Training rows on the workers of a cluster."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kernelgrad.cluster.engine import DaskEngine, DaskTeam
from kernelgrad.cluster.source import DaskSource
from kernelgrad.data import Batch, BatchSource
from kernelgrad.data.base import index_batch
from kernelgrad.solvers.block_descent import shards
from kernelgrad.training_rows import EncodedSource, StoredRows, TrainingRows

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
