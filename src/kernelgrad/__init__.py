"""Kernel learning by stochastic functional gradients, with the scikit-learn API.

The public names load on first use: ``import kernelgrad`` itself costs milliseconds, and a
command that only prints its help never waits for the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelgrad.registry import lazy_names
from kernelgrad.version import __version__

_NAMES = {
    "version": ("show_versions",),
    "compute.threads": ("get_num_threads", "set_num_threads"),
    "cluster": ("DaskEngine",),
    "data": ("ArraySource", "BatchSource", "open_source"),
    "estimators": (
        "KernelClassifier", "KernelDensityRatio", "KernelGaussianProcessRegressor",
        "KernelNoveltyDetector", "KernelRegressor", "LinearClassifier", "LinearRegressor",
        "RandomFeatures", "SemiSupervisedKernelClassifier", "load",
    ),
    "estimators.trusted": ("SKOPS_TYPES",),
    "exceptions": (
        "CapabilityError", "DataError", "KernelGradError", "ModelFileError",
        "UnseenValuesWarning",
    ),
    "plotting": ("LearningCurveDisplay",),
    "solvers": (
        "CDSG", "DSG", "NORMA", "SDCA", "TSG", "UDSG", "BlockDescent", "DirectSolve",
        "KernelPerceptron", "Pegasos", "SoftLabels", "StochasticBatchPerceptron",
    ),
    "testing.warmup": ("warmup",),
}  # fmt: skip
__getattr__, _lazy = lazy_names(
    __name__,
    paths={name: module for module, names in _NAMES.items() for name in names},
    renamed={"CachedBlockDescent": "BlockDescent"},
)
__all__ = [*_lazy, "__version__"]

if TYPE_CHECKING:
    from kernelgrad.cluster import DaskEngine as DaskEngine
    from kernelgrad.compute.threads import get_num_threads as get_num_threads
    from kernelgrad.compute.threads import set_num_threads as set_num_threads
    from kernelgrad.data import ArraySource as ArraySource
    from kernelgrad.data import BatchSource as BatchSource
    from kernelgrad.data import open_source as open_source
    from kernelgrad.estimators import KernelClassifier as KernelClassifier
    from kernelgrad.estimators import KernelDensityRatio as KernelDensityRatio
    from kernelgrad.estimators import (
        KernelGaussianProcessRegressor as KernelGaussianProcessRegressor,
    )
    from kernelgrad.estimators import KernelNoveltyDetector as KernelNoveltyDetector
    from kernelgrad.estimators import KernelRegressor as KernelRegressor
    from kernelgrad.estimators import LinearClassifier as LinearClassifier
    from kernelgrad.estimators import LinearRegressor as LinearRegressor
    from kernelgrad.estimators import RandomFeatures as RandomFeatures
    from kernelgrad.estimators import (
        SemiSupervisedKernelClassifier as SemiSupervisedKernelClassifier,
    )
    from kernelgrad.estimators import load as load
    from kernelgrad.estimators.trusted import SKOPS_TYPES as SKOPS_TYPES
    from kernelgrad.exceptions import CapabilityError as CapabilityError
    from kernelgrad.exceptions import DataError as DataError
    from kernelgrad.exceptions import KernelGradError as KernelGradError
    from kernelgrad.exceptions import ModelFileError as ModelFileError
    from kernelgrad.exceptions import UnseenValuesWarning as UnseenValuesWarning
    from kernelgrad.plotting import LearningCurveDisplay as LearningCurveDisplay
    from kernelgrad.solvers import CDSG as CDSG
    from kernelgrad.solvers import DSG as DSG
    from kernelgrad.solvers import NORMA as NORMA
    from kernelgrad.solvers import SDCA as SDCA
    from kernelgrad.solvers import TSG as TSG
    from kernelgrad.solvers import UDSG as UDSG
    from kernelgrad.solvers import BlockDescent as BlockDescent
    from kernelgrad.solvers import DirectSolve as DirectSolve
    from kernelgrad.solvers import KernelPerceptron as KernelPerceptron
    from kernelgrad.solvers import Pegasos as Pegasos
    from kernelgrad.solvers import SoftLabels as SoftLabels
    from kernelgrad.solvers import StochasticBatchPerceptron as StochasticBatchPerceptron
    from kernelgrad.testing.warmup import warmup as warmup
    from kernelgrad.version import show_versions as show_versions


def __dir__() -> list[str]:
    return __all__
