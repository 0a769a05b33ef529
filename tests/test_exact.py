"""Exact kernel values of rows, and of the rows that a cache holds."""

import numpy as np
import pytest
import scipy.sparse as sp

from cases import every, raises
from draws import normal, unit
from kernelgrad import kernels as kk
from kernelgrad.compute.elementary import exp_flat, exp_wide
from kernelgrad.functions import SupportExpansion
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.validation import CapabilityError, DataError


def histograms(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.exponential(size=(n, d)) * (rng.random((n, d)) < 0.6)
    X[:, 0] += 0.1
    return X / X.sum(axis=1, keepdims=True)


def skewed(n, d, seed=0):
    return np.random.default_rng(seed).uniform(-0.05, 1.0, (n, d))


def images(n, d, seed=0):
    return np.random.default_rng(seed).random((n, d))


D = 36  # also images of 6 x 6
CASES = [
    (normal, kk.Gaussian(0.5 / D)), (normal, kk.Matern(0.5, 0.5 / D)),
    (normal, kk.Matern(1.5, 0.5 / D)), (normal, kk.Matern(2.5, 0.5 / D)),
    (normal, kk.Matern(1.2, 0.5 / D)), (normal, kk.Matern(0.8, 0.5 / D)),
    (normal, kk.Laplacian(1.0 / D)), (normal, kk.Cauchy(0.1)),
    (normal, kk.RootLaplacian(1.0 / D)),
    (normal, kk.RootLaplacian(2.0 / D, column_weights=[1.0, 0.3] * (D // 2))),
    (unit, kk.DotProduct()), (unit, kk.DotProduct("vovk", gamma=0.8)),
    (unit, kk.DotProduct([0.5, 0.0, 1.0, 2.0])), (unit, kk.Polynomial(1)),
    (unit, kk.Polynomial(2)), (unit, kk.Polynomial(5, gamma=0.7, coef0=0.3)),
    (unit, kk.Polynomial(12)), (histograms, kk.Hellinger()), (histograms, kk.Chi2()),
    (histograms, kk.Intersection()), (histograms, kk.JensenShannon()),
    (skewed, kk.SkewedChi2(0.1)), (histograms, kk.SkewedChi2(0.02)),
    (skewed, kk.SkewedIntersection(0.1)), (histograms, kk.ExponentialSemigroup(0.1)),
    (histograms, kk.ReciprocalSemigroup(2.0)), (normal, kk.ArcCosine(0, bias=0.5)),
    (normal, kk.ArcCosine(1)), (normal, kk.ArcCosine(1, scale=0.7, bias=1.0)),
    (normal, kk.ArcCosine(2)),
    (
        histograms,
        kk.SumKernel([kk.Gaussian(2.0), kk.Chi2(), kk.ArcCosine(1, bias=1.0)], [0.5, 2, 1]),
    ),
    (
        histograms,
        kk.ProductKernel([kk.Laplacian(0.3), kk.SumKernel([kk.Chi2(), kk.Hellinger()])]),
    ),
    (images, kk.ConvolutionKernel((6, 6), 3, pool_size=2, gamma=0.3)),
    (images, kk.ConvolutionKernel((6, 6), 3, stride=2, gamma=0.3)),
]  # fmt: skip
every_case = every(("rows", "kernel"), CASES)


def sparse(X):
    """Keep a few entries of each row, the first among them."""
    mask = np.random.default_rng(1).random(X.shape) < 0.07
    mask[:, 0] = True
    return X * mask


def test_every_registered_kernel_has_a_case():
    assert {kernel.name for _, kernel in CASES} == set(kk.KERNELS) - {"precomputed"}


@every_case
def test_blocks_are_the_kernel(rows, kernel):
    """Within 2e-6 of the largest value, rows dense or CSR, in float32 where that suffices."""
    for make in (lambda X: X, sparse):
        X = make(rows(90, D))
        X[70] = X[3]
        A, B = X[:37], X[20:]
        for left, right in (
            (A, B),
            (sp.csr_matrix(A), sp.csr_matrix(B)),
            (sp.csr_matrix(A), B),
            (B, sp.csr_matrix(A)),
        ):
            expected = kernel.pairwise(left, right)
            scale = np.abs(kernel.diag(X)).max()
            for wide in (True,) if kernel.needs_wide(X) else (True, False):
                a, b = (kernel.exact_rows(Z, wide=wide) for Z in (left, right))
                K = kernel.values(a, b)
                assert K.dtype == np.float32
                assert K.shape == expected.shape
                assert np.abs(K - expected).max() <= (3e-7 if wide else 2e-6) * scale


@every_case
def test_small_differences_of_large_terms_are_predicted_in_float64(rows, kernel):
    new, coef = rows(20, D, seed=2), np.repeat([[1.0], [-1.0]], 15, axis=0)
    for make, form in ((np.asarray, np.asarray), (sparse, sp.csr_matrix)):
        half = make(rows(15, D))
        support = form(np.concatenate([half, 0.9999 * half]))
        exact = ExactKernel(kernel, D, wide=True)  # of rows as they are
        f = SupportExpansion(exact, exact.prepare(support), coef, np.zeros(1))
        expected = kernel.pairwise(new, support) @ coef
        narrow = np.abs(f.raw_prediction(new) - expected).max()  # as in a fit
        f.compact()
        error = np.abs(f.raw_prediction(new) - expected).max()
        terms = np.abs(kernel.pairwise(new, support)) @ np.abs(coef)
        assert error <= 1e-6 * narrow + 1e-15 * terms.max()
    f = SupportExpansion(exact, f.support, np.abs(coef), f.intercept)
    before = f.raw_prediction(new)
    f.compact()
    np.testing.assert_array_equal(f.raw_prediction(new), before)


@every_case
def test_the_diagonal(rows, kernel):
    """Equal rows have the value of the diagonal, and no pair more than its geometric mean."""
    X = rows(40, D)
    np.testing.assert_allclose(kernel.diag(np.asfortranarray(X)), kernel.diag(X), rtol=1e-14)
    for Z in (X, sp.csr_matrix(sparse(X))):
        prepared = kernel.exact_rows(Z, wide=kernel.needs_wide(Z))
        diagonal = kernel.diag(Z)
        np.testing.assert_allclose(kernel.exact_diag(prepared), diagonal, rtol=2e-6)
        if diagonal.min() == diagonal.max() == 1:
            assert kernel.values(prepared, prepared).max() <= 1 + 1e-6


@every_case
def test_compiled_loops_have_the_values_of_numpy(rows, kernel):
    X = rows(60, D)
    for wide in (False, True):
        a, b = kernel.exact_rows(X[:20], wide=wide), kernel.exact_rows(X, wide=wide)
        for dtype, bound in ((np.float32, 2e-6), (np.float64, 1e-12)):
            plain, fast = (kernel.values(a, b, dtype, compiled=c) for c in (False, True))
            assert plain.dtype == fast.dtype == dtype
            into = np.empty(plain.shape)
            kernel.values(a, b, dtype, out=into)
            assert np.abs(plain - fast).max() <= bound * np.abs(plain).max()


def test_wide_sparse_rows_are_never_dense():
    """Memory of a tile follows the non-zeros, not the columns."""
    import tracemalloc

    X = sp.random(300, 40_000, 0.002, format="csr", random_state=0)
    for kernel in (kk.Gaussian(0.5), kk.Chi2(), kk.Laplacian(0.1)):
        rows = kernel.exact_rows(X)
        tracemalloc.start()
        K = kernel.values(rows.take(slice(0, 16)), rows)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 30e6 < 300 * 40_000 * 4
        expected = kernel.pairwise(X[:16], X)
        assert np.abs(K - expected).max() <= 1e-5 * np.abs(expected).max()


@every(
    ("loop", "dtype", "bits", "low", "high", "rtol"),
    [
        (exp_flat, np.float32, np.int32, -87.2, 88.3, 2e-7),
        (exp_wide, np.float64, np.int64, -708.0, 709.0, 4e-16),
    ],
)
def test_exponentials_over_their_range(loop, dtype, bits, low, high, rtol):
    x = np.linspace(low, high, 200_001).astype(dtype)
    y = x.copy()
    loop(y, np.empty(x.size, bits))
    np.testing.assert_allclose(y, np.exp(x.astype(np.float64)), rtol=rtol)
    ends = np.array([-1e30, low - 0.8, 0.0, -0.0], dtype)
    loop(ends, np.empty(4, bits))
    np.testing.assert_array_equal(ends, [0, 0, 1, 1])


def test_one_row_alone_adds_kernels_in_float64():
    kernel = kk.SumKernel([kk.Gaussian(0.1), kk.Laplacian(0.1)], weights=[0.9, 0.1])
    exact = ExactKernel(kernel, 3)
    rows, K = exact.prepare(normal(50, 3)), np.empty((1, 50))
    one = rows.take(np.array([7]))
    exact.values(one, rows, out=K)
    np.testing.assert_array_equal(exact.products(one, rows, np.eye(50)), K)


def test_equal_rows_have_distance_zero_up_to_rounding():
    for scale in (1e-3, 1.0, 5.0):
        X = normal(50, 123) * scale
        for Z in (X, sp.csr_matrix(sparse(X))):
            for kernel in (kk.Gaussian(0.5 / 123), kk.Matern(1.5, 0.5 / 123)):
                rows = kernel.exact_rows(Z)
                K = np.diagonal(kernel.values(rows, rows))
                np.testing.assert_allclose(K, 1, rtol=1e-6 * (1 + scale**2))
                assert K.max() <= 1 + 2e-7
                np.testing.assert_array_equal(kernel.exact_diag(rows), 1)


@every(
    ("kernel", "near", "far"),
    [
        (kk.Gaussian(1.0), 9.0, 11.0),
        (kk.Matern(1.5, 1.0), 5.0, 6.0),
        (kk.Laplacian(1.0), 90.0, 110.0),
        (kk.Cauchy(1.0), 90.0, 110.0),
        (kk.DotProduct(), 3.0, 3.3),
        (kk.DotProduct("vovk"), 0.9, 0.99),
        (kk.Polynomial(12), 1.0, 3.0),
        (kk.ConvolutionKernel((2, 2), 2, gamma=0.25), 9.0, 11.0),
        (kk.Gaussian(1.0) + kk.Chi2(), 9.0, 11.0),
    ],
)
def test_where_float64_is_needed(kernel, near, far):
    pixels = kernel.name == "convolutional"
    X = np.full((5, 4), 1.0) if pixels else np.eye(5)
    for Z in (X, sp.csr_matrix(X)):
        assert not kernel.needs_wide(near * Z)
        assert kernel.needs_wide(far * Z)


def test_values_beyond_float32_are_refused():
    X = 20.0 * np.eye(3)
    for kernel in (kk.DotProduct(gamma=0.5), kk.Polynomial(15)):
        kernel.check_domain(X)
        raises(DataError, rf"{kernel.name} kernel .*float32", kernel.exact_rows, X)
        kernel.exact_rows(X / 4)


def test_rows_of_composed_kernels():
    X = histograms(30, D)
    kernel = kk.SumKernel([kk.Gaussian(1.0), kk.ProductKernel([kk.Chi2(), kk.Laplacian(1.0)])])
    rows = kernel.exact_rows(X)
    parts = rows.parts[0], *rows.parts[1].parts
    assert rows.n_rows == 30
    assert rows.nbytes == sum(p.nbytes for p in parts) >= 3 * 30 * D * 4
    some = rows.take(np.array([3, 7]))
    assert some.n_rows == 2
    np.testing.assert_array_equal(some.parts[1].parts[0].values, X[[3, 7]].astype(np.float32))


# Functions and matrices from outside


def linear(X, Z):
    K = X @ Z.T
    return K.toarray() if sp.issparse(K) else K


def test_a_function_as_kernel():
    X = normal(150, 4)
    kernel = kk.get_kernel(linear)
    assert isinstance(kernel, kk.CallableKernel)
    assert kernel.function is linear
    assert kk.get_kernel(kernel).function is linear
    assert not kernel.has_random_features
    np.testing.assert_allclose(kernel(X), X @ X.T)
    np.testing.assert_allclose(kernel.diag(X), (X**2).sum(axis=1))
    rows = kernel.exact_rows(sp.csr_matrix(X))
    np.testing.assert_allclose(kernel.values(rows, rows), X @ X.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kernel.exact_diag(rows), kernel.diag(X), rtol=1e-6)
    raises(
        TypeError, r"cannot be written to a file.*register_kernel", kk.describe_kernel, kernel
    )
    raises(
        TypeError, "cannot be written to a file", kk.describe_kernel, kernel + kk.Gaussian(1.0)
    )
    assert kk.kernel_summary(kernel) == {"function": "linear"}
    raises(TypeError, "function must be callable, got 3", kk.CallableKernel(3).check)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.ones((5, 4)), r"wrong returned an array of shape \(5, 4\).*shape \(5, 5\)"),
        (1.0, r"shape \(\)"),
        (np.full((5, 5), np.nan), "wrong returned nan.*finite"),
        (np.full((5, 5), "a"), "returned values of type .*real numbers"),
        (np.ones((5, 5), complex), "returned values of type complex128"),
    ],
)
def test_results_of_a_function_are_checked(result, message):
    def wrong(X, Z):
        return result

    with pytest.raises(DataError, match=message):
        kk.get_kernel(wrong)(np.ones((5, 2)))
    with pytest.raises(TypeError, match="no len") as error:
        kk.get_kernel(lambda X, Z: len(X[0, 0]))(np.ones((5, 2)))
    assert "gets rows of numbers" in error.value.__notes__[0]


def test_a_kernel_matrix():
    X = normal(30, 4)
    K = kk.Gaussian(0.2)(X)
    kernel = kk.get_kernel("precomputed")
    exact_kernel, K[4, 4] = ExactKernel(kernel, 30), 3.0
    support = exact_kernel.prepare(K, np.arange(30)).take(np.array([4, 9, 21]))
    np.testing.assert_array_equal(kernel.exact_diag(support), [3.0, 1.0, 1.0])
    new = exact_kernel.prepare(K[:7])
    for call in (lambda: kernel.values(new, new), lambda: kernel.exact_diag(new)):
        raises(DataError, "training rows", call)
    with pytest.raises(DataError, match="at least 22, but these have 20 columns"):
        kernel.values(exact_kernel.prepare(K[:7, :20]), support)
    for call in (lambda: kernel(K), lambda: kernel.diag(K)):
        raises(CapabilityError, "give a kernel by name or as a function", call)
    raises(NotImplementedError, "no random features", kernel.feature_map, 30, 0, 16)
