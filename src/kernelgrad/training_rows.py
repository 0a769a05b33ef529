"""The rows of a fit, and how they become batches."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import count
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from kernelgrad.calibration import Responses
from kernelgrad.compute.linalg import dense
from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.data import ArraySource, Batch, BatchSource, sample_batches, split_rows
from kernelgrad.data.base import bytes_needed, index_batch
from kernelgrad.data.sampling import BUFFER_ROWS, EpochBatch, random_rows
from kernelgrad.functions.expansions import Expansion
from kernelgrad.inputs import Inputs
from kernelgrad.solvers import RowStore, Solver, TrainBatch, Validation
from kernelgrad.tasks import Classification, Task, weights_of
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray, Matrix
from kernelgrad.validation import DataError

MAX_VALIDATION_ROWS = 20_000  # validation responses stay in memory, whatever the file size
no_rows: Callable[[], Any] = partial(np.empty, 0, np.int64)
_EXAMPLES, _CELLS = 200, 2**20  # rows that describe the columns, and about their entries
_TAG = 0x736F6D65
_NO_WEIGHT = "All sample weights of a whole epoch are zero; at least one row must count."

Batches = Iterator[tuple[Any, float]]  # TrainBatch, or RowStore for solvers that take it


def forever(batch: TrainBatch, start: int) -> Batches:
    """Yield the batch of all rows endlessly, one pass each time."""
    return ((batch, float(t)) for t in count(start + 1))


class EncodedSource(BatchSource):
    def __init__(
        self, source: BatchSource, encode: Callable[[Any], Matrix], n_features: int
    ) -> None:
        self.source, self.encode = source, encode
        self.n_rows, self.n_features = source.n_rows, n_features
        self.has_target, self.has_weight = source.has_target, source.has_weight

    def read(self, start: int, stop: int) -> Batch:
        batch = self.source.read(start, stop)
        return batch._replace(X=self.encode(batch.X))

    def take(self, rows: IntArray) -> Batch:
        batch = self.source.take(rows)
        return batch._replace(X=self.encode(batch.X))

    def digest(self) -> bytes:
        return self.source.digest()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "source": copy(self.source)}  # threads read the source

    def block_starts(self) -> IntArray | None:
        return self.source.block_starts()

    def target_chunks(self) -> Iterator[AnyArray]:
        return self.source.target_chunks()


@dataclass(frozen=True)
class TrainingRows:
    """The rows of a fit, their task and their columns."""

    all_weigh: ClassVar[bool] = False  # True if batches without weight are refused
    source: BatchSource  # rows as functions take them
    task: Task
    is_internal: bool = False  # True if the source holds internal targets and final weights
    is_own_copy: bool = False  # True if the arrays are the fit's own, not those of the caller
    held_out: IntArray = field(default_factory=no_rows)  # increasing; they score or calibrate
    validation_rows: TrainingRows | None = None  # rows of another source to score
    reads_in_pieces: bool = False  # True if solvers that take a store read a piece at a time
    # makes the store of rows that workers hold; None keeps them in this process
    store: Callable[[TrainingRows], RowStore] | None = None
    batch_size: int | None = None  # rows of a batch; None leaves it to the solver
    order: IntArray | None = None  # number of each row as it came, -1 dropped; None is the same
    is_sample: bool = False  # True if they stand for more rows
    inputs: Inputs = field(default_factory=partial(Inputs, "rows"))

    @cached_property
    def sources(self) -> tuple[BatchSource, ...]:
        return (self.source,)

    @cached_property
    def in_memory(self) -> bool:
        return all(map(attrgetter("in_memory"), self.sources))

    @property
    def n_train(self) -> int:
        return self.source.n_rows - len(self.held_out)

    @cached_property
    def nbytes(self) -> float:
        """Approximate bytes of the rows in memory."""
        return float(sum(map(attrgetter("nbytes"), self.sources)))

    @cached_property
    def n_rows(self) -> int:
        """Number of rows of all sources."""
        return sum(map(attrgetter("n_rows"), self.sources))

    def within(self, limit: float) -> Self:
        """Return the rows, which stay where they are if memory does not do for a fit."""
        needed = bytes_needed(self.n_rows, self.nbytes, self.task.n_outputs)
        return replace(self, reads_in_pieces=not self.in_memory or needed > limit)

    def bytes_of_fit(self, solver: Solver[Any], *, stream: bool) -> tuple[float, float, float]:
        """Return the bytes of copies of the rows, of prepared rows, and of reading the rows."""
        n, size, sources, in_memory = self.n_rows, self.nbytes, self.sources, self.in_memory
        in_pieces = self.reads_in_pieces and solver.takes_stores
        resident = reading = copied = 0.0
        for source in sources:
            resident = max(resident, source.kept_bytes)
            reading = max(reading, source.reading_bytes)
        if not stream:
            part = 0.0 if in_pieces or in_memory else min(1.0, BUFFER_ROWS / n)
            if not in_pieces and solver.resolve_batch_size(n) >= n:
                one = len(sources) == 1 and in_memory and not len(self.held_out)
                part = 0.0 if one else 1.0
            copied = size * (self.is_own_copy + part) + resident
        prepared = min(size, 4.0 * n * self.source.n_features)
        if in_pieces:  # one piece is prepared beside another; pieces of a file have two forms
            prepared *= 2 if in_memory else 4
        return copied, prepared, reading - resident

    @property
    def train(self) -> IntArray:
        return np.delete(np.arange(self.source.n_rows), self.held_out)

    @property
    def strata(self) -> AnyArray | None:
        """Class codes to stratify by, where they are known for all rows."""
        if not (self.is_internal and self.task.stratified):
            return None
        return np.concatenate(list(self.source.target_chunks()))

    @property
    def total_weight(self) -> float | None:
        """Sum of the weights of the training rows; None where only reading them would tell."""
        if isinstance(self.source, ArraySource) and self.is_internal:
            weight = self.source.sample_weight
            return float(weight.sum() - weight[self.held_out].sum())
        weighted = self.source.has_weight or getattr(self.task, "weights", None) is not None
        return None if weighted else float(self.n_train)

    def ordered(self, limit: int | None) -> TrainingRows:
        """Return rows of weight above 0, up to `limit` in canonical order; None is as is."""
        if limit is None or not (self.is_internal and self.in_memory):  # maps stay on disk
            return self
        whole, n = self.source.read(0, self.source.n_rows), self.source.n_rows
        y = np.zeros(n) if whole.y is None else whole.y
        X, y, weight, order = canonical_rows(whole.X, y, weights_of(whole), merge=n <= limit)
        source = ArraySource(X, y, weight, checked=True)
        return replace(self, source=source, order=order)

    def some(self, most: int, seed: int) -> TrainingRows:
        """Return so many random rows and the first row of each class, in memory.

        Rows of weight 0 are left out before the draw where all weights are known.
        """
        source, counted = self.source, None
        if self.is_internal and isinstance(source, ArraySource):
            counted = np.flatnonzero(source.sample_weight)
        n = source.n_rows if counted is None else len(counted)
        if n <= most:
            return self
        numbers = random_rows(n, most, draws(seed, _TAG))
        if self.task.stratified:
            numbers = np.union1d(numbers, self._first_of_classes(counted))
        numbers = numbers if counted is None else counted[numbers]
        X, y, weight, _ = self.usable(self.source.take(numbers))
        if not len(y):
            raise DataError(
                f"All {most:,} rows that were drawn have weight zero; leave such rows out."
            )
        return replace(
            self, source=ArraySource(X, y, weight, checked=True), is_internal=True,
            is_own_copy=True, is_sample=True, reads_in_pieces=False, store=None,
        )  # fmt: skip

    def _first_of_classes(self, counted: IntArray | None) -> IntArray:
        """Return the place of the first row of each class among those counted, or among all."""
        first: dict[int, int] = {}
        start = 0
        chunks = self.source.target_chunks()
        for chunk in chunks if counted is None else [np.concatenate(list(chunks))[counted]]:
            codes = chunk if self.is_internal else self.task.internal(chunk)
            for code, at in zip(*np.unique(codes, return_index=True), strict=True):
                first.setdefault(int(code), start + int(at))
            start += len(codes)
        return np.array(list(first.values()), np.int64)

    def digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        others = () if self.validation_rows is None else self.validation_rows.sources
        for source in (*self.sources, *others):
            digest.update(source.digest())
        return digest.hexdigest()

    def drawn(self, solver: Solver[Any], iteration: int, epoch: float) -> int:
        """Return the number of batches drawn up to an iteration, including zero-weight ones."""
        size = self.batch_size or solver.resolve_batch_size(self.n_train)
        if self.all_weigh or self.n_train <= size:
            return iteration
        return round(epoch * (self.n_train // size))

    def hold_out(
        self, fraction: float, seed: int, *, stratify: bool = True,
        most: int | None = MAX_VALIDATION_ROWS,
    ) -> Self:  # fmt: skip
        """Return the rows with a fraction held out, at most so many."""
        strata = self.strata if stratify else None
        numbers = split_rows(self.source, fraction, seed=seed, stratify=strata, max_rows=most)
        return replace(self, held_out=numbers)

    def examples(self) -> Matrix:
        """Return up to 200 training rows, evenly spaced, that describe the columns.

        Of rows that are not in memory they are some of the first 2,000. Wide rows are fewer.
        """
        source, numbers = self.source, self.train
        if not self.in_memory:
            numbers = np.arange(min(source.n_rows, 10 * _EXAMPLES))
            source = ArraySource(source.read(0, len(numbers)).X, checked=True)
        m = min(len(numbers), _EXAMPLES, max(20, _CELLS // source.n_features))
        X = source.take(numbers[np.arange(m) * len(numbers) // m]).X
        return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)

    def numbers(self, places: IntArray) -> IntArray:
        """Return the numbers of training rows from their places among all training rows."""
        before = self.held_out - np.arange(len(self.held_out))
        return places + np.searchsorted(before, places, side="right")

    def sample(self, n: int, rng: np.random.Generator) -> IntArray:
        """Return the increasing numbers of `n` random training rows, or of all if fewer."""
        return self.numbers(random_rows(self.n_train, n, rng))

    def weighed(self, batch: Batch) -> tuple[AnyArray, Float64Array]:
        weight, y = weights_of(batch), batch.y
        if y is None:
            if self.task.has_targets:
                raise DataError("The source gave a batch without targets.")
            y = np.zeros(len(weight))
        if not self.is_internal:
            y = self.task.internal(y)
            factor = self.task.class_factor(y)
            weight = weight if factor is None else weight * factor
        return y, weight

    def usable(self, batch: Batch) -> tuple[Matrix, AnyArray, Float64Array, IntArray]:
        """Return X, internal y, final weights and numbers of the rows of weight above 0."""
        y, weight = self.weighed(batch)
        keep = np.flatnonzero(weight > 0)
        if len(keep) == len(y):
            return batch.X, y, weight, batch.rows
        return batch.X[keep], y[keep], weight[keep], batch.rows[keep]

    def responses(self, function: Expansion, rows: IntArray) -> Responses:
        """Return responses of the classes, codes and weights of rows by their numbers."""
        X, y, weight, _ = self.usable(self.source.take(rows))
        assert isinstance(self.task, Classification)
        with single_threaded_blas():
            raw = function.raw_prediction(X)
        return self.task.class_responses(raw), y, weight

    def batch(self, batch: Batch, *, numbered: bool = True) -> TrainBatch | None:
        """Return what solvers take; None where no row counts."""
        X, y, weight, rows = self.usable(batch)
        if len(y) == 0:
            return None
        return TrainBatch(X, self.task.encode(y), weight, rows if numbered else None)

    def take(self, rows: IntArray) -> TrainBatch:
        train = self.batch(self.source.take(rows))
        if train is None:
            raise DataError(_NO_WEIGHT)
        return train

    def batches(self, solver: Solver[Any], seed: int, start: int) -> tuple[Batches, bool]:
        """Return endless training batches from iteration `start`, and whether all are equal."""
        if self.reads_in_pieces and solver.takes_stores:
            store = StoredRows(self) if self.store is None else self.store(self)
            return ((store, float(t)) for t in count(start + 1)), True
        n = self.n_train
        size = self.batch_size or solver.resolve_batch_size(n)
        if n <= size:
            return forever(self.take(self.train), start), True
        sampled = sample_batches(
            self.source, size, seed=seed, start=start, exclude=self.held_out
        )
        return self.sampled(sampled), False

    def sampled(self, batches: Iterable[EpochBatch]) -> Batches:
        """Yield random batches in which any row counts."""
        useful = None
        for item in batches:
            train = self.batch(item.batch)
            if useful is None:
                useful = np.ceil(item.fraction) - 1.0
            if train is not None:
                useful = item.fraction
                yield train, item.fraction
            elif item.fraction - useful >= 1.0:
                raise DataError(_NO_WEIGHT)

    def stream(self, size: int, epochs: float) -> Batches:
        """Yield all rows in order; epochs count the calls, as a stream has no passes."""
        for batch in self.source.chunks(size):
            train = self.batch(batch, numbered=False)
            if train is not None:
                yield train, epochs + (int(batch.rows[-1]) + 1) / self.source.n_rows

    def validation(
        self, patience: int | None, tol: float, *, rows: IntArray | None = None, **options: Any
    ) -> Validation:
        """Return how functions are scored on the rows apart, held out, or in `rows`."""
        if rows is None and self.validation_rows is not None:
            # the task may have been learned after these rows were read
            others = replace(self.validation_rows, task=self.task)
            return others.validation(patience, tol, rows=others.train, **options)
        batch = self.source.take(self.held_out if rows is None else rows)
        X, y, weight, _ = self.usable(batch)
        if len(y) == 0:
            raise DataError(
                "All validation rows have weight zero; raise validation_fraction or set "
                "early_stopping=False."
            )
        encoded, loss = self.task.encode(y), self.task.loss
        name, score = self.task.score()

        def mean_loss(raw: FloatArray) -> float:
            return float(np.average(loss.value(encoded, raw), weights=weight))

        constant = loss.intercept(encoded, weight)
        return Validation(
            X=X, constant=np.tile(np.asarray(constant, np.float64), (len(y), 1)),
            score=lambda raw: score(y, raw, weight) if score else -mean_loss(raw),
            loss=mean_loss, name=name, patience=patience, tol=tol, **options,
        )  # fmt: skip


@dataclass(frozen=True)
class PairedRows(TrainingRows, ABC):
    """Rows of two sources; half of each batch is of either, drawn independently."""

    all_weigh = True
    clock: ClassVar[int]  # the source, 0 or 1, a pass over which is an epoch
    other: BatchSource | None = field(kw_only=True)  # the second source
    # increasing numbers of its rows that no batch has
    excluded: IntArray = field(default_factory=no_rows, kw_only=True)

    @cached_property
    def sources(self) -> tuple[BatchSource, ...]:
        return (self.source,) if self.other is None else (self.source, self.other)

    @property
    def n_other(self) -> int:
        return 0 if self.other is None else self.other.n_rows - len(self.excluded)

    @abstractmethod
    def join(self, one: Batch, two: Batch | None = None) -> TrainBatch:
        """Return one batch, in which the weights of either source have the same sum."""

    def batches(self, solver: Solver[Any], seed: int, start: int) -> tuple[Batches, bool]:
        """Return endless batches of as many rows of either source; few rows are in each."""
        sizes = self.n_train, self.n_other
        first, second = (max(1, solver.resolve_batch_size(2 * n or None) // 2) for n in sizes)
        if (sizes[0] <= first and sizes[1] <= second) or not solver.streams:
            whole = [self.source.take(self.train)]
            if self.other is not None:
                numbers = np.setdiff1d(np.arange(self.other.n_rows), self.excluded)
                whole.append(self.other.take(numbers))
            return forever(self.join(*whole), start), not solver.streams or sizes[1] > 0
        draw = partial(sample_batches, start=start)
        drawn = [draw(self.source, first, seed=seed, exclude=self.held_out)]
        if self.other is not None and sizes[1] > 0:
            drawn.append(draw(self.other, second, seed=seed + 1, exclude=self.excluded))
        timer = min(self.clock, len(drawn) - 1)
        pairs = zip(*drawn, strict=False)
        joined = ((self.join(*[i.batch for i in p]), p[timer].fraction) for p in pairs)
        return joined, False


class StoredRows(RowStore):
    def __init__(self, rows: TrainingRows) -> None:
        self._rows = rows
        self.n_rows, self.n_features = rows.n_train, rows.source.n_features
        self.row_bytes = rows.nbytes / rows.n_rows

    def _batch(self, batch: Batch) -> TrainBatch:
        y, weight = self._rows.weighed(batch)
        return TrainBatch(batch.X, self._rows.task.encode(y), weight)

    def read(self, start: int, stop: int) -> TrainBatch:
        first, last = self._rows.numbers(np.array([start, stop - 1]))
        batch = self._rows.source.read(int(first), int(last) + 1)
        if last - first != stop - 1 - start:
            batch = index_batch(batch, self._rows.numbers(np.arange(start, stop)) - first)
        return self._batch(batch)

    def take(self, rows: IntArray) -> TrainBatch:
        return self._batch(self._rows.source.take(self._rows.numbers(rows)))


def canonical_rows(
    X: Matrix, y: AnyArray, weight: Float64Array, *, merge: bool
) -> tuple[Matrix, AnyArray, Float64Array, IntArray]:
    """Drop rows of weight zero; with `merge`, sort rows and merge exact duplicates.

    The new number of each row, -1 for a dropped one, is returned too.

    When all rows fit into one batch their order carries no information, so a canonical
    order makes "weight 2" and "given twice" the same computation, bit for bit.
    """
    keep = weight > 0
    numbers = np.where(keep, np.cumsum(keep) - 1, -1)
    if not keep.all():
        X, y, weight = X[np.flatnonzero(keep)], y[keep], weight[keep]
    if not merge or (sp.issparse(X) and X.shape[0] * X.shape[1] > 10_000_000):
        return X, y, weight, numbers
    columns = [dense(X, np.float64), y.reshape(len(y), -1).astype(np.float64)]
    table = np.ascontiguousarray(np.concatenate(columns, axis=1)) + 0.0  # -0.0 becomes 0.0
    rows = table.view(np.dtype((np.void, table.itemsize * table.shape[1]))).ravel()
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    order = np.argsort(weight)  # sums of weights are rounded in one order
    total: Float64Array = np.bincount(inverse.ravel()[order], weight[order]).astype(np.float64)
    numbers[keep] = inverse.ravel()
    return X[first], y[first], total, numbers
