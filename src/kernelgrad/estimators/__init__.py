"""Estimators of scikit-learn: parameters and rows come in, attributes go out."""

from typing import TYPE_CHECKING

from kernelgrad.docstrings import whole
from kernelgrad.estimators.classifier import KernelClassifier
from kernelgrad.estimators.density_ratio import KernelDensityRatio
from kernelgrad.estimators.files import ESTIMATORS, load, register_estimator
from kernelgrad.estimators.gaussian_process import KernelGaussianProcessRegressor
from kernelgrad.estimators.kernel import BaseKernelEstimator
from kernelgrad.estimators.novelty import KernelNoveltyDetector
from kernelgrad.estimators.regressor import KernelRegressor
from kernelgrad.estimators.semi_supervised import SemiSupervisedKernelClassifier
from kernelgrad.registry import lazy_names

if TYPE_CHECKING:
    from kernelgrad.linear import (
        COMPETITORS,
        LinearClassifier,
        LinearRegressor,
        RandomFeatures,
        competitor,
    )
    from kernelgrad.papers.dsg.operator import PosteriorOperator
    from kernelgrad.testing.warmup import warmup

for _cls in (
    KernelClassifier,
    KernelDensityRatio,
    KernelGaussianProcessRegressor,
    KernelNoveltyDetector,
    KernelRegressor,
    SemiSupervisedKernelClassifier,
):
    _cls.__doc__ = whole(_cls)
    register_estimator(_cls)

__all__ = [
    "COMPETITORS", "BaseKernelEstimator", "KernelClassifier", "KernelDensityRatio",
    "KernelGaussianProcessRegressor", "KernelNoveltyDetector", "KernelRegressor",
    "LinearClassifier", "LinearRegressor", "PosteriorOperator", "RandomFeatures",
    "SemiSupervisedKernelClassifier", "competitor", "load", "warmup",
]  # fmt: skip

__getattr__, _ = lazy_names(
    __name__,
    ESTIMATORS,
    paths={
        "COMPETITORS": "linear",
        "PosteriorOperator": "papers.dsg.operator",
        "competitor": "linear",
        "warmup": "testing.warmup",
    },
)
