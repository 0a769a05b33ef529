"""Estimators with the scikit-learn API."""

from kernelgrad.estimators._files import register_estimator
from kernelgrad.estimators._posterior import PosteriorOperator
from kernelgrad.estimators._warmup import warmup
from kernelgrad.estimators.base import load, save
from kernelgrad.estimators.classifier import KernelClassifier
from kernelgrad.estimators.competitors import COMPETITORS, competitor
from kernelgrad.estimators.density_ratio import KernelDensityRatio
from kernelgrad.estimators.gaussian_process import KernelGaussianProcessRegressor
from kernelgrad.estimators.kernel import BaseKernelEstimator
from kernelgrad.estimators.linear import LinearClassifier, LinearRegressor
from kernelgrad.estimators.novelty import KernelNoveltyDetector
from kernelgrad.estimators.regressor import KernelRegressor
from kernelgrad.estimators.semi_supervised import SemiSupervisedKernelClassifier
from kernelgrad.estimators.transformer import RandomFeatures

for _cls in (
    KernelClassifier,
    KernelDensityRatio,
    KernelGaussianProcessRegressor,
    KernelNoveltyDetector,
    KernelRegressor,
    LinearClassifier,
    LinearRegressor,
    RandomFeatures,
    SemiSupervisedKernelClassifier,
):
    register_estimator(_cls)

__all__ = [
    "COMPETITORS",
    "BaseKernelEstimator",
    "KernelClassifier",
    "KernelDensityRatio",
    "KernelGaussianProcessRegressor",
    "KernelNoveltyDetector",
    "KernelRegressor",
    "LinearClassifier",
    "LinearRegressor",
    "PosteriorOperator",
    "RandomFeatures",
    "SemiSupervisedKernelClassifier",
    "competitor",
    "load",
    "save",
    "warmup",
]
