"""Methods that Cotter et al. (2012) compare with, and their linear relatives."""

from kernelgrad.papers.sbp.rivals.linear_pegasos import LinearPegasos
from kernelgrad.papers.sbp.rivals.pegasos import Pegasos
from kernelgrad.papers.sbp.rivals.perceptron import KernelPerceptron

__all__ = ["KernelPerceptron", "LinearPegasos", "Pegasos"]
