"""Functions: random features or kernel values of rows, and sums over them."""

from kernelgrad.functions.exact import ExactKernel, KernelRows
from kernelgrad.functions.expansions import (
    EXPANSIONS,
    Expansion,
    LinearExpansion,
    RandomFeatureExpansion,
    SupportExpansion,
)
from kernelgrad.functions.features import FeatureStream
from kernelgrad.functions.scaling import InputScaling

__all__ = [
    "EXPANSIONS",
    "ExactKernel",
    "Expansion",
    "FeatureStream",
    "InputScaling",
    "KernelRows",
    "LinearExpansion",
    "RandomFeatureExpansion",
    "SupportExpansion",
]
