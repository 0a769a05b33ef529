"""Random batches without replacement, and the choice of validation rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from kernelgrad.compute.rng import draws
from kernelgrad.data import base
from kernelgrad.data.base import Batch, BatchSource, index_batch
from kernelgrad.exceptions import DataError
from kernelgrad.types import AnyArray, IntArray
from kernelgrad.validation import check_int, check_real

BUFFER_ROWS = 131_072
"""Rows that are shuffled together, if the source is not in memory."""


class EpochBatch(NamedTuple):
    """A random batch and its place in the sequence."""

    batch: Batch
    epoch: int
    """Number of the current pass over the data, from 0."""
    iteration: int
    """Number of this batch in the whole sequence, from 0."""
    fraction: float
    """Number of epochs completed after this batch."""


class _Buffer(NamedTuple):
    """Row numbers that are shuffled together, planned before any row is read."""

    carried: IntArray  # rows left over from the previous buffer
    pages: list[tuple[int, int]]  # ranges of rows to read in addition
    rows: IntArray  # carried rows and rows of pages, without the excluded ones
    order: IntArray  # their permutation, which is cut into batches from the left


def sample_batches(
    source: BatchSource, batch_size: int, *, seed: int, start: int = 0,
    exclude: IntArray | None = None, buffer_rows: int = BUFFER_ROWS,
) -> Iterator[EpochBatch]:  # fmt: skip
    """Yield random batches without end, each row at most once per epoch.

    The sequence depends only on the data, `seed`, `batch_size`, `exclude` and `buffer_rows`.
    Sources in memory are permuted as a whole in every epoch. All others are divided into
    pages of ``buffer_rows // 16`` rows, which are taken in turn from 4 to 16 places of the data
    and fill a buffer that is permuted and cut into batches (see :doc:`/data`). At the end of an
    epoch less than one batch is dropped.

    Parameters
    ----------
    source : BatchSource
        The data.
    batch_size : int
        Rows per batch; if the source has fewer, they form one batch.
    seed : int
        Seed of all permutations.
    start : int, default=0
        Number of batches to skip; skipped batches are not read.
    exclude : ndarray of int, optional
        Numbers of the rows to leave out, in increasing order.
    buffer_rows : int, default=131072
        Number of rows shuffled together, at least `batch_size`. Memory holds one such buffer,
        two for sparse data.
    """
    batch_size = check_int(batch_size, "batch_size", low=1)
    seed, start = check_int(seed, "seed"), check_int(start, "start")
    buffer_rows = check_int(buffer_rows, "buffer_rows", low=1)
    excluded = base.check_rows(() if exclude is None else exclude, source.n_rows)
    if np.any(np.diff(excluded) <= 0):
        raise ValueError("exclude must be strictly increasing; pass it through np.unique.")
    n_rows = source.n_rows - len(excluded)
    if n_rows == 0:
        raise DataError(
            f"No row is left to train on: the data has {source.n_rows} rows, of which "
            f"{len(excluded)} are excluded; give more data or exclude fewer rows."
        )
    size = min(batch_size, n_rows)
    plan = partial(_plan, source, size, seed, excluded, max(buffer_rows, size))
    return _batches(source, plan, size, n_rows // size, start)


def _batches(
    source: BatchSource, plan: Callable[[int], Iterator[_Buffer]], size: int, per_epoch: int,
    start: int,
) -> Iterator[EpochBatch]:  # fmt: skip
    epoch, skip = divmod(start, per_epoch)
    while True:
        done = 0
        left: Batch | None = None  # rows carried over to the next buffer
        for buffer in plan(epoch):
            n_batches = len(buffer.rows) // size
            first = max(skip - done, 0)
            if first < n_batches:
                rows = None if source.in_memory else _fill(source, buffer, left)
                for i in range(first, n_batches):
                    chosen = buffer.order[i * size : (i + 1) * size]
                    if rows is None:
                        batch = source.take(buffer.rows[chosen])
                    else:
                        batch = index_batch(rows, chosen)
                    at = done + i + 1
                    number = epoch * per_epoch + at - 1
                    yield EpochBatch(batch, epoch, number, epoch + at / per_epoch)
                if rows is not None:
                    left = index_batch(rows, buffer.order[n_batches * size :])
                    rows = None  # freed before the next one is filled
            done += n_batches
        epoch, skip = epoch + 1, 0


def _included(low: int, high: int, excluded: IntArray) -> IntArray:
    rows = np.arange(low, high)
    i, j = np.searchsorted(excluded, (low, high))
    return np.delete(rows, excluded[i:j] - low) if j > i else rows


def _plan(
    source: BatchSource, size: int, seed: int, excluded: IntArray, buffer_rows: int, epoch: int
) -> Iterator[_Buffer]:
    """Plan the contents of every buffer of an epoch, without reading any row."""
    rng = draws(seed, epoch, 0)
    if source.in_memory:
        rows = _included(0, source.n_rows, excluded)
        yield _Buffer(rows[:0], [], rows, rng.permutation(len(rows)))
        return
    pages = _page_order(source, max(1, buffer_rows // 16), rng)
    carried: IntArray = np.empty(0, dtype=np.int64)
    taken: list[tuple[int, int]] = []
    parts, n_held, stream = [carried], 0, 1
    for low, high in [*pages, (0, 0)]:
        rows = _included(low, high, excluded)
        full = n_held >= size and n_held + len(rows) > buffer_rows
        if taken and (full or high == 0):
            together = np.concatenate(parts)
            order = draws(seed, epoch, stream).permutation(len(together))
            yield _Buffer(carried, taken, together, order)
            carried = together[order[len(together) // size * size :]]
            taken, parts, n_held, stream = [], [carried], len(carried), stream + 1
        if len(rows):
            taken.append((low, high))
            parts.append(rows)
            n_held += len(rows)


def _page_order(
    source: BatchSource, page_rows: int, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Divide the rows into pages, and order them by taking from several blocks in turn."""
    starts = source.block_starts()
    if starts is None:
        starts = np.arange(0, source.n_rows, page_rows)
    blocks: list[list[tuple[int, int]]] = []
    begin = 0
    for end in [*starts[1:].tolist(), source.n_rows]:
        if end - begin >= page_rows or end == source.n_rows:
            blocks.append([(a, min(a + page_rows, end)) for a in range(begin, end, page_rows)])
            begin = end
    places = base.n_places(source.n_features)
    parts = -(-places // len(blocks))  # per block, if there are few blocks
    runs = [
        block[i * len(block) // parts : (i + 1) * len(block) // parts]
        for block in blocks
        for i in range(parts)
    ]
    waiting = [runs[i][::-1] for i in rng.permutation(len(runs))]  # the next page is last
    pages: list[tuple[int, int]] = []
    here: list[list[tuple[int, int]]] = []
    while here or waiting:
        here = [run for run in here if run]
        while waiting and len(here) < places:
            here += [run for run in [waiting.pop()] if run]
        pages += [here[i].pop() for i in rng.permutation(len(here))]
    return pages


def _fill(source: BatchSource, buffer: _Buffer, left: Batch | None) -> Batch:

    def pieces() -> Iterator[Batch]:
        if len(buffer.carried):  # read only when a resumed run begins
            yield source.take(buffer.carried) if left is None else left
        wanted = np.sort(buffer.rows)
        for low, high in buffer.pages:
            i, j = np.searchsorted(wanted, (low, high))
            piece = source.read(low, high)
            yield piece if j - i == high - low else index_batch(piece, wanted[i:j] - low)

    if source.is_sparse:
        return base.concat_batches(list(pieces()))
    X: AnyArray = np.empty((0, 0))
    others: list[Batch] = []
    at = 0
    for piece in pieces():
        n = len(piece.rows)
        if not others:
            X = np.empty((len(buffer.rows), piece.X.shape[1]), piece.X.dtype)
        X = X.astype(np.promote_types(X.dtype, piece.X.dtype), copy=False)
        X[at : at + n] = piece.X
        at += n
        others.append(piece._replace(X=np.empty((n, 0))))
    return base.concat_batches(others)._replace(X=X, rows=buffer.rows)


def split_rows(
    source: BatchSource | int, fraction: float, *, seed: int,
    stratify: AnyArray | None = None, max_rows: int | None = None,
) -> IntArray:  # fmt: skip
    """Choose a `fraction` of rows for validation: increasing numbers, at least one and not all.

    Parameters
    ----------
    source : BatchSource or int
        The data, or its number of rows.
    fraction : float
        Fraction of the rows to choose, in (0, 1).
    seed : int
        Seed of the choice.
    stratify : ndarray of shape (n_rows,), optional
        Labels. The same fraction of every class is chosen; each keeps a row for training.
    max_rows : int, optional
        Upper limit on the number of rows chosen.
    """
    n = source.n_rows if isinstance(source, BatchSource) else check_int(source, "source")
    fraction = check_real(fraction, "fraction", low=0, high=1, low_open=True, high_open=True)
    seed = check_int(seed, "seed")
    if n < 2:
        raise DataError(
            f"Validation rows need at least 2 rows of data, got {n}; give more data or "
            "switch validation off."
        )
    k = min(max(1, round(fraction * n)), n - 1)
    if max_rows is not None:
        k = min(k, check_int(max_rows, "max_rows", low=1))
    rng = draws(seed, 0, 0)
    if stratify is None:
        return np.sort(rng.choice(n, size=k, replace=False, shuffle=False)).astype(np.int64)
    if np.shape(stratify) != (n,):
        raise ValueError(
            f"stratify must hold one label for each of the {n} rows, got shape "
            f"{np.shape(stratify)}."
        )
    classes, codes = np.unique(stratify, return_inverse=True)
    counts = np.bincount(codes, minlength=len(classes))
    room = counts - 1
    if room.sum() == 0:
        raise DataError(
            f"Each of the {len(classes)} classes has a single row, so none can be used for "
            "validation; give more rows per class or switch stratification off."
        )
    share = _apportion(counts * (k / n), np.asarray(room), min(k, int(room.sum())))
    by_class = np.argsort(codes, kind="stable")
    ends = np.cumsum(counts)
    chosen = [
        rng.choice(by_class[end - count : end], size=m, replace=False, shuffle=False)
        for end, count, m in zip(ends, counts, share, strict=True)
        if m
    ]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def random_rows(n: int, most: int, rng: np.random.Generator) -> IntArray:
    """Return increasing numbers of at most `most` of n rows, drawn at random."""
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def thinned(rows: IntArray, most: int) -> IntArray:
    """Return at most `most` evenly spaced rows."""
    return rows[:: max(1, -(-len(rows) // most))]


def folds(rows: IntArray, n: int, codes: AnyArray | None = None) -> list[IntArray]:
    """Return n parts of rows in their order, each with every n-th of them.

    With the `codes` of all rows each class is spread over the parts.
    """
    if codes is not None:
        rows = rows[np.argsort(codes[rows], kind="stable")]
    return [rows[k::n] for k in range(n)]


def _apportion(quota: AnyArray, room: IntArray, total: int) -> IntArray:
    """Round quotas to integers that sum to `total`, each at most its `room`."""
    share = np.minimum(np.floor(quota).astype(np.int64), room)
    while (left := total - int(share.sum())) > 0:
        open_ = np.flatnonzero(share < room)
        first = open_[np.argsort(-(quota - share)[open_], kind="stable")][:left]
        share[first] += 1
    return share
