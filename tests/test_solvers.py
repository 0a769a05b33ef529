"""What all solvers share: the loop, states and their files, step sizes, names."""

import os
import signal
from dataclasses import dataclass, replace

import numpy as np
import pytest

from cases import every, raises
from kernelgrad import CapabilityError
from kernelgrad import solvers as ks
from kernelgrad.callbacks import Callback, CallbackList
from kernelgrad.files.records import Record
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import Absolute, Hinge, Logistic, SquaredError
from kernelgrad.papers.tsg.tsg import iterations, ramp_share, slope_grows
from kernelgrad.solvers.contract import batch_digest, transient
from kernelgrad.solvers.dsg import smoothness
from kernelgrad.solvers.history import left_over
from plain import plain_classifier
from steps import forever
from steps import signal as signal_of


@pytest.fixture
def rows():
    X, y = signal_of(300, noise=0.1)
    return ks.TrainBatch(X, y[:, None], np.ones(300))


PROBLEM = ks.Problem(SquaredError(), Gaussian(0.3), 1e-3, 1, 3, 7)
SOLVER = ks.DSG(block_size=16)


# -- the loop ------------------------------------------------------------------------------


class Stop(Callback):
    def __init__(self, after):
        self.after, self.status, self.events = after, None, []

    def on_iteration(self, event):
        self.events.append(event)
        return event.iteration >= self.after

    def on_end(self, status):
        self.status = status


def test_loop_records_and_stops(rows):
    stop = Stop(3)
    result = ks.run(SOLVER, PROBLEM, forever(rows), max_iter=10, callbacks=CallbackList([stop]))
    assert result.status == stop.status == "stopped"
    assert result.history["iteration"] == [1, 2, 3]
    assert [e.n_random_features for e in stop.events] == [32, 64, 96]
    assert [e.max_iter for e in stop.events] == [10, 10, 10]
    assert result.history["rows_seen"] == [300, 600, 900]
    assert all(np.diff(result.history["seconds"]) >= 0)
    more = ks.run(
        SOLVER, PROBLEM, forever(rows), max_iter=2, state=result.state, history=result.history
    )
    assert more.history["iteration"] == [1, 2, 3, 4, 5]
    assert more.status == "max_iter"
    assert all(np.diff(more.history["seconds"]) >= 0)
    raises(ValueError, "no batch to learn from", ks.run, SOLVER, PROBLEM, iter([]), max_iter=3)


def test_loop_keeps_the_best_iterate_and_counts_a_falling_loss_as_progress(rows):
    seen = []

    def fit(scores, losses=None, tol=0.0, **options):
        scores, losses = iter(scores), None if losses is None else iter(losses)

        def score(raw):
            seen.append(raw.copy())
            return next(scores)

        loss = None if losses is None else lambda raw: next(losses)
        validation = ks.Validation(rows.X, score, "made up", 3, tol, loss=loss, **options)
        return ks.run(SOLVER, PROBLEM, forever(rows), max_iter=9, validation=validation)

    result = fit([0.1, 0.9, 0.5, 0.5, 0.5, 0.5])
    assert (result.status, result.best_iteration, result.best_score) == ("converged", 2, 0.9)
    assert result.history["validation_score"] == [0.1, 0.9, 0.5, 0.5, 0.5]
    np.testing.assert_allclose(result.expansion.raw_prediction(rows.X), seen[1], atol=1e-5)
    result = fit([np.nan, 0.5] + [0.5] * 7, [5, 4, 3, 2, 1, 1, 1, 1, 1])
    assert (result.best_iteration, result.history["iteration"][-1]) == (5, 8)
    result = fit([0.1, 0.9, 0.95, 0.9, 0.95], tol=0.1)  # neither gain nor loss is progress
    assert (result.status, result.best_iteration) == ("converged", 3)
    result = fit([0.5] * 9, early_stopping=False)
    assert result.history["iteration"][-1] == 9


def test_an_interrupt_before_the_first_step_is_raised():
    def interrupted(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ks.run(SOLVER, PROBLEM, map(interrupted, [0]), max_iter=9)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_waits_for_the_step_and_a_second_one_does_not(rows, times):
    class Pressed(ks.DSG):
        def step(self, problem, state, batch):
            if state.iteration == 2:
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)
            return super().step(problem, state, batch)

    def fit():
        told = CallbackList([stop])
        return ks.run(
            Pressed(block_size=16), PROBLEM, forever(rows), max_iter=9, callbacks=told
        )

    stop = Stop(9)
    if times == 2:
        with pytest.raises(KeyboardInterrupt):  # no half of a step is kept
            fit()
    else:
        result = fit()
        assert (result.status, result.state.iteration) == ("interrupted", 3)
        assert np.isfinite(result.expansion.raw_prediction(rows.X)).all()
    assert stop.status == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_progress_inside_a_step_objective_and_time_left_are_told(rows):
    class Slow(ks.DSG):
        def step(self, problem, state, batch):
            problem.resources.progress(1, 4)
            return replace(super().step(problem, state, batch), objective=0.25)

    class Told(Stop):
        def on_progress(self, iteration, max_iter):
            told.append((iteration, max_iter))

    told, stop = [], Told(9)
    slow, listener = Slow(block_size=16), CallbackList([stop])
    result = ks.run(slow, PROBLEM, forever(rows), max_iter=2, callbacks=listener)
    assert told == [(0.25, 2), (1.25, 2)]
    for e in stop.events:  # the mean time of an iteration for each that is left
        assert e.objective == 0.25
        assert e.seconds_left == pytest.approx(e.seconds / e.iteration * (2 - e.iteration))
    more = ks.run(
        slow, PROBLEM, forever(rows), max_iter=1, callbacks=listener, state=result.state
    )
    assert told[2:] == [(2.25, 3)]
    PROBLEM.resources.progress(1, 2)  # tells nobody
    assert len(told) == 3
    assert more.status == "max_iter"


