"""Images of the experiments, which are made when they are read."""

import numpy as np
import pytest
from experiments.images import DeformedImages

from kernelgrad import set_num_threads
from kernelgrad.data import sample_batches

N = 7
IMAGES = np.random.default_rng(0).uniform(0, 255, (N, 12, 9)).astype(np.uint8)
LABELS = np.array(list("abcabca"))
STILL = {"elastic": 0, "angle": 0, "size": 0, "slant": 0, "shift": 0}


@pytest.mark.slow
def test_images_depend_on_seed_and_row_only():
    source = DeformedImages(IMAGES, LABELS, n_rows=500, seed=5)
    whole = source.read(0, 500)
    np.testing.assert_array_equal(whole.X[:N], IMAGES.reshape(N, -1))
    assert (whole.X[N : 2 * N] != IMAGES.reshape(N, -1)).mean() > 0.5
    set_num_threads(3)
    for b in sample_batches(source, 70, seed=0, max_epochs=1):
        np.testing.assert_array_equal(b.batch.X, whole.X[b.batch.rows])
        np.testing.assert_array_equal(b.batch.y, LABELS[b.batch.rows % N])
    other = DeformedImages(IMAGES, LABELS, n_rows=500, seed=6).read(N, 500)
    assert (whole.X[N:] != other.X).mean() > 0.5
    still = DeformedImages(IMAGES, LABELS, n_rows=500, **STILL).read(N, 2 * N)
    np.testing.assert_array_equal(still.X, IMAGES.reshape(N, -1))
    with pytest.raises(ValueError, match="labels has shape"):
        DeformedImages(IMAGES, LABELS[:3], n_rows=10)
