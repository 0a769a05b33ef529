"""Shared by the displays: axes, colours, columns, and rows that vary in one or two columns."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelgrad.params import parameter_texts
from kernelgrad.types import Float64Array
from kernelgrad.validation import check_int, check_name

# Okabe and Ito's, without black and the yellow that is hard to see on white
COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
MARKERS = "os^DvpX"  # one more, so that 42 curves differ


def flat_column(values: npt.ArrayLike | Sequence[float | None], name: str) -> Float64Array:
    """Return a float column with NaN for None."""
    column = np.array(values, dtype=np.float64)
    if column.ndim != 1:
        raise ValueError(f"{name} must be a flat list of numbers, got shape {column.shape}.")
    return column


def columns_of_one_length(**values: Any) -> list[Float64Array]:
    """Return float columns, or raise if they are not of one length."""
    columns = {name: flat_column(value, name) for name, value in values.items()}
    if len({column.size for column in columns.values()}) > 1:
        sizes = ", ".join(f"{name} {column.size}" for name, column in columns.items())
        raise ValueError(f"The columns must have one length; their entries are {sizes}.")
    return list(columns.values())


_DRAWN_ON = """
ax_ : matplotlib Axes
    The axes given or made.
figure_ : matplotlib Figure
    The figure."""
_SHARED = """
Parameters
----------
estimator : fitted estimator
    An estimator of kernelgrad.
ax : matplotlib Axes, default=None
    Where to plot; None makes a new figure.
X : array-like of shape (n, d) or DataFrame
    Rows that determine the range of what is shown and the medians of the other columns.
resolution : int
    Number of points along an axis."""


class Display:
    """Base class of the displays: given or new axes, with a title and labels.

    Parameters of `plot` and of methods that make a display are documented once: there, at the
    class, or here for all displays. These methods return the display.
    """

    ax_: Any
    figure_: Any

    def __init_subclass__(cls) -> None:
        doc = inspect.getdoc(cls) or ""
        cls.__doc__ = f"{doc}{_DRAWN_ON}"
        for name, method in vars(cls).items():
            if name == "plot" or name.startswith("from_"):
                function = getattr(method, "__func__", method)
                own = inspect.getdoc(function) or ""
                entries = parameter_texts(_SHARED)
                entries |= parameter_texts(doc) | parameter_texts(own)
                names = list(inspect.signature(function).parameters)[1:]
                parts = [own.split("\n\nParameters\n")[0], "", "Parameters", "----------"]
                parts += dict.fromkeys(entries[each] for each in names if each in entries)
                parts += ["", "Returns", "-------", cls.__name__, "    The display."]
                function.__doc__ = "\n".join(parts)

    def _open(
        self, ax: Any, title: str, x: str, y: str, size: tuple[float, float] | None = None
    ) -> Any:
        """Return labelled axes to draw on: the given ones, or those of a new figure."""
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            hint = "Plotting needs matplotlib; install it with `pip install kernelgrad[plot]`."
            raise ImportError(hint) from None
        if ax is None:
            _, ax = plt.subplots(figsize=size, layout="constrained")
        if not ax.get_title():
            ax.set_title(title)
        ax.set(xlabel=x, ylabel=y)
        ax.grid(visible=True, alpha=0.3)
        ax.set_axisbelow(True)
        self.ax_, self.figure_ = ax, ax.figure
        return ax


def curve_style(n: int) -> dict[str, Any]:
    """Return colour and marker of the n-th curve on some axes."""
    return {"color": COLORS[n % len(COLORS)], "marker": MARKERS[n % len(MARKERS)]}


def last_step(estimator: Any) -> Any:
    """Return the last step of a pipeline, and any other estimator itself."""
    return estimator[-1] if hasattr(estimator, "steps") else estimator


def find_feature(X: Any, feature: int | str) -> tuple[int, str]:
    names = [str(name) for name in getattr(X, "columns", [])]
    if isinstance(feature, str):
        return names.index(check_name(feature, names, "column")), feature
    n = len(names) or np.shape(X)[1]
    if not 0 <= check_int(feature, "feature") < n:
        raise ValueError(f"feature={feature} is no column; they are 0 to {n - 1}.")
    return feature, names[feature] if names else f"x{feature}"


def _middle(values: Any) -> Any:
    """Return the median of numbers, and the most frequent one of other values."""
    array = np.asarray(values)
    if array.dtype.kind in "iuf":
        return float(np.nanmedian(array))
    return Counter(list(values)).most_common(1)[0][0]


def column_of(X: Any, feature: int) -> Float64Array:
    column = X[list(X.columns)[feature]] if hasattr(X, "columns") else np.asarray(X)[:, feature]
    return flat_column(column, "The column of an axis")


def rows_at(X: Any, at: Mapping[int, Float64Array]) -> Any:
    """Return rows with the columns `at`, all others at their middle."""
    n = len(next(iter(at.values())))
    if hasattr(X, "columns"):
        columns = enumerate(X.columns)
        return type(X)({c: at[j] if j in at else [_middle(X[c])] * n for j, c in columns})
    X = np.asarray(X)
    return np.stack([at.get(j, np.full(n, _middle(X[:, j]))) for j in range(X.shape[1])], 1)


def span(column: Float64Array, resolution: int) -> Float64Array:
    """Return values from the least to the greatest of a column, and a little beyond."""
    low, high = np.nanmin(column), np.nanmax(column)
    margin = 0.05 * (high - low) or 0.5
    return np.linspace(low - margin, high + margin, check_int(resolution, "resolution", low=2))


def others(X: Any, shown: int) -> str:
    """Return a note on the columns that are not shown."""
    return "; other columns at their medians" if np.shape(X)[1] > shown else ""
