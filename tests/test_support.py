"""Functions that are sums over rows: predictions, limits, kept kernel rows, given matrices."""

from collections import OrderedDict

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold, cross_val_score

import kernelgrad
from cases import every, raises
from draws import normal
from kernelgrad import kernels as kk
from kernelgrad.functions import compression
from kernelgrad.functions.compression import compressed
from kernelgrad.functions.exact import ExactKernel, KernelRows
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.training_rows import canonical_rows
from kernelgrad.validation import CapabilityError, DataError
from plain import plain_classifier
from sources import Unread

KERNELS = [
    kk.Gaussian(gamma=0.3), kk.Laplacian(gamma=0.2), kk.Polynomial(degree=2, gamma=0.3),
    kk.ArcCosine(), kk.Gaussian(gamma=0.3) + kk.DotProduct([0.0, 1.0]),
]  # fmt: skip


def labels(X):
    return (X[:, 0] ** 2 + X[:, 1] > 0.4).astype(int)


def three(X):
    return labels(X) + (X[:, 2] > 0.3)


def gaussian(X, Z):
    return rbf_kernel(X, Z, gamma=0.3)


def expansion(kernel, S, C=2, seed=1):
    exact, rng = ExactKernel(kernel, S.shape[1]), np.random.default_rng(seed)
    coef = rng.standard_normal((S.shape[0], C))
    return SupportExpansion(exact, exact.prepare(S), coef, rng.standard_normal(C))


def model(**params):
    defaults = {"loss": "hinge", "solver": "sbp", "C": 1.0, "gamma": 0.3, "max_iter": 8}
    return plain_classifier(**defaults | {"random_state": 0} | params)


