r"""Sums and products of kernels and their random features.

A sum's features are the concatenation of its parts' features, as Dai et al. (2014), end of
Section 2, describe for multiple kernels. A product's are products of its parts' features;
stationary parts are one, whose frequencies add up.

A product multiplies feature by feature. That is unbiased if each single feature of its parts,
summed over planes, averages to ``k / F`` by draws of its own; one part may do so only as a
whole block, or a sequence of blocks (``FeatureMap.per_feature_unbiased`` is False). Of the
others :meth:`Kernel.per_feature` gives a kernel of the same value without that restriction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from kernelgrad._typing import Float32Array, Float64Array, IntArray, Matrix
from kernelgrad._validation import CapabilityError, check_real
from kernelgrad.compute import rng
from kernelgrad.features import _fused as projections
from kernelgrad.features.base import FeatureMap
from kernelgrad.features.projections import ProjectionMap
from kernelgrad.kernels.base import ExactRows, Kernel
from kernelgrad.kernels.stationary import StationaryKernel

TAG_PART = 13


class CompositeKernel(Kernel):
    """Base of the kernels made of other kernels.

    Next to its own parameters, ``k0``, ``k1``, ... are the parts and ``k0__gamma`` a parameter
    of the first, for ``set_params`` and grid searches.
    """

    kernels: Sequence[Kernel]

    @property
    def is_stationary(self) -> bool:  # type: ignore[override]
        """Whether all parts are, so that inputs may be centred."""
        return all(kernel.is_stationary for kernel in self.kernels)

    @property
    def has_random_features(self) -> bool:  # type: ignore[override]
        """Whether all parts have."""
        return all(kernel.has_random_features for kernel in self.kernels)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with `deep` also the parts and theirs."""
        params: dict[str, Any] = super().get_params(deep=False)
        if deep and isinstance(self.kernels, list | tuple):
            for i, kernel in enumerate(self.kernels):
                params[f"k{i}"] = kernel
                if isinstance(kernel, Kernel):
                    theirs = kernel.get_params().items()
                    params.update((f"k{i}__{name}", value) for name, value in theirs)
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters of this kernel, parts, or parameters of parts."""
        if "kernels" in params:
            self.kernels = params.pop("kernels")
        for i in range(len(self.kernels)):
            if f"k{i}" in params:
                part = params.pop(f"k{i}")
                self.kernels = [*self.kernels[:i], part, *self.kernels[i + 1 :]]
        changed: Self = super().set_params(**params)
        return changed

    def check(self) -> None:
        """Raise unless there are parts, all of them kernels with parameters in their domain."""
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
                    "kernels cannot hold a precomputed one; combine the matrices instead."
                )
            kernel.check()

    def check_domain(self, X: Matrix) -> None:
        """Raise DataError if a row is outside of a part's domain."""
        for kernel in self.kernels:
            kernel.check_domain(X)

    def exact_rows(self, X: Matrix, *, wide: bool = False) -> ExactRows:
        """Return the rows of every part."""
        parts = tuple(kernel.exact_rows(X, wide=wide) for kernel in self.kernels)
        return ExactRows(np.empty((X.shape[0], 0), np.float32), parts=parts)

    def needs_wide(self, X: Matrix) -> bool:
        """Return whether a part does."""
        return any(kernel.needs_wide(X) for kernel in self.kernels)

    def resolve(self, X: Matrix, seed: int) -> Self:
        """Return a copy whose parts are resolved, each by its own rules."""
        self.check()
        params = self.get_params(deep=False)
        params["kernels"] = [kernel.resolve(X, seed) for kernel in self.kernels]
        return type(self)(**params)


