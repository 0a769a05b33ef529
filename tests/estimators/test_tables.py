"""Tables as they come: frames, arrays with gaps, files and memory maps."""

import datetime as dt
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_info, threadpool_limits

import kernelgrad as kg
from cases import every, raises
from kernelgrad.encoder import MAX_LEVELS, Encoder
from kernelgrad.solvers import SoftLabels

N = 240
FAST = {"random_state": 0, "standardize": True, "gamma": 0.1, "alpha": 1e-3}
PLAIN = {**FAST, "standardize": False}


def to_pandas(columns):
    frame = pd.DataFrame(columns)
    return frame.astype(
        {k: "category" if k == "city" else "Int64" for k in frame if k in "city count"}
    )


MAKERS = {"pandas": to_pandas, "polars": pl.DataFrame, "pyarrow": pa.table}


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


@pytest.fixture(scope="module")
def reference():
    return kg.KernelRegressor(**FAST).fit(to_pandas(COLUMNS), Y)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_frames_of_every_kind_are_one_table_with_columns_chosen_by_name(
    make, reference, tmp_path
):
    model = kg.KernelRegressor(**FAST).fit(make(COLUMNS), Y)
    f, names = model.predict(make(NEW)), list(NEW)[::-1]
    np.testing.assert_array_equal(f, reference.predict(to_pandas(NEW)))
    assert model.score(make(NEW), NEW_Y) > 0.7
    assert (model.n_features_in_, list(model.feature_names_in_)) == (6, list(COLUMNS))
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(kg.load(tmp_path / "m").predict(make(NEW)), f)
    row = {name: values[1:2] for name, values in COLUMNS.items()}  # levels never seen
    strange = make({**row, "city": ["Rom"], "code": ["k99"], "flag": [False]})
    assert np.isfinite(model.predict(strange)).all()
    more = make({"other": [0] * 100, **{name: NEW[name] for name in names}})
    np.testing.assert_array_equal(model.predict(more), f)
    rows = [
        {"x": 1, **dict(zip(NEW, row, strict=True))} for row in zip(*NEW.values(), strict=True)
    ]
    np.testing.assert_array_equal(model.predict(rows), f)
    np.testing.assert_allclose(model.predict(rows[7]), f[7:8], rtol=1e-6)
    np.testing.assert_array_equal(model.predict(NEW), f)
    arrays = NEW | {"when": np.array(NEW["when"], "datetime64[ns]")}
    np.testing.assert_array_equal(model.predict(arrays), f)
    absent = [{k: v for k, v in row.items() if k != "count"} for row in rows]
    raises(ValueError, "now missing:\n- count", model.predict, absent)


def test_new_values_are_counted_once(tmp_path):
    frame = pd.DataFrame({"x": np.arange(60.0), "kind": ["a", "b", "c"] * 20})
    model = kg.KernelRegressor(**FAST).fit(frame, frame["x"])
    later = frame.assign(x=frame["x"].where(frame["x"] > 1), kind=["a", "b", "?"] * 20, y=0.0)
    expected = (
        "^Column 'x': 2 of 60 rows have gaps.*Column 'kind': 20 of 60 rows hold categories"
    )
    later.to_csv(tmp_path / "later.csv", index=False)
    names = {"feature_names": ["x", "kind"], "target": "y", "as_frame": True}
    source = kg.open_source(tmp_path / "later.csv", **names)
    for rows in (later, later[["x", "kind"]].to_dict("list"), source):
        with pytest.warns(kg.UnseenValuesWarning, match=expected) as seen:
            model.predict(rows)
        assert len(seen) == 1
    with pytest.warns(kg.UnseenValuesWarning) as seen:
        model.predict(later.assign(x=1.0))
    assert str(seen[0].message) == (
        "Column 'kind': 20 of 60 rows hold categories or gaps that the fit had not; they count "
        "as none of the known ones."
    )


