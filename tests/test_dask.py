from __future__ import annotations

import gc
import os
import signal
import time

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from benchmarks.objectives._scale_case import Messages
from sklearn.base import clone
from threadpoolctl import threadpool_info

from kernelgrad import (
    CachedBlockDescent,
    DaskEngine,
    DataError,
    KernelClassifier,
    KernelRegressor,
    RandomFeatures,
    load,
    open_source,
)
from kernelgrad.callbacks import Callback, Checkpoint
from kernelgrad.cluster import shards as _workers
from kernelgrad.cluster.engine import DaskTeam
from kernelgrad.cluster.source import DaskSource
from kernelgrad.compute.threads import get_num_threads
from kernelgrad.estimators import reading as _reading
from kernelgrad.solvers.block_descent import shards, solver

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

N, D = 1200, 4
CHUNKS = (500, 0, 300, 400)


@pytest.fixture(scope="module")
def client():
    # workers multiply as this process does, whatever has become of its environment
    cores = {i["architecture"] for i in threadpool_info() if i["internal_api"] == "openblas"}
    environ = {"OPENBLAS_CORETYPE": cores.pop()} if cores else {}
    before = dask.config.get("distributed.nanny.pre-spawn-environ")
    with (
        dask.config.set(
            {
                "distributed.comm.timeouts.connect": "3s",
                "distributed.nanny.pre-spawn-environ": before | environ,
            }
        ),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    return X, np.sin(2 * X[:, 0]) + X[:, 1]


@pytest.fixture
def here():
    """Let dask's own scheduler run tasks in this process, without a cluster."""
    with dask.config.set(scheduler="sync"):
        yield


def array(values, chunks=CHUNKS):
    return da.from_array(values, chunks=(chunks, *((size,) for size in values.shape[1:])))


def frame(X, y=None):
    return pd.DataFrame(X, columns=list("abcd")).assign(
        **({} if y is None else {"y": y}), kind=np.where(X[:, 0] > 0, "up", "down")
    )


# -- sources ---------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
def test_source_reads_what_arrays_hold(rows):
    X, y = rows
    w = np.arange(N) / N
    source = DaskSource(array(X), array(y, (700, 500)), w)
    assert (source.n_rows, source.n_features) == (N, D)
    assert source.has_target
    assert source.has_weight
    for start, stop in [(0, N), (499, 501), (500, 800), (799, 1100), (3, 3), (N, N)]:
        batch = source.read(start, stop)
        np.testing.assert_array_equal(batch.X, X[start:stop])
        np.testing.assert_array_equal(batch.y, y[start:stop])
        np.testing.assert_array_equal(batch.sample_weight, w[start:stop])
        np.testing.assert_array_equal(batch.rows, np.arange(start, stop))
    some = np.array([1100, 3, 501, 499, 3, 799, 800])
    batch = source.take(some)
    np.testing.assert_array_equal(batch.X, X[some])
    np.testing.assert_array_equal(batch.y, y[some])
    np.testing.assert_array_equal(batch.sample_weight, w[some])
    np.testing.assert_array_equal(np.concatenate(list(source.target_chunks())), y)
    assert source.block_starts().tolist() == [0, 500, 500, 800]


@pytest.mark.usefixtures("here")
def test_source_of_sparse_blocks_and_of_columns_in_two_blocks(rows):
    X = np.where(rows[0] > 0, rows[0], 0)
    blocks = array(X).map_blocks(sp.csr_matrix, meta=sp.csr_matrix((0, 0), dtype=X.dtype))
    source = DaskSource(blocks)
    assert source.is_sparse
    np.testing.assert_array_equal(source.read(450, 900).X.toarray(), X[450:900])
    np.testing.assert_array_equal(source.take(np.array([900, 4])).X.toarray(), X[[900, 4]])
    wide = DaskSource(da.from_array(X, chunks=(400, 3)))
    np.testing.assert_array_equal(wide.read(300, 500).X, X[300:500])


@pytest.mark.usefixtures("here")
def test_source_of_unknown_lengths_leaves_the_collection_alone(rows):
    X, y = rows
    whole = array(X)
    some = whole[whole[:, 0] > 0]
    source = DaskSource(some, array(y)[whole[:, 0] > 0])
    keep = X[:, 0] > 0
    assert source.n_rows == keep.sum()
    np.testing.assert_array_equal(source.read(0, source.n_rows).X, X[keep])
    assert np.isnan(some.chunks[0]).all()


@pytest.mark.usefixtures("here")
def test_source_of_frames(rows):
    table = frame(*rows)
    frames = dd.from_pandas(table, npartitions=3)
    source = DaskSource(frames.drop(columns="y"), frames.y)
    assert source.as_frame
    assert source.feature_names == ["a", "b", "c", "d", "kind"]
    taken = source.take(np.array([700, 2])).X.to_pandas()
    assert taken.kind.tolist() == table.kind[[700, 2]].tolist()
    np.testing.assert_array_equal(source.read(0, N).y, rows[1])


@pytest.mark.usefixtures("here")
def test_classes_are_counted_by_partitions(rows):
    labels = np.where(rows[1] > 0, "yes", "no").astype(object)
    summary = DaskSource(array(rows[0]), array(labels)).summarize_target()
    assert summary.classes.tolist() == ["no", "yes"]
    assert summary.counts.tolist() == [(labels == "no").sum(), (labels == "yes").sum()]
    assert summary.n_rows == N
    assert DaskSource(array(rows[0]), array(rows[1])).summarize_target().classes is None


@pytest.mark.usefixtures("here")
def test_source_refusals(rows):
    X, y = rows
    with pytest.raises(ValueError, match="two dimensions"):
        DaskSource(array(y))
    with pytest.raises(TypeError, match="frame"):
        DaskSource(da.from_array(np.array([["a"], ["b"]], dtype=object), chunks=1))
    with pytest.raises(ValueError, match="sample_weight has 3 rows, but X has 1200"):
        DaskSource(array(X), None, np.ones(3))
    bad = X.copy()
    bad[600, 2] = np.nan
    with pytest.raises(DataError, match="column 2 is nan in row 600"):
        DaskSource(array(bad)).read(400, 700)
    broken = array(X).map_blocks(lambda block: block if len(block) != 300 else 1 // 0)
    with pytest.raises(DataError, match=r"partition 2 \(rows 500 to 799\).*ZeroDivisionError"):
        DaskSource(broken).read(500, 800)


# -- prediction ------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
def test_predictions_by_blocks(rows):
    X, y = rows
    model = KernelRegressor(solver="dsg", max_iter=3, gamma=0.5, alpha=1e-5, random_state=0)
    model.fit(X, y)
    lazy = model.predict(array(X))
    assert isinstance(lazy, da.Array)
    assert lazy.chunks == (tuple(filter(None, CHUNKS)),)
    expected = np.concatenate([model.predict(part) for part in np.split(X, (500, 800))])
    np.testing.assert_array_equal(lazy.compute(), expected)
    assert model.score(array(X), array(y)) == pytest.approx(model.score(X, y), abs=1e-12)


@pytest.mark.usefixtures("here")
def test_frames_are_predicted_by_blocks(rows):
    X, y = rows
    table, labels = frame(X), np.where(y > 0, "yes", "no")
    model = KernelClassifier(solver="dsg", max_iter=3, gamma=0.5, alpha=1e-5, random_state=0)
    model.fit(table, labels)
    frames = dd.from_pandas(table, npartitions=3)
    np.testing.assert_array_equal(model.predict(frames).compute(), model.predict(table))
    proba = model.predict_proba(frames)
    assert proba.shape[1] == 2
    np.testing.assert_allclose(proba.compute(), model.predict_proba(table), atol=1e-6)
    assert model.score(frames, labels) == model.score(table, labels)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frames[["a", "b"]])


@pytest.mark.usefixtures("here")
def test_features_are_made_by_blocks(rows):
    model = RandomFeatures(n_components=32, random_state=0).fit(array(rows[0]))
    lazy = model.transform(array(rows[0]))
    assert lazy.dtype == np.float32
    np.testing.assert_allclose(lazy.compute(), model.transform(rows[0]), atol=1e-6)


# -- teams -----------------------------------------------------------------------------


class Piece:
    """Numbers that can be moved."""

    def __init__(self, values, number=0):
        self.values, self.number = values, number

    def copy(self):
        return Piece(self.values.copy(), self.number)

    def move(self, by, seconds=0.0):
        time.sleep(seconds)
        self.values = self.values * 0.9 + by
        return float(self.values.sum())

    def total(self, *more):
        return float(self.values.sum()) + sum(more)

    def home(self):
        return os.getpid()

    def parts(self, *more):
        return self.values**3, self.number, more

    def threads(self):
        return get_num_threads()

    def fail(self):
        raise OSError("gone")


def pieces(n=6):
    rng = np.random.default_rng(1)
    return [Piece(rng.normal(size=100), i) for i in range(n)]


def team(client, n=6, made=None, **options):
    makers = made or [dask.delayed(piece) for piece in pieces(n)]
    names = [f"piece {i}" for i in range(len(makers))]
    return DaskTeam(DaskEngine(client, **options), makers, frozenset({"move"}), names)


def run(asked, n=4, between=None):
    """Move all pieces n times, as a fit does; return all that they answered."""
    answers = []
    for step in range(n):
        answers.append(asked.ask("move", np.full(100, float(step))))
        if between is not None:
            between(step)
        answers.append(asked.ask("total"))
    return answers


def alone(n=4):
    local, answers = pieces(), []
    for step in range(n):
        answers.append([piece.move(np.full(100, float(step))) for piece in local])
        answers.append([piece.total() for piece in local])
    return answers


def test_team_answers_as_pieces_do(client):
    asked = team(client)
    assert run(asked) == alone()
    assert len(set(asked.ask("home"))) == 2
    each = [(1.0,), None, (2.0, 3.0), (), None, (4.0,)]
    plain = asked.ask("total")
    assert asked.ask("total", each=each) == [
        None if more is None else p + sum(more) for p, more in zip(plain, each, strict=True)
    ]


def test_sums_are_those_of_the_pieces_in_order(client):
    n = 37
    asked = DaskTeam(
        DaskEngine(client),
        [dask.delayed(piece) for piece in pieces(n)],
        frozenset(),
        n * ["piece"],
        summed=frozenset({"parts"}),
    )
    expected = np.sum([piece.parts()[0] for piece in pieces(n)], axis=0)
    answers = asked.ask("parts")
    np.testing.assert_array_equal(np.sum([answer[0] for answer in answers], axis=0), expected)
    assert [answer[1:] for answer in answers] == [(i, ()) for i in range(n)]
    each = [None, *((i,) for i in range(1, n))]
    answers = asked.ask("parts", each=each)
    assert answers[0] is None
    assert [answer[1:] for answer in answers[1:]] == [(i, (i,)) for i in range(1, n)]
    expected = np.sum([piece.parts()[0] for piece in pieces(n)[1:]], axis=0)
    np.testing.assert_array_equal(np.sum([a[0] for a in answers[1:]], axis=0), expected)


def test_arguments_may_change_after_a_call(client):
    asked, by = team(client), np.zeros(100)
    asked.ask("move", by)
    before = asked.ask("total")
    by += 1.0
    asked._begin()  # as after a loss
    assert asked.ask("total") == before


def test_changes_leave_what_was_before(client):
    asked = team(client)
    before = asked.ask("total")
    held = list(asked._held)
    asked.ask("move", 1.0)
    asked._held = held
    assert asked.ask("total") == before


def kill(client, n=1):
    """Kill workers, which their nannies then start again; return their numbers."""
    pids = list(client.run(os.getpid).values())[:n]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids


def test_team_survives_a_killed_worker(client):
    asked, killed = team(client), []

    def between(step):
        if step == 2:
            killed.extend(kill(client))

    assert set(killed) < set(asked.ask("home"))
    assert run(asked, between=between) == alone()
    assert not set(killed) & set(asked.ask("home"))


def test_team_survives_a_lost_connection(client):
    asked = team(client)

    def cut(step):
        if step == 2:
            client.sync(client.scheduler_comm.comm.close)

    assert run(asked, between=cut) == alone()


def test_team_waits_for_a_slow_worker(client):
    asked, local = team(client, 2), pieces(2)
    answers = asked.ask("move", 1.0, each=[(0.3,), ()])
    assert answers == [piece.move(1.0) for piece in local]


def test_errors_name_the_piece(client):
    asked = team(client, retries=0)
    with pytest.raises(DataError, match=r"rows of piece 2 .*OSError\('gone'\)"):
        asked.ask("fail", each=[None, None, (), (), None, None])


def test_piece_that_cannot_be_read_again_is_named(client, tmp_path):
    path = tmp_path / "values.npy"
    np.save(path, np.ones(100))
    read = [dask.delayed(Piece)(dask.delayed(np.load)(path)) for _ in range(2)]
    asked = team(client, made=[dask.delayed(Piece)(np.zeros(100)), *read], retries=0)
    assert asked.ask("move", 1.0) == [100.0, 190.0, 190.0]
    path.unlink()
    asked._begin()  # as after a loss
    with pytest.raises(DataError, match=r"rows of piece 1 .*FileNotFoundError"):
        asked.ask("total")


def test_lost_data_ends_with_an_error(client):
    data = client.scatter([np.ones(100), np.zeros(100)])
    asked = team(client, made=[dask.delayed(Piece)(values) for values in data])
    asked.ask("move", 1.0)
    client.cancel(data)
    asked._begin()
    with pytest.raises(DataError, match=r"piece 0.*lost"):
        asked.ask("total")


def test_engine_without_a_client():
    with pytest.raises(ValueError, match=r"Client\("):
        DaskEngine().resolved()
    with pytest.raises(ValueError, match="retries"):
        DaskEngine(retries=-1)


# -- fits ------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch):
    for module in (_reading, shards, solver):
        monkeypatch.setattr(module, "SHARD", 400)


def held_keys(dask_worker):
    return list(dask_worker.data)


def all_free(client):
    """Whether workers hold nothing any more, once they have heard of it."""
    for _ in range(200):
        gc.collect()  # futures of earlier tests may be in cycles
        if not any(client.run(held_keys).values()):
            return True
        time.sleep(0.05)
    return False


def few_blocks(cls=KernelRegressor, **more):
    """Return a model of three small blocks, which leaves its rows where they are."""
    blocks = CachedBlockDescent(block_size=48, inner_steps=2)
    given = {"solver": blocks, "max_iter": 3, "gamma": 0.5, "alpha": 1e-5, "random_state": 0}
    return cls(**given, memory_limit=1e4, **more)


def same(model, other, rows):
    assert model.history_["objective"] == other.history_["objective"]
    np.testing.assert_array_equal(model.predict(rows), other.predict(rows))


@pytest.fixture(scope="module")
def local(rows):
    """Return the model that this process alone makes of the rows, read by pieces."""
    X, y = rows
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="sync"):
        for module in (_reading, shards, solver):
            patch.setattr(module, "SHARD", 400)
        return few_blocks().fit(array(X), array(y))


