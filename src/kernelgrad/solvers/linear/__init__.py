"""Solvers of linear functions."""
