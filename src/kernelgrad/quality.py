"""Rows that a function has not seen: its errors on new rows, intervals and sets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import clone

from kernelgrad.calibration import Responses, crossed, margin
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.files.records import Record, check_text
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.losses import LogSquaredError
from kernelgrad.solvers.kernel_matrix import KernelMatrix, kernel_matrix
from kernelgrad.solvers.mean_loss import MeanLoss
from kernelgrad.tasks import Classification, Task
from kernelgrad.types import AnyArray, Contents, Float64Array
from kernelgrad.validation import check_bool, check_real

__all__ = ["Measure", "Quality"]  # what the manual lists

LOO_ROWS = 5000  # rows up to which leave-one-out takes seconds
_NEAR = 100  # rows of the nearest predictions, whose mean residual is the scale
_PRIOR = 20.0  # rows of the mean of all residuals that are added to them
_LEAST = 1e-8  # least curvature of a row in units of the mean weight
LOO = "all rows, each predicted without itself"
LATEST_ROWS = 1000  # latest rows of a stream that tell of its quality
_LEAST_ROWS = 10  # rows to calibrate of which each half calibrates the other
CALIBRATION = "rows that calibrate, predicted from others"
SEARCHED = "rows that the search held out, predicted from {:,} others"


class Measure(NamedTuple):
    """A measure of errors on new rows, with its standard error."""

    name: str
    value: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.name} {self.value:.4g} +- {self.standard_error:.2g}"


@dataclass(frozen=True)
class Quality:
    """What a fitted model is worth on new rows: measures, and which rows they come from.

    They are R2 where the targets vary, and RMSE, for quantiles the mean loss, and for classes
    log loss and error rate. `name`, `score` and `standard_error` are those of the first.
    """

    measures: tuple[Measure, ...]
    n_rows: int
    source: str

    name = property(lambda self: self.measures[0].name)
    score = property(lambda self: self.measures[0].value)
    standard_error = property(lambda self: self.measures[0].standard_error)

    def describe(self) -> dict[str, Any]:
        """Return plain values by name."""
        measures = {m.name: [m.value, m.standard_error] for m in self.measures}
        return measures | {"rows": self.n_rows, "source": self.source, "text": str(self)}

    def __str__(self) -> str:
        each = ", ".join(map(str, self.measures))
        return f"{each} ({self.n_rows:,} rows: {self.source})"


def latest_of(earlier: Responses, later: Responses) -> Responses:
    """Return the latest rows of both."""
    pairs = zip(earlier, later, strict=True)
    values, y, weight = (np.concatenate(pair)[-LATEST_ROWS:] for pair in pairs)
    return values, y, weight


@dataclass(frozen=True)
class Unseen:
    """Rows, and responses to them by functions that had not seen them.

    Of classes the values are probabilities (m, K), or 0 and 1 where there are none.
    """

    values: AnyArray  # responses f (m, C)
    y: AnyArray  # internal targets
    weight: AnyArray  # without weights of classes
    source: str
    is_final: bool = False  # whether the fitted function itself responded
    order: AnyArray | None = None  # number of each row as it came, -1 for weight 0
    has_proba: bool = True  # False where the values of classes are only 0 and 1

    @property
    def own(self) -> Float64Array:
        """Probability of each row's class."""
        return self.values[np.arange(len(self.y)), self.y].astype(np.float64)

    def compact(self) -> Self:
        """Return the rows with numbers in float32 where rounding is far below errors."""
        values = self.values.astype(np.float32)
        if np.abs(values - self.values).max() > 1e-6 * self.values.std():
            values = self.values
        order = None if self.order is None else self.order.astype(np.int32)
        return replace(self, values=values, weight=self.weight.astype(np.float32), order=order)

    def after(self, earlier: Unseen | None) -> Self:
        """Return the latest rows of both, each predicted by the function of its time."""
        if earlier is None or earlier.has_proba != self.has_proba:
            return replace(self, is_final=False)
        y = earlier.y.reshape(-1, *self.y.shape[1:])
        first, last = (earlier.values, y, earlier.weight), (self.values, self.y, self.weight)
        values, y, weight = latest_of(first, last)
        return replace(self, values=values, y=y, weight=weight, is_final=False)

    def describe(self) -> Contents:
        flags = {"is_final": self.is_final, "has_proba": self.has_proba}
        names = ("values", "y", "weight", "order")
        return {"source": self.source} | flags, {
            k: a for k, a in vars(self).items() if k in names and a is not None
        }

    @classmethod
    def restore(cls, record: Record, task: Task) -> Self | None:
        """Take what :meth:`describe` gave; None without it."""
        if "source" not in record:
            return None
        K, kinds, least, most = task.n_outputs, "biuf", -np.inf, np.inf
        if isinstance(task, Classification):
            K = len(task.classes)
            kinds, least, most = "iu", 0, K - 1
        values = record.array("values", "m", K)
        columns, last = K if task.loss.n_outputs is None else 1, len(values) - 1
        shape = ("m", columns)[: getattr(record.arrays.get("y"), "ndim", 1)]
        return cls(
            values, record.array("y", *shape, kinds=kinds, least=least, most=most),
            record.array("weight", "m", least=0.0), record.take("source", check_text),
            record.take("is_final", check_bool),
            record.array("order", "n", kinds="i", least=-1, most=last, optional=True),
            record.take("has_proba", check_bool, True),
        )  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """What leave-one-out needs of the rows of an exact fit, in the order of support rows."""

    y: AnyArray  # internal targets
    weight: Float64Array
    alpha: float  # the penalty that was solved for
    has_intercept: bool  # whether the constant was fitted
    order: AnyArray | None  # see Unseen


