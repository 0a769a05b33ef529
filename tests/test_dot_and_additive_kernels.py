import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats
from scipy.spatial.distance import jensenshannon
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.metrics.pairwise import additive_chi2_kernel, polynomial_kernel

import oracles_sketch
from cases import every
from kernelgrad.compute import rng
from kernelgrad.features.base import float32_rows
from kernelgrad.functions.features import FeatureStream
from kernelgrad.special_kernels.additive import Chi2, Intersection, JensenShannon
from kernelgrad.special_kernels.dot_product import DotProduct, Polynomial
from kernelgrad.special_kernels.features import sketches
from kernelgrad.testing import check_kernel
from kernelgrad.validation import DataError

ADDITIVE = [Chi2, Intersection, JensenShannon]
FORMS = ["coordinates", "hashed", "signs"]
LAWS = {
    "chi2": sketches.SECH,
    "intersection": sketches.HALF_CAUCHY,
    "jensen_shannon": sketches.JENSEN_SHANNON,
}
PRODUCTS = [
    Polynomial(),
    Polynomial(3, "auto", 0.5),
    Polynomial(1, 0.3, 0.0),
    DotProduct(),
    DotProduct(gamma="auto", p=1.5),
    DotProduct("vovk", gamma=0.3),
    DotProduct("vovk", gamma=0.3, p=1.3),
    DotProduct([0.5, 0.0, 1.0, 2.0]),
    DotProduct(np.array([0.0, 0.0, 1.0]), gamma=0.5, p=3.0),
]


def positive(n=24, d=5, seed=0, zeros=0.2):
    g = np.random.default_rng(seed)
    return 2 * g.random((n, d)) * (g.random((n, d)) >= zeros)


