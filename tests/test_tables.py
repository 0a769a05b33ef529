"""Tables as they come: frames, arrays with gaps, files and memory maps."""

import datetime as dt

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import kernelgrad as kg
from kernelgrad.cli import main
from kernelgrad.estimators.plan import Reading
from kernelgrad.tables import MAX_LEVELS

N = 240
FAST = {"random_state": 0, "standardize": True, "gamma": 0.1, "alpha": 1e-3}
every = pytest.mark.parametrize


def to_pandas(columns):
    frame = pd.DataFrame(columns)
    return frame.astype(
        {k: "category" if k == "city" else "Int64" for k in frame if k in "city count"}
    )


MAKERS = {"pandas": to_pandas, "polars": pl.DataFrame, "pyarrow": pa.table}
every_frame = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def columns_of(n=N, seed=0):
    """Return columns of every kind, with gaps, and a target that depends on all of them."""
    rng = np.random.default_rng(seed)
    income, count = rng.normal(size=n), rng.integers(0, 9, n)
    city, code = rng.choice(["Bonn", "Köln", "Ulm"], n), rng.integers(0, 60, n)
    when = [
        dt.datetime(2024, 1, 1) + dt.timedelta(hours=int(h)) for h in rng.integers(0, 8000, n)
    ]
    flag = rng.random(n) < 0.5
    hour = np.array([t.hour for t in when])
    y = income + 2.0 * (city == "Ulm") + 0.1 * code + count / 9 + flag + hour / 12
    columns = {
        "income": [None if i % 9 == 0 else float(v) for i, v in enumerate(income)],
        "city": [None if i % 11 == 0 else str(v) for i, v in enumerate(city)],
        "code": [f"k{v}" for v in code],
        "flag": [bool(v) for v in flag],
        "count": [None if i % 7 == 0 else int(v) for i, v in enumerate(count)],
        "when": when,
    }
    return columns, y


COLUMNS, Y = columns_of()
NEW, NEW_Y = columns_of(100, seed=1)


@every_frame
def test_frames_of_every_kind_are_one_table(make, tmp_path):
    model = kg.KernelRegressor(**FAST).fit(make(COLUMNS), Y)
    reference = kg.KernelRegressor(**FAST).fit(to_pandas(COLUMNS), Y)
    found = model.predict(make(NEW))
    np.testing.assert_array_equal(found, reference.predict(to_pandas(NEW)))
    numbers = ("income", "flag", "count")
    plain = np.nan_to_num(np.array([NEW[k] for k in numbers], float).T)
    alone = kg.KernelRegressor(**FAST).fit(
        np.nan_to_num(np.array([COLUMNS[k] for k in numbers], float).T), Y
    )
    assert model.score(make(NEW), NEW_Y) > alone.score(plain, NEW_Y) + 0.2
    assert (model.n_features_in_, list(model.feature_names_in_)) == (6, list(COLUMNS))
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(kg.load(tmp_path / "m").predict(make(NEW)), found)


def test_layout_of_the_encoded_columns():
    model = kg.KernelRegressor(**FAST).fit(to_pandas(COLUMNS), Y)
    table = model._table
    # income, flag, count, when; marks of two gaps; month, weekday, hour; 3 cities and none;
    # the mean of the targets of a code
    assert table.groups.tolist() == [0, 3, 4, 5, 0, 4, 5, 5, 5, 1, 1, 1, 1, 2]
    assert np.flatnonzero(~table.is_numeric).tolist() == [1, 4, 5, 9, 10, 11, 12]
    X = table.encode(model._coded(to_pandas(COLUMNS), None, Reading(False))[0])
    assert X.shape == (N, table.width)
    assert X[0, 0] == np.median([v for v in COLUMNS["income"] if v is not None])
    assert X[:2, 4].tolist() == [1.0, 0.0]
    when = COLUMNS["when"]
    assert X[:, 6].tolist() == [t.month for t in when]
    assert X[:, 7].tolist() == [t.weekday() for t in when]
    assert X[:, 8].tolist() == [t.hour for t in when]
    np.testing.assert_array_equal(X[:, 9:13].sum(axis=1), 1.0)
    code = np.array(COLUMNS["code"])
    assert np.corrcoef(X[:, 13], [Y[code == c].mean() for c in code])[0, 1] > 0.9
    gap = {**COLUMNS, "when": [None, *COLUMNS["when"][1:]]}
    found = kg.KernelRegressor(**FAST).fit(to_pandas(gap), Y)._table.groups
    assert found.tolist() == [0, 3, 4, 5, 0, 4, 5, 5, 5, 5, 1, 1, 1, 1, 2]
    two = pd.DataFrame({"code": COLUMNS["code"], "back": COLUMNS["code"][::-1]})
    found = kg.KernelRegressor(**FAST).fit(two, np.column_stack([Y, -Y]))._table.groups
    assert found.tolist() == [0, 1, 0, 1]  # the means of one output, then of the other


