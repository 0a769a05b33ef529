"""Cached-response block descent: invariances, bits, two halves of a run, stops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import oracles_cached as oracles
from cached_cases import (
    BY_NAME,
    GAMMA,
    cached,
    each_block,
    even,
    raw,
    signal,
    some_cases,
)
from kernelgrad import set_num_threads

# -- weights, order, layout ------------------------------------------------------------


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
def test_features_of_sparse_rows_are_those_of_dense_rows(case):
    # dense rows are centred, which turns pairs of features but not their span
    X, t = signal(300, seed=9)
    X = np.where(np.abs(X) > 0.4, X, 0.0)
    y = case.targets(t)
    model = case.model(solver=cached(blocks="features", block_size=100), max_iter=2)
    dense, sparse = clone(model).fit(X, y), clone(model).fit(sp.csr_matrix(X), y)
    a, b = (m.history_["objective"][-1] for m in (dense, sparse))
    assert a == pytest.approx(b, rel=1e-4 if case.loss in oracles.SLOPES else 1e-2)


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


# -- the loop --------------------------------------------------------------------------
