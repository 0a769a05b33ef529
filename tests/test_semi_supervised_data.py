"""Marks, frames, sources, streams and files of the semi-supervised classifier."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_moons
from sklearn.exceptions import DataConversionWarning, NotFittedError

from kernelgrad import (
    TSG,
    ArraySource,
    DataError,
    SemiSupervisedKernelClassifier,
    load,
    open_source,
)

STOCHASTIC = ["tsg", "fr_s3vm", "bgs3vm"]
WHOLE = ["cccp_s3vm", "s3vm_light", "cached", "soft_labels"]
each_stream = pytest.mark.parametrize("solver", STOCHASTIC)


def draw(n=120, n_labelled=12, noise=0.1, seed=0):
    """Two moons: rows, true classes, and classes with -1 where there is no label."""
    X, t = make_moons(n, noise=noise, random_state=seed)
    rng = np.random.default_rng(seed)
    known = [rng.permutation(np.flatnonzero(t == c))[: n_labelled // 2] for c in (0, 1)]
    y = np.full(n, -1)
    y[np.concatenate(known)] = t[np.concatenate(known)]
    return X, t, y


X, T, Y = draw()
L, U = np.flatnonzero(Y >= 0), np.flatnonzero(Y < 0)
NAMES = np.array(["a", "b"])


def make(**params):
    return SemiSupervisedKernelClassifier(
        **({"solver": "tsg", "random_state": 0, "max_iter": 20, "gamma": 2.0} | params)
    )


@pytest.fixture(scope="module")
def base():
    return make().fit(X, Y)


def named(mark):
    return np.array([mark if c < 0 else NAMES[c] for c in Y], object)


def with_none(mark, values=(0, 1)):
    return [mark if c < 0 else values[c] for c in Y]


# -- how rows without a label are marked -----------------------------------------------

HALF = np.where((Y < 0) & (np.arange(len(Y)) % 2 == 0), np.nan, Y)
MARKED = {
    "int": Y,
    "int8": Y.astype(np.int8),
    "list": Y.tolist(),
    "float -1": Y.astype(float),
    "float NaN": np.where(Y < 0, np.nan, Y),
    "float32 NaN": np.where(Y < 0, np.nan, Y).astype(np.float32),
    "both": HALF,
    "list of None": with_none(None),
    "list of NaN": with_none(np.nan),
    "Int64": pd.Series(with_none(pd.NA), dtype="Int64"),
    "boolean": pd.Series(with_none(pd.NA, (False, True)), dtype="boolean"),
    "object bool": np.array(with_none(None, (False, True)), object),
    "polars int": pl.Series(with_none(None)),
    "polars bool": pl.Series(with_none(None, (False, True))),
    "polars -1": pl.Series(Y),
    "pandas float": pd.Series(np.where(Y < 0, np.nan, Y)),
    "other classes": np.where(Y < 0, -1, Y + 1),
    "negative classes": np.where(Y < 0, -1, 3 * Y - 2),
}
NAMED = {
    "None": named(None),
    "NaN": named(np.nan),
    "NA": named(pd.NA),
    "list": named(None).tolist(),
    "series": pd.Series(named(None)),
    "string": pd.Series(named(None), dtype="string"),
    "category": pd.Series(named(None), dtype="category"),
    "polars": pl.Series(with_none(None, ("a", "b"))),
    "polars categories": pl.Series(with_none(None, ("a", "b")), dtype=pl.Categorical),
}


@pytest.mark.parametrize("y", MARKED.values(), ids=MARKED)
def test_marks_of_numbers(base, y):
    model = make().fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), base.decision_function(X))
    assert len(model.classes_) == 2
    np.testing.assert_array_equal(model.transduction_, model.classes_[base.transduction_])
    np.testing.assert_array_equal(model.predict(X), model.classes_[base.predict(X)])


@pytest.mark.parametrize("y", NAMED.values(), ids=NAMED)
def test_marks_of_names(base, y):
    model = make().fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), base.decision_function(X))
    assert model.classes_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(model.transduction_, NAMES[base.transduction_])


def test_nan_in_a_list_of_names_is_no_class():
    model = make().fit(X, named(float("nan")).tolist())
    assert model.classes_.tolist() == ["a", "b"]


def test_a_column_of_labels_warns(base):
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model = make().fit(X, Y[:, None])
    np.testing.assert_array_equal(model.decision_function(X), base.decision_function(X))


SIGNS = (2 * Y - 1)[L]


@pytest.mark.parametrize(
    "y",
    [SIGNS, SIGNS.astype(float), np.array(SIGNS.tolist(), object), Y[L].astype(bool), Y[L]],
    ids=["int", "float", "object", "bool", "zero and one"],
)
def test_minus_one_and_one_are_two_classes(base, y):
    model = make().fit(X[L], y, X_unlabelled=X[U])
    np.testing.assert_array_equal(model.decision_function(X), base.decision_function(X))
    assert model.classes_.tolist() == np.unique(y.tolist()).tolist()
    expected = np.concatenate([y, model.predict(X[U])])
    np.testing.assert_array_equal(model.transduction_, expected)


@pytest.mark.parametrize("mark", [None, np.nan])
def test_signs_with_a_mark_are_explained(mark):
    y = [mark if c < 0 else 2 * int(c) - 1 for c in Y]
    with pytest.raises(ValueError, match="X_unlabelled"):
        make().fit(X, y)


def test_labels_of_two_types_are_refused():
    """As KernelClassifier does, rather than call the number 3 the text '3'."""
    with pytest.raises((ValueError, TypeError), match="label"):
        make().fit(X, np.array(with_none(None, (3, "a")), object))


@pytest.mark.parametrize("sparse", [False, True])
def test_other_rows_may_come_by_themselves(sparse):
    form = sp.csr_matrix if sparse else np.asarray
    whole = make().fit(form(X), Y)
    forms = [form(X[U])] if sparse else [X[U], X[U].tolist(), X[U].astype(np.float64)]
    for rows in forms:
        model = make().fit(form(X[L]), Y[L], X_unlabelled=rows)
        np.testing.assert_array_equal(model.decision_function(X), whole.decision_function(X))
        order = np.argsort(np.concatenate([L, U]))
        np.testing.assert_array_equal(model.transduction_[order], whole.transduction_)
    y = Y.copy()
    y[L[1::2]] = -1  # marks in y beside X_unlabelled
    first = np.concatenate([L, U[:50]])
    some = make().fit(form(X[first]), y[first], X_unlabelled=form(X[U[50:]]))
    every = make().fit(form(X), y)
    np.testing.assert_array_equal(some.decision_function(X), every.decision_function(X))
    assert some.labelled_weight_ == 6


# -- sources and files of data ---------------------------------------------------------

SINGLE = X.astype(np.float32)


def opened(folder, kind, rows, y=None, w=None):
    """Write rows to a file and return a source of it."""
    path = folder / f"rows.{kind}"
    columns = {k: v for k, v in (("y", y), ("w", w)) if v is not None}
    weight = None if w is None else "w"
    if kind == "memmap":
        rows.tofile(path)
        mapped = np.memmap(path, rows.dtype, "r", shape=rows.shape)
        return ArraySource(mapped, y, w)
    if kind == "npz":
        np.savez(path, X=rows, **columns)
        return open_source(path, weight=weight)
    frame = pd.DataFrame(rows, columns=["u", "v"]).assign(**columns)
    if kind == "parquet":
        frame.to_parquet(path, row_group_size=500)
    else:
        frame.to_csv(path, index=False, float_format="%.9g")
    return open_source(path, target=None if y is None else "y", weight=weight)


def response(model, rows):
    names = getattr(model, "feature_names_in_", None)
    rows = rows if names is None else pd.DataFrame(rows, columns=names)
    return model.decision_function(rows)


@each_stream
@pytest.mark.parametrize("kind", ["memmap", "npz", "parquet", "csv"])
def test_sources_are_arrays(tmp_path, kind, solver):
    expected = make(solver=solver).fit(SINGLE, Y).decision_function(X)
    others = opened(tmp_path, kind, SINGLE[U])
    model = make(solver=solver).fit(SINGLE[L], Y[L], X_unlabelled=others)
    # small sets are one batch: only the order of sums differs
    np.testing.assert_allclose(response(model, X), expected, atol=1e-4)
    assert not hasattr(model, "transduction_")
    assert model.labelled_weight_ == len(L)
    arrays = make(solver=solver).fit(SINGLE[L], Y[L], X_unlabelled=ArraySource(SINGLE[U]))
    if kind != "csv":
        np.testing.assert_array_equal(response(model, X), response(arrays, X))
    marked = make(solver=solver).fit(opened(tmp_path, kind, SINGLE, Y))
    np.testing.assert_allclose(response(marked, X), expected, atol=1e-4)
    assert marked.labelled_weight_ == len(L)


@pytest.mark.parametrize("solver", WHOLE)
def test_solvers_that_keep_all_rows_refuse_files(tmp_path, solver):
    with pytest.raises(DataError, match=f"'{solver}' keeps all rows.*solver='tsg'"):
        make(solver=solver).fit(X[L], Y[L], X_unlabelled=opened(tmp_path, "npz", X[U]))
    model = make(solver=solver).fit(X[L], Y[L], X_unlabelled=ArraySource(X[U]))
    assert model.score(X, T) > 0.75


def test_the_solver_follows_where_rows_are(tmp_path):
    arrays = make(solver="auto").fit(X, Y)
    assert arrays.history_["solver"] == "soft_labels"
    plain = make(solver="soft_labels").fit(X, Y)
    np.testing.assert_array_equal(arrays.decision_function(X), plain.decision_function(X))
    others = opened(tmp_path, "npz", SINGLE[U])
    disk = make(solver="auto").fit(X[L], Y[L], X_unlabelled=others)
    assert disk.history_["solver"] == "tsg"
    tsg = make().fit(X[L], Y[L], X_unlabelled=others)
    np.testing.assert_array_equal(disk.decision_function(X), tsg.decision_function(X))
    one = make(solver="auto").partial_fit(X, Y)
    np.testing.assert_array_equal(
        one.decision_function(X), make().partial_fit(X, Y).decision_function(X)
    )


def test_sources_with_targets_and_weights(tmp_path):
    first = make().fit(X[L], Y[L], X_unlabelled=ArraySource(X[U]))
    targets = make().fit(X[L], Y[L], X_unlabelled=ArraySource(X[U], T[U]))
    np.testing.assert_array_equal(targets.decision_function(X), first.decision_function(X))
    solver = TSG(block_size=32)  # by default it follows the number of rows, of any weight
    w = np.where(np.arange(len(Y)) % 3, 1.0, 0.0)
    w[L] = np.resize([1.0, 0.0, 2.0], len(L))
    expected = make(solver=solver).fit(SINGLE, Y, sample_weight=w).decision_function(X)
    model = make(solver=solver).fit(opened(tmp_path, "npz", SINGLE, Y, w))
    np.testing.assert_allclose(model.decision_function(X), expected, atol=0.1)
    assert model.labelled_weight_ == w[L].sum()
    plain = make(solver=solver).fit(SINGLE, Y).decision_function(X)
    assert np.abs(plain - expected).max() > 0.2


@pytest.mark.parametrize("kind", ["parquet", "csv", "memmap", "npz"])
def test_chunks_without_class_zero_keep_their_marks(tmp_path, kind):
    """Where a chunk has labels of class 1 only, -1 is no second class there."""
    rng = np.random.default_rng(0)
    n = 150_000 if kind in ("memmap", "npz") else 3000
    Z = rng.standard_normal((n, 2)).astype(np.float32)
    t = (Z[:, 0] > 0).astype(int)
    y = np.full(n, -1)
    y[:40] = t[:40]
    y[np.flatnonzero(t == 1)[-20:]] = 1
    model = make(gamma=0.5).fit(opened(tmp_path, kind, Z, y))
    assert model.labelled_weight_ == (y >= 0).sum() == 60
    assert model.classes_.tolist() == [0, 1]
    assert (
        np.mean(model.classes_[(response(model, Z[:2000]) > 0).astype(int)] == t[:2000]) > 0.8
    )


@pytest.mark.parametrize(
    ("X_", "y", "extra", "match"),
    [
        (ArraySource(X, Y, (Y != 1).astype(float)), None, None, "[Cc]lass 1"),
        (X[L], Y[L], ArraySource(X[U]), "[Cc]lass 1"),
        (ArraySource(X, np.full(120, -1)), None, None, "no label"),
        (ArraySource(X, np.where(Y == 1, -1, Y)), None, None, "one class"),
        (
            ArraySource(X, Y, (Y < 0).astype(float)),
            None,
            None,
            "no labelled row of positive weight",
        ),
    ],
    ids=["weights of a class", "and arrays", "no label", "one class", "no weight"],
)
def test_sources_without_a_class(X_, y, extra, match):
    weight = None if y is None else (y != 1).astype(float)
    with pytest.raises(ValueError, match=match):
        make().fit(X_, y, weight, X_unlabelled=extra)


# -- streams ---------------------------------------------------------------------------

PAIRS = np.stack([L[Y[L] == c] for c in (0, 1)], axis=1)  # a label of each class
PARTS = [np.r_[pair, U[14 * i : 14 * i + 14]] for i, pair in enumerate(PAIRS)] + [U[84:100]]


def stream(**params):
    return make(**({"solver": TSG(batch_size=8, block_size=16)} | params))


def feed(model, parts, y=Y):
    for rows in parts:
        model.partial_fit(X[rows], y[rows], classes=[0, 1])
    return model


@each_stream
def test_any_mixture_of_rows(solver):
    zeros, ones = L[Y[L] == 0], L[Y[L] == 1]
    model = make(solver=solver)
    for rows in (U[:30], L, U[30:60], L[:1], np.concatenate([zeros, U[60:70]]), zeros, ones):
        model.partial_fit(X[rows], Y[rows], classes=[0, 1])
    assert model.n_iter_ == 7
    assert np.isfinite(model.decision_function(X)).all()
    assert model.score(X, T) > 0.7


@pytest.mark.parametrize("form", ["array", "source"])
@pytest.mark.parametrize("first", [True, False])
def test_labels_of_class_one_and_marks(first, form):
    """The classes are known here, so that -1 is a mark."""
    rows = np.concatenate([L[Y[L] == 1], U[:10]])
    model = stream() if first else feed(stream(), PARTS)
    before = getattr(model, "labelled_weight_", 0)
    if form == "array":
        model.partial_fit(X[rows], Y[rows], classes=[0, 1])
    else:
        model.partial_fit(ArraySource(X[rows], Y[rows]), classes=[0, 1])
    assert model.labelled_weight_ == before + 6


def test_signs_may_be_classes_of_a_stream():
    model = stream().partial_fit(X[L], 2 * Y[L] - 1, classes=[-1, 1])
    assert model.partial_fit(X[:3], [-1, -1, 1]).labelled_weight_ == len(L) + 3
    assert model.partial_fit(X[:3], [None, None, 1]).classes_.tolist() == [-1, 1]


def test_streams_need_classes():
    with pytest.raises(ValueError, match="no label"):
        stream().partial_fit(X[U], Y[U])
    only = stream().partial_fit(X[U], Y[U], classes=[0, 1])
    np.testing.assert_array_equal(only.decision_function(X), 0.0)
    with pytest.raises(ValueError, match="label 5, which is not among the classes"):
        feed(stream(), PARTS).partial_fit(X[:3], [5, -1, 1])
    for solver in WHOLE:
        assert not hasattr(make(solver=solver), "partial_fit")


def test_streams_go_on_after_fit():
    model = make(probability=True).fit(X, Y)
    assert hasattr(model, "transduction_")
    assert hasattr(model, "calibration_")
    model.partial_fit(X, Y)
    assert not hasattr(model, "transduction_")
    assert model.labelled_weight_ == 2 * len(L)
    assert not hasattr(model, "calibration_")  # it was of another function
    with pytest.raises(NotFittedError):
        model.predict_proba(X)
    with pytest.raises(NotFittedError):
        stream(probability=True).partial_fit(X, Y).predict_proba(X)


def test_kinds_of_a_batch_count_half_whatever_their_weights():
    params = {"solver": TSG(batch_size=60, block_size=16)}
    heavy = stream(**params).partial_fit(X, Y, sample_weight=np.where(Y < 0, 7.0, 1.0))
    plain = stream(**params).partial_fit(X, Y)
    np.testing.assert_allclose(
        heavy.decision_function(X), plain.decision_function(X), atol=1e-5
    )


# -- models on disk, and going on ------------------------------------------------------


def test_a_stream_goes_on_from_a_file(tmp_path):
    straight, half = feed(stream(), PARTS), feed(stream(), PARTS[:3])
    half.save(tmp_path / "half.kg", resumable=True)
    rest = feed(load(tmp_path / "half.kg"), PARTS[3:])
    np.testing.assert_array_equal(rest.decision_function(X), straight.decision_function(X))
    assert rest.labelled_weight_ == straight.labelled_weight_


# -- what changes no bits --------------------------------------------------------------