def unit(n=24, d=5, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def every_map(d, F, seed=3):
    kernels = [cls(form) for cls in ADDITIVE for form in FORMS]
    kernels += [Polynomial(3), DotProduct(), DotProduct("vovk", gamma=0.2)]
    return [k.feature_map(d, seed, F) for k in kernels]


def prepared(features, X):
    return float32_rows(features.prepare(X))


# The contract


@every("d", [5, 50])  # fewer and more than the 32 features of a block
@every("form", FORMS)
@every("cls", ADDITIVE)
def test_contract_of_additive_kernels(cls, form, d):
    check_kernel(cls(form), X=positive(d=d), random_state=1)


@every("kernel", PRODUCTS)
def test_contract_of_product_kernels(kernel):
    check_kernel(kernel, X=unit(), random_state=1)


# Exact values


@pytest.mark.parametrize("cls", ADDITIVE)
def test_additive_kernels_against_the_scalar_oracle(cls):
    X, Z = positive(7), positive(6, seed=1)
    expected = oracles_sketch.additive_kernel(cls.name, X, Z)
    np.testing.assert_allclose(cls()(X, Z), expected, rtol=1e-12, atol=1e-14)
    other = oracles_sketch.additive_kernel("intersection" if cls is Chi2 else "chi2", X, Z)
    assert np.abs(cls()(X, Z) - other).max() > 0.01


def test_additive_kernels_against_other_libraries():
    X, Z = positive(12), positive(9, seed=1)
    # -sum (x - z)^2 / (x + z) = sum 4 x z / (x + z) - sum x - sum z
    theirs = (additive_chi2_kernel(X, Z) + X.sum(1)[:, None] + Z.sum(1)[None, :]) / 2
    np.testing.assert_allclose(Chi2()(X, Z), theirs, rtol=1e-12, atol=1e-14)
    X /= X.sum(1, keepdims=True)
    Z /= Z.sum(1, keepdims=True)
    divergence = np.array([[jensenshannon(x, z, base=2) ** 2 for z in Z] for x in X])
    np.testing.assert_allclose(JensenShannon()(X, Z), 1 - divergence, rtol=1e-10)
    overlap = 1 - np.abs(X[:, None] - Z[None]).sum(2) / 2
    np.testing.assert_allclose(Intersection()(X, Z), overlap, rtol=1e-10)


@pytest.mark.parametrize("cls", ADDITIVE)
def test_additive_kernels_of_sparse_rows(cls):
    X, Z = positive(9, 30, zeros=0.8), positive(8, 30, seed=1, zeros=0.8)
    X[3] = 0
    expected = cls()(X, Z)
    A, B = sp.csr_matrix(X), sp.csr_matrix(Z)
    for pair in ((A, B), (X, B), (A, Z)):
        np.testing.assert_allclose(cls()(*pair), expected, rtol=1e-12)
    np.testing.assert_allclose(cls().diag(A), X.sum(1), rtol=1e-12)
    # the same rows with every entry cut in two and with stored zeros
    halves = (np.repeat(A.data / 2, 2), np.repeat(A.indices, 2), 2 * A.indptr)
    doubled = sp.csr_matrix(halves, shape=A.shape)
    stored = sp.csr_matrix(np.where(np.arange(9)[:, None] == 3, 1.0, X))
    stored.data[stored.indptr[3] : stored.indptr[4]] = 0.0
    for other in (doubled, stored):
        before = other.nnz
        np.testing.assert_allclose(cls()(other, B), expected, rtol=1e-12)
        features = cls().feature_map(30, 0, 32)
        np.testing.assert_array_equal(
            features.transform(prepared(features, other), 0),
            features.transform(prepared(features, A), 0),
        )
        assert other.nnz == before  # the caller's rows are left as they are


@pytest.mark.parametrize("degree", [1, 2, 5])
def test_polynomial_against_scikit_learn(degree):
    X, Z = unit(20, 6), unit(10, 6, seed=1)
    K = Polynomial(degree, 0.7, 0.3)
    expected = polynomial_kernel(X, Z, degree=degree, gamma=0.7, coef0=0.3)
    np.testing.assert_allclose(K(X, Z), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(K(sp.csr_matrix(X), sp.csr_matrix(Z)), expected, atol=1e-13)
    auto = Polynomial(degree, "auto").resolve(X, 0)
    np.testing.assert_allclose(auto(X), polynomial_kernel(X, degree=degree), rtol=1e-12)


def test_dot_product_series():
    X, Z = unit(20), unit(10, seed=1)
    t = 0.4 * X @ Z.T
    np.testing.assert_allclose(DotProduct(gamma=0.4)(X, Z), np.exp(t), rtol=1e-12)
    np.testing.assert_allclose(DotProduct("vovk", 0.4)(X, Z), 1 / (1 - t), rtol=1e-12)
    given = [0.5, 0.0, 2.0, 1.0]
    for series in (given, tuple(given), np.array(given)):
        K = DotProduct(series, 0.4)
        np.testing.assert_allclose(K(X, Z), oracles_sketch.power_series(given, t), atol=1e-13)
    binomial = [1, 3, 3, 1]
    np.testing.assert_allclose(DotProduct(binomial)(X), Polynomial(3)(X), rtol=1e-12)


# Parameters


def test_gamma_auto_needs_resolving():
    for kernel in (Polynomial(gamma="auto"), DotProduct(gamma="auto")):
        with pytest.raises(ValueError, match="call resolve"):
            kernel(unit())
        with pytest.raises(ValueError, match="call resolve"):
            kernel.feature_map(5, 0, 32)
        resolved = kernel.resolve(unit(d=8), 0)
        assert resolved.gamma == 0.125
        assert kernel.gamma == "auto"
        assert resolved.resolve(unit(d=4), 0) is resolved


# Domain and variance of power series


def test_dot_product_domain():
    X = unit() * 1.5
    with pytest.raises(DataError, match=r"vovk series.*< 1, but a row has 2.25"):
        DotProduct("vovk")(X)
    with pytest.raises(DataError, match="exponential"):
        DotProduct(gamma=400.0)(X)
    assert np.isfinite(DotProduct(gamma=300.0)(X)).all()
    assert np.isfinite(DotProduct([1.0, 1.0])(X)).all()


def test_second_moment_and_its_largest_value():
    X = unit(12, 6)
    Q = np.array([[oracles_sketch.rademacher_moment(x, z) for z in X] for x in X])
    T = X @ X.T
    norms = (X**2).sum(1)
    formula = norms[:, None] * norms + 2 * T**2 - 2 * (X**2) @ (X**2).T
    np.testing.assert_allclose(formula, Q, rtol=1e-12)
    assert Q.max() == Q.diagonal().max()


@pytest.mark.parametrize("p", [1.5, 2.0])
def test_infinite_variance_is_rejected(p):
    X = unit(6)
    worst = max(oracles_sketch.rademacher_moment(x, x) for x in X)
    limit = 1 / np.sqrt(p * worst)  # p gamma^2 Q = 1
    for rows in (X, sp.csr_matrix(X)):
        FeatureStream(DotProduct("vovk", 0.999 * limit, p), 5, 0, 32).prepare(rows)
        bad = DotProduct("vovk", 1.001 * limit, p)
        with pytest.raises(DataError, match="infinite variance") as caught:
            FeatureStream(bad, 5, 0, 32).prepare(rows)
        assert f"gamma below {limit:.6g}" in str(caught.value)
        factor = np.sqrt(1.001)
        assert f"more than {factor:.6g}" in str(caught.value)
        assert np.isfinite(bad(rows)).all()  # exact values need no variance
    scaled = X / (1.0001 * factor)
    FeatureStream(bad, 5, 0, 32).prepare(scaled)
    FeatureStream(DotProduct([1.0] * 9, 5.0, p), 5, 0, 32).prepare(X)


# Draws


@pytest.mark.parametrize("cls", ADDITIVE)
def test_laws_of_the_frequencies(cls):
    W = sketches.feature_frequencies(np.arange(16), 5, 0, 1024, LAWS[cls.name])
    B, bucket = sketches.block_frequencies(np.arange(1024), 5, 0, 16, 32, LAWS[cls.name])
    for w in (W, B):
        for name in LAWS:
            test = scipy.stats.kstest(
                2 * np.pi * w.ravel().astype(float),
                lambda v, name=name: oracles_sketch.spectral_cdf(name, v),
            )
            assert (test.pvalue > 1e-3) == (name == cls.name), (name, test)
    # signs and buckets of neighbours are independent of sizes and of each other
    for a, b in ((W[:-1], W[1:]), (W[:, 1:], W[:, :-1]), (B[:, 1:], B[:, :-1])):
        signs = np.sign(a) * np.sign(b)
        assert abs(signs.mean()) < 5 / np.sqrt(signs.size)
    counts = np.bincount(bucket.ravel(), minlength=32)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    assert abs(np.corrcoef(bucket.ravel(), B.ravel() > 0)[0, 1]) < 5 / np.sqrt(B.size)


@pytest.mark.parametrize("law", LAWS.values())
def test_draws_are_pure_functions_of_their_numbers(law):
    W = sketches.feature_frequencies(np.arange(20), 5, 0, 700, law)
    some = np.array([1, 2, 3, 7, 19])
    part = sketches.feature_frequencies(some, 5, 300, 400, law)
    np.testing.assert_array_equal(part, W[some, 300:])
    B, bucket = sketches.block_frequencies(np.arange(3000), 5, 0, 4, 32, law)
    some = np.array([0, 5, 6, 1023, 1024, 2999])
    part, buckets = sketches.block_frequencies(some, 5, 2, 2, 32, law)
    np.testing.assert_array_equal(part, B[2:, some])
    np.testing.assert_array_equal(buckets, bucket[2:, some])
    other = sketches.feature_frequencies(np.arange(20), 6, 0, 700, law)
    assert np.mean(other == W) < 0.01


def test_hashes():
    columns = np.arange(4000)
    bucket, sign = sketches.hashes(columns, 9, 0, 6, 24)
    some = np.array([3, 4, 1500, 3999])
    part = sketches.hashes(some, 9, 4, 2, 24)
    np.testing.assert_array_equal(part[0], bucket[4:, some])
    np.testing.assert_array_equal(part[1], sign[4:, some])
    assert bucket.min() == 0
    assert bucket.max() == 23
    assert scipy.stats.chisquare(np.bincount(bucket.ravel())).pvalue > 1e-3
    joint = np.bincount(24 * bucket[0] + bucket[1], minlength=576)
    assert scipy.stats.chisquare(joint).pvalue > 1e-3
    assert set(np.unique(sign)) == {-1.0, 1.0}
    for a in (sign, sign[1:] * sign[:-1], sign[:, 1:] * sign[:, :-1], sign * (bucket < 12)):
        assert abs(a.mean()) < 5 / np.sqrt(a.size)
    assert sketches.hashes(columns, 9, 0, 1, 2**31 - 1)[0].max() > 2**30


def test_rademacher_signs():
    n, columns = 64, np.arange(300)
    features = np.arange(n)
    levels = [sketches.rademacher(columns, features, 7, 640, n, level) for level in range(4)]
    W = np.stack(levels)
    some, mine = np.array([0, 31, 32, 127, 128, 299]), np.array([50, 3, 17])
    part = sketches.rademacher(some, mine, 7, 640, n, 2)
    np.testing.assert_array_equal(part, W[2][some][:, mine])
    moved = sketches.rademacher(columns, np.arange(10), 7, 650, 10, 1)
    np.testing.assert_array_equal(moved, W[1][:, 10:20])
    assert set(np.unique(W)) == {-1.0, 1.0}
    products = (W, W[1:] * W[:-1], W[:, 1:] * W[:, :-1], W[:, 32:] * W[:, :-32], W[..., 1:])
    for a in (*products, W[:, 128:] * W[:, :-128]):
        assert abs(a.mean()) < 5 / np.sqrt(a.size)


@pytest.mark.parametrize("series", ["vovk", [0.0, 2.0, 0.0, 1.0, 3.0]])
@pytest.mark.parametrize("p", [1.5, 2.0])
def test_degrees(series, p):
    kernel = DotProduct(series, 0.1, p)
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


# Features


def test_features_of_coordinates_against_the_oracle():
    d, seed = 5, 4
    X = positive(4, d).astype(np.float32)
    for F in (13, 3):  # features see coordinates several times, or not all of them
        features = JensenShannon("coordinates").feature_map(d, seed, F)
        for block in (0, 3):
            W = sketches.feature_frequencies(
                np.zeros(1, int), seed, block * F, F, sketches.JENSEN_SHANNON
            )[0]
            offset = int(rng.uniforms(seed, block, 1, sketches.TAG_BUCKET)[0] * d)
            columns = [(i + (offset if d > F else 0)) % d for i in range(F)]
            amplitude = [np.sqrt(max(1, d / F) / max(1, columns.count(j))) for j in columns]
            expected = [
                oracles_sketch.coordinate_features(x, columns, 2 * np.pi * W, amplitude)
                for x in X
            ]
            P = features.transform(prepared(features, X), block)
            np.testing.assert_allclose(P, expected, atol=3e-6)


def test_features_of_sums_against_the_oracle():
    d, F, seed, block = 6, 10, 4, 2
    X = positive(4, d).astype(np.float32)
    signs = Intersection("signs").feature_map(d, seed, F)
    law = sketches.HALF_CAUCHY
    W = sketches.feature_frequencies(np.arange(d), seed, block * F, F, law)
    P = signs.transform(prepared(signs, X), block)
    for x, p in zip(X, P, strict=True):
        one = [
            oracles_sketch.summed_features(x, 2 * np.pi * W[:, k], [0] * d, 1) for k in range(F)
        ]
        np.testing.assert_allclose(p, np.ravel(one, order="F") / np.sqrt(F), atol=1e-5)
    hashed = Intersection("hashed").feature_map(d, seed, F)
    B, bucket = sketches.block_frequencies(np.arange(d), seed, block, 1, F, law)
    P = hashed.transform(prepared(hashed, X), block)
    for x, p in zip(X, P, strict=True):
        expected = oracles_sketch.summed_features(x, 2 * np.pi * B[0], bucket[0], F)
        np.testing.assert_allclose(p, expected, atol=1e-5)


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
        np.testing.assert_array_equal(wide.transform(rows, 1), expected)
        rows.eliminate_zeros()
        np.testing.assert_array_equal(wide.transform(rows, 1), expected)
    exact = cls("coordinates").feature_map(5, 0, 64)
    P = exact.transform(prepared(exact, X), 1).astype(float)
    np.testing.assert_allclose((P**2).sum(1), X.sum(1), rtol=1e-5)  # no noise on the diagonal


@pytest.mark.parametrize("form", FORMS)
def test_single_features_are_unbiased_where_promised(form):
    F, n_blocks = 8, 6000
    X = positive(2, 4, seed=5, zeros=0.0)
    k = Chi2()(X)[0, 1]
    features = Chi2(form).feature_map(4, 1, F)
    rows = prepared(features, X)
    estimates = np.empty((n_blocks, F))
    for j in range(n_blocks):
        P = features.transform(rows, j).astype(float).reshape(2, 2, F)
        estimates[j] = F * (P[0] * P[1]).sum(0)
    z = (estimates.mean(0) - k) / (estimates.std(0) / np.sqrt(n_blocks))
    assert (np.abs(z).max() < 5) == (form != "coordinates")


def test_auto_is_a_function_of_the_widths():
    for d, F, form in ((64, 64, "coordinates"), (65, 64, "hashed"), (3, 64, "coordinates")):
        X = positive(6, d)
        auto, same = (Chi2(f).feature_map(d, 2, F) for f in ("auto", form))
        rows = prepared(auto, X)
        np.testing.assert_array_equal(auto.transform(rows, 1), same.transform(rows, 1))


@every("F", [1, 7, 12, 64])
@every("degree", [1, 2, 3])
def test_tensor_sketch_against_the_oracle(degree, F):
    X = unit(3, 4).astype(np.float32)
    features = Polynomial(degree, 0.5, 0.7).feature_map(4, 6, F)
    buckets, signs = sketches.hashes(np.arange(5), 6, 2 * degree, degree, F)
    P = features.transform(prepared(features, X), 2)
    for x, p in zip(X, P, strict=True):
        extended = np.append(np.sqrt(0.5) * x, np.sqrt(0.7))
        expected = oracles_sketch.tensor_sketch(extended, buckets, signs, F)
        np.testing.assert_allclose(p, expected, atol=2e-6)


@pytest.mark.parametrize("F", [1, 12])
def test_tensor_sketch_is_unbiased_for_any_width(F):
    check_features(Polynomial(2, 0.8, 0.5), unit(2, 3), F)


def check_features(kernel, X, F, n_blocks=4000):
    features = kernel.feature_map(X.shape[1], 0, F)
    rows = prepared(features, X)
    blocks = [features.transform(rows, j).astype(float) for j in range(n_blocks)]
    estimates = np.array([P[0] @ P[1] for P in blocks])
    error = estimates.std() / np.sqrt(n_blocks)
    assert abs(estimates.mean() - kernel(X)[0, 1]) < 5 * error
    assert abs(estimates.mean() - kernel(1.4 * X)[0, 1]) > 5 * error
    return estimates


def test_tensor_sketch_has_the_spread_of_scikit_learn():
    X, F, n = unit(2, 6), 32, 4000
    ours = check_features(Polynomial(2, 0.8, 0.5), X, F, n)
    theirs = np.empty(n)
    for j in range(n):
        sketch = PolynomialCountSketch(
            gamma=0.8, coef0=0.5, degree=2, n_components=F, random_state=j
        )
        P = sketch.fit_transform(X)
        theirs[j] = P[0] @ P[1]
    both = np.hypot(ours.std(), theirs.std()) / np.sqrt(n)
    assert abs(ours.mean() - theirs.mean()) < 5 * both

    def spread(e):
        squares = (e - e.mean()) ** 2
        return squares.mean(), squares.std() / np.sqrt(n)

    (a, error_a), (b, error_b) = spread(ours), spread(theirs)
    assert abs(a - b) < 5 * np.hypot(error_a, error_b)
    assert abs(a - b / 2) > 5 * np.hypot(error_a, error_b)


def test_maclaurin_features_against_the_oracle():
    d, F, seed, block = 4, 9, 11, 2
    X = unit(3, d).astype(np.float32)
    for kernel in (DotProduct("vovk", 0.4, 1.5), DotProduct([1.0, 0.0, 2.0], 0.4)):
        features = kernel.feature_map(d, seed, F)
        N, squared = features.degrees(block)
        assert N.max() > 1
        P = features.transform(prepared(features, X), block)
        for i in range(F):
            value = np.full(3, np.sqrt(squared[i] / F))
            for level in range(N[i]):
                w = sketches.rademacher(np.arange(d), np.array([i]), seed, block * F, F, level)
                value = value * np.sqrt(0.4) * (X @ w[:, 0])
            np.testing.assert_allclose(P[:, i], value, rtol=1e-4, atol=1e-6)


def test_stratified_degrees_lower_the_variance():
    X, F, n = 0.5 * unit(2, 6), 32, 3000
    ours = check_features(DotProduct(), X, F, n)
    g = np.random.default_rng(0)
    plain = np.empty(n)
    for j in range(n):
        N, squared = DotProduct().degrees(g.random(F))
        w = g.choice([-1.0, 1.0], (F, N.max(), 6))
        used = np.arange(N.max()) < N[:, None]
        x, z = (np.where(used, w @ v, 1.0).prod(1) for v in X)
        plain[j] = np.mean(squared * x * z)
    assert ours.var() < 0.7 * plain.var()


# Every path to the same sum


def test_untouched_columns_do_not_change_features():
    X = np.zeros((20, 60))
    X[:, [3, 17, 50]] = 0.3 * positive(20, 3, zeros=0.0)
    for features in every_map(60, 32):
        dense, sparse = (prepared(features, A) for A in (X, sp.csr_matrix(X)))
        assert sp.issparse(sparse)
        for j in range(2):
            P = features.transform(dense, j)
            np.testing.assert_allclose(features.transform(sparse, j), P, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_cached_draws_give_the_same_bits(form):
    d, F, n_blocks, C = 4, 256, 70, 2  # more than one group of tiles and of blocks
    X = positive(20, d)
    features = Chi2(form).feature_map(d, 0, F)
    rows = prepared(features, X)
    coef = np.random.default_rng(0).standard_normal((2, n_blocks * F, C)).astype(np.float32)
    results = []
    for cache_bytes in (0, 300_000, 2**26, 2**26, 0):
        out = np.zeros((20, C), np.float32)
        features.predict(rows, coef, n_blocks, out, cache_bytes)
        results.append(out)
        twin = pickle.loads(pickle.dumps(features))
        assert len(pickle.dumps(twin)) < 2000  # a cache is never stored
    for out in results[1:]:
        np.testing.assert_array_equal(out, results[0])
    short = np.zeros((20, C), np.float32)
    features.predict(rows, coef[:, : 3 * F], 3, short, 2**26)
    fresh = np.zeros((20, C), np.float32)
    Chi2(form).feature_map(d, 0, F).predict(rows, coef[:, : 3 * F], 3, fresh, 0)
    np.testing.assert_array_equal(short, fresh)


def test_empty_and_zero_rows():
    for features in every_map(6, 32):
        for X in (np.zeros((0, 6)), sp.csr_matrix((3, 6))):
            rows = prepared(features, X)
            n = X.shape[0]
            P = features.transform(rows, 0)
            assert P.shape == (n, features.width)
            G = features.gradient(rows, np.ones((n, 2), np.float32), 0)
            np.testing.assert_allclose(G[:, 0], P.sum(0), atol=1e-5)
            out = np.zeros((n, 2), np.float32)
            coef = np.ones((features.planes, 64, 2), np.float32)
            features.predict(rows, coef, 2, out, 0)
            both = P.sum(1) + features.transform(rows, 1).sum(1)
            np.testing.assert_allclose(out[:, 0], both, atol=1e-4)
