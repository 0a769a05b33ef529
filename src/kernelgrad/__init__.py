"""Kernel learning by stochastic functional gradients, with the scikit-learn API."""
