"""Triply stochastic gradients against a plain recursion, and the paper's claims."""

from dataclasses import replace

import numpy as np
import pytest

from cases import every, raises
from kernelgrad import CapabilityError, SemiSupervisedKernelClassifier
from kernelgrad import losses as kl
from kernelgrad.kernels import Gaussian
from kernelgrad.solvers import CDSG, FRS3VM, TSG, UDSG, Problem, TrainBatch
from oracles_s3vm import tsg_oracle

N, LABELLED, C = 60, 8, 50.0


def rows(seed=0, outputs=1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 3)).astype(np.float32)
    y = np.where(X[:, :outputs] + 0.3 * rng.standard_normal((N, outputs)) > 0, 1.0, -1.0)
    y[LABELLED:] = 0.0
    return X, y.astype(np.float32)


def problem(loss="hinge", unlabelled="symmetric_hinge", ratio=0.5, **more):
    labelled = kl.get_loss(loss, task="classification", n_classes=2)
    joint = kl.SemiSupervised(labelled, kl.get_unlabelled_loss(unlabelled), ratio)
    given = {"n_outputs": 1, "n_features_in": 3, "seed": 3, "fit_intercept": False,
             "n_rows": N, "max_iter": 20}  # fmt: skip
    return Problem(loss=joint, kernel=Gaussian(gamma=0.4), alpha=1 / (2 * C), **given | more)


def batches(X, y, count, seed=1, size=6):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        i = np.r_[rng.choice(LABELLED, 4, replace=False),
                  LABELLED + rng.choice(N - LABELLED, size, replace=False)]  # fmt: skip
        yield TrainBatch(X[i], y[i], np.ones(len(i)), None)


def fit(solver, one, X, y, count=20, **more):
    solver.check()
    solver.check_problem(one)
    state = None
    for batch in batches(X, y, count, **more):
        state = solver.init(one, batch) if state is None else state
        solver.step(one, state, batch)
    return state


def features_of(stream, X, count):
    """Return blocks of features, (N, m) each."""
    return [stream.transform(stream.prepare(X), t).astype(float) for t in range(count)]


def of_hinges(Phi, y, picks, gammas, cost):
    """Return the responses of Algorithm 1 with the losses of the paper."""
    others = [cost * LABELLED / (N - LABELLED)] * len(gammas)
    return tsg_oracle(
        Phi, y.astype(float), picks, gammas, cost, others, lambda t, f: -t * (t * f < 1),
        lambda f: -np.sign(f) * (np.abs(f) < 1),
    )  # fmt: skip


@every("loss", ["hinge", "squared_hinge", "logistic"])
@every("outputs", [1, 3])
def test_steps_are_those_of_the_algorithm(loss, outputs):
    for unlabelled in sorted(kl.UNLABELLED_LOSSES):
        check_steps(loss, unlabelled, outputs)


def check_steps(loss, unlabelled, outputs):
    X, y = rows(outputs=outputs)
    one = problem(loss, unlabelled, n_outputs=outputs)
    solver = TSG(average=None, block_size=7)
    state = fit(solver, one, X, y)
    Phi = features_of(state.iterates.x.stream, X, 20)
    picks = []
    for batch in batches(X, y, 20):
        at = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in batch.X]
        picks.append((np.array(at[:4]), np.array(at[4:])))
    first = float(state.gamma0[0]) * one.alpha
    assert first == pytest.approx(8 / C) if loss != "squared_hinge" else first < 8 / C
    gammas = [first / (1 + t / 50) for t in range(20)]
    shares = [0.0] * 7 + [1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6] + [1.0] * 8
    slopes = one.loss.labelled.gradient, one.loss.unlabelled.gradient
    expected, other = (  # the control: without the unlabelled loss it is another function
        tsg_oracle(Phi, y.astype(float), picks, gammas, C, [cost * s for s in shares], *slopes)
        for cost in (0.5 * C, 0.0)
    )
    found = solver.expansion(state).raw_prediction(X)
    np.testing.assert_allclose(found, expected, atol=5e-4 * np.abs(expected).max())
    assert np.abs(found - other).max() > 0.02 * np.abs(expected).max()


@pytest.mark.parametrize("steps", [{}, {"step_size": "theorem", "theta": 0.7}])
@pytest.mark.parametrize("cls", [TSG, FRS3VM])
def test_the_preset_is_the_algorithm_of_the_paper(cls, steps):
    X, y = rows(seed=1)  # classes of unequal number
    cost, eta, T = 30.0, 4.0, 9
    marked = np.where(y[:, 0] == 0, -1, y[:, 0] > 0).astype(int)
    given = cls.paper(C=cost, sigma=0.4, eta=eta, n_labelled=LABELLED, redraw=False, **steps)
    model = SemiSupervisedKernelClassifier(**given, max_iter=T, random_state=3)
    model.fit(X, marked)
    m = int(np.ceil(np.sqrt(N)))
    Phi = features_of(model.expansion_.stream, X, 2000)
    assert Phi[0].shape == (N, m)
    assert np.abs(Phi[0]).max() <= np.sqrt(2 / m) + 1e-6  # phases
    K = np.mean([phi @ phi.T for phi in Phi], axis=0)
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(K, np.exp(-0.4 * squares), atol=0.05)
    gamma = 0.7 / T**0.75 if steps else 1 / eta
    # few rows: all of them are in every batch
    found = model.expansion_.raw_prediction(X)
    picks = [(np.arange(LABELLED), np.arange(LABELLED, N))] * T
    expected = of_hinges(Phi[:T] if cls is TSG else Phi[:1] * T, y, picks, [gamma] * T, cost)
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


