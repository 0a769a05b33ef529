r"""Metrics, bandwidths and penalties that lower the leave-one-out error of ridge regression.

For a kernel matrix K of m rows with weights v, ``C = (K + lambda diag(1 / v))^-1`` and
``a = C y`` give the errors of all rows that are predicted from the others in closed form,
``e_i = a_i / C_ii``. The objective is half the logarithm of ``sum_i v_i e_i^2``, over that of
the targets; its derivative by K is, with ``u = C (v e / diag C)``,

.. math::
    \partial / \partial K = \Big( -\tfrac12 (u a^\top + a u^\top)
        + C \operatorname{diag}(v e a / \operatorname{diag}(C)^2) C \Big) / \sum_i v_i e_i^2 .

K is a function of the squared distances ``||M (x_i - x_j)||^2``, so that the derivative by the
metric M takes products with m rows and no array of m m d numbers. Weights of columns are
learned from random subsets of the rows, on the logarithmic scale, by Adam: some hundred
factorisations of a few hundred rows, where the recursion of average gradient outer products
needs as many for its held-out grid alone and ends at larger errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg import get_lapack_funcs, lapack

from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import parallel_for
from kernelgrad.kernels import Gaussian, Kernel, Matern
from kernelgrad.kernels.profiles import MATERN, profile
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray

LEAST, MOST = 1e-7, 100.0  # lambda, of kernels with k(x, x) = 1
SURE = 1e-2  # lambda above which float32 factorises as well
_MEAN, _SQUARE = 0.9, 0.99  # decay of the two moments of Adam
# Kernel values are raised to this: products of a few smaller ones would be subnormal numbers.
# Processors are up to ten times slower by these.
_NOTHING = 1e-12
_PANEL = 256  # rows of a matrix that are worked on at a time
_FACTOR = 4.0  # ratio of values of lambda that are tried one after another
_GAIN = 1e-3  # gain of the objective that a smaller lambda must have
# Standard deviations of the normal prior on logarithms of weights around their mean: the first
# suits few columns that count, the second columns that all count.
SPREADS = (2.0, 0.5)

SHAPES = (*MATERN, np.inf)  # smoothness nu


def parallel_map(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Return the values of a function for some items, which the threads share."""
    results: list[Any] = [None] * len(items)

    def task(i: int) -> None:
        results[i] = function(items[i])

    parallel_for(len(items), task)
    return results


def smoothness(kernel: Kernel) -> float | None:
    """Return nu of a kernel whose metric can be learned, infinity for Gaussian; or None."""
    if type(kernel) is Gaussian:
        return np.inf
    if type(kernel) is Matern and kernel.nu in MATERN:
        return float(kernel.nu)
    return None


def kernel_of(nu: float, gamma: float) -> Kernel:
    """Return the kernel of smoothness nu with length scale ``1 / sqrt(2 gamma)``."""
    return Gaussian(gamma) if nu == np.inf else Matern(nu, gamma)


@dataclass(frozen=True)
class Sample:
    """Scaled rows X (m, d) to learn from, centred targets Y (m, C), weights (m,) of mean 1."""

    X: AnyArray
    Y: Float64Array
    weight: Float64Array

    def take(self, rows: IntArray) -> Sample:
        return Sample(self.X[rows], self.Y[rows], self.weight[rows])

    @property
    def n_rows(self) -> int:
        return len(self.Y)


