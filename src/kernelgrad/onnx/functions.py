"""Kernel values of new rows with support rows, scaling, and functions, as ONNX graphs."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kernelgrad import kernels
from kernelgrad.compute.linalg import dense
from kernelgrad.functions import InputScaling, expansions
from kernelgrad.functions.scaling import SCORE_LIMIT
from kernelgrad.kernels import profiles
from kernelgrad.onnx import numerics as xp
from kernelgrad.onnx.graph import Value, multiplied, summed
from kernelgrad.special_kernels.additive import AdditiveKernel
from kernelgrad.special_kernels.dot_product import InnerProductKernel
from kernelgrad.special_kernels.histograms import ExponentialSemigroup, ReciprocalSemigroup
from kernelgrad.types import AnyArray
from kernelgrad.validation import CapabilityError

_ROWS = 4096  # support rows that are compared at once


def _with_bias(kernel: Any, x: Value) -> Value:
    if kernel.bias == 0:
        return x
    return xp.concatenate([x, x.take([0]) * 0.0 + float(kernel.bias)], 1)


def _weighted(kernel: Any, x: Value) -> Value:
    return x if kernel.column_weights is None else x * np.asarray(kernel.column_weights)


def _unit(kernel: Any, x: Value) -> Value:
    x = _with_bias(kernel, x)
    return x / xp.maximum(xp.norm(x), xp.TINY)


# What `embedded` does with rows, which for some kernels is to multiply them; a subclass with a
# method of its own has no entry.
_MULTIPLIED = (
    kernels.Gaussian, kernels.Matern, kernels.Cauchy, ExponentialSemigroup, ReciprocalSemigroup,
    InnerProductKernel, AdditiveKernel,
)  # fmt: skip
_EMBEDDED: dict[Any, Callable[[Any, Value], Value]] = {
    **{cls.embedded: lambda k, x: k.embedded(x) for cls in _MULTIPLIED},
    kernels.Laplacian.embedded: lambda k, x: _weighted(k, x) * k.gamma_value,
    kernels.Hellinger.embedded: lambda k, x: xp.sqrt(x),
    kernels.SkewedChi2.embedded: lambda k, x: xp.sqrt(x * (1.0 / float(k.c)) + 1.0) - 1.0,
    kernels.SkewedIntersection.embedded: lambda k, x: 0.5 * xp.log(x * (1 / float(k.c)) + 1.0),
    kernels.ArcCosine.embedded: _unit,
}


def no_form(kernel: kernels.Kernel, why: str = "") -> CapabilityError:
    why = why or "its values are made by code that ONNX has no operators for"
    return CapabilityError(
        f"The kernel {kernel!r} cannot be exported to ONNX: {why}. Take another kernel, or "
        "serve the file of save."
    )


def _over_columns(form: int, A: Value, B: AnyArray) -> Value:
    """Return the form of all pairs of rows, (rows of A, rows of B)."""
    graph, op = A.graph, A.graph.op
    rows = graph.constant(np.ascontiguousarray(B.T)).astype(A.dtype)
    if form == profiles.DOT:
        return A @ rows
    product = form in profiles.PRODUCTS
    shape = op("Concat", op("Shape", A, start=0, end=1), np.array([len(B)]), axis=0)
    start = op("Expand", graph.constant(np.array(float(product))), shape)
    columns = op("Unsqueeze", op("Transpose", A, perm=[1, 0]), np.array([2]))
    others = op("Unsqueeze", rows, np.array([1]))

    def step(total: Value, a: Value, b: Value) -> Value:
        term: Value = profiles.TERMS[form](xp, a, b)
        return total * term if product else total + term

    return graph.scan(step, start, columns, others)


class ExactForm:
    """New rows x (n, d) as a kernel wants them, in the precision of the support rows."""

    def __init__(self, kernel: kernels.Kernel, x: Value, support: kernels.ExactRows) -> None:
        self.kernel, self.x = kernel, x
        self.parts: list[ExactForm] = []
        if isinstance(kernel, kernels.SumKernel | kernels.ProductKernel):
            pairs = zip(kernel.kernels, support.parts, strict=True)
            self.parts = [ExactForm(part, x, rows) for part, rows in pairs]
        elif not isinstance(kernel, kernels.PrecomputedKernel):
            own = kernels.TiledKernel.values, kernels.Matern.values
            form = _EMBEDDED.get(getattr(type(kernel), "embedded", None))
            if getattr(type(kernel), "values", None) not in own or form is None:
                raise no_form(kernel)
            if kernel.finish()["finish"] == profiles.HALF_SQUARE:
                raise no_form(kernel, "nu is not .5, 1.5 or 2.5: ONNX has no Bessel functions")
            values = form(kernel, x)
            self.values = values.astype(support.values.dtype).astype(np.float64)
            self.size = 0.5 * self.values.squares()
            if isinstance(kernel, kernels.ArcCosine):
                norm = xp.norm(_with_bias(kernel, x))
                powers = [norm * float(kernel.scale)] * kernel.order
                self.size = multiplied([(norm > 0.0).astype(np.float64), *powers])

    def __call__(self, support: kernels.ExactRows) -> Value:
        """Return kernel values (n, support rows)."""
        kernel = self.kernel
        if self.parts:
            return self._combined(
                form(rows) for form, rows in zip(self.parts, support.parts, strict=True)
            )
        if isinstance(kernel, kernels.PrecomputedKernel):
            return self.x.take(support.ids)
        assert isinstance(kernel, kernels.TiledKernel)
        B = dense(support.values)
        t = _over_columns(kernel.form_code, self.values, B)
        right = 0.5 * (B.astype(np.float64) ** 2).sum(axis=1)
        if isinstance(kernel, kernels.ArcCosine) and support.square is not None:
            right = np.sqrt(support.square)
        values: Value = profiles.values(xp, t, self.size, right, **kernel.finish())
        return values

    def _combined(self, values: Iterable[Value]) -> Value:
        if isinstance(self.kernel, kernels.SumKernel):
            pairs = zip(values, self.kernel.terms, strict=True)
            return summed(value * weight for value, (_, weight) in pairs)
        return multiplied(values)


def add_scaling(scaling: InputScaling, x: Value) -> Value:
    if scaling.knots is not None:
        x = _scores(scaling.knots, x)
    if scaling.centre is not None:
        x = x - scaling.centre
    if scaling.scale is not None:
        x = x / scaling.scale
    if scaling.limit is not None:
        u = x / scaling.limit
        x = x / xp.sqrt(1.0 + u * u)
    if scaling.warp is not None:
        x = _warped(scaling.warp, x)
    if scaling.metric is None:
        return x
    return x * scaling.metric if scaling.metric.ndim == 1 else x @ scaling.metric


def _warped(warp: Any, x: Value) -> Value:
    """Return the warp of each column as the sum of what its bins add."""
    edges, values = warp  # (k, d)
    low, width = edges[:-1].T, np.diff(edges, axis=0).T  # (d, k - 1)
    column = x.graph.op("Unsqueeze", x, np.array([2]))
    share = xp.clip((column - low) / np.where(width > 0, width, 1.0), 0.0, 1.0)
    warped: Value = (share * np.diff(values, axis=0).T).sum(2, keepdims=False) + values[0]
    return warped


def _scores(knots: Any, x: Value) -> Value:
    """Return normal scores of places among the knots (k, d).

    Each interval between knots adds the share of it that lies below x, an empty one a half on
    either side of its point.
    """
    low, high = knots[:-1].T, knots[1:].T  # (d, k - 1)
    width = high - low
    empty = width == 0
    column = x.graph.op("Unsqueeze", x, np.array([2]))
    inside = xp.clip((column - low) / np.where(empty, 1.0, width), 0.0, 1.0)
    above = (column > low).astype(np.float64)
    not_below = 1.0 - (column < low).astype(np.float64)
    share = xp.where(empty, 0.5 * (above + not_below), inside)
    quantile = share.sum(2, keepdims=False) * (1.0 / (len(knots) - 1))
    return xp.normal_scores(quantile, SCORE_LIMIT)


def add_function(f: expansions.Expansion, x: Value) -> Value:
    """Return f(x), (n, C) in float64, of rows (n, d) in float64."""
    if isinstance(f, expansions.LinearExpansion):
        return x @ f.coef + f.intercept
    if not isinstance(f, expansions.SupportExpansion):
        raise CapabilityError(
            "Functions of random features cannot be exported to ONNX; take a solver on exact "
            "kernels, or serve the file of save."
        )
    x = add_scaling(f.scaling, x)
    form = ExactForm(f.kernel, x, f.support)
    cuts = [slice(a, a + _ROWS) for a in range(0, f.n_support, _ROWS)]
    parts = [form(f.support.take(rows)) @ f.coef[rows] for rows in cuts]
    return summed(parts or [x.take([0]) * 0.0]) + f.intercept
