"""Fitted functions: rows come in, sums over features, rows or columns go out."""

from kernelgrad.functions.exact import ExactKernel as ExactKernel
from kernelgrad.functions.exact import KernelRows as KernelRows
from kernelgrad.functions.expansions import Expansion as Expansion
from kernelgrad.functions.expansions import LinearExpansion as LinearExpansion
from kernelgrad.functions.expansions import RandomFeatureExpansion as RandomFeatureExpansion
from kernelgrad.functions.expansions import SupportExpansion as SupportExpansion
from kernelgrad.functions.features import FeatureStream as FeatureStream
from kernelgrad.functions.scaling import InputScaling as InputScaling
