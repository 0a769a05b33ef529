"""The semi-supervised classifier: objective, marks, sources, streams, choices and refusals."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_wine, make_blobs, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.svm import SVC

from cases import every
from kernelgrad import (
    TSG,
    ArraySource,
    DataError,
    SemiSupervisedKernelClassifier,
)
from kernelgrad.callbacks import Callback
from kernelgrad.estimators.partly_labelled import MarkedClassification, SemiSupervisedRows
from kernelgrad.losses import Hinge, Ramp, SymmetricHinge
from sources import KINDS, named, opened

STOCHASTIC = ["tsg", "fr_s3vm", "bgs3vm"]
S3VM = ["cccp_s3vm", "s3vm_light", "cached"]
WHOLE = [*S3VM, "soft_labels"]
SOLVERS = STOCHASTIC + WHOLE
SUPERVISED = "There are no unlabelled rows"
each_stream = pytest.mark.parametrize("solver", STOCHASTIC)
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
TWENTY = np.full(120, -1)  # the first ten labels of each class
for _c in (0, 1):
    TWENTY[np.flatnonzero(_c == T)[:10]] = _c
KNOWN = TWENTY >= 0


def make(**params):
    return SemiSupervisedKernelClassifier(
        **({"solver": "tsg", "random_state": 0, "max_iter": 20, "gamma": 2.0} | params)
    )


@pytest.fixture(scope="module")
def base():
    return make().fit(X, Y)


def auto(**params):
    return make(**{"solver": "auto"} | params)


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


@every("C", [1.0, 10.0])
@every("seed", range(3))
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


BROKEN = X.copy()
BROKEN[U[0], 0] = np.inf


@every(
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
        ({"X": BROKEN}, "infinity"),
        ({"X": X[L], "y": Y[L], "X_unlabelled": BROKEN[U]}, "infinity"),
        ({"X": X[L], "y": Y[L], "X_unlabelled": ArraySource(BROKEN[U])}, "inf in row 0"),
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


@pytest.mark.parametrize(
    "solver",
    [*STOCHASTIC, "cccp_s3vm", "cached", pytest.param("soft_labels", marks=pytest.mark.slow)],
)
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


def with_none(mark, values=(0, 1)):
    return [mark if c < 0 else values[c] for c in Y]


HALF = np.where((Y < 0) & (np.arange(len(Y)) % 2 == 0), np.nan, Y)
MARKED = {
    "int": Y,
    "int8": Y.astype(np.int8),
    "list": Y.tolist(),
    "float -1": Y.astype(float),
    "float NaN": np.where(Y < 0, np.nan, Y),
    "float32 NaN": np.where(Y < 0, np.nan, Y).astype(np.float32),
    "both": HALF,
    "list of None": with_none(None),
    "list of NaN": with_none(np.nan),
    "Int64": pd.Series(with_none(pd.NA), dtype="Int64"),
    "boolean": pd.Series(with_none(pd.NA, (False, True)), dtype="boolean"),
    "object bool": np.array(with_none(None, (False, True)), object),
    "polars int": pl.Series(with_none(None)),
    "polars bool": pl.Series(with_none(None, (False, True))),
    "polars -1": pl.Series(Y),
    "pandas float": pd.Series(np.where(Y < 0, np.nan, Y)),
    "other classes": np.where(Y < 0, -1, Y + 1),
    "negative classes": np.where(Y < 0, -1, 3 * Y - 2),
}
NAMED_MARKS = {
    "None": NAMED,
    "NaN": np.array(with_none(np.nan, NAMES), object),
    "NA": np.array(with_none(pd.NA, NAMES), object),
    "list": with_none(None, NAMES),
    "series": pd.Series(NAMED),
    "string": pd.Series(NAMED, dtype="string"),
    "category": pd.Series(NAMED, dtype="category"),
    "polars": pl.Series(with_none(None, ("a", "b"))),
    "polars categories": pl.Series(with_none(None, ("a", "b")), dtype=pl.Categorical),
}


@every("y", MARKED.values())
def test_marks_of_numbers(base, y):
    model = make().fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), base.decision_function(X))
    assert len(model.classes_) == 2
    np.testing.assert_array_equal(model.transduction_, model.classes_[base.transduction_])
    np.testing.assert_array_equal(model.predict(X), model.classes_[base.predict(X)])


@every("y", NAMED_MARKS.values())
def test_marks_of_names(base, y):
    model = make().fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), base.decision_function(X))
    assert model.classes_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(model.transduction_, NAMES[base.transduction_])


SIGNS = (2 * Y - 1)[L]


@every(
    "y",
    [SIGNS, SIGNS.astype(float), np.array(SIGNS.tolist(), object), Y[L].astype(bool), Y[L]],
)
def test_minus_one_and_one_are_two_classes(base, y):
    model = make().fit(X[L], y, X_unlabelled=X[U])
    np.testing.assert_array_equal(model.decision_function(X), base.decision_function(X))
    assert model.classes_.tolist() == np.unique(y.tolist()).tolist()
    expected = np.concatenate([y, model.predict(X[U])])
    np.testing.assert_array_equal(model.transduction_, expected)


@every("mark", [None, np.nan])
def test_signs_with_a_mark_are_explained(mark):
    y = [mark if c < 0 else 2 * int(c) - 1 for c in Y]
    with pytest.raises(ValueError, match="X_unlabelled"):
        make().fit(X, y)


def test_labels_of_two_types_are_refused():
    """As KernelClassifier does, rather than call the number 3 the text '3'."""
    with pytest.raises((ValueError, TypeError), match="label"):
        make().fit(X, np.array(with_none(None, (3, "a")), object))


@pytest.mark.parametrize("sparse", [False, True])
def test_other_rows_may_come_by_themselves(sparse):
    form = sp.csr_matrix if sparse else np.asarray
    whole = make().fit(form(X), Y)
    forms = [form(X[U])] if sparse else [X[U], X[U].tolist(), X[U].astype(np.float64)]
    for rows in forms:
        model = make().fit(form(X[L]), Y[L], X_unlabelled=rows)
        np.testing.assert_array_equal(model.decision_function(X), whole.decision_function(X))
        order = np.argsort(np.concatenate([L, U]))
        np.testing.assert_array_equal(model.transduction_[order], whole.transduction_)
    y = Y.copy()
    y[L[1::2]] = -1  # marks in y beside X_unlabelled
    first = np.concatenate([L, U[:50]])
    some = make().fit(form(X[first]), y[first], X_unlabelled=form(X[U[50:]]))
    every = make().fit(form(X), y)
    np.testing.assert_array_equal(some.decision_function(X), every.decision_function(X))
    assert some.labelled_weight_ == 6


SINGLE = X.astype(np.float32)


@each_stream
@every("kind", ["memmap", *KINDS])
def test_sources_are_arrays(tmp_path, kind, solver):
    expected = make(solver=solver).fit(SINGLE, Y).decision_function(X)
    others = opened(tmp_path, kind, SINGLE[U])
    model = make(solver=solver).fit(SINGLE[L], Y[L], X_unlabelled=others)
    # small sets are one batch: only the order of sums differs
    np.testing.assert_allclose(model.decision_function(named(model, X)), expected, atol=1e-4)
    assert not hasattr(model, "transduction_")
    assert model.labelled_weight_ == len(L)
    arrays = make(solver=solver).fit(SINGLE[L], Y[L], X_unlabelled=ArraySource(SINGLE[U]))
    if kind != "csv":
        np.testing.assert_array_equal(
            model.decision_function(named(model, X)), arrays.decision_function(X)
        )
    marked = make(solver=solver).fit(opened(tmp_path, kind, SINGLE, Y))
    np.testing.assert_allclose(marked.decision_function(named(marked, X)), expected, atol=1e-4)
    assert marked.labelled_weight_ == len(L)


@pytest.mark.parametrize("solver", WHOLE)
def test_solvers_that_keep_all_rows_refuse_files(tmp_path, solver):
    with pytest.raises(DataError, match=f"'{solver}' keeps all rows.*solver='tsg'"):
        make(solver=solver).fit(X[L], Y[L], X_unlabelled=opened(tmp_path, "npz", X[U]))
    model = make(solver=solver).fit(X[L], Y[L], X_unlabelled=ArraySource(X[U]))
    assert model.score(X, T) > 0.75


def test_the_solver_follows_where_rows_are(tmp_path):
    arrays = make(solver="auto").fit(X, Y)
    assert arrays.history_["solver"] == "soft_labels"
    plain = make(solver="soft_labels").fit(X, Y)
    np.testing.assert_array_equal(arrays.decision_function(X), plain.decision_function(X))
    others = opened(tmp_path, "npz", SINGLE[U])
    disk = make(solver="auto").fit(X[L], Y[L], X_unlabelled=others)
    assert disk.history_["solver"] == "tsg"
    tsg = make().fit(X[L], Y[L], X_unlabelled=others)
    np.testing.assert_array_equal(disk.decision_function(X), tsg.decision_function(X))
    one = make(solver="auto").partial_fit(X, Y)
    np.testing.assert_array_equal(
        one.decision_function(X), make().partial_fit(X, Y).decision_function(X)
    )


def test_sources_with_targets_and_weights(tmp_path):
    first = make().fit(X[L], Y[L], X_unlabelled=ArraySource(X[U]))
    targets = make().fit(X[L], Y[L], X_unlabelled=ArraySource(X[U], T[U]))
    np.testing.assert_array_equal(targets.decision_function(X), first.decision_function(X))
    solver = TSG(block_size=32)  # by default it follows the number of rows, of any weight
    w = np.where(np.arange(len(Y)) % 3, 1.0, 0.0)
    w[L] = np.resize([1.0, 0.0, 2.0], len(L))
    expected = make(solver=solver).fit(SINGLE, Y, sample_weight=w).decision_function(X)
    model = make(solver=solver).fit(opened(tmp_path, "npz", SINGLE, Y, w))
    np.testing.assert_allclose(model.decision_function(X), expected, atol=0.1)
    assert model.labelled_weight_ == w[L].sum()
    plain = make(solver=solver).fit(SINGLE, Y).decision_function(X)
    assert np.abs(plain - expected).max() > 0.2


@pytest.mark.parametrize("kind", ["memmap", *KINDS])
def test_chunks_without_class_zero_keep_their_marks(tmp_path, kind):
    """Where a chunk has labels of class 1 only, -1 is no second class there."""
    rng = np.random.default_rng(0)
    n = 150_000 if kind in ("memmap", "npz") else 3000
    Z = rng.standard_normal((n, 2)).astype(np.float32)
    t = (Z[:, 0] > 0).astype(int)
    y = np.full(n, -1)
    y[:40] = t[:40]
    y[np.flatnonzero(t == 1)[-20:]] = 1
    model = make(gamma=0.5).fit(opened(tmp_path, kind, Z, y))
    assert model.labelled_weight_ == (y >= 0).sum() == 60
    assert model.classes_.tolist() == [0, 1]
    assert (
        np.mean(
            model.classes_[(model.decision_function(named(model, Z[:2000])) > 0).astype(int)]
            == t[:2000]
        )
        > 0.8
    )


@every(
    ("X_", "y", "extra", "match"),
    [
        (ArraySource(X, Y, (Y != 1).astype(float)), None, None, "[Cc]lass 1"),
        (X[L], Y[L], ArraySource(X[U]), "[Cc]lass 1"),
        (ArraySource(X, np.full(120, -1)), None, None, "no label"),
        (ArraySource(X, np.where(Y == 1, -1, Y)), None, None, "one class"),
        (ArraySource(X, Y, (Y < 0).astype(float)), None, None, "no labelled row of positive"),
    ],
)
def test_sources_without_a_class(X_, y, extra, match):
    weight = None if y is None else (y != 1).astype(float)
    with pytest.raises(ValueError, match=match):
        make().fit(X_, y, weight, X_unlabelled=extra)


PAIRS = np.stack([L[Y[L] == c] for c in (0, 1)], axis=1)  # a label of each class
PARTS = [np.r_[pair, U[14 * i : 14 * i + 14]] for i, pair in enumerate(PAIRS)] + [U[84:100]]


def stream(**params):
    return make(**({"solver": TSG(batch_size=8, block_size=16)} | params))


def feed(model, parts, y=Y):
    for rows in parts:
        model.partial_fit(X[rows], y[rows], classes=[0, 1])
    return model


@each_stream
def test_any_mixture_of_rows(solver):
    zeros, ones = L[Y[L] == 0], L[Y[L] == 1]
    model = make(solver=solver)
    for rows in (U[:30], L, U[30:60], L[:1], np.concatenate([zeros, U[60:70]]), zeros, ones):
        model.partial_fit(X[rows], Y[rows], classes=[0, 1])
    assert model.n_iter_ == 7
    assert np.isfinite(model.decision_function(X)).all()
    assert model.score(X, T) > 0.7


@pytest.mark.parametrize("form", ["array", "source"])
@pytest.mark.parametrize("first", [True, False])
def test_labels_of_class_one_and_marks(first, form):
    """The classes are known here, so that -1 is a mark."""
    rows = np.concatenate([L[Y[L] == 1], U[:10]])
    model = stream() if first else feed(stream(), PARTS)
    before = getattr(model, "labelled_weight_", 0)
    if form == "array":
        model.partial_fit(X[rows], Y[rows], classes=[0, 1])
    else:
        model.partial_fit(ArraySource(X[rows], Y[rows]), classes=[0, 1])
    assert model.labelled_weight_ == before + 6


def test_signs_may_be_classes_of_a_stream():
    model = stream().partial_fit(X[L], 2 * Y[L] - 1, classes=[-1, 1])
    assert model.partial_fit(X[:3], [-1, -1, 1]).labelled_weight_ == len(L) + 3
    assert model.partial_fit(X[:3], [None, None, 1]).classes_.tolist() == [-1, 1]


def test_streams_need_classes():
    with pytest.raises(ValueError, match="no label"):
        stream().partial_fit(X[U], Y[U])
    only = stream().partial_fit(X[U], Y[U], classes=[0, 1])
    np.testing.assert_array_equal(only.decision_function(X), 0.0)
    with pytest.raises(ValueError, match="label 5, which is not among the classes"):
        feed(stream(), PARTS).partial_fit(X[:3], [5, -1, 1])
    for solver in WHOLE:
        assert not hasattr(make(solver=solver), "partial_fit")


def test_streams_go_on_after_fit():
    model = make(probability=True).fit(X, Y)
    assert hasattr(model, "transduction_")
    assert hasattr(model, "calibration_")
    model.partial_fit(X, Y)
    assert not hasattr(model, "transduction_")
    assert model.labelled_weight_ == 2 * len(L)
    assert not hasattr(model, "calibration_")  # it was of another function
    with pytest.raises(NotFittedError):
        model.predict_proba(X)
    with pytest.raises(NotFittedError):
        stream(probability=True).partial_fit(X, Y).predict_proba(X)


def test_a_kernel_of_zeros_gives_the_constant():
    model = auto(kernel="precomputed", gamma="median").fit(np.zeros((120, 120)), TWENTY)
    f = model.decision_function(np.zeros((5, 120)))
    assert np.isfinite(f).all()
    assert np.ptp(f) == 0


@pytest.mark.parametrize("first", [slice(0, 120), slice(0, 60)])
def test_sources_without_declared_classes(first):
    source = ArraySource(X[first], TWENTY[first])
    model = make().partial_fit(source)
    np.testing.assert_array_equal(model.classes_, [0, 1])
    arrays = make().partial_fit(X[first], TWENTY[first])
    np.testing.assert_array_equal(model.decision_function(X), arrays.decision_function(X))
    with pytest.raises(DataError, match="no label"):
        make().partial_fit(ArraySource(X, np.full(120, -1)))
    with pytest.raises(ValueError, match="rows of every class"):
        make(class_weight="balanced").partial_fit(source, classes=[0, 1, 2])


def test_marks_of_a_source_are_no_mistakes():
    model = auto().fit(X, TWENTY)
    expected = np.mean(model.predict(X[KNOWN]) == TWENTY[KNOWN])
    assert model.score(ArraySource(X, TWENTY)) == expected == model.score(X, TWENTY)
    weight = np.linspace(0, 1, 120)
    found = model.score(ArraySource(X, TWENTY, weight))
    assert found == pytest.approx(
        np.average(model.predict(X[KNOWN]) == TWENTY[KNOWN], weights=weight[KNOWN])
    )
    with pytest.raises(DataError, match="No row has a label"):
        model.score(ArraySource(X, np.full(120, -1)))


def test_calibration_is_that_of_the_last_fit():
    three = np.where(KNOWN & (X[:, 0] > 1), 2, TWENTY)
    model = auto(probability=True).fit(X, TWENTY)
    assert model.calibration_.shape == (1, 2)
    model.set_params(probability=False).fit(X, three)
    assert not hasattr(model, "calibration_")
    warm = make(warm_start=True, probability=True).fit(X, TWENTY)
    with pytest.raises(ValueError, match="warm_start"):
        warm.fit(X, TWENTY)


@every("solver", ["dsg", "udsg", "cdsg"])
def test_solvers_that_mix_both_kinds_are_refused(solver):
    with pytest.raises(ValueError, match="tsg"):
        make(solver=solver).fit(X, TWENTY)
    with pytest.raises(ValueError, match="margin"):
        auto(loss="perceptron").fit(X, TWENTY)


def test_auto_takes_what_can_do_what_is_asked():
    for loss, name in (
        ("symmetric_hinge", "soft_labels"),
        ("gaussian", "tsg"),
        (Ramp(), "tsg"),
    ):
        assert auto(unlabelled_loss=loss).fit(X, TWENTY).history_["solver"] == name

    def plain(A, B):
        return np.exp(-2 * ((A[:, None] - B[None]) ** 2).sum(axis=2))

    model = auto(kernel=plain, gamma="median")
    assert model.partial_fit(X, TWENTY).history_["solver"] == "bgs3vm"
    with pytest.raises(AttributeError) as error:
        _ = auto().fit(X, TWENTY).partial_fit
    assert "'tsg'" in str(error.value.__cause__)


def test_folds_keep_the_cost_of_a_label(monkeypatch):
    costs = []
    init = TSG.init

    def watched(self, problem, batch):
        known = batch.y.any(axis=1)
        costs.append((problem.alpha, int(known.sum())))
        return init(self, problem, batch)

    monkeypatch.setattr(TSG, "init", watched)
    make(early_stopping=True, n_folds=2, C=3.0).fit(X, TWENTY)
    assert len(costs) == 3
    for alpha, labelled in costs:  # alpha = 1 / (2 C n)
        assert 1 / (2 * alpha * labelled) == pytest.approx(3.0)


def test_the_best_iteration_is_the_calibrated_one():
    params = {"solver": "tsg", "early_stopping": True, "probability": True, "max_iter": 30}
    model = make(**params).fit(X, TWENTY)
    assert len(model.history_["cv_accuracy"]) == 30
    assert model.n_iter_ == 1 + int(np.argmax(model.history_["cv_accuracy"]))
    last = make(**(params | {"early_stopping": False})).fit(X, TWENTY)
    if model.n_iter_ < 30:
        assert not np.array_equal(model.calibration_, last.calibration_)


def test_a_late_first_label_takes_whole_steps():
    """Steps follow the penalty of the labels so far, not that of the first call."""
    rng = np.random.default_rng(0)
    sizes = []
    for first in (np.full(200, -1), None):
        model = make(C=0.1)
        rows = rng.standard_normal((200, 2))
        y = (rows[:, 0] > 0).astype(int) if first is None else first
        model.partial_fit(rows, y, classes=[0, 1])
        rows = rng.standard_normal((4000, 2))
        model.partial_fit(rows, (rows[:, 0] > 0).astype(int))
        sizes.append(np.abs(model.decision_function(rows)).mean())
    assert 0.5 < sizes[0] / sizes[1] < 2.0


def test_rows_of_either_kind_have_numbers_of_their_own():
    task = MarkedClassification(Hinge(), np.array([0, 1]))
    labelled, others = ArraySource(X[KNOWN], TWENTY[KNOWN]), ArraySource(X[~KNOWN])
    batch = SemiSupervisedRows(labelled, task, unlabelled=others).whole()
    assert len(np.unique(batch.rows)) == len(X)
    np.testing.assert_array_equal(batch.y.ravel() != 0, np.arange(len(X)) < KNOWN.sum())


def test_without_unlabelled_rows_the_cost_is_that_of_svc():
    with pytest.warns(UserWarning, match="no unlabelled rows"):
        model = make(solver="cached", C=3.0).fit(X, T)
    assert model.model_info()["alpha"] == pytest.approx(1 / (3.0 * len(X)))


def test_columns_in_different_units_do_not_decide_alone():
    X, y = load_wine(return_X_y=True)
    marked = np.where(np.random.default_rng(0).random(len(y)) < 0.25, y, -1)
    model = partial(SemiSupervisedKernelClassifier, random_state=0)
    errors = [
        1 - model(standardize=rule).fit(X, marked).score(X, y) for rule in ("auto", False)
    ]
    assert errors[0] < 0.1 < 0.25 < errors[1]
