"""The solver that rows, loss and kernel need, and the seconds that solvers take."""

from functools import partial
from typing import Any

import numpy as np

from kernelgrad.compute.compiling import clock
from kernelgrad.compute.memory import LEAST_LIMIT
from kernelgrad.compute.threads import get_num_threads, single_threaded_blas
from kernelgrad.data.base import bytes_needed
from kernelgrad.kernels import Kernel, PrecomputedKernel
from kernelgrad.losses import Loss, scalar
from kernelgrad.solvers import DSG, BlockDescent, DirectSolve, NewtonCG, Solver, WorkingSet
from kernelgrad.solvers.exact import direct_bytes, newton_bytes
from kernelgrad.solvers.registry import get_solver
from kernelgrad.solvers.support import least_bytes

READING_SECONDS = 2.5e-7  # seconds that a number of a file takes to read and to prepare
_SEARCH_SECONDS = 2.0  # seconds of one core that a search takes, whatever the solver
_LOADING_SECONDS = 1.0  # seconds that loading compiled loops takes
_PRODUCT_SECONDS = 1.3e-3  # seconds of a product of 400 x 400 float32 matrices on one core
_DEAR_BYTES = 4e9  # bytes of memory that make a second twice as dear
_TOL = 3e-3  # gain at which block descent stops
_MANY_ROWS = 200_000  # rows beyond which that gain grows in proportion to them
_EXACT_PRICE = 1.5  # ratio of seconds that smaller errors of an exact solution are worth
_DIRECT_ROWS = 16_384  # rows beyond which their cube costs more than block descent
# A stream has no end, so each of its rows must cost the same; momentum would add up noise of
# its small batches until the function diverges.
_STREAM: dict[str, Any] = {"max_features": 2**14, "momentum": 0.0}


