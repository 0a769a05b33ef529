import numpy as np
import pytest
import scipy.stats

import oracles
from kernelgrad.compute import fourier, rng
from kernelgrad.compute.threads import (
    set_num_threads,
)

LAWS = {"normal": rng.NORMAL, "cauchy": rng.CAUCHY, "laplace": rng.LAPLACE}
ALL = 2**32 - 1


@pytest.fixture(autouse=True)
def _default_threads():
    yield
    set_num_threads(None)


def draw(law, *, seed=5, first=0, n_tiles=4, d=16, tile=256, scale=1.0, columns=None):
    columns = np.arange(d) if columns is None else np.asarray(columns)
    W = np.empty((n_tiles, len(columns), tile), np.float32)
    rng.fill_tiles(W, columns, seed, first, LAWS[law], scale)
    return W


# Random numbers


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (ALL, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ],
)
def test_philox_known_answers(word, expected):
    # counter words are (i mod 2^32, group, tag, i / 2^32)
    i = word | word << 32
    ours = rng.words(i, i, 1, word, word)[:, 0]
    oracle = oracles.philox4x32((word,) * 4, (word, word))
    assert " ".join(f"{w:08x}" for w in ours) == expected
    np.testing.assert_array_equal(oracle, ours)


@pytest.mark.parametrize("first", [0, 12345, 2**32 - 7, 5 * 2**32 + 3])
def test_words_are_philox_of_the_counter(first):
    seed, n, tag, group = 0xDEADBEEF12345678, 100, 2, 77
    i = first + np.arange(n, dtype=np.uint64)
    counter = (i % 2**32, group, tag, i // 2**32)
    expected = oracles.philox4x32(counter, (seed % 2**32, seed // 2**32))
    np.testing.assert_array_equal(rng.words(seed, first, n, tag, group), expected)


@pytest.mark.parametrize("first", [0, 2**32 - 300])
@pytest.mark.parametrize("law", LAWS)
def test_variates_equal_the_numpy_twin_bit_for_bit(law, first):
    seed, d, n = 2**40 + 9, 16, 4096
    W = draw(law, seed=seed, first=first, n_tiles=n // 256, d=d)
    ours = W.transpose(1, 0, 2).reshape(d, n)
    i = first + np.arange(n, dtype=np.uint64)
    key = (seed % 2**32, seed // 2**32)
    for group in range(d // 4):
        words = oracles.philox4x32((i % 2**32, group, 0, i // 2**32), key)
        twin = oracles.float32_variates(words, law)
        rows = ours[4 * group : 4 * group + 4]
        np.testing.assert_array_equal(rows.view(np.uint32), twin.view(np.uint32))


def test_phases_equal_the_numpy_twin_bit_for_bit():
    i = np.arange(2**16, dtype=np.uint64) + 2**32 - 100
    words = oracles.philox4x32((i % 2**32, 0, 1, i // 2**32), (3, 0))[0]
    twin = (words.view(np.int32) >> 8).astype(np.float32) / np.float32(2**24)
    ours = rng.phases(3, 2**32 - 100, 2**16)
    np.testing.assert_array_equal(ours.view(np.uint32), twin.view(np.uint32))
    assert ours.min() >= -0.5
    assert ours.max() < 0.5


@pytest.mark.parametrize("law", LAWS)
def test_columns_tiles_and_first_only_select(law):
    full = draw(law, n_tiles=4, d=13, tile=64)
    columns = [0, 3, 4, 9, 12]
    np.testing.assert_array_equal(
        draw(law, n_tiles=4, columns=columns, tile=64), full[:, columns]
    )
    flat = full.transpose(1, 0, 2).reshape(13, 256)
    np.testing.assert_array_equal(draw(law, n_tiles=1, d=13)[0], flat)
    np.testing.assert_array_equal(
        draw(law, n_tiles=1, d=13, first=100, tile=50)[0], flat[:, 100:150]
    )
    np.testing.assert_array_equal(draw(law, n_tiles=4, d=13, tile=64, scale=0.25), full / 4)
    assert not np.isin(draw(law, seed=6, n_tiles=4, d=13, tile=64), full).mean() > 0.01


@pytest.mark.parametrize("law", LAWS)
def test_filling_does_not_depend_on_threads(law):
    set_num_threads(1)
    one = draw(law)
    set_num_threads(2)
    np.testing.assert_array_equal(draw(law), one)


def test_laws_pass_kolmogorov_smirnov_and_wrong_scales_fail():
    laws = {
        "normal": scipy.stats.norm,
        "cauchy": scipy.stats.cauchy,
        "laplace": scipy.stats.laplace,
    }
    for name, law in laws.items():
        x = draw(name, seed=11, n_tiles=16).ravel().astype(float)
        five_sigma = 2 * scipy.stats.norm.sf(5)
        assert scipy.stats.kstest(x, law.cdf).pvalue > five_sigma
        assert scipy.stats.kstest(1.05 * x, law.cdf).pvalue < five_sigma
    t = rng.phases(11, 0, 2**16).astype(float)
    assert scipy.stats.kstest(t, scipy.stats.uniform(-0.5, 1).cdf).pvalue > five_sigma
    u = rng.uniforms(11, 0, 2**16, rng.TAG_AUXILIARY)
    assert scipy.stats.kstest(u, scipy.stats.uniform.cdf).pvalue > five_sigma
    assert scipy.stats.kstest(u**1.05, scipy.stats.uniform.cdf).pvalue < five_sigma


def z_score(samples, expected):
    """Standardised mean of independent block means."""
    blocks = samples.reshape(64, -1).mean(axis=1)
    return (blocks.mean() - expected) / (blocks.std(ddof=1) / 8)


@pytest.mark.parametrize("law", ["normal", "laplace"])
def test_moments_and_independence_of_coordinates(law):
    W = draw(law, seed=3, n_tiles=256, d=8).astype(float)
    x = W.transpose(0, 2, 1)  # (tile, lane, coordinate)
    second = {"normal": 1, "laplace": 2}[law]
    fourth = {"normal": 3, "laplace": 24}[law]
    for moment, expected in ((x, 0), (x**2, second), (x**3, 0), (x**4, fourth)):
        assert abs(z_score(moment, expected)) < 5
    # sine and cosine of one radius are uncorrelated, and so are their squares
    for a in range(8):
        for b in range(a):
            assert abs(z_score(x[..., a] * x[..., b], 0)) < 5
            assert abs(z_score(x[..., a] ** 2 * x[..., b] ** 2, second**2)) < 5
    # neighbouring features
    assert abs(z_score(x[:, 1:] * x[:, :-1], 0)) < 5
    assert abs(z_score((1.02 * x) ** 2, second)) > 5


def test_uniforms_use_52_bits_and_stay_inside():
    u = rng.uniforms(1, 0, 4096, rng.TAG_AUXILIARY)
    assert u.min() > 0
    assert u.max() < 1
    w = oracles.philox4x32((np.arange(4096), 0, 2, 0), (1, 0)).astype(object)
    for i in range(4096):
        bits = int(w[0, i]) * 2**20 + int(w[1, i]) // 2**12
        assert u[i] == (bits + 0.5) / 2**52


def log_of_every_uniform():
    k = np.arange(2**23, dtype=np.uint32)
    z = np.empty(2**23, np.float32)
    rng._log_uniform(k << np.uint32(9), z, np.empty(2**23, np.float32))
    return (2.0 * k + 1) / 2**24, z


def test_log_error_over_all_uniforms():
    u, z = log_of_every_uniform()
    exact = np.log(u)
    assert z.max() < 0  # a square root follows
    assert np.max(np.abs(z - exact) / np.abs(exact)) < 3e-7
    assert np.max(np.abs(z - exact) / np.spacing(np.abs(z))) < 3


# Polynomials


def dense_nodes(low, high):
    """Points that crowd at the ends, so that least squares is close to minimax."""
    return 0.5 * (low + high) - 0.5 * (high - low) * np.cos(np.linspace(0, np.pi, 4001))


POLYNOMIALS = {
    # name: (nodes, function, fixed part, basis, coefficients in use)
    "fused sine": (
        dense_nodes(-0.25, 0.25),
        lambda y: np.sin(2 * np.pi * y),
        [2 * np.pi, 3, 5, 7, 9],
        [fourier._S0, fourier._S1, fourier._S2, fourier._S3, fourier._S4],
        lambda y: [y ** (2 * k + 1) for k in range(5)],
    ),
    "sine": (
        dense_nodes(-0.125, 0.125),
        lambda y: np.sin(2 * np.pi * y),
        None,
        [rng._Q0, rng._Q1, rng._Q2, rng._Q3],
        lambda y: [y ** (2 * k + 1) for k in range(4)],
    ),
    "cosine": (
        dense_nodes(-0.125, 0.125),
        lambda y: np.cos(2 * np.pi * y) - 1,
        None,
        [rng._C1, rng._C2, rng._C3, rng._C4],
        lambda y: [y ** (2 * k + 2) for k in range(4)],
    ),
    "log": (
        dense_nodes(np.sqrt(0.5) - 1, np.sqrt(2.0) - 1),
        lambda m: np.log1p(m) - m,
        None,
        [getattr(rng, f"_P{k}") for k in range(8)],
        lambda m: [m ** (k + 2) for k in range(8)],
    ),
}
