import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.gaussian_process import kernels as gp

from cases import every
from kernelgrad.compute import rng
from kernelgrad.features.base import FeatureMap, float32_rows
from kernelgrad.functions.features import FeatureStream
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import (
    Cauchy,
    Gaussian,
    Kernel,
    Laplacian,
    Matern,
)
from kernelgrad.kernels.base import ProductKernel, SumKernel
from kernelgrad.losses import SquaredError
from kernelgrad.solvers import DSG, check_capabilities
from kernelgrad.special_kernels.additive import Chi2
from kernelgrad.special_kernels.skewed import SkewedChi2
from kernelgrad.testing import check_kernel
from kernelgrad.validation import CapabilityError, DataError

SUMS = [
    Gaussian(0.5) + Laplacian(0.2),
    SumKernel([Gaussian(bandwidth_factor=0.5), Gaussian(bandwidth_factor=2.0)], [0.3, 0.7]),
    SumKernel((Gaussian(0.5, form="phase"), Matern(1.5, 0.4)), np.array([2.0, 0.5])),
    Chi2("signs") + Gaussian(0.3) + SkewedChi2(),
    Chi2() + SkewedChi2(),
    0.5 * Gaussian(0.4),
    (Gaussian(0.5) * Chi2()) + (Cauchy(0.4) * Laplacian(0.1)),
]
PRODUCTS = [
    Gaussian(0.3) * Laplacian(0.2),
    Matern(1.5, 0.2) * Cauchy(0.4) * Gaussian(0.1),
    Gaussian(0.3) * Gaussian(0.3),
    Gaussian(0.3, form="phase") * Laplacian(0.2, form="phase"),
    Gaussian(0.3, form="phase") * Laplacian(0.2),
    Gaussian() * SkewedChi2(),
    Gaussian(0.5) * Chi2("signs"),
    Gaussian(0.5) * Chi2(),
    (Gaussian(0.6) + Laplacian(0.2)) * SkewedChi2(),
    ProductKernel([Gaussian(0.4)]),
    Gaussian(0.2) * SkewedChi2() * Laplacian(0.1),
    Gaussian(0.3, sampling="qmc") * Laplacian(0.2, sampling="qmc"),
    Gaussian(0.3, sampling="qmc") * (SkewedChi2() + Laplacian(0.2)),
]
CASES = SUMS + PRODUCTS


def rows(n=24, d=3, seed=0):
    return 2.0 * np.random.default_rng(seed).random((n, d))


# The contract


@every("kernel", CASES)
def test_contract(kernel):
    check_kernel(kernel)


# Exact values


def test_sums_and_products_against_scikit_learn():
    X, Z = rows(20), rows(12, seed=1)
    theirs = 0.3 * gp.RBF(1.3) + gp.Matern(0.9, nu=1.5) * gp.RBF(2.0) + 2.0 * gp.RBF(0.7)
    g = [1 / (2 * length**2) for length in (1.3, 0.9, 2.0, 0.7)]
    ours = 0.3 * Gaussian(g[0]) + Matern(1.5, g[1]) * Gaussian(g[2]) + Gaussian(g[3]) * 2.0
    for A, B in ((X, Z), (sp.csr_matrix(X), sp.csr_matrix(Z)), (X.astype(np.float32), Z)):
        np.testing.assert_allclose(ours(A, B), theirs(X, Z), rtol=1e-6)
    np.testing.assert_allclose(ours.diag(X), theirs.diag(X), rtol=1e-12)


def test_a_part_keeps_its_domain():
    for kernel in (Gaussian(0.5) + Chi2(), Chi2() * Gaussian(0.5)):
        with pytest.raises(DataError, match="chi2"):
            kernel(-rows())
        with pytest.raises(DataError, match="chi2"):
            FeatureStream(kernel, 3, 0, 8).prepare(-rows())


# Operators