@every(
    ("make", "message"),
    [
        (str, "read as numbers; convert it by pd.to_numeric(column, errors='coerce')."),
        (lambda t: str(t).replace(".", ","), "pd.to_numeric(column.str.replace(',', '.'), err"),
        (lambda t: f"{t:%Y-%m-%d %H:%M}", "read as dates; convert it by pd.to_datetime(column"),
        (lambda t: f"{t:%d.%m.%Y}", "read as dates"),
        (lambda t: f"n{t}", None),
    ],
)
def test_columns_of_texts_that_read_as_numbers_or_dates_are_named_once(make, message, tmp_path):
    values = pd.date_range("2024", periods=60) if "dates" in str(message) else np.arange(60) / 8
    texts = [make(value) for value in values]
    texts[7] = "?"
    frame = pd.DataFrame({"a": texts, "y": np.arange(60.0)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    source = kg.open_source(tmp_path / "t.csv", target="y", as_frame=True)
    object_rows = frame[["a"]].astype(object)
    model, novelty = kg.KernelRegressor(**FAST), kg.KernelNoveltyDetector(gamma=0.1)
    for rows in ((model, object_rows, frame["y"]), (model, source), (novelty, object_rows)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            rows[0].fit(*rows[1:])
        assert len(seen) == (message is not None)
        if seen:
            assert "Column 'a' has 60 different texts in 60 rows" in str(seen[0].message)
            assert message in str(seen[0].message)
    clone(model).set_params(categorical_features=["a"]).fit(frame[["a"]], frame["y"])


def encoded(columns, of):
    """Return rows as documented, by the medians and levels of the columns `of`."""

    def filled(name):
        values, own = (np.array(data[name], float) for data in (columns, of))
        return np.where(np.isnan(values), np.nanmedian(own), values), np.isnan(values)

    numbers = [filled(name) for name in ("income", "count")]
    when, city = columns["when"], np.array(columns["city"], object)
    seconds = [(t - dt.datetime(1970, 1, 1)).total_seconds() for t in when]
    return np.column_stack(
        [
            numbers[0][0], columns["flag"], numbers[1][0], seconds,
            numbers[0][1], numbers[1][1],
            [t.month for t in when], [t.weekday() for t in when], [t.hour for t in when],
            *(city == level for level in ("Bonn", "Köln", "Ulm", None)),
        ]
    ).astype(float)  # fmt: skip


def test_columns_are_encoded_as_documented():
    def part(data):
        return to_pandas({k: v for k, v in data.items() if k != "code"})

    options = {**PLAIN, "gamma": 1e-3}
    other = {**NEW, "when": [t - dt.timedelta(days=50_000) for t in NEW["when"]]}
    model = kg.KernelRegressor(**options).fit(part(COLUMNS), Y)
    by_hand = kg.KernelRegressor(**options).fit(encoded(COLUMNS, COLUMNS), Y)
    for data in (COLUMNS, NEW, other):
        expected = by_hand.predict(encoded(data, COLUMNS))
        np.testing.assert_array_equal(model.predict(part(data)), expected)
    linear = kg.LinearRegressor().fit(part(COLUMNS), Y)  # in which every column counts
    expected = kg.LinearRegressor().fit(encoded(COLUMNS, COLUMNS), Y)
    np.testing.assert_allclose(
        linear.predict(part(NEW)), expected.predict(encoded(NEW, COLUMNS)), rtol=1e-6
    )
    weights = linear.coef_
    assert np.size(weights) == encoded(NEW, NEW).shape[1]
    gap = {**COLUMNS, "when": [None, *COLUMNS["when"][1:]]}
    assert np.size(kg.LinearRegressor().fit(part(gap), Y).coef_) == np.size(weights) + 1


def test_durations_are_seconds():
    seconds, text = np.arange(60.0) / 7, ["a", "b"] * 30
    frames = [
        pd.DataFrame({"t": t, "c": text}) for t in (seconds, pd.to_timedelta(seconds, "s"))
    ]
    fits = [kg.KernelRegressor(**PLAIN).fit(frame, np.sin(seconds)) for frame in frames]
    ours, numbers = (m.predict(f) for m, f in zip(fits, frames, strict=True))
    np.testing.assert_allclose(ours, numbers, atol=1e-5)


def test_rows_without_gaps_and_categories_are_plain():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), rng.normal(size=80)
    model = kg.KernelRegressor(**FAST).fit(X, y)
    frame = pd.DataFrame(X, columns=list("abc"))
    np.testing.assert_array_equal(clone(model).fit(frame, y).predict(frame), model.predict(X))
    gap, filled = X[:1].copy(), X[:1].copy()
    gap[0, 1], filled[0, 1] = np.nan, np.median(X[:, 1])  # no training row had a gap
    np.testing.assert_array_equal(model.predict(gap), model.predict(filled))
    model.fit(sp.csr_array(X), y)  # without medians
    raises(ValueError, r"Column 1 is missing \(NaN\) in row 0", model.predict, gap)


@every("dtype", [np.float32, np.float64])
def test_gaps_in_arrays_are_filled_and_marked(dtype):
    X = np.random.default_rng(0).normal(size=(120, 3)).astype(dtype)
    y = np.where(np.arange(120) % 3 == 0, 5.0, 0.0)
    X[::3, 1] = np.nan
    model = kg.KernelRegressor(**PLAIN).fit(X, y)
    by_hand = np.where(np.isnan(X), np.nanmedian(X[:, 1]), X)
    by_hand = np.column_stack([by_hand, np.isnan(X[:, 1])])
    assert by_hand.dtype == dtype
    expected = kg.KernelRegressor(**PLAIN).fit(by_hand, y).predict(by_hand)
    np.testing.assert_array_equal(model.predict(X), expected)
    frame = pd.DataFrame(X, columns=list("abc"))
    np.testing.assert_array_equal(clone(model).fit(frame, y).predict(frame), model.predict(X))


@every("chosen", [[1], [False, True], ["b"]])
def test_named_categories(chosen):
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=90), rng.integers(0, 4, 90)]
    y, frame = (X[:, 1] == 2).astype(float), pd.DataFrame(X, columns=list("ab"))
    model = kg.LinearRegressor(categorical_features=chosen, alpha=1e-6).fit(frame, y)
    assert np.size(model.coef_) == 5
    assert model.score(frame, y) > 0.99
    plain = kg.LinearRegressor(categorical_features=None).fit(frame, y)
    assert np.size(plain.coef_) == 2


