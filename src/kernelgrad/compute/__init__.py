"""Compiled loops on arrays and integers, independent of losses and kernels."""
