"""The growth of the loss of rows without a label."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelgrad.losses import Loss
from kernelgrad.solvers.contract import Problem
from kernelgrad.validation import check_real

_FAR = 1e6  # a response at which slopes without a bound are told from others


def slope_grows(loss: Loss) -> bool:
    """Tell whether slopes have no bound, so that long steps diverge."""
    y, f = np.ones((1, 1)), np.full((1, 1), -_FAR)
    return float(np.abs(loss.gradient(y, f)).max()) > 0.1 * _FAR


def check_ramp(ramp: Any) -> None:
    """Raise unless `ramp` is two parts of the iterations."""
    try:
        start, end = ramp
    except (TypeError, ValueError):
        raise ValueError(
            f"ramp must be two parts of the iterations such as (0.3, 0.6), got {ramp!r}."
        ) from None
    check_real(start, "start of ramp", low=0, high=1)
    check_real(end, "end of ramp", low=float(start), high=1)


def iterations(horizon: int | str, problem: Problem) -> int:
    """Return T: the given one, else the ``max_iter`` of the fit, else 100 for a stream."""
    if horizon != "auto":
        return int(horizon)
    return 100 if problem.max_iter is None else problem.max_iter


def ramp_share(ramp: Any, T: int, t: int) -> float:
    """Return the share of the loss in iteration t: 0 up to the start, 1 from the end on."""
    start, end = (float(part) * T for part in ramp)
    if end <= start:
        return float(t >= end)
    return min(1.0, max(0.0, (t - start) / (end - start)))