def test_operators_flatten():
    a, b, c = Gaussian(0.5), Laplacian(0.1), Cauchy(0.2)
    total = 2 * (a + 0.5 * b) + c
    assert isinstance(total, SumKernel)
    assert [type(k) for k in total.kernels] == [Gaussian, Laplacian, Cauchy]
    assert list(total.weights) == [2.0, 1.0, 1.0]
    assert (a + b).weights is None
    product = a * (b * c)
    assert isinstance(product, ProductKernel)
    assert [type(k) for k in product.kernels] == [Gaussian, Laplacian, Cauchy]
    scaled = (0.5 * a) * (b * 3)
    assert scaled.weights == [1.5]
    assert [type(k) for k in scaled.kernels[0].kernels] == [Gaussian, Laplacian]
    assert isinstance(a * (b + c), ProductKernel)
    assert isinstance(np.float64(0.3) * a, SumKernel)
    X = rows()
    np.testing.assert_allclose(((a + b) * (2 * c))(X), 2 * (a(X) + b(X)) * c(X))


def test_operators_refuse_other_things():
    a = Gaussian(0.5)
    for wrong in (lambda: a + 1, lambda: a * "2", lambda: "2" * a):
        with pytest.raises(TypeError, match=r"unsupported operand|multiply sequence"):
            wrong()
    for wrong in (lambda: -1 * a, lambda: a * 0, lambda: a + float("nan") * a):
        with pytest.raises(ValueError, match=r"weights\[0\] must lie in"):
            wrong()


# Parameters


def test_parts_are_parameters():
    kernel = SumKernel([Gaussian(0.5), Matern(1.5, 0.2) * Laplacian(0.1)], [0.4, 0.6])
    params = kernel.get_params()
    assert params["k0__gamma"] == 0.5
    assert params["k1__k0__nu"] == 1.5
    assert params["k1"] is kernel.kernels[1]
    assert set(kernel.get_params(deep=False)) == {"kernels", "weights"}
    given = kernel.kernels
    kernel.set_params(k1=Cauchy(0.3), k0__gamma=0.7, weights=[1.0, 2.0])
    assert isinstance(given[1], ProductKernel)  # the list that was given is not changed
    assert (kernel.kernels[0].gamma, kernel.kernels[1].gamma) == (0.7, 0.3)
    assert kernel.weights == [1.0, 2.0]
    kernel.set_params(kernels=[Gaussian(), Gaussian()], k1__gamma=0.2)
    assert [k.gamma for k in kernel.kernels] == ["median", 0.2]
    for name in ("k2__gamma", "k2", "k0__sigma", "bandwidth"):
        with pytest.raises(ValueError, match="Invalid parameter"):
            kernel.set_params(**{name: 1.0})


def test_parameters_outside_their_domain():
    good = [Gaussian(0.5), Laplacian(0.1)]
    for cls in (SumKernel, ProductKernel):
        with pytest.raises(ValueError, match="at least one kernel"):
            cls([]).check()
        with pytest.raises(TypeError, match="must be a list of kernels"):
            cls(Gaussian(0.5)).check()
        with pytest.raises(TypeError, match="must hold kernels"):
            cls([Gaussian(0.5), "rbf"]).check()
        with pytest.raises(ValueError, match="gamma must lie in"):
            cls([Gaussian(0.5), Gaussian(-1.0)]).check()
        with pytest.raises(ValueError, match=r"call resolve\(X, seed\) first"):
            cls([Gaussian(0.5), Gaussian()]).feature_map(3, 0, 8)
    with pytest.raises(ValueError, match="one number for each of 2 kernels"):
        SumKernel(good, [1.0]).check()
    with pytest.raises(TypeError, match="must be a list of numbers"):
        SumKernel(good, 0.5).check()
    for weight in (0.0, -1.0, np.inf):
        with pytest.raises(ValueError, match=r"weights\[1\] must lie in"):
            SumKernel(good, [1.0, weight]).check()


def test_each_part_resolves_its_own_rule():
    kernel = SumKernel([Gaussian(bandwidth_factor=0.5), Gaussian(bandwidth_factor=2.0)])
    X = rows(60)
    for twin in (kernel.resolve(X, 0), ProductKernel(kernel.kernels).resolve(X, 0)):
        narrow, wide = (k.gamma for k in twin.kernels)
        assert narrow == pytest.approx(16 * wide, rel=1e-12)
    assert kernel.resolve(X, 0).kernels[0].gamma == (
        Gaussian(bandwidth_factor=0.5).resolve(X, 0).gamma
    )
    assert kernel.kernels[0].gamma == "median"  # a copy was resolved


