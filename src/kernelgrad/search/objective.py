r"""Leave-one-out errors of ridge and logistic regression, and their slopes by the kernel.

The kernel of rows x, z with k(x, x) = 1 is

.. math:: k(x, z) = (1 - q)\, \phi\Big(\sum_j w_j^2 (u_j - v_j)^2\Big)
    + q \exp\Big(-\Big(\sum_j r_j |u_j - v_j|\Big)^{1/2}\Big),

where u and v are x and z after an increasing piecewise linear warp of each column, and phi is
of a Matern kernel or the Gaussian one. The first part has smooth functions of few columns, the
second one steps and spikes. Weights w and r, the slopes of the warps, the share q and the
penalty lambda are learned together on the logarithmic scale.

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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg import get_lapack_funcs
from scipy.special import expit, ndtri
from sklearn.base import clone

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import over_tiles, parallel_map
from kernelgrad.kernels import (
    Gaussian,
    Kernel,
    Laplacian,
    Matern,
    RootLaplacian,
    SumKernel,
    profiles,
    tiles,
)  # fmt: skip
from kernelgrad.kernels.profiles import MATERN, profile
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray

LEAST, MOST = 1e-7, 100.0  # bounds of lambda
SURE = 1e-2  # lambda above which float32 factorises as well
_ROUGHLY = 1e-3  # lambda above which slopes in float32 lead as far
_MEAN, _SQUARE = 0.8, 0.95  # decay of the two moments of Adam
# Kernel values are raised to this: products of a few smaller ones would be subnormal numbers.
# Processors are up to ten times slower by these.
_NOTHING = 1e-12
_NEAR = 1e-4  # sum of the rough part below which its slope, which has no bound, is 0
_PANEL = 256  # rows of a matrix that are worked on at a time
_PANEL_ENTRIES = 1 << 16  # entries of a panel of pairs of rows
_COMPILED = 4e6  # rows times rows times columns from which compiled loops sum columns
_INTERCEPT = 4.0  # variance of the intercept of the logistic objective
_FLAT = 1e-3  # least p (1 - p) of a Newton step
_NEWTON = 5  # number of Newton steps

SHAPES = (*MATERN, np.inf)  # smoothness nu


def smoothness(kernel: Kernel) -> float | None:
    """Return nu of a kernel whose metric can be learned, infinity for Gaussian; or None."""
    if type(kernel) is Gaussian:
        return np.inf
    if type(kernel) is Matern and kernel.nu in MATERN:
        return float(kernel.nu)
    return None


def smooth_kernel(nu: float, gamma: float) -> Kernel:
    """Return the kernel of smoothness nu with length scale ``1 / sqrt(2 gamma)``."""
    return Gaussian(gamma) if nu == np.inf else Matern(nu, gamma)


def narrowed(kernel: Kernel, factor: float) -> Kernel:
    """Return the kernel with gamma times a factor; that of a rough part is its square root."""
    if isinstance(kernel, SumKernel):
        return SumKernel([narrowed(part, factor) for part in kernel.kernels], kernel.weights)
    own = np.sqrt(factor) if isinstance(kernel, Laplacian) else factor
    scaled: Kernel = clone(kernel).set_params(gamma=kernel.gamma_value * own)
    return scaled


@dataclass(frozen=True)
class Sample:
    """Scaled rows X (m, d), centred targets Y (m, C), class codes (m,) or None, weights (m,).

    The weights have mean 1.
    """

    X: AnyArray
    Y: Float64Array
    weight: Float64Array
    codes: IntArray | None = None

    def take(self, rows: IntArray) -> Sample:
        codes = None if self.codes is None else self.codes[rows]
        return Sample(self.X[rows], self.Y[rows], self.weight[rows], codes)

    @property
    def n_rows(self) -> int:
        return len(self.Y)

    @property
    def signs(self) -> Float64Array:
        """1 in the column of each row's class, else -1: (m, C), one column for two classes."""
        C = self.Y.shape[1]
        own = np.arange(C) + (C == 1)
        assert self.codes is not None
        return np.where(self.codes[:, None] == own, 1.0, -1.0)


