"""Newton's method on the kernel matrix: the minimum, its bound, paths, what it refuses."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from cases import every
from kernelgrad import CapabilityError
from kernelgrad.kernels import Gaussian, Polynomial
from kernelgrad.losses import Huber, get_loss
from kernelgrad.solvers import NewtonCG, Problem, TrainBatch, newton
from kernelgrad.testing import check_checkpoints
from oracles_cached import DELTA, gaussian, smooth_minimum
from oracles_newton import minimum
from plain import plain_classifier, plain_regressor
from steps import solve

ALPHAS = (1.0, 1e-3, 1e-6, 1e-9)
LOSSES = ("logistic", "log_loss", "squared_hinge", "squared", "poisson", "gamma")


def rows(loss, n=160, seed=0):
    """Return rows, encoded targets and weights, some of them 0."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    score = X @ rng.standard_normal((3, 3)) + 0.5 * rng.standard_normal((n, 3))
    if loss == "log_loss":
        y = np.eye(3)[score.argmax(axis=1)]
    elif loss == "squared":
        y = score[:, :2]
    elif loss in ("poisson", "gamma"):
        y = np.floor(np.exp(score[:, :2])) + (loss == "gamma")
    else:
        y = np.sign(score[:, :2])
    return X, y.astype(np.float32), rng.integers(0, 4, n).astype(float)


def problem(name, alpha, outputs, **changed):
    numbers = name in ("squared", "poisson", "gamma")
    task = "regression" if numbers else "classification"
    made = Problem(
        loss=get_loss(name, task=task, n_classes=3), kernel=Gaussian(0.5), alpha=alpha,
        n_outputs=outputs, n_features_in=3, seed=0, fixed_rows=True,
    )  # fmt: skip
    return replace(made, **changed)


@every("intercept", [True, False])
@every("loss", LOSSES)
def test_the_minimum_of_every_penalty(loss, intercept):
    X, y, weight = rows(loss)
    K = Gaussian(0.5)(X)
    batch = TrainBatch(X, y, weight)
    for alpha in ALPHAS:
        posed = problem(loss, alpha, y.shape[1], fit_intercept=intercept)
        state, (*_, info) = solve(NewtonCG(), posed, batch, 60)
        least, _ = minimum(loss, K, y.astype(float), weight, alpha, intercept)
        assert info.converged
        # float32 values take up to 2.1e-4 where products are not fused, 4e-5 where they are
        assert abs(info.objective - least) <= 5e-4 * least + 1e-9
        small = alpha < 6e-5 / np.sqrt(len(X))
        fine = state.exact.gram(state.prepared, wide=True)
        rounded = fine if small else state.exact.gram(state.prepared).astype(float)
        own, _ = minimum(loss, rounded, y.astype(float), weight, alpha, intercept)
        assert -1e-6 * own <= info.objective - own <= info.duality_gap + 1e-6 * own
        f = state.coef.T @ fine + state.intercept[:, None]
        p = weight / weight.sum()
        norm = (state.coef.T @ fine @ state.coef).trace()
        value = p @ posed.loss.value(y, f.T) + 0.5 * alpha * norm
        assert info.objective == pytest.approx(value, rel=5e-4)


@pytest.mark.parametrize("whole", [True, False])
def test_help_changes_the_way_only(whole, monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (700, 2))
    y = (np.sin(3 * X[:, :1]) * np.cos(2 * X[:, 1:]) + 0.5 * rng.standard_normal((700, 1))) > 0
    batch = TrainBatch(X, np.where(y, 1.0, -1.0).astype(np.float32), np.ones(700))
    posed = problem("logistic", 1e-6, 1, n_features_in=2, kernel=Gaussian(8.0))
    monkeypatch.setattr(newton, "_WHOLE", 2048 if whole else 0)
    state, (*_, info) = solve(NewtonCG(), posed, batch, 60)
    assert state.coarse
    assert (state.descent.coarse is None) == whole
    least, f = minimum("logistic", Gaussian(8.0)(X), batch.y.astype(float), np.ones(700), 1e-6)
    assert abs(info.objective - least) <= 1e-4 * least
    assert np.abs(state.responses[0] + state.intercept - f[:, 0]).max() < 0.1 * np.abs(f).max()
    products = state.descent.n_products
    monkeypatch.setattr(newton, "_PATIENCE", newton._MOST_INNER)  # so that no help comes
    monkeypatch.setattr(newton, "_SHORT", 0.0)
    alone, _ = solve(NewtonCG(), posed, batch, 60)
    assert not alone.coarse
    assert products < alone.descent.n_products


