"""Displays: what is drawn, with which labels, and that nothing is cut off."""

import sys

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import pandas as pd  # noqa: E402
from sklearn.base import BaseEstimator, ClassifierMixin, OutlierMixin, RegressorMixin  # noqa: E402
from sklearn.dummy import DummyRegressor  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402

from kernelgrad import plotting  # noqa: E402
from kernelgrad.plotting import (  # noqa: E402
    FeatureImportancesDisplay,
    GaussianProcessIntervalDisplay,
    IntervalCoverageDisplay,
    LearningCurveDisplay,
    ResponseMapDisplay,
    SearchDisplay,
)


class Model(BaseEstimator):
    def __init__(self, importances=(1.0,)):
        self.importances = importances

    def fit(self, history):
        self.history_, self.feature_importances_ = history, np.asarray(self.importances)
        return self


def history(n=60, **columns):
    i = np.arange(1, n + 1)
    score = np.where(i % 5 == 0, 0.9 - 0.4 * np.exp(-i / 15), np.nan)
    return {
        "seconds": (i * 0.05).tolist(),
        "n_random_features": (i * 64).tolist(),
        "train_loss": (0.03 + np.exp(-i / 12)).tolist(),
        "validation_score": [None if np.isnan(s) else s for s in score],
        "score_name": "accuracy",
    } | columns


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def names_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def assert_whole(display):
    """Check that the figure holds all that is drawn, title and legend included."""
    figure = display.figure_
    figure.draw_without_rendering()
    box, page = figure.get_tightbbox(), figure.get_size_inches()
    assert (box.min >= 0).all()
    assert (box.max <= page).all()
    assert display.ax_.get_title()
    title = display.ax_.title.get_window_extent()
    legends = [ax.get_legend() for ax in figure.axes if ax.get_legend() is not None]
    assert not any(title.overlaps(legend.get_window_extent()) for legend in legends)


def test_parameters_are_documented_once_and_shown_everywhere():
    for name in plotting.__all__:
        cls = getattr(plotting, name)
        assert "figure_ : matplotlib Figure" in cls.__doc__
        for method in ("from_estimator", "plot"):
            text = getattr(cls, method).__doc__
            assert text.count("ax : matplotlib Axes, default=None\n    Where to plot") == 1
            assert text.endswith(f"Returns\n-------\n{name}\n    The display.")
    text = LearningCurveDisplay.from_history.__doc__
    assert text.index("history : dict") < text.index("x : str") < text.index("rivals : mapping")


@pytest.mark.parametrize("x", ["seconds", "n_random_features"])
def test_learning_curves(x):
    data = history()
    display = LearningCurveDisplay.from_estimator(Model().fit(data), x=x, rivals={"SVC": 0.905})
    loss, score, rival = display.lines_
    np.testing.assert_array_equal(loss.get_xydata().T, [data[x], data["train_loss"]])
    measured = [data[x][4::5], data["validation_score"][4::5]]
    np.testing.assert_array_equal(score.get_xydata().T, measured)
    assert set(rival.get_ydata()) == {0.905}
    assert display.ax_.get_yscale() == "log"
    assert display.ax_.get_ylabel() == "Train loss"
    assert display.score_ax_.get_ylabel() == "Validation accuracy"
    assert display.score_ax_.get_ylim()[1] > 0.915  # the rival is not on the frame
    labels = ["train loss", "validation accuracy", "SVC: 0.905"]
    assert names_of(display.score_ax_) == labels
    assert_whole(display)


def test_one_curve_alone():
    data = history(5, validation_score=[None] * 5, train_loss=[1.0, 0.5, 0.0, 0.0, 0.0])
    display = LearningCurveDisplay.from_history(data)
    assert display.score_ax_ is None
    assert len(display.lines_) == len(display.figure_.axes) == 1
    assert display.ax_.get_yscale() == "linear"  # as no logarithm shows a zero
    display = LearningCurveDisplay.from_history(
        history(train_loss=[None] * 60, score_name=None)
    )
    assert display.score_ax_ is display.ax_
    assert display.ax_.get_ylabel() == "Validation score"
    assert [line.get_label() for line in display.lines_] == ["validation score"]