@dataclass(frozen=True)
class Bins:
    """Bins of each column: lower edges, widths and rises (b, d); unused ones have width 0.

    A warp rises in each bin by `rise` before its slopes are learned.
    """

    low: Float64Array
    width: Float64Array
    rise: Float64Array

    @classmethod
    def of(cls, X: AnyArray, most: int, *, scores: bool = False) -> Bins:
        """Return up to `most` bins a column, between quantiles, or between all its values.

        They rise by their widths or, with `scores`, the bins between quantiles by differences
        of normal scores.
        """
        levels = np.linspace(0.0, 1.0, most + 1)
        columns = []
        for x in X.T:
            edges = values = np.unique(x)
            if len(edges) > most + 1:
                edges = values = np.unique(np.quantile(x, levels))
                if scores:
                    places = [np.searchsorted(np.sort(x), edges, s) for s in ("left", "right")]
                    values = ndtri(np.clip(np.mean(places, axis=0) / len(x), 0.02, 0.98))
            columns.append((edges, values))
        b = max(1, max(len(edges) for edges, _ in columns) - 1)
        edges, values = (
            np.stack([np.pad(c[k], (0, b + 1 - len(c[k])), "edge") for c in columns], axis=1)
            for k in (0, 1)
        )
        width = np.diff(edges, axis=0)
        rise = np.maximum(np.diff(values, axis=0), 1e-3 * (width > 0))
        return cls(edges[:-1], width, rise)

    def shares(self, X: AnyArray) -> AnyArray:
        """Return the share of each bin that lies below the entries: (m, b, d)."""
        width = np.where(self.width > 0, self.width, 1.0).astype(X.dtype)
        P: AnyArray = X[:, None, :] - self.low.astype(X.dtype)
        P /= width
        return np.clip(P, 0.0, 1.0, out=P)

    def warp(self, logs: Float64Array) -> Float64Array:
        """Return edges and values there, (2, b + 1, d), for logarithms of slopes (b, d)."""
        rise = np.vstack([self.low[:1], self.rise * np.exp(logs)])
        edges = np.vstack([self.low, self.low[-1:] + self.width[-1:]])
        return np.stack([edges, np.cumsum(rise, axis=0)])


Theta = dict[str, Float64Array]  # logarithms of parameters by name
_BOUNDS = {"warp": (-3.0, 3.0), "mix": (-6.0, 6.0), "ridge": (np.log(LEAST), np.log(MOST))}
_LEAST_WEIGHT = 8.0  # logarithm of the ratio of the largest to the least weight


