"""Exact solvers on kernel matrices: the minimum, its bound, paths, what they refuse."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.preprocessing import scale
from sklearn.svm import SVC

import kernelgrad as kg
from cases import every, raises
from kernelgrad import solvers as ks
from kernelgrad.compute.threads import set_num_threads
from kernelgrad.kernels import Gaussian, Polynomial
from kernelgrad.losses import get_loss
from kernelgrad.solvers.exact import direct_bytes
from kernelgrad.solvers.kernel_matrix import kernel_matrix
from oracles_cached import (
    KINKED,
    NUMBERS,
    dual_bound,
    gaussian,
    minimum,
    ridge,
    ridge_objective,
    smooth_minimum,
)
from oracles_losses import value
from plain import plain_regressor
from steps import solve

REAL = ("squared", "absolute", "epsilon_insensitive", "quantile", "huber")
SMOOTH = ("logistic", "log_loss", "squared_hinge", "squared", "huber", "poisson", "gamma")
RATIOS = ("kl", "least_squares", "kl_ratio")
BENT = [loss for loss in KINKED if loss != "one_class"]
CONTRACT = [("direct", "squared"), *(("newton", loss) for loss in SMOOTH)]
CONTRACT += [("working_set", loss) for loss in BENT]
CONTRACT += [("block_descent", loss) for loss in (*SMOOTH, *BENT, *RATIOS)]
CONTRACT += [("blocks", loss) for loss in ("log_loss", "squared", "hinge", "quantile")]
SOLVERS = {
    "direct": ks.DirectSolve(), "newton": ks.NewtonCG(), "working_set": ks.WorkingSet(),
    "block_descent": ks.BlockDescent(tol=1e-6),
    "blocks": ks.BlockDescent(block_size=30, tol=1e-6),
}  # fmt: skip


def rows(loss, n=120, seed=0):
    """Return rows, encoded targets and weights, some of them 0."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    score = X @ rng.standard_normal((3, 3)) + 0.5 * rng.standard_normal((n, 3))
    if loss == "log_loss":
        y = np.eye(3)[score.argmax(axis=1)]
    elif loss in ("poisson", "gamma"):
        y = np.floor(np.exp(score[:, :2])) + (loss == "gamma")
    else:
        y = score[:, :2] if loss in REAL else np.sign(score[:, :2])
    return ks.TrainBatch(X, y.astype(np.float32), rng.integers(0, 4, n).astype(float))


def problem(name, alpha, outputs, **changed):
    numbers = name in ("poisson", "gamma", *REAL)
    task = "density_ratio" if name in RATIOS else "classification"
    loss = get_loss(name, task="regression" if numbers else task, n_classes=3)
    if name in NUMBERS:
        loss = type(loss)(NUMBERS[name])
    options = {"n_features_in": 3, "seed": 0, "fixed_rows": True, "kernel": Gaussian(0.5)}
    return ks.Problem(loss=loss, alpha=alpha, n_outputs=outputs, **options | changed)


def least(loss, K, y, weight, alpha, intercept):
    """Return the minimum of the objective over dense float64 values."""
    if loss not in KINKED:
        with np.errstate(over="ignore"):  # trial steps of Poisson regression
            return smooth_minimum(loss, K, y, weight, alpha, intercept)
    p = weight / weight.sum()
    live = np.flatnonzero(p)
    K = K[np.ix_(live, live)]
    return sum(dual_bound(loss, K, y[live, c], p[live], alpha, intercept) for c in range(2))


@pytest.mark.parametrize(("solver", "loss"), CONTRACT)
def test_the_minimum_of_every_penalty(solver, loss):
    batch = rows(loss, 120 if loss not in KINKED else 40)
    y, weight, C = batch.y.astype(float), batch.sample_weight, batch.y.shape[1]
    penalties = [(1.0, True), (1e-3, False), (1e-7, True), (1e-9, True)]
    if loss in ("absolute", "quantile"):  # systems of the oracle become singular
        penalties = penalties[:2]
    near, one = 5e-4, SOLVERS[solver]  # float32 values take up to 2e-4
    if "block" in solver:  # float32 responses resolve no smaller parts of small objectives
        penalties = [*penalties[:2], (1e-5, True)][: 3 if loss in SMOOTH else 2]
        if solver == "blocks":
            penalties, near = penalties[:2], 1e-2
    for alpha, intercept in penalties:
        posed = problem(loss, alpha, C, fit_intercept=intercept)
        state, (*_, info) = solve(one, posed, batch, 600)
        e = one.expansion(state)
        X, S = (r.values.astype(float) for r in (e.exact.prepare(batch.X), e.support))
        K = gaussian(X, X, 0.5)
        best = least(loss, K, y, weight, alpha, intercept)
        assert info.converged
        error = near * abs(best) + 1e-12
        gap = error if info.duality_gap is None else info.duality_gap
        assert -error <= info.objective - best <= gap + error
        assert gap <= 2 * error
        f = gaussian(X, S, 0.5) @ e.coef + e.intercept
        own = weight / weight.sum() @ value(loss, y, f, NUMBERS.get(loss, 0.0)).sum(axis=1)
        own += 0.5 * alpha * (e.coef * (gaussian(S, S, 0.5) @ e.coef)).sum()
        assert info.objective == pytest.approx(own, rel=1e-3)
        assert intercept or not e.intercept.any()


