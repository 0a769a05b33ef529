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
from kernelgrad.solvers.history import HISTORY_KEYS as HISTORY_KEYS
from kernelgrad.solvers.history import History as History
from kernelgrad.solvers.history import check_history as check_history
from kernelgrad.solvers.history import new_history as new_history
from kernelgrad.solvers.history import restored_history as restored_history
from kernelgrad.solvers.loop import FitResult as FitResult
from kernelgrad.solvers.loop import Resumed as Resumed
from kernelgrad.solvers.loop import Validation as Validation
from kernelgrad.solvers.loop import run as run
from kernelgrad.solvers.registry import LINEAR_SOLVERS as LINEAR_SOLVERS
from kernelgrad.solvers.registry import SOLVERS as SOLVERS
from kernelgrad.solvers.registry import get_linear_solver as get_linear_solver
from kernelgrad.solvers.registry import get_solver as get_solver
from kernelgrad.solvers.registry import register_linear_solver as register_linear_solver
from kernelgrad.solvers.registry import register_solver as register_solver
from kernelgrad.solvers.soft_labels import SoftLabels as SoftLabels
from kernelgrad.solvers.trackers import RecomputedTracker as RecomputedTracker
from kernelgrad.solvers.trackers import Tracker as Tracker
from kernelgrad.solvers.trackers import UpdatedTracker as UpdatedTracker
from kernelgrad.solvers.working_set import WorkingSet as WorkingSet

if TYPE_CHECKING:
    from kernelgrad.linear import RBCD as RBCD
    from kernelgrad.linear import SGD as SGD
    from kernelgrad.linear import SVRG as SVRG
    from kernelgrad.linear import LinearProblem as LinearProblem
    from kernelgrad.linear import LinearSDCA as LinearSDCA
    from kernelgrad.linear import LinearSolver as LinearSolver
    from kernelgrad.papers.cdsg import CDSG as CDSG
    from kernelgrad.papers.cdsg import UDSG as UDSG
    from kernelgrad.papers.dsg.rivals import NORMA as NORMA
    from kernelgrad.papers.dsg.rivals import SBMD as SBMD
    from kernelgrad.papers.dsg.rivals import SDCA as SDCA
    from kernelgrad.papers.s3gd import S3GD as S3GD
    from kernelgrad.papers.s3gd.rivals import SCV as SCV
    from kernelgrad.papers.s3gd.rivals import SSGD as SSGD
    from kernelgrad.papers.sbp import StochasticBatchPerceptron as StochasticBatchPerceptron
    from kernelgrad.papers.sbp.rivals import KernelPerceptron as KernelPerceptron
    from kernelgrad.papers.sbp.rivals import LinearPegasos as LinearPegasos
    from kernelgrad.papers.sbp.rivals import Pegasos as Pegasos
    from kernelgrad.papers.tsg import TSG as TSG
    from kernelgrad.papers.tsg.rivals import BGS3VM as BGS3VM
    from kernelgrad.papers.tsg.rivals import CCCPS3VM as CCCPS3VM
    from kernelgrad.papers.tsg.rivals import FRS3VM as FRS3VM
    from kernelgrad.papers.tsg.rivals import S3VMLight as S3VMLight

__getattr__, _lazy = lazy_names(
    __name__,
    SOLVERS,
    LINEAR_SOLVERS,
    paths={"LinearProblem": "linear", "LinearSolver": "linear"},
    renamed={"CachedBlockDescent": "BlockDescent"},
)


def __dir__() -> list[str]:
    return sorted({*globals(), *_lazy})
