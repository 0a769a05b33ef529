"""Maps of classes, novelty, density ratios and values over two columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import is_classifier, is_outlier_detector

from kernelgrad.plotting.display import (
    Display,
    column_of,
    curve_style,
    find_feature,
    flat_column,
    last_step,
    others,
    rows_at,
    span,
)
from kernelgrad.types import Float64Array
from kernelgrad.validation import check_name

_MOST = 64.0  # ratio beyond which the colour does not change
_MAPS = {  # title, label of the scale, colours
    "classes": ("Predicted classes", "", ""),
    "novelty": ("Novelty", "Decision function (negative: outlier)", "PuOr"),
    "ratio": ("Density ratio", "p/q", "PuOr_r"),
    "value": ("Predicted value", "Prediction (unit of y)", "viridis"),
}
_GROUPS = {"novelty": ("inside", "outlier"), "ratio": ("sample of p", "sample of q")}


class ResponseMapDisplay(Display):
    """Map of the predictions of a fitted model over the plane of two columns.

    For classifiers the colour is the class and its intensity the probability; for novelty
    detectors the map shows the decision function and its boundary; for density ratios p/q on a
    logarithmic scale, white where both densities are equal; for regressors the predicted value.
    All other columns are fixed at their medians, or at their most frequent values.

    Parameters
    ----------
    x0, x1 : array-like of shape (n_points,)
        Values along the axes.
    response : array-like of shape (n_points, n_points) or (n_points, n_points, n_classes)
        Prediction at ``(x1[i], x0[j])``; for classes probabilities, or 0 and 1.
    kind : {"classes", "novelty", "ratio", "value"}
        Kind of prediction.
    names : pair of str, default=("x0", "x1")
        Labels of the axes.
    classes : sequence, default=()
        Names of the classes.

    Attributes
    ----------
    surface_, colorbar_ : matplotlib artist, Colorbar or None
        The coloured plane, and its bar; None for classes, which have a legend.
    """

    def __init__(
        self, *, x0: npt.ArrayLike, x1: npt.ArrayLike, response: npt.ArrayLike, kind: str,
        names: tuple[str, str] = ("x0", "x1"), classes: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        self.kind = check_name(kind, _MAPS, "kind")
        self.x0, self.x1 = flat_column(x0, "x0"), flat_column(x1, "x1")
        self.response = np.asarray(response, np.float64)
        shape = (self.x1.size, self.x0.size) + ((len(classes),) if kind == "classes" else ())
        if self.response.shape != shape:
            raise ValueError(f"response must have shape {shape}, got {self.response.shape}.")
        self.names, self.classes = names, list(classes)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any = None, *,
        features: tuple[int | str, int | str] = (0, 1), resolution: int = 100, ax: Any = None,
    ) -> Self:  # fmt: skip
        """Predict over a plane and plot.

        Parameters
        ----------
        estimator : fitted estimator
            An estimator of kernelgrad or scikit-learn, or a pipeline that ends with one.
        y : array-like of shape (n,), default=None
            Classes, values, or the samples of a density ratio; if given, the rows are drawn.
            The rows of a novelty detector are always drawn.
        features : pair of int or str, default=(0, 1)
            Numbers or names of the two columns, which must hold numbers.
        """
        if len(features) != 2:
            raise ValueError(f"features must be two columns, got {features!r}.")
        (i, first), (j, second) = (find_feature(X, feature) for feature in features)
        columns = column_of(X, i), column_of(X, j)
        x0, x1 = (span(column, resolution) for column in columns)
        at = dict(zip((i, j), map(np.ravel, np.meshgrid(x0, x1)), strict=True))
        response, kind = _response(estimator, rows_at(X, at))
        display = cls(
            x0=x0, x1=x1, response=response.reshape(len(x1), len(x0), *response.shape[1:]),
            kind=kind, classes=estimator.classes_ if kind == "classes" else (),
            names=(first + others(X, 2), second),
        )  # fmt: skip
        drawn = y is not None or kind == "novelty"
        points = (*columns, _groups(estimator, X, y, kind)) if drawn else None
        return display.plot(ax=ax, points=points)

    def plot(self, ax: Any = None, points: tuple[Any, Any, Any] | None = None) -> Self:
        """Draw the map, and rows if `points`, their coordinates and groups, are given."""
        title, label, colors = _MAPS[self.kind]
        ax = self._open(ax, title, *self.names)
        ax.grid(visible=False)
        self.colorbar_: Any = None
        if self.kind == "classes":
            self._draw_classes(ax)
        else:
            self._draw_surface(ax, label, colors)
        if self.kind != "value":
            self._draw_groups(ax, points)
        elif points is not None:
            x, y, values = points
            scale = {"cmap": self.surface_.cmap, "norm": self.surface_.norm}
            ax.scatter(x, y, c=values, s=16, edgecolors="k", linewidths=0.5, **scale)
        return self

    def _draw_classes(self, ax: Any) -> None:
        """Colour the plane by class, with the probability as intensity, and its boundaries."""
        from matplotlib.colors import to_rgba_array

        n = len(self.classes)
        best = self.response.max(axis=2)
        strength = (best - 1 / n) / (1 - 1 / n) if n > 1 else best
        palette = to_rgba_array([curve_style(k)["color"] for k in range(n)])
        image = palette[self.response.argmax(axis=2)]
        image[..., 3] = 0.1 + 0.5 * strength
        x0, x1 = self.x0, self.x1
        extent = (*x0[[0, -1]], *x1[[0, -1]])
        self.surface_ = ax.imshow(image, origin="lower", extent=extent, aspect="auto")
        for k in range(n if n > 1 else 0):
            ahead = self.response[..., k] - np.delete(self.response, k, axis=2).max(axis=2)
            if ahead.min() < 0 < ahead.max():
                ax.contour(x0, x1, ahead, levels=[0], colors="k", linewidths=0.8)

    def _draw_surface(self, ax: Any, label: str, colors: str) -> None:
        """Colour the plane by values; a scale with a middle is centred there."""
        from matplotlib.ticker import MaxNLocator

        shown = self.response
        if self.kind == "ratio":
            shown = np.log2(np.clip(shown, 1 / _MOST, _MOST))
        low, high = shown.min(), shown.max()
        if centred := self.kind != "value":
            high = max(-low, high)
            low = -high
        levels = np.linspace(low, high if high > low else low + 1.0, 25)
        self.surface_ = ax.contourf(self.x0, self.x1, shown, levels=levels, cmap=colors)
        if centred and shown.min() < 0 < shown.max():
            ax.contour(self.x0, self.x1, shown, levels=[0], colors="k", linewidths=1.2)
        self.colorbar_ = self.figure_.colorbar(self.surface_, ax=ax, label=label)
        self.colorbar_.locator = MaxNLocator(7)
        if self.kind == "ratio":
            most = int(high)
            ticks = np.arange(-most, most + 1, max(1, most // 3))
            names = [f"{2**k}" if k >= 0 else f"1/{2**-k}" for k in ticks.tolist()]
            self.colorbar_.set_ticks(ticks, labels=names)

    def _draw_groups(self, ax: Any, points: tuple[Any, Any, Any] | None) -> None:
        """Draw rows group by group; rows without a group, such as unlabelled ones, are dots."""
        names = self.classes or list(_GROUPS[self.kind])
        x, y, group = points if points is not None else ([], [], [])
        x, y = np.asarray(x), np.asarray(y)
        rows = [np.array([each == name for each in group], dtype=bool) for name in names]
        rest = ~np.any(rows, axis=0)
        if rest.any():
            ax.plot(x[rest], y[rest], ".", color="0.4", markersize=3, label="no label")
        for k, (name, at) in enumerate(zip(names, rows, strict=True)):
            style = curve_style(k) if self.classes else {"color": "wk"[k], "marker": "oX"[k]}
            style |= {"s": 18, "edgecolors": "k", "linewidths": 0.5, "label": str(name)}
            ax.scatter(x[at], y[at], **style)
        if self.classes or points is not None:
            ax.legend()


def _response(estimator: Any, X: Any) -> tuple[Float64Array, str]:
    """Return the predictions of a model for rows, and the kind of the map."""
    if hasattr(last_step(estimator), "samples_"):
        return np.asarray(estimator.predict(X), np.float64), "ratio"
    if is_outlier_detector(estimator):
        return np.asarray(estimator.decision_function(X), np.float64), "novelty"
    if hasattr(estimator, "predict_proba"):
        return np.asarray(estimator.predict_proba(X), np.float64), "classes"
    values = np.asarray(estimator.predict(X))
    if is_classifier(estimator):
        return np.asarray(values[:, None] == estimator.classes_, np.float64), "classes"
    if values.ndim != 1:
        raise ValueError(
            f"The model predicts {values.shape[1]} outputs, the map shows one; fit one output."
        )
    return np.asarray(values, np.float64), "value"


def _groups(estimator: Any, X: Any, y: Any, kind: str) -> Any:
    if kind == "novelty":
        inside, outlier = _GROUPS[kind]
        return np.where(np.asarray(estimator.predict(X)) > 0, inside, outlier)
    if kind == "ratio":
        p, q = _GROUPS[kind]
        return np.where(np.asarray(y) == last_step(estimator).samples_[1], p, q)
    return y
