"""Doubly stochastic gradients against their formulas, closed forms and algorithms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

import oracles
from cases import every
from kernelgrad import KernelClassifier, KernelRegressor, load
from kernelgrad.functions import features
from kernelgrad.functions.features import FeatureStream
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import Hinge, Huber, Logistic, SquaredError
from kernelgrad.papers.cdsg.cdsg import allowed_steps
from kernelgrad.solvers import CDSG, DSG, UDSG, Problem, TrainBatch, dsg, get_solver, run
from kernelgrad.solvers.contract import draws
from kernelgrad.testing import check_solver
from plain import plain_classifier, plain_regressor

PLAIN = {"preconditioned": False, "momentum": 0.0, "average": None}
SLOPES = {
    "squared": lambda y, f: f - y,
    "logistic": lambda y, f: -y / (1 + np.exp(y * f)),
    "hinge": lambda y, f: np.where(y * f < 1, -y, 0.0),
    "squared_hinge": lambda y, f: np.where(y * f < 1, f - y, 0.0),  # with the paper's 1/2
    "clipped": lambda y, f: np.clip(f - y, -1.0, 1.0),  # Huber's
}


@every(
    "solver",
    [
        DSG(block_size=32, preconditioned=False),
        DSG(block_size=32, momentum=0.0, average=None),
        DSG(block_size=32, momentum=0.8, max_blocks=3),
        UDSG(block_size=32, new_blocks=2, reused_blocks=3, preconditioned=False),
        CDSG(block_size=32, max_step=4.0, preconditioned=False),
        CDSG(block_size=32, momentum=0.8, max_blocks=3),
        DSG(block_size=32, max_features=192),
        UDSG(block_size=32, max_features=128, preconditioned=False),
    ],
)
def test_contract(solver):
    check_solver(solver)


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
    with pytest.raises(AssertionError, match=told):
        check_solver(solver(block_size=32))


def data(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.standard_normal(n)
    return X, y


def problem(loss=None, alpha=1e-3, **options):
    return Problem(loss or SquaredError(), Gaussian(0.3), alpha, 1, 3, 7, **options)


def batch(X, y):
    return TrainBatch(X, y.reshape(len(y), -1), np.ones(len(y)))


def forever(b):
    while True:
        yield b, 0.0


@every("loss", [SquaredError(), Logistic(), Hinge()])
@every("preconditioned", [True, False])
@every("most", [None, 5])
def test_dsg_follows_its_formulas(loss, preconditioned, most):
    X, y = data()
    y = y if loss.name == "squared" else np.where(y > 0, 1.0, -1.0)
    solver = DSG(
        block_size=32,
        preconditioned=preconditioned,
        step_size=0.7 if preconditioned else 3.0,
        decay=5.0,
        momentum=0.6 if preconditioned else 0.0,
        average="polynomial" if preconditioned else "uniform",
        max_features=None if most is None else 64 * most + 63,
    )
    p = problem(loss, fit_intercept=False)
    b = batch(X, y)
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
    expected = oracles.dsg(
        blocks,
        y,
        SLOPES[loss.name],
        alpha=p.alpha,
        gammas=[(0.7 if preconditioned else 3.0) / (1 + t / decay) for t in range(T)],
        L=state.smoothness,
        mu=solver.damping if preconditioned else None,
        beta=0.6 if preconditioned else 0.0,
        average_power=7.0 if preconditioned else 0.0,
        order=order,
    )
    f = sum(P @ c for P, c in zip(blocks, expected, strict=False))
    got = solver.expansion(state).raw_prediction(X)[:, 0]
    np.testing.assert_allclose(got, f, atol=2e-4 * np.abs(f).max())


def frequencies(stream, n):
    """Frequencies in radians and phases of the first n features."""
    d, F = stream.n_features_in, stream.block_size
    blocks = -(-n // F)
    W = np.hstack(stream.map.frequencies(0, blocks, F, np.arange(d)).astype(float))
    b = stream.map.projection.phases(stream.seed, 0, n).astype(float)
    return 2 * np.pi * W[:, :n], 2 * np.pi * b


@pytest.mark.parametrize(
    ("estimator", "loss", "options"),
    [
        (KernelRegressor, "squared", {"nu": 1e-2}),
        (KernelRegressor, "huber", {"nu": 1e-2, "theta": 3.0, "offset": 2.0}),
        (KernelClassifier, "hinge", {"nu": 0.1, "theta": 15.0}),
        (KernelClassifier, "log_loss", {"nu": 1e-3, "theta": 2.0}),
        (KernelClassifier, "squared_hinge", {"nu": 1e-2, "theta": 50.0, "half": True}),
    ],
)
def test_the_preset_is_algorithm_1_step_by_step(estimator, loss, options):
    X, y = data(25)
    if estimator is KernelClassifier:
        y = np.where(y > 0, 1.0, -1.0)
    slope = {"huber": "clipped", "log_loss": "logistic"}.get(loss, loss)
    half = 2 if options.pop("half", False) else 1
    given = options | {"nu": half * options["nu"]}
    if half == 2:
        given["theta"] = options["theta"] / 2
    model = estimator(loss, **DSG.paper(sigma=1.5, factor=0.8, **given), random_state=3)
    course = []
    for row, target in zip(X, y, strict=True):
        labels = {"classes": [-1.0, 1.0]} if estimator is KernelClassifier else {}
        model.partial_fit(row[None], [target], **labels)
        course.append(model.expansion_.coef[0, : len(course) + 1, 0].copy())
        assert model.expansion_.intercept == 0
    stream = model.expansion_.stream
    W, b = frequencies(stream, len(X))
    b -= stream.scaling.centre @ W  # rows are centred: another phase
    theta = options.pop("theta", 1 / options["nu"])
    expected = oracles.dsg_paper(X, y, W, b, SLOPES[slope], theta=theta, **options)
    assert model.kernel_.gamma == pytest.approx(1 / (2 * (0.8 * 1.5) ** 2))
    for got, alpha in zip(course, expected, strict=True):
        np.testing.assert_allclose(got, alpha, atol=1e-4 * max(np.abs(alpha)), rtol=1e-4)


@pytest.mark.parametrize(
    ("solver", "options", "loss"),
    [
        (UDSG, {}, "log_loss"),
        (UDSG, {"new_blocks": 2, "reused_blocks": 3}, "squared"),
        (CDSG, {}, "squared"),
        (CDSG, {"max_step": 1.5}, "log_loss"),
    ],
)
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
        g, spread = gamma * r.mean(), gamma * np.abs(r).max() / len(r)
        eta = [0.0]
        for b in B:
            roots = np.roots([2 * (g**2 + spread**2), 4 * b * g, b**2 - g**2])
            eta.append(-roots.min() if np.isreal(roots).all() else 0.0)
        best = int(np.argmax(eta))
        return (len(A), 1.0) if eta[best] <= 1 else (best - 1, min(eta[best], most))

    W = (
        2
        * np.pi
        * np.hstack(
            model.expansion_.stream.map.frequencies(0, n, size, np.arange(3)).astype(float)
        )
    )

    def features(j):
        t = (X - model.expansion_.stream.scaling.centre) @ W[:, size * j : size * (j + 1)]
        return np.hstack([np.cos(t), np.sin(t)]) / np.sqrt(size)

    gammas = [theta / (offset + t) for t in range(1, n + 1)]
    A, _, log = oracles.reuse(features, batches, choose, y, slope, alpha=0.1, gammas=gammas)
    assert [None if k in log[:t] else k for t, k in enumerate(log)] == used
    assert 5 < len(A) < n - 3
    assert model.expansion_.intercept == 0
    for j, a in enumerate(A):
        got = model.expansion_.block(j).ravel()
        np.testing.assert_allclose(got, a, atol=1e-4 * np.abs(a).max())


def udsg_blocks(seed, used):
    """Yield the blocks of all iterations: new ones, and those that the library draws."""
    n = 0
    for t, k in enumerate(used):
        n += k is not None
        yield k if k is not None else int(draws(seed, dsg._TAG, t).integers(n))


def test_the_preset_refuses_what_the_paper_has_not():
    with pytest.raises(ValueError, match="theta"):
        DSG.paper(nu=0.1, theta=20.1)
    assert DSG.paper(nu=0.1, theta=20.1, offset=1)["solver"].decay == 2
    with pytest.raises(ValueError, match="nu"):
        DSG.paper(nu=0.0)
    with pytest.raises(TypeError, match="sigma"):
        DSG.paper(nu=0.1, sigma="scale")


@pytest.mark.parametrize("alpha", [pytest.param(1e-1, marks=pytest.mark.slow), 1e-2])
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
    """The squared error falls with t, but not with steps that vanish; over seeds.

    The constant steps of the paper's Figure 4(2), not the theta / t of Theorem 4: how fast it
    falls is for ``python -m experiments run dsg.figure4_2``.
    """

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


def test_max_blocks_bounds_memory_and_still_learns():
    X, y = data()
    p = problem()
    result = run(DSG(block_size=32, max_blocks=4), p, forever(batch(X, y)), max_iter=30)
    assert result.expansion.n_blocks == 4
    assert max(result.history["n_random_features"]) == 4 * 64
    assert result.history["train_loss"][-1] < 0.1 * result.history["train_loss"][0]


@pytest.mark.parametrize("cls", [DSG, UDSG, CDSG])
def test_a_bound_makes_the_cost_of_a_row_constant(cls, monkeypatch):
    """Features made for a step are counted, not seconds."""
    made = []
    for name in ("transform", "gradient", "predict"):
        call = getattr(FeatureStream, name)

        def counted(self, X, *args, call=call, name=name):
            made.append(len(X) * self.width * (args[1] if name == "predict" else 1))
            return call(self, X, *args)

        monkeypatch.setattr(FeatureStream, name, counted)

    def of_steps(**options):
        X, y = data()
        solver, p, b = cls(block_size=16, batch_size=300, **options), problem(), batch(X, y)
        state, counts = solver.init(p, b), []
        for _ in range(24):
            made.clear()
            info = solver.step(p, state, b)
            counts.append(sum(made) / len(X) / 32)
        used, saved = info.n_random_features, info.n_features_saved
        assert used + saved == 24 * 32
        assert used == solver.expansion(state).n_random_features
        return counts, used

    counts, used = of_steps(max_features=4 * 32 + 31)
    assert used == 4 * 32
    assert max(counts) == counts[-1] == 5  # four to predict with and one to step on
    if cls is DSG:
        counts, used = of_steps()
        assert counts == list(range(1, 25))
        assert used == 24 * 32


def test_the_smaller_of_two_bounds_counts_and_one_block_is_the_least():
    assert DSG()._most_blocks(64) == np.inf
    assert DSG(max_blocks=3, max_features=640)._most_blocks(64) == 3
    assert DSG(max_blocks=30, max_features=640)._most_blocks(64) == 10
    assert DSG(max_features=10)._most_blocks(64) == 1
    widths = [2 * DSG(max_features=m)._resolve_block_size(problem(), 8192, 2) for m in (
        2**20, 2**14, 3000, 3)]  # fmt: skip
    assert widths == [2048, 1024, 128, 2]


def test_a_bounded_stream_goes_on_from_a_file_bit_for_bit(tmp_path):
    X, y = data(1200)
    solver = DSG(block_size=16, batch_size=100, max_features=128)
    model = plain_regressor(solver=solver, random_state=0).partial_fit(X[:700], y[:700])
    path = tmp_path / "m.kgm"
    model.save(path, resumable=True)
    models = [model, load(path)]
    for one in models:
        one.partial_fit(X[700:], y[700:])
    np.testing.assert_array_equal(*(one.predict(X) for one in models))
    assert [one.n_random_features_ for one in models] == [128, 128]
    assert model.history_["n_features_saved"][-1] == 8 * 32
    assert model.n_iter_ == 12


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


@pytest.mark.parametrize("parts", [("x",), ("x", "v"), ("x", "a"), ("x", "v", "a")])
def test_files_of_states_hold_the_functions_there_are(parts):
    X, y = data()
    momentum, average = 0.8 * ("v" in parts), "polynomial" if "a" in parts else None
    solver, p = DSG(block_size=16, momentum=momentum, average=average), problem()
    b = batch(X, y)
    state = solver.init(p, b)
    for _ in range(3):
        solver.step(p, state, b)
    values, arrays = solver.state_arrays(state)
    assert set(parts) == {"x", "v", "a"} & set(arrays)
    twin = solver.restore(p, values, {name: a.copy() for name, a in arrays.items()})
    for s in (state, twin):
        solver.step(p, s, b)
    first, second = (solver.expansion(s).raw_prediction(X) for s in (state, twin))
    np.testing.assert_array_equal(first, second)


@every(
    ("solver", "message"),
    [
        (DSG(block_size=0), "block_size must be at least 1, got 0"),
        (DSG(batch_size=2.5), "batch_size must be an integer, got 2.5"),
        (DSG(step_size=-1.0), r"step_size must lie in \(0, inf\), got -1.0"),
        (DSG(decay=0.0), r"decay must lie in \(0, inf\), got 0.0"),
        (DSG(damping=np.nan), "damping must lie in .* got nan"),
        (DSG(momentum=1.0), r"momentum must lie in \[0, 1\), got 1.0"),
        (DSG(average="last"), "Unknown average 'last'; choose one of: polynomial, uniform"),
        (DSG(max_blocks=0), "max_blocks must be at least 1"),
        (DSG(max_features=0), "max_features must be at least 1"),
        (DSG(preconditioned="yes"), "preconditioned must be True or False, got 'yes'"),
        (UDSG(new_blocks=0), "new_blocks must be at least 1"),
        (UDSG(reused_blocks=-1), "reused_blocks must be at least 0"),
        (CDSG(max_step=0.5), r"max_step must lie in \[1, inf\)"),
        (CDSG(spread=-1.0), r"spread must lie in \[0, inf\)"),
    ],
)
def test_wrong_parameters_are_named(solver, message):
    with pytest.raises((ValueError, TypeError), match=message):
        get_solver(solver)
    DSG(decay=np.inf).check()


@pytest.mark.parametrize("loss", ["squared", "absolute", "quantile", "huber"])
def test_any_scale_of_targets_is_learned(loss):
    """A target in thousands is learned as well as one in units: steps know the scale."""
    X, y = data(600)
    scores = []
    for scale in (1.0, 1000.0):
        model = plain_regressor(
            Huber(delta=0.5 * scale) if loss == "huber" else loss,
            max_iter=30, random_state=0, gamma=0.3, alpha=0.0, solver="dsg",
        )  # fmt: skip
        scores.append(model.fit(X, scale * y + 5 * scale).score(X, scale * y + 5 * scale))
    assert scores[0] > 0.9
    assert scores[1] == pytest.approx(scores[0], abs=0.02)


def test_kernels_are_resolved_on_the_first_batch():
    X, y = data()
    p = Problem(SquaredError(), Gaussian("median"), 1e-6, 1, 3, 0)
    state = DSG(block_size=16).init(p, batch(X, y))
    D = np.linalg.norm(X[:, None] - X[None], axis=2)
    median = np.median(D[np.triu_indices(300, 1)])
    assert state.iterates.x.stream.kernel.gamma == pytest.approx(1 / (2 * median**2), rel=1e-6)


@pytest.mark.parametrize(("damping", "rows"), [(1.0, 512), (0.5, 1024), (0.1, 2048)])
def test_a_small_damping_sees_more_rows(damping, rows, monkeypatch):
    seen = []
    gram = dsg.linalg.gram
    monkeypatch.setattr(dsg.linalg, "gram", lambda *A: seen.append(len(A[0])) or gram(*A))
    monkeypatch.setattr(dsg, "MIN_CURVATURE_ROWS", 64)
    solver, p, b = DSG(block_size=128, damping=damping), problem(), batch(*data(2048))
    state = solver.init(p, b)
    solver.step(p, state, b)
    assert seen == [rows]
    # of each row number `every`, through tiles whose size is no multiple of it
    monkeypatch.setattr(features, "MOMENT_ROWS", 50)
    stream, every = state.iterates.x.stream, 2048 // rows
    X, f, r = stream.prepare(b.X), b.y.astype(np.float32), b.X[:, :1].astype(np.float32)
    root = np.linspace(0.5, 1.5, 2048, dtype=np.float32)[:, None]
    H, penalty, gradient = stream.moments(X, 0, root, every, f, r)
    P = stream.transform(X, 0).astype(np.float64) * root
    S = P[::every]
    close = {"rtol": 1e-4, "atol": 1e-3}
    np.testing.assert_allclose(np.tril(H), np.tril(S.T @ S), **close)
    np.testing.assert_allclose(penalty, S.T @ (root * f)[::every], **close)
    np.testing.assert_allclose(gradient, P.T @ (root * r), **close)


# -- old blocks again ------------------------------------------------------------------------


def steps(solver, loss, X, y, n, alpha=1e-2):
    p = problem(loss, alpha, fit_intercept=False)
    batches = [np.arange(t, t + 40) * 7 % len(y) for t in range(0, 40 * n, 40)]
    train = [batch(X[i], y[i]) for i in batches]
    state = solver.init(p, train[0])
    infos = [solver.step(p, state, b) for b in train]
    stream = state.iterates.x.stream
    rows = stream.prepare(X)
    return state, infos, batches, lambda j: stream.transform(rows, j).astype(np.float64)


def test_udsg_draws_old_blocks_uniformly():
    X, y = data(64)
    solver = UDSG(block_size=4, reused_blocks=400, new_blocks=4, **PLAIN)
    _, infos, _, _ = steps(solver, SquaredError(), X, y, 404)
    counts = np.bincount([i.update.block for i in infos[4:]], minlength=4)
    assert len(counts) == 4
    # 5 standard deviations of a binomial count
    assert np.all(np.abs(counts - 100) < 5 * np.sqrt(400 * 0.25 * 0.75))


@every("loss", [SquaredError(), Logistic(), Hinge()])
@every("max_step", [1.0, 3.0])
def test_cdsg_follows_algorithm_4(loss, max_step):
    X, y = data()
    y = y if loss.name == "squared" else np.where(y > 0.3, 1.0, -1.0)
    n, spread = 24, 2.0
    state, infos, batches, features = steps(
        CDSG(
            block_size=32, step_size=2.0, decay=5.0, max_step=max_step, spread=spread, **PLAIN
        ),
        loss, X, y, n,
    )  # fmt: skip

    def choose(t, A, B, gamma, r):
        noise = (gamma * np.abs(r).max() * spread / len(r)) ** 2
        eta = [oracles.quadratic_step([b], [gamma * r.mean()], noise) for b in B]
        if not eta or max(eta) <= 1:
            return len(A), 1.0
        return int(np.argmax(eta)), min(max(eta), max_step)

    gammas = [2.0 / (1 + t / 5.0) for t in range(n)]
    A, B, log = oracles.reuse(
        features, batches, choose, y, SLOPES[loss.name], alpha=1e-2, gammas=gammas
    )
    assert [info.update.block for info in infos] == log
    assert len(A) < n  # it re-used some
    # the oracle's grid rounds a step to 1e-4
    tolerance = 2e-5 if max_step == 1.0 else 2e-3
    np.testing.assert_allclose(state.beta[:, 0], B, atol=tolerance)
    for j, a in enumerate(A):
        np.testing.assert_allclose(state.iterates.x.block(j).ravel(), a, atol=tolerance)


def test_allowed_steps_solve_the_inequality():
    rng = np.random.default_rng(0)
    for _ in range(15):
        beta, g = rng.standard_normal((5, 3)), rng.standard_normal(3)
        noise = float(rng.choice([0.0, 0.01, 1.0]))
        ours = allowed_steps(beta, g, noise)
        expected = [oracles.quadratic_step(b, g, noise) for b in beta]
        np.testing.assert_allclose(ours, expected, atol=2e-4)
    np.testing.assert_array_equal(allowed_steps(np.ones((2, 1)), np.zeros(1), 0.0), 0)


@pytest.mark.parametrize("name", ["udsg", "cdsg"])
def test_one_word_away(name):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((9000, 4))
    y = (X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 2] > 1)
    small = {"block_size": 64, "batch_size": 600}
    solver = get_solver(name).set_params(**small)
    model = plain_classifier(solver=solver, random_state=0, max_iter=30).fit(X, y)
    dense = plain_classifier(solver=DSG(**small), random_state=0, max_iter=30).fit(X, y)
    plain_classifier(solver=name, random_state=0, max_iter=2).fit(X[:99], y[:99])
    saved = model.history_["n_features_saved"]
    used = model.history_["n_random_features"]
    assert saved[0] == 0
    assert saved == sorted(saved)
    width = model.expansion_.stream.width
    assert [s + u for s, u in zip(saved, used, strict=True)] == [
        width * (t + 1) for t in range(30)
    ]
    assert saved[-1] > 0
    assert model.score(X, y) > dense.score(X, y) - 0.03


def test_dsg_saves_nothing_and_reuse_of_none_is_dsg():
    X, y = data()
    kwargs = {"random_state": 3, "max_iter": 8}
    dsg = plain_regressor(solver=DSG(block_size=32), **kwargs).fit(X, y)
    same = plain_regressor(solver=UDSG(block_size=32, reused_blocks=0), **kwargs).fit(X, y)
    assert set(dsg.history_["n_features_saved"]) == {0}
    np.testing.assert_array_equal(dsg.predict(X), same.predict(X))
