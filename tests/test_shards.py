"""Block descent on rows in several shards, in memory, in files and in scratch files."""

import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cases import raises
from kernelgrad import load, set_num_threads
from kernelgrad.callbacks import Callback
from kernelgrad.data import ArraySource
from kernelgrad.exceptions import DataError
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import SquaredError
from kernelgrad.solvers import BlockDescent, Problem, RowStore, TrainBatch
from kernelgrad.solvers.block_descent import shards, solver
from kernelgrad.solvers.block_descent.newton import BlockSteps
from kernelgrad.solvers.contract import Resources
from plain import plain_regressor
from sources import opened
from steps import signal

rows_of = partial(signal, seed=5)


@pytest.fixture
def small_shards(monkeypatch):
    """Rows in shards of 300."""
    monkeypatch.setattr(solver, "SHARD", 300)


def saved(folder, X, y, weight=None):
    return opened(folder, "npy", X, y, weight)


def same(first, second):
    np.testing.assert_array_equal(first.expansion_.coef, second.expansion_.coef)
    np.testing.assert_array_equal(first.intercept_, second.intercept_)
    assert first.history_["objective"] == second.history_["objective"]
    assert first.history_["audit"] == second.history_["audit"]


def shards_of(X, t, weight=None, **params):
    """Return a solver, problem and state on the rows, before its first step."""
    problem = Problem(SquaredError(), Gaussian(0.3), 1e-4, 1, X.shape[1], 0)
    weight = np.ones(len(X)) if weight is None else weight
    descent = BlockDescent(**params)
    return descent, problem, descent.init(problem, TrainBatch(X, t[:, None], weight))


BLOCKS = BlockDescent(block_size=100)


@pytest.mark.parametrize("weighted", [True, False])
def test_a_file_gives_the_model_of_the_array(monkeypatch, tiny_limits, tmp_path, weighted):
    monkeypatch.setattr(solver, "SHARD", 4000)
    monkeypatch.setattr(solver, "_FIRST_ROWS", 1000)
    X, t = rows_of(9000)  # fewer would be sorted in memory
    weight = np.random.default_rng(0).integers(1, 4, len(X)) if weighted else None
    source = saved(tmp_path, X, t, weight)
    settings = {
        "solver": BlockDescent(block_size=100), "max_iter": 4, "random_state": 0, "gamma": 0.3,
    }  # fmt: skip
    whole = plain_regressor(**settings).fit(X, t, weight)
    for threads, limit in ((None, None), (1, "1B")):
        set_num_threads(threads)
        same(whole, plain_regressor(memory_limit=limit, **settings).fit(source))


