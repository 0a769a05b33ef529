"""DSG against its formulas, closed forms and the loop's promises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

import oracles
from kernelgrad import KernelClassifier, KernelRegressor
from kernelgrad._validation import CapabilityError
from kernelgrad.callbacks import Callback, CallbackList
from kernelgrad.kernels import Gaussian, get_kernel
from kernelgrad.losses import Absolute, Hinge, Logistic, SquaredError
from kernelgrad.solvers import (
    DSG,
    Problem,
    TrainBatch,
    Validation,
    check_capabilities,
    get_solver,
    run,
)
from kernelgrad.solvers.schedules import averaging_weight, inverse_decay, smoothness
from kernelgrad.testing import check_solver


@pytest.mark.parametrize(
    "params",
    [{}, {"preconditioned": False}, {"momentum": 0.0, "average": None}, {"max_blocks": 3}],
)
def test_contract(params):
    check_solver(DSG(block_size=32, **params))


def test_contract_finds_a_wrong_sign():
    class Uphill(DSG):
        def step(self, problem, state, batch):
            turned = TrainBatch(batch.X, -batch.y, batch.sample_weight)
            info = super().step(problem, state, turned)
            f = self.expansion(state).raw_prediction(batch.X)
            return replace(info, train_loss=float(problem.loss.value(batch.y, f).mean()))

    with pytest.raises(AssertionError, match="training loss did not fall"):
        check_solver(Uphill(block_size=32))


def test_contract_finds_hidden_randomness():
    class Moody(DSG):
        def step(self, problem, state, batch):
            self._calls = getattr(self, "_calls", 0) + 1
            state.gamma0 *= 1 + 1e-3 * self._calls
            return super().step(problem, state, batch)

    with pytest.raises(AssertionError, match="two equal runs differ"):
        check_solver(Moody(block_size=32))


def data(n=300, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.standard_normal(n)
    return X, y


def problem(loss=None, alpha=1e-3, d=3, **kwargs):
    kernel = Gaussian(gamma=0.3)
    return Problem(loss or SquaredError(), kernel, alpha, 1, d, 7, **kwargs)


def batch(X, y, weight=None):
    weight = np.ones(len(y)) if weight is None else weight
    return TrainBatch(X, y.reshape(len(y), -1), weight)


def forever(b):
    while True:
        yield b, 0.0


SLOPES = {
    "squared": lambda y, f: f - y,
    "logistic": lambda y, f: -y / (1 + np.exp(y * f)),
    "hinge": lambda y, f: np.where(y * f < 1, -y, 0.0),
}


@pytest.mark.parametrize("loss", [SquaredError(), Logistic(), Hinge()], ids=lambda x: x.name)
@pytest.mark.parametrize("preconditioned", [True, False])
def test_dsg_follows_its_formulas(loss, preconditioned):
    X, y = data()
    y = y if loss.name == "squared" else np.where(y > 0, 1.0, -1.0)
    solver = DSG(
        block_size=32,
        preconditioned=preconditioned,
        step_size=0.7 if preconditioned else 3.0,
        decay=5.0,
        momentum=0.6 if preconditioned else 0.0,
        average="polynomial" if preconditioned else "uniform",
    )
    p = problem(loss, fit_intercept=False)
    b = batch(X, y)
    state = solver.init(p, b)
    stream = state.iterates.x.stream
    T = 12
    for _ in range(T):
        solver.step(p, state, b)
    rows = stream.prepare(X)
    blocks = [stream.transform(rows, j).astype(np.float64) for j in range(T)]
    expected = oracles.dsg(
        blocks,
        y,
        SLOPES[loss.name],
        alpha=p.alpha,
        gammas=[(0.7 if preconditioned else 3.0) / (1 + t / 5.0) for t in range(T)],
        L=state.smoothness,
        mu=solver.damping if preconditioned else None,
        beta=0.6 if preconditioned else 0.0,
        average_power=7.0 if preconditioned else 0.0,
    )
    f = sum(P @ c for P, c in zip(blocks, expected, strict=True))
    got = solver.expansion(state).raw_prediction(X)[:, 0]
    np.testing.assert_allclose(got, f, atol=2e-4 * np.abs(f).max())


@pytest.mark.parametrize("alpha", [1e-1, 1e-2])
def test_dsg_tends_to_kernel_ridge(alpha):
    X, y = data()
    y = y - y.mean()
    exact = KernelRidge(kernel="rbf", gamma=0.3, alpha=alpha * len(y)).fit(X, y).predict(X)
    p = problem(alpha=alpha, fit_intercept=False)

    def distance(target):
        solver = DSG(block_size=128, momentum=0.0, decay=50.0, average="polynomial")
        result = run(solver, p, forever(batch(X, y)), max_iter=250)
        f = result.expansion.raw_prediction(X)[:, 0]
        return np.sqrt(np.mean((f - target) ** 2) / np.mean(target**2))

    assert distance(exact) < 0.05
    other = KernelRidge(kernel="rbf", gamma=0.3, alpha=5 * alpha * len(y)).fit(X, y).predict(X)
    assert distance(other) > 0.05  # the control: another alpha is told apart


def test_plain_automatic_step_does_not_diverge():
    X, y = data()
    p = problem(alpha=1e-6)
    result = run(
        DSG(block_size=32, preconditioned=False), p, forever(batch(X, y)), max_iter=100
    )
    losses = result.history["train_loss"]
    assert np.all(np.isfinite(losses))
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.slow
def test_averaged_iterate_converges_at_the_rate_of_the_paper():
    """Theorem 4: the squared error falls like 1/t; five standard errors over seeds."""

    def target(X):
        r = np.linalg.norm(X, axis=1)
        return np.cos(0.5 * np.pi * r) * np.exp(-0.1 * np.pi * r)

    def slope(seed, decay):
        rng = np.random.default_rng(seed)
        Z = rng.uniform(-5, 5, (500, 2))
        kernel = Gaussian("median", bandwidth_factor=0.1)
        p = Problem(SquaredError(), kernel, 1e-6, 1, 2, seed, fit_intercept=False)
        solver = DSG(
            preconditioned=False, block_size=512, step_size=20.0, decay=decay, average="uniform"
        )
        state, errors = None, []
        for _ in range(200):
            X = rng.uniform(-5, 5, (512, 2))
            b = batch(X, target(X) + 0.1 * rng.standard_normal(512))
            if state is None:
                state = solver.init(p, b)
                tracker = solver.track(state, Z)
            tracker.advance(solver.step(p, state, b))
            errors.append(np.mean((tracker.raw_prediction()[:, 0] - target(Z)) ** 2))
        t = np.arange(1, 201)
        late = t >= 20
        return np.polyfit(np.log(t[late]), np.log(np.array(errors)[late]), 1)[0]

    slopes = np.array([slope(seed, 20.0) for seed in range(6)])
    error = slopes.std(ddof=1) / np.sqrt(len(slopes))
    assert slopes.mean() < -0.6 + 5 * error
    # the control: steps that vanish at once cannot converge
    stuck = np.array([slope(seed, 0.05) for seed in range(3)])
    assert stuck.mean() > -0.6 + 5 * error


def test_tracker_agrees_with_prediction():
    X, y = data()
    Z, _ = data(50, seed=1)
    solver, p = DSG(block_size=16), problem()
    b = batch(X, y)
    state = solver.init(p, b)
    tracker = solver.track(state, Z)
    for _ in range(6):
        tracker.advance(solver.step(p, state, b))
    late = solver.track(state, Z)
    f = solver.expansion(state).raw_prediction(Z)
    np.testing.assert_allclose(tracker.raw_prediction(), f, atol=1e-5)
    np.testing.assert_allclose(late.raw_prediction(), f, atol=1e-6)


def test_max_blocks_bounds_memory_and_still_learns():
    X, y = data()
    p = problem()
    result = run(DSG(block_size=32, max_blocks=4), p, forever(batch(X, y)), max_iter=30)
    assert result.expansion.n_blocks == 4
    assert max(result.history["n_random_features"]) == 4 * 64
    assert result.history["train_loss"][-1] < 0.1 * result.history["train_loss"][0]


@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("average", [None, "polynomial"])
def test_state_survives_plain_values_and_arrays(momentum, average):
    X, y = data()
    solver, p = DSG(block_size=16, momentum=momentum, average=average), problem()
    b = batch(X, y)
    state = solver.init(p, b)
    for _ in range(4):
        solver.step(p, state, b)
    twin = solver.restore(p, *solver.state_arrays(state))
    for s in (state, twin):
        solver.step(p, s, b)
    first, second = (solver.expansion(s).raw_prediction(X) for s in (state, twin))
    np.testing.assert_array_equal(first, second)


def test_weights_are_repeated_rows():
    X, y = data(40)
    w = np.arange(40) % 3 + 1.0
    solver, p = DSG(block_size=16), problem()
    many = batch(np.repeat(X, w.astype(int), axis=0), np.repeat(y, w.astype(int)))
    out = []
    for b in (batch(X, y, w), many):
        state = solver.init(p, b)
        # repeated rows move only the median of the distances, which is fixed here
        for _ in range(3):
            solver.step(p, state, b)
        out.append(solver.expansion(state).raw_prediction(X))
    np.testing.assert_allclose(out[0], out[1], atol=1e-4)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"block_size": 0}, "block_size must be at least 1, got 0"),
        ({"batch_size": 2.5}, "batch_size must be an integer, got 2.5"),
        ({"step_size": -1.0}, r"step_size must lie in \(0, inf\), got -1.0"),
        ({"decay": 0.0}, r"decay must lie in \(0, inf\), got 0.0"),
        ({"damping": np.nan}, "damping must lie in .* got nan"),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0"),
        ({"average": "last"}, "Unknown average 'last'; choose one of: polynomial, uniform"),
        ({"max_blocks": 0}, "max_blocks must be at least 1"),
        ({"preconditioned": "yes"}, "preconditioned must be True or False, got 'yes'"),
    ],
)
def test_dsg_names_wrong_parameters(params, message):
    with pytest.raises((ValueError, TypeError), match=message):
        get_solver(DSG(**params))


def test_get_solver_names_the_choices():
    choices = (
        "Unknown solver .adam.; choose one of: auto, bgs3vm, cached, .* cdsg, direct, dsg, "
    )
    with pytest.raises(ValueError, match=choices):
        get_solver("adam")
    with pytest.raises(TypeError, match="solver must be a name"):
        get_solver(3)


def test_capabilities_are_checked_before_work():
    class Smooth(DSG):
        name = "smooth"
        requires = frozenset({"gradient", "smooth_loss"})

    check_capabilities(Smooth(), SquaredError(), Gaussian(1.0))
    with pytest.raises(CapabilityError, match="'smooth' needs smooth_loss, which loss 'hinge'"):
        check_capabilities(Smooth(), Hinge(), Gaussian(1.0))
    with pytest.raises(CapabilityError, match="needs smooth_loss"):
        KernelClassifier(loss="hinge", solver=Smooth()).fit(np.eye(4), [0, 1, 0, 1])


class Stop(Callback):
    def __init__(self, after):
        self.after, self.status, self.events = after, None, []

    def on_iteration(self, event):
        self.events.append(event)
        return event.iteration >= self.after

    def on_end(self, status):
        self.status = status


def test_loop_records_and_stops():
    X, y = data()
    stop = Stop(3)
    result = run(
        DSG(block_size=16),
        problem(),
        forever(batch(X, y)),
        max_iter=10,
        callbacks=CallbackList([stop]),
    )
    assert result.status == stop.status == "stopped"
    assert result.history["iteration"] == [1, 2, 3]
    assert [e.n_random_features for e in stop.events] == [32, 64, 96]
    assert result.history["rows_seen"] == [300, 600, 900]
    assert all(np.diff(result.history["seconds"]) >= 0)


def test_loop_keeps_the_best_iterate():
    X, y = data()
    scores = iter([0.1, 0.9, 0.5, 0.5, 0.5, 0.5])
    seen = []

    def score(raw):
        seen.append(raw.copy())
        return next(scores)

    validation = Validation(X, score, "made up", patience=3, tol=0.0)
    result = run(
        DSG(block_size=16), problem(), forever(batch(X, y)), max_iter=9, validation=validation
    )
    assert (result.status, result.best_iteration, result.best_score) == ("converged", 2, 0.9)
    assert result.history["validation_score"] == [0.1, 0.9, 0.5, 0.5, 0.5]
    np.testing.assert_allclose(result.expansion.raw_prediction(X), seen[1], atol=1e-5)


@pytest.mark.parametrize("after", [0, 2])
def test_loop_survives_an_interrupt(after):
    X, y = data()

    def batches():
        for _ in range(after):
            yield batch(X, y), 0.0
        raise KeyboardInterrupt

    if after == 0:
        with pytest.raises(KeyboardInterrupt):
            run(DSG(block_size=16), problem(), batches(), max_iter=9)
    else:
        result = run(DSG(block_size=16), problem(), batches(), max_iter=9)
        assert result.status == "interrupted"
        assert result.state.iteration == after


def test_loop_without_batches():
    with pytest.raises(ValueError, match="no batch to learn from"):
        run(DSG(), problem(), iter([]), max_iter=3)


def test_step_scales():
    y = np.array([[1.0], [3.0], [8.0]])
    f = np.zeros((3, 1))
    assert smoothness(SquaredError(), y, f) == 1.0
    assert smoothness(Logistic(), np.sign(y), f) == 0.25
    assert smoothness(Absolute(), y, f) == pytest.approx(1 / 4.0)
    assert smoothness(Absolute(), 1000 * y, f) == pytest.approx(1 / 4000.0)
    assert smoothness(Hinge(), np.sign(y), f) == 1.0
    assert inverse_decay(2.0, 20, 20.0) == 1.0
    assert averaging_weight(4, 0.0) == 0.25
    assert averaging_weight(1, 7.0) == 1.0


def test_any_loss_scale_is_learned():
    """A target in thousands is learned as well as one in units: steps know the scale."""
    X, y = data(600)
    for loss in ("squared", "absolute", "quantile", "huber"):
        scores = []
        for scale in (1.0, 1000.0):
            params = {
                "loss": loss,
                "max_iter": 30,
                "random_state": 0,
                "gamma": 0.3,
                "alpha": 0.0,
            }
            if loss == "huber":
                from kernelgrad.losses import Huber

                params["loss"] = Huber(delta=0.5 * scale)
            model = KernelRegressor(**params).fit(X, scale * y + 5 * scale)
            scores.append(model.score(X, scale * y + 5 * scale))
        assert scores[0] > 0.9
        assert scores[1] == pytest.approx(scores[0], abs=0.02)


def test_kernels_are_resolved_on_the_first_batch():
    X, y = data()
    p = Problem(SquaredError(), get_kernel("rbf", gamma="median"), 1e-6, 1, 3, 0)
    state = DSG(block_size=16).init(p, batch(X, y))
    D = np.linalg.norm(X[:, None] - X[None], axis=2)
    median = np.median(D[np.triu_indices(300, 1)])
    assert state.iterates.x.stream.kernel.gamma == pytest.approx(1 / (2 * median**2), rel=1e-6)


@pytest.mark.parametrize(("damping", "rows"), [(1.0, 1024), (0.5, 2048), (0.1, 4096)])
def test_a_small_damping_sees_more_rows(damping, rows, monkeypatch):
    from kernelgrad.solvers.random_features import dsg

    seen = []
    gram = dsg.linalg.gram
    monkeypatch.setattr(dsg.linalg, "gram", lambda A: seen.append(len(A)) or gram(A))
    monkeypatch.setattr(dsg, "MIN_CURVATURE_ROWS", 64)
    X, y = data(4096)
    solver = DSG(block_size=256, damping=damping)
    p = problem()
    b = batch(X, y)
    solver.step(p, solver.init(p, b), b)
    assert seen == [rows]
