"""Callbacks: order, clean stops, clean ends, and the progress bar."""

import copy
import io
import pickle
import time

import numpy as np
import pytest

from kernelgrad import KernelRegressor
from kernelgrad.callbacks import (
    SILENT,
    Aside,
    Callback,
    CallbackList,
    FitEvent,
    Progress,
    ProgressBar,
    ProgressLog,
    TimeLimit,
    make_callbacks,
)
from kernelgrad.callbacks import (
    progress as _progress,
)


def event(iteration=1, max_iter=10, **changes):
    fields = {
        "epoch": 0.5,
        "rows_seen": 100 * iteration,
        "seconds": 0.1 * iteration,
        "n_random_features": 64,
        "train_loss": 0.25,
        "validation_score": None,
        "score_name": None,
        "rows_per_second": 12_300.0,
    }
    return FitEvent(iteration=iteration, max_iter=max_iter, **{**fields, **changes})


class Log(Callback):
    def __init__(self, log, name, fail="", stop=None):
        self.log, self.name, self.fail, self.stop = log, name, fail, stop

    def _note(self, what, value):
        self.log.append((self.name, what, value))
        if self.fail == what:
            raise RuntimeError(f"{self.name} in {what}")

    def on_begin(self, estimator_or_solver):
        self._note("begin", estimator_or_solver)

    def on_progress(self, iteration, max_iter):
        self._note("progress", (iteration, max_iter))

    def on_iteration(self, event):
        self._note("iteration", event.iteration)
        return self.stop

    def on_end(self, status):
        self._note("end", status)


def test_list_runs_all_in_order():
    log = []
    callbacks = CallbackList([Log(log, "a"), Callback(), Log(log, "b")])
    callbacks.on_begin("fit")
    callbacks.on_progress(0.5, None)
    assert callbacks.on_iteration(event()) is False
    callbacks.on_end("done")
    callbacks.on_end("done")
    steps = [("begin", "fit"), ("progress", (0.5, None)), ("iteration", 1), ("end", "done")]
    assert log == [(name, *step) for step in steps for name in "ab"]
    assert CallbackList().on_iteration(event()) is False


@pytest.mark.parametrize("stop", [True, np.True_])
def test_one_stop_is_enough_and_the_rest_still_run(stop):
    log = []
    callbacks = CallbackList([Log(log, "a", stop=stop), Log(log, "b", stop=False)])
    assert callbacks.on_iteration(event()) is True
    assert [name for name, *_ in log] == ["a", "b"]


def test_failed_begin_ends_those_that_had_begun():
    log = []
    callbacks = CallbackList([Log(log, "a"), Log(log, "b", "begin"), Log(log, "c")])
    with pytest.raises(RuntimeError, match="b in begin"):
        callbacks.on_begin("fit")
    callbacks.on_end("again")
    assert log == [("a", "begin", "fit"), ("b", "begin", "fit"), ("a", "end", "error")]


def test_all_end_even_when_one_raises():
    log = []
    callbacks = CallbackList([Log(log, "a", "end"), Log(log, "b")])
    callbacks.on_begin("fit")
    with pytest.raises(RuntimeError, match="a in end"):
        callbacks.on_end("done")
    assert log[2:] == [("a", "end", "done"), ("b", "end", "done")]


def test_time_limit():
    limit = TimeLimit(1)
    assert limit.on_iteration(event(seconds=0.99)) is False
    assert limit.on_iteration(event(seconds=1.0)) is True
    with pytest.raises(ValueError, match=r"seconds must lie in \(0, inf\), got 0"):
        TimeLimit(0)
    with pytest.raises(TypeError, match="seconds must be a real number, got '1m'"):
        TimeLimit("1m")


def draw(events, encoding="utf-8"):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="")
    bar = ProgressBar(file)
    bar.on_begin(object())
    for e in events:
        assert bar.on_iteration(e) is None
    bar.on_end("done")
    file.flush()
    return raw.getvalue().decode(encoding).rstrip().split("\r")[-1]


def test_bar():
    known = draw([event(i) for i in range(1, 11)])
    assert known.startswith("fit (object): 100%")
    for part in ("10/10", "12.3k rows/s, train loss=0.25", "█", "<00:00"):
        assert part in known
    endless = draw([event(i, None, validation_score=0.912345, score_name="r2") for i in (1, 2)])
    assert "2it" in endless
    assert "r2=0.9123" in endless
    assert "train loss" not in endless
    assert "validation score=0.5" in draw([event(validation_score=0.5)])
    plain = draw([event(i) for i in range(1, 5)], encoding="latin-1")
    assert "4/10" in plain
    assert "#" in plain
    assert plain.isascii()