@every("loss", ["logistic", "log_loss", "squared"])
def test_a_path_is_its_single_fits(loss):
    X, y, weight = rows(loss)
    batch, solver = TrainBatch(X, y, weight), NewtonCG(tol=1e-8)
    posed = problem(loss, 1.0, y.shape[1])
    alphas = (1e-1, 1e-3, 1e-4)
    _, found = solver.path(posed, batch, alphas, X, 60)
    for alpha, f in zip(alphas, found, strict=True):
        state, _ = solve(solver, replace(posed, alpha=alpha), batch, 60)
        single = solver.expansion(state).raw_prediction(X)
        np.testing.assert_allclose(f, single, atol=2e-3 * np.abs(single).max())
    spread = np.abs(found[0] - found[2]).max()
    assert spread > 0.1 * np.abs(found[2]).max()  # the penalties differ


def test_equal_rows_and_no_penalty():
    X, y, _ = rows("logistic", n=60)
    twice = np.repeat(X, 3, axis=0)
    for alpha in (0.0, 1e-2):
        m = plain_classifier("logistic", solver="newton", alpha=alpha, random_state=0)
        m.fit(twice, np.repeat(y[:, 0], 3))
        assert np.isfinite(m.decision_function(X)).all()
        assert m.score(X, y[:, 0]) > 0.8
        assert (m.history_["duality_gap"][-1] is None) == (alpha == 0.0)


def test_residuals_that_are_all_large():
    """The second derivative of the Huber loss is 0 at every row of the start."""
    X = np.random.default_rng(0).standard_normal((60, 3))
    y = np.where(X[:, 0] > 0, 1000.0, -1000.0)
    model = plain_regressor(Huber(DELTA), solver="newton", alpha=1e-4, gamma=0.3, max_iter=300)
    found = model.fit(X, y).history_["objective"][-1]
    least = smooth_minimum(
        "huber", gaussian(X, X, 0.3), y[:, None], np.full(60, 1 / 60), 1e-4, True
    )
    assert found == pytest.approx(least, rel=1e-3)


def test_short_steps_go_on_from_checkpoints():
    """What the last step was like decides the next one where the curvature jumps."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 7))
    score = X @ rng.standard_normal(7) + rng.standard_normal(30)
    model = plain_classifier(
        "smoothed_hinge", solver="newton", kernel="laplacian", alpha=1e-5, gamma=0.1,
        max_iter=12, random_state=0,
    )  # fmt: skip
    assert check_checkpoints(model, X, np.digitize(score, np.quantile(score, (0.3, 0.4)))) > 3


def test_what_it_refuses():
    X, y, _ = rows("squared")
    with pytest.raises(CapabilityError, match="smooth_loss"):
        plain_regressor("absolute", solver="newton").fit(X, y[:, 0])
    with pytest.raises(CapabilityError, match="memory_limit"):
        plain_regressor(solver="newton", memory_limit=100_000).fit(X, y[:, 0])
    indefinite = -Polynomial(2)(X)
    with pytest.raises(ValueError, match="not positive semi-definite"):
        plain_regressor(kernel="precomputed", solver="newton").fit(indefinite, y[:, 0])


def test_a_first_fit_compiles_nothing(tmp_path):
    code = """
from numba.core import event
compiled = []
class Listener(event.Listener):
    def on_start(self, e): compiled.append(e.data["dispatcher"].__name__)
    def on_end(self, e): pass
event.register("numba:compile", Listener())
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from kernelgrad import KernelClassifier, KernelRegressor
KernelClassifier("log_loss").fit(*load_iris(return_X_y=True))
KernelClassifier().fit(*load_breast_cancer(return_X_y=True))
KernelRegressor().fit(*load_diabetes(return_X_y=True))
print(compiled)
"""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    # squares of float64 rows, a tenth of a second
    assert done.stdout.strip() in ("[]", "['_squares_dense']")
