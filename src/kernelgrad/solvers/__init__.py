"""Solvers: the contract, the loop, and the algorithms by name."""

from kernelgrad.solvers.base import Problem as Problem
from kernelgrad.solvers.base import Solver as Solver
from kernelgrad.solvers.base import State as State
from kernelgrad.solvers.base import StepInfo as StepInfo
from kernelgrad.solvers.base import Tracker as Tracker
from kernelgrad.solvers.base import TrainBatch as TrainBatch
from kernelgrad.solvers.base import check_capabilities as check_capabilities
from kernelgrad.solvers.block_descent.solver import CachedBlockDescent as CachedBlockDescent
from kernelgrad.solvers.kernel.direct import DirectSolve as DirectSolve
from kernelgrad.solvers.kernel.online import NORMA as NORMA
from kernelgrad.solvers.kernel.online import KernelPerceptron as KernelPerceptron
from kernelgrad.solvers.kernel.online import Pegasos as Pegasos
from kernelgrad.solvers.kernel.sbp import StochasticBatchPerceptron as StochasticBatchPerceptron
from kernelgrad.solvers.kernel.sdca import SDCA as SDCA
from kernelgrad.solvers.linear.base import LinearProblem as LinearProblem
from kernelgrad.solvers.linear.base import LinearSolver as LinearSolver
from kernelgrad.solvers.linear.blocks import RBCD as RBCD
from kernelgrad.solvers.linear.blocks import SBMD as SBMD
from kernelgrad.solvers.linear.sdca import LinearSDCA as LinearSDCA
from kernelgrad.solvers.linear.sgd import SGD as SGD
from kernelgrad.solvers.linear.sgd import SSGD as SSGD
from kernelgrad.solvers.linear.sgd import LinearPegasos as LinearPegasos
from kernelgrad.solvers.linear.simba import SIMBA as SIMBA
from kernelgrad.solvers.linear.variance_reduced import S3GD as S3GD
from kernelgrad.solvers.linear.variance_reduced import SAGA as SAGA
from kernelgrad.solvers.linear.variance_reduced import SCV as SCV
from kernelgrad.solvers.linear.variance_reduced import SVRG as SVRG
from kernelgrad.solvers.loop import HISTORY_KEYS as HISTORY_KEYS
from kernelgrad.solvers.loop import FitResult as FitResult
from kernelgrad.solvers.loop import Validation as Validation
from kernelgrad.solvers.loop import new_history as new_history
from kernelgrad.solvers.loop import run as run
from kernelgrad.solvers.random_features.dsg import CDSG as CDSG
from kernelgrad.solvers.random_features.dsg import DSG as DSG
from kernelgrad.solvers.random_features.dsg import UDSG as UDSG
from kernelgrad.solvers.random_features.posterior import PosteriorOperator as PosteriorOperator
from kernelgrad.solvers.random_features.posterior import (
    explained_covariance as explained_covariance,
)
from kernelgrad.solvers.registry import LINEAR_SOLVERS as LINEAR_SOLVERS
from kernelgrad.solvers.registry import SOLVERS as SOLVERS
from kernelgrad.solvers.registry import get_linear_solver as get_linear_solver
from kernelgrad.solvers.registry import get_solver as get_solver
from kernelgrad.solvers.registry import register_linear_solver as register_linear_solver
from kernelgrad.solvers.registry import register_solver as register_solver
from kernelgrad.solvers.semi_supervised.bgs3vm import BGS3VM as BGS3VM
from kernelgrad.solvers.semi_supervised.cccp_s3vm import CCCPS3VM as CCCPS3VM
from kernelgrad.solvers.semi_supervised.s3vm_light import S3VMLight as S3VMLight
from kernelgrad.solvers.semi_supervised.self_training import SoftLabels as SoftLabels
from kernelgrad.solvers.semi_supervised.tsg import FRS3VM as FRS3VM
from kernelgrad.solvers.semi_supervised.tsg import TSG as TSG
