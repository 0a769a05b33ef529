"""Random rows for tests of kernels and features."""

import numpy as np


def normal(n=40, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def unit(n=24, d=5, seed=0):
    """Return rows of length 1."""
    X = normal(n, d, seed)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def cube(n=24, d=3, seed=0):
    """Return rows in [0, 2)^d."""
    return 2.0 * np.random.default_rng(seed).random((n, d))
