"""Three semi-supervised machines on exact kernels: CCCP, label switching, budgets."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.svm import LinearSVC

import oracles_s3vm as oracles
from cases import every, raises
from kernelgrad import losses
from kernelgrad.kernels import Gaussian, Polynomial
from kernelgrad.losses import Hinge, Ramp, SemiSupervised, SymmetricHinge
from kernelgrad.papers.tsg.rivals import BGS3VM, CCCPS3VM, S3VMLight
from kernelgrad.solvers.contract import Problem, TrainBatch
from kernelgrad.validation import CapabilityError, DataError
from steps import gram, solve

EXACT = [CCCPS3VM(), CCCPS3VM(balance=True), S3VMLight(start=0.01)]
ALL = [*EXACT, BGS3VM(labelled_budget=8, unlabelled_budget=30, ramp=(0, 0), batch_size=40)]
BUDGETS = {"labelled_budget": 6, "unlabelled_budget": 25, "ramp": (0, 0)}


each = every("solver", ALL)


def setting(n=160, n_labelled=14, seed=0, *, outputs=1, ratio=0.5, unlabelled=None, **options):
    """Rows of two moons of which few have a label; y of more outputs are other sides."""
    X, t = make_moons(n, noise=0.15, random_state=seed)
    X = X.astype(np.float32)
    truth = np.column_stack([2.0 * t - 1.0, np.sign(X[:, 0] - 0.5), np.sign(X[:, 1] - 0.2)])
    truth = truth[:, :outputs]
    rng = np.random.default_rng(seed)
    given = np.concatenate(
        [rng.permutation(np.flatnonzero(t == c))[: n_labelled // 2] for c in (0, 1)]
    )
    y = np.zeros((n, outputs), np.float32)
    y[given] = truth[given]
    known = y.any(axis=1)
    w = rng.uniform(0.5, 1.5, n)
    w = np.where(known, w / w[known].sum(), w / w[~known].sum())
    loss = SemiSupervised(Hinge(), unlabelled or SymmetricHinge(), ratio)
    options = {"alpha": 1e-3, "fixed_rows": True} | options
    alpha = options.pop("alpha")
    problem = Problem(loss, Gaussian(5.0), alpha, outputs, 2, 3, **options)
    return problem, TrainBatch(X, y, w), truth


def parts(problem, batch):
    """K, y and p of the first output."""
    p = batch.sample_weight / batch.sample_weight.sum()
    return gram(problem, batch.X), batch.y[:, 0].astype(float), p


def minibatches(batch, size, n, seed=0):
    """Batches of random rows with their numbers."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        i = rng.permutation(batch.n_rows)[:size]
        yield TrainBatch(batch.X[i], batch.y[i], batch.sample_weight[i], rows=i)


# --- the concave-convex procedure


@pytest.mark.parametrize(
    ("unlabelled", "fit_intercept"), [(SymmetricHinge(), True), (Ramp(-0.3), False)]
)
def test_an_outer_iteration_is_the_box_program(unlabelled, fit_intercept):
    problem, batch, _ = setting(
        n=90, n_labelled=9, alpha=5e-3, unlabelled=unlabelled, fit_intercept=fit_intercept
    )
    batch.y[np.flatnonzero(batch.y)[:2]] = 1.0  # a heavier class: a bias
    K, y, p = parts(problem, batch)
    s = getattr(unlabelled, "s", 0.0)
    solver = CCCPS3VM(tol=1e-6)
    state = solver.init(problem, batch)
    solver.step(problem, state, batch)
    b = state.intercept[0]
    assert b == pytest.approx(2.0 * p @ y if fit_intercept else 0.0, rel=1e-6)
    assert (b != 0.0) == fit_intercept
    # first the labels alone
    labels = oracles.box_program(K, y, np.where(y != 0, p, 0.0), 0.0, 5e-3, b, 0.0 * y)
    f0 = K @ state.coef[:, 0] + b
    np.testing.assert_allclose(f0, K @ labels + b, atol=2e-3)
    slopes = np.where((y == 0) & (np.abs(f0) > -s), np.sign(f0), 0.0)
    assert len(np.unique(slopes)) == 3
    solver.step(problem, state, batch)
    best = oracles.box_program(K, y, p, 0.5, 5e-3, b, slopes)
    least = oracles.linearised(K, y, p, 0.5, 5e-3, best, b, slopes, s)
    ours = oracles.linearised(K, y, p, 0.5, 5e-3, state.coef[:, 0], b, slopes, s)
    np.testing.assert_array_equal(state.shift[0], slopes)
    assert ours == pytest.approx(least, rel=1e-4)
    assert state.primal[0] == pytest.approx(ours, rel=1e-6)
    flipped = oracles.linearised(K, y, p, 0.5, 5e-3, state.coef[:, 0], b, -slopes, s)
    assert abs(flipped - least) > 1e-2 * least