def test_bar_tells_what_is_known():
    told = draw([event(objective=0.123456, validation_score=0.5, memory_gb=1.234)])
    assert "12.3k rows/s, objective=0.1235, validation score=0.5, 1.23 GB" in told
    assert "train loss" not in draw([event(objective=0.1)])
    assert "GB" not in draw([event()])


def test_bar_moves_inside_long_iterations():
    file = io.StringIO()
    bar = ProgressBar(file)
    bar.on_progress(0.5, 10)  # before the fit: nothing to draw on
    bar.on_begin(None)
    seen = []
    for iteration in (0.0, 0.256, 0.251, 0.75):
        bar.on_progress(iteration, 10)
        seen.append(bar._bar.n)
        assert bar._bar.total == 10
    assert seen == [0, 0.26, 0.26, 0.75]
    bar._bar.refresh()
    bar.on_iteration(event(1))
    bar.on_progress(1.5, 10)
    bar.on_iteration(event(2))
    bar.on_end("done")
    assert "0.75/10" in file.getvalue()
    assert " 2/10" in file.getvalue()
    bar.on_begin(None)
    bar.on_progress(7.5, 10)
    assert (bar._bar.initial, bar._bar.n) == (7, 7.5)
    bar.on_end("done")


def test_progress_tells_the_part():
    told = []
    progress = Progress(told.append)

    def iteration(*parts):
        told.clear()
        for done, total in parts:
            progress(done, total)
        progress.next_iteration()
        return told

    passes = [(1, 4), (4, 4), (2, 4), (9, 4)]  # two
    assert iteration(*passes) == [1 - 0.5**seen for seen in (0.25, 1.0, 1.5, 2.0)]
    assert iteration(*passes) == [0.125, 0.5, 0.75, 1.0]  # as many are expected
    more = iteration(*passes, (0, 4), (2, 4))
    assert more[:4] == [0.125, 0.5, 0.75, 1.0]
    assert more[5] == 1 - 0.5**2.5
    assert iteration((0, 0)) == [1 / 3]
    assert iteration((1, 1)) == [1.0]
    assert iteration((1, 1), (1, 1)) == [1.0, 0.75]
    assert iteration((1, 1), (1, 1)) == [0.5, 1.0]
    assert iteration() == []
    for twin in (copy.deepcopy(progress), pickle.loads(pickle.dumps(progress)), SILENT):
        twin(1, 2)
    assert told == []


def test_bar_of_a_continued_fit_counts_only_its_own_speed():
    file = io.StringIO()
    bar = ProgressBar(file)
    bar.on_begin(None)
    bar.on_iteration(event(501, 510))
    assert (bar._bar.initial, bar._bar.n, bar._bar.total) == (500, 501, 510)
    bar.on_end("done")
    assert "501/510" in file.getvalue()


@pytest.fixture
def watched(monkeypatch):
    monkeypatch.setattr(_progress, "_shows_bars", lambda: True)


def test_bar_says_how_a_fit_ended():
    for status, told in {"converged": ": 100%", "stopped": ":  30%", "time_limit": ""}.items():
        file = io.StringIO()
        bar = ProgressBar(file)
        bar.on_begin(bar)
        bar.on_iteration(event(3))
        bar.on_end(status)
        how = {"time_limit": "out of time"}.get(status, status)
        end = file.getvalue().split("\r")[-1]
        assert end.startswith(
            f"fit (ProgressBar): {how} after 3 of at most 10 iterations{told}"
        )


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_bars_are_drawn_while_nothing_is_heard(monkeypatch):
    monkeypatch.setattr(_progress, "_BEAT", 0.01)
    monkeypatch.setattr(_progress, "compiling", lambda: "some_loop")
    for begin in (lambda bar: bar.on_phase("search"), lambda bar: bar.on_begin(bar)):
        file = Terminal()
        bar = ProgressBar(file)
        begin(bar)
        deadline = time.monotonic() + 30
        while file.getvalue().count("compiling some_loop") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        over = bar._over
        bar.on_phase("")
        bar.on_end("done")
        assert over.is_set()
        assert file.getvalue().count("compiling some_loop") >= 2
        assert bar._over is None


