"""The kernels of the family that a study learns, their parameters, and the rows they see."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import expit, ndtri
from sklearn.base import clone
from sklearn.tree import DecisionTreeRegressor

from kernelgrad.compute.threads import over_tiles
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
from kernelgrad.types import AnyArray, Float64Array, IntArray

LEAST, MOST = 1e-7, 100.0  # bounds of lambda
SURE = 1e-2  # lambda above which float32 factorises as well
SHAPES = (*MATERN, np.inf)  # smoothness nu
LEAVES, STEPS = 32, 8  # leaves of a tree whose splits are steps, and steps of a column
SPLIT_GAIN = 8.0  # variances of the target by which a split lowers the sum of squares
_PANEL_ENTRIES = 1 << 16  # entries of a panel of pairs of rows
COMPILED = 4e6  # rows times rows times columns from which compiled loops sum columns


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
class Steps:
    """Splits of regression trees, the highest first: columns, thresholds and rises (s,).

    A step rises by the difference of the mean targets of both sides, in standard deviations,
    times the root of the share of rows that are split.
    """

    columns: IntArray
    thresholds: Float64Array
    rises: Float64Array

    @classmethod
    def of(cls, rows: Sample) -> Steps:
        """Return the splits of a tree of all columns, and those of a tree of each column."""
        every = np.arange(rows.X.shape[1])
        parts = [_splits(rows, columns) for columns in (every, *every[:, None])]
        columns, thresholds, rises = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(-rises, kind="stable")
        places = np.stack([columns[order], thresholds[order]], axis=1)
        order = order[np.sort(np.unique(places, axis=0, return_index=True)[1])]
        return cls(columns[order], thresholds[order], rises[order])

    def of_column(self, j: int, values: Float64Array) -> tuple[IntArray, Float64Array]:
        """Return the numbers of the sorted values above the steps of a column; the rises."""
        at = np.flatnonzero(self.columns == j)[:STEPS]
        above = np.searchsorted(values, self.thresholds[at], "right")
        return np.clip(above, 1, len(values) - 1), self.rises[at]


def _splits(rows: Sample, columns: IntArray) -> tuple[IntArray, Float64Array, Float64Array]:
    """Return columns, thresholds and rises of the splits of a tree of some columns."""
    n, mean = rows.n_rows, np.average(rows.Y, axis=0, weights=rows.weight)
    variance = np.average((rows.Y - mean) ** 2, axis=0, weights=rows.weight)
    tree = DecisionTreeRegressor(
        max_leaf_nodes=LEAVES if len(columns) > 1 else STEPS,
        min_samples_leaf=max(5, n // 200),
        min_impurity_decrease=SPLIT_GAIN * variance.mean() / n,
        random_state=0,
    )
    tree = tree.fit(rows.X[:, columns], rows.Y, sample_weight=rows.weight).tree_
    nodes = np.flatnonzero(tree.feature >= 0)
    means, size = tree.value[:, :, 0], tree.weighted_n_node_samples
    change = means[tree.children_right[nodes]] - means[tree.children_left[nodes]]
    rises = np.sqrt(size[nodes] / size[0] * (change**2).sum(axis=1) / variance.sum())
    return columns[tree.feature[nodes]], tree.threshold[nodes], rises


@dataclass(frozen=True)
class Bins:
    """Bins of each column: lower edges, widths and rises (b, d); unused ones have width 0.

    A warp rises in each bin by `rise` before its slopes are learned.
    """

    low: Float64Array
    width: Float64Array
    rise: Float64Array

    @classmethod
    def of(
        cls, X: AnyArray, most: int, *, scores: bool = False, steps: Steps | None = None
    ) -> Bins:
        """Return up to `most` bins a column, between quantiles, or between all its values.

        They rise by their widths or, with `scores`, the bins between quantiles by differences
        of normal scores. Each step adds a bin between two neighbouring values.
        """
        levels = np.linspace(0.0, 1.0, most + 1)
        columns = []
        for j, x in enumerate(X.T):
            every = edges = values = np.unique(x)
            if len(edges) > most + 1:
                edges = values = np.unique(np.quantile(x, levels))
                if scores:
                    places = [np.searchsorted(np.sort(x), edges, s) for s in ("left", "right")]
                    values = ndtri(np.clip(np.mean(places, axis=0) / len(x), 0.02, 0.98))
            if steps is not None and len(every) > 2:
                above, rises = steps.of_column(j, every)
                edges = np.union1d(edges, every[np.concatenate([above - 1, above])])
                values = edges + (edges[:, None] >= every[above]) @ rises
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
    power : float
        Exponent p of the rough part ``exp(-s^p)``, 1/2 or 1.
    is_logistic : bool
        True if the objective is the log loss.
    has_steps : bool
        True if the bins have steps at splits of a tree of the rows that train.
    name : str
        Name of the candidate in the history.
    seconds : float
        Seconds of its descent, on the rows of one fold.
    error, factor : float
        Its error on validation rows, smaller is better, and the factor on lambda for it.
    errors, outputs : float64 arrays (m,), (m, C)
        Squared errors of the validation rows, and the outputs for them.
    """

    nu: float
    groups: IntArray
    theta: Theta
    bins: Bins | None = None
    spread: float = 2.0
    bend: float = 0.25
    power: float = 0.5
    is_logistic: bool = False
    has_steps: bool = False
    name: str = "equal weights"
    seconds: float = 0.0
    error: float = np.inf
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

    def unwarped(self, *, smooth: bool = False) -> Machine:
        """Return the machine without warps, and without the rough part if only `smooth`."""
        gone = ("warp", "rough", "mix") if smooth else ("warp",)
        theta = {name: value for name, value in self.theta.items() if name not in gone}
        return replace(self, theta=theta, bins=None)

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
        return parts_of(self, X)

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
                s = distances(R[a:b], others[1][first:])
                k += q * np.exp(-(np.sqrt(s, out=s) if self.power < 1 else s))
            K[a:b, first:] = k
            if B is None:
                K[b:, a:b] = k[:, b - a :].T

        over_tiles(len(K), panel_height(K.shape[1]), panel)
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
        cls = RootLaplacian if self.power < 1 else Laplacian
        second = cls(scale, column_weights=columns)
        return SumKernel([smooth, second], [1.0 - self.share, self.share]), metric, warp


def parts_of(machine: Machine, U: AnyArray) -> tuple[AnyArray, AnyArray | None]:
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
    compiled = len(B) * B.size > COMPILED
    return tiles.block(A, B, profiles.ABSOLUTE, compiled=compiled)


def panel_height(m: int) -> int:
    """Return the rows of a panel of m columns."""
    return min(m, max(8, _PANEL_ENTRIES // m))
