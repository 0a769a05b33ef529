"""Orthogonal and quasi-Monte Carlo frequencies of the shift-invariant kernels."""

import threading

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import linalg, stats
from sklearn.base import clone

import oracles
from cases import every
from kernelgrad.compute import rng
from kernelgrad.features.projections import ProjectionMap
from kernelgrad.functions.features import FeatureStream
from kernelgrad.kernels import (
    Cauchy,
    Gaussian,
    Laplacian,
    Matern,
    StationaryKernel,
    get_kernel,
)
from kernelgrad.special_kernels.features import hadamard
from kernelgrad.special_kernels.features.structured import (
    DENSE_WIDTH,
    HadamardMap,
    OrthogonalMap,
    SobolMap,
    _chi_of_normal,
)
from kernelgrad.testing import check_kernel
from steps import expansion

SAMPLERS = [(cls, "orthogonal") for cls in (Gaussian, Matern)]
SAMPLERS += [(cls, "qmc") for cls in (Gaussian, Matern, Laplacian, Cauchy)]
WIDE = 100  # columns: transforms of order 128


def suited(cls, d):
    """Return the gamma for which standard normal rows of d columns are neither near nor far."""
    return {Laplacian: 1 / d, Cauchy: 0.8 / np.sqrt(d)}.get(cls, 0.6 / d)


def data(n=40, d=5, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def stream(kernel=None, d=WIDE, block_size=100, seed=3, **options):
    kernel = kernel or Gaussian(1 / d, sampling="orthogonal")
    return FeatureStream(kernel, d, seed, block_size, **options)


# The contract


@every("form", ["pair", "phase"])
@every("d", [3, 40, WIDE])
@every(("cls", "sampling"), SAMPLERS)
def test_contract(cls, sampling, d, form):
    kernel = cls(gamma=suited(cls, d), form=form, sampling=sampling)
    check_kernel(kernel, X=data(24, d), random_state=2)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [1, 65])
def test_bias_of_the_transforms(columns):
    def bias(n, draws):
        # the mean over D3 and over lengths is exact; the signs of D1 and D2 are drawn
        t, g = np.linspace(0.5, 3, 6), np.random.default_rng(columns)
        H = linalg.hadamard(n) / np.sqrt(n)
        x = (np.arange(n) < columns) / np.sqrt(min(columns, n))
        length = stats.chi.ppf((np.arange(200) + 0.5) / 200, n)
        means = []
        for _ in range(draws):
            y = H @ (g.choice([-1, 1], n) * (H @ (g.choice([-1, 1], n) * x)))
            angles = y[:, None, None] * length[:, None] * t / np.sqrt(n)
            means.append(np.cos(angles).prod(axis=0).mean(axis=0))
        error = np.mean(means, axis=0) - np.exp(-(t**2) / 2)
        return np.abs(error), np.std(means, axis=0) / np.sqrt(draws)

    error, standard_error = bias(hadamard.MIN_ORDER, 1500)
    assert (error < 1e-4 + 4 * standard_error).all()
    assert standard_error.max() < 4e-5
    assert columns > 1 or bias(16, 1500)[0].max() > 2e-3


# Transforms


@every("n", [128, 256, 512, 1024, 2048, 4096])
def test_transform_of_lanes_against_the_matrix(n):
    T = data(n, hadamard.LANES).astype(np.float32)
    sign = np.random.default_rng(1).choice([-1.0, 1.0], n).astype(np.float32)
    expected = linalg.hadamard(n) @ (sign[:, None] * T.astype(float))
    hadamard.transform_lanes(T, sign)
    np.testing.assert_allclose(T, expected, atol=2e-6 * np.sqrt(n) * np.sqrt(n))


@pytest.mark.parametrize("n", [128, 1024, 2**17])
def test_chi_variates_of_normal_variates(n):
    u = np.concatenate([np.linspace(1e-3, 1 - 1e-3, 999), [2.0**-53, 1e-9, 1 - 2.0**-53]])
    exact = stats.chi.ppf(u, n)
    exact[-1] = stats.chi.isf(2.0**-53, n)
    np.testing.assert_allclose(_chi_of_normal(n)(stats.norm.ppf(u)), exact, rtol=1e-8)


