"""Learning curves and importances of columns."""

import sys

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from sklearn.base import BaseEstimator  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402

from kernelgrad.plotting import LearningCurveDisplay, plot_feature_importances  # noqa: E402


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
    with pytest.raises(ValueError, match="have 2, 1 and 2 entries"):
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
        plot_feature_importances(weighted([1.0]))


def weighted(importances, names=None):
    model = Model().fit(history())
    model.feature_importances_ = np.asarray(importances)
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    return model


def drawn(ax):
    """Return names and lengths of the bars from top to bottom."""
    bars = sorted(ax.patches, key=lambda bar: bar.get_y(), reverse=not ax.yaxis_inverted())
    labels = [text.get_text() for text in ax.get_yticklabels()]
    return labels, [bar.get_width() for bar in bars]


def test_importances_of_columns(tmp_path):
    ax = plot_feature_importances(weighted([0.1, 0.6, 0.0, 0.3]))
    assert drawn(ax) == (["x1", "x3", "x0", "x2"], [0.6, 0.3, 0.1, 0.0])
    assert ax.get_ylabel() == "Column"
    assert ax.get_xlabel() == "Share of the squared weights"
    names = ["age", "height", "place", "a very long name of a column of some table"]
    ax = plot_feature_importances(weighted([0.1, 0.6, 0.0, 0.3], names), max_features=2)
    assert drawn(ax) == ([names[1], names[3]], [0.6, 0.3])
    assert ax.get_ylabel() == "Column (2 of 4)"
    path = tmp_path / "importances.png"
    ax.figure.savefig(path)
    assert path.stat().st_size > 5_000
    box = ax.get_tightbbox()
    assert box.x0 >= 0  # long names are in the picture
    many = plot_feature_importances(weighted(np.full(50, 0.02)), max_features=None)
    assert len(many.patches) == 50
    assert many.figure.get_figheight() > 10


def test_importances_on_axes_of_the_user_and_with_given_names():
    _, ax = plt.subplots()
    assert plot_feature_importances(weighted([0.2, 0.8]), names=["a", "b"], ax=ax) is ax
    assert drawn(ax)[0] == ["b", "a"]
    model = weighted([0.2, 0.8])
    with pytest.raises(ValueError, match="names has 1 entries for 2 columns"):
        plot_feature_importances(model, names=["a"])
    with pytest.raises(ValueError, match="at least 1 or None, got 0"):
        plot_feature_importances(model, max_features=0)
    with pytest.raises(NotFittedError):
        plot_feature_importances(Model())
