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
from kernelgrad.solvers.block_descent.solver import CachedBlockDescent
from kernelgrad.solvers.kernel.direct import DirectSolve
from kernelgrad.solvers.kernel.norma import NORMA
from kernelgrad.solvers.kernel.pegasos import Pegasos
from kernelgrad.solvers.kernel.perceptron import KernelPerceptron
from kernelgrad.solvers.kernel.sbp import StochasticBatchPerceptron
from kernelgrad.solvers.kernel.sdca import SDCA
from kernelgrad.solvers.linear.base import LinearProblem, LinearSolver
from kernelgrad.solvers.linear.pegasos import LinearPegasos
from kernelgrad.solvers.linear.rbcd import RBCD
from kernelgrad.solvers.linear.s3gd import S3GD
from kernelgrad.solvers.linear.sbmd import SBMD
from kernelgrad.solvers.linear.scv import SCV
from kernelgrad.solvers.linear.sdca import LinearSDCA
from kernelgrad.solvers.linear.sgd import SGD
from kernelgrad.solvers.linear.simba import SIMBA
from kernelgrad.solvers.linear.ssgd import SSGD
from kernelgrad.solvers.linear.svrg import SAGA, SVRG
from kernelgrad.solvers.random_features.cdsg import CDSG
from kernelgrad.solvers.random_features.dsg import DSG
from kernelgrad.solvers.random_features.posterior import PosteriorOperator, explained_covariance
from kernelgrad.solvers.random_features.udsg import UDSG
from kernelgrad.solvers.semi_supervised.bgs3vm import BGS3VM
from kernelgrad.solvers.semi_supervised.cccp_s3vm import CCCPS3VM
from kernelgrad.solvers.semi_supervised.s3vm_light import S3VMLight
from kernelgrad.solvers.semi_supervised.self_training import SoftLabels
from kernelgrad.solvers.semi_supervised.tsg import FRS3VM, TSG

SOLVERS: dict[str, type[Solver[Any]]] = {}


def register_solver(cls: type[Solver[Any]]) -> type[Solver[Any]]:
    """Give a solver class its string name everywhere; usable as a decorator."""
    SOLVERS[cls.name] = cls
    return cls


for _cls in (
    CachedBlockDescent, DirectSolve, DSG, UDSG, CDSG, StochasticBatchPerceptron, SDCA, Pegasos,
    NORMA, KernelPerceptron, TSG, FRS3VM, BGS3VM, CCCPS3VM, S3VMLight,
    SoftLabels,
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


LINEAR_SOLVERS: dict[str, type[LinearSolver[Any]]] = {}


def register_linear_solver(cls: type[LinearSolver[Any]]) -> type[LinearSolver[Any]]:
    """Give a class of linear solvers its string name; usable as a decorator."""
    LINEAR_SOLVERS[cls.name] = cls
    return cls


for _linear in (
    S3GD, SVRG, SAGA, SGD, SSGD, SCV, LinearPegasos, LinearSDCA, RBCD, SBMD, SIMBA,
):  # fmt: skip
    register_linear_solver(_linear)


def get_linear_solver(solver: Any) -> LinearSolver[Any]:
    """Return a linear solver from a name or a :class:`LinearSolver`, checked.

    "auto" is SVRG here; estimators choose by their data instead.

    Raises
    ------
    ValueError
        Unknown name or a parameter outside its domain.
    TypeError
        Neither a name nor a linear solver.
    """
    if isinstance(solver, str):
        names = [*LINEAR_SOLVERS, "auto"]
        name = "svrg" if solver == "auto" else check_name(solver, names, "solver")
        result = LINEAR_SOLVERS[name]()
    elif isinstance(solver, LinearSolver):
        result = clone(solver)
    else:
        raise TypeError(
            f"solver must be a name ({', '.join(sorted(LINEAR_SOLVERS))}, auto) or a linear "
            f"solver of kernelgrad, got {solver!r}."
        )
    result.check()
    return result


__all__ = [
    "BGS3VM",
    "CCCPS3VM",
    "CDSG",
    "DSG",
    "FRS3VM",
    "HISTORY_KEYS",
    "LINEAR_SOLVERS",
    "NORMA",
    "RBCD",
    "S3GD",
    "SAGA",
    "SBMD",
    "SCV",
    "SDCA",
    "SGD",
    "SIMBA",
    "SOLVERS",
    "SSGD",
    "SVRG",
    "TSG",
    "UDSG",
    "CachedBlockDescent",
    "DirectSolve",
    "FitResult",
    "KernelPerceptron",
    "LinearPegasos",
    "LinearProblem",
    "LinearSDCA",
    "LinearSolver",
    "Pegasos",
    "PosteriorOperator",
    "Problem",
    "S3VMLight",
    "SoftLabels",
    "Solver",
    "State",
    "StepInfo",
    "StochasticBatchPerceptron",
    "Tracker",
    "TrainBatch",
    "Validation",
    "check_capabilities",
    "explained_covariance",
    "get_linear_solver",
    "get_solver",
    "register_linear_solver",
    "register_solver",
    "run",
]
