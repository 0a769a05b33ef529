r"""Additive homogeneous kernels ``sum_j k_1(x_j, z_j)`` (Dai et al. 2014, Table 1).

For histograms. In one coordinate ``k_1(x, z) = sqrt(x z) E_w[cos(w (ln x - ln z))]``, with
frequencies w of a spectral law of total mass 1. So a feature of one coordinate is
``sqrt(x_j) [cos, sin](w ln x_j)``; a zero gives zeros.
"""

from __future__ import annotations

from typing import ClassVar

from kernelgrad._params import choice, parameters
from kernelgrad._typing import Float64Array, Matrix
from kernelgrad.features import _sketches as sketches
from kernelgrad.features.additive import AdditiveMap, Form
from kernelgrad.features.base import FeatureMap
from kernelgrad.kernels import _tiles as tiles
from kernelgrad.kernels.base import TiledKernel, row_sums


@parameters
class AdditiveKernel(TiledKernel):
    r"""Base of the additive kernels; subclasses give the law and the terms.

    Parameters
    ----------
    form : {"auto", "coordinates", "hashed", "signs"}, default="auto"
        How a block of F features covers d coordinates.

        ``"coordinates"``: feature i of a block sees coordinate ``i mod d`` only, with amplitude
        ``sqrt(x_j / m_j)`` where m_j features of the block see coordinate j. No noise between
        coordinates, and ``k(x, x)`` is exact. Where ``F < d`` a block sees F neighbouring
        coordinates from a random one on, with amplitude ``sqrt(x_j d / F)``.

        ``"hashed"``: every coordinate goes to one random feature of the block, with a random
        sign and a frequency of its own: a count sketch of all coordinates.

        ``"signs"``: every feature sees all coordinates,
        ``sum_j s_j sqrt(x_j) [cos, sin](w_j ln x_j) / sqrt(F)`` with Rademacher signs and one
        frequency per feature and coordinate.

        ``"auto"``: ``"coordinates"`` where ``F >= d``, else ``"hashed"``.

    Notes
    -----
    All forms are unbiased block by block; with ``"hashed"`` and ``"signs"`` each single
    feature, times ``sqrt(F)``, is unbiased too, which products of kernels need.

    Work of a row and block: F features with ``"coordinates"`` (about 0.8 ns each, the pair of
    cosine and sine), its non-zeros with ``"hashed"`` (5 ns each), F times its non-zeros with
    ``"signs"`` (0.5 ns each). Measured relative standard deviation of one block's estimate,
    F = 512, chi-square / intersection / Jensen-Shannon:

    ===================================  ==============  ==============  ==============
    rows                                 coordinates     hashed          signs
    ===================================  ==============  ==============  ==============
    d = 16, uniform on the simplex       .02/.04/.01     .11/.26/.08     .06/.07/.06
    d = 512, uniform on the simplex      .02/.04/.01     .06/.09/.06     .06/.07/.06
    d = 784, uniform on the simplex      .03/.05/.03     .06/.08/.06     .06/.07/.06
    d = 784, 100 words by Zipf's law     .36/.39/.36     .08/.18/.08     .07/.08/.07
    d = 20,000, 100 words                2.6/2.8/2.5     .12/.24/.12     .12/.13/.12
    ===================================  ==============  ==============  ==============

    So up to ``d = F`` coordinates are best in everything. Beyond that the unseen ones cost
    rows with few non-zeros far more than they save, and hashing has about the noise of signs
    for 1/50 of the work or less. For dense rows without large differences between columns
    ``"coordinates"`` stays the best choice at any d.
    """

    is_of_histograms: ClassVar[bool] = True
    law: ClassVar[int]

    form: Form = choice(
        ("auto", "coordinates", "hashed", "signs"),
        default="auto",
        what="feature form",
        kw_only=False,
    )

    def embedded(self, X: Matrix) -> Matrix:
        """Return the rows."""
        return X

    def diag(self, X: Matrix) -> Float64Array:
        """Return the sums of the rows: ``k_1(x, x) = x``."""
        return row_sums(X)

    def per_feature(self) -> AdditiveKernel:
        """Return the kernel with features that each see every coordinate."""
        return self if self.form in ("hashed", "signs") else self._replaced(form="signs")

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> FeatureMap:
        """Return the features of this kernel in its form."""
        return AdditiveMap(self.law, self.form, n_features_in, seed, block_size)


class Chi2(AdditiveKernel):
    r"""Additive chi-square kernel, ``sum_j 2 x_j z_j / (x_j + z_j)`` on ``x >= 0``.

    Frequencies have density ``sech(pi w)`` (Table 1). It is scikit-learn's
    ``additive_chi2_kernel`` plus the sums of both rows, divided by two.
    Parameters are those of :class:`AdditiveKernel`.
    """

    name: ClassVar[str] = "chi2"
    law: ClassVar[int] = sketches.SECH
    form_code: ClassVar[int] = tiles.CHI2


class Intersection(AdditiveKernel):
    r"""Histogram intersection kernel, ``sum_j min(x_j, z_j)`` on ``x >= 0``.

    Frequencies are Cauchy with scale 1/2 (in Table 1 the density has mass 1/2, for which the
    amplitude ``sqrt(2 x_j)`` makes up).
    Parameters are those of :class:`AdditiveKernel`.
    """

    name: ClassVar[str] = "intersection"
    law: ClassVar[int] = sketches.HALF_CAUCHY
    form_code: ClassVar[int] = tiles.LEAST


class JensenShannon(AdditiveKernel):
    r"""Jensen-Shannon kernel on ``x >= 0``.

    ``sum_j x_j / 2 log2((x_j + z_j) / x_j) + z_j / 2 log2((x_j + z_j) / z_j)``: for
    histograms, one minus their Jensen-Shannon divergence in bits. Frequencies have density
    ``sech(pi w) / (ln 2 (1 + 4 w^2))``, drawn as those of :class:`Chi2` and kept with
    probability ``1 / (1 + 4 w^2)`` (in Table 1 the density has mass 1/2, for which the
    amplitude ``sqrt(2 x_j)`` makes up).
    Parameters are those of :class:`AdditiveKernel`.
    """

    name: ClassVar[str] = "jensen_shannon"
    law: ClassVar[int] = sketches.JENSEN_SHANNON
    form_code: ClassVar[int] = tiles.SHANNON
