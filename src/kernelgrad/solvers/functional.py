"""What all solvers over random-feature blocks share: iterates, updates, trackers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernelgrad._typing import AnyArray, Float32Array, Float64Array, FloatArray, Matrix
from kernelgrad.expansions import RandomFeatureExpansion
from kernelgrad.features import FeatureStream, InputScaling
from kernelgrad.solvers.base import Problem, StepInfo, Tracker, TrainBatch


@dataclass(frozen=True)
class BlockUpdate:
    """``x <- keep (x + momentum v)``, plus delta on one block; then the average moves to x.

    Attributes
    ----------
    block : int
    delta : float32 array (planes, block_size, C)
    keep : float64 array (C,)
    momentum : float
    weight : float
        Of the new x in the average.
    """

    block: int
    delta: Float32Array
    keep: Float64Array
    momentum: float
    weight: float


class Iterates:
    """Iterate x, velocity v and average a over one feature stream.

    Velocity and average are stored only when they are used.
    """

    def __init__(
        self, x: RandomFeatureExpansion, v: RandomFeatureExpansion | None,
        a: RandomFeatureExpansion | None,
    ) -> None:  # fmt: skip
        self.x = x
        self.v = v
        self.a = a

    @classmethod
    def zeros(
        cls, stream: FeatureStream, intercept: AnyArray, *, momentum: bool, average: bool
    ) -> Iterates:
        """Return iterates without any block."""
        x = RandomFeatureExpansion(stream, len(intercept), intercept)
        return cls(x, x.copy() if momentum else None, x.copy() if average else None)

    def copy(self) -> Iterates:
        """Return iterates with their own coefficients."""
        v = None if self.v is None else self.v.copy()
        a = None if self.a is None else self.a.copy()
        return Iterates(self.x.copy(), v, a)

    def lookahead(self, momentum: float) -> RandomFeatureExpansion:
        """Return ``x + momentum v``, where Nesterov's method takes the gradient."""
        if self.v is None or momentum == 0.0 or self.x.n_blocks == 0:
            return self.x
        look = self.x.copy()
        look.coef[:] += np.float32(momentum) * self.v.coef
        return look

    def set_intercept(self, intercept: Float64Array) -> None:
        """Replace the intercept of all functions."""
        for e in (self.x, self.v, self.a):
            if e is not None:
                e.intercept = np.array(intercept, np.float64)

    def apply(self, update: BlockUpdate) -> None:
        """Apply one update to all stored functions; the block may be the next new one."""
        for e in (self.x, self.v, self.a):
            while e is not None and e.n_blocks <= update.block:
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
        """The function to predict with: the average where there is one."""
        return self.a if self.a is not None else self.x


class BlockTracker(Tracker):
    """Responses of fixed rows under the same recursion as the coefficients."""

    def __init__(self, iterates: Iterates, X: Matrix) -> None:
        self._iterates = iterates
        stream = iterates.x.stream
        self._X = stream.prepare(X)

        def respond(e: RandomFeatureExpansion | None) -> Float32Array | None:
            if e is None:
                return None
            out = np.zeros((self._X.shape[0], e.n_outputs), np.float32)
            e.add_prepared(self._X, out)
            return out

        x = respond(iterates.x)
        assert x is not None
        self._x: Float32Array = x
        self._v = respond(iterates.v)
        self._a = respond(iterates.a)

    def advance(self, info: StepInfo) -> None:
        """Apply one :class:`BlockUpdate`: the price is one block of features."""
        u: BlockUpdate = info.update
        x = self._x if self._v is None else self._x + np.float32(u.momentum) * self._v
        x = u.keep.astype(np.float32) * x
        self._iterates.x.add_block_prepared(self._X, u.block, u.delta, x)
        if self._v is not None:
            self._v = x - self._x
        self._x = x
        if self._a is not None:
            self._a += np.float32(u.weight) * (x - self._a)

    def raw_prediction(self) -> FloatArray:
        """Return the responses of the result, with the intercept."""
        f = self._x if self._a is None else self._a
        return f + self._iterates.x.intercept


def build_stream(
    problem: Problem, batch: TrainBatch, block_size: Callable[[int], int]
) -> FeatureStream:
    """Resolve the kernel on the first batch and return its feature stream.

    `block_size` is asked for the frequencies per block, given the planes of the kernel's map.
    """
    scaling = InputScaling.fit(
        batch.X,
        problem.kernel,
        standardize=problem.standardize,
        sample_weight=batch.sample_weight,
    )
    # rules see rows that are scaled but not shifted: "scale" is scikit-learn's
    unshifted = InputScaling(None, scaling.scale)
    kernel = problem.kernel.resolve(unshifted.apply(batch.X), problem.seed)
    size = block_size(kernel.feature_map(problem.n_features_in, problem.seed, 1).planes)
    return FeatureStream(
        kernel, problem.n_features_in, problem.seed, size, scaling, problem.cache_bytes
    )