class SumKernel(CompositeKernel):
    r"""Weighted sum of kernels, ``k(x, z) = sum_i w_i k_i(x, z)``.

    With weights that sum to 1 it is a convex combination of kernels. Its features are
    ``[sqrt(w_1) phi_1, sqrt(w_2) phi_2, ...]`` (Dai et al. 2014, Section 2). ``k1 + k2`` and
    ``0.3 * k1`` give such sums, and sums of sums become one.

    Parameters
    ----------
    kernels : list of Kernel
        The parts. Each finds its own bandwidth, so
        ``[Gaussian(bandwidth_factor=0.5), Gaussian(bandwidth_factor=2)]`` makes sense.
    weights : list of float > 0 or None, default=None
        One a part; None for ones, the plain sum.

    Examples
    --------
    >>> from kernelgrad.kernels import Gaussian, Laplacian
    >>> 0.7 * Gaussian(0.5) + 0.3 * Laplacian(0.1)
    SumKernel(kernels=[Gaussian(gamma=0.5), Laplacian(gamma=0.1)],
              weights=[0.7, 0.3])
    """

    name: ClassVar[str] = "sum"

    def __init__(
        self, kernels: Sequence[Kernel], weights: Sequence[float] | None = None
    ) -> None:
        self.kernels = kernels
        self.weights = weights

    def check(self) -> None:
        """Raise if a part or a weight is outside its domain."""
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
        """Return the sum of parts whose single features are unbiased."""
        return SumKernel([kernel.per_feature() for kernel in self.kernels], self.weights)

    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        """Return the weighted sum of the parts' matrices."""
        K = np.zeros((X.shape[0], Z.shape[0]))
        for kernel, weight in self.terms:
            K += weight * kernel.pairwise(X, Z)
        return K

    def diag(self, X: Matrix) -> Float64Array:
        """Return the weighted sum of the parts' diagonals."""
        k = np.zeros(X.shape[0])
        for kernel, weight in self.terms:
            k += weight * kernel.diag(X)
        return k

    def exact_block(self, A: ExactRows, B: ExactRows) -> Float32Array:
        """Return the weighted sum of the parts' blocks."""
        K = np.zeros((A.n_rows, B.n_rows), np.float32)
        for (kernel, weight), a, b in zip(self.terms, A.parts, B.parts, strict=True):
            K += np.float32(weight) * kernel.exact_block(a, b)
        return K

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> SumMap:
        """Return the concatenation of the parts' features, each of its own seed."""
        seeds = _part_seeds(seed, len(self.kernels))
        parts = [
            kernel.feature_map(n_features_in, part_seed, block_size)
            for kernel, part_seed in zip(self.kernels, seeds, strict=True)
        ]
        weights = [weight for _, weight in self.terms]
        return SumMap(parts, weights, n_features_in, seed, block_size)


class ProductKernel(CompositeKernel):
    r"""Product of kernels, ``k(x, z) = prod_i k_i(x, z)``.

    The product of stationary kernels is stationary, with frequencies ``w_1 + w_2 + ...``,
    always drawn independently (``sampling="iid"``). Other features are multiplied: with
    ``P_i`` planes a part, a block has ``P_1 P_2 ...`` planes. ``k1 * k2`` gives such products,
    and products of products become one.

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

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.kernels = kernels

    def per_feature(self) -> ProductKernel:
        """Return the product of parts whose single features are unbiased."""
        return ProductKernel([kernel.per_feature() for kernel in self.kernels])

    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        """Return the entrywise product of the parts' matrices."""
        K = np.ones((X.shape[0], Z.shape[0]))
        for kernel in self.kernels:
            K *= kernel.pairwise(X, Z)
        return K

    def diag(self, X: Matrix) -> Float64Array:
        """Return the product of the parts' diagonals."""
        k = np.ones(X.shape[0])
        for kernel in self.kernels:
            k *= kernel.diag(X)
        return k

    def exact_block(self, A: ExactRows, B: ExactRows) -> Float32Array:
        """Return the entrywise product of the parts' blocks."""
        K = np.ones((A.n_rows, B.n_rows), np.float32)
        for kernel, a, b in zip(self.kernels, A.parts, B.parts, strict=True):
            K *= kernel.exact_block(a, b)
        return K

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> FeatureMap:
        """Return products of features, stationary parts together as one.

        Raises
        ------
        CapabilityError
            The features of two parts are unbiased only as a whole.
        """
        size = n_features_in, seed, block_size
        seeded = list(zip(self.kernels, _part_seeds(seed, len(self.kernels)), strict=True))
        stationary = [(k, s) for k, s in seeded if isinstance(k, StationaryKernel)]
        parts: list[FeatureMap] = []
        if len(stationary) > 1:
            parts.append(SummedFrequenciesMap(stationary, *size))
            seeded = [(k, s) for k, s in seeded if not isinstance(k, StationaryKernel)]
        restricted = False
        for kernel, part_seed in seeded:
            part = kernel.feature_map(n_features_in, part_seed, block_size)
            if restricted and not part.per_feature_unbiased:
                twin = kernel.per_feature()
                part = twin.feature_map(n_features_in, part_seed, block_size)
                if not part.per_feature_unbiased:
                    raise CapabilityError(
                        "A product can hold one kernel whose features are unbiased only as a "
                        f"whole, and {kernel!r} is another; choose another form of its "
                        "features, or a sum."
                    )
            restricted = restricted or not part.per_feature_unbiased
            parts.append(part)
        return parts[0] if len(parts) == 1 else ProductMap(parts, *size)


