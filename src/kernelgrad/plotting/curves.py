"""Learning curves, importances and errors against time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone, is_classifier
from sklearn.utils import resample
from sklearn.utils.validation import check_is_fitted

from kernelgrad.plotting.display import (
    COLORS,
    Display,
    columns_of_one_length,
    curve_style,
    flat_column,
)
from kernelgrad.types import Float64Array
from kernelgrad.validation import check_int, check_name, check_real

_X_LABELS = {
    "seconds": "Training time (s)",
    "iteration": "Iteration",
    "epoch": "Epoch",
    "rows_seen": "Rows seen",
    "n_random_features": "Random features",
}
# Marks the second y axis of a display, so that the next display on the same axes shares it.
_SCORE_AXES = "kernelgrad score"
_INCHES = 0.25  # of a bar
_ERRORS = {  # what is 1 less a score
    "accuracy": (1.0, "Validation error (share of wrong classes)"),
    "r2": (1.0, "Validation error (share of the variance)"),
}


def _score_axes(ax: Any) -> Any:
    """Return the right y axis that an earlier display gave to `ax`, or None."""
    place = ax.get_position().bounds
    for other in ax.get_shared_x_axes().get_siblings(ax):
        if other.get_label() == _SCORE_AXES and other.get_position().bounds == place:
            return other
    return None


def _check_keys(history: Mapping[str, Any], *keys: str) -> None:
    """Raise if a history has no column of these names."""
    missing = [key for key in keys if key not in history]
    if missing:
        raise ValueError(
            f"The history has no {' and no '.join(missing)}; pass the history_ of a fitted "
            "kernelgrad estimator."
        )


class LearningCurveDisplay(Display):
    """Training loss and validation score over the course of a fit.

    Create it by `from_estimator` or `from_history`. If both curves are drawn, the loss has the
    left y axis and the score the right one.

    Parameters
    ----------
    x : array-like of shape (n_points,)
        Horizontal coordinate.
    train_loss : array-like of shape (n_points,)
        Training loss; None or NaN where it was not measured.
    validation_score : array-like of shape (n_points,), default=None
        Validation score; None or NaN where it was not measured.
    score_name : str, default=None
        Name of the score.
    x_name : str, default="seconds"
        Meaning of `x`: "seconds", "iteration", "epoch", "rows_seen" or "n_random_features".
    name : str, default=None
        Prefix of the labels of the curves, which distinguishes several displays.
    rivals : mapping of str to float, default=None
        Scores of other models on the same rows by name, drawn as horizontal lines.

    Attributes
    ----------
    score_ax_ : matplotlib Axes or None
        The axes of the score: the right ones if there is a loss, else `ax_`; None without a
        score.
    lines_ : list of matplotlib Line2D
        The curves that are drawn: loss, score, rivals.
    """

    def __init__(
        self,
        *,
        x: npt.ArrayLike,
        train_loss: npt.ArrayLike | Sequence[float | None],
        validation_score: npt.ArrayLike | Sequence[float | None] | None = None,
        score_name: str | None = None,
        x_name: str = "seconds",
        name: str | None = None,
        rivals: Mapping[str, float] | None = None,
    ) -> None:
        self.x_name = check_name(x_name, _X_LABELS, "x")
        if validation_score is None:
            validation_score = np.full(len(flat_column(x, x_name)), np.nan)
        self.x, self.train_loss, self.validation_score = columns_of_one_length(
            **{x_name: x}, train_loss=train_loss, validation_score=validation_score
        )
        self.score_name = score_name
        self.name = name
        self.rivals = dict(rivals or {})

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        x: str = "seconds",
        ax: Any = None,
        name: str | None = None,
        rivals: Mapping[str, float] | None = None,
    ) -> Self:
        """Plot the history of a fitted estimator.

        Parameters
        ----------
        estimator : object
            A fitted kernelgrad estimator.
        x, name, rivals
            As in :meth:`from_history`.
        """
        check_is_fitted(estimator, "history_")
        return cls.from_history(estimator.history_, x=x, ax=ax, name=name, rivals=rivals)

    @classmethod
    def from_history(
        cls,
        history: Mapping[str, Any],
        *,
        x: str = "seconds",
        ax: Any = None,
        name: str | None = None,
        rivals: Mapping[str, float] | None = None,
    ) -> Self:
        """Plot a history.

        Parameters
        ----------
        history : dict
            The ``history_`` of an estimator: lists of equal length, optionally "score_name".
        x : str, default="seconds"
            `x_name` of the display.
        name, rivals
            As for the display.
        """
        check_name(x, _X_LABELS, "x")
        _check_keys(history, x, "train_loss")
        display = cls(
            x=history[x],
            train_loss=history["train_loss"],
            validation_score=history.get("validation_score"),
            score_name=history.get("score_name"),
            x_name=x,
            name=name,
            rivals=rivals,
        )
        return display.plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the curves, on the axes of an earlier display to compare fits."""
        has_loss = np.isfinite(self.x) & np.isfinite(self.train_loss)
        has_score = np.isfinite(self.x) & np.isfinite(self.validation_score)
        scores = has_score.any() or bool(self.rivals)
        if not (has_loss.any() or has_score.any()):
            raise ValueError(
                f"The history has {self.x.size} entries and no finite loss or score among "
                "them; fit for at least one iteration."
            )
        ax = self._open(ax, "Learning curve", _X_LABELS[self.x_name], "Train loss")
        right = _score_axes(ax)
        if right is None and has_loss.any() and scores:
            right = ax.twinx()
            right.set_label(_SCORE_AXES)
        axes = [ax] if right is None else [ax, right]
        self.score_ax_ = axes[-1] if scores else None
        self.lines_: list[Any] = []
        first = sum(len(a.get_lines()) for a in axes)
        prefix = f"{self.name}: " if self.name else ""
        if has_loss.any():
            self._draw(ax, has_loss, self.train_loss, f"{prefix}train loss", first, "-")
            positive = all(np.all(np.asarray(line.get_ydata()) > 0) for line in ax.get_lines())
            ax.set_yscale("log" if positive else "linear")
        if self.score_ax_ is not None:
            score = self.score_name or "score"
            if has_score.any():
                label, color = f"{prefix}validation {score}", first + len(self.lines_)
                self._draw(self.score_ax_, has_score, self.validation_score, label, color, "--")
            for rival, value in self.rivals.items():
                rival_color = curve_style(first + len(self.lines_))["color"]
                label = f"{rival}: {value:.4g}"
                line = self.score_ax_.axhline(value, color=rival_color, ls=":", label=label)
                self.lines_.append(line)
                self.score_ax_.autoscale_view()  # with a margin around them
            self.score_ax_.set_ylabel(f"Validation {score}")
        lines = [line for a in axes for line in a.get_lines()]
        lines = [line for line in lines if not str(line.get_label()).startswith("_")]
        for a in axes:
            if a.get_legend() is not None:
                a.get_legend().remove()
        # Between axes and title, where it hides no curve.
        place: Any = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "borderaxespad": 0}
        legend = axes[-1].legend(handles=lines, ncols=2, frameon=False, **place)
        height = legend.get_window_extent().height * 72 / self.figure_.dpi  # in points
        ax.set_title(ax.get_title(), pad=height + 4)
        return self

    def _draw(
        self,
        ax: Any,
        keep: npt.NDArray[np.bool_],
        y: Float64Array,
        label: str,
        n: int,
        line: str,
    ) -> None:
        marker = "o" if keep.sum() <= 30 else ""
        style = {"linestyle": line, "marker": marker, "markersize": 4}
        style["color"] = COLORS[n % len(COLORS)]
        self.lines_ += ax.plot(self.x[keep], y[keep], label=label, **style)


