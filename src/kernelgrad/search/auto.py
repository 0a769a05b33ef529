"""What estimators choose from data: the solver, the regularisation and the bandwidth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kernelgrad.compute.memory import LEAST_LIMIT
from kernelgrad.data.base import bytes_needed
from kernelgrad.kernels import Kernel, PrecomputedKernel
from kernelgrad.losses import Loss, scalar
from kernelgrad.solvers import DSG, BlockDescent, DirectSolve, NewtonCG, Solver, WorkingSet
from kernelgrad.solvers.exact import direct_bytes, newton_bytes
from kernelgrad.solvers.registry import get_solver
from kernelgrad.solvers.support import least_bytes
from kernelgrad.validation import check_name

GIVEN = "given as a parameter"

_VALUE_SECONDS, _FLOP_SECONDS = 4e-8, 3e-11  # on a slow core: a kernel value, an operation
_DIRECT_ROWS = 16_384  # rows beyond which their cube costs more than block descent
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

    The first rule that applies decides; docs/solvers.md has the same table.

    `row_bytes` are those of all rows as the user passes them, `n_outputs` outputs times values
    of alpha; with `stops` held-out rows may end the fit before its optimum; `penalised` is
    False where alpha is 0, which leaves the coefficients of a loss with kinks without bounds.
    """
    check_name(rows, ("memory", "disk", "stream"), "place of rows")
    in_memory, stream = rows == "memory", rows == "stream"
    unlabelled = not loss.tasks & {"classification", "regression"}
    features = kernel.has_random_features
    costly = features and _is_costly(kernel)
    needed = bytes_needed(n_rows, row_bytes, n_outputs)
    fits = in_memory and needed <= memory
    # values of a user's functions and matrices may be no kernel's, which exact solvers refuse
    smooth = fits and features and loss.is_smooth
    exact = smooth and loss.code == scalar.SQUARED and not stops and n_rows <= _DIRECT_ROWS
    # products with one or two outputs cost as much as with 4, others as a multiple of 16
    width = 4 if n_outputs < 3 else -(-n_outputs // 16) * 16
    products = smooth and float(n_rows) ** 2 * width <= 1.6e9  # ten seconds on two cores
    # the one-class loss may ask for the paper's steps of the level
    kinked = penalised and loss.name in WorkingSet.losses
    kinked = kinked and getattr(loss, "tau", "quantile") == "quantile" and in_memory
    # products of rows of 500 bytes cost as much as the rest of a kernel value; 6e10 values take
    # a minute, and for one class doubly stochastic gradients are sooner
    price = n_rows * (n_rows + row_bytes / 500.0)
    least = least_bytes(n_rows, n_outputs, row_bytes, WorkingSet.least_rows)
    sets = kinked and n_rows <= 100_000 and price <= (6e9 if unlabelled else 6e10)
    sets = sets and least <= max(memory, LEAST_LIMIT)
    blocks = not stream and not unlabelled
    by_features = partial(BlockDescent, blocks="features")
    dsg = partial(DSG, **_STREAM) if stream else DSG
    why = f"rows and responses need {needed:.3g} bytes, more than {memory:.3g}"
    if not in_memory:
        why = "the rows are a stream" if stream else "the rows are on disk"
    fit = "rows and responses fit in memory"
    rules: list[tuple[bool, Callable[[], Solver[Any]], str]] = [
        (loss.name == "perceptron", partial(get_solver, "perceptron"),
         "the loss is the perceptron's"),
        (unlabelled and features and (costly or not sets), dsg,
         "averaged random features regularise an estimate without labels"),
        (fits and costly, by_features, f"{fit}, exact kernel values are costly"),
        (exact and direct_bytes(n_rows, n_outputs, row_bytes) <= memory, DirectSolve,
         f"up to {_DIRECT_ROWS:,} rows are solved exactly"),
        (products and newton_bytes(n_rows, n_outputs, row_bytes) <= memory, NewtonCG,
         "the kernel matrix fits in memory, and the loss is smooth"),
        (fits and sets, WorkingSet, "the loss has kinks: exact by large working sets"),
        (fits, BlockDescent, fit),
        (blocks and costly, by_features, f"{why}, kernel values are costly"),
        (blocks and not isinstance(kernel, PrecomputedKernel), BlockDescent, why),
        (features or unlabelled, dsg, why),
        (True, partial(get_solver, "pegasos"), f"{why}, and the kernel has no random features"),
    ]  # fmt: skip
    return next((make(), reason) for applies, make, reason in rules if applies)


def settled_solver(
    chosen: tuple[Solver[Any], str], n_rows: int, n_outputs: int, ridge: float,
    seconds: float = np.inf,
) -> tuple[Solver[Any], str]:  # fmt: skip
    """Return the solver once ``ridge = n alpha`` and the `seconds` that are left are known.

    Block descent has a useful function soon, an exact solver has none before its end. From
    4,096 rows on, a large ridge needs few products with the kernel matrix, which then cost less
    than a factorisation. Products cost more with more outputs, a factorisation does not.
    """
    exact = isinstance(chosen[0], DirectSolve | NewtonCG)
    if exact and _VALUE_SECONDS * n_rows**2 + _FLOP_SECONDS * n_rows**3 / 3 > seconds:
        return BlockDescent(), "time_limit is too short for an exact solution"
    large = ridge >= (0.1 if n_outputs < 3 else 0.4)
    if isinstance(chosen[0], DirectSolve) and n_rows > 4096 and large:
        return NewtonCG(), "the kernel matrix fits in memory, and the penalty is large"
    return chosen


def _is_costly(kernel: Kernel) -> bool:
    parts = (kernel, *kernel.get_params(deep=True).values())
    return any(isinstance(part, Kernel) and part.is_costly for part in parts)
