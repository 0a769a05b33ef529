"""Methods that Mu et al. (2015) compare with."""

from kernelgrad.papers.s3gd.rivals.scv import SCV
from kernelgrad.papers.s3gd.rivals.ssgd import SSGD

__all__ = ["SCV", "SSGD"]
