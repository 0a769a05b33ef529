"""Training rows in shards of fixed size, and the operations of block descent on them.

A fit cuts its rows into shards of `SHARD` rows, wherever they are: in memory, in a file, or in
another process. A shard holds the responses of its rows and the coefficients of those of its
rows that are centres; it gets a block, a step or a few numbers, and answers with sums. Sums are
added up in the order of the shards, so the model does not depend on where shards are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from kernelgrad.compute.backend import BlockValues
from kernelgrad.compute.linalg import first_of_equals, row_hashes
from kernelgrad.compute.rng import draws
from kernelgrad.files.disk import Scratch, ScratchFolder
from kernelgrad.functions.exact import ExactKernel, join_rows
from kernelgrad.kernels import ExactRows
from kernelgrad.losses import scalar
from kernelgrad.solvers.block_descent.coordinates import Block
from kernelgrad.solvers.block_descent.objective import Objective
from kernelgrad.solvers.contract import RowStore
from kernelgrad.types import AnyArray, Float32Array, Float64Array, IntArray

SHARD = 131_072  # rows of a shard
_PIECE = 32_768  # rows that are read from a store at once
TAG = 0x636163  # key of the random numbers of this solver
_JUST_USED = 1e-12  # factor of the weights of the rows of the last block

Derivatives = tuple[Float32Array, Float32Array, float, float]


class Constants(NamedTuple):
    """What responses are evaluated with: constants and widths of kinks, (C,)."""

    bias: Float64Array
    widths: Float64Array


class Facts(NamedTuple):
    """Facts about the rows of a shard, reported when it is created."""

    weight: float  # sum of the weights
    spread: Float64Array  # sums of the weighted sizes of targets, (C,)
    diagonal: float  # sum of k(x, x)
    peak: float  # largest k(x, x)
    candidates: int  # number of rows that may be centres


class Slopes(NamedTuple):
    """Mean loss, smoothed and exact; sums of slopes (C,) and of rows' largest curvatures."""

    smooth: float
    exact: float
    total: Float64Array
    curved: float


class HessianSample(NamedTuple):
    """Rows of the Hessian's sample, with the factors that make their mean that of all rows.

    Curvatures and responses with constants are (C, m), weights (m,). Only the largest curvature
    of a row is there, (1, m), for losses that need no other, and responses only for the
    multinomial loss.
    """

    rows: Any
    share: Float32Array
    curvature: Float32Array
    responses: Float32Array
    weight: Float32Array


class Response(NamedTuple):
    """The effect of a move: D and P at the centres of the block in this shard, and sums.

    ``norms`` (3, C) are ``<f, f>``, ``<f, P>``, ``<P, P>``; ``largest`` (3, C) of f, D, P;
    ``squares`` (2,) of the coefficients of f and P.
    """

    move: Float32Array
    momentum: Float32Array
    norms: Float64Array
    largest: Float32Array
    squares: Float64Array
    slope: float


def step_on(
    value: AnyArray, momentum: AnyArray, total: AnyArray | None, s: Float64Array, moved: Any,
    move: AnyArray, at: IntArray | slice = slice(None),
) -> None:  # fmt: skip
    """Take one step of a linear quantity: ``p <- s2 p + s1 d + s0 f``, then ``f <- f + p``.

    `move` d is at the columns `at`, and 0 elsewhere; outputs that are not `moved` stay.
    """
    s = s.astype(value.dtype)
    still = ~np.asarray(moved)
    before = momentum[still]
    momentum *= s[:, 2:3]
    momentum[:, at] += s[:, 1:2] * move
    if s[:, 0].any():
        momentum += s[:, 0:1] * value
    momentum[still] = 0
    value += momentum
    if total is not None:
        total += momentum
    momentum[still] = before


