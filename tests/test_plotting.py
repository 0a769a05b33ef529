"""Displays: what is drawn, with which labels, and that nothing is cut off."""

import sys

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import pandas as pd  # noqa: E402
from sklearn.base import BaseEstimator, ClassifierMixin, OutlierMixin, RegressorMixin  # noqa: E402
from sklearn.dummy import DummyClassifier, DummyRegressor  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402

from kernelgrad.plotting import (  # noqa: E402
    ErrorTimeDisplay,
    FeatureImportancesDisplay,
    GaussianProcessIntervalDisplay,
    IntervalCoverageDisplay,
    LearningCurveDisplay,
    ResponseMapDisplay,
)


class Model(BaseEstimator):
    def fit(self, history):
        self.history_ = history
        return self


def history(n=60, shift=0.0, score_name="accuracy"):
    i = np.arange(1, n + 1)
    score = 0.5 + 0.4 * (1 - np.exp(-(i + 10 * shift) / 15))
    return {
        "iteration": i.tolist(),
        "epoch": (i / 10).tolist(),
        "seconds": (i * 0.05).tolist(),
        "rows_seen": (i * 256).tolist(),
        "n_random_features": (i * 64).tolist(),
        "step_size": (1 / np.sqrt(i)).tolist(),
        "train_loss": (0.03 + np.exp(-i / 12) + shift).tolist(),
        "validation_score": [s if k % 5 == 0 else None for k, s in zip(i, score, strict=True)],
        "score_name": score_name,
    }


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.mark.parametrize("x", ["seconds", "n_random_features"])
def test_both_curves(tmp_path, x):
    data = history()
    display = LearningCurveDisplay.from_estimator(Model().fit(data), x=x)
    loss, score = display.lines_
    np.testing.assert_array_equal(display.x, data[x])
    np.testing.assert_array_equal(loss.get_xdata(), data[x])
    np.testing.assert_array_equal(loss.get_ydata(), data["train_loss"])
    np.testing.assert_array_equal(score.get_xdata(), data[x][4::5])
    np.testing.assert_array_equal(score.get_ydata(), data["validation_score"][4::5])
    assert display.ax_.get_yscale() == "log"
    assert display.ax_.get_ylabel() == "Train loss"
    assert display.score_name == "accuracy"
    assert display.score_ax_.get_ylabel() == "Validation accuracy"
    assert display.ax_.get_xlabel()
    legend = [text.get_text() for text in display.score_ax_.get_legend().get_texts()]
    assert legend == ["train loss", "validation accuracy"]
    path = tmp_path / "curve.png"
    display.figure_.savefig(path)
    assert path.stat().st_size > 10_000


def test_one_curve_alone():
    data = history(5, score_name=None)
    for missing in (None, np.nan):
        data["validation_score"] = [missing] * 5
        display = LearningCurveDisplay.from_history(data)
        assert display.score_ax_ is None
        assert len(display.lines_) == len(display.figure_.axes) == 1
    del data["validation_score"], data["score_name"]
    data["train_loss"][3] = 0.0
    display = LearningCurveDisplay.from_history(data)
    assert len(display.lines_) == 1
    assert display.ax_.get_yscale() == "linear"  # as no logarithm shows a zero
    display = LearningCurveDisplay.from_history(
        history(score_name=None) | {"train_loss": [None] * 60}
    )
    assert display.score_ax_ is display.ax_
    assert display.ax_.get_ylabel() == "Validation score"
    assert display.lines_[0].get_label() == "validation score"
    assert display.ax_.get_yscale() == "linear"


def test_displays_on_the_same_axes_share_both_scales(tmp_path):
    _, (left, right) = plt.subplots(1, 2, sharex=True)
    a = LearningCurveDisplay.from_history(history(), ax=left, name="a")
    b = LearningCurveDisplay.from_history(history(shift=0.3), ax=a.ax_, name="b")
    other = LearningCurveDisplay.from_history(history(), ax=right)
    assert b.ax_ is left
    assert b.score_ax_ is a.score_ax_ is not other.score_ax_
    assert len(a.figure_.axes) == 4
    legend = [text.get_text() for text in b.score_ax_.get_legend().get_texts()]
    assert legend == [
        "a: train loss",
        "b: train loss",
        "a: validation accuracy",
        "b: validation accuracy",
    ]
    assert len({line.get_color() for line in a.lines_ + b.lines_}) == 4