def test_inputs_are_centred_only_if_all_parts_are_stationary():
    X = rows() + 5
    mixed, stationary = Gaussian(0.5) + Chi2(), Gaussian(0.5) * (Cauchy(0.1) + Laplacian(0.1))
    w = np.ones(len(X))
    assert not mixed.is_stationary
    assert InputScaling.fit(X, mixed, standardize=False, sample_weight=w).centre is None
    assert stationary.is_stationary
    centre = InputScaling.fit(X, stationary, standardize=False, sample_weight=w).centre
    np.testing.assert_allclose(centre, X.mean(0))


class ExactOnly(Gaussian):
    has_random_features = False


def test_a_part_without_random_features():
    for kernel in (Gaussian(0.5) + ExactOnly(0.5), ExactOnly(0.5) * Gaussian(0.5)):
        assert len(check_kernel(kernel).z) == 0
        with pytest.raises(CapabilityError, match="random_features"):
            check_capabilities(DSG(), SquaredError(), kernel)


# Features


def test_a_sum_puts_the_parts_side_by_side():
    kernel = SumKernel([Gaussian(0.5), Gaussian(0.5, form="phase"), Laplacian(0.2)], [4, 1, 9])
    features = kernel.feature_map(3, 7, 512)
    assert features.planes == 5
    phi = features.transform(float32_rows(features.prepare(rows())), 1).reshape(24, 5, 512)
    for planes, weight in ((phi[:, :2], 4), (phi[:, 3:], 9)):  # cos^2 + sin^2 = 1
        np.testing.assert_allclose(512 * (planes**2).sum(1), weight, rtol=1e-5)
    assert (512 * phi[:, 2] ** 2).max() == pytest.approx(2, rel=1e-3)


def test_parts_have_seeds_of_their_own():
    kernel = SumKernel([Gaussian(0.5)] * 3)
    X = rows().astype(np.float32)
    phi = [kernel.feature_map(3, s, 64).transform(X, 0).reshape(24, 6, 64) for s in range(3)]
    phi.append(Gaussian(0.5).feature_map(3, 0, 64).transform(X, 0).reshape(24, 2, 64))
    cosines = np.concatenate([p[0, ::2] for p in phi])
    correlation = np.corrcoef(cosines)
    assert len(correlation) == 10
    assert np.abs(correlation - np.eye(10)).max() < 5 / np.sqrt(64)
    fewer = SumKernel([Gaussian(0.5)] * 2).feature_map(3, 0, 64).transform(X, 0)
    np.testing.assert_array_equal(fewer.reshape(24, 4, 64), phi[0][:, :4])


def test_stationary_products_add_frequencies():
    planes = [
        k.feature_map(3, 0, 8).planes for k in map(lambda k: k.resolve(rows(), 0), PRODUCTS)
    ]
    assert planes == [2, 2, 2, 1, 2, 4, 4, 4, 8, 2, 4, 2, 8]
    features = (Gaussian(0.3) * Gaussian(0.5)).feature_map(4, 0, 4096)
    W = 2 * np.pi * features.frequencies(0, 16, 256, np.arange(4))
    error = np.sqrt(2 / W.size) * 1.6  # standard error of the mean of squares
    assert abs((W**2).mean() - 1.6) < 5 * error
    assert abs((W**2).mean() - 1.0) > 5 * error


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_rows_are_prepared_once_for_all_parts(storage):
    X = storage(rows())
    assert (Gaussian(0.5) + Laplacian(0.1)).feature_map(3, 0, 8).prepare(X) is X
    tensor = (Gaussian(0.5) + Laplacian(0.1)) * Gaussian(0.2)
    assert tensor.feature_map(3, 0, 8).prepare(X) is X
    kernel = Gaussian(0.5) + SkewedChi2() + Laplacian(0.1) + SkewedChi2(2.0)
    both = kernel.feature_map(3, 0, 8).prepare(X)
    assert both.shape == (24, 9)
    assert sp.issparse(both) == sp.issparse(X)
    values = both.toarray() if sp.issparse(both) else both
    np.testing.assert_allclose(values[:, 3:6], np.log1p(rows()))
    lone = SumKernel([SkewedChi2()]).feature_map(3, 0, 8).prepare(X)
    assert lone.shape == (24, 3)