def leave_one_out(function: SupportExpansion, task: Task, seen: Seen) -> Float64Array:
    r"""Return the responses (n, C) to each row of functions fitted to all others.

    With ``C = (K + alpha diag(1 / D))^-1``, D the weights of mean 1 / n times the curvatures of
    the loss, and coefficients a, the response without row i is ``f_i - a_i v_i``, where
    ``v_i = 1 / C_ii - alpha / D_i`` is what the other rows leave of k(x_i, x_i). This is exact
    for the squared loss, else one Newton step from the fit to all rows; it takes the outputs of
    the multinomial loss one by one.
    """
    y = np.asarray(task.encode(seen.y), np.float64)
    mean = MeanLoss(task.loss, y, seen.weight / seen.weight.sum())
    with single_threaded_blas():
        K = kernel_matrix(function.exact, function.support, wide=True)
        a = np.ascontiguousarray(function.coef.T)
        f = K.product(a) + function.intercept[:, None]
        D = mean.diagonal(mean.bend(f[None], mean.slope(f[None])))[0]
        D = np.maximum(D[:1] if mean.quadratic else D, _LEAST / K.n)
        left = np.stack([_left(K, d, seen) for d in D])
    return np.asarray((f - a * left).T)


def _left(K: KernelMatrix, D: Float64Array, seen: Seen) -> Float64Array:
    """Return what the other rows leave of each k(x, x), (n,)."""
    scale = np.sqrt(D)
    K.factor(scale, seen.alpha)
    inverse = K.inverse_diagonal()
    if seen.has_intercept:
        z = K.solve(scale[:, None])[:, 0]
        inverse = inverse - z**2 / (scale @ z)
    return np.asarray(np.maximum(1.0 / inverse - seen.alpha, 0.0) / D)


def from_calibration(responses: Responses, task: Classification) -> Unseen | None:
    """Return probabilities of rows that calibrate, each half by the other; None of few."""
    z, y, weight = responses
    if len(y) < _LEAST_ROWS:
        return None
    p = crossed(z, y, weight, unit=margin(task))
    return without_classes(Unseen(p, y, weight, CALIBRATION), task)


