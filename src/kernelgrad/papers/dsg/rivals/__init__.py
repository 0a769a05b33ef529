"""Methods that Dai et al. (2014) compare with."""

from kernelgrad.papers.dsg.rivals.norma import NORMA
from kernelgrad.papers.dsg.rivals.sbmd import SBMD
from kernelgrad.papers.dsg.rivals.sdca import SDCA

__all__ = ["NORMA", "SBMD", "SDCA"]