# -- the squared loss ----------------------------------------------------------------------


def setting(n=170, *, alpha=1e-3, outputs=2, weighted=True, **options):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3)).astype(np.float32)
    y = 4 + np.sin(2 * X[:, [0]] + np.arange(outputs)) + 0.3 * rng.standard_normal((n, outputs))
    weight = rng.integers(0, 4, n).astype(float) if weighted else np.ones(n)
    return problem("squared", alpha, outputs, kernel=Gaussian(1.0), **options), ks.TrainBatch(
        X, y.astype(np.float32), weight
    )


def gram(state, *, wide=False):
    """Return the kernel matrix as solvers see it once it is factored, by its upper half."""
    K = kernel_matrix(state.exact, state.prepared, wide=wide)
    upper = np.triu(K.rows(np.arange(K.n), np.float64))
    return upper + np.triu(upper, 1).T


@every(
    ("n", "alpha", "fit_intercept"),
    [(1, 1.0, True), (5, 1e-3, False), (170, 1e-6, True), (170, 1.0, False), (700, 1e-3, True)],
)
def test_the_direct_solution_is_that_of_the_bordered_system(n, alpha, fit_intercept):
    posed, batch = setting(
        n, alpha=alpha, weighted=n > 5, outputs=3, fit_intercept=fit_intercept
    )
    state, (info,) = solve(ks.DirectSolve(), posed, batch, 1)
    K = gram(state, wide=alpha < 2e-6)
    args = K, batch.y.astype(float), batch.sample_weight, alpha
    coef, intercept = ridge(*args, fit_intercept)
    near = {"rtol": 0, "atol": 1e-7 * np.abs(coef).max() + 1e-14}
    np.testing.assert_allclose(state.coef, coef, **near)
    assert not state.coef[batch.sample_weight == 0].any()
    np.testing.assert_allclose(state.intercept, intercept, rtol=0, atol=1e-8)
    np.testing.assert_allclose(state.responses.T, K @ coef, rtol=0, atol=1e-8)
    own = ridge_objective(*args, coef, intercept)
    assert info.objective == pytest.approx(own, rel=1e-9, abs=1e-25)


@every(("alpha", "fit_intercept"), [(1e-5, True), (1e-4, False), (0.1, True)])
def test_few_centres_lead_to_the_bordered_system(monkeypatch, alpha, fit_intercept):
    monkeypatch.setattr(ks.newton, "SETTINGS", replace(ks.newton.SETTINGS, all=0))
    posed, batch = setting(800, alpha=alpha, outputs=3, fit_intercept=fit_intercept)
    results = []
    for n_threads in (1, 2):
        set_num_threads(n_threads)
        state, (info,) = solve(ks.NewtonCG(tol=1e-5), posed, batch, 1)
        results.append(state.coef)
    np.testing.assert_array_equal(*results)
    K = gram(state)
    args = K, batch.y.astype(float), batch.sample_weight, alpha
    best = ridge_objective(*args, *ridge(*args, fit_intercept))
    own = ridge_objective(*args, state.coef, state.intercept)
    assert info.converged
    error = 1e-5 * best  # float32 values are this far off
    assert -error <= info.objective - best <= info.duality_gap + error < 3 * error
    assert info.objective == pytest.approx(own, rel=1e-5)
    assert state.descent.n_products <= {1e-5: 45, 1e-4: 20, 0.1: 7}[alpha]


