"""The contract of a kernel: exact values, and a stream of random features."""

from __future__ import annotations

import dataclasses
import functools
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from kernelgrad.compute import rng
from kernelgrad.compute.linalg import rows_bytes
from kernelgrad.compute.threads import over_tiles, single_threaded_blas
from kernelgrad.features.base import FeatureMap, ProductMap, SumMap, by_density, float64_rows
from kernelgrad.features.projections import Projection, SummedFrequenciesMap
from kernelgrad.kernels import profiles, tiles
from kernelgrad.params import Part, anything, parameters
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray, Matrix
from kernelgrad.validation import CapabilityError, DataError, check_real

TAG_PART = 13  # tag of the random numbers that give parts their seeds
_DIAGONAL_ROWS = 64  # rows of a block of which only the diagonal is needed
_TASK_ROWS = 128  # rows of a kernel matrix computed by one task


@dataclass(frozen=True)
class ExactRows:
    """Rows prepared for the exact values of a kernel by :meth:`Kernel.exact_rows`."""

    values: Matrix  # embedded rows, float32 or float64; without columns if there are parts
    # squared norms or sizes (n,) for kernels that are functions of distances or angles
    square: Float64Array | None = None
    ids: IntArray | None = None  # columns of these rows in a precomputed matrix
    parts: tuple[ExactRows, ...] = ()  # the rows prepared for each part of a sum or product

    @property
    def n_rows(self) -> int:
        return int(self.values.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        others = (self.square, self.ids, *self.parts)
        return rows_bytes(self.values) + sum([int(a.nbytes) for a in others if a is not None])

    def take(self, index: IntArray | slice) -> ExactRows:
        """Return some of the rows; a slice of dense rows is a view."""
        square = None if self.square is None else self.square[index]
        ids = None if self.ids is None else self.ids[index]
        parts = tuple(part.take(index) for part in self.parts)
        values = self.values[index]
        if sp.issparse(self.values):
            values = sp.csr_matrix(values)  # scipy returns an array if there are no rows
        elif not isinstance(index, slice):
            values = np.asfortranarray(values)
        return ExactRows(values, square, ids, parts)

    def in_columns(self) -> ExactRows:
        """Return the rows with dense values in Fortran order; the order tells in last bits."""
        values = self.values if sp.issparse(self.values) else np.asfortranarray(self.values)
        return replace(self, values=values, parts=tuple(p.in_columns() for p in self.parts))


@parameters
class Kernel(Part, ABC):
    """A positive semi-definite kernel: exact values and random features.

    A subclass defines ``name``, :meth:`pairwise` and :meth:`diag`; :meth:`feature_map`, if it
    has random features; and :meth:`check_domain`, if not all rows are allowed. Its constructor
    arguments are its parameters. They are declared as fields (see `kernelgrad.params`) or
    checked in :meth:`check`. :meth:`resolve` replaces rules such as ``gamma="median"`` by
    numbers.
    """

    name: ClassVar[str]
    has_random_features: ClassVar[bool] = True
    is_stationary: ClassVar[bool] = False
    is_of_histograms: ClassVar[bool] = False  # defined for x >= 0
    is_costly: ClassVar[bool] = False  # an exact value costs much more than random features
    # rules that the parameter gamma accepts, for kernels with a gamma
    gamma_rules: ClassVar[tuple[str, ...]] = ("median", "scale")

    @abstractmethod
    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        """Return the exact matrix ``k(X_i, Z_j)``, shape (n, m), float64."""

    @abstractmethod
    def diag(self, X: Matrix) -> Float64Array:
        """Return ``k(X_i, X_i)``, shape (n,)."""

    def exact_rows(self, X: Matrix, *, wide: bool = False) -> ExactRows:
        """Return rows prepared for :meth:`values`; with `wide` they stay float64."""
        return ExactRows(float64_rows(X))

    def values(
        self, A: ExactRows, B: ExactRows, dtype: Any = np.float32, *,
        out: AnyArray | None = None, compiled: bool = False,
    ) -> AnyArray:  # fmt: skip
        """Return ``k(A_i, B_j)``, shape (n_A, n_B); called within a parallel task.

        `dtype` is the precision of the values: with float64, rows that were prepared in float32
        are taken as they were rounded. The values may be written to `out`, float32 or float64.
        With `compiled` loops may be compiled to make them faster.
        """
        return self.pairwise(A.values, B.values).astype(dtype, copy=False)

    def widened(self, rows: ExactRows) -> ExactRows:
        """Return prepared rows, as they were rounded, ready for float64 values."""
        return rows

    def exact_diag(self, rows: ExactRows) -> Float64Array:
        """Return ``k(x_i, x_i)`` of prepared rows, shape (n,), from :meth:`values`."""
        return diagonal(rows.n_rows, lambda i: self.values(rows.take(i), rows.take(i)))

    def needs_wide(self, X: Matrix) -> bool:
        """Return whether rows like `X` in float32 would lose significant differences."""
        return False

    def check_domain(self, X: Matrix) -> None:
        """Raise DataError, naming the kernel and its domain, if a row is outside the domain."""
        if self.is_of_histograms:
            check_least(self, X)

    def __call__(self, X: FloatArray, Z: FloatArray | None = None) -> Float64Array:
        """Return the exact kernel matrix of the rows of `X` and `Z` (default `X`)."""
        self.check()
        for A in (X,) if Z is None else (X, Z):
            self.check_domain(A)
        return self.pairwise(X, X if Z is None else Z)

    def __add__(self, other: Kernel) -> Kernel:
        """Return the sum of two kernels; nested sums are flattened."""
        if not isinstance(other, Kernel):
            return NotImplemented
        return _sum([*_terms(self), *_terms(other)])

    def __mul__(self, other: Kernel | float) -> Kernel:
        """Return the product with a kernel, or with a number > 0.

        Nested products are flattened and constant factors are collected.
        """
        if isinstance(other, numbers.Real):
            return _sum([(kernel, weight * float(other)) for kernel, weight in _terms(self)])
        if not isinstance(other, Kernel):
            return NotImplemented
        factors: list[Kernel] = []
        constant = 1.0
        for kernel in (self, other):
            terms = _terms(kernel)
            if len(terms) == 1:
                kernel, weight = terms[0]
                constant *= weight
            factors += kernel.kernels if isinstance(kernel, ProductKernel) else [kernel]
        product = ProductKernel(factors)
        product.check()
        return product if constant == 1.0 else _sum([(product, constant)])

    def __rmul__(self, other: float) -> Kernel:
        return self * other

    def resolve(self, X: Matrix, seed: int) -> Self:
        """Return a copy whose rules are replaced by numbers computed from sample rows `X`."""
        return self

    def _number(self, name: str) -> float:
        """Return a parameter as a number; raise ValueError if it is still a rule."""
        value = getattr(self, name)
        if isinstance(value, str):
            raise ValueError(
                f"{name}={value!r} is a rule; call resolve(X, seed) first or give a number."
            )
        return float(value)

    @property
    def gamma_value(self) -> float:
        """The number gamma; raises ValueError if it is still a rule."""
        return self._number("gamma")

    def _replaced(self, **params: Any) -> Self:
        """Return a copy with other parameters."""
        copy: Self = clone(self).set_params(**params)
        return copy

    def _with_gamma(self, gamma: float) -> Self:
        """Return a copy with gamma from its rule; raise DataError if it is not usable."""
        if not np.isfinite(gamma) or gamma <= 0:
            rule = getattr(self, "gamma", None)
            raise DataError(
                f"gamma={rule!r} gives {gamma!r} on these data; scale the inputs or give "
                "gamma as a number."
            )
        return self._replaced(gamma=float(gamma), bandwidth_factor=1.0)

    def frequencies(self) -> Projection | None:
        """Return the law of the frequencies of a stationary kernel; None for other kernels.

        The frequencies of a product are the sums of those of its factors.
        """
        return None

    @classmethod
    def restored(cls, **params: Any) -> Kernel:
        """Return the kernel with the parameters of a model file, maybe of an old one."""
        return cls(**params)

    def per_feature(self) -> Kernel:
        """Return a kernel of equal value, each of whose features is unbiased by itself."""
        return self

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> FeatureMap:
        """Return the stream of random features of this kernel, which must be resolved."""
        raise NotImplementedError(f"The {self.name} kernel has no random features.")


class TiledKernel(Kernel):
    """Base class of the kernels that `kernelgrad.kernels.tiles` computes.

    Subclasses give `form_code`, :meth:`embedded` and, unless the kernel is the sum over
    columns itself, `finish_code`.
    """

    form_code: ClassVar[int] = profiles.DOT
    finish_code: ClassVar[int] = profiles.RAW

    @abstractmethod
    def embedded(self, X: Matrix) -> Matrix:
        """Return the rows whose columns the form compares, dense or CSR."""

    def finish(self) -> dict[str, Any]:
        """Return the function of the sum over columns, as arguments of `tiles.block`."""
        return {"finish": self.finish_code}

    def tile_rows(self, X: Matrix, *, wide: bool) -> ExactRows:
        """Return embedded rows, with squared norms if the kernel needs distances."""
        values = exact_values(self.embedded(X), wide=wide)
        squares = self.finish_code >= profiles.HALF_SQUARE
        return ExactRows(values, tiles.squares(values) if squares else None)

    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        A, B = self.tile_rows(X, wide=True), self.tile_rows(Z, wide=True)
        K = np.empty((A.n_rows, B.n_rows))

        def task(a: int, z: int) -> None:
            K[a:z] = self.values(A.take(slice(a, z)), B, np.float64)

        with single_threaded_blas():
            over_tiles(len(K), _TASK_ROWS, task)
        return K

    def exact_rows(self, X: Matrix, *, wide: bool = False) -> ExactRows:
        return self.tile_rows(X, wide=wide)

    def values(
        self, A: ExactRows, B: ExactRows, dtype: Any = np.float32, *,
        out: AnyArray | None = None, compiled: bool = False,
    ) -> AnyArray:  # fmt: skip
        if dtype == np.float64:
            A, B = self.widened(A), self.widened(B)
        how = self.finish() | {"dtype": dtype, "out": out, "compiled": compiled}
        how |= {"left": A.square, "right": B.square}
        return tiles.block(A.values, B.values, self.form_code, **how)

    def widened(self, rows: ExactRows) -> ExactRows:
        if rows.values.dtype == np.float64:
            return rows
        values, square = rows.values.astype(np.float64), rows.square
        if self.finish_code >= profiles.HALF_SQUARE:
            square = tiles.squares(values)
        return replace(rows, values=values, square=square)


def exact_values(X: Matrix, *, wide: bool) -> Matrix:
    """Return a copy of rows in the layout that `kernelgrad.kernels.tiles` needs.

    The dtype is float32, or float64 with `wide`. Rows are CSR without duplicate entries where
    :func:`float32_rows` returns CSR, else dense in Fortran order, which is fastest to tile.
    """
    dtype = np.float64 if wide else np.float32
    X = by_density(X, dtype)
    if not sp.issparse(X):
        return np.array(X, dtype, order="F")
    X.sum_duplicates()
    return X


def diagonal(n: int, block: Callable[[slice], AnyArray]) -> Float64Array:
    """Return the diagonal (n,) of a matrix, from its square blocks of a few rows."""
    k = np.empty(n)
    for a in range(0, n, _DIAGONAL_ROWS):
        i = slice(a, a + _DIAGONAL_ROWS)
        k[i] = np.diagonal(block(i))
    return k


def check_least(kernel: Kernel, X: Matrix, low: float = 0.0, *, strict: bool = False) -> None:
    """Raise DataError if an entry of `X` is below `low` (at or below it if `strict`)."""
    values = X.data if sp.issparse(X) else X
    if not np.size(values):
        return
    least = float(np.min(values))
    if least < low or (strict and least == low):
        sign = ">" if strict else ">="
        raise DataError(
            f"The {kernel.name} kernel is defined for x {sign} {low:g}, but the rows hold "
            f"{least:g}; shift or clip the columns, or choose another kernel."
        )


# Sums and products. The features of a product are elementwise products of the parts' features.
# They are unbiased if each single feature of a part, summed over planes, is an independent
# estimate of k / F. One part may be unbiased only as a block or a sequence of blocks
# (FeatureMap.per_feature_unbiased is False); per_feature replaces any further such parts.


@parameters
class CompositeKernel(Kernel):
    """Base class of kernels composed of other kernels.

    Besides its own parameters it has the parts as ``k0``, ``k1``, ... and their parameters as
    ``k0__gamma`` etc., for ``set_params`` and grid searches.
    """

    kernels: Sequence[Kernel] = dataclasses.field(kw_only=False)

    @property
    def is_stationary(self) -> bool:  # type: ignore[override]
        return all(kernel.is_stationary for kernel in self.kernels)

    @property
    def has_random_features(self) -> bool:  # type: ignore[override]
        return all(kernel.has_random_features for kernel in self.kernels)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        params: dict[str, Any] = super().get_params(deep=False)
        if deep and isinstance(self.kernels, list | tuple):
            for i, kernel in enumerate(self.kernels):
                params[f"k{i}"] = kernel
                if isinstance(kernel, Kernel):
                    theirs = kernel.get_params().items()
                    params.update((f"k{i}__{name}", value) for name, value in theirs)
        return params

    def set_params(self, **params: Any) -> Self:
        if "kernels" in params:
            self.kernels = params.pop("kernels")
        for i in range(len(self.kernels)):
            if f"k{i}" in params:
                part = params.pop(f"k{i}")
                self.kernels = [*self.kernels[:i], part, *self.kernels[i + 1 :]]
        changed: Self = super().set_params(**params)
        return changed

    def check(self) -> None:
        if not isinstance(self.kernels, list | tuple):
            raise TypeError(f"kernels must be a list of kernels, got {self.kernels!r}.")
        if not self.kernels:
            raise ValueError("kernels must hold at least one kernel, got an empty list.")
        for kernel in self.kernels:
            if not isinstance(kernel, Kernel):
                raise TypeError(
                    f"kernels must hold kernels such as Gaussian(0.5), got {kernel!r}."
                )
            if kernel.name == "precomputed":
                raise ValueError(
                    "kernels cannot contain a precomputed one; combine the matrices instead."
                )
            kernel.check()

    @abstractmethod
    def _combined(self, values: Iterable[AnyArray]) -> AnyArray:
        """Return the values of this kernel from the values of the parts."""

    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        return self._combined(kernel.pairwise(X, Z) for kernel in self.kernels)

    def diag(self, X: Matrix) -> Float64Array:
        return self._combined(kernel.diag(X) for kernel in self.kernels)

    def values(
        self, A: ExactRows, B: ExactRows, dtype: Any = np.float32, *,
        out: AnyArray | None = None, compiled: bool = False,
    ) -> AnyArray:  # fmt: skip
        triples = zip(self.kernels, A.parts, B.parts, strict=True)
        return self._combined(
            kernel.values(a, b, dtype, compiled=compiled) for kernel, a, b in triples
        )

    def check_domain(self, X: Matrix) -> None:
        for kernel in self.kernels:
            kernel.check_domain(X)

    def exact_rows(self, X: Matrix, *, wide: bool = False) -> ExactRows:
        parts = tuple(kernel.exact_rows(X, wide=wide) for kernel in self.kernels)
        return ExactRows(np.empty((X.shape[0], 0), np.float32), parts=parts)

    def widened(self, rows: ExactRows) -> ExactRows:
        pairs = zip(self.kernels, rows.parts, strict=True)
        return replace(rows, parts=tuple(kernel.widened(part) for kernel, part in pairs))

    def needs_wide(self, X: Matrix) -> bool:
        return any(kernel.needs_wide(X) for kernel in self.kernels)

    def resolve(self, X: Matrix, seed: int) -> Self:
        self.check()
        params = self.get_params(deep=False)
        params["kernels"] = [kernel.resolve(X, seed) for kernel in self.kernels]
        return type(self)(**params)


@parameters
class SumKernel(CompositeKernel):
    r"""Weighted sum of kernels, ``k(x, z) = sum_i w_i k_i(x, z)``.

    If the weights sum to 1 it is a convex combination of kernels. Its features are
    ``[sqrt(w_1) phi_1, sqrt(w_2) phi_2, ...]`` (Dai et al. 2014, Section 2). The expressions
    ``k1 + k2`` and ``0.3 * k1`` return such sums; nested sums are flattened.

    Parameters
    ----------
    kernels : list of Kernel
        The parts. Each finds its own bandwidth, so
        ``[Gaussian(bandwidth_factor=0.5), Gaussian(bandwidth_factor=2)]`` is useful.
    weights : list of float > 0 or None, default=None
        One weight per part; None weighs each part by 1.

    Examples
    --------
    >>> from kernelgrad.kernels import Gaussian, Laplacian
    >>> 0.7 * Gaussian(0.5) + 0.3 * Laplacian(0.1)
    SumKernel(kernels=[Gaussian(gamma=0.5), Laplacian(gamma=0.1)],
              weights=[0.7, 0.3])
    """

    name: ClassVar[str] = "sum"

    weights: Sequence[float] | None = anything(default=None, kw_only=False)

    def check(self) -> None:
        super().check()
        if self.weights is None:
            return
        if not isinstance(self.weights, list | tuple | np.ndarray):
            raise TypeError(f"weights must be a list of numbers, got {self.weights!r}.")
        if len(self.weights) != len(self.kernels):
            raise ValueError(
                f"weights must hold one number for each of {len(self.kernels)} kernels, got "
                f"{self.weights!r}."
            )
        for i, weight in enumerate(self.weights):
            check_real(weight, f"weights[{i}]", low=0, low_open=True)

    @property
    def terms(self) -> list[tuple[Kernel, float]]:
        """Parts with their weights."""
        weights = [1.0] * len(self.kernels) if self.weights is None else self.weights
        return [(k, float(w)) for k, w in zip(self.kernels, weights, strict=True)]

    def per_feature(self) -> SumKernel:
        return SumKernel([kernel.per_feature() for kernel in self.kernels], self.weights)

    def _combined(self, values: Iterable[AnyArray]) -> AnyArray:
        pairs = zip(values, self.terms, strict=True)
        return functools.reduce(np.add, (K.dtype.type(w) * K for K, (_, w) in pairs))

    def values(
        self, A: ExactRows, B: ExactRows, dtype: Any = np.float32, *,
        out: AnyArray | None = None, compiled: bool = False,
    ) -> AnyArray:  # fmt: skip
        total = np.empty((A.n_rows, B.n_rows), dtype) if out is None else out
        part = np.empty(total.shape, total.dtype)  # each part is added while it is in cache
        for i, (kernel, weight) in enumerate(self.terms):
            own = total if i == 0 else part
            K = kernel.values(A.parts[i], B.parts[i], dtype, out=own, compiled=compiled)
            np.multiply(K, own.dtype.type(weight), out=own)  # not all kernels write to `out`
            if i:
                total += part
        return total

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> SumMap:
        pairs = zip(self.kernels, _part_seeds(seed, len(self.kernels)), strict=True)
        parts = [kernel.feature_map(n_features_in, s, block_size) for kernel, s in pairs]
        weights = [weight for _, weight in self.terms]
        return SumMap(parts, weights, n_features_in, seed, block_size)


class ProductKernel(CompositeKernel):
    r"""Product of kernels, ``k(x, z) = prod_i k_i(x, z)``.

    The product of stationary kernels is stationary, and its frequencies are the sums
    ``w_1 + w_2 + ...`` of independent frequencies of the parts. Other features
    are multiplied: if part i has ``P_i`` planes, a block has ``P_1 P_2 ...`` planes. The
    expression ``k1 * k2`` returns such a product; nested products are flattened.

    Parameters
    ----------
    kernels : list of Kernel
        The parts.

    Examples
    --------
    >>> from kernelgrad.kernels import Gaussian, Laplacian
    >>> Gaussian(0.5) * Laplacian(0.1)
    ProductKernel(kernels=[Gaussian(gamma=0.5), Laplacian(gamma=0.1)])
    """

    name: ClassVar[str] = "product"

    def per_feature(self) -> ProductKernel:
        return ProductKernel([kernel.per_feature() for kernel in self.kernels])

    def _combined(self, values: Iterable[AnyArray]) -> AnyArray:
        return functools.reduce(np.multiply, values)

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> FeatureMap:
        """Return products of the parts' features; stationary parts are merged into one."""
        size = n_features_in, seed, block_size
        seeds = _part_seeds(seed, len(self.kernels))
        laws = [kernel.frequencies() for kernel in self.kernels]
        summed = [(law, s) for law, s in zip(laws, seeds, strict=True) if law is not None]
        merged, restricted = len(summed) > 1, False
        parts: list[FeatureMap] = [SummedFrequenciesMap(summed, *size)] if merged else []
        for kernel, law, s in zip(self.kernels, laws, seeds, strict=True):
            if merged and law is not None:
                continue
            part = kernel.feature_map(n_features_in, s, block_size)
            if restricted and not part.per_feature_unbiased:
                part = kernel.per_feature().feature_map(n_features_in, s, block_size)
                if not part.per_feature_unbiased:
                    raise CapabilityError(
                        "A product can have only one part whose features are unbiased only as "
                        f"a whole, and {kernel!r} is a second one; choose another form of its "
                        "features, or a sum."
                    )
            restricted = restricted or not part.per_feature_unbiased
            parts.append(part)
        return parts[0] if len(parts) == 1 else ProductMap(parts, *size)


def _part_seeds(seed: int, n_parts: int) -> list[int]:
    """Return one seed per part, a function of (seed, number of the part)."""
    low, high = rng.words(seed, 0, n_parts, TAG_PART)[:2].astype(object)
    return [int(seed) for seed in low + (high << 32)]


def _terms(kernel: Kernel) -> list[tuple[Kernel, float]]:
    if not isinstance(kernel, SumKernel):
        return [(kernel, 1.0)]
    kernel.check()
    return kernel.terms


def _sum(terms: Sequence[tuple[Kernel, float]]) -> SumKernel:
    weights = [weight for _, weight in terms]
    plain = all(weight == 1.0 for weight in weights)
    result = SumKernel([kernel for kernel, _ in terms], None if plain else weights)
    result.check()
    return result