@dataclass(frozen=True)
class Metric:
    """A map of the columns: weights of groups of columns, or a matrix.

    `theta` holds the logarithm of the weight of each group, or the matrix (d, d) itself;
    `groups` (d,) holds the number of each column's group, and is None for a matrix.
    """

    theta: Float64Array
    groups: IntArray | None

    @property
    def weights(self) -> Float64Array:
        return self.theta if self.groups is None else np.exp(self.theta)[self.groups]

    def full(self) -> Metric:
        return Metric(np.diag(self.weights), None)

    def apply(self, X: AnyArray) -> AnyArray:
        M = self.weights.astype(X.dtype)
        return np.asarray(X @ M if self.groups is None else X * M)

    def slope(self, X: AnyArray, Z: AnyArray, A: AnyArray) -> Float64Array:
        """Return the derivative by theta of ``sum_ij A_ij ||z_i - z_j||^2`` for symmetric A."""
        s = A.sum(axis=1)
        if self.groups is None:
            S = X.T @ (s[:, None] * X - A @ X)
            return np.asarray(4.0 * S.astype(np.float64) @ self.theta)
        of_columns = 4.0 * (s @ (Z * Z) - (Z * (A @ Z)).sum(axis=0)).astype(np.float64)
        return np.asarray(np.bincount(self.groups, of_columns, len(self.theta)), np.float64)

    def moved(self, step: Float64Array) -> Metric:
        """Return the metric after a step; weights stay within a fixed factor of the largest."""
        theta = self.theta - step
        if self.groups is not None:
            theta = np.maximum(theta, theta.max() - 8.0)
        return replace(self, theta=theta)

    def times(self, factor: float) -> Metric:
        """Return the metric with all distances multiplied."""
        grown = self.theta * factor if self.groups is None else self.theta + np.log(factor)
        return replace(self, theta=grown)

    def with_gamma(self, gamma: float) -> Metric:
        return self.times(np.sqrt(2 * gamma) / self.largest)

    @property
    def is_equal(self) -> bool:
        return self.groups is not None and len(self.theta) == 1

    @property
    def largest(self) -> float:
        return float(np.linalg.norm(self.weights, np.inf if self.groups is not None else 2))


@dataclass(frozen=True)
class Machine:
    """A ridge regression: its smoothness nu, its metric, and ``lambda`` in ``K + lambda I``.

    ``score`` is its objective on the last subsets (smaller is better), ``errors`` are the
    squared leave-one-out errors of their rows, ``spread`` is the standard deviation of the
    prior of the weights, and ``scaling`` the number of the scaling of its rows.
    """

    nu: float
    metric: Metric
    ridge: float
    score: float = np.inf
    errors: Float64Array = field(default_factory=lambda: np.empty(0), repr=False)
    spread: float = SPREADS[0]
    scaling: int = 0

    @property
    def gamma(self) -> float:
        """The gamma of the kernel if the metric is scaled so that its largest weight is 1."""
        return 0.5 * self.metric.largest**2


def squared_distances(A: AnyArray, B: AnyArray | None = None) -> AnyArray:
    """Return the squared distances (m, n) of rows A (m, d) and B (n, d); B defaults to A."""
    left = np.einsum("ij,ij->i", A, A)
    right = left if B is None else np.einsum("ij,ij->i", B, B)
    D = A @ (A if B is None else B).T
    D *= -2.0
    D += left[:, None]
    D += right
    np.maximum(D, 0.0, out=D)
    if B is None:
        np.fill_diagonal(D, 0.0)
    return D


def inverse(K: AnyArray, diagonal: AnyArray) -> AnyArray | None:
    """Return ``(K + diag(diagonal))^-1``, which overwrites K; None if it is not definite."""
    K[np.diag_indices(len(K))] += diagonal
    potrf, potri = get_lapack_funcs(("potrf", "potri"), (K,))
    L, info = potrf(K.T, lower=True, overwrite_a=True, clean=True)
    if info:
        return None
    C, info = potri(L, lower=True, overwrite_c=True)
    if info:
        return None
    full: AnyArray = C.T  # symmetric once the other triangle is filled
    for a in range(0, len(full), _PANEL):
        b = a + _PANEL
        full[b:, a:b] = full[a:b, b:].T
        corner = full[a:b, a:b]
        corner += np.triu(corner, 1).T
    return full