def choose_solver(
    loss: Loss, kernel: Kernel, *, rows: str, n_rows: int = 0, row_bytes: float = 0.0,
    n_outputs: int = 1, memory: float = np.inf, stops: bool = False, penalised: bool = True,
) -> tuple[Solver[Any], str]:  # fmt: skip
    """Return the solver that ``solver="auto"`` stands for, and the reason.

    The first rule that applies decides; docs/solvers.md has the same table. `rows` are in
    "memory", on "disk" or a "stream".

    `row_bytes` are those of all rows as the user passes them, `n_outputs` outputs times values
    of alpha; with `stops` held-out rows may end the fit before its optimum; `penalised` is
    False where alpha is 0, which leaves the coefficients of a loss with kinks without bounds.
    """
    if loss.name == "perceptron":
        return get_solver("perceptron"), "the loss is the perceptron's"
    in_memory, stream = rows == "memory", rows == "stream"
    unlabelled = not loss.tasks & {"classification", "regression"}
    features = kernel.has_random_features
    costly = features and _is_costly(kernel)
    # the one-class loss may ask for the paper's steps of the level
    kinked = penalised and loss.name in WorkingSet.losses
    kinked = kinked and getattr(loss, "tau", "quantile") == "quantile" and in_memory
    # products of rows of 500 bytes cost as much as the rest of a kernel value; 6e10 values take
    # a minute, and for one class doubly stochastic gradients are sooner
    price = n_rows * (n_rows + row_bytes / 500.0)
    sets = kinked and n_rows <= 100_000 and price <= (6e9 if unlabelled else 6e10)
    if sets:
        least = least_bytes(n_rows, n_outputs, row_bytes, WorkingSet.least_rows)
        sets = least <= max(memory, LEAST_LIMIT)
    dsg = partial(DSG, **_STREAM) if stream else DSG
    if unlabelled and features and (costly or not sets):
        return dsg(), "averaged random features regularise an estimate without labels"
    needed = bytes_needed(n_rows, row_bytes, n_outputs)
    if in_memory and needed <= memory:
        why = "rows and responses fit in memory"
        if costly:
            return DSG(), f"{why}, exact kernel values are costly"
        # exact solvers refuse values of a user's functions, which may be no kernel's
        if features and loss.is_smooth:
            squared = loss.code == scalar.SQUARED and not stops
            direct = squared and n_rows <= _DIRECT_ROWS
            if direct and direct_bytes(n_rows, n_outputs, row_bytes) <= memory:
                return DirectSolve(), f"up to {_DIRECT_ROWS:,} rows are solved exactly"
            # products with one or two outputs cost as with 4, others as a multiple of 16
            width = 4 if n_outputs < 3 else -(-n_outputs // 16) * 16
            # ten seconds on two cores; the squared loss takes one system, other losses some
            products = float(n_rows) ** 2 * (max(width / 16, 1) if squared else width) <= 1.6e9
            if products and newton_bytes(n_rows, n_outputs, row_bytes) <= memory:
                return NewtonCG(), "the kernel matrix fits in memory, and the loss is smooth"
        if sets:
            return WorkingSet(), "the loss has kinks: exact by large working sets"
        return BlockDescent(), why
    why = f"rows and responses need {needed:.3g} bytes, more than {memory:.3g}"
    if not in_memory:
        why = "the rows are a stream" if stream else "the rows are on disk"
    if not (stream or unlabelled):
        if costly:
            return DSG(), f"{why}, kernel values are costly"
        if not isinstance(kernel, PrecomputedKernel):
            return BlockDescent(), why
    if features or unlabelled:
        return dsg(), why
    return get_solver("pegasos"), f"{why}, and the kernel has no random features"


def exact_solver(loss: Loss, kernel: Kernel) -> NewtonCG | WorkingSet | None:
    """Return what solves a problem of few rows exactly; None if nothing does.

    Values of a user's functions and matrices may be no kernel's, which exact solvers refuse.
    """
    if loss.is_smooth and kernel.has_random_features and not loss.adaptive_intercept:
        return NewtonCG()
    return WorkingSet() if loss.name in WorkingSet.losses else None


def predicted_costs(n_rows: int, n_outputs: int, ridge: float) -> dict[str, float]:
    """Return the seconds of one core that solvers take for the squared loss, by their names.

    The numbers were fitted to fits of 2,500 to 52,000 rows of ten columns. `ridge` is n alpha.
    A float64 factor, for a small ridge, takes twice the seconds of one in float32. Products
    with the kernel matrix cost more with more outputs, a factorisation does not. Block descent
    ends sooner where there is hardly any noise, or nearly nothing else.
    """
    n, outputs = float(n_rows), 1.0 if n_outputs < 3 else 2.75 * -(-n_outputs // 16)
    direct = (1.5e-8 * n**2 + 1.75e-12 * n**3) * (2.0 if ridge < 1e-5 else 1.0)
    products = min(1000.0, 10.0 + 10.0 * (0.01 / max(ridge, 1e-12)) ** 0.4)
    newton = n**2 * (7e-9 + 1.1e-10 * outputs * products)
    newton *= 1.5 if ridge < 2e-6 * n**0.5 else 1.0  # float64
    blocks = 40.0 * min(1.0, max(ridge, 1e-12) / 1e-4) ** 0.2
    blocks *= min(1.0, 0.3 / max(ridge, 1e-12)) ** 1.5
    block = _block_seconds(n_rows, n_outputs) * (_TOL / block_tol(n_rows, ridge)) ** 0.45
    return {"direct": direct, "newton": newton, "block_descent": max(4.0, blocks) * block}


def block_tol(n_rows: int, ridge: float) -> float:
    """Return the gain of the objective at which block descent stops.

    With hardly any noise the error of the function is that of the optimisation, so that more
    blocks pay while the rows are not too many. Blocks of very many rows take minutes, and end
    at three times the gain.
    """
    quiet = float(np.clip(-0.4 * np.log10(max(ridge, 1e-12) / 1e-3), 0.0, 1.0))
    tol = _TOL * float(np.clip(n_rows / 3e5, 1 / 30, 1 / 3) ** quiet)
    return tol * min(max(1.0, n_rows / _MANY_ROWS), 3.0)


def _block_seconds(n_rows: int, n_outputs: int) -> float:
    return (0.25 + 4e-6 * n_rows) * (1.0 + n_outputs / 32.0)


def slowness() -> float:
    """Return the ratio of seconds here, on all threads, to those of one core when measured."""
    A, seconds = np.ones((400, 400), np.float32), []
    with single_threaded_blas():
        for _ in range(5):
            start = clock()
            A @ A
            seconds.append(clock() - start)
    threads = max(1.0, 0.7 * get_num_threads())
    return max(0.5, float(np.median(seconds)) / _PRODUCT_SECONDS) / threads


def first_seconds(solver: Solver[Any], loss: Loss, n_rows: int, n_outputs: int) -> float:
    """Return the seconds of one core until a solver has a useful function of all rows."""
    if isinstance(solver, DirectSolve | NewtonCG):
        costs = predicted_costs(n_rows, n_outputs, 0.1)
        return costs["direct" if isinstance(solver, DirectSolve) else "newton"]
    # a few blocks, or a few sets of rows
    blocks = 3.0 * _block_seconds(n_rows, n_outputs) * min(1.0, n_rows / 2048.0) ** 2
    if loss.name in WorkingSet.losses and not loss.tasks & {"classification", "regression"}:
        blocks += 8e-9 * float(n_rows) ** 2  # working sets begin from a sum over all rows
    return blocks + _LOADING_SECONDS * isinstance(solver, BlockDescent)


def settled_solver(
    chosen: tuple[Solver[Any], str], n_rows: int, n_outputs: int, ridge: float,
    seconds: float = np.inf,
) -> tuple[Solver[Any], str, dict[str, float]]:  # fmt: skip
    """Return the solver once ``ridge = n alpha`` and the `seconds` that are left are known.

    Block descent has a useful function soon, an exact solver has none before its end. Exact
    solutions have smaller errors, for which they may cost half as much again, the search
    included. The predicted seconds of the alternatives come third.
    """
    costs = predicted_costs(n_rows, n_outputs, ridge)
    cheaper = costs["newton"] < costs["direct"] and n_rows > 4096
    if isinstance(chosen[0], DirectSolve) and cheaper:
        chosen = NewtonCG(), "products with the kernel matrix cost less than its factorisation"
    if isinstance(chosen[0], BlockDescent):
        return BlockDescent(tol=block_tol(n_rows, ridge)), chosen[1], costs
    if not isinstance(chosen[0], DirectSolve | NewtonCG):
        return *chosen, costs
    name = chosen[0].name
    if costs[name] > seconds:
        return BlockDescent(), "time_limit is too short for an exact solution", costs
    memory = {"direct": 8.0 * n_rows**2, "newton": 2.0 * n_rows**2, "block_descent": 4e8}
    exact, blocks = [
        (_SEARCH_SECONDS + costs[key]) * (1.0 + memory[key] / _DEAR_BYTES)
        for key in (name, "block_descent")
    ]
    if exact > _EXACT_PRICE * blocks:
        blocks_of_rows = BlockDescent(tol=block_tol(n_rows, ridge))
        return blocks_of_rows, "an exact solution would cost much more", costs
    return *chosen, costs


def _is_costly(kernel: Kernel) -> bool:
    parts = kernel.get_params(deep=True).values()
    return kernel.is_costly or any([isinstance(p, Kernel) and p.is_costly for p in parts])