def test_shards_add_up_to_the_same_steps(monkeypatch):
    """With one block of all rows nothing is drawn: only the order of sums differs."""
    X, t = rows_of(700)
    batch, paths = TrainBatch(X, t[:, None], np.ones(700)), []
    for size in (10**6, 200):
        monkeypatch.setattr(solver, "SHARD", size)
        descent, problem, state = shards_of(X, t, tol=0)
        infos = [descent.step(problem, state, batch) for _ in range(2)]
        paths.append([info.objective for info in infos])
        assert len(state.workspace.team.shards) == -(-700 // size)
        assert descent.finish(problem, state, batch)["drift"] < 1e-5
    np.testing.assert_allclose(*paths, rtol=5e-5)


@pytest.mark.usefixtures("tiny_limits")
def test_scratch_files_go_with_the_fit(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    X, t = rows_of(400)
    source = ArraySource(X, t)
    settings = {"solver": BLOCKS, "max_iter": 2, "random_state": 0}
    seen = []

    class Look(Callback):
        def on_iteration(self, event):
            seen.extend(tmp_path.iterdir())

    model = plain_regressor(memory_limit="1B", callbacks=Look(), **settings).fit(source)
    assert seen
    assert list(tmp_path.iterdir()) == []
    model.set_params(warm_start=True).fit(source)
    assert model.n_iter_ == 4


@pytest.mark.usefixtures("tiny_limits")
def test_a_fit_from_a_file_goes_on(small_shards, tmp_path):
    X, t = rows_of(1000)
    source = saved(tmp_path, X, t)
    settings = {"solver": BLOCKS, "random_state": 0, "gamma": 0.3, "memory_limit": "1B"}
    whole = plain_regressor(max_iter=6, **settings).fit(source)
    part = plain_regressor(max_iter=3, warm_start=True, **settings).fit(source).fit(source)
    np.testing.assert_array_equal(whole.expansion_.coef, part.expansion_.coef)
    assert whole.history_["objective"][-1] == part.history_["objective"][-1]
    brief = plain_regressor(max_iter=3, **settings).fit(source)  # responses are not kept
    brief.save(tmp_path / "brief", resumable=True)
    model = load(tmp_path / "brief").set_params(memory_limit="1B", warm_start=True).fit(source)
    ends = [m.history_["objective"][-1] for m in (model, whole)]
    assert ends[0] == pytest.approx(ends[1], rel=0.02)
    other = saved(tmp_path, X, t + 1.0)
    raises(ValueError, "same rows", part.fit, other)


def test_outputs_that_do_not_move_keep_their_momentum():
    value, momentum, moved = np.zeros((2, 3)), np.ones((2, 3)), np.array([True, False])
    shards.step_on(
        value, momentum, None, np.array([[0.0, 1.0, 0.5]] * 2), moved, np.ones((2, 3))
    )
    np.testing.assert_array_equal(value[:, 0], [1.5, 0.0])
    np.testing.assert_array_equal(momentum[:, 0], [1.5, 1.0])


class Broken(RowStore):
    """Rows of which the third shard cannot be read a second time."""

    def __init__(self, X, t):
        self._X, self._t = X, t
        self.n_rows, self.n_features = X.shape
        self.reads, self.row_bytes, self.most = 0, 8.0 * X.shape[1], 0

    def read(self, start, stop):
        self.most = max(self.most, stop - start)
        if self.reads > 6 and start >= 600:
            raise DataError("the file is gone")
        return TrainBatch(self._X[start:stop], self._t[start:stop, None], np.ones(stop - start))

    def take(self, rows):
        self.most = max(self.most, len(rows))
        return TrainBatch(self._X[rows], self._t[rows, None], np.ones(len(rows)))


def test_errors_of_reading_are_told_and_no_thread_stays(small_shards):
    X, t = rows_of(1000)
    store = Broken(X, t)
    descent, problem, _ = shards_of(X, t, block_size=100)
    state = descent.init(problem, store)
    descent.step(problem, state, store)
    store.reads = 7
    raises(DataError, "gone", descent.step, problem, state, store)
    assert not [t for t in threading.enumerate() if "kernelgrad-read" in t.name]


def test_rows_of_a_store_that_are_not_prepared_are_few(monkeypatch):
    monkeypatch.setattr(shards, "_PIECE", 1100)
    monkeypatch.setattr(solver, "_DIGEST_ROWS", 100)
    X, t = rows_of(5000)
    store, descent = Broken(X, t), BlockDescent(block_size=100)
    problem = Problem(SquaredError(), Gaussian(0.3), 1e-4, 1, X.shape[1], 0)
    for limit, most in ((None, 5000), (100_000, 1100)):
        store.most = 0
        state = descent.init(replace(problem, resources=Resources(limit)), store)
        assert store.most == most  # the rows that scaling comes from, or those of a piece
        (shard,) = state.workspace.team.shards
        np.testing.assert_array_equal(shard._read().values, shard.home.prepare(X).values)
    X[4100, 1] = 1e60
    raises(DataError, "Row 4100, column 1 ", descent.init, problem, store)


def test_samples_come_from_all_shards_alike(small_shards):
    X, t = rows_of(1000)
    descent, problem, state = shards_of(X, t, block_size=50)
    steps = BlockSteps(state.iterate, state.workspace)
    block = descent._draw(problem, state)
    steps.enter(block, True)
    _, samples = steps.slopes(descent._sample_requests(problem, state, steps))
    whole = shards.joined_samples(samples)
    assert [len(s.share) for s in samples] == pytest.approx([60, 60, 60, 20], abs=1)
    assert len(np.unique(whole.rows.values, axis=0)) == 200
    np.testing.assert_allclose(whole.share, 1.0, rtol=1e-5)  # curvatures are equal


def test_a_block_holds_no_row_twice(small_shards):
    X, t = rows_of(200)
    X, t = np.tile(X, (5, 1)), np.tile(t, 5)
    descent, problem, state = shards_of(X, t, block_size=150)
    block = descent._draw(problem, state)
    assert len(np.unique(block.centres.values, axis=0)) == block.width < 150
    weight = 1.0 * (np.arange(1000) < 60)
    descent, problem, state = shards_of(X, t, weight, block_size=150)
    assert descent._draw(problem, state).width <= 60  # nor any without weight
