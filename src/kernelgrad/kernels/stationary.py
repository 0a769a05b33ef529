r"""Shift-invariant kernels and their random Fourier features (Dai et al. 2014, Table 1).

By Bochner's theorem ``k(x, z) = E_w[cos(w . (x - z))]`` for frequencies w drawn from the
spectral law of the kernel, so products of the features ``[cos(w . x), sin(w . x)]`` average to
the kernel.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaincinv, gammaln, kve, ndtri
from sklearn.utils.extmath import row_norms

from kernelgrad.compute import rng
from kernelgrad.data.sampling import random_rows
from kernelgrad.features.base import float64_rows
from kernelgrad.features.projections import Projection
from kernelgrad.kernels import profiles, rows
from kernelgrad.kernels.base import ExactRows, Kernel, TiledKernel
from kernelgrad.kernels.projection import ProjectionKernel
from kernelgrad.params import anything, choice, number_or_rule, parameters, real
from kernelgrad.types import AnyArray, Float64Array, Matrix
from kernelgrad.validation import DataError, ModelFileError

MEDIAN_ROWS = 2000  # rows of the sample whose median distance is the bandwidth
MAX_FACTOR = 2.0**16  # largest factor of a frequency of a Matérn kernel
# Norms of rows, in length scales, from which kernel values are wrong by 1e-5 in float32: there
# a squared distance has an error of 1e-7 of the squared norms, an entry one of 6e-8 of itself.
_FAR_SQUARED, _FAR = 100.0, 100.0

Form = Literal["pair", "phase"]


def _centred(X: Float64Array) -> Float64Array:
    """Return the centred rows, with differences within rounding error set to 0."""
    centre = rows.steady_centre(X, X.mean(axis=0))
    C: Float64Array = X - centre
    C[np.abs(C) <= 4 * np.finfo(float).eps * np.maximum(np.abs(X), np.abs(centre))] = 0.0
    return C


@parameters
class StationaryKernel(ProjectionKernel):
    """Base class of the kernels ``k(x, z) = k(x - z)`` with ``k(x, x) = 1``.

    Subclasses define :meth:`spectral_law` and the rules of the bandwidth.
    """

    is_stationary: ClassVar[bool] = True

    gamma: float | str = number_or_rule(
        ("median", "scale"), default="median", low=0, low_open=True, kw_only=False
    )
    bandwidth_factor: float = real(default=1.0, low=0, low_open=True)
    form: Form = choice(("pair", "phase"), default="pair", what="feature form")

    @classmethod
    def restored(cls, *, sampling: str = "iid", **params: Any) -> Kernel:
        if sampling != "iid":
            raise ModelFileError(
                f"The model has frequencies of sampling={sampling!r}, which versions from 0.3 "
                "on do not draw; fit it again."
            )
        return super().restored(**params)

    @abstractmethod
    def spectral_law(self) -> tuple[int, float]:
        """Return (law, scale): frequencies are `scale` times standard variates of `law`."""

    def factor_quantile(self, u: Float64Array) -> Float64Array | None:
        """Return u-quantiles of the law of a factor of each frequency, or None without one."""
        return None

    def weight_law(self) -> tuple[int, float]:
        return self.spectral_law()

    def weights(self) -> Projection:
        return replace(super().weights(), embed=None, factor=self.factor_quantile)

    def frequencies(self) -> Projection | None:
        return self.weights()

    def _distances(self, X: Matrix) -> Float64Array:
        from sklearn.metrics.pairwise import euclidean_distances

        return np.asarray(euclidean_distances(X))

    def _gamma_from_bandwidth(self, bandwidth: float) -> float:
        """Return gamma for a length scale in the units of :meth:`_distances`."""
        return 1.0 / (2.0 * bandwidth**2)

    def _gamma_from_scale(self, gamma: float) -> float:
        """Return this kernel's gamma for scikit-learn's ``1 / (d var)``."""
        return gamma / self.bandwidth_factor**2

    def resolve(self, X: Matrix, seed: int) -> Self:
        """Replace the rule for gamma by a number.

        With ``"median"`` the bandwidth is the median pairwise distance in a seeded sample of at
        most 2,000 rows (the median trick of the papers; pairs at distance zero are left out),
        times ``bandwidth_factor``. With ``"scale"`` gamma is scikit-learn's ``1 / (d Var[X])``.
        """
        if not isinstance(self.gamma, str):
            return self
        self.check()
        X = float64_rows(X)
        if self.gamma == "scale":
            sparse = sp.issparse(X)
            variance = max(0.0, X.multiply(X).mean() - X.mean() ** 2) if sparse else X.var()
            gamma = self._gamma_from_scale(1.0 / (X.shape[1] * (variance or 1.0)))
        else:
            if X.shape[0] > MEDIAN_ROWS:
                X = X[random_rows(X.shape[0], MEDIAN_ROWS, rng.draws(seed, 0x6D656469))]
            X = X if sp.issparse(X) else _centred(X)
            median = rows.median_distance(self._distances(X), row_norms(X))
            gamma = self._gamma_from_bandwidth(median * self.bandwidth_factor)
        return self._with_gamma(gamma)

    def diag(self, X: Matrix) -> Float64Array:
        return np.ones(X.shape[0])

    def exact_diag(self, rows: ExactRows) -> Float64Array:
        """Return ones, as :meth:`values` has on its diagonal up to rounding."""
        return np.ones(rows.n_rows)


class _Isotropic(TiledKernel, StationaryKernel):
    """A function of Euclidean distances, which are computed from inner products."""

    def spectral_law(self) -> tuple[int, float]:
        return rng.NORMAL, float(np.sqrt(2 * self.gamma_value))


class _ByColumns(TiledKernel, StationaryKernel):
    """A function of the rows ``gamma x`` that is accumulated column by column."""

    def embedded(self, X: Matrix) -> Matrix:
        return X * self.gamma_value

    def needs_wide(self, X: Matrix) -> bool:
        return self.gamma_value * rows.large_norm(X) > _FAR

    def _gamma_from_bandwidth(self, bandwidth: float) -> float:
        return 1.0 / bandwidth


class Gaussian(_Isotropic):
    r"""Gaussian kernel, ``exp(-gamma ||x - z||^2)`` (scikit-learn's ``rbf``).

    Frequencies are normal with standard deviation ``sqrt(2 gamma)`` (Table 1, row 1).

    Parameters
    ----------
    gamma : float > 0, "median" or "scale", default="median"
        ``1 / (2 sigma^2)``. ``"median"`` sets sigma to the median pairwise distance, the
        choice of the papers; ``"scale"`` is scikit-learn's ``1 / (d Var[X])``.
    bandwidth_factor : float > 0, default=1.0
        Factor on the bandwidth that a rule finds; it has no effect if gamma is a number.
    form : {"pair", "phase"}, default="pair"
        Random features as pairs ``[cos, sin](w . x)``, which have a lower variance and cost
        half as much per feature, or as ``sqrt(2) cos(w . x + b)``, as in the papers.
    """

    name: ClassVar[str] = "rbf"
    finish_code: ClassVar[int] = profiles.GAUSS

    def embedded(self, X: Matrix) -> Matrix:
        return X * float(np.sqrt(2 * self.gamma_value))

    def needs_wide(self, X: Matrix) -> bool:
        return self.gamma_value * rows.large_norm(X) ** 2 > _FAR_SQUARED


@parameters
class Laplacian(_ByColumns):
    r"""Laplacian kernel, ``exp(-gamma sum_j v_j |x_j - z_j|)``.

    Frequencies are Cauchy with scale ``gamma v_j`` (Table 1, row 2). The median rule uses
    Manhattan distances and sets ``gamma = 1 / median``.

    Parameters
    ----------
    gamma, bandwidth_factor, form
        As in :class:`Gaussian`.
    column_weights : list of d floats >= 0 or None, default=None
        Weights v of the columns; None weighs each by 1.
    """

    name: ClassVar[str] = "laplacian"
    form_code: ClassVar[int] = profiles.ABSOLUTE
    finish_code: ClassVar[int] = profiles.EXP_MINUS

    column_weights: Sequence[float] | None = anything(default=None)

    def check(self) -> None:
        super().check()
        if self.column_weights is None:
            return
        v = np.asarray(self.column_weights, np.float64)
        if v.ndim != 1 or not np.isfinite(v).all() or (v < 0).any() or not v.any():
            raise ValueError(
                "column_weights must be numbers >= 0, one for each column and not all 0; got "
                f"{self.column_weights!r}."
            )

    def embed(self, X: Matrix) -> Matrix:
        """Return the rows with each column times its weight."""
        if self.column_weights is None:
            return X
        v = np.asarray(self.column_weights, np.float64)
        if len(v) != X.shape[1]:
            raise DataError(
                f"column_weights has {len(v)} numbers, but rows have {X.shape[1]} columns."
            )
        return sp.csr_matrix(X.multiply(v)) if sp.issparse(X) else X * v

    def embedded(self, X: Matrix) -> Matrix:
        return self.embed(X) * self.gamma_value

    def needs_wide(self, X: Matrix) -> bool:
        return rows.large_norm(self.embedded(X)) > _FAR

    def resolve(self, X: Matrix, seed: int) -> Self:
        return super().resolve(self.embed(X) if isinstance(self.gamma, str) else X, seed)

    def weights(self) -> Projection:
        law = super().weights()
        return law if self.column_weights is None else replace(law, embed=self.embed)

    def frequencies(self) -> Projection | None:
        # those of weighted columns cannot be added to those of other rows
        return super().frequencies() if self.column_weights is None else None

    def spectral_law(self) -> tuple[int, float]:
        return rng.CAUCHY, self.gamma_value

    def _distances(self, X: Matrix) -> Float64Array:
        from sklearn.metrics.pairwise import manhattan_distances

        return np.asarray(manhattan_distances(X))

    def _gamma_from_scale(self, gamma: float) -> float:
        return gamma / self.bandwidth_factor


class RootLaplacian(Laplacian):
    r"""Root of the Laplacian kernel's exponent, ``exp(-sqrt(gamma sum_j v_j |x_j - z_j|))``.

    It is the mixture of Laplacian kernels with ``gamma r`` for ``r = 1 / (2 u^2)``, u standard
    normal, the law with ``E exp(-r t) = exp(-sqrt(t))``. Functions of its space have steps and
    spikes, and rows far apart still resemble each other, as tables with thresholds and
    categories need. Frequencies are Cauchy with scale ``gamma v_j r``, one r for each.

    Parameters
    ----------
    gamma, bandwidth_factor, form, column_weights
        As in :class:`Laplacian`.
    """

    name: ClassVar[str] = "root_laplacian"
    finish_code: ClassVar[int] = profiles.EXP_ROOT

    def factor_quantile(self, u: Float64Array) -> Float64Array:
        """Return the u-quantile of the law of r, limited to float32's phases."""
        return np.asarray(np.minimum(0.5 / ndtri(0.5 * u) ** 2, MAX_FACTOR))


class Cauchy(_ByColumns):
    r"""Cauchy kernel, ``prod_j 1 / (1 + gamma^2 (x_j - z_j)^2)``.

    Frequencies are Laplace with scale gamma in every coordinate (Table 1, row 3; the factor 2
    printed there would give ``k(x, x) = 2^d``). As gamma is an inverse length here, the rule
    ``"median"`` sets it to the inverse median of Euclidean distances, and ``"scale"`` to
    ``sqrt(1 / (d Var[X]))``.

    Parameters
    ----------
    gamma, bandwidth_factor, form
        As in :class:`Gaussian`.
    """

    name: ClassVar[str] = "cauchy"
    form_code: ClassVar[int] = profiles.LORENTZ
    finish_code: ClassVar[int] = profiles.INVERSE

    def spectral_law(self) -> tuple[int, float]:
        return rng.LAPLACE, self.gamma_value

    def _gamma_from_scale(self, gamma: float) -> float:
        return float(np.sqrt(gamma)) / self.bandwidth_factor


@parameters
class Matern(_Isotropic):
    r"""Matérn kernel of smoothness ``nu`` with length scale ``l = 1 / sqrt(2 gamma)``.

    ``k(r) = 2^(1-nu) / Gamma(nu) (sqrt(2 nu) r / l)^nu K_nu(sqrt(2 nu) r / l)``; as nu grows it
    tends to :class:`Gaussian` with the same gamma. Frequencies have a multivariate Student-t
    law: ``N(0, I) / l * sqrt(2 nu / chi2_{2 nu})`` with one chi-square variate per frequency
    (Table 1, row 4).

    Parameters
    ----------
    nu : float in (0, 50], default=1.5
        Smoothness: 0.5 is the exponential kernel, 1.5 and 2.5 are once and twice
        differentiable; from 50 on :class:`Gaussian` differs by less than 0.02.
    gamma, bandwidth_factor, form
        As in :class:`Gaussian`.
    """

    name: ClassVar[str] = "matern"
    finish_code: ClassVar[int] = profiles.HALF_SQUARE

    nu: float = real(default=1.5, low=0, high=50, low_open=True, kw_only=False)

    def __init__(
        self, nu: float = 1.5, gamma: float | str = "median", *, bandwidth_factor: float = 1.0,
        form: Form = "pair",
    ) -> None:  # fmt: skip
        super().__init__(gamma, bandwidth_factor=bandwidth_factor, form=form)
        self.nu = nu

    def factor_quantile(self, u: Float64Array) -> Float64Array:
        """Return ``sqrt(2 nu / q)``, where q is the u-quantile of the law ``chi2_{2 nu}``."""
        half_chi2 = gammaincinv(self.nu, u)
        # In float32 a phase w . x of 2^23 turns has no fraction, so its cosine would be 1. The
        # cap affects only frequencies that matter at distances below l / MAX_FACTOR.
        smallest = self.nu / MAX_FACTOR**2
        return np.asarray(np.sqrt(self.nu / np.maximum(half_chi2, smallest)))

    def _of_scaled(self, a: Float64Array) -> Float64Array:
        """Return k for distances a in units of ``l / sqrt(2 nu)``."""
        nu = float(self.nu)
        K = np.ones_like(a)
        far = a > 0
        log_k = (1 - nu) * np.log(2.0) - gammaln(nu) + nu * np.log(a[far])
        with np.errstate(over="ignore"):  # K_nu is infinite only where k is 1 to rounding
            log_k += np.log(kve(nu, a[far])) - a[far]
        K[far] = np.exp(np.minimum(log_k, 0.0))
        return np.asarray(K, np.float64)

    def embedded(self, X: Matrix) -> Matrix:
        return X * (2 * float(np.sqrt(2 * self.nu * self.gamma_value)))

    def values(
        self, A: ExactRows, B: ExactRows, dtype: Any = np.float32, *,
        out: AnyArray | None = None, compiled: bool = False,
    ) -> AnyArray:  # fmt: skip
        """Return ``k(A_i, B_j)``, from half the squared distances of embedded rows."""
        if self.nu in _CLOSED_FORMS:
            return super().values(A, B, dtype, out=out, compiled=compiled)
        u = super().values(A, B, np.result_type(A.values, dtype)).astype(np.float64)
        return self._of_scaled(np.sqrt(u)).astype(dtype)

    def finish(self) -> dict[str, int]:
        return {"finish": _CLOSED_FORMS.get(self.nu, profiles.HALF_SQUARE)}

    def needs_wide(self, X: Matrix) -> bool:
        """Return whether ``nu < 1``, or ``2 nu gamma |x|^2`` exceeds 100 but for outliers.

        Near zero ``1 - k`` grows like the distance to the power ``2 nu``; for nu < 1 this
        amplifies the rounding error of a squared distance.
        """
        far = 2 * self.nu * self.gamma_value * rows.large_norm(X) ** 2
        return bool(self.nu < 1 or far > _FAR_SQUARED)


_CLOSED_FORMS = {0.5: profiles.MATERN1, 1.5: profiles.MATERN3, 2.5: profiles.MATERN5}