class FeatureImportancesDisplay(Display):
    """Importances of the columns in the metric of a fitted estimator.

    Parameters
    ----------
    importances : array-like of shape (n_columns,)
        Shares of the columns.
    names : sequence of str
        Names of the columns.
    max_features : int or None, default=20
        Number of columns to draw, the most important ones first. With 20 the names are still
        legible. None draws all.

    Attributes
    ----------
    bars_ : matplotlib BarContainer
        One bar for each column that is drawn, the most important one first.
    """

    def __init__(
        self,
        *,
        importances: npt.ArrayLike,
        names: Sequence[str],
        max_features: int | None = 20,
    ) -> None:
        self.importances = flat_column(importances, "importances")
        n = self.importances.size
        if len(names) != n:
            raise ValueError(
                f"names has {len(names)} entries for {n} columns; give one for each."
            )
        if max_features is not None:
            check_int(max_features, "max_features", low=1)
        self.names = [str(name) for name in names]
        self.max_features = max_features

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        max_features: int | None = 20,
        names: Sequence[str] | None = None,
        ax: Any = None,
    ) -> Self:
        """Plot the ``feature_importances_`` of an estimator; a new figure adapts its height.

        Parameters
        ----------
        estimator : object
            A fitted kernelgrad estimator with ``feature_importances_``: shares of the squared
            weights of its metric, which sum to 1.
        max_features : int or None, default=20
            As for the display.
        names : sequence of str, default=None
            Names of all columns. None takes those of the table that was fitted, or else their
            numbers: "x0", "x1" and so on.
        """
        check_is_fitted(estimator)
        importances = np.asarray(estimator.feature_importances_)
        if names is None:
            numbers = [f"x{j}" for j in range(len(importances))]
            names = getattr(estimator, "feature_names_in_", numbers)
        display = cls(importances=importances, names=names, max_features=max_features)
        return display.plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the bars."""
        shown = np.argsort(-self.importances, kind="stable")[: self.max_features]
        n, label = len(shown), "Column"
        if n < self.importances.size:
            label = f"Column ({n} of {self.importances.size})"
        size = 6.4, max(2.4, 1.2 + _INCHES * n)
        ax = self._open(
            ax, "Importances of the columns", "Share of the squared weights", label, size
        )
        ax.grid(visible=False, axis="y")
        self.bars_ = ax.barh(range(n), self.importances[shown], color=COLORS[0])
        ax.set_yticks(range(n), [self.names[j] for j in shown])
        ax.set_ylim(n - 0.5, -0.5)
        return self


class ErrorTimeDisplay(Display):
    """Test error against the time of fits, for several estimators.

    With `from_estimator` each point is a fit on a random fraction of the training rows, and the
    last one on all rows. With `from_history` each point is an iteration of one fit. A curve
    below and to the left of another has a smaller error for the same time. To compare
    estimators pass the axes of the first display to the next.

    Parameters
    ----------
    seconds : array-like of shape (n_points,)
        Times of the fits.
    error : array-like of shape (n_points,)
        Their test errors.
    error_name : str, default="Test error"
        Label of the vertical axis, with the unit if there is one.
    name : str, default=None
        Label of the curve.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The curve.
    """

    def __init__(
        self,
        *,
        seconds: npt.ArrayLike,
        error: npt.ArrayLike,
        error_name: str = "Test error",
        name: str | None = None,
    ) -> None:
        self.seconds, self.error = columns_of_one_length(seconds=seconds, error=error)
        self.error_name = error_name
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        X_test: Any,
        y_test: Any,
        train_sizes: Sequence[float] = (0.1, 0.3, 1.0),
        metric: Callable[[Any, Any], float] | None = None,
        random_state: Any = 0,
        ax: Any = None,
        name: str | None = None,
    ) -> Self:
        """Fit clones on increasing fractions of the rows, measure and plot.

        The time does not include compiling and loading: the smallest fit is run once before.

        Parameters
        ----------
        estimator : estimator
            An estimator of kernelgrad, scikit-learn or with the same interface. It is cloned.
        X, y : array-like or DataFrame, array-like
            Training rows and targets.
        X_test, y_test : array-like or DataFrame, array-like
            Rows and targets for the error.
        train_sizes : sequence of floats in (0, 1], default=(0.1, 0.3, 1.0)
            Fractions of the training rows; three show how time and error scale.
        metric : callable of (y_true, y_pred), default=None
            The error, which is better if smaller; its ``__name__`` is the label. None means the
            share of wrong classes for classifiers, else the root mean squared error.
        random_state : int, RandomState instance or None, default=0
            Seed of the choice of rows; by default it is the same for all displays.
        name : str, default=None
            Label of the curve; by default the name of the estimator's class.
        """
        from sklearn.metrics import root_mean_squared_error, zero_one_loss

        from kernelgrad.compute.compiling import clock

        classes = is_classifier(estimator)
        parts = sorted(
            check_real(size, "a train size", low=0, low_open=True, high=1)
            for size in train_sizes
        )
        if not parts:
            raise ValueError("train_sizes is empty; give at least one, such as (1.0,).")
        label = "Test error (share of wrong classes)"
        if metric is not None:
            label = getattr(metric, "__name__", "error").replace("_", " ")
            label = f"Test {label}"
        elif not classes:
            label = "Test root mean squared error (unit of y)"
        measure = metric or (zero_one_loss if classes else root_mean_squared_error)
        seconds, errors = [], []
        for i, part in enumerate([parts[0], *parts]):
            rows = X, y
            if part < 1.0:
                rows = resample(
                    X, y, replace=False, n_samples=max(1, round(part * len(y))),
                    stratify=y if classes else None, random_state=random_state,
                )  # fmt: skip
            model, start = clone(estimator), clock()
            model.fit(*rows)
            if i:  # the first one warms up
                seconds.append(clock() - start)
                errors.append(float(measure(y_test, model.predict(X_test))))
        name = name or type(estimator).__name__
        return cls(seconds=seconds, error=errors, error_name=label, name=name).plot(ax=ax)

    @classmethod
    def from_history(
        cls, history: Mapping[str, Any], *, ax: Any = None, name: str | None = None
    ) -> Self:
        """Plot the error on validation rows after each iteration of one fit.

        Parameters
        ----------
        history : dict
            The ``history_`` of an estimator that was fitted with ``X_val`` and ``y_val``, or
            with ``early_stopping=True``.
        name : str, default=None
            Label of the curve; by default the name of the solver.
        """
        _check_keys(history, "seconds", "validation_score")
        score = flat_column(history["validation_score"], "validation_score")
        seen = np.isfinite(score)
        if not seen.any():
            raise ValueError(
                "The history has no score; give X_val and y_val to `fit`, or set "
                "early_stopping=True."
            )
        one, label = _ERRORS.get(history.get("score_name", ""), (0.0, "Validation loss"))
        return cls(
            seconds=flat_column(history["seconds"], "seconds")[seen], error=one - score[seen],
            error_name=label, name=name or history.get("solver"),
        ).plot(ax=ax)  # fmt: skip

    def plot(self, ax: Any = None) -> Self:
        """Draw the curve."""
        from matplotlib.ticker import LogLocator

        ax = self._open(ax, "Test error against time", "Seconds of the fit", self.error_name)
        before = len(ax.get_lines())
        (self.line_,) = ax.plot(
            self.seconds, self.error, label=self.name, **curve_style(before)
        )
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_formatter("")
        if self.name:
            ax.legend()
        return self
