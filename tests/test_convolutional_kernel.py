import itertools
import json
import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.signal import correlate
from scipy.spatial.distance import pdist

from cases import every
from kernelgrad import set_num_threads
from kernelgrad.kernels import Gaussian, describe_kernel, restore_kernel
from kernelgrad.kernels.base import ProductKernel, SumKernel
from kernelgrad.special_kernels import convolutional as module
from kernelgrad.special_kernels.convolutional import ConvolutionKernel
from kernelgrad.special_kernels.features import patches
from kernelgrad.testing import check_kernel
from kernelgrad.validation import DataError
from plain import plain_classifier

CASES = [
    ConvolutionKernel((8, 6), 3, gamma=0.3),
    ConvolutionKernel((8, 6), 3, gamma=0.3, normalize=True),
    ConvolutionKernel((4, 5, 3), 2, pool_size=2),
    ConvolutionKernel((9, 7), 3, stride=2, pool_size=2),
    ConvolutionKernel((8, 6), 1, pool_size=1, gamma=2.0),
    ConvolutionKernel([7, 7, 1], 3, stride=3, pool_size=20, bandwidth_factor=0.5),
    ConvolutionKernel((5, 4), 4, gamma=0.2, normalize=True),
]
COMPOSITE = [
    ConvolutionKernel((6, 6), 3) * ConvolutionKernel((6, 6), 3),
    ConvolutionKernel((6, 6), 3, gamma=0.3) * Gaussian(0.02) + 0.5 * Gaussian(0.1),
]


def size(kernel):
    part = kernel
    while isinstance(part, SumKernel | ProductKernel):
        part = part.kernels[0]
    return math.prod(part.image_shape)


def images(kernel, n=24, seed=0):
    return np.random.default_rng(seed).random((n, size(kernel)))