@pytest.mark.parametrize("loss_alone_first", [True, False])
def test_one_legend_names_every_curve(loss_alone_first):
    both, alone = history(), history()
    del alone["validation_score"]
    order = [alone, both] if loss_alone_first else [both, alone]
    first = LearningCurveDisplay.from_history(order[0])
    second = LearningCurveDisplay.from_history(order[1], ax=first.ax_)
    legends = [a.get_legend() for a in second.figure_.axes if a.get_legend() is not None]
    assert [len(legend.get_texts()) for legend in legends] == [3]


def test_axes_of_the_user():
    _, ax = plt.subplots()
    ax.axhline(0.1)
    display = LearningCurveDisplay.from_history(history(), ax=ax)
    assert len(display.score_ax_.get_legend().get_texts()) == 2  # not the user's line
    assert ax.get_yscale() == "log"
    _, other = plt.subplots()
    assert display.plot(ax=other) is display
    assert display.ax_ is other
    assert display.figure_ is other.figure


def test_wrong_arguments_are_named():
    with pytest.raises(NotFittedError, match="not fitted"):
        LearningCurveDisplay.from_estimator(Model())
    with pytest.raises(ValueError, match="Unknown x 'minutes'; choose one of: epoch"):
        LearningCurveDisplay.from_history(history(), x="minutes")
    with pytest.raises(ValueError, match="no seconds and no train_loss"):
        LearningCurveDisplay.from_history({})
    with pytest.raises(ValueError, match="seconds 2, train_loss 1, validation_score 2"):
        LearningCurveDisplay(x=[1, 2], train_loss=[1.0])
    with pytest.raises(ValueError, match=r"train_loss must be a flat list.*\(1, 1\)"):
        LearningCurveDisplay(x=[1], train_loss=[[1.0]])
    with pytest.raises(ValueError, match="0 entries and no finite loss"):
        LearningCurveDisplay.from_history({"seconds": [], "train_loss": []})
    assert not plt.get_fignums()


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install kernelgrad\[plot\]"):
        LearningCurveDisplay.from_history(history())
    with pytest.raises(ImportError, match=r"pip install kernelgrad\[plot\]"):
        FeatureImportancesDisplay.from_estimator(weighted([1.0]))


def weighted(importances, names=None):
    model = Model().fit(history())
    model.feature_importances_ = np.asarray(importances)
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    return model


def drawn(display):
    """Return names and lengths of the bars from top to bottom."""
    ax = display.ax_
    bars = sorted(ax.patches, key=lambda bar: bar.get_y(), reverse=not ax.yaxis_inverted())
    labels = [text.get_text() for text in ax.get_yticklabels()]
    return labels, [bar.get_width() for bar in bars]


def test_importances_of_columns():
    display = FeatureImportancesDisplay.from_estimator(weighted([0.1, 0.6, 0.0, 0.3]))
    assert drawn(display) == (["x1", "x3", "x0", "x2"], [0.6, 0.3, 0.1, 0.0])
    assert display.ax_.get_ylabel() == "Column"
    assert display.ax_.get_xlabel() == "Share of the squared weights"
    names = ["age", "height", "place", "a very long name of a column of some table"]
    model = weighted([0.1, 0.6, 0.0, 0.3], names)
    display = FeatureImportancesDisplay.from_estimator(model, max_features=2)
    assert drawn(display) == ([names[1], names[3]], [0.6, 0.3])
    assert display.ax_.get_ylabel() == "Column (2 of 4)"
    assert whole(display)
    model = weighted(np.full(50, 0.02))
    many = FeatureImportancesDisplay.from_estimator(model, max_features=None)
    assert len(many.bars_) == 50
    assert many.figure_.get_figheight() > 10


def test_importances_on_axes_of_the_user_and_with_given_names():
    _, ax = plt.subplots()
    ax.set_title("mine")
    model = weighted([0.2, 0.8])
    display = FeatureImportancesDisplay.from_estimator(model, names=["a", "b"], ax=ax)
    assert display.ax_ is ax
    assert ax.get_title() == "mine"
    assert drawn(display)[0] == ["b", "a"]
    with pytest.raises(ValueError, match="names has 1 entries for 2 columns"):
        FeatureImportancesDisplay.from_estimator(model, names=["a"])
    with pytest.raises(ValueError, match="max_features must be at least 1, got 0"):
        FeatureImportancesDisplay.from_estimator(model, max_features=0)
    with pytest.raises(NotFittedError):
        FeatureImportancesDisplay.from_estimator(Model())


