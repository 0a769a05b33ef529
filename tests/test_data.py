"""Sources, random batches and the errors of unusable data."""

import subprocess
import sys
import tracemalloc
from functools import partial
from itertools import islice

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from cases import every, raises
from kernelgrad import ArraySource, BatchSource, open_source
from kernelgrad.data import Batch, sample_batches, split_rows
from kernelgrad.exceptions import DataError


def dense(X):
    return X.toarray() if sp.issparse(X) else X


def first(n, **arguments):
    return list(islice(sample_batches(**arguments), n))


class Recorded(BatchSource):
    """A source that records its reads."""

    def __init__(self, n, block=None):
        self.n_rows, self.n_features, self.block, self.reads = n, 1, block, []

    def block_starts(self):
        return None if self.block is None else np.arange(0, self.n_rows, self.block)

    def read(self, start, stop):
        self.reads.append((start, stop))
        rows = np.arange(start, stop)
        return Batch(rows[:, None] * 1.0, None, None, rows)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 400), batch_size=st.integers(1, 90), seed=st.integers(0, 5),
    buffer_rows=st.integers(1, 300), block=st.none() | st.integers(1, 200),
    in_memory=st.booleans(), start=st.integers(0, 30), data=st.data(),
)  # fmt: skip
def test_sampling_property(n, batch_size, seed, buffer_rows, block, in_memory, start, data):
    exclude = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1))), int)
    source = ArraySource(np.arange(n)[:, None]) if in_memory else Recorded(n, block)
    arguments = {"source": source, "batch_size": batch_size, "seed": seed, "exclude": exclude}
    arguments |= {"buffer_rows": buffer_rows}
    left = n - len(exclude)
    size = min(batch_size, left)
    n_batches = 2 * (left // size)
    batches = first(n_batches, **arguments)
    assert [len(b.batch.rows) for b in batches] == [size] * n_batches
    assert [b.epoch for b in batches] == [0] * (n_batches // 2) + [1] * (n_batches // 2)
    assert [b.iteration for b in batches] == list(range(n_batches))
    for epoch in (0, 1):
        rows = np.concatenate([b.batch.rows for b in batches if b.epoch == epoch])
        assert len(np.unique(rows)) == len(rows)
        assert not np.isin(rows, exclude).any()
    for b in batches:
        np.testing.assert_array_equal(b.batch.X[:, 0], b.batch.rows)
    tail = first(max(n_batches - start, 0), **arguments, start=start)
    tail, batches = ([b.batch.rows.tolist() for b in part] for part in (tail, batches[start:]))
    assert tail == batches


def test_the_order_of_reads():
    def reads(source, **arguments):
        first(source.n_rows // 64, source=source, batch_size=64, seed=0, **arguments)
        return [a for a, _ in source.reads]

    starts = reads(Recorded(5000), buffer_rows=640)
    assert len(starts) == 125
    assert starts != sorted(starts) == list(range(0, 5000, 40))  # each page once
    # rows of a unit are read in order, beside those of as many others as there are places
    starts = reads(Recorded(30_000, block=1000), buffer_rows=1600)
    units = [a // 1000 for a in starts]
    assert sorted(starts) == list(range(0, 30_000, 100))
    assert {len(set(units[i : i + 16])) for i in range(0, 160, 16)} == {16}
    for unit in range(30):
        own = [a for a in starts if a // 1000 == unit]
        assert own == list(range(unit * 1000, unit * 1000 + 1000, 100))
    # few large units are read at several places
    starts = reads(Recorded(32_000, block=16_000), buffer_rows=1600)
    assert all(len({a // 2000 for a in starts[i : i + 16]}) == 16 for i in range(0, 320, 16))
    # no skipped batch is read
    source = Recorded(10_000)
    next(sample_batches(source, 100, seed=0, buffer_rows=1600, start=90))
    assert sum(b - a for a, b in source.reads) <= 1700


def test_split_rows():
    rows = split_rows(ArraySource(np.ones((10_000, 1))), 0.1, seed=3, max_rows=500)
    assert len(rows) == 500
    assert np.all(np.diff(rows) > 0)
    y = np.repeat(["rare", "single", "common"], [2, 1, 997])
    rows = split_rows(1000, 0.3, seed=0, stratify=y)
    assert len(rows) == 300
    assert set(np.delete(y, rows)) == {"rare", "single", "common"}
    assert len(split_rows(2, 0.9, seed=0)) == len(split_rows(2, 0.01, seed=0)) == 1
    assert len(split_rows(10, 0.99, seed=0, stratify=np.arange(10) % 2)) == 8
    y = np.repeat([0, 1, 2], [17, 14, 9])  # a quarter: 4.25, 3.5 and 2.25 rows
    assert np.bincount(y[split_rows(40, 0.25, seed=0, stratify=y)]).tolist() == [4, 4, 2]


def test_array_source(tmp_path):
    X = np.arange(12.0).reshape(6, 2)
    source = ArraySource(X, np.array(list("abcabc")), np.ones(6, dtype=int), ["p", "q"])
    assert np.shares_memory(source.read(0, 6).X, X)
    assert source.read(1, 3).sample_weight.dtype == np.float64
    mapped = np.memmap(tmp_path / "m", dtype=np.float32, mode="w+", shape=(50, 2))
    assert not ArraySource(mapped).in_memory
    assert len(first(7, source=ArraySource(mapped), batch_size=7, seed=0)) == 7
    np.testing.assert_array_equal(ArraySource(sp.coo_array(X)).read(2, 4).X.toarray(), X[2:4])
    assert ArraySource(X > 3).read(0, 6).X.dtype == np.uint8
    sparse = [ArraySource(sp.csr_matrix(part)).digest() for part in (X, X, X[::-1])]
    assert sparse[0] == sparse[1] != sparse[2]
    units = [ArraySource(sp.csr_matrix(part)).digest() for part in (np.eye(9), np.eye(9)[::-1])]
    assert units[0] != units[1]
    X[4, 1] = np.nan
    assert np.isnan(ArraySource(X, checked=True).read(0, 6).X).any()
    big = np.full((4, 2), np.finfo(np.float32).max, dtype=np.float32)
    ArraySource(big).read(0, 4)  # the sum overflows, no value does


@every(
    ("y", "kind", "task"),
    [
        (np.arange(20), "integer", "classification"), (np.arange(21), "integer", "regression"),
        (np.r_[0.0, 1.0], "float", "classification"), (np.r_[0.5, 1.0], "float", "regression"),
        (np.arange(5000.0), "float", "regression"), (np.ones((6, 2)), "float", "regression"),
        (np.array([True, False]), "integer", "classification"),
        (np.array(["a", "b"], dtype=object), "string", "classification"),
    ],
)  # fmt: skip
def test_infer_task(y, kind, task):
    summary = ArraySource(np.ones((len(y), 1)), y).summarize_target()
    assert (summary.kind, summary.infer_task()) == (kind, task)
    assert (summary.classes is None) == (y.ndim == 2 or len(y) > 1000)


ONE = np.ones((2, 1))
ROWS = ArraySource(np.ones((4, 1)))
BAD = np.ones((5, 3))
BAD[3, 1] = np.inf
NAMED = ArraySource(BAD, feature_names=["p", "q", "r"])
SPARSE = ArraySource(sp.csr_matrix(BAD))
MIXED = ArraySource(ONE, np.array(["a", 1], object))
drawn = partial(sample_batches, ROWS, 2, seed=0)
cut = partial(split_rows, 3, 0.5, seed=0)


@every(
    ("call", "error", "message"),
    [
        (lambda: ArraySource(np.ones(3)), ValueError, r"shape \(3,\); use X.reshape"),
        (lambda: ArraySource(np.array([["a"]])), TypeError, "numeric, got dtype <U1; encode"),
        (lambda: ArraySource(np.ones((0, 2))), DataError, r"\(0, 2\); give at least one row"),
        (lambda: ArraySource(ONE, np.ones(3)), ValueError, r"y has shape \(3,\) but X has 2"),
        (lambda: ArraySource(ONE, np.ones(2, complex)), TypeError, "complex128; convert"),
        (lambda: ArraySource(ONE, None, np.ones(3)), ValueError, r"sample_weight has shape"),
        (lambda: ArraySource(ONE, None, None, ["a", "b"]), ValueError, "2 names but X has 1"),
        (lambda: ArraySource(BAD).read(0, 5), DataError, "column 1 is inf in row 3 .*impute"),
        (lambda: SPARSE.read(1, 5), DataError, "column 1 is inf in row 3"),
        (lambda: NAMED.take(np.array([3])), DataError, "column 'q' is inf in row 3 .*drop"),
        (lambda: ArraySource(ONE, None, [1, -1]).read(0, 2), DataError, "is -1.0 in row 1"),
        (lambda: ArraySource(ONE, np.array(["a", None])).read(0, 2), DataError, "row 1.*None"),
        (lambda: ArraySource(ONE).summarize_target(), DataError, "no target; name the target"),
        (lambda: MIXED.summarize_target(), DataError, "labels of types int, str; convert"),
        (lambda: ROWS.read(2, 9), ValueError, r"Rows \[2, 9\) do not exist.* <= 4"),
        (lambda: ROWS.take(np.array([1, 4])), ValueError, "Row 4 does not exist; .* 0 to 3"),
        (lambda: ROWS.take(np.array([1.0])), TypeError, "integers, got dtype float64"),
        (lambda: drawn(exclude=np.array([2, 1])), ValueError, "exclude must be strictly"),
        (lambda: drawn(exclude=np.arange(4)), DataError, "4 rows, of which 4 are excluded"),
        (lambda: split_rows(1, 0.5, seed=0), DataError, "at least 2 rows of data, got 1"),
        (lambda: cut(stratify=np.arange(3)), DataError, "Each of the 3 classes has a single"),
        (lambda: cut(stratify=np.arange(2)), ValueError, r"of the 3 rows, got shape \(2,\)"),
    ],
)  # fmt: skip
def test_unusable_arrays_are_named(call, error, message):
    raises(error, message, call)


def file_of(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_csv_types(tmp_path):
    body = "".join(f"{i},true,{i % 3}\n" for i in range(9000))
    source = open_source(file_of(tmp_path, "i,b,t\n" + body + "9000.5,false,x\n"), target="t")
    np.testing.assert_array_equal(source.read(8999, 9001).X, [[8999, 1], [9000.5, 0]])
    np.testing.assert_array_equal(source.summarize_target().classes, ["0", "1", "2", "x"])
    text = "\ufeffi,t\r\n" + body.replace(",true", "") + "\n\n1,2.5\n"
    source = open_source(file_of(tmp_path, text), target="t")
    assert (source.n_rows, source.feature_names) == (9001, ["i"])
    assert source.read(0, 1).y.dtype == np.float64
    source = open_source(file_of(tmp_path, 'a;"x;y"\n1;"2"\n'))
    assert (source.feature_names, source.has_target) == (["a", "x;y"], False)
    assert source.read(0, 1).X.tolist() == [[1, 2]]
    bools = open_source(file_of(tmp_path, "a,t\n1,true\n2,false\n"), target="t")
    assert bools.summarize_target().classes.tolist() == [False, True]


GOOD = "a,b,t\n" + "1,2,x\n" * 10_000


@every(
    ("text", "columns", "message"),
    [
        (GOOD, {"target": "t", "drop": ["z"]}, "column to drop 'z'; choose one of"),
        (GOOD + "3,?,x\n", {"target": "t"}, r"column 'b' is not numeric, for example '\?'"),
        (GOOD + "3,,x\n", {"target": "t"}, "column 'b' has a missing value in row 10000"),
        (GOOD + "3,inf,x\n", {"target": "t"}, "t.csv: Feature column 'b' is inf in row 10000"),
        (GOOD + "3,4\n", {"target": "t"}, "line 10002 has 2 values instead of 3: '3,4'; corr"),
        (GOOD + '3,4,"x\ny"\n', {"target": "t"}, "line 10002 opens a quoted value"),
        (GOOD + "1,-2,x\n", {"target": "t", "weight": "b"}, "weight is -2.0 in row 10000"),
        (GOOD, {"target": "a", "weight": "t"}, "weight column 't' is not numeric, .* 'x'"),
        ("a,b\ntrue,1\n" + "2,1\n" * 9000, {}, "'a' is not numeric, for example 'true'"),
        ("a,b\n2020-01-01,1\n", {}, "'a' is not numeric, for example '2020-01-01'"),
        ("a,b\n" + "1,1\n" * 9000 + "1_000,1\n", {}, "'a' is not numeric, for example '1_000'"),
        ("a\n1\n", {"target": "a"}, "has no feature column left; .* drop fewer"),
        (b"\xff\xfe\n1\n", {}, "header is not UTF-8 .*convert the file"),
        (b"a,b\n1,\xff\n", {"target": "b"}, "text after line 2 is not UTF-8; convert the file"),
    ],
)
def test_csv_errors(tmp_path, text, columns, message):
    raises(DataError, message, open_source, file_of(tmp_path, text), **columns)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_row_labels_of_pandas_are_left_out(tmp_path, suffix):
    frame = pd.DataFrame({"a": [1.0, 2.0], "t": [3, 4]}, index=[7, 9])
    path = tmp_path / f"t.{suffix}"
    getattr(frame, f"to_{suffix}")(path)
    name = "Unnamed: 0" if suffix == "csv" else "__index_level_0__"
    with pytest.warns(UserWarning, match=f"{name}' is left out.*index=False"):
        source = open_source(path, target="t")
    assert source.feature_names == ["a"]
    assert source.read(0, 2).X.tolist() == [[1], [2]]
    asked = open_source(path, target="t", feature_names=[name, "a"])  # without a warning
    assert asked.read(0, 2).X.tolist() == [[7, 1], [9, 2]]
    assert open_source(path, target=name, drop=["t"]).read(0, 2).y.tolist() == [7, 9]


def test_column_arguments(tmp_path):
    path = file_of(tmp_path, "a,b,t\n1,2,3\n")
    for columns, error, message in (
        ({"target": "t", "weight": "t"}, ValueError, "'t' cannot be both target and weight"),
        ({"drop": "ab"}, TypeError, "sequence of column names, got the string 'ab'"),
        ({"feature_names": ["x", "a", "y"]}, DataError, "lacks 2 feature .*'x', 'y'; add or"),
        ({"target": "a", "feature_names": ["a"]}, ValueError, "'a' is a feature, so it cannot"),
        ({"n_features": 5}, DataError, "has 3 features, but 5 are expected"),
    ):
        raises(error, message, open_source, path, **columns)
    assert open_source(path, feature_names=["b", "a"]).read(0, 1).X.tolist() == [[2, 1]]
    names = [{}, {"target": "a"}, {"target": "t"}, {"target": "t", "weight": "a"}]
    sources = [open_source(path, feature_names=["b"], **own) for own in names]
    assert len({source.digest() for source in sources}) == 4


def test_libsvm_against_sklearn(tmp_path):
    text = b"# head\n1 qid:2 1:2 3:4 # note\n\n-1 2:1e-3\n" + b"+1 1:1\n" * 9000 + b"2\n"
    path = file_of(tmp_path, text, "t.svm")
    X, y = load_svmlight_file(str(path))
    source = open_source(path)
    np.testing.assert_array_equal(source.read(0, len(y)).X.toarray(), X.toarray())
    np.testing.assert_array_equal(source.read(0, len(y)).y, y)
    assert open_source(path, n_features=9).read(0, 1).X.shape == (1, 9)
    named = open_source(path, feature_names=["p", "q", "r"])
    assert named.feature_names == ["p", "q", "r"]


def test_rows_of_libsvm_files_are_copied_once(tmp_path):
    line = " ".join(["1", *(f"{k}:{k}.5" for k in range(1, 31))])
    source = open_source(file_of(tmp_path, f"{line}\n" * 20_000, "t.svm"))
    tracemalloc.start()
    try:
        X = source.read(0, 20_000).X
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert X.nnz == 600_000
    assert peak < 1.3 * (X.data.nbytes + X.indices.nbytes)


@every(
    ("text", "arguments", "message"),
    [
        (b"1 1:1\n" * 9000 + b"1 a:2\n", {}, "line 9001 is not in LIBSVM format.*correct"),
        (b"1 1:1\n1 3:1 2:1\n", {}, "line 2 is not in LIBSVM format .*sorted"),
        (b"1 1:1\nx 3:1\n", {}, "line 2 is not in LIBSVM format"),
        (b"1 1:1\n1 1:nan\n", {}, "column 0 is nan in row 1|column 1 is nan in row 1"),
        (b"nan 1:1\n", {}, "target is missing or not finite in row 0"),
        (b"1 1:1\n" * 9000 + b"1 7:1\n", {"n_features": 5}, "7 in row 9000 .*beyond the 5 "),
        (b"1 1:1\n1 20000000:1\n", {}, "in row 1 .*beyond the 10,000,000 .*n_features"),
        (b"1\n2\n", {}, "no feature at all; give n_features"),
        (b"# nothing\n", {}, "no data row; give at least one"),
    ],
)
def test_libsvm_errors(tmp_path, text, arguments, message):
    raises(DataError, message, open_source, file_of(tmp_path, text, "t.svm"), **arguments)


def test_parquet_types(tmp_path):
    path = tmp_path / "t.parquet"
    columns = {"f": pa.array([1, 2, 3], pa.float32()), "b": [True, False, True]}
    columns |= {"s": pa.array([1, 2, 3], pa.int16()), "text": ["k", "l", "m"]}
    columns |= {"t": pa.array(["u", "v", "u"]).dictionary_encode()}
    pq.write_table(pa.table(columns), path)
    source = open_source(path, target="t", drop=["text"])
    batch = source.read(1, 3)
    assert batch.X.dtype == np.float32
    assert batch.X.tolist() == [[2, 0, 2], [3, 1, 3]]
    assert batch.y.tolist() == ["v", "u"]
    assert source.summarize_target().classes.tolist() == ["u", "v"]
    pq.write_table(pa.table({**columns, "s": [1, 2, 3]}), path)
    assert open_source(path, target="t", drop=["text"]).read(0, 1).X.dtype == np.float64


@every(
    ("columns", "target", "message"),
    [
        ({"a": [1.0, None]}, None, r"column 'a' has a missing value in row 1 .*impute"),
        ({"a": [1.0], "t": ["x"]}, None, "'t' is not numeric, for example 'x'; open the"),
        ({"a": [1.0], "t": [[1]]}, "t", r"target column 't' has type list.*as numbers"),
        ({"a": [1.0, np.nan]}, None, r"t.parquet: Feature column 'a' is nan in row 1"),
        ({"a": pa.array([], pa.float64())}, None, "has no data row"),
    ],
)
def test_parquet_errors(tmp_path, columns, target, message):
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=message):
        open_source(tmp_path / "t.parquet", target=target).read(0, len(columns["a"]))


def test_npz_and_what_cannot_be_opened(tmp_path):
    path = tmp_path / "t.npz"
    X, y = np.random.default_rng(0).normal(size=(1000, 3)), np.ones(1000)
    np.savez_compressed(path, X_train=X, y_train=y)
    assert open_source(path).has_target
    np.testing.assert_array_equal(open_source(path).read(5, 9).X, X[5:9])
    sp.save_npz(path, sp.csr_matrix(X))
    source = open_source(path)
    assert not source.has_target
    np.testing.assert_array_equal(source.read(5, 9).X.toarray(), X[5:9])
    assert source.read(0, 1000).X is source.read(0, 1000).X  # without a copy

    def refused(message, path=path, **options):
        raises(DataError, message, open_source, path, **options)

    refused("has no target array 'label'; choose one of: ", target="label")
    np.savez(path, y=y)
    refused("has no data array 'X'")
    np.savez(path, X=X[:2], y=np.array(["a", "b"], dtype=object))
    refused(r"Object arrays cannot be loaded .*astype\(str\)")
    sp.save_npz(path, sp.csc_matrix(X[:5]))
    refused("sparse matrix is not CSR")
    np.savez(path, data=[1.0], indices=[7], indptr=[0, 1], shape=[1, 3])
    refused("not a readable .npz archive .*ind(ices|ex)")
    np.savez(path, X=X, y=y)
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1  # a number of X
    path.write_bytes(content)
    refused("not a readable .npz archive .*CRC")
    path.write_bytes(b"nothing")
    refused("not a readable .npz archive .*write it")
    path = file_of(tmp_path, "nothing", "t.parquet")
    refused("not a readable Parquet file .*write it again", path)
    refused(r"t.xls: unknown file format .*rename the file", file_of(tmp_path, "x", "t.xls"))
    path = file_of(tmp_path, "1 1:1\n", "d.svm")
    refused(r"\['a'\] cannot be dropped; leave drop out", path, drop=["a"])
    refused("carry no weights, so leave weight='w' out", path, weight="w")


def test_import_is_light_and_pyarrow_optional(tmp_path):
    code = (
        "import sys, kernelgrad.data as d\n"
        "assert not {'pyarrow', 'pandas'} & set(sys.modules)\n"
        "sys.modules['pyarrow'] = None\n"
        "try: d.open_source(sys.argv[1])\n"
        "except ImportError as e: assert 'pip install kernelgrad[io]' in str(e)\n"
        "else: raise SystemExit('no error')"
    )
    subprocess.run([sys.executable, "-c", code, str(file_of(tmp_path, "a\n1\n"))], check=True)
