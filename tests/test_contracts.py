"""Every registered part keeps its contract; every contract can fail."""

from __future__ import annotations

import numpy as np
import pytest

from kernelgrad import (
    KernelClassifier,
    KernelDensityRatio,
    KernelGaussianProcessRegressor,
    KernelNoveltyDetector,
    KernelRegressor,
    LinearClassifier,
    LinearRegressor,
    RandomFeatures,
    SemiSupervisedKernelClassifier,
)
from kernelgrad.kernels import KERNELS, Gaussian, Laplacian, get_kernel
from kernelgrad.losses import LOSSES, UNLABELLED_LOSSES
from kernelgrad.solvers import LINEAR_SOLVERS, SOLVERS, WorkingSet
from kernelgrad.testing import (
    check_estimator_contract,
    check_kernel,
    check_linear_solver,
    check_loss,
    check_solver,
    check_unlabelled_loss,
)

SEMI_SUPERVISED = ("tsg", "fr_s3vm", "bgs3vm", "cccp_s3vm", "s3vm_light", "soft_labels")
# the loss of the solvers that do not take the hinge
CLASSIFIES = {"direct": "squared", "newton": "logistic", "perceptron": "perceptron"}
# of the solvers that do not take the squared loss, to tolerances below those of the contract
REGRESSES = {"working_set": ("absolute", WorkingSet(tol=1e-6))}
OPTIONS = {"max_iter": 4, "alpha": 1e-2}
KERNEL = {**OPTIONS, "gamma": "median"}

# what a kernel needs that cannot be made from its name
OBJECTS = {
    "sum": lambda: Gaussian(0.5) + Laplacian(0.4),
    "product": lambda: Gaussian(0.5) * Laplacian(0.4),
    "dot_product": lambda: KERNELS["dot_product"]((1.0, 1.0, 0.5), gamma=0.1),
    "convolutional": lambda: KERNELS["convolutional"]((3, 3), patch_size=2, gamma=0.5),
}
COLUMNS = {"convolutional": 9}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    check_loss(LOSSES[name]())


@pytest.mark.parametrize("name", UNLABELLED_LOSSES)
def test_unlabelled_losses(name):
    check_unlabelled_loss(UNLABELLED_LOSSES[name]())


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "precomputed"])
def test_kernels(name):
    kernel = OBJECTS[name]() if name in OBJECTS else get_kernel(name, gamma="median")
    X = np.random.default_rng(3).random((24, COLUMNS.get(name, 3)))
    check_kernel(kernel, X=2.0 * X)


# zero has the least perceptron loss of all functions
@pytest.mark.filterwarnings("ignore:The model is the same for nearly all:UserWarning")
@pytest.mark.parametrize("name", SOLVERS)
def test_solvers(name):
    check_solver(SOLVERS[name]())


@pytest.mark.filterwarnings("ignore:The model is the same for nearly all:UserWarning")
@pytest.mark.parametrize("name", LINEAR_SOLVERS)
def test_linear_solvers(name):
    check_linear_solver(LINEAR_SOLVERS[name]())


def estimators():
    """Return one estimator for every solver and task, and those that choose by themselves."""
    for name in SOLVERS:
        if name in SEMI_SUPERVISED:
            yield SemiSupervisedKernelClassifier(solver=name, max_iter=4, C=1.0)
            continue
        yield KernelClassifier(CLASSIFIES.get(name, "hinge"), solver=name, **KERNEL)
        if name not in ("perceptron", "sbp"):
            loss, solver = REGRESSES.get(name, ("squared", name))
            yield KernelRegressor(loss, solver=solver, **KERNEL)
    for name in LINEAR_SOLVERS:
        loss = "hinge" if name == "simba" else "logistic"
        yield LinearClassifier(loss, solver=name, **OPTIONS)
        if name not in ("simba", "pegasos"):
            yield LinearRegressor(solver=name, **OPTIONS)
    yield KernelClassifier(max_iter=4)
    yield KernelClassifier("hinge", solver="working_set", multi_class="ovo", **KERNEL)
    yield KernelRegressor("absolute", kernel="laplacian", max_iter=4)
    yield KernelRegressor()
    yield LinearClassifier(**OPTIONS)
    yield LinearRegressor(**OPTIONS)
    yield KernelNoveltyDetector(max_iter=4)
    yield KernelDensityRatio(max_iter=4)
    yield KernelGaussianProcessRegressor()
    yield KernelGaussianProcessRegressor(solver="dsg", max_iter=4)
    yield RandomFeatures(n_components=64)
    yield SemiSupervisedKernelClassifier(max_iter=4, C=1.0)


def title(estimator):
    return f"{type(estimator).__name__}-{getattr(estimator, 'solver', '')}"


# rows whose classes are no clusters are fair game here
@pytest.mark.filterwarnings("ignore:Class . is .* of the labelled rows:UserWarning")
@pytest.mark.parametrize("estimator", list(estimators()), ids=title)
def test_estimators(estimator):
    check_estimator_contract(estimator)
