"""Solvers whose result is an average of the functions that their steps led to."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from kernelgrad.kernels import ExactRows
from kernelgrad.papers.support_state import SupportState
from kernelgrad.solvers.support import KernelSolver, RowsState, SupportTracker
from kernelgrad.types import Float64Array, FloatArray, IntArray

K = TypeVar("K", bound=RowsState | SupportState)


@dataclass(frozen=True)
class AverageUpdate:
    """The changes of the functions w (current) and v (average) on all rows in one step.

    ``w <- scale w + sum_i k(x_i, .) moved_i`` and
    ``v <- keep v + blend w_before + sum_i k(x_i, .) drift_i`` over the rows x_i of ``rows``;
    scale, keep and blend are (C,), moved and drift (m, C). Those rows are number ``index`` of
    ``among``, or all of it.
    """

    among: ExactRows
    scale: Float64Array
    moved: Float64Array
    keep: Float64Array
    blend: Float64Array
    drift: Float64Array
    index: IntArray | None = None

    @property
    def rows(self) -> ExactRows:
        return self.among if self.index is None else self.among.take(self.index)


class AverageTracker(SupportTracker):
    """Responses of the current function and of the average."""

    def functions(self) -> list[Float64Array]:
        return list(self._solver.functions(self._state))

    def _moved(self, update: Any) -> list[Float64Array]:
        (w, v), C = self._both, len(update.scale)
        parts = np.concatenate([update.moved, update.drift], axis=1)
        more = self._state.exact.products(self._rows, update.rows, parts)
        v = update.keep * v + update.blend * w + more[:, C:]
        return [update.scale * w + more[:, :C], v]

    def raw_prediction(self) -> FloatArray:
        scale = self._solver.scale(self._state)
        return np.asarray(scale * self._both[1] + self._solver.intercept(self._state))


class AveragedSolver(KernelSolver[K]):
    """Base of the solvers whose result is ``scale * average + intercept``."""

    tracker: ClassVar[Any] = AverageTracker

    @abstractmethod
    def functions(self, state: K) -> tuple[Float64Array, Float64Array]:
        """Return the coefficients of the current function and of the average, (S, C) each."""

    def scale(self, state: K) -> Float64Array:
        """Return the factor of the average in the result, (C,)."""
        return np.ones(len(self.intercept(state)))

    def coefficients(self, state: K) -> Float64Array:
        return self.scale(state) * self.functions(state)[1]
