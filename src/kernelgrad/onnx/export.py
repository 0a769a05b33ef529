"""Fitted estimators as ONNX models: their tables, functions and what they predict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from kernelgrad.calibration import KNOTS, LESS, Calibration
from kernelgrad.losses import KLDensityRatio
from kernelgrad.losses.regression import LogLinkLoss
from kernelgrad.losses.scalar import LARGEST_LOG
from kernelgrad.onnx import (
    ExactForm,
    Graph,
    Value,
    add_features,
    add_function,
    add_scaling,
    joined,
)
from kernelgrad.onnx.numerics import clip, softmax
from kernelgrad.tables import MAX_LEVELS, Table
from kernelgrad.tasks import Classification
from kernelgrad.types import AnyArray
from kernelgrad.validation import CapabilityError

Outputs = dict[str, tuple[Value, int | None]]  # values and their number of columns, if any

_DAY, _PERIOD = 86_400.0, 146_097.0  # in seconds, and 400 years in days
_OF_INPUT = (
    "One double tensor of all columns (dates in seconds since 1970), or, where there are "
    "categories, one of each column: double, or the text of a category, '' where it is missing."
)


def export(model: Any, **options: Any) -> onnx.ModelProto:
    """Return the ONNX model of a fitted estimator; `options` are of its kind."""
    graph = Graph()
    outputs = _OUTPUTS[model._onnx_kind](model, _rows(model, graph), **options)
    names = getattr(model, "feature_names_in_", None)
    told = {"estimator": type(model).__name__}
    if names is not None:
        told["columns"] = "\n".join(map(str, names))
    return graph.model(outputs, told, f"{type(model).__name__}. {_OF_INPUT}")


# Rows and tables


def _rows(model: Any, graph: Graph) -> Value:
    """Return rows as functions take them, (n, width) in float64."""
    table, d = getattr(model, "_table", None), int(model.n_features_in_)
    if table is None:
        x = graph.input("X", np.float64, d)
        medians = getattr(model, "_medians", None)
        return x if medians is None else _filled(x, medians)
    if all(column.kind != "level" for column in table.columns):
        return _encoded(table, graph.input("X", np.float64, d), {})
    names = getattr(model, "feature_names_in_", [f"x{j}" for j in range(d)])
    numbers, codes = [], {}
    for j, (name, column) in enumerate(zip(names, table.columns, strict=True)):
        if column.kind == "level":
            codes[j] = _codes(graph.input(str(name), str, 1), column.levels, column.name)
        else:
            numbers.append(graph.input(str(name), np.float64, 1))
    return _encoded(table, joined(numbers) if numbers else None, codes)


def _filled(x: Value, medians: AnyArray) -> Value:
    op = x.graph.op
    return op("Where", op("IsNaN", x), np.asarray(medians, np.float64), x)


def _codes(text: Value, levels: tuple[str | None, ...], name: str) -> Value:
    """Return the numbers of levels, (n, 1); that of unknown ones is the next."""
    if "" in levels and None in levels:
        raise CapabilityError(
            f"Column {name} has missing values and empty texts; in ONNX both are ''. Replace "
            "one of them by a text of its own and fit again."
        )
    keys = ["" if level is None else level for level in levels]
    return text.graph.ml(
        "LabelEncoder", text, np.int64, keys_strings=keys or [""],
        values_int64s=list(range(len(levels))) or [0], default_int64=len(levels),
    )  # fmt: skip


def _encoded(table: Table, x: Value | None, codes: dict[int, Value]) -> Value:
    """Return encoded rows of numbers x, (n, numbers), and of the codes of the other columns."""
    blocks: list[Value] = []
    if x is not None:
        op = x.graph.op
        missing = op("IsNaN", x)
        filled = _filled(x, table.medians)
        blocks = [filled]
        if table.has_gaps.any():
            blocks.append(missing.take(np.flatnonzero(table.has_gaps)).astype(np.float64))
        for place, wanted in zip(table._dates, table.parts, strict=True):
            if not wanted.any():
                continue
            parts = _date_parts(filled.take([place]))
            blocks += [part for part, vary in zip(parts, wanted, strict=True) if vary]
    means: dict[int, list[Value]] = {}
    start = 0
    for j, code in codes.items():
        n = len(table.columns[j].levels)
        if n <= MAX_LEVELS:
            indicators = code.graph.op("Equal", code, np.arange(n)).astype(np.float64)
            blocks.append(indicators)
            continue
        for c, (known, mean) in enumerate(zip(table.means, table.mean, strict=True)):
            values = np.append(known[start : start + n], mean)
            means.setdefault(c, []).append(code.graph.constant(values).take(code, axis=0))
        start += n
    for c in sorted(means):  # an output at a time
        blocks += means[c]
    return joined(blocks)


def _date_parts(seconds: Value) -> list[Value]:
    """Return month (1 to 12), weekday (0 is Monday) and hour."""
    op = seconds.graph.op
    days = op("Floor", seconds / _DAY)
    # the calendar repeats after 400 years, and weeks with it
    day = days - _PERIOD * op("Floor", days / _PERIOD)
    months = np.arange(int(_PERIOD)).astype("datetime64[D]").astype("datetime64[M]")
    table = seconds.graph.constant((months.astype(np.int64) % 12 + 1).astype(np.int8))
    month = table.take(day.astype(np.int64), axis=0).astype(np.float64)
    weekday = day + 3.0 - 7.0 * op("Floor", (day + 3.0) / 7.0)
    return [month, weekday, op("Floor", (seconds - _DAY * days) / 3600.0)]


# What estimators predict


def _numbers(model: Any, x: Value) -> Outputs:
    f, C = add_function(model.expansion_, x), model.expansion_.n_outputs
    if isinstance(model.loss_, LogLinkLoss):
        f = f.graph.op("Exp", f.graph.op("Min", f, LARGEST_LOG))
    if model.loss_.n_outputs is not None:  # quantiles do not cross
        f = f.graph.ops("TopK", f, np.array([C]), dtypes=(None, np.int64), largest=0)[0]
    if model._task().ndim == 1:
        return {"prediction": (_flat(f), None)}
    return {"prediction": (f, C)}


def _classes(model: Any, x: Value) -> Outputs:
    f, task = add_function(model.expansion_, x), model._task()
    op, K = f.graph.op, len(task.classes)
    decision, width = f, task.n_outputs
    if task.by_pairs:
        sides = task._sides.astype(np.float64)
        votes = (op("Where", f > 0.0, 1.0, -1.0) @ sides + np.abs(sides).sum(0)) * 0.5
        total = f @ sides
        decision = votes + total / (3.0 * (op("Abs", total) + 1.0))
        code, width = op("ArgMax", votes, axis=1, keepdims=1), K
    elif K == 2:
        code = (f > 0.0).astype(np.int64)
    else:
        code = op("ArgMax", f, axis=1, keepdims=1)
    label = f.graph.constant(task.classes).take(_flat(code), axis=0)
    outputs: Outputs = {"label": (label, None)}
    outputs["decision"] = (_flat(decision), None) if width == 1 else (decision, width)
    # a semi-supervised one has none after partial_fit
    known = model._calibrates or hasattr(model, "calibration_")
    if known and hasattr(model, "predict_proba"):
        p = _probabilities(model, f, _responses(task, f))
        outputs["probabilities"] = _agreeing(p, code, K), K
    return outputs


def _responses(task: Classification, f: Value) -> Value:
    """Return a response of each class, (n, K)."""
    if task.by_pairs:
        return f @ (task._sides.astype(np.float64) / (len(task.classes) - 1))
    return f.graph.op("Concat", f * 0.0, f, axis=1) if task.n_outputs == 1 else f


def _probabilities(model: Any, f: Value, response: Value) -> Value:
    op = f.graph.op
    if hasattr(model, "calibration_"):
        a, b = model.calibration_.T
        p = op("Sigmoid", clip(a * f + b, -500.0, 500.0))
        return _shares(p) if len(model.classes_) > 2 else _two(p)
    if not model._has_own_proba(model.loss_):
        calibration = model._calibration
        assert calibration is not None
        return _calibrated(calibration, response)
    if model.loss_.is_multinomial:
        return softmax(f)
    p = op("Sigmoid", f)
    return _two(p) if len(model.classes_) == 2 else _shares(p)


def _two(p: Value) -> Value:
    return p.graph.op("Concat", 1.0 - p, p, axis=1)


def _shares(p: Value) -> Value:
    """Return probabilities divided by their sum."""
    return p / p.graph.op("Max", p.sum(1), 1e-300)


def _calibrated(calibration: Calibration, z: Value) -> Value:
    op, z = z.graph.op, z / calibration.unit
    first, *others = calibration.slopes
    g = z * first + calibration.shifts
    for knot, slope in zip(KNOTS, others, strict=True):
        g = g + op("Min" if knot <= 0 else "Max", z - knot, 0.0) * slope
    return softmax(g)


def _agreeing(p: Value, code: Value, K: int) -> Value:
    """Return probabilities of which the first largest is that of `code`, see `keep_argmax`."""
    op = p.graph.op
    own = op("Equal", code, np.arange(K))
    right = op("Equal", op("ArgMax", p, axis=1, keepdims=1), code)
    least = op("Where", own, p, 0.0).sum(1)
    # its own probability, then the others, falling: means of the first so many
    order = op("Where", own, 2.0, p)
    ranked = p.graph.ops("TopK", order, np.array([K]), dtypes=(None, np.int64))[0]
    total = op("CumSum", ranked, np.array(1)) - 2.0 + least
    level = (total / np.arange(1.0, K + 1.0)).max(1)
    # onnxruntime takes a factor so near 1 for 1
    pooled = op("Where", own, level, op("Min", p, level - level * (1.0 - LESS)))
    return op("Where", right, p, pooled)


def _novelty(model: Any, x: Value) -> Outputs:
    f = _flat(add_function(model.expansion_, x))
    below = (f < 0.0).astype(np.int64)
    label = below.graph.op("Sub", np.array(1), below.graph.op("Mul", below, np.array(2)))
    return {"label": (label, None), "decision": (f, None), "score": (f + model.offset_, None)}


def _ratio(model: Any, x: Value) -> Outputs:
    f = _flat(add_function(model.expansion_, x))
    op = f.graph.op
    if isinstance(model.loss_, KLDensityRatio):
        ratio = op("Exp", op("Min", f, LARGEST_LOG))
    else:
        ratio = op("Max", f, 0.0)
    return {"ratio": (ratio, None), "decision": (f, None)}


def _process(model: Any, x: Value, *, std: bool = False) -> Outputs:
    mean = model.y_mean_ + model.y_scale_ * _flat(add_function(model.expansion_, x))
    outputs: Outputs = {"mean": (mean, None)}
    if std:
        outputs["std"] = _deviation(model, x), None
    return outputs


def _deviation(model: Any, x: Value) -> Value:
    """Return the standard deviation of f."""
    op, half = x.graph.op, model._half_inverse()
    exact = model.expansion_.exact
    kept = exact.prepare(model._rows_of_posterior()[0])
    form = ExactForm(exact.kernel, add_scaling(exact.scaling, x), kept)
    prior = form.diagonal()
    Z = form(kept) @ half.T
    left = prior - op("ReduceSumSquare", Z, np.array([1]))
    return _flat(op("Sqrt", model.signal_variance_ * op("Max", left, 0.0)))


def _features(model: Any, x: Value) -> Outputs:
    width, n = model.stream_.width, model._n_features_out
    blocks = add_features(model.stream_, x, model.n_blocks_)
    if len(model._last) < width:
        blocks[-1] = blocks[-1].take(model._last)
    Z = joined(blocks) * float(np.sqrt(width / n))
    return {"features": (Z, n)}


def _flat(x: Value) -> Value:
    return x.reshape(-1)


_OUTPUTS: dict[str, Callable[..., Outputs]] = {
    "numbers": _numbers,
    "classes": _classes,
    "novelty": _novelty,
    "ratio": _ratio,
    "process": _process,
    "features": _features,
}
