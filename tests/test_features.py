import contextlib
import pickle
import threading

import numpy as np
import pytest
import scipy.sparse as sp

import oracles
from cases import every
from kernelgrad.features.projections import ProjectionMap
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.functions.expansions import (
    PREDICT_ROWS,
    LinearExpansion,
    RandomFeatureExpansion,
    SupportExpansion,
)
from kernelgrad.functions.features import FeatureStream
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import (
    KERNELS,
    ArcCosine,
    Chi2,
    ConvolutionKernel,
    DotProduct,
    Gaussian,
    Intersection,
    Laplacian,
    Matern,
    Polynomial,
    StationaryKernel,
)
from steps import expansion

STATIONARY = [n for n, cls in KERNELS.items() if issubclass(cls, StationaryKernel)]


def data(n=40, d=5, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def stream(kernel=None, d=5, block_size=64, seed=3, **options):
    return FeatureStream(kernel or Gaussian(0.2), d, seed, block_size, **options)


# Fourier features of a kernel


@every("form", ["pair", "phase"])
@every("name", STATIONARY)
@every("block_size", [1, 100, 256, 600, 512])
def test_blocks_against_float64(name, form, block_size):
    X = data(20).astype(np.float32)
    features = KERNELS[name](gamma=0.2, form=form).feature_map(5, 9, block_size)
    for j in (0, 3):
        W = features.frequencies(j * block_size, 1, block_size, np.arange(5))[0]
        phase = features.projection.phases(features.seed, j * block_size, block_size)
        expected = oracles.fourier_features(X, W, phase) / np.sqrt(block_size)
        # float32 turns: heavy tails of the frequencies cost absolute accuracy
        turns = 1 + np.abs(X.astype(float)) @ np.abs(W.astype(float))
        error = np.abs(features.transform(X, j) - expected).reshape(20, -1, block_size)
        assert (error.max(axis=1) * np.sqrt(block_size) < 1e-5 * turns).all()


@pytest.mark.parametrize("name", STATIONARY)
def test_frequencies_are_bitwise_a_prefix(name):
    features = KERNELS[name](gamma=0.2).feature_map(7, 2**63 + 5, 64)
    whole = features.frequencies(0, 8, 64, np.arange(7))
    np.testing.assert_array_equal(features.frequencies(192, 2, 64, np.arange(7)), whole[3:5])
    columns = np.array([1, 2, 6])
    np.testing.assert_array_equal(features.frequencies(0, 8, 64, columns), whole[:, columns])
    wider = KERNELS[name](gamma=0.2).feature_map(9, 2**63 + 5, 64)
    np.testing.assert_array_equal(wider.frequencies(0, 8, 64, np.arange(7)), whole)


def test_matern_factor_is_shared_by_the_coordinates():
    kernel = Matern(1.5, 0.2)
    normal = Gaussian(0.2).feature_map(6, 4, 64).frequencies(0, 1, 64, np.arange(6))[0]
    W = kernel.feature_map(6, 4, 64).frequencies(0, 1, 64, np.arange(6))[0]
    ratio = W / normal
    np.testing.assert_allclose(ratio, np.tile(ratio[0], (6, 1)), rtol=1e-6)
    np.testing.assert_allclose(ratio[0], kernel.frequency_factor(4, 0, 64), rtol=1e-6)
    assert ratio[0].std() > 0.1


# The cache


@pytest.mark.parametrize("form", ["pair", "phase"])
@pytest.mark.parametrize("sparse", [False, True])
def test_cache_budgets_do_not_change_a_bit(form, sparse):
    X = data(70, 40)
    if sparse:
        X[np.random.default_rng(0).random(X.shape) < 0.95] = 0
        X = sp.csr_matrix(X)
    tile = 4 * 256 * 40
    results = []
    for budget in (0, 1, tile - 1, tile, 3 * tile + 5, 2**30):
        f = expansion(stream(Gaussian(0.1, form=form), 40, cache_bytes=budget), n_blocks=21)
        results += [f.raw_prediction(X), f.raw_prediction(X)]
        assert f.stream.map._cache.nbytes <= budget
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    assert f.stream.map._cache.nbytes >= 6 * tile


def test_cache_is_right_after_predictions_in_two_threads(monkeypatch):
    X = data(30).astype(np.float32)
    features, plain = Gaussian(0.2).feature_map(5, 3, 256), Gaussian(0.2).feature_map(5, 3, 256)
    coef = np.ones((2, 8 * 256, 1), np.float32)
    draw, barrier = ProjectionMap.frequencies, threading.Barrier(2)

    def together(self, *args):
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(0.5)  # both callers draw before either stores
        return draw(self, *args)

    def call():
        features.predict(X, coef[:, :512], 2, np.zeros((30, 1), np.float32), 2**20)

    monkeypatch.setattr(ProjectionMap, "frequencies", together)
    callers = [threading.Thread(target=call) for _ in range(2)]
    for t in callers:
        t.start()
    for t in callers:
        t.join(20)
    monkeypatch.undo()
    a, b = np.zeros((2, 30, 1), np.float32)
    features.predict(X, coef, 8, a, 2**20)
    plain.predict(X, coef, 8, b, 0)
    np.testing.assert_array_equal(a, b)


def test_pickling_drops_the_cache():
    X = data()
    f = expansion(stream(d=5), n_blocks=20)
    before = len(pickle.dumps(f))
    expected = f.raw_prediction(X)
    assert f.stream.map._cache.nbytes > 4000
    assert len(pickle.dumps(f)) == pytest.approx(before, abs=100)
    twin = pickle.loads(pickle.dumps(f))
    assert twin.stream.map._cache.nbytes == 0
    np.testing.assert_array_equal(twin.raw_prediction(X), expected)
    assert f.stream.map._cache.nbytes > 4000  # pickling leaves the original alone


# Rows


def test_wide_sparse_rows_equal_dense_rows():
    d = 5_000
    X = sp.random(20, d, 2e-3, format="csr", random_state=0) * 3
    features = stream(Gaussian(0.05), d, block_size=256)
    f = expansion(features, n_blocks=2)
    assert X.nnz <= d // 2  # only touched columns are drawn
    rows, dense = features.prepare(X), X.toarray().astype(np.float32)
    assert sp.issparse(rows)
    R = data(20, 2, 1).astype(np.float32)
    np.testing.assert_allclose(
        features.transform(rows, 1), features.transform(dense, 1), atol=1e-6
    )
    np.testing.assert_allclose(
        features.gradient(rows, R, 1), features.gradient(dense, R, 1), atol=1e-5
    )
    out = np.zeros((20, 2), np.float32)
    f.add_prepared(dense, out)
    np.testing.assert_allclose(f.raw_prediction(X), out, atol=1e-5)
    assert np.abs(out).max() > 0.1


def test_rows_without_non_zeros():
    X = sp.csr_matrix((4, 30))
    f = expansion(stream(d=30))
    np.testing.assert_allclose(f.raw_prediction(X), f.raw_prediction(X.toarray()), atol=1e-6)
    assert f.raw_prediction(np.empty((0, 30))).shape == (0, 2)


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
    X = 1e6 + data()
    scaling = InputScaling(np.full(5, 1e6), None)
    rows = stream(scaling=scaling).prepare(X)
    np.testing.assert_allclose(rows, X - 1e6, atol=1e-6)
    assert np.abs(X.astype(np.float32) - np.float32(1e6) - (X - 1e6)).max() > 1e-3
    assert rows.flags.c_contiguous
    assert stream().prepare(np.asfortranarray(X)).flags.c_contiguous
    assert stream().prepare(np.ones((3, 5), int)).dtype == np.float32


def test_scaling_fit_against_numpy():
    X = data(60) * [1, 10, 0.1, 1, 1] + 3
    X[:, 3] = 7.7  # constant
    w = np.random.default_rng(0).random(60)
    mean = np.average(X, axis=0, weights=w)
    scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=w))
    scale[3] = 1
    s = InputScaling.fit(X, Gaussian(), standardize=True, sample_weight=w)
    np.testing.assert_allclose(s.centre, mean, rtol=1e-12)
    np.testing.assert_allclose(s.scale, scale, rtol=1e-9)
    np.testing.assert_allclose(s.apply(X), (X - mean) / scale, atol=1e-9)
    plain = InputScaling.fit(X, Gaussian(), standardize=False, sample_weight=w)
    assert plain.scale is None
    np.testing.assert_allclose(plain.centre, mean)
    assert InputScaling().apply(X) is X


