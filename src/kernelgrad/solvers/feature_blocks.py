"""What all solvers over random-feature blocks share: iterates, updates, trackers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from kernelgrad.functions.expansions import RandomFeatureExpansion
from kernelgrad.functions.features import FeatureStream
from kernelgrad.solvers import contract
from kernelgrad.solvers.contract import Problem, StepInfo, Tracker, TrainBatch
from kernelgrad.types import AnyArray, Float32Array, Float64Array, FloatArray, Matrix


@dataclass(frozen=True)
class BlockUpdate:
    """``x <- keep (x + momentum v)``, plus delta on one block; then the average moves to x."""

    block: int
    delta: Float32Array  # (planes, block_size, C)
    keep: Float64Array  # (C,)
    momentum: float
    weight: float  # weight of the new x in the average


@dataclass(eq=False)
class Iterates:
    """Iterate x, velocity v and average a over one feature stream.

    Velocity and average are stored only when they are used.
    """

    x: RandomFeatureExpansion
    v: RandomFeatureExpansion | None
    a: RandomFeatureExpansion | None

    @classmethod
    def zeros(
        cls, stream: FeatureStream, intercept: AnyArray, *, momentum: bool, average: bool
    ) -> Iterates:
        x = RandomFeatureExpansion(stream, len(intercept), intercept)
        return cls(x, x.copy() if momentum else None, x.copy() if average else None)

    def parts(self) -> Iterator[tuple[str, RandomFeatureExpansion]]:
        for name, e in (("x", self.x), ("v", self.v), ("a", self.a)):
            if e is not None:
                yield name, e

    def copy(self) -> Self:
        return replace(self, **{name: e.copy() for name, e in self.parts()})

    def lookahead(self, momentum: float) -> RandomFeatureExpansion:
        """Return ``x + momentum v``, where Nesterov's method takes the gradient."""
        if self.v is None or momentum == 0.0 or self.x.n_blocks == 0:
            return self.x
        look = self.x.copy()
        look.coef[:] += np.float32(momentum) * self.v.coef
        return look

    def set_intercept(self, intercept: Float64Array) -> None:
        for _, e in self.parts():
            e.intercept = np.array(intercept, np.float64)

    def apply(self, update: BlockUpdate) -> None:
        for _, e in self.parts():
            while e.n_blocks <= update.block:
                e.add_block()
        x, keep = self.x, update.keep.astype(np.float32)
        if self.v is None:
            x.coef[:] *= keep
            x.block(update.block)[:] += update.delta
        else:
            old = x.coef.copy()
            x.coef[:] += np.float32(update.momentum) * self.v.coef
            x.coef[:] *= keep
            x.block(update.block)[:] += update.delta
            np.subtract(x.coef, old, out=self.v.coef)
        if self.a is not None:
            self.a.average_towards(x, update.weight)

    @property
    def result(self) -> RandomFeatureExpansion:
        return self.a if self.a is not None else self.x


class BlockCount(Iterates):
    """Iterates of which only the number of blocks is kept; trackers hold the responses."""

    def apply(self, update: BlockUpdate) -> None:
        for _, e in self.parts():
            e.n_blocks = max(e.n_blocks, update.block + 1)


class BlockTracker(Tracker):
    """Responses of fixed rows under the same recursion as the coefficients.

    `rows` went through ``stream.prepare``; `responses` of x, v and a are predicted from the
    coefficients unless they are given.
    """

    stored = ("responses",)

    def __init__(
        self, iterates: Iterates, rows: Matrix,
        responses: dict[str, Float32Array] | None = None,
    ) -> None:  # fmt: skip
        self._iterates = iterates
        self.rows = rows
        if responses is None:
            responses = {}
            for name, e in iterates.parts():
                out = np.zeros((rows.shape[0], e.n_outputs), np.float32)
                e.add_prepared(rows, out)
                responses[name] = out
        self.responses = responses

    def advance(self, info: StepInfo) -> None:
        u: BlockUpdate = info.update
        old = self.responses
        with np.errstate(over="ignore", invalid="ignore"):  # the next step reports divergence
            x = u.keep.astype(np.float32) * self.lookahead(u.momentum)
            self._iterates.x.add_block_prepared(self.rows, u.block, u.delta, x)
        new = {"x": x}
        if "v" in old:
            new["v"] = x - old["x"]
        if "a" in old:
            new["a"] = old["a"] + np.float32(u.weight) * (x - old["a"])
        self.responses = new

    def lookahead(self, momentum: float) -> Float32Array:
        """Return the responses of ``x + momentum v``, without the intercept."""
        if "v" not in self.responses:
            return self.responses["x"]
        return self.responses["x"] + np.float32(momentum) * self.responses["v"]

    def raw_prediction(self) -> FloatArray:
        f = self.responses.get("a", self.responses["x"])
        return f + self._iterates.result.intercept


class RowMemory:
    """Responses of a batch that comes again in every step.

    The rows are recognised by a digest, so that a fit that is resumed on the same rows goes
    on from the same bits. Copies and pickles hold responses and digest, not the rows.
    """

    def __init__(self, digest: bytes, responses: dict[str, Float32Array] | None) -> None:
        self.digest = digest
        self._responses = responses
        self._batch: TrainBatch | None = None
        self._tracker: BlockTracker | None = None

    def tracker(self, iterates: Iterates, batch: TrainBatch) -> BlockTracker:
        """Return the tracker of the rows of `batch`, predicted afresh if they are new."""
        if self._tracker is None or batch is not self._batch:
            digest = contract.rows_digest(batch.X)
            responses = self.responses if digest == self.digest else None
            if responses and any(len(f) != batch.n_rows for f in responses.values()):
                responses = None  # a file says so
            rows = iterates.x.stream.prepare(batch.X)
            self._tracker = BlockTracker(iterates, rows, responses)
            self.digest, self._batch, self._responses = digest, batch, None
        return self._tracker

    @property
    def responses(self) -> dict[str, Float32Array] | None:
        return self._responses if self._tracker is None else self._tracker.responses

    def copy(self) -> RowMemory:
        """Return a memory of its own; responses are replaced by steps, never changed."""
        return RowMemory(self.digest, self.responses)

    def __getstate__(self) -> dict[str, object]:
        return self.copy().__dict__


def build_stream(
    problem: Problem, batch: TrainBatch, block_size: Callable[[int], int]
) -> FeatureStream:
    """Resolve the kernel on the first batch and return its feature stream.

    `block_size` is asked for the frequencies per block, given the planes of the kernel's map.
    """
    scaling, kernel = contract.fit_scaling(problem, batch)
    width = scaling.width(problem.n_features_in)
    size = block_size(kernel.feature_map(width, problem.seed, 1).planes)
    stream = FeatureStream(
        kernel, width, problem.seed, size, scaling, problem.resources.cache_bytes
    )
    stream.device = problem.resources.device
    return stream
