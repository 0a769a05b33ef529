"""Random feature maps, whose blocks are pure functions of (seed, block)."""

from kernelgrad.features.base import FeatureMap, float32_rows
from kernelgrad.features.projections import Projection, ProjectionMap

__all__ = ["FeatureMap", "Projection", "ProjectionMap", "float32_rows"]