@every("kernel", [*KERNELS, 0.6 * kk.Matern(2.5, 0.2) + 0.4 * kk.RootLaplacian(0.3)])
@every("n_judges", [0, 60])
def test_compressed_is_least_squares_on_centres(kernel, n_judges, monkeypatch):
    monkeypatch.setattr(compression, "_LEAST_BLOCK", 8)
    S, X = normal(300), normal(60, seed=7)
    e = expansion(kernel, S)
    e.coef *= np.exp(-S[:, :1])  # few of the rows matter
    others, J = (e.exact.prepare(X), X[::2]) if n_judges else (None, S)
    fitted = np.vstack([S, X[1::2]]) if n_judges else S
    few, report = compressed(e, max_rows=40, tol=1e-9, usable=1e9, others=others)
    rank = 10 if isinstance(kernel, kk.Polynomial) else 40
    assert report["rows"] == few.n_support == rank
    assert (report["stopped_by"] == "max_rows") == (rank == 40)
    before, after = (
        np.hstack([p.values for p in (r.parts or (r,))]) for r in (e.support, few.support)
    )
    centres = [int(np.flatnonzero((before == row).all(axis=1))[0]) for row in after]
    K = kernel(S, S)
    f, basis = kernel(fitted, S) @ e.coef, kernel(fitted, S[centres])
    best = np.linalg.lstsq(basis, f, rcond=None)[0]
    off, least = (((f - basis @ b) ** 2).sum() for b in (few.coef, best))
    assert off <= 1.0001 * least + 1e-9 * (f**2).sum()
    f = kernel(J, S) @ e.coef
    change = f - kernel(J, S[centres]) @ few.coef
    square = (change**2).mean()
    np.testing.assert_allclose(report["mean_square_change"], square, rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(
        report["largest_change"], np.abs(change).max(), rtol=1e-3, atol=1e-4
    )
    b = e.coef.copy()
    b[centres] -= few.coef
    error = np.sqrt(np.einsum("nc,nm,mc->c", b, K, b))
    np.testing.assert_allclose(report["norm_error"], error, rtol=1e-3, atol=1e-4)
    new = kernel(normal(500, seed=9), S) @ b
    if kernel.is_stationary:
        assert (np.abs(new) <= np.multiply(report["bound"], 1 + 1e-6)).all()
    few, report = compressed(e, max_rows=300, tol=0.05, usable=1e9, others=others)
    off = ((f - few.raw_prediction(J) + few.intercept) ** 2).sum()
    assert off <= 1.001 * 0.05**2 * ((f - f.mean(axis=0)) ** 2).sum()
    assert report["stopped_by"] == "tol"
    assert compressed(e, max_rows=300, tol=1e-9, usable=16 * 400 * 30)[1]["rows"] < 45


def test_a_compressed_estimator():
    X = normal(400)
    fitted = plain_classifier("squared", gamma=0.3, alpha=1e-3).fit(X, three(X))
    small = fitted.compress(100)
    assert type(small) is type(fitted)
    assert small.get_params() == fitted.get_params()
    assert small.n_support_ <= 100 < fitted.n_support_
    first, second = (each.predict_proba(X) for each in (fitted, small))
    assert np.abs(first - second).mean() < 0.01
    judged = fitted.compress(100, X=X[:100]).history_["compression"]
    assert judged["mean_square_change"] != small.history_["compression"]["mean_square_change"]
    with pytest.raises(ValueError, match="compressed, and cannot be continued"):
        small.set_params(warm_start=True).fit(X, three(X))
    with pytest.warns(
        UserWarning, match="of 400 support rows change f by .* more than tol=1e-12"
    ):
        fitted.compress(tol=1e-12)
    raises(ValueError, "max_rows must be at least 1", fitted.compress, 0)
    features = plain_classifier(solver="dsg", max_iter=2).fit(X, labels(X))
    matrix = plain_classifier("squared", kernel="precomputed", alpha=1e-3)
    process = kernelgrad.KernelGaussianProcessRegressor(gamma=0.3).fit(X[:50], X[:50, 0])
    for each, why in (
        (features, "random features"),
        (matrix.fit(gaussian(X, X), three(X)), "precomputed kernel"),
        (process, "a variance that needs all rows"),
    ):
        raises(CapabilityError, f"compress is for sums .* {why}", each.compress)


# -- kept kernel rows ------------------------------------------------------------------


def kernel_rows(n, budget):
    exact = ExactKernel(kk.Gaussian(gamma=0.3), 3)
    return KernelRows(exact, exact.prepare(normal(n)), budget)


def test_kept_rows_are_the_last_used(monkeypatch):
    n, budget = 104, 5
    cache, free = kernel_rows(n, budget * 4 * n), kernel_rows(n, 10**9)
    K = kk.Gaussian(gamma=0.3)(normal(n), normal(n))
    kept: OrderedDict[int, None] = OrderedDict()
    rng, computed = np.random.default_rng(0), 0
    for _ in range(300):
        index = np.sort(rng.choice(n // 3, rng.integers(1, budget + 1), replace=False))
        for i in index.tolist():  # the row that was used longest ago goes
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
        square = cache.buffer[slots]
        np.testing.assert_allclose(square, K[index], atol=1e-6)
        np.testing.assert_array_equal(square, free.buffer[others])
    assert free.n_evaluations <= (n // 3) * n < cache.n_evaluations
    tight = kernel_rows(n, 1)  # grows to the rows that are asked for
    slots = tight.load(index)
    np.testing.assert_array_equal(tight.buffer[slots], square)
    values, sizes = ExactKernel.values, []

    def noted(self, rows, tile, **options):
        sizes.append(rows.n_rows)
        return values(self, rows, tile, **options)

    monkeypatch.setattr(ExactKernel, "values", noted)
    whole = kernel_rows(n, 10**9)
    slots = whole.load(np.arange(n))[index]
    assert set(sizes) == {8}  # rows that are loaded in parts have groups of 8, too
    np.testing.assert_array_equal(whole.buffer[slots], square)
    for given, least in ((7 * 160 + 159, 7 * 160), (10**9, 40 * 160), (0, 160)):
        assert kernel_rows(40, given).buffer.nbytes == least


# -- functions and matrices as kernels -------------------------------------------------


def canonical(n=150):
    """Return rows in the order that a fit brings them to."""
    X = normal(n)
    X, y, _, _ = canonical_rows(X, three(X), np.ones(n), merge=True)
    return X, y


@every("bias", [False, True])
def test_a_matrix_is_the_kernel_it_holds(bias, tmp_path):
    (X, y), T = canonical(), normal(70, seed=4)
    named = model(fit_intercept=bias).fit(X, y)
    z = model(kernel="precomputed", fit_intercept=bias).fit(gaussian(X, X), y)
    f = z.decision_function(gaussian(T, X))
    np.testing.assert_allclose(f, named.decision_function(T), atol=1e-4)
    sparse = model(kernel="precomputed", fit_intercept=bias)
    sparse.fit(sp.csr_matrix(gaussian(X, X)), y)
    np.testing.assert_array_equal(sparse.decision_function(gaussian(T, X)), f)
    assert z.expansion_.nbytes < 64 * z.n_support_  # it holds no kernel values
    z.save(tmp_path / "model")
    again = kernelgrad.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(gaussian(T, X)), f)


def test_a_search_slices_both_sides_of_a_matrix():
    X, y = canonical()
    K, folds = gaussian(X, X), StratifiedKFold(3)
    scores = cross_val_score(model(kernel="precomputed", max_iter=20), K, y, cv=folds)
    by_hand = [
        model(kernel="precomputed", max_iter=20)
        .fit(K[np.ix_(a, a)], y[a])
        .score(K[np.ix_(b, a)], y[b])
        for a, b in folds.split(K, y)
    ]
    np.testing.assert_array_equal(scores, by_hand)
    assert not model().__sklearn_tags__().input_tags.pairwise


def test_matrices_that_are_refused():
    X, y = canonical()
    K, z = gaussian(X, X), model(kernel="precomputed")
    raises(ValueError, "standardize", model(kernel="precomputed", standardize=True).fit, K, y)
    for solver in ("sbp", "sdca"):
        z = model(kernel="precomputed", solver=solver, warm_start=True)
        raises(DataError, "float32", z.fit, 1e39 * K, y)
        before = z.fit(K, y).decision_function(K)
        raises(ValueError, "square", z.fit, K[50:], y[50:])
        np.testing.assert_array_equal(z.decision_function(K), before)
    raises(ValueError, "features", z.predict, K[:, :100])


# -- solvers on support rows -----------------------------------------------------------


@every(
    ("solver", "params"),
    [("sdca", {"alpha": 0.0}), ("pegasos", {"alpha": 0.0}), ("sdca", {"loss": "log_loss"})],
)
def test_what_a_solver_cannot_do_is_said_before_rows_are_read(solver, params):
    z = plain_classifier(**({"loss": "hinge", "solver": solver} | params))
    raises(ValueError, r"solver|loss", z.fit, Unread(normal(120), np.arange(120) % 3))