def scalar_kernel(x, z, shape, side, stride, pool, gamma, normalize):
    """Return k(x, z) by loops over cells and pairs of patches."""

    def compared(image, i, j):
        p = [
            image[a][b][c]
            for a in range(i * stride, i * stride + side)
            for b in range(j * stride, j * stride + side)
            for c in range(shape[2])
        ]
        if not normalize:
            return p, 1.0
        mean = sum(p) / len(p)
        norm = math.sqrt(sum((v - mean) ** 2 for v in p))
        return [(v - mean) / norm for v in p], norm

    x, z = x.reshape(shape).tolist(), z.reshape(shape).tolist()
    down, across = ((n - side) // stride + 1 for n in shape[:2])
    cells = []
    for i0, j0 in itertools.product(range(0, down, pool), range(0, across, pool)):
        rows, columns = range(i0, min(down, i0 + pool)), range(j0, min(across, j0 + pool))
        places = list(itertools.product(rows, columns))
        total = 0.0
        for p, q in itertools.product(places, places):
            (u, a), (v, b) = compared(x, *p), compared(z, *q)
            distance = sum((s - t) ** 2 for s, t in zip(u, v, strict=True))
            total += a * b * math.exp(-gamma * distance)
        cells.append(total / len(places) ** 2)
    return sum(cells) / len(cells)


# The contract


@every("kernel", CASES + COMPOSITE)
def test_contract(kernel):
    check_kernel(kernel, X=images(kernel))


# Exact values


@every("kernel", CASES)
def test_exact_values_against_loops(kernel):
    X, Z = images(kernel, 4), images(kernel, 3, seed=1)
    kernel = kernel.resolve(X, 0)
    shape = (*kernel.image_shape, 1)[:3]
    settings = (kernel.patch_size, kernel.stride, kernel.pool_size)

    def loops(gamma):
        return [
            [scalar_kernel(x, z, shape, *settings, gamma, kernel.normalize) for z in Z]
            for x in X
        ]

    np.testing.assert_allclose(kernel(X, Z), loops(kernel.gamma), rtol=1e-10)
    np.testing.assert_allclose(kernel(sp.csr_array(X), Z), loops(kernel.gamma), rtol=1e-10)
    assert np.abs(kernel(X, Z) - loops(1.2 * kernel.gamma)).max() > 1e-3


def test_a_patch_of_the_whole_image_is_the_gaussian_kernel():
    kernel = ConvolutionKernel((5, 4), 4, stride=2, gamma=0.2)
    X = images(kernel)
    np.testing.assert_allclose(kernel(X), Gaussian(0.2)(X[:, :16]), rtol=1e-10)


@pytest.mark.parametrize("side", [1, 7, 40, 100])
def test_tiles_change_nothing(side, monkeypatch):
    kernel = CASES[3]
    X = images(kernel, 30)
    kernel = kernel.resolve(X, 0)
    K, k = kernel(X[:20], X), kernel.diag(X)
    monkeypatch.setattr(module, "_SIDE", side)
    np.testing.assert_allclose(kernel(X[:20], X), K, rtol=1e-12)
    np.testing.assert_allclose(kernel.diag(X), k, rtol=1e-12)


# Invariances


def moved(kernel, x, down, right):
    return np.roll(x.reshape(kernel.image_shape), (down, right), (0, 1)).ravel()


def test_a_pattern_may_move_inside_a_cell():
    kernel = ConvolutionKernel((12, 12), 3, pool_size=10, gamma=0.3)
    x = np.zeros((12, 12))
    x[4:7, 4:7] = images(ConvolutionKernel((3, 3), 1), 1).reshape(3, 3)
    x, z = x.ravel(), images(kernel, 1)[0]
    pair = np.stack([x, moved(kernel, x, 2, -2)])
    K = kernel(pair, z[None])
    assert K[0] == pytest.approx(K[1], rel=1e-12)
    phi = kernel.feature_map(144, 0, 64).transform(pair.astype(np.float32), 0)
    np.testing.assert_allclose(phi[0], phi[1], atol=1e-6)
    small = ConvolutionKernel((12, 12), 3, pool_size=2, gamma=0.3)(pair, z[None])
    assert abs(small[0] - small[1]) > 1e-4


def test_normalised_patches_see_contrast_only():
    kernel = CASES[1]
    X = images(kernel)
    K = kernel(X)
    np.testing.assert_allclose(kernel(X + 3.0, X), K, rtol=1e-9)
    np.testing.assert_allclose(kernel(2.0 * X, 3.0 * X), 6.0 * K, rtol=1e-9)
    flat = np.full((2, 48), 0.7)
    assert np.abs(kernel(flat, X)).max() < 1e-12
    phi = kernel.feature_map(48, 0, 16).transform(flat.astype(np.float32), 0)
    assert np.abs(phi).max() < 1e-5
    assert np.isfinite(phi).all()


# Features


@pytest.mark.parametrize("kernel", [*CASES[:1], *CASES[2:6]], ids=range(5))
def test_features_are_pooled_convolutions(kernel):
    X = images(kernel, 3)
    kernel = kernel.resolve(X, 0)
    features = kernel.feature_map(X.shape[1], 5, 20)
    phi = features.transform(X.astype(np.float32), 2).reshape(3, 2, 20)
    cells, filters = features.cells(2), features.filters(2)
    side, stride, pool = kernel.patch_size, kernel.stride, kernel.pool_size
    shape = (*kernel.image_shape, 1)[:3]
    for row, i in itertools.product(range(3), range(20)):
        group, lane = divmod(i, filters.shape[2])
        w = 2 * np.pi * filters[group, :, lane].reshape(side, side, shape[2])
        T = correlate(X[row].reshape(shape), w, mode="valid")[::stride, ::stride, 0]
        down, across = divmod(int(cells[group]), -(-T.shape[1] // pool))
        cell = T[down * pool : (down + 1) * pool, across * pool : (across + 1) * pool]
        expected = np.array([np.cos(cell).mean(), np.sin(cell).mean()]) / np.sqrt(20)
        np.testing.assert_allclose(phi[row, :, i], expected, atol=2e-6)


def test_tiles_and_threads_change_no_feature(monkeypatch):
    kernel = ConvolutionKernel((28, 28), gamma=0.3)
    X = images(kernel, 300).astype(np.float32)
    features = kernel.feature_map(784, 0, 200)
    phi = features.transform(X, 0)
    for threads, floats in ((1, 2**16), (4, 2**16), (2, 1)):
        set_num_threads(threads)
        monkeypatch.setattr(patches, "_TILE_FLOATS", floats)
        np.testing.assert_allclose(features.transform(X, 0), phi, atol=1e-6)


@pytest.mark.parametrize(
    ("block_size", "group", "n_groups"),
    [(1, 1, 1), (5, 5, 1), (20, 8, 3), (128, 8, 16), (1000, 15, 67), (8192, 64, 128)],
)
def test_blocks_see_as_many_cells_as_they_can(block_size, group, n_groups):
    features = ConvolutionKernel((28, 28), gamma=0.3).feature_map(784, 3, block_size)
    assert (features.group, features.n_groups) == (group, n_groups)
    cells = [features.cells(j) for j in range(50)]
    for drawn in cells:
        assert len(drawn) == n_groups
        counts = np.bincount(drawn, minlength=64)
        assert len(counts) == 64
        assert counts.max() - counts.min() <= 1
    assert len({tuple(drawn) for drawn in cells}) >= (50 if n_groups > 1 else 20)
    rounds = [r for c in cells for r in c[: n_groups // 64 * 64].reshape(-1, 64).tolist()]
    assert len(set(map(tuple, rounds))) == len(rounds) == 50 * (n_groups // 64)
    other = ConvolutionKernel((28, 28), gamma=0.3).feature_map(784, 4, block_size)
    assert any(not np.array_equal(other.cells(j), cells[j]) for j in range(3))


def test_every_group_is_uniform_over_the_cells():
    features = ConvolutionKernel((10, 10), 3, gamma=0.3).feature_map(100, 3, 64)
    cells = np.array([features.cells(j) for j in range(9000)])
    assert cells.shape == (9000, 8)
    for group in cells.T:
        counts = np.bincount(group, minlength=9)
        assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000 * 8 / 9)
    # groups of two blocks are independent: they agree as often as chance has it
    same = (cells[1:] == cells[:-1]).mean()
    assert abs(same - 1 / 9) < 5 * np.sqrt(8 / 81 / (8 * 8999))


# Bandwidth


def all_patches(kernel, X):
    grid = kernel.grid()
    return X[:, grid.origins[:, None] + grid.within].reshape(-1, len(grid.within))


@pytest.mark.parametrize("kernel", [CASES[0], CASES[2], CASES[3]], ids=range(3))
def test_median_rule_against_pdist(kernel):
    kernel = kernel.__class__(**{**kernel.get_params(), "gamma": "median"})
    X = images(kernel, 30)
    X[X < 0.4] = 0.0
    expected = 1 / (2 * np.median(pdist(all_patches(kernel, X))) ** 2)
    gammas = [kernel.resolve(X, seed).gamma for seed in (0, 0, 1)]
    assert gammas[0] == gammas[1] != gammas[2]
    np.testing.assert_allclose(gammas, expected, rtol=0.05)
    assert kernel.resolve(sp.csr_array(X), 0).gamma == gammas[0]
    assert kernel.resolve(sp.csr_matrix(X), 0).gamma == gammas[0]
    assert kernel.resolve(8.0 * X, 0).gamma == pytest.approx(gammas[0] / 64, rel=1e-9)
    wide = kernel.set_params(bandwidth_factor=3.0).resolve(X, 0)
    assert wide.gamma == pytest.approx(gammas[0] / 9, rel=1e-12)
    assert (wide.bandwidth_factor, kernel.gamma) == (1.0, "median")
    assert wide.resolve(X, 0) is wide


def test_median_rule_leaves_out_what_is_equal_or_flat():
    kernel = ConvolutionKernel((28, 28), 5, normalize=True)
    X = np.zeros((20, 28, 28))
    X[:, 10:18, 10:18] = np.random.default_rng(0).random((20, 8, 8))
    X = X.reshape(20, 784)
    P = all_patches(kernel, X)
    P = P[np.ptp(P, axis=1) > 0]
    P = P - P.mean(axis=1, keepdims=True)
    distances = pdist(P / np.linalg.norm(P, axis=1, keepdims=True))
    expected = 1 / (2 * np.median(distances) ** 2)
    assert kernel.resolve(X, 0).gamma == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("value", [0.0, 0.7])
def test_images_without_content(normalize, value):
    kernel = ConvolutionKernel((6, 6), 3, normalize=normalize)
    X = np.full((9, 36), value)
    resolved = kernel.resolve(X, 0)
    assert resolved.gamma == 0.5
    np.testing.assert_allclose(resolved(X), 0.0 if normalize else 1.0, atol=1e-12)


# Errors


def test_parameters_outside_their_domain():
    for shape in ((28,), (1, 2, 3, 4), 28, "28x28"):
        with pytest.raises(ValueError, match=r"image_shape must be \(height, width\)"):
            ConvolutionKernel(shape).check()
    with pytest.raises(ValueError, match="image_shape must be at least 1"):
        ConvolutionKernel((28, 0)).check()
    with pytest.raises(TypeError, match="image_shape must be an integer"):
        ConvolutionKernel((28.0, 28)).check()
    with pytest.raises(ValueError, match=r"patch_size=9 is larger .*\(8, 12\).* at most 8"):
        ConvolutionKernel((8, 12), 9).check()
    with pytest.raises(ValueError, match=r"Unknown rule for gamma 'scale'.*median"):
        ConvolutionKernel((8, 8), gamma="scale").check()
    X = images(CASES[0])
    unresolved = ConvolutionKernel((8, 6), 3)
    for use in (lambda k: k(X), lambda k: k.diag(X), lambda k: k.feature_map(48, 0, 8)):
        with pytest.raises(ValueError, match=r"call resolve\(X, seed\) first"):
            use(unresolved)


def test_rows_that_are_no_images():
    kernel = ConvolutionKernel((8, 6, 3), 3, gamma=0.3)
    X = np.zeros((5, 48))
    for use in (
        lambda: kernel(X),
        lambda: kernel.pairwise(X, X),
        lambda: kernel.resolve(X, 0),
        lambda: kernel.diag(X),
        lambda: kernel.feature_map(48, 0, 8),
        lambda: plain_classifier(kernel=kernel).fit(X, [0, 1, 0, 1, 0]),
    ):
        with pytest.raises(DataError, match=r"image_shape=\(8, 6, 3\).* 144 columns.* 48;"):
            use()


# Estimators


@every("kernel", [*CASES, *COMPOSITE])
def test_a_description_gives_the_kernel_back(kernel):
    described = json.loads(json.dumps(describe_kernel(kernel)))
    assert repr(restore_kernel(described)) == repr(kernel)