def test_a_phase_tells_its_iterations():
    file = Terminal()
    bar = ProgressBar(file)
    bar.on_phase("calibration")
    Aside(bar).on_iteration(event(3))
    assert "calibration: 00:00, iteration 3 of 10" in file.getvalue()
    bar.on_phase("")


def test_log():
    file = io.StringIO()
    log = make_callbacks([ProgressLog(file)], 2)
    assert len(log.callbacks) == 1
    assert isinstance(make_callbacks(None, 2).callbacks[0], ProgressLog)
    log.on_phase("search")
    log.on_begin(log)
    for i in (1, 2, 3):  # less than a second
        log.on_iteration(event(i))
    log.on_end("converged")
    lines = [line.split(" s  ")[1] for line in file.getvalue().splitlines()]
    assert lines == [
        "search", "fit (CallbackList)",
        "iteration 3 of at most 10: 12.3k rows/s, train loss=0.25", "converged",
    ]  # fmt: skip


def test_streams_take_a_line_of_a_bar_and_a_line_of_a_log_for_each_call():
    X = np.random.default_rng(0).random((40, 2))
    for cls in (ProgressBar, ProgressLog):
        file = io.StringIO()
        model = KernelRegressor(solver="dsg", gamma=1.0, alpha=1e-3, random_state=0)
        model.set_params(callbacks=cls(file, stream=True))
        for _ in range(3):
            model.partial_fit(X, X[:, 0])
        told = file.getvalue()
        if cls is ProgressBar:
            assert "partial_fit (DSG): 100%" in told
            assert "3/3" in told
            assert "\n" not in told
        else:
            lines = [line.split(" s  ")[1].split(":")[0] for line in told.splitlines()]
            assert lines == ["iteration 1", "iteration 2", "iteration 3"]


def test_no_bar_where_nobody_looks(capsys):
    bar = ProgressBar()
    bar.on_begin(None)
    bar.on_progress(0.5, 10)
    bar.on_iteration(event(3))
    bar.on_end("converged")
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("watched")
def test_bar_goes_to_stderr_and_closes_after_errors(capsys):
    log = []
    bar = ProgressBar()
    callbacks = make_callbacks([Log(log, "a", "end"), bar], verbose=True)
    assert callbacks.callbacks[1] is bar
    callbacks.on_begin(None)
    callbacks.on_iteration(event(3))
    with pytest.raises(RuntimeError, match="a in end"):
        callbacks.on_end("error")
    out, err = capsys.readouterr()
    assert out == ""
    assert "3/10" in err
    assert err.endswith("\n")
    assert bar._bar is None


@pytest.mark.usefixtures("watched")
def test_bar_can_be_used_again_copied_and_pickled(capsys):
    bar = ProgressBar()
    for _ in range(2):
        bar.on_begin(None)
        bar.on_iteration(event())
        bar.on_end("done")
    assert capsys.readouterr().err.count("1/10") >= 2
    bar.on_begin(None)
    bar.on_begin(None)
    bar.on_end("done")
    bar.on_end("done")
    bar.on_iteration(event())
    for twin in (copy.deepcopy(bar), pickle.loads(pickle.dumps(bar))):
        assert isinstance(twin, ProgressBar)


def test_make_callbacks():
    limit, bar = TimeLimit(5), ProgressBar()
    assert make_callbacks(None, 0).callbacks == []
    assert make_callbacks(limit, False).callbacks == [limit]
    assert make_callbacks((limit, bar), 1).callbacks == [limit, bar]
    first, second = make_callbacks([limit], np.int64(1)).callbacks
    assert isinstance(first, ProgressBar)
    assert second is limit
    assert make_callbacks([limit], 2, stream=True).callbacks[0].stream


@pytest.mark.parametrize("wrong", ["bar", 3, TimeLimit, print])
def test_wrong_callbacks_are_named(wrong):
    for callbacks in (wrong, [TimeLimit(1), wrong]):
        with pytest.raises(TypeError) as info:
            make_callbacks(callbacks, 0)
        assert f"got {wrong!r}; pass an instance" in str(info.value)


def test_wrong_verbose_is_named():
    with pytest.raises(TypeError, match="verbose must be an integer, got 'yes'"):
        make_callbacks(None, "yes")
    with pytest.raises(ValueError, match="verbose must be at least 0, got -1"):
        make_callbacks(None, -1)
