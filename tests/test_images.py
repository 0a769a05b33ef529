"""Images that are made when they are read."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from cases import every
from kernelgrad import KernelClassifier, set_num_threads
from kernelgrad.compute.images import TAG_IMAGE, bumps
from kernelgrad.data import DeformedImages, sample_batches
from kernelgrad.exceptions import DataError
from oracles import float32_variates, philox4x32

N, H, W = 7, 12, 9
IMAGES = np.random.default_rng(0).uniform(0, 255, (N, H, W, 2)).astype(np.uint8)
LABELS = np.array(list("abcabca"))
MOVED = {"elastic": 1.3, "smoothness": 2.5, "angle": 20, "size": 0.2, "slant": 0.3, "shift": 2}


def source(images=IMAGES, labels=LABELS, n_rows=10**8, **law):
    return DeformedImages(images, labels, n_rows=n_rows, **MOVED | law)


def normals(seed, row, n):
    """Return the normals of a row, by the definition of the library's random numbers."""
    lo, hi = (seed & 0xFFFFFFFF, seed >> 32)
    key = philox4x32((0, 0, TAG_IMAGE, 0), (lo, hi))[:2].tolist()
    counter = (row & 0xFFFFFFFF, np.arange(-(-n // 4)), 0, row >> 32)
    return float32_variates(philox4x32(counter, key), "normal").T.ravel()[:n].astype(float)


def moved_by_scipy(image, seed, row, elastic, smoothness, angle, size, slant, shift):
    B, C = bumps(H, smoothness).astype(float), bumps(W, smoothness).astype(float)
    n = B.shape[1] * C.shape[1]
    z = normals(seed, row, 5 + 2 * n)
    down, across = (B @ part.reshape(B.shape[1], -1) @ C.T for part in np.split(z[5:], 2))
    t = np.deg2rad(angle) * z[0]
    turn = np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]])
    A = np.exp(size * z[1]) * turn @ np.array([[1, 0], [slant * z[2], 1]])
    middle = np.array([(H - 1) / 2, (W - 1) / 2])[:, None]
    p = A @ (np.indices((H, W)).reshape(2, -1) - middle) + middle + shift * z[3:5, None]
    p += elastic * np.stack([down.ravel(), across.ravel()])
    planes = [
        ndimage.map_coordinates(image[..., k], p, order=1, mode="nearest") for k in (0, 1)
    ]
    return np.stack(planes, -1).ravel()


@pytest.mark.parametrize("row", [7, 100, 2**33 + 5])
def test_rows_are_what_scipy_makes_of_them(row):
    seed = 2**35 + 3
    found = source(IMAGES.astype(np.float32), n_rows=2**34, seed=seed).read(row, row + 1).X[0]
    expected = moved_by_scipy(IMAGES[row % N].astype(float), seed, row, **MOVED)
    np.testing.assert_allclose(found, expected, atol=0.02)  # of 255
    assert np.abs(found - IMAGES[row % N].ravel()).mean() > 10


def test_order_chunks_and_threads_change_no_bit():
    some = source(seed=5)
    whole = some.read(0, 500)
    for pieces in (1, 63, 64, 65, 200):
        parts = [some.read(a, min(a + pieces, 500)) for a in range(0, 500, pieces)]
        np.testing.assert_array_equal(np.concatenate([part.X for part in parts]), whole.X)
    rows = np.random.default_rng(1).integers(0, 500, 300)
    taken = some.take(rows)
    np.testing.assert_array_equal(taken.X, whole.X[rows])
    np.testing.assert_array_equal(taken.y, LABELS[rows % N])
    for n_threads in (1, 3):
        set_num_threads(n_threads)
        np.testing.assert_array_equal(some.read(0, 500).X, whole.X)


