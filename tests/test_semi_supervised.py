"""Few labels and many rows: what users of the semi-supervised classifier may expect."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_moons
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.svm import SVC

from kernelgrad import (
    ArraySource,
    DataError,
    SemiSupervisedKernelClassifier,
)
from kernelgrad.callbacks import Callback
from kernelgrad.losses import Ramp, SymmetricHinge

STOCHASTIC = ["tsg", "fr_s3vm", "bgs3vm"]
S3VM = ["cccp_s3vm", "s3vm_light", "cached"]
WHOLE = [*S3VM, "soft_labels"]
SOLVERS = STOCHASTIC + WHOLE
SUPERVISED = "There are no unlabelled rows"
each_solver = pytest.mark.parametrize("solver", SOLVERS)


def draw(n=120, n_labelled=12, noise=0.1, seed=0):
    """Two moons: rows, true classes, and classes with -1 where there is no label."""
    X, t = make_moons(n, noise=noise, random_state=seed)
    rng = np.random.default_rng(seed)
    known = [rng.permutation(np.flatnonzero(t == c))[: n_labelled // 2] for c in (0, 1)]
    y = np.full(n, -1)
    y[np.concatenate(known)] = t[np.concatenate(known)]
    return X, t, y


X, T, Y = draw()
L, U = np.flatnonzero(Y >= 0), np.flatnonzero(Y < 0)
NAMES = np.array(["a", "b"])
NAMED = np.array([None if c < 0 else NAMES[c] for c in Y], object)


def make(**params):
    return SemiSupervisedKernelClassifier(
        **({"solver": "tsg", "random_state": 0, "max_iter": 20, "gamma": 2.0} | params)
    )


class Recorder(Callback):
    def __init__(self, stop_at=None):
        self.seen, self.status, self.stop_at = [], None, stop_at

    def on_iteration(self, event):
        self.seen.append(event.iteration)
        if self.stop_at == -event.iteration:
            raise RuntimeError("no")
        return event.iteration == self.stop_at

    def on_end(self, status):
        self.status = status


# -- classes ---------------------------------------------------------------------------


@each_solver
def test_many_classes(solver):
    B, t = make_blobs(160, centers=4, cluster_std=0.6, random_state=0)
    y = np.where(np.arange(160) < 24, t, -1)
    names = np.array(["d", "b", "a", "c"])
    plain = make(solver=solver, gamma="median").fit(B, y)
    labels = np.array([None if c < 0 else names[c] for c in y], object)
    model = make(solver=solver, gamma="median").fit(B, labels)
    f = model.decision_function(B)
    assert f.shape == (160, 4)
    assert model.classes_.tolist() == list("abcd")
    np.testing.assert_array_equal(model.classes_[f.argmax(1)], model.predict(B))
    assert np.mean(model.predict(B) == names[plain.predict(B)]) > 0.98
    assert np.mean(model.transduction_ == names[t]) > 0.95
    np.testing.assert_array_equal(model.transduction_[:24], names[t[:24]])


@each_solver
def test_given_labels_are_kept_and_others_predicted(solver):
    wrong = Y.copy()
    wrong[L[0]] = 1 - wrong[L[0]]
    for y in (Y, wrong):
        model = make(solver=solver).fit(X, y)
        np.testing.assert_array_equal(model.transduction_[L], y[L])
        np.testing.assert_array_equal(model.transduction_[U], model.predict(X[U]))
        assert model.labelled_weight_ == len(L)


# -- the objective ---------------------------------------------------------------------


@pytest.mark.parametrize("C", [1.0, 10.0])
@pytest.mark.parametrize("seed", range(7))
def test_without_the_unlabelled_loss_cached_is_svc(C, seed):
    """A convex program: where it says converged it must be near the minimiser."""
    Z, t = make_moons(150, noise=0.15, random_state=seed)
    known = np.concatenate([np.flatnonzero(t == c)[:8] for c in (0, 1)])
    y = np.full(150, -1)
    y[known] = t[known]
    svc = SVC(C=C, gamma=2.0, tol=1e-6).fit(Z[known], t[known])
    model = make(solver="cached", C=C, C_star=0, max_iter=300).fit(Z, y)
    assert model.fit_status_ == "converged"
    np.testing.assert_allclose(model.decision_function(Z), svc.decision_function(Z), atol=0.05)
    assert not np.allclose(
        make(solver="cached", C=C, max_iter=300).fit(Z, y).decision_function(Z),
        svc.decision_function(Z),
        atol=0.05,
    )


@pytest.mark.parametrize("solver", [*STOCHASTIC, "cached", "soft_labels"])
def test_without_their_loss_other_rows_change_nothing(solver):
    """But for the place of the origin, which a point reflection of them keeps."""
    mirrored = X.copy()
    mirrored[U] = 2 * X[U].mean(axis=0) - X[U]
    for C_star, same in ((0, True), (5.0, False)):
        f, g = (
            make(solver=solver, C_star=C_star, max_iter=40).fit(Z, Y).decision_function(X)
            for Z in (X, mirrored)
        )
        assert np.allclose(f, g, atol=0.02) == same


@pytest.mark.parametrize("solver", STOCHASTIC + S3VM)
def test_costs_of_unlabelled_rows(solver):
    def fit(**params):
        return make(solver=solver, **params).fit(X, Y).decision_function(X)

    np.testing.assert_array_equal(fit(C_star="auto"), fit(C_star=5.0))
    np.testing.assert_array_equal(fit(C=8.0), fit(C=8.0, C_star=4.0))
    paper = fit(C=8.0, C_star="paper")
    np.testing.assert_allclose(paper, fit(C=8.0, C_star=8.0 * 12 / 108), atol=1e-5)
    assert not np.allclose(paper, fit(C=8.0), atol=1e-2)


def test_the_cost_of_the_paper_is_one_of_weights():
    w = np.where(Y < 0, 3.0, 2.0)
    a = make(C_star="paper").fit(X, Y, sample_weight=w)
    b = make(C_star=10 * 24 / 324).fit(X, Y, sample_weight=w)
    np.testing.assert_allclose(a.decision_function(X), b.decision_function(X), atol=1e-5)
    assert a.labelled_weight_ == 24


@each_solver
def test_class_weights_are_weights_of_labelled_rows(solver):
    y = Y.copy()
    y[np.flatnonzero(Y == 0)[:3]] = -1  # 3 and 6 labels
    w = np.where(y == 0, 1.5, np.where(y == 1, 0.75, 1.0))
    given = {"solver": solver, "C": 0.5}
    expected = make(**given).fit(X, y, sample_weight=w).decision_function(X)
    for class_weight in ("balanced", {0: 1.5, 1: 0.75}):
        model = make(**given, class_weight=class_weight).fit(X, y)
        np.testing.assert_array_equal(model.decision_function(X), expected)
    plain = make(**given).fit(X, y).decision_function(X)
    assert not np.allclose(plain, expected, atol=1e-3)


@each_solver
def test_no_unlabelled_rows_is_a_supervised_fit(solver):
    svc = SVC(C=10.0, gamma=2.0).fit(X[L], Y[L]).decision_function(X)
    zero = (Y >= 0).astype(float)
    for rows, y, weight in ((X[L], Y[L], None), (X, Y, zero)):
        with pytest.warns(UserWarning, match=SUPERVISED) as caught:
            model = make(solver=solver, max_iter=200).fit(rows, y, sample_weight=weight)
        assert len(caught) == 1
        assert model.score(X[L], Y[L]) == 1
        if solver != "fr_s3vm":  # of few features that never change
            assert np.corrcoef(model.decision_function(X), svc)[0, 1] > 0.9
        if solver in WHOLE:
            np.testing.assert_allclose(model.decision_function(X), svc, atol=0.01)
        assert len(model.transduction_) == len(y)
        np.testing.assert_array_equal(model.transduction_[y >= 0], y[y >= 0])


# -- warnings --------------------------------------------------------------------------


def clusters(n_0, n_1):
    """20 labels of either class, then unlabelled rows of either."""
    B, t = make_blobs(400, centers=[[-3, 0], [3, 0]], random_state=0)
    zero, one = np.flatnonzero(t == 0), np.flatnonzero(t == 1)
    rows = np.concatenate([zero[: 20 + n_0], one[: 20 + n_1]])
    y = t[rows].copy()
    y[20 : 20 + n_0] = -1
    y[40 + n_0 :] = -1
    return B[rows], y


@pytest.mark.parametrize("solver", [*STOCHASTIC, "cccp_s3vm", "cached"])
def test_other_class_fractions_are_told(solver):
    with pytest.warns(UserWarning, match=r"50% of the labelled rows, but [23]% .*Lower C_star"):
        make(solver=solver, gamma="median").fit(*clusters(4, 150))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(solver=solver, gamma="median").fit(*clusters(150, 150))


def test_the_warning_names_the_class():
    Z, y = clusters(4, 150)
    with pytest.warns(UserWarning, match="^Class 0 is"):
        make(gamma="median").fit(Z, y)
    with pytest.warns(UserWarning, match="^Class 'a' is"):
        make(gamma="median").fit(Z, np.array([None if c < 0 else NAMES[c] for c in y], object))


# -- errors ----------------------------------------------------------------------------

BROKEN = X.copy()
BROKEN[U[0], 0] = np.nan


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"y": np.full(120, -1)}, "y has no label: all 120 rows"),
        ({"y": [None] * 120}, "y has no label"),
        ({"y": np.full(120, np.nan)}, "y has no label"),
        ({"y": np.where(Y == 1, -1, Y)}, r"only one class: \[0\]"),
        ({"y": None}, "requires y to be passed"),
        ({"y": Y[:-1]}, r"inconsistent numbers of samples: \[120, 119\]"),
        ({"y": np.c_[Y, Y]}, r"1d array, got an array of shape \(120, 2\)"),
        ({"y": np.where(Y < 0, -1, np.linspace(0, 1, 120))}, "Unknown label type: continuous"),
        ({"sample_weight": (Y != 1).astype(float)}, "Class 1 has no labelled row of positive"),
        ({"sample_weight": (Y < 0).astype(float)}, "Class 0 has no labelled row of positive"),
        ({"sample_weight": np.zeros(120)}, "zero"),
        ({"sample_weight": -np.ones(120)}, "[Nn]egative"),
        ({"sample_weight": np.full(120, np.nan)}, "NaN"),
        ({"sample_weight": np.ones(12)}, r"sample_weight.shape == \(12,\)"),
        ({"X": BROKEN}, "NaN"),
        ({"X": X[L], "y": Y[L], "X_unlabelled": BROKEN[U]}, "NaN"),
        ({"X": X[L], "y": Y[L], "X_unlabelled": ArraySource(BROKEN[U])}, "nan in row 0"),
        ({"X": X[L], "y": Y[L], "X_unlabelled": X[U] + np.inf}, "infinity"),
        ({"X": X[L], "y": Y[L], "X_unlabelled": np.hstack([X, X])}, "4 features.*expecting 2"),
        (
            {"X": X[L], "y": Y[L], "X_unlabelled": ArraySource(np.hstack([X, X]))},
            "4 features.*expecting 2",
        ),
        ({"X": X[L], "y": Y[L], "X_unlabelled": X[:, 0]}, "Expected 2D array"),
        ({"X": X[L], "y": Y[L], "X_unlabelled": X[:0]}, "0 sample"),
        ({"X_unlabelled": ArraySource(X)}, "y marks rows .*put all unlabelled rows into"),
        ({"X": ArraySource(X, Y), "y": None, "X_unlabelled": X}, "put all unlabelled rows"),
        ({"X": ArraySource(X, Y)}, "carries its own y"),
        ({"X": ArraySource(X), "y": None}, "no target"),
    ],
)
def test_bad_data_are_refused_and_change_nothing(args, message):
    recorder = Recorder()
    with pytest.raises(ValueError, match=message):
        make(callbacks=recorder).fit(**({"X": X, "y": Y} | args))
    assert recorder.seen == []
    model = make(max_iter=3).fit(X, Y)
    before, known = model.decision_function(X), set(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fit(**({"X": X, "y": Y} | args))
    assert set(vars(model)) == known
    assert model.classes_.tolist() == [0, 1]
    np.testing.assert_array_equal(model.decision_function(X), before)
    np.testing.assert_array_equal(model.transduction_[L], Y[L])


# -- iterations by cross-validation ----------------------------------------------------


@pytest.mark.parametrize("solver", [*STOCHASTIC, "cccp_s3vm", "cached", "soft_labels"])
def test_early_stopping_takes_the_first_best_iteration(solver):
    Z, _, y = draw(200, 40, noise=0.25, seed=3)
    params = {"solver": solver, "C": 100.0, "max_iter": 30}
    model = make(early_stopping=True, **params).fit(Z, y)
    scores = model.history_["cv_accuracy"]
    assert len(scores) == 30
    assert model.n_iter_ == int(np.argmax(scores)) + 1 < 30
    assert model.best_score_ == max(scores) > 0.8
    assert 40 * np.array(scores) == pytest.approx(np.round(40 * np.array(scores)))
    assert model.fit_status_ == "converged"
    # the share of the unlabelled loss grows over max_iter: not a fit of fewer iterations,
    # but one that was stopped
    stopped = make(callbacks=Recorder(model.n_iter_), **params).fit(Z, y)
    np.testing.assert_array_equal(model.decision_function(Z), stopped.decision_function(Z))
    again = clone(model).fit(Z, y)
    assert again.history_["cv_accuracy"] == scores


def test_folds_need_two_rows_of_each_class():
    y = Y.copy()
    y[np.flatnonzero(Y == 0)[1:]] = -1
    for name in ("early_stopping", "probability"):
        with pytest.raises(DataError, match=r"has 1 distinct labelled row; .*label more"):
            make(**{name: True}).fit(X, y)
    assert make(early_stopping=True, n_folds=50).fit(X, Y).score(X, T) > 0.7


# -- probabilities ---------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["tsg", "bgs3vm", "cached", "soft_labels"])
def test_probabilities(solver):
    model = make(solver=solver, probability=True, max_iter=30).fit(X, NAMED)
    p, f = model.predict_proba(X), model.decision_function(X)
    assert p.shape == (120, 2)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert (np.diff(p[np.argsort(f), 1]) >= 0).all()
    assert log_loss(NAMES[T], p, labels=["a", "b"]) < 0.9 * np.log(2)
    assert log_loss(NAMES[T], p[:, ::-1], labels=["a", "b"]) > np.log(2)
    np.testing.assert_allclose(np.log(p), model.predict_log_proba(X))
    plain = make(solver=solver, max_iter=30).fit(X, Y)
    np.testing.assert_array_equal(plain.decision_function(X), f)
    assert not hasattr(plain, "predict_proba")
    with pytest.raises(AttributeError) as caught:
        plain.predict_proba(X)
    assert "set probability=True" in str(caught.value.__cause__)


# -- other tools -----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Class .* of the labelled rows:UserWarning")
def test_searches_with_marks():
    Z, _, y = draw(300, 90, noise=0.2, seed=2)

    def accuracy(model, rows, labels):
        return model.score(rows[labels >= 0], labels[labels >= 0])

    for scoring in (None, accuracy):
        grid = GridSearchCV(make(), {"C": [1e-4, 10.0]}, cv=3, scoring=scoring).fit(Z, y)
        scores = grid.cv_results_["mean_test_score"]
        assert grid.best_params_ == {"C": 10.0}
        assert scores[1] > scores[0]
    assert cross_val_score(make(), Z, y, cv=3, scoring=accuracy).mean() > 0.85
    losses = GridSearchCV(
        make(unlabelled_loss=Ramp()), {"unlabelled_loss__s": [-0.8, 0.0]}, cv=2
    )
    assert set(losses.fit(Z, y).best_params_) == {"unlabelled_loss__s"}


# -- two moons -------------------------------------------------------------------------


class Attracting(SymmetricHinge):
    """The control: a step towards zero, as a derivative of the wrong sign has it."""

    name = "attracting"

    def gradient(self, f):
        return -super().gradient(f)


@pytest.mark.filterwarnings("ignore:Class .* of the labelled rows:UserWarning")
def test_two_moons_and_the_wrong_sign():
    right, wrong = [], []
    for seed in range(12):
        Z, t, y = draw(300, 10, seed=seed)
        for loss, scores in (("symmetric_hinge", right), (Attracting(), wrong)):
            model = make(unlabelled_loss=loss, gamma=5.0, max_iter=200, random_state=seed)
            scores.append(np.mean(model.fit(Z, y).transduction_[y < 0] == t[y < 0]))
    gain = np.array(right) - np.array(wrong)
    assert np.mean(right) > 0.88
    assert gain.mean() > max(0.1, 3 * gain.std(ddof=1) / np.sqrt(12))
