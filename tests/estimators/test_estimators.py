"""Estimators: scikit-learn's conventions, invariances, errors."""

import os
import signal
import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning

import kernelgrad as kg
from cases import every, raises
from kernelgrad import DSG, ArraySource, DataError, KernelClassifier, KernelRegressor
from kernelgrad.tasks import weights_of_classes
from kernelgrad.training_rows import TrainingRows
from plain import plain_classifier, plain_regressor


@pytest.fixture(scope="module")
def moons():
    return make_moons(1200, noise=0.15, random_state=0)


def test_streams_with_classes_that_come_late():
    rng = np.random.default_rng(0)
    solver = DSG(block_size=32, batch_size=256)
    model = plain_classifier(random_state=0, gamma=0.5, solver=solver)
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit([[np.inf, 0.0], [0.0, 0.0]], ["a", "b"], classes=["x", "y"])
    X = rng.standard_normal((256, 2))
    model.partial_fit(X, np.where(X[:, 0] > 0, "b", "a"), classes=["a", "b", "c"])
    for _ in range(10):
        X = rng.standard_normal((256, 2)) + 1.0
        model.partial_fit(X, np.where(X[:, 1] > 1, "c", np.where(X[:, 0] > 0, "b", "a")))
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.history_["epoch"] == [float(n) for n in range(1, 12)]
    assert set(model.predict(X)) == {"a", "b", "c"}
    for message, y, more in (
        ("label 'z', which is not among the classes", ["a", "z", "b"], {}),
        ("not the same as on the first call", ["a", "b", "b"], {"classes": ["a", "b"]}),
    ):
        raises(ValueError, message, model.partial_fit, X[:3], y, **more)
    assert model.fit(X, X[:, 0] > 1).classes_.tolist() == [False, True]  # begins anew


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_interrupt_in_the_last_iteration_is_not_swallowed(moons, monkeypatch):
    solve = kg.DirectSolve.step

    def interrupted(self, *args):
        signal.raise_signal(signal.SIGINT)
        return solve(self, *args)

    monkeypatch.setattr(kg.DirectSolve, "step", interrupted)
    model = KernelRegressor(solver="direct", gamma=1.0, alpha=1e-3)
    raises(KeyboardInterrupt, "after 1 iterations", model.fit, *moons)
    assert model.fit_status_ == "converged"
    model = KernelClassifier("squared", solver="direct", gamma=1.0, alpha=1e-3)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):  # the fit that calibrates
        model.fit(*moons)
    assert not hasattr(model, "fit_status_")


@every(
    ("X", "y", "message"),
    [
        (np.ones((12, 2)), np.arange(12, dtype=object), r"objects of types int; .*astype"),
        (np.ones((12, 2)), "price", "y is 'price'; give one target for each row"),
        (
            pd.DataFrame(index=range(12)),
            np.arange(12),
            r"0 feature.* give a table with columns",
        ),
    ],
)
def test_wrong_data(X, y, message):
    with pytest.raises(ValueError, match=message):
        plain_classifier().fit(X, y)


def test_wrong_calls(moons):
    X, y = moons
    model = plain_classifier("hinge", solver="dsg", max_iter=2, probability=False).fit(X, y)
    with pytest.raises(AttributeError, match="has no predict_proba: ") as caught:
        model.predict_proba(X)
    assert "or use loss='log_loss'" in str(caught.value.__cause__)
    regressor = plain_regressor(solver="dsg", max_iter=2).fit(X, y)
    text = np.where(y > 0, "a", "b")
    for error, message, call in [
        (DataError, "no target", lambda: model.fit(ArraySource(X))),
        (ValueError, "zero", lambda: clone(model).fit(X, y, sample_weight=0 * y)),
        (DataError, "weight holds '[ab]' in row 0", lambda: clone(model).fit(X, y, text)),
        (ValueError, "carries its own y", lambda: model.fit(ArraySource(X, y), y)),
        (DataError, "use KernelReg", lambda: clone(model).fit(ArraySource(X, X[:, 0]))),
        (DataError, "use KernelCl", lambda: clone(regressor).fit(ArraySource(X, text))),
        (ValueError, "outputs", lambda: regressor.partial_fit(X, X)),
    ]:
        raises(error, message, call)


