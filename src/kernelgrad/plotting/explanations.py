"""Contributions of columns to predictions: one row, many rows, or one column."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from kernelgrad.plotting.display import COLORS, Display
from kernelgrad.types import AnyArray, Float64Array
from kernelgrad.validation import check_int, check_name

_KINDS = ("waterfall", "beeswarm", "dependence")
_SCALE = "cividis"  # colours of values of a column, from low to high
_STEPS = 80  # levels of a swarm that differ


class ExplanationDisplay(Display):
    """Shapley values of columns: a waterfall of one row, a swarm of many, or one column.

    Parameters
    ----------
    explanation : Explanation
        Result of :meth:`~kernelgrad.KernelRegressor.explain`.
    kind : {"auto", "waterfall", "beeswarm", "dependence"}, default="auto"
        A waterfall leads from the base value to f(x) of the first row. A beeswarm has a point
        for each row and column, coloured by the value of the column. A dependence has the
        values of one column on the horizontal axis. "auto" is a dependence if there is a
        `feature`, else a waterfall of one row, else a beeswarm.
    feature : int or str, default=None
        The column of a dependence.
    output : int, default=0
        The output that is drawn, of several.
    max_features : int, default=10
        Columns that are drawn, those with the largest values first.

    Attributes
    ----------
    artists_ : list of matplotlib artists
        The bars of a waterfall, or the points of each column.
    ax_, figure_ : matplotlib Axes and Figure
        The axes given or made, and their figure.
    """

    def __init__(
        self, *, explanation: Any, kind: str = "auto", feature: int | str | None = None,
        output: int = 0, max_features: int = 10,
    ) -> None:  # fmt: skip
        values, base = np.asarray(explanation.values), np.asarray(explanation.base_values)
        if kind == "auto":
            kind = "dependence" if feature is not None else _KINDS[len(values) > 1]
        self.kind = check_name(kind, _KINDS, "kind")
        if kind == "dependence" and feature is None:
            raise ValueError("A dependence needs a feature: the name or number of a column.")
        self.values: Float64Array = values if values.ndim == 2 else values[..., output]
        self.base: Float64Array = base if base.ndim == 1 else base[:, output]
        self.data, self.names = np.asarray(explanation.data), list(explanation.feature_names)
        self.feature = feature
        if isinstance(feature, str):
            self.feature = self.names.index(check_name(feature, self.names, "column"))
        self.max_features = check_int(max_features, "max_features", low=1)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, background: Any = None, ax: Any = None, **options: Any
    ) -> Self:
        """Return the display of some rows, which is drawn.

        Parameters
        ----------
        estimator : fitted estimator
            A kernel estimator, or a pipeline that ends with one.
        X : array-like of shape (n, d) or DataFrame
            Rows to explain.
        background : as X, default=None
            Rows that a column is drawn from; None is rows of the fit.
        ax : matplotlib Axes, default=None
            Where to plot; None makes a new figure.
        **options
            Other parameters of the display.
        """
        last = estimator[-1] if hasattr(estimator, "steps") else estimator
        explanation = last.explain(X, background=background)
        return cls(explanation=explanation, **options).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the values on `ax`, or in a new figure; return the display."""
        getattr(self, f"_{self.kind}")(ax)
        return self

    def _rows(self, ax: Any, title: str, x: str, names: list[str]) -> Any:
        """Open axes with a row for each name, the first on top."""
        n = len(names)
        ax = self._open(ax, title, x, "", (6.8, max(2.4, 1.3 + 0.32 * n)))  # inches
        ax.grid(visible=False, axis="y")
        ax.set_yticks(range(n), names)
        ax.set_ylim(n - 0.5, -0.5)
        return ax

    def _largest(self, size: Float64Array) -> AnyArray:
        return np.argsort(-size, kind="stable")[: self.max_features]

    def _waterfall(self, ax: Any) -> None:
        values, base = self.values[0], float(self.base[0])
        first = self._largest(np.abs(values))
        row = [f"{v:.4g}" if isinstance(v, float) else f"{v}" for v in self.data[0].tolist()]
        steps, names = values[first], [f"{self.names[j]} = {row[j]}" for j in first]
        if len(first) < len(values):
            steps = np.append(steps, values.sum() - steps.sum())
            names.append(f"all others ({len(values) - len(first)})")
        ends = base + np.cumsum(steps)
        label = f"f, from the base value {base:.4g} (dotted) to f(x) = {ends[-1]:.4g} (dashed)"
        ax = self._rows(ax, "From the base value to f(x)", label, names)
        colors = [COLORS[3] if step > 0 else COLORS[0] for step in steps]
        bars = ax.barh(range(len(steps)), steps, 0.7, ends - steps, color=colors)
        ax.bar_label(bars, [f"{step:+.3g}" for step in steps], padding=3, fontsize="small")
        for value, line in ((base, ":"), (ends[-1], "--")):
            ax.axvline(value, color="0.4", lw=1, ls=line, zorder=0)
        ax.use_sticky_edges = False
        ax.margins(x=0.15)
        self.artists_ = list(bars)

    def _beeswarm(self, ax: Any) -> None:
        first = self._largest(np.abs(self.values).mean(axis=0))
        names = [self.names[j] for j in first]
        ax = self._rows(ax, "Contributions of the columns", "Shapley value", names)
        from matplotlib.cm import ScalarMappable  # not before `_rows` says how to install it

        ax.axvline(0.0, color="0.4", lw=1, zorder=0)
        span, self.artists_ = np.ptp(self.values), []
        for k, j in enumerate(first):
            levels, texts = _levels(self.data[:, j])
            rank = np.unique(levels, return_inverse=True)[1]
            colors: Any = {"color": "0.5"} if texts else {"c": rank, "cmap": _SCALE}
            heights = k + _swarm(self.values[:, j], span)
            self.artists_.append(ax.scatter(self.values[:, j], heights, 9, **colors))
        bar = self.figure_.colorbar(ScalarMappable(cmap=_SCALE), ax=ax, aspect=40)
        bar.set_ticks([0, 1], labels=["low", "high"])
        bar.set_label("Value of the column (grey: categories)")

    def _dependence(self, ax: Any) -> None:
        j = int(self.feature or 0)
        values, (levels, texts) = self.values[:, j], _levels(self.data[:, j])
        ax = self._open(ax, "Contribution of one column", self.names[j], "Shapley value")
        ax.axhline(0.0, color="0.4", lw=1, zorder=0)
        if texts:
            ax.set_xticks(range(len(texts)), texts)
            levels = levels + _swarm(values, np.ptp(values))
        self.artists_ = [ax.scatter(levels, values, 14, color=COLORS[0], alpha=0.7)]


def _levels(column: npt.ArrayLike) -> tuple[Float64Array, list[str]]:
    """Return a column as numbers; of categories their numbers, and the texts of all."""
    try:
        return np.asarray(column, np.float64), []
    except (TypeError, ValueError):
        texts, numbers = np.unique(np.asarray(column).astype(str), return_inverse=True)
        return numbers.ravel().astype(np.float64), [str(text) for text in texts]


def _swarm(values: Float64Array, span: float) -> Float64Array:
    """Return shifts within (-.4, .4) that part points of nearly equal values."""
    bins = np.round(_STEPS * values / (span or 1.0)).astype(int)
    order = np.argsort(bins, kind="stable")
    number = np.empty(len(values))
    number[order] = np.arange(len(values)) - np.searchsorted(bins[order], bins[order])
    shift = np.ceil(number / 2) * np.where(number % 2, 1.0, -1.0)
    return np.asarray(shift * min(0.06, 0.4 / max(1.0, np.abs(shift).max(initial=0.0))))