def test_the_inverse_of_a_small_penalty_is_one():
    """In float32 the largest eigenvalues would hide it."""
    posed, batch = setting(800, alpha=1e-7, outputs=1)
    state, _ = solve(ks.NewtonCG(), replace(posed, kernel=Gaussian(0.1)), batch, 1)
    descent = state.descent
    assert descent.dtype == np.float32
    scale, space = np.sqrt(descent.loss.weight), ks.newton.CoarseSpace(descent, 100)
    B, floor = space.U[:100].astype(float) * scale, 1e-7 + scale**2 @ space.left / 800
    v = np.random.default_rng(0).standard_normal((1, 1, 800))
    np.testing.assert_allclose(space.by_weights(scale)(v @ B.T @ B + floor * v), v, atol=1e-3)


def test_the_gap_bounds_how_far_a_rough_solution_is(monkeypatch):
    monkeypatch.setattr(ks.newton, "SETTINGS", replace(ks.newton.SETTINGS, all=0, centres=0.1))
    posed, batch = setting(200)
    best = solve(ks.DirectSolve(), posed, batch, 1)[1][0].objective
    _, (*_, info) = solve(ks.NewtonCG(tol=0.3), posed, batch, 9)
    missing = info.objective - best
    assert 1e-3 * best < missing <= info.duality_gap < 20 * missing


def test_an_alpha_below_the_resolution_of_the_values_is_raised():
    rng = np.random.default_rng(1)
    X = np.repeat(rng.standard_normal((150, 1)).astype(np.float32), 2, axis=0)
    y = (np.sin(X) + 0.1 * rng.standard_normal((300, 1))).astype(np.float32)
    posed = problem("squared", 1e-21, 1, n_features_in=1, kernel=Gaussian(0.1))
    batch, solver = ks.TrainBatch(X, y, np.ones(300)), ks.DirectSolve()
    state, (info,) = solve(solver, posed, batch, 1)
    assert 1e-21 < state.alpha < 1e-12
    # the system of the alpha of the state, with the objective of the given one
    K = gram(state, wide=True)
    args = K, y.astype(float), np.ones(300)
    coef, intercept = ridge(*args, state.alpha, True)
    f = state.responses.T + state.intercept
    np.testing.assert_allclose(f, args[0] @ coef + intercept, rtol=0, atol=1e-4)
    own = ridge_objective(*args, 1e-21, state.coef, state.intercept)
    assert info.objective == pytest.approx(own, rel=1e-4)


def test_the_kernel_matrix_is_not_larger_than_the_memory_limit():
    posed, batch = setting(500)
    needed = int(direct_bytes(500, 2, batch.X.nbytes))
    assert needed > 8 * 500**2
    solve(ks.DirectSolve(), replace(posed, resources=ks.Resources(needed)), batch, 1)
    with pytest.raises(kg.CapabilityError, match="the kernel matrix of 500 rows"):
        solve(ks.DirectSolve(), replace(posed, resources=ks.Resources(needed - 1)), batch, 1)
    with pytest.raises(kg.CapabilityError, match="memory_limit"):
        solve(ks.NewtonCG(), replace(posed, resources=ks.Resources(100_000)), batch, 1)
    huge = np.broadcast_to(np.float32(0), (40_000, 3))
    many = ks.TrainBatch(huge, np.zeros((40_000, 2), np.float32), np.ones(40_000))
    raises(kg.CapabilityError, "by default 8 GiB", solve, ks.DirectSolve(), posed, many, 1)


# -- degenerate rows and refusals ------------------------------------------------------------


@pytest.mark.parametrize("solver", ["direct", "newton"])
def test_an_indefinite_matrix_is_refused(solver):
    X = np.random.default_rng(0).standard_normal((80, 3))
    K, y = Polynomial(2)(X), X[:, 0]
    model = plain_regressor(kernel="precomputed", solver=solver, alpha=1e-4).fit(K, y)
    raises(kg.DataError, "not positive semi-definite", model.fit, -K, y)


@pytest.mark.parametrize("solver", ["direct", "newton"])
def test_equal_rows_and_no_penalty(solver):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.uniform(-3, 3, (60, 2)), 2, axis=0)
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    model = plain_regressor(solver=solver, alpha=0.0, gamma=4.0).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, atol=0.02)
    noisy = plain_regressor(solver=solver, alpha=1e-20, kernel="polynomial")
    noisy.fit(X, y + np.arange(120) % 2)
    assert np.mean(noisy.predict(X) - y) == pytest.approx(0.5, abs=0.02)
    size = noisy.solver_.resolve_batch_size
    assert size(10**6) == 10**6 > size(None) > 0