def hadamard_frequencies(kernel, d, seed, first, n):
    """Frequencies in turns, shape (d, n), from the formula."""
    m = max(128, 1 << (d - 1).bit_length())
    key = (seed % 2**32, seed >> 32)
    H, W = linalg.hadamard(m) / np.sqrt(m), []
    for s in range(first // m, (first + n - 1) // m + 1):
        word = oracles.philox4x32((s * m // 32 + np.arange(m) // 32, 0, 8, 0), key)
        D = 1.0 - 2.0 * (word >> (np.arange(m) % 32).astype(np.uint32) & np.uint32(1))
        u = oracles.philox4x32((s * m + np.arange(m), 0, 9, 0), key).astype(np.uint64)
        u = ((u[0] << np.uint64(20) | u[1] >> np.uint64(12)).astype(float) + 0.5) / 2**52
        length = stats.chi.ppf(u, m) * np.sqrt(2 * kernel.gamma) / (2 * np.pi)
        W.append(length[:, None] * (H * D[2]) @ (H * D[1]) @ (H * D[0]))
    W = np.vstack(W)[first % m : first % m + n, :d].T
    factor = kernel.frequency_factor(seed, first, n)
    return W if factor is None else W * factor


@every("form", ["pair", "phase"])
@every("cls", [Gaussian, Matern])
@every(("d", "block_size"), [(65, 1), (WIDE, 100), (128, 128), (300, 700)])
def test_hadamard_features_against_the_formula(cls, form, d, block_size):
    kernel, seed = cls(gamma=1 / d, form=form, sampling="orthogonal"), 2**40 + 9
    X = data(37, d).astype(np.float32)
    features = kernel.feature_map(d, seed, block_size)
    assert type(features) is HadamardMap
    for j in (0, 3):
        W = hadamard_frequencies(kernel, d, seed, j * block_size, block_size)
        phase = rng.phases(seed, j * block_size, block_size) if form == "phase" else []
        expected = oracles.fourier_features(X, W, np.asarray(phase)) / np.sqrt(block_size)
        found = features.transform(X, j)
        product = found.T.astype(float) @ X[:, :2]
        gradient = features.gradient(X, X[:, :2].copy(), j)
        np.testing.assert_allclose(gradient, product, atol=1e-4 * np.abs(product).max())
        error = np.abs(found - expected) * np.sqrt(block_size)
        # float32 turns: heavy tails of the frequencies cost absolute accuracy
        largest = np.tile(1 + np.linalg.norm(W, axis=0), features.planes)
        assert (error.max(axis=0) < 2e-5 * largest * np.sqrt(d)).all()


# Exactly orthogonal frequencies


@every("d", [1, 2, 3, 7, 32, 64])
def test_orthogonal_frequencies_against_qr(d):
    kernel = Gaussian(0.3, sampling="orthogonal")
    features = kernel.feature_map(d, 9, 64)
    assert type(features) is OrthogonalMap
    normal = ProjectionMap(kernel.weights(), d, 9, 64).frequencies(0, 1, 320, np.arange(d))[0]
    W = features.frequencies(0, 1, 320, np.arange(d))[0]
    for s in range(320 // d):
        Z = normal[:, s * d : (s + 1) * d].astype(float)
        Q, upper = np.linalg.qr(Z)
        expected = Q * np.sign(np.diag(upper)) * np.linalg.norm(Z, axis=0)
        np.testing.assert_allclose(W[:, s * d : (s + 1) * d], expected, atol=1e-6)


@every("d", [3, 40])
@every(("cls", "sampling"), SAMPLERS)
def test_frequencies_are_bitwise_a_prefix(cls, sampling, d):
    kernel = cls(gamma=0.2, sampling=sampling)
    features = kernel.feature_map(d, 2**63 + 5, 64)
    whole = features.frequencies(0, 8, 64, np.arange(d))
    np.testing.assert_array_equal(features.frequencies(192, 2, 64, np.arange(d)), whole[3:5])
    columns = np.array([0, 2])
    np.testing.assert_array_equal(features.frequencies(0, 8, 64, columns), whole[:, columns])
    flat = whole.transpose(1, 0, 2).reshape(d, -1)
    for first, n in ((0, 1), (1, 1), (77, 300), (5, 6), (511, 1)):
        part = kernel.feature_map(d, 2**63 + 5, 7).frequencies(first, 1, n, np.arange(d))
        np.testing.assert_array_equal(part[0], flat[:, first : first + n])
    other = kernel.feature_map(d, 2**63 + 6, 64).frequencies(0, 8, 64, np.arange(d))
    assert (other != whole).mean() > 0.99


# Quasi-Monte Carlo frequencies


@pytest.mark.parametrize("cls", [Gaussian, Matern, Laplacian, Cauchy])
def test_sobol_frequencies_against_scipy(cls):
    d, seed, gamma = 5, 2**40 + 1, 0.3
    kernel = cls(gamma=gamma, sampling="qmc")
    features = kernel.feature_map(d, seed, 64)
    assert type(features) is SobolMap
    points = stats.qmc.Sobol(d + 1, scramble=False, bits=32).random(256) * 2**32
    shift = oracles.philox4x32((np.arange(d + 1), 0, 10, 0), (1, 2**8))[0]
    u = ((points.astype(np.uint32) ^ shift) + 0.5) / 2**32
    law, scale = {
        Gaussian: (stats.norm, np.sqrt(2 * gamma)),
        Matern: (stats.norm, np.sqrt(2 * gamma)),
        Laplacian: (stats.cauchy, gamma),
        Cauchy: (stats.laplace, gamma),
    }[cls]
    expected = law.ppf(u[:, :d]).T * scale / (2 * np.pi)
    if cls is Matern:
        expected *= np.sqrt(3 / stats.chi2.ppf(u[:, d], 3))
    W = features.frequencies(0, 1, 256, np.arange(d))[0]
    np.testing.assert_allclose(W, expected, rtol=1e-5, atol=1e-6)


def test_sobol_frequencies_do_not_depend_on_the_order_of_calls_or_on_threads():
    kernel = Matern(2.5, 0.2, sampling="qmc")
    features = kernel.feature_map(9, 4, 100)

    def draw(features, j):
        return features.frequencies(100 * j, 1, 100, np.arange(9))

    expected = [draw(kernel.feature_map(9, 4, 100), j) for j in range(6)]
    for j in (0, 1, 4, 2, 2, 0, 5, 3):
        np.testing.assert_array_equal(draw(features, j), expected[j])
    wrong = []

    def many(step):
        for k in range(60):
            j = (k * step) % 6
            if not np.array_equal(draw(features, j), expected[j]):
                wrong.append(j)

    callers = [threading.Thread(target=many, args=(step,)) for step in (1, 5)]
    for t in callers:
        t.start()
    for t in callers:
        t.join(60)
    assert wrong == []


def test_a_kernel_with_a_factor_but_no_quantile_draws_independent_factors():
    class Scaled(Gaussian):
        def frequency_factor(self, seed, first, n):
            return 1.0 + rng.uniforms(seed, first, n, rng.TAG_AUXILIARY)

    args = 5, 4, 64
    columns = np.arange(5)
    plain = Gaussian(0.3, sampling="qmc").feature_map(*args).frequencies(64, 2, 32, columns)
    W = Scaled(0.3, sampling="qmc").feature_map(*args).frequencies(64, 2, 32, columns)
    factor = 1 + rng.uniforms(4, 64, 64, rng.TAG_AUXILIARY).reshape(2, 1, 32)
    np.testing.assert_allclose(W, plain * factor, rtol=1e-6)


# Sums, caches, threads, storage


def test_no_rows_at_all():
    features = stream()
    none = np.empty((0, WIDE), np.float32)
    assert features.transform(none, 1).shape == (0, 200)
    assert expansion(features).raw_prediction(none).shape == (0, 2)
    np.testing.assert_array_equal(
        features.gradient(none, np.empty((0, 2), np.float32), 0), np.zeros((200, 2))
    )


@pytest.mark.parametrize("form", ["pair", "phase"])
def test_cache_budgets_do_not_change_a_bit(form):
    X, stack = data(70, WIDE), 16 * 128
    kernel = Matern(1.5, 1 / WIDE, form=form, sampling="orthogonal")
    results = []
    for budget in (0, 1, stack - 1, stack, 3 * stack + 5, 2**30):
        f = expansion(stream(kernel, cache_bytes=budget), n_blocks=21)
        results += [f.raw_prediction(X), f.raw_prediction(X)]
        assert f.stream.map._cache.nbytes <= budget
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    assert f.stream.map._cache.nbytes >= 16 * stack


def test_a_row_that_is_not_finite_leaves_the_others_alone():
    features = stream()
    X = data(70, WIDE).astype(np.float32)
    f, before = expansion(features), np.zeros((2, 70, 2), np.float32)
    f.add_prepared(X, before[0])
    X[33, 7], X[40, 2] = np.inf, np.nan
    f.add_prepared(X, before[1])
    others = np.setdiff1d(np.arange(70), [33, 40])
    np.testing.assert_array_equal(before[1][others], before[0][others])
    assert np.isnan(before[1][[33, 40]]).all()


@pytest.mark.parametrize("sampling", ["orthogonal", "qmc"])
def test_sparse_rows_with_dense_frequencies(sampling):
    d = DENSE_WIDTH if sampling == "orthogonal" else 3000
    X = sp.random(50, d, 0.004, format="csr", random_state=0)
    features = stream(Gaussian(0.1, sampling=sampling), d, 64)
    assert X.nnz <= d // 2 or sampling == "orthogonal"
    dense = X.toarray().astype(np.float32)
    np.testing.assert_allclose(
        features.transform(features.prepare(X), 2), features.transform(dense, 2), atol=1e-5
    )


# Variance


@pytest.mark.parametrize(("sampling", "d", "most"), [
    ("orthogonal", 16, 0.3), ("orthogonal", WIDE, 0.2), ("qmc", 3, 0.1), ("qmc", 16, 0.4),
])  # fmt: skip
def test_variance_is_lower_than_that_of_independent_frequencies(sampling, d, most):
    X = data(12, d, d).astype(np.float32)
    pairs = np.triu_indices(12, 1)

    def error(sampling, seeds):
        kernel = Gaussian(0.25 / d, sampling=sampling)
        exact, squares = kernel(X)[pairs], []
        for seed in seeds:
            P = kernel.feature_map(d, seed, 128).transform(X, 0).astype(float)
            squares.append(np.mean(((P @ P.T)[pairs] - exact) ** 2))
        return np.mean(squares)

    independent = error("iid", range(60))
    assert error(sampling, range(60)) < most * independent
    assert 0.6 < error("iid", range(100, 160)) / independent < 1 / 0.6


# The parameter


@pytest.mark.parametrize("cls", [Laplacian, Cauchy])
def test_orthogonal_needs_a_law_that_no_rotation_changes(cls):
    kernel = cls(0.5, sampling="orthogonal")
    message = rf"rotation-invariant.*{cls.name}.*sampling='iid' or 'qmc'.*rbf or matern"
    for use in (kernel.check, lambda: kernel.feature_map(3, 0, 8), lambda: get_kernel(kernel)):
        with pytest.raises(ValueError, match=message):
            use()


@pytest.mark.parametrize(("cls", "most"), [(Gaussian, 21201), (Matern, 21200)])
def test_sobol_points_have_a_largest_number_of_columns(cls, most):
    kernel = cls(gamma=0.5, sampling="qmc")
    X = sp.csr_matrix(([0.5], ([0], [most - 1])), shape=(1, most), dtype=np.float32)
    P = kernel.feature_map(most, 0, 8).transform(X, 0)
    assert np.isfinite(P).all()
    assert np.abs(P - P[0, 0]).max() > 0.01
    with pytest.raises(ValueError, match=rf"{most + 1:,} columns.*21,201.*'orthogonal'"):
        kernel.feature_map(most + 1, 0, 8)


def test_sobol_points_need_a_law_that_is_inverted():
    class Sech(Gaussian):
        name = "sech"

        def spectral_law(self):
            return rng.SECH, 1.0

    assert Sech(0.5).feature_map(3, 0, 8).frequencies(0, 1, 8, np.arange(3)).any()
    with pytest.raises(ValueError, match="not that of the sech kernel; use sampling='iid'"):
        Sech(0.5, sampling="qmc").feature_map(3, 0, 8)


class Calls(Gaussian):
    """A kernel from before the parameter."""

    def __init__(self, gamma=0.5, *, bandwidth_factor=1.0, form="pair"):
        super().__init__(gamma, bandwidth_factor=bandwidth_factor, form=form)


class Assigns(StationaryKernel):
    """A kernel that does not call the constructor of its base."""

    name = "assigns"

    def __init__(self, gamma=0.5):
        self.gamma = gamma
        self.bandwidth_factor = 1.0
        self.form = "pair"

    def spectral_law(self):
        return rng.NORMAL, float(np.sqrt(2 * self.gamma_value))

    def pairwise(self, X, Z):
        return Gaussian(self.gamma).pairwise(X, Z)


@pytest.mark.parametrize("cls", [Calls, Assigns])
def test_subclasses_that_do_not_know_the_parameter(cls):
    check_kernel(cls(0.5))
    assert "sampling" not in cls().get_params()
    assert clone(cls(0.3)).sampling == "iid"
    X = data(9, 3).astype(np.float32)
    expected = Gaussian(0.5).feature_map(3, 1, 32).transform(X, 1)
    P = cls(0.5).feature_map(3, 1, 32).transform(X, 1)
    np.testing.assert_array_equal(P, expected)
