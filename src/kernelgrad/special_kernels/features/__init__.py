"""Random feature maps of the special kernels, and structured products for all kernels."""
