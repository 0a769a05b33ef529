"""Doubly stochastic gradients against their formulas, closed forms and algorithms."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import oracles
from cases import every, raises
from kernelgrad import KernelClassifier, KernelRegressor
from kernelgrad.compute.rng import draws
from kernelgrad.features import fused
from kernelgrad.functions import features
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import Hinge, Logistic, SquaredError
from kernelgrad.solvers import CDSG, DSG, UDSG, Problem, TrainBatch, dsg, run
from kernelgrad.solvers.contract import rows_digest
from kernelgrad.testing import check_solver
from steps import forever, signal

SLOPES = {
    "squared": lambda y, f: f - y,
    "logistic": lambda y, f: -y / (1 + np.exp(y * f)),
    "hinge": lambda y, f: np.where(y * f < 1, -y, 0.0),
    "squared_hinge": lambda y, f: np.where(y * f < 1, f - y, 0.0),  # with the paper's 1/2
    "clipped": lambda y, f: np.clip(f - y, -1.0, 1.0),  # Huber's
}


class Uphill(DSG):
    def step(self, problem, state, batch):
        turned = TrainBatch(batch.X, -batch.y, batch.sample_weight)
        info = super().step(problem, state, turned)
        f = self.expansion(state).raw_prediction(batch.X)
        return replace(info, train_loss=float(problem.loss.value(batch.y, f).mean()))


class Moody(DSG):
    def step(self, problem, state, batch):
        self._calls = getattr(self, "_calls", 0) + 1
        state.gamma0 *= 1 + 1e-3 * self._calls
        return super().step(problem, state, batch)


class Forgetful(DSG):
    def restore(self, problem, values, arrays):
        state = super().restore(problem, values, arrays)
        state.gamma0 *= 1.1
        return state


@every(
    ("solver", "told"),
    [
        (Uphill, "training loss did not fall"),
        (Moody, "two equal runs differ"),
        (Forgetful, "a restored state continues differently"),
    ],
)
def test_contract_finds_faults(solver, told):
    raises(AssertionError, told, check_solver, solver(block_size=32))


def data(n=300, seed=0):
    return signal(n, seed, noise=0.1)


def problem(loss=None, alpha=1e-3, **options):
    return Problem(loss or SquaredError(), Gaussian(0.3), alpha, 1, 3, 7, **options)


def batch(X, y):
    return TrainBatch(X, y.reshape(len(y), -1), np.ones(len(y)))


@every("loss", [SquaredError(), Logistic(), Hinge()])
@every("preconditioned", [True, False])
@every("most", [None, 5])
def test_dsg_follows_its_formulas(loss, preconditioned, most):
    X, y = data()
    y = y if loss.name == "squared" else np.where(y > 0, 1.0, -1.0)
    if preconditioned:
        step, mu, beta, average, power = 0.7, DSG().damping, 0.6, "polynomial", 7.0
    else:
        step, mu, beta, average, power = 3.0, None, 0.0, "uniform", 0.0
    solver = DSG(
        block_size=32, preconditioned=preconditioned, step_size=step, decay=5.0, momentum=beta,
        average=average, max_features=None if most is None else 64 * most + 63,
    )  # fmt: skip
    p, b = problem(loss, fit_intercept=False), batch(X, y)
    state = solver.init(p, b)
    stream = state.iterates.x.stream
    T = 12
    order = [solver.step(p, state, b).update.block for _ in range(T)]
    decay = 5.0 * (most or 1)  # in passes over the blocks
    assert order[:5] == [0, 1, 2, 3, 4]
    assert (most is None) == (order[5:] == list(range(5, T)))
    assert max(order) < (most or T)
    rows = stream.prepare(X)
    blocks = [stream.transform(rows, j).astype(np.float64) for j in range(T)]
    gammas = [step / (1 + t / decay) for t in range(T)]
    expected = oracles.dsg(
        blocks, y, SLOPES[loss.name], alpha=p.alpha, gammas=gammas, L=state.smoothness,
        mu=mu, beta=beta, average_power=power, order=order,
    )  # fmt: skip
    f = sum(P @ c for P, c in zip(blocks, expected, strict=False))
    got = solver.expansion(state).raw_prediction(X)[:, 0]
    np.testing.assert_allclose(got, f, atol=2e-4 * np.abs(f).max())


@every(
    ("solver", "options", "loss"),
    [
        (UDSG, {}, "log_loss"), (UDSG, {"new_blocks": 2, "reused_blocks": 3}, "squared"),
        (CDSG, {}, "squared"), (CDSG, {"max_step": 1.5}, "log_loss"),
    ],
)  # fmt: skip
def test_presets_are_algorithms_3_and_4_step_by_step(solver, options, loss):
    X, y = data(400)
    estimator, labels, slope = KernelRegressor, {}, SLOPES["squared"]
    if loss == "log_loss":
        y = np.where(y > 0, 1.0, -1.0)
        estimator, labels, slope = KernelClassifier, {"classes": [-1, 1]}, SLOPES["logistic"]
    theta, offset, size, n = 6.0, 4.0, 8, 30
    sizes = {"batch_size": 20, "block_size": size}
    given = {"nu": 0.1, "theta": theta, "offset": offset, "sigma": 1.5}
    model = estimator(loss, **solver.paper(**given, **sizes, **options), random_state=3)
    batches = [np.arange(20 * t, 20 * t + 20) * 7 % len(y) for t in range(n)]
    used = []
    for rows in batches:
        before = 0 if not used else model.expansion_.n_blocks
        model.partial_fit(X[rows], y[rows], **labels)
        used.append(before if model.expansion_.n_blocks > before else None)
    most = options.get("max_step", np.inf)
    old = iter(udsg_blocks(model.expansion_.stream.seed, used))

    def choose(t, A, B, gamma, r):
        if solver is UDSG:
            return next(old), 1.0
        g, noise = np.array([gamma * r.mean()]), (gamma * np.abs(r).max() / len(r)) ** 2
        eta = [0.0, *(oracles.quadratic_step(np.array([b]), g, noise, most) for b in B)]
        best = int(np.argmax(eta))
        return (len(A), 1.0) if eta[best] <= 1 else (best - 1, min(eta[best], most))

    stream = model.expansion_.stream
    turns = stream.map.frequencies(0, n, size, np.arange(3)).astype(float)

    def features(j):
        t = 2 * np.pi * (X - stream.scaling.centre) @ turns[j]
        return np.hstack([np.cos(t), np.sin(t)]) / np.sqrt(size)

    gammas = [theta / (offset + t) for t in range(1, n + 1)]
    A, _, log = oracles.reuse(features, batches, choose, y, slope, alpha=0.1, gammas=gammas)
    assert [None if k in log[:t] else k for t, k in enumerate(log)] == used
    assert 5 < len(A) < n - 3
    assert model.expansion_.intercept == 0
    for j, a in enumerate(A):
        got = model.expansion_.block(j).ravel()
        np.testing.assert_allclose(got, a, atol=1e-6 * np.abs(a).max())


def udsg_blocks(seed, used):
    """Yield the blocks of all iterations: new ones, and those that the library draws."""
    n = 0
    for t, k in enumerate(used):
        n += k is not None
        yield k if k is not None else int(draws(seed, dsg._TAG, t).integers(n))


def test_the_preset_refuses_what_the_paper_has_not():
    raises(ValueError, "theta", DSG.paper, nu=0.1, theta=20.1)
    assert DSG.paper(nu=0.1, theta=20.1, offset=1)["solver"].decay == 2
    raises(ValueError, "nu", DSG.paper, nu=0.0)
    raises(TypeError, "sigma", DSG.paper, nu=0.1, sigma="scale")


@every("cls", [DSG, UDSG, CDSG])
@every(
    ("options", "blocks"),
    [({"max_features": 4 * 32 + 31}, 4), ({"max_blocks": 3, "max_features": 320}, 3),
     ({"max_features": 3}, 1)],
)  # fmt: skip
def test_the_smaller_of_two_bounds_counts_and_one_block_is_the_least(cls, options, blocks):
    p, b = problem(), batch(*data())
    history = run(cls(block_size=16, **options), p, forever(b), max_iter=24).history
    used, saved = history["n_random_features"][-1], history["n_features_saved"][-1]
    assert (used, saved) == (32 * blocks, 32 * (24 - blocks))
    assert blocks == 1 or history["train_loss"][-1] < 0.3 * history["train_loss"][0]


def test_momentum_is_for_batches_of_little_noise():
    X, y = data(4096)

    def way(n, fixed, **options):
        solver = DSG(block_size=16, **options)
        p, b = problem(alpha=0.0, fixed_rows=fixed), batch(X[:n], y[:n])
        state = solver.init(p, b)
        for some in (b, b, batch(X[:50], y[:50])):
            solver.step(replace(p, fixed_rows=fixed and some is b), state, some)
        v = state.iterates.v
        # the last step added one block, and went on in the direction of those before or not
        return None if v is None else bool(v.coef[:, :32].any())

    assert way(4096, False) is way(60, True) is False
    assert way(4095, False) is way(4096, False, preconditioned=False) is None
    assert way(60, False, momentum=0.8) is True


@every("every", [1, 2, 4])
def test_moments_are_of_every_so_many_rows(every, monkeypatch):
    """Also through tiles whose size is no multiple of the number."""
    monkeypatch.setattr(features, "MOMENT_ROWS", 50)
    b = batch(*data(2048))
    stream = DSG(block_size=16).init(problem(), b).iterates.x.stream
    X, f, r = stream.prepare(b.X), b.y.astype(np.float32), b.X[:, :1].astype(np.float32)
    root = np.linspace(0.5, 1.5, 2048, dtype=np.float32)[:, None]
    H, penalty, gradient = stream.moments(X, 0, root, every, f, r)
    P = stream.transform(X, 0).astype(np.float64) * root
    S = P[::every]
    close = {"rtol": 1e-4, "atol": 1e-3}
    np.testing.assert_allclose(np.tril(H), np.tril(S.T @ S), **close)
    np.testing.assert_allclose(penalty, S.T @ (root * f)[::every], **close)
    np.testing.assert_allclose(gradient, P.T @ (root * r), **close)


# -- kept responses of rows that come again --------------------------------------------


@pytest.mark.parametrize(
    "solver",
    [DSG(block_size=32, momentum=0.8), CDSG(block_size=32, max_blocks=4, momentum=0.8)],
    ids=repr,
)
def test_kept_responses_are_predictions(solver):
    b, other = batch(*data()), batch(*data(seed=1))
    states, losses = [], []
    for fixed in ((False, False), (True, True), (True, False)):  # the last: others of a stream
        p, q = (problem(fixed_rows=each) for each in fixed)
        state = solver.init(p, b)
        order = [*[(p, b)] * 10, (q, other), (q, other), (p, b)]  # others are predicted afresh
        losses.append([solver.step(each, state, rows).train_loss for each, rows in order])
        states.append(solver.expansion(state).raw_prediction(b.X))
    for i in (1, 2):
        np.testing.assert_allclose(losses[i], losses[0], rtol=1e-4)
        np.testing.assert_allclose(states[i], states[0], atol=2e-5)
    # a control: the rows matter, so stale responses would show
    assert abs(losses[0][10] - losses[0][9]) > 1e-2 * losses[0][9]


def test_the_digest_knows_values_shapes_and_kinds():
    X = np.arange(12.0).reshape(4, 3)
    kinds = [X, X.astype(np.float32), X.reshape(3, 4), X + 1e-9, sp.csr_matrix(X)]
    assert len({rows_digest(A) for A in kinds}) == len(kinds)
    assert rows_digest(np.asfortranarray(X)) == rows_digest(X)


def test_a_row_alone_is_multiplied_like_a_lot_of_rows():
    rng = np.random.default_rng(0)
    X, W = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 10), (2, 10, 256)))
    coef, phase = rng.standard_normal((2, 512, 1)).astype(np.float32), np.empty(0, np.float32)
    alone, among = np.zeros((1, 1), np.float32), np.zeros((fused.LOT, 1), np.float32)
    fused.predict(X, W, phase, fused.PAIR, coef, alone)
    rows = np.concatenate([X, np.zeros((fused.LOT - 1, 10), np.float32)])
    fused.predict(rows, W, phase, fused.PAIR, coef, among)
    assert alone[0] == among[0]
    assert fused.ROWS % fused.LOT == fused.ROWS_WIDE % fused.LOT == 0
