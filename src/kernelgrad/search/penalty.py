"""The penalty with the least errors on rows that a machine was not trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelgrad.compute import lapack
from kernelgrad.compute.threads import parallel_map
from kernelgrad.search.leave_one_out import ridge_errors
from kernelgrad.search.machine import LEAST, MOST, SURE, Sample
from kernelgrad.types import AnyArray, Float64Array

START = 0.1  # lambda from which searches start
_FACTOR = 4.0  # ratio of values that are tried one after another
_GAIN = 1e-3  # gain of the objective that a smaller lambda must have
_PANEL = 256  # rows of a panel
_FAR_ROWS = 32_000  # rows up to which lambda is extrapolated


@dataclass(frozen=True)
class Matrices:
    """Kernel values of n rows (see :func:`panels`), and of validation rows with them (m, n)."""

    panels: list[Float64Array]
    cross: AnyArray
    rows: Sample
    validation: Sample

    def outputs(self, ridge: float) -> Float64Array:
        """Return the outputs (m, C) for the validation rows."""
        dtype: Any = np.float32 if ridge > SURE else np.float64
        n = self.rows.n_rows
        H = np.empty((n, n), dtype)
        for a, panel in zip(range(0, n, _PANEL), self.panels, strict=True):
            H[a : a + _PANEL, a:] = panel
        H[np.diag_indices(n)] += ridge / self.rows.weight
        if not lapack.factor(H):
            return np.full(self.validation.Y.shape, np.nan)
        coef = lapack.solve(H, self.rows.Y).astype(np.float64)
        return np.asarray(self.cross @ coef)


def panels(K: Float64Array) -> list[Float64Array]:
    """Return copies of the rows of a matrix in panels, each from its diagonal on."""
    return [K[a : a + _PANEL, a:].copy() for a in range(0, len(K), _PANEL)]


def outputs(parts: Sequence[Matrices], ridges: Sequence[float]) -> Float64Array:
    pairs = list(zip(parts, ridges, strict=True))
    return np.concatenate(parallel_map(lambda pair: pair[0].outputs(pair[1]), pairs))


def errors(parts: Sequence[Matrices], outputs: Float64Array) -> Float64Array:
    """Return the weighted squared errors (m,) of the validation rows; infinite without any."""
    Y = np.concatenate([part.validation.Y for part in parts])
    weight = np.concatenate([part.validation.weight for part in parts])
    each = weight * ((Y - outputs) ** 2).sum(axis=1)
    return np.asarray(np.nan_to_num(each, nan=np.inf))


def best_factor(
    parts: Sequence[Matrices], ridges: Sequence[float]
) -> tuple[float, Float64Array]:
    """Return the factor on lambda with the least errors, and the outputs near it."""
    seen: dict[float, Float64Array] = {}

    def values(factors: Sequence[float]) -> list[float]:
        pairs = [(part, f * r) for f in factors for part, r in zip(parts, ridges, strict=True)]
        each = parallel_map(lambda pair: pair[0].outputs(pair[1]), pairs)
        for i, f in enumerate(factors):
            seen[f] = np.concatenate(each[i * len(parts) : (i + 1) * len(parts)])
        means = [max(errors(parts, seen[f]).mean(), 1e-300) for f in factors]
        return [0.5 * float(np.log(mean)) for mean in means]

    low, high = min(1.0, LEAST / min(ridges)), max(1.0, MOST / max(ridges))
    best, _ = best_ridge(values, 1.0, low, high)
    return best, seen[min(seen, key=lambda f: abs(np.log(f / best)))]


def best_ridge(
    values: Callable[[Sequence[float]], Sequence[float]], start: float,
    least: float = LEAST, most: float = MOST,
) -> tuple[float, list[tuple[float, float]]]:  # fmt: skip
    """Return the lambda with the smallest value, and all pairs that were tried.

    The search goes downhill from `start` by factors of 4. Among values that differ by less than
    .001 it prefers the largest lambda. The result is the minimum of the parabola through this
    value and its neighbours, on the logarithmic scale.
    """
    tried: dict[float, float] = {}

    def ask(*ridges: float) -> None:
        new = [r for r in ridges if r not in tried and least <= r <= most]
        if new:
            tried.update(zip(new, values(new), strict=True))

    best = start
    while True:
        low, high = best / _FACTOR, best * _FACTOR
        ask(low, best, high)
        near = min((low, high), key=lambda r: tried.get(r, np.inf))
        if not tried.get(near, np.inf) < tried[best] - _GAIN:
            break
        best = near
    enough = tried[best] + _GAIN
    while tried.get(high := best * _FACTOR, np.inf) < enough:  # in doubt the larger
        best = high
        ask(best * _FACTOR)
    low = best / _FACTOR
    left, mid, right = (tried.get(r, np.inf) for r in (low, best, high))
    if np.isfinite([left, mid, right]).all() and left + right > 2 * mid:
        shift = 0.5 * (left - right) / (left + right - 2 * mid)
        best *= _FACTOR ** float(np.clip(shift, -0.5, 0.5))
    return best, sorted(tried.items())


def ridge_of(
    matrices: Sequence[Float64Array], parts: Sequence[Sample], start: float
) -> tuple[float, list[tuple[float, float]]]:
    """Return the lambda with the least mean leave-one-out objective, and all pairs tried."""

    def value(pair: tuple[float, int]) -> float:
        ridge, p = pair
        K: Any = matrices[p].astype(np.float32 if ridge > SURE else np.float64)
        return ridge_errors(K, parts[p], ridge)[0]

    def values(ridges: Sequence[float]) -> list[float]:
        pairs = [(ridge, p) for ridge in ridges for p in range(len(parts))]
        each = np.reshape(parallel_map(value, pairs), (len(ridges), len(parts)))
        return [float(v) for v in each.mean(axis=1)]

    return best_ridge(values, start)


def carried(few: float, many: float, growth: float, rows: int, n_rows: int) -> float:
    """Return lambda for `n_rows` from the best ones of `rows` and ``rows / growth`` rows."""
    power = float(np.clip(np.log(many / few) / np.log(growth), -0.5, 0.0))
    far = many * (min(n_rows, _FAR_ROWS) / rows) ** power
    return float(np.clip(far, LEAST, MOST))