# -- states --------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Example(ks.State):
    coef: np.ndarray
    gap: float = np.inf
    done: bool = False
    memory: object = transient()


def test_older_files_may_lack_values_and_hold_none_for_infinity():
    values, arrays = Example(coef=np.arange(3.0), memory=object(), done=True).describe()
    assert "memory" not in values
    del values["done"]
    back = Example.restore(None, Record(values | {"gap": None}, arrays))
    assert (back.gap, back.done, back.memory) == (np.inf, False, None)
    back.coef += 1  # steps write in place
    np.testing.assert_array_equal(arrays["coef"], [0, 1, 2])
    del arrays["coef"]
    raises(TypeError, "coef", Example.restore, None, Record(values, arrays))


def test_digests_tell_targets_weights_and_losses_apart(rows):
    twin = ks.TrainBatch(rows.X.copy(), rows.y.copy(), rows.sample_weight.copy())
    digest = batch_digest(PROBLEM, rows)
    assert batch_digest(PROBLEM, twin) == digest
    for name in ("X", "y", "sample_weight"):
        getattr(twin, name)[7] += 1
        assert batch_digest(PROBLEM, twin) != digest
        getattr(twin, name)[7] -= 1
    other = ks.Problem(Absolute(), Gaussian(0.3), 1e-3, 1, 3, 7)
    assert batch_digest(other, rows) != digest


# -- names, needs, schedules -----------------------------------------------------------------


def test_names_are_checked_and_solvers_cloned():
    choices = (
        "Unknown solver .adam.; choose one of: auto, bgs3vm, block_descent, .* cdsg, direct, "
        "dsg, "
    )
    raises(ValueError, choices, ks.get_solver, "adam")
    with pytest.raises(
        ValueError, match=r"one of: auto, block_descent, .*(?<!tsg, udsg), working"
    ):
        ks.get_solver("adam", marks=False)
    raises(ValueError, r"'dsg' .*; choose one of: .*s3gd, .*svrg", ks.get_linear_solver, "dsg")
    raises(TypeError, r"\(bgs3vm, .*, auto\) or a kernelgrad solver, got 3", ks.get_solver, 3)
    raises(
        TypeError, r"auto\) or a linear solver of kernelgrad, got 3", ks.get_linear_solver, 3
    )
    assert (ks.get_solver("auto").name, ks.get_linear_solver("auto").name) == ("dsg", "svrg")
    given = ks.DSG(decay=3.0)
    assert ks.get_solver(given) is not given
    assert ks.get_solver(given).decay == 3.0
    raises(ValueError, "decay", ks.get_solver, ks.DSG(decay=0.0))


def test_capabilities_are_checked_before_work():
    class Smooth(ks.DSG):
        name = "smooth"
        requires = frozenset({"gradient", "smooth_loss"})

    ks.check_capabilities(Smooth(), SquaredError(), Gaussian(1.0))
    with pytest.raises(CapabilityError, match="'smooth' needs smooth_loss, which loss 'hinge'"):
        ks.check_capabilities(Smooth(), Hinge(), Gaussian(1.0))
    with pytest.raises(CapabilityError, match="needs smooth_loss"):
        plain_classifier(loss="hinge", solver=Smooth()).fit(np.eye(4), [0, 1, 0, 1])


def test_step_scales():
    y = np.array([[1.0], [3.0], [8.0]])
    f = np.zeros((3, 1))
    assert smoothness(SquaredError(), y, f) == 1.0
    assert smoothness(Logistic(), np.sign(y), f) == 0.25
    assert smoothness(Absolute(), y, f) == pytest.approx(1 / 4.0)
    assert smoothness(Absolute(), 1000 * y, f) == pytest.approx(1 / 4000.0)
    assert smoothness(Hinge(), np.sign(y), f) == 1.0
    assert [slope_grows(loss) for loss in (SquaredError(), Hinge())] == [True, False]


def test_ramps():
    assert [ramp_share((0.5, 0.5), 10, t) for t in (4, 5)] == [0, 1]
    assert iterations(PROBLEM) == 100
    for ramp, message in (
        (3, r"two parts of the iterations such as \(0.3, 0.6\), got 3"),
        ((0.5, 0.2), r"end of ramp must lie in \[0.5, 1\]"),
        ((-1, 0.2), "start of ramp"),
    ):
        raises(ValueError, message, ks.TSG(ramp=ramp).check)


# -- how far from the optimum ----------------------------------------------------------


def history_of(objective, gap=None, train_loss=1.0):
    last = [train_loss] * len(objective)
    return {"objective": objective, "duality_gap": [gap] * len(objective), "train_loss": last}


@every(
    ("history", "left"),
    [
        (history_of([1.0, 1.0], gap=0.3), 0.3),
        (history_of([None, None], gap=0.3, train_loss=2.0), 0.15),
        (history_of([None, None]), None),
        (history_of([3.0]), np.inf),
        (history_of([3.0, 2.0, 1.0]), np.inf),  # as fast as ever
        (history_of([1.0, 1.1, 1.1]), 0.0),
        (history_of([2.0 + 0.5**k for k in range(5)]), 0.5**4 / (2 + 0.5**4)),
        (history_of([2.0 + 0.9**k for k in range(40)]), 0.9**39 / (2 + 0.9**39)),
    ],
)
def test_what_is_left_of_an_objective(history, left):
    found = left_over(history)
    assert found is None if left is None else found == pytest.approx(left, rel=1e-9)