class PartsMap(FeatureMap):
    """Base of the maps of several maps, which may each prepare rows in their own way.

    Prepared rows are one matrix: the rows themselves if any part takes them as they are, then
    what the other parts make of them, column after column.
    """

    def __init__(
        self, parts: Sequence[FeatureMap], n_features_in: int, seed: int, block_size: int
    ) -> None:
        super().__init__(n_features_in, seed, block_size)
        self.parts = list(parts)
        widths = [_prepared_width(part, n_features_in) for part in parts]
        self._shared = None in widths
        stop = n_features_in if self._shared else 0
        self._ranges = []
        for width in widths:
            self._ranges.append((0, n_features_in) if width is None else (stop, stop + width))
            stop += width or 0

    @property
    def per_feature_unbiased(self) -> bool:
        """Whether each single feature averages to ``k / F``."""
        return all(part.per_feature_unbiased for part in self.parts)

    def capacity(self, n_blocks: int) -> int:
        """Return the most that a part needs."""
        return max(part.capacity(n_blocks) for part in self.parts)

    def prepare(self, X: Matrix) -> Matrix:
        """Return rows that hold what every part needs: `X` itself if it is all."""
        pieces = [X] if self._shared else []
        for part, (start, _) in zip(self.parts, self._ranges, strict=True):
            if start or not self._shared:
                pieces.append(part.prepare(X))
        if len(pieces) == 1:
            return pieces[0]
        if all(sp.issparse(piece) for piece in pieces):
            return sp.hstack(pieces, format="csr")
        return np.hstack([p.toarray() if sp.issparse(p) else p for p in pieces])

    def part_rows(self, X: Matrix, i: int) -> Matrix:
        """Return part i's columns of prepared rows."""
        start, stop = self._ranges[i]
        if stop - start == X.shape[1]:
            return X
        rows = X[:, start:stop]
        return rows if sp.issparse(rows) else np.ascontiguousarray(rows)


