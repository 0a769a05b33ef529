"""Sources of several files, of compressed ones and of ones that change; chunks made ahead."""

import bz2
import errno
import gzip
import os
import pickle
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from cases import every
from kernelgrad import DSG, KernelClassifier, KernelRegressor
from kernelgrad.data import (
    ArraySource,
    MultiSource,
    open_npy,
    open_source,
    prefetched,
    sample_batches,
)
from kernelgrad.data.damage import decoding
from kernelgrad.exceptions import DataError
from kernelgrad.training_rows import EncodedSource
from test_data import dense, file_of

N, NAMES = 3000, ["a", "b", "c"]
CUTS = [(0, 900), (900, 900), (900, 1000), (1000, N)]  # the second file has no row


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3)).round(3)
    return X, rng.integers(0, 3, N), rng.uniform(size=N).round(3)


def table(X, y, w):
    return pa.table({**dict(zip(NAMES, X.T, strict=True)), "y": y, "w": w})


def text(X, y, w):
    table = zip(X.tolist(), y.tolist(), w.tolist(), strict=True)
    lines = [",".join(map(repr, [*x, t, v])) for x, t, v in table]
    return "\n".join([",".join([*NAMES, "y", "w"]), *lines]).encode() + b"\n"


def zstd(data):
    return pa.compress(data, "zstd", asbytes=True)


PACK = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zstd}


def write(path, X, y, w):
    """Write rows to a file in the format of its suffix."""
    kind, _, packed = path.name.partition(".")[2].partition(".")
    if kind == "csv":
        content = text(X, y, w)
    elif kind == "svm":
        path.touch()
        if len(X):
            dump_svmlight_file(X, y, str(path), zero_based=False)
        content = path.read_bytes()
    elif kind == "parquet":
        return pq.write_table(table(X, y, w), path, row_group_size=400)
    elif kind == "npz":
        return np.savez(path, X=X, y=y, w=w)
    else:
        return np.save(path, X)
    return path.write_bytes(PACK[packed](content) if packed else content)


KINDS = ("csv", "csv.gz", "csv.bz2", "csv.zst", "svm", "svm.gz", "parquet", "npz", "npy")


def options(kind):
    return {} if kind.startswith(("svm", "npy")) else {"target": "y", "weight": "w"}


def write_parts(folder, kind, data):
    """Write the rows to files, so that names in their order give the order of the rows."""
    (folder / "b").mkdir()
    (folder / "_old").mkdir()
    names = [f"b/{i}.{kind}" for i in range(len(CUTS))]
    for name, (low, high) in zip(names, CUTS, strict=True):
        if high > low or kind not in ("npz", "npy"):
            write(folder / name, *(part[low:high] for part in data))
    for hidden in (f"_hidden.{kind}", f".hidden.{kind}", f"_old/1.{kind}"):
        (folder / hidden).write_bytes(b"nothing")
    (folder / "_SUCCESS").touch()
    (folder / "notes.md").touch()
    return [folder / name for name in names if (folder / name).exists()]


