"""Solvers by name; those of papers and of linear functions are imported when asked for."""

from typing import Any, TypeVar

from sklearn.base import clone

from kernelgrad.registry import Registry, room, warn_renamed
from kernelgrad.solvers.block_descent.solver import BlockDescent
from kernelgrad.solvers.contract import Solver
from kernelgrad.solvers.dsg import DSG
from kernelgrad.solvers.exact import DirectSolve, NewtonCG
from kernelgrad.solvers.soft_labels import SoftLabels
from kernelgrad.solvers.working_set import WorkingSet
from kernelgrad.validation import check_name

S = TypeVar("S", bound=Solver[Any])

SOLVERS: Registry[Solver[Any]] = Registry(
    {
        "udsg": "papers.cdsg:UDSG",
        "cdsg": "papers.cdsg:CDSG",
        "sbp": "papers.sbp:StochasticBatchPerceptron",
        "sdca": "papers.dsg.rivals:SDCA",
        "norma": "papers.dsg.rivals:NORMA",
        "pegasos": "papers.sbp.rivals:Pegasos",
        "perceptron": "papers.sbp.rivals:KernelPerceptron",
        "tsg": "papers.tsg:TSG",
        "fr_s3vm": "papers.tsg.rivals:FRS3VM",
        "bgs3vm": "papers.tsg.rivals:BGS3VM",
        "cccp_s3vm": "papers.tsg.rivals:CCCPS3VM",
        "s3vm_light": "papers.tsg.rivals:S3VMLight",
    },
    renamed={"cached": "block_descent"},
)
for _cls in (BlockDescent, DirectSolve, DSG, WorkingSet, NewtonCG, SoftLabels):
    SOLVERS.register(_cls)
LINEAR_SOLVERS: Registry[Any] = Registry(
    {
        "svrg": "linear:SVRG",
        "sgd": "linear:SGD",
        "sdca": "linear:LinearSDCA",
        "rbcd": "linear:RBCD",
        "s3gd": "papers.s3gd:S3GD",
        "ssgd": "papers.s3gd.rivals:SSGD",
        "scv": "papers.s3gd.rivals:SCV",
        "pegasos": "papers.sbp.rivals:LinearPegasos",
        "sbmd": "papers.dsg.rivals:SBMD",
    }
)
register_solver = SOLVERS.register
register_linear_solver = LINEAR_SOLVERS.register


def _get(
    solver: Any, registry: Registry[S], auto: str, cls: type[S], kind: str, marks: bool
) -> S:
    """Return a checked solver of one registry, see :func:`get_solver`."""

    def offered() -> list[str]:
        return sorted(name for name, each in registry.items() if marks or not each.marks)

    if isinstance(solver, str):
        if solver in registry.renamed:
            warn_renamed(f"solver {solver!r}", repr(registry.renamed[solver]))
        if solver not in registry and solver != "auto":
            check_name(solver, [*offered(), "auto"], "solver")
        result = registry[auto if solver == "auto" else solver]()
    elif isinstance(solver, cls):
        result = clone(solver)
    else:
        raise TypeError(
            f"solver must be a name ({', '.join(offered())}, auto) or a {kind}, got {solver!r}."
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


def get_linear_solver(solver: Any) -> Any:
    """Return the linear solver given by a name or an object, after checking its parameters.

    "auto" means SVRG here; estimators choose by their data instead. Errors are those of
    :func:`get_solver`.
    """
    base, kind = room("linear").LinearSolver, "linear solver of kernelgrad"
    return _get(solver, LINEAR_SOLVERS, "svrg", base, kind, True)