def without_classes(rows: Unseen, task: Task) -> Unseen:
    """Return the rows without the weights of classes, compact."""
    factor = task.class_factor(rows.y)
    rows = rows if factor is None else replace(rows, weight=rows.weight / factor)
    return rows.compact()


def quality(rows: Unseen, task: Task, other: Unseen | None = None) -> Quality:
    """Return the quality on rows held out; `other` rows are of functions of fewer rows.

    The first estimate knows a kernel that was chosen with the same rows, the other one does
    not: their distance is a part of the standard error.
    """
    measures = _measures(rows, task)
    if other is not None:
        values = {m.name: m.value for m in _measures(other, task)}
        distances = [m.value - values.get(m.name, m.value) for m in measures]
        measures = [
            m._replace(standard_error=float(np.hypot(m.standard_error, d)))
            for m, d in zip(measures, distances, strict=True)
        ]
    return Quality(tuple(measures), len(rows.y), rows.source)


def _measures(rows: Unseen, task: Task) -> list[Measure]:
    w = np.asarray(rows.weight, np.float64)
    w = w / w.sum()

    def mean(name: str, each: Float64Array) -> Measure:
        return Measure(name, float(w @ each), _error(w, each - w @ each))

    if isinstance(task, Classification):
        wrong = np.argmax(rows.values, axis=1) != rows.y
        losses = -np.log(np.maximum(rows.own, 1e-15))
        measures = [mean("log loss", losses), mean("error rate", wrong.astype(np.float64))]
        return measures if rows.has_proba else measures[1:]
    if task.loss.n_outputs is not None:
        losses = np.asarray(task.loss.value(task.encode(rows.y), rows.values))
        return [mean("mean loss", losses)]
    y = np.asarray(rows.y, np.float64).reshape(len(w), -1)
    square = (y - task.predict(rows.values).reshape(y.shape)) ** 2
    error = w @ square
    root = np.sqrt(np.maximum(error, 1e-300))
    rmse = _error(w, ((square - error) / (2.0 * root)).mean(axis=1))
    measures = [Measure("RMSE", float(root.mean()), rmse)]
    if np.ptp(y, axis=0).all():
        deviation = (y - w @ y) ** 2
        variance = np.maximum(w @ deviation, 1e-300)
        ratio = error / variance
        r2 = _error(w, ((square - ratio * deviation) / variance).mean(axis=1))
        measures.insert(0, Measure("R2", float(1.0 - ratio.mean()), r2))
    return measures


def _error(w: Float64Array, deviations: Float64Array) -> float:
    """Return the standard error of a mean with weights of sum 1."""
    n = len(w)
    return float(np.sqrt(w**2 @ deviations**2 * (n / max(1, n - 1))))


def quantile(scores: Float64Array, weight: Float64Array, coverage: float) -> float:
    """Return the least score that holds for a share of the rows and a new one, or raise."""
    check_real(coverage, "coverage", low=0.0, high=1.0, low_open=True, high_open=True)
    order = np.argsort(scores)
    total = np.cumsum(weight[order]) / weight.mean()
    at = int(np.searchsorted(total, coverage * (total[-1] + 1.0) * (1.0 - 1e-12)))
    if at == len(scores):
        least = int(np.ceil(coverage / (1.0 - coverage)))
        raise ValueError(
            f"coverage={coverage:g} needs {least} rows that were not fitted, and there are "
            f"{len(scores)}; give more to calibrate_coverage."
        )
    return float(scores[order[at]])