@every(
    ("model", "error", "message"),
    [
        (plain_regressor("absolute", solver="newton"), kg.CapabilityError, "smooth_loss"),
        (plain_regressor(solver="working_set"), kg.CapabilityError, "losses with kinks"),
        (plain_regressor("absolute", solver="working_set", alpha=0.0), ValueError, "alpha > 0"),
        (kg.KernelClassifier("squared", multi_class="ovo"), ValueError, "losses of the margin"),
        (
            kg.KernelClassifier("hinge", multi_class="ovo", solver="sbp"),
            kg.CapabilityError,
            "third class",
        ),
    ],
)
def test_losses_penalties_and_pairs_that_are_refused(model, error, message):
    raises(error, message, model.fit, *load_iris(return_X_y=True))


# -- Newton's method -------------------------------------------------------------------------


def test_constants_of_sure_classes_take_few_tries(monkeypatch):
    rng = np.random.default_rng(0)
    codes = np.arange(240) % 12
    X = np.column_stack([np.cos(codes), np.sin(codes)]) + 0.02 * rng.standard_normal((240, 2))
    batch = ks.TrainBatch(X, np.eye(12, dtype=np.float32)[codes], np.ones(240))
    loss = get_loss("log_loss", task="classification", n_classes=12)
    posed = replace(problem("log_loss", 1e-9, 12, n_features_in=2), loss=loss)
    tries = []
    search = ks.newton.linalg.backtracked

    def backtracked(gain, *rest, **more):
        return search(lambda s: (tries.append(s), gain(s))[1], *rest, **more)

    monkeypatch.setattr(ks.newton.linalg, "backtracked", backtracked)
    _, infos = solve(ks.NewtonCG(), posed, batch, 60)
    assert infos[-1].converged
    assert len(tries) < 10 * len(infos)


@every("whole", [True, False])
def test_help_changes_the_way_only(whole):
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (700, 2))
    y = (np.sin(3 * X[:, :1]) * np.cos(2 * X[:, 1:]) + 0.5 * rng.standard_normal((700, 1))) > 0
    batch = ks.TrainBatch(X, np.where(y, 1.0, -1.0).astype(np.float32), np.ones(700))
    posed = problem("logistic", 1e-6, 1, n_features_in=2, kernel=Gaussian(8.0))
    with pytest.MonkeyPatch.context() as patch:
        settings = replace(ks.newton.SETTINGS, whole=2048 if whole else 0)
        patch.setattr(ks.newton, "SETTINGS", settings)
        state, (*_, info) = solve(ks.NewtonCG(), posed, batch, 60)
        assert state.coarse
        assert state.descent.whole == whole
        best, _ = minimum(
            "logistic", Gaussian(8.0)(X), batch.y.astype(float), np.ones(700), 1e-6
        )
        assert abs(info.objective - best) <= 1e-4 * best
        products = state.descent.n_products
        settings = replace(settings, patience=settings.inner_steps, short=0.0)  # no help comes
        patch.setattr(ks.newton, "SETTINGS", settings)
        alone, _ = solve(ks.NewtonCG(), posed, batch, 60)
    assert not alone.coarse
    assert products < alone.descent.n_products


@every(
    ("solver", "loss"),
    [
        (ks.NewtonCG(tol=1e-8), "logistic"),
        (ks.NewtonCG(tol=1e-8), "log_loss"),
        (ks.NewtonCG(tol=1e-8), "squared"),
        (ks.WorkingSet(tol=1e-5), "hinge"),
    ],
)
def test_a_path_is_its_single_fits(solver, loss):
    batch, alphas = rows(loss), (1e-1, 1e-3, 1e-4)
    posed = problem(loss, 1.0, batch.y.shape[1])
    _, responses = solver.path(posed, batch, alphas, batch.X, 200)
    for alpha, f in zip(alphas, responses, strict=True):
        state, _ = solve(solver, replace(posed, alpha=alpha), batch, 200)
        single = solver.expansion(state).raw_prediction(batch.X)
        np.testing.assert_allclose(f, single, atol=2e-3 * np.abs(single).max())
    spread = np.abs(responses[0] - responses[2]).max()
    assert spread > 0.1 * np.abs(responses[2]).max()  # the penalties differ


