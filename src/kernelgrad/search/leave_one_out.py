r"""Leave-one-out errors of ridge and logistic regression, and their slopes by the kernel.

The kernel of rows x, z with k(x, x) = 1 is

.. math:: k(x, z) = (1 - q)\, \phi\Big(\sum_j w_j^2 (u_j - v_j)^2\Big)
    + q \exp\Big(-\Big(\sum_j r_j |u_j - v_j|\Big)^p\Big),

where u and v are x and z after an increasing piecewise linear warp of each column, and phi is
of a Matern kernel or the Gaussian one. The first part has smooth functions of few columns, the
second one steps and spikes, for p = 1/2 more than for p = 1. Weights w and r, the slopes of the
warps, the share q and the penalty lambda are learned together on the logarithmic scale.

For a kernel matrix K of m rows with weights v, ``C = (K + lambda diag(1 / v))^-1`` and
``a = C y`` give the errors of all rows that are predicted from the others in closed form,
``e_i = a_i / C_ii``. The squared objective is half the logarithm of ``sum_i v_i e_i^2``, over
that of the targets. The slope of ``sum_i h_i(e_i)`` by K is, with ``g = h'(e)``,

.. math:: C \operatorname{diag}(g a / \operatorname{diag}(C)^2) C
    - \tfrac12 (b a^\top + a b^\top), \qquad b = C (g / \operatorname{diag} C) .

Logistic regression is the ridge regression of its last Newton step: with probabilities p its
weights are ``v p (1 - p)`` and its targets ``z = f + (y - p) / (p (1 - p))``. The outputs
without each row are ``z - e``, and the objective is their mean log loss. Targets and weights
are constant in its slope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from kernelgrad.compute import lapack
from kernelgrad.compute.compiling import njit
from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import over_tiles, parallel_map
from kernelgrad.kernels import profiles, tiles
from kernelgrad.kernels.profiles import profile
from kernelgrad.search.machine import (
    COMPILED,
    LEAST,
    MOST,
    Machine,
    Sample,
    Theta,
    panel_height,
    parts_of,
)
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray

_ROUGHLY = 1e-3  # lambda above which slopes in float32 lead as far
_MEAN, _SQUARE = 0.8, 0.95  # decay of the two moments of Adam
# Kernel values are raised to this: products of a few smaller ones would be subnormal numbers.
# Processors are up to ten times slower by these.
_NOTHING = 1e-12
_NEAR = 1e-4  # sum of the rough part below which its slope, which has no bound, is 0
_PANEL = 128  # rows of a matrix that are worked on at a time
_BOUNDS = {"warp": (-3.0, 3.0), "mix": (-6.0, 6.0), "ridge": (np.log(LEAST), np.log(MOST))}
_LEAST_WEIGHT = 8.0  # logarithm of the ratio of the largest to the least weight
_INTERCEPT = 4.0  # variance of the intercept of the logistic objective
_FLAT = 1e-3  # least p (1 - p) of a Newton step
_NEWTON = 5  # number of Newton steps
_SIGNS = 128  # columns of random signs in the estimate of the first term of a slope
_SIGNS_ROWS = 512  # rows from which this term is estimated


@njit(nogil=True, cache=True, fastmath={"contract", "nsz"})
def _sign_sums(R: Any, B: Any, first: Any, out: Any) -> None:
    p, w = B.shape
    for i in range(p):
        for j in range(i + 1, w):
            b = B[i, j]
            for c in range(R.shape[1]):
                t = R[first + i, c] - R[first + j, c]
                s = b if t > 0 else (-b if t < 0 else b - b)
                out[first + i, c] += s
                out[first + j, c] -= s


def distance_slope(R: AnyArray, B: AnyArray, first: int = 0) -> AnyArray:
    """Return the slope (m, d) by R of ``sum_ij B_ij |r_(first + i) - r_(first + j)|_1``.

    B (p, w) has zeros where ``j <= i``. Equal entries count as different ones: their slopes
    cancel wherever these rows move together.
    """
    (p, w), out = B.shape, np.zeros(R.shape, R.dtype)
    if len(R) * R.size > COMPILED:
        _sign_sums(np.ascontiguousarray(R), np.ascontiguousarray(B), first, out)
        return out
    whole: Any = np.int32 if R.dtype == np.float32 else np.int64
    sign, ones = whole(np.iinfo(whole).min), np.ones(max(p, w), R.dtype)
    T, bits = np.empty_like(B), B.view(whole)
    for c, r in enumerate(np.ascontiguousarray(R[first:].T)):
        np.subtract(r[:p, None], r, out=T)  # then B with the signs of the differences
        np.bitwise_and(T.view(whole), sign, out=T.view(whole))
        np.bitwise_xor(T.view(whole), bits, out=T.view(whole))
        out[first : first + p, c] = T @ ones[:w]
        out[first:, c] -= ones[:p] @ T
    return out


@dataclass(frozen=True)
class Pairs:
    """Kernel values of all pairs of m rows, and what their slopes need.

    Of all matrices (m, m) only the upper triangles have a meaning. They are made and used in
    panels of rows that remain in the cache, which the threads share.

    Attributes
    ----------
    Z, R : arrays (m, d)
        Rows as the parts compare them; R is None without a rough part.
    share : float
        The share q of the rough part.
    values, slope : arrays (m, m)
        Kernel values, and the derivative of the first part by squared distances.
    excess, root : arrays (m, m) or None
        The second part minus the first one, and the derivative of the second one by distances.
    """

    Z: AnyArray
    R: AnyArray | None
    share: float
    values: AnyArray
    slope: AnyArray
    excess: AnyArray | None
    root: AnyArray | None

    @classmethod
    def of(cls, Z: AnyArray, R: AnyArray | None, machine: Machine) -> Pairs:
        m, share, p = len(Z), machine.share, machine.power
        q = Z.dtype.type(share)
        matrices = [np.zeros((m, m), Z.dtype) for _ in range(2 if R is None else 4)]
        half = 0.5 * np.einsum("ij,ij->i", Z, Z)
        compiled = R is not None and m * R.size > COMPILED

        def panel(a: int, b: int) -> None:
            D = Z[a:b] @ Z[a:].T
            np.subtract(half[a:b, None], D, out=D)
            D += half[a:]
            D *= 2.0
            np.maximum(D, 0.0, out=D)
            np.fill_diagonal(D, 0.0)
            k, slope = profile(D, machine.nu)
            slope *= k >= _NOTHING
            np.maximum(k, Z.dtype.type(_NOTHING), out=k)
            matrices[1][a:b, a:] = slope
            if R is not None:
                root = tiles.block(R[a:b], R[a:], profiles.ABSOLUTE, compiled=compiled)
                far = root >= _NEAR
                if p < 1:
                    np.sqrt(root, out=root)
                rough = np.exp(-root)
                excess = np.subtract(rough, k, out=matrices[2][a:b, a:])
                k += q * excess
                rough *= -p
                rough *= far
                if p < 1:
                    rough /= np.maximum(root, 1e-30, out=root)
                matrices[3][a:b, a:] = rough
            matrices[0][a:b, a:] = k

        over_tiles(m, panel_height(m), panel)
        return cls(Z, R, share, *matrices, *[None] * (4 - len(matrices)))

    def slopes(self, G: AnyArray) -> tuple[AnyArray, AnyArray, float]:
        """Return the slopes by Z, R (m, d) and log ``q / (1 - q)``, from that by K (m, m)."""
        Z, R, m = self.Z, self.R, len(G)
        q, step = Z.dtype.type(self.share), panel_height(len(G))
        above = np.triu(np.ones((step, step), Z.dtype), 1)

        def panel(a: int) -> tuple[int, AnyArray, AnyArray, float]:
            b, by_R, by_mix = min(m, a + step), np.zeros((0, 0), Z.dtype), 0.0
            g = 2.0 * G[a:b, a:]
            g[:, : b - a] *= above[: b - a, : b - a]
            if R is not None:
                assert self.excess is not None
                assert self.root is not None
                by_mix = float(np.einsum("ij,ij->", g, self.excess[a:b, a:]))
                by_R = distance_slope(R, q * g * self.root[a:b, a:], a)[a:]
            g *= self.slope[a:b, a:]
            by_Z = g.sum(axis=0)[:, None] * Z[a:] - g.T @ Z[a:b]
            by_Z[: b - a] += g.sum(axis=1)[:, None] * Z[a:b] - g @ Z[a:]
            return a, by_Z, by_R, by_mix

        by_Z, by_R = np.zeros(Z.shape), np.zeros(Z.shape if R is not None else (0, 0))
        by_mix = 0.0
        for a, z, r, mix in parallel_map(panel, range(0, m, step)):
            by_Z[a:] += z
            by_R[a:] += r
            by_mix += mix
        return 2.0 * (1.0 - self.share) * by_Z, by_R, self.share * (1.0 - self.share) * by_mix


def inverse(K: AnyArray, diagonal: AnyArray) -> AnyArray | None:
    """Return ``(K + diag(diagonal))^-1``, which overwrites K; None if it is not definite."""
    K[np.diag_indices(len(K))] += diagonal
    return lapack.mirrored(K) if lapack.factor(K) and lapack.invert(K) else None


@dataclass(frozen=True)
class LeftOut:
    """Outputs without each row: C (m, m), a and errors e (m, C), and the value of an objective.

    `slopes` (m, C) are the derivatives of the value by the errors, and `weight` (m,) is that of
    the rows in C.
    """

    C: AnyArray
    a: Float64Array
    errors: Float64Array
    value: float
    slopes: Float64Array
    weight: Float64Array

    def by_matrix(self, rng: np.random.Generator) -> AnyArray:
        """Return the upper triangle of the slope of the value by K, (m, m).

        For many rows its first term ``C diag(h) C`` is an unbiased estimate, the mean of
        ``C |h|^(1/2) s s^T sign(h) |h|^(1/2) C`` over columns s of random signs.
        """
        C, c, m = self.C, np.diag(self.C).astype(np.float64), len(self.C)
        h = (self.slopes * self.a).sum(axis=1) / c**2
        if m < _SIGNS_ROWS:
            left, right = C * h.astype(C.dtype), C
        else:
            S = 2.0 * rng.integers(0, 2, (m, _SIGNS), np.int8) - 1.0
            S *= np.sqrt(np.abs(h) / _SIGNS)[:, None]
            right = _product(C, S)
            left = _product(C, np.sign(h)[:, None] * S) if h.min() < 0 else right
        by_target = -0.5 * _product(C, self.slopes / c[:, None])
        own = self.a.astype(C.dtype)
        left, right = np.hstack([left, by_target, own]), np.hstack([right, own, by_target]).T
        G = np.zeros_like(C)

        def panel(a: int, b: int) -> None:
            np.matmul(left[a:b], right[:, a:], out=G[a:b, a:])

        over_tiles(m, max(_PANEL, -(-m // 8)), panel)
        return G


def _product(C: AnyArray, V: Float64Array) -> AnyArray:
    """Return ``C V`` (m, k) in the precision of C, by panels."""
    right, out = V.astype(C.dtype), np.empty(V.shape, C.dtype)

    def panel(a: int, b: int) -> None:
        np.matmul(C[a:b], right, out=out[a:b])

    over_tiles(len(C), _PANEL, panel)
    return out


def _solution(
    K: AnyArray, ridge: float, weight: Float64Array, Y: Float64Array
) -> tuple[AnyArray, Float64Array, Float64Array] | None:
    """Return C, a and e of a ridge regression; K is overwritten. None if not finite."""
    C = inverse(K, (ridge / weight).astype(K.dtype))
    if C is None:
        return None
    a = np.asarray(C @ Y.astype(C.dtype), np.float64)
    e = a / np.diag(C).astype(np.float64)[:, None]
    return (C, a, e) if np.isfinite(e).all() else None


def squared(K: AnyArray, ridge: float, sample: Sample) -> LeftOut | None:
    """Return the squared objective, or None if it is not finite; K is overwritten."""
    solution = _solution(K, ridge, sample.weight, sample.Y)
    if solution is None:
        return None
    C, a, e = solution
    total = max(float(sample.weight @ (e**2).sum(axis=1)), 1e-300)
    value = 0.5 * float(np.log(total / variation(sample)))
    return LeftOut(C, a, e, value, sample.weight[:, None] * e / total, sample.weight)


def logistic(K: AnyArray, ridge: float, sample: Sample) -> Iterator[LeftOut | None]:
    """Yield the objective of each class against the others; the sum is the objective."""
    K += K.dtype.type(_INTERCEPT)
    m, v = sample.n_rows, sample.weight
    for sign in sample.signs.T:
        y, f = 0.5 * (sign + 1.0), np.zeros(m)
        for step in range(_NEWTON):
            p = expit(f)
            curve = np.maximum(p * (1.0 - p), _FLAT)
            z = f + (y - p) / curve
            if step == _NEWTON - 1:
                break
            H = K.copy()
            H[np.diag_indices(m)] += (ridge / (v * curve)).astype(K.dtype)
            if not lapack.factor(H):
                yield None
                return
            a = lapack.solve(H, z[:, None])[:, 0].astype(np.float64)
            f = f + np.clip(z - ridge / (v * curve) * a - f, -4.0, 4.0)
        solution = _solution(K.copy(), ridge, v * curve, z[:, None])
        if solution is None:
            yield None
            return
        C, a, e = solution
        out = np.clip(z - e[:, 0], -30.0, 30.0)
        value = float(v @ np.logaddexp(0.0, -sign * out)) / m
        slopes = v * (y - expit(out)) / m
        yield LeftOut(C, a, e, value, slopes[:, None], v * curve)


def variation(sample: Sample) -> float:
    return float(sample.weight @ (sample.Y**2).sum(axis=1)) or 1.0


def gradient(
    machine: Machine, sample: Sample, rng: np.random.Generator
) -> tuple[float, Theta] | None:
    """Return the objective and its derivatives by theta; None if it is not finite."""
    dtype = np.float32 if machine.ridge > _ROUGHLY else np.float64
    X, theta = sample.X.astype(dtype, copy=False), machine.theta
    P = None if machine.bins is None else machine.bins.shares(X)
    U = X if P is None else np.einsum("mbd,bd->md", P, machine.rises(dtype))
    Z, R = parts_of(machine, U)
    pairs = Pairs.of(Z, R, machine)
    if machine.is_logistic:
        parts: Iterable[LeftOut | None] = logistic(pairs.values, machine.ridge, sample)
    else:
        parts = [squared(pairs.values, machine.ridge, sample)]
    value, by_ridge, G = 0.0, 0.0, None
    for part in parts:  # one after another: each has matrices
        if part is None:
            return None
        G_part = part.by_matrix(rng)
        value += part.value
        by_ridge += machine.ridge * float((np.diag(G_part) / part.weight).sum())
        G = G_part if G is None else np.add(G, G_part, out=G)
    assert G is not None
    by_Z, by_R, by_mix = pairs.slopes(G)
    slopes: dict[str, Any] = {"ridge": [by_ridge], "mix": [by_mix]}
    M = machine.weights("smooth", dtype)
    g = int(machine.groups.max()) + 1
    if M.ndim == 2:
        slopes["matrix"], by_U = U.T @ by_Z, by_Z @ M.T
    else:
        slopes["smooth"] = np.bincount(machine.groups, (by_Z * Z).sum(axis=0), g)
        by_U = by_Z * M
    if R is not None:
        slopes["rough"] = np.bincount(machine.groups, (by_R * R).sum(axis=0), g)
        by_U = by_U + by_R * machine.weights("rough", dtype)
    if P is not None:
        slopes["warp"] = np.einsum("md,mbd->bd", by_U, P) * machine.rises(np.float64)
    return value, {
        name: np.asarray(slopes[name], np.float64) for name in theta if name in slopes
    }


@dataclass(frozen=True)
class Round:
    """Steps of descent, each on another random subset of the rows."""

    rows: int  # rows of a subset, if there are as many
    steps: int  # number of steps
    length: float  # length of the first steps, in logarithms of parameters
    number: int = 0  # its place in the descent of weights; 0 is the first


def subsets(n: int, size: int, seed: Sequence[int]) -> Iterator[IntArray]:
    """Yield disjoint random subsets of n rows, pass after pass."""
    rng = draws(*seed)
    while True:
        mixed = rng.permutation(n)
        for a in reversed(range(0, n - size + 1, size)):
            yield np.sort(mixed[a : a + size])


def descend(
    machine: Machine, sample: Sample, plan: Round, seed: Sequence[int], *,
    alpha: float | None = None, gamma: float | None = None,
    over: Callable[[], bool] = lambda: False,
) -> Machine:  # fmt: skip
    """Return the machine after some steps of Adam, each on another random subset.

    With `alpha` lambda is alpha times the rows of a subset, with `gamma` the largest weight is
    ``sqrt(2 gamma)``; `over` says whether time is up.
    """
    size = min(plan.rows, sample.n_rows)
    rows, rng = subsets(sample.n_rows, size, seed), draws(*seed, 1)
    mean: dict[str, Any] = dict.fromkeys(machine.theta, 0.0)
    square = dict(mean)
    spreads = {"smooth": machine.spread, "rough": machine.spread, "warp": machine.bend}
    for t in range(1, plan.steps + 1):
        if over():
            break
        if alpha is not None:
            machine = machine.with_ridge(alpha * size)
        slopes = gradient(machine, sample.take(next(rows)), rng)
        if slopes is None:  # nearly singular
            machine = machine.with_ridge(4.0 * machine.ridge)
            continue
        theta = {}
        # full steps for 40 % of the way, then shorter ones
        length = plan.length * min(1.0, (1.0 - (t - 1) / plan.steps) / 0.6)
        for name, value in machine.theta.items():
            g = slopes[1].get(name, np.zeros_like(value))
            if name in spreads:
                middle = 0.0 if name == "warp" else value.mean()
                g = g + (value - middle) / (spreads[name] ** 2 * sample.n_rows)
            mean[name] = _MEAN * mean[name] + (1 - _MEAN) * g
            square[name] = _SQUARE * square[name] + (1 - _SQUARE) * g * g
            unit = mean[name] / (1 - _MEAN**t)
            unit = unit / (np.sqrt(square[name] / (1 - _SQUARE**t)) + 1e-8)
            size_of = machine.largest * 0.1 if name == "matrix" else 1.0
            moved = value - length * size_of * unit
            if name in ("smooth", "rough"):
                moved = np.maximum(moved, moved.max() - _LEAST_WEIGHT)
            theta[name] = np.clip(moved, *_BOUNDS.get(name, (-np.inf, np.inf)))
        machine = machine.with_theta(**theta)
        if gamma is not None:
            machine = machine.narrowed(np.sqrt(2 * gamma) / machine.largest)
    return machine


def ridge_errors(K: FloatArray, sample: Sample, ridge: float) -> tuple[float, Float64Array]:
    """Return the squared objective and the squared errors (m,); K is overwritten."""
    if K.dtype == np.float32:
        np.maximum(K, np.float32(_NOTHING), out=K)
    result = squared(K, ridge, sample)
    if result is None:
        return np.inf, np.full(sample.n_rows, np.inf)
    return result.value, (result.errors**2).sum(axis=1)
