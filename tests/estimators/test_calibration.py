"""Probabilities of losses that have none of their own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss
from sklearn.svm import SVC

from cases import every
from kernelgrad import LinearClassifier
from kernelgrad.calibration import Calibration, crossed, keep_argmax
from plain import plain_classifier

LOSSES = ("hinge", "squared", "perceptron", "logistic", "log_loss")


def rows(n=400, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    f = 2.0 * X[:, 0] + X[:, 1] ** 2 + rng.logistic(size=n)
    return X, np.digitize(f, np.quantile(f, np.arange(1, classes) / classes))


UNIT = st.floats(0, 1, width=16)


@given(arrays(float, st.tuples(st.integers(1, 5), st.integers(2, 5)), elements=UNIT), st.data())
def test_the_largest_is_kept(p, data):
    p = (p + 1e-3) / (p + 1e-3).sum(axis=1, keepdims=True)
    n, K = p.shape
    codes = np.array(data.draw(st.lists(st.integers(0, K - 1), min_size=n, max_size=n)))
    q = keep_argmax(p, codes)
    np.testing.assert_array_equal(np.argmax(q, axis=1), codes)
    np.testing.assert_allclose(q.sum(axis=1), 1.0, rtol=1e-12)
    assert (q >= 0).all()
    right = np.argmax(p, axis=1) == codes
    np.testing.assert_array_equal(np.argmax(np.log(q[~right]), axis=1), codes[~right])
    np.testing.assert_array_equal(q[right], p[right])
    # the nearest of all that keep it: nothing between p and q does
    for a, b, c in zip(p[~right], q[~right], codes[~right], strict=True):
        moved = np.abs(a - b) > 1e-12
        np.testing.assert_allclose(b[moved], b[c], rtol=1e-12)
        assert b[c] >= a[c]
        assert (b[moved & (np.arange(K) != c)] < a[moved & (np.arange(K) != c)]).all()


@every("loss", LOSSES)
@pytest.mark.parametrize(("kind", "classes"), [("kernel", 2), ("linear", 4), ("pairs", 4)])
def test_the_most_probable_class_is_the_predicted_one(kind, classes, loss):
    if kind == "pairs" and loss in ("squared", "perceptron", "log_loss"):
        return  # refused
    X, y = rows(240, classes)
    cls = LinearClassifier if kind == "linear" else plain_classifier
    options = {"multi_class": "ovo"} if kind == "pairs" else {}
    model = cls(loss, random_state=0, **options).fit(X, y)
    new = np.concatenate([rows(2000, seed=1)[0], 1e3 * X, np.zeros((1, 3))])
    p = model.predict_proba(new)
    assert p.shape == (len(new), classes)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(new)), p)
    np.testing.assert_array_equal(model.classes_[np.argmax(p, axis=1)], model.predict(new))
    # little better for the hinge of one class against three, which is near -1 at its minimum
    least = log_loss(y, np.tile(np.bincount(y) / len(y), (len(y), 1)))
    assert log_loss(y, model.predict_proba(X)) < 0.95 * least


@pytest.mark.slow
@every("solver", ["auto", "block_descent", "dsg"])
def test_probabilities_are_as_good_as_those_of_scikit_learn(solver):
    X, y = rows(1500)
    new, target = rows(4000, seed=1)
    theirs = CalibratedClassifierCV(SVC(gamma=0.3), ensemble=False).fit(X, y)
    options = {"solver": solver, "early_stopping": solver == "dsg", "random_state": 0}
    model = plain_classifier("hinge", C=1.0, gamma=0.3, **options).fit(X, y)
    ours = log_loss(target, model.predict_proba(new))
    assert ours < 1.04 * log_loss(target, theirs.predict_proba(new))


def test_a_sigmoid_is_found():
    rng = np.random.default_rng(0)
    f = rng.uniform(-2, 2, 20_000)
    y = (rng.random(len(f)) < expit(1.5 * f - 0.7)).astype(int)
    found = Calibration.fit(np.column_stack([np.zeros_like(f), f]), y, np.ones(len(f)))
    grid = np.linspace(-2, 2, 9)
    p = found.proba(np.column_stack([np.zeros_like(grid), grid]))[:, 1]
    np.testing.assert_allclose(p, expit(1.5 * grid - 0.7), atol=0.02)
    # the prior leaves the slope alone that the classes share, with few rows too
    f = np.linspace(-1, 1, 40)
    found = Calibration.fit(np.column_stack([np.zeros(40), f]), 1 * (f > 0), np.ones(40))
    assert found.slopes[0].min() > 4


def test_larger_responses_are_more_probable():
    f = np.linspace(-3, 3, 2000)
    rng = np.random.default_rng(0)
    y = (rng.random(2000) < np.where(np.abs(f) < 1.5, expit(2 * f), 0.5)).astype(int)
    found = Calibration.fit(np.column_stack([np.zeros_like(f), f]), y, np.ones(2000))
    p = found.proba(np.column_stack([np.zeros_like(f), f]))[:, 1]
    assert (np.diff(p) > 0).all()


def test_targets_are_those_of_platt():
    # however far apart: of one row each, the class of a row counts 2 / 3
    z = np.array([[0.0, -1000.0], [0.0, 1000.0]])
    p = Calibration.fit(z, np.array([0, 1]), np.ones(2)).proba(z)
    np.testing.assert_allclose(p, [[2 / 3, 1 / 3], [1 / 3, 2 / 3]], atol=0.01)
    z, y = np.repeat(z, [30, 10], axis=0), np.repeat([0, 1], [30, 10])
    p = Calibration.fit(z, y, np.ones(40)).proba(z)
    np.testing.assert_allclose(p[[0, -1], 1], [1 / 32, 11 / 12], atol=0.01)


def test_the_prior_keeps_shifts_and_bends_small_where_rows_are_few():
    y = np.array([0, 1, 1, 1, 1, 1])
    p = Calibration.fit(np.zeros((6, 2)), y, np.ones(6)).proba(np.zeros((1, 2)))[0, 1]
    # f = 0 for all rows: of the log-odds t remain 6 p(t) - targets + t / 2 = 0
    t = brentq(lambda t: 6 * expit(t) - (5 * 6 / 7 + 1 / 3) + t / 2, -9, 9)
    assert p == pytest.approx(expit(t), abs=1e-3)
    f = np.array([-2.0, -1.0, 1.0, 2.0])
    few, many = (
        Calibration.fit(np.repeat(np.stack([0 * f, f], 1), n, 0), np.repeat(f > 0, n) * 1,
                        np.ones(4 * n)).slopes for n in (1, 300)
    )  # fmt: skip
    assert np.abs(few[1:]).max() < 0.2 < 1.0 < np.abs(many[1:]).max()


def test_weights_count():
    _, y = rows(300)
    z = np.random.default_rng(1).standard_normal((300, 2))
    one = Calibration.fit(z, y, np.where(y == 1, 5.0, 1.0)).proba(z)[:, 1].mean()
    assert one > Calibration.fit(z, y, np.ones(300)).proba(z)[:, 1].mean() + 0.2
    p, w = crossed(z, y, np.ones(300)), np.ones(150)  # halves are every other row
    for i in (0, 1):
        other = Calibration.fit(z[1 - i :: 2], y[1 - i :: 2], w)
        np.testing.assert_array_equal(p[i::2], other.proba(z[i::2]))
    X, y = rows(600)
    y[(y == 1) & (np.arange(600) % 5 > 0)] = 0
    means = [
        plain_classifier("hinge", class_weight=w, random_state=0, alpha=1e-3)
        .fit(X, y).predict_proba(X)[:, 1].mean()
        for w in (None, "balanced")
    ]  # fmt: skip
    assert means[0] < 0.25
    assert means[1] > means[0] + 0.15


def test_few_rows_of_a_class():
    X, y = rows(40)
    for n in (1, 2, 5):
        keep = np.r_[np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:n]]
        model = plain_classifier("hinge", random_state=0).fit(X[keep], y[keep])
        assert np.isfinite(model.predict_proba(X)).all()
    two = plain_classifier("hinge").fit(X[:2], [0, 1])
    assert two.predict_proba(X[:2]).argmax(axis=1).tolist() == [0, 1]


@pytest.mark.parametrize(
    "solver", ["auto", "block_descent", "dsg", "stopped", "stream", "linear"]
)
def test_rows_that_were_not_fitted_tell(solver):
    """Labels without sense can be fitted, but no row that was not fitted is predicted."""
    X = np.random.default_rng(0).standard_normal((600, 100 if solver == "linear" else 3))
    y = np.random.default_rng(1).integers(0, 2, 600)
    given = {"gamma": 20.0, "alpha": 1e-6, "random_state": 0, "max_iter": 100}
    if solver == "linear":
        model = LinearClassifier("hinge", C=1e3, random_state=0).fit(X, y)
    elif solver == "stream":
        model = plain_classifier("hinge", solver="dsg", **given).partial_fit(X, y)
        model.partial_fit(X, 1 - y)  # the rows are known, but not their new labels
    else:
        stops = {"early_stopping": True} if solver == "stopped" else {"solver": solver}
        model = plain_classifier("hinge", **stops, **given).fit(X, y)
        assert model.score(X, y) > 0.8
    p = model.predict_proba(X)[:, 1]
    assert np.abs(p - 0.5).mean() < 0.2


def test_a_stream_calibrates_on_its_latest_rows():
    rng = np.random.default_rng(0)
    model = plain_classifier("hinge", solver="dsg", gamma=0.3, alpha=1e-3, random_state=0)
    for call in range(45):
        X = rng.standard_normal((50, 2))
        y = X[:, 0] > 0 if call >= 22 else rng.permutation(np.arange(50) % 2 == 0)
        model.partial_fit(X, y, classes=[False, True])
    X = rng.standard_normal((500, 2))
    assert log_loss(X[:, 0] > 0, model.predict_proba(X)[:, 1]) < 0.2
