"""Learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from kernelgrad.plotting.display import COLORS, Display
from kernelgrad.validation import check_name

_X_LABELS = {
    "seconds": "Training time (s)",
    "iteration": "Iteration",
    "epoch": "Epoch",
    "rows_seen": "Rows seen",
    "n_random_features": "Random features",
}


class LearningCurveDisplay(Display):
    """Training loss and validation score over the course of a fit.

    If both curves are drawn, the loss has the left y axis and the score the right one.

    Parameters
    ----------
    x : array-like of shape (n_points,)
        Horizontal coordinate.
    train_loss, validation_score : array-like of shape (n_points,)
        Loss and score; None or NaN where they were not measured.
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
        The axes of the score: the right ones if there is a loss, else `ax_`.
    lines_ : list of matplotlib Line2D
        The curves that are drawn: loss, score, rivals.
    ax_, figure_ : matplotlib Axes and Figure
        The axes given or made, and their figure.
    """

    def __init__(
        self, *, x: npt.ArrayLike, train_loss: npt.ArrayLike | Sequence[float | None],
        validation_score: npt.ArrayLike | Sequence[float | None] | None = None,
        score_name: str | None = None, x_name: str = "seconds", name: str | None = None,
        rivals: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self.x_name = check_name(x_name, _X_LABELS, "x")
        if validation_score is None:
            validation_score = np.full(np.size(x), np.nan)
        self.x, self.train_loss, self.validation_score = (
            column_or_1d(np.array(values, np.float64))  # NaN for None
            for values in (x, train_loss, validation_score)
        )
        check_consistent_length(self.x, self.train_loss, self.validation_score)
        self.score_name, self.name, self.rivals = score_name, name, dict(rivals or {})

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, x: str = "seconds", ax: Any = None, name: str | None = None,
        rivals: Mapping[str, float] | None = None,
    ) -> Self:  # fmt: skip
        """Plot the history of a fitted estimator, as :meth:`from_history` does."""
        check_is_fitted(estimator, "history_")
        return cls.from_history(estimator.history_, x=x, ax=ax, name=name, rivals=rivals)

    @classmethod
    def from_history(
        cls, history: Mapping[str, Any], *, x: str = "seconds", ax: Any = None,
        name: str | None = None, rivals: Mapping[str, float] | None = None,
    ) -> Self:  # fmt: skip
        """Return the display of a history, which is drawn.

        Parameters
        ----------
        history : dict
            The ``history_`` of an estimator: lists of equal length, optionally "score_name".
        x : str, default="seconds"
            `x_name` of the display.
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure. On the axes of an earlier display it draws
            further curves, to compare fits.
        name, rivals
            As for the display.
        """
        check_name(x, _X_LABELS, "x")
        missing = [key for key in (x, "train_loss") if key not in history]
        if missing:
            raise ValueError(
                f"The history has no {' and no '.join(missing)}; pass the history_ of a fitted "
                "kernelgrad estimator."
            )
        columns = ("train_loss", "validation_score", "score_name")
        values: dict[str, Any] = {column: history.get(column) for column in columns}
        return cls(x=history[x], x_name=x, name=name, rivals=rivals, **values).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the curves, on axes as for :meth:`from_history`; return the display."""
        has_loss = np.isfinite(self.x) & np.isfinite(self.train_loss)
        has_score = np.isfinite(self.x) & np.isfinite(self.validation_score)
        scores = has_score.any() or bool(self.rivals)
        if not (has_loss.any() or has_score.any()):
            raise ValueError(
                f"The history has {self.x.size} entries and no finite loss or score among "
                "them; fit for at least one iteration."
            )
        ax = self._open(ax, "Learning curve", _X_LABELS[self.x_name], "Train loss")
        right = getattr(ax, "_kernelgrad_score", None)  # an earlier display made it
        if right is None and has_loss.any() and scores:
            right = ax._kernelgrad_score = ax.twinx()
        axes = [ax] if right is None else [ax, right]
        self.score_ax_ = axes[-1] if scores else None
        self.lines_: list[Any] = []
        first = sum(len(a.get_lines()) for a in axes)

        def color() -> str:
            return COLORS[(first + len(self.lines_)) % len(COLORS)]

        def draw(on: Any, rows: npt.NDArray[np.bool_], y: Any, label: str, line: str) -> None:
            style: Any = {"color": color(), "markersize": 4, "label": label}
            style["marker"] = "o" if rows.sum() <= 30 else ""
            self.lines_ += on.plot(self.x[rows], y[rows], line, **style)

        prefix = f"{self.name}: " if self.name else ""
        if has_loss.any():
            draw(ax, has_loss, self.train_loss, f"{prefix}train loss", "-")
            positive = all(np.all(np.asarray(line.get_ydata()) > 0) for line in ax.get_lines())
            ax.set_yscale("log" if positive else "linear")
        if self.score_ax_ is not None:
            score = self.score_name or "score"
            if has_score.any():
                label = f"{prefix}validation {score}"
                draw(self.score_ax_, has_score, self.validation_score, label, "--")
            for rival, value in self.rivals.items():
                style = {"color": color(), "ls": ":", "label": f"{rival}: {value:.4g}"}
                self.lines_.append(self.score_ax_.axhline(value, **style))
                self.score_ax_.autoscale_view()  # with a margin around them
            self.score_ax_.set_ylabel(f"Validation {score}")
        lines = [line for a in axes for line in a.get_lines() if line.get_label()[:1] != "_"]
        for legend in filter(None, (a.get_legend() for a in axes)):
            legend.remove()
        # Between axes and title, where it hides no curve.
        anchor: Any = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "borderaxespad": 0}
        legend = axes[-1].legend(handles=lines, ncols=2, frameon=False, **anchor)
        height = legend.get_window_extent().height * 72 / self.figure_.dpi  # in points
        ax.set_title(ax.get_title(), pad=height + 4)
        return self
