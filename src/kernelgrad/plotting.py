"""Learning curves and importances of columns; they need matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from kernelgrad._typing import Float64Array
from kernelgrad._validation import check_name

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


def _column(values: npt.ArrayLike | Sequence[float | None], name: str) -> Float64Array:
    """Return a float column with NaN for None."""
    column = np.array(values, dtype=np.float64)
    if column.ndim != 1:
        raise ValueError(f"{name} must be a flat list of numbers, got shape {column.shape}.")
    return column


def _score_axes(ax: Any) -> Any:
    """Return the right y axis that an earlier display gave to `ax`, or None."""
    place = ax.get_position().bounds
    for other in ax.get_shared_x_axes().get_siblings(ax):
        if other.get_label() == _SCORE_AXES and other.get_position().bounds == place:
            return other
    return None


def _pyplot() -> Any:
    """Return matplotlib.pyplot."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError(
            "Plotting needs matplotlib; install it with `pip install kernelgrad[plot]`."
        ) from None
    return plt


def plot_feature_importances(
    estimator: Any,
    *,
    max_features: int | None = 20,
    names: Sequence[str] | None = None,
    ax: Any = None,
) -> Any:
    """Plot how much the columns count in the metric of a fitted estimator.

    Parameters
    ----------
    estimator : object
        A fitted kernelgrad estimator with ``feature_importances_``: shares of the squared
        weights of its metric, which sum to 1.
    max_features : int or None, default=20
        How many columns are drawn, the most important ones first; as many still have names
        that can be read. None draws all.
    names : sequence of str, default=None
        Names of all columns. None takes those of the table that was fitted, or else their
        numbers: "x0", "x1" and so on.
    ax : matplotlib Axes, default=None
        Where to plot; None makes a new figure, high enough for all names.

    Returns
    -------
    matplotlib Axes
        The axes, with one bar for each column.
    """
    check_is_fitted(estimator)
    importances = np.asarray(estimator.feature_importances_, np.float64)
    n = len(importances)
    if names is None:
        names = getattr(estimator, "feature_names_in_", [f"x{j}" for j in range(n)])
    if len(names) != n:
        raise ValueError(f"names has {len(names)} entries for {n} columns; give one for each.")
    if max_features is not None and max_features < 1:
        raise ValueError(f"max_features must be at least 1 or None, got {max_features}.")
    shown = np.argsort(-importances, kind="stable")[:max_features]
    plt = _pyplot()
    if ax is None:
        high = 1.0 + _INCHES * len(shown)
        _, ax = plt.subplots(figsize=(6.4, max(2.4, high)), layout="constrained")
    ax.barh(range(len(shown)), importances[shown])
    ax.set_yticks(range(len(shown)), [str(names[j]) for j in shown])
    ax.set_ylim(len(shown) - 0.5, -0.5)
    ax.set_xlabel("Share of the squared weights")
    ax.set_ylabel("Column" if len(shown) == n else f"Column ({len(shown)} of {n})")
    ax.grid(visible=True, axis="x", alpha=0.3)
    ax.set_axisbelow(True)
    return ax