@pytest.mark.parametrize("chunks", [CHUNKS, (N,)])
def test_workers_make_the_same_model(client, rows, local, chunks):
    X, y = rows
    model = few_blocks(engine=DaskEngine(client)).fit(array(X, chunks), array(y))
    assert model.n_iter_ == 3
    same(model, local, X)
    assert all_free(client)
    assert model.score(array(X), array(y)) == pytest.approx(local.score(X, y), abs=1e-12)


@pytest.mark.parametrize("n_workers", [1, 4])
def test_any_number_of_workers_makes_the_same_model(rows, local, n_workers):
    X, y = rows
    with (
        distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        distributed.Client(cluster),  # which is current
    ):
        same(few_blocks().fit(array(X), array(y)), local, X)


def test_bytes_do_not_grow_with_rows(client, rows, monkeypatch):
    for module in (_reading, shards, solver):
        monkeypatch.setattr(module, "SHARD", 100)  # 12 shards, 8 bundles
    X, t = rows
    y = np.digitize(t, np.quantile(t, np.arange(0.1, 1, 0.1)))
    C, M, blocks, sampled = 10, 100, 4, 400
    descent = CachedBlockDescent(block_size=M, inner_steps=1, hessian_rows=sampled)
    with Messages() as watch:
        KernelClassifier(
            solver=descent, max_iter=blocks, gamma=0.5, alpha=1e-5, random_state=0,
            memory_limit=1e4, probability=False, engine=DaskEngine(client), callbacks=[watch],
        ).fit(array(X), array(y))  # fmt: skip
    row = 4 * D + 8  # and its square
    most = {  # to each worker, and to and from shards
        "draw": (200, 8 * 16 * M),
        "enter": (M * row + 3000, 8 * C * M),
        # responses, curvature, weight, share, place; products; values at centres
        "products": (0, sampled * (row + 4 * C + 20) + 8 * C * M + 4 * C * M),
        "respond": (4 * C * M, 8 * C * M + 12 * 36 * C),  # values, and sums of each shard
        "take": (1000, 0),
        "snapshot": (0, blocks * M * (16 * C + 12)),  # coefficients, not responses
    }
    for method, bounds in most.items():
        calls, _, once, *parts, _ = watch.sent[method]
        for size, bound in zip((once, sum(parts)), bounds, strict=True):
            assert 1e6 * size / calls <= 1.1 * bound + 250 * 12, method
    assert watch.per_block()[0] < 14


