"""Sources of several, of compressed and of changing files; chunks that are read ahead."""

import bz2
import gc
import gzip
import os
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import dump_svmlight_file

from cases import every, raises
from kernelgrad import data as kd
from kernelgrad.exceptions import DataError
from kernelgrad.files.disk import ScratchFolder
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
    rows = zip(X.tolist(), y.tolist(), w.tolist(), strict=True)
    lines = ["a,b,c,y,w", *(",".join(map(repr, [*x, t, v])) for x, t, v in rows)]
    return "\n".join(lines).encode() + b"\n"


def zstd(data):
    return pa.compress(data, "zstd", asbytes=True)


PACK = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zstd}


def write(path, X, y, w):
    """Write rows to a file in the format of its suffix."""
    kind, _, packed = path.name.partition(".")[2].partition(".")
    if kind in ("csv", "tsv"):
        content = text(X, y, w)
        content = content.replace(b",", b"\t") if kind == "tsv" else content
    elif kind == "svm":
        path.touch()
        if len(X):
            dump_svmlight_file(X, y, str(path), zero_based=False)
        content = path.read_bytes()
    else:
        return pq.write_table(table(X, y, w), path, row_group_size=400)
    return path.write_bytes(PACK[packed](content) if packed else content)


KINDS = ("csv", "tsv", "csv.gz", "csv.bz2", "csv.zst", "svm", "svm.gz", "parquet")


def options(kind):
    return {} if kind.startswith("svm") else {"target": "y", "weight": "w"}


def write_parts(folder, kind, data):
    """Write the rows to files whose sorted names give the order of the rows."""
    (folder / "b").mkdir()
    (folder / "_old").mkdir()
    names = [f"b/{i}.{kind}" for i in range(len(CUTS))]
    for name, (low, high) in zip(names, CUTS, strict=True):
        write(folder / name, *(part[low:high] for part in data))
    for hidden in (f"_hidden.{kind}", f".hidden.{kind}", f"_old/1.{kind}"):
        (folder / hidden).write_bytes(b"nothing")
    (folder / "_SUCCESS").touch()
    (folder / "notes.md").touch()
    return [folder / name for name in names]


