"""Kernels: exact values, names, rules for bandwidths, sums and products, and their contract."""

import itertools
import json

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import pdist
from scipy.special import gammaln, kve
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.svm import SVC

from cases import every, raises
from draws import cube, normal
from kernelgrad import kernels as kk
from kernelgrad.exceptions import CapabilityError, DataError, ModelFileError
from kernelgrad.functions import FeatureStream, InputScaling
from kernelgrad.losses import SquaredError
from kernelgrad.solvers import DSG, check_capabilities
from kernelgrad.testing import check_kernel

NUS = (0.3, 0.5, 1.5, 2.5, 7)
STATIONARY = [n for n, cls in kk.KERNELS.items() if issubclass(cls, kk.StationaryKernel)]
CASES = [(name, {}) for name in STATIONARY if name != "matern"]
CASES += [("matern", {"nu": nu}) for nu in NUS]


def make(name, gamma=0.7, **params):
    return kk.KERNELS[name](gamma=gamma, **params)


# The contract can fail


class ExactOnly(kk.Gaussian):
    has_random_features = False


class Broken(kk.Gaussian):
    """A Gaussian kernel with one fault."""

    def __init__(self, fault="", gamma=0.5, *, bandwidth_factor=1.0, form="pair"):
        super().__init__(gamma, bandwidth_factor=bandwidth_factor, form=form)
        self.fault = fault

    def pairwise(self, X, Z):
        K = super().pairwise(X, Z)
        if self.fault == "asymmetric":
            K = K + 1e-6 * np.arange(K.shape[1])
        return K**-1.0 if self.fault == "indefinite" else K

    def diag(self, X):
        return super().diag(X) * (1.001 if self.fault == "diagonal" else 1.0)

    def spectral_law(self):
        law, scale = super().spectral_law()
        return law, scale * (1.1 if self.fault == "biased" else 1.0)

    def feature_map(self, n_features_in, seed, block_size):
        seed = 0 if self.fault == "seedless" else seed
        features, calls = (
            super().feature_map(n_features_in, seed, block_size),
            itertools.count(),
        )
        transform, predict, gradient = features.transform, features.predict, features.gradient
        faults = {
            "stateful": ("transform", lambda X, j: transform(X, j + (next(calls) > 1))),
            "rows": ("transform", lambda X, j: transform(X - X[:1], j)),
            "predict": ("predict", lambda X, coef, *rest: predict(X, 1.01 * coef, *rest)),
            "gradient": ("gradient", lambda X, R, j: 1.01 * gradient(X, R, j)),
            "pickle": ("hook", lambda: None),
        }
        if self.fault in faults:
            setattr(features, *faults[self.fault])
        return features


@every(
    ("fault", "message"),
    [
        ("asymmetric", "symmetric"), ("indefinite", "positive semi-definite"),
        ("diagonal", "diag"), ("biased", "features estimate"), ("seedless", "seed"),
        ("stateful", "pure function"), ("rows", "rows"), ("predict", "predict"),
        ("gradient", "gradient"), ("pickle", "pickle"),
    ],
)  # fmt: skip
def test_contract_finds_faults(fault, message):
    check_kernel(Broken())
    raises(AssertionError, message, check_kernel, Broken(fault))


# Exact values


@every(("name", "params"), CASES)
def test_exact_values_against_scikit_learn(name, params):
    X, Z, gamma = normal(6), normal(5, seed=1), 0.7
    manhattan = -np.log(laplacian_kernel(X, Z, gamma))
    expected = {
        "rbf": lambda: rbf_kernel(X, Z, gamma),
        "laplacian": lambda: np.exp(-manhattan),
        "root_laplacian": lambda: np.exp(-np.sqrt(manhattan)),
        "cauchy": lambda: (1 / (1 + (gamma * (X[:, None] - Z)) ** 2)).prod(axis=2),
        "matern": lambda: gp.Matern((2 * gamma) ** -0.5, nu=params["nu"])(X, Z),
    }[name]()
    np.testing.assert_allclose(make(name, **params)(X, Z), expected, rtol=1e-9, atol=1e-12)


