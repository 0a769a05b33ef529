"""Displays: what is drawn, with which labels, and that nothing is cut off."""

import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from kernelgrad.plotting import LearningCurveDisplay

plt = pytest.importorskip("matplotlib.pyplot")


class Model(BaseEstimator):
    def fit(self, history):
        self.history_ = history
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
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[2, 1, 2\]"):
        LearningCurveDisplay(x=[1, 2], train_loss=[1.0])
    assert not plt.get_fignums()
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install kernelgrad\[plot\]"):
        LearningCurveDisplay.from_history(history())
