"""Random features: rows, a seed and a block come in, features go out."""

from kernelgrad.features.base import FeatureMap, float32_rows
from kernelgrad.features.projections import Projection, ProjectionMap

__all__ = ["FeatureMap", "Projection", "ProjectionMap", "float32_rows"]