@pytest.mark.parametrize("kind", KINDS)
def test_several_files_equal_one(tmp_path, rows, kind):
    X, y, w = rows
    paths = write_parts(tmp_path, kind, rows)
    for path in (tmp_path, str(tmp_path), f"{tmp_path}/**/*.{kind}", f"{tmp_path}/b", paths):
        source = kd.open_source(path, **options(kind))
        whole = source.read(0, N)
        np.testing.assert_array_equal(dense(whole.X), X)
        np.testing.assert_array_equal(whole.rows, np.arange(N))
    assert isinstance(source, kd.MultiSource)
    assert source.read(N, N).X.shape == source.take(np.arange(0)).X.shape == (0, 3)
    assert kd.open_source(paths[:2], **options(kind)).digest() != source.digest()
    reverse = kd.open_source(paths[::-1], **options(kind))  # lists stay in order
    np.testing.assert_array_equal(dense(reverse.read(0, N - 1000).X), X[1000:])
    chosen_rows = np.array([N - 1, 0, 899, 900, 1000, 900, 1999])
    chosen = source.take(chosen_rows)
    np.testing.assert_array_equal(dense(chosen.X), X[chosen_rows])
    np.testing.assert_array_equal(chosen.rows, chosen_rows)
    for prefetch in (False, True):
        parts = list(source.chunks(700, prefetch=prefetch))
        assert [len(part.rows) for part in parts] == [700] * 4 + [200]
        np.testing.assert_array_equal(np.vstack([dense(part.X) for part in parts]), X)
    if source.has_target:
        np.testing.assert_array_equal(np.concatenate(list(source.target_chunks())), y)
        np.testing.assert_array_equal(source.summarize_target().counts, np.bincount(y))
        np.testing.assert_array_equal(chosen.y, y[chosen_rows])
    if source.has_weight:
        np.testing.assert_array_equal(chosen.sample_weight, w[chosen_rows])
    batches = [b.batch for b in islice(kd.sample_batches(source, 100, seed=0), N // 100)]
    np.testing.assert_array_equal(np.sort([b.rows for b in batches], axis=None), np.arange(N))
    for b in batches:
        np.testing.assert_array_equal(dense(b.X), X[b.rows])
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(dense(again.read(880, 1020).X), X[880:1020])


def test_npy(tmp_path, rows):
    X, y, w = rows
    for name, values in (("X", X), ("y", y), ("w", w), ("text", np.array(list("abc") * 1000))):
        np.save(tmp_path / f"{name}.npy", values)
    path = tmp_path / "X.npy"
    source = kd.open_source(
        path, target=str(tmp_path / "y.npy"), weight=str(tmp_path / "w.npy")
    )
    assert not source.in_memory
    for part, values in zip(source.read(5, 9), rows, strict=False):
        np.testing.assert_array_equal(part, values[5:9])
    counts = kd.open_npy(path, tmp_path / "text.npy").summarize_target().counts
    assert counts.tolist() == [1000] * 3
    np.save(tmp_path / "short.npy", y[:7])
    np.save(tmp_path / "object.npy", np.array([{}], dtype=object))
    for target, error, message in (
        ("short.npy", ValueError, r"X.npy and .*short.npy: y has shape \(7,\) but X has 3000"),
        ("gone.npy", FileNotFoundError, "no file .*gone.npy; check"),
        ("object.npy", DataError, "object.npy is not a readable .npy array .*astype"),
    ):
        raises(error, message, kd.open_source, path, target=str(tmp_path / target))
    raises(DataError, r"has 2 NumPy files; join their arrays", kd.open_source, [path, path])


def test_types_that_go_together(tmp_path):
    days = pa.array([0, 1], pa.date32())
    first = {"i": pa.array([1, 2], pa.int32()), "f": pa.array([1.5, 2.5], pa.float32())}
    pq.write_table(pa.table({**first, "s": pa.nulls(2), "t": days}), tmp_path / "0.parquet")
    second = {"t": days.cast(pa.timestamp("ns")), "s": pa.array(["p", "q"]).dictionary_encode()}
    order = {**second, "f": [0.1, 0.2], "i": pa.array([2**40, 1], pa.int64())}
    pq.write_table(pa.table(order), tmp_path / "1.parquet")  # by name, not by place
    X = kd.open_source(tmp_path, drop=["s", "t"]).read(0, 4).X
    np.testing.assert_array_equal(X, [[1, 1.5], [2, 2.5], [2**40, 0.1], [1, 0.2]])
    assert kd.open_source(tmp_path, drop=["s", "t", "i"]).read(0, 1).X.dtype == np.float64
    source = kd.open_source(tmp_path, as_frame=True)
    for at in (0, 1, 2):
        kinds = " ".join(map(str, source.read(at, at + 2).X.schema.types))
        assert kinds == "int64 double string timestamp[ns]"
    (tmp_path / "csv").mkdir()
    file_of(tmp_path / "csv", "a,b,t\n1,,1\n2,,2\n", "0.csv")
    file_of(tmp_path / "csv", "t,b,a\n.5,x,2.5\n", "1.csv")
    source = kd.open_source(tmp_path / "csv", target="t", as_frame=True)
    assert source.read(0, 3).X.to_pylist()[::2] == [{"a": 1.0, "b": None}, {"a": 2.5, "b": "x"}]
    assert [y.dtype for y in source.target_chunks()] == [np.float64] * 2


def test_libsvm_files_count_alike(tmp_path):
    file_of(tmp_path, b"1 1:1 2:5\n", "0.svm")
    file_of(tmp_path, b"2 0:1 4:2\n", "1.svm")  # index 0 is one of all files
    X = kd.open_source(tmp_path).read(0, 2).X.toarray()
    assert X.tolist() == [[0, 1, 5, 0, 0], [1, 0, 0, 0, 2]]
    assert kd.open_source(tmp_path, n_features=7).n_features == 7
    file_of(tmp_path, b"2 5:1\n", "2.svm")
    with pytest.raises(DataError, match=r"2.svm has feature index 5 in row 0.*beyond the 5"):
        kd.open_source(tmp_path, n_features=5)


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path)


def csv(path, **columns):
    values = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, v)) for v in values)]))