def left_out(
    K: AnyArray, diagonal: AnyArray, sample: Sample
) -> tuple[AnyArray, Float64Array, Float64Array, float] | None:
    """Return C, ``a = C y``, leave-one-out errors (m, C), and the sum of their squares.

    K is overwritten. The result is None if C is not positive definite or not finite.
    """
    C = inverse(K, diagonal)
    if C is None:
        return None
    a = np.asarray(C @ sample.Y.astype(C.dtype), np.float64)
    e = a / np.diag(C).astype(np.float64)[:, None]
    total = float(sample.weight @ (e**2).sum(axis=1))
    return (C, a, e, max(total, 1e-300)) if np.isfinite(total) else None


def _variation(sample: Sample) -> float:
    return float(sample.weight @ (sample.Y**2).sum(axis=1)) or 1.0


def kernel_matrix(machine: Machine, A: Sample, B: Sample | None = None) -> Float64Array:
    """Return the kernel values (m, n) of the rows of A with those of B; B defaults to A."""
    other = None if B is None else machine.metric.apply(B.X)
    K = squared_distances(machine.metric.apply(A.X), other)
    for a in range(0, len(K), _PANEL):  # in place: one array of this size, not five
        K[a : a + _PANEL] = profile(K[a : a + _PANEL], machine.nu)[0]
    return np.asarray(K, np.float64)


def evaluate(machine: Machine, sample: Sample) -> tuple[float, Float64Array]:
    """Return the objective and the squared leave-one-out errors (m,) of the rows."""
    return ridge_errors(kernel_matrix(machine, sample), sample, machine.ridge)


def ridge_errors(K: FloatArray, sample: Sample, ridge: float) -> tuple[float, Float64Array]:
    """Return the objective and the squared leave-one-out errors (m,); K is overwritten."""
    if K.dtype == np.float32:
        np.maximum(K, np.float32(_NOTHING), out=K)
    errors = left_out(K, ridge / sample.weight, sample)
    if errors is None:
        return np.inf, np.full(sample.n_rows, np.inf)
    _, _, e, total = errors
    return 0.5 * float(np.log(total / _variation(sample))), (e**2).sum(axis=1)


def gradient(machine: Machine, sample: Sample) -> tuple[float, Float64Array, float] | None:
    """Return the objective, its derivatives by theta and by the logarithm of lambda.

    The result is None if the matrix is not positive definite or its inverse is not finite.
    """
    single = machine.ridge > SURE
    X = sample.X.astype(np.float32 if single else np.float64, copy=False)
    Z = machine.metric.apply(X)
    k, slope = profile(squared_distances(Z), machine.nu)
    slope[k < _NOTHING] = 0.0
    np.maximum(k, k.dtype.type(_NOTHING), out=k)
    errors = left_out(k, (machine.ridge / sample.weight).astype(k.dtype), sample)
    if errors is None:
        return None
    C, a, e, total = errors
    c, v = np.diag(C).astype(np.float64), sample.weight
    u = C @ (v[:, None] * e / c[:, None]).astype(C.dtype)
    G = (C * (v * (e * a).sum(axis=1) / c**2).astype(C.dtype)) @ C
    outer = u @ a.T.astype(C.dtype)
    G -= 0.5 * (outer + outer.T)
    G *= C.dtype.type(1.0 / total)
    by_ridge = machine.ridge * float((np.diag(G) / v).sum())
    np.fill_diagonal(G, 0.0)
    G *= slope
    value = 0.5 * float(np.log(total / _variation(sample)))
    return value, machine.metric.slope(X, Z, G), by_ridge


def coefficients(K: Float64Array, ridge: float, sample: Sample) -> Float64Array | None:
    """Return the coefficients (m, C) of the ridge regression; None if K is not definite."""
    H = K.copy()
    H[np.diag_indices(len(H))] += ridge / sample.weight
    L, info = lapack.dpotrf(H.T, lower=True, overwrite_a=True)
    return None if info else np.asarray(lapack.dpotrs(L, sample.Y, lower=True)[0])


def squared_errors(cross: AnyArray, a: Float64Array | None, rows: Sample) -> Float64Array:
    """Return the squared errors (n,) of ``cross @ a``, a (m, C), for other rows."""
    if a is None:
        return np.full(rows.n_rows, np.inf)
    return np.asarray(((rows.Y - cross @ a) ** 2).sum(axis=1))


