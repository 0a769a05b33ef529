"""Doubly stochastic gradients."""
