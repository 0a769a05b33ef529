"""Shapley values, gradients, partial dependence and importances, against their definitions."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_diabetes, load_iris
from sklearn.feature_selection import RFE, SelectFromModel

import kernelgrad as kg
from cases import every, raises
from draws import normal
from kernelgrad.compute.threads import set_num_threads
from kernelgrad.functions import ExactKernel, InputScaling, SupportExpansion, attributions
from kernelgrad.kernels import Cauchy, Gaussian, Laplacian, Matern, RootLaplacian
from plain import plain_classifier, plain_regressor

KERNELS = [
    Gaussian(0.3), Laplacian(0.3), Cauchy(0.5), Matern(0.7, 0.3), Matern(2.5, 0.3),
    0.6 * Matern(2.5, 0.2) + 0.4 * RootLaplacian(0.5, column_weights=[1.0, 0.5, 2.0, 1.0]),
    Matern(0.5, 0.2) + Laplacian(0.5, column_weights=[1.0, 0.5, 2.0, 1.0]),
    Gaussian(0.2) * Laplacian(0.1),
]  # fmt: skip
SCALING = InputScaling(
    centre=np.array([0.1, 0.0, -0.2, 0.0]), scale=np.array([1.0, 2.0, 0.5, 1.0]),
    limit=np.full(4, 3.0), metric=np.array([1.0, 0.3, 0.8, 0.5]),
    warp=np.stack([np.tile([[-2.0], [0.4], [2.0]], 4), np.tile([[-1.0], [0.0], [2.0]], 4)]),
)  # fmt: skip
GROUPS = np.array([0, 1, 0, 2])


def function(kernel, scaling=SCALING, d=4):
    """Return a function of two outputs in float64, with random coefficients."""
    rng = np.random.default_rng(1)
    exact = ExactKernel(kernel, d, scaling, precise=True)
    rows = exact.prepare(rng.standard_normal((30, d)))
    return SupportExpansion(exact, rows, rng.standard_normal((30, 2)), np.array([0.5, -1.0]))


def shapley(f, x, background, groups):
    """Return the values and the base of one row by all coalitions and all pairs of rows."""
    P, worth = groups.max() + 1, {}
    for members in itertools.product((False, True), repeat=P):
        choices = [[x] if inside else background for inside in members]
        rows = [
            np.select([groups == p for p in range(P)], list(drawn))
            for drawn in itertools.product(*choices)
        ]
        worth[members] = f(np.array(rows)).mean(axis=0)
    values = np.zeros((P, len(worth[members])))
    for p, members in itertools.product(range(P), worth):
        if not members[p]:
            size, more = sum(members), tuple(i == p or m for i, m in enumerate(members))
            weight = 1 / (P * math.comb(P - 1, size))
            values[p] += weight * (worth[more] - worth[members])
    return values, worth[(False,) * P]


@every("kernel", KERNELS)
def test_values_are_those_of_all_coalitions(kernel):
    f, (X, background) = function(kernel), np.split(normal(5, 4), [2])
    for groups in (np.arange(4), GROUPS):
        P = groups.max() + 1
        values, base, error = attributions.shapley_values(f, X, background, groups, P)
        for x, own in zip(X, values, strict=True):
            expected, none = shapley(f.raw_prediction, x, background, groups)
            np.testing.assert_allclose(own, expected, atol=2e-6)
            np.testing.assert_allclose(base, none, atol=2e-6)
        np.testing.assert_allclose(base + values.sum(axis=1), f.raw_prediction(X), atol=1e-12)
        assert error < 1e-6


def test_values_of_many_columns():
    f = function(0.5 * Gaussian(0.1) + 0.5 * Laplacian(0.1), InputScaling(), 8)
    X, background = np.split(normal(3, 8), [1])
    values, _, error = attributions.shapley_values(f, X, background, np.arange(8), 8)
    expected = shapley(f.raw_prediction, X[0], background, np.arange(8))[0]
    np.testing.assert_allclose(values[0], expected, atol=1e-12)
    assert error < 1e-12


@every("nu", [0.3, 0.5, 1.0, 1.5, 2.5, 7.0, 40.0])
def test_a_matern_kernel_is_a_mixture_of_gaussians(nu):
    c, w = attributions.scale_mixture(nu)
    t = np.append(0.0, np.logspace(-14, 4, 2000))
    exact = Matern(nu, 0.5)._of_scaled(np.sqrt(t))
    assert np.abs(np.exp(-np.outer(t, c)) @ w - exact).max() < 2e-7
    assert w.min() > 0


@every("kernel", KERNELS)
def test_gradients_are_limits_of_differences(kernel):
    matrix = np.array([[1.0, 0.2], [0.0, 0.5], [0.3, 0.0], [0.1, 0.1]])
    ranks = InputScaling(knots=np.sort(normal(257, 4), axis=0))
    for scaling in (SCALING, InputScaling(), ranks):
        f, X, h = function(kernel, scaling), 0.7 * normal(3, 4), 1e-5
        slopes = attributions.gradients(f, X)
        for j in range(4):
            step = h * (np.arange(4) == j)
            ends = f.raw_prediction(X + step) - f.raw_prediction(X - step)
            np.testing.assert_allclose(slopes[:, j], ends / (2 * h), rtol=2e-5, atol=2e-6)
    if isinstance(kernel, Gaussian):  # a matrix mixes columns
        f = function(kernel, InputScaling(metric=matrix))
        step = np.array([0.0, h, 0.0, 0.0])
        ends = f.raw_prediction(X + step) - f.raw_prediction(X - step)
        np.testing.assert_allclose(attributions.gradients(f, X)[:, 1], ends / (2 * h), 1e-5)


@every("kernel", KERNELS)
def test_dependence_is_a_mean_over_the_background(kernel):
    f, (X, background) = function(kernel), np.split(normal(8, 4), [3])
    values = attributions.partial_dependence(f, X, background, GROUPS == 0)
    for x, own in zip(X, values, strict=True):
        rows = np.where(GROUPS == 0, x, background)
        np.testing.assert_allclose(own, f.raw_prediction(rows).mean(axis=0), atol=2e-6)


X, Y = load_diabetes(return_X_y=True)
FRAME = pd.DataFrame(
    {
        "age": np.where(np.arange(200) % 7, 100 * X[:200, 0], np.nan),
        "bmi": X[:200, 2],
        "town": np.array(["a", "b", "c"])[np.arange(200) % 3],
        "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(200), "D"),
    }
)
TARGET = Y[:200] + 40 * (FRAME["town"] == "b")


@pytest.fixture(scope="module")
def tabular():
    return kg.KernelRegressor(effort="fast", loss="squared").fit(FRAME, TARGET)


def test_tables_are_explained_in_their_own_columns(tabular):
    told = tabular.explain(FRAME[:5])
    assert told.feature_names == list(FRAME)
    assert told.values.shape == told.data.shape == (5, 4) == (len(told), 4)
    f = tabular.predict(FRAME[:5])
    np.testing.assert_allclose(told.base_values + told.values.sum(axis=1), f)
    town = told.values[:, 2]
    assert town[1] > 5 > max(town[0], town[2])
    # one background row changes nothing of itself
    same = tabular.explain(FRAME[:1], background=FRAME[:1])
    np.testing.assert_allclose(same.values, 0.0, atol=1e-4)
    slopes = tabular.gradient(FRAME[:7])
    assert np.isnan(slopes).sum(axis=0).tolist() == [1, 0, 7, 0]
    ends = [tabular.predict(FRAME[1:7].assign(bmi=FRAME["bmi"] + s)) for s in (-2e-3, 2e-3)]
    np.testing.assert_allclose(slopes[1:, 1], (ends[1] - ends[0]) / 4e-3, rtol=0.1)
    curve = tabular.partial_dependence(FRAME[:3], "town", background=FRAME)
    rows = [FRAME.assign(town=level) for level in "abc"]
    expected = [tabular.predict(row).mean() for row in rows]
    np.testing.assert_allclose(curve, expected, rtol=1e-5)
    raises(ValueError, "did you mean 'town'", tabular.partial_dependence, FRAME, "twon")
    raises(TypeError, "if not a name, must", tabular.partial_dependence, FRAME, ["town"])
    assert "1 category, 1 date; gaps in 1" in tabular.summary()


def test_means_of_processes_are_explained():
    model = kg.KernelGaussianProcessRegressor(gamma=1.0).fit(X, Y)
    told = model.explain(X[:3])
    np.testing.assert_allclose(told.values.sum(1) + told.base_values, model.predict(X[:3]))
    assert model.gradient(X[:2]).shape == (2, 10)
    moved = np.where(np.arange(10) == 2, X[:3], X[5])
    dependence = model.partial_dependence(X[:3], 2, background=X[5:6])
    np.testing.assert_allclose(dependence, model.predict(moved), rtol=1e-6)


def test_classes_and_threads(tmp_path):
    x, y = load_iris(return_X_y=True)
    model = plain_classifier(random_state=0).fit(x, y)
    told = model.explain(x[:10])
    assert (told.values.shape, told.base_values.shape) == ((10, 4, 3), (10, 3))
    f = model.decision_function(x[:10])
    np.testing.assert_allclose(told.base_values + told.values.sum(axis=1), f)
    set_num_threads(1)
    np.testing.assert_array_equal(model.explain(x[:10]).values, told.values)
    model.save(tmp_path / "m.kgm")
    loaded = kg.load(tmp_path / "m.kgm")
    np.testing.assert_array_equal(loaded.explain(x[:10]).values, told.values)
    np.testing.assert_array_equal(loaded.feature_importances_, model.feature_importances_)


def test_what_cannot_be_explained():
    features = plain_regressor(solver="dsg", max_iter=2).fit(X, Y)
    matrix = plain_regressor(metric=np.eye(10)[:, :2]).fit(X, Y)
    product = plain_regressor(kernel="polynomial").fit(X, Y)
    for model, why in (
        (features, "has random features"), (matrix, "is a matrix"), (product, "is no sum of"),
    ):  # fmt: skip
        raises(kg.CapabilityError, why, model.explain, X[:1])
        assert model.feature_importances_.sum() == pytest.approx(1)
    with pytest.raises(kg.CapabilityError, match="up to 1000 columns"):
        plain_regressor().fit(np.eye(30, 1001), Y[:30]).explain(np.eye(1, 1001))
    model = plain_regressor(kernel="precomputed").fit(X @ X.T, Y)
    with pytest.raises(AttributeError, match="its kernel is precomputed"):
        _ = model.feature_importances_


def test_shares_of_the_variance(tmp_path):
    """Columns that are independent and add up have the shares of their own variances."""
    x = normal(1000, 3)
    y = 1e-3 * (x[:, 0] + 2 * x[:, 1])
    models = [
        kg.LinearRegressor(alpha=1e-9), kg.KernelRegressor(effort="fast"),
        kg.KernelRegressor(kernel="rbf", gamma=0.02, alpha=1e-6, solver="dsg", max_iter=30),
    ]  # fmt: skip
    for model in models:
        shares = model.fit(x, y).feature_importances_
        np.testing.assert_allclose(shares, [0.2, 0.8, 0.0], atol=0.05)
        model.save(tmp_path / "m.kgm")
        kept = kg.load(tmp_path / "m.kgm").feature_importances_
        np.testing.assert_array_equal(kept, shares)
    constant = plain_regressor().fit(x[:50], np.ones(50))
    assert not constant.feature_importances_.any()
    assert not constant.explain(x[:2]).values.any()
    sparse = sp.random(300, 2000, 0.01, format="csr", random_state=0)
    y = sparse[:, 3].toarray().ravel() + 0.01 * normal(300, 1).ravel()
    wide = plain_regressor(kernel="rbf", gamma=0.1).fit(sparse, y)
    assert np.argmax(wide.feature_importances_) == 3
    linear = kg.LinearRegressor(alpha=1e-6).fit(sparse, y)
    dense = kg.LinearRegressor(alpha=1e-6).fit(sparse.toarray(), y)
    shares = [m.feature_importances_ for m in (linear, dense)]
    np.testing.assert_allclose(*shares, rtol=1e-4, atol=1e-6)


def test_importances_of_any_fit_select_columns():
    model = kg.KernelRegressor(effort="fast", random_state=0)
    kept = SelectFromModel(model).fit(X, Y).get_support()
    assert kept[[2, 8]].all()
    assert kept.sum() < 6
    rest = RFE(model, n_features_to_select=8, step=2).fit(X[:150], Y[:150])
    assert rest.support_[[2, 8]].all()


def test_a_summary_and_a_short_history(tabular):
    text, history = tabular.summary(), tabular.history_
    assert len(text.splitlines()) < 16
    for part in ("200 rows, 4 columns", "matern", history["metric_reason"], "seconds"):
        assert part in text
    assert tabular._repr_html_().startswith("<pre>KernelRegressor\n")
    assert not kg.KernelRegressor()._repr_html_().startswith("<pre>")
    assert tabular._repr_mimebundle_()["text/html"].startswith("<pre>KernelRegressor\n")
    assert len(repr(history).splitlines()) == len(history)
    assert history == dict(history)
    assert "'iteration': [1, last 1]" in repr(history)


def test_displays_draw_what_was_explained(tabular):
    plt = pytest.importorskip("matplotlib.pyplot")
    from kernelgrad.plotting import ExplanationDisplay

    told = tabular.explain(FRAME[:40])
    assert repr(told) == "Explanation(values=(40, 4), base_values=(40,), data=(40, 4))"
    bars = ExplanationDisplay(explanation=told, kind="waterfall", max_features=2).plot()
    widths = [bar.get_width() for bar in bars.artists_]
    assert len(widths) == 3
    assert sum(widths) == pytest.approx(told.values[0].sum())
    assert bars.ax_.get_yticklabels()[-1].get_text() == "all others (2)"
    swarm = ExplanationDisplay.from_estimator(tabular, FRAME[:40])
    assert swarm.ax_.get_yticklabels()[0].get_text() in FRAME
    assert all(len(points.get_offsets()) == 40 for points in swarm.artists_)
    heights = swarm.artists_[0].get_offsets()[:, 1]
    assert np.abs(heights).max() <= 0.4
    town = ExplanationDisplay(explanation=told, feature="town").plot()
    x, y = town.artists_[0].get_offsets().T
    np.testing.assert_array_equal(y, told.values[:, 2])
    np.testing.assert_array_equal(np.round(x), np.arange(40) % 3)
    with pytest.raises(ValueError, match="needs a feature"):
        ExplanationDisplay(explanation=told, kind="dependence")
    plt.close("all")
