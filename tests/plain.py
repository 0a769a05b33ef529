"""Kernel machines with nothing left to search, for tests of everything else."""

from typing import Any

import numpy as np

from kernelgrad import KernelClassifier, KernelRegressor
from kernelgrad.kernels import KERNELS, Gaussian, Laplacian, SumKernel, get_kernel


def plain_classifier(loss: Any = "log_loss", *args: Any, **params: Any) -> KernelClassifier:
    """Return a classifier of the log loss, its bandwidth the median, alpha 1e-6."""
    return KernelClassifier(loss, *args, **_given(params))


def plain_regressor(loss: Any = "squared", *args: Any, **params: Any) -> KernelRegressor:
    """Return a regressor, its bandwidth the median, alpha 1e-6."""
    return KernelRegressor(loss, *args, **_given(params))


def _given(params: dict[str, Any]) -> dict[str, Any]:
    penalty = {} if params.get("C") is not None else {"alpha": 1e-6}
    return {"gamma": "median", **penalty, **params}


def kernel_of(name: str) -> Any:
    """Return a kernel of a registered name, for rows of 3 columns, or 9 of `convolutional`."""
    if name == "sum":
        return SumKernel([Gaussian(0.5), Laplacian(0.4)], np.array([0.5, 2.0]))
    if name == "product":
        return Gaussian(0.5) * Laplacian(0.4)
    if name == "dot_product":
        return KERNELS[name]((1.0, 1.0, 0.5), gamma=0.1)
    if name == "convolutional":
        return KERNELS[name]((3, 3), patch_size=2, gamma=0.5)
    return get_kernel(name, gamma="median")
