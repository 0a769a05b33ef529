"""Conformal intervals and sets from rows that a function has not seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from sklearn.base import clone

from kernelgrad.losses import LogSquaredError
from kernelgrad.quality import Judges
from kernelgrad.tasks import Task
from kernelgrad.types import AnyArray, Float64Array
from kernelgrad.validation import check_real

_NEAR = 100  # rows of the nearest predictions, whose mean residual is the scale
_PRIOR = 20.0  # rows of the mean of all residuals that are added to them


def quantile(scores: Float64Array, weight: Float64Array, coverage: float) -> float:
    """Return the least score that holds for a share `coverage` of rows and one new row.

    Raise ValueError if the rows are too few for any score to.
    """
    check_real(coverage, "coverage", low=0.0, high=1.0, low_open=True, high_open=True)
    order = np.argsort(scores)
    total = np.cumsum(weight[order]) / weight.mean()
    at = int(np.searchsorted(total, coverage * (total[-1] + 1.0) * (1.0 - 1e-12)))
    if at == len(scores):
        least = int(np.ceil(coverage / (1.0 - coverage)))
        raise ValueError(
            f"coverage={coverage:g} needs {least} rows that were not fitted, and there are "
            f"{len(scores)}; give more to calibrate_coverage."
        )
    return float(scores[order[at]])


@dataclass(frozen=True)
class Intervals:
    """Intervals of one output: residuals of rows that judge, over their scale.

    The scale at a prediction is the mean residual of the rows with the nearest ones; it is 1
    without any. Quantiles have the interval between the outermost ones, and no scale.
    """

    scores: Float64Array
    weight: AnyArray
    at: Float64Array  # increasing predictions (m,)
    sums: Float64Array  # sums of the first residuals (m + 1,)

    @classmethod
    def of(
        cls, low: Float64Array, high: Float64Array, y: Float64Array, w: AnyArray, *,
        scaled: bool,
    ) -> Self:  # fmt: skip
        residual, order = np.maximum(low - y, y - high), np.argsort(low, kind="stable")
        if not scaled or (residual < 0).any():
            return cls(residual, w, np.empty(0), np.zeros(1))
        sums = np.append(0.0, np.cumsum(residual[order]))
        intervals = cls(residual, w, low[order], sums)
        return replace(intervals, scores=residual / intervals.scale(low, residual))

    def scale(self, low: Float64Array, own: Float64Array | float = 0.0) -> Float64Array:
        """Return the scale at predictions, without residuals that are their `own`."""
        m = len(self.at)
        if not m:
            return np.ones(len(low))
        near, mean = min(_NEAR, m), self.sums[-1] / m
        first = np.clip(np.searchsorted(self.at, low) - near // 2, 0, m - near)
        total = np.maximum(self.sums[first + near] - self.sums[first] - own, 0.0)
        return np.asarray((total + _PRIOR * max(mean, 1e-300)) / (near + _PRIOR))

    def widened(self, low: AnyArray, high: AnyArray, coverage: float) -> AnyArray:
        """Return the bounds (n, 2)."""
        width = quantile(self.scores, self.weight, coverage) * self.scale(low)
        return np.stack([low - width, high + width], axis=1)


def _bounds(task: Task, raw: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return what intervals are around, (n, outputs) twice: predictions, or logarithms."""
    if isinstance(task.loss, LogSquaredError):
        return raw, raw
    values = np.asarray(task.predict(raw), np.float64).reshape(len(raw), -1)
    if task.loss.n_outputs is not None:
        return values[:, :1], values[:, -1:]
    return values, values


def intervals(judges: Judges, task: Task, other: Judges | None = None) -> list[Intervals]:
    """Return the intervals of each output.

    Rows that the function has not seen promise their coverage only if the scale does not come
    from them: they take that of `other` rows, or none.
    """
    low, high = _bounds(task, judges.values)
    y = np.asarray(judges.y, np.float64).reshape(len(low), -1)
    if isinstance(task.loss, LogSquaredError):
        y = np.asarray(task.loss.targets(y), np.float64)
    columns, scaled = zip(low.T, high.T, y.T, strict=True), not judges.is_final
    parts = [Intervals.of(*each, judges.weight, scaled=scaled) for each in columns]
    if scaled or other is None:
        return parts
    triples = zip(parts, intervals(other, task), low.T, strict=True)
    return [
        replace(scale, scores=part.scores / scale.scale(a), weight=part.weight)
        for part, scale, a in triples
    ]


def predicted(
    parts: list[Intervals], task: Task, raw: Float64Array, coverage: float
) -> Float64Array:
    """Return the bounds (n, 2), or (n, 2, outputs) of several outputs, from responses f."""
    low, high = _bounds(task, raw)
    pairs = zip(parts, low.T, high.T, strict=True)
    bounds = np.stack([part.widened(a, b, coverage) for part, a, b in pairs], axis=2)
    if isinstance(task.loss, LogSquaredError):
        plain = clone(task.loss).set_params(factor=1.0, low=None, high=None)
        bounds = plain.mean(bounds)
    single = getattr(task, "ndim", 1) == 1 or task.loss.n_outputs is not None
    return bounds[:, :, 0] if single else bounds


def likely(judges: Judges, p: Float64Array, coverage: float) -> AnyArray:
    """Return which classes are in the set of each row, (n, K), from probabilities p.

    They are those at least as probable as all but a share of the rows held out found their own
    class, and the most probable one (Sadinle, Lei and Wasserman 2019).
    """
    members = p >= -quantile(-judges.own, judges.weight, coverage)
    members[np.arange(len(p)), np.argmax(p, axis=1)] = True
    return members
