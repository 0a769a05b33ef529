"""RandomFeatures: the estimators' stream, unbiased for any number of columns, scikit-learn."""

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.base import clone

from cases import every, raises
from draws import normal
from kernelgrad import DSG, ArraySource, DataError
from kernelgrad.kernels import Chi2, Gaussian
from kernelgrad.linear.transformer import RandomFeatures
from plain import plain_classifier, plain_regressor

# -- the stream of the estimators --------------------------------------------------------


def dense(n):
    return normal(n, 5) + 3.0


def sparse(n):
    return sp.random(n, 40, 0.06, "csr", random_state=0)


def assert_same_blocks(features, stream, X, source=None):
    assert stream.describe() == features.stream_.describe()
    Z = features.transform(X if source is None else source)
    rows, width = stream.prepare(X), stream.width
    factor = np.float32(1 / np.sqrt(features.n_blocks_))
    assert Z.shape == (X.shape[0], features.n_blocks_ * width)
    for j in range(features.n_blocks_):
        np.testing.assert_array_equal(
            Z[:, j * width : (j + 1) * width], stream.transform(rows, j) * factor
        )


@every(
    ("rows", "kernel", "standardize"),
    [
        (dense, "rbf", False),
        (dense, "laplacian", True),
        (dense, Gaussian("scale", form="phase"), False),
        (sparse, "rbf", True),
        (sparse, "laplacian", False),
        (sparse, Gaussian("scale", form="phase"), True),
    ],
)
def test_blocks_are_those_of_the_estimators(rows, kernel, standardize):
    X = rows(512)  # the sparse ones hold several rows of zeros
    common = {"kernel": kernel, "standardize": standardize, "random_state": 4}
    solver = DSG(block_size=64, batch_size=512)
    features = RandomFeatures(n_components=640, block_size=64, **common).fit(X)
    y = np.arange(512.0)
    model = plain_regressor(solver=solver, max_iter=2, **common).fit(X, y)
    assert_same_blocks(features, model.expansion_.stream, X)
    model = plain_classifier(solver=solver, max_iter=2, **common).fit(X[::-1], y[::-1] > 99)
    if not sp.issparse(X):  # rows that are equal in X and y would be one
        assert_same_blocks(features, model.expansion_.stream, X)  # whatever the order of rows
    other = RandomFeatures(n_components=640, block_size=64, **common | {"random_state": 5})
    assert not np.allclose(other.fit(X).transform(X), features.transform(X), atol=0.01)


# -- the estimate ------------------------------------------------------------------------


@every(
    ("kernel", "n_components", "block_size"),
    [
        (Gaussian(0.3), 7, "auto"),
        (Gaussian(0.3, form="phase"), 7, 3),
        (Chi2("coordinates"), 4, 4),  # only random features of a block are unbiased here
    ],
)
def test_any_number_of_columns_is_unbiased(kernel, n_components, block_size):
    X = np.abs(normal(6, 3, seed=1))
    K = kernel(X)
    estimates = []
    for seed in range(200):
        features = RandomFeatures(
            kernel, n_components, block_size=block_size, random_state=seed
        )
        Z = features.fit_transform(X)
        assert Z.shape == (6, n_components)
        assert Z.dtype == np.float32
        estimates.append(Z.astype(np.float64) @ Z.T)
    error = np.std(estimates, axis=0, ddof=1) / np.sqrt(len(estimates)) + 1e-6
    z = (np.mean(estimates, axis=0) - K) / error
    assert np.abs(z).max() < 5
    # dividing by one column more, or by those of whole blocks, would be seen
    assert np.abs(z + K / error / (n_components + 1)).max() > 5


def test_pairs_are_kept_together():
    X = normal(50, 5)
    for n, block_size in ((100, 32), (100, "auto"), (6, 512)):
        Z = RandomFeatures(n_components=n, block_size=block_size, random_state=0).fit_transform(
            X
        )
        np.testing.assert_allclose((Z**2).sum(axis=1), 1.0, rtol=1e-5)  # cos^2 + sin^2


# -- refusals ----------------------------------------------------------------------------


class Positive(Gaussian):
    name = "positive"
    is_stationary = False

    def check_domain(self, X):
        if X.min() < 0:
            raise DataError("The positive kernel is defined for x >= 0.")


def test_text_is_named():
    frame = pd.DataFrame({"a": [1.0, 2.0], "k": ["1", "w"]})
    words = "Column 'k' holds 'w' in row 1 .*RandomFeatures takes numbers alone: drop"
    for rows in (frame, frame.astype("category")):
        raises(DataError, words, RandomFeatures().fit, rows)
    fitted = RandomFeatures(n_components=2).fit(frame[:1])
    raises(DataError, words, fitted.transform, frame)
    raises(DataError, "'w'", RandomFeatures().fit, frame.to_numpy().tolist())


@every("standardize", [False, True])
def test_rows_outside_the_domain_are_refused(standardize):
    X = np.abs(normal(20, 5))
    features = RandomFeatures(Positive(1.0), 10, standardize=standardize, random_state=0)
    Z = features.fit_transform(X)
    for bad in (-X, ArraySource(-X)):
        raises(DataError, "positive kernel", features.transform, bad)
        raises(DataError, "positive kernel", features.fit, bad)
    # a fit that fails leaves the transformer as it was
    raises(ValueError, "NaN", features.fit, np.full((5, 2), np.nan))
    np.testing.assert_array_equal(features.transform(X), Z)
    fresh = RandomFeatures(Positive(1.0), standardize=standardize)
    raises(DataError, "positive kernel", fresh.fit, -X)
    assert vars(fresh).keys() == vars(clone(fresh)).keys()
