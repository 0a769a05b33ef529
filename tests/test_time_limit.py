"""One budget of seconds for all that a fit does."""

import itertools
import warnings
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fuzz import estimators
from sklearn.exceptions import ConvergenceWarning

import kernelgrad as kg
from cases import every
from kernelgrad.callbacks import Callback
from kernelgrad.families import hurry
from kernelgrad.solvers import CCCPS3VM, DSG, BlockDescent, SoftLabels, WorkingSet

PLAIN = {"standardize": False, "metric": None, "gamma": "median", "alpha": 1e-6}  # no search
slow = pytest.mark.slow
CORE = {
    "auto", "block_descent", "dsg", "working_set", "direct", "newton", "svrg", "sgd", "rbcd",
}  # fmt: skip


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    return X, (X[:, 0] + X[:, 1] ** 2 > 0.7).astype(int)


@pytest.mark.filterwarnings("ignore:Class . is .* of the labelled rows")
@pytest.mark.parametrize("core", [True, pytest.param(False, marks=slow)])
def test_no_time_at_all_gives_a_function_of_some_rows_or_of_one_iteration(core, rows, tmp_path):
    for estimator in estimators.every():
        params = estimator.get_params()
        if not hasattr(estimator, "time_limit") or (params["solver"] in CORE) != core:
            continue
        X, y = rows
        if params.get("multi_class") == "ovo":
            y = y + (X[:, 2] > 0)
        if isinstance(estimator, kg.SemiSupervisedKernelClassifier):
            y = np.where(np.arange(len(y)) % 2 > 0, y, -1)
        estimator.set_params(time_limit=1e-9, random_state=0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = estimator.fit(X, y)
        f, fitted = model.expansion_.raw_prediction(X), model.history_.get("rows_fitted")
        assert np.isfinite(f).all()
        assert not (f == f[0]).all(), model
        assert fitted in (None, 200)
        assert model.n_iter_ == (fitted is None), model
        said = any("the model is of 200 rows; raise" in str(w.message) for w in caught)
        assert said == (fitted == 200), model
        model.save(tmp_path / "model.kgm")
        assert (kg.load(tmp_path / "model.kgm").predict(X) == model.predict(X)).all()
        if "warm_start" in params:
            model.set_params(warm_start=True, time_limit=None, max_iter=3).fit(X, y)
            assert 0 < model.n_iter_ <= 4
            assert "rows_fitted" not in model.history_
            assert np.ptp(model.expansion_.raw_prediction(X), axis=0).any()


class Clock(Callback):
    """Each iteration takes a second, and nothing else any time."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def on_iteration(self, event):
        self.now += 1.0


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("kernelgrad.callbacks.base.clock", clock)
    monkeypatch.setattr(hurry, "slowness", lambda: 1.0)  # however busy the processor is
    return clock


@pytest.mark.parametrize(
    "estimator",
    [
        kg.KernelClassifier(solver="dsg", **PLAIN),
        kg.KernelClassifier("hinge", solver="block_descent", early_stopping=True, **PLAIN),
        kg.LinearClassifier(solver="svrg", tol=0),
    ],
    ids=repr,
)
def test_the_model_so_far_is_kept(estimator, rows, clock):
    estimator.set_params(random_state=0, callbacks=clock, time_limit=2.5)
    model = estimator.fit(*rows)
    assert (model.fit_status_, model.n_iter_) == ("time_limit", 3)
    f = model.decision_function(rows[0])
    again = estimator.set_params(time_limit=None, max_iter=3).fit(*rows)
    assert again.fit_status_ == "max_iter"
    np.testing.assert_array_equal(again.decision_function(rows[0]), f)
    # a limit that does not strike changes nothing
    again = estimator.set_params(time_limit=3.5).fit(*rows)
    assert again.fit_status_ == "max_iter"
    np.testing.assert_array_equal(again.decision_function(rows[0]), f)


def test_each_call_of_partial_fit_has_its_time(rows, clock):
    X, y = rows
    solver = DSG(batch_size=20)
    model = kg.KernelClassifier(solver=solver, random_state=0, callbacks=clock, **PLAIN)
    model.set_params(time_limit=3.5)
    model.partial_fit(X, y)
    assert (model.fit_status_, model.n_iter_) == ("time_limit", 4)
    model.partial_fit(X, y)
    assert (model.fit_status_, model.n_iter_) == ("time_limit", 8)
    model.set_params(time_limit=None).partial_fit(X, y)
    assert (model.fit_status_, model.n_iter_) == ("max_iter", 18)


@pytest.mark.parametrize(
    ("estimator", "looks", "n_iter"),
    [
        (kg.KernelClassifier("hinge", solver=WorkingSet(set_size=20), **PLAIN), 4, 1),
        (kg.KernelClassifier("log_loss", solver="newton", **PLAIN), 9, 3),
    ],
    ids=repr,
)
def test_long_iterations_end_with_what_they_have(estimator, looks, n_iter, rows, monkeypatch):
    estimator.set_params(probability=False)
    whole = estimator.set_params(max_iter=n_iter).fit(*rows).history_["objective"]
    count = itertools.count()
    monkeypatch.setattr("kernelgrad.callbacks.base.clock", lambda: float(next(count)))
    model = estimator.set_params(max_iter=50, time_limit=looks - 0.5).fit(*rows)
    assert (model.fit_status_, model.n_iter_) == ("time_limit", n_iter)
    assert model.history_["objective"][:-1] == whole[:-1]
    assert model.history_["objective"][-1] > whole[-1]
    assert len(set(model.predict(rows[0]))) == 2


def test_no_set_begins_that_would_end_too_late(rows, clock, monkeypatch):
    advance, sets = WorkingSet._advance, []

    def in_a_second(*args):
        clock.now += 1.0
        sets.append(clock.now)
        return advance(*args)

    monkeypatch.setattr(WorkingSet, "_advance", staticmethod(in_a_second))
    for room in ("working_set", "loop"):
        monkeypatch.setattr(f"kernelgrad.solvers.{room}.clock", clock)
    solver = WorkingSet(set_size=20, tol=1e-9)
    model = kg.KernelClassifier("hinge", solver=solver, time_limit=2.4, **PLAIN)
    model.set_params(probability=False).fit(*rows)
    assert (model.fit_status_, model.n_iter_, sets) == ("time_limit", 1, [1.0, 2.0])


@pytest.mark.parametrize(
    "solver", [SoftLabels(), pytest.param(CCCPS3VM(tol=1e-9), marks=pytest.mark.slow)], ids=repr
)
def test_semi_supervised_machines_end_within_their_first_iteration(solver, rows, monkeypatch):
    X, y = rows
    some = np.where(np.arange(len(y)) % 3 == 0, y, -1)
    blocks: list[int] = []
    step = BlockDescent.step
    monkeypatch.setattr(BlockDescent, "step", lambda *args: blocks.append(1) or step(*args))

    model = kg.SemiSupervisedKernelClassifier(solver=solver, gamma=1.0, max_iter=1)

    def work():
        blocks.clear()
        model.fit(X, some)
        assert len(set(model.predict(X))) == 2
        return model.history_["rows_seen"][-1] + 1000 * len(blocks)

    whole, count = work(), itertools.count()
    monkeypatch.setattr("kernelgrad.callbacks.base.clock", lambda: float(next(count)))
    model.set_params(time_limit=3.5)
    assert work() < 0.7 * whole


def test_a_kernel_matrix_ends_in_the_middle(monkeypatch):
    X = np.random.default_rng(0).standard_normal((1500, 2))
    monkeypatch.setattr("kernelgrad.callbacks.base.clock", lambda: float(next(count)))
    model = kg.KernelRegressor(solver="direct", time_limit=4.5, warm_start=True, **PLAIN)
    for _ in range(2):  # a fit that goes on has a state, but no function either
        count = itertools.count()
        with pytest.warns(ConvergenceWarning, match="'direct': the model is of 300 rows"):
            assert model.fit(X, X[:, 0]).score(X, X[:, 0]) > 0.99
        assert 5 < next(count) <= 7 + kg.get_num_threads()  # it ended at once


def test_a_first_step_ends_in_the_middle(rows, monkeypatch):
    count = itertools.count()
    monkeypatch.setattr("kernelgrad.callbacks.base.clock", lambda: float(next(count)))
    monkeypatch.setattr(hurry, "is_hurried", lambda *args: False)
    monkeypatch.setattr(BlockDescent, "finish", lambda *args: pytest.fail("takes time"))
    model = kg.KernelClassifier(solver="block_descent", time_limit=2.5, **PLAIN)
    with pytest.warns(ConvergenceWarning, match="'block_descent': the model is of 200 rows"):
        assert model.fit(*rows).score(*rows) > 0.95


@every("seconds, fitted", [(1.5, 300), (8.0, 1600)])
def test_a_function_of_some_rows_has_as_many_as_the_time_allows(seconds, fitted, monkeypatch):
    count = itertools.count()
    monkeypatch.setattr("kernelgrad.families.hurry.clock", lambda: float(next(count)))
    monkeypatch.setattr("kernelgrad.callbacks.base.clock", lambda: 0.0)
    monkeypatch.setattr("kernelgrad.families.hurry.slowness", lambda: 1e9)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 2))
    y = np.sin(X[:, 0]) + X[:, 1]
    options = PLAIN | {"time_limit": seconds, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match=f"the model is of {fitted:,} rows"):
        model = kg.KernelRegressor(**options).fit(X, y)
    assert model.history_["rows_fitted"] == model.n_support_ == fitted
    assert model.best_iteration_ == model.n_iter_
    assert model.score(X, y) > 0.99
    with pytest.warns(ConvergenceWarning, match="the model is of"):
        model = kg.KernelClassifier(**options).fit(X, y > 0)
    p = model.predict_proba(X)[:, 1]
    assert np.mean((p > 0.5) == (y > 0)) > 0.95
    assert p.min() < 0.1 < 0.9 < p.max()


class Phases(Callback):
    def __init__(self, fails):
        self.names, self.fails = [], fails

    def on_phase(self, name):
        self.names.append(name)

    def on_end(self, status):
        self.names.append(status)

    def on_iteration(self, event):
        if self.fails:
            raise RuntimeError("broken")


@every("fails", [False, True])
def test_phases_end_with_the_fit(rows, fails):
    phases = Phases(fails)
    model = kg.KernelRegressor(solver="dsg", metric=None, max_iter=1, callbacks=phases)
    with pytest.raises(RuntimeError) if fails else nullcontext():
        model.fit(*rows)
    assert phases.names[0].startswith("search")
    assert phases.names[-1] == ""


def test_the_lower_objective_decides_between_some_rows_and_a_fit_cut_short(monkeypatch):
    seen, judge = [], hurry.is_better
    monkeypatch.setattr(hurry, "is_hurried", lambda *args: len(args) > 4)
    monkeypatch.setattr(hurry, "is_better", lambda *args: seen.extend(args) or judge(*args))
    X = np.random.default_rng(0).standard_normal((900, 2))
    model = kg.KernelRegressor(**PLAIN | {"alpha": 1e-4}, solver="newton", time_limit=100)
    assert model.fit(X, np.sin(2.0 * X[:, 0])).fit_status_ == "converged"
    few, result, rows = seen
    least = result.history["objective"][-1]
    # the function of some rows is nearly that of all
    cases = (1.0, "time_limit", False), (2.0, "time_limit", True), (2.0, "converged", False)
    for factor, status, better in cases:
        cut = replace(result, status=status, history={"objective": [factor * least]})
        assert judge(few, cut, rows) == better
    # without objectives the mean losses are compared
    cut = replace(result, status="time_limit", history={"objective": [None]})
    assert judge(few, replace(cut, expansion=constant(result.expansion)), rows)
    assert not judge(replace(few, function=constant(few.function)), cut, rows)


def constant(function):
    return SimpleNamespace(raw_prediction=lambda X: 0.0 * function.raw_prediction(X))


def test_a_small_memory_limit_does_not_refuse_a_function_of_some_rows():
    X = np.random.default_rng(0).standard_normal((500, 2))
    phases, options = Phases(False), {"memory_limit": 3e7, "time_limit": 1e-9}
    model = kg.KernelRegressor(**PLAIN | options, callbacks=phases)
    with pytest.warns(ConvergenceWarning, match="the model is of"):
        assert model.fit(X, X[:, 0]).score(X, X[:, 0]) > 0.99
    assert phases.names == ["time_limit", ""]
