"""What scikit-learn's meta-estimators ask of ours: validation rows, routing."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.datasets import make_moons
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline

import kernelgrad as kg
from cases import every, raises
from plain import plain_classifier, plain_regressor

X, Y = make_moons(300, noise=0.25, random_state=0)
X_VAL, Y_VAL = make_moons(100, noise=0.25, random_state=1)
W_VAL = np.arange(100) % 3.0


PAIR = {"X_val": X_VAL, "y_val": Y_VAL}
MARKED = np.where(np.arange(300) % 8, -1, Y)


@every(
    "model, fitted",
    [
        (plain_classifier("hinge", solver="norma", max_iter=9), {"y": Y}),
        (plain_regressor(max_iter=4, alpha=1e-3), {"y": Y}),
        (kg.LinearClassifier(max_iter=4), {"y": Y}),
        (kg.SemiSupervisedKernelClassifier(solver="tsg", max_iter=4), {"y": MARKED}),
        (kg.KernelGaussianProcessRegressor(solver="dsg", max_iter=2), {"y": 3 + Y}),
    ],
)
def test_rows_that_are_only_scored_leave_the_model_as_it_is(model, fitted):
    model.set_params(random_state=0)
    plain = model.fit(X, **fitted).predict(X_VAL)
    assert model.best_score_ is None
    given = {"y_val": Y_VAL + fitted["y"].max() - 1}
    model.fit(X, **fitted, X_val=X_VAL, sample_weight_val=W_VAL, **given)
    np.testing.assert_array_equal(model.predict(X_VAL), plain)
    # the last iterate, which is not always the best
    assert len(model.history_["validation_score"]) == model.n_iter_ == model.best_iteration_
    expected = model.score(X_VAL, given["y_val"], sample_weight=W_VAL)
    assert model.history_["validation_score"][-1] == pytest.approx(expected, abs=1e-5)
    assert model.best_score_ == model.history_["validation_score"][-1]


def test_early_stopping_of_few_labels_keeps_the_best_on_the_given_rows():
    model = kg.SemiSupervisedKernelClassifier(solver="bgs3vm", max_iter=9, random_state=0)
    model.set_params(early_stopping=True).fit(X, MARKED, **PAIR)
    scores = model.history_["validation_score"]
    assert len(scores) == 9
    assert model.best_score_ == scores[model.best_iteration_ - 1] == max(scores) > scores[-1]


def test_early_stopping_keeps_the_best_on_the_given_rows():
    model = plain_classifier(
        "hinge", solver="dsg", max_iter=60, early_stopping=True, n_iter_no_change=4,
        random_state=0,
    )  # fmt: skip
    model.fit(X, Y, X_val=X_VAL, y_val=Y_VAL, sample_weight_val=W_VAL)
    scores = model.history_["validation_score"]
    assert model.fit_status_ == "converged"
    assert model.n_iter_ < 60
    assert model.best_score_ == max(scores) == scores[model.best_iteration_ - 1]
    features = model.history_["n_random_features"]
    assert model.n_random_features_ == features[model.best_iteration_ - 1] < features[-1]
    best = model.score(X_VAL, Y_VAL, sample_weight=W_VAL)
    assert best == pytest.approx(model.best_score_, abs=1e-12)
    # all rows are fitted, none is held out
    alone = plain_classifier("hinge", solver="dsg", max_iter=model.n_iter_, random_state=0)
    alone.fit(X, Y)
    assert alone.history_["rows_seen"] == model.history_["rows_seen"]


def test_validation_rows_come_in_every_form():
    frame = pd.DataFrame({"x": X[:, 0], "kind": np.where(X[:, 1] > 0.3, "up", "down")})
    frame.loc[::7, "x"] = np.nan
    y = np.where(Y, "yes", "no")
    model = plain_classifier("hinge", solver="dsg", max_iter=3, random_state=0)
    model.fit(frame[:200], y[:200], X_val=frame[200:], y_val=y[200:])
    assert model.best_score_ == model.score(frame[200:], y[200:])
    source = kg.ArraySource(X_VAL, Y_VAL)
    model.fit(X, Y, X_val=source)
    assert model.best_score_ == model.score(source)
    model.set_params(kernel="precomputed", solver="direct", loss="squared")
    K = rbf_kernel(X_VAL, X)
    model.fit(rbf_kernel(X), Y, X_val=K, y_val=Y_VAL)
    assert model.best_score_ == model.score(K, Y_VAL)


@every(
    "model, given, words",
    [
        (kg.KernelClassifier(), {"X_val": X_VAL}, "y_val is None"),
        (kg.KernelClassifier(), {"y_val": Y_VAL}, "but not X_val"),
        (kg.KernelClassifier(), {"sample_weight_val": W_VAL}, "but not X_val"),
        (kg.KernelClassifier(), PAIR | {"X_val": X_VAL[:, :1]}, "for valid.* has 1 features"),
        (kg.KernelClassifier(), PAIR | {"y_val": Y_VAL + 1}, "for validation, .* label 2"),
        (kg.KernelClassifier(), PAIR | {"y_val": Y_VAL[:9]}, "for validation, .* inconsistent"),
        (kg.KernelClassifier(), PAIR | {"sample_weight_val": 0 * W_VAL}, "for valid.*zero"),
        (kg.KernelClassifier(), PAIR | {"X_val": kg.ArraySource(X_VAL, Y_VAL)}, "its own y"),
        (kg.KernelClassifier(), {"X_val": kg.ArraySource(X_VAL)}, "has no target"),
        (kg.SemiSupervisedKernelClassifier(), {"X_val": X, "y_val": MARKED}, "y_val marks"),
        (kg.KernelNoveltyDetector(), {"X_val": X_VAL}, "score this one after the fit"),
    ],
)
def test_validation_rows_that_are_refused(model, given, words):
    raises(ValueError, words, model.fit, X, Y, **given)
    assert not hasattr(model, "n_features_in_")


def test_routing_to_the_end_of_a_pipeline():
    model = kg.LinearClassifier(max_iter=3, random_state=0)
    features = kg.RandomFeatures(n_components=16, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(X_val=True, y_val=True, sample_weight=True)
        model.set_score_request(sample_weight=True)
        pipe = make_pipeline(features, model, transform_input=["X_val"])
        w = np.linspace(0.0, 1.0, len(X))
        pipe.fit(X, Y, sample_weight=w, X_val=X_VAL, y_val=Y_VAL)
        assert model.best_score_ == pipe.score(X_VAL, Y_VAL)
        assert pipe.score(X, Y, sample_weight=w) == model.score(
            features.transform(X), Y, sample_weight=w
        )


ARRAYS = """
import array_api_strict as xp
import numpy as np
import sklearn
from sklearn.datasets import make_moons
from kernelgrad import KernelClassifier, LinearRegressor, RandomFeatures

X, y = make_moons(120, noise=0.2, random_state=0)
w = np.linspace(0.5, 1.5, 120)
for model in KernelClassifier(random_state=0), LinearRegressor(random_state=0):
    plain = model.fit(X, y, w).predict(X), model.score(X, y, w)
    with sklearn.config_context(array_api_dispatch=True):
        A, b, v = map(xp.asarray, (X, y, w))
        other = model.fit(A, b, v).predict(A), model.score(A, b, v)
    assert isinstance(other[0], np.ndarray)
    assert np.array_equal(other[0], plain[0]) and other[1] == plain[1]
features = RandomFeatures(n_components=8, random_state=0)
with sklearn.config_context(array_api_dispatch=True):
    assert isinstance(features.fit_transform(A), np.ndarray)
print("equal")
"""


@pytest.mark.slow
def test_arrays_of_other_libraries_are_taken_as_numpys():
    pytest.importorskip("array_api_strict")
    env, command = os.environ | {"SCIPY_ARRAY_API": "1"}, [sys.executable, "-c", ARRAYS]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stdout == "equal\n", done.stderr
