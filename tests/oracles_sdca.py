"""Slow references for dual coordinate ascent, from the formulas alone."""

import numpy as np
from scipy.optimize import minimize_scalar


def primal(loss, K, y, p, alpha, a, b=0.0):
    """sum_i p_i loss(y_i, b + (K a)_i) + alpha/2 a' K a."""
    g = K @ a
    return p @ loss(y, b + g) + 0.5 * alpha * a @ g


def one_pass(loss, K, y, p, alpha, order, b=0.0):
    """Sequential dual ascent: row i gets the response z of least q loss(z) + (z - t)^2 / 2."""
    a, f = np.zeros(len(y)), np.full(len(y), b)
    for i in order:
        q = p[i] * K[i, i] / alpha
        u = -alpha * a[i] / p[i]
        t = f[i] + q * u
        steepest = q * (abs(u) + 2.0 + abs(y[i]) + abs(t))
        z = t
        for _ in range(3):  # each search refines around the last
            fit = minimize_scalar(
                lambda z, i=i, q=q, t=t: q * loss(y[i], z) + 0.5 * (z - t) ** 2,
                bounds=(z - steepest, z + steepest),
                method="bounded",
                options={"xatol": 1e-12},
            )
            z, steepest = fit.x, 1e-3 * steepest
        moved = (z - f[i]) / K[i, i]
        a[i] += moved
        f = f + moved * K[:, i]
    return a


def greedy(K, y, cost, steps):
    """SMO without a bias: max sum_i b_i - |w|^2 / 2, 0 <= b_i <= cost, best row first."""
    b = np.zeros(len(y))
    for _ in range(steps):
        slope = 1.0 - y * (K @ (b * y))
        move = np.clip(b + slope / np.diag(K), 0.0, cost) - b
        i = np.argmax(slope * move - np.diag(K) * move**2 / 2)
        b[i] += move[i]
    return b * y