class LearningCurveDisplay:
    """Training loss and validation score over the course of a fit.

    Make one with `from_estimator` or `from_history`. With both curves, the loss belongs to
    the left y axis and the score to the right one.

    Parameters
    ----------
    x : array-like of shape (n_points,)
        Horizontal coordinate.
    train_loss : array-like of shape (n_points,)
        Training loss; None or NaN where it was not measured.
    validation_score : array-like of shape (n_points,), default=None
        Validation score; None or NaN where it was not measured.
    score_name : str, default=None
        What the score is.
    x_name : str, default="seconds"
        What `x` is: "seconds", "iteration", "epoch", "rows_seen" or "n_random_features".
    name : str, default=None
        Put before the labels of the curves, to tell several displays apart.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes given or made; those of the loss, and of a score without a loss.
    score_ax_ : matplotlib Axes or None
        The axes of the score, None without one.
    figure_ : matplotlib Figure
        The figure.
    lines_ : list of matplotlib Line2D
        The curves: loss, then score, as far as there are any.
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
    ) -> None:
        self.x_name = check_name(x_name, _X_LABELS, "x")
        self.x = _column(x, x_name)
        self.train_loss = _column(train_loss, "train_loss")
        if validation_score is None:
            self.validation_score = np.full(self.x.shape, np.nan)
        else:
            self.validation_score = _column(validation_score, "validation_score")
        self.score_name = score_name
        self.name = name
        sizes = self.x.size, self.train_loss.size, self.validation_score.size
        if len(set(sizes)) > 1:
            raise ValueError(
                f"{x_name}, train_loss and validation_score have {sizes[0]}, {sizes[1]} and "
                f"{sizes[2]} entries; pass columns of one length."
            )

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        x: str = "seconds",
        ax: Any = None,
        name: str | None = None,
    ) -> LearningCurveDisplay:
        """Plot the history of a fitted estimator.

        Parameters
        ----------
        estimator : object
            A fitted kernelgrad estimator.
        x, ax, name
            As in :meth:`from_history`.

        Returns
        -------
        LearningCurveDisplay
            The display.
        """
        check_is_fitted(estimator, "history_")
        return cls.from_history(estimator.history_, x=x, ax=ax, name=name)

    @classmethod
    def from_history(
        cls,
        history: Mapping[str, Any],
        *,
        x: str = "seconds",
        ax: Any = None,
        name: str | None = None,
    ) -> LearningCurveDisplay:
        """Plot a history.

        Parameters
        ----------
        history : dict
            The ``history_`` of an estimator: lists of one length, and maybe "score_name".
        x : str, default="seconds"
            Horizontal axis: "seconds", "iteration", "epoch", "rows_seen" or
            "n_random_features".
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.
        name : str, default=None
            Put before the labels of the curves.

        Returns
        -------
        LearningCurveDisplay
            The display.
        """
        check_name(x, _X_LABELS, "x")
        missing = [key for key in (x, "train_loss") if key not in history]
        if missing:
            raise ValueError(
                f"The history has no {' and no '.join(missing)}; pass the history_ of a "
                "fitted kernelgrad estimator."
            )
        display = cls(
            x=history[x],
            train_loss=history["train_loss"],
            validation_score=history.get("validation_score"),
            score_name=history.get("score_name"),
            x_name=x,
            name=name,
        )
        return display.plot(ax=ax)

    def plot(self, ax: Any = None) -> LearningCurveDisplay:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure. The axes of an earlier display may be
            given to compare fits.

        Returns
        -------
        LearningCurveDisplay
            This display, with its axes, figure and lines set.
        """
        plt = _pyplot()
        has_loss = np.isfinite(self.x) & np.isfinite(self.train_loss)
        has_score = np.isfinite(self.x) & np.isfinite(self.validation_score)
        if not (has_loss.any() or has_score.any()):
            raise ValueError(
                f"The history has {self.x.size} entries and no finite loss or score among "
                "them; fit for at least one iteration."
            )
        if ax is None:
            _, ax = plt.subplots()
        right = _score_axes(ax)
        if right is None and has_loss.any() and has_score.any():
            right = ax.twinx()
            right.set_label(_SCORE_AXES)
        axes = [ax] if right is None else [ax, right]
        self.ax_, self.figure_ = ax, ax.figure
        self.score_ax_ = axes[-1] if has_score.any() else None
        self.lines_: list[Any] = []
        first = sum(len(a.get_lines()) for a in axes)
        prefix = f"{self.name}: " if self.name else ""
        if has_loss.any():
            self._draw(ax, has_loss, self.train_loss, f"{prefix}train loss", first, "-")
            positive = all(np.all(np.asarray(line.get_ydata()) > 0) for line in ax.get_lines())
            ax.set_yscale("log" if positive else "linear")
            ax.set_ylabel("Train loss")
        if self.score_ax_ is not None:
            score = self.score_name or "score"
            label, color = f"{prefix}validation {score}", first + len(self.lines_)
            self._draw(self.score_ax_, has_score, self.validation_score, label, color, "--")
            self.score_ax_.set_ylabel(f"Validation {score}")
        ax.set_xlabel(_X_LABELS[self.x_name])
        ax.grid(visible=True, which="major", alpha=0.3)
        lines = [line for a in axes for line in a.get_lines()]
        lines = [line for line in lines if not str(line.get_label()).startswith("_")]
        for a in axes:
            if a.get_legend() is not None:
                a.get_legend().remove()
        # Above the axes, where it hides no curve.
        axes[-1].legend(
            handles=lines, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False
        )
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
        style = {"color": f"C{n % 10}", "linestyle": line, "marker": marker, "markersize": 4}
        self.lines_ += ax.plot(self.x[keep], y[keep], label=label, **style)
