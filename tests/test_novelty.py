"""Novelty detection against the exact optimum, the dual problem and scikit-learn's promises."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.svm import OneClassSVM

import oracles_unsupervised as oracles
from cases import every
from kernelgrad import (
    DSG,
    ArraySource,
    CapabilityError,
    KernelNoveltyDetector,
)
from kernelgrad.losses import OneClass
from kernelgrad.tasks import NoTargets
from kernelgrad.training_rows import TrainingRows
from sources import KINDS, named, opened

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


@pytest.mark.parametrize("nu", [0.05, 0.1, 0.2, 0.5])
def test_the_exact_optimum(nu):
    X = two_clusters()
    scores, level, _ = exact(X, nu)
    model = detector(nu, max_iter=200).fit(X)
    assert distance(model, X, scores) < 0.08
    assert np.corrcoef(model.score_samples(X), scores)[0, 1] > 0.998
    assert model.offset_ == pytest.approx(level, abs=0.08 * scores.std())
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


def test_the_level_found_by_steps_is_near_the_quantile():
    X = two_clusters(1000)
    solver = small_batches(0.2, decay=20.0)
    model = detector(0.2, tau="steps", solver=solver, max_iter=400).fit(X)
    assert np.mean(model.predict(X) == -1) == pytest.approx(0.2, abs=0.05)
    with pytest.raises(CapabilityError, match="tau='steps'"):
        detector(tau="steps", solver="cached").fit(X)
    with pytest.raises(ValueError, match="tau"):
        detector(tau="median").fit(X)


def test_the_duality_gap_closes():
    """Steps of Frank and Wolfe: the deepest rows of every step make a point of the dual."""
    nu, X = 0.1, two_clusters(200)
    K = oracles.gaussian(X, X, GAMMA)
    assert abs(oracles.one_class_gap(K, exact(X, nu)[2], nu)) < 1e-5

    model = detector(nu, max_iter=1, warm_start=True, solver="dsg")
    outliers, gaps = [np.full(200, nu)], {}
    for t in range(1, 81):
        model.fit(X)
        gaps[t] = oracles.one_class_gap(K, oracles.frank_wolfe(np.array(outliers), nu), nu)
        outliers.append(model.predict(X) < 0)
    a = oracles.frank_wolfe(np.array(outliers[:-1]), nu)
    f = K @ a
    error = np.sqrt(np.mean((model.score_samples(X) - f) ** 2))
    assert error < 0.2 * f.std()  # f is that point of the dual, but for random features
    assert 0 < gaps[80] < 0.02
    assert gaps[5] > 0.1  # the control: a few steps leave a gap
    assert np.sqrt(np.mean((model.score_samples(X) - K @ a[::-1]) ** 2)) > f.std()


@every("nu", [0.05, 0.1, 0.2, 0.5])
def test_a_fraction_nu_of_the_rows_are_outliers(nu):
    X = two_clusters()
    assert np.mean(detector(nu, max_iter=5).fit_predict(X) == -1) == pytest.approx(nu)


def test_the_level_of_many_rows_is_that_of_a_sample():
    X = two_clusters(30_000)
    solver = small_batches(block_size=64, batch_size=2000)
    model = detector(0.1, max_iter=6, solver=solver).fit(X)
    share = np.mean(model.predict(X) == -1)
    error = 5 * np.sqrt(0.1 * 0.9 / 20_000)  # five standard errors of the level's sample
    assert share == pytest.approx(0.1, abs=error)
    assert share != pytest.approx(0.12, abs=error)


def test_predictions_are_consistent():
    X, Z = two_clusters(), two_clusters(200, seed=1) * 1.5
    model = detector(max_iter=20).fit(X, y=np.arange(len(X)))  # y is ignored
    f, decision = model.score_samples(Z), model.decision_function(Z)
    assert f.shape == decision.shape == (200,)
    np.testing.assert_allclose(decision, f - model.offset_, atol=1e-12)
    np.testing.assert_array_equal(model.predict(Z), np.where(decision >= 0, 1, -1))
    assert set(model.predict(Z)) == {-1, 1}
    np.testing.assert_array_equal(detector(max_iter=20).fit_predict(X), model.predict(X))
    assert model.offset_ == pytest.approx(np.quantile(model.score_samples(X), 0.1), abs=1e-3)
    far = model.score_samples([[100.0, 100.0]])[0]
    assert abs(far) < 0.2 * abs(model.offset_)  # no row is near: f tends to zero
    assert model.model_info()["loss"] == "one_class"
    assert model.model_info()["alpha"] == 0.1


def test_weights_move_the_level_with_batches():
    X = two_clusters(2000)
    w = np.where(X[:, 0] > 2, 4.0, 1.0)
    model = detector(0.2, max_iter=30, solver=small_batches(0.2)).fit(X, sample_weight=w)
    out = model.predict(X) == -1
    assert w @ out / w.sum() == pytest.approx(0.2, abs=5 / len(X))
    assert out.mean() > 0.25  # unweighted it is another share
    without = detector(0.2, max_iter=30, solver=small_batches(0.2)).fit(X, sample_weight=w > 1)
    assert np.mean(without.predict(X[w == 1]) == -1) > 0.95  # rows of weight zero do not count


def test_a_stream_is_followed():
    rng = np.random.default_rng(0)
    model = detector(0.1, solver=small_batches(max_blocks=30), gamma=0.5)
    for _ in range(40):
        model.partial_fit(rng.standard_normal((800, 2)))
    assert model.n_iter_ == 80
    assert model.expansion_.n_blocks == 30
    Z = rng.standard_normal((4000, 2))
    # two samples decide: the level's 800 rows and these
    error = 5 * np.sqrt(0.1 * 0.9 * (1 / 800 + 1 / 4000))
    assert np.mean(model.predict(Z) == -1) == pytest.approx(0.1, abs=error)
    np.testing.assert_array_equal(model.predict([[0.0, 0.0], [5.0, 5.0]]), [1, -1])
    inside = (Z**2).sum(1) < 4.6  # nine tenths of a Gaussian sample
    assert roc_auc_score(inside, model.score_samples(Z)) > 0.95


@pytest.mark.parametrize("kind", KINDS)
def test_files_without_a_target(tmp_path, kind):
    X = two_clusters(600).astype(np.float32)
    source = opened(tmp_path, kind, X)
    assert not source.has_target
    ours = detector(max_iter=10).fit(source)
    share = np.mean(ours.predict(source) == -1)
    assert share == pytest.approx(0.1)
    arrays = detector(max_iter=10).fit(X)
    # arrays are put in a canonical order, files are not: the sums round in another order
    f = ours.score_samples(named(ours, X))
    np.testing.assert_allclose(f, arrays.score_samples(X), atol=1e-4)
    streamed = detector(solver=small_batches()).partial_fit(source)
    assert streamed.n_iter_ == 2
    with pytest.raises(ValueError, match="own y and weights"):
        detector().fit(source, sample_weight=np.ones(600))


@pytest.mark.parametrize("kernel", ["laplacian", "cauchy", "matern"])
def test_other_kernels_meet_their_exact_optimum(kernel):
    X, nu = two_clusters(300), 0.2
    model = KernelNoveltyDetector(nu, kernel, max_iter=200, random_state=0).fit(X)
    K = model.kernel_.pairwise(X, X)
    scores = OneClassSVM(nu=nu, kernel="precomputed", tol=1e-8).fit(K).score_samples(K) / 60
    assert distance(model, X, scores) < 0.2


GOOD = two_clusters(50)


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
    with pytest.raises(NotFittedError):
        detector().save("nowhere.kg")
    model = detector(max_iter=2, solver="dsg").fit(GOOD)
    before = model.score_samples(GOOD)
    with pytest.raises(ValueError, match="features"):
        model.predict(GOOD[:, :1])
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit(GOOD * np.inf)
    np.testing.assert_array_equal(model.score_samples(GOOD), before)
    with pytest.raises(ValueError, match="weight"):
        detector(max_iter=2).fit(ArraySource(GOOD, None, np.zeros(50)))


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


def test_rows_held_out_are_in_no_batch():
    rows = TrainingRows(ArraySource(np.arange(100.0)[:, None]), NoTargets(OneClass()))
    rows = rows.hold_out(0.3, seed=0)
    batches, same = rows.batches(DSG(), seed=0, start=0, size=10)
    seen = np.concatenate([next(batches)[0].rows for _ in range(14)])
    assert not same
    assert len(rows.held) == 30
    np.testing.assert_array_equal(np.unique(seen), rows.train)
