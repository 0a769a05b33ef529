"""Shared by the displays: axes and colours."""

from __future__ import annotations

from typing import Any

# Okabe and Ito's, without black and the yellow that is hard to see on white
COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")


class Display:
    """Base class of the displays: given or new axes, with a title and labels."""

    ax_: Any
    figure_: Any

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
