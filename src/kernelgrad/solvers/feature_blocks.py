"""What all solvers over random-feature blocks share: iterates, updates, responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from kernelgrad.functions.expansions import RandomFeatureExpansion
from kernelgrad.functions.features import FeatureStream
from kernelgrad.solvers import contract
from kernelgrad.solvers.contract import Problem, TrainBatch
from kernelgrad.solvers.trackers import TrackedResponses
from kernelgrad.types import AnyArray, Float32Array, Float64Array, FloatArray, Matrix


@dataclass(frozen=True)
class BlockUpdate:
    """``x <- keep (x + momentum v)``, plus delta on one block; then the average moves to x."""

    stream: FeatureStream
    block: int
    delta: Float32Array  # (planes, block_size, C)
    keep: Float64Array  # (C,)
    momentum: float
    weight: float  # weight of the new x in the average

    def __call__(self, rows: Matrix, responses: TrackedResponses) -> TrackedResponses:
        """Return the responses of prepared rows, which follow the same recursion."""
        with np.errstate(over="ignore", invalid="ignore"):  # the next step reports divergence
            x = self.keep.astype(np.float32) * lookahead(responses, self.momentum)
            self.stream.add_block(rows, self.block, self.delta, x)
        moved: TrackedResponses = {"x": x}
        if "v" in responses:
            moved["v"] = x - responses["x"]
        if "a" in responses:
            moved["a"] = responses["a"] + np.float32(self.weight) * (x - responses["a"])
        return moved


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

    def responses(self, rows: Matrix) -> TrackedResponses:
        """Return the responses of prepared rows without the intercept, (n, C) each."""
        responses: TrackedResponses = {}
        for name, e in self.parts():
            responses[name] = np.zeros((rows.shape[0], e.n_outputs), np.float32)
            e.add_prepared(rows, responses[name])
        return responses

    def output(self, responses: TrackedResponses) -> FloatArray:
        return responses.get("a", responses["x"]) + self.result.intercept


class BlockCount(Iterates):
    """Iterates of which only the number of blocks is kept; a tracker holds the responses."""

    def apply(self, update: BlockUpdate) -> None:
        for _, e in self.parts():
            e.n_blocks = max(e.n_blocks, update.block + 1)


def lookahead(responses: TrackedResponses, momentum: float) -> FloatArray:
    """Return the responses of ``x + momentum v``, without the intercept."""
    if "v" not in responses:
        return responses["x"]
    return responses["x"] + np.float32(momentum) * responses["v"]


class RowMemory:
    """Responses of a batch that comes again in every step.

    The rows are recognised by a digest, so that a fit that is resumed on the same rows goes
    on from the same bits. Copies and pickles hold responses and digest, not the rows.
    """

    def __init__(self, digest: bytes = b"", responses: TrackedResponses | None = None) -> None:
        self.digest, self.responses = digest, responses
        self.rows: Matrix | None = None
        self._batch: TrainBatch | None = None

    def load(self, iterates: Iterates, batch: TrainBatch) -> tuple[Matrix, TrackedResponses]:
        """Return the rows of `batch`, prepared, and their responses, afresh if they are new."""
        if self.rows is None or batch is not self._batch:
            digest, responses = contract.rows_digest(batch.X), self.responses or {}
            self.rows = iterates.x.stream.prepare(batch.X)
            sizes = {len(f) for f in responses.values()}  # those of a file may be others
            if digest != self.digest or sizes != {batch.n_rows}:
                responses = iterates.responses(self.rows)
            self.digest, self._batch, self.responses = digest, batch, responses
        assert self.responses is not None
        return self.rows, self.responses

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
