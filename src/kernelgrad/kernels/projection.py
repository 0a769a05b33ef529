"""The kernels whose random features are functions ``h(w . x)`` of random weights w."""

from __future__ import annotations

from abc import abstractmethod

from kernelgrad._typing import Float64Array, Matrix
from kernelgrad.features.base import FeatureMap
from kernelgrad.features.projections import ProjectionMap
from kernelgrad.kernels.base import Kernel


class ProjectionKernel(Kernel):
    """Base of the kernels whose features are functions of random projections.

    Subclasses give :attr:`projection` (the function h), :meth:`weight_law`, and where rows
    are transformed first, :meth:`embed`.
    """

    @property
    @abstractmethod
    def projection(self) -> int:
        """The function h, a code of `kernelgrad.features._fused`."""

    @property
    def amplitude(self) -> float:
        """Constant factor of every feature."""
        return 1.0

    @abstractmethod
    def weight_law(self) -> tuple[int, float]:
        """Return (law, scale): weights are scale times standard variates of that law."""

    def weight_factor(self, seed: int, first: int, n: int) -> Float64Array | None:
        """Return one factor per feature shared by all its coordinates, or None."""
        return None

    def embed(self, X: Matrix) -> Matrix:
        """Return the rows whose projections are taken; zeros stay zeros."""
        return X

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> FeatureMap:
        """Return the random projections of this kernel."""
        return ProjectionMap(self, n_features_in, seed, block_size)
