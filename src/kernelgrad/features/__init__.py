"""Random feature maps."""