@pytest.mark.parametrize("kind", KINDS)
def test_several_files_equal_one(tmp_path, rows, kind):
    X, y, w = rows
    paths = write_parts(tmp_path, kind, rows)
    given = [tmp_path, str(tmp_path), f"{tmp_path}/**/*.{kind}", f"{tmp_path}/b", paths]
    for path in given:
        source = open_source(path, **options(kind))
        assert (source.n_rows, source.n_features, source.seekable) == (N, 3, True)
        whole = source.read(0, N)
        np.testing.assert_array_equal(dense(whole.X), X)
        np.testing.assert_array_equal(whole.rows, np.arange(N))
    assert isinstance(source, MultiSource)
    assert open_source(paths[:2], **options(kind)).digest() != source.digest()
    reverse = open_source(paths[::-1], **options(kind))  # lists stay in order
    np.testing.assert_array_equal(dense(reverse.read(0, N - 1000).X), X[1000:])
    some = np.array([N - 1, 0, 899, 900, 1000, 900, 1999])
    chosen = source.take(some)
    np.testing.assert_array_equal(dense(chosen.X), X[some])
    np.testing.assert_array_equal(chosen.rows, some)
    for prefetch in (False, True):
        parts = list(source.chunks(700, start=50, stop=2950, prefetch=prefetch))
        assert [len(part.rows) for part in parts] == [700] * 4 + [100]
        found = np.concatenate([dense(part.X) for part in parts])
        np.testing.assert_array_equal(found, X[50:2950])
    if source.has_target:
        np.testing.assert_array_equal(np.concatenate(list(source.target_chunks())), y)
        np.testing.assert_array_equal(source.summarize_target().counts, np.bincount(y))
        np.testing.assert_array_equal(chosen.y, y[some])
    if source.has_weight:
        np.testing.assert_array_equal(chosen.sample_weight, w[some])
    batches = list(sample_batches(source, 100, seed=0, max_epochs=1, buffer_rows=800))
    seen = np.concatenate([b.batch.rows for b in batches])
    np.testing.assert_array_equal(np.sort(seen), np.arange(N))
    for b in batches:
        np.testing.assert_array_equal(dense(b.batch.X), X[b.batch.rows])
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(dense(again.read(880, 1020).X), X[880:1020])


def test_archives_in_memory_become_one(tmp_path, rows):
    X, y, _ = rows
    for i, (low, high) in enumerate(((0, 500), (500, N))):
        np.savez_compressed(tmp_path / f"{i}.npz", X=X[low:high], y=y[low:high])
    source = open_source(tmp_path)
    assert isinstance(source, ArraySource)
    assert source.in_memory
    np.testing.assert_array_equal(source.read(0, N).y, y)
    (tmp_path / "sparse").mkdir()
    for i in range(2):
        sp.save_npz(tmp_path / f"sparse/{i}.npz", sp.csr_matrix(X[i::2]))
    np.testing.assert_array_equal(
        open_source(tmp_path / "sparse").read(0, 2).X.toarray(), X[:4:2]
    )


def test_npy(tmp_path, rows):
    X, y, w = rows
    for name, values in (("X", X), ("y", y), ("w", w), ("text", np.array(list("abc") * 1000))):
        np.save(tmp_path / f"{name}.npy", values)
    path = tmp_path / "X.npy"
    source = open_source(path, target=str(tmp_path / "y.npy"), weight=str(tmp_path / "w.npy"))
    assert not source.in_memory
    batch = source.read(5, 9)
    np.testing.assert_array_equal(batch.X, X[5:9])
    np.testing.assert_array_equal(batch.y, y[5:9])
    np.testing.assert_array_equal(batch.sample_weight, w[5:9])
    assert (
        open_npy(path, tmp_path / "text.npy").summarize_target().counts.tolist() == [1000] * 3
    )
    np.save(tmp_path / "short.npy", y[:7])
    np.save(tmp_path / "object.npy", np.array([{}], dtype=object))
    for target, error, message in (
        ("short.npy", ValueError, r"X.npy and .*short.npy: y has shape \(7,\) but X has 3000"),
        ("gone.npy", FileNotFoundError, "no file .*gone.npy; check"),
        ("object.npy", DataError, "object.npy is not a readable .npy array .*astype"),
    ):
        with pytest.raises(error, match=message):
            open_source(path, target=str(tmp_path / target))
    with pytest.raises(DataError, match=r"has 2 .npy arrays, which cannot share target"):
        open_source([path, path], target=str(tmp_path / "y.npy"))


# -- partitions --------------------------------------------------------------------------


@pytest.fixture
def partitioned(tmp_path):
    rng = np.random.default_rng(1)
    n = 600
    frame = pa.table(
        {
            "x": rng.normal(size=n),
            "kind": pa.array(rng.choice(["u", "v", None], n)).dictionary_encode(),
            "place": rng.choice(["Köln / Süd", "a=b", "50 %", ".."], n),
            "year": rng.integers(2019, 2022, n),
        }
    )
    values = frame.column("x").to_numpy() + (frame.column("year").to_numpy() == 2020)
    frame = frame.append_column("y", pa.array(values))
    keys = pa.schema([("place", pa.string()), ("year", pa.int32())])
    ds.write_dataset(
        frame, tmp_path, format="parquet", partitioning=ds.partitioning(keys, flavor="hive")
    )
    return tmp_path


