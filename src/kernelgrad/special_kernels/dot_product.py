r"""Kernels of the inner product (Dai et al. 2014, Table 1): polynomials and power series.

The random features of a polynomial are TensorSketches, those of a power series are random
Maclaurin features. Random numbers are pure functions of (seed, feature or block, coordinate),
by the counters of `kernelgrad.compute.rng` with a tag for each purpose.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import scipy.fft
import scipy.sparse as sp
from scipy.special import gammaln
from sklearn.utils.extmath import row_norms

from kernelgrad.compute import rng
from kernelgrad.compute.threads import over_tiles
from kernelgrad.features.base import FeatureMap, float64_rows, used_columns
from kernelgrad.kernels import profiles, tiles
from kernelgrad.kernels.base import ExactRows, TiledKernel
from kernelgrad.params import anything, integer, number_or_rule, parameters, real
from kernelgrad.types import Float32Array, Float64Array, IntArray, Matrix
from kernelgrad.validation import DataError, check_name, check_real

TAG_DEGREE, TAG_SIGN, TAG_BUCKET = 3, 4, 5

_ROWS = 256  # rows of a tile


def hashes(seed: int, sketch: int, d: int, F: int) -> tuple[IntArray, Float32Array]:
    """Return buckets in [0, F) and signs of d coordinates.

    One word gives both: the last bit is the sign, and the other 31 bits, times ``F / 2^31`` and
    rounded down, are the bucket. The probability of a bucket differs from ``1 / F`` by less
    than 2^-31 (by 0 for a power of two). Estimates of inner products are unbiased for any law
    of the buckets, because the signs cancel collisions in expectation.
    """
    w = rng.words(seed, 0, -(-d // 4), TAG_BUCKET, sketch).T.ravel()[:d]
    bucket = (w >> np.uint32(1)).astype(np.uint64) * np.uint64(F) >> np.uint64(31)
    return bucket.astype(np.int64), np.where(w & np.uint32(1), -1, 1).astype(np.float32)


def rademacher(
    columns: IntArray, features: IntArray, seed: int, first: int, n: int, level: int
) -> Float32Array:
    """Return the signs of level `level` (n_columns, n_features), for features from `first` on.

    `features` holds numbers in [0, n). One call of Philox covers 128 coordinates of a feature.
    """
    W = np.empty((len(columns), len(features)), np.float32)
    groups = columns >> 7
    for group in np.unique(groups):
        words = rng.words(seed, first, n, TAG_SIGN + (level << 8), group)[:, features]
        own = np.flatnonzero(groups == group)
        bits = (columns[own] & 31).astype(np.uint32)[:, None]
        W[own] = 1.0 - 2.0 * (words[(columns[own] >> 5) & 3] >> bits & np.uint32(1))
    return W


class InnerProductMap(FeatureMap):
    """Base class of maps with one plane that are computed from ``sqrt(gamma) x`` by row tiles.

    Subclasses define :meth:`draw` and :meth:`_tile`.
    """

    def __init__(self, gamma: float, *size: int) -> None:
        super().__init__(*size)
        self.root = float(np.sqrt(gamma))

    @abstractmethod
    def draw(self, block: int, columns: IntArray) -> Any:
        """Return the random numbers of a block for the given coordinates."""

    @abstractmethod
    def _tile(self, X: Matrix, draws: Any) -> Float32Array:
        """Return features of few rows."""

    def prepare(self, X: Matrix) -> Matrix:
        return X * self.root

    def transform(self, X: Matrix, block: int) -> Float32Array:
        X, columns = used_columns(X)
        draws, n = self.draw(block, columns), X.shape[0]
        out = np.empty((n, self.block_size), np.float32)

        def task(r0: int, r1: int) -> None:
            out[r0:r1] = self._tile(X[r0:r1], draws)

        over_tiles(n, _ROWS, task)
        return out


class TensorSketch(InnerProductMap):
    """One TensorSketch of ``(gamma <x, z> + coef0)^degree`` per block.

    FFTs are in float32, which takes two thirds of the time of float64. The measured error of
    the features of a row is below 1e-6 of their norm (degrees up to 5, F up to 1,024).
    """

    def __init__(self, gamma: float, degree: int, coef0: float, *size: int) -> None:
        super().__init__(gamma, *size)
        self.degree = degree
        self.constant = np.float32(np.sqrt(coef0))

    def draw(
        self, block: int, columns: IntArray
    ) -> list[tuple[sp.csr_matrix, IntArray, Float32Array]]:
        """Return count sketches: matrices (n_columns, F), and what they do to the constant."""
        d, F, sketches = self.n_features_in, self.block_size, []
        for sketch in range(block * self.degree, (block + 1) * self.degree):
            bucket, sign = hashes(self.seed, sketch, d + 1, F)
            entries = sign[columns], bucket[columns], np.arange(len(columns) + 1)
            S = sp.csr_matrix(entries, shape=(len(columns), F))
            sketches.append((S, bucket[d], sign[d] * self.constant))
        return sketches

    def _tile(self, X: Matrix, draws: Any) -> Float32Array:
        spectrum: Any = 1
        for S, bucket, constant in draws:
            C = X @ S
            C = C.toarray() if sp.issparse(C) else np.ascontiguousarray(C)
            C[:, bucket] += constant
            spectrum = spectrum * scipy.fft.rfft(C, axis=1)
        P: Float32Array = scipy.fft.irfft(spectrum, n=self.block_size, axis=1)
        return P


class MaclaurinDraws(NamedTuple):
    """Random numbers of a block whose features are sorted by decreasing degree."""

    position: IntArray  # (F,), position of each feature in that order
    amplitude: Float32Array
    levels: list[Float32Array]  # l = 1, 2, ...: signs of the features of degree l or more


class RandomMaclaurin(InnerProductMap):
    """Products of N random projections, computed level by level as matrix products.

    `law` returns degrees N for uniform variates in (0, 1), and ``a_N / P[N]``; `check` raises
    if features of rows would have infinite variance.
    """

    def __init__(
        self, gamma: float, law: Callable[[Float64Array], tuple[IntArray, Float64Array]],
        check: Callable[[Matrix], None], *size: int,
    ) -> None:  # fmt: skip
        super().__init__(gamma, *size)
        self.law, self.check = law, check

    def prepare(self, X: Matrix) -> Matrix:
        self.check(X)
        return super().prepare(X)

    def degrees(self, block: int) -> tuple[IntArray, Float64Array]:
        """Return the degrees N of the features of a block, and ``a_N / P[N]``.

        The uniform variates are stratified: one from each of F equal strata, in random order.
        """
        F = self.block_size
        inside = rng.uniforms(self.seed, block * F, F, TAG_DEGREE)
        order = np.argsort(
            rng.uniforms(self.seed, block * F, F, TAG_DEGREE, group=1), kind="stable"
        )
        return self.law((order + inside) / F)

    def draw(self, block: int, columns: IntArray) -> MaclaurinDraws:
        F = self.block_size
        N, squared = self.degrees(block)
        order = np.argsort(-N, kind="stable")
        levels = [
            rademacher(columns, order[: (level < N).sum()], self.seed, block * F, F, level)
            for level in range(int(N.max()))
        ]
        amplitude = np.sqrt(squared[order] / F).astype(np.float32)
        return MaclaurinDraws(np.argsort(order, kind="stable"), amplitude, levels)

    def _tile(self, X: Matrix, draws: MaclaurinDraws) -> Float32Array:
        P = np.tile(draws.amplitude, (X.shape[0], 1))
        for W in draws.levels:
            P[:, : W.shape[1]] *= X @ W
        return np.take(P, draws.position, axis=1)


# upper bounds of gamma |x|^2: the pole, and the largest exponent of float64
_LIMITS = {"vovk": 1.0, "exponential": 700.0}
# Relative change of g(t) per relative change of t above which float32 products, accurate to
# about 1e-7, would give values with a relative error above 1e-6.
_STEEP = 10.0


class InnerProductKernel(TiledKernel):
    """Base class of the kernels ``g(gamma <x, z>)``; :meth:`finish` says what g is."""

    gamma_rules: ClassVar[tuple[str, ...]] = ("auto",)
    gamma: float | Literal["auto"]

    def resolve(self, X: Matrix, seed: int) -> Self:
        """Replace ``gamma="auto"`` by ``1 / d``, d the number of columns."""
        self.check()
        return self._replaced(gamma=1.0 / X.shape[1]) if isinstance(self.gamma, str) else self

    def of_product(self, t: Float64Array) -> Float64Array:
        """Return ``g(t)``, elementwise."""
        return np.asarray(profiles.values(np, t, **self.finish()))

    def diag(self, X: Matrix) -> Float64Array:
        return self.of_product(self.gamma_value * row_norms(float64_rows(X), squared=True))

    def embedded(self, X: Matrix) -> Matrix:
        return X * float(np.sqrt(self.gamma_value))

    def exact_rows(self, X: Matrix, *, wide: bool = False) -> ExactRows:
        """Return ``sqrt(gamma) x``, after a check that values ``k(x, x)`` fit into float32."""
        rows = self.tile_rows(X, wide=wide)
        t = tiles.squares(rows.values).max(initial=0.0)
        with np.errstate(over="ignore", divide="ignore"):
            most = float(self.of_product(t))
        if not 0.0 <= most <= float(np.finfo(np.float32).max):
            raise DataError(
                f"The {self.name} kernel with {self!r} is {most:g} for a row with "
                f"gamma |x|^2 = {t:g}, which float32 does not hold; use a smaller gamma or "
                "scale the rows down."
            )
        return rows

    def needs_wide(self, X: Matrix) -> bool:
        """Return whether g changes by over 10 % if its largest argument changes by 1 %."""
        t = self.gamma_value * float(row_norms(X, squared=True).max(initial=0.0))
        step = 1e-4
        with np.errstate(all="ignore"):
            low, high = self.of_product(np.array([t, t * (1 + step)]))
            steepness = abs(high - low) / (step * abs(low))
        return bool(t > 0 and not steepness <= _STEEP)  # not a number where g overflows


# Polynomial kernel


@parameters
class Polynomial(InnerProductKernel):
    r"""Polynomial kernel, ``(gamma <x, z> + coef0)^degree`` (scikit-learn's ``poly``).

    A block of features is one TensorSketch of width F: `degree` independent count sketches of
    ``[sqrt(gamma) x, sqrt(coef0)]``, convolved by FFT (Table 1). It is unbiased for any F. For
    unit rows and ``gamma = coef0 = 1`` the measured standard deviation of one block, relative
    to ``k(x, x)`` and times ``sqrt(F)``, is about 1 between different rows for any degree, and
    1.7, 2.6, 3.9, 5.3 for ``k(x, x)`` with degree 2, 3, 4, 5.

    Parameters
    ----------
    degree : int >= 1, default=2
        Highest degree of the products of inputs. Each degree costs one sketch and one FFT. 2
        adds the products of pairs of columns.
    gamma : float > 0 or "auto", default=1.0
        ``"auto"`` is ``1 / d``, which keeps ``gamma |x|^2`` of standardised columns near 1.
    coef0 : float >= 0, default=1.0
        Weight of the lower degrees; with 0 only products of exactly `degree` inputs remain.
    """

    name: ClassVar[str] = "polynomial"

    degree: int = integer(default=2, low=1, kw_only=False)
    gamma: float | Literal["auto"] = number_or_rule(
        ("auto",), default=1.0, low=0, low_open=True, kw_only=False
    )
    coef0: float = real(default=1.0, low=0, kw_only=False)

    def finish(self) -> dict[str, Any]:
        coef = (float(self.coef0),)
        return {"finish": profiles.POWER, "coef": coef, "degree": int(self.degree)}

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> FeatureMap:
        law = self.gamma_value, int(self.degree), float(self.coef0)
        return TensorSketch(*law, n_features_in, seed, block_size)


# Power series


@parameters
class DotProduct(InnerProductKernel):
    """Power series of the inner product, ``sum_n a_n (gamma <x, z>)^n`` with ``a_n >= 0``.

    Its features are random Maclaurin features (Table 1): feature i draws a degree N and N
    Rademacher vectors w_l, and is ``sqrt(a_N / P[N]) prod_l w_l . sqrt(gamma) x``. For an
    infinite series ``P[N = n] = (p - 1) / p^(n + 1)`` (the amplitude in the table holds for p =
    2 only); for a finite one the same law is restricted to degrees with ``a_n > 0``. The
    degrees in a block are stratified, which reduces the variance by measured factors of 1.1 to
    6.

    For the exponential series the relative variance of features grows like ``exp(2.9 gamma
    |x|^2)`` (p = 2), so choose gamma such that ``gamma |x|^2`` is of order 1. For Vovk's series
    it is infinite, and rows are rejected, if ``p gamma^2 (3 |x|^4 - 2 sum_j x_j^4) >= 1``;
    exact values need only ``gamma |x|^2 < 1``.

    Parameters
    ----------
    series : {"exponential", "vovk"} or sequence of float, default="exponential"
        ``a_n = 1 / n!``, ``a_n = 1``, or the coefficients a_0, ..., a_m, of which at least one
        must be positive.
    gamma : float > 0 or "auto", default=1.0
        ``"auto"`` is ``1 / d``, which keeps ``gamma |x|^2`` of standardised columns near 1.
    p : float > 1, default=2.0
        Smaller values make high degrees more frequent. The mean degree, to which the cost is
        proportional, is ``1 / (p - 1)``. Table 1 uses 2.
    """

    name: ClassVar[str] = "dot_product"

    series: str | Sequence[float] | Float64Array = anything(
        default="exponential", kw_only=False
    )
    gamma: float | Literal["auto"] = number_or_rule(
        ("auto",), default=1.0, low=0, low_open=True, kw_only=False
    )
    p: float = real(default=2.0, low=1, low_open=True, kw_only=False)

    def check(self) -> None:
        super().check()
        if isinstance(self.series, str):
            check_name(self.series, _LIMITS, "series")
            return
        if not isinstance(self.series, list | tuple | np.ndarray) or np.ndim(self.series) != 1:
            raise TypeError(
                "series must be a name or a sequence of coefficients a_0, a_1, ..., got "
                f"{self.series!r}."
            )
        for n, a in enumerate(self.series):
            check_real(a, f"series[{n}]", low=0)
        if not np.any(self.series):
            raise ValueError("series must have a positive coefficient.")

    def check_domain(self, X: Matrix) -> None:
        """Raise DataError if the series diverges or overflows at ``gamma |x|^2`` of a row.

        Nothing is checked while gamma is still a rule.
        """
        if not isinstance(self.series, str) or isinstance(self.gamma, str):
            return
        limit = _LIMITS[self.series]
        t = self.gamma_value * row_norms(float64_rows(X), squared=True).max(initial=0.0)
        if t >= limit:
            raise DataError(
                f"The dot_product kernel with the {self.series} series needs "
                f"gamma |x|^2 < {limit:g}, but a row has {t:.6g}; use a gamma below "
                f"{self.gamma_value * limit / t:.6g}, or divide the rows by more than "
                f"{np.sqrt(t / limit):.6g}."
            )

    def check_variance(self, X: Matrix) -> None:
        """Raise DataError if random features of a row would have infinite variance."""
        if not isinstance(self.series, str) or self.series != "vovk":
            return
        X = float64_rows(X)
        squares = X.multiply(X).tocsr() if sp.issparse(X) else X**2
        sums = np.asarray(squares.sum(axis=1)).ravel()
        q = 3.0 * sums**2 - 2.0 * row_norms(squares, squared=True)
        t = self.gamma_value * float(np.sqrt(self.p * q.max(initial=0.0)))
        if t >= 1.0:
            raise DataError(
                "Random features of the dot_product kernel with the vovk series have infinite "
                f"variance unless gamma sqrt(p (3 |x|^4 - 2 sum x_j^4)) < 1, but a row has "
                f"{t:.6g}; use a gamma below {self.gamma_value / t:.6g}, or divide the rows by "
                f"more than {np.sqrt(t):.6g}."
            )

    def finish(self) -> dict[str, Any]:
        if isinstance(self.series, str):
            return {"finish": profiles.EXP if self.series == "exponential" else profiles.POLE}
        return {"finish": profiles.SERIES, "coef": self.series}

    def degrees(self, u: Float64Array) -> tuple[IntArray, Float64Array]:
        """Return degrees N for uniform variates u in (0, 1), and ``a_N / P[N]``."""
        p = float(self.p)
        if isinstance(self.series, str):
            N = np.floor(-np.log(u) / np.log(p)).astype(np.int64)
            log_a = -gammaln(N + 1.0) if self.series == "exponential" else np.zeros(N.shape)
            return N, np.exp(log_a + (N + 1) * np.log(p) - np.log(p - 1.0))
        a = np.asarray(self.series, np.float64)
        support = np.flatnonzero(a)
        weights = p ** -(support - support[0]).astype(np.float64)
        probability = weights / weights.sum()
        k = np.searchsorted(np.cumsum(probability)[:-1], u)
        return support[k], a[support[k]] / probability[k]

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> FeatureMap:
        law = self.gamma_value, self.degrees, self.check_variance
        return RandomMaclaurin(*law, n_features_in, seed, block_size)