@every("nu", [0.02, 20.0, 50.0])
def test_matern_of_extreme_smoothness_at_all_distances(nu):
    r = np.concatenate([[0.0], np.geomspace(1e-9, 1e4, 200)])
    k = kk.Matern(nu, 0.5)(np.zeros((1, 1)), r[:, None])[0]
    assert np.isfinite(k).all()
    assert k[0] == 1.0
    assert (np.diff(k) <= 1e-9).all()
    assert k[-1] < 1e-3
    if nu > 1:
        assert abs(k[1] - 1) < 1e-6
        assert np.abs(k - np.exp(-(r**2) / 2)).max() < 1 / nu
    a = np.sqrt(2 * nu) * r[(r > 0.5) & (r < 5)]
    exact = np.log(2 * kve(nu, a)) - a + nu * np.log(a / 2) - gammaln(nu)
    np.testing.assert_allclose(k[(r > 0.5) & (r < 5)], np.exp(exact), atol=1e-7)


@every(("cls", "power"), [(kk.Laplacian, 1.0), (kk.RootLaplacian, 0.5)])
def test_weights_of_columns(cls, power):
    X, Z, v = normal(30, 3), normal(20, 3, seed=1), [1.0, 0.0, 2.5]
    kernel = cls(0.7, column_weights=v)
    expected = np.exp(-((-np.log(laplacian_kernel(X * v, Z * v, 0.7))) ** power))
    for A, B in ((X, Z), (sp.csr_matrix(X), sp.csr_matrix(Z)), (X.astype(np.float32), Z)):
        np.testing.assert_allclose(kernel(A, B), expected, rtol=1e-6)
    rows, others = (kernel.exact_rows(each) for each in (X, Z))
    for compiled in (False, True):
        for dtype, rtol in ((np.float32, 3e-6), (np.float64, 1e-6)):
            K = kernel.values(rows, others, dtype, compiled=compiled)
            assert K.dtype == dtype
            np.testing.assert_allclose(K, expected, rtol=rtol)
    pair = kernel + kk.Gaussian(0.3)  # a part of a sum writes to its own array
    rows, others, out = pair.exact_rows(X), pair.exact_rows(Z), np.empty((30, 20), np.float32)
    assert pair.values(rows, others, out=out) is out
    np.testing.assert_allclose(out, expected + kk.Gaussian(0.3)(X, Z), rtol=3e-6)
    # the median is that of weighted rows
    median = cls(column_weights=v).resolve(X, 0)
    assert median.gamma == pytest.approx(1 / np.median(pdist(X * v, "cityblock")))
    twin = kk.restore_kernel(json.loads(json.dumps(kk.describe_kernel(kernel))))
    np.testing.assert_array_equal(twin(X, Z), kernel(X, Z))
    for wrong in ([[1.0]], [-1.0, 1.0, 1.0], [0.0] * 3, [np.nan] * 3):
        with pytest.raises(ValueError, match="column_weights must be numbers >= 0"):
            cls(0.7, column_weights=wrong).check()
    with pytest.raises(DataError, match="2 numbers, but rows have 3 columns"):
        cls(0.7, column_weights=[1.0, 1.0])(X)


@pytest.mark.parametrize("nu", [*kk.profiles.MATERN, np.inf])
def test_profiles_of_squared_distances_and_their_slopes(nu):
    D = np.linspace(0.01, 9.0, 50)
    k, slope = kk.profiles.profile(D, nu)
    kernel = kk.Gaussian(0.5) if nu == np.inf else kk.Matern(nu, 0.5)
    np.testing.assert_allclose(k, kernel(np.sqrt(D)[:, None], np.zeros((1, 1)))[:, 0])
    quotient = (
        kk.profiles.profile(D + 1e-6, nu)[0] - kk.profiles.profile(D - 1e-6, nu)[0]
    ) / 2e-6
    np.testing.assert_allclose(slope, quotient, rtol=1e-6)
    k, slope = kk.profiles.profile(np.zeros(1, np.float32), nu)
    assert (k.dtype, slope.dtype, k[0]) == (np.float32, np.float32, 1.0)
    assert np.isfinite(slope[0])


# Names


