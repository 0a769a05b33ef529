"""Every registered part keeps its contract; every contract can fail."""

from __future__ import annotations

import numpy as np
import pytest
from fuzz.estimators import every

from kernelgrad import LinearRegressor
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
ESTIMATORS = list(every(**OPTIONS))


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


class Unsteady(LinearRegressor):
    """Whose model depends on what must not matter."""

    def fit(self, X, y, sample_weight=None):
        super().fit(X, y, sample_weight)
        self.expansion_.coef += 0.01 * self.depends(X, y, sample_weight)
        return self

    def depends(self, X, y, sample_weight):
        return 0.0


def depends_on_precision(self, X, y, sample_weight):
    return X.dtype == np.float32


def depends_on_weights(self, X, y, sample_weight):
    return 0.0 if sample_weight is None else np.sum(sample_weight)


def depends_on_targets(self, X, y, sample_weight):
    return np.max(y) > 3


def depends_on_columns(self, X, y, sample_weight):
    return np.std(y) * np.mean(X[:, 0])


@pytest.mark.parametrize(
    ("depends", "told"),
    [
        (depends_on_precision, "float32"),
        (depends_on_weights, "weights times 4"),
        (depends_on_targets, "targets times 4"),
        (depends_on_columns, "columns in reverse order"),
    ],
)
def test_relations_can_fail(depends, told, monkeypatch):
    monkeypatch.setattr(Unsteady, "depends", depends)
    with pytest.raises(AssertionError, match=told):
        check_relations(Unsteady(**OPTIONS))