def test_sparse_rows_stay_sparse():
    X = sp.random(50, 2000, 0.01, format="csr", random_state=0)
    kernel = Gaussian(0.5) + Chi2("signs") + SkewedChi2() * Laplacian(0.1)
    stream = FeatureStream(kernel, 2000, 0, 16)
    P, D = stream.prepare(X), stream.prepare(X.toarray())
    assert sp.issparse(P)
    assert P.shape[1] == 2000 + 4000 + 4000
    # sums of float32 products in another order: each is off by the rounding of its terms
    plain, _, product = stream.map.parts
    sums = [
        abs(part.prepare(X)) @ abs(part.frequencies(0, 1, 16, np.arange(2000))[0])
        for part in (plain, *product.parts)
    ]
    atol = 2 * np.pi * np.finfo(np.float32).eps * max(s.max() for s in sums)
    np.testing.assert_allclose(stream.transform(P, 0), stream.transform(D, 0), atol=atol)


def test_the_cache_is_shared_and_changes_nothing():
    kernel = Gaussian(0.5) + Laplacian(0.1) + Gaussian(0.2) * Cauchy(0.2)
    features = kernel.feature_map(50, 0, 256)
    X = rows(30, 50).astype(np.float32)
    coef = np.random.default_rng(0).standard_normal((6, 8 * 256, 2)).astype(np.float32)
    outs = []
    for budget in (0, 500_000, 500_000, 2**30):
        outs.append(np.zeros((30, 2), np.float32))
        features.predict(X, coef, 8, outs[-1], budget)
        kept = sum(part._cache.nbytes for part in features.parts)
        assert budget // 2 * (budget < 2**30) <= kept <= budget
    assert all(np.array_equal(out, outs[0]) for out in outs)
    assert len(pickle.dumps(features)) < 20_000


# Features that are unbiased only as a block


class Coordinates(Kernel):
    """x . z by coordinates in turn, or with `random` by coordinates drawn for each feature."""

    name = "coordinates"

    def __init__(self, random=False, flag=False, twin=True):
        self.random = random
        self.flag = flag
        self.twin = twin

    def check(self):
        pass

    def pairwise(self, X, Z):
        return (sp.csr_matrix(X) @ sp.csr_matrix(Z).T).toarray()

    def diag(self, X):
        return self.pairwise(X, X).diagonal()

    def per_feature(self):
        return Coordinates(True) if self.twin else self

    def feature_map(self, n_features_in, seed, block_size):
        features = CoordinatesMap(n_features_in, seed, block_size)
        features.random = self.random
        features.honest = not self.flag
        return features


class CoordinatesMap(FeatureMap):
    @property
    def per_feature_unbiased(self):
        return self.random or not self.honest

    def transform(self, X, block):
        F, d = self.block_size, self.n_features_in
        where = np.arange(F) % d
        if self.random:
            where = (rng.uniforms(self.seed, block * F, F, 30) * d).astype(int)
        X = X.toarray() if sp.issparse(X) else X
        return X[:, where] * np.float32(np.sqrt(d / F))


def test_block_features_are_replaced_in_products():
    X = rows(24, 4)
    good = [
        Gaussian(0.3) * Coordinates(),
        Coordinates() * Gaussian(0.3),
        Coordinates() * Coordinates(),
        Coordinates() * Gaussian(0.3) * Coordinates(),
        Coordinates(twin=False) * Coordinates() * Gaussian(0.3),
        Coordinates() * (Coordinates() + Gaussian(0.3)),
        Coordinates() * ProductKernel([Coordinates(), Gaussian(0.3)]),
        Coordinates() * Coordinates() + Coordinates(),
    ]
    for kernel in good:
        check_kernel(kernel, X=X)
    # a map that hides its restriction gives wrong products
    hidden = Coordinates(flag=True)
    with pytest.raises(AssertionError, match="standard errors"):
        check_kernel(hidden * hidden * Gaussian(0.3), X=X)


@pytest.mark.parametrize(
    "other",
    [
        Coordinates(twin=False),
        Coordinates(twin=False) + Gaussian(0.3),
        ProductKernel([Coordinates(twin=False), Gaussian(0.3)]),
    ],
    ids=["part", "sum", "product"],
)
def test_two_block_features_cannot_be_multiplied(other):
    with pytest.raises(CapabilityError, match="only as a whole"):
        ProductKernel([Coordinates(), other]).feature_map(4, 0, 8)


# Estimators and files
