"""Random features of a stream, with frequencies and phases stored explicitly."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from kernelgrad.features import fused as kinds
from kernelgrad.features.base import FeatureMap, PartsMap, ProductMap, SumMap
from kernelgrad.features.projections import ProjectionMap
from kernelgrad.onnx import numerics as xp
from kernelgrad.onnx.graph import Value
from kernelgrad.onnx.kernels import embed
from kernelgrad.types import Float32Array
from kernelgrad.validation import CapabilityError

# Features of a plane (n, F times blocks), and the factor of each, or of all
Plane = tuple[Value, Any]

_TURN = 2 * np.pi


@singledispatch
def prepare(features: FeatureMap, x: Value) -> Any:
    raise CapabilityError(
        f"The random features of {type(features).__name__} cannot be exported to ONNX; take "
        "a kernel of random projections, a solver on exact kernels, or the file of save."
    )


@singledispatch
def planes(features: FeatureMap, rows: Any, first: int, n: int) -> list[Plane]:
    """Return the features of n blocks, of the first plane and the others."""
    raise NotImplementedError


@prepare.register
def _(features: ProjectionMap, x: Value) -> Value:
    # the method of the kernel, which says what it does
    kernel = getattr(features.projection.embed, "__self__", None)
    return (x if kernel is None else embed(kernel, x)).astype(np.float32)


@planes.register
def _(features: ProjectionMap, rows: Value, first: int, n: int) -> list[Plane]:
    op, F, d = rows.graph.op, features.block_size, features.n_features_in
    W = _weights(features, first, n, d)
    phase = features.projection.phases(features.seed, first * F, n * F)
    T = rows @ W
    result = [T]
    if features.kind == kinds.PAIR:
        result = _cos_sin(T)
    elif features.kind == kinds.PHASE:
        T = T + phase
        result = [op("Cos", _reduced(T)) * float(np.sqrt(2.0))]
    elif features.kind == kinds.DECAY:
        result = [xp.exp(-T)]
    elif features.kind == kinds.STEP:
        result = [(T > 0.0).astype(np.float32)]
    elif features.kind != kinds.LINEAR:
        T = op("Relu", T)
        result = [T if features.kind == kinds.RAMP else T * T]
    return [(plane, features._scale) for plane in result]


def _weights(features: ProjectionMap, first: int, n: int, d: int) -> Float32Array:
    F = features.block_size
    W = features.frequencies(first * F, n, F, np.arange(d))
    return np.ascontiguousarray(W.transpose(1, 0, 2).reshape(d, n * F))


def _reduced(turns: Value) -> Value:
    """Return angles in radians, less whole turns: exact in float32."""
    return (turns - turns.graph.op("Round", turns)) * _TURN


def _cos_sin(turns: Value) -> list[Value]:
    reduced = _reduced(turns)
    return [turns.graph.op(kind, reduced) for kind in ("Cos", "Sin")]


@prepare.register
def _(features: PartsMap, x: Value) -> list[Any]:
    return [prepare(part, x) for part in features.parts]


@planes.register
def _(features: SumMap, rows: list[Any], first: int, n: int) -> list[Plane]:
    parts = zip(features.parts, rows, features._roots, strict=True)
    return [
        (plane, scale * root)
        for part, own, root in parts
        for plane, scale in planes(part, own, first, n)
    ]


@planes.register
def _(features: ProductMap, rows: list[Any], first: int, n: int) -> list[Plane]:
    root = float(features.block_size) ** 0.5
    result: list[Plane] = []
    for part, own in zip(features.parts, rows, strict=True):
        more = planes(part, own, first, n)
        result = [(a * b, s * t * root) for a, s in result for b, t in more] if result else more
    return result
