"""Solvers: a problem and batches come in, a state and a function go out.

The solvers of papers and of linear functions load when their names are first used.
"""

from typing import TYPE_CHECKING

from kernelgrad.registry import lazy_names
from kernelgrad.solvers.block_descent.solver import BlockDescent as BlockDescent
from kernelgrad.solvers.contract import Problem as Problem
from kernelgrad.solvers.contract import Resources as Resources
from kernelgrad.solvers.contract import RowStore as RowStore
from kernelgrad.solvers.contract import Solver as Solver
from kernelgrad.solvers.contract import State as State
from kernelgrad.solvers.contract import StepInfo as StepInfo
from kernelgrad.solvers.contract import TrainBatch as TrainBatch
from kernelgrad.solvers.contract import check_capabilities as check_capabilities
from kernelgrad.solvers.dsg import DSG as DSG
from kernelgrad.solvers.exact import DirectSolve as DirectSolve
from kernelgrad.solvers.exact import NewtonCG as NewtonCG
from kernelgrad.solvers.history import History as History
from kernelgrad.solvers.history import check_history as check_history
from kernelgrad.solvers.history import new_history as new_history
from kernelgrad.solvers.history import restored_history as restored_history
from kernelgrad.solvers.loop import FitResult as FitResult
from kernelgrad.solvers.loop import Validation as Validation
from kernelgrad.solvers.loop import run as run
from kernelgrad.solvers.registry import LINEAR_SOLVERS as LINEAR_SOLVERS
from kernelgrad.solvers.registry import SOLVERS as SOLVERS
from kernelgrad.solvers.registry import get_linear_solver as get_linear_solver
from kernelgrad.solvers.registry import get_solver as get_solver
from kernelgrad.solvers.registry import register_linear_solver as register_linear_solver
from kernelgrad.solvers.registry import register_solver as register_solver
from kernelgrad.solvers.resumption import Resumed as Resumed
from kernelgrad.solvers.soft_labels import SoftLabels as SoftLabels
from kernelgrad.solvers.trackers import RecomputedTracker as RecomputedTracker
from kernelgrad.solvers.trackers import Tracker as Tracker
from kernelgrad.solvers.trackers import UpdatedTracker as UpdatedTracker
from kernelgrad.solvers.working_set import WorkingSet as WorkingSet

if TYPE_CHECKING:
    from kernelgrad.linear import *  # noqa: F403
    from kernelgrad.papers.cdsg import *  # noqa: F403
    from kernelgrad.papers.dsg.rivals import *  # noqa: F403
    from kernelgrad.papers.s3gd import *  # noqa: F403
    from kernelgrad.papers.s3gd.rivals import *  # noqa: F403
    from kernelgrad.papers.sbp import *  # noqa: F403
    from kernelgrad.papers.sbp.rivals import *  # noqa: F403
    from kernelgrad.papers.tsg import *  # noqa: F403
    from kernelgrad.papers.tsg.rivals import *  # noqa: F403

__getattr__, _lazy = lazy_names(
    __name__,
    SOLVERS,
    LINEAR_SOLVERS,
    paths={"LinearProblem": "linear", "LinearSolver": "linear"},
    renamed={"CachedBlockDescent": "BlockDescent"},
)


def __dir__() -> list[str]:
    return sorted({*globals(), *_lazy})
