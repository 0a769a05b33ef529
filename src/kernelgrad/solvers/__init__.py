"""Solvers by name."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from kernelgrad._validation import check_name
from kernelgrad.solvers.base import (
    HISTORY_KEYS,
    FitResult,
    Problem,
    Solver,
    State,
    StepInfo,
    Tracker,
    TrainBatch,
    Validation,
    check_capabilities,
    run,
)
from kernelgrad.solvers.cached import CachedBlockDescent
from kernelgrad.solvers.cdsg import CDSG
from kernelgrad.solvers.dsg import DSG
from kernelgrad.solvers.norma import NORMA
from kernelgrad.solvers.pegasos import Pegasos
from kernelgrad.solvers.perceptron import KernelPerceptron
from kernelgrad.solvers.posterior import PosteriorOperator, explained_covariance
from kernelgrad.solvers.sbp import StochasticBatchPerceptron
from kernelgrad.solvers.sdca import SDCA
from kernelgrad.solvers.udsg import UDSG

SOLVERS: dict[str, type[Solver[Any]]] = {}


def register_solver(cls: type[Solver[Any]]) -> type[Solver[Any]]:
    """Give a solver class its string name everywhere; usable as a decorator."""
    SOLVERS[cls.name] = cls
    return cls


for _cls in (
    CachedBlockDescent, DSG, UDSG, CDSG, StochasticBatchPerceptron, SDCA, Pegasos, NORMA,
    KernelPerceptron,
):  # fmt: skip
    register_solver(_cls)


def get_solver(solver: Any) -> Solver[Any]:
    """Return a solver from a name, "auto" or a :class:`Solver`, checked.

    "auto" is DSG here; estimators choose by their data instead.

    Raises
    ------
    ValueError
        Unknown name or a parameter outside its domain.
    TypeError
        Neither a name nor a solver.
    """
    if isinstance(solver, str):
        name = "dsg" if solver == "auto" else check_name(solver, [*SOLVERS, "auto"], "solver")
        result = SOLVERS[name]()
    elif isinstance(solver, Solver):
        result = clone(solver)
    else:
        raise TypeError(
            f"solver must be a name ({', '.join(sorted(SOLVERS))}, auto) or a kernelgrad "
            f"solver, got {solver!r}."
        )
    result.check()
    return result


__all__ = [
    "CDSG",
    "DSG",
    "HISTORY_KEYS",
    "NORMA",
    "SDCA",
    "SOLVERS",
    "UDSG",
    "CachedBlockDescent",
    "FitResult",
    "KernelPerceptron",
    "Pegasos",
    "PosteriorOperator",
    "Problem",
    "Solver",
    "State",
    "StepInfo",
    "StochasticBatchPerceptron",
    "Tracker",
    "TrainBatch",
    "Validation",
    "check_capabilities",
    "explained_covariance",
    "get_solver",
    "register_solver",
    "run",
]
