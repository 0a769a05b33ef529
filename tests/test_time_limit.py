"""One budget of seconds for all that a fit does."""

from __future__ import annotations

import io
import itertools
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import kernelgrad
import kernelgrad as kg
from cases import every
from kernelgrad.callbacks import Callback, Deadline, ProgressBar, TimeIsUp
from kernelgrad.solvers import CCCPS3VM, DSG, CachedBlockDescent, SoftLabels, WorkingSet
from kernelgrad.solvers.direct import SymmetricMatrix

PLAIN = {"standardize": False, "metric": None, "gamma": "median", "alpha": 1e-6}  # no search

KERNEL = [
    *(kg.KernelClassifier("hinge", solver=s, alpha=1e-4) for s in (
        "working_set", "cached", "dsg", "cdsg", "udsg", "sbp", "sdca", "pegasos", "norma",
    )),
    kg.KernelClassifier("hinge", solver="working_set", multi_class="ovo"),
    kg.KernelClassifier("perceptron"),
    *(kg.KernelRegressor(solver=s) for s in ("direct", "newton", "cached", "dsg", "sdca")),
    kg.KernelRegressor("quantile", solver="working_set"),
]  # fmt: skip
OTHERS = [
    kg.KernelNoveltyDetector(),
    kg.KernelDensityRatio(),
    kg.KernelGaussianProcessRegressor(),
    *(kg.LinearClassifier(solver=s) for s in ("svrg", "sgd", "s3gd", "rbcd", "sbmd")),
    kg.LinearClassifier("hinge", solver="sdca"),
    kg.LinearRegressor(solver="scv"),
    *(kg.SemiSupervisedKernelClassifier(solver=s) for s in ("auto", "tsg", "fr_s3vm")),
]


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    return X, (X[:, 0] + X[:, 1] ** 2 > 0.7).astype(int)


@pytest.mark.filterwarnings("ignore:Class . is .* of the labelled rows")
@every("estimator", KERNEL + OTHERS)
def test_no_time_at_all_gives_a_constant_that_says_so(estimator, rows, tmp_path):
    X, y = rows
    if hasattr(estimator, "multi_class"):
        y = y + (X[:, 2] > 0)
    if isinstance(estimator, kg.SemiSupervisedKernelClassifier):
        y = np.where(np.arange(len(y)) % 2 > 0, y, -1)
    estimator = estimator.set_params(time_limit=1e-9, random_state=0)
    with pytest.warns(ConvergenceWarning, match="the model is a constant; raise time_limit"):
        model = estimator.fit(X, y)
    assert (model.fit_status_, model.n_iter_) == ("time_limit", 0)
    f = model.expansion_.raw_prediction(X)
    assert np.isfinite(f).all()
    assert (f == f[0]).all()
    assert len(np.unique(model.predict(X))) == 1
    model.save(tmp_path / "model.kgm")
    assert (kernelgrad.load(tmp_path / "model.kgm").predict(X) == model.predict(X)).all()
    if hasattr(model, "warm_start") and "warm_start" in model.get_params():
        model.set_params(warm_start=True, time_limit=None, max_iter=3).fit(X, y)
        assert 0 < model.n_iter_ <= 3
        f = model.expansion_.raw_prediction(X)
        assert not (f == f[0]).all()


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
    return clock


