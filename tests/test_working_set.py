"""The working-set solver: LIBSVM, the conditions of optimality, refusals."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    make_classification,
)
from sklearn.preprocessing import scale
from sklearn.svm import SVC, SVR, OneClassSVM

from cases import every
from kernelgrad import CapabilityError, KernelClassifier, KernelNoveltyDetector, KernelRegressor
from kernelgrad.functions import exact
from kernelgrad.functions.exact import ExactKernel, KernelRows
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import EpsilonInsensitive, Quantile
from kernelgrad.solvers import TrainBatch, WorkingSet, working_set


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


def _least_of_libsvm(svm, X, y, gamma, epsilon=0.0):
    """Return C times the sum of losses plus |f|^2 / 2 of a machine of scikit-learn."""
    K = Gaussian(gamma).pairwise(X[svm.support_], X[svm.support_])
    beta = svm.dual_coef_[0]
    return beta @ y[svm.support_] - epsilon * np.abs(beta).sum() - 0.5 * beta @ K @ beta


def _dual_value(model):
    """Return the maximum of the dual; the objective is above it by margins within `tol`."""
    return model.history_["objective"][-1] - model.history_["duality_gap"][-1]


def _noisy_classes():
    X, y = make_classification(
        300, 6, n_informative=5, n_redundant=0, flip_y=0.4, random_state=1
    )
    return scale(X), 2.0 * y - 1


@every("set_size", ["auto", 128])
@every("C", [1e-3, 1.0, 1e2, 1e4])
def test_noisy_labels_at_any_cost(C, set_size):
    X, y = _noisy_classes()
    m = _machine(KernelClassifier, "hinge", C=C, gamma=0.2, max_iter=200, set_size=set_size)
    m.fit(X, y)
    least = _least_of_libsvm(SVC(C=C, gamma=0.2, tol=1e-5).fit(X, y), X, y, 0.2)
    assert m.fit_status_ == "converged"
    assert np.abs(m.expansion_.coef).max() <= C * (1 + 1e-12)
    assert abs(m.expansion_.coef.sum()) <= 1e-9 * C * len(X)
    assert C * len(X) * _dual_value(m) == pytest.approx(least, rel=1e-3)


@pytest.mark.parametrize("C", [1e-2, 1.0, 1e4])
def test_tubes_at_any_cost(C):
    X, y = load_diabetes(return_X_y=True)
    X, y = scale(X), scale(y.astype(float))
    m = _machine(KernelRegressor, EpsilonInsensitive(0.1), C=C, gamma=0.1, max_iter=200)
    m.fit(X, y)
    svm = SVR(C=C, epsilon=0.1, gamma=0.1, tol=1e-5).fit(X, y)
    least = _least_of_libsvm(svm, X, y, 0.1, 0.1)
    assert m.fit_status_ == "converged"
    assert C * len(X) * _dual_value(m) == pytest.approx(least, rel=1e-3)


@every("fit_intercept", [True, False])
@every("alpha", 10.0 ** -np.arange(10))
def test_objective_is_the_least(alpha, fit_intercept):
    """Beside a general method on the dual in float64."""
    X, y = _noisy_classes()
    X, y = X[:60], y[:60]
    X[50:], y[50:] = X[:10], -y[:10]  # twice, with the other label
    m = _machine(
        KernelClassifier, "hinge", alpha=alpha, gamma=0.2, max_iter=300, set_size=32,
        fit_intercept=fit_intercept,
    ).fit(X, y)  # fmt: skip
    # the dual in units of its bounds, where it is of one size for all alpha
    K, most = Gaussian(0.2).pairwise(X, X), 1 / (alpha * len(y))
    Q = y[:, None] * K * y
    sums = [{"type": "eq", "fun": lambda a: a @ y, "jac": lambda a: y}]
    found = minimize(
        lambda a: (0.5 * most * a @ Q @ a - a.sum()) / len(y),
        np.zeros(len(y)), jac=lambda a: (most * Q @ a - 1) / len(y),
        bounds=[(0, 1)] * len(y), constraints=sums * fit_intercept,
        options={"maxiter": 2000, "ftol": 1e-14} | ({} if fit_intercept else {"gtol": 1e-12}),
        method="SLSQP" if fit_intercept else "L-BFGS-B",
    )  # fmt: skip
    assert m.fit_status_ == "converged"
    assert _dual_value(m) == pytest.approx(-found.fun, rel=1e-3, abs=1e-12)


def test_small_penalties_get_the_minimum_of_float64_values(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 3)).astype(np.float32)
    y = 2 * np.sin(6 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.1 * rng.standard_normal(300)

    def told(alpha):
        """The objective that a fit tells over what it is, and its gap."""
        m = _machine(
            KernelRegressor, EpsilonInsensitive(0.1), alpha=alpha, gamma=0.5, max_iter=200
        ).fit(X, y)
        Z, beta = m.expansion_.support.values.astype(float), m.expansion_.coef[:, 0]
        norm = beta @ np.exp(-0.5 * ((Z[:, None] - Z) ** 2).sum(axis=2)) @ beta
        error = np.maximum(0.0, np.abs(y - m.predict(X)) - 0.1)
        own = error.mean() + 0.5 * alpha * norm
        history = m.history_
        return history["objective"][-1] / own - 1, history["duality_gap"][-1] / own

    for alpha in (1e-3, 1e-6, 1e-8):
        assert np.abs(told(alpha)).max() < 1e-3
    monkeypatch.setattr(exact, "SMALL_ALPHA", 0.0)
    assert np.abs(told(1e-8)).max() > 1e-2  # the control


def test_a_constant_in_the_targets_moves_the_intercept():
    X, y = load_diabetes(return_X_y=True)
    X, y = scale(X), scale(y.astype(float))
    fits = [
        _machine(KernelRegressor, EpsilonInsensitive(0.1), C=10.0, gamma=0.1).fit(X, y + shift)
        for shift in (0.0, 1e5)
    ]
    assert [m.fit_status_ for m in fits] == ["converged"] * 2
    a, b = (m.predict(X) for m in fits)
    np.testing.assert_allclose(a, b - 1e5, atol=0.02)


@pytest.mark.parametrize("set_size", ["auto", 64])
def test_what_float32_cannot_tell_ends(set_size):
    X, y = load_diabetes(return_X_y=True)
    X, y = scale(X[:200]), scale(y[:200].astype(float))
    m = _machine(
        KernelRegressor, "absolute", C=1e9, gamma=0.1, fit_intercept=False, max_iter=3,
        tol=1e-9, set_size=set_size,
    ).fit(X, y + 1e6)  # fmt: skip
    assert m.fit_status_ == "max_iter"
    assert m.history_["objective"][-1] < 0.1 * 1e6  # of the zero function it is 1e6


def test_little_memory_changes_rounding_alone():
    X, y = load_digits(return_X_y=True)
    X = scale(X)
    fits = [
        _machine(KernelClassifier, "hinge", C=1.0, gamma=0.02, memory_limit=m, max_iter=200)
        for m in (None, 36e6)  # the kept rows of two sets at most
    ]
    a, b = (m.fit(X[:900], y[:900]) for m in fits)
    assert {a.fit_status_, b.fit_status_} == {"converged"}
    assert b.history_["kernel_evaluations"][-1] > a.history_["kernel_evaluations"][-1]
    np.testing.assert_allclose(a.decision_function(X), b.decision_function(X), atol=5e-3)


@pytest.mark.parametrize("C", [1.0, 100.0])
@pytest.mark.parametrize("data", [load_iris, load_digits])
def test_pairs_predict_as_libsvm(data, C):
    X, y = data(return_X_y=True)
    X, names = scale(X), np.array(list("abcdefghij"))[y]
    gamma = 1 / X.shape[1]
    ours = _machine(KernelClassifier, "hinge", C=C, gamma=gamma, multi_class="ovo")
    ours.fit(X[::2], names[::2])
    theirs = SVC(C=C, gamma=gamma).fit(X[::2], names[::2])
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    a, b = ours.decision_function(X), theirs.decision_function(X)
    assert a.shape == b.shape
    near = np.abs(a - b).max(axis=1) < 5e-3  # a pair near 0 may vote otherwise
    assert near.mean() > 0.99


def test_pairs_of_weighted_rows():
    X, y = load_iris(return_X_y=True)
    w = np.where(np.arange(len(y)) % 3, 1.0, 0.0)
    given = {"C": 10.0, "gamma": 0.2, "multi_class": "ovo", "class_weight": {1: 3.0}}
    a = _machine(KernelClassifier, "hinge", **given).fit(X, y, sample_weight=w)
    b = _machine(KernelClassifier, "hinge", **given).fit(X[w > 0], y[w > 0])
    np.testing.assert_allclose(a.decision_function(X), b.decision_function(X), atol=5e-3)
    theirs = SVC(C=10.0, gamma=0.2, class_weight={1: 3.0}).fit(X[w > 0], y[w > 0])
    np.testing.assert_array_equal(a.predict(X), theirs.predict(X))


def test_a_class_without_weight_ends():
    X, y = load_iris(return_X_y=True)
    for multi_class in ("auto", "ovo"):
        m = _machine(KernelClassifier, "hinge", C=10.0, gamma=0.2, multi_class=multi_class)
        m.fit(X, y, sample_weight=(y < 2).astype(float))
        assert m.fit_status_ == "converged"
        assert m.score(X[y < 2], y[y < 2]) == 1.0


def test_pairs_are_refused_where_they_mean_nothing():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="losses of the margin"):
        KernelClassifier("squared", multi_class="ovo").fit(X, y)
    with pytest.raises(CapabilityError, match="third class"):
        KernelClassifier("hinge", solver="sbp", multi_class="ovo").fit(X, y)
    with pytest.raises(ValueError, match="multi_class"):
        KernelClassifier("hinge", multi_class="ovr").fit(X, y)


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


def test_a_path_is_its_single_fits():
    X, y = load_breast_cancer(return_X_y=True)
    X, alphas = scale(X), (1e-2, 1e-3, 1e-5, 1e-7)
    settings = {"solver": "working_set", "gamma": 0.02, "random_state": 0}
    found = KernelClassifier("hinge", alpha=alphas[0], **settings).fit(X, y)
    y = np.where(y > 0, 1.0, -1.0).astype(np.float32)[:, None]
    problem = found._problem(found.kernel_, found.loss_, 1, alphas[0])
    _, path = WorkingSet().path(problem, TrainBatch(X, y, np.ones(len(X))), alphas, X, 50)
    for alpha, f in zip(alphas, path, strict=True):
        single = KernelClassifier("hinge", alpha=alpha, **settings).fit(X, y[:, 0])
        np.testing.assert_allclose(f[:, 0], single.decision_function(X), atol=1e-2)
    assert np.abs(path[0] - path[3]).max() > 0.1


def test_a_start_with_more_rows_than_are_kept_reads_its_own_rows(monkeypatch):
    monkeypatch.setattr(working_set, "_LEAST_ROWS", 40)
    rng = np.random.default_rng(0)
    X, coef = rng.standard_normal((300, 3)), rng.standard_normal((300, 2))
    exact = ExactKernel(Gaussian(gamma=0.3), 3)
    K = KernelRows(exact, exact.prepare(X), 4 * 300 * 5)
    responses = np.zeros((2, 300))
    working_set._add(K, coef, responses)
    np.testing.assert_allclose(responses, (Gaussian(gamma=0.3)(X) @ coef).T, atol=1e-4)
    assert len(K.buffer) == 40


def test_half_of_the_new_rows_of_a_set_are_drawn():
    rng = np.random.default_rng(0)
    n, size = 400, 40
    y = np.repeat([1.0, -1.0], n // 2)
    low, high = np.where(y < 0, -1.0, 0.0), np.where(y > 0, 1.0, 0.0)
    dual = working_set._Dual(y, low, high, 0.0, 0.0, has_bias=True)
    up, down = dual.gradients(np.zeros(n), rng.standard_normal(n) / 10)
    order = rng.permutation(n)
    found = dual.next_set(np.zeros(n), up, down, np.zeros(0, np.intp), size, order)
    assert len(found) == size
    for gradients, side in ((up, slice(0, n // 2)), (-down, slice(n // 2, n))):
        rows = np.arange(n)[side]
        worst = rows[np.argsort(gradients[side])[: size // 4]]
        others = np.setdiff1d(rows, worst)
        drawn = others[np.argsort(order[others])[: size // 4]]
        assert np.isin(found, rows).sum() == size // 2
        assert np.isin([*worst, *drawn], found).all()


def test_kernel_values_among_the_rows_of_a_set():
    X = np.random.default_rng(0).standard_normal((300, 4))
    exact = ExactKernel(Gaussian(gamma=0.3), 4)
    rows = KernelRows(exact, exact.prepare(X), 10**6)
    index = np.sort(np.random.default_rng(1).permutation(300)[:150])
    slots = rows.load(index)
    some = index[::2]
    for extra in (0, 1):
        whole, part = working_set._among(rows, [slots, slots[::2]], [index, some], extra)
        for K, of in ((whole, index), (part, some)):
            m = len(of)
            np.testing.assert_allclose(K[:m, :m], rows.square(rows.load(of), of), rtol=1e-5)
            assert not K[m:].any()
            assert not K[:, m:].any()
            assert len(K) == m + extra
