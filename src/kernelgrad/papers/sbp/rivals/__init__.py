"""Methods that Cotter et al. (2012) compare with, and their linear relatives."""

from kernelgrad.papers.sbp.rivals.linear_pegasos import LinearPegasos
from kernelgrad.papers.sbp.rivals.online import KernelPerceptron, Pegasos

__all__ = ["KernelPerceptron", "LinearPegasos", "Pegasos"]