def sorted_rows(frame):
    return frame.sort_by([("x", "ascending")]).to_pylist()


def test_partitions_are_columns(partitioned):
    whole = ds.dataset(partitioned, partitioning="hive").to_table()
    sources = [
        open_source(path, target="y", as_frame=True)
        for path in (
            partitioned,
            f"{partitioned}/place=*/*/*.parquet",
            sorted(partitioned.rglob("*.parquet")),
            ds.dataset(partitioned, partitioning="hive"),
        )
    ]
    for source in sources:
        batch = source.read(0, source.n_rows)
        assert source.feature_names == ["x", "kind", "place", "year"]
        found = batch.X.append_column("y", pa.array(batch.y))
        assert sorted_rows(found) == sorted_rows(whole)
        # chunks hold the same types, whatever file they are from
        assert {part.X.schema for part in source.chunks(37)} == {batch.X.schema}
    model = KernelRegressor(random_state=0).fit(sources[0])
    memory = batch.X.to_pandas(), batch.y
    np.testing.assert_array_equal(
        KernelRegressor(random_state=0).fit(*memory).predict(memory[0]),
        model.predict(sources[0]),
    )
    numbers = open_source(partitioned, target="y", drop=["kind", "place"]).read(0, 600).X
    assert set(numbers[:, 1]) == {2019, 2020, 2021}
    with pytest.raises(DataError, match=r"column 'place' is not numeric, for example '\.\.'"):
        open_source(partitioned, target="y", drop=["kind"])
    with pytest.raises(DataError, match="dataset has a filter"):
        open_source(ds.dataset(partitioned, partitioning="hive").filter(ds.field("x") > 0))


def test_targets_and_weights_in_names_of_folders(tmp_path):
    for label, weight in (("no", 1), ("yes", 3)):
        folder = tmp_path / f"label={label}" / f"w={weight}"
        folder.mkdir(parents=True)
        (folder / "0.csv").write_text("a,b\n1,2\n3,4\n")
        pq.write_table(pa.table({"a": [1.0, 3.0], "w": [9, 9]}), folder / "0.parquet")
    for pattern in ("**/*.csv", "**/*.parquet"):  # the folder counts, as in Arrow
        source = open_source(f"{tmp_path}/{pattern}", target="label", weight="w")
        batch = source.read(0, 4)
        assert batch.y.tolist() == ["no", "no", "yes", "yes"]
        assert batch.sample_weight.tolist() == [1, 1, 3, 3]
        assert batch.X[:, 0].tolist() == [1, 3, 1, 3]
        assert [len(y) for y in source.target_chunks()] == [2, 2]
    gap = tmp_path / "label=__HIVE_DEFAULT_PARTITION__/w=2"
    gap.mkdir(parents=True)
    (gap / "0.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="column 'label' has a missing value in row 0"):
        open_source(f"{tmp_path}/**/*.csv", target="label", weight="w")
    source = open_source(f"{tmp_path}/**/*.csv", as_frame=True)
    assert source.read(0, 5).X.column("label").to_pylist() == [None, "no", "no", "yes", "yes"]


# -- what differs between files ----------------------------------------------------------


def test_types_that_go_together(tmp_path):
    days = pa.array([0, 1], pa.date32())
    first = {"i": pa.array([1, 2], pa.int32()), "f": pa.array([1.5, 2.5], pa.float32())}
    pq.write_table(pa.table({**first, "s": pa.nulls(2), "t": days}), tmp_path / "0.parquet")
    second = {"t": days.cast(pa.timestamp("ns")), "s": pa.array(["p", "q"]).dictionary_encode()}
    order = {**second, "f": [0.1, 0.2], "i": pa.array([2**40, 1], pa.int64())}
    pq.write_table(pa.table(order), tmp_path / "1.parquet")  # by name, not by place
    X = open_source(tmp_path, drop=["s", "t"]).read(0, 4).X
    np.testing.assert_array_equal(X, [[1, 1.5], [2, 2.5], [2**40, 0.1], [1, 0.2]])
    assert open_source(tmp_path, drop=["s", "t", "i"]).read(0, 1).X.dtype == np.float64
    source = open_source(tmp_path, as_frame=True)
    schemas = [source.read(a, a + 2).X.schema for a in (0, 1, 2)]
    assert [str(kind) for kind in schemas[0].types] == [
        "int64",
        "double",
        "string",
        "timestamp[ns]",
    ]
    assert schemas[1] == schemas[0] == schemas[2]
    (tmp_path / "csv").mkdir()
    file_of(tmp_path / "csv", "a,b,t\n1,,1\n2,,2\n", "0.csv")
    file_of(tmp_path / "csv", "t,b,a\n.5,x,2.5\n", "1.csv")
    source = open_source(tmp_path / "csv", target="t", as_frame=True)
    assert source.read(0, 3).X.to_pylist()[::2] == [{"a": 1.0, "b": None}, {"a": 2.5, "b": "x"}]
    assert [y.dtype for y in source.target_chunks()] == [np.float64] * 2


def test_libsvm_files_count_alike(tmp_path):
    file_of(tmp_path, b"1 1:1 2:5\n", "0.svm")
    file_of(tmp_path, b"2 0:1 4:2\n", "1.svm")  # index 0 is one of all files
    assert open_source(tmp_path).read(0, 2).X.toarray().tolist() == [
        [0, 1, 5, 0, 0],
        [1, 0, 0, 0, 2],
    ]
    assert open_source(tmp_path, n_features=7).n_features == 7
    file_of(tmp_path, b"2 5:1\n", "2.svm")
    with pytest.raises(DataError, match=r"2.svm has feature index 5 in row 0.*beyond the 5"):
        open_source(tmp_path, n_features=5)


def npz(path, **arrays):
    np.savez(path, **arrays)


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path)


