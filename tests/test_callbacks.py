"""Callbacks: order, clean stops, clean ends, and the progress bar."""

import copy
import io
import pickle
import sys
import time
import types

import numpy as np
import pytest

from cases import every, raises
from kernelgrad import callbacks as hooks
from kernelgrad.callbacks import progress


def event(iteration=1, max_iter=10, **changes):
    fields = {
        "epoch": 0.5, "rows_seen": 100 * iteration, "seconds": 0.1 * iteration,
        "n_random_features": 64, "train_loss": 0.25, "validation_score": None,
        "score_name": None, "rows_per_second": 12_300.0,
    }  # fmt: skip
    return hooks.FitEvent(iteration=iteration, max_iter=max_iter, **{**fields, **changes})


class Log(hooks.Callback):
    def __init__(self, log, name, fail="", stop=None):
        self.log, self.name, self.fail, self.stop = log, name, fail, stop

    def _note(self, what, value):
        self.log.append((self.name, what, value))
        if self.fail == what:
            raise RuntimeError(f"{self.name} in {what}")

    def on_begin(self, solver):
        self._note("begin", solver)

    def on_progress(self, iteration, max_iter):
        self._note("progress", (iteration, max_iter))

    def on_iteration(self, event):
        self._note("iteration", event.iteration)
        return self.stop

    def on_end(self, status):
        self._note("end", status)


@every("stop", [None, False, True, np.True_])
def test_a_list_runs_all_in_order_and_one_stop_is_enough(stop):
    log = []
    callbacks = hooks.CallbackList(
        [Log(log, "a", stop=stop), hooks.Callback(), Log(log, "b", stop=False)]
    )
    callbacks.on_begin("fit")
    callbacks.on_progress(0.5, None)
    assert callbacks.on_iteration(event()) is bool(stop)
    callbacks.on_end("done")
    callbacks.on_end("done")
    steps = [("begin", "fit"), ("progress", (0.5, None)), ("iteration", 1), ("end", "done")]
    assert log == [(name, *step) for step in steps for name in "ab"]


def test_all_that_had_begun_end_even_when_one_raises():
    log = []
    callbacks = hooks.CallbackList([Log(log, "a"), Log(log, "b", "begin"), Log(log, "c")])
    raises(RuntimeError, "b in begin", callbacks.on_begin, "fit")
    callbacks.on_end("again")
    assert log == [("a", "begin", "fit"), ("b", "begin", "fit"), ("a", "end", "error")]
    callbacks = hooks.CallbackList([Log(log, "a", "end"), Log(log, "b")])
    callbacks.on_begin("fit")
    raises(RuntimeError, "a in end", callbacks.on_end, "done")
    assert log[-2:] == [("a", "end", "done"), ("b", "end", "done")]


def draw(events, encoding="utf-8", status="done"):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="")
    bar = hooks.ProgressBar(file)
    bar.on_begin(object())
    for e in events:
        assert bar.on_iteration(e) is None
    bar.on_end(status)
    file.flush()
    return raw.getvalue().decode(encoding).rstrip().split("\r")[-1]


def test_a_bar_shows_what_is_known():
    shown = draw([event(i) for i in range(1, 11)])
    assert shown.startswith("fit (object): 100%")
    for part in ("10/10", "12.3k rows/s, train loss=0.25", "█", "<00:00"):
        assert part in shown
    endless = draw([event(i, None, validation_score=0.912345, score_name="r2") for i in (1, 2)])
    assert "2it" in endless
    assert "r2=0.9123" in endless
    shown = draw([event(objective=0.123456, validation_score=0.5)])
    assert "12.3k rows/s, objective=0.1235, validation score=0.5" in shown
    plain = draw([event(i) for i in range(1, 5)], encoding="latin-1")
    assert "4/10" in plain
    assert plain.isascii()


def test_a_bar_moves_inside_long_iterations_and_never_back():
    file = io.StringIO()
    bar = hooks.ProgressBar(file)
    bar.on_progress(0.5, 10)  # before the fit: nothing to draw on
    bar.on_begin(None)
    for iteration in (0.0, 0.256, 0.75, 0.251):
        bar.on_progress(iteration, 10)
    bar.on_iteration(event(1))
    bar.on_progress(1.5, 10)
    bar.on_iteration(event(2))
    bar.on_end("done")
    shown = file.getvalue().split("\r")
    assert "0.75/10" not in shown[-1]
    assert " 2/10" in shown[-1]
    file.seek(0)
    bar.on_begin(None)
    bar.on_progress(7.5, 10)
    bar.on_iteration(event(8))  # a continued fit: its speed counts one iteration
    bar.on_end("done")
    assert " 8/10" in file.getvalue().split("\r")[-1]


def test_progress_reports_the_fraction_of_a_pass():
    fractions = []
    listener = hooks.Progress(fractions.append)
    for done, total in ((1, 4), (4, 4), (9, 4), (0, 0)):
        listener(done, total)
    assert fractions == [0.25, 1.0, 1.0, 1.0]
    for twin in (copy.deepcopy(listener), pickle.loads(pickle.dumps(listener)), hooks.SILENT):
        twin(1, 2)
    assert len(fractions) == 4