class SumMap(PartsMap):
    """The features of all parts side by side, times the square roots of their weights."""

    def __init__(
        self,
        parts: Sequence[FeatureMap],
        weights: Sequence[float],
        n_features_in: int,
        seed: int,
        block_size: int,
    ) -> None:
        super().__init__(parts, n_features_in, seed, block_size)
        self.planes = sum(part.planes for part in parts)
        self._roots = [np.float32(math.sqrt(weight)) for weight in weights]

    def transform(self, X: Matrix, block: int) -> Float32Array:
        """Return ``phi_block(X)``, part after part."""
        out = np.empty((X.shape[0], self.width), np.float32)
        a = 0
        for i, part in enumerate(self.parts):
            b = a + part.width
            np.multiply(
                part.transform(self.part_rows(X, i), block), self._roots[i], out=out[:, a:b]
            )
            a = b
        return out

    def gradient(self, X: Matrix, R: Float32Array, block: int) -> Float32Array:
        """Return ``phi_block(X)^T R`` by the parts' own ways."""
        return np.concatenate(
            [
                part.gradient(self.part_rows(X, i), R, block) * self._roots[i]
                for i, part in enumerate(self.parts)
            ]
        )

    def predict(
        self, X: Matrix, coef: Float32Array, n_blocks: int, out: Float32Array, cache_bytes: int
    ) -> None:
        """Add the prediction by the parts' own ways, each with its share of the cache."""
        a = 0
        for i, part in enumerate(self.parts):
            own = np.zeros_like(out)
            planes = coef[a : a + part.planes]
            rows = self.part_rows(X, i)
            part.predict(rows, planes, n_blocks, own, cache_bytes // len(self.parts))
            own *= self._roots[i]
            out += own
            a += part.planes


class ProductMap(PartsMap):
    r"""``sqrt(F) phi_1[plane a, i] phi_2[plane b, i]`` for all planes (a, b) and features i."""

    def __init__(
        self, parts: Sequence[FeatureMap], n_features_in: int, seed: int, block_size: int
    ) -> None:
        super().__init__(parts, n_features_in, seed, block_size)
        self.planes = math.prod(part.planes for part in parts)

    def transform(self, X: Matrix, block: int) -> Float32Array:
        """Return ``phi_block(X)``, the planes of the last part fastest."""
        n, F = X.shape[0], self.block_size
        product = np.full((n, 1, 1), F ** ((len(self.parts) - 1) / 2), np.float32)
        for i, part in enumerate(self.parts):
            phi = part.transform(self.part_rows(X, i), block).reshape(n, 1, part.planes, F)
            product = (product[:, :, None, :] * phi).reshape(n, -1, F)
        return product.reshape(n, self.width)


class SummedFrequenciesMap(ProjectionMap):
    """Random Fourier features of a product of stationary kernels: one sum of frequencies.

    They are ``[cos, sin]`` pairs unless all parts ask for phases.
    """

    def __init__(
        self,
        seeded: Sequence[tuple[StationaryKernel, int]],
        n_features_in: int,
        seed: int,
        block_size: int,
    ) -> None:
        for kernel, _ in seeded:
            kernel.gamma_value  # noqa: B018 - raises while gamma is a rule
        self.parts = [ProjectionMap(k, n_features_in, s, block_size) for k, s in seeded]
        pairs = [part for part in self.parts if part.kind == projections.PAIR]
        super().__init__((pairs or self.parts)[0].kernel, n_features_in, seed, block_size)

    def frequencies(
        self, first: int, n_tiles: int, tile: int, columns: IntArray
    ) -> Float32Array:
        """Return the sum of the parts' frequencies, in turns."""
        W = self.parts[0].frequencies(first, n_tiles, tile, columns)
        for part in self.parts[1:]:
            W += part.frequencies(first, n_tiles, tile, columns)
        return W


def _part_seeds(seed: int, n_parts: int) -> list[int]:
    """Return one seed a part, a function of (seed, number of the part)."""
    low, high = rng.words(seed, 0, n_parts, TAG_PART)[:2].astype(object)
    return [int(seed) for seed in low + (high << 32)]


def _prepared_width(part: FeatureMap, n_features_in: int) -> int | None:
    """Return how many columns a part prepares, or None if it takes rows as they are."""
    probe = np.ones((1, n_features_in))
    probes = (probe, sp.csr_matrix(probe))
    with np.errstate(all="ignore"):  # the width counts, not the value
        prepared = [part.prepare(rows) for rows in probes]
    if all(after is before for after, before in zip(prepared, probes, strict=True)):
        return None
    return int(prepared[0].shape[1])


def add(left: Kernel, right: Kernel) -> SumKernel:
    """Return ``left + right``; sums among them are flattened."""
    return _sum([*_terms(left), *_terms(right)])


def multiply(left: Kernel, right: Kernel | float) -> Kernel:
    """Return ``left * right``; products are flattened and constant factors collected."""
    if not isinstance(right, Kernel):
        return _sum([(kernel, weight * float(right)) for kernel, weight in _terms(left)])
    factors: list[Kernel] = []
    constant = 1.0
    for kernel in (left, right):
        terms = _terms(kernel)
        if len(terms) == 1:
            kernel, weight = terms[0]
            constant *= weight
        factors += kernel.kernels if isinstance(kernel, ProductKernel) else [kernel]
    product = ProductKernel(factors)
    product.check()
    return product if constant == 1.0 else _sum([(product, constant)])


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
