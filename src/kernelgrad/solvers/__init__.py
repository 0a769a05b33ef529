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
from kernelgrad.solvers.bgs3vm import BGS3VM
from kernelgrad.solvers.cached import CachedBlockDescent
from kernelgrad.solvers.cccp_s3vm import CCCPS3VM
from kernelgrad.solvers.cdsg import CDSG
from kernelgrad.solvers.direct import DirectSolve
from kernelgrad.solvers.dsg import DSG
from kernelgrad.solvers.linear import LinearProblem, LinearSolver
from kernelgrad.solvers.linear_pegasos import LinearPegasos
from kernelgrad.solvers.linear_sdca import LinearSDCA
from kernelgrad.solvers.norma import NORMA
from kernelgrad.solvers.pegasos import Pegasos
from kernelgrad.solvers.perceptron import KernelPerceptron
from kernelgrad.solvers.posterior import PosteriorOperator, explained_covariance
from kernelgrad.solvers.rbcd import RBCD
from kernelgrad.solvers.s3gd import S3GD
from kernelgrad.solvers.s3vm_light import S3VMLight
from kernelgrad.solvers.sbmd import SBMD
from kernelgrad.solvers.sbp import StochasticBatchPerceptron
from kernelgrad.solvers.scv import SCV
from kernelgrad.solvers.sdca import SDCA
from kernelgrad.solvers.sgd import SGD
from kernelgrad.solvers.simba import SIMBA
from kernelgrad.solvers.soft_labels import SoftLabels
from kernelgrad.solvers.ssgd import SSGD
from kernelgrad.solvers.svrg import SAGA, SVRG
from kernelgrad.solvers.tsg import FRS3VM, TSG
from kernelgrad.solvers.udsg import UDSG

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