def csv(path, **columns):
    values = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, v)) for v in values)]))


ONE = np.ones((2, 2))
CSR = {"data": [1.0], "indices": [1], "indptr": [0, 1], "shape": [1, 2]}


@every(
    ("write", "suffix", "first", "second", "opened", "message"),
    [
        (write_, suffix, first, second, opened, message)
        for write_, suffix in ((csv, "csv"), (parquet, "parquet"))
        for first, second, opened, message in (
            ({"a": [1], "b": [1]}, {"a": [1]}, {}, r"1\.\w+ lacks 1 feature column.*'b'"),
            ({"a": [1]}, {"a": [1], "b": [1]}, {}, r"1\.\w+ has columns that .* lacks: 'b'"),
            ({"a": [1]}, {"a": ["x"]}, {}, r"1\.\w+: feature column 'a' is not numeric.*'x'"),
            (
                {"a": [1]}, {"a": ["x"]}, {"as_frame": True},
                r"1\.\w+: column 'a' has type string, but int64 in .*0\.\w+.*write it in one",
            ),
            (
                {"a": [1], "y": [1]}, {"a": [1], "y": ["x"]}, {"target": "y"},
                r"1\.\w+: column 'y' has type string, but int64 in .*0\.\w+",
            ),
            (
                {"a": [1], "y": [1]}, {"a": [1]}, {"target": "y"},
                r"1\.\w+ has no target column 'y'",
            ),
        )
    ] + [
        (npz, "npz", {"X": ONE}, {"X": ONE[:, :1]}, {}, "1.npz has 1 features, but .* has 2"),
        (npz, "npz", {"X": ONE, "y": [1, 2]}, {"X": ONE}, {}, "1.npz and .* differ in has_t"),
        (
            npz, "npz", {"X": ONE}, CSR, {},
            "1.npz and .*0.npz differ in is_sparse: True and False",
        ),
        (
            npz, "npz", {"X": ONE, "y": [1, 2]}, {"X": ONE, "y": ["a", "b"]}, {},
            r"1.npz: the targets have type <U1 and shape \(2,\), but int64",
        ),
        (npz, "npz", {"X": ONE}, {"X": ONE * np.nan}, {}, "1.npz: Feature column 0 is nan"),
    ],
)  # fmt: skip
def test_files_that_differ_are_named(tmp_path, write, suffix, first, second, opened, message):
    write(tmp_path / f"0.{suffix}", **first)
    write(tmp_path / f"1.{suffix}", **second)
    with pytest.raises(DataError, match=message):
        list(open_source(tmp_path, **opened).chunks())
    if "has columns that" in message:
        assert open_source(tmp_path, feature_names=["a"]).n_features == 1