def whole(display):
    """Return whether a figure holds all that is drawn, title and legend included."""
    figure = display.figure_
    figure.draw_without_rendering()
    box, page = figure.get_tightbbox(), figure.get_size_inches()
    legends = [ax.get_legend() for ax in figure.axes if ax.get_legend() is not None]
    title = display.ax_.title.get_window_extent()
    apart = not any(title.overlaps(legend.get_window_extent()) for legend in legends)
    inside = (box.min >= 0).all() and (box.max <= page).all()
    return display.ax_.get_title() != "" and inside and apart


def test_learning_curves_with_rivals_are_whole():
    data = history()
    del data["validation_score"]
    display = LearningCurveDisplay.from_history(data, rivals={"SVC": 0.9, "LightGBM": 0.85})
    assert [line.get_label() for line in display.lines_[1:]] == ["SVC: 0.9", "LightGBM: 0.85"]
    assert set(display.lines_[1].get_ydata()) == {0.9}
    assert display.score_ax_ is not display.ax_
    assert whole(display)
    close = LearningCurveDisplay.from_history(history(), rivals={"SVC": 0.905})
    assert close.score_ax_.get_ylim()[1] > 0.915  # not on the frame


class Recorder:
    """Keeps how many rows each fit had, and how many of them were rare."""

    fits: list = []  # noqa: RUF012

    def fit(self, X, y):
        self.fits.append((len(X), list(y).count("rare")))
        return super().fit(X, y)


class Mean(Recorder, DummyRegressor):
    """Predicts the mean."""


class Common(Recorder, DummyClassifier):
    """Predicts the most frequent class."""


def test_error_against_time():
    X, y = np.zeros((100, 2)), np.arange(100.0)
    Recorder.fits.clear()
    display = ErrorTimeDisplay.from_estimator(
        Mean(), X, y, X_test=X[:4], y_test=y[:4], train_sizes=(1.0, 0.2), name="a"
    )
    assert [n for n, _ in Recorder.fits] == [20, 20, 100]  # the first one warms up
    assert display.seconds.shape == (2,)
    expected = np.sqrt(np.mean((y[:4] - y.mean()) ** 2))
    np.testing.assert_allclose(display.error[-1], expected)
    assert (display.seconds > 0).all()
    assert "unit of y" in display.ax_.get_ylabel()
    classes = np.repeat(["rare", "common"], [10, 90])
    other = ErrorTimeDisplay.from_estimator(
        Common(), X, classes, X_test=X, y_test=classes, ax=display.ax_
    )
    assert Recorder.fits[3:] == [(10, 1), (10, 1), (30, 3), (100, 10)]
    np.testing.assert_allclose(other.error, 0.1)
    legend = [text.get_text() for text in other.ax_.get_legend().get_texts()]
    assert legend == ["a", "Common"]
    assert display.line_.get_color() != other.line_.get_color()
    assert whole(other)
    with pytest.raises(ValueError, match=r"a train size must lie in .* got 1.5"):
        ErrorTimeDisplay.from_estimator(
            DummyRegressor(), X, y, X_test=X, y_test=y, train_sizes=[1.5]
        )


def test_error_against_time_of_one_fit():
    data = history() | {"solver": "dsg"}
    display = ErrorTimeDisplay.from_history(data)
    np.testing.assert_array_equal(display.seconds, data["seconds"][4::5])
    np.testing.assert_allclose(display.error, 1 - np.array(data["validation_score"][4::5]))
    assert display.line_.get_label() == "dsg"
    assert "wrong classes" in display.ax_.get_ylabel()
    loss = ErrorTimeDisplay.from_history(data | {"score_name": "negative loss"})
    np.testing.assert_allclose(loss.error, display.error - 1)
    with pytest.raises(ValueError, match="give X_val and y_val to `fit`"):
        ErrorTimeDisplay.from_history(data | {"validation_score": [None] * 60})


class Process(RegressorMixin, BaseEstimator):
    """A mean of x0 and a deviation of x1, and half of noise."""

    def predict(self, X, return_std=False, include_noise=False):
        X = np.asarray(X, float)
        return X[:, 0], X[:, 1] + 0.5 * include_noise


