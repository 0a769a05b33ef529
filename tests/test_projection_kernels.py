import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats
from sklearn.kernel_approximation import SkewedChi2Sampler
from sklearn.metrics.pairwise import laplacian_kernel, linear_kernel

import oracles_projection
from cases import every
from kernelgrad.compute import elementary, rng
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.features import fused as projections
from kernelgrad.features.base import float32_rows
from kernelgrad.functions.features import FeatureStream
from kernelgrad.special_kernels.arc_cosine import ArcCosine
from kernelgrad.special_kernels.hellinger import Hellinger
from kernelgrad.special_kernels.semigroup import ExponentialSemigroup, ReciprocalSemigroup
from kernelgrad.special_kernels.skewed import SkewedChi2, SkewedIntersection
from kernelgrad.testing import check_kernel
from kernelgrad.validation import DataError
from steps import draw

KINDS = ["LINEAR", "STEP", "RAMP", "RAMP2", "DECAY"]
SKEWED = [SkewedChi2, SkewedIntersection]
SEMIGROUP = [ExponentialSemigroup, ReciprocalSemigroup]


def positive(n=40, d=3, seed=0, zeros=0.2):
    g = np.random.default_rng(seed)
    return 2 * g.random((n, d)) * (g.random((n, d)) >= zeros)


def normal(n=40, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


# Laws of the weights


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        ("sech", scipy.stats.hypsecant(scale=1 / np.pi)),
        ("levy", scipy.stats.levy),
        ("exponential", scipy.stats.expon),
    ],
)
def test_laws_pass_kolmogorov_smirnov_and_wrong_scales_fail(law, expected):
    x = draw(law, seed=11, n_tiles=16).ravel().astype(float)
    five_sigma = 2 * scipy.stats.norm.sf(5)
    assert scipy.stats.kstest(x, expected.cdf).pvalue > five_sigma
    assert scipy.stats.kstest(1.1 * x, expected.cdf).pvalue < five_sigma


def test_signs_are_balanced_and_independent():
    W = draw("rademacher", seed=3, n_tiles=256, d=8).astype(float)
    x = W.transpose(0, 2, 1).reshape(-1, 8)
    assert set(np.unique(x)) == {-1, 1}
    five_sigma = 5 / np.sqrt(len(x))
    assert np.abs(x.mean(axis=0)).max() < five_sigma
    correlation = x.T @ x / len(x) - np.eye(8)
    assert np.abs(correlation).max() < five_sigma
    assert np.abs((x[1:] * x[:-1]).mean(axis=0)).max() < five_sigma
    assert np.abs((x[:, :6] * x[:, 1:7] * x[:, 2:8]).mean(axis=0)).max() < five_sigma


def extreme_words():
    w = np.array([0, 1, 255, 2**30, 2**31 - 1, 2**31, 3 * 2**30, 2**32 - 1], np.uint32)
    return np.stack([a.ravel() for a in np.meshgrid(w, w, w, w)])


def test_extreme_words_give_finite_weights():
    words = extreme_words()
    shape = words.shape
    sech, levy, exponential = (np.empty(shape, np.float32) for _ in range(3))
    rng.sechs(words.copy(), sech, np.empty(shape, np.float32))
    rng._levys(words.copy(), levy, np.empty(shape, np.float32))
    rng._exponentials(words.copy(), exponential, np.empty(shape, np.float32))
    assert 4.5 < sech.max() == pytest.approx(np.log(2**25 / np.pi) / np.pi, rel=1e-6)
    assert sech.min() == pytest.approx(-sech.max(), rel=1e-6)
    assert levy.max() == 2.0**40  # a normal variate that is exactly zero
    assert levy.min() > 0.02
    assert exponential.max() == pytest.approx(24 * np.log(2), rel=1e-6)
    assert exponential.min() == pytest.approx(2**-24, rel=1e-6)
    largest = ExponentialSemigroup(1e12).weight_law()[1]
    weights = levy * np.float32(largest)
    assert np.isfinite(weights).all()
    assert (0 * weights == 0).all()


# Functions of projections


