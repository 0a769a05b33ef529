"""Self-training against ridge regression written out, and their choices."""

import numpy as np
import pytest
from sklearn.svm import SVC

from cases import raises
from kernelgrad import DataError
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import Hinge, SemiSupervised, SymmetricHinge
from kernelgrad.solvers import Problem, SoftLabels, TrainBatch, soft_labels
from oracles import gaussian
from oracles_s3vm import soft_labels_oracle
from steps import solve

LABELLED, GAMMA, C = 24, 0.5, 10.0


def case(n=300, outputs=1, seed=0, weights=None, ratio=0.5):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, max(2, outputs), n)
    X = 1.6 * rng.standard_normal((max(2, outputs), 4))[codes]
    X = (X + 0.7 * rng.standard_normal((n, 4))).astype(np.float32)
    y = 2.0 * np.eye(max(2, outputs))[codes] - 1.0
    y = y[:, 1:] if outputs == 1 else y
    y[LABELLED:] = 0.0
    w = np.ones(n) if weights is None else weights
    known = np.arange(n) < LABELLED
    share = np.where(known, w / w[known].sum(), w / w[~known].sum())
    one = Problem(
        loss=SemiSupervised(Hinge(), SymmetricHinge(), ratio), kernel=Gaussian(gamma=GAMMA),
        alpha=1.0 / (2.0 * C * w[known].sum()), n_outputs=outputs, n_features_in=4, seed=2,
        fixed_rows=True, kind_weights=(w[known].sum(), w[~known].sum()),
    )  # fmt: skip
    return one, TrainBatch(X, y.astype(np.float32), share, np.arange(n)), codes, w


def fit(solver, one, batch, steps=20):
    solver.check()
    solver.check_problem(one)
    return solve(solver, one, batch, steps)[0]


def machine(batch, w, outputs):
    """The supervised start by another library, on all rows."""
    y = batch.y[:LABELLED]
    found = []
    for c in range(outputs):
        one = SVC(C=C, gamma=GAMMA, tol=1e-8).fit(
            batch.X[:LABELLED].astype(float), y[:, c], sample_weight=w[:LABELLED]
        )
        found.append(one.decision_function(batch.X.astype(float)))
    return np.stack(found, axis=1)


@pytest.mark.parametrize(("outputs", "n_centres"), [(1, 1000), (3, 40)])
def test_rounds_are_ridge_regressions(outputs, n_centres, monkeypatch):
    monkeypatch.setattr(soft_labels, "_TEMPERATURE", 0.3)
    n = 300
    w = np.random.default_rng(5).uniform(0.5, 2.0, n)
    one, batch, _, w = case(n, outputs, weights=w)
    solver = SoftLabels(choose=False, n_centres=n_centres)
    state = fit(solver, one, batch)
    assert state.iteration == 4
    assert len(state.centre) == min(n, n_centres)
    assert batch.y[state.centre].any(axis=1).sum() <= n_centres // 2
    start = machine(batch, w, outputs)
    K = gaussian(batch.X, batch.X[state.centre], GAMMA)

    def rounds(n):
        y = batch.y.astype(float)
        return start + soft_labels_oracle(K, K[state.centre], y, w, start, C, 0.3, n)

    expected = rounds(3)
    found = solver.expansion(state).raw_prediction(batch.X)
    np.testing.assert_allclose(found, expected, atol=0.01 * np.abs(expected).max())
    # the control: two rounds are another function
    assert np.abs(rounds(2) - expected).max() > 0.02 * np.abs(expected).max()


def test_no_cost_of_unlabelled_rows_is_the_supervised_machine():
    one, batch, _, w = case(ratio=0.0)
    solver = SoftLabels()
    state = fit(solver, one, batch)
    assert state.iteration == 1
    start = machine(batch, w, 1)
    found = solver.expansion(state).raw_prediction(batch.X)
    np.testing.assert_allclose(found, start, atol=0.01 * np.abs(start).max())
    assert not state.coef[LABELLED:].any()


@pytest.mark.slow
def test_every_fold_is_blind_to_its_labels():
    one, batch, _, _ = case(300)
    state = fit(SoftLabels(), one, batch)
    assert len(state.bias) == 6
    for lane in range(1, 6):
        held = SoftLabels()._held(state, lane)
        assert len(held) in (4, 5)
        assert not state.supervised[lane, held].any()
        flipped = batch.y.copy()
        flipped[state.labelled[held]] *= -1.0
        other = SoftLabels()
        twin = other.init(one, batch)
        changed = TrainBatch(batch.X, flipped, batch.sample_weight, batch.rows)
        twin.digest = other.init(one, changed).digest
        with single_threaded_blas():
            while not other.step(one, twin, changed).converged:
                pass
        assert np.array_equal(twin.student[lane], state.student[lane])
        assert not np.array_equal(twin.student[0], state.student[0])


def test_problems_are_checked():
    one, batch, _, _ = case()
    for rows in (slice(0, LABELLED), slice(LABELLED, None)):
        some = TrainBatch(
            batch.X[rows], batch.y[rows], batch.sample_weight[rows], batch.rows[rows]
        )
        raises(DataError, "rows with a label and rows without", SoftLabels().init, one, some)
