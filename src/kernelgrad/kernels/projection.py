"""Base class of the kernels whose random features are ``h(w . x)`` for random weights w."""

from abc import abstractmethod
from typing import ClassVar

from kernelgrad.features import fused as projections
from kernelgrad.features.base import FeatureMap
from kernelgrad.features.projections import Projection, ProjectionMap
from kernelgrad.kernels.base import Kernel
from kernelgrad.params import parameters
from kernelgrad.types import Matrix


@parameters
class ProjectionKernel(Kernel):
    """Base class of the kernels whose features are functions of random projections.

    Subclasses define :meth:`weight_law`; :attr:`projection`, the function h, unless it is a
    cosine, and its `amplitude`; and :meth:`embed`, if rows are transformed first.
    """

    amplitude: ClassVar[float] = 1.0

    @property
    def projection(self) -> int:
        """The function h as a code of `kernelgrad.features.fused`; by default a cosine."""
        return projections.PAIR if getattr(self, "form", "") == "pair" else projections.PHASE

    @abstractmethod
    def weight_law(self) -> tuple[int, float]:
        """Return (law, scale): weights are `scale` times standard variates of `law`."""

    def embed(self, X: Matrix) -> Matrix:
        """Return the rows that are projected; the transformation keeps zeros."""
        return X

    def weights(self) -> Projection:
        """Return the law of the frequencies of the random features."""
        law = self.projection, *self.weight_law(), self.amplitude
        return Projection(*law, embed=self.embed)

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> FeatureMap:
        self.check()
        return ProjectionMap(self.weights(), n_features_in, seed, block_size)