def test_attributes_of_a_subclass_survive_its_fit(moons):
    class Own(KernelClassifier):
        def fit(self, X, y):
            self.means_ = X.mean(axis=0)
            return super().fit(X, y)

    model = Own(gamma=1.0, alpha=1e-3, metric=None, max_iter=2)
    for _ in range(2):
        assert model.fit(moons[0][:100], moons[1][:100]).means_.shape == (2,)


def test_a_model_without_state_is_not_silently_replaced(moons, tmp_path):
    model = plain_regressor(solver="dsg", max_iter=2, random_state=0, warm_start=True)
    model.fit(*moons).save(tmp_path / "m")
    model = kg.load(tmp_path / "m")
    for call in (model.partial_fit, model.fit):
        raises(ValueError, "loaded without the solver's state", call, *moons)


def test_columns_of_a_source_are_matched_by_name(moons):
    model = plain_regressor(solver="dsg", max_iter=2)
    model.fit(ArraySource(*moons, feature_names=["a", "b"]))
    for call in (model.predict, model.partial_fit):
        with pytest.raises(ValueError, match="Column 0 of the source is 'b'"):
            call(ArraySource(*moons, feature_names=["b", "a"]))
        with pytest.raises(ValueError, match="has 3 features"):
            call(ArraySource(np.c_[moons[0], moons[1]], moons[1]))


def test_divergence_is_an_error_and_changes_nothing():
    X = np.random.default_rng(0).standard_normal((300, 5))
    solver = DSG(preconditioned=False, step_size=1e6, decay=np.inf)
    model = plain_regressor(solver=solver, max_iter=80, random_state=0)
    with pytest.raises(FloatingPointError, match=r"diverged at iteration .*lower step_size"):
        model.fit(X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2])
    assert not hasattr(model, "expansion_")


@pytest.mark.usefixtures("tiny_limits")
def test_sources_with_weights(moons):
    X, y = moons
    X, y = X[:400], y[:400].copy()
    weight = np.repeat([0.0, 1.0], [100, 300])
    junk = np.where(weight > 0, y, 1 - y)
    source = ArraySource(X, junk, weight)
    model = plain_classifier(random_state=0, max_iter=20, early_stopping=True).fit(source)
    assert model.best_score_ > 0.9
    assert model.score(source) == pytest.approx(model.score(X[100:], y[100:]))
    late = [SimpleNamespace(batch=b, fraction=f) for b, f in ((None, 0.5), ("rows", 1.0))]
    whole = SimpleNamespace(weighed=lambda batch: (junk, weight))
    usable = TrainingRows.usable(whole, source.take(np.arange(400)))
    assert usable[3].tolist() == [*range(100, 400)]
    taken = SimpleNamespace(batch=lambda batch: batch)  # no row of the first batch counts
    assert [*TrainingRows.sampled(taken, late)] == [("rows", 1.0)]
    nothing = ArraySource(X, y, np.zeros(400))
    nothing.in_memory = False
    with pytest.raises(DataError, match=r"sample weights of .* rows are zero"):
        plain_classifier(max_iter=2, memory_limit="1B").fit(nothing)
    with pytest.raises(ValueError, match=r"class_weight of 0 is -1\.0"):
        plain_classifier(class_weight={0: -1.0, 1: 1.0}).fit(ArraySource(X, y))
    with pytest.raises(ValueError, match=r"a weight for 2, but the classes are \[0, 1\]"):
        plain_classifier(class_weight={0: 1.0, 2: 1.0}).fit(X, y)
    assert weights_of_classes({1: 3.0}, np.arange(2), np.ones(2)).tolist() == [1.0, 3.0]
    regression = plain_regressor(random_state=0, max_iter=5).fit(X, X)
    theirs = regression.score(X, X[::-1], sample_weight=weight)
    source = ArraySource(X, X[::-1], weight)
    source.chunks = partial(source.chunks, 100)
    assert regression.score(source) == pytest.approx(theirs)