def test_relative_paths(tmp_path, monkeypatch):
    folder = tmp_path / "rows/part=3"
    folder.mkdir(parents=True)
    csv(tmp_path / "rows/0.csv", a=[1], part=[5])
    csv(folder / "1.csv", a=[2])
    monkeypatch.chdir(tmp_path / "rows")
    for path in (".", "**/*.csv", ["0.csv", folder / "1.csv"], "../rows"):
        assert open_source(path).read(0, 2).X.tolist() == [[1, 5], [2, 3]]
    monkeypatch.chdir(folder)
    assert open_source("1.csv").feature_names == ["a"]


def test_files_that_cannot_be_found(tmp_path):
    with pytest.raises(DataError, match=r"Folder .* holds no data file; name a file"):
        open_source(tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"No file matches .*x\*.csv; check the pattern"
    ):
        open_source(tmp_path / "x*.csv")
    with pytest.raises(FileNotFoundError, match="list of files is empty; name at least one"):
        open_source([])
    csv(tmp_path / "0.csv", a=[1])
    with pytest.raises(FileNotFoundError, match=r"no file .*gone.csv"):
        open_source([tmp_path / "0.csv", tmp_path / "gone.csv"])
    (tmp_path / "README.txt").write_text("notes\n")  # text beside data is no data
    assert open_source(tmp_path).n_rows == 1
    parquet(tmp_path / "1.parquet", a=[1])
    with pytest.raises(DataError, match=r"0.csv and .*1.parquet have different formats.*\*.pa"):
        open_source(tmp_path)
    assert open_source(f"{tmp_path}/*.csv").n_rows == 1
    odd = tmp_path / "[0].csv"  # a name that reads like a pattern
    csv(odd, a=[7, 8])
    assert open_source(odd).n_rows == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "0.csv").touch()
    (empty / "1.csv").write_text("a\n")
    with pytest.raises(DataError, match=r"None of 2 files such as .*0.csv has a data row"):
        open_source(empty)


# -- compressed text ---------------------------------------------------------------------


def test_compressed_text_is_decompressed_once(tmp_path, rows, monkeypatch):
    path, folder = tmp_path / "d.csv.gz", tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    write(path, *rows)
    source = open_source(path, target="y")
    opened = []
    monkeypatch.setattr("gzip.open", lambda path: opened.append(path))
    rest = source.chunks(1000, prefetch=True)
    np.testing.assert_array_equal(next(rest).X[:, :3], rows[0][:1000])
    assert len(list(folder.iterdir())) == 1
    del source  # chunks made ahead still read
    assert sum(len(part.rows) for part in rest) == 2000
    del rest
    assert not opened
    assert not list(folder.iterdir())
    monkeypatch.undo()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(
        DataError, match=r"d.csv.gz cannot be decompressed to a temp.*set TMPDIR"
    ):
        open_source(path)


@pytest.mark.parametrize("suffix", ["gz", "bz2", "zst"])
def test_damaged_compressed_text_is_named(tmp_path, rows, suffix):
    packed = PACK[suffix](text(*rows))
    for content in (packed[: len(packed) // 2], b"plain text"):
        path = file_of(tmp_path, content, f"d.csv.{suffix}")
        with pytest.raises(DataError, match=r"d.csv.\w+ cannot be decompressed .*fetch it"):
            open_source(path)


# -- files that change -------------------------------------------------------------------


def appended(path):
    with path.open("ab") as stream:
        stream.write(b"\n")


def replaced(path):  # by as many bytes
    content = path.read_bytes()
    path.rename(path.with_suffix(".old"))
    path.write_bytes(content)


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def touched(path):
    os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns + 1))