@every_frame
def test_later_gaps_and_levels_never_seen(make):
    model = kg.KernelRegressor(**FAST).fit(make(COLUMNS), Y)
    row = {name: values[1:2] for name, values in COLUMNS.items()}
    strange = make({**row, "city": ["Rom"], "code": ["k99"], "flag": [False]})
    codes = model._coded(strange, None, Reading(False))[0]
    assert codes[0, 1:3].tolist() == [-1.0, -1.0]
    X = model._encode_rows(codes, fresh=False)[0]
    assert X[9:13].tolist() == [0.0] * 4
    assert X[13] == pytest.approx(Y.mean())
    assert np.isfinite(model.predict(strange)).all()
    full = {**COLUMNS, "income": [1.0] * (N - 1) + [2.0]}
    model.fit(make({**full, "city": ["Ulm", "Bonn"] * (N // 2)}), Y)
    gap = model.predict(frame_with_gap(make, row))
    assert gap == model.predict(make({**row, "income": [1.0], "city": ["Rom"]}))


def frame_with_gap(make, row):
    """Return a row without income and city, whose columns have their types."""
    two = {name: [*values, *values] for name, values in row.items()}
    two["income"], two["city"] = [1.0, None], ["Ulm", None]
    frame = make(two)
    return frame.iloc[1:] if hasattr(frame, "iloc") else frame[1:]


def test_rows_without_gaps_and_categories_have_no_table():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), rng.normal(size=80)
    model = kg.KernelRegressor(**FAST).fit(X, y)
    assert model._table is None
    assert model._coded(X, None, Reading(False))[0] is X
    frame = pd.DataFrame(X, columns=list("abc"))
    assert clone(model).fit(frame, y)._table is None
    np.testing.assert_array_equal(clone(model).fit(frame, y).predict(frame), model.predict(X))
    gap = X[:1].copy()
    gap[0, 1] = np.nan  # which no training row had
    filled = X[:1].copy()
    filled[0, 1] = np.median(X[:, 1])
    np.testing.assert_array_equal(model.predict(gap), model.predict(filled))


@every("dtype", [np.float32, np.float64])
def test_gaps_in_arrays_are_filled_and_marked(dtype):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)).astype(dtype)
    y = np.where(np.arange(120) % 3 == 0, 5.0, 0.0)
    X[::3, 1] = np.nan
    model = kg.KernelRegressor(**FAST).fit(X, y)
    encoded = model._matrix(X)
    assert encoded.dtype == dtype
    np.testing.assert_array_equal(encoded[:, 3], np.isnan(X[:, 1]))
    assert model._table.groups.tolist() == [0, 1, 2, 1]
    assert model.score(X, y) > 0.95
    frame = pd.DataFrame(X, columns=list("abc"))
    np.testing.assert_array_equal(clone(model).fit(frame, y).predict(frame), model.predict(X))


@every("chosen", [[1], [False, True], ["b"]])
def test_named_categories(chosen):
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=90), rng.integers(0, 4, 90)]
    y = (X[:, 1] == 2).astype(float)
    frame = pd.DataFrame(X, columns=list("ab"))
    model = kg.LinearRegressor(categorical_features=chosen, alpha=1e-6).fit(frame, y)
    assert model._table.groups.tolist() == [0, 1, 1, 1, 1]
    assert model.score(frame, y) > 0.99
    assert (
        kg.LinearRegressor(categorical_features=None, alpha=1e-6).fit(frame, y)._table is None
    )


def test_arrays_of_objects_may_hold_text():
    X = np.array([["a", 1.0, None], ["b", 2, True], ["b", None, False]] * 10, dtype=object)
    model = kg.LinearRegressor(alpha=1e-9).fit(X, np.resize([1.0, 2.0, 3.0], 30))
    assert [column.kind for column in model._table.columns] == ["level", "number", "number"]
    np.testing.assert_allclose(model.predict(X[:3]), [1, 2, 3], atol=1e-3)
    np.testing.assert_array_equal(model.predict(X[:3].tolist()), model.predict(X[:3]))


