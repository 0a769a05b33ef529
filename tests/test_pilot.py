"""The study before a fit: what it finds, keeps, leaves alone and says."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from cases import every
from kernelgrad import (
    DataError,
    KernelClassifier,
    KernelDensityRatio,
    KernelNoveltyDetector,
    KernelRegressor,
    SemiSupervisedKernelClassifier,
    data,
    load,
    set_num_threads,
)
from kernelgrad.callbacks import Deadline
from kernelgrad.kernels import Matern
from kernelgrad.search import pilot as _pilot
from kernelgrad.search import trials as _trials
from kernelgrad.search.metric import Machine, Metric


def function(X):
    return np.sin(2 * X[:, 0] + X[:, 1]) + X[:, 2] * np.cos(X[:, 3])


def rows(n=240, d=7, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, function(X) + noise * rng.standard_normal(n)


X, Y = rows()
TEST = np.random.default_rng(99).standard_normal((1000, 7))


def regressor(**parameters):
    return KernelRegressor(random_state=0, **parameters)


def classifier(**parameters):
    return KernelClassifier(random_state=0, probability=False, **parameters)


def error(model):
    return np.sqrt(np.mean((model.predict(TEST) - function(TEST)) ** 2))


def test_the_columns_that_count_are_found():
    model = regressor().fit(X, Y)
    weights = model.metric_
    assert weights.max() == 1
    assert weights[:4].min() > 2 * weights[4:].max()
    np.testing.assert_allclose(model.feature_importances_, weights**2 / (weights**2).sum())
    assert error(model) < 0.7 * error(regressor(metric=None).fit(X, Y))
    told = model.history_["metric"]
    assert {"weights", "equal weights"} <= {each["round"] for each in told}
    found = 1 / np.sqrt(2 * model.kernel_.gamma)
    chosen = next(t for t in told if t["bandwidth"] == pytest.approx(found, rel=1e-9))
    assert chosen["kernel"] == repr(model.kernel_)
    np.testing.assert_allclose(chosen["weights"], weights, atol=1e-6)
    others = [t["score"] for t in told if t["round"] == "equal weights"]
    assert chosen["score"] < min(others) - 0.05


def test_few_rows_keep_weights_alike_where_all_columns_count(monkeypatch):
    def sums(n, seed):
        X = np.random.default_rng(seed).standard_normal((n, 20))
        return X, np.tanh(X.sum(axis=1) / 4)

    (X, y), (Z, f) = sums(200, 0), sums(1000, 1)
    y = y + 0.2 * np.random.default_rng(2).standard_normal(200)

    def outcome():
        model = regressor(metric="diagonal").fit(X, y)
        return np.log(model.metric_).std(), np.sqrt(np.mean((model.predict(Z) - f) ** 2))

    tight = outcome()
    monkeypatch.setattr(_pilot, "SPREADS", _pilot.SPREADS[:1])
    loose = outcome()
    assert tight[0] < 0.8 * loose[0]
    assert tight[1] < 0.95 * loose[1]


def test_targets_without_sense_give_no_metric():
    rng = np.random.default_rng(5)
    models = [KernelRegressor(random_state=k).fit(X, rng.permutation(Y)) for k in range(4)]
    none = [model for model in models if model.metric_ is None]
    assert len(none) >= 3  # by chance weights are better by a standard error now and then
    with pytest.raises(AttributeError, match="none: all columns count alike"):
        _ = none[0].feature_importances_
    held = rng.standard_normal(1000)
    noise = [
        regressor().fit(*rows(300, seed=s)[:1], rng.standard_normal(300)) for s in range(3)
    ]
    worse = [np.mean((held - m.predict(TEST)) ** 2) / np.mean(held**2) for m in noise]
    assert np.mean(worse) < 1.02
    loose = regressor(gamma=0.1, alpha=1e-6).fit(X, rng.standard_normal(240))
    assert np.mean((held - loose.predict(TEST)) ** 2) > 1.5  # what the study avoids


@pytest.mark.parametrize("make", [regressor, classifier], ids=["regressor", "classifier"])
def test_seeds_not_threads_decide(make):
    y = Y if make is regressor else Y > 0
    found = []
    for threads in (1, 2, 3):
        set_num_threads(threads)
        model = make().fit(X, y)
        found.append([model.metric_, model.predict(TEST), model.kernel_.gamma, model.alpha_])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    x, t = rows(310)
    y = t if make is regressor else t > 0
    other = [make().set_params(random_state=seed).fit(x, y).metric_ for seed in (0, 1)]
    assert not np.array_equal(*other)  # subsets are of 300 rows


def test_columns_of_one_category_share_a_weight():
    rng = np.random.default_rng(0)
    kind = rng.choice(["a", "b", "c", "d"], 300)
    other = rng.choice(["u", "v", "w"], 300)
    x = rng.standard_normal(300)
    y = np.select([kind == "a", kind == "b"], [2.0, -1.0], 0.5) + np.sin(x)
    table = pd.DataFrame({"kind": kind, "x": x, "other": other}).astype(
        {"kind": "category", "other": "category"}
    )
    noise = 0.1 * rng.standard_normal(300)
    model = regressor(metric="diagonal").fit(table, y + noise)
    groups = model._table.groups
    assert len(model.metric_) == len(groups) == 8
    each = [set(model.metric_[groups == j]) for j in range(3)]
    assert [len(weights) for weights in each] == [1, 1, 1]
    assert len(set.union(*each)) == 3
    importances = model.feature_importances_
    assert importances.shape == (3,)
    assert importances.sum() == pytest.approx(1)
    assert importances[2] < 0.1 * importances[:2].min()


def test_names_and_order_of_classes_do_not_matter():
    y = np.digitize(Y, [-0.5, 0.5])
    a = classifier().fit(X, y)
    other = np.array([2, 0, 1])
    b = classifier().fit(X, other[y])
    np.testing.assert_allclose(b.metric_, a.metric_, rtol=1e-3)
    assert b.kernel_.gamma == pytest.approx(a.kernel_.gamma, rel=1e-3)
    assert np.mean(other[a.predict(TEST)] == b.predict(TEST)) > 0.99
    names = classifier().fit(X, np.array(["x", "y", "z"])[y])
    np.testing.assert_array_equal(names.metric_, a.metric_)
    truth = np.digitize(function(TEST), [-0.5, 0.5])
    equal = classifier(metric=None).fit(X, y)
    assert a.score(TEST, truth) > equal.score(TEST, truth) + 0.02


def test_weights():
    plain = regressor().fit(X, Y)
    same = regressor().fit(X, Y, sample_weight=np.full(240, 3.0))
    np.testing.assert_allclose(same.metric_, plain.metric_, rtol=1e-9)
    assert same.alpha_ == pytest.approx(plain.alpha_, rel=1e-9)
    more, targets = np.concatenate([X, X[:40]]), np.concatenate([Y, 100 + X[:40, 6]])
    weight = np.repeat([1.0, 0.0], [240, 40])
    without = regressor().fit(more, targets, sample_weight=weight)
    np.testing.assert_array_equal(without.metric_, plain.metric_)
    np.testing.assert_allclose(without.predict(TEST), plain.predict(TEST), rtol=1e-6)
    ignored = regressor().fit(more, targets).metric_
    assert ignored is None or np.abs(ignored - plain.metric_).max() > 0.1
    # weights are repeats
    times = np.random.default_rng(1).integers(1, 4, 240)
    weighted = regressor().fit(X, Y, sample_weight=times)
    repeated = regressor().fit(np.repeat(X, times, axis=0), np.repeat(Y, times))
    np.testing.assert_allclose(repeated.metric_, weighted.metric_, rtol=1e-6)
    np.testing.assert_allclose(repeated.predict(TEST), weighted.predict(TEST), atol=1e-4)
    # rows of the half with another law count as they weigh
    half = np.where(np.arange(240) < 120, Y, 2 * np.sin(2 * X[:, 5]))
    first = np.repeat([1.0, 0.02], 120)
    column = [
        regressor().fit(X, half, sample_weight=w).metric_[5] for w in (first, first[::-1])
    ]
    assert column[0] < 0.5
    assert column[1] == 1.0


@pytest.mark.parametrize(
    ("make", "loss", "y"),
    [
        (regressor, "quantile", Y),
        (regressor, "absolute", Y),
        (classifier, "hinge", Y > 0),
        (classifier, "log_loss", Y > 0),
        (classifier, "log_loss", np.digitize(Y, [-0.5, 0.5])),
    ],
)
def test_alpha_of_another_loss_is_chosen_on_that_loss(make, loss, y):
    model = make(loss=loss).fit(X, y)
    assert model.metric_[:4].mean() > 2 * model.metric_[4:].mean()
    trials = model.history_["search"]
    own = [t for t in trials if t["gamma"] is None]
    assert len(own) >= 4
    best = min(own, key=lambda t: t["loss"])
    assert own[0]["alpha"] < best["alpha"] < own[-1]["alpha"]
    assert model.alpha_ * 240 == pytest.approx(best["alpha"] * best["rows"])
    assert all(np.isfinite(t["loss"]) for t in trials)


def test_a_class_of_one_row():
    y = np.digitize(Y, [-0.5, 0.5])
    y[3] = 7
    for loss in ("hinge", "log_loss"):
        assert classifier(loss=loss).fit(X, y).score(X, y) > 0.7


def test_several_outputs():
    both = regressor().fit(X, np.stack([Y, 1e3 * np.sin(3 * X[:, 5])], axis=1)).metric_
    assert both[[0, 5]].min() > 3 * both[[4, 6]].max()


def test_what_is_given_stays():
    none = regressor(metric=None, gamma=0.2, alpha=1e-3).fit(X, Y)
    assert none.kernel_.gamma == 0.2
    assert not {"search", "metric"} & none.history_.keys()
    for standardize in ("auto", False):
        both = regressor(standardize=standardize, gamma=0.2, alpha=1e-3).fit(X, Y)
        np.testing.assert_array_equal(both.predict(TEST), none.predict(TEST))
    alpha = regressor(alpha=1e-2).fit(X, Y)
    assert alpha.alpha_ == 1e-2
    assert alpha.history_["search"] == []
    C = regressor(C=5.0).fit(X, Y)
    assert C.alpha_ == pytest.approx(1 / (5.0 * 240))
    assert C.metric_ is not None
    gamma = regressor(metric="diagonal", gamma=0.4).fit(X, Y)
    assert gamma.kernel_.gamma == pytest.approx(0.4, rel=1e-9)
    assert gamma.metric_[:4].min() > 1.5 * gamma.metric_[4:].max()
    assert 0 < gamma.alpha_ != 1e-2
    searched = regressor(metric=None, gamma=0.2).fit(X, Y)
    assert searched.kernel_.gamma == 0.2
    assert searched.metric_ is None
    assert len(searched.history_["search"]) > 2
    wide = regressor(bandwidth_factor=3.0).fit(X, Y)
    assert wide.kernel_.gamma == pytest.approx(regressor().fit(X, Y).kernel_.gamma / 9)
    matern = regressor(kernel="matern").fit(X, Y)
    assert matern.kernel_.name == "matern"
    assert {t["kernel"].split("(")[0] for t in matern.history_["metric"]} == {"Matern"}
    assert matern.kernel_.nu == Matern().nu


GIVEN = np.array([1.0, 0.5, 0.5, 2.0, 0.0, 0.1, 0.3])


@pytest.mark.parametrize(
    "metric", [GIVEN, np.diag(GIVEN)[:, :5] + 0.05], ids=["vector", "matrix"]
)
@pytest.mark.parametrize("solver", ["auto", "cached", "dsg"])
def test_an_array_scales_the_columns(metric, solver):
    scaled = X * metric if metric.ndim == 1 else X @ metric
    test = TEST * metric if metric.ndim == 1 else TEST @ metric
    given = {"gamma": 0.2, "alpha": 1e-3, "solver": solver, "max_iter": 20}
    a = regressor(metric=metric, **given).fit(X, Y)
    b = regressor(metric=None, **given).fit(scaled, Y)
    np.testing.assert_array_equal(a.metric_, metric)
    np.testing.assert_allclose(a.predict(TEST), b.predict(test), atol=2e-4)
    assert np.abs(regressor(**given).fit(X, Y).predict(TEST) - a.predict(TEST)).max() > 0.1


def test_an_array_is_kept_by_a_search(tmp_path):
    for kernel in ("auto", "laplacian"):
        model = regressor(kernel=kernel, metric=GIVEN, standardize=False).fit(X, Y)
        np.testing.assert_array_equal(model.metric_, GIVEN)
        other = regressor(kernel=kernel, metric=None, standardize=False).fit(X * GIVEN, Y)
        assert model.kernel_.gamma == pytest.approx(other.kernel_.gamma, rel=1e-6)
        assert model.alpha_ == pytest.approx(other.alpha_, rel=1e-6)
        model.save(tmp_path / "model")
        back = load(tmp_path / "model")
        np.testing.assert_array_equal(back.predict(TEST), model.predict(TEST))
        np.testing.assert_array_equal(back.metric_, GIVEN)


@every(
    ("parameters", "message"),
    [
        ({"metric": "diag"}, "Unknown metric 'diag' .*: auto, diagonal, full, None, w"),
        ({"metric": [1.0, 2.0]}, "metric has 2 rows, but the rows have 7 columns"),
        ({"metric": np.ones((3, 7))}, "metric has 3 rows"),
        ({"metric": np.ones((7, 7, 7))}, r"weights of the columns \(d,\) or a matrix"),
        ({"metric": [-1.0] + [1.0] * 6}, "give weights >= 0"),
        ({"metric": np.zeros(7)}, "no weight above 0"),
        ({"metric": [np.nan] * 7}, "finite numbers"),
        ({"metric": ["a"] * 7}, "finite numbers"),
        (
            {"metric": "full", "kernel": "laplacian"},
            "learned for the kernels 'rbf' and 'matern'",
        ),
        ({"metric": "diagonal", "gamma": "scale"}, "gamma a number or 'auto'"),
        ({"alpha": "best"}, "rule for alpha"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        regressor(**parameters).fit(X, Y)


def test_wrong_words_for_scaling_are_named():
    with pytest.raises(TypeError, match="Also allowed: 'auto', 'robust', 'ranks'"):
        regressor(standardize="rank").fit(X, Y)


def test_a_matrix():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 6))
    one = x @ np.array([1.0, 1, 1, -1, 0, 0])
    model = regressor(metric="full").fit(x, np.sin(one) + 0.05 * rng.standard_normal(300))
    u, s, _ = np.linalg.svd(model.metric_)
    assert s[0] == pytest.approx(1)
    assert s[1] < 0.5
    assert abs(u[:, 0] @ [0.5, 0.5, 0.5, -0.5, 0, 0]) > 0.98
    assert model.feature_importances_[4:].max() < 0.05
    assert model.history_["metric"][-1]["round"] == "matrix"
    with pytest.raises(ValueError, match="up to 300 columns, and the rows have 301"):
        regressor(metric="full").fit(rng.standard_normal((50, 301)), Y[:50])


def test_scalings_of_columns():
    units = np.array([1.0, 1e4, 1e-3, 50.0, 1.0, 1e6, 1.0])
    shift = np.array([0.0, 5e5, 3.0, -1e3, 0.0, 1e7, 0.0])
    for standardize in ("robust", "ranks", True):
        found = [
            regressor(standardize=standardize).fit(x, Y).predict(t)
            for x, t in ((X, TEST), (X * units + shift, TEST * units + shift))
        ]
        np.testing.assert_allclose(*found, atol=0.02)
    # unscaled rows far from 0 are as good as others
    model = regressor(standardize=False).fit(X + 1e5, Y)
    assert np.sqrt(np.mean((model.predict(TEST + 1e5) - function(TEST)) ** 2)) < 0.45
    assert model.metric_[:4].min() > 2 * model.metric_[4:].max()
    heavy = np.sinh(8 * X)  # ranks are tried, and win
    model = regressor().fit(heavy, Y)
    assert {t["scaling"] for t in model.history_["metric"]} == {"robust", "ranks"}
    assert model.expansion_.scaling.name == "ranks"
    assert {t["scaling"] for t in regressor().fit(X, Y).history_["metric"]} == {"robust"}


@pytest.mark.parametrize("solver", ["auto", "dsg", "cached"])
@pytest.mark.parametrize("standardize", ["auto", "ranks"])
def test_files_and_pickles_keep_the_metric(tmp_path, solver, standardize):
    model = regressor(solver=solver, standardize=standardize, max_iter=10).fit(X, Y)
    model.save(tmp_path / "model")
    for back in (load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(back.predict(TEST), model.predict(TEST))
        np.testing.assert_array_equal(back.metric_, model.metric_)
        np.testing.assert_array_equal(back.feature_importances_, model.feature_importances_)
        assert back.kernel_.gamma == model.kernel_.gamma
        assert back.alpha_ == model.alpha_
        assert back.history_["metric"] == model.history_["metric"]


@pytest.mark.parametrize("solver", ["dsg", "cached"])
def test_going_on_keeps_the_metric(tmp_path, solver):
    model = regressor(solver=solver, max_iter=6, warm_start=True).fit(X, Y)
    weights, gamma, alpha = model.metric_.copy(), model.kernel_.gamma, model.alpha_
    model.save(tmp_path / "model", resumable=True)
    back = load(tmp_path / "model")
    for each in (model, back):
        each.set_params(max_iter=12).fit(X, Y)
        np.testing.assert_array_equal(each.metric_, weights)
        assert (each.kernel_.gamma, each.alpha_) == (gamma, alpha)
    np.testing.assert_array_equal(back.predict(TEST), model.predict(TEST))


def test_streams_learn_from_their_first_rows(tmp_path):
    x, y = rows(900)
    model = regressor(solver="dsg").partial_fit(x[:300], y[:300])
    weights = model.metric_.copy()
    assert weights[:4].min() > 2 * weights[4:].max()
    # alpha is that of many rows, as nobody knows how many will come
    assert model.alpha_ < 0.1 * regressor(solver="dsg", max_iter=1).fit(x[:300], y[:300]).alpha_
    features = model.n_random_features_
    model.save(tmp_path / "model", resumable=True)
    back = load(tmp_path / "model")
    for each in (model, back):
        for k in (1, 2):
            each.partial_fit(x[300 * k : 300 * (k + 1)], y[300 * k : 300 * (k + 1)])
        np.testing.assert_array_equal(each.metric_, weights)
        assert each.n_random_features_ > features
    np.testing.assert_array_equal(back.predict(TEST), model.predict(TEST))
    few = regressor(solver="dsg").partial_fit(x[:20], y[:20])
    assert few.metric_ is None
    assert "too few rows" in few.history_["metric_reason"]


def test_files_on_disk(tmp_path):
    np.savez(tmp_path / "rows.npz", X=X, y=Y)
    source = data.open_source(tmp_path / "rows.npz")
    array = regressor(solver="dsg", max_iter=10).fit(X, Y)
    file = regressor(solver="dsg", max_iter=10).fit(source)
    np.testing.assert_array_equal(file.metric_, array.metric_)
    small = regressor(solver="dsg", max_iter=10, memory_limit=2**14).fit(source)
    assert small.metric_[:4].min() > 2 * small.metric_[4:].max()  # rows in another order


def test_sparse_rows():
    x, y = rows()
    x = np.where(np.abs(x) > 0.2, x, 0.0)
    dense = regressor(standardize=False).fit(x, y)
    sparse = regressor().fit(sp.csr_matrix(x), y)
    assert sparse.metric_[:4].min() > 1.5 * sparse.metric_[4:].max()
    np.testing.assert_allclose(sparse.metric_, dense.metric_, rtol=0.02, atol=1e-3)
    given = regressor(metric=GIVEN).fit(sp.csr_matrix(x), y)
    np.testing.assert_array_equal(given.metric_, GIVEN)
    other = regressor(metric=None).fit(sp.csr_matrix(x * GIVEN), y)
    assert given.alpha_ == pytest.approx(other.alpha_, rel=1e-6)
    wide = sp.random(60, 3000, 0.01, format="csr", random_state=0)
    model = regressor().fit(wide, Y[:60])
    assert model.metric_ is None
    assert model.history_["metric_reason"] == "more than 2,000 columns"
    assert model.alpha_ > 0


def test_where_there_is_nothing_to_learn():
    constant = regressor().fit(X, np.full(240, 2.5))
    np.testing.assert_allclose(constant.predict(TEST), 2.5)
    assert constant.history_["metric_reason"] == "the targets are constant"
    for n in (1, 2, 3, 39):
        few = regressor().fit(X[:n], Y[:n])
        assert few.metric_ is None
        assert "too few rows" in few.history_["metric_reason"]
    assert regressor().fit(X[:40], Y[:40]).history_.get("metric_reason") is None
    one = regressor().fit(X[:, :1], np.sin(3 * X[:, 0]))
    assert one.metric_ is None
    assert one.score(X[:, :1], np.sin(3 * X[:, 0])) > 0.99
    flat = regressor().fit(np.zeros((50, 3)), Y[:50])
    np.testing.assert_allclose(flat.predict(TEST[:, :3]), Y[:50].mean(), atol=0.2)


@pytest.mark.parametrize(
    "kernel", ["laplacian", "chi2", "polynomial", "callable", "precomputed"]
)
def test_kernels_without_a_metric_get_their_alpha(kernel):
    a, b = np.abs(X), np.abs(TEST)
    y, truth = np.sin(a[:, 0]) + a[:, 1], np.sin(b[:, 0]) + b[:, 1]
    y = y + 0.2 * np.random.default_rng(0).standard_normal(240)
    if kernel == "callable":
        kernel = lambda P, Q: np.exp(-0.1 * ((P[:, None] - Q) ** 2).sum(axis=-1))  # noqa: E731
    elif kernel == "precomputed":
        a, b = a @ a.T, b @ a.T
    model = regressor(kernel=kernel).fit(a, y)
    assert model.metric_ is None
    assert "no metric" in model.history_["metric_reason"]
    assert 1 - model.score(b, truth) < 0.35
    trials = model.history_["search"]
    ends = [regressor(kernel=kernel, alpha=model.alpha_ * f).fit(a, y) for f in (1e-4, 1e4)]
    assert model.score(b, truth) > max(end.score(b, truth) for end in ends) - 0.02
    least = min(t["loss"] for t in trials) + 2e-3
    assert any(0.5 < model.alpha_ / t["alpha"] < 2 for t in trials if t["loss"] < least)
    gammas = {t["gamma"] for t in trials}
    assert len(gammas) >= 4 if kernel == "laplacian" else len(gammas) == 1
    if kernel == "laplacian":
        best = min(trials, key=lambda t: t["loss"])
        assert model.kernel_.gamma == best["gamma"]


def test_kernel_values_out_of_their_domain_are_refused():
    with pytest.raises(DataError, match="chi2 kernel is defined for x >= 0"):
        regressor(kernel="chi2").fit(X, Y)


def test_diabetes_is_no_worse_than_ridge():
    x, y = load_diabetes(return_X_y=True)
    mine, theirs = [], []
    for seed in range(3):
        held = np.random.default_rng(seed).permutation(442) < 120
        ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 20)))
        for errors, model in ((mine, regressor()), (theirs, ridge)):
            found = model.fit(x[~held], y[~held]).predict(x[held])
            errors.append(np.mean((found - y[held]) ** 2))
    assert np.sqrt(np.mean(mine) / np.mean(theirs)) < 1.02


def test_alpha_carried_to_more_rows(monkeypatch):
    assert _pilot.carried(0.1, 0.1, 4.0, 2000, 2000) == pytest.approx(0.1 / 2000)
    # lambda falls by 2 from 500 to 2,000 rows, so by 2 again to 8,000
    assert _pilot.carried(0.2, 0.1, 4.0, 2000, 8000) == pytest.approx(0.05 / 8000)
    # it never grows, and is not taken for 0 where it falls fast
    assert _pilot.carried(0.1, 0.2, 4.0, 2000, 8000) == pytest.approx(0.2 / 8000)
    assert 0.1 / 16 < _pilot.carried(64.0, 0.1, 4.0, 2000, 32000) * 32000 < 0.1
    whole = regressor(metric=None, gamma=0.3, standardize="robust").fit(X, Y)
    monkeypatch.setattr(_pilot, "_SOME", 120)
    monkeypatch.setattr(_pilot, "_FEW", 40)
    model = regressor(metric=None, kernel="rbf").fit(X, Y)
    trials = {m: [t for t in model.history_["search"] if t["rows"] == m] for m in (40, 120)}
    few, many = (min(t, key=lambda each: each["loss"]) for t in trials.values())
    assert many["loss"] < few["loss"]
    assert 0.1 < model.alpha_ / whole.alpha_ < 10


@pytest.mark.parametrize(("make", "loss"), [(regressor, "squared"), (classifier, "hinge")])
def test_a_search_without_time_leaves_some_for_the_fit(make, loss, monkeypatch):
    class Over(Deadline):
        over = True

    asked = []
    monkeypatch.setattr(
        "kernelgrad.estimators.kernel.Deadline", lambda seconds: asked.append(seconds) or Over()
    )
    y = Y if make is regressor else Y > 0
    model = make(loss=loss, time_limit=1000.0).fit(X, y)
    assert 400 < asked[0] < 500  # half of it
    assert model.metric_ is None
    assert model.history_["search"] == []
    assert 0 < model.alpha_ < 1
    assert model.score(X, y) > 0.5


@pytest.mark.parametrize(
    "estimator",
    [
        KernelNoveltyDetector(),
        KernelDensityRatio(),
        SemiSupervisedKernelClassifier(),
        KernelRegressor(),
        KernelClassifier(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_every_estimator_checks_its_metric(estimator):
    y = np.where(np.arange(240) < 60, Y > 0, -1)
    rest = {"denominator": X + 1} if isinstance(estimator, KernelDensityRatio) else {"y": y}
    with pytest.raises(ValueError, match=r"Unknown metric 'diag'.*choose one of: "):
        clone(estimator).set_params(metric="diag").fit(X, **rest)
    with pytest.raises(ValueError, match="give weights >= 0"):
        clone(estimator).set_params(metric=-GIVEN).fit(X, **rest)
    model = clone(estimator).set_params(metric=GIVEN, random_state=0).fit(X, **rest)
    np.testing.assert_array_equal(model.metric_, GIVEN)


def test_the_laplacian_kernel_is_one_of_the_shapes(monkeypatch):
    x, test = X[:, :6], TEST[:, :6]
    steps, truth = np.sign(x).sum(axis=1), np.sign(test).sum(axis=1)
    assert regressor().fit(x, steps).kernel_.name != "laplacian"  # few rows: nothing compiled
    monkeypatch.setattr(_pilot, "_TURNS_ROWS", 200)
    model = regressor().fit(x, steps)
    assert model.kernel_.name == "laplacian"
    assert model.history_["metric"][-1]["kernel"] == repr(model.kernel_)
    smooth = regressor(metric="diagonal").fit(x, steps)
    assert smooth.kernel_.name != "laplacian"
    assert model.score(test, truth) > smooth.score(test, truth)
    wide = regressor(bandwidth_factor=2.0).fit(x, steps)
    assert wide.kernel_.gamma == pytest.approx(model.kernel_.gamma / 2)
    assert regressor().fit(x, np.sin(x[:, 0])).kernel_.name != "laplacian"
    assert regressor(kernel="rbf").fit(x, steps).kernel_.name == "rbf"


def test_many_rows_are_judged_by_others(monkeypatch):
    monkeypatch.setattr(_pilot, "_TURNS_ROWS", 200)
    model = regressor().fit(X, Y)
    assert model.metric_[:4].min() > 1.5 * model.metric_[4:].max()
    samples = [_pilot.Sample(X, Y[:, None], np.arange(240.0))]
    (taught,), (judges,) = _pilot._split(samples, 0)
    rows = np.concatenate([part.weight for part in (taught, *judges)])
    assert [part.n_rows for part in judges] == [30, 30]
    np.testing.assert_array_equal(np.sort(rows), np.arange(240))


def test_fine_structure_in_few_columns_is_seen_from_narrow_bandwidths(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2400, 8))
    a, b, c, d = 3 * x.T[:4]
    y = np.sin(a) * np.sin(b) + np.sin(c) * np.cos(d) + 0.1 * rng.standard_normal(2400)
    monkeypatch.setattr(_pilot, "_MANY", 2000)
    monkeypatch.setattr(_pilot, "_NARROW", (500, 20, 0.2))  # in a third of the time

    def score():
        return regressor(solver="direct").fit(x[:2200], y[:2200]).score(x[2200:], y[2200:])

    assert score() < 0.6  # the control: two of the columns are found, and this is few rows
    monkeypatch.setattr(_pilot, "_FAR_ROWS", 2000)
    assert score() > 0.75


def test_trials_of_bandwidths_go_on_after_a_small_rise_only():
    def chosen(*losses):
        return _trials.narrowed(
            dict(zip((1.0, 2.0, 4.0, 8.0, 16.0), losses, strict=True)).get, 1.0
        )

    assert chosen(1.0, 1.005, 0.9, 0.8, 0.85) == 8.0
    assert chosen(1.0, 1.02, 0.9, 0.8, 0.7) == 1.0
    assert chosen(1.0, 0.9, 0.905, 0.908, 0.91) == 2.0
    assert chosen(1.0, 0.9, 0.8, 0.7, 0.6) == 16.0


def test_threads_of_blas_change_nothing():
    X, y = rows(300)
    found = []
    for n_threads in (1, 2):
        with threadpool_limits(limits=n_threads, user_api="blas"):
            found.append(regressor().fit(X, y).metric_)
    np.testing.assert_array_equal(*found)


def test_of_shapes_that_are_close_the_rough_one_is_for_many_rows(monkeypatch):
    monkeypatch.setattr(_pilot, "_duel", lambda *_: [0.0, 0.01])
    metric = Metric(np.zeros(2), np.arange(2))
    smooth, rough = (
        (0, Machine(np.inf, metric, 0.1, -1.0)),
        (0, Machine(0.5, metric, 0.1, -0.9)),
    )
    worse = (0, Machine(0.5, metric, 0.1, -0.5))

    def chosen(ranked, n):
        return _pilot._fit_for_many(ranked, [None], [None], 0, n)[1]

    assert chosen([smooth, rough], 1000) is smooth[1]
    assert chosen([smooth, rough], 2000) is smooth[1]
    assert chosen([smooth, rough], 40_000) is rough[1]
    assert chosen([smooth, worse], 40_000) is smooth[1]
