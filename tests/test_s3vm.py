"""Three semi-supervised machines on exact kernels: CCCP, label switching, budgets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.svm import LinearSVC

import oracles_s3vm as oracles
from kernelgrad.kernels import Gaussian, Polynomial
from kernelgrad.losses import (
    GaussianBump,
    Hinge,
    Logistic,
    Multinomial,
    Ramp,
    SemiSupervised,
    SquaredSymmetricHinge,
    SymmetricHinge,
)
from kernelgrad.papers.tsg.rivals import bgs3vm
from kernelgrad.papers.tsg.rivals.bgs3vm import BGS3VM
from kernelgrad.papers.tsg.rivals.cccp_s3vm import CCCPS3VM
from kernelgrad.papers.tsg.rivals.s3vm_light import S3VMLight
from kernelgrad.solvers import dual_ascent
from kernelgrad.solvers import pseudo_labels as _pseudo
from kernelgrad.solvers.contract import Problem, TrainBatch, check_capabilities
from kernelgrad.solvers.loop import run
from kernelgrad.solvers.schedules import iterations, ramp_share
from kernelgrad.validation import CapabilityError, DataError
from steps import gram, solve

EXACT = [CCCPS3VM(), CCCPS3VM(balance=True), S3VMLight(start=0.01)]
ALL = [*EXACT, BGS3VM(labelled_budget=8, unlabelled_budget=30, ramp=(0, 0), batch_size=40)]
BUDGETS = {"labelled_budget": 6, "unlabelled_budget": 25, "ramp": (0, 0)}


def name(solver):
    return solver.name + ("+balance" if getattr(solver, "balance", False) else "")


each = pytest.mark.parametrize("solver", ALL, ids=name)
each_exact = pytest.mark.parametrize("solver", EXACT, ids=name)


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


@pytest.mark.parametrize(
    ("seed", "s", "tol"), [(0, 0.0, 1e-2), (1, -0.3, 1e-4), (2, -0.8, 1e-2), (3, 0.0, 1e-4)]
)
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


def test_too_few_passes_leave_a_function_that_is_not_worse():
    problem, batch, _ = setting(ratio=1.0)
    _, history = solve(CCCPS3VM(tol=1e-6, max_passes=2), problem, batch, 30)
    values = [info.objective for info in history[1:]]
    assert np.all(np.diff(values) <= 1e-12)
    assert values[-1] < values[0]


# --- label switching


@pytest.mark.parametrize("fraction", [None, 0.3, (0.35, 0.6)])
def test_the_class_ratio_is_kept_by_every_switch(fraction, monkeypatch):
    outputs = 2 if isinstance(fraction, tuple) else 1
    problem, batch, _ = setting(ratio=1.0, outputs=outputs)
    others = ~batch.y.any(axis=1)
    solver = S3VMLight(positive_fraction=fraction, start=0.05)
    counts, switched, align = [], [0], _pseudo.Subproblem.align

    def watched(sub):
        side = sub.state.side[:, others]
        counts.append((side > 0).sum(axis=1))
        assert np.all(np.abs(side) == 1.0)
        assert np.all(sub.state.dual * sub.state.side <= 0.0)  # u stays in the box of its hinge
        np.testing.assert_array_equal(sub.state.side[:, ~others], batch.y[~others].T)
        align(sub)

    monkeypatch.setattr(_pseudo.Subproblem, "align", watched)
    pairs = S3VMLight._pairs

    def seen(self, sub, c):
        found = pairs(self, sub, c)
        switched[0] += len(found[0])
        return found

    monkeypatch.setattr(S3VMLight, "_pairs", seen)
    solve(solver, problem, batch, 60)
    weight = batch.sample_weight[~others]
    expected = weight @ (batch.y[~others, 0] > 0) / weight.sum()
    wanted = np.broadcast_to(expected if fraction is None else fraction, outputs)
    assert switched[0] > 0
    for count in counts:
        np.testing.assert_array_equal(count, np.round(wanted * others.sum()))


@pytest.mark.parametrize(("max_switches", "seed"), [(None, 0), (1, 1), (None, 4)])
def test_each_round_of_switches_lowers_the_objective(max_switches, seed, monkeypatch):
    problem, batch, truth = setting(ratio=1.0, seed=seed)
    fraction = float(np.mean(truth > 0)) - 0.2  # not what the data say: guesses must move
    K, _, p = parts(problem, batch)
    solver = S3VMLight(start=0.1, max_switches=max_switches, positive_fraction=fraction)
    falls, sizes, inner = [], [], S3VMLight._round

    def objective(sub):
        t, a = sub.state.side[0], sub.state.coef[:, 0]
        q = np.where(batch.y[:, 0] != 0, p, sub.state.share * p)
        g = K @ a
        return q @ np.maximum(0.0, 1.0 - t * (g + sub.state.intercept[0])) + 5e-4 * a @ g

    def watched(self, sub, active):
        before, sides = objective(sub), sub.state.side.copy()
        used = inner(self, sub, active)
        if used.any():
            falls.append(before - objective(sub))
            sizes.append(int((sides != sub.state.side).sum()))
        return used

    monkeypatch.setattr(S3VMLight, "_round", watched)
    solve(solver, problem, batch, 60)
    assert len(falls) >= 2
    assert min(falls) > -1e-7
    assert max(falls) > 1e-4
    assert set(sizes) == {2} if max_switches == 1 else max(sizes) > 2


def test_pairs_are_those_with_slacks_above_two():
    problem, batch, _ = setting(ratio=1.0, n=60, n_labelled=6)
    batch = replace(batch, sample_weight=np.ones(60))
    solver = S3VMLight(start=1.0)
    state = solver.init(problem, batch)
    solver.step(problem, state, batch)
    sub = _pseudo.Subproblem(solver, problem, state, batch)
    state.share = 1.0
    solver._guess(sub)
    rng = np.random.default_rng(0)
    state.responses[0] = rng.uniform(-3.0, 3.0, 60) - state.intercept[0]
    rows, gain = solver._pairs(sub, 0)
    n_pairs = len(rows) // 2
    slack = 1.0 - state.side[0] * sub.responses[0]
    assert len(np.unique(rows)) == len(rows) > 4
    assert np.all(state.side[0, rows[:n_pairs]] == 1.0)
    assert np.all(state.side[0, rows[n_pairs:]] == -1.0)
    assert np.all(slack[rows] > 0.0)
    assert np.all(slack[rows[:n_pairs]] + slack[rows[n_pairs:]] > 2.0)
    assert not batch.y[rows].any()
    before = np.maximum(0.0, slack[rows]).sum() / 60
    assert gain == pytest.approx(before - np.maximum(0.0, 2.0 - slack[rows]).sum() / 60)
    left = np.setdiff1d(np.flatnonzero((slack > 0) & (batch.y[:, 0] == 0)), rows)
    best = [slack[left[state.side[0, left] == t]].max(initial=-9.0) for t in (-1.0, 1.0)]
    assert sum(best) <= 2.0  # no pair is left
    # a row without a slack stays, however wrong the other is
    state.responses[0] = np.where(state.side[0] > 0, 1.1, 2.5) - state.intercept[0]
    rows, gain = solver._pairs(sub, 0)
    assert len(rows) == gain == 0


def test_the_last_machine_is_that_of_its_guesses():
    problem, batch, _ = setting(ratio=0.7, alpha=2e-2, fit_intercept=False)
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


# --- gradient steps on a budget


@pytest.mark.parametrize("schedule", ["inverse", "constant"])
def test_steps_are_those_of_a_naive_loop(schedule):
    problem, batch, _ = setting(alpha=0.02, fixed_rows=False)
    solver = BGS3VM(**BUDGETS, step_size=3.0, schedule=schedule)
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

    decay = 0.02 if schedule == "inverse" else 0.0
    args = (decay, 0.5, {True: 6, False: 25}, 3.0, state.intercept[0])
    if schedule == "constant":  # the oracle has one schedule: alpha is in the shrinking only
        plain, args = plain[:1], (0.02, *args[1:])
        state = solver.init(problem, batches[0])
        solver.step(problem, state, batches[0])
    a = oracles.budgeted(kernel, plain, *args)
    assert sorted(a) == sorted(state.numbers)
    ours = dict(zip(state.numbers.tolist(), state.coef[:, 0], strict=True))
    for i, c in a.items():
        assert ours[i] == pytest.approx(c, abs=1e-5)
    if schedule == "inverse":
        wrong = oracles.budgeted(kernel, plain, *args, sign=1.0)
        assert max(abs(wrong.get(i, 0.0) - c) for i, c in ours.items()) > 1e-2


def test_the_constant_schedule_keeps_its_step():
    problem, batch, _ = setting(alpha=0.02)
    for schedule, last in (("constant", 3.0), ("inverse", 3.0 / (1.0 + 3.0 * 0.02 * 4))):
        solver = BGS3VM(step_size=3.0, schedule=schedule)
        _, history = solve(solver, problem, batch, 5)
        assert history[0].step_size == 3.0
        assert history[-1].step_size == pytest.approx(last)


def test_the_unlabelled_loss_rises_along_the_ramp():
    problem, batch, _ = setting(max_iter=20, fit_intercept=False)
    shares = [ramp_share((0.2, 0.6), 20, t) for t in (0, 4, 6, 8, 12, 19)]
    np.testing.assert_allclose(shares, [0.0, 0.0, 0.25, 0.5, 1.0, 1.0], atol=1e-12)
    assert [ramp_share((0, 0), 20, t) for t in (0, 5)] == [1.0, 1.0]
    assert iterations("auto", problem) == 20
    assert iterations(10, problem) == 10
    assert iterations("auto", replace(problem, max_iter=None)) == 100
    # the loss of a step is that of its share: with none of it others gain no coefficient
    for ramp, some in (((1.0, 1.0), False), ((0.0, 0.0), True)):
        state, _ = solve(BGS3VM(ramp=ramp), problem, batch, 6)
        assert bool((~state.labelled).any()) == some


def test_projection_loses_less_than_removal():
    problem, batch, _ = setting(n=300, fixed_rows=False)
    lost = []
    for maintenance in ("projection", "removal"):
        solver = BGS3VM(maintenance=maintenance, ramp=(0, 0))
        first, *rest = minibatches(batch, 100, 5)
        state = solver.init(problem, first)
        for part in rest:
            solver.step(problem, state, part)
        pool = bgs3vm._Pool(state, 1.0)
        kind = np.flatnonzero(~state.labelled)
        after = state.coef.copy()
        solver._limit(state, pool, kind, 40, after)
        assert np.count_nonzero(after[kind]) == 40 < np.count_nonzero(state.coef[kind]) - 30
        np.testing.assert_array_equal(after[state.labelled], state.coef[state.labelled])
        K = state.exact.matrix(state.rows, state.rows).astype(float)
        d = (after - state.coef)[:, 0]
        lost.append(d @ K @ d)
        if maintenance == "projection":  # what is lost is orthogonal to the rows that stay
            stays = np.flatnonzero(after[:, 0] * ~state.labelled)
            assert np.abs((K @ d)[stays]).max() < 1e-3 * np.abs(K @ d).max()
    assert lost[0] < 0.2 * lost[1]


def test_streams_may_lack_a_kind_and_bring_new_rows():
    problem, batch, _ = setting(n=240, n_labelled=80, fixed_rows=False)
    known = batch.y.any(axis=1)
    solver = BGS3VM(**BUDGETS)
    others = np.flatnonzero(~known)
    labels = np.flatnonzero(known)
    state = None
    for k, i in enumerate(
        (others[:50], labels[:40], others[50:90], np.r_[labels[40:], others])
    ):
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


def test_rows_of_one_number_share_a_coefficient():
    problem, batch, _ = setting(fixed_rows=False)
    solver = BGS3VM(ramp=(0, 0))
    [part] = minibatches(batch, 40, 1)
    state = solver.init(problem, part)
    for _ in range(3):
        solver.step(problem, state, part)
    assert len(np.unique(state.numbers)) == len(state.numbers) <= 40
    moved = replace(part, X=part.X + 1.0)  # the same numbers in another source
    solver.step(problem, state, moved)
    assert np.count_nonzero(state.numbers == -1) > 0
    assert len(state.coef) > 40
    # a label that is taken back makes another row of it: the budgets are of kinds
    state = solver.init(problem, part)
    solver.step(problem, state, part)
    given = part.rows[part.y[:, 0] != 0]
    assert np.isin(given, state.numbers[state.labelled]).any()
    solver.step(problem, state, replace(part, y=np.zeros_like(part.y)))
    again = np.isin(state.numbers, given)
    assert not state.labelled[again].all()
    assert len(np.unique(state.numbers[again])) == np.count_nonzero(again)


@pytest.mark.parametrize(
    ("labelled", "unlabelled"),
    [(Hinge(), Ramp()), (Logistic(), GaussianBump()), (Hinge(), SquaredSymmetricHinge())],
)
def test_budgets_take_any_losses(labelled, unlabelled):
    problem, batch, truth = setting(n_labelled=30)
    problem = replace(problem, loss=SemiSupervised(labelled, unlabelled, 0.5))
    solver = BGS3VM(step_size=8.0)
    state, _ = solve(solver, problem, batch, 150)
    f = solver.expansion(state).raw_prediction(batch.X)
    assert np.mean(np.sign(f) != truth) < 0.1


# --- all three


@each
def test_two_moons_from_ten_labels(solver):
    bias = bool(getattr(solver, "balance", False))
    problem, batch, truth = setting(n=400, n_labelled=10, fit_intercept=bias)
    if isinstance(solver, BGS3VM):
        solver = BGS3VM()
        state = solver.init(problem, batch)
        for part in minibatches(batch, 128, 100):
            solver.step(problem, state, part)
    else:
        state, _ = solve(solver, problem, batch, 60)
    f = solver.expansion(state).raw_prediction(batch.X)
    others = ~batch.y.any(axis=1)
    # of rows drawn at random one half is wrong, to five standard errors of .025
    assert np.mean(np.sign(f[others]) != truth[others]) < 0.2


@each_exact
def test_bits_do_not_depend_on_memory(solver):
    problem, batch, _ = setting(n=1300, n_labelled=60)
    free, tight = (
        solve(solver, replace(problem, memory_limit=limit), batch, 3)[0] for limit in (None, 0)
    )
    np.testing.assert_array_equal(free.coef, tight.coef)
    assert len(tight.rows.buffer) <= dual_ascent.BLOCK  # never more rows than a block


@each
def test_another_alpha_can_go_on(solver):
    problem, batch, _ = setting()
    state, _ = solve(solver, problem, batch, 30)
    milder = replace(problem, alpha=1e-2)
    _, (*_, info) = solve(solver, milder, batch, 30, state)
    assert np.isfinite(info.train_loss)
    if not isinstance(solver, BGS3VM):
        assert info.converged
        p = batch.sample_weight / batch.sample_weight.sum()
        assert np.all(np.abs(state.coef[:, 0]) <= (p / 1e-2) * (1.0 + 1e-9))
        assert np.abs(state.coef).max() > 0.5 * p.max() / 1e-2 * 0.5


@each_exact
def test_outputs_do_not_see_each_other(solver):
    problem, batch, _ = setting(outputs=3, ratio=1.0)
    state, _ = solve(solver, problem, batch, 4)
    for c in range(3):
        alone = replace(batch, y=batch.y[:, [c]])
        single, _ = solve(solver, replace(problem, n_outputs=1), alone, 4)
        np.testing.assert_allclose(state.coef[:, [c]], single.coef, atol=1e-7)


@each_exact
def test_the_loop_stops_when_they_converge(solver):
    problem, batch, _ = setting()
    check_capabilities(solver, problem.loss, problem.kernel)
    result = run(solver, problem, iter([(batch, 0.0)] * 80), max_iter=80)
    assert result.status == "converged"
    assert result.history["objective"][-1] < result.history["objective"][0]
    assert result.history["n_support"][-1] == result.expansion.n_support
    small = type(solver)(**solver.get_params() | {"max_support": 12})
    assert run(
        small, problem, iter([(batch, 0.0)] * 80), max_iter=80
    ).expansion.n_support == 12  # fmt: skip


@each
def test_both_kinds_of_rows_are_needed(solver):
    problem, batch, truth = setting()
    nothing = replace(batch, y=np.zeros_like(batch.y))
    with pytest.raises(DataError, match="got 0 and 160: give the label"):
        solver.init(problem, nothing)
    with pytest.raises(DataError, match="got 160 and 0: mark rows without a label by -1"):
        solver.init(problem, replace(batch, y=truth.astype(np.float32)))
    unweighted = np.where(batch.y[:, 0] != 0, 1.0, 0.0)
    with pytest.raises(DataError, match="got 14 and 0"):
        solver.init(problem, replace(batch, sample_weight=unweighted))


def test_what_cannot_be_solved_is_refused():
    problem, batch, _ = setting(outputs=2)
    for solver in ALL:
        with pytest.raises(CapabilityError, match="labelled and unlabelled rows"):
            solver.init(replace(problem, loss=Hinge()), batch)
    bump = replace(problem, loss=SemiSupervised(Hinge(), GaussianBump()))
    ramp = replace(problem, loss=SemiSupervised(Hinge(), Ramp()))
    logistic = replace(problem, loss=SemiSupervised(Logistic(), SymmetricHinge()))
    with pytest.raises(CapabilityError, match="ramp, symmetric_hinge, got 'gaussian'"):
        CCCPS3VM().check_problem(bump)
    with pytest.raises(CapabilityError, match="of symmetric_hinge, got 'ramp'"):
        S3VMLight().check_problem(ramp)
    for solver in EXACT:
        with pytest.raises(CapabilityError, match="'hinge' of labelled rows, got 'logistic'"):
            solver.check_problem(logistic)
        with pytest.raises(ValueError, match=r"alpha > 0, got 0\.0"):
            solver.check_problem(replace(problem, alpha=0.0))
    with pytest.raises(CapabilityError, match="of the margin"):
        BGS3VM().check_problem(
            replace(problem, loss=SemiSupervised(Multinomial(), SymmetricHinge()))
        )
    with pytest.raises(CapabilityError, match="fit_intercept"):
        CCCPS3VM(balance=True).check_problem(replace(problem, fit_intercept=False))
    with pytest.raises(ValueError, match="2 outputs, got 3"):
        S3VMLight(positive_fraction=(0.1, 0.2, 0.3)).check_problem(problem)
    CCCPS3VM().check_problem(ramp)