@pytest.mark.parametrize(
    "estimator",
    [
        kg.KernelClassifier(solver="dsg"),
        kg.KernelClassifier("hinge", solver="cached", early_stopping=True),
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
    model = kg.KernelClassifier(solver=solver, random_state=0, time_limit=3.5, callbacks=clock)
    model.partial_fit(X, y)
    assert (model.fit_status_, model.n_iter_) == ("time_limit", 4)
    model.partial_fit(X, y)
    assert (model.fit_status_, model.n_iter_) == ("time_limit", 8)
    model.set_params(time_limit=None).partial_fit(X, y)
    assert (model.fit_status_, model.n_iter_) == ("max_iter", 18)


def test_a_stream_goes_on_after_a_call_without_time(rows):
    model = kg.KernelClassifier(solver="dsg", random_state=0, time_limit=1e-9, **PLAIN)
    with pytest.warns(ConvergenceWarning):
        model.partial_fit(*rows)
    model.set_params(time_limit=None).partial_fit(*rows)
    expected = kg.KernelClassifier(solver="dsg", random_state=0, **PLAIN).partial_fit(*rows)
    f = (m.decision_function(rows[0]) for m in (model, expected))
    np.testing.assert_array_equal(*f)


@pytest.mark.parametrize(
    ("estimator", "looks", "n_iter"),
    [
        (
            kg.KernelClassifier(
                "hinge", solver=WorkingSet(set_size=20), probability=False, **PLAIN
            ),
            3,
            1,
        ),
        (kg.KernelClassifier("log_loss", solver="newton", **PLAIN), 7, 3),
    ],
    ids=repr,
)
def test_long_iterations_end_with_what_they_have(estimator, looks, n_iter, rows, monkeypatch):
    whole = estimator.set_params(max_iter=n_iter).fit(*rows).history_["objective"]
    count = itertools.count()
    monkeypatch.setattr("kernelgrad.callbacks.base.clock", lambda: float(next(count)))
    model = estimator.set_params(max_iter=50, time_limit=looks - 0.5).fit(*rows)
    assert (model.fit_status_, model.n_iter_) == ("time_limit", n_iter)
    assert model.history_["objective"][:-1] == whole[:-1]
    assert model.history_["objective"][-1] > whole[-1]
    assert len(set(model.predict(rows[0]))) == 2


@pytest.mark.parametrize("solver", [CCCPS3VM(tol=1e-9), SoftLabels()], ids=repr)
def test_semi_supervised_machines_end_within_their_first_iteration(solver, rows, monkeypatch):
    X, y = rows
    some = np.where(np.arange(len(y)) % 3 == 0, y, -1)
    blocks: list[int] = []
    step = CachedBlockDescent.step
    monkeypatch.setattr(
        CachedBlockDescent, "step", lambda *args: blocks.append(1) or step(*args)
    )

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
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 2))
    count = itertools.count()
    monkeypatch.setattr("kernelgrad.callbacks.base.clock", lambda: float(next(count)))
    model = kg.KernelRegressor(solver="direct", time_limit=2.5, **PLAIN)
    with pytest.warns(ConvergenceWarning, match="'direct': the model is a constant"):
        model.fit(X, X[:, 0])
    assert 3 < next(count) <= 4 + kernelgrad.get_num_threads()  # it ended at once


def test_a_factorisation_ends_in_the_middle(clock):
    n = 600
    matrix = SymmetricMatrix(n, lambda a, b: np.eye(n)[a, b], Deadline(1.0))
    matrix.factor(np.ones(n), 0.0)
    clock.now = 1.0
    with pytest.raises(TimeIsUp):
        matrix.factor(np.ones(n), 0.0)
    with pytest.raises(TimeIsUp):
        SymmetricMatrix(n, lambda a, b: pytest.fail("went on"), Deadline(0.0))


def test_it_is_refused_where_it_is_no_time(rows):
    for wrong in (0, -1.0, "1s", np.nan):
        with pytest.raises((ValueError, TypeError), match="time_limit"):
            kg.KernelClassifier(time_limit=wrong).fit(*rows)


def test_deadline():
    assert Deadline().left() == np.inf
    assert not Deadline(1e6).over
    assert 1e6 - 100 < Deadline(1e6).left() <= 1e6
    past = Deadline(-1.0)
    assert past.over
    assert past.left() == 0.0
    with pytest.raises(TimeIsUp):
        past.check()


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("kind", "shown"), [(Terminal, True), (io.StringIO, False)])
def test_phases_are_named_on_a_terminal(kind, shown):
    file = kind()
    bar = ProgressBar(file)
    for name in ("search", "metric", ""):
        bar.on_phase(name)
    assert all((name in file.getvalue()) == shown for name in ("search: 00:0", "metric: 00:0"))
    bar.on_phase("search")
    bar.on_begin(object())  # ends the phase
    bar.on_end("done")
    assert bar._phase is None


class Phases(Callback):
    def __init__(self):
        self.names = []

    def on_phase(self, name):
        self.names.append(name)


class Searching(kg.KernelClassifier):
    def _plan(self, *args, **options):
        self._listeners.on_phase("search")
        if self.max_iter == 7:
            raise RuntimeError("broken")
        return super()._plan(*args, **options)


@pytest.mark.parametrize("max_iter", [1, 7])
def test_phases_end_with_the_fit(rows, max_iter):
    phases = Phases()
    model = Searching("log_loss", max_iter=max_iter, callbacks=phases, **PLAIN)
    with warnings.catch_warnings():
        if max_iter == 7:
            with pytest.raises(RuntimeError, match="broken"):
                model.fit(*rows)
        else:
            model.fit(*rows)
    assert phases.names == ["search", ""]
    assert not {"_listeners", "_deadline"} & set(vars(model))
