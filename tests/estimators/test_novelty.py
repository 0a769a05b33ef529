"""Novelty detection against the exact optimum, the dual problem and scikit-learn's promises."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.metrics import roc_auc_score
from sklearn.svm import OneClassSVM

import oracles_unsupervised as oracles
from cases import raises
from kernelgrad import DSG, ArraySource, CapabilityError, KernelNoveltyDetector

GAMMA = 0.3
# the steps of the default solver on smaller batches
STEPS = {"preconditioned": False, "decay": 2.0, "momentum": 0.0, "average": None}


def two_clusters(n=500, seed=0):
    rng = np.random.default_rng(seed)
    near, far = rng.normal(0, 1, (3 * n // 5, 2)), rng.normal(4, 0.5, (n - 3 * n // 5, 2))
    return np.concatenate([near, far])


def small_batches(nu=0.1, solver=DSG, **params):
    sizes = {"block_size": 128, "batch_size": 400}
    return solver(step_size=1 / nu, **(STEPS | sizes | params))


def detector(nu=0.1, **params):
    return KernelNoveltyDetector(nu, **({"gamma": GAMMA, "random_state": 0} | params))


def exact(X, nu, gamma=GAMMA):
    """Return scores, level and dual weights of the paper's problem, which is scaled by nu n."""
    scale = nu * len(X)
    svm = OneClassSVM(nu=nu, gamma=gamma, tol=1e-8).fit(X)
    a = np.zeros(len(X))
    a[svm.support_] = svm.dual_coef_[0] / scale
    return svm.score_samples(X) / scale, svm.offset_[0] / scale, a


def distance(model, X, scores):
    """Root mean square of the difference of scores, in units of their spread."""
    return np.sqrt(np.mean((model.score_samples(X) - scores) ** 2)) / scores.std()


@pytest.mark.parametrize("nu", [0.05, 0.5])
def test_the_exact_optimum(nu):
    X = two_clusters()
    scores, level, _ = exact(X, nu)
    model = detector(nu, max_iter=200).fit(X)
    assert distance(model, X, scores) < 0.08
    assert np.corrcoef(model.score_samples(X), scores)[0, 1] > 0.998
    assert model.offset_ == pytest.approx(level, abs=0.08 * scores.std())
    assert np.mean(model.predict(X) == -1) == pytest.approx(nu)
    # the controls: another nu, another bandwidth, and the scale of scikit-learn
    for other in (exact(X, 1.5 * nu)[0], exact(X, nu, 2 * GAMMA)[0], scores * nu * len(X)):
        assert distance(model, X, other) > 0.3


@pytest.mark.parametrize(("n", "nu"), [(100, 0.035), (100, 0.055), (60, 0.02)])
def test_few_outliers_whose_number_is_not_whole(n, nu):
    X = two_clusters(n)
    scores, _, _ = exact(X, nu)
    f = detector(nu, max_iter=200).fit(X).score_samples(X)
    # the weights of all rows sum to one, with a part of the row at the level
    assert f @ scores / (scores @ scores) == pytest.approx(1.0, abs=0.02)
    assert np.corrcoef(f, scores)[0, 1] > 0.98


def test_the_papers_rule_for_the_level_step_by_step():
    X, nu, theta = two_clusters(40), 0.3, 4.0
    preset = DSG.paper(nu=nu, theta=theta, sigma=1.5)
    model = KernelNoveltyDetector(
        nu, tau="steps", solver=preset["solver"], kernel=preset["kernel"], random_state=0
    )
    found = []
    for row in X:
        model.partial_fit(row[None])
        found.append((model.expansion_.coef[0, :, 0].copy(), model.offset_))
    stream = model.expansion_.stream
    rows = stream.prepare(X)
    features = np.hstack([stream.transform(rows, j) for j in range(len(X))]).astype(float)
    gammas = theta / np.arange(1, len(X) + 1)
    expected = oracles.novelty_paper(features, nu, gammas)
    for (coef, tau), (alpha, level) in zip(found, expected, strict=True):
        np.testing.assert_allclose(coef[: len(alpha)], alpha[: len(coef)], atol=1e-4)
        assert tau == pytest.approx(level, abs=1e-5)
    assert 5 < np.count_nonzero(expected[-1][0]) < 35  # both cases of the rule


def test_weights_move_the_level_with_batches():
    X = two_clusters(2000)
    w = np.where(X[:, 0] > 2, 4.0, 1.0)
    model = detector(0.2, max_iter=30, solver=small_batches(0.2)).fit(X, sample_weight=w)
    out = model.predict(X) == -1
    assert w @ out / w.sum() == pytest.approx(0.2, abs=5 / len(X))
    assert out.mean() > 0.25  # unweighted it is another share


def test_columns_in_different_units_do_not_decide_alone():
    X, y = load_wine(return_X_y=True)
    found = {"auto": [], False: []}
    for rule, areas in found.items():
        for c in range(3):
            model = KernelNoveltyDetector(standardize=rule).fit(X[y == c][::2])
            areas.append(roc_auc_score(y == c, model.score_samples(X)))
            assert model.history_["solver"] == "working_set"
    assert np.mean(found["auto"]) > 0.95
    assert np.mean(found[False]) < 0.9  # the control


def test_misuse_is_explained():
    X = two_clusters(50)
    model = detector(max_iter=2, solver="dsg").fit(X)
    before = model.score_samples(X)
    raises(ValueError, "infinity", model.partial_fit, X * np.inf)
    np.testing.assert_array_equal(model.score_samples(X), before)
    raises(ValueError, "weight", detector(max_iter=2).fit, ArraySource(X, None, np.zeros(50)))
    raises(CapabilityError, "tau='steps'", detector(tau="steps", solver="block_descent").fit, X)


def test_few_or_equal_rows():
    one = detector(max_iter=3).fit([[1.0, 2.0]])
    np.testing.assert_array_equal(one.predict([[1.0, 2.0]]), [1])
    same = detector(max_iter=3, gamma="median").fit(np.ones((30, 3)))
    assert np.isfinite(same.score_samples(np.ones((2, 3)))).all()
    assert (same.predict(np.ones((2, 3))) == 1).all()


def test_a_batch_whose_rows_do_not_count_leaves_the_level():
    X = np.random.default_rng(0).standard_normal((100, 2))
    detector = KernelNoveltyDetector(random_state=0).partial_fit(X)
    level, f = detector.offset_, detector.score_samples(X)
    detector.partial_fit(ArraySource(X, None, np.zeros(100)))
    assert detector.offset_ == level != 0
    np.testing.assert_array_equal(detector.score_samples(X), f)


def test_compress_needs_rows():
    X = np.random.default_rng(0).standard_normal((600, 3))
    detector = KernelNoveltyDetector(nu=0.2).fit(X)
    raises(ValueError, "nearly constant at the support rows", detector.compress)
    small = detector.compress(40, X=X)
    assert small.n_support_ <= 40 < detector.n_support_
    assert (small.predict(X) == detector.predict(X)).mean() > 0.95
