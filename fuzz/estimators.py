"""Every estimator with every solver that it takes, from the registries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kernelgrad as kg
from kernelgrad.solvers import DSG, LINEAR_SOLVERS, SOLVERS, WorkingSet

# the loss of the solvers that do not take the hinge
CLASSIFIES = {
    "direct": "squared", "newton": "logistic", "perceptron": "perceptron",
}  # fmt: skip
# of the solvers that do not take the squared loss, to tolerances below those of the contract
REGRESSES = {"working_set": ("absolute", WorkingSet(tol=1e-6))}


def every(**options: Any) -> Iterator[Any]:
    """Yield an estimator for every solver and task, and those that choose by themselves.

    `options` are for all: max_iter, alpha.
    """
    plain = {"alpha": 1e-6} | options
    kernel = {**plain, "gamma": "median"}
    few = {name: value for name, value in options.items() if name != "alpha"}
    for name, cls in SOLVERS.items():
        if cls.marks:
            yield kg.SemiSupervisedKernelClassifier(solver=name, C=1.0, **few)
            continue
        yield kg.KernelClassifier(CLASSIFIES.get(name, "hinge"), solver=name, **kernel)
        if name not in ("perceptron", "sbp"):
            loss, solver = REGRESSES.get(name, ("squared", name))
            yield kg.KernelRegressor(loss, solver=solver, **kernel)
    for name in LINEAR_SOLVERS:
        yield kg.LinearClassifier("logistic", solver=name, **plain)
        if name != "pegasos":
            yield kg.LinearRegressor(solver=name, **plain)
    yield kg.KernelClassifier(**few)
    yield kg.KernelClassifier("hinge", solver="working_set", multi_class="ovo", **kernel)
    yield kg.KernelRegressor("absolute", kernel="laplacian", **few)
    yield kg.KernelRegressor()
    yield kg.KernelRegressor(gamma="scale", standardize=True, alpha=plain["alpha"])
    yield kg.KernelClassifier("hinge", C=1.0, gamma="scale", standardize=True, **few)
    yield kg.LinearClassifier(**plain)
    yield kg.LinearRegressor(**plain)
    yield kg.KernelNoveltyDetector(**few)
    yield kg.KernelDensityRatio(**few)
    yield kg.KernelGaussianProcessRegressor()
    yield kg.KernelGaussianProcessRegressor(solver=DSG(block_size=64), **few)
    yield kg.RandomFeatures(n_components=64)
    yield kg.SemiSupervisedKernelClassifier(random_state=0)
