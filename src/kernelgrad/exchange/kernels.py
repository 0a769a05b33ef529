"""Exact kernel values of new rows with support rows and themselves, in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kernelgrad._typing import AnyArray
from kernelgrad._validation import CapabilityError
from kernelgrad.compute.linalg import dense
from kernelgrad.exchange.graph import Graph, Value, multiplied, summed
from kernelgrad.exchange.numerics import TINY, angle, clip
from kernelgrad.kernels import (
    ArcCosine,
    Cauchy,
    ConvolutionKernel,
    ExactRows,
    Gaussian,
    Hellinger,
    Kernel,
    Matern,
    PrecomputedKernel,
    ProductKernel,
    SkewedChi2,
    SkewedIntersection,
    SumKernel,
    TiledKernel,
)
from kernelgrad.kernels import _tiles as tiles
from kernelgrad.kernels.additive import AdditiveKernel
from kernelgrad.kernels.dot_product import InnerProductKernel
from kernelgrad.kernels.projection import ProjectionKernel
from kernelgrad.kernels.semigroup import ExponentialSemigroup, ReciprocalSemigroup
from kernelgrad.kernels.skewed import SkewedKernel

_PATCHES = 2**15  # of kept images at once
_ROWS = 4096  # kept rows at once


def _same(kernel: Any, x: Value) -> Value:
    return x


def _log1p(kernel: Any, x: Value) -> Value:
    return x.graph.op("Log", x * (1.0 / float(kernel.c)) + 1.0)


def _root(kernel: Any, x: Value) -> Value:
    return x.graph.op("Sqrt", x)


def _with_bias(kernel: Any, x: Value) -> Value:
    if kernel.bias == 0:
        return x
    last = x.take([0]) * 0.0 + float(kernel.bias)
    return x.graph.op("Concat", x, last, axis=1)


# What the methods of kernels do with rows; a subclass with a method of its own has no entry.
_EMBED: dict[Any, Callable[[Any, Value], Value]] = {
    ProjectionKernel.embed: _same,
    SkewedKernel.embed: _log1p,
    Hellinger.embed: _root,
    ArcCosine.embed: _with_bias,
}


def _times(kernel: Any, x: Value) -> Value:
    return x * float(kernel.embedded(np.ones((1, 1)))[0, 0])


def _unit(kernel: Any, x: Value) -> Value:
    x = _with_bias(kernel, x)
    return x / x.graph.op("Max", _norm(x), TINY)


def _norm(x: Value, axis: int = 1) -> Value:
    # ReduceL2 of float64 is of float32 in onnxruntime 1.15
    return x.graph.op("Sqrt", x.graph.op("ReduceSumSquare", x, np.array([axis])))


_EMBEDDED: dict[Any, Callable[[Any, Value], Value]] = {
    **dict.fromkeys(
        (
            Gaussian.embedded, Matern.embedded, Cauchy.embedded, InnerProductKernel.embedded,
            ExponentialSemigroup.embedded, ReciprocalSemigroup.embedded,
            AdditiveKernel.embedded,
        ),
        _times,
    ),
    Hellinger.embedded: _root,
    SkewedChi2.embedded: lambda k, x: _root(k, x * (1.0 / float(k.c)) + 1.0) - 1.0,
    SkewedIntersection.embedded: lambda k, x: _log1p(k, x) * 0.5,
    ArcCosine.embedded: _unit,
}  # fmt: skip


def embed(kernel: Any, x: Value) -> Value:
    """Return the rows whose projections are taken."""
    embedded: Value = _found(_EMBED, kernel, "embed")(kernel, x)
    return embedded


def _found(known: dict[Any, Any], kernel: Kernel, method: str) -> Any:
    found = known.get(getattr(type(kernel), method, None))
    if found is None:
        raise no_form(kernel)
    return found


def no_form(kernel: Kernel, why: str = "") -> CapabilityError:
    """Return the error for a kernel that has no form in ONNX."""
    why = why or "its values are made by code that ONNX has no operators for"
    return CapabilityError(
        f"The kernel {kernel!r} cannot be exported to ONNX: {why}. Take another kernel, or "
        "serve the file of save."
    )


# Forms over columns, see `kernelgrad.kernels._tiles`


def _entropy(x: Value) -> Value:
    return x * x.graph.op("Log", x.graph.op("Max", x, TINY))


def _squared(u: Value) -> Value:
    return u * u


# What a column adds, or multiplies by, for entries a and b
_TERMS: dict[int, Callable[[Value, Value], Value]] = {
    tiles.DOT: lambda a, b: a * b,
    tiles.CHI2: lambda a, b: 2.0 * a * b / a.graph.op("Max", a + b, TINY),
    tiles.LEAST: lambda a, b: a.graph.op("Min", a, b),
    tiles.SHANNON: lambda a, b: (
        (_entropy(a + b) - _entropy(a) - _entropy(b)) * float(0.5 / np.log(2.0))
    ),
    tiles.ABSOLUTE: lambda a, b: a.graph.op("Abs", a - b),
    tiles.ROOTS: lambda a, b: a.graph.op("Sqrt", a + b),
    tiles.SUMS: lambda a, b: 1.0 + (a + b),
    tiles.LORENTZ: lambda a, b: 1.0 + _squared(a - b),
    tiles.COSH: lambda a, b: 1.0 + _squared(a - b) / (2.0 * (1.0 + a) * (1.0 + b)),
}


def _over_columns(form: int, A: Value, B: AnyArray) -> Value:
    """Return the form of all pairs of rows, (rows of A, rows of B)."""
    graph, op = A.graph, A.graph.op
    kept = graph.constant(np.ascontiguousarray(B.T)).astype(A.dtype)
    if form == tiles.DOT:
        return A @ kept
    product = form >= tiles.LORENTZ
    shape = op("Concat", op("Shape", A, start=0, end=1), np.array([len(B)]), axis=0)
    start = op("Expand", graph.constant(np.array(float(product))), shape)
    columns = op("Unsqueeze", op("Transpose", A, perm=[1, 0]), np.array([2]))
    others = op("Unsqueeze", kept, np.array([1]))

    def step(total: Value, a: Value, b: Value) -> Value:
        term = _TERMS[form](a, b)
        return total * term if product else total + term

    return graph.scan(step, start, columns, others)


def _finish(kernel: TiledKernel, t: Value, left: Any, right: Any) -> Value:
    """Return kernel values of what was accumulated; left (n, 1) and right (m,) are squares."""
    op, told = t.graph.op, kernel.finish()
    finish, coef = told["finish"], told.get("coef", ())
    if finish in (tiles.EXP, tiles.EXP_MINUS):
        return op("Exp", t if finish == tiles.EXP else -t)
    if finish == tiles.INVERSE:
        return 1.0 / t
    if finish == tiles.POWER:
        base = t + float(coef[0])
        return multiplied([base] * int(told["degree"]))
    if finish == tiles.POLE:
        return 1.0 / (1.0 - t)
    if finish == tiles.SERIES:
        value = t * 0.0 + float(coef[-1])
        for c in coef[-2::-1]:
            value = value * t + float(c)
        return value
    if finish in (tiles.ARC0, tiles.ARC1, tiles.ARC2):
        c = clip(t, -1.0, 1.0)
        rest = angle(c)
        J = rest
        if finish != tiles.ARC0:
            sine = op("Sqrt", (1.0 - c) * (1.0 + c))
            J = sine + rest * c
            if finish == tiles.ARC2:
                J = 3.0 * sine * c + rest * (1.0 + 2.0 * c * c)
        scaled: Value = J * left * right * (1.0 / np.pi)
        return scaled
    if finish < tiles.HALF_SQUARE:
        return t
    u = op("Max", 0.5 * left + 0.5 * right - t, 0.0)
    if finish == tiles.GAUSS:
        return op("Exp", -u)
    if finish == tiles.HALF_SQUARE:
        raise no_form(kernel, "nu is not .5, 1.5 or 2.5, and ONNX has no Bessel functions")
    s = op("Sqrt", u)
    value = op("Exp", -s)
    if finish == tiles.MATERN1:
        return value
    factor = 1.0 + s
    return value * (factor if finish == tiles.MATERN3 else factor + u * (1.0 / 3.0))


class ExactForm:
    """New rows as a kernel wants them, prepared once for all kept rows.

    Parameters
    ----------
    kernel : Kernel
    x : Value
        Rows (n, d) in float64, scaled.
    kept : ExactRows
        Of which all kept rows are a part: new rows get their precision.
    """

    def __init__(self, kernel: Kernel, x: Value, kept: ExactRows) -> None:
        self.kernel, self.x = kernel, x
        self.parts: list[ExactForm] = []
        self.cells: list[tuple[Value, Any, Value]] = []
        if isinstance(kernel, SumKernel | ProductKernel):
            pairs = zip(kernel.kernels, kept.parts, strict=True)
            self.parts = [ExactForm(part, x, rows) for part, rows in pairs]
        elif isinstance(kernel, ConvolutionKernel):
            self._set_cells(kernel)
        elif not isinstance(kernel, PrecomputedKernel):
            if getattr(type(kernel), "values", None) not in (TiledKernel.values, Matern.values):
                raise no_form(kernel)
            values = _found(_EMBEDDED, kernel, "embedded")(kernel, x)
            self.values = values.astype(kept.values.dtype).astype(np.float64)
            self.square = self._squares(self.values)

    def _squares(self, values: Value) -> Any:
        kernel = self.kernel
        if not isinstance(kernel, ArcCosine):
            return values.graph.op("ReduceSumSquare", values, np.array([1]))
        norm = _norm(_with_bias(kernel, self.x))
        size = (norm > 0.0).astype(np.float64)
        for _ in range(kernel.order):
            size = size * (norm * float(kernel.scale))
        return size

    def _set_cells(self, kernel: ConvolutionKernel) -> None:
        op, grid = self.x.graph.op, kernel.grid()
        for cell in range(grid.n_cells):
            columns = grid.columns(cell)
            patches = self.x.take(columns.ravel()).reshape(0, *columns.shape)
            weights: Any = 1.0
            if kernel.normalize:
                patches, weights = contrast(patches)
            patches = patches * float(np.sqrt(2 * kernel.gamma_value))
            self.cells.append((patches, weights, op("ReduceSumSquare", patches, np.array([2]))))

    def __call__(self, kept: ExactRows) -> Value:
        """Return kernel values (n, kept rows)."""
        kernel = self.kernel
        if self.parts:
            return self._combined(
                form(rows) for form, rows in zip(self.parts, kept.parts, strict=True)
            )
        if isinstance(kernel, PrecomputedKernel):
            return self.x.take(kept.ids)
        if isinstance(kernel, ConvolutionKernel):
            return self._images(kernel, kept)
        assert isinstance(kernel, TiledKernel)
        B = dense(kept.values)
        t = _over_columns(kernel.form_code, self.values, B)
        right = kept.square
        if right is not None and isinstance(kernel, ArcCosine):
            right = np.sqrt(right)
        elif right is not None:
            right = (B.astype(np.float64) ** 2).sum(axis=1)
        return _finish(kernel, t, self.square, right)

    def _combined(self, values: Iterable[Value]) -> Value:
        if isinstance(self.kernel, SumKernel):
            pairs = zip(values, self.kernel.terms, strict=True)
            return summed(value * weight for value, (_, weight) in pairs)
        return multiplied(values)

    def _images(self, kernel: ConvolutionKernel, kept: ExactRows) -> Value:
        op, grid = self.x.graph.op, kernel.grid()
        sums = []
        for cell, (patches, weights, squares) in enumerate(self.cells):
            P, v = kernel._compared(kept.values[:, grid.columns(cell)].astype(np.float64))
            m, n_patches, q = P.shape
            P = P.reshape(-1, q) * float(np.sqrt(2 * kernel.gamma_value))
            P = P.astype(kept.values.dtype).astype(np.float64)
            u = 0.5 * squares + 0.5 * (P**2).sum(axis=1) - patches @ np.ascontiguousarray(P.T)
            E = op("Exp", -op("Max", u, 0.0)) * v.ravel()
            E = E.reshape(0, 0, m, n_patches).sum(3, keepdims=False)
            sums.append((E * weights).sum(1, keepdims=False) * (1.0 / n_patches**2))
        return summed(sums) * (1.0 / grid.n_cells)

    def diagonal(self) -> Value:
        """Return k(x, x), (n, 1)."""
        kernel = self.kernel
        if self.parts:
            return self._combined(form.diagonal() for form in self.parts)
        if kernel.is_stationary:
            return self.x.take([0]) * 0.0 + 1.0
        if not isinstance(kernel, TiledKernel) or isinstance(kernel, ConvolutionKernel):
            raise no_form(kernel, "its values k(x, x) have no form here")
        term = _TERMS[kernel.form_code](self.values, self.values)
        if kernel.form_code >= tiles.LORENTZ:
            t = term.graph.op("ReduceProd", term, np.array([1]))
        else:
            t = term.sum(1)
        return _finish(kernel, t, self.square, self.square)


def contrast(patches: Value) -> tuple[Value, Value]:
    """Return patches (n, P, q) less their means as directions, and their norms (n, P, 1)."""
    op = patches.graph.op
    patches = patches - op("ReduceMean", patches, np.array([2]))
    norms = _norm(patches, 2)
    return patches / op("Max", norms, 1e-30), norms


def chunks_of(kernel: Kernel, n_rows: int) -> list[slice]:
    """Return the kept rows of which values are made at once."""
    size = _ROWS
    for part in getattr(kernel, "kernels", [kernel]):
        if isinstance(part, ConvolutionKernel):
            size = min(size, max(1, _PATCHES // int(np.diff(part.grid().starts).max())))
    return [slice(a, a + size) for a in range(0, n_rows, size)]


def weighted_sum(graph: Graph, values: Value, coef: AnyArray) -> Value:
    """Return values (n, m) times coefficients (m, C), float64."""
    return (values @ graph.constant(np.ascontiguousarray(coef)).astype(values.dtype)).astype(
        np.float64
    )
