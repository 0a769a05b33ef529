"""Kernel learning by stochastic functional gradients, with the scikit-learn API."""

from kernelgrad._validation import CapabilityError, DataError, KernelGradError, ModelFileError
from kernelgrad.compute.threads import get_num_threads, set_num_threads
from kernelgrad.data import ArraySource, BatchSource, open_source
from kernelgrad.estimators import KernelClassifier, KernelRegressor, load
from kernelgrad.plotting import LearningCurveDisplay
from kernelgrad.solvers import DSG

__version__ = "0.1.0"

__all__ = [
    "DSG",
    "ArraySource",
    "BatchSource",
    "CapabilityError",
    "DataError",
    "KernelClassifier",
    "KernelGradError",
    "KernelRegressor",
    "LearningCurveDisplay",
    "ModelFileError",
    "__version__",
    "get_num_threads",
    "load",
    "open_source",
    "set_num_threads",
]
