"""Linear solvers come to the minimum of the oracle, and what bounds the distance is a bound."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from cases import every
from kernelgrad import losses
from kernelgrad.linear.conjugate import visit_order
from kernelgrad.linear.rbcd import RBCD
from kernelgrad.linear.sdca import LinearSDCA
from kernelgrad.linear.stochastic import SGD, SVRG
from kernelgrad.papers.s3gd.rivals import SCV, SSGD
from kernelgrad.papers.s3gd.s3gd import S3GD
from kernelgrad.papers.sbp.rivals import LinearPegasos
from kernelgrad.validation import CapabilityError
from oracles_sdca import hinge_visits
from steps import KINKED, SMOOTH, LinearSetting

# C, sparse, weighted, bias, alpha, L1 ratio
PLACES = [(1, True, True, True, 1e-2, 0.5), (3, False, True, False, 1e-2, 0.5)]
OTHERS = [
    (3, True, True, True, 3e-2, 0.8), (1, False, True, True, 1.0, 0.0),
    (1, False, False, True, 1e-3, 0.0), (2, True, False, False, 1e-2, 0.0),
]  # fmt: skip
EXACT = {
    "rbcd": RBCD(), "rbcd in fours": RBCD(block_size=4), "rbcd by columns": RBCD(block_size=1),
    "sdca": LinearSDCA(), "svrg": SVRG(),
}  # fmt: skip
NOISY = {
    "sgd": SGD(), "ssgd": SSGD(), "scv": SCV(), "pegasos": LinearPegasos(),
    "s3gd": S3GD(n_anchors=20),
}  # fmt: skip
SLOW = ("huber", "smoothed_hinge", "modified_logistic")  # losses that scv minimises slowly


@cache
def setting(loss, n, C, sparse, weighted, bias, alpha, l1_ratio):
    weights = np.random.default_rng(5).integers(0, 4, n).astype(float) if weighted else None
    tol = 1e-9 if l1_ratio > 0.5 else 1e-7  # for zeros that are exact
    return LinearSetting(loss, n, C=C, sparse=sparse, weights=weights, alpha=alpha, tol=tol,
                         l1_ratio=l1_ratio, fit_intercept=bias, offset=0.5)  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
@every("loss", SMOOTH)
def test_smooth_losses_come_to_the_minimum(name, loss):
    solver, whole = EXACT[name], name != "svrg"
    if not solver.takes(loss):
        return
    few = name in ("svrg", "rbcd by columns")
    for place in PLACES if few else PLACES + OTHERS:
        case = setting(loss, 300, *place)
        state, infos = case.fit(solver, 2000 if whole else 150)
        W, b = solver.solution(state)
        most = 1e-8 + case.problem.tol if infos[-1].converged else 1e-4
        assert -1e-9 < case.excess(W, b) < most
        assert infos[-1].objective == pytest.approx(case.objective(W, b), rel=1e-7)
        assert case.problem.fit_intercept or not b.any()
        for info in infos:
            gap = np.inf if info.duality_gap is None else info.duality_gap
            assert info.objective is None or info.objective - case.best()[2] <= gap + 1e-11
        assert infos[-1].converged or not whole
        if place[-1] == 0.8:
            np.testing.assert_array_equal(W != 0, np.abs(case.best()[0]) > 1e-6)
            assert 0 < np.count_nonzero(W) < W.size


@every(("bias", "l1_ratio"), [(True, 0.0), (False, 0.0), (True, 0.6), (False, 0.6)])
@every("loss", [*KINKED, losses.Absolute()])
def test_kinks_come_to_the_minimum_by_dual_ascent(loss, bias, l1_ratio):
    case = setting(loss, 40, 1, False, False, bias, 0.05, l1_ratio)
    case.problem = replace(case.problem, tol=1e-4)
    state, infos = case.fit(LinearSDCA(), 6000)
    assert infos[-1].converged
    least = case.best()[2]
    for info in infos:  # the oracle's is 1e-3 above the minimum at most
        assert info.objective - least <= info.duality_gap
        assert info.objective >= least - 1e-3
    assert infos[-1].objective <= least + 1e-4 * least
    assert infos[-1].objective == pytest.approx(case.objective(state.coef, state.bias))


# the draws of rivals in papers have quick tests of their own below
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n in ("ssgd", "scv") else []) for n in NOISY],
)
@every("loss", SMOOTH + KINKED)
def test_noisy_solvers_come_within_a_percent(name, loss):
    solver = NOISY[name]
    if not solver.takes(loss):
        with pytest.raises(CapabilityError):
            solver.check_problem(LinearSetting(loss).problem)
        return
    steps = 240 if name == "scv" and loss.name in SLOW else 60
    second = 0.0 if name == "pegasos" else 0.5
    for C, sparse, l1_ratio in [(1, False, 0.0), (3, True, second)]:
        case = setting(loss, 250, C, sparse, not sparse, True, 1e-2, l1_ratio)
        state, _ = case.fit(solver, steps)
        assert -1e-3 < case.excess(*solver.solution(state)) < 1e-2


@every(("bias", "steps"), [(True, 1), (False, 3)])
def test_the_average_of_sdca_is_that_of_the_second_half_of_all_visits(bias, steps):
    case = LinearSetting(losses.Hinge(), 41, sparse=bias, fit_intercept=bias, max_iter=steps)
    visits, X = 41 * steps, case.X
    if bias:  # b_0 stays in a round
        rounds = [LinearSDCA(round_size=k) for k in range(1, visits + 1)]
        iterates = [case.fit(one, 1)[0].coef for one in rounds]
    else:
        orders = visit_order(case.problem.seed, 0, visits, np.arange(41))
        given = X @ X.T, case.Y[:, 0], orders, 1 / (41 * case.problem.alpha)
        iterates = [X.T @ a[:, None] for a in hinge_visits(*given)]
    state, infos = case.fit(LinearSDCA(average="second_half"), steps)
    expected = np.mean(iterates[visits // 2 :], axis=0)
    np.testing.assert_allclose(state.coef, expected, atol=1e-10)
    assert np.abs(expected - iterates[-1]).max() > 0.05 * np.abs(expected).max()
    assert case.objective(state.coef, state.bias) - case.best()[2] <= infos[-1].duality_gap


def test_what_sdca_refuses():
    solver = LinearSDCA()
    for options in ({"l1_ratio": 1.0}, {"alpha": 0.0}):
        with pytest.raises(ValueError, match="needs an L2 penalty"):
            LinearSetting(losses.Logistic(), **options).fit(solver, 1)
    with pytest.raises(CapabilityError, match="does not take the loss 'log_loss'"):
        LinearSetting(losses.Multinomial()).fit(solver, 1)
    case = LinearSetting(losses.Logistic())
    state, _ = case.fit(solver, 1)
    with pytest.raises(CapabilityError, match="continued with the same rows"):
        solver.step(case.problem, state, replace(case.batch, X=case.X + 1))
