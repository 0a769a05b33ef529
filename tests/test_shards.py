"""Block descent on rows in several shards, in memory, in files and in scratch files."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from cached_cases import even, signal
from kernelgrad import KernelClassifier, KernelRegressor, load, set_num_threads
from kernelgrad.data import ArraySource, open_source
from kernelgrad.exceptions import DataError
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import SquaredError
from kernelgrad.solvers import CachedBlockDescent, Problem, RowStore, TrainBatch
from kernelgrad.solvers.block_descent import constants, shards, solver
from kernelgrad.solvers.block_descent.newton import BlockSteps
from kernelgrad.tasks import NoTargets
from kernelgrad.training_rows import StoredRows, TrainingRows
from plain import plain_classifier, plain_regressor


@pytest.fixture
def small_shards(monkeypatch):
    """Rows in shards of 300."""
    monkeypatch.setattr(solver, "SHARD", 300)


def rows_of(n=1000, seed=5):
    X, t = signal(n, seed=seed)
    return X, t


def saved(folder, X, y, weight=None):
    arrays = {"X": X, "y": y} | ({} if weight is None else {"w": weight})
    np.savez(folder / "rows.npz", **arrays)
    return open_source(folder / "rows.npz", target="y", weight=None if weight is None else "w")


def same(first, second):
    np.testing.assert_array_equal(first.expansion_.coef, second.expansion_.coef)
    np.testing.assert_array_equal(first.intercept_, second.intercept_)
    assert first.history_["objective"] == second.history_["objective"]
    assert first.history_["audit"] == second.history_["audit"]


BLOCKS = [
    CachedBlockDescent(block_size=100),
    CachedBlockDescent(blocks="features", block_size=100),
]


@pytest.mark.parametrize("descent", BLOCKS)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_file_gives_the_model_of_the_array(monkeypatch, tmp_path, descent, weighted):
    monkeypatch.setattr(solver, "SHARD", 4000)
    X, t = rows_of(9000)  # fewer would be sorted in memory
    weight = np.random.default_rng(0).integers(1, 4, len(X)) if weighted else None
    source = saved(tmp_path, X, t, weight)
    settings = {"solver": descent, "max_iter": 4, "random_state": 0, "gamma": 0.3}
    whole = plain_regressor(**settings).fit(X, t, weight)
    for limit in (None, 10**6, 1):
        same(whole, plain_regressor(memory_limit=limit, **settings).fit(source))


def test_defaults_from_a_file_are_those_of_the_array(monkeypatch, tmp_path):
    """Metric, scaling, gamma and alpha come from the same random rows."""
    monkeypatch.setattr(solver, "SHARD", 4000)
    X, t = rows_of(9000)
    settings = {"random_state": 0, "max_iter": 2, "solver": "cached"}
    whole = KernelRegressor(**settings).fit(X, t)
    model = KernelRegressor(memory_limit=1, random_state=0, max_iter=2).fit(
        saved(tmp_path, X, t)
    )
    assert model.history_["solver"] == "cached"
    assert model.alpha_ == whole.alpha_
    np.testing.assert_array_equal(model.metric_, whole.metric_)
    same(whole, model)


def test_shards_add_up_to_the_same_steps(monkeypatch):
    """With one block of all rows nothing is drawn: only the order of sums differs."""
    X, t = rows_of(700)
    problem = Problem(SquaredError(), Gaussian(0.3), 1e-4, 1, X.shape[1], 0)
    batch, descent = TrainBatch(X, t[:, None], even(700)), CachedBlockDescent(tol=0)
    found = []
    for size in (10**6, 200):
        monkeypatch.setattr(solver, "SHARD", size)
        state = descent.init(problem, batch)
        infos = [descent.step(problem, state, batch) for _ in range(2)]
        found.append([info.objective for info in infos])
        assert len(state.memory.team.shards) == -(-700 // size)
        assert descent.finish(problem, state, batch)["drift"] < 1e-5
    np.testing.assert_allclose(found[0], found[1], rtol=5e-5)


@pytest.mark.parametrize("loss", ["squared", "log_loss", "hinge", "squared_hinge"])
def test_classes_and_losses_on_several_shards(small_shards, tmp_path, loss):
    X, t = rows_of()
    y = np.digitize(t, [-0.5, 0.5])
    source = saved(tmp_path, X, y)
    settings = {"solver": CachedBlockDescent(block_size=200), "max_iter": 8, "random_state": 0}
    settings |= {"gamma": 0.3, "alpha": 1e-4, "probability": False}
    few = plain_classifier(loss, memory_limit=1, **settings).fit(source)
    whole = plain_classifier(loss, **settings).fit(X, y)
    assert few.score(X, y) > whole.score(X, y) - 0.02 > 0.78
    assert few.history_["objective"][-1] == pytest.approx(
        whole.history_["objective"][-1], rel=0.1
    )
    assert few.history_["audit"]["drift"] < 1e-3


def test_bits_depend_neither_on_threads_nor_on_scratch(small_shards, tmp_path, monkeypatch):
    X, t = rows_of()
    source = saved(tmp_path, X, t)
    settings = {"solver": BLOCKS[0], "max_iter": 5, "random_state": 0, "gamma": 0.3}
    made = []
    folder = solver.ScratchFolder
    monkeypatch.setattr(solver, "ScratchFolder", lambda: made.append(folder()) or made[-1])
    first = plain_regressor(memory_limit=60_000, **settings).fit(source)
    assert not made
    set_num_threads(1)
    second = plain_regressor(memory_limit=1000, **settings).fit(source)
    assert len(made) == 1
    same(first, second)
    del second
    assert first.predict(X).shape == (1000,)


def test_scratch_files_go_with_the_fit(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    X, t = rows_of(400)
    source = ArraySource(X, t)
    settings = {"solver": BLOCKS[0], "max_iter": 2, "random_state": 0}
    model = plain_regressor(memory_limit=1, **settings).fit(source)
    assert list(tmp_path.iterdir()) == []
    model.set_params(warm_start=True).fit(source)
    assert model.n_iter_ == 4


def test_a_fit_from_a_file_goes_on(small_shards, tmp_path):
    X, t = rows_of()
    source = saved(tmp_path, X, t)
    settings = {"solver": BLOCKS[0], "random_state": 0, "gamma": 0.3, "memory_limit": 1}
    whole = plain_regressor(max_iter=6, **settings).fit(source)
    part = plain_regressor(max_iter=3, warm_start=True, **settings).fit(source).fit(source)
    np.testing.assert_array_equal(whole.expansion_.coef, part.expansion_.coef)
    assert whole.history_["objective"][-1] == part.history_["objective"][-1]
    brief = plain_regressor(max_iter=3, **settings).fit(source)  # responses are not kept
    assert sorted(brief._state.kept) == ["coef", "coef_momentum", "index", "last"]
    brief.save(tmp_path / "brief", resumable=True)
    for model in (brief, load(tmp_path / "brief")):
        model.set_params(warm_start=True).fit(source)
        assert model.history_["objective"][3] < brief.history_["objective"][2]
        assert model.history_["objective"][-1] == pytest.approx(
            whole.history_["objective"][-1], rel=0.02
        )
    other = saved(tmp_path, X, t + 1.0)
    with pytest.raises(ValueError, match="same rows"):
        part.fit(other)


def test_outputs_that_do_not_move_keep_their_momentum():
    value, momentum, moved = np.zeros((2, 3)), np.ones((2, 3)), np.array([True, False])
    shards.step_on(
        value, momentum, None, np.array([[0.0, 1.0, 0.5]] * 2), moved, np.ones((2, 3))
    )
    np.testing.assert_array_equal(value[:, 0], [1.5, 0.0])
    np.testing.assert_array_equal(momentum[:, 0], [1.5, 1.0])


def test_rows_that_are_held_out_are_no_rows(small_shards, tmp_path):
    X, t = rows_of()
    source = saved(tmp_path, X, t)
    settings = {"solver": BLOCKS[0], "max_iter": 5, "random_state": 0, "gamma": 0.3}
    model = plain_regressor(early_stopping=True, memory_limit=1, warm_start=True, **settings)
    model.fit(source)
    held = model._state.kept["f"].shape[1]
    assert held == 900
    assert 0.5 < model.best_score_ <= 1.0


@pytest.mark.parametrize("sort", ["class", "column"])
def test_sorted_files_do_not_hurt(small_shards, sort):
    X, t = rows_of(2000)
    y = (t > 0.3).astype(int)
    order = np.argsort(y if sort == "class" else X[:, 0], kind="stable")
    Z, _ = X[1500:], t[1500:]
    scores = []
    for rows in (np.arange(2000), order):
        source = ArraySource(X[rows], y[rows])
        model = plain_classifier(
            "squared_hinge", memory_limit=1, solver=CachedBlockDescent(block_size=100),
            max_iter=10, random_state=0, gamma=0.3, alpha=1e-4,
        )  # fmt: skip
        scores.append(model.fit(source).score(Z, y[1500:]))
    assert scores[1] > scores[0] - 0.02 > 0.85


class Broken(RowStore):
    """Rows of which the third shard cannot be read a second time."""

    def __init__(self, X, t):
        self._X, self._t = X, t
        self.n_rows, self.n_features = X.shape
        self.reads = 0

    def read(self, start, stop):
        if self.reads > 6 and start >= 600:
            raise DataError("the file is gone")
        return TrainBatch(self._X[start:stop], self._t[start:stop, None], even(stop - start))

    def take(self, rows):
        return TrainBatch(self._X[rows], self._t[rows, None], even(len(rows)))


def test_errors_of_reading_are_told_and_no_thread_stays(small_shards):
    X, t = rows_of()
    problem = Problem(SquaredError(), Gaussian(0.3), 1e-4, 1, X.shape[1], 0)
    store, descent = Broken(X, t), BLOCKS[0]
    state = descent.init(problem, store)
    descent.step(problem, state, store)
    store.reads = 7
    with pytest.raises(DataError, match="gone"):
        descent.step(problem, state, store)
    assert not [t for t in threading.enumerate() if "kernelgrad-read" in t.name]


def test_probabilities_of_many_rows_come_from_rows_held_out(monkeypatch):
    monkeypatch.setattr("kernelgrad.estimators.classifier._MANY_ROWS", 3000)
    X, t = rows_of(4000)
    y = (t + 0.3 * np.random.default_rng(0).standard_normal(4000) > 0.3).astype(int)
    model = KernelClassifier(random_state=0, max_iter=10).fit(X[:3500], y[:3500])
    p = model.predict_proba(X[3500:])[:, 1]
    loss = -np.mean(np.log(np.where(y[3500:] == 1, p, 1 - p)))
    rate = y[:3500].mean()
    prior = -np.mean(np.log(np.where(y[3500:] == 1, rate, 1 - rate)))
    assert loss < 0.7 * prior


def shards_of(X, t, weight=None, **params):
    """Return a solver, problem and state on the rows, before its first step."""
    problem = Problem(SquaredError(), Gaussian(0.3), 1e-4, 1, X.shape[1], 0)
    weight = even(len(X)) if weight is None else weight
    descent = CachedBlockDescent(**params)
    return descent, problem, descent.init(problem, TrainBatch(X, t[:, None], weight))


def test_samples_come_from_all_shards_alike(small_shards):
    X, t = rows_of()
    descent, problem, state = shards_of(X, t, block_size=50, hessian_rows=200)
    steps = BlockSteps(state.iterate, state.memory, None)
    block = descent._draw(problem, state, state.memory)
    steps.enter(block, True)
    _, samples = steps.slopes(descent._sample_requests(problem, state, steps, 50))
    whole = shards.joined(samples)
    assert [len(s.share) for s in samples] == pytest.approx([60, 60, 60, 20], abs=1)
    assert len(np.unique(whole.rows.values, axis=0)) == 200
    np.testing.assert_allclose(whole.share, 1.0, rtol=1e-5)  # curvatures are equal


def test_more_rows_tell_the_hessian_where_one_step_must_do(small_shards, monkeypatch):
    X, t = rows_of()
    for store, most in ((constants.STORE_BYTES, 4 * 50), (4 * 1000 * 50 - 1, 16 * 50)):
        monkeypatch.setattr(constants, "STORE_BYTES", store)
        descent, problem, state = shards_of(X, t, block_size=50)
        steps = BlockSteps(state.iterate, state.memory, None)
        requests = descent._sample_requests(problem, state, steps, 50)
        assert sum(len(places) for ((_, _, places),) in requests) == most


def test_a_common_factor_of_weights_changes_nothing(small_shards):
    X, t = rows_of()
    found = []
    for factor in (1.0, 5.0):
        descent, problem, state = shards_of(X, t, factor * even(1000), block_size=100)
        batch = TrainBatch(X, t[:, None], factor * even(1000))
        found.append([descent.step(problem, state, batch).objective for _ in range(2)])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_stored_rows_are_those_that_are_not_held_out():
    X, t = rows_of(40)
    held = np.array([0, 5, 6, 7, 39])
    rows = TrainingRows(ArraySource(X, t), NoTargets(SquaredError()), held=held)
    store, rest = StoredRows(rows), np.delete(np.arange(40), held)
    assert store.n_rows == 35
    np.testing.assert_array_equal(store.rows(3, 20), X[rest[3:20]])
    np.testing.assert_array_equal(store.some(np.array([34, 0, 9])), X[rest[[34, 0, 9]]])


def test_a_block_holds_no_row_twice(small_shards):
    X, t = rows_of(200)
    X, t = np.tile(X, (5, 1)), np.tile(t, 5)
    descent, problem, state = shards_of(X, t, block_size=150)
    block = descent._draw(problem, state, state.memory)
    assert len(np.unique(block.centres.values, axis=0)) == block.width < 150
    weight = 1.0 * (np.arange(1000) < 60)
    descent, problem, state = shards_of(X, t, weight, block_size=150)
    assert descent._draw(problem, state, state.memory).width <= 60  # nor any without weight