@dataclass(frozen=True)
class Intervals:
    """Intervals of one output: residuals of unseen rows, over their scale.

    The scale at a prediction is the mean residual of the rows with the nearest ones; it is 1
    without any. Quantiles have the interval between the outermost ones, and no scale.
    """

    scores: Float64Array
    weight: AnyArray
    at: Float64Array  # increasing predictions (m,)
    sums: Float64Array  # sums of the first residuals (m + 1,)

    @classmethod
    def of(
        cls, low: Float64Array, high: Float64Array, y: Float64Array, w: AnyArray, *,
        scaled: bool,
    ) -> Self:  # fmt: skip
        residual, order = np.maximum(low - y, y - high), np.argsort(low, kind="stable")
        if not scaled:
            return cls(residual, w, np.empty(0), np.zeros(1))
        sums = np.append(0.0, np.cumsum(residual[order]))
        intervals = cls(residual, w, low[order], sums)
        return replace(intervals, scores=residual / intervals.scale(low, residual))

    def scale(self, low: Float64Array, own: Float64Array | float = 0.0) -> Float64Array:
        """Return the scale at predictions, without residuals that are their `own`."""
        m = len(self.at)
        if not m:
            return np.ones(len(low))
        near, mean = min(_NEAR, m), self.sums[-1] / m
        first = np.clip(np.searchsorted(self.at, low) - near // 2, 0, m - near)
        total = np.maximum(self.sums[first + near] - self.sums[first] - own, 0.0)
        return np.asarray((total + _PRIOR * max(mean, 1e-300)) / (near + _PRIOR))

    def widened(self, low: AnyArray, high: AnyArray, coverage: float) -> AnyArray:
        """Return the bounds (n, 2)."""
        width = quantile(self.scores, self.weight, coverage) * self.scale(low)
        return np.stack([low - width, high + width], axis=1)


def _bounds(task: Task, raw: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return what intervals are around, (n, outputs) twice: predictions, or logarithms."""
    if isinstance(task.loss, LogSquaredError):
        return raw, raw
    values = np.asarray(task.predict(raw), np.float64).reshape(len(raw), -1)
    if task.loss.n_outputs is not None:
        return values[:, :1], values[:, -1:]
    return values, values


def intervals(rows: Unseen, task: Task, other: Unseen | None = None) -> list[Intervals]:
    """Return the intervals of each output.

    Rows that the function has not seen promise their coverage only if the scale does not come
    from them: they take that of `other` rows, or none.
    """
    low, high = _bounds(task, rows.values)
    y = np.asarray(rows.y, np.float64).reshape(len(low), -1)
    if isinstance(task.loss, LogSquaredError):
        y = np.asarray(task.loss.targets(y), np.float64)
    columns = zip(low.T, high.T, y.T, strict=True)
    scaled = not rows.is_final and low is high  # quantiles are bounds themselves
    parts = [Intervals.of(*each, rows.weight, scaled=scaled) for each in columns]
    if not rows.is_final or other is None:
        return parts
    triples = zip(parts, intervals(other, task), low.T, strict=True)
    return [
        replace(scale, scores=part.scores / scale.scale(a), weight=part.weight)
        for part, scale, a in triples
    ]


def predicted(
    parts: list[Intervals], task: Task, raw: Float64Array, coverage: float
) -> Float64Array:
    """Return the bounds (n, 2), or (n, 2, outputs) of several outputs, from responses f."""
    low, high = _bounds(task, raw)
    pairs = zip(parts, low.T, high.T, strict=True)
    bounds = np.stack([part.widened(a, b, coverage) for part, a, b in pairs], axis=2)
    if isinstance(task.loss, LogSquaredError):
        plain = clone(task.loss).set_params(factor=1.0, low=None, high=None)
        bounds = plain.mean(bounds)
    single = getattr(task, "ndim", 1) == 1 or task.loss.n_outputs is not None
    return bounds[:, :, 0] if single else bounds


def likely(rows: Unseen, p: Float64Array, coverage: float) -> AnyArray:
    """Return which classes are in the set of each row, (n, K), from probabilities p.

    They are those at least as probable as all but a share of the rows held out found their own
    class, and the most probable one (Sadinle, Lei and Wasserman 2019).
    """
    members = p >= -quantile(-rows.own, rows.weight, coverage)
    members[np.arange(len(p)), np.argmax(p, axis=1)] = True
    return members
