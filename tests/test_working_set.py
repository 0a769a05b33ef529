"""The working-set solver: LIBSVM, the conditions of optimality, refusals."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.preprocessing import scale
from sklearn.svm import SVC, SVR, OneClassSVM

from kernelgrad import CapabilityError, KernelClassifier, KernelNoveltyDetector, KernelRegressor
from kernelgrad.losses import EpsilonInsensitive, Quantile
from kernelgrad.solvers import WorkingSet


def _machine(cls, loss, **params):
    size = params.pop("set_size", "auto")
    solver = WorkingSet(tol=params.pop("tol", 1e-3), set_size=size)
    return cls(loss, solver=solver, random_state=0, **params)


@pytest.mark.parametrize("set_size", ["auto", 32])
@pytest.mark.parametrize("C", [0.1, 100.0])
def test_hinge_is_the_machine_of_libsvm(C, set_size):
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X)
    ours = _machine(KernelClassifier, "hinge", C=C, gamma=0.02, set_size=set_size).fit(X, y)
    theirs = SVC(C=C, gamma=0.02).fit(X, y)
    assert ours.fit_status_ == "converged"
    np.testing.assert_allclose(
        ours.decision_function(X), theirs.decision_function(X), atol=5e-3
    )
    assert abs(ours.n_support_ - theirs.n_support_.sum()) <= 3
    assert 0 <= ours.history_["duality_gap"][-1] <= 1e-3 * ours.history_["objective"][-1] * 2


@pytest.mark.parametrize("epsilon", [0.0, 10.0])
def test_epsilon_insensitive_is_the_machine_of_libsvm(epsilon):
    X, y = load_diabetes(return_X_y=True)
    X = scale(X)
    ours = _machine(KernelRegressor, EpsilonInsensitive(epsilon), C=10.0, gamma=0.1, tol=1e-4)
    theirs = SVR(C=10.0, epsilon=epsilon, gamma=0.1, tol=1e-5).fit(X, y)
    np.testing.assert_allclose(ours.fit(X, y).predict(X), theirs.predict(X), atol=0.05)


def test_one_class_is_the_machine_of_libsvm():
    X = scale(load_breast_cancer().data)
    solver = WorkingSet(tol=1e-6)
    ours = KernelNoveltyDetector(nu=0.1, solver=solver, gamma=0.02, random_state=0).fit(X)
    theirs = OneClassSVM(nu=0.1, gamma=0.02, tol=1e-6).fit(X)
    a, b = ours.decision_function(X), theirs.decision_function(X)
    assert np.corrcoef(a, b)[0, 1] > 1 - 1e-7
    off = np.abs(b) > 1e-5 * np.abs(b).max()  # rows at the level are on either side
    assert (ours.predict(X) == theirs.predict(X))[off].all()


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_quantiles_leave_their_part_below(q):
    X, y = load_diabetes(return_X_y=True)
    m = _machine(KernelRegressor, Quantile(q), C=1.0, gamma=0.1).fit(scale(X), y)
    f = m.predict(scale(X))
    off = 0.02 * y.std()  # rows at the kink are on both sides
    assert np.mean(y < f - off) <= q <= np.mean(y <= f + off)


def test_without_intercept_the_conditions_hold():
    X, y = load_breast_cancer(return_X_y=True)
    X, C = scale(X), 10.0
    m = _machine(KernelClassifier, "hinge", C=C, gamma=0.02, fit_intercept=False).fit(X, y)
    e = m.expansion_
    assert e.intercept == 0.0
    # rows without a coefficient are no support: they are right by the margin
    f, s = m.decision_function(X), 2.0 * y - 1
    support = np.abs(e.coef[:, 0])
    assert support.max() <= C * (1 + 1e-12)
    assert np.count_nonzero(f * s < 1 + 2e-3) >= np.count_nonzero(support)
    assert np.count_nonzero(f * s < 1 - 2e-3) <= np.count_nonzero(support > 0.999 * C)


def test_losses_without_kinks_are_refused():
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(CapabilityError, match="losses with kinks"):
        KernelRegressor("squared", solver="working_set").fit(X, y)
    with pytest.raises(ValueError, match="alpha > 0"):
        KernelRegressor("absolute", solver="working_set", alpha=0.0).fit(X, y)
