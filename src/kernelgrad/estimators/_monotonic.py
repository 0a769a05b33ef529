r"""Functions that rise or fall in chosen columns: the least change of a fitted one.

A fit gives f, the minimum of ``J(f) = mean_i w_i loss(y_i, f(x_i)) + (alpha / 2) ||f||^2``. The
function that is kept is ``f + g`` with g the minimum of ``J(f + g)`` to second order at f,

    ``mean_i w_i h_i g(x_i)^2 / 2 + (alpha / 2) ||g||^2``, h the curvature of the loss,

(for smooth losses that are not quadratic of the loss itself; for losses with kinks h is that of
a parabola with the same mean loss and mean squared slope at f) subject to
``s_j (f + g)(b) >= s_j (f + g)(a)`` for neighbours a, b on *curves*: copies of a training row
whose column j runs over the range of that column, s_j = 1 or -1. As curves are made of rows in
the units of the table, this holds for every kernel, scaling and metric. Nothing but values of
the kernel is needed: g is a sum of ``k(z, .)`` over some support rows of f and over points of
curves that violated the constraints. Each round draws new curves; pairs that fall there
become constraints and centres of the next. The round that finds none ends the search, so
that the result has been checked on curves that had no part in it.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from kernelgrad._typing import AnyArray, Float64Array, IntArray
from kernelgrad._validation import check_name
from kernelgrad.compute.compiling import clock
from kernelgrad.compute.device import CPU
from kernelgrad.compute.linalg import factor_damped, gram
from kernelgrad.compute.threads import parallel_for
from kernelgrad.estimators._rows import TrainingRows
from kernelgrad.estimators._tables import Table
from kernelgrad.functions.exact import join_rows
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.kernels import ExactRows
from kernelgrad.losses import Loss
from kernelgrad.losses.scalar import SQUARED

TOLERANCE = 1e-3  # of the range of responses: the fall along a curve that is left
_TAG = 0x6D6F6E6F
_ROUNDS, _CURVES, _POINTS = 16, 384, 32
_WORST = 64  # curves of a round that give constraints
_LOSS_ROWS = 8192  # of the loss; g has far fewer degrees of freedom
_CENTRES, _FIRST, _MORE = 1024, 384, 160  # in all, support rows, and points of each round
_PAIRS = 3000  # constraints from which on those without a multiplier make room
# parts of the tolerance: what curves must rise in all, the fall that is worth constraints, and
# the fall that ends the rounds: other curves may fall further
_LEAST, _NEAR, _ENDS = 0.1, 0.25, 0.5
_EXPANSIONS = 3  # of a loss that is not quadratic, in each round
_FLOOR = 0.05  # of the mean curvature: responses far out are not free to move
_JITTER = 1e-10  # of the kernel's diagonal
_TILE = 512
_PENALTY, _STEPS = 100.0, 25  # of augmented Lagrangians, whose constraints have norm 1


def directions(given: Any, names: Any, d: int) -> IntArray:
    """Return 1, -1 or 0 for each of `d` columns, of ``monotonic_cst`` as it was given.

    Raises
    ------
    ValueError
        A name or number is no column, the length is not `d`, or a value is not -1, 0 or 1.
    """
    out = np.zeros(d, np.int64)
    if given is None:
        return out
    if isinstance(given, dict):
        known = [] if names is None else [str(name) for name in names]
        for key, value in given.items():
            if isinstance(key, str):
                if not known:
                    raise ValueError(
                        f"monotonic_cst names column {key!r}, but X has no names of columns; "
                        "give numbers of columns, or a frame."
                    )
                j = known.index(check_name(key, known, "column in monotonic_cst"))
            elif isinstance(key, bool) or key not in range(d):
                raise ValueError(
                    f"monotonic_cst holds column {key!r}, but the columns of X are 0 to "
                    f"{d - 1}."
                )
            else:
                j = int(key)
            out[j] = _direction(value)
        return out
    values = np.asarray(given, dtype=object)
    if values.shape != (d,):
        raise ValueError(
            f"monotonic_cst has shape {values.shape}, but X has {d} columns; give -1, 0 or 1 "
            "for each, or a dict of columns."
        )
    out[:] = [_direction(value) for value in values]
    return out


def _direction(value: Any) -> int:
    if isinstance(value, bool | np.bool_) or value not in (-1, 0, 1):
        raise ValueError(
            f"monotonic_cst holds {value!r}; give 1 for a column in which the response rises, "
            "-1 where it falls, and 0 for no constraint."
        )
    return int(value)


class Swept(NamedTuple):
    """A column that is constrained, as it is among the encoded ones."""

    name: str
    sign: int
    place: int
    mark: int | None  # of a column that marks its gaps


def swept_columns(signs: IntArray, names: Any, table: Table | None) -> list[Swept]:
    """Return the constrained columns; raise ValueError if one does not hold numbers."""
    found = []
    for j in np.flatnonzero(signs).tolist():
        name = str(j if names is None else names[j])
        place, mark = j, None
        if table is not None:
            if table.columns[j].kind != "number":
                raise ValueError(
                    f"monotonic_cst constrains column {name!r}, which holds categories or "
                    "dates; constrain columns of numbers, or make it one."
                )
            place, *marks = np.flatnonzero(table.groups == j).tolist()
            mark = marks[0] if marks else None
        found.append(Swept(name, int(signs[j]), place, mark))
    return found


class _Pairs(NamedTuple):
    """Points a, b of curves, and how much f rises and g is to rise from a to b, (p, C)."""

    a: AnyArray
    b: AnyArray
    own: Float64Array
    rise: Float64Array

    def take(self, index: Any) -> _Pairs:
        return _Pairs(*(part[index] for part in self))

    def join(self, more: _Pairs) -> _Pairs:
        return _Pairs(*map(np.concatenate, zip(self, more, strict=True)))


class _Change:
    """The function g, a sum over m centres: ``L^-1 k(Z, x)`` are orthonormal functions.

    Values of f are without its constant.
    """

    def __init__(self, f: SupportExpansion, index: IntArray) -> None:
        self.f, self.index = f, index
        self.exact = copy(f.exact)
        self.exact.device = CPU
        self.points: list[ExactRows] = []
        self.u = np.zeros((0, f.n_outputs))
        self.shift = np.zeros(f.n_outputs)
        self.extend(np.empty((0, f.exact.n_features_in)))

    @property
    def n_centres(self) -> int:
        """Number of centres m."""
        return self.centres.n_rows

    def extend(self, X: AnyArray) -> None:
        """Take rows as further centres."""
        if len(X):
            self.points.append(self.exact.prepare(X))
        self.centres = join_rows([self.f.support.take(self.index), *self.points])
        K = np.asarray(self.exact.gram(self.centres, wide=True), np.float64)
        self.L = np.tril(factor_damped(K, _JITTER * float(K.diagonal().mean()))[0])
        more = len(self.L) - len(self.u)
        self.u = np.vstack([self.u, np.zeros((more, self.u.shape[1]))])

    def functions(self, X: AnyArray) -> Float64Array:
        """Return the orthonormal functions at rows, (n, m)."""
        rows, out = self.exact.prepare(X), np.empty((len(X), self.n_centres))

        def task(i: int) -> None:
            some = slice(i * _TILE, (i + 1) * _TILE)
            K = self.exact.values(rows.take(some), self.centres, wide=True)
            out[some] = scipy.linalg.solve_triangular(
                self.L, K.T, lower=True, check_finite=False
            ).T

        parallel_for(-(-len(X) // _TILE), task)
        return out

    def _coef(self) -> Float64Array:
        return np.asarray(scipy.linalg.solve_triangular(self.L, self.u, lower=True, trans=1))

    def values(self, X: AnyArray) -> tuple[Float64Array, Float64Array]:
        """Return f and f + g at rows."""
        rows = self.exact.prepare(X)
        f = self.exact.products(rows, self.f.support, self.f.coef, wide=True)
        g = self.exact.products(rows, self.centres, self._coef(), wide=True)
        return f, f + g + self.shift

    def expansion(self) -> SupportExpansion:
        """Return f + g."""
        f, coef, d = self.f, self.f.coef.copy(), self._coef()
        coef[self.index] += d[: len(self.index)]
        coef = np.concatenate([coef, d[len(self.index) :]])
        support = join_rows([f.support, *self.points])
        return SupportExpansion(f.exact, support, coef, f.intercept + self.shift)


def nearest(
    H: Float64Array,
    q: Float64Array,
    B: Float64Array,
    c: Float64Array,
    enough: float,
    start: Float64Array | None = None,
) -> tuple[Float64Array, Float64Array]:
    """Return the minimum of ``u^T H u / 2 + q^T u`` with ``B u >= c``, and multipliers.

    By augmented Lagrangians whose minima Newton's method finds, in the variables that make H
    the identity; systems are as large as there are active constraints. It ends where no
    constraint is violated by more than `enough`; `start` are multipliers to start from.
    """
    R = np.tril(factor_damped(H, 0.0)[0])
    free = -scipy.linalg.cho_solve((R, True), q, check_finite=False)
    T = scipy.linalg.solve_triangular(R, B.T, lower=True, check_finite=False).T
    norm = np.linalg.norm(T, axis=1)
    kept = norm > 1e-9 * norm.max(initial=0.0)  # the others cannot be changed
    multiplier = np.zeros(len(c))
    T, scale = T[kept] / norm[kept, None], norm[kept]
    gap = (c - B @ free)[kept] / scale
    price = np.zeros(len(gap)) if start is None else start[kept] * scale
    v, rho = price @ T, _PENALTY
    worst = np.inf
    for _ in range(_STEPS):
        v = _unconstrained(T, gap + price / rho, v, rho)
        left = gap - T @ v
        price = np.maximum(0.0, price + rho * left)
        now = float((left * scale).max(initial=0.0))
        if now <= enough:
            break
        if now > 0.5 * worst and rho < 1e6:
            rho *= 10.0
        worst = min(worst, now)
    multiplier[kept] = price / scale
    step = scipy.linalg.solve_triangular(R, v, lower=True, trans=1, check_finite=False)
    return free + step, multiplier


def _unconstrained(
    T: Float64Array, t: Float64Array, v: Float64Array, rho: float
) -> Float64Array:
    """Return the minimum of ``|v|^2 / 2 + (rho / 2) |max(0, t - T v)|^2`` near v."""

    def value(v: Float64Array) -> float:
        return 0.5 * float(v @ v + rho * (np.maximum(0.0, t - T @ v) ** 2).sum())

    now = value(v)
    for _ in range(_STEPS):
        left = t - T @ v
        A = T[left > 0]
        slope = v - rho * (left[left > 0] @ A)
        inner = A @ A.T
        inner[np.diag_indices_from(inner)] += 1.0 / rho
        step = A.T @ scipy.linalg.solve(inner, A @ slope, assume_a="pos") - slope
        fall, length = float(slope @ step), 1.0
        while (new := value(v + length * step)) > now + 1e-4 * length * fall and length > 1e-6:
            length *= 0.5
        if not new < now:
            break
        v, enough, now = v + length * step, now - new <= 1e-13 * now, new
        if enough:
            break
    return v


@dataclass
class _Curves:
    """Curves through random training rows, equally many of each constrained column."""

    columns: list[Swept]
    X: AnyArray  # training rows
    ends: list[tuple[float, float]]  # of the columns
    rng: np.random.Generator

    def draw(self) -> tuple[AnyArray, Float64Array, Float64Array]:
        """Return points (curves, points, d), steps as parts of the range, and signs."""
        each = -(-_CURVES // len(self.columns))
        curves, steps, signs = [], [], []
        for column, (low, high) in zip(self.columns, self.ends, strict=True):
            base = self.X[self.rng.integers(len(self.X), size=each)]
            curve = np.repeat(base[:, None].astype(np.float64), _POINTS, axis=1)
            # half of the points are spread evenly, half as the rows are
            half = _POINTS // 2 - 1
            even = self.rng.uniform(low, high, (each, half))
            own = self.X[self.rng.integers(len(self.X), size=(each, half)), column.place]
            grid = np.concatenate(
                [np.full((each, 1), low), even, own, np.full((each, 1), high)], axis=1
            )
            grid.sort(axis=1)
            curve[..., column.place] = grid
            steps.append(np.diff(grid, axis=1) / ((high - low) or 1.0))
            if column.mark is not None:
                curve[..., column.mark] = 0.0
            curves.append(curve)
            signs.append(np.full(each, float(column.sign)))
        return np.concatenate(curves), np.concatenate(steps), np.concatenate(signs)


def falls(values: Float64Array) -> Float64Array:
    """Return the largest fall along each curve, of values (curves, points, C)."""
    return np.asarray((np.maximum.accumulate(values, axis=1) - values).max(axis=(1, 2)))


@dataclass
class _Fit:
    """The quadratic form whose minimum g is, at rows of the loss."""

    loss: Loss
    X: AnyArray
    y: AnyArray
    weight: Float64Array  # sum 1
    f: Float64Array
    alpha: float
    fit_intercept: bool

    def mean_loss(self, f: Float64Array) -> float:
        """Return the mean loss of responses, without a warning if these are too large."""
        with np.errstate(over="ignore", invalid="ignore"):
            return float(self.weight @ self.loss.value(self.y, f))

    def _curvature(self, f: Float64Array) -> Float64Array:
        """Return h at rows; of losses with kinks that of a parabola as high and as steep."""
        if self.loss.is_smooth:
            return np.asarray(self.loss.curvature(self.y, f), np.float64)
        height = float(self.weight @ self.loss.value(self.y, f))
        steep = float(self.weight @ (self.loss.gradient(self.y, f) ** 2).sum(axis=1))
        return np.full(len(f), 0.5 * steep / height if steep > 0 and height > 0 else 1.0)

    def solve(
        self, change: _Change, pairs: _Pairs, enough: Float64Array, price: Float64Array
    ) -> Float64Array:
        """Set the change that keeps the constraints up to `enough`; return multipliers.

        Those of the first constraints are known near `price`.
        """
        V, f = change.functions(self.X), self.f
        B = change.functions(pairs.b) - change.functions(pairs.a)
        penalty = np.full(V.shape[1], self.alpha)
        if self.fit_intercept:
            V = np.column_stack([V, np.ones(len(V))])
            B = np.column_stack([B, np.zeros(len(B))])
            penalty = np.append(penalty, 0.0)
        multiplier = np.zeros(pairs.rise.shape)
        multiplier[: len(price)] = price
        own = self.loss.is_smooth and self.loss.code != SQUARED
        for _ in range(_EXPANSIONS if own else 1):
            start = np.vstack([change.u, change.shift[None]])[: V.shape[1]]
            now = f + V @ start
            bend = self._curvature(f)
            if own:
                bend = np.maximum(bend, self._curvature(now))
            bend = np.maximum(bend, _FLOOR * float(self.weight @ bend))
            H = np.asarray(gram(np.sqrt(self.weight * bend)[:, None] * V), np.float64)
            H = np.tril(H) + np.tril(H, -1).T + np.diag(penalty)
            H[np.diag_indices_from(H)] += 1e-12 * float(H.diagonal().mean())
            q = np.zeros(start.shape)
            if own:  # the linear part of the loss at f is that of the norm, with the other sign
                slope = self.loss.gradient(self.y, now) - self.loss.gradient(self.y, f)
                q = V.T @ (self.weight[:, None] * slope) + penalty[:, None] * start - H @ start
            out = np.empty(start.shape)
            for c, rise in enumerate(pairs.rise.T):
                known = q[:, c], B, rise, float(enough[c]), multiplier[:, c]
                told = nearest(H.copy(), *known)
                out[:, c], multiplier[:, c] = told
            change.u = out[: len(change.u)]
            if self.fit_intercept:
                change.shift = out[-1]
            self.response = f + V @ out
        return multiplier


def least_bytes(n_rows: int, d: int) -> float:
    """Return the bytes that :func:`constrained` takes beside the function, for d columns."""
    m = min(_CENTRES, n_rows + _ROUNDS * _MORE)
    pairs = _PAIRS + _WORST * _POINTS
    return 8.0 * (m * (3 * min(n_rows, _LOSS_ROWS) + 4 * pairs) + 4 * _CURVES * _POINTS * d)


def constrained(
    f: SupportExpansion, rows: TrainingRows, columns: list[Swept], *,
    alpha: float, fit_intercept: bool, seed: int, over: Callable[[], bool],
) -> tuple[SupportExpansion, dict[str, Any]]:  # fmt: skip
    """Return the function nearest to f that is monotone in `columns`, and what was found.

    It ends early where `over` says so, or where a round would make the mean loss larger than
    that of a constant; the function is then that of the round before.
    """
    start, rng = clock(), np.random.default_rng([seed, _TAG])
    batch = rows.take(rows.sample(_LOSS_ROWS, rng))
    X, y = np.asarray(batch.X, np.float64), np.asarray(batch.y, np.float64)
    weight = np.asarray(batch.sample_weight, np.float64)
    curves = _Curves(columns, X, _ends(rows, columns), rng)
    index = np.sort(rng.choice(f.n_support, min(_FIRST, f.n_support), replace=False))
    change = _Change(f, index)
    F, weight = change.values(X)[0] + f.intercept, weight / weight.sum()
    fit = _Fit(rows.task.loss, X, y, weight, F, alpha, fit_intercept)
    first = loss = fit.mean_loss(F)
    constant = fit.mean_loss(np.tile(fit.loss.intercept(y, weight), (len(y), 1)))
    unit = np.ptp(F, axis=0)
    unit = np.where(unit > 0, unit, 1.0)
    pairs, price, n_rounds = None, np.zeros((0, len(unit))), 0
    enough = 0.5 * _LEAST * TOLERANCE / _POINTS * unit
    while True:
        points, steps, signs = curves.draw()
        before, after = (
            values.reshape(*points.shape[:2], -1) * (signs[:, None, None] / unit)
            for values in change.values(points.reshape(-1, points.shape[2]))
        )
        fall = falls(after)
        if fall.max() <= _ENDS * TOLERANCE or n_rounds == _ROUNDS or over():
            break
        n_rounds += 1
        rise = np.diff(after, axis=1).min(axis=2)
        least = _LEAST * TOLERANCE * steps  # in all that of the whole curve
        order = np.argsort(-fall, kind="stable")
        down = (rise < least) & (fall > _NEAR * TOLERANCE)[:, None]
        down[order[_WORST:]] = False
        down[:, 1:] |= down[:, :-1]  # a fall that is mended moves on
        down[:, :-1] |= down[:, 1:]
        a, b, up = points[:, :-1], points[:, 1:], signs[:, None, None] > 0
        a, b = np.where(up, a, b), np.where(up, b, a)
        own = np.diff(before, axis=1) * unit
        needed = least[..., None] * unit - own
        more = _Pairs(*(part[down] for part in (a, b, own, needed)))
        pairs = more if pairs is None else pairs.join(more)
        room = max(0, min(_MORE, _CENTRES - change.n_centres)) // 2
        worst = order[: min(room, int((fall > _NEAR * TOLERANCE).sum()))]
        step = rise[worst].argmin(axis=1)
        change.extend(np.concatenate([points[worst, step], points[worst, step + 1]]))
        last = change.u, change.shift
        price = fit.solve(change, pairs, enough, price)
        cost = fit.mean_loss(fit.response)
        if not cost <= max(constant, first):  # the centres are too few, or too much alike
            change.u, change.shift = last
            break
        loss = cost
        if len(pairs.rise) > _PAIRS:
            active = (price > 0).any(axis=1)
            pairs, price = pairs.take(active), price[active]
    was = falls(before)
    return change.expansion(), {
        "columns": {column.name: column.sign for column in columns},
        "tolerance": TOLERANCE,
        "rounds": n_rounds,
        "constraints": 0 if pairs is None else len(pairs.rise),
        "centres": change.n_centres if n_rounds else 0,
        "curves": len(fall),
        "violated_before": float(np.mean(was > TOLERANCE)),
        "violated": float(np.mean(fall > TOLERANCE)),
        "largest_fall_before": float(was.max()),
        "largest_fall": float(fall.max()),
        "train_loss_before": first,
        "train_loss": loss,
        "seconds": clock() - start,
    }


def _ends(rows: TrainingRows, columns: list[Swept]) -> list[tuple[float, float]]:
    """Return the range of each column among all rows."""
    places = [column.place for column in columns]
    low, high = np.inf, -np.inf
    for batch in rows.source.chunks():
        some = np.asarray(batch.X[:, places], np.float64)
        low, high = np.minimum(low, some.min(axis=0)), np.maximum(high, some.max(axis=0))
    return list(zip(np.ravel(low).tolist(), np.ravel(high).tolist(), strict=True))