def test_labelled_rows_are_drawn_with_replacement(monkeypatch):
    X, y = rows(seed=1)
    cost, T, own, picks = 30.0, 9, TSG._shares, []

    def shares(self, batch):
        at = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in batch.X]
        times = np.where(batch.y[:, 0] == 0, 0, batch.sample_weight).astype(int)
        picks.append((np.repeat(at, times), np.arange(LABELLED, N)))
        return own(self, batch)

    monkeypatch.setattr(TSG, "_shares", shares)
    marked = np.where(y[:, 0] == 0, -1, y[:, 0] > 0).astype(int)
    given = TSG.paper(C=cost, sigma=0.4, eta=4.0, n_labelled=LABELLED)
    model = SemiSupervisedKernelClassifier(**given, max_iter=T, random_state=3).fit(X, marked)
    assert [len(labelled) for labelled, _ in picks] == [256] * T  # the paper's B
    assert len({labelled.sum() for labelled, _ in picks}) > 1
    Phi = features_of(model.expansion_.stream, X, T)
    expected = of_hinges(Phi, y, picks, [0.25] * T, cost)
    found = model.expansion_.raw_prediction(X)
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


def test_theorem_steps_are_constant_where_the_penalty_falls_as_labels_come():
    X, y = rows()
    solver, one = TSG(step_size="theorem", average=None), problem()
    state = fit(solver, one, X, y, count=3)
    other = solver._step(replace(one, max_iter=81, alpha=one.alpha / 4), state)
    assert other == pytest.approx(4 / 27 / one.alpha)


def test_the_first_label_of_a_stream_sets_the_constant():
    X, y = rows()
    solver, one = TSG(), problem(fit_intercept=True)
    state = solver.init(one, TrainBatch(X[LABELLED:], y[LABELLED:], np.ones(N - LABELLED)))
    solver.step(one, state, TrainBatch(X[LABELLED:], y[LABELLED:], np.ones(N - LABELLED)))
    assert solver.expansion(state).intercept == 0.0
    state = solver.restore(one, *state.describe())
    y[:5] = 1.0
    solver.step(one, state, TrainBatch(X, y, np.ones(N)))
    assert solver.expansion(state).intercept == pytest.approx(y[:LABELLED].mean())
    solver.step(one, state, TrainBatch(X, -y, np.ones(N)))
    assert solver.expansion(state).intercept == pytest.approx(y[:LABELLED].mean())


def test_either_kind_counts_half_whatever_its_weights():
    X, y = rows()
    solver, one = TSG(average=None, ramp=(0, 0)), problem()
    i = np.arange(20)
    states = []
    for weight in (np.ones(20), np.where(i < LABELLED, 7.0, 0.25)):
        batch = TrainBatch(X[:20], y[:20], weight, None)
        state = solver.init(one, batch)
        for _ in range(3):
            solver.step(one, state, batch)
        states.append(solver.expansion(state).raw_prediction(X))
    np.testing.assert_allclose(states[0], states[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["labelled", "unlabelled"])
def test_a_batch_of_one_kind_is_a_step_for_that_kind(kind):
    X, y = rows()
    solver, one = TSG(average=None, ramp=(0, 0)), problem()
    state = fit(solver, one, X, y, count=2)
    at = np.arange(LABELLED) if kind == "labelled" else np.arange(LABELLED, N)
    before = solver.expansion(state).raw_prediction(X).astype(float)
    stream = state.iterates.x.stream
    solver.step(one, state, TrainBatch(X[at], y[at], np.ones(len(at)), None))
    phi = stream.transform(stream.prepare(X), 2).astype(float)
    loss = one.loss.labelled if kind == "labelled" else one.loss.unlabelled
    known = (y[at], before[at]) if kind == "labelled" else (before[at],)
    r = loss.gradient(*known) * (1.0 if kind == "labelled" else 0.5)
    gamma = 8 / (1 + 2 / 50) / C
    after = (1 - gamma) * before - gamma * C * phi @ (phi[at].T @ r) / len(at)
    np.testing.assert_allclose(
        solver.expansion(state).raw_prediction(X), after, atol=1e-4 * np.abs(after).max()
    )


def test_presets_and_problems_are_checked():
    for wrong in ({"C": 0.0}, {"sigma": -1.0}, {"eta": 0.5}):
        given = {"C": 1.0, "sigma": 1.0, "eta": 1.0} | wrong
        raises(ValueError, next(iter(wrong)), TSG.paper, **given)
    for cls in (TSG, UDSG, CDSG):
        raises(CapabilityError, "no published program", cls.program, nu=0.1)
    raises(CapabilityError, "finite C", TSG().check_problem, replace(problem(), alpha=0.0))
