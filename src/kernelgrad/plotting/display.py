"""Shared by the displays: axes, colours and columns."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelgrad.params import parameter_texts
from kernelgrad.types import Float64Array

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
