"""Every registered part keeps its contract; every contract can fail."""

import numpy as np
import pytest
from fuzz import estimators

from cases import every, raises
from kernelgrad import LinearRegressor, get_num_threads, testing
from kernelgrad.kernels import KERNELS
from kernelgrad.losses import LOSSES
from kernelgrad.solvers import LINEAR_SOLVERS, SOLVERS, BlockDescent, SoftLabels
from plain import kernel_of

slow = pytest.mark.slow
OPTIONS = {"max_iter": 4, "alpha": 1e-2}
ESTIMATORS = list(estimators.every(**OPTIONS))


def title(estimator):
    return f"{type(estimator).__name__}-{getattr(estimator, 'solver', '')}"


# One part of each paper and optional room is checked in the quick suite, of the core all.
LIGHT = {"intersection", "cdsg", "sbp", "tsg", "sgd", "svrg", "s3gd"}
OPTIONAL = {
    name for known in (KERNELS, SOLVERS, LINEAR_SOLVERS) for name in known.lazy.values()
} - LIGHT
# Contracts of solvers are about states: few centres and short searches do.
SMALL = {
    "block_descent": BlockDescent(block_size=32),
    "soft_labels": SoftLabels(choose=False, rounds=1, n_centres=20),
}


def parts(names):
    return [pytest.param(name, marks=slow if name in OPTIONAL else []) for name in names]


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    testing.check_loss(LOSSES[name]())


@pytest.mark.parametrize("name", parts(name for name in KERNELS if name != "precomputed"))
def test_kernels(name):
    columns = 9 if name == "convolutional" else 3
    X = np.random.default_rng(3).random((24, columns))
    testing.check_kernel(kernel_of(name), X=2.0 * X)


@pytest.mark.parametrize("name", parts(SOLVERS))
def test_solvers(name):
    testing.check_solver(SMALL[name] if name in SMALL else SOLVERS[name]())


@pytest.mark.parametrize("name", parts(LINEAR_SOLVERS))
def test_linear_solvers(name):
    testing.check_solver(LINEAR_SOLVERS[name]())


# One estimator of each kind and of each solver of the core.
QUICK = {
    "KernelClassifier-dsg", "KernelRegressor-WorkingSet(tol=1e-06)", "KernelRegressor-direct",
    "KernelRegressor-cached", "KernelRegressor-newton", "LinearClassifier-svrg",
    "LinearRegressor-sgd", "KernelNoveltyDetector-auto", "KernelDensityRatio-auto",
    "SemiSupervisedKernelClassifier-tsg", "RandomFeatures-",
}  # fmt: skip
# rows whose classes are no clusters are fair game here
pytestmark = pytest.mark.filterwarnings("ignore:Class . is .* of the labelled rows:UserWarning")


def quickly(names):
    return pytest.mark.parametrize(
        "estimator",
        [pytest.param(e, marks=[] if title(e) in names else slow) for e in ESTIMATORS],
        ids=title,
    )


@quickly(QUICK)
def test_estimators(estimator):
    testing.check_estimator_contract(estimator)


@quickly({name for name in QUICK if name.startswith(("KernelC", "KernelR", "LinearR"))})
def test_relations(estimator):
    testing.check_relations(estimator)


CONTRACT, RELATIONS = testing.check_estimator_contract, testing.check_relations


@every(
    ("check", "depends", "told"),
    [
        (CONTRACT, lambda X, y, w: np.random.rand(), "global generator"),  # noqa: NPY002
        (CONTRACT, lambda X, y, w: y[0], "the order of rows"),
        (CONTRACT, lambda X, y, w: len(y), "repeating rows"),
        (CONTRACT, lambda X, y, w: get_num_threads(), "threads change the bits"),
        (RELATIONS, lambda X, y, w: X.dtype == np.float32, "float32"),
        (RELATIONS, lambda X, y, w: 0.0 if w is None else np.sum(w), "weights times 4"),
        (RELATIONS, lambda X, y, w: np.max(y) > 3, "targets times 4"),
        (RELATIONS, lambda X, y, w: np.min(y) > 3, "targets plus 8"),
        (RELATIONS, lambda X, y, w: np.std(y) * np.mean(X[:, 0]), "in reverse order"),
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
        raises(AssertionError, told, check, LinearRegressor(**OPTIONS))
