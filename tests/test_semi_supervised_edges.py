"""Edges of the semi-supervised classifier: costs of folds and streams, sources, choices."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import make_moons

from kernelgrad import ArraySource, DataError, SemiSupervisedKernelClassifier
from kernelgrad.estimators._marks import MarkedClassification, SemiSupervisedRows
from kernelgrad.losses import Hinge, Ramp
from kernelgrad.solvers import TSG

X, T = make_moons(120, noise=0.1, random_state=0)
Y = np.full(120, -1)
for _c in (0, 1):
    _at = np.flatnonzero(_c == T)[:10]
    Y[_at] = _c
L = Y >= 0


def make(**params):
    return SemiSupervisedKernelClassifier(
        **({"random_state": 0, "max_iter": 20, "gamma": 2.0} | params)
    )


def test_a_kernel_of_zeros_gives_the_constant():
    model = make(kernel="precomputed", gamma="median").fit(np.zeros((120, 120)), Y)
    f = model.decision_function(np.zeros((5, 120)))
    assert np.isfinite(f).all()
    assert np.ptp(f) == 0


@pytest.mark.parametrize("first", [slice(0, 120), slice(0, 60)])
def test_sources_without_declared_classes(first):
    source = ArraySource(X[first], Y[first])
    model = make(solver="tsg").partial_fit(source)
    np.testing.assert_array_equal(model.classes_, [0, 1])
    arrays = make(solver="tsg").partial_fit(X[first], Y[first])
    np.testing.assert_array_equal(model.decision_function(X), arrays.decision_function(X))
    with pytest.raises(DataError, match="no label"):
        make(solver="tsg").partial_fit(ArraySource(X, np.full(120, -1)))
    with pytest.raises(ValueError, match="rows of every class"):
        make(solver="tsg", class_weight="balanced").partial_fit(source, classes=[0, 1, 2])


def test_marks_of_a_source_are_no_mistakes():
    model = make().fit(X, Y)
    expected = np.mean(model.predict(X[L]) == Y[L])
    assert model.score(ArraySource(X, Y)) == expected == model.score(X, Y)
    weight = np.linspace(0, 1, 120)
    found = model.score(ArraySource(X, Y, weight))
    assert found == pytest.approx(np.average(model.predict(X[L]) == Y[L], weights=weight[L]))
    with pytest.raises(DataError, match="No row has a label"):
        model.score(ArraySource(X, np.full(120, -1)))


def test_calibration_is_that_of_the_last_fit():
    three = np.where(L & (X[:, 0] > 1), 2, Y)
    model = make(probability=True).fit(X, Y)
    assert model.calibration_.shape == (1, 2)
    model.set_params(probability=False).fit(X, three)
    assert not hasattr(model, "calibration_")
    warm = make(solver="tsg", warm_start=True, probability=True).fit(X, Y)
    with pytest.raises(ValueError, match="warm_start"):
        warm.fit(X, Y)


@pytest.mark.parametrize("solver", ["dsg", "udsg", "cdsg"])
def test_solvers_that_mix_both_kinds_are_refused(solver):
    with pytest.raises(ValueError, match="tsg"):
        make(solver=solver).fit(X, Y)
    with pytest.raises(ValueError, match="margin"):
        make(loss="perceptron").fit(X, Y)


def test_auto_takes_what_can_do_what_is_asked():
    cases = {
        "soft_labels": make(),
        "tsg": make(unlabelled_loss="gaussian"),
    }
    for name, model in cases.items():
        assert model.fit(X, Y).history_["solver"] == name
    assert make(unlabelled_loss=Ramp()).fit(X, Y).history_["solver"] == "tsg"

    def plain(A, B):
        return np.exp(-2 * ((A[:, None] - B[None]) ** 2).sum(axis=2))

    model = make(kernel=plain, gamma="median")
    assert model.partial_fit(X, Y).history_["solver"] == "bgs3vm"
    with pytest.raises(AttributeError) as error:
        _ = make().fit(X, Y).partial_fit
    assert "'tsg'" in str(error.value.__cause__)


def test_folds_keep_the_cost_of_a_label(monkeypatch):
    costs = []
    init = TSG.init

    def watched(self, problem, batch):
        known = batch.y.any(axis=1)
        costs.append((problem.alpha, int(known.sum())))
        return init(self, problem, batch)

    monkeypatch.setattr(TSG, "init", watched)
    make(solver="tsg", early_stopping=True, n_folds=2, C=3.0).fit(X, Y)
    assert len(costs) == 3
    for alpha, labelled in costs:  # alpha = 1 / (2 C n)
        assert 1 / (2 * alpha * labelled) == pytest.approx(3.0)


def test_the_best_iteration_is_the_calibrated_one():
    params = {"solver": "tsg", "early_stopping": True, "probability": True, "max_iter": 30}
    model = make(**params).fit(X, Y)
    assert len(model.history_["cv_accuracy"]) == 30
    assert model.n_iter_ == 1 + int(np.argmax(model.history_["cv_accuracy"]))
    last = make(**(params | {"early_stopping": False})).fit(X, Y)
    if model.n_iter_ < 30:
        assert not np.array_equal(model.calibration_, last.calibration_)


def test_warnings_point_at_the_caller():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make(solver="tsg").fit(X[L], Y[L])
    assert [w.filename for w in caught] == [__file__]


def test_a_late_first_label_takes_whole_steps():
    """Steps follow the penalty of the labels so far, not that of the first call."""
    rng = np.random.default_rng(0)
    sizes = []
    for first in (np.full(200, -1), None):
        model = make(solver="tsg", C=0.1)
        rows = rng.standard_normal((200, 2))
        y = (rows[:, 0] > 0).astype(int) if first is None else first
        model.partial_fit(rows, y, classes=[0, 1])
        rows = rng.standard_normal((4000, 2))
        model.partial_fit(rows, (rows[:, 0] > 0).astype(int))
        sizes.append(np.abs(model.decision_function(rows)).mean())
    assert 0.5 < sizes[0] / sizes[1] < 2.0


def test_rows_of_either_kind_have_numbers_of_their_own():
    task = MarkedClassification(Hinge(), np.array([0, 1]))
    labelled, others = ArraySource(X[L], Y[L]), ArraySource(X[~L])
    batch = SemiSupervisedRows(labelled, task, unlabelled=others).whole()
    assert len(np.unique(batch.rows)) == len(X)
    np.testing.assert_array_equal(batch.y.ravel() != 0, np.arange(len(X)) < L.sum())


def test_without_unlabelled_rows_the_cost_is_that_of_svc():
    with pytest.warns(UserWarning, match="no unlabelled rows"):
        model = make(solver="cached", C=3.0).fit(X, T)
    assert model.model_info()["alpha"] == pytest.approx(1 / (3.0 * len(X)))