@every("change", [appended, replaced, cut, touched, os.remove])
@pytest.mark.parametrize("kind", ["csv", "csv.gz", "svm", "parquet", "npz", "npy"])
def test_a_file_that_changes_is_noticed(tmp_path, rows, kind, change):
    for i in range(2):
        write(tmp_path / f"{i}.{kind}", *rows)
    source = open_source(tmp_path, **options(kind))
    chunks = source.chunks(500)
    for _ in range(7):
        next(chunks)
    source.read(N, N + 10)  # decoded by now
    change(tmp_path / f"1.{kind}")
    named = rf"1.{kind} has changed since it was opened; open it again"
    calls = [
        lambda: source.read(N, N + 10),
        lambda: source.take(np.array([1, N + 1])),
        lambda: next(chunks),
        lambda: list(source.chunks(prefetch=True)),
    ]
    if source.has_target and kind != "npz":
        calls.append(lambda: list(source.target_chunks()))
    for call in calls:
        with pytest.raises(DataError, match=named):
            call()
    source.read(0, N)  # the other file is as it was


def test_a_change_during_a_read_is_noticed(tmp_path, rows, monkeypatch):
    path = tmp_path / "d.parquet"
    write(path, *rows)
    source = open_source(path, target="y")
    original = type(source)._batch

    def changing(self, *given):
        appended(path)
        return original(self, *given)

    monkeypatch.setattr(type(source), "_batch", changing)
    with pytest.raises(DataError, match=r"d\.parquet has changed since it was opened"):
        source.read(0, 10)


def test_damage_within_parquet_is_named(tmp_path, rows):
    path = tmp_path / "d.parquet"
    write(path, *rows)
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"(?s)d.parquet cannot be decoded .*write it again"):
        list(open_source(path, target="y").chunks())


@every(
    ("error", "expected", "message"),
    [
        (IndexError("pop"), DataError, r"d.bin is bad \(pop\); mend it\.$"),
        (OSError(errno.EINVAL, "an offset"), DataError, "d.bin is bad .*an offset"),
        (MemoryError("1 EiB"), DataError, "1 EiB.*damaged, or needs more memory"),
        (OSError(errno.EIO, "of the disk"), OSError, r"^\[Errno 5\] of the disk"),
        (ImportError("zstd"), ImportError, "^zstd"),
        (DataError("known"), DataError, "^known"),
    ],
)
def test_what_decoders_raise_names_the_file(error, expected, message):
    with pytest.raises(expected, match=message), decoding(Path("d.bin"), "is bad", "mend it"):
        raise error


# -- work ahead --------------------------------------------------------------------------


def names_of_threads():
    return [t.name for t in threading.enumerate() if t.name.startswith("kernelgrad-prefetch")]


def test_prefetched_works_one_item_ahead():
    made, closed = [], []

    def items():
        try:
            for i in range(5):
                made.append((i, threading.current_thread().name))
                yield i
        finally:
            closed.append(threading.current_thread().name)

    ahead = prefetched(items())
    assert not made
    assert next(ahead) == 0
    for _ in range(5000):  # at most; without being asked
        time.sleep(0.001 * (len(made) < 2))
    time.sleep(0.02)
    assert len(made) == 2
    assert list(ahead) == [1, 2, 3, 4]
    assert len({name for _, name in made} | set(closed)) == 1
    assert made[0][1] != threading.current_thread().name
    assert not names_of_threads()
    assert list(prefetched([])) == []


def test_prefetched_ends_early_and_passes_errors_on():
    closed = threading.Event()

    def items(last=10**9):
        try:
            yield from range(last)
            raise DataError("row 7 is bad")
        finally:
            closed.set()

    endless = items()
    ahead = prefetched(endless)
    assert [next(ahead), next(ahead)] == [0, 1]
    assert names_of_threads()
    ahead.close()
    assert closed.is_set()
    assert not names_of_threads()
    ahead = prefetched(items(3))
    assert [next(ahead) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DataError, match="row 7 is bad"):
        next(ahead)
    assert not names_of_threads()
    for item in prefetched(items()):  # a consumer that breaks off
        if item == 3:
            break
    del item
    deadline = time.monotonic() + 10
    while names_of_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not names_of_threads()