@every(
    ("write", "suffix", "first", "second", "opened", "message"),
    [
        (write_, suffix, first, second, opened, message)
        for write_, suffix in ((csv, "csv"), (parquet, "parquet"))
        for first, second, opened, message in (
            ({"a": [1], "b": [1]}, {"a": [1]}, {}, r"1\.\w+ lacks 1 feature column.*'b'"),
            ({"a": [1]}, {"a": [1], "b": [1]}, {}, r"1\.\w+ has columns that .* lacks: 'b'"),
            (
                {"a": [1]}, {"a": ["x"]}, {"as_frame": True},
                r"1\.\w+: column 'a' has type string, but int64 in .*0\.\w+.*write it in one",
            ),
            ({"a": [1], "y": [1]}, {"a": [1]}, {"target": "y"}, "1.* has no target column 'y'"),
        )
    ],
)  # fmt: skip
def test_files_that_differ_are_named(tmp_path, write, suffix, first, second, opened, message):
    write(tmp_path / f"0.{suffix}", **first)
    write(tmp_path / f"1.{suffix}", **second)
    with pytest.raises(DataError, match=message):
        list(kd.open_source(tmp_path, **opened).chunks())
    if "has columns that" in message:
        assert kd.open_source(tmp_path, feature_names=["a"]).n_features == 1


def test_files_that_cannot_be_found(tmp_path):
    raises(FileNotFoundError, "list of files is empty; name at least one", kd.open_source, [])
    csv(tmp_path / "0.csv", a=[1])
    with pytest.raises(FileNotFoundError, match=r"no file .*gone.csv"):
        kd.open_source([tmp_path / "0.csv", tmp_path / "gone.csv"])
    (tmp_path / "README.txt").write_text("notes\n")
    assert kd.open_source(tmp_path).n_rows == 1
    parquet(tmp_path / "1.parquet", a=[1])
    with pytest.raises(DataError, match=r"0.csv and .*1.parquet have different formats.*\*.pa"):
        kd.open_source(tmp_path)
    assert kd.open_source(f"{tmp_path}/*.csv").n_rows == 1
    odd = tmp_path / "[0].csv"  # a name that reads like a pattern
    csv(odd, a=[7, 8])
    assert kd.open_source(odd).n_rows == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "0.csv").touch()
    (empty / "1.csv").write_text("a\n")
    raises(DataError, r"None of 2 files such as .*0.csv has a data row", kd.open_source, empty)


BIG = 60_000  # rows of a CSV file of more than 1 MiB


def csv_rows(n, shift=0, tail=""):
    return "a,name,y\n" + "".join(f"{i + shift},text of row,{i % 3}\n" for i in range(n)) + tail


@pytest.fixture
def big(tmp_path):
    return file_of(tmp_path, csv_rows(BIG), "big.csv")


def converted(path):
    return path.with_name(f".{path.name}.arrow")


def first_value(path, **columns):
    return kd.open_source(path, target="y", drop=["name"], **columns).read(0, 1).X[0, 0]


def test_text_is_converted_once(big):
    source = kd.open_source(big, target="y", as_frame=True)
    arrow = converted(big)
    produced = arrow.stat().st_ino
    assert [str(kind) for kind in source.read(0, 1).X.schema.types] == ["int64", "string"]
    numbers = kd.open_source(big.parent, target="a", drop=["name"])  # the folder
    assert numbers.n_rows == BIG
    np.testing.assert_array_equal(numbers.read(49_000, 49_003).y, [49_000, 49_001, 49_002])
    assert arrow.stat().st_ino == produced
    arrow.unlink()  # while it is in use
    assert source.take(np.array([40_000])).X.column("a").to_pylist() == [40_000]


