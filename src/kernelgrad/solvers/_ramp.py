"""How the loss of rows without a label grows in the course of a fit."""

from __future__ import annotations

from typing import Any

from kernelgrad._validation import check_int, check_real
from kernelgrad.solvers.base import Problem

_STREAM = 100  # iterations of a stream until all of the loss counts


def check_ramp(ramp: Any, horizon: Any) -> None:
    """Raise unless `ramp` is two parts of the horizon, and that a number or "auto"."""
    if horizon != "auto":
        check_int(horizon, "horizon", low=1)
    try:
        start, end = ramp
    except (TypeError, ValueError):
        raise ValueError(
            f"ramp must be two parts of the iterations such as (0.3, 0.6), got {ramp!r}."
        ) from None
    check_real(start, "start of ramp", low=0, high=1)
    check_real(end, "end of ramp", low=float(start), high=1)


def iterations(horizon: int | str, problem: Problem) -> int:
    """Return T: the given one, else the ``max_iter`` of the fit, else that of a stream."""
    if horizon != "auto":
        return int(horizon)
    return _STREAM if problem.max_iter is None else problem.max_iter


def ramp_share(ramp: Any, T: int, t: int) -> float:
    """Return the share of the loss in iteration t: 0 up to the start, 1 from the end on."""
    start, end = (float(part) * T for part in ramp)
    if end <= start:
        return float(t >= end)
    return min(1.0, max(0.0, (t - start) / (end - start)))
