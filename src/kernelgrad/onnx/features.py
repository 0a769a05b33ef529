"""Random features of a stream, with frequencies and phases stored explicitly."""

from __future__ import annotations

import functools
from functools import singledispatch
from typing import Any

import numpy as np

from kernelgrad.features import fused as kinds
from kernelgrad.features.base import FeatureMap
from kernelgrad.features.composite import PartsMap, ProductMap, SumMap
from kernelgrad.features.projections import ProjectionMap
from kernelgrad.onnx import numerics as xp
from kernelgrad.onnx.graph import Value, joined, multiplied, summed
from kernelgrad.onnx.kernels import contrast, embed
from kernelgrad.special_kernels.features import dot_product
from kernelgrad.special_kernels.features.additive import AdditiveMap
from kernelgrad.special_kernels.features.convolutional import ConvolutionMap
from kernelgrad.types import AnyArray, Float32Array
from kernelgrad.validation import CapabilityError

# Features of a plane (n, F times blocks), and the factor of each, or of all
Plane = tuple[Value, Any]

_TURN = 2 * np.pi


@singledispatch
def prepare(features: FeatureMap, x: Value) -> Any:
    raise CapabilityError(
        f"The random features of {type(features).__name__} cannot be exported to ONNX; take "
        "a kernel of this package, a solver on exact kernels, or the file of save."
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
def _(features: dot_product.InnerProductMap, x: Value) -> Value:
    return (x * features.root).astype(np.float32)


@planes.register
def _(features: dot_product.TensorSketch, rows: Value, first: int, n: int) -> list[Plane]:
    op, F, d = rows.graph.op, features.block_size, features.n_features_in
    blocks = []
    for block in range(first, first + n):
        spectra = []
        for S, bucket, constant in features.draw(block, np.arange(d)):
            columns = xp.concatenate([rows * S.data, rows.take([0]) * 0.0 + float(constant)], 1)
            # in float32 transforms whose length is no power of two are off by 1e-4
            sketch = _bucket_sums(columns, np.append(S.indices, bucket), F).astype(np.float64)
            spectrum = op("DFT", sketch.reshape(0, F, 1), axis=1)
            spectra.append([spectrum.take([i], axis=2) for i in (0, 1)])
        both = functools.reduce(
            lambda p, q: [p[0] * q[0] - p[1] * q[1], p[0] * q[1] + p[1] * q[0]], spectra
        )
        product = op("DFT", op("Concat", *both, axis=2), axis=1, inverse=1)
        blocks.append(product.take(0, axis=2).astype(np.float32))
    return [(joined(blocks), 1.0)]


def _bucket_sums(x: Value, bucket: AnyArray, F: int) -> Value:
    """Return sums (n, F) of the columns of x (n, d) that share a bucket, one of F for each.

    By the columns of each bucket, to which a column of zeros is added until all have as many:
    ScatterND loses terms where runtimes share its work between threads.
    """
    sizes = np.bincount(bucket, minlength=F)
    columns = np.full((F, max(1, int(sizes.max()))), len(bucket))
    order = np.argsort(bucket, kind="stable")
    rank = np.arange(len(bucket)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    columns[bucket[order], rank] = order
    padded = xp.concatenate([x, x.take([0]) * 0.0], 1)
    return padded.take(columns).sum(2, keepdims=False)


@planes.register
def _(features: dot_product.RandomMaclaurin, rows: Value, first: int, n: int) -> list[Plane]:
    graph, F = rows.graph, features.block_size
    blocks, scales = [], []
    for block in range(first, first + n):
        draws = features.draw(block, np.arange(features.n_features_in))
        factors = [rows.take(np.zeros(F)) * 0.0 + 1.0]
        for W in draws.levels:  # the other features have lower degrees
            signs = graph.constant(np.ascontiguousarray(W).astype(np.int8))
            behind = np.array([0, 0, 0, F - W.shape[1]])
            factors.append(graph.op("Pad", rows @ signs.astype(np.float32), behind, 1.0))
        blocks.append(multiplied(factors).take(draws.position))
        scales.append(draws.amplitude[draws.position])
    return [(joined(blocks), np.concatenate(scales))]


@prepare.register
def _(features: AdditiveMap, x: Value) -> tuple[Value, Value]:
    logs = xp.log(xp.maximum(x, xp.TINY))
    present = (x > 0.0).astype(np.float32)
    return xp.sqrt(x).astype(np.float32), logs.astype(np.float32) * present


@planes.register
def _(features: AdditiveMap, rows: tuple[Value, Value], first: int, n: int) -> list[Plane]:
    root, log = rows
    F, blocks = features.block_size, []
    for block in range(first, first + n):
        W, where = features.draw(block)
        if features.form == "coordinates":
            amplitude = root.take(where)
            parts = [part * amplitude for part in _cos_sin(log.take(where) * W)]
        elif features.form == "hashed":
            amplitude = root * np.copysign(1.0, W)
            terms = [part * amplitude for part in _cos_sin(log * np.abs(W))]
            parts = [_bucket_sums(part, where, F) for part in terms]
        else:
            parts = _signed(root, log, W)
        blocks.append(parts)
    gain = np.tile(features.gain(), n)
    return [(joined(plane), gain) for plane in zip(*blocks, strict=True)]


def _signed(root: Value, log: Value, W: AnyArray) -> list[Value]:
    terms = []
    for j, w in enumerate(W):
        amplitude = root.take([j]) * np.copysign(1.0, w)
        terms.append([part * amplitude for part in _cos_sin(log.take([j]) * np.abs(w))])
    return [summed(plane) for plane in zip(*terms, strict=True)]


@prepare.register
def _(features: ConvolutionMap, x: Value) -> list[tuple[Value, Any]]:
    x, grid, result = x.astype(np.float32), features.grid, []
    for cell in range(grid.n_cells):
        columns = grid.columns(cell)
        patches = x.take(columns.ravel()).reshape(0, *columns.shape)
        result.append(contrast(patches) if features.contrast else (patches, 1.0))
    return result


@planes.register
def _(
    features: ConvolutionMap, rows: list[tuple[Value, Any]], first: int, n: int
) -> list[Plane]:
    F, size = features.block_size, features.group
    position, parts = [], []
    cells = [features.cells(block) for block in range(first, first + n)]
    filters = [features.filters(block) for block in range(first, first + n)]
    for cell, (patches, weights) in enumerate(rows):  # all filters of a cell in one product
        W = []
        for b in range(n):
            for g in np.flatnonzero(cells[b] == cell):
                used = min(size, F - int(g) * size)
                W.append(filters[b][g][:, :used])
                position.append(b * F + g * size + np.arange(used))
        if W:
            both = _cos_sin(patches @ np.concatenate(W, axis=1))
            means = [part * weights for part in both]
            parts.append([part.mean(1, keepdims=False) for part in means])
    order = np.argsort(np.concatenate(position))
    scale = float(np.sqrt(1.0 / F))
    return [(joined(list(plane)).take(order), scale) for plane in zip(*parts, strict=True)]


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