@dataclass(frozen=True)
class Machine:
    """A kernel of the family, its penalty, and the prior with which both are learned.

    Attributes
    ----------
    nu : float
        Smoothness of the first part.
    groups : int array (d,)
        Number of each column's group; columns of a group share their weights.
    theta : dict of float64 arrays
        ``smooth`` and ``rough`` (g,) are the logarithms of w and r, ``warp`` (b, d) those of
        slopes, ``mix`` (1,) that of ``q / (1 - q)``, ``ridge`` (1,) that of lambda. Without
        ``rough`` there is the first part only, without ``warp`` the identity. With ``matrix``
        (d, r) the first part takes distances of rows times a matrix in place of weights.
    bins : Bins or None
    spread, bend : float
        Standard deviations of the normal prior on ``smooth`` and ``rough`` around their means,
        and of that on ``warp`` around 0.
    is_logistic : bool
        True if the objective is the log loss.
    name : str
        Name of the candidate in the history.
    seconds : float
        Seconds of its descent, on the rows of one fold.
    score, factor : float
        Its error on rows that judge, smaller is better, and the factor on lambda for it.
    errors, outputs : float64 arrays (m,), (m, C)
        Squared errors of the rows that judge, and the outputs for them.
    """

    nu: float
    groups: IntArray
    theta: Theta
    bins: Bins | None = None
    spread: float = 2.0
    bend: float = 0.25
    is_logistic: bool = False
    name: str = "equal weights"
    seconds: float = 0.0
    score: float = np.inf
    factor: float = 1.0
    errors: Float64Array = field(default_factory=lambda: np.empty(0), repr=False)
    outputs: Float64Array = field(default_factory=lambda: np.empty(0), repr=False)

    @property
    def ridge(self) -> float:
        return float(np.exp(self.theta["ridge"][0]))

    @property
    def share(self) -> float:
        """The share q of the rough part."""
        return float(expit(self.theta["mix"][0])) if self.is_sum else 0.0

    @property
    def is_sum(self) -> bool:
        return "rough" in self.theta

    @property
    def is_equal(self) -> bool:
        return "matrix" not in self.theta and not self.groups.any()

    @property
    def largest(self) -> float:
        """The largest weight w, or norm of the matrix."""
        if "matrix" in self.theta:
            return float(np.linalg.norm(self.theta["matrix"], 2))
        return float(np.exp(self.theta["smooth"].max()))

    def with_theta(self, **theta: Any) -> Machine:
        arrays = {name: np.asarray(value, np.float64) for name, value in theta.items()}
        return replace(self, theta=self.theta | arrays)

    def with_ridge(self, ridge: float) -> Machine:
        return self.with_theta(ridge=[np.log(np.clip(ridge, LEAST, MOST))])

    def narrowed(self, factor: float) -> Machine:
        """Return the machine with all distances multiplied."""
        theta = dict(self.theta)
        for name in {"smooth", "rough"} & theta.keys():
            theta[name] = theta[name] + np.log(factor)
        if "matrix" in theta:
            theta["matrix"] = theta["matrix"] * factor
        return replace(self, theta=theta)

    def raised(self, ratio: float) -> Machine:
        """Return the machine with weights half way up to the largest over `ratio`, on the logs.

        Few rows may have hidden a column, whose slope vanishes with its weight.
        """
        theta = dict(self.theta)
        for name in {"smooth", "rough"} & theta.keys():
            floor = theta[name].max() - np.log(ratio)
            theta[name] = np.maximum(theta[name], 0.5 * (theta[name] + floor))
        return replace(self, theta=theta)

    def weights(self, part: str, dtype: Any) -> AnyArray:
        """Return the weights (d,) of the part "smooth" or "rough", or the matrix."""
        if part == "smooth" and "matrix" in self.theta:
            return self.theta["matrix"].astype(dtype)
        return np.exp(self.theta[part])[self.groups].astype(dtype)

    def rises(self, dtype: Any) -> AnyArray:
        """Return by how much the warps rise in each bin: (b, d)."""
        assert self.bins is not None
        return (self.bins.rise * np.exp(self.theta["warp"])).astype(dtype)

    def embed(self, X: AnyArray) -> tuple[AnyArray, AnyArray | None]:
        """Return the rows as the parts compare them: (m, r), and (m, d) or None."""
        if self.bins is not None:
            X = np.einsum("mbd,bd->md", self.bins.shares(X), self.rises(X.dtype))
        return _parts(self, X)

    def matrix(self, A: Sample, B: Sample | None = None) -> Float64Array:
        """Return the kernel values (m, n) of the rows of A with those of B, or of A."""
        single = self.ridge > SURE
        dtype = np.float32 if single else np.float64
        Z, R = self.embed(A.X.astype(dtype, copy=False))
        others = (Z, R) if B is None else self.embed(B.X.astype(dtype, copy=False))
        K, q = np.empty((len(Z), len(others[0]))), dtype(self.share)

        def panel(a: int, b: int) -> None:
            first = a if B is None else 0
            D = squared_distances(Z[a:b], others[0][first:])
            if B is None:
                np.fill_diagonal(D, 0.0)
            k = profile(D, self.nu)[0]
            if R is not None and others[1] is not None:
                k *= 1 - q
                k += q * np.exp(-np.sqrt(distances(R[a:b], others[1][first:])))
            K[a:b, first:] = k
            if B is None:
                K[b:, a:b] = k[:, b - a :].T

        over_tiles(len(K), _PANEL, panel)
        return K

    def kernel(self) -> tuple[Kernel, Float64Array | None, Float64Array | None]:
        """Return the kernel of warped and weighted rows, the metric, and the warp.

        The metric is None for equal weights; its largest weight is 1.
        """
        gamma, largest = 0.5 * self.largest**2, self.largest
        smooth = smooth_kernel(self.nu, gamma)
        metric = None if self.is_equal else self.weights("smooth", np.float64) / largest
        warp = None if self.bins is None else self.bins.warp(self.theta["warp"])
        if not self.is_sum:
            return smooth, metric, warp
        rough = self.weights("rough", np.float64)
        ratio = rough if metric is None else rough / metric
        scale = float(ratio.max())
        columns = None if metric is None else (ratio / scale).tolist()
        second = RootLaplacian(scale, column_weights=columns)
        return SumKernel([smooth, second], [1.0 - self.share, self.share]), metric, warp


def _parts(machine: Machine, U: AnyArray) -> tuple[AnyArray, AnyArray | None]:
    M = machine.weights("smooth", U.dtype)
    Z = np.asarray(U @ M if M.ndim == 2 else U * M)
    return Z, U * machine.weights("rough", U.dtype) if machine.is_sum else None


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