@dataclass(frozen=True)
class Round:
    """Steps of descent, each on another random subset of the rows."""

    rows: int  # rows of a subset, if there are as many
    steps: int  # number of steps
    length: float = 0.1  # length of the first steps, in logarithms of weights and lambda


def subsets(n: int, size: int, seed: Sequence[int]) -> Iterator[IntArray]:
    """Yield disjoint random subsets of n rows, pass after pass."""
    rng = draws(*seed)
    while True:
        mixed = rng.permutation(n)
        for a in reversed(range(0, n - size + 1, size)):
            yield np.sort(mixed[a : a + size])


def descend(
    machine: Machine,
    sample: Sample,
    plan: Round,
    seed: Sequence[int],
    *,
    alpha: float | None = None,
    gamma: float | None = None,
    over: Callable[[], bool] = lambda: False,
) -> Machine:
    """Return the machine after some steps of Adam, each on another random subset.

    With `alpha` lambda is alpha times the rows of a subset, with `gamma` the largest weight is
    ``sqrt(2 gamma)``; `over` says whether time is up.
    """
    size = min(plan.rows, sample.n_rows)
    rows = subsets(sample.n_rows, size, seed)
    matrix = machine.metric.groups is None
    length = plan.length * (machine.metric.largest if matrix else 1.0)
    prior = 0.0 if matrix else 1.0 / (machine.spread**2 * sample.n_rows)
    mean, square = 0.0, 0.0
    for t in range(1, plan.steps + 1):
        if over():
            break
        if alpha is not None:
            machine = replace(machine, ridge=float(np.clip(alpha * size, LEAST, MOST)))
        slopes = gradient(machine, sample.take(next(rows)))
        if slopes is None:  # nearly singular
            machine = replace(machine, ridge=min(machine.ridge * 4.0, MOST))
            continue
        theta = machine.metric.theta
        by_theta = slopes[1] + prior * (theta - theta.mean())
        g: Any = np.append(by_theta.ravel(), slopes[2])
        mean = _MEAN * mean + (1 - _MEAN) * g
        square = _SQUARE * square + (1 - _SQUARE) * g * g
        # full steps for 60 % of the way, then shorter ones
        fade = min(1.0, (1.0 - (t - 1) / plan.steps) / (1.0 - 0.6))
        unit = (mean / (1 - _MEAN**t)) / (np.sqrt(square / (1 - _SQUARE**t)) + 1e-8)
        move = fade * length * unit
        metric = machine.metric.moved(move[:-1].reshape(theta.shape))
        if gamma is not None:
            metric = metric.with_gamma(gamma)
        change = fade * plan.length * unit[-1]
        ridge = float(np.clip(machine.ridge * np.exp(-change), LEAST, MOST))
        machine = replace(machine, metric=metric, ridge=ridge)
    return machine


def judged(machine: Machine, parts: Sequence[Sample]) -> Machine:
    """Return the machine with its score and its errors, computed on all rows of `parts`."""
    errors = np.concatenate([evaluate(machine, part)[1] for part in parts])
    weight = np.concatenate([part.weight for part in parts])
    total = sum(_variation(part) for part in parts)
    score = 0.5 * float(np.log(max(float(weight @ errors), 1e-300) / total))
    return replace(machine, score=score, errors=errors)


def best_ridge(
    values: Callable[[Sequence[float]], Sequence[float]], start: float
) -> tuple[float, list[tuple[float, float]]]:
    """Return the lambda with the smallest value, and all pairs that were tried.

    The search goes downhill from `start` by factors of 4. Among values that differ by less than
    .001 it prefers the largest lambda. The result is the minimum of the parabola through this
    value and its neighbours, on the logarithmic scale.
    """
    tried: dict[float, float] = {}

    def ask(*ridges: float) -> None:
        new = [r for r in ridges if r not in tried and LEAST <= r <= MOST]
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