def test_displays_on_the_same_axes_share_scales_and_legend():
    _, (left, right) = plt.subplots(1, 2, sharex=True)
    left.axhline(0.1)  # is not in the legend
    alone = LearningCurveDisplay.from_history(
        {k: v for k, v in history().items() if k != "validation_score"}, ax=left, name="a"
    )
    b = LearningCurveDisplay.from_history(history(), ax=left, name="b")
    c = LearningCurveDisplay.from_history(history(), ax=left, name="c")
    other = LearningCurveDisplay.from_history(history(), ax=right)
    assert b.ax_ is c.ax_ is left
    assert b.score_ax_ is c.score_ax_ is not other.score_ax_
    assert len(b.figure_.axes) == 4
    legends = [ax for ax in b.figure_.axes if ax.get_legend() is not None]
    assert legends == [c.score_ax_, other.score_ax_]
    losses = ["a: train loss", "b: train loss", "c: train loss"]
    assert names_of(c.score_ax_) == [
        *losses, "b: validation accuracy", "c: validation accuracy"
    ]  # fmt: skip
    assert len({line.get_color() for line in alone.lines_ + b.lines_ + c.lines_}) == 5


def importances(values, **options):
    return FeatureImportancesDisplay.from_estimator(Model(values).fit({}), **options)


def test_wrong_arguments_are_named(monkeypatch):
    with pytest.raises(NotFittedError, match="not fitted"):
        LearningCurveDisplay.from_estimator(Model())
    for match, wrong in (
        ("Unknown x 'minutes'; choose one of: epoch", {"x": "minutes"}),
        ("no seconds and no train_loss", {"history": {}}),
        ("0 entries and no finite loss", {"history": {"seconds": [], "train_loss": []}}),
    ):
        with pytest.raises(ValueError, match=match):
            LearningCurveDisplay.from_history(**{"history": history()} | wrong)
    with pytest.raises(ValueError, match="seconds 2, train_loss 1, validation_score 2"):
        LearningCurveDisplay(x=[1, 2], train_loss=[1.0])
    with pytest.raises(ValueError, match=r"train_loss must be a flat list.*\(1, 1\)"):
        LearningCurveDisplay(x=[1], train_loss=[[1.0]])
    with pytest.raises(ValueError, match="names has 1 entries for 2 columns"):
        importances([0.2, 0.8], names=["a"])
    with pytest.raises(ValueError, match="max_features must be at least 1, got 0"):
        importances([0.2, 0.8], max_features=0)
    assert not plt.get_fignums()
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install kernelgrad\[plot\]"):
        LearningCurveDisplay.from_history(history())


def test_importances_of_columns():
    _, ax = plt.subplots()
    ax.set_title("mine")
    display = importances([0.1, 0.6, 0.0, 0.3], ax=ax)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["x1", "x3", "x0", "x2"]
    assert [bar.get_width() for bar in display.bars_] == [0.6, 0.3, 0.1, 0.0]
    assert ax.yaxis_inverted()
    assert (display.ax_, ax.get_title()) == (ax, "mine")
    names = ["age", "height", "place", "a very long name of a column of some table"]
    display = importances([0.1, 0.6, 0.0, 0.3], names=names, max_features=2)
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == [names[1], names[3]]
    assert display.ax_.get_ylabel() == "Column (2 of 4)"
    assert_whole(display)
    many = importances(np.full(50, 0.02), max_features=None)
    assert len(many.bars_) == 50
    assert many.figure_.get_figheight() > 10


class Process(RegressorMixin, BaseEstimator):
    """A mean of x0 and a deviation of x1, and half of noise."""

    def predict(self, X, return_std=False, include_noise=False):
        X = np.asarray(X, float)
        return X[:, 0], X[:, 1] + 0.5 * include_noise


def test_interval_along_a_column():
    X = np.array([[0.0, 1.0], [2.0, 3.0], [10.0, 2.0]])
    draw = GaussianProcessIntervalDisplay.from_estimator
    display = draw(Process(), X, X[:, 0], level=0.5)
    np.testing.assert_allclose(display.x[[0, -1]], [-0.5, 10.5])
    np.testing.assert_array_equal(display.mean, display.x)
    np.testing.assert_array_equal(display.std, 2.5)  # the median of x1, and noise
    path = display.band_.get_paths()[0].vertices
    np.testing.assert_allclose(np.ptp(path[path[:, 0] == -0.5][:, 1]), 2 * 2.5 * 0.67449, 1e-5)
    assert "medians" in display.ax_.get_xlabel()
    assert_whole(display)
    frame = pd.DataFrame(X, columns=["a", "b"])
    named = draw(Process(), frame, feature="b", include_noise=False)
    np.testing.assert_array_equal(named.mean, 2.0)
    np.testing.assert_array_equal(named.std, named.x)
    with pytest.raises(ValueError, match="Unknown column 'c'; choose one of: a, b"):
        draw(Process(), frame, feature="c")
    with pytest.raises(ValueError, match="feature=2 is no column; they are 0 to 1"):
        draw(Process(), X, feature=2)


