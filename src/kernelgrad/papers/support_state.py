"""Solvers that keep their support rows only, or whose result is an average of functions."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy.sparse as sp

from kernelgrad.files.records import Record
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.kernels import ExactRows
from kernelgrad.solvers import contract
from kernelgrad.solvers.contract import Problem
from kernelgrad.solvers.support import KernelSolver, KernelState, RowsState
from kernelgrad.solvers.trackers import Responses, Update
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray


@dataclass(kw_only=True)
class SupportState(KernelState):
    """State of a solver that keeps its S support rows, also in files."""

    nest: ClassVar[str] = "state"

    rows: Any
    numbers: IntArray = contract.sized("S", kinds="i")  # in the source, or -1
    diagonal: Float64Array = contract.sized("S")  # k(x_s, x_s)

    @property
    def prepared(self) -> ExactRows:
        rows: ExactRows = self.rows
        return rows

    def describe_parts(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        ones = np.ones((self.prepared.n_rows, 1))
        support = SupportExpansion(self.exact, self.prepared, ones, np.zeros(1))
        values, arrays = support.describe()
        return {"support": values}, arrays

    @classmethod
    def restore_parts(cls, problem: Problem, record: Record) -> dict[str, Any]:
        support = record.beside("support")
        exact = ExactKernel.restore(support)
        rows = exact.restore_rows(support)
        support.array("coef", "S", 1)
        support.array("intercept", 1)
        return {"exact": exact, "rows": rows}

    def find(self, rows: ExactRows, numbers: IntArray | None) -> IntArray:
        """Return the place of each row in the support, or -1.

        An entry of the same number with another row is of another source: it loses its number.
        """
        slot = np.full(rows.n_rows, -1, np.int64)
        S = len(self.numbers)
        if numbers is None or S == 0:
            return slot
        order = np.argsort(self.numbers, kind="stable")
        entries = order[np.searchsorted(self.numbers, numbers, sorter=order).clip(0, S - 1)]
        index = np.flatnonzero(self.numbers[entries] == numbers)
        if len(index):
            entry = entries[index]
            distinct, back = np.unique(entry, return_inverse=True)
            same = equal_rows(self.rows.take(distinct).take(back), rows.take(index))
            slot[index[same]] = entry[same]
            self.numbers[entry[~same]] = -1
        return slot


def equal_rows(A: ExactRows, B: ExactRows) -> AnyArray:
    """Return which rows of A are those of B, shape (n,)."""
    if sp.issparse(A.values) or sp.issparse(B.values):
        different = sp.csr_matrix(A.values) != sp.csr_matrix(B.values)
        equal: AnyArray = np.asarray(different.getnnz(axis=1) == 0)
    else:
        equal = (A.values == B.values).all(axis=1)
    for a, b in zip(A.parts, B.parts, strict=True):
        equal &= equal_rows(a, b)
    return equal


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
