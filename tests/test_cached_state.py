"""Cached-response block descent: invariances, bits, two halves of a run, stops."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import kernelgrad
import oracles_cached as oracles
from cached_cases import (
    BY_NAME,
    GAMMA,
    assert_true,
    cached,
    classes,
    each_block,
    even,
    raw,
    signal,
    slack,
    some_cases,
    sometimes,
)
from kernelgrad import KernelClassifier, KernelRegressor, set_num_threads
from kernelgrad.callbacks import Callback, TimeLimit
from kernelgrad.solvers import CachedBlockDescent

# -- weights, order, layout ------------------------------------------------------------


@sometimes("log_loss-3", "hinge-2", "squared", "quantiles")
def test_a_weight_is_a_repeated_row(case):
    X, t = signal(200, seed=7)
    y, times = case.targets(t), np.random.default_rng(0).integers(0, 3, 200)
    model = case.model(solver=cached(block_size=64), max_iter=5)
    one = clone(model).fit(X, y, sample_weight=times)
    two = clone(model).fit(np.repeat(X, times, axis=0), np.repeat(y, times, axis=0))
    absent = clone(model).fit(X[times > 0], y[times > 0], sample_weight=times[times > 0])
    np.testing.assert_allclose(raw(one, X), raw(two, X), atol=1e-6)
    np.testing.assert_allclose(raw(one, X), raw(absent, X), atol=1e-6)
    scaled = clone(model).fit(X, y, sample_weight=64 * times)
    np.testing.assert_allclose(raw(one, X), raw(scaled, X), atol=1e-6)
    assert np.abs(raw(clone(model).fit(X, y), X) - raw(one, X)).max() > 1e-3


def test_balanced_classes_are_weights():
    X, t = signal(300, seed=8)
    y = (t > 0.8).astype(int)
    share = len(y) / (2 * np.bincount(y))
    model = BY_NAME["logistic-2"].model(max_iter=20)
    balanced = clone(model).set_params(class_weight="balanced").fit(X, y)
    weighted = clone(model).fit(X, y, sample_weight=share[y])
    np.testing.assert_allclose(raw(balanced, X), raw(weighted, X), atol=1e-6)
    assert np.abs(raw(clone(model).fit(X, y), X) - raw(weighted, X)).max() > 1e-2


@some_cases
def test_sparse_rows_give_the_same_minimum(case):
    X, t = signal(300, seed=9)
    X = np.where(np.abs(X) > 0.4, X, 0.0)
    y = case.targets(t)
    model = case.model()
    dense, sparse = clone(model).fit(X, y), clone(model).fit(sp.csr_matrix(X), y)
    a, b = (m.history_["objective"][-1] for m in (dense, sparse))
    assert a == pytest.approx(b, rel=slack(case, True))
    scale = np.abs(raw(dense, X)).max()
    np.testing.assert_allclose(raw(dense, X), raw(sparse, sp.csr_matrix(X)), atol=0.02 * scale)


@some_cases
def test_features_of_sparse_rows_are_those_of_dense_rows(case):
    # dense rows are centred, which turns pairs of features but not their span
    X, t = signal(300, seed=9)
    X = np.where(np.abs(X) > 0.4, X, 0.0)
    y = case.targets(t)
    model = case.model(solver=cached(blocks="features", block_size=100), max_iter=2)
    dense, sparse = clone(model).fit(X, y), clone(model).fit(sp.csr_matrix(X), y)
    a, b = (m.history_["objective"][-1] for m in (dense, sparse))
    assert a == pytest.approx(b, rel=1e-4 if case.loss in oracles.SLOPES else 1e-2)


@pytest.mark.parametrize("name", ["log_loss-3", "hinge-3", "logistic-3"])
def test_classes_in_another_order_are_columns_in_another_order(name):
    case, (X, t) = BY_NAME[name], signal(300, seed=10)
    y = case.targets(t)
    order = np.array([2, 0, 1])  # class c becomes order[c]
    model = case.model()
    one, two = clone(model).fit(X, y), clone(model).fit(X, order[y])
    np.testing.assert_allclose(raw(one, X), raw(two, X)[:, order], atol=0.05)
    a, b = (m.history_["objective"][-1] for m in (one, two))
    assert a == pytest.approx(b, rel=1e-4)


def test_targets_side_by_side_are_fitted_one_by_one():
    X, t = signal(400, seed=11)
    _, s = signal(400, seed=12)
    Y = np.stack([t, 3 * s, np.cos(X[:, 2])], axis=1)
    model = BY_NAME["squared"].model()
    joint = clone(model).fit(X, Y)
    alone = [clone(model).fit(X, Y[:, c]) for c in range(3)]
    total = sum(m.history_["objective"][-1] for m in alone)
    assert joint.history_["objective"][-1] == pytest.approx(total, rel=1e-3)
    best = oracles.ridge(oracles.gaussian(X, X, GAMMA), Y, even(400), 1e-3, True)[0]
    assert joint.history_["objective"][-1] == pytest.approx(best, rel=1e-3)
    for c in range(3):
        np.testing.assert_allclose(joint.predict(X)[:, c], alone[c].predict(X), atol=0.05)


@some_cases
def test_rows_in_another_order_give_the_same_minimum(case):
    X, t = signal(300, seed=13)
    y, order = case.targets(t), np.random.default_rng(0).permutation(300)
    model = case.model()
    a, b = (
        clone(model).fit(X[i], y[i]).history_["objective"][-1] for i in (np.arange(300), order)
    )
    assert a == pytest.approx(b, rel=slack(case, True))


def test_standardized_columns_are_scaled_columns():
    X, t = signal(300, seed=14)
    X = X * [1.0, 100.0, 0.01]
    model = BY_NAME["squared"].model()
    inside = clone(model).set_params(standardize=True).fit(X, t)
    outside = clone(model).fit(X / X.std(axis=0), t)
    np.testing.assert_allclose(inside.predict(X), outside.predict(X / X.std(axis=0)), atol=0.02)


# -- bits ------------------------------------------------------------------------------


@each_block
@some_cases
def test_bits_do_not_depend_on_threads_or_memory(case, blocks):
    X, t = signal(5000, seed=15)
    y = case.targets(t)
    models = []
    for threads, limit in ((1, None), (2, None), (2, 0), (1, 3_000_000)):
        set_num_threads(threads)
        solver = cached(blocks=blocks, block_size=200)
        models.append(case.model(solver=solver, max_iter=3, memory_limit=limit).fit(X, y))
    first, *others = models
    for other in others:
        np.testing.assert_array_equal(first.expansion_.coef, other.expansion_.coef)
        np.testing.assert_array_equal(first.intercept_, other.intercept_)
        assert first.history_["objective"] == other.history_["objective"]
        np.testing.assert_array_equal(raw(first, X[:100]), raw(other, X[:100]))


@each_block
@some_cases
def test_two_halves_are_one_run(case, blocks, tmp_path):
    X, t = signal(500, seed=16)
    y = case.targets(t)
    solver = cached(blocks=blocks, block_size=100, tol=0.0)
    whole = case.model(solver=solver, alpha=1e-5, max_iter=6).fit(X, y)
    assert whole.n_iter_ == 6
    half = case.model(solver=clone(solver), alpha=1e-5, max_iter=3, warm_start=True).fit(X, y)
    half.save(tmp_path / "half.kg", resumable=True)
    loaded = kernelgrad.load(tmp_path / "half.kg")
    np.testing.assert_array_equal(raw(loaded, X), raw(half, X))
    for z in (half, loaded, pickle.loads(pickle.dumps(half))):
        assert np.any(raw(z, X) != raw(whole, X))
        z.fit(X, y)
        np.testing.assert_array_equal(raw(z, X), raw(whole, X))
        for key in ("train_loss", "n_support", "rows_seen", "epoch"):
            assert z.history_[key] == whole.history_[key]
        # the last value of each fit is the audited one
        np.testing.assert_allclose(
            z.history_["objective"], whole.history_["objective"], rtol=1e-5
        )
        assert z.history_["objective"][-1] == whole.history_["objective"][-1]
    np.testing.assert_array_equal(raw(clone(whole).fit(X, y), X), raw(whole, X))
    whole.save(tmp_path / "whole.kg")
    np.testing.assert_array_equal(raw(kernelgrad.load(tmp_path / "whole.kg"), X), raw(whole, X))


def test_seeds_matter_and_repeat():
    X, t = signal(500, seed=17)
    model = BY_NAME["squared"].model(solver=cached(block_size=50), max_iter=3, alpha=1e-6)
    f = [clone(model).set_params(random_state=s).fit(X, t).predict(X) for s in (0, 0, 1)]
    np.testing.assert_array_equal(f[0], f[1])
    assert np.abs(f[0] - f[2]).max() > 1e-3


def test_a_fit_on_other_rows_is_refused_or_starts_there():
    X, t = signal(300, seed=18)
    model = BY_NAME["squared"].model(warm_start=True, max_iter=2).fit(X, t)
    before = model.predict(X)
    with pytest.raises(ValueError, match="rows"):
        model.fit(X + 1.0, t)
    np.testing.assert_array_equal(model.predict(X), before)


# -- the loop --------------------------------------------------------------------------


class StopAt(Callback):
    def __init__(self, iteration, error=None):
        self.iteration, self.error = iteration, error

    def on_iteration(self, event):
        if event.iteration == self.iteration and self.error is not None:
            raise self.error
        return event.iteration == self.iteration


@each_block
@pytest.mark.parametrize(
    ("error", "status"), [(None, "stopped"), (KeyboardInterrupt, "interrupted")]
)
def test_a_stop_keeps_the_model(blocks, error, status):
    case, (X, t) = BY_NAME["hinge-2"], signal(500, seed=19)
    y = case.targets(t)
    Y = case.encode(y)
    model = case.model(alpha=1e-5, solver=cached(blocks=blocks, block_size=100))
    stopped = clone(model).set_params(callbacks=StopAt(3, error)).fit(X, y)
    assert (stopped.fit_status_, stopped.n_iter_) == (status, 3)
    assert_true(stopped, X, partial(case.value, Y), even(500), 1e-5, falls=False)
    short = clone(model).set_params(max_iter=3).fit(X, y)
    np.testing.assert_array_equal(raw(stopped, X), raw(short, X))


def test_a_time_limit_ends_a_fit():
    X, t = signal(300)
    model = BY_NAME["squared"].model(callbacks=TimeLimit(1e-9), max_iter=50).fit(X, t)
    assert (model.fit_status_, model.n_iter_) == ("stopped", 1)
    assert np.isfinite(model.predict(X)).all()


@each_block
def test_early_stopping_keeps_the_best_iterate(blocks):
    X, t = signal(600, seed=20, noise=1.0)
    y = classes(t, 2)
    solver = CachedBlockDescent(blocks=blocks, block_size=50, tol=0.0)
    model = BY_NAME["log_loss-2"].model(
        alpha=1e-9, solver=solver, max_iter=25, early_stopping=True, n_iter_no_change=25
    )
    model.fit(X, y)
    scores = model.history_["validation_score"]
    assert model.best_score_ == max(scores) > min(scores)
    assert scores[model.best_iteration_ - 1] == model.best_score_
    assert model.best_iteration_ < model.n_iter_
    again = clone(model).set_params(max_iter=model.best_iteration_).fit(X, y)
    np.testing.assert_array_equal(raw(again, X), raw(model, X))


def test_early_stopping_stops():
    X, t = signal(600, seed=20, noise=1.0)
    model = BY_NAME["squared"].model(
        alpha=1e-9, solver=cached(block_size=50, tol=0.0), max_iter=400, early_stopping=True,
        n_iter_no_change=4,
    ).fit(X, t)  # fmt: skip
    assert model.fit_status_ == "converged"
    assert model.n_iter_ < 200


@pytest.mark.parametrize("solver", ["cached", cached()], ids=["name", "object"])
def test_there_is_no_partial_fit(solver):
    X, t = signal(60)
    for model in (KernelClassifier(solver=solver), KernelRegressor(solver=solver)):
        assert not hasattr(model, "partial_fit")
        with pytest.raises(AttributeError, match="partial_fit"):
            model.partial_fit(X, t)


def test_the_name_is_the_solver_as_it_is():
    X, t = signal(300)
    named = KernelRegressor(solver="cached", random_state=0, max_iter=4).fit(X, t)
    given = KernelRegressor(solver=CachedBlockDescent(), random_state=0, max_iter=4).fit(X, t)
    np.testing.assert_array_equal(named.predict(X), given.predict(X))
    assert named.expansion_.kind == "support"
    features = CachedBlockDescent(blocks="features")
    model = KernelRegressor(solver=features, random_state=0, max_iter=4).fit(X, t)
    assert model.expansion_.kind == "random_features"
    assert model.n_random_features_ > 0
