"""Methods that Geng et al. (2019) compare with."""

from kernelgrad.papers.tsg.rivals.bgs3vm import BGS3VM
from kernelgrad.papers.tsg.rivals.cccp_s3vm import CCCPS3VM
from kernelgrad.papers.tsg.rivals.frs3vm import FRS3VM
from kernelgrad.papers.tsg.rivals.s3vm_light import S3VMLight

__all__ = ["BGS3VM", "CCCPS3VM", "FRS3VM", "S3VMLight"]