def test_coverage_of_intervals():
    y = np.random.default_rng(0).standard_normal(4000)
    exact = IntervalCoverageDisplay.from_predictions(y, 0 * y, np.ones(4000))
    assert np.abs(exact.share - exact.level).max() < 0.03
    (chance,) = exact.ax_.collections  # two standard errors on either side
    level, share = chance.get_paths()[0].vertices.T
    assert np.ptp(share[level == 0.5]) == pytest.approx(2 / np.sqrt(4000))
    X = np.stack([0 * y, np.full(4000, -0.25)], 1)  # with the noise .25: too narrow
    narrow = IntervalCoverageDisplay.from_estimator(Process(), X, y, ax=exact.ax_)
    assert (narrow.share < narrow.level / 2).all()
    assert_whole(narrow)


class Half(ClassifierMixin, BaseEstimator):
    """The first class where x0 + x1 is negative; other columns must be what they were."""

    classes_ = np.array(["no", "yes"])

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, X):
        assert set(X["text"]) == {"often"}
        return self.classes_[(np.asarray(X[["a", "b"]]).sum(axis=1) > 0).astype(int)]


@pytest.mark.parametrize("frame", [pd.DataFrame, pytest.importorskip("polars").DataFrame])
def test_map_of_classes(frame):
    a = np.array([-1.0, 0.5, 1.0])
    X = frame({"text": ["often", "often", "seldom"], "a": a, "b": a[::-1].copy()})
    y = np.array(["no", "yes", "-1"])
    display = ResponseMapDisplay.from_estimator(Half(), X, y, features=("a", 2), resolution=9)
    i, j = np.meshgrid(display.x1, display.x0, indexing="ij")
    np.testing.assert_array_equal(display.response[..., 1], i + j > 0)
    assert display.ax_.get_ylabel() == "b"
    assert names_of(display.ax_) == ["no label", "no", "yes"]
    assert [len(c.get_offsets()) for c in display.ax_.collections[-2:]] == [1, 1]
    assert_whole(display)
    with pytest.raises(ValueError, match="could not convert string"):
        ResponseMapDisplay.from_estimator(Half(), X, features=("text", "a"))


class Inside(OutlierMixin, BaseEstimator):
    def decision_function(self, X):
        return 1.5 - np.abs(X).max(axis=1)

    def predict(self, X):
        return np.where(self.decision_function(X) >= 0, 1, -1)


class Ratio(BaseEstimator):
    samples_ = np.array(["q", "p"])

    def predict(self, X):
        return np.exp2(10.0 * X[:, 0])


def test_maps_of_novelty_ratio_and_value():
    X = np.array([[-2.0, -1.0], [0.0, 0.0], [1.0, 2.0], [0.5, 0.5]])
    draw = ResponseMapDisplay.from_estimator
    novelty = draw(Inside(), X, resolution=20)
    assert [len(c.get_offsets()) for c in novelty.ax_.collections[-2:]] == [2, 2]
    np.testing.assert_allclose(novelty.surface_.norm.vmin, -novelty.surface_.norm.vmax)
    ratio = draw(Ratio(), X, np.array(["p", "q", "q", "q"]), resolution=20)
    assert [len(c.get_offsets()) for c in ratio.ax_.collections[-2:]] == [1, 3]
    ticks = [text.get_text() for text in ratio.colorbar_.ax.get_yticklabels()]
    assert ticks == ["1/64", "1/16", "1/4", "1", "4", "16", "64"]
    value = draw(DummyRegressor().fit(X, X[:, 0]), X, X[:, 0])
    assert value.kind == "value"
    for display in (novelty, ratio, value):
        assert_whole(display)
    with pytest.raises(ValueError, match="predicts 2 outputs"):
        draw(DummyRegressor().fit(X, X), X)


def test_kernels_that_a_search_compared():
    scores = {"equal weights": -1.0, "weights": -2.0, "Gaussian": -1.5}
    entries = [{"candidate": c, "score": s, "seconds": 0.5} for c, s in scores.items()]
    display = SearchDisplay.from_estimator(Model(None).fit({"metric": entries}))
    labels = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert labels == ["weights (0.5 s)", "Gaussian (0.5 s)", "equal weights (0.5 s)"]
    np.testing.assert_allclose(display.points_.get_xdata(), np.exp([-2.0, -1.5, -1.0]))
    assert display.ax_.get_ylim() == (2.5, -0.5)
    assert_whole(display)
    plain = SearchDisplay(candidates=["a"], errors=[0.5]).plot()
    assert [text.get_text() for text in plain.ax_.get_yticklabels()] == ["a"]
    with pytest.raises(ValueError, match="compared no kernels; leave metric"):
        SearchDisplay.from_estimator(Model(None).fit({}))
    with pytest.raises(ValueError, match="candidates 1, errors 2, seconds 1"):
        SearchDisplay(candidates=["a"], errors=[0.5, 1.0])
