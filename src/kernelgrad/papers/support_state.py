"""The state of solvers that keep their support rows only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from kernelgrad.files.records import Record
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.kernels import ExactRows
from kernelgrad.solvers import contract
from kernelgrad.solvers.contract import Problem
from kernelgrad.solvers.support import KernelState
from kernelgrad.types import AnyArray, Float64Array, IntArray


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
