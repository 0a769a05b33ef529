"""Compiled loops on arrays and integers, independent of losses and kernels."""

# imported before any loop is defined, as it determines the cache folder
from kernelgrad.compute import compiling as compiling
