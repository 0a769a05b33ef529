"""Solvers by name."""

from __future__ import annotations

from typing import Any, TypeVar

from sklearn.base import clone

from kernelgrad._validation import check_name
from kernelgrad.solvers.base import Solver
from kernelgrad.solvers.block_descent.solver import CachedBlockDescent
from kernelgrad.solvers.kernel.direct import DirectSolve
from kernelgrad.solvers.kernel.newton import NewtonCG
from kernelgrad.solvers.kernel.online import NORMA, KernelPerceptron, Pegasos
from kernelgrad.solvers.kernel.sbp import StochasticBatchPerceptron
from kernelgrad.solvers.kernel.sdca import SDCA
from kernelgrad.solvers.kernel.working_set import WorkingSet
from kernelgrad.solvers.linear.base import LinearSolver
from kernelgrad.solvers.linear.blocks import RBCD, SBMD
from kernelgrad.solvers.linear.sdca import LinearSDCA
from kernelgrad.solvers.linear.sgd import SGD, SSGD, LinearPegasos
from kernelgrad.solvers.linear.simba import SIMBA
from kernelgrad.solvers.linear.variance_reduced import S3GD, SCV, SVRG
from kernelgrad.solvers.random_features.dsg import CDSG, DSG, UDSG
from kernelgrad.solvers.semi_supervised.bgs3vm import BGS3VM
from kernelgrad.solvers.semi_supervised.cccp_s3vm import CCCPS3VM
from kernelgrad.solvers.semi_supervised.s3vm_light import S3VMLight
from kernelgrad.solvers.semi_supervised.self_training import SoftLabels
from kernelgrad.solvers.semi_supervised.tsg import FRS3VM, TSG

S = TypeVar("S", bound=Solver[Any])


def _by_name(*classes: type[S]) -> dict[str, type[S]]:
    return {cls.name: cls for cls in classes}


SOLVERS: dict[str, type[Solver[Any]]] = _by_name(
    CachedBlockDescent, DirectSolve, DSG, UDSG, CDSG, StochasticBatchPerceptron, SDCA,
    WorkingSet, NewtonCG, Pegasos, NORMA, KernelPerceptron, TSG, FRS3VM, BGS3VM, CCCPS3VM,
    S3VMLight, SoftLabels,
)  # fmt: skip
LINEAR_SOLVERS: dict[str, type[LinearSolver[Any]]] = _by_name(
    S3GD, SVRG, SGD, SSGD, SCV, LinearPegasos, LinearSDCA, RBCD, SBMD, SIMBA,
)  # fmt: skip


def register_solver(cls: type[Solver[Any]]) -> type[Solver[Any]]:
    """Register a solver class under its ``name``; usable as a decorator."""
    SOLVERS[cls.name] = cls
    return cls


def register_linear_solver(cls: type[LinearSolver[Any]]) -> type[LinearSolver[Any]]:
    """Register a class of linear solvers under its ``name``; usable as a decorator."""
    LINEAR_SOLVERS[cls.name] = cls
    return cls


def _get(
    solver: Any, known: dict[str, type[S]], auto: str, cls: type[S], kind: str, marks: bool
) -> S:
    """Return a checked solver of one registry, see :func:`get_solver`."""
    offered = sorted(name for name, each in known.items() if marks or not each.marks)
    if isinstance(solver, str):
        if solver not in known:
            check_name(solver, [*offered, "auto"], "solver")
        result = known[auto if solver == "auto" else solver]()
    elif isinstance(solver, cls):
        result = clone(solver)
    else:
        raise TypeError(
            f"solver must be a name ({', '.join(offered)}, auto) or a {kind}, got {solver!r}."
        )
    result.check()
    return result


def get_solver(solver: Any, *, marks: bool = True) -> Solver[Any]:
    """Return the solver given by a name or an object, after checking its parameters.

    "auto" means DSG here; estimators choose by their data instead. Without `marks`, messages
    do not list the solvers for partly labelled rows.

    Raises
    ------
    ValueError
        The name is unknown or a parameter is outside its domain.
    TypeError
        `solver` is neither a name nor a solver.
    """
    return _get(solver, SOLVERS, "dsg", Solver, "kernelgrad solver", marks)  # type: ignore[type-abstract]


def get_linear_solver(solver: Any) -> LinearSolver[Any]:
    """Return the linear solver given by a name or an object, after checking its parameters.

    "auto" means SVRG here; estimators choose by their data instead. Errors are those of
    :func:`get_solver`.
    """
    kind = "linear solver of kernelgrad"
    return _get(solver, LINEAR_SOLVERS, "svrg", LinearSolver, kind, True)  # type: ignore[type-abstract]