def test_get_kernel_by_name():
    composed = {"sum", "product", "convolutional"}
    for name, cls in kk.KERNELS.items():
        if name not in composed:
            assert type(kk.get_kernel(name, gamma="median")) is cls
            continue
        raises(ValueError, f"{name}.*give an object", kk.get_kernel, name)
    assert type(kk.get_kernel("gaussian")) is kk.Gaussian
    assert kk.get_kernel("poly", gamma="median").gamma == "auto"
    k = kk.get_kernel("laplacian", gamma=0.3, bandwidth_factor=2.0)
    assert (k.gamma, k.bandwidth_factor) == (0.3, 2.0)


def test_wrong_names_and_rules_are_refused():
    for wrong in (3, None, kk.Gaussian):
        raises(TypeError, "kernel must be a name", kk.get_kernel, wrong)
    with pytest.raises(ValueError, match="Unknown kernel 'rfb'") as error:
        kk.get_kernel("rfb")
    assert all(name in str(error.value) for name in kk.KERNELS)
    with pytest.raises(ValueError, match=r"rule for gamma 'best'.* or give a number"):
        kk.get_kernel(kk.Gaussian("best"))
    with np.errstate(over="ignore"), pytest.raises(DataError, match=r"'scale' gives .*0\.0"):
        kk.Gaussian("scale").resolve(1e163 * normal(20, 3), 0)


def test_parameters_of_old_files():
    old = {"name": "rbf", "params": {"gamma": {"value": 0.5}, "sampling": {"value": "iid"}}}
    assert repr(kk.restore_kernel(old)) == "Gaussian(gamma=0.5)"
    old["params"]["sampling"]["value"] = "qmc"
    raises(ModelFileError, "sampling='qmc', which versions from 0.3", kk.restore_kernel, old)


# Rules for the bandwidth


@pytest.mark.parametrize("name", STATIONARY)
def test_median_rule_against_pdist(name):
    X = normal(80, 4)
    X[10:13] = X[9]  # pairs at distance zero are left out
    length = np.median(
        [t for t in pdist(X, "cityblock" if "laplacian" in name else "euclidean") if t > 0]
    )
    expected = 1 / length if "laplacian" in name or name == "cauchy" else 1 / (2 * length**2)
    k = make(name, "median").resolve(X, 0)
    assert k.gamma == pytest.approx(expected, rel=1e-10)
    assert isinstance(k.gamma, float)


@every("rule", ["median", "scale"])
@every("name", STATIONARY)
def test_rules_follow_the_units_of_the_data_and_the_factor(name, rule):
    X = normal(100, 4)
    plain, wide = (make(name, rule, bandwidth_factor=b) for b in (1.0, 3.0))
    K = plain.resolve(X, 0)(X)
    for unit in (1e-6, 3.0, 1e6):
        if "laplacian" not in name or rule != "scale":  # 1 / (d Var) is no inverse length
            other = plain.resolve(unit * X, 0)(unit * X)
            np.testing.assert_allclose(other, K, rtol=1e-7, atol=1e-12)
    resolved = wide.resolve(X, 0)
    np.testing.assert_allclose(resolved(X), plain.resolve(X, 0)(X / 3), rtol=1e-9)
    assert resolved.bandwidth_factor == 1.0
    assert resolved.resolve(X, 0).gamma == resolved.gamma
    assert make(name, 0.7, bandwidth_factor=3.0).resolve(X, 0).gamma == 0.7


@pytest.mark.parametrize("shift", [0.0, 1e4, 1e8])
def test_scale_is_scikit_learns(shift):
    X = normal(50, 4) * 3 + shift
    y = np.arange(50) % 2
    theirs = SVC(gamma="scale").fit(X, y)._gamma
    assert kk.Gaussian("scale").resolve(X, 0).gamma == pytest.approx(theirs, rel=1e-6)
    if shift == 0:
        S = sp.csr_matrix(X)
        theirs = SVC(gamma="scale").fit(S, y)._gamma
        assert kk.Gaussian("scale").resolve(S, 0).gamma == pytest.approx(theirs, rel=1e-10)


@every("rule", ["median", "scale"])
@every("name", STATIONARY)
def test_degenerate_rows(name, rule):
    # rows that are equal, or differ by the rounding of their distances
    same = np.ones((300, 33)) if rule == "scale" else np.tile(1e3 * normal(1, 33), (300, 1))
    for X in (np.zeros((1, 3)), np.ones((9, 2)), same):
        k = make(name, rule).resolve(X, 0)
        assert 1e-3 < k.gamma <= 1
        np.testing.assert_allclose(k(X), 1, atol=1e-3)


