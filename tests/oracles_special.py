"""Slow references for the special kernels and their features, from the formulas alone."""

import itertools
import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from oracles import gaussian


def projected(X, W, kind):
    """float64 projected of weights W (d, F); kind by its name."""
    X = X.toarray() if hasattr(X, "toarray") else X
    T = X.astype(float) @ W.astype(float)
    powers = {"STEP": 0, "RAMP": 1, "RAMP2": 2}
    if kind in powers:
        return np.where(T > 0, T ** powers[kind], 0.0)
    return np.exp(-T) if kind == "DECAY" else T


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


def power_series(coefficients, t):
    return sum(a * t**n for n, a in enumerate(coefficients))


def rademacher_moment(x, z):
    """E[(w . x)^2 (w . z)^2] over all sign vectors w."""
    signs = itertools.product((-1.0, 1.0), repeat=len(x))
    values = [float(np.dot(w, x) * np.dot(w, z)) ** 2 for w in map(np.array, signs)]
    return math.fsum(values) / len(values)


def image_kernel(x, z, kernel, gamma):
    """k(x, z) of two images: the mean over cells of that over pairs of their patches."""
    shape, step, pool = (*kernel.image_shape, 1)[:3], kernel.stride, kernel.pool_size
    window = (kernel.patch_size, kernel.patch_size, shape[2])
    x, z = (sliding_window_view(i.reshape(shape), window)[::step, ::step] for i in (x, z))
    cells = [
        [i[a : a + pool, b : b + pool].reshape(-1, math.prod(window)) for i in (x, z)]
        for a, b in itertools.product(*(range(0, size, pool) for size in x.shape[:2]))
    ]
    return np.mean([gaussian(*pair, gamma).mean() for pair in cells])
