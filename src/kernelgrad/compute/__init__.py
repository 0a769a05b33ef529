"""Hot loops on plain arrays and integers; no idea of losses or kernels."""

# before any loop is made: it finds the folder where they are kept
from kernelgrad.compute import compiling as compiling
