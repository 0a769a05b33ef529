"""Collections of dask as rows, and fits on the workers of a cluster."""

import gc
import logging
import os
import signal
import time

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from threadpoolctl import threadpool_info

import kernelgrad as kg
from cases import raises
from kernelgrad import DaskEngine, DataError, KernelClassifier, KernelRegressor
from kernelgrad.callbacks import Checkpoint
from kernelgrad.cluster import DaskSource, DaskTeam
from kernelgrad.cluster import source as held
from kernelgrad.families import reading
from kernelgrad.solvers.block_descent import shards, solver
from steps import At

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

slow = pytest.mark.slow
N, D = 1200, 4
CHUNKS = (500, 0, 300, 400)
X = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
Y = np.sin(2 * X[:, 0]) + X[:, 1]
LOCAL = {"dashboard_address": "127.0.0.1:0", "threads_per_worker": 1}


@pytest.fixture(scope="module")
def processes():
    # workers multiply as this process does, whatever has become of its environment
    cores = {i["architecture"] for i in threadpool_info() if i["internal_api"] == "openblas"}
    environ = {"OPENBLAS_CORETYPE": cores.pop()} if cores else {}
    before = dask.config.get("distributed.nanny.pre-spawn-environ")
    options = {
        "distributed.comm.timeouts.connect": "3s",
        "distributed.nanny.pre-spawn-environ": before | environ,
    }
    with (
        dask.config.set(options),
        distributed.LocalCluster(
            n_workers=2, processes=True, host="127.0.0.1", silence_logs=50, **LOCAL
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        logging.disable()  # records that pytest keeps would keep futures of lost workers
        yield client
        logging.disable(logging.NOTSET)


@pytest.fixture(scope="module", params=["threads", pytest.param("processes", marks=slow)])
def client(request):
    if request.param == "processes":
        yield request.getfixturevalue("processes")
        return
    with (
        distributed.LocalCluster(
            n_workers=2, processes=False, silence_logs=50, **LOCAL
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def here():
    """Let dask's own scheduler run tasks in this process, without a cluster."""
    with dask.config.set(scheduler="sync"):
        yield


def array(values, chunks=CHUNKS):
    return da.from_array(values, chunks=(chunks, *((size,) for size in values.shape[1:])))


def frame(rows=X):
    kinds = np.where(rows[:, 0] > 0, "up", "down")
    return pd.DataFrame(rows, columns=list("abcd")).assign(kind=kinds)


# -- sources and predictions, without a cluster ------------------------------------------


@pytest.mark.usefixtures("here")
def test_a_source_reads_what_arrays_hold():
    w, numbers = np.arange(N) / N, np.array([1100, 3, 501, 499, 3, 799, 800])
    source = DaskSource(array(X), array(Y, (700, 500)), w)
    assert (source.n_rows, source.n_features) == (N, D)
    for batch, rows in [
        *(
            (source.read(a, b), np.arange(a, b))
            for a, b in [(0, N), (499, 801), (3, 3), (N, N)]
        ),
        (source.take(numbers), numbers),
    ]:
        np.testing.assert_array_equal(batch.X, X[rows])
        np.testing.assert_array_equal(batch.y, Y[rows])
        np.testing.assert_array_equal(batch.sample_weight, w[rows])
    np.testing.assert_array_equal(np.concatenate(list(source.target_chunks())), Y)
    assert source.block_starts().tolist() == [0, 500, 500, 800]
    labels = np.where(Y > 0, "yes", "no").astype(object)
    summary = DaskSource(array(X), array(labels)).summarize_target()
    assert summary.classes.tolist() == ["no", "yes"]
    assert summary.counts.tolist() == [(labels == "no").sum(), (labels == "yes").sum()]


@pytest.mark.usefixtures("here")
def test_a_source_of_csr_blocks_of_column_blocks_of_unknown_lengths_and_of_frames():
    zeros = np.where(X > 0, X, 0)
    blocks = array(zeros).map_blocks(sp.csr_matrix, meta=sp.csr_matrix((0, 0), dtype=X.dtype))
    source = DaskSource(blocks)
    assert source.is_sparse
    np.testing.assert_array_equal(source.read(450, 900).X.toarray(), zeros[450:900])
    np.testing.assert_array_equal(source.take(np.array([900, 4])).X.toarray(), zeros[[900, 4]])
    wide = DaskSource(da.from_array(X, chunks=(400, 3)))
    np.testing.assert_array_equal(wide.read(300, 500).X, X[300:500])
    positive = array(X)[array(X)[:, 0] > 0]
    source = DaskSource(positive, array(Y)[array(X)[:, 0] > 0])
    np.testing.assert_array_equal(source.read(0, source.n_rows).X, X[X[:, 0] > 0])
    assert np.isnan(positive.chunks[0]).all()  # the collection is left alone
    table = frame()
    source = DaskSource(dd.from_pandas(table, npartitions=3), Y)
    assert source.as_frame
    assert source.feature_names == ["a", "b", "c", "d", "kind"]
    taken = source.take(np.array([700, 2])).X.to_pandas()
    assert taken.kind.tolist() == table.kind[[700, 2]].tolist()


@pytest.mark.usefixtures("here")
def test_source_refusals():
    raises(ValueError, "two dimensions", DaskSource, array(Y))
    with pytest.raises(TypeError, match="frame"):
        DaskSource(da.from_array(np.array([["a"], ["b"]], dtype=object), chunks=1))
    with pytest.raises(ValueError, match="sample_weight has 3 rows, but X has 1200"):
        DaskSource(array(X), None, np.ones(3))
    bad = X.copy()
    bad[600, 2] = np.nan
    raises(DataError, "column 2 is nan in row 600", DaskSource(array(bad)).read, 400, 700)
    broken = array(X).map_blocks(lambda block: block if len(block) != 300 else 1 // 0)
    with pytest.raises(DataError, match=r"partition 2 \(rows 500 to 799\).*ZeroDivisionError"):
        DaskSource(broken).read(500, 800)


@pytest.mark.usefixtures("here")
def test_predictions_and_features_are_lazy_and_by_blocks():
    options = {"solver": "dsg", "max_iter": 3, "gamma": 0.5, "alpha": 1e-5, "random_state": 0}
    model = KernelRegressor(**options).fit(X, Y)
    lazy = model.predict(array(X))
    assert isinstance(lazy, da.Array)
    assert lazy.chunks == (tuple(filter(None, CHUNKS)),)
    np.testing.assert_allclose(lazy.compute(), model.predict(X), atol=1e-5)
    assert model.score(array(X), array(Y)) == pytest.approx(model.score(X, Y), abs=1e-6)
    table, labels = frame(), np.where(Y > 0, "yes", "no")
    model = KernelClassifier(**options).fit(table, labels)
    frames = dd.from_pandas(table, npartitions=3)
    proba = model.predict_proba(frames)
    assert proba.shape[1] == 2
    np.testing.assert_allclose(proba.compute(), model.predict_proba(table), atol=1e-5)
    raises(ValueError, "feature names", model.predict, frames[["a", "b"]])
    features = kg.RandomFeatures(n_components=32, random_state=0).fit(array(X))
    lazy = features.transform(array(X))
    assert lazy.dtype == np.float32
    np.testing.assert_allclose(lazy.compute(), features.transform(X), atol=1e-6)


@pytest.mark.usefixtures("here")
def test_few_rows_are_fitted_here():
    model = KernelRegressor(gamma=0.5, alpha=1e-3).fit(array(X[:300], (100, 200)), Y[:300])
    assert model.history_["solver"] == "direct"
    expected = KernelRegressor(gamma=0.5, alpha=1e-3).fit(X[:300], Y[:300]).predict(X)
    np.testing.assert_array_equal(model.predict(X), expected)


def test_an_engine_is_checked_cloned_and_not_saved(tmp_path):
    raises(ValueError, r"Client\(", DaskEngine().resolved)
    raises(ValueError, "retries", DaskEngine, retries=-1)
    with pytest.raises(TypeError, match="engine must be a DaskEngine or None, got 'dask'"):
        KernelRegressor(engine="dask").fit(X, Y)
    model = few_blocks(engine=DaskEngine())
    assert clone(model).engine is model.engine
    model.fit(X, Y).save(tmp_path / "model")  # arrays are fitted here
    assert kg.load(tmp_path / "model").engine is None


# -- teams -------------------------------------------------------------------------------


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
        return distributed.get_worker().address, kg.get_num_threads()

    def parts(self, *more):
        return self.values**3, self.number, more

    def fail(self):
        raise OSError("gone")


def pieces(n=6):
    rng = np.random.default_rng(1)
    return [Piece(rng.normal(size=100), i) for i in range(n)]


def team(client, n=6, delayed=None, summed=frozenset(), **options):
    makers = delayed or [dask.delayed(piece) for piece in pieces(n)]
    names = [f"piece {i}" for i in range(len(makers))]
    engine = DaskEngine(client, **options)
    return DaskTeam(engine, makers, frozenset({"move"}), names, summed=summed)


def run(ask, n=4):
    """Move all pieces n times, as a fit does; return all answers."""
    steps = (np.full(100, float(step)) for step in range(n))
    return [answer for by in steps for answer in (ask("move", by), ask("total"))]


def alone(n=4):
    local = pieces()
    return run(lambda method, *args: [getattr(piece, method)(*args) for piece in local], n)


def test_a_team_answers_as_pieces_do(client):
    asked = team(client)
    assert run(asked.ask) == alone()
    homes, threads = zip(*asked.ask("home"), strict=True)
    assert (len(set(homes)), set(threads)) == (2, {1})
    plain, each = asked.ask("total"), [(1.0,), None, (2.0, 3.0), (), None, (4.0,)]
    assert asked.ask("total", each=each) == [
        None if more is None else p + sum(more) for p, more in zip(plain, each, strict=True)
    ]
    by = np.zeros(100)
    asked.ask("move", by)
    before = asked.ask("total")
    by += 1.0  # arguments may change after a call
    assert asked.ask("total") == before


@pytest.mark.parametrize("skipped", [0, 1])
def test_sums_are_those_of_the_pieces_in_order(client, skipped):
    n = 37
    each = [None] * skipped + [(i,) for i in range(skipped, n)]
    answers = team(client, n, summed=frozenset({"parts"})).ask("parts", each=each)
    assert answers[:skipped] == [None] * skipped
    assert [a[1:] for a in answers[skipped:]] == [(i, (i,)) for i in range(skipped, n)]
    expected = np.sum([piece.parts()[0] for piece in pieces(n)[skipped:]], axis=0)
    np.testing.assert_array_equal(np.sum([a[0] for a in answers[skipped:]], axis=0), expected)


def kill(client, n=1):
    """Kill workers, which their nannies then start again; return their numbers."""
    pids = list(client.run(os.getpid).values())[:n]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids


def test_errors_name_the_piece(client, tmp_path):
    with pytest.raises(DataError, match=r"rows of piece 2 .*OSError\('gone'\)"):
        team(client, retries=0).ask("fail", each=[None, None, (), (), None, None])
    path = tmp_path / "values.npy"
    np.save(path, np.ones(100))
    read = [dask.delayed(Piece)(dask.delayed(np.load)(path)) for _ in range(2)]
    path.unlink()
    asked = team(client, delayed=[dask.delayed(Piece)(np.zeros(100)), *read], retries=0)
    raises(DataError, r"rows of piece 1 .*FileNotFoundError", asked.ask, "total")
    data = client.scatter([np.ones(100), np.zeros(100)])
    makers = [dask.delayed(Piece)(values) for values in data]
    client.cancel(data)
    raises(DataError, r"lost piece 0", team(client, delayed=makers).ask, "total")


# -- fits --------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch, tiny_limits):
    for module in (reading, shards, solver):
        monkeypatch.setattr(module, "SHARD", 400)


def few_blocks(cls=KernelRegressor, **more):
    """Return a model of three small blocks, which leaves its rows where they are."""
    blocks = kg.BlockDescent(block_size=48)
    options = {"solver": blocks, "max_iter": 3, "gamma": 0.5, "alpha": 1e-5, "random_state": 0}
    return cls(**options, memory_limit="10kB", **more)


def same(model, other, rows=X):
    assert model.history_["objective"] == other.history_["objective"]
    np.testing.assert_array_equal(model.predict(rows), other.predict(rows))


@pytest.fixture
def local(here):
    """Return the model that this process alone makes of the rows, read by pieces."""
    return few_blocks().fit(array(X), array(Y))


def all_free(client):
    """Return whether workers hold nothing any more, once they have heard of it."""
    for _ in range(200):
        gc.collect()  # futures of earlier tests may be in cycles
        if not any(client.run(lambda dask_worker: list(dask_worker.data)).values()):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("chunks", [CHUNKS, pytest.param((N,), marks=slow)])
def test_workers_make_the_same_model(client, local, chunks):
    model = few_blocks(engine=DaskEngine(client)).fit(array(X, chunks), array(Y))
    assert model.n_iter_ == 3
    same(model, local)
    assert all_free(client)


@slow
def test_a_fit_survives_a_kill_and_goes_on_from_a_checkpoint(processes, local, tmp_path):
    engine, killed = DaskEngine(processes), []
    callback = At(2, lambda: killed.extend(kill(processes)))
    same(few_blocks(engine=engine, callbacks=callback).fit(array(X), array(Y)), local)
    assert len(killed) == 1
    keeper = Checkpoint(tmp_path / "kept", every=1, resume=True)
    stop = few_blocks(engine=engine, callbacks=[keeper, At(2, lambda: 1 / 0)])
    with pytest.raises(ZeroDivisionError):
        stop.fit(array(X), array(Y))
    model = few_blocks(engine=engine, callbacks=keeper).fit(array(X, (N,)), array(Y))
    assert model.history_["iteration"] == [1, 2, 3]
    same(model, local)


@slow
def test_a_partition_that_is_gone_ends_the_fit(processes, tmp_path):
    paths = [tmp_path / f"{i}.npy" for i in range(2)]
    for path, part in zip(paths, np.split(X, 2), strict=True):
        np.save(path, part)
    parts = [
        da.from_delayed(dask.delayed(np.load)(path), (N // 2, D), X.dtype) for path in paths
    ]

    def lose():
        paths[1].unlink()
        kill(processes, 2)

    model = few_blocks(engine=DaskEngine(processes, retries=0), callbacks=At(2, lose))
    with pytest.raises(DataError, match=r"partitions? .*FileNotFoundError"):
        model.fit(da.concatenate(parts), array(Y))
    assert not hasattr(model, "expansion_")


@pytest.mark.parametrize("share", [1.0, pytest.param(0.0, marks=slow)])
def test_workers_read_files_themselves(client, tmp_path, monkeypatch, share):
    monkeypatch.setattr(held, "_ROWS_SHARE", share)  # 0: rows are read in every pass
    frame().assign(y=Y).to_parquet(tmp_path / "rows.parquet", row_group_size=350)
    source = kg.open_source(tmp_path / "rows.parquet", target="y", drop=["kind"])
    model = few_blocks(engine=DaskEngine(client)).fit(source)
    same(model, few_blocks().fit(source), frame().drop(columns="kind"))


def test_frames_with_text_and_classes(client):
    labels, table = np.where(Y[:300] > 0, "much", "none"), frame()[:300]
    frames = dd.from_pandas(table.assign(y=labels), npartitions=3)
    rows = frames.drop(columns="y"), frames.y
    model = few_blocks(KernelClassifier, engine=DaskEngine(client)).fit(*rows)
    with dask.config.set(scheduler="sync"):
        local = few_blocks(KernelClassifier).fit(*rows)
    assert model.classes_.tolist() == ["much", "none"]
    same(model, local, table)
    np.testing.assert_array_equal(model.predict_proba(table), local.predict_proba(table))
