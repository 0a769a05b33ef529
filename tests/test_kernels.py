import json

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import pdist
from scipy.special import gammaln, kve
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.svm import SVC

import oracles
from cases import every
from kernelgrad import load
from kernelgrad.kernels import (
    KERNELS,
    Chi2,
    Gaussian,
    Laplacian,
    Matern,
    StationaryKernel,
    get_kernel,
)
from kernelgrad.testing import check_kernel
from plain import plain_regressor

NUS = (0.3, 0.5, 1.5, 2.5, 7)
STATIONARY = [n for n, cls in KERNELS.items() if issubclass(cls, StationaryKernel)]
CASES = [(name, {}) for name in STATIONARY if name != "matern"]
CASES += [("matern", {"nu": nu}) for nu in NUS]


def data(n=40, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def make(name, gamma=0.7, **params):
    known = KERNELS[name]().get_params()
    return KERNELS[name](**{k: v for k, v in {"gamma": gamma, **params}.items() if k in known})


# The contract


@every(
    ("name", "params", "form"),
    [
        (*case, form)
        for case in CASES
        for form in ("pair", "phase")
        if case[1] or form == "phase"
    ],
)
def test_contract(name, params, form):
    check_kernel(make(name, form=form, **params), random_state=1)


@pytest.mark.slow
def test_contract_of_a_rough_matern():
    # frequencies so large that float32 turns have no fraction left are common here
    check_kernel(Matern(0.1, 0.7), n_blocks=4000)


def test_contract_resolves_rules():
    check_kernel(Gaussian("median"))
    check_kernel(Matern(2.5, "scale", bandwidth_factor=0.5))


def test_report_is_a_table():
    report = check_kernel(Gaussian(0.5))
    assert len(report.rows()) == len(report.z) >= 10
    for i, j, exact, estimate, error, z, z_wrong in report.rows():
        assert z == pytest.approx((estimate - exact) / error)
        assert abs(z) < 5
        assert np.isfinite(z_wrong)
        assert exact == pytest.approx(1.0) or i != j
    assert np.abs(report.z_wrong).max() > 5
    assert "exact" in str(report)


class Broken(Gaussian):
    """A Gaussian kernel with one fault."""

    def __init__(self, fault="", gamma=0.5, *, bandwidth_factor=1.0, form="pair"):
        super().__init__(gamma, bandwidth_factor=bandwidth_factor, form=form)
        self.fault = fault

    def pairwise(self, X, Z):
        K = super().pairwise(X, Z)
        if self.fault == "asymmetric":
            K = K + 1e-6 * np.arange(K.shape[1])
        if self.fault == "indefinite":
            K = K**-1.0
        return K

    def diag(self, X):
        return super().diag(X) * (1.001 if self.fault == "diagonal" else 1.0)

    def spectral_law(self):
        law, scale = super().spectral_law()
        return law, scale * (1.1 if self.fault == "biased" else 1.0)

    def feature_map(self, n_features_in, seed, block_size):
        fault = self.fault
        seed = 0 if fault == "seedless" else seed
        features = super().feature_map(n_features_in, seed, block_size)
        transform, predict, gradient = features.transform, features.predict, features.gradient
        calls = []

        def stateful(X, block):
            calls.append(block)
            return transform(X, block if fault == "stateful" and len(calls) < 3 else block + 1)

        def shifted(X, block):
            return transform(X - X[:1], block)

        def wrong_predict(X, coef, n_blocks, out, cache_bytes):
            predict(X, 1.01 * coef, n_blocks, out, cache_bytes)

        if fault == "stateful":
            features.transform = stateful
        if fault == "rows":
            features.transform = shifted
        if fault == "predict":
            features.predict = wrong_predict
        if fault == "gradient":
            features.gradient = lambda X, R, block: 1.01 * gradient(X, R, block)
        if fault == "pickle":
            features.hook = lambda: None
        return features


@every(
    ("fault", "message"),
    [
        ("asymmetric", "symmetric"),
        ("indefinite", "positive semi-definite"),
        ("diagonal", "diag"),
        ("biased", "standard errors"),
        ("seedless", "seed"),
        ("stateful", "pure function"),
        ("rows", "rows"),
        ("predict", "predict"),
        ("gradient", "gradient"),
        ("pickle", "pickle"),
    ],
)
def test_contract_finds_faults(fault, message):
    check_kernel(Broken())
    with pytest.raises(AssertionError, match=message):
        check_kernel(Broken(fault))


class ExactOnly(Gaussian):
    has_random_features = False

    def feature_map(self, n_features_in, seed, block_size):
        raise NotImplementedError


def test_contract_without_random_features():
    assert len(check_kernel(ExactOnly(0.5)).z) == 0


# Exact values


@every(("name", "params"), CASES)
def test_exact_values_against_the_scalar_oracle(name, params):
    X, Z = data(6), data(5, seed=1)
    K = make(name, **params)(X, Z)
    expected = [[oracles.scalar_kernel(name, x, z, 0.7, **params) for z in Z] for x in X]
    np.testing.assert_allclose(K, expected, rtol=1e-9, atol=1e-12)
    wrong = [[oracles.scalar_kernel(name, x, z, 0.8, **params) for z in Z] for x in X]
    assert np.abs(K - wrong).max() > 1e-3


def test_exact_values_against_scikit_learn():
    X, Z = data(30, 4), data(20, 4, seed=1)
    np.testing.assert_allclose(Gaussian(0.3)(X, Z), rbf_kernel(X, Z, 0.3), rtol=1e-12)
    np.testing.assert_allclose(Laplacian(0.3)(X, Z), laplacian_kernel(X, Z, 0.3), rtol=1e-12)
    np.testing.assert_allclose(get_kernel(gp.RBF(1.7))(X, Z), gp.RBF(1.7)(X, Z), rtol=1e-10)
    for nu in (*NUS, np.inf):
        theirs = gp.Matern(1.7, nu=nu)
        np.testing.assert_allclose(get_kernel(theirs)(X, Z), theirs(X, Z), rtol=1e-7)


def test_matern_tends_to_the_gaussian():
    X = data(30)
    limit = Gaussian(0.3)(X)
    errors = [np.abs(Matern(nu, 0.3)(X) - limit).max() for nu in (5, 20, 80)]
    assert errors[0] > 3 * errors[1] > 9 * errors[2] > 0
    assert errors[2] < 5e-3


@every("nu", [0.02, 20.0, 50.0, 120.0, 200.0, 1000.0])
def test_matern_of_extreme_smoothness_at_all_distances(nu):
    r = np.concatenate([[0.0], np.geomspace(1e-9, 1e4, 200)])
    k = Matern(nu, 0.5)(np.zeros((1, 1)), r[:, None])[0]
    assert np.isfinite(k).all()
    assert k[0] == 1.0
    assert (np.diff(k) <= 1e-9).all()
    assert k[-1] < 1e-3
    if nu > 1:
        assert abs(k[1] - 1) < 1e-6
        assert np.abs(k - np.exp(-(r**2) / 2)).max() < 1 / nu
    a = np.sqrt(2 * nu) * r[(r > 0.5) & (r < 5)]
    if nu < 500:  # scipy's Bessel function overflows beyond
        exact = np.log(2 * kve(nu, a)) - a + nu * np.log(a / 2) - gammaln(nu)
        np.testing.assert_allclose(k[(r > 0.5) & (r < 5)], np.exp(exact), atol=1e-7)


# Names


def test_get_kernel_by_name():
    composed = {"sum", "product", "convolutional"}
    for name, cls in KERNELS.items():
        if name not in composed:
            assert type(get_kernel(name, gamma="median")) is cls
            continue
        with pytest.raises(ValueError, match=f"{name}.*give an object"):
            get_kernel(name)
    assert type(get_kernel("gaussian")) is Gaussian
    assert get_kernel("poly", gamma="median").gamma == "auto"
    k = get_kernel("laplacian", gamma=0.3, bandwidth_factor=2.0)
    assert (k.gamma, k.bandwidth_factor) == (0.3, 2.0)


def test_get_kernel_copies_an_object():
    k = Matern(2.5, 0.3, form="phase")
    twin = get_kernel(k, gamma=9.0)
    assert twin is not k
    assert twin.get_params() == k.get_params()


def test_get_kernel_from_scikit_learn():
    k = get_kernel(gp.RBF(2.0))
    assert type(k) is Gaussian
    assert k.gamma == pytest.approx(1 / 8)
    assert get_kernel(gp.RBF([2.0])).gamma == k.gamma
    m = get_kernel(gp.Matern(2.0, nu=2.5))
    assert (type(m), m.nu, m.gamma) == (Matern, 2.5, k.gamma)
    assert type(get_kernel(gp.Matern(2.0, nu=np.inf))) is Gaussian


def test_get_kernel_errors():
    with pytest.raises(ValueError, match="one length scale per column"):
        get_kernel(gp.RBF([1.0, 2.0]))
    for wrong in (gp.RationalQuadratic(), 2 * gp.RBF(), 3, None, Gaussian):
        with pytest.raises(TypeError, match="kernel must be a name"):
            get_kernel(wrong)
    with pytest.raises(ValueError, match="Unknown kernel 'rfb'") as error:
        get_kernel("rfb")
    assert all(name in str(error.value) for name in KERNELS)


# Rules for the bandwidth


@pytest.mark.parametrize("name", STATIONARY)
def test_median_rule_against_pdist(name):
    X = data(80, 4)
    X[10:13] = X[9]  # pairs at distance zero are left out
    length = np.median(
        [t for t in pdist(X, "cityblock" if name == "laplacian" else "euclidean") if t > 0]
    )
    expected = 1 / length if name in ("laplacian", "cauchy") else 1 / (2 * length**2)
    k = make(name, "median").resolve(X, 0)
    assert k.gamma == pytest.approx(expected, rel=1e-10)
    assert isinstance(k.gamma, float)


@every("rule", ["median", "scale"])
@every("name", STATIONARY)
def test_rules_follow_the_units_of_the_data(name, rule):
    X = data(100, 4)
    k = make(name, rule)
    K = k.resolve(X, 0)(X)
    for unit in (1e-6, 3.0, 1e6):
        other = k.resolve(unit * X, 0)(unit * X)
        if (name, rule) == ("laplacian", "scale"):
            # scikit-learn's 1 / (d Var) is an inverse square, gamma here an inverse length
            continue
        np.testing.assert_allclose(other, K, rtol=1e-7, atol=1e-12)


@every("rule", ["median", "scale"])
@every("name", STATIONARY)
def test_bandwidth_factor_multiplies_the_length(name, rule):
    X = data(100, 4)
    plain, wide = (
        make(name, rule).resolve(X, 0),
        make(name, rule, bandwidth_factor=3.0).resolve(X, 0),
    )
    np.testing.assert_allclose(wide(X), plain(X / 3), rtol=1e-9)
    assert wide.bandwidth_factor == 1.0
    assert wide.resolve(X, 0).gamma == wide.gamma
    number = make(name, 0.7, bandwidth_factor=3.0).resolve(X, 0)
    assert number.gamma == 0.7


@pytest.mark.parametrize("shift", [0.0, 1e4, 1e8])
def test_scale_is_scikit_learns(shift):
    X = data(50, 4) * 3 + shift
    y = np.arange(50) % 2
    theirs = SVC(gamma="scale").fit(X, y)._gamma
    assert Gaussian("scale").resolve(X, 0).gamma == pytest.approx(theirs, rel=1e-6)
    if shift == 0:
        S = sp.csr_matrix(X)
        theirs = SVC(gamma="scale").fit(S, y)._gamma
        assert Gaussian("scale").resolve(S, 0).gamma == pytest.approx(theirs, rel=1e-10)


@every("rule", ["median", "scale"])
@every("name", STATIONARY)
def test_degenerate_rows(name, rule):
    # one number in every column for the variance rule; rows that differ by rounding at most
    # in their computed distances for the median rule
    same = np.ones((300, 33)) if rule == "scale" else np.tile(1e3 * data(1, 33), (300, 1))
    for X in (np.zeros((1, 3)), np.ones((9, 2)), same):
        k = make(name, rule).resolve(X, 0)
        assert 1e-3 < k.gamma <= 1
        np.testing.assert_allclose(k(X), 1, atol=1e-3)


def test_median_of_many_rows_is_seeded_and_close():
    X = data(2600, 3)
    full = 1 / (2 * np.median(pdist(X)) ** 2)
    k = Gaussian("median")
    gammas = [k.resolve(X, seed).gamma for seed in (0, 0, 1)]
    assert gammas[0] == gammas[1] != gammas[2]
    np.testing.assert_allclose(gammas, full, rtol=0.03)


def test_nested_kernels_in_files(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.random((150, 4))
    y = np.sin(3 * X[:, 0])
    kernel = 0.3 * Gaussian(bandwidth_factor=0.5) + Chi2() * Laplacian() + Chi2() * Chi2()
    model = plain_regressor(kernel=kernel, random_state=0, max_iter=5).fit(X, y)
    model.save(tmp_path / "m.kg", resumable=True)
    twin = load(tmp_path / "m.kg")
    np.testing.assert_array_equal(twin.predict(X), model.predict(X))
    for m in (model, twin):
        m.set_params(warm_start=True, max_iter=2).fit(X, y)
    np.testing.assert_array_equal(twin.predict(X), model.predict(X))
    json.dumps(model.model_info())


@pytest.mark.parametrize("kernel", [Chi2() * Chi2(), Chi2() * Gaussian(0.3), Chi2() + Chi2()])
def test_stratified_parts_in_products(kernel):
    check_kernel(kernel, X=np.random.default_rng(0).random((24, 3)) * 2, n_blocks=1000)


def test_sequences_of_points_in_products():
    sobol = Gaussian(0.3, sampling="qmc")
    check_kernel((sobol + Chi2("signs")) * sobol, X=np.random.default_rng(0).random((24, 3)))