def test_only_columns_in_different_units_are_divided_by_their_deviations():
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((60, 4)), rng.integers(0, 3, 60).astype(float)
    X[:, 3] = 7.7  # a constant is in no unit

    def scale(X, w=w):
        kept = InputScaling.fit(X, Gaussian(), standardize="units", sample_weight=w)
        plain = InputScaling.fit(X, Gaussian(), standardize=False, sample_weight=w)
        if not sp.issparse(X):
            np.testing.assert_array_equal(kept.centre, plain.centre)
        return kept.scale

    assert scale(X * [1, 1, 6, 1]) is None
    assert scale(X * [1, 0.2, 1, 1]) is None
    assert scale(X * [1, 0.05, 1, 1]) is not None
    rare = np.where(rng.random(60) < 0.1, 1e-3, 0)  # as pixels at the edge: no unit
    assert scale(np.c_[X, rare]) is None
    uneven = X * [1, 2, 100, 1]
    expected = InputScaling.fit(uneven, Gaussian(), standardize=True, sample_weight=w).scale
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


def test_scaling_fit_of_sparse_rows_shifts_nothing():
    X = data(60) * [1, 10, 0.1, 1, 0]
    X[data(60, seed=5) < 0.5] = 0
    w = np.random.default_rng(0).random(60)
    mean = np.average(X, axis=0, weights=w)
    scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=w))
    scale[4] = 1
    s = InputScaling.fit(sp.csr_matrix(X), Gaussian(), standardize=True, sample_weight=w)
    assert s.centre is None
    np.testing.assert_allclose(s.scale, scale, rtol=1e-9)
    scaled = s.apply(sp.csr_matrix(X))
    assert scaled.format == "csr"
    np.testing.assert_allclose(scaled.toarray(), X / scale, rtol=1e-12)


