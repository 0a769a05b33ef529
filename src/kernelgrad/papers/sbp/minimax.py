r"""Minimax margin under a slack budget.

Given responses c, weights w (1 by default) and a volume V of slack, the level is

.. math:: \gamma = \max_\xi \min_i (c_i + \xi_i)
          \quad\text{subject to}\quad \xi \ge 0,\ \sum_i w_i \xi_i \le V,

the root of :math:`\sum_i w_i \max(0, \gamma - c_i) = V` (Section 3.2 of Cotter et al. 2012). An
unregularised bias b is chosen along with :math:`\xi` (Section 3.6): as much weight of the one
class then lies below the level as of the other. Two classes are one basin of sums: at
cumulative weight q the lowest responses of the classes are a(q) and b(q), and slack must lift
``a(q) + b(q)``. A row of integer weight w is w copies of the row.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.types import Float64Array, IntArray

SAMPLE = 512  # rows of either class that are sorted first


class TwoClassLevel(NamedTuple):
    """The level of two classes with a bias, and the minimax distribution of section 3.6."""

    level: float  # gamma, that slack lifts the lowest responses ``c_i + y_i bias`` to
    bias: float
    positive: IntArray  # rows of the class with a probability, by their place in c
    p_positive: Float64Array  # their probabilities, which sum to 1/2
    negative: IntArray
    p_negative: Float64Array


# reassociation: plain sums, whose order the length fixes
@njit(nogil=True, cache=True, fastmath={"contract", "nsz", "arcp", "reassoc"}, forceinline=True)
def _below(c: Any, weight: Any, level: float) -> tuple[float, float, int]:
    total, mass, count = 0.0, 0.0, 0
    for i in range(c.size):
        w = weight[i] if c[i] < level else 0.0
        total += w * c[i]
        mass += w
        count += c[i] < level
    return total, mass, count


@njit(nogil=True, cache=True)
def _lowest(c: Any, weight: Any) -> tuple[float, float]:
    value, mass = np.inf, 1.0
    for i in range(c.size):
        if c[i] < value and weight[i] > 0.0:
            value, mass = c[i], weight[i]
    return value, mass


@njit(nogil=True, cache=True)
def _rise(c: Any, weight: Any, volume: float, level: float) -> float:
    """Return the level by Newton's iteration from `level`.

    The volume under a level is convex and piecewise linear: after one step the iterates fall,
    the sets of rows below them are nested, and two sets of one size are the same set.
    """
    before = -1
    while True:
        total, mass, count = _below(c, weight, level)
        if count == before:
            return level
        if mass == 0.0:
            value, mass = _lowest(c, weight)
            if before >= 0:
                return float(value)  # the volume is lost in the rounding of the level
            total = value * mass
        following = (volume + total) / mass
        if before >= 0 and following >= level:
            return level  # a fall of less than the rounding
        level, before = following, count


def slack_level(
    c: Float64Array, volume: float, weight: Float64Array | None = None, *,
    start: float = math.inf,
) -> float:  # fmt: skip
    r"""Return :math:`\gamma` with :math:`\sum_i w_i \max(0, \gamma - c_i)` = volume.

    Newton's iteration on the set of covered rows, without a sort or a copy of c, O(n) a pass.
    It ends when the set repeats, so that the guess `start` changes the level by its rounding at
    most. `volume` is ``n nu`` of the paper, 0 for the lowest response of positive weight;
    `weight` (n,) is 1 everywhere if None.
    """
    weight = np.ones(len(c)) if weight is None else weight
    if volume == 0.0:
        return float(_lowest(c, weight)[0])
    return float(_rise(c, weight, volume, start))


def rows_below(c: Float64Array, level: float) -> IntArray:
    """Return the rows below the level, where the minimax distribution follows the weights.

    If no row is below it, as at volume 0, these are the rows with the lowest response.
    """
    rows = np.flatnonzero(c < level)
    return rows if rows.size else np.flatnonzero(c == c.min())


@njit(nogil=True, cache=True)
def paired(c: Any, weight: Any, positive: Any, negative: Any) -> Any:
    """Return the heights ``a(q) + b(q)`` of the basin, piece by piece, and their weights.

    Rows have a positive weight, and responses that ascend. A piece of the cumulative weight q
    lies in one row of either class: their numbers in `positive` and `negative` come next, with
    one more entry for where both classes stand behind the last piece.
    """
    a, wa, b, wb = c[positive], weight[positive], c[negative], weight[negative]
    n = a.size + b.size
    heights, weights = np.empty(n), np.empty(n)
    first, second = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    i, j, k, rest_a, rest_b = 0, 0, 0, wa[0], wb[0]
    while i < a.size and j < b.size:
        q = min(rest_a, rest_b)
        heights[k], weights[k] = a[i] + b[j], q
        rest_a, rest_b, k = rest_a - q, rest_b - q, k + 1
        if rest_a == 0.0:
            i += 1
            rest_a = wa[i] if i < a.size else 0.0
        if rest_b == 0.0:
            j += 1
            rest_b = wb[j] if j < b.size else 0.0
        first[k], second[k] = i, j
    return heights[:k], weights[:k], first[: k + 1], second[: k + 1]


def lowest_rows(c: Float64Array, rows: IntArray, weight: Float64Array, size: int) -> IntArray:
    """Return the `size` lowest of some rows of positive weight, ascending, and their equals."""
    rows = rows[weight[rows] > 0.0]
    if size < len(rows):
        rows = rows[c[rows] <= np.partition(c[rows], size - 1)[size - 1]]
    return rows[np.argsort(c[rows], kind="stable")]  # so that processors agree on ties


def two_class_level(
    c: Float64Array, positive: IntArray, negative: IntArray, volume: float,
    weight: Float64Array | None = None, *, start: int = SAMPLE,
) -> TwoClassLevel:  # fmt: skip
    r"""Return the level, the bias and the minimax distribution of two classes.

    With a(q), b(q) the responses of the classes at cumulative weight q, ascending,

    .. math:: \int_0^Q (u - a(q) - b(q))\,dq = V, \qquad
              Q = |\{q \le \min(W_+, W_-) : a(q) + b(q) < u\}|,

    and the level is u/2. Any :math:`\gamma_+` of the interval :math:`[\max(a(Q^-), u -
    b(Q^+)), \min(a(Q^+), u - b(Q^-))]` and :math:`\gamma_- = u - \gamma_+` are levels of the
    classes at one optimal bias :math:`(\gamma_- - \gamma_+) / 2`; the midpoint is taken. It is
    finite as long as both classes have rows.

    The rows up to Q have the probability ``w_i / (2 Q)``, a row across Q only for its part
    below: 1/(2k) on the k lowest rows of each class where no weights are given. Only the lowest
    rows are sorted: `start` of each class, then four times as many until they reach the level.
    `c` (n,) holds responses ``y_i f(x_i)`` without bias; `volume` and `weight` are those of
    :func:`slack_level`.
    """
    weight = np.ones(len(c)) if weight is None else weight
    size, most = max(SAMPLE, start), max(len(positive), len(negative))
    while True:
        lowest = [lowest_rows(c, rows, weight, size) for rows in (positive, negative)]
        heights, weights, *pieces = paired(c, weight, *lowest)
        u = _rise(heights, weights, volume, math.inf)
        if heights[-1] >= u or size >= most:
            break
        size *= 4
    k = max(1, int(np.searchsorted(heights, u)))
    below = weights[:k]
    bounds, chosen = [], []
    for rows, at in zip(lowest, pieces, strict=True):
        values = np.append(c[rows[: at[k] + 1]], np.inf)
        bounds.append((values[at[k - 1]], values[at[k]]))
        p = np.bincount(at[:k], below) / (2.0 * below.sum())
        chosen += [rows[: len(p)], p]
    (low_a, high_a), (low_b, high_b) = bounds
    level_positive = 0.5 * (max(low_a, u - high_b) + min(high_a, u - low_b))
    return TwoClassLevel(0.5 * u, float(0.5 * u - level_positive), *chosen)
