"""Scaling of rows, and sums over support rows or columns, as ONNX graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelgrad.functions import InputScaling, expansions
from kernelgrad.functions.scaling import SCORE_LIMIT
from kernelgrad.onnx import numerics as xp
from kernelgrad.onnx.graph import Value, summed
from kernelgrad.onnx.kernels import ExactForm, chunks_of, weighted_sum
from kernelgrad.validation import CapabilityError


def add_scaling(scaling: InputScaling, x: Value) -> Value:
    if scaling.knots is not None:
        x = _scores(scaling.knots, x)
    if scaling.centre is not None:
        x = x - scaling.centre
    if scaling.scale is not None:
        x = x / scaling.scale
    if scaling.limit is not None:
        u = x / scaling.limit
        x = x / xp.sqrt(1.0 + u * u)
    if scaling.warp is not None:
        x = _warped(scaling.warp, x)
    if scaling.metric is None:
        return x
    return x * scaling.metric if scaling.metric.ndim == 1 else x @ scaling.metric


def _warped(warp: Any, x: Value) -> Value:
    """Return the warp of each column as the sum of what its bins add."""
    edges, values = warp  # (k, d)
    low, width = edges[:-1].T, np.diff(edges, axis=0).T  # (d, k - 1)
    column = x.graph.op("Unsqueeze", x, np.array([2]))
    share = xp.clip((column - low) / np.where(width > 0, width, 1.0), 0.0, 1.0)
    warped: Value = (share * np.diff(values, axis=0).T).sum(2, keepdims=False) + values[0]
    return warped


def _scores(knots: Any, x: Value) -> Value:
    """Return normal scores of places among the knots (k, d).

    Each interval between knots adds the share of it that lies below x, an empty one a half on
    either side of its point.
    """
    low, high = knots[:-1].T, knots[1:].T  # (d, k - 1)
    width = high - low
    empty = width == 0
    column = x.graph.op("Unsqueeze", x, np.array([2]))
    inside = xp.clip((column - low) / np.where(empty, 1.0, width), 0.0, 1.0)
    above = (column > low).astype(np.float64)
    not_below = 1.0 - (column < low).astype(np.float64)
    share = xp.where(empty, 0.5 * (above + not_below), inside)
    quantile = share.sum(2, keepdims=False) * (1.0 / (len(knots) - 1))
    return xp.normal_scores(quantile, SCORE_LIMIT)


def add_function(f: expansions.Expansion, x: Value) -> Value:
    """Return f(x), (n, C) in float64, of rows (n, d) in float64."""
    if isinstance(f, expansions.LinearExpansion):
        return x @ f.coef + f.intercept
    if not isinstance(f, expansions.SupportExpansion):
        raise CapabilityError(
            "Functions of random features cannot be exported to ONNX; take a solver on exact "
            "kernels, or serve the file of save."
        )
    x = add_scaling(f.scaling, x)
    form = ExactForm(f.kernel, x, f.support)
    parts = [
        weighted_sum(form(f.support.take(rows)), f.coef[rows])
        for rows in chunks_of(f.n_support)
    ]
    return summed(parts or [x.take([0]) * 0.0]) + f.intercept
