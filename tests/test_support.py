"""Functions that are sums over rows: predictions, kept kernel rows, files, outside kernels."""

from __future__ import annotations

import pickle
from collections import OrderedDict

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.svm import SVC

import kernelgrad
from kernelgrad.functions.exact import PREDICT_TILE, ExactKernel, KernelRows
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import (
    ArcCosine,
    DotProduct,
    Gaussian,
    Laplacian,
    Polynomial,
    PrecomputedKernel,
)
from kernelgrad.solvers import StochasticBatchPerceptron
from kernelgrad.training_rows import canonical_rows
from kernelgrad.validation import CapabilityError, DataError
from plain import plain_classifier

KERNELS = [
    Gaussian(gamma=0.3),
    Laplacian(gamma=0.2),
    DotProduct([0.5, 1.0]),
    Polynomial(degree=2, gamma=0.3),
    ArcCosine(),
    Gaussian(gamma=0.3) + DotProduct([0.0, 1.0]),
]


def rows(n=200, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def labels(X):
    return (X[:, 0] ** 2 + X[:, 1] > 0.4).astype(int)


def three(X):
    return labels(X) + (X[:, 2] > 0.3)


def expansion(kernel, S, C=2, seed=1, **scaling):
    exact = ExactKernel(kernel, S.shape[1], InputScaling(**scaling) if scaling else None)
    rng = np.random.default_rng(seed)
    coef = rng.standard_normal((S.shape[0], C))
    return SupportExpansion(exact, exact.prepare(S), coef, rng.standard_normal(C))


def model(**params):
    defaults = {"loss": "hinge", "solver": "sbp", "C": 1.0, "gamma": 0.3, "max_iter": 8}
    return plain_classifier(**defaults | {"random_state": 0} | params)


# -- predictions -----------------------------------------------------------------------


def test_prediction_is_the_sum():
    S, X = rows(600), rows(700, seed=5)
    for kernel in KERNELS:
        e = expansion(kernel, S)
        expected = kernel(X, S) @ e.coef + e.intercept
        near = 3e-6 * np.abs(kernel(X, S)) @ np.abs(e.coef) + 1e-6
        for given in (X, sp.csr_matrix(X)):
            f = e.raw_prediction(given)
            assert (np.abs(f - expected) < near).all(), kernel
        assert f.dtype == np.float64
        assert e.n_outputs == 2
        assert e.raw_prediction(X[:0]).shape == (0, 2)


def test_memory_is_a_tile_not_a_matrix(monkeypatch):
    sizes = []
    values = ExactKernel.values

    def traced(self, A, B, **how):
        sizes.append(A.n_rows * B.n_rows)
        return values(self, A, B, **how)

    monkeypatch.setattr(ExactKernel, "values", traced)
    e = expansion(Gaussian(gamma=0.3), rows(1500))
    e.raw_prediction(rows(3000, seed=3))
    assert sum(sizes) == 1500 * 3000
    assert max(sizes) <= PREDICT_TILE**2


def test_zero_coefficients_are_dropped():
    S = rows(50)
    exact = ExactKernel(Gaussian(gamma=0.3), 3)
    coef = np.random.default_rng(0).standard_normal((50, 2))
    coef[::3] = 0.0
    coef[1, 0] = 0.0  # the other output still needs the row
    e = SupportExpansion(exact, exact.prepare(S), coef, np.zeros(2))
    used = np.arange(50) % 3 != 0
    assert e.n_support == e.summary()["n_support"] == used.sum()
    np.testing.assert_array_equal(e.coef, coef[used])
    np.testing.assert_allclose(e.raw_prediction(S), Gaussian(gamma=0.3)(S, S) @ coef, atol=1e-5)
    nothing = SupportExpansion(exact, exact.prepare(S), np.zeros((50, 1)), np.ones(1))
    assert nothing.n_support == 0
    np.testing.assert_array_equal(nothing.raw_prediction(S), np.ones((50, 1)))


def test_limited_is_the_projection():
    S, kernel = rows(80), Laplacian(gamma=0.2)
    e = expansion(kernel, S)
    few = e.limited(20)
    assert few.n_support == 20
    np.testing.assert_array_equal(few.intercept, e.intercept)
    K = kernel(S, S)
    values = np.asarray(few.support.values, float)
    prepared = np.asarray(e.support.values, float)
    kept = np.argmin(((values[:, None] - prepared[None]) ** 2).sum(-1), axis=1)
    # the rows whose single loss moves f most
    power = np.diag(K) * (e.coef**2).max(axis=1)
    assert set(kept) == set(np.argsort(-power)[:20])
    b = np.zeros_like(e.coef)
    b[kept] = few.coef
    # the residual is orthogonal to the span, so nothing in it is closer
    np.testing.assert_allclose((K @ (b - e.coef))[kept], 0.0, atol=1e-4)

    def distance(coef):
        return np.einsum("ic,ij,jc->c", coef - e.coef, K, coef - e.coef)

    rng = np.random.default_rng(0)
    for _ in range(50):
        other = b.copy()
        other[kept] += 0.05 * rng.standard_normal((20, 2))
        assert (distance(other) > distance(b)).all()
    cut = np.zeros_like(b)
    cut[kept] = e.coef[kept]
    assert (distance(cut) > distance(b) * 1.01).all()
    assert e.limited(80) is e or e.limited(80).n_support == 80
    np.testing.assert_array_equal(e.limited(200).coef, e.coef)


def test_limited_survives_repeated_rows():
    S = np.repeat(rows(30), 2, axis=0)
    e = expansion(Gaussian(gamma=0.3), S).limited(40)
    assert np.isfinite(e.raw_prediction(S)).all()
    assert np.abs(e.raw_prediction(S)).max() < 1e3


@pytest.mark.parametrize("kernel", ["rbf", "polynomial", "precomputed", rbf_kernel])
def test_max_support_with_every_kind_of_kernel(kernel):
    X = rows(120)
    y = three(X)
    A = rbf_kernel(X, gamma=0.3) if kernel == "precomputed" else X
    z = model(kernel=kernel, solver=StochasticBatchPerceptron(max_support=30)).fit(A, y)
    assert z.n_support_ == z.expansion_.n_support == 30
    assert z.score(A, y) > 0.6


# -- kept kernel rows ------------------------------------------------------------------


def kernel_rows(n=40, budget=2**20, **kwargs):
    exact = ExactKernel(Gaussian(gamma=0.3), 3, **kwargs)
    return KernelRows(exact, exact.prepare(rows(n)), budget)


def test_kept_rows_are_the_last_used():
    n, budget = 40, 5
    cache = kernel_rows(n, budget * 4 * n)
    free = kernel_rows(n, 10**9)
    K = Gaussian(gamma=0.3)(rows(n), rows(n))
    kept: OrderedDict[int, None] = OrderedDict()
    rng = np.random.default_rng(0)
    computed = 0
    for _ in range(300):
        index = np.sort(rng.choice(n // 3, rng.integers(1, budget + 1), replace=False))
        for i in index.tolist():  # what was used longest ago goes
            if i in kept:
                kept.move_to_end(i)
        for i in index.tolist():
            if i not in kept:
                computed += 1
                if len(kept) == budget:
                    kept.popitem(last=False)
                kept[i] = None
        slots, others = cache.load(index), free.load(index)
        assert cache.n_evaluations == computed * n
        assert len(set(slots.tolist())) == len(index)
        everything = np.arange(n)
        got = cache.square(slots, everything)
        np.testing.assert_allclose(got, K[index], atol=1e-6)
        np.testing.assert_array_equal(got, free.square(others, everything))
        coef = rng.standard_normal((len(index), 2))
        product = cache.product(slots, coef)
        np.testing.assert_array_equal(product, free.product(others, coef))
        np.testing.assert_allclose(product, coef.T @ K[index], atol=1e-5)
    assert cache.n_evaluations > free.n_evaluations
    assert free.n_evaluations <= (n // 3) * n


def test_budget_is_bytes():
    assert kernel_rows(40, 7 * 160 + 159).buffer.nbytes == 7 * 160
    assert kernel_rows(40, 10**9).buffer.nbytes == 40 * 160
    assert kernel_rows(40, 0).buffer.nbytes == 160


def test_rows_far_from_their_centre_keep_their_differences():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2)) * [1.0, 1e5]
    X[:100, 1] = 0.0
    y = labels(np.c_[X, X[:, :1]])
    z = model(gamma=1.0, standardize=False, max_iter=20).fit(X, y)
    e = z.expansion_
    prepared = e.exact.prepare(X).values
    used = [int(np.flatnonzero((prepared == r).all(axis=1))[0]) for r in e.support.values]
    K = np.exp(-((X[:, None] - X[None, used]) ** 2).sum(-1))
    f = (K @ z.expansion_.coef).ravel() + z.intercept_
    np.testing.assert_allclose(z.decision_function(X), f, atol=1e-3)


# -- functions as kernels --------------------------------------------------------------


def gaussian(X, Z):
    return rbf_kernel(X, Z, gamma=0.3)


def laplacian(X, Z):
    return laplacian_kernel(X, Z, gamma=0.3)


def test_a_function_is_the_kernel_of_that_name():
    X = np.where(np.abs(rows(150)) > 0.2, rows(150), 0.0)
    y, S = three(X), sp.csr_matrix(X)
    for A, function, kernel in ((X, gaussian, "rbf"), (S, laplacian, Laplacian(gamma=0.3))):
        f = model(kernel=function).fit(A, y).decision_function(A)
        g = model(kernel=kernel).fit(A, y).decision_function(A)
        np.testing.assert_allclose(f, g, atol=1e-4)


def test_a_function_must_return_a_matrix():
    X = rows(60)
    for wrong in (
        lambda A, B: np.ones(3),
        lambda A, B: np.full((len(A), len(B)), np.nan),
        lambda A, B: np.full((len(A), len(B)), "a"),
    ):
        z = model(kernel=wrong)
        with pytest.raises(DataError, match="kernel function"):
            z.fit(X, labels(X))
        assert not hasattr(z, "expansion_")


def test_a_function_cannot_be_written(tmp_path):
    X = rows(60)
    z = model(kernel=gaussian).fit(X, labels(X))
    with pytest.raises(TypeError, match="function"):
        z.save(tmp_path / "m.kg")
    assert not list(tmp_path.iterdir())
    twin = pickle.loads(pickle.dumps(z))
    np.testing.assert_array_equal(twin.decision_function(X), z.decision_function(X))


@pytest.mark.parametrize("kernel", [gaussian, "precomputed"])
def test_random_features_need_a_kernel_that_has_them(kernel):
    X = rows(60)
    z = plain_classifier(kernel=kernel, solver="dsg")
    with pytest.raises(CapabilityError, match="random_features"):
        z.fit(gaussian(X, X), labels(X))


# -- matrices as kernels ---------------------------------------------------------------


def test_merged_rows_and_weights_have_no_order():
    rng = np.random.default_rng(0)
    X, y, weight = rng.integers(0, 3, (90, 1)), rng.integers(0, 2, 90), rng.random(90)
    expected = canonical_rows(X, y, weight, merge=True)
    for _ in range(5):
        i = rng.permutation(90)
        for found, known in zip(
            canonical_rows(X[i], y[i], weight[i], merge=True), expected, strict=True
        ):
            np.testing.assert_array_equal(found, known)


def canonical(n=150, seed=0):
    """Return rows in the order that a fit brings them to."""
    X = rows(n, seed=seed)
    X, y, _ = canonical_rows(X, three(X), np.ones(n), merge=True)
    return X, y


@pytest.mark.parametrize("bias", [False, True])
def test_a_matrix_is_the_kernel_it_holds(bias):
    X, y = canonical()
    T = rows(70, seed=4)
    named = model(fit_intercept=bias).fit(X, y)
    z = model(kernel="precomputed", fit_intercept=bias).fit(gaussian(X, X), y)
    np.testing.assert_allclose(
        z.decision_function(gaussian(T, X)), named.decision_function(T), atol=1e-4
    )
    assert z.n_features_in_ == len(X)
    with pytest.raises(ValueError, match="features"):
        z.predict(gaussian(T, X[:100]))
    sparse = model(kernel="precomputed", fit_intercept=bias)
    sparse.fit(sp.csr_matrix(gaussian(X, X)), y)
    np.testing.assert_array_equal(
        sparse.decision_function(gaussian(T, X)), z.decision_function(gaussian(T, X))
    )


def test_cross_validation_slices_both_sides():
    X, y = canonical()
    K = gaussian(X, X)
    folds = StratifiedKFold(3)
    z = model(kernel="precomputed", max_iter=20)
    scores = cross_val_score(z, K, y, cv=folds)
    by_hand = [
        clone(z).fit(K[np.ix_(a, a)], y[a]).score(K[np.ix_(b, a)], y[b])
        for a, b in folds.split(K, y)
    ]
    np.testing.assert_array_equal(scores, by_hand)
    svc = cross_val_score(SVC(kernel="precomputed"), K, y, cv=folds)
    assert scores.mean() > svc.mean() - 0.05
    search = GridSearchCV(z, {"C": [0.01, 1.0]}, cv=folds).fit(K, y)
    assert search.predict(K[:5]).shape == (5,)
    assert search.cv_results_["mean_test_score"][1] == scores.mean()
    assert not model().__sklearn_tags__().input_tags.pairwise


def test_a_matrix_must_be_square_and_unscaled():
    X, y = canonical()
    K = gaussian(X, X)
    z = model(kernel="precomputed")
    with pytest.raises(ValueError, match="square"):
        z.fit(K[:, :100], y)
    with pytest.raises(ValueError, match="standardize"):
        model(kernel="precomputed", standardize=True).fit(K, y)
    with pytest.raises(NotFittedError):
        z.predict(K)


def disc(n=120):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    return X, (X[:, 0] + X[:, 1] ** 2 > 0.7).astype(int)


def test_a_precomputed_kernel_by_object_is_one_by_name():
    X, y = disc()
    K = Gaussian(0.5)(X)
    scores = [
        plain_classifier("hinge", kernel=k, solver="sbp", C=1.0, random_state=0)
        .fit(K, y)
        .decision_function(K)
        for k in ("precomputed", PrecomputedKernel())
    ]
    np.testing.assert_array_equal(*scores)


def test_every_precomputed_fit_needs_a_square_matrix():
    X, y = disc()
    K = Gaussian(0.5)(X)
    z = plain_classifier(
        "hinge", kernel="precomputed", solver="pegasos", warm_start=True, random_state=0
    ).fit(K, y)
    before = z.decision_function(K)
    with pytest.raises(ValueError, match="square"):
        z.fit(K[50:], y[50:])
    np.testing.assert_array_equal(z.decision_function(K), before)


def test_a_matrix_beyond_float32_is_refused():
    X, y = disc()
    for solver in ("sbp", "sdca", "pegasos"):
        z = plain_classifier("hinge", kernel="precomputed", solver=solver)
        with pytest.raises(DataError, match="float32"):
            z.fit(1e39 * Gaussian(0.5)(X), y)


def test_models_of_a_matrix_hold_no_kernel_values(tmp_path):
    X, y = disc()
    K = Gaussian(0.5)(X)
    z = plain_classifier("hinge", kernel="precomputed", solver="sbp", random_state=0).fit(K, y)
    assert z.expansion_.nbytes < 40 * z.n_support_
    z.save(tmp_path / "model")
    again = kernelgrad.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(K), z.decision_function(K))


@pytest.mark.parametrize("other", [1e-1, 1e-3])
def test_sdca_goes_on_with_another_alpha(other):
    X, y = disc()
    given = {"solver": "sdca", "gamma": 0.5, "max_iter": 400, "random_state": 0}
    z = plain_classifier("hinge", alpha=1e-2, warm_start=True, **given).fit(X, y)
    z.set_params(alpha=other).fit(X, y)
    fresh = plain_classifier("hinge", alpha=other, **given).fit(X, y)
    assert z.fit_status_ == fresh.fit_status_ == "converged"

    def objective(model):
        e = model.expansion_
        f = e.raw_prediction(X)[:, 0]
        w2 = e.coef[:, 0] @ e.exact.matrix(e.support, e.support).astype(float) @ e.coef[:, 0]
        return np.maximum(0, 1 - (2 * y - 1) * f).mean() + other / 2 * w2

    assert objective(z) == pytest.approx(objective(fresh), rel=2e-3)


def test_a_torn_step_is_never_kept(monkeypatch):
    X, y = disc()
    z = plain_classifier("hinge", solver="sbp", max_iter=30, random_state=0)
    load, calls = KernelRows.load, []

    def interrupted(self, index):
        calls.append(index)
        if len(calls) == 40:
            raise KeyboardInterrupt
        return load(self, index)

    monkeypatch.setattr(KernelRows, "load", interrupted)
    z.set_params(solver=StochasticBatchPerceptron(batch_size=2, round_size=20))
    with pytest.raises(KeyboardInterrupt):
        z.fit(X, y)
    assert not hasattr(z, "expansion_")


@pytest.mark.parametrize(
    ("solver", "params"),
    [("sdca", {"alpha": 0.0}), ("pegasos", {"alpha": 0.0}), ("sdca", {"loss": "log_loss"})],
)
def test_what_a_solver_cannot_do_is_said_before_rows_are_read(solver, params):
    class Counting(kernelgrad.ArraySource):
        reads = 0

        def take(self, rows):
            type(self).reads += 1
            return super().take(rows)

    X, y = disc()
    y = np.arange(len(y)) % 3
    z = plain_classifier(**({"loss": "hinge", "solver": solver} | params))
    with pytest.raises(ValueError, match=r"solver|loss"):
        z.fit(Counting(X, y))
    assert Counting.reads == 0