def test_arrays_of_objects_may_hold_text():
    X = np.array([["a", 1.0, None], ["b", 2, True], ["b", None, False]] * 10, dtype=object)
    model = kg.LinearRegressor(alpha=1e-9).fit(X, np.resize([1.0, 2.0, 3.0], 30))
    np.testing.assert_allclose(model.predict(X[:3]), [1, 2, 3], atol=1e-3)
    np.testing.assert_array_equal(model.predict(X[:3].tolist()), model.predict(X[:3]))


def test_means_of_levels_leave_out_what_other_columns_explain():
    rng = np.random.default_rng(0)
    n, n_levels = 2000, 200
    x, level = rng.normal(size=n), rng.integers(n_levels, size=n)
    u = rng.normal(size=n_levels)
    y = 5.0 * np.sin(2.0 * x) + u[level] + 0.5 * rng.normal(size=n)
    encoder = Encoder(["number", "level"], [0, n_levels])
    encoded = encoder.fit(np.column_stack([x, level]), y[:, None], 0)
    # a mean of some 10 rows has a deviation of .16, of targets one of 1.2
    assert np.corrcoef(encoder.means[0], u)[0, 1] > 0.95
    assert np.corrcoef(encoded[:, 1], u[level])[0, 1] > 0.95
    assert np.corrcoef(encoded[:, 1], y - u[level])[0, 1] < 0.1


