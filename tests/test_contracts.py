"""Every registered part keeps its contract; every contract can fail."""

from __future__ import annotations

import numpy as np
import pytest
from fuzz import estimators

from cases import every
from kernelgrad import LinearRegressor, get_num_threads
from kernelgrad.kernels import KERNELS, Gaussian, Laplacian, get_kernel
from kernelgrad.losses import LOSSES, UNLABELLED_LOSSES
from kernelgrad.solvers import LINEAR_SOLVERS, SOLVERS
from kernelgrad.testing import (
    check_estimator_contract,
    check_kernel,
    check_linear_solver,
    check_loss,
    check_relations,
    check_solver,
    check_unlabelled_loss,
)

OPTIONS = {"max_iter": 4, "alpha": 1e-2}
ESTIMATORS = list(estimators.every(**OPTIONS))


def title(estimator):
    return f"{type(estimator).__name__}-{getattr(estimator, 'solver', '')}"


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


@pytest.mark.parametrize("name", SOLVERS)
def test_solvers(name):
    check_solver(SOLVERS[name]())


@pytest.mark.parametrize("name", LINEAR_SOLVERS)
def test_linear_solvers(name):
    check_linear_solver(LINEAR_SOLVERS[name]())


# rows whose classes are no clusters are fair game here
@pytest.mark.filterwarnings("ignore:Class . is .* of the labelled rows:UserWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=title)
def test_estimators(estimator):
    check_estimator_contract(estimator)


# all rows at once, a stream, pairs of rows; Newton steps and slopes of linear functions
QUICK = tuple(
    f"{cls}-{solver}"
    for cls in ("KernelRegressor", "KernelClassifier", "LinearRegressor", "LinearClassifier")
    for solver in ("direct", "dsg", "working_set", "rbcd", "sgd")
)


@pytest.mark.filterwarnings("ignore:Class . is .* of the labelled rows:UserWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        pytest.param(each, marks=[] if title(each) in QUICK else pytest.mark.slow)
        for each in ESTIMATORS
    ],
    ids=title,
)
def test_relations(estimator):
    check_relations(estimator)


@every(
    ("check", "depends", "told"),
    [
        (check_estimator_contract, lambda X, y, w: np.random.rand(), "global generator"),  # noqa: NPY002
        (check_estimator_contract, lambda X, y, w: y[0], "the order of rows"),
        (check_estimator_contract, lambda X, y, w: len(y), "repeating rows"),
        (
            check_estimator_contract,
            lambda X, y, w: get_num_threads(),
            "threads change the bits",
        ),
        (check_relations, lambda X, y, w: X.dtype == np.float32, "float32"),
        (check_relations, lambda X, y, w: 0.0 if w is None else np.sum(w), "weights times 4"),
        (check_relations, lambda X, y, w: np.max(y) > 3, "targets times 4"),
        (check_relations, lambda X, y, w: np.min(y) > 3, "targets plus 8"),
        (check_relations, lambda X, y, w: np.std(y) * np.mean(X[:, 0]), "in reverse order"),
    ],
)
def test_models_that_depend_on_what_must_not_matter_are_found(
    check, depends, told, monkeypatch
):
    def other(self, X, y, sample_weight=None):
        fit(self, X, y, sample_weight)
        self.expansion_.coef += 0.01 * depends(X, y, sample_weight)
        return self

    fit = LinearRegressor.fit
    with monkeypatch.context() as patched:
        patched.setattr(LinearRegressor, "fit", other)
        with pytest.raises(AssertionError, match=told):
            check(LinearRegressor(**OPTIONS))
