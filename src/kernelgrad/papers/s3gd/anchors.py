"""Clusters, anchors, and the graph between anchors and rows (Algorithm 2, Section 2.3)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.metrics.pairwise import euclidean_distances
from threadpoolctl import threadpool_limits

from kernelgrad.compute.linalg import dense
from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import over_tiles, parallel_for
from kernelgrad.linear import loops
from kernelgrad.linear.base import LinearProblem, PreparedRows
from kernelgrad.linear.loops import output, responses, slopes_of_row
from kernelgrad.linear.stochastic import weighted_draws
from kernelgrad.losses import scalar
from kernelgrad.types import AnyArray, Float64Array, IntArray, Matrix

_TAG = 0x616E63
_TILE = 4096  # rows of a task
_BINS = 16  # bins of targets, if derivatives do not split into response and target
_SPLIT = (scalar.SQUARED, scalar.LOGISTIC, scalar.MULTINOMIAL)


def cluster_rows(data: PreparedRows, n_clusters: int, seed: int) -> IntArray:
    """Return the nearest centre of k-means for every row, (n,)."""
    return nearest_points(data.batch.X, find_centres(data, n_clusters, seed), 1)[0][:, 0]


def find_centres(data: PreparedRows, n_clusters: int, seed: int) -> Float64Array:
    """Return centres of k-means on a sample of the rows, (k, d).

    Twenty rows for each centre, and at least 1,000: more rows cost more than they give
    (measured). The sample is drawn in proportion to the weights.
    """
    from sklearn.cluster import KMeans  # slow to import, rarely needed

    rng, size = draws(seed, _TAG, 0), max(20 * n_clusters, 1000)
    if size < data.n:
        index = np.unique(weighted_draws(data.cumulative, size, rng))
    else:
        index = np.flatnonzero(data.share > 0)
    sample = data.batch.X[index].astype(np.float64, copy=False)
    k = min(n_clusters, len(index))
    if k == 1:
        return np.asarray(sample.mean(axis=0)).reshape(1, -1)
    means = KMeans(k, n_init=1, max_iter=10, random_state=int(rng.integers(2**31 - 1)))
    # rows that repeat make fewer clusters than asked for: no fault of the caller
    shadow = np.asarray(sample @ rng.standard_normal(data.d)).ravel()
    distinct = np.unique(shadow, return_index=True)[1]
    if len(distinct) < k:
        return dense(sample[distinct], np.float64)
    with threadpool_limits(1, user_api="openmp"):  # sums of threads differ in the last bits
        return np.asarray(means.fit(sample).cluster_centers_)


def nearest_points(X: Matrix, points: Float64Array, k: int) -> tuple[IntArray, Float64Array]:
    """Return the k nearest of `points` for each row, (n, k), nearest first, and distances."""
    n, m = X.shape[0], len(points)
    k = min(k, m)
    places, values = np.zeros((n, k), np.int64), np.zeros((n, k))

    def task(a: int, z: int) -> None:
        D = _square_distances(X[a:z], points)
        near = np.argpartition(D, k - 1, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(D, near, axis=1), axis=1, kind="stable")
        places[a:z] = np.take_along_axis(near, order, axis=1)
        values[a:z] = np.take_along_axis(D, places[a:z], axis=1)

    over_tiles(n, _TILE, task)
    return places, np.sqrt(values)


def _square_distances(part: Matrix, points: Float64Array) -> Float64Array:
    # differences of large numbers need float64
    D = euclidean_distances(part.astype(np.float64, copy=False), points, squared=True)
    return np.asarray(D)


def build_graph(
    problem: LinearProblem, data: PreparedRows, n_anchors: int, n_neighbors: int
) -> AnchorGraph:
    """Return the graph of the rows of `data` with anchors among them (Algorithm 2).

    The bandwidth of a row is the distance of its nearest anchor: the square root that
    Equation (14) prints would make weights depend on the scale of the columns. Raises
    CapabilityError if the products would need more memory than there may be.
    """
    X, n, C = data.batch.X, data.n, data.Y.shape[1]
    copies = 1 if data.code in _SPLIT else C * (2 if _has_classes(data) else _BINS)
    check_points(problem, min(n_anchors, n), data.d, "s3gd", copies)
    centres = find_centres(data, n_anchors, problem.seed)  # Algorithm 2, step 2
    anchors = np.unique(_snap(X, data.share > 0, centres))  # steps 3 to 5, Equation (13)
    points = dense(X[anchors], np.float64)
    near, distance = nearest_points(X, points, n_neighbors)  # step 7
    # step 8, Equation (14)
    width = np.maximum(distance[:, :1], 1e-4 * float(np.median(distance)))
    width = np.where(width > 1e-150, width, 1.0)  # else all anchors of a row are the row itself
    # the nearest has the largest weight, so that none can vanish altogether
    gamma = np.exp((distance[:, :1] ** 2 - distance**2) / width**2)
    gamma /= gamma.sum(axis=1, keepdims=True)
    code, targets, spread = _targets(data)
    m, k = len(anchors), near.shape[1]
    E = 1 if len(targets) == 1 else C
    product = np.zeros((len(targets), E, m, data.d))
    product_bias = np.zeros((len(targets), E, m))
    indptr = np.arange(0, n * k + 1, k)
    weighted = gamma * data.share[:, None]
    for v in range(len(targets)):
        for e in range(E):
            part = weighted * (code[:, e] == v)[:, None]
            M = sp.csr_matrix((part.ravel(), near.ravel(), indptr), shape=(n, m))
            product[v, e] = dense(M.T @ X)
            product_bias[v, e] = np.asarray(M.sum(axis=0)).ravel()
    shares = spread * data.share[:, None]
    return AnchorGraph(
        anchors=anchors, near=near, gamma=gamma, code=code, targets=targets, product=product,
        product_bias=product_bias, offset=data.native(data.gradient(shares)),
        offset_bias=shares.sum(axis=0), spread=spread,
    )  # fmt: skip


def _snap(X: Matrix, live: AnyArray, centres: Float64Array) -> IntArray:
    """Return the nearest row of each centre, Equation (13), among those with a weight."""
    n, m = X.shape[0], len(centres)
    tiles = -(-n // _TILE)
    values, places = np.full((tiles, m), np.inf), np.zeros((tiles, m), np.int64)

    def task(t: int) -> None:
        r = slice(t * _TILE, (t + 1) * _TILE)
        D = _square_distances(X[r], centres)
        D[~live[r]] = np.inf
        best = D.argmin(axis=0)
        values[t], places[t] = D[best, np.arange(m)], t * _TILE + best

    parallel_for(tiles, task)
    return np.asarray(places[values.argmin(axis=0), np.arange(m)])


def _has_classes(data: PreparedRows) -> bool:
    return "classification" in data.loss.tasks


def _targets(data: PreparedRows) -> tuple[AnyArray, Float64Array, Float64Array]:
    """Return codes (n, C), targets (V, C) and spread (n, C)."""
    Y = data.Y
    n, C = Y.shape
    if data.code in _SPLIT:
        if data.code == scalar.LOGISTIC:  # l' = s(u) - (y + 1) / 2
            return np.zeros((n, C), np.int8), np.ones((1, C)), 0.5 * (1.0 - Y)
        return np.zeros((n, C), np.int8), np.zeros((1, C)), -Y
    if not _has_classes(data):
        code, targets = np.zeros((n, C), np.int8), np.zeros((_BINS, C))
        for c in range(C):
            cuts = np.quantile(Y[:, c], np.arange(1, _BINS) / _BINS)
            code[:, c] = np.searchsorted(cuts, Y[:, c], side="right")
            for v in range(_BINS):
                inside = Y[code[:, c] == v, c]
                targets[v, c] = inside.mean() if len(inside) else 0.0
        return code, targets, np.zeros((n, C))
    return (Y > 0).astype(np.int8), np.repeat([[-1.0], [1.0]], C, axis=1), np.zeros((n, C))


def check_points(
    problem: LinearProblem, n_points: int, n_columns: int, solver: str, more: int = 0
) -> None:
    needed = 8.0 * (5 + more) * n_points * n_columns  # five arrays of (m, d) live at once
    problem.resources.check(
        f"solver {solver!r} with {n_points} clusters of {n_columns} columns", needed,
        "ask for fewer of them (n_anchors of 's3gd', batch_size of 'ssgd'), or take solver "
        "'svrg'", most=2 * 2**30,
    )  # fmt: skip


# -- graphs as references of stochastic steps ---------------------------------------------


class AnchorGraph(NamedTuple):
    r"""Weights between rows and anchors, and the products that the full gradient needs.

    The derivative of row i is approximated by
    ``spread_i + sum_k gamma_ik l'(targets[code_i], u(z_k))`` (Equation (19)). Where
    ``l'(y, u) = a(u) + b(y)`` (squared, logistic, multinomial) one target serves all rows and
    ``spread = b(y) - b(target)``; otherwise there is one target for each label, or for each of
    16 bins of a continuous target.

    The product is ``sum_i p_i gamma_ia [code_i = v] x_i``, Equation (22); E is 1 where all
    outputs share it, else C.
    """

    anchors: IntArray  # their rows, (m,)
    near: IntArray  # (n, k)
    gamma: Float64Array  # Gaussian weights (n, k), which sum to 1 in each row
    code: AnyArray  # int8 (n, C)
    targets: Float64Array  # (V, C)
    product: Float64Array  # (V, E, m, d)
    product_bias: Float64Array  # (V, E, m)
    offset: Float64Array  # sum_i p_i spread_i x_i, (d, C)
    offset_bias: Float64Array  # sum_i p_i spread_i, (C,)
    spread: Float64Array  # (n, C)

    def references(self, every: int, data: Any) -> Anchors:
        """Return references for prepared rows, renewed every so many steps."""
        mean, C = np.zeros_like(data.native(self.offset)), len(self.offset_bias)
        at = np.zeros((len(self.targets), len(self.anchors), C))
        return Anchors(every, mean, np.zeros(C), self, at)


class Anchors(NamedTuple):
    """References from a graph."""

    every: int
    mean: Float64Array
    mean_bias: Float64Array
    graph: AnchorGraph
    at: Float64Array  # derivatives at the m anchors for each of V targets, (V, m, C)


def _renew_anchors(r: Any, code: int, numbers: Any, rows: Any, W: Any, b: Any) -> None:
    C, g = len(b), r.graph
    u, total = np.zeros(C), g.offset.T.copy()
    r.mean_bias[:] = g.offset_bias
    for a in range(len(g.anchors)):
        responses(rows, g.anchors[a], W, b, u)
        for v in range(len(g.targets)):
            slope = r.at[v, a]
            slopes_of_row(code, numbers, g.targets[v], u, slope)
            for c in range(C):
                e = min(c, g.product.shape[1] - 1)  # all outputs may share one
                r.mean_bias[c] += slope[c] * g.product_bias[v, e, a]
                x = g.product[v, e, a]
                for j in range(len(x)):
                    total[c, j] += slope[c] * x[j]
    for c in range(C):
        output(rows, r.mean, c)[:] = total[c]


def _anchors_at(r: Any, i: int, u: Any, out: Any) -> None:
    graph = r.graph
    for c in range(len(out)):
        out[c] = graph.spread[i, c]
    for k in range(graph.near.shape[1]):
        a, g = graph.near[i, k], graph.gamma[i, k]
        for c in range(len(out)):
            out[c] += g * r.at[graph.code[i, c], a, c]


loops.renewals[Anchors] = _renew_anchors
loops.values[Anchors] = _anchors_at