def distances(A: AnyArray, B: AnyArray) -> AnyArray:
    """Return the sums (m, n) of absolute differences of rows A (m, d) and B (n, d)."""
    compiled = len(B) * B.size > _COMPILED
    return tiles.block(A, B, profiles.ABSOLUTE, compiled=compiled)


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
    if len(R) * R.size > _COMPILED:
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
    def of(cls, Z: AnyArray, R: AnyArray | None, nu: float, share: float) -> Pairs:
        m, q = len(Z), Z.dtype.type(share)
        matrices = [np.zeros((m, m), Z.dtype) for _ in range(2 if R is None else 4)]
        half = 0.5 * np.einsum("ij,ij->i", Z, Z)
        compiled = R is not None and m * R.size > _COMPILED

        def panel(a: int, b: int) -> None:
            D = Z[a:b] @ Z[a:].T
            np.subtract(half[a:b, None], D, out=D)
            D += half[a:]
            D *= 2.0
            np.maximum(D, 0.0, out=D)
            np.fill_diagonal(D, 0.0)
            k, slope = profile(D, nu)
            slope *= k >= _NOTHING
            np.maximum(k, Z.dtype.type(_NOTHING), out=k)
            matrices[1][a:b, a:] = slope
            if R is not None:
                root = tiles.block(R[a:b], R[a:], profiles.ABSOLUTE, compiled=compiled)
                far = root >= _NEAR
                np.sqrt(root, out=root)
                rough = np.exp(-root)
                excess = np.subtract(rough, k, out=matrices[2][a:b, a:])
                k += q * excess
                np.maximum(root, 1e-30, out=root)
                rough *= -0.5
                rough *= far
                np.divide(rough, root, out=matrices[3][a:b, a:])
            matrices[0][a:b, a:] = k

        over_tiles(m, _height(m), panel)
        return cls(Z, R, share, *matrices, *[None] * (4 - len(matrices)))

    def slopes(self, G: AnyArray) -> tuple[AnyArray, AnyArray, float]:
        """Return the slopes by Z, R (m, d) and log ``q / (1 - q)``, from that by K (m, m)."""
        Z, R, m = self.Z, self.R, len(G)
        q, step = Z.dtype.type(self.share), _height(len(G))
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


def _height(m: int) -> int:
    """Return the rows of a panel of m columns."""
    return min(m, max(8, _PANEL_ENTRIES // m))


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
    return _mirrored(C.T)


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

    def by_matrix(self) -> AnyArray:
        """Return the upper triangle of the slope of the value by K, (m, m)."""
        C, c = self.C, np.diag(self.C).astype(np.float64)
        u = (C @ (self.slopes / c[:, None]).astype(C.dtype)).astype(C.dtype)
        factor = (self.slopes * self.a).sum(axis=1) / c**2
        left, right = C * factor.astype(C.dtype), self.a.astype(C.dtype)
        G, m = np.zeros_like(C), len(C)

        def panel(a: int, b: int) -> None:
            np.matmul(left[a:b], C[:, a:], out=G[a:b, a:])
            G[a:b, a:] -= 0.5 * (u[a:b] @ right[a:].T + right[a:b] @ u[a:].T)

        over_tiles(m, max(_PANEL, -(-m // 8)), panel)
        return G


def _mirrored(M: AnyArray) -> AnyArray:
    """Return a C-contiguous matrix whose upper triangle alone was computed, made symmetric."""
    for a in range(0, len(M), _PANEL):
        b = a + _PANEL
        M[b:, a:b] = M[a:b, b:].T
        corner = M[a:b, a:b]
        np.copyto(corner, corner.T.copy(), where=np.tri(len(corner), k=-1, dtype=bool))
    return M


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
            potrf, potrs = get_lapack_funcs(("potrf", "potrs"), (H,))
            L, info = potrf(H.T, lower=True, overwrite_a=True)
            if info:
                yield None
                return
            a = potrs(L, z.astype(K.dtype), lower=True)[0].astype(np.float64)
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


def gradient(machine: Machine, sample: Sample) -> tuple[float, Theta] | None:
    """Return the objective and its derivatives by theta; None if it is not finite."""
    dtype = np.float32 if machine.ridge > _ROUGHLY else np.float64
    X, theta = sample.X.astype(dtype, copy=False), machine.theta
    P = None if machine.bins is None else machine.bins.shares(X)
    U = X if P is None else np.einsum("mbd,bd->md", P, machine.rises(dtype))
    Z, R = _parts(machine, U)
    pairs = Pairs.of(Z, R, machine.nu, machine.share)
    if machine.is_logistic:
        parts = list(logistic(pairs.values, machine.ridge, sample))
    else:
        parts = [squared(pairs.values, machine.ridge, sample)]
    value, by_ridge = 0.0, 0.0
    G = np.zeros_like(pairs.values)
    for part in parts:
        if part is None:
            return None
        G_part = part.by_matrix()
        value += part.value
        by_ridge += machine.ridge * float((np.diag(G_part) / part.weight).sum())
        G += G_part
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
    mean: dict[str, Any] = dict.fromkeys(machine.theta, 0.0)
    square = dict(mean)
    spreads = {"smooth": machine.spread, "rough": machine.spread, "warp": machine.bend}
    for t in range(1, plan.steps + 1):
        if over():
            break
        if alpha is not None:
            machine = machine.with_ridge(alpha * size)
        slopes = gradient(machine, sample.take(next(rows)))
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
