"""Semi-supervised machines."""
