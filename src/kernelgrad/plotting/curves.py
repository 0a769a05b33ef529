"""Learning curves, importances and searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from kernelgrad.plotting.display import (
    COLORS,
    MARKERS,
    Display,
    columns_of_one_length,
    flat_column,
)  # fmt: skip
from kernelgrad.validation import check_int, check_name

_X_LABELS = {
    "seconds": "Training time (s)",
    "iteration": "Iteration",
    "epoch": "Epoch",
    "rows_seen": "Rows seen",
    "n_random_features": "Random features",
}
_SCORE_AXES = "kernelgrad score"  # label of a right y axis, which later displays share


def _score_axes(ax: Any) -> Any:
    """Return the right y axis that an earlier display gave to `ax`, or None."""
    bounds = ax.get_position().bounds
    for other in ax.get_shared_x_axes().get_siblings(ax):
        if other.get_label() == _SCORE_AXES and other.get_position().bounds == bounds:
            return other
    return None


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
    """

    def __init__(
        self, *, x: npt.ArrayLike, train_loss: npt.ArrayLike | Sequence[float | None],
        validation_score: npt.ArrayLike | Sequence[float | None] | None = None,
        score_name: str | None = None, x_name: str = "seconds", name: str | None = None,
        rivals: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self.x_name = check_name(x_name, _X_LABELS, "x")
        if validation_score is None:
            validation_score = np.full(len(flat_column(x, x_name)), np.nan)
        self.x, self.train_loss, self.validation_score = columns_of_one_length(
            **{x_name: x}, train_loss=train_loss, validation_score=validation_score
        )
        self.score_name, self.name, self.rivals = score_name, name, dict(rivals or {})

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, x: str = "seconds", ax: Any = None, name: str | None = None,
        rivals: Mapping[str, float] | None = None,
    ) -> Self:  # fmt: skip
        """Plot the history of a fitted estimator.

        Parameters
        ----------
        x : str, default="seconds"
            `x_name` of the display.
        """
        check_is_fitted(estimator, "history_")
        return cls.from_history(estimator.history_, x=x, ax=ax, name=name, rivals=rivals)

    @classmethod
    def from_history(
        cls, history: Mapping[str, Any], *, x: str = "seconds", ax: Any = None,
        name: str | None = None, rivals: Mapping[str, float] | None = None,
    ) -> Self:  # fmt: skip
        """Plot a history.

        Parameters
        ----------
        history : dict
            The ``history_`` of an estimator: lists of equal length, optionally "score_name".
        x : str, default="seconds"
            `x_name` of the display.
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
        """Draw the curves, on the axes of an earlier display to compare fits."""
        has_loss = np.isfinite(self.x) & np.isfinite(self.train_loss)
        has_score = np.isfinite(self.x) & np.isfinite(self.validation_score)
        scores = has_score.any() or bool(self.rivals)
        if not (has_loss.any() or has_score.any()):
            raise ValueError(
                f"The history has {self.x.size} entries and no finite loss or score among "
                "them; fit for at least one iteration."
            )
        title = (
            "One step (SearchDisplay has the search)" if self.x.size == 1 else "Learning curve"
        )
        ax = self._open(ax, title, _X_LABELS[self.x_name], "Train loss")
        right = _score_axes(ax)
        if right is None and has_loss.any() and scores:
            right = ax.twinx()
            right.set_label(_SCORE_AXES)
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


class FeatureImportancesDisplay(Display):
    """Importances of the columns of a fitted estimator.

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
        self, *, importances: npt.ArrayLike, names: Sequence[str], max_features: int | None = 20
    ) -> None:
        self.importances = flat_column(importances, "importances")
        n, m = self.importances.size, len(names)
        if m != n:
            raise ValueError(f"names has {m} entries for {n} columns; give one for each.")
        if max_features is not None:
            check_int(max_features, "max_features", low=1)
        self.names, self.max_features = [str(name) for name in names], max_features

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, max_features: int | None = 20,
        names: Sequence[str] | None = None, ax: Any = None,
    ) -> Self:  # fmt: skip
        """Plot the ``feature_importances_`` of an estimator; a new figure adapts its height.

        Parameters
        ----------
        estimator : fitted estimator
            An estimator of kernelgrad with ``feature_importances_``, shares of the variance
            of its function.
        names : sequence of str, default=None
            Names of all columns. None takes those of the table that was fitted, or else their
            numbers: "x0", "x1" and so on.
        """
        check_is_fitted(estimator)
        importances = np.asarray(estimator.feature_importances_)
        if names is None:
            numbers = [f"x{j}" for j in range(len(importances))]
            names = getattr(estimator, "feature_names_in_", numbers)
        return cls(importances=importances, names=names, max_features=max_features).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the bars."""
        shown = np.argsort(-self.importances, kind="stable")[: self.max_features]
        n, label = len(shown), "Column"
        if n < self.importances.size:
            label = f"Column ({n} of {self.importances.size})"
        title, size = "Importances of the columns", (6.4, max(2.4, 1.2 + 0.25 * n))  # inches
        ax = self._open(ax, title, "Share of the variance of f", label, size)
        ax.grid(visible=False, axis="y")
        self.bars_ = ax.barh(range(n), self.importances[shown], color=COLORS[0])
        ax.set_yticks(range(n), [self.names[j] for j in shown])
        ax.set_ylim(n - 0.5, -0.5)
        return self


class SearchDisplay(Display):
    """Errors of the kernels that the search of a fit compared, on validation rows.

    Parameters
    ----------
    candidates : sequence of str
        Names of the candidates.
    errors : array-like of shape (n_candidates,)
        Root mean squared errors, in deviations of the targets.
    seconds : array-like of shape (n_candidates,), default=None
        Seconds of each; they are written beside the names.

    Attributes
    ----------
    points_ : matplotlib Line2D
        One point for each candidate, the smallest error first.
    """

    def __init__(
        self, *, candidates: Sequence[str], errors: npt.ArrayLike,
        seconds: npt.ArrayLike | None = None,
    ) -> None:  # fmt: skip
        self.candidates = [str(name) for name in candidates]
        places = np.arange(len(self.candidates))
        seconds = np.full(len(places), np.nan) if seconds is None else seconds
        columns = columns_of_one_length(candidates=places, errors=errors, seconds=seconds)
        _, self.errors, self.seconds = columns

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Plot ``history_["metric"]``, the kernels that were compared."""
        check_is_fitted(estimator)
        entries = estimator.history_.get("metric", [])
        if not entries:
            raise ValueError("The fit compared no kernels; leave metric and gamma to 'auto'.")
        return cls(
            candidates=[entry["candidate"] for entry in entries],
            errors=[float(np.exp(entry["score"])) for entry in entries],
            seconds=[entry["seconds"] for entry in entries],
        ).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw a point for each candidate."""
        order = np.argsort(self.errors, kind="stable")
        n, size = len(order), (6.4, max(2.4, 1.2 + 0.25 * len(order)))  # inches
        label = "Error on rows apart (deviations of the targets)"
        ax = self._open(ax, "Kernels that were compared", label, "", size)
        (self.points_,) = ax.plot(self.errors[order], range(n), MARKERS[0], color=COLORS[0])
        seconds = [f" ({s:.2g} s)" if np.isfinite(s) else "" for s in self.seconds[order]]
        names = [self.candidates[j] + text for j, text in zip(order, seconds, strict=True)]
        ax.set_yticks(range(n), names)
        ax.set_ylim(n - 0.5, -0.5)
        return self
