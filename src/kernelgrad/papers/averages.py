"""Solvers whose result is an average of the functions that their steps led to."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

import numpy as np

from kernelgrad.functions.exact import ExactKernel
from kernelgrad.kernels import ExactRows
from kernelgrad.papers.support_state import SupportState
from kernelgrad.solvers.support import KernelSolver, RowsState
from kernelgrad.solvers.trackers import Responses, Update
from kernelgrad.types import Float64Array, FloatArray

K = TypeVar("K", bound=RowsState | SupportState)


def average_update(
    exact: ExactKernel, rows: ExactRows, *, scale: Float64Array, moved: Float64Array,
    keep: Float64Array, blend: Float64Array, drift: Float64Array,
) -> Update:  # fmt: skip
    """Return the update of the functions w (current) and v (average) in one step.

    ``w <- scale w + sum_i k(x_i, .) moved_i`` and
    ``v <- keep v + blend w_before + sum_i k(x_i, .) drift_i`` over the rows x_i; scale, keep
    and blend are (C,), moved and drift (m, C).
    """
    parts, C = np.concatenate([moved, drift], axis=1), len(scale)

    def update(tracked: ExactRows, responses: Responses) -> Responses:
        more = exact.products(tracked, rows, parts)
        w, v = responses["x"], responses["a"]
        return {"x": scale * w + more[:, :C], "a": keep * v + blend * w + more[:, C:]}

    return update


class AveragedSolver(KernelSolver[K]):
    """Base of the solvers whose result is ``scale * average + intercept``."""

    @abstractmethod
    def functions(self, state: K) -> dict[str, Float64Array]:
        """Return the coefficients of the iterate, "x", and of the average, "a", (S, C) each."""

    def scale(self, state: K) -> Float64Array:
        """Return the factor of the average in the result, (C,)."""
        return np.ones(len(self.intercept(state)))

    def coefficients(self, state: K) -> Float64Array:
        return self.scale(state) * self.functions(state)["a"]

    def _output(self, state: K, responses: Responses) -> FloatArray:
        return np.asarray(self.scale(state) * responses["a"] + self.intercept(state))