@every(
    ("status", "end"),
    [
        ("converged", "converged after 3 of at most 10 iterations: 100%"),
        ("stopped", "stopped after 3 of at most 10 iterations:  30%"),
        ("time_limit", "out of time after 3 of at most 10 iterations"),
    ],
)
def test_a_bar_says_how_a_fit_ended(status, end):
    assert draw([event(3)], status=status).startswith(f"fit (object): {end}")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@every("begin", [lambda bar: bar.on_phase("search"), lambda bar: bar.on_begin(bar)])
def test_bars_are_drawn_while_nothing_is_heard(begin, monkeypatch):
    monkeypatch.setattr(progress, "_BEAT", 0.01)
    monkeypatch.setattr(progress.compiling.watch, "name", "some_loop")
    file = Terminal()
    bar = hooks.ProgressBar(file)
    begin(bar)
    deadline = time.monotonic() + 30
    while file.getvalue().count("compiling some_loop") < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    bar.on_phase("")
    bar.on_end("done")
    assert file.getvalue().count("compiling some_loop") >= 2


@every(("file", "shown"), [(Terminal, True), (io.StringIO, False)])
def test_phases_are_named_on_a_terminal(file, shown):
    file = file()
    bar = hooks.ProgressBar(file)
    for name in ("search", "metric", ""):
        bar.on_phase(name)
    bar.on_phase("calibration")
    hooks.Aside(bar).on_iteration(event(3))
    bar.on_begin(object())  # ends the phase
    bar.on_end("done")
    for part in ("search: 00:0", "metric: 00:0", "calibration: 00:00, iteration 3 of 10"):
        assert (part in file.getvalue()) == shown


def logged(file):
    return [line.split(" s  ")[1] for line in file.getvalue().splitlines()]


def test_a_log_has_a_line_a_second_and_the_last_iteration():
    file = io.StringIO()
    log = hooks.make_callbacks([hooks.ProgressLog(file)], 2)
    assert len(log.callbacks) == 1
    log.on_phase("search")
    log.on_begin(log)
    for i in (1, 2, 3):  # less than a second
        log.on_iteration(event(i))
    log.on_end("converged")
    assert logged(file) == [
        "search", "fit (CallbackList)",
        "iteration 3 of at most 10: 12.3k rows/s, train loss=0.25", "converged",
    ]  # fmt: skip


@every("watched", [False, True])
def test_a_bar_goes_to_stderr_where_somebody_looks(watched, capsys, monkeypatch):
    monkeypatch.setattr(progress, "shows_bars", lambda: watched)
    bar = hooks.ProgressBar()
    callbacks = hooks.make_callbacks([Log([], "a", "end"), bar], verbose=True)
    for _ in range(2):
        callbacks.on_begin(None)
        callbacks.on_progress(0.5, 10)
        callbacks.on_iteration(event(3))
        raises(RuntimeError, "a in end", callbacks.on_end, "error")
    out, err = capsys.readouterr()
    assert out == ""
    assert (err.count("3/10") >= 2 and err.endswith("\n")) if watched else err == ""
    for twin in (copy.deepcopy(bar), pickle.loads(pickle.dumps(bar))):
        assert isinstance(twin, hooks.ProgressBar)


def test_a_notebook_has_one_line_for_each_fit(monkeypatch, capsys):
    shown = []  # the last text of each line

    def display(content, *, raw, display_id):
        shown.append(content["text/plain"])
        update = lambda content, raw: shown.__setitem__(-1, content["text/plain"])  # noqa: E731
        return types.SimpleNamespace(update=update)

    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    for _ in range(2):
        bar = hooks.ProgressBar()
        bar.on_phase("search")
        bar.on_begin(None)
        bar.on_iteration(event(3))
        bar.on_end("converged")
    assert len(shown) == 2
    assert all("converged after 3 of at most 10 iterations: 100%" in text for text in shown)
    assert capsys.readouterr() == ("", "")


def test_verbose_adds_a_bar_or_a_log():
    limit, bar = hooks.Callback(), hooks.ProgressBar()
    assert hooks.make_callbacks(None, 0).callbacks == []
    assert hooks.make_callbacks(limit, False).callbacks == [limit]
    assert hooks.make_callbacks((limit, bar), 1).callbacks == [limit, bar]
    first, second = hooks.make_callbacks([limit], np.int64(1)).callbacks
    assert (type(first), second) == (hooks.ProgressBar, limit)
    assert hooks.make_callbacks([limit], 2, stream=True).callbacks[0].stream


@every("wrong", ["bar", 3, hooks.Callback, [hooks.Callback(), print]])
def test_wrong_arguments_are_named(wrong):
    raises(TypeError, r"got .*; pass an instance", hooks.make_callbacks, wrong, 0)
    with pytest.raises(TypeError, match="verbose must be an integer, got 'yes'"):
        hooks.make_callbacks(None, "yes")
    raises(ValueError, "verbose must be at least 0, got -1", hooks.make_callbacks, None, -1)
