"""The semi-supervised classifier: objective, marks, sources, streams, choices and refusals."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import make_blobs, make_moons
from sklearn.svm import SVC

import kernelgrad as kg
from cases import every, raises
from kernelgrad.callbacks import TimeIsUp
from kernelgrad.families import held_out
from kernelgrad.losses import Ramp
from kernelgrad.solvers import SoftLabels
from sources import named, opened

WHOLE = ["cccp_s3vm", "s3vm_light", "soft_labels"]


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
    return kg.SemiSupervisedKernelClassifier(
        **({"solver": "tsg", "random_state": 0, "max_iter": 20, "gamma": 2.0} | params)
    )


@pytest.fixture(scope="module")
def base():
    return make().fit(X, Y)


def auto(**params):
    return make(**{"solver": "auto"} | params)


@pytest.mark.parametrize("solver", ["tsg", SoftLabels(choose=False)], ids=repr)
def test_many_classes(solver):
    B, t = make_blobs(120, centers=4, cluster_std=0.6, random_state=0)
    names = np.array(["d", "b", "a", "c"])
    labels = np.where(np.arange(120) < 24, names[t], None)
    labels[0] = "a" if names[t[0]] != "a" else "b"  # a wrong label is kept
    model = make(solver=solver, gamma="median").fit(B, labels)
    f = model.decision_function(B)
    assert f.shape == (120, 4)
    assert model.classes_.tolist() == list("abcd")
    np.testing.assert_array_equal(model.classes_[f.argmax(1)], model.predict(B))
    assert np.mean(model.predict(B) == names[t]) > 0.95
    np.testing.assert_array_equal(model.transduction_[:24], labels[:24])
    np.testing.assert_array_equal(model.transduction_[24:], model.predict(B[24:]))


@pytest.mark.parametrize("solver", ["tsg", "cccp_s3vm"])
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


def test_costs_of_unlabelled_rows():
    def fit(weight=None, **params):
        return make(**params).fit(X, Y, sample_weight=weight).decision_function(X)

    np.testing.assert_array_equal(fit(C_star="auto"), fit(C_star=5.0))
    np.testing.assert_array_equal(fit(C=8.0), fit(C=8.0, C_star=4.0))
    paper = fit(C=8.0, C_star="paper")
    np.testing.assert_allclose(paper, fit(C=8.0, C_star=8.0 * 12 / 108), atol=1e-5)
    assert not np.allclose(paper, fit(C=8.0), atol=1e-2)
    w = np.where(Y < 0, 3.0, 2.0)  # the paper's is one of weights
    np.testing.assert_allclose(fit(w, C_star="paper"), fit(w, C_star=10 * 24 / 324), atol=1e-5)


@pytest.mark.filterwarnings("ignore:Class")
def test_a_comparison_of_kernels_ends_with_the_time_or_by_ctrl_c(monkeypatch):
    def over(*args, **options):
        raise TimeIsUp

    def stopped(*args, callbacks, **options):
        callbacks.interrupted = True

    model = kg.SemiSupervisedKernelClassifier()
    monkeypatch.setattr(held_out, "loop", SimpleNamespace(run=over))
    assert "cv_errors" not in model.fit(X, Y).history_
    monkeypatch.setattr(held_out, "loop", SimpleNamespace(run=stopped))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)


@pytest.mark.filterwarnings("ignore:Class")
def test_a_kernel_that_labels_learn_replaces_the_default_if_held_out_labels_prefer_it(
    monkeypatch,
):
    monkeypatch.setattr("kernelgrad.families.semi_supervised._FOLDS", 3)
    rows = np.random.default_rng(0).normal(size=(180, 8)) * [1.0, *[3.0] * 7]
    codes = (np.abs(rows[:, 0]) > 0.7).astype(int)
    marked = np.where(np.arange(180) < 60, codes, -1)
    model = kg.SemiSupervisedKernelClassifier().fit(rows, marked)
    plain, learned = model.history_["cv_errors"]
    assert learned < plain
    assert np.mean(model.transduction_ != codes) < 0.1
    again = kg.SemiSupervisedKernelClassifier(**model.best_params_).fit(rows, marked)
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    assert again.best_params_["C"] == model.best_params_["C"] != 10.0
    assert "cv_errors" not in again.history_
    few = np.concatenate([L, U[:20]])
    for params in ({"C": 5.0}, {"C_star": 0.0}, {"gamma": 0.1}):
        given = kg.SemiSupervisedKernelClassifier(**params).fit(X[few], Y[few])
        assert "cv_errors" not in given.history_
    model = kg.SemiSupervisedKernelClassifier().fit(X, Y)
    plain, learned = model.history_["cv_errors"]
    assert learned >= plain
    assert model.best_params_["C"] == 10.0
    assert model.kernel_.name == "rbf"


def test_a_metric_is_that_of_multiplied_rows():
    weights = np.array([3.0, 0.5])
    scaled = partial(make, standardize=False, gamma=0.5, solver="cccp_s3vm")
    model, other = scaled(metric=weights).fit(X, Y), scaled().fit(X * weights, Y)
    f, g = model.decision_function(X), other.decision_function(X * weights)
    np.testing.assert_allclose(f, g, atol=0.02)


@pytest.mark.parametrize("solver", ["tsg", "soft_labels"])
def test_no_unlabelled_rows_is_a_supervised_fit(solver):
    svc = SVC(C=0.5, gamma=2.0).fit(X[L], Y[L]).decision_function(X)
    zero = (Y >= 0).astype(float)
    for rows, y, weight in ((X[L], Y[L], None), (X, Y, zero)):
        with pytest.warns(UserWarning, match="There are no unlabelled rows") as caught:
            model = make(C=0.5, solver=solver, max_iter=200).fit(rows, y, sample_weight=weight)
        assert [w.filename for w in caught] == [__file__]
        assert np.corrcoef(model.decision_function(X), svc)[0, 1] > 0.9
        if solver in WHOLE:
            np.testing.assert_allclose(model.decision_function(X), svc, atol=0.01)
        np.testing.assert_array_equal(model.transduction_[y >= 0], y[y >= 0])
        steps = model.n_iter_
        with pytest.warns(UserWarning, match="There are no unlabelled rows"):
            model.set_params(warm_start=True).fit(rows, y, sample_weight=weight)
        assert model.n_iter_ > steps


def clusters(n_0, n_1):
    """20 labels of either class, then unlabelled rows of either."""
    B, t = make_blobs(400, centers=[[-3, 0], [3, 0]], random_state=0)
    zero, one = np.flatnonzero(t == 0), np.flatnonzero(t == 1)
    rows = np.concatenate([zero[: 20 + n_0], one[: 20 + n_1]])
    y = t[rows].copy()
    y[20 : 20 + n_0] = -1
    y[40 + n_0 :] = -1
    return B[rows], y


@pytest.mark.parametrize("solver", ["tsg", SoftLabels(choose=False)], ids=repr)
def test_other_class_fractions_are_told(solver):
    Z, y = clusters(4, 150)
    told = r"^Class 'a' is 50% of the labelled rows, but [23]% .*Lower C_star"
    names = np.array([None if c < 0 else NAMES[c] for c in y], object)
    with pytest.warns(UserWarning, match=told):
        make(solver=solver, gamma="median").fit(Z, names)
    make(solver=solver, gamma="median").fit(*clusters(150, 150))  # warnings are errors


BROKEN = X.copy()
BROKEN[U[0], 0] = np.inf


@every(
    ("args", "message"),
    [
        ({"y": np.full(120, -1)}, "y has no label: all 120 rows"),
        ({"y": [None] * 120}, "y has no label"),
        ({"y": np.where(Y == 1, -1, Y)}, r"only one class: \[0\]"),
        ({"y": None}, "requires y to be passed"),
        ({"y": np.c_[Y, Y]}, r"1d array, got an array of shape \(120, 2\)"),
        ({"y": [None if c < 0 else 2 * int(c) - 1 for c in Y]}, "X_unlabelled"),
        ({"y": np.where(Y < 0, -1, np.linspace(0, 1, 120))}, "Unknown label type: continuous"),
        ({"sample_weight": (Y != 1).astype(float)}, "Class 1 has no labelled row of positive"),
        ({"sample_weight": np.ones(12)}, r"sample_weight.shape == \(12,\)"),
        ({"X": X[L], "y": Y[L], "X_unlabelled": BROKEN[U]}, "infinity"),
        ({"X": X[L], "y": Y[L], "X_unlabelled": kg.ArraySource(BROKEN[U])}, "inf in row 0"),
        ({"X": X[L], "y": Y[L], "X_unlabelled": np.hstack([X, X])}, "4 features.*expecting 2"),
        ({"X": X[L], "y": Y[L], "X_unlabelled": X[:0]}, "0 sample"),
        ({"X": kg.ArraySource(X, Y)}, "carries its own y"),
        ({"X": kg.ArraySource(X, np.full(120, -1)), "y": None}, "no label"),
        ({"X": kg.ArraySource(X, np.where(Y == 1, -1, Y)), "y": None}, "one class"),
        ({"X": kg.ArraySource(X, Y, (Y < 0) * 1.0), "y": None}, "no labelled row of positive"),
    ],
)
def test_bad_data_are_refused_and_change_nothing(args, message):
    model = make(max_iter=3).fit(X, Y)
    before, known = model.decision_function(X), set(vars(model))
    raises(ValueError, message, model.fit, **{"X": X, "y": Y} | args)
    assert set(vars(model)) == known
    np.testing.assert_array_equal(model.decision_function(X), before)


def test_what_marks_do_not_allow():
    model = make(loss="logistic", max_iter=3).fit(X, Y)
    assert not hasattr(model, "predict_proba")
    assert not hasattr(make(), "predict_log_proba")
    raises(ValueError, "give X_val and y_val", make(early_stopping=True).fit, X, Y)
    none = "'block_descent' has no loss of unlabelled rows"
    raises(kg.CapabilityError, none, make(solver="block_descent").fit, X, Y)
    raises(ValueError, "tsg", make(solver="dsg").fit, X, Y)
    raises(ValueError, "margin", auto(loss="perceptron").fit, X, Y)


def with_none(mark, values=(0, 1)):
    return [mark if c < 0 else values[c] for c in Y]


MARKED = [
    Y.tolist(), Y.astype(np.int8), np.where(Y < 0, np.nan, Y), with_none(None),
    np.where((Y < 0) & (np.arange(len(Y)) % 2 == 0), np.nan, Y),
    pd.Series(with_none(pd.NA), dtype="Int64"),
    pd.Series(with_none(pd.NA, (False, True)), dtype="boolean"),
    np.array(with_none(None, (False, True)), object),
    pl.Series(with_none(None)), np.where(Y < 0, -1, 3 * Y - 2),
    NAMED, with_none(np.nan, NAMES), np.array(with_none(pd.NA, NAMES), object),
    pd.Series(NAMED, dtype="string"), pd.Series(NAMED, dtype="category"),
    pl.Series(with_none(None, ("a", "b")), dtype=pl.Categorical),
]  # fmt: skip


SIGNS = (2 * Y - 1)[L]


@every("y", [Y[L], SIGNS, np.array(SIGNS.tolist(), object), Y[L].astype(bool)])
def test_labels_apart_from_other_rows_are_two_classes_of_any_names(base, y):
    model = make().fit(X[L], y, X_unlabelled=X[U])
    np.testing.assert_array_equal(model.decision_function(X), base.decision_function(X))
    assert model.classes_.tolist() == np.unique(y.tolist()).tolist()
    expected = np.concatenate([y, model.predict(X[U])])
    np.testing.assert_array_equal(model.transduction_, expected)


def test_rows_without_labels_may_come_in_two_parts(base):
    first = np.concatenate([L, U[:50]])  # marks in y beside X_unlabelled
    model = make().fit(X[first], Y[first], X_unlabelled=X[U[50:]])
    np.testing.assert_array_equal(model.decision_function(X), base.decision_function(X))
    assert model.labelled_weight_ == len(L)


SINGLE = X.astype(np.float32)


def test_small_files_are_arrays(tmp_path):
    expected, few = auto().fit(SINGLE, Y), (SINGLE[L], Y[L])
    others = opened(tmp_path, "csv", SINGLE[U], name="others")
    for model in (
        auto().fit(opened(tmp_path, "memmap", SINGLE, Y)),
        auto().fit(*few, X_unlabelled=others),
        auto().fit(opened(tmp_path, "csv", *few, name="few"), X_unlabelled=others),
    ):
        assert model.history_["solver"] == "soft_labels"
        f = model.decision_function(named(model, X))
        np.testing.assert_allclose(f, expected.decision_function(X), atol=1e-3)
        assert len(model.transduction_) == len(Y)


@pytest.fixture
def on_disk(monkeypatch):
    """Leave all files where they are."""
    monkeypatch.setattr("kernelgrad.families.reading.Reader.loads", lambda self, source: False)


def test_rows_of_files_are_marked_or_apart(tmp_path, on_disk):
    others, message = opened(tmp_path, "npy", X, name="others"), "put all unlabelled rows"
    raises(ValueError, f"y marks rows .*{message}", make().fit, X, Y, X_unlabelled=others)
    raises(ValueError, message, make().fit, opened(tmp_path, "npy", X, Y), X_unlabelled=X)
    keeps = r"'soft_labels' keeps all rows.*solver='tsg'"
    apart = {"X_unlabelled": opened(tmp_path, "npy", X[U])}
    raises(kg.DataError, keeps, make(solver="soft_labels").fit, X[L], Y[L], **apart)


@pytest.mark.parametrize("solver", ["tsg", "bgs3vm"])
@every("kind", ["memmap", "parquet"])
def test_sources_are_arrays(tmp_path, kind, solver):
    expected = make(solver=solver).fit(SINGLE, Y).decision_function(X)
    others = opened(tmp_path, kind, SINGLE[U])
    model = make(solver=solver).fit(SINGLE[L], Y[L], X_unlabelled=others)
    # small sets are one batch: only the order of sums differs
    np.testing.assert_allclose(model.decision_function(named(model, X)), expected, atol=1e-4)
    assert not hasattr(model, "transduction_")
    assert model.labelled_weight_ == len(L)
    marked = make(solver=solver).fit(opened(tmp_path, kind, SINGLE, Y))
    np.testing.assert_allclose(marked.decision_function(named(marked, X)), expected, atol=1e-4)
    assert marked.labelled_weight_ == len(L)
    everyone = opened(tmp_path, kind, SINGLE, Y)
    assert marked.score(everyone) == marked.score(named(marked, SINGLE), Y) > 0.5


def test_the_solver_follows_where_rows_are(tmp_path, on_disk):
    def solver(model):
        return model.history_["solver"]

    few = np.concatenate([L, U[:20]])
    assert solver(auto().fit(X[few], Y[few])) == "soft_labels"
    others = opened(tmp_path, "npy", SINGLE[U])
    assert solver(auto(max_iter=2).fit(X[L], Y[L], X_unlabelled=others)) == "tsg"
    assert solver(auto().partial_fit(X, Y)) == "tsg"
    for loss in ("gaussian", Ramp()):
        assert solver(auto(unlabelled_loss=loss, max_iter=2).fit(X, Y)) == "tsg"

    def plain(A, B):
        return np.exp(-2 * ((A[:, None] - B[None]) ** 2).sum(axis=2))

    assert solver(auto(kernel=plain, gamma="median").partial_fit(X, Y)) == "bgs3vm"
    with pytest.raises(AttributeError) as error:
        _ = auto().fit(X[few], Y[few]).partial_fit
    assert "'tsg'" in str(error.value.__cause__)


def test_chunks_without_class_zero_keep_their_marks(tmp_path):
    """Where a chunk has labels of class 1 only, -1 is no second class there."""
    n = 150_000
    Z = np.random.default_rng(0).standard_normal((n, 2)).astype(np.float32)
    t = (Z[:, 0] > 0).astype(int)
    y = np.full(n, -1)
    y[:40] = t[:40]
    y[np.flatnonzero(t == 1)[-20:]] = 1
    model = make(gamma=0.5).fit(opened(tmp_path, "npy", Z, y))
    assert model.labelled_weight_ == (y >= 0).sum() == 60
    assert model.classes_.tolist() == [0, 1]
    assert np.mean(model.predict(Z[:2000]) == t[:2000]) > 0.8


STREAM = kg.TSG(batch_size=8, block_size=16)


@every("source", [False, True])
def test_labels_of_class_one_and_marks(source):
    """The classes are known here, so that -1 is a mark."""
    rows = np.concatenate([L[Y[L] == 1], U[:10]])
    given = (kg.ArraySource(X[rows], Y[rows]),) if source else (X[rows], Y[rows])
    model = make(solver=STREAM)
    for labelled in (6, 12):
        model.partial_fit(*given, classes=[0, 1])
        assert model.labelled_weight_ == labelled


def test_streams_need_classes():
    raises(ValueError, "no label", make(solver=STREAM).partial_fit, X[U], Y[U])
    only = make(solver=STREAM).partial_fit(X[U], Y[U], classes=[0, 1])
    np.testing.assert_array_equal(only.decision_function(X), 0.0)
    with pytest.raises(ValueError, match="label 5, which is not among the classes"):
        only.partial_fit(X[:3], [5, -1, 1])
    assert not any(hasattr(make(solver=solver), "partial_fit") for solver in WHOLE)


def test_streams_go_on_after_fit():
    model = make().fit(X, Y)
    model.partial_fit(X, Y).partial_fit(X, Y)
    assert model.labelled_weight_ == 3 * len(L)
    assert not hasattr(model, "transduction_")
    assert model.validation_score_ is None


def test_marks_of_a_source_are_no_mistakes(base):
    weight = np.linspace(0, 1, 120)
    right = base.predict(X[L]) == Y[L]
    assert base.score(kg.ArraySource(X, Y)) == np.mean(right) == base.score(X, Y)
    expected = np.average(right, weights=weight[L])
    assert base.score(kg.ArraySource(X, Y, weight)) == pytest.approx(expected)
    raises(kg.DataError, "No row has a label", base.score, kg.ArraySource(X, np.full(120, -1)))


@every("y", MARKED)
def test_marks(base, y):
    model = make().fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), base.decision_function(X))
    assert len(model.classes_) == 2
    np.testing.assert_array_equal(model.transduction_, model.classes_[base.transduction_])
    np.testing.assert_array_equal(model.predict(X), model.classes_[base.predict(X)])