@pytest.mark.parametrize(("mean", "deviation"), [(1e6, 1.0), (1e8, 1.0), (1.7e9, 100.0)])
def test_scaling_fit_far_from_the_origin(mean, deviation):
    X = mean + deviation * data(60)
    s = InputScaling.fit(X, Gaussian(), standardize=True, sample_weight=np.ones(60))
    np.testing.assert_allclose(s.scale, X.std(axis=0), rtol=1e-6)


def test_a_shift_changes_the_features_but_not_the_kernel():
    X = data(30)
    features = stream(block_size=20_000, scaling=InputScaling(np.full(5, 2.0), None))
    P = features.transform(features.prepare(X), 0).astype(float)
    np.testing.assert_allclose(P @ P.T, Gaussian(0.2)(X), atol=0.05)
    plain = stream(block_size=20_000)
    assert np.abs(P - plain.transform(plain.prepare(X), 0)).max() > 1e-3


# Expansions


def test_expansion_starts_at_its_intercept():
    f = RandomFeatureExpansion(stream(), 2, [1.5, -2.0])
    np.testing.assert_array_equal(f.raw_prediction(data()), np.tile([1.5, -2.0], (40, 1)))
    assert f.n_random_features == f.n_blocks == 0
    assert f.n_outputs == 2
    f.add_block()
    np.testing.assert_array_equal(f.raw_prediction(data()), np.tile([1.5, -2.0], (40, 1)))


def test_growth_keeps_coefficients():
    X, g = data(), np.random.default_rng(0)
    f = RandomFeatureExpansion(stream(block_size=100), 1)
    values = []
    for j in range(20):
        assert f.add_block() == j
        assert not f.block(j).any()
        values.append(g.standard_normal((2, 100, 1)).astype(np.float32))
        f.block(j)[:] = values[-1]
    assert f.n_random_features == 20 * 200
    whole = np.concatenate(values, axis=1)
    np.testing.assert_array_equal(f.coef, whole)
    other = RandomFeatureExpansion(f.stream, 1)
    other.coef = whole
    np.testing.assert_array_equal(other.raw_prediction(X), f.raw_prediction(X))
    whole[:] = 0  # the setter copied
    assert other.coef.any()
    assert f.nbytes == 4 * 2 * 2000 + 8


def test_coef_setter_errors():
    f = RandomFeatureExpansion(stream(), 2)
    for shape in ((1, 64, 2), (2, 65, 2), (2, 64, 1)):
        with pytest.raises(ValueError, match="do not fit 2 planes, blocks of 64 and 2 outputs"):
            f.coef = np.zeros(shape, np.float32)
    assert f.n_blocks == 0


def test_setting_fewer_blocks_forgets_the_others():
    X, features = data(), stream(block_size=100)
    f = expansion(features, n_blocks=5)
    f.coef = f.coef[:, :100].copy()
    expected = features.transform(features.prepare(X), 0) @ f.block(0).reshape(200, 2)
    np.testing.assert_allclose(f.raw_prediction(X), expected, atol=1e-5)


def test_copies_are_independent():
    f = expansion(stream())
    twin = f.copy()
    expected = f.raw_prediction(data())
    f.coef[:] *= 0.5
    f.intercept += 1
    f.block(0)[:] = 0
    f.add_block()
    np.testing.assert_array_equal(twin.raw_prediction(data()), expected)
    assert twin.n_blocks == 3
    twin.add_block()
    twin.block(3)[:] = 1
    assert not f.block(3).any()


def test_coefficients_scale_the_function():
    f = expansion(stream())
    expected = 0.25 * f.raw_prediction(data())
    f.coef[:] *= 0.25
    np.testing.assert_array_equal(f.raw_prediction(data()), expected)  # a power of two


