"""Intervals of a Gaussian process, and their coverage."""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from kernelgrad.plotting.display import (
    COLORS,
    Display,
    column_of,
    columns_of_one_length,
    curve_style,
    find_feature,
    last_step,
    others,
    rows_at,
    span,
)
from kernelgrad.validation import check_int, check_real


class GaussianProcessIntervalDisplay(Display):
    """Mean and interval of a Gaussian process along one column.

    Parameters
    ----------
    x : array-like of shape (n_points,)
        Values of the column, ascending.
    mean, std : array-like of shape (n_points,)
        Mean and standard deviation at `x`.
    x_name : str, default="x"
        Name of the column.
    level : float in (0, 1), default=0.95
        Probability of the interval, ``mean ± z std`` with z of the normal distribution.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The mean.
    band_ : matplotlib collection
        The interval.
    """

    def __init__(
        self, *, x: npt.ArrayLike, mean: npt.ArrayLike, std: npt.ArrayLike, x_name: str = "x",
        level: float = 0.95,
    ) -> None:  # fmt: skip
        self.x, self.mean, self.std = columns_of_one_length(x=x, mean=mean, std=std)
        self.x_name = x_name
        self.level = check_real(level, "level", low=0, high=1, low_open=True, high_open=True)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: npt.ArrayLike | None = None, *, feature: int | str = 0,
        level: float = 0.95, include_noise: bool = True, resolution: int = 200, ax: Any = None,
    ) -> Self:  # fmt: skip
        """Predict along a column and plot.

        Parameters
        ----------
        estimator : fitted estimator
            A :class:`~kernelgrad.KernelGaussianProcessRegressor`, or another estimator whose
            ``predict`` accepts ``return_std=True``.
        y : array-like of shape (n,), default=None
            Targets of `X`, drawn as points if given.
        feature : int or str, default=0
            Number or name of the column.
        include_noise : bool, default=True
            Whether the interval is for new observations, such as the points, or for the
            function without noise. For scikit-learn's estimators the kernel decides.
        """
        j, x_name = find_feature(X, feature)
        column = column_of(X, j)
        x = span(column, resolution)
        mean, std = _with_std(estimator, rows_at(X, {j: x}), include_noise)
        display = cls(x=x, mean=mean, std=std, level=level, x_name=x_name + others(X, 1))
        return display.plot(ax=ax, points=None if y is None else (column, y))

    def plot(self, ax: Any = None, points: tuple[Any, Any] | None = None) -> Self:
        """Draw mean and interval, and `points` (x, y) if given."""
        ax = self._open(ax, "Gaussian process", self.x_name, "Mean and interval (unit of y)")
        half = ndtri(0.5 + self.level / 2) * self.std
        if points is not None:
            x, y = columns_of_one_length(x=points[0], y=points[1])
            ax.plot(x, y, ".", color="0.35", markersize=4, label="rows", zorder=1)
        (self.line_,) = ax.plot(self.x, self.mean, color=COLORS[0], label="mean")
        self.band_ = ax.fill_between(
            self.x, self.mean - half, self.mean + half, color=COLORS[0], alpha=0.25,
            linewidth=0, label=f"{100 * self.level:g} % interval",
        )  # fmt: skip
        ax.legend()
        return self


def _with_std(estimator: Any, X: Any, include_noise: bool) -> tuple[Any, Any]:
    options = {"return_std": True}
    if "include_noise" in inspect.signature(last_step(estimator).predict).parameters:
        options["include_noise"] = include_noise
    mean, std = estimator.predict(X, **options)
    return mean, std


class IntervalCoverageDisplay(Display):
    """Coverage of the central intervals of a predictive normal distribution.

    A point at (0.8, 0.7) means that the 80 % intervals contain 70 % of the rows. Below the
    diagonal the intervals are too narrow, above it too wide. The grey band shows the random
    variation for exact intervals: two standard errors of a share of as many independent rows.

    Parameters
    ----------
    level : array-like of shape (n_levels,)
        Probabilities of the intervals.
    share : array-like of shape (n_levels,)
        Shares of the rows inside.
    n_rows : int
        Number of rows.
    name : str, default=None
        Label of the curve.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The curve.
    """

    def __init__(
        self, *, level: npt.ArrayLike, share: npt.ArrayLike, n_rows: int,
        name: str | None = None,
    ) -> None:  # fmt: skip
        self.level, self.share = columns_of_one_length(level=level, share=share)
        self.n_rows, self.name = check_int(n_rows, "n_rows", low=1), name

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: npt.ArrayLike, *, ax: Any = None,
        name: str | None = None,
    ) -> Self:  # fmt: skip
        """Predict rows that are not training rows, and plot.

        Parameters
        ----------
        estimator : fitted estimator
            As in :meth:`GaussianProcessIntervalDisplay.from_estimator`, with noise.
        X : array-like of shape (n, d) or DataFrame
            Rows.
        y : array-like of shape (n,)
            Their targets.
        name : str, default=None
            Label of the curve; by default the name of the estimator's class.
        """
        name = name or type(estimator).__name__
        return cls.from_predictions(y, *_with_std(estimator, X, True), ax=ax, name=name)

    @classmethod
    def from_predictions(
        cls, y_true: npt.ArrayLike, mean: npt.ArrayLike, std: npt.ArrayLike, *, ax: Any = None,
        name: str | None = None,
    ) -> Self:  # fmt: skip
        """Plot the share of `y_true` in the intervals given by `mean` and `std`."""
        y, m, s = columns_of_one_length(y_true=y_true, mean=mean, std=std)
        level = np.linspace(0.05, 0.95, 19)
        inside = np.abs(y - m) <= ndtri(0.5 + level[:, None] / 2) * s
        return cls(level=level, share=inside.mean(axis=1), n_rows=len(y), name=name).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the curve."""
        fresh = ax is None or not ax.get_lines()
        title = "Coverage of the intervals"
        ax = self._open(ax, title, "Level of the interval", "Share of rows inside")
        if fresh:
            at = np.linspace(0, 1, 101)
            error = 2 * np.sqrt(at * (1 - at) / self.n_rows)
            ax.plot(at, at, color="0.5", linestyle=":", label="exact")
            ax.fill_between(at, at - error, at + error, color="0.5", alpha=0.2, linewidth=0)
        style = curve_style(len(ax.get_lines()) - 1)
        (self.line_,) = ax.plot(self.level, self.share, label=self.name, markersize=4, **style)
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        ax.legend(loc="upper left")
        return self
