"""Slow references for additive, polynomial and dot-product kernels, sharing no code."""

import itertools
import math

import numpy as np


def additive_term(name, x, z):
    """One coordinate of an additive kernel."""
    if x == 0 or z == 0:
        return 0.0
    if name == "chi2":
        return 2 * x * z / (x + z)
    if name == "intersection":
        return x if x < z else z
    if name == "jensen_shannon":
        return x / 2 * math.log2((x + z) / x) + z / 2 * math.log2((x + z) / z)
    raise KeyError(name)


def additive_kernel(name, X, Z):
    return [
        [sum(additive_term(name, *p) for p in zip(x, z, strict=True)) for z in Z] for x in X
    ]


def spectral_cdf(name, w):
    """P[W <= w] of the law whose characteristic function is k(e^s, 1) / e^(s / 2)."""
    if name == "chi2":
        return 2 / math.pi * np.arctan(np.exp(math.pi * np.clip(w, -200, 200)))
    if name == "intersection":
        return 0.5 + np.arctan(2 * w) / math.pi
    grid = np.linspace(-12, 12, 200_001)
    density = 1 / (np.cosh(math.pi * grid) * (1 + 4 * grid**2))
    total = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return np.interp(w, grid, total / total[-1])


def coordinate_features(x, columns, frequencies, amplitudes):
    """Cosines, then sines, of features that see one coordinate each."""
    out = []
    for wave in (math.cos, math.sin):
        for j, w, a in zip(columns, frequencies, amplitudes, strict=True):
            v = float(x[j])
            out.append(a * math.sqrt(v) * wave(w * math.log(v)) if v > 0 else 0.0)
    return out


def summed_features(x, frequencies, buckets, n_features):
    """Cosines, then sines: coordinate j adds to feature buckets[j], signed as its frequency."""
    out = np.zeros((2, n_features))
    for v, w, k in zip(x, frequencies, buckets, strict=True):
        if v > 0:
            phase = abs(w) * math.log(v)
            sign = math.copysign(1.0, w) * math.sqrt(v)
            out[:, k] += sign * math.cos(phase), sign * math.sin(phase)
    return out.ravel()


def tensor_sketch(x, buckets, signs, n_buckets):
    """The count sketch of all products of inputs, from the hashes of its factors."""
    out = np.zeros(n_buckets)
    degree = len(buckets)
    for index in itertools.product(range(len(x)), repeat=degree):
        k = sum(int(buckets[s][j]) for s, j in enumerate(index)) % n_buckets
        out[k] += math.prod(float(signs[s][j]) * float(x[j]) for s, j in enumerate(index))
    return out


def power_series(coefficients, t):
    return sum(a * t**n for n, a in enumerate(coefficients))


def rademacher_moment(x, z):
    """E[(w . x)^2 (w . z)^2] over all sign vectors w."""
    signs = itertools.product((-1.0, 1.0), repeat=len(x))
    values = [float(np.dot(w, x) * np.dot(w, z)) ** 2 for w in map(np.array, signs)]
    return math.fsum(values) / len(values)