def test_a_source_can_be_read_while_chunks_are_made(tmp_path, rows):
    for kind in ("parquet", "csv.gz", "svm"):
        for i in range(3):
            write(tmp_path / f"{i}.{kind}", *rows)
        source = open_source(f"{tmp_path}/*.{kind}", **options(kind))
        X = np.tile(rows[0], (3, 1))
        rng = np.random.default_rng(0)
        next(EncodedSource(source, lambda X: X, 3).chunks(100, prefetch=True))
        assert not source.pool._items
        chunks = source.chunks(100, prefetch=True)
        next(chunks)
        assert names_of_threads()
        assert not source.pool._items  # what the thread keeps is its own
        assert all(part.pool is source.pool for part in source._parts)
        for chunk in chunks:
            np.testing.assert_array_equal(dense(chunk.X), X[chunk.rows])
            some = rng.integers(0, len(X), 5)
            np.testing.assert_array_equal(dense(source.take(some).X), X[some])


@pytest.mark.parametrize("n_files", [1, 2])
def test_one_thread_reads_at_a_time(tmp_path, rows, monkeypatch, n_files):
    for i in range(n_files):
        write(tmp_path / f"{i}.svm", *rows)
    source = open_source(tmp_path)
    inside, most = [], []
    piece = type(source)._piece

    def slow(self, unit, low, high):
        inside.append(unit)
        time.sleep(0.005)
        most.append(len(inside))
        found = piece(self, unit, low, high)
        inside.pop()
        return found

    monkeypatch.setattr(type(source), "_piece", slow)
    threads = [threading.Thread(target=source.read, args=(a, a + 9)) for a in range(0, 40, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 4


# -- how much is decoded -----------------------------------------------------------------


def test_random_rows_decode_what_holds_them_once(tmp_path, rows, monkeypatch):
    for i in range(3):
        write(tmp_path / f"{i}.parquet", *rows)  # row groups of 400
        write(tmp_path / f"{i}.csv", *(np.tile(part.T, 6).T for part in rows))  # pages of 8192
    decoded = []
    read = pq.ParquetFile.iter_batches

    def noted(self, **given):
        for batch in read(self, **given):
            decoded.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    source = open_source(f"{tmp_path}/*.parquet", target="y")
    rng = np.random.default_rng(0)
    some = rng.choice(source.n_rows, 500, replace=False)
    source.take(some)
    assert sum(decoded) == 3 * N
    decoded.clear()
    source.take(np.array([2900, 100, 2850, 2999]))  # the group of the first, and the last ones
    assert sum(decoded) <= 1000
    csv_source = open_source(f"{tmp_path}/*.csv", target="y")
    pages = []
    load = type(csv_source._parts[0])._load
    monkeypatch.setattr(
        type(csv_source._parts[0]), "_load", lambda self, u: pages.append(u) or load(self, u)
    )
    csv_source.take(rng.choice(csv_source.n_rows, 500, replace=False))
    assert len(pages) == len(csv_source.block_starts()) == 9


def test_an_epoch_decodes_every_row_once(tmp_path, monkeypatch):
    n = 40_000
    for i in range(3):
        columns = {"a": np.arange(i * n, i * n + n, dtype=np.float32), "b": np.zeros(n, "f4")}
        pq.write_table(pa.table(columns), tmp_path / f"{i}.parquet", row_group_size=5000)
    opened = []
    read = pq.ParquetFile.iter_batches

    def noted(self, row_groups, **given):
        opened.append(row_groups[0])
        return read(self, row_groups=row_groups, **given)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    source = open_source(tmp_path)
    for b in sample_batches(source, 500, seed=3, buffer_rows=16_000, max_epochs=1):
        np.testing.assert_array_equal(b.batch.X[:, 0], b.batch.rows)
    assert len(opened) == 24  # one stream for each row group


def test_what_is_kept_of_many_files_is_bounded(tmp_path, rows):
    for i in range(40):
        write(tmp_path / f"{i}.parquet", *(part[:50] for part in rows))
        write(tmp_path / f"{i}.csv", *(part[:50] for part in rows))
    for suffix in ("parquet", "csv"):
        source = open_source(f"{tmp_path}/*.{suffix}", target="y")
        source.take(np.arange(0, 2000, 50))
        assert not source.pool._items
        for at in range(0, 2000, 50):
            source.read(at, at + 1)
        kept = {id(part.pool): len(part.pool._items) for part in source._parts}
        assert sum(kept.values()) == 16
    source = open_source(f"{tmp_path}/*.parquet", target="y")
    assert sum(len(part.rows) for part in source.chunks(60)) == 2000
    assert not source.pool._items  # files that were read to their end are closed


def test_large_row_groups_are_decoded_in_pieces(tmp_path):
    n = 1_000_000
    X = np.random.default_rng(0).normal(size=(n, 8)).astype(np.float32)
    table, path = pa.table(dict(zip("abcdefgh", X.T, strict=True))), tmp_path / "d.parquet"
    pq.write_table(table, path, use_dictionary=False)
    del table
    assert pq.read_metadata(path).num_row_groups == 1
    source = open_source(path)
    before, most = pa.total_allocated_bytes(), 0
    for chunk in source.chunks(131_072):
        np.testing.assert_array_equal(chunk.X, X[chunk.rows])
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < X.nbytes / 2
    assert chunk.X.dtype == np.float32
    assert chunk.X.flags.c_contiguous


# -- sorted rows -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def classes():
    rng = np.random.default_rng(5)
    X = rng.uniform(-2, 2, size=(48_000, 2)).astype(np.float32)
    y = (np.sin(2 * X[:, 0]) + X[:, 1] > 0).astype(int) + (X[:, 1] > 1.5)
    return X, y


def write_sorted(folder, X, y, case):
    names = {"a": X[:, 0], "b": X[:, 1], "y": y}
    if case == "shuffled":
        pq.write_table(pa.table(names), folder / "d.parquet", row_group_size=4000)
        return folder / "d.parquet"
    order = np.argsort(y, kind="stable")
    whole = pa.table({name: values[order] for name, values in names.items()})
    if case == "folder":  # one file for each class
        for label in range(3):
            pq.write_table(
                whole.filter(pa.compute.field("y") == label), folder / f"{label}.parquet"
            )
        return folder
    group = {"file": 4000, "large groups": 20_000, "one group": 48_000}[case]
    pq.write_table(whole, folder / "d.parquet", row_group_size=group)
    return folder / "d.parquet"


@pytest.mark.parametrize("case", ["file", "large groups", "one group", "folder"])
def test_sorted_files_do_not_hurt(tmp_path, classes, case):
    X, y = classes
    test, train = slice(0, 8000), slice(8000, None)
    solver = DSG(block_size=64, batch_size=1000)
    table, errors = pa.table({"a": X[test, 0], "b": X[test, 1]}), {}
    for name in ("shuffled", case):
        folder = tmp_path / name
        folder.mkdir()
        source = open_source(write_sorted(folder, X[train], y[train], name), target="y")
        model = KernelClassifier(
            solver=solver, max_iter=25, gamma=2.0, alpha=1e-6, memory_limit=1000,
            early_stopping=False, random_state=0,
        )  # fmt: skip
        errors[name] = 1 - model.fit(source).score(table, y[test])
    assert errors["shuffled"] < 0.1
    assert errors[case] < errors["shuffled"] + 0.02
    shares = [
        np.bincount(b.batch.y, minlength=3) / 1000
        for b in sample_batches(source, 1000, seed=0, max_epochs=1, buffer_rows=8000)
    ]
    whole = np.bincount(y[train], minlength=3) / 40_000
    assert np.abs(np.mean(shares, axis=0) - whole).max() < 0.01
    assert np.abs(shares[: len(shares) // 2] - whole).max() < 0.25