def test_small_text_leaves_no_file_beside_it(tmp_path, monkeypatch):
    parsed, read = [], pc.read_csv
    monkeypatch.setattr(pc, "read_csv", lambda *args: parsed.append(args) or read(*args))
    for i in range(3):
        file_of(tmp_path, csv_rows(100), f"{i}.csv")
    source = kd.open_source(tmp_path, target="y", drop=["name"])
    for part in (source, pickle.loads(pickle.dumps(source))):
        np.testing.assert_array_equal(part.read(0, 300).X[:, 0], np.arange(300) % 100)
    assert len(parsed) == 3
    assert len(list(tmp_path.iterdir())) == 3


def test_a_converted_file_that_does_not_fit_is_made_anew(big):
    assert first_value(big) == 0
    arrow = converted(big)
    whole = arrow.read_bytes()
    for content in (whole[:-500], b"", b"nothing", bytes(len(whole))):
        arrow.write_bytes(content)
        assert first_value(big) == 0
        assert arrow.stat().st_size == len(whole)
    state = big.stat()
    big.write_bytes(big.read_bytes().replace(b"\n0,", b"\n7,", 1))
    os.utime(big, ns=(state.st_atime_ns, state.st_mtime_ns))  # the clock is not finer
    assert first_value(big) == 7
    file_of(big.parent, csv_rows(BIG, shift=5), "big.csv")
    assert first_value(big) == 5


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX modes of files")
def test_a_converted_file_is_private(big):
    victim = file_of(big.parent, "mine", "victim")
    converted(big).symlink_to(victim)
    first_value(big)
    assert not converted(big).is_symlink()
    assert converted(big).stat().st_mode & 0o777 == 0o600
    assert victim.read_text() == "mine"


def test_where_text_is_converted(big, tmp_path, monkeypatch):
    own, scratch = tmp_path / "own", tmp_path / "scratch"
    own.mkdir()
    scratch.mkdir()
    monkeypatch.setenv("KERNELGRAD_CONVERTED", str(own))
    assert first_value(big) == 0
    assert len(list(own.iterdir())) == 1
    assert not converted(big).exists()
    monkeypatch.setenv("KERNELGRAD_CONVERTED", str(tmp_path / "gone"))
    raises(DataError, r"big.csv cannot be converted to .*gone.*; set KERN", first_value, big)
    monkeypatch.delenv("KERNELGRAD_CONVERTED")
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    own_scratch = ScratchFolder()
    monkeypatch.setattr("kernelgrad.data.text._scratch", lambda: own_scratch)
    converted(big).mkdir()  # nothing can be written there
    assert first_value(big) == 0
    [folder] = scratch.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len([file for file in folder.iterdir() if file.suffix == ".arrow"]) == 1


def test_text_is_converted_by_several_threads(big):
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(first_value, [big] * 4)) == [0] * 4
    assert {file.name for file in big.parent.iterdir()} == {"big.csv", ".big.csv.arrow"}


LATE = [("7", "int64", 7), ("7.5", "double", 7.5), ("x", "string", "x"), ("", "int64", None)]


@every(("last", "kind", "value"), [*LATE, ("true", "string", "true")])
def test_types_of_late_values(tmp_path, last, kind, value):
    path = file_of(tmp_path, csv_rows(BIG, tail=f"{last},end,1\n"), "late.csv")
    table = kd.open_source(path, target="y", as_frame=True).read(BIG - 1, BIG + 1).X
    assert str(table.schema.field("a").type) == kind
    first = {"double": BIG - 1.0, "string": str(BIG - 1)}.get(kind, BIG - 1)
    assert table.column("a").to_pylist() == [first, value]


