"""Rows that a function has not seen, and what they tell of its errors on new rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from kernelgrad.calibration import Responses, crossed
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.files.records import Record, check_text
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.solvers.kernel_matrix import KernelMatrix, kernel_matrix
from kernelgrad.solvers.mean_loss import MeanLoss
from kernelgrad.tasks import Classification, Task
from kernelgrad.types import AnyArray, Contents, Float64Array
from kernelgrad.validation import check_bool

__all__ = ["Measure", "Quality"]  # what the manual lists

LOO_ROWS = 5000  # rows up to which leave-one-out takes seconds
_LEAST = 1e-8  # least curvature of a row in units of the mean weight
LOO = "all rows, each predicted without itself"
CALIBRATION = "rows that calibrate, predicted from others"


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

    They are R2 and RMSE, for quantiles the mean loss, and for classes log loss and error rate.
    `name`, `score` and `standard_error` are those of the first.
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


@dataclass(frozen=True)
class Judges:
    """Rows, and responses to them by functions that had not seen them.

    Of classes the values are probabilities (m, K), or 0 and 1 where there are none.
    """

    values: AnyArray  # responses f (m, C)
    y: AnyArray  # internal targets
    weight: AnyArray  # without weights of classes
    source: str
    is_final: bool = False  # whether the fitted function itself responded
    order: AnyArray | None = None  # number of each row as it came, -1 for weight 0

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

    def describe(self) -> Contents:
        values = {"source": self.source, "is_final": self.is_final}
        names = ("values", "y", "weight", "order")
        return values, {k: a for k, a in vars(self).items() if k in names and a is not None}

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
        shape, last = ("m", K)[: getattr(record.arrays.get("y"), "ndim", 1)], len(values) - 1
        return cls(
            values, record.array("y", *shape, kinds=kinds, least=least, most=most),
            record.array("weight", "m", least=0.0), record.take("source", check_text),
            record.take("is_final", check_bool),
            record.array("order", "n", kinds="i", least=-1, most=last, optional=True),
        )  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """What leave-one-out needs of the rows of an exact fit, in the order of support rows."""

    y: AnyArray  # internal targets
    weight: Float64Array
    alpha: float  # the penalty that was solved for
    has_intercept: bool  # whether the constant was fitted
    order: AnyArray | None  # see Judges


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


def from_calibration(responses: Responses, task: Classification) -> Judges:
    """Return probabilities of the rows that calibrate, each half of them by the other half."""
    z, y, weight = responses
    unit = None if task.loss.name == "perceptron" else 1.0
    p = crossed(z, y, weight, unit=unit)
    return without_classes(Judges(p, y, weight, CALIBRATION), task)


def without_classes(judges: Judges, task: Task) -> Judges:
    """Return the rows without the weights of classes, compact."""
    factor = task.class_factor(judges.y)
    judges = judges if factor is None else replace(judges, weight=judges.weight / factor)
    return judges.compact()


def quality(judges: Judges, task: Task, other: Judges | None = None) -> Quality:
    """Return the quality on rows held out; `other` rows are of functions of fewer rows.

    The first estimate knows a kernel that was chosen with the same rows, the other one does
    not: their distance is a part of the standard error.
    """
    measures = _measures(judges, task)
    if other is not None:
        values = {m.name: m.value for m in _measures(other, task)}
        distances = [m.value - values.get(m.name, m.value) for m in measures]
        measures = [
            m._replace(standard_error=float(np.hypot(m.standard_error, d)))
            for m, d in zip(measures, distances, strict=True)
        ]
    return Quality(tuple(measures), len(judges.y), judges.source)


def _measures(judges: Judges, task: Task) -> list[Measure]:
    w = np.asarray(judges.weight, np.float64)
    w = w / w.sum()

    def mean(name: str, each: Float64Array) -> Measure:
        return Measure(name, float(w @ each), _error(w, each - w @ each))

    if isinstance(task, Classification):
        wrong = np.argmax(judges.values, axis=1) != judges.y
        losses = -np.log(np.maximum(judges.own, 1e-15))
        measures = [mean("log loss", losses), mean("error rate", wrong.astype(np.float64))]
        return measures if (judges.values % 1.0).any() else measures[1:]
    if task.loss.n_outputs is not None:
        losses = np.asarray(task.loss.value(task.encode(judges.y), judges.values))
        return [mean("mean loss", losses)]
    y = np.asarray(judges.y, np.float64).reshape(len(w), -1)
    square = (y - task.predict(judges.values).reshape(y.shape)) ** 2
    deviation = (y - w @ y) ** 2
    error, variance = w @ square, np.maximum(w @ deviation, 1e-300)
    ratio, root = error / variance, np.sqrt(np.maximum(error, 1e-300))
    r2 = _error(w, ((square - ratio * deviation) / variance).mean(axis=1))
    rmse = _error(w, ((square - error) / (2.0 * root)).mean(axis=1))
    return [
        Measure("R2", float(1.0 - ratio.mean()), r2),
        Measure("RMSE", float(root.mean()), rmse),
    ]


def _error(w: Float64Array, deviations: Float64Array) -> float:
    """Return the standard error of a mean with weights of sum 1."""
    n = len(w)
    return float(np.sqrt(w**2 @ deviations**2 * (n / max(1, n - 1))))