def test_median_of_many_rows_is_seeded_and_close():
    X = normal(2600, 3)
    full = 1 / (2 * np.median(pdist(X)) ** 2)
    k = kk.Gaussian("median")
    gammas = [k.resolve(X, seed).gamma for seed in (0, 0, 1)]
    assert gammas[0] == gammas[1] != gammas[2]
    np.testing.assert_allclose(gammas, full, rtol=0.03)


# Sums and products


def test_a_part_keeps_its_domain():
    for kernel in (kk.Gaussian(0.5) + kk.Chi2(), kk.Chi2() * kk.Gaussian(0.5)):
        raises(DataError, "chi2", kernel, -cube())
        raises(DataError, "chi2", FeatureStream(kernel, 3, 0, 8).prepare, -cube())


def test_operators_flatten():
    a, b, c = kk.Gaussian(0.5), kk.Laplacian(0.1), kk.Cauchy(0.2)
    total = 2 * (a + 0.5 * b) + c
    assert isinstance(total, kk.SumKernel)
    assert [type(k) for k in total.kernels] == [kk.Gaussian, kk.Laplacian, kk.Cauchy]
    assert list(total.weights) == [2.0, 1.0, 1.0]
    assert (a + b).weights is None
    product = a * (b * c)
    assert isinstance(product, kk.ProductKernel)
    assert [type(k) for k in product.kernels] == [kk.Gaussian, kk.Laplacian, kk.Cauchy]
    scaled = (0.5 * a) * (b * 3)
    assert scaled.weights == [1.5]
    assert [type(k) for k in scaled.kernels[0].kernels] == [kk.Gaussian, kk.Laplacian]
    assert isinstance(a * (b + c), kk.ProductKernel)
    assert isinstance(np.float64(0.3) * a, kk.SumKernel)
    X = cube()
    np.testing.assert_allclose(((a + b) * (2 * c))(X), 2 * (a(X) + b(X)) * c(X))


def test_parts_are_parameters():
    kernel = kk.SumKernel(
        [kk.Gaussian(0.5), kk.Matern(1.5, 0.2) * kk.Laplacian(0.1)], [0.4, 0.6]
    )
    params = kernel.get_params()
    assert params["k0__gamma"] == 0.5
    assert params["k1__k0__nu"] == 1.5
    assert params["k1"] is kernel.kernels[1]
    assert set(kernel.get_params(deep=False)) == {"kernels", "weights"}
    given = kernel.kernels
    kernel.set_params(k1=kk.Cauchy(0.3), k0__gamma=0.7, weights=[1.0, 2.0])
    assert isinstance(given[1], kk.ProductKernel)  # the list that was given is not changed
    assert (kernel.kernels[0].gamma, kernel.kernels[1].gamma) == (0.7, 0.3)
    assert kernel.weights == [1.0, 2.0]
    kernel.set_params(kernels=[kk.Gaussian(), kk.Gaussian()], k1__gamma=0.2)
    assert [k.gamma for k in kernel.kernels] == ["median", 0.2]
    for name in ("k2__gamma", "k2", "k0__sigma", "bandwidth"):
        raises(ValueError, "Invalid parameter", kernel.set_params, **{name: 1.0})


def test_inputs_are_centred_only_if_all_parts_are_stationary():
    X = cube() + 5
    mixed, stationary = (
        kk.Gaussian(0.5) + kk.Chi2(),
        kk.Gaussian(0.5) * (kk.Cauchy(0.1) + kk.Laplacian(0.1)),
    )
    w = np.ones(len(X))
    assert not mixed.is_stationary
    assert InputScaling.fit(X, mixed, standardize=False, sample_weight=w).centre is None
    assert stationary.is_stationary
    centre = InputScaling.fit(X, stationary, standardize=False, sample_weight=w).centre
    np.testing.assert_allclose(centre, X.mean(0))


def test_a_part_without_random_features():
    for kernel in (kk.Gaussian(0.5) + ExactOnly(0.5), ExactOnly(0.5) * kk.Gaussian(0.5)):
        check_kernel(kernel)
        with pytest.raises(CapabilityError, match="random_features"):
            check_capabilities(DSG(), SquaredError(), kernel)
