"""Quality without a second fit, intervals and sets: against refits, metrics and coverage."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_friedman1, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss, r2_score, root_mean_squared_error

import kernelgrad as kg
from cases import every, raises
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import LogSquaredError
from kernelgrad.quality import Unseen, intervals, quality, quantile
from kernelgrad.solvers import loop
from kernelgrad.solvers.kernel_matrix import kernel_matrix
from kernelgrad.tasks import Regression
from kernelgrad.validation import CapabilityError

FIXED = {"kernel": Gaussian(0.5), "alpha": 1e-2, "metric": None, "standardize": False}


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.standard_normal(n)


def refitted(model, X, y, weight, method):
    """Predictions of each row by a fit to all others, with the same penalty for their sum."""
    out = []
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        alpha = model.alpha * weight.sum() / weight[rest].sum()
        one = clone(model).set_params(alpha=alpha).fit(X[rest], y[rest], weight[rest])
        out.append(getattr(one, method)(X[i : i + 1])[0])
    return np.array(out)


@every("solver, intercept", [("direct", True), ("direct", False), ("newton", True)])
@every("loss", ["squared", LogSquaredError(factor=1.1)])
def test_leave_one_out_is_that_of_n_refits(solver, intercept, loss):
    X, y = rows(24)
    y, weight = y + 3.0, np.tile([1.0, 2.0, 0.5, 1.0], 6)
    options = FIXED | {"solver": solver, "fit_intercept": intercept, "tol": 1e-9}
    model = kg.KernelRegressor(loss, **options).fit(X, y, weight)
    expected = refitted(model, X, y, weight, "predict")
    np.testing.assert_allclose(model.loo_predictions_, expected, rtol=2e-5)


@every("n_classes", [2, 3])
def test_leave_one_out_of_the_log_loss_is_near_that_of_refits(n_classes):
    X, y = rows(60)
    codes = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    model = kg.KernelClassifier("log_loss", solver="newton", tol=1e-6, **FIXED).fit(X, codes)
    expected = refitted(model, X, codes, np.ones(60), "predict_proba")
    mine, first = model.loo_predictions_, model.predict_proba(X)
    assert np.abs(mine - expected).max() < 0.25 * np.abs(first - expected).max()


def test_rows_come_in_their_order_and_equal_ones_are_left_out_together():
    X, y = rows(50)
    model = kg.KernelRegressor(solver="direct", **FIXED).fit(X, y)
    X2, y2 = np.vstack([X, X[:1]]), np.append(y, y[0])
    weight = np.append(np.ones(50), 0.0)
    weight[7] = 0.0
    twice = clone(model).fit(X2, y2, weight)
    assert np.flatnonzero(np.isnan(twice.loo_predictions_)).tolist() == [7, 50]
    order = np.random.default_rng(1).permutation(50)
    mixed = clone(model).fit(X[order], y[order])
    np.testing.assert_array_equal(mixed.loo_predictions_, model.loo_predictions_[order])


def test_the_diagonal_of_the_inverse():
    X = np.random.default_rng(0).standard_normal((600, 3))
    exact = ExactKernel(Gaussian(0.3), 3)
    K = kernel_matrix(exact, exact.prepare(X), wide=True)
    scale = np.linspace(0.5, 2.0, 600)
    whole = scale[:, None] * K.rows(np.arange(600), float) * scale + 0.1 * np.eye(600)
    K.factor(scale, 0.1)
    np.testing.assert_allclose(K.inverse_diagonal(), np.diag(np.linalg.inv(whole)), rtol=1e-6)


def test_measures_are_those_of_scikit_learn_and_errors_those_of_the_bootstrap():
    rng = np.random.default_rng(0)
    y = rng.standard_normal((300, 2))
    f = y + 0.5 * rng.standard_normal((300, 2))
    task = Regression(kg.losses.SquaredError(), 2, "model", 2)
    whole = quality(Unseen(f, y, np.ones(300), "rows"), task)
    r2, rmse = whole.measures
    assert (whole.name, whole.score, whole.standard_error) == r2
    assert r2.value == pytest.approx(r2_score(y, f))
    assert rmse.value == pytest.approx(root_mean_squared_error(y, f))
    draws = [rng.integers(0, 300, 300) for _ in range(300)]
    for measure, score in ((r2, r2_score), (rmse, root_mean_squared_error)):
        spread = np.std([score(y[d], f[d]) for d in draws])
        assert measure.standard_error == pytest.approx(spread, rel=0.2)


def test_targets_that_do_not_vary_have_no_r2():
    task, y = Regression(kg.losses.SquaredError(), 1, "model", 1), np.full(30, 0.3)
    (rmse,) = quality(Unseen(y[:, None] + 0.5, y, np.ones(30), "rows"), task).measures
    assert rmse == ("RMSE", pytest.approx(0.5), pytest.approx(0.0))


def test_classes_have_a_log_loss_only_with_probabilities_even_where_all_are_certain():
    X, y = make_moons(40, random_state=0)
    for probability, names in ((True, ["log loss", "error rate"]), (False, ["error rate"])):
        model = kg.LinearClassifier("hinge", probability=probability).fit(X, y)
        model.calibrate_coverage(1e4 * X[X[:, 1] > 0.2], y[X[:, 1] > 0.2])
        assert set(np.unique(model._fitted.held_out.values)) == {0.0, 1.0}
        assert [m.name for m in model.validation_score_.measures] == names


def test_quantiles_that_no_row_lies_between_have_no_scale():
    task = Regression(QUANTILES, 2, "model", 1)
    values = np.random.default_rng(0).standard_normal((50, 1)) * np.ones(2)
    (part,) = intervals(Unseen(values, values[:, 0] + 2.0, np.ones(50), "rows"), task)
    np.testing.assert_array_equal(part.scale(np.arange(3.0)), 1.0)


def test_a_part_of_the_rows_that_calibrates_is_fitted_exactly(monkeypatch):
    """Block descent takes ten times as long for a tenth of the rows."""
    X, y = rows(6000)
    names, run = [], loop.run
    monkeypatch.setattr(
        loop,
        "run",
        lambda solver, *a, **k: (names.append(solver.name), run(solver, *a, **k))[1],
    )
    model = kg.KernelClassifier(loss="squared", max_iter=1, memory_limit="100 MB", **FIXED)
    model.fit(X, y > 0)
    assert names == ["newton", "block_descent"]
    names.clear()
    model.set_params(solver="block_descent").fit(X, y > 0)
    assert names == ["block_descent"] * 2


def test_one_row_that_calibrates_does_not_judge():
    X, y = rows(301)
    model = kg.KernelClassifier("hinge", probability=True, time_limit=1e-6, alpha=1e-3)
    with pytest.warns(ConvergenceWarning, match="of 300 rows"):
        model.fit(X, y > 0)
    assert len(model._fitted.choice.calibration[1]) == 1
    assert model.validation_score_ is None


def test_the_quality_of_a_default_fit_is_that_of_its_left_out_predictions():
    X, y = make_friedman1(300, noise=1.0, random_state=0)
    model = kg.KernelRegressor().fit(X, y)
    r2, rmse = model.validation_score_.measures
    assert r2.value == pytest.approx(r2_score(y, model.loo_predictions_))
    assert rmse.value == pytest.approx(root_mean_squared_error(y, model.loo_predictions_))
    searched = quality(model._fitted.held_out, model._fitted.model.task)
    assert r2.standard_error > abs(r2.value - searched.score) > 0
    classes = kg.KernelClassifier().fit(X, y > 14)
    p = classes.loo_predictions_
    assert classes.validation_score_.score == pytest.approx(log_loss(y > 14, p), rel=1e-5)


def covered(bounds, y):
    return np.mean((bounds[..., 0] <= y) & (y <= bounds[..., 1]))


QUANTILES = kg.losses.Quantile((0.2, 0.8))
SPLIT = [
    kg.LinearRegressor(max_iter=5),
    kg.KernelRegressor(QUANTILES, solver="dsg", max_iter=3, **FIXED),
    kg.KernelRegressor(solver="direct", **FIXED),
]


def check(shares, coverage):
    """The mean share of covered rows is the coverage, up to three standard errors."""
    error = 3.0 * np.std(shares) / np.sqrt(len(shares))
    assert abs(np.mean(shares) - coverage) < error + 0.01


@every("coverage", [0.8, 0.95])
def test_intervals_of_exact_fits_cover(coverage):
    shares = []
    for seed in range(30):
        X, y = rows(260, seed)
        y = y * (1.0 + X[:, 0] ** 2)
        model = kg.KernelRegressor(solver="direct", **FIXED).fit(X[:100], y[:100])
        shares.append(covered(model.predict_interval(X[100:], coverage), y[100:]))
    check(shares, coverage)


@every("model", SPLIT)
def test_intervals_of_rows_that_were_not_fitted_cover(model):
    X, y = rows(3000)
    model = clone(model).fit(X[:500], y[:500])
    shares = []
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(np.arange(500, 3000))
        model.calibrate_coverage(X[order[:199]], y[order[:199]])
        shares.append(covered(model.predict_interval(X[order[199:]]), y[order[199:]]))
    check(shares, 0.9)


def test_a_quantile_holds_for_one_new_row_too():
    scores = np.arange(9.0)
    assert [quantile(scores, np.full(9, 2.0), c / 10) for c in (1, 5, 9)] == [0, 4, 8]


def test_sets_cover_and_are_never_empty():
    shares, sizes = [], []
    for seed in range(20):
        X, y = make_moons(700, noise=0.6, random_state=seed)
        model = kg.KernelClassifier("log_loss", solver="newton", **FIXED).fit(X[:200], y[:200])
        sets = model.predict_set(X[200:], 0.9)
        shares.append(sets[np.arange(500), y[200:]].mean())
        sizes.append(sets.sum(axis=1))
    check(shares, 0.9)
    assert np.unique(sizes).tolist() == [1, 2]


@every("estimator", [kg.KernelRegressor, kg.KernelGaussianProcessRegressor])
def test_intervals_survive_files_pickles_and_compression(tmp_path, estimator):
    X, y = rows(80)
    model = estimator(random_state=0).fit(X, y)
    assert model.predict_interval(X).shape == (80, 2)
    model.save(tmp_path / "model.kgm")
    for copy in (kg.load(tmp_path / "model.kgm"), pickle.loads(pickle.dumps(model))):
        assert copy.validation_score_ == model.validation_score_
        np.testing.assert_array_equal(copy.loo_predictions_, model.loo_predictions_)
        np.testing.assert_array_equal(copy.predict_interval(X), model.predict_interval(X))
        copy.calibrate_coverage(X, y)
        np.testing.assert_array_equal(copy.loo_predictions_, model.loo_predictions_)
    if estimator is kg.KernelRegressor:
        for small in (model.compress(60), copy.compress(60)):
            assert small.validation_score_.n_rows == 80
            assert not hasattr(small, "loo_predictions_")


def test_judges_of_quantiles_survive_files_targeted_of_one_column(tmp_path):
    X, y = rows(60)
    model = clone(SPLIT[1]).fit(X, y[:, None]).calibrate_coverage(X, y[:, None])
    model.save(tmp_path / "model.kgm")
    copy = kg.load(tmp_path / "model.kgm")
    assert copy.validation_score_ == model.validation_score_
    np.testing.assert_array_equal(copy.predict_interval(X), model.predict_interval(X))


def test_several_outputs_and_sources_have_bounds():
    X, y = rows(90)
    model = kg.KernelRegressor(solver="direct", **FIXED).fit(X, np.stack([y, -y], axis=1))
    bounds = model.predict_interval(X)
    assert bounds.shape == (90, 2, 2)
    np.testing.assert_allclose(bounds[:, 0, 0], -bounds[:, 1, 1], atol=1e-5)
    np.testing.assert_allclose(model.predict_interval(kg.ArraySource(X)), bounds, rtol=1e-6)


def test_a_stream_is_judged_by_its_latest_rows_before_they_are_learned(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 2))
    y = X @ [3.0, 1.0] + 0.1 * rng.standard_normal(5000)
    model, before = kg.KernelRegressor(solver="dsg", **FIXED), []
    for start in range(0, 3000, 100):
        own = slice(start, start + 100)
        before.append(model.predict(X[own]) if start else y[own])
        model.partial_fit(X[own], y[own, None] if start else y[own])
        if start == 2500:
            model.save(tmp_path / "model.kgm", resumable=True)
            model = kg.load(tmp_path / "model.kgm")
    score, rmse = model.validation_score_, model.validation_score_.measures[1]
    assert score.n_rows == 1000
    expected = root_mean_squared_error(y[2000:3000], np.concatenate(before)[2000:])
    assert rmse.value == pytest.approx(expected, rel=1e-5)
    low, high = model.predict_interval(X[3000:]).T
    assert np.mean((low <= y[3000:]) & (y[3000:] <= high)) == pytest.approx(0.9, abs=0.03)
    labels = kg.KernelClassifier(solver="dsg", **FIXED).partial_fit(X[:50], y[:50] > 0)
    for start in range(50, 200, 50):
        labels.partial_fit(X[start : start + 50], y[start : start + 50] > 0)
    assert [m.name for m in labels.validation_score_.measures] == ["log loss", "error rate"]
    assert labels.validation_score_.n_rows == 150


def test_rows_for_validation_judge_first_and_without_any_there_is_a_reason():
    X, y = rows(200)
    model = kg.KernelRegressor(solver="direct", **FIXED)
    model.fit(X[:100], y[:100], X_val=X[100:], y_val=y[100:])
    assert model.validation_score_.score == pytest.approx(model.score(X[100:], y[100:]))
    matrix = kg.KernelRegressor(kernel="precomputed", alpha=0.1).fit(X @ X.T, y)
    line = kg.LinearRegressor().fit(X, y)
    assert line.validation_score_ is matrix.validation_score_ is None
    raises(CapabilityError, "calibrate_coverage", line.predict_interval, X)
    with pytest.raises(AttributeError, match="exact fit"):
        line.loo_predictions_  # noqa: B018
    line.calibrate_coverage(X[:20], y[:20])
    raises(ValueError, "needs 99 rows", line.predict_interval, X, 0.99)
