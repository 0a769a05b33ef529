"""Random feature maps of the special kernels."""