def test_residuals_take_one_thread_of_blas(monkeypatch):
    fit, seen = Ridge.fit, set()

    def noted(self, X, y):
        seen.update(i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas")
        return fit(self, X, y)

    monkeypatch.setattr(Ridge, "fit", noted)
    codes = np.random.default_rng(0).integers(0, 200, (600, 2)).astype(float)
    with threadpool_limits(2, user_api="blas"):
        Encoder(["number", "level"], [0, 200]).fit(codes, codes[:, :1], 0)
    assert seen == {1}


def test_means_of_the_targets_leave_out_their_own_row():
    rng = np.random.default_rng(0)
    names = np.array([f"n{i}" for i in range(100)])
    frame, y = pd.DataFrame({"name": np.repeat(names, 2)}), rng.normal(size=200)
    options = {"alpha": 1e-9, "random_state": 0}
    model = kg.LinearRegressor(**options).fit(frame, y)
    assert np.abs(model.coef_).max() < 0.5  # by the row's own target it is 1
    level = np.repeat(np.arange(100.0), 2)  # and are good where they tell something
    informed = kg.LinearRegressor(**options).fit(frame, level)
    assert informed.score(frame, level) > 0.95
    unknown = pd.DataFrame({"name": ["x", "y"]})
    np.testing.assert_allclose(informed.predict(unknown), level.mean(), atol=1.0)
    classes = np.digitize(level, [30, 70])  # the means are shares of the classes
    model = kg.LinearClassifier(random_state=0).fit(frame, classes)
    assert np.shape(model.coef_) == (3, 3)
    assert model.score(frame, classes) > 0.95
    twice = kg.LinearRegressor(**options).fit(frame, np.c_[level, -level])
    assert np.shape(twice.coef_) == (2, 2)
    assert twice.score(frame, np.c_[level, -level]) > 0.95


MANY = pd.DataFrame({"name": [f"n{i % 50}" for i in range(200)], "x": np.arange(200.0)})
MANY.loc[::5, "x"] = None


@every(
    "fit",
    [
        lambda: kg.KernelNoveltyDetector(max_iter=3).fit(MANY),
        lambda: kg.KernelDensityRatio(max_iter=3).fit(MANY, denominator=MANY[::2]),
        lambda: kg.SemiSupervisedKernelClassifier(solver=SoftLabels(choose=False)).fit(
            MANY, np.resize([0, 1, -1, -1], 200), X_unlabelled=MANY[:7]
        ),
        lambda: kg.KernelGaussianProcessRegressor(1.0).fit(MANY, np.arange(200.0)),
    ],
)
def test_every_estimator_takes_tables(fit):
    assert np.isfinite(fit().predict(MANY)).all()


def test_partial_fit_knows_declared_levels():
    city = pd.Categorical(["a", "b"] * 30, categories=["a", "b", "c"])
    y, frame = np.arange(60) % 2, pd.DataFrame({"city": city})
    model = kg.KernelClassifier(random_state=0).partial_fit(frame, y)
    model.partial_fit(pd.DataFrame({"city": ["c", "d"] * 30}), y)
    assert model.n_iter_ == 2
    f = model.decision_function(pd.DataFrame({"city": ["a", "c", "d", "e"]}))
    assert f[0] != f[1] != f[2] == f[3]  # "d" was not declared


@every(
    ("column", "message"),
    [
        ([1j, 2j, 3j, 4j], r"Column 'bad' holds complex values, for example 1j; make it"),
        (
            [1, "a", 2.5, None],
            r"types float, int, str; make numbers of them by pd.to_numeric\(column, errors="
            r"'coerce'\) \(the first text is 'a' in row 1;",
        ),
        (
            ["a", dt.date(2024, 1, 1), None, "b"],
            "'bad' mixes .* date, str; make all of them num",
        ),
    ],
)
def test_errors_name_the_column_and_the_remedy(column, message):
    frame = pd.DataFrame({"city": list("abca"), "bad": pd.Series(column)})
    raises(ValueError, message, kg.KernelClassifier().fit, frame, [0, 1, 0, 1])


def test_errors_of_later_rows_and_parameters(reference):
    frame = to_pandas(COLUMNS)
    for rows, message in [
        (frame.assign(when="soon"), "Column 'when' holds 'soon' in row 0 .*column of dates"),
        (frame.assign(when=2024), "Column 'when' holds 2024 in row 0 .*column of dates"),
    ]:
        raises(ValueError, message, reference.predict, rows)
    for chosen, message in [
        ("all", "'from_dtype', None, or an array"), ([7], "holds 7, .* from 0 to 5"),
        (["town"], "holds 'town'"), ([True], "1 booleans, but X has 6"), ([1.5], "must hold"),
        (None, r"Column 'city' holds text.*does not name it"),
    ]:  # fmt: skip
        with pytest.raises((ValueError, TypeError), match=message):
            kg.KernelRegressor(categorical_features=chosen).fit(frame, Y)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    frame = pd.DataFrame(COLUMNS).assign(y=Y)
    frame.to_csv(folder / "t.csv", index=False, float_format="%.17g")
    frame.to_parquet(folder / "t.parquet", index=False)
    return folder, frame.drop(columns="y")


@pytest.mark.usefixtures("tiny_limits")
@every("suffix", ["csv", "parquet"])
def test_files_are_fitted_as_frames_are(files, suffix):
    folder, frame = files
    source = kg.open_source(folder / f"t.{suffix}", target="y", as_frame=True)
    expected = kg.KernelRegressor(**FAST).fit(frame, Y).predict(frame)
    model = kg.KernelRegressor(**FAST).fit(source)
    np.testing.assert_array_equal(model.predict(source), expected)
    model = kg.KernelRegressor(memory_limit="1B", **FAST).fit(source)  # too large for memory
    assert model.history_["solver_reason"] == "the rows are on disk"
    assert model.score(source) > 0.7
    np.testing.assert_allclose(model.predict(source), model.predict(frame), rtol=1e-5)


@pytest.mark.usefixtures("tiny_limits")
def test_memory_maps_that_fit_are_arrays(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 4))
    y, path = np.sin(X[:, 0]) + X[:, 1], tmp_path / "X.npy"
    np.save(path, X)
    expected = kg.KernelRegressor(**FAST).fit(X, y)
    mapped = np.load(path, mmap_mode="r")
    for rows in ((mapped, y), (kg.ArraySource(mapped, y),)):
        model = kg.KernelRegressor(**FAST).fit(*rows)
        assert model.history_["solver_reason"] == expected.history_["solver_reason"]
        np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    X[3, 2] = np.nan
    np.save(path, X)
    mapped = np.load(path, mmap_mode="r")
    assert np.isfinite(kg.KernelRegressor(**FAST).fit(mapped, y).predict(mapped)).all()
    with pytest.raises(ValueError, match="does not fit in memory; impute"):
        kg.KernelRegressor(memory_limit="1B", **FAST).fit(mapped, y)


@pytest.mark.parametrize("n", [MAX_LEVELS, MAX_LEVELS + 1])
def test_columns_of_few_levels_have_one_for_each(n):
    encoder = Encoder(["level"], [n])
    assert (len(encoder.few), len(encoder.many)) == ((1, 0) if n == MAX_LEVELS else (0, 1))
