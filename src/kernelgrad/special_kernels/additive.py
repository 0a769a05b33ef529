r"""Additive homogeneous kernels ``sum_j k_1(x_j, z_j)`` (Dai et al. 2014, Table 1).

They compare histograms. In one coordinate ``k_1(x, z) = sqrt(x z) E_w[cos(w (ln x - ln z))]``
for frequencies w drawn from a probability law, so a random feature of one coordinate is
``sqrt(x_j) [cos, sin](w ln x_j)``, and zero where ``x_j = 0``.
"""

from __future__ import annotations

from typing import ClassVar

from kernelgrad.features.base import FeatureMap
from kernelgrad.kernels import profiles
from kernelgrad.kernels.base import TiledKernel
from kernelgrad.kernels.rows import row_sums
from kernelgrad.params import choice, parameters
from kernelgrad.special_kernels.features import additive
from kernelgrad.types import Float64Array, Matrix


@parameters
class AdditiveKernel(TiledKernel):
    """Base class of the additive kernels; subclasses give the law and the terms.

    Every block of features is an unbiased estimate of the kernel. With ``"hashed"`` and
    ``"signs"`` each single feature, times ``sqrt(F)``, is unbiased too, which products of
    kernels need.

    Parameters
    ----------
    form : {"auto", "coordinates", "hashed", "signs"}, default="auto"
        How the F features of a block cover the d coordinates.

        ``"coordinates"``: feature i of a block depends on coordinate ``i mod d`` only, with
        amplitude ``sqrt(x_j / m_j)`` if m_j features of the block depend on coordinate j, so
        ``k(x, x)`` is exact. If ``F < d``, a block covers F consecutive coordinates from a
        random one on, with amplitude ``sqrt(x_j d / F)``.

        ``"hashed"``: a count sketch. Each coordinate is added to one random feature of the
        block, with a random sign and its own frequency.

        ``"signs"``: every feature is ``sum_j s_j sqrt(x_j) [cos, sin](w_j ln x_j) / sqrt(F)``
        with Rademacher signs and one frequency per feature and coordinate.

        ``"auto"``: ``"coordinates"`` if ``F >= d``, where it is the fastest and has the least
        variance, else ``"hashed"``: a block by coordinates misses most non-zeros of sparse
        rows, and signs have about the variance of hashing for much more work.
    """

    is_of_histograms: ClassVar[bool] = True
    law: ClassVar[int]

    form: additive.Form = choice(
        ("auto", "coordinates", "hashed", "signs"),
        default="auto", what="feature form", kw_only=False,
    )  # fmt: skip

    def embedded(self, X: Matrix) -> Matrix:
        return X

    def diag(self, X: Matrix) -> Float64Array:
        """Return the sums of the rows: ``k_1(x, x) = x``."""
        return row_sums(X)

    def per_feature(self) -> AdditiveKernel:
        return self if self.form in ("hashed", "signs") else self._replaced(form="signs")

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> FeatureMap:
        return additive.AdditiveMap(self.law, self.form, n_features_in, seed, block_size)


class Chi2(AdditiveKernel):
    r"""Additive chi-square kernel, ``sum_j 2 x_j z_j / (x_j + z_j)`` on ``x >= 0``.

    Frequencies have the density ``sech(pi w)`` (Table 1). With scikit-learn's
    ``additive_chi2_kernel`` it equals ``(additive_chi2_kernel + sum_j x_j + sum_j z_j) / 2``.

    Parameters
    ----------
    form
        As in :class:`AdditiveKernel`.
    """

    name: ClassVar[str] = "chi2"
    law: ClassVar[int] = additive.SECH
    form_code: ClassVar[int] = profiles.CHI2


class Intersection(AdditiveKernel):
    r"""Histogram intersection kernel, ``sum_j min(x_j, z_j)`` on ``x >= 0``.

    Frequencies are Cauchy with scale 1/2. (In Table 1 the density has mass 1/2, which the
    amplitude ``sqrt(2 x_j)`` compensates.)

    Parameters
    ----------
    form
        As in :class:`AdditiveKernel`.
    """

    name: ClassVar[str] = "intersection"
    law: ClassVar[int] = additive.HALF_CAUCHY
    form_code: ClassVar[int] = profiles.LEAST


class JensenShannon(AdditiveKernel):
    r"""Jensen-Shannon kernel on ``x >= 0``.

    ``k(x, z) = sum_j x_j / 2 log2((x_j + z_j) / x_j) + z_j / 2 log2((x_j + z_j) / z_j)``. For
    histograms that sum to 1 it is one minus their Jensen-Shannon divergence in bits.
    Frequencies have the density ``sech(pi w) / (ln 2 (1 + 4 w^2))``; they are drawn as for
    :class:`Chi2` and accepted with probability ``1 / (1 + 4 w^2)``. (In Table 1 the density
    has mass 1/2, which the amplitude ``sqrt(2 x_j)`` compensates.)

    Parameters
    ----------
    form
        As in :class:`AdditiveKernel`.
    """

    name: ClassVar[str] = "jensen_shannon"
    law: ClassVar[int] = additive.JENSEN_SHANNON
    form_code: ClassVar[int] = profiles.SHANNON