@every(("seed", "s", "tol"), [(1, -0.3, 1e-4), (2, -0.8, 1e-2), (3, 0.0, 1e-4)])
def test_the_objective_never_rises(seed, s, tol):
    problem, batch, _ = setting(seed=seed, unlabelled=Ramp(s), ratio=1.0)
    K, y, p = parts(problem, batch)
    solver = CCCPS3VM(tol=tol)
    state = solver.init(problem, batch)
    values = []
    for _ in range(40):
        info = solver.step(problem, state, batch)
        a, b = state.coef[:, 0], state.intercept[0]
        values.append(oracles.true_objective(K, y, p, 1.0, 1e-3, a, b, s))
        assert info.objective == pytest.approx(values[-1], rel=1e-5, abs=1e-7)
        penalty = 0.5e-3 * a @ K @ a
        assert info.train_loss == pytest.approx(values[-1] - penalty, rel=1e-5, abs=1e-7)
        if info.converged:
            break
    assert info.converged
    assert len(values) >= 2
    assert np.all(np.diff(values) <= 1e-7)
    assert values[-1] < 0.95 * values[0]


def test_balance_holds_and_is_the_centred_program():
    problem, batch, _ = setting(n=90, n_labelled=10, alpha=5e-3)
    batch.y[np.flatnonzero(batch.y)[:3]] = 1.0
    K, y, p = parts(problem, batch)
    mean = np.where(y == 0, p, 0.0) / p[y == 0].sum()
    label = (p * y).sum() / p[y != 0].sum()
    assert abs(label) > 0.1
    solver = CCCPS3VM(tol=1e-6, balance=True)
    state = solver.init(problem, batch)
    solver.step(problem, state, batch)
    centred = K - (K @ mean)[:, None] - K @ mean + mean @ K @ mean
    f = solver.expansion(state).raw_prediction(batch.X)[:, 0]
    assert mean @ f == pytest.approx(label, abs=1e-5)
    slopes = np.where(y == 0, np.sign(f), 0.0)
    solver.step(problem, state, batch)
    best = oracles.box_program(centred, y, p, 0.5, 5e-3, label, slopes)
    args = (centred, y, p, 0.5, 5e-3)
    least = oracles.linearised(*args, best, label, slopes)
    assert oracles.linearised(*args, state.coef[:, 0], label, slopes) == pytest.approx(
        least, rel=1e-4
    )
    f = solver.expansion(state).raw_prediction(batch.X)[:, 0]
    np.testing.assert_allclose(f, centred @ best + label, atol=5e-3)
    assert mean @ f == pytest.approx(label, abs=1e-5)
    free = solve(CCCPS3VM(), problem, batch, 60)[0]
    f = CCCPS3VM().expansion(free).raw_prediction(batch.X)[:, 0]
    assert abs(mean @ f - label) > 1e-2


# --- label switching


def test_the_last_machine_is_that_of_its_guesses():
    problem, batch, _ = setting(n=100, ratio=0.7, alpha=2e-2, fit_intercept=False)
    problem = replace(problem, kernel=Polynomial(degree=2, gamma=1.0, coef0=1.0))
    solver = S3VMLight(tol=1e-6, start=0.1)
    state, history = solve(solver, problem, batch, 60)
    assert history[-1].converged
    X = batch.X.astype(float)
    phi = np.column_stack(
        [np.ones(len(X)), 2**0.5 * X, X**2, 2**0.5 * X[:, 0] * X[:, 1]]
    )  # (1 + x.z)^2
    p = batch.sample_weight / batch.sample_weight.sum()
    q = np.where(batch.y[:, 0] != 0, p, 0.7 * p)
    machine = LinearSVC(loss="hinge", fit_intercept=False, C=1 / 2e-2, tol=1e-8, max_iter=10**6)
    w = machine.fit(phi, state.side[0], sample_weight=q).coef_[0]
    least = q @ np.maximum(0.0, 1.0 - state.side[0] * (phi @ w)) + 1e-2 * w @ w
    assert state.primal[0] == pytest.approx(least, rel=1e-4)
    f = solver.expansion(state).raw_prediction(batch.X)[:, 0]
    np.testing.assert_allclose(f, phi @ w, atol=2e-2)
    assert history[-1].objective <= state.primal[0] + 1e-9  # a bound on the symmetric hinge


def test_switches_keep_the_class_ratio():
    problem, batch, _ = setting(ratio=1.0, outputs=2)
    others = ~batch.y.any(axis=1)
    solver = S3VMLight(start=0.05)
    state = solver.init(problem, batch)
    weight, sides = batch.sample_weight[~others], []
    wanted = weight @ (batch.y[~others] > 0) / weight.sum()
    solver.step(problem, state, batch)  # labels alone
    for _ in range(8):
        solver.step(problem, state, batch)
        sides.append(state.side[:, others].copy())
        np.testing.assert_array_equal(
            (sides[-1] > 0).sum(axis=1), np.round(wanted * others.sum())
        )
        assert np.all(state.dual * state.side <= 0.0)  # u stays in the box of its hinge
    assert (sides[0] != sides[-1]).any()


# --- gradient steps on a budget