def test_average_towards():
    features = stream()
    a, b = expansion(features, 2), expansion(features, 5, seed=2)
    expected = 0.7 * a.raw_prediction(data()) + 0.3 * b.raw_prediction(data())
    kept = b.coef.copy()
    a.average_towards(b, 0.3)
    assert a.n_blocks == 5
    np.testing.assert_allclose(a.raw_prediction(data()), expected, atol=1e-5)
    np.testing.assert_array_equal(b.coef, kept)
    a.average_towards(b, 1.0)
    np.testing.assert_array_equal(a.coef, b.coef)
    a.average_towards(expansion(features, 5, seed=9), 0.0)
    np.testing.assert_array_equal(a.coef, b.coef)


def test_one_block_of_a_direction():
    f = expansion(stream())
    X = f.stream.prepare(data(PREDICT_ROWS + 50))
    delta = np.random.default_rng(5).standard_normal((2, 64, 2)).astype(np.float32)
    before, after, added = np.zeros((3, len(X), 2), np.float32)
    f.add_prepared(X, before)
    f.add_block_prepared(X, 1, delta, added)
    f.block(1)[:] += delta
    f.add_prepared(X, after)
    np.testing.assert_allclose(added, after - before, atol=2e-5)


def parts(n):
    """Return chunks of n rows, and some rows in another order."""
    order = np.random.default_rng(1).permutation(n)
    return slice(0, 1), slice(5, 47), slice(3, 300), slice(n - 260, n), order[:130]


def apart(X, predict, what=""):
    """A row alone or among others agrees to rounding."""
    whole = predict(X)
    for some in parts(X.shape[0]):
        off = np.abs(predict(X[some]) - whole[some]).max(initial=0.0)
        assert off <= 2e-5 * np.abs(whole).max(), what


APART = [
    Gaussian(0.05),
    Gaussian(0.05, form="phase"),
    Gaussian(0.05, sampling="orthogonal"),
    Gaussian(0.05, sampling="qmc"),
    ArcCosine(1),
    Chi2(),
    Chi2("hashed"),
    Intersection("signs"),
    Polynomial(3, 0.05),
    DotProduct(gamma=0.025),
    ConvolutionKernel((4, 5), 3, 1, 2, gamma=0.1),
    Gaussian(0.05) * Chi2() + Laplacian(0.05),
]


@every("sparse", [False, True])
@every("kernel", APART)
def test_rows_alone_agree_with_rows_among_others(kernel, sparse):
    rng = np.random.default_rng(0)
    X = rng.random((600, 20))
    X = sp.csr_matrix(np.where(rng.random(X.shape) < 0.05, X, 0)) if sparse else X
    for F, C in ((64, 1), (100, 3), (256, 20)):
        f = RandomFeatureExpansion(FeatureStream(kernel, 20, 1, F), C)
        f.coef = rng.standard_normal((f.stream.planes, 2 * F, C)).astype(np.float32)
        apart(X, f.raw_prediction, f"F={F}, C={C}")
        apart(f.stream.prepare(X), lambda Z, f=f: f.stream.transform(Z, 1), f"transform, F={F}")
    exact = ExactKernel(kernel, 20)
    support = exact.prepare(X[:300])
    for C in (1, 3, 20):
        f = SupportExpansion(exact, support, rng.standard_normal((300, C)), np.zeros(C))
        apart(X, f.raw_prediction, f"exact, C={C}")


@pytest.mark.parametrize("sampling", ["iid", "orthogonal"])
@pytest.mark.parametrize("d", [100, 700])
def test_wide_rows_alone_agree_with_rows_among_others(d, sampling):
    f = RandomFeatureExpansion(FeatureStream(Gaussian(1 / d, sampling=sampling), d, 1, 256), 3)
    f.coef = np.random.default_rng(2).standard_normal((2, 512, 3)).astype(np.float32)
    apart(data(600, d), f.raw_prediction)


@every("C", [1, 3, 20])
@every("dtype", [np.float32, np.float64])
def test_rows_of_linear_functions_alone_agree_with_rows_among_others(C, dtype):
    f = LinearExpansion(data(50, C), np.zeros(C))
    apart(data(600, 50).astype(dtype), f.raw_prediction)


@pytest.mark.parametrize("shared", [False, True])
def test_quasi_random_frequencies_of_rows_without_entries(shared):
    kernel = (Matern(1.5, 0.5) if shared else Gaussian(0.5)).set_params(sampling="qmc")
    stream = FeatureStream(kernel, 3, 0, 32)
    empty = sp.csr_matrix((2, 3), dtype=np.float32)
    phi = stream.transform(empty, 0)
    np.testing.assert_allclose(phi[:, :32], 1 / np.sqrt(32), rtol=4e-7)
    np.testing.assert_array_equal(phi[:, 32:], 0)