class At(Callback):
    """Do something once, after the second block."""

    def __init__(self, do):
        self.do = do

    def on_iteration(self, event):
        if event.iteration == 2:
            self.do()
        return False


def test_fit_survives_a_killed_worker(client, rows, local):
    X, y = rows
    killed = []
    callback = At(lambda: killed.extend(kill(client)))
    model = few_blocks(engine=DaskEngine(client), callbacks=callback).fit(array(X), array(y))
    assert len(killed) == 1
    same(model, local, X)


def test_fit_goes_on_from_a_checkpoint(client, rows, local, tmp_path):
    X, y = rows

    class StopError(Exception):
        pass

    def stop():
        raise StopError

    engine = DaskEngine(client)
    kept = Checkpoint(tmp_path / "kept", every=1, resume=True)
    with pytest.raises(StopError):
        few_blocks(engine=engine, callbacks=[kept, At(stop)]).fit(array(X), array(y))
    model = few_blocks(engine=engine, callbacks=kept).fit(array(X, (N,)), array(y))
    assert model.history_["iteration"] == [1, 2, 3]
    same(model, local, X)


@pytest.mark.slow
def test_partition_that_is_gone_ends_the_fit(client, rows, tmp_path):
    X, y = rows
    paths = [tmp_path / f"{i}.npy" for i in range(2)]
    for path, part in zip(paths, np.split(X, 2), strict=True):
        np.save(path, part)
    parts = [
        da.from_delayed(dask.delayed(np.load)(path), (N // 2, D), X.dtype) for path in paths
    ]

    def lose():
        paths[1].unlink()
        kill(client, 2)

    model = few_blocks(engine=DaskEngine(client, retries=0), callbacks=At(lose))
    with pytest.raises(DataError, match=r"partitions? .*FileNotFoundError"):
        model.fit(da.concatenate(parts), array(y))
    assert not hasattr(model, "expansion_")


@pytest.mark.parametrize("share", [1.0, 0.0])
def test_workers_read_files_themselves(client, rows, tmp_path, monkeypatch, share):
    monkeypatch.setattr(_workers, "_ROWS_SHARE", share)  # 0: rows are read in every pass
    frame(*rows).to_parquet(tmp_path / "rows.parquet", row_group_size=350)
    source = open_source(tmp_path / "rows.parquet", target="y", drop=["kind"])
    model = few_blocks(engine=DaskEngine(client)).fit(source)
    same(model, few_blocks().fit(source), frame(rows[0]).drop(columns="kind"))


def test_frames_with_text_and_classes(client, rows):
    X, y = rows
    table, labels = frame(X), np.where(y > 0.5, "much", np.where(y > -0.5, "some", "none"))
    frames = dd.from_pandas(table.assign(y=labels), npartitions=3)
    given = frames.drop(columns="y"), frames.y
    model = few_blocks(KernelClassifier, engine=DaskEngine(client)).fit(*given)
    with dask.config.set(scheduler="sync"):
        alone = few_blocks(KernelClassifier).fit(*given)
    assert model.classes_.tolist() == ["much", "none", "some"]
    same(model, alone, table)
    np.testing.assert_array_equal(model.predict_proba(table), alone.predict_proba(table))
    assert model.score(table, labels) > 0.8


def test_few_rows_are_fitted_here(rows, here):
    X, y = rows[0][:300], rows[1][:300]
    model = KernelRegressor(random_state=0).fit(array(X, (100, 200)), array(y, (300,)))
    assert model.history_["solver"] == "direct"
    np.testing.assert_array_equal(
        model.predict(X), KernelRegressor(random_state=0).fit(X, y).predict(X)
    )


def test_engine_is_checked_cloned_and_not_saved(rows, tmp_path):
    with pytest.raises(TypeError, match="engine must be a DaskEngine or None, got 'dask'"):
        KernelRegressor(engine="dask").fit(*rows)
    engine = DaskEngine()
    model = few_blocks(engine=engine)
    assert clone(model).engine is engine
    model.fit(*rows).save(tmp_path / "model")  # arrays are fitted here
    assert load(tmp_path / "model").engine is None


def test_rows_of_workers_use_one_thread_each(client):
    asked = team(client)
    assert asked.ask("threads") == 6 * [1]


@pytest.mark.slow
def test_searches_run_on_workers(client, rows):
    import joblib
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(
        KernelRegressor(solver="dsg", max_iter=2, alpha=1e-5, random_state=0),
        {"gamma": [0.1, 1.0]},
        cv=2,
    )
    with client.as_current(), joblib.parallel_config(backend="dask"):
        there = search.fit(*rows).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(there, search.fit(*rows).cv_results_["mean_test_score"])