def test_first_rows_and_types():
    for images in (IMAGES, IMAGES.astype(np.float64) / 255):
        batch = source(images).read(0, 20)
        dtype = np.uint8 if images is IMAGES else np.float32
        assert batch.X.dtype == dtype
        np.testing.assert_array_equal(batch.X[:N], images.reshape(N, -1).astype(dtype))
        assert (batch.X[N:] != images[np.arange(N, 20) % N].reshape(13, -1)).mean() > 0.5
    precise = source(IMAGES.astype(np.float32)).read(0, 20).X
    np.testing.assert_array_equal(np.rint(precise), source().read(0, 20).X)
    still = dict.fromkeys(MOVED, 0) | {"smoothness": 4}
    np.testing.assert_array_equal(source(**still).read(N, 2 * N).X, IMAGES.reshape(N, -1))


def test_fields_are_smoothed_noise():
    # on a ramp the value of a pixel is where it came from
    side, deviation = 41, 3.0
    ramp = np.arange(side, dtype=np.float32)[:, None] * np.ones(side, np.float32)
    law = {"angle": 0, "size": 0, "slant": 0, "shift": 0, "smoothness": deviation}
    some = source(ramp[None], None, **law | {"elastic": 1.5})
    field = some.read(1, 4001).X.reshape(-1, side, side)[:, 12:29, 12:29] - ramp[12:29, 12:29]

    def check(value, expected):
        spread = value.reshape(8, -1).mean(axis=1)  # independent groups of rows
        assert abs(spread.mean() - expected) < 5 * spread.std(ddof=1) / np.sqrt(8)
        return spread.mean()

    check(field, 0.0)
    variance = check(field**2, 1.5**2)
    for lag in (1, 3, 6):
        expected = 1.5**2 * np.exp(-(lag**2) / (4 * deviation**2))
        found = check(field[:, lag:] * field[:, :-lag], expected)
        check(field[:, :, lag:] * field[:, :, :-lag], expected)
        assert found < 0.999 * variance


def test_targets_without_images_and_seeds():
    some = source(n_rows=10**6)
    summary = some.summarize_target()
    assert summary.n_rows == summary.counts.sum() == 10**6
    expected = np.unique(LABELS[np.arange(10**6) % N], return_counts=True)[1]
    np.testing.assert_array_equal(summary.counts, expected)
    digests = [source(n_rows=N, **law).digest() for law in ({}, {"seed": 1}, {"shift": 1})]
    assert len({*digests, source(n_rows=N).digest()}) == 3
    assert not source(labels=None).has_target
    seeds = [source(seed=seed).read(N, 2 * N).X for seed in (0, 1)]
    assert (seeds[0] != seeds[1]).mean() > 0.5


def test_batches_and_fits():
    some = source(n_rows=3000)
    batches = sample_batches(some, 700, seed=3, max_epochs=1)
    rows = np.concatenate([b.batch.rows for b in batches])
    assert len(rows) == len(np.unique(rows)) == 2800
    fit = {"solver": "dsg", "max_iter": 3, "random_state": 0}
    some = source(n_rows=800)
    model = KernelClassifier(**fit).fit(some)
    held = some.read(0, 800)
    same = KernelClassifier(**fit).fit(some)
    np.testing.assert_array_equal(model.predict(held.X), same.predict(held.X))
    assert model.score(held.X, held.y) > 0.5


@every(
    ("change", "error", "message"),
    [
        ({"images": IMAGES.reshape(N, -1)}, ValueError, r"shape \(7, 216\).*reshape"),
        ({"images": IMAGES[:0]}, ValueError, r"shape \(0, 12, 9, 2\)"),
        ({"images": IMAGES.astype(str)}, ValueError, "numbers"),
        ({"images": np.where(IMAGES > 9, np.nan, 0.0)}, DataError, "NaN or infinite pixels"),
        ({"labels": LABELS[:3]}, ValueError, r"labels has shape \(3,\), but there are 7"),
        ({"n_rows": 0}, ValueError, "n_rows must be at least 1, got 0"),
        ({"smoothness": 0.5}, ValueError, "smoothness"),
        ({"elastic": -1}, ValueError, "elastic"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"angle": "x"}, TypeError, "angle must be a real number"),
    ],
)  # fmt: skip
def test_what_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        source(**change)
