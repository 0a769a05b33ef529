"""Exact kernel values of new rows with support rows and themselves, in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kernelgrad import kernels
from kernelgrad.compute.linalg import dense
from kernelgrad.kernels import profiles
from kernelgrad.onnx import numerics as xp
from kernelgrad.onnx.graph import Value, multiplied, summed
from kernelgrad.special_kernels.additive import AdditiveKernel
from kernelgrad.special_kernels.dot_product import InnerProductKernel
from kernelgrad.special_kernels.semigroup import ExponentialSemigroup, ReciprocalSemigroup
from kernelgrad.types import AnyArray
from kernelgrad.validation import CapabilityError

_ROWS = 4096  # support rows that are compared at once


def _log1p(kernel: Any, x: Value) -> Value:
    return xp.log(x * (1.0 / float(kernel.c)) + 1.0)


def _with_bias(kernel: Any, x: Value) -> Value:
    if kernel.bias == 0:
        return x
    return xp.concatenate([x, x.take([0]) * 0.0 + float(kernel.bias)], 1)


def _weighted(kernel: Any, x: Value) -> Value:
    return x if kernel.column_weights is None else x * np.asarray(kernel.column_weights)


def _times(kernel: Any, x: Value) -> Value:
    return x * float(kernel.embedded(np.ones((1, 1)))[0, 0])


def _unit(kernel: Any, x: Value) -> Value:
    x = _with_bias(kernel, x)
    return x / xp.maximum(xp.norm(x), xp.TINY)


# What `embedded` does with rows; a subclass with a method of its own has no entry.
_TIMES = (
    *(cls.embedded for cls in (kernels.Gaussian, kernels.Matern, kernels.Cauchy)),
    *(cls.embedded for cls in (ExponentialSemigroup, ReciprocalSemigroup)),
    *(cls.embedded for cls in (InnerProductKernel, AdditiveKernel)),
)
_EMBEDDED: dict[Any, Callable[[Any, Value], Value]] = {
    **dict.fromkeys(_TIMES, _times),
    kernels.RootLaplacian.embedded: lambda k, x: _weighted(k, x) * k.gamma_value,
    kernels.Hellinger.embedded: lambda k, x: xp.sqrt(x),
    kernels.SkewedChi2.embedded: lambda k, x: xp.sqrt(x * (1.0 / float(k.c)) + 1.0) - 1.0,
    kernels.SkewedIntersection.embedded: lambda k, x: _log1p(k, x) * 0.5,
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


def _finished(kernel: kernels.TiledKernel, t: Value, left: Any, right: Any) -> Value:
    finish = kernel.finish()
    if finish["finish"] == profiles.HALF_SQUARE:
        raise no_form(kernel, "nu is not .5, 1.5 or 2.5, and ONNX has no Bessel functions")
    values: Value = profiles.values(xp, t, left, right, **finish)
    return values


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
            if getattr(type(kernel), "values", None) not in own:
                raise no_form(kernel)
            form = _EMBEDDED.get(getattr(type(kernel), "embedded", None))
            if form is None:
                raise no_form(kernel)
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
        return _finished(kernel, t, self.size, right)

    def _combined(self, values: Iterable[Value]) -> Value:
        if isinstance(self.kernel, kernels.SumKernel):
            pairs = zip(values, self.kernel.terms, strict=True)
            return summed(value * weight for value, (_, weight) in pairs)
        return multiplied(values)

    def diagonal(self) -> Value:
        """Return k(x, x), (n, 1)."""
        kernel = self.kernel
        if self.parts:
            return self._combined(form.diagonal() for form in self.parts)
        if kernel.is_stationary:
            return self.x.take([0]) * 0.0 + 1.0
        if not isinstance(kernel, kernels.TiledKernel):
            raise no_form(kernel, "its values k(x, x) have no form here")
        term = profiles.TERMS[kernel.form_code](xp, self.values, self.values)
        if kernel.form_code in profiles.PRODUCTS:
            t = term.graph.op("ReduceProd", term, np.array([1]))
        else:
            t = term.sum(1)
        return _finished(kernel, t, self.size, self.size)


def chunks_of(n_rows: int) -> list[slice]:
    """Return the support rows of which values are made at once."""
    return [slice(a, a + _ROWS) for a in range(0, n_rows, _ROWS)]


def weighted_sum(values: Value, coef: AnyArray) -> Value:
    """Return values (n, m) times coefficients (m, C), float64."""
    weights = values.graph.constant(np.ascontiguousarray(coef)).astype(values.dtype)
    return (values @ weights).astype(np.float64)
