"""Slow references for functions of random projections, from the formulas alone."""

import math

import numpy as np


def features(X, W, kind):
    """float64 features of weights W (d, F); kind by its name."""
    X = X.toarray() if hasattr(X, "toarray") else X
    T = X.astype(float) @ W.astype(float)
    powers = {"STEP": 0, "RAMP": 1, "RAMP2": 2}
    if kind in powers:
        return np.where(T > 0, T ** powers[kind], 0.0)
    return np.exp(-T) if kind == "DECAY" else T


def scalar_kernel(name, x, z, value=1.0):
    """k(x, z) of two rows; value is c, beta, lam or nothing."""
    pairs = [(float(a), float(b)) for a, b in zip(x, z, strict=True)]
    if name == "skewed_chi2":
        shifted = [(a + value, b + value) for a, b in pairs]
        return math.prod(2 * math.sqrt(a) * math.sqrt(b) / (a + b) for a, b in shifted)
    if name == "skewed_intersection":
        ratios = [(a + value) / (b + value) for a, b in pairs]
        return math.prod(min(math.sqrt(q), math.sqrt(1 / q)) for q in ratios)
    if name == "exponential_semigroup":
        return math.exp(-value * sum(math.sqrt(a + b) for a, b in pairs))
    if name == "reciprocal_semigroup":
        return math.prod(value / (a + b + value) for a, b in pairs)
    if name == "hellinger":
        return sum(math.sqrt(a * b) for a, b in pairs)
    raise KeyError(name)


def arc_cosine(x, z, order, scale=1.0, bias=0.0):
    """2 E[(w.x)^n (w.z)^n; both > 0] as an integral over the direction of w in their plane."""
    x, z = np.append(x, bias).astype(float), np.append(z, bias).astype(float)
    lengths = math.hypot(*x) * math.hypot(*z)
    if lengths == 0:
        return 0.0
    u, v = x / math.hypot(*x), z / math.hypot(*z)
    theta = 2 * math.atan2(math.hypot(*(u - v)), math.hypot(*(u + v)))
    low, high = theta - math.pi / 2, math.pi / 2
    nodes, weights = np.polynomial.legendre.leggauss(40)
    phi = low + (high - low) * (nodes + 1) / 2
    mean = weights @ (np.cos(phi) * np.cos(phi - theta)) ** order * (high - low) / (4 * math.pi)
    radius = 2**order * math.factorial(order)  # E |w|^(2n) in two dimensions
    return 2 * scale ** (2 * order) * lengths**order * radius * mean