def test_interval_along_a_column():
    X = np.array([[0.0, 1.0], [2.0, 3.0], [10.0, 2.0]])
    display = GaussianProcessIntervalDisplay.from_estimator(Process(), X, X[:, 0], level=0.5)
    np.testing.assert_allclose(display.x[[0, -1]], [-0.5, 10.5])
    np.testing.assert_array_equal(display.mean, display.x)
    np.testing.assert_array_equal(display.std, 2.5)  # the median of x1, and noise
    path = display.band_.get_paths()[0].vertices
    np.testing.assert_allclose(np.ptp(path[path[:, 0] == -0.5][:, 1]), 2 * 2.5 * 0.67449, 1e-5)
    assert "medians" in display.ax_.get_xlabel()
    assert whole(display)
    frame = pd.DataFrame(X, columns=["a", "b"])
    named = GaussianProcessIntervalDisplay.from_estimator(
        Process(), frame, feature="b", include_noise=False
    )
    np.testing.assert_array_equal(named.mean, 2.0)
    np.testing.assert_array_equal(named.std, named.x)
    with pytest.raises(ValueError, match="Unknown column 'c'; choose one of: a, b"):
        GaussianProcessIntervalDisplay.from_estimator(Process(), frame, feature="c")
    with pytest.raises(ValueError, match="feature=2 is no column; they are 0 to 1"):
        GaussianProcessIntervalDisplay.from_estimator(Process(), X, feature=2)


def test_coverage_of_intervals():
    y = np.random.default_rng(0).standard_normal(4000)
    exact = IntervalCoverageDisplay.from_predictions(y, 0 * y, np.ones(4000))
    assert np.abs(exact.share - exact.level).max() < 0.03
    (chance,) = exact.ax_.collections  # two standard errors on either side
    x, y_of = chance.get_paths()[0].vertices.T
    assert np.ptp(y_of[x == 0.5]) == pytest.approx(2 / np.sqrt(4000))
    X = np.stack([0 * y, np.full(4000, -0.25)], 1)  # with the noise .25: too narrow
    narrow = IntervalCoverageDisplay.from_estimator(Process(), X, y, ax=exact.ax_)
    assert (narrow.share < narrow.level / 2).all()
    assert whole(narrow)


class Half(ClassifierMixin, BaseEstimator):
    """The first class where x0 + x1 is negative; other columns must be what they were."""

    classes_ = np.array(["no", "yes"])

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, X):
        if hasattr(X, "columns"):
            assert set(X["text"]) == {"often"}
            X = X[["a", "b"]]
        X = np.asarray(X)
        return self.classes_[(X[:, 0] + X[:, 1] > 0).astype(int)]


@pytest.mark.parametrize("frame", [pd.DataFrame, pytest.importorskip("polars").DataFrame])
def test_map_of_classes(frame):
    a = np.array([-1.0, 0.5, 1.0])
    X = frame({"text": ["often", "often", "seldom"], "a": a, "b": a[::-1].copy()})
    y = np.array(["no", "yes", "-1"])
    display = ResponseMapDisplay.from_estimator(Half(), X, y, features=("a", 2), resolution=9)
    i, j = np.meshgrid(display.x1, display.x0, indexing="ij")
    np.testing.assert_array_equal(display.response[..., 1], i + j > 0)
    assert display.ax_.get_ylabel() == "b"
    legend = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert legend == ["no label", "no", "yes"]
    assert [len(c.get_offsets()) for c in display.ax_.collections[-2:]] == [1, 1]
    assert whole(display)
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
    novelty = ResponseMapDisplay.from_estimator(Inside(), X, resolution=20)
    assert [len(c.get_offsets()) for c in novelty.ax_.collections[-2:]] == [2, 2]
    np.testing.assert_allclose(novelty.surface_.norm.vmin, -novelty.surface_.norm.vmax)
    far = ResponseMapDisplay.from_estimator(Inside(), 9 * X, resolution=20)
    assert far.surface_.norm.vmax == -far.response.min() > far.response.max()
    y = np.array(["p", "q", "q", "q"])
    ratio = ResponseMapDisplay.from_estimator(Ratio(), X, y, resolution=20)
    assert [len(c.get_offsets()) for c in ratio.ax_.collections[-2:]] == [1, 3]
    ticks = [text.get_text() for text in ratio.colorbar_.ax.get_yticklabels()]
    assert ticks == ["1/64", "1/16", "1/4", "1", "4", "16", "64"]
    value = ResponseMapDisplay.from_estimator(DummyRegressor().fit(X, X[:, 0]), X, X[:, 0])
    assert value.kind == "value"
    assert all(whole(display) for display in (novelty, ratio, value))
    several = DummyRegressor().fit(X, X)
    with pytest.raises(ValueError, match="predicts 2 outputs"):
        ResponseMapDisplay.from_estimator(several, X)