def test_a_loss_of_ones_own_is_solved_as_if_outputs_were_coupled():
    class Own(type(get_loss("squared", task="regression"))):
        code = None

    batch = rows("squared")
    posed = problem("squared", 1e-3, 2)
    objectives = [
        solve(ks.NewtonCG(tol=1e-6), replace(posed, loss=loss), batch, 50)[1][-1].objective
        for loss in (posed.loss, Own())
    ]
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-5)


# -- working sets, beside LIBSVM -------------------------------------------------------------


def machine(cls=kg.KernelClassifier, loss="hinge", tol=1e-3, set_size="auto", **params):
    solver = ks.WorkingSet(tol=tol, set_size=set_size)
    return cls(loss, solver=solver, random_state=0, **params)


@every(("C", "set_size"), [(0.1, 32), (100.0, "auto")])
def test_hinge_is_the_machine_of_libsvm(C, set_size):
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X)
    weight = np.where(y > 0, 0.5, 2.0)
    ours = machine(C=C, gamma=0.02, set_size=set_size).fit(X, y, weight)
    theirs = SVC(C=C, gamma=0.02).fit(X, y, weight)
    assert ours.fit_status_ == "converged"
    f = theirs.decision_function(X)
    np.testing.assert_allclose(ours.decision_function(X), f, atol=5e-3)
    assert abs(ours.n_support_ - theirs.n_support_.sum()) <= 3
    assert np.abs(ours.expansion_.coef).max() <= 2 * C * (1 + 1e-12)
    assert abs(ours.expansion_.coef.sum()) <= 1e-9 * C * len(X)


@every(("data", "C"), [(load_iris, 100.0), (load_digits, 1.0)])
def test_pairs_predict_as_libsvm(data, C):
    X, y = data(return_X_y=True)
    X, names = scale(X), np.array(list("abcdefghij"))[y]
    gamma = 1 / X.shape[1]
    ours = machine(C=C, gamma=gamma, multi_class="ovo").fit(X[::2], names[::2])
    theirs = SVC(C=C, gamma=gamma).fit(X[::2], names[::2])
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    a, b = ours.decision_function(X), theirs.decision_function(X)
    near = np.abs(a - b).max(axis=1) < 5e-3  # a pair near 0 may vote otherwise
    assert near.mean() > 0.99
    task = ours._fitted.model.task  # responses of the pairs as if all pairs chose the class
    np.testing.assert_allclose(np.diag(task.class_responses(task._sides.T)), 1.0)


@every("multi_class", ["auto", "ovo"])
def test_a_class_without_weight_ends(multi_class):
    X, y = load_iris(return_X_y=True)
    model = machine(C=10.0, gamma=0.2, multi_class=multi_class)
    model.fit(X, y, sample_weight=(y < 2).astype(float))
    assert model.fit_status_ == "converged"
    assert model.score(X[y < 2], y[y < 2]) == 1.0


def test_a_constant_in_the_targets_moves_the_intercept():
    X, y = load_diabetes(return_X_y=True)
    X, y = scale(X), scale(y.astype(float))
    a, b = (
        machine(kg.KernelRegressor, "absolute", C=10.0, gamma=0.1).fit(X, y + shift)
        for shift in (0.0, 1e5)
    )
    assert a.fit_status_ == b.fit_status_ == "converged"
    np.testing.assert_allclose(a.predict(X), b.predict(X) - 1e5, atol=0.02)


def test_what_float32_cannot_tell_ends():
    X, y = load_diabetes(return_X_y=True)
    X, y = scale(X[:200]), scale(y[:200].astype(float))
    model = machine(
        kg.KernelRegressor, "absolute", C=1e9, gamma=0.1, fit_intercept=False, max_iter=3,
        tol=1e-9, set_size=64,
    ).fit(X[:100], y[:100] + 1e6)  # fmt: skip
    assert model.fit_status_ == "max_iter"
    assert model.history_["objective"][-1] < 0.1 * 1e6  # the zero function has 1e6


def test_little_memory_changes_rounding_alone():
    X, y = load_digits(return_X_y=True)
    X, y = scale(X)[:900], y[:900] < 5
    a, b = (
        machine(C=1.0, gamma=0.02, memory_limit=limit, max_iter=200).fit(X, y)
        for limit in (None, 34_500_000)  # the second keeps the rows of one set
    )
    assert {a.fit_status_, b.fit_status_} == {"converged"}
    assert b.history_["kernel_evaluations"][-1] > a.history_["kernel_evaluations"][-1]
    np.testing.assert_allclose(a.decision_function(X), b.decision_function(X), atol=5e-3)