def problem(n, d, C, kind, *, density=None, n_tiles=2, seed=0):
    g = np.random.default_rng(seed)
    X = g.standard_normal((n, d)).astype(np.float32)
    if density is not None:
        X[g.random((n, d)) > density] = 0
    W = g.standard_normal((n_tiles, d, projections.TILE)).astype(np.float32)
    W /= np.float32(np.sqrt(d))
    if kind == "DECAY":
        X, W = np.abs(X), np.abs(W)
    if kind == "STEP":  # exact in float32: rounding could move a projection across the step
        X, W = np.round(8 * X) / 8, np.round(64 * W) / 64
    coef = g.standard_normal((1, n_tiles * projections.TILE, C)).astype(np.float32)
    R = g.standard_normal((n, C)).astype(np.float32)
    return (X if density is None else sp.csr_matrix(X)), W, coef, R


NO_PHASE = np.empty(0, np.float32)


def run_predict(X, W, coef, kind):
    out = np.zeros((X.shape[0], coef.shape[2]), np.float32)
    with single_threaded_blas():
        projections.predict(X, W, NO_PHASE, getattr(projections, kind), coef, out)
    return out


def run_gradient(X, W, R, kind):
    G = np.full((1, len(W), W.shape[2], R.shape[1]), np.nan, np.float32)
    with single_threaded_blas():
        projections.gradient(X, W, NO_PHASE, getattr(projections, kind), R, G)
    return G.reshape(-1, R.shape[1])


def run_transform(X, W, kind, scale=1.0):
    out = np.full((X.shape[0], len(W) * W.shape[2]), np.nan, np.float32)
    with single_threaded_blas():
        projections.transform(X, W, NO_PHASE, getattr(projections, kind), scale, out)
    return out