def test_steps_are_those_of_a_naive_loop():
    problem, batch, _ = setting(alpha=0.02, fixed_rows=False)
    solver = BGS3VM(**BUDGETS, step_size=3.0)
    batches = list(minibatches(batch, 48, 25))
    state = solver.init(problem, batches[0])
    over = 0
    for part in batches:
        info = solver.step(problem, state, part)
        over += info.n_support == 31
        assert np.count_nonzero(state.labelled) <= 6
        assert np.count_nonzero(~state.labelled) <= 25
    assert over > 5  # both budgets were full
    plain = [(b.rows, b.X.astype(float), b.y[:, 0], b.sample_weight) for b in batches]

    def kernel(x, z):
        return np.exp(-5.0 * np.sum((x - z) ** 2))

    args = (0.02, 0.5, {True: 6, False: 25}, 3.0, state.intercept[0])
    a = oracles.budgeted(kernel, plain, *args)
    assert sorted(a) == sorted(state.numbers)
    ours = dict(zip(state.numbers.tolist(), state.coef[:, 0], strict=True))
    for i, c in a.items():
        assert ours[i] == pytest.approx(c, abs=1e-5)
    wrong = oracles.budgeted(kernel, plain, *args, sign=1.0)
    assert max(abs(wrong.get(i, 0.0) - c) for i, c in ours.items()) > 1e-2


def test_the_unlabelled_loss_rises_along_the_ramp():
    problem, batch, _ = setting(max_iter=20, fit_intercept=False)
    # the loss of a step is that of its share: with none of it others gain no coefficient
    for ramp, some in (((1.0, 1.0), False), ((0.0, 0.0), True)):
        state, _ = solve(BGS3VM(ramp=ramp), problem, batch, 6)
        assert bool((~state.labelled).any()) == some


def test_streams_may_lack_a_kind_and_bring_new_rows():
    problem, batch, _ = setting(n=240, n_labelled=80, fixed_rows=False)
    known = batch.y.any(axis=1)
    solver = BGS3VM(**BUDGETS)
    others = np.flatnonzero(~known)
    labels = np.flatnonzero(known)
    state = None
    order = (others[:50], labels[:40], others[50:90], np.r_[labels[40:], others])
    for k, i in enumerate(order):
        part = TrainBatch(batch.X[i], batch.y[i], batch.sample_weight[i])
        if state is None:
            state = solver.init(problem, part)
        info = solver.step(problem, state, part)
        assert np.isfinite(info.train_loss)
        if k == 0:  # no side is known yet
            assert info.n_support == 0
            assert not state.intercept_known
        if k == 1:
            assert np.all(state.labelled)
            assert len(state.coef) == 6
    assert state.intercept_known
    assert np.all(state.numbers == -1)
    assert np.count_nonzero(~state.labelled) == 25


# --- all three


@each
def test_both_kinds_of_rows_are_needed(solver):
    problem, batch, truth = setting()
    nothing = replace(batch, y=np.zeros_like(batch.y))
    raises(DataError, "got 0 and 160: give the label", solver.init, problem, nothing)
    with pytest.raises(DataError, match="got 160 and 0: mark rows without a label by -1"):
        solver.init(problem, replace(batch, y=truth.astype(np.float32)))
    unweighted = np.where(batch.y[:, 0] != 0, 1.0, 0.0)
    with pytest.raises(DataError, match="got 14 and 0"):
        solver.init(problem, replace(batch, sample_weight=unweighted))


def two(labelled, unlabelled):
    return {"loss": SemiSupervised(labelled, unlabelled)}


@every(
    ("solvers", "change", "error", "words"),
    [
        (ALL, {"loss": Hinge()}, CapabilityError, "labelled and unlabelled rows"),
        ([CCCPS3VM()], two(Hinge(), losses.GaussianBump()), CapabilityError, "got 'gaussian'"),
        ([S3VMLight()], two(Hinge(), Ramp()), CapabilityError, "hinge, got 'ramp'"),
        (EXACT, two(losses.Logistic(), Ramp()), CapabilityError, "rows, got 'logistic'"),
        (EXACT, {"alpha": 0.0}, ValueError, r"alpha > 0, got 0\.0"),
        ([BGS3VM()], two(losses.Multinomial(), Ramp()), CapabilityError, "of the margin"),
        ([CCCPS3VM(balance=True)], {"fit_intercept": False}, CapabilityError, "fit_intercept"),
    ],
)
def test_what_cannot_be_solved_is_refused(solvers, change, error, words):
    problem, _, _ = setting(outputs=2)
    for solver in solvers:
        raises(error, words, solver.check_problem, replace(problem, **change))
    CCCPS3VM().check_problem(replace(problem, **two(Hinge(), Ramp())))


def test_s3vm_light_guesses_by_responses():
    state = SimpleNamespace(side=np.array([[1.0, -1, 0, 0, 0, 0]]))
    has_label, responses = np.arange(6) < 2, np.array([[1.0, -1, -2, 3, -0.5, 2]])
    sub = SimpleNamespace(
        state=state, has_label=has_label, p=np.ones(6), labels=state.side.T, responses=responses
    )
    S3VMLight()._guess(sub)
    np.testing.assert_array_equal(state.side, [[1, -1, -1, 1, -1, 1]])