def test_means_of_the_targets_leave_out_their_own_row():
    rng = np.random.default_rng(0)
    names = np.array([f"n{i}" for i in range(100)])
    frame, y = pd.DataFrame({"name": np.repeat(names, 2)}), rng.normal(size=200)
    model = kg.LinearRegressor(alpha=1e-9, random_state=0).fit(frame, y)
    assert len(model._table.columns[0].levels) > MAX_LEVELS
    seen = model._coded(frame, None, Reading(False))[0]
    X = model._table.fit(seen, y[:, None], 0)
    assert abs(np.corrcoef(X[:, 0], y)[0, 1]) < 0.3  # by the row's own target: .7
    classes = np.digitize(y, [-0.5, 0.5])
    model = kg.LinearClassifier(random_state=0).fit(frame, classes)
    assert model._table.width == 3
    np.testing.assert_allclose(model._table.mean, np.bincount(classes) / 200)
    twice = kg.LinearRegressor(random_state=0).fit(frame, np.c_[y, -y])
    assert twice._table.width == 2


MANY = pd.DataFrame({"name": [f"n{i % 50}" for i in range(200)], "x": np.arange(200.0)})
MANY.loc[::5, "x"] = None


@every(
    "fit",
    [
        lambda: kg.KernelNoveltyDetector(max_iter=3).fit(MANY),
        lambda: kg.KernelDensityRatio(max_iter=3).fit(MANY, denominator=MANY[::2]),
        lambda: kg.SemiSupervisedKernelClassifier(max_iter=3).fit(
            MANY, np.resize([0, 1, -1, -1], 200), X_unlabelled=MANY[:7]
        ),
        lambda: kg.KernelGaussianProcessRegressor(1.0).fit(MANY, np.arange(200.0)),
    ],
    ids=["novelty", "ratio", "semi-supervised", "gaussian process"],
)
def test_every_estimator_takes_tables(fit, tmp_path):
    model = fit()
    found = model.predict(MANY)
    assert found.shape == (200,)
    if not isinstance(model, kg.KernelGaussianProcessRegressor):  # without targets of all rows
        assert len(model._table.columns[0].levels) == MAX_LEVELS
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(kg.load(tmp_path / "m").predict(MANY), found)


def test_partial_fit_knows_declared_levels():
    city = pd.Categorical(["a", "b"] * 30, categories=["a", "b", "c"])
    frame, y = pd.DataFrame({"city": city}), np.arange(60) % 2
    model = kg.KernelClassifier(random_state=0).partial_fit(frame, y)
    assert model._table.columns[0].levels == ("a", "b", "c")
    model.partial_fit(pd.DataFrame({"city": ["c", "d"] * 30}), y)
    assert model.n_iter_ == 2


# -- errors ------------------------------------------------------------------------------


@every(
    ("column", "message"),
    [
        ([1.0, np.inf, 2.0, 0.0], r"Column 'bad' holds infinity \(inf\) in row 1 .*replace"),
        ([[1], [2], [3], [4]], r"Column 'bad' holds list values, for example \[1\]; make it"),
        ([1j, 2j, 3j, 4j], r"Column 'bad' holds complex values, for example 1j; make it"),
        (["a", 1, 2.5, None], "Column 'bad' mixes values of types float, int, str; make all"),
    ],
)
def test_errors_name_the_column_and_the_remedy(column, message):
    frame = pd.DataFrame({"city": list("abca"), "bad": pd.Series(column)})
    with pytest.raises(ValueError, match=message) as caught:
        kg.KernelClassifier().fit(frame, [0, 1, 0, 1])
    assert "'bad'" in str(caught.value).splitlines()[-1]


def test_errors_of_later_rows_and_parameters():
    frame, y = to_pandas(COLUMNS), Y
    model = kg.KernelRegressor(**FAST).fit(frame, y)
    with pytest.raises(ValueError, match=r"yet now missing:\n- when"):
        model.predict(frame.drop(columns="when"))
    with pytest.raises(ValueError, match="Column 'income' holds 'much' in row 0"):
        model.predict(frame.assign(income="much"))
    with pytest.raises(ValueError, match="Column 'when' is a column of dates"):
        model.predict(frame.assign(when="soon"))
    with pytest.raises(ValueError, match="not a sparse matrix"):
        clone(model).fit(frame[["income"]].to_numpy(float), y).predict(sp.csr_matrix((2, 1)))
    for given, message in {
        "all": "'from_dtype', None, or an array", (7,): "the columns of X are 0 to 5",
        ("town",): "names 'town'", (True,): "1 booleans, but X has 6", (1.5,): "must hold",
    }.items():  # fmt: skip
        wrong = kg.KernelRegressor(
            categorical_features=given if given == "all" else list(given)
        )
        with pytest.raises((ValueError, TypeError), match=message):
            wrong.fit(frame, y)
    with pytest.raises(ValueError, match=r"Column 'city' holds text.*does not name it"):
        kg.KernelRegressor(categorical_features=None).fit(frame, y)


# -- files and memory maps -----------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    frame = pd.DataFrame(COLUMNS).assign(y=Y)
    frame.to_csv(folder / "t.csv", index=False, float_format="%.17g")
    frame.to_parquet(folder / "t.parquet", index=False)
    return folder, frame.drop(columns="y")


