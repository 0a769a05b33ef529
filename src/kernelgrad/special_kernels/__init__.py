"""Kernels of histograms, images, inner products: rows come in, values go out."""

from kernelgrad.special_kernels.additive import Chi2, Intersection, JensenShannon
from kernelgrad.special_kernels.arc_cosine import ArcCosine
from kernelgrad.special_kernels.convolutional import ConvolutionKernel
from kernelgrad.special_kernels.dot_product import DotProduct, Polynomial
from kernelgrad.special_kernels.histograms import (
    ExponentialSemigroup,
    Hellinger,
    ReciprocalSemigroup,
    SkewedChi2,
    SkewedIntersection,
)

__all__ = [
    "ArcCosine", "Chi2", "ConvolutionKernel", "DotProduct", "ExponentialSemigroup", "Hellinger",
    "Intersection", "JensenShannon", "Polynomial", "ReciprocalSemigroup", "SkewedChi2",
    "SkewedIntersection",
]  # fmt: skip