@every("density", [None, 0.3])
@every("kind", KINDS)
@every("d", [1, 5, 520])
def test_fused_tiles_against_float64(d, kind, density):
    for n in (1, 7, 256, 600):
        for C in (1, 3):
            X, W, coef, R = problem(n, d, C, kind, density=density, seed=n)
            flat = np.hstack(list(W))
            Phi = oracles_projection.features(X, flat, kind)
            ours = run_transform(X, W, kind, 0.5)
            np.testing.assert_allclose(ours, Phi / 2, rtol=2e-5, atol=1e-5)
            products = (Phi @ coef[0].astype(float), Phi.T @ R.astype(float))
            results = (run_predict(X, W, coef, kind), run_gradient(X, W, R, kind))
            sizes = (np.abs(Phi) @ np.abs(coef[0]), np.abs(Phi).T @ np.abs(R))
            for result, product, size in zip(results, products, sizes, strict=True):
                assert (np.abs(result - product) < 1e-5 * (1 + size)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_and_transform_take_any_tile_width(kind):
    X, W, _, R = problem(300, 4, 2, kind)
    W = np.ascontiguousarray(W[:, :, :100])
    Phi = oracles_projection.features(X, np.hstack(list(W)), kind)
    np.testing.assert_allclose(run_transform(X, W, kind), Phi, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(run_gradient(X, W, R, kind), Phi.T @ R, atol=2e-3)


@every("sparse_rows", [False, True])
@every("kind", KINDS)
def test_nan_stays_in_its_row(kind, sparse_rows):
    X, W, coef, _ = problem(40, 5, 2, kind)
    clean = run_predict(X, W, coef, kind)
    X[17, 3] = np.nan
    X = sp.csr_matrix(X) if sparse_rows else X
    out, Phi = run_predict(X, W, coef, kind), run_transform(X, W, kind)
    assert np.isnan(Phi[17]).all()
    assert np.isnan(out[17]).all()
    others = np.arange(40) != 17
    np.testing.assert_allclose(out[others], clean[others], atol=1e-4)


def test_infinite_projections_go_to_the_limits():
    t = np.array([np.inf, -np.inf, 3e38, -3e38, 0.0, -0.0], np.float32)
    expected = {
        "STEP": [1, 0, 1, 0, 0, 0],
        "RAMP": [np.inf, 0, t[2], 0, 0, 0],
        "RAMP2": [np.inf, 0, np.inf, 0, 0, 0],
    }
    for kind, values in expected.items():
        out = t.copy()
        projections._ramps(out, getattr(projections, kind))
        np.testing.assert_array_equal(out, np.array(values, np.float32))
    elementary.exp_minus(t, np.empty(t.size, np.int32))
    np.testing.assert_array_equal(t, np.array([0, np.inf, 0, np.inf, 1, 1], np.float32))


def exp_minus(t):
    out = np.array(t, np.float32)
    elementary.exp_minus(out, np.empty(out.size, np.int32))
    return out


def test_exponential_error_at_all_magnitudes():
    for low, high in ((-1, 1), (0, 10), (0, 87.33), (-88.3, 0)):
        t = np.linspace(low, high, 2**19).astype(np.float32)
        exact = np.exp(-t.astype(float))
        error = np.abs(exp_minus(t) / exact - 1)
        assert (error < 2e-7 + 8e-8 * np.abs(t)).all()
    tiny = np.array([0, 1e-10, -1e-10, 1e-40], np.float32)
    np.testing.assert_array_equal(exp_minus(tiny), 1)


def test_exponential_underflows_to_zero_and_overflows_to_infinity():
    t = np.linspace(87.4, 1e4, 4099)
    np.testing.assert_array_equal(exp_minus(t), 0)
    np.testing.assert_array_equal(exp_minus(-t[t > 88.4]), np.inf)
    around = np.linspace(87.2, 87.5, 10007)
    value = exp_minus(around)
    assert (np.diff(value) <= 0).all()
    assert value[value > 0].min() >= np.finfo(np.float32).tiny
    np.testing.assert_array_equal(np.isnan(exp_minus([0, np.nan, 1])), [False, True, False])


def test_refitted_power_of_two_is_not_three_times_better():
    x = -0.5 * np.cos(np.linspace(0, np.pi, 4001))  # crowded ends: nearly minimax
    B = np.stack([x ** (k + 1) for k in range(6)], axis=1)
    used = np.array([getattr(elementary, f"_E{k}") for k in range(1, 7)], float)

    def refit_error(terms):
        scale = np.abs(B[:, :terms]).max(axis=0)
        fit = np.linalg.lstsq(B[:, :terms] / scale, 2**x - 1, rcond=None)[0] / scale
        return np.abs(B[:, :terms] @ fit.astype(np.float32).astype(float) + 1 - 2**x).max()

    limit = 3 * refit_error(6)
    assert elementary._E0 == 1
    assert np.abs(B @ used + 1 - 2**x).max() < min(limit, 1e-8)
    assert refit_error(5) > limit  # one term less cannot pass


# The contract of a kernel

CASES = [
    (SkewedChi2(), positive, 10_000),
    (SkewedChi2(0.3, form="phase"), positive, 10_000),
    (SkewedIntersection(), positive, 10_000),
    (SkewedIntersection(0.3, form="phase"), positive, 10_000),
    (ExponentialSemigroup(), positive, 4000),
    (ExponentialSemigroup(0.4), positive, 4000),
    (ReciprocalSemigroup(), positive, 4000),
    (ReciprocalSemigroup(3.0), positive, 4000),
    (Hellinger(), positive, 400),
    # order 0 does not see lengths: without a bias the control of stretched rows cannot fail
    (ArcCosine(0, bias=2.0), normal, 4000),
    (ArcCosine(1), normal, 400),
    (ArcCosine(1, scale=0.5, bias=1.0), normal, 400),
    (ArcCosine(2), normal, 4000),
    (ArcCosine(2, scale=0.5, bias=1.0), normal, 4000),
]


@every(("kernel", "rows", "n_blocks"), CASES)
def test_contract(kernel, rows, n_blocks):
    check_kernel(kernel, X=rows(24, 3, 7), random_state=1, n_blocks=n_blocks)


def z_scores(kernel, X, expected, n_blocks, seed=3):
    """Standardised mean of all products of features against a kernel matrix."""
    features = kernel.feature_map(X.shape[1], seed, 256)
    rows = float32_rows(features.prepare(X))
    products = np.empty((n_blocks, len(X), len(X)))
    for j in range(n_blocks):
        P = features.transform(rows, j).astype(float)
        products[j] = P @ P.T
    error = products.std(axis=0, ddof=1) / np.sqrt(n_blocks) + 1e-6
    return (products.mean(axis=0) - expected) / error


def check_order_zero(n_blocks):
    X = normal(10, 4).astype(np.float32).astype(float)
    kernel = ArcCosine(0)
    assert np.abs(z_scores(kernel, X, kernel(X), n_blocks)).max() < 5
    wrong = kernel(X * [1.25, 1, 1, 1])
    assert np.abs(z_scores(kernel, X, wrong, n_blocks)).max() > 5


def test_features_of_order_zero_without_bias():
    check_order_zero(400)


# Exact values


@pytest.mark.parametrize(
    ("cls", "value", "wrong"),
    [
        (SkewedChi2, 0.7, 0.8),
        (SkewedIntersection, 0.7, 0.8),
        (ExponentialSemigroup, 0.4, 0.45),
        (ReciprocalSemigroup, 3.0, 3.3),
    ],
)
def test_exact_values_against_the_scalar_oracle(cls, value, wrong):
    X, Z = positive(6), positive(5, seed=1)
    if cls in SKEWED:
        X, Z = X - 0.6, Z - 0.6
    oracle = oracles_projection.scalar_kernel
    expected = [[oracle(cls.name, x, z, value) for z in Z] for x in X]
    np.testing.assert_allclose(cls(value)(X, Z), expected, rtol=1e-12)
    np.testing.assert_allclose(cls(value).diag(X), np.diag(cls(value)(X)), rtol=1e-12)
    assert np.abs(cls(wrong)(X, Z) - expected).max() > 1e-3


def test_exact_hellinger():
    X, Z = positive(6), positive(5, seed=1)
    oracle = oracles_projection.scalar_kernel
    expected = [[oracle("hellinger", x, z) for z in Z] for x in X]
    np.testing.assert_allclose(Hellinger()(X, Z), expected, rtol=1e-12)
    np.testing.assert_allclose(Hellinger()(X, Z), linear_kernel(X**0.5, Z**0.5), rtol=1e-12)
    np.testing.assert_allclose(Hellinger().diag(X), X.sum(axis=1), rtol=1e-12)


def test_exact_skewed_intersection_is_laplacian_in_logarithms():
    X, Z = positive(6), positive(5, seed=1)
    expected = laplacian_kernel(np.log(X + 0.3), np.log(Z + 0.3), gamma=0.5)
    np.testing.assert_allclose(SkewedIntersection(0.3)(X, Z), expected, rtol=1e-12)


@every("bias", [0.0, 0.8])
@every("order", [0, 1, 2])
def test_exact_arc_cosine_against_quadrature(order, bias):
    X, Z = normal(8), normal(6, seed=1)
    X[3], Z[:3] = 0, [X[0], -X[1], 2 * X[2]]
    kernel = ArcCosine(order, scale=0.7, bias=bias)
    expected = [[oracles_projection.arc_cosine(x, z, order, 0.7, bias) for z in Z] for x in X]
    size = np.abs(expected).max()
    np.testing.assert_allclose(kernel(X, Z), expected, rtol=1e-12, atol=1e-13 * size)
    own = [oracles_projection.arc_cosine(x, x, order, 0.7, bias) for x in X]
    np.testing.assert_allclose(kernel.diag(X), own, rtol=1e-12)
    if order > 0 or bias > 0:
        assert (
            np.abs(ArcCosine(order, scale=0.71, bias=1.1 * bias)(X, Z) - expected).max() > 1e-3
        )


@every("order", [0, 1, 2])
@every("sparse_rows", [False, True])
def test_arc_cosine_at_small_and_straight_angles(order, sparse_rows):
    X = normal(50, 30)
    store = sp.csr_matrix if sparse_rows else np.asarray
    kernel = ArcCosine(order)
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
    expected = [oracles_projection.arc_cosine([1.0, 0.0], z, order) for z in Z]
    np.testing.assert_allclose(K, expected, rtol=0, atol=2e-13)
    if order == 0:
        np.testing.assert_allclose(1 - K, angles / np.pi, rtol=1e-9, atol=3e-16)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_of_zero_rows_is_zero_like_its_features(order):
    X = np.vstack([np.zeros((2, 4)), normal(3, 4)])
    kernel = ArcCosine(order)
    K = kernel(X)
    assert (K[:2] == 0).all()
    assert (K[:, :2] == 0).all()
    assert (kernel.diag(X)[:2] == 0).all()
    assert (np.diag(K)[2:] > 0).all()
    features = kernel.feature_map(4, 0, 64)
    for rows in (X, sp.csr_matrix(X)):
        Phi = features.transform(float32_rows(features.prepare(rows)), 0)
        assert (Phi[:2] == 0).all()
        assert np.abs(Phi[2:]).max() > 0


def test_order_zero_ignores_lengths_and_scale():
    X = normal()
    K = ArcCosine(0)(X)
    np.testing.assert_allclose(ArcCosine(0, scale=3.0)(5 * X), K, atol=1e-12)
    np.testing.assert_allclose(ArcCosine(1, scale=3.0)(X), 9 * ArcCosine(1)(X), rtol=1e-12)
    np.testing.assert_allclose(ArcCosine(2)(2 * X), 16 * ArcCosine(2)(X), rtol=1e-12)


def test_bias_is_one_more_column():
    X = normal()
    wide = np.hstack([X, np.full((len(X), 1), 0.8)])
    np.testing.assert_allclose(ArcCosine(1, bias=0.8)(X), ArcCosine(1)(wide), rtol=1e-12)
    with_bias = ArcCosine(1, bias=0.8).feature_map(3, 5, 64)
    plain = ArcCosine(1).feature_map(4, 5, 64)
    rows = float32_rows(plain.prepare(wide))
    np.testing.assert_array_equal(float32_rows(with_bias.prepare(X)), rows)
    np.testing.assert_array_equal(with_bias.transform(rows, 1), plain.transform(rows, 1))
    sparse = float32_rows(with_bias.prepare(sp.csr_matrix(X)))
    np.testing.assert_allclose(sparse, rows)


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


def test_arc_cosine_in_many_tiles(monkeypatch):
    X = np.vstack([normal(20, 5), normal(20, 5), -normal(20, 5)])
    K = ArcCosine(0)(X)
    monkeypatch.setattr("kernelgrad.special_kernels.arc_cosine._TILE_BYTES", 8 * 60 * 7)
    np.testing.assert_allclose(ArcCosine(0)(X), K, atol=1e-12)
    monkeypatch.setattr("kernelgrad.special_kernels.arc_cosine._TILE_BYTES", 1)
    np.testing.assert_allclose(ArcCosine(0)(sp.csr_matrix(X)), K, atol=1e-12)


def test_features_of_skewed_chi2_against_scikit_learn():
    # their c, weights and offsets are ours in law: cos(w . log(x + c) + b), one block
    X = positive(8, 3, seed=2)
    K = SkewedChi2(0.5)(X)
    theirs = np.stack(
        [
            P @ P.T
            for seed in range(300)
            for P in [
                SkewedChi2Sampler(skewedness=0.5, n_components=256, random_state=seed)
                .fit(X)
                .transform(X)
            ]
        ]
    )
    error = theirs.std(axis=0, ddof=1) / np.sqrt(300)
    ours = z_scores(SkewedChi2(0.5, form="phase"), X, theirs.mean(axis=0), 300)
    assert (np.abs(theirs.mean(axis=0) - K) < 5 * error).all()
    assert np.abs(ours).max() < 5 * np.sqrt(2)  # both means are noisy
    assert (np.abs(theirs.mean(axis=0) - SkewedChi2(0.6)(X)) > 5 * error).any()


# Domains and parameters


@every("store", [np.asarray, sp.csr_matrix])
@every(
    ("kernel", "low", "message"),
    [
        (SkewedChi2(0.5), -0.5, r"skewed_chi2 kernel is defined for x > -0.5.*hold -0.5"),
        (SkewedIntersection(0.5), -0.5, r"skewed_intersection .* x > -0.5.*hold -0.5"),
        (ExponentialSemigroup(1.0), -1e-9, r"exponential_semigroup .* x >= 0.*hold -1e-09"),
        (ReciprocalSemigroup(1.0), -1e-9, r"reciprocal_semigroup .* x >= 0.*hold -1e-09"),
        (Hellinger(), -1e-9, r"hellinger .* x >= 0.*hold -1e-09"),
    ],
)
def test_rows_outside_the_domain(kernel, low, message, store):
    good = positive(5)
    bad = good.copy()
    bad[2, 1] = low
    with pytest.raises(DataError, match=message):
        kernel(store(bad))
    with pytest.raises(DataError, match=message):
        kernel(store(good), store(bad))
    with pytest.raises(DataError, match=message):
        FeatureStream(kernel, 3, 0, 8).prepare(store(bad))
    bad[2, 1] = low + 1e-6
    if type(kernel) in SKEWED:
        assert np.isfinite(kernel(store(bad))).all()
        assert np.isfinite(FeatureStream(kernel, 3, 0, 8).prepare(bad)).all()


@pytest.mark.parametrize("cls", SEMIGROUP)
def test_rules_refuse_rows_outside_the_domain(cls):
    with pytest.raises(DataError, match=f"{cls.name} kernel"):
        cls().resolve(-positive(), 0)


# Rules of the semigroup kernels


def test_median_rules_by_hand():
    X = np.array([[1.0, 4.0], [0.0, 0.0], [9.0, 0.0], [0.25, 0.25]])
    # sums of square roots 3, 3, 1; sums 5, 9, 0.5; the row of zeros is left out
    assert ExponentialSemigroup().resolve(X, 0).beta == pytest.approx(1 / (3 * np.sqrt(2)))
    assert ReciprocalSemigroup().resolve(X, 0).lam == pytest.approx(10.0)
    number = ExponentialSemigroup(0.3)
    assert number.resolve(X, 0) is number


@every("sparse_rows", [False, True])
@every("d", [1, 3, 100])
@every("size", [1e-3, 1.0, 1e4])
@every("cls", SEMIGROUP)
def test_median_rules_give_typical_values_near_one_over_e(cls, size, d, sparse_rows):
    X = size * np.random.default_rng(0).lognormal(sigma=0.3, size=(300, d))
    X[np.random.default_rng(1).random(X.shape) < 0.3] = 0
    X = X[X.any(axis=1)]
    k = cls().resolve(sp.csr_matrix(X) if sparse_rows else X, 0)
    assert isinstance(k.value, float)
    off_diagonal = k(X)[np.triu_indices(len(X), 1)]
    assert np.exp(-np.sqrt(2)) * 0.95 < np.median(off_diagonal) < 0.52
    assert 0.9 * np.exp(-1) < np.median(k.diag(X)) < 0.52
    if cls is ExponentialSemigroup:
        assert np.median(k.diag(X)) == pytest.approx(np.exp(-1), rel=1e-2)


@pytest.mark.parametrize("cls", SEMIGROUP)
def test_median_rules_use_a_seeded_sample_of_many_rows(cls):
    X = positive(6000, 2)
    values = [cls().resolve(X, seed).value for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]
    assert values[2] == pytest.approx(values[0], rel=0.1)
    order = np.random.default_rng(0).permutation(1500)
    few = cls().resolve(X[:1500], 0).value
    assert cls().resolve(X[:1500][order], 7).value == pytest.approx(few, rel=1e-12)
    sparse = cls().resolve(sp.csr_matrix(X.astype(np.float32)), 0).value
    assert sparse == pytest.approx(values[0], rel=1e-5)


@pytest.mark.parametrize("cls", SEMIGROUP)
def test_median_rules_of_degenerate_rows(cls):
    assert cls().resolve(np.zeros((5, 3)), 0).value == 1.0
    assert cls().resolve(sp.csr_matrix((5, 3)), 0).value == 1.0
    for size in (1e-200, 1e200):
        with pytest.raises(DataError, match="scale the inputs"):
            cls().resolve(size * (1 + positive()), 0)


@every("cls", SEMIGROUP)
@every("value", [1e-12, 1e-3, 1e3, 1e12])
def test_semigroup_features_are_finite_for_every_parameter(cls, value):
    X = positive(20, 6).astype(np.float32)
    X[0] = 0
    features = cls(value).feature_map(6, 1, 1024)
    for rows in (X, sp.csr_matrix(X)):
        Phi = features.transform(rows, 0)
        assert np.isfinite(Phi).all()
        assert ((Phi >= 0) & (Phi <= 1 / np.sqrt(1024) + 1e-6)).all()
        np.testing.assert_allclose(Phi[0], 1 / np.sqrt(1024), rtol=1e-6)