@dataclass
class Path:
    """Coefficients (C, k), their last step, and the momentum that the block will leave.

    Between blocks the momentum is `total`: all steps of the block plus a part of the momentum
    before it. Arrays are replaced, never changed, as copies share them.
    """

    value: Float64Array
    momentum: Float64Array
    total: Float64Array | None = None

    def enter(self, weight: float | None) -> None:
        """Begin a block; None forgets the momentum before it."""
        self.total = None if weight is None else weight * self.momentum

    def take(
        self, s: Float64Array, moved: Any, move: AnyArray, at: IntArray | slice = slice(None)
    ) -> None:
        self.value, self.momentum = self.value.copy(), self.momentum.copy()
        self.total = None if self.total is None else self.total.copy()
        step_on(self.value, self.momentum, self.total, s, moved, move, at)

    def undo(self) -> None:
        self.value = self.value - self.momentum
        self.momentum, self.total = np.zeros_like(self.momentum), None

    def leave(self) -> None:
        if self.total is not None:
            self.momentum, self.total = self.total, None


class Recipe(NamedTuple):
    """Common properties of all shards: offsets (C,) are taken off the targets."""

    home: ExactKernel  # what prepares rows for functions
    objective: Objective
    offset: Float64Array


class Shard:
    """Rows ``start`` to ``start + n`` of the `objective.n` rows of a fit.

    Methods in `CHANGES` change the shard, all others do not; those in `READS` need the values
    of all its rows. With `shared` arrays, as after :meth:`copy`, changed arrays are new ones.
    Targets are Y (C, n). Rows of a `store` are read there again once they are unloaded;
    `arrays` keeps what belongs to all rows.
    """

    CHANGES: ClassVar[frozenset[str]] = frozenset((
        "weigh", "start_from", "derive", "enter", "respond", "take", "roll_back", "leave",
        "refresh",
    ))  # fmt: skip
    READS: ClassVar[frozenset[str]] = frozenset({"products", "respond", "refresh"})

    def __init__(
        self, recipe: Recipe, number: int, start: int, y: AnyArray, weight: AnyArray, rows: Any,
        store: RowStore | None = None, folder: str | None = None,
    ) -> None:  # fmt: skip
        self.number, self.start, self.n = number, start, len(y)
        self.home, self.objective = recipe.home, recipe.objective
        self.store, self._rows = store, rows
        self.arrays: MutableMapping[str, Any] = {}
        if folder is not None:
            self.arrays = Scratch(folder, str(number))
        Y = np.ascontiguousarray((y - recipe.offset).T.astype(np.float32))
        self.arrays["Y"], self.arrays["weight"] = Y, np.array(weight, np.float32)
        self.index: IntArray = np.empty(0, np.intp)
        self.last: IntArray = np.empty(0, np.int32)
        self.coef = Path(np.zeros((len(Y), 0)), np.zeros((len(Y), 0)))
        self.buffer: Float32Array | None = None
        self.shared = False
        self._block: Block | None = None
        self._matrix: BlockValues | None = None
        self._seen: dict[str, Any] = {}
        self.point: Constants
        self._passes = 0  # passes over the rows that made kernel values
        self.facts = self._facts(rows)

    def _facts(self, rows: Any) -> Facts:
        weight = self.arrays["weight"]
        diagonal = np.asarray(self.home.kernel.exact_diag(rows), np.float64)
        self._usable = np.packbits(first_of_equals(hashes_of(rows)) & (weight > 0))
        return Facts(
            float(weight.sum(dtype=np.float64)),
            np.abs(self.arrays["Y"].astype(np.float64)) @ weight,
            float(diagonal.sum()),
            float(diagonal.max(initial=0.0)),
            int(np.unpackbits(self._usable).sum()),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the rows; none where they are read again."""
        return 0 if self.store is not None else int(self._rows.nbytes)

    # -- rows --------------------------------------------------------------------------

    def _read(self, index: IntArray | None = None) -> Any:
        assert self.store is not None
        a, store = self.start, self.store
        if index is None:
            return _read_pieces(self.home, store, a, a + self.n)[0]
        return self.home.prepare(store.take(a + index).X)

    def load(self) -> None:
        if self._rows is None:
            self._rows = self._read()

    def unload(self) -> None:
        if self.store is not None:
            self._rows = self._matrix = None

    def rows_at(self, index: IntArray) -> Any:
        return self._read(index) if self._rows is None else self._rows.take(index)

    # -- the state ---------------------------------------------------------------------

    def copy(self) -> Shard:
        """Return a shard that shares what it does not change."""
        other = copy(self)
        other.shared, other._seen, other._matrix = True, {}, None
        other.arrays, other.coef = dict(self.arrays), copy(self.coef)
        return other

    def __getstate__(self) -> dict[str, Any]:
        gone: dict[str, Any] = {"_seen": {}, "_matrix": None, "buffer": None}
        return vars(self) | gone | ({} if self.store is None else {"_rows": None})

    def _own(self, name: str) -> Any:
        if self.shared:
            self.arrays[name] = self.arrays[name].copy()
        return self.arrays[name]

    def snapshot(self, brief: bool) -> dict[str, AnyArray]:
        """Return the data of the shard that a resumed fit needs, `brief` without responses."""
        arrays = {} if brief else {name: np.array(self.arrays[name]) for name in ("f", "p")}
        coef = {"coef": self.coef.value, "coef_momentum": self.coef.momentum}
        return arrays | {"index": self.index + self.start, "last": self.last} | coef

    def start_from(self, snapshot: dict[str, AnyArray] | None) -> None:
        """Begin with f = 0, or where a snapshot was taken."""
        for name in ("f", "p"):
            if snapshot is None or name not in snapshot:
                self.arrays[name] = np.zeros(self.arrays["Y"].shape, np.float32)
            else:
                self.arrays[name] = np.array(snapshot[name], np.float32)
        if snapshot is not None:
            self.index, self.last = snapshot["index"] - self.start, snapshot["last"].copy()
            coef = (np.array(snapshot[k], np.float64) for k in ("coef", "coef_momentum"))
            self.coef = Path(*coef)

    def weigh(self, factor: float) -> None:
        weight = self._own("weight")
        weight *= np.float32(factor)

    # -- slopes ------------------------------------------------------------------------

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what `make` returns, kept for this point where arrays are in memory."""
        if isinstance(self.arrays, Scratch):
            return make()
        if name not in self._seen:
            self._seen[name] = make()
        return self._seen[name]

    def _raised(self, name: str, bias: Float64Array) -> Float32Array:
        def add() -> Float32Array:
            with np.errstate(over="ignore"):  # a step that long is refused afterwards
                return np.asarray(self.arrays[name] + bias.astype(np.float32)[:, None])

        return np.asarray(self._once(f"raised {name}", add))

    def _derivatives(self) -> Derivatives:
        """Return slopes, curvatures, smooth and exact mean at this point."""

        def evaluate() -> Derivatives:
            point, U = self.point, self._raised("f", self.point.bias)
            R, W = np.empty(U.shape, np.float32), np.empty(U.shape, np.float32)
            rows = self.arrays["Y"], self.arrays["weight"]
            return R, W, *self.objective.derivatives(*rows, point.widths, U, R, W)

        derivatives: Derivatives = self._once("derivatives", evaluate)
        return derivatives

    def derive(self, point: Constants) -> Slopes:
        """Evaluate the loss at the responses and `point`; later calls refer to this point."""
        self.point, self._seen = point, {}
        R, W, smooth, exact = self._derivatives()
        curved = float(W.max(axis=0).sum(dtype=np.float64))
        return Slopes(smooth, exact, R.sum(axis=1, dtype=np.float64), curved)

    # -- centres -----------------------------------------------------------------------

    def _strengths(self, alpha: float) -> Float64Array:
        r"""Return :math:`\|r_i / n + \alpha a_i\|^2` of each row, (n,).

        This is the gradient's part at row i. It is 0 where the coefficients balance the slopes,
        as they all do at the minimum: such a row has nothing to gain, however large its slope.
        Squares spend fewer centres than the lengths themselves, and reach lower objectives.
        """
        part = (self._derivatives()[0] / np.float32(self.objective.n)).astype(np.float64)
        part[:, self.index] += alpha * self.coef.value
        return np.asarray(np.einsum("cn,cn->n", part, part))

    def strength(self, alpha: float) -> float:
        return float(self._once("strengths", lambda: self._strengths(alpha)).sum())

    def draw(
        self, alpha: float, total: float | None, number: int, n_blocks: int, width: int,
        seed: int,
    ) -> tuple[Float64Array, IntArray]:  # fmt: skip
        """Return the Gumbel keys of the rows that may be centres of a block, and the rows.

        The largest `width` keys of all shards are a draw without replacement in proportion to
        strengths over `total`, or uniform without it. The rows of a block are balanced when it
        is left and lose their balance as others move: their weight grows back in `n_blocks`.
        """
        among = np.flatnonzero(np.unpackbits(self._usable, count=self.n))
        if total is None:
            w = np.ones(self.n)
        else:
            w = self._once("strengths", lambda: self._strengths(alpha)) / total
        w = np.maximum(w, 1e-100)
        w[self.index] *= np.clip((number - self.last) / n_blocks, _JUST_USED, 1.0)
        u = draws(seed, TAG, number, *([self.number] if self.number else [])).random(len(among))
        key = np.log(w[among]) - np.log(-np.log(np.maximum(u, 1e-300)))
        return best_drawn([(key, among + self.start)], width)

    def enter(self, block: Block, weight: float | None) -> Float64Array:
        """Begin a block; return the coefficients of its centres.

        Previous steps get a `weight` in the momentum, or are dropped if it is None.
        """
        self._block, self._matrix, self._passes = block, None, 0
        own = (block.index >= self.start) & (block.index < self.start + self.n)
        self._here = np.flatnonzero(own)
        self._local = block.index[self._here] - self.start
        self._widen(self._local)
        self._slots = np.searchsorted(self.index, self._local)
        self.last[self._slots] = block.number + 1
        self.coef.enter(weight)
        self.arrays.pop("total", None)
        if weight is not None:
            self.arrays["total"] = np.multiply(self.arrays["p"], weight, dtype=np.float32)
        return np.array(self.coef.value[:, self._slots])

    def _widen(self, local: IntArray) -> None:
        """Make room for the coefficients of more centres."""
        index = np.union1d(self.index, local)
        at = np.searchsorted(index, self.index)
        grown = np.zeros((2, len(self.coef.value), len(index)))
        last = np.zeros(len(index), np.int32)
        grown[:, :, at], last[at] = (self.coef.value, self.coef.momentum), self.last
        self.index, self.last, self.coef = index, last, Path(*grown)

    # -- steps -------------------------------------------------------------------------

    @contextmanager
    def _values(self) -> Iterator[BlockValues]:
        """Yield the values of the block on the rows, and count those that are computed."""
        if self._matrix is None:
            assert self._block is not None
            rows = self._read() if self._rows is None else self._rows
            self._matrix = self._block.matrix(rows, self.buffer)
        before = self._matrix.n_tiles_made
        yield self._matrix
        self._passes += self._matrix.n_tiles_made - before

    def products(
        self, request: tuple[float, float, Float64Array | None] | None = None
    ) -> tuple[Float64Array, Float32Array, HessianSample | None]:
        """Return ``R K`` (C, M), f at own centres, and rows for the Hessian if asked for.

        A `request` holds the mean curvature of all rows, the sum of the probabilities of all,
        and places on the probabilities' cumulative sum in this shard; None is all rows.
        """
        with self._values() as K:
            products = K.product(self._derivatives()[0])
        sample = None if request is None else self._sample(*request)
        return products, self.arrays["f"][:, self._local], sample

    def _sample(self, mean: float, total: float, places: Float64Array | None) -> HessianSample:
        W, code = self._derivatives()[1], self.objective.code
        rows: Any = np.arange(self.n)
        share = np.ones(self.n, np.float32)
        if places is not None:
            # half of the sample follows the curvature
            p = 0.5 * W.max(axis=0).astype(np.float64) / max(mean, 1e-300) + 0.5
            rows = np.searchsorted(np.cumsum(p), places, side="right")
            rows = np.minimum(rows, self.n - 1)
            share = (total / self.objective.n / p[rows]).astype(np.float32)
        U, W = self._raised("f", self.point.bias), W[:, rows]
        if code in (scalar.MULTINOMIAL, scalar.SQUARED):
            W = W.max(axis=0, keepdims=True)
        responses = U[: len(U) if code == scalar.MULTINOMIAL else 0, rows]
        weight = self.arrays["weight"][rows]
        return HessianSample(self.rows_at(rows), share, W, responses, weight)

    def respond(self, move: Float32Array, bias_move: Float64Array) -> Response:
        """Compute the responses D of a move (C, M) of the coefficients of the block."""
        D = np.empty((len(move), self.n), np.float32)
        with self._values() as K:
            K.responses(move, D)
        self._seen = {k: v for k, v in self._seen.items() if k not in ("raised d", "raised p")}
        self.arrays["d"] = D
        self._move = move[:, self._here].astype(np.float64)
        f, p = self.arrays["f"], self.arrays["p"]
        R, raised = self._derivatives()[0], self._raised("d", bias_move)
        coef, last = self.coef.value, self.coef.momentum
        norms = [
            np.einsum("ck,ck->c", a, b[:, self.index], dtype=np.float64)
            for a, b in ((coef, f), (coef, p), (last, p))
        ]
        with np.errstate(invalid="ignore"):
            slope = np.einsum("cn,cn->", R, raised, dtype=np.float64) / self.objective.n
            largest = [np.abs(a).max(axis=1, initial=0.0) for a in (f, D, p)]
        squares = np.array([(a * a).sum() for a in (coef, last)])
        return Response(
            D[:, self._local], p[:, self._local], np.array(norms), np.array(largest), squares,
            float(slope),
        )  # fmt: skip

    def along(
        self, bias_move: Float64Array, bias_momentum: Float64Array, steps: Float64Array,
        directions: int,
    ) -> Float64Array:  # fmt: skip
        """Return mean loss and derivatives as :meth:`Objective.along`."""
        point = self.point
        return self.objective.along(
            self.arrays["Y"], self.arrays["weight"], point.widths,
            self._raised("f", point.bias), point.bias, self._raised("d", bias_move),
            self._raised("p", bias_momentum), steps, directions,
        )  # fmt: skip

    def take(self, steps: Float64Array, moved: Any, point: Constants) -> Slopes:
        """Apply a step (C, 3) along f, the move and the last step; differentiate there."""
        total = self._own("total") if "total" in self.arrays else None
        step_on(self._own("f"), self._own("p"), total, steps, moved, self.arrays["d"])
        self.coef.take(steps, moved, self._move, self._slots)
        return self.derive(point)

    def roll_back(self, point: Constants) -> Slopes:
        f, p = self._own("f"), self._own("p")
        f -= p
        p[:] = 0
        self.arrays.pop("total", None)
        self.coef.undo()
        return self.derive(point)

    def leave(self) -> tuple[Float64Array, float, int, int]:
        """Finish the block.

        Return ``<f, f>`` (C,), the mean loss, kernel values made and the number of centres.
        """
        if "total" in self.arrays:
            self.arrays["p"] = self.arrays.pop("total")
        self.coef.leave()
        f, coef = self.arrays["f"], self.coef.value
        norm = np.einsum("ck,ck->c", coef, f[:, self.index], dtype=np.float64)
        mean = self._derivatives()[3]
        assert self._block is not None
        n_values = self._block.width * self.n * self._passes
        self.arrays.pop("d", None)
        self._seen, self._matrix, self._passes = {}, None, 0
        return norm, mean, n_values, int(np.count_nonzero(coef.any(axis=0)))

    # -- the result --------------------------------------------------------------------

    def responses(self, index: Any) -> tuple[Float32Array, Float32Array, Float32Array]:
        a = self.arrays
        return a["f"][:, index], a["Y"][:, index], a["weight"][index]

    def refresh(self, blocks: Sequence[tuple[Block, Float64Array]]) -> None:
        """Compute the responses again and drop the last step."""
        rows = self._read() if self._rows is None else self._rows
        f = np.zeros(self.arrays["Y"].shape)
        for block, coef in blocks:
            f += block.products(rows, coef, wide=True)
        self.arrays["f"] = f.astype(np.float32)
        self.arrays["p"] = np.zeros(f.shape, np.float32)
        self.coef = Path(self.coef.value, np.zeros_like(self.coef.value))


def read_shard(
    recipe: Recipe, number: int, start: int, stop: int, store: RowStore,
    folder: str | None = None,
) -> Shard:  # fmt: skip
    """Return the shard of rows of a store, which stay there."""
    rows, y, w = _read_pieces(recipe.home, store, start, stop)
    shard = Shard(recipe, number, start, y, w, rows, store, folder)
    shard.unload()
    return shard


def _read_pieces(home: ExactKernel, store: RowStore, start: int, stop: int) -> tuple[Any, ...]:
    """Return prepared rows, their outputs and weights; few rows at once are unprepared."""
    pieces = []
    for a in range(start, stop, _PIECE):
        batch = store.read(a, min(stop, a + _PIECE))
        pieces.append((home.prepare(batch.X, first=a), batch.y, batch.sample_weight))
    rows, *others = zip(*pieces, strict=True)
    return (join_rows(rows), *map(np.concatenate, others))


class Team:
    """All shards of a fit, in this process; rows on disk are read one shard ahead."""

    def __init__(
        self, shards: Sequence[Shard], progress: Callable[[int, int], None] | None = None,
        folder: ScratchFolder | None = None,
    ) -> None:  # fmt: skip
        self.shards = list(shards)
        self._progress, self._folder = progress, folder

    @property
    def starts(self) -> IntArray:
        return np.array([shard.start for shard in self.shards])

    @property
    def facts(self) -> list[Facts]:
        return [shard.facts for shard in self.shards]

    def ask(
        self, method: str, *args: Any, each: Sequence[tuple[Any, ...] | None] | None = None
    ) -> list[Any]:
        """Call a method of all shards and return the results in order.

        `each` holds further arguments per shard; a shard with None is skipped and gives None.
        """
        answers = []
        for i, shard in enumerate(self._visited(method in Shard.READS)):
            more = () if each is None else each[i]
            answers.append(None if more is None else getattr(shard, method)(*args, *more))
            if self._progress is not None and method in Shard.READS:
                self._progress(i + 1, len(self.shards))
        return answers

    def _visited(self, reads: bool) -> Iterator[Shard]:
        if not reads or all(shard.store is None for shard in self.shards):
            yield from self.shards
            return
        with ThreadPoolExecutor(1, "kernelgrad-read") as reader:
            waiting = reader.submit(self.shards[0].load)
            for i, shard in enumerate(self.shards):
                waiting.result()
                if i + 1 < len(self.shards):
                    waiting = reader.submit(self.shards[i + 1].load)
                try:
                    yield shard
                finally:
                    shard.unload()


def joined_samples(samples: Sequence[HessianSample]) -> HessianSample:
    if len(samples) == 1:
        return samples[0]
    return HessianSample(
        join_rows([s.rows for s in samples]),
        np.concatenate([s.share for s in samples]),
        np.concatenate([s.curvature for s in samples], axis=1),
        np.concatenate([s.responses for s in samples], axis=1),
        np.concatenate([s.weight for s in samples]),
    )


def best_drawn(
    drawn: Sequence[tuple[Float64Array, IntArray]], width: int
) -> tuple[Float64Array, IntArray]:
    """Return the `width` largest keys of all and their rows, in the order of the rows."""
    keys, rows = (np.concatenate([part[i] for part in drawn]) for i in (0, 1))
    if len(keys) > width:
        best = np.sort(np.argpartition(-keys, width - 1)[:width])
        keys, rows = keys[best], rows[best]
    return keys, rows


def hashes_of(rows: ExactRows) -> AnyArray:
    """Return a hash of each row, of all its parts where the kernel has several."""
    total = row_hashes(rows.values)
    for part in rows.parts:
        total = total * np.uint64(31) + hashes_of(part)
    return np.asarray(total)
