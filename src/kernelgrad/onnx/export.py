"""Fitted estimators as ONNX models: their tables, functions and what they predict."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from kernelgrad.calibration import KNOTS, LESS, Calibration
from kernelgrad.families.unlabelled import Novelty, RatioSamples
from kernelgrad.inputs import Inputs
from kernelgrad.losses import KLDensityRatio
from kernelgrad.losses.regression import LogLinkLoss, LogSquaredError
from kernelgrad.losses.scalar import LARGEST_LOG
from kernelgrad.onnx import functions
from kernelgrad.onnx import numerics as xp
from kernelgrad.onnx.graph import ML, Graph, Value
from kernelgrad.tables import UNKNOWN
from kernelgrad.tasks import Classification, Regression, ScaledColumn
from kernelgrad.validation import CapabilityError, check_name

Outputs = dict[str, tuple[Value, int | None]]  # values and their number of columns, if any

_OF_INPUT = (
    "One tensor of all columns (dates in seconds since 1970), or, where there are categories, "
    "one of each column: numbers, or the text of a category, '' where it is missing."
)


def export(model: Any, dtype: str) -> onnx.ModelProto:
    """Return the ONNX model of a fitted value."""
    graph = Graph(dtype=check_name(dtype, ("float64", "float32"), "dtype"))
    inputs = model.inputs
    outputs = next(make for cls, make in _OUTPUTS if isinstance(model.task, cls))
    metadata = {"estimator": inputs.owner}
    if inputs.names is not None:
        metadata["columns"] = "\n".join(map(str, inputs.names))
    values = outputs(model, _rows(inputs, graph))
    return graph.model(values, metadata, f"{inputs.owner}. {_OF_INPUT}")


def _rows(inputs: Inputs, graph: Graph) -> Value:
    """Return rows as functions take them, (n, width) in float64."""
    table, d = inputs.table, inputs.n_features
    if table is None:
        x = graph.input("X", np.float64, d)
        medians = inputs.medians
        return x if medians is None else xp.where(xp.isnan(x), medians, x)
    numbers, levels = [], {}
    if not len(table.few) and not len(table.many):
        numbers.append(graph.input("X", np.float64, d))
    else:
        names = [f"x{j}" for j in range(d)] if inputs.names is None else inputs.names
        for j, (name, column) in enumerate(zip(names, table.columns, strict=True)):
            if column.kind == "level":
                text = graph.input(str(name), str, 1)
                levels[j] = _codes(text, column.levels, column.name)
            else:
                numbers.append(graph.input(str(name), np.float64, 1))
    blocks = table.blocks(xp, xp.concatenate(numbers, 1) if numbers else None, levels)
    return xp.concatenate(blocks, 1)


def _codes(text: Value, levels: tuple[str | None, ...], name: str) -> Value:
    if "" in levels and None in levels:
        raise CapabilityError(
            f"Column {name} has missing values and empty texts; in ONNX both are ''. Replace "
            "one of them by a text of its own and fit again."
        )
    keys = ["" if level is None else level for level in levels]
    return text.graph.op(
        "LabelEncoder", text, dtype=np.int64, domain=ML, keys_strings=keys or [""],
        values_int64s=list(range(len(levels))) or [UNKNOWN], default_int64=UNKNOWN,
    )  # fmt: skip


# What estimators predict


def _numbers(model: Any, x: Value) -> Outputs:
    f, C, loss = (
        functions.add_function(model.function, x),
        model.task.n_outputs,
        model.task.loss,
    )
    if isinstance(loss, LogLinkLoss):
        f = _growth(f)
    if isinstance(loss, LogSquaredError):
        f = _growth(f) * loss.factor - loss.shift
        f = xp.clip(f, loss.low, loss.high)
    if loss.n_outputs is not None:  # quantiles do not cross
        f = xp.ranked(f, C, largest=0)
    return {"prediction": (f.reshape(-1), None) if model.task.ndim == 1 else (f, C)}


def _classes(model: Any, x: Value) -> Outputs:
    f, task = functions.add_function(model.function, x), model.task
    K = len(task.classes)
    decision, width = f, task.n_outputs
    if task.by_pairs:
        sides = task._sides.astype(np.float64)
        votes = (xp.where(f > 0.0, 1.0, -1.0) @ sides + np.abs(sides).sum(0)) * 0.5
        total = f @ sides
        decision = votes + total / (3.0 * (xp.abs(total) + 1.0))
        code, width = votes.argmax(), K
    elif K == 2:
        code = (f > 0.0).astype(np.int64)
    else:
        code = f.argmax()
    label = xp.take(task.classes, code.reshape(-1))
    outputs: Outputs = {"label": (label, None)}
    outputs["decision"] = (decision.reshape(-1), None) if width == 1 else (decision, width)
    if model.has_proba:
        p = _probabilities(model, f, _responses(task, f))
        outputs["probabilities"] = _agreeing(p, code, K), K
    return outputs


def _responses(task: Classification, f: Value) -> Value:
    if task.by_pairs:
        return f @ (task._sides.astype(np.float64) / (len(task.classes) - 1))
    return xp.concatenate([f * 0.0, f], 1) if task.n_outputs == 1 else f


def _probabilities(model: Any, f: Value, response: Value) -> Value:
    if model.calibration is not None:
        return _calibrated(model.calibration, response)
    if model.task.loss.is_multinomial:
        return xp.softmax(f)
    p = xp.sigmoid(f)
    if len(model.task.classes) == 2:
        return xp.concatenate([1.0 - p, p], 1)
    return p / xp.maximum(p.sum(1), 1e-300)


def _calibrated(calibration: Calibration, z: Value) -> Value:
    z = z / calibration.unit
    first, *others = calibration.slopes
    g = z * first + calibration.shifts
    for knot, slope in zip(KNOTS, others, strict=True):
        g = g + (xp.minimum if knot <= 0 else xp.maximum)(z - knot, 0.0) * slope
    return xp.softmax(g)


def _agreeing(p: Value, code: Value, K: int) -> Value:
    """Return probabilities of which the first largest is that of `code`, see `keep_argmax`."""
    own, right = xp.equal(code, np.arange(K)), xp.equal(p.argmax(), code)
    least = xp.where(own, p, 0.0).sum(1)
    # its own probability, then the others, falling: means of the first so many
    ranked = xp.ranked(xp.where(own, 2.0, p), K)
    total = p.graph.op("CumSum", ranked, np.array(1)) - 2.0 + least
    level = (total / np.arange(1.0, K + 1.0)).max(1)
    # onnxruntime takes a factor so near 1 for 1
    pooled = xp.where(own, level, xp.minimum(p, level - level * (1.0 - LESS)))
    return xp.where(right, p, pooled)


def _novelty(model: Any, x: Value) -> Outputs:
    f = functions.add_function(model.function, x).reshape(-1)
    offset = -float(model.function.intercept[0])
    label = xp.where(f < 0.0, np.array(-1), np.array(1))
    return {"label": (label, None), "decision": (f, None), "score": (f + offset, None)}


def _ratio(model: Any, x: Value) -> Outputs:
    f = functions.add_function(model.function, x).reshape(-1)
    ratio = _growth(f) if isinstance(model.task.loss, KLDensityRatio) else xp.maximum(f, 0.0)
    return {"ratio": (ratio, None), "decision": (f, None)}


def _process(model: Any, x: Value) -> Outputs:
    task = model.task
    mean = task.centre + task.scale * functions.add_function(model.function, x).reshape(-1)
    return {"mean": (mean, None)}


def _growth(f: Value) -> Value:
    return xp.exp(xp.minimum(f, LARGEST_LOG))


_OUTPUTS: tuple[tuple[type, Callable[..., Outputs]], ...] = (
    (Regression, _numbers), (Classification, _classes), (Novelty, _novelty),
    (RatioSamples, _ratio), (ScaledColumn, _process),
)  # fmt: skip
