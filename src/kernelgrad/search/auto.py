"""What estimators choose from data: the solver, the regularisation and the bandwidth."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelgrad.compute.memory import LEAST_LIMIT
from kernelgrad.data.memory import bytes_needed
from kernelgrad.kernels import Kernel, PrecomputedKernel
from kernelgrad.losses import Loss
from kernelgrad.solvers import (
    DSG,
    BlockDescent,
    DirectSolve,
    NewtonCG,
    Solver,
    WorkingSet,
)
from kernelgrad.solvers.exact import direct_bytes, newton_bytes
from kernelgrad.solvers.registry import get_solver
from kernelgrad.solvers.support import least_bytes
from kernelgrad.validation import check_name

GIVEN = "given as a parameter"

_DIRECT_ROWS = 16_384  # rows beyond which their cube costs more than block descent
_NARROW, _WIDE = 4, 16  # a product with one or two outputs costs as much as with four
# A stream has no end, so each of its rows must cost the same; momentum would add up noise of
# its small batches until the function diverges.
_STREAM: dict[str, Any] = {"max_features": 2**14, "momentum": 0.0}


def choose_solver(
    loss: Loss,
    kernel: Kernel,
    *,
    rows: str,
    n_rows: int = 0,
    row_bytes: float = 0.0,
    n_outputs: int = 1,
    memory: float = np.inf,
    stops: bool = False,
    penalised: bool = True,
) -> tuple[Solver[Any], str]:
    """Return the solver that ``solver="auto"`` stands for, and the reason.

    docs/solvers.md has the table of rules, of which the first that applies decides.

    Rows fit where the memory holds a copy of them, the copy that the kernel works on, and 72
    bytes for each of the n x C responses; for the exact solution also n x n values, float64 for
    the solver "direct", float32 for "newton". That takes some hundred products with the kernel
    matrix: ``n^2 C`` is small up to 1.6e9, where C counts as 4 if it is less than 3, and else
    is rounded up to a multiple of 16, as products take that time. Large working sets take up
    to 100,000 rows with ``n^2 (1 + B / 500)`` up to 6e10, for one class 6e9, B the bytes of a
    row.

    `row_bytes` are those of all rows as given, `n_outputs` outputs times values of alpha; with
    `stops` held-out rows may end the fit before its optimum; `penalised` is False where alpha
    is 0, which leaves the coefficients of a loss with kinks without bounds.
    """
    check_name(rows, ("memory", "disk", "stream"), "place of rows")
    if loss.name == "perceptron":
        return get_solver("perceptron"), "the loss is the perceptron's"
    unlabelled = not loss.tasks & {"classification", "regression"}
    dsg = DSG(**_STREAM) if rows == "stream" else DSG()
    # the one-class loss may ask for the paper's steps of the level
    kinked = penalised and loss.name in WorkingSet.losses
    kinked = kinked and getattr(loss, "tau", "quantile") == "quantile" and rows == "memory"
    # products of rows of 500 bytes cost as much as the rest of a kernel value
    price = n_rows * (n_rows + row_bytes / 500.0)
    sets = least_bytes(n_rows, n_outputs, row_bytes, WorkingSet.least_rows)
    small = n_rows <= 100_000 and sets <= max(memory, LEAST_LIMIT)
    # 6e10 kernel values take a minute; for one class doubly stochastic gradients are sooner
    by_sets = kinked and price <= (6e9 if unlabelled else 6e10) and small
    if unlabelled and kernel.has_random_features and (not by_sets or _is_costly(kernel)):
        return dsg, "averaged random features regularise an estimate without labels"
    if rows == "memory":
        needed = bytes_needed(n_rows, row_bytes, n_outputs)
        if needed <= memory:
            if kernel.has_random_features and _is_costly(kernel):
                return BlockDescent(
                    blocks="features"
                ), "rows and responses fit in memory, exact kernel values are costly"
            # values of functions and given matrices may be no kernel's, which both refuse
            smooth = kernel.has_random_features and loss.is_smooth
            if (
                loss.name == "squared"
                and smooth
                and not stops
                and n_rows <= _DIRECT_ROWS
                and direct_bytes(n_rows, n_outputs, row_bytes) <= memory
            ):
                return DirectSolve(), f"up to {_DIRECT_ROWS:,} rows are solved exactly"
            width = _NARROW if n_outputs < 3 else -(-n_outputs // _WIDE) * _WIDE
            if (
                smooth
                and float(n_rows) ** 2 * width <= 1.6e9  # ten seconds on two cores
                and newton_bytes(n_rows, n_outputs, row_bytes) <= memory
            ):
                return (
                    NewtonCG(),
                    "the kernel matrix fits in memory, and the loss is smooth",
                )
            if by_sets:
                return WorkingSet(), "the loss has kinks: exact by large working sets"
            return BlockDescent(), "rows and responses fit in memory"
        why = f"rows and responses need {needed:.3g} bytes, more than {memory:.3g}"
    else:
        why = "the rows are on disk"
    if rows != "stream" and not unlabelled:
        if kernel.has_random_features and _is_costly(kernel):
            return BlockDescent(blocks="features"), f"{why}, kernel values are costly"
        if not isinstance(kernel, PrecomputedKernel):
            return BlockDescent(), why
    why = "the rows are a stream" if rows == "stream" else why
    if kernel.has_random_features or unlabelled:
        return dsg, why
    return get_solver("pegasos"), f"{why}, and the kernel has no random features"


def settled_solver(
    chosen: tuple[Solver[Any], str], n_rows: int, n_outputs: int, ridge: float
) -> tuple[Solver[Any], str]:
    """Return the solver for the squared loss once ``ridge = n alpha`` is known.

    From 4,096 rows on, a large ridge needs few products with the kernel matrix, which then cost
    less than a factorisation. Products cost more with more outputs, a factorisation does not.
    """
    large = ridge >= 0.1 * (1 if n_outputs < 3 else _WIDE / _NARROW)
    if isinstance(chosen[0], DirectSolve) and n_rows > 4096 and large:
        return NewtonCG(), "the kernel matrix fits in memory, and the penalty is large"
    return chosen


def _is_costly(kernel: Kernel) -> bool:
    parts = (kernel, *kernel.get_params(deep=True).values())
    return any(isinstance(part, Kernel) and part.is_costly for part in parts)
