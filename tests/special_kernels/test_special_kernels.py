"""Kernels of histograms, half-lines, inner products, angles and images."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import rel_entr
from sklearn.metrics.pairwise import polynomial_kernel

import oracles_special as oracles
from cases import every, raises
from draws import normal, unit
from kernelgrad import special_kernels as kk
from kernelgrad.compute import elementary
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.exceptions import DataError
from kernelgrad.features import float32_rows, fused
from kernelgrad.functions import FeatureStream
from kernelgrad.special_kernels import dot_product

ADDITIVE = [kk.Chi2, kk.Intersection, kk.JensenShannon]
FORMS = ["coordinates", "hashed", "signs"]
SKEWED = [kk.SkewedChi2, kk.SkewedIntersection]
SEMIGROUP = [kk.ExponentialSemigroup, kk.ReciprocalSemigroup]
IMAGES = [
    kk.ConvolutionKernel((8, 6), 3, gamma=0.3),
    kk.ConvolutionKernel((4, 5, 3), 2, pool_size=2),
    kk.ConvolutionKernel((9, 7), 3, stride=2, pool_size=2),
    kk.ConvolutionKernel([7, 7, 1], 3, stride=3, pool_size=20, bandwidth_factor=0.5),
]


def positive(n=24, d=5, seed=0, zeros=0.2):
    g = np.random.default_rng(seed)
    return 2 * g.random((n, d)) * (g.random((n, d)) >= zeros)


def images(kernel, n=24, seed=0):
    return np.random.default_rng(seed).random((n, math.prod(kernel.image_shape)))


def prepared(features, X):
    return float32_rows(features.prepare(X))


# Exact values


@every(
    ("kernel", "formula"),
    [
        (kk.Chi2(), lambda x, z: (2 * x * z / np.maximum(x + z, 1e-300)).sum(-1)),
        (kk.Intersection(), lambda x, z: np.minimum(x, z).sum(-1)),
        (
            kk.JensenShannon(),
            lambda x, z: -(rel_entr(x, x + z) + rel_entr(z, x + z)).sum(-1) / np.log(4),
        ),
        (kk.Hellinger(), lambda x, z: np.sqrt(x * z).sum(-1)),
        (
            kk.SkewedChi2(0.7),
            lambda x, z: (2 * np.sqrt((x + 0.7) * (z + 0.7)) / (x + z + 1.4)).prod(-1),
        ),
        (
            kk.SkewedIntersection(0.7),
            lambda x, z: np.exp(-np.abs(np.log((x + 0.7) / (z + 0.7))) / 2).prod(-1),
        ),
        (kk.ExponentialSemigroup(0.4), lambda x, z: np.exp(-0.4 * np.sqrt(x + z).sum(-1))),
        (kk.ReciprocalSemigroup(3.0), lambda x, z: (3 / (x + z + 3)).prod(-1)),
    ],
)
def test_kernels_of_positive_rows_are_their_formulas(kernel, formula):
    X, Z = positive(7), positive(6, seed=1)
    if type(kernel) in SKEWED:
        X, Z = X - 0.6, Z - 0.6
    np.testing.assert_allclose(kernel(X, Z), formula(X[:, None], Z), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("degree", [1, 2, 5])
def test_polynomial_against_scikit_learn(degree):
    X, Z = unit(20, 6), unit(10, 6, seed=1)
    K = kk.Polynomial(degree, 0.7, 0.3)
    expected = polynomial_kernel(X, Z, degree=degree, gamma=0.7, coef0=0.3)
    np.testing.assert_allclose(K(X, Z), expected, rtol=1e-12, atol=1e-14)
    auto = kk.Polynomial(degree, "auto").resolve(X, 0)
    np.testing.assert_allclose(auto(X), polynomial_kernel(X, degree=degree), rtol=1e-12)


def test_dot_product_series():
    X, Z = unit(20), unit(10, seed=1)
    t = 0.4 * X @ Z.T
    np.testing.assert_allclose(kk.DotProduct(gamma=0.4)(X, Z), np.exp(t), rtol=1e-12)
    vovk = kk.DotProduct("vovk", 0.4)
    np.testing.assert_allclose(vovk(X, Z), 1 / (1 - t), rtol=1e-12)
    np.testing.assert_allclose(vovk.diag(X), np.diag(vovk(X, X)), rtol=1e-12)
    given = [0.5, 0.0, 2.0, 1.0]
    for series in (given, tuple(given), np.array(given)):
        K = kk.DotProduct(series, 0.4)
        np.testing.assert_allclose(K(X, Z), oracles.power_series(given, t), atol=1e-13)
    binomial = [1, 3, 3, 1]
    np.testing.assert_allclose(kk.DotProduct(binomial)(X), kk.Polynomial(3)(X), rtol=1e-12)


@every("bias", [0.0, 0.8])
@every("order", [0, 1, 2])
def test_exact_arc_cosine_against_quadrature(order, bias):
    X, Z = normal(8), normal(6, seed=1)
    X[3], Z[:3] = 0, [X[0], -X[1], 2 * X[2]]
    kernel = kk.ArcCosine(order, scale=0.7, bias=bias)
    expected = [[oracles.arc_cosine(x, z, order, 0.7, bias) for z in Z] for x in X]
    size = np.abs(expected).max()
    np.testing.assert_allclose(kernel(X, Z), expected, rtol=1e-12, atol=1e-13 * size)
    if order > 0 or bias > 0:
        other = kk.ArcCosine(order, scale=0.71, bias=1.1 * bias)
        assert np.abs(other(X, Z) - expected).max() > 1e-3


@every("order", [0, 1, 2])
@every("sparse_rows", [False, True])
def test_arc_cosine_at_small_and_straight_angles(order, sparse_rows):
    X = normal(50, 30)
    store = sp.csr_matrix if sparse_rows else np.asarray
    kernel = kk.ArcCosine(order)
    diagonal = kernel.diag(X)
    for Z in (X, X.copy(), X[:, ::-1][:, ::-1], 1.7 * X):
        K = np.diag(kernel(store(X), store(Z)))
        factor = 1.7**order if Z is not X and Z[0, 0] != X[0, 0] else 1.0
        np.testing.assert_allclose(K, factor * diagonal, rtol=1e-10)
    opposite = np.diag(kernel(store(X), store(-3 * X)))
    assert np.abs(opposite).max() < 1e-10 * diagonal.max()
    # rows at known angles, from far below the root of the rounding to a right angle
    angles = np.concatenate([np.geomspace(1e-15, 1, 200), [np.pi / 2]])
    Z = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    K = kernel(store(np.array([[1.0, 0.0]])), store(Z))[0]
    expected = [oracles.arc_cosine([1.0, 0.0], z, order) for z in Z]
    np.testing.assert_allclose(K, expected, rtol=0, atol=2e-13)
    if order == 0:
        np.testing.assert_allclose(1 - K, angles / np.pi, rtol=1e-9, atol=3e-16)


@pytest.mark.parametrize("cls", SKEWED)
def test_skewed_kernels_at_the_ends_of_their_domain(cls):
    k = cls(0.9)
    edge = np.nextafter(-0.9, 0)
    assert edge * (1 / 0.9) == -1  # a quotient is needed
    X = np.array([[edge], [0.0], [1e-300], [1e300]])
    for rows in (X, sp.csr_matrix(X)):
        K = k(rows)
        assert ((K >= 0) & (K <= 1)).all()
        np.testing.assert_array_equal(np.diag(K), 1)
        assert K[0, 1] < 1e-3
        assert K[1, 2] == 1
    for c in (1e-6, 1.0, 1e6):
        X = c * positive()
        np.testing.assert_allclose(cls(c)(X), cls(1.0)(X / c), rtol=1e-9)
        np.testing.assert_array_equal(np.diag(cls(c)(X, X.copy())), 1)


@every("kernel", IMAGES)
def test_kernels_of_images_against_loops(kernel):
    X, Z = images(kernel, 4), images(kernel, 3, seed=1)
    kernel = kernel.resolve(X, 0)

    def loops(gamma):
        return [[oracles.image_kernel(x, z, kernel, gamma) for z in Z] for x in X]

    np.testing.assert_allclose(kernel(sp.csr_array(X), Z), loops(kernel.gamma), rtol=1e-10)
    assert np.abs(kernel(X, Z) - loops(1.2 * kernel.gamma)).max() > 1e-3


# Domains, and rules for parameters


def test_gamma_auto_needs_resolving():
    for kernel in (kk.Polynomial(gamma="auto"), kk.DotProduct(gamma="auto")):
        raises(ValueError, "call resolve", kernel, unit())
        raises(ValueError, "call resolve", kernel.feature_map, 5, 0, 32)
        resolved = kernel.resolve(unit(d=8), 0)
        assert resolved.gamma == 0.125
        assert kernel.gamma == "auto"
        assert resolved.resolve(unit(d=4), 0) is resolved


def test_dot_product_domain():
    X = unit() * 1.5
    with pytest.raises(DataError, match=r"vovk series.*< 1, but a row has 2.25"):
        kk.DotProduct("vovk")(X)
    with pytest.raises(DataError, match="exponential"):
        kk.DotProduct(gamma=400.0)(X)
    assert np.isfinite(kk.DotProduct(gamma=300.0)(X)).all()
    assert np.isfinite(kk.DotProduct([1.0, 1.0])(X)).all()


@pytest.mark.parametrize("p", [1.5, 2.0])
def test_infinite_variance_is_rejected(p):
    X = unit(6)
    worst = max(oracles.rademacher_moment(x, x) for x in X)
    limit = 1 / np.sqrt(p * worst)  # p gamma^2 Q = 1
    for rows in (X, sp.csr_matrix(X)):
        FeatureStream(kk.DotProduct("vovk", 0.999 * limit, p), 5, 0, 32).prepare(rows)
        bad = kk.DotProduct("vovk", 1.001 * limit, p)
        with pytest.raises(DataError, match="infinite variance") as caught:
            FeatureStream(bad, 5, 0, 32).prepare(rows)
        assert f"gamma below {limit:.6g}" in str(caught.value)
        factor = np.sqrt(1.001)
        assert f"more than {factor:.6g}" in str(caught.value)
        assert np.isfinite(bad(rows)).all()  # exact values need no variance
    scaled = X / (1.0001 * factor)
    FeatureStream(bad, 5, 0, 32).prepare(scaled)
    FeatureStream(kk.DotProduct([1.0] * 9, 5.0, p), 5, 0, 32).prepare(X)


@every("store", [np.asarray, sp.csr_matrix])
@every(
    ("kernel", "low", "message"),
    [
        (kk.SkewedChi2(0.5), -0.5, r"skewed_chi2 kernel is defined for x > -0.5.*hold -0.5"),
        (kk.SkewedIntersection(0.5), -0.5, r"skewed_intersection .* x > -0.5.*hold -0.5"),
        (kk.ExponentialSemigroup(1.0), -1e-9, r"exponential_semigroup .* x >= 0.*hold -1e-09"),
        (kk.ReciprocalSemigroup(1.0), -1e-9, r"reciprocal_semigroup .* x >= 0.*hold -1e-09"),
        (kk.Hellinger(), -1e-9, r"hellinger .* x >= 0.*hold -1e-09"),
    ],
)
def test_rows_outside_the_domain(kernel, low, message, store):
    good = positive(5)
    bad = good.copy()
    bad[2, 1] = low
    for use in (
        lambda: kernel(store(bad)),
        lambda: kernel(store(good), store(bad)),
        lambda: FeatureStream(kernel, 3, 0, 8).prepare(store(bad)),
    ):
        raises(DataError, message, use)
    bad[2, 1] = low + 1e-6
    if type(kernel) in SKEWED:
        assert np.isfinite(kernel(store(bad))).all()
        assert np.isfinite(FeatureStream(kernel, 3, 0, 8).prepare(bad)).all()


def test_median_rules_by_hand():
    X = np.array([[1.0, 4.0], [0.0, 0.0], [9.0, 0.0], [0.25, 0.25]])
    # sums of square roots 3, 3, 1; sums 5, 9, 0.5; the row of zeros is left out
    assert kk.ExponentialSemigroup().resolve(X, 0).beta == pytest.approx(1 / (3 * np.sqrt(2)))
    assert kk.ReciprocalSemigroup().resolve(X, 0).lam == pytest.approx(10.0)
    number = kk.ExponentialSemigroup(0.3)
    assert number.resolve(X, 0) is number


@pytest.mark.parametrize("cls", SEMIGROUP)
def test_median_rules_of_degenerate_rows(cls):
    assert cls().resolve(np.zeros((5, 3)), 0).value == 1.0
    assert cls().resolve(sp.csr_matrix((5, 3)), 0).value == 1.0
    for size in (1e-200, 1e200):
        raises(DataError, "scale the inputs", cls().resolve, size * (1 + positive()), 0)


def test_rows_that_are_no_images():
    kernel = kk.ConvolutionKernel((8, 6, 3), 3, gamma=0.3)
    X = np.zeros((5, 48))
    for use in (
        lambda: kernel(X),
        lambda: kernel.pairwise(X, X),
        lambda: kernel.resolve(X, 0),
        lambda: kernel.diag(X),
        lambda: kernel.feature_map(48, 0, 8),
    ):
        raises(DataError, r"image_shape=\(8, 6, 3\).* 144 columns.* 48;", use)


# Draws


@pytest.mark.parametrize("series", ["vovk", [0.0, 2.0, 0.0, 1.0, 3.0]])
@pytest.mark.parametrize("p", [1.5, 2.0])
def test_degrees(series, p):
    kernel = kk.DotProduct(series, 0.1, p)
    F, n_blocks = 40, 500
    features = kernel.feature_map(3, 0, F)
    N, squared = map(
        np.array, zip(*(features.degrees(j) for j in range(n_blocks)), strict=True)
    )
    n = np.arange(60)
    a = np.ones(60) if series == "vovk" else np.pad(series, (0, 55))
    P = np.where(a > 0, (p - 1) / p ** (n + 1.0), 0.0)
    P /= P.sum()
    np.testing.assert_allclose(squared, a[N] / P[N], rtol=1e-9)
    # the law of any single feature, over blocks
    for i in (0, 7, F - 1):
        seen = np.bincount(N[:, i], minlength=4)[:4]
        expected = n_blocks * P[:4]
        error = np.sqrt(n_blocks * P[:4] * (1 - P[:4]))
        assert (np.abs(seen - expected) <= 5 * error).all()
    # strata: the share of a degree in each block is right up to rounding
    for level in range(5):
        share = (level <= N).sum(1)
        assert np.abs(share - F * P[level:].sum()).max() < 1 + 1e-9


def test_signs_of_columns_are_independent():
    W = dot_product.rademacher(np.arange(300), np.arange(1024), 3, 0, 1024, 0)
    assert np.abs(W @ W.T / 1024 - np.eye(300)).max() < 6 / np.sqrt(1024)


# Features


PINNED = [
    (kk.Chi2("coordinates"), 0.494524), (kk.Chi2("hashed"), -1.48628),
    (kk.Chi2("signs"), -1.29262), (kk.Intersection("coordinates"), 0.776413),
    (kk.Intersection("hashed"), 0.616704), (kk.Intersection("signs"), -0.0562333),
    (kk.JensenShannon("coordinates"), 1.28099), (kk.JensenShannon("hashed"), -1.53666),
    (kk.JensenShannon("signs"), -0.155866), (kk.Polynomial(3, 0.5, 0.5), 0.135769),
    (kk.DotProduct("vovk", gamma=0.3), 0.392911), (kk.DotProduct(), 0.756483),
    (kk.SkewedChi2(), -0.286597), (kk.SkewedIntersection(), 1.00965),
    (kk.ExponentialSemigroup(0.4), 0.0135735), (kk.ReciprocalSemigroup(3.0), 0.049835),
    (kk.Hellinger(), 0.713764), (kk.ArcCosine(), 0.204315),
    (kk.ConvolutionKernel((8, 5), 3, pool_size=2, gamma=0.3), 0.21424),
]  # fmt: skip


@every("kernel, value", PINNED)
def test_files_of_models_need_the_same_features(kernel, value):
    X = (1 + np.arange(40.0)[None] % 7) / 28
    features = kernel.feature_map(40, 3, 64)
    P = features.transform(prepared(features, X), 5)[0].astype(float)
    weights = np.cos(np.arange(P.size) + 0.5)
    assert weights @ P == pytest.approx(value, rel=1e-5, abs=1e-5 * np.abs(P).sum() / 8)


KINDS = ["LINEAR", "STEP", "RAMP", "RAMP2", "DECAY"]
NO_PHASE = np.empty(0, np.float32)


def problem(n, d, C, kind, *, density=None, n_tiles=2, seed=0):
    g = np.random.default_rng(seed)
    X = g.standard_normal((n, d)).astype(np.float32)
    if density is not None:
        X[g.random((n, d)) > density] = 0
    W = g.standard_normal((n_tiles, d, fused.TILE)).astype(np.float32)
    W /= np.float32(np.sqrt(d))
    if kind == "DECAY":
        X, W = np.abs(X), np.abs(W)
    if kind == "STEP":  # exact in float32: rounding could move a projection across the step
        X, W = np.round(8 * X) / 8, np.round(64 * W) / 64
    coef = g.standard_normal((1, n_tiles * fused.TILE, C)).astype(np.float32)
    R = g.standard_normal((n, C)).astype(np.float32)
    return (X if density is None else sp.csr_matrix(X)), W, coef, R


def run(method, X, W, kind, argument):
    """Return what a method of the fused tiles writes: "predict", "gradient" or "transform"."""
    F = len(W) * W.shape[2]
    out = {
        "predict": lambda: np.zeros((X.shape[0], argument.shape[2]), np.float32),
        "gradient": lambda: np.empty((1, len(W), W.shape[2], argument.shape[1]), np.float32),
        "transform": lambda: np.empty((X.shape[0], F), np.float32),
    }[method]()
    with single_threaded_blas():
        getattr(fused, method)(X, W, NO_PHASE, getattr(fused, kind), argument, out)
    return out.reshape(F, -1) if method == "gradient" else out


@every("density", [None, 0.3])
@every("kind", KINDS)
@every("d", [1, 520])
def test_fused_tiles_against_float64(d, kind, density):
    for n, C in ((1, 3), (600, 1)):
        X, W, coef, R = problem(n, d, C, kind, density=density, seed=n)
        flat = np.hstack(list(W))
        Phi = oracles.projected(X, flat, kind)
        ours = run("transform", X, W, kind, 0.5)
        np.testing.assert_allclose(ours, Phi / 2, rtol=2e-5, atol=1e-5)
        products = (Phi @ coef[0].astype(float), Phi.T @ R.astype(float))
        results = run("predict", X, W, kind, coef), run("gradient", X, W, kind, R)
        sizes = (np.abs(Phi) @ np.abs(coef[0]), np.abs(Phi).T @ np.abs(R))
        for result, product, size in zip(results, products, sizes, strict=True):
            assert (np.abs(result - product) < 1e-5 * (1 + size)).all()


def test_exponential_error_at_all_magnitudes():
    def exp_minus(t):
        out = np.array(t, np.float32)
        elementary.exp_minus(out, np.empty(out.size, np.int32))
        return out

    for low, high in ((-1, 1), (0, 10), (0, 87.33), (-88.3, 0)):
        t = np.linspace(low, high, 2**19).astype(np.float32)
        error = np.abs(exp_minus(t) / np.exp(-t.astype(float)) - 1)
        assert (error < 2e-7 + 8e-8 * np.abs(t)).all()
    ends = exp_minus([0, 1e-40, np.nan, 87.4, -88.5])
    np.testing.assert_array_equal(ends, [1, 1, np.nan, 0, np.inf])
    assert (np.diff(exp_minus(np.linspace(87.2, 87.5, 10007))) <= 0).all()


@pytest.mark.parametrize("cls", ADDITIVE)
def test_extreme_inputs(cls):
    # subnormal, tiny, one (its logarithm is zero) and huge entries, dense and sparse
    X = np.array([[5e-320, 1.0, 0.0, 1e30, 1e-30], [0.0] * 5, [1.0, 1e-30, 2.0, 0.0, 1.0]])
    for form in FORMS:
        features = cls(form).feature_map(5, 0, 64)
        P = features.transform(prepared(features, X), 1).astype(float)
        assert np.isfinite(P).all()
        assert (P[1] == 0).all()
        sparse = sp.hstack([sp.csr_matrix(X), sp.csr_matrix((3, 45))], format="csr")
        wide = cls(form).feature_map(50, 0, 64)
        rows = prepared(wide, sparse)
        assert sp.issparse(rows)
        expected = wide.transform(prepared(wide, sparse.toarray()), 1)
        np.testing.assert_allclose(wide.transform(rows, 1), expected, rtol=1e-5)
    exact = cls("coordinates").feature_map(5, 0, 64)
    P = exact.transform(prepared(exact, X), 1).astype(float)
    np.testing.assert_allclose((P**2).sum(1), X.sum(1), rtol=1e-5)  # no noise on the diagonal
