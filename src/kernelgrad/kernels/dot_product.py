r"""Kernels of the inner product (Dai et al. 2014, Table 1): polynomial, and any power series.

Polynomial features are TensorSketches, those of a power series random Maclaurin features.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import scipy.fft
import scipy.sparse as sp
from scipy.special import gammaln
from sklearn.base import clone
from sklearn.utils.extmath import row_norms, safe_sparse_dot

from kernelgrad._typing import AnyArray, Float32Array, Float64Array, IntArray, Matrix
from kernelgrad._validation import DataError, check_int, check_name, check_real
from kernelgrad.compute import rng
from kernelgrad.compute.linalg import csr_times_tile
from kernelgrad.compute.threads import parallel_for
from kernelgrad.features import _sketches as sketches
from kernelgrad.features.base import FeatureMap
from kernelgrad.kernels import _tiles as exact
from kernelgrad.kernels.base import ExactRows, Kernel, exact_values, float64_rows

# gamma |x|^2 must stay below: the pole, and the largest exponent of float64
_LIMITS = {"vovk": 1.0, "exponential": 700.0}
# Relative change of g(t) per relative change of t, from which float32 products, good to about
# 1e-7, would leave less than 1e-6 of a value.
_STEEP = 10.0


class InnerProductKernel(Kernel):
    """Base of the kernels ``g(gamma <x, z>)``; subclasses give g."""

    gamma_rules: ClassVar[tuple[str, ...]] = ("auto",)
    gamma: float | str

    def check(self) -> None:
        """Raise if ``gamma`` is outside its domain."""
        if isinstance(self.gamma, str):
            check_name(self.gamma, ("auto",), "rule for gamma")
        else:
            check_real(self.gamma, "gamma", low=0, low_open=True)

    @property
    def gamma_value(self) -> float:
        """The number gamma; raises when it is still a rule."""
        if isinstance(self.gamma, str):
            raise ValueError(
                f"gamma={self.gamma!r} is a rule; call resolve(X, seed) first or give a number."
            )
        return float(self.gamma)

    def resolve(self, X: Matrix, seed: int) -> Self:
        """Replace ``gamma="auto"`` by ``1 / d``, d the number of columns."""
        self.check()
        if not isinstance(self.gamma, str):
            return self
        resolved: Self = clone(self)
        resolved.set_params(gamma=1.0 / X.shape[1])
        return resolved

    @abstractmethod
    def of_product(self, t: Float64Array) -> Float64Array:
        """Return ``g(t)``, elementwise."""

    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        """Return ``g(gamma <x, z>)``."""
        products = safe_sparse_dot(float64_rows(X), float64_rows(Z).T, dense_output=True)
        return self.of_product(self.gamma_value * np.asarray(products, np.float64))

    def diag(self, X: Matrix) -> Float64Array:
        """Return ``g(gamma |x|^2)``."""
        return self.of_product(self.gamma_value * row_norms(float64_rows(X), squared=True))

    @abstractmethod
    def _finish(self) -> dict[str, Any]:
        """Return the code of g and its numbers, as `kernelgrad.kernels._tiles` takes them."""

    def exact_rows(self, X: Matrix, *, wide: bool = False) -> ExactRows:
        """Return ``sqrt(gamma) x``.

        Raises
        ------
        DataError
            A value ``k(x, x)`` does not fit into float32.
        """
        values = exact_values(X * float(np.sqrt(self.gamma_value)), wide=wide)
        t = exact.squares(values).max(initial=0.0)
        with np.errstate(over="ignore", divide="ignore"):
            most = float(self.of_product(t))
        if not 0.0 <= most <= float(np.finfo(np.float32).max):
            raise DataError(
                f"The {self.name} kernel with {self!r} is {most:g} for a row with "
                f"gamma |x|^2 = {t:g}, which float32 does not hold; use a smaller gamma or "
                "scale the rows down."
            )
        return ExactRows(values)

    def exact_block(self, A: ExactRows, B: ExactRows) -> Float32Array:
        """Return ``k(A_i, B_j)``, from products of rows."""
        K = exact.block(A.values, B.values, exact.DOT, **self._finish())
        return K.astype(np.float32, copy=False)

    def needs_wide(self, X: Matrix) -> bool:
        """Return whether g changes by more than 10 % where its largest argument does by 1 %."""
        t = self.gamma_value * float(row_norms(X, squared=True).max(initial=0.0))
        step = 1e-4
        with np.errstate(all="ignore"):
            low, high = self.of_product(np.array([t, t * (1 + step)]))
            steepness = abs(high - low) / (step * abs(low))
        return bool(t > 0 and not steepness <= _STEEP)  # not a number where g overflows


class InnerProductMap(FeatureMap):
    """Features of rows ``sqrt(gamma) x``, one plane, in row tiles.

    Subclasses give :meth:`_draw` and :meth:`_tile`.
    """

    ROWS: ClassVar[int]  # rows of a tile, a power of two

    def __init__(
        self, kernel: InnerProductKernel, n_features_in: int, seed: int, block_size: int
    ) -> None:
        super().__init__(n_features_in, seed, block_size)
        self._root = float(np.sqrt(kernel.gamma_value))

    @abstractmethod
    def _draw(self, block: int, columns: IntArray) -> Any:
        """Return the random numbers of a block for the given coordinates."""

    @abstractmethod
    def _tile(self, X: Matrix, r0: int, r1: int, draws: Any) -> Float32Array:
        """Return features of rows r0..r1; there may be more rows, of any values, behind."""

    def prepare(self, X: Matrix) -> Matrix:
        """Return ``sqrt(gamma) x``."""
        return X * self._root

    def _columns(self, X: Matrix) -> tuple[Matrix, IntArray]:
        """Drop untouched columns of sparse rows, so that only needed draws are made."""
        d = self.n_features_in
        if not sp.issparse(X):
            return X, np.arange(d)
        touched = np.zeros(d, bool)
        touched[X.indices] = True
        used = np.flatnonzero(touched)
        place = np.empty(d, X.indices.dtype)
        place[used] = np.arange(len(used))
        parts = (X.data, place[X.indices], X.indptr)
        return sp.csr_matrix(parts, shape=(X.shape[0], len(used))), used

    def transform(self, X: Matrix, block: int) -> Float32Array:
        """Return ``phi_block(X)``, shape (n, F)."""
        X, columns = self._columns(X)
        draws = self._draw(block, columns)
        n = X.shape[0]
        out = np.empty((n, self.block_size), np.float32)

        def task(a: int) -> None:
            r0, r1 = a * self.ROWS, min(n, (a + 1) * self.ROWS)
            out[r0:r1] = self._tile(X, r0, r1, draws)[: r1 - r0]

        parallel_for(-(-n // self.ROWS), task)
        return out

    def predict(
        self, X: Matrix, coef: Float32Array, n_blocks: int, out: Float32Array, cache_bytes: int
    ) -> None:
        """Add the prediction of blocks 0..n_blocks to `out`, tile after tile.

        Nothing is kept between calls: draws cost little next to features.
        """
        X, columns = self._columns(X)
        n, F = X.shape[0], self.block_size
        for j in range(n_blocks):
            draws = self._draw(j, columns)
            a = coef[0, j * F : (j + 1) * F]

            def task(t: int, draws: Any = draws, a: Float32Array = a) -> None:
                r0, r1 = t * self.ROWS, min(n, (t + 1) * self.ROWS)
                out[r0:r1] += (self._tile(X, r0, r1, draws) @ a)[: r1 - r0]

            parallel_for(-(-n // self.ROWS), task)


def _padded(n: int) -> int:
    return -(-n // sketches.PAD) * sketches.PAD


# Polynomial kernel


class Polynomial(InnerProductKernel):
    r"""Polynomial kernel, ``(gamma <x, z> + coef0)^degree`` (scikit-learn's ``poly``).

    A block is one TensorSketch of width F: `degree` independent count sketches of
    ``[sqrt(gamma) x, sqrt(coef0)]``, convolved by FFT (Table 1). It is unbiased for any F.
    Measured standard deviation of one block for unit rows and ``gamma = coef0 = 1``, relative
    to ``k(x, x)`` and times ``sqrt(F)``: about 1 between different rows whatever the degree,
    and 1.7, 2.6, 3.9, 5.3 for ``k(x, x)`` itself with degree 2, 3, 4, 5.

    Parameters
    ----------
    degree : int >= 1, default=2
        Costs one sketch and one FFT each.
    gamma : float > 0 or "auto", default=1.0
        ``"auto"`` is ``1 / d``, which keeps ``gamma <x, z>`` of standardised columns near 1.
    coef0 : float >= 0, default=1.0
        Weight of the lower degrees; 0 leaves only products of exactly `degree` inputs.
    """

    name: ClassVar[str] = "polynomial"

    def __init__(
        self, degree: int = 2, gamma: float | Literal["auto"] = 1.0, coef0: float = 1.0
    ) -> None:
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        super().check()
        check_int(self.degree, "degree", low=1)
        check_real(self.coef0, "coef0", low=0)

    def of_product(self, t: Float64Array) -> Float64Array:
        """Return ``(t + coef0)^degree``."""
        powers: Float64Array = (t + float(self.coef0)) ** int(self.degree)
        return powers

    def _finish(self) -> dict[str, Any]:
        n, c = int(self.degree), float(self.coef0)
        return {"finish": exact.POWER, "coef": (c,), "degree": n}

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> FeatureMap:
        """Return TensorSketches of this kernel."""
        return TensorSketch(self, n_features_in, seed, block_size)


class TensorSketch(InnerProductMap):
    """One TensorSketch a block.

    FFTs are in float32: measured errors of a row's features are below 1e-6 of their norm
    (degrees up to 5, F up to 1,024), in two thirds of the time of float64.
    """

    ROWS = 64

    def __init__(
        self, kernel: Polynomial, n_features_in: int, seed: int, block_size: int
    ) -> None:
        super().__init__(kernel, n_features_in, seed, block_size)
        self.degree = int(kernel.degree)
        self._constant = float(np.sqrt(kernel.coef0))

    def _draw(self, block: int, columns: IntArray) -> tuple[AnyArray, Float32Array]:
        """Return buckets and signs (degree, n_columns + 1), the constant's last."""
        columns = np.append(columns, self.n_features_in)
        first = block * self.degree
        return sketches.hashes(columns, self.seed, first, self.degree, self.block_size)

    def _tile(
        self, X: Matrix, r0: int, r1: int, draws: tuple[AnyArray, Float32Array]
    ) -> Float32Array:
        C = np.empty((_padded(r1 - r0), self.degree, self.block_size), np.float32)
        sketches.count_sketch(X, r0, r1, *draws, self._constant, C)
        spectrum = np.multiply.reduce(scipy.fft.rfft(C, axis=2), axis=1)
        P: Float32Array = scipy.fft.irfft(spectrum, n=self.block_size, axis=1)
        return P


# Power series


class DotProduct(InnerProductKernel):
    r"""Power series of the inner product, ``sum_n a_n (gamma <x, z>)^n`` with ``a_n >= 0``.

    Random Maclaurin features (Table 1): feature i has a degree N and N Rademacher vectors, and
    is ``sqrt(a_N / P[N]) prod_l w_l . sqrt(gamma) x``. For infinite series
    ``P[N = n] = (p - 1) / p^(n + 1)`` (the table's amplitude holds for p = 2 only); for a
    finite one the same law is restricted to degrees with ``a_n > 0``, so that no feature is
    zero. Degrees of a block are stratified: their proportions are those of the law, up to
    rounding, which leaves the law of every single feature as it is and lowers the variance
    (measured: by 1.1 to 6 times; the most for rows of small norm).

    The product of a feature at x and at z has the second moment
    ``sum_n a_n^2 / P[n] (gamma^2 Q)^n`` with
    ``Q = |x|^2 |z|^2 + 2 <x, z>^2 - 2 sum_j x_j^2 z_j^2``.
    The exponential series keeps it finite, but its relative variance grows like
    ``exp(2.9 gamma |x|^2)`` (p = 2): choose gamma such that ``gamma |x|^2`` is of order 1. For
    Vovk's series it is infinite where ``p gamma^2 Q >= 1``. Q is largest for x = z (by the
    Cauchy-Schwarz inequality), so rows with ``p gamma^2 (3 |x|^4 - 2 sum_j x_j^4) >= 1`` have
    no random features; their exact values need only ``gamma |x|^2 < 1``.

    Parameters
    ----------
    series : {"exponential", "vovk"} or sequence of float, default="exponential"
        ``a_n = 1 / n!``, ``a_n = 1``, or the coefficients a_0, ..., a_m, at least one of them
        positive.
    gamma : float > 0 or "auto", default=1.0
        ``"auto"`` is ``1 / d``, which puts ``gamma |x|^2`` of standardised columns near 1.
    p : float > 1, default=2.0
        Smaller values make high degrees more frequent: an average degree of ``1 / (p - 1)``,
        to which the cost is proportional.
    """

    name: ClassVar[str] = "dot_product"

    def __init__(
        self,
        series: str | Sequence[float] | Float64Array = "exponential",
        gamma: float | Literal["auto"] = 1.0,
        p: float = 2.0,
    ) -> None:
        self.series = series
        self.gamma = gamma
        self.p = p

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        super().check()
        check_real(self.p, "p", low=1, low_open=True)
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
        """Raise DataError where the series diverges or overflows at ``gamma |x|^2``.

        While gamma is a rule there is nothing to check yet.
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
        """Raise DataError where random features of a row would have infinite variance."""
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

    def of_product(self, t: Float64Array) -> Float64Array:
        """Return the sum of the series at t."""
        if isinstance(self.series, str):
            return np.asarray(np.exp(t) if self.series == "exponential" else 1.0 / (1.0 - t))
        return np.asarray(np.polynomial.polynomial.polyval(t, np.asarray(self.series, float)))

    def _finish(self) -> dict[str, Any]:
        if self.series == "exponential":
            return {"finish": exact.EXP}
        if isinstance(self.series, str):
            return {"finish": exact.POLE}
        return {"finish": exact.SERIES, "coef": self.series}

    def degrees(self, u: Float64Array) -> tuple[IntArray, Float64Array]:
        """Return degrees N for uniforms u in (0, 1), and ``a_N / P[N]``."""
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
        """Return random Maclaurin features of this kernel."""
        return RandomMaclaurin(self, n_features_in, seed, block_size)


class MaclaurinDraws(NamedTuple):
    """Random numbers of a block, its features sorted by falling degree.

    Attributes
    ----------
    place : int array (F,)
        Where each feature stands in that order.
    amplitude : float32 array (F,)
    levels : list of float32 arrays (n_columns, n_l)
        Signs of level l = 1, 2, ... for the n_l features of degree l or more.
    """

    place: IntArray
    amplitude: Float32Array
    levels: list[Float32Array]


class RandomMaclaurin(InnerProductMap):
    """Products of N random projections, all features of a level in one matrix product."""

    ROWS = 256

    def __init__(
        self, kernel: DotProduct, n_features_in: int, seed: int, block_size: int
    ) -> None:
        super().__init__(kernel, n_features_in, seed, block_size)
        self.kernel = kernel

    def prepare(self, X: Matrix) -> Matrix:
        """Return ``sqrt(gamma) x``; DataError where the variance would be infinite."""
        self.kernel.check_variance(X)
        return super().prepare(X)

    def degrees(self, block: int) -> tuple[IntArray, Float64Array]:
        """Return degrees N of a block's features and ``a_N / P[N]``.

        Their uniforms are one from each of F equal strata, in random order.
        """
        F, tag = self.block_size, sketches.TAG_DEGREE
        inside = rng.uniforms(self.seed, block * F, F, tag)
        order = np.argsort(rng.uniforms(self.seed, block * F, F, tag, group=1), kind="stable")
        return self.kernel.degrees((order + inside) / F)

    def _draw(self, block: int, columns: IntArray) -> MaclaurinDraws:
        F = self.block_size
        N, squared = self.degrees(block)
        order = np.argsort(-N, kind="stable")
        levels = [
            sketches.rademacher(
                columns, order[: np.count_nonzero(level < N)], self.seed, block * F, F, level
            )
            for level in range(int(N.max()))
        ]
        amplitude = np.sqrt(squared[order] / F).astype(np.float32)
        return MaclaurinDraws(np.argsort(order, kind="stable"), amplitude, levels)

    def _tile(self, X: Matrix, r0: int, r1: int, draws: MaclaurinDraws) -> Float32Array:
        n = r1 - r0
        P = np.tile(draws.amplitude, (_padded(n), 1))
        dense = not sp.issparse(X)
        if dense:
            rows = np.zeros((len(P), X.shape[1]), np.float32)
            rows[:n] = X[r0:r1]
        for W in draws.levels:
            if dense:
                P[:, : W.shape[1]] *= rows @ W
            else:
                T = np.empty((n, W.shape[1]), np.float32)
                csr_times_tile(X.indptr, X.indices, X.data, r0, r1, W, T)
                P[:n, : W.shape[1]] *= T
        features: Float32Array = np.take(P, draws.place, axis=1)
        return features
