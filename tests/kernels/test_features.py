"""Random features: their mean, their frequencies, their caches, and functions of them."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import oracles
from cases import every, raises
from draws import cube, normal, unit
from kernelgrad import kernels as kk
from kernelgrad.exceptions import CapabilityError
from kernelgrad.features import float32_rows
from kernelgrad.functions import FeatureStream, InputScaling
from kernelgrad.testing import check_kernel

FORMS = ("pair", "phase")
STATIONARY = [n for n, cls in kk.KERNELS.items() if issubclass(cls, kk.StationaryKernel)]


def histograms(d=3):
    return cube(d=d, seed=7) * (cube(d=d, seed=8) >= 0.4)


def stream(kernel=None, d=5, block_size=64, seed=3, **options):
    return FeatureStream(kernel or kk.Gaussian(0.2), d, seed, block_size, **options)


# The mean of products of features is the kernel. The kernels of the registry are tested with
# their default parameters among the contracts.


QUICK = [
    (kk.Gaussian(0.7, form="phase"), cube(), 400),
    (kk.RootLaplacian(0.7, column_weights=[1.0, 0.3, 2.0]), cube(), 400),
    (kk.Chi2("coordinates"), histograms(50), 400),
    (kk.JensenShannon("signs"), histograms(5), 400),
    (kk.Polynomial(3, "auto", 0.5), unit(), 400),
    (kk.DotProduct("vovk", gamma=0.3, p=1.3), unit(), 400),
    (kk.ConvolutionKernel((9, 7), 3, stride=2, pool_size=2), cube(d=63) / 2, 400),
    ((kk.Gaussian(0.5) * kk.Chi2()) + (kk.Cauchy(0.4) * kk.Laplacian(0.1)), cube(), 400),
]
SLOW = [
    *((kk.KERNELS[n](gamma=0.7, form=f), cube(), 400) for n in STATIONARY for f in FORMS),
    (kk.Laplacian(0.7, column_weights=[1.0, 0.3, 2.0]), cube(), 400),
    (kk.Matern(0.1, 0.7), cube(), 4000),
    *((kk.Matern(nu, 0.7), cube(), 400) for nu in (0.3, 0.5, 2.5, 7)),
    (kk.Matern(2.5, "scale", bandwidth_factor=0.5), cube(), 400),
    *(
        (cls(form), histograms(d), 400)
        for cls in (kk.Chi2, kk.Intersection, kk.JensenShannon)
        for form in ("coordinates", "hashed", "signs") for d in (5, 50)
    ),
    *(
        (kernel, unit(), 400)
        for kernel in (
            kk.Polynomial(1, 0.3, 0.0), kk.DotProduct(), kk.DotProduct(gamma="auto", p=1.5),
            kk.DotProduct("vovk", gamma=0.3), kk.DotProduct([0.5, 0.0, 1.0, 2.0]),
            kk.DotProduct(np.array([0.0, 0.0, 1.0]), gamma=0.5, p=3.0),
        )
    ),
    *(
        (cls(c, form=form), histograms(), 10_000)
        for cls in (kk.SkewedChi2, kk.SkewedIntersection) for c in (0.3, 1.0) for form in FORMS
    ),
    *((kk.ExponentialSemigroup(beta), histograms(), 4000) for beta in (0.4, "median")),
    *((kk.ReciprocalSemigroup(lam), histograms(), 4000) for lam in (3.0, "median")),
    (kk.Hellinger(), histograms(), 400),
    # without a bias features of order 0 do not see lengths, and the control could not fail
    (kk.ArcCosine(0, bias=2.0), normal(24, 3, 7), 4000),
    *((kk.ArcCosine(n, scale=0.5, bias=1.0), normal(24, 3, 7), 4000) for n in (1, 2)),
    (kk.ConvolutionKernel((8, 6), 3, gamma=0.3), cube(d=48) / 2, 400),
    (kk.ConvolutionKernel((4, 5, 3), 2, pool_size=2), cube(d=60) / 2, 400),
    (kk.ConvolutionKernel((6, 6), 3) * kk.ConvolutionKernel((6, 6), 3), cube(d=36) / 2, 400),
    *(
        (kernel, cube(), 1000)
        for kernel in (
            kk.SumKernel([kk.Gaussian(bandwidth_factor=b) for b in (0.5, 2.0)], [0.3, 0.7]),
            0.5 * kk.Gaussian(0.4), kk.Chi2() * kk.Chi2(),
            kk.Matern(1.5, 0.2) * kk.Cauchy(0.4) * kk.Gaussian(0.1),
            kk.Gaussian(0.3, form="phase") * kk.Laplacian(0.2, form="phase"),
            kk.Gaussian(0.3, form="phase") * kk.Laplacian(0.2),
            (kk.Gaussian(0.6) + kk.Laplacian(0.2)) * kk.SkewedChi2(),
            (kk.Gaussian(0.3) + kk.Chi2()) * kk.Gaussian(0.3),
        )
    ),
]  # fmt: skip


@every("kernel, X, n_blocks", QUICK)
def test_features_average_to_the_kernel(kernel, X, n_blocks):
    check_kernel(kernel, X=X, n_blocks=n_blocks)


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "X", "n_blocks"), SLOW)
def test_features_of_all_forms_average_to_the_kernel(kernel, X, n_blocks):
    check_kernel(kernel, X=X, random_state=1, n_blocks=n_blocks)


# Frequencies


@every("form", ["pair", "phase"])
@every("name", STATIONARY)
@every("block_size", [1, 256, 600])
def test_blocks_against_float64(name, form, block_size):
    X = normal(20, 5).astype(np.float32)
    features = kk.KERNELS[name](gamma=0.2, form=form).feature_map(5, 9, block_size)
    for j in (0, 3):
        W = features.frequencies(j * block_size, 1, block_size, np.arange(5))[0]
        phase = features.projection.phases(features.seed, j * block_size, block_size)
        expected = oracles.fourier_features(X, W, phase) / np.sqrt(block_size)
        # float32 turns: heavy tails of the frequencies cost absolute accuracy
        turns = 1 + np.abs(X.astype(float)) @ np.abs(W.astype(float))
        error = np.abs(features.transform(X, j) - expected).reshape(20, -1, block_size)
        assert (error.max(axis=1) * np.sqrt(block_size) < 1e-5 * turns).all()


# Caches


@every(
    ("kernel", "X"),
    [
        (kk.Gaussian(0.1), normal(70, 40)),
        (kk.Gaussian(0.1, form="phase"), normal(70, 40)),
        (kk.Gaussian(0.1), sp.random(70, 40, 0.05, format="csr", random_state=0)),
        (kk.Chi2(), cube(20, 4)),
        (
            kk.Gaussian(0.5) + kk.Laplacian(0.1) + kk.Gaussian(0.2) * kk.Cauchy(0.2),
            cube(30, 50),
        ),
    ],
)
def test_cache_budgets_do_not_change_a_bit_and_are_not_pickled(kernel, X):
    d, F, n_blocks = X.shape[1], 256, 70
    features = kernel.feature_map(d, 0, F)
    X = float32_rows(features.prepare(X))
    shape = features.planes, features.capacity(n_blocks), 2
    coef = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    coef[:, n_blocks * F :] = 0
    sums, size = [], len(pickle.dumps(features))
    for budget in (0, 1, 41_000, 300_000, 2**26, 2**26, 0):
        sums.append(np.zeros((X.shape[0], 2), np.float32))
        features.predict(X, coef, n_blocks, sums[-1], budget)
        np.testing.assert_array_equal(sums[-1], sums[0])
    assert len(pickle.dumps(features)) == pytest.approx(size, abs=100)
    few, coef = np.zeros((2, X.shape[0], 2), np.float32), coef[:, : features.capacity(3)].copy()
    coef[:, 3 * F :] = 0
    features.predict(X, coef, 3, few[0], 2**26)
    pickle.loads(pickle.dumps(features)).predict(X, coef, 3, few[1], 0)
    np.testing.assert_array_equal(*few)


# Sums and products


def test_parts_have_seeds_of_their_own():
    kernel = kk.SumKernel([kk.Gaussian(0.5)] * 3)
    X = cube().astype(np.float32)
    phi = [kernel.feature_map(3, s, 64).transform(X, 0).reshape(24, 6, 64) for s in range(3)]
    phi.append(kk.Gaussian(0.5).feature_map(3, 0, 64).transform(X, 0).reshape(24, 2, 64))
    cosines = np.concatenate([p[0, ::2] for p in phi])
    correlation = np.corrcoef(cosines)
    assert len(correlation) == 10
    assert np.abs(correlation - np.eye(10)).max() < 5 / np.sqrt(64)
    fewer = kk.SumKernel([kk.Gaussian(0.5)] * 2).feature_map(3, 0, 64).transform(X, 0)
    np.testing.assert_array_equal(fewer.reshape(24, 4, 64), phi[0][:, :4])


def test_stationary_products_add_frequencies():
    products = (
        (kk.Gaussian(0.3) * kk.Laplacian(0.2), 2),
        (kk.Gaussian(0.3, form="phase") * kk.Laplacian(0.2, form="phase"), 1),
        (kk.Gaussian(0.3, form="phase") * kk.Laplacian(0.2), 2),
        (kk.Gaussian(0.3) * kk.SkewedChi2(), 4),
        ((kk.Gaussian(0.6) + kk.Laplacian(0.2)) * kk.SkewedChi2(), 8),
        (kk.Gaussian(0.2) * kk.SkewedChi2() * kk.Laplacian(0.1), 4),
    )
    assert [k.feature_map(3, 0, 8).planes for k, _ in products] == [n for _, n in products]


class OnlyAsAWhole(kk.Chi2):
    """A kernel whose single features are biased, without another form of them."""

    def per_feature(self):
        return self


@every("other", [kk.Chi2(), kk.Chi2() + kk.Gaussian(0.3)])
def test_one_part_of_a_product_may_be_unbiased_only_as_a_whole(other):
    part = OnlyAsAWhole("coordinates")
    assert (part * other).feature_map(4, 0, 8).planes > 1
    for product in (part * part, kk.ProductKernel([part, kk.ProductKernel([part, other])])):
        raises(CapabilityError, "only as a whole", product.feature_map, 4, 0, 8)


# Rows and scalings


def test_prepare_keeps_sparse_rows_sparse_below_ten_percent():
    for density, stays in ((0.05, True), (0.3, False)):
        X = sp.random(50, 40, density, random_state=0)
        for A in (X.tocsr(), X.tocsc(), X.tocoo(), sp.csr_array(X)):
            rows = stream(d=40).prepare(A)
            assert sp.issparse(rows) == stays
            assert rows.dtype == np.float32
            dense = rows.toarray() if stays else rows
            np.testing.assert_array_equal(dense, X.toarray().astype(np.float32))


def test_prepare_scales_before_it_rounds():
    X = 1e6 + normal(40, 5)
    scaling = InputScaling(np.full(5, 1e6), None)
    rows = stream(scaling=scaling).prepare(X)
    np.testing.assert_allclose(rows, X - 1e6, atol=1e-6)
    assert np.abs(X.astype(np.float32) - np.float32(1e6) - (X - 1e6)).max() > 1e-3
    assert rows.flags.c_contiguous
    assert stream().prepare(np.asfortranarray(X)).flags.c_contiguous
    assert stream().prepare(np.ones((3, 5), int)).dtype == np.float32


@every("sparse", [False, True])
@every("mean", [0.0, 3.0, 1e6, 1.7e9])
def test_scaling_fit_against_numpy(mean, sparse):
    X = normal(60, 5) * [1, 10, 0.1, 1, 1] * max(1.0, 1e-7 * mean) + mean * (not sparse)
    X[:, 3] = 0.0 if sparse else 7.7  # constant
    w = np.random.default_rng(0).random(60)
    centre = np.average(X, axis=0, weights=w)
    scale = np.sqrt(np.average((X - centre) ** 2, axis=0, weights=w))
    scale[3] = 1
    given = sp.csr_matrix(X) if sparse else X
    s = InputScaling.fit(given, kk.Gaussian(), standardize=True, sample_weight=w)
    np.testing.assert_allclose(s.scale, scale, rtol=1e-6)
    if sparse:  # nothing is shifted
        assert s.centre is None
        assert s.apply(given).format == "csr"
        np.testing.assert_allclose(s.apply(given).toarray(), X / scale, rtol=1e-6)
        return
    np.testing.assert_allclose(s.centre, centre, rtol=1e-12)
    np.testing.assert_allclose(s.apply(X), (X - centre) / scale, atol=1e-6)
    plain = InputScaling.fit(X, kk.Gaussian(), standardize=False, sample_weight=w)
    assert plain.scale is None
    np.testing.assert_allclose(plain.centre, centre)
    assert InputScaling().apply(X) is X


def test_only_columns_in_different_units_are_divided_by_their_deviations():
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((60, 4)), rng.integers(0, 3, 60).astype(float)
    X[:, 3] = 7.7  # a constant is in no unit

    def scale(X, w=w):
        kept = InputScaling.fit(X, kk.Gaussian(), standardize="units", sample_weight=w)
        plain = InputScaling.fit(X, kk.Gaussian(), standardize=False, sample_weight=w)
        if not sp.issparse(X):
            np.testing.assert_array_equal(kept.centre, plain.centre)
        return kept.scale

    assert scale(X * [1, 1, 6, 1]) is None
    assert scale(X * [1, 0.2, 1, 1]) is None
    assert scale(X * [1, 0.05, 1, 1]) is not None
    rare = np.where(rng.random(60) < 0.1, 1e-3, 0)  # as pixels at the edge: no unit
    assert scale(np.c_[X, rare]) is None
    uneven = X * [1, 2, 100, 1]
    expected = InputScaling.fit(uneven, kk.Gaussian(), standardize=True, sample_weight=w).scale
    np.testing.assert_array_equal(scale(uneven), expected)
    repeated = np.repeat(uneven, w.astype(int), axis=0)
    np.testing.assert_allclose(scale(repeated, np.ones(len(repeated))), expected)
    assert scale(sp.csr_matrix(uneven)) is None
    assert 0.5e-200 < scale(X * [1e-200, 1, 1, 1])[0] < 2e-200
    # a cell is no unit, and no deviation
    X[np.flatnonzero(w)[0], 1] = 1e6
    assert scale(X) is None
    spread = scale(X * [1, 1, 100, 1])
    assert 1 < spread[1] < 6