@pytest.mark.parametrize("suffix", ["csv.gz", "csv.bz2", "csv.zst", "parquet"])
def test_damage_is_named(tmp_path, rows, suffix):
    path = tmp_path / f"d.{suffix}"
    write(path, *rows)
    whole = path.read_bytes()
    if suffix == "parquet":
        contents = [whole[:4] + bytes(1996) + whole[2000:]]
        words = r"(?s)d.parquet cannot be decoded .*write it again"
    else:
        contents = [whole[: len(whole) // 2], b"plain text"]
        words = r"d.csv.\w+ cannot be decompressed .*fetch it"
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(DataError, match=words):
            list(kd.open_source(path, target="y").chunks())


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
@pytest.mark.parametrize("kind", ["csv", "csv.gz", "svm", "parquet"])
def test_a_file_that_changes_is_noticed(tmp_path, rows, kind, change):
    for i in range(2):
        write(tmp_path / f"{i}.{kind}", *rows)
    source = kd.open_source(tmp_path, **options(kind))
    chunks = source.chunks(500)
    for _ in range(7):
        next(chunks)
    source.read(N, N + 10)  # decoded by now
    targets, n_targets = source.target_chunks(), 0
    while source.has_target and n_targets <= N:  # into the second file
        n_targets += len(next(targets))
    change(tmp_path / f"1.{kind}")
    named = rf"1.{kind} has changed since it was opened; open it again"
    calls = [
        lambda: source.read(N, N + 10),
        lambda: source.take(np.array([1, N + 1])),
        lambda: next(chunks),
        lambda: list(source.chunks(prefetch=True)),
    ]
    if source.has_target:
        calls += [lambda: list(source.target_chunks()), lambda: list(targets)]
    for call in calls:
        raises(DataError, named, call)
    source.read(0, N)  # the other file is as it was


def names_of_threads():
    return [t.name for t in threading.enumerate() if t.name.startswith("kernelgrad-prefetch")]


def test_prefetched_works_one_item_ahead():
    produced, closed = [], threading.Event()

    def items(last):
        try:
            for i in range(last):
                produced.append(i)
                yield i
            raise DataError("row 7 is bad")
        finally:
            closed.set()

    ahead = kd.prefetched(items(10**9))
    assert [next(ahead), next(ahead)] == [0, 1]
    assert names_of_threads()
    ahead.close()
    assert produced == [0, 1, 2]
    assert closed.is_set()
    ahead = kd.prefetched(items(1))
    assert next(ahead) == 0
    raises(DataError, "row 7 is bad", next, ahead)
    assert not names_of_threads()


def test_every_group_is_decoded_once(tmp_path, monkeypatch):
    n = 40_000
    for i in range(3):
        columns = {"a": np.arange(i * n, i * n + n, dtype=np.float32), "b": np.zeros(n, "f4")}
        pq.write_table(pa.table(columns), tmp_path / f"{i}.parquet", row_group_size=5000)
    opened = []
    read = pq.ParquetFile.iter_batches

    def noted(self, row_groups, **arguments):
        opened.append(row_groups[0])
        return read(self, row_groups=row_groups, **arguments)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    source = kd.open_source(tmp_path)
    for b in islice(kd.sample_batches(source, 500, seed=3, buffer_rows=16_000), 240):
        np.testing.assert_array_equal(b.batch.X[:, 0], b.batch.rows)
    assert len(opened) == 24  # one stream for each row group
    rows = np.random.default_rng(0).integers(3 * n, size=2000)
    np.testing.assert_array_equal(source.take(rows).X[:, 0], rows)
    assert len(opened) == 48
    gc.disable()
    try:
        before = pa.total_allocated_bytes()
        source.take(rows)
        assert pa.total_allocated_bytes() == before  # no decoder waits for the collector
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", ["parquet", "csv.gz", "svm"])
def test_one_thread_reads_at_a_time(tmp_path, rows, kind):
    for i in range(3):
        write(tmp_path / f"{i}.{kind}", *rows)
    source = kd.open_source(f"{tmp_path}/*.{kind}", **options(kind))
    starts = np.random.default_rng(0).integers(3 * N - 50, size=30).tolist()
    with ThreadPoolExecutor(4) as threads:
        batches = threads.map(lambda start: source.read(start, start + 50), starts)
        for batch in [*source.chunks(500, prefetch=True), *batches]:
            np.testing.assert_array_equal(dense(batch.X), rows[0][batch.rows % N])