@every("suffix", ["csv", "parquet"])
def test_the_command_line_fits_as_python_does(files, suffix, capsys, tmp_path):
    folder, frame = files
    data, model, out = folder / f"t.{suffix}", tmp_path / "m", tmp_path / "p.npy"
    options = ["--target", "y", "--seed", "0", "--quiet"]
    assert main(["fit", str(data), "--model", str(model), *options]) == 0
    expected = kg.KernelRegressor(random_state=0).fit(frame, Y)
    np.testing.assert_array_equal(kg.load(model).predict(frame), expected.predict(frame))
    assert main(["predict", str(model), str(data), "--output", str(out)]) == 0
    np.testing.assert_array_equal(np.load(out), expected.predict(frame))
    capsys.readouterr()
    assert main(["score", str(model), str(data), "--target", "y", "--json"]) == 0
    assert f'"r2": {expected.score(frame, Y):.6f}'[:12] in capsys.readouterr().out


@every("suffix", ["csv", "parquet"])
def test_tables_too_large_for_memory(files, suffix):
    folder, frame = files
    source = kg.open_source(folder / f"t.{suffix}", target="y", as_frame=True)
    inside = kg.KernelRegressor(**FAST).fit(source)
    np.testing.assert_array_equal(inside.predict(source), inside.predict(frame))
    model = kg.KernelRegressor(memory_limit=1, **FAST).fit(source)
    assert model.history_["solver_reason"] == "the rows are on disk"
    assert model._table.groups.tolist() == inside._table.groups.tolist()
    assert model.score(source) > 0.7
    np.testing.assert_allclose(model.predict(source), model.predict(frame), rtol=1e-5)
    stream = kg.KernelRegressor(solver="dsg", **FAST)
    for _ in range(10):
        stream.partial_fit(source)
    assert stream.score(frame, Y) > 0.7


def test_types_of_csv_columns_are_those_of_the_whole_file(tmp_path):
    values = ["x", *range(9000)]
    path = tmp_path / "t.csv"
    pd.DataFrame(
        {"a": values, "b": [1] * 9000 + [0.5], "c": [""] * 9000 + ["2024-01-01"]}
    ).to_csv(path, index=False)
    X = kg.open_source(path, as_frame=True).read(0, 9001).X
    assert [str(t) for t in X.schema.types] == ["string", "double", "date32[day]"]
    assert X.column("a").to_pylist()[8999:] == ["8998", "8999"]


def test_memory_maps_that_fit_are_arrays(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = np.sin(X[:, 0]) + X[:, 1]
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    expected = kg.KernelRegressor(random_state=0).fit(X, y)
    for rows in (mapped, kg.ArraySource(mapped, y)):
        given = (rows,) if isinstance(rows, kg.ArraySource) else (rows, y)
        model = kg.KernelRegressor(random_state=0).fit(*given)
        assert model.history_["solver_reason"] == expected.history_["solver_reason"]
        np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    X[3, 2] = np.nan
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert kg.KernelRegressor(random_state=0).fit(mapped, y)._table is not None
    with pytest.raises(ValueError, match="does not fit in memory; impute"):
        kg.KernelRegressor(random_state=0, memory_limit=1).fit(mapped, y)


def test_mapped_rows_of_jobs_do_not_change_scores():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 4))
    y = np.sin(X[:, 0]) + X[:, 1]
    scores = []
    for least in (100, None):  # bytes from which arrays are mapped
        with joblib.parallel_config(max_nbytes=least):
            model = kg.KernelRegressor(random_state=0)
            scores.append(cross_val_score(model, X, y, cv=2, n_jobs=2))
    np.testing.assert_array_equal(*scores)


def test_two_sources_share_a_table(files):
    folder, frame = files
    source = kg.open_source(folder / "t.csv", drop=["y"], as_frame=True)
    ratio = kg.KernelDensityRatio(max_iter=3, standardize=True, random_state=0).fit(
        source, denominator=source
    )
    assert ratio._table.width > 6
    assert ratio.score(source, denominator=source) == ratio.score(frame, denominator=frame)
    labels = np.resize([0, 1], N)
    model = kg.SemiSupervisedKernelClassifier(
        max_iter=3, solver="tsg", standardize=True, random_state=0
    )
    model.fit(frame, labels, X_unlabelled=source)
    assert model.predict(source).tolist() == model.predict(frame).tolist()
    # a table is of one fit
    large = kg.ArraySource(np.random.default_rng(0).normal(size=(50, 2)), labels[:50])
    large.in_memory = False
    assert kg.KernelClassifier(memory_limit=1).fit(frame, labels).fit(large)._table is None
