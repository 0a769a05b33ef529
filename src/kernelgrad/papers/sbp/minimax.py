r"""Minimax margin under a slack budget.

Given responses c, weights w (1 by default) and a volume V of slack, the level is

.. math:: \gamma = \max_\xi \min_i (c_i + \xi_i)
          \quad\text{subject to}\quad \xi \ge 0,\ \sum_i w_i \xi_i \le V,

the root of :math:`\sum_i w_i \max(0, \gamma - c_i) = V` (section 3.2 of [1]_). With an
unregularised bias b the responses are :math:`c_i + y_i b` and b is chosen along with
:math:`\xi` (section 3.6): as much weight of the one class then lies below the level as of the
other. A row of integer weight w is w copies of the row.

No function sorts all n responses. The bounds of the cost are those of the expected case.

References
----------
.. [1] A. Cotter, S. Shalev-Shwartz and N. Srebro (2012). The Kernelized Stochastic Batch
   Perceptron. ICML.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.types import Float64Array, IntArray
from kernelgrad.validation import DataError, check_real

SAMPLE = 512  # rows of a first guess; at most so many are simply taken all
_LOWER, _HIGHER_A, _HIGHER_B = 1, 2, 4  # bits: rows that the windows of _meet lack


class TwoClassLevel(NamedTuple):
    """The level of two classes with a bias, and the minimax distribution of section 3.6."""

    level: float  # gamma, that slack lifts the lowest responses ``c_i + y_i bias`` to
    bias: float
    positive: IntArray  # rows of the class with a probability, by their place in c
    p_positive: Float64Array  # their probabilities, which sum to 1/2
    negative: IntArray
    p_negative: Float64Array


def _check(c: Float64Array, weight: Float64Array | None, rows: str) -> None:
    if c.size == 0:
        raise ValueError(f"A slack level needs at least one of the {rows}, got none.")
    if not np.isfinite(c).all():
        raise DataError(
            f"The responses of the {rows} hold NaN or infinity; scale the data or shorten the "
            "steps."
        )
    if weight is None:
        return
    if weight.shape != c.shape:
        raise ValueError(f"weight must have the shape of c, {c.shape}, got {weight.shape}.")
    if not 0.0 <= weight.min() <= weight.max() < math.inf:
        raise ValueError(f"The weights of the {rows} must be finite and not negative.")
    if not weight.any():
        raise ValueError(f"The weights of the {rows} are all zero; one must be positive.")


def _stride(n: int) -> int:
    """Step through n rows that keeps n^(2/3) of them, at least SAMPLE."""
    return max(1, n // max(SAMPLE, int(math.cbrt(n) ** 2)))


# reassociation: plain sums, whose order the length fixes
@njit(nogil=True, cache=True, fastmath={"contract", "nsz", "arcp", "reassoc"}, forceinline=True)
def _below(c: Any, weight: Any, level: float) -> tuple[float, float, int]:
    total, mass, count = 0.0, 0.0, 0
    if weight is None:
        for i in range(c.size):
            total += c[i] if c[i] < level else 0.0
            count += c[i] < level
        return total, float(count), count
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
        if c[i] < value and (weight is None or weight[i] > 0.0):
            value = c[i]
            mass = 1.0 if weight is None else weight[i]
    return value, mass


@njit(nogil=True, cache=True)
def _rise(c: Any, weight: Any, volume: float, level: float) -> tuple[float, int]:
    """Return the level and the number of passes over c, by Newton's iteration from `level`.

    The volume under a level is convex and piecewise linear: after one step the iterates fall,
    the sets of rows below them are nested, and two sets of one size are the same set.
    """
    before, passes = -1, 0
    while True:
        total, mass, count = _below(c, weight, level)
        passes += 1
        if count == before:
            return level, passes
        if mass == 0.0:
            value, mass = _lowest(c, weight)
            if before >= 0:
                return value, passes  # the volume is lost in the rounding of the level
            total = value * mass
        following = (volume + total) / mass
        if before >= 0 and following >= level:
            return level, passes  # a fall of less than the rounding
        level, before = following, count


def slack_level(
    c: Float64Array, volume: float, weight: Float64Array | None = None, *,
    start: float | None = None,
) -> float:  # fmt: skip
    r"""Return :math:`\gamma` with :math:`\sum_i w_i \max(0, \gamma - c_i)` = volume.

    Newton's iteration on the set of covered rows, without a sort or a copy of c, O(n) a pass.
    It ends when the set repeats, so that `start` changes the level by its rounding at most.

    Parameters
    ----------
    c : float64 array (n,)
        Responses; DataError where one is not finite, ValueError where there is none.
    volume : float >= 0
        ``n nu`` of the paper. 0 gives the lowest response of positive weight.
    weight : float64 array (n,) of numbers >= 0, or None
        None is 1 everywhere. Rows of weight 0 do not count; one must.
    start : float or None
        A guess, such as the level of the step before: 2 or 3 passes where it is near. By
        default the level of every k-th response, about n^(2/3) of them.
    """
    volume = check_real(volume, "volume", low=0.0)
    _check(c, weight, "rows")
    if volume == 0.0:
        return float(_lowest(c, weight)[0])
    if start is None or not math.isfinite(start):
        start = math.inf
        step = _stride(c.size)
        if step > 1:
            few = c[::step].copy()
            few_weight = None if weight is None else weight[::step].copy()
            if few_weight is None or few_weight.any():
                start = _rise(few, few_weight, volume * few.size / c.size, math.inf)[0]
    return float(_rise(c, weight, volume, start)[0])


def rows_below(c: Float64Array, level: float) -> IntArray:
    """Return the rows below the level, where the minimax distribution follows the weights.

    If no row is below it, as at volume 0, these are the rows with the lowest response.
    """
    rows = np.flatnonzero(c < level)
    return rows if rows.size else np.flatnonzero(c == c.min())


class _Window(NamedTuple):
    """The rows of one class from `low` to `high`, ascending, and sums over those below."""

    low: float
    mass: float
    total: float
    rows: IntArray
    values: Float64Array
    weights: Float64Array
    whole: bool  # no row lies above


@njit(nogil=True, cache=True)
def _between(c: Any, weight: Any, low: float, high: float) -> tuple[Any, bool]:
    rows = np.empty(c.size, np.intp)
    count, above = 0, 0
    for i in range(c.size):
        counts = weight is None or weight[i] > 0.0
        rows[count] = i
        count += counts and low <= c[i] <= high
        above += counts and c[i] > high
    return rows[:count].copy(), above == 0


def _window(c: Float64Array, weight: Float64Array | None, low: float, high: float) -> _Window:
    rows, whole = _between(c, weight, low, high)
    rows = rows[np.argsort(c[rows], kind="stable")]  # equal responses keep their order
    weights = np.ones(rows.size) if weight is None else weight[rows]
    total, mass, _ = _below(c, weight, low)
    return _Window(low, mass, total, rows, c[rows], weights, whole)


@njit(nogil=True, cache=True)
def _catch_up(a: Any, wa: Any, mass: float) -> tuple[int, float, float]:
    """Take `mass` from the start of a: whole rows, part of the next one, their sum."""
    i, total = 0, 0.0
    while i < a.size and mass >= wa[i]:
        total += wa[i] * a[i]
        mass -= wa[i]
        i += 1
    if i == a.size:
        return i, 0.0, total
    return i, mass, total + mass * a[i]


@njit(nogil=True, cache=True)
def _meet(
    volume: float, A: Any, B: Any
) -> tuple[int, float, float, int, float, float, float, int, float, float, float]:
    """Fill s(q) = a(q) + b(q), where a(q) is the response at cumulative weight q.

    Returns what is missing from the windows A and B (0 for nothing), the level u of s, the
    weight Q below it in each class, and for a and for b: whole rows of the window below, the
    part of the next one below, the last response below, the next one (infinity for none).
    """
    a, wa, b, wb = A.values, A.weights, B.values, B.weights
    covered = max(A.mass, B.mass)
    i, part_a, more_a = _catch_up(a, wa, covered - A.mass)
    j, part_b, more_b = _catch_up(b, wb, covered - B.mass)
    total = A.total + B.total + more_a + more_b
    missing = 0
    while True:
        if i == a.size or j == b.size:
            missing |= _HIGHER_A if i == a.size and not A.whole else 0
            missing |= _HIGHER_B if j == b.size and not B.whole else 0
            break
        s = a[i] + b[j]
        if covered > 0.0 and s >= (volume + total) / covered:
            break
        rest_a, rest_b = wa[i] - part_a, wb[j] - part_b
        q = min(rest_a, rest_b)
        total += q * s
        covered += q
        i, part_a = (i, part_a + q) if rest_a > q else (i + 1, 0.0)
        j, part_b = (j, part_b + q) if rest_b > q else (j + 1, 0.0)
    # s ascends: one piece of the windows below the level shows that all before them is too
    if missing == 0 and ((i == 0 and part_a == 0.0) or (j == 0 and part_b == 0.0)):
        missing = _LOWER
    if missing:
        return missing, 0.0, 0.0, 0, 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0
    return (
        0, (volume + total) / covered, covered,
        i, part_a, a[i] if part_a > 0.0 else a[i - 1], a[i] if i < a.size else np.inf,
        j, part_b, b[j] if part_b > 0.0 else b[j - 1], b[j] if j < b.size else np.inf,
    )  # fmt: skip


def _bracket(few: _Window, step: int, below: int) -> tuple[float, float]:
    """Responses three standard errors of a rank below and above the `below` of a sample."""
    if step == 1:
        return -math.inf, math.inf
    slack = 4 + math.ceil(3 * math.sqrt(below))
    low, high, values = below - slack, below + slack, few.values
    return (
        float(values[low]) if low > 0 else -math.inf,
        float(values[high]) if high < values.size else math.inf,
    )


def _guess(
    a: Float64Array, wa: Float64Array | None, b: Float64Array, wb: Float64Array | None,
    volume: float,
) -> tuple[tuple[float, float], tuple[float, float]]:  # fmt: skip
    """Windows for both classes from the level of every k-th of their rows."""
    everything = (-math.inf, math.inf)
    samples, steps = [], [_stride(a.size), _stride(b.size)]
    if steps == [1, 1]:
        return everything, everything
    for c, w, step in zip((a, b), (wa, wb), steps, strict=True):
        few = c[::step].copy()
        weights = np.ones(few.size) if w is None else w[::step]
        samples.append(_window(few, weights * (c.size / few.size), -math.inf, math.inf))
    A, B = samples
    if not A.rows.size or not B.rows.size:  # only rows of weight 0 were drawn
        return everything, everything
    meeting = _meet(volume, A, B)
    return _bracket(A, steps[0], meeting[3]), _bracket(B, steps[1], meeting[7])


def _widen(c: Float64Array, high: float) -> float:
    """Return a response with four times as many below it as there are up to `high`."""
    rank = 4 * int(np.count_nonzero(c <= high)) + 4
    return float(np.partition(c, rank)[rank]) if rank < c.size else math.inf


def _probabilities(
    c: Float64Array, weight: Float64Array | None, window: _Window,
    whole_rows: int, part: float, covered: float,
) -> tuple[IntArray, Float64Array]:  # fmt: skip
    """Rows with their weight below the level, divided by ``2 Q``."""
    below = c < window.low
    if weight is not None:
        below &= weight > 0.0
    rows = np.concatenate([np.flatnonzero(below), window.rows[: whole_rows + (part > 0.0)]])
    p = np.ones(rows.size) if weight is None else weight[rows]
    if part > 0.0:
        p[-1] = part
    return rows, p / (2.0 * covered)


def two_class_level(
    c: Float64Array, positive: IntArray, negative: IntArray, volume: float,
    weight: Float64Array | None = None,
) -> TwoClassLevel:  # fmt: skip
    r"""Return the level, the bias and the minimax distribution of two classes.

    With a(q), b(q) the responses of the classes at cumulative weight q, ascending,

    .. math:: \int_0^Q (u - a(q) - b(q))\,dq = V, \qquad
              Q = |\{q \le \min(W_+, W_-) : a(q) + b(q) < u\}|,

    and the level is u/2. Any :math:`\gamma_+` of the interval :math:`[\max(a(Q^-), u -
    b(Q^+)), \min(a(Q^+), u - b(Q^-))]` and :math:`\gamma_- = u - \gamma_+` are levels of the
    classes at one optimal bias :math:`(\gamma_- - \gamma_+) / 2`; the midpoint is taken. It is
    finite as long as both classes have rows: where the smaller class lies all below
    :math:`a(Q^+)` is infinite and the interval ends at :math:`u - b(Q^-)`.

    The rows up to Q have the probability ``w_i / (2 Q)``, a row across Q only for its part
    below: 1/(2k) on the k lowest rows of each class where no weights are given. Of rows with
    the same response the first are taken.

    A sample of n^(2/3) rows brackets Q in each class, only rows in the bracket are sorted, and
    a bracket that proves too narrow is widened: expected O(n), exact in any case.

    Parameters
    ----------
    c : float64 array (n,)
        Responses ``y_i f(x_i)`` without bias.
    positive, negative : intp arrays
        Rows of the two classes.
    volume, weight
        As in :func:`slack_level`, which tells what raises errors, here in either class.
    """
    volume = check_real(volume, "volume", low=0.0)
    a, b = c[positive], c[negative]
    wa, wb = (None, None) if weight is None else (weight[positive], weight[negative])
    _check(a, wa, "positive rows")
    _check(b, wb, "negative rows")
    (low_a, high_a), (low_b, high_b) = _guess(a, wa, b, wb, volume)
    while True:
        A, B = _window(a, wa, low_a, high_a), _window(b, wb, low_b, high_b)
        missing, u, Q, i, part_a, last_a, next_a, j, part_b, last_b, next_b = _meet(
            volume, A, B
        )
        if not missing:
            break
        if missing & _LOWER:
            low_a = low_b = -math.inf
        if missing & _HIGHER_A:
            high_a = _widen(a, high_a)
        if missing & _HIGHER_B:
            high_b = _widen(b, high_b)
    level_positive = 0.5 * (max(last_a, u - next_b) + min(next_a, u - last_b))
    rows_a, p_a = _probabilities(a, wa, A, i, part_a, Q)
    rows_b, p_b = _probabilities(b, wb, B, j, part_b, Q)
    return TwoClassLevel(
        0.5 * u, 0.5 * u - level_positive, positive[rows_a], p_a, negative[rows_b], p_b
    )