def test_early_stopping_without_a_telling_score():
    X = np.linspace(0, 1, 14)[:, None]
    model = plain_regressor(solver="dsg", early_stopping=True, random_state=0, max_iter=30)
    model.fit(X, X[:, 0])  # R^2 of the one validation row is undefined: its loss decides
    assert model.best_iteration_ > 1
    assert model.score(X, X[:, 0]) > 0.9


def test_warm_start_keeps_the_best_so_far(moons):
    model = plain_regressor(early_stopping=True, warm_start=True, random_state=0)
    model.set_params(solver=DSG(damping=0.01))
    first = model.fit(*moons).best_score_
    assert model.fit(*moons).best_score_ >= first
    model.set_params(solver=DSG(damping=0.02))
    raises(ValueError, "solver changed from", model.fit, *moons)
    raises(ValueError, "to 'auto'", model.set_params(solver="auto").fit, *moons)


def test_a_warm_start_keeps_the_penalty_that_was_found(moons):
    X, y = (part[:200] for part in moons)
    model = KernelRegressor(solver="dsg", max_iter=2, warm_start=True, random_state=0)
    alpha = model.fit(X, y).alpha_
    assert model.fit(X[::-1], y).alpha_ == alpha > 0


@every(
    ("model", "warns"),
    [
        (KernelClassifier("hinge", solver="sdca", max_iter=1, gamma=1.0, C=1e4), True),
        (KernelClassifier(solver="block_descent", max_iter=1, gamma=1.0, alpha=1e-6), True),
        (KernelClassifier(solver="block_descent", gamma=1.0, max_iter=1), False),
        (KernelClassifier("hinge", solver="dsg", gamma=1.0, alpha=1e-2, max_iter=1), False),
        (kg.LinearClassifier(), False),
    ],
)
def test_warning_where_the_optimum_is_far(moons, model, warns):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        clone(model).set_params(random_state=0).fit(*(part[:400] for part in moons))
    assert [w.category for w in told] == [ConvergenceWarning] * warns
    if warns:
        assert f"max_iter={model.max_iter} " in str(told[0].message)
        assert told[0].filename == __file__


def test_errors_of_calls_name_what_is_wrong(moons):
    X, y = moons
    for model in (kg.KernelRegressor(), kg.LinearClassifier(), kg.KernelNoveltyDetector()):
        for rows in (X[:0], np.zeros((0, 2))):
            with pytest.raises(
                ValueError, match=r"0 sample\(s\) \(shape=\(0, 2\)\) while a min"
            ):
                model.fit(rows, y[:0])
    raises(ValueError, r"fit\(X_p, denominator=X_q\)", kg.KernelDensityRatio().fit, X, X[:50])
    with pytest.raises(TypeError, match=r"KernelRegressor.predict_interval.*mean 'coverage'\?"):
        kg.KernelRegressor().predict_interval(X, alpha=0.1)


def test_a_column_that_drowns_the_others_is_told(moons):
    X, y = moons
    X = np.column_stack([X, 1e6 * X[:, 0], np.ones(len(X))])
    frame = pd.DataFrame(X, columns=["a", "b", "wide", "one"])
    model = KernelClassifier("hinge", C=1.0, gamma="scale", probability=False)
    with pytest.warns(UserWarning, match=r"'wide' spreads 1e\+06 times.*standardize=True"):
        model.fit(frame, y)
    for quiet in ({"standardize": True}, {"standardize": False}):
        clone(model).set_params(**quiet).fit(X, y)  # warnings are errors
    model.fit(X[:, [0, 1, 3]], y)
